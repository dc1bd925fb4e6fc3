"""Errors of a store that is reached with signed URLs: neither a message nor the chain of its exceptions has the signature."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from headrace.errors import HeadraceError
from headrace.model.uri import parse_uri
from headrace.sources.ticdc_storage.stores import Store, store_location

SIGNATURE = "Kk77+p/Pq=="
REQUESTS: dict[str, Callable[[Store], object]] = {
    "read": lambda store: store.read("t/1"),
    "stat": lambda store: store.stat("t/1"),
    "list": lambda store: store.entries("t", recursive=True),
    "bucket": lambda store: store.require_bucket(),
}


class Refusing(ThreadingHTTPServer):
    """An endpoint of Azure that answers each request with one status, and remembers the requested URLs."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.status, self.code = 409, "Conflict"
        self.paths: list[str] = []


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Refusing

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        body = f"<?xml version='1.0'?><Error><Code>{self.server.code}</Code><Message>no</Message></Error>".encode()
        self.send_response(self.server.status)
        self.send_header("x-ms-error-code", self.server.code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Refusing]:
    with Refusing() as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("begin", ["", "?"])
@pytest.mark.parametrize("request_of", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize(("status", "code"), [(409, "Conflict"), (403, "AuthorizationFailure"), (400, "InvalidUri")])
def test_no_error_has_the_signature(
    endpoint: Refusing, begin: str, request_of: Callable[[Store], object], status: int, code: str
) -> None:
    endpoint.status, endpoint.code = status, code
    token = quote(f"{begin}sv=2026-01-01&sp=rl&sig={quote(SIGNATURE, safe='')}", safe="")
    uri = f"azure://container/cf?account-name=acct&endpoint=http://127.0.0.1:{endpoint.server_port}&sas-token={token}"
    with pytest.raises(HeadraceError) as raised:
        request_of(store_location(parse_uri(uri)).open())
    told = "".join(traceback.format_exception(raised.value)) + raised.value.message + (raised.value.hint or "")
    assert "Cannot read azure://container/cf" in told or "t/1 in azure://container/cf" in told
    assert "Kk77" not in told
    assert raised.value.__cause__ is None
    # The store got the token whole, as parameters of the URL.
    assert {SIGNATURE} == {parse_qs(urlsplit(path).query)["sig"][0] for path in endpoint.paths}
