"""Carrying out what people ask of tables (``headrace table``). Pure: what is to be written comes back as an update.

Trying again and giving up a file are done with one update. Giving up rows, and going on after a table was loaded anew, stand
until a cut has taken the table that far: all the while the request is the floor under the table's rows. A hold stands until it
is released, or until the table goes on from where it was loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from headrace.engine.journal import is_before
from headrace.engine.unreadable import is_unborn, untold
from headrace.model.cut import Offer
from headrace.model.events import RenameTableEvent, SchemaChange
from headrace.model.outcome import Notice, SplitReport
from headrace.model.progress import (
    HOLDS,
    JournalEntry,
    JournalState,
    LedgerState,
    RequestKind,
    TableProgress,
    TableRequest,
    TableStatus,
)
from headrace.model.table import TableId
from headrace.sinks.base import LedgerUpdate
from headrace.sources.base import EventSource

_OF_A_CUT = (RequestKind.RESUME, RequestKind.SKIP_ROWS, RequestKind.SKIP_FILE, RequestKind.RESYNC)
_FLOORS = (RequestKind.SKIP_ROWS, RequestKind.LOADED)
_INEXACT = "rows carry no exact commit ts, so nothing tells which of them lie before another."


@dataclass(frozen=True)
class Carried:
    """What follows from requests: one step of the ledger, and what people are told."""

    update: LedgerUpdate
    notices: tuple[Notice, ...] = ()


def take_up_holds(state: LedgerState) -> Carried | None:
    """Holds tables that people want to be held, and lets go those that nobody holds any more; ``None``: there are none.

    From this step on no cut touches a held table. One that is stopped for another reason keeps that status, and is not tried.
    """
    released = [request for request in state.requests.values() if request.kind is RequestKind.RELEASE]
    taken = [replace(hold, kind=RequestKind.HELD) for hold in state.holds.values() if hold.kind is RequestKind.HOLD]
    rows, notices = [], []
    for table_id, own in state.tables.items():
        if table_id in state.held and own.status in (TableStatus.RUNNING, TableStatus.CATCHING_UP):
            reached = state.table_checkpoint(table_id)
            # Of a schema change at the very checkpoint of a running table the journal tells.
            rows.append(replace(own, checkpoint=reached, after=own.after and own.checkpoint == reached, status=TableStatus.HELD))
        elif table_id not in state.held and own.status is TableStatus.HELD:
            rows.append(replace(own, status=TableStatus.CATCHING_UP))
            notices.append(Notice(f"the table was released, and catches up from {own.checkpoint}.", table_id))
    for hold in taken:
        at = state.table_checkpoint(hold.table_id)
        notices.append(Notice(f"the table is held at {at}: nothing touches it until it is released.", hold.table_id))
    if not (released or taken or rows):
        return None
    holding = {r.identity for r in state.requests.values() if r.kind in (*HOLDS, RequestKind.RESYNC)}
    over = {request.identity for request in released} | ({request.file for request in released} & holding)
    return Carried(LedgerUpdate(tables=tuple(rows), requests=tuple(taken), used_requests=tuple(sorted(over))), tuple(notices))


def give_up_files(state: LedgerState, give_up: Callable[[str, TableId, str], str]) -> Carried | None:
    """Takes the files that people gave up out of the position; ``None`` when there are none. ``give_up`` is the source's.

    A table that lacks rows, or that is not made yet, is not mended by that. A table that is held, or that ``--tables`` leaves out,
    keeps the request.
    """
    asked = [request for request in state.requests.values() if request.kind is RequestKind.SKIP_FILE]
    waits = {t for t, own in state.tables.items() if own.status is TableStatus.EXCLUDED} | state.holds.keys()
    asked = [request for request in asked if request.table_id not in waits]
    if not asked:
        return None
    position, tables, notices = state.position, dict(state.tables), []
    changed: set[TableId] = set()
    for request in asked:
        table_id, own = request.table_id, tables.get(request.table_id)
        behind = own is not None and (own.status.is_stopped or own.status is TableStatus.CATCHING_UP) and not own.status.is_gone
        after = give_up(position, table_id, request.file) if behind else position
        if own is None or after == position:
            notices.append(Notice("nothing was given up: the table does not wait for this file any more.", table_id, request.file))
            continue
        told = f"the file {request.file} was given up"
        reason = f"{own.reason}; {told}" if table_id in changed else told
        if own.status is not TableStatus.INCOMPLETE and not is_unborn(own) and table_id not in state.held:
            tables[table_id] = replace(own, status=TableStatus.CATCHING_UP, reason=reason)
        changed.add(table_id)
        position = after
        notices.append(Notice("the file was given up: its changes are not in the target.", table_id, request.file))
    update = LedgerUpdate(
        position=position if position != state.position else None,
        tables=tuple(tables[table_id] for table_id in sorted(changed)),
        used_requests=tuple(request.identity for request in asked),
    )
    return Carried(update, tuple(notices))


def carry_out(
    state: LedgerState,
    offer: Offer,
    source: EventSource,
    left: Callable[[SchemaChange], Notice | None] = lambda _: None,
) -> Carried | None:
    """What the other requests ask for before the offer is planned; ``None`` when there is nothing to write.

    Where the update has a position, what the source offers by then is not what it offered. ``left`` tells what is wrong in the
    target when a schema change is passed over.
    """
    used: list[str] = []
    kept: list[TableRequest] = []
    rows: list[TableProgress] = []
    entries: list[JournalEntry] = []
    notices: list[Notice] = []
    position = state.position
    for request in (request for request in state.requests.values() if request.kind in _OF_A_CUT):
        table_id = request.table_id
        if request.identity in used:
            continue  # it was about a table that ended with one that was loaded
        refusal = _refusal(state, offer, source, request)
        if refusal is not None:
            notices += [Notice(refusal, table_id)] if refusal else []
            if _stops_because_of(state, request):
                # What was loaded would be taken for what was there before.
                kept.append(replace(request, kind=RequestKind.HELD))
                notices.append(Notice(f"it stays held: load it again, or run headrace table release {table_id}.", table_id))
            else:
                used.append(request.identity)
        elif request.kind is RequestKind.RESYNC and _is_due(state, request):
            own = state.tables[table_id]
            told = f"loaded anew as of {request.to}"
            rows.append(replace(own, checkpoint=request.to, after=True, status=TableStatus.CATCHING_UP, reason=told))
            kept.append(replace(request, kind=RequestKind.LOADED))
            used += [other.identity for other in state.requests.values() if _is_over_with(other, request)]
            overtaken = _overtaken(state, offer, request)
            entries += [_settled(change, JournalState.SKIPPED) for change in overtaken.changes]
            for ended, ts in overtaken.ended.items():
                former = state.tables.get(ended) or TableProgress(ended, ts)
                rows.append(replace(former, checkpoint=ts, after=True, status=TableStatus.GONE, reason=""))
                used += [r.identity for r in state.requests.values() if r.table_id == ended and not r.kind.is_of_letters]
                gone = (
                    f"its rows went over to {table_id} by the schema change at {ts}, which counts as done. If the target still has"
                )
                notices.append(Notice(f"{gone} a table {ended}, nobody needs it any more.", ended))
            if _reads_again(own, request):
                position = source.read_again(position, table_id, request.to)
                entries += [_settled(change, JournalState.DONE) for change in _at(state, offer, request)]
            notices.append(Notice(f"the table was {told}, and goes on from there.", table_id))
            notices += [notice for change in overtaken.changes if (notice := left(change)) is not None]
    if not used and not kept:
        return None
    if rows:
        position, _ = source.forget_vanished(position, {row.table_id for row in rows})
    update = LedgerUpdate(
        position=position if position != state.position else None,
        tables=tuple(rows),
        journal=tuple(entries),
        requests=tuple(kept),
        used_requests=tuple(used),
        used_decisions=tuple(entry.identity for entry in entries if entry.identity in state.decisions),
    )
    return Carried(update, tuple(notices))


def resyncs_due(state: LedgerState) -> frozenset[TableId]:
    """The tables that were loaded anew as of a time that the pipeline has reached: they are to go on now."""
    return frozenset(r.table_id for r in state.requests.values() if r.kind is RequestKind.RESYNC and _is_due(state, r))


def _stops_because_of(state: LedgerState, request: TableRequest) -> bool:
    """Whether the table would run if it were not for this resync."""
    own = state.tables.get(request.table_id)
    others = {*state.holds, *(r.table_id for r in state.requests.values() if r.kind is RequestKind.RESYNC and r is not request)}
    is_resync = request.kind is RequestKind.RESYNC and request.table_id not in others
    return is_resync and own is not None and own.status is TableStatus.HELD


def _is_over_with(other: TableRequest, resync: TableRequest) -> bool:
    """Whether an earlier request about the same table is over when this resync is carried out."""
    kinds = (*HOLDS, *_FLOORS)
    return other.table_id == resync.table_id and other.kind in kinds and other.identity < resync.identity


def _reads_again(own: TableProgress, request: TableRequest) -> bool:
    """Whether files that count as read, or that nobody wanted, are needed for a table that was loaded anew."""
    return request.to < own.checkpoint or own.status is TableStatus.NOT_FOLLOWED


def _refusal(state: LedgerState, offer: Offer, source: EventSource, request: TableRequest) -> str | None:
    """Why a request is over without anything being done, ``""`` when nobody has to be told; ``None`` when it stands."""
    if request.kind is RequestKind.RESUME:
        return ""
    own = state.tables.get(request.table_id)
    is_resync = request.kind is RequestKind.RESYNC
    if own is None or own.status in (TableStatus.GONE, TableStatus.GONE_WAITING):
        return "nothing was done: the table is gone."
    if not is_resync and (own.status is TableStatus.RUNNING or own.status.is_gone):
        return "nothing was done: the table is not stopped any more."
    if not (offer.has_commit_ts and offer.deletes_first):
        return f"nothing was done: {_INEXACT}"
    return next(_refusals_of_resync(state, offer, source, request), None) if is_resync else None


def _refusals_of_resync(state: LedgerState, offer: Offer, source: EventSource, request: TableRequest) -> Iterator[str]:
    """Why a resync cannot be carried out, the first reason first; nothing while it has to wait, and when it can."""
    own, at = state.tables[request.table_id], request.to
    asked = [r for r in state.requests.values() if r.kind is RequestKind.RESYNC and r.table_id == request.table_id]
    latest = max(asked, key=lambda other: other.identity)
    if latest is not request:
        yield f"the request to go on from {at} was replaced by a later one, to go on from {latest.to}."
    stays = f"the table does not go on from {at}:"
    nobodys = next((c for c in offer.unread if c.is_nobodys and own.incarnation <= c.commit_ts), None)
    if nobodys is not None:
        yield (
            f"{stays} later rows of it may lie in the folder of {nobodys.origin}, which "
            "cannot be read and tells no table. Repair that file, or move the data files of its version away, first."
        )
    if (shared := _overtaken(state, offer, request).blocked) is not None:
        yield f"{stays} {_is_shared(shared, request.table_id)}"
    if not _is_due(state, request):
        return
    if at < state.start:
        yield f"{stays} the pipeline begins at {state.start}. Load it as of that time or later."
    if (earliest := _earliest(state, offer, own)) > at:
        yield (
            f"{stays} its schema change at {earliest} came after that, and is over in this pipeline. "
            f"Load the table as of {earliest} or later."
        )
    if _stops_because_of(state, request) and not _has_key(offer, own.table_id):
        yield (
            f"{stays} it has no key, and changes may have been applied to it while it was loaded, so its rows cannot be told "
            "apart. Load it once more, now that it is held."
        )
    if _reads_again(own, request):
        if why := source.missing(state.position, own.table_id, at):
            yield f"{stays} {why} Restore what is missing, or load the table as of a later time."
        if gone := source.vanished(state.position, own.table_id, at):
            yield f"{stays} {gone[0]} is not there any more. Restore what is missing, or load the table as of a later time."


def _is_shared(change: SchemaChange, table_id: TableId) -> str:
    """Why a table that was loaded anew cannot pass over a schema change, and what can be done."""
    renames = [event for event in change.events if isinstance(event, RenameTableEvent)]
    new = next((event.new_table_id for event in renames if event.table_id == table_id), None)
    if new is not None:
        return f"by its schema change at {change.commit_ts} its rows go over to {new}. Load that table instead, and resync it."
    others = ", ".join(str(table) for table in sorted(change.changes - {table_id}))
    return (
        f"its schema change at {change.commit_ts} also concerns {others}. Do it by hand in the target, decide about it with "
        f"headrace ddl skip '{change.identity}', and run headrace table resync again."
    )


def _is_due(state: LedgerState, request: TableRequest) -> bool:
    """Whether the table is to be moved to where it was loaded: not before the pipeline has got there."""
    own = state.tables.get(request.table_id)
    return own is not None and own.status is not TableStatus.EXCLUDED and state.checkpoint >= request.to


def _earliest(state: LedgerState, offer: Offer, own: TableProgress) -> int:
    """The commit ts (TSO) from which on the table has the shape, and the name, that it has at its own checkpoint.

    Of a table that is not followed all counts up to the pipeline's checkpoint: it was skipped.
    """
    reached = state.checkpoint if own.status is TableStatus.NOT_FOLLOWED else own.checkpoint
    told = {c.commit_ts for c in offer.schema_changes if own.table_id in c.changes and (c.statement or c.events)}
    told = {ts for ts in told if ts < reached}
    told |= {e.commit_ts for e in state.journal.values() if e.state.is_settled and own.table_id in e.tables}
    return max({own.incarnation, *(ts for ts in told if ts <= reached)})


def _has_key(offer: Offer, table_id: TableId) -> bool:
    """Whether the table's newest shape has a key, declared or not."""
    schemas = [change.schema for change in offer.schema_changes if change.table_id == table_id and change.schema is not None]
    return bool(schemas and schemas[-1].handle_key)


def _at(state: LedgerState, offer: Offer, request: TableRequest) -> list[SchemaChange]:
    """The table's schema changes at the very time of which it was loaded: the loaded rows have them behind them."""
    told = (c for c in offer.schema_changes if request.table_id in c.changes and c.commit_ts == request.to)
    return [change for change in told if change.identity not in state.journal]


@dataclass
class _Overtaken:
    """The schema changes that were not done, and that the rows which were loaded have behind them.

    ``ended`` are the tables whose rows went over to the loaded one by them, and when (TSO). ``blocked`` is the first change that is
    of other tables too, and cannot count as done for them.
    """

    changes: list[SchemaChange] = field(default_factory=list)
    ended: dict[TableId, int] = field(default_factory=dict)
    blocked: SchemaChange | None = None


def _overtaken(state: LedgerState, offer: Offer, request: TableRequest) -> _Overtaken:
    """What a resync passes over: also what comes before on tables whose rows went over to this one."""
    found = _Overtaken()
    if _reads_again(state.tables[request.table_id], request):
        return found
    told = (*offer.schema_changes, *offer.unread)
    known = (*offer.schema_changes, *untold(state, told), *_of_one(state, offer.unread))
    pending = [c for c in known if (entry := state.journal.get(c.identity)) is None or not entry.state.is_settled]
    tables = [(request.table_id, request.to)]
    for table_id, to in tables:  # which grows
        reached = state.table_checkpoint(table_id)
        for change in pending:
            if table_id not in change.changes or not reached <= change.commit_ts <= to or change in found.changes:
                continue
            came, passing = _moved_to(change, table_id)
            if came is None or change.changes != {table_id, came, *passing}:
                if change.changes != {table_id}:
                    found.blocked = found.blocked or change
            elif came not in found.ended:
                found.ended[came] = change.commit_ts
                tables.append((came, change.commit_ts))
            found.changes.append(change)
    return found


def _moved_to(change: SchemaChange, table_id: TableId) -> tuple[TableId | None, frozenset[TableId]]:
    """The table whose rows have this name after the change, and the names that a table had only in between."""
    origins: dict[TableId, TableId] = {}
    names: set[TableId] = set()
    for event in change.events:
        if isinstance(event, RenameTableEvent):
            names |= {event.table_id, event.new_table_id}
            origins[event.new_table_id] = origins.pop(event.table_id, event.table_id)
    return origins.get(table_id), frozenset(names - origins.keys() - set(origins.values()))


def _of_one(state: LedgerState, unread: Iterable[SchemaChange]) -> Iterator[SchemaChange]:
    """The changes that cannot be read and that one table alone still waits for. Others go on holding the others."""
    for change in unread:
        before = frozenset(t for t in change.changes if is_before(state, t, change.commit_ts))
        if len(before) == 1:
            yield replace(change, changes=before)


def _settled(change: SchemaChange, state: JournalState) -> JournalEntry:
    tables = tuple(sorted(change.changes))
    return JournalEntry(change.identity, change.commit_ts, tables, change.statement, state)


def given_up_to(state: LedgerState) -> dict[TableId, int]:
    """Up to which commit ts (TSO) nobody wants a table's rows any more: they were given up, or loaded another way."""
    floors: dict[TableId, int] = {}
    for request in state.requests.values():
        if request.kind in _FLOORS:
            floors[request.table_id] = max(request.to, floors.get(request.table_id, 0))
    return floors


def served_requests(state: LedgerState) -> tuple[TableRequest, ...]:
    """The requests that are over when the tables stand like this."""

    def is_over(request: TableRequest) -> bool:
        own = state.tables.get(request.table_id)
        if own is None or (own.status is not TableStatus.RUNNING and not own.status.is_gone):
            return False
        return own.status.is_gone or state.table_checkpoint(request.table_id) >= request.to

    return tuple(request for request in state.requests.values() if request.kind in _FLOORS and is_over(request))


def running_reason(state: LedgerState, own: TableProgress) -> str:
    """What the ledger keeps saying of a table that goes on: that it lacks rows, or where they came from."""
    for request in state.requests.values():
        if request.table_id == own.table_id and request.kind is RequestKind.SKIP_ROWS:
            return f"its rows from {request.since + 1} to {request.to} were given up"
    return own.reason if own.status is TableStatus.CATCHING_UP else ""


def without_given_up(reports: Iterable[SplitReport]) -> Mapping[str, SplitReport]:
    """The reports by split; damaged splits of which nobody wants a row any more have no problem.

    Such a split has a later one of its stream that begins at or below what was given up: whatever lies behind the damage
    belongs before that too, or is written again in the later one (a writer that went back repeats everything from there). Or it
    lies in a version before a schema change that was given up, and nothing readable in it is newer than what was given up.
    """
    known = list(reports)
    return {report.split_key: _forgiven(report, known) for report in known}


def _forgiven(report: SplitReport, reports: list[SplitReport]) -> SplitReport:
    problem = report.problem
    damaged = problem is not None or report.truncated
    if not report.given_up or not damaged or (problem is not None and problem.transient):
        return report
    later = (o for o in reports if (o.table_id, o.stream) == (report.table_id, report.stream) and o.rank > report.rank and o.rows)
    is_past = report.ended or (report.stream and any(other.min_ts <= report.given_up for other in later))
    if not report.kept and is_past:
        told = Notice("the damaged file was given up: all it holds belongs before what is still wanted.", report.table_id)
        notices = (*report.notices, replace(told, file=report.split_key))
        return replace(report, problem=None, truncated=False, pending_ts=None, notices=notices)
    if problem is None:
        return report
    hint = (
        f"{problem.hint} No later file shows that it ends before {report.given_up}: repair it, or give it up whole with headrace "
        f"table skip {report.table_id} --file '{report.split_key}'."
    )
    return replace(report, problem=replace(problem, hint=hint.lstrip()))
