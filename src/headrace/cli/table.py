"""The commands of ``headrace table``."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.options import (
    Changefeed,
    Definition,
    DefinitionFile,
    Json,
    LedgerAt,
    Name,
    Sink,
    Source,
    Yes,
    confirmed,
    no_definition,
    one_file,
    recorded_pipeline,
)
from headrace.cli.output import make_output
from headrace.errors import DefinitionError
from headrace.model.place import PlaceInFile, PlaceInStream

table = typer.Typer(
    short_help="Hold, release, resume, skip or resync tables.",
    help="Tables that stopped, or that you stop: why, what they still need, and how they go on.",
    no_args_is_help=True,
)

Table = Annotated[str, typer.Argument(metavar="TABLE", callback=no_definition, help="The table: shop.orders.")]


@table.command("list", short_help="Show the stopped and held tables, and why.")
def list_tables(
    file: DefinitionFile = None,
    definition: Definition = None,
    sink: Sink = None,
    name: Name = None,
    ledger: LedgerAt = None,
    json: Json = False,
) -> int:
    """Show the stopped and held tables: since when, why, and which files they still need."""
    from headrace.cli.stopped_tables import show_tables

    return show_tables(recorded_pipeline(one_file(file, definition), sink, name, ledger), make_output(json=json))


@table.command(short_help="Stop writing to a table, to load or repair it.")
def hold(
    table_name: Table,
    definition: Definition = None,
    sink: Sink = None,
    name: Name = None,
    ledger: LedgerAt = None,
    json: Json = False,
) -> int:
    """Keep the pipeline's hands off a table, to load or mend it: nothing touches it until it is released, or resynced."""
    from headrace.cli.stopped_tables import hold_table

    return hold_table(recorded_pipeline(definition, sink, name, ledger), table_name, make_output(json=json))


@table.command(short_help="End a hold: the table catches up.")
def release(
    table_name: Table,
    definition: Definition = None,
    sink: Sink = None,
    name: Name = None,
    ledger: LedgerAt = None,
    json: Json = False,
) -> int:
    """End a hold: the table catches up from where it was held."""
    from headrace.cli.stopped_tables import release_table

    return release_table(recorded_pipeline(definition, sink, name, ledger), table_name, make_output(json=json))


@table.command(short_help="Try a stopped table again at once.")
def resume(
    table_name: Table,
    definition: Definition = None,
    sink: Sink = None,
    name: Name = None,
    ledger: LedgerAt = None,
    json: Json = False,
) -> int:
    """Try a stopped table again at once, after a repair."""
    from headrace.cli.stopped_tables import resume_table

    return resume_table(recorded_pipeline(definition, sink, name, ledger), table_name, make_output(json=json))


@table.command(short_help="Give up changes that cannot be read or written.")
def skip(
    table_name: Annotated[
        str,
        typer.Argument(
            metavar="TABLE", callback=no_definition, help="The table; leave it out for a record whose table is unknown."
        ),
    ] = "",
    *,
    to: Annotated[str, typer.Option("--to", help="Give up the rows up to this TSO or ISO time, or up to latest.")] = "",
    file: Annotated[str, typer.Option("--file", help="Give up one file, as headrace table list names it.")] = "",
    partition: Annotated[str, typer.Option("--partition", help="Give up one record of a stream: its partition.")] = "",
    offset: Annotated[int | None, typer.Option("--offset", help="The record's offset in the partition.", min=0)] = None,
    yes: Yes = False,
    definition: Definition = None,
    source: Source = None,
    changefeed: Changefeed = None,
    sink: Sink = None,
    name: Name = None,
    ledger: LedgerAt = None,
    json: Json = False,
) -> int:
    """Give up changes that cannot be read or written: rows up to a commit ts, one file, or one record of a stream.

    Schema changes run all the same.
    """
    from headrace.cli.stopped_tables import skip_place, skip_rows

    if bool(partition) != (offset is not None):
        raise DefinitionError("--partition and --offset name a record together.", "Name both, as headrace table list does.")
    if not table_name and not partition:
        raise DefinitionError("The table is missing.", "Name it: headrace table skip shop.orders --to latest.")
    if sum(map(bool, (to, file, partition))) != 1:
        raise DefinitionError(
            "What to give up is not clear: pass exactly one of --to, --file, and (for a stream) --partition with --offset.",
            "For example --to latest, or --file PATH.",
        )
    settings, output = recorded_pipeline(definition, sink, name, ledger, source, changefeed), make_output(json=json)
    ask = None if yes else confirmed
    if to:
        return skip_rows(settings, table_name, to, ask, output)
    place = PlaceInFile(file) if offset is None else PlaceInStream(partition, offset)
    return skip_place(settings, table_name, place, ask, output)


@table.command(short_help="Go on with a table that you loaded anew.")
def resync(
    table_name: Table,
    at: Annotated[str, typer.Option("--at", help="The TSO or ISO time as of which you loaded the rows.")],
    definition: Definition = None,
    sink: Sink = None,
    name: Name = None,
    ledger: LedgerAt = None,
    json: Json = False,
) -> int:
    """Go on with a table that was loaded anew into the target, from a dump or backup of one commit ts."""
    from headrace.cli.stopped_tables import resync_table

    return resync_table(recorded_pipeline(definition, sink, name, ledger), table_name, at, make_output(json=json))
