"""The options that several commands share, and how they combine with a definition file."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.command_lines import remember
from headrace.cli.output import hide_secrets, shown
from headrace.errors import DefinitionError
from headrace.model.uri import parse_uri

if TYPE_CHECKING:
    from headrace.pipeline.definition import Settings

DefinitionFile = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="A pipeline's YAML file; command-line options override it.")
]
Definition = Annotated[
    Path | None, typer.Option("--definition", "-d", help="The pipeline's YAML file; command-line options override it.")
]
Source = Annotated[
    str | None, typer.Option("--source", "-s", help="URI of the change data, e.g. file:///data/cf?protocol=csv or s3://…")
]
Sink = Annotated[
    str | None,
    typer.Option(
        "--sink",
        "-t",
        help="URI of the target: mysql://user@host/, print://, … Default: duckdb:///headrace.duckdb.",
        show_default=False,
    ),
]
Changefeed = Annotated[
    Path | None, typer.Option("--changefeed", help="The changefeed's TOML file, for settings that its files do not record.")
]
Json = Annotated[bool, typer.Option("--json", help="JSON lines, for machines.")]
Name = Annotated[str | None, typer.Option("--name", help="The pipeline's name in the target's ledger. Default: default.")]
LedgerAt = Annotated[
    str | None,
    typer.Option(
        "--ledger", help="Where to keep the ledger of a sink that has none of its own: a folder or s3:// URL. Default: .headrace."
    ),
]
Tables = Annotated[str | None, typer.Option("--tables", help="Which tables: 'shop.*,!shop.tmp_*'. Default: all.")]
Keys = Annotated[
    list[str] | None,
    typer.Option(
        "--key", help="What identifies a row of a table without primary key: 'shop.orders=order_no,line'; may be repeated."
    ),
]
Strict = Annotated[
    bool | None, typer.Option("--strict", help="Stop a table whose schema file does not match its checksum.", show_default=False)
]
AllowNonTransactional = Annotated[
    bool | None,
    typer.Option(
        "--allow-non-transactional",
        help="Write MySQL tables whose engine has no transactions (MyISAM, Aria), if they have a key.",
        show_default=False,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
DeadLetters = Annotated[
    str | None,
    typer.Option("--dead-letters", help="Where to keep dead letters: a folder, or an s3:// URL.", show_default=False),
]
Work = Annotated[
    str | None,
    typer.Option(
        "--work",
        help="Where tasks hand rows over to the driver: a folder, or, where Spark runs on other machines, an s3:// URL. "
        "Default: the temporary folder.",
        show_default=False,
    ),
]
SparkSettings = Annotated[list[str] | None, typer.Option("--spark", help="A Spark setting KEY=VALUE; may be repeated.")]


def hide_secrets_of(*uris: str) -> None:
    """Hides the passwords and keys of these URIs in all output, also in messages of servers and libraries."""
    for uri in uris:
        # A text that is not a URI, or that names an unset variable, is rejected where it is used.
        with contextlib.suppress(DefinitionError, ValueError):
            hide_secrets(parse_uri(uri).secrets())


def completed(said: Settings, file: Path | None) -> Settings:
    """The settings of the options, completed by the definition file. Options take precedence.

    After this call no output shows a secret of these settings, and printed commands name the pipeline as the user did.
    """
    from headrace.engine.launch import is_secret
    from headrace.pipeline.definition import read_settings

    hide_secrets_of(*said.uris)
    remember(said, file)
    settings = said if file is None else said.over(read_settings(file))
    hide_secrets_of(*settings.uris)
    hide_secrets(value for name, value in settings.spark.items() if is_secret(name, value))
    return settings


def one_file(file: Path | None, definition: Path | None) -> Path | None:
    """The definition file of a command that accepts it as an argument or with ``-d``. Raises DefinitionError for two files."""
    if file is not None and definition is not None and file != definition:
        raise DefinitionError(f"There are two definition files: {file} and {definition}.", "Name one of them.")
    return definition if file is None else file


def is_definition(word: str) -> bool:
    """Whether a word of a command line names a definition file: ``pipeline.yaml``."""
    return word.endswith((".yaml", ".yml"))


def no_definition(word: str) -> str:
    """The name of a table or change, unchanged. Raises DefinitionError if a definition file is given in its place."""
    if is_definition(word) and Path(word).is_file():
        raise DefinitionError(f"{word} is a file, but no table and no schema change.", f"Write -d {shlex.quote(word)}.")
    return word


def recorded_pipeline(
    definition: Path | None,
    sink: str | None,
    name: str | None,
    ledger: str | None,
    source: str | None = None,
    changefeed: Path | None = None,
) -> Settings:
    """The settings of the pipeline whose ledger a command reads. The source is for commands that look into it, too."""
    from headrace.pipeline.definition import Settings

    return completed(
        Settings(source=source, changefeed=str(changefeed) if changefeed else None, sink=sink, name=name, ledger=ledger), definition
    )


def confirmed(what: str, name: str) -> bool:
    """Asks the person at the terminal to type the name of the table or pipeline; returns whether they did.

    Raises DefinitionError if standard input is not a terminal.
    """
    import sys

    if not sys.stdin.isatty():
        raise DefinitionError(f"{what} This is not a terminal.", "Pass --yes to confirm.")
    return bool(typer.prompt(shown(f"{what} Type {name} to continue"), err=True) == name)
