"""A store that answers a few bytes a second: the run waits for it, and still ends when it is told to."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

HEADRACE = Path(sys.executable).parent / "headrace"
METADATA = b'{"checkpoint-ts":460000000000000000}'
ENDS_WITHIN = 20.0


@pytest.fixture
def asked() -> threading.Event:
    """Set when the store was asked for a listing."""
    return threading.Event()


@pytest.fixture
def source(asked: threading.Event) -> Iterator[str]:
    """The URI of a changefeed in a store that sends two bytes of a listing every half second."""
    over = threading.Event()

    class Trickle(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *values: object) -> None: ...

        def do_HEAD(self) -> None:
            self._head(200, len(METADATA) if "metadata" in self.path else 0)

        def do_GET(self) -> None:
            if "list-type" not in self.path:
                self._head(206, len(METADATA))
                self.wfile.write(METADATA)
                return
            self._head(200, 1_000_000)
            asked.set()
            with suppress(OSError):
                while not over.wait(0.5):
                    self.wfile.write(b"  ")

        def _head(self, status: int, length: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(length))
            self.send_header("Content-Range", f"bytes 0-{length - 1}/{length}")
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Trickle) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        yield f"s3://bucket/changefeed?protocol=csv&endpoint={endpoint}&access-key=k&secret-access-key=s&region=us-east-1"
        over.set()
        server.shutdown()


@pytest.mark.spark
def test_a_run_that_waits_for_a_slow_store_ends_with_the_second_signal(source: str, asked: threading.Event, tmp_path: Path) -> None:
    command = [str(HEADRACE), "run", "--source", source, "--sink", "blackhole://", "--once"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            assert asked.wait(60)
            time.sleep(2)
            for _ in range(2):
                run.send_signal(signal.SIGTERM)
                time.sleep(0.5)
            _, told = run.communicate(timeout=ENDS_WITHIN)
        finally:
            run.kill()
    assert run.returncode == 130, told
