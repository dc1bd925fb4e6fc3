"""Tables that nothing made yet: they never count as the pipeline's, and their beginning is never passed over."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from building import Bucket, ask, decide, ledger, tables

from headrace.engine import retries
from headrace.model.ledger import RequestKind, TableRequest, TableStatus, Verdict
from headrace.model.place import PlaceInFile
from headrace.model.policy import ChangeKind, Policy, SchemaChangePolicies
from headrace.model.table import TableId
from places import Place

pytestmark = pytest.mark.pipeline

T = TableId("test", "t")


@pytest.fixture(autouse=True)
def _one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_LOOKS", 0)


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    """A table ``t`` of which there is only a data file without its schema file."""
    bucket = Bucket(tmp_path)
    tables(bucket, "o")
    path = bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a")
    (bucket.root / path).unlink()
    assert set(bucket.at(120).stopped) == {"test.t"}
    return bucket


def give_up_its_file(bucket: Bucket) -> None:
    ask(bucket, TableRequest("1", T, RequestKind.SKIP_FILE, place=PlaceInFile("test/t/100/CDC000001.csv")))
    assert (bucket.at(130).code, ledger(bucket).tables[T].status) == (0, TableStatus.GONE)


def test_a_table_whose_only_file_was_given_up_is_not_the_pipelines(bucket: Bucket) -> None:
    give_up_its_file(bucket)
    with duckdb.connect(str(bucket.database)) as connection:
        connection.execute("CREATE TABLE test.t (mine INT)")
    bucket.schema("", 200, statement="DROP DATABASE `test`", type=2)
    ran = bucket.at(300)
    assert (ran.code, bucket.state("t")) == (0, [])
    assert "it also holds table t, which is not this pipeline's" in ran.told


@pytest.mark.parametrize(
    ("version", "shape", "statement", "rows"),
    [
        (100, "id,v", "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(16))", [(5, "late")]),
        (200, "id,v", "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(16))", [(5, "late")]),
        (200, "id,v,c", "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", [(5, "late", 7)]),
    ],
)
def test_what_comes_after_all_begins_it(bucket: Bucket, version: int, shape: str, statement: str, rows: list[object]) -> None:
    give_up_its_file(bucket)
    bucket.schema("t", version, shape, statement)
    bucket.rows(f"t/{version}/2", f"I {version + 50} 5 late" + (" 7" if shape.endswith("c") else ""))
    assert bucket.at(300).code == 0
    assert bucket.state("t") == rows


def test_a_shape_from_before_the_start_waits_for_its_approval(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a", "I 600 2 b")
    asks = {"start": 500, "policies": SchemaChangePolicies({ChangeKind.CREATE_TABLE: Policy.APPROVE})}
    for checkpoint in (700, 710):
        assert set(bucket.at(checkpoint, **asks).stopped) == {"test.t"}
        assert not ledger(bucket).tables[T].is_made
    decide(bucket, Verdict.APPROVE)
    assert bucket.at(800, **asks).code == 0
    assert bucket.state("t") == [(2, "b")]


def test_somebodys_table_is_not_taken_over_by_a_shape_from_before_the_start(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.rows("t/100/1", "I 600 2 b")
    with duckdb.connect(str(bucket.database)) as connection:
        connection.execute(
            "CREATE SCHEMA test; CREATE TABLE test.t (id INT PRIMARY KEY, v TEXT); INSERT INTO test.t VALUES (7, 'mine')"
        )
    for checkpoint in (700, 710):
        assert "was not created by Headrace" in bucket.at(checkpoint, start=500).stopped["test.t"]
    bucket.schema("t", 750, "id,v", "DROP TABLE `t`", 4)
    bucket.at(800, start=500)
    assert bucket.state("t") == [(7, "mine")]


def test_a_schema_change_at_the_start_is_in_the_snapshot(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a")
    bucket.schema("t", 200, "id,v", "TRUNCATE TABLE `test`.`t`", 11)
    bucket.rows("t/200/1", "I 210 3 c")
    with duckdb.connect(str(bucket.database)) as connection:
        connection.execute("CREATE SCHEMA test; CREATE TABLE test.t (id INTEGER, v VARCHAR)")
        connection.execute("INSERT INTO test.t VALUES (9, 'snapshot')")
    assert bucket.at(300, start=200, adopt=True).code == 0
    assert bucket.state("t") == [(3, "c"), (9, "snapshot")]


PARTITIONED = (
    "CREATE TABLE `p` (`id` INT PRIMARY KEY,`v` VARCHAR(16)) PARTITION BY RANGE (`id`) "
    "(PARTITION p0 VALUES LESS THAN (5),PARTITION p1 VALUES LESS THAN (1000))"
)
LATER = [
    ("TRUNCATE TABLE `t`", 11, "id,v", [(3, "c")]),
    ("ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", 5, "id,v,c", [(2, "b", 7), (3, "c", 4)]),
]


@pytest.mark.parametrize(("statement", "type", "shape", "rows"), LATER)
def test_an_exchange_before_the_start_leaves_its_tables_their_shapes(
    tmp_path: Path, statement: str, type: int, shape: str, rows: list[object]
) -> None:
    """TiCDC writes the statement for the one table, and the shape alone for the other."""
    bucket = Bucket(tmp_path)
    bucket.schema("p", 100, "id,v", PARTITIONED, 3)
    bucket.create("t", 101)
    bucket.schema("p", 200, "id,v", "ALTER TABLE `p` EXCHANGE PARTITION `p0` WITH TABLE `t`", 42)
    bucket.schema("t", 200, "id,v", "", 0)
    bucket.rows("t/200/1", "I 300 2 b", "D 301 1 a")
    bucket.schema("t", 350, shape, statement, type)
    bucket.rows("t/350/1", "I 400 3 c" + (" 4" if shape.endswith("c") else ""))
    with duckdb.connect(str(bucket.database)) as connection:
        connection.execute("CREATE SCHEMA test; CREATE TABLE test.t (id INT, v TEXT); CREATE TABLE test.p (id INT, v TEXT)")
        connection.execute("INSERT INTO test.t VALUES (1, 'a')")
    ran = bucket.at(500, start=250, adopt=True)
    assert (ran.code, bucket.state("t")) == (0, rows), ran.told


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_a_swap_before_the_start_leaves_its_tables_their_shapes(tmp_path: Path, order: tuple[str, str]) -> None:
    """Each file of the swap tells the last step of its own table; folders may be read in any order."""
    bucket = Bucket(tmp_path)
    first, second = order
    bucket.create(first, 100)
    bucket.create(second, 101)
    bucket.schema(second, 200, "id,v", f"RENAME TABLE `test`.`{first}` TO `test`.`{second}`;", 14)
    bucket.schema(first, 200, "id,v", f"RENAME TABLE `test`.`x` TO `test`.`{first}`;", 14)
    for table in order:
        bucket.schema(table, 350, "id,v", f"TRUNCATE TABLE `{table}`", 11)
        bucket.rows(f"{table}/350/1", "I 400 3 c")
    with duckdb.connect(str(bucket.database)) as connection:
        connection.execute("CREATE SCHEMA test; CREATE TABLE test.a (id INT, v TEXT); CREATE TABLE test.b (id INT, v TEXT)")
        connection.execute("INSERT INTO test.a VALUES (1, 'a'); INSERT INTO test.b VALUES (2, 'b')")
    assert bucket.at(500, start=250, adopt=True).code == 0
    assert (bucket.state("a"), bucket.state("b")) == ([(3, "c")], [(3, "c")])


@pytest.mark.parametrize(
    "change", ["ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", "TRUNCATE TABLE `t`", "RENAME TABLE `t` TO `u`"]
)
@pytest.mark.parametrize("most", [0, 30])
def test_a_table_whose_create_was_skipped_does_not_come_back_with_a_later_change(tmp_path: Path, change: str, most: int) -> None:
    bucket = Bucket(tmp_path)
    tables(bucket, "o")
    assert bucket.at(150).code == 0
    bucket.create("t", 200)
    bucket.rows("t/200/1", "I 210 1 a")
    asks = SchemaChangePolicies({ChangeKind.CREATE_TABLE: Policy.APPROVE})
    assert bucket.at(250, policies=asks).code == 3
    decide(bucket, Verdict.SKIP)
    assert bucket.at(260, policies=asks).code == 0
    name, shape, values = "t", "id,v", ""
    if "ADD" in change:
        shape, values = "id,v,c", " 1"
    elif "RENAME" in change:
        name = "u"
    bucket.schema(name, 300, shape, change)
    for number in range(1, 4):
        bucket.rows(f"{name}/300/{number}", f"I 31{number} {number} b{values}")
    bucket.rows("o/100/9", "I 340 9 o")
    for checkpoint in (350, 360):
        assert bucket.at(checkpoint, max_cut=most).code == 0
    assert (bucket.state("t"), bucket.state("u")) == (None, None)
    assert ledger(bucket).tables[TableId("test", name)].status is TableStatus.NOT_FOLLOWED
    bucket.schema(name, 400, shape, f"DROP TABLE `{name}`", 4)
    bucket.create(name, 410)
    bucket.rows(f"{name}/410/1", "I 420 5 e")
    assert bucket.at(450, max_cut=most).code == 0
    assert bucket.state(name) == [(5, "e")]


NOT_MADE = SchemaChangePolicies({ChangeKind.CREATE_TABLE: Policy.SKIP})
APPROVED = SchemaChangePolicies(dict.fromkeys(ChangeKind, Policy.APPROVE) | NOT_MADE.by_kind)


@pytest.mark.parametrize("policies", [NOT_MADE, APPROVED], ids=["applied", "approved"])
@pytest.mark.parametrize("most", [0, 30])
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("t", "ALTER TABLE `t` ADD INDEX `i` (`v`)"),
        ("t", "TRUNCATE TABLE `t`"),
        ("q", "RENAME TABLE `test`.`t` TO `test`.`q`"),
    ],
)
def test_what_follows_a_skipped_create_in_its_cut_is_skipped_too(
    tmp_path: Path, name: str, change: str, most: int, policies: SchemaChangePolicies
) -> None:
    bucket = Bucket(tmp_path)
    tables(bucket, "o")
    assert bucket.at(150).code == 0
    bucket.create("t", 200)
    bucket.rows("t/200/1", "I 210 1 a")
    bucket.schema(name, 300, "id,v", change, 7)
    bucket.rows(f"{name}/300/1", "I 310 2 b")
    for checkpoint in (350, 360):
        ran = bucket.at(checkpoint, policies=policies, max_cut=most)
        assert (ran.code, ran.stopped) == (0, {})
    assert (bucket.state("t"), bucket.state("q")) == (None, None)
    assert ledger(bucket).tables[TableId("test", name)].status is TableStatus.NOT_FOLLOWED


def test_a_change_behind_a_skipped_create_waits_for_approval_where_somebody_made_the_table(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    tables(bucket, "o")
    assert bucket.at(150).code == 0
    with duckdb.connect(str(bucket.database)) as connection:
        connection.execute("CREATE TABLE test.t (id INT PRIMARY KEY, v TEXT)")
    bucket.create("t", 200)
    bucket.schema("t", 300, "id,v", "TRUNCATE TABLE `t`", 11)
    ran = bucket.at(350, policies=APPROVED)
    assert "its schema change waits for approval: TRUNCATE TABLE" in ran.stopped["test.t"]


@pytest.mark.parametrize("leftover", [False, True], ids=["a person's", "a leftover"])
def test_a_table_that_is_not_followed_takes_over_nothing_by_its_new_name(tmp_path: Path, leftover: bool) -> None:
    bucket = Bucket(tmp_path)
    tables(bucket, "o")
    if leftover:
        bucket.create("z", 110)
        bucket.rows("z/110/1", "I 120 7 mine")
        bucket.schema("z", 130, "id,v", "DROP TABLE `z`", 4)
    drops = SchemaChangePolicies({ChangeKind.DROP_TABLE: Policy.SKIP})
    assert bucket.at(150, policies=drops).code == 0
    if not leftover:
        with duckdb.connect(str(bucket.database)) as connection:
            connection.execute("CREATE TABLE test.z (id INT PRIMARY KEY, v TEXT); INSERT INTO test.z VALUES (7, 'mine')")
    bucket.create("t", 200)
    assert bucket.at(250, policies=NOT_MADE).code == 0
    bucket.schema("z", 300, "id,v", "RENAME TABLE `test`.`t` TO `test`.`z`", 14)
    bucket.rows("z/300/1", "I 310 7 other", "I 311 8 new")
    assert bucket.at(350).code == 0
    assert bucket.state("z") == [(7, "mine")]
    bucket.schema("z", 400, "id,v", "DROP TABLE `z`", 4)
    assert bucket.at(450).code == 0
    assert bucket.state("z") == [(7, "mine")]


def test_a_table_that_somebody_makes_later_is_not_followed_either(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    tables(bucket, "o")
    assert bucket.at(150).code == 0
    bucket.create("t", 200)
    assert bucket.at(250, policies=NOT_MADE).code == 0
    with duckdb.connect(str(bucket.database)) as connection:
        connection.execute("CREATE TABLE test.t (id INT PRIMARY KEY, v TEXT); INSERT INTO test.t VALUES (7, 'mine')")
    bucket.schema("t", 300, "id,v", "TRUNCATE TABLE `t`", 11)
    bucket.rows("t/300/1", "I 310 8 new")
    assert bucket.at(350).code == 0
    assert bucket.state("t") == [(7, "mine")]
    assert ledger(bucket).tables[TableId("test", "t")].status is TableStatus.NOT_FOLLOWED


@pytest.mark.parametrize("damaged", [False, True])
def test_a_damaged_file_of_a_table_that_is_not_followed_stops_nothing(tmp_path: Path, damaged: bool) -> None:
    bucket = Bucket(tmp_path)
    tables(bucket, "o")
    assert bucket.at(150).code == 0
    bucket.create("t", 200)
    assert bucket.at(250, policies=NOT_MADE).code == 0
    bucket.schema("t", 300, "id,v", "ALTER TABLE `t` ADD INDEX `i` (`v`)", 7)
    path = bucket.root / bucket.rows("t/300/1", "I 310 8 new")
    if damaged:
        path.write_text('"I","t","test",310,"xx","new"\n')
    bucket.rows("o/100/9", "I 340 9 o")
    assert (ran := bucket.at(350)).code == 0, ran.stopped
    assert ledger(bucket).tables[TableId("test", "t")].status is TableStatus.NOT_FOLLOWED


def test_an_exchange_with_a_table_that_is_not_followed_is_not_passed_over(tmp_path: Path) -> None:
    """The other table gets rows by it that nobody knows."""
    bucket = Bucket(tmp_path)
    bucket.create("x", 100)
    bucket.rows("x/100/1", "I 110 1 a")
    assert bucket.at(150).code == 0
    bucket.schema("pt", 200, "id,v", PARTITIONED.replace("`p`", "`pt`"), 3)
    bucket.rows("pt/200/1", "I 210 50 p")
    assert bucket.at(250, policies=NOT_MADE).code == 0
    bucket.schema("pt", 300, "id,v", "ALTER TABLE `pt` EXCHANGE PARTITION `p0` WITH TABLE `x`", 42)
    bucket.schema("x", 300, "id,v", "", 0)
    bucket.rows("x/300/1", "I 310 60 x")
    ran = bucket.at(350)
    assert (ran.code, bucket.state("x")) == (3, [(1, "a")])
    assert "test.x" in ran.stopped


@pytest.mark.parametrize("first", ["", "ALTER TABLE `t` ADD INDEX `i` (`v`)"])
def test_a_table_whose_drop_was_skipped_does_not_begin_anew_with_a_shape(tmp_path: Path, place: Place, first: str) -> None:
    bucket = Bucket(tmp_path)
    target, uri = place.fresh()
    bucket.create("t", 100)
    bucket.rows("t/100/1", "I 110 1 old")
    bucket.checkpoint(150)
    assert bucket.run(uri).code == 0
    bucket.schema("t", 200, "id,v", "DROP TABLE `test`.`t`", 4)
    bucket.checkpoint(220)
    assert bucket.run(uri, policies=SchemaChangePolicies({ChangeKind.DROP_TABLE: Policy.SKIP})).code == 0
    bucket.schema("t", 300, "id,v", first, 7 if first else 0)
    bucket.rows("t/300/1", "I 310 6 new")
    bucket.checkpoint(350)
    ran = bucket.run(uri)
    assert (ran.code, target.rows("test", "t", {"id": "int"})) == (3, [("1",)])
    assert "with rows from before: its DROP never ran here" in ran.stopped["test.t"]
