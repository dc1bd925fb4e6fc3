"""A connection to the server that is replicated.

It sends no file, and no password in clear text without verified TLS, and an answer is bounded in bytes.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql

from headrace.errors import DefinitionError
from headrace.mysql_answers import BoundedConnection
from headrace.upstream.settings import Upstream

SHOWN = 200
"""The most characters of a server's error that a message has."""
OF_CLIENT = range(2000, 3000)
"""Codes of errors that the client found, not the server."""
_CONNECT_SECONDS = 10
_SILENT_SECONDS = 30
_CLEAR_TEXT = frozenset({b"mysql_clear_password", b"dialog"})


class CarefulConnection(BoundedConnection):
    """Sends the password in clear text only to a server whose certificate was checked, and never a file."""

    def _process_auth(self, plugin_name: bytes, *arguments: Any) -> Any:
        if plugin_name in _CLEAR_TEXT and not self.verified:
            raise pymysql.err.OperationalError(OF_CLIENT.start, "it asks for the password in clear text, without a verified TLS")
        return super()._process_auth(plugin_name, *arguments)

    def __init__(self, *, verified: bool, **options: Any) -> None:
        self.verified = verified
        super().__init__(local_infile=False, **options)


@contextmanager
def no_file_is_sent(connection: CarefulConnection) -> Iterator[None]:
    """Closes a connection on which the server asks for a file of this machine (LOAD DATA LOCAL). It gets nothing."""
    try:
        yield
    except RuntimeError:  # how PyMySQL refuses
        connection._force_close()  # close() would send a command, which the server would take for the file
        raise pymysql.err.OperationalError(OF_CLIENT.start, "it asks for a file of this machine") from None


def connect(upstream: Upstream) -> CarefulConnection:
    """A new connection, which gives values as the bytes that the server sent. Raises PyMySQL's errors, DefinitionError."""
    connection = CarefulConnection(
        verified=bool(upstream.ssl_ca),
        host=upstream.host,
        port=upstream.port,
        user=upstream.user,
        password=upstream.password,
        charset="utf8mb4",
        use_unicode=False,
        conv={},
        autocommit=True,
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_SILENT_SECONDS,
        write_timeout=_SILENT_SECONDS,
        defer_connect=True,
        **({"ssl": _tls(upstream)} if upstream.ssl_ca else {}),
    )
    with no_file_is_sent(connection):
        connection.connect()
    connection.expect_more()
    return connection


def _tls(upstream: Upstream) -> ssl.SSLContext:
    """Raises DefinitionError for unusable files."""
    try:
        made = ssl.create_default_context(cafile=upstream.ssl_ca)
        # Certificates that servers generate themselves do not pass the strict check that is the default since Python 3.13.
        made.verify_flags &= ~ssl.VERIFY_X509_STRICT
        made.check_hostname = upstream.verify_identity
        if upstream.ssl_cert:
            made.load_cert_chain(upstream.ssl_cert, upstream.ssl_key or None, password="")
    except OSError as error:
        reason = getattr(error, "strerror", None) or error
        raise DefinitionError(f"The certificates for {upstream.place} cannot be used: {reason}.") from None
    return made


def code_and_text(error: Exception) -> tuple[int | None, str]:
    """The server's or client's number of an error, and its text, on one line and cut."""
    number, text = (*error.args, "", "")[:2] if error.args else (None, "")
    code = number if isinstance(number, int) else None
    return code, " ".join(str(text or error).split())[:SHOWN].rstrip(".")
