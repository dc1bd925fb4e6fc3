"""The bound of the next cut, which the source gets with a poll, and where the cut ends. Pure."""

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
    """Whether an offer whose watermark has not moved (``Offer.at_once``) still has a split that a cut would read.

    Splits of tables that take no part in a cut do not count: they are offered again until their tables take part.
    """
    if not offer.at_once:
        return False
    follows = followed(state, offer.schema_changes, includes)
    reads = _reads(state, lambda table_id: follows.end(table_id) > 0, retried, apart)
    return any(s.begins < min(offer.schema_bound, follows.end(s.table_id)) and reads(s.table_id, s.version) for s in offer.splits)


def end_of(state: LedgerState, offer: Offer, apart: Collection[TableId], until: int | None) -> int:
    """The latest end (TSO) of the next cut: ``until``, or just before a schema change that waits for tables ``apart``."""
    shared = first_shared_change(state, offer, apart) if apart else None
    return min(MAX_TSO if until is None else until, MAX_TSO if shared is None else shared - 1)


def has_let_go(asked: LedgerState, state: LedgerState) -> bool:
    """Whether any table's row has changed since the poll, for which the state was ``asked``, or a table is not held any more.

    The offer is for the tables that took part at the poll. It may lack files that such a table needs now.
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
    """The bound of a cut of ``limit`` bytes. After a failed cut, the next one reaches at least as far (rule 14).

    - ``follows``: whether files of a table are read.
    - ``retried``: the stopped tables that are tried again.
    - ``apart``: the tables that catch up in cuts of their own.
    - ``looked``: called with the number of files examined so far and the number of files to examine.
    """
    counts = _reads(state, follows, retried, apart)

    def pending(changes: Sequence[SchemaChange]) -> list[int]:
        # A DROP DATABASE that has already run may lie ahead of tables that are behind.
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
    """The function that says, from the ledger's state, whether a cut reads splits of a table's version (TSO)."""
    idle = {*apart, *unfollowed(state), *state.held}
    idle |= {t for t, own in state.tables.items() if own.status.is_stopped and t not in retried}
    # Late files of a table that is gone are not read: a cut would wait for them forever.
    gone = _gone(state)
    return lambda table_id, version: table_id not in idle and gone.get(table_id, -1) < version and follows(table_id)


def _gone(state: LedgerState) -> dict[TableId, int]:
    """The tables that are gone, with the commit ts (TSO) since which they are."""
    return {t: own.checkpoint for t, own in state.tables.items() if own.status.is_gone}
