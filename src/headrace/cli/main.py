"""The ``headrace`` command: run, demo, inspect, status, validate.

Exit codes: 0 done, 2 bad usage or definition, 3 a table stopped on bad data or DDL, 4 source or sink not reachable (or another
run took over), 130 interrupted, 1 a bug.
"""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from headrace import __version__
from headrace.cli.ddl import ddl
from headrace.cli.output import hide_secrets, make_output
from headrace.errors import EXIT_INTERRUPTED, EXIT_USAGE, DefinitionError, HeadraceError
from headrace.model.tso import parse_tso
from headrace.model.uri import parse_uri

app = typer.Typer(
    name="headrace",
    help="Applies TiDB's change data (TiCDC storage output) to MySQL, TiDB and DuckDB, effectively once, on Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(ddl, name="ddl")

Source = Annotated[str, typer.Option("--source", "-s", help="URI of the change data, e.g. file:///data/cf?protocol=csv or s3://…")]
Sink = Annotated[str, typer.Option("--sink", "-t", help="URI of the target: duckdb:///f.duckdb, mysql://user@host/, print://")]
Changefeed = Annotated[Path | None, typer.Option("--changefeed", help="TiCDC's own changefeed TOML, for what no bucket tells.")]
Json = Annotated[bool, typer.Option("--json", help="JSON lines, for machines.")]
Name = Annotated[str, typer.Option("--name", help="The pipeline's name in the target's ledger.")]
LedgerAt = Annotated[str, typer.Option("--ledger", help="Where the ledger of a sink without its own lies (a folder or s3:// URL).")]
Tables = Annotated[str, typer.Option("--tables", help="Which tables: 'shop.*,!shop.tmp_*'. Default: all.")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop a table whose schema file does not match its checksum.")]
SparkSettings = Annotated[list[str] | None, typer.Option("--spark", help="A Spark setting KEY=VALUE; may be repeated.")]

_DEFAULT_SINK = "duckdb:///headrace.duckdb"
_DEFAULT_LEDGER = ".headrace"


@app.command()
def run(
    source: Source,
    sink: Sink = _DEFAULT_SINK,
    changefeed: Changefeed = None,
    once: Annotated[bool, typer.Option("--once", help="Catch up to the watermark published now, then exit.")] = False,
    until: Annotated[str, typer.Option("--until", help="Stop when everything up to this TSO or ISO time is applied.")] = "",
    until_end: Annotated[
        bool,
        typer.Option("--until-end", help="The changefeed is finished: take what lies beyond its last checkpoint too, then exit."),
    ] = False,
    quiet: Annotated[str, typer.Option("--quiet", help="How long nothing must change before --until-end takes the rest.")] = "10s",
    start: Annotated[
        str, typer.Option("--start", help="Begin after this TSO or ISO time: the target holds a snapshot of it.")
    ] = "",
    tables: Tables = "",
    name: Name = "default",
    poll_interval: Annotated[str, typer.Option("--poll-interval", help="How often to look for a new watermark: 1s, 500ms.")] = "1s",
    adopt: Annotated[bool, typer.Option("--adopt", help="Accept target tables that hold rows already.")] = False,
    ledger: LedgerAt = _DEFAULT_LEDGER,
    strict: Strict = False,
    spark: SparkSettings = None,
    json: Json = False,
) -> int:
    """Apply the changes of a changefeed to a target: to its end with --once, else until interrupted."""
    from headrace.cli.display import RunDisplay
    from headrace.engine.loop import RunOptions
    from headrace.pipeline.registry import open_sink
    from headrace.pipeline.runner import Definition, PipelineRun
    from headrace.transform.filters import TableFilter

    _hide_secrets_of(source, sink, ledger)
    table_filter = TableFilter.parse(tables)
    if until and until_end:
        raise DefinitionError("--until and --until-end exclude each other.", "A run ends at one of them.")
    options = RunOptions(
        once=once and not until_end,
        until=_tso(until, "--until"),
        until_end=until_end,
        quiet=parse_seconds(quiet),
        start=_tso(start, "--start"),
        poll_interval=parse_seconds(poll_interval),
        includes=table_filter.includes,
        filter_text=tables,
    )
    definition = Definition(
        source=_source(source, strict),
        sink=sink,
        name=name,
        changefeed=str(changefeed) if changefeed else None,
        ledger=ledger,
        adopt=adopt,
        options=options,
        spark=parse_settings(spark or []),
    )
    with RunDisplay(make_output(json=json, aside=open_sink(sink).capabilities.owns_stdout)) as display:
        return PipelineRun(definition, display).run()


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--folder", help="Where to put the demo's files; must be empty or absent.")] = Path(
        "headrace-demo"
    ),
    json: Json = False,
) -> int:
    """A small shop's changes as TiCDC would write them, through Spark into a DuckDB file."""
    from headrace.cli.demo import run_demo

    return run_demo(folder, make_output(json=json))


@app.command()
def inspect(
    source: Annotated[str, typer.Argument(help="URI of the change data.")],
    changefeed: Changefeed = None,
    rows: Annotated[bool, typer.Option("--rows", help="Count rows too; reads every file.")] = False,
    json: Json = False,
) -> int:
    """Show what a changefeed's folder holds, and what is wrong in there. Reads only."""
    from headrace.cli.inspecting import show_inspection

    _hide_secrets_of(source)
    return show_inspection(source, str(changefeed) if changefeed else None, rows, make_output(json=json))


@app.command()
def status(
    sink: Annotated[str, typer.Option("--sink", "-t", help="URI of the target.")] = _DEFAULT_SINK,
    name: Annotated[str, typer.Option("--name", help="The pipeline; all of them when left out.")] = "",
    ledger: LedgerAt = _DEFAULT_LEDGER,
    json: Json = False,
) -> int:
    """Show what the ledger in a target says: checkpoint, lag, tables, last cuts."""
    from headrace.cli.status import show_status

    _hide_secrets_of(sink, ledger)
    return show_status(sink, name, ledger, make_output(json=json))


@app.command()
def validate(
    source: Source,
    sink: Sink = _DEFAULT_SINK,
    changefeed: Changefeed = None,
    tables: Tables = "",
    strict: Strict = False,
    spark: SparkSettings = None,
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Leave out the check that starts Spark.")] = False,
    json: Json = False,
) -> int:
    """Check Java, Spark, source, target, privileges and keys before a run. Changes nothing."""
    from headrace.cli.validating import show_checks

    _hide_secrets_of(source, sink)
    settings = None if no_spark else parse_settings(spark or [])
    return show_checks(
        _source(source, strict), sink, str(changefeed) if changefeed else None, tables, settings, make_output(json=json)
    )


@app.command()
def version() -> int:
    """Print the version."""
    typer.echo(f"headrace {__version__}")
    return 0


def _hide_secrets_of(*uris: str) -> None:
    """No output shows the passwords and keys of these URIs, whatever a server or a library says about them."""
    for uri in uris:
        # What is no URI, or names a variable that is not set, is refused where it is used.
        with contextlib.suppress(DefinitionError, ValueError):
            hide_secrets(parse_uri(uri).secrets())


def _source(uri: str, strict: bool) -> str:
    """The source's URI with what an option says in it; of a parameter that is there twice the last one counts."""
    return uri + ("&" if "?" in uri else "?") + "strict=true" if strict else uri


def _tso(text: str, option: str) -> int | None:
    if not text:
        return None
    try:
        return parse_tso(text)
    except ValueError as error:
        raise DefinitionError(f"{option}: {error}.") from None


def parse_seconds(text: str) -> float:
    """``1s``, ``500ms``, ``2m`` or a plain number of seconds. Raises DefinitionError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m)?", text.strip())
    if match is None:
        raise DefinitionError(f"{text!r} is not a duration.", "Write it as 1s, 500ms or 2m.")
    return float(match.group(1)) * {"ms": 0.001, "s": 1.0, "m": 60.0}[match.group(2) or "s"]


def parse_settings(settings: list[str]) -> dict[str, str]:
    """``KEY=VALUE`` pairs. Raises DefinitionError for one without a key or an equals sign."""
    parsed = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator or not key.strip():
            raise DefinitionError(f"--spark {setting!r} is not KEY=VALUE.", "Write it as --spark spark.driver.memory=4g.")
        parsed[key.strip()] = value
    return parsed


def main(argv: list[str] | None = None) -> int:
    """Runs one command and returns its exit code. What goes wrong is one sentence on standard error."""
    arguments = sys.argv[1:] if argv is None else argv
    output = make_output(json="--json" in arguments)
    try:
        result = app(arguments, standalone_mode=False)
    except HeadraceError as error:
        output.error(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except typer.Exit as leaving:
        return int(leaving.exit_code)
    except typer.TyperException as error:
        message = error.format_message()
        output.error(f"{message}{'' if message.endswith(('.', '?')) else '.'} See headrace --help.")
        return EXIT_USAGE
    return int(result or 0)


def entry() -> None:
    """The console script."""
    sys.exit(main())
