"""The options of a run: how long, from where, which tables, and what happens to records that cannot be applied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.engine.keys import DeclaredKeys, fingerprint_of
from headrace.errors import DefinitionError
from headrace.model.ledger import LedgerState
from headrace.model.policy import OnError, SchemaChangePolicies
from headrace.model.stream import GivenDefinitions
from headrace.model.table import TableId
from headrace.sinks.dead_letters import DeadLetters

MAX_CUT = 1 << 30
"""The default maximum of a cut, in bytes of files."""


@dataclass(frozen=True)
class RunOptions:
    """How a run behaves."""

    once: bool = False
    until: int | None = None
    """TSO."""
    until_end: bool = False
    """Also applies data above the last watermark once nothing has changed for ``quiet`` seconds, and then ends."""
    quiet: float = 10.0
    start: int | None = None
    """Where tables begin (TSO)."""
    poll_interval: float = 1.0
    """Seconds."""
    max_cut: int = MAX_CUT
    """The maximum of a cut, in bytes as they are stored; 0 for no limit."""
    given: Callable[[int], GivenDefinitions] | None = None
    """The definitions of tables as they were at a commit ts (TSO), for a stream that does not have them."""
    includes: Callable[[TableId], bool] = field(default=lambda _: True)
    filter_text: str = ""
    policies: SchemaChangePolicies = field(default_factory=SchemaChangePolicies)
    keys: DeclaredKeys = field(default_factory=DeclaredKeys)
    on_error: OnError = OnError.STOP
    letters: DeadLetters | None = None
    """The dead-letter folder. Letters are also replayed from it after ``on_error`` was set back to STOP."""

    @property
    def fingerprint(self) -> str:
        """The options that the ledger keeps, since they must not change unnoticed."""
        return fingerprint_of(self.filter_text, self.keys)

    def require_going_on(self, known: LedgerState) -> None:
        """Raises DefinitionError if the pipeline cannot continue from this state with these options."""
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
