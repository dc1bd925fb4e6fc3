"""The commands of ``headrace ddl``."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from headrace.cli.output import hide_secrets, make_output
from headrace.errors import DefinitionError
from headrace.model.progress import Verdict
from headrace.model.uri import parse_uri

ddl = typer.Typer(help="Schema changes: the journal, those that wait, and what to do with them.", no_args_is_help=True)

Sink = Annotated[str, typer.Option("--sink", "-t", help="URI of the target.")]
Name = Annotated[str, typer.Option("--name", help="The pipeline's name in the target's ledger.")]
LedgerAt = Annotated[str, typer.Option("--ledger", help="Where the ledger of a sink without its own lies (a folder or s3:// URL).")]
Json = Annotated[bool, typer.Option("--json", help="JSON lines, for machines.")]
Change = Annotated[str, typer.Argument(help="The change, as headrace ddl list names it; its beginning will do.")]

_DEFAULT_SINK = "duckdb:///headrace.duckdb"
_DEFAULT_LEDGER = ".headrace"


@ddl.command("list")
def list_changes(
    sink: Sink = _DEFAULT_SINK,
    name: Name = "default",
    ledger: LedgerAt = _DEFAULT_LEDGER,
    all_: Annotated[bool, typer.Option("--all", help="The whole journal, not only the newest of what is done.")] = False,
    json: Json = False,
) -> int:
    """Show the schema changes that wait, why, and those that were done."""
    from headrace.cli.deciding import show_journal

    _hide_secrets_of(sink, ledger)
    return show_journal(sink, name, ledger, all_, make_output(json=json))


@ddl.command()
def approve(
    change: Change, sink: Sink = _DEFAULT_SINK, name: Name = "default", ledger: LedgerAt = _DEFAULT_LEDGER, json: Json = False
) -> int:
    """Let a schema change run that waits for approval, or that the target refused before."""
    return _decide(change, Verdict.APPROVE, "", sink, name, ledger, json)


@ddl.command()
def skip(
    change: Change, sink: Sink = _DEFAULT_SINK, name: Name = "default", ledger: LedgerAt = _DEFAULT_LEDGER, json: Json = False
) -> int:
    """Count a schema change as done without running it: it was done by hand, its rows were loaded anew, or nobody wants it."""
    return _decide(change, Verdict.SKIP, "", sink, name, ledger, json)


@ddl.command()
def edit(
    change: Change,
    statement: Annotated[str, typer.Argument(help="One statement in the target's own SQL.")],
    sink: Sink = _DEFAULT_SINK,
    name: Name = "default",
    ledger: LedgerAt = _DEFAULT_LEDGER,
    json: Json = False,
) -> int:
    """Run another statement in place of the source's."""
    if not statement.strip():
        raise DefinitionError("The statement is empty.", "To run nothing use headrace ddl skip.")
    return _decide(change, Verdict.EDIT, statement, sink, name, ledger, json)


def _decide(change: str, verdict: Verdict, statement: str, sink: str, name: str, ledger: str, json: bool) -> int:
    from headrace.cli.deciding import decide

    _hide_secrets_of(sink, ledger)
    return decide(sink, name, ledger, change, verdict, statement, make_output(json=json))


def _hide_secrets_of(*uris: str) -> None:
    for uri in uris:
        with contextlib.suppress(DefinitionError, ValueError):
            hide_secrets(parse_uri(uri).secrets())
