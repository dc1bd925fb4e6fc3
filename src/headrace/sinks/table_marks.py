"""What a target's tables say of themselves: up to where each is applied, written in the table's own commit.

For targets where nothing but a table's commit is atomic (lake tables). A run may die between that commit and the ledger's next
step; rows of a table without key, or of a log, would be doubled if they were written again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from headrace.model.table import TableId


@dataclass(frozen=True)
class TableMark:
    """Up to where a table of the target has everything that a pipeline writes to it."""

    pipeline: str
    incarnation: int
    """The commit ts (TSO) by which the source's table came to its name: what another one left under the name says nothing."""
    checkpoint: int
    """All rows up to this commit ts (TSO) are there. Of a schema change at the very commit ts the journal tells."""
    since: int = 0
    """From where (TSO) the commit with this mark leads on."""

    def follows(self, former: TableMark | None) -> bool:
        """Whether the commit leads on from what the table says until then. If not, another run has committed rows meanwhile."""
        if former is None or (former.pipeline, former.incarnation) != (self.pipeline, self.incarnation):
            return True
        return former.checkpoint <= self.since


class TableMarks(Protocol):
    """The marks of a sink that writes them (:meth:`headrace.sinks.base.Round.marks`).

    A mark belongs to the table: a RENAME takes it along, and a table that is dropped or made anew has none. A commit whose mark
    does not follow the table's (:meth:`TableMark.follows`) is not made, and raises TransientError. The engine then asks anew; a
    run that was taken over without knowing it would double rows otherwise.
    """

    def read(self, pipeline: str, targets: Collection[TableId]) -> Mapping[TableId, TableMark]:
        """The marks that this pipeline has left in these tables of the target; tables without one, or that are not there, are
        left out. Asked before a cut, of the tables that may be ahead of the ledger. Raises SinkUnreachableError, TransientError.
        """
        ...

    def remove(self, pipeline: str, targets: Collection[TableId]) -> None:
        """Takes the marks of these tables away: a person had them go back, or loaded them anew. Raises as :meth:`read`."""
        ...
