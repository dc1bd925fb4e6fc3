"""Decodes records of which Kafka has only the handle key: the rest comes from the claim-check storage, or from the upstream.

This happens where rows are decoded, in read tasks, and not while the topic is staged: staged records stay small, a row that no
table needs is not fetched, and a file that is missing stops its table until the next attempt, without reading the topic again.
Protocols stay pure: :func:`decode_rows` gives them the message that a file holds, or the table's shape without all other columns.

Few large rows are in memory at a time: :func:`decode_rows` may decode only the first of the records that it gets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import SourceUnreachableError
from headrace.formats import simple_avro
from headrace.formats.base import MOST_RECORD_BYTES
from headrace.formats.large_messages import MARK, PROTOCOLS, LargeMessage, carried_columns, message_of_file
from headrace.formats.row_images import handle_names
from headrace.formats.simple_messages import is_avro
from headrace.model.block import COMMIT_TS, KIND, META_COUNT, block_schema
from headrace.model.events import RowKind
from headrace.model.table import TableId, TableSchema, folded_name
from headrace.sources.kafka.large_options import LargeRowPlaces
from headrace.sources.kafka.protocol import KafkaProtocol, Messages
from headrace.sources.stream.reader import BadRecordError
from headrace.sources.stream.records import PIECE, RecordKind
from headrace.sources.ticdc_storage.stores import StoreLocation, UnreadableFileError
from headrace.upstream.settings import Upstream

_MOST_TOGETHER = 16
_MOST_BYTES = 64 << 20
"""Files are read together up to this size."""
_SHOWN = 100
_TOO_LARGE = "The row was too large for Kafka, and the message holds only its handle key"
_VALUE = PIECE.get_field_index("value")
_T = TypeVar("_T")
Decoded = tuple[pa.RecordBatch, Sequence[int]]


def decode_rows(
    protocol: KafkaProtocol, places: LargeRowPlaces, table_id: TableId, schema: TableSchema, records: pa.RecordBatch
) -> Decoded:
    """The rows of the first records of a table, and the number of rows of each; see ``StreamReader.decode``.

    Decodes all records up to the first large one, or up to 16 large ones. Raises BadRecordError, also for a row that cannot be
    found, and SourceUnreachableError.
    """
    if protocol.name not in PROTOCOLS:
        return protocol.decode(schema, records)
    large = np.flatnonzero(pc.starts_with(records.column("value"), MARK.decode()).to_numpy(zero_copy_only=False))
    if not len(large) or large[0]:
        return protocol.decode(schema, records.slice(0, int(large[0])) if len(large) else records)
    together = int((np.flatnonzero(large != np.arange(len(large))).tolist() or [len(large)])[0])
    run = _Run.of(protocol, table_id, schema, records.slice(0, min(together, _MOST_TOGETHER)))
    return run.from_storage(places.storage) if run.files[0] else run.from_upstream(places.upstream)


@dataclass(frozen=True)
class _Run:
    """Consecutive large records of a table."""

    protocol: KafkaProtocol
    table_id: TableId
    schema: TableSchema
    records: pa.RecordBatch
    """``PIECE``, each value a message with only the handle key."""
    files: Sequence[str]
    """The names of their files in the claim-check storage; empty for a row that is only upstream."""

    @classmethod
    def of(cls, protocol: KafkaProtocol, table_id: TableId, schema: TableSchema, records: pa.RecordBatch) -> _Run:
        values = [_large(number, value) for number, value in enumerate(records.column("value").to_pylist())]
        has_file = bool(values[0][0].file)
        end = _first_where(values, lambda value: bool(value[0].file) != has_file)
        messages = pa.array([message for _, message in values[:end]], pa.binary())
        own = records.slice(0, end).set_column(_VALUE, PIECE.field(_VALUE), messages)
        return cls(protocol, table_id, schema, own, [large.file for large, _ in values[:end]])

    # --- claim-check --------------------------------------------------------------------------------------------------------

    def from_storage(self, storage: StoreLocation | None) -> Decoded:
        """The rows of messages in the claim-check storage. Only the files' names are used, never another part of a location."""
        if storage is None:
            message = f"{_TOO_LARGE}: the rest is in the file {self.files[0]} of the claim-check storage."
            raise BadRecordError(0, message, hint="Name the storage with claim-check-storage-uri in the source's URI.")
        found: list[bytes] = []
        for name, content in zip(self.files, _contents(storage, self.files), strict=False):
            try:
                found.append(self._message(len(found), name, content))
            except ValueError as error:
                if not found:
                    told = f"The file {name} in the claim-check storage cannot be used: {error}"
                    raise BadRecordError(0, told, hint="TiCDC wrote the row into this file.") from None
                break
        whole = self.records.slice(0, len(found)).set_column(_VALUE, PIECE.field(_VALUE), pa.array(found, pa.binary()))
        return self._own(*self.protocol.decode(self.schema, whole))

    def _own(self, rows: pa.RecordBatch, counts: Sequence[int]) -> Decoded:
        """The decoded rows up to the first record that is not of the row in its file. Raises BadRecordError if it is record 0."""
        ends = np.cumsum(counts).tolist()
        for number, end in enumerate(ends):
            try:
                self._require_own(number, rows.slice(end - 1, 1))
            except BadRecordError:
                if not number:
                    raise
                return rows.slice(0, ends[number - 1]), counts[:number]
        return rows, counts

    def _require_own(self, number: int, row: pa.RecordBatch) -> None:
        """Raises BadRecordError, for record 0, if the row in the file of a record has not the record's handle key.

        A table without a key has records without columns, of which only the table and the commit ts can be compared.
        """
        names = self._columns(number)
        if not names:
            return
        keys = self.protocol.decode(self._with_only(names), self.records.slice(number, 1))[0]
        for name in keys.schema.names[META_COUNT:]:
            told, found = (str(values.column(name)[values.num_rows - 1].as_py())[:_SHOWN] for values in (keys, row))
            if told != found:
                message = (
                    f"The file {self.files[number]} in the claim-check storage cannot be used: it holds the row of another record, "
                    f"whose {name} is {found!r} and not {told!r}."
                )
                raise BadRecordError(0, message, column=name, hint="TiCDC writes a file for each row.")

    def _message(self, number: int, name: str, content: bytes) -> bytes:
        """The message in a file as :meth:`KafkaProtocol.decode` takes it. Raises ValueError, the end of a sentence."""
        if len(content) > MOST_RECORD_BYTES:
            raise ValueError(f"it has more than {MOST_RECORD_BYTES} bytes, and no message is that large.")
        key, value = message_of_file(content)
        offset, commit_ts, _ = (column[number].as_py() for column in self.records.columns)
        rows = self.protocol.read(Messages([offset], [value], [key])).to_pylist()
        if len(rows) == 1 and rows[0]["kind"] == RecordKind.UNKNOWN:
            raise ValueError(rows[0]["value"].decode("utf-8", "replace"))
        if len(rows) != 1 or rows[0]["kind"] != RecordKind.ROWS or rows[0]["value"].startswith(MARK):
            raise ValueError("it does not hold exactly one row.")
        (row,) = rows
        if (TableId(row["database"], row["table"]), row["commit_ts"]) != (self.table_id, commit_ts):
            told = f"{row['database']}.{row['table']} at commit ts {row['commit_ts']}"
            raise ValueError(f"it holds a row of {told}, and the record is of {self.table_id} at {commit_ts}.")
        value = row["value"]
        assert isinstance(value, bytes)
        return value

    # --- handle-key-only ----------------------------------------------------------------------------------------------------

    def from_upstream(self, upstream: Upstream | None) -> Decoded:
        """The rows as the upstream had them: new ones at their commit ts, old ones right before it.

        A deletion that has the table's key needs no more. Never is a row taken from another time, or from the target: it may have
        been changed since, and its later changes would then be applied to it twice.
        """
        names = [self._columns(number) for number in range(self.records.num_rows)]
        if not names[0]:
            raise BadRecordError(0, "The message cannot be read: it has no columns.")
        end = _first_where(names, lambda columns: columns != names[0])
        own = self.records.slice(0, end)
        keys, counts = self.protocol.decode(self._with_only(names[0]), own)
        kinds = keys.column(KIND).to_numpy()
        firsts = kinds[np.cumsum([0, *counts[:-1]])]
        has_key = handle_names(self.schema) <= names[0]
        needs_none = has_key & (firsts == RowKind.DELETE)
        end = _first_where(list(needs_none), lambda none: none != needs_none[0])
        if needs_none[0]:
            return self.protocol.decode(self.schema, own.slice(0, end))
        if upstream is None:
            message = f"{_TOO_LARGE} (handle-key-only). The rest has to be read from the upstream."
            raise BadRecordError(0, message, hint="Name the upstream TiDB with upstream=mysql://… in the source's URI.")
        counts = counts[:end]
        return self._looked_up(upstream, keys.slice(0, sum(counts)), counts)

    def _with_only(self, names: frozenset[str]) -> TableSchema:
        """The table's shape with only these columns, by their folded names, as its key."""
        columns = tuple(c for c in self.schema.row_columns if folded_name(c.name) in names)
        return replace(self.schema, columns=columns, handle_key=tuple(c.name for c in columns), indexes=())

    def _columns(self, number: int) -> frozenset[str]:
        """The folded names of the columns that a record's message has. Raises BadRecordError."""
        message = self.records.column("value")[number].as_py()
        try:
            return simple_avro.carried_columns(message) if is_avro(message) else carried_columns(message)
        except ValueError as error:
            raise BadRecordError(number, f"The message cannot be read: {error}") from None

    def _looked_up(self, upstream: Upstream, keys: pa.RecordBatch, counts: Sequence[int]) -> Decoded:
        """The rows of ``keys``, a block with the columns of the key. One query for each snapshot."""
        is_old = np.isin(keys.column(KIND).to_numpy(), (RowKind.UPDATE_BEFORE, RowKind.DELETE))
        snapshots = keys.column(COMMIT_TS).to_numpy() - is_old
        own = keys.select(keys.schema.names[META_COUNT:])
        from headrace.sources.kafka.snapshots import SnapshotError, snapshots_of  # PyMySQL is an extra

        parts, order = [], []
        with snapshots_of(upstream) as session:
            for snapshot in np.unique(snapshots).tolist():
                numbers = np.flatnonzero(snapshots == snapshot)
                try:
                    parts.append(session.rows(self.schema, snapshot, own.take(pa.array(numbers))))
                except SnapshotError as error:
                    bad = int(np.searchsorted(np.cumsum(counts), numbers[error.row], side="right"))
                    raise BadRecordError(bad, f"{_TOO_LARGE}. {error.message}", hint=error.hint) from None
                order.append(numbers)
        rows = pa.concat_batches(parts).take(pa.array(np.argsort(np.concatenate(order))))
        meta = keys.columns[:META_COUNT]
        return pa.RecordBatch.from_arrays([*meta, *rows.columns], schema=block_schema(self.schema.row_columns)), counts


def _large(number: int, value: bytes) -> tuple[LargeMessage, bytes]:
    try:
        return LargeMessage.of_value(value)
    except ValueError as error:
        raise BadRecordError(number, f"The message cannot be read: {error}") from None


def _first_where(values: Sequence[_T], differs: Callable[[_T], bool]) -> int:
    """The number of the first value for which it holds; the number of values if it holds for none."""
    return next((number for number, value in enumerate(values) if differs(value)), len(values))


def _contents(storage: StoreLocation, names: Sequence[str]) -> list[bytes]:
    """The content of the first files, at least of one, together up to 64 MiB, up to one that is missing or cannot be read.

    Raises BadRecordError if the first one is missing, SourceUnreachableError also if it cannot be read.
    """
    store = storage.open()
    taken: list[str] = []
    size = 0
    for name in names:
        stored = store.stat(name)
        if stored is None or (taken and size + stored.size > _MOST_BYTES):
            break
        taken.append(name)
        size += stored.size
    found = store.read_starts(taken, MOST_RECORD_BYTES + 1)
    if found and isinstance(found[0], UnreadableFileError):
        raise found[0]
    contents = [content for content in takewhile(lambda found: isinstance(found, bytes), found) if isinstance(content, bytes)]
    if not contents:
        store.require_bucket()
        if store.is_local and not store.exists():
            raise SourceUnreachableError(f"Cannot read {store.place}: there is no such folder.", "Mount the claim-check storage.")
        told = f"{_TOO_LARGE}: the rest is in the file {names[0]} of the claim-check storage, which {store.place} does not have."
        raise BadRecordError(0, told, hint="Restore the file, or give the record up.")
    return contents
