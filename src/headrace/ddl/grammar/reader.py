"""The reader that all rules of the grammar use: it steps over expected words and collects the names among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from headrace.ddl.grammar.vocabulary import OPTION_WORDS, RESERVED
from headrace.ddl.lexer import Cursor, Word
from headrace.model.table import TableId, is_possible_name

MOST_PARTS = 8_192
"""The most columns, indexes, partitions or clauses in one list. It is TiDB's limit for partitions, its largest limit for a list."""
_SHOWN = 40
_NO_NAMES = RESERVED | OPTION_WORDS


class NotAcceptedError(Exception):
    """A statement, or a part of one, that Headrace does not run by itself. The message is a clause: "it has DATA DIRECTORY"."""


class Reader(Cursor):
    """Reads a statement. ``names`` collects every table, view and database that it names, resolved against ``database``.

    ``expressions`` collects what the server computes for each row, and ``operations`` counts its operations. ``compared`` is what
    it compares for the members of ENUM and SET columns. ``reads`` collects the tables that the query of a view reads, and
    ``queries`` counts its SELECTs, as in ``Judgement``.

    Methods that read raise NotAcceptedError if the next words are not what they expect.
    """

    def __init__(self, found: tuple[Word, ...], database: str) -> None:
        super().__init__(found)
        self.database = database
        self.names: list[TableId] = []
        self.expressions: list[tuple[Word, ...]] = []
        self.operations = 0
        self.compared = 0
        self.reads: tuple[TableId, ...] = ()
        self.queries = 0

    def fail(self, reason: str = "") -> NoReturn:
        """Raises NotAcceptedError with this reason. Without a reason, the message names the next word."""
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
        """Steps over one of these keywords if it comes next. Returns whether it did."""
        return any(self.accept(keyword) for keyword in keywords)

    def is_name(self, ahead: int = 0) -> bool:
        """Whether a name comes next: a word in backquotes, or one that is neither reserved nor a word of options."""
        return is_name(self.peek(ahead))

    def identifier(self) -> str:
        """Reads the name of a column, an index, a partition, a character set, …"""
        if not self.is_name():
            self.fail()
        return self.next().text

    def column(self) -> None:
        """Reads the name of a column. The name of its table may stand before it."""
        self.identifier()
        if self.accept("."):
            self.identifier_behind_dot()

    def identifiers(self) -> None:
        """Reads names between commas. Leaves a comma unread that begins another clause of ALTER TABLE."""
        self.identifier()
        while (
            self.peek().says(",")
            and self.is_name(1)
            and (self.at + 2 >= self.length or self.peek(2).text.upper() in (",", "(", ")", "INTO"))
        ):
            self.next()
            self.identifier()

    def table(self) -> TableId:
        """Reads the name of a table or view, with or without its database."""
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
        """Raises NotAcceptedError if no database or table can have one of these names."""
        for name in names:
            if not is_possible_name(name):
                self.fail(f"no database or table can have the name {_cut(name)!r}")

    def identifier_behind_dot(self) -> str:
        """Reads the name after a dot. Reserved words are names there, but ``OPTION_WORDS`` only in backquotes."""
        word = self.peek()
        if word.is_literal or not word.text or not (word.is_name or _is_plain(word.text)) or _is_option(word):
            self.fail()
        return self.next().text

    def tables(self) -> None:
        """Reads the names of tables between commas."""
        self.table()
        while self.accept(","):
            self.table()

    def text(self) -> None:
        """Reads a string."""
        if not self.peek().is_text:
            self.fail()
        self.next()

    def number(self) -> None:
        """Reads an unsigned integer."""
        if not (self.peek().is_literal and self.peek().text.isdecimal() and not self.peek().is_text):
            self.fail()
        self.next()

    def value(self) -> None:
        """Reads the value of an option: a number, a string, or a word. An equals sign may stand before it."""
        self.accept("=")
        if self.peek().is_literal and not self.done:
            self.next()
        elif not self.accept_any("DEFAULT", "BINARY", "COMPACT"):
            self.identifier()

    def in_parentheses(self, one: Callable[[], None]) -> None:
        """Reads a list in parentheses. ``one`` reads one part; there is at least one."""
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
        """Reads ``IF [NOT] EXISTS``, if it comes next."""
        if self.accept("IF"):
            self.accept("NOT")
            self.expect("EXISTS")

    def character_set(self) -> bool:
        """Reads ``[DEFAULT] CHARACTER SET x``, ``CHAR SET x``, ``CHARSET x`` or ``COLLATE x``. Returns whether one came next."""
        ahead = 1 if self.peek().says("DEFAULT") else 0
        word = self.peek(ahead)
        if (word.says("CHARACTER") or word.says("CHAR")) and self.peek(ahead + 1).says("SET"):
            self.accept("DEFAULT")
            self.next()
            self.expect("SET")
        elif word.says("CHARSET") or word.says("COLLATE"):
            self.accept("DEFAULT")
            self.next()
        else:
            return False
        self.accept("=")
        word = self.next()
        if word.says("DEFAULT"):
            self.fail("it takes the default character set or collation, which may be another one in the source than in the target")
        if not (word.text.isascii() and word.text.replace("_", "").isalnum()):
            self.fail(f"{word.text[:_SHOWN]!r} is no character set or collation")
        return True


def is_name(word: Word) -> bool:
    """Whether a word may be a name: in backquotes, or neither reserved nor a word of options."""
    if word.is_literal or not word.text:
        return False
    return word.is_name or (_is_plain(word.text) and word.text.upper() not in _NO_NAMES)


def _is_option(word: Word) -> bool:
    return not word.is_name and word.text.upper() in OPTION_WORDS


def _is_plain(text: str) -> bool:
    """Whether a word without backquotes consists of letters, digits, ``_`` and ``$``.

    Only the first character is checked: the lexer never puts these and signs into one word.
    """
    return text[0] in "_$" or text[0].isalnum() or ord(text[0]) > 0x7F


def _cut(text: str) -> str:
    """A name, shortened for a message."""
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
