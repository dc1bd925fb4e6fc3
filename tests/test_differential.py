"""Whatever the upstream does and however TiCDC writes it, the targets hold what the upstream held at each checkpoint."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from crashing import Crashed, CrashPoints, install
from differential import ACTIONS, History, Step
from following import run_once
from harness import assert_state
from headrace.testing.delivery import Conduct, options_text
from headrace.testing.ticdc_options import ChangefeedOptions
from local_engine import as_if_large
from servers import MariaDb
from targets import DuckDbTarget, MariaDbTarget, Target

pytestmark = pytest.mark.pipeline

SECONDS = float(os.environ.get("HEADRACE_DIFFERENTIAL_SECONDS", "0"))
EXAMPLES = 10  # without a number of seconds: always the same ones, in half a minute

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
RUNS_AFTER = ("promise", "restart", "half", "indexes")


@dataclass(frozen=True)
class Plan:
    """What an example draws. ``crashes``: each run is preceded by one that dies before its step of this number (0: by none).

    ``large``: small rounds are written as large ones are.
    """

    options: ChangefeedOptions
    conduct: Conduct
    steps: list[Step]
    crashes: list[int]
    large: bool


PLANS = st.builds(Plan, OPTIONS, CONDUCTS, STEPS, st.lists(st.integers(0, 60), max_size=6), st.booleans())


def catch_up(history: History, places: list[tuple[Target, str]], fatal: int) -> None:
    """Runs to the checkpoint, after a run that dies, and compares, in each target."""
    for target, uri in places:
        if fatal:
            with pytest.MonkeyPatch.context() as patch, suppress(Crashed):
                install(CrashPoints(fatal), patch)
                run_once(history, uri)
        code = run_once(history, uri)
        assert_state(target, history.state())
        assert code == 0, f"a run into {target} did not end well"


def play(plan: Plan, server: MariaDb) -> None:
    """Lets the history happen, with runs after the steps that a consumer may notice. A failure is told, and its folder kept."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-differential-"))
    history = History(folder, plan.options, plan.conduct)
    server.fresh()
    duckdb = DuckDbTarget(folder / "target.duckdb")
    places: list[tuple[Target, str]] = [(duckdb, duckdb.uri), (MariaDbTarget(server), server.uri())]
    crashes = iter(plan.crashes)
    try:
        with pytest.MonkeyPatch.context() as patch:
            if plan.large:
                as_if_large(patch)
            for step in plan.steps:
                history.take(step)
                if step.action in RUNS_AFTER:
                    history.told.append("runs catch up")
                    catch_up(history, places, next(crashes, 0))
            history.finish()
            catch_up(history, places, next(crashes, 0))
    except BaseException:
        settings_text = f"{options_text(plan.options, plan.conduct)}; crashes: {plan.crashes}; large: {plan.large}"
        note("\n".join([f"{settings_text}; kept in {folder}", *history.told]))
        raise
    shutil.rmtree(folder)


class Clock:
    """Ends the drawing when the time that was given is over; what has failed is made small without it."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds if seconds else math.inf
        self._failed = False

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._end and not self._failed

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._failed = self._failed or kind is not None


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
        if not clock.is_over:
            with clock:
                play(plan, mariadb_server)

    check()
