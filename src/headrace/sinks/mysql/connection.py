"""Connections to the server, with Headrace's session settings, ``?`` placeholders, and errors classified by the required action."""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import Any, Self, TypeVar

import pyarrow as pa
import pymysql
from pymysql.constants import CLIENT

from headrace import faults
from headrace.errors import DefinitionError, SinkUnreachableError, TransientError
from headrace.faults import Step
from headrace.mysql_answers import understood
from headrace.sinks.mysql import tls, variables
from headrace.sinks.mysql.interruption import Interruption
from headrace.sinks.mysql.local_infile import LoadingConnection
from headrace.sinks.mysql.server_errors import INTERRUPTED, Cause, ErrorClass, cause, classify, error_code, error_text, way_out
from headrace.sinks.mysql.settings import MySqlSettings
from headrace.sinks.mysql.variables import Variable

RETRY_DELAYS = (0.1, 0.4, 1.5, 4.0, 7.0, 7.0)
_SILENCE_SECONDS = 5
_BRIEF_SECONDS = 3

_UNKNOWN_TIME_ZONE = 1298
_WITNESS = "FROM information_schema.character_sets LIMIT 1"
"""The end of a SELECT that always finds a row, and that fails with an error if the statement is killed."""
_PACKET_SIZES = range(1 << 10, (1 << 30) + 1)
"""The possible values of max_allowed_packet."""
_ASKS = re.compile(r"\s*\(?\s*(SELECT|SHOW|CHECKSUM)\b", re.IGNORECASE)
_DELETE = b"DELETE "
_LIMITED = re.compile(rb" LIMIT \d+$")

_ANY_BYTES = "headrace_any_bytes"
_T = TypeVar("_T")


class MySqlSession:
    """One connection with Headrace's session settings. It is a ``SqlSession``, so the ledger's statements run on it.

    Not in autocommit: the caller begins a transaction with its first statement, and commits. ``ddl`` makes a session for schema
    changes: in autocommit, and in the source's time zone. ``headrace.sinks.mysql.variables`` lists all settings.
    """

    def __init__(
        self, settings: MySqlSettings, *, ddl: bool = False, for_replay: bool = False, interruption: Interruption | None = None
    ) -> None:
        """``interruption`` is the signal with which the session's statements are ended.

        With ``for_replay``, an UPDATE affects the rows that it finds, even if they were like that before, and the session has
        :meth:`run_together`.
        """
        self._settings, self._interruption = settings, interruption
        self.is_tidb = False  # until the server's version is known
        self.collations: set[str] = set()
        """Collations that the server is known to have."""
        self._connection = _connect(settings, autocommit=ddl, for_replay=for_replay)
        try:
            self._configure(settings, ddl=ddl)
            self._connection.still_runs = self._still_runs
            if interruption is not None:
                interruption.watch(self)
        except BaseException:
            self.close()
            raise

    def _configure(self, settings: MySqlSettings, *, ddl: bool) -> None:
        rows = self.execute("SELECT CONNECTION_ID(), VERSION(), @@max_allowed_packet, @@local_infile")
        with understood():
            ((number, version, packet, local),) = rows
            self.connection_id, self.max_allowed_packet = int(str(number)), int(str(packet))
            if self.max_allowed_packet not in _PACKET_SIZES:
                raise ValueError(f"max_allowed_packet is {self.max_allowed_packet}")
        self._connection.expect_more()
        self.affected = 0
        """The number of rows that the last statement changed. For REPLACE: inserted and replaced rows, without those that already
        existed in the same form."""
        self.version = str(version)
        self.is_tidb = "TiDB" in self.version
        self.is_mariadb = "MariaDB" in self.version
        self._set_variables(settings, ddl=ddl)
        self._connection.limit(self.max_allowed_packet)
        # TiDB requests the file again when it retries a LOAD DATA after a write conflict, refuses invalid dates in it, and does not
        # report the refused column. Its REPLACE statements have none of these problems.
        self.local_infile = settings.local_infile and str(local) in ("1", "ON") and not self.is_tidb

    def _set_variables(self, settings: MySqlSettings, *, ddl: bool) -> None:
        """Raises DefinitionError if a value cannot be set that changes what is written."""
        zone = (settings.time_zone if ddl else "") or "+00:00"
        always = variables.always(ddl=ddl, is_mariadb=self.is_mariadb, time_zone=zone)
        self._set(settings, always, {})  # a row limit would also truncate the next result
        wanted = variables.wanted(ddl=ddl)
        names = [variable.name for variable in wanted] + list(variables.REFUSED)
        rows = self.execute(f"SHOW SESSION VARIABLES WHERE Variable_name IN ({', '.join('?' * len(names))})", names)
        found = {str(name).lower(): str(value) for name, value in rows}
        for name, refused in variables.REFUSED.items():
            if ddl and found.get(name, "").upper() in refused:
                raise _fixed(settings, name, found[name], "columns that are added get the defaults of another time", "NO")
        self._set(settings, variables.differing(wanted, found), found)
        self._connection.rollback()  # without autocommit the queries began a transaction, with the server's own values

    def _set(self, settings: MySqlSettings, to_set: Sequence[Variable], found: Mapping[str, str]) -> None:
        """Sets them in one statement or, if that is refused, one by one. ``found`` are the values before."""
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
        """Runs one statement, in which ``?`` stands for each parameter. Returns its rows. Raises PyMySQL's errors."""
        with self._connection.cursor() as cursor:
            self._send(cursor, self.text(statement, parameters))
            with understood():
                if cursor.description is None and _ASKS.match(statement):
                    raise ValueError("a question without a result")  # such is the response of a proxy under maintenance
            return list(cursor.fetchall())

    def scalar(self, statement: str, parameters: Sequence[object] = ()) -> object:
        """The first value of the first row; ``None`` if there is no row."""
        rows = self.execute(statement, parameters)
        return rows[0][0] if rows else None

    def find(self, selects: Sequence[str], parameters: Sequence[object] = (), *, columns: int = 1) -> list[tuple[object, ...]]:
        """The rows found by any of these SELECTs, in one statement. None of them may return NULL in the first column.

        For queries where "no row" leads to an action. MariaDB (10.11) returns an empty result for a SELECT that is killed while it
        plans to read an index range, or an EXISTS. So another SELECT is appended that does have a row and that fails if it is
        killed. Raises the error of a killed statement.
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
        """Runs a complete statement. Returns the number of warnings. Sets :attr:`affected`."""
        with self._connection.cursor() as cursor:
            self.affected = self._send(cursor, statement)
            return int(cursor.warning_count)

    def run_verbatim(self, statement: str) -> None:
        """Runs a statement that is not Headrace's own, exactly as written. Unlike :meth:`run`, it sends no further query.

        MariaDB reports success for a DELETE that is killed during planning. This is accepted here, except when the run is
        interrupted.
        """
        with self._connection.cursor() as cursor:
            self._require_wanted()
            cursor.execute(statement)
            self._require_wanted()

    def run_together(self, statements: Sequence[bytes]) -> list[tuple[int, int]]:
        """Runs complete statements in one round trip. Returns the number of rows that each affected, and of its warnings.

        An element may itself hold several statements with ``;`` between them. The server stops at the first one that it refuses,
        whose error is raised. That a killed DELETE or UPDATE changes nothing is not looked at: see :meth:`_send`.
        """
        self._require_wanted()
        with self._connection.cursor() as cursor:
            cursor.execute(b";".join(statements))
            done = [(int(cursor.rowcount), int(cursor.warning_count))]
            while cursor.nextset():
                done.append((int(cursor.rowcount), int(cursor.warning_count)))
        return done

    def affect(self, statement: str | bytes, parameters: Sequence[object] = ()) -> int:
        """Runs one statement, with parameters as :meth:`execute` takes them. Returns the number of rows that it changed."""
        if parameters:
            assert isinstance(statement, str), "only a text has places for parameters"
            statement = self.text(statement, parameters)
        with self._connection.cursor() as cursor:
            return self._send(cursor, statement)

    def text(self, statement: str, parameters: Sequence[object] = ()) -> str:
        """The statement with its parameters in place of each ``?``."""
        if not parameters:
            return statement
        with self._connection.cursor() as cursor:
            return str(cursor.mogrify(statement.replace("%", "%%").replace("?", "%s"), tuple(parameters)))

    def _send(self, cursor: Any, statement: str | bytes) -> int:
        """Runs a statement. Returns the number of rows that it changed or returned.

        A DELETE that is killed during planning deletes nothing, and MariaDB (10.11) reports success. So if a DELETE found no row, a
        SELECT must confirm that there is none, and must show that it was not killed itself; see :meth:`find`.
        """
        self._require_wanted()
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

    def _require_wanted(self) -> None:
        if self._interruption is not None and self._interruption.is_requested:
            raise pymysql.err.OperationalError(INTERRUPTED, "The run was given up")

    def load(self, statement: str, buffers: Sequence[pa.Buffer]) -> int:
        """Runs LOAD DATA LOCAL INFILE ``{file}`` with these bytes as the file. Returns the number of warnings.

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
        """Inside the block, the server closes this connection, and rolls back, after five seconds without traffic.

        For locks that every run must take. Otherwise the server would keep the locks of a stopped process, or after a network
        failure, for eight hours.
        """
        self.execute(f"SET SESSION wait_timeout = {_SILENCE_SECONDS}")
        yield
        self.execute("SET SESSION wait_timeout = DEFAULT")

    def close(self) -> None:
        """Closes the connection; an open transaction is rolled back by the server."""
        if self._interruption is not None:
            self._interruption.forget(self)
        with suppress(pymysql.err.MySQLError, OSError):  # it was already closed
            self._connection.close()

    def end_statement(self) -> bool:
        """See ``Interruptible``. Has no effect on a session that runs no statement."""
        try:
            with self._aside(_BRIEF_SECONDS) as aside, aside.cursor() as cursor:
                cursor.execute(f"KILL QUERY {self.connection_id}")
        except (pymysql.err.MySQLError, OSError) as error:
            return classify(error) is ErrorClass.REFUSED  # the statement has just ended by itself
        return True

    def cut_off(self) -> None:
        """See ``Interruptible``."""
        self._connection.cut_off()

    def _still_runs(self) -> bool:
        """Whether the server runs a statement of this connection, as seen by another connection.

        If the server can be reached but does not say (because all its connections are taken), the kernel's timeouts must detect a
        loss.
        """
        # The list of a TiDB server has only its own statements, and the address may lead to another server.
        processes = "cluster_processlist" if self.is_tidb else "processlist"
        try:
            with self._aside(max(1.0, self._settings.silence_timeout / 8)) as aside, aside.cursor() as cursor:
                cursor.execute(f"SELECT command FROM information_schema.{processes} WHERE id = {self.connection_id}")
                commands = [str(command) for (command,) in cursor.fetchall()]
        except (pymysql.err.MySQLError, OSError) as error:
            return cause(error) is not Cause.CONNECTION
        return any(command != "Sleep" for command in commands)

    def _aside(self, seconds: float) -> closing[LoadingConnection]:
        """Another connection, for a statement about this one. Waits for up to this long to connect, and for a response.

        Raises PyMySQL's errors.
        """
        brief = replace(self._settings, connect_timeout=min(self._settings.connect_timeout, seconds))
        return closing(_opened(brief, silence=4 * seconds))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _codec(name: str) -> codecs.CodecInfo | None:
    """UTF-8 under the name :data:`_ANY_BYTES`: invalid bytes become lone surrogates, which are encoded as the same bytes again."""
    utf8 = codecs.lookup("utf-8")
    if name != _ANY_BYTES:
        return None
    return codecs.CodecInfo(utf8.encode, lambda data, _="": utf8.decode(data, "surrogateescape"), name=_ANY_BYTES)


codecs.register(_codec)


def _connect(settings: MySqlSettings, *, autocommit: bool, for_replay: bool) -> LoadingConnection:
    try:
        connection = _opened(settings, silence=settings.silence_timeout, autocommit=autocommit, for_replay=for_replay)
    except (pymysql.err.MySQLError, OSError, RuntimeError) as error:
        raise _unreachable(settings, error) from None
    # A definition may contain bytes that are not UTF-8, in the default of a BINARY column.
    connection.encoding = _ANY_BYTES
    return connection


def _opened(settings: MySqlSettings, *, silence: float, autocommit: bool = True, for_replay: bool = False) -> LoadingConnection:
    options: dict[str, Any] = {
        "host": settings.host,
        "port": settings.port,
        "user": settings.user,
        "password": settings.password.encode(),  # PyMySQL would encode a str as latin-1
        "charset": "utf8mb4",
        "autocommit": autocommit,
        "connect_timeout": settings.connect_timeout,
        "program_name": "headrace",
        "client_flag": CLIENT.FOUND_ROWS | CLIENT.MULTI_STATEMENTS if for_replay else 0,
    }
    if settings.ssl_ca:
        options["ssl"] = tls.context(settings)
    return LoadingConnection(offer_local=settings.local_infile, silence=silence, **options)


def _unreachable(settings: MySqlSettings, error: Exception) -> SinkUnreachableError:
    code = error_code(error)
    untrusted = tls.explained(settings, code, getattr(error, "original_exception", None))
    if untrusted is not None:
        return untrusted
    why = cause(error)
    if why is Cause.BUSY:
        return SinkUnreachableError(
            f"{settings.identity} takes no more connections: {error_text(error)}.", "Raise max_connections, or lower worker-count."
        )
    if why is Cause.LOGIN:
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


def repeat(
    action: Callable[[], _T], what: str, recover: Callable[[BaseException], None], interruption: Interruption | None = None
) -> _T:
    """Runs ``action`` until it succeeds or fails permanently. Transient failures are retried for about 20 seconds.

    ``recover`` restores the connection before each retry, and raises nothing itself. Raises TransientError if the retries are used
    up, or the run is ended by ``interruption``; other errors are raised unchanged.
    """
    lost = False
    pause = time.sleep if interruption is None else interruption.wait
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
            if interruption is not None and interruption.is_requested:
                raise TransientError(f"{what} was given up.") from error
            if delay is None:
                if isinstance(error, SinkUnreachableError):
                    raise
                message = f"{what} failed {len(RETRY_DELAYS) + 1} times, last: {error_text(error)}."
                raise TransientError(message, way_out(error)) from error
            pause(delay)
            recover(error)
    raise AssertionError("the last delay is None")
