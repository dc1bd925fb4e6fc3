"""Random histories of a table with unique keys: any number of workers, which also die, leads to what serial execution does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.table import Column
from headrace.replay.conflict_detector import Assigned, ConflictDetector
from headrace.replay.conflict_keys import ConflictKeys, KeyPart, UniqueKey
from headrace.replay.resolved_ts import ResolvedTs
from headrace.replay.table_sink import TableSink
from headrace.replay.transactions import TransactionEvents, Transactions
from transaction_cases import INT, TEXT, Change, DuplicateKeyError, Row, T, UniqueTable, block_of, table

SCHEMA = table(Column("pk", INT, False, True), Column("a", INT), Column("b", INT), Column("name", TEXT))
KEYS = {
    "a": (("a", 0),),
    "a and b": (("a", 0), ("b", 0)),
    "name": (("name", 0),),
    "prefix of name": (("name", 2),),
}
NAMES = ("ann", "Ann", "ANN ", "änne", "bob", "Bobby", None)


def compared(value: object, prefix: int) -> object:
    """A value as the database of these tests compares it: without case, accents and trailing spaces."""
    if not isinstance(value, str):
        return value
    return (value[:prefix] if prefix else value).casefold().replace("ä", "a").rstrip()


def comparing(parts: Sequence[tuple[str, int]]) -> object:
    def values(row: Row) -> object:
        found = tuple(compared(row[name], prefix) for name, prefix in parts)
        return None if None in found else found

    return values


def unique_table(names: Sequence[str]) -> UniqueTable:
    return UniqueTable([comparing((("pk", 0),)), *(comparing(KEYS[name]) for name in names)])  # type: ignore[list-item]


def history(random: Random, names: Sequence[str], count: int) -> list[tuple[int, list[Change]]]:
    """Transactions that are valid one after the other: what one frees, a later one uses again."""
    model, found = unique_table(names), []
    for ts in range(1, count + 1):
        changes: list[Change] = []
        for pk in random.sample(range(12), random.randint(1, 3)):
            before: Mapping[str, object] | None = model.rows.get(pk)
            new = {"pk": random.choice([pk, pk, pk + 12]), "a": random.choice([*range(6), None]), "b": random.choice([1, 2, None])}
            after = None if before is not None and random.random() < 0.3 else new | {"name": random.choice(NAMES)}
            changed = [*changes, Change(before, after)]
            touched = [image["pk"] for change in changed for image in (change.before, change.after) if image is not None]
            if len(touched) != len(set(touched)) + sum(
                c.before is not None and c.after is not None and c.before["pk"] == c.after["pk"] for c in changed
            ):
                continue  # TiDB gives one change of a key in a transaction
            tried = UniqueTable(model.keys, dict(model.rows))
            try:
                tried.apply(Transactions.of(block_of(SCHEMA, [(ts, changed)]))[0])
            except DuplicateKeyError:
                continue
            changes = changed
        if changes:
            model.apply(Transactions.of(block_of(SCHEMA, [(ts, changes)]))[0])
            found.append((ts, changes))
    return found


@dataclass
class Target:
    """A table whose workers commit what they take as one transaction, with a note of what it holds."""

    table: UniqueTable
    replayed: set[int] = field(default_factory=set)

    def commit(self, assigned: Sequence[Assigned]) -> None:
        for some in assigned:
            for number in some.numbers.tolist():
                transaction = some.transactions[number]
                if transaction.commit_ts not in self.replayed:
                    self.table.apply(transaction)
                    self.replayed.add(transaction.commit_ts)


class DetectorSink:
    """An event sink over a detector whose workers take their steps when a test says so."""

    failure = None

    def __init__(self, detector: ConflictDetector, keys: ConflictKeys) -> None:
        self.detector, self.keys = detector, keys

    def write_events(self, events: TransactionEvents) -> None:
        self.detector.add(events, self.keys.touched(events.transactions))

    def close(self) -> None:
        self.detector.close()


def step(random: Random, detector: ConflictDetector, target: Target, under_way: dict[int, list[Assigned]]) -> None:
    """One worker takes, commits, acknowledges, or dies: before its commit, or before it knows of it."""
    worker = random.randrange(len(detector._queues))
    if worker not in under_way:
        taken = detector.take(worker, 0)
        assert taken is not None
        if taken:
            under_way[worker] = taken
        return
    dies = random.random()
    if dies > 0.1:
        target.commit(under_way[worker])
    if dies > 0.25:
        detector.acknowledge(worker)
    else:
        detector.give_back(worker)
    del under_way[worker]


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    count=st.integers(1, 80),
    names=st.sets(st.sampled_from(sorted(KEYS)), min_size=1, max_size=3).map(sorted),
    workers=st.integers(1, 6),
    most_rows=st.integers(1, 8),
    slots=st.sampled_from([1, 4]),
)
def test_workers_lead_to_what_serial_execution_does(
    seed: int, count: int, names: list[str], workers: int, most_rows: int, slots: int
) -> None:
    random = Random(seed)
    transactions = history(random, names, count)
    serial = unique_table(names)
    for number in range(len(transactions)):
        serial.apply(Transactions.of(block_of(SCHEMA, transactions[number : number + 1]))[0])
    keys = [UniqueKey((KeyPart("pk"),)), *(UniqueKey(tuple(KeyPart(n, p) for n, p in KEYS[name])) for name in names)]
    detector = ConflictDetector(workers, quota=1 << 40, most_rows=most_rows, slots=slots)
    sink = TableSink(T, DetectorSink(detector, ConflictKeys(SCHEMA, keys, old_images=True)))
    target, under_way, last = Target(unique_table(names)), {}, ResolvedTs(0)
    while transactions:
        size = random.randint(1, 12)
        part, transactions = transactions[:size], transactions[size:]
        last = ResolvedTs(part[-1][0])
        sink.append_row_changed_events(block_of(SCHEMA, part))
        sink.update_resolved_ts(last)
        for _ in range(random.randrange(20)):
            step(random, detector, target, under_way)
            checkpoint = sink.get_checkpoint_ts().ts
            assert {ts for ts, _ in part if ts <= checkpoint} <= target.replayed
    while detector.pending:
        step(random, detector, target, under_way)
    assert target.table.rows == serial.rows
    assert sink.get_checkpoint_ts() == last


def test_the_table_of_these_tests_refuses_another_order() -> None:
    target = unique_table(["a"])
    row = {"pk": 1, "a": 1, "b": None, "name": None}
    other = row | {"pk": 2}
    changes = [(1, [Change(None, row)]), (2, [Change(row, None)]), (3, [Change(None, other)])]
    transactions = Transactions.of(block_of(SCHEMA, changes))
    target.apply(transactions[0])
    with pytest.raises(DuplicateKeyError):
        target.apply(transactions[2])
