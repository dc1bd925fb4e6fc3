"""Decides whether Headrace may run a statement by itself, and collects the names in it.

The grammar is that of TiDB's DDL as TiCDC passes it on (TiDB documentation, "SQL Statements"). A statement that is not in the
grammar, or that does more than its kind says, waits for a person's decision. It is not an error of the source, but its effect is
unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.ddl.grammar import alterations, definitions, expressions
from headrace.ddl.grammar import views as view_queries
from headrace.ddl.grammar.reader import NotAcceptedError, Reader
from headrace.ddl.lexer import MOST_WORDS, Word, has_too_many_words, words
from headrace.ddl.statement_cache import remembered
from headrace.model.table import TableId

_MOST_SIDE_BY_SIDE = 16
_INDEX_KINDS = ("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR", "HYBRID")


@dataclass(frozen=True)
class Judgement:
    """The result of checking a statement against the grammar.

    Names are resolved against the current database. There are none if there is an objection.
    """

    objection: str = ""
    """Why the statement does not run by itself, as a clause such as "it copies rows by a query"; empty if it may run."""
    names: frozenset[TableId] = frozenset()
    """All tables, views and databases (``TableId(db)``) that the statement names."""
    selects: frozenset[TableId] = frozenset()
    """The tables and views that the query of a view reads."""
    occurrences: tuple[TableId, ...] = ()
    """The same as ``selects``, each as often as the query reads it: if a common table expression (CTE) is named twice, what it
    reads counts twice."""
    queries: int = 0
    """The number of SELECTs in the query of a view, counted in the same way."""
    expressions: tuple[tuple[Word, ...], ...] = ()
    """What the server computes for each row: generated columns, checks, defaults, indexes, the key of partitions."""


@remembered
def judge(statement: str, database: str) -> Judgement:
    """Checks a statement against the grammar; never raises.

    ``database`` is the current database for names without one. There is no objection to an empty text.
    """
    found = words(statement)
    if has_too_many_words(statement):
        return Judgement(f"it has more than {MOST_WORDS:,} words")
    if found is None:
        return Judgement(
            "a string, a name or a comment in it does not end, a number runs into a word, or a character in it belongs to no word"
        )
    if not found:
        return Judgement()
    if _has_texts_side_by_side(found):
        return Judgement(f"it has more than {_MOST_SIDE_BY_SIDE} texts side by side")
    reader = Reader(found, database)
    try:
        _statement(reader)
        if not reader.done:
            reader.fail()
    except NotAcceptedError as error:
        return Judgement(str(error))
    selects = frozenset(reader.reads)
    return Judgement("", frozenset(reader.names) | selects, selects, reader.reads, reader.queries, tuple(reader.expressions))


def _has_texts_side_by_side(found: tuple[Word, ...]) -> bool:
    """Whether more than a few texts follow one another. Servers join them, MariaDB in time by the square of their number."""
    count = 0
    for word in found:
        count = count + 1 if word.is_text else 0
        if count > _MOST_SIDE_BY_SIDE:
            return True
    return False


def judge_expression(text: str) -> str:
    """The objection to an expression, as in ``Judgement.objection``; never raises.

    The expression may come from a statement that was not judged.
    """
    reader = Reader(words(f"({text})") or (), "")
    try:
        expressions.in_parentheses(reader)
        if not reader.done:
            reader.fail()
    except NotAcceptedError as error:
        return str(error)
    return ""


def _statement(reader: Reader) -> None:
    rules = {"CREATE": _create, "DROP": _drop, "ALTER": _alter, "TRUNCATE": _truncate, "RENAME": _rename}
    rules |= {"RECOVER": _bring_back, "FLASHBACK": _bring_back}
    word = reader.next()
    rule = None if word.is_name or word.is_literal else rules.get(word.text.upper())
    if rule is None:
        reader.fail(f"{word.text[:40]!r} is not the beginning of a schema change")
    rule(reader)


def _create(reader: Reader) -> None:
    if reader.accept_any("DATABASE", "SCHEMA"):
        reader.existence()
        _database(reader)
        definitions.database_options(reader)
        return
    if reader.accept("TABLE"):
        _create_table(reader)
        return
    if reader.says_any("INDEX", *_INDEX_KINDS):
        reader.accept_any(*_INDEX_KINDS)
        reader.expect("INDEX")
        reader.existence()
        reader.identifier()
        _of_table(reader)
        definitions.index(reader)
        return
    _create_view(reader)


def _of_table(reader: Reader) -> None:
    """Reads ``[USING BTREE] ON t``."""
    if reader.accept("USING"):
        reader.value()
    reader.expect("ON")
    reader.table()


def _create_table(reader: Reader) -> None:
    reader.existence()
    reader.table()
    if reader.accept("LIKE"):
        reader.table()
        return
    if reader.accept("(", "LIKE"):
        reader.table()
        reader.expect(")")
        return
    reader.in_parentheses(lambda: definitions.part(reader))
    definitions.table_options(reader)
    definitions.partitioned(reader)
    definitions.table_options(reader)


def _create_view(reader: Reader) -> None:
    reader.accept("OR", "REPLACE")
    if reader.accept("ALGORITHM"):
        reader.expect("=")
        if not reader.accept_any("UNDEFINED", "MERGE", "TEMPTABLE"):
            reader.fail()
    if reader.accept("DEFINER"):
        reader.expect("=")
        _account(reader)
    if reader.accept("SQL", "SECURITY") and not reader.accept_any("DEFINER", "INVOKER"):
        reader.fail()
    if not reader.accept("VIEW"):
        reader.fail("it creates neither a database nor a table, an index or a view")
    reader.table()
    if reader.peek().says("("):
        reader.in_parentheses(lambda: _named(reader))
    reader.expect("AS")
    view_queries.query(reader)


def _named(reader: Reader) -> None:
    reader.identifier()


def _account(reader: Reader) -> None:
    """Reads the user after DEFINER. It is not passed on to a target."""
    if reader.accept("CURRENT_USER"):
        reader.accept("(", ")")
        return
    for _ in range(2):
        if reader.peek().is_text or (reader.peek().is_name and not reader.peek().text):
            reader.next()
        else:
            reader.identifier()
        if not reader.accept("@"):
            return


def _drop(reader: Reader) -> None:
    if reader.accept_any("DATABASE", "SCHEMA"):
        reader.existence()
        _database(reader)
        return
    if reader.accept("INDEX"):
        reader.existence()
        reader.identifier()
        _of_table(reader)
        while reader.accept_any("LOCK", "ALGORITHM"):
            reader.value()
        return
    if not reader.accept_any("TABLE", "TABLES", "VIEW"):
        reader.fail("it drops neither a database nor a table, an index or a view")
    reader.existence()
    reader.tables()
    reader.accept_any("RESTRICT", "CASCADE")


def _alter(reader: Reader) -> None:
    if reader.accept_any("DATABASE", "SCHEMA"):
        unnamed = reader.says_any("DEFAULT", "CHAR", "CHARACTER", "CHARSET", "COLLATE", "SET", "ENCRYPTION", "PLACEMENT")
        if unnamed:
            reader.names.append(TableId(reader.database))
        else:
            _database(reader)
        definitions.database_options(reader)
        return
    reader.accept("IGNORE")
    if not reader.accept("TABLE"):
        reader.fail("it alters neither a database nor a table")
    reader.table()
    alterations.clauses(reader)


def _truncate(reader: Reader) -> None:
    reader.accept("TABLE")
    reader.table()


def _rename(reader: Reader) -> None:
    reader.expect("TABLE")
    while True:
        reader.table()
        reader.expect("TO")
        reader.table()
        if not reader.accept(","):
            return


def _bring_back(reader: Reader) -> None:
    reader.expect("TABLE")
    reader.table()
    if reader.accept("TO"):
        reader.table()


def _database(reader: Reader) -> None:
    database = reader.identifier()
    reader.check_possible(database)
    reader.names.append(TableId(database))
