"""What people and machines get to read."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Callable

import pytest
from rich.console import Console

from headrace.cli.output import JsonOutput, Output, PlainOutput, TerminalOutput, hide_secrets, make_output, redact, shown
from headrace.cli.progress import (
    Figures,
    HeartbeatProgress,
    cut_text,
    figures_fields,
    figures_text,
    lag_seconds,
    seconds_text,
    size_text,
)
from headrace.model.ledger import CutRecord
from headrace.model.tso import tso_from_ms

NOW = 1_717_579_830.0
TSO = tso_from_ms(1_717_579_823_694, 7)  # 2024-06-05 09:30:23.694
CUT = CutRecord(TSO, "2024-06-05T09:30:30+00:00", 2.0, 1_200, 90_000, 80_000, 10, 5_000, 1)


class Streams:
    def __init__(self) -> None:
        self.out, self.errors = io.StringIO(), io.StringIO()

    def plain(self) -> Output:
        return PlainOutput(self.out, self.errors)

    def json(self) -> Output:
        return JsonOutput(self.out, self.errors)

    def terminal(self) -> Output:
        console = Console(
            file=self.out, force_terminal=True, width=60, color_system=None, highlight=False, _environ={"TERM": "xterm"}
        )
        return TerminalOutput(console, self.errors)

    def events(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.out.getvalue().splitlines()]


@pytest.fixture
def streams() -> Streams:
    return Streams()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_lines_are_for_people_and_events_for_machines(streams: Streams) -> None:
    plain = streams.plain()
    plain.line("hello [bold]you[/bold]")
    plain.event("status", checkpoint=1)
    assert streams.out.getvalue() == "hello [bold]you[/bold]\n"
    assert not plain.is_json


def test_machines_get_one_object_a_line_with_exact_tsos(streams: Streams) -> None:
    machine = streams.json()
    machine.line("hello\nyou")
    machine.event("status", checkpoint=TSO, tables=[{"table": "shop.ü"}])
    machine.table("tables", ("table", "rows"), [("shop.a", 3)])
    assert machine.is_json
    assert streams.events() == [
        {"event": "message", "text": "hello\nyou"},
        {"event": "status", "checkpoint": TSO, "tables": [{"table": "shop.ü"}]},
        {"event": "table", "title": "tables", "rows": [{"table": "shop.a", "rows": 3}]},
    ]


def test_warnings_and_errors_go_to_standard_error(streams: Streams) -> None:
    for each in (streams.plain(), streams.json(), streams.terminal()):
        each.warning("low")
        each.error("broken")
    assert streams.out.getvalue() == ""
    assert streams.errors.getvalue().splitlines() == [
        "warning: low",
        "error: broken",
        '{"event": "warning", "message": "low"}',
        '{"event": "error", "message": "broken"}',
        "warning: low",
        "error: broken",
    ]


def test_plain_tables_are_aligned(streams: Streams) -> None:
    streams.plain().table("tables", ("table", "rows"), [("shop.orders", 12), ("shop.a", 1)])
    streams.plain().table("nothing", ("table",), [])
    assert streams.out.getvalue() == "tables:\n  table        rows\n  shop.orders  12\n  shop.a       1\n"


def test_a_terminal_shows_every_cell_whole(streams: Streams) -> None:
    reason = "value [red]'x'[/red] does not fit " * 5
    streams.terminal().table("tables", ("table", "reason", "rows"), [("shop.orders", reason, 12)])
    shown = streams.out.getvalue()
    assert "".join(reason.split()) in "".join(cell.strip() for line in shown.splitlines() for cell in line.split("│")[2:3]).replace(
        " ", ""
    )


def test_long_lines_are_not_broken_on_a_terminal(streams: Streams) -> None:
    streams.terminal().line("x" * 200)
    assert streams.out.getvalue() == "x" * 200 + "\n"


@pytest.mark.parametrize("kind", ["plain", "json", "terminal"])
def test_secrets_appear_nowhere(streams: Streams, kind: str) -> None:
    hide_secrets(["s3cr3t/+", "ab", ""])
    out: Output = getattr(streams, kind)()
    out.line("key s3cr3t/+ and ab, but not abc")
    out.event("x", nested={"a": ["s3cr3t/+"]})
    out.table("s3cr3t/+", ("key",), [("s3cr3t/+",)])
    out.warning("s3cr3t/+")
    out.error("s3cr3t/+")
    with out.progress() as progress:
        progress.phase("reading s3cr3t/+")
        time.sleep(0.3)
    written = streams.out.getvalue() + streams.errors.getvalue()
    assert "s3cr3t" not in written
    assert "key *** and ***, but not abc" in written


ACTING = {
    "a color": ("\x1b[31mred", "\\x1b[31mred"),
    "a title": ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
    "a link": ("\x1b]8;;http://evil\x1b\\click", "\\x1b]8;;http://evil\\x1b\\click"),
    "a control sequence in one character": ("\x9b2J", "\\x9b2J"),
    "a line of its own": ("x\nerror: all is lost", "x\\nerror: all is lost"),
    "a line in the place of another": ("x\rdone", "x\\rdone"),
    "a line break of Unicode": ("x\u2028y\x85z", "x\\u2028y\\x85z"),
    "deleted signs": ("x\x08\x7f", "x\\x08\\x7f"),
    "the other direction": ("abc\u202edcba\u2066", "abc\\u202edcba\\u2066"),
    "signs without a shape": ("a\u200bb\ufeffc\U000e0041", "a\\u200bb\\ufeffc\\U000e0041"),
    "half a character": ("a\udc80", "a\\udc80"),
    "a tab and a zero": ("a\tb\0", "a\\tb\\x00"),
    "markup": ("[red]x[/red] [link=http://evil]y[/link] [@click=z]", "[red]x[/red] [link=http://evil]y[/link] [@click=z]"),
    "an emoji's name": (":skull:", ":skull:"),
    "words": (
        "\u6570\u636e \u0434\u0430 na\u00efve \U0001f469\u200d\U0001f680",
        "\u6570\u636e \u0434\u0430 na\u00efve \U0001f469\u200d\U0001f680",
    ),
}


def every_way(target: Output, text: str) -> None:
    """Prints a text in each way there is."""
    target.line(text)
    target.warning(text)
    target.error(text)
    target.event("found", table=text, **{"list": [text], "map": {text: text}})
    target.table(text, (text,), [(text,)])
    with target.progress() as progress:
        progress.phase(text)


@pytest.mark.parametrize("kind", ["plain", "terminal"])
@pytest.mark.parametrize(("text", "printed"), ACTING.values(), ids=ACTING.keys())
def test_no_name_acts_on_a_terminal(streams: Streams, kind: str, text: str, printed: str) -> None:
    target = getattr(streams, kind)()
    if kind == "terminal":
        target._console.width = 200
    every_way(target, text)
    said = streams.out.getvalue() + streams.errors.getvalue()
    assert said.count(printed) >= 5
    if printed != text:
        assert text not in said
    # What rich itself does: colors, the cursor, and the line that moves.
    allowed = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[\n\r]", "", said) if kind == "terminal" else said.replace("\n", "")
    assert shown(allowed) == allowed
    assert "\x1b]" not in said


@pytest.mark.parametrize("text", [text for text, _ in ACTING.values()], ids=ACTING.keys())
def test_machines_get_every_name_as_it_is_in_escapes(streams: Streams, text: str) -> None:
    every_way(streams.json(), text)
    said = streams.out.getvalue() + streams.errors.getvalue()
    assert shown(said.replace("\n", "")) == said.replace("\n", "")
    assert streams.events()[0]["text"] == text
    assert streams.events()[1] == {"event": "found", "table": text, "list": [text], "map": {text: text}}


def test_a_secret_is_blotted_out_before_signs_are_escaped(streams: Streams) -> None:
    hide_secrets(["pass\x1bword"])
    streams.plain().line("it is pass\x1bword")
    assert streams.out.getvalue() == "it is ***\n"


def test_nothing_hidden_changes_nothing() -> None:
    hide_secrets(["", "a"])
    assert redact("a banana") == "*** banana"


def test_without_a_terminal_phases_and_cuts_are_one_line_each(streams: Streams) -> None:
    with streams.plain().progress() as progress:
        progress.phase("starting Spark")
        progress.cut_started(3, TSO)
        progress.advance(1, 100)
        progress.cut_finished(CUT)
        progress.idle("following", TSO)
    first, second = streams.out.getvalue().splitlines()
    assert first == "starting Spark"
    assert second.startswith("applied up to 2024-06-05 09:30:23.694 UTC: 1,200 files, 90,000 rows read, 80,000 upserts, 10 deletes")


def test_machines_get_phases_and_cuts_as_events(streams: Streams) -> None:
    with streams.json().progress() as progress:
        progress.phase("starting Spark")
        progress.cut_finished(CUT)
    phase, cut = streams.events()
    assert phase == {"event": "phase", "text": "starting Spark"}
    assert (cut["event"], cut["checkpoint"], cut["files"], cut["upserts"], cut["deletes"]) == ("cut", TSO, 1_200, 80_000, 10)


def test_what_takes_long_shows_a_sign_of_life_and_waiting_does_not() -> None:
    beats: list[Figures] = []
    with HeartbeatProgress(phase=lambda _: None, beat=beats.append, cut=lambda *_: None, every=0.05) as progress:
        time.sleep(0.15)
        assert beats == []
        progress.phase("starting Spark")
        wait_for(lambda: len(beats) >= 2)
        progress.idle("following", TSO)
        time.sleep(0.05)
        count = len(beats)
        time.sleep(0.2)
        assert len(beats) == count
    assert beats[0].phase == "starting Spark"


def test_a_terminal_shows_at_once_what_is_going_on_and_lets_lines_pass(streams: Streams) -> None:
    terminal = streams.terminal()
    with terminal.progress() as progress:
        progress.phase("starting Spark")
        assert "starting Spark: 0.0 s" in streams.out.getvalue()
        terminal.line("a notice")
        progress.cut_started(12, TSO)
        progress.advance(3, 90_000)
        wait_for(lambda: "3 of 12 files, 90,000 rows" in streams.out.getvalue())
        progress.idle("following", TSO)
        assert "following: applied up to 2024-06-05" in streams.out.getvalue()
    assert "a notice\n" in streams.out.getvalue()


def test_figures_as_text() -> None:
    cutting = Figures("applying", NOW - 2, False, 3, 12, 90_000, TSO, NOW - 2)
    assert (
        figures_text(cutting, NOW)
        == "applying: 3 of 12 files, 90,000 rows, 45,000 rows/s, up to 2024-06-05 09:30:23.694 UTC, 2.0 s"
    )
    waiting = Figures("following", NOW - 2, True, checkpoint=TSO)
    assert figures_text(waiting, NOW) == "following: applied up to 2024-06-05 09:30:23.694 UTC, lag 6.3 s"
    assert figures_text(Figures("starting Spark", NOW - 4), NOW) == "starting Spark: 4.0 s"
    assert figures_fields(cutting, NOW)["rows_per_second"] == 45_000


def test_one_of_a_kind_is_no_plural() -> None:
    one = CutRecord(TSO, "2024-06-05T09:30:30+00:00", 2.0, files=1, read_rows=1, upserts=0, deletes=1, schema_changes=1)
    assert "UTC: 1 file, 1 row read, 0 upserts, 1 delete, 1 schema change in 2.0 s" in cut_text(one, NOW)
    figures = Figures("applying", NOW - 2, files_total=1, rows=1, cut_ts=TSO, cut_since=NOW - 2)
    assert "0 of 1 file, 1 row, " in figures_text(figures, NOW)
    assert (size_text(1), size_text(0)) == ("1 byte", "0 bytes")


def test_a_cut_as_text() -> None:
    assert cut_text(CUT, NOW).endswith("10 deletes, 1 schema change in 2.0 s (45,000 rows/s), lag 6.3 s")
    assert lag_seconds(TSO, NOW - 1_000) == 0.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.44, "0.4 s"), (42.2, "42 s"), (200, "3 min 20 s"), (18_200, "5 h 3 min"), (1_051_200, "12 d 4 h")],
)
def test_seconds_as_text(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_the_output_is_chosen_by_where_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(make_output(json=True)) is JsonOutput
    assert type(make_output(json=False)) is PlainOutput
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert type(make_output(json=False)) is TerminalOutput
