"""One data file as a split, and reading it: bytes, rows, window, report. Runs in tasks, and never raises because of data."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import SourceUnreachableError
from headrace.formats.base import DecodeError, MembersNotKnownError, Rejects, TruncatedRecordError
from headrace.formats.canal_json import CanalJsonOptions, decode_canal_json
from headrace.formats.csv import CsvOptions, decode_csv
from headrace.model.block import COMMIT_TS, KIND, META_FIELDS, SEQ, SEQ_RANK_SHIFT, ChangeBlock, in_pieces
from headrace.model.containment import contained
from headrace.model.letters import RejectedRecord
from headrace.model.outcome import Notice, Problem, Remedy, SplitReport
from headrace.model.split import Split, Window
from headrace.model.table import TableId
from headrace.model.tso import MAX_TSO
from headrace.sources.ticdc_storage.drains import Drain
from headrace.sources.ticdc_storage.options import Protocol
from headrace.sources.ticdc_storage.stores import StoreLocation, too_large

_COMMIT_TS_INDEX = [column.name for column in META_FIELDS].index(COMMIT_TS)
_SEQ_INDEX = [column.name for column in META_FIELDS].index(SEQ)
_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True)
class FileSplit(Split):
    """A data file; its key is its path.

    Rows with ``stale_from <= commit_ts < stale_below`` are replays of rows in an older directory of the table.
    """

    modified: int
    """ns since 1970."""
    location: StoreLocation
    protocol: Protocol
    csv: CsvOptions
    canal_json: CanalJsonOptions
    has_commit_ts: bool = True
    stale_from: int = 0
    stale_below: int = 0
    file_size: int = 64 << 20
    most_bytes: int = 1 << 30
    """A larger file is not read."""
    stream: str = ""
    """The sequence of file numbers to which it belongs, across versions and dates: that of a partition and dispatcher."""
    after: Drain | None = None
    """The final drain after which the file came."""
    left_out: Window | None = None
    """The ts of the cuts that left the file out, because its first row is above them."""
    is_behind: bool = False
    """It was first seen after a file with a larger number was applied."""

    @property
    def is_late(self) -> bool:
        """See ``Split.is_late``."""
        return self.is_behind or self.after is not None


def read_split(
    split: FileSplit, window: Window, old_images: bool = True, tolerance: int = 0
) -> Iterator[ChangeBlock | SplitReport]:
    """The rows of the file inside the window, then the report. The contract is ``EventSource.read``."""
    problems: list[Problem] = []
    with contained(problems.append, split.table_id, split.place):
        yield from _rows_and_report(split, window, old_images, Rejects(tolerance))
        return
    yield SplitReport(split.key, split.table_id, split.rank, split.stream, problem=problems[0])


def _rows_and_report(split: FileSplit, window: Window, old_images: bool, rejects: Rejects) -> Iterator[ChangeBlock | SplitReport]:
    tally = _Tally(split, window, rejects)
    problem: Problem | None = None
    truncated: TruncatedRecordError | None = None
    try:
        data, problem = _content(split)
        if data is not None:
            if not split.has_commit_ts:
                # Without commit ts, only the content shows whether a file differs from the one that was applied.
                tally.content = zlib.crc32(memoryview(data))
            for batch in _decode(split, data, old_images, rejects):
                for rows in tally.take(batch):
                    yield ChangeBlock(split.table_id, split.version, split.schema, rows)
                if tally.problem is not None:
                    problem = tally.problem
                    break
    except TruncatedRecordError as error:
        truncated = error
    except MembersNotKnownError as error:
        hint = _members_hint(split, error.column)
        problem = Problem(split.table_id, error.message, split.place.at(line=error.line), error.column, error.value, hint)
    except DecodeError as error:
        problem = Problem(split.table_id, error.message, split.place.at(line=error.line), error.column, error.value, error.hint)
    except SourceUnreachableError as error:
        problem = Problem(split.table_id, error.message, split.place, hint=error.hint, transient=True)
    yield tally.report(problem, truncated)


def _members_hint(split: FileSplit, column: str) -> str:
    """The hint about a missing list of members.

    Older releases of TiCDC write none, and a table that is older than the changefeed has no statement with one.
    """
    return (
        f"List them, in their order, as ColumnElems of {column} in the table's schema file of version {split.version}. For rows to "
        "come set content-compatible=true in the changefeed's sink URI, or repeat the column's definition upstream: "
        f"ALTER TABLE {split.table_id} MODIFY."
    )


def _content(split: FileSplit) -> tuple[pa.Buffer | None, Problem | None]:
    """The bytes of the file, if it is still as listed, and not too large."""
    if split.size > split.most_bytes:
        message, hint = too_large(split.size, split.most_bytes)
        return None, Problem(split.table_id, message, split.place, hint=hint)
    store = split.location.open()
    try:
        found = store.stat(split.key)
        data = store.read_buffer(split.key) if found is not None else None
    except FileNotFoundError:
        data = None
    if data is None or found is None:
        return None, Problem(
            split.table_id,
            "The file vanished before its changes were applied.",
            split.place,
            hint="Restore it, or copy the table anew.",
            transient=True,
        )
    if found.size != split.size or found.modified != split.modified or data.size != split.size:
        message = "The file changed between the listing and the reading."
        return None, Problem(split.table_id, message, split.place, hint="It is listed again at the next poll.", transient=True)
    return data, None


def _decode(split: FileSplit, data: pa.Buffer, old_images: bool, rejects: Rejects) -> Iterator[pa.RecordBatch]:
    if split.protocol is Protocol.CSV:
        return decode_csv(data, split.schema, split.csv, rejects)
    return decode_canal_json(data, split.schema, split.canal_json, old_images=old_images, rejects=rejects)


@dataclass(frozen=True)
class _Placed:
    """A rejected record, the commit ts (TSO) at which it counts (``None``: at any), and those between which it lies."""

    record: RejectedRecord
    counts_at: int | None
    earliest: int
    latest: int

    @property
    def span(self) -> tuple[int, int]:
        """The least and the greatest commit ts (TSO) that it may have; its own commit ts, if that is plausible."""
        if self.counts_at is not None and self.counts_at == self.record.commit_ts:
            return self.counts_at, self.counts_at
        return self.earliest, self.latest


@dataclass
class _Missing:
    """Records of a file that came too late: their number, and their least and greatest commit ts (TSO)."""

    rows: int = 0
    first: int = MAX_TSO
    last: int = 0

    def take(self, commit_ts: pa.Array, window: Window) -> None:
        """Counts those inside the window."""
        found = commit_ts.filter(_inside(commit_ts, window))
        if len(found):
            ends = pc.min_max(found).as_py()
            self.rows += len(found)
            self.first, self.last = min(self.first, int(ends["min"])), max(self.last, int(ends["max"]))

    def take_bad(self, record: _Placed, window: Window) -> None:
        """Counts a record that cannot be decoded, if it may lie inside the window."""
        earliest, latest = record.span
        first, last = max(earliest, window.lo + 1), min(latest, window.hi)
        if first <= last:
            self.rows += 1
            self.first, self.last = min(self.first, first), max(self.last, last)


@dataclass
class _Tally:
    """Extracts the window from the batches of one file, and counts."""

    split: FileSplit
    window: Window
    rejects: Rejects
    last_ts: int | None = None
    """The commit ts of the last row so far."""
    placed: list[_Placed] = field(default_factory=list)
    """The rejected records whose place in time is determined."""
    rows: int = 0
    kept: int = 0
    left: int = 0
    passed: int = 0
    min_ts: int = 0
    max_ts: int = 0
    counted: tuple[int, int] = (0, 0)
    """The least and the greatest commit ts of rows that are not replays."""
    first_row: str = ""
    """The first row that is not a replay."""
    last_first: str = ""
    """The first row at ``last_ts``."""
    pending_ts: int | None = None
    late: _Missing = field(default_factory=_Missing)
    behind: _Missing = field(default_factory=_Missing)
    problem: Problem | None = field(default=None)
    content: int | None = None

    def take(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows of the batch that are inside the window, in pieces of limited size."""
        if batch.num_rows == 0:
            return
        if self.split.has_commit_ts:
            found = pc.min_max(batch.column(_COMMIT_TS_INDEX)).as_py()
            low, high = int(found["min"]), int(found["max"])
            if low == 0:
                self.problem = _without_commit_ts(self.split, self.rows + 1)
                return
            self._place_rejects(batch)
            self.min_ts = min(self.min_ts, low) if self.rows else low
            self.max_ts = max(self.max_ts, high)
            self.rows += batch.num_rows
            batch = self._inside(batch, low, high)
        else:
            self.rows += batch.num_rows
        self.kept += batch.num_rows
        if batch.num_rows:
            yield from in_pieces(_numbered(batch, self.split.rank), _BLOCK_BYTES, batch.num_rows)

    def _inside(self, batch: pa.RecordBatch, low: int, high: int) -> pa.RecordBatch:
        commit_ts = batch.column(_COMMIT_TS_INDEX)
        if self.split.stale_from <= high and low < self.split.stale_below and self.split.stale_from < self.split.stale_below:
            fresh = pc.or_(pc.less(commit_ts, self.split.stale_from), pc.greater_equal(commit_ts, self.split.stale_below))
            self.passed += fresh.false_count
            batch = batch.filter(fresh)
            commit_ts = batch.column(_COMMIT_TS_INDEX)
        self._count(batch, commit_ts)
        self._note_missing(commit_ts)
        left_out = self.split.left_out
        if left_out is not None and _any_inside(commit_ts, Window(left_out.lo, min(left_out.hi, self.window.lo))):
            self.problem = _out_of_order(self.split)
        if low <= self.window.lo:
            self.passed += pc.less_equal(commit_ts, self.window.lo).true_count
        if high > self.window.hi:
            above = pc.greater(commit_ts, self.window.hi)
            self.left += above.true_count
            later = pc.min(commit_ts.filter(above)).as_py()
            if later is not None:
                self.pending_ts = int(later) if self.pending_ts is None else min(self.pending_ts, int(later))
        if low > self.window.lo and high <= self.window.hi:
            return batch
        return batch.filter(_inside(commit_ts, self.window))

    def _count(self, batch: pa.RecordBatch, commit_ts: pa.Array) -> None:
        found = pc.min_max(commit_ts).as_py()
        if found["min"] is not None:
            first, last = self.counted
            self.first_row = self.first_row if first else _named_row(batch, 0, self.split.schema.handle_key)
            self.counted = (min(first or found["min"], found["min"]), max(last, found["max"]))

    def _place_rejects(self, batch: pa.RecordBatch | None) -> None:
        """Determines the commit ts of the rejected records up to the end of the batch; ``None`` is the end of the file.

        A file is in the order of commit ts, so the commit ts in a damaged record counts only if it fits between its neighbours.
        Otherwise the one before it counts, which is never too late if cuts read the file in order. Without one, nothing is known.
        """
        numbers = stamps = np.empty(0, np.int64)
        if batch is not None:
            numbers, stamps = batch.column(_SEQ_INDEX).to_numpy(), batch.column(_COMMIT_TS_INDEX).to_numpy()
        for record in self.rejects.records[len(self.placed) :]:
            at = int(np.searchsorted(numbers, record.number))
            if at == len(numbers) and batch is not None:
                break
            earlier = int(stamps[at - 1]) if at else self.last_ts
            later = int(stamps[at]) if batch is not None else MAX_TSO
            told = record.commit_ts
            fits = told is not None and (earlier or 0) <= told <= (later if batch is not None else self.window.hi)
            self.placed.append(_Placed(record, told if fits else earlier, earlier or 0, later))
        if batch is not None:
            if self.last_ts != stamps[-1]:
                self.last_first = _named_row(batch, int(np.argmax(stamps == stamps[-1])), self.split.schema.handle_key)
            self.last_ts = int(stamps[-1])

    def _rejected(self) -> Iterator[RejectedRecord]:
        """The rejected records that belong, or may belong, into the window. Those above it are still to come.

        The commit ts in a damaged record alone does not make it an applied record or a replay: that must hold for its whole
        possible span.
        """
        split, lo, hi = self.split, self.window.lo, self.window.hi
        for found in self.placed:
            ts = found.counts_at
            if not split.has_commit_ts:
                yield found.record
            elif split.begun and (ts is None or ts <= lo):
                continue  # when the file was read before
            elif ts is not None and ts > hi:
                self.pending_ts = ts if self.pending_ts is None else min(self.pending_ts, ts)
            elif found.latest > lo and not split.stale_from <= found.earliest <= found.latest < split.stale_below:
                yield found.record

    def _note_missing(self, commit_ts: pa.Array) -> None:
        """Counts the rows that are below the window only because of a final drain, or of a file with a larger number."""
        for missing, window in self._windows_of_missing():
            missing.take(commit_ts, window)

    def _windows_of_missing(self) -> Iterator[tuple[_Missing, Window]]:
        """The counts of records that came too late, with their windows."""
        drain, window = self.split.after, self.window
        if self.split.begun:
            return
        if drain is not None:
            yield self.late, Window(max(drain.published, window.loaded), min(drain.end, window.lo))
        if self.split.is_behind:
            yield self.behind, Window(window.loaded, window.lo)

    def report(self, problem: Problem | None, truncated: TruncatedRecordError | None) -> SplitReport:
        """The report. A record that is cut off above the window is simply still to come."""
        self._place_rejects(None)
        for missing, window in self._windows_of_missing():
            for placed in self.placed:
                missing.take_bad(placed, window)
        rejects = tuple(self._rejected())
        pending = self.pending_ts
        cut_ts = truncated.commit_ts if truncated is not None else None
        if cut_ts is not None and cut_ts <= self.window.lo and self.split.begun:
            # An earlier reading of the file found the record repeated elsewhere.
            truncated = cut_ts = None
        if cut_ts is not None and cut_ts > self.window.hi:
            pending = cut_ts if pending is None else min(pending, cut_ts)
        return SplitReport(
            split_key=self.split.key,
            table_id=self.split.table_id,
            rank=self.split.rank,
            stream=self.split.stream,
            rows=self.rows,
            kept=self.kept,
            left=self.left,
            passed=self.passed,
            size=self.split.size,
            min_ts=self.min_ts,
            max_ts=self.max_ts,
            counted=self.counted,
            first_row=self.first_row,
            truncated_row=self._torn_row(truncated),
            pending_ts=pending,
            rolled_over=self.split.size >= self.split.file_size,
            truncated=truncated is not None,
            truncated_ts=cut_ts,
            truncated_line=truncated.line if truncated is not None else None,
            rejects=rejects if problem is None else (),
            problem=problem,
            content=self.content,
            notices=tuple(self._notices()),
        )

    def _torn_row(self, truncated: TruncatedRecordError | None) -> str:
        """The first row at the commit ts of the record that is cut off, or at the last commit ts before it if that is unknown."""
        if truncated is None or (truncated.commit_ts in (None, self.last_ts)):
            return self.last_first if truncated is not None else ""
        return _named_row(truncated.begun, 0, self.split.schema.handle_key) if truncated.begun is not None else ""

    def _notices(self) -> Iterator[Notice]:
        if self.late.rows and self.split.after:
            yield _late_notice(self.split.table_id, self.split.after, self.late)
        if self.behind.rows:
            yield _behind_notice(self.split, self.behind, self.window)


def _named_row(batch: pa.RecordBatch, row: int, key: tuple[str, ...]) -> str:
    """Kind and key of a row; empty without a key, since a row may then occur twice in one transaction."""
    if not key or not set(key) <= set(batch.schema.names):
        return ""
    return repr([batch.column(name)[row].as_py() for name in (KIND, *key)])


def _any_inside(commit_ts: pa.Array, window: Window) -> bool:
    return pc.any(_inside(commit_ts, window)).as_py() is True


def _inside(commit_ts: pa.Array, window: Window) -> pa.Array:
    return pc.and_(pc.greater(commit_ts, window.lo), pc.less_equal(commit_ts, window.hi))


def _out_of_order(split: FileSplit) -> Problem:
    return Problem(
        split.table_id,
        "its rows are not in the order of their commit ts, and cuts that should have contained some of them are already done.",
        split.place,
        hint="Copy the table anew, and run with --max-cut 0: each cut then takes everything that is there.",
        remedy=Remedy.RESYNC,
    )


def _late_notice(table_id: TableId, drain: Drain, late: _Missing) -> Notice:
    return Notice(
        f"Rows with commit ts from {drain.published + 1} to {drain.end} came after --until-end had taken everything up to there: "
        "the changefeed was not finished. They are not applied. If they only repeat earlier rows, nothing is missing; compare the "
        "table with its source, or copy it anew.",
        table_id,
        missing=(late.first, late.last),
    )


def _behind_notice(split: FileSplit, behind: _Missing, window: Window) -> Notice:
    return Notice(
        f"The file came after others with larger numbers were applied, and {behind.rows} of its rows are not above the checkpoint "
        f"({window.lo}): they are not applied. TiCDC repeats rows only in new files, so they are missing; copy the table anew, and "
        "check how the files get here (a copy of the bucket, for example): metadata has to be copied last.",
        split.table_id,
        split.place,
        missing=(behind.first, behind.last),
    )


def _without_commit_ts(split: FileSplit, row: int) -> Problem:
    setting = "include-commit-ts" if split.protocol is Protocol.CSV else "enable-tidb-extension"
    return Problem(
        split.table_id,
        f"Row {row} has no commit ts, though other files of the changefeed have one.",
        split.place,
        hint=f"{setting} was changed while the changefeed ran; files without a commit ts must be consumed before those with one.",
    )


def _numbered(batch: pa.RecordBatch, rank: int) -> pa.RecordBatch:
    """The batch with its row numbers converted to places among all splits of the table."""
    place = pc.add(batch.column(_SEQ_INDEX), pa.scalar(rank << SEQ_RANK_SHIFT, pa.int64()))
    return batch.set_column(_SEQ_INDEX, META_FIELDS[_SEQ_INDEX], place)
