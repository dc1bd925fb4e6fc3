"""Where one table's things are handled, whatever goes wrong is that table's problem, and the run of all others goes on.

The rule, for the few places that handle one file or one table (they call :func:`contained`): Headrace's own errors pass, since
they say by themselves whom they stop, and so does what is no ``Exception`` (an interrupt, an exit, the crash of a test).
Everything else, ``RecursionError`` and ``MemoryError`` included, is something that nobody foresaw about this file.
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
    """The problem of a table of which something could not be handled; the message names the place in Headrace that failed."""
    if isinstance(error, MemoryError):
        return Problem(table_id, f"There is not enough memory to handle it{_place(error)}.", place, hint=_MORE_MEMORY)
    if isinstance(error, RecursionError):
        return Problem(table_id, f"It is nested too deeply to be handled{_place(error)}.", place, hint=REPORT)
    text = " ".join(str(error).split())
    text = text if len(text) <= _TEXT_LIMIT else f"{text[:_TEXT_LIMIT]}…"
    told = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return Problem(table_id, f"Headrace failed while handling it{_place(error)}: {told}.", place, hint=REPORT)


class contained:  # noqa: N801 -- reads as what it is used like
    """Ends its block at an exception that nobody foresaw, and gives ``tell`` the problem that the table then has."""

    def __init__(self, tell: Callable[[Problem], object], table_id: TableId, place: SourcePlace | None = None) -> None:
        self._tell, self._table_id, self._at = tell, table_id, place

    def __enter__(self) -> None:
        """Nothing: what is told goes to ``tell``."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None) -> bool:
        if not isinstance(error, Exception) or isinstance(error, HeadraceError):
            return False
        self._tell(unforeseen(error, self._table_id, self._at))
        return True


def _place(error: Exception) -> str:
    """`` (ddl/partitions.py, line 12)``: the innermost of Headrace's own lines."""
    frames = ((PurePath(frame.f_code.co_filename), line) for frame, line in traceback.walk_tb(error.__traceback__))
    own = [(path.relative_to(_ROOT).as_posix(), line) for path, line in frames if path.is_relative_to(_ROOT)]
    return f" ({own[-1][0]}, line {own[-1][1]})" if own else ""
