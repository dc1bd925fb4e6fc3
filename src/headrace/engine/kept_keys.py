"""Unique keys that stay in the target when a schema change is skipped, though the source drops or changes them.

The source may then hold two rows that are equal in the target's key: each would silently replace the other. So neither a policy nor
a person can skip such a change as long as the key exists. A change of a key column's type or collation has the same effect: ``1``
and ``01`` are two texts, but one number. A person who runs another statement instead, or loads the table again, gets a notice.
"""

from __future__ import annotations

from headrace.engine.journal import of_former_lives
from headrace.model.commands import in_quotes
from headrace.model.events import SchemaChange
from headrace.model.ledger import LedgerState
from headrace.model.outcome import Notice, Problem, Remedy
from headrace.sinks.metadata_applier import MetadataApplier


def kept_unique_key(change: SchemaChange, state: LedgerState, applier: MetadataApplier) -> Problem | None:
    """The problem if a change cannot be skipped yet; ``None`` if it can. Raises TransientError.

    A change that was found late may belong to a table that is gone. The table that has its name now may legitimately have the key.
    """
    key = _kept(change, state, applier)
    if not key:
        return None
    statement = _shown(change)
    message = (
        f"its schema change cannot be skipped: {statement}. The source drops or changes the unique key {key}. The target would "
        "keep it, and later rows could replace each other."
    )
    # A person's decision about the change takes precedence over the policy.
    policy = "" if change.identity in state.decisions else ", or take its kind out of --schema-changes"
    hint = (
        f"Let it run (headrace ddl approve {in_quotes(change.identity)}{policy}), or drop the key in the target by hand and then "
        f"run headrace ddl skip {in_quotes(change.identity)}."
    )
    return Problem(change.table_id, message, place=change.origin, hint=hint, remedy=Remedy.DECISION)


def left_unique_key(change: SchemaChange, state: LedgerState, applier: MetadataApplier) -> Notice | None:
    """The notice if the key is still there after a person decided not to run the change as it is. Raises TransientError."""
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
