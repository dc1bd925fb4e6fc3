"""What is known of the commit timestamps of a source's rows. The words are those that people read."""

from __future__ import annotations

from enum import StrEnum


class CommitTsPrecision(StrEnum):
    """How exactly rows carry the commit ts of their transaction."""

    EXACT = "exact"
    """Each row has it. Within one commit ts and for one key deletes come before upserts."""

    MILLISECOND = "millisecond"
    """Rows have the first commit ts of its millisecond. Within that the source's order decides."""

    NONE = "none"
    """Rows have none: a cut is a set of splits in the source's order, and the target consistent only eventually."""

    @property
    def is_exact(self) -> bool:
        return self is CommitTsPrecision.EXACT

    @property
    def has_commit_ts(self) -> bool:
        """Whether rows can be placed in time at all."""
        return self is not CommitTsPrecision.NONE
