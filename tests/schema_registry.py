"""A schema registry for tests: a server that keeps to Confluent's API for what Headrace asks of one.

No package registry offers a whole one. Ids are those of the golden data, so each case has a path of its own.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass
class Registry:
    """A running registry."""

    port: int
    scheme: str = "http"
    login: str = ""
    """``user:password``, if it wants one."""
    schemas: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    """By path, the answer to each id."""
    asked: list[str] = field(default_factory=list)
    """The paths of all requests."""
    answer: tuple[int, bytes] | None = None
    """What it answers instead, to everything."""
    answers: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """What it answers instead to single ids."""

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def holding(self, path: str, schemas: Mapping[int, str], **more: object) -> str:
        """Puts schemas under a path, and returns the registry's URL for them."""
        self.schemas.setdefault(f"/{path}", {}).update({number: {"schema": text, **more} for number, text in schemas.items()})
        return f"{self.url}/{path}"

    def answering(self, path: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
        self.asked.append(path)
        if self.answer is not None:
            return self.answer
        given = base64.b64encode(self.login.encode()).decode()
        if self.login and headers.get("Authorization") != f"Basic {given}":
            return 401, b'{"error_code":401,"message":"Unauthorized"}'
        prefix, _, number = path.rpartition("/schemas/ids/")
        schema_id = int(number) if number.isdigit() else -1
        if schema_id in self.answers:
            return self.answers[schema_id]
        found = self.schemas.get(prefix, {}).get(schema_id)
        if found is None:
            return 404, b'{"error_code":40403,"message":"Schema not found"}'
        return 200, json.dumps(found).encode()


@contextmanager
def running_registry(login: str = "", certificate: tuple[Path, Path] | None = None) -> Iterator[Registry]:
    """A registry on a free port of this machine; with a certificate and its key, it speaks TLS."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = registry.answering(self.path, dict(self.headers))
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Keeps the output of tests readable."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry = Registry(server.server_port, "https" if certificate else "http", login)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
