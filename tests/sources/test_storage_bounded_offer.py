"""Offers that are cut short: each is complete up to its own watermark, and together they bring every row once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.formats.storage_paths import DataPath
from headrace.model.offer import Offer
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.tso import tso_from_ms
from headrace.model.types import ColumnType, TypeKind
from headrace.sources.base import Bound
from headrace.sources.ticdc_storage.bounded_offer import (
    BoundedOffer,
    Stretch,
    bounded_by_files,
    bounded_by_ts,
    bounded_hi,
    catching_up_by_ts,
)
from headrace.sources.ticdc_storage.split_selection import Candidate
from headrace.sources.ticdc_storage.stores import Store, StoredFile
from headrace.sources.ticdc_storage.table_versions import TableVersion
from storage_folder import OPTIONS, Consumer, StorageFolder

T = TableId("test", "t")
KEYLESS = TableSchema(T, (Column("id", ColumnType(TypeKind.INT)),))
KEYED = TableSchema(T, KEYLESS.columns, handle_key=("id",))


@dataclass
class File:
    """A file of the model: the commit ts of its rows, in order, and how many of their ts were applied."""

    rows: list[int]
    size: int
    was_read: bool = False

    def stretch(self, checkpoint: int) -> Stretch:
        pending = min((ts for ts in self.rows if ts > checkpoint), default=self.rows[-1])
        begins = pending if self.was_read else self.rows[0]
        return Stretch(max(begins, checkpoint + 1), self.size, self.rows[0], self.rows[-1] if self.was_read else 0)


def candidate(number: int, size: int = 10, version: int = 100, schema: TableSchema = KEYED) -> Candidate:
    path = DataPath(f"{schema.table_id.database}/{schema.table_id.table}", version, "", "", "", f"{number:06d}", "csv")
    return StoredFile(path.key, size, 1), path, TableVersion(schema.table_id, version, schema, 0, "")


@st.composite
def streams(draw: st.DrawFn) -> list[File]:
    """Files of several writers, each with restarts that repeat what lies behind some earlier ts, cut into files anew."""
    files = []
    for _ in range(draw(st.integers(1, 3))):
        rows = sorted(draw(st.lists(st.integers(1, 60), min_size=1, max_size=25)))
        attempts = [rows] + [[ts for ts in rows if ts >= again] for again in draw(st.lists(st.integers(1, 60), max_size=2))]
        for attempt in attempts:
            count = draw(st.integers(1, 6))
            files += [File(attempt[at : at + count], draw(st.integers(1, 50))) for at in range(0, len(attempt), count)]
    return draw(st.permutations(files))


@settings(max_examples=60, deadline=None)
@given(streams(), st.integers(1, 200), st.integers(0, 30))
def test_bounded_offers_bring_every_row_and_leave_none_behind(files: list[File], limit: int, ahead: int) -> None:
    watermark, checkpoint, at_least, cuts = 50, 0, 1 + ahead, 0
    applied: set[int] = set()
    while checkpoint < watermark:
        waiting = [f for f in files if not (f.was_read and f.rows[-1] <= checkpoint)]
        numbered = [candidate(n, f.size) for n, f in enumerate(waiting)]
        by_path = {c[0].path: f for c, f in zip(numbered, waiting, strict=True)}
        part = bounded_by_ts(numbered, [f.stretch(checkpoint) for f in waiting], limit, at_least, watermark, exact=True)
        hi, offered = (watermark, numbered) if part is None else (part.hi, part.candidates)
        assert hi >= at_least
        taken = [by_path[stored.path] for stored, _, _ in offered]
        found = {ts for f in taken for ts in f.rows if checkpoint < ts <= hi}
        assert found == {ts for f in files for ts in f.rows if checkpoint < ts <= hi}
        applied |= found
        for file in taken:
            file.was_read = True
        checkpoint, at_least, cuts = hi, hi + 1, cuts + 1
    assert applied == {ts for f in files for ts in f.rows if ts <= watermark}
    # Each file counts once from its beginning and once more for its share, and each cut but those forced takes its fill.
    assert cuts <= 2 + 3 * len(files)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(streams(), st.integers(0, 40)), min_size=1, max_size=3), st.integers(1, 100))
def test_tables_behind_the_others_get_every_row_in_parts(tables: list[tuple[list[File], int]], limit: int) -> None:
    checkpoint = 40
    reached = {TableId("test", f"t{n}"): own for n, (_, own) in enumerate(tables)}
    files = {table_id: of_table for table_id, (of_table, _) in zip(reached, tables, strict=True)}
    before = dict(reached)
    applied: dict[TableId, set[int]] = {table_id: set() for table_id in reached}
    while True:
        waiting = [(t, f) for t in files for f in files[t] if not (f.was_read and f.rows[-1] <= reached[t])]
        offered = [candidate(n, f.size, schema=replace(KEYED, table_id=t)) for n, (t, f) in enumerate(waiting)]
        stretches = [f.stretch(reached[t]) for t, f in waiting]
        part = catching_up_by_ts(offered, stretches, limit, checkpoint, exact=True)
        if part is None:
            break
        assert min(before[t] for t in part.catches_up) < part.hi < checkpoint
        taken = [pair for pair, c in zip(waiting, offered, strict=True) if c in part.candidates]
        assert {t for t, _ in taken} <= part.catches_up
        for table_id in part.catches_up:
            found = {ts for t, f in taken if t == table_id for ts in f.rows if reached[t] < ts <= part.hi}
            assert found == {ts for f in files[table_id] for ts in f.rows if reached[table_id] < ts <= part.hi}
            applied[table_id] |= found
        assert any(part.hi > reached[t] for t, _ in taken)
        for _, file in taken:
            file.was_read = True
        reached |= {t: max(reached[t], part.hi) for t in part.catches_up}
    for table_id, own in before.items():
        assert applied[table_id] == {ts for f in files[table_id] for ts in f.rows if own < ts <= reached[table_id]}


def test_a_part_ends_before_the_first_file_that_is_too_much() -> None:
    stretches = [Stretch(10, 100), Stretch(20, 100), Stretch(30, 100)]
    assert bounded_hi(stretches, 250, 1, 1000) == 29
    assert bounded_hi(stretches, 199, 1, 1000) == 19
    assert bounded_hi(stretches, 300, 1, 1000) == 1000


def test_a_file_above_the_limit_is_taken_by_itself() -> None:
    assert bounded_hi([Stretch(10, 5000), Stretch(20, 5000)], 100, 1, 1000) == 19


def test_files_that_begin_at_one_ts_are_taken_together() -> None:
    assert bounded_hi([Stretch(10, 100), Stretch(10, 100), Stretch(30, 100)], 100, 1, 1000) == 10


def test_of_a_file_that_was_read_its_share_counts() -> None:
    read = [Stretch(1, 1000, first=1, last=100), Stretch(1, 1000, first=1, last=100)]
    assert bounded_hi(read, 1000, 1, 1000) == 50
    assert bounded_hi([Stretch(51, 1000, 1, 100), Stretch(51, 1000, 1, 100)], 1000, 51, 1000) == 1000


def test_what_broke_off_is_not_taken_smaller() -> None:
    assert bounded_hi([Stretch(10, 100), Stretch(20, 100), Stretch(30, 100)], 100, 25, 1000) == 25


def test_a_part_ends_with_a_whole_millisecond_where_no_more_is_known() -> None:
    ms = [tso_from_ms(n) for n in (5, 6, 8)]
    part = bounded_by_ts([candidate(n) for n in (1, 2, 3)], [Stretch(ts, 10) for ts in ms], 20, 1, tso_from_ms(9), exact=False)
    assert part is not None
    assert part.hi == tso_from_ms(8) - 1
    forced = bounded_by_ts([candidate(n) for n in (1, 2)], [Stretch(ts, 10) for ts in ms[:2]], 1, 1, tso_from_ms(9), exact=False)
    assert forced is not None
    assert forced.hi == tso_from_ms(6) - 1


def test_files_between_those_of_a_table_without_key_are_taken_too() -> None:
    stretches = [Stretch(10, 10), Stretch(50, 10), Stretch(12, 10), Stretch(60, 10)]
    for schema, numbers in ((KEYLESS, [1, 2, 3]), (KEYED, [1, 3])):
        part = bounded_by_ts([candidate(n, schema=schema) for n in (1, 2, 3, 4)], stretches, 20, 1, 1000, exact=True)
        assert part is not None
        assert [path.number for _, path, _ in part.candidates] == numbers


def numbers_of(part: BoundedOffer | None) -> tuple[int, list[int]]:
    assert part is not None
    return part.hi, [path.number for _, path, _ in part.candidates]


def test_without_commit_ts_no_schema_change_overtakes_a_file() -> None:
    files = [candidate(1, version=100), candidate(2, version=100), candidate(3, version=300)]
    assert numbers_of(bounded_by_files(files, [100, 300], 10, 1, 1000)) == (100, [1])
    assert numbers_of(bounded_by_files(files[1:], [300], 10, 101, 1000)) == (300, [2])
    # There is no ts left between the last cut and the schema change: all before it is taken at once.
    assert numbers_of(bounded_by_files(files, [101, 300], 10, 101, 1000)) == (300, [1, 2])
    assert bounded_by_files(files, [300], 1000, 1, 1000) is None


@pytest.fixture
def folder(tmp_path: Path) -> StorageFolder:
    return StorageFolder(tmp_path / "source")


def fill(folder: StorageFolder, files: Sequence[Sequence[str]], watermark: int) -> None:
    folder.schema("t", 100, "CREATE TABLE `test`.`t` (`id` INT PRIMARY KEY, `v` VARCHAR(16))")
    for number, rows in enumerate(files, 1):
        folder.data("test/t/100", number, *rows)
    folder.checkpoint(watermark)


def run_to(consumer: Consumer, watermark: int) -> list[tuple[int, list[str]]]:
    cuts = []
    while consumer.checkpoint < watermark:
        before = consumer.checkpoint
        consumer.cut()
        assert consumer.checkpoint > before
        cuts.append((consumer.checkpoint, consumer.changes))
    return cuts


BACKLOG = (("I 110 1 a", "I 120 2 b"), ("I 130 3 c", "I 150 4 d"), ("I 130 3 c", "U 160 1 x"), ("I 170 5 e",))


def test_a_backlog_comes_in_parts(folder: StorageFolder) -> None:
    fill(folder, BACKLOG, 200)
    consumer = folder.consumer()
    consumer.max_cut = 1
    first = consumer.poll()
    assert (first.watermark, first.schema_bound, first.promised, first.source_watermark) == (129, 130, 200, 200)
    assert [split.key for split in first.splits] == ["test/t/100/CDC000001.csv"]
    assert first.left_bytes == sum((folder.root / f"test/t/100/CDC00000{n}.csv").stat().st_size for n in (2, 3, 4))
    cuts = run_to(consumer, 200)
    assert len(cuts) > 2
    assert [row for _, rows in cuts for row in dict.fromkeys(rows)] == [
        "110 1 a", "120 2 b", "130 3 c", "150 4 d", "160 1 x", "170 5 e",
    ]  # fmt: skip


def test_parts_go_on_after_a_restart(folder: StorageFolder) -> None:
    fill(folder, BACKLOG, 200)
    consumer = folder.consumer()
    consumer.max_cut = 1
    rows = []
    while consumer.checkpoint < 200:
        consumer.cut()
        rows += dict.fromkeys(consumer.changes)
        consumer = consumer.restarted()
    assert rows == ["110 1 a", "120 2 b", "130 3 c", "150 4 d", "160 1 x", "170 5 e"]


def looked_into(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The data files of which a beginning is read from now on."""
    looked: list[str] = []
    read_starts = Store.read_starts

    def noted(store: Store, paths: list[str], length: int) -> list[bytes | None]:
        looked.extend(path for path in paths if "/meta/" not in path)
        return read_starts(store, paths, length)

    monkeypatch.setattr(Store, "read_starts", noted)
    return looked


def test_what_fits_is_offered_whole_and_not_looked_into(folder: StorageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(folder, BACKLOG, 200)
    looked = looked_into(monkeypatch)
    consumer = folder.consumer(OPTIONS + "&include-commit-ts=true")
    consumer.max_cut = 1 << 20
    offer = consumer.poll()
    assert (offer.watermark, offer.promised, offer.left_bytes, len(offer.splits)) == (200, None, 0, 4)
    assert not looked


def test_no_file_is_looked_into_twice(folder: StorageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(folder, BACKLOG, 200)
    looked = looked_into(monkeypatch)
    consumer = folder.consumer()
    consumer.max_cut = 1
    run_to(consumer, 200)
    assert sorted(looked) == [f"test/t/100/CDC00000{n}.csv" for n in (1, 2, 3, 4)]


def test_a_first_row_of_any_length_tells_its_ts(folder: StorageFolder) -> None:
    fill(folder, (("I 110 1 a",), (f"I 130 2 {'x' * 200_000}", "I 140 3 c")), 200)
    consumer = folder.consumer()
    consumer.max_cut = 1
    assert consumer.poll().watermark == 129


def test_a_header_before_a_long_row_is_passed(folder: StorageFolder) -> None:
    fill(folder, (("I 110 1 a",),), 200)
    header = "ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,ticdc-meta$commit-ts,id,v"
    for number, ts in ((2, 130), (3, 140)):
        folder.write(f"test/t/100/CDC00000{number}.csv", f'{header}\n"I","t","test",{ts},{number},"{"x" * 5000}"\n')
    consumer = folder.consumer(OPTIONS + "&output-field-header=true&include-commit-ts=true")
    folder.write("test/t/100/CDC000001.csv", f'{header}\n"I","t","test",110,1,"a"\n')
    consumer.max_cut = 1
    assert consumer.poll().watermark == 129


def test_a_file_that_cannot_be_understood_is_never_left_out(folder: StorageFolder) -> None:
    fill(folder, BACKLOG, 200)
    folder.write("test/t/100/CDC000005.csv", '"I","t","test",no ts,1,"a"\n')
    consumer = folder.consumer(OPTIONS + "&include-commit-ts=true")
    consumer.max_cut = 1
    offer = consumer.poll()
    assert offer.promised == 200
    assert "test/t/100/CDC000005.csv" in [split.key for split in offer.splits]


def test_only_tables_that_are_read_count(folder: StorageFolder) -> None:
    fill(folder, BACKLOG, 200)
    folder.schema("u", 100, "CREATE TABLE `test`.`u` (`id` INT PRIMARY KEY, `v` VARCHAR(16))")
    folder.data("test/u/100", 1, "I 190 1 a")
    offer = folder.consumer().source.poll("", 0, bound=Bound(1, 1, counts=lambda table_id, _: table_id == T))
    assert [split.key for split in offer.splits] == ["test/t/100/CDC000001.csv", "test/u/100/CDC000001.csv"]
    nothing = folder.consumer().source.poll("", 0, bound=Bound(1, 1, counts=lambda *_: False))
    assert (nothing.promised, len(nothing.splits)) == (None, 5)


def test_a_part_for_tables_that_catch_up_has_all_files_of_those_that_take_no_part(folder: StorageFolder) -> None:
    """Whatever comes to be of such a table before the part is applied, no file of it is passed over."""
    fill(folder, BACKLOG, 200)
    for table in "uw":
        folder.schema(table, 100, f"CREATE TABLE `test`.`{table}` (`id` INT PRIMARY KEY, `v` VARCHAR(16))")
        folder.data(f"test/{table}/100", 1, "I 125 1 a")
        folder.data(f"test/{table}/100", 2, "I 190 2 b")
    idle = TableId("test", "u")

    def reached(table_id: TableId) -> int:
        return 100 if table_id == T else 200

    bound = Bound(1, 201, checkpoint=200, reached=reached, counts=lambda table_id, _: table_id != idle)
    offer = folder.consumer().source.poll("", 0, bound=bound)
    assert (offer.catches_up, offer.watermark) == ({T}, 129)
    assert [split.key for split in offer.splits] == [
        "test/t/100/CDC000001.csv", "test/u/100/CDC000001.csv", "test/u/100/CDC000002.csv",
    ]  # fmt: skip


def test_without_commit_ts_files_come_in_order(folder: StorageFolder) -> None:
    folder.schema("t", 100, "CREATE TABLE `test`.`t` (`id` INT PRIMARY KEY, `v` VARCHAR(16))")
    for number in (1, 2, 3):
        folder.write(f"test/t/100/CDC00000{number}.csv", f'"I","t","test",{number},"a"\n')
    folder.checkpoint(500)
    consumer = folder.consumer(OPTIONS + "&include-commit-ts=false")
    consumer.max_cut = 1
    offers: list[Offer] = []
    while consumer.checkpoint < 500:
        offers.append(consumer.cut())
    assert [[split.key[-5] for split in offer.splits] for offer in offers] == [["1"], ["2"], ["3"]]
    assert [offer.watermark for offer in offers] == [100, 101, 500]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_random_backlogs_give_the_same_rows_as_one_cut(seed: int, folder: StorageFolder) -> None:
    chance = random.Random(seed)
    files = []
    for _ in range(3):
        rows = sorted(chance.sample(range(101, 400), 30))
        for again in (0, chance.choice(rows)):
            left = [ts for ts in rows if ts >= again]
            while left:
                count = chance.randint(1, 7)
                files.append([f"I {ts} {ts} v{ts}" for ts in left[:count]])
                left = left[count:]
    fill(folder, files, 380)
    whole = folder.consumer()
    whole.cut()
    consumer = folder.consumer()
    consumer.max_cut = chance.choice((1, 200, 500))
    cuts = run_to(consumer, 380)
    assert len(cuts) > 3
    assert sorted({row for _, rows in cuts for row in rows}) == sorted(set(whole.changes))
