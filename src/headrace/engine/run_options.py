"""How a run goes: how long, from where, which tables, and what it does with what it cannot apply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.engine.keys import DeclaredKeys, fingerprint_of
from headrace.errors import DefinitionError
from headrace.model.ledger import LedgerState
from headrace.model.policy import OnError, SchemaChangePolicies
from headrace.model.table import TableId
from headrace.sinks.dead_letters import DeadLetters

MAX_CUT = 1 << 30
"""How many bytes of files a cut takes at most, where nothing else is said."""


@dataclass(frozen=True)
class RunOptions:
    """How long to run. ``until`` is a TSO; ``poll_interval`` is in seconds; ``start`` is where tables begin (TSO).

    ``until_end`` takes what lies above the last watermark too, when nothing has changed for ``quiet`` seconds, and ends then.
    ``max_cut`` bounds a cut, in bytes as they are stored; 0 does not. ``letters`` is the dead-letter folder, which letters are
    replayed from also when an error stops its table again.
    """

    once: bool = False
    until: int | None = None
    until_end: bool = False
    quiet: float = 10.0
    start: int | None = None
    poll_interval: float = 1.0
    max_cut: int = MAX_CUT
    includes: Callable[[TableId], bool] = field(default=lambda _: True)
    filter_text: str = ""
    policies: SchemaChangePolicies = field(default_factory=SchemaChangePolicies)
    keys: DeclaredKeys = field(default_factory=DeclaredKeys)
    on_error: OnError = OnError.STOP
    letters: DeadLetters | None = None

    @property
    def fingerprint(self) -> str:
        """What the ledger keeps of them, since it may not change without a word."""
        return fingerprint_of(self.filter_text, self.keys)

    def require_going_on(self, known: LedgerState) -> None:
        """Raises DefinitionError where the pipeline, which has this state already, cannot go on so."""
        if self.start is not None and self.start != known.start:
            raise DefinitionError(
                f"The pipeline {known.pipeline} has a ledger that began at {known.start}; --start cannot move it.",
                "Leave --start out to go on, or give the new pipeline a --name of its own.",
            )
        if self.until is not None and self.until < known.attempted:
            raise DefinitionError(
                f"--until {self.until} lies before {known.attempted}, up to where rows may have been written already.",
                "Choose a later time.",
            )
