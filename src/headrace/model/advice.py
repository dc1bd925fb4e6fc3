"""What a person can change at a source so that it tells more. The source knows the words, the engine where they belong."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SourceAdvice:
    """Whole sentences for hints, in the source's own terms; an empty one where nothing can be changed."""

    exact_commit_ts: str = ""
    """How rows come to carry their exact commit ts."""
    old_rows: str = ""
    """How updates come to bring the row before them."""
    whole_deletes: str = ""
    """How deletions come to bring more than the key."""
    one_writer: str = ""
    """How the rows of a table come from one writer, so that repeats can be told from equal rows."""


NO_ADVICE = SourceAdvice()
"""Of a source that has no settings for any of it."""
