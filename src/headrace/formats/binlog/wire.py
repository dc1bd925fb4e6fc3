"""Protobuf's wire format, as far as it is needed beside the protobuf library: the fields of a message, one level at a time.

The rules are those of protobuf's documentation, "Encoding". Groups do not occur in binlog messages and are errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.formats.binlog.errors import MalformedBinlogError, MissingFieldError, TruncatedBinlogError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10
_FIXED = {FIXED64: 8, FIXED32: 4}
_MOST_FIELD_NUMBER = (1 << 29) - 1
_COMMIT_TS = 2
# The fields that are messages, by the path of field numbers that leads to the message that has them.
_NESTED: Mapping[tuple[int, ...], frozenset[int]] = {
    (): frozenset({3, 4}),
    (3,): frozenset({1}),
    (3, 1): frozenset({3, 4, 5}),
    (3, 1, 4): frozenset({2, 3}),
    (3, 1, 4, 2): frozenset({1}),
    (3, 1, 4, 3): frozenset({1}),
}


def varint(data: bytes | memoryview, at: int, end: int) -> tuple[int, int]:
    """An unsigned number of at most 64 bits, and the position after it. Raises MalformedBinlogError."""
    number = shift = 0
    for position in range(at, min(end, at + _LONGEST_VARINT)):
        byte = data[position]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFF_FFFF_FFFF_FFFF, position + 1
        shift += 7
    if end - at < _LONGEST_VARINT:
        raise TruncatedBinlogError(f"The message ends within a number, at byte {end}.")
    raise MalformedBinlogError(f"The number at byte {at} has more than {_LONGEST_VARINT} bytes.")


def signed(number: int) -> int:
    """The number as a signed one of 64 bits."""
    return number - (1 << 64) if number >> 63 else number


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of a message in ``data[at:end]``: number, wire type, start and end of the value.

    For a field of the wire type BYTES that is the content without its length. Raises MalformedBinlogError.
    """
    while at < end:
        tag, start = varint(data, at, end)
        number, wire_type = tag >> 3, tag & 7
        if not 0 < number <= _MOST_FIELD_NUMBER:
            raise MalformedBinlogError(f"The field at byte {at} has the number {number}, which no field has.")
        if wire_type == VARINT:
            _, stop = varint(data, start, end)
        elif wire_type == BYTES:
            length, start = varint(data, start, end)
            stop = start + length
        elif wire_type in _FIXED:
            stop = start + _FIXED[wire_type]
        else:
            raise MalformedBinlogError(f"The field at byte {at} has the wire type {wire_type}, which these messages do not use.")
        if stop > end:
            raise TruncatedBinlogError(
                f"The field at byte {at} needs the bytes up to {stop}, and what contains it ends at byte {end}."
            )
        yield number, wire_type, start, stop
        at = stop


def require_sound(data: bytes) -> None:
    """Raises MalformedBinlogError for the first position at which the bytes do not follow the wire format."""
    _require_sound(data, 0, len(data), ())


def _require_sound(data: bytes, at: int, end: int, path: tuple[int, ...]) -> None:
    nested = _NESTED.get(path, frozenset())
    for number, wire_type, start, stop in fields(data, at, end):
        if number in nested and wire_type == BYTES:
            _require_sound(data, start, stop, (*path, number))


def peek_commit_ts(data: bytes) -> int:
    """The commit ts (TSO) of a message, without reading its rows. Raises MalformedBinlogError, MissingFieldError.

    Only the outermost fields are looked at, so a message for which this works may still be damaged further inside. A message that
    has the field twice has the last value, as protobuf demands.
    """
    commit_ts = None
    for number, wire_type, start, stop in fields(data, 0, len(data)):
        if number == _COMMIT_TS and wire_type == VARINT:
            commit_ts = signed(varint(data, start, stop)[0])
    if commit_ts is None:
        raise MissingFieldError("The message has no commit_ts.")
    return commit_ts
