"""Contains unexpected exceptions: a failure while one table is handled becomes that table's problem, and other tables go on.

The few places that handle one file or one table use :func:`contained`. It lets Headrace's own errors pass, because their class
determines what they stop. It also lets everything pass that is not an ``Exception`` (an interrupt, an exit, the crash of a test).
Everything else, including ``RecursionError`` and ``MemoryError``, is an unexpected failure with this file.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import PurePath
from types import TracebackType

from headrace.errors import HeadraceError
from headrace.model.outcome import Problem
from headrace.model.place import SourcePlace
from headrace.model.table import TableId

REPORT = "This is a bug of Headrace: please report it, with this message and the file."
_MORE_MEMORY = "If the file is as it should be, give the process more memory."
_TEXT_LIMIT = 200
_ROOT = PurePath(__file__).parents[1]


def unforeseen(error: Exception, table_id: TableId, place: SourcePlace | None = None) -> Problem:
    """The problem for a table with an unexpected exception. The message names the line of Headrace that failed."""
    if isinstance(error, MemoryError):
        return Problem(table_id, f"There is not enough memory to handle it{_place(error)}.", place, hint=_MORE_MEMORY)
    if isinstance(error, RecursionError):
        return Problem(table_id, f"It is nested too deeply to be handled{_place(error)}.", place, hint=REPORT)
    text = " ".join(str(error).split())
    text = text if len(text) <= _TEXT_LIMIT else f"{text[:_TEXT_LIMIT]}…"
    told = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return Problem(table_id, f"Headrace failed while handling it{_place(error)}: {told}.", place, hint=REPORT)


class contained:  # noqa: N801 -- used like a function in a with statement
    """A context manager that suppresses an unexpected exception, and calls ``tell`` with the resulting problem of the table."""

    def __init__(self, tell: Callable[[Problem], object], table_id: TableId, place: SourcePlace | None = None) -> None:
        self._tell, self._table_id, self._at = tell, table_id, place

    def __enter__(self) -> None:
        """Returns nothing: problems go to ``tell``."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None) -> bool:
        if not isinstance(error, Exception) or isinstance(error, HeadraceError):
            return False
        self._tell(unforeseen(error, self._table_id, self._at))
        return True


def _place(error: Exception) -> str:
    """The innermost line of Headrace in the traceback: `` (ddl/partitions.py, line 12)``; empty if there is none."""
    frames = ((PurePath(frame.f_code.co_filename), line) for frame, line in traceback.walk_tb(error.__traceback__))
    own = [(path.relative_to(_ROOT).as_posix(), line) for path, line in frames if path.is_relative_to(_ROOT)]
    return f" ({own[-1][0]}, line {own[-1][1]})" if own else ""
