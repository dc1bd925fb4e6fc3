"""Columns of a block in MySQL's text formats: a LOAD DATA file, and literals of a statement.

Everything works on whole Arrow columns; Python never handles single rows. Text is UTF-8, binary values are hex, and BIT is its
number. LOAD DATA converts the latter two with SET. Canonical values are those of ``headrace.model.types``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum, auto
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.table import Column
from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS, INTEGER_KINDS, TypeKind, TypeMap, each

_LOAD_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"))
_LITERAL_ESCAPES = (("\\", "\\\\"), ("'", "\\'"), ("\0", "\\0"))
_PLAIN_NUMBER = r"^[+-]?[0-9]+(\.[0-9]+)?$"
_HEX_PAIRS = np.array([f"{byte:02x}".encode() for byte in range(256)], dtype="S2").view(np.uint16)


class _Spelling(Enum):
    """How MySQL reads the values of a type."""

    HEX = auto()
    INTEGER = auto()
    BIT = auto()
    YEAR = auto()
    FLOAT = auto()
    DOUBLE = auto()
    DECIMAL = auto()
    TEXT = auto()


_SPELLINGS = TypeMap(
    "values for MySQL",
    each(BINARY_KINDS, _Spelling.HEX),
    each(INTEGER_KINDS, _Spelling.INTEGER),
    each(CHARACTER_KINDS | {TypeKind.ENUM, TypeKind.SET, TypeKind.JSON, TypeKind.VECTOR}, _Spelling.TEXT),
    each({TypeKind.DATE, TypeKind.TIME, TypeKind.DATETIME, TypeKind.TIMESTAMP}, _Spelling.TEXT),
    {
        TypeKind.BIT: _Spelling.BIT,
        TypeKind.YEAR: _Spelling.YEAR,
        TypeKind.FLOAT: _Spelling.FLOAT,
        TypeKind.DOUBLE: _Spelling.DOUBLE,
        TypeKind.DECIMAL: _Spelling.DECIMAL,
    },
)
_ESCAPED = frozenset({_Spelling.TEXT, _Spelling.DECIMAL})
_NUMBERS = frozenset({_Spelling.INTEGER, _Spelling.BIT, _Spelling.YEAR})


@lru_cache(maxsize=64)
def _scalar(text: str) -> pa.Scalar:
    # Not at import: pa.scalar loads pandas, which a run without new data does not need.
    return pa.scalar(text, pa.large_string())


def quote_name(name: str) -> str:
    """A name between backquotes."""
    return "`" + name.replace("`", "``") + "`"


def quote_text(text: str) -> str:
    """A text as a string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def unquoted_name(text: str) -> str:
    """The name written in a statement, with or without backquotes."""
    return text[1:-1].replace("``", "`") if text.startswith("`") else text


def load_assignments(columns: Sequence[Column]) -> tuple[str, str]:
    """The column list and the SET clause (may be empty) that belong to :func:`load_text` of these columns."""
    names: list[str] = []
    assignments: list[str] = []
    for number, column in enumerate(columns):
        spelling = _SPELLINGS[column.type.kind]
        if spelling is _Spelling.HEX:
            names.append(f"@v{number}")
            assignments.append(f"{quote_name(column.name)} = UNHEX(@v{number})")
        elif spelling is _Spelling.BIT:
            names.append(f"@v{number}")
            assignments.append(f"{quote_name(column.name)} = CAST(@v{number} AS UNSIGNED)")
        else:
            names.append(quote_name(column.name))
    return ", ".join(names), f" SET {', '.join(assignments)}" if assignments else ""


def load_text(rows: pa.Table, columns: Sequence[Column]) -> list[pa.Buffer]:
    r"""The rows in LOAD DATA's default format: tab, newline, backslash, ``\N`` for NULL. ``columns`` are those of ``rows``."""
    fields = [pc.fill_null(_load_field(_whole(rows, i), column), "\\N") for i, column in enumerate(columns)]
    fields[-1] = pc.binary_join_element_wise(fields[-1], _scalar("\n"), _scalar(""))
    lines = pc.binary_join_element_wise(*fields, _scalar("\t")) if len(fields) > 1 else fields[0]
    return [_content(lines)]


def _load_field(values: pa.Array, column: Column) -> pa.Array:
    spelling = _SPELLINGS[column.type.kind]
    if spelling is _Spelling.HEX:
        return _hex(values)
    text = _text(values)
    if spelling is _Spelling.YEAR:  # as text, 0 would be the year 2000
        return pc.utf8_lpad(text, 4, "0")
    if spelling is _Spelling.FLOAT:  # the shortest text of the largest FLOAT is slightly greater, and servers refuse it
        return pc.replace_substring(text, "3.4028235e+38", "3.4028234e+38")
    return _escaped(text, _LOAD_ESCAPES) if spelling in _ESCAPED else text


def row_literals(rows: pa.Table, columns: Sequence[Column]) -> pa.Array:
    """Each row as ``(literal, literal)`` followed by a comma, so that :func:`batches` can cut the text between any rows."""
    parts: list[pa.Array | pa.Scalar] = [pa.scalar("(", pa.large_string())]
    for i, column in enumerate(columns):
        if i:
            parts.append(_scalar(","))
        parts.append(literals(rows, i, column))
    parts.append(pa.scalar("),", pa.large_string()))
    return pc.binary_join_element_wise(*parts, _scalar(""))


def row_conditions(rows: pa.Table, columns: Sequence[Column]) -> pa.Array:
    """Each row as `` OR (`a` = literal AND `b` = literal) ``, for :func:`batches`.

    On MariaDB, ``(a, b) IN (…)`` finds no non-ASCII text in a column with a character set other than the connection's, such as gbk.
    """
    parts: list[pa.Array | pa.Scalar] = []
    for i, column in enumerate(columns):
        before = f"{' AND ' if i else ' OR ('}{quote_name(column.name)} = "
        parts += [_scalar(before), literals(rows, i, column)]
    return pc.binary_join_element_wise(*parts, _scalar(") "), _scalar(""))


def is_ascii(rows: pa.Table) -> bool:
    """Whether all texts of the rows are ASCII."""
    texts = (c for c in rows.columns if pa.types.is_string(c.type) or pa.types.is_large_string(c.type))
    return all(pc.all(pc.string_is_ascii(text), min_count=0).as_py() for text in texts)


def literals(rows: pa.Table, number: int, column: Column) -> pa.Array:
    """The values of one column of the rows, as SQL."""
    return pc.fill_null(_literal(_whole(rows, number), column), "NULL")


def _literal(values: pa.Array, column: Column) -> pa.Array:
    spelling = _SPELLINGS[column.type.kind]
    if spelling is _Spelling.HEX:
        return _wrapped("x'", _hex(values), "'")
    if spelling is _Spelling.FLOAT:  # compared as a double, so it has to be written as one
        values = values.cast(pa.float64())
    text = _text(values)
    if spelling in _NUMBERS:
        return text
    if spelling is _Spelling.DECIMAL and pc.all(pc.match_substring_regex(text, _PLAIN_NUMBER), min_count=0).as_py():
        return text  # compared as text, a DECIMAL would lose its digits beyond a double's
    if spelling in _ESCAPED:
        text = _escaped(text, _LITERAL_ESCAPES)
    return _wrapped("'", text, "'")  # floats too: -0 without quotes is the integer 0


def batches(literals: pa.Array, max_rows: int, max_bytes: int) -> Iterator[tuple[int, int, bytes]]:
    """Divides :func:`row_literals` into ``(first row, rows, text)``. A row larger than ``max_bytes`` is alone."""
    offsets = np.frombuffer(literals.buffers()[1], dtype=np.int64)[literals.offset : literals.offset + len(literals) + 1]
    data = memoryview(literals.buffers()[2]) if len(literals) else memoryview(b"")
    start = 0
    while start < len(literals):
        fitting = int(np.searchsorted(offsets, offsets[start] + max_bytes, side="right")) - 1
        end = min(max(fitting, start + 1), start + max_rows, len(literals))
        yield start, end - start, bytes(data[offsets[start] : offsets[end] - 1])
        start = end


def _whole(rows: pa.Table, number: int) -> pa.Array:
    column = rows.column(number)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def _text(values: pa.Array) -> pa.Array:
    return values.cast(pa.large_string())


def _wrapped(before: str, values: pa.Array, after: str) -> pa.Array:
    return pc.binary_join_element_wise(_scalar(before), values, _scalar(after), _scalar(""))


def _escaped(text: pa.Array, escapes: Sequence[tuple[str, str]]) -> pa.Array:
    content = memoryview(_content(text)).tobytes()  # searching the bytes is far cheaper than a replacement without a match
    for sign, escape in escapes:
        if sign.encode() in content:
            text = pc.replace_substring(text, sign, escape)
    return text


def _content(text: pa.Array) -> pa.Buffer:
    """The bytes of all values, concatenated."""
    offsets, data = text.buffers()[1:]
    if len(text) == 0 or data is None:
        return pa.py_buffer(b"")
    bounds = np.frombuffer(offsets, dtype=np.int64)
    start, end = int(bounds[text.offset]), int(bounds[text.offset + len(text)])
    return data.slice(start, end - start)


def _hex(values: pa.Array) -> pa.Array:
    """Binary values as lower-case hex, by one table look-up over all bytes and doubled offsets."""
    values = values.cast(pa.large_binary())
    content = np.frombuffer(_content(values), dtype=np.uint8)
    offsets = np.frombuffer(values.buffers()[1], dtype=np.int64)[values.offset : values.offset + len(values) + 1]
    doubled = (offsets - offsets[:1]) * 2
    nulls = pa.py_buffer(np.packbits(np.asarray(values.is_valid()), bitorder="little")) if values.null_count else None
    return pa.Array.from_buffers(
        pa.large_string(), len(values), [nulls, pa.py_buffer(doubled), pa.py_buffer(_HEX_PAIRS[content])], values.null_count
    )
