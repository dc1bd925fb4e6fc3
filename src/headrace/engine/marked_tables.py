"""Tables that say in their own commit up to where they are applied: how they get ahead of the ledger, and how it follows.

Only a cut that broke off, or in which a table stopped, leaves a table ahead. The tables are asked then, before anything else looks
at their places. Those that run are asked only where the ledger has an intent that is not fulfilled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from headrace.engine.requests import Carried
from headrace.model.cut import Cut, CutRound
from headrace.model.ledger import LedgerState, TableProgress, TableStatus
from headrace.model.letters import begins
from headrace.model.table import TableId
from headrace.sinks.base import LedgerUpdate
from headrace.sinks.dead_letters import DeadLetters
from headrace.sinks.table_marks import TableMark, TableMarks


def marks_of(pipeline: str, cut: Cut, cut_round: CutRound, rows: Mapping[TableId, TableProgress]) -> Mapping[TableId, TableMark]:
    """By the target's table what it may say once it has all its rows of a round; ``rows`` are the ledger's until then.

    Nothing where rows carry no exact commit ts: no such place tells which of them are there.
    """
    if not cut.precision.is_exact:
        return {}
    marks = {}
    for table_id, own in rows.items():
        segment = cut_round.segments[table_id]
        end = segment.window.hi if segment.ends is None else min(segment.window.hi, segment.ends)
        source, target = own.pair
        since = max(own.checkpoint, cut.checkpoints.get(source, 0))
        marks[target] = TableMark(pipeline, own.incarnation, max(since, end), since)
    return marks


def in_doubt(state: LedgerState) -> Iterator[TableProgress]:
    """The rows, each at its true checkpoint, of tables that may be ahead of it after a cut broke off, or a table stopped in it."""
    is_unfinished = state.attempted > state.checkpoint
    for row in state.rows:
        if not row.status.is_gone and (is_unfinished or row.status is not TableStatus.RUNNING):
            yield _at_its_place(state, row)


def unknown(state: LedgerState, read: Iterable[TableId]) -> Iterator[TableProgress]:
    """Rows for the tables among those that are read of which the ledger has none: a cut that broke off left it so."""
    known = {row.table_id for row in state.rows}
    for table_id in sorted({*read} - known):
        yield TableProgress(table_id, state.start, status=TableStatus.CATCHING_UP)


def caught_up(
    state: LedgerState, rows: Iterable[TableProgress], marks: TableMarks | None, letters: DeadLetters | None
) -> Carried | None:
    """What lets the ledger follow those of the tables that are ahead of their rows; ``None`` where none is.

    The dead letters that such a table left on the way are counted with it. Raises as ``TableMarks.read``.
    """
    asked = {row.pair[1]: row for row in rows} if marks is not None else {}
    if marks is None or not asked:
        return None
    moved: list[TableProgress] = []
    counts: dict[TableId, int] = {}
    for target, mark in marks.read(state.pipeline, asked.keys()).items():
        row = asked[target]
        if mark.incarnation == row.incarnation and mark.checkpoint > row.checkpoint:
            moved.append(replace(row, checkpoint=mark.checkpoint, after=False))
            names = letters.names(row.table_id) if letters is not None else ()
            if new := sum(row.checkpoint <= begins(name) < mark.checkpoint for name in names):
                counts[row.table_id] = state.dead_letters.get(row.table_id, 0) + new
    return Carried(LedgerUpdate(tables=tuple(moved), dead_letters=counts)) if moved else None


def going_back(state: LedgerState, rows: Iterable[TableProgress]) -> frozenset[TableId]:
    """The target's tables whose rows of the ledger go back: what they say of themselves is not so any more."""
    before = {row.pair: _at_its_place(state, row) for row in state.rows}
    return frozenset(row.pair[1] for row in rows if row.pair in before and row.checkpoint < before[row.pair].checkpoint)


def _at_its_place(state: LedgerState, row: TableProgress) -> TableProgress:
    return replace(row, checkpoint=max(row.checkpoint, state.checkpoint)) if row.status is TableStatus.RUNNING else row
