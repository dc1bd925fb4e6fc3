"""What a run shows from begin to end."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from headrace.cli.display import RunDisplay
from headrace.cli.main import main
from headrace.cli.output import PlainOutput, TerminalOutput
from headrace.errors import EXIT_TABLE_STOPPED
from headrace.model.cut import Cut, CutRound
from headrace.model.ledger import CutRecord, LedgerState, TableProgress, TableStatus
from headrace.model.outcome import Problem
from headrace.model.table import TableId
from headrace.model.tso import tso_from_ms
from headrace.pipeline import runner

TSO = tso_from_ms(1_717_579_823_694)
CUT = CutRecord(TSO, "2024-06-05T09:30:30+00:00", 2.0, files=3, read_rows=90_000, upserts=80_000, deletes=10)
EMPTY = CutRecord(TSO, "2024-06-05T09:30:31+00:00", 0.0, files=0, read_rows=0, upserts=0, deletes=0)


class Streams:
    def __init__(self) -> None:
        self.out, self.errors = io.StringIO(), io.StringIO()

    def plain(self) -> PlainOutput:
        return PlainOutput(self.out, self.errors)

    def terminal(self) -> TerminalOutput:
        console = Console(file=self.out, force_terminal=True, width=60, color_system=None, _environ={"TERM": "xterm"})
        return TerminalOutput(console, self.errors)


@pytest.fixture
def streams() -> Streams:
    return Streams()


def test_on_a_terminal_one_line_about_all_cuts_stays(streams: Streams) -> None:
    with RunDisplay(streams.terminal()) as display:
        for _ in range(2):
            display.cut_started(Cut(TSO, (CutRound(),)))
            display.cut_finished(CUT, TSO)
        display.cut_finished(EMPTY, TSO)
    last = streams.out.getvalue().splitlines()[-1]
    assert "applied up to 2024-06-05 09:30:23.694 UTC: 6 files, 180,000 rows read, 160,000 upserts, 20 deletes in 4.0 s" in last


def test_elsewhere_each_cut_is_a_line_and_there_is_no_sum(streams: Streams) -> None:
    with RunDisplay(streams.plain()) as display:
        display.cut_finished(CUT, TSO)
        display.cut_finished(CUT, TSO)
    assert [line.split(" in ")[0].split(", ", 1)[1] for line in streams.out.getvalue().splitlines()] == [
        "90,000 rows read, 80,000 upserts, 10 deletes"
    ] * 2


def test_how_much_of_a_backlog_is_left_is_told(streams: Streams) -> None:
    with RunDisplay(streams.plain()) as display:
        display.cut_finished(CUT, TSO, 3 << 29)
        display.cut_finished(CUT, TSO, 900)
        display.cut_finished(CUT, TSO)
    told = [line for line in streams.out.getvalue().splitlines() if "in parts" in line]
    assert told == ["catching up in parts, 1.5 GiB of files to go", "catching up in parts, 900 bytes of files to go"]


@pytest.mark.parametrize("where", ["plain", "terminal"])
def test_a_run_with_nothing_to_do_says_so(streams: Streams, where: str) -> None:
    with RunDisplay(getattr(streams, where)()) as display:
        display.cut_finished(EMPTY, TSO)
    assert streams.out.getvalue().rstrip().endswith("nothing new was applied")


def test_what_goes_on_is_told_as_what_it_is(streams: Streams) -> None:
    with RunDisplay(streams.plain()) as display:
        display.table_resumed(TableId("d1", "t"))
        display.table_resumed(TableId("d.1"))
    assert streams.out.getvalue().splitlines()[:2] == ["table d1.t goes on", "database d.1 goes on"]


def test_a_run_names_the_stopped_tables_of_which_it_has_said_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [TableId("shop", name) for name in ("bad", "held", "known", "sound")]
    stands = [TableStatus.STOPPED, TableStatus.HELD, TableStatus.STOPPED, TableStatus.RUNNING]
    tables = {t: TableProgress(t, 100, status=status) for t, status in zip(names, stands, strict=True)}

    class Run:
        state = LedgerState("shop", checkpoint=200, tables=tables)

        def __init__(self, _definition: object, display: RunDisplay) -> None:
            self.display = display

        def run(self) -> int:
            self.display.table_stopped(Problem(names[2], "a value is damaged."))
            return EXIT_TABLE_STOPPED

    monkeypatch.setattr(runner, "PipelineRun", Run)
    assert main(["run", "--once", "--source", "file:///cf", "--sink", "blackhole://", "--name", "shop"]) == EXIT_TABLE_STOPPED
    said, warned = capsys.readouterr()
    named = "--sink blackhole:// --name shop"
    assert warned.splitlines()[1:] == [
        f"warning: shop.bad: stopped; after the repair: headrace table resume shop.bad {named}",
        f"warning: shop.held: held; let it catch up: headrace table release shop.held {named}",
    ]
    assert said.splitlines()[-2:] == [
        "nothing new was applied",
        f"headrace table list {named} shows why, and what else can be done",
    ]


def test_a_run_that_fails_says_only_why(streams: Streams) -> None:
    with pytest.raises(RuntimeError), RunDisplay(streams.plain()):
        raise RuntimeError
    assert streams.out.getvalue() == ""
