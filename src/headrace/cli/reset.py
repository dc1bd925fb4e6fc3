"""``headrace reset``: removes the ledger's record of a pipeline, or of one of its tables. Starts no JVM."""

from __future__ import annotations

from collections.abc import Callable

from headrace.cli.ledgers import opened, state_of
from headrace.cli.output import Output
from headrace.cli.progress import counted
from headrace.cli.stopped_tables import known_table, new_request
from headrace.errors import DefinitionError, LedgerUnreadableError
from headrace.model.commands import word
from headrace.model.ledger import JournalState, LedgerState, RequestKind, TableStatus
from headrace.model.tso import format_tso
from headrace.pipeline.definition import Settings
from headrace.sinks.table_marks import TableMark

Ask = Callable[[str, str], bool] | None
"""Asks a person, who has to type the name, for confirmation. ``None``: it is already confirmed."""


def reset_pipeline(settings: Settings, ask: Ask, output: Output) -> int:
    """Removes the ledger's whole record of the pipeline. Raises DefinitionError if there is no pipeline of that name."""
    name = settings.name or "default"
    with opened(settings) as (sink, ledger):
        state = None
        try:
            state = ledger.peek(name)
            is_there, amount = state is not None, _amount(state)
        except LedgerUnreadableError:
            is_there, amount = True, ", though none of it can be read"
        if state is not None and (running := [e for e in state.journal.values() if e.state is JournalState.RUNNING]):
            raise DefinitionError(
                f"The schema change {running[0].identity} has been running in the target since {running[0].since}. A pipeline that "
                "begins anew would run it a second time.",
                "Reset when a run has recorded its end. If it must not go on, end it in the target.",
            )
        what = f"Everything that is recorded of pipeline {name!r} will be removed{amount}."
        if is_there and ask is not None and not ask(what, name):
            output.line("nothing was removed")
            return 0
        # Leftovers of an interrupted removal, without a record, are removed without confirmation.
        if not ledger.reset(name):
            state_of(ledger, settings)
        if state is not None and sink.table_marks is not None:
            # A running run does not see the reset before its next step, and it has the last epoch. The marks must shut it out.
            sink.table_marks.put({row.pair[1]: TableMark.of_no_life(name, state.epoch) for row in state.rows})
        place = sink.identity if sink.ledger is not None else settings.ledger_place
    if output.is_json:
        output.event("reset", pipeline=name, table=None)
        return 0
    output.line(f"pipeline {name}: forgotten; {place} holds no record of it any more")
    output.line("tables and rows in the target stay, and so do dead letters in their folder")
    output.line(
        "the next run under this name begins with the changefeed's first file: drop the tables first, or load all of them as of "
        "one commit ts and pass that as --start"
    )
    return 0


def reset_table(settings: Settings, table_name: str, ask: Ask, output: Output) -> int:
    """Requests that the table begins anew, with its CREATE. Raises DefinitionError."""
    with opened(settings) as (_, ledger):
        state = state_of(ledger, settings)
        own = known_table(state, table_name)
        if own.status in (TableStatus.GONE, TableStatus.GONE_WAITING, TableStatus.EXCLUDED):
            raise DefinitionError(f"{own.table_id} cannot begin anew: it is {own.status}.")
        what = f"All that is recorded of {own.table_id} will be removed, and its changes applied from the first one on."
        if ask is not None and not ask(what, str(own.table_id)):
            output.line("nothing was requested")
            return 0
        request = new_request(state, own.table_id, RequestKind.RESET, since=state.table_checkpoint(own.table_id))
        ledger.request(state.pipeline, request)
    if output.is_json:
        output.event("reset", pipeline=state.pipeline, table=str(own.table_id))
        return 0
    output.line(f"{own.table_id}: it is reset, and begins anew")
    output.line("a running pipeline picks this up within seconds; otherwise the next run does when it starts")
    if own.incarnation > state.start or not state.start:
        output.line(
            "drop the table in the target first: if it is still there, the run stops the table instead of adding rows to it"
        )
    else:
        output.line(
            f"it existed when the pipeline began, at {format_tso(state.start)}: the run holds it at that time. Load it as of that "
            f"time, and run headrace table resync {word(own.table_id)} --at {state.start}"
        )
    return 0


def _amount(state: LedgerState | None) -> str:
    if state is None:
        return ""
    tables, changes = counted(len(state.tables), "table"), counted(len(state.journal), "schema change")
    return f": its checkpoint {state.checkpoint}, {tables}, {changes}"
