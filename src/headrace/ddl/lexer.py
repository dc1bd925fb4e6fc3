"""DDL text to words: sqlglot's MySQL tokenizer, with TiDB's own comments opened, and a cursor to read words with.

sqlglot's parser is not used for statements: it answers RENAME TABLE, EXCHANGE PARTITION and ADD COLUMN (a INT, b INT) with an
opaque command and raises for AUTO_RANDOM and DROP PARTITION. Its tokenizer reads all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import SqlglotError
from sqlglot.tokens import TokenType

NO_SYNTAX = r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`|/\*(?!T?!).*?\*/|--(?=\s)[^\n]*|\#[^\n]*"""
"""A pattern (DOTALL) for what is no syntax: strings, quoted names, and comments that no server reads. A sign of one kind inside
another opens nothing."""
_FEATURE_COMMENT = re.compile(
    rf"(?P<kept>{NO_SYNTAX})" r"|(?P<open>/\*(?:T!(?:\[[^\]]*\])?|!\d*))(?P<body>.*?)\*/",
    re.DOTALL,
)
_QUOTED = frozenset({TokenType.IDENTIFIER})
_LITERALS = frozenset({TokenType.STRING, TokenType.HEX_STRING, TokenType.BIT_STRING, TokenType.NATIONAL_STRING, TokenType.NUMBER})


_DIALECT = MySQL()  # whose names may begin with a digit; a tokenizer by itself takes no notice of that


class _Tokenizer(MySQL.Tokenizer):  # type: ignore[misc, unused-ignore]
    COMMANDS: Any = frozenset()  # with sqlglot's own, all of a RENAME after its first word is one token


@dataclass(frozen=True)
class Word:
    """One word of a statement. ``text`` is unquoted; ``is_name`` says it stood in backquotes, ``is_literal`` that it is a value.

    ``start`` and ``end`` are where its token begins and ends in the statement.
    """

    text: str
    is_name: bool = False
    is_literal: bool = False
    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)

    def says(self, keyword: str) -> bool:
        """Whether it is this keyword or sign (given in upper case)."""
        return not self.is_name and not self.is_literal and self.text.upper() == keyword


def open_feature_comments(statement: str) -> str:
    """The statement with the content of ``/*T![feature] … */``, ``/*T! … */`` and ``/*!40101 … */`` as plain text.

    Every character keeps its place.
    """
    return _FEATURE_COMMENT.sub(lambda found: found["kept"] or f"{' ' * len(found['open'])}{found['body']}  ", statement)


@lru_cache(maxsize=1024)  # several parts of the engine and the sinks ask about one statement
def words(statement: str) -> tuple[Word, ...] | None:
    """The words of a statement, without comments and the final semicolon; ``None`` for text that is no SQL at all."""
    try:
        tokens = _Tokenizer(dialect=_DIALECT).tokenize(open_feature_comments(statement))
    except SqlglotError:
        return None
    found: list[Word] = []
    for token in tokens:
        place = (token.start, token.end + 1)
        if token.token_type in _QUOTED:
            found.append(Word(token.text, True, False, *place))
        elif token.token_type in _LITERALS:
            found.append(Word(token.text, False, True, *place))
        else:  # "PRIMARY KEY" and its like are one token for sqlglot
            found.extend(Word(part, False, False, *place) for part in token.text.split())
    while found and found[-1].says(";"):
        found.pop()
    return tuple(found)


def begins_with(statement: str, *keywords: str) -> bool:
    """Whether these keywords (given in upper case) are a statement's first words, whatever comment stands before them."""
    found = words(statement) or ()
    return len(found) >= len(keywords) and all(word.says(keyword) for word, keyword in zip(found, keywords, strict=False))


def text_of(found: tuple[Word, ...], statement: str) -> str:
    """What the statement says in these consecutive words, as it was written."""
    return open_feature_comments(statement)[found[0].start : found[-1].end] if found else ""


class Cursor:
    """Reads words one after another. Reading past the end gives an empty literal, which no keyword matches."""

    _END = Word("", is_literal=True)

    def __init__(self, found: tuple[Word, ...]) -> None:
        self._words = found
        self._at = 0

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

    def next(self) -> Word:
        word = self.peek()
        self._at += 1
        return word

    def accept(self, *keywords: str) -> bool:
        """Steps over these keywords when all of them come next."""
        if not all(self.peek(i).says(keyword) for i, keyword in enumerate(keywords)):
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
