"""The semantic cases of the format's specification (its section 8.5), each by its number."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from building import Bucket
from histories import WAYS, Expect, History, Stage, checkpoint, created, data, history, live_through, raw, schema

from headrace.sources.ticdc_storage import listing_cache
from headrace.sources.ticdc_storage.stores import Entries, Store
from storage_folder import OPTIONS

pytestmark = pytest.mark.pipeline

PARTITIONED = (
    "CREATE TABLE `test`.`p` (`id` INT PRIMARY KEY,`v` VARCHAR(16)) "
    "PARTITION BY RANGE (`id`) (PARTITION `p0` VALUES LESS THAN (10), PARTITION `p1` VALUES LESS THAN (20))"
)
EXCHANGE = "ALTER TABLE `test`.`p` EXCHANGE PARTITION `p0` WITH TABLE `test`.`e`"
CREATE_UPDATE_UK = "CREATE TABLE `test`.`update_uk` (`id` INT PRIMARY KEY,`uk` INT NOT NULL,`v` VARCHAR(16),UNIQUE `uk`(`uk`))"

CASES = [
    history(
        "T47 nothing is applied without metadata",
        created("t"),
        data("t/100/1", "I 110 1 a").gives({}),
        checkpoint(200, {"t": ["1 a"]}),
    ),
    history(
        "T48 rows above the checkpoint wait",
        created("t"),
        data("t/100/1", "I 110 1 a", "U 130 1 b"),
        checkpoint(120, {"t": ["1 a"]}),
        checkpoint(130, {"t": ["1 b"]}),
    ),
    history(
        "T49 the checkpoint goes back",
        created("t"),
        data("t/100/1", "I 110 1 a", "U 190 1 b"),
        checkpoint(200, {"t": ["1 b"]}),
        checkpoint(150, {"t": ["1 b"]}),
        data("t/100/2", "I 110 1 a", "U 190 1 b", "I 205 2 c"),
        checkpoint(180, {"t": ["1 b"]}),
        checkpoint(210, {"t": ["1 b", "2 c"]}),
    ),
    history(
        "T50 a crash repeats rows",
        created("t"),
        data("t/100/1", "I 110 1 a", "U 120 1 b", "D 130 1 b"),
        checkpoint(130, {"t": []}),
        data("t/100/2", "U 120 1 b", "D 130 1 b", "I 140 1 c"),
        checkpoint(200, {"t": ["1 c"]}),
    ),
    history(
        "T51 a repetition in another form",
        created("t"),
        data("t/100/1", "I 110 1 a", "U 120 1 b"),
        data("t/100/2", "D 120 1 a", "I 120 1 b"),
        checkpoint(130, {"t": ["1 b"]}),
    ),
    history(
        "T51 a repetition in another form, which comes later",
        created("t"),
        data("t/100/1", "I 110 1 a", "U 120 1 b"),
        checkpoint(120, {"t": ["1 b"]}),
        data("t/100/2", "D 120 1 a", "I 120 1 b"),
        checkpoint(130, {"t": ["1 b"]}),
    ),
    history(
        "T52 deletes come first within a commit",
        created("t"),
        data("t/100/1", "I 110 1 a", "I 110 2 b"),
        checkpoint(115, {"t": ["1 a", "2 b"]}),
        data("t/100/2", "D 120 1 a", "I 120 2 a", "D 120 2 b", "I 120 1 b"),
        checkpoint(120, {"t": ["1 b", "2 a"]}),
    ),
    history(
        "T53 a transaction is cut into two files",
        created("t"),
        data("t/100/1", "I 120 1 a"),
        checkpoint(119, {"t": []}),
        data("t/100/2", "I 120 2 b"),
        checkpoint(120, {"t": ["1 a", "2 b"]}),
    ),
    *(
        history(
            f"T54 a row moves from partition {old} to {new}",
            schema("p", 100),
            data(f"p/100/{old}/1", "I 110 1 a"),
            checkpoint(115, {"p": ["1 a"]}),
            data(f"p/100/{old}/2", "D 120 1 a"),
            data(f"p/100/{new}/1", "I 120 1 a2"),
            checkpoint(130, {"p": ["1 a2"]}),
        )
        for old, new in ((112, 113), (113, 112))
    ),
    history(
        "T55 a dispatcher that is read later holds the older change",
        created("t"),
        data("t/100/CDC_99_000001.csv", "I 110 1 a"),
        checkpoint(130, {"t": ["1 a"]}),
        data("t/100/CDC_11_000001.csv", "U 150 1 new"),
        data("t/100/CDC_22_000001.csv", "U 140 1 old"),
        checkpoint(200, {"t": ["1 new"]}),
        data("t/100/CDC_22_000002.csv", "U 140 1 old"),
        checkpoint(210, {"t": ["1 new"]}),
    ),
    history(
        "T56 a repetition in a newer directory",
        created("t"),
        data("t/100/1", "I 110 1 a", "U 150 1 old", "U 160 1 mid"),
        checkpoint(180, {"t": ["1 mid"]}),
        schema("t", 200),
        data("t/200/1", "U 150 1 old", "U 220 1 n"),
        checkpoint(210, {"t": ["1 mid"]}),
        checkpoint(300, {"t": ["1 n"]}),
    ),
    history(
        "T57 a new column's default",
        created("t"),
        data("t/100/1", "I 110 1 a"),
        schema("t", 200, "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", "id,v,c"),
        checkpoint(300, {"t(id,v,c)": ["1 a 7"]}),
    ),
    history(
        "T58 a schema change at the checkpoint waits",
        created("t"),
        data("t/100/1", "I 110 1 a"),
        schema("t", 200, "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", "id,v,c"),
        checkpoint(200, {"t": ["1 a"]}),
        checkpoint(201, {"t(id,v,c)": ["1 a 7"]}),
    ),
    history(
        "T59 a truncation, and rows of before it that are repeated",
        created("t"),
        data("t/100/1", "I 110 1 a"),
        schema("t", 200, "TRUNCATE TABLE `test`.`t`"),
        data("t/200/1", "I 210 2 b"),
        data("t/100/2", "I 110 1 a"),
        checkpoint(300, {"t": ["2 b"]}),
        data("t/100/3", "I 110 1 a"),
        checkpoint(310, {"t": ["2 b"]}),
    ),
    history(
        "T59 a truncation, and rows of before it that are repeated in its directory",
        created("t"),
        data("t/100/1", "I 110 1 a"),
        schema("t", 200, "TRUNCATE TABLE `test`.`t`"),
        data("t/200/1", "I 110 1 a", "I 210 2 b"),
        checkpoint(300, {"t": ["2 b"]}),
    ),
    history(
        "T60 a table is dropped and created in another shape",
        created("t"),
        data("t/100/1", "I 110 1 a", "I 120 2 b"),
        checkpoint(150, {"t": ["1 a", "2 b"]}),
        schema("t", 200, "DROP TABLE `test`.`t`"),
        checkpoint(240, {}),
        created("t", 250, "id"),
        data("t/250/1", "I 260 5"),
        checkpoint(300, {"t(id)": ["5"]}),
    ),
    history(
        "T61 two tables swap their names",
        created("a"),
        created("b", 101),
        data("a/100/1", "I 110 1 a"),
        data("b/101/1", "I 110 2 b"),
        checkpoint(150, {"a": ["1 a"], "b": ["2 b"]}),
        schema("x", 200, "RENAME TABLE `test`.`a` TO `test`.`x`"),
        schema("a", 200, "RENAME TABLE `test`.`b` TO `test`.`a`"),
        schema("b", 200, "RENAME TABLE `test`.`x` TO `test`.`b`"),
        data("a/200/1", "I 210 3 c"),
        checkpoint(300, {"a": ["2 b", "3 c"], "b": ["1 a"]}),
    ),
    history(
        "T61 two tables swap their names, and one step is overwritten",
        created("a"),
        created("b", 101),
        data("a/100/1", "I 110 1 a"),
        data("b/101/1", "I 110 2 b"),
        checkpoint(150, {"a": ["1 a"], "b": ["2 b"]}),
        schema("a", 200, "RENAME TABLE `test`.`b` TO `test`.`a`"),
        schema("b", 200, "RENAME TABLE `test`.`x` TO `test`.`b`"),
        data("a/200/1", "I 210 3 c"),
        checkpoint(300, {"a": ["2 b", "3 c"], "b": ["1 a"]}),
    ),
    history(
        "T62 a table is renamed, and rows of before it are repeated under the old name",
        created("t"),
        data("t/100/1", "I 110 1 a"),
        schema("t2", 200, "RENAME TABLE `test`.`t` TO `test`.`t2`"),
        data("t2/200/1", "U 210 1 b"),
        data("t/100/2", "I 110 1 a"),
        checkpoint(300, {"t2": ["1 b"]}),
        data("t/100/3", "I 110 1 a"),
        checkpoint(310, {"t2": ["1 b"]}),
    ),
    history(
        "T63 a database is dropped and comes back",
        schema("test.", 90, "CREATE DATABASE `test`"),
        created("t"),
        created("e"),
        data("t/100/1", "I 110 1 a"),
        data("e/100/1", "I 110 2 b"),
        checkpoint(150, {"t": ["1 a"], "e": ["2 b"]}),
        schema("test.", 200, "DROP DATABASE `test`"),
        checkpoint(300, {}),
        schema("test.", 310, "CREATE DATABASE `test`"),
        created("t", 320),
        data("t/320/1", "I 330 5 z"),
        checkpoint(400, {"t": ["5 z"]}),
    ),
    history(
        "T64 a partition that the CREATE text tells is exchanged",
        schema("p", 100, PARTITIONED),
        created("e"),
        data("p/100/112/1", "I 110 1 a", "I 110 2 b"),
        data("p/100/113/1", "I 110 11 c"),
        data("e/100/1", "I 110 5 e"),
        checkpoint(150, {"p": ["1 a", "2 b", "11 c"], "e": ["5 e"]}),
        schema("p", 200, EXCHANGE, type=42),
        schema("e", 200),
        data("p/200/114/1", "U 210 5 f"),
        data("e/200/1", "U 210 1 g"),
        checkpoint(300, {"p": ["5 f", "11 c"], "e": ["1 g", "2 b"]}),
    ),
    history(
        "T64 a partition that nothing tells is exchanged",
        schema("p", 100),
        created("e"),
        created("t"),
        data("p/100/112/1", "I 110 1 a", "I 110 11 c"),
        data("e/100/1", "I 110 5 e"),
        data("t/100/1", "I 110 1 a"),
        checkpoint(150, {"p": ["1 a", "11 c"], "e": ["5 e"], "t": ["1 a"]}),
        schema("p", 200, EXCHANGE, type=42),
        schema("e", 200),
        data("p/200/114/1", "U 210 5 f"),
        data("e/200/1", "U 210 1 g"),
        data("t/100/2", "U 210 1 b"),
        checkpoint(300, {"p": ["1 a", "11 c"], "e": ["5 e"], "t": ["1 b"]}, {"p": "ddl", "e": "ddl"}),
    ),
    history(
        "T65 a view is no table",
        created("t"),
        data("t/100/1", "I 110 1 a"),
        schema("w", 200, "CREATE ALGORITHM = UNDEFINED SQL SECURITY DEFINER VIEW `test`.`w` AS SELECT `id`,`v` FROM `test`.`t`"),
        checkpoint(300, {"t": ["1 a"]}),
        views=["test.w"],
    ),
    history(
        "T66 a shape that no statement explains",
        created("t"),
        data("t/100/1", "I 110 1 a"),
        schema("t", 200, "", "id,v,c"),
        data("t/200/1", "I 210 2 b 9"),
        checkpoint(300, {"t(id,v,c)": ["1 a 7", "2 b 9"]}),
    ),
    history(
        "T67 a table that was there before the changefeed",
        schema("t", 100),
        data("t/100/1", "I 110 1 a"),
        checkpoint(200, {"t": ["1 a"]}),
    ),
    history(
        "T68 two tables of one transaction are seen together",
        created("t"),
        created("e"),
        data("t/100/1", "I 110 1 a", "U 120 1 b"),
        data("e/100/1", "I 110 1 a"),
        checkpoint(119, {"t": ["1 a"], "e": ["1 a"]}),
        data("e/100/2", "U 120 1 b"),
        checkpoint(120, {"t": ["1 b"], "e": ["1 b"]}),
    ),
    history(
        "T69 a table without key",
        created("n", shape="v"),
        data("n/100/1", "I 110 a", "I 110 a"),
        data("n/100/2", "I 110 a", "I 110 a", "I 120 b"),
        checkpoint(125, {"n(v)": ["a", "a", "b"]}),
        data("n/100/3", "D 130 a"),
        checkpoint(200, {"n(v)": ["a", "b"]}),
        told=["They are taken for a repetition"],
    ),
    history(
        "T70 a table without key whose old rows are missing",
        created("n", shape="v"),
        created("t"),
        data("n/100/1", "I 110 a"),
        data("t/100/1", "I 110 1 a"),
        checkpoint(115, {"n(v)": ["a"], "t": ["1 a"]}),
        data("n/100/2", "U 120 b"),
        data("t/100/2", "U 120 1 b"),
        checkpoint(200, {"n(v)": ["a"], "t": ["1 b"]}, {"n": "output-old-value"}),
        in_one_go=Expect({"n(v)": [], "t": ["1 b"]}, {"n": "output-old-value"}),
    ),
    history(
        "T71 rows of several tables and kinds",
        created("t"),
        created("e"),
        created("n", shape="v"),
        data("t/100/1", *(f"I 110 {key} a" for key in range(1, 8))),
        data("e/100/1", "I 110 1 a", "U 111 1 b"),
        data("n/100/1", "I 110 a", "I 110 a", "I 111 b"),
        checkpoint(115, {"t": [f"{key} a" for key in range(1, 8)], "e": ["1 b"], "n(v)": ["a", "a", "b"]}),
        data("t/100/2", "D 120 1 a", "U 120 2 b", "D 130 3 a", "I 130 33 a"),
        data("e/100/2", "D 120 1 b"),
        data("n/100/2", "D 120 a", "I 130 c"),
        checkpoint(140, {"t": ["2 b", "33 a", "4 a", "5 a", "6 a", "7 a"], "e": [], "n(v)": ["a", "b", "c"]}),
    ),
    history(
        "T72 ADD COLUMN",
        created("t"),
        data("t/100/1", "I 110 1 a"),
        checkpoint(115, {"t": ["1 a"]}),
        schema("t", 200, "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", "id,v,c"),
        data("t/200/1", "U 210 1 b 8", "I 210 2 b 9"),
        checkpoint(300, {"t(id,v,c)": ["1 b 8", "2 b 9"]}),
        data("t/200/2", "I 310 3 c NULL"),
        checkpoint(400, {"t(id,v,c)": ["1 b 8", "2 b 9", "3 c NULL"]}),
    ),
    history(
        "T72 DROP and CREATE",
        created("t"),
        data("t/100/1", "I 110 1 a"),
        checkpoint(115, {"t": ["1 a"]}),
        schema("t", 200, "DROP TABLE `test`.`t`"),
        created("t", 220),
        data("t/220/1", "I 230 2 b"),
        created("e", 240),
        data("e/240/1", "I 250 1 a"),
        checkpoint(300, {"t": ["2 b"], "e": ["1 a"]}),
    ),
    history(
        "T72 RENAME to a new name and back",
        created("t"),
        data("t/100/1", "I 110 1 a"),
        checkpoint(115, {"t": ["1 a"]}),
        schema("e", 200, "RENAME TABLE `test`.`t` TO `test`.`e`"),
        data("e/200/1", "I 210 2 b"),
        schema("t", 220, "RENAME TABLE `test`.`e` TO `test`.`t`"),
        data("t/220/1", "I 230 3 c", "D 230 1 a"),
        checkpoint(300, {"t": ["2 b", "3 c"]}),
    ),
    history(
        "T72 TRUNCATE with rows behind it",
        created("t"),
        data("t/100/1", "I 110 1 a"),
        checkpoint(115, {"t": ["1 a"]}),
        data("t/100/2", "I 190 2 b"),
        schema("t", 200, "TRUNCATE TABLE `test`.`t`"),
        data("t/200/1", "I 210 3 c", "I 210 4 d"),
        checkpoint(300, {"t": ["3 c", "4 d"]}),
    ),
    history(
        "T74 a corrupt file stops its table only",
        created("t"),
        created("e"),
        data("t/100/1", "I 110 1 a"),
        data("e/100/1", "I 110 1 a"),
        checkpoint(115, {"t": ["1 a"], "e": ["1 a"]}),
        raw("test/t/100/CDC000002.csv", '"I","t","test",120,two,"b"\n'),
        data("t/100/3", "I 125 3 c"),
        data("e/100/2", "I 120 2 b"),
        checkpoint(130, {"t": ["1 a"], "e": ["1 a", "2 b"]}, {"t": "CDC000002.csv"}),
        data("e/100/3", "I 140 3 c"),
        checkpoint(150, {"t": ["1 a"], "e": ["1 a", "2 b", "3 c"]}, {"t": "value 'two'"}),
        data("t/100/2", "I 120 2 b").gives({"t": ["1 a", "2 b", "3 c"], "e": ["1 a", "2 b", "3 c"]}),
    ),
    history(
        "T75 a routed table",
        created("tgt.t_new"),
        data("tgt.t_new/100/1", "I 110 1 a"),
        schema("tgt.t_new", 200, "ALTER TABLE `tgt`.`t_new` ADD COLUMN `c` INT DEFAULT 7", "id,v,c"),
        data("tgt.t_new/200/1", "I 210 2 b 9"),
        checkpoint(300, {"tgt.t_new(id,v,c)": ["1 a 7", "2 b 9"]}),
    ),
]

BOUGHT = ["I 110 1 example1", "I 110 2 example2", "I 111 10 example10", "I 111 20 example20", "I 112 100 example100"]
BOUGHT_ONCE = [*BOUGHT, "I 113 1000 example1000"]
MOVED = ["1 example2", "2 example1", "30 example10", "40 example20", "200 example100", "1000 example1001"]
LEFT_BEHIND = ["10 example10", "20 example20", "100 example100"]
UPDATED_KEYS = {
    "split and sorted": (
        *("D 120 1 example1", "D 120 2 example2", "I 120 2 example1", "I 120 1 example2"),
        *("D 121 10 example10", "D 121 20 example20", "I 121 30 example10", "I 121 40 example20"),
        *("D 122 100 example100", "I 122 200 example100", "U 123 1000 example1001"),
    ),
    "split and not sorted": (
        *("D 120 1 example1", "I 120 2 example1", "D 120 2 example2", "I 120 1 example2"),
        *("D 121 10 example10", "I 121 30 example10", "D 121 20 example20", "I 121 40 example20"),
        *("D 122 100 example100", "I 122 200 example100", "U 123 1000 example1001"),
    ),
    "not split": (
        *("U 120 2 example1", "U 120 1 example2", "U 121 30 example10", "U 121 40 example20"),
        *("U 122 200 example100", "U 123 1000 example1001"),
    ),
}
"""What releases and settings make of the same updates of a primary key (section 6.6)."""


def with_marks(rows: Iterable[str], updates: frozenset[str]) -> list[str]:
    """The rows as ``output-old-value`` marks them: those of ``updates`` belong to an update."""
    found = []
    for row in rows:
        operation, ts, *values = row.split(" ")
        if operation == "U":
            found.append(" ".join(["D+", ts, values[0], values[1][:-1] + "0"]))
            operation = "I"
            mark = "+"
        else:
            mark = "+" if ts in updates else "-"
        found.append(" ".join([operation + mark, ts, *values]))
    return found


def moved_keys(name: str, bought: Sequence[str], updated: Sequence[str], final: Sequence[str], **more: Any) -> History:
    """Swapped, moved and plain updates of a primary key in a table that was filled before."""
    return history(
        f"T77 {name}",
        created("update_pk"),
        data("update_pk/100/1", *bought, *updated[: len(updated) // 2]),
        data("update_pk/100/2", *updated[len(updated) // 2 :]),
        checkpoint(200, {"update_pk": final}),
        **more,
    )


RAW, OLD = "&output-raw-change-event=true", "&output-old-value=true"
SWAPS = frozenset({"120", "121", "122"})
CASES += [
    moved_keys("changefeed1 split and sorted", BOUGHT_ONCE, UPDATED_KEYS["split and sorted"], MOVED),
    moved_keys(
        "changefeed2 raw with old values, in pairs",
        with_marks(BOUGHT_ONCE, frozenset()),
        with_marks(UPDATED_KEYS["split and not sorted"], SWAPS),
        MOVED,
        options=OPTIONS + RAW + OLD,
    ),
    moved_keys(
        "changefeed3 raw, old keys are lost and that is told",
        BOUGHT_ONCE,
        UPDATED_KEYS["not split"],
        MOVED + LEFT_BEHIND,
        options=OPTIONS + RAW,
        told=["does not tell the old key"],
    ),
    moved_keys(
        "changefeed3 raw, where a clustered key is split", BOUGHT_ONCE, UPDATED_KEYS["split and sorted"], MOVED, options=RAW
    ),
    moved_keys(
        "changefeed4 split and sorted with old values",
        with_marks(BOUGHT_ONCE, frozenset()),
        with_marks(UPDATED_KEYS["split and sorted"], frozenset()),
        MOVED,
        options=OPTIONS + OLD,
    ),
    moved_keys("v6.5.3 split and not sorted", BOUGHT_ONCE, UPDATED_KEYS["split and not sorted"], MOVED),
    *(
        history(
            f"T77 unique key, {name}",
            schema("update_uk", 100, CREATE_UPDATE_UK, "id,uk,v"),
            data("update_uk/100/1", *(f"I 110 {key} {key} a" for key in (1, 2, 10, 100))),
            checkpoint(115, {"update_uk(id,uk,v)": ["1 1 a", "2 2 a", "10 10 a", "100 100 a"]}),
            data("update_uk/100/2", *rows),
            checkpoint(200, {"update_uk(id,uk,v)": ["1 2 a", "2 1 a", "10 30 a", "100 100 b"]}),
        )
        for name, rows in {
            "split and sorted": (
                *("D 120 1 1 a", "D 120 2 2 a", "I 120 1 2 a", "I 120 2 1 a"),
                *("D 121 10 10 a", "I 121 10 30 a", "U 122 100 100 b"),
            ),
            "split and not sorted": (
                *("D 120 1 1 a", "I 120 1 2 a", "D 120 2 2 a", "I 120 2 1 a"),
                *("D 121 10 10 a", "I 121 10 30 a", "U 122 100 100 b"),
            ),
            "not split": ("U 120 1 2 a", "U 120 2 1 a", "U 121 10 30 a", "U 122 100 100 b"),
        }.items()
    ),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: History, way: str, stage: Stage, request: pytest.FixtureRequest) -> None:
    live_through(case, way, stage, request, many_crashes=True)


def test_t76_a_second_round_lists_and_reads_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a local disk a run's second round lists the folders that got something and no other, and reads the new files only."""
    monkeypatch.setattr(listing_cache, "SETTLED_NS", 0)
    tables, files = 300, 20
    bucket = Bucket(tmp_path)
    for table in range(tables):
        bucket.create(f"t{table}")
        for number in range(1, files + 1):
            bucket.write(f"test/t{table}/100/CDC{number:06d}.csv", f'"I","t{table}","test",{110 + number},{number},"a"\n')
        bucket.schema(f"t{table}", 200, statement=f"ALTER TABLE `t{table}` COMMENT = 'x'")
    # A change within the tick of the last one shows no other time.
    time.sleep(0.02)
    bucket.checkpoint(300)
    consumer = bucket.consumer()
    consumer.cut()
    assert len(consumer.reports) == tables * files
    assert len(consumer.position) < 100 * tables
    listed: list[Entries] = []
    read: list[str] = []
    entries, read_buffer, read_starts = Store.entries, Store.read_buffer, Store.read_starts

    def counting_entries(store: Store, path: str = "", recursive: bool = False) -> Entries:
        listed.append(entries(store, path, recursive))
        return listed[-1]

    def counting_read(store: Store, path: str) -> pa.Buffer:
        read.append(path)
        return read_buffer(store, path)

    def counting_starts(store: Store, paths: list[str], length: int) -> list[bytes | None]:
        read.extend(path for path in paths if "/meta/" in path)
        return read_starts(store, paths, length)

    monkeypatch.setattr(Store, "read_starts", counting_starts)
    monkeypatch.setattr(Store, "entries", counting_entries)
    monkeypatch.setattr(Store, "read_buffer", counting_read)
    new = [bucket.rows(f"t{table}/200/1", "I 310 77 z") for table in range(3)]
    bucket.checkpoint(400)
    assert [split.key for split in consumer.cut().splits] == sorted(new)
    assert sorted(path for path in read if path != "metadata") == sorted(new)
    # The folder of the table, which got one for its version, that one, and the one of its index.
    assert len(listed) == 3 * len(new)
    assert sum(len(found.files) + len(found.folders) for found in listed) == 6 * len(new)
