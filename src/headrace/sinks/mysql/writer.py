"""The writer of one Spark task: deletes, then upserts by LOAD DATA … REPLACE or REPLACE, in transactions that prove the fence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pymysql

from headrace.errors import TransientError
from headrace.model.block import KIND, META_COUNT
from headrace.model.events import RowKind
from headrace.model.letters import Letter
from headrace.model.outcome import Notice, Problem, WriteOutcome
from headrace.model.progress import TableProgress
from headrace.model.table import Column, TableId, TableSchema
from headrace.sinks.base import CutCommit, LedgerUpdate, TableChange, WriterContext
from headrace.sinks.dead_letters import no_letters_of_bags, row_letters
from headrace.sinks.mysql import bag, handle, refusal
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

_T = TypeVar("_T")


class _Action(Enum):
    DELETE = auto()
    REPLACE = auto()
    LOAD = auto()
    TAKE_AWAY = auto()
    INSERT = auto()


@dataclass(frozen=True)
class _Piece:
    """Rows of one table that go in one or a few statements."""

    table_id: TableId
    schema: TableSchema
    action: _Action
    rows: pa.Table
    version: int
    lo: int


@dataclass
class _Transaction:
    """What is committed together. ``bags`` says how far tables without key are applied with it."""

    tables: dict[TableId, list[_Piece]]
    bags: dict[TableId, TableProgress]
    commit_sent: bool = False
    """From now on it may be committed already, though no answer said so."""


class MySqlWriter:
    """Writes net changes; a ``UnitWriter`` that pickles before ``open``.

    Each transaction holds at most :data:`TRANSACTION_ROWS` rows, of several tables when they are small; with a ``commit`` one
    transaction holds everything and the ledger's update. A table whose rows are refused is rolled back to its savepoint; with
    dead letters, the rows of a table with a key that are refused for a value are found by halving, and the others written.
    A table without key is one transaction with its own row of the ledger, which tells a repetition that there is nothing to do.
    """

    def __init__(self, settings: MySqlSettings, verified: Collection[TableId] = ()) -> None:
        """``verified`` are tables whose handle key is known to have a unique index; of others the writer asks the server."""
        self._settings = settings
        self._verified = set(verified)
        self._ledger = SqlLedger(MYSQL, settings.ledger_database)
        self._fence = Fence(self._ledger)
        self._context: WriterContext | None = None
        self._session: MySqlSession | None = None
        self._lost_connection: int | None = None
        self._notices: list[Notice] = []
        self._letters: dict[TableId, set[str]] = defaultdict(set)
        self._read_letters: Mapping[TableId, int] = {}

    def open(self, context: WriterContext) -> None:
        """Connects and takes the slot. Raises SinkUnreachableError, FencedError."""
        self._context = context
        self._repeat(self._connected, "Taking a writer slot")

    def write(self, changes: Sequence[TableChange], commit: CutCommit | None) -> list[WriteOutcome]:
        """Applies the changes and commits; see ``UnitWriter.write``."""
        self._letters.clear()
        self._read_letters = commit.new_letters if commit is not None else {}
        failed = _bags_without_progress(changes, commit)
        if commit is not None and failed:
            commit = replace(commit, stopped=(*commit.stopped, *commit.update(list(failed.values())).tables))
        for transaction in _transactions(changes, whole=commit is not None):
            attempt = partial(self._apply_transaction, transaction, failed, commit)
            failed |= self._repeat(attempt, "Writing to the target")
        outcomes = [_outcome(change, failed.get(change.table_id)) for change in changes]
        for number, outcome in enumerate(outcomes):
            names = self._letters.pop(outcome.table_id, ())
            outcomes[number] = replace(outcome, letters=tuple(sorted(names)), upserts=max(0, outcome.upserts - len(names)))
        if outcomes and self._notices:
            outcomes[0] = replace(outcomes[0], notices=tuple(self._notices))
            self._notices = []
        return outcomes

    def _repeat(self, action: Callable[[], _T], what: str) -> _T:
        try:
            return repeat(action, what, self._recover)
        except pymysql.err.MySQLError as error:  # what concerns a table's rows is one of its problems
            raise refusal.of_ledger(error) from None

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _connected(self) -> MySqlSession:
        """The session, made anew after a loss, with the slot taken."""
        if self._session is None:
            session = MySqlSession(self._settings)
            context = self._own_context()
            try:
                if self._lost_connection is not None:
                    # Where the network broke off, the server has not noticed: its transaction still locks the rows.
                    self._fence.kill(session, context.pipeline, [self._lost_connection], ddl=False)
                self._fence.enter(session, context)
            except BaseException:
                session.close()
                raise
            self._session = session
            if self._settings.local_infile and not session.local_infile and not session.is_tidb:
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
                self._lost_connection = self._session.connection_id
                self.close()
            else:
                self._session.rollback()
        except (pymysql.err.MySQLError, OSError):
            self.close()

    def _apply_transaction(
        self, transaction: _Transaction, failed: dict[TableId, Problem], commit: CutCommit | None
    ) -> dict[TableId, Problem]:
        """Runs and commits it; returns the tables that were refused in it."""
        session, context = self._connected(), self._own_context()
        problems: dict[TableId, Problem] = {}
        reached: list[TableProgress] = []
        refused: dict[TableId, list[Letter]] = {}
        try:
            for table_id, pieces in transaction.tables.items():
                if table_id in failed or self._is_applied(session, transaction, table_id):
                    continue
                problem = self._write_table(session, pieces, refused.setdefault(table_id, []))
                if problem is not None:
                    problems[table_id] = problem
                    del refused[table_id]
                elif table_id in transaction.bags:
                    reached.append(transaction.bags[table_id])
            self._put_letters(refused)
            if commit is not None or reached:
                counts = {table_id: len(letters) for table_id, letters in refused.items()}
                update = commit.update(list(problems.values()), counts) if commit is not None else LedgerUpdate()
                update = replace(update, tables=(*update.tables, *reached))
                self._ledger.write_update(session, context.pipeline, context.epoch, update)
            self._fence.prove(session, context)
            transaction.commit_sent = True
            session.commit()
        except TransientError:  # another task has the slot: going on would take it back
            self.close()
            raise
        return problems

    def _is_applied(self, session: MySqlSession, transaction: _Transaction, table_id: TableId) -> bool:
        """Whether an earlier try committed a table without key. Raises TransientError when that was another task's doing."""
        target = transaction.bags.get(table_id)
        if target is None:
            return False
        checkpoint = self._ledger.lock_table(session, self._own_context().pipeline, table_id)
        if checkpoint is None or checkpoint < target.checkpoint:
            return False
        if transaction.commit_sent:
            return True
        raise TransientError(
            f"Table {table_id} stands at {checkpoint} already, though its changes were read from before; they are planned again."
        )

    def _put_letters(self, refused: Mapping[TableId, list[Letter]]) -> None:
        """Before anything of the transaction is committed."""
        letters = self._own_context().letters
        for table_id, found in refused.items():
            if letters is not None and found:
                self._letters[table_id].update(letters.put(found))

    def _write_table(self, session: MySqlSession, pieces: list[_Piece], refused: list[Letter]) -> Problem | None:
        """Writes a table's pieces; rows that were refused for a value go to ``refused``. Returns why nothing of it was written."""
        session.run("SAVEPOINT headrace_table")
        try:
            for piece in pieces:
                if piece.table_id not in self._verified:
                    handle.require_index(session, piece.schema)
                    handle.refuse_changing_triggers(session, piece.table_id)
                    self._verified.add(piece.table_id)
                if self._own_context().letters is None or not piece.schema.handle_key:
                    self._apply(session, piece)
                else:
                    self._apply_sound(session, piece, refused)
        except refusal.Refused as error:
            session.run("ROLLBACK TO SAVEPOINT headrace_table")
            if self._own_context().letters is not None and error.by_value:
                return no_letters_of_bags(error.problem) if not pieces[0].schema.handle_key else error.problem
            return error.problem
        return None

    def _apply_sound(self, session: MySqlSession, piece: _Piece, refused: list[Letter]) -> None:
        """Applies all rows of the piece that the server takes, in their order; the others go to ``refused``."""
        session.run("SAVEPOINT headrace_piece")
        try:
            self._apply(session, piece)
            return
        except refusal.Refused as error:
            if not error.by_value:
                raise
            session.run("ROLLBACK TO SAVEPOINT headrace_piece")
            if piece.rows.num_rows == 1:
                refused.extend(row_letters({0: error.problem}, piece.rows, piece.schema, piece.version, piece.lo))
                self._require_few(piece.table_id, refused, error)
                return
        middle = piece.rows.num_rows // 2
        for rows in (piece.rows.slice(0, middle), piece.rows.slice(middle)):
            self._apply_sound(session, replace(piece, rows=rows), refused)

    def _require_few(self, table_id: TableId, refused: list[Letter], error: refusal.Refused) -> None:
        """Raises refusal.Refused when the table has too many letters."""
        letters = self._own_context().letters
        names = self._letters[table_id] | {letter.name for letter in refused}
        count = len(names) + self._read_letters.get(table_id, 0)
        problem = letters.too_many(table_id, count, error.problem) if letters is not None else None
        if problem is not None:
            raise refusal.Refused(problem)

    def _apply(self, session: MySqlSession, piece: _Piece) -> None:
        if piece.action is _Action.DELETE:
            _delete(session, piece)
        elif piece.action is _Action.TAKE_AWAY:
            columns = _written(piece)
            bag.take_away(session, piece.table_id, columns, piece.rows.select([column.name for column in columns]))
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


def _bags_without_progress(changes: Sequence[TableChange], commit: CutCommit | None) -> dict[TableId, Problem]:
    """Tables without key of which a repetition could not be told, so that their inserts would double.

    Rows with a commit ts move the checkpoint beyond the one before the cut, and beyond the version of their table.
    """
    return {
        change.table_id: Problem(
            change.table_id,
            "it has no key and its changes carry no exact commit ts, so one that is applied twice could not be told.",
            hint="Set include-commit-ts = true (CSV) or enable-tidb-extension = true (canal-JSON) in the changefeed, "
            "give the table a primary key, or leave it out with --tables.",
        )
        for change in changes
        if not change.schema.handle_key and not _moves(change, commit)
    }


def _moves(change: TableChange, commit: CutCommit | None) -> bool:
    before = commit.checkpoints.get(change.table_id, 0) if commit is not None else 0
    return change.progress is not None and change.progress.checkpoint > max(before, change.version)


def _transactions(changes: Sequence[TableChange], *, whole: bool) -> Iterator[_Transaction]:
    """All changes in order, cut into transactions; ``whole``: always exactly one, even an empty one."""
    keyed = [piece for change in changes if change.schema.handle_key for piece in _pieces(change)]
    bags: dict[TableId, list[TableChange]] = defaultdict(list)
    for change in changes:
        if change.progress is not None and not change.schema.handle_key:
            bags[change.table_id].append(change)
    of_bags = {table_id: [piece for change in of_table for piece in _pieces(change)] for table_id, of_table in bags.items()}
    reached = {table_id: _furthest(of_table) for table_id, of_table in bags.items()}
    if whole:
        yield _Transaction(_by_table(keyed) | of_bags, reached)
        return
    yield from (_Transaction(_by_table(pieces), {}) for pieces in _portions(keyed))
    for table_id, pieces in of_bags.items():
        yield _Transaction({table_id: pieces}, {table_id: reached[table_id]})


def _furthest(changes: Sequence[TableChange]) -> TableProgress:
    return max((c.progress for c in changes if c.progress is not None), key=lambda progress: progress.checkpoint)


def _by_table(pieces: Iterable[_Piece]) -> dict[TableId, list[_Piece]]:
    tables: dict[TableId, list[_Piece]] = defaultdict(list)
    for piece in pieces:
        tables[piece.table_id].append(piece)
    return dict(tables)


def _portions(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    """The pieces in order, as many at a time as one transaction may hold."""
    gathered: list[_Piece] = []
    rows = size = 0
    for piece in pieces:
        full = rows + piece.rows.num_rows > TRANSACTION_ROWS or size + piece.rows.nbytes > TRANSACTION_BYTES
        if gathered and full:
            yield gathered
            gathered, rows, size = [], 0, 0
        gathered.append(piece)
        rows += piece.rows.num_rows
        size += piece.rows.nbytes
    if gathered:
        yield gathered


def _pieces(change: TableChange) -> Iterator[_Piece]:
    def pieces(action: _Action, rows: pa.Table) -> Iterator[_Piece]:
        for part in _slices(rows):
            yield _Piece(change.table_id, change.schema, action, part, change.version, change.lo)

    if not change.schema.handle_key:
        # Deletes first: a nullable unique key, which is no handle key, may go from one row to another.
        yield from pieces(_Action.TAKE_AWAY, change.deletes)
        yield from pieces(_Action.INSERT, change.upserts)
        return
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

    The old image of an update is a delete of its key: where TiCDC does not split updates, nothing else tells that a key is gone.
    """
    if ordered.num_rows == 0:
        return
    rows = ordered.select(ordered.column_names[META_COUNT:])
    upserts = _are_upserts(ordered)
    edges = [0, *(np.flatnonzero(np.diff(upserts)) + 1).tolist(), len(upserts)]
    for start, end in pairwise(edges):
        if end > start:
            yield bool(upserts[start]), rows.slice(start, end - start)


def _are_upserts(ordered: pa.Table) -> npt.NDArray[np.bool_]:
    kinds = ordered.column(KIND).to_numpy()
    return np.asarray((kinds == RowKind.INSERT) | (kinds == RowKind.UPDATE_AFTER))


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
    verb = "INSERT" if piece.action is _Action.INSERT else "REPLACE"
    head = f"{verb} INTO {_qualified(piece.table_id)} ({names}) VALUES "
    for start, count, text in batches(row_literals(rows, columns), _REPLACE_ROWS, _statement_bytes(session)):
        _run(session, piece, head.encode() + text, rows.slice(start, count))


def _run(session: MySqlSession, piece: _Piece, statement: bytes, rows: pa.Table) -> None:
    try:
        warnings = session.run(statement)
    except pymysql.err.MySQLError as error:
        if classify(error) is ErrorClass.REFUSED:
            raise refusal.from_error(error, piece.table_id, rows, piece.schema) from None
        raise
    _reject_warnings(session, piece, warnings, rows)


def _load(session: MySqlSession, piece: _Piece) -> bool:
    """Loads the rows; ``False`` when the server does not allow it after all."""
    columns = _written(piece)
    rows = piece.rows.select([column.name for column in columns])
    targets, assignments = load_assignments(columns)
    verb = "" if piece.action is _Action.INSERT else "REPLACE "
    statement = (
        f"LOAD DATA LOCAL INFILE '{{file}}' {verb}INTO TABLE {_qualified(piece.table_id)} CHARACTER SET utf8mb4"
        f" FIELDS TERMINATED BY '\\t' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n' ({targets}){assignments}"
    )
    try:
        warnings = session.load(statement, load_text(rows, columns))
    except pymysql.err.MySQLError as error:
        if error_code(error) in _LOCAL_DISABLED:
            return False
        if classify(error) is ErrorClass.REFUSED:
            raise refusal.from_error(error, piece.table_id, rows, piece.schema) from None
        raise
    _reject_warnings(session, piece, warnings, rows)
    return True


def _reject_warnings(session: MySqlSession, piece: _Piece, warnings: int, rows: pa.Table) -> None:
    """A warning may be a value that was changed to fit: LOCAL makes warnings of errors, as the server cannot stop the client."""
    refused = refusal.from_warnings(session, piece.table_id, rows, piece.schema) if warnings else None
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
    upserts = int(_are_upserts(change.ordered).sum()) if change.ordered.num_rows else 0
    deletes = change.ordered.num_rows - upserts
    return WriteOutcome(change.table_id, change.upserts.num_rows + upserts, change.deletes.num_rows + deletes)
