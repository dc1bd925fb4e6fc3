"""Stages a stream: a range is read once, and the records of each table are stored together in the work place.

The pieces of a range are in one object, one after another, so that a thousand tables do not need a thousand objects.
"""

from __future__ import annotations

import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.outcome import Problem
from headrace.model.place import PlaceInStream
from headrace.model.stream import Between, Mark, Range, StagedPiece, StageReport, StreamStatement
from headrace.model.table import NOBODYS, TableId, is_possible_name
from headrace.model.tso import latest_tso
from headrace.model.writable_text import as_utf8
from headrace.sources.base import StagingPlace
from headrace.sources.stream.reader import StreamReader
from headrace.sources.stream.records import PIECE, RecordKind

_MARK_EVERY = 8
"""The maximum number of marks in a range, besides the one after its last watermark and the one at its end."""
_IMPOSSIBLE = "it names a database or a table by a name that none can have: of more than 64 characters, or with a blank at its end."


@dataclass
class _Piece:
    """Consecutive records of one table, whose commit ts do not decrease."""

    between: Between
    promised: int
    """The greatest watermark (TSO) of the range before it; 0 for none."""
    batches: list[pa.RecordBatch] = field(default_factory=list)


class _Tables:
    """The records of a range by table.

    A piece ends where commit ts decrease, and where a watermark is inside one, because the writer of the stream may have restarted.
    """

    def __init__(self) -> None:
        self.pieces: dict[TableId, list[_Piece]] = defaultdict(list)
        self.first: int | None = None
        self.last: int | None = None
        self.greatest: int | None = None
        self.behind: dict[TableId, Between] = {}
        self.all_of_it = Between()
        self._reached: dict[TableId, int] = {}

    def promise(self, watermark: int) -> None:
        """Records a watermark (TSO)."""
        is_first = self.last is None
        if self.last is None:
            self.first = self.last = self.greatest = watermark
        assert self.last is not None
        assert self.greatest is not None
        told = Between(watermark < self.last, is_first, not is_first and watermark <= self.greatest, watermark)
        self.last, self.greatest = watermark, max(self.greatest, watermark)
        self.all_of_it |= told
        self.behind = {table_id: before | told for table_id, before in self.behind.items()}

    def follows(self, rows: pa.RecordBatch, promises: npt.NDArray[np.int64]) -> bool:
        """Whether rows and promises (TSO) go on from what is known without a step back, so that they can be added at once."""
        if not len(promises) or promises[0] <= (self.greatest or 0):
            return False
        times = rows.column("commit_ts").to_numpy()
        is_sorted = bool((np.diff(promises) > 0).all()) and bool((np.diff(times) >= 0).all())
        return is_sorted and (not len(times) or int(times[0]) > (self.greatest or 0))

    def add(self, rows: pa.RecordBatch) -> None:
        """Adds rows of any tables, in their order."""
        for table_id, records in _by_table(rows):
            commit_ts = records.column(1).to_numpy()
            downs = (np.flatnonzero(np.diff(commit_ts) < 0) + 1).tolist()
            for start, end in pairwise([0, *downs, len(commit_ts)]):
                self._append(table_id, records.slice(start, end - start), int(commit_ts[start]), int(commit_ts[end - 1]))

    def _append(self, table_id: TableId, records: pa.RecordBatch, first: int, last: int) -> None:
        between = self.behind.get(table_id, self.all_of_it)
        reached = self._reached.get(table_id, -1)
        if not self.pieces[table_id] or first < reached or (first == reached and between.least is not None):
            self.pieces[table_id].append(_Piece(between, self.greatest or 0))
        self.behind[table_id] = Between()
        self.pieces[table_id][-1].batches.append(records)
        self._reached[table_id] = last


def stage(reader: StreamReader, of: Range, place: StagingPlace, folder: str, clock: Callable[[], float] = time.time) -> StageReport:
    """Reads a range and writes its pieces into an object in ``folder``. Raises SourceUnreachableError, TransientError."""
    tables = _Tables()
    ahead: tuple[tuple[int, int], ...] = ()
    statements: list[StreamStatement] = []
    problems: list[Problem] = []
    unknown: list[Problem] = []
    promised_before: list[tuple[int, int | None]] = []
    marks: list[Mark] = []
    reached, step = 0, max(1, (of.end - of.start) // _MARK_EVERY)
    next_mark = of.start
    at_promise: Mark | None = None
    last_record: int | None = None
    for batch in map(_with_possible_names, reader.records(of)):
        if not batch.num_rows:
            continue
        offsets = batch.column(0).to_numpy()
        kinds, latest = batch.column(1).to_numpy(), latest_tso(clock())
        times = _times(batch, kinds, latest)
        before = np.maximum.accumulate(np.concatenate([[reached], times]))
        reached = int(before[-1])
        while next_mark <= offsets[-1]:
            place_of_mark = int(np.searchsorted(offsets, next_mark))
            marks.append(Mark(int(offsets[place_of_mark]), int(before[place_of_mark])))
            next_mark = int(offsets[place_of_mark]) + step
        at_promise = _after_promise(offsets, kinds, times, before) or at_promise
        for row in np.flatnonzero(kinds == RecordKind.STATEMENT):
            statement = _statement(reader, of.partition, batch, int(row), problems)
            if statement is not None:
                first = int(np.searchsorted(offsets, offsets[row]))  # a record may have several rows of the batch
                statements.append(replace(statement, before=int(offsets[first - 1]) if first else last_record))
        for row in np.flatnonzero(kinds == RecordKind.UNKNOWN):
            unknown.append(_unknown(of.partition, batch, int(row)))
        nobodys = sorted(offset_of(p) for p in (*problems, *unknown) if not p.table_id.table)[len(promised_before) :]
        last_record = int(offsets[-1])
        if reader.whole_transactions and not nobodys and _add_at_once(tables, batch, kinds, latest):
            continue
        for start, end, promised in _between_watermarks(batch, kinds):
            rows = batch.slice(start, end - start)
            rows = rows.filter(pa.array(kinds[start:end] == RecordKind.ROWS))
            if rows.num_rows:
                tables.add(rows)
            while nobodys and nobodys[0] <= int(offsets[min(end, len(offsets) - 1)]):
                promised_before.append((nobodys.pop(0), tables.greatest))
            if promised is not None and promised > latest:
                ahead = ahead or ((int(offsets[end]), promised),)
            elif promised is not None:
                tables.promise(promised)
    marks = [*sorted([*marks, at_promise] if at_promise else marks, key=lambda mark: mark.offset), Mark(of.end, reached)]
    pieces = _written(of, tables.pieces, place, folder) if tables.pieces else ()
    return StageReport(
        of,
        pieces,
        tuple(statements),
        tuple(promised_before),
        tables.first,
        tables.last,
        tables.greatest,
        tables.behind,
        tables.all_of_it,
        tuple(marks),
        tuple(problems),
        tuple(unknown),
        ahead,
        last_record,
    )


def _times(batch: pa.RecordBatch, kinds: npt.NDArray[np.int8], latest: int) -> npt.NDArray[np.int64]:
    """The commit ts (TSO) that must be reached before a record is not needed any more; 0 for one that says nothing of that.

    A watermark's record is needed until the pipeline has reached it, since the partition may have no other one. One above
    ``latest`` (TSO) is not used.
    """
    times = batch.column("commit_ts").to_numpy()
    unused = (kinds == RecordKind.UNKNOWN) | ((kinds == RecordKind.WATERMARK) & (times > latest))
    return np.where(unused, 0, times)


def _after_promise(
    offsets: npt.NDArray[np.int64], kinds: npt.NDArray[np.int8], times: npt.NDArray[np.int64], before: npt.NDArray[np.int64]
) -> Mark | None:
    """A mark after the last watermark that is used.

    If the pipeline reaches that one and no further, its position is there, so that no record which was applied is needed.
    """
    promises = np.flatnonzero((kinds == RecordKind.WATERMARK) & (times > 0))
    if not len(promises):
        return None
    offset = int(offsets[promises[-1]])
    return Mark(offset + 1, int(before[np.searchsorted(offsets, offset, side="right")]))


def _add_at_once(tables: _Tables, batch: pa.RecordBatch, kinds: npt.NDArray[np.int8], latest: int) -> bool:
    """Adds a batch of whole transactions in rising order. Returns false, and adds nothing, if it must be looked through.

    Where each transaction is a watermark, most batches are like that. Only the first and the last watermark count then.
    """
    promises = batch.column("commit_ts").to_numpy()[kinds == RecordKind.WATERMARK]
    rows = batch.filter(pa.array(kinds == RecordKind.ROWS))
    if not tables.follows(rows, promises) or promises[-1] > latest:
        return False
    tables.add(rows)
    for promise in {int(promises[0]): None, int(promises[-1]): None}:
        tables.promise(promise)
    return True


def offset_of(problem: Problem) -> int:
    """The offset of the record that cannot be understood."""
    assert isinstance(problem.place, PlaceInStream), "a problem of a record names its place"
    return problem.place.offset


def _statement(
    reader: StreamReader, partition: str, batch: pa.RecordBatch, row: int, problems: list[Problem]
) -> StreamStatement | None:
    offset = batch.column(0)[row].as_py()
    try:
        found = reader.statement(batch.column(5)[row].as_py(), partition, offset)
        if found.table_id.is_possible:
            return found
        problems.append(Problem(NOBODYS, _IMPOSSIBLE, place=PlaceInStream(partition, offset)))
        return None
    except ValueError as error:
        table_id = TableId(batch.column(2)[row].as_py() or "", batch.column(3)[row].as_py() or "")
        problems.append(Problem(table_id, f"the schema change cannot be read: {error}", place=PlaceInStream(partition, offset)))
        return None


def _unknown(partition: str, batch: pa.RecordBatch, row: int) -> Problem:
    table_id = TableId(batch.column(2)[row].as_py() or "", batch.column(3)[row].as_py() or "")
    why = batch.column(5)[row].as_py().decode("utf-8", "replace")
    return Problem(table_id, why, place=PlaceInStream(partition, batch.column(0)[row].as_py()))


def _with_possible_names(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The records, with those marked as unknown whose name no database or table can have: their table cannot be determined."""
    impossible = None
    for name in ("database", "table"):
        column = batch.column(name)
        bad = [text for text in pc.unique(column).to_pylist() if text and not is_possible_name(text)]
        if bad:
            found = pc.is_in(column, pa.array(bad, column.type))
            impossible = found if impossible is None else pc.or_(impossible, found)
    if impossible is None:
        return batch
    replaced = {"kind": int(RecordKind.UNKNOWN), "database": "", "table": "", "value": as_utf8(_IMPOSSIBLE)}
    columns = {name: batch.column(name) for name in batch.schema.names}
    for name, value in replaced.items():
        columns[name] = pc.if_else(impossible, pa.scalar(value, columns[name].type), columns[name])
    return pa.record_batch(list(columns.values()), schema=batch.schema)


def _by_table(rows: pa.RecordBatch) -> list[tuple[TableId, pa.RecordBatch]]:
    """The rows of each table, in their order, as ``PIECE``."""
    databases, tables = (pc.dictionary_encode(rows.column(name)) for name in ("database", "table"))
    width = len(tables.dictionary)
    codes = databases.indices.to_numpy() * width + tables.indices.to_numpy()
    kept = pa.record_batch([rows.column("offset"), rows.column("commit_ts"), rows.column("value")], schema=PIECE)
    found = []
    for code in np.unique(codes):
        table_id = TableId(databases.dictionary[int(code) // width].as_py(), tables.dictionary[int(code) % width].as_py())
        found.append((table_id, kept.filter(pa.array(codes == code))))
    return found


def _between_watermarks(batch: pa.RecordBatch, kinds: npt.NDArray[np.int8]) -> Iterator[tuple[int, int, int | None]]:
    """The records up to each watermark, as row numbers, with the watermark; ``None`` for those after the last one."""
    start = 0
    for row in np.flatnonzero(kinds == RecordKind.WATERMARK).tolist():
        yield start, row, batch.column("commit_ts")[row].as_py()
        start = row + 1
    yield start, batch.num_rows, None


def _written(of: Range, tables: Mapping[TableId, Sequence[_Piece]], place: StagingPlace, folder: str) -> tuple[StagedPiece, ...]:
    out = pa.BufferOutputStream()
    spans = []
    for table_id in sorted(tables):
        for piece in tables[table_id]:
            start = out.tell()
            with pa.ipc.new_stream(out, PIECE) as writer:
                for batch in piece.batches:
                    writer.write_batch(batch)
            spans.append((table_id, piece, pa.Table.from_batches(piece.batches), start, out.tell() - start))
    key = f"{folder}/pieces"
    content = out.getvalue()
    place.write(key, content)
    return tuple(
        StagedPiece(
            table_id,
            of.partition,
            first=rows.column("offset")[0].as_py(),
            last=rows.column("offset")[rows.num_rows - 1].as_py(),
            records=rows.num_rows,
            size=int(pc.sum(pc.binary_length(rows.column("value"))).as_py() or 0),
            min_ts=rows.column("commit_ts")[0].as_py(),
            max_ts=rows.column("commit_ts")[rows.num_rows - 1].as_py(),
            between=piece.between,
            promised=piece.promised,
            key=key,
            start=start,
            length=length,
            checksum=zlib.crc32(content.slice(start, length)),
        )
        for table_id, piece, rows, start, length in spans
    )
