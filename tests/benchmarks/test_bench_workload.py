"""The workload has the size and shape that the goals name."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest
from benchmarks.workload import OneRowCuts, fill_tables, net_rows, orders, write_many_orders, write_orders, write_tables

from headrace.testing.ticdc_options import Protocol


def test_changes_are_the_same_at_every_run() -> None:
    assert orders(1000).rows.equals(orders(1000).rows)


@pytest.mark.parametrize(("protocol", "bytes_per_change"), [("csv", 141), ("canal-json", 574)])
def test_a_change_has_the_size_that_the_goals_name(tmp_path: Path, protocol: Protocol, bytes_per_change: int) -> None:
    workload = write_orders(tmp_path, protocol, orders(20_000))
    assert workload.size / workload.changes == pytest.approx(bytes_per_change, rel=0.03)
    assert sum(path.stat().st_size for path in workload.files) == workload.size


def test_about_29_of_100_changes_are_of_a_new_key(tmp_path: Path) -> None:
    assert write_orders(tmp_path, "csv", orders(20_000)).keys == pytest.approx(5_780, rel=0.02)


def test_net_rows_are_the_last_rows_of_keys_that_are_not_deleted() -> None:
    changes = orders(5_000)
    net = net_rows(changes)
    newest: dict[int, str] = {}
    for key, operation in zip(changes.rows.column("id").to_pylist(), changes.operations.to_pylist(), strict=True):
        newest[key] = operation
    assert sorted(net.column("id").to_pylist()) == sorted(key for key, operation in newest.items() if operation != "D")


def test_commit_timestamps_never_go_back() -> None:
    assert pc.all(pc.greater_equal(pc.pairwise_diff(orders(1000).commit_ts), 0)).as_py()


@pytest.mark.long
def test_each_million_has_keys_of_its_own(tmp_path: Path) -> None:
    small = write_many_orders(tmp_path / "small", 1)
    assert small.changes == 1_000_000
    assert small.keys == pytest.approx(289_000, rel=0.002)


def test_every_table_gets_its_rows(tmp_path: Path) -> None:
    workload = write_tables(tmp_path, 3)
    assert fill_tables(workload, 10) == 30
    assert len(workload.files) == 3


def test_a_staged_row_waits_for_its_watermark(tmp_path: Path) -> None:
    stream = OneRowCuts(tmp_path)
    before = (tmp_path / "metadata").read_text()
    stream.stage()
    assert (tmp_path / "metadata").read_text() == before
    assert str(stream.publish()) in (tmp_path / "metadata").read_text()
