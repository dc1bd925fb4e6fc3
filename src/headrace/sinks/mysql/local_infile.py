"""LOAD DATA LOCAL INFILE without files: the only place that decides what is sent when a server requests a file.

In this protocol the server names the file that the client shall send, and PyMySQL would open any file that it names. Here no file
is opened. The connection announces LOCAL to the server but not to PyMySQL, whose own response to such a request is then an error. A
request is answered from memory, only during a load, and only if it names that load's token. Any other request, in response to any
command, ends the connection.

A server may also request the password in clear text, and PyMySQL would send it. Here it is sent only to a server whose certificate
was checked.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.constants import CLIENT

from headrace.errors import SinkUnreachableError, TerminalError
from headrace.sinks.mysql.patience import PatientConnection

PACKET_TOO_LARGE = 1153
_CHUNK = 128 * 1024
_LOCAL_REQUEST = b"\xfb"
_SHOWN = 80
_CLEAR_TEXT = frozenset({b"mysql_clear_password", b"dialog"})
_unchecked_tls: list[Any] = []


class LocalFileRefused(TerminalError):
    """The server requested a file that it was not offered. The connection is closed, because the server cannot be trusted."""


class LoadingConnection(PatientConnection):
    """A connection that can send Arrow buffers as the file of a LOAD DATA LOCAL INFILE statement."""

    def __init__(self, *, offer_local: bool, **options: Any) -> None:
        self._token = b""
        self._buffers: Sequence[pa.Buffer] = ()
        self._answer_due = False
        self._verified = "ssl" in options
        self._chunk = _CHUNK
        self._max_packet = 0
        if offer_local:
            options["client_flag"] = options.get("client_flag", 0) | CLIENT.LOCAL_FILES
        super().__init__(local_infile=False, **options)

    def load(self, statement: str, buffers: Sequence[pa.Buffer]) -> tuple[int, int]:
        """Runs a LOAD DATA statement, with ``{file}`` in place of the quoted file name.

        Returns the number of warnings, and the number of rows that it changed.
        """
        self._token = f"headrace-{secrets.token_hex(16)}".encode()
        self._buffers = buffers
        try:
            with self.cursor() as cursor:
                cursor.execute(statement.replace("{file}", self._token.decode(), 1))
                return int(cursor.warning_count), int(cursor.rowcount)
        finally:
            self._token = b""
            self._buffers = ()

    def limit(self, max_packet: int) -> None:
        """Sets the server's ``max_allowed_packet``, in bytes. Nothing larger is sent from now on."""
        self._max_packet = max_packet
        self._chunk = max(1024, min(self._chunk, max_packet - 1024))

    def _create_ssl_ctx(self, parameters: dict[str, Any]) -> Any:
        # Without parameters, TLS is used if the server has it, and no certificate is checked. PyMySQL would nevertheless read all
        # certificates of the system for each connection, which takes 22 ms of CPU.
        if parameters:
            return super()._create_ssl_ctx(parameters)
        if not _unchecked_tls:
            _unchecked_tls.append(super()._create_ssl_ctx(parameters))
        return _unchecked_tls[0]

    def _process_auth(self, plugin_name: bytes, *arguments: Any) -> Any:
        if plugin_name in _CLEAR_TEXT and not self._verified:
            raise SinkUnreachableError(
                f"{self.host}:{self.port} asks for the password in clear text; it is sent only over TLS that proves the server's "
                "identity.",
                "Give the server's CA as ssl-ca, or let the user log in by another authentication plugin.",
            )
        return super()._process_auth(plugin_name, *arguments)

    def _execute_command(self, command: int, sql: str | bytes) -> None:
        statement = sql.encode() if isinstance(sql, str) else sql
        if 0 < self._max_packet <= len(statement) + 1:  # the server would close the connection, mostly without an error
            raise pymysql.err.OperationalError(
                PACKET_TOO_LARGE,
                f"a statement of {len(statement)} bytes, while the server's max_allowed_packet is {self._max_packet}",
            )
        super()._execute_command(command, statement)
        self._answer_due = True

    def _read_query_result(self, unbuffered: bool = False) -> int:
        self._answer_due = True  # each of several results begins with its own first packet
        return super()._read_query_result(unbuffered)

    def _read_packet(self, *arguments: Any) -> Any:
        """A file request can only be the first packet of a response. Later packets may begin with the same byte, for NULL."""
        packet = super()._read_packet(*arguments)
        first, self._answer_due = self._answer_due, False
        data = packet.get_all_data()
        if not first or data[:1] != _LOCAL_REQUEST:
            return packet
        asked, token, self._token = bytes(data[1:]), self._token, b""
        if not token or not secrets.compare_digest(asked, token):
            self._force_close()  # close() would send a quit command, which the server would take for the file
            raise _not_offered(self, asked)
        self._send()
        return super()._read_packet(*arguments)

    def _send(self) -> None:
        for buffer in self._buffers:
            view = memoryview(buffer)
            for start in range(0, len(view), self._chunk):
                self.write_packet(bytes(view[start : start + self._chunk]))
        self.write_packet(b"")


def _not_offered(connection: LoadingConnection, asked: bytes) -> LocalFileRefused:
    name = asked[:_SHOWN].decode("utf-8", "replace")
    return LocalFileRefused(
        f"{connection.host}:{connection.port} asked for the file {name!r}, which was not offered to it; nothing was sent, and the "
        "connection was closed.",
        "A correct server never does that: find out what answers at this address, and connect with TLS (ssl-ca).",
    )
