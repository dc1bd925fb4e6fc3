"""Which tables now contain the rows that were written under one table name."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.table import TableId


@dataclass(frozen=True)
class Bearers:
    """The tables that now contain the rows written under one name, for each life of the name.

    A new life begins when another table gets the name, or when the table is emptied.
    """

    lives: tuple[tuple[int, frozenset[TableId]], ...]
    """The lives in order. Each has the greatest commit ts (TSO) of its rows, and the tables that contain them now (maybe none)."""
    until: int = 0
    """The greatest commit ts (TSO) of rows that belong to the name: rows written under it before do not lie above that."""

    @property
    def tables(self) -> frozenset[TableId]:
        """The tables of all lives."""
        return frozenset().union(*(tables for _, tables in self.lives))

    def of(self, first: int, last: int) -> frozenset[TableId]:
        """The tables that now contain rows with a commit ts (TSO) from ``first`` to ``last``."""
        found: set[TableId] = set()
        before = 0
        for up_to, tables in self.lives:
            if first <= up_to and before < last:
                found |= tables
            before = up_to
        return frozenset(found)
