"""Rewrites TiDB's DDL for servers that lack some of its features, with a notice about each thing that is lost.

``VECTOR`` becomes LONGTEXT outside TiDB, as with TiCDC: the data contain its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

import pymysql

from headrace.ddl.lexer import Cursor, rendered, words
from headrace.ddl.statement import StatementKind, read_statement
from headrace.model.table import TableId
from headrace.sinks.mysql import catalogue
from headrace.sinks.mysql.adaptation import collations, features, foreign_keys, mariadb
from headrace.sinks.mysql.adaptation.draft import Draft, UnadaptableError
from headrace.sinks.mysql.adaptation.unchanged import require_same_columns
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.server_errors import ErrorClass, classify

__all__ = ["Adapted", "Server", "UnadaptableError", "adapt", "adapt_for"]

_OF_INDEX = re.compile(r"\s*(?:DROP|RENAME|ALTER)\s+(?:INDEX|KEY)\b", re.IGNORECASE)
_VECTOR = re.compile(r"\bVECTOR\b(?!\s+(?:INDEX|KEY)\b)(?:\s*<\s*FLOAT\s*>)?(?:\s*\(\s*\d+\s*\))?", re.IGNORECASE)


_OF_TABLES = frozenset({StatementKind.CREATE_TABLE, StatementKind.ALTER_TABLE, StatementKind.CREATE_INDEX, StatementKind.OTHER})
_WITH_OPTIONS = frozenset({StatementKind.CREATE_DATABASE, StatementKind.ALTER_DATABASE})


@dataclass(frozen=True)
class Adapted:
    """A statement for this server, empty if nothing of it is left, and notices about changes."""

    statement: str
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Server:
    """What adaptations depend on.

    ``knows_collation`` tells whether the server has a collation; ``has_index`` and ``has_foreign_key`` whether the statement's
    table has an index or key of that name.
    """

    name: str
    knows_collation: Callable[[str], bool] = lambda _: True
    has_index: Callable[[str], bool] = lambda _: True
    has_foreign_key: Callable[[str], bool] = lambda _: True

    @property
    def is_tidb(self) -> bool:
        return self.name == "TiDB"

    @property
    def is_mariadb(self) -> bool:
        return self.name == "MariaDB"


def adapt(statement: str, session: MySqlSession, database: str, foreign: Collection[TableId] = ()) -> Adapted:
    """The statement in a form that this server accepts. Raises UnadaptableError.

    ``database`` is that of unqualified names; ``foreign`` are tables to which foreign keys may not refer.
    """
    name = "TiDB" if session.is_tidb else "MariaDB" if "MariaDB" in session.version else "MySQL"
    tables = read_statement(statement, database).tables

    def has_index(index: str) -> bool:
        return not tables or catalogue.has_index(session, tables[0], index)

    def has_foreign_key(key: str) -> bool:
        return not tables or catalogue.has_foreign_key(session, tables[0], key)

    server = Server(name, lambda collation: _knows_collation(session, collation), has_index, has_foreign_key)
    return adapt_for(statement, server, database, foreign)


def adapt_for(statement: str, server: Server, database: str = "", foreign: Collection[TableId] = ()) -> Adapted:
    """See :func:`adapt`. The result has no comments."""
    statement = _written_anew(statement)
    draft = Draft(statement)
    kind = read_statement(statement, database).kind
    if kind in _OF_TABLES:
        foreign_keys.leave_out(draft, database, foreign)
        foreign_keys.leave_out_missing(draft, server.name, server.has_foreign_key)
    if kind in _OF_TABLES | _WITH_OPTIONS:
        features.leave_out_of_others(draft)
    if kind in _OF_TABLES | _WITH_OPTIONS and not server.is_tidb:
        features.leave_out(draft, server.name)
        if kind in _OF_TABLES:
            draft.replace(_VECTOR, "LONGTEXT", "a VECTOR column is kept as its text (LONGTEXT).")
        if kind in _OF_TABLES and server.is_mariadb:
            mariadb.rewrite(draft)
        _leave_out_indexes(draft, server)
    if kind is StatementKind.CREATE_VIEW:
        features.make_views_own(draft)
        if not server.is_tidb:
            features.refuse_functions_of_tidb(statement, server.name)
        if server.is_mariadb:
            mariadb.rewrite_view(draft)
    collations.replace_unknown(draft, server.name, server.knows_collation)
    if statement.strip() and not draft.text.strip():
        draft.tell(f"nothing of the statement is left to do for {server.name}.")
    if kind in _OF_TABLES:
        require_same_columns(statement, draft.text, database)
    adapted = _written_anew(draft.text)
    if server.is_mariadb:
        mariadb.require_no_introducer(adapted)
    return Adapted(adapted, tuple(draft.notices))


def _written_anew(statement: str) -> str:
    """The words of the statement, in the form that every server reads as these words (:func:`headrace.ddl.lexer.rendered`).

    Comments of TiDB are opened for every server: a server that skipped a comment would read other words than those that were
    judged. The text of a statement without words stays, so that its judgement says what is wrong with it.
    """
    found = words(statement)
    return statement if found is None else rendered(found)


def _leave_out_indexes(draft: Draft, server: Server) -> None:
    """An index that was left out at its creation cannot be dropped, renamed or hidden."""

    def is_of_missing_index(text: str, masked: str) -> bool:
        if not _OF_INDEX.match(masked):
            return False
        clause = Cursor(words(text) or (), begin=2)
        clause.accept("IF", "EXISTS")
        return not server.has_index(clause.next().text)

    draft.drop_clauses(is_of_missing_index, f"{{clause}} was left out: {server.name} has no such index.")


def _knows_collation(session: MySqlSession, name: str) -> bool:
    charset = name.partition("_")[0]
    if charset.lower() == "binary" or name in session.collations:  # all servers have "binary"; the query may fail for it
        return True
    try:
        session.scalar(f"SELECT CONVERT('' USING {charset}) COLLATE {name}")
    except pymysql.err.MySQLError as error:
        if classify(error) is not ErrorClass.REFUSED:
            raise
        return False
    session.collations.add(name)
    return True
