"""Values that a person may have set for a whole server, and that would change what a session writes or reads."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pymysql

from servers import MariaDb

HOSTILE = {
    "explicit_defaults_for_timestamp": "OFF",
    "old_mode": "ZERO_DATE_TIME_CAST",
    "auto_increment_increment": 10,
    "auto_increment_offset": 3,
    "default_week_format": 3,
    "div_precision_increment": 0,
    "lc_time_names": "de_DE",
    "foreign_key_checks": "ON",
    "unique_checks": "OFF",
    "check_constraint_checks": "OFF",
    "sql_auto_is_null": "ON",
    "sql_safe_updates": "ON",
    "sql_select_limit": 1,
    "sql_if_exists": "ON",
    "sql_quote_show_create": "OFF",
    "max_error_count": 0,
    "sql_notes": "OFF",
    "default_storage_engine": "Aria",
    "enforce_storage_engine": "Aria",
    "innodb_strict_mode": "OFF",
    "alter_algorithm": "INSTANT",
    "tx_isolation": "SERIALIZABLE",
    "tx_read_only": "ON",
    "completion_type": "RELEASE",
    "binlog_format": "STATEMENT",
    "max_statement_time": 1,
    "idle_transaction_timeout": 1,
    "idle_write_transaction_timeout": 1,
    "net_read_timeout": 1,
    "net_write_timeout": 1,
    "innodb_lock_wait_timeout": 1,
    "lock_wait_timeout": 0,
    "sql_mode": "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,ORACLE",
    "time_zone": "+09:30",
    "character_set_server": "latin1",
    "init_connect": "SET autocommit = 0, collation_connection = utf8mb4_unicode_ci",
}
"""A session begins with these."""
SETTABLE = {name: value for name, value in HOSTILE.items() if name != "enforce_storage_engine"}
"""Those that a session can set back without a right of its own; with the other one it is refused."""


@dataclass(frozen=True)
class SettledMariaDb(MariaDb):
    """A MariaDB whose variables a person sets: connections of the tests keep the values that it had at first."""

    @cached_property
    def _own(self) -> dict[str, str]:
        with super().connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(f'@@GLOBAL.{name}' for name in HOSTILE)}")
            return dict(zip(HOSTILE, cursor.fetchone(), strict=True))

    def connect(self, **options: Any) -> pymysql.connections.Connection:
        connection = super().connect(**options)
        values = {name: value for name, value in self._own.items() if name != "init_connect"}
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION {', '.join(f'{name} = %s' for name in values)}", tuple(values.values()))
        return connection

    def set_variables(self, names: Collection[str]) -> None:
        """Gives the server the hostile values of these variables, and its own of the others."""
        with self.connect() as connection, connection.cursor() as cursor:
            for name, value in (self._own | {name: HOSTILE[name] for name in names}).items():
                cursor.execute(f"SET GLOBAL {name} = %s", (value,))


def settled(server: MariaDb) -> SettledMariaDb:
    """The server, which has its own values now."""
    return SettledMariaDb(**vars(server))
