"""JSON strings as Go programs write them, a column at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.byte_escapes import ByteEscapes, bytes_of

CONTROLS = {byte: f"\\u{byte:04x}".encode() for byte in range(0x20)}
SHORT = {ord("\t"): b"\\t", ord("\n"): b"\\n", ord("\r"): b"\\r", ord('"'): b'\\"', ord("\\"): b"\\\\"}
"""Go has short forms for three control characters only."""
OF_HTML = {ord(mark): f"\\u{ord(mark):04x}".encode() for mark in "<>&"}
_SEPARATORS = {"\N{LINE SEPARATOR}": "\\u2028", "\N{PARAGRAPH SEPARATOR}": "\\u2029"}
_LEAD_OF_SEPARATORS = 0xE2


class JsonTexts:
    """Writes strings. ``html``: escapes ``<``, ``>`` and ``&`` too, as Go does unless told otherwise."""

    def __init__(self, *, html: bool) -> None:
        self._escapes = ByteEscapes(CONTROLS | SHORT | (OF_HTML if html else {}))

    def escaped(self, texts: pa.Array) -> pa.Array:
        """The texts as they stand between quotes, as string or large_string; nulls stay nulls."""
        written = self._escapes.applied(texts)
        if (bytes_of(written)[1] == np.uint8(_LEAD_OF_SEPARATORS)).any():
            for separator, escape in _SEPARATORS.items():
                written = pc.replace_substring(written, separator, escape)
        return written

    def quoted(self, text: str) -> str:
        """One text with its quotes."""
        return f'"{self.escaped(pa.array([text], pa.string()))[0].as_py()}"'
