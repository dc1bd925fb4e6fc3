"""Which damaged splits harm nothing, because nobody wants a row of them any more."""

from __future__ import annotations

import pytest

from headrace.engine.given_up import without_given_up
from headrace.model.outcome import SplitReport
from headrace.model.table import TableId


@pytest.mark.parametrize(("newest", "is_forgiven"), [(113, True), (114, False)])
def test_a_cut_off_split_before_a_given_up_change_is_needed_for_its_newer_rows(newest: int, is_forgiven: bool) -> None:
    """They lie above the window of a cut that ends below what was given up."""
    report = SplitReport(
        "t/1", TableId("shop", "t"), rows=1, left=1, min_ts=newest, max_ts=newest, truncated=True, given_up=113, ended=True
    )
    assert without_given_up([report])["t/1"].truncated is not is_forgiven
