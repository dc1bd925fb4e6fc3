"""Carrying out what people ask of tables (``headrace table``). Pure: what is to be written comes back as an update.

Trying again and giving up a file are done with one update. Giving up rows, and going on after a table was loaded anew, stand
until a cut has taken the table that far: all the while the request is the floor under the table's rows. A hold stands until it
is released, or until the table goes on from where it was loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from headrace.engine.journal import is_before
from headrace.engine.unreadable import is_unborn, untold
from headrace.model.cut import Offer
from headrace.model.events import SchemaChange
from headrace.model.outcome import Notice, SplitReport
from headrace.model.progress import (
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

_OF_A_CUT = (RequestKind.RESUME, RequestKind.SKIP_ROWS, RequestKind.SKIP_FILE, RequestKind.RESYNC)
_INEXACT = "rows carry no exact commit ts, so nothing tells which of them lie before another."


@dataclass(frozen=True)
class Carried:
    """What follows from requests: one step of the ledger, and what people are told.

    ``forgotten`` are splits that vanished and that nobody misses any more.
    """

    update: LedgerUpdate
    notices: tuple[Notice, ...] = ()
    forgotten: frozenset[str] = frozenset()


def take_up_holds(state: LedgerState) -> Carried | None:
    """Holds tables that people want to be held, and lets go those that nobody holds any more; ``None``: there are none.

    From this step on no cut touches a held table. One that is stopped for another reason keeps that status, and is not tried.
    """
    released = [request for request in state.requests.values() if request.kind is RequestKind.RELEASE]
    taken = [replace(hold, kind=RequestKind.HELD) for hold in state.holds.values() if hold.kind is RequestKind.HOLD]
    rows, notices = [], []
    for table_id, own in state.tables.items():
        if table_id in state.holds and own.status in (TableStatus.RUNNING, TableStatus.CATCHING_UP):
            reached = state.table_checkpoint(table_id)
            # Of a schema change at the very checkpoint of a running table the journal tells.
            rows.append(replace(own, checkpoint=reached, after=own.after and own.checkpoint == reached, status=TableStatus.HELD))
        elif table_id not in state.holds and own.status is TableStatus.HELD:
            rows.append(replace(own, status=TableStatus.CATCHING_UP))
            notices.append(Notice(f"the table was released, and catches up from {own.checkpoint}.", table_id))
    for hold in taken:
        at = state.table_checkpoint(hold.table_id)
        notices.append(Notice(f"the table is held at {at}: nothing touches it until it is released.", hold.table_id))
    if not (released or taken or rows):
        return None
    over = tuple(identity for request in released for identity in (request.file, request.identity))
    return Carried(LedgerUpdate(tables=tuple(rows), requests=tuple(taken), used_requests=over), tuple(notices))


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
        if own.status is not TableStatus.INCOMPLETE and not is_unborn(own) and table_id not in loading(state):
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
    forget: Callable[[str, Collection[TableId]], tuple[str, frozenset[str]]],
    left: Callable[[SchemaChange], Notice | None] = lambda _: None,
) -> Carried | None:
    """What the other requests ask for before the offer is planned; ``None`` when there is nothing to write.

    ``forget`` is the source's ``forget_vanished``. ``left`` tells what is wrong in the target when a schema change is passed over.
    """
    used: list[str] = []
    rows: list[TableProgress] = []
    entries: list[JournalEntry] = []
    notices: list[Notice] = []
    for request in (request for request in state.requests.values() if request.kind in _OF_A_CUT):
        refusal = _refusal(state, offer, request)
        if refusal is not None:
            used.append(request.identity)
            notices += [Notice(refusal, request.table_id)] if refusal else []
        elif request.kind is RequestKind.RESYNC and _is_due(state, offer, request):
            own = state.tables[request.table_id]
            told = f"loaded anew as of {request.to}"
            rows.append(replace(own, checkpoint=request.to, after=True, status=TableStatus.CATCHING_UP, reason=told))
            used += [hold.identity for hold in state.holds.values() if hold.table_id == request.table_id]
            overtaken = _overtaken(state, offer, request)
            entries += [_skipped(change) for change in overtaken]
            notices.append(Notice(f"the table was {told}, and goes on from there.", request.table_id))
            notices += [notice for change in overtaken if (notice := left(change)) is not None]
    if not used and not rows:
        return None
    position, forgotten = forget(state.position, {row.table_id for row in rows}) if rows else (state.position, frozenset())
    update = LedgerUpdate(
        position=position if position != state.position else None,
        tables=tuple(rows),
        journal=tuple(entries),
        used_requests=tuple(used),
        used_decisions=tuple(entry.identity for entry in entries if entry.identity in state.decisions),
    )
    return Carried(update, tuple(notices), forgotten)


def _refusal(state: LedgerState, offer: Offer, request: TableRequest) -> str | None:
    """Why a request is over without anything being done, ``""`` when nobody has to be told; ``None`` when it stands."""
    if request.kind is RequestKind.RESUME:
        return ""
    own = state.tables.get(request.table_id)
    if own is None or own.status is TableStatus.RUNNING or own.status.is_gone:
        return "nothing was done: the table is not stopped any more."
    if not (offer.has_commit_ts and offer.deletes_first):
        return f"nothing was done: {_INEXACT}"
    return _refusal_of_resync(state, offer, request) if request.kind is RequestKind.RESYNC else None


def _refusal_of_resync(state: LedgerState, offer: Offer, request: TableRequest) -> str | None:
    if (replaced := _replaced(state, request)) is not None:
        return replaced
    incarnation = state.tables[request.table_id].incarnation
    nobodys = next((c for c in offer.unread if c.is_nobodys and incarnation <= c.commit_ts), None)
    if nobodys is not None:
        return (
            f"the table does not go on from {request.to}: later rows of it may lie in the folder of {nobodys.origin}, which "
            "cannot be read and tells no table. Repair that file, or move the data files of its version away, first."
        )
    shared = next((c for c in _overtaken(state, offer, request) if c.changes != {request.table_id}), None)
    if shared is not None:
        others = ", ".join(str(table) for table in sorted(shared.changes - {request.table_id}))
        return (
            f"the table does not go on from {request.to}: its schema change at {shared.commit_ts} also concerns {others}. "
            "Decide about that one with headrace ddl first."
        )
    return None


def _replaced(state: LedgerState, request: TableRequest) -> str | None:
    """Why a resync is over because the table has another one: the last word counts, if no earlier one was carried out."""
    others = [r for r in state.requests.values() if r.kind is RequestKind.RESYNC and r.table_id == request.table_id]
    latest = max(others, key=lambda other: other.identity)
    if latest is not request and not _is_loaded(state, request):
        return f"the request to go on from {request.to} was replaced by a later one, to go on from {latest.to}."
    done = max((r.to for r in others if r.identity < request.identity and _is_loaded(state, r)), default=0)
    if done > request.to:
        return f"the table does not go on from {request.to}: by an earlier request it goes on from {done} already."
    return None


def _is_due(state: LedgerState, offer: Offer, request: TableRequest) -> bool:
    """Whether the table is to be moved to where it was loaded: once, and not before the pipeline has got there."""
    own = state.tables[request.table_id]
    ahead = own.checkpoint < request.to or bool(_overtaken(state, offer, request))
    waits = own.status.is_stopped or own.status is TableStatus.CATCHING_UP
    return waits and state.checkpoint >= request.to and (ahead or own.status is TableStatus.INCOMPLETE)


def loading(state: LedgerState) -> frozenset[TableId]:
    """The stopped tables that were loaded anew as of a time at which the pipeline is not yet: what is older would undo that."""
    asked = (
        request for request in state.requests.values() if request.kind is RequestKind.RESYNC and not _is_loaded(state, request)
    )
    return frozenset(r.table_id for r in asked if (own := state.tables.get(r.table_id)) is not None and own.status.is_stopped)


def _overtaken(state: LedgerState, offer: Offer, request: TableRequest) -> list[SchemaChange]:
    """The table's schema changes that were not done, and that the rows which were loaded have behind them."""
    reached = state.table_checkpoint(request.table_id)

    def is_open(change: SchemaChange) -> bool:
        entry = state.journal.get(change.identity)
        return entry is None or not entry.state.is_settled

    told = (*offer.schema_changes, *offer.unread)
    known = (*offer.schema_changes, *untold(state, told), *_of_one(state, offer.unread))
    return [
        change
        for change in known
        if request.table_id in change.changes and reached <= change.commit_ts <= request.to and is_open(change)
    ]


def _of_one(state: LedgerState, unread: Iterable[SchemaChange]) -> Iterator[SchemaChange]:
    """The changes that cannot be read and that one table alone still waits for. Others go on holding the others."""
    for change in unread:
        before = frozenset(t for t in change.changes if is_before(state, t, change.commit_ts))
        if len(before) == 1:
            yield replace(change, changes=before)


def _skipped(change: SchemaChange) -> JournalEntry:
    tables = tuple(sorted(change.changes))
    return JournalEntry(change.identity, change.commit_ts, tables, change.statement, JournalState.SKIPPED)


def given_up_to(state: LedgerState) -> dict[TableId, int]:
    """Up to which commit ts (TSO) nobody wants a table's rows any more: they were given up, or loaded another way."""
    floors: dict[TableId, int] = {}
    for request in state.requests.values():
        if request.kind is RequestKind.SKIP_ROWS or _is_loaded(state, request):
            floors[request.table_id] = max(request.to, floors.get(request.table_id, 0))
    return floors


def _is_loaded(state: LedgerState, request: TableRequest) -> bool:
    return request.kind is RequestKind.RESYNC and state.table_checkpoint(request.table_id) >= request.to


def served_requests(state: LedgerState) -> tuple[TableRequest, ...]:
    """The requests that are over when the tables stand like this."""

    def is_over(request: TableRequest) -> bool:
        own = state.tables.get(request.table_id)
        if own is None or (own.status is not TableStatus.RUNNING and not own.status.is_gone):
            return False
        return own.status.is_gone or state.table_checkpoint(request.table_id) >= request.to

    return tuple(request for request in state.requests.values() if request.to and is_over(request))


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
