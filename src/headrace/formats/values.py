"""Converts text of the wire formats to canonical Arrow values (``model.types.arrow_type``), a column at a time.

Every conversion raises ``pa.ArrowInvalid`` (which is a ``ValueError``) or ``ValueError`` if a value is invalid;
:func:`bad_places` then finds out which one.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.types import (
    BINARY_KINDS,
    CHARACTER_KINDS,
    INTEGER_KINDS,
    ColumnType,
    TypeKind,
    TypeMap,
    arrow_type,
    each,
)

UTC_NAMES = frozenset({"UTC", "Etc/UTC", "Z", "+00:00", "GMT"})
_SECONDS_WIDTH = len("2024-06-05 09:30:23")
_FIXED_OFFSET = re.compile("[+-][0-9]{2}:[0-5][0-9]")


def check_time_zone(name: str) -> None:
    """Raises ValueError unless ``name`` is an IANA zone or an offset such as ``+08:00``."""
    if _FIXED_OFFSET.fullmatch(name):
        return
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"{name!r} is no time zone; write an IANA name such as Asia/Shanghai, or an offset such as +08:00"
        ) from None


@cache
def repeats_an_hour(time_zone: str) -> bool:
    """Whether clocks of the zone were set back since 2000 or will be, so that one local time may mean two moments."""
    if time_zone in UTC_NAMES or time_zone[:1] in ("+", "-"):
        return False
    zone = ZoneInfo(time_zone)
    return len({datetime(year, month, 1, tzinfo=zone).utcoffset() for year in range(2000, 2038) for month in range(1, 13)}) > 1


class Written(StrEnum):
    """What the text of a value contains, in every format."""

    NUMBER = "number"
    MOMENT = "moment"
    """A time in the changefeed's time zone."""
    CODE = "code"
    """Bytes, in an encoding of the format's own."""
    MEMBER = "member"
    """Members of an ENUM or SET. Some formats write their places instead."""
    TEXT = "text"
    """MySQL's own text."""


WRITTEN = TypeMap(
    "what formats write",
    each(INTEGER_KINDS | {TypeKind.YEAR, TypeKind.BIT, TypeKind.FLOAT, TypeKind.DOUBLE}, Written.NUMBER),
    each(CHARACTER_KINDS | {TypeKind.DECIMAL, TypeKind.JSON, TypeKind.VECTOR}, Written.TEXT),
    each({TypeKind.DATE, TypeKind.TIME, TypeKind.DATETIME}, Written.TEXT),
    each({TypeKind.ENUM, TypeKind.SET}, Written.MEMBER),
    each(BINARY_KINDS, Written.CODE),
    {TypeKind.TIMESTAMP: Written.MOMENT},
)


def canonical_from_text(texts: pa.Array, column_type: ColumnType, time_zone: str) -> pa.Array:
    """Strings to the canonical type; TIMESTAMP from ``time_zone`` to UTC. Not for the BINARY family, whose text is encoded."""
    written = WRITTEN[column_type.kind]
    if written is Written.CODE:
        raise ValueError(f"the text of a {column_type} is coded")
    if written is Written.NUMBER:
        return pc.cast(texts, arrow_type(column_type))
    return timestamps_to_utc(texts, time_zone) if written is Written.MOMENT else texts


def timestamps_to_utc(texts: pa.Array, time_zone: str) -> pa.Array:
    """TIMESTAMP text of a zone as text in UTC. Fraction digits and zero timestamps stay as they are.

    A time that is ambiguous at the end of summer time is taken as the earlier moment, because the text does not show which it was.
    """
    if time_zone in UTC_NAMES or len(texts) == texts.null_count:
        return texts
    zero = pc.starts_with(texts, "0000-00-00")
    seconds = pc.utf8_slice_codeunits(texts, 0, _SECONDS_WIDTH)
    local = pc.cast(pc.if_else(zero, pa.scalar(None, pa.string()), seconds), pa.timestamp("s"))
    absolute = pc.assume_timezone(local, time_zone, ambiguous="earliest", nonexistent="latest")
    utc = pc.cast(pc.cast(pc.cast(absolute, pa.int64()), pa.timestamp("s")), pa.string())
    shifted = pc.binary_join_element_wise(utc, pc.utf8_slice_codeunits(texts, _SECONDS_WIDTH), "")
    return pc.if_else(zero, texts, shifted)


def binary_from_base64(values: pa.Array) -> pa.Array:
    """Standard base64 with padding, as TiCDC's CSV writes it, to binary."""
    decode = binascii.a2b_base64
    return pa.array([None if v is None else decode(v, strict_mode=True) for v in values.to_pylist()], pa.binary())


def binary_from_hex(values: pa.Array) -> pa.Array:
    """Hexadecimal digits to binary."""
    decode = binascii.unhexlify
    return pa.array([None if v is None else decode(v) for v in values.to_pylist()], pa.binary())


def binary_from_latin1(texts: pa.Array) -> pa.Array:
    """Strings in which each character stands for one byte (ISO-8859-1), as canal-JSON writes them, to binary.

    Works on the UTF-8 bytes: U+0080 to U+00FF are ``C2 xx`` and ``C3 xx``, so the lead bytes are dropped and the byte after
    ``C3`` gets bit 6. Raises ValueError for a character above U+00FF.
    """
    valid = pc.is_valid(texts) if texts.null_count else None
    if texts.null_count:
        texts = pc.fill_null(texts, "")
    if pc.all(pc.string_is_ascii(texts)).as_py() is not False:
        return _with_nulls(pc.cast(texts, pa.binary()), valid)
    offsets = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, texts.offset * 4)
    data = np.frombuffer(texts.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    if data.max(initial=0) > 0xC3:
        raise ValueError("a character above U+00FF is no byte")
    lead = data >= 0xC2
    follows_c3 = np.zeros(len(data), np.uint8)
    follows_c3[1:] = (data[:-1] == 0xC3) << np.uint8(6)
    dropped = np.zeros(len(data) + 1, np.int32)
    np.cumsum(lead, out=dropped[1:])
    starts = offsets - offsets[0]
    kept = (data | follows_c3)[~lead]
    buffers = [None, pa.py_buffer((starts - dropped[starts]).astype(np.int32)), pa.py_buffer(kept)]
    return _with_nulls(pa.Array.from_buffers(pa.binary(), len(texts), buffers), valid)


def _with_nulls(values: pa.Array, valid: pa.Array | None) -> pa.Array:
    return values if valid is None else pc.if_else(valid, values, pa.scalar(None, values.type))


class UnknownMembersError(ValueError):
    """A value of an ENUM or SET may be the place of a member, and the members are unknown. ``value`` is the first such value."""

    def __init__(self, value: str) -> None:
        super().__init__("the members of the type are not known")
        self.value = value


class NoRoomError(Exception):
    """The members of an ENUM or SET that the values stand for have more bytes in total than allowed."""


def members_from_numbers(texts: pa.Array, column_type: ColumnType, most: int) -> pa.Array:
    """ENUM indexes (from 1; 0 is the empty string) or SET bit masks to member text, as canal-JSON needs it.

    Text that is not a number stays unchanged. Raises ValueError for an index or a bit without a member, UnknownMembersError for a
    number if the members are unknown, and NoRoomError if all values together have more than ``most`` bytes.
    """
    distinct = texts.dictionary_encode()
    counts = np.bincount(distinct.indices.drop_null().to_numpy(), minlength=len(distinct.dictionary))
    named: list[bytes | None] = []
    for text, count in zip(distinct.dictionary.to_pylist(), counts.tolist(), strict=True):
        # Each value is counted before the next one is created: a mask of a few digits can name many long members.
        name = _member(text, column_type)
        named.append(None if name is None else name.encode())
        most -= count * len(named[-1] or b"")
        if most < 0:
            raise NoRoomError
    return pa.array(named, pa.string()).take(distinct.indices)


def _member(text: str | None, column_type: ColumnType) -> str | None:
    if text is None or not (text.isascii() and text.isdigit()):
        return text
    return member_of_number(int(text), column_type)


def member_of_number(number: int, column_type: ColumnType) -> str:
    """The member of an ENUM at a place from 1 (0 is the empty string), or the members of a SET whose bits are set.

    Raises ValueError for a place or bit without a member, and UnknownMembersError if the members are unknown.
    """
    members = column_type.elements
    if not members:
        raise UnknownMembersError(str(number))
    if column_type.kind is TypeKind.ENUM:
        if number > len(members):
            raise ValueError(f"the type has {len(members)} members")
        return members[number - 1] if number else ""
    if number >> len(members):
        raise ValueError(f"the type has {len(members)} members")
    return ",".join(member for bit, member in enumerate(members) if number >> bit & 1)


def numbers_from_members(texts: pa.Array, column_type: ColumnType) -> pa.Array:
    """Members of an ENUM or SET to their numbers as text, the reverse of :func:`members_from_numbers`.

    For formats that write members: a member may itself be a number. Raises ValueError for a text that is no member, and
    UnknownMembersError if the members are unknown.
    """
    distinct = texts.dictionary_encode()
    numbers = [None if text is None else str(_number_of(text, column_type)) for text in distinct.dictionary.to_pylist()]
    return pa.array(numbers, pa.string()).take(distinct.indices)


def _number_of(text: str, column_type: ColumnType) -> int:
    members = column_type.elements
    if not members:
        raise UnknownMembersError(text)
    if column_type.kind is TypeKind.ENUM:
        return members.index(text) + 1 if text in members or text else 0
    return sum({1 << members.index(member) for member in text.split(",")}) if text in members or text else 0


def bad_places(convert: Callable[[int, int], object], length: int, most: int = 1) -> list[int]:
    """The smallest indexes for which ``convert(start, stop)`` fails, at most ``most``; empty if it does not fail.

    The range is halved repeatedly, so each index costs about two conversions of the range. A conversion must treat each value by
    itself.
    """
    found: list[int] = []

    def look(start: int, stop: int) -> None:
        if len(found) >= most or not _fails(convert, start, stop):
            return
        if stop - start == 1:
            found.append(start)
            return
        middle = (start + stop) // 2
        look(start, middle)
        look(middle, stop)

    if length:
        look(0, length)
    return found


def _fails(convert: Callable[[int, int], object], start: int, stop: int) -> bool:
    try:
        convert(start, stop)
    except ValueError:
        return True
    return False
