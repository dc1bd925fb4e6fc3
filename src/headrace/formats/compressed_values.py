"""Values of Kafka messages that TiCDC itself compressed (``large-message-handle-compression``), not Kafka's own compression.

``lz4`` is a frame, ``snappy`` a raw block. The bytes show which it is: messages begin with ``{`` or, in Avro, with the place of a
record in their schema. A frame has a magic number. A block has its length, then a literal with the beginning of the message;
read as a message, it would be neither JSON nor Avro.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

COMPRESSIONS = ("none", "lz4", "snappy")
"""The values of TiCDC's ``large-message-handle-compression``."""
MOST_BYTES = 64 << 20
"""The most bytes of a value before it was compressed.

TiDB's rows have at most 6 MiB unless ``txn-entry-size-limit`` is set. A message has the row twice at most, and base64 or escapes
make it a few times as long. A value is several times as large once it is read, and a few hundred KB may be compressed ones.
"""
_SNAPPY_TIMES = 22
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_AVRO = b"\x16"
_BEGINNINGS = (b'{"', b"{}", _AVRO)
_PLAIN_BEGINNINGS = b'{"'
_LENGTH = b"\x00"
"""The Open Protocol's messages begin with the length of their first event; each event may be compressed."""
_LIKELY_LZ4_TIMES = 16
_LONGEST_LENGTH = 5
_LONGEST_HEADER = 16
_SHORT_LITERAL = 60
_PART = 1 << 20
_snappy = pa.Codec("snappy")


def uncompressed(value: bytes) -> bytes:
    """The value before it was compressed, or the value itself. Raises ValueError, the end of a sentence, for a damaged one.

    Not more than :data:`MOST_BYTES` are read from a value, and no more than its length allows is allocated.
    """
    if value.startswith(b'{"'):
        return value
    if value.startswith(_LZ4_MAGIC):
        return _of_frame(value)
    length = _length_of_block(value)
    return value if length is None else _of_block(value, length)


def likely_bytes(value: bytes) -> int:
    """How many bytes a value has before it was compressed: exactly for Snappy, an estimate for LZ4, whose limit is 255."""
    if value.startswith(_PLAIN_BEGINNINGS):
        return len(value)
    if value.startswith(_LZ4_MAGIC) or (value.startswith(_LENGTH) and _LZ4_MAGIC in value):
        return _LIKELY_LZ4_TIMES * len(value)
    return _length_of_block(value) or len(value)


def uncompressed_all(values: Sequence[bytes]) -> tuple[list[bytes], dict[int, str]]:
    """All values before they were compressed, and by its number why one is damaged; it is empty then."""
    found, reasons = list(values), {}
    for number, value in enumerate(values):
        try:
            found[number] = uncompressed(value)
        except ValueError as error:
            found[number], reasons[number] = b"", str(error)
    return found, reasons


def _of_frame(value: bytes) -> bytes:
    parts, size = [], 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(value), "lz4") as stream:
            while part := stream.read(_PART):
                size += len(part)
                if size > MOST_BYTES:
                    raise ValueError(_too_long("lz4"))
                parts.append(part)
    except (OSError, pa.ArrowException):
        raise ValueError("it is compressed with lz4, and damaged.") from None
    return b"".join(parts)


def _length_of_block(value: bytes) -> int | None:
    """The length of the content of a Snappy block; ``None`` if the value is not a block with a message."""
    length = at = 0
    for at, byte in enumerate(value[:_LONGEST_LENGTH]):
        length |= (byte & 0x7F) << (7 * at)
        if byte < 1 << 7:
            break
    else:
        return None
    tag = value[at + 1 : at + 2]
    if not tag or tag[0] & 3 or not tag[0]:  # not a literal, or one of a single byte
        return None
    of_length = max(0, (tag[0] >> 2) - _SHORT_LITERAL + 1)
    content = value[at + 2 + of_length : at + _LONGEST_HEADER]
    if not length or not content.startswith(_BEGINNINGS) or (value.startswith(_AVRO) and content.startswith(_AVRO)):
        return None
    return length


def _of_block(value: bytes, length: int) -> bytes:
    if length > _SNAPPY_TIMES * len(value):
        raise ValueError(f"it is compressed with snappy and would have {length} bytes, which is not possible.")
    if length > MOST_BYTES:
        raise ValueError(_too_long("snappy"))
    try:
        return bytes(_snappy.decompress(value, length, asbytes=True))
    except (OSError, pa.ArrowException):
        raise ValueError("it is compressed with snappy, and damaged.") from None


def _too_long(compression: str) -> str:
    return f"it is compressed with {compression}, and has more than {MOST_BYTES >> 20} MiB when it is decompressed."
