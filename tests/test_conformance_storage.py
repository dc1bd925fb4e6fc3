"""Every conformance case of TiCDC's storage sink, through the command line into every target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness import Case, State, all_cases, assert_state, reveal, run_once, three_steps
from headrace.testing.engine import LocalEngine
from servers import MariaDb
from targets import DuckDbTarget, MariaDbTarget, Target

pytestmark = pytest.mark.server

CASES = [case.name for case in all_cases()]
# Where metadata alone must hold rows and schema changes back; the other cases show that files may arrive late.
GATED = ["canal-key-updates", "csv-basic", "csv-date-day", "csv-ddl-table-lifecycle", "csv-restart"]

MakeTarget = Callable[[], tuple[Target, str]]


@pytest.fixture(params=["mariadb", "duckdb"])
def make_target(request: pytest.FixtureRequest, tmp_path: Path) -> MakeTarget:
    """Opens an empty target: what it holds, and the sink's URI."""

    def make() -> tuple[Target, str]:
        if request.param == "mariadb":
            server: MariaDb = request.getfixturevalue("mariadb")
            return MariaDbTarget(server), server.uri()
        target = DuckDbTarget(tmp_path / "target.duckdb")
        return target, target.uri

    return make


def apply(case: Case, data: Path, sink_uri: str, tmp_path: Path, engine: LocalEngine | None = None) -> None:
    changefeed = case.write_changefeed(tmp_path)
    assert run_once(case.source_uri(data), sink_uri, changefeed, case.name, engine) == 0


def check(case: Case, target: Target, state: State, data: Path) -> None:
    assert_state(target, state_held(target, state, data), case.unreplicated_columns)


def state_held(target: Target, state: State, data: Path) -> State:
    """The state as far as the files tell of it and the target has room for its values.

    A table that was there before the changefeed has no file before its first row.
    """
    tables = []
    for table in state.tables:
        unknown = not table.rows and not (data / table.database / table.name).is_dir()
        # DuckDB is not given views.
        if unknown or (table.is_view and isinstance(target, DuckDbTarget)):
            continue
        types = list(table.types.values())
        rows = tuple(tuple(map(target.held, types, row)) for row in table.rows)
        tables.append(replace(table, rows=rows))
    return replace(state, tables=tuple(tables))


@pytest.mark.spark
@pytest.mark.parametrize("name", CASES)
def test_one_run_gives_the_final_state_and_a_second_changes_nothing(name: str, make_target: MakeTarget, tmp_path: Path) -> None:
    case = Case(name)
    target, uri = make_target()
    for _ in range(2):
        apply(case, case.data, uri, tmp_path)
        check(case, target, case.final, case.data)


@pytest.mark.pipeline
@pytest.mark.parametrize("name", CASES)
def test_files_that_arrive_in_steps_give_every_state_on_the_way(name: str, make_target: MakeTarget, tmp_path: Path) -> None:
    case = Case(name)
    target, uri = make_target()
    for state in three_steps(case):
        reveal(case, tmp_path / "data", state.checkpoint_ts)
        apply(case, tmp_path / "data", uri, tmp_path, LocalEngine())
        check(case, target, state, tmp_path / "data")


@pytest.mark.pipeline
@pytest.mark.parametrize("name", GATED)
def test_nothing_above_the_checkpoint_shows_though_its_files_are_there(name: str, make_target: MakeTarget, tmp_path: Path) -> None:
    case = Case(name)
    target, uri = make_target()
    for state in three_steps(case):
        reveal(case, tmp_path / "data", state.checkpoint_ts, whole=True)
        apply(case, tmp_path / "data", uri, tmp_path, LocalEngine())
        check(case, target, state, tmp_path / "data")
