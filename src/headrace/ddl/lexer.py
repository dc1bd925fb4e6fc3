"""DDL text to words as TiDB's scanner reads it, a cursor to read them with, and the one way to write them down again.

What TiDB runs of comments (``/*! … */``, ``/*T! … */``, ``/*T![feature] … */``) is part of the statement; what it skips
(``/*M! … */``, hints, ``/* … */``, ``-- ``, ``#``) is no word. TiDB documentation, "Comment Syntax". :func:`rendered` writes
words down so that each server reads exactly these again: without comments, with one spelling for each string.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.ddl.statement_cache import remembered

NO_SYNTAX = r"""'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+"|`(?:[^`]|``)*+`|/\*(?!T?!).*?\*/|--(?=\s)[^\n]*|\#[^\n]*"""
"""A pattern (DOTALL) for what is no syntax: strings, quoted names, and comments that no server reads. A sign of one kind inside
another opens nothing."""
MOST_WORDS = 500_000
"""Of a statement: some 130 MB, and several seconds to read."""
_LETTER = r"0-9A-Za-z$_\x80-\U0010ffff"
_TOKEN = re.compile(
    r"(?P<blank>[ \t-\r]++)"
    rf"|(?P<hex>0x[0-9a-fA-F]++(?![{_LETTER}])|[xX]'(?:[0-9a-fA-F]{{2}})*+')"
    rf"|(?P<bits>0b[01]++(?![{_LETTER}])|[bB]'[01]*+')"
    r"|(?P<string>[nN]?'(?:[^'\\]|\\.|'')*+'|\"(?:[^\"\\]|\\.|\"\")*+\")"
    r"|(?P<name>`(?:[^`]|``)*+`)"
    rf"|(?P<number>(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][+-]?\d++)?+(?![{_LETTER}]))"
    rf"|(?P<word>[{_LETTER}]++)"
    r"|(?P<opened>/\*!(?:\d{5,6})?+|/\*T!(?P<feature>\[[A-Za-z0-9_, ]*+\])?+)"
    r"|(?P<comment>/\*(?!T?!).*?\*/|--(?=[\x00-\x20]|\Z)[^\n]*+|\#[^\n]*+)"
    r"|(?P<closed>\*/)"
    r"|(?P<sign><=>|->>|:=|<<|>>|<=|>=|<>|!=|&&|\|\||->|@@|/(?!\*)|[-+*%=<>!~^&|(),.;:@])",
    re.DOTALL,
)
_DOT = re.compile(r"(?P<sign>\.)")
_AFTER_DOT = re.compile(rf"[{_LETTER}]++")
_ESCAPE = {quote: re.compile(rf"\\(.)|{quote}{quote}", re.DOTALL) for quote in "'\""}
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_ESCAPES = str.maketrans({"\\": "\\\\", "'": "''", "\0": "\\0", "\n": "\\n", "\r": "\\r", "\x1a": "\\Z"})
_GLUED = frozenset("(),.")
_IS_LETTER = re.compile(f"[{_LETTER}]")
_NOT_TEXT = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a statement. ``text`` is unquoted; ``is_name`` says it stood in backquotes, ``is_literal`` that it is a value.

    ``start`` and ``end`` are where its token begins and ends in the statement. ``written`` is its one spelling for every server,
    ``spaced`` whether something stands between it and the word before, and ``feature`` what opens the comment of TiDB that it
    stands in (``/*T![ttl]``), if it does.
    """

    text: str
    is_name: bool = False
    is_literal: bool = False
    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)
    written: str = field(default="", compare=False)
    spaced: bool = field(default=True, compare=False)
    feature: str = field(default="", compare=False)
    _keyword: str | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_keyword", None if self.is_name or self.is_literal else self.text.upper())

    def says(self, keyword: str) -> bool:
        """Whether it is this keyword or sign (given in upper case)."""
        return self._keyword == keyword

    @property
    def is_text(self) -> bool:
        """Whether it is a string between quotes."""
        return self.is_literal and self.written.startswith("'")


def words(statement: str) -> tuple[Word, ...] | None:
    """The words of a statement, without comments and the final semicolon; ``None`` for text that no server reads as a whole: a
    string or comment that does not end, a sign that belongs to no word; and for one of more than :data:`MOST_WORDS`."""
    return _words(statement)[0]


def has_too_many_words(statement: str) -> bool:
    """Whether the statement has more than :data:`MOST_WORDS`."""
    return _words(statement)[1]


@remembered
def _words(statement: str) -> tuple[tuple[Word, ...] | None, bool]:
    try:
        found = _scanned(statement)
    except _TooManyWordsError:
        return None, True
    while found and found[-1].says(";"):
        found.pop()
    return None if found is None else tuple(found), False


class _TooManyWordsError(Exception):
    pass


def _scanned(statement: str) -> list[Word] | None:
    found: list[Word] = []
    at, end, spaced, feature, is_open = 0, len(statement), True, "", False
    while at < end:
        token = _next(statement, at, found)
        if token is None:
            return None
        kind, at = token.lastgroup or "word", token.end()
        if kind == "opened":
            is_open, feature = True, f"/*T!{token['feature'] or ''}" if "T" in token[0][:3] else ""
        elif kind == "closed":
            if not is_open:
                return None
            is_open, feature = False, ""
        elif kind not in ("blank", "comment"):
            word = _word(kind, token[0], token.start(), spaced, feature)
            if word is None:
                return None
            found.append(word)
            if len(found) > MOST_WORDS:
                raise _TooManyWordsError
            spaced = False
            continue
        spaced = True
    return None if is_open else found


def _next(statement: str, at: int, found: list[Word]) -> re.Match[str] | None:
    """The token at a place. A dot that touches a name belongs to it, and what follows is a name: ``t.1e5``."""
    before = found[-1] if found and found[-1].end == at else None
    if before is not None and statement[at] == "." and not before.is_literal and _IS_LETTER.match(before.written[-1]):
        return _DOT.match(statement, at)
    if before is not None and before.text == "." and len(found) > 1 and found[-2].end == before.start:
        return _AFTER_DOT.match(statement, at) or _TOKEN.match(statement, at)
    return _TOKEN.match(statement, at)


def _word(kind: str, piece: str, start: int, spaced: bool, feature: str) -> Word | None:
    """The word of one token; ``None`` for a text that no server takes."""
    text, written = piece, piece
    if kind == "string":
        text = unescaped(piece.lstrip("nN"))
        written = quoted_text(text)
    elif kind == "name":
        text = piece[1:-1].replace("``", "`")
    elif kind in ("hex", "bits"):
        text = piece[2:] if piece[0] == "0" else piece[2:-1]
    if kind in ("name", "word") and _NOT_TEXT.search(text):
        return None
    is_literal = kind in ("string", "hex", "bits", "number")
    return Word(text, kind == "name", is_literal, start, start + len(piece), written, spaced, feature)


def unescaped(literal: str) -> str:
    """The value that a string literal means, which is given with its quotes."""
    quote = literal[0]
    return _ESCAPE[quote].sub(lambda found: _ESCAPED.get(found[1], found[1]) if found[1] else quote, literal[1:-1])


def quoted_text(text: str) -> str:
    """A value as a string literal that means the same to every server, with and without ``ANSI_QUOTES``."""
    return f"'{text.translate(_ESCAPES)}'"


def rendered(found: Sequence[Word], *, features: bool = False) -> str:
    """The words as text that every server reads as these words. ``features``: what stood in comments of TiDB stands in such again,
    for servers that may not know it."""
    pieces: list[str] = []
    opened, former = "", None
    for word in found:
        feature = word.feature if features else ""
        if feature != opened:
            pieces.append(" */" if opened else "")
            pieces.append(f" {feature} " if feature else " ")
        elif former is not None and not _is_one_name(former, word) and (word.spaced or not _may_touch(former, word)):
            pieces.append(" ")
        pieces.append(word.written or word.text)
        opened, former = feature, word
    return "".join([*pieces, " */" if opened else ""]).strip(" ")


def _is_one_name(former: Word, word: Word) -> bool:
    """Whether the words are a name and its dot, which need not touch in a statement."""
    return (word.says(".") and not former.is_literal) or (former.says(".") and not word.is_literal)


def _may_touch(former: Word, word: Word) -> bool:
    """Whether two words that touched in the statement are still two when they do: signs like ``/`` and ``*`` are not."""
    if former.text in _GLUED or word.text in _GLUED:
        return True
    if word.is_text and former.text.startswith("_") and not former.is_name:
        return True  # a character set before its text
    return _is_sign((former.written or former.text)[-1]) != _is_sign((word.written or word.text)[0])


def _is_sign(letter: str) -> bool:
    return letter not in "'`" and _IS_LETTER.match(letter) is None


def begins_with(statement: str, *keywords: str) -> bool:
    """Whether these keywords (given in upper case) are a statement's first words, whatever comment stands before them."""
    found = words(statement) or ()
    return len(found) >= len(keywords) and all(word.says(keyword) for word, keyword in zip(found, keywords, strict=False))


class Cursor:
    """Reads words one after another, from the one at ``begin`` on. Reading past the end gives an empty literal, which no keyword
    matches."""

    _END = Word("", is_literal=True)

    def __init__(self, found: tuple[Word, ...], begin: int = 0) -> None:
        self._words = found
        self._at = begin

    @property
    def at(self) -> int:
        """How many words were read."""
        return min(self._at, len(self._words))

    @property
    def length(self) -> int:
        """How many words there are."""
        return len(self._words)

    @property
    def done(self) -> bool:
        return self._at >= len(self._words)

    def peek(self, ahead: int = 0) -> Word:
        at = self._at + ahead
        return self._words[at] if at < len(self._words) else self._END

    @property
    def last(self) -> Word:
        """The word that was read last."""
        return self._words[min(self._at, len(self._words)) - 1] if self._at and self._words else self._END

    def back(self) -> None:
        """Goes back to the word that was read last."""
        self._at -= 1

    @property
    def before(self) -> Word:
        """The word before the one that was read last."""
        return self._words[self._at - 2] if 2 <= self._at <= len(self._words) else self._END

    def next(self) -> Word:
        word = self.peek()
        self._at += 1
        return word

    def accept(self, *keywords: str) -> bool:
        """Steps over these keywords when all of them come next."""
        for ahead, keyword in enumerate(keywords):
            if not self.peek(ahead).says(keyword):
                return False
        self._at += len(keywords)
        return True

    def skip_any(self, *keywords: str) -> None:
        """Steps over each of these keywords that comes next."""
        while any(self.accept(keyword) for keyword in keywords):
            pass

    def name(self) -> tuple[str, str]:
        """Reads ``name`` or ``database.name``; the database is empty when it is not named."""
        first = self.next().text
        if self.accept("."):
            return first, self.next().text
        return "", first

    def rest(self) -> tuple[Word, ...]:
        return self._words[self._at :]

    def group(self) -> tuple[Word, ...]:
        """Reads a parenthesis that comes next and returns what is inside; empty when none comes."""
        if not self.accept("("):
            return ()
        start, depth = self._at, 1
        while not self.done:
            word = self.next()
            depth += word.says("(") - word.says(")")
            if depth == 0:
                return self._words[start : self._at - 1]
        return self._words[start:]


def split_at_commas(found: tuple[Word, ...]) -> list[tuple[Word, ...]]:
    """The parts between commas that stand in no parenthesis."""
    parts: list[tuple[Word, ...]] = []
    depth = start = 0
    for at, word in enumerate(found):
        depth += word.says("(") - word.says(")")
        if depth == 0 and word.says(","):
            parts.append(found[start:at])
            start = at + 1
    parts.append(found[start:])
    return [part for part in parts if part]
