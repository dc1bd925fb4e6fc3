"""A report about a stream: partitions, tables, schema changes, the watermark, and likely errors.

Reads the whole stream. Needs no Spark and no ledger.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.ddl.told import source_tables
from headrace.model.inspection import (
    Checkup,
    Finding,
    Inspection,
    PartitionInspection,
    Severity,
    TableInspection,
    VersionInspection,
)
from headrace.model.place import PlaceInStream
from headrace.model.precision import CommitTsPrecision
from headrace.model.stream import PartitionEnds, Range, StreamStatement
from headrace.model.table import TableId, TableSchema
from headrace.model.tso import tso_to_datetime
from headrace.sources.base import Progress
from headrace.sources.stream.history import StreamHistory
from headrace.sources.stream.promises import is_far_ahead
from headrace.sources.stream.reader import BadRecordError, StreamReader
from headrace.sources.stream.records import PIECE, RecordKind

_ZIGZAGS = 3
"""How often a watermark has to go back and at once beyond where it was. If the writer of a stream restarts, it goes back once, and
takes a while to come beyond."""
_TWO_WRITERS = (
    "Two changefeeds, or other writers, seem to write to this stream: {why}. The watermarks of one promise nothing of the other's "
    "rows, so rows get lost. Give each a stream of its own."
)
_MOST_ALIKE = 3
"""The most findings of one kind, table and text that are kept. All are counted."""
_RANGE_RECORDS = 100_000


@dataclass
class _Rows:
    """What there is of one version of a table."""

    partitions: set[str] = field(default_factory=set)
    messages: int = 0
    bytes: int = 0


@dataclass
class _Contents:
    """What a stream has."""

    ends: Sequence[PartitionEnds]
    statements: list[StreamStatement] = field(default_factory=list)
    watermarks: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[tuple[str, Severity]] = field(default_factory=Counter)
    rows: dict[TableId, list[tuple[str, int, int]]] = field(default_factory=lambda: defaultdict(list))
    """The partition, the commit ts (TSO) and the bytes of each message with a row."""
    reached: dict[str, int] = field(default_factory=dict)
    """The greatest commit ts (TSO) of each partition's records."""
    on_time: set[tuple[TableId, int]] = field(default_factory=set)
    """Table and commit ts (TSO) of the rows above the watermarks before them."""
    late: list[tuple[TableId, int, str]] = field(default_factory=list)
    """Table, commit ts (TSO) and place of the others."""
    zigzags: Counter[str] = field(default_factory=Counter)
    """How often each partition's watermark went back and at once beyond where it was."""
    _alike: Counter[tuple[str, TableId | None, str]] = field(default_factory=Counter)

    def add(
        self, kind: str, message: str, place: str = "", table_id: TableId | None = None, severity: Severity = Severity.ERROR
    ) -> None:
        self.counts[kind, severity] += 1
        self._alike[kind, table_id, message] += 1
        if self._alike[kind, table_id, message] <= _MOST_ALIKE:
            self.findings.append(Finding(kind, message, table_id, place, severity))


@dataclass(frozen=True)
class Described:
    """What a source says of its stream."""

    protocol: str
    commit_ts: CommitTsPrecision
    has_watermarks: bool = True


def inspect_stream(reader: StreamReader, described: Described, *, count_rows: bool) -> Inspection:
    """What the stream holds. The files of a version are the partitions that have rows of it.

    Raises SourceUnreachableError, SourceNotReadyError.
    """
    found = _read(reader, lambda _done, _all: None)
    return _inspection(reader, described, found, StreamHistory({}, found.statements), count_rows=count_rows)


def check_stream(reader: StreamReader, described: Described, progress: Progress) -> Checkup:
    """Reads the stream twice, the second time to decode each row; progress is in records. Raises as :func:`inspect_stream`."""
    found = _read(reader, progress)
    history = StreamHistory({}, found.statements)
    for batch, partition in _batches(reader, found.ends, progress):
        rows = batch.filter(pc.equal(batch.column("kind"), int(RecordKind.ROWS)))
        for table_id, records in _by_table(rows):
            _check_rows(reader, history, found, table_id, records, partition)
    return Checkup(_inspection(reader, described, found, history, count_rows=True), found.counts)


def _batches(reader: StreamReader, ends: Sequence[PartitionEnds], progress: Progress) -> Iterator[tuple[pa.RecordBatch, str]]:
    total, done = sum(end.end - end.first for end in ends), 0
    for end in ends:
        for start in range(end.first, end.end, _RANGE_RECORDS):
            stop = min(start + _RANGE_RECORDS, end.end)
            for batch in reader.records(Range(end.partition, start, stop, 0)):
                yield batch, end.partition
            done += stop - start
            progress(done, total)


def _read(reader: StreamReader, progress: Progress) -> _Contents:
    found = _Contents(reader.ends())
    for notice in reader.notices:
        found.add("reading", notice.message, severity=Severity.INFO)
    for notice in reader.unread:
        found.add("not-read", notice.message, severity=Severity.WARNING)
    told: dict[str, list[int]] = defaultdict(list)
    for batch, partition in _batches(reader, found.ends, progress):
        columns = [batch.column(name).to_pylist() for name in ("offset", "kind", "database", "table", "commit_ts")]
        sizes = pc.binary_length(batch.column("value")).to_pylist()
        for number, (offset, kind, database, table, commit_ts) in enumerate(zip(*columns, strict=True)):
            place = str(PlaceInStream(partition, offset))
            found.reached[partition] = max(commit_ts, found.reached.get(partition, 0))
            if kind == RecordKind.ROWS:
                _take_row(found, TableId(database, table), partition, commit_ts, place, sizes[number])
            elif kind == RecordKind.WATERMARK:
                _take_watermark(found, told[partition], partition, commit_ts, place)
            elif kind == RecordKind.STATEMENT:
                _take_statement(reader, found, batch.column("value")[number].as_py(), partition, offset)
            else:
                reason = batch.column("value")[number].as_py().decode("utf-8", "replace")
                found.add("unreadable-message", f"The message cannot be read: {reason}", place, _named(database, table))
    _find_two_writers(found)
    return found


def _take_row(found: _Contents, table_id: TableId, partition: str, commit_ts: int, place: str, size: int) -> None:
    found.rows[table_id].append((partition, commit_ts, size))
    if commit_ts > found.watermarks.get(partition, 0):
        found.on_time.add((table_id, commit_ts))
    else:
        found.late.append((table_id, commit_ts, place))


def _take_watermark(found: _Contents, told: list[int], partition: str, watermark: int, place: str) -> None:
    """Takes a watermark (TSO). ``told`` are the partition's last two before it."""
    if told and watermark < told[-1]:
        message = "The watermark goes back: what writes the stream was restarted, and sends changes again."
        found.add("watermark-goes-back", message, place, severity=Severity.INFO)
    found.zigzags[partition] += len(told) == 2 and told[1] < told[0] <= watermark
    told[:] = [*told[-1:], watermark]
    found.watermarks[partition] = max(watermark, found.watermarks.get(partition, 0))


def _find_two_writers(found: _Contents) -> None:
    """Adds what shows that watermarks are not those of all rows.

    A row at or below a watermark before it can only be a repeat. If there is no earlier row that it repeats, in any partition, the
    watermark was not its own writer's, or that record is not kept any more.
    """
    lost = [(table_id, place) for table_id, commit_ts, place in found.late if (table_id, commit_ts) not in found.on_time]
    begins_late = any(end.first > 0 for end in found.ends)
    for table_id, place in () if begins_late else lost:
        why = "a row comes after a watermark that is not below its commit ts, and it repeats no earlier one"
        found.add("two-writers", _TWO_WRITERS.format(why=why), place, table_id, Severity.ERROR)
    for partition, times in sorted(found.zigzags.items()):
        if times >= _ZIGZAGS:
            why = f"the watermark of partition {partition} goes back and forth"
            found.add("two-writers", _TWO_WRITERS.format(why=why), severity=Severity.WARNING)


def _take_statement(reader: StreamReader, found: _Contents, value: bytes, partition: str, offset: int) -> None:
    try:
        found.statements.append(reader.statement(value, partition, offset))
    except ValueError as error:
        found.add("unreadable-message", f"The schema change cannot be read: {error}", str(PlaceInStream(partition, offset)))


def _named(database: str | None, table: str | None) -> TableId | None:
    return TableId(database, table) if database and table else None


def _by_table(rows: pa.RecordBatch) -> Iterator[tuple[TableId, pa.RecordBatch]]:
    names = sorted(set(zip(rows.column("database").to_pylist(), rows.column("table").to_pylist(), strict=True)))
    for database, table in names:
        own = rows.filter(pc.and_(pc.equal(rows.column("database"), database), pc.equal(rows.column("table"), table)))
        yield TableId(database, table), own.select(PIECE.names)


def _check_rows(
    reader: StreamReader, history: StreamHistory, found: _Contents, table_id: TableId, records: pa.RecordBatch, partition: str
) -> None:
    """Decodes the rows of a table, each in the shape in force at its commit ts, and notes those that cannot be."""
    versions = history.versions(table_id)
    of = np.array([_version_of(versions, ts) for ts in records.column("commit_ts").to_pylist()])
    for version in np.unique(of).tolist():
        if version < 0:
            continue  # told once for the table
        rest = records.filter(pa.array(of == version))
        while rest.num_rows:
            try:
                _, counts = reader.decode(table_id, versions[version][1], rest)
                rest = rest.slice(len(counts))
            except BadRecordError as error:
                place = str(PlaceInStream(partition, rest.column("offset")[error.record].as_py()))
                column = f" Column {error.column}." if error.column else ""
                found.add("bad-row", f"{error.message}{column}", place, table_id)
                rest = pa.concat_batches([rest.slice(0, error.record), rest.slice(error.record + 1)])


def _version_of(versions: Sequence[tuple[int, TableSchema]], commit_ts: int) -> int:
    """The number of the shape in force for rows of a commit ts (TSO); -1 if none is known.

    A row at the commit ts of a schema change is from before it.
    """
    return bisect_left(versions, commit_ts, key=lambda version: version[0]) - 1


def _inspection(
    reader: StreamReader, described: Described, found: _Contents, history: StreamHistory, *, count_rows: bool
) -> Inspection:
    for problem in history.problems:
        found.add("schema-change", problem.sentence(), str(problem.place or ""), problem.table_id)
    existing = source_tables(history.changes)
    tables = [_table(found, history, existing, table_id, count_rows=count_rows) for table_id in _names(found, history)]
    promised = _promised(found, described)
    checkpoint = min(promised.values()) if promised and len(promised) == len(found.ends) else None
    databases = {table.table_id.database for table in tables} | {s.table_id.database for s in found.statements}
    return Inspection(
        reader.identity,
        described.protocol,
        described.commit_ts,
        checkpoint,
        None if checkpoint is None else _lag(checkpoint),
        tuple(sorted(databases)),
        tuple(tables),
        tuple(found.findings),
        tuple(_partitions(found)),
    )


def _promised(found: _Contents, described: Described) -> dict[str, int]:
    """The ts (TSO) up to which each partition is complete. Adds what concerns partitions without watermarks, or with old ones."""
    leaning = {end.partition: end.leans_after for end in found.ends if end.leans_after is not None}
    own = found.watermarks
    leading = min((own.get(end.partition, 0) for end in found.ends if end.partition not in leaning), default=0)
    promised = {}
    for end in found.ends:
        name = end.partition
        if name in leaning and is_far_ahead(leading, found.reached.get(name, 0), leaning[name]):
            promised[name] = max(leading, own.get(name, 0))
            message = f"Partition {name} gets no watermarks now. Those of the other partitions count for it."
            found.add("no-watermark", message, severity=Severity.INFO)
        elif name in own:
            promised[name] = own[name]
        elif described.has_watermarks:
            message = f"Partition {name} has no watermark. {end.if_silent}".rstrip()
            found.add("no-watermark", message, severity=Severity.WARNING)
    return promised


def _partitions(found: _Contents) -> Iterator[PartitionInspection]:
    tables: dict[str, set[TableId]] = defaultdict(set)
    for table_id, rows in found.rows.items():
        for partition in {row[0] for row in rows}:
            tables[partition].add(table_id)
    for end in found.ends:
        watermark = found.watermarks.get(end.partition)
        lag = None if watermark is None else _lag(watermark)
        yield PartitionInspection(end.partition, end.first, end.end, watermark, lag, tuple(sorted(tables[end.partition])))


def _lag(watermark: int) -> float:
    return time.time() - tso_to_datetime(watermark).timestamp()


def _names(found: _Contents, history: StreamHistory) -> list[TableId]:
    told = {statement.table_id for statement in found.statements if history.versions(statement.table_id)}
    return sorted(told | found.rows.keys())


def _table(
    found: _Contents, history: StreamHistory, existing: Collection[TableId], table_id: TableId, *, count_rows: bool
) -> TableInspection:
    versions = history.versions(table_id)
    rows: dict[int, _Rows] = defaultdict(_Rows)
    for partition, commit_ts, size in found.rows.get(table_id, ()):
        of = rows[max(0, _version_of(versions, commit_ts))]
        of.partitions.add(partition)
        of.messages += 1
        of.bytes += size
    if not versions:
        message = "The stream has rows of the table and no schema change that shows its columns: it cannot be applied."
        found.add("unknown-columns", message, table_id=table_id)
    statements = {s.commit_ts: s.statement for s in found.statements if s.table_id == table_id}
    listed = tuple(
        VersionInspection(
            version,
            statements.get(version, ""),
            len(schema.columns),
            len(rows[number].partitions),
            rows[number].bytes,
            rows[number].messages if count_rows else None,
        )
        for number, (version, schema) in enumerate(versions)
    )
    return TableInspection(table_id, table_id in existing, listed)
