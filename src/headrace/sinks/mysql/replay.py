"""Replays the transactions of the source: the writer of one Spark task, on several connections.

The tables of a unit are replayed one after the other. A ``ConflictDetector`` gives a table's transactions to the connections; each
is a writer with a slot of its own in the fence. A transaction of the target executes whole transactions of the source and
records them in the ledger (``sinks/sql_replayed.py``). What an earlier attempt of the cut has recorded is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pymysql

from headrace.errors import HeadraceError, SinkUnreachableError, TransientError
from headrace.model.block import COMMIT_TS, KIND, META_COUNT, ChangeBlock, combined
from headrace.model.containment import contained
from headrace.model.events import RowKind
from headrace.model.outcome import Problem, WriteOutcome
from headrace.model.table import TableId, TableSchema, folded_name
from headrace.model.tso import tso_and_time
from headrace.replay.conflict_detector import Assigned
from headrace.replay.conflict_keys import ConflictKeys, KeyPart, UniqueKey
from headrace.replay.errors import SinkClosedError, SinkFailedError
from headrace.replay.resolved_ts import ResolvedTs
from headrace.replay.table_sink import TableSink
from headrace.replay.transaction_sink import TransactionSink
from headrace.replay.transactions import Transactions
from headrace.sinks.base import ChangeDemand, Commits, TableChange, WriterContext
from headrace.sinks.cut_commit import CutCommit
from headrace.sinks.mysql import handle, refusal
from headrace.sinks.mysql.applying import ReplayedTables
from headrace.sinks.mysql.connection import MySqlSession, repeat
from headrace.sinks.mysql.fit import require_fit
from headrace.sinks.mysql.replay_statements import RowStatement, StatementKind, independent_groups, row_changes, statements
from headrace.sinks.mysql.row_statements import most_bytes
from headrace.sinks.mysql.server_errors import INTERRUPTED, ErrorClass, classify, error_text, way_out
from headrace.sinks.mysql.settings import MySqlSettings
from headrace.sinks.mysql.slot import WriterSlot
from headrace.sinks.mysql.types import qualified
from headrace.sinks.mysql.writer import MySqlWriter
from headrace.sinks.refused_row import of_source, row_name
from headrace.sinks.sql_claim import Claim
from headrace.sinks.sql_dialect import MYSQL
from headrace.sinks.sql_ledger import SqlLedger

_QUOTA = 32 << 20
"""How many bytes of a table's rows are pending, at most, unless one transaction is larger."""
_COMMIT_ROWS = 1024
"""How many rows a transaction of the target has, unless one of the source has more. TiCDC has 256, and 2,048 at most."""
_SLOTS_A_TASK = 1_000
_T = TypeVar("_T")
_DIFFERS = "Something else changed the target's table, or it did not begin with the source's rows. Load it anew as of a commit ts, "


class ReplayWriter:
    """A ``UnitWriter``; picklable before ``open``. Tables that are not replayed are written by :class:`MySqlWriter`."""

    def __init__(self, settings: MySqlSettings, claim: Claim, replayed: ReplayedTables, verified: Collection[TableId] = ()) -> None:
        """``claim`` is the run's hold on the ledger; ``verified``: see :class:`MySqlWriter`."""
        self._settings, self._claim, self._replayed = settings, claim, replayed
        self._verified = set(verified)
        self._others = MySqlWriter(settings, claim, verified)
        self._slots: tuple[WriterSlot, ...] = ()
        self._context: WriterContext | None = None

    def open(self, context: WriterContext) -> None:
        """See ``UnitWriter.open``. The connections are opened when a table is replayed."""
        self._context = context
        self._others.open(context)
        # Slots below zero, since those from zero on are the tasks'. -1 is that of schema changes.
        numbers = (-_SLOTS_A_TASK * (context.slot + 1) - n for n in range(self._settings.replay_connections))
        self._slots = tuple(
            WriterSlot(self._settings, self._claim, replace(context, slot=number), for_replay=True) for number in numbers
        )

    def write(self, changes: Iterable[TableChange], commit: CutCommit | None) -> list[WriteOutcome]:
        """See ``UnitWriter.write``. There is no ``commit``: the ledger's step is one of its own."""
        assert commit is None, "the sink has no atomic cuts when it replays"
        outcomes: list[WriteOutcome] = []
        others: list[TableChange] = []
        for (table_id, demand), of_table in groupby(changes, self._table_and_demand):
            if demand is ChangeDemand.ALL:
                outcomes.append(self._outcome(table_id, of_table))
            else:
                others += of_table
        return outcomes + (self._others.write(others, None) if others else [])

    def _table_and_demand(self, change: TableChange) -> tuple[TableId, ChangeDemand]:
        return change.table_id, self._replayed.demand_of(change.table_id, change.schema)

    def commits(self) -> tuple[Commits, ...]:
        """See ``UnitWriter.commits``."""
        return (*self._others.commits(), *(commits for slot in self._slots for commits in slot.commits()))

    def close(self) -> None:
        for slot in self._slots:
            slot.close()
        self._others.close()

    def _outcome(self, table_id: TableId, changes: Iterator[TableChange]) -> WriteOutcome:
        problems: list[Problem] = []
        with contained(problems.append, table_id):
            try:
                return self._replay(table_id, changes)
            except refusal.Refused as error:
                problems.append(of_source(error.problem, table_id))
        return WriteOutcome(table_id, problem=problems[0])

    def _replay(self, table_id: TableId, changes: Iterator[TableChange]) -> WriteOutcome:
        first = next(changes)
        target, keys, done = self._repeat(lambda: self._prepared(table_id, first))
        table = _Table(table_id, target, keys, self._settings.ledger_database, in_order=first.in_order)
        counts: dict[RowKind, int] = defaultdict(int)
        pieces = _whole_transactions(change.ordered for change in chain([first], changes))
        for has_old_images, of_kind in groupby(_judged(pieces, target), key=lambda judged: judged[0]):
            conflicts = ConflictKeys(target, keys, old_images=has_old_images)
            self._execute(table, conflicts, (rows for _, rows in of_kind), done, counts)
        return WriteOutcome(
            table_id,
            upserts=counts[RowKind.INSERT] + counts[RowKind.UPDATE_AFTER],
            deletes=counts[RowKind.DELETE],
            netted=counts[RowKind.UPDATE_BEFORE],  # a new row says all of an update
            target=first.target,
        )

    def _execute(
        self,
        table: _Table,
        keys: ConflictKeys,
        pieces: Iterable[pa.RecordBatch],
        done: frozenset[int],
        counts: dict[RowKind, int],
    ) -> None:
        """Executes whole transactions. Raises what stopped the first one that could not be executed."""
        opened: set[int] = set()

        def open_writer(number: int) -> _TransactionWriter:
            follows = number in opened
            opened.add(number)
            return _TransactionWriter(self._slots[number], table, keys, follows=follows)

        sink = TransactionSink(open_writer, lambda _: keys, workers=len(self._slots), quota=_QUOTA, most_rows=_COMMIT_ROWS)
        try:
            table_sink = TableSink(table.table_id, sink)
            try:
                for rows in pieces:
                    _count(rows, counts)
                    left = _without(rows, done)
                    if left.num_rows:
                        table_sink.append_row_changed_events(ChangeBlock(table.table_id, 0, table.schema, left))
                        table_sink.update_resolved_ts(ResolvedTs(int(left.column(COMMIT_TS)[-1].as_py())))
                table_sink.close()
            except SinkFailedError:
                pass  # the reason is the sink's failure
            failure = sink.failure
        finally:
            sink.close()
        if isinstance(failure, _Ended):
            raise failure.error
        if failure is not None and not isinstance(failure, SinkClosedError):
            raise failure

    def _prepared(self, table_id: TableId, first: TableChange) -> tuple[TableSchema, tuple[UniqueKey, ...], frozenset[int]]:
        """The target's shape and unique keys, and the transactions (TSO) that the ledger has. Others are removed from it."""
        # All slots are taken before it is asked what is executed: from then on no former task can commit.
        session, *_ = [slot.connected() for slot in self._slots]
        with refusal.of_one_table(table_id, session):
            target = handle.with_plain_columns(session, first.target_schema)
            if target.table_id not in self._verified:
                require_fit(session, target, self._settings, replays=True)
                self._verified.add(target.table_id)
            keys = _unique_keys(session, target.table_id)
        session.rollback()
        slot, replayed = self._slots[0], SqlLedger(MYSQL, self._settings.ledger_database).replayed
        done = replayed.since(session, slot.context.pipeline, table_id, first.lo)
        replayed.sweep(session, slot.context.pipeline, table_id, first.lo)
        slot.prove()
        slot.commit()
        return target, keys, done

    def _repeat(self, action: Callable[[], _T]) -> _T:
        try:
            return repeat(action, "Preparing the replay of a table", self._recover)
        except pymysql.err.MySQLError as error:  # an error about the table is one of its problems
            raise refusal.of_ledger(error, self._slots[0].session, self._settings.ledger_database) from None

    def _recover(self, error: BaseException) -> None:
        for slot in self._slots:
            slot.recover(error)


@dataclass(frozen=True)
class _Table:
    """What writers know of a table. ``schema`` is the target's, ``table_id`` the source's."""

    table_id: TableId
    schema: TableSchema
    keys: tuple[UniqueKey, ...]
    ledger_database: str
    in_order: bool
    """See ``TableChange.in_order``."""


class _Ended(Exception):
    """Another writer cannot go on either: the run, the attempt or the slot is another one's."""

    def __init__(self, error: HeadraceError) -> None:
        super().__init__(str(error))
        self.error = error


class _TransactionWriter:
    """A ``TransactionWriter`` on one connection. ``follows``: an earlier one of this table may have committed what it gets."""

    def __init__(self, slot: WriterSlot, table: _Table, keys: ConflictKeys, *, follows: bool) -> None:
        self._slot, self._table, self._keys, self._follows = slot, table, keys, follows
        self._ledger = SqlLedger(MYSQL, table.ledger_database)
        self._are_independent = False
        self._runs_together = True
        """Until that was in vain and nothing was refused: the server, or a proxy, may not take it, or each statement may warn."""

    def write(self, assigned: Sequence[Assigned]) -> None:
        """See ``TransactionWriter.write``. Raises refusal.Refused with the first transaction that the target refuses."""
        transactions = _joined(assigned)
        self._are_independent = all(part.is_free for part in assigned)
        try:
            self._take_slot()
            if self._follows:
                transactions = self._left(transactions)
                self._follows = False
            if len(transactions):
                self._execute(transactions)
        except refusal.Unforeseen:
            self._slot.leave()
            raise
        except refusal.Refused as error:
            self._slot.recover(error)
            raise
        except (pymysql.err.MySQLError, OSError, SinkUnreachableError) as error:
            session = self._slot.session
            self._slot.recover(error)
            if not isinstance(error, SinkUnreachableError) and classify(error) is ErrorClass.REFUSED:
                raise refusal.of_ledger(error, session, self._table.ledger_database) from None
            raise TransientError(f"Writing to the target failed: {error_text(error)}.", way_out(error)) from error

    def close(self) -> None:
        """Nothing to do: the connection stays for the next table, and the slot knows whether it is lost."""

    def _take_slot(self) -> MySqlSession:
        try:
            return self._slot.connected()
        except SinkUnreachableError:
            raise
        except HeadraceError as error:
            raise _Ended(error) from error

    def _left(self, transactions: Transactions) -> Transactions:
        """Those that no earlier writer has committed. A worker's transactions are not in the order of commit ts."""
        commit_ts, pipeline = transactions.commit_ts, self._slot.context.pipeline
        done = self._ledger.replayed.since(self._slot.connected(), pipeline, self._table.table_id, int(commit_ts.min()))
        return transactions.chosen(np.flatnonzero(~np.isin(commit_ts, np.fromiter(done, np.int64, len(done)))))

    def _execute(self, transactions: Transactions) -> None:
        """Executes them in one transaction of the target, or one by one where that is refused, to find the first that is."""
        if self._runs_together and self._commit_together(transactions):
            return
        self._runs_together = False
        try:
            self._commit(transactions, row_by_row=False)
        except refusal.Unforeseen:
            raise
        except refusal.Refused:
            self._slot.connected().rollback()
            for number in range(len(transactions)):
                self._commit(transactions.part(number, number + 1), row_by_row=True)

    def _commit_together(self, transactions: Transactions) -> bool:
        """Commits if each statement does what it has to, in as few round trips as possible.

        Otherwise it changes nothing and returns false: :meth:`_commit` finds out why.
        """
        session = self._slot.connected()
        try:
            with refusal.of_one_table(self._table.table_id, session):
                trips = _round_trips(self._texts(session, transactions), most_bytes(session))
                fits = all(_run_together(session, some) for some in trips)
        except refusal.Unforeseen:
            raise
        except refusal.Refused:
            fits = False
        if fits:
            self._slot.commit()
        else:
            session.rollback()
        return fits

    def _texts(self, session: MySqlSession, transactions: Transactions) -> Iterator[tuple[bytes, list[int]]]:
        """All statements of a commit, with how many rows each has to affect."""
        for statement, _ in self._statements(transactions, session, most_rows=_COMMIT_ROWS, most_updates=_COMMIT_ROWS):
            yield statement.text, statement.affects
        commit_ts = transactions.commit_ts.tolist()
        for text, parameters in self._ledger.replayed.records(self._slot.context.pipeline, self._table.table_id, commit_ts):
            yield session.text(text, parameters).encode(errors="surrogateescape"), [1]
        yield self._slot.proof().encode(errors="surrogateescape"), [1]

    def _statements(
        self, transactions: Transactions, session: MySqlSession, *, most_rows: int, most_updates: int = 1
    ) -> Iterator[tuple[RowStatement, Transactions]]:
        """The statements in their order, each with the transactions that it may be of."""
        limits = {"most_bytes": most_bytes(session), "most_rows": most_rows, "most_updates": most_updates}
        for start, stop in self._groups(transactions):
            group = transactions.part(start, stop)
            for changes in row_changes(group, self._keys, self._table.keys, in_order=self._table.in_order):
                for statement in statements(self._table.schema, group.block.batch, changes, **limits):
                    yield statement, group

    def _groups(self, transactions: Transactions) -> list[tuple[int, int]]:
        """Ranges of transactions of which none depends on another one of its range."""
        if self._are_independent:
            return [(0, len(transactions))]
        return independent_groups(self._keys.touched(transactions), len(transactions))

    def _commit(self, transactions: Transactions, *, row_by_row: bool) -> None:
        session = self._slot.connected()
        with refusal.of_one_table(self._table.table_id, session):
            for statement, group in self._statements(transactions, session, most_rows=1 if row_by_row else _COMMIT_ROWS):
                self._run(session, statement, group)
        context = self._slot.context
        self._ledger.replayed.put(session, context.pipeline, self._table.table_id, transactions.commit_ts.tolist())
        try:
            self._slot.prove()
        except HeadraceError as error:
            self._slot.close()  # another task has the slot: a new connection would take it back
            raise _Ended(error) from error
        self._slot.commit()

    def _run(self, session: MySqlSession, statement: RowStatement, group: Transactions) -> None:
        """Raises refusal.Refused if the target refuses it, or does not have each of its rows."""
        target, rows = self._table.schema, statement.rows
        try:
            warnings = session.run(statement.text)
        except pymysql.err.MySQLError as error:
            if classify(error) is not ErrorClass.REFUSED:
                raise
            raise _named(refusal.from_error(error, target.table_id, session, rows, target), statement, group) from None
        refused = refusal.from_warnings(session, target.table_id, rows, target) if warnings else None
        if refused is not None:
            raise _named(refused, statement, group)
        if session.affected == rows.num_rows:
            return
        if statement.kind is StatementKind.UPDATE and session.finds(statement.finds):
            raise pymysql.err.OperationalError(INTERRUPTED, "An UPDATE was interrupted and changed nothing")
        missing = Problem(target.table_id, "the target does not have the row.", hint=_loading(self._table.table_id))
        raise _named(refusal.Refused(missing), statement, group)


def _round_trips(texts: Iterable[tuple[bytes, list[int]]], limit: int) -> Iterator[list[tuple[bytes, list[int]]]]:
    """Puts statements together, up to so many bytes; a longer one is alone."""
    some: list[tuple[bytes, list[int]]] = []
    length = 0
    for text, affects in texts:
        if some and length + len(text) > limit:
            yield some
            some, length = [], 0
        some.append((text, affects))
        length += len(text) + 1
    if some:
        yield some


def _run_together(session: MySqlSession, texts: Sequence[tuple[bytes, list[int]]]) -> bool:
    """Runs statements in one round trip. Returns whether each affected as many rows as it has to, without a warning."""
    done = session.run_together([text for text, _ in texts])
    return done == [(count, 0) for _, affects in texts for count in affects]


def _named(refused: refusal.Refused, statement: RowStatement, group: Transactions) -> refusal.Refused:
    """The refusal with transaction, kind of statement and key. Exact if the statement has one row of one transaction."""
    problem, key = refused.problem, [name for name in group.block.schema.handle_key if name in statement.rows.column_names]
    row = problem.row or (row_name(statement.rows, 0, key) if statement.rows.num_rows == 1 else "")
    message = f"{statement.kind} of the transaction at commit ts {tso_and_time(int(group.commit_ts[0]))}: {problem.message}"
    return refusal.Refused(replace(problem, message=message, row=row), by_value=refused.by_value)


def _loading(table_id: TableId) -> str:
    return f"{_DIFFERS}and run headrace table resync {table_id} --at with it."


def _joined(assigned: Sequence[Assigned]) -> Transactions:
    """The transactions in their order. All of them have the shape of the table."""
    parts = [part.transactions.chosen(part.numbers) for part in assigned]
    block = replace(parts[0].block, batch=combined([part.block.batch for part in parts]))
    return Transactions.of_lengths(block, np.concatenate([np.diff(part.starts) for part in parts]))


def _whole_transactions(pieces: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    """The rows of pieces, cut only between transactions."""
    kept: list[pa.RecordBatch] = []
    for piece in pieces:
        for batch in piece.to_batches():
            commit_ts = batch.column(COMMIT_TS).to_numpy()
            if not len(commit_ts):
                continue
            begins = int(np.searchsorted(commit_ts, commit_ts[-1]))
            if begins or (kept and kept[-1].column(COMMIT_TS)[-1].as_py() != commit_ts[0]):
                whole = [*kept, batch.slice(0, begins)]
                yield combined([part for part in whole if part.num_rows])
                kept = []
            kept.append(batch.slice(begins))
    if kept:
        yield combined(kept)


def _judged(pieces: Iterable[pa.RecordBatch], schema: TableSchema) -> Iterator[tuple[bool, pa.RecordBatch]]:
    """Each piece with whether it and all before it have old images. Without them, what a change frees is unknown."""
    has_old_images = True
    for rows in pieces:
        has_old_images = has_old_images and _has_old_images(rows, schema)
        yield has_old_images, rows


def _has_old_images(rows: pa.RecordBatch, schema: TableSchema) -> bool:
    kinds = rows.column(KIND).to_numpy(zero_copy_only=False)
    if (kinds == RowKind.UPDATE_AFTER).sum() > (kinds == RowKind.UPDATE_BEFORE).sum():
        return False
    key = {folded_name(name) for name in schema.handle_key}
    others = [name for name in rows.schema.names[META_COUNT:] if folded_name(name) not in key]
    deleted = rows.filter(pa.array(kinds == RowKind.DELETE))
    if not others or not deleted.num_rows:
        return True
    # A deletion that has nothing but its key was written with the key only.
    known = [pc.is_valid(deleted.column(name)).to_numpy(zero_copy_only=False) for name in others]
    return bool(np.logical_or.reduce(known).all())


def _without(rows: pa.RecordBatch, done: frozenset[int]) -> pa.RecordBatch:
    if not done:
        return rows
    is_done = np.isin(rows.column(COMMIT_TS).to_numpy(), np.fromiter(done, np.int64, len(done)))
    return rows.filter(pa.array(~is_done)) if is_done.any() else rows


def _count(rows: pa.RecordBatch, counts: dict[RowKind, int]) -> None:
    for kind, count in zip(*np.unique(rows.column(KIND).to_numpy(zero_copy_only=False), return_counts=True), strict=True):
        counts[RowKind(int(kind))] += int(count)


def _unique_keys(session: MySqlSession, table_id: TableId) -> tuple[UniqueKey, ...]:
    """The primary and unique keys of a table of the target, each with its parts. An expression is a part without column."""
    found: dict[str, list[KeyPart]] = defaultdict(list)
    for row in session.execute(f"SHOW INDEX FROM {qualified(table_id)}"):
        _, non_unique, name, _, column, _, _, prefix = row[:8]
        if int(str(non_unique)) == 0:
            found[str(name)].append(KeyPart("" if column is None else str(column), int(str(prefix or 0))))
    return tuple(UniqueKey(tuple(parts)) for parts in found.values())
