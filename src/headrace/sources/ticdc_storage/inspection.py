"""A report about a changefeed's folder: databases, tables, versions, files, the checkpoint, and likely errors.

Needs only the folder: no Spark, no ledger, and no complete changefeed (a folder without ``metadata`` is reported as such).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from headrace.errors import SourceNotReadyError
from headrace.formats.storage_paths import SchemaPath, parse_path
from headrace.model.inspection import Finding, Inspection, Severity, TableInspection, VersionInspection
from headrace.model.outcome import Problem, SplitReport
from headrace.model.place import PlaceInFile
from headrace.model.precision import CommitTsPrecision
from headrace.model.split import Window
from headrace.model.table import TableId
from headrace.model.tso import tso_to_ms
from headrace.sources.ticdc_storage.catalogue import Catalogue
from headrace.sources.ticdc_storage.folder import Folder
from headrace.sources.ticdc_storage.options import Protocol, StorageOptions
from headrace.sources.ticdc_storage.poll import precision_of, told_exact
from headrace.sources.ticdc_storage.position import StoragePosition
from headrace.sources.ticdc_storage.reader import Listing
from headrace.sources.ticdc_storage.split_selection import (
    Candidate,
    detect_protocol,
    gap_notice,
    gaps,
    of_protocol,
    ranked_splits,
    stray_notices,
    unknown_versions,
)
from headrace.sources.ticdc_storage.splits import read_split
from headrace.sources.ticdc_storage.stores import Store, StoredFile, StoreLocation, UnreadableFileError

_MOST_INDEX_BYTES = 1 << 10
"""An index file has one name only."""
_TEMPORARY = ".tmp."
"""Part of the names of files that TiCDC writes and then renames, on file systems."""


class FindingKind(StrEnum):
    """Possible errors in a folder. Those from ``REPLAY`` on are found only by a check of every row."""

    GAP = "gap in file numbers"
    INDEX_WITHOUT_DATA = "index without data"
    INDEX_BEHIND = "index behind the data"
    UNREADABLE_INDEX = "index that cannot be read"
    CHECKSUM = "schema checksum mismatch"
    UNKNOWN_FILES = "unknown files"
    TEMPORARY_FILES = "temporary files"
    STRAYS = "entries that are no files"
    EMPTY_FILE = "empty data file"
    OTHER_PROTOCOL = "files of another protocol"
    REMARK = "remark"
    NO_METADATA = "no metadata"
    ABOVE_CHECKPOINT = "above the checkpoint"
    DATA_WITHOUT_SCHEMA = "data without schema"
    BROKEN_SCHEMA = "broken schema file"
    BROKEN_DATA = "broken data file"
    REPLAY = "repeated rows"
    SPLIT_TRANSACTION = "transaction in two files"
    NOT_CHECKED = "not checked"
    CUT_OFF = "record cut off"
    OUT_OF_ORDER = "commit ts going back in a file"
    OUTSIDE_VERSION = "rows outside their version"
    OTHER_TABLE = "rows of another table"
    KEY_HISTORY = "history of a key"


_INFOS = frozenset(
    {
        FindingKind.GAP,
        FindingKind.INDEX_BEHIND,
        FindingKind.UNKNOWN_FILES,
        FindingKind.TEMPORARY_FILES,
        FindingKind.EMPTY_FILE,
        FindingKind.REMARK,
        FindingKind.ABOVE_CHECKPOINT,
        FindingKind.REPLAY,
        FindingKind.SPLIT_TRANSACTION,
        FindingKind.NOT_CHECKED,
    }
)
_ERRORS = frozenset(
    {
        FindingKind.DATA_WITHOUT_SCHEMA,
        FindingKind.BROKEN_SCHEMA,
        FindingKind.BROKEN_DATA,
        FindingKind.OUT_OF_ORDER,
        FindingKind.OTHER_TABLE,
        FindingKind.KEY_HISTORY,
    }
)


def usual_severity(kind: FindingKind) -> Severity:
    """The severity of findings of a kind, unless details make one better or worse."""
    return Severity.INFO if kind in _INFOS else Severity.ERROR if kind in _ERRORS else Severity.WARNING


@dataclass(frozen=True)
class Look:
    """The state of a folder before any data file is read. ``checkpoint`` (TSO) is ``None`` without ``metadata``."""

    location: StoreLocation
    options: StorageOptions
    store: Store
    folder: Folder
    listing: Listing
    catalogue: Catalogue
    protocol: Protocol
    checkpoint: int | None
    findings: tuple[Finding, ...]

    @property
    def precision(self) -> CommitTsPrecision:
        """The precision of the rows' commit ts."""
        told = told_exact(self.protocol, self.options)
        found = self.folder.peek(self.protocol, self.options, self.candidates) if told is None else told
        return precision_of(self.protocol, exact=found is not False)

    @property
    def candidates(self) -> list[Candidate]:
        """The readable data files, with the version of their table."""
        return [
            (stored, path, version)
            for stored, path in self.listing.data
            if path.extension == self.protocol.extension and stored.size
            if (version := self.catalogue.versions.get(path.parent, {}).get(path.version)) is not None
        ]


def look(location: StoreLocation, options: StorageOptions) -> Look:
    """Examines a folder without reading data.

    Raises SourceUnreachableError, and SourceNotReadyError for a folder that has no files of a changefeed.
    """
    store = location.open()
    folder = Folder(store, options)
    findings = []
    checkpoint: int | None = None
    try:
        checkpoint = folder.reader.checkpoint()
    except SourceNotReadyError as error:
        findings.append(_finding(FindingKind.NO_METADATA, str(error), file="metadata"))
    listing, catalogue = folder.scan(StoragePosition())
    if checkpoint is None and not listing.data and not listing.schemas:
        folder.reader.checkpoint()  # raises an error that says what is wrong with the folder
    protocol = detect_protocol(listing, options)
    findings += _findings(store, listing, catalogue, protocol)
    return Look(location, options, store, folder, listing, catalogue, protocol, checkpoint, tuple(findings))


def inspect_folder(location: StoreLocation, options: StorageOptions, *, count_rows: bool) -> Inspection:
    """Inspects a folder. ``count_rows`` decodes every data file. Raises what :func:`look` raises."""
    seen = look(location, options)
    if not count_rows:
        return inspection_of(seen)
    rows, problems = _count_rows(seen)
    return inspection_of(seen, rows, [data_finding(problem) for problem in problems])


def inspection_of(seen: Look, rows: dict[str, int] | None = None, more: Iterable[Finding] = ()) -> Inspection:
    """The inspection of a folder, with the number of rows of each file if counted. The findings ``more`` come before its own."""
    catalogue, checkpoint = seen.catalogue, seen.checkpoint
    return Inspection(
        place=seen.store.place,
        protocol=seen.protocol,
        commit_ts=seen.precision,
        checkpoint=checkpoint,
        lag_seconds=None if checkpoint is None else max(0.0, time.time() - tso_to_ms(checkpoint) / 1000),
        databases=tuple(sorted(catalogue.databases | {table.database for table in catalogue.tables})),
        tables=_tables(seen.listing, catalogue, rows),
        findings=(*more, *seen.findings),
    )


def data_finding(problem: Problem) -> Finding:
    """The finding for a data file that cannot be read to its end."""
    return Finding(
        FindingKind.BROKEN_DATA,
        problem.sentence(),
        problem.table_id,
        problem.file,
        usual_severity(FindingKind.BROKEN_DATA),
        problem.place.line if isinstance(problem.place, PlaceInFile) else None,
    )


def _finding(kind: FindingKind, message: str, table_id: TableId | None = None, file: str = "") -> Finding:
    return Finding(kind, message, table_id, file, usual_severity(kind))


def _tables(listing: Listing, catalogue: Catalogue, rows: dict[str, int] | None) -> tuple[TableInspection, ...]:
    """Every table of the schema files, with the data files of its versions. Data without a schema file are a finding."""
    files: dict[tuple[str, int], list[StoredFile]] = defaultdict(list)
    for stored, path in listing.data:
        files[path.parent, path.version].append(stored)
    found: dict[TableId, dict[int, VersionInspection]] = defaultdict(dict)
    for parent, versions in catalogue.versions.items():
        for number, version in versions.items():
            own = files.get((parent, number), [])
            other = found[version.table_id].get(number)
            # In table-id mode, each partition has its own schema file for the same version.
            found[version.table_id][number] = VersionInspection(
                version=number,
                statement=version.statement or (other.statement if other else ""),
                columns=len(version.schema.columns),
                files=len(own) + (other.files if other else 0),
                bytes=sum(file.size for file in own) + (other.bytes if other else 0),
                rows=None if rows is None else sum(rows.get(f.path, 0) for f in own) + ((other.rows or 0) if other else 0),
            )
    return tuple(
        TableInspection(table_id, table_id in catalogue.tables, tuple(version for _, version in sorted(versions.items())))
        for table_id, versions in sorted(found.items())
    )


def _count_rows(seen: Look) -> tuple[dict[str, int], list[Problem]]:
    """The number of rows in each data file, and the files that could not be read to their end."""
    rows = {}
    problems = []
    for split in ranked_splits(seen.candidates, seen.location, seen.options, seen.protocol, has_commit_ts=False):
        for item in read_split(split, Window()):
            if not isinstance(item, SplitReport):
                continue
            rows[split.key] = item.rows
            if item.problem is not None:
                problems.append(item.problem)
            elif item.truncated:
                message = "The last record is cut off in the middle."
                problems.append(Problem(item.table_id, message, item.at(line=item.truncated_line)))
    return rows, problems


def _findings(store: Store, listing: Listing, catalogue: Catalogue, protocol: Protocol) -> list[Finding]:
    findings = []
    mismatched = set(catalogue.mismatched)
    for problem in catalogue.problems:
        kind = FindingKind.CHECKSUM if problem.file in mismatched else FindingKind.BROKEN_SCHEMA
        findings.append(_finding(kind, problem.sentence(), problem.table_id, problem.file))
    for notice in catalogue.notices:
        kind = FindingKind.CHECKSUM if notice.file in mismatched and "checksum" in notice.message else FindingKind.REMARK
        findings.append(_finding(kind, notice.sentence(), notice.table_id, notice.file))
    tables = {path.directory: catalogue.table_of(path.parent, path.version) for _, path in listing.data}
    for (directory, dispatcher), missing in gaps(of_protocol(listing, protocol), StoragePosition(), tables.keys()).items():
        notice = gap_notice(directory, dispatcher, missing, tables[directory])
        findings.append(_finding(FindingKind.GAP, notice.sentence(), notice.table_id, directory))
    broken = {(p.parent, p.version) for key in catalogue.broken if isinstance(p := parse_path(key), SchemaPath)}
    unknown = [(s, p) for s, p in listing.data if p.version not in catalogue.versions.get(p.parent, {})]
    for _, problem in unknown_versions(unknown, catalogue, broken):
        findings.append(_finding(FindingKind.DATA_WITHOUT_SCHEMA, problem.sentence(), problem.table_id, problem.file))
    findings.extend(_index_findings(store, listing, tables))
    findings.extend(_finding(FindingKind.STRAYS, notice.message, file=notice.file) for notice in stray_notices(listing))
    temporary = [file for file in listing.foreign if _TEMPORARY in file.path]
    unknown_files = [file for file in listing.foreign if _TEMPORARY not in file.path]
    if unknown_files:
        message = f"{len(unknown_files)} files are not part of the format: {_some(unknown_files)}."
        findings.append(_finding(FindingKind.UNKNOWN_FILES, message))
    if temporary:
        message = f"{len(temporary)} temporary files were left unfinished by a writer that was interrupted: {_some(temporary)}."
        findings.append(_finding(FindingKind.TEMPORARY_FILES, message))
    strangers = [stored for stored, path in listing.data if path.extension != protocol.extension]
    if strangers:
        message = f"{len(strangers)} files are left out, because the protocol is {protocol}: {_some(strangers)}."
        findings.append(_finding(FindingKind.OTHER_PROTOCOL, message))
    for stored, path in listing.data:
        if stored.size == 0:
            message = "The file is empty: TiCDC took its number and has not filled it."
            findings.append(_finding(FindingKind.EMPTY_FILE, message, tables[path.directory], stored.path))
    return findings


def _some(files: Sequence[StoredFile]) -> str:
    return ", ".join(file.path for file in files[:3]) + (", …" if len(files) > 3 else "")


def _index_findings(store: Store, listing: Listing, tables: dict[str, TableId]) -> list[Finding]:
    """Index files that name a missing data file, or not the newest one: after a crash of TiCDC, or if a file was lost."""
    newest: dict[tuple[str, str], tuple[int, str]] = {}
    for stored, path in listing.data:
        place = (path.directory, path.dispatcher)
        newest[place] = max(newest.get(place, (0, "")), (path.number, stored.path.rpartition("/")[2]))
    present = {stored.path for stored, _ in listing.data}
    contents = store.read_starts([stored.path for stored, _ in listing.indexes], _MOST_INDEX_BYTES)
    findings = []
    for (stored, index), raw in zip(listing.indexes, contents, strict=True):
        if isinstance(raw, UnreadableFileError):
            findings.append(_finding(FindingKind.UNREADABLE_INDEX, str(raw), tables.get(index.directory), stored.path))
            continue
        named = (raw or b"").decode("utf-8", "replace").strip()
        last = newest.get((index.directory, index.dispatcher), (0, ""))[1]
        if named and f"{index.directory}/{named}" not in present:
            message = f"The index names {named}, which is not there."
            findings.append(_finding(FindingKind.INDEX_WITHOUT_DATA, message, tables.get(index.directory), stored.path))
        elif named != last:
            message = f"The index names {named or 'nothing'}, and {last} is there."
            findings.append(_finding(FindingKind.INDEX_BEHIND, message, tables.get(index.directory), stored.path))
    return findings
