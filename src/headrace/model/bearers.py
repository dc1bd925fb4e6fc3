"""Whose the rows are by now that were written under one name."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.table import TableId


@dataclass(frozen=True)
class Bearers:
    """The tables that have the rows of a name now, of each time when another table had it, or when it was emptied in between."""

    lives: tuple[tuple[int, frozenset[TableId]], ...]
    """In order: up to which commit ts (TSO) the rows of a life go, and who has such rows now, which may be nobody."""
    until: int = 0
    """Up to which commit ts (TSO) the name had the rows: what was written under it before does not lie above that."""

    @property
    def tables(self) -> frozenset[TableId]:
        """All of them."""
        return frozenset().union(*(tables for _, tables in self.lives))

    def of(self, first: int, last: int) -> frozenset[TableId]:
        """Those that have rows now whose commit ts (TSO) go from ``first`` to ``last``."""
        found: set[TableId] = set()
        before = 0
        for up_to, tables in self.lives:
            if first <= up_to and before < last:
                found |= tables
            before = up_to
        return frozenset(found)
