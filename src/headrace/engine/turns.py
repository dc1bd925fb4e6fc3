"""Decides whose cut is next: while tables catch up in cuts of their own, every other cut is for all other tables."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from headrace.model.outcome import Notice
from headrace.model.table import TableId

_NONE: frozenset[TableId] = frozenset()
_STUCK = (
    "it is behind the other tables, and the last cut of its backlog made no progress. The others go on without it, and a run that "
    "follows the source tries again at each poll."
)


@dataclass(frozen=True)
class Turns:
    """The state of the alternation between tables that catch up and the others."""

    apart: frozenset[TableId] = _NONE
    """Tables that catch up in cuts of their own."""
    is_others: bool = False
    """The next cut is for the other tables."""
    is_idle: bool = False
    """Nothing has advanced since the last part was offered, so the next part would be the same."""

    @property
    def is_stuck(self) -> bool:
        """Whether neither a part for the tables that catch up nor the following cut of the others advanced anything."""
        return bool(self.apart) and self.is_idle and not self.is_others

    @property
    def goes_on(self) -> bool:
        """Whether another cut follows at once because tables catch up. If they are stuck, the run pauses or ends as usual."""
        return bool(self.apart) and not self.is_stuck

    def without(self, gone: Collection[TableId]) -> frozenset[TableId]:
        """The tables that the next cut leaves out. Tables that are ``gone`` need not catch up."""
        return self.apart.difference(gone) if self.is_others else _NONE

    def taken(self) -> Turns:
        """The state after a step, if its offer does not change it."""
        return replace(self, is_others=False)

    def offered(self, catching_up: frozenset[TableId]) -> Turns:
        """The state after an offer in the turn of the tables that catch up: a part for them, or for all tables if none does."""
        return Turns(catching_up, is_others=bool(catching_up), is_idle=bool(catching_up))

    def moved(self) -> Turns:
        """The state after a cut in which a table or the position advanced, or a stopped table was tried: the next part differs."""
        return replace(self, is_idle=False)

    def notices(self) -> tuple[Notice, ...]:
        """The notices about tables that are stuck."""
        return tuple(Notice(_STUCK, table_id) for table_id in sorted(self.apart)) if self.is_stuck else ()
