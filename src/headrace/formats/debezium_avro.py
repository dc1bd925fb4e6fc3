"""What messages of TiCDC's protocol ``debezium-avro`` are about, and what their registered schemas tell of a table.

Format: TiCDC documentation, "TiCDC Debezium Protocol": the payload of such a message (``debezium_messages``) as Kafka Connect
writes it in Avro. A row has ``before`` and ``after``, a schema change ``ddl``, a watermark only ``source`` and ``op``. ``source``
has the names of database and table as they are; schemas have ``_`` for every character that Avro does not allow.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.formats.avro.columns import read_columns, read_sound
from headrace.formats.avro.schema import Field, Kind, Primitive, Record
from headrace.formats.debezium_messages import (
    CONNECTOR,
    ROW_OPERATIONS,
    WATERMARK,
    DebeziumAbout,
    DebeziumKind,
    foreign,
)
from headrace.formats.schema_file import with_escapes
from headrace.formats.statements import TimedStatement
from headrace.formats.ticdc_avro import bit_type, decimal_type, member_type, shape_from
from headrace.model.table import TableId, TableSchema
from headrace.model.tso import MAX_TSO
from headrace.model.types import ColumnType, TypeKind
from headrace.model.writable_text import as_utf8

FRAME = 5
"""The bytes before the content, which name the schema."""
_SOURCE = {"connector": Kind.STRING, "db": Kind.STRING, "table": Kind.STRING, "commit_ts": Kind.LONG}
_ENVELOPE = "Envelope"
_NO_TABLE = TableId("")
_OPERATIONS = {DebeziumKind.ROW: ROW_OPERATIONS, DebeziumKind.WATERMARK: (WATERMARK,), DebeziumKind.STATEMENT: (None,)}
_UNSIGNED = " unsigned"
_MICROSECONDS = 6
_TYPES = {
    "tinyint": ColumnType(TypeKind.TINYINT),
    "smallint": ColumnType(TypeKind.SMALLINT),
    "mediumint": ColumnType(TypeKind.MEDIUMINT),
    "int": ColumnType(TypeKind.INT),
    "bigint": ColumnType(TypeKind.BIGINT),
    "tinyint unsigned": ColumnType(TypeKind.TINYINT, unsigned=True),
    "smallint unsigned": ColumnType(TypeKind.SMALLINT, unsigned=True),
    "mediumint unsigned": ColumnType(TypeKind.MEDIUMINT, unsigned=True),
    "int unsigned": ColumnType(TypeKind.INT, unsigned=True),
    "bigint unsigned": ColumnType(TypeKind.BIGINT, unsigned=True),
    "float": ColumnType(TypeKind.FLOAT),
    "double": ColumnType(TypeKind.DOUBLE),
    "json": ColumnType(TypeKind.JSON),
    "date": ColumnType(TypeKind.DATE),
    "time": ColumnType(TypeKind.TIME, scale=_MICROSECONDS),
    "datetime": ColumnType(TypeKind.DATETIME, scale=_MICROSECONDS),
    "timestamp": ColumnType(TypeKind.TIMESTAMP, scale=_MICROSECONDS),
    "year": ColumnType(TypeKind.YEAR),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), ColumnType(TypeKind.LONGTEXT)),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), ColumnType(TypeKind.LONGBLOB)),
}
"""Types that hold each value of TiDB's: schemas tell neither lengths nor the digits of a fraction of a second."""


def read_about(record: Record, messages: Sequence[bytes]) -> list[DebeziumAbout]:
    """What messages are about that were written with one schema. Never raises for a bad message.

    ``text`` is the message, or of an ``UNREADABLE`` one the reason: the end of a sentence.
    """
    kind = _kind_of(record)
    if kind is DebeziumKind.UNREADABLE:
        return [_unreadable("its schema is none that TiCDC writes for the protocol debezium-avro.")] * len(messages)
    told = read_sound(record, messages, skip=FRAME, wanted={"source": _SOURCE, "op": None})
    named = _certain_table(record) if kind is DebeziumKind.ROW else _NO_TABLE
    bad = {n: _unreadable(f"it cannot be read: in {e.field or 'it'}, {e.reason}.", named) for n, e in told.bad.items()}
    source = told.rows.field("source")
    columns = [source.field(name).to_pylist() for name in _SOURCE]
    operations = [None] * len(told.rows) if kind is DebeziumKind.STATEMENT else told.rows.field("op").to_pylist()
    rows = zip(told.numbers, operations, *columns, strict=True)
    sound = {number: _checked(kind, messages[number], *members) for number, *members in rows}
    return [bad[number] if number in bad else sound[number] for number in range(len(messages))]


def _kind_of(record: Record) -> DebeziumKind:
    """The kind of all messages of a schema."""
    source = record.field("source")
    fields = {field.name: field.type for field in source.type.fields} if source and isinstance(source.type, Record) else {}
    if any(fields.get(name) != Primitive(kind) for name, kind in _SOURCE.items()):
        return DebeziumKind.UNREADABLE
    if _is_text(record.field("ddl")):
        return DebeziumKind.STATEMENT
    if not _is_text(record.field("op")):
        return DebeziumKind.UNREADABLE
    sides = [row_of(record, side) for side in ("before", "after")]
    if all(sides):
        return DebeziumKind.ROW
    return DebeziumKind.UNREADABLE if any(sides) else DebeziumKind.WATERMARK


def _is_text(field: Field | None) -> bool:
    return field is not None and field.value_type == Primitive(Kind.STRING)


def row_of(record: Record, side: str) -> Record | None:
    """The record of the row ``before`` or ``after`` a change."""
    field = record.field(side)
    return field.value_type if field is not None and isinstance(field.value_type, Record) else None


def _certain_table(record: Record) -> TableId:
    """The table of a schema; empty if its name in the schema may stand for several."""
    database, table = record.namespace.rpartition(".")[2], record.name.removesuffix(_ENVELOPE)
    return _NO_TABLE if "_" in database + table else TableId(database, table)


def _unreadable(reason: str, table_id: TableId = _NO_TABLE) -> DebeziumAbout:
    return DebeziumAbout(DebeziumKind.UNREADABLE, table_id.database, table_id.table, text=as_utf8(reason))


def _checked(
    kind: DebeziumKind, message: bytes, operation: str | None, connector: str, database: str, table: str, commit_ts: int
) -> DebeziumAbout:
    table_id = TableId(database, table)
    if connector != CONNECTOR:
        return _unreadable(foreign(connector))
    if not 1 <= commit_ts <= MAX_TSO:
        return _unreadable("source.commit_ts is not a commit ts.", table_id)
    if operation not in _OPERATIONS[kind]:
        return _unreadable(f"its op is {str(operation)[:80]!r}, which is not known.", table_id)
    if kind is DebeziumKind.ROW and not (database and table):
        return _unreadable("it does not name its table.")
    return DebeziumAbout(kind, database, table, commit_ts, message)


def read_statement_message(record: Record, message: bytes) -> TimedStatement:
    """The schema change in a message. Raises ValueError, the end of a sentence."""
    (about,) = read_about(record, [message])
    if about.kind is not DebeziumKind.STATEMENT:
        raise ValueError("it is not a schema change.")
    (told,) = read_columns(record, [message], skip=FRAME, wanted={"ddl"}).field("ddl").to_pylist()
    if not told or not about.database:
        raise ValueError("it has no db or no ddl.")
    return TimedStatement(about.commit_ts, about.database, about.table, with_escapes(told))


def shape_of(table_id: TableId, value: Record, key: Record | None, registered: int) -> TableSchema:
    """The shape that a table gets from the schemas of its values and keys; see ``ticdc_avro.shape_of``."""
    row = row_of(value, "after")
    if row is None:
        raise ValueError("its schema is not that of a row.")
    return shape_from(table_id, row.fields, key.fields if key is not None else (), _type_of, registered)


def _type_of(field: Field) -> ColumnType:
    of, told = field.value_type, field.tidb_type.lower()
    if isinstance(of, Primitive) and told in ("enum", "set"):
        return member_type(field.name, TypeKind(told.upper()), of)
    if isinstance(of, Primitive) and told == "bit":
        return bit_type(field.name, of)
    if isinstance(of, Primitive) and told.removesuffix(_UNSIGNED) == "decimal":
        return decimal_type(field.name, of)
    found = _TYPES.get(told) or _TYPES.get(told.removesuffix(_UNSIGNED))
    if found is None:
        raise ValueError(f"the type {told[:40]!r} of column {field.name} in its registered schema is not known.")
    return found
