"""Reads the definition of a column in DDL text: its type, and whether it may be NULL, with TiDB's defaults for what it leaves out.

Types and lengths are those that TiCDC writes into schema files for the same column (``headrace.formats.schema_file``), so that a
table has the same shape whether its source has schema files or only statements. Source: TiDB documentation, "Data Types".
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from headrace.ddl.lexer import Cursor, Word, bytes_of_digits, outside_parentheses, split_at_commas
from headrace.ddl.stored_defaults import UnreadDefinitionError, stored_default
from headrace.ddl.told import accepts_charset
from headrace.model.table import Column
from headrace.model.types import INTEGER_KINDS, ColumnType, TypeKind

_NAMES = {
    **{str(kind): kind for kind in TypeKind if kind is not TypeKind.VAR_STRING},
    **{"BOOL": TypeKind.TINYINT, "BOOLEAN": TypeKind.TINYINT, "INT1": TypeKind.TINYINT, "INT2": TypeKind.SMALLINT},
    **{"INT3": TypeKind.MEDIUMINT, "MIDDLEINT": TypeKind.MEDIUMINT, "INTEGER": TypeKind.INT, "INT4": TypeKind.INT},
    **{"INT8": TypeKind.BIGINT, "SERIAL": TypeKind.BIGINT, "FLOAT4": TypeKind.FLOAT, "FLOAT8": TypeKind.DOUBLE},
    **{"REAL": TypeKind.DOUBLE, "DEC": TypeKind.DECIMAL, "NUMERIC": TypeKind.DECIMAL, "FIXED": TypeKind.DECIMAL},
    **{"CHARACTER": TypeKind.CHAR, "NCHAR": TypeKind.CHAR, "VARCHARACTER": TypeKind.VARCHAR, "NVARCHAR": TypeKind.VARCHAR},
    **{"SQL_TSI_YEAR": TypeKind.YEAR},
}
_WIDTHS = {
    TypeKind.TINYINT: (4, 3),
    TypeKind.SMALLINT: (6, 5),
    TypeKind.MEDIUMINT: (9, 8),
    TypeKind.INT: (11, 10),
    TypeKind.BIGINT: (20, 20),
}
"""The display widths of signed and unsigned integers."""
_LENGTHS = {
    TypeKind.BIT: 1,
    TypeKind.YEAR: 4,
    TypeKind.FLOAT: 12,
    TypeKind.DOUBLE: 22,
    TypeKind.DECIMAL: 10,
    TypeKind.CHAR: 1,
    TypeKind.BINARY: 1,
}
_WITH_LENGTH = frozenset({*_LENGTHS, TypeKind.VARCHAR, TypeKind.VARBINARY})
_OF_BYTES = {
    TypeKind.CHAR: TypeKind.BINARY,
    TypeKind.VARCHAR: TypeKind.VARBINARY,
    TypeKind.TINYTEXT: TypeKind.TINYBLOB,
    TypeKind.TEXT: TypeKind.BLOB,
    TypeKind.MEDIUMTEXT: TypeKind.MEDIUMBLOB,
    TypeKind.LONGTEXT: TypeKind.LONGBLOB,
}
"""A text type with the character set ``binary`` is the type of bytes."""
_SIZES = {
    **{TypeKind.TINYTEXT: 255, TypeKind.TEXT: 65_535, TypeKind.MEDIUMTEXT: (1 << 24) - 1, TypeKind.LONGTEXT: (1 << 32) - 1},
    **{TypeKind.TINYBLOB: 255, TypeKind.BLOB: 65_535, TypeKind.MEDIUMBLOB: (1 << 24) - 1, TypeKind.LONGBLOB: (1 << 32) - 1},
}
_TEXTS = (TypeKind.TINYTEXT, TypeKind.TEXT, TypeKind.MEDIUMTEXT, TypeKind.LONGTEXT)
_BLOBS = (TypeKind.TINYBLOB, TypeKind.BLOB, TypeKind.MEDIUMBLOB, TypeKind.LONGBLOB)
_CHARACTER_BYTES = {"utf8": 3, "utf8mb3": 3, "latin1": 1, "ascii": 1, "binary": 1, "gbk": 2}
"""The most bytes of a character, for the character sets of TiDB in which these are not :data:`_MOST_BYTES`."""
_MOST_BYTES = 4
_FLOAT_BITS = 24
_WITH_FRACTION = frozenset({TypeKind.TIME, TypeKind.DATETIME, TypeKind.TIMESTAMP})
_UNSIGNED_ALWAYS = frozenset({TypeKind.BIT, TypeKind.YEAR})
"""TiCDC gives these types as unsigned."""


def read_column(definition: tuple[Word, ...], collation: str = "") -> Column:
    """The column of a definition, its name first.

    Its generation, members and indexes are left to :func:`headrace.ddl.columns.annotate`.

    ``collation``: the table's default collation; empty for TiDB's own. Raises UnreadDefinitionError.
    """
    cursor = Cursor(definition)
    name = cursor.column_name()
    is_serial = cursor.peek().says("SERIAL")
    column_type = read_type(definition, collation)
    attributes = outside_parentheses(cursor.rest())
    primary = _is_primary(Cursor(attributes))
    not_null = primary or is_serial or _has(attributes, "SERIAL") or _has_not_null(attributes)
    default = stored_default(definition, name, replace(column_type, elements=members_of(definition)))
    return Column(name, column_type, not not_null, primary, default)


def read_type(definition: tuple[Word, ...], collation: str = "") -> ColumnType:
    """The type in the definition of a column, without members; see :func:`read_column`. Raises UnreadDefinitionError."""
    cursor = Cursor(definition)
    name = cursor.column_name()
    first = cursor.peek()
    kind = _kind(cursor, name)
    numbers = _numbers(cursor)
    attributes = outside_parentheses(cursor.rest())
    charset = _charset(Cursor(attributes), collation)
    kind = _OF_BYTES.get(kind, kind) if charset == "binary" else kind
    unsigned = first.says("SERIAL") or kind in _UNSIGNED_ALWAYS or _has(attributes, "UNSIGNED") or _has(attributes, "ZEROFILL")
    column_type = _sized(ColumnType(kind, unsigned), numbers, _CHARACTER_BYTES.get(charset, _MOST_BYTES))
    return replace(column_type, length=1) if first.says("BOOL") or first.says("BOOLEAN") else column_type


def as_bytes(of: ColumnType) -> ColumnType:
    """The type of bytes that a text type becomes with the character set ``binary``; any other type unchanged."""
    return replace(of, kind=_OF_BYTES.get(of.kind, of.kind))


def members_of(definition: tuple[Word, ...]) -> tuple[str, ...]:
    """The members of a definition with ``ENUM('a', 0x62)`` or ``SET(…)``; empty if one is not known.

    TiDB reads the bytes of hexadecimal and bit literals in the column's character set, so these are known only if they are ASCII.
    """
    cursor = Cursor(definition)
    cursor.column_name()
    if not (cursor.accept("ENUM") or cursor.accept("SET")) or not cursor.peek().says("("):
        return ()
    members = [_member(part[0]) if len(part) == 1 else None for part in split_at_commas(cursor.group())]
    known = tuple(member.rstrip(" ") for member in members if member is not None)
    return known if len(known) == len(members) else ()


def _member(word: Word) -> str | None:
    """The text of a member; ``None`` if it is not known."""
    if word.is_text:
        return word.text
    if not word.is_literal or word.written == word.text:  # a number is no member
        return None
    found = bytes_of_digits(word)
    return found.decode("ascii") if found.isascii() else None


def _kind(cursor: Cursor, name: str) -> TypeKind:
    """Steps over the words of the type."""
    if cursor.accept("LONG"):
        if cursor.accept("VARBINARY"):
            return TypeKind.MEDIUMBLOB
        cursor.skip_any("VARCHAR", "VARCHARACTER", "CHAR", "CHARACTER", "VARYING")
        return TypeKind.MEDIUMTEXT
    cursor.accept("NATIONAL")
    word = cursor.next()
    kind = None if word.is_name or word.is_literal else _NAMES.get(word.text.upper())
    if kind is None:
        raise UnreadDefinitionError(f"the type {word.text[:40]!r} of column {name} is not known.")
    if kind is TypeKind.CHAR and (cursor.accept("VARYING") or cursor.accept("VARCHAR") or cursor.accept("VARCHARACTER")):
        return TypeKind.VARCHAR
    if kind is TypeKind.DOUBLE:
        cursor.accept("PRECISION")
    return kind


def _numbers(cursor: Cursor) -> tuple[int, ...]:
    """The whole numbers in parentheses after the type; none for members and for a vector's element type."""
    found = [
        part[0].text for part in split_at_commas(cursor.group()) if len(part) == 1 and part[0].is_literal and not part[0].is_text
    ]
    return tuple(int(text) for text in found if text.isdigit() and len(text) <= 10)


def _sized(of: ColumnType, numbers: tuple[int, ...], character_bytes: int) -> ColumnType:
    """The type with its lengths, or with those that TiDB gives it. ``character_bytes`` is the size of a character in bytes."""
    kind, first = of.kind, numbers[0] if numbers else None
    if kind in _WITH_FRACTION:
        return replace(of, scale=first or None)
    if kind in _SIZES:
        kind = _fitting(kind, first, character_bytes)
        return ColumnType(kind, length=_SIZES[kind])
    if kind in (TypeKind.FLOAT, TypeKind.DOUBLE):
        return _floating(of, numbers)
    if kind in INTEGER_KINDS:
        return replace(of, length=_WIDTHS[kind][of.unsigned] if first is None else first)
    scale = (numbers[1] if len(numbers) > 1 else 0) if kind is TypeKind.DECIMAL else None
    return replace(of, length=first or _LENGTHS.get(kind), scale=scale) if kind in _WITH_LENGTH else of


def _floating(of: ColumnType, numbers: tuple[int, ...]) -> ColumnType:
    """FLOAT(m, d) has digits; FLOAT(p) is a DOUBLE if p bits are too many for a FLOAT."""
    if len(numbers) > 1:
        return replace(of, length=numbers[0], scale=numbers[1])
    is_double = of.kind is TypeKind.DOUBLE or bool(numbers and numbers[0] > _FLOAT_BITS)
    kind = TypeKind.DOUBLE if is_double else TypeKind.FLOAT
    return replace(of, kind=kind, length=_LENGTHS[kind])


def _fitting(kind: TypeKind, length: int | None, character_bytes: int) -> TypeKind:
    """TEXT(n) and BLOB(n) are the smallest type that has room for n characters or bytes."""
    if length is None or kind not in (TypeKind.TEXT, TypeKind.BLOB):
        return kind
    size, kinds = (length * character_bytes, _TEXTS) if kind is TypeKind.TEXT else (length, _BLOBS)
    return next((found for found in kinds if size <= _SIZES[found]), kinds[-1])


def _has(attributes: tuple[Word, ...], keyword: str) -> bool:
    return any(word.says(keyword) for word in attributes)


def _has_not_null(attributes: tuple[Word, ...]) -> bool:
    return any(first.says("NOT") and second.says("NULL") for first, second in pairwise(attributes))


def _is_primary(cursor: Cursor) -> bool:
    """``PRIMARY KEY``, or ``KEY`` alone, which means the same; behind UNIQUE it does not."""
    while not cursor.done:
        if cursor.accept("UNIQUE"):
            cursor.accept("KEY")
        elif cursor.accept("PRIMARY") or cursor.accept("KEY"):
            return True
        else:
            cursor.next()
    return False


def _charset(cursor: Cursor, collation: str) -> str:
    """The character set of a column: the one that its attributes name, itself or by a collation, else that of ``collation``."""
    while not cursor.done:
        if cursor.accept("BYTE"):
            return "binary"
        if accepts_charset(cursor) or cursor.accept("COLLATE"):
            cursor.accept("=")
            return _set_of(cursor.next().text.lower())
        if cursor.accept("ASCII"):
            return "latin1"
        if cursor.accept("UNICODE"):
            return "ucs2"
        cursor.next()
    return _set_of(collation)


def _set_of(collation: str) -> str:
    """The character set of a collation: the name up to the first underscore."""
    return collation.partition("_")[0]
