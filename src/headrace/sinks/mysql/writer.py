"""The writer of one Spark task: deletes, then upserts by LOAD DATA … REPLACE or REPLACE, in transactions that check the fence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pymysql

from headrace.errors import TransientError
from headrace.model.block import SIGHT, in_pieces
from headrace.model.ledger import TableProgress
from headrace.model.letters import Letter
from headrace.model.outcome import Notice, Problem, WriteOutcome
from headrace.model.table import Column, TableId, TableSchema
from headrace.sinks.base import Commits, TableChange, WriterContext
from headrace.sinks.cut_commit import CutCommit
from headrace.sinks.dead_letters import no_letters_of_bags, row_letters
from headrace.sinks.mysql import bag, handle, refusal
from headrace.sinks.mysql.connection import MySqlSession, repeat
from headrace.sinks.mysql.fit import require_fit
from headrace.sinks.mysql.latest_spelling import Settled, settled, unsettled
from headrace.sinks.mysql.row_statements import Statements, deletions, insertions, most_bytes
from headrace.sinks.mysql.server_errors import ErrorClass, classify, error_code
from headrace.sinks.mysql.settings import MySqlSettings
from headrace.sinks.mysql.slot import WriterSlot
from headrace.sinks.mysql.spellings import Spellings
from headrace.sinks.mysql.text import load_assignments, load_text
from headrace.sinks.mysql.types import qualified
from headrace.sinks.refused_row import of_source
from headrace.sinks.sql_claim import Claim
from headrace.sinks.sql_dialect import MYSQL
from headrace.sinks.sql_ledger import SqlLedger

TRANSACTION_ROWS = 50_000
TRANSACTION_BYTES = 32 * 1024 * 1024
_REPLACE_ROWS = 5_000
_LOCAL_DISABLED = frozenset({1148, 3948, 3950, 4166})

_T = TypeVar("_T")


class _Action(Enum):
    DELETE = auto()
    LOAD = auto()
    TAKE_AWAY = auto()
    INSERT = auto()


@dataclass(frozen=True)
class _Piece:
    """Rows of one table that go into one or a few statements. ``table_id`` and ``schema`` are the target's."""

    table_id: TableId
    schema: TableSchema
    action: _Action
    rows: pa.Table
    change: TableChange
    last_spellings: bool = False
    """Its rows are the last ones of several spellings of their keys."""


@dataclass
class _Transaction:
    """The pieces of one transaction, by the source's tables. ``bags``: the places up to which it applies tables without key."""

    tables: dict[TableId, list[_Piece]]
    bags: dict[TableId, TableProgress]
    commit_sent: bool = False
    """From now on it may be committed, although no acknowledgement arrived."""


class MySqlWriter:
    """Writes net changes. A ``UnitWriter``; picklable before ``open``.

    Each transaction has up to :data:`TRANSACTION_ROWS` rows, of several tables if they are small. With a ``commit``, one
    transaction has everything and the ledger's update. If the rows of a table are refused, it is rolled back to its savepoint. With
    dead letters, rows refused because of a value, in a table with a key, are found by bisection, and the others are written. A
    table without key is one transaction with its own ledger row, by which a repetition finds that it is already applied.
    """

    def __init__(self, settings: MySqlSettings, claim: Claim, verified: Collection[TableId] = ()) -> None:
        """``claim`` is the run's hold on the ledger.

        ``verified`` are tables whose handle key is known to have a unique index. The writer checks all other tables on the server.
        """
        self._settings, self._claim = settings, claim
        self._verified = set(verified)
        self._ledger = SqlLedger(MYSQL, settings.ledger_database)
        self._slot: WriterSlot | None = None
        self._notices: list[Notice] = []
        self._letters: dict[TableId, set[str]] = defaultdict(set)
        self._read_letters: Mapping[TableId, int] = {}

    def open(self, context: WriterContext) -> None:
        """Connects and takes the slot. Raises SinkUnreachableError, FencedError."""
        self._slot = WriterSlot(self._settings, self._claim, context)
        self._repeat(self._connected, "Taking a writer slot")

    def write(self, changes: Iterable[TableChange], commit: CutCommit | None) -> list[WriteOutcome]:
        """Applies the changes and commits; see ``UnitWriter.write``."""
        self._letters.clear()
        self._read_letters = commit.new_letters if commit is not None else {}
        changes = list(changes)
        failed = bag.without_progress(changes, commit, self._own_context().advice)
        of_change = self._settled(changes, failed)
        fresh = {change.table_id: WriteOutcome(change.table_id, target=change.target) for change in changes}
        written = dict(fresh)
        for net in of_change:
            outcome = written[net.change.table_id]
            written[net.change.table_id] = replace(outcome, netted=outcome.netted + net.netted)
        for transaction in _transactions(of_change, whole=commit is not None):
            self._write_transaction(transaction, failed, commit)
            for table_id, pieces in transaction.tables.items():
                written[table_id] = _with_pieces(written[table_id], pieces)
        # The first outcome of a table counts for all of its changes.
        outcomes = [
            replace(fresh[t], problem=failed[t]) if t in failed else written.pop(t, fresh[t])
            for t in (change.table_id for change in changes)
        ]
        for number, outcome in enumerate(outcomes):
            outcomes[number] = _without_refused(outcome, self._letters.pop(outcome.table_id, set()))
        if outcomes and self._notices:
            outcomes[0] = replace(outcomes[0], notices=tuple(self._notices))
            self._notices = []
        return outcomes

    def _write_transaction(self, transaction: _Transaction, failed: dict[TableId, Problem], commit: CutCommit | None) -> None:
        """Applies the transaction, in the end without tables that stop; these are added to ``failed``."""
        while True:
            try:
                attempt = partial(self._apply_transaction, transaction, failed, commit)
                failed |= self._repeat(attempt, "Writing to the target")
                return
            except refusal.Unforeseen as error:
                failed[error.problem.table_id] = error.problem
                self._own_slot().leave()

    def _settled(self, changes: Sequence[TableChange], failed: dict[TableId, Problem]) -> list[Settled]:
        """What must be written of each change. Adds the problems of tables of which nothing can be written to ``failed``."""
        found = []
        for change in changes:
            if change.ordered.num_rows == 0:
                found.append(unsettled(change))
                continue
            try:
                found.append(self._repeat(partial(self._settle, change), "Asking the target which keys are equal"))
            except refusal.Refused as error:
                failed[change.table_id] = of_source(error.problem, change.table_id)
                if isinstance(error, refusal.Unforeseen):
                    self._own_slot().leave()
        return found

    def _settle(self, change: TableChange) -> Settled:
        session = self._connected()
        with refusal.of_one_table(change.table_id, session):
            found = settled(session, change)
        session.rollback()  # so that the next statements see the tables as they are then
        return found

    def _repeat(self, action: Callable[[], _T], what: str) -> _T:
        try:
            return repeat(action, what, self._own_slot().recover)
        except pymysql.err.MySQLError as error:  # an error about a table's rows is one of its problems
            raise refusal.of_ledger(error, self._own_slot().session, self._settings.ledger_database) from None

    def commits(self) -> tuple[Commits, ...]:
        """See ``UnitWriter.commits``."""
        return self._own_slot().commits()

    def close(self) -> None:
        self._own_slot().close()

    def _connected(self) -> MySqlSession:
        """The session with its slot. Created again after a loss."""
        slot = self._own_slot()
        is_new = slot.session is None
        session = slot.connected()
        if is_new and self._settings.local_infile and not session.local_infile and not session.is_tidb:
            self._note_slow_way()
        return session

    def _own_slot(self) -> WriterSlot:
        if self._slot is None:
            raise RuntimeError("the writer was not opened")
        return self._slot

    def _own_context(self) -> WriterContext:
        return self._own_slot().context

    def _apply_transaction(
        self, transaction: _Transaction, failed: dict[TableId, Problem], commit: CutCommit | None
    ) -> dict[TableId, Problem]:
        """Runs and commits the transaction. Returns the tables that were refused in it."""
        slot, session = self._own_slot(), self._connected()
        problems: dict[TableId, Problem] = {}
        reached: list[TableProgress] = []
        refused: dict[TableId, list[Letter]] = {}
        try:
            for table_id, pieces in transaction.tables.items():
                if table_id in failed or self._is_applied(session, transaction, table_id):
                    continue
                problem = self._write_table(session, table_id, pieces, refused.setdefault(table_id, []))
                if problem is not None:
                    problems[table_id] = problem
                    del refused[table_id]
                elif table_id in transaction.bags:
                    reached.append(transaction.bags[table_id])
            self._put_letters(refused)
            if commit is not None:
                counts = {table_id: len(letters) for table_id, letters in refused.items()}
                update = commit.update({**failed, **problems}.values(), counts, reached)
                self._ledger.write_update(session, self._claim, update, repeated=transaction.commit_sent)
            elif reached:
                self._ledger.put_tables(session, self._claim, reached)
            slot.prove()
            transaction.commit_sent = True
            slot.commit()
        except TransientError:  # another task has the slot: continuing would take it back
            self.close()
            raise
        return problems

    def _is_applied(self, session: MySqlSession, transaction: _Transaction, table_id: TableId) -> bool:
        """Whether an earlier try committed a table without key. Raises TransientError if another task committed it."""
        target = transaction.bags.get(table_id)
        if target is None:
            return False
        checkpoint = self._ledger.rows.lock(session, self._own_context().pipeline, *target.pair)
        if checkpoint is None or checkpoint < target.checkpoint:
            return False
        if transaction.commit_sent:
            return True
        raise TransientError(
            f"Table {table_id} stands at {checkpoint} already, though its changes were read from before; they are planned again."
        )

    def _put_letters(self, refused: Mapping[TableId, list[Letter]]) -> None:
        """Writes the dead letters, before anything of the transaction is committed."""
        letters = self._own_context().letters
        for table_id, found in refused.items():
            with refusal.of_one_table(table_id, None):
                self._letters[table_id].update(letters.put(found) if letters is not None and found else ())

    def _write_table(self, session: MySqlSession, table_id: TableId, pieces: list[_Piece], refused: list[Letter]) -> Problem | None:
        """Writes the pieces of a source's table, if there are any. Rows refused because of a value are added to ``refused``.

        Returns the problem if nothing was written.
        """
        session.run("SAVEPOINT headrace_table")
        try:
            with refusal.of_one_table(table_id, session):
                for piece in pieces:
                    self._write_piece(session, piece, refused)
        except refusal.Unforeseen:
            raise
        except refusal.Refused as error:
            session.run("ROLLBACK TO SAVEPOINT headrace_table")
            problem = of_source(error.problem, table_id)
            if self._own_context().letters is not None and error.by_value:
                return no_letters_of_bags(problem) if not pieces[0].schema.handle_key else problem
            return problem
        return None

    def _write_piece(self, session: MySqlSession, piece: _Piece, refused: list[Letter]) -> None:
        piece = replace(piece, schema=handle.with_plain_columns(session, piece.schema))
        if piece.table_id not in self._verified:
            require_fit(session, piece.schema, self._settings, replays=False)
            self._verified.add(piece.table_id)
        if self._own_context().letters is None or not piece.schema.handle_key:
            self._apply(session, piece)
        else:
            self._apply_sound(session, piece, refused)

    def _apply_sound(self, session: MySqlSession, piece: _Piece, refused: list[Letter]) -> None:
        """Applies all rows of the piece that the server accepts, in order. The others are added to ``refused``."""
        session.run("SAVEPOINT headrace_piece")
        try:
            self._apply(session, piece)
            return
        except refusal.Refused as error:
            if not error.by_value:
                raise
            session.run("ROLLBACK TO SAVEPOINT headrace_piece")
            if piece.rows.num_rows == 1:
                row = piece.rows.select([name for name in piece.rows.column_names if name != SIGHT])
                refused.extend(row_letters({0: error.problem}, row, piece.change.schema, piece.change.version, piece.change.lo))
                self._require_few(piece.change.table_id, refused, error)
                return
        middle = piece.rows.num_rows // 2
        for rows in (piece.rows.slice(0, middle), piece.rows.slice(middle)):
            self._apply_sound(session, replace(piece, rows=rows), refused)

    def _require_few(self, table_id: TableId, refused: list[Letter], error: refusal.Refused) -> None:
        """Raises refusal.Refused if the table has too many letters."""
        letters = self._own_context().letters
        names = self._letters[table_id] | {letter.name for letter in refused}
        count = len(names) + self._read_letters.get(table_id, 0)
        last = of_source(error.problem, table_id)
        problem = letters.too_many(table_id, count, last) if letters is not None else None
        if problem is not None:
            raise refusal.Refused(problem)

    def _apply(self, session: MySqlSession, piece: _Piece) -> None:
        watched = piece.change.watch is not None
        if piece.action is _Action.DELETE:
            if watched:
                _delete_watched(session, piece)
            else:
                _delete(session, piece)
        elif piece.action is _Action.TAKE_AWAY:
            columns = _written(piece)
            bag.take_away(session, piece.table_id, columns, piece.rows.select([column.name for column in columns]))
        elif watched and piece.action is not _Action.INSERT:
            self._put_watched(session, piece)
        else:
            self._put(session, piece)

    def _put(self, session: MySqlSession, piece: _Piece) -> int:
        """Writes rows. Returns how many the server inserted and replaced."""
        if session.local_infile:
            affected = _load(session, piece)
            if affected is not None:
                return affected
            session.local_infile = False
            self._note_slow_way()
        return _replace(session, piece)

    def _put_watched(self, session: MySqlSession, piece: _Piece) -> None:
        """Writes rows. Raises refusal.Refused if one would replace another row whose key is equal only by a collation.

        The number of replaced rows nearly always shows that no further check is needed.
        """
        spellings = Spellings(session, piece.change)
        for rows, expected in spellings.expectations(piece.rows, last_spellings=piece.last_spellings):
            part = replace(piece, rows=rows)
            if expected is None:
                self._put(session, part)
                continue
            session.run("SAVEPOINT headrace_spellings")
            if self._put(session, part) - rows.num_rows in expected:
                continue
            session.run("ROLLBACK TO SAVEPOINT headrace_spellings")
            for chunk in spellings.turns(rows):
                spellings.refuse(chunk)
                _replace(session, replace(part, rows=chunk))

    def _note_slow_way(self) -> None:
        self._notices.append(
            Notice(
                f"{self._settings.identity} does not allow LOAD DATA LOCAL INFILE, so rows are written by REPLACE statements at "
                "about half the speed; SET GLOBAL local_infile = ON changes that, local-infile=off in the URI silences this."
            )
        )


def _transactions(changes: Sequence[Settled], *, whole: bool) -> Iterator[_Transaction]:
    """All changes in order, divided into transactions; ``whole``: always exactly one, even if it is empty."""
    keyed = [piece for net in changes if net.change.schema.handle_key for piece in _pieces(net)]
    bags: dict[TableId, list[Settled]] = defaultdict(list)
    for net in changes:
        if net.change.progress is not None and not net.change.schema.handle_key:
            bags[net.change.table_id].append(net)
    of_bags = {table_id: [piece for net in of_table for piece in _pieces(net)] for table_id, of_table in bags.items()}
    reached = {table_id: _furthest([net.change for net in of_table]) for table_id, of_table in bags.items()}
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
        tables[piece.change.table_id].append(piece)
    return dict(tables)


def _portions(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    """The pieces in order, in groups that one transaction may have."""
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


def _pieces(net: Settled) -> Iterator[_Piece]:
    change = net.change

    def cut(action: _Action, rows: pa.Table, *, last_spellings: bool = False) -> Iterator[_Piece]:
        for part in in_pieces(rows, TRANSACTION_BYTES, TRANSACTION_ROWS):
            yield _Piece(change.target, change.target_schema, action, part, change, last_spellings)

    if not change.schema.handle_key:
        # Deletes first: the value of a nullable unique key, which is not a handle key, may move from one row to another.
        yield from cut(_Action.TAKE_AWAY, net.deletes)
        yield from cut(_Action.INSERT, change.upserts)
        return
    yield from cut(_Action.DELETE, net.deletes)
    yield from cut(_Action.LOAD, net.last_spellings, last_spellings=True)
    yield from cut(_Action.LOAD, change.upserts)


def _delete_watched(session: MySqlSession, piece: _Piece) -> None:
    """Deletes rows. Raises refusal.Refused if one is another row, whose key is equal only by a collation."""
    spellings = Spellings(session, piece.change)
    for rows, is_born in spellings.expected_deletes(piece.rows):
        part = replace(piece, rows=rows)
        if is_born:
            session.run("SAVEPOINT headrace_spellings")
        if _delete(session, part) and is_born:
            session.run("ROLLBACK TO SAVEPOINT headrace_spellings")
            spellings.refuse_deletes(rows)
            _delete(session, part)


def _delete(session: MySqlSession, piece: _Piece) -> int:
    """Deletes rows. Returns how many of them the target had."""
    key = [piece.schema.column(name) for name in piece.schema.handle_key]
    return _run_all(session, piece, deletions(piece.table_id, key, piece.rows, most_bytes(session)))


def _replace(session: MySqlSession, piece: _Piece) -> int:
    """Writes rows by REPLACE. Returns how many rows the server inserted and replaced."""
    verb = "INSERT" if piece.action is _Action.INSERT else "REPLACE"
    statements = insertions(verb, piece.table_id, _written(piece), piece.rows, most_bytes(session), _REPLACE_ROWS)
    return _run_all(session, piece, statements)


def _run_all(session: MySqlSession, piece: _Piece, statements: Statements) -> int:
    """Runs the statements. Returns how many rows they affected."""
    affected = 0
    for text, rows in statements:
        _run(session, piece, text, rows)
        affected += session.affected
    return affected


def _run(session: MySqlSession, piece: _Piece, statement: bytes, rows: pa.Table) -> None:
    try:
        warnings = session.run(statement)
    except pymysql.err.MySQLError as error:
        if classify(error) is ErrorClass.REFUSED:
            raise refusal.from_error(error, piece.table_id, session, rows, piece.schema) from None
        raise
    _reject_warnings(session, piece, warnings, rows)


def _load(session: MySqlSession, piece: _Piece) -> int | None:
    """Loads the rows. Returns how many the server inserted and replaced; ``None`` if the server does not allow it."""
    columns = _written(piece)
    rows = piece.rows.select([column.name for column in columns])
    targets, assignments = load_assignments(columns)
    verb = "" if piece.action is _Action.INSERT else "REPLACE "
    statement = (
        f"LOAD DATA LOCAL INFILE '{{file}}' {verb}INTO TABLE {qualified(piece.table_id)} CHARACTER SET utf8mb4"
        f" FIELDS TERMINATED BY '\\t' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n' ({targets}){assignments}"
    )
    try:
        warnings = session.load(statement, load_text(rows, columns))
    except pymysql.err.MySQLError as error:
        if error_code(error) in _LOCAL_DISABLED:
            return None
        if classify(error) is ErrorClass.REFUSED:
            raise refusal.from_error(error, piece.table_id, session, rows, piece.schema) from None
        raise
    affected = session.affected
    _reject_warnings(session, piece, warnings, rows)
    return affected


def _reject_warnings(session: MySqlSession, piece: _Piece, warnings: int, rows: pa.Table) -> None:
    """Raises refusal.Refused for a warning about the data, since a value may have been changed to fit.

    LOCAL turns errors into warnings, because the server cannot stop the client.
    """
    refused = refusal.from_warnings(session, piece.table_id, rows, piece.schema) if warnings else None
    if refused is not None:
        raise refused


def _written(piece: _Piece) -> list[Column]:
    carried = frozenset(piece.rows.column_names)
    return [column for column in piece.schema.written_columns if column.name in carried]


def _without_refused(outcome: WriteOutcome, letters: Collection[str]) -> WriteOutcome:
    """The outcome, with the rows that became letters counted as refused."""
    upserts = min(len(letters), outcome.upserts)
    deletes = min(len(letters) - upserts, outcome.deletes)
    return replace(
        outcome,
        letters=tuple(sorted(letters)),
        upserts=outcome.upserts - upserts,
        deletes=outcome.deletes - deletes,
        refused=upserts + deletes,
    )


def _with_pieces(outcome: WriteOutcome, pieces: Iterable[_Piece]) -> WriteOutcome:
    """The outcome of a table, with the rows that were sent for it."""
    upserts = deletes = 0
    for piece in pieces:
        if piece.action in (_Action.DELETE, _Action.TAKE_AWAY):
            deletes += piece.rows.num_rows
        else:
            upserts += piece.rows.num_rows
    return replace(outcome, upserts=outcome.upserts + upserts, deletes=outcome.deletes + deletes)
