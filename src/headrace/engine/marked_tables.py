"""Tables with marks: each is committed separately, with the place up to which it is applied. How the ledger catches up with them.

A table can be ahead of the ledger only after a cut that was aborted or in which a table stopped. Its mark is then read before
anything else uses the table's checkpoint. The marks of running tables are read only if the ledger has an intent that is not
completed.

Also, only the mark keeps out a run that was taken over and has not noticed it. So before each ledger step that gives a table
another incarnation or checkpoint than its rows do (a schema change, a request), a mark with the run's epoch records that. The step
then proves, before any rows are written, that the run which left the mark still holds the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from headrace.engine.requests import Carried
from headrace.errors import TargetWentBackError
from headrace.model.cut import Cut, CutRound
from headrace.model.ledger import LedgerState, TableProgress, TableStatus
from headrace.model.letters import begins
from headrace.model.table import TableId
from headrace.sinks.base import LedgerUpdate, WriterContext
from headrace.sinks.dead_letters import DeadLetters
from headrace.sinks.table_marks import TableMark, TableMarks

_PEOPLES = (TableStatus.HELD, TableStatus.EXCLUDED)
"""The status of tables that are not touched, not even by a mark, until they continue."""


class LedgerOutrunError(TargetWentBackError):
    """A table was written by a later run than the one in the ledger: the ledger was restored to an older state.

    ``epoch`` is that of the latest such run.
    """

    def __init__(self, target: TableId, mark: TableMark, state: LedgerState) -> None:
        super().__init__(
            f"{target} was last written by run {mark.epoch} of pipeline {state.pipeline!r}, but the ledger only knows runs up to "
            f"{state.epoch}: an older state of the ledger was restored. The run goes on from what the ledger and the tables record "
            "now."
        )
        self.epoch = mark.epoch


def marks_of(
    context: WriterContext, cut: Cut, cut_round: CutRound, rows: Mapping[TableId, TableProgress]
) -> Mapping[TableId, TableMark]:
    """The marks, by target table, for the commit of all its rows of a round. ``rows`` are the ledger's until then.

    If rows have no exact commit ts, the mark stays at the former place, because no such place shows which rows are there.
    """
    marks = {}
    for table_id, own in rows.items():
        segment = cut_round.segments[table_id]
        end = segment.window.hi if segment.ends is None else min(segment.window.hi, segment.ends)
        source, target = own.pair
        since = max(own.checkpoint, cut.checkpoints.get(source, 0))
        reached = max(since, end) if cut.precision.is_exact else since
        marks[target] = TableMark(context.pipeline, own.incarnation, reached, since, context.epoch)
    return marks


def in_doubt(state: LedgerState) -> Iterator[TableProgress]:
    """The rows, at their true checkpoints, of tables that may be ahead of them: a cut was aborted, or a table stopped in it."""
    is_unfinished = state.attempted > state.checkpoint
    for row in state.rows:
        if not row.status.is_gone and (is_unfinished or row.status is not TableStatus.RUNNING):
            yield _at_its_place(state, row)


def unknown(state: LedgerState, read: Iterable[TableId]) -> Iterator[TableProgress]:
    """Rows for those of the read tables that have none in the ledger, as an aborted cut may leave them."""
    known = {row.table_id for row in state.rows}
    for table_id in sorted({*read} - known):
        yield TableProgress(table_id, state.start, status=TableStatus.CATCHING_UP)


def caught_up(
    state: LedgerState, rows: Iterable[TableProgress], marks: TableMarks | None, letters: DeadLetters | None
) -> Carried | None:
    """The update with which the ledger catches up with tables that are ahead of it; ``None`` if there is nothing to write.

    It also counts the dead letters that such a table wrote on the way. Tables that the pipeline created and that have no mark get a
    mark with the ledger's checkpoint. Raises LedgerOutrunError, and as ``TableMarks.read``.
    """
    asked = {row.pair[1]: row for row in rows} if marks is not None else {}
    if marks is None or not asked:
        return None
    moved: list[TableProgress] = []
    counts: dict[TableId, int] = {}
    told = _told(state, asked, marks)
    for target, mark in told.items():
        row = asked[target]
        if mark.checkpoint > row.checkpoint:
            moved.append(replace(row, checkpoint=mark.checkpoint, after=False))
            names = letters.confirmed_names(row.table_id) if letters is not None else ()
            if new := sum(row.checkpoint <= begins(name) < mark.checkpoint for name in names):
                counts[row.table_id] = state.dead_letters.get(row.table_id, 0) + new
    silent = [row for target, row in asked.items() if target not in told and row.is_made and row.status not in _PEOPLES]
    silent = [row for row in silent if state.row_of(*row.pair) is not None]
    say(state, silent, marks)
    return Carried(LedgerUpdate(tables=tuple(moved), dead_letters=counts)) if moved or silent else None


def begin_to_say(state: LedgerState, rows: Iterable[TableProgress], marks: TableMarks | None) -> bool:
    """Marks tables without a row in the ledger, before their first rows are written. ``rows`` are their places.

    Returns whether there was such a table; the ledger then needs a step before the rows. Raises as ``TableMarks``.
    """
    asked = {row.pair[1]: row for row in rows if state.row_of(*row.pair) is None} if marks is not None else {}
    if marks is None or not asked:
        return False
    told = _told(state, asked, marks)
    silent = [row for target, row in asked.items() if target not in told]
    say(state, silent, marks)
    return bool(silent)


def say(state: LedgerState, rows: Iterable[TableProgress], marks: TableMarks | None) -> None:
    """Marks tables with the places in these rows, which a ledger step has, or is about to have. Keeps out earlier runs."""
    if marks is not None and (there := [row for row in rows if not row.status.is_gone]):
        places = {row.pair[1]: (row.incarnation, row.checkpoint) for row in there}
        marks.put({target: TableMark(state.pipeline, life, at, at, state.epoch) for target, (life, at) in places.items()})


def say_of_requests(state: LedgerState, rows: Iterable[TableProgress], marks: TableMarks | None) -> None:
    """Marks tables that people's requests move, hold or release, before the ledger step that does so.

    If the step moves a table forward, the mark has the former place: the step may not be written, and only the step records what is
    passed over.
    """
    before = {row.pair: _at_its_place(state, row) for row in state.rows}
    moved = []
    for row in rows:
        former = before.get(row.pair)
        if former is not None and (row.checkpoint < former.checkpoint or row.status is not former.status):
            moved.append(replace(row, checkpoint=min(row.checkpoint, former.checkpoint)))
    say(state, (row for row in moved if row.status is not TableStatus.EXCLUDED), marks)


def _told(state: LedgerState, asked: Mapping[TableId, TableProgress], marks: TableMarks) -> Mapping[TableId, TableMark]:
    """The marks that count: of the incarnation in the ledger, and not older than its record."""
    read = marks.read(state.pipeline, asked.keys())
    latest = max(read, key=lambda target: read[target].epoch, default=None)
    if latest is not None and read[latest].epoch > state.epoch:
        raise LedgerOutrunError(latest, read[latest], state)
    return {t: mark for t, mark in read.items() if mark.epoch >= state.began and mark.incarnation == asked[t].incarnation}


def _at_its_place(state: LedgerState, row: TableProgress) -> TableProgress:
    return replace(row, checkpoint=max(row.checkpoint, state.checkpoint)) if row.status is TableStatus.RUNNING else row
