"""The dead letters of one cut: which ones its tables got, how many of them the ledger is to count, and which are stale."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from headrace.engine.plan import Cut
from headrace.model.outcome import Notice, Problem
from headrace.model.progress import LedgerState, TableStatus
from headrace.model.table import TableId
from headrace.sinks.base import WriteReport
from headrace.sinks.dead_letters import DeadLetters

_UNTIL = "Until they are replayed rows may be missing, out of date, or there though they were deleted."


@dataclass
class CutLetters:
    """``before`` is the ledger at the cut's beginning; ``folder`` is ``None`` where what cannot be applied stops its table."""

    cut: Cut
    before: LedgerState
    folder: DeadLetters | None
    _new: dict[TableId, set[str]] = field(default_factory=lambda: defaultdict(set))
    _counted: dict[TableId, set[str]] = field(default_factory=lambda: defaultdict(set))

    def take(self, report: WriteReport, stopped: Collection[TableId]) -> Mapping[TableId, Problem]:
        """Takes up what a round left out. Returns why tables that go on so far have too many letters."""
        if self.folder is None:
            return {}
        for table_id, names in report.letters().items():
            self._new[table_id] |= names
        found = {t: self.folder.too_many(t, len(names)) for t, names in self._new.items() if t not in stopped}
        return {t: problem for t, problem in found.items() if problem is not None}

    def count(self, known: Mapping[TableId, int], moved: Collection[TableId]) -> dict[TableId, int]:
        """How many letters each table has that moves and got new ones; ``known`` is what the ledger counts so far.

        The same step of the ledger moves a table past its rows and counts their letters: no repeat of the cut reads them again.
        Raises SinkUnreachableError.
        """
        counts: dict[TableId, int] = {}
        if self.folder is None:
            return counts
        for table_id in sorted(moved):
            self._remove_stale(table_id, self.folder)
            new = self._new.get(table_id, set()) - self._counted[table_id]
            if new:
                self._counted[table_id] |= new
                # A repeated step may have counted them already; there are never more than lie there.
                counts[table_id] = min(known.get(table_id, 0) + len(new), len(self.folder.names(table_id)))
        return counts

    def told(self, stopped: Collection[TableId]) -> list[Notice]:
        """What people are told at the end of the cut. Tables that stopped make their letters again."""
        if self.folder is None:
            return []
        return [
            Notice(
                f"{len(self._new[t])} of its changes up to {self.cut.hi} could not be applied and lie as dead letters in "
                f"{self.folder.location(t)}. {_UNTIL}",
                t,
            )
            for t in sorted(self._new.keys() - stopped)
        ]

    def _remove_stale(self, table_id: TableId, folder: DeadLetters) -> None:
        """What an earlier try of the same cut left out, and this one did not, was repaired and is applied."""
        if not (self.cut.is_exact and self._may_be_tried_again(table_id)):
            return
        begins = tuple(f"{r.segments[table_id].lo}-" for r in self.cut.rounds if table_id in r.segments)
        there = folder.names(table_id) if begins else []
        stale = [name for name in there if name.startswith(begins) and name not in self._new.get(table_id, set())]
        if stale:
            folder.remove(table_id, stale)

    def _may_be_tried_again(self, table_id: TableId) -> bool:
        own = self.before.tables.get(table_id)
        was_behind = own is not None and (own.status.is_stopped or own.status is TableStatus.CATCHING_UP)
        return was_behind or self.before.attempted > self.before.checkpoint
