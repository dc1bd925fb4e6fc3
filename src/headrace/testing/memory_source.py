"""A stream in memory that behaves like a real one: tables, schema changes and watermarks are mixed in partitions.

Rows are in the partition given by the hash of their table and key, schema changes in the first one, watermarks in all of them. The
writer of the stream may restart and repeat what it wrote since some commit ts. A partition may get no records, or no watermarks,
for a while. Old records may be deleted.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from random import Random

import pyarrow as pa

from headrace.model.backlog import Kept, Needed
from headrace.model.block import COMMIT_TS, KIND, SEQ, block_schema
from headrace.model.cut import Repeats
from headrace.model.events import RowKind
from headrace.model.outcome import Notice
from headrace.model.split import HeldSplit
from headrace.model.stream import PartitionEnds, Range, StreamStatement
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.tso import tso_to_ms
from headrace.sources.stream.reader import BadRecordError
from headrace.sources.stream.records import RecordKind, RecordRow, record_batch
from headrace.sources.stream.source import StreamEventSource
from headrace.testing.ticdc_writer import RowChange, SchemaFile, split_key_updates

_BATCH = 100
_SKIPPED = 0.2


@dataclass(frozen=True)
class MemoryRecord:
    """One record. ``value`` is the pickled content that its kind needs."""

    kind: RecordKind
    table_id: TableId
    commit_ts: int
    value: bytes = b""


NO_RECORD = MemoryRecord(RecordKind.UNKNOWN, TableId(""), 0, b"none")
"""Fills an offset that consumers never receive, like that of a compacted record or of a transaction marker."""


@dataclass
class MemoryStream:
    """The stream, with the methods that an ``Upstream`` calls (``headrace.testing.upstream.Sink``)."""

    count: int = 3
    """The number of partitions."""
    partitions: list[list[MemoryRecord]] = field(init=False)
    first: list[int] = field(init=False)
    """The first offset that each partition still holds."""
    stalled: set[int] = field(default_factory=set)
    """Partitions that receive nothing for now. They get what they missed when :meth:`go_on` is called."""
    silent: set[int] = field(default_factory=set)
    """Partitions that receive no watermarks for now. They never get the missed ones, so partitions promise different commit ts."""
    hidden: set[int] = field(default_factory=set)
    """Partitions that the stream does not list for now, as if their broker were down."""
    left_out: set[str] = field(default_factory=set)
    """Partitions that do not belong to the stream any more; see ``StreamReader.includes``."""
    leaning: dict[int, int] = field(default_factory=dict)
    """Partitions for which the watermarks of the others count, and how far (ms) these must be ahead; see ``PartitionEnds``."""
    dry: set[int] = field(default_factory=set)
    """Partitions that get watermarks only when the writer restarts, like a topic whose tables were dropped."""
    batch: int = _BATCH
    """The number of offsets in a batch of the reader."""
    tells_shapes: bool = True
    """Whether records of schema changes contain the table's shape; else it follows from the statements."""
    skips: Random | None = None
    """Decides before which records an offset is left empty; ``None``: before none."""

    def __post_init__(self) -> None:
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self.partitions = [[] for _ in range(self.count)]
        self.first = [0] * self.count
        self._waiting: list[list[MemoryRecord]] = [[] for _ in range(self.count)]
        self._log: list[tuple[int, MemoryRecord]] = []
        self._repeats: list[tuple[int, MemoryRecord]] = []
        self._schemas: dict[TableId, TableSchema] = {}

    @property
    def promised(self) -> int:
        """The watermark (TSO) that all partitions have reached; 0 if one has none."""
        told = [max((r.commit_ts for r in records if r.kind is RecordKind.WATERMARK), default=0) for records in self.partitions]
        leading = min(ts for place, ts in enumerate(told) if place not in self.leaning)
        for place, after in self.leaning.items():
            last = max((r.commit_ts for r in self.partitions[place]), default=0)
            if tso_to_ms(leading) - tso_to_ms(last) >= after:
                told[place] = max(told[place], leading)
        return min(told)

    # --- what an upstream calls ---------------------------------------------------------------------------------------------

    def rows(self, table_id: TableId, commit_ts: int, changes: Iterable[RowChange], *, partition: int | None = None) -> None:
        """The changes of a transaction to one table, one record each."""
        schema = self._schemas[table_id]
        for change in split_key_updates(schema, changes) if schema.handle_key else changes:
            place = self.place_of(table_id, change)
            value = pickle.dumps((dict(change.before) if change.before else None, dict(change.after) if change.after else None))
            self._append(place, MemoryRecord(RecordKind.ROWS, table_id, commit_ts, value))

    def place_of(self, table_id: TableId, change: RowChange) -> int:
        """The partition of a row: by its key, or of the table if it has none."""
        row = change.after if change.after is not None else change.before
        assert row is not None, "a change has a row"
        key = [row[name] for name in self._schemas[table_id].handle_key] or None
        return zlib.crc32(repr((table_id, key)).encode()) % self.count

    def schema_changes(self, version: int, files: Sequence[SchemaFile], gone: Iterable[TableId] = ()) -> None:
        """One statement, as one record for each of its tables."""
        for table_id in gone:
            self._schemas.pop(table_id, None)
        for file in files:
            if file.schema is not None:
                self._schemas[file.table_id] = file.schema
            value = pickle.dumps((file.statement, file.schema))
            self._append(0, MemoryRecord(RecordKind.STATEMENT, file.table_id, version, value))

    def checkpoint(self, ts: int) -> None:
        """A watermark in each partition that is neither silent nor dry."""
        for place in sorted({*range(self.count)} - self.silent - self.dry):
            self._append(place, MemoryRecord(RecordKind.WATERMARK, TableId(""), ts))

    # --- what a test does to it ---------------------------------------------------------------------------------------------

    def repeat(self, since: int, *, is_told: bool = True, most: int | None = None) -> None:
        """The writer restarts: a watermark shows from where on, and all records above it (TSO) are written once more.

        Unless ``is_told``, the watermark goes only to partitions whose last record is not a watermark. ``most`` of the repeated
        records come now, the others right before whatever is written next.
        """
        for place, records in enumerate(self.partitions):
            last = next((known[-1].kind for known in (self._waiting[place], records) if known), None)
            if is_told or last is not RecordKind.WATERMARK:
                self._put(place, MemoryRecord(RecordKind.WATERMARK, TableId(""), since))
        self._repeats = [(p, r) for p, r in self._log if r.commit_ts > since and r.kind is not RecordKind.WATERMARK]
        self._go_on_repeating(most)

    def _go_on_repeating(self, most: int | None = None) -> None:
        for place, record in self._repeats[:most]:
            self._put(place, record)
        self._repeats = [] if most is None else self._repeats[most:]

    def add_partition(self, leans_after: int | None = None) -> int:
        """Adds a partition, which gets its share of the rows from now on, and returns its number; see ``leaning``."""
        place, self.count = self.count, self.count + 1
        self.partitions.append([])
        self.first.append(0)
        self._waiting.append([])
        if leans_after is not None:
            self.leaning[place] = leans_after
        return place

    def stall(self, *places: int) -> None:
        """From now on these partitions receive nothing."""
        self.stalled |= set(places)

    def deliver(self, place: int, count: int) -> None:
        """A stalled partition receives the first records of what it missed, and stays behind."""
        waiting = self._waiting[place]
        self.partitions[place] += waiting[:count]
        del waiting[:count]

    def silence(self, *places: int) -> None:
        """From now on these partitions receive no watermarks."""
        self.silent |= set(places)

    def go_on(self) -> None:
        """Stalled partitions receive what they missed, repeated records too. Silent ones receive watermarks from now on."""
        self._go_on_repeating()
        self.stalled.clear()
        self.silent.clear()
        for place, records in enumerate(self._waiting):
            self.partitions[place] += records
            records.clear()

    def forget(self, place: int, first: int) -> None:
        """Deletes the partition's records before an offset."""
        self.first[place] = max(self.first[place], min(first, len(self.partitions[place])))

    def damage(self, place: int, offset: int, value: bytes = b"damaged") -> None:
        """Replaces the value of a record."""
        record = self.partitions[place][offset]
        self.partitions[place][offset] = MemoryRecord(record.kind, record.table_id, record.commit_ts, value)

    def put_unknown(self, place: int, table_id: TableId, why: str) -> None:
        """Appends a record that cannot be understood."""
        self._put(place, MemoryRecord(RecordKind.UNKNOWN, table_id, 0, why.encode()))

    def reader(self) -> MemoryReader:
        """A reader of the present contents."""
        places = self.partitions, self.first, self.hidden, self.left_out, self.leaning
        return MemoryReader(*places, batch=self.batch, tells_shapes=self.tells_shapes)

    def _append(self, place: int, record: MemoryRecord) -> None:
        self._go_on_repeating()
        self._log.append((place, record))
        self._put(place, record)

    def _put(self, place: int, record: MemoryRecord) -> None:
        records = (self._waiting if place in self.stalled else self.partitions)[place]
        if self.skips is not None and self.skips.random() < _SKIPPED:
            records.append(NO_RECORD)
        records.append(record)


@dataclass(frozen=True)
class MemoryReader:
    """A :class:`headrace.sources.stream.reader.StreamReader`. Tasks get a copy of the stream."""

    partitions: list[list[MemoryRecord]]
    first: list[int]
    hidden: set[int] = field(default_factory=set)
    left_out: set[str] = field(default_factory=set)
    leaning: Mapping[int, int] = field(default_factory=dict)
    identity: str = "memory://stream"
    repeats: Repeats = Repeats.CHANGES
    whole_transactions: bool = False
    carries_stored: bool = True
    notices: Sequence[Notice] = ()
    unread: Sequence[Notice] = ()
    batch: int = _BATCH
    tells_shapes: bool = True

    def ends(self) -> Sequence[PartitionEnds]:
        """The partitions."""
        kept = zip(self.partitions, self.first, strict=True)
        ends = [
            PartitionEnds(str(place), first, len(records), 100.0, leans_after=self.leaning.get(place))
            for place, (records, first) in enumerate(kept)
        ]
        return [end for end in ends if int(end.partition) not in self.hidden]

    def includes(self, partition: str) -> bool:
        """See ``StreamReader.includes``."""
        return partition not in self.left_out

    def kept(self, records: Mapping[str, Needed], ends: Mapping[str, PartitionEnds]) -> Mapping[str, Kept]:
        """Nothing: the stream keeps records until a test deletes them."""
        return {}

    def require_start(self, after: int) -> None:
        """Nothing: tests delete records on purpose."""

    def records(self, of: Range) -> Iterator[pa.RecordBatch]:
        """The records of a range."""
        place = int(of.partition)
        begin = max(of.start, self.first[place])
        for start in range(begin, of.end, self.batch):
            held = enumerate(self.partitions[place][start : min(start + self.batch, of.end)], start)
            yield record_batch(
                RecordRow(offset, record.kind, record.table_id.database, record.table_id.table, record.commit_ts, record.value)
                for offset, record in held
                if record != NO_RECORD
            )

    def statement(self, value: bytes, partition: str, offset: int) -> StreamStatement:
        """The schema change of a record."""
        record = self.partitions[int(partition)][offset]
        try:
            statement, schema = pickle.loads(value)
        except Exception as error:  # noqa: BLE001 -- whatever a damaged value does
            raise ValueError(f"its value is damaged ({error})") from None
        shape = schema if self.tells_shapes else None
        found = StreamStatement(record.commit_ts, record.table_id.database, statement, record.table_id, shape, partition, offset)
        return replace(found, tells_shape=self.tells_shapes)

    def decode(
        self, table_id: TableId, schema: TableSchema, records: pa.RecordBatch, other_columns: Collection[str] = ()
    ) -> tuple[pa.RecordBatch, Sequence[int]]:
        """The rows of records."""
        columns = schema.row_columns
        rows: list[tuple[int, int, Mapping[str, object]]] = []
        counts = []
        for number, (commit_ts, value) in enumerate(zip(records.column(1).to_pylist(), records.column(2).to_pylist(), strict=True)):
            try:
                before, after = pickle.loads(value)
            except Exception as error:  # noqa: BLE001 -- whatever a damaged value does
                raise BadRecordError(number, f"its value is damaged ({type(error).__name__}).", hint="Repair the record.") from None
            kinds = (RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER) if before and after else (RowKind.DELETE, RowKind.INSERT)
            images = zip(kinds, (before, after), strict=True)
            found = [(int(kind), commit_ts, image) for kind, image in images if image is not None]
            counts.append(len(found))
            rows += found
        return _block(columns, rows), counts


def _block(columns: tuple[Column, ...], rows: list[tuple[int, int, Mapping[str, object]]]) -> pa.RecordBatch:
    schema = block_schema(columns)
    meta = {KIND: [kind for kind, _, _ in rows], COMMIT_TS: [ts for _, ts, _ in rows], SEQ: [0] * len(rows)}
    values = [meta[f.name] if f.name in meta else [image.get(f.name) for _, _, image in rows] for f in schema]
    return pa.record_batch([pa.array(v, f.type) for v, f in zip(values, schema, strict=True)], schema=schema)


@dataclass
class MemorySource:
    """A :class:`headrace.sources.base.DataSource` of an in-memory stream."""

    stream: MemoryStream

    @property
    def identity(self) -> str:
        return "memory://stream"

    @property
    def event_source(self) -> StreamEventSource:
        return StreamEventSource(self.stream.reader())

    def held(self, position: str) -> tuple[HeldSplit, ...]:
        """Always empty: a stream's position does not list the records that a table still needs."""
        return ()
