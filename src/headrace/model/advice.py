"""Advice on source settings that make changes more precise. The source words the advice, the engine adds it to messages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SourceAdvice:
    """Whole sentences for hints, in the source's own terms. A field is empty if the source has no such setting."""

    exact_commit_ts: str = ""
    """How to make rows carry their exact commit ts."""
    old_rows: str = ""
    """How to make updates carry the old row."""
    whole_deletes: str = ""
    """How to make deletions carry more than the key."""
    one_writer: str = ""
    """How to have the rows of a table written by one writer, so that repeats can be distinguished from equal rows."""


NO_ADVICE = SourceAdvice()
"""For a source that has none of these settings."""
