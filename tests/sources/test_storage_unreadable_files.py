"""Files that are listed and that the store does not give: their table waits, and goes on once they can be read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from faulty_proxy import Fault, Kind, faulty_proxy
from headrace.cli.main import main
from headrace.errors import SourceUnreachableError
from headrace.model.table import TableId
from headrace.sources.ticdc_storage import open_source
from headrace.sources.ticdc_storage.stores import UnreadableFileError
from servers import S3Server
from storage_folder import ID, OPTIONS, C, Consumer, StorageFolder, V

GOOD, BAD = TableId("test", "good"), TableId("test", "bad")
NOBODY = 65_534
LONG = "v" * 1_000
"""A store's error does not fit in the place of a shorter file, and so is not told."""


@dataclass(frozen=True)
class Place:
    """A folder in a store that can keep one file from its readers. ``publish`` brings it what was written."""

    folder: StorageFolder
    uri: str
    publish: Callable[[], None]
    withheld: Callable[[str], AbstractContextManager[None]]

    def consumer(self) -> Consumer:
        self.publish()
        return Consumer(open_source(self.uri).event_source)


def written(root: Path) -> StorageFolder:
    folder = StorageFolder(root)
    for table in ("good", "bad"):
        folder.schema(table, 100)
        folder.data(f"test/{table}/100", 1, f"I 110 1 {LONG}")
    folder.checkpoint(10_000)
    return folder


@contextmanager
def local_place() -> Iterator[Place]:
    """A local folder, read by a user who is not root, since root may read every file."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        folder = written(Path(made, "feed"))

        @contextmanager
        def withheld(path: str) -> Iterator[None]:
            file, user = folder.root / path, os.geteuid()
            file.chmod(0)
            os.seteuid(user or NOBODY)
            try:
                yield
            finally:
                os.seteuid(user)
                file.chmod(0o644)

        yield Place(folder, folder.uri(), lambda: None, withheld)


@contextmanager
def remote_place(root: Path, s3: S3Server, fault: Fault, only: Kind | None) -> Iterator[Place]:
    folder, bucket = written(root), s3.make_bucket()
    with faulty_proxy(s3.endpoint) as proxy:

        @contextmanager
        def withheld(path: str) -> Iterator[None]:
            proxy.fault = lambda request: fault if request.key.endswith(path) and only in (None, request.kind) else None
            yield
            assert proxy.met
            proxy.fault = lambda _: None

        uri = replace(s3, endpoint=proxy.endpoint).uri(bucket, "feed")
        yield Place(folder, f"{uri}&{OPTIONS}", lambda: s3.upload(folder.root, bucket, "feed"), withheld)


@pytest.fixture(params=["local", "denied", "object denied", "archived"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "local":
        with local_place() as made:
            yield made
        return
    fault = Fault.ARCHIVED if request.param == "archived" else Fault.DENIED
    only = None if request.param == "denied" else Kind.GET
    with remote_place(tmp_path / "feed", request.getfixturevalue("s3"), fault, only) as made:
        yield made


@pytest.mark.server
class TestAFileThatIsWithheld:
    def test_of_a_schema_stops_its_table_until_it_can_be_read(self, place: Place) -> None:
        path = place.folder.schema("bad", 200, "ALTER TABLE `bad` ADD COLUMN `c` INT", (ID, V, C))
        consumer = place.consumer()
        with place.withheld(path):
            offer = consumer.poll()
            (problem,) = offer.problems
            assert (problem.table_id, problem.file, problem.transient) == (BAD, path, True)
            assert problem.message.startswith(f"Cannot read {path} in ")
            assert problem.hint
            assert [(change.table_id, change.changes) for change in offer.unread] == [(BAD, {BAD})]
            consumer.cut(stopped=frozenset({BAD}))
            assert {(report.table_id, report.kept, report.problem) for report in consumer.reports} == {
                (GOOD, 1, None),
                (BAD, 1, None),
            }
        place.folder.checkpoint(10_001)
        place.publish()
        offer = consumer.poll()
        assert (offer.problems, offer.unread) == ((), ())
        assert [change.commit_ts for change in offer.schema_changes if change.table_id == BAD] == [100, 200]

    def test_of_rows_stops_its_table_until_it_can_be_read(self, place: Place) -> None:
        path = "test/bad/100/CDC000001.csv"
        consumer = place.consumer()
        with place.withheld(path):
            consumer.cut(stopped=frozenset({BAD}), hi=10_000)
            problems = {report.table_id: report.problem for report in consumer.reports}
            assert problems.pop(GOOD) is None
            (problem,) = problems.values()
            assert problem is not None
            assert (problem.table_id, problem.file, problem.transient) == (BAD, path, True)
            assert problem.message.startswith(f"Cannot read {path} in ")
        place.folder.checkpoint(10_001)
        place.publish()
        assert BAD in {split.table_id for split in consumer.poll().splits}

    def test_of_rows_does_not_keep_a_bounded_cut_from_the_rows_of_others(self, place: Place) -> None:
        consumer = place.consumer()
        consumer.max_cut = 1
        with place.withheld("test/bad/100/CDC000001.csv"):
            while consumer.checkpoint < 10_000:
                consumer.cut(stopped=frozenset({BAD}))
                if consumer.changes:
                    break
            assert consumer.changes == [f"110 1 {LONG}"]

    def test_of_rows_that_was_written_again_is_not_passed_over(self, place: Place) -> None:
        """Of files without commit ts only the content shows whether they have other rows."""
        for table in ("good", "bad"):
            path = f"test/{table}/100/CDC000001.csv"
            place.folder.write(path, f'"I","{table}","test",1,"{LONG}"\n')
        consumer = place.consumer()
        consumer.cut()
        path = "test/bad/100/CDC000001.csv"
        place.folder.write(path, f'"I","bad","test",22,"{LONG}"\n')
        place.folder.checkpoint(10_002)
        place.publish()
        with place.withheld(path):
            (problem,) = consumer.poll().problems
            assert (problem.table_id, problem.file, problem.transient) == (BAD, path, True)
        place.folder.checkpoint(10_003)
        place.publish()
        assert {split.table_id for split in consumer.poll().splits} == {BAD}

    def test_is_told_by_an_inspection_of_the_others(self, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
        path = "test/bad/100/meta/CDC.index"
        place.folder.write(path, "CDC000001.csv\n")
        place.publish()
        for withheld in (path, "test/bad/100/CDC000001.csv"):
            with place.withheld(withheld):
                assert main(["inspect", "--rows", place.uri]) == 0
            told = " ".join(capsys.readouterr().out.split())
            assert f"Cannot read {withheld} in" in told

    def test_that_is_the_metadata_shows_that_the_store_cannot_be_read(self, place: Place) -> None:
        consumer = place.consumer()
        with place.withheld("metadata"), pytest.raises(SourceUnreachableError, match="Cannot read metadata in "):
            consumer.poll()


@pytest.mark.server
def test_an_object_that_is_gone_when_it_is_got_has_vanished(tmp_path: Path, s3: S3Server) -> None:
    with remote_place(tmp_path / "feed", s3, Fault.GONE, Kind.GET) as place:
        path = place.folder.schema("bad", 200, "ALTER TABLE `bad` ADD COLUMN `c` INT", (ID, V, C))
        consumer = place.consumer()
        with place.withheld(path):
            assert [p.message for p in consumer.poll().problems] == ["The schema file vanished while it was read."]
        with place.withheld("test/bad/100/CDC000001.csv"):
            consumer.cut(stopped=frozenset({BAD}))
        told = {report.table_id: report.problem.message for report in consumer.reports if report.problem}
        assert told == {BAD: "The file vanished before its changes were applied."}


def test_a_disk_that_cannot_read_the_blocks_of_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.sources.ticdc_storage import stores

    folder = written(tmp_path / "feed")
    path = folder.schema("bad", 200, "ALTER TABLE `bad` ADD COLUMN `c` INT", (ID, V, C))
    opened = stores.opened_inside

    def failing(root: str, name: str) -> object:
        if name == path:
            raise OSError(5, "Input/output error")
        return opened(root, name)

    monkeypatch.setattr(stores, "opened_inside", failing)
    assert [(problem.table_id, problem.file) for problem in folder.consumer().poll().problems] == [(BAD, path)]
    assert issubclass(
        UnreadableFileError, SourceUnreachableError
    )  # where nothing is known of single files, the store is waited for
