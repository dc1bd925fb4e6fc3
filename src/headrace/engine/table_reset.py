"""``headrace reset --table``: a table starts over with its CREATE, as if the pipeline had never read it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from headrace.engine.requests import Carried, as_reached
from headrace.model.commands import word
from headrace.model.ledger import JournalEntry, LedgerState, RequestKind, TableProgress, TableRequest, TableStatus
from headrace.model.offer import Offer
from headrace.model.outcome import Notice
from headrace.model.table import TableId
from headrace.sinks.base import LedgerUpdate
from headrace.sources.base import EventSource


def resets_asked(state: LedgerState) -> frozenset[TableId]:
    """The tables that people want to start over."""
    return frozenset(request.table_id for request in state.requests.values() if request.kind is RequestKind.RESET)


def begin_anew(
    state: LedgerState,
    offer: Offer,
    source: EventSource,
    includes: Callable[[TableId], bool],
    has_rows: Callable[[TableId], bool],
) -> Carried | None:
    """Makes tables start over, or says why they cannot; ``None`` if there is no such request.

    All earlier requests about such a table are completed with it, including a hold. If the update has a position, the offer is
    outdated. ``includes`` is the table filter. ``has_rows`` looks into the target: if a table was dropped there for a reset that is
    refused, it lacks rows.
    """
    asked = [request for request in state.requests.values() if request.kind is RequestKind.RESET]
    if not asked:
        return None
    position, rows, notices = state.position, dict[TableId, TableProgress](), []
    used: list[str] = []
    refused: list[TableProgress] = []
    forgotten: list[str] = []
    holds: list[TableRequest] = []
    for request in asked:
        table_id, own = request.table_id, state.tables.get(request.table_id)
        refusal = next(_refusals(state, offer, source, includes, table_id), None)
        if own is None or refusal is not None:
            used.append(request.identity)
            notices.append(Notice(f"it does not begin anew: {refusal}", table_id))
            if own is not None and own.is_made and not has_rows(table_id):
                reason = f"it has no rows in the target, and does not begin anew: {refusal}"
                refused.append(replace(as_reached(state, own), status=TableStatus.INCOMPLETE, reason=reason))
            continue
        used += [other.identity for other in state.requests.values() if _is_over_with(other, request)]
        begins = _beginning(state, own)
        came = own.incarnation > state.start
        # Rows that exist in the target by then were the pipeline's: they are not taken for rows as of the start.
        anew = replace(own, checkpoint=begins, after=not came, reason="it was reset", lacks="", loaded=0, again=own.again or came)
        is_held = table_id in _without(state, used).held
        if not came and state.start:
            # No change creates it, so a person must load it as of then. If it is released without that, it lacks rows.
            used.remove(request.identity)
            holds.append(replace(request, kind=RequestKind.HELD, to=begins))
            is_held = True
            told = f"it is held: load it as of {begins}, and run headrace table resync {word(table_id)} --at {begins}."
            notices.append(Notice(told, table_id))
        rows[table_id] = replace(anew, status=TableStatus.HELD if is_held else TableStatus.CATCHING_UP)
        forgotten += [entry.identity for entry in _entries(state, own) if entry.commit_ts > begins or came]
        position = source.read_again(position, table_id, begins)
        notices.append(Notice(f"the table was reset, and begins anew from {begins}.", table_id))
    update = LedgerUpdate(
        position=position if position != state.position else None,
        tables=(*rows.values(), *refused),
        forget_journal=tuple(forgotten),
        used_decisions=tuple(identity for identity in forgotten if identity in state.decisions),
        requests=tuple(holds),
        used_requests=tuple(dict.fromkeys(used)),
        dead_letters={table_id: 0 for table_id in rows if table_id in state.dead_letters},
        forget_replayed=tuple(rows),
    )
    return Carried(update, tuple(notices))


def _refusals(
    state: LedgerState, offer: Offer, source: EventSource, includes: Callable[[TableId], bool], table_id: TableId
) -> Iterator[str]:
    """Reasons why a table cannot start over, the first one first."""
    own = state.tables.get(table_id)
    if own is None or own.status in (TableStatus.GONE, TableStatus.GONE_WAITING):
        yield "the table is gone."
        return
    if not includes(table_id):
        yield "--tables leaves it out."
    if (running := state.running_change(table_id)) is not None:
        yield (
            f"its schema change at {running.commit_ts} has been running in the target since {running.since}. Ask again when that "
            "is done."
        )
    if not offer.precision.is_exact:
        yield (
            "rows carry no exact commit ts, so Headrace cannot tell which of them belong to former tables of that name. Reset the "
            "whole pipeline."
        )
    begins = _beginning(state, own)
    entries = _entries(state, own)
    told = [c for c in offer.schema_changes if table_id in c.changes and c.commit_ts >= begins and (c.statement or c.events)]
    others = [(change.commit_ts, change.changes - {table_id}) for change in told]
    others += [(entry.commit_ts, frozenset(entry.tables) - {table_id}) for entry in entries if entry.commit_ts >= begins]
    shared = min(((ts, min(tables)) for ts, tables in others if tables), default=None)
    if shared is not None:
        yield (
            f"its schema change at {shared[0]} also concerns {shared[1]}, which has gone on since. "
            f"Load the table, and go on with headrace table resync {word(table_id)} --at."
        )
    known = {change.commit_ts for change in told}
    untold = (e for e in entries if e.state.is_settled and e.statement and e.commit_ts > begins and e.commit_ts not in known)
    if (lost := next(untold, None)) is not None:
        yield (
            f"the source no longer has its schema change at {lost.commit_ts}. Restore the schema file, or load the table and go on "
            f"with headrace table resync {word(table_id)} --at."
        )
    if own.incarnation > state.start and all(change.commit_ts != own.incarnation for change in told):
        yield (
            f"the source no longer has the CREATE at {own.incarnation} that it began with. Load the table, and go on with headrace "
            f"table resync {word(table_id)} --at."
        )
    why = source.missing(state.position, offer, table_id, begins)
    why = why or next(iter(source.vanished(state.position, table_id, begins)), "")
    if why:
        why = why if why.endswith(".") else f"{why} is not there any more."
        yield f"{why} Restore what is missing, or load the table and go on with headrace table resync {word(table_id)} --at."


def _beginning(state: LedgerState, own: TableProgress) -> int:
    """The commit ts (TSO) from which the table's changes belong to the pipeline."""
    return max(own.incarnation, state.start)


def _entries(state: LedgerState, own: TableProgress) -> list[JournalEntry]:
    """The journal's entries about the table since it has its name."""
    return [e for e in state.journal.values() if own.table_id in e.tables and e.commit_ts >= own.incarnation]


def _without(state: LedgerState, used: Collection[str]) -> LedgerState:
    return replace(state, requests={k: request for k, request in state.requests.items() if k not in used})


def _is_over_with(other: TableRequest, reset: TableRequest) -> bool:
    return other.table_id == reset.table_id and other.identity <= reset.identity
