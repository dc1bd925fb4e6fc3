"""A source's memory only saves work: every call may be made on an object that has seen nothing before."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.block import ChangeBlock
from headrace.model.cut import CutOutcome
from headrace.model.offer import Offer
from headrace.model.outcome import SplitReport
from headrace.model.split import Window
from headrace.model.table import TableId
from headrace.sources.ticdc_storage.source import StorageEventSource
from storage_folder import ID, OPTIONS, C, Consumer, StorageFolder, V

pytestmark = pytest.mark.pipeline

T, U = TableId("test", "t"), TableId("test", "u")
TABLES = ("t", "u", "w")


class NewEachTime:
    """A source of which every call is made on a new object. What an offer has learned comes to it pickled."""

    def __init__(self, source: StorageEventSource) -> None:
        self._made = source.__reduce__()

    def __reduce__(self) -> tuple[type[StorageEventSource], tuple[Any, ...]]:
        return self._made

    def poll(self, *arguments: Any, **options: Any) -> Offer:
        return cast(Offer, pickle.loads(pickle.dumps(self._new().poll(*arguments, **options))))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return cast(Callable[..., Any], getattr(self._new(), name))

    def _new(self) -> StorageEventSource:
        kind, arguments = self._made
        return kind(*arguments)


def without_memory(folder: StorageFolder, options: str = OPTIONS) -> Consumer:
    return Consumer(cast(StorageEventSource, NewEachTime(folder.consumer(options).source)))


class History:
    """A changefeed that goes on at random: rows, schema changes, files that are written again or removed, checkpoints."""

    def __init__(self, root: Path, chance: Random) -> None:
        self.folder, self._chance = StorageFolder(root), chance
        self._ts = 100
        self._versions: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._files: list[str] = []
        for table in TABLES:
            self._change(table)
        self.folder.checkpoint(self._ts)

    def go_on(self) -> None:
        do = self._chance.choice((self._write, self._write, self._write, self._promise, self._promise, self._alter, self._damage))
        do()

    def _write(self) -> None:
        table = self._chance.choice(TABLES)
        directory = f"test/{table}/{self._versions[table]}"
        number = self._numbers[directory] = self._numbers.get(directory, 0) + self._chance.choice((1, 1, 1, 2))
        rows = [f"I {self._next()} {self._chance.randrange(9)} v{self._ts}" for _ in range(self._chance.randrange(1, 5))]
        self._chance.shuffle(rows)
        self._files.append(self.folder.data(directory, number, *rows))

    def _promise(self) -> None:
        self.folder.checkpoint(self._ts - self._chance.choice((0, 0, 1, 3, 8)))

    def _alter(self) -> None:
        self._change(self._chance.choice(TABLES))

    def _damage(self) -> None:
        """Now and then a file vanishes, or is written again with other rows."""
        if self._files and self._chance.random() < 0.3:
            path = self._files.pop(self._chance.randrange(len(self._files)))
            if self._chance.random() < 0.5:
                (self.folder.root / path).unlink()
            else:
                directory, _, name = path.rpartition("/")
                self.folder.data(directory, name[3:9], f"I {self._next()} 1 again")

    def _change(self, table: str) -> None:
        statement = f"ALTER TABLE `{table}` ADD COLUMN `c{self._ts}` INT" if table in self._versions else f"CREATE TABLE `{table}`"
        columns = (ID, V, *([{**C, "ColumnName": f"c{self._ts}"}] if table in self._versions else []))
        text = "(`id` INT PRIMARY KEY,`v` VARCHAR(16))" if table not in self._versions else ""
        self._versions[table] = self._next()
        self.folder.schema(table, self._ts, statement + text, columns)

    def _next(self) -> int:
        self._ts += self._chance.randrange(1, 4)
        return self._ts


def seen(offer: Offer) -> Offer:
    return replace(offer, learned=None)


@settings(deadline=None, max_examples=40)
@given(st.randoms(use_true_random=False), st.sampled_from([OPTIONS, f"{OPTIONS}&include-commit-ts=true"]))
def test_whoever_polls_reads_and_advances_it_comes_out_the_same(chance: Random, options: str) -> None:
    with TemporaryDirectory() as root:
        history = History(Path(root) / "feed", chance)
        one, new = history.folder.consumer(options), without_memory(history.folder, options)
        for _ in range(12):
            for _ in range(chance.randrange(6)):
                history.go_on()
            one.max_cut = new.max_cut = chance.choice((None, 1, 60, 200))
            if chance.random() < 0.3:
                final = chance.random() < 0.3
                offers = one.poll(final=final), new.poll(final=final)
            else:
                stopped = frozenset(TableId("test", table) for table in TABLES if chance.random() < 0.15)
                offers = one.cut(stopped), new.cut(stopped)
                assert one.rows == new.rows
                assert one.reports == new.reports
            assert seen(offers[0]) == seen(offers[1])
            assert one.position == new.position
            assert one.source.missing(one.position, offers[0], T, 120) == new.source.missing(new.position, offers[1], T, 120)
            assert one.source.vanished(one.position, T, 120) == new.source.vanished(new.position, T, 120)


def read_up_to(source: StorageEventSource, offer: Offer, lo: int, hi: int) -> tuple[list[SplitReport], int]:
    items = [item for split in offer.splits for item in source.read(split, Window(lo, hi))]
    reports = [item for item in items if isinstance(item, SplitReport)]
    return reports, sum(item.batch.num_rows for item in items if isinstance(item, ChangeBlock))


@pytest.fixture
def folder(tmp_path: Path) -> StorageFolder:
    made = StorageFolder(tmp_path / "feed")
    made.schema("t", 100, "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(16))")
    made.data("test/t/100", 1, "I 110 1 a", "I 150 2 b")
    made.checkpoint(120)
    return made


def test_a_cut_is_ended_by_its_own_offer_whatever_was_polled_since(folder: StorageFolder) -> None:
    """A file that only a later offer names is no file that a stopped table of the cut has to read."""
    source = folder.consumer().source
    first = source.poll("", 0)
    folder.data("test/t/100", 2, "I 160 3 c")
    folder.schema("u", 155, "CREATE TABLE `u` (`id` INT PRIMARY KEY,`v` VARCHAR(16))")
    folder.data("test/u/155", 1, "I 158 1 a")
    folder.checkpoint(200)
    alone, _ = read_up_to(source, first, 0, 120)
    outcome = CutOutcome(120, behind=frozenset({T, U}))
    unseen = source.advance("", first, alone, outcome, {T: 120})
    keys = {split.key for split in first.splits}
    begun = source.begin("", first, first.splits, 120)
    taken = source.taking("", first, keys).after(alone, outcome)
    later = source.poll("", 0)
    assert {split.key for split in later.splits} > keys
    assert source.advance("", first, alone, outcome, {T: 120}) == unseen
    assert source.begin("", first, first.splits, 120) == begun
    assert source.taking("", first, keys).after(alone, outcome) == taken


def test_a_bounded_cut_that_broke_off_leaves_no_trace(folder: StorageFolder) -> None:
    """The files that it did without are named by a position that was written, and by nothing else."""
    folder.data("test/t/100", 2, "I 115 3 c")
    folder.checkpoint(200)
    consumer = folder.consumer()
    consumer.max_cut = 1
    assert consumer.poll().watermark < 200
    consumer.max_cut = None
    assert all(getattr(split, "left_out", None) is None for split in consumer.poll().splits)


def test_a_table_that_stops_behind_a_schema_change_does_not_read_what_it_took_before(folder: StorageFolder) -> None:
    """Without exact commit ts its rows would count once more, behind the change."""
    folder.data("test/t/100", 2, "I 115 3 c")
    folder.checkpoint(200)
    consumer = folder.consumer()
    source, offer = consumer.source, consumer.poll()
    reports, _ = read_up_to(source, offer, 0, 200)
    taken, left = (next(r for r in reports if r.split_key.endswith(f"{number}.csv")) for number in (1, 2))
    during = source.consumed("", offer, [taken])
    outcome = CutOutcome(200, frozenset({T}), behind=frozenset({T}))
    for position in (
        source.advance(during, offer, [], outcome, {T: 120}),
        source.taking(during, offer, {left.split_key}).after([], outcome),
    ):
        assert [split.key for split in source.poll(position, 120).splits] == [left.split_key]
