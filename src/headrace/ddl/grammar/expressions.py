"""Checks that expressions of defaults, generated columns, checks, indexes and partitions only compute.

An expression is not parsed. Its words are checked one by one: it has no query, each function is one that only computes, and each
name is that of a column. Parentheses and operators may not nest deeper than a server can read (:mod:`headrace.ddl.grammar.depth`).
"""

from __future__ import annotations

from collections.abc import Collection

from headrace.ddl.grammar.depth import Depth
from headrace.ddl.grammar.reader import Reader
from headrace.ddl.grammar.vocabulary import BEFORE_PARENTHESIS, FUNCTIONS, OF_EXPRESSIONS, OPTION_WORDS, RESERVED, TIMES
from headrace.ddl.lexer import Word
from headrace.model.table import TableId

_NEVER = frozenset({"@", "@@", ":=", ";", ":", "\\"})
_CHARACTER_SETS = frozenset({"_UTF8MB4", "_UTF8", "_UTF8MB3", "_ASCII", "_LATIN1", "_BINARY", "_GBK", "_GB18030"})
_MOST_DEPTH = 100


def in_parentheses(reader: Reader) -> None:
    """Reads and checks a parenthesis with one expression, or with several between commas. Raises NotAcceptedError."""
    if not reader.peek().says("("):
        reader.fail()
    depth, nested = 0, Depth()
    while True:
        word = reader.next()
        if why := nested.excess(word, reader.peek()):
            reader.fail(why)
        depth += word.says("(") - word.says(")")
        if depth > _MOST_DEPTH:
            reader.fail(f"its parentheses are nested more than {_MOST_DEPTH} deep")
        if depth == 0:
            return
        if reader.done:
            reader.fail()
        look_at(reader, word, OF_EXPRESSIONS)
        if reader.peek().says(".") and reader.peek(2).says("."):
            reader.names.append(TableId(word.text, reader.peek(1).text))


def without_parentheses(reader: Reader) -> None:
    """Reads and checks an expression up to the comma or parenthesis after it. Raises NotAcceptedError."""
    nested = Depth()
    while not reader.done and not reader.peek().says(",") and not reader.peek().says(")"):
        if reader.peek().says("("):
            in_parentheses(reader)
            continue
        word = reader.next()
        if why := nested.excess(word, reader.peek()):
            reader.fail(why)
        look_at(reader, word, OF_EXPRESSIONS)


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
    if text.startswith("_") and reader.peek().is_literal and text not in _CHARACTER_SETS:
        reader.fail(f"{word.text!r} is no character set that is known")
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
    if reader.peek().text.upper() in _CHARACTER_SETS and reader.peek(1).is_literal:
        reader.next()
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
