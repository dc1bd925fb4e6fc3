"""Finds tables that need records which the source no longer keeps."""

from __future__ import annotations

from dataclasses import replace

from headrace.ddl.told import newly_named
from headrace.engine.excluded_tables import Includes
from headrace.engine.journal import is_pending
from headrace.engine.requests import Carried
from headrace.model.commands import word
from headrace.model.ledger import LedgerState, TableProgress, TableStatus
from headrace.model.offer import Offer
from headrace.model.outcome import Notice
from headrace.model.tso import format_tso
from headrace.sinks.base import LedgerUpdate
from headrace.sources.base import EventSource


def lose_gone(state: LedgerState, offer: Offer) -> Carried | None:
    """Lets tables that do not run wait until they are loaded anew, if the source no longer keeps records that they need.

    Undecided schema changes are checked, too, because one that was found late lies below the checkpoints of its tables.
    """
    undecided = (entry for entry in state.journal.values() if not entry.state.is_settled and entry.commit_ts <= offer.gone)
    late = {table_id for entry in undecided for table_id in entry.tables}
    rows = []
    for table_id, own in sorted(state.tables.items()):
        waits = own.status is TableStatus.CATCHING_UP or (own.status.is_stopped and not own.status.is_gone)
        needs = own.checkpoint < offer.gone or (own.checkpoint == offer.gone and not own.after) or table_id in late
        if waits and needs and table_id.table and own.status is not TableStatus.INCOMPLETE:
            reason = (
                f"it stands at {format_tso(own.checkpoint)}, and records up to {format_tso(offer.gone)} are not kept any more. "
                f"Load it anew as of a time after that, and run headrace table resync {word(table_id)} --at TIME. If its columns "
                "or its key have changed since, begin the pipeline anew instead: headrace reset."
            )
            rows.append(replace(own, status=TableStatus.INCOMPLETE, reason=reason))
    notices = tuple(Notice(f"it does not go on: {own.reason}", own.table_id) for own in rows)
    return Carried(LedgerUpdate(tables=tuple(rows)), notices) if rows else None


def find_begun_untold(state: LedgerState, offer: Offer, source: EventSource, includes: Includes) -> Carried | None:
    """Lets names of ended tables wait for a load, if rows of a later table arrive whose CREATE was passed over.

    Otherwise these rows would not be read, because their shape is unknown, or would be read in the former table's shape. Only rows
    up to the watermark count: above it, the CREATE may still come. Raises what the source raises.
    """
    passed = offer.passed or 0
    gone = {t: own for t, own in state.tables.items() if own.status is TableStatus.GONE and own.checkpoint < passed and includes(t)}
    begun = {t for change in offer.schema_changes if gone and is_pending(state, change) for t in newly_named(change)}
    rows = []
    for table_id in sorted(gone.keys() - begun):
        # Rows of the former table that the stream repeats lie before that table's end.
        if not source.has_rows(offer, table_id, gone[table_id].checkpoint, offer.watermark):
            continue
        reason = (
            f"rows of it come, but the records that tell how it began are not kept any more. Create and load it as of a time after "
            f"{format_tso(passed)}, and run headrace table resync {word(table_id)} --at TIME."
        )
        rows.append(TableProgress(table_id, passed, status=TableStatus.INCOMPLETE, reason=reason, incarnation=passed))
    notices = tuple(Notice(f"it does not go on: {own.reason}", own.table_id) for own in rows)
    return Carried(LedgerUpdate(tables=tuple(rows)), notices) if rows else None
