"""Which stopped tables a run has told of, and with which words, so that it tells each once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from headrace.engine.observer import Observer
from headrace.model.ledger import LedgerState, TableStatus
from headrace.model.outcome import Problem
from headrace.model.table import TableId

_GOES_ON = (TableStatus.RUNNING, TableStatus.CATCHING_UP)


@dataclass(frozen=True)
class ToldStops:
    """What was told last of each table that is stopped."""

    sentences: Mapping[TableId, str] = field(default_factory=dict)

    def news(self, problems: Mapping[TableId, Problem]) -> list[Problem]:
        """The problems of a cut that were not told, or that were told with other words."""
        return [problem for table_id, problem in problems.items() if self.sentences.get(table_id) != problem.sentence()]

    def told(self, problems: Mapping[TableId, Problem]) -> ToldStops:
        """After these were told."""
        return ToldStops({**self.sentences, **{t: problem.sentence() for t, problem in problems.items()}})

    def resumed(self, before: LedgerState, after: LedgerState) -> list[TableId]:
        """The tables that go on after a cut: they were stopped before it, or were told of."""
        earlier = {t for t, own in before.tables.items() if own.status.is_stopped or t in self.sentences}
        return [t for t, own in after.tables.items() if t in earlier and own.status in _GOES_ON]

    def without(self, resumed: Collection[TableId]) -> ToldStops:
        """After it was told that these go on: when they stop again, that is told with whatever words."""
        return ToldStops({t: sentence for t, sentence in self.sentences.items() if t not in resumed})

    def telling(
        self, observer: Observer, problems: Mapping[TableId, Problem], before: LedgerState, after: LedgerState
    ) -> ToldStops:
        """After a cut: tells what is new, and which tables go on."""
        for problem in self.news(problems):
            observer.table_stopped(problem)
        told = self.told(problems)
        resumed = told.resumed(before, after)
        for table_id in resumed:
            observer.table_resumed(table_id)
        return told.without(resumed)
