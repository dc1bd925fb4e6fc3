"""The command line as a whole: exit codes, sentences, and secrets."""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import structlog

from headrace import __version__
from headrace.cli import inspection, output
from headrace.cli.main import _show_bug, main, parse_settings
from headrace.cli.output import make_output
from headrace.engine.run_options import RunOptions
from headrace.errors import EXIT_USAGE, DefinitionError
from headrace.model.table import Column, TableId
from headrace.model.types import ColumnType, TypeKind
from headrace.pipeline.definition import Settings, parse_seconds
from headrace.sinks.base import ChangeDemand, SinkCapabilities
from headrace.sinks.blackhole.sink import BlackholeSink
from headrace.testing.shop import write_shop
from headrace.testing.ticdc_writer import TicdcWriter
from headrace.testing.upstream import Insert, Upstream


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run"], "No source is given. Name it with --source, or name a definition file: headrace run pipeline.yaml."),
        (["run", "nowhere.yaml"], "The definition nowhere.yaml cannot be read: No such file or directory."),
        (
            ["run", "--source", "file:///cf", "--key", "orders=id"],
            "The key 'orders=id' cannot be read. Write it as shop.orders=order_no",
        ),
        (["run", "--source", "file:///cf", "--schema-changes", "key=skip"], "with tables (--tables on the command line)."),
        (["run", "--source", "file:///cf", "--schema-changes", "index=never"], "'never' is no policy for index."),
        (["rum"], "No such command 'rum'. Did you mean 'run'? See headrace --help."),
        (["table", "rum"], "No such command 'rum'. Did you mean 'resume'? See headrace table --help."),
        (["table", "resume"], "Missing argument 'TABLE'. See headrace table resume --help."),
        (["inspect"], "No source is given. Name its URI, or a definition file: headrace inspect pipeline.yaml."),
        (["run", "--source", "file:///cf?protocol=csv", "--onec"], "No such option: --onec"),
        (["run", "--source", "fiel:///cf"], "Unknown source scheme 'fiel'. Did you mean 'file'?"),
        (["run", "--source", "/cf"], "'/cf' is not a URI."),
        (["run", "--source", "file:///cf?protocl=csv"], "Did you mean 'protocol'?"),
        (["run", "--source", "file:///cf", "--sink", "mysq://h/"], "Unknown sink scheme 'mysq'. Did you mean 'mysql'?"),
        (["run", "--source", "file:///cf", "--sink", "duckdb:///f.duckdb?thread=2"], "Did you mean 'threads'?"),
        (["run", "--source", "file:///cf", "--until", "yesterday"], "--until: 'yesterday' is neither a TSO nor an ISO time"),
        (["run", "--source", "file:///cf", "--poll-interval", "soon"], "'soon' is not a duration."),
        (["run", "--source", "file:///cf", "--max-cut", "much"], "'much' is not a size."),
        (["run", "--source", "file:///cf", "--tables", "orders"], "names no database. Write orders.* for all its tables."),
        (["run", "--source", "file:///cf", "--spark", "spark.ui.enabled"], "is not KEY=VALUE."),
        (["run", "--source", "file:///cf", "--spark", "spark.speculation=true"], "spark.speculation must stay off."),
        (["run", "--source", "file:///cf", "--changefeed", "nowhere.toml"], "nowhere.toml cannot be read"),
        (["status"], "There is no pipeline's ledger: the DuckDB file {here}/headrace.duckdb does not exist. Is --sink right"),
        (
            ["table", "list", "--name", "life"],
            "There is no pipeline named life: the DuckDB file {here}/headrace.duckdb does not exist.",
        ),
        (
            ["status", "--sink", "print://", "--ledger", "led"],
            "the ledger folder {here}/led does not exist. Is --ledger right, or ledger in the definition file?",
        ),
    ],
)
def test_bad_usage_is_one_sentence_and_exit_code_2(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert told.replace("{here}", str(tmp_path)) in shown.err
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [[], ["table"], ["ddl"]])
def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(arguments) == EXIT_USAGE
    said = capsys.readouterr().err
    assert said.startswith(f"Usage: {' '.join(['headrace', *arguments])} [OPTIONS] COMMAND")
    assert "\nCommands:\n" in said
    assert not said.endswith("--help.\n")


@pytest.mark.parametrize("group", [[], ["ddl"], ["table"]])
def test_lists_of_commands_say_whole_sentences(group: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*group, "--help"]) == 0
    lines = [line for line in capsys.readouterr().out.partition("Commands:")[2].splitlines() if line.strip()]
    assert lines
    assert not [line for line in lines if not line.endswith(".") or line.endswith("...")]


def test_help_and_version_end_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert main(["version"]) == 0
    assert capsys.readouterr().out.endswith(f"headrace {__version__}\n")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"headrace {__version__}\n"


def test_a_source_that_is_not_there_is_exit_code_4(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["inspect", (tmp_path / "nowhere").as_uri()]) == 4
    assert "There is no folder" in capsys.readouterr().err


def test_a_target_that_is_not_there_is_exit_code_4_without_its_password(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--sink", "mysql://u:open-sesame@127.0.0.1:1/"]) == 4
    assert "cannot be reached" in capsys.readouterr().err
    assert output.redact("said open-sesame") == "said ***"


def test_a_password_comes_from_the_environment_and_is_hidden(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SESAME", "a@b/c#d")
    assert main(["status", "--sink", "mysql://u:${SESAME}@127.0.0.1:1/"]) == 4
    assert output.redact("said a@b/c#d") == "said ***"
    assert main(["status", "--sink", "mysql://u:${NOT_SET}@127.0.0.1:1/"]) == 2
    assert "The environment variable NOT_SET is not set." in capsys.readouterr().err


@pytest.mark.parametrize("sign", ["/", "?", "#", "/1@", "@1?", "a/b?c#"])
def test_a_password_that_is_not_escaped_is_refused_unseen(capsys: pytest.CaptureFixture[str], sign: str) -> None:
    assert main(["status", "--sink", f"mysql://u:12{sign}s3same@127.0.0.1:1/"]) == 2
    shown = capsys.readouterr()
    assert "hold signs that a URI has to escape" in shown.err
    assert "s3same" not in shown.out + shown.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "mysql://u:open-s3same@h/"],
        ["run", "a.yaml", "mysql://u:open-s3same@h/"],
        ["run", "--sinks=mysql://u:open-s3same@h/"],
        ["status", "--sink=nosql://u:open-s3same@h/"],
        ["inspect", "s3://b/p?secret-access-key=open-s3same&protocoll=csv"],
        ["status", "--sink=mysql://u:open-s3same@h:port/"],
    ],
)
def test_a_wrong_command_line_is_told_without_its_secrets(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("error: ")
    assert "open-s3same" not in shown.out + shown.err


def test_a_bug_shows_its_traceback_without_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    output.hide_secrets(["open/s3same'"])
    for shown in ("open/s3same'", "open%2Fs3same%27", repr(["open/s3same'", '"'])):
        try:
            raise ValueError(f"{shown} is wrong")
        except ValueError as error:
            _show_bug(type(error), error, error.__traceback__)
    told = capsys.readouterr().err
    assert told.count("Traceback") == 3
    assert "s3same" not in told


def test_what_is_logged_is_a_warning_on_the_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    output.hide_secrets(["open-s3same"])
    assert main(["version"]) == 0
    structlog.get_logger("headrace").warning("lost open-s3same", pipeline="p")
    shown = capsys.readouterr()
    assert shown.err == "warning: lost ***\n"
    assert main(["inspect", "--json", "file:///nowhere"]) == 4
    capsys.readouterr()
    structlog.get_logger("headrace").warning("lost again")
    assert json.loads(capsys.readouterr().err) == {"event": "warning", "message": "lost again"}


@pytest.mark.parametrize("json_lines", [False, True])
@pytest.mark.parametrize("warn", [logging.getLogger("a.library").warning, logging.error, warnings.warn])
def test_what_a_library_logs_cannot_act_on_a_terminal(
    warn: Callable[[str], None], json_lines: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    output.hide_secrets(["open-s3same"])
    assert main(["inspect", "file:///nowhere", *(["--json"] * json_lines)]) == 4
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=False)  # which pytest has put aside
        logging.captureWarnings(capture=True)
        warn("\x1b]0;owned\x07 open-s3same\nwarning: forged\u202e " + "x" * 20_000)
        logging.captureWarnings(capture=False)
    logging.getLogger("a.library").info("not shown")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith('{"event": "warning"' if json_lines else "warning: ")
    assert len(line) < 9_500
    assert not {"\x1b", "\x07", "\u202e", "open-s3same"} & {*line, *re.findall("open-s3same", line)}


def test_definitions_do_not_show_their_uris() -> None:
    uri = "mysql://u:open-s3same@h/"
    said = Settings(source=uri, sink=uri, ledger=uri, spark={"spark.x.password": "open-s3same"})
    assert "open-s3same" not in repr(said) + repr(said.definition(RunOptions()))


@pytest.mark.long
def test_validate_goes_through_everything_and_fails_with_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shop = write_shop(tmp_path / "cf")
    sink = f"duckdb://{tmp_path}/nowhere/f.duckdb"
    assert main(["validate", "--source", shop.source_uri, "--sink", sink, "--no-spark"]) == 2
    states = {line.split(":")[0].split(maxsplit=1)[1]: line.split()[0] for line in capsys.readouterr().out.splitlines()}
    assert states.pop("DuckDB file") == "failed"
    assert states.keys() >= {"Java", "DuckDB version", "source", "keys", "commit ts"}
    assert set(states.values()) == {"ok"}


@pytest.mark.parametrize(("text", "seconds"), [("1s", 1), ("500ms", 0.5), ("2m", 120), ("1.5", 1.5)])
def test_durations(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


def test_settings_keep_equals_signs_in_their_values() -> None:
    assert parse_settings(["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    with pytest.raises(DefinitionError):
        parse_settings(["=x"])


@pytest.mark.parametrize(("commit_ts", "state"), [(True, "ok"), (False, "warning")])
def test_validate_judges_tables_without_key_by_what_the_target_can_do(
    commit_ts: bool, state: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    upstream = Upstream(TicdcWriter(tmp_path / "cf", include_commit_ts=commit_ts), datetime(2026, 5, 4, tzinfo=UTC))
    upstream.create_database("shop")
    upstream.create_table(TableId("shop", "log"), (Column("line", ColumnType(TypeKind.INT)),))
    upstream.execute(Insert(TableId("shop", "log"), {"line": 1}))
    upstream.checkpoint()
    sink = f"duckdb://{tmp_path}/f.duckdb"
    assert main(["validate", "--source", f"{(tmp_path / 'cf').as_uri()}?protocol=csv", "--sink", sink, "--no-spark"]) == 0
    told = {line.split(":")[0].split(maxsplit=1)[1]: line.split()[0] for line in capsys.readouterr().out.splitlines()}
    assert told["keys"] == state
    assert told["commit ts"] == state


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        (
            "sohp.*",
            "warning tables: --tables 'sohp.*' includes no table of the source, which has shop.log. Correct the filter, unless",
        ),
        ("shop.*", ""),
    ],
)
def test_validate_warns_of_a_table_filter_that_matches_nothing(
    tables: str, told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    upstream = Upstream(TicdcWriter(tmp_path / "cf", include_commit_ts=True), datetime(2026, 5, 4, tzinfo=UTC))
    upstream.create_database("shop")
    upstream.create_table(TableId("shop", "log"), [Column("line", ColumnType(TypeKind.INT), nullable=False, primary_key=True)])
    upstream.checkpoint()
    uri = f"{(tmp_path / 'cf').as_uri()}?protocol=csv"
    assert main(["validate", "--source", uri, "--sink", f"duckdb://{tmp_path}/f.duckdb", "--tables", tables, "--no-spark"]) == 0
    out = capsys.readouterr().out
    assert (told in out) if told else ("warning tables" not in out)
    assert ("1 table, each with a key" in out) is (not told)


ALL, NET = ChangeDemand.ALL, ChangeDemand.NET


@pytest.mark.parametrize(
    ("capabilities", "told"),
    [
        (SinkCapabilities(NET), "failed  keys: no usable key: shop.log, shop.other."),
        (
            SinkCapabilities(NET, own_demand=lambda t, _: ALL if t.table == "log" else NET),
            "failed  keys: no usable key: shop.other.",
        ),
        (SinkCapabilities(ALL, own_demand=lambda t, _: NET if t.table == "log" else ALL), "failed  keys: no usable key: shop.log."),
        (
            SinkCapabilities(NET, own_demand=lambda t, _: NET if t.table == "keyed" else ALL),
            "ok      keys: 1 table, each with a key",
        ),
        (SinkCapabilities(NET, own_demand=lambda *_: ALL), None),
        (SinkCapabilities(ALL), None),
    ],
)
def test_validate_judges_tables_without_key_by_what_the_target_wants_of_each(
    capabilities: SinkCapabilities,
    told: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(BlackholeSink, "capabilities", capabilities)
    upstream = Upstream(TicdcWriter(tmp_path / "cf"), datetime(2026, 5, 4, tzinfo=UTC))
    upstream.create_database("shop")
    column = Column("line", ColumnType(TypeKind.INT), nullable=False)
    for name in ("log", "other", "keyed"):
        upstream.create_table(TableId("shop", name), (replace(column, primary_key=name == "keyed"),))
    upstream.checkpoint()
    fails = told is not None and told.startswith("failed")
    uri = f"{(tmp_path / 'cf').as_uri()}?protocol=csv"
    assert main(["validate", "--source", uri, "--sink", "blackhole://", "--no-spark"]) == (2 if fails else 0)
    lines = [line.partition(". Give them")[0] + "." * fails for line in capsys.readouterr().out.splitlines() if "keys:" in line]
    assert lines == ([told] if told else [])


def test_inspect_asks_the_source_and_says_so_where_it_offers_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        identity = "closed://"

    monkeypatch.setattr(inspection, "open_source", lambda uri, options: Closed())
    with pytest.raises(DefinitionError, match="closed:// cannot be inspected"):
        inspection.show_inspection("closed://", None, False, make_output(json=False))
