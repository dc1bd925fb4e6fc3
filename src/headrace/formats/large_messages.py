"""Messages of rows that were too large for Kafka (TiCDC's ``large-message-handle``), in every protocol that has them.

Such a message has only the columns of the handle key. With ``claim-check``, it names a file in a storage of the changefeed, which
holds the complete message. With ``handle-key-only``, the row has to be read from the upstream at the message's commit ts.

Source: TiCDC documentation, "Replicate Data to Kafka", section "Handle messages that exceed the Kafka topic limit".
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Self

from headrace.formats.json_lines import Members, read_object
from headrace.model.table import folded_name

_FILE = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,254}")
_PARTS = 3
_ENVELOPE = b'{"key":'
MARK = b"\0"
"""The first byte of a large message's value as records of a stream have it. No message of :data:`PROTOCOLS` begins with it."""
PROTOCOLS = frozenset({"canal-json", "open-protocol", "simple"})
"""The protocols that have large messages, by TiCDC's names."""


@dataclass(frozen=True)
class LargeMessage:
    """Where the row of a large message is."""

    file: str = ""
    """The name of its file in the claim-check storage; empty if the message has only the handle key."""

    @classmethod
    def of_members(cls, only_handle_key: object, location: object) -> Self | None:
        """What a message says of itself; ``None`` for one that is complete. Raises ValueError, the end of a sentence.

        A location is a URI. Only its last part counts: messages cannot say where Headrace reads.
        """
        if not location:
            return cls() if only_handle_key else None
        name = location.rpartition("/")[2] if isinstance(location, str) else ""
        if not _FILE.fullmatch(name):
            raise ValueError(f"its claim-check location {str(location)[:80]!r} does not end with the name of a file.")
        return cls(name)

    def to_value(self, message: bytes) -> bytes:
        """The value of a record of ``message``, which has the handle key; see :meth:`of_value`."""
        return MARK + self.file.encode() + MARK + message

    @classmethod
    def of_value(cls, value: bytes) -> tuple[Self, bytes]:
        """The inverse of :meth:`to_value`. Raises ValueError, the end of a sentence, for any other value."""
        parts = value.split(MARK, 2)
        file = parts[1].decode("ascii", "replace") if len(parts) == _PARTS else "?"
        if parts[0] or (file and not _FILE.fullmatch(file)):
            raise ValueError("it is not written as TiCDC writes messages.")
        return cls(file), parts[-1]


def message_of_file(content: bytes) -> tuple[bytes, bytes]:
    """Key and value of the message in a file of the claim-check storage. Raises ValueError, the end of a sentence.

    A file is ``{"key": base64 or null, "value": base64}``, or only the value (``claim-check-raw-value``).
    """
    if not content.startswith(_ENVELOPE):
        return b"", content
    members = read_object(content)
    try:
        key, value = (base64.b64decode(str(members[name] or ""), validate=True) for name in ("key", "value"))
    except (KeyError, ValueError):
        raise ValueError("its key and value are not base64.") from None
    return key, value


def carried_columns(message: bytes) -> frozenset[str]:
    """The folded names of the columns that a message's row has, maybe none. Raises ValueError, the end of a sentence."""
    found = read_object(message)
    rows = (found.get(side) for side in ("data", "old", "u", "d"))
    for row in rows:
        only = row[0] if isinstance(row, list) and len(row) == 1 else row
        if isinstance(only, Members) and only:
            return frozenset(map(folded_name, only))
    return frozenset()
