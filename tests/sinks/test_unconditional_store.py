"""A store that does not keep conditional writes, as some clones of S3 and proxies: no ledger is kept there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from headrace.errors import DefinitionError
from headrace.sinks.file_ledger import open_file_ledger

DATE = "Thu, 01 Jan 2026 00:00:00 GMT"


class Store(BaseHTTPRequestHandler):
    """Enough of S3 for a ledger. ``is_conditional``: whether ``If-None-Match`` is heeded."""

    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes]
    is_conditional: bool

    def log_message(self, format: str, *values: object) -> None: ...

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self.is_conditional and self.headers["If-None-Match"] and self._key in self.objects:
            self._say(412)
            return
        self.objects[self._key] = data
        self._say(200)

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            self._list(query.get("prefix", [""])[0])
        elif self._key in self.objects:
            self._say(200, self.objects[self._key])
        else:
            self._say(404)

    def _list(self, prefix: str) -> None:
        found = "".join(
            f"<Contents><Key>{key}</Key><Size>{len(data)}</Size><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>"
            for key, data in sorted(self.objects.items())
            if key.startswith(prefix)
        )
        self._say(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>".encode())

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix("/bucket/")

    def _say(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{md5(body, usedforsecurity=False).hexdigest()}"')
        self.send_header("Last-Modified", DATE)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def store(*, is_conditional: bool) -> Iterator[str]:
    """The URI of a ledger in a store of its own."""
    handler = type("OneStore", (Store,), {"objects": {}, "is_conditional": is_conditional})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        yield f"s3://bucket/ledger?endpoint={endpoint}&access-key=k&secret-access-key=s&region=us-east-1"
        server.shutdown()
        thread.join()


def test_a_store_that_overwrites_what_may_only_be_created_holds_no_ledger() -> None:
    with (
        store(is_conditional=False) as uri,
        pytest.raises(DefinitionError, match="two runs could write at the same time") as refused,
    ):
        open_file_ledger(uri).acquire("default", "source", "", 0)
    assert "s3://bucket/ledger" in str(refused.value)


def test_a_store_that_keeps_the_condition_does() -> None:
    with store(is_conditional=True) as uri:
        first, second = open_file_ledger(uri), open_file_ledger(uri)
        assert first.acquire("default", "source", "", 0).epoch == 1
        assert first.next_attempt() == 1
        assert second.acquire("default", "source", "", 0).epoch == 2
