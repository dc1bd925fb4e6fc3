"""A connection that breaks off in the middle of the network: the client learns of it and the server does not, or nobody does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from servers import MariaDb


class Proxy:
    """Hands bytes on between clients and a server, until :meth:`sever` or :meth:`swallow`; later connections are handed on."""

    def __init__(self, server: MariaDb) -> None:
        self._address = (server.host, server.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.server = replace(server, port=self._listener.getsockname()[1])
        self._clients: list[socket.socket] = []
        self._kept: list[socket.socket] = []
        self._silent: set[socket.socket] = set()
        self._swallows_all = False
        threading.Thread(target=self._accept, daemon=True).start()

    def lead_to(self, server: MariaDb) -> None:
        """Ends what there is; later connections go to this server."""
        self._address = (server.host, server.port)
        self.sever()
        kept, self._kept = self._kept, []
        for upstream in kept:
            upstream.close()

    def lead_new_ones_to(self, server: MariaDb) -> None:
        """Later connections go to this server; those that are there stay where they are."""
        self._address = (server.host, server.port)

    def sever(self) -> None:
        """Closes all connections to clients; those to the server stay open, and silent."""
        clients, self._clients = self._clients, []
        for client in clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def swallow(self, *, later_ones: bool = False) -> None:
        """From now on nothing comes through, in either direction, and nobody is told. ``later_ones``: of later connections too."""
        self._silent.update(self._clients, self._kept)
        self._swallows_all = later_ones

    def close(self) -> None:
        self.sever()
        self._listener.close()
        for upstream in self._kept:
            upstream.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                upstream = socket.create_connection(self._address)
                self._clients.append(client)
                self._kept.append(upstream)
                if self._swallows_all:
                    self._silent.update((client, upstream))
                threading.Thread(target=self._pump, args=(client, upstream), daemon=True).start()
                threading.Thread(target=self._pump, args=(upstream, client), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if source not in self._silent:
                    sink.sendall(data)


@contextmanager
def severable(server: MariaDb) -> Iterator[Proxy]:
    """A proxy before the server, whose ``server`` is described as reached through it."""
    proxy = Proxy(server)
    try:
        yield proxy
    finally:
        proxy.close()
