"""How much the next cut takes at most, as the source is told. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from headrace.engine.excluded_tables import drops_with_databases, followed
from headrace.engine.journal import unfollowed
from headrace.engine.plan import may_be_pending
from headrace.model.events import SchemaChange
from headrace.model.ledger import LedgerState
from headrace.model.table import TableId
from headrace.sources.base import Bound


def bound_of(
    state: LedgerState,
    limit: int,
    includes: Callable[[TableId], bool],
    follows: Callable[[TableId], bool],
    retried: Collection[TableId],
    apart: Collection[TableId],
    looked: Callable[[int, int], None],
) -> Bound:
    """The bound of a cut that takes ``limit`` bytes. What broke off before is taken again no smaller (rule 14).

    ``follows`` says of which tables files are read. ``retried`` are the stopped tables that are tried. Tables ``apart`` catch up
    in cuts of their own. ``looked`` is called with the number of files that were looked into, and of all that have to be.
    """
    idle = {*apart, *unfollowed(state), *state.held}
    idle |= {t for t, own in state.tables.items() if own.status.is_stopped and t not in retried}
    # What comes late of a table that is gone is not read: a cut would wait for it for ever.
    gone = {t: own.checkpoint for t, own in state.tables.items() if own.status.is_gone}

    def counts(table_id: TableId, version: int) -> bool:
        return table_id not in idle and gone.get(table_id, -1) < version and follows(table_id)

    def pending(changes: Sequence[SchemaChange]) -> list[int]:
        # A DROP DATABASE that is over may be ahead of tables that are behind.
        missed = {c.commit_ts for c in drops_with_databases(state, changes, followed(state, changes, includes))}
        ahead = (c for c in changes if may_be_pending(state, c) and any(counts(t, c.commit_ts) for t in c.changes))
        return sorted(missed.union(change.commit_ts for change in ahead))

    return Bound(
        limit=limit,
        at_least=max(state.attempted, state.checkpoint + 1),
        checkpoint=state.checkpoint,
        reached=lambda table_id: gone.get(table_id, state.table_checkpoint(table_id)),
        counts=counts,
        pending=pending,
        looked=looked,
    )
