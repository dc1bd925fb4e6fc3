"""A directory's version says how its rows are decoded; their commit ts alone says when they count.

Partitions of a table stand at different versions, in table-id paths and in the old layout, and TiCDC goes on in an older directory
when a table has the columns again that it had there.
"""

from __future__ import annotations

import json

import pytest
from building import COLUMNS, Row, csv_record
from histories import WAYS, Expect, History, Stage, Step, checkpoint, created, data, history, live_through, raw, schema

from storage_folder import ID, OPTIONS

pytestmark = pytest.mark.pipeline

TABLE_IDS = OPTIONS + "&use-table-id-as-path=true"
NO_COMMIT_TS = "ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema"
PARTITIONS = " PARTITION BY HASH(`id`) PARTITIONS 2"
CREATE = "CREATE TABLE `test`.`p` (`id` INT PRIMARY KEY,`v` VARCHAR(16))"
CREATE_WITH_C = "CREATE TABLE `test`.`p` (`id` INT PRIMARY KEY,`v` VARCHAR(16),`c` INT DEFAULT 7)"
ADD_C = "ALTER TABLE `test`.`%s` ADD COLUMN `c` INT DEFAULT 7"
DROP_C = "ALTER TABLE `test`.`%s` DROP COLUMN `c`"
RENAMED_C = (COLUMNS["id"], COLUMNS["v"], COLUMNS["c"] | {"ColumnName": "uk"})
C_FIRST = "ALTER TABLE `test`.`%s` MODIFY COLUMN `c` INT DEFAULT 7 FIRST"
C_LAST = "ALTER TABLE `test`.`%s` MODIFY COLUMN `c` INT DEFAULT 7 AFTER `v`"
ADD_C_FIRST = "ALTER TABLE `test`.`%s` ADD COLUMN `c` INT DEFAULT 7 FIRST"
NO_ORDER = "the order of the values in a record is not known"
LACKS_C = "the row's value in this column is not known"


def of_id(parent: int, version: int, statement: str = "", shape: str = "id,v") -> Step:
    """The schema file of ``test.p`` or one of its partitions under a table id."""
    return Step(lambda bucket: bucket.schema("p", version, shape, statement, parent=str(parent)))


def rows(place: str, *records: Row, shape: str = "id,v", name: str = "p") -> Step:
    """A data file ``111/100/1`` under a table id, or at any other place."""
    return mixed(place, *((record, shape) for record in records), name=name)


def mixed(place: str, *records: tuple[Row, str], name: str = "p") -> Step:
    """A data file with rows whose columns come in different orders."""
    directory, _, number = place.rpartition("/")
    shaped = [(record, tuple(COLUMNS[column] for column in shape.split(","))) for record, shape in records]
    content = "".join(csv_record(record, name, "test", columns) + "\n" for record, columns in shaped)
    return raw(f"{directory}/CDC{int(number):06d}.csv", content)


def old_schema(table: str, version: int, statement: str = "", shape: str = "id,v") -> Step:
    """The schema file of the old layout, in the directory of its version."""

    def act(bucket: object) -> None:
        columns = tuple(COLUMNS[name] for name in shape.split(","))
        text = bucket.folder.schema_text(table, version, statement, columns)  # type: ignore[attr-defined]
        document = {k: v for k, v in json.loads(text).items() if k != "Type"}
        bucket.write(f"test/{table}/{version}/schema.json", json.dumps(document))  # type: ignore[attr-defined]

    return Step(act)


TWO_ROWS_WITH_C = (
    of_id(110, 100, CREATE_WITH_C + PARTITIONS, "id,v,c"),
    of_id(111, 100, "", "id,v,c"),
    rows("111/100/1", "I 110 2 x 1", "I 120 4 z 2", shape="id,v,c"),
    checkpoint(150, {"p(id,v,c)": ["2 x 1", "4 z 2"]}),
)
"""A partitioned table with rows in the first directory of one partition."""


CASES = [
    history(
        "a row moves to the partition whose directory is older",
        of_id(110, 100, CREATE + PARTITIONS),
        of_id(111, 100),
        rows("111/100/1", "I 110 2 x"),
        checkpoint(120, {"p": ["2 x"]}),
        of_id(112, 150),
        rows("112/150/1", "I 160 1 a", "D 170 1 a"),
        rows("111/100/2", "I 170 1 b"),
        checkpoint(180, {"p": ["1 b", "2 x"]}),
        rows("111/100/3", "D 190 1 b"),
        rows("112/150/2", "I 190 1 c"),
        checkpoint(200, {"p": ["1 c", "2 x"]}),
        options=TABLE_IDS,
    ),
    history(
        "partitions of the old layout that began anew at different times",
        old_schema("p", 100, CREATE + PARTITIONS),
        rows("test/p/100/111/1", "I 110 2 x"),
        rows("test/p/100/112/1", "I 110 1 w"),
        checkpoint(120, {"p": ["1 w", "2 x"]}),
        old_schema("p", 150),
        rows("test/p/150/112/1", "D 160 1 w", "I 165 1 a", "D 170 1 a"),
        rows("test/p/100/111/2", "I 160 1 v", "U 170 1 b"),
        checkpoint(200, {"p": ["1 b", "2 x"]}),
    ),
    history(
        "partitions go on in their first directories after a column came and went",
        of_id(110, 100, CREATE + PARTITIONS),
        of_id(111, 100),
        of_id(112, 100),
        rows("111/100/1", "I 110 2 x", "I 115 4 z"),
        rows("112/100/1", "I 110 1 w"),
        checkpoint(150, {"p": ["1 w", "2 x", "4 z"]}),
        of_id(110, 200, ADD_C % "p", "id,v,c"),
        of_id(111, 200, "", "id,v,c"),
        rows("111/200/1", "U 210 2 y 1", "I 220 6 n 2", shape="id,v,c"),
        checkpoint(250, {"p(id,v,c)": ["1 w 7", "2 y 1", "4 z 7", "6 n 2"]}),
        of_id(110, 300, DROP_C % "p"),
        rows("111/100/2", "U 310 2 after", "D 320 6 n"),
        rows("112/100/2", "U 310 1 after"),
        checkpoint(350, {"p": ["1 after", "2 after", "4 z"]}),
        of_id(110, 400, ADD_C % "p", "id,v,c"),
        rows("111/200/2", "U 410 2 again 3", shape="id,v,c"),
        checkpoint(450, {"p(id,v,c)": ["1 after 7", "2 again 3", "4 z 7"]}),
        options=TABLE_IDS,
    ),
    history(
        "partitions go on in their first directories after a column went and came",
        *TWO_ROWS_WITH_C,
        of_id(110, 200, DROP_C % "p"),
        of_id(111, 200),
        rows("111/200/1", "U 210 2 y"),
        checkpoint(250, {"p": ["2 y", "4 z"]}),
        of_id(110, 300, ADD_C % "p", "id,v,c"),
        rows("111/100/2", "U 310 2 after 5", "D 320 4 z 7", shape="id,v,c"),
        checkpoint(350, {"p(id,v,c)": ["2 after 5"]}),
        options=TABLE_IDS,
    ),
    history(
        "columns change places, and partitions go on in directories of the former order",
        *TWO_ROWS_WITH_C,
        of_id(110, 200, C_FIRST % "p", "c,id,v"),
        rows("111/100/2", "U 210 6 2 y", "D 220 2 4 z", shape="c,id,v"),
        rows("112/200/1", "I 220 3 1 w", shape="c,id,v"),
        of_id(112, 200, "", "c,id,v"),
        checkpoint(250, {"p(id,v,c)": ["1 w 3", "2 y 6"]}),
        of_id(110, 300, C_LAST % "p", "id,v,c"),
        rows("111/100/3", "U 310 2 back 5", shape="id,v,c"),
        rows("112/200/2", "U 310 1 back 4", shape="id,v,c"),
        checkpoint(350, {"p(id,v,c)": ["1 back 4", "2 back 5"]}),
        options=TABLE_IDS,
    ),
    history(
        "a column is dropped and comes back at another place, and a partition goes on in its first directory",
        *TWO_ROWS_WITH_C,
        of_id(110, 200, DROP_C % "p"),
        of_id(111, 200),
        rows("111/200/1", "U 210 2 y"),
        of_id(110, 300, ADD_C_FIRST % "p", "c,id,v"),
        rows("111/100/2", "U 310 5 2 after", shape="c,id,v"),
        checkpoint(350, {"p(id,v,c)": ["2 after 5", "4 z 7"]}),
        options=TABLE_IDS,
    ),
    history(
        "one file holds rows of both sides of a change of the order of columns",
        of_id(110, 100, CREATE_WITH_C + PARTITIONS, "id,v,c"),
        of_id(111, 100, "", "id,v,c"),
        of_id(110, 200, C_FIRST % "p", "c,id,v"),
        mixed("111/100/1", ("I 110 2 x 1", "id,v,c"), ("I 200 4 z 2", "id,v,c"), ("U 210 6 2 y", "c,id,v")),
        mixed("111/100/2", ("U 210 6 2 y", "c,id,v"), ("I 120 8 a 3", "id,v,c"), ("D 220 2 4 z", "c,id,v")),
        checkpoint(250, {"p(id,v,c)": ["2 y 6", "8 a 3"]}),
        options=TABLE_IDS,
    ),
    history(
        "after a restart older rows come in the newest directory in the order that the columns had",
        created("t", 100, "id,v,c"),
        data("t/100/1", "I 110 1 a 1", "I 120 2 b 2"),
        schema("t", 200, C_FIRST % "t", "c,id,v"),
        data("t/200/1", "U 210 5 1 c"),
        checkpoint(220, {"t(id,v,c)": ["1 c 5", "2 b 2"]}),
        mixed("test/t/200/2", ("I 120 2 b 2", "id,v,c"), ("U 210 5 1 c", "c,id,v"), ("U 230 6 2 d", "c,id,v"), name="t"),
        checkpoint(250, {"t(id,v,c)": ["1 c 5", "2 d 6"]}),
    ),
    history(
        "columns change places, and neither commit ts nor headers tell which order rows have in a directory of the former one",
        of_id(110, 100, CREATE_WITH_C + PARTITIONS, "id,v,c"),
        of_id(111, 100, "", "id,v,c"),
        of_id(110, 200, C_FIRST % "p", "c,id,v"),
        of_id(112, 200, "", "c,id,v"),
        raw("111/100/CDC000001.csv", '"I","p","test",6,2,"y"\n'),
        raw("112/200/CDC000001.csv", '"I","p","test",3,1,"w"\n'),
        checkpoint(250, {"p(id,v,c)": []}, {"p": NO_ORDER}),
        options=TABLE_IDS,
    ),
    history(
        "columns change places, and headers tell which order rows have in a directory of the former one",
        of_id(110, 100, CREATE_WITH_C + PARTITIONS, "id,v,c"),
        of_id(111, 100, "", "id,v,c"),
        of_id(110, 200, C_FIRST % "p", "c,id,v"),
        raw("111/100/CDC000001.csv", f'{NO_COMMIT_TS},id,v,c\n"I","p","test",2,"x",1\n'),
        raw("111/100/CDC000002.csv", f'{NO_COMMIT_TS},c,id,v\n"I","p","test",6,4,"y"\n'),
        checkpoint(250, {"p(id,v,c)": ["2 x 1", "4 y 6"]}),
        options=TABLE_IDS + "&output-field-header=true",
    ),
    history(
        "one file holds rows of both sides of schema changes that leave the columns as they are",
        of_id(110, 100, CREATE + PARTITIONS),
        of_id(111, 100),
        of_id(110, 200, "ALTER TABLE `test`.`p` ADD INDEX `i`(`v`)"),
        of_id(110, 250, "TRUNCATE TABLE `test`.`p`"),
        rows("111/100/1", "I 110 2 x", "U 210 2 y", "I 240 4 gone", "I 260 6 new"),
        checkpoint(300, {"p": ["6 new"]}),
        options=TABLE_IDS,
    ),
    history(
        "equal rows of a table without key in partitions at different versions",
        of_id(110, 100, "CREATE TABLE `test`.`p` (`v` VARCHAR(16),`c` INT) PARTITION BY HASH(`c`) PARTITIONS 2", "v,c"),
        of_id(111, 100, "", "v,c"),
        rows("111/100/1", "I 110 x 2", "I 110 x 2", shape="v,c"),
        of_id(112, 150, "", "v,c"),
        rows("112/150/1", "I 160 a 1", "D 170 a 1", shape="v,c"),
        checkpoint(165, {"p(v,c)": ["x 2", "x 2", "a 1"]}),
        rows("111/100/2", "I 170 a 2", "D 180 x 2", shape="v,c"),
        of_id(110, 200, "ALTER TABLE `test`.`p` COMMENT 'c'", "v,c"),
        rows("111/100/3", "I 210 b 4", "I 210 b 4", shape="v,c"),
        rows("112/150/2", "I 190 a 3", "I 220 a 3", shape="v,c"),
        checkpoint(300, {"p(v,c)": ["a 2", "x 2", "b 4", "b 4", "a 3", "a 3"]}),
        options=TABLE_IDS,
    ),
    history(
        "the changefeed does not tell that a column was dropped, until its schema file is put there",
        created("t"),
        data("t/100/1", "I 110 1 a", "I 120 2 b"),
        schema("t", 200, ADD_C % "t", "id,v,c"),
        data("t/200/1", "U 210 1 c 1"),
        checkpoint(250, {"t(id,v,c)": ["1 c 1", "2 b 7"]}),
        data("t/100/2", "D 310 2 b", "U 320 1 d"),
        checkpoint(350, {"t(id,v,c)": ["1 c 1", "2 b 7"]}, {"t": LACKS_C}),
        schema("t", 300).gives({"t": ["1 d"]}),
        data("t/300/1", "I 360 3 e"),
        checkpoint(400, {"t": ["1 d", "3 e"]}),
        in_one_go=Expect({"t": ["1 d", "3 e"]}),
    ),
    history(
        "a deletion in an older shape needs its key only",
        created("t"),
        data("t/100/1", "I 110 1 a", "I 120 2 b"),
        schema("t", 200, ADD_C % "t", "id,v,c"),
        data("t/100/2", "D 310 2 b"),
        checkpoint(350, {"t(id,v,c)": ["1 a 7"]}),
    ),
    history(
        "the changefeed does not tell that a column came back",
        created("t", 100, "id,v,c"),
        data("t/100/1", "I 110 1 a 1"),
        schema("t", 200, DROP_C % "t"),
        data("t/100/2", "U 310 1 b 2"),
        checkpoint(350, {"t": ["1 b"]}),
        told=("have columns that a schema change had dropped before: c",),
    ),
    history(
        "the changefeed does not tell that a column has its old name again",
        created("t", 100, "id,v,c"),
        data("t/100/1", "I 110 1 a 1"),
        schema("t", 200, "ALTER TABLE `test`.`t` RENAME COLUMN `c` TO `uk`", RENAMED_C),  # type: ignore[arg-type]
        data("t/100/2", "U 310 1 b 2"),
        checkpoint(350, {"t(id,v,uk)": ["1 b 2"]}),
    ),
    *(
        history(
            f"rows of a table {kind} key that are older than its first directory",
            schema("t", 150, "", (ID | {"ColumnIsPk": is_key}, COLUMNS["v"])),  # type: ignore[arg-type]
            data("t/150/1", "I 130 1 a", "I 140 2 b"),
            checkpoint(160, {"t": ["1 a", "2 b"]}),
            data("t/150/2", "D 170 1 a"),
            checkpoint(200, {"t": ["2 b"]}),
        )
        for kind, is_key in (("with", "true"), ("without", "false"))
    ),
    history(
        "a changefeed that was created anew at an earlier time writes older rows into a newer directory",
        schema("t", 100),
        data("t/100/1", "I 150 1 new"),
        schema("t", 200, "ALTER TABLE `test`.`t` ADD INDEX `i`(`v`)"),
        data("t/200/1", "I 60 1 old", "I 70 2 b", "U 150 1 new", "U 210 2 c"),
        data("t/200/2", "I 220 3 d"),
        checkpoint(300, {"t": ["1 new", "2 c", "3 d"]}),
    ),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: History, way: str, stage: Stage, request: pytest.FixtureRequest) -> None:
    live_through(case, way, stage, request)
