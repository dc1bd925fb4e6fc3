"""Tables, histories and deliveries at random, for the theorem that write units converge (docs/guarantees.md).

The upstream is a table of the same server: whatever its collations hold for equal, the server itself refuses the transactions that
break a unique key, and tells the rows after each commit.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa
import pymysql
import pytest

from headrace.engine.net import buckets, last_states, net_change
from headrace.model.block import block_schema
from headrace.model.events import RowKind
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sinks.base import TableChange, WriterContext
from headrace.sinks.mysql import open_sink
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
    by the new row alone.
    """

    shape: Shape
    connection: pymysql.connections.Connection
    splits: bool = True
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
        old = {self._key(row): row for row in before}
        new = {self._key(row): row for row in after}
        gone = [key for key in old if key not in new and (self.splits or not self._is_there(key))]
        changes: list[tuple[RowKind, Values]] = [(RowKind.DELETE, old[key]) for key in gone]
        for key, row in new.items():
            if key not in old:
                changes.append((RowKind.INSERT, row))
            elif old[key] != row:
                changes += [(RowKind.UPDATE_BEFORE, old[key]), (RowKind.UPDATE_AFTER, row)]
        return changes

    def _key(self, row: Values) -> Values:
        return tuple(value for value, (name, _) in zip(row, self.shape.columns, strict=True) if name in self.shape.handle.columns)

    def _is_there(self, key: Values) -> bool:
        """Whether a row has this key in the eyes of the server."""
        names = [name for name, _ in self.shape.columns if name in self.shape.handle.columns]
        return bool(self._run(f"SELECT 1 FROM {SOURCE} WHERE {' AND '.join(f'{name} = %s' for name in names)}", key))

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


def write_units(history: History, lo: int, hi: int, chance: Random) -> list[TableChange]:
    """The write units of the cut ``lo < commit ts <= hi``: read by several tasks, netted, spread over buckets, netted again."""
    schema = history.shape.schema()
    key, count = schema.handle_key, chance.choice((1, 2, 3, 7))
    numbered = [(ts, *change) for ts in range(lo + 1, hi + 1) for change in history.changes[ts - 1]]
    rows = [(int(kind), ts, seq, *row) for seq, (ts, kind, row) in enumerate(numbered)]
    tasks = [[row for row in rows if row[2] % 3 == part] for part in range(3)] if chance.random() < 0.5 else [rows]
    chance.shuffle(tasks)
    spread: list[list[pa.RecordBatch]] = [[] for _ in range(count)]
    for task in tasks:
        states = last_states(_block(schema, task), key, deletes_first=True)
        numbers = buckets(states, key, count)
        for bucket in range(count):
            spread[bucket].append(states.filter(pa.array(numbers == bucket)))
    units = []
    for batches in spread:
        (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches() or (None,)
        if batch is not None and batch.num_rows:
            net = net_change(batch, key, deletes_first=True)
            units.append(TableChange(TARGET, 1, schema, net.deletes, net.upserts, net.ordered))
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

    def write(self, units: Sequence[TableChange], *, local_infile: bool = True) -> None:
        """Writes the units in this order, in transactions of two rows, each by a task of its own."""
        uri = self._server.uri() if local_infile else self._server.uri(local_infile="off")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("headrace.sinks.mysql.writer.TRANSACTION_ROWS", 2)
            for slot, unit in enumerate(units):
                writer: MySqlWriter = pickle.loads(pickle.dumps(MySqlWriter(read_settings(uri), {TARGET})))
                try:
                    writer.open(WriterContext(PIPELINE, self._epoch, self._attempt, slot % 3))
                    outcomes = writer.write([unit], None)
                finally:
                    writer.close()
                assert [outcome.problem for outcome in outcomes] == [None]

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


def deliver(history: History, target: Downstream, chance: Random) -> None:
    """Applies the history in cuts, as runs that die and start again would; compares after every whole cut.

    An attempt that breaks off has written some units, in any order and some of them twice, and died in the middle of one; what
    follows has the same ``lo`` and no smaller ``hi``.
    """
    lo, end = 0, len(history.changes)
    while lo < end:
        hi = lo + 1
        for _ in range(chance.randint(0, 2)):
            hi = chance.randint(hi, end)
            units = _repeated(write_units(history, lo, hi, chance), chance)
            part = units[: chance.randint(0, len(units))]
            target.write_and_crash(part, chance.randint(1, 12), local_infile=chance.random() < 0.5)
        hi = chance.randint(hi, end)
        target.write(_repeated(write_units(history, lo, hi, chance), chance), local_infile=chance.random() < 0.5)
        rows = target.rows()
        assert len(rows) == len(history.states[hi]), f"rows are there twice, or missing: {sorted(rows, key=repr)}"
        assert set(rows) == history.states[hi], f"at {hi} of {end}"
        lo = hi


def _repeated(units: Sequence[TableChange], chance: Random) -> list[TableChange]:
    """All units in any order, some of them twice."""
    repeated = [unit for unit in units for _ in range(chance.choice((1, 1, 2)))]
    chance.shuffle(repeated)
    return repeated
