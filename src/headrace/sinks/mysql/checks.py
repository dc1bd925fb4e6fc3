"""What ``validate`` asks of a MySQL, MariaDB or TiDB target. Nothing is changed."""

from __future__ import annotations

import re

import pymysql

from headrace.errors import HeadraceError
from headrace.sinks.base import Check, CheckState
from headrace.sinks.mysql.connection import MySqlSession, error_text
from headrace.sinks.mysql.settings import MySqlSettings

NEEDED = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER", "INDEX"})
_SMALL_PACKET = 16 * 1024 * 1024
_GRANT = re.compile(r"GRANT (?P<what>.+?) ON (?P<where>.+?) TO ", re.IGNORECASE)


def check_target(settings: MySqlSettings) -> list[Check]:
    """The checks, in the order in which they depend on each other; one alone when the target cannot be reached."""
    try:
        with MySqlSession(settings, ddl=True) as session:
            return [
                Check("target", CheckState.OK, f"{settings.identity}, {session.version}"),
                _privileges(session),
                _local_infile(session, settings),
                _packet(session),
                _names(session),
                Check("time zone", CheckState.OK, f"data in UTC, DDL in {settings.time_zone}"),
                Check("sql_mode", CheckState.OK, f"set for each connection; the server's own is {_global_mode(session)}"),
            ]
    except HeadraceError as error:
        return [Check("target", CheckState.FAILED, error.message, error.hint)]
    except (pymysql.err.MySQLError, OSError) as error:
        return [Check("target", CheckState.FAILED, f"{settings.identity}: {error_text(error)}.")]


def _privileges(session: MySqlSession) -> Check:
    grants = [str(row[0]) for row in session.execute("SHOW GRANTS")]
    held: set[str] = set()
    partly: set[str] = set()
    for found in filter(None, map(_GRANT.match, grants)):
        names = {name.strip().upper() for name in found["what"].split(",")}
        if names & {"ALL", "ALL PRIVILEGES"}:
            names |= NEEDED
        (held if found["where"].strip() == "*.*" else partly).update(names)
    missing = NEEDED - held
    if not missing:
        return Check("privileges", CheckState.OK, "all that is needed, on all databases")
    advice = f"GRANT {', '.join(sorted(NEEDED))} on the replicated databases and the ledger's to this user."
    if missing <= partly:
        return Check(
            "privileges", CheckState.OK, "granted on some databases only; a new database of the source needs its own grant"
        )
    if any(" ON " not in grant.upper() for grant in grants):  # roles do not list what they hold
        return Check("privileges", CheckState.WARNING, "granted through a role, which is not looked into", advice)
    return Check("privileges", CheckState.FAILED, f"missing: {', '.join(sorted(missing - partly))}", advice)


def _local_infile(session: MySqlSession, settings: MySqlSettings) -> Check:
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


def _global_mode(session: MySqlSession) -> str:
    return str(session.scalar("SELECT @@GLOBAL.sql_mode")) or "empty"
