"""Finds the tables that have the rows of late splits now, by following names through the schema changes applied since. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from headrace.engine.journal import has_run, is_pending
from headrace.model.bearers import Bearers
from headrace.model.events import (
    DropDatabaseEvent,
    DropTableEvent,
    ExchangePartitionEvent,
    RenameTableEvent,
    SchemaChange,
    SchemaChangeEvent,
    TruncateTableEvent,
)
from headrace.model.ledger import LedgerState, TableProgress, TableStatus
from headrace.model.offer import Offer
from headrace.model.outcome import Notice, SplitReport, missing_rows, told_of_bearers
from headrace.model.split import Split
from headrace.model.table import TableId, folded_name
from headrace.model.tso import MAX_TSO
from headrace.sinks.base import LedgerUpdate

_MOVES = (RenameTableEvent, ExchangePartitionEvent, TruncateTableEvent, DropTableEvent, DropDatabaseEvent)


class _Step(NamedTuple):
    """An applied schema change that moved rows to another name or removed them. ``ran``: it was not skipped."""

    commit_ts: int
    events: tuple[SchemaChangeEvent, ...]
    ran: bool


def bearers(state: LedgerState, offer: Offer) -> dict[str, Bearers]:
    """The tables that have the rows of late splits now, by the splits' keys, if that is not just the table of their name."""
    late = [split for split in offer.splits if split.is_late]
    if not late:
        return {}
    steps = _steps(state, offer.schema_changes, min(split.version for split in late))
    of_name: dict[TableId, list[int]] = defaultdict(list)
    for number, step in enumerate(steps):
        for table_id in {t for event in step.events for t in _named(event)}:
            of_name[table_id].append(number)

    def of(name: TableId, version: int) -> Bearers:
        numbers = sorted({*of_name.get(name, ()), *of_name.get(_database(name.database), ())})
        ends = [number for number in numbers if steps[number].commit_ts > version]
        lives = [(steps[number].commit_ts, _bearing(state, name, steps[number:])) for number in ends]
        if not lives:
            return Bearers(())
        return Bearers(tuple(_but_for_loaded(state, (*lives, (MAX_TSO, _bearing(state, name, ()))))), until=lives[0][0])

    found = {(name, version): of(name, version) for name, version in {(split.table_id, split.version) for split in late}}
    known = {split.key: found[split.table_id, split.version] for split in late}
    return {key: bearing for key, bearing in known.items() if bearing.lives}


def of_former_lives(state: LedgerState, splits: Iterable[Split], known: Mapping[str, Bearers]) -> list[Split]:
    """The splits, with those marked whose rows are now partly in other tables.

    If the table with the name of a split began later than the split, none of the rows should belong to it.
    """

    def marked(split: Split, bearers: Bearers) -> Split:
        own = state.tables.get(split.table_id)
        is_former = own is not None and own.is_made and split.version < own.incarnation and not split.begun
        return replace(split, of_others=True, ends=bearers.until if is_former else 0)

    return [marked(split, known[split.key]) if split.key in known else split for split in splits]


def of_gone_tables(
    state: LedgerState,
    splits: Iterable[Split],
    known: Mapping[str, Bearers],
    changed: Collection[TableId],
    takes_part: Callable[[TableId], bool],
) -> list[Split]:
    """The late splits of tables that are gone, each as one of a table that has its rows now, to report missing rows there.

    This includes splits of an earlier table whose name now belongs to a left-out one. It excludes names that this cut gives to a
    table, since the cut has ``changed`` them: such a split may belong to that table.
    """
    found = []
    for split in splits:
        own = state.tables.get(split.table_id)
        if split.key not in known or split.begun or own is None or own.table_id in changed:
            continue
        if own.status.is_gone or (own.status is TableStatus.EXCLUDED and split.version < own.incarnation):
            bearing = sorted(filter(takes_part, known[split.key].tables))
            until = known[split.key].until
            found += [replace(split, table_id=t, of_others=True, of_gone=True, ends=until) for t in bearing[:1]]
    return found


def missing_of(
    state: LedgerState, offer: Offer, reports: Iterable[SplitReport]
) -> tuple[tuple[TableProgress, ...], tuple[Notice, ...]]:
    """The rows of tables for which these reports show missing rows, and the notices.

    ``state`` is the state in which the splits count as read: a schema change before that may move or remove the rows.
    """
    found = [report for report in reports if any(notice.missing is not None for notice in report.notices)]
    if not found:
        return (), ()
    told = told_of_bearers(found, bearers(state, offer))
    rows = ((state.tables.get(table_id), reason) for table_id, reason in missing_rows(told).items())
    noted = tuple(replace(own, lacks=own.lacks or reason) for own, reason in rows if own is not None)
    tables = {own.table_id for own in noted}
    return noted, tuple(n for report in told for n in report.notices if n.missing is not None and n.table_id in tables)


def with_missing(update: LedgerUpdate, state: LedgerState, offer: Offer, reports: Iterable[SplitReport]) -> LedgerUpdate:
    """The ledger step, with the tables that miss rows according to the reports of the splits that count as read with it."""
    rows, _ = missing_of(update.applied_to(state), offer, reports)
    return replace(update, tables=tuple({row.pair: row for row in (*update.tables, *rows)}.values())) if rows else update


def _steps(state: LedgerState, changes: Iterable[SchemaChange], since: int) -> Sequence[_Step]:
    """The changes after a commit ts (TSO) that were applied, in order."""
    steps = []
    for change in changes:
        events = tuple(event for event in change.events if isinstance(event, _MOVES))
        if events and change.commit_ts > since and not is_pending(state, change):
            entry = state.journal.get(change.identity)
            steps.append(_Step(change.commit_ts, events, entry is None or has_run(entry, change)))
    return sorted(steps, key=lambda step: step.commit_ts)


def _named(event: SchemaChangeEvent) -> tuple[TableId, ...]:
    """The tables whose rows the event moves or removes. A database stands for all tables in it."""
    match event:
        case RenameTableEvent(old, new):
            return old, new
        case ExchangePartitionEvent(first, second):
            return first, second
        case TruncateTableEvent(table_id) | DropTableEvent(table_id):
            return (table_id,)
        case DropDatabaseEvent(database):
            return (_database(database),)
        case _:
            return ()


def _database(name: str) -> TableId:
    return TableId(folded_name(name))


def _bearing(state: LedgerState, name: TableId, steps: Sequence[_Step]) -> frozenset[TableId]:
    """The tables that now have the rows that a name had before these steps. After a skipped DROP the target still has them."""
    tables, left = {name}, set[TableId]()
    for step in steps:
        for event in step.events:
            left |= {t for t in tables if not step.ran and not _behind(event, t, ran=True)}
            tables = {t for table_id in tables for t in _behind(event, table_id, ran=step.ran)}
    there = (t for t in tables if t == name or t in state.tables)
    return frozenset(t for t in there if t in left or not (t in state.tables and state.tables[t].status.is_gone))


def _but_for_loaded(
    state: LedgerState, lives: Iterable[tuple[int, frozenset[TableId]]]
) -> Iterator[tuple[int, frozenset[TableId]]]:
    """The lives, split up so that each part has only the tables that were not loaded since."""
    before = 0
    for up_to, tables in lives:
        loaded = {t: state.tables[t].loaded if t in state.tables else 0 for t in tables}
        for end in sorted({up_to, *(at for at in loaded.values() if before < at < up_to)}):
            yield end, frozenset(t for t, at in loaded.items() if at < end)
        before = up_to


def _behind(event: SchemaChangeEvent, table_id: TableId, *, ran: bool) -> tuple[TableId, ...]:
    """Where the rows of a table are after an event. It is unknown which rows a partition had."""
    match event:
        case RenameTableEvent(old, new) if old == table_id:
            return (new,)
        case ExchangePartitionEvent(first, second) if table_id in (first, second):
            return (first, second) if table_id == first else (first,)
        case TruncateTableEvent(emptied) | DropTableEvent(emptied) if ran and emptied == table_id:
            return ()
        case DropDatabaseEvent(database) if ran and table_id.lies_in(database):
            return ()
        case _:
            return (table_id,)
