"""A check of what the adaptations must leave alone: the columns that a statement defines, each with its own attributes.

Adaptations find what they change by patterns in the text. This reads both statements by their words, and so makes none of their
mistakes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from headrace.ddl.defaults import defined_columns
from headrace.ddl.lexer import Cursor, Word
from headrace.ddl.statement import read_statement
from headrace.model.table import folded_name
from headrace.sinks.mysql.adaptation.collations import EQUAL
from headrace.sinks.mysql.adaptation.draft import UnadaptableError

_NO_COLUMNS = frozenset(
    {"CHECK", "COLUMNAR", "CONSTRAINT", "FOREIGN", "FULLTEXT", "HYBRID", "INDEX", "KEY", "LIKE", "PARTITION", "PRIMARY", "SPATIAL"}
    | {"STATS_EXTENDED", "UNIQUE", "VECTOR"}
)
_ATTRIBUTES = frozenset({"AUTO_INCREMENT", "BINARY", "COMMENT", "PRIMARY", "UNIQUE", "UNSIGNED", "ZEROFILL"})
_NAMES_CHARSET = frozenset({"CHARSET", "COLLATE"})
_SUBSTITUTES = {"gb18030": "utf8mb4", **EQUAL}


def require_same_columns(before: str, after: str, database: str) -> None:
    """Raises UnadaptableError if an adapted statement defines other columns than the statement of before, or with other attributes.

    Compared are type, nullability, character set, collation, literals (default, comment) and keys. Generated columns may lose NOT
    NULL, and a default that is an expression may be left out. ``database`` is that of names without one.
    """
    if before == after or not after.strip():
        return
    wanted, found = _columns(before, database), _columns(after, database)
    if wanted != found:
        name = next((name for name, _ in wanted - found), "a column")
        raise UnadaptableError(
            f"Its statement as adapted for the target defines {name} in another way: {after}.",
            "This is a bug of Headrace: please report it. Make the change by hand and skip it, or edit it.",
        )


def _columns(statement: str, database: str) -> Counter[tuple[str, tuple[str, ...]]]:
    """The columns that a statement defines: how often each name comes with each attributes, which are in order of the alphabet."""
    definitions = (definition for definition in defined_columns(read_statement(statement, database)) if definition)
    return Counter(
        (folded_name(definition[0].text), tuple(sorted(_attributes(Cursor(definition[1:])))))
        for definition in definitions
        if definition[0].is_name or definition[0].text.upper() not in _NO_COLUMNS
    )


def _attributes(words: Cursor) -> Iterator[str]:
    """What the definition of a column says, after its name, without the places and the contents of its parentheses."""
    kind = words.next()
    is_text_of_vector = kind.says("VECTOR") or kind.says("LONGTEXT")
    yield "LONGTEXT" if is_text_of_vector else " ".join([kind.text.upper(), *(word.text for word in words.group())])
    # An equals sign before the name of a character set says nothing, and the name may be in quotes.
    rest = [word for word in _outside(words) if not word.says("=")]
    is_generated, is_charset = False, False
    for at, word in enumerate(rest):
        is_generated = is_generated or word.says("AS")
        was_charset, is_charset = is_charset, _names_charset(rest, at)
        if was_charset:
            option = "COLLATE" if rest[at - 1].says("COLLATE") else "CHARSET"
            yield f"{option} {_SUBSTITUTES.get(word.text.lower(), word.text.lower())}"
        elif word.is_literal:
            yield repr(word.text)
        elif not word.is_name and word.text.upper() in _ATTRIBUTES:
            yield word.text.upper()
    if not is_generated and any(word.says("NOT") and behind.says("NULL") for word, behind in pairwise(rest)):
        yield "NOT NULL"


def _names_charset(words: Sequence[Word], at: int) -> bool:
    """Whether the name of a character set or collation comes after the word."""
    word = words[at]
    if word.is_literal or word.is_name:
        return False
    behind_character = at > 0 and (words[at - 1].says("CHARACTER") or words[at - 1].says("CHAR"))
    return word.text.upper() in _NAMES_CHARSET or (word.says("SET") and behind_character)


def _outside(words: Cursor) -> Iterator[Word]:
    while not words.done:
        if words.peek().says("("):
            words.group()
        else:
            yield words.next()
