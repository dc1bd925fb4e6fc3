"""A MySQL server that asks the client for files: just enough of the protocol for a client to log in and send statements."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

# LONG_PASSWORD, LOCAL_FILES, PROTOCOL_41, TRANSACTIONS, SECURE_CONNECTION, MULTI_RESULTS, PLUGIN_AUTH
_CAPABILITIES = 0x1 | 0x80 | 0x200 | 0x2000 | 0x8000 | 0x20000 | 0x80000
_SALT = b"12345678" + b"abcdefghijkl"
OK = b"\x00\x00\x00\x02\x00\x00\x00"
"""The answer to what is no question."""
_MORE_RESULTS = b"\x00\x00\x00\x0a\x00\x00\x00"
_SESSION = ("7", "10.11.6-MariaDB", "16777216", "1")


def local_request(name: bytes) -> bytes:
    """What a server says to get the file of this name."""
    return b"\xfb" + name


@dataclass
class HostileServer:
    """``answer`` takes a statement and returns the payload of its answer, or its packets, ``None`` for the usual one.

    ``statements`` are those it got, ``received`` all the rest that the client sent after a request for a file, and ``passwords``
    what it got for asking for the password in clear text.
    """

    answer: Callable[[bytes], bytes | Iterator[bytes] | None]
    clear_text: bytes = b""
    port: int = 0
    statements: list[bytes] = field(default_factory=list)
    received: list[bytes] = field(default_factory=list)
    passwords: list[bytes] = field(default_factory=list)
    logins: list[bytes] = field(default_factory=list)

    @property
    def uri(self) -> str:
        return f"mysql://root:never-sent@127.0.0.1:{self.port}/"

    def serve(self, listener: socket.socket) -> None:
        """Serves one connection after another until the listener is closed."""
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError, EOFError):
                    connection.settimeout(20)
                    self._converse(connection)

    def _converse(self, connection: socket.socket) -> None:
        greeting = b"\x0a10.11.6-MariaDB\x00" + struct.pack("<I", 7) + _SALT[:8] + b"\x00"
        greeting += struct.pack("<HBHH", _CAPABILITIES & 0xFFFF, 45, 2, _CAPABILITIES >> 16) + bytes([21]) + bytes(10)
        _send(connection, 0, greeting + _SALT[8:] + b"\x00mysql_native_password\x00")
        self.logins.append(_receive(connection))
        if self.clear_text:
            _send(connection, 2, b"\xfe" + self.clear_text + b"\x00")
            self.passwords.append(_receive(connection))
            return
        _send(connection, 2, OK)
        while True:
            command = _receive(connection)
            if command[:1] != b"\x03":
                return
            self.statements.append(command[1:])
            answer = self.answer(command[1:])
            if answer is None:
                _usual(connection, command[1:])
                continue
            if not isinstance(answer, bytes):
                for number, packet in enumerate(answer, start=1):
                    _send(connection, number & 0xFF, packet)
                continue
            number = 1
            for part in answer.split(b"|then|"):
                _send(connection, number, part)
                number += 1
            if answer[:1] == b"\xfb" or b"|then|" in answer:
                while True:  # whatever the client sends, until it has hung up
                    self.received.append(_receive(connection))


MORE_THEN = _MORE_RESULTS + b"|then|"
"""An answer that says that another result follows."""


def result(rows: Sequence[tuple[str | bytes | None, ...]], columns: int) -> bytes:
    """An answer with these rows, and with this many columns in its head."""
    parts = [bytes([columns]), *[_column()] * columns, b"\xfe\x00\x00\x02\x00"]
    parts += [b"".join(map(_value, row)) for row in rows]
    return b"|then|".join([*parts, b"\xfe\x00\x00\x02\x00"])


def _value(value: str | bytes | None) -> bytes:
    if value is None:
        return b"\xfb"
    data = value.encode() if isinstance(value, str) else value
    return (bytes([len(data)]) if len(data) < 251 else b"\xfc" + struct.pack("<H", len(data))) + data


def answers(packets: bytes) -> Iterator[bytes]:
    """The packets of a :func:`result` as an answer behind which more statements may come."""
    return iter(packets.split(b"|then|"))


def endless_rows() -> Iterator[bytes]:
    """An answer of one column whose rows do not end."""
    *beginning, _, _ = result([("x",)], 1).split(b"|then|")
    yield from beginning
    while True:
        yield b"\xfd" + (1 << 16).to_bytes(3, "little") + b"y" * (1 << 16)


def _usual(connection: socket.socket, statement: bytes) -> None:
    """OK, but for the questions that a session begins with."""
    answer = OK
    if statement.startswith(b"SELECT CONNECTION_ID()"):
        answer = result([_SESSION], len(_SESSION))
    elif statement.startswith(b"SHOW SESSION VARIABLES"):
        answer = result([], 2)
    for number, part in enumerate(answer.split(b"|then|"), start=1):
        _send(connection, number, part)


def _column() -> bytes:
    names = b"".join(bytes([len(name)]) + name for name in (b"def", b"", b"", b"", b"x", b""))
    return names + b"\x0c" + struct.pack("<HIBHB", 45, 1024, 253, 0, 0) + b"\x00\x00"


def _send(connection: socket.socket, number: int, payload: bytes) -> None:
    connection.sendall(struct.pack("<I", len(payload))[:3] + bytes([number]) + payload)


def _receive(connection: socket.socket) -> bytes:
    header = _exactly(connection, 4)
    return _exactly(connection, int.from_bytes(header[:3], "little"))


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data


@contextmanager
def hostile_server(answer: Callable[[bytes], bytes | Iterator[bytes] | None], clear_text: bytes = b"") -> Iterator[HostileServer]:
    """Such a server on a free port of this machine, in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = HostileServer(answer, clear_text, listener.getsockname()[1])
        thread = threading.Thread(target=server.serve, args=(listener,), daemon=True)
        thread.start()
        yield server
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(20)
