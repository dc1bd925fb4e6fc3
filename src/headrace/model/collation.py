"""Folds texts that some collation may compare as equal. The collation that a source uses is not always known."""

from __future__ import annotations

import re
import unicodedata

from headrace.model.collation_table import EQUAL_LETTERS

_SUPPLEMENTARY = re.compile("[\U00010000-\U0010ffff]")
_REPLACEMENT = "\ufffd"
_EQUAL = str.maketrans({other: letter for letter, others in EQUAL_LETTERS.items() for other in others})
_RUN_OF_S = re.compile("ss+")
_LETTER_MARK = re.compile("COMBINING LATIN SMALL LETTER ([A-Z])")
_IGNORABLE = frozenset({"Mn", "Me", "Mc", "Cc", "Cf"})
# Letters that collations expand or fold although Unicode does not decompose them. A subscript iota is a letter in some collations
# and is ignored in others. Thai, Lao and Tai scripts write some vowels before their consonant; later Unicode tables swap the two.
_EXPANSIONS = str.maketrans(
    {"æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "ł": "l", "þ": "th", "ħ": "h", "ı": "i", "ŧ": "t", "ι": ""}
    | dict.fromkeys("\u0e40\u0e41\u0e42\u0e43\u0e44\u0ec0\u0ec1\u0ec2\u0ec3\u0ec4\u19b5\u19b6\u19b7\u19ba", "")
    | dict.fromkeys("\uaab5\uaab6\uaab9\uaabb\uaabc", "")
)
ASCII_EQUALS = (("?", "n"), ("~", "y"), ("[", "\\"))
"""ASCII characters that ``gbk_chinese_ci`` compares as equal to others: ``~`` to ``y``, ``[`` to a backslash, and ``?`` to letters
that are missing in its table, one of which is an ``n`` with an accent."""
_ASCII_EQUALS = str.maketrans(dict(ASCII_EQUALS))


def fold_text(text: str, *, weighs_supplementary: bool = False) -> str:
    """Returns a folded form of a text. If any of TiDB's collations compares two texts as equal, their folded forms are equal.

    Case, accents, ignorable characters and trailing spaces do not count. Digits of the same value are equal. ``utf8mb4_general_ci``
    gives ``ß`` the weight of ``s``, and the UCA collations expand it to ``ss``, so a run of ``s`` is folded to one ``s``. The UCA
    collations also compare Hiragana and Katakana as equal.

    Collations treat characters beyond U+FFFF in two ways that one folded form cannot serve. ``utf8mb4_general_ci`` and
    ``utf8mb4_unicode_ci`` compare all of them as equal. The collations of later tables of Unicode (``weighs_supplementary``:
    ``utf8mb4_0900_ai_ci``) treat many of them as letters and digits. One form for both would make everything equal to everything.
    """
    if not weighs_supplementary:
        text = _SUPPLEMENTARY.sub(_REPLACEMENT, text)
    decomposed = unicodedata.normalize("NFKD", text.translate(_EQUAL)).translate(_EQUAL)
    letters = "".join(map(_without_marks, decomposed))
    folded = unicodedata.normalize("NFKD", letters.casefold()).translate(_EXPANSIONS).translate(_EQUAL)
    simple = "".join(map(_without_marks, map(_folded_char, folded))).translate(_ASCII_EQUALS)
    return _RUN_OF_S.sub("s", simple).rstrip(" ")


def _without_marks(char: str) -> str:
    """Removes an ignorable character. A combining mark that is a letter, as in medieval texts, becomes that letter."""
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
    if "\u30a1" <= char <= "\u30f6":
        return chr(ord(char) - 0x60)
    return char
