"""The stopped tables that a run has reported, with the text of each report, so that each is reported once."""

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
    """The last report about each stopped table."""

    sentences: Mapping[TableId, str] = field(default_factory=dict)

    def news(self, problems: Mapping[TableId, Problem]) -> list[Problem]:
        """The problems of a cut that were not reported yet, or with a different text."""
        return [problem for table_id, problem in problems.items() if self.sentences.get(table_id) != problem.sentence()]

    def told(self, problems: Mapping[TableId, Problem]) -> ToldStops:
        """The state after these were reported."""
        return ToldStops({**self.sentences, **{t: problem.sentence() for t, problem in problems.items()}})

    def resumed(self, before: LedgerState, after: LedgerState) -> list[TableId]:
        """Tables that run after a cut and were stopped before it, or reported as stopped."""
        earlier = {t for t, own in before.tables.items() if own.status.is_stopped or t in self.sentences}
        return [t for t, own in after.tables.items() if t in earlier and own.status in _GOES_ON]

    def without(self, resumed: Collection[TableId]) -> ToldStops:
        """The state after these tables were reported as resumed. If they stop again, that is reported in any case."""
        return ToldStops({t: sentence for t, sentence in self.sentences.items() if t not in resumed})

    def telling(
        self, observer: Observer, problems: Mapping[TableId, Problem], before: LedgerState, after: LedgerState
    ) -> ToldStops:
        """After a cut: reports new problems and the tables that have resumed."""
        for problem in self.news(problems):
            observer.table_stopped(problem)
        told = self.told(problems)
        resumed = told.resumed(before, after)
        for table_id in resumed:
            observer.table_resumed(table_id)
        return told.without(resumed)
