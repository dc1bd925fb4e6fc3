"""Texts that some collation may hold for equal. Which one a source compares by is not always known."""

from __future__ import annotations

import unicodedata

_SUPPLEMENTARY = "\ufffd"
_IGNORABLE = frozenset({"Mn", "Me", "Mc", "Cc", "Cf"})
# Letters that collations expand or fold though Unicode does not decompose them.
_EXPANSIONS = str.maketrans({"æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "ł": "l", "þ": "th", "ħ": "h", "ı": "i", "ŧ": "t"})


def fold_text(text: str) -> str:
    """Folds case, accents, ignorable characters and trailing spaces, and all supplementary characters into one.

    ``utf8mb4_general_ci`` gives every supplementary character the same weight; the UCA collations ignore control and format
    characters and hold Hiragana and Katakana for equal.
    """
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold()).translate(_EXPANSIONS)
    kept = (char for char in decomposed if unicodedata.category(char) not in _IGNORABLE)
    return "".join(_folded_char(char) for char in kept).rstrip(" ")


def _folded_char(char: str) -> str:
    if ord(char) > 0xFFFF:
        return _SUPPLEMENTARY
    if "\u30a1" <= char <= "\u30f6":
        return chr(ord(char) - 0x60)
    return char
