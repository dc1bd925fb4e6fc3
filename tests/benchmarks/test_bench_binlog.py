"""The ways of reading binlog messages that the bench compares read the same rows."""

from __future__ import annotations

import pytest

from benchmarks import binlog


@pytest.mark.parametrize("rows", [1, 10, 100])
def test_all_ways_read_every_row(rows: int) -> None:
    messages = binlog.transactions(300, rows)
    assert len(messages) == 300 // rows
    assert binlog._protobuf(messages) == 400  # an update has two rows
    assert binlog._columnar(list(binlog._batches(messages))) == 400
    assert binlog._one_by_one(messages) == 300
