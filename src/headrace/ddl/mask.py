"""A view of a statement in which regular expressions find its keywords: every other text in it is masked, at the same positions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from headrace.ddl.lexer import NO_SYNTAX, Word, words

_NO_SYNTAX = re.compile(NO_SYNTAX, re.DOTALL)
_SIMPLE = re.compile(r"[0-9A-Za-z_]+")
_NO_LETTER = re.compile(r"[^\x00-\x7f]|\$")


def edited(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """The text with parts of it replaced, each given as (start, end, text), in one pass.

    All positions are those before the call. Raises ValueError for parts that overlap.
    """
    pieces, at = [], 0
    for start, end, new in sorted(edits, key=lambda edit: edit[:2]):
        if start < at:
            raise ValueError(f"the edit of {start} to {end} overlaps the one before it, which ends at {at}")
        pieces += [text[at:start], new]
        at = end
    return "".join([*pieces, text[at:]])


def name_found(text: str, found: re.Match[str]) -> str:
    """The group ``name`` of a match in the view of the text, in lower case and without quotes.

    Empty if it has other letters than those of character sets and collations, so that it can be put into a statement as it is.
    """
    named = words(text[slice(*found.span("name"))]) or ()
    return named[0].text.lower() if len(named) == 1 and _SIMPLE.fullmatch(named[0].text) else ""


def masked(text: str) -> str:
    """The text with dots for quoted names and strings, and blanks for comments and their marks. Positions do not change.

    A name with its database has dots from its start to its end, whatever is in it. Letters that are not ASCII, and ``$``, are
    underscores. So the words of a pattern (``\\w+``, ``\\b``, ``\\S+``, ``\\s``) are those of the lexer.
    """
    if not text:
        return ""
    found = words(text)
    if found is None:  # no server can read it
        return _NO_LETTER.sub("_", _NO_SYNTAX.sub(_mask, text))
    dotted, names = _of_names(found)
    pieces, at = [], 0
    for number, word in enumerate(found):
        gap = text[at : word.start]
        pieces.append(("." if number in names else " ") * len(gap))
        piece = text[word.start : word.end]
        if number in dotted or word.is_name or (word.is_literal and piece[-1] in "'\""):
            piece = "." * len(piece)
        pieces.append(_NO_LETTER.sub("_", piece))
        at = word.end
    pieces.append(" " * len(text[at:]))
    return "".join(pieces)


def _of_names(found: Sequence[Word]) -> tuple[set[int], set[int]]:
    """The numbers of the words that are names beside a dot, or that dot; and of those with only blanks between them and such a word
    before them."""
    dotted: set[int] = set()
    inside: set[int] = set()
    for at, (former, word) in enumerate(pairwise(found), 1):
        if (word.says(".") and _may_be_name(former)) or (former.says(".") and _may_be_name(word)):
            dotted |= {at - 1, at}
            inside.add(at)
    return dotted, inside


def _may_be_name(word: Word) -> bool:
    return not word.is_literal and (word.is_name or _NO_LETTER.sub("_", word.text[:1]).isidentifier() or word.text[:1].isdigit())


def _mask(found: re.Match[str]) -> str:
    return (" " if found[0][0] in "/-#" else ".") * len(found[0])
