"""Checks that expressions of defaults, generated columns, checks, indexes and partitions only compute.

An expression is not parsed. Its words are checked one by one: it has no query, each function is one that only computes, and each
name is that of a column. Its depth and its operations are bounded (:mod:`headrace.ddl.grammar.effort`).
"""

from __future__ import annotations

from collections.abc import Collection

from headrace.ddl.grammar.effort import MOST_OPERATIONS, Effort, too_many_operations
from headrace.ddl.grammar.reader import Reader
from headrace.ddl.grammar.vocabulary import BEFORE_PARENTHESIS, FUNCTIONS, OF_EXPRESSIONS, OPTION_WORDS, RESERVED, TIMES
from headrace.ddl.lexer import INTRODUCERS_OF_UTF8, Word, is_introducer
from headrace.model.table import TableId

_NEVER = frozenset({"@", "@@", ":=", ";", ":", "\\"})
_SHOWN = 40


def in_parentheses(reader: Reader) -> None:
    """Reads and checks a parenthesis with one expression, or with several between commas. Raises NotAcceptedError."""
    begin, effort = reader.at, Effort()
    _parenthesis(reader, effort)
    count(reader, effort.operations)
    reader.expressions.append(reader.since(begin))


def constants(reader: Reader) -> None:
    """The same for the bounds of a partition, which the server computes once. Only searches count among the statement's operations,
    since a table may have thousands of bounds."""
    effort = Effort()
    _parenthesis(reader, effort)
    count(reader, effort.of_searches)


def _parenthesis(reader: Reader, effort: Effort) -> None:
    if not reader.peek().says("("):
        reader.fail()
    depth = 0
    while True:
        word = reader.next()
        if why := effort.read(word, reader.peek()):
            reader.fail(why)
        depth += word.says("(") - word.says(")")
        if depth == 0:
            return
        if reader.done:
            reader.fail()
        look_at(reader, word, OF_EXPRESSIONS)
        if reader.peek().says(".") and reader.peek(2).says("."):
            reader.names.append(TableId(word.text, reader.peek(1).text))


def without_parentheses(reader: Reader) -> None:
    """Reads and checks an expression up to the comma or parenthesis after it. Raises NotAcceptedError."""
    begin, depth, effort = reader.at, 0, Effort()
    while not reader.done and (depth or not (reader.peek().says(",") or reader.peek().says(")"))):
        word = reader.next()
        if why := effort.read(word, reader.peek()):
            reader.fail(why)
        depth += word.says("(") - word.says(")")
        look_at(reader, word, OF_EXPRESSIONS)
    count(reader, effort.operations)
    reader.expressions.append(reader.since(begin))


def count(reader: Reader, operations: int) -> None:
    """Counts operations of a statement. Raises NotAcceptedError if they are too many."""
    reader.operations += operations
    if reader.operations > MOST_OPERATIONS:
        reader.fail(too_many_operations())


def look_at(reader: Reader, word: Word, keywords: Collection[str]) -> None:
    """Checks the word of an expression that was just read. Raises NotAcceptedError.

    ``keywords`` are the reserved words that it may be.
    """
    is_called = reader.peek().says("(")
    if word.is_literal:
        return
    if word.is_name:
        if is_called:
            reader.fail(f"it calls {word.text}, which is not a function that is known")
        return
    text = word.text.upper()
    if is_called and reader.before.says("."):
        reader.fail(f"it calls {word.text} of a database")
    if text in _NEVER:
        reader.fail(f"an expression has {word.text!r}")
    if is_introducer(word, reader.peek()) and not reader.done:
        _require_plain(reader, word, reader.peek())
    if text in ("NEXT", "PREVIOUS") and reader.peek().says("VALUE"):
        reader.fail("it reads a sequence")
    if is_called and text in FUNCTIONS:
        return
    if is_called and not word.is_sign and text not in BEFORE_PARENTHESIS:
        reader.fail(f"it calls {text}, which is not a function that is known")
    if text == "FOR" and reader.peek().is_literal:
        return  # SUBSTRING(… FROM 1 FOR 2)
    if text == "OF" and reader.peek().says("("):
        return  # MEMBER OF (…)
    if (text in RESERVED and text not in keywords) or text in OPTION_WORDS:
        reader.fail(f"an expression has {text}")


def _require_plain(reader: Reader, introducer: Word, literal: Word) -> None:
    """Raises NotAcceptedError for a literal with a character set that a server may read, or store, as another one than it is here.

    A quote or a backslash may be part of a character there. And MariaDB (10.11) stores an expression as text, in which it escapes
    nothing in such a literal: what follows a quote in it would be run as SQL, whatever the character set. TiDB itself writes
    :data:`~headrace.ddl.lexer.INTRODUCERS_OF_UTF8` before the texts of an expression, which adaptation for MariaDB removes.
    """
    if introducer.text.upper() not in INTRODUCERS_OF_UTF8 or not literal.is_text:
        shown = introducer.text[:_SHOWN]
        reader.fail(f"a literal has the character set {shown}, which servers store differently. Write it as a text without {shown}")


def default(reader: Reader) -> None:
    """Reads and checks what follows DEFAULT. Raises NotAcceptedError."""
    if reader.accept_any("NULL", "TRUE", "FALSE"):
        return
    if _sequence(reader):
        return
    if reader.accept("("):
        if _sequence(reader):
            reader.expect(")")
            return
        reader.back()
        in_parentheses(reader)
        return
    reader.accept_any("-", "+")
    if not reader.done and reader.peek().is_literal:
        reader.next()
        while reader.peek().is_text:
            reader.next()
        return
    if is_introducer(reader.peek(), reader.peek(1)):
        _require_plain(reader, reader.next(), reader.peek())
        reader.next()
        return
    call(reader)


def call(reader: Reader) -> None:
    """Reads and checks a function with its arguments, or a function of the time without any. Raises NotAcceptedError."""
    word = reader.next()
    text = word.text.upper()
    if word.is_name or word.is_literal or text not in FUNCTIONS:
        reader.fail(f"it calls {word.text}, which is not a function that is known")
    if reader.peek().says("("):
        in_parentheses(reader)
    elif text not in TIMES:
        reader.fail()


def _sequence(reader: Reader) -> bool:
    """Reads the next value of a sequence. Returns whether it came next.

    Sequences are not replicated, so adaptation for a target removes such a default.
    """
    if reader.peek().says("NEXT") and reader.peek(1).says("VALUE") and reader.peek(2).says("FOR"):
        for _ in range(3):
            reader.next()
        reader.table()
        return True
    if reader.peek().says("NEXTVAL") and reader.peek(1).says("("):
        reader.next()
        reader.next()
        reader.table()
        reader.expect(")")
        return True
    return False
