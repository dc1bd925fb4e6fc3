"""The error of a pipeline whose start lies before records that retention has removed."""

from __future__ import annotations

from headrace.errors import SourceLostError
from headrace.model.tso import tso_and_time

_HINT = "Load the tables as of a later time and begin there, or set allow-gap=true in the URI if nothing is missing."


def lost_start(what: str, end: int, oldest: tuple[int, int] | None, after: int) -> SourceLostError:
    """The error for a topic or a partition (``what``) that has lost records and may have had some above ``after`` (TSO).

    ``oldest`` has the offset and the commit ts (TSO) of its first record; ``None`` if it has none. ``end`` is its end offset.
    """
    begins = f"the pipeline begins at {tso_and_time(after)}"
    if oldest is None:
        why = f"{what} has no record any more before its end (offset {end}), and {begins}: what was committed since then"
    else:
        offset, commit_ts = oldest
        why = f"{what} begins at {tso_and_time(commit_ts)} (offset {offset}), and {begins}: what was committed in between"
    return SourceLostError(f"{why} may not be kept any more.", _HINT)
