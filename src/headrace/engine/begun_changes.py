"""What happens to a schema change that a run began, or to a person's statement in its place, given later decisions.

A refused change has not run, and waits. A change that may or may not have run is ``UNCLEAR``: it is not retried until a person
decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headrace.errors import HeadraceError
from headrace.model.commands import in_quotes
from headrace.model.containment import unforeseen
from headrace.model.events import SchemaChange
from headrace.model.ledger import Decision, JournalEntry, JournalState, LedgerState, Verdict
from headrace.model.outcome import Notice, Problem, Remedy
from headrace.sinks.metadata_applier import Begun, MetadataApplier, SchemaChangeRefused, SchemaChangeUnclear


def run(applier: MetadataApplier, change: SchemaChange, instead: str | None, *, rolls_back: bool) -> tuple[Notice, ...]:
    """Runs a change, or a person's statement instead, and contains unexpected exceptions: other tables go on.

    ``rolls_back``: whether the target undoes all of it with the cut. Raises SchemaChangeRefused, SchemaChangeUnclear,
    TransientError.
    """
    try:
        return applier.apply_schema_change(change) if instead is None else applier.run_instead(change, instead)
    except (HeadraceError, SchemaChangeRefused):
        raise
    except Exception as error:
        problem = unforeseen(error, change.table_id, change.origin)
        raise (SchemaChangeRefused if rolls_back else SchemaChangeUnclear)(problem) from error


def has_to_ask(change: SchemaChange, entry: JournalEntry, decision: Decision | None, begun: Begun) -> bool:
    """Whether a person must say if a begun change, or the statement in its place, has run, because it cannot be determined.

    A change whose repetition leads to the same state runs again. This does not apply to a person's statement, which runs only once,
    nor before such a statement.
    """
    verdict = decision.verdict if decision else None
    goes_on = begun is Begun.REPEATABLE and verdict is not Verdict.EDIT and entry.statement == change.statement
    return not (begun in (Begun.DONE, Begun.ABSENT) or goes_on or verdict is Verdict.SKIP)


def wants_something_else(change: SchemaChange, entry: JournalEntry, decision: Decision | None) -> bool:
    """Whether a person's statement was begun in place of a change, and the decision is now another statement or the change."""
    if entry.statement == change.statement or decision is None or decision.verdict is Verdict.SKIP:
        return False
    return entry.statement != (decision.statement if decision.verdict is Verdict.EDIT else change.statement)


def ran_before(change: SchemaChange, entry: JournalEntry, decision: Decision | None) -> Notice | None:
    """The notice that something had run before a person decided otherwise; ``None`` if that was what the person decided."""
    if decision is None:
        return None
    at, is_edit = f"the schema change at {change.commit_ts}", decision.verdict is Verdict.EDIT
    if wants_something_else(change, entry, decision):
        message = f"this statement had already run before the decision to {decision.verdict} {at}: {entry.statement}."
    elif is_edit and entry.statement == decision.statement:
        return None
    else:
        left = f" The statement of the decision was not run: {decision.statement}" if is_edit else ""
        message = f"{at} had already run before the decision to {decision.verdict} it: {entry.statement}.{left}"
    return Notice(message, change.table_id)


def skipped(change: SchemaChange, begun: Begun) -> Notice:
    """The notice about a change that does not run."""
    statement = " ".join(change.statement.split()) or "a change of shape"
    before = "" if begun is Begun.ABSENT else " It was begun before that, and may have run, in whole or in part."
    return Notice(f"the schema change at {change.commit_ts} was skipped: {statement}.{before}", change.table_id)


def waiting(entry: JournalEntry, change: SchemaChange) -> JournalEntry:
    """The entry of a change that has not run and waits for a person, or until the obstacle is removed."""
    return replace(entry, statement=change.statement, state=JournalState.WAITING, state_before="")


def unclear(entry: JournalEntry) -> JournalEntry:
    """The entry of a change that may have run, with the statement that was begun: the source's or a person's."""
    return replace(entry, state=JournalState.UNCLEAR, state_before="")


def asks(change: SchemaChange, entry: JournalEntry) -> Problem:
    """The problem that stops a change's tables because it is unclear whether the change, or the statement in its place, ran."""
    statement = " ".join(entry.statement.split())
    if entry.statement == change.statement:
        message = f"a run ended or failed while this statement ran, and Headrace cannot tell whether it took effect: {statement}."
    else:
        message = (
            "this statement ran in place of its schema change, and Headrace cannot tell whether it took effect, in whole or in "
            f"part: {statement}."
        )
    hint = (
        "Look in the target. If all of it took effect, or you did the rest by hand, skip the change; otherwise undo what took "
        "effect, then approve or edit the change."
    )
    hint = f"{hint} {decision_hint(change, Verdict)}"
    return Problem(change.table_id, message, place=change.origin, hint=hint, remedy=Remedy.DECISION)


def unused(state: LedgerState, outdated: Iterable[str]) -> list[Notice]:
    """Notices about decisions on changes that the source has replaced or removed."""
    decided = [(state.decisions[identity], state.journal.get(identity)) for identity in outdated if identity in state.decisions]
    return [
        Notice(
            f"the decision to {decision.verdict} {decision.identity} was not used: the source now has another schema change in its "
            "place, or none.",
            entry.tables[0] if entry is not None and entry.tables else None,
        )
        for decision, entry in decided
    ]


def decision_hint(change: SchemaChange, verdicts: Iterable[Verdict]) -> str:
    """The hint how a person decides about the change."""
    return f"Decide with headrace ddl {'|'.join(verdicts)} {in_quotes(change.identity)}."
