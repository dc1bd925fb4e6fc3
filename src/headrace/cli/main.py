"""The ``headrace`` command and its subcommands.

Exit codes: 0 done, 2 bad usage or definition, 3 a table stopped on bad data or DDL, 4 source or sink not reachable (or another
run took over), 130 interrupted, 1 a bug or a failed Spark job.
"""

from __future__ import annotations

import logging
import shlex
import sys
import threading
import traceback
from collections.abc import MutableMapping
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import typer

from headrace import __version__
from headrace.abandonment import anything_goes_on, end_process
from headrace.cli.binlog import binlog
from headrace.cli.command_lines import forget
from headrace.cli.ddl import ddl
from headrace.cli.options import (
    AllowNonTransactional,
    Changefeed,
    DeadLetters,
    Definition,
    DefinitionFile,
    Json,
    Keys,
    LedgerAt,
    Name,
    Sink,
    Source,
    SparkSettings,
    Strict,
    Tables,
    Work,
    Yes,
    completed,
    confirmed,
    hide_secrets_of,
    is_definition,
    one_file,
    recorded_pipeline,
)
from headrace.cli.output import make_output, shown
from headrace.cli.table import table
from headrace.errors import EXIT_INTERRUPTED, EXIT_TABLE_STOPPED, EXIT_USAGE, DefinitionError, HeadraceError
from headrace.model.tso import parse_tso

app = typer.Typer(
    name="headrace",
    help="Applies TiDB's change data (TiCDC storage output) to MySQL, TiDB and DuckDB, effectively once, on Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(binlog, name="binlog")
app.add_typer(ddl, name="ddl")
app.add_typer(table, name="table")


def _print_version(*, asked: bool) -> None:
    if asked:
        raise typer.Exit(version())


@app.callback()
def _begin(
    context: typer.Context,
    _version: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)] = False,
) -> None:
    _show_logs(json=bool(context.obj))


@app.command(short_help="Apply a changefeed's changes to a target.")
def run(
    file: DefinitionFile = None,
    definition: Definition = None,
    source: Source = None,
    sink: Sink = None,
    changefeed: Changefeed = None,
    schema_from: Annotated[
        str | None,
        typer.Option(
            "--schema-from",
            help="For Kafka: the tables' definitions at --start, in a file or folder of SQL or on a server (mysql://…).",
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Catch up to the watermark published now, then exit.")] = False,
    until: Annotated[str, typer.Option("--until", help="Stop when everything up to this TSO or ISO time is applied.")] = "",
    until_end: Annotated[
        bool,
        typer.Option("--until-end", help="The changefeed is finished: also apply what lies beyond its last checkpoint, then exit."),
    ] = False,
    quiet: Annotated[
        str, typer.Option("--quiet", help="How long the files must stay unchanged before --until-end takes the rest.")
    ] = "10s",
    start: Annotated[
        str, typer.Option("--start", help="Begin after this TSO or ISO time, of which the target holds a snapshot.")
    ] = "",
    tables: Tables = None,
    keys: Keys = None,
    schema_changes: Annotated[
        str | None,
        typer.Option("--schema-changes", help="What to do with each kind of schema change: 'drop-table=approve,index=skip'."),
    ] = None,
    name: Name = None,
    poll_interval: Annotated[
        str | None,
        typer.Option("--poll-interval", help="How often to look for a new watermark: 1s, 500ms, 2m, or seconds. Default: 1s."),
    ] = None,
    max_cut: Annotated[
        str | None, typer.Option("--max-cut", help="The most of a backlog to apply in one step (cut): 512MiB. Default: 1GiB.")
    ] = None,
    adopt: Annotated[
        bool | None, typer.Option("--adopt", help="Accept target tables that hold rows already.", show_default=False)
    ] = None,
    allow_non_transactional: AllowNonTransactional = None,
    ledger: LedgerAt = None,
    work: Work = None,
    on_error: Annotated[
        str | None,
        typer.Option(
            "--on-error", help="What to do with bad records and refused values: stop (their table) or dead-letter. Default: stop."
        ),
    ] = None,
    dead_letters: DeadLetters = None,
    max_dead_letters: Annotated[
        str | None,
        typer.Option(
            "--max-dead-letters", help="How many dead letters a table may have in one cut before it stops. Default: 1000."
        ),
    ] = None,
    strict: Strict = None,
    spark: SparkSettings = None,
    json: Json = False,
) -> int:
    """Apply the changes of a changefeed to a target: to its end with --once, else until interrupted."""
    from headrace.cli.display import RunDisplay
    from headrace.cli.stopped_tables import tell_stopped
    from headrace.engine.keys import DeclaredKeys
    from headrace.engine.run_options import RunOptions
    from headrace.model.policy import SchemaChangePolicies
    from headrace.pipeline.definition import Settings, parse_bytes, parse_count, parse_on_error, parse_seconds
    from headrace.pipeline.runner import PipelineRun

    said = Settings(
        source=source,
        changefeed=str(changefeed) if changefeed else None,
        schema_from=schema_from,
        sink=sink,
        adopt=adopt,
        allow_non_transactional=allow_non_transactional,
        name=name,
        tables=tables,
        poll_interval=None if poll_interval is None else parse_seconds(poll_interval),
        max_cut=None if max_cut is None else parse_bytes(max_cut),
        ledger=ledger,
        work=work,
        on_error=None if on_error is None else parse_on_error(on_error),
        dead_letters=dead_letters,
        max_dead_letters=None if max_dead_letters is None else parse_count(max_dead_letters),
        strict=strict,
        keys=DeclaredKeys.parse_texts(keys or []),
        policies=SchemaChangePolicies.parse_text(schema_changes or ""),
        spark=parse_settings(spark or []),
    )
    settings = completed(said, one_file(file, definition))
    if until and until_end:
        raise DefinitionError("--until and --until-end exclude each other.", "A run ends at one of them.")
    options = RunOptions(
        once=once and not until_end,
        until=_tso(until, "--until"),
        until_end=until_end,
        quiet=parse_seconds(quiet),
        start=_tso(start, "--start"),
    )
    pipeline = settings.definition(options)
    output = make_output(json=json, aside=pipeline.target.assembled().sink.capabilities.owns_stdout)
    with RunDisplay(output) as display:
        ran = PipelineRun(pipeline, display)
        code = ran.run()
    if code == EXIT_TABLE_STOPPED:
        tell_stopped(ran.state, display.reported, output)
    return code


@app.command(short_help="Replicate a small shop's changes into DuckDB.")
def demo(
    folder: Annotated[Path, typer.Option("--folder", help="Where to put the demo's files; must be empty or absent.")] = Path(
        "headrace-demo"
    ),
    json: Json = False,
) -> int:
    """A small shop's changes as TiCDC would write them, through Spark into a DuckDB file."""
    from headrace.cli.demo import run_demo

    return run_demo(folder, make_output(json=json))


@app.command(short_help="Show what a changefeed's folder holds.")
def inspect(
    source: Annotated[str | None, typer.Argument(help="URI of the change data, or a pipeline's YAML file.")] = None,
    definition: Definition = None,
    changefeed: Changefeed = None,
    rows: Annotated[bool, typer.Option("--rows", help="Count rows too; reads every file.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Check every row too; reads every file. Exit code 3 for errors.")] = False,
    json: Json = False,
) -> int:
    """Show what a changefeed's folder holds, and what is wrong in there. Reads only."""
    from headrace.cli.inspection import show_checkup, show_inspection
    from headrace.pipeline.definition import Settings

    if source is None and definition is None:
        raise DefinitionError("No source is given.", "Name its URI, or a definition file: headrace inspect pipeline.yaml.")
    file = Path(source) if source and "://" not in source and is_definition(source) else None
    said = Settings(source=None if file else source, changefeed=str(changefeed) if changefeed else None)
    settings, output = completed(said, one_file(file, definition)), make_output(json=json)
    if check:
        return show_checkup(settings.source_uri, settings.changefeed, output)
    return show_inspection(settings.source_uri, settings.changefeed, rows, output)


@app.command(short_help="Show checkpoint, lag and tables of a pipeline.")
def status(
    file: DefinitionFile = None,
    definition: Definition = None,
    source: Source = None,
    changefeed: Changefeed = None,
    sink: Sink = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", help="The pipeline's name. Default: the one in the definition; without a definition, all pipelines."
        ),
    ] = None,
    ledger: LedgerAt = None,
    json: Json = False,
) -> int:
    """Show what the ledger in a target says: checkpoint, lag, tables, last cuts.

    With the source of a Kafka topic, also how many records the pipeline is behind, and how soon the broker removes needed ones.
    """
    from headrace.cli.status import show_status
    from headrace.pipeline.definition import Settings
    from headrace.pipeline.registry import open_source, source_options

    definition = one_file(file, definition)
    path = str(changefeed) if changefeed else None
    settings = completed(Settings(source=source, changefeed=path, sink=sink, name=name, ledger=ledger), definition)
    asked = settings.name or ("default" if definition else "")
    opened = open_source(settings.source_uri, source_options(settings.changefeed)) if definition or source else None
    return show_status(settings.target, asked, make_output(json=json), opened)


@app.command("replay-dead-letters", short_help="Apply dead letters again after a repair.")
def replay_dead_letters(
    file: DefinitionFile = None,
    definition: Definition = None,
    only: Annotated[
        str | None, typer.Option("--table", help="The table: shop.orders. Default: all that have dead letters.")
    ] = None,
    discard: Annotated[
        bool,
        typer.Option(
            "--discard", help="Remove the dead letters instead: you repaired their rows by hand, or do not want their changes."
        ),
    ] = False,
    yes: Yes = False,
    sink: Sink = None,
    name: Name = None,
    ledger: LedgerAt = None,
    json: Json = False,
) -> int:
    """Apply again, after a repair, the changes that tables have dead letters of. The run that goes on or comes next does it."""
    from headrace.cli.letters import discard_letters, replay_letters

    settings, output = recorded_pipeline(one_file(file, definition), sink, name, ledger), make_output(json=json)
    if discard:
        return discard_letters(settings, only, None if yes else confirmed, output)
    return replay_letters(settings, only, output)


@app.command(short_help="Forget a pipeline, or one of its tables.")
def reset(
    file: DefinitionFile = None,
    definition: Definition = None,
    only: Annotated[
        str | None, typer.Option("--table", help="Forget only this table; it begins anew with its first change.")
    ] = None,
    yes: Yes = False,
    sink: Sink = None,
    name: Name = None,
    ledger: LedgerAt = None,
    json: Json = False,
) -> int:
    """Forget a pipeline, or one of its tables: what the ledger records of it is removed. Tables and rows in the target stay."""
    from headrace.cli.reset import reset_pipeline, reset_table

    settings, output = recorded_pipeline(one_file(file, definition), sink, name, ledger), make_output(json=json)
    ask = None if yes else confirmed
    return reset_table(settings, only, ask, output) if only else reset_pipeline(settings, ask, output)


@app.command(short_help="Check Java, Spark, source and target.")
def validate(
    file: DefinitionFile = None,
    definition: Definition = None,
    source: Source = None,
    sink: Sink = None,
    changefeed: Changefeed = None,
    tables: Tables = None,
    keys: Keys = None,
    name: Name = None,
    strict: Strict = None,
    allow_non_transactional: AllowNonTransactional = None,
    work: Work = None,
    spark: SparkSettings = None,
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Leave out the check that starts Spark.")] = False,
    json: Json = False,
) -> int:
    """Check Java, Spark, source, target, privileges and keys before a run. Changes nothing."""
    from headrace.cli.validation import show_checks
    from headrace.engine.keys import DeclaredKeys
    from headrace.engine.run_options import RunOptions
    from headrace.pipeline.definition import Settings

    said = Settings(
        source=source,
        changefeed=str(changefeed) if changefeed else None,
        sink=sink,
        name=name,
        tables=tables,
        strict=strict,
        allow_non_transactional=allow_non_transactional,
        work=work,
        keys=DeclaredKeys.parse_texts(keys or []),
        spark=parse_settings(spark or []),
    )
    pipeline = completed(said, one_file(file, definition)).definition(RunOptions())
    return show_checks(pipeline, make_output(json=json), with_spark=not no_spark)


@app.command(short_help="Print the version.")
def version() -> int:
    """Print the version."""
    typer.echo(f"headrace {__version__}")
    return 0


def _tso(text: str, option: str) -> int | None:
    if not text:
        return None
    try:
        return parse_tso(text)
    except ValueError as error:
        raise DefinitionError(f"{option}: {error}.") from None


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
    """Runs one command and returns its exit code. An error is printed as one sentence on standard error."""
    arguments = sys.argv[1:] if argv is None else argv
    hide_secrets_of(*(_value(argument) for argument in arguments))  # before anything can be said about a wrong command line
    output = make_output(json="--json" in arguments)
    try:
        result = app(arguments, prog_name="headrace", standalone_mode=False, obj=output.is_json)
    except HeadraceError as error:
        output.error(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except typer.Exit as leaving:
        return int(leaving.exit_code)
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # typer does not export it; its message is the help
            sys.stderr.write(error.format_message() + "\n")
        else:
            output.error(_usage(error))
        return EXIT_USAGE
    finally:
        forget()
    return int(result or 0)


def _usage(error: typer.TyperException) -> str:
    """What is wrong on the command line, and which command's ``--help`` to see."""
    context = getattr(error, "ctx", None)
    message = error.format_message()
    message += "" if message.endswith((".", "?")) else "."
    if message.startswith("Got unexpected extra argument"):
        files = filter(is_definition, message.partition("(s) (")[2].rstrip(").").split())
        message += "".join(f" Write -d {shlex.quote(file)}." for file in files)
    return f"{message} See {context.command_path if context is not None else 'headrace'} --help."


def _value(argument: str) -> str:
    return argument.partition("=")[2] if argument.startswith("-") else argument


def _show_logs(*, json: bool) -> None:
    """Shows log entries and warnings of libraries as warnings: with characters escaped, cut, and without secrets.

    By default structlog would print entries on standard output, and Python those of libraries on standard error, as they are.
    """
    import structlog

    def show(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
        make_output(json=json).warning(str(event["event"]))
        raise structlog.DropEvent

    structlog.configure(processors=[show])
    logging.captureWarnings(capture=True)
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _Shown)]:
        root.removeHandler(handler)
    root.addHandler(_Shown(json=json))


class _Shown(logging.Handler):
    """Shows the warnings and errors that libraries log. A traceback is left out."""

    def __init__(self, *, json: bool) -> None:
        super().__init__(logging.WARNING)
        self._json = json

    def emit(self, record: logging.LogRecord) -> None:
        from headrace.model.outcome import Notice  # which cuts a long message

        try:
            text = Notice(record.getMessage().rstrip()).message
        except Exception:  # noqa: BLE001 -- an entry with arguments that do not fit it
            text = f"the library {record.name} logged an entry that cannot be shown."
        make_output(json=self._json).warning(text)


def _show_bug(kind: type[BaseException], error: BaseException | None, frames: TracebackType | None) -> None:
    """Prints a traceback without secrets: the text of a library's exception may contain its arguments."""
    lines = "".join(traceback.format_exception(kind, error, frames)).splitlines()
    sys.stderr.write("".join(f"{shown(line)}\n" for line in lines))


def entry() -> None:
    """The console script. Threads of an abandoned run or of a timed-out request do not delay its end."""
    sys.excepthook = _show_bug
    threading.excepthook = lambda told: _show_bug(told.exc_type, told.exc_value, told.exc_traceback)
    try:
        code = main()
    except Exception as bug:  # noqa: BLE001 -- shown, and then the process ends as after any other error
        _show_bug(type(bug), bug, bug.__traceback__)
        code = 1
    if anything_goes_on():
        end_process(code)
    sys.exit(code)
