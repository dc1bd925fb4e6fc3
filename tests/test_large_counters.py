"""Counters of the ledger go on beyond 2^31, 2^32 and 2^53: a run that follows for years must not stop at one of them."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from following import Following, run_once
from harness import assert_state
from headrace.errors import EXIT_INTERRUPTED, EXIT_OK
from headrace.pipeline.registry import open_sink
from headrace.sinks.file_ledger import open_file_ledger, state_from_json, state_to_json
from headrace.testing.upstream import Insert
from places import Place
from targets import DuckDbTarget, Target
from upstreams import ORDERS, Changefeed, small_shop

pytestmark = pytest.mark.pipeline

LARGE = (2**31 - 1, 2**32 - 1, 2**53 - 1, 2**62)


def changefeed_in(folder: Path) -> Changefeed:
    changefeed = Changefeed(folder)
    small_shop(changefeed, with_bag=False)
    return changefeed


def execute(place: Place, target: Target, *statements: str) -> list[tuple[object, ...]]:
    """Runs statements in the target; the rows of the last one."""
    if place.mariadb is not None:
        with place.mariadb.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())
    assert isinstance(target, DuckDbTarget)
    with duckdb.connect(str(target.path)) as connection:
        for statement in statements:
            connection.execute(statement)
        return connection.fetchall()


def goes_on(changefeed: Changefeed, uri: str, number: int) -> None:
    """Two rows in two cuts of two runs, so that each counter is counted up."""
    for row in (number, number + 1):
        changefeed.upstream.execute(Insert(ORDERS, {"id": row, "name": "more"}))
        changefeed.upstream.checkpoint()
        assert run_once(changefeed, uri) == EXIT_OK


def test_epoch_cuts_and_the_slots_transactions_are_counted_on(place: Place, tmp_path: Path) -> None:
    changefeed = changefeed_in(tmp_path / "changefeed")
    target, uri = place.fresh()
    assert run_once(changefeed, uri) == EXIT_OK
    for row, large in enumerate(LARGE):
        statements = [f"UPDATE headrace.pipelines SET epoch = {large}", f"UPDATE headrace.cuts SET ordinal = ordinal + {large}"]
        slots = [f"UPDATE headrace.fences SET epoch = {large}, commits = {large}, attempt = {large}"] if place.mariadb else []
        execute(place, target, *statements, *slots)
        goes_on(changefeed, uri, 100 + 2 * row)
        with open_sink(uri) as sink:
            assert sink.ledger is not None
            state = sink.ledger.peek("default")
        assert state is not None
        assert state.epoch == large + 2
        assert state.cuts[-1].hi == changefeed.watermark
        assert_state(target, changefeed.state(ORDERS))


def test_every_counter_of_the_ledger_has_64_bits(place: Place, tmp_path: Path) -> None:
    target, uri = place.fresh()
    assert run_once(changefeed_in(tmp_path / "changefeed"), uri) == EXIT_OK
    columns = "SELECT DISTINCT lower(data_type) FROM information_schema.columns WHERE table_schema = 'headrace'"
    types = {str(kind) for (kind,) in execute(place, target, columns)}
    assert types <= {"bigint", "double", "varchar", "longtext"}


@pytest.mark.parametrize("large", LARGE)
def test_a_file_ledger_counts_on(large: int, tmp_path: Path) -> None:
    changefeed = changefeed_in(tmp_path / "changefeed")
    location = tmp_path / "ledger"
    run = Following(changefeed, "blackhole://", ledger=str(location))
    run.wait_for(changefeed.watermark)
    run.interrupt()
    assert run.ended() == EXIT_INTERRUPTED
    newest = max((location / "default").glob("*.json"))
    state, writer, _ = state_from_json(newest.read_text())
    object.__setattr__(state, "epoch", large)
    (newest.parent / f"{large:020}.json").write_text(state_to_json(state, writer))
    changefeed.upstream.execute(Insert(ORDERS, {"id": 100, "name": "more"}))
    wanted = changefeed.upstream.checkpoint()
    again = Following(changefeed, "blackhole://", ledger=str(location))
    again.wait_for(wanted)
    again.interrupt()
    assert again.ended() == EXIT_INTERRUPTED
    found = open_file_ledger(str(location)).peek("default")
    assert found is not None
    assert (found.checkpoint, found.epoch) == (wanted, large + 1)
    assert int(max((location / "default").glob("*.json")).stem) > large
