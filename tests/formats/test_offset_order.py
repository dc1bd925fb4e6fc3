"""The order of rows of which only the second is known, among the schema changes of their tables: drawn partitions and a model."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from headrace.model.table import TableId
from headrace.sources.kafka.offset_order import SECOND, OffsetOrder, Passed

TABLES = [TableId("d", name) for name in "abc"]
KEYS = 3


@dataclass(frozen=True)
class Sent:
    """A row with a key and a value, or a schema change, which empties its table."""

    table_id: TableId
    commit_ts: int
    key: int | None = None

    @property
    def is_statement(self) -> bool:
        return self.key is None

    @property
    def passed(self) -> Passed:
        """As the protocol has it: of a row only the second."""
        told = self.commit_ts if self.is_statement else self.commit_ts - self.commit_ts % SECOND
        return Passed((self.table_id,), told, self.is_statement)


@dataclass
class Changefeed:
    """TiCDC as far as the order in a partition goes: each table advances by itself."""

    history: Sequence[Sent]
    """In the order of the commit ts, which are all different."""
    draw: random.Random
    sent: list[Sent] = field(default_factory=list)
    left: list[Sent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.left = list(self.history)

    def send_one(self) -> None:
        """What is of a table comes in its order."""
        number = self.draw.choice([number for number, event in enumerate(self.left) if self._is_next(number, event)])
        self.sent.append(self.left.pop(number))

    def _is_next(self, number: int, event: Sent) -> bool:
        return not any(earlier.table_id == event.table_id for earlier in self.left[:number])

    def restart(self) -> None:
        """It goes back to a checkpoint, up to which everything was sent, and never behind the one of the last restart."""
        done = self.history.index(self.left[0]) if self.left else len(self.history)
        self._checkpoint = max(self._checkpoint, done - self.draw.randrange(6))
        self.left = list(self.history[self._checkpoint :])

    _checkpoint: int = 0


def drawn(seed: int, restarts: int) -> tuple[Sequence[Sent], Sequence[Sent]]:
    """A history, and how a partition has it."""
    draw = random.Random(seed)
    times = sorted(draw.sample(range(1, 5 * 8), 24))
    history = []
    for time in times:
        commit_ts = (10 + time // 8) * SECOND + (time % 8 + 1) * 1000
        key = None if draw.random() < 0.25 else draw.randrange(KEYS)
        history.append(Sent(draw.choice(TABLES), commit_ts, key))
    changefeed = Changefeed(history, draw)
    at = sorted(draw.randrange(30) for _ in range(restarts))
    while changefeed.left or at:
        if at and (not changefeed.left or len(changefeed.sent) >= at[0]):
            at.pop(0)
            changefeed.restart()
        else:
            changefeed.send_one()
    return history, changefeed.sent


def contents(changes: Sequence[tuple[int, Sent]]) -> dict[TableId, dict[int, int]]:
    """What tables have after changes in the order of their commit ts, and in their own order where these are equal."""
    found: dict[TableId, dict[int, int]] = {table_id: {} for table_id in TABLES}
    for _, change in sorted(changes, key=lambda told: told[0]):
        if change.key is None:
            found[change.table_id].clear()
        else:
            found[change.table_id][change.key] = change.commit_ts
    return found


def taken(order: OffsetOrder, sent: Sequence[Sent]) -> tuple[list[tuple[int, Sent]], set[TableId]]:
    """Changes with the commit ts by which they are ordered, and the tables that stop."""
    found, stopped = [], set()
    for change in sent:
        passed = change.passed
        if passed.is_statement:
            stopped |= set(order.take_statement(passed.tables, passed.commit_ts))
            found.append((passed.commit_ts, change))
        else:
            found.append((order.of_row(change.table_id, passed.commit_ts), change))
    return found, stopped


def backwards(sent: Sequence[Sent], draw: random.Random) -> Iterator[tuple[int, Sequence[Passed]]]:
    end = len(sent)
    while end:
        start = max(0, end - draw.randint(1, 4))
        yield start, [change.passed for change in sent[start:end]]
        end = start


@pytest.mark.long
@pytest.mark.parametrize("restarts", [0, 1, 4])
def test_tables_have_what_the_source_has_or_stop(restarts: int) -> None:
    stops = 0
    for seed in range(3000):
        history, sent = drawn(seed, restarts)
        changes, stopped = taken(OffsetOrder(), sent)
        expected, found = contents([(change.commit_ts, change) for change in history]), contents(changes)
        wrong = {table_id for table_id in TABLES if found[table_id] != expected[table_id]}
        assert wrong <= stopped, (seed, history, sent)
        stops += len(stopped)
    assert bool(stops) == bool(restarts)
    assert stops < 3000 * len(TABLES) * 0.2  # of drawn tables, where a quarter of all changes is a schema change


def test_it_does_not_matter_where_ranges_begin() -> None:
    for seed in range(1000):
        _, sent = drawn(seed, restarts=seed % 3)
        draw = random.Random(seed)
        cuts = [0, *sorted(draw.sample(range(1, len(sent)), 3)), len(sent)]
        found, stopped = [], set()
        for start, end in pairwise(cuts):
            changes, tables = taken(OffsetOrder(backwards(sent[:start], draw)), sent[start:end])
            found += changes
            stopped |= tables
        assert (found, stopped) == taken(OffsetOrder(), sent), (seed, cuts)


A, B, _ = TABLES
AT = 10 * SECOND


def test_a_later_row_of_another_table_is_no_step_back() -> None:
    order = OffsetOrder()
    assert not order.take_statement([A], AT + 5)
    assert order.of_row(B, AT + 2 * SECOND) == AT + 2 * SECOND
    assert [order.of_row(A, AT), order.of_row(A, AT)] == [AT + 6, AT + 6]


def test_a_schema_change_of_another_table_says_nothing_of_a_row() -> None:
    order = OffsetOrder()
    order.take_statement([A], AT + 5)
    order.take_statement([B], AT + SECOND + 5)
    assert order.of_row(A, AT) == AT + 6


def test_an_earlier_schema_change_that_comes_again_shows_a_restart() -> None:
    order = OffsetOrder()
    order.take_statement([A, B], AT + 5)
    order.take_statement([A, B], AT + 9)
    order.of_row(A, AT)
    order.of_row(B, AT + SECOND)
    assert order.take_statement([A, B], AT + 5) == [A]


def test_rows_of_a_later_second_show_that_those_before_them_were_after_the_schema_change() -> None:
    order = OffsetOrder()
    order.take_statement([A], AT + 5)
    assert [order.of_row(A, AT), order.of_row(A, AT + SECOND), order.of_row(A, AT)] == [AT + 6, AT + SECOND, AT]
    assert not order.take_statement([A], AT + 5)


def test_after_two_restarts_the_order_is_unknown() -> None:
    order = OffsetOrder()
    order.take_statement([A], AT + 5)
    assert [order.of_row(A, AT), order.of_row(A, AT - SECOND), order.of_row(A, AT)] == [AT + 6, AT - SECOND, AT]
    assert order.take_statement([A], AT + 5) == [A]


def order_behind(parts: Sequence[Sequence[Passed]], seen: list[int], first_since: Callable[[int], int | None]) -> OffsetOrder:
    """Behind parts of one row or schema change each; ``seen`` gets the offsets of those that are looked at."""

    def earlier() -> Iterator[tuple[int, Sequence[Passed]]]:
        for offset in reversed(range(len(parts))):
            seen.append(offset)
            yield offset, parts[offset]

    return OffsetOrder(earlier(), first_since)


def test_only_as_much_is_looked_at_as_shows_a_second_one_of_the_table() -> None:
    parts = [[Passed((A,), AT - SECOND)], [Passed((A,), AT)], [Passed((B,), AT + SECOND)]]
    seen: list[int] = []
    order = order_behind(parts, seen, lambda _: 0)
    assert order.of_row(B, AT + 2 * SECOND) == AT + 2 * SECOND
    assert seen == [2]
    assert order.of_row(A, AT) == AT
    assert seen == [2, 1, 0]


def test_nothing_is_looked_at_that_was_written_more_than_an_hour_before() -> None:
    at = 10_000 * SECOND
    parts = [[Passed((A,), at - 9000 * SECOND)], [Passed((A,), at + 5, is_statement=True)], *[[Passed((B,), at)]] * 3]
    asked, seen = [], []

    def first_since(time_ms: int) -> int | None:
        asked.append(time_ms)
        return {6_400_000: 1, 106_400_000: None}[time_ms]

    order = order_behind(parts, seen, first_since)
    assert order.of_row(A, at + 100_000 * SECOND) == at + 100_000 * SECOND
    assert seen == []
    assert [order.of_row(A, at), order.of_row(B, at), order.of_row(B, at)] == [at, at, at]
    assert seen == [4, 3, 2, 1]
    assert asked == [106_400_000, 6_400_000]


def test_a_schema_change_that_comes_again_is_looked_for_as_far_back() -> None:
    parts = [[], [Passed((A,), AT + 5, is_statement=True)], [Passed((A,), AT)]]
    for limit, unknown in ((1, [A]), (2, [])):
        order = order_behind(parts, [], lambda _, limit=limit: limit)  # type: ignore[misc]
        assert order.take_statement([A], AT + 5) == unknown
