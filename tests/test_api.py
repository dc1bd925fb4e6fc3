"""``import headrace``: pipelines in other people's programs."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

import headrace
from headrace.model.ledger import LedgerState
from headrace.model.tso import tso_to_datetime
from headrace.pipeline.definition import Definition
from headrace.testing.engine import LocalEngine
from headrace.testing.shop import write_shop
from headrace.testing.upstream import Insert
from upstreams import CUSTOMERS, KEY, NAME, ORDERS, Changefeed

pytestmark = pytest.mark.pipeline
ROOT = Path(__file__).parent.parent


@pytest.fixture
def feed(tmp_path: Path) -> Changefeed:
    feed = Changefeed(tmp_path / "changefeed")
    for table_id in (ORDERS, CUSTOMERS):
        feed.upstream.create_table(table_id, [KEY, NAME])
        feed.upstream.execute(Insert(table_id, {"id": 1, "name": "one"}))
    feed.upstream.checkpoint()
    return feed


@pytest.fixture
def pipeline(feed: Changefeed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> headrace.Pipeline:
    """One that runs without Spark."""
    monkeypatch.setattr("headrace.pipeline.runner.SparkEngine", lambda _settings: LocalEngine())
    return headrace.Pipeline(feed.uri, f"duckdb://{tmp_path}/shop.duckdb", changefeed=feed.toml, work=tmp_path / "work")


def damage(feed: Changefeed, table: str) -> Path:
    """Spoils the newest file of a table."""
    path = max((feed.writer.root / "shop" / table).rglob("CDC*.csv"))
    path.write_bytes(path.read_bytes().replace(b'"one"', b'"one'))
    return path


def test_a_run_applies_what_is_published_and_says_where_it_stands(feed: Changefeed, pipeline: headrace.Pipeline) -> None:
    assert pipeline.state() is None
    result = pipeline.run()
    assert (result.checkpoint, result.interrupted, result.stopped, result.problems) == (feed.watermark, False, (), ())
    assert result.checkpoint_time == tso_to_datetime(feed.watermark)
    assert {(table.name, str(table.status)) for table in result.tables} == {
        ("shop.orders", "running"),
        ("shop.customers", "running"),
    }
    assert sum(cut.upserts for cut in result.cuts) == 2
    again = pipeline.run()
    assert sum(cut.read_rows for cut in again.cuts) == 0
    assert pipeline.state() == again.state


def test_a_table_that_stops_is_in_the_result_and_raises_nothing(feed: Changefeed, pipeline: headrace.Pipeline) -> None:
    path = damage(feed, "orders")
    result = pipeline.run()
    (stopped,) = result.stopped
    assert (stopped.name, stopped.is_stopped) == ("shop.orders", True)
    assert path.name in stopped.reason
    assert [problem.sentence() for problem in result.problems]


def test_progress_is_told_and_a_method_may_stop_the_run(feed: Changefeed, pipeline: headrace.Pipeline) -> None:
    class Heard(headrace.Progress):
        def __init__(self) -> None:
            self.cuts: list[headrace.CutRecord] = []
            self.stopped: list[headrace.Problem] = []

        def cut_finished(self, cut: headrace.CutRecord) -> None:
            self.cuts.append(cut)

        def table_stopped(self, problem: headrace.Problem) -> None:
            self.stopped.append(problem)

        def caught_up(self, checkpoint: int) -> None:
            pipeline.stop()

    damage(feed, "orders")
    heard = Heard()
    result = pipeline.run(follow=True, progress=heard)
    assert result.interrupted
    assert tuple(heard.cuts) == result.cuts
    assert tuple(heard.stopped) == result.problems


@pytest.mark.parametrize("moment", ["tso", "text", "datetime"])
def test_a_run_ends_at_a_moment(feed: Changefeed, pipeline: headrace.Pipeline, moment: str) -> None:
    feed.upstream.advance(1000)
    when = feed.watermark
    feed.upstream.execute(Insert(ORDERS, {"id": 2, "name": "later"}))
    feed.upstream.checkpoint()
    time = tso_to_datetime(when)
    until: headrace.Moment = {"tso": when, "text": time.isoformat(), "datetime": time}[moment]  # type: ignore[assignment]
    assert when - (1 << 18) < pipeline.run(until=until).checkpoint <= when


def test_what_is_wrong_in_a_call_is_said_before_anything_runs(
    feed: Changefeed, pipeline: headrace.Pipeline, tmp_path: Path
) -> None:
    with pytest.raises(headrace.DefinitionError, match="exclude each other"):
        pipeline.run(until=1, until_end=True)
    with pytest.raises(headrace.DefinitionError, match="has no time zone"):
        pipeline.run(until=datetime(2026, 1, 1))
    with pytest.raises(headrace.DefinitionError, match="not a valid value for on_error"):
        headrace.Pipeline(feed.uri, on_error="explode")
    with pytest.raises(headrace.DefinitionError, match="dead letters"):
        headrace.Pipeline(feed.uri, on_error="dead-letter")
    with pytest.raises(headrace.SourceNotReadyError):
        headrace.run(f"file://{tmp_path}/nowhere?protocol=csv", f"duckdb://{tmp_path}/x.duckdb")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"tabels": "shop.*"}, "Unknown setting 'tabels'. Did you mean 'tables'?"),
        ({"untill": 1}, "Unknown setting 'untill'. Did you mean 'until'?"),
        ({"once": True}, "Unknown setting 'once'. Leave it out: a run ends by itself unless follow=True is passed."),
        ({"schema-changes": "view=skip"}, "Unknown setting 'schema-changes'. Did you mean 'schema_changes'?"),
        ({"schema_changes": "drop-tables=approve"}, "'drop-tables' is no kind of schema change. Did you mean 'drop-table'?"),
        ({"tables": ["shop.*"]}, "tables must be a text, and is a list. Write all patterns as one: 'shop.*,!shop.tmp_*'."),
        ({"sink": Path("x.duckdb")}, "sink must be a text, and is a PosixPath."),
        ({"poll_interval": "soon"}, "'soon' is not a duration. Write it as 1s, 500ms or 2m, or as a number of seconds."),
        ({"until": "yesterday"}, "until: 'yesterday' is neither a TSO nor an ISO time"),
    ],
)
def test_a_setting_that_is_wrong_or_mistyped_is_told_with_a_hint(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(headrace.DefinitionError) as refused:
        headrace.run("file:///nowhere?protocol=csv", **settings)
    assert str(refused.value).startswith(told)


def test_an_argument_in_the_wrong_call_is_told() -> None:
    with pytest.raises(headrace.DefinitionError) as of_the_run:
        headrace.Pipeline("file:///cf", until=1)  # type: ignore[call-arg]
    assert str(of_the_run.value) == "Unknown setting 'until'. Pass it to the run: Pipeline(…).run(until=…)."
    with pytest.raises(headrace.DefinitionError) as mistyped:
        headrace.Pipeline("file:///cf").run(folow=True)  # type: ignore[call-arg]
    assert str(mistyped.value) == "Unknown setting 'folow'. Did you mean 'follow'?"


def test_settings_are_taken_as_the_command_takes_them() -> None:
    texts = headrace.Pipeline(
        "file:///cf",
        keys="shop.orders=order_no,line",
        schema_changes="drop-table=approve,index=skip",
        poll_interval="500ms",
        max_cut="512MiB",
        max_dead_letters="7",
    )
    values = headrace.Pipeline(
        "file:///cf",
        keys={"shop.orders": ["order_no", "line"]},
        schema_changes={"drop-table": "approve", "index": "skip"},
        poll_interval=0.5,
        max_cut=512 << 20,
        max_dead_letters=7,
    )
    assert texts._settings == values._settings
    one_text = headrace.Pipeline("file:///cf", keys={"shop.orders": "order_no, line"})
    assert one_text._settings.keys == values._settings.keys


def test_the_arguments_of_a_run_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Definition] = []

    class Run:
        state = LedgerState("default")

        def __init__(self, definition: Definition, _display: object) -> None:
            taken.append(definition)

        def run(self) -> int:
            return 0

    monkeypatch.setattr("headrace.api.PipelineRun", Run)
    headrace.run("file:///cf", until=7, start=3, name="shop")
    headrace.run("file:///cf", until_end=True, quiet="2s")
    headrace.run("file:///cf", follow=True)
    headrace.run("file:///cf")
    options = [(d.options.once, d.options.until, d.options.until_end, d.options.start) for d in taken]
    assert options == [(False, 7, False, 3), (False, None, True, None), (False, None, False, None), (True, None, False, None)]
    assert (taken[0].name, taken[1].options.quiet) == ("shop", 2.0)


def test_a_definition_file_is_a_pipeline(feed: Changefeed, pipeline: headrace.Pipeline, tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        f"source: {{uri: '{feed.uri}', changefeed: '{feed.toml}'}}\nsink: {{uri: 'duckdb://{tmp_path}/other.duckdb'}}\n"
        "pipeline: {name: of_a_file, tables: shop.orders}\n"
    )
    defined = headrace.Pipeline.from_file(path)
    assert defined.name == "of_a_file"
    assert [table.name for table in defined.run().tables if table.status is not headrace.TableStatus.EXCLUDED] == ["shop.orders"]


def test_no_secret_is_in_what_is_printed_of_a_pipeline() -> None:
    assert "hush" not in repr(headrace.Pipeline("s3://bucket/x?secret-access-key=hush", "mysql://me:hush@db/"))


def test_the_public_names_are_there_and_importing_them_costs_little() -> None:
    for name in headrace.__all__:
        assert getattr(headrace, name) is not None
    assert sorted(headrace.__all__) == dir(headrace)
    with pytest.raises(AttributeError):
        _ = headrace.nothing  # type: ignore[attr-defined]
    code = "import sys, headrace; print(sorted(m for m in sys.modules if m.split('.')[0] in ('pyarrow', 'pyspark', 'pydantic')))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.spark
def test_the_examples_of_the_page_run_one_after_another(tmp_path: Path) -> None:
    shop = write_shop(tmp_path / "changefeed")
    (tmp_path / "changefeed.toml").write_text(shop.changefeed_toml)
    page = (ROOT / "docs" / "python.md").read_text()
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    assert code.count("file:///data/changefeed?protocol=csv") == 2
    code = code.replace("file:///data/changefeed?protocol=csv", shop.source_uri)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert tso_to_datetime(shop.checkpoint_ts).astimezone(UTC).isoformat(sep=" ") in done.stdout
    with duckdb.connect(str(tmp_path / "shop_copy.duckdb"), read_only=True) as connection:
        counts = {table: connection.sql(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in shop.rows}
    assert counts == shop.rows
