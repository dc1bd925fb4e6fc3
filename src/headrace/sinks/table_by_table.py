"""How writers keep to one rule of ``UnitWriter.write``: what nobody foresaw about one table stops that table, and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace.model.containment import contained
from headrace.model.outcome import Problem, WriteOutcome
from headrace.sinks.base import TableChange


def outcomes_of(changes: Iterable[TableChange], write: Callable[[TableChange], WriteOutcome]) -> list[WriteOutcome]:
    """What became of each change by ``write``, which handles one alone and leaves nothing behind that counts where it fails.

    Raises what the changes raise, and errors of Headrace's own.
    """
    outcomes: list[WriteOutcome] = []
    for change in changes:
        problems: list[Problem] = []
        with contained(problems.append, change.table_id):
            outcomes.append(write(change))
        outcomes += (WriteOutcome(change.table_id, problem=problem) for problem in problems)
    return outcomes
