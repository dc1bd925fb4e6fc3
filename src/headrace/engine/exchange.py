"""What travels between the two halves of a job: netted or ordered rows, and what write tasks have to know of the reading.

A row of the exchange is for one *unit*: what a write task takes at once, about 64 MiB of source bytes. Its payload is Arrow IPC
bytes of changes of one table, or a pickled :class:`ReadDigest`, of which each read task sends one to each unit. The digests tell
a unit whether all of its tables could be read, so that no task writes a table of which another task could not read everything,
and how many rows it must have got.
"""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from headrace.engine.payload_files import Payloads, Place
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
"""``table`` is the number of the part, or :data:`DIGEST`. ``first`` is where the first row of ordered changes lies (the job's
order column: a commit ts, or a place in the source), 0 for netted ones."""
DIGEST = -1
"""In place of a part's number; it sorts before all of them."""
REPORTING_UNIT = 0
"""The unit that hands the reports of all splits to the driver."""
_BATCH_BYTES = 1 << 20


@dataclass(frozen=True)
class ReadDigest:
    """What one read task tells one unit: the reports of the splits of the unit's tables, and how many rows it sent of each.

    The reporting unit gets the reports of all splits, and ``counts``.
    """

    reports: tuple[SplitReport, ...]
    counts: tuple[ReadCount, ...]
    sent: Counter[TableId]


@dataclass(frozen=True)
class ExchangeRow:
    """One row of the exchange, as a write task takes it."""

    unit: int
    table: int
    first: int
    payload: pa.Buffer

    def digest(self) -> ReadDigest:
        """What a digest's payload holds."""
        found = pickle.loads(self.payload)
        assert isinstance(found, ReadDigest), "only digests are pickled"
        return found

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of a table that the payload holds."""
        return iter(pa.ipc.open_stream(self.payload))


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[ExchangeRow]:
    """The rows of record batches of :data:`EXCHANGE_SCHEMA`, in their order."""
    stored = Payloads()
    for batch in batches:
        units, tables, firsts, _, files, offsets, sizes = (
            () if name == "payload" else batch.column(name).to_pylist() for name in EXCHANGE_SCHEMA.names
        )
        places = map(Place, files, offsets, sizes)
        for unit, table, first, payload, place in zip(units, tables, firsts, batch.column("payload"), places, strict=True):
            yield ExchangeRow(unit, table, first, stored.at(place) if place.file else payload.as_buffer())


class Outbox:
    """Rows of the exchange that wait for others of the same unit: a batch of its own for each costs more than a small row."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[tuple[int, int, bytes, str, int, int]]] = defaultdict(list)
        self._bytes: dict[int, int] = defaultdict(int)

    def add(self, unit: int, table: int, first: int, payload: bytes | Place) -> Iterator[pa.RecordBatch]:
        """Takes a row, and gives what is large enough to go."""
        if isinstance(payload, Place):
            self._waiting[unit].append((table, first, b"", payload.file, payload.offset, payload.size))
        else:
            self._waiting[unit].append((table, first, payload, "", 0, 0))
            self._bytes[unit] += len(payload)
        if self._bytes[unit] >= _BATCH_BYTES:
            yield self._batch(unit)

    def rest(self) -> Iterator[pa.RecordBatch]:
        """All that waits."""
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
