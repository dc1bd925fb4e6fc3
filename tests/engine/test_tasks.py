"""What the tasks of a job say of the files they read."""

from __future__ import annotations

import pytest

from headrace.engine.tasks import read_problems
from headrace.model.outcome import SplitReport
from headrace.model.table import TableId

T = TableId("test", "t")


@pytest.mark.parametrize(
    ("truncated_ts", "pending_ts", "stops"),
    [(None, None, True), (130, None, True), (130, 150, True), (None, 120, False), (130, 120, False)],
)
def test_a_record_that_is_cut_off_matters_when_the_window_reaches_it(
    truncated_ts: int | None, pending_ts: int | None, stops: bool
) -> None:
    """It comes after all other rows of its file, so where some of these are still to come it is too."""
    report = SplitReport("f", T, rows=3, min_ts=110, max_ts=150, truncated=True, truncated_ts=truncated_ts, pending_ts=pending_ts)
    assert (T in read_problems([report])) == stops
