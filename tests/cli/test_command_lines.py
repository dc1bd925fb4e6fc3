"""Commands that messages name are printed so that the user can run them as they are."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cli import output
from headrace.cli.command_lines import forget, remember, with_options
from headrace.cli.main import main
from headrace.model.ledger import JournalEntry, JournalState, TableProgress, TableStatus
from headrace.model.table import TableId
from headrace.pipeline.definition import Settings
from headrace.sinks.base import LedgerUpdate
from headrace.sinks.file_ledger import open_file_ledger

T = TableId("test", "nk")
WAITING = JournalEntry("100/test.nk/0000abcd", 100, (T,), "DROP TABLE `nk`", JournalState.WAITING)


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    yield
    forget()
    output._HIDDEN.clear()


@pytest.mark.parametrize(
    ("text", "completed"),
    [
        ("after the repair: headrace table resume test.nk", "headrace table resume test.nk -d nk.yaml"),
        ("headrace table skip 'a b.c'\"'\"'d' --to TSO|latest", "headrace table skip 'a b.c'\"'\"'d' -d nk.yaml --to"),
        ("Or give it up with headrace table skip.", "with headrace table skip -d nk.yaml."),
        ("headrace table skip --partition 0 --offset 7", "headrace table skip -d nk.yaml --partition 0"),
        ("It goes on when test.t does: headrace table release test.t.", "headrace table release test.t -d nk.yaml."),
        ("headrace table list shows it as held", "headrace table list -d nk.yaml shows"),
        ("decide: headrace ddl approve|skip|edit '1/a.b'", "headrace ddl approve|skip|edit '1/a.b' -d nk.yaml"),
        ("run headrace table resync test.nk --at TIME.", "headrace table resync test.nk -d nk.yaml --at TIME."),
        ("Decide with headrace ddl skip.", "headrace ddl skip -d nk.yaml."),
        ("forget the pipeline with headrace reset: it", "headrace reset -d nk.yaml: it"),
        ("(headrace replay-dead-letters --discard)", "(headrace replay-dead-letters -d nk.yaml --discard)"),
        ("headrace validate names the rights", "headrace validate -d nk.yaml names"),
        ("headrace status lists those it knows.", "headrace status -d nk.yaml lists"),
    ],
)
def test_a_command_in_a_sentence_gets_the_definition_file(text: str, completed: str) -> None:
    assert with_options(text) == text
    remember(Settings(), Path("nk.yaml"))
    assert completed in with_options(text)


@pytest.mark.parametrize(
    "text",
    [
        "headrace status --sink duckdb:///a.duckdb",
        "headrace table list -d other.yaml",
        "name a definition file: headrace run pipeline.yaml.",
        "See headrace table --help.",
        "headrace inspect file:///cf",
        "the folder headrace-status",
        "headrace table listings",
        "headrace table resume test.t --sink print://",
    ],
)
def test_what_is_complete_or_no_such_command_stays(text: str) -> None:
    remember(Settings(name="n"), Path("nk.yaml"))
    assert with_options(text) == text


def test_a_name_that_the_command_has_already_is_not_overridden() -> None:
    remember(Settings(sink="duckdb:///a.duckdb", name="mine"), None)
    assert with_options("headrace reset --name other.") == "headrace reset --sink duckdb:///a.duckdb --name other."


def test_each_command_gets_the_options_that_it_has() -> None:
    remember(Settings(source="file:///cf?protocol=csv", sink="print://", ledger="my ledger", name="n"), None)
    assert with_options("headrace table list") == "headrace table list --sink print:// --ledger LEDGER --name n"
    assert with_options("headrace validate") == "headrace validate --source SOURCE --sink print:// --name n"


@pytest.mark.parametrize(
    ("sink", "repeated"),
    [
        ("mysql://repl@db:3306/", "mysql://repl@db:3306/"),
        ("mysql://repl:${PASSWORD}@db/", "SINK"),
        ("mysql://repl:${file:/run/secret}@db/", "SINK"),
        ("mysql://repl:open-sesame@db/", "SINK"),
        ("mysql://repl:open-${PASSWORD}@db/", "SINK"),
        ("mysql://db/?password=open-sesame", "SINK"),
        ("mysql://repl:open#sesame@db/", "SINK"),
        ("duckdb:///a b.duckdb", "SINK"),
        ("duckdb:///o'brien.duckdb", "SINK"),
    ],
)
def test_a_sink_is_repeated_unless_it_holds_a_password_or_needs_quotes(sink: str, repeated: str) -> None:
    remember(Settings(sink=sink), None)
    assert with_options("headrace table list") == f"headrace table list --sink {repeated}"


@pytest.mark.parametrize("said", ["plain.duckdb", "o'brien.duckdb", "a b; c", "`x`", "$(y)"])
def test_a_table_that_is_called_like_a_command_runs_nothing_in_a_shell(said: str) -> None:
    """Its name stands in quotes, which what is put behind the command in it does not end."""
    name = 'test.headrace status $(touch pwn)" #'
    text = f"headrace reset --table {shlex.quote(name)}"
    remember(Settings(sink=f"duckdb:///{said}", ledger=said, name=said), Path(said))
    words = shlex.split(with_options(text))
    assert len([word for word in words if "pwn" in word]) == 1
    assert "$(touch pwn)" in words[-1]


def recorded(folder: Path) -> None:
    """A pipeline whose table waits before a schema change."""
    ledger = open_file_ledger(str(folder))
    ledger.acquire("nk", "file:///cf", "", 7)
    own = TableProgress(T, 90, status=TableStatus.WAITING, reason="Decide with headrace ddl skip.")
    ledger.update(LedgerUpdate(checkpoint=200, tables=(own,), journal=(WAITING,)))


def test_what_status_prints_runs_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recorded(tmp_path / "ledger")
    called = ["--sink", "print://", "--ledger", "ledger", "--name", "nk"]
    assert main(["status", *called]) == 0
    told = capsys.readouterr().out
    (command,) = re.findall(r"decide: (headrace ddl .*)", told)
    assert main([word.replace("skip|edit", "skip") for word in shlex.split(command)[1:]]) == 0
    (tmp_path / "nk.yaml").write_text('source: {uri: "file:///cf"}\nsink: {uri: "print://"}\npipeline: {name: nk, ledger: ledger}')
    capsys.readouterr()
    assert main(["status", "nk.yaml", "--json"]) == 0
    (event,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert event["tables"][0]["reason"] == "Decide with headrace ddl skip -d nk.yaml."
    assert event["tables"][0]["goes_on"] == ["decide: headrace ddl skip|edit '100/test.nk/0000abcd' -d nk.yaml"]


def test_nothing_of_one_call_is_told_in_the_next_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(tmp_path / "ledger")
    assert main(["status", "--sink", "print://", "--ledger", str(tmp_path / "ledger")]) == 0
    capsys.readouterr()
    assert with_options("headrace table list") == "headrace table list"


def test_a_command_about_a_record_of_a_stream_names_the_source() -> None:
    remember(Settings(source="tidb-binlog://h:9092/t", sink="duckdb:///x.duckdb"), None)
    told = with_options("headrace table skip shop.a --partition 0 --offset 3, headrace table skip shop.a --to latest")
    named, options = "--source tidb-binlog://h:9092/t", "--sink duckdb:///x.duckdb"
    skip = "headrace table skip shop.a"
    assert told == f"{skip} {named} {options} --partition 0 --offset 3, {skip} {options} --to latest"
    remember(Settings(source="kafka://h:9092/t?protocol=canal-json", sink="duckdb:///x.duckdb"), None)
    assert "headrace table skip --source SOURCE --sink" in with_options("headrace table skip --partition 0 --offset 3")


def test_a_name_in_backquotes_that_looks_like_a_command_stays_as_it_is() -> None:
    remember(Settings(sink="duckdb:///x.duckdb"), None)
    text = "If the database `headrace status` is to be replicated, run: GRANT ALL ON `a``headrace reset`.*; See headrace status"
    assert with_options(text) == f"{text} --sink duckdb:///x.duckdb"


def test_what_is_no_sentence_stays_as_it_is_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = open_file_ledger(str(tmp_path / "ledger"))
    ledger.acquire("default", "file:///cf", "", 7)
    statement = "CREATE TABLE t (id INT COMMENT 'headrace reset')"
    entry = JournalEntry("100/test.t/0000abcd", 100, (TableId("test", "t"),), statement, JournalState.WAITING)
    ledger.update(LedgerUpdate(checkpoint=200, journal=(entry,)))
    assert main(["ddl", "list", "--sink", "print://", "--ledger", str(tmp_path / "ledger"), "--json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["statement"] for event in events if event["event"] == "schema_change"] == [statement]
