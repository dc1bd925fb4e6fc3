"""Planning a cut: from the ledger's state and a source's offer to rounds of schema changes and splits. Pure.

A cut takes everything up to ``hi`` that is not applied yet. Its schema changes get levels (rule 11): one more than the
highest level of an earlier change that touches any object this one changes or reads. A round is the changes of one level
and then the rows of every table between its change of that level and the next. Each split belongs to one table version, so
it belongs to exactly one round, and nothing is decoded twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from headrace.ddl.kinds import kinds_of
from headrace.ddl.statement import read_statement
from headrace.engine.requests import given_up_to
from headrace.model.cut import Offer, Split, Window
from headrace.model.events import CreateDatabaseEvent, CreateTableEvent, DropDatabaseEvent, OtherEvent, SchemaChange
from headrace.model.outcome import Problem, Remedy
from headrace.model.policy import Policy, SchemaChangePolicies
from headrace.model.progress import Decision, LedgerState, TableStatus, Verdict
from headrace.model.table import TableId
from headrace.model.tso import MAX_TSO, tso_from_ms, tso_to_ms


@dataclass(frozen=True)
class CutRound:
    """Schema changes of one level, in commit order, then the splits whose rows come after them."""

    changes: tuple[SchemaChange, ...] = ()
    splits: tuple[Split, ...] = ()


@dataclass(frozen=True)
class Hold:
    """A schema change that its tables stop before, and why: they get all rows up to it and none after."""

    change: SchemaChange
    problem: Problem

    @property
    def at(self) -> int:
        return self.change.commit_ts


@dataclass(frozen=True)
class Cut:
    """One unit of progress, planned.

    ``checkpoints`` are the tables' checkpoints before it (TSO), for every table that has splits or changes. ``problems`` are the
    tables that cannot take part, with the reason; their splits and changes are left out. ``holds`` are the tables that take part
    up to a schema change. ``decisions`` are what a person or a policy says of the cut's changes, by their identity. ``unread``
    are splits that count as read because all that they hold was given up.
    """

    hi: int
    rounds: tuple[CutRound, ...] = ()
    windows: Mapping[TableId, Window] = field(default_factory=dict)
    checkpoints: Mapping[TableId, int] = field(default_factory=dict)
    problems: Mapping[TableId, Problem] = field(default_factory=dict)
    holds: Mapping[TableId, Hold] = field(default_factory=dict)
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    has_commit_ts: bool = True
    deletes_first: bool = True
    unread: tuple[Split, ...] = ()

    @property
    def tables(self) -> frozenset[TableId]:
        return frozenset(self.checkpoints)


@dataclass(frozen=True)
class PlanRules:
    """What the definition and the sink say about planning.

    ``includes`` is the table filter; ``until`` bounds ``hi`` (TSO); ``nets``: the sink takes net changes, and ``bags``: those
    of tables without key too; ``policies`` is what is done with schema changes of each kind.
    ``excluded`` and ``held`` are tables that an earlier try of this cut showed cannot go on, at all or behind a schema change;
    ``retried`` are stopped tables to try again, and ``apart`` those that catch up in cuts of their own.
    """

    includes: Callable[[TableId], bool]
    until: int | None = None
    nets: bool = True
    bags: bool = False
    policies: SchemaChangePolicies = field(default_factory=SchemaChangePolicies)
    excluded: Mapping[TableId, Problem] = field(default_factory=dict)
    held: Mapping[TableId, Hold] = field(default_factory=dict)
    retried: frozenset[TableId] = frozenset()
    apart: frozenset[TableId] = frozenset()


def plan_cut(state: LedgerState, offer: Offer, rules: PlanRules) -> Cut:
    """The cut up to the offer's watermark (or ``until``). Stopped tables take part only when they are in ``rules.retried``."""
    hi = offer.watermark if rules.until is None else min(offer.watermark, rules.until)
    problems = _known_problems(state, offer, rules)
    bound = min(offer.schema_bound, hi + 1)
    changes = _pending_changes(state, offer, rules, bound)
    # What lies in a version whose schema change is not complete yet waits for it.
    splits = [s for s in offer.splits if s.version < bound and rules.includes(s.table_id) and _may_read(state, s, changes)]
    if rules.nets:
        _reject_keyless(splits, problems, rules, offer)
    resting = rules.apart | {t for t, p in state.tables.items() if p.status.is_stopped and t not in rules.retried}
    barriers = _Barriers(state, rules, problems, resting)
    changes = [change for change in changes if barriers.lets_pass(change)]
    splits = [s for s in splits if s.version < barriers.floor(s.table_id)]
    floors = given_up_to(state)
    ended = _ended_versions(offer, floors)
    unread = tuple(s for s in splits if s.version < ended.get(s.table_id, 0))
    splits = [s for s in splits if s.version >= ended.get(s.table_id, 0)]
    # A table that is back after a stop may have nothing left to read.
    back = {t for t, p in state.tables.items() if p.status is TableStatus.CATCHING_UP and rules.includes(t)}
    tables = (
        {s.table_id for s in (*splits, *unread)} | {t for c in changes for t in c.changes} | (back - set(problems) - rules.apart)
    )
    checkpoints = {t: state.table_checkpoint(t) for t in tables | set(problems) | set(barriers.holds)}
    windows = {t: _window(checkpoints[t], min(hi, barriers.floor(t)), offer, floors.get(t, 0)) for t in tables}
    return Cut(
        hi=hi,
        rounds=_rounds(state, changes, splits),
        windows=windows,
        checkpoints=checkpoints,
        problems=problems,
        holds=barriers.holds,
        decisions=barriers.decisions,
        has_commit_ts=offer.has_commit_ts,
        deletes_first=offer.deletes_first,
        unread=unread,
    )


def _window(checkpoint: int, hi: int, offer: Offer, given_up: int) -> Window:
    """From the checkpoint on; where only the millisecond is known, from its first TSO on, whose rows are then taken again."""
    if not offer.has_commit_ts:
        return Window()
    if not offer.deletes_first:
        return Window(tso_from_ms(tso_to_ms(checkpoint)) - 1, hi)
    return Window(max(checkpoint, given_up), hi, given_up)


def _ended_versions(offer: Offer, floors: Mapping[TableId, int]) -> dict[TableId, int]:
    """Per table the version below which nothing is read: a schema change that ended all that came before it was given up too.

    What has no statement is a restart of the writer, which may go back behind it.
    """
    ended: dict[TableId, int] = {}
    for change in offer.schema_changes if offer.has_commit_ts and offer.deletes_first else ():
        for table_id in change.changes & floors.keys():
            if change.statement and change.commit_ts <= floors[table_id]:
                ended[table_id] = max(change.commit_ts, ended.get(table_id, 0))
    return ended


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


def first_shared_change(state: LedgerState, offer: Offer, tables: Collection[TableId]) -> int | None:
    """The commit ts (TSO) of the first change ahead of the checkpoint that waits for some of these tables and changes others."""
    shared = (
        change.commit_ts
        for change in offer.schema_changes
        if change.commit_ts >= state.checkpoint
        and (change.touches | _tables_of_dropped(state, change)).intersection(tables)
        and change.changes.difference(tables)
        and _is_pending(state, change, is_base=False)
    )
    return min(shared, default=None)


def may_be_pending(state: LedgerState, change: SchemaChange) -> bool:
    """Whether a cut may still have to apply the change. Before a late start everything may: it gives tables their first shape."""
    return change.commit_ts < state.start or _is_pending(state, change, is_base=False)


def _is_pending(state: LedgerState, change: SchemaChange, is_base: bool) -> bool:
    if is_base:
        return True
    entry = state.journal.get(change.identity)
    if entry is not None and entry.state.is_settled:
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
    if read_statement(change.statement, change.database).brings_back:
        return change  # an empty table in its place would be a lie: its rows come back without events
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


class _Barriers:
    """Where each table stops in this cut, found by going through the schema changes in order.

    A table with a problem takes no part. One whose schema change may not run, or touches a table that stands still, goes up to
    that change, and so do the other tables of the change.
    """

    def __init__(
        self, state: LedgerState, rules: PlanRules, problems: Mapping[TableId, Problem], resting: Collection[TableId]
    ) -> None:
        self._state, self._rules, self._problems = state, rules, problems
        self._floors = dict.fromkeys((*problems, *resting), 0)
        self.holds: dict[TableId, Hold] = {}
        self.decisions: dict[str, Decision] = {}
        for table_id, hold in rules.held.items():
            self._hold(table_id, hold)

    def floor(self, table_id: TableId) -> int:
        """The commit ts (TSO) from which on the table stands still."""
        return self._floors.get(table_id, MAX_TSO + 1)

    def lets_pass(self, change: SchemaChange) -> bool:
        """Whether the change takes part; if not, its tables stop before it."""
        touched = change.touches | _tables_of_dropped(self._state, change)
        cause = next((t for t in sorted(touched) if self.floor(t) <= change.commit_ts), None)
        decision = self._state.decisions.get(change.identity)
        if cause is not None:
            self._stop(change, self._depends_on(change, cause))
            return False
        if change.doubt and (decision is None or decision.verdict is Verdict.APPROVE):
            hint = decision_hint(change, (Verdict.SKIP, Verdict.EDIT))
            self._stop(change, Problem(change.table_id, change.doubt, file=change.origin, hint=hint, remedy=Remedy.DECISION))
            return False
        if decision is None:
            policy = self._rules.policies.of(kinds_of(change))
            if policy is Policy.APPROVE:
                self._stop(change, _awaits_approval(change))
                return False
            if policy is Policy.SKIP:
                decision = Decision(change.identity, Verdict.SKIP)
        if decision is not None:
            self.decisions[change.identity] = decision
        return True

    def _stop(self, change: SchemaChange, problem: Problem) -> None:
        for table_id in change.changes:
            self._hold(table_id, Hold(change, replace(problem, table_id=table_id)))

    def _hold(self, table_id: TableId, hold: Hold) -> None:
        if hold.at < self.floor(table_id):
            self._floors[table_id] = hold.at
            self.holds[table_id] = hold

    def _depends_on(self, change: SchemaChange, cause: TableId) -> Problem:
        problem = self.holds[cause].problem if cause in self.holds else self._problems.get(cause)
        status = problem.status if problem else self._state.tables[cause].status
        remedy = Remedy.REPAIR if status is TableStatus.STOPPED else Remedy.DECISION
        message = f"its schema change at {change.commit_ts} also touches {cause}, which has stopped."
        return Problem(change.table_id, message, file=change.origin, hint=f"It goes on when {cause} does.", remedy=remedy)


def _awaits_approval(change: SchemaChange) -> Problem:
    statement = " ".join(change.statement.split()) or "a change of shape"
    return Problem(
        change.table_id,
        f"its schema change waits for approval: {statement}.",
        file=change.origin,
        hint=decision_hint(change, (Verdict.APPROVE, Verdict.SKIP, Verdict.EDIT)),
        remedy=Remedy.DECISION,
    )


def decision_hint(change: SchemaChange, verdicts: Iterable[Verdict]) -> str:
    """How a person decides about the change."""
    return f"Decide with headrace ddl {'|'.join(verdicts)} '{change.identity}'."


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
