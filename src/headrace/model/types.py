"""TiDB's column types, and the one Arrow type in which a block holds the values of each (rule 4 of the design).

Canonical values: integers, YEAR and BIT as 64-bit integers; FLOAT and DOUBLE as they are; BINARY, VARBINARY and the BLOBs
as binary; everything else (strings, DECIMAL, DATE, TIME, DATETIME, TIMESTAMP in UTC, ENUM and SET as member text, JSON,
VECTOR) as MySQL's own text in UTF-8. Names are those of ``ColumnType`` in TiCDC's schema files (TiCDC documentation,
"Replicate Data to Storage Services", section "Schema data").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import pyarrow as pa

_T = TypeVar("_T")


class TypeKind(StrEnum):
    """The base name of a column type, without ``UNSIGNED``."""

    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    MEDIUMINT = "MEDIUMINT"
    INT = "INT"
    BIGINT = "BIGINT"
    BIT = "BIT"
    YEAR = "YEAR"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    VAR_STRING = "VAR_STRING"
    BINARY = "BINARY"
    VARBINARY = "VARBINARY"
    TINYTEXT = "TINYTEXT"
    TEXT = "TEXT"
    MEDIUMTEXT = "MEDIUMTEXT"
    LONGTEXT = "LONGTEXT"
    TINYBLOB = "TINYBLOB"
    BLOB = "BLOB"
    MEDIUMBLOB = "MEDIUMBLOB"
    LONGBLOB = "LONGBLOB"
    DATE = "DATE"
    TIME = "TIME"
    DATETIME = "DATETIME"
    TIMESTAMP = "TIMESTAMP"
    ENUM = "ENUM"
    SET = "SET"
    JSON = "JSON"
    VECTOR = "VECTOR"


class UnmappedTypeError(LookupError):
    """A type map has no entry for a type. This is a bug of Headrace, which a guess must not hide."""


class TypeMap(Mapping[TypeKind, _T]):
    """A mapping from column types. It never guesses: a type without an entry raises UnmappedTypeError.

    ``tests/test_type_maps.py`` checks that every type map of every module has an entry for every type.
    """

    def __init__(self, what: str, *parts: Mapping[TypeKind, _T]) -> None:
        """``what`` describes the values, for the error message. If several parts have a type, the last one counts."""
        self._what = what
        self._entries = {kind: value for part in parts for kind, value in part.items()}

    def __getitem__(self, kind: TypeKind) -> _T:
        if kind not in self._entries:
            raise UnmappedTypeError(f"The type {kind} has no entry in the table of {self._what}.")
        return self._entries[kind]

    def __contains__(self, kind: object) -> bool:
        return kind in self._entries

    def __iter__(self) -> Iterator[TypeKind]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def each(kinds: Iterable[TypeKind], value: _T) -> dict[TypeKind, _T]:
    """One entry for several types, as a part of a :class:`TypeMap`."""
    return dict.fromkeys(kinds, value)


INTEGER_KINDS = frozenset({TypeKind.TINYINT, TypeKind.SMALLINT, TypeKind.MEDIUMINT, TypeKind.INT, TypeKind.BIGINT})
BINARY_KINDS = frozenset(
    {
        TypeKind.BINARY,
        TypeKind.VARBINARY,
        TypeKind.TINYBLOB,
        TypeKind.BLOB,
        TypeKind.MEDIUMBLOB,
        TypeKind.LONGBLOB,
    }
)
CHARACTER_KINDS = frozenset(
    {
        TypeKind.CHAR,
        TypeKind.VARCHAR,
        TypeKind.VAR_STRING,
        TypeKind.TINYTEXT,
        TypeKind.TEXT,
        TypeKind.MEDIUMTEXT,
        TypeKind.LONGTEXT,
    }
)


LONGEST_TEXT = 65_535
"""The most characters of a text for rows in a table's definition: a default value, or a member of an ENUM or SET.

TiDB accepts defaults for columns of at most 65,535 bytes, and members of at most 255 characters. Members may have any length if
``enable-enum-length-limit`` is off, and before v5.0.
"""
_MOST_MEMBERS = {TypeKind.ENUM: 65_535, TypeKind.SET: 64}


MOST_COMPARED = 50_000_000
"""The most that :func:`compared` gives for all columns that a statement defines.

A server compares each member of an ENUM or SET with all others, each time that it makes the table. In MariaDB (10.11), KILL does
not end this: 900 members of 60 characters (49 million) take up to 1.4 s, by collation, and 60,000 members would take hours.
"""


def compared(members: Sequence[str]) -> int:
    """A measure of what a server compares for the members of an ENUM or SET: their number² times the characters of the longest."""
    return len(members) ** 2 * max(map(len, members), default=0)


def too_many_compared() -> str:
    """That the members of columns are more than :data:`MOST_COMPARED`, as a clause."""
    return (
        "its ENUM and SET columns have too many or too long members, each of which servers compare with all others (the square of"
        f" their number times the characters of the longest may be {MOST_COMPARED:,}, in all columns together)"
    )


def unfit_members(kind: TypeKind, members: Sequence[str]) -> str:
    """What is wrong with the members of an ENUM or SET, as the rest of a sentence about the column; empty if they are valid."""
    most = _MOST_MEMBERS.get(kind, max(_MOST_MEMBERS.values()))
    if len(members) > most:
        return f"has {len(members)} members, and TiDB has {most} at most"
    longest = max(map(len, members), default=0)
    return f"has a member of {longest} characters, and none has more than {LONGEST_TEXT}" if longest > LONGEST_TEXT else ""


@dataclass(frozen=True)
class ColumnType:
    """A column's type."""

    kind: TypeKind
    unsigned: bool = False
    length: int | None = None
    """The display width of integers, the precision of DECIMAL, FLOAT and DOUBLE, the character or byte length of strings, or the
    number of bits of BIT."""
    scale: int | None = None
    """The number of digits after the decimal point, or of the fraction of a second."""
    elements: tuple[str, ...] = ()
    """The members of ENUM and SET in the order of their definition; empty if unknown (older TiCDC does not write them)."""

    def __str__(self) -> str:
        return f"{self.kind} UNSIGNED" if self.unsigned else str(self.kind)


ARROW_TYPES = TypeMap(
    "canonical Arrow types",
    each(INTEGER_KINDS | {TypeKind.YEAR}, pa.int64()),
    each(BINARY_KINDS, pa.binary()),
    each(CHARACTER_KINDS, pa.string()),
    each({TypeKind.DECIMAL, TypeKind.ENUM, TypeKind.SET, TypeKind.JSON, TypeKind.VECTOR}, pa.string()),
    each({TypeKind.DATE, TypeKind.TIME, TypeKind.DATETIME, TypeKind.TIMESTAMP}, pa.string()),
    {TypeKind.BIT: pa.uint64(), TypeKind.FLOAT: pa.float32(), TypeKind.DOUBLE: pa.float64()},
)
"""For signed types. :func:`arrow_type` has a wider type for unsigned BIGINT, for its largest values."""


def arrow_type(column_type: ColumnType) -> pa.DataType:
    """The canonical Arrow type of a column's values: int64, uint64, float32, float64, binary or string."""
    if column_type.kind is TypeKind.BIGINT and column_type.unsigned:
        return pa.uint64()
    return ARROW_TYPES[column_type.kind]
