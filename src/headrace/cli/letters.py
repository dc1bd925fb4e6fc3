"""``headrace replay-dead-letters``: leaves a request for each table that has dead letters. Starts no JVM."""

from __future__ import annotations

from collections.abc import Callable

from headrace.cli.ledgers import opened, state_of
from headrace.cli.output import Output
from headrace.cli.stopped_tables import new_request, refuse_two_tables
from headrace.errors import DefinitionError
from headrace.model.ledger import LedgerState, RequestKind
from headrace.model.table import TableId
from headrace.pipeline.definition import Settings


def replay_letters(settings: Settings, only: str | None, output: Output) -> int:
    """Requests that the run applies the dead letters of tables again. Raises DefinitionError."""
    return _leave(settings, only, RequestKind.REPLAY, lambda _: True, output)


def discard_letters(settings: Settings, only: str | None, ask: Callable[[str, str], bool] | None, output: Output) -> int:
    """Requests that the run removes dead letters without applying them. Raises DefinitionError."""

    def is_sure(table_id: TableId) -> bool:
        return ask is None or ask(f"The dead letters of {table_id} will be removed without being applied.", str(table_id))

    return _leave(settings, only, RequestKind.DISCARD, is_sure, output)


def _leave(settings: Settings, only: str | None, kind: RequestKind, is_sure: Callable[[TableId], bool], output: Output) -> int:
    with opened(settings) as (_, ledger):
        state = state_of(ledger, settings)
        asked = [table_id for table_id in tables_of(state, only) if is_sure(table_id)]
        for table_id in asked:
            ledger.request(state.pipeline, new_request(state, table_id, kind, since=state.table_checkpoint(table_id)))
    what = "applied again" if kind is RequestKind.REPLAY else "removed"
    for table_id in asked:
        if output.is_json:
            output.event("request", table=str(table_id), kind=str(kind), letters=state.dead_letters[table_id])
        else:
            output.line(f"{table_id}: its dead letters will be {what} ({state.dead_letters[table_id]})")
    if not asked:
        output.line("nothing was requested")
    elif not output.is_json:
        output.line("a running pipeline picks it up within seconds; otherwise the next run does")
    return 0


def tables_of(state: LedgerState, only: str | None) -> list[TableId]:
    """The tables with dead letters, or only the named one. Raises DefinitionError."""
    known = sorted(state.dead_letters)
    if only is None:
        return known
    found = [table_id for table_id in known if table_id.is_named(only)]
    refuse_two_tables(found, only)
    if not found:
        others = f"Tables with dead letters: {', '.join(map(str, known)) or 'none'}."
        raise DefinitionError(f"The table {only} has no dead letters.", others)
    return found
