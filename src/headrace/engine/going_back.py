"""What follows for tables when the target goes back under a run: files that are to be read once more may be gone. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.engine.filtering import LOAD
from headrace.engine.requests import Carried, as_reached
from headrace.model.commands import word
from headrace.model.outcome import Notice
from headrace.model.progress import LedgerState, TableStatus
from headrace.model.table import TableId
from headrace.model.tso import format_tso
from headrace.sinks.base import LedgerUpdate


def lacking_files(former: LedgerState, now: LedgerState, gone: Mapping[TableId, str]) -> Carried | None:
    """Stops the tables that need files which are gone. ``gone`` names one file of each; ``former`` is how far the run had come.

    A table that the ledger of ``now`` does not know yet cannot be stopped, and is told.
    """
    rows, notices = [], []
    for table_id, file in sorted(gone.items()):
        hint = LOAD.format(at=format_tso(max(former.checkpoint, former.table_checkpoint(table_id))), table=word(table_id))
        reason = f"the target went back to {format_tso(now.table_checkpoint(table_id))}, and {file} is not there any more. {hint}"
        own = now.tables.get(table_id)
        if own is None:
            notices.append(Notice(f"rows will be missing: {reason}", table_id))
        elif not own.status.is_gone and own.status not in (TableStatus.EXCLUDED, TableStatus.INCOMPLETE):
            rows.append(replace(as_reached(now, own), status=TableStatus.INCOMPLETE, reason=reason))
            notices.append(Notice(f"it does not go on: {reason}", table_id))
    return Carried(LedgerUpdate(tables=tuple(rows)), tuple(notices)) if notices else None
