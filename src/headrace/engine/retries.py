"""When stopped tables are retried: which are due, how often each was tried, and whether a table advanced for which others wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from headrace.model.ledger import LedgerState, TableProgress, TableStatus
from headrace.model.outcome import Problem
from headrace.model.table import TableId

_LOOKS = 2
_NEVER = float("-inf")


def all_stopped(state: LedgerState) -> frozenset[TableId]:
    """The stopped tables, without those that are held or wait until they are loaded."""
    stopped = {t for t, own in state.tables.items() if own.status.is_stopped and own.status is not TableStatus.INCOMPLETE}
    return frozenset(stopped - state.held)


@dataclass(frozen=True)
class Retries:
    """Stopped tables that a run retries."""

    due: frozenset[TableId] = frozenset()
    """Tables that still have to be tried in a cut."""
    looks: Mapping[TableId, int] = field(default_factory=dict)
    """How often each table was tried again since all were tried."""
    moved: bool = False
    """A table advanced for which others may have waited; these are tried once more."""
    tried_at: float = _NEVER
    """When all tables were last tried, in seconds of a monotonic clock."""

    def begun(self, state: LedgerState, now: float, *, told: bool, apart: bool, every: float) -> Retries:
        """The state at the beginning of a step: all stopped tables are due if it is time.

        That is at the start of a run, after every ``every`` seconds, when one of them has advanced, and when a person has decided
        about a schema change or made a request about a table (``told``). While tables catch up (``apart``), they advance with every
        cut.
        """
        if not any(own.status.is_stopped for own in state.tables.values()):
            return replace(self, moved=False)
        has_moved = self.moved and not apart
        if not (told or has_moved or now - self.tried_at >= every):
            return self
        return Retries(self.due | all_stopped(state), {}, self.moved and not has_moved, now)

    def tables(self, state: LedgerState) -> frozenset[TableId]:
        """The due tables that are still stopped."""
        return frozenset(t for t in self.due if t in state.tables and state.tables[t].status.is_stopped)

    def looking_again(self, problems: Iterable[Problem]) -> Retries | None:
        """The state with tables due for which a second try may help (a torn read, a file being replaced). ``None``: none."""
        again = {problem.table_id for problem in problems if problem.transient and self.looks.get(problem.table_id, 0) < _LOOKS}
        return replace(self, due=self.due | again, looks=Counter(self.looks) + Counter(again)) if again else None

    def tried(self, tables: Collection[TableId]) -> Retries:
        """The state after a cut in which these tables were tried."""
        return replace(self, due=self.due.difference(tables))

    def noting(self, before: LedgerState, after: LedgerState) -> Retries:
        """The state after the ledger changed: notes whether a table advanced."""
        moved = any(_waited(own, before) and _has_moved(own, after.tables.get(t)) for t, own in before.tables.items())
        return replace(self, moved=self.moved or moved)

    def settled(self) -> Retries:
        """The state after the tables that waited for an advanced table were tried."""
        return replace(self, moved=False)


def _waited(own: TableProgress, state: LedgerState) -> bool:
    """Whether others may have waited for a table: it was stopped or catching up, or left out and behind the pipeline.

    A left-out table that is followed without a stop advances with every cut.
    """
    is_behind = own.status is TableStatus.EXCLUDED and own.checkpoint < state.checkpoint
    return own.status.is_stopped or own.status is TableStatus.CATCHING_UP or is_behind


def _has_moved(before: TableProgress, after: TableProgress | None) -> bool:
    """Whether a table is further than before, gone, or back."""
    if after is None or after.status.is_gone != before.status.is_gone:
        return True
    return (after.checkpoint, after.after) > (before.checkpoint, before.after)
