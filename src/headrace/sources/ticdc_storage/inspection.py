"""What is in a changefeed's folder, for people: databases, tables, versions, files, the checkpoint, and what looks wrong.

Needs nothing but the folder: no Spark, no ledger, and no complete changefeed (a folder without ``metadata`` is told as such).
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum

from headrace.errors import SourceNotReadyError
from headrace.model.cut import Window
from headrace.model.outcome import Problem, SplitReport
from headrace.model.table import TableId
from headrace.model.tso import tso_to_ms
from headrace.sources.ticdc_storage.catalogue import Catalogue
from headrace.sources.ticdc_storage.folder import Folder
from headrace.sources.ticdc_storage.offering import detect_protocol, gap_notice, gaps, ranked_splits, unknown_version_problems
from headrace.sources.ticdc_storage.options import Protocol, StorageOptions
from headrace.sources.ticdc_storage.paths import SchemaPath, parse_path
from headrace.sources.ticdc_storage.position import StoragePosition
from headrace.sources.ticdc_storage.reader import Listing
from headrace.sources.ticdc_storage.source import open_source
from headrace.sources.ticdc_storage.splits import read_split
from headrace.sources.ticdc_storage.stores import Store, StoredFile, StoreLocation


class FindingKind(StrEnum):
    """What may be wrong in a folder. Only the last four keep a table from being read."""

    GAP = "gap in file numbers"
    INDEX_WITHOUT_DATA = "index without data"
    CHECKSUM = "schema checksum mismatch"
    UNKNOWN_FILES = "unknown files"
    REMARK = "remark"
    NO_METADATA = "no metadata"
    DATA_WITHOUT_SCHEMA = "data without schema"
    BROKEN_SCHEMA = "broken schema file"
    BROKEN_DATA = "broken data file"


@dataclass(frozen=True)
class Finding:
    """Something worth a look; ``message`` is one plain sentence."""

    kind: FindingKind
    message: str
    table_id: TableId | None = None
    file: str = ""


@dataclass(frozen=True)
class VersionInspection:
    """One version of a table: ``statement`` is the DDL that made it (empty for a shape), ``rows`` ``None`` unless counted."""

    version: int
    statement: str
    columns: int
    files: int
    bytes: int
    rows: int | None = None


@dataclass(frozen=True)
class TableInspection:
    """One table under the name it has in the files; ``exists`` says whether it does after all schema changes."""

    table_id: TableId
    exists: bool
    versions: tuple[VersionInspection, ...]

    @property
    def files(self) -> int:
        return sum(version.files for version in self.versions)

    @property
    def bytes(self) -> int:
        return sum(version.bytes for version in self.versions)

    @property
    def rows(self) -> int | None:
        """The change rows of all versions, ``None`` unless they were counted."""
        counts = [version.rows for version in self.versions]
        return None if any(count is None for count in counts) else sum(count or 0 for count in counts)


@dataclass(frozen=True)
class Inspection:
    """What is in a folder. ``checkpoint`` (TSO) is ``None`` without ``metadata``, and so is ``lag_seconds``, its age."""

    place: str
    protocol: Protocol
    checkpoint: int | None
    lag_seconds: float | None
    databases: tuple[str, ...]
    tables: tuple[TableInspection, ...]
    findings: tuple[Finding, ...]


def inspect(uri: str, changefeed: str | None = None, count_rows: bool = False) -> Inspection:
    """Looks into the folder that a source's URI names; ``count_rows`` decodes every data file.

    Raises DefinitionError, SourceUnreachableError, and SourceNotReadyError for a folder that holds nothing of a changefeed.
    """
    source = open_source(uri, changefeed)
    store = source.location.open()
    folder = Folder(store, source.options)
    findings = []
    checkpoint: int | None = None
    try:
        checkpoint = folder.reader.checkpoint()
    except SourceNotReadyError as error:
        findings.append(Finding(FindingKind.NO_METADATA, str(error), file="metadata"))
    listing, catalogue = folder.scan(StoragePosition())
    if checkpoint is None and not listing.data and not listing.schemas:
        folder.reader.checkpoint()  # says what is wrong with the folder
    protocol = detect_protocol(listing, source.options)
    rows: dict[str, int] | None = None
    if count_rows:
        rows, problems = _count_rows(listing, catalogue, source.location, source.options, protocol)
        findings += [Finding(FindingKind.BROKEN_DATA, p.sentence(), p.table_id, p.file) for p in problems]
    findings = [*findings, *_findings(store, listing, catalogue)]
    return Inspection(
        place=store.place,
        protocol=protocol,
        checkpoint=checkpoint,
        lag_seconds=None if checkpoint is None else max(0.0, time.time() - tso_to_ms(checkpoint) / 1000),
        databases=tuple(sorted(catalogue.databases | {table.database for table in catalogue.tables})),
        tables=_tables(listing, catalogue, rows),
        findings=tuple(findings),
    )


def _tables(listing: Listing, catalogue: Catalogue, rows: dict[str, int] | None) -> tuple[TableInspection, ...]:
    """Every table of the schema files, with the data files of its versions; data without a schema file is a finding."""
    files: dict[tuple[str, int], list[StoredFile]] = defaultdict(list)
    for stored, path in listing.data:
        files[path.parent, path.version].append(stored)
    found: dict[TableId, dict[int, VersionInspection]] = defaultdict(dict)
    for parent, versions in catalogue.versions.items():
        for number, version in versions.items():
            own = files.get((parent, number), [])
            other = found[version.table_id].get(number)
            # In table-id mode each partition has a schema file of its own for the same version.
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


def _count_rows(
    listing: Listing, catalogue: Catalogue, location: StoreLocation, options: StorageOptions, protocol: Protocol
) -> tuple[dict[str, int], list[Problem]]:
    """Rows per data file, and the files that could not be read to their end."""
    candidates = [
        (stored, path, version)
        for stored, path in listing.data
        if path.extension == protocol.extension and stored.size
        if (version := catalogue.versions.get(path.parent, {}).get(path.version)) is not None
    ]
    rows = {}
    problems = []
    for split in ranked_splits(candidates, location, options, protocol, has_commit_ts=False):
        for item in read_split(split, Window()):
            if not isinstance(item, SplitReport):
                continue
            rows[split.key] = item.rows
            if item.problem is not None:
                problems.append(item.problem)
            elif item.truncated:
                message = "The last record is cut off in the middle."
                problems.append(Problem(item.table_id, message, split.key, item.truncated_line))
    return rows, problems


def _findings(store: Store, listing: Listing, catalogue: Catalogue) -> list[Finding]:
    findings = []
    mismatched = set(catalogue.mismatched)
    for problem in catalogue.problems:
        kind = FindingKind.CHECKSUM if problem.file in mismatched else FindingKind.BROKEN_SCHEMA
        findings.append(Finding(kind, problem.sentence(), problem.table_id, problem.file))
    for notice in catalogue.notices:
        kind = FindingKind.CHECKSUM if notice.file in mismatched and "checksum" in notice.message else FindingKind.REMARK
        findings.append(Finding(kind, notice.sentence(), notice.table_id, notice.file))
    tables = {path.directory: catalogue.table_of(path.parent, path.version) for _, path in listing.data}
    for (directory, dispatcher), missing in gaps(listing, StoragePosition(), tables.keys()).items():
        notice = gap_notice(directory, dispatcher, missing, tables[directory])
        findings.append(Finding(FindingKind.GAP, notice.sentence(), notice.table_id, directory))
    broken = {(p.parent, p.version) for key in catalogue.broken if isinstance(p := parse_path(key), SchemaPath)}
    unknown = [(s, p) for s, p in listing.data if p.version not in catalogue.versions.get(p.parent, {})]
    for problem in unknown_version_problems(unknown, catalogue, broken):
        findings.append(Finding(FindingKind.DATA_WITHOUT_SCHEMA, problem.sentence(), problem.table_id, problem.file))
    findings.extend(_index_findings(store, listing, tables))
    if listing.foreign:
        names = ", ".join(file.path for file in listing.foreign[:3]) + (", …" if len(listing.foreign) > 3 else "")
        findings.append(Finding(FindingKind.UNKNOWN_FILES, f"{len(listing.foreign)} files are not part of the format: {names}."))
    return findings


def _index_findings(store: Store, listing: Listing, tables: dict[str, TableId]) -> list[Finding]:
    """Index files that name a data file which is not there: a crash of TiCDC, or a file that went missing."""
    present = {stored.path for stored, _ in listing.data}
    contents = store.read_many([stored.path for stored, _ in listing.indexes])
    findings = []
    for (stored, path), raw in zip(listing.indexes, contents, strict=True):
        named = (raw or b"").decode("utf-8", "replace").strip()
        if named and f"{path.directory}/{named}" not in present:
            message = f"The index names {named}, which is not there."
            findings.append(Finding(FindingKind.INDEX_WITHOUT_DATA, message, tables.get(path.directory), stored.path))
    return findings
