"""Whether a schema change can be interpreted. Its statement is only meaningful together with the table's previous shape. Pure.

In storage only schema files carry shapes. If one was damaged or removed after its change was applied, it leaves a hole: a later
ALTER TABLE would be misread, a renamed column as a new one, and a dropped one as no change. A stream tells a schema change once,
and the ledger keeps the table's newest shape and partitions, which answer for all changes up to it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

from headrace.ddl.statement import StatementKind, read_statement
from headrace.model.commands import in_quotes
from headrace.model.events import DeletePartitionRowsEvent, ExchangePartitionEvent, SchemaChange, is_unread_statement
from headrace.model.ledger import JournalEntry, JournalState, LedgerState
from headrace.model.outcome import Problem, Remedy
from headrace.model.table import TableId


class History:
    """What was done to each table according to the ledger, and what the source still has of it."""

    def __init__(self, state: LedgerState, changes: Iterable[SchemaChange], *, forgets: bool = False) -> None:
        """``forgets``: the source tells each schema change once (``EventSource.needs_shapes``)."""
        self._state = state
        self._changes = changes
        self._forgets = forgets

    @cached_property
    def _told(self) -> Mapping[TableId, Sequence[Sequence[int]]]:
        """The commit ts (TSO) of each table's changes that the source still has, in order, by the set of tables they touch."""
        of_set: dict[frozenset[TableId], list[int]] = defaultdict(list)
        for change in self._changes:
            of_set[change.changes].append(change.commit_ts)
            if change.reads:
                of_set[change.reads].append(change.commit_ts)
        told: dict[TableId, list[list[int]]] = defaultdict(list)
        for tables, at in of_set.items():
            at.sort()
            for table_id in tables:
                told[table_id].append(at)
        return told

    @cached_property
    def _done(self) -> Mapping[TableId, list[int]]:
        """The commit ts (TSO) of settled changes in the journal, in order.

        Left out are changes that a person let pass unread, and shapes that made no table, since that was loaded.
        """
        return self._done_at(lambda entry: entry.tables)

    @cached_property
    def _done_to_shapes(self) -> Mapping[TableId, list[int]]:
        """Those of ``_done`` that may have changed the columns or partitions of a table.

        A statement does so to its own table. Several names in one RENAME may have changed hands in any order.
        """
        return self._done_at(_reshaped)

    def _done_at(self, concerned: Callable[[JournalEntry], Iterable[TableId]]) -> Mapping[TableId, list[int]]:
        done: dict[TableId, set[int]] = defaultdict(set)
        for entry in self._state.journal.values():
            made_none = entry.state is JournalState.SKIPPED and not entry.statement
            if entry.state.is_settled and not made_none and not is_unread_statement(entry.statement):
                for table_id in concerned(entry):
                    done[table_id].add(entry.commit_ts)
        return {table_id: sorted(at) for table_id, at in done.items()}

    def hole(self, change: SchemaChange) -> Problem | None:
        """The problem if an ALTER TABLE cannot be interpreted, because the schema file of an applied earlier change is missing.

        A schema file has the whole shape, so the newest earlier change is enough, except for partitions, which build up over
        statements.
        """
        if read_statement(change.statement, change.database).kind is not StatementKind.ALTER_TABLE:
            return None
        needs_all = any(isinstance(event, DeletePartitionRowsEvent | ExchangePartitionEvent) for event in change.events)
        for table_id in sorted(change.changes):
            at = self._untold(table_id, change.commit_ts, needs_all=needs_all) if table_id.table else None
            if at is not None:
                return (_hole_in_ledger if self._forgets else _hole)(change, table_id, at)
        return None

    def missing_before(self, change: SchemaChange) -> Problem | None:
        """The problem if the change's statement does not explain its table's shape: a schema change before it never arrived."""
        if not change.unexplained:
            return None
        earlier = (at[place - 1] for at in self._told.get(change.table_id, ()) if (place := bisect_left(at, change.commit_ts)))
        after = max(earlier, default=0)
        statement = " ".join(change.statement.split()) or "a change of shape"
        message = (
            f"Headrace cannot tell what its schema change at {change.commit_ts} does ({statement}): {change.unexplained}. A schema "
            f"change of {change.table_id} {f'between {after} and' if after else 'before'} {change.commit_ts} is missing, perhaps "
            "because an event filter of the changefeed leaves it out."
        )
        where = "next to its other schema files, with its statement and the table's shape after it" if change.file else "there"
        hint = (
            f"Put the missing schema file {where}, if you can. Or make both changes in the target by hand, and decide with "
            f"headrace ddl skip {in_quotes(change.identity)}."
        )
        return Problem(change.table_id, message, place=change.origin, hint=hint, remedy=Remedy.DECISION)

    def hole_in_shape(self, table_id: TableId, below: int) -> Problem | None:
        """The problem if the newest shape of a table below a commit ts (TSO) is unknown: its applied schema file is missing."""
        at = self._untold(table_id, below, needs_all=False)
        if at is None:
            return None
        if self._forgets:
            message = f"it has rows with the columns of another version, and its columns since {at} are not known any more."
            return Problem(table_id, message, hint="Begin the pipeline anew: headrace reset.")
        message = f"it has rows with the columns of another version, and its applied schema file at {at} is damaged or missing."
        return Problem(table_id, message, hint="Put that schema file back.")

    def _untold(self, table_id: TableId, below: int, *, needs_all: bool) -> int | None:
        """The commit ts (TSO) of an applied change of the present table for which there is no file any more."""
        own = self._state.tables.get(table_id)
        if own is None or own.status.is_gone or own.incarnation >= below:
            return None
        told, needed = self._told.get(table_id, ()), _between(self._done.get(table_id, []), own.incarnation, below)
        kept = [shape.version for shape in self._state.shapes_by_table.get(table_id, ())]
        if known := _between(kept, own.incarnation, below):
            # A shape is kept with the partitions. A change behind it is needed, as its shape is not kept.
            needed = _between(self._done_to_shapes.get(table_id, []), known[-1] + 1, below)
        elif needed and not needs_all:
            needed = needed[-1:]
        elif not needed and own.incarnation and own.is_made:
            # The journal has already dropped the change that created the table. A later change the source still has is enough.
            needed = () if any(_is_any_among(at, own.incarnation, below) for at in told) else (own.incarnation,)
        return next((ts for ts in needed if not any(_is_any_among(at, ts, ts + 1) for at in told)), None)


def _between(ordered: Sequence[int], begin: int, end: int) -> Sequence[int]:
    """Those of the numbers that are in ``[begin, end)``."""
    return ordered[bisect_left(ordered, begin) : bisect_left(ordered, end)]


def _reshaped(entry: JournalEntry) -> Iterable[TableId]:
    """The tables whose columns or partitions a change may have changed."""
    own = TableId.of_key(entry.place.partition("/")[2])
    return entry.tables if read_statement(entry.statement, own.database).renames else (own,)


def _is_any_among(ordered: Sequence[int], begin: int, end: int) -> bool:
    """Whether one of the numbers is in ``[begin, end)``."""
    place = bisect_left(ordered, begin)
    return place < len(ordered) and ordered[place] < end


def _hole(change: SchemaChange, table_id: TableId, at: int) -> Problem:
    message = (
        f"Headrace cannot tell what its schema change at {change.commit_ts} does ({' '.join(change.statement.split())}): the "
        f"schema file of {table_id} at {at}, which was applied, is now damaged or missing."
    )
    hint = f"Put that file back. Or decide with headrace ddl skip|edit {in_quotes(change.identity)}."
    return Problem(change.table_id, message, place=change.origin, hint=hint, remedy=Remedy.DECISION)


def _hole_in_ledger(change: SchemaChange, table_id: TableId, at: int) -> Problem:
    message = (
        f"Headrace cannot tell what its schema change at {change.commit_ts} does ({' '.join(change.statement.split())}): the "
        f"columns or partitions of {table_id} since {at} are not known any more."
    )
    hint = f"Make the change in the target by hand, and decide with headrace ddl skip {in_quotes(change.identity)}."
    return Problem(change.table_id, message, place=change.origin, hint=hint, remedy=Remedy.DECISION)
