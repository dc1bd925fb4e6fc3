"""``headrace run --until-end``: a finished changefeed, with what lies beyond its last checkpoint."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from crashing import Crashed, CrashPoints, install
from following import defined
from harness import assert_state
from headrace.cli.display import RunDisplay
from headrace.cli.main import main
from headrace.cli.output import make_output
from headrace.engine.run_options import RunOptions
from headrace.errors import EXIT_TABLE_STOPPED, EXIT_USAGE, SourceNotReadyError
from headrace.model.table import Column
from headrace.model.tso import tso_from_datetime
from headrace.pipeline.registry import open_sink
from headrace.pipeline.runner import PipelineRun
from headrace.testing.engine import LocalEngine
from headrace.testing.faults import Moment, Step, armed, crash_at
from headrace.testing.ticdc_writer import RowChange
from headrace.testing.upstream import Delete, Insert, Update
from places import Place
from servers import MariaDb
from targets import DuckDbTarget, MariaDbTarget, Target
from upstreams import INT, ORDERS, VISITS, Changefeed, small_shop, visit

pytestmark = pytest.mark.pipeline


@pytest.fixture
def place(place: Place) -> tuple[Target, str]:
    """An empty target, and its sink URI."""
    return place.fresh()


@pytest.fixture
def changefeed(tmp_path: Path) -> Changefeed:
    return Changefeed(tmp_path)


def run(changefeed: Changefeed, sink_uri: str, *, until_end: bool, quiet: float = 0.0) -> int:
    options = RunOptions(once=not until_end, until_end=until_end, quiet=quiet, poll_interval=0.02)
    with RunDisplay(make_output(json=False)) as display:
        return PipelineRun(defined(changefeed, sink_uri, options), display, LocalEngine()).run()  # type: ignore[arg-type]


def drain(changefeed: Changefeed, sink_uri: str) -> int:
    return run(changefeed, sink_uri, until_end=True)


def checkpoint_of(sink_uri: str) -> int:
    with open_sink(sink_uri) as sink:
        assert sink.ledger is not None
        state = sink.ledger.peek("default")
        sink.ledger.close()
    assert state is not None
    assert state.attempted <= state.checkpoint
    return state.checkpoint


def goes_beyond(changefeed: Changefeed) -> None:
    """Rows and a schema change that no checkpoint covers; nothing comes after the schema change."""
    upstream = changefeed.upstream
    upstream.execute(Insert(ORDERS, {"id": 7, "name": "seven"}), Delete(ORDERS, (1,)))
    upstream.execute(Update(ORDERS, (2,), {"name": "two"}), Update(ORDERS, (3,), {"id": 33}))
    visit(upstream, "/help", 4, 2)
    upstream.execute(Delete(VISITS, ("/", 1)))
    upstream.add_column(ORDERS, Column("price", INT, default="7"))
    changefeed.writer.flush()


def test_t73_a_finished_changefeed_is_taken_to_its_end(
    place: tuple[Target, str], changefeed: Changefeed, capsys: pytest.CaptureFixture[str]
) -> None:
    target, uri = place
    small_shop(changefeed, with_bag=True)
    before = changefeed.state()
    goes_beyond(changefeed)
    assert run(changefeed, uri, until_end=False) == 0
    assert_state(target, before)
    assert drain(changefeed, uri) == 0
    assert_state(target, changefeed.state())
    said = capsys.readouterr()
    assert "warning: 8 rows and 1 schema changes lie beyond the checkpoint in metadata" in said.err
    assert "nothing changes for 0 s" in said.out
    assert checkpoint_of(uri) == tso_from_datetime(changefeed.upstream.now)


def test_a_second_final_drain_changes_nothing(
    place: tuple[Target, str], changefeed: Changefeed, capsys: pytest.CaptureFixture[str]
) -> None:
    target, uri = place
    small_shop(changefeed, with_bag=True)
    goes_beyond(changefeed)
    assert drain(changefeed, uri) == 0
    checkpoint = checkpoint_of(uri)
    capsys.readouterr()
    assert drain(changefeed, uri) == 0
    said = capsys.readouterr()
    assert "nothing new was applied" in said.out
    assert "lie beyond" not in said.err
    assert checkpoint_of(uri) == checkpoint
    assert_state(target, changefeed.state())


def test_a_schema_change_at_the_last_checkpoint_is_taken(place: tuple[Target, str], changefeed: Changefeed) -> None:
    target, uri = place
    small_shop(changefeed, with_bag=False)
    changefeed.upstream.add_column(ORDERS, Column("price", INT, default="7"))
    changefeed.writer.checkpoint(tso_from_datetime(changefeed.upstream.now))
    assert run(changefeed, uri, until_end=False) == 0
    assert target.columns("shop", "orders") == {"id", "name"}
    assert drain(changefeed, uri) == 0
    assert_state(target, changefeed.state())


def test_a_changefeed_that_ended_before_its_first_checkpoint_is_taken_whole(
    place: tuple[Target, str], changefeed: Changefeed, capsys: pytest.CaptureFixture[str]
) -> None:
    target, uri = place
    small_shop(changefeed, with_bag=True)
    goes_beyond(changefeed)
    (changefeed.writer.root / "metadata").unlink()
    assert drain(changefeed, uri) == 0
    assert "There is no metadata: the changefeed ended before its first checkpoint" in capsys.readouterr().err
    assert_state(target, changefeed.state())


def test_a_table_that_stopped_is_taken_after_its_repair_without_metadata_too(tmp_path: Path, changefeed: Changefeed) -> None:
    target = DuckDbTarget(tmp_path / "target.duckdb")
    small_shop(changefeed, with_bag=True)
    goes_beyond(changefeed)
    (changefeed.writer.root / "metadata").unlink()
    (damaged, *_) = sorted((changefeed.writer.root / "shop" / "orders").rglob("CDC*.csv"))
    whole = damaged.read_bytes()
    damaged.write_bytes(b"nonsense\r\n" + whole)
    assert drain(changefeed, target.uri) == EXIT_TABLE_STOPPED
    assert drain(changefeed, target.uri) == EXIT_TABLE_STOPPED
    damaged.write_bytes(whole)
    assert drain(changefeed, target.uri) == 0
    assert_state(target, changefeed.state())


def test_a_folder_of_something_else_has_no_end(tmp_path: Path, changefeed: Changefeed) -> None:
    changefeed.writer.root.mkdir()
    with pytest.raises(SourceNotReadyError, match="is empty"):
        drain(changefeed, DuckDbTarget(tmp_path / "target.duckdb").uri)


def test_files_without_commit_ts_are_all_taken_and_the_schema_changes_with_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changefeed = Changefeed(tmp_path, include_commit_ts=False, output_old_value=False)
    target = DuckDbTarget(tmp_path / "target.duckdb")
    small_shop(changefeed, with_bag=False)
    upstream = changefeed.upstream
    upstream.execute(Insert(ORDERS, {"id": 7, "name": "seven"}))
    upstream.add_column(ORDERS, Column("price", INT, default="7"))
    upstream.execute(Insert(ORDERS, {"id": 8, "name": "eight", "price": 8}))
    changefeed.writer.flush()
    assert drain(changefeed, target.uri) == 0
    assert "carry no commit ts, so they are taken whole in any case" in capsys.readouterr().err
    assert_state(target, changefeed.state())


def test_a_record_that_is_cut_off_at_the_end_stops_its_table(
    place: tuple[Target, str], changefeed: Changefeed, capsys: pytest.CaptureFixture[str]
) -> None:
    target, uri = place
    small_shop(changefeed, with_bag=True)
    (orders,) = changefeed.state(ORDERS).tables
    changefeed.upstream.execute(Insert(ORDERS, {"id": 7, "name": "seven"}))
    visit(changefeed.upstream, "/help", 4, 1)
    changefeed.upstream.execute(Insert(ORDERS, {"id": 8, "name": "eight"}))
    written = {path.parts[-4]: path for path in changefeed.writer.flush()}
    whole = written["orders"].read_bytes()
    written["orders"].write_bytes(whole[:-6])
    assert drain(changefeed, uri) == EXIT_TABLE_STOPPED
    assert "line 2: the last record is cut off in the middle, and no later file repeats it" in capsys.readouterr().err
    assert_state(target, replace(changefeed.state(VISITS), tables=(*changefeed.state(VISITS).tables, orders)))
    written["orders"].write_bytes(whole)
    assert drain(changefeed, uri) == 0
    assert_state(target, changefeed.state())


class Arriving(RunDisplay):
    """Another file arrives each time the run begins to wait, three times."""

    def __init__(self, changefeed: Changefeed) -> None:
        super().__init__(make_output(json=False))
        self.changefeed = changefeed
        self.waits = 0

    def phase(self, text: str) -> None:
        super().phase(text)
        if text.startswith("waiting until nothing changes"):
            self.waits += 1
            if self.waits <= 3:
                self.changefeed.upstream.execute(Insert(ORDERS, {"id": 100 + self.waits, "name": "late"}))
                self.changefeed.writer.flush()


def test_nothing_is_taken_while_files_still_arrive(tmp_path: Path, changefeed: Changefeed) -> None:
    target = DuckDbTarget(tmp_path / "target.duckdb")
    small_shop(changefeed, with_bag=False)
    options = RunOptions(until_end=True, quiet=0.2, poll_interval=0.02)
    started = time.monotonic()
    with Arriving(changefeed) as display:
        run = PipelineRun(defined(changefeed, target.uri, options), display, LocalEngine())  # type: ignore[arg-type]
        assert run.run() == 0
    assert display.waits == 4
    assert time.monotonic() - started >= 0.2
    assert_state(target, changefeed.state())


@pytest.mark.server
def test_a_crash_at_any_step_of_a_final_drain_is_made_good(
    mariadb: MariaDb, changefeed: Changefeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the cut is several transactions; in DuckDB it is one."""
    target, uri = MariaDbTarget(mariadb), mariadb.uri()
    small_shop(changefeed, with_bag=True)
    goes_beyond(changefeed)
    steps: list[str] = []
    fatal = 1
    while len(steps) == fatal - 1:
        points = CrashPoints(fatal)
        with monkeypatch.context() as patch, suppress(Crashed):
            install(points, patch)
            assert drain(changefeed, uri) == 0
        steps = points.passed
        assert drain(changefeed, uri) == 0, f"after a crash before step {fatal}, {steps[-1]}"
        assert_state(target, changefeed.state())
        fatal += 1
        mariadb.fresh()
    assert fatal > 10


def test_a_changefeed_that_goes_on_after_all_is_followed(place: tuple[Target, str], changefeed: Changefeed) -> None:
    target, uri = place
    small_shop(changefeed, with_bag=True)
    goes_beyond(changefeed)
    assert drain(changefeed, uri) == 0
    drained = changefeed.state()
    assert run(changefeed, uri, until_end=False) == 0
    assert_state(target, drained)
    changefeed.upstream.execute(Update(ORDERS, (33,), {"price": 1}), Delete(ORDERS, (4,)))
    changefeed.upstream.drop_column(ORDERS, "name")
    visit(changefeed.upstream, "/help", 4, 1)
    changefeed.upstream.checkpoint()
    assert run(changefeed, uri, until_end=False) == 0
    assert_state(target, changefeed.state())


def test_rows_that_come_after_the_final_drain_and_belong_before_its_end_are_told(
    tmp_path: Path, changefeed: Changefeed, capsys: pytest.CaptureFixture[str]
) -> None:
    target = DuckDbTarget(tmp_path / "target.duckdb")
    small_shop(changefeed, with_bag=True)
    changefeed.upstream.execute(Insert(ORDERS, {"id": 7, "name": "seven"}))
    late = tso_from_datetime(changefeed.upstream.now) + 1
    visit(changefeed.upstream, "/help", 4, 1)
    changefeed.writer.flush()
    assert drain(changefeed, target.uri) == 0
    capsys.readouterr()
    changefeed.writer.rows(ORDERS, late, [RowChange(after={"id": 8, "name": "late"})])
    changefeed.upstream.add_column(VISITS, Column("city", INT))
    changefeed.upstream.checkpoint()
    assert run(changefeed, target.uri, until_end=False) == 0
    said = capsys.readouterr().err
    assert said.count("came after --until-end had taken everything up to there: the changefeed was not finished") == 1
    assert "warning: table shop.orders: Rows with commit ts from" in said
    changefeed.writer.rows(ORDERS, late, [RowChange(after={"id": 8, "name": "late"})])
    changefeed.upstream.advance(1000)
    changefeed.upstream.checkpoint()
    assert run(changefeed, target.uri, until_end=False) == 0
    (told,) = (line for line in capsys.readouterr().err.splitlines() if "the changefeed was not finished" in line)
    assert told.startswith("warning: table shop.orders: rows may be missing: Rows with commit ts from")


def test_schema_changes_that_come_after_the_final_drain_and_belong_before_its_end_are_told(
    tmp_path: Path, changefeed: Changefeed, capsys: pytest.CaptureFixture[str]
) -> None:
    target = DuckDbTarget(tmp_path / "target.duckdb")
    small_shop(changefeed, with_bag=True)
    changefeed.upstream.execute(Insert(ORDERS, {"id": 7, "name": "seven"}))
    late = tso_from_datetime(changefeed.upstream.now) + 1
    visit(changefeed.upstream, "/help", 4, 1)
    changefeed.writer.flush()
    assert drain(changefeed, target.uri) == 0
    capsys.readouterr()
    schema = changefeed.upstream.schema(VISITS)
    changefeed.writer.schema_change(VISITS, late, "TRUNCATE TABLE `visits`", schema, 11)
    changefeed.upstream.checkpoint()
    # It counts before rows that were applied, so it waits for a person.
    assert run(changefeed, target.uri, until_end=False) == 3
    assert "warning: 1 schema files with versions from" in capsys.readouterr().err


def test_a_table_that_had_stopped_is_drained_when_it_is_repaired(place: tuple[Target, str], changefeed: Changefeed) -> None:
    target, uri = place
    small_shop(changefeed, with_bag=True)
    goes_beyond(changefeed)
    (damaged, *_) = sorted((changefeed.writer.root / "shop" / "orders").rglob("CDC*.csv"))
    whole = damaged.read_bytes()
    damaged.write_bytes(b"nonsense\r\n" + whole)
    assert drain(changefeed, uri) == EXIT_TABLE_STOPPED
    damaged.write_bytes(whole)
    assert drain(changefeed, uri) == 0
    assert_state(target, changefeed.state())


@pytest.mark.server
def test_rows_that_were_written_before_and_are_gone_end_the_run(mariadb: MariaDb, changefeed: Changefeed) -> None:
    """The intent of a drain that broke off is above everything that is there now."""
    small_shop(changefeed, with_bag=False)
    assert run(changefeed, mariadb.uri(), until_end=False) == 0
    changefeed.upstream.execute(Insert(ORDERS, {"id": 7, "name": "seven"}))
    (last,) = changefeed.writer.flush()
    changefeed.upstream.add_column(ORDERS, Column("price", INT, default="7"))
    with armed(crash_at(Moment.BEFORE, Step.MYSQL_STATEMENT)), suppress(Crashed):
        drain(changefeed, mariadb.uri())
    last.unlink()
    max((changefeed.writer.root / "shop" / "orders" / "meta").iterdir()).unlink()
    with pytest.raises(SourceNotReadyError, match=r"The files end at \d+, but rows up to \d+ may have been written before"):
        drain(changefeed, mariadb.uri())


def test_until_and_until_end_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--source", "file:///nowhere", "--until", "1", "--until-end"]) == EXIT_USAGE
    assert "--until and --until-end exclude each other" in capsys.readouterr().err
