"""Schema changes that cannot be read, now or any more: which tables wait for them, and what a person may decide. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import replace

from headrace.ddl.classify import classify
from headrace.ddl.statement import StatementKind, read_statement
from headrace.engine.excluded_tables import Followed
from headrace.engine.journal import is_before, is_pending, reached
from headrace.model.commands import in_quotes, word
from headrace.model.events import SchemaChange, is_unread_statement
from headrace.model.ledger import JournalEntry, JournalState, LedgerState, TableProgress, TableStatus, Verdict
from headrace.model.offer import Offer
from headrace.model.outcome import Problem
from headrace.model.table import TableId


def is_given_up(state: LedgerState, change: SchemaChange) -> bool:
    """Whether a person decided not to wait until the change can be read."""
    decision = state.decisions.get(change.identity)
    return decision is not None and decision.verdict is not Verdict.APPROVE


_FEW = 16


def is_understood(change: SchemaChange) -> bool:
    """Whether it is known which tables the change touches. Otherwise its ``changes`` are all tables that it may concern."""
    return change.unread is None and read_statement(change.statement, change.database).kind is not StatementKind.UNKNOWN


_KEPT = 100


def kept_unread(changes: Iterable[SchemaChange]) -> list[SchemaChange]:
    """The unreadable changes that the journal keeps for people, whether or not they hold a table.

    These are all changes that may concern only a few tables, but only the first of the others, because an entry lists all of its
    tables.
    """
    kept, others = [], 0
    for change in changes:
        is_large = len(change.changes) > _FEW
        others += is_large
        if not is_large or others <= _KEPT:
            kept.append(change)
    return kept


def known_names(change: SchemaChange) -> frozenset[TableId]:
    """The tables that the change is known to touch, without the many tables that wait only because this is unknown."""
    touched = change.touches
    return touched if len(touched) <= _FEW or is_understood(change) else frozenset({change.table_id})


def of_those_before(state: LedgerState, change: SchemaChange, follows: Followed, before: TablesBefore) -> SchemaChange:
    """The change limited to tables that have not passed it. Its own table stays before it if its rows would lack their shape.

    If it is unknown to which table its rows belong, they may belong to any table that existed and that the source does not mention
    by then.
    """
    ts = change.commit_ts
    concerned = before.among(change.changes, ts)
    if change.is_nobodys:
        known = {t: own for t, own in state.tables.items() if t.table and not own.status.is_gone and t not in change.changes}
        concerned |= {t for t, own in known.items() if own.incarnation <= ts <= follows.end(t)}
    if change.has_rows and is_given_up(state, change):
        concerned -= {change.table_id}
    return change if concerned == change.changes else replace(change, changes=concerned)


class TablesBefore:
    """Finds tables that have not passed a commit ts, in sets that many changes share. Each set is scanned once for all changes."""

    def __init__(self, state: LedgerState, follows: Followed) -> None:
        self._state, self._follows = state, follows
        self._bounds: dict[frozenset[TableId], tuple[list[int], list[int]]] = {}
        self._found: dict[tuple[frozenset[TableId], int, int], frozenset[TableId]] = {}

    def among(self, tables: frozenset[TableId], commit_ts: int) -> frozenset[TableId]:
        """The tables that are followed up to a commit ts (TSO) and have not passed it; the same set object if these are all."""
        if tables not in self._bounds:
            self._bounds[tables] = (
                sorted({reached(self._state, t) for t in tables}),
                sorted({self._follows.end(t) for t in tables}),
            )
        reaches, ends = self._bounds[tables]
        key = tables, bisect_right(reaches, commit_ts), bisect_left(ends, commit_ts)
        if key not in self._found:
            found = frozenset(t for t in tables if self._follows.end(t) >= commit_ts and is_before(self._state, t, commit_ts))
            self._found[key] = tables if len(found) == len(tables) else found
        return self._found[key]


def lacks_shape(state: LedgerState, change: SchemaChange) -> bool:
    """Whether rows wait for a shape that cannot be read, though no table waits for the change itself any more."""
    if is_pending(state, change) and not is_given_up(state, change):
        return False
    is_first = change.commit_ts <= state.start and change.table_id not in state.tables
    return change.has_rows or is_first


def without_shape(change: SchemaChange, problem: Problem) -> Problem:
    """The problem of a table whose rows lack their shape."""
    if not change.has_rows:
        return problem
    hint = (
        f"{problem.hint} Or give its files up, one by one, with headrace table skip {word(change.table_id)} --file PATH; "
        "headrace table list names them."
    )
    return replace(problem, hint=hint.lstrip())


def untold(state: LedgerState, told: Iterable[SchemaChange]) -> list[SchemaChange]:
    """The changes that the journal has as waiting or begun, and that the source does not have any more.

    Their tables wait before them, because removing a schema file does not undo what was done at the source. ``told`` are all
    changes of the source, in any spelling, readable or not.
    """
    unsettled = [e for e in state.journal.values() if not e.state.is_settled and not is_unread_statement(e.statement)]
    if not unsettled:
        return []
    places = {(change.commit_ts, change.place) for change in told} | state.settled.keys()
    found = (_of_journal(entry) for entry in unsettled if (entry.commit_ts, entry.place) not in places)
    return [change for change in found if is_pending(state, change)]


def _of_journal(entry: JournalEntry) -> SchemaChange:
    """The change as its entry describes it. Only a person can decide what to do about it."""
    table_id = TableId.of_key(entry.place.partition("/")[2])
    events = classify(entry.statement, database=table_id.database, table_id=table_id, before=None, after=None).events
    begun = "was begun (look in the target whether it ran)" if entry.state.may_have_run else "was not applied yet"
    statement = " ".join(entry.statement.split()) or "a change of shape"
    return SchemaChange(
        commit_ts=entry.commit_ts,
        table_id=table_id,
        events=events,
        statement=entry.statement,
        database=table_id.database,
        changes=frozenset(entry.tables),
        doubt=f"its schema change at {entry.commit_ts} {begun}, and its schema file is not there any more: {statement}. Restore "
        f"that file (version {entry.commit_ts} of {table_id}), or do by hand what is needed.",
        known_as=entry.identity,
    )


def outdated(state: LedgerState, offer: Offer, pending: Iterable[SchemaChange]) -> tuple[str, ...]:
    """The journal's waiting changes that have been replaced or have disappeared.

    Either they could not be read and have been read or removed since, or another change in their place was settled or is
    ``pending`` now (its file was repaired, or the plan treats it differently). For a change that was begun, the other one must be
    settled.
    """
    planned = {change.identity: (change.commit_ts, change.place) for change in pending}
    known = {change.identity for change in (*offer.schema_changes, *offer.unread)} | planned.keys()
    replaced = state.settled.keys() | set(planned.values())
    return tuple(
        identity
        for identity, entry in state.journal.items()
        if identity not in known
        and (
            (is_unread_statement(entry.statement) or (entry.commit_ts, entry.place) in replaced)
            if entry.state is JournalState.WAITING
            else entry.state.may_have_run and (entry.commit_ts, entry.place) in state.settled
        )
    )


def is_unborn(own: TableProgress) -> bool:
    """Whether the table has so far only been held before the change that may create it."""
    return own.status.is_stopped and not own.after and own.incarnation == own.checkpoint


def has_never_lived(own: TableProgress) -> bool:
    """Whether the table counts as gone because nothing has created it yet. Its existing files were not needed so far."""
    return own.status is TableStatus.GONE and not own.after and own.checkpoint <= own.incarnation


def cannot_be_read(change: SchemaChange, problem: Problem) -> Problem:
    """The problem with this change, for each table that it may concern."""
    if change.is_nobodys:
        hint = (
            "All tables that existed then wait for it: repair the file, or write one by hand as TiCDC would. If the rows are not "
            f"wanted, move the data files of version {change.commit_ts} away and decide with headrace ddl skip "
            f"{in_quotes(change.identity)}."
        )
        return replace(problem, hint=f"{problem.hint} {hint}".lstrip())
    others = len(change.changes) > 1
    reach = "it may concern several tables, which wait before it: " if others else "the table waits before it: "
    hint = f"{reach}repair the file. Or decide without it, with headrace ddl skip|edit {in_quotes(change.identity)}."
    return replace(problem, hint=f"{problem.hint} {hint[0].upper()}{hint[1:]}".lstrip())
