"""Reads lines of JSON objects as columns with Arrow's reader, and single ones with Python's, both with bounds."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.json

from headrace.formats.base import MOST_RECORD_BYTES
from headrace.model.writable_text import is_unicode

BLANK = b" \t\r\n"
NO_OBJECT = "it is not one JSON object."
MOST_VALUES = 1_000_000
"""The most values in a JSON text; parsed, each takes up to 500 bytes. A table has 4,096 columns at most, with ten values each."""
TOO_MANY_VALUES = f"it has more than {MOST_VALUES:,} JSON values, and no message is like that."
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""Takes time in proportion also for one without an end."""
LONGEST_NUMBER = 40
"""The most digits of a number. Python needs long for thousands of digits, or refuses them, and no field has them."""

_SEARCHED = 1 << 17
"""The bytes that are searched at a time. Their masks stay in the cache of the processor."""
_COLON, _N, _QUOTE, _BACKSLASH = b':n"\\'


def read_lines(lines: Sequence[bytes], schema: pa.Schema, *, unexpected: str) -> pa.RecordBatch:
    """A row for each of the lines. ``unexpected`` says what is done with members that ``schema`` lacks: ``ignore`` or ``error``.

    Raises ValueError if a line is not exactly one object that fits the schema, or if the lines must be read one by one.
    """
    size = sum(map(len, lines)) + len(lines)
    # A bare null at the beginning crashes Arrow's reader and the process.
    if not lines or size > MOST_RECORD_BYTES:
        raise ValueError("there are no lines, or too many")
    block = b"\n".join([*lines, b""])
    if block.count(b"\n") != len(lines) or b"\r" in block:
        raise ValueError("a line has line breaks")
    if not (block.startswith(b"{") and block.endswith(b"}\n") and block.count(b"}\n{") == len(lines) - 1):
        raise ValueError("a line is not an object")
    table = read_block(block, schema, unexpected=unexpected)
    if table.num_rows != len(lines):
        raise ValueError("a line has several objects")
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in table.columns], schema=table.schema)


def read_block(block: bytes, schema: pa.Schema, *, unexpected: str) -> pa.Table:
    """The objects in a text that begins with one; see :func:`read_lines`. Raises ValueError."""
    # Arrow's reader accepts bytes that are not UTF-8. Checking them as one string of an array is fast.
    offsets = pa.array([0, len(block)], pa.int64()).buffers()[1]
    pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(block)]).validate(full=True)
    return pyarrow.json.read_json(
        pa.BufferReader(block),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
        parse_options=pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
    )


def null_members(text: bytes, names: Iterable[str]) -> int:
    """How many members are null in lines of JSON without blanks between their parts, at any depth.

    Strings that contain JSON do not count: their quotes are escaped, or begin the string. ``names`` are those of members. Raises
    ValueError if one ends as such a string begins, or begins as a null looks.
    """
    if any(name.endswith(("\\", ":")) or name.startswith(":n") for name in names):
        raise ValueError("nulls cannot be counted")
    found, data = 0, np.frombuffer(text, np.uint8)
    for start in range(0, len(data), _SEARCHED):
        part = data[start : start + _SEARCHED + 3]
        before, quote, colon, value = part[:-3], part[1:-2], part[2:-1], part[3:]
        is_null = (colon == _COLON) & (value == _N) & (quote == _QUOTE) & (before != _COLON) & (before != _BACKSLASH)
        found += int(np.count_nonzero(is_null))
    return found


def null_columns(text: bytes, columns: Iterable[str], others: Collection[str]) -> int:
    """How many columns of rows are null in lines as :func:`null_members` takes them, whose members are ``columns`` and ``others``.

    Never more than there are. Raises ValueError if it cannot be seen of which kind a null is.
    """
    names = frozenset(columns)
    found = null_members(text, names)
    for other in others if found else ():
        nulls = text.count(f'"{other}":null'.encode())
        if nulls and other in names:
            raise ValueError("nulls cannot be counted")
        found -= nulls
    return found


def require_few_values(text: bytes) -> None:
    """Raises ValueError, the end of a sentence, for JSON with more than :data:`MOST_VALUES` values, before it is parsed."""
    if len(text) < MOST_VALUES:  # each value takes a byte
        return
    outside = _STRING.sub(b"", text)
    if sum(map(outside.count, (b"{", b"[", b","))) > MOST_VALUES:
        raise ValueError(TOO_MANY_VALUES)


class Members(dict[str, object]):
    """The members of a JSON object. Of a name that occurs several times the last one counts, as in Go."""

    def __init__(self, pairs: Sequence[tuple[str, object]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs
        """All members in their order, with repeated ones."""


def read_object(value: bytes) -> Members:
    """One JSON object. Numbers of more than :data:`LONGEST_NUMBER` digits are texts. Raises ValueError, the end of a sentence."""
    found = decoded(value, _decoder)
    if not isinstance(found, Members):
        raise ValueError(NO_OBJECT)
    return found


def decoded(value: bytes, decoder: json.JSONDecoder) -> object:
    """One JSON value. Raises ValueError, the end of a sentence."""
    if len(value) > MOST_RECORD_BYTES:
        raise ValueError(f"it has {len(value)} bytes, and no message is that large.")
    require_few_values(value)
    try:
        return decoder.decode(value.decode("utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply.") from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8.") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not one JSON object: {error.msg} at character {error.pos + 1}.") from None


def text_of(members: dict[str, object], name: str) -> str | None:
    """A member that is a text, and Unicode; ``None`` for anything else."""
    value = members.get(name)
    return value if isinstance(value, str) and is_unicode(value) else None


def integer_of(value: object, least: int, most: int) -> int | None:
    """A whole number within bounds, ``None`` for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most else None


def bounded_integer(text: str) -> int | str:
    """The number; the text of one with more than :data:`LONGEST_NUMBER` digits."""
    return int(text) if len(text) <= LONGEST_NUMBER else text


def _constant(text: str) -> object:
    raise json.JSONDecodeError(f"{text} is not a JSON value", text, 0)


_decoder = json.JSONDecoder(object_pairs_hook=Members, parse_int=bounded_integer, parse_constant=_constant)
