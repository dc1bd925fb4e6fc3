"""What TiCDC's protocol ``avro`` says of a table in the schemas that it registers.

Format: TiCDC documentation, "TiCDC Avro Protocol". The record of a value has a field for each column, and behind them fields of
TiCDC's own; the record of a key has the columns of the handle key. Names have ``_`` for every character that Avro does not allow,
and before a digit at their beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.formats.avro.schema import NULL, AvroType, Field, Kind, Primitive, Record, Union
from headrace.formats.schema_file import MOST_COLUMNS
from headrace.model.table import Column, TableId, TableSchema, folded_name
from headrace.model.types import ColumnType, TypeKind, unfit_members

OPERATION, COMMIT_TS, BEFORE = "_tidb_op", "_tidb_commit_ts", "_ticdc_before"
_PHYSICAL_TIME = "_tidb_commit_physical_time"
_OF_CHECKSUMS = frozenset({"_tidb_row_level_checksum", "_tidb_corrupted", "_tidb_checksum_version"})
OWN_FIELDS = frozenset({OPERATION, COMMIT_TS, BEFORE, _PHYSICAL_TIME}) | _OF_CHECKSUMS
"""The fields that are no columns."""
_INDEX_BYTES = 3072
"""The most bytes that a key of MySQL, MariaDB and TiDB may have."""
_FIXED_BYTES = 32
"""The most bytes in a key that a column takes which is neither text nor bytes."""
_CHARACTER_BYTES = 4
_MOST_DIGITS, _MOST_SCALE = 65, 30
_MOST_BITS = 64
_MICROSECONDS = 6
_BY_NAME = {
    "INT": ColumnType(TypeKind.INT),
    "INT UNSIGNED": ColumnType(TypeKind.INT, unsigned=True),
    "BIGINT": ColumnType(TypeKind.BIGINT),
    "BIGINT UNSIGNED": ColumnType(TypeKind.BIGINT, unsigned=True),
    "FLOAT": ColumnType(TypeKind.FLOAT),
    "DOUBLE": ColumnType(TypeKind.DOUBLE),
    "TEXT": ColumnType(TypeKind.LONGTEXT),
    "BLOB": ColumnType(TypeKind.LONGBLOB),
    "JSON": ColumnType(TypeKind.JSON),
    "DATE": ColumnType(TypeKind.DATE),
    "DATETIME": ColumnType(TypeKind.DATETIME, scale=_MICROSECONDS),
    "TIMESTAMP": ColumnType(TypeKind.TIMESTAMP, scale=_MICROSECONDS),
    "TIME": ColumnType(TypeKind.TIME, scale=_MICROSECONDS),
    "YEAR": ColumnType(TypeKind.YEAR),
    "TIDBVECTORFLOAT32": ColumnType(TypeKind.VECTOR),
}
# For a schema that does not name TiDB's types.
_BY_KIND = {
    Kind.BOOLEAN: ColumnType(TypeKind.TINYINT, length=1),
    Kind.INT: ColumnType(TypeKind.INT),
    Kind.LONG: ColumnType(TypeKind.BIGINT),
    Kind.FLOAT: ColumnType(TypeKind.FLOAT),
    Kind.DOUBLE: ColumnType(TypeKind.DOUBLE),
    Kind.BYTES: ColumnType(TypeKind.LONGBLOB),
    Kind.STRING: ColumnType(TypeKind.LONGTEXT),
}


def avro_name(name: str) -> str:
    """The name that TiCDC gives a database, table or column in Avro. Different names may become the same one."""
    text = "".join(character if character.isascii() and (character.isalnum() or character == "_") else "_" for character in name)
    return f"_{text}" if text[:1].isdigit() else text


def table_of(record: Record) -> TableId:
    """The table that a registered record is of, as far as Avro's names tell. The namespace is the changefeed's and the database."""
    return TableId(record.namespace.rpartition(".")[2], record.name)


def table_in_avro(table_id: TableId) -> TableId:
    """The name that a table has in its records."""
    return TableId(avro_name(table_id.database), avro_name(table_id.table))


def is_certain(table_id: TableId) -> bool:
    """Whether only the table of this name has this name in its records."""
    return "_" not in table_id.database + table_id.table


def columns_of(record: Record) -> list[Field]:
    """The fields that are columns."""
    return [field for field in record.fields if field.name not in OWN_FIELDS]


def shape_of(value: Record, key: Record | None, registered: int) -> TableSchema:
    """The shape that a table gets from the schemas of its values and keys.

    It is wide enough for each value: Avro does not tell lengths, the digits of a fraction of a second, or which integer type it is.
    The columns of the key are the primary key. ``registered`` is the id of the value's schema. Raises ValueError, the end of a
    sentence.
    """
    keys = columns_of(key) if key is not None else []
    return shape_from(table_of(value), columns_of(value), keys, _type_of, registered)


def shape_from(
    table_id: TableId, fields: Sequence[Field], key: Sequence[Field], type_of: Callable[[Field], ColumnType], registered: int
) -> TableSchema:
    """The shape of a table whose values and keys have these fields; ``type_of`` tells a field's type, or raises ValueError.

    ``registered`` is the id of the value's schema. Raises ValueError, the end of a sentence.
    """
    keys = tuple(field.name for field in key)
    names = [folded_name(field.name) for field in fields]
    if not fields or len(fields) > MOST_COLUMNS or len(set(names)) < len(names):
        raise ValueError("its registered schema has no columns, too many, or two of the same name.")
    if not {folded_name(name) for name in keys} <= set(names):
        raise ValueError("the registered schema of its key has a column that its values lack.")
    types = [type_of(field) for field in fields]
    variable = sum(
        of.kind in (TypeKind.LONGTEXT, TypeKind.LONGBLOB) for field, of in zip(fields, types, strict=True) if field.name in keys
    )
    room = (_INDEX_BYTES - _FIXED_BYTES * (len(keys) - variable)) // max(variable, 1)
    columns = tuple(_column(field, of, room if field.name in keys else None) for field, of in zip(fields, types, strict=True))
    return TableSchema(table_id, columns, keys, registered=registered)


def _column(field: Field, found: ColumnType, key_bytes: int | None) -> Column:
    """``key_bytes``: how many bytes a text of the key may have; ``None`` for a column that is not in the key."""
    if key_bytes is not None and found.kind is TypeKind.LONGTEXT:
        found = ColumnType(TypeKind.VARCHAR, length=key_bytes // _CHARACTER_BYTES)
    elif key_bytes is not None and found.kind is TypeKind.LONGBLOB:
        found = ColumnType(TypeKind.VARBINARY, length=key_bytes)
    is_key = key_bytes is not None
    return Column(field.name, found, nullable=field.nullable and not is_key, primary_key=is_key, default=_default(field))


def _type_of(field: Field) -> ColumnType:
    of = field.value_type
    if not isinstance(of, Primitive) or of == NULL or of.kind is Kind.NULL:
        raise ValueError(f"the type of column {field.name} in its registered schema is none that TiCDC writes.")
    told = of.parameters.get("tidb_type", "").upper()
    if told == "DECIMAL" or of.logical == "decimal":
        return decimal_type(field.name, of)
    if told == "BIT":
        return bit_type(field.name, of)
    if told in ("ENUM", "SET"):
        return member_type(field.name, TypeKind(told), of)
    if told and told not in _BY_NAME:
        raise ValueError(f"the type {told[:40]!r} of column {field.name} in its registered schema is not known.")
    return _BY_NAME[told] if told else _BY_KIND[of.kind]


def decimal_type(name: str, of: Primitive) -> ColumnType:
    """A DECIMAL; if it is written as a text, of any number of digits. Raises ValueError, the end of a sentence."""
    if of.logical != "decimal":
        return ColumnType(TypeKind.DECIMAL, length=_MOST_DIGITS, scale=_MOST_SCALE)
    if of.precision > _MOST_DIGITS or of.scale > min(of.precision, _MOST_SCALE):
        raise ValueError(f"the column {name} has {of.precision} digits, {of.scale} of them a fraction, which no DECIMAL has.")
    return ColumnType(TypeKind.DECIMAL, length=of.precision, scale=of.scale)


def bit_type(name: str, of: Primitive) -> ColumnType:
    """A BIT of the length in ``connect.parameters``. Raises ValueError, the end of a sentence."""
    length = of.parameters.get("length", "1")
    if not (length.isascii() and length.isdigit() and 1 <= int(length[:4]) <= _MOST_BITS):
        raise ValueError(f"the column {name} has {length[:20]!r} bits, which is not possible.")
    return ColumnType(TypeKind.BIT, length=int(length))


def member_type(name: str, kind: TypeKind, of: Primitive) -> ColumnType:
    """An ENUM or SET with its members: ``allowed`` in ``connect.parameters``, separated by commas.

    A comma in a member has a backslash before it, and a backslash has none. So a backslash leaves it open which the members are.
    The column is then a text, as values are. Raises ValueError, the end of a sentence.
    """
    allowed = of.parameters.get("allowed", "")
    if not allowed or "\\" in allowed:
        return ColumnType(TypeKind.LONGTEXT)
    members = tuple(allowed.split(","))
    if unfit := unfit_members(kind, members):
        raise ValueError(f"column {name} {unfit}.")
    return ColumnType(kind, elements=members)


def _default(field: Field) -> str | None:
    """The default as text; ``None`` for NULL, for no default, and for bytes, whose default a shape does not hold."""
    default = field.default
    if not field.has_default or default is None or _is_bytes(field.value_type):
        return None
    return str(int(default)) if isinstance(default, bool) else str(default)


def _is_bytes(of: AvroType) -> bool:
    return isinstance(of, Primitive) and of.kind is Kind.BYTES


def before_of(value: Record) -> Record | None:
    """The record of the old row in a value; ``None`` if values have none (``avro-include-before-value``)."""
    field = value.field(BEFORE)
    old = field.value_type if field is not None else None
    return old if isinstance(old, Record) else None


def is_long(field: Field | None) -> bool:
    """Whether the field is there and holds whole numbers."""
    return field is not None and not isinstance(field.type, Union) and field.type == Primitive(Kind.LONG)
