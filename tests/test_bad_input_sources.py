"""Folders and metadata that are not what they should be, and targets that are away: the run says so and moves nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from damage import DATABASE, HEALTHY, Run, Scene
from headrace.cli.main import main
from headrace.model.table import TableId
from servers import MariaDb, running_mariadb, started_again
from targets import DuckDbTarget, MariaDbTarget

pytestmark = [pytest.mark.spark, pytest.mark.server]

OTHER = TableId(DATABASE, "other")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    target = DuckDbTarget(tmp_path / "target.duckdb")
    return Scene(tmp_path / "feed", target.uri, target)


def no_folder(folder: Path) -> None:
    pass


def empty_folder(folder: Path) -> None:
    folder.mkdir()


def foreign_folder(folder: Path) -> None:
    (folder / "photos" / "2026").mkdir(parents=True)
    (folder / "readme.txt").write_text("Hello.")
    (folder / "photos" / "2026" / "metadata.json").write_text("{}")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (no_folder, "There is no folder {folder}. Check the path in the source's URI."),
        (empty_folder, "{folder} is empty. Check the path, and that the changefeed runs"),
        (foreign_folder, "{folder} does not look like the output of a changefeed: there is no file metadata in it."),
    ],
)
def test_a_folder_that_is_no_changefeeds(scene: Scene, make: Callable[[Path], None], sentence: str, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    make(folder)
    run = scene.run(source=f"{folder.as_uri()}?protocol=csv")
    assert run.code == 4
    assert run.told.startswith(f"error: {sentence.format(folder=folder)}")
    assert run.told.count("\n") == 1
    assert not scene.target.tables()


UNREADABLE = (b"", b'{"checkpoint-ts":4632', b'{"checkpoint-ts":-1}', b'{"checkpoint":5}', b"\xff\x00", b"null")


def test_metadata_that_are_missing_or_cannot_be_read_move_nothing(scene: Scene) -> None:
    scene.create(HEALTHY, OTHER)
    scene.publish()
    assert scene.run().code == 0
    before = scene.ledger()
    scene.change(HEALTHY, OTHER)
    scene.publish()
    metadata = scene.root / "metadata"
    whole = metadata.read_bytes()

    metadata.unlink()
    told = [scene.run()]
    for text in UNREADABLE:
        metadata.write_bytes(text)
        told.append(scene.run())
    wait = (
        f"{scene.root} has no file metadata yet. TiCDC writes it with its first checkpoint: wait, or look at the changefeed. "
        "One that ended before that is taken with --until-end."
    )
    unreadable = (
        f"""The file metadata in {scene.root} holds no checkpoint. It should read {{"checkpoint-ts":…}}, as TiCDC writes it."""
    )
    assert [run.code for run in told] == [4] * len(told)
    assert [run.told for run in told] == [f"error: {wait}\n", *[f"error: {unreadable}\n"] * len(UNREADABLE)]
    assert replace(scene.ledger(), epoch=before.epoch) == replace(before, attempt=0)

    metadata.write_bytes(whole)
    assert scene.run().code == 0
    assert not scene.differing()


def test_a_run_that_goes_on_waits_for_metadata_that_can_be_read(scene: Scene) -> None:
    scene.create(HEALTHY)
    scene.publish()
    with scene.following() as follower:
        follower.wait_until(lambda: not scene.differing())
        scene.change(HEALTHY)
        scene.publish()
        follower.wait_until(lambda: not scene.differing())
        (scene.root / "metadata").write_bytes(b"{")
        follower.wait_for_text("holds no checkpoint.")
        scene.change(HEALTHY)
    assert follower.ended.code == 0
    assert "Trying again in 1 s." in follower.ended.told
    assert not scene.differing()


def test_a_checkpoint_that_goes_back_is_told_and_nothing_is_applied_until_it_is_passed(scene: Scene) -> None:
    scene.create(HEALTHY, OTHER)
    first = scene.publish()
    assert scene.run().code == 0
    scene.change(HEALTHY, OTHER)
    scene.publish()
    assert scene.run().code == 0
    reached = scene.ledger().checkpoint

    # A changefeed that was resumed at the first checkpoint writes everything after it again.
    for table_id in (HEALTHY, OTHER):
        newest = scene.data_files(table_id)[-1]
        newest.with_name(f"CDC{9:020d}.csv").write_bytes(newest.read_bytes())
    scene.writer.checkpoint(first)
    run = scene.run()
    assert run.code == 0
    assert "warning: The checkpoint in metadata went back from " in run.told
    assert scene.ledger().checkpoint == reached
    assert not scene.differing()

    scene.change(HEALTHY, OTHER)
    scene.publish()
    assert scene.run().code == 0
    assert scene.ledger().checkpoint > reached
    assert not scene.differing()


def test_a_wrong_password_is_told_without_it(tmp_path: Path, mariadb: MariaDb, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = replace(mariadb, password="falsch:es/wort")
    scene = Scene(tmp_path / "feed", wrong.uri(), MariaDbTarget(mariadb))
    scene.create(HEALTHY)
    scene.publish()
    run = scene.run()
    assert run.code == 4
    assert run.told.startswith(f"error: mysql://{mariadb.host}:{mariadb.port}/ refuses the login of user 'headrace': Access denied")
    assert "Check user and password, from which hosts the user may connect" in run.told
    assert run.told.count("\n") == 1
    assert main(["status", "--sink", scene.sink]) == 4
    assert main(["validate", "--source", scene.source, "--sink", scene.sink, "--no-spark"]) == 2
    told = capsys.readouterr()
    for text in (run.told, run.out, told.out, told.err):
        assert "falsch" not in text
    scene.sink = mariadb.uri()
    assert scene.run().code == 0
    assert not scene.differing()


def test_a_server_without_local_infile_gets_replace_statements(tmp_path: Path, mariadb: MariaDb) -> None:
    scene = Scene(tmp_path / "feed", mariadb.uri(), MariaDbTarget(mariadb))
    scene.create(HEALTHY, OTHER)
    scene.publish()
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET GLOBAL local_infile = OFF")
        try:
            run = scene.run()
            scene.change(HEALTHY, OTHER)
            scene.publish()
            again = scene.run()
        finally:
            cursor.execute("SET GLOBAL local_infile = ON")
    for each in (run, again):
        assert each.code == 0
        assert each.told.count("does not allow LOAD DATA LOCAL INFILE, so rows are written by REPLACE statements") == 1
    assert not scene.differing()


class RunBeside(threading.Thread):
    """``headrace run --once`` beside the test."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(daemon=True)
        self._scene = scene
        self.ended: Run | None = None

    def run(self) -> None:
        self.ended = self._scene.run()

    def wait(self) -> Run:
        self.join(100)
        assert self.ended is not None
        return self.ended


def wait_for_a_writer(server: MariaDb, table_id: TableId) -> None:
    """Waits until a statement on the table waits for a lock."""
    query = "SELECT count(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE '%%lock%%' AND INFO LIKE %s"
    deadline = time.monotonic() + 30
    with server.connect() as connection, connection.cursor() as cursor:
        while time.monotonic() < deadline:
            cursor.execute(query, (f"%{table_id.table}%",))
            if cursor.fetchone()[0] > 0:
                return
            time.sleep(0.05)
    pytest.fail("no statement came to the lock")


def test_a_server_that_is_killed_in_the_middle_of_a_cut_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(running_mariadb(innodb_flush_log_at_trx_commit=1))
        scene = Scene(tmp_path / "feed", server.uri(), MariaDbTarget(server))
        scene.create(HEALTHY, OTHER)
        scene.publish()
        assert scene.run().code == 0
        scene.change(HEALTHY, OTHER)
        scene.publish()

        with server.connect() as holder, holder.cursor() as cursor:
            cursor.execute(f"LOCK TABLES {OTHER} WRITE")
            beside = RunBeside(scene)
            beside.start()
            wait_for_a_writer(server, OTHER)
            os.kill(server.pid, signal.SIGKILL)
            holder._force_close()  # closing it politely would talk to a server that is gone
        time.sleep(1)
        with started_again(server):
            run = beside.wait()
            assert run.code == 0, run.told
            assert not scene.differing()

        before = time.monotonic()
        away = scene.run()
        assert away.code == 4
        assert f"error: mysql://{server.host}:{server.port}/ cannot be reached: " in away.told
        assert time.monotonic() - before < 30
        with started_again(server):
            scene.change(HEALTHY, OTHER)
            scene.publish()
            assert scene.run().code == 0
            assert not scene.differing()
