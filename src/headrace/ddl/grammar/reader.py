"""What every part of the grammar reads with: words one after another, each by a rule, and the names among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from headrace.ddl.grammar.vocabulary import OPTION_WORDS, RESERVED
from headrace.ddl.lexer import Cursor, Word
from headrace.model.table import TableId, is_possible_name

MOST_PARTS = 8_192
"""Columns, indexes, partitions or clauses of one statement: as many as TiDB's largest list has, which is of partitions."""
_SHOWN = 40
_NO_NAMES = RESERVED | OPTION_WORDS
_BEHIND_NAMES = frozenset({",", "(", ")", "INTO"})


class NotAcceptedError(Exception):
    """A statement, or a part of one, that does not run by itself. The message is a clause: "it has DATA DIRECTORY"."""


class Reader(Cursor):
    """Reads a statement. ``names`` collects every table, view and database that it names, resolved against ``database``.

    All methods raise NotAcceptedError for what is not as they expect it.
    """

    def __init__(self, found: tuple[Word, ...], database: str) -> None:
        super().__init__(found)
        self.database = database
        self.names: list[TableId] = []

    def fail(self, reason: str = "") -> NoReturn:
        """Raises NotAcceptedError with a reason, or for the next word."""
        if reason:
            raise NotAcceptedError(reason)
        word = self.peek()
        raise NotAcceptedError("it ends too early" if self.done else f"{_cut(word.text)!r} is not expected there")

    def expect(self, *keywords: str) -> None:
        """Steps over these keywords."""
        if not self.accept(*keywords):
            self.fail()

    def says_any(self, *keywords: str) -> bool:
        """Whether the next word is one of these keywords."""
        return any(self.peek().says(keyword) for keyword in keywords)

    def accept_any(self, *keywords: str) -> bool:
        """Steps over one of these keywords."""
        return any(self.accept(keyword) for keyword in keywords)

    def is_name(self, ahead: int = 0) -> bool:
        """Whether a name comes: between backquotes, or a word that is not reserved."""
        return is_name(self.peek(ahead))

    def identifier(self) -> str:
        """A name of a column, an index, a partition, a character set, …"""
        if not self.is_name():
            self.fail()
        return self.next().text

    def column(self) -> None:
        """The name of a column. That of its table may stand before it."""
        self.identifier()
        if self.accept("."):
            self.identifier_behind_dot()

    def identifiers(self) -> None:
        """Names between commas. Where a comma begins another clause of ALTER TABLE it is left."""
        self.identifier()
        while (
            self.peek().says(",")
            and self.is_name(1)
            and (self.at + 2 >= self.length or self.peek(2).text.upper() in (",", "(", ")", "INTO"))
        ):
            self.next()
            self.identifier()

    def table(self) -> TableId:
        """A table or view, with its database or without."""
        database, name = "", self.identifier()
        if self.accept("."):
            database, name = name, self.identifier_behind_dot()
        if self.peek().says("."):
            self.fail()
        self.check_possible(*((database, name) if database else (name,)))
        table_id = TableId(database or self.database, name)
        self.names.append(table_id)
        return table_id

    def check_possible(self, *names: str) -> None:
        """Raises NotAcceptedError where no database or table can have such a name."""
        for name in names:
            if not is_possible_name(name):
                self.fail(f"no database or table can have the name {_cut(name)!r}")

    def identifier_behind_dot(self) -> str:
        """A name where only names can be: reserved words are names there."""
        word = self.peek()
        if word.is_literal or not word.text or not (word.is_name or _is_plain(word.text)) or _is_option(word):
            self.fail()
        return self.next().text

    def tables(self) -> None:
        """Tables between commas."""
        self.table()
        while self.accept(","):
            self.table()

    def text(self) -> None:
        """A string."""
        if not self.peek().is_text:
            self.fail()
        self.next()

    def number(self) -> None:
        """An unsigned integer."""
        if not (self.peek().is_literal and self.peek().text.isdecimal() and not self.peek().is_text):
            self.fail()
        self.next()

    def value(self) -> None:
        """The value of an option: a number, a string, or a word. An equals sign may stand before it."""
        self.accept("=")
        if self.peek().is_literal and not self.done:
            self.next()
        elif not self.accept_any("DEFAULT", "BINARY", "COMPACT"):
            self.identifier()

    def in_parentheses(self, one: Callable[[], None]) -> None:
        """A list between parentheses, of at least one part."""
        self.expect("(")
        one()
        count = 1
        while self.accept(","):
            one()
            count += 1
            if count > MOST_PARTS:
                self.fail(f"it has more than {MOST_PARTS:,} parts in one list")
        self.expect(")")

    def existence(self) -> None:
        """``IF [NOT] EXISTS``, or nothing."""
        if self.accept("IF"):
            self.accept("NOT")
            self.expect("EXISTS")

    def character_set(self) -> bool:
        """``[DEFAULT] CHARACTER SET x`` or ``COLLATE x``, if it comes."""
        ahead = 1 if self.peek().says("DEFAULT") else 0
        if self.peek(ahead).says("CHARACTER") and self.peek(ahead + 1).says("SET"):
            self.accept("DEFAULT")
            self.expect("CHARACTER", "SET")
        elif self.peek(ahead).says("CHARSET") or self.peek(ahead).says("COLLATE"):
            self.accept("DEFAULT")
            self.next()
        else:
            return False
        self.accept("=")
        word = self.next()
        if word.text.upper() != "DEFAULT" and not (word.text.isascii() and word.text.replace("_", "").isalnum()):
            self.fail(f"{word.text[:_SHOWN]!r} is no character set or collation")
        return True


def is_name(word: Word) -> bool:
    """Whether a word may be a name: between backquotes, or one that is not reserved."""
    if word.is_literal or not word.text:
        return False
    return word.is_name or (_is_plain(word.text) and word.text.upper() not in _NO_NAMES)


def _is_option(word: Word) -> bool:
    return not word.is_name and word.text.upper() in OPTION_WORDS


def _is_plain(text: str) -> bool:
    """Whether a word that stands without backquotes consists of letters, digits, ``_`` and ``$``."""
    return text[0] in "_$" or text[0].isalnum() or ord(text[0]) > 0x7F


def _cut(text: str) -> str:
    """A name for a message."""
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
