"""Writes Avro's binary encoding, for tests. It shares no code with the reader."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any


def long(number: int) -> bytes:
    number = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def written(told: Any, value: Any, sized: bool = False) -> bytes:
    """A value in Avro's binary encoding; the blocks of arrays and maps with their sizes, if wanted."""
    if isinstance(told, list):
        names = [of if isinstance(of, str) else of["type"] for of in told]
        kinds = {type(None): ("null",), int: ("int", "long"), str: ("string",), dict: ("record", "w"), bytes: ("bytes",)}[
            type(value)
        ]
        place = next(n for n, name in enumerate(names) if name in kinds)
        return long(place) + written(told[place], value, sized)
    if isinstance(told, dict):
        return _COMPLEX[told["type"]](told, value, sized) if told["type"] in _COMPLEX else written(told["type"], value, sized)
    return _SIMPLE[told](value)


def counted(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return long(len(raw)) + raw


_SIMPLE: dict[str, Callable[[Any], bytes]] = {
    "null": lambda _: b"",
    "boolean": lambda value: bytes([value]),
    "int": long,
    "long": long,
    "float": lambda value: struct.pack("<f", value),
    "double": lambda value: struct.pack("<d", value),
    "bytes": counted,
    "string": counted,
    "w": lambda value: long(value["value"]),
}
_COMPLEX: dict[str, Callable[[Any, Any, bool], bytes]] = {
    "record": lambda told, value, sized: b"".join(written(f["type"], value[f["name"]], sized) for f in told["fields"]),
    "enum": lambda told, value, _: long(told["symbols"].index(value)),
    "fixed": lambda _told, value, _: bytes(value),
    "array": lambda told, value, sized: blocks([written(told["items"], item, sized) for item in value], sized),
    "map": lambda told, value, sized: blocks([counted(k) + written(told["values"], v, sized) for k, v in value.items()], sized),
}


def blocks(items: list[bytes], sized: bool) -> bytes:
    """The items in blocks of two."""
    out = b""
    for start in range(0, len(items), 2):
        block = b"".join(items[start : start + 2])
        count = len(items[start : start + 2])
        out += (long(-count) + long(len(block)) if sized else long(count)) + block
    return out + long(0)
