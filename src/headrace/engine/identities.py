"""The identity under which the journal has a schema change, and begun changes whose place another change has taken. Pure.

An identity stands for one statement and one shape (``SchemaChange.identity``). But a completed change stays completed even if its
shape has changed since, and the journals of older versions have identities of another form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.engine.begun_changes import decision_hint
from headrace.model.events import SchemaChange
from headrace.model.ledger import JournalEntry, JournalState, LedgerState, Verdict
from headrace.model.offer import Offer
from headrace.model.outcome import Problem, Remedy


def as_journalled(offer: Offer, state: LedgerState) -> Offer:
    """The offer, in which schema changes have the identities that the journal has for them."""
    if not state.journal:
        return offer
    changes = tuple(recognised(change, state) for change in offer.schema_changes)
    return replace(offer, schema_changes=changes, unread=tuple(recognised(change, state) for change in offer.unread))


def recognised(change: SchemaChange, state: LedgerState) -> SchemaChange:
    """The change with the identity that the journal has for it."""
    entries = state.journal_by_place.get(change.place, ())
    if not entries or change.known_as or any(entry.identity == change.identity for entry in entries):
        return change
    named = next((entry.identity for entry in entries if _is_of(entry, change, state)), "")
    return replace(change, named=named) if named else change


def _is_of(entry: JournalEntry, change: SchemaChange, state: LedgerState) -> bool:
    """Whether an entry at the change's place belongs to the change, though its identity differs.

    For a waiting entry with an identity of the old form, people have seen the statement. Without a statement they saw nothing: such
    an entry counts only for a decision that was made before there were other forms.
    """
    if entry.digest == change.digest:
        return True  # its place was written in the format of older versions
    is_former = entry.digest == change.former_digest
    if entry.state.is_settled:
        return is_former or entry.statement == change.statement
    if entry.state is JournalState.WAITING:
        was_shown = bool(change.statement) or entry.identity in state.decisions
        return is_former and was_shown and entry.statement == change.statement
    return is_former


def replaced_while_begun(state: LedgerState, changes: Iterable[SchemaChange]) -> Mapping[str, JournalEntry]:
    """Begun changes that are not among ``changes`` any more, by their places."""
    begun = [entry for entry in state.journal.values() if entry.state.may_have_run]
    told = {change.identity for change in changes} if begun else frozenset()
    return {entry.place: entry for entry in begun if entry.identity not in told}


def asks_about_former(change: SchemaChange, entry: JournalEntry) -> Problem:
    """The problem that stops the tables of a change in whose place another change was begun."""
    now, then = (" ".join(text.split()) or "a change of shape" for text in (change.statement, entry.statement))
    return Problem(
        change.table_id,
        f"another schema change at {change.commit_ts} was begun and may have run: {then}. The source now has this one in its "
        f"place: {now}.",
        place=change.origin,
        hint=f"Look in the target whether the former one ran, and undo what took effect. {decision_hint(change, Verdict)}",
        remedy=Remedy.DECISION,
    )
