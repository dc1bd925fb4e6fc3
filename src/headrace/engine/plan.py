"""Planning a cut: from the ledger's state and a source's offer to rounds of schema changes and splits. Pure.

A cut takes everything up to ``hi`` that is not applied yet. Its schema changes get levels (rule 11): one more than the
highest level of an earlier change that touches any object this one changes or reads. A round is the changes of one level
and then the rows of every table between its change of that level and the next. Each split belongs to one table version, so
it belongs to exactly one round, and nothing is decoded twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from headrace.model.cut import Offer, Split, Window
from headrace.model.events import CreateDatabaseEvent, CreateTableEvent, DropDatabaseEvent, OtherEvent, SchemaChange
from headrace.model.outcome import Problem
from headrace.model.progress import JournalState, LedgerState, TableStatus
from headrace.model.table import TableId
from headrace.model.tso import tso_from_ms, tso_to_ms


@dataclass(frozen=True)
class CutRound:
    """Schema changes of one level, in commit order, then the splits whose rows come after them."""

    changes: tuple[SchemaChange, ...] = ()
    splits: tuple[Split, ...] = ()


@dataclass(frozen=True)
class Cut:
    """One unit of progress, planned.

    ``checkpoints`` are the tables' checkpoints before it (TSO), for every table that has splits or changes. ``problems`` are the
    tables that cannot take part, with the reason; their splits and changes are left out.
    """

    hi: int
    rounds: tuple[CutRound, ...] = ()
    windows: Mapping[TableId, Window] = field(default_factory=dict)
    checkpoints: Mapping[TableId, int] = field(default_factory=dict)
    problems: Mapping[TableId, Problem] = field(default_factory=dict)
    has_commit_ts: bool = True
    deletes_first: bool = True

    @property
    def tables(self) -> frozenset[TableId]:
        return frozenset(self.checkpoints)


@dataclass(frozen=True)
class PlanRules:
    """What the definition and the sink say about planning.

    ``includes`` is the table filter; ``until`` bounds ``hi`` (TSO); ``nets``: the sink takes net changes, and ``bags``: those
    of tables without key too;
    ``excluded`` are tables that an earlier try of this cut showed cannot go on; ``retried`` are stopped tables to try again.
    """

    includes: Callable[[TableId], bool]
    until: int | None = None
    nets: bool = True
    bags: bool = False
    excluded: Mapping[TableId, Problem] = field(default_factory=dict)
    retried: frozenset[TableId] = frozenset()


def plan_cut(state: LedgerState, offer: Offer, rules: PlanRules) -> Cut:
    """The cut up to the offer's watermark (or ``until``). Stopped tables take part only when they are in ``rules.retried``."""
    hi = offer.watermark if rules.until is None else min(offer.watermark, rules.until)
    problems = _known_problems(state, offer, rules)
    blocked = set(problems) | {t for t, p in state.tables.items() if p.status is TableStatus.STOPPED and t not in rules.retried}
    bound = min(offer.schema_bound, hi + 1)
    changes = _pending_changes(state, offer, rules, bound)
    # What lies in a version whose schema change is not complete yet waits for it.
    splits = [s for s in offer.splits if s.version < bound and rules.includes(s.table_id) and _may_read(state, s, changes)]
    if rules.nets:
        _reject_keyless(splits, problems, rules, offer)
        blocked |= set(problems)
    changes, problems = _without_blocked(state, changes, blocked, problems)
    blocked |= set(problems)
    splits = [s for s in splits if s.table_id not in blocked]
    tables = {s.table_id for s in splits} | {t for c in changes for t in c.changes}
    checkpoints = {t: state.table_checkpoint(t) for t in tables | set(problems)}
    windows = {t: _window(checkpoints[t], hi, offer) for t in tables}
    return Cut(
        hi=hi,
        rounds=_rounds(state, changes, splits),
        windows=windows,
        checkpoints=checkpoints,
        problems=problems,
        has_commit_ts=offer.has_commit_ts,
        deletes_first=offer.deletes_first,
    )


def _window(checkpoint: int, hi: int, offer: Offer) -> Window:
    """From the checkpoint on; where only the millisecond is known, from its first TSO on, whose rows are then taken again."""
    if not offer.has_commit_ts:
        return Window()
    return Window(checkpoint, hi) if offer.deletes_first else Window(tso_from_ms(tso_to_ms(checkpoint)) - 1, hi)


def _known_problems(state: LedgerState, offer: Offer, rules: PlanRules) -> dict[TableId, Problem]:
    problems = dict(rules.excluded)
    for problem in offer.problems:
        if rules.includes(problem.table_id):
            problems.setdefault(problem.table_id, problem)
    return problems


def _pending_changes(state: LedgerState, offer: Offer, rules: PlanRules, bound: int) -> list[SchemaChange]:
    """The schema changes to execute, in order: below the bound, not done, not older than their tables' checkpoints (rule 2)."""
    pending: list[SchemaChange] = []
    created: set[TableId] = set()
    base = _shapes_before(state, offer, rules)
    for change in sorted((*base, *offer.schema_changes), key=_commit_order):
        included = any(rules.includes(t) for t in change.changes)
        if not included or change.commit_ts >= bound or not _is_pending(state, change, change in base):
            continue
        needed = _from_shape_if_unknown(state, change, created)
        if needed.events or needed.statement:
            created |= needed.changes
            pending.append(needed)
    return pending


def _commit_order(change: SchemaChange) -> tuple[int, int]:
    """By commit ts; within one, a database comes to be before its tables and goes after them."""
    kinds = {type(event) for event in change.events}
    place = -1 if CreateDatabaseEvent in kinds else 1 if DropDatabaseEvent in kinds else 0
    return change.commit_ts, place


def _is_pending(state: LedgerState, change: SchemaChange, is_base: bool) -> bool:
    if is_base:
        return True
    entry = state.journal.get(change.identity)
    if entry is not None and entry.state is JournalState.DONE:
        return False
    applied = [state.table_checkpoint(t) for t in change.changes]
    # A run that begins at `start` takes later changes only: what lies before is in the target already.
    known = any(t in state.tables for t in change.changes)
    return change.commit_ts >= max(applied) if known else change.commit_ts >= state.start


def _shapes_before(state: LedgerState, offer: Offer, rules: PlanRules) -> list[SchemaChange]:
    """For a run that starts late: each table's newest shape before the start, as "create it unless it is there"."""
    if not state.start:
        return []
    newest: dict[TableId, SchemaChange] = {}
    for change in offer.schema_changes:
        if change.commit_ts < state.start:
            for table_id in change.changes:
                newest.pop(table_id, None)
            if change.schema is not None:
                newest[change.table_id] = change
    return [_as_shape(c) for t, c in newest.items() if t not in state.tables and rules.includes(t)]


def _as_shape(change: SchemaChange) -> SchemaChange:
    assert change.schema is not None
    created = CreateTableEvent(change.table_id, change.schema)
    reads = change.reads | {TableId(change.table_id.database)}
    return replace(change, statement="", events=(created,), changes=frozenset({change.table_id}), reads=reads)


def _from_shape_if_unknown(state: LedgerState, change: SchemaChange, created: set[TableId]) -> SchemaChange:
    """A change of a table whose beginning was never seen creates the table in its later shape instead."""
    if change.schema is None or any(isinstance(e, CreateTableEvent) for e in change.events) or _creates_view(change):
        return change
    before = {e.table_id for e in change.events if not isinstance(e, CreateDatabaseEvent | DropDatabaseEvent)}
    known = before & (created | {t for t, p in state.tables.items() if p.status is not TableStatus.GONE})
    if known or (not before and change.table_id in created | set(state.tables)):
        return change
    return _as_shape(change)


def _creates_view(change: SchemaChange) -> bool:
    only_statement = all(isinstance(e, OtherEvent) for e in change.events)
    return only_statement and change.statement.lstrip().upper().startswith("CREATE")


def _may_read(state: LedgerState, split: Split, changes: list[SchemaChange]) -> bool:
    """Nothing is read for a table that is gone, unless it comes back in this cut."""
    progress = state.tables.get(split.table_id)
    if progress is None or progress.status is not TableStatus.GONE:
        return True
    return any(split.table_id in c.changes for c in changes)


def _reject_keyless(splits: Iterable[Split], problems: dict[TableId, Problem], rules: PlanRules, offer: Offer) -> None:
    """Rows of a table without key are counted, which needs a sink that can, and to know which rows are repetitions."""
    exact = offer.has_commit_ts and offer.deletes_first
    if rules.bags and exact:
        return
    why = (
        "so its changes cannot be netted per key"
        if exact
        else "and its rows carry no exact commit ts, so repeated ones cannot be told"
    )
    for split in splits:
        if not split.schema.handle_key:
            message = f"it has no primary key and no unique key that is known, {why}."
            hint = f"Give the table a primary key upstream, or leave it out with --tables '*.*,!{split.table_id}'."
            if not exact:
                hint += " With include-commit-ts=true (CSV) or enable-tidb-extension=true (canal-JSON) it can be applied."
            problems.setdefault(split.table_id, Problem(split.table_id, message, file=split.key, hint=hint))


def _without_blocked(
    state: LedgerState, changes: list[SchemaChange], blocked: set[TableId], problems: dict[TableId, Problem]
) -> tuple[list[SchemaChange], dict[TableId, Problem]]:
    """Leaves out changes that touch a stopped table, and stops the other tables that such a change would have changed."""
    kept: list[SchemaChange] = []
    stopped, found = set(blocked), dict(problems)
    for change in changes:
        in_the_way = sorted(stopped & (change.touches | _tables_of_dropped(state, change)))
        if not in_the_way:
            kept.append(change)
            continue
        for table_id in sorted(change.changes - stopped):
            stopped.add(table_id)
            found[table_id] = Problem(
                table_id,
                f"its schema change at {change.commit_ts} also touches {in_the_way[0]}, which has stopped.",
                file=change.origin,
                hint=f"It goes on when {in_the_way[0]} does.",
            )
    # A table that stops takes back the changes planned for it before: it keeps its place as a whole.
    if stopped - blocked:
        return _without_blocked(state, kept, stopped, found)
    return kept, found


def _tables_of_dropped(state: LedgerState, change: SchemaChange) -> frozenset[TableId]:
    """A dropped database takes its tables with it."""
    dropped = {e.database for e in change.events if isinstance(e, DropDatabaseEvent)}
    return frozenset(t for t in state.tables if t.database in dropped)


def _rounds(state: LedgerState, changes: list[SchemaChange], splits: list[Split]) -> tuple[CutRound, ...]:
    levels = _levels(state, changes)
    history: dict[TableId, list[tuple[int, int]]] = defaultdict(list)
    for change, level in zip(changes, levels, strict=True):
        for table_id in change.changes:
            history[table_id].append((change.commit_ts, level))
    round_splits: dict[int, list[Split]] = defaultdict(list)
    for split in splits:
        level = max((lv for ts, lv in history[split.table_id] if ts <= split.version), default=0)
        round_splits[level].append(split)
    round_changes: dict[int, list[SchemaChange]] = defaultdict(list)
    for change, level in zip(changes, levels, strict=True):
        round_changes[level].append(change)
    return tuple(CutRound(tuple(round_changes[n]), tuple(round_splits[n])) for n in sorted({*round_changes, *round_splits}))


def _levels(state: LedgerState, changes: list[SchemaChange]) -> list[int]:
    """Readers of one object (the tables created in a database) do not wait for each other, only for its changes."""
    changed_at: dict[TableId, int] = defaultdict(int)
    read_at: dict[TableId, int] = defaultdict(int)
    levels: list[int] = []
    for change in changes:
        touched = change.changes | _tables_of_dropped(state, change)
        databases = {t for t in touched if t.is_database}
        touched |= {t for t in changed_at if TableId(t.database) in databases}
        before = [changed_at[t] for t in touched | change.reads] + [read_at[t] for t in touched]
        level = 1 + max(before, default=0)
        levels.append(level)
        for table_id in touched:
            changed_at[table_id] = level
        for table_id in change.reads:
            read_at[table_id] = max(read_at[table_id], level)
    return levels
