"""Unique keys that the target would keep as they are when a schema change is skipped, though the source drops or changes them.

The source then has rows side by side that the target holds for one: each would push out the one before it, without a word. So
neither a policy nor a person skips such a change while the key is there. Another type or collation of a column of the key does
the same: ``1`` and ``01`` are two texts, and one number. Who runs something else in its place, or loads the table anew, is told.
"""

from __future__ import annotations

from headrace.engine.journal import of_former_lives
from headrace.model.commands import in_quotes
from headrace.model.events import SchemaChange
from headrace.model.ledger import LedgerState
from headrace.model.outcome import Notice, Problem, Remedy
from headrace.sinks.metadata_applier import MetadataApplier


def kept_unique_key(change: SchemaChange, state: LedgerState, applier: MetadataApplier) -> Problem | None:
    """Why a change cannot be skipped yet; ``None`` if it can. Raises TransientError.

    A change that was found late may be one of a table that is gone since. What has its name now may well have the key.
    """
    key = _kept(change, state, applier)
    if not key:
        return None
    statement = _shown(change)
    message = (
        f"its schema change cannot be skipped: {statement}. The source drops or changes the unique key {key}. The target would "
        "keep it, and later rows could replace each other."
    )
    # What a person said of the change counts before the policy.
    policy = "" if change.identity in state.decisions else ", or take its kind out of --schema-changes"
    hint = (
        f"Let it run (headrace ddl approve {in_quotes(change.identity)}{policy}), or drop the key in the target by hand and then "
        f"run headrace ddl skip {in_quotes(change.identity)}."
    )
    return Problem(change.table_id, message, place=change.origin, hint=hint, remedy=Remedy.DECISION)


def left_unique_key(change: SchemaChange, state: LedgerState, applier: MetadataApplier) -> Notice | None:
    """What to say when a change did not run as it is, by a person's word, and the key is there. Raises TransientError."""
    key = _kept(change, state, applier)
    if not key:
        return None
    message = (
        f"the target has the unique key {key}, which the source drops or changes: {_shown(change)}. Unless the key is now as in "
        "the source, drop it in the target: otherwise later rows could replace each other."
    )
    return Notice(message, change.table_id)


def _kept(change: SchemaChange, state: LedgerState, applier: MetadataApplier) -> str:
    return "" if of_former_lives(state, change) else applier.keeps_unique(change)


def _shown(change: SchemaChange) -> str:
    return " ".join(change.statement.split()) or "a change of shape"
