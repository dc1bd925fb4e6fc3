"""Reads the definitions of tables from a script of SQL statements, as mysqldump, Dumpling and SHOW CREATE TABLE write them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.ddl.lexer import Cursor, Word, ends_of_statements, words
from headrace.ddl.statement import StatementKind, read_statement
from headrace.model.table import TableId

_DEFINITIONS = frozenset(
    {
        *(StatementKind.CREATE_DATABASE, StatementKind.ALTER_DATABASE),
        *(StatementKind.CREATE_TABLE, StatementKind.ALTER_TABLE, StatementKind.CREATE_INDEX, StatementKind.DROP_TABLE),
    }
)
_UNFOLLOWED = frozenset({StatementKind.RENAME_TABLE, StatementKind.DROP_DATABASE})
_ROUTINES = re.compile(r"^[ \t]*DELIMITER(?![ \t]+;[ \t]*\r?$).*?^[ \t]*DELIMITER[ \t]+;[ \t]*\r?$", re.M | re.S | re.I)
"""Triggers, procedures and events, which have semicolons inside."""


@dataclass(frozen=True)
class Definition:
    """A statement that defines a table or a database."""

    table_id: TableId
    """The table, or the database."""
    database: str
    """The current database."""
    text: str
    line: int
    """Where it begins, from 1."""
    creates: bool = False
    """Whether it creates the table."""
    drops: bool = False
    """Whether it drops the table: a script may make a table in the place of a view first."""


def definitions(script: str, database: str = "") -> Iterator[Definition]:
    """The statements of a script that create, alter or drop databases and tables, in their order. Others are passed over.

    ``database`` is the current one at the beginning. Raises ValueError, a sentence with the line, if the script cannot be read, or
    changes tables in a way that no dump does.
    """
    script = _ROUTINES.sub(lambda found: "\n" * found[0].count("\n"), script)
    begin, lines = 0, 1
    for end in ends_of_statements(script):
        text = script[begin:end]
        line = lines + text[: len(text) - len(text.lstrip())].count("\n")
        begin, lines = end + 1, lines + text.count("\n")
        found = words(text)
        if found is None:
            raise ValueError(f"line {line}: the statement cannot be read: {' '.join(text.split())[:80]!r}.")
        if found and found[0].says("USE"):
            database = Cursor(found, 1).next().text
            continue
        if len(found) > 1 and found[1].says("TEMPORARY"):
            continue
        read = read_statement(text, database)
        if read.kind in _UNFOLLOWED or _replaces_table(found):
            raise ValueError(f"line {line}: this statement is not followed: {' '.join(text.split())[:80]!r}.")
        if read.kind not in _DEFINITIONS:
            continue
        if not read.tables or not read.tables[0].database:
            raise ValueError(f"line {line}: it is not known in which database the table is: no USE comes before it.")
        is_drop = read.kind is StatementKind.DROP_TABLE
        for table_id in read.tables if is_drop else read.tables[:1]:
            yield Definition(table_id, database, text.strip(), line, read.kind is StatementKind.CREATE_TABLE, is_drop)


def _replaces_table(found: tuple[Word, ...]) -> bool:
    return Cursor(found).accept("CREATE", "OR", "REPLACE", "TABLE")
