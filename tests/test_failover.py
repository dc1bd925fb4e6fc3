"""The target goes back to an older state under a run that lives: the run notices at its next step, and lost rows come back."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from failing_over import Pair, running_pair
from faulty_runs import at
from following import Following, run_once
from harness import assert_state
from headrace.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_UNREACHABLE, FencedError
from headrace.model.ledger import RequestKind, TableRequest, TableStatus
from headrace.model.table import Column
from headrace.pipeline.registry import open_sink
from headrace.testing.faults import Moment, Passage, Step, armed
from headrace.testing.upstream import Delete, Insert, Update
from quick import without_pauses
from servers import MariaDb
from targets import DuckDbTarget, MariaDbTarget
from upstreams import CUSTOMERS, KEY, NAME, ORDERS, TEXT, VISITS, Changefeed, small_shop, small_shop_goes_on, visit

pytestmark = pytest.mark.pipeline


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)


@pytest.fixture
def changefeed(tmp_path: Path) -> Changefeed:
    return Changefeed(tmp_path / "feed")


@pytest.fixture(scope="module")
def servers() -> Iterator[Pair]:
    with running_pair() as pair:
        yield pair


@pytest.fixture
def pair(servers: Pair) -> Pair:
    servers.begin()
    return servers


@pytest.mark.parametrize("has_rows", [False, True])
def test_rows_come_back_that_a_restored_file_lacks(changefeed: Changefeed, tmp_path: Path, has_rows: bool) -> None:
    file, backup = tmp_path / "target.duckdb", tmp_path / "backup"
    target = DuckDbTarget(file)
    small_shop(changefeed, with_bag=True)
    run = Following(changefeed, target.uri)
    run.wait_for(changefeed.watermark)
    shutil.copy(file, backup)
    small_shop_goes_on(changefeed, with_bag=True)
    run.wait_for(changefeed.watermark)
    shutil.copy(backup, file)
    goes_on(changefeed, has_rows)
    run.wait_for(changefeed.watermark)
    run.interrupt()
    assert run.ended() == EXIT_INTERRUPTED
    assert any("a backup was restored" in reason for reason in run.display.failures)
    assert_state(target, changefeed.state())


def test_a_table_stops_whose_files_are_gone_when_the_target_goes_back(changefeed: Changefeed, tmp_path: Path) -> None:
    """TiCDC removes files by their age, whether or not a target may need them once more."""
    file, backup = tmp_path / "target.duckdb", tmp_path / "backup"
    target = DuckDbTarget(file)
    small_shop(changefeed, with_bag=True)
    run = Following(changefeed, target.uri)
    run.wait_for(changefeed.watermark)
    shutil.copy(file, backup)
    there = set(changefeed.writer.root.rglob("CDC*.csv"))
    small_shop_goes_on(changefeed, with_bag=True)
    run.wait_for(changefeed.watermark)
    for later in set(changefeed.writer.root.rglob("CDC*.csv")) - there:
        if later.is_relative_to(changefeed.writer.root / "shop" / "orders"):
            later.unlink()
    shutil.copy(backup, tmp_path / "beside")
    (tmp_path / "beside").rename(file)
    goes_on(changefeed, True)
    run.wait_for(changefeed.watermark)
    run.interrupt()
    run.ended()
    with open_sink(target.uri) as sink:
        assert sink.ledger is not None
        state = sink.ledger.peek("default")
    assert state is not None
    assert state.tables[ORDERS].status is TableStatus.STOPPED
    assert "The file vanished before all its changes were applied." in state.tables[ORDERS].reason
    others = [t for t, own in state.tables.items() if own.status.is_stopped]
    assert others == [ORDERS]


def test_a_file_that_was_replaced_while_a_cut_has_it_open_is_left_as_it_is(changefeed: Changefeed, tmp_path: Path) -> None:
    file, backup = tmp_path / "target.duckdb", tmp_path / "backup"
    target = DuckDbTarget(file)
    small_shop(changefeed, with_bag=True)
    assert run_once(changefeed, target.uri) == EXIT_OK
    shutil.copy(file, backup)
    small_shop_goes_on(changefeed, with_bag=True)
    content = backup.read_bytes()

    def swap() -> None:
        backup.rename(file)

    def looked() -> None:
        assert file.read_bytes() == content
        assert not Path(f"{file}.wal").exists()

    swapped = first_at(Moment.BEFORE, Step.CHECKPOINT, swap)
    after = first_at(Moment.BEFORE, Step.NEXT_ATTEMPT, looked, only_after=swapped)
    with armed(swapped, after):
        assert run_once(changefeed, target.uri) == EXIT_OK
    assert swapped.has_acted
    assert after.has_acted
    assert_state(target, changefeed.state())


def test_a_run_that_meets_its_own_epoch_of_another_time_says_what_to_do(changefeed: Changefeed, tmp_path: Path) -> None:
    """Nothing tells a takeover from that: it ends, and when it is started again all is there."""
    file, older, newer = tmp_path / "target.duckdb", tmp_path / "older", tmp_path / "newer"
    target = DuckDbTarget(file)
    small_shop(changefeed, with_bag=True)
    for backup in (older, newer):
        assert run_once(changefeed, target.uri) == EXIT_OK
        shutil.copy(file, backup)
        changefeed.upstream.checkpoint()
    small_shop_goes_on(changefeed, with_bag=True)
    shutil.copy(older, file)
    run = Following(changefeed, target.uri)
    run.wait_for(changefeed.watermark)
    shutil.copy(newer, file)
    changefeed.upstream.checkpoint()
    error = run.ended()
    assert isinstance(error, FencedError)
    assert error.exit_code == EXIT_UNREACHABLE
    assert "took over, or the target was restored to the time of another run" in error.message
    assert "start this run again" in error.hint
    assert run_once(changefeed, target.uri) == EXIT_OK
    assert_state(target, changefeed.state())


@pytest.mark.server
@pytest.mark.parametrize("has_rows", [False, True])
def test_rows_come_back_that_the_promoted_replica_lacks(changefeed: Changefeed, pair: Pair, has_rows: bool) -> None:
    small_shop(changefeed, with_bag=True)
    run = Following(changefeed, pair.address.uri())
    run.wait_for(changefeed.watermark)
    pair.cut_off()
    small_shop_goes_on(changefeed, with_bag=True)
    run.wait_for(changefeed.watermark)
    pair.fail_over()
    goes_on(changefeed, has_rows)
    run.wait_for(changefeed.watermark)
    run.interrupt()
    assert run.ended() == EXIT_INTERRUPTED
    assert_state(MariaDbTarget(pair.replica), changefeed.state())


@pytest.mark.server
def test_a_run_whose_connections_stay_on_the_former_primary_follows_the_address(changefeed: Changefeed, pair: Pair) -> None:
    """Nothing is lost, and nothing breaks off: new connections reach the new primary, and the former one goes on answering."""
    small_shop(changefeed, with_bag=True)
    run = Following(changefeed, pair.address.uri())
    run.wait_for(changefeed.watermark)
    pair.cut_off()
    pair.switch_over()
    small_shop_goes_on(changefeed, with_bag=True)
    run.wait_for(changefeed.watermark)
    run.interrupt()
    assert run.ended() == EXIT_INTERRUPTED
    assert_state(MariaDbTarget(pair.replica), changefeed.state())


@pytest.mark.server
def test_a_run_goes_on_where_the_target_lacks_columns_of_the_ledger(changefeed: Changefeed, mariadb: MariaDb) -> None:
    """An upgrade added them, and the failover lost that too."""
    small_shop(changefeed, with_bag=True)
    run = Following(changefeed, mariadb.uri())
    run.wait_for(changefeed.watermark)
    with mariadb.connect() as connection, connection.cursor() as cursor:
        for column in ("run_token", "step"):
            cursor.execute(f"ALTER TABLE headrace.pipelines DROP COLUMN {column}")
    small_shop_goes_on(changefeed, with_bag=True)
    run.wait_for(changefeed.watermark)
    run.interrupt()
    assert run.ended() == EXIT_INTERRUPTED
    assert any("lacks a part of the ledger" in reason for reason in run.display.failures)
    assert_state(MariaDbTarget(mariadb), changefeed.state())


@pytest.mark.server
@pytest.mark.parametrize("asks", [False, True])
def test_a_table_is_looked_at_again_whatever_noticed_that_the_target_went_back(
    asks: bool, changefeed: Changefeed, mariadb: MariaDb
) -> None:
    """Its key's index was added by a person after the backup, say, and is not there any more."""
    upstream = changefeed.upstream
    upstream.create_database("shop")
    for table_id in (ORDERS, CUSTOMERS):
        upstream.create_table(table_id, [KEY, NAME])
    upstream.execute(Insert(ORDERS, {"id": 1, "name": "one"}))
    upstream.checkpoint()
    run = Following(changefeed, mariadb.uri())
    run.wait_for(changefeed.watermark)
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("ALTER TABLE shop.orders DROP PRIMARY KEY")
        cursor.execute("UPDATE headrace.pipelines SET step = step - 1")
    if asks:
        with open_sink(mariadb.uri()) as sink:
            assert sink.ledger is not None
            sink.ledger.request("default", TableRequest("1", CUSTOMERS, RequestKind.HOLD))
            sink.ledger.close()
        run.wait_until(lambda: bool(run.display.failures))
    upstream.execute(Update(ORDERS, (1,), {"name": "changed"}))
    upstream.checkpoint()
    run.wait_until(lambda: bool(run.display.stopped))
    run.interrupt()
    assert run.ended() == EXIT_INTERRUPTED
    assert "has no unique index over its key" in run.display.stopped[0].message
    assert MariaDbTarget(mariadb).rows("shop", "orders", {"id": "int", "name": "text"}) == [("1", "one")]


def goes_on(changefeed: Changefeed, has_rows: bool) -> None:
    """The next checkpoint, with a row or without."""
    if has_rows:
        changefeed.upstream.execute(Insert(ORDERS, {"id": 70, "name": "seventy"}))
    changefeed.upstream.checkpoint()


def busy_cut(changefeed: Changefeed) -> None:
    """Rows, and schema changes of every kind of proof, in one cut."""
    upstream = changefeed.upstream
    upstream.execute(Update(ORDERS, (1,), {"name": "one"}), Delete(ORDERS, (2,)), Insert(ORDERS, {"id": 8, "name": "eight"}))
    visit(upstream, "/basket", 7, 2)
    upstream.add_column(ORDERS, Column("price", TEXT, default="7"))
    upstream.execute(Update(ORDERS, (3,), {"price": "8"}))
    upstream.truncate_table(VISITS)
    visit(upstream, "/", 9, 3)
    upstream.drop_column(ORDERS, "price")
    upstream.execute(Update(ORDERS, (4,), {"id": 44}))
    upstream.checkpoint()


TAILS = [
    *((Moment.AFTER, step, Moment.BEFORE, Step.CHECKPOINT) for step in (Step.INTENT, Step.ROUND, Step.SCHEMA_CHANGE)),
    (Moment.BEFORE, Step.SCHEMA_CHANGE, Moment.AFTER, Step.SCHEMA_CHANGE),
    (Moment.BEFORE, Step.MYSQL_STATEMENT, Moment.AFTER, Step.MYSQL_STATEMENT),
    (Moment.AFTER, Step.SCHEMA_CHANGE, Moment.AFTER, Step.JOURNAL_SETTLED),
    (Moment.BEFORE, Step.UNIT, Moment.AFTER, Step.UNIT),
    (Moment.BEFORE, Step.ROUND, Moment.AFTER, Step.ROUND),
]
"""From where on the replica lacks what the primary has, and where that fails."""


@pytest.mark.server
@pytest.mark.parametrize(("lost_moment", "lost", "moment", "step"), TAILS)
def test_a_cut_is_made_good_whose_tail_the_promoted_replica_lacks(
    changefeed: Changefeed, pair: Pair, lost_moment: Moment, lost: Step, moment: Moment, step: Step
) -> None:
    first = first_at(lost_moment, lost, pair.cut_off)
    then = first_at(moment, step, pair.fail_over, only_after=first)
    fails_over(changefeed, pair, first, then)
    assert first.has_acted
    assert then.has_acted


@pytest.mark.server
@pytest.mark.parametrize("seed", range(12))
def test_a_cut_is_made_good_when_any_of_its_transactions_are_lost(changefeed: Changefeed, pair: Pair, seed: int) -> None:
    chance = Random(seed)
    lost = chance.randrange(2, 60)
    fails_over(changefeed, pair, at(lost, lambda _: pair.cut_off()), at(lost + chance.randrange(1, 12), lambda _: pair.fail_over()))


def fails_over(changefeed: Changefeed, pair: Pair, *faults: Callable[[Passage], None]) -> None:
    """A run whose server fails over. It ends well, and after another cut all is there."""
    small_shop(changefeed, with_bag=True)
    assert run_once(changefeed, pair.address.uri()) == EXIT_OK
    busy_cut(changefeed)
    with armed(*faults):
        assert run_once(changefeed, pair.address.uri()) == EXIT_OK
    pair.fail_over()  # where it had not come to that yet
    small_shop_goes_on_again(changefeed)
    assert run_once(changefeed, pair.address.uri()) == EXIT_OK
    assert_state(MariaDbTarget(pair.replica), changefeed.state())


def small_shop_goes_on_again(changefeed: Changefeed) -> None:
    changefeed.upstream.execute(Insert(ORDERS, {"id": 71, "name": "71"}), Delete(VISITS, ("/", 9)))
    changefeed.upstream.checkpoint()


class first_at:  # noqa: N801 -- used as the functions beside it are
    """Acts once, at the first passage of this point, or the first one after another fault has acted."""

    def __init__(self, moment: Moment, step: Step, act: Callable[[], None], only_after: first_at | None = None) -> None:
        self._place, self._act, self._only_after = (moment, step), act, only_after
        self.has_acted = False

    def __call__(self, passage: Passage) -> None:
        is_its_turn = self._only_after is None or self._only_after.has_acted
        if not self.has_acted and is_its_turn and (passage.moment, passage.step) == self._place:
            self.has_acted = True
            self._act()
