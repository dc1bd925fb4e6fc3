"""What a target's tables say of themselves: up to where each is applied, written in the table's own commit.

For targets where nothing but a table's commit is atomic (lake tables). A run may die between that commit and the ledger's next
step; rows of a table without key, or of a log, would be doubled if they were written again. And no fence of the ledger reaches
such a commit: the mark alone keeps a run out that was taken over and does not know it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from headrace.model.table import TableId

_NO_LIFE = -1


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
    epoch: int = 0
    """That of the run which wrote it. It goes on over a reset, so a later run of the name has a greater one."""

    @classmethod
    def of_no_life(cls, pipeline: str, epoch: int) -> TableMark:
        """What stands in a table whose record was removed, last held by this epoch: no commit of then leads on from it."""
        return cls(pipeline, _NO_LIFE, 0, epoch=epoch)

    def follows(self, former: TableMark | None) -> bool:
        """Whether the commit leads on from what the table says until then.

        If not, another run has committed rows meanwhile, or this is not the table any more that the run knows by its name.
        Nothing leads on from a table that says nothing: the engine lets a table say where it begins before it has rows written.
        """
        if former is None or (former.pipeline, former.incarnation) != (self.pipeline, self.incarnation):
            return False
        return former.epoch <= self.epoch and former.checkpoint <= self.since

    def replaces(self, former: TableMark | None) -> bool:
        """Whether it is to stand in the place of what the table says, where no rows are written with it (:meth:`TableMarks.put`).

        A later run's mark stays. So does one of the same run and life that says no more: a schema change costs a table nothing
        that this run has written to before.
        """
        if former is None or former.pipeline != self.pipeline:
            return True
        is_told = (former.incarnation, former.epoch) == (self.incarnation, self.epoch) and former.checkpoint <= self.checkpoint
        return former.epoch <= self.epoch and not is_told


class TableMarks(Protocol):
    """The marks of a sink that writes them (:meth:`headrace.sinks.base.Round.marks`).

    A mark belongs to the table: a RENAME takes it along, and a table that is dropped or made anew has none. A commit whose mark
    does not follow the table's (:meth:`TableMark.follows`), or whose table is not there, is not made, and raises TransientError.
    The engine then asks anew. Both are one step: nothing else is committed to the table in between.
    """

    def read(self, pipeline: str, targets: Collection[TableId]) -> Mapping[TableId, TableMark]:
        """The marks that this pipeline has left in these tables of the target; tables without one, or that are not there, are
        left out. Asked before a cut, of the tables that may be ahead of the ledger. Raises SinkUnreachableError, TransientError.
        """
        ...

    def put(self, marks: Mapping[TableId, TableMark]) -> None:
        """Leaves these marks in the tables, each in a commit without rows, where it replaces what the table says
        (:meth:`TableMark.replaces`), in one step with that comparison. Passes over tables that are not there. Raises as
        :meth:`read`.

        Called where a table gets another life or place than its rows give it, before the step of the ledger that says so.
        """
        ...
