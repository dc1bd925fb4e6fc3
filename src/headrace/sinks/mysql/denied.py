"""Tells a person what to grant when the server denies a statement because a right is missing."""

from __future__ import annotations

from collections.abc import Collection

import pymysql

from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.excess import Account
from headrace.sinks.mysql.grants import escaped
from headrace.sinks.mysql.server_errors import error_code, error_text
from headrace.sinks.mysql.text import quote_name

_OF_DATABASES = frozenset({1044, 1142, 1143})
"""The error numbers for a missing right on a database, a table or a column."""
_AGAIN = "The next run tries again, and a run that is active does so within 30 seconds."


def account_of(session: MySqlSession, ledger: str) -> Account:
    """The account of a session. ``ledger`` is the name of the ledger's database."""
    user, _, host = str(session.scalar("SELECT CURRENT_USER()")).rpartition("@")
    return Account(f"{quote_name(user)}@{quote_name(host)}", ledger, session.is_mariadb)


def to_grant(session: MySqlSession | None, error: BaseException, databases: Collection[str]) -> str:
    """The hint with the GRANT that a statement lacked; empty if the error is not a missing right on one of these databases.

    ``databases`` are those that the statement is about. The one in the server's message lacks the right. The message is not
    searched for other names, since whoever writes to the source chooses its text. The database is the source's choice, so a person
    must confirm that it belongs to the pipeline.
    """
    if session is None or error_code(error) not in _OF_DATABASES or not isinstance(error, pymysql.err.MySQLError):
        return ""
    text, named = error_text(error), sorted(filter(None, databases))
    found = [name for name in named if text.endswith((f" to database '{name}'", f" to database '{name}'."))]
    found += [name for name in named if f" for table {quote_name(name)}." in text]
    if not named:
        return ""
    database = (found or named)[0]
    grant = account_of(session, "").to_grant(escaped(database))
    wanted = f"If the database {quote_name(database)} is to be replicated, run as an administrator of the target: {grant} {_AGAIN}"
    return f"{wanted} Else leave it out with --tables."


def to_grant_on_ledger(session: MySqlSession | None, error: BaseException, ledger: str) -> str:
    """The same for a statement on the ledger. Its refusal ends the run."""
    if session is None or error_code(error) not in _OF_DATABASES:
        return ""
    return f"Run as an administrator of the target: {account_of(session, ledger).to_grant_on_ledger()} Then start the run again."
