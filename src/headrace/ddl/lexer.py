"""Splits DDL text into words as TiDB's scanner does, reads them with a cursor, and writes them as text again.

Comments that TiDB executes (``/*! … */``, ``/*T! … */``, ``/*T![feature] … */``) are part of the statement. Comments that it skips
(``/*M! … */``, hints, ``/* … */``, ``-- ``, ``#``) are not words. Source: TiDB documentation, "Comment Syntax". :func:`rendered`
writes words so that each server reads exactly these words again: without comments, and with one spelling for each string.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from headrace.ddl.statement_cache import remembered

NO_SYNTAX = r"""'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+"|`(?:[^`]|``)*+`|/\*(?!T?!).*?\*/|--(?=[\x00-\x20]|\Z)[^\n]*|\#[^\n]*"""
"""A pattern (DOTALL) for text that is not syntax: strings, quoted names, and comments that servers skip. A quote or comment mark
inside another of these has no effect."""
MOST_WORDS = 500_000
"""The most words of a statement. They take some 130 MB, and several seconds to read."""
INTRODUCERS_OF_UTF8 = frozenset({"_UTF8MB4", "_UTF8", "_UTF8MB3"})
"""Character sets before a literal that TiDB writes itself, by that of the connection, when it stores an expression."""
_LETTER = r"0-9A-Za-z$_\x80-\U0010ffff"
_TOKEN = re.compile(
    r"(?P<blank>[ \t-\r]++)"
    rf"|(?P<hex>0x[0-9a-fA-F]++(?![{_LETTER}])|[xX]'(?:[0-9a-fA-F]{{2}})*+')"
    rf"|(?P<bits>0b[01]++(?![{_LETTER}])|[bB]'[01]*+')"
    r"|(?P<string>[nN]?'(?:[^'\\]|\\.|'')*+'|\"(?:[^\"\\]|\\.|\"\")*+\")"
    r"|(?P<name>`(?:[^`]|``)*+`)"
    rf"|(?P<number>(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+(?![{_LETTER}]))"
    rf"|(?P<word>[{_LETTER}]++)"
    r"|(?P<opened>/\*!(?:[0-9]{5,6})?+|/\*T!(?:\[[A-Za-z0-9_, ]*+\])?+)"
    r"|(?P<comment>/\*(?!T?!).*?\*/|--(?=[\x00-\x20]|\Z)[^\n]*+|\#[^\n]*+)"
    r"|(?P<closed>\*/)"
    r"|(?P<sign><=>|->>|:=|<<|>>|<=|>=|<>|!=|&&|\|\||->|@@|/(?!\*)|[-+*%=<>!~^&|(),.;:@])",
    re.DOTALL,
)
# A name cannot begin so. MySQL and MariaDB, or TiDB, read a number and then the rest as another word: `1e5FROM`, `1.1FROM`,
# `.5FROM`, `0x1SELECT`. If a text begins so and is no number to its end, what it says depends on who reads it.
_NUMBER_AND_MORE = re.compile(r"[0-9]++(?:\.|[eE][-+0-9])|\.[0-9]|0[xX][0-9a-fA-F]|0[bB][01]")
_DELIMITER = re.compile(r"DELIMITER[ \t]++([^\s\\]{1,16}+)(?!\S)[^\n]*+", re.IGNORECASE)
_OPENING = ("'", '"', "`", "/*")
_CLOSED = frozenset({"string", "name", "comment", "hex", "bits"})
"""Tokens in which nothing ends a statement."""
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
    """One word of a statement."""

    text: str
    """Without quotes."""
    is_name: bool = False
    """Whether it was in backquotes."""
    is_literal: bool = False
    """Whether it is a value."""
    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)
    """Where its token starts and ends in the statement."""
    written: str = field(default="", compare=False)
    """Its spelling for every server."""
    spaced: bool = field(default=True, compare=False)
    """Whether there is something between this word and the previous one."""
    _keyword: str | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_keyword", None if self.is_name or self.is_literal else self.text.upper())

    def says(self, keyword: str) -> bool:
        """Whether the word is this keyword or sign (in upper case)."""
        return self._keyword == keyword

    @property
    def is_sign(self) -> bool:
        """Whether the word is punctuation, such as ``(`` or ``<=>``: neither a name nor a keyword nor a value."""
        return not self.is_name and not self.is_literal and _IS_LETTER.match(self.text) is None

    @property
    def is_text(self) -> bool:
        """Whether the word is a quoted string."""
        return self.is_literal and self.written.startswith("'")


def is_introducer(word: Word, following: Word) -> bool:
    """Whether a word gives the literal that follows it a character set: ``_latin1'a'``."""
    return following.is_literal and not word.is_name and not word.is_literal and word.text.startswith("_")


def bytes_of_digits(word: Word) -> bytes:
    """The value of a hexadecimal or bit literal."""
    base = 16 if word.written[:2].lower() in ("0x", "x'") else 2
    digits = word.text
    length = (len(digits) + 1) // 2 if base == 16 else (len(digits) + 7) // 8
    return int(digits or "0", base).to_bytes(length, "big")


def words(statement: str) -> tuple[Word, ...] | None:
    """The words of a statement, without comments and the final semicolon.

    ``None`` for a text that no server can read completely (a string or comment that does not end, a character that belongs to no
    word), and for a text of more than :data:`MOST_WORDS` words.
    """
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


def statements_in(script: str) -> Iterator[tuple[int, int]]:
    """Where the statements of a script begin and end, in the time of one pass.

    They end at a semicolon outside of strings, names and comments, or at what a ``DELIMITER`` line before them names. As in the
    ``mysql`` client, such a line counts only between statements. A text that no token matches is stepped over, one character at a
    time, and one that is left open goes on to the script's end; :func:`words` refuses the statement that has it.
    """
    begin, at, end, delimiter, is_empty = 0, 0, len(script), ";", True
    while at < end:
        named = _DELIMITER.match(script, at) if is_empty else None
        if named is not None:
            begin = at = named.end()
            delimiter = named[1]
            continue
        token = _TOKEN.match(script, at)
        if token is None and script.startswith(_OPENING, at):
            break
        kind, after = ("", at + 1) if token is None else (token.lastgroup, token.end())
        # The client looks for it at each character: `END$$` has it, although `$` is a letter of names.
        cut = -1 if kind in _CLOSED else script.find(delimiter, at, after + len(delimiter) - 1)
        if cut >= 0:
            yield begin, cut
            begin = at = cut + len(delimiter)
            is_empty = True
        else:
            at, is_empty = after, is_empty and kind in ("blank", "comment")
    yield begin, end


class _TooManyWordsError(Exception):
    pass


def _scanned(statement: str) -> list[Word] | None:
    found: list[Word] = []
    at, end, spaced, is_open = 0, len(statement), True, False
    while at < end:
        token = _next(statement, at, found)
        if token is None:
            return None
        kind, at = token.lastgroup or "word", token.end()
        if kind == "opened":
            is_open = True
        elif kind == "closed":
            if not is_open:
                return None
            is_open = False
        elif kind not in ("blank", "comment"):
            word = _word(kind, token[0], token.start(), spaced)
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
    """The token at a place; ``None`` if there is none, or servers disagree on where it ends.

    A dot directly after a name belongs to the name, and a name follows it: ``t.1e5``.
    """
    before = found[-1] if found and found[-1].end == at else None
    if before is not None and statement[at] == "." and not before.is_literal and _IS_LETTER.match(before.written[-1]):
        return _DOT.match(statement, at)
    if before is not None and before.text == "." and len(found) > 1 and found[-2].end == before.start:
        return _AFTER_DOT.match(statement, at) or _TOKEN.match(statement, at)
    token = _TOKEN.match(statement, at)
    is_number = token is not None and token.lastgroup in ("number", "hex", "bits")
    return None if not is_number and _NUMBER_AND_MORE.match(statement, at) else token


def _word(kind: str, piece: str, start: int, spaced: bool) -> Word | None:
    """The word of one token; ``None`` for a text that no server accepts."""
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
    return Word(text, kind == "name", is_literal, start, start + len(piece), written, spaced)


def unescaped(literal: str) -> str:
    """The value of a string literal. ``literal`` includes its quotes."""
    quote = literal[0]
    return _ESCAPE[quote].sub(lambda found: _ESCAPED.get(found[1], found[1]) if found[1] else quote, literal[1:-1])


def quoted_text(text: str) -> str:
    """A value as a string literal that every server reads as this value, with and without ``ANSI_QUOTES``."""
    return f"'{text.translate(_ESCAPES)}'"


def rendered(found: Sequence[Word]) -> str:
    """The words as text that every server reads as these words: without comments, because servers differ in which they skip."""
    pieces: list[str] = []
    for former, word in zip((None, *found), found, strict=False):
        if former is not None and not _is_one_name(former, word) and (word.spaced or not _may_touch(former, word)):
            pieces.append(" ")
        pieces.append(word.written or word.text)
    return "".join(pieces)


def _is_one_name(former: Word, word: Word) -> bool:
    """Whether the words are a name and its dot. In a statement there may be space between them."""
    return (word.says(".") and not former.is_literal) or (former.says(".") and not word.is_literal)


def _may_touch(former: Word, word: Word) -> bool:
    """Whether two words that were adjacent in the statement may be written adjacent. Signs such as ``/`` and ``*`` may not."""
    if former.text in _GLUED or word.text in _GLUED:
        return True
    if word.is_text and former.text.startswith("_") and not former.is_name:
        return True  # a character set before its text
    return _is_sign((former.written or former.text)[-1]) != _is_sign((word.written or word.text)[0])


def _is_sign(letter: str) -> bool:
    return letter not in "'`" and _IS_LETTER.match(letter) is None


def begins_with(statement: str, *keywords: str) -> bool:
    """Whether these keywords (in upper case) are a statement's first words. Comments before them are ignored."""
    found = words(statement) or ()
    return len(found) >= len(keywords) and all(word.says(keyword) for word, keyword in zip(found, keywords, strict=False))


class Cursor:
    """Reads words one after another from ``begin`` on. Reading past the end gives an empty literal, which matches no keyword."""

    _END = Word("", is_literal=True)

    def __init__(self, found: tuple[Word, ...], begin: int = 0) -> None:
        self._words = found
        self._at = begin

    @property
    def at(self) -> int:
        """The number of words read."""
        return min(self._at, len(self._words))

    @property
    def length(self) -> int:
        """The number of all words."""
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

    def since(self, begin: int) -> tuple[Word, ...]:
        """The words from this place to the one that was read last."""
        return self._words[begin : self.at]

    @property
    def before(self) -> Word:
        """The word before the one that was read last."""
        return self._words[self._at - 2] if 2 <= self._at <= len(self._words) else self._END

    def next(self) -> Word:
        word = self.peek()
        self._at += 1
        return word

    def accept(self, *keywords: str) -> bool:
        """Steps over these keywords if all of them come next. Returns whether it did."""
        for ahead, keyword in enumerate(keywords):
            if not self.peek(ahead).says(keyword):
                return False
        self._at += len(keywords)
        return True

    def skip_any(self, *keywords: str) -> None:
        """Steps over all following words that are among these keywords."""
        while any(self.accept(keyword) for keyword in keywords):
            pass

    def name(self) -> tuple[str, str]:
        """Reads ``name`` or ``database.name``. Returns database and name; the database is empty if it is not named."""
        first = self.next().text
        if self.accept("."):
            return first, self.next().text
        return "", first

    def column_name(self) -> str:
        """Reads the name of a column. The names of its table and database may stand before it."""
        name = self.next().text
        while self.accept("."):
            name = self.next().text
        return name

    def rest(self) -> tuple[Word, ...]:
        return self._words[self._at :]

    def group(self) -> tuple[Word, ...]:
        """Reads the parenthesis that comes next, and returns the words inside; empty if there is no parenthesis."""
        if not self.accept("("):
            return ()
        start, depth = self._at, 1
        while not self.done:
            word = self.next()
            depth += word.says("(") - word.says(")")
            if depth == 0:
                return self._words[start : self._at - 1]
        return self._words[start:]


def unqualified(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """The words, which begin with the name of a column, without the names of its table and database before it."""
    while len(words) > 2 and words[1].says("."):
        words = words[2:]
    return words


def outside_parentheses(found: tuple[Word, ...]) -> tuple[Word, ...]:
    """The words without those in parentheses. The parentheses themselves stay."""
    kept: list[Word] = []
    depth = 0
    for word in found:
        depth -= word.says(")")
        if depth <= 0:
            kept.append(word)
        depth += word.says("(")
    return tuple(kept)


def split_at_commas(found: tuple[Word, ...]) -> list[tuple[Word, ...]]:
    """The parts between commas outside of parentheses."""
    parts: list[tuple[Word, ...]] = []
    depth = start = 0
    for at, word in enumerate(found):
        depth += word.says("(") - word.says(")")
        if depth == 0 and word.says(","):
            parts.append(found[start:at])
            start = at + 1
    parts.append(found[start:])
    return [part for part in parts if part]
