"""What is gone takes no room in the position, and nothing is lost by that."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.formats.storage_paths import DataPath, first_file_in
from headrace.model.table import TableId
from headrace.model.tso import tso_from_ms
from headrace.sources.ticdc_storage.forgetting import gone_since, without_gone
from headrace.sources.ticdc_storage.local_folders import Stray
from headrace.sources.ticdc_storage.position import FileState, Gone, StoragePosition
from headrace.sources.ticdc_storage.position_update import advanced
from headrace.sources.ticdc_storage.reader import Listing
from storage_folder import StorageFolder

pytestmark = pytest.mark.pipeline

T = TableId("test", "t")
START = datetime(2026, 1, 1, tzinfo=UTC)
DAYS = "protocol=csv&terminator=%0A&date-separator=day"
NONE = "protocol=csv&terminator=%0A&date-separator=none"
A_DAY = 20
KEPT_DAYS = 3


def at(day: float) -> int:
    """The TSO of a time so many days after the start."""
    return tso_from_ms(int((START + timedelta(days=day)).timestamp() * 1000))


def date(day: int) -> str:
    return (START + timedelta(days=day)).date().isoformat()


class Feed:
    """A changefeed of one table that has a cut a day. ``removed`` are files of which the content is kept."""

    def __init__(self, root: Path, options: str = DAYS) -> None:
        self.folder = StorageFolder(root)
        self.folder.schema("t", at(0), "CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(16))")
        self.consumer = self.folder.consumer(options)
        self.removed: dict[str, bytes] = {}
        self.written: list[int] = []
        self.keys = 0

    def version(self, day: int) -> int:
        """The version of a day that begins with a schema change."""
        self.folder.schema("t", at(day), f"ALTER TABLE `t` COMMENT = '{day}'")
        return at(day)

    def write(self, path: str, day: int, count: int = 1) -> str:
        """A file with rows of the day's afternoon."""
        lines = []
        for _ in range(count):
            self.keys += 1
            ts = at(day + 0.5) + self.keys
            self.written.append(ts)
            lines.append(f'"I","t","test",{ts},{self.keys},"a"\n')
        self.folder.write(path, "".join(lines))
        return path

    def remove(self, paths: Iterable[str]) -> None:
        """Removes files, and the folders that are empty then."""
        for path in paths:
            file = self.folder.root / path
            self.removed[path] = file.read_bytes()
            file.unlink()
            while file.parent != self.folder.root / "test/t" and not any(file.parent.iterdir()):
                file = file.parent
                file.rmdir()

    def cut(self, day: int) -> list[str]:
        """A cut up to the end of the day, in which exactly the rows that were written since the last come; what was told."""
        self.folder.checkpoint(at(day + 0.99))
        offer = self.consumer.cut()
        assert [problem for problem in offer.problems if problem.table_id == T] == []
        assert sorted(ts for _, ts, _ in self.consumer.rows) == sorted(self.written)
        self.written = []
        return [notice.sentence() for notice in offer.notices]

    @property
    def position(self) -> StoragePosition:
        return StoragePosition.parse(self.consumer.position)


Layout = Callable[[Feed, int], Iterable[str]]
LAYOUTS: dict[str, tuple[str, Layout]] = {
    "new partitions": (DAYS, lambda f, d: (f"{at(0)}/{d * A_DAY + n + 5000}/{date(d)}/CDC000001" for n in range(A_DAY))),
    "new partitions, no dates": (NONE, lambda f, d: (f"{at(0)}/{d * A_DAY + n + 5000}/CDC000001" for n in range(A_DAY))),
    "new dispatchers": (DAYS, lambda f, d: (f"{at(0)}/{date(d)}/CDC_{d * A_DAY + n + 1}_000001" for n in range(A_DAY))),
    "new dispatchers, no dates": (NONE, lambda f, d: (f"{at(0)}/CDC_{d * A_DAY + n + 1}_000001" for n in range(A_DAY))),
    "dates to come": (DAYS, lambda f, d: (f"{at(0)}/{3000 + d}-01-{n + 1:02d}/CDC000001" for n in range(A_DAY))),
    "what is no date": (DAYS, lambda f, d: (f"{at(0)}/{3000 + d}-45-{n + 1:02d}/CDC000001" for n in range(A_DAY))),
    "the same partitions": (DAYS, lambda f, d: (f"{at(0)}/{n + 5000}/{date(d)}/CDC000001" for n in range(A_DAY))),
    "new versions": (DAYS, lambda f, d: (f"{f.version(d)}/{date(d)}/CDC000001",)),
    "new versions, no dates": (NONE, lambda f, d: (f"{f.version(d)}/CDC000001",)),
    "new versions, the same partitions": (
        DAYS,
        lambda f, d: (f"{version}/{n + 5000}/{date(d)}/CDC000001" for version in (f.version(d),) for n in range(A_DAY)),
    ),
}


def lived(tmp_path: Path, layout: str, days: int) -> tuple[Feed, dict[int, int]]:
    """A feed whose files are removed after three days, and the bytes of its position after each day."""
    options, paths_of = LAYOUTS[layout]
    feed, sizes, files = Feed(tmp_path, options), {}, {}
    for day in range(days):
        files[day] = [feed.write(f"test/t/{path}.csv", day) for path in paths_of(feed, day)]
        feed.cut(day)
        sizes[day + 1] = len(feed.consumer.position)
        if day >= KEPT_DAYS:
            feed.remove(files[day - KEPT_DAYS])
        if day % 7 == 6:
            feed.consumer = feed.consumer.restarted()
    return feed, sizes


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_gone_takes_no_room(tmp_path: Path, layout: str) -> None:
    _, sizes = lived(tmp_path, layout, 40)
    early, late = (max(sizes[day] for day in days) for days in (range(11, 26), range(26, 41)))
    assert late <= early * 1.02 + 20, f"at most {early} bytes up to the 25th day, and {late} after that"


@pytest.mark.parametrize("days_ago", [12, 20])
def test_a_file_that_appears_where_files_were_forgotten_is_read_and_told(tmp_path: Path, days_ago: int) -> None:
    feed, _ = lived(tmp_path, "new versions, the same partitions", 30)
    day = 30 - days_ago
    assert feed.position.gone["test/t"].day >= date(day)
    new = feed.write(f"test/t/{at(day)}/5000/{date(day)}/CDC000002.csv", 30)
    assert not feed.position.consumed_in(new.rpartition("/")[0])
    told = feed.cut(30)
    assert any("a date that is over in every time zone" in sentence and new in sentence for sentence in told)
    assert not any("are missing" in sentence for sentence in told)
    assert not any(new in sentence for sentence in feed.cut(31))


def test_files_that_come_back_bring_no_row_twice_and_are_forgotten_once_more(tmp_path: Path) -> None:
    feed, sizes = lived(tmp_path, "new versions, the same partitions", 30)
    for path, content in feed.removed.items():
        feed.folder.write(path, content)
    feed.cut(30)
    assert all(feed.position.is_consumed_path(path) for path in feed.removed)
    assert not feed.consumer.poll().splits
    feed.remove(dict(feed.removed))
    feed.cut(31)
    assert len(feed.consumer.position) <= sizes[30]


def test_what_a_table_has_to_read_yet_is_kept_and_missed(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    held = feed.write(f"test/t/{at(0)}/1/{date(0)}/CDC000001.csv", 0)
    feed.folder.checkpoint(at(0.99))
    feed.consumer.cut(stopped=frozenset({T}))
    assert feed.position.is_unread(held.rpartition("/")[0], held)
    feed.remove([held])
    for day in range(1, 40):
        feed.folder.checkpoint(at(day + 0.99))
        feed.consumer.cut(stopped=frozenset({T}))
        feed.consumer = feed.consumer.restarted()
    feed.folder.checkpoint(at(41))
    (problem,) = feed.consumer.poll().problems
    assert (problem.table_id, problem.file) == (T, held)
    assert "vanished" in problem.message


def test_files_without_commit_ts_are_not_forgotten(tmp_path: Path) -> None:
    """One that comes back would be applied once more."""
    feed = Feed(tmp_path, NONE + "&include-commit-ts=false")
    paths = []
    for day in range(30):
        paths.append(feed.folder.write(f"test/t/{at(0)}/{day + 5000}/CDC000001.csv", f'"I","t","test",{day},"a"\n'))
        feed.folder.checkpoint(at(day + 0.99))
        feed.consumer.cut()
        paths.pop().unlink()
    assert len(feed.position.consumed) == 30
    feed.folder.write(f"test/t/{at(0)}/5000/CDC000001.csv", '"I","t","test",0,"a"\n')
    feed.folder.checkpoint(at(31))
    offer = feed.consumer.poll()
    assert [split.key for split in offer.splits] == []


def test_nothing_is_forgotten_while_a_folder_cannot_be_listed(tmp_path: Path) -> None:
    feed, _ = lived(tmp_path, "new partitions", 5)
    stray = Stray("test/t/1", "Permission denied", unlisted=True)

    def after(*strays: Stray) -> StoragePosition:
        return without_gone(feed.position, Listing(strays=strays), parsed, ())

    assert after(stray) == feed.position
    assert len(after().consumed) < len(feed.position.consumed)


def test_that_files_are_gone_is_told_of_those_that_are_forgotten_too(tmp_path: Path) -> None:
    feed, _ = lived(tmp_path, "new versions, the same partitions", 30)
    source, position = feed.consumer.source, feed.consumer.position
    named = {path for path in feed.removed if feed.position.is_consumed_path(path)}
    assert 0 < len(named) < len(feed.removed)
    (forgotten,) = [gone for gone in source.vanished(position, T, at(1)) if "number" not in gone]
    assert feed.position.gone["test/t"].day in forgotten
    assert source.vanished(position, T, at(29)) == ()
    assert source.vanished(position, TableId("test", "other"), at(1)) == ()


def test_what_was_forgotten_does_not_make_files_late_that_are_read_again(tmp_path: Path) -> None:
    feed, _ = lived(tmp_path, "new versions, the same partitions", 30)
    for path, content in feed.removed.items():
        if path.split("/")[4] >= date(4):
            feed.folder.write(path, content)
    feed.consumer.position = feed.consumer.source.read_again(feed.consumer.position, T, at(5.2))
    feed.consumer = feed.consumer.restarted()
    feed.consumer.checkpoint = at(5.2)
    feed.folder.checkpoint(at(31))
    offer = feed.consumer.cut()
    assert not any("is over in every time zone" in notice.sentence() for notice in offer.notices)
    assert len({ts for _, ts, _ in feed.consumer.rows}) == 25 * A_DAY
    assert feed.consumer.source.vanished(feed.consumer.position, T, at(5.2)) == ()
    assert feed.consumer.source.vanished(feed.consumer.position, T, at(2)) != ()


def test_an_entry_of_what_is_gone_keeps_its_place_in_text() -> None:
    position = StoragePosition(gone={"test/t": Gone(7, 100, "2026-01-01"), "7": Gone(1, 50, undated=True)})
    assert StoragePosition.parse(position.to_text()) == position


@pytest.mark.parametrize("lacks", [False, True])
def test_a_position_that_went_back_is_compared_file_by_file_of_what_was_forgotten(lacks: bool) -> None:
    def with_files(position: StoragePosition, partition: int, count: int, modified: int) -> StoragePosition:
        keys = [f"test/t/100/{partition}/CDC{number:06d}.csv" for number in range(1, count + 1)]
        return advanced(position, 200, [FileState(key, 10, modified, consumed=True) for key in keys])

    place = StoragePosition()
    for partition in range(20):
        place = with_files(place, partition, 3, 10 + partition)
    later = with_files(place, 99, 1, 5) if lacks else place
    known = without_gone(later, Listing(), parsed, ())
    assert known.gone["test/t"] == Gone(37 if lacks else 36, 100, undated=True)
    assert list(gone_since(known, place, Listing(), parsed)) == (["test/t/100/CDC000000"] if lacks else [])


def parsed(directory: str) -> DataPath | None:
    return first_file_in(directory, None, ())


FILES = st.tuples(
    st.integers(0, 2),  # which of the last versions
    st.integers(0, 9),  # partition
    st.sampled_from([0, 0, 0, 1, 5, -4000]),  # how many days ago its date is
    st.integers(0, 2),  # dispatcher
    st.integers(1, 3),  # how many files
)
STEPS = st.tuples(
    st.lists(FILES, min_size=8, max_size=20),
    st.integers(0, 4),  # files that are older than that are removed
    st.sampled_from(["", "", "", "restart", "come back"]),
)


@given(st.lists(STEPS, min_size=4, max_size=12))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_row_is_lost_and_what_a_position_that_went_back_lacks_is_missed(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[list[tuple[int, int, int, int, int]], int, str]]
) -> None:
    """Whatever comes, goes and comes back: each cut has the rows that were written for it, wherever they lie."""
    feed = Feed(tmp_path_factory.mktemp("feed"))
    versions, files, numbers = [at(0)], {}, 0
    former: list[tuple[str, set[str]]] = []
    everything: set[str] = set()
    came_back = False
    for day, (drawn, kept, event) in enumerate(steps, 1):
        versions.append(feed.version(day))
        for back, partition, ago, dispatcher, count in drawn:
            folder = f"test/t/{versions[max(0, len(versions) - 1 - back)]}/{partition + 1000}/{date(day - ago)}"
            for number in range(numbers, numbers + count):
                name = f"CDC_{dispatcher}_{number + 1:06d}.csv" if dispatcher else f"CDC{number + 1:06d}.csv"
                files[feed.write(f"{folder}/{name}", day)] = day
            numbers += count
        if event == "come back":
            came_back = came_back or bool(feed.removed)
            for path, content in feed.removed.items():
                feed.folder.write(path, content)
                files[path] = day
            feed.removed = {}
        feed.cut(day)
        everything |= files.keys()
        former.append((feed.consumer.position, set(everything)))
        gone = [path for path, written in files.items() if written <= day - kept]
        feed.remove(gone)
        for path in gone:
            del files[path]
        if event == "restart":
            feed.consumer = feed.consumer.restarted()
    source, latest = feed.consumer.source, feed.consumer.position
    present = files.keys()
    for position, known in former:
        missed = StoragePosition.parse(source.missing_again(latest, position))
        assert bool(missed.unread) == bool(everything - known - present) or (came_back and missed.unread)
