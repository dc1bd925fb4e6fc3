"""Where tables stand around a schema change: before it, held before it, and after it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from headrace.ddl.statement import read_statement
from headrace.engine.excluded_tables import cannot_be_made
from headrace.engine.given_up import given_up
from headrace.engine.journal import was_let_in
from headrace.engine.ownership import dropped_by
from headrace.engine.segments import is_found_later
from headrace.engine.unreadable import is_unborn
from headrace.model.commands import word
from headrace.model.events import (
    CreateTableEvent,
    DropDatabaseEvent,
    DropTableEvent,
    ExchangePartitionEvent,
    RenameTableEvent,
    SchemaChange,
    TruncateTableEvent,
)
from headrace.model.ledger import LedgerState, RequestKind, TableProgress, TableStatus, Verdict
from headrace.model.table import TableId
from headrace.model.tso import format_tso


@dataclass(frozen=True)
class Passed:
    """The commit ts (TSO) up to which a source that forgets has passed over records, and the consequences for tables."""

    up_to: int = 0
    lasting: frozenset[TableId] = frozenset()
    """Tables whose checkpoint was below ``up_to`` before the cut. They may lack more than rows, so a TRUNCATE does not complete
    them."""

    @classmethod
    def of(cls, up_to: int, checkpoints: Mapping[TableId, int]) -> Passed:
        """``checkpoints`` are the tables' checkpoints before the cut (TSO)."""
        return cls(up_to, frozenset(t for t, reached in checkpoints.items() if reached < up_to))

    def behind(self, table_id: TableId, commit_ts: int) -> dict[TableId, str]:
        """Why a table that begins at a commit ts (TSO) lacks rows; empty if it does not."""
        if commit_ts >= self.up_to or table_id.is_database:
            return {}
        why = (
            f"records after the schema change at {commit_ts} were passed over. Load it anew as of a time after "
            f"{format_tso(self.up_to)}, and run headrace table resync {word(table_id)} --at TIME."
        )
        return {table_id: why}

    def lasts(self, own: TableProgress) -> bool:
        """Whether a TRUNCATE does not complete a table that lacks rows."""
        return own.table_id in self.lasting or (self.up_to > 0 and came_lacking(own))


NOTHING_PASSED = Passed()


def came_lacking(own: TableProgress) -> bool:
    """Whether the table lacked rows already when it got its name. Since when, the row does not tell."""
    return own.status is TableStatus.INCOMPLETE and own.after and own.checkpoint == own.incarnation


def before(state: LedgerState, change: SchemaChange) -> tuple[TableProgress, ...]:
    """The change's tables at (V, before), with those of a dropped database: some may be gone if the cut is aborted."""
    rows = []
    for table_id in sorted(change.changes | dropped_with(change)):
        base = state.tables.get(table_id) or _before_its_beginning(state, table_id, change)
        is_after = _came_with(base, change.commit_ts)
        stays = base.status.is_gone or base.status is TableStatus.INCOMPLETE
        rows.append(base if stays else replace(base, checkpoint=_reached(base, change), after=is_after))
    return tuple(rows)


def _came_with(own: TableProgress, commit_ts: int) -> bool:
    """Whether a table got its name in another part of the statement at this commit ts (TSO), as in a RENAME of several tables.

    It stays at (V, after), because it does not exist before its own beginning.
    """
    return own.after and own.checkpoint == own.incarnation == commit_ts


def dropped_with(change: SchemaChange) -> frozenset[TableId]:
    """The tables and views that end with the databases that the change drops."""
    return frozenset(t for event in change.events if isinstance(event, DropDatabaseEvent) for t in event.tables | event.stays)


def follows(own: TableProgress | None, change: SchemaChange) -> bool:
    """Whether a change moves a table at all. A table that is not followed stays so until a new table gets its name, or it ends."""
    if own is None or own.status is not TableStatus.NOT_FOLLOWED:
        return True
    begun = {event.table_id for event in change.events if isinstance(event, CreateTableEvent)}
    begun |= {event.new_table_id for event in change.events if isinstance(event, RenameTableEvent)}
    return own.table_id in begun


def unborn(table_id: TableId, start: int) -> TableProgress:
    """A table that does not exist yet: it stands before the first of its changes."""
    return TableProgress(table_id, start, after=False, incarnation=start)


def held(row: TableProgress, at: int, former: TableProgress | None) -> TableProgress:
    """The row of a table that stops before a schema change at a commit ts (TSO). ``former`` is its row until now.

    A table that is gone begins anew with the change, unless the change was found after the table's end.
    """
    if former is None or is_unborn(former) or (former.status.is_gone and at >= former.checkpoint):
        begins, again = max(row.checkpoint, at), former is not None and (former.again or former.status.is_gone)
        return replace(row, checkpoint=begins, after=False, incarnation=begins, again=again)
    if former.status.is_gone:
        return replace(row, status=TableStatus.GONE_WAITING)
    is_after = former.after and (row.checkpoint > at or _came_with(former, at))
    return replace(row, checkpoint=max(row.checkpoint, at), after=is_after)


def _lacking(state: LedgerState, change: SchemaChange, behind: Collection[TableId]) -> dict[TableId, str]:
    """Tables that get, by a RENAME, the rows of a table that lacks some, and the reason why they are missing."""
    lacking: dict[TableId, str] = {}
    for event in change.events:
        if not isinstance(event, RenameTableEvent):
            continue
        old, new = event.table_id, event.new_table_id
        own = state.tables.get(old)
        if old in lacking:
            lacking[new] = _told_of(lacking.pop(old), old, new)
        elif own is not None and own.status is TableStatus.INCOMPLETE:
            lacking[new] = _told_of(own.reason, old, new)
        elif old in behind:
            lacking[new] = (
                f"it got the rows of {old} by the schema change at {change.commit_ts}, which was decided while {old} was stopped: "
                f"earlier changes are missing. Load it anew as of a time after {format_tso(change.commit_ts)}, and run headrace "
                f"table resync {word(new)} --at TIME."
            )
    return lacking


def _told_of(reason: str, old: TableId, new: TableId) -> str:
    """A table's reason rewritten for another table, including the commands in it."""
    return reason.replace(word(old), word(new)).replace(str(old), str(new))


def _reasons_carried(state: LedgerState, change: SchemaChange) -> dict[TableId, str]:
    """The reasons that stay with rows when they move to another name or table, such as that some rows were given up."""
    told: dict[TableId, str] = {}
    for event in change.events:
        match event:
            case RenameTableEvent(old, new):
                told[new] = told.pop(old) if old in told else _reason_at(state, old, change.commit_ts)
            case ExchangePartitionEvent(first, second):
                for giver, getter in ((first, second), (second, first)):
                    if lost := _given_up_of(state, giver, change.commit_ts):
                        told[getter] = f"it got rows of {giver} by the schema change at {change.commit_ts}; in {giver}, {lost}"
            case _:
                pass
    return {table_id: reason for table_id, reason in told.items() if reason}


_WHOLE = ("", 0)


def _missing_behind(state: LedgerState, change: SchemaChange, *, ran: bool) -> dict[TableId, tuple[str, int]]:
    """What tables lack after a change, and as of when they were loaded (``TableProgress.lacks`` and ``loaded``).

    Both move with the rows, and are cleared if the rows are removed by a change that ``ran``.
    """
    told: dict[TableId, tuple[str, int]] = {}

    def of(table_id: TableId) -> tuple[str, int]:
        own = state.tables.get(table_id)
        return told.get(table_id, (own.lacks, own.loaded) if own is not None else _WHOLE)

    for event in change.events:
        match event:
            case RenameTableEvent(old, new):
                told |= {new: of(old), old: _WHOLE}
            case ExchangePartitionEvent(first, second):
                (one, loaded), (other, also) = of(first), of(second)
                told |= dict.fromkeys((first, second), (one or other, min(loaded, also)))
            case TruncateTableEvent(table_id) | DropTableEvent(table_id) if ran:
                told[table_id] = _WHOLE
            case DropDatabaseEvent(_, tables, stays) if ran:
                told |= dict.fromkeys(tables | stays, _WHOLE)
            case _:
                pass
    return told


def _reason_at(state: LedgerState, table_id: TableId, commit_ts: int) -> str:
    own = state.tables.get(table_id)
    goes_on = own is not None and own.status in (TableStatus.RUNNING, TableStatus.CATCHING_UP)
    return _given_up_of(state, table_id, commit_ts) or (own.reason if own is not None and goes_on else "")


def _given_up_of(state: LedgerState, table_id: TableId, commit_ts: int) -> str:
    """Which of a table's rows up to a commit ts (TSO) were given up, if that request is not completed yet."""
    asked = (r for r in state.requests.values() if r.table_id == table_id and r.kind is RequestKind.SKIP_ROWS)
    return next((given_up(request, commit_ts) for request in asked if request.since < commit_ts), "")


def _newcomer(state: LedgerState, table_id: TableId, change: SchemaChange) -> TableProgress:
    """A table that begins. The pipeline's checkpoint does not move it, because that may be ahead of a table that was found late."""
    return TableProgress(table_id, state.start, status=TableStatus.CATCHING_UP, incarnation=change.commit_ts)


def _before_its_beginning(state: LedgerState, table_id: TableId, change: SchemaChange) -> TableProgress:
    """A table that the change may create. It does not exist yet, even if it is to have a shape from before the start."""
    return replace(_newcomer(state, table_id, change), after=False, incarnation=max(change.commit_ts, state.start))


def _with_beginning(base: TableProgress, change: SchemaChange) -> TableProgress:
    """The table as one that began with the change, if the change creates it with an older shape."""
    is_made_now = is_found_later(change, base.table_id) and not base.has_been
    return replace(base, incarnation=change.commit_ts) if is_made_now else base


def _reached(base: TableProgress, change: SchemaChange) -> int:
    """The checkpoint of a table at a schema change. A table that existed before its first shape was found may have older rows."""
    return base.checkpoint if is_found_later(change, base.table_id) else max(base.checkpoint, change.commit_ts)


def passes_without(state: LedgerState, change: SchemaChange, still: Iterable[TableId]) -> bool:
    """Whether a person ended the change, although these tables are stopped before it, because other tables wait for it.

    These tables must already be recorded as stopped: a problem found only in this cut may be gone in the next one. A held table
    does not move.
    """
    decision = state.decisions.get(change.identity)
    if decision is None or decision.verdict is Verdict.APPROVE or len(change.changes) == 1:
        return False
    return all(t in state.tables and state.tables[t].status.is_stopped and t not in state.held for t in still)


def after(
    state: LedgerState,
    change: SchemaChange,
    behind: Collection[TableId] = (),
    passed: Passed = NOTHING_PASSED,
    *,
    ran: bool = True,
) -> tuple[TableProgress, ...]:
    """The change's tables at (V, after): created, altered, gone, or renamed.

    ``behind`` are tables that were stopped before the change when a person let it pass. They stay where they are, or end with the
    change; a table that gets their rows lacks what they lack. ``passed``: up to where rows may be missing after the change. If the
    change was skipped or replaced by another statement (``ran`` false), tables that it would have emptied keep their rows.

    A table that lacks rows keeps its place until it ends, is emptied or renamed: the place shows since when changes may be missing.
    """
    gone = set(dropped_by(change, read_statement(change.statement, change.database)))
    renamed: set[TableId] = set()
    let_in = {t for t in change.changes if was_let_in(state, t)}
    emptied: set[TableId] = set()
    lacking, carried = _lacking(state, change, behind), _reasons_carried(state, change)
    missing = _missing_behind(state, change, ran=ran)
    for event in change.events:
        match event:
            case RenameTableEvent(old, new):
                renamed.discard(old)
                renamed.add(new)
                gone.add(old)
                let_in = (let_in - {old, new}) | ({new} if old in let_in else set())
            case TruncateTableEvent(table_id):
                emptied.add(table_id)
            case DropDatabaseEvent():
                gone |= event.tables | event.stays | change.changes
            case _:
                pass
    gone -= renamed
    rows = []
    for table_id in sorted(change.changes | gone):
        base = state.tables.get(table_id)
        stays = table_id in behind and table_id not in renamed
        if table_id not in gone and (stays or not follows(base, change)):
            continue
        if base is not None and base.status.is_gone and change.commit_ts < base.checkpoint:
            rows.append(replace(base, status=TableStatus.GONE, reason="", lacks=""))
            continue
        # What was passed over of a table that was never created is still missing after any change but its end.
        if base is None or base.status.is_gone or (is_unborn(base) and not cannot_be_made(base)):
            base = _newcomer(state, table_id, change)
            if table_id not in renamed | gone:
                lacking = passed.behind(table_id, change.commit_ts) | lacking
        base = _with_beginning(base, change)
        lacks, loaded = missing.get(table_id, (base.lacks, base.loaded))
        base = replace(base, reason=carried.get(table_id, base.reason), lacks=lacks, loaded=loaded)
        lacked = base.status is TableStatus.INCOMPLETE
        if table_id in lacking:
            base = replace(base, status=TableStatus.INCOMPLETE, reason=lacking[table_id])
        elif lacked and table_id in emptied and not passed.lasts(base):
            base = replace(base, status=TableStatus.CATCHING_UP, reason="")
        status = TableStatus.GONE if table_id in gone else base.status
        is_renamed = table_id in renamed
        keeps_place = lacked and status is TableStatus.INCOMPLETE and not is_renamed
        row = base if keeps_place else replace(base, checkpoint=_reached(base, change), after=True, status=status)
        rows.append(replace(row, incarnation=change.commit_ts, let_in=table_id in let_in) if is_renamed else row)
    return tuple(rows)
