"""Texts that some collation may hold for equal. Which one a source compares by is not always known."""

from __future__ import annotations

import re
import unicodedata

from headrace.model.collating_table import EQUAL_LETTERS

_SUPPLEMENTARY = "\ufffd"
_EQUAL = str.maketrans({other: letter for letter, others in EQUAL_LETTERS.items() for other in others})
_RUN_OF_S = re.compile("ss+")
_LETTER_MARK = re.compile("COMBINING LATIN SMALL LETTER ([A-Z])")
_IGNORABLE = frozenset({"Mn", "Me", "Mc", "Cc", "Cf"})
# Letters that collations expand or fold though Unicode does not decompose them.
_EXPANSIONS = str.maketrans({"æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "ł": "l", "þ": "th", "ħ": "h", "ı": "i", "ŧ": "t"})


def fold_text(text: str) -> str:
    """A form as coarse as TiDB's collations, whichever it is: equal for texts that one of them holds for equal.

    Case, accents, ignorable characters and trailing spaces do not count; digits of one value are one. ``utf8mb4_general_ci`` gives
    every supplementary character the same weight, and ``ß`` that of ``s``; the UCA collations expand it to ``ss``, so that runs of
    ``s`` are one, and hold Hiragana and Katakana for equal. Only a subscript iota is ignored by some and a letter for others.
    """
    decomposed = unicodedata.normalize("NFKD", text.translate(_EQUAL)).translate(_EQUAL)
    letters = "".join(map(_without_marks, decomposed))
    folded = unicodedata.normalize("NFKD", letters.casefold()).translate(_EXPANSIONS).translate(_EQUAL)
    return _RUN_OF_S.sub("s", "".join(map(_without_marks, map(_folded_char, folded)))).rstrip(" ")


def _without_marks(char: str) -> str:
    """Nothing for an ignorable character. A mark that is a letter, as medieval texts set them above others, is that letter."""
    if unicodedata.category(char) not in _IGNORABLE:
        return char
    letter = _LETTER_MARK.fullmatch(unicodedata.name(char, ""))
    return letter[1].lower() if letter is not None else ""


def _folded_char(char: str) -> str:
    if char.isascii():
        return char
    digit = unicodedata.digit(char, None)
    if digit is not None:
        return str(digit)
    if ord(char) > 0xFFFF:
        return _SUPPLEMENTARY
    if "\u30a1" <= char <= "\u30f6":
        return chr(ord(char) - 0x60)
    return char
