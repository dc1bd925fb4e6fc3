"""Disks that are full: the run waits and says so, loses nothing, and goes on when there is room."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from following import Following
from harness import assert_state
from headrace.engine import loop
from headrace.sinks.file_ledger import open_file_ledger
from headrace.sinks.mysql import connection
from headrace.testing.upstream import Delete, Insert, Update
from servers import running_mariadb
from small_disk import SmallDisk, small_disk
from targets import DuckDbTarget, MariaDbTarget
from upstreams import ORDERS, VISITS, Changefeed, many_rows, small_shop

pytestmark = pytest.mark.pipeline

PATIENCE = 120.0


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "RETRY_DELAYS", (0.01, 0.02))
    monkeypatch.setattr(loop, "_FIRST_PAUSE", 0.02)
    monkeypatch.setattr(loop, "_LONGEST_PAUSE", 0.1)


@pytest.fixture
def changefeed(tmp_path: Path) -> Changefeed:
    feed = Changefeed(tmp_path / "feed")
    small_shop(feed, with_bag=True)
    return feed


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", "3m") as disk:
        yield disk


def more(changefeed: Changefeed) -> None:
    """Changes of rows with and without key, and more of them than fit anywhere by chance."""
    rows = (Insert(ORDERS, {"id": n, "name": f"{n:040}"}) for n in range(1000, 3000))
    changefeed.upstream.execute(*rows, Update(ORDERS, (2,), {"name": "two"}), Delete(ORDERS, (3,)), Delete(VISITS, ("/", 1)))
    changefeed.upstream.checkpoint()


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("duckdb://{target}", "{target}: "),
        ("duckdb://{elsewhere}?spool={disk}", "Rows cannot be handed over in {disk}/"),
        ("blackhole://", "The ledger file://{disk}/ledger cannot be used: "),
    ],
    ids=["target", "spool", "ledger"],
)
def test_a_full_disk_under_a_file(
    uri: str, told: str, changefeed: Changefeed, disk: SmallDisk, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    places = {"target": disk.folder / "target.duckdb", "elsewhere": tmp_path / "target.duckdb", "disk": disk.folder}
    ledger = str(disk.folder / "ledger")
    run = Following(changefeed, uri.format(**places), ledger=ledger)
    try:
        run.wait_for(changefeed.watermark, PATIENCE)
        with disk.full(capfd):
            more(changefeed)
            run.wait_until(lambda: len(run.display.failures) > 1, PATIENCE)
        run.wait_for(changefeed.watermark, PATIENCE)
    finally:
        run.interrupt()
        run.ended()
    assert told.format(**places) in run.display.failures[0]
    assert not run.display.stopped
    if uri == "blackhole://":
        state = open_file_ledger(ledger).peek("default")
        assert state is not None
        assert state.checkpoint == changefeed.watermark
    else:
        target = places["target"] if "target" in uri else places["elsewhere"]
        assert_state(DuckDbTarget(target), changefeed.state())


@pytest.mark.server
def test_a_server_without_room_for_rows(changefeed: Changefeed, capfd: pytest.CaptureFixture[str]) -> None:
    with ExitStack() as stack:
        # Not under pytest's folder: the path of the server's socket has to be short.
        short = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-")))
        disk, patch = stack.enter_context(small_disk(short / "disk", "300m")), stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(tempfile, "tempdir", str(disk.folder))
        with running_mariadb(innodb_buffer_pool_size="32M", innodb_log_file_size="8M") as server:
            run = Following(changefeed, server.uri())
            try:
                run.wait_for(changefeed.watermark, PATIENCE)
                with disk.full(capfd, server.pid):
                    many_rows(changefeed, ORDERS, 10_000, 20_000, "x")
                    changefeed.upstream.checkpoint()
                    run.wait_until(lambda: len(run.display.failures) > 1, PATIENCE)
                many_rows(changefeed, ORDERS, 10_000, 20_000, "x", operation="D")
                more(changefeed)
                run.wait_for(changefeed.watermark, PATIENCE)
            finally:
                run.interrupt()
                run.ended()
            assert not run.display.stopped
            assert "Make room on the target's disk." in run.display.failures[0]
            assert_state(MariaDbTarget(server), changefeed.state())
