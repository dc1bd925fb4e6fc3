"""A table with a column that has the name of one of the engine's own stops, and no other table does."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import Bucket

from headrace.errors import EXIT_TABLE_STOPPED

pytestmark = pytest.mark.pipeline


@pytest.mark.parametrize("name", ["headrace$commit_ts", "HEADRACE$kind", "headrace$seq", "headrace$sight", "headrace$x"])
@pytest.mark.parametrize("key", ["id", "v"])
def test_a_column_with_a_name_of_the_engines_own_stops_its_table(tmp_path: Path, name: str, key: str) -> None:
    bucket = Bucket(tmp_path)
    bucket.rows("good/100/1", "I 110 1 a")
    bucket.create("good")
    columns = (
        {"ColumnName": "id", "ColumnType": "INT", "ColumnPrecision": "11", **({"ColumnIsPk": "true"} if key == "id" else {})},
        {"ColumnName": name, "ColumnType": "VARCHAR", "ColumnPrecision": "16"},
    )
    bucket.schema("bad", 101, columns, f"CREATE TABLE `bad` (`id` INT, `{name}` VARCHAR(16))", 3)
    for number in (1, 2):
        bucket.rows(f"bad/101/{number}", f"I 11{number} {number} b")
    bucket.checkpoint(120)
    ran = bucket.run(bucket.sink)
    assert ran.code == EXIT_TABLE_STOPPED
    assert ran.stopped.keys() == {"test.bad"}
    assert f"column {name}: names that begin with headrace$ are Headrace's own" in ran.stopped["test.bad"]
    assert bucket.state("good") == [(1, "a")]
