"""Tables, histories and deliveries at random, for the theorem that write units converge (docs/guarantees.md).

The upstream is a table of the same server: whatever its collations hold for equal, the server itself refuses the transactions that
break a unique key, and tells the rows after each commit.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa
import pymysql
import pytest

from collation_weights import weighs_supplementary
from headrace.engine.net import Sights, buckets, last_states, net_change
from headrace.model.block import block_schema, combined
from headrace.model.events import RowKind
from headrace.model.outcome import Problem
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sinks.base import SpellingWatch, TableChange, TextComparison, UniqueTexts, WriterContext
from headrace.sinks.mysql import open_sink
from headrace.sinks.mysql.catalogue import text_comparisons
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.settings import read_settings
from headrace.sinks.mysql.writer import MySqlWriter
from servers import MariaDb

PIPELINE = "converging"
SOURCE, TARGET = TableId("upstream", "t"), TableId("shop", "t")
Values = tuple[object, ...]
Action = tuple[str, int, Values]
"""``insert``, ``update`` or ``delete``; which of the rows there are (modulo their number); the new values."""


class Crashed(BaseException):
    """The process died here. No product code handles it, as none runs after a kill."""


@dataclass(frozen=True)
class Key:
    """A unique key: columns, each with the length of its prefix or 0 for the whole."""

    parts: tuple[tuple[str, int], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.parts)

    def text(self) -> str:
        return ", ".join(f"{name}({length})" if length else name for name, length in self.parts)


@dataclass(frozen=True)
class Shape:
    """A table: per column its collation (``None``: INT), the handle key, and other unique keys, whose columns may be NULL."""

    columns: tuple[tuple[str, str | None], ...]
    handle: Key
    unique: tuple[Key, ...] = ()
    has_primary: bool = True

    def create(self, table_id: TableId) -> str:
        parts = []
        for name, collation in self.columns:
            null = "NOT NULL" if name in self.handle.columns else "NULL"
            parts.append(f"{name} INT {null}" if collation is None else f"{name} VARCHAR(8) COLLATE {collation} {null}")
        parts.append(f"{'PRIMARY' if self.has_primary else 'UNIQUE'} KEY ({self.handle.text()})")
        parts += [f"UNIQUE KEY ({key.text()})" for key in self.unique]
        return f"CREATE OR REPLACE TABLE {table_id} ({', '.join(parts)}) CHARACTER SET utf8mb4"

    def schema(self) -> TableSchema:
        columns = (
            Column(
                name,
                ColumnType(TypeKind.INT) if collation is None else ColumnType(TypeKind.VARCHAR, length=8),
                nullable=name not in self.handle.columns,
                primary_key=self.has_primary and name in self.handle.columns,
            )
            for name, collation in self.columns
        )
        return TableSchema(TARGET, tuple(columns), self.handle.columns)


@dataclass
class History:
    """An upstream's transactions: ``states[n]`` are the rows after the n-th commit, ``changes[n - 1]`` what it did to them.

    A change is a kind and a row. A transaction of which a statement breaks a unique key leaves out that statement. ``splits``: an
    update that changes no more than the spelling of the key is told as a delete and an insert, like those that move it; without,
    by the new row alone. ``old_rows``: other updates are told by both rows.
    """

    shape: Shape
    connection: pymysql.connections.Connection
    splits: bool = True
    old_rows: bool = True
    states: list[frozenset[Values]] = field(default_factory=lambda: [frozenset()])
    changes: list[list[tuple[RowKind, Values]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._run(self.shape.create(SOURCE))

    def commit(self, actions: Sequence[Action]) -> None:
        """One transaction."""
        self._run("BEGIN")
        for action in actions:
            with _ignored_duplicates():
                self._act(*action)
        self._run("COMMIT")
        rows = self._run(f"SELECT * FROM {SOURCE}")
        state = frozenset(rows)
        assert len(state) == len(rows)
        self.changes.append(self._difference(self.states[-1], state))
        self.states.append(state)

    def _act(self, kind: str, number: int, values: Values) -> None:
        names = [name for name, _ in self.shape.columns]
        if kind == "insert":
            self._run(f"INSERT INTO {SOURCE} VALUES ({', '.join(['%s'] * len(names))})", values)
            return
        rows = sorted(self._run(f"SELECT * FROM {SOURCE}"), key=repr)
        if not rows:
            return
        old = rows[number % len(rows)]
        which = " AND ".join(f"{name} <=> %s" for name in names)
        if kind == "delete":
            self._run(f"DELETE FROM {SOURCE} WHERE {which}", old)
        else:
            assignments = ", ".join(f"{name} = %s" for name in names)
            self._run(f"UPDATE {SOURCE} SET {assignments} WHERE {which}", (*values, *old))

    def _difference(self, before: frozenset[Values], after: frozenset[Values]) -> list[tuple[RowKind, Values]]:
        """As TiCDC tells it: an update that moves the handle key is a delete and an insert."""
        old = {self._key(row): row for row in sorted(before, key=repr)}
        new = {self._key(row): row for row in sorted(after, key=repr)}
        gone = [key for key in old if key not in new and (self.splits or not self._is_there(key))]
        changes: list[tuple[RowKind, Values]] = [(RowKind.DELETE, old[key]) for key in gone]
        for key, row in new.items():
            if key not in old:
                was_there = not self.splits and any(self._are_equal(key, other) for other in old if other not in new)
                changes.append((RowKind.UPDATE_AFTER if was_there else RowKind.INSERT, row))
            elif old[key] != row:
                changes += [(RowKind.UPDATE_BEFORE, old[key])] if self.old_rows else []
                changes.append((RowKind.UPDATE_AFTER, row))
        return changes

    def _key(self, row: Values) -> Values:
        return tuple(value for value, (name, _) in zip(row, self.shape.columns, strict=True) if name in self.shape.handle.columns)

    def _is_there(self, key: Values) -> bool:
        """Whether a row has this key in the eyes of the server."""
        names = [name for name, _ in self.shape.columns if name in self.shape.handle.columns]
        return bool(self._run(f"SELECT 1 FROM {SOURCE} WHERE {' AND '.join(f'{name} = %s' for name in names)}", key))

    def united(self, target: Shape) -> int | None:
        """The first commit after which two rows had a key in common, as the target's collations compare."""
        names = [name for name, _ in self.shape.columns]
        for number, state in enumerate(self.states):
            for one, other in itertools.combinations(state, 2):
                first, second = dict(zip(names, one, strict=True)), dict(zip(names, other, strict=True))
                if any(self._agree(target, key, first, second) for key in (target.handle, *target.unique)):
                    return number
        return None

    def _agree(self, shape: Shape, key: Key, one: dict[str, object], other: dict[str, object]) -> bool:
        collations, tests = dict(shape.columns), []
        values: list[object] = []
        for name, size in key.parts:
            cut = f"LEFT(%s, {size})" if size else "%s"
            collation = collations[name]
            converted = f"CONVERT({cut} USING {collation.split('_')[0]}) COLLATE {collation}" if collation else cut
            tests.append(f"{converted} = {cut}")
            values += [one[name], other[name]]
        return self._run(f"SELECT {' AND '.join(tests)}", tuple(values)) == [(1,)]

    def _are_equal(self, one: Values, other: Values) -> bool:
        """Whether the server holds two handle keys for equal."""
        names = self.shape.handle.columns
        whole = Key(tuple((name, 0) for name, _ in self.shape.columns if name in names))
        of_key = [name for name, _ in whole.parts]
        return self._agree(self.shape, whole, dict(zip(of_key, one, strict=True)), dict(zip(of_key, other, strict=True)))

    def _run(self, statement: str, values: Values | None = None) -> list[Values]:
        with self.connection.cursor() as cursor:
            cursor.execute(statement, values)
            return list(cursor.fetchall())


@contextmanager
def _ignored_duplicates() -> Iterator[None]:
    try:
        yield
    except pymysql.err.IntegrityError as error:
        if error.args[0] not in (1048, 1062):  # a NULL in the key, or a duplicate
            raise


def write_units(
    history: History, lo: int, hi: int, chance: Random, watched: tuple[UniqueTexts, ...] = (), counts: Sequence[int] = (1, 2, 3, 7)
) -> list[TableChange]:
    """The write units of the cut ``lo < commit ts <= hi``: read by several tasks, netted, spread over buckets, netted again.

    ``watched`` are the target's unique keys of which spellings are watched, ``counts`` the numbers of buckets to draw from.
    """
    schema = history.shape.schema()
    key, count = schema.handle_key, chance.choice(counts)
    alone = not (history.splits and history.old_rows)
    sights = Sights(alone) if watched or alone else None
    weighed = frozenset(name for name, collation in history.shape.columns if collation and weighs_supplementary(collation))
    numbered = [(ts, *change) for ts in range(lo + 1, hi + 1) for change in history.changes[ts - 1]]
    rows = [(int(kind), ts, seq, *row) for seq, (ts, kind, row) in enumerate(numbered)]
    tasks = [[row for row in rows if row[2] % 3 == part] for part in range(3)] if chance.random() < 0.5 else [rows]
    chance.shuffle(tasks)
    spread: list[list[pa.RecordBatch]] = [[] for _ in range(count)]
    for task in tasks:
        states = last_states(_block(schema, task), key, deletes_first=True, sights=sights)
        numbers = buckets(states, key, count, weighed)
        for bucket in range(count):
            spread[bucket].append(states.filter(pa.array(numbers == bucket)))
    units = []
    for batches in spread:
        batch = combined(batches)
        if batch.num_rows:
            net = net_change(batch, key, deletes_first=True, weighed=weighed, sights=sights)
            watch = SpellingWatch(watched, None, count == 1, weighed) if watched else None
            units.append(TableChange(TARGET, 1, schema, net.deletes, net.upserts, net.ordered, watch=watch, groups=net.groups))
    return units


def _block(schema: TableSchema, rows: Sequence[Values]) -> pa.RecordBatch:
    layout = block_schema(schema.row_columns)
    arrays = [pa.array([row[place] for row in rows], f.type) for place, f in enumerate(layout)]
    return pa.RecordBatch.from_arrays(arrays, schema=layout)


class Downstream:
    """The target's table, written by the real writers of one run."""

    def __init__(self, server: MariaDb) -> None:
        self._server = server
        self.connection = server.connect()
        self._run("CREATE DATABASE upstream", "CREATE DATABASE shop")
        self._sink = open_sink(server.uri())
        self._epoch = self._sink.ledger.acquire(PIPELINE, "source", "", 0).epoch
        self._attempt = 0

    def close(self) -> None:
        self._sink.ledger.close()
        self.connection.close()

    def create(self, shape: Shape) -> None:
        self._run(shape.create(TARGET))

    def rows(self) -> list[Values]:
        return self._run(f"SELECT * FROM {TARGET}")

    def watched(self) -> tuple[UniqueTexts, ...]:
        """The unique keys of the table of which spellings are watched."""
        with MySqlSession(read_settings(self._server.uri()), ddl=True) as session:
            return text_comparisons(session, {TARGET}).get(TARGET, TextComparison()).keys

    def write(self, units: Sequence[TableChange], *, local_infile: bool = True) -> list[Problem]:
        """Writes the units in this order, in transactions of two rows, each by a task of its own; returns why they stopped."""
        problems = []
        uri = self._server.uri() if local_infile else self._server.uri(local_infile="off")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("headrace.sinks.mysql.writer.TRANSACTION_ROWS", 2)
            for slot, unit in enumerate(units):
                own = MySqlWriter(read_settings(uri), self._sink.ledger.own_claim(), {TARGET})
                writer: MySqlWriter = pickle.loads(pickle.dumps(own))
                try:
                    writer.open(WriterContext(PIPELINE, self._epoch, self._attempt, slot % 3))
                    outcomes = writer.write([unit], None)
                finally:
                    writer.close()
                problems += [outcome.problem for outcome in outcomes if outcome.problem is not None]
        return problems

    def write_and_crash(self, units: Sequence[TableChange], fatal: int, *, local_infile: bool = True) -> None:
        """The same, but the run dies before its statement or commit of this number, if there are as many; then comes the next."""
        with pytest.MonkeyPatch.context() as patch:
            _crash_before(fatal, patch, self._run)
            try:
                self.write(units, local_infile=local_infile)
            except Crashed:
                self._attempt = self._sink.ledger.next_attempt()

    def _run(self, *statements: str) -> list[Values]:
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())


def _crash_before(fatal: int, patch: pytest.MonkeyPatch, run: Any) -> None:
    """From now on the step of this number kills its own connection."""
    steps = 0

    def dying(method: Any) -> Any:
        def step(session: MySqlSession, *arguments: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == fatal:
                run(f"KILL CONNECTION {session.connection_id}")
                raise Crashed
            return method(session, *arguments)

        return step

    for name in ("run", "load", "commit"):
        patch.setattr(MySqlSession, name, dying(getattr(MySqlSession, name)))


class Stopped(Exception):
    """A unit of the cut up to ``hi`` was refused; carries the sentence."""

    def __init__(self, hi: int, sentence: str) -> None:
        super().__init__(sentence)
        self.hi = hi


def deliver(history: History, target: Downstream, chance: Random, *, watches: bool = True) -> None:
    """Applies the history in cuts, as runs that die and start again would; compares after every whole cut.

    An attempt that breaks off has written some units, in any order and some of them twice, and died in the middle of one; what
    follows has the same ``lo`` and no smaller ``hi``. With ``watches`` the spellings of keys are watched. Raises Stopped.
    """
    lo, end = 0, len(history.changes)
    watched = target.watched() if watches else ()
    while lo < end:
        hi = lo + 1
        for _ in range(chance.randint(0, 2)):
            hi = chance.randint(hi, end)
            units = _repeated(write_units(history, lo, hi, chance, watched), chance)
            part = units[: chance.randint(0, len(units))]
            target.write_and_crash(part, chance.randint(1, 12), local_infile=chance.random() < 0.5)
        hi = chance.randint(hi, end)
        _write_whole(history, target, (lo, hi), chance, watched)
        rows = target.rows()
        missing, more = history.states[hi] - set(rows), set(rows) - history.states[hi]
        told = f"the cut from {lo} to {hi} of {end}: {missing} are missing, {more} too many; changes {history.changes}"
        assert len(rows) == len(set(rows)), f"rows are there twice: {told}"
        assert not missing, told
        assert not more, told
        lo = hi


def _write_whole(
    history: History, target: Downstream, cut: tuple[int, int], chance: Random, watched: tuple[UniqueTexts, ...]
) -> None:
    """Writes the cut as the engine does, which writes all in one unit where a writer asks for that. Raises Stopped."""
    local_infile = chance.random() < 0.5
    problems = target.write(_repeated(write_units(history, *cut, chance, watched), chance), local_infile=local_infile)
    if any(problem.needs_whole for problem in problems):
        problems = target.write(write_units(history, *cut, chance, watched, (1,)), local_infile=local_infile)
    if problems:
        raise Stopped(cut[1], problems[0].sentence())


def _repeated(units: Sequence[TableChange], chance: Random) -> list[TableChange]:
    """All units in any order, some of them twice."""
    repeated = [unit for unit in units for _ in range(chance.choice((1, 1, 2)))]
    chance.shuffle(repeated)
    return repeated
