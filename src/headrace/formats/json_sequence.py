"""Decodes JSON values that follow one another in a text, none with more than a bounded number of values in it."""

from __future__ import annotations

import json
import re

from headrace.formats.json_lines import MOST_VALUES, TOO_MANY_VALUES

_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{\[,]|[}\]]', re.DOTALL)
_LONGEST_CUT = 16
"""A cut changes what is decoded at most so many characters before it: a literal, an escape, the end of a number."""


class JsonSequence:
    """The values in a text. Only the decoder finds where one ends, so it first gets a part of the text that cannot hold too many.

    A value that is longer than such a part is counted before it is decoded.
    """

    def __init__(self, text: str, decoder: json.JSONDecoder) -> None:
        self._text, self._decoder = text, decoder
        self._begin = 0
        self._part = text[:MOST_VALUES]  # each value takes a character

    def decode(self, position: int) -> tuple[object, int]:
        """The value that begins at ``position``, and its end.

        Raises JSONDecodeError and RecursionError, and ValueError, the end of a sentence, for more than
        :data:`~headrace.formats.json_lines.MOST_VALUES` values in it.
        """
        found = self._in_part(position)
        if found is None and self._begin < position:
            self._begin, self._part = position, self._text[position : position + MOST_VALUES]
            found = self._in_part(position)
        if found is not None:
            return found
        self._require_few(position)
        return self._decoder.raw_decode(self._text, position)

    def _in_part(self, position: int) -> tuple[object, int] | None:
        """The value, if it ends within the part."""
        is_last = self._begin + len(self._part) == len(self._text)
        if position >= self._begin + len(self._part):
            return None
        try:
            value, end = self._decoder.raw_decode(self._part, position - self._begin)
        except json.JSONDecodeError as error:
            is_cut = error.pos >= len(self._part) - _LONGEST_CUT or error.msg.startswith("Unterminated")
            if is_cut and not is_last:
                return None
            return self._decoder.raw_decode(self._text, position)  # fails in the same way, with the place in the text
        return (value, self._begin + end) if end <= len(self._part) - _LONGEST_CUT or is_last else None

    def _require_few(self, position: int) -> None:
        count = depth = 0
        for token in _TOKEN.finditer(self._text, position):
            first = self._text[token.start()]
            count += first in "{[,"
            depth += (first in "{[") - (first in "}]")
            if count > MOST_VALUES:
                raise ValueError(TOO_MANY_VALUES)
            if depth <= 0:
                return
