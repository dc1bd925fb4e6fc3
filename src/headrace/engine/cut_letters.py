"""The dead letters of one cut: which letters its tables got, how many the ledger must count, and which are stale.

The ledger's count shows what the target lacks, whatever the folder holds. It decreases only by a replay, when a person discards
letters, and when a table goes back and reads the affected records again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from headrace.model.cut import Cut, CutRound
from headrace.model.ledger import LedgerState, TableStatus
from headrace.model.letters import begins
from headrace.model.outcome import Notice, Problem
from headrace.model.table import TableId
from headrace.sinks.base import LedgerUpdate, WriteReport
from headrace.sinks.dead_letters import DeadLetters

_UNTIL = "Until they are replayed, rows may be missing, out of date, or present although the source deleted them."


@dataclass
class CutLetters:
    """Collects the dead letters of a cut."""

    cut: Cut
    before: LedgerState
    """The ledger at the beginning of the cut."""
    folder: DeadLetters | None
    """``None`` if records that cannot be applied stop their table."""
    _new: dict[TableId, set[str]] = field(default_factory=lambda: defaultdict(set))
    _counted: dict[TableId, set[str]] = field(default_factory=lambda: defaultdict(set))

    def begin(self, cut_round: CutRound, tables: Iterable[TableId]) -> None:
        """Sets aside what earlier tries of a round left out, before a sink with table marks writes the round.

        This try leaves out again what is still bad. Otherwise the ledger could count a letter that was repaired: if the run dies
        once a table has its rows, the table's mark shows how far it is, but not which rows it lacks. Raises SinkUnreachableError.
        """
        if self.folder is None or not self.cut.precision.is_exact:
            return
        for table_id in sorted(t for t in tables if self._may_be_tried_again(t)):
            former = [n for n in self.folder.names(table_id) if begins(n) >= cut_round.segments[table_id].lo]
            if former:
                self.folder.set_aside(table_id, former)

    def take(self, report: WriteReport, stopped: Collection[TableId]) -> Mapping[TableId, Problem]:
        """Records what a round left out. Returns the problems of tables, not stopped so far, that have too many letters."""
        if self.folder is None:
            return {}
        for table_id, names in report.letters().items():
            self._new[table_id] |= names
        found = {t: self.folder.too_many(t, len(names)) for t, names in self._new.items() if t not in stopped}
        return {t: problem for t, problem in found.items() if problem is not None}

    def count(self, known: Mapping[TableId, int], moved: Collection[TableId]) -> dict[TableId, int]:
        """The number of letters of each table that advances and got new ones. ``known`` are the ledger's counts so far.

        The same ledger step moves a table past its rows and counts their letters, because no repeat of the cut reads them again.
        Raises SinkUnreachableError.
        """
        counts: dict[TableId, int] = {}
        if self.folder is None:
            return counts
        for table_id in sorted(moved):
            counted = known.get(table_id, 0)
            self._set_stale_aside(table_id, self.folder, counted)
            new = self._new.get(table_id, set()) - self._counted[table_id]
            if new:
                self._counted[table_id] |= new
                counts[table_id] = counted + len(new)
        return counts

    def told(self, stopped: Collection[TableId]) -> list[Notice]:
        """The notices at the end of the cut. Tables that stopped write their letters again later."""
        if self.folder is None:
            return []
        return [
            Notice(
                f"{len(self._new[t])} of its changes up to {self.cut.hi} could not be applied and are kept as dead letters in "
                f"{self.folder.location(t)}. {_UNTIL}",
                t,
            )
            for t in sorted(self._new.keys() - stopped)
        ]

    def _set_stale_aside(self, table_id: TableId, folder: DeadLetters, counted: int) -> None:
        """Sets aside letters that an earlier try of this cut wrote and this try did not: the records were repaired and applied.

        Also letters of a later cut whose ledger was lost by a restore or a failover, since no letter that this ledger counts lies
        after the table's checkpoint. Among counted letters, such a letter would take the place of one that is missing.
        """
        new = self._new.get(table_id, set())
        if not (self.cut.precision.is_exact and (new or counted or self._may_be_tried_again(table_id))):
            return
        lo = min((r.segments[table_id].lo for r in self.cut.rounds if table_id in r.segments), default=None)
        stale = [name for name in folder.names(table_id) if begins(name) >= lo and name not in new] if lo is not None else []
        if stale:
            folder.set_aside(table_id, stale)

    def _may_be_tried_again(self, table_id: TableId) -> bool:
        own = self.before.tables.get(table_id)
        was_behind = own is not None and (own.status.is_stopped or own.status is TableStatus.CATCHING_UP)
        return was_behind or self.before.attempted > self.before.checkpoint


def recounted(update: LedgerUpdate, state: LedgerState, folder: DeadLetters) -> LedgerUpdate:
    """The update with the letters removed from the count that a table which goes back will write again if necessary."""
    counts = dict(update.dead_letters)
    for row in update.tables:
        known = state.dead_letters.get(row.table_id, 0)
        goes_back = row.status is TableStatus.CATCHING_UP and row.checkpoint < state.table_checkpoint(row.table_id)
        if known and goes_back and row.table_id not in counts:
            again = sum(begins(name) >= row.checkpoint for name in folder.names(row.table_id))
            counts[row.table_id] = max(known - again, 0)
    return replace(update, dead_letters=counts)
