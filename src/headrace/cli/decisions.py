"""``headrace ddl``: shows the journal of schema changes, and records decisions about those that wait. Starts no JVM."""

from __future__ import annotations

from headrace.cli.ledgers import opened, state_of
from headrace.cli.output import Output
from headrace.errors import DefinitionError
from headrace.model.ledger import Decision, JournalEntry, JournalState, LedgerState, Verdict
from headrace.model.tso import format_tso
from headrace.pipeline.definition import Settings

_SETTLED_SHOWN = 20


def show_journal(settings: Settings, whole: bool, output: Output) -> int:
    """Prints the changes that wait, each with its reasons, and the newest changes that are done (``whole``: all of them).

    Raises DefinitionError.
    """
    with opened(settings) as (_, ledger):
        state = state_of(ledger, settings)
    entries = sorted(state.journal.values(), key=lambda entry: (entry.commit_ts, entry.identity))
    open_ones = [entry for entry in entries if not entry.state.is_settled]
    settled = [entry for entry in entries if entry.state.is_settled]
    shown = settled if whole else settled[-_SETTLED_SHOWN:]
    if output.is_json:
        for entry in (*shown, *open_ones):
            output.event("schema_change", **_fields(entry, state))
        return 0
    rows = [(_when(entry), _tables(entry), str(entry.state), _statement(entry)) for entry in shown]
    output.table("done", ("at", "tables", "state", "statement"), rows)
    for entry in open_ones:
        output.line(f"{entry.state}: {entry.identity}")
        output.line(f"  at {_when(entry)}, {_tables(entry)}: {_statement(entry)}")
        for reason in _reasons(entry, state):
            output.line(f"  {reason}")
        if entry.identity in state.decisions:
            output.line(f"  decided: {state.decisions[entry.identity].verdict}; a running pipeline picks it up within seconds")
    if not open_ones:
        output.line("no schema change waits")
    return 0


def decide(settings: Settings, change: str, verdict: Verdict, statement: str, output: Output) -> int:
    """Records a decision about the waiting schema change whose identity is, or begins with, ``change``. Raises DefinitionError."""
    with opened(settings) as (_, ledger):
        state = state_of(ledger, settings)
        entry = _find(state, change)
        if entry.state is JournalState.RUNNING:
            raise DefinitionError(
                f"The schema change {entry.identity} has been running in the target since {entry.since}.",
                "If it must not go on, end it in the target. The run then reports that it was refused, and you can "
                "decide about it.",
            )
        ledger.decide(state.pipeline, Decision(entry.identity, verdict, statement))
    if output.is_json:
        output.event("decision", change=entry.identity, verdict=str(verdict), statement=statement)
    else:
        output.line(f"{verdict}: {entry.identity}")
        output.line(f"  at {_when(entry)}, {_tables(entry)}: {_statement(entry)}")
        output.line("a running pipeline picks it up within seconds; otherwise the next run does")
    return 0


def _find(state: LedgerState, change: str) -> JournalEntry:
    waiting = {k: e for k, e in state.journal.items() if not e.state.is_settled}
    if not change.strip():
        # A shell passes an empty text for a variable that is not set. It must not select whatever change waits.
        raise DefinitionError("The name of the change is empty.", f"Schema changes that wait: {', '.join(waiting) or 'none'}.")
    found = [waiting[change]] if change in waiting else [e for k, e in waiting.items() if k.startswith(change)]
    if len(found) == 1:
        return found[0]
    if found:
        raise DefinitionError(
            f"Several changes begin with {change!r}: {', '.join(e.identity for e in found)}.", "Write more characters."
        )
    if any(identity.startswith(change) for identity in state.journal):
        raise DefinitionError(f"The schema change {change} is done already.", "See headrace ddl list.")
    known = ", ".join(waiting) or "none"
    raise DefinitionError(f"No schema change {change!r} waits.", f"Schema changes that wait: {known}.")


def _fields(entry: JournalEntry, state: LedgerState) -> dict[str, object]:
    decision = state.decisions.get(entry.identity)
    return {
        "change": entry.identity,
        "commit_ts": entry.commit_ts,
        "time": _when(entry),
        "tables": [str(table) for table in entry.tables],
        "state": str(entry.state),
        "statement": entry.statement,
        "running_since": entry.since or None,
        "reasons": _reasons(entry, state),
        "decision": str(decision.verdict) if decision else None,
    }


def _reasons(entry: JournalEntry, state: LedgerState) -> list[str]:
    """Why the change's tables stopped, each reason once."""
    if entry.state.is_settled:
        return []
    rows = (state.tables.get(table_id) for table_id in entry.tables)
    return list(dict.fromkeys(row.reason for row in rows if row is not None and row.reason))


def _when(entry: JournalEntry) -> str:
    return format_tso(entry.commit_ts)


def _tables(entry: JournalEntry) -> str:
    return ", ".join(map(str, entry.tables))


def _statement(entry: JournalEntry) -> str:
    return " ".join(entry.statement.split()) or "(shape only)"
