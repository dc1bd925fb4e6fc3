"""What to do about an error of MySQL, MariaDB, TiDB or PyMySQL: one table of all errors that are not simply the statement's fault.

Sources of the numbers, by the letter in the table:

- ``S``: MySQL and MariaDB have the same one. MySQL 8.4 Error Reference, "Server Error Message Reference"; MariaDB Server
  Documentation, "MariaDB Error Codes" (``sql/share/errmsg-utf8.txt``).
- ``M``: MySQL alone, the same page. The numbers from 3000 on are others in MariaDB, or none.
- ``A``: MariaDB alone, the same page.
- ``T``: TiDB Documentation, "Error Codes and Troubleshooting".
- ``C``: MySQL 8.4 Error Reference, "Client Error Message Reference"; PyMySQL raises them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, StrEnum

import pymysql

INTERRUPTED = 1317
_IN_RANGE = range(1000, 5000)


class ErrorClass(StrEnum):
    """The required reaction to an error of the server."""

    TRANSIENT = "transient"
    """A deadlock, a lock wait timeout, a busy server: retry the transaction."""
    LOST = "lost"
    """The connection is gone, and the result of the last statement is unknown; or it leads to a server that does not accept the
    statement, because it is read-only or has left its cluster."""
    REFUSED = "refused"
    """The statement or its data will not be accepted, however often it is sent."""


class Cause(Enum):
    """Why a server ends a statement that could succeed: the class of the error, and what a person can do if it persists."""

    LOCKS = (
        ErrorClass.TRANSIENT,
        "Something else holds locks in the target: information_schema.INNODB_TRX and SHOW PROCESSLIST show it.",
    )
    CONFLICT = (ErrorClass.TRANSIENT, "")
    BUSY = (ErrorClass.TRANSIENT, "")
    TIME_LIMIT = (
        ErrorClass.TRANSIENT,
        "The target ends statements that take long: let max_statement_time, max_execution_time and tools that kill queries leave "
        "Headrace's user out.",
    )
    DISK_FULL = (ErrorClass.TRANSIENT, "Make room on the target's disk.")
    CONNECTION = (ErrorClass.LOST, "")
    # After a failover, the address leads to the new primary, and an existing connection to the former one.
    READ_ONLY = (
        ErrorClass.LOST,
        "Make the server writable (SET GLOBAL read_only = OFF), or let the sink's URI name the primary.",
    )
    NOT_IN_CLUSTER = (
        ErrorClass.LOST,
        "The node is not a part of its cluster: see wsrep_cluster_status and wsrep_local_state_comment, or let the sink's URI name "
        "another one.",
    )
    LOGIN = (ErrorClass.REFUSED, "")

    def __init__(self, kind: ErrorClass, way_out: str) -> None:
        self.kind, self.way_out = kind, way_out


@dataclass(frozen=True)
class KnownError:
    """A row of the table. ``source`` is a letter of the module's list, and ``symbol`` the name there."""

    code: int
    symbol: str
    cause: Cause
    source: str


ERRORS = (
    KnownError(1205, "ER_LOCK_WAIT_TIMEOUT", Cause.LOCKS, "S"),
    KnownError(1213, "ER_LOCK_DEADLOCK", Cause.LOCKS, "S"),
    KnownError(1614, "ER_XA_RBDEADLOCK", Cause.LOCKS, "S"),
    KnownError(3058, "ER_USER_LOCK_DEADLOCK", Cause.LOCKS, "S"),
    KnownError(3572, "ER_LOCK_NOWAIT", Cause.LOCKS, "M"),
    KnownError(8002, "ErrForUpdateCantRetry", Cause.LOCKS, "T"),
    KnownError(8005, "ErrWriteConflictInTiDB", Cause.LOCKS, "T"),
    KnownError(8022, "ErrTxnRetryable", Cause.LOCKS, "T"),
    KnownError(8028, "ErrInfoSchemaChanged", Cause.LOCKS, "T"),
    KnownError(9007, "ErrWriteConflict", Cause.LOCKS, "T"),
    # With innodb_snapshot_isolation: a row changed by another transaction. Or a table altered since a snapshot.
    KnownError(1020, "ER_CHECKREAD", Cause.CONFLICT, "S"),
    KnownError(1412, "ER_TABLE_DEF_CHANGED", Cause.CONFLICT, "S"),
    # Group Replication: a member that is overloaded or without quorum, and a transaction that conflicts with another member's.
    KnownError(3100, "ER_RUN_HOOK_ERROR", Cause.CONFLICT, "M"),
    KnownError(3101, "ER_TRANSACTION_ROLLBACK_DURING_COMMIT", Cause.CONFLICT, "M"),
    KnownError(1037, "ER_OUTOFMEMORY", Cause.BUSY, "S"),
    KnownError(1038, "ER_OUT_OF_SORTMEMORY", Cause.BUSY, "S"),
    KnownError(1040, "ER_CON_COUNT_ERROR", Cause.BUSY, "S"),
    KnownError(1041, "ER_OUT_OF_RESOURCES", Cause.BUSY, "S"),
    KnownError(1203, "ER_TOO_MANY_USER_CONNECTIONS", Cause.BUSY, "S"),
    KnownError(1206, "ER_LOCK_TABLE_FULL", Cause.BUSY, "S"),
    KnownError(8027, "ErrInfoSchemaExpired", Cause.BUSY, "T"),
    KnownError(9001, "ErrPDServerTimeout", Cause.BUSY, "T"),
    KnownError(9002, "ErrTiKVServerTimeout", Cause.BUSY, "T"),
    KnownError(9003, "ErrTiKVServerBusy", Cause.BUSY, "T"),
    KnownError(9004, "ErrResolveLockTimeout", Cause.BUSY, "T"),
    KnownError(9005, "ErrRegionUnavailable", Cause.BUSY, "T"),
    KnownError(9006, "ErrGCTooEarly", Cause.BUSY, "T"),
    KnownError(1969, "ER_STATEMENT_TIMEOUT", Cause.TIME_LIMIT, "A"),
    KnownError(3024, "ER_QUERY_TIMEOUT", Cause.TIME_LIMIT, "M"),
    KnownError(1021, "ER_DISK_FULL", Cause.DISK_FULL, "S"),
    # InnoDB reports a table as full if its file cannot grow.
    KnownError(1114, "ER_RECORD_FILE_FULL", Cause.DISK_FULL, "S"),
    KnownError(1053, "ER_SERVER_SHUTDOWN", Cause.CONNECTION, "S"),
    KnownError(1152, "ER_ABORTING_CONNECTION", Cause.CONNECTION, "S"),
    KnownError(1158, "ER_NET_READ_ERROR", Cause.CONNECTION, "S"),
    KnownError(1159, "ER_NET_READ_INTERRUPTED", Cause.CONNECTION, "S"),
    KnownError(1160, "ER_NET_ERROR_ON_WRITE", Cause.CONNECTION, "S"),
    KnownError(1161, "ER_NET_WRITE_INTERRUPTED", Cause.CONNECTION, "S"),
    # Galera: it is unknown whether the cluster accepted the transaction.
    KnownError(1180, "ER_ERROR_DURING_COMMIT", Cause.CONNECTION, "S"),
    # A run that takes over may also kill the statement; it then ends the connection.
    KnownError(INTERRUPTED, "ER_QUERY_INTERRUPTED", Cause.CONNECTION, "S"),
    KnownError(1927, "ER_CONNECTION_KILLED", Cause.CONNECTION, "A"),
    KnownError(2002, "CR_CONNECTION_ERROR", Cause.CONNECTION, "C"),
    KnownError(2003, "CR_CONN_HOST_ERROR", Cause.CONNECTION, "C"),
    KnownError(2006, "CR_SERVER_GONE_ERROR", Cause.CONNECTION, "C"),
    KnownError(2013, "CR_SERVER_LOST", Cause.CONNECTION, "C"),
    KnownError(2055, "CR_SERVER_LOST_EXTENDED", Cause.CONNECTION, "C"),
    KnownError(4031, "ER_CLIENT_INTERACTION_TIMEOUT", Cause.CONNECTION, "M"),
    KnownError(1290, "ER_OPTION_PREVENTS_STATEMENT", Cause.READ_ONLY, "S"),
    KnownError(1792, "ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION", Cause.READ_ONLY, "S"),
    KnownError(1836, "ER_READ_ONLY_MODE", Cause.READ_ONLY, "S"),
    # Galera: "WSREP has not yet prepared node for application use".
    KnownError(1047, "ER_UNKNOWN_COM_ERROR", Cause.NOT_IN_CLUSTER, "S"),
    KnownError(1044, "ER_DBACCESS_DENIED_ERROR", Cause.LOGIN, "S"),
    KnownError(1045, "ER_ACCESS_DENIED_ERROR", Cause.LOGIN, "S"),
    KnownError(1130, "ER_HOST_NOT_PRIVILEGED", Cause.LOGIN, "S"),
    KnownError(1251, "ER_NOT_SUPPORTED_AUTH_MODE", Cause.LOGIN, "S"),
    KnownError(1698, "ER_ACCESS_DENIED_NO_PASSWORD_ERROR", Cause.LOGIN, "S"),
    KnownError(2059, "CR_AUTH_PLUGIN_CANNOT_LOAD", Cause.LOGIN, "C"),
    KnownError(2061, "CR_AUTH_PLUGIN_ERR", Cause.LOGIN, "C"),
    KnownError(3118, "ER_ACCOUNT_HAS_BEEN_LOCKED", Cause.LOGIN, "M"),
)
_BY_CODE = {error.code: error.cause for error in ERRORS}
# Numbers with several meanings, and the text of the one that counts. 1290 is for any option, 1047 for any unknown command.
_ONLY = {1290: re.compile(r"read[-_ ]only", re.IGNORECASE), 1047: re.compile(r"WSREP|not yet prepared", re.IGNORECASE)}
_NO_SPACE = re.compile(r"No space left on device|errno: 28\b|error 28\b|Disk full", re.IGNORECASE)


def error_code(error: BaseException) -> int:
    """The error number of the server or of PyMySQL; 0 if there is none."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def error_text(error: BaseException) -> str:
    """The server's message with its number, on one line."""
    message = " ".join(str(error.args[1] if len(error.args) > 1 else error).split())
    code = error_code(error)
    return f"{message} (error {code})" if code else message


def cause(error: BaseException) -> Cause | None:
    """Why a statement was ended that could succeed; ``None`` if the statement itself is the reason."""
    code, is_servers = error_code(error), isinstance(error, pymysql.err.MySQLError)
    if not is_servers and isinstance(error, OSError):
        return Cause.CONNECTION
    only = _ONLY.get(code)
    if code in _BY_CODE and (only is None or only.search(error_text(error))):
        return _BY_CODE[code]
    if is_servers and _NO_SPACE.search(error_text(error)):
        return Cause.DISK_FULL
    if isinstance(error, pymysql.err.InterfaceError):
        return Cause.CONNECTION
    if isinstance(error, pymysql.err.InternalError) and code not in _IN_RANGE:
        return Cause.CONNECTION  # PyMySQL is out of step with the protocol
    return None


def classify(error: BaseException) -> ErrorClass:
    """The required reaction to an exception that a statement raised."""
    found = cause(error)
    return ErrorClass.REFUSED if found is None else found.kind


def way_out(error: BaseException) -> str:
    """What a person can do about a persistent failure; empty if nothing."""
    found = cause(error)
    return "" if found is None else found.way_out
