"""The checks of ``validate`` on a MySQL, MariaDB or TiDB target. Nothing is changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

import pymysql

from headrace.errors import HeadraceError
from headrace.model.table import SYSTEM_DATABASES
from headrace.sinks.base import Check, CheckState
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.denied import account_of
from headrace.sinks.mysql.excess import NEEDED, ON_LEDGER, PLACEHOLDER, Account, excess, roles_grants
from headrace.sinks.mysql.fence import Fence
from headrace.sinks.mysql.grants import ALL, EVERYBODY, EVERYWHERE, Grants, active_grants, escaped, literal_name
from headrace.sinks.mysql.server_errors import error_text
from headrace.sinks.mysql.settings import MySqlSettings
from headrace.sinks.mysql.text import quote_name
from headrace.sinks.mysql.types import qualified
from headrace.sinks.sql_dialect import MYSQL
from headrace.sinks.sql_ledger import SqlLedger

FOR_LEDGER = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE")
"""The minimum rights of the user on the ledger's database; CREATE only until the tables exist."""
FOR_VIEWS = ("CREATE VIEW", "SHOW VIEW")
FOR_FOREIGN_KEYS = ("REFERENCES",)
"""MariaDB does not require this right."""
_SMALL_PACKET = 16 * 1024 * 1024
_OF_ALL = (*ON_LEDGER, *FOR_VIEWS, *FOR_FOREIGN_KEYS)


def check_target(settings: MySqlSettings) -> list[Check]:
    """The checks, in the order in which they depend on each other; only one if the target cannot be reached."""
    try:
        with MySqlSession(settings, ddl=True) as session:
            return [
                Check("target", CheckState.OK, f"{settings.identity}, {session.version}"),
                *_rights(session, settings),
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


def check_databases(session: MySqlSession, settings: MySqlSettings, databases: Iterable[str]) -> Iterator[Check]:
    """A check for each database of the source on which nothing is granted."""
    grants, account = active_grants(session), account_of(session, settings.ledger_database)
    for database in sorted(databases):
        if database.casefold() in {*SYSTEM_DATABASES, settings.ledger_database.casefold()}:
            continue  # such a database is refused anyway
        if not grants.on(database, NEEDED) & set(NEEDED):
            detail = f"nothing is granted on {quote_name(database)}.*, which the source has"
            yield Check("privileges", CheckState.FAILED, detail, account.to_grant(escaped(database)))


def _rights(session: MySqlSession, settings: MySqlSettings) -> Iterator[Check]:
    """What rights the account lacks, and then those that it does not need."""
    account, active, direct = account_of(session, settings.ledger_database), active_grants(session), Grants()
    of_roles: dict[str, Grants | None] = {}
    if active.roles:
        with MySqlSession(settings, ddl=True) as aside:
            aside.execute("SET ROLE NONE")
            direct = active_grants(aside)
            of_roles = roles_grants(aside, direct.roles, direct)
    else:
        direct = active
    yield _privileges(account, active, direct, of_roles)
    databases = [str(row[0]) for row in session.execute("SHOW DATABASES")]
    too_much = excess(account, direct, of_roles, databases)
    found = [Check("excess privileges", CheckState.WARNING, e.sentence, e.mend) for e in too_much]
    yield from found or [Check("excess privileges", CheckState.OK, "none: the account can do what Headrace needs, and no more")]


def _privileges(account: Account, active: Grants, direct: Grants, of_roles: Mapping[str, Grants | None]) -> Check:
    missing = _missing(active, account.ledger)
    if missing:
        for role, grants in of_roles.items():
            whole = replace(direct, lines=direct.lines + (grants.lines if grants else ()))
            if not _missing(whole, account.ledger):
                detail = f"missing: {missing}; the role {role} would give them, but it is not active by default"
                to = "FOR" if account.is_mariadb else "TO"
                return Check("privileges", CheckState.FAILED, detail, f"SET DEFAULT ROLE {role} {to} {account.name};")
        return Check("privileges", CheckState.FAILED, f"missing: {missing}", account.to_grant())
    everywhere = active.everywhere | (set(_OF_ALL) if ALL in active.everywhere else set())
    patterns = _patterns(active, account.ledger)
    held = everywhere.union(*(active.on(literal_name(pattern), _OF_ALL) for pattern in patterns))
    lacking = _without(FOR_VIEWS if account.is_mariadb else FOR_VIEWS + FOR_FOREIGN_KEYS, held)
    if lacking:
        detail = f"all but {lacking}, which {'views need' if account.is_mariadb else 'views and foreign keys need'}"
        return Check("privileges", CheckState.WARNING, detail, account.to_grant())
    if _without(NEEDED, everywhere):
        places = ", ".join(f"{quote_name(pattern)}.*" for pattern in patterns)
        return Check("privileges", CheckState.OK, f"granted on {places} only; a new database of the source needs its own grant")
    return Check("privileges", CheckState.OK, "all that is needed, on all databases")


def _patterns(grants: Grants, ledger: str) -> list[str]:
    """The database patterns that the account may be meant to replicate."""
    found = {line.pattern for line in grants.lines if line.pattern is not None and not line.takes and line.grantee != EVERYBODY}
    return sorted(p for p in found if not grants.is_only(p, ledger) and literal_name(p).lower() not in SYSTEM_DATABASES)


def _missing(grants: Grants, ledger: str) -> str:
    """The required rights that are not granted, and where; empty if none is missing."""
    parts = []
    patterns = _patterns(grants, ledger)
    for pattern in patterns:
        # A name that matches the pattern, and hardly any other pattern.
        if lacking := _without(NEEDED, grants.on(literal_name(pattern), NEEDED)):
            parts.append(f"{lacking} on {quote_name(pattern)}.*")
    if not patterns and (lacking := _without(NEEDED, grants.on(PLACEHOLDER, NEEDED))):
        on_tables = any(line.pattern is None and line.place != EVERYWHERE for line in grants.lines)
        parts.append(f"{lacking}{' on whole databases' if on_tables else ''}")
    if lacking := _without(FOR_LEDGER, grants.on(ledger, FOR_LEDGER)):
        parts.append(f"{lacking} on the ledger's database {ledger}")
    return "; ".join(parts)


def _without(wanted: tuple[str, ...], held: Collection[str]) -> str:
    return ", ".join(name for name in wanted if name not in held)


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
    """The engines of the ledger's tables. Those of the replicated tables are checked with their conditions."""
    for table_id, engine in Fence(SqlLedger(MYSQL, settings.ledger_database)).without_transactions(session).items():
        detail = f"the ledger's table {table_id} has the engine {engine}, which has no transactions."
        return Check(
            "transactions", CheckState.FAILED, detail, f"Run ALTER TABLE {qualified(table_id)} ENGINE=InnoDB; in the target."
        )
    return Check("transactions", CheckState.OK, "the ledger is in InnoDB, and tables are created in it")


def _global_mode(session: MySqlSession) -> str:
    return str(session.scalar("SELECT @@GLOBAL.sql_mode")) or "empty"
