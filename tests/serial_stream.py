"""A stream in memory of whole transactions in one partition, as Drainer writes one: each record is a promise."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from headrace.model.cut import Repeats
from headrace.model.stream import Range
from headrace.model.table import TableId, TableSchema
from headrace.sources.stream.records import RecordKind, RecordRow, record_batch
from headrace.testing.memory_source import MemoryReader, MemoryRecord, MemoryStream
from headrace.testing.ticdc_writer import RowChange, SchemaFile
from streams import Actions, World

_RENAME = "RENAME TABLE "
_Image = Mapping[str, object] | None


@dataclass(frozen=True)
class SerialReader(MemoryReader):
    """Each record of rows has the changes of all its tables, and promises its own commit ts."""

    repeats: Repeats = Repeats.TRANSACTIONS
    whole_transactions: bool = True
    carries_stored: bool = True

    def records(self, of: Range) -> Iterator[pa.RecordBatch]:
        place = int(of.partition)
        for start in range(max(of.start, self.first[place]), of.end, self.batch):
            held = enumerate(self.partitions[place][start : min(start + self.batch, of.end)], start)
            yield record_batch(row for offset, record in held for row in _expanded(offset, record))

    def decode(
        self, table_id: TableId, schema: TableSchema, records: pa.RecordBatch, other_columns: Collection[str] = ()
    ) -> tuple[pa.RecordBatch, Sequence[int]]:
        parts = []
        for ts, value in zip(records.column(1), records.column(2), strict=True):
            changes = [pickle.dumps(change) for change in pickle.loads(value.as_py())]
            columns = [pa.array([0] * len(changes)), pa.array([ts.as_py()] * len(changes)), pa.array(changes, pa.binary())]
            parts.append(super().decode(table_id, schema, pa.record_batch(columns, schema=records.schema)))
        rows = pa.Table.from_batches([batch for batch, _ in parts]).combine_chunks().to_batches()
        return (rows or [parts[0][0]])[0], [batch.num_rows for batch, _ in parts]


def _expanded(offset: int, record: MemoryRecord) -> Iterator[RecordRow]:
    if record.kind is RecordKind.ROWS:
        for table_id, changes in pickle.loads(record.value).items():
            yield RecordRow(offset, record.kind, table_id.database, table_id.table, record.commit_ts, pickle.dumps(changes))
    elif record.kind is RecordKind.STATEMENT:
        yield RecordRow(offset, record.kind, record.table_id.database, record.table_id.table, record.commit_ts, record.value)
    if record.kind in (RecordKind.ROWS, RecordKind.STATEMENT):
        yield RecordRow(offset, RecordKind.WATERMARK, "", "", record.commit_ts, b"")


@dataclass
class SerialStream(MemoryStream):
    """The stream. A transaction inserts and deletes a row beside what it does to a table with a key."""

    count: int = 1
    _noise: int = 1_000_000

    @property
    def promised(self) -> int:
        return max((record.commit_ts for record in self.partitions[0]), default=0)

    def rows(self, table_id: TableId, commit_ts: int, changes: Iterable[RowChange], *, partition: int | None = None) -> None:
        schema = self._schemas[table_id]
        found: list[tuple[_Image, _Image]] = [(change.before, change.after) for change in changes]
        if schema.handle_key and found:
            self._noise += 1
            noise = {**(found[0][1] or found[0][0] or {}), schema.handle_key[0]: self._noise}
            found = [(None, noise), *found, (noise, None)]
        last = self._log[-1][1] if self._log else None
        of_record: dict[TableId, list[tuple[_Image, _Image]]] = {}
        if last is not None and last.kind is RecordKind.ROWS and last.commit_ts == commit_ts:
            of_record = pickle.loads(last.value)
            self._log.pop()
            (self._waiting if self.stalled else self.partitions)[0].pop()
        of_record.setdefault(table_id, []).extend(found)
        self._append(0, MemoryRecord(RecordKind.ROWS, TableId(""), commit_ts, pickle.dumps(of_record)))

    def schema_changes(self, version: int, files: Sequence[SchemaFile], gone: Iterable[TableId] = ()) -> None:
        """One record for each statement: all steps of a RENAME are one, and it names the table of the last step."""
        if len(files) > 1 and all(file.statement.startswith(_RENAME) for file in files):
            steps = ", ".join(file.statement.removeprefix(_RENAME).rstrip(";") for file in files)
            self._schemas |= {file.table_id: file.schema for file in files if file.schema is not None}
            files = [replace(files[-1], statement=f"{_RENAME}{steps};")]
        super().schema_changes(version, files, gone)

    def checkpoint(self, ts: int) -> None:
        """Nothing: each record is a promise."""

    def repeat(self, since: int, *, is_told: bool = True, most: int | None = None) -> None:
        """The writer begins again behind ``since`` (TSO)."""
        self._repeats = [(place, record) for place, record in self._log if record.commit_ts > since]
        self._go_on_repeating(most)

    def reader(self) -> SerialReader:
        return SerialReader(self.partitions, self.first, self.hidden, batch=self.batch, tells_shapes=False)


@dataclass
class SerialWorld(World):
    """A world with such a stream."""

    partitions: int = 1

    def make_stream(self) -> MemoryStream:
        return SerialStream()


class SerialActions(Actions):
    """A random history in one partition. Messages have rows of several tables, which one RENAME may give one version."""

    def _grow(self) -> None:
        """Nothing: such a stream has one partition."""
