"""What ``validate`` asks of a MySQL, MariaDB or TiDB target. Nothing is changed."""

from __future__ import annotations

import pymysql

from headrace.errors import HeadraceError
from headrace.sinks.base import Check, CheckState
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.fence import Fence
from headrace.sinks.mysql.grants import EVERYWHERE, matches, names_only, read_grants
from headrace.sinks.mysql.server_errors import error_text
from headrace.sinks.mysql.settings import MySqlSettings
from headrace.sinks.mysql.text import quote_name
from headrace.sinks.mysql.types import qualified
from headrace.sinks.sql_ledger import MYSQL, SqlLedger

NEEDED = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER", "INDEX")
"""What the user needs on every replicated database."""
FOR_LEDGER = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE")
"""What it needs on the ledger's; CREATE only until the tables are there."""
FOR_VIEWS = ("CREATE VIEW", "SHOW VIEW")
FOR_FOREIGN_KEYS = ("REFERENCES",)
"""MariaDB asks for no such right."""
_SMALL_PACKET = 16 * 1024 * 1024
_OF_ALL = (*NEEDED, *FOR_VIEWS, *FOR_FOREIGN_KEYS)


def check_target(settings: MySqlSettings) -> list[Check]:
    """The checks, in the order in which they depend on each other; one alone when the target cannot be reached."""
    try:
        with MySqlSession(settings, ddl=True) as session:
            return [
                Check("target", CheckState.OK, f"{settings.identity}, {session.version}"),
                _privileges(session, settings),
                _local_infile(session, settings),
                _packet(session),
                _names(session),
                _engines(session, settings),
                Check("time zone", CheckState.OK, f"data in UTC, DDL in {settings.time_zone or 'UTC'}"),
                Check("sql_mode", CheckState.OK, f"set for each connection; the server's own is {_global_mode(session)}"),
            ]
    except HeadraceError as error:
        return [Check("target", CheckState.FAILED, error.message, error.hint)]
    except (pymysql.err.MySQLError, OSError) as error:
        return [Check("target", CheckState.FAILED, f"{settings.identity}: {error_text(error)}.")]


def _privileges(session: MySqlSession, settings: MySqlSettings) -> Check:
    lines = [str(row[0]) for row in session.execute("SHOW GRANTS")]
    granted = read_grants(lines, _OF_ALL)
    everywhere = granted.pop(EVERYWHERE, frozenset())
    missing = _missing(everywhere, granted, settings.ledger_database)
    if missing:
        advice = _advice(session, settings)
        if any(" ON " not in line.upper() for line in lines):  # roles do not list what they hold
            return Check("privileges", CheckState.WARNING, "granted through a role, which is not looked into", advice)
        return Check("privileges", CheckState.FAILED, f"missing: {missing}", advice)
    wanted = FOR_VIEWS if session.is_mariadb else FOR_VIEWS + FOR_FOREIGN_KEYS
    lacking = _without(wanted, everywhere.union(*granted.values()))
    if lacking:
        detail = f"all but {lacking}, which {'views need' if session.is_mariadb else 'views and foreign keys need'}"
        return Check("privileges", CheckState.WARNING, detail, _advice(session, settings))
    if _without(NEEDED, everywhere):
        places = ", ".join(sorted(granted))
        return Check("privileges", CheckState.OK, f"granted on {places} only; a new database of the source needs its own grant")
    return Check("privileges", CheckState.OK, "all that is needed, on all databases")


def _missing(everywhere: frozenset[str], granted: dict[str, frozenset[str]], ledger: str) -> str:
    """What is not granted that has to be, and where; empty for nothing."""
    of_ledger = everywhere.union(*(rights for place, rights in granted.items() if matches(place, ledger)))
    replicated = {place: rights for place, rights in granted.items() if not names_only(place, ledger)}
    parts = [f"{lacking} on {place}" for place, rights in replicated.items() if (lacking := _without(NEEDED, everywhere | rights))]
    if not replicated:
        parts += [lacking for lacking in [_without(NEEDED, everywhere)] if lacking]
    if lacking := _without(FOR_LEDGER, of_ledger):
        parts.append(f"{lacking} on the ledger's database {ledger}")
    return "; ".join(parts)


def _without(wanted: tuple[str, ...], held: frozenset[str]) -> str:
    return ", ".join(name for name in wanted if name not in held)


def _advice(session: MySqlSession, settings: MySqlSettings) -> str:
    user, _, host = str(session.scalar("SELECT CURRENT_USER()")).rpartition("@")
    rights = NEEDED + FOR_VIEWS + (() if session.is_mariadb else FOR_FOREIGN_KEYS)
    return (
        f"GRANT {', '.join(rights)} ON *.* TO {quote_name(user)}@{quote_name(host)}; or the same on each replicated database, and "
        f"{', '.join(FOR_LEDGER)} on {quote_name(settings.ledger_database)}.*."
    )


def _local_infile(session: MySqlSession, settings: MySqlSettings) -> Check:
    if session.is_tidb:
        return Check("local_infile", CheckState.OK, "not needed: rows go to TiDB by REPLACE statements")
    if session.local_infile:
        return Check("local_infile", CheckState.OK, "LOAD DATA LOCAL INFILE is allowed")
    detail = "switched off in the URI" if not settings.local_infile else "the server does not allow LOAD DATA LOCAL INFILE"
    return Check(
        "local_infile", CheckState.WARNING, f"{detail}: about half the speed", "SET GLOBAL local_infile = ON on the server."
    )


def _packet(session: MySqlSession) -> Check:
    size = session.max_allowed_packet
    if size >= _SMALL_PACKET:
        return Check("max_allowed_packet", CheckState.OK, f"{size} bytes")
    return Check(
        "max_allowed_packet",
        CheckState.WARNING,
        f"{size} bytes: a larger row is refused",
        "Set it to at least the source's largest row, 64M say.",
    )


def _names(session: MySqlSession) -> Check:
    setting = str(session.scalar("SELECT @@lower_case_table_names"))
    if setting == "0":
        return Check("lower_case_table_names", CheckState.OK, "names of tables differ by case")
    return Check(
        "lower_case_table_names",
        CheckState.OK if setting == "2" else CheckState.WARNING,
        f"is {setting}: tables that differ only by case would be one table here",
        "" if setting == "2" else "Make sure that the source has no two such names (TiDB itself has none).",
    )


def _engines(session: MySqlSession, settings: MySqlSettings) -> Check:
    """Of the ledger; those of the tables are among their conditions."""
    for table_id, engine in Fence(SqlLedger(MYSQL, settings.ledger_database)).without_transactions(session).items():
        detail = f"the ledger's table {table_id} has the engine {engine}, which has no transactions."
        return Check(
            "transactions", CheckState.FAILED, detail, f"Run ALTER TABLE {qualified(table_id)} ENGINE=InnoDB; in the target."
        )
    return Check("transactions", CheckState.OK, "the ledger is in InnoDB, and tables are created in it")


def _global_mode(session: MySqlSession) -> str:
    return str(session.scalar("SELECT @@GLOBAL.sql_mode")) or "empty"
