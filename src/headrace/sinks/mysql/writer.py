"""The writer of one Spark task: deletes, then upserts by LOAD DATA … REPLACE, in transactions that prove the fence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from itertools import groupby, pairwise

import numpy as np
import pyarrow as pa
import pymysql

from headrace.errors import TransientError
from headrace.model.block import KIND, META_COUNT
from headrace.model.events import RowKind
from headrace.model.outcome import Notice, Problem, WriteOutcome
from headrace.model.table import Column, TableId, TableSchema
from headrace.sinks.base import CutCommit, TableChange, WriterContext
from headrace.sinks.mysql import refusal
from headrace.sinks.mysql.connection import ErrorClass, MySqlSession, classify, error_code, repeat
from headrace.sinks.mysql.fence import Fence
from headrace.sinks.mysql.settings import MySqlSettings
from headrace.sinks.mysql.text import batches, load_assignments, load_text, quote_name, row_literals
from headrace.sinks.sql_ledger import MYSQL, SqlLedger

TRANSACTION_ROWS = 50_000
TRANSACTION_BYTES = 32 * 1024 * 1024
_DELETE_ROWS = 900  # MariaDB turns longer IN lists into a sub-query
_REPLACE_ROWS = 5_000
_STATEMENT_BYTES = 1024 * 1024
_LOCAL_DISABLED = frozenset({1148, 3948, 3950, 4166})


class _Action(Enum):
    DELETE = auto()
    REPLACE = auto()
    LOAD = auto()


@dataclass(frozen=True)
class _Piece:
    """Rows of one table that go in one or a few statements."""

    table_id: TableId
    schema: TableSchema
    action: _Action
    rows: pa.Table


class MySqlWriter:
    """Writes net changes; a ``UnitWriter`` that pickles before ``open``.

    Each transaction holds at most :data:`TRANSACTION_ROWS` rows, of several tables when they are small; with a ``commit`` one
    transaction holds everything and the ledger's update. A table whose rows are refused is rolled back to its savepoint.
    """

    def __init__(self, settings: MySqlSettings) -> None:
        self._settings = settings
        self._ledger = SqlLedger(MYSQL, settings.ledger_database)
        self._fence = Fence(self._ledger)
        self._context: WriterContext | None = None
        self._session: MySqlSession | None = None
        self._notices: list[Notice] = []

    def open(self, context: WriterContext) -> None:
        """Connects and takes the slot. Raises SinkUnreachableError, FencedError."""
        self._context = context
        repeat(self._connected, "Taking a writer slot", self._recover)

    def write(self, changes: Sequence[TableChange], commit: CutCommit | None) -> list[WriteOutcome]:
        """Applies the changes and commits; see ``UnitWriter.write``."""
        failed = _bags(changes)
        if commit is not None and failed:
            commit = replace(commit, stopped=(*commit.stopped, *commit.update(list(failed.values())).tables))
        for pieces in _transactions(changes, whole=commit is not None):
            attempt = partial(self._transaction, pieces, failed, commit)
            failed |= repeat(attempt, "Writing to the target", self._recover)
        outcomes = [_outcome(change, failed.get(change.table_id)) for change in changes]
        if outcomes and self._notices:
            outcomes[0] = replace(outcomes[0], notices=tuple(self._notices))
            self._notices = []
        return outcomes

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _connected(self) -> MySqlSession:
        """The session, made anew after a loss, with the slot taken."""
        if self._session is None:
            session = MySqlSession(self._settings)
            try:
                self._fence.enter(session, self._own_context())
            except BaseException:
                session.close()
                raise
            self._session = session
            if self._settings.local_infile and not session.local_infile:
                self._note_slow_way()
        return self._session

    def _own_context(self) -> WriterContext:
        if self._context is None:
            raise RuntimeError("the writer was not opened")
        return self._context

    def _recover(self, error: BaseException) -> None:
        """Makes the session fit for another try: rolled back, or dropped."""
        if self._session is None:
            return
        try:
            if classify(error) is ErrorClass.LOST:
                self.close()
            else:
                self._session.rollback()
        except (pymysql.err.MySQLError, OSError):
            self.close()

    def _transaction(
        self, pieces: list[_Piece], failed: dict[TableId, Problem], commit: CutCommit | None
    ) -> dict[TableId, Problem]:
        """One transaction; returns the tables that were refused in it."""
        session, context = self._connected(), self._own_context()
        problems: dict[TableId, Problem] = {}
        try:
            for table_id, of_table in groupby(pieces, key=lambda piece: piece.table_id):
                if table_id not in failed and table_id not in problems:
                    problem = self._write_table(session, list(of_table))
                    if problem is not None:
                        problems[table_id] = problem
            if commit is not None:
                self._ledger.write_update(session, context.pipeline, context.epoch, commit.update(list(problems.values())))
            self._fence.prove(session, context)
            session.commit()
        except TransientError:  # another task has the slot: going on would take it back
            self.close()
            raise
        return problems

    def _write_table(self, session: MySqlSession, pieces: list[_Piece]) -> Problem | None:
        session.run("SAVEPOINT headrace_table")
        try:
            for piece in pieces:
                self._apply(session, piece)
        except refusal.Refused as refused:
            session.run("ROLLBACK TO SAVEPOINT headrace_table")
            return refused.problem
        return None

    def _apply(self, session: MySqlSession, piece: _Piece) -> None:
        if piece.action is _Action.DELETE:
            _delete(session, piece)
        elif piece.action is _Action.REPLACE or not session.local_infile:
            _replace(session, piece)
        elif not _load(session, piece):
            session.local_infile = False
            self._note_slow_way()
            _replace(session, piece)

    def _note_slow_way(self) -> None:
        self._notices.append(
            Notice(
                f"{self._settings.identity} does not allow LOAD DATA LOCAL INFILE, so rows are written by REPLACE statements at "
                "about half the speed; SET GLOBAL local_infile = ON changes that, local-infile=off in the URI silences this."
            )
        )


def _bags(changes: Sequence[TableChange]) -> dict[TableId, Problem]:
    """Tables without key: a DELETE by value would take all equal rows, and repeated inserts would double them."""
    return {
        change.table_id: Problem(
            change.table_id,
            "the table has no key, and this sink applies only tables with one.",
            hint="Give it a primary key or a unique key over NOT NULL columns, or leave it out with a filter.",
        )
        for change in changes
        if not change.schema.handle_key
    }


def _transactions(changes: Sequence[TableChange], *, whole: bool) -> Iterator[list[_Piece]]:
    """The pieces of all changes in order, cut into transactions; ``whole``: always exactly one, even an empty one."""
    gathered: list[_Piece] = []
    rows = size = 0
    for piece in (piece for change in changes for piece in _pieces(change)):
        full = rows + piece.rows.num_rows > TRANSACTION_ROWS or size + piece.rows.nbytes > TRANSACTION_BYTES
        if gathered and full and not whole:
            yield gathered
            gathered, rows, size = [], 0, 0
        gathered.append(piece)
        rows += piece.rows.num_rows
        size += piece.rows.nbytes
    if gathered or whole:
        yield gathered


def _pieces(change: TableChange) -> Iterator[_Piece]:
    def pieces(action: _Action, rows: pa.Table) -> Iterator[_Piece]:
        for part in _slices(rows):
            yield _Piece(change.table_id, change.schema, action, part)

    yield from pieces(_Action.DELETE, change.deletes)
    for upsert, rows in _runs(change.ordered):
        key = rows if upsert else rows.select(list(change.schema.handle_key))
        yield from pieces(_Action.REPLACE if upsert else _Action.DELETE, key)
    yield from pieces(_Action.LOAD, change.upserts)


def _slices(rows: pa.Table) -> Iterator[pa.Table]:
    if rows.num_rows == 0:
        return
    count = max(1, -(-rows.num_rows // TRANSACTION_ROWS), -(-rows.nbytes // TRANSACTION_BYTES))
    step = -(-rows.num_rows // count)
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def _runs(ordered: pa.Table) -> Iterator[tuple[bool, pa.Table]]:
    """Ordered changes as runs of upserts and of deletes; within a run a statement keeps the order of its rows.

    Old images of updates are left out: a change of key is a delete and an insert.
    """
    if ordered.num_rows == 0:
        return
    kinds = ordered.column(KIND).to_numpy()
    kept = np.flatnonzero(kinds != RowKind.UPDATE_BEFORE)
    rows = ordered.select(ordered.column_names[META_COUNT:]).take(pa.array(kept))
    upserts = kinds[kept] != RowKind.DELETE
    edges = [0, *(np.flatnonzero(np.diff(upserts)) + 1).tolist(), len(kept)]
    for start, end in pairwise(edges):
        if end > start:
            yield bool(upserts[start]), rows.slice(start, end - start)


def _delete(session: MySqlSession, piece: _Piece) -> None:
    columns = [piece.schema.column(name) for name in piece.rows.column_names]
    names = ", ".join(quote_name(column.name) for column in columns)
    # Deletes are few, so they always go as literals; of 100 to 5,000 rows in one statement 900 were the fastest on MariaDB.
    head = f"DELETE FROM {_qualified(piece.table_id)} WHERE ({names}) IN ("
    literals = row_literals(piece.rows, columns)
    for start, count, text in batches(literals, _DELETE_ROWS, _statement_bytes(session)):
        _run(session, piece, head.encode() + text + b")", piece.rows.slice(start, count))


def _replace(session: MySqlSession, piece: _Piece) -> None:
    columns = _written(piece)
    rows = piece.rows.select([column.name for column in columns])
    names = ", ".join(quote_name(column.name) for column in columns)
    head = f"REPLACE INTO {_qualified(piece.table_id)} ({names}) VALUES "
    for start, count, text in batches(row_literals(rows, columns), _REPLACE_ROWS, _statement_bytes(session)):
        _run(session, piece, head.encode() + text, rows.slice(start, count))


def _run(session: MySqlSession, piece: _Piece, statement: bytes, rows: pa.Table) -> None:
    try:
        warnings = session.run(statement)
    except pymysql.err.MySQLError as error:
        if classify(error) is ErrorClass.REFUSED:
            raise refusal.from_error(error, piece.table_id, rows) from None
        raise
    _reject_warnings(session, piece, warnings, rows)


def _load(session: MySqlSession, piece: _Piece) -> bool:
    """Loads the rows; ``False`` when the server does not allow it after all."""
    columns = _written(piece)
    rows = piece.rows.select([column.name for column in columns])
    targets, assignments = load_assignments(columns)
    statement = (
        f"LOAD DATA LOCAL INFILE '{{file}}' REPLACE INTO TABLE {_qualified(piece.table_id)} CHARACTER SET utf8mb4"
        f" FIELDS TERMINATED BY '\\t' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n' ({targets}){assignments}"
    )
    try:
        warnings = session.load(statement, load_text(rows, columns))
    except pymysql.err.MySQLError as error:
        if error_code(error) in _LOCAL_DISABLED:
            return False
        if classify(error) is ErrorClass.REFUSED:
            raise refusal.from_error(error, piece.table_id, rows) from None
        raise
    _reject_warnings(session, piece, warnings, rows)
    return True


def _reject_warnings(session: MySqlSession, piece: _Piece, warnings: int, rows: pa.Table) -> None:
    """A warning may be a value that was changed to fit: LOCAL makes warnings of errors, as the server cannot stop the client."""
    refused = refusal.from_warnings(session, piece.table_id, rows) if warnings else None
    if refused is not None:
        raise refused


def _written(piece: _Piece) -> list[Column]:
    carried = frozenset(piece.rows.column_names)
    return [column for column in piece.schema.written_columns if column.name in carried]


def _qualified(table_id: TableId) -> str:
    return f"{quote_name(table_id.database)}.{quote_name(table_id.table)}"


def _statement_bytes(session: MySqlSession) -> int:
    return min(_STATEMENT_BYTES, session.max_allowed_packet // 2)


def _outcome(change: TableChange, problem: Problem | None) -> WriteOutcome:
    if problem is not None:
        return WriteOutcome(change.table_id, problem=problem)
    kinds = change.ordered.column(KIND).to_numpy() if change.ordered.num_rows else np.empty(0, dtype=np.int8)
    deletes = int((kinds == RowKind.DELETE).sum())
    upserts = int(((kinds == RowKind.INSERT) | (kinds == RowKind.UPDATE_AFTER)).sum())
    return WriteOutcome(change.table_id, change.upserts.num_rows + upserts, change.deletes.num_rows + deletes)
