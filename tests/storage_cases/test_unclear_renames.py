"""Swaps of which TiCDC overwrote a step, so that only a person can tell the order."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from building import Bucket

from headrace.cli.main import main

pytestmark = pytest.mark.pipeline

SWAPS = (("b", "a"), ("x", "b"), ("d", "c"), ("y", "d"))


def test_renames_whose_order_nobody_knows_wait_for_a_person(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    for number, name in enumerate("abcd", start=1):
        bucket.create(name)
        bucket.rows(f"{name}/100/1", f"I 110 {number} {name}")
    for old, new in SWAPS:
        bucket.schema(new, 200, statement=f"RENAME TABLE `test`.`{old}` TO `test`.`{new}`;")
    bucket.rows("a/200/1", "U 210 2 B")
    bucket.create("other")
    bucket.rows("other/100/1", "I 250 1 o")

    ran = bucket.at(300)
    assert ran.code == 3
    assert "Rename the tables in the target by hand" in ran.stopped["test.a"]
    assert (bucket.state("a"), bucket.state("b"), bucket.state("other")) == ([(1, "a")], [(2, "b")], [(1, "o")])

    with duckdb.connect(str(bucket.database)) as connection:
        for one, other in (("a", "b"), ("c", "d")):
            for old, new in ((one, "x"), (other, one), ("x", other)):
                connection.execute(f"ALTER TABLE test.{old} RENAME TO {new}")
    assert main(["ddl", "skip", "200/", "--sink", bucket.sink]) == 0
    assert bucket.run().code == 0
    assert (bucket.state("a"), bucket.state("b")) == ([(2, "B")], [(1, "a")])
    assert (bucket.state("c"), bucket.state("d")) == ([(4, "d")], [(3, "c")])

    bucket.rows("b/200/1", "U 310 1 A")
    bucket.schema("b", 320, "id,v,c", "ALTER TABLE `b` ADD COLUMN `c` INT DEFAULT 7")
    assert bucket.at(400).code == 0
    assert bucket.state("b") == [(1, "A", 7)]
