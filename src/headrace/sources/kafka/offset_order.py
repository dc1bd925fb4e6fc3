"""Commit ts for rows of which only the second is known, so that their order with schema changes is that of the offsets.

A schema change has its exact commit ts and is in every partition. TiCDC writes the rows of a table and its schema changes in their
order, but tables advance independently of each other. So only the schema changes of a table say something of its rows: rows behind
one, of the same second, get the next commit ts. Every other row gets the first one of its second, and so counts as before a schema
change in it.

If TiCDC is restarted, it sends rows and schema changes again from a while before. Rows of another second than that of the schema
change end those that were after it for certain: behind them, rows of its second are repeated, or the change comes again. If the
change, or one before it, comes again behind rows of its second, these rows may have been before it, unless rows of a later second
come right behind them. Then the order is unknown.

What was before is looked at back to the time of the row or schema change, less an hour for clocks that differ: nothing of its
second can have been written earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.model.table import TableId
from headrace.model.tso import LOGICAL_BITS, tso_to_ms

SECOND = 1000 << LOGICAL_BITS
"""A second, as a difference of commit ts (TSO)."""
_CLOCKS_MS = 3_600_000
"""How far the clock that gives Kafka's times may be behind the one of commit ts."""
REPEATED = (
    "the schema change comes again behind rows of its second, because TiCDC was restarted. The protocol does not show which of "
    "these rows were before it. Load the table anew."
)


class Passed(NamedTuple):
    """A row or a schema change at an earlier place in the partition."""

    tables: tuple[TableId, ...]
    """The table of a row, or those that a schema change is of."""
    commit_ts: int
    """TSO; of a row the first one of its second."""
    is_statement: bool = False


@dataclass
class _Behind:
    """What is known of a table at a place in the partition. Seconds are their first TSO."""

    statement: int | None = None
    """The commit ts (TSO) of its last schema change, 0 for none; ``None`` if it was not found so far."""
    first: int | None = None
    """The second of the first row that is known behind it."""
    other: int | None = None
    """The first second behind that one which is not the same."""

    def add(self, second: int) -> None:
        """Takes a row behind all others."""
        if self.first is None:
            self.first = second
        elif self.other is None and second != self.first:
            self.other = second

    def add_before(self, second: int) -> None:
        """Takes a row before all others."""
        if self.first is not None and second != self.first:
            self.other = self.first
        self.first = second

    def is_unknown(self, commit_ts: int) -> bool:
        """Whether the order of its rows is unknown if a schema change with this commit ts (TSO) comes next."""
        if not self.statement or commit_ts > self.statement or self.first != _second(self.statement):
            return False
        return self.other is None or self.other < self.first


def _anywhere(time_ms: int) -> int | None:
    return 0


@dataclass
class OffsetOrder:
    """What is known of a partition at a place in it. What was before is looked at only as far as it matters."""

    earlier: Iterator[tuple[int, Sequence[Passed]]] = field(default_factory=lambda: iter(()))
    """What is before the first row or schema change that is taken: parts of it, from the last one to the first one, each with the
    offset at which it begins."""
    first_since: Callable[[int], int | None] = _anywhere
    """The offset of the first part of ``earlier`` that was written at a time (ms since 1970) or later; ``None`` if none was."""
    _begins: int | None = None
    """Where the last part begins that was looked at; ``None`` if none was."""
    _limits: dict[int, int | None] = field(default_factory=dict)
    """What ``first_since`` told for an hour before each second (TSO)."""
    _is_complete: bool = False
    """Whether nothing is left in ``earlier``."""
    _tables: dict[TableId, _Behind] = field(default_factory=dict)

    def of_row(self, table_id: TableId, commit_ts: int) -> int:
        """The commit ts of the next row, whose second begins at ``commit_ts`` (TSO)."""
        table = self._table(table_id)
        table.add(commit_ts)
        while table.statement is None and table.other is None and self._may_be_before(commit_ts):
            self._look_back()
        if table.other is None and table.statement and commit_ts == _second(table.statement):
            return table.statement + 1
        return commit_ts

    def take_statement(self, tables: Sequence[TableId], commit_ts: int) -> Sequence[TableId]:
        """Passes a schema change of tables, with its commit ts (TSO). Returns those of which rows before it have no known order."""
        changed = {table_id: self._table(table_id) for table_id in tables}
        second = _second(commit_ts)
        while any(table.statement is None for table in changed.values()) and self._may_be_before(second):
            self._look_back()
        self._tables |= {table_id: _Behind(commit_ts) for table_id in changed}
        return [table_id for table_id, table in changed.items() if table.is_unknown(commit_ts)]

    def _table(self, table_id: TableId) -> _Behind:
        return self._tables.setdefault(table_id, _Behind(0 if self._is_complete else None))

    def _may_be_before(self, second: int) -> bool:
        """Whether what was not looked at so far may have a schema change of this second (TSO), or a later one."""
        if second not in self._limits:
            self._limits[second] = self.first_since(tso_to_ms(second) - _CLOCKS_MS)
        limit = self._limits[second]
        return limit is not None and (self._begins is None or limit < self._begins)

    def _look_back(self) -> None:
        """Adds an earlier part to what is known."""
        begins, part = next(self.earlier, (None, ()))
        self._begins = begins
        if begins is None:
            self._is_complete = True
            for table in self._tables.values():
                table.statement = table.statement or 0
            return
        for passed in reversed(part):
            for table in map(self._table, passed.tables):
                if table.statement is None and passed.is_statement:
                    table.statement = passed.commit_ts
                elif table.statement is None:
                    table.add_before(passed.commit_ts)


def _second(commit_ts: int) -> int:
    return commit_ts - commit_ts % SECOND
