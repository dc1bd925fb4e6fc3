"""Carries out people's requests about tables (``headrace table``). Pure: the result is an update of the ledger.

A retry, or giving up a file, takes one update. A request to give up rows, or a resync after a table was loaded again, stands until
a cut has taken the table that far; until then it is the lower limit for the table's rows. A hold stands until it is released, or
until the table continues from the point as of which it was loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from headrace.ddl.statement import read_statement
from headrace.engine.given_up import FLOORS, is_at_floor
from headrace.engine.journal import tables_of_dropped
from headrace.engine.passed_changes import Overtaken, origins_of, overtaken, told_ended
from headrace.engine.shapes import told_shapes
from headrace.engine.unreadable import is_unborn
from headrace.model.commands import in_quotes, word
from headrace.model.events import DropDatabaseEvent, DropTableEvent, SchemaChange
from headrace.model.ledger import (
    HOLDS,
    JournalEntry,
    JournalState,
    LedgerState,
    RequestKind,
    TableProgress,
    TableRequest,
    TableStatus,
    in_order,
)
from headrace.model.offer import Offer
from headrace.model.outcome import Notice
from headrace.model.place import SourcePlace
from headrace.model.table import NOBODYS, TableId
from headrace.sinks.base import LedgerUpdate
from headrace.sources.base import EventSource

_OF_A_CUT = (RequestKind.RESUME, RequestKind.SKIP_ROWS, RequestKind.SKIP_FILE, RequestKind.SKIP_RECORD, RequestKind.RESYNC)
_MISSES_FILES = (
    TableStatus.STOPPED,
    TableStatus.WAITING,
    TableStatus.NEEDS_RESYNC,
    TableStatus.INCOMPLETE,
    TableStatus.HELD,
    TableStatus.CATCHING_UP,
    TableStatus.EXCLUDED,
)
_INEXACT = "rows carry no exact commit ts, so Headrace cannot tell which of them lie before a given time."


@dataclass(frozen=True)
class Carried:
    """The result of requests: one step of the ledger, and notices."""

    update: LedgerUpdate
    notices: tuple[Notice, ...] = ()

    @property
    def reads_anew(self) -> bool:
        """Whether the source must make a new offer."""
        return self.update.position is not None


def releases_to_judge(state: LedgerState) -> frozenset[TableId]:
    """Tables released after a load as of a time ahead of their checkpoint. The source's changes show whether the rows fit."""
    loads = (request for request in state.released if request.kind is RequestKind.RESYNC)
    return frozenset(load.table_id for load in loads if load.table_id in state.tables and not does_not_fit(state, load))


def take_up_holds(state: LedgerState, offer: Offer | None = None) -> Carried | None:
    """Holds tables that people want to hold, and releases tables that are not held any more; ``None`` if there are none.

    From this step on, no cut touches a held table. A table that is stopped for another reason keeps that status, and is not
    retried. Without an ``offer``, a release that needs one (:func:`releases_to_judge`) has to wait.
    """
    waiting = releases_to_judge(state) if offer is None else frozenset[TableId]()
    released = [r for r in state.requests.values() if r.kind is RequestKind.RELEASE and r.table_id not in waiting]
    lacking = {row.table_id: row for row in _released_unfit(state, offer)}
    gone = {t for t, own in state.tables.items() if own.status in (TableStatus.GONE, TableStatus.GONE_WAITING)}
    ended = [hold for hold in state.standing_holds if hold.table_id in gone]
    fresh = [hold for hold in state.standing_holds if hold.table_id not in gone and hold.kind is RequestKind.HOLD]
    taken = [replace(hold, kind=RequestKind.HELD) for hold in fresh]
    rows: list[TableProgress] = []
    notices = [Notice("it is not held any more: the table is gone.", hold.table_id) for hold in ended]
    for table_id, own in state.tables.items():
        if table_id in waiting:
            continue
        if table_id in lacking:
            rows.append(lacking[table_id])
            notices.append(Notice(f"it does not go on: {lacking[table_id].reason}", table_id))
        elif table_id in state.held and own.status in (TableStatus.RUNNING, TableStatus.CATCHING_UP):
            rows.append(replace(as_reached(state, own), status=TableStatus.HELD))
        elif table_id not in state.held and own.status is TableStatus.HELD:
            rows.append(replace(own, status=TableStatus.CATCHING_UP))
            notices.append(Notice(f"the table was released, and catches up from {own.checkpoint}.", table_id))
    for hold in taken:
        at = state.table_checkpoint(hold.table_id)
        notices.append(Notice(f"the table is held at {at}: nothing touches it until it is released.", hold.table_id))
    if not (released or taken or rows or ended):
        return None
    over = {request.identity for request in (*released, *state.released, *ended) if request.table_id not in waiting}
    return Carried(LedgerUpdate(tables=tuple(rows), requests=tuple(taken), used_requests=tuple(sorted(over))), tuple(notices))


def as_reached(state: LedgerState, own: TableProgress) -> TableProgress:
    """The table's row at its true checkpoint. The journal records whether a schema change at exactly that ts is done."""
    reached = state.table_checkpoint(own.table_id)
    return replace(own, checkpoint=reached, after=own.after and own.checkpoint == reached)


def _released_unfit(state: LedgerState, offer: Offer | None) -> Iterator[TableProgress]:
    """The rows of tables that were released though their loaded rows do not fit their checkpoint: they are incomplete from then on.

    This includes tables that ``--tables`` leaves out. Otherwise the problem would be forgotten by the time the table is included
    again, or renamed into the filter.
    """
    unfit = {r.table_id: r for r in state.released if does_not_fit(state, r) or _passes_another_life(state, offer, r)}
    for table_id, request in unfit.items():
        own = state.tables.get(table_id)
        if own is None or own.status.is_gone or own.status is TableStatus.INCOMPLETE:
            continue
        row = as_reached(state, own)
        why = f"was loaded as of {request.to} and released, but it stands at {row.checkpoint}, and its rows are not of that time"
        if request.to == row.checkpoint:
            why = f"was released before a resync to {request.to} was carried out"
        reason = f"it {why}. Load it anew, and run headrace table resync {word(table_id)} --at TIME."
        yield replace(row, status=TableStatus.INCOMPLETE, reason=reason)


def _passes_another_life(state: LedgerState, offer: Offer | None, load: TableRequest) -> bool:
    """Whether, by the source's schema changes, a load ahead of the table's checkpoint holds rows of another table."""
    if offer is None or load.kind is not RequestKind.RESYNC or load.table_id not in state.tables:
        return False
    found = overtaken(state, offer, load.table_id, load.to)
    return found.blocked is not None and _is_of_another_life(load.table_id, found.changes)


def does_not_fit(state: LedgerState, request: TableRequest) -> bool:
    """Whether a table that was loaded as of ``to`` cannot continue from its checkpoint.

    A table loaded as of a later time can continue: changes that it already has are applied once more. Exceptions: the resync was
    refused, or a schema change that also concerns other tables waits in between. After such a change the table's name may belong to
    rows of one of those tables, or of a later one, while its own rows go to another name.
    """
    reached = state.table_checkpoint(request.table_id)
    is_anothers = any(True for _ in _waiting_between(state, request))
    return bool(request.to) and (request.kind in HOLDS or request.to < reached or is_anothers)


def _waiting_between(state: LedgerState, request: TableRequest) -> Iterator[JournalEntry]:
    """Waiting schema changes of several tables, between the table's checkpoint and the time as of which it was loaded."""
    table_id, reached = request.table_id, state.table_checkpoint(request.table_id)
    for entry in state.journal.values():
        several = table_id in entry.tables and len(entry.tables) > 1
        if several and not entry.state.is_settled and reached <= entry.commit_ts <= request.to:
            yield entry


def _may_bring_rows(entry: JournalEntry, table_id: TableId) -> bool:
    """Whether a schema change of several tables may bring rows of another table to this name, and not only take its rows away."""
    renames = read_statement(entry.statement, table_id.database).renames
    return not renames or any(new.folded == table_id.folded for _, new in renames)


def _is_of_another_life(table_id: TableId, passed: Iterable[SchemaChange]) -> bool:
    """Whether after these schema changes the table's name belongs to other rows than before.

    A renamed table keeps its rows. Either a RENAME to the name brings other rows, or a RENAME takes the table's rows away and
    another table has the name by then: a load under the name has that table's rows. After a DROP or a TRUNCATE alone, nothing of a
    load is left.
    """
    is_taken = False
    for change in sorted(passed, key=lambda change: change.commit_ts):
        renames = read_statement(change.statement, change.database).renames
        if len(change.changes) > 1 and (not renames or any(new.folded == table_id.folded for _, new in renames)):
            return True
        if any(old.folded == table_id.folded for old, _ in renames):
            is_taken = True
        elif is_taken and table_id in change.changes and not any(isinstance(e, DropTableEvent) for e in change.events):
            return True
    return False


_NOT_GIVEN_UP = (
    "it is not given up: the table was held when that was asked for, and has been loaded anew since. If it stops the table again, "
    "give it up again."
)


def give_up_places(
    state: LedgerState, give_up: Callable[[str, TableId, SourcePlace], str], includes: Callable[[TableId], bool]
) -> Carried | None:
    """Makes the files, or records of a stream, that people gave up count as read in the position; ``None`` if there are none.

    ``give_up`` is the source's. Giving up does not change the status of a table that lacks rows or does not exist yet. The request
    stays for a held table, for one that is to start over, and for one that ``--tables`` leaves out and that may come to need the
    file.
    """
    asked = [request for request in state.requests.values() if request.kind.names_place]
    # A table that starts over reads all its files again, including this one.
    resets = {request.table_id for request in state.requests.values() if request.kind is RequestKind.RESET}
    position, tables, notices = state.position, dict(state.tables), []
    changed: set[TableId] = set()
    used: list[str] = []
    for request in (r for r in asked if r.table_id not in state.holds.keys() | resets):
        table_id, own, place = request.table_id, tables.get(request.table_id), request.place
        assert place is not None, "the request names what is given up"
        if table_id == NOBODYS:
            position = give_up(position, table_id, place)
            used.append(request.identity)
            notices.append(
                Notice(f"the {place.noun}, whose table is not known, was given up: its content is not in the target.", place=place)
            )
            continue
        behind = own is not None and own.status in _MISSES_FILES
        after = give_up(position, table_id, place) if behind else position
        if own is not None and own.status is TableStatus.EXCLUDED and after == position:
            continue
        used.append(request.identity)
        if own is None or after == position:
            notices.append(
                Notice(f"nothing was given up: the table does not wait for this {place.noun} any more.", table_id, place)
            )
            continue
        told = f"{place.described} was given up"
        reason = f"{own.reason}; {told}" if table_id in changed else told
        is_kept = own.status in (TableStatus.INCOMPLETE, TableStatus.EXCLUDED) or is_unborn(own) or table_id in state.held
        if not is_kept:
            status = TableStatus.CATCHING_UP if includes(table_id) else TableStatus.EXCLUDED
            tables[table_id] = replace(own, status=status, reason=reason)
        changed.add(table_id)
        position = after
        notices.append(Notice(f"the {place.noun} was given up: its changes are not in the target.", table_id, place))
    update = LedgerUpdate(
        position=position if position != state.position else None,
        tables=tuple(tables[table_id] for table_id in sorted(changed)),
        used_requests=tuple(used),
    )
    return Carried(update, tuple(notices)) if used else None


def carry_out(
    state: LedgerState,
    offer: Offer,
    source: EventSource,
    includes: Callable[[TableId], bool],
    left: Callable[[SchemaChange], Notice | None],
) -> Carried | None:
    """Carries out the other requests before the offer is planned; ``None`` if there is nothing to write.

    If the update has a position, the offer is outdated. ``includes`` is the table filter; a table that it leaves out stays left
    out, at its new checkpoint. ``left`` gives the notice about what stays wrong in the target when a schema change is passed over.
    """
    used: list[str] = []
    kept: list[TableRequest] = []
    rows: list[TableProgress] = []
    refused: list[TableProgress] = []
    entries: list[JournalEntry] = []
    passed: list[SchemaChange] = []
    notices: list[Notice] = []
    position = state.position
    for request in (request for request in state.requests.values() if request.kind in _OF_A_CUT):
        table_id = request.table_id
        if request.identity in used:
            continue  # its table ended with one that was loaded
        refusal = _refusal(state, offer, source, request)
        if refusal is not None:
            notices += [Notice(refusal, table_id)] if refusal else []
            if refusal and _stays_held(state, offer, request):
                # Otherwise the loaded rows would be taken for the former ones.
                kept.append(replace(request, kind=RequestKind.HELD))
                again = f": load it again, and run headrace table resync {word(table_id)} once more." if _is_exact(offer) else "."
                notices.append(Notice(f"it stays held{again}", table_id))
                own = state.tables[table_id]
                # A table that is stopped for another reason keeps that reason.
                refused += [replace(own, reason=refusal)] if own.status is TableStatus.HELD else []
            else:
                used.append(request.identity)
        elif request.kind is RequestKind.RESYNC and _is_due(state, request):
            own = state.tables[table_id]
            told = f"loaded anew as of {request.to}"
            row = replace(own, status=_status_of_loaded(state, request, includes), reason=told, lacks="")
            over = [other for other in state.requests.values() if _is_over_with(other, request)]
            used += [other.identity for other in over]
            notices += [Notice(_NOT_GIVEN_UP, table_id, other.place) for other in over if other.kind.names_place]
            rows.append(replace(row, checkpoint=request.to, after=True, loaded=request.to))
            kept.append(replace(request, kind=RequestKind.LOADED))
            found = _overtaken(state, offer, request)
            entries += [_settled(change, JournalState.SKIPPED) for change in found.changes]
            passed += found.changes
            for ended, ts in found.ended.items():
                former = state.tables.get(ended) or TableProgress(ended, ts)
                rows.append(replace(former, checkpoint=ts, after=True, status=TableStatus.GONE, reason=""))
                used += [r.identity for r in state.requests.values() if r.table_id == ended and not r.kind.is_of_letters]
                notices.append(Notice(told_ended(found, ended, table_id), ended))
            if _reads_again(state, offer, request):
                position = source.read_again(position, table_id, request.to)
                done = _at(state, offer, request)
                entries += [_settled(change, JournalState.DONE) for change in done]
                passed += done
            notices.append(Notice(f"the table was {told}, and goes on from there.", table_id))
            notices += [notice for change in found.changes if (notice := left(change)) is not None]
    if not used and not kept:
        return None
    if rows:
        position = _without_needless_files(source, position, offer, rows)
    update = LedgerUpdate(
        position=position if position != state.position else None,
        tables=(*rows, *refused),
        journal=tuple(entries),
        requests=tuple(kept),
        used_requests=tuple(used),
        used_decisions=tuple(entry.identity for entry in entries if entry.identity in state.decisions),
        # The loaded rows already include these changes, and a source that delivers them only once will not repeat them.
        shapes=told_shapes(state.with_rows(rows), passed) if source.needs_shapes else (),
        forget_replayed=tuple(row.table_id for row in rows),
    )
    return Carried(update, tuple(notices))


def _without_needless_files(source: EventSource, position: str, offer: Offer, rows: Iterable[TableProgress]) -> str:
    """The position in which loaded tables, and tables that ended with them, miss no file from before.

    A missing file that may hold rows from after the load stays missed, and stops the table.
    """
    ends = {row.table_id: row.checkpoint for row in rows if row.status.is_gone}
    loaded = {row.table_id: row.checkpoint for row in rows if not row.status.is_gone}
    position, _ = source.forget_vanished(position, offer, loaded, ends)
    return source.forget_lives(position, ends) if ends else position


def _status_of_loaded(state: LedgerState, resync: TableRequest, includes: Callable[[TableId], bool]) -> TableStatus:
    """The status with which a loaded table continues.

    A left-out table is EXCLUDED: its files are missed when it is included again, and they are gone.
    """
    if not includes(resync.table_id):
        return TableStatus.EXCLUDED
    later = (r for r in state.standing_holds if r.table_id == resync.table_id and r.identity > resync.identity)
    return TableStatus.HELD if any(later) else TableStatus.CATCHING_UP


def resyncs_due(state: LedgerState) -> frozenset[TableId]:
    """Tables that were loaded as of a time that the pipeline has reached, so that they can continue now."""
    return frozenset(r.table_id for r in state.requests.values() if r.kind is RequestKind.RESYNC and _is_due(state, r))


def _stays_held(state: LedgerState, offer: Offer, request: TableRequest) -> bool:
    """Whether the table of a refused resync must stay held, because it would run otherwise or its rows do not fit its checkpoint.

    Its rows do not fit either if a schema change lies in between after which the name belongs to other rows.
    """
    own = state.tables.get(request.table_id)
    if own is None or own.status.is_gone or request.kind is not RequestKind.RESYNC or _latest_resync(state, request) is not request:
        return False
    if _stops_because_of(state, request):
        return True
    found = _overtaken(state, offer, request)
    is_anothers = not is_unborn(own) and found.blocked is not None and _is_of_another_life(own.table_id, found.changes)
    is_of_before = request.to < state.table_checkpoint(own.table_id)
    waits = any(_may_bring_rows(entry, own.table_id) for entry in _waiting_between(state, request))
    return (is_anothers or is_of_before or waits) and own.status is not TableStatus.INCOMPLETE


def _latest_resync(state: LedgerState, request: TableRequest) -> TableRequest:
    """The latest of the resync requests for the table of this one: only that one counts."""
    asked = [r for r in state.requests.values() if r.kind is RequestKind.RESYNC and r.table_id == request.table_id]
    return max(asked, key=lambda other: other.identity)


def _stops_because_of(state: LedgerState, request: TableRequest) -> bool:
    """Whether this resync is the only reason why the table does not run."""
    own = state.tables.get(request.table_id)
    others = {*state.holds, *(r.table_id for r in state.requests.values() if r.kind is RequestKind.RESYNC and r is not request)}
    is_resync = request.kind is RequestKind.RESYNC and request.table_id not in others
    return is_resync and own is not None and own.status is TableStatus.HELD


def _is_over_with(other: TableRequest, resync: TableRequest) -> bool:
    """Whether an earlier request about the same table is obsolete when this resync is carried out.

    A file that was to be given up while the table was held may be whole by now, and may hold rows from after the load.
    """
    is_such = other.kind in (*HOLDS, *FLOORS) or other.kind.names_place
    return is_such and other.table_id == resync.table_id and other.identity < resync.identity


def _reads_again(state: LedgerState, offer: Offer, request: TableRequest) -> bool:
    """Whether a table that was loaded needs files that count as read or that were not needed before.

    Not for a table that stands right before its own DROP and stays there: after the DROP its rows do not matter.
    """
    own = state.tables[request.table_id]
    goes_back = request.to < own.checkpoint and not _stands_before_drop(state, offer, request)
    return goes_back or own.status is TableStatus.NOT_FOLLOWED


def _stands_before_drop(state: LedgerState, offer: Offer, request: TableRequest) -> bool:
    """Whether a table that is to continue right before its DROP, or its database's, is already there."""
    own = state.tables[request.table_id]
    if own.after or own.checkpoint != request.to + 1:
        return False
    waiting = overtaken(state, offer, own.table_id, own.checkpoint).changes
    return any(DropTableEvent(own.table_id) in change.events or tables_of_dropped(change, [own.table_id]) for change in waiting)


def _refusal(state: LedgerState, offer: Offer, source: EventSource, request: TableRequest) -> str | None:
    """Why a request ends without effect; ``""`` if no message is needed; ``None`` if it stands."""
    own = state.tables.get(request.table_id)
    is_resync, gives_up_rows = request.kind is RequestKind.RESYNC, request.kind is RequestKind.SKIP_ROWS
    lacks_rows = own is not None and own.status is TableStatus.INCOMPLETE
    if lacks_rows and (gives_up_rows or request.kind is RequestKind.RESUME):
        return f"nothing was done: it lacks rows. Load it anew, and run headrace table resync {word(request.table_id)} --at TIME."
    if request.kind is RequestKind.RESUME:
        return ""
    if own is None or own.status in (TableStatus.GONE, TableStatus.GONE_WAITING):
        return "nothing was done: the table is gone."
    if not is_resync and (own.status is TableStatus.RUNNING or own.status.is_gone):
        return "nothing was done: the table is not stopped any more."
    if not _is_exact(offer):
        anew = " Let the pipeline begin anew on an empty target: headrace reset." if is_resync else ""
        return f"nothing was done: {_INEXACT}{anew}"
    gives_up_more = None if is_at_floor(state, request) else _gives_up_more(own, request)
    return next(_refusals_of_resync(state, offer, source, request), None) if is_resync else gives_up_more


def _is_exact(offer: Offer) -> bool:
    """Whether rows show on which side of a commit ts they lie."""
    return offer.precision.is_exact


def _gives_up_more(own: TableProgress, request: TableRequest) -> str:
    return (
        f"nothing was given up: rows from {request.since + 1} to {request.to} were to be given up, but the table is now at "
        f"{own.checkpoint}. Ask again if the rows from {own.checkpoint + 1} on are not wanted either."
    )


def _refusals_of_resync(state: LedgerState, offer: Offer, source: EventSource, request: TableRequest) -> Iterator[str]:
    """Reasons why a resync cannot be carried out, the first one first. Empty if it must wait, or can be carried out."""
    own, at = state.tables[request.table_id], request.to
    if (latest := _latest_resync(state, request)) is not request:
        yield f"the request to go on from {at} was replaced by a later one, to go on from {latest.to}."
    stays = f"the table does not go on from {at}:"
    if (running := state.running_change(own.table_id)) is not None:
        yield (
            f"{stays} its schema change at {running.commit_ts} has been running in the target since {running.since}. Release the "
            "table, and load it anew when that is done."
        )
    nobodys = next((c for c in offer.unread if c.is_nobodys and own.incarnation <= c.commit_ts), None)
    if nobodys is not None:
        yield (
            f"{stays} later rows of it may lie in the folder of {nobodys.file}, which cannot be read, so its table is not known. "
            "First repair that file, or move the data files of its version away."
        )
    found = _overtaken(state, offer, request)
    if found.blocked is not None:
        yield f"{stays} {_is_shared(found, found.blocked, request.table_id)}"
    if not _is_due(state, request):
        return
    if at < state.start:
        yield f"{stays} the pipeline begins at {state.start}. Load it as of that time or later."
    if (earliest := _earliest(state, offer, own)) > at:
        yield (
            f"{stays} its schema change at {earliest} came after that, and is already settled in this pipeline. Load the table as "
            f"of {earliest} or later."
        )
    if _stops_because_of(state, request) and not _has_key(offer, own.table_id, at, own.checkpoint):
        yield (
            f"{stays} it has no key, and changes may have been applied to it while it was loaded, so its rows cannot be told "
            "apart. Load it once more, now that it is held."
        )
    if _reads_again(state, offer, request):
        if why := source.missing(state.position, offer, own.table_id, at):
            yield f"{stays} {why} Restore what is missing, or load the table as of a later time."
        if gone := source.vanished(state.position, own.table_id, at):
            why = gone[0] if gone[0].endswith(".") else f"{gone[0]} is not there any more."
            yield f"{stays} {why} Restore what is missing, or load the table as of a later time."


def _overtaken(state: LedgerState, offer: Offer, request: TableRequest) -> Overtaken:
    """What the table passes over when it continues from the time of its load; empty if that lies behind its checkpoint."""
    goes_back = _reads_again(state, offer, request)
    return Overtaken() if goes_back else overtaken(state, offer, request.table_id, request.to)


def _is_shared(found: Overtaken, change: SchemaChange, table_id: TableId) -> str:
    """Why a loaded table cannot pass over a schema change, and what to do."""
    if found.by is not None:
        return (
            f"{found.by}, whose name differs only in case, has not reached its schema change at {change.commit_ts}. Let it reach "
            "that first: headrace table list. If the target does not distinguish case, restore the rows of its table before."
        )
    if any(isinstance(event, DropDatabaseEvent) for event in change.events):
        return (
            f"its schema change at {change.commit_ts} drops its database, and other tables with it. Let the table reach that "
            f"first: headrace table resync {word(table_id)} --at {change.commit_ts - 1}, whatever rows it has. What comes after is "
            "created anew."
        )
    renames = [pair for step in found.steps.values() for pair in step]
    origins, names = origins_of(renames)
    new = next((new for new, old in origins.items() if old == table_id), None)
    if new is not None and not found.ended and all(given != table_id for _, given in renames):
        return f"its schema change at {change.commit_ts} moves its rows to {new}. Load that table instead, and resync it."
    between = names - {*origins, *origins.values()}
    concerned = {*change.changes, *names} - {table_id, *between}
    skips = " and ".join(f"headrace ddl skip {in_quotes(identity)}" for identity in found.steps)
    return (
        f"its schema change at {change.commit_ts} also concerns {', '.join(map(str, sorted(concerned)))}. Restore the rows that it "
        f"had before that, and run headrace table resync {word(table_id)} --at {change.commit_ts - 1}. Or release it, decide about "
        f"the change with {skips} while none of these tables is held, load all of them as of a later time, and resync each."
    )


def _is_due(state: LedgerState, request: TableRequest) -> bool:
    """Whether the table is to move to the time of its load: not before the pipeline has reached it."""
    return request.table_id in state.tables and state.checkpoint >= request.to


def _earliest(state: LedgerState, offer: Offer, own: TableProgress) -> int:
    """The commit ts (TSO) since which the table has the shape and the name that it has at its checkpoint.

    For a table that is not followed, all changes up to the pipeline's checkpoint count, because they were skipped.
    """
    reached = state.checkpoint if own.status is TableStatus.NOT_FOLLOWED else own.checkpoint
    told = {c.commit_ts for c in offer.schema_changes if own.table_id in c.changes and (c.statement or c.events)}
    told = {ts for ts in told if ts < reached}
    told |= {e.commit_ts for e in state.journal.values() if e.state.is_settled and own.table_id in e.tables}
    return max({own.incarnation, *(ts for ts in told if ts <= reached)})


def _has_key(offer: Offer, table_id: TableId, since: int, reached: int) -> bool:
    """Whether the table had a key, declared or not, at a commit ts (TSO) and in every shape since then, up to ``reached``."""
    changes = [c for c in offer.schema_changes if c.table_id == table_id and c.schema is not None and c.commit_ts <= reached]
    in_order = sorted(changes, key=lambda change: change.commit_ts)
    first = max((number for number, change in enumerate(in_order) if change.commit_ts <= since), default=0)
    schemas = [change.schema for change in in_order[first:] if change.schema is not None]
    return bool(schemas) and all(schema.handle_key for schema in schemas)


def _at(state: LedgerState, offer: Offer, request: TableRequest) -> list[SchemaChange]:
    """The table's schema changes at exactly the time of its load: the loaded rows already include them."""
    told = (c for c in offer.schema_changes if request.table_id in c.changes and c.commit_ts == request.to)
    return [change for change in told if change.identity not in state.journal]


def _settled(change: SchemaChange, state: JournalState) -> JournalEntry:
    return JournalEntry(change.identity, change.commit_ts, in_order(change.changes), change.statement, state)
