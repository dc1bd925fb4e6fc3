"""Writes the files that TiCDC's storage sink writes, for tests, the demo and the benchmarks.

It shares only the model with Headrace's own readers, and is compared byte for byte with real TiCDC output, so that a
misunderstanding of the format cannot hide in both.
"""

from __future__ import annotations

import re
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from headrace.model.table import TableId, TableSchema
from headrace.testing.ticdc_canal import CanalEncoder
from headrace.testing.ticdc_csv import CsvEncoder
from headrace.testing.ticdc_options import ChangefeedOptions, Protocol
from headrace.testing.ticdc_schema_file import legacy_schema_text, schema_checksum, schema_file_name, schema_text

_FILE_NUMBER = re.compile(r"^CDC(?:_(?P<dispatcher>\d+)_)?(?P<number>\d{6,})\.(?:csv|json)$")


@dataclass(frozen=True)
class RowChange:
    """One row before and after, in canonical values (``headrace.model.types``): both for an update, one for an insert or delete."""

    before: Mapping[str, object] | None = None
    after: Mapping[str, object] | None = None


def split_key_updates(schema: TableSchema, changes: Iterable[RowChange]) -> list[RowChange]:
    """How TiCDC splits a transaction's updates that change the handle key: into a delete and an insert, with all deletes first."""
    deletes: list[RowChange] = []
    others: list[RowChange] = []
    for change in changes:
        before, after = change.before, change.after
        if before is not None and after is not None and any(before.get(k) != after.get(k) for k in schema.handle_key):
            deletes.append(RowChange(before=before))
            others.append(RowChange(after=after))
        elif after is None:
            deletes.append(change)
        else:
            others.append(change)
    return deletes + others


@dataclass(frozen=True)
class SchemaFile:
    """The contents of one object's schema file. ``schema`` is ``None`` for a database. See :meth:`TicdcWriter.schema_change`."""

    table_id: TableId
    statement: str
    schema: TableSchema | None
    type_code: int
    physical_id: int | None = None
    overtaken: bool = False
    """A later step of the same RENAME TABLE renames the table again. Its files then have the same path, and only the last one
    remains; a stream carries every step."""


@dataclass
class _TableState:
    schema: TableSchema
    version: int
    encoder: CsvEncoder | CanalEncoder
    physical_id: int | None
    partitions: dict[int, int] = field(default_factory=dict)
    """The version directory of each partition that has its own."""


@dataclass
class _Stream:
    """The file that is being filled, for one version directory (and partition) and one dispatcher."""

    table_id: TableId
    directory: tuple[str, ...]
    dispatcher: str
    encoder: CsvEncoder | CanalEncoder
    parts: list[bytes] = field(default_factory=list)
    size: int = 0


class TicdcWriter:
    """A changefeed's storage sink under ``root``.

    ``options`` are the fields of :class:`headrace.testing.ticdc_options.ChangefeedOptions`. ``clock`` gives the time for the names
    of date directories. Rows wait in memory until :meth:`flush`, a schema change of their table, a checkpoint, or until the file
    size is reached. A second writer on the same root continues with the next free file numbers, like a restarted TiCDC.
    """

    def __init__(
        self, root: Path, protocol: Protocol = "csv", *, clock: Callable[[], datetime] | None = None, **options: Any
    ) -> None:
        self.root = root
        self.options = ChangefeedOptions(protocol, **options)
        self.clock = clock or (lambda: datetime.now(UTC))
        self._tables: dict[TableId, _TableState] = {}
        self._streams: dict[tuple[tuple[str, ...], str], _Stream] = {}
        self._numbers: dict[tuple[Path, str], int] = {}

    @property
    def uri(self) -> str:
        """The sink URI of the changefeed, which is Headrace's source URI."""
        return f"{self.root.resolve().as_uri()}?{self.options.uri_parameters()}"

    def schema_change(
        self,
        table_id: TableId,
        version: int,
        statement: str = "",
        schema: TableSchema | None = None,
        type_code: int = 0,
        *,
        physical_id: int | None = None,
    ) -> Path | None:
        """Writes a schema file and directs the table's next rows to this version. Returns the file's path.

        ``schema`` is the shape afterwards (for a dropped table: the last one), ``None`` for a database. ``physical_id`` is the
        table's number, needed with table ids as paths. Returns ``None`` where TiCDC writes no file: for databases in table-id mode
        and in the legacy tree.
        """
        if schema is None:
            return self._database_change(table_id, version, statement, type_code)
        self.flush(table_id)
        self._streams = {key: stream for key, stream in self._streams.items() if stream.table_id != table_id}
        options = self.options
        self.resume(table_id, schema, version, physical_id)
        if options.legacy:
            path = self.root.joinpath(table_id.database, table_id.table, str(version), "schema.json")
            self._put(path, legacy_schema_text(table_id, version, schema, statement).encode())
            return path
        checksum = schema_checksum(table_id, schema, column_id=options.output_column_id)
        path = self.root.joinpath(*self._table_path(table_id), "meta", schema_file_name(version, checksum))
        self._put(path, schema_text(table_id, version, schema, statement, type_code, column_id=options.output_column_id).encode())
        return path

    def schema_changes(self, version: int, files: Iterable[SchemaFile], gone: Iterable[TableId] = ()) -> None:
        """Writes the schema files of one DDL, after the waiting rows of these objects and of those that it removes."""
        written = [file for file in files if not file.overtaken]
        for table_id in (*gone, *(file.table_id for file in written)):
            self.flush(table_id)
        for file in written:
            self.schema_change(file.table_id, version, file.statement, file.schema, file.type_code, physical_id=file.physical_id)

    def resume(self, table_id: TableId, schema: TableSchema, version: int, physical_id: int | None = None) -> None:
        """Directs a table's next rows to a version directory without writing a schema file, as a restarted TiCDC may."""
        encoder = CsvEncoder(self.options, schema) if self.options.protocol == "csv" else CanalEncoder(self.options, schema)
        self._tables[table_id] = _TableState(schema, version, encoder, physical_id)

    def begin_anew(self, table_id: TableId, partition: int, ts: int) -> None:
        """Directs a partition's next rows to a new directory: in the old layout, each start of a partition begins one."""
        state = self._state(table_id)
        version = max(ts, state.version)
        for key in [key for key, stream in self._streams.items() if stream.table_id == table_id]:
            self._write(self._streams.pop(key))
        state.partitions[partition] = version
        path = self.root.joinpath(table_id.database, table_id.table, str(version), "schema.json")
        if not path.exists():
            self._put(path, legacy_schema_text(table_id, version, state.schema, "").encode())

    def _own_version(self, table_id: TableId, state: _TableState, partition: int) -> int:
        """The version directory of a partition under its own table id. Its schema file is written just before its first row.

        It is the table's version, or else the newest that the partition has with the same checksum (section 2.10 of the format).
        """
        if partition not in state.partitions:
            meta = self.root / str(partition) / "meta"
            checksum = schema_checksum(table_id, state.schema, column_id=self.options.output_column_id)
            found = [int(path.name.split("_")[1]) for path in meta.glob(f"schema_*_{checksum:010d}.json")]
            version = state.version if state.version in found or not found else max(found)
            if not found:
                text = schema_text(table_id, version, state.schema, "", 0, column_id=self.options.output_column_id)
                self._put(meta / schema_file_name(version, checksum), text.encode())
            state.partitions[partition] = version
        return state.partitions[partition]

    def _database_change(self, table_id: TableId, version: int, statement: str, type_code: int) -> Path | None:
        if not table_id.is_database:
            raise ValueError(f"a schema file of table {table_id} needs its shape")
        if self.options.use_table_id_as_path or self.options.legacy:
            return None
        name = schema_file_name(version, schema_checksum(table_id, None, column_id=False))
        path = self.root / table_id.database / "meta" / name
        self._put(path, schema_text(table_id, version, None, statement, type_code, column_id=False).encode())
        return path

    def rows(
        self,
        table_id: TableId,
        commit_ts: int,
        changes: Iterable[RowChange],
        *,
        partition: int | None = None,
        dispatcher: str = "",
        version: int | None = None,
    ) -> None:
        """Adds the rows of one transaction in this order, without splitting updates (see :func:`split_key_updates`).

        ``partition`` is the physical partition id, ``dispatcher`` the digits in a file's name if a table is spread across nodes,
        ``version`` a directory other than the table's newest (as a late dispatcher uses).
        """
        state = self._state(table_id)
        stream = self._stream(table_id, state, partition, dispatcher, version)
        for change in changes:
            record = state.encoder.change(commit_ts, change.before, change.after).encode()
            stream.parts.append(record)
            stream.size += len(record)
            if stream.size >= self.options.file_size:
                self._write(stream)

    def bulk(
        self,
        table_id: TableId,
        rows: pa.Table,
        commit_ts: int | pa.Array,
        operation: str | pa.Array = "I",
        *,
        rows_per_file: int = 200_000,
        partition: int | None = None,
        dispatcher: str = "",
    ) -> int:
        """Writes many rows by column, for benchmarks. Returns the number of bytes.

        ``rows`` has the table's row columns in canonical Arrow types. ``commit_ts`` (int64) and ``operation`` (``I``, ``U``, ``D``)
        are each one value for all rows, or an array of the same length. Updates carry no old value.
        """
        state = self._state(table_id)
        stamps = commit_ts if isinstance(commit_ts, pa.Array) else pa.repeat(pa.scalar(commit_ts, pa.int64()), len(rows))
        kinds = operation if isinstance(operation, pa.Array) else pa.repeat(pa.scalar(operation), len(rows))
        stream = self._stream(table_id, state, partition, dispatcher, None)
        self._write(stream)
        written = 0
        for start in range(0, len(rows), rows_per_file):
            chunk = rows.slice(start, rows_per_file)
            data = state.encoder.table(kinds.slice(start, rows_per_file), stamps.slice(start, rows_per_file), chunk)
            stream.parts.append(data)
            written += len(data)
            self._write(stream)
        return written

    def flush(self, table_id: TableId | None = None) -> list[Path]:
        """Writes the waiting rows of one table, or of all, into files. Returns their paths."""
        paths = [self._write(s) for s in list(self._streams.values()) if table_id is None or s.table_id == table_id]
        return [path for path in paths if path is not None]

    def tear(self, chance: Random) -> list[tuple[Path, bytes]]:
        """Writes the waiting rows in place and stops halfway, as ``flush-concurrency`` above 1 may. Returns files and contents.

        A torn file is empty or has at least one whole record; from less, its time could not be determined. The rows no longer wait:
        the caller must write the whole contents, or simulate a crashed TiCDC that repeats the rows.
        """
        torn = []
        for stream in self._streams.values():
            first = len(stream.encoder.header().encode() + stream.parts[0]) if stream.parts else 0
            path = self._write(stream)
            if path is not None:
                whole = path.read_bytes()
                path.write_bytes(whole[: chance.choice([0, chance.randint(first, len(whole))])])
                torn.append((path, whole))
        return torn

    def count_from(self, folder: Path, number: Callable[[int], int]) -> None:
        """Changes the last file number of a directory, with ``number`` applied to it. Later files may overwrite old ones."""
        for key, last in self._numbers.items():
            if key[0] == folder:
                self._numbers[key] = number(last)

    def checkpoint(self, ts: int, *, flush: bool = True) -> None:
        """Writes ``metadata``, after all waiting rows. Without ``flush`` it may promise rows that are not in files."""
        if flush:
            self.flush()
        self._put(self.root / "metadata", f'{{"checkpoint-ts":{ts}}}'.encode())

    def _state(self, table_id: TableId) -> _TableState:
        if table_id not in self._tables:
            raise ValueError(f"table {table_id} has no schema file yet")
        return self._tables[table_id]

    def _table_path(self, table_id: TableId) -> tuple[str, ...]:
        if not self.options.use_table_id_as_path:
            return (table_id.database, table_id.table)
        physical_id = self._tables[table_id].physical_id
        if physical_id is None:
            raise ValueError(f"table {table_id} needs a physical id, since table ids are the paths")
        return (str(physical_id),)

    def _stream(
        self, table_id: TableId, state: _TableState, partition: int | None, dispatcher: str, version: int | None
    ) -> _Stream:
        directory = (*self._table_path(table_id), str(version or state.version))
        if partition is not None and self.options.use_table_id_as_path:
            directory = (str(partition), str(version or self._own_version(table_id, state, partition)))
        elif partition is not None and partition in state.partitions:
            directory = (*self._table_path(table_id), str(version or state.partitions[partition]))
        if partition is not None and self.options.enable_partition_separator and not self.options.use_table_id_as_path:
            directory += (str(partition),)
        if self.options.enable_table_across_nodes and not dispatcher:
            dispatcher = str(zlib.crc32(str(table_id).encode())) * 3
        key = (directory, dispatcher)
        if key not in self._streams:
            self._streams[key] = _Stream(table_id, directory, dispatcher, state.encoder)
        return self._streams[key]

    def _write(self, stream: _Stream) -> Path | None:
        if not stream.parts:
            return None
        date = self.options.date_folder(self.clock())
        folder = self.root.joinpath(*stream.directory, *([date] if date else []))
        number = self._next_number(folder, stream.dispatcher)
        prefix = f"CDC_{stream.dispatcher}_" if stream.dispatcher else "CDC"
        path = folder / f"{prefix}{number:0{self.options.digits}d}.{self.options.extension}"
        self._put(path, stream.encoder.header().encode() + b"".join(stream.parts))
        index = f"CDC_{stream.dispatcher}.index" if stream.dispatcher else "CDC.index"
        self._put((folder if self.options.legacy else folder / "meta") / index, f"{path.name}\n".encode())
        stream.parts.clear()
        stream.size = 0
        return path

    def _next_number(self, folder: Path, dispatcher: str) -> int:
        key = (folder, dispatcher)
        if key not in self._numbers:
            found = [_FILE_NUMBER.match(path.name) for path in folder.glob("CDC*")]
            numbers = [int(match["number"]) for match in found if match and (match["dispatcher"] or "") == dispatcher]
            self._numbers[key] = max(numbers, default=0)
        self._numbers[key] += 1
        return self._numbers[key]

    @staticmethod
    def _put(path: Path, data: bytes) -> None:
        # A temporary file and a rename, as TiCDC does on a file system: a reader never sees half a file.
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.tmp.{uuid.uuid4().hex}")
        temporary.write_bytes(data)
        temporary.rename(path)
