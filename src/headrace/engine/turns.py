"""Whose the next cut is: while tables catch up in cuts of their own, every other cut is that of all the others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from headrace.model.table import TableId

_NONE: frozenset[TableId] = frozenset()


@dataclass(frozen=True)
class Turns:
    """Where a run stands between tables that catch up and the others."""

    apart: frozenset[TableId] = _NONE
    """Tables that catch up in cuts of their own."""
    is_others: bool = False
    """The next cut is the others'."""

    def without(self, gone: Collection[TableId]) -> frozenset[TableId]:
        """The tables that the next cut leaves out. Those that are ``gone`` have nothing to catch up with."""
        return self.apart.difference(gone) if self.is_others else _NONE

    def taken(self) -> Turns:
        """After the step that had the turn, if its offer says nothing else."""
        return replace(self, is_others=False)

    def offered(self, catching_up: frozenset[TableId]) -> Turns:
        """After an offer in the turn of the tables that catch up: a part for these, or for all where there are none."""
        return Turns(catching_up, bool(catching_up))
