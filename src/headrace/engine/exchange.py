"""The format of the exchange between read tasks and write tasks: netted or ordered rows, and digests of the reading.

A row of the exchange is for one *unit*, which is what a write task processes at once: about 64 MiB of source bytes. Its payload is
either changes of one table as Arrow IPC bytes, or a pickled :class:`ReadDigest`. Each read task sends at most one digest to each
unit. From the digests, a unit determines how many rows it must have received, and whether all of its tables could be read, so that
no task writes a table that another task could not read completely.
"""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from headrace.engine.payload_files import PayloadPlace, read_payload
from headrace.model.outcome import ReadCount, SplitReport
from headrace.model.table import TableId

EXCHANGE_SCHEMA = pa.schema(
    [
        ("unit", pa.int32()),
        ("table", pa.int32()),
        ("first", pa.int64()),
        ("payload", pa.binary()),
        ("file", pa.string()),
        ("offset", pa.int64()),
        ("size", pa.int64()),
    ]
)
"""``table`` is the number of the part, or :data:`DIGEST`. ``first`` is the order of the first row of ordered changes (the job's
order column: a commit ts, or a place in the source), and 0 for netted changes. A payload that was written to a file has ``file``,
``offset`` and ``size`` instead of ``payload``."""
DIGEST = -1
"""The part number of a digest. It sorts before all others."""
REPORTING_UNIT = 0
"""The unit that returns the reports of all splits to the driver."""
_BATCH_BYTES = 1 << 20


@dataclass(frozen=True)
class ReadDigest:
    """The information from one read task for one unit."""

    reports: tuple[SplitReport, ...]
    """The reports of the splits of the unit's tables; for the reporting unit, of all splits."""
    counts: tuple[ReadCount, ...]
    """The task's read counts, only for the reporting unit."""
    sent: Counter[TableId]
    """The number of rows that the task sent to the unit, by table."""


@dataclass(frozen=True)
class ExchangeRow:
    """One row of the exchange, as a write task gets it."""

    unit: int
    table: int
    first: int
    payload: pa.Buffer

    def digest(self) -> ReadDigest:
        """The digest in the payload."""
        found = pickle.loads(self.payload)
        assert isinstance(found, ReadDigest), "only digests are pickled"
        return found

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of a table in the payload."""
        return iter(pa.ipc.open_stream(self.payload))


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[ExchangeRow]:
    """The rows of record batches of :data:`EXCHANGE_SCHEMA`, in their order."""
    for batch in batches:
        units, tables, firsts, _, files, offsets, sizes = (
            () if name == "payload" else batch.column(name).to_pylist() for name in EXCHANGE_SCHEMA.names
        )
        places = map(PayloadPlace, files, offsets, sizes)
        for unit, table, first, payload, place in zip(units, tables, firsts, batch.column("payload"), places, strict=True):
            yield ExchangeRow(unit, table, first, read_payload(place) if place.file else payload.as_buffer())


class Outbox:
    """Collects rows of the exchange by unit, because a batch of its own costs more than a small row."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[tuple[int, int, bytes, str, int, int]]] = defaultdict(list)
        self._bytes: dict[int, int] = defaultdict(int)

    def add(self, unit: int, table: int, first: int, payload: bytes | PayloadPlace) -> Iterator[pa.RecordBatch]:
        """Adds a row. Yields the unit's rows as a batch once they have 1 MiB of payload outside of files."""
        if isinstance(payload, PayloadPlace):
            self._waiting[unit].append((table, first, b"", payload.file, payload.offset, payload.size))
        else:
            self._waiting[unit].append((table, first, payload, "", 0, 0))
            self._bytes[unit] += len(payload)
        if self._bytes[unit] >= _BATCH_BYTES:
            yield self._batch(unit)

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The remaining rows, one batch for each unit."""
        for unit in list(self._waiting):
            yield self._batch(unit)

    def _batch(self, unit: int) -> pa.RecordBatch:
        rows = self._waiting.pop(unit)
        self._bytes.pop(unit, None)
        columns = ([unit] * len(rows), *zip(*rows, strict=True))
        arrays = [pa.array(values, field.type) for values, field in zip(columns, EXCHANGE_SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=EXCHANGE_SCHEMA)


def to_ipc(batch: pa.RecordBatch) -> bytes:
    """A batch as the bytes of an Arrow IPC stream."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(out.getvalue())
