"""Whatever the upstream does and however TiCDC writes it, the targets hold what the upstream held at each checkpoint."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from crashing import Crashed, CrashPoints, install
from differential import ACTIONS, LEDGERS, History, Step
from following import run_once
from harness import Included, assert_state, included
from headrace.engine import journal
from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.testing.delivery import Conduct, options_text
from headrace.testing.ticdc_options import ChangefeedOptions
from headrace.transform.filters import TableFilter
from large_rounds import as_if_large
from person import Person, Stranger
from sampling import drawn
from servers import MariaDb
from targets import DuckDbTarget, MariaDbTarget
from time_limit import Clock, until_time_is_over

pytestmark = pytest.mark.pipeline

SECONDS = float(os.environ.get("HEADRACE_DIFFERENTIAL_SECONDS", "0"))
EXAMPLES = drawn(10)  # without a number of seconds: always the same ones, in half a minute

STEPS = st.lists(st.builds(Step, st.sampled_from(ACTIONS), st.integers(0, 2**20)), min_size=10, max_size=45)
LAYOUTS = {
    "date_separator": st.sampled_from(["none", "year", "month", "day"]),
    "enable_partition_separator": st.booleans(),
    "file_index_digit": st.sampled_from([6, 12, 20]),
    "output_column_id": st.booleans(),
    "place": st.sampled_from([{}, {}, {"use_table_id_as_path": True}, {"enable_table_across_nodes": True}, {"legacy": True}]),
}
CSV = {
    "delimiter": st.sampled_from([",", "|+", "\t"]),
    "quoting": st.sampled_from([{}, {}, {"quote": ""}, {"quote": "'"}]),
    "null": st.sampled_from(["\\N", "NULL", "~"]),
    "terminator": st.sampled_from(["\r\n", "\n"]),
    "output_field_header": st.booleans(),
    "output_old_value": st.booleans(),
    "binary_encoding_method": st.sampled_from(["base64", "hex"]),
}
CANAL = {
    "content_compatible": st.booleans(),
    "only_output_updated_columns": st.booleans(),
    "delete_only_output_handle_key_columns": st.booleans(),
}


def _options(protocol: str, drawn: dict[str, Any]) -> ChangefeedOptions:
    fields = dict(drawn)
    for several in ("place", "quoting"):
        fields |= fields.pop(several, {})
    if protocol == "csv":
        if fields.get("quote") == "" and fields["null"] == "NULL":
            fields["null"] = "~"  # a text NULL could not be told from it
        return ChangefeedOptions("csv", include_commit_ts=True, **fields)
    return ChangefeedOptions("canal-json", enable_tidb_extension=True, **fields)


OPTIONS = st.one_of(
    st.fixed_dictionaries(LAYOUTS | CSV).map(lambda drawn: _options("csv", drawn)),
    st.fixed_dictionaries(LAYOUTS | CANAL).map(lambda drawn: _options("canal-json", drawn)),
)
CONDUCTS = st.builds(
    Conduct,
    key_updates=st.sampled_from(["sorted", "unsorted", "raw"]),
    discards_stale=st.booleans(),
    atomic=st.booleans(),
    dispatchers=st.integers(1, 3),
)
FILTERS = ("", "*.*,!d1.a", "d1.*", "*.*,!*.b,!d-2.a", "d1.a,d-2.b", "*.*,!*.Ünï c")
RUNS_AFTER = ("promise", "restart", "half", "indexes", "damage", "repair", "clear", "litter")


@dataclass(frozen=True)
class Plan:
    """What an example draws. ``crashes``: each run is preceded by one that dies before its step of this number (0: by none).

    ``large``: small rounds are written as large ones are. ``filters`` are the ``--tables`` of the runs, one a time; without any
    left, and at the end, everything is included. ``kept`` is how many settled schema changes the journal keeps. ``ledger`` is where
    the targets' ledgers lie. ``max_cut`` bounds each cut (bytes), 0 does not.
    """

    options: ChangefeedOptions
    conduct: Conduct
    steps: list[Step]
    crashes: list[int]
    large: bool
    filters: list[str]
    kept: int
    ledger: str
    max_cut: int = 0


CHOSEN = st.lists(st.sampled_from(FILTERS), max_size=8)
KEPT = st.sampled_from([0, journal.JOURNAL_KEPT])
CRASHES = st.lists(st.integers(0, 60), max_size=6)
BOUNDS = st.sampled_from([0, 1, 200, 800])
PLANS = st.builds(Plan, OPTIONS, CONDUCTS, STEPS, CRASHES, st.booleans(), CHOSEN, KEPT, st.sampled_from(LEDGERS), BOUNDS)


def catch_up(history: History, places: list[tuple[Stranger, str]], fatal: int, tables: str = "", max_cut: int = 0) -> None:
    """Runs to the checkpoint, after a run that dies, and compares what ``tables`` includes, in each target.

    While a schema file is damaged tables may wait, and nothing is compared. While ``metadata`` is behind what was applied, a table
    that is taken back would wait, too.
    """
    if history.delivery.published < history.taken:
        tables = history.tables_taken
    includes = TableFilter.parse(tables).includes
    options: dict[str, Any] = {"includes": includes, "filter_text": tables, "max_cut": max_cut}
    history.told.append(f"runs catch up, with --tables {tables!r}")
    for stranger, uri in places:
        if fatal:
            with pytest.MonkeyPatch.context() as patch, suppress(Crashed):
                install(CrashPoints(fatal), patch)
                run_once(history, uri, **options)
        code = run_once(history, uri, **options)
        if history.damaged:
            assert code in (EXIT_OK, EXIT_TABLE_STOPPED), f"a run into {stranger.target} did not end well"
            continue
        assert_state(Included(stranger.target, tables), included(stranger.with_theirs(history.state()), tables))
        expected = {EXIT_TABLE_STOPPED if refused else EXIT_OK for refused in history.refused(includes)}
        assert code in expected, f"a run into {stranger.target} did not end well"
    history.taken, history.tables_taken = history.promised, tables


def play(plan: Plan, server: MariaDb) -> None:
    """Lets the history happen, with runs after the steps that a consumer may notice. A failure is told, and its folder kept."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-differential-"))
    history = History(folder, plan.options, plan.conduct, plan.ledger)
    server.fresh()
    duckdb, mariadb = DuckDbTarget(folder / "target.duckdb", plan.ledger), MariaDbTarget(server, plan.ledger)
    places = [
        (Stranger(duckdb, Person(duckdb, None)), duckdb.uri),
        (
            Stranger(mariadb, Person(mariadb, server)),
            server.uri(any_database=plan.ledger != LEDGERS[0], ledger_database=plan.ledger),
        ),
    ]
    crashes, filters = iter(plan.crashes), iter(plan.filters)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(journal, "JOURNAL_KEPT", plan.kept)
            if plan.large:
                as_if_large(patch)
            for step in plan.steps:
                history.take(step)
                if step.action == "stranger":
                    history.told.append("somebody makes a table in each target")
                    for stranger, _ in places:
                        stranger.come(step.seed, history.databases)
                if step.action in RUNS_AFTER:
                    # What is cleared away afterwards has to be applied everywhere.
                    catch_up(history, places, next(crashes, 0), "" if step.action == "clear" else next(filters, ""), plan.max_cut)
                if step.action == "clear":
                    history.cleared()
            history.finish()
            catch_up(history, places, next(crashes, 0), max_cut=plan.max_cut)
    except BaseException:
        settings_text = (
            f"{options_text(plan.options, plan.conduct)}; crashes: {plan.crashes}; large: {plan.large}; kept: {plan.kept}; "
            f"ledger: {plan.ledger}; max-cut: {plan.max_cut}"
        )
        note("\n".join([f"{settings_text}; kept in {folder}", *history.told]))
        raise
    shutil.rmtree(folder)


@pytest.mark.server
def test_targets_hold_what_the_upstream_held_at_each_checkpoint(mariadb_server: MariaDb) -> None:
    clock = Clock(SECONDS)

    @settings(
        max_examples=1_000_000 if SECONDS else EXAMPLES,
        derandomize=not SECONDS,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(PLANS)
    def check(plan: Plan) -> None:
        clock.require_time()
        try:
            play(plan, mariadb_server)
        finally:
            clock.example_ends()

    with until_time_is_over():
        check()
