"""Connections to the server as Headrace needs them: session settings, ``?`` placeholders, and errors sorted by what to do."""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Any, Self, TypeVar

import pyarrow as pa
import pymysql

from headrace import faults
from headrace.errors import DefinitionError, SinkUnreachableError, TransientError
from headrace.faults import Step
from headrace.sinks.mysql import tls, variables
from headrace.sinks.mysql.local_infile import LoadingConnection
from headrace.sinks.mysql.settings import MySqlSettings
from headrace.sinks.mysql.variables import Variable

RETRY_DELAYS = (0.1, 0.4, 1.5, 4.0, 7.0, 7.0)
_SILENCE_SECONDS = 5
_IN_RANGE = range(1000, 5000)

_LOGIN_REFUSED = frozenset({1044, 1045, 1130, 1251, 1698, 2059, 2061, 3118})
_LOCK_CONFLICT = frozenset({1205, 1213, 1614, 3058, 3572, 8002, 8022, 8028, 9007})
_CONNECTION_LOST = frozenset({1053, 1152, 1158, 1159, 1160, 1161, 1317, 1927, 2002, 2003, 2006, 2013, 2055, 4031})
# After a failover the address leads to the new primary, and a connection that lasts to the former one.
_READ_ONLY = frozenset({1290, 1792, 1836})
_DISK_FULL = frozenset({1021, 1114})  # InnoDB calls a table full when there is no room for its file to grow
_NO_SPACE = re.compile(r"No space left on device|errno: 28\b|error 28\b|Disk full", re.IGNORECASE)
_SERVER_BUSY = frozenset({1037, 1038, 1040, 1041, 1203, 1206, 8027, 9001, 9002, 9003, 9004, 9005, 9006})

_UNKNOWN_TIME_ZONE = 1298
INTERRUPTED = 1317
_WITNESS = "FROM information_schema.character_sets LIMIT 1"
"""The end of a SELECT that always has a row, and that a kill of the statement ends with an error."""
_DELETE = b"DELETE "
_LIMITED = re.compile(rb" LIMIT \d+$")

_ANY_BYTES = "headrace_any_bytes"
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


class MySqlSession:
    """One connection with Headrace's session settings; it is a ``SqlSession``, so the ledger's statements run on it.

    Not in autocommit: the caller opens transactions by its first statement, and commits. ``ddl`` makes a session for schema
    changes: in autocommit, and in the source's time zone. See ``headrace.sinks.mysql.variables`` for all that is set.
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
        self.affected = 0
        """Rows that the last statement changed. Of REPLACE those that were put in and those that were pushed out, but for rows
        that were there as they are."""
        self.version = str(version)
        self.is_tidb = "TiDB" in self.version
        self.is_mariadb = "MariaDB" in self.version
        self._set_variables(settings, ddl=ddl)
        self.max_allowed_packet = int(str(packet))
        self._connection.limit(self.max_allowed_packet)
        # TiDB asks for the file again whenever it repeats a LOAD DATA after a write conflict, lets no impossible date through in
        # one, and does not say which column it refuses; its REPLACE statements have none of this.
        self.local_infile = settings.local_infile and str(local) in ("1", "ON") and not self.is_tidb

    def _set_variables(self, settings: MySqlSettings, *, ddl: bool) -> None:
        """Raises DefinitionError where a value that would change what is written cannot be set."""
        zone = (settings.time_zone if ddl else "") or "+00:00"
        always = variables.always(ddl=ddl, is_mariadb=self.is_mariadb, time_zone=zone)
        self._set(settings, always, {})  # a limit of rows would also cut off what comes now
        wanted = variables.wanted(ddl=ddl)
        names = [variable.name for variable in wanted] + list(variables.REFUSED)
        rows = self.execute(f"SHOW SESSION VARIABLES WHERE Variable_name IN ({', '.join('?' * len(names))})", names)
        found = {str(name).lower(): str(value) for name, value in rows}
        for name, refused in variables.REFUSED.items():
            if ddl and found.get(name, "").upper() in refused:
                raise _fixed(settings, name, found[name], "columns that are added get the defaults of another time", "NO")
        self._set(settings, variables.differing(wanted, found), found)
        self._connection.rollback()  # without autocommit the questions began a transaction, with the server's own values

    def _set(self, settings: MySqlSettings, to_set: Sequence[Variable], found: Mapping[str, str]) -> None:
        """In one statement, or, where that is refused, one by one. ``found`` are the values before."""
        if not to_set:
            return
        try:
            self._assign(to_set)
        except pymysql.err.MySQLError as error:
            if classify(error) is not ErrorClass.REFUSED:
                raise
            for variable in to_set:
                self._set_alone(settings, variable, found.get(variable.name, ""))

    def _assign(self, to_set: Sequence[Variable]) -> None:
        self.execute(f"SET SESSION {', '.join(f'{v.name} = ?' for v in to_set)}", [v.value for v in to_set])

    def _set_alone(self, settings: MySqlSettings, variable: Variable, found: str) -> None:
        try:
            self._assign([variable])
        except pymysql.err.MySQLError as error:
            if classify(error) is not ErrorClass.REFUSED:
                raise
            if error_code(error) == _UNKNOWN_TIME_ZONE:
                raise DefinitionError(
                    f"The target does not know the time zone {variable.value!r} of time-zone in the sink's URI.",
                    "Load the server's time zone tables (mysql_tzinfo_to_sql), or write an offset such as %2B08:00.",
                ) from None
            if not variable.loud:
                raise _fixed(settings, variable.name, found, variable.meaning, variable.value) from None

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """Runs one statement, ``?`` standing for each parameter, and returns its rows. Raises PyMySQL's errors."""
        with self._connection.cursor() as cursor:
            if parameters:
                statement = cursor.mogrify(statement.replace("%", "%%").replace("?", "%s"), tuple(parameters))
            self._send(cursor, statement)
            return list(cursor.fetchall())

    def scalar(self, statement: str, parameters: Sequence[object] = ()) -> object:
        """The first value of the first row, ``None`` for no row."""
        rows = self.execute(statement, parameters)
        return rows[0][0] if rows else None

    def find(self, selects: Sequence[str], parameters: Sequence[object] = (), *, columns: int = 1) -> list[tuple[object, ...]]:
        """The rows that any of these SELECTs finds, in one statement. None of them may have a NULL first.

        For questions where no row is an answer to act on. Of a SELECT that is killed while it plans to read a range of an index,
        or an EXISTS, MariaDB (10.11) answers that there is nothing. So another SELECT follows, which does have a row, and notices
        the kill. Raises the error of a killed statement.
        """
        if self.is_tidb:
            return self.execute(" UNION ALL ".join(f"({select})" for select in selects), parameters)
        witness = f"SELECT {', '.join(['NULL'] * columns)} {_WITNESS}"
        rows = self.execute(" UNION ALL ".join(f"({select})" for select in (*selects, witness)), parameters)
        if not rows or rows[-1][0] is not None:
            raise pymysql.err.OperationalError(INTERRUPTED, "A SELECT was interrupted and found nothing")
        return rows[:-1]

    def finds(self, select: str, parameters: Sequence[object] = ()) -> bool:
        """Whether a SELECT of one column finds a row; see :meth:`find`."""
        return bool(self.find([select], parameters))

    def run(self, statement: str | bytes) -> int:
        """Runs a statement whose text is complete; returns how many warnings it left. Sets :attr:`affected`."""
        with self._connection.cursor() as cursor:
            self.affected = self._send(cursor, statement)
            return int(cursor.warning_count)

    def affect(self, statement: str | bytes) -> int:
        """Runs a statement whose text is complete; returns how many rows it changed."""
        with self._connection.cursor() as cursor:
            return self._send(cursor, statement)

    def _send(self, cursor: Any, statement: str | bytes) -> int:
        """Runs a statement; returns how many rows it changed, or how many came back.

        A DELETE that is killed while it is planned deletes nothing, and MariaDB (10.11) answers that all went well. So one that
        found no row is believed only when a SELECT finds none either, which has to show that it was not killed; see :meth:`find`.
        """
        text = statement.encode(errors="surrogateescape") if isinstance(statement, str) else statement
        affected = int(cursor.execute(statement))
        if affected or self.is_tidb or not text.startswith(_DELETE):
            return affected
        warnings = cursor.warning_count
        limit = b"" if _LIMITED.search(text) else b" LIMIT 1"
        select = b"(SELECT 1 " + text.removeprefix(_DELETE) + limit + b" FOR UPDATE)"
        cursor.execute(select + f" UNION ALL (SELECT NULL {_WITNESS})".encode())
        if cursor.fetchall() != ((None,),):
            raise pymysql.err.OperationalError(INTERRUPTED, "A DELETE was interrupted and deleted nothing")
        cursor.warning_count = warnings
        return 0

    def load(self, statement: str, buffers: Sequence[pa.Buffer]) -> int:
        """Runs LOAD DATA LOCAL INFILE ``{file}`` with these bytes as the file; returns how many warnings it left.

        Sets :attr:`affected`.
        """
        warnings, self.affected = self._connection.load(statement, buffers)
        return warnings

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


def _codec(name: str) -> codecs.CodecInfo | None:
    """UTF-8 for :data:`_ANY_BYTES`, in which bytes that are none become lone surrogates, and are themselves again when sent."""
    utf8 = codecs.lookup("utf-8")
    if name != _ANY_BYTES:
        return None
    return codecs.CodecInfo(utf8.encode, lambda data, _="": utf8.decode(data, "surrogateescape"), name=_ANY_BYTES)


codecs.register(_codec)


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
        connection = LoadingConnection(offer_local=settings.local_infile, **options)
    except (pymysql.err.MySQLError, OSError, RuntimeError) as error:
        raise _unreachable(settings, error) from None
    # A definition may hold bytes that are no UTF-8: the default of a BINARY column.
    connection.encoding = _ANY_BYTES
    return connection


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


def _fixed(settings: MySqlSettings, name: str, found: str, meaning: str, value: variables.Value) -> DefinitionError:
    shown = "an empty text" if value == "" else str(value)
    return DefinitionError(
        f"{settings.identity} has {name} = {found or 'empty'}, with which {meaning}, and this user cannot set it for a session.",
        f"Set it to {shown} in the server's configuration, or give the user the privilege to set it.",
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
