"""Implements one rule of ``UnitWriter.write`` for writers: an unexpected error with one table stops that table and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace.model.containment import contained
from headrace.model.outcome import Problem, WriteOutcome
from headrace.sinks.base import TableChange


def outcomes_of(changes: Iterable[TableChange], write: Callable[[TableChange], WriteOutcome]) -> list[WriteOutcome]:
    """The outcome of ``write`` for each change. ``write`` handles one change, and must leave no effect if it fails.

    Raises what the changes raise, and Headrace's own errors.
    """
    outcomes: list[WriteOutcome] = []
    for change in changes:
        problems: list[Problem] = []
        with contained(problems.append, change.table_id):
            outcomes.append(write(change))
        outcomes += (WriteOutcome(change.table_id, problem=problem) for problem in problems)
    return outcomes
