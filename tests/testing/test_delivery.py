"""What a delivery writes keeps TiCDC's promises, whatever else it does with the changes on their way."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.table import Column, TableId
from headrace.model.types import ColumnType, TypeKind
from headrace.testing.delivery import Conduct, Delivery
from headrace.testing.ticdc_options import ChangefeedOptions
from headrace.testing.upstream import Delete, Insert, Update, Upstream

T = TableId("d", "t")
ID = Column("id", ColumnType(TypeKind.INT), nullable=False, primary_key=True)
NAME = Column("name", ColumnType(TypeKind.VARCHAR, length=9))


class Feed:
    """A delivery of one table, in canal-JSON, and what its upstream did."""

    def __init__(self, root: Path, seed: int = 0, **conduct: Any) -> None:
        self.root = root
        options = ChangefeedOptions("canal-json", enable_tidb_extension=True, date_separator="none", file_index_digit=6)
        self.delivery = Delivery(root, options, Conduct(**conduct), random.Random(seed))
        self.upstream = Upstream(self.delivery)
        self.upstream.create_database("d")
        self.upstream.create_table(T, [ID, NAME])

    def records(self, path: Path) -> list[tuple[int, str, str]]:
        """Commit ts, type and the new row's key of each whole record."""
        lines = [json.loads(line) for line in path.read_bytes().splitlines() if line.endswith(b"}")]
        return [(line["_tidb"]["commitTs"], line["type"], line["data"][0]["id"]) for line in lines]

    def files(self, version: int | None = None) -> list[Path]:
        return sorted(self.root.glob(f"d/t/{version or '*'}/CDC*.json"))


@pytest.mark.long
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), atomic=st.booleans(), key_updates=st.sampled_from(["sorted", "unsorted", "raw"]))
def test_everything_up_to_a_checkpoint_is_in_files(
    tmp_path_factory: pytest.TempPathFactory, seed: int, atomic: bool, key_updates: Any
) -> None:
    feed = Feed(tmp_path_factory.mktemp("feed"), seed, atomic=atomic, key_updates=key_updates)
    chance = random.Random(seed)
    committed: dict[int, set[str]] = {}
    for number in range(0, 30, 3):
        ts = feed.upstream.execute(*(Insert(T, {"id": number + n, "name": "x"}) for n in range(3)))
        committed[ts] = {str(number + n) for n in range(3)}
        feed.delivery.deliver_some()
        if chance.random() < 0.3:
            feed.delivery.checkpoint(chance.choice(list(committed)))
        if chance.random() < 0.2:
            feed.delivery.restart(feed.delivery.promised, torn=True)
        written: dict[int, set[str]] = {}
        for path in feed.files():
            stamps = [record[0] for record in feed.records(path)]
            assert stamps == sorted(stamps), "commit ts goes back inside a file"
            for ts, _, key in feed.records(path):
                written.setdefault(ts, set()).add(key)
        for ts, keys in committed.items():
            assert ts > feed.delivery.promised or written.get(ts) == keys


def test_a_restart_repeats_what_came_after_its_checkpoint_in_later_files(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    first = feed.upstream.execute(Insert(T, {"id": 1}))
    feed.delivery.checkpoint(first)
    second = feed.upstream.execute(Insert(T, {"id": 2}))
    feed.upstream.checkpoint()
    feed.delivery.restart(first)
    feed.upstream.checkpoint()
    assert [[ts for ts, _, _ in feed.records(path)] for path in feed.files()] == [[first], [second], [second]]


@pytest.mark.parametrize(("discards", "repeated"), [(False, 1), (True, 0)])
def test_rows_from_below_the_newest_directory_of_their_shape_are_left_out_or_go_there(
    tmp_path: Path, discards: bool, repeated: int
) -> None:
    feed = Feed(tmp_path, discards_stale=discards)
    before = feed.upstream.execute(Insert(T, {"id": 1}))
    version = feed.upstream.truncate_table(T)
    feed.upstream.checkpoint()
    feed.delivery.restart(before - 1)
    feed.upstream.checkpoint()
    assert [ts for path in feed.files(version) for ts, _, _ in feed.records(path)] == [before] * repeated


def test_a_restart_above_what_was_promised_is_refused(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    ts = feed.upstream.execute(Insert(T, {"id": 1}))
    with pytest.raises(ValueError, match="acknowledged"):
        feed.delivery.restart(ts)


def test_key_updates_take_every_form_of_every_release(tmp_path: Path) -> None:
    """Split and sorted, split in pairs, or whole: each is met among a few seeds, and none that the release does not write."""
    forms: dict[str, set[tuple[str, ...]]] = {}
    for key_updates in ("sorted", "unsorted", "raw"):
        for seed in range(20):
            feed = Feed(tmp_path / f"{key_updates}{seed}", seed, key_updates=key_updates, atomic=True)
            feed.upstream.execute(Insert(T, {"id": 1}), Insert(T, {"id": 2}))
            ts = feed.upstream.execute(Update(T, (1,), {"id": 3}), Update(T, (2,), {"id": 4}))
            feed.upstream.checkpoint()
            found = tuple(kind for path in feed.files() for stamp, kind, _ in feed.records(path) if stamp == ts)
            forms.setdefault(key_updates, set()).add(found)
    split, pairs = ("DELETE", "DELETE", "INSERT", "INSERT"), ("DELETE", "INSERT", "DELETE", "INSERT")
    assert forms["sorted"] == {split}
    assert forms["unsorted"] == {split, pairs}
    assert ("UPDATE", "UPDATE") in forms["raw"]


def test_half_written_files_are_whole_before_anything_else_happens(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.upstream.execute(*(Insert(T, {"id": n}) for n in range(20)))
    feed.delivery.deliver_some()
    feed.delivery.begin_files()
    feed.upstream.execute(Delete(T, (3,)))
    feed.upstream.checkpoint()
    assert {key for path in feed.files() for _, _, key in feed.records(path)} == {str(n) for n in range(20)}
    assert all(path.read_bytes().endswith(b"}\r\n") for path in feed.files())
