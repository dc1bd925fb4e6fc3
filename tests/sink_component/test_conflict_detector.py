"""Which worker gets a transaction, and when. The cases of TiCDC's node_test.go, its integration test and the slides."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Thread

import numpy as np
import pytest

from headrace.errors import TerminalError
from headrace.model.table import Column
from headrace.replay.conflict_detector import ConflictDetector
from headrace.replay.conflict_keys import ConflictKeys, unique_keys_of
from headrace.replay.errors import SinkClosedError, SinkFailedError
from headrace.replay.transactions import Numbers, TransactionEvents, Transactions
from transaction_cases import INT, PK_UK, Change, block_of, inserts, table

QUOTA = 1 << 30
KEYS = ConflictKeys(PK_UK, unique_keys_of(PK_UK), old_images=True)


def row(pk: int, uk: int) -> dict[str, object]:
    return {"pk": pk, "uk": uk}


DML = (
    Change(None, row(1, 2)),
    Change(None, row(2, 3)),
    Change(row(2, 3), row(4, 3)),
    Change(row(1, 2), None),
    Change(None, row(1, 3)),
    Change(None, row(5, 6)),
)
"""DML1 to DML6 of the slides."""


class Feed:
    """A detector, and which transactions were acknowledged, by commit ts."""

    def __init__(self, workers: int = 4, *, quota: int = QUOTA, most_rows: int = 256) -> None:
        self.detector = ConflictDetector(workers, quota=quota, most_rows=most_rows)
        self.acknowledged: list[int] = []

    def add(self, *transactions: Sequence[Change], first_ts: int = 1) -> None:
        block = block_of(PK_UK, list(enumerate(transactions, first_ts)))
        self.add_all(Transactions.of(block))

    def add_all(self, transactions: Transactions) -> None:
        def acknowledge(numbers: Numbers) -> None:
            self.acknowledged.extend(transactions.commit_ts[numbers].tolist())

        self.detector.add(TransactionEvents(transactions, acknowledge), KEYS.touched(transactions))

    def take(self, worker: int) -> list[int]:
        """The commit ts of what a worker takes."""
        taken = self.detector.take(worker, 0)
        assert taken is not None
        return [ts for assigned in taken for ts in assigned.transactions.commit_ts[assigned.numbers].tolist()]

    def take_all(self) -> list[list[int]]:
        return [self.take(worker) for worker in range(len(self.detector._queues))]


@pytest.mark.parametrize("together", [True, False])
def test_the_transactions_of_the_slides_go_where_the_slides_say(*, together: bool) -> None:
    feed = Feed(workers=3)
    if together:
        feed.add(*([change] for change in DML))
    else:
        for ts, change in enumerate(DML, 1):
            feed.add([change], first_ts=ts)
    # Group 1 is DML1 and DML4, group 2 is DML2 and DML3, group 3 is DML6. DML5 belongs to two groups: it waits for 3 and 4 only.
    assert feed.take_all() == [[1, 4], [2, 3], [6]]
    feed.detector.acknowledge(2)
    assert feed.take_all() == [[], [], []]
    feed.detector.acknowledge(0)
    assert feed.take_all() == [[], [5], []]  # DML3 is all that is left, and worker 1 has it
    feed.detector.acknowledge(1)
    assert sorted(feed.acknowledged) == [1, 2, 3, 4, 5, 6]
    assert feed.detector.pending == 0


def test_a_single_dependency_picks_its_worker_at_once() -> None:
    feed = Feed(workers=2)
    feed.add([DML[0]], first_ts=1)
    feed.add([DML[5]], first_ts=2)
    assert feed.take_all() == [[1], [2]]
    feed.add([DML[3]], first_ts=3)
    assert feed.take_all() == [[3], []]


def test_transactions_are_free_if_they_depend_on_nothing_that_is_pending() -> None:
    feed = Feed(workers=1)
    feed.add([DML[0]], [DML[5]])
    feed.add([Change(None, row(7, 8))], [Change(row(7, 8), None)], first_ts=3)
    taken = feed.detector.take(0)
    assert taken is not None
    assert [(assigned.numbers.tolist(), assigned.is_free) for assigned in taken] == [([0, 1], True), ([0, 1], False)]
    feed.detector.acknowledge(0)
    feed.add([DML[3]], first_ts=5)  # deletes what is executed
    assert [assigned.is_free for assigned in feed.detector.take(0) or ()] == [True]


def test_what_is_executed_binds_to_no_worker() -> None:
    feed = Feed(workers=2)
    feed.add([DML[0]])
    assert feed.take_all() == [[1], []]
    feed.detector.acknowledge(0)
    feed.add([DML[5]], first_ts=2)  # worker 0 is busy with this
    feed.add([DML[3]], first_ts=3)
    assert feed.take_all() == [[2], [3]]


def test_a_transaction_that_waits_holds_those_behind_it_and_no_others() -> None:
    feed = Feed(workers=2)
    feed.add([DML[0]], [Change(None, row(7, 8))])
    assert feed.take_all() == [[1], [2]]
    feed.add([Change(row(1, 2), row(1, 9)), Change(row(7, 8), row(7, 2))], first_ts=3)  # waits for both
    feed.add([Change(row(1, 9), None)], first_ts=4)  # waits for 3
    feed.add([DML[5]], first_ts=5)
    assert feed.take_all() == [[5], []]
    feed.detector.acknowledge(1)
    assert feed.take_all() == [[3, 4], []]


def test_transactions_without_conflicts_go_to_the_workers_that_have_least_to_do() -> None:
    feed = Feed(workers=2, most_rows=10)
    feed.add([Change(None, row(n, n)) for n in range(100)])
    feed.add(*([Change(None, row(n, n))] for n in range(100, 120)), first_ts=2)
    assert feed.take(0) == [1]
    assert feed.take(1) == list(range(2, 12))
    feed.detector.acknowledge(1)
    assert feed.take(1) == list(range(12, 22))


def test_a_worker_takes_a_bounded_number_of_rows() -> None:
    feed = Feed(workers=1, most_rows=4)
    feed.add_all(Transactions.of(inserts(1, 2, 2, 3, 3, 4, 5, 5, 5, 5, 5, 6)))
    assert [feed.take(0) for _ in range(5)] == [[1, 2], [3, 4], [5], [6], []]


def test_a_serialised_table_runs_in_order_at_one_worker() -> None:
    schema = table(Column("pk", INT), key=())
    keys = ConflictKeys(schema, (), old_images=True)
    block = block_of(schema, [(ts, [Change(None, {"pk": ts})]) for ts in range(1, 9)])
    transactions = Transactions.of(block)
    feed = Feed(workers=3)
    feed.detector.add(TransactionEvents(transactions, lambda numbers: None), keys.touched(transactions))
    assert feed.take_all() == [list(range(1, 9)), [], []]


def test_what_is_given_back_is_taken_again_first_and_in_order() -> None:
    feed = Feed(workers=2, most_rows=2)
    changes = [Change(None, row(1, 1)), *(Change(row(1, n), row(1, n + 1)) for n in range(1, 4))]
    feed.add(*([change] for change in changes))
    assert [feed.take(0), feed.take(0)] == [[1], [2]]
    feed.detector.give_back(0)
    taken = []
    while found := feed.take(0):
        taken += found
        feed.detector.acknowledge(0)
    assert taken == [1, 2, 3, 4]
    assert feed.acknowledged == taken
    assert feed.take(1) == []


def test_acknowledging_twice_counts_once() -> None:
    feed = Feed(workers=1)
    feed.add([DML[0]])
    feed.take(0)
    feed.detector.acknowledge(0)
    feed.detector.acknowledge(0)
    assert (feed.acknowledged, feed.detector.pending, feed.detector.pending_bytes) == ([1], 0, 0)


def test_the_quota_holds_up_whoever_adds() -> None:
    first = Transactions.of(inserts(*range(1, 11)))
    feed = Feed(workers=1, quota=first.nbytes + 10)
    feed.add_all(first)
    adding = Thread(target=feed.add_all, args=(Transactions.of(inserts(*range(11, 21))),), daemon=True)
    adding.start()
    adding.join(0.05)
    assert adding.is_alive()
    assert feed.detector.pending_bytes == first.nbytes
    assert feed.take(0) == list(range(1, 11))
    feed.detector.acknowledge(0)
    adding.join(10)
    assert not adding.is_alive()
    assert feed.take(0) == list(range(11, 21))


def test_a_transaction_above_the_quota_is_taken_alone() -> None:
    feed = Feed(workers=1, quota=1)
    feed.add([DML[0]])
    assert feed.detector.pending_bytes > 1


def test_a_closed_detector_refuses_events_and_ends_its_workers() -> None:
    feed = Feed(workers=1)
    feed.add([DML[0]])
    feed.detector.close()
    assert feed.detector.take(0) is None
    with pytest.raises(SinkClosedError):
        feed.add([DML[1]])


def test_a_failed_detector_says_why_and_wakes_whoever_adds() -> None:
    feed = Feed(workers=1, quota=1)
    feed.add([DML[0]])
    errors: list[Exception] = []

    def add() -> None:
        try:
            feed.add([DML[1]], first_ts=2)
        except SinkFailedError as error:
            errors.append(error)

    adding = Thread(target=add, daemon=True)
    adding.start()
    feed.detector.fail(TerminalError("The table is gone."))
    feed.detector.fail(TerminalError("Something else."))
    adding.join(10)
    assert [str(error) for error in errors] == ["The sink failed: The table is gone."]
    assert feed.detector.take(0) is None


def test_a_large_transaction_that_depends_on_thousands_is_found_in_linear_time() -> None:
    count = 20_000
    feed = Feed(workers=4)
    feed.add(*([Change(None, row(n, n))] for n in range(count)))
    feed.add([Change(row(n, n), None) for n in range(count)], first_ts=count + 1)
    (waiting,) = feed.detector._waiting.values()
    looks = 0

    class Counted(dict[int, int]):
        def __getitem__(self, worker: int) -> int:
            nonlocal looks
            looks += 1
            return super().__getitem__(worker)

    waiting.at = Counted(waiting.at)
    while feed.detector.pending:
        for worker in range(4):
            if feed.take(worker):
                feed.detector.acknowledge(worker)
    assert feed.acknowledged[-1] == count + 1
    assert len(feed.acknowledged) == count + 1
    assert count <= looks <= 2 * count


def test_a_transaction_that_is_executed_late_stays_known_among_thousands() -> None:
    feed = Feed(workers=2)
    feed.add(*([Change(None, row(n, n))] for n in range(100, 110)))
    while feed.detector.pending:
        feed.take_all()
        feed.detector.acknowledge(0)
        feed.detector.acknowledge(1)
    feed.add([DML[0]])
    assert feed.take_all() == [[1], []]
    for start in range(1_000, 51_000, 5_000):
        feed.add(*([Change(None, row(n, n))] for n in range(start, start + 5_000)), first_ts=start)
        while feed.detector.pending > 1:
            feed.take(1)
            feed.detector.acknowledge(1)
            if queued := feed.detector._queues[0].entries:  # worker 0 is slow: its transactions go to the other one
                feed.detector._queues[1].entries.extend(queued)
                queued.clear()
    feed.add([DML[3]], first_ts=70_000)
    assert feed.take_all() == [[70_000], []]


def test_threads_that_add_transactions_with_common_keys_lose_none() -> None:
    feed = Feed(workers=3)

    def add(number: int) -> None:
        for n in range(100):
            changes = [Change(None, row(uk, uk)) for uk in (n % 5, 10 + number)]
            feed.add(changes, [Change(None, row(7, 7))], first_ts=1000 * number + 2 * n + 1)

    threads = [Thread(target=add, args=(number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    while feed.detector.pending or any(thread.is_alive() for thread in threads):
        for worker in range(3):
            if feed.take(worker):
                feed.detector.acknowledge(worker)
    assert sorted(feed.acknowledged) == [1000 * number + n + 1 for number in range(4) for n in range(200)]
    for number in range(4):  # each thread's transactions share a key of its own
        mine = [ts for ts in feed.acknowledged if ts // 1000 == number and ts % 2]
        assert mine == sorted(mine)


def test_keys_are_never_in_two_hands() -> None:
    """Ten thousand transactions of eight random keys of 4096, on eight threads: no two that share a key run at the same time."""
    rng = np.random.default_rng(3)
    schema = table(Column("pk", INT, False, True))
    keys = ConflictKeys(schema, unique_keys_of(schema), old_images=True)
    drawn = rng.integers(0, 4096, (10_000, 8))
    order: list[list[int]] = [[] for _ in range(4096)]
    held = [0] * 4096
    failures: list[str] = []
    detector = ConflictDetector(8, quota=1 << 20, most_rows=64)

    def work(worker: int) -> None:
        while taken := detector.take(worker):
            mine = {pk for a in taken for pk in a.transactions.rows_of(a.numbers).column("pk").to_pylist()}
            for pk in mine:
                held[pk] += 1
            failures.extend(f"key {pk}" for pk in mine if held[pk] != 1)
            for assigned in taken:
                for number in assigned.numbers.tolist():
                    transaction = assigned.transactions[number]
                    for pk in transaction.rows.column("pk").to_pylist():
                        order[pk].append(transaction.commit_ts)
            for pk in mine:
                held[pk] -= 1
            detector.acknowledge(worker)

    threads = [Thread(target=work, args=(worker,), daemon=True) for worker in range(8)]
    for thread in threads:
        thread.start()
    for start in range(0, len(drawn), 500):
        some = enumerate(drawn[start : start + 500], start + 1)
        changes = [(ts, [Change(None, {"pk": pk}) for pk in set(keys_of_one.tolist())]) for ts, keys_of_one in some]
        transactions = Transactions.of(block_of(schema, changes))
        detector.add(TransactionEvents(transactions, lambda numbers: None), keys.touched(transactions))
    while detector.pending:
        threads[0].join(0.01)
    detector.close()
    for thread in threads:
        thread.join(10)
    assert failures == []
    assert all(times == sorted(times) for times in order)
    assert sum(map(len, order)) == sum(len(set(some.tolist())) for some in drawn)
