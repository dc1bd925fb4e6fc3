"""How far the events of a table are complete."""

from __future__ import annotations

from dataclasses import dataclass

WHOLE = (1 << 64) - 1
"""The batch of a plain resolved ts: the whole transactions of that commit ts."""


@dataclass(frozen=True, order=True)
class ResolvedTs:
    """Up to where the events of a table have been given. Ordered by ``ts`` (TSO), then by ``batch``.

    Plain (``ResolvedTs(ts)``): every event with a commit ts up to ``ts``. Batch (``ResolvedTs(ts, k)``, k from 1): every event with
    a commit ts below ``ts``, and the first k pieces of the transaction at ``ts``, which is too large to wait for. A plain resolved
    ts is greater than every batch of its ts. (TiCDC, ``model.ResolvedTs``.)
    """

    ts: int
    batch: int = WHOLE

    @property
    def is_batch(self) -> bool:
        return self.batch != WHOLE

    @property
    def mark(self) -> int:
        """The TSO up to which all transactions are whole. Only this may leave the table sink as its checkpoint."""
        return self.ts - 1 if self.is_batch else self.ts

    def __str__(self) -> str:
        return f"{self.ts}, batch {self.batch}" if self.is_batch else str(self.ts)
