"""Reads the definitions of tables from a script of SQL statements, as mysqldump, Dumpling and SHOW CREATE TABLE write them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.ddl.lexer import Cursor, Word, statements_in, words
from headrace.ddl.statement import Statement, StatementKind, read_statement
from headrace.model.table import TableId

_DEFINITIONS = frozenset(
    {
        *(StatementKind.CREATE_DATABASE, StatementKind.ALTER_DATABASE, StatementKind.DROP_DATABASE),
        *(StatementKind.CREATE_TABLE, StatementKind.ALTER_TABLE, StatementKind.CREATE_INDEX, StatementKind.DROP_TABLE),
    }
)


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
    """Whether it drops the table or database: a script may make a table in the place of a view first, and drop what it makes."""


def definitions(script: str, database: str = "") -> Iterator[Definition]:
    """The statements of a script that create, alter or drop databases and tables, in their order. Others are passed over.

    ``database`` is the current one at the beginning. Raises ValueError, a sentence with the line, if the script cannot be read, or
    changes tables in a way that no dump does.
    """
    counted, line = 0, 1
    for begin, end in statements_in(script):
        text = script[begin:end]
        starts = begin + len(text) - len(text.lstrip())
        line += script.count("\n", counted, starts)
        counted = starts
        found = words(text)
        # Only the line is named: a file that is not a SQL script may hold a password.
        if found is None or (found and found[0].says("DELIMITER")):
            raise ValueError(f"line {line}: the statement cannot be read.")
        if found and found[0].says("USE"):
            database = Cursor(found, 1).next().text
            continue
        if len(found) > 1 and found[1].says("TEMPORARY"):
            continue
        read = read_statement(text, database)
        if unfollowed := _unfollowed(read, found):
            raise ValueError(f"line {line}: {unfollowed} is not followed.")
        if read.kind not in _DEFINITIONS:
            continue
        if any(word.says(";") for word in found):
            raise ValueError(f"line {line}: the statement does not end before the next one.")
        if not read.tables or not read.tables[0].database:
            raise ValueError(f"line {line}: it is not known in which database the table is: no USE comes before it.")
        is_drop = read.kind in (StatementKind.DROP_TABLE, StatementKind.DROP_DATABASE)
        for table_id in read.tables if is_drop else read.tables[:1]:
            yield Definition(table_id, database, text.strip(), line, read.kind is StatementKind.CREATE_TABLE, is_drop)


def _unfollowed(read: Statement, found: tuple[Word, ...]) -> str:
    """What a statement is that changes tables in a way that no dump does; empty for all others."""
    if Cursor(found).accept("CREATE", "OR", "REPLACE", "TABLE"):
        return "CREATE OR REPLACE TABLE"
    if read.kind is StatementKind.ALTER_TABLE and read.renames:
        return "ALTER TABLE with RENAME"
    return read.kind.value if read.kind is StatementKind.RENAME_TABLE else ""
