"""A proxy before an S3 store that answers with errors, cuts answers short, loses them, or does not answer at all."""

from __future__ import annotations

import http.client
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class Fault(StrEnum):
    """What becomes of one request."""

    ERROR = "500"
    UNAVAILABLE = "503"
    SLOW_DOWN = "503 SlowDown"
    DENIED = "403 AccessDenied"
    ARCHIVED = "403 InvalidObjectState"
    GONE = "404"
    CLOSED = "closed before the store heard of it"
    LOST = "done, and closed without an answer"
    CUT = "body shorter than its Content-Length"
    SHORT = "body and Content-Length short"
    SILENT = "no answer"
    EMPTY = "200 without a body"
    NO_CONTENT = "204"
    HTML = "200 with a page of HTML"
    NOT_FOUND = "404 with a page of HTML"
    TRICKLING = "two bytes of a body every half second, without an end"


class Kind(StrEnum):
    """What a request wants."""

    LIST = "LIST"
    HEAD = "HEAD"
    GET = "GET"
    PUT = "PUT"
    OTHER = "other"


@dataclass(frozen=True)
class Request:
    """What a fault may depend on; ``key`` is the path with the bucket. ``prefix`` and ``is_continued`` are a listing's."""

    kind: Kind
    key: str
    prefix: str = ""
    is_continued: bool = False


_STATUS = {
    Fault.ERROR: (500, "InternalError"),
    Fault.UNAVAILABLE: (503, "ServiceUnavailable"),
    Fault.SLOW_DOWN: (503, "SlowDown"),
    Fault.DENIED: (403, "AccessDenied"),
    Fault.ARCHIVED: (403, "InvalidObjectState"),
    Fault.GONE: (404, "NoSuchKey"),
}
_HTML = b"<html><body>Please log in.</body></html>"
_MEANINGLESS = {
    Fault.EMPTY: (200, b""),
    Fault.NO_CONTENT: (204, b""),
    Fault.HTML: (200, _HTML),
    Fault.NOT_FOUND: (404, _HTML),
}
"""Answers of a proxy or gateway that are none of a store."""
_MESSAGES = {Fault.ARCHIVED: "The operation is not valid for the object's storage class"}
_HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "keep-alive", "host", "expect"})


class FaultyProxy(ThreadingHTTPServer):
    """Passes requests on to ``endpoint``, but for those that ``fault`` has something to say about; ``met`` counts these."""

    daemon_threads = True

    def __init__(self, endpoint: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(endpoint).netloc
        self.fault: Callable[[Request], Fault | None] = lambda _: None
        self.rewrite: Callable[[Request, bytes], bytes] = lambda _, content: content
        """The bodies of answers without a fault pass through this."""
        self.met: Counter[tuple[Fault, Kind]] = Counter()
        self.over = threading.Event()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @contextmanager
    def troubled(self, *faults: Fault, share: float = 1.0, seed: int = 0, only: Kind | None = None) -> Iterator[None]:
        """While it lasts, this share of the requests (of one kind) meets one of the faults."""
        generator, lock = random.Random(seed), threading.Lock()

        def choose(request: Request) -> Fault | None:
            with lock:
                unlucky = generator.random() < share
                chosen = generator.choice(faults)
            return chosen if unlucky and only in (None, request.kind) else None

        self.fault = choose
        try:
            yield
        finally:
            self.fault = lambda _: None

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that give up are no news."""


@contextmanager
def faulty_proxy(endpoint: str) -> Iterator[FaultyProxy]:
    """A proxy before the store at ``endpoint``; it has no fault before it is told to."""
    proxy = FaultyProxy(endpoint)
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.over.set()
        proxy.shutdown()
        proxy.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # an answer goes out as one
    server: FaultyProxy

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        listing = self.command == "GET" and ("list-type" in url.query or "delimiter" in url.query or "prefix" in url.query)
        kinds = {"HEAD": Kind.HEAD, "GET": Kind.GET, "PUT": Kind.PUT}
        kind = Kind.LIST if listing else kinds.get(self.command, Kind.OTHER)
        query = parse_qs(url.query)
        request = Request(kind, url.path.lstrip("/"), query.get("prefix", [""])[0], "continuation-token" in query)
        fault = self.server.fault(request)
        if fault is None:
            status, headers, content = self._forward(body)
            self._answer(status, headers, self.server.rewrite(request, content))
            return
        self.server.met[fault, request.kind] += 1
        if fault in _STATUS:
            status, code = _STATUS[fault]
            message = _MESSAGES.get(fault, "Trouble.")
            text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
            self._answer(status, {"Content-Type": "application/xml"}, b"" if self.command == "HEAD" else text)
            return
        if fault in _MEANINGLESS:
            self._answer(_MEANINGLESS[fault][0], {"Content-Type": "text/html"}, _MEANINGLESS[fault][1])
            return
        self.close_connection = True
        if fault is Fault.SILENT:
            self.server.over.wait()
        elif fault is Fault.TRICKLING:
            self._trickle()
        elif fault is Fault.LOST:
            self._forward(body)
        elif fault is not Fault.CLOSED:
            status, headers, content = self._forward(body)
            half = content[: len(content) // 2]
            self._answer(status, headers, half, length=len(content) if fault is Fault.CUT else len(half))

    def _trickle(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100000")
        self.end_headers()
        while not self.server.over.wait(0.5):
            self.wfile.write(b"  ")
            self.wfile.flush()

    def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.server.upstream)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
            connection.request(self.command, self.path, body or None, headers)
            answer = connection.getresponse()
            content = answer.read()
            return answer.status, {n: v for n, v in answer.getheaders() if n.lower() not in _HOP_BY_HOP}, content
        finally:
            connection.close()

    def _answer(self, status: int, headers: dict[str, str], content: bytes, length: int | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() != "content-length" or self.command == "HEAD":
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815
