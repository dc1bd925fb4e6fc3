"""The connector passes the suite that Headrace has for the authors of sinks."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from headrace.model.table import TableSchema
from headrace.testing.sink_suite import SinkSuite, SinkUnderTest
from headrace_sqlite import open_sink


class TestSqlite(SinkSuite):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SinkUnderTest:
        path = tmp_path / "target.db"
        return SinkUnderTest(open=lambda: open_sink(f"sqlite://{path}"), read=partial(rows_of, path))


def test_headrace_finds_the_connector_by_its_scheme() -> None:
    (entry,) = entry_points(group="headrace.sinks", name="sqlite")
    assert entry.load() is open_sink


def rows_of(path: Path, schema: TableSchema) -> Iterable[Mapping[str, object]]:
    with sqlite3.connect(path) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f'SELECT * FROM "{schema.table_id.key}"')]
