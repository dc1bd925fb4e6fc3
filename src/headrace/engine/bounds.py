"""How much the next cut takes at most, as the source is told. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from headrace.engine.excluded_tables import drops_with_databases, followed
from headrace.engine.journal import unfollowed
from headrace.engine.plan import first_shared_change, may_be_pending
from headrace.model.events import SchemaChange
from headrace.model.ledger import LedgerState
from headrace.model.offer import Offer
from headrace.model.table import TableId
from headrace.model.tso import MAX_TSO
from headrace.sources.base import Bound


def has_rows_at_once(
    state: LedgerState, offer: Offer, includes: Callable[[TableId], bool], retried: Collection[TableId], apart: Collection[TableId]
) -> bool:
    """Whether the splits of an offer make a cut though its watermark stands (``Offer.at_once``): one of them would be read.

    Those of tables that take no part are offered for as long as they do not.
    """
    if not offer.at_once:
        return False
    follows = followed(state, offer.schema_changes, includes)
    reads = _reads(state, lambda table_id: follows.end(table_id) > 0, retried, apart)
    return any(s.begins < min(offer.schema_bound, follows.end(s.table_id)) and reads(s.table_id, s.version) for s in offer.splits)


def end_of(state: LedgerState, offer: Offer, apart: Collection[TableId], until: int | None) -> int:
    """Where the next cut ends at the latest (TSO): at ``until``, and before a schema change that waits for tables ``apart``."""
    shared = first_shared_change(state, offer, apart) if apart else None
    return min(MAX_TSO if until is None else until, MAX_TSO if shared is None else shared - 1)


def has_let_go(asked: LedgerState, state: LedgerState) -> bool:
    """Whether a table stands elsewhere than when the source was asked, or is not held any more.

    What was offered is of the tables that took part then: it may lack files that such a table needs now.
    """
    return asked.tables != state.tables or not asked.held <= state.held


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
    counts = _reads(state, follows, retried, apart)

    def pending(changes: Sequence[SchemaChange]) -> list[int]:
        # A DROP DATABASE that is over may be ahead of tables that are behind.
        missed = {c.commit_ts for c in drops_with_databases(state, changes, followed(state, changes, includes))}
        ahead = (c for c in changes if may_be_pending(state, c) and any(counts(t, c.commit_ts) for t in c.changes))
        return sorted(missed.union(change.commit_ts for change in ahead))

    gone = _gone(state)
    return Bound(
        limit=limit,
        at_least=max(state.attempted, state.checkpoint + 1),
        checkpoint=state.checkpoint,
        reached=lambda table_id: gone.get(table_id, state.table_checkpoint(table_id)),
        counts=counts,
        pending=pending,
        looked=looked,
    )


def _reads(
    state: LedgerState, follows: Callable[[TableId], bool], retried: Collection[TableId], apart: Collection[TableId]
) -> Callable[[TableId, int], bool]:
    """Whether a cut reads splits of a table's version (TSO), as far as the ledger tells."""
    idle = {*apart, *unfollowed(state), *state.held}
    idle |= {t for t, own in state.tables.items() if own.status.is_stopped and t not in retried}
    # What comes late of a table that is gone is not read: a cut would wait for it for ever.
    gone = _gone(state)
    return lambda table_id, version: table_id not in idle and gone.get(table_id, -1) < version and follows(table_id)


def _gone(state: LedgerState) -> dict[TableId, int]:
    """The tables that are gone, and since when (TSO)."""
    return {t: own.checkpoint for t, own in state.tables.items() if own.status.is_gone}
