"""Checks every row of a changefeed's folder against TiCDC's promises: ``headrace inspect --check``.

Works table by table and file by file. Only one batch of rows and one report per file are in memory. The history of keys is in a
temporary DuckDB file that is emptied after each table.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from headrace.errors import SourceUnreachableError
from headrace.formats.names import canal_tables, csv_tables
from headrace.model.block import COMMIT_TS, ChangeBlock
from headrace.model.inspection import Checkup, Finding, Severity
from headrace.model.outcome import SplitReport, is_repeated
from headrace.model.split import Window
from headrace.model.table import TableId
from headrace.scratch import Scratch
from headrace.sources.base import Progress
from headrace.sources.ticdc_storage.inspection import (
    FindingKind,
    Look,
    data_finding,
    inspection_of,
    look,
    usual_severity,
)
from headrace.sources.ticdc_storage.key_history import Break, KeyHistory, lives_of
from headrace.sources.ticdc_storage.options import Protocol, StorageOptions
from headrace.sources.ticdc_storage.position import StoragePosition
from headrace.sources.ticdc_storage.split_selection import Candidate, gaps, of_protocol, ranked_splits
from headrace.sources.ticdc_storage.splits import FileSplit, read_split
from headrace.sources.ticdc_storage.stores import StoreLocation

_KEPT = 100
"""How many findings of one kind are kept for a table; the others are only counted."""


def check_folder(location: StoreLocation, options: StorageOptions, progress: Progress) -> Checkup:
    """Reads every file of a folder. Raises what :func:`inspection.look` raises."""
    seen = look(location, options)
    kept = _Findings()
    for finding in (*seen.findings, *_above_checkpoint(seen)):
        kept.add(finding)
    exact = seen.precision.is_exact
    if not exact:
        kept.tell(
            FindingKind.NOT_CHECKED,
            "The rows carry no exact commit ts, so neither their order nor the histories of keys can be checked.",
        )
    rows: dict[str, int] = {}
    splits = _splits(seen, exact)
    total = sum(map(len, splits.values()))
    with Scratch.make("check") as scratch, KeyHistory(scratch.path) as history:
        for parent, files in splits.items():
            table = _TableCheck(seen, parent, files, history if exact else None, kept)
            for report in table.run():
                rows[report.split_key] = report.rows
                progress(len(rows), total)
    inspection = inspection_of(replace(seen, findings=tuple(kept.kept)), rows)
    return Checkup(inspection, dict(kept.counts))


class _Findings:
    """The findings that were kept, and the number of all."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.counts: Counter[tuple[str, Severity]] = Counter()
        self._tables: Counter[tuple[str, TableId | None]] = Counter()

    def add(self, finding: Finding) -> None:
        self.counts[finding.kind, finding.severity] += 1
        self._tables[finding.kind, finding.table_id] += 1
        if self._tables[finding.kind, finding.table_id] <= _KEPT:
            self.kept.append(finding)

    def tell(
        self,
        kind: FindingKind,
        message: str,
        table_id: TableId | None = None,
        file: str = "",
        *,
        severity: Severity | None = None,
        line: int | None = None,
        commit_ts: int | None = None,
        key: str = "",
    ) -> None:
        self.add(Finding(kind, message, table_id, file, severity or usual_severity(kind), line, commit_ts, key))


def _above_checkpoint(seen: Look) -> Iterator[Finding]:
    """Schema files above the checkpoint. Many, or old ones, mean that the checkpoint was moved back."""
    if seen.checkpoint is None:
        return
    for versions in seen.catalogue.versions.values():
        above = [version for number, version in versions.items() if number >= seen.checkpoint]
        if above:
            message = f"{len(above)} schema files have a version that is not below the checkpoint {seen.checkpoint}."
            kind = FindingKind.ABOVE_CHECKPOINT
            yield Finding(kind, message, above[0].table_id, above[0].origin, usual_severity(kind), commit_ts=above[0].version)


def _splits(seen: Look, exact: bool) -> dict[str, list[tuple[FileSplit, Candidate]]]:
    """The files by the table's path, in the order of versions, dates, dispatchers and numbers."""
    tables: dict[str, list[tuple[FileSplit, Candidate]]] = defaultdict(list)
    candidates = {candidate[0].path: candidate for candidate in seen.candidates}
    for split in ranked_splits(candidates.values(), seen.location, seen.options, seen.protocol, exact):
        candidate = candidates[split.key]
        tables[candidate[1].parent].append((split, candidate))
    return tables


@dataclass
class _Stream:
    """The files of one dispatcher in a directory, or in several dates of it: the state at the end of the previous file."""

    last: int = 0


@dataclass
class _Order:
    """The commit ts of one file in the order of its rows."""

    first: int = 0
    last: int = 0
    backward: int = 0
    backward_row: int = 0
    rows: int = 0

    def take(self, commit_ts: np.ndarray) -> None:
        before = np.concatenate(([self.last if self.rows else commit_ts[0]], commit_ts[:-1]))
        places = np.flatnonzero(commit_ts < before)
        if places.size and not self.backward:
            self.backward_row = self.rows + int(places[0]) + 1
        self.backward += int(places.size)
        if not self.rows:
            self.first = int(commit_ts[0])
        self.last = int(commit_ts[-1])
        self.rows += len(commit_ts)


@dataclass
class _Outside:
    """Rows of one file that do not belong to its version's directory."""

    below: int = 0
    above: int = 0
    replayed: int = 0


@dataclass
class _TableCheck:
    """Checks the files below one path. ``history`` is ``None`` if rows have no exact commit ts."""

    seen: Look
    parent: str
    files: list[tuple[FileSplit, Candidate]]
    history: KeyHistory | None
    kept: _Findings
    streams: dict[tuple[int, str, str], _Stream] = field(default_factory=lambda: defaultdict(_Stream))
    repeats: list[str] = field(default_factory=list)
    shared: list[str] = field(default_factory=list)
    replayed: int = 0

    def run(self) -> Iterator[SplitReport]:
        """Reads the files one by one. Yields the report of each, and adds errors to the findings."""
        self.versions = sorted(self.seen.catalogue.versions[self.parent])
        self.lives = lives_of(self.seen.catalogue.versions[self.parent])
        reports = []
        for split, candidate in self.files:
            report = self._read(split, candidate)
            reports.append(report)
            yield report
        for report in reports:
            self._look_at_end(report, reports)
        self._tell_order()
        if self.history is not None:
            for found in self.history.breaks(self.seen.checkpoint):
                self._tell_break(found)
            self.history.clear()

    @property
    def _table_id(self) -> TableId:
        return self.seen.catalogue.table_of(self.parent)

    def _read(self, split: FileSplit, candidate: Candidate) -> SplitReport:
        order, outside = _Order(), _Outside()
        # Rows that a run would skip as replays are checked like all others.
        for item in read_split(replace(split, stale_from=0, stale_below=0), Window()):
            if isinstance(item, SplitReport):
                report = item
            elif self.history is not None and item.num_rows:
                self._take(split, item, order, outside)
        if report.problem is not None:
            self.kept.add(data_finding(report.problem))
        self._look_at_names(split)
        if order.rows:
            self._look_at_order(split, candidate, order)
            self._look_at_version(split, outside)
        return report

    def _take(self, split: FileSplit, block: ChangeBlock, order: _Order, outside: _Outside) -> None:
        assert self.history is not None
        commit_ts = block.batch.column(COMMIT_TS).to_numpy()
        order.take(commit_ts)
        after = next((version for version in self.versions if version > split.version), None)
        below = commit_ts < split.version
        stale = below & (commit_ts >= split.stale_from)
        outside.replayed += int(stale.sum())
        # Before the first known version there is no directory that could have the original.
        outside.below += int((below & ~stale).sum())
        outside.above += int((commit_ts > after).sum()) if after is not None else 0
        self.history.add(block, self.lives[split.version], split.key, ~stale)

    def _look_at_names(self, split: FileSplit) -> None:
        for table_id in sorted(_named_tables(split) - {split.table_id}):
            self.kept.tell(FindingKind.OTHER_TABLE, f"The file holds rows of {table_id}.", split.table_id, split.key)

    def _look_at_order(self, split: FileSplit, candidate: Candidate, order: _Order) -> None:
        if order.backward:
            message = (
                f"The commit ts goes back {order.backward} times, first at record {order.backward_row}; within a file TiCDC "
                "never does that."
            )
            self.kept.tell(FindingKind.OUT_OF_ORDER, message, split.table_id, split.key)
        path = candidate[1]
        stream = self.streams[path.version, path.partition, path.dispatcher]
        if order.first < stream.last:
            self.repeats.append(split.key)
        elif order.first == stream.last:
            self.shared.append(split.key)
        stream.last = order.last

    def _look_at_version(self, split: FileSplit, outside: _Outside) -> None:
        self.replayed += outside.replayed
        if outside.below:
            message = (
                f"{outside.below} rows are older than the version {split.version}, and no older one is there that could hold them."
            )
            self.kept.tell(FindingKind.OUTSIDE_VERSION, message, split.table_id, split.key)
        if outside.above:
            message = f"{outside.above} rows are newer than the version that follows {split.version}."
            self.kept.tell(FindingKind.OUTSIDE_VERSION, message, split.table_id, split.key)

    def _look_at_end(self, report: SplitReport, reports: list[SplitReport]) -> None:
        if not report.truncated:
            return
        checkpoint = self.seen.checkpoint
        if is_repeated(report, reports):
            severity, why = Severity.INFO, "a later file repeats it"
        elif checkpoint is not None and report.truncated_ts is not None and report.truncated_ts > checkpoint:
            severity, why = Severity.WARNING, "it is above the checkpoint, and no later file repeats it yet"
        else:
            severity, why = Severity.ERROR, "no later file repeats it"
        self.kept.tell(
            FindingKind.CUT_OFF,
            f"The last record is cut off in the middle; {why}.",
            report.table_id,
            report.split_key,
            severity=severity,
            line=report.truncated_line,
            commit_ts=report.truncated_ts,
        )

    def _tell_order(self) -> None:
        if self.repeats:
            message = (
                f"{len(self.repeats)} files begin before the end of the one before them: TiCDC was restarted, and repeats rows."
            )
            self.kept.tell(FindingKind.REPLAY, message, self._table_id, self.repeats[0])
        if self.replayed:
            message = f"{self.replayed} rows are older than the version of their directory: TiCDC repeats rows of an older one."
            self.kept.tell(FindingKind.REPLAY, message, self._table_id)
        if self.shared:
            message = (
                f"{len(self.shared)} files begin with the commit ts that the one before them ends with: a transaction in two "
                "files, or a repetition."
            )
            self.kept.tell(FindingKind.SPLIT_TRANSACTION, message, self._table_id, self.shared[0])

    def _tell_break(self, found: Break) -> None:
        severity, why = Severity.ERROR, "Changes are missing, or are not those of one row."
        if self._has_gaps:
            severity, why = Severity.WARNING, "Files of this table are missing."
        self.kept.tell(
            FindingKind.KEY_HISTORY,
            f"{found.message} {why}",
            self._table_id,
            found.file,
            severity=severity,
            commit_ts=found.commit_ts,
            key=found.key,
        )

    @property
    def _has_gaps(self) -> bool:
        directories = {candidate[1].directory for _, candidate in self.files}
        return bool(gaps(of_protocol(self.seen.listing, self.seen.protocol), StoragePosition(), directories))


def _named_tables(split: FileSplit) -> frozenset[TableId]:
    """The tables named in the rows of a file; empty for a file that cannot be read, which is reported elsewhere."""
    if split.size > split.most_bytes:
        return frozenset()
    try:
        data = memoryview(split.location.open().read_buffer(split.key))
    except (FileNotFoundError, SourceUnreachableError):
        return frozenset()
    return csv_tables(data, split.csv) if split.protocol is Protocol.CSV else canal_tables(data)
