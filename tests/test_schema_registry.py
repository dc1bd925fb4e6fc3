"""A request to a schema registry ends in time, however slowly or endlessly the registry answers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from headrace.abandonment import anything_goes_on
from headrace.errors import SourceUnreachableError
from headrace.kafka import registry
from headrace.kafka.registry import SchemaRegistry

_LIMIT = 0.4
ANSWERS = {
    "interim answers without end": (b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.0),
    "an interim answer now and then": (b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.1),
    "a header byte by byte": (b"HTTP/1.1 200 OK\r\nX: ", b"a", 0.1),
    "a body byte by byte": (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", b" ", 0.1),
    "a body of chunks without end": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n", 0.1),
    "a part of a status line": (b"HTTP/1.1", b"", 0.1),
    "nothing": (b"", b"", 0.1),
}


@contextmanager
def answering(first: bytes, repeated: bytes, pause: float) -> Iterator[tuple[int, list[socket.socket]]]:
    """A server that answers with ``first``, and then with the same again and again; its port, and its open connections."""
    connections: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        with suppress(OSError):
            connection.recv(4096)
            connection.sendall(first)
            while True:
                connection.sendall(repeated)
                time.sleep(pause)
                if not repeated and connection.recv(1) == b"":
                    break
        connections.remove(connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                connections.append(connection)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1], connections
        server.shutdown(socket.SHUT_RDWR)


def comes_true(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 5
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("answer", ANSWERS)
def test_a_request_ends_in_time_and_leaves_nothing_behind(answer: str, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_SECONDS", _LIMIT)
    monkeypatch.setattr(registry, "_PAUSE_SECONDS", 0.01)
    with answering(*ANSWERS[answer]) as (port, connections):
        began = time.monotonic()
        with pytest.raises(SourceUnreachableError) as raised:
            SchemaRegistry(scheme, "127.0.0.1", port).schema(1)
        assert time.monotonic() - began < 4 * _LIMIT + 2
        if scheme == "http":
            assert f"there is no complete answer within {_LIMIT:g} s" in str(raised.value)
        assert comes_true(lambda: not anything_goes_on())
        assert comes_true(lambda: not connections)
