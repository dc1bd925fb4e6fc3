"""What a run holds of a pipeline's record in a SQL ledger."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Claim:
    """A run's hold on a pipeline's record: its epoch, a token that no other run has, and the number of its last step.

    Each step must find these three in the ledger, and writes the next number.
    """

    pipeline: str
    epoch: int
    token: str
    step: int = 0

    @property
    def following(self) -> Claim:
        """The claim after one more step."""
        return replace(self, step=self.step + 1)


@dataclass(frozen=True)
class Held:
    """What a pipeline's row records about the run that wrote it last, and its current attempt."""

    claim: Claim
    attempt: int
