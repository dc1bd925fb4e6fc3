"""Runs one statement of a schema change, or a person's in its place, and explains why a server refused it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pymysql

from headrace import faults
from headrace.ddl.lexer import words
from headrace.ddl.statement import StatementKind, read_statement
from headrace.faults import Step
from headrace.model.events import SchemaChange
from headrace.model.outcome import Problem, Remedy
from headrace.model.table import TableId
from headrace.sinks.metadata_applier import SchemaChangeRefused, SchemaChangeUnclear
from headrace.sinks.mysql import catalogue, denied
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.server_errors import ErrorClass, classify, error_code, error_text
from headrace.sinks.mysql.types import qualified

BY_HAND = "Remove what is in its way, and it is tried again; or bring the target to the same state by hand, and skip it."
_LOAD_ANEW = "Load the table anew and skip the statement, or leave it out by a filter."
_STATEMENT_LIMIT = 300
_SYNTAX = frozenset({1064, 1149, 1235, 4161})
_MOST_BROKEN = 3
_BROKEN = frozenset({1927, 2006, 2013})  # killed, gone, lost; not a server that shuts down or is read-only
_OF_DATABASES = frozenset({StatementKind.CREATE_DATABASE, StatementKind.ALTER_DATABASE, StatementKind.DROP_DATABASE})
# A statement with another first word may end a transaction, or have an effect that ROLLBACK does not undo.
_OF_ROWS = frozenset({"UPDATE", "INSERT", "REPLACE", "DELETE"})


def execute(session: MySqlSession, change: SchemaChange, statement: str) -> None:
    """Runs a statement of the change, in its database and at its time. Raises the client's errors."""
    with at_its_time(session, change):
        faults.before(Step.MYSQL_STATEMENT, statement)
        session.run_verbatim(statement)
    faults.after(Step.MYSQL_STATEMENT, statement)


@contextmanager
def at_its_time(session: MySqlSession, change: SchemaChange) -> Iterator[None]:
    """Inside the block, the session is in the change's database and at its time. Raises the client's errors.

    A statement must not touch tables of a database that the session used before. If its own database does not exist, the server
    reports that.
    """
    of_database = read_statement(change.statement, change.database).kind in _OF_DATABASES
    if change.database and not (of_database and not catalogue.exists(session, TableId(change.database))):
        session.run(f"USE {qualified(TableId(change.database))}")
    # Existing rows get defaults of the source's time: CURRENT_TIMESTAMP is the time when the source ran the statement.
    session.run(f"SET SESSION timestamp = {change.time_ms / 1000:.3f}")
    try:
        yield
    finally:
        session.run("SET SESSION timestamp = DEFAULT")


@dataclass
class Sending:
    """The statements of one schema change that were sent to the server, across all retries.

    Only the server's own refusal of a statement shows that it did not run.
    """

    change: SchemaChange
    is_begun: bool = False
    """A statement was sent. From then on only the target's state shows the result, and no later error does."""
    taken: int = 0
    """The number of statements that the server accepted."""
    broken: int = 0
    """The number of connections that broke while the server ran a statement."""

    def send(self, session: MySqlSession, statement: str) -> None:
        """Sends a statement, and waits for the result.

        Raises SchemaChangeRefused if the server refuses it, and the client's errors if they are transient. Raises
        SchemaChangeUnclear if the server has accepted an earlier one, or if three connections broke over it, since it may be what
        breaks the connection or the server: then no later run tries it until a person decides.
        """
        if self.broken >= _MOST_BROKEN:
            message = f"the connection to the target broke off {self.broken} times while it ran this: {shown(self.change)}."
            raise unclear(self.change, f"{message} See the target's error log.")
        faults.before(Step.MYSQL_STATEMENT, statement)
        self.is_begun = True
        try:
            if statement.startswith("DELETE "):  # one of Headrace's own (see ``partitions``)
                session.affect(statement)  # MariaDB reports success for a DELETE that was killed before it deleted anything
            else:
                session.run_verbatim(statement)
        except pymysql.err.MySQLError as error:
            if classify(error) is not ErrorClass.REFUSED:
                self.broken += error_code(error) in _BROKEN
                raise
            raise self._refused(server_refused(self.change, error, session)) from None
        self.taken += 1
        faults.after(Step.MYSQL_STATEMENT, statement)

    def _refused(self, refusal: SchemaChangeRefused) -> SchemaChangeRefused | SchemaChangeUnclear:
        if not self.taken:
            return refusal
        return unclear(self.change, f"{refusal.problem.message} Before that, the target had applied a part of it.")


def changes_rows_only(statement: str) -> bool:
    """Whether a statement changes rows and no definition, so that it can be part of a transaction."""
    first = (words(statement) or ())[:1]
    return any(word.says(keyword) for word in first for keyword in _OF_ROWS)


def shown(change: SchemaChange) -> str:
    """The change's statement for a message, shortened if it is long."""
    statement = " ".join((change.statement or "the change of shape").split())
    return statement if len(statement) <= _STATEMENT_LIMIT else statement[:_STATEMENT_LIMIT] + "…"


def refused(change: SchemaChange, message: str, hint: str = BY_HAND) -> SchemaChangeRefused:
    return SchemaChangeRefused(Problem(change.table_id, message, place=change.origin, hint=hint))


def unclear(change: SchemaChange, message: str) -> SchemaChangeUnclear:
    return SchemaChangeUnclear(Problem(change.table_id, message, place=change.origin))


def server_refused(change: SchemaChange, error: pymysql.err.MySQLError, session: MySqlSession | None) -> SchemaChangeRefused:
    """Why the server did not run the change's statement on this session."""
    reason = "does not know this syntax, which TiDB does" if error_code(error) in _SYNTAX else "refused the statement"
    message = f"the target {reason}: {error_text(error)}; the statement is {shown(change)}."
    return refused(change, message, denied.to_grant(session, error, _databases(change)) or BY_HAND)


def _databases(change: SchemaChange) -> frozenset[str]:
    """The databases that the change's statement is about."""
    return frozenset({change.database, *(name.database for name in change.touches)})


def refuse_rows_brought_back(change: SchemaChange) -> None:
    """Raises SchemaChangeRefused for RECOVER and FLASHBACK, which only TiDB has.

    A TiDB target may have dropped something else than the source. A table that lacked rows, and was waiting to be loaded, would
    come back as a complete one.
    """
    if read_statement(change.statement, change.database).brings_back:
        message = f"the statement brings rows back that are in no file, and may not be in the target either: {shown(change)}."
        raise SchemaChangeRefused(Problem(change.table_id, message, place=change.origin, hint=_LOAD_ANEW, remedy=Remedy.RESYNC))
