"""Workers that execute, fail and are replaced, on threads of their own. With the case of TiCDC's txn_dml_sink_test.go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Barrier, Event, Lock, Thread

import pytest

from headrace.errors import TerminalError, TransientError
from headrace.model.block import ChangeBlock
from headrace.replay import transaction_sink
from headrace.replay.conflict_detector import Assigned
from headrace.replay.conflict_keys import ConflictKeys, unique_keys_of
from headrace.replay.errors import SinkClosedError, SinkFailedError
from headrace.replay.resolved_ts import ResolvedTs
from headrace.replay.table_sink import TableSink
from headrace.replay.transaction_sink import TransactionSink
from headrace.replay.transactions import Transactions
from transaction_cases import PK_UK, Change, Row, T, UniqueTable, block_of, inserts


def keys_of(block: ChangeBlock) -> ConflictKeys:
    return ConflictKeys(block.schema, unique_keys_of(block.schema), old_images=True)


@dataclass
class Target:
    """A table in memory with transactions. ``before`` and ``after`` each commit a test may let a writer fail."""

    table: UniqueTable = field(default_factory=lambda: UniqueTable([lambda row: row["pk"], lambda row: row["uk"]]))
    replayed: set[int] = field(default_factory=set)
    before: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None
    lock: Lock = field(default_factory=Lock)
    opened: list[int] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)

    def open_writer(self, worker: int) -> Writer:
        self.opened.append(worker)
        return Writer(self, worker)


@dataclass
class Writer:
    target: Target
    worker: int

    def write(self, assigned: Sequence[Assigned]) -> None:
        self.target.before()
        with self.target.lock:
            for some in assigned:
                for transaction in (some.transactions[number] for number in some.numbers.tolist()):
                    if transaction.commit_ts not in self.target.replayed:
                        self.target.table.apply(transaction)
                        self.target.replayed.add(transaction.commit_ts)
        self.target.after()

    def close(self) -> None:
        self.target.closed.append(self.worker)


class Failing:
    """Lets its caller fail at the calls of these numbers (from 1)."""

    def __init__(self, *numbers: int) -> None:
        self.numbers, self.calls, self.lock = numbers, 0, Lock()

    def __call__(self) -> None:
        with self.lock:
            self.calls += 1
            if self.calls in self.numbers:
                raise TransientError("The connection is lost.")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_sink, "_FIRST_PAUSE_SECONDS", 0.001)


def sink_into(target: Target, *, workers: int = 4, quota: int = 1 << 20, most_rows: int = 8) -> TransactionSink:
    return TransactionSink(target.open_writer, keys_of, workers=workers, quota=quota, most_rows=most_rows, most_failures=4)


def chain(count: int) -> ChangeBlock:
    """A row that is inserted and then updated again and again, which only works in order."""
    rows: list[Row] = [{"pk": 1, "uk": n} for n in range(count)]
    changes = [Change(None, rows[0]), *(Change(before, after) for before, after in pairwise(rows))]
    return block_of(PK_UK, [(ts, [change]) for ts, change in enumerate(changes, 1)])


def replay(sink: TransactionSink, block: ChangeBlock) -> TableSink:
    table_sink = TableSink(T, sink)
    table_sink.append_row_changed_events(block)
    table_sink.update_resolved_ts(ResolvedTs(int(Transactions.of(block).commit_ts[-1])))
    return table_sink


def checkpoint(table_sink: TableSink) -> int:
    """The checkpoint once everything is acknowledged."""
    assert table_sink._tracker.wait_acknowledged(10)
    return table_sink.get_checkpoint_ts().ts


def test_what_is_written_is_acknowledged_when_it_is_durable() -> None:
    target = Target()
    sink = sink_into(target)
    assert checkpoint(replay(sink, inserts(*range(1, 301)))) == 300
    assert (len(target.table.rows), sink.pending_bytes) == (300, 0)
    sink.close()
    assert sorted(target.closed) == sorted(target.opened)


@pytest.mark.parametrize("where", ["before", "after"])
def test_the_transactions_of_a_worker_that_fails_run_again_in_order(where: str) -> None:
    target = Target()
    setattr(target, where, Failing(1, 3, 4, 7))
    sink = sink_into(target)
    assert checkpoint(replay(sink, chain(60))) == 60
    assert list(target.table.rows.values()) == [{"pk": 1, "uk": 59}]
    assert len(target.opened) >= 5
    sink.close()


def test_a_target_that_stays_away_fails_the_sink_and_leaves_the_checkpoint() -> None:
    target = Target(before=Failing(*range(1, 100)))
    sink = sink_into(target, workers=1)
    table_sink = replay(sink, chain(5))
    assert not table_sink.close()
    assert isinstance(sink.failure, TransientError)
    assert (target.table.rows, len(target.opened)) == ({}, 4)
    with pytest.raises(SinkFailedError, match="The connection is lost"):
        replay(sink, inserts(9))
    sink.close()


def test_a_refused_transaction_fails_the_sink_at_once() -> None:
    target = Target()
    sink = sink_into(target, workers=1)
    assert checkpoint(replay(sink, block_of(PK_UK, [(1, [Change(None, {"pk": 1, "uk": 1})])]))) == 1
    table_sink = replay(sink, block_of(PK_UK, [(2, [Change(None, {"pk": 2, "uk": 1})])]))
    assert not table_sink.close()
    assert "commit ts 2" in str(sink.failure)
    assert len(target.opened) == 1
    sink.close()


def test_whoever_writes_does_not_wait_for_slow_workers_below_the_quota() -> None:
    go_on = Event()
    target = Target(before=lambda: go_on.wait(10) and None)
    sink = sink_into(target)
    table_sink = replay(sink, inserts(*range(1, 101)))
    assert table_sink.get_checkpoint_ts() == ResolvedTs(0)
    go_on.set()
    assert checkpoint(table_sink) == 100
    sink.close()


def test_a_slow_worker_slows_the_source_and_no_queue_grows() -> None:
    block = inserts(*range(1, 1001))
    quota = Transactions.of(block).nbytes // 4
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, sink.pending_bytes)

    target = Target(before=look)
    sink = sink_into(target, quota=quota)
    assert checkpoint(replay(sink, block)) == 1000
    assert quota // 2 < most <= quota
    sink.close()


def test_transactions_without_conflict_run_side_by_side() -> None:
    together = Barrier(4, timeout=10)
    target = Target(before=lambda: together.wait() and None)
    sink = sink_into(target, workers=4, most_rows=1)
    assert checkpoint(replay(sink, inserts(1, 2, 3, 4))) == 4
    sink.close()


def test_tables_share_the_workers() -> None:
    target = Target()
    sink = sink_into(target)
    found: list[int] = []
    blocks = [inserts(*range(start, start + 50)) for start in (1, 1001, 2001)]
    threads = [Thread(target=lambda block=block: found.append(checkpoint(replay(sink, block)))) for block in blocks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(found) == [50, 1050, 2050]
    assert len(target.table.rows) == 150
    sink.close()


def test_a_closed_sink_refuses_events_and_ends_the_wait_of_table_sinks() -> None:
    begun, go_on = Event(), Event()

    def hold() -> None:
        begun.set()
        go_on.wait(10)

    target = Target(before=hold)
    sink = sink_into(target, workers=1, most_rows=1)
    table_sink = replay(sink, inserts(1, 2))
    assert begun.wait(10)
    closing = Thread(target=sink.close)
    closing.start()
    while sink.failure is None:
        pass
    go_on.set()
    closing.join(10)
    assert target.replayed == {1}  # what was begun is executed, and nothing else
    assert not table_sink.close()
    with pytest.raises(SinkClosedError):
        replay(sink, inserts(3))
    sink.close()


def test_an_error_that_nobody_expects_fails_the_sink() -> None:
    def broken(worker: int) -> Writer:
        raise TerminalError(f"Worker {worker} has no password.")

    sink = TransactionSink(broken, keys_of, workers=1, quota=1 << 20)
    assert not replay(sink, inserts(1)).close()
    assert str(sink.failure) == "Worker 0 has no password."
    sink.close()
