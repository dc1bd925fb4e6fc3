"""Pipelines as YAML files: what they say, how options win over them, and what is told of a mistake."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.main import main
from headrace.engine.keys import DeclaredKeys
from headrace.engine.run_options import RunOptions
from headrace.errors import DefinitionError
from headrace.model.policy import ChangeKind, Policy
from headrace.model.table import TableId
from headrace.pipeline import runner
from headrace.pipeline.definition import Definition, Settings, parse_count, read_settings
from headrace.sinks.mysql.settings import read_settings as mysql_settings
from headrace.testing.shop import write_shop

WHOLE = """\
source:
  uri: "s3://bucket/prefix?protocol=csv"
  changefeed: changefeed.toml
sink:
  uri: "mysql://user:${MYSQL_PASSWORD}@db:3306/"
  adopt: true
pipeline:
  name: ${NAME}
  tables: "shop.*,!shop.tmp_*"
  poll-interval: 500ms
  max-cut: 512MiB
  ledger: .headrace
  strict: no
  keys:
    shop.orders: [order_no, line]
    "`shop`.`a.b`": [x]
  schema-changes:
    drop-table: approve
    index: skip
  spark:
    spark.driver.memory: 4g
    spark.ui.enabled: false
"""
ROOT = Path(__file__).parents[2]
LEAST = "source:\n  uri: file:///cf?protocol=csv\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "pipeline.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_everything_that_a_file_can_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAME", "shop")
    pipeline = read_settings(written(tmp_path, WHOLE)).definition(RunOptions(once=True))
    assert (pipeline.source, pipeline.sink) == (
        "s3://bucket/prefix?protocol=csv",
        "mysql://user:${MYSQL_PASSWORD}@db:3306/",  # put in by the URI, where a password may hold any sign
    )
    assert pipeline.changefeed == str(tmp_path / "changefeed.toml")
    assert pipeline.ledger == str(tmp_path / ".headrace")
    assert (pipeline.name, pipeline.adopt) == ("shop", True)
    assert pipeline.spark == {"spark.driver.memory": "4g", "spark.ui.enabled": "false"}
    options = pipeline.options
    assert (options.once, options.poll_interval, options.filter_text) == (True, 0.5, "shop.*,!shop.tmp_*")
    assert options.max_cut == 512 << 20
    assert options.includes(TableId("shop", "orders"))
    assert not options.includes(TableId("shop", "tmp_1"))
    assert options.keys.by_table == {TableId("shop", "orders"): ("order_no", "line"), TableId("shop", "a.b"): ("x",)}
    assert options.policies.by_kind == {ChangeKind.DROP_TABLE: Policy.APPROVE, ChangeKind.INDEX: Policy.SKIP}


def test_what_is_left_open_is_as_on_the_command_line(tmp_path: Path) -> None:
    for text in (LEAST, LEAST + "sink:\npipeline:\n", LEAST + "pipeline:\n  tables:\n  name:\n"):
        assert read_settings(written(tmp_path, text)) == Settings(source="file:///cf?protocol=csv")
    made = Settings(source="file:///cf").definition(RunOptions())
    assert without_function(made) == without_function(Definition("file:///cf"))


@pytest.mark.parametrize("uri", ["mysql://db:3306/", "mysql://db/?timeout=5s"])
def test_how_tables_are_applied_becomes_a_part_of_the_uri(uri: str, tmp_path: Path) -> None:
    sink = f"sink:\n  uri: {uri}\n  apply: auto\n  apply-tables:\n    shop.*: replay\n    shop.l?g: converge\n"
    read = read_settings(written(tmp_path, LEAST + sink)).definition(RunOptions(once=True)).sink
    assert read.startswith(uri)
    found = mysql_settings(read)
    assert found.connect_timeout == (5 if "timeout" in uri else 10)
    assert found.apply == mysql_settings("mysql://db/?apply=auto&apply-tables=shop.*:replay,shop.l%3Fg:converge").apply


@pytest.mark.parametrize("name", ["apply", "apply-tables"])
def test_how_tables_are_applied_is_said_once(name: str, tmp_path: Path) -> None:
    value = "replay" if name == "apply" else "{shop.*: replay}"
    with pytest.raises(DefinitionError, match=f"sink.{name}: it is in the URI as well"):
        read_settings(written(tmp_path, f"{LEAST}sink:\n  uri: mysql://db/?timeout=5s&{name}=x\n  {name}: {value}\n"))


def test_options_win_over_the_file_and_complete_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAME", "shop")
    monkeypatch.setenv("MYSQL_PASSWORD", "never-shown")
    path = written(tmp_path, WHOLE)
    taken = ran(
        monkeypatch, "run", str(path), "--once", "--sink", "blackhole://", "--name", "other", "--strict", "--poll-interval", "2s"
    )
    assert (taken.sink, taken.name, taken.options.poll_interval, taken.options.once) == ("blackhole://", "other", 2.0, True)
    assert taken.source == "s3://bucket/prefix?protocol=csv&strict=true"
    assert taken.options.filter_text == "shop.*,!shop.tmp_*"
    more = ("--key", "SHOP.orders=id", "--key", "shop.log=at", "--schema-changes", "index=apply,view=skip", "--spark", "a=b")
    taken = ran(monkeypatch, "run", str(path), *more)
    assert taken.options.keys == DeclaredKeys(
        {TableId("SHOP", "orders"): ("id",), TableId("shop", "log"): ("at",), TableId("shop", "a.b"): ("x",)}
    )
    assert taken.options.policies.by_kind == {
        ChangeKind.DROP_TABLE: Policy.APPROVE,
        ChangeKind.INDEX: Policy.APPLY,
        ChangeKind.VIEW: Policy.SKIP,
    }
    assert taken.spark == {"spark.driver.memory": "4g", "spark.ui.enabled": "false", "a": "b"}


def ran(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Definition:
    """The definition that a command line runs."""
    taken: list[Definition] = []

    class Run:
        def __init__(self, definition: Definition, display: Any) -> None:
            taken.append(definition)

        def run(self) -> int:
            return 0

    monkeypatch.setattr(runner, "PipelineRun", Run)
    assert main(list(arguments)) == 0
    return taken[0]


def test_the_same_pipeline_from_options_and_from_a_file_is_one_definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(
        tmp_path, LEAST + "sink:\n  uri: print://\npipeline:\n  keys:\n    a.b: [c]\n  schema-changes:\n    view: skip\n"
    )
    from_file = ran(monkeypatch, "run", str(path), "--once")
    options = ("--source", "file:///cf?protocol=csv", "--sink", "print://", "--key", "a.b=c", "--schema-changes", "view=skip")
    from_options = ran(monkeypatch, "run", "--once", *options)
    assert without_function(from_file) == without_function(from_options)


def without_function(definition: Definition) -> str:
    return re.sub(r"includes=<.*?>+, ", "", repr(definition))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sink:\n  uri: print://\n", ', source: it is missing. Write it as uri: "file:///data/changefeed?protocol=csv".'),
        ("source:\n  changefeed: x\n", ", line 1, source.uri: it is missing."),
        ("sauce:\n  uri: x\n" + LEAST, ", line 1, sauce: it is not known here. Did you mean 'source'?"),
        (LEAST + "  changfeed: x\n", ", line 3, source.changfeed: it is not known here. Did you mean 'changefeed'?"),
        (
            LEAST + "pipeline:\n  poll_interval: 1s\n",
            ", line 4, pipeline.poll_interval: it is not known here. Did you mean 'poll-interval'?",
        ),
        (LEAST + "pipeline:\n  poll-interval: soon\n", ", line 4, pipeline.poll-interval: 'soon' is not a duration."),
        (LEAST + "pipeline:\n  max-cut: 1GB\n", ", line 4, pipeline.max-cut: '1GB' is not a size."),
        (LEAST + "pipeline:\n  strict: perhaps\n", ", line 4, pipeline.strict: 'perhaps' is neither true nor false."),
        (LEAST + "pipeline:\n  tables: orders\n", ", line 4, pipeline.tables: The table pattern 'orders' names no database."),
        (LEAST + "pipeline:\n  tables: [a.*]\n", ", line 4, pipeline.tables: it must be one text."),
        (LEAST + "pipeline: shop\n", ", line 3, pipeline: it must be a mapping of names to values."),
        (
            LEAST + "pipeline:\n  keys:\n    shop.orders: id\n",
            ", line 5, pipeline.keys.shop.orders: it must be a list. Write it as [order_no, line].",
        ),
        (LEAST + "pipeline:\n  keys:\n    orders: [id]\n", ", line 4, pipeline.keys: 'orders' is no table's name."),
        (
            LEAST + "pipeline:\n  schema-changes:\n    drop-tabel: skip\n",
            "'drop-tabel' is no kind of schema change. Did you mean 'drop-table'?",
        ),
        (
            LEAST + "pipeline:\n  schema-changes:\n    view: stop\n",
            ", line 4, pipeline.schema-changes: 'stop' is no policy for view.",
        ),
        (
            LEAST + "pipeline:\n  name: ${NOT_SET_HERE}\n",
            ", line 4, pipeline.name: The environment variable NOT_SET_HERE is not set.",
        ),
        (
            LEAST + "pipeline:\n  name: 'shop '\n",
            ", line 4, pipeline.name: 'shop ' begins or ends with white space, and cannot be the name of a pipeline. Write 'shop'.",
        ),
        (LEAST + "source:\n  uri: x\n", ", line 3, source: it is there twice."),
        (LEAST + "route:\n  - source-table: a.b\n", ", line 3, route: tables cannot be routed to other names yet. Take it out"),
        (LEAST + "transform: []\n", ", line 3, transform: rows cannot be transformed yet."),
        (
            LEAST + "sink:\n  type: mysql\n  hostname: db\n  port: 3306\n  username: repl\n  password: open-sesame\n",
            ', line 4, sink.type: a sink is named by its URI. Write uri: "mysql://repl:${PASSWORD}@db:3306/" in place of type',
        ),
        (
            "source:\n  type: mysql\n",
            ', line 2, source.type: a source is named by its URI. Write uri: "file:///data/changefeed?protocol=csv"',
        ),
        ("sources:\n  uri: file:///cf\n", ", line 1, sources: it is not known here. Did you mean 'source'?"),
        ("source:\n  url: file:///cf\n", ", line 2, source.url: it is not known here. Did you mean 'uri'?"),
        (LEAST + "pipeline:\n  tables: *.*\n", " Put values that begin with * into quotes: tables: '*.*,!shop.tmp_*'."),
        (LEAST + "pipeline:\n  tables: *shop\n", " Put values that begin with * into quotes: tables: '*.*,!shop.tmp_*'."),
        (LEAST + "pipeline:\n  tables: !shop.tmp_*\n", ", pipeline.tables: !shop.tmp_* is not in quotes. Put values that"),
        ("- source\n", ": it must be a mapping with source:, sink: and pipeline:."),
        ("source: [\n", ", line 2 is not valid YAML: "),
        ("", ", source: it is missing."),
    ],
)
def test_a_mistake_is_one_sentence_with_file_line_and_key(
    text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, text)
    assert main(["run", str(path), "--once"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"error: The definition {path}")
    assert told in shown
    assert shown.count("\n") == 1
    assert "open-sesame" not in shown


@pytest.mark.parametrize("command", [("run", "--source", "file:///nowhere"), ("status",), ("reset", "--yes"), ("ddl", "list")])
@pytest.mark.parametrize("name", ["shop ", " shop", "shop\t", "shop\u3000"])
def test_a_name_with_white_space_around_it_is_refused(
    command: tuple[str, ...], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Servers take it for the name without, and the pipeline's lock would be another one."""
    assert main([*command, "--sink", f"duckdb://{tmp_path}/t.duckdb", "--name", name]) == 2
    assert f"{name!r} begins or ends with white space" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [("run", "--source", "file:///nowhere"), ("status",), ("reset", "--yes"), ("ddl", "list")])
@pytest.mark.parametrize("name", ["shop\udcff", "\udcff\udcfe", "\ud800"])
def test_a_name_that_is_not_unicode_is_refused(
    command: tuple[str, ...], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--sink", f"duckdb://{tmp_path}/t.duckdb", "--name", name]) == 2
    assert "cannot be the name of a pipeline: it has half of a character" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('source:\n  uri: a\npipeline:\n  name: "\\UFFFFFFFF"\n', "line 4 is not valid YAML: a number in it"),
        ('a: b\nname: "\\U00110000"\n', "line 2 is not valid YAML: a number in it"),
        (f"%YAML 1.{'9' * 5000}\n---\na: b\n", "line 1 is not valid YAML: a number in it"),
        ('pipeline:\n  name: "\\uD800"\n', "line 2, pipeline.name: it has half of a character"),
        ('pipeline:\n  tables: "\\uD800.*"\n', "line 2, pipeline.tables: it has half of a character"),
        ('pipeline:\n  "\\uD800": x\n', r"line 2, pipeline.\ud800: it has half of a character"),
        ("a: " + "[" * 1000, "is nested too deeply"),
        ("- " * 1000, "is nested too deeply"),
        ("source: &a\n  uri: x\n  more: *a\n", "is nested too deeply"),
        (
            "a: &a [x, x, x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}]\n" for a, b in pairwise("abcdefghijk")),
            "is too long",
        ),
        (
            'source: {uri: x}\npipeline: {name: "${file:a\\0b}"}',
            "line 2, pipeline.name: ${file:…} names 'a\\x00b'",
        ),
        ("source: {uri: x, changefeed: ~no-such-user/x}", "line 1, source.changefeed: ~no-such-user/x names no folder"),
        (f"{LEAST}pipeline: {{poll-interval: {'9' * 400}}}", "is not a duration"),
        (f"{LEAST}pipeline: {{poll-interval: ٣s}}", "is not a duration"),
        (f"{LEAST}pipeline: {{max-cut: {'9' * 5000}}}", "is not a size"),
    ],
    ids=[
        "escape",
        "above-unicode",
        "directive",
        "half-name",
        "half-filter",
        "half-key",
        "brackets",
        "lists",
        "itself",
        "laughs",
        "NUL",
        "home",
        "endless",
        "other digits",
        "large",
    ],
)
def test_a_file_that_no_person_would_write_is_refused_all_the_same(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError) as refused:
        read_settings(written(tmp_path, text))
    assert said in str(refused.value)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"nowhere\.yaml cannot be read: No such file"):
        read_settings(tmp_path / "nowhere.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"source: \xe4\n")
    with pytest.raises(DefinitionError, match=r"latin\.yaml cannot be read: it is not UTF-8"):
        read_settings(tmp_path / "latin.yaml")


EITHER_WAY = ["run", "status", "validate", "inspect", "reset", "replay-dead-letters", "table list", "ddl list"]
WITH_OPTION = ["table hold t.a", "table skip t.a --to latest", "table resync t.a --at 1", "ddl approve 1", "ddl edit 1 SELECT"]


@pytest.mark.parametrize(
    "line", [*(f"{name} gone.yaml" for name in EITHER_WAY), *(f"{name} -d gone.yaml" for name in EITHER_WAY + WITH_OPTION)]
)
def test_every_command_takes_a_definition(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    assert "The definition gone.yaml cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("table resume t.a life.yaml", "Write -d life.yaml. See headrace table resume --help."),
        ("table resume life.yaml", "life.yaml is a file, but no table and no schema change. Write -d life.yaml."),
        ("table skip life.yaml --to latest", "Write -d life.yaml."),
        ("ddl approve life.yaml", "Write -d life.yaml."),
        ("status life.yaml -d other.yaml", "There are two definition files: life.yaml and other.yaml. Name one of them."),
    ],
)
def test_a_definition_in_a_wrong_place_is_told(
    line: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "life.yaml").write_text(LEAST)
    assert main(line.split()) == 2
    assert told in capsys.readouterr().err


def test_a_definition_with_d_is_that_of_the_argument(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "source: {uri: 'file:///nowhere?protocol=csv'}\n")
    assert [main(["inspect", *words]) for words in ([str(path)], ["-d", str(path)], [str(path), "-d", str(path)])] == [4, 4, 4]
    assert capsys.readouterr().err.count("There is no folder") == 3


def test_validate_takes_the_name_of_a_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Definition] = []
    monkeypatch.setattr("headrace.cli.validation.show_checks", lambda definition, *_, **__: checked.append(definition))
    assert main(["validate", "--source", "file:///cf", "--name", "shop"]) == 0
    assert [definition.name for definition in checked] == ["shop"]


@pytest.mark.long
def test_status_and_validate_take_a_definition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop = write_shop(tmp_path / "cf")
    (tmp_path / "changefeed.toml").write_text(shop.changefeed_toml)
    sink = f"duckdb://{tmp_path}/f.duckdb"
    text = f"source:\n  uri: {shop.source_uri}\n  changefeed: changefeed.toml\nsink:\n  uri: {sink}\npipeline:\n  name: shop\n"
    path = written(tmp_path, text)
    assert main(["validate", str(path), "--no-spark"]) == 0
    assert "ok      keys" in capsys.readouterr().out
    assert main(["status", str(path)]) == 2
    assert "There is no pipeline named shop: the DuckDB file" in capsys.readouterr().err


@pytest.mark.long
def test_validate_knows_declared_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop = write_shop(tmp_path / "cf")
    arguments = ["validate", "--source", shop.source_uri, "--sink", f"duckdb://{tmp_path}/f.duckdb", "--no-spark"]
    table = sorted(shop.rows)[0]
    assert main([*arguments, "--key", f"{table}=nothing"]) == 2
    assert "failed  source files: table " in capsys.readouterr().out


@pytest.mark.parametrize("page", ["README.md", "docs/operations.md"])
def test_the_files_that_the_docs_show_are_read(page: str, tmp_path: Path) -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        assert read_settings(written(tmp_path, block)).definition(RunOptions()).options.keys


def test_blanks_around_a_count_are_none_of_it() -> None:
    assert parse_count("\x1c1000 ") == 1000  # what strip() takes away, int() does not
