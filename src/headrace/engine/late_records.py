"""Records in the ledger which tables lack records that a source delivered too late. Pure."""

from __future__ import annotations

from dataclasses import replace

from headrace.engine.requests import Carried
from headrace.model.ledger import LedgerState, TableProgress
from headrace.model.offer import Offer
from headrace.model.table import TableId
from headrace.sinks.base import LedgerUpdate


def note_late(state: LedgerState, offer: Offer) -> Carried | None:
    """Records which tables lack the records that came too late, before a cut passes these records."""
    rows: dict[TableId, TableProgress] = {}
    for notice in offer.notices:
        own = state.tables.get(notice.table_id) if notice.table_id is not None and notice.missing is not None else None
        if own is not None and own.is_made and not own.lacks:
            rows.setdefault(own.table_id, replace(own, lacks=replace(notice, table_id=None).sentence()))
    return Carried(LedgerUpdate(tables=tuple(rows.values()))) if rows else None
