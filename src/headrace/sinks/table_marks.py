"""The marks that a target's tables carry: up to where each table is applied, written in the table's own commit.

For targets in which only the commit of a single table is atomic (lake tables). A run may die between that commit and the ledger's
next step; writing the rows of a log or of a table without key again would then double them. The ledger's fence does not reach such
a commit either: only the mark keeps out a run that was taken over and has not noticed it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from headrace.model.table import TableId

_NO_LIFE = -1


@dataclass(frozen=True)
class TableMark:
    """The state up to which a target table has everything that a pipeline writes to it."""

    pipeline: str
    incarnation: int
    """The commit ts (TSO) at which the source's table got its name. The mark of an earlier table with that name says nothing about
    this one."""
    checkpoint: int
    """All rows up to this commit ts (TSO) are there. Whether a schema change at exactly this commit ts is done, the journal
    records."""
    since: int = 0
    """The commit ts (TSO) from which the commit with this mark continues."""
    epoch: int = 0
    """The epoch of the run that wrote the mark. Epochs keep rising across a reset, so a later run of the same name has a greater
    one."""

    @classmethod
    def of_no_life(cls, pipeline: str, epoch: int) -> TableMark:
        """The mark for a table whose ledger row was removed, last held by this epoch. No earlier commit can continue from it."""
        return cls(pipeline, _NO_LIFE, 0, epoch=epoch)

    def follows(self, former: TableMark | None) -> bool:
        """Whether the commit with this mark continues from the table's present mark ``former``.

        If not, another run has committed rows meanwhile, or the name belongs to another table than the run assumes. Nothing
        continues from a table without a mark: before rows are written, the engine puts a mark with the table's beginning.
        """
        if former is None or (former.pipeline, former.incarnation) != (self.pipeline, self.incarnation):
            return False
        return former.epoch <= self.epoch and former.checkpoint <= self.since

    def replaces(self, former: TableMark | None) -> bool:
        """Whether this mark may replace the table's present one in a commit without rows (:meth:`TableMarks.put`).

        The mark of a later run stays. So does a mark of the same run and incarnation whose checkpoint is not above this one's: a
        schema change needs no extra commit in a table to which this run has already written.
        """
        if former is None or former.pipeline != self.pipeline:
            return True
        is_told = (former.incarnation, former.epoch) == (self.incarnation, self.epoch) and former.checkpoint <= self.checkpoint
        return former.epoch <= self.epoch and not is_told


class TableMarks(Protocol):
    """The marks of a sink that writes them (:meth:`headrace.sinks.base.Round.marks`).

    A mark belongs to the table: a RENAME keeps it, and a table that is dropped or created again has none. If a commit's mark does
    not follow the table's present one (:meth:`TableMark.follows`), or if the table does not exist, the commit must fail with
    TransientError; the engine then reads the marks again. Comparison and commit are one atomic step: no other commit to the table
    may come in between.
    """

    def read(self, pipeline: str, targets: Collection[TableId]) -> Mapping[TableId, TableMark]:
        """The marks that this pipeline has left in these target tables. Tables that have none or do not exist are left out.

        Called before a cut, for the tables that may be ahead of the ledger. Raises SinkUnreachableError, TransientError.
        """
        ...

    def put(self, marks: Mapping[TableId, TableMark]) -> None:
        """Writes these marks, each in a commit without rows, if it replaces the table's present mark (:meth:`TableMark.replaces`).

        Comparison and commit are one atomic step. Tables that do not exist are skipped. Raises as :meth:`read`.

        Called when a table gets another incarnation or checkpoint than its rows give it, before the ledger step that records it.
        """
        ...
