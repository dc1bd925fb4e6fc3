"""The commands of ``headrace ddl``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import Definition, DefinitionFile, Json, LedgerAt, Name, Sink, no_definition, one_file, recorded_pipeline
from headrace.cli.output import make_output
from headrace.errors import DefinitionError

if TYPE_CHECKING:
    from headrace.pipeline.definition import Settings

ddl = typer.Typer(
    short_help="List schema changes that wait, and decide them.",
    help="Schema changes: the journal, those that wait, and what to do with them.",
    no_args_is_help=True,
)

Change = Annotated[
    str,
    typer.Argument(
        callback=no_definition,
        help="The change, as headrace ddl list shows it; the first characters are enough if only one change begins with them.",
    ),
]


@ddl.command("list", short_help="Show the schema changes that wait, and why.")
def list_changes(
    file: DefinitionFile = None,
    definition: Definition = None,
    sink: Sink = None,
    name: Name = None,
    ledger: LedgerAt = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Show the whole journal, not only the latest of the changes that are done.")
    ] = False,
    json: Json = False,
) -> int:
    """Show the schema changes that wait, why, and those that were done."""
    from headrace.cli.decisions import show_journal

    settings = recorded_pipeline(one_file(file, definition), sink, name, ledger)
    return show_journal(settings, all_, make_output(json=json))


@ddl.command(short_help="Let a schema change run.")
def approve(
    change: Change,
    definition: Definition = None,
    sink: Sink = None,
    name: Name = None,
    ledger: LedgerAt = None,
    json: Json = False,
) -> int:
    """Let a schema change run that waits for approval, or that the target refused before."""
    return _decide(change, "approve", "", recorded_pipeline(definition, sink, name, ledger), json)


@ddl.command(short_help="Count a schema change as done without running it.")
def skip(
    change: Change,
    definition: Definition = None,
    sink: Sink = None,
    name: Name = None,
    ledger: LedgerAt = None,
    json: Json = False,
) -> int:
    """Count a schema change as done without running it: it was done by hand, its rows were loaded anew, or nobody wants it."""
    return _decide(change, "skip", "", recorded_pipeline(definition, sink, name, ledger), json)


@ddl.command(short_help="Run another statement in its place.")
def edit(
    change: Change,
    statement: Annotated[str, typer.Argument(help="One statement in the target's own SQL.")],
    definition: Definition = None,
    sink: Sink = None,
    name: Name = None,
    ledger: LedgerAt = None,
    json: Json = False,
) -> int:
    """Run another statement in place of the source's."""
    if not statement.strip():
        raise DefinitionError("The statement is empty.", "To run nothing use headrace ddl skip.")
    return _decide(change, "edit", statement, recorded_pipeline(definition, sink, name, ledger), json)


def _decide(change: str, verdict: str, statement: str, settings: Settings, json: bool) -> int:
    from headrace.cli.decisions import decide
    from headrace.model.ledger import Verdict

    return decide(settings, change, Verdict(verdict), statement, make_output(json=json))
