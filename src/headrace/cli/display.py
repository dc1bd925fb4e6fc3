"""What ``headrace run`` shows: an observer of the run that writes to the command's output."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from headrace.cli.output import Output
from headrace.cli.progress import Progress, size_text
from headrace.model.cut import Cut
from headrace.model.ledger import CutRecord
from headrace.model.outcome import Notice, Problem
from headrace.model.place import fields_of
from headrace.model.table import TableId


class RunDisplay:
    """Shows a run. Use it as a context manager: at its end the moving line of a terminal disappears."""

    def __init__(self, output: Output) -> None:
        self.reported: set[TableId] = set()
        """The tables that the run reported as stopped."""
        self._output = output
        self._context: AbstractContextManager[Progress] = output.progress()
        self._progress: Progress | None = None
        self._files = 0
        self._counts = self._earlier = (0, 0)
        self._applied = False

    def __enter__(self) -> Self:
        self._progress = self._context.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._context.__exit__(kind, error, traceback)
        if error is None and not self._applied:
            self._output.line("nothing new was applied")

    @property
    def _shown(self) -> Progress:
        assert self._progress is not None, "the display is used inside its context"
        return self._progress

    def phase(self, text: str) -> None:
        self._shown.phase(text)

    def cut_started(self, cut: Cut) -> None:
        self._files = sum(len(r.splits) for r in cut.rounds)
        self._counts = self._earlier = (0, 0)
        if cut.rounds:
            self._shown.cut_started(self._files, cut.hi, next((s.place.noun for r in cut.rounds for s in r.splits), "file"))

    def cut_finished(self, record: CutRecord, watermark: int, left_bytes: int = 0) -> None:
        if record.files or record.schema_changes:
            self._applied = True
            self._shown.cut_finished(record)
        else:
            self._shown.idle("nothing new", record.hi)
        if left_bytes:
            self._shown.phase(f"catching up in parts, {size_text(left_bytes)} of files to go")

    def caught_up(self, checkpoint: int) -> None:
        self._shown.idle("following", checkpoint)

    def table_stopped(self, problem: Problem) -> None:
        self.reported.add(problem.table_id)
        self._output.error(problem.sentence())
        self._output.event("table_stopped", table=str(problem.table_id), reason=problem.sentence(), **fields_of(problem.place))

    def table_resumed(self, table_id: TableId) -> None:
        # A database stops too, when a schema change of the database itself waits.
        self._output.line(f"{'database' if table_id.is_database else 'table'} {table_id} goes on")

    def notice(self, notice: Notice) -> None:
        self._output.warning(notice.sentence())

    def trying_again(self, reason: str, seconds: float) -> None:
        self._output.warning(f"{reason} Trying again in {seconds:.0f} s.")

    def tick(self, files: int, rows: int) -> None:
        """The counts start at zero with each round of a cut, but the display adds them up over the cut."""
        if (files, rows) < self._counts:
            self._earlier = (self._earlier[0] + self._counts[0], self._earlier[1] + self._counts[1])
        self._counts = (files, rows)
        if self._files:
            self._shown.advance(min(self._earlier[0] + files, self._files), self._earlier[1] + rows)
