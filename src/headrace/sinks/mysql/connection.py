"""Connections to the server as Headrace needs them: session settings, ``?`` placeholders, and errors sorted by what to do."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Any, Self, TypeVar

import pyarrow as pa
import pymysql

from headrace import faults
from headrace.errors import DefinitionError, SinkUnreachableError, TransientError
from headrace.faults import Step
from headrace.sinks.mysql import tls
from headrace.sinks.mysql.local_infile import LoadingConnection
from headrace.sinks.mysql.settings import MySqlSettings

# Strict, and yet it takes what TiDB took: zero and partial dates; and a 0 stays a 0 in an AUTO_INCREMENT column.
SQL_MODE = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION"
RETRY_DELAYS = (0.1, 0.4, 1.5, 4.0, 7.0, 7.0)
_LOCK_WAIT_SECONDS = 20
_DDL_LOCK_WAIT_SECONDS = 10
_SILENCE_SECONDS = 5
_IN_RANGE = range(1000, 5000)
_TIDB_SETTINGS = ("allow_auto_random_explicit_insert = 1", "tidb_placement_mode = 'IGNORE'", "tidb_enable_external_ts_read = 0")

_LOGIN_REFUSED = frozenset({1044, 1045, 1130, 1251, 1698, 2059, 2061, 3118})
_LOCK_CONFLICT = frozenset({1205, 1213, 1614, 3058, 3572, 8002, 8022, 8028, 9007})
_CONNECTION_LOST = frozenset({1053, 1152, 1158, 1159, 1160, 1161, 1317, 1927, 2002, 2003, 2006, 2013, 2055, 4031})
# After a failover the address leads to the new primary, and a connection that lasts to the former one.
_READ_ONLY = frozenset({1290, 1792, 1836})
_DISK_FULL = frozenset({1021, 1114})  # InnoDB calls a table full when there is no room for its file to grow
_NO_SPACE = re.compile(r"No space left on device|errno: 28\b|error 28\b|Disk full", re.IGNORECASE)
_SERVER_BUSY = frozenset({1037, 1038, 1040, 1041, 1203, 1206, 8027, 9001, 9002, 9003, 9004, 9005, 9006})

_UNKNOWN_TIME_ZONE = 1298

_T = TypeVar("_T")


class ErrorClass(StrEnum):
    """What an error of the server asks for."""

    TRANSIENT = "transient"
    """A deadlock, a lock held too long, a server that is busy: the transaction is worth a repetition."""
    LOST = "lost"
    """The connection is gone, and with it the knowledge of what the last statement did, or it leads to a read-only server."""
    REFUSED = "refused"
    """The statement or its data will not be taken however often it is sent."""


def error_code(error: BaseException) -> int:
    """The server's or PyMySQL's error number; 0 for none."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def error_text(error: BaseException) -> str:
    """The server's message with its number, on one line."""
    message = " ".join(str(error.args[1] if len(error.args) > 1 else error).split())
    code = error_code(error)
    return f"{message} (error {code})" if code else message


def classify(error: BaseException) -> ErrorClass:
    """What to do about an exception that a statement raised."""
    code = error_code(error)
    if isinstance(error, (OSError, pymysql.err.InterfaceError)) or code in _CONNECTION_LOST or code in _READ_ONLY:
        return ErrorClass.LOST
    if code in _LOCK_CONFLICT or code in _SERVER_BUSY or _is_disk_full(error):
        return ErrorClass.TRANSIENT
    if isinstance(error, pymysql.err.InternalError) and code not in _IN_RANGE:
        return ErrorClass.LOST  # PyMySQL lost step with the protocol
    return ErrorClass.REFUSED


def _is_disk_full(error: BaseException) -> bool:
    return error_code(error) in _DISK_FULL or (
        isinstance(error, pymysql.err.MySQLError) and bool(_NO_SPACE.search(error_text(error)))
    )


def _way_out(error: BaseException) -> str:
    """What a person can do about a failure that lasts."""
    if error_code(error) in _READ_ONLY:
        return "Make the server writable (SET GLOBAL read_only = OFF), or let the sink's URI name the primary."
    if _is_disk_full(error):
        return "Make room on the target's disk."
    if error_code(error) in _LOCK_CONFLICT:
        return "Something else holds locks in the target: information_schema.INNODB_TRX and SHOW PROCESSLIST show it."
    return ""


# Not strict: a column change that the source let cut its values must cut them here too, as TiCDC's own sink has it.
DDL_SQL_MODE = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION"


class MySqlSession:
    """One connection with Headrace's session settings; it is a ``SqlSession``, so the ledger's statements run on it.

    Not in autocommit: the caller opens transactions by its first statement, and commits. ``ddl`` makes a session for schema
    changes: in autocommit (a look at a table would otherwise lock its definition), in the source's time zone, and waiting for
    readers for seconds where the server's default is a day.
    """

    def __init__(self, settings: MySqlSettings, *, ddl: bool = False) -> None:
        self._connection = _connect(settings, autocommit=ddl)
        try:
            self._configure(settings, ddl=ddl)
        except BaseException:
            self.close()
            raise

    def _configure(self, settings: MySqlSettings, *, ddl: bool) -> None:
        ((number, version, packet, local),) = self.execute(
            "SELECT CONNECTION_ID(), VERSION(), @@max_allowed_packet, @@local_infile"
        )
        self.connection_id = int(str(number))
        self.version = str(version)
        self.is_tidb = "TiDB" in self.version
        self.is_mariadb = "MariaDB" in self.version
        zone = settings.time_zone if ddl else "+00:00"
        wait = _DDL_LOCK_WAIT_SECONDS if ddl else _LOCK_WAIT_SECONDS
        self.execute("SET SESSION sql_mode = ?, foreign_key_checks = 0", (DDL_SQL_MODE if ddl else SQL_MODE,))
        self._set_time_zone(zone)
        self.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        for setting in (f"innodb_lock_wait_timeout = {_LOCK_WAIT_SECONDS}", f"lock_wait_timeout = {wait}"):
            self._try_setting(setting)
        if self.is_tidb:
            for setting in _TIDB_SETTINGS:
                self._try_setting(setting)
        self.max_allowed_packet = int(str(packet))
        self._connection.limit(self.max_allowed_packet)
        # TiDB asks for the file again whenever it repeats a LOAD DATA after a write conflict, lets no impossible date through in
        # one, and does not say which column it refuses; its REPLACE statements have none of this.
        self.local_infile = settings.local_infile and str(local) in ("1", "ON") and not self.is_tidb

    def _set_time_zone(self, zone: str) -> None:
        try:
            self.execute("SET SESSION time_zone = ?", (zone,))
        except pymysql.err.MySQLError as error:
            if error_code(error) != _UNKNOWN_TIME_ZONE:
                raise
            raise DefinitionError(
                f"The target does not know the time zone {zone!r} of time-zone in the sink's URI.",
                "Load the server's time zone tables (mysql_tzinfo_to_sql), or write an offset such as %2B08:00.",
            ) from None

    def _try_setting(self, setting: str) -> None:
        try:
            self.execute(f"SET SESSION {setting}")
        except pymysql.err.MySQLError as error:  # an older or another server does not know the variable
            if classify(error) is not ErrorClass.REFUSED:
                raise

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """Runs one statement, ``?`` standing for each parameter, and returns its rows. Raises PyMySQL's errors."""
        with self._connection.cursor() as cursor:
            if parameters:
                cursor.execute(statement.replace("%", "%%").replace("?", "%s"), tuple(parameters))
            else:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def scalar(self, statement: str, parameters: Sequence[object] = ()) -> object:
        """The first value of the first row, ``None`` for no row."""
        rows = self.execute(statement, parameters)
        return rows[0][0] if rows else None

    def run(self, statement: str | bytes) -> int:
        """Runs a statement whose text is complete; returns how many warnings it left."""
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return int(cursor.warning_count)

    def affect(self, statement: str | bytes) -> int:
        """Runs a statement whose text is complete; returns how many rows it changed."""
        with self._connection.cursor() as cursor:
            return int(cursor.execute(statement))

    def load(self, statement: str, buffers: Sequence[pa.Buffer]) -> int:
        """Runs LOAD DATA LOCAL INFILE ``{file}`` with these bytes as the file; returns how many warnings it left."""
        return self._connection.load(statement, buffers)

    def commit(self) -> None:
        faults.before(Step.MYSQL_COMMIT)
        self._connection.commit()
        faults.after(Step.MYSQL_COMMIT)

    def rollback(self) -> None:
        self._connection.rollback()

    @contextmanager
    def promptly(self) -> Iterator[None]:
        """While it lasts, the server ends this connection, and rolls back what is open, when it hears nothing for five seconds.

        For locks that every run has to pass. Of a process that was stopped, or whose network is gone, the server would keep them
        for eight hours.
        """
        self.execute(f"SET SESSION wait_timeout = {_SILENCE_SECONDS}")
        yield
        self.execute("SET SESSION wait_timeout = DEFAULT")

    def close(self) -> None:
        """Closes the connection; an open transaction is rolled back by the server."""
        with suppress(pymysql.err.MySQLError, OSError):  # it was closed already
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _connect(settings: MySqlSettings, *, autocommit: bool) -> LoadingConnection:
    options: dict[str, Any] = {
        "host": settings.host,
        "port": settings.port,
        "user": settings.user,
        "password": settings.password.encode(),  # PyMySQL would encode a str as latin-1
        "charset": "utf8mb4",
        "autocommit": autocommit,
        "connect_timeout": settings.connect_timeout,
        "program_name": "headrace",
    }
    if settings.ssl_ca:
        options["ssl"] = tls.context(settings)
    try:
        return LoadingConnection(offer_local=settings.local_infile, **options)
    except (pymysql.err.MySQLError, OSError, RuntimeError) as error:
        raise _unreachable(settings, error) from None


def _unreachable(settings: MySqlSettings, error: Exception) -> SinkUnreachableError:
    code = error_code(error)
    untrusted = tls.explained(settings, code, getattr(error, "original_exception", None))
    if untrusted is not None:
        return untrusted
    if code in _SERVER_BUSY:
        return SinkUnreachableError(
            f"{settings.identity} takes no more connections: {error_text(error)}.", "Raise max_connections, or lower worker-count."
        )
    if code in _LOGIN_REFUSED:
        return SinkUnreachableError(
            f"{settings.identity} refuses the login of user {settings.user!r}: {error_text(error)}.",
            "Check user and password, from which hosts the user may connect, and whether it must show a certificate (ssl-cert).",
        )
    return SinkUnreachableError(
        f"{settings.identity} cannot be reached: {error_text(error)}.", "Check host and port, and that the server is running."
    )


def repeat(action: Callable[[], _T], what: str, recover: Callable[[BaseException], None]) -> _T:
    """Runs ``action`` until it succeeds or fails for good; a transient failure is repeated for about 20 seconds.

    ``recover`` puts the connection back in order before each repetition, and raises nothing itself. Raises TransientError when the
    repetitions are used up, and everything that is not transient as it is.
    """
    lost = False
    for delay in (*RETRY_DELAYS, None):
        try:
            return action()
        except (pymysql.err.MySQLError, OSError, SinkUnreachableError) as error:
            if isinstance(error, SinkUnreachableError):
                if not lost:  # the first connection: a wrong address or password is not worth waiting for
                    raise
            elif classify(error) is ErrorClass.REFUSED:
                raise
            lost = True
            if delay is None:
                if isinstance(error, SinkUnreachableError):
                    raise
                message = f"{what} failed {len(RETRY_DELAYS) + 1} times, last: {error_text(error)}."
                raise TransientError(message, _way_out(error)) from error
            time.sleep(delay)
            recover(error)
    raise AssertionError("the last delay is None")
