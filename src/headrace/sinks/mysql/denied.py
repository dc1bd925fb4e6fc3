"""What a person grants when the server denies a statement of a run because a right is missing."""

from __future__ import annotations

import re

import pymysql

from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.excess import Account
from headrace.sinks.mysql.grants import escaped
from headrace.sinks.mysql.server_errors import error_code, error_text
from headrace.sinks.mysql.text import quote_name

_OF_DATABASES = frozenset({1044, 1142, 1143})
"""A right on a database, a table or a column is missing."""
_NAMED = re.compile(r"to database '(?P<database>[^']+)'|for table `(?P<quoted>(?:[^`]|``)+)`\.")
_AGAIN = "The next run tries again, and a run that is active does so within 30 seconds."


def account_of(session: MySqlSession, ledger: str) -> Account:
    """The account that a session runs as; ``ledger`` is the name of the ledger's database."""
    user, _, host = str(session.scalar("SELECT CURRENT_USER()")).rpartition("@")
    return Account(f"{quote_name(user)}@{quote_name(host)}", ledger, session.is_mariadb)


def to_grant(session: MySqlSession | None, error: BaseException, database: str) -> str:
    """The hint with the GRANT that a statement in this database lacked; empty when the error is no missing right on one.

    The database that the server's message names wins: of several that a statement is about it is the one that lacks the right. Its
    name comes from the source's files, so a person has to say whether it belongs to the pipeline.
    """
    if session is None or error_code(error) not in _OF_DATABASES or not isinstance(error, pymysql.err.MySQLError):
        return ""
    found = _NAMED.search(error_text(error))
    named = (found["database"] or found["quoted"].replace("``", "`")) if found else database
    if not named:
        return ""
    grant = account_of(session, "").to_grant(escaped(named))
    wanted = f"If {named} is to be replicated, run as an administrator of the target: {grant} {_AGAIN}"
    return f"{wanted} Else leave it out with --tables."


def to_grant_on_ledger(session: MySqlSession | None, error: BaseException, ledger: str) -> str:
    """The same of a statement on the ledger, whose refusal ends the run."""
    if session is None or error_code(error) not in _OF_DATABASES:
        return ""
    return f"Run as an administrator of the target: {account_of(session, ledger).to_grant_on_ledger()} Then start the run again."
