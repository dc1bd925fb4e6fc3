"""Reads one binlog message and checks it: bytes to a :class:`Binlog`.

What protobuf's own reader accepts silently is an error here: an unknown type, a missing required field, a row with another number
of values than its table has columns. A message is read as a whole or not at all. Unknown fields are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError as ProtobufError

from headrace.formats.binlog import slave_binlog_pb2 as pb
from headrace.formats.binlog.errors import (
    MalformedBinlogError,
    MissingFieldError,
    RowShapeError,
    UnknownBinlogTypeError,
    UnknownMutationTypeError,
)
from headrace.formats.binlog.wire import require_sound
from headrace.formats.schema_file import MOST_COLUMNS
from headrace.model.table import TableId, folded_name


class BinlogType(IntEnum):
    """What a message contains."""

    DML = 0
    DDL = 1


class MutationType(IntEnum):
    """What happened to a row."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2


class CellField(IntEnum):
    """The field of ``Column`` that carries a value. The numbers are those of the wire."""

    ABSENT = 0
    """Not NULL, and yet without a value. The Go programs take it as the empty string."""
    NULL = 1
    INT64 = 2
    UINT64 = 3
    DOUBLE = 4
    BYTES = 5
    STRING = 6


class Cell(NamedTuple):
    """One value as the message contains it. Strings are bytes, since the message does not name their charset."""

    field: CellField
    value: int | float | bytes | None


_KNOWN_TABLES = 1000
"""The number of descriptions of tables that are kept."""
_MOST_KEPT_PARTS = 512
_MOST_KEPT_BYTES = 64 << 10
"""Of a description that is kept: a few bytes describe a column, which takes hundreds of bytes in memory."""
_NULL = Cell(CellField.NULL, None)
_ABSENT = Cell(CellField.ABSENT, None)
_FIELDS = tuple(CellField)


@dataclass(frozen=True)
class ColumnInfo:
    """A column as a message describes it: its base type in lower case, neither ``unsigned`` nor members nor charset."""

    name: str
    mysql_type: str
    is_primary_key: bool = False
    flen: int | None = None
    """Length or precision; -1 for none, ``None`` in messages of Drainer before v5.4.0."""
    decimal: int | None = None
    """Digits after the point, or of the fraction of a second; as ``flen``."""


@dataclass(frozen=True)
class UniqueKey:
    """A unique key; ``PRIMARY`` is the primary key. Lengths of prefixes are not in the message."""

    name: str
    columns: tuple[str, ...]


class Mutation(NamedTuple):
    """A change of a row. ``row`` is the row afterwards, for a delete the row before; ``old`` the row before an update."""

    type: MutationType
    row: tuple[Cell, ...]
    old: tuple[Cell, ...] | None


@dataclass(frozen=True)
class TableChanges:
    """The changes that a transaction made to one table. A message may have several of these for one table.

    The values are converted from protobuf's own representation while they are iterated over, so that a large transaction does not
    take several times its size.
    """

    table_id: TableId
    columns: tuple[ColumnInfo, ...]
    unique_keys: tuple[UniqueKey, ...]
    """For messages of Drainer before v3.0.9, the primary key that the columns show."""
    encoded: Sequence[Any]

    def __len__(self) -> int:
        return len(self.encoded)

    def __iter__(self) -> Iterator[Mutation]:
        for mutation in self.encoded:
            old = _cells(mutation.change_row) if mutation.type == MutationType.UPDATE else None
            yield Mutation(MutationType(mutation.type), _cells(mutation.row), old)


@dataclass(frozen=True)
class DdlStatement:
    """A schema change: TiDB's own spelling of the statement, and the object it concerns afterwards."""

    table_id: TableId
    """For a rename the new name. Its database was the current one when the statement ran, but not for every rename."""
    query: bytes

    @property
    def text(self) -> str:
        """The statement. Raises MalformedBinlogError if it is not UTF-8."""
        return _text(self.query, "ddl_query")


@dataclass(frozen=True)
class Binlog:
    """One message: a transaction, which may be empty, or one DDL job."""

    type: BinlogType
    commit_ts: int
    """TSO. A reader must not take a value that is not positive as progress."""
    tables: tuple[TableChanges, ...] = ()
    ddl: DdlStatement | None = None
    time_zone: str = ""
    """Empty in the messages of all releases so far."""


def read_binlog(data: bytes) -> Binlog:
    """Reads a message. Raises BinlogError if anything in it is wrong."""
    try:
        message = pb.Binlog.FromString(data)
    except ProtobufError as error:
        require_sound(data)
        raise MalformedBinlogError(f"The message is not a binlog message: {error}.") from None
    return _read(message)


def _read(message: Any) -> Binlog:
    if not message.HasField("commit_ts"):
        raise MissingFieldError("The message has no commit_ts.")
    if not message.HasField("type") and not message.HasField("dml_data"):
        raise MissingFieldError("The message has no type.")
    time_zone = _text(message.time_zone, "time_zone")
    if message.type == BinlogType.DML:
        if message.HasField("ddl_data"):
            raise MalformedBinlogError("The message has the type DML, and contains a DDL statement.")
        tables = tuple(_table(table) for table in message.dml_data.tables)
        return Binlog(BinlogType.DML, message.commit_ts, tables, time_zone=time_zone)
    if message.type != BinlogType.DDL:
        raise UnknownBinlogTypeError(
            f"The message has the type {message.type}, and only 0 (DML) and 1 (DDL) are known.",
            hint="It was written by a newer release of Drainer than Headrace knows.",
        )
    if message.HasField("dml_data"):
        raise MalformedBinlogError("The message has the type DDL, and contains changes of rows.")
    if not message.ddl_data.HasField("ddl_query"):
        raise MissingFieldError("The message has the type DDL, and contains no ddl_query.")
    ddl = message.ddl_data
    table_id = TableId(_text(ddl.schema_name, "schema_name"), _text(ddl.table_name, "table_name"))
    return Binlog(BinlogType.DDL, message.commit_ts, ddl=DdlStatement(table_id, ddl.ddl_query), time_zone=time_zone)


def _table(table: Any) -> TableChanges:
    changes = table_header(table)
    for number, mutation in enumerate(table.mutations, 1):
        _check(mutation, changes, number)
    return changes


def table_header(table: Any) -> TableChanges:
    """The table of a protobuf ``Table``, whose mutations are not checked."""
    table_id = TableId(_text(table.schema_name, "schema_name"), _text(table.table_name, "table_name"))
    if max(len(table.column_info), len(table.unique_keys)) > MOST_COLUMNS:
        raise MalformedBinlogError(f"The message lists more than {MOST_COLUMNS} columns or keys of table {table_id}.")
    infos = [info.SerializeToString() for info in table.column_info]
    columns = _columns(*infos) if _is_kept(infos) else _columns.__wrapped__(*infos)
    listed = [key.SerializeToString() for key in table.unique_keys]
    keys = _keys(*listed) if _is_kept(listed) else _keys.__wrapped__(*listed)
    if columns is None:
        raise MalformedBinlogError(f"The message lists a column of table {table_id} twice.")
    if not keys and (primary := tuple(column.name for column in columns if column.is_primary_key)):
        keys = (UniqueKey("PRIMARY", primary),)
    return TableChanges(table_id, columns, keys, table.mutations)


def _is_kept(parts: Sequence[bytes]) -> bool:
    """Whether what a description tells is kept: only of one of usual size."""
    return len(parts) <= _MOST_KEPT_PARTS and sum(map(len, parts)) <= _MOST_KEPT_BYTES


@lru_cache(_KNOWN_TABLES)
def _columns(*infos: bytes) -> tuple[ColumnInfo, ...] | None:
    """The columns of a table, ``None`` if one is there twice. Messages repeat them, so the answers are kept."""
    columns = tuple(_column(pb.ColumnInfo.FromString(info)) for info in infos)
    return columns if len({folded_name(column.name) for column in columns}) == len(columns) else None


@lru_cache(_KNOWN_TABLES)
def _keys(*keys: bytes) -> tuple[UniqueKey, ...]:
    return tuple(
        UniqueKey(_text(key.name, "name of a key"), tuple(_text(name, "name of a column") for name in key.column_names))
        for key in map(pb.Key.FromString, keys)
    )


def _column(info: Any) -> ColumnInfo:
    return ColumnInfo(
        _text(info.name, "name of a column"),
        _text(info.mysql_type, "mysql_type"),
        info.is_primary_key,
        info.flen if info.HasField("flen") else None,
        info.decimal if info.HasField("decimal") else None,
    )


def _check(mutation: Any, changes: TableChanges, number: int) -> None:
    where = f"Change {number} of table {changes.table_id}"
    if not mutation.HasField("type"):
        raise MissingFieldError(f"{where} has no type.")
    if mutation.type not in (MutationType.INSERT, MutationType.UPDATE, MutationType.DELETE):
        raise UnknownMutationTypeError(
            f"{where} has the type {mutation.type}, and only 0 (insert), 1 (update) and 2 (delete) are known.",
            hint="It was written by a newer release of Drainer than Headrace knows.",
        )
    if not mutation.HasField("row"):
        raise MissingFieldError(f"{where} has no row.")
    _check_row(mutation.row, changes, where)
    if mutation.type == MutationType.UPDATE:
        if not mutation.HasField("change_row"):
            raise MissingFieldError(f"{where} is an update without the row before it.")
        _check_row(mutation.change_row, changes, where)


def _check_row(row: Any, changes: TableChanges, where: str) -> None:
    if len(row.columns) != len(changes.columns):
        raise RowShapeError(f"{where} has a row of {len(row.columns)} values, and the table has {len(changes.columns)} columns.")


def _cells(row: Any) -> tuple[Cell, ...]:
    return tuple(_cell(column) for column in row.columns)


def _cell(column: Any) -> Cell:
    """The first field that is present counts, in the order of the Go programs, which is that of the numbers."""
    for field, value in column.ListFields():
        if field.number != CellField.NULL:
            return Cell(_FIELDS[field.number], value)
        if value:
            return _NULL
    return _ABSENT


def _text(value: bytes, what: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise MalformedBinlogError(f"The {what} of the message is not UTF-8.", value=value[:80].hex()) from None
