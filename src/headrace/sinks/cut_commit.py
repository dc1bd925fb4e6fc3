"""The ledger's part of a cut that is committed in one transaction with its data (``SinkCapabilities.atomic_bytes``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from headrace.model.bearers import Bearers
from headrace.model.cut import CutOutcome
from headrace.model.ledger import TableProgress, TableRequest
from headrace.model.offer import PositionAfter
from headrace.model.outcome import Problem, SplitReport, missing_rows, told_of_bearers
from headrace.model.table import TableId
from headrace.sinks.base import LedgerUpdate

_NOTHING: Mapping[TableId, int] = {}
_NOT_BEGUN = CutOutcome(0)


@dataclass(frozen=True)
class CutCommit:
    """The ledger's update of a whole cut, for the task that commits the cut.

    A run may die before its next step. So the update also contains everything that belongs to the new checkpoints: the source's
    position, the dead letters of the tables that advance, and the requests that are completed.
    """

    hi: int
    """The pipeline's checkpoint (TSO) after the cut."""
    checkpoints: Mapping[TableId, int]
    """The checkpoints (TSO) of all tables of the cut before it. A table that cannot be written keeps its own."""
    stopped: tuple[TableProgress, ...] = ()
    """The rows of tables that are known to stop, at their checkpoint or before a schema change that they cannot pass."""
    rows: Mapping[TableId, TableProgress] = field(default_factory=dict)
    """The tables' own rows before the cut, if they have one, and those of the tables in ``bearers``."""
    dead_letters: Mapping[TableId, int] = field(default_factory=dict)
    """The number of dead letters of each table before the cut."""
    new_letters: Mapping[TableId, int] = field(default_factory=dict)
    """The number of dead letters added while the cut was read."""
    going_on: tuple[TableProgress, ...] = ()
    """The rows of tables that reach the end of the cut and that ``hi`` does not move: new tables, and tables that resume after a
    stop."""
    over: tuple[TableRequest, ...] = ()
    """The requests that are completed when their tables reach the end of the cut."""
    progress: CutOutcome = _NOT_BEGUN
    """What the cut reaches, as passed to its source. ``behind`` are the tables that take no part in it."""
    after: PositionAfter | None = None
    """The source's position after the cut; ``None`` leaves the position unchanged."""
    bearers: Mapping[str, Bearers] = field(default_factory=dict)
    """See ``Cut.bearers``."""
    reports: tuple[SplitReport, ...] = ()
    """The reports of the cut's splits, once they are read."""

    def stopped_row(self, problem: Problem) -> TableProgress:
        """The row of the problem's table, stopped at its checkpoint before the cut."""
        table_id = problem.table_id
        own = self.rows.get(table_id) or TableProgress(table_id, 0)
        return replace(own, checkpoint=self.checkpoints[table_id], status=problem.status, reason=problem.sentence())

    def stopping(self, problems: Iterable[Problem]) -> CutCommit:
        """The same cut, with the tables of these problems stopped at their checkpoints before it."""
        rows = tuple(map(self.stopped_row, problems))
        stopped = self.progress.stopped.union(row.table_id for row in rows)
        return replace(self, stopped=(*self.stopped, *rows), progress=replace(self.progress, stopped=stopped))

    def update(
        self,
        problems: Iterable[Problem],
        refused: Mapping[TableId, int] = _NOTHING,
        reached: Iterable[TableProgress] = (),
    ) -> LedgerUpdate:
        """The ledger's update, in which the tables of these problems stop at their checkpoints before the cut.

        ``refused`` counts refused rows by table. ``reached`` holds the rows of tables without key, one for each target. A table
        that stopped before a schema change of the cut has its row in ``stopped`` instead, because the checkpoint moves every table
        that is not stopped. A table that does not advance writes its dead letters again.
        """
        cut = self.stopping(problems)
        stopped = {row.table_id for row in cut.stopped}
        moving = (row for row in (*reached, *self.going_on) if row.table_id not in stopped)
        tables = {row.pair: row for row in (*moving, *cut.stopped)}
        for table_id, reason in missing_rows(told_of_bearers(self.reports, self.bearers)).items():
            row = self.rows.get(table_id) or TableProgress(table_id, self.hi)
            row = tables.get(row.pair, row)
            tables[row.pair] = replace(row, lacks=row.lacks or reason)
        moved = self.checkpoints.keys() - cut.progress.stopped
        new = {t: self.new_letters.get(t, 0) + refused.get(t, 0) for t in {*self.new_letters, *refused} & moved}
        return LedgerUpdate(
            checkpoint=self.hi,
            position=cut._position({row.pair: row for row in self.rows.values()} | tables),
            tables=tuple(tables.values()),
            used_requests=tuple(request.identity for request in self.over if request.table_id not in stopped),
            dead_letters={t: self.dead_letters.get(t, 0) + count for t, count in new.items() if count},
        )

    def _position(self, tables: Mapping[tuple[TableId, TableId], TableProgress]) -> str | None:
        """The source's position after the cut. ``tables`` are the rows of its tables then."""
        if self.after is None:
            return None
        behind = self.progress.behind.union(own.table_id for own in tables.values() if own.needs_files)
        return self.after.after(self.reports, replace(self.progress, behind=behind))
