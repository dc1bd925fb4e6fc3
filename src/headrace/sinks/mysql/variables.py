"""Every server variable that affects the meaning of a statement or load, with the value that each session of Headrace sets.

A session reads its initial values from the server and sets those that differ, so that neither the server's configuration nor
``init_connect`` affects what Headrace writes. If a value cannot be set (because the variable is global in this version, or the user
may not set it), the session is refused, unless the consequence is an error of the server. Names are those of MySQL 5.7 to 9,
MariaDB 10.5 to 12 and TiDB 6 to 8; a server may lack some of them.

Not included, because Headrace's statements do not depend on them: ``collation_server``, ``character_set_server`` and
``default_collation_for_utf8mb4`` (collations are written out), ``binlog_row_image``, ``session_track_*``, ``optimizer_switch``,
``group_concat_max_len``, ``tidb_opt_*`` except one, buffer sizes. ``lower_case_table_names``, ``max_allowed_packet`` and
``local_infile`` are checked by ``validate``. ``innodb_rollback_on_timeout``: after a lock wait timeout, whole transactions are
rolled back and retried in any case.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

Value = str | int

# Strict, but accepts what TiDB accepted: zero and partial dates. A 0 stays a 0 in an AUTO_INCREMENT column.
SQL_MODE = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION"
# Not strict: a column change that cut values at the source must cut them here, too, as in TiCDC's own sink.
DDL_SQL_MODE = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION"
# MariaDB truncates a time to the digits of its column; TiDB and MySQL round it.
_ROUNDS_TIMES = ",TIME_ROUND_FRACTIONAL"

_LOCK_WAIT_SECONDS = 20
_DDL_LOCK_WAIT_SECONDS = 10


@dataclass(frozen=True)
class Variable:
    """A variable and its required value. ``meaning`` completes the sentence: with another value …

    ``also`` are values with the same meaning for Headrace. ``loud``: if the variable cannot be set, the server refuses the affected
    statements with an error, so it need not be checked before.
    """

    name: str
    value: Value
    meaning: str
    also: frozenset[str] = frozenset()
    loud: bool = False

    def accepts(self, found: str) -> bool:
        """Whether the value that the server shows is acceptable."""
        return _plain(found) in {_plain(str(self.value)), *map(_plain, self.also)}


def _also(*values: str) -> frozenset[str]:
    return frozenset(values)


_LONGEST = 18_446_744_073_709_551_615

VARIABLES = (
    # What a value becomes.
    Variable("explicit_defaults_for_timestamp", "ON", "a NULL in a TIMESTAMP column becomes the current time"),
    Variable("character_set_client", "utf8mb4", "statements are read in another character set"),
    Variable("character_set_connection", "utf8mb4", "literals are converted to another character set"),
    Variable("character_set_results", "utf8mb4", "what is read comes in another character set"),
    Variable(
        "collation_connection", "utf8mb4_bin", "literals of views and generated columns are compared in another way than in TiDB"
    ),
    Variable(
        "character_set_collations", "", "a character set without a collation gets another one than the statement means", loud=True
    ),
    Variable("old_mode", "UTF8_IS_UTF8MB3", "utf8 is another character set, and a TIME becomes another DATETIME", _also("")),
    Variable("auto_increment_increment", 1, "an AUTO_INCREMENT column that is added gets other numbers", loud=True),
    Variable("auto_increment_offset", 1, "an AUTO_INCREMENT column that is added gets other numbers", loud=True),
    Variable("default_week_format", 0, "WEEK() of a generated column counts in another way"),
    Variable("div_precision_increment", 4, "divisions of generated columns have other digits"),
    Variable("lc_time_names", "en_US", "names of days and months of generated columns are in another language"),
    Variable("block_encryption_mode", "aes-128-ecb", "AES functions of generated columns give other bytes"),
    # Which rows and tables a statement means.
    Variable("foreign_key_checks", "OFF", "a REPLACE deletes or changes rows of other tables"),
    Variable("unique_checks", "ON", "InnoDB may take a row whose unique value is there already"),
    Variable("check_constraint_checks", "ON", "a CHECK of the target's tables does not count"),
    Variable("sql_auto_is_null", "OFF", "IS NULL finds the row that was inserted last"),
    Variable("sql_safe_updates", "OFF", "a DELETE without an index is refused", loud=True),
    Variable("sql_big_selects", "ON", "a long read is refused", loud=True),
    Variable("sql_if_exists", "OFF", "an ALTER or DROP of what is not there counts as done"),
    Variable("system_versioning_asof", "DEFAULT", "old rows of a versioned table are read"),
    Variable("sql_quote_show_create", "ON", "a table's definition reads as another one"),
    Variable("max_error_count", 64, "a warning that a value was changed does not show"),
    Variable("sql_notes", "ON", "a note that a value was changed does not show"),
    # What a table becomes.
    Variable("default_storage_engine", "InnoDB", "tables are created without transactions"),
    Variable("enforce_storage_engine", "InnoDB", "tables are created without transactions", _also("", "NULL", "None")),
    Variable("innodb_strict_mode", "ON", "a table is created with another row format than the statement's"),
    Variable("sql_generate_invisible_primary_key", "OFF", "a table without key gets one that the source lacks", loud=True),
    Variable("sql_require_primary_key", "OFF", "a table without key is refused", loud=True),
    Variable("restrict_fk_on_non_standard_key", "OFF", "a foreign key that TiDB has is refused", loud=True),
    Variable("alter_algorithm", "DEFAULT", "an ALTER that needs a copy of the table is refused", loud=True),
    # What a transaction is, and how long it may take.
    Variable("tx_isolation", "READ-COMMITTED", "two writers deadlock at gaps, and the fence is read as it was"),
    Variable("transaction_isolation", "READ-COMMITTED", "two writers deadlock at gaps, and the fence is read as it was"),
    Variable("tx_read_only", "OFF", "nothing can be written"),
    Variable("transaction_read_only", "OFF", "nothing can be written"),
    Variable(
        "completion_type", "NO_CHAIN", "a COMMIT ends the connection, or begins a transaction that is never ended", _also("0")
    ),
    Variable("binlog_format", "ROW", "rows that are written under READ COMMITTED are refused", _also("MIXED"), loud=True),
    Variable("max_statement_time", 0, "a long statement is ended by the server", _also("")),
    Variable("max_execution_time", 0, "a long read is ended by the server"),
    Variable("idle_transaction_timeout", 0, "a transaction that waits for data is ended by the server", loud=True),
    Variable("idle_write_transaction_timeout", 0, "a transaction that waits for data is ended by the server", loud=True),
    Variable("net_read_timeout", 60, "a load over a slow network breaks off", loud=True),
    Variable("net_write_timeout", 60, "a read over a slow network breaks off", loud=True),
    # TiDB's own.
    Variable("allow_auto_random_explicit_insert", "ON", "rows of a table with AUTO_RANDOM are refused", loud=True),
    Variable("tidb_placement_mode", "IGNORE", "a placement policy that is not there refuses a table", loud=True),
    Variable("tidb_enable_external_ts_read", "OFF", "reads see an earlier state"),
    Variable("tidb_snapshot", "", "reads see an earlier state"),
    Variable("tidb_read_staleness", 0, "reads see an earlier state", _also("")),
    Variable("tidb_low_resolution_tso", "OFF", "reads see an earlier state"),
    Variable("tidb_read_consistency", "strict", "reads see an earlier state"),
    Variable("tidb_replica_read", "leader", "reads ask replicas that may lag behind", loud=True),
    Variable("tidb_rc_read_check_ts", "OFF", "a read that meets a newer row is refused", loud=True),
    Variable("tidb_txn_mode", "pessimistic", "the fence's lock does not block other writers"),
    Variable("tidb_constraint_check_in_place_pessimistic", "ON", "a savepoint is refused", loud=True),
    Variable("tidb_dml_type", "STANDARD", "a large statement is not one transaction"),
    Variable("tidb_batch_insert", "OFF", "a large statement is not one transaction"),
    Variable("tidb_batch_delete", "OFF", "a large statement is not one transaction"),
    Variable("tidb_dml_batch_size", 0, "a large statement is not one transaction"),
    Variable("tidb_skip_utf8_check", "OFF", "bytes that are no UTF-8 are taken for a text"),
    Variable("tidb_skip_ascii_check", "OFF", "bytes that are no ASCII are taken for a text"),
    Variable("tidb_opt_write_row_id", "OFF", "a column of the name _tidb_rowid is another one"),
    Variable("tidb_idle_transaction_timeout", 0, "a transaction that waits for data is ended by the server", loud=True),
)
"""The variables with the same value in all sessions; :func:`always` and :func:`wanted` add the others."""

# These are global, and no session can work around them without a special privilege.
REFUSED = {"secure_timestamp": frozenset({"YES", "REPLICATION"})}
"""Global variables and values with which schema changes cannot be applied: rows would get defaults of another time."""


def always(*, ddl: bool, is_mariadb: bool, time_zone: str) -> tuple[Variable, ...]:
    """Variables that every server has, set before a session reads the other values. ``ddl``: a session for schema changes."""
    mode = (DDL_SQL_MODE if ddl else SQL_MODE) + (_ROUNDS_TIMES if is_mariadb else "")
    return (
        Variable("sql_mode", mode, "values are changed to fit, or refused though TiDB took them"),
        Variable("time_zone", time_zone, "a TIMESTAMP is another moment"),
        Variable("sql_select_limit", _LONGEST, "what is read of the ledger and of the catalogue is cut off"),
    )


def wanted(*, ddl: bool) -> tuple[Variable, ...]:
    """All other variables of a session.

    ``ddl`` sessions are in autocommit (otherwise reading a table would lock its definition). They wait for readers for seconds; the
    server's default is a day.
    """
    wait = _DDL_LOCK_WAIT_SECONDS if ddl else _LOCK_WAIT_SECONDS
    return (
        Variable("autocommit", "ON" if ddl else "OFF", "rows are committed one by one, or never"),
        Variable("lock_wait_timeout", wait, "a schema change waits for readers for a day", loud=True),
        Variable("innodb_lock_wait_timeout", _LOCK_WAIT_SECONDS, "a writer waits too briefly or too long for locks", loud=True),
        *VARIABLES,
    )


def differing(variables: tuple[Variable, ...], found: Mapping[str, str]) -> list[Variable]:
    """The variables that have another value on the server."""
    return [v for v in variables if v.name in found and not v.accepts(found[v.name])]


def _plain(value: str) -> str:
    """A value in a common form: TiDB shows 1 for ON, MariaDB 0.000000 for 0, and each has its own case."""
    folded = value.strip().lower()
    with suppress(ValueError):
        folded = f"{float(folded):g}"
    return {"on": "1", "off": "0", "yes": "1", "no": "0"}.get(folded, folded)
