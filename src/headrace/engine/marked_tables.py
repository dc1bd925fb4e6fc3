"""Tables that say in their own commit up to where they are applied: how they get ahead of the ledger, and how it follows.

Only a cut that broke off, or in which a table stopped, leaves a table ahead. The tables are asked then, before anything else looks
at their places. Those that run are asked only where the ledger has an intent that is not fulfilled.

What a table says is also all that keeps a run out which was taken over and does not know it. So each step of the ledger that gives
a table another life or place than its rows do (a schema change, a request) is preceded by a mark that says so, with the run's
epoch; and that step proves that the run which left the mark still has the ledger, before it writes any rows.
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
"""Tables that are not touched, not even by a mark, before they go on."""


class LedgerOutrunError(TargetWentBackError):
    """A table was written by a later run than the ledger knows of: the ledger is an older one, by a restore.

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
    """By the target's table what it may say once it has all its rows of a round; ``rows`` are the ledger's until then.

    Where rows carry no exact commit ts that is no more than before: no such place tells which of them are there.
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
    """What lets the ledger follow those of the tables that are ahead of their rows; ``None`` where nothing has to be written.

    The dead letters that such a table left on the way are counted with it. Tables that the pipeline made, and that do not say where
    they are, are left to say what the ledger does. Raises LedgerOutrunError, and as ``TableMarks.read``.
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
            names = letters.names(row.table_id) if letters is not None else ()
            if new := sum(row.checkpoint <= begins(name) < mark.checkpoint for name in names):
                counts[row.table_id] = state.dead_letters.get(row.table_id, 0) + new
    silent = [row for target, row in asked.items() if target not in told and row.is_made and row.status not in _PEOPLES]
    silent = [row for row in silent if state.row_of(*row.pair) is not None]
    say(state, silent, marks)
    return Carried(LedgerUpdate(tables=tuple(moved), dead_letters=counts)) if moved or silent else None


def begin_to_say(state: LedgerState, rows: Iterable[TableProgress], marks: TableMarks | None) -> bool:
    """Lets tables that the ledger has no row of say where they are, before the first rows are written to them.

    Returns whether one had not; the ledger then needs a step before that. ``rows`` are where they stand. Raises as ``TableMarks``.
    """
    asked = {row.pair[1]: row for row in rows if state.row_of(*row.pair) is None} if marks is not None else {}
    if marks is None or not asked:
        return False
    told = _told(state, asked, marks)
    silent = [row for target, row in asked.items() if target not in told]
    say(state, silent, marks)
    return bool(silent)


def say(state: LedgerState, rows: Iterable[TableProgress], marks: TableMarks | None) -> None:
    """Lets tables say what these rows do, which a step of the ledger has or is about to have: no run of before writes to them."""
    if marks is not None and (there := [row for row in rows if not row.status.is_gone]):
        places = {row.pair[1]: (row.incarnation, row.checkpoint) for row in there}
        marks.put({target: TableMark(state.pipeline, life, at, at, state.epoch) for target, (life, at) in places.items()})


def say_of_requests(state: LedgerState, rows: Iterable[TableProgress], marks: TableMarks | None) -> None:
    """Lets tables that people's requests move, hold or let go on say so, before the step that does.

    Where the step goes forward the table says where it was: the step may not come, and it alone says what is passed over.
    """
    before = {row.pair: _at_its_place(state, row) for row in state.rows}
    moved = []
    for row in rows:
        former = before.get(row.pair)
        if former is not None and (row.checkpoint < former.checkpoint or row.status is not former.status):
            moved.append(replace(row, checkpoint=min(row.checkpoint, former.checkpoint)))
    say(state, (row for row in moved if row.status is not TableStatus.EXCLUDED), marks)


def _told(state: LedgerState, asked: Mapping[TableId, TableProgress], marks: TableMarks) -> Mapping[TableId, TableMark]:
    """What tables say that counts: of the life that the ledger knows, and since its record began."""
    read = marks.read(state.pipeline, asked.keys())
    latest = max(read, key=lambda target: read[target].epoch, default=None)
    if latest is not None and read[latest].epoch > state.epoch:
        raise LedgerOutrunError(latest, read[latest], state)
    return {t: mark for t, mark in read.items() if mark.epoch >= state.began and mark.incarnation == asked[t].incarnation}


def _at_its_place(state: LedgerState, row: TableProgress) -> TableProgress:
    return replace(row, checkpoint=max(row.checkpoint, state.checkpoint)) if row.status is TableStatus.RUNNING else row
