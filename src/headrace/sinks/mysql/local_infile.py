"""LOAD DATA LOCAL INFILE without files: the one place that decides what a server gets when it asks the client for a file.

In this protocol the server names the file that the client shall send, and PyMySQL would open whatever it names. Here it
opens nothing: the connection announces LOCAL to the server but not to PyMySQL (whose own answer to such a request is then an
error), and a request is answered from memory, only while a load is under way, and only when it names that load's token.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pymysql
from pymysql.constants import CLIENT

from headrace.errors import TerminalError

if TYPE_CHECKING:
    # The stubs leave out the packet layer, which this class works on.
    class _BaseConnection:
        def __init__(self, **options: Any) -> None: ...
        def _create_ssl_ctx(self, parameters: dict[str, Any]) -> Any: ...
        def _read_packet(self, *arguments: Any) -> Any: ...
        def write_packet(self, payload: bytes) -> None: ...
        def cursor(self) -> Any: ...
        def commit(self) -> None: ...
        def rollback(self) -> None: ...
        def close(self) -> None: ...
else:
    _BaseConnection = pymysql.connections.Connection

_CHUNK = 128 * 1024
_LOCAL_REQUEST = b"\xfb"
_unchecked_tls: list[Any] = []


class LocalFileRefused(TerminalError):
    """The server asked for a file that it was not offered. The connection is closed: nothing it says can be trusted."""


class LoadingConnection(_BaseConnection):
    """A PyMySQL connection that can send Arrow buffers as the file of a LOAD DATA LOCAL INFILE statement."""

    def __init__(self, *, offer_local: bool, **options: Any) -> None:
        self._token = b""
        self._buffers: Sequence[pa.Buffer] = ()
        self.chunk = _CHUNK
        if offer_local:
            options["client_flag"] = options.get("client_flag", 0) | CLIENT.LOCAL_FILES
        super().__init__(local_infile=False, **options)

    def load(self, statement: str, buffers: Sequence[pa.Buffer]) -> int:
        """Runs a LOAD DATA statement, whose text holds ``{file}`` where the quoted name belongs; returns the warning count."""
        self._token = f"headrace-{secrets.token_hex(16)}".encode()
        self._buffers = buffers
        try:
            with self.cursor() as cursor:
                cursor.execute(statement.replace("{file}", self._token.decode(), 1))
                return int(cursor.warning_count)
        finally:
            self._token = b""
            self._buffers = ()

    def _create_ssl_ctx(self, parameters: dict[str, Any]) -> Any:
        # Without parameters TLS is used where the server has it, and no certificate is checked; and yet PyMySQL reads all
        # certificates of the system for each connection, 22 ms of CPU each time.
        if parameters:
            return super()._create_ssl_ctx(parameters)
        if not _unchecked_tls:
            _unchecked_tls.append(super()._create_ssl_ctx(parameters))
        return _unchecked_tls[0]

    def _read_packet(self, *arguments: Any) -> Any:
        packet = super()._read_packet(*arguments)
        if not self._token:  # then PyMySQL itself refuses: it was not told that LOCAL is on
            return packet
        data = packet.get_all_data()
        if data[:1] != _LOCAL_REQUEST:
            return packet
        if not secrets.compare_digest(bytes(data[1:]), self._token):
            self.close()
            raise LocalFileRefused("The server asked for a file that was not offered to it; the connection was closed.")
        self._send()
        return super()._read_packet(*arguments)

    def _send(self) -> None:
        for buffer in self._buffers:
            view = memoryview(buffer)
            for start in range(0, len(view), self.chunk):
                self.write_packet(bytes(view[start : start + self.chunk]))
        self.write_packet(b"")
