"""Where each table stops in a cut: the rules of planning, and the schema changes that must not run. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from headrace.ddl.kinds import kinds_of
from headrace.engine.begun_changes import asks, decision_hint
from headrace.engine.excluded_tables import Followed
from headrace.engine.history import History
from headrace.engine.identities import asks_about_former
from headrace.engine.journal import comes_late, drops_databases, is_of, of_former_lives, tables_of_dropped, unfollowed
from headrace.engine.lacking import Lacking
from headrace.engine.objections import objection, reserved_database
from headrace.engine.run_options import RunOptions
from headrace.engine.table_places import passes_without
from headrace.engine.unreadable import cannot_be_read, is_understood
from headrace.model.commands import in_quotes, word
from headrace.model.cut import Hold
from headrace.model.events import (
    CreateTableEvent,
    DropTableEvent,
    RenameTableEvent,
    SchemaChange,
)
from headrace.model.ledger import Decision, JournalEntry, JournalState, LedgerState, TableStatus, Verdict
from headrace.model.outcome import Problem, Remedy
from headrace.model.place import SourcePlace
from headrace.model.policy import ChangeKind, Policy, SchemaChangePolicies
from headrace.model.table import TableId, TableSchema
from headrace.model.tso import MAX_TSO
from headrace.sinks.base import ChangeDemand, SinkCapabilities
from headrace.sinks.reserved import Reserved


@dataclass(frozen=True)
class PlanRules:
    """Planning rules from the definition and the sink."""

    includes: Callable[[TableId], bool]
    """The table filter."""
    until: int | None = None
    """The upper bound of ``hi`` (TSO)."""
    demand_of: Callable[[TableId, TableSchema], ChangeDemand] = SinkCapabilities(ChangeDemand.NET).demand_of
    """The sink's demand for a table of this shape."""
    bags: bool = False
    """The sink can apply net changes of tables without key."""
    policies: SchemaChangePolicies = field(default_factory=SchemaChangePolicies)
    """What is done with schema changes of each kind."""
    excluded: Mapping[TableId, Problem] = field(default_factory=dict)
    """Tables that cannot take part at all, as an earlier try of this cut showed."""
    held: Mapping[TableId, Hold] = field(default_factory=dict)
    """Tables that cannot pass a schema change, as an earlier try of this cut showed."""
    retried: frozenset[TableId] = frozenset()
    """Stopped tables to retry."""
    apart: frozenset[TableId] = frozenset()
    """Tables that catch up in cuts of their own."""
    reserved: Reserved = field(default_factory=Reserved)
    """The target's databases to which nothing may be written."""
    supported: frozenset[ChangeKind] = frozenset(ChangeKind)
    """The kinds of schema changes that the sink accepts."""
    keeps_commit_ts: bool = False
    """The sink writes each row's commit ts."""
    replays: bool = False
    """The sink executes every transaction of tables with the demand ALL."""
    unmade: Mapping[TableId, int] = field(default_factory=dict)
    """Tables that were never created, each with the commit ts (TSO) of the change of this cut that ends it. No earlier change of
    them runs."""

    @classmethod
    def of(cls, options: RunOptions, sink: SinkCapabilities) -> PlanRules:
        """The rules of a definition and a sink. Those of a single cut keep their defaults."""
        return cls(
            includes=options.includes,
            until=options.until,
            demand_of=sink.demand_of,
            bags=sink.bags,
            policies=options.policies,
            reserved=sink.reserved,
            supported=sink.supported_schema_changes,
            keeps_commit_ts=sink.keeps_commit_ts,
            replays=sink.replays,
        )


class Barriers:
    """Where each table stops in this cut, found by going through the schema changes in order.

    A table with a problem takes no part. If a table's schema change must not run, or touches a stopped table, the table advances up
    to that change, and so do the change's other tables.
    """

    def __init__(
        self,
        state: LedgerState,
        rules: PlanRules,
        idle: Mapping[TableId, int],
        problems: Mapping[TableId, Problem],
        follows: Followed,
        history: History,
        begun: Mapping[str, JournalEntry],
        lacking: Lacking,
    ) -> None:
        """``idle`` are tables that take no part from a commit ts (TSO) on.

        ``begun`` are changes of the journal whose places other changes have taken (``identities.replaced_while_begun``).
        """
        self._state, self._rules, self._problems, self._follows = state, rules, problems, follows
        self._history, self._begun, self._lacking = history, begun, lacking
        self._floors = {**idle, **dict.fromkeys(problems, 0)}
        self._standing: set[TableId] = set()
        self._later: list[tuple[int, TableId]] = []
        for table_id, floor in self._floors.items():
            heappush(self._later, (floor, table_id))
        self._stopped: set[frozenset[TableId]] = set()
        self._beside: dict[TableId, set[TableId]] = defaultdict(set)
        self._unfollowed = unfollowed(state)
        self._refused = {change.identity for change in {id(hold.change): hold.change for hold in rules.held.values()}.values()}
        self._changed: set[TableId] = set()
        self._ended: set[TableId] = set()
        self.holds: dict[TableId, Hold] = {}
        self.decisions: dict[str, Decision] = {}
        self.unapproved: set[str] = set()
        self.left_behind: list[SchemaChange] = []
        # Tables that may not exist because their CREATE is skipped in this cut.
        self._unmade: set[TableId] = set()
        for table_id, hold in rules.held.items():
            self._hold(table_id, hold)

    def floor(self, table_id: TableId) -> int:
        """The commit ts (TSO) from which the table is stopped or left out."""
        return min(self._floors.get(table_id, MAX_TSO + 1), self._follows.end(table_id))

    def lets_pass(self, change: SchemaChange) -> bool:
        """Whether the change takes part. If not, its tables stop before it. To be called in the order of commit ts."""
        self._go_to(change.commit_ts)
        decision = self._state.decisions.get(change.identity)
        if decision is None and change.changes in self._stopped:
            return False
        still = self._still(change)
        taken = reserved_database(change, self._rules.reserved)
        if taken is not None and (decision is None or decision.verdict is Verdict.APPROVE):
            self._stop(change, of_reserved(change.table_id, *taken, self._rules, place=change.origin))
            return False
        if still and not self._passes_without(change, decision, still):
            if change.changes == {still[0]}:
                self.left_behind.append(change)
            # A statement that is not understood passes only by a decision, whatever happens to its tables.
            own = None if is_understood(change) else self._waits_for_a_person(change, decision)
            self._stop(change, own or self._depends_on(change, still[0]))
            return False
        problem = self._is_unclear(change, decision) or self._waits_for_a_person(change, decision)
        if problem is not None:
            self._stop(change, problem)
            return False
        if decision is None and (is_of(self._unfollowed, change) or self._is_of_unmade(change)):
            decision = Decision(change.identity, Verdict.SKIP)
        if decision is None:
            policy = self._rules.policies.of(kinds_of(change))
            entry = self._state.journal.get(change.identity)
            is_begun = entry is not None and entry.state in (JournalState.PENDING, JournalState.RUNNING)  # it may have run
            if policy is Policy.APPROVE and (is_begun or is_of(self._unmade, change)):
                self.unapproved.add(change.identity)
            elif policy is Policy.APPROVE:
                self._stop(change, awaits_approval(change))
                return False
            if policy is Policy.SKIP:
                decision = Decision(change.identity, Verdict.SKIP)
        if decision is not None:
            self.decisions[change.identity] = decision
        self._pass(change, decision, still)
        return True

    def _is_of_unmade(self, change: SchemaChange) -> bool:
        """Whether the change concerns only tables that were never created, and that end in this cut."""
        unmade, tables = self._rules.unmade, self._state.tables
        if not change.changes or not unmade:
            return False
        return all(t in unmade and tables[t].incarnation < change.commit_ts < unmade[t] for t in change.changes)

    def _go_to(self, commit_ts: int) -> None:
        while self._later and self._later[0][0] <= commit_ts:
            self._standing.add(heappop(self._later)[1])

    def _pass(self, change: SchemaChange, decision: Decision | None, still: Collection[TableId]) -> None:
        """Records the consequences of the change."""
        if decision is None or decision.verdict is Verdict.APPROVE:
            self._ended |= self._tables_of_dropped(change, self._changed)
            self._ended -= change.changes
        is_skipped = decision is not None and decision.verdict is Verdict.SKIP
        self._unmade -= {e.table_id for e in change.events if isinstance(e, CreateTableEvent | DropTableEvent)}
        self._unmade |= {e.table_id for e in change.events if isinstance(e, CreateTableEvent) and is_skipped}
        renames = {event.table_id: event.new_table_id for event in change.events if isinstance(event, RenameTableEvent)}
        self._unmade = self._unmade - {*renames, *renames.values()} | {renames[old] for old in renames.keys() & self._unmade}
        self._changed |= change.changes
        self._lacking.note(change, still)
        for table_id in change.changes if still else ():
            # Of tables whose names differ only in case, a later change waits only for the last one.
            self._beside[table_id] |= {t for t in still if t != table_id and t.folded == table_id.folded}

    def _still(self, change: SchemaChange) -> list[TableId]:
        """The tables that are stopped before the change, among those that it changes or reads.

        A table that lacks rows and ends later in the cut is not stopped, but gives its rows to no table that has all of its own.
        """
        # Tables that stopped in this cut are not in the ledger yet.
        touched = change.touches | self._tables_of_dropped(change, self._floors)
        if self._beside:
            touched = touched.union(*(self._beside[t] for t in touched if t in self._beside))
        return sorted((touched & self._standing).union(self._lacking.exchanging(change)))

    def _tables_of_dropped(self, change: SchemaChange, others: Iterable[TableId]) -> frozenset[TableId]:
        """The tables of a dropped database, from the ledger and from ``others``."""
        return tables_of_dropped(change, {*self._state.tables, *others}) if drops_databases(change) else frozenset()

    def _passes_without(self, change: SchemaChange, decision: Decision | None, still: Iterable[TableId]) -> bool:
        """Whether a person's decision lets the change pass without its stopped tables.

        These were retried in this cut, or need not be. Not if the target refused the decision in an earlier try of the cut.
        """
        if decision is None or change.identity in self._refused:
            return False
        tables = self._state.tables
        tried = self._rules.retried - self._rules.apart
        final = all(t in tried or (t in tables and tables[t].status is TableStatus.INCOMPLETE) for t in still)
        return final and passes_without(self._state, change, still)

    def _is_unclear(self, change: SchemaChange, decision: Decision | None) -> Problem | None:
        """The problem if a change may have run, or another one in its place may have, until a person decides."""
        entry = self._state.journal.get(change.identity)
        former = self._begun.get(change.place)
        if former is not None and decision is None and change.unread is None and (entry is None or not entry.state.may_have_run):
            return asks_about_former(change, former)
        is_asked = decision is None and entry is not None and entry.state is JournalState.UNCLEAR
        return asks(change, entry) if entry is not None and is_asked else None

    def _waits_for_a_person(self, change: SchemaChange, decision: Decision | None) -> Problem | None:
        """The problem if only a person, or a repair, can let the change take part."""
        if change.is_nobodys and change.unread is not None:
            return cannot_be_read(change, change.unread)  # a decision about the change would say nothing about the rows
        if decision is None or decision.verdict is Verdict.APPROVE:
            if change.unread is not None:
                return cannot_be_read(change, change.unread)
            if change.identity in self._follows.refused:
                return self._follows.refused[change.identity]
            problem = self._asks(change, decision) or self._history.hole(change) or self._missing(change)
            if problem is not None:
                return problem
        return self._is_late(change, decision)

    def _asks(self, change: SchemaChange, decision: Decision | None) -> Problem | None:
        """The problem if a person must decide about the change; an approval is no answer if there is a doubt about it."""
        if doubt := change.doubt or self._objection(change):
            verdicts = [Verdict.SKIP, Verdict.EDIT]
        elif decision is None:
            doubt, verdicts = change.asks, [Verdict.APPROVE, Verdict.SKIP, Verdict.EDIT]
        if not doubt:
            return None
        return Problem(change.table_id, doubt, place=change.origin, hint=decision_hint(change, verdicts), remedy=Remedy.DECISION)

    def _objection(self, change: SchemaChange) -> str:
        """Why only a person can let the statement run; empty for one that a policy skips, since it does not run."""
        kinds = kinds_of(change)
        if self._rules.policies.of(kinds) is Policy.SKIP or change.known_as:
            return ""
        return objection(change, self._follows) or _unsupported(change, kinds - self._rules.supported)

    def _missing(self, change: SchemaChange) -> Problem | None:
        """The problem of a statement that does not explain its table's shape, unless a policy skips it."""
        is_skipped = self._rules.policies.of(kinds_of(change)) is Policy.SKIP
        return None if is_skipped or change.known_as else self._history.missing_before(change)

    def _is_late(self, change: SchemaChange, decision: Decision | None) -> Problem | None:
        """The problem if a change found late must wait. It cannot be approved if it would hit nothing, or another table.

        The same holds for a change that has waited while one of its tables went away, or gave its name to another one: a RENAME
        that was passed over shows no late change.
        """
        is_late, entries = comes_late(self._state, change), self._state.journal_by_place.get(change.place, ())
        is_given = change.commit_ts <= self._state.start  # the shape at a late start: its table begins after it
        if not is_late and (is_given or all(entry.state.is_settled for entry in entries)):
            return None
        if former := of_former_lives(self._state, change):
            return None if decision and decision.verdict is not Verdict.APPROVE else _came_late(change, former, is_late=is_late)
        return _came_late(change) if is_late and decision is None else None

    def _stop(self, change: SchemaChange, problem: Problem) -> None:
        for table_id in (change.changes | self._dropped_with(change)) - self._standing:
            if self._follows.end(table_id) >= change.commit_ts:
                self._hold(table_id, Hold(change, replace(problem, table_id=table_id)))
        if len(change.changes) > 1 and not drops_databases(change):
            self._stopped.add(change.changes)

    def _dropped_with(self, change: SchemaChange) -> set[TableId]:
        """The tables that end with a database. They wait for its DROP, which would be late for a table that has passed it."""
        dropped = {t for t in self._tables_of_dropped(change, self._changed) if t.table}
        return {t for t in dropped - self._ended if t in self._changed or self._has_to_pass(t, change.commit_ts)}

    def _has_to_pass(self, table_id: TableId, commit_ts: int) -> bool:
        own = self._state.tables[table_id]
        is_of_then = own.is_made and own.incarnation <= commit_ts
        return is_of_then and self._state.table_checkpoint(table_id) <= commit_ts

    def _hold(self, table_id: TableId, hold: Hold) -> None:
        if self._floors.get(table_id, MAX_TSO + 1) > hold.at:
            self._floors[table_id] = hold.at
            heappush(self._later, (hold.at, table_id))
            self.holds[table_id] = hold

    def _depends_on(self, change: SchemaChange, cause: TableId) -> Problem:
        problem = self.holds[cause].problem if cause in self.holds else self._problems.get(cause)
        own = self._state.tables.get(cause)  # a table that catches up may not have a row yet
        status = problem.status if problem else own.status if own else TableStatus.CATCHING_UP
        remedy = Remedy.REPAIR if status is TableStatus.STOPPED else Remedy.DECISION
        is_held = cause in self._state.held
        why = "is held" if is_held else "lacks rows" if cause in self._lacking else "has stopped"
        message = f"its schema change at {change.commit_ts} also touches {cause}, which {why}."
        hint = f"It goes on when {cause} does{f': headrace table release {word(cause)}' if is_held else ''}."
        if cause in self._lacking and len(change.changes) > 1 and not is_held:
            decision = f"decide with headrace ddl skip|edit {in_quotes(change.identity)}"
            hint += f" If the source does not have {cause} any more, {decision}, and do by hand what the change would have done."
        return Problem(change.table_id, message, place=change.origin, hint=hint, remedy=remedy)


def of_reserved(table_id: TableId, database: str, why: str, rules: PlanRules, *, place: SourcePlace | None) -> Problem:
    return Problem(table_id, why, place=place, hint=rules.reserved.hint(database))


def _unsupported(change: SchemaChange, kinds: Collection[ChangeKind]) -> str:
    """Why a change with kinds that the sink does not support waits; empty if there are none."""
    if not kinds:
        return ""
    statement = " ".join(change.statement.split()) or "a change of shape"
    return (
        f"its schema change at {change.commit_ts} waits, because this sink does not support {' or '.join(sorted(kinds))}: "
        f"{statement}."
    )


def _came_late(change: SchemaChange, former: Collection[TableId] = (), *, is_late: bool = True) -> Problem:
    """``former`` are tables of the change that are gone or replaced now, so that it cannot run as it is.

    ``is_late``: it was found after that. Otherwise it has waited since before.
    """
    statement = " ".join(change.statement.split())
    why = "was found only after later rows were applied" if is_late else "waited, and cannot run any more"
    message = f"its schema change at {change.commit_ts} {why}: {statement}."
    hint = decision_hint(change, (Verdict.SKIP, Verdict.EDIT) if former else Verdict)
    if former:
        names = ", ".join(map(str, sorted(former)))
        hint = f"Since then, {names} was dropped or renamed. Do by hand what is needed. {hint}"
    return Problem(change.table_id, message, place=change.origin, hint=hint, remedy=Remedy.DECISION)


def awaits_approval(change: SchemaChange) -> Problem:
    """The problem that stops the tables of a change that must be approved by a person according to its policy."""
    statement = " ".join(change.statement.split()) or "a change of shape"
    if not change.statement and change.schema is not None:
        statement += f" to ({', '.join(f'{column.name} {column.type}' for column in change.schema.columns)})"
    return Problem(
        change.table_id,
        f"its schema change waits for approval: {statement}.",
        place=change.origin,
        hint=decision_hint(change, (Verdict.APPROVE, Verdict.SKIP, Verdict.EDIT)),
        remedy=Remedy.DECISION,
    )
