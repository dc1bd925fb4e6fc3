"""Commit ts for rows of which only the second is known, so that their order with schema changes is that of the offsets.

A schema change has its exact commit ts and is in every partition. A row behind it in the partition, of the same second, gets the
next commit ts; every other row gets the first one of its second, and so counts as before a schema change in it.

If TiCDC is restarted, it sends rows again from a while before. A row of an earlier second shows that. From then on up to the next
schema change, rows count as before the one of their second, since that one comes again if it was later. If nothing shows the
restart, and the same schema change comes again behind rows of its second, it is unknown which of these were before it.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.tso import LOGICAL_BITS

SECOND = 1000 << LOGICAL_BITS
"""A second, as a difference of commit ts (TSO)."""
REPEATED = (
    "the schema change comes again behind rows of its second, because TiCDC was restarted. The protocol does not show which of "
    "these rows were before it. Load the table anew."
)


@dataclass
class OffsetOrder:
    """What is known of a partition at a place in it."""

    statement: int = 0
    """The commit ts (TSO) of the last schema change; 0 for none."""
    is_doubtful: bool = False
    """Whether only rows of its second are behind it, and at least one."""
    went_back: bool = False
    """Whether TiCDC was restarted behind it, as an earlier second has shown."""
    _latest: int = 0
    """The latest second (its first TSO) behind it."""

    def of_row(self, commit_ts: int) -> int:
        """The commit ts of the next row, whose second begins at ``commit_ts`` (TSO)."""
        if commit_ts < max(self._latest, _second(self.statement)):
            self.went_back = True
        self._latest = max(self._latest, commit_ts)
        if commit_ts != _second(self.statement) or self.went_back:
            self.is_doubtful = False
            return commit_ts
        self.is_doubtful = True
        return self.statement + 1

    def take_statement(self, commit_ts: int) -> bool:
        """Passes a schema change with its commit ts (TSO). Returns whether the order of the rows before it is unknown."""
        unknown = self.is_doubtful and commit_ts == self.statement
        self.statement, self.is_doubtful, self.went_back, self._latest = commit_ts, False, False, 0
        return unknown


def _second(commit_ts: int) -> int:
    return commit_ts - commit_ts % SECOND
