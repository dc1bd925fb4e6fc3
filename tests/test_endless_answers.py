"""S3 stores whose answers never come to an end: no request waits for ever, and none holds the end of the process up."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from faulty_proxy import Fault, FaultyProxy, Kind, faulty_proxy
from headrace.errors import EXIT_INTERRUPTED, EXIT_UNREACHABLE, SourceUnreachableError
from headrace.model.uri import parse_uri
from headrace.sources.ticdc_storage import stores
from headrace.sources.ticdc_storage.stores import Store, store_location
from processes import running
from servers import S3Server
from storage_folder import StorageFolder

pytestmark = pytest.mark.server

CONTENT = b"0123456789" * 1000


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultyProxy]:
    with faulty_proxy(s3.endpoint) as proxy:
        yield proxy


@pytest.fixture
def uri(tmp_path: Path, s3: S3Server, proxy: FaultyProxy) -> str:
    """A changefeed's folder as the proxy shows it."""
    folder = StorageFolder(tmp_path / "feed")
    folder.checkpoint(450)
    bucket = s3.make_bucket()
    s3.upload(tmp_path / "feed", bucket, "p")
    s3.client().put_object(Bucket=bucket, Key="p/t/1", Body=CONTENT)
    return replace(s3, endpoint=proxy.endpoint).uri(bucket, "p", protocol="csv")


@pytest.mark.spark
def test_an_abandoned_run_ends_while_the_store_trickles(uri: str, proxy: FaultyProxy, tmp_path: Path) -> None:
    with (
        proxy.troubled(Fault.TRICKLING, only=Kind.LIST),
        running(
            ["run", "--source", uri, "--sink", "blackhole://", "--ledger", str(tmp_path / "ledger")], tmp_path / "working"
        ) as run,
    ):
        run.wait_until(lambda: "listing the source" in run.output, "word of the listing")
        run.signal(signal.SIGTERM)
        run.signal(signal.SIGTERM)
        assert run.exit_code(20) == EXIT_INTERRUPTED
        assert "nothing new was applied" in run.output
        assert "Traceback" not in run.errors
        assert not run.survivors()
    assert proxy.met


def test_ctrl_c_ends_an_inspection_while_the_store_trickles(uri: str, proxy: FaultyProxy, tmp_path: Path) -> None:
    with proxy.troubled(Fault.TRICKLING, only=Kind.LIST), running(["inspect", uri], tmp_path / "working") as run:
        run.wait_until(lambda: proxy.met, "a request")
        time.sleep(0.5)
        run.signal(signal.SIGINT)
        assert run.exit_code(5) == EXIT_INTERRUPTED
        assert "Traceback" not in run.errors


@pytest.mark.parametrize("command", [["inspect"], ["run", "--once", "--sink", "blackhole://", "--ledger", "ledger", "--source"]])
def test_what_took_too_long_does_not_hold_the_process_up(command: list[str], uri: str, proxy: FaultyProxy, tmp_path: Path) -> None:
    """A process of its own, whose listings have a second instead of half an hour."""
    program = "; ".join(
        (
            "import sys",
            "from headrace.cli.main import entry",
            "from headrace.engine import loop",
            "from headrace.sources.ticdc_storage import stores",
            "stores._LISTING_SECONDS = loop._FIRST_PAUSE = loop._LONGEST_PAUSE = 1",
            "sys.argv[0] = 'headrace'",
            "entry()",
        )
    )
    with proxy.troubled(Fault.TRICKLING, only=Kind.LIST):
        arguments = [sys.executable, "-c", program, *command, uri]
        done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == EXIT_UNREACHABLE, done.stderr
    assert "did not finish its answer within 1 s" in done.stderr


ASKING: dict[str, Callable[[Store], object]] = {
    "read": lambda store: store.read("t/1"),
    "read_start": lambda store: store.read_start("t/1", 500),
    "read_many": lambda store: store.read_many(["t/1", "metadata"]),
    "entries": lambda store: store.entries("", recursive=True),
    "entries_of_many": lambda store: store.entries_of_many([("", False), ("t", True)]),
    "exists": lambda store: store.exists(),
}


@pytest.mark.parametrize("what", ASKING)
def test_no_request_waits_for_an_answer_without_an_end(
    what: str, uri: str, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one gets an answer, however many of the former are still coming: a client has a few connections only."""
    store = store_location(parse_uri(uri)).open()
    truth = ASKING[what](store)
    for _ in range(3):
        monkeypatch.setattr(stores, "_LISTING_SECONDS", 0.3)
        monkeypatch.setattr(stores, "_REQUEST_SECONDS", 0.3)
        with proxy.troubled(Fault.TRICKLING), pytest.raises(SourceUnreachableError, match=r"did not finish its answer"):
            ASKING[what](store)
        monkeypatch.undo()
        assert ASKING[what](store) == truth


def test_a_large_file_has_more_time_than_a_small_one(uri: str, monkeypatch: pytest.MonkeyPatch, proxy: FaultyProxy) -> None:
    store = store_location(parse_uri(uri)).open()
    monkeypatch.setattr(stores, "_REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(stores, "_BYTES_PER_SECOND", len(CONTENT) / 2)
    begun = time.monotonic()
    with proxy.troubled(Fault.TRICKLING, only=Kind.GET), pytest.raises(SourceUnreachableError):
        store.read("t/1")
    assert 2.3 <= time.monotonic() - begun < 5
