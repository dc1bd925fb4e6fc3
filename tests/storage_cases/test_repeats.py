"""What TiCDC writes twice, late, or in another place, and what is taken away: every history ends in the upstream's state.

The failure timelines are those of section 6.8 of the format's specification, the hazards those of its section 2.16.
"""

from __future__ import annotations

import pytest
from building import csv_record
from histories import WAYS, Expect, History, Stage, Step, checkpoint, created, data, history, live_through, raw, removed, schema

from storage_folder import OPTIONS

pytestmark = pytest.mark.pipeline

DATED = OPTIONS.replace("date-separator=none", "date-separator=day")
WITHOUT_TS = OPTIONS + "&include-commit-ts=false"
FILLED = {"t": ["1 a", "2 b", "3 c"]}
ALARM = "vanished"
META = "ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,ticdc-meta$commit-ts"
PARTITIONED = "CREATE TABLE `test`.`p` (`id` INT PRIMARY KEY,`v` VARCHAR(16)) PARTITION BY HASH (`id`) PARTITIONS 2"


def records(*rows: str, table: str = "t") -> str:
    """The text of a data file."""
    return "".join(csv_record(row, table, "test") + "\n" for row in rows)


def without_ts(*rows: str) -> str:
    """The text of a data file of a changefeed without ``include-commit-ts``: ``I 1 a``."""
    return "".join(f'"{operation}","t","test",{key},"{value}"\n' for operation, key, value in (row.split() for row in rows))


def by_id(table_id: str, version: int, statement: str = "") -> Step:
    """A schema file of ``test.t`` where table ids are the paths."""
    return Step(lambda bucket: bucket.schema("t", version, "id,v", statement, parent=table_id))


def index(directory: str, content: str) -> Step:
    return raw(f"test/{directory}/meta/CDC.index", content)


TIMELINES = [
    history(
        "1 crash after the data and before the acknowledgement",
        created("t"),
        data("t/100/7", "I 150 1 a", "I 160 2 x", "U 190 2 b"),
        checkpoint(140, {"t": []}),
        data("t/100/8", "I 150 1 a", "I 160 2 x", "U 190 2 b", "I 195 3 c"),
        checkpoint(165, {"t": ["1 a", "2 x"]}),
        checkpoint(200, FILLED),
    ),
    *(
        history(
            f"2 the index names a file that is {state}",
            created("t"),
            data("t/100/7", "I 110 1 a", "I 120 2 b"),
            *steps,
            index("t/100", "CDC000008.csv\n"),
            checkpoint(130, {"t": ["1 a", "2 b"]}),
            data("t/100/8", "I 120 2 b", "I 140 3 c"),
            checkpoint(150, FILLED),
        )
        for state, steps in {"not there": (), "empty": (raw("test/t/100/CDC000008.csv", ""),)}.items()
    ),
    history(
        "3 crash between a file and its index",
        created("t"),
        data("t/100/7", "I 110 1 a"),
        data("t/100/8", "I 120 2 b", "I 125 3 x"),
        index("t/100", "CDC000007.csv\n"),
        checkpoint(115, {"t": ["1 a"]}),
        data("t/100/9", "I 120 2 b", "I 125 3 x", "U 130 3 c"),
        checkpoint(140, FILLED),
    ),
    history(
        "4 a file written in place is cut off, and a later one repeats it",
        created("t"),
        data("t/100/7", "I 110 1 a"),
        checkpoint(115, {"t": ["1 a"]}),
        raw("test/t/100/CDC000008.csv", records("I 120 2 b") + '"I","t","test",130,3,"c'),
        checkpoint(125, {"t": ["1 a", "2 b"]}),
        data("t/100/9", "I 120 2 b", "I 130 3 c"),
        checkpoint(140, FILLED),
    ),
    history(
        "4 a file written in place is cut off, and only another partition covers its time",
        schema("p", 100),
        created("e"),
        raw("test/p/100/112/CDC000008.csv", records("I 120 2 b", table="p") + '"I","p","test",130,3,"c'),
        data("p/100/113/1", "I 115 1 a", "I 135 11 k"),
        data("e/100/1", "I 135 1 a"),
        checkpoint(140, {"p": [], "e": ["1 a"]}, {"p": "CDC000008.csv"}),
        data("p/100/112/8", "I 120 2 b", "I 130 3 c").gives({"p": ["1 a", "11 k", "2 b", "3 c"], "e": ["1 a"]}),
    ),
    history(
        "5 a table moves to another node",
        created("t"),
        data("t/100/1", "I 110 1 a", "I 120 2 x"),
        checkpoint(115, {"t": ["1 a"]}),
        data("t/100/2", "I 120 2 x", "U 130 2 b", "I 140 3 c"),
        checkpoint(150, FILLED),
    ),
    history(
        "5 a table moves to another node of an old release",
        created("t"),
        data("t/100/1", "I 110 1 a", "I 120 2 x", "U 130 2 y"),
        checkpoint(115, {"t": ["1 a"]}),
        schema("t", 115),
        data("t/115/1", "I 120 2 x", "U 130 2 y", "U 135 2 b", "I 140 3 c"),
        checkpoint(132, {"t": ["1 a", "2 y"]}),
        checkpoint(150, FILLED),
    ),
    history(
        "6 resumed at an older checkpoint",
        created("t"),
        data("t/100/1", "I 110 1 old", "U 120 1 a", "I 130 2 b"),
        schema("t", 150, "ALTER TABLE `t` COMMENT = 'x'"),
        checkpoint(160, {"t": ["1 a", "2 b"]}),
        checkpoint(105, {"t": ["1 a", "2 b"]}),
        data("t/150/1", "I 110 1 old", "U 120 1 a", "I 130 2 b"),
        checkpoint(140, {"t": ["1 a", "2 b"]}),
        data("t/150/2", "I 170 3 c"),
        checkpoint(180, FILLED),
    ),
    history(
        "7 a changefeed is created anew on the same prefix",
        created("t"),
        data("t/100/1", "I 110 1 old", "U 120 1 a"),
        data("t/100/2", "I 130 2 b", "I 135 9 gone"),
        checkpoint(140, {"t": ["1 a", "2 b", "9 gone"]}),
        data("t/100/3", "D 145 9 gone"),
        checkpoint(150, {"t": ["1 a", "2 b"]}),
        checkpoint(101, {"t": ["1 a", "2 b"]}),
        data("t/100/4", "I 110 1 old", "U 120 1 a", "I 130 2 b", "I 135 9 gone", "D 145 9 gone"),
        checkpoint(148, {"t": ["1 a", "2 b"]}),
        data("t/100/5", "I 160 3 c"),
        checkpoint(170, FILLED),
    ),
    history(
        "8 the date changes, and a node is behind",
        created("t"),
        data("t/100/2024-06-05/1", "I 110 1 a", "I 115 2 x"),
        checkpoint(116, {"t": ["1 a", "2 x"]}),
        data("t/100/2024-06-06/1", "U 130 2 b"),
        data("t/100/2024-06-05/2", "U 120 2 y"),
        checkpoint(140, {"t": ["1 a", "2 b"]}),
        data("t/100/2024-06-05/3", "U 120 2 y", "I 150 3 c"),
        checkpoint(160, FILLED),
        options=DATED,
    ),
]

PLACES = [
    history(
        "dispatchers split, move and repeat",
        created("t"),
        data("t/100/CDC_10_000001.csv", "I 110 1 a", "I 110 2 x", "I 110 9 z"),
        checkpoint(115, {"t": ["1 a", "2 x", "9 z"]}),
        data("t/100/CDC_10_000002.csv", "U 120 2 y", "D 130 9 z"),
        data("t/100/CDC_20_000001.csv", "U 120 2 y", "U 140 2 b"),
        data("t/100/CDC_05_000001.csv", "D 130 9 z", "I 135 3 c"),
        checkpoint(125, {"t": ["1 a", "2 y", "9 z"]}),
        checkpoint(150, FILLED),
        data("t/100/CDC_05_000002.csv", "U 120 2 y", "I 110 9 z"),
        checkpoint(160, FILLED),
    ),
    history(
        "dispatchers of a table without key hold equal rows",
        created("n", shape="v"),
        created("t"),
        data("n/100/CDC_10_000001.csv", "I 110 a", "I 110 b"),
        data("n/100/CDC_20_000001.csv", "I 112 a", "I 110 c"),
        checkpoint(115, {"n(v)": ["a", "a", "b", "c"], "t": []}),
        data("n/100/CDC_10_000002.csv", "I 120 d"),
        data("n/100/CDC_20_000002.csv", "I 120 d"),
        data("t/100/1", "I 120 1 a"),
        checkpoint(130, {"n(v)": ["a", "a", "b", "c"], "t": ["1 a"]}, {"n": "enable-table-across-nodes"}),
        in_one_go=Expect({"n(v)": [], "t": ["1 a"]}, {"n": "two dispatchers"}),
    ),
    history(
        "index files lie",
        created("t"),
        data("t/100/1", "I 110 1 a"),
        index("t/100", "CDC000099.csv\n"),
        data("t/100/2", "I 120 2 b"),
        index("t/100", "CDC000001.csv"),
        checkpoint(130, {"t": ["1 a", "2 b"]}),
        index("t/100", "no such thing \x00"),
        data("t/100/3", "I 140 3 c"),
        index("t/100", ""),
        checkpoint(150, FILLED),
    ),
    history(
        "numbers have holes, and a smaller one comes later",
        created("t"),
        data("t/100/4", "I 110 1 a"),
        checkpoint(115, {"t": ["1 a"]}),
        data("t/100/9", "U 130 2 b"),
        data("t/100/6", "I 120 2 x"),
        checkpoint(140, {"t": ["1 a", "2 b"]}),
        data("t/100/2", "I 150 3 c"),
        checkpoint(160, FILLED),
    ),
    history(
        "wide numbers stand beside narrow ones",
        created("t"),
        data("t/100/CDC000001.csv", "I 110 1 a"),
        data("t/100/CDC999999.csv", "I 120 2 x"),
        checkpoint(125, {"t": ["1 a", "2 x"]}),
        data("t/100/CDC00000000000000000001.csv", "I 120 2 x", "U 130 2 y"),
        data("t/100/CDC1000000.csv", "U 130 2 y", "U 140 2 b"),
        checkpoint(145, {"t": ["1 a", "2 b"]}),
        data("t/100/CDC00000000000000000002.csv", "I 150 3 c"),
        checkpoint(160, FILLED),
    ),
    history(
        "a file is cut off at the end of the narrow numbers",
        created("t"),
        raw("test/t/100/CDC999999.csv", records("I 110 1 a", "I 120 2 b") + '"I","t","test",130,3,"c'),
        checkpoint(125, {"t": ["1 a", "2 b"]}),
        data("t/100/CDC1000000.csv", "I 120 2 b", "I 130 3 c"),
        checkpoint(140, FILLED),
    ),
    history(
        "table ids are the paths, and partitions and a truncation have ids of their own",
        by_id("110", 100, "CREATE TABLE `test`.`t` (`id` INT PRIMARY KEY,`v` VARCHAR(16))"),
        by_id("111", 101),
        by_id("112", 102),
        raw("111/101/CDC000001.csv", records("I 110 1 x", "I 110 7 z")),
        raw("112/102/CDC000001.csv", records("I 110 2 x")),
        checkpoint(115, {"t": ["1 x", "2 x", "7 z"]}),
        by_id("120", 200, "TRUNCATE TABLE `test`.`t`"),
        by_id("121", 201),
        raw("121/201/CDC000001.csv", records("I 210 1 a", "I 220 2 b")),
        raw("111/101/CDC000002.csv", records("I 110 1 x", "I 110 7 z")),
        checkpoint(230, {"t": ["1 a", "2 b"]}),
        raw("121/201/CDC000002.csv", records("I 220 2 b", "I 240 3 c")),
        checkpoint(250, FILLED),
        options=OPTIONS + "&use-table-id-as-path=true",
    ),
    history(
        "files without commit ts overlap",
        created("t"),
        raw("test/t/100/CDC000001.csv", without_ts("I 1 x", "U 1 a", "I 2 x")),
        checkpoint(120, {"t": ["1 a", "2 x"]}),
        raw("test/t/100/CDC000002.csv", without_ts("U 1 a", "I 2 x", "U 2 b", "I 3 c")),
        checkpoint(130, FILLED),
        options=WITHOUT_TS,
        told=["at least once"],
    ),
]

REMOVED = [
    history(
        "removed before it was applied",
        created("t"),
        created("e"),
        data("t/100/1", "I 110 1 a"),
        data("t/100/2", "I 120 2 b", "I 140 3 c"),
        data("e/100/1", "I 110 1 a"),
        checkpoint(130, {"t": ["1 a", "2 b"], "e": ["1 a"]}),
        removed("test/t/100/CDC000002.csv"),
        data("e/100/2", "I 140 2 b"),
        checkpoint(150, {"t": ["1 a", "2 b"], "e": ["1 a", "2 b"]}, {"t": "CDC000002.csv: The file vanished"}),
        checkpoint(160, {"t": ["1 a", "2 b"], "e": ["1 a", "2 b"]}, {"t": "file-expiration-days"}),
        data("t/100/2", "I 120 2 b", "I 140 3 c").gives({**FILLED, "e": ["1 a", "2 b"]}),
    ),
    history(
        "removed while the table stood still",
        created("t"),
        created("e"),
        data("t/100/1", "I 110 1 a"),
        data("e/100/1", "I 110 1 a"),
        checkpoint(115, {"t": ["1 a"], "e": ["1 a"]}),
        raw("test/t/100/CDC000002.csv", '"I","t","test",120,two,"b"\n'),
        checkpoint(125, {"t": ["1 a"], "e": ["1 a"]}, {"t": "value 'two'"}),
        data("t/100/3", "I 130 3 c"),
        checkpoint(135, {"t": ["1 a"], "e": ["1 a"]}, {"t": "value 'two'"}),
        removed("test/t/100/CDC000003.csv").gives({"t": ["1 a"], "e": ["1 a"]}, {"t": "CDC000003.csv: The file vanished"}),
        data("t/100/2", "I 120 2 b"),
        checkpoint(140, {"t": ["1 a"], "e": ["1 a"]}, {"t": "CDC000003.csv: The file vanished"}),
        data("t/100/3", "I 130 3 c").gives({**FILLED, "e": ["1 a"]}),
    ),
    history(
        "removed after it was applied",
        created("t"),
        data("t/100/1", "I 110 1 a"),
        data("t/100/2", "I 120 2 b"),
        checkpoint(130, {"t": ["1 a", "2 b"]}),
        removed("test/t/100/CDC000001.csv"),
        data("t/100/3", "I 140 3 c"),
        checkpoint(150, FILLED),
        removed("test/t/100/CDC000002.csv"),
        removed("test/t/100/CDC000003.csv"),
        checkpoint(160, FILLED),
        untold=[ALARM, "missing"],
        in_one_go=Expect({"t": []}),
    ),
    history(
        "removed late repetitions of a table that is gone",
        created("t"),
        created("e"),
        data("t/100/1", "I 110 1 a"),
        schema("t", 200, "DROP TABLE `test`.`t`"),
        checkpoint(210, {"e": []}),
        data("t/100/2", "I 110 1 a"),
        checkpoint(220, {"e": []}),
        removed("test/t/100/CDC000002.csv"),
        data("e/100/1", "I 225 1 a"),
        checkpoint(230, {"e": ["1 a"]}),
        untold=[ALARM],
    ),
]

HAZARDS = [
    history(
        "the partition separator is off, and partitions overwrite each other",
        schema("p", 100, PARTITIONED),
        data("p/100/1", "I 110 1 a"),
        checkpoint(115, {"p": ["1 a"]}),
        data("p/100/1", "I 120 2 b"),
        checkpoint(125, {"p": ["1 a", "2 b"]}),
        told=["lie in no folder of a partition"],
        in_one_go=Expect({"p": ["2 b"]}),
    ),
    history(
        "an object is overwritten with more",
        created("t"),
        data("t/100/1", "I 110 1 a", "I 120 2 b"),
        checkpoint(130, {"t": ["1 a", "2 b"]}),
        data("t/100/1", "I 110 1 a", "I 120 2 b", "I 140 3 c"),
        checkpoint(150, FILLED),
    ),
    history(
        "columns were reordered by a statement that was filtered out",
        created("t", shape="id,v,c"),
        data("t/100/1", "I 110 1 a 5"),
        checkpoint(115, {"t(id,v,c)": ["1 a 5"]}),
        raw("test/t/100/CDC000002.csv", '"I","t","test",120,2,6,"b"\n'),
        checkpoint(130, {"t(id,v,c)": ["1 a 5"]}, {"t": "does not fit the 3 columns"}),
        in_one_go=Expect({"t(id,v,c)": []}, {"t": "does not fit the 3 columns"}),
    ),
    history(
        "columns were reordered by a statement that was filtered out, and headers tell",
        created("t", shape="id,v,c"),
        raw("test/t/100/CDC000001.csv", f'{META},id,v,c\n"I","t","test",110,1,"a",5\n'),
        checkpoint(115, {"t(id,v,c)": ["1 a 5"]}),
        raw("test/t/100/CDC000002.csv", f'{META},id,c,v\n"I","t","test",120,2,6,"b"\n'),
        checkpoint(130, {"t(id,v,c)": ["1 a 5", "2 b 6"]}),
        options=OPTIONS + "&output-field-header=true",
    ),
]

CASES = [*TIMELINES, *PLACES, *REMOVED, *HAZARDS]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_history(case: History, way: str, stage: Stage, request: pytest.FixtureRequest) -> None:
    live_through(case, way, stage, request)
