"""Plans a cut: turns the ledger's state and a source's offer into rounds of schema changes and splits. Pure.

A cut contains everything up to ``hi`` that is not applied yet. Each of its schema changes has a level (rule 11): one more than
the highest level of an earlier change that touches an object which this change changes or reads. A round consists of the changes
of one level, followed by the rows of every table between its change of that level and the next (``segments``). A split is planned
into the round in which its first rows are expected. This is nearly always the only one; reading the split shows whether a later
round needs it, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from headrace.ddl.told import newly_named
from headrace.engine.barriers import Barriers, PlanRules, of_reserved
from headrace.engine.bearers import bearers, of_former_lives, of_gone_tables
from headrace.engine.conservation import require_own_keys
from headrace.engine.excluded_tables import Followed, cannot_be_made, drops_with_databases, followed
from headrace.engine.given_up import given_up_to
from headrace.engine.history import History
from headrace.engine.identities import replaced_while_begun
from headrace.engine.journal import comes_late, drops_databases, is_of, is_pending, sets_of, tables_of_dropped, unfollowed
from headrace.engine.lacking import Lacking
from headrace.engine.namesakes import Namesakes
from headrace.engine.passed_tables import left_lives
from headrace.engine.segments import TablePlan, changes_of, is_found_later, of_other_shape
from headrace.engine.shapes import from_shape_if_unknown, known_after, shapes_before
from headrace.engine.table_places import came_lacking
from headrace.engine.unreadable import (
    TablesBefore,
    has_never_lived,
    is_unborn,
    kept_unread,
    lacks_shape,
    of_those_before,
    outdated,
    untold,
    without_shape,
)
from headrace.model.commands import in_quotes
from headrace.model.cut import Cut, CutRound
from headrace.model.events import (
    CreateDatabaseEvent,
    CreateTableEvent,
    DropDatabaseEvent,
    DropTableEvent,
    RenameTableEvent,
    SchemaChange,
    TruncateTableEvent,
)
from headrace.model.ledger import Decision, JournalState, LedgerState, TableProgress, TableStatus, Verdict
from headrace.model.offer import Offer
from headrace.model.outcome import Problem
from headrace.model.split import Segment, Split, Window
from headrace.model.table import TableId, folded_name
from headrace.model.tso import tso_from_ms, tso_to_ms
from headrace.sinks.base import ChangeDemand


def plan_cut(state: LedgerState, offer: Offer, rules: PlanRules) -> Cut:
    """The cut up to the offer's watermark (or ``rules.until``). Stopped tables take part only if they are in ``rules.retried``.

    Raises AmbiguousSplitsError if two splits of the offer have one key.
    """
    require_own_keys(offer.splits)
    hi = offer.watermark if rules.until is None else min(offer.watermark, rules.until)
    follows = followed(state, offer.schema_changes, rules.includes)
    bound = min(offer.schema_bound, hi + 1)
    changes = _pending_changes(state, offer, follows, bound)
    ends = _ends_of_incomplete(state, offer, changes, follows)
    problems = _known_problems(state, offer, rules, follows, ends)
    reborn = _reborn(state, changes)
    # Unreadable files of a table that is gone are not needed, unless a change of this cut brings the table back.
    over = {t for t, own in state.tables.items() if own.status.is_gone and not has_never_lived(own)}
    problems = {t: p for t, p in problems.items() if t in reborn or t not in over}
    # Splits of a version whose schema change is not complete yet wait for it.
    ignored = unfollowed(state)
    changed = {t for tables in sets_of(c for c in changes if not is_of(ignored, c)) for t in tables}
    splits = [s for s in offer.splits if s.begins < bound and follows.end(s.table_id) and _may_read(state, s, changed)]
    _reject_keyless(splits, problems, rules, offer)
    _reject_untimed(splits, problems, rules, offer)
    _reject_reserved(splits, problems, rules)
    history = History(state, offer.schema_changes, forgets=offer.passed is not None)
    problems |= _holes_in_shapes(history, offer, [s for s in splits if s.table_id not in problems], bound)
    asked: dict[str, SchemaChange] = {}
    missed = {problem.table_id for problem in offer.problems}
    begun = replaced_while_begun(state, (*changes, *offer.schema_changes))
    while True:
        idle = rules.apart | (_idle(state, rules, follows, hi) - ends.keys())
        floors = {**dict.fromkeys(idle, 0), **_ahead(state, idle, hi)}
        lacking = Lacking(state, ends, offer.passed or 0)
        barriers = Barriers(state, _with_unmade(rules, state, ends), floors, problems, follows, history, begun, lacking)
        passing = [change for change in changes if barriers.lets_pass(change)]
        run = {change.identity for change in passing if not _leaves_rows(change, barriers.decisions.get(change.identity))}
        if all(end.identity in run for end in ends.values()):
            break
        waits = {end.identity: end for t, end in ends.items() if end.identity not in run and t not in missed}
        asked |= {identity: end for identity, end in waits.items() if identity not in barriers.decisions}
        ends = {t: end for t, end in ends.items() if end.identity in run}
    bearing = bearers(state, offer)
    splits = of_former_lives(state, (s for s in splits if s.begins < barriers.floor(s.table_id)), bearing)
    splits += of_gone_tables(state, offer.splits, bearing, changed, lambda t: _takes_part(state, t, hi, rules, {*idle, *problems}))
    lives = _ends_of_lives(passing, given_up_to(state))
    floors = _floors(state, lives, ends)
    ended = _ended_by(offer, floors)
    # What is read of a table that ends is read before its end, so that nothing of it is left for the next table of its name.
    floors |= {t: min(floors[t], end - 1) for t, end in lives.items() if t not in ends}
    # A table that catches up or is retried may have nothing left to read.
    back = {t for t, p in state.tables.items() if p.status is TableStatus.CATCHING_UP or (p.status.is_stopped and t not in idle)}
    back = {t for t in back if rules.includes(t) and t not in idle}
    tables = {s.table_id for s in splits} | {t for c in passing for t in c.changes} | (back - set(problems) - rules.apart)
    outside = {t: follows.until.get(t, 0) for t in tables | set(follows.until) if not rules.includes(t)}
    tables |= {t for t, end in outside.items() if t in state.tables and end > state.table_checkpoint(t)} - set(problems) - idle
    checkpoints = {t: state.table_checkpoint(t) for t in tables | set(problems) | set(barriers.holds)}
    windows = _windows(state, offer, {t: min(hi, barriers.floor(t)) for t in tables}, floors, ended)
    unreadable = (change for change in changes if change.unread is not None and change.identity not in barriers.decisions)
    plans = _table_plans(state, offer, splits, windows, {t: min(bound, barriers.floor(t)) for t in tables})
    return replace(
        offer.empty_cut(hi),
        rounds=_rounds(state, offer, passing, plans),
        windows=windows,
        checkpoints=checkpoints,
        problems=problems,
        reborn=reborn,
        holds=barriers.holds,
        decisions=barriers.decisions,
        unapproved=frozenset(barriers.unapproved),
        outside=outside,
        waiting=(*kept_unread(unreadable), *asked.values()),
        outdated=outdated(state, offer, changes),
        left_behind=tuple(barriers.left_behind),
        lacking=frozenset(state.dead_letters),
        left_lives=left_lives(state, offer, follows, bound),
        bearers=bearing,
    )


def _holes_in_shapes(history: History, offer: Offer, splits: Sequence[Split], bound: int) -> dict[TableId, Problem]:
    """Problems of tables with rows of another shape than the newest one below ``bound`` (TSO), if that shape is unknown."""
    holes = {t: hole for t in {s.table_id for s in splits} if (hole := history.hole_in_shape(t, bound)) is not None}
    known = changes_of(holes.keys(), offer.schema_changes) if holes else {}
    of_table = _by_table(split for split in splits if split.table_id in holes)
    others = {t: of_other_shape(of_table[t], known.get(t, ()), bound) for t in holes}
    return {t: replace(hole, place=other.place) for t, hole in holes.items() if (other := others[t]) is not None}


def _idle(state: LedgerState, rules: PlanRules, follows: Followed, hi: int) -> frozenset[TableId]:
    """The tables that take no part in the cut.

    These are held tables, whatever their state, and stopped tables that are not retried, that wait until they are loaded anew or
    end, or that wait for something beyond ``hi`` (TSO).
    """
    stopped = {t: own for t, own in state.tables.items() if own.status.is_stopped and follows.end(t)}
    waits = {t for t, own in stopped.items() if own.status is TableStatus.INCOMPLETE or own.checkpoint > hi}
    gone = {t for t, own in state.tables.items() if own.status.is_gone and t not in stopped}
    held = frozenset(t for t in state.held - gone if follows.end(t))
    return held.union(t for t in stopped if t not in rules.retried or t in waits)


def _takes_part(state: LedgerState, table_id: TableId, hi: int, rules: PlanRules, others: Collection[TableId]) -> bool:
    """Whether a table runs or catches up, is included, is not beyond ``hi`` (TSO), and is not in ``others``."""
    own = state.tables.get(table_id)
    runs = own is not None and own.status in (TableStatus.RUNNING, TableStatus.CATCHING_UP)
    return runs and table_id not in others and rules.includes(table_id) and state.table_checkpoint(table_id) <= hi


def _ahead(state: LedgerState, idle: Collection[TableId], hi: int) -> dict[TableId, int]:
    """The stopped tables whose checkpoints lie beyond ``hi`` (TSO), with these checkpoints: other tables may catch up to there."""
    stopped = {t: state.tables[t] for t in idle if t in state.tables and state.tables[t].status.is_stopped}
    return {t: own.checkpoint for t, own in stopped.items() if own.checkpoint > hi}


def _ends_of_incomplete(
    state: LedgerState, offer: Offer, changes: Sequence[SchemaChange], follows: Followed
) -> dict[TableId, SchemaChange]:
    """For each table that lacks rows, the first change after which they are not needed: a DROP, a TRUNCATE or a RENAME.

    A change that still runs in the target keeps its table from ending: it would go on, on the name's next table.

    Up to ``Offer.passed``, rows from after a change and changes of the table's shape may be missing, too. Then a TRUNCATE is not
    enough: only a change that frees the name counts. If another table gets the name by a change that cannot run any more, no
    change counts.
    """
    passed = offer.passed or 0
    lacking = {t for t, own in state.tables.items() if own.status is TableStatus.INCOMPLETE and follows.end(t)} - state.held
    lacking -= {t for e in state.journal.values() if lacking and e.state is JournalState.RUNNING for t in e.tables}
    ends: dict[TableId, SchemaChange] = {}
    again = {t: c.commit_ts for c in (changes if lacking else ()) if c.commit_ts < passed for t in newly_named(c)}
    for change in offer.schema_changes if lacking and offer.passed is not None else ():
        lacking -= {t for t in newly_named(change) if _is_missed(state, t, change)}
    for change in changes if lacking else ():
        ended = {e.table_id for e in change.events if isinstance(e, DropTableEvent | TruncateTableEvent | RenameTableEvent)}
        ended |= tables_of_dropped(change, lacking)
        # At the commit ts at which the table got its name, the statement ended the name's former table, not this one.
        ended = {t for t in lacking & ended if state.tables[t].incarnation < change.commit_ts}
        emptied = {e.table_id for e in change.events if isinstance(e, TruncateTableEvent)}
        ended -= {t for t in ended & emptied if _lacks_more_than_rows(state.tables[t], passed)}
        for table_id in ended if change.commit_ts >= passed else {t for t in ended if again.get(t, -1) < change.commit_ts}:
            ends.setdefault(table_id, change)
    return ends


def _lacks_more_than_rows(own: TableProgress, passed: int) -> bool:
    """Whether emptying the table does not complete it: it was never created, or changes of its shape may be missing.

    Of a table that got its name while it lacked rows, nothing shows since when it lacks them. ``passed``: ``Offer.passed``, or 0.
    """
    return own.checkpoint < passed or cannot_be_made(own) or (passed > 0 and came_lacking(own))


def _with_unmade(rules: PlanRules, state: LedgerState, ends: Mapping[TableId, SchemaChange]) -> PlanRules:
    return replace(rules, unmade={t: end.commit_ts for t, end in ends.items() if cannot_be_made(state.tables[t])})


def _is_missed(state: LedgerState, table_id: TableId, change: SchemaChange) -> bool:
    """Whether a change counts as done because of its other tables, although its effect on this table is missing."""
    own = state.tables.get(table_id)
    return own is not None and own.checkpoint < change.commit_ts and not is_pending(state, change)


def _leaves_rows(change: SchemaChange, decision: Decision | None) -> bool:
    """Whether a TRUNCATE is not run, or another statement is run instead. Then the earlier rows stay and are still needed."""
    empties = any(isinstance(event, TruncateTableEvent) for event in change.events)
    return empties and decision is not None and decision.verdict is not Verdict.APPROVE


def ending_incomplete(state: LedgerState, offer: Offer, includes: Callable[[TableId], bool]) -> dict[TableId, int]:
    """The tables that lack rows and that a schema change of the offer ends, each with the change's commit ts (TSO)."""
    if not any(own.status is TableStatus.INCOMPLETE for own in state.tables.values()):
        return {}
    pending = [change for change in offer.schema_changes if is_pending(state, change)]
    ends = _ends_of_incomplete(state, offer, pending, followed(state, offer.schema_changes, includes))
    return {table_id: change.commit_ts for table_id, change in ends.items()}


def _reborn(state: LedgerState, changes: Iterable[SchemaChange]) -> dict[TableId, int]:
    """See ``Cut.reborn``."""
    gone, ignored = {t: own.checkpoint for t, own in state.tables.items() if own.status.is_gone}, unfollowed(state)
    reborn: dict[TableId, int] = {}
    among: dict[frozenset[TableId], set[TableId]] = {}  # for each set of tables that changes share, those not yet reborn
    for change in (c for c in changes if gone and not is_of(ignored, c)):
        if change.changes not in among:
            among[change.changes] = {t for t in change.changes if t in gone}
        born = {t for t in among[change.changes] if change.commit_ts >= gone[t]}
        among[change.changes] -= born
        for table_id in born:
            reborn.setdefault(table_id, change.commit_ts)
    return reborn


def _ends_of_lives(passing: Iterable[SchemaChange], tables: Collection[TableId]) -> dict[TableId, int]:
    """For each of ``tables``, the commit ts (TSO) of the first change that drops or renames it, if there is one."""
    over: dict[TableId, int] = {}
    for change in passing if tables else ():
        ended = {e.table_id for e in change.events if isinstance(e, DropTableEvent | RenameTableEvent)}
        for table_id in ended.intersection(tables) | tables_of_dropped(change, tables):
            over.setdefault(table_id, change.commit_ts)
    return over


def _floors(state: LedgerState, lives: Mapping[TableId, int], ends: Mapping[TableId, SchemaChange]) -> dict[TableId, int]:
    """The commit ts (TSO) up to which a table's rows are not needed. Rows of a later table of its name are not meant."""
    floors = {t: min(floor, lives.get(t, floor)) for t, floor in given_up_to(state).items()}
    return floors | {t: max(end.commit_ts, floors.get(t, 0)) for t, end in ends.items()}


def _windows(
    state: LedgerState, offer: Offer, tables: Mapping[TableId, int], floors: Mapping[TableId, int], ended: Mapping[TableId, int]
) -> dict[TableId, Window]:
    """The window of each of ``tables``, a mapping of tables to the ends (TSO) of their windows."""
    loaded = {t: state.tables[t].loaded for t in tables if t in state.tables}
    return {
        t: replace(_window(state.table_checkpoint(t), hi, offer, floors.get(t, 0), ended.get(t, 0)), loaded=loaded.get(t, 0))
        for t, hi in tables.items()
    }


def _window(checkpoint: int, hi: int, offer: Offer, given_up: int, ended: int) -> Window:
    """A window from the checkpoint on. If only milliseconds are known, it starts at the first TSO of the checkpoint's millisecond,
    whose rows are then applied again."""
    if not offer.precision.has_commit_ts:
        return Window()
    if not offer.precision.is_exact:
        return Window(tso_from_ms(tso_to_ms(checkpoint)) - 1, hi)
    return Window(min(max(checkpoint, given_up), hi), hi, given_up, ended)  # empty if all of it was given up


def _ended_by(offer: Offer, floors: Mapping[TableId, int]) -> dict[TableId, int]:
    """For each table, the newest schema change (TSO) that was given up together with everything before it.

    A change without a statement does not count: it is a restart of the source's writer, which may repeat earlier rows.
    """
    ended: dict[TableId, int] = {}
    changes = offer.schema_changes if floors and offer.precision.is_exact else ()
    among = {tables: [t for t in tables if t in floors] for tables in sets_of(changes)}
    for change in changes:
        for table_id in among[change.changes]:
            if change.statement and change.commit_ts <= floors[table_id]:
                ended[table_id] = max(change.commit_ts, ended.get(table_id, 0))
    return ended


def _known_problems(
    state: LedgerState, offer: Offer, rules: PlanRules, follows: Followed, ends: Collection[TableId]
) -> dict[TableId, Problem]:
    """Tables that cannot be read at all.

    A table with an unreadable schema change counts only if its shape is missing; otherwise it is held before the change. For a
    table that lacks rows, missing files count only if a schema change of the cut ends that (``ends``): later rows are needed.
    """
    problems = dict(rules.excluded)
    incomplete = {t for t, own in state.tables.items() if own.status is TableStatus.INCOMPLETE}
    unread = {change.origin: change for change in offer.unread}
    for problem in offer.problems:
        change = unread.get(problem.place)
        if problem.table_id in incomplete and (change is not None or problem.table_id not in ends):
            continue  # the table waits until it is loaded anew, whatever happens to its files
        if follows.end(problem.table_id) and (change is None or lacks_shape(state, change)):
            told = problem if change is None else without_shape(change, problem)
            problems.setdefault(problem.table_id, told)
    return problems


def _pending_changes(state: LedgerState, offer: Offer, follows: Followed, bound: int) -> list[SchemaChange]:
    """The schema changes to execute, in order: below ``bound``, not done, and not before their tables' checkpoints (rule 2)."""
    pending: list[SchemaChange] = []
    created: set[TableId] = set()
    namesakes, before, taken = Namesakes(state), TablesBefore(state, follows), set[frozenset[TableId]]()
    base = shapes_before(state, offer, follows.includes)
    missed = drops_with_databases(state, offer.schema_changes, follows)
    told = (*base, *missed, *offer.schema_changes, *offer.unread)
    for change in sorted((*told, *untold(state, told)), key=_commit_order):
        takes = follows.takes(change) or (change.unread is not None and not change.changes)
        if not takes or change.commit_ts >= bound or not (change in base or is_pending(state, change)):
            continue
        if change.known_as:
            pending.append(change)
            continue
        if change.unread is not None:
            # Its effect is unknown, but later changes of the same tables have to wait for it.
            needed = of_those_before(state, change, follows, before)
        else:
            needed = from_shape_if_unknown(state, change, created, follows)
            if not needed.events and not needed.statement:
                continue
        if needed.changes not in taken or any(isinstance(e, CreateTableEvent | RenameTableEvent) for e in needed.events):
            taken.add(needed.changes)
            created |= known_after(state, needed)
        pending.append(replace(needed, reads=needed.reads | namesakes.of(needed)))
        if not comes_late(state, change):  # a late change does not show which tables have its names now
            namesakes.note(needed)
    return pending


def _commit_order(change: SchemaChange) -> tuple[int, int]:
    """Orders by commit ts. Within one commit ts: unreadable changes, CREATE DATABASE, other changes, DROP DATABASE."""
    if change.unread is not None:
        return change.commit_ts, -2
    kinds = {type(event) for event in change.events}
    place = -1 if CreateDatabaseEvent in kinds else 1 if DropDatabaseEvent in kinds else 0
    return change.commit_ts, place


def first_shared_change(state: LedgerState, offer: Offer, tables: Collection[TableId]) -> int | None:
    """The commit ts (TSO) of the first change from the checkpoint on that touches some of these tables and changes others."""
    namesakes = Namesakes(state)
    for change in sorted((*offer.schema_changes, *offer.unread), key=_commit_order):
        if change.commit_ts < state.checkpoint or not is_pending(state, change):
            continue
        touched = change.touches | namesakes.of(change) | tables_of_dropped(change, state.tables)
        if touched.intersection(tables) and change.changes.difference(tables):
            return change.commit_ts
        namesakes.note(change)
    return None


def may_be_pending(state: LedgerState, change: SchemaChange) -> bool:
    """Whether a cut may still have to apply the change. True for all changes before a late start: they give tables their shapes."""
    return change.commit_ts <= state.start or is_pending(state, change)


def _may_read(state: LedgerState, split: Split, changed: Collection[TableId]) -> bool:
    """Whether the split is read. Splits of a table that is gone are not, unless this cut changes the table (``changed``)."""
    progress = state.tables.get(split.table_id)
    return progress is None or not progress.status.is_gone or split.table_id in changed


def _reject_keyless(splits: Iterable[Split], problems: dict[TableId, Problem], rules: PlanRules, offer: Offer) -> None:
    """Adds a problem for each table without key whose changes have to be netted and cannot be.

    Rows without key are netted by counting. This needs a sink that supports it, and exact commit ts to recognize repeated rows.
    """
    exact = offer.precision.is_exact
    if rules.bags and exact:
        return
    why = (
        "so its changes cannot be netted per key"
        if exact
        else "and its rows carry no exact commit ts, so repeated ones cannot be recognized"
    )
    for split in splits:
        if not split.schema.handle_key and rules.demand_of(split.table_id, split.schema) is ChangeDemand.BAG:
            message = f"it has no primary key and no unique key that is known, {why}."
            hint = (
                f"Name the columns that identify its rows with --key {in_quotes(f'{split.table_id}=COLUMN,…')}, or leave it out "
                f"with --tables {in_quotes(f'*.*,!{split.table_id}')}."
            )
            if not exact and (advice := offer.advice.exact_commit_ts):
                hint += f" With exact commit ts it can be applied. {advice}"
            problems.setdefault(split.table_id, Problem(split.table_id, message, place=split.place, hint=hint))


def _reject_reserved(splits: Collection[Split], problems: dict[TableId, Problem], rules: PlanRules) -> None:
    """Sets the problem of each table in a database that the target keeps for itself."""
    refused = {d: why for d in {s.table_id.database for s in splits} if (why := rules.reserved.sentence(d))}
    for split in splits if refused else ():
        if why := refused.get(split.table_id.database, ""):
            problems[split.table_id] = of_reserved(split.table_id, split.table_id.database, why, rules, place=split.place)


def _reject_untimed(splits: Iterable[Split], problems: dict[TableId, Problem], rules: PlanRules, offer: Offer) -> None:
    if not (rules.keeps_commit_ts or rules.replays) or offer.precision.is_exact:
        return
    for split in splits:
        if rules.keeps_commit_ts:
            message = "the sink writes the commit ts of each row, and its rows carry no exact one."
        elif rules.demand_of(split.table_id, split.schema) is ChangeDemand.ALL:
            message = "its transactions cannot be replayed, since its rows carry no exact commit ts."
        else:
            continue
        problems.setdefault(split.table_id, Problem(split.table_id, message, place=split.place, hint=offer.advice.exact_commit_ts))


def _table_plans(
    state: LedgerState, offer: Offer, splits: Iterable[Split], windows: Mapping[TableId, Window], below: Mapping[TableId, int]
) -> dict[TableId, TablePlan]:
    """The plan of each table that has splits, without its schema changes in this cut."""
    of_table = _by_table(splits)
    known = changes_of(of_table.keys(), offer.schema_changes)
    return {t: TablePlan(windows[t], found, known.get(t, ()), below=below[t]) for t, found in of_table.items()}


def _by_table(splits: Iterable[Split]) -> dict[TableId, list[Split]]:
    of_table: dict[TableId, list[Split]] = defaultdict(list)
    for split in splits:
        of_table[split.table_id].append(split)
    return of_table


def _rounds(
    state: LedgerState, offer: Offer, changes: list[SchemaChange], plans: Mapping[TableId, TablePlan]
) -> tuple[CutRound, ...]:
    history: dict[TableId, list[tuple[int, int]]] = defaultdict(list)
    firsts: dict[TableId, SchemaChange] = {}
    round_changes: dict[int, list[SchemaChange]] = defaultdict(list)
    for change, level in zip(changes, _levels(state, changes), strict=True):
        round_changes[level].append(change)
        for table_id in change.changes:
            firsts.setdefault(table_id, change)
        for table_id in change.changes | _ended_with_database(state, change, history):
            history[table_id].append((change.commit_ts, level))
    round_splits: dict[int, list[Split]] = defaultdict(list)
    segments: dict[int, dict[TableId, Segment]] = defaultdict(dict)
    for table_id, plan in plans.items():
        own, first = state.tables.get(table_id), firsts.get(table_id)
        is_late = own is not None and not own.status.is_gone and first is not None and is_found_later(first, table_id)
        whole = replace(plan, changes=tuple(history[table_id]), is_new=own is None or is_unborn(own) or is_late)
        for level, segment in whole.segments(offer.precision).items():
            segments[level][table_id] = segment
        for split in plan.splits:
            round_splits[whole.level(split)].append(split)
    numbers = sorted({*round_changes, *round_splits})
    return tuple(CutRound(tuple(round_changes[n]), tuple(round_splits[n]), segments[n]) for n in numbers)


def _ended_with_database(state: LedgerState, change: SchemaChange, changed: Collection[TableId]) -> frozenset[TableId]:
    """The tables that are dropped together with a database: their rows and their marks end with the change.

    ``changed`` are the tables that earlier changes of the cut concern.
    """
    if not drops_databases(change):
        return frozenset()
    there = (t for t, own in state.tables.items() if own.is_made and own.incarnation <= change.commit_ts)
    return tables_of_dropped(change, {*there, *changed})


def _levels(state: LedgerState, changes: list[SchemaChange]) -> list[int]:
    """The level of each change. Changes that only read the same object (CREATE TABLEs in one database) do not wait for each other,
    only for changes of that object."""
    changed_at: dict[TableId, int] = defaultdict(int)
    read_at: dict[TableId, int] = defaultdict(int)
    levels: list[int] = []
    for change in changes:
        touched = change.changes | tables_of_dropped(change, state.tables)
        databases = {folded_name(t.database) for t in touched if t.is_database}
        if databases:
            touched |= {t for t in changed_at if folded_name(t.database) in databases}
        before = [changed_at[t] for t in touched | change.reads] + [read_at[t] for t in touched]
        level = 1 + max(before, default=0)
        levels.append(level)
        for table_id in touched:
            changed_at[table_id] = level
        for table_id in change.reads:
            read_at[table_id] = max(read_at[table_id], level)
    return levels
