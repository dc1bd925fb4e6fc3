"""How exact the commit timestamps of a source's rows are. The values are printed for people."""

from __future__ import annotations

from enum import StrEnum


class CommitTsPrecision(StrEnum):
    """How exactly rows carry the commit ts of their transaction."""

    EXACT = "exact"
    """Each row has its exact commit ts. Within one commit ts and for one key, deletes come before upserts."""

    MILLISECOND = "millisecond"
    """Rows have the first commit ts of the millisecond. Within the millisecond the source's order decides."""

    SECOND = "second"
    """Rows have the first commit ts of the second, or one behind a schema change in it. Else the source's order decides."""

    NONE = "none"
    """Rows have no commit ts. A cut is a set of splits in the source's order, and the target is consistent only eventually."""

    @property
    def is_exact(self) -> bool:
        return self is CommitTsPrecision.EXACT

    @property
    def has_commit_ts(self) -> bool:
        """Whether rows have a commit ts, exact or not."""
        return self is not CommitTsPrecision.NONE
