"""The table filter changes between runs: what is left out keeps its place, and is brought up to date when it is taken back."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest
from building import Bucket, Ran, decide, ledger

from headrace.cli.main import main
from headrace.model.ledger import RequestKind, TableRequest, TableStatus, Verdict
from headrace.model.policy import SchemaChangePolicies
from headrace.model.table import TableId
from headrace.pipeline.registry import open_sink
from headrace.transform.filters import TableFilter
from storage_folder import OPTIONS

pytestmark = pytest.mark.pipeline

T, A, B = TableId("test", "t"), TableId("test", "a"), TableId("test", "b")


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket(tmp_path)


def run(bucket: Bucket, checkpoint: int, tables: str = "", **options: object) -> Ran:
    """A run to the checkpoint with ``--tables``."""
    return bucket.at(checkpoint, includes=TableFilter.parse(tables).includes, filter_text=tables, **options)


def status(bucket: Bucket, table: TableId = T) -> TableStatus:
    return ledger(bucket).tables[table].status


WITHOUT_T = "*.*,!test.t"


@pytest.fixture
def two(bucket: Bucket) -> Bucket:
    """``t`` and ``e`` have a row each, in the target too."""
    for table in ("t", "e"):
        bucket.create(table)
        bucket.rows(f"{table}/100/1", "I 110 1 a")
    assert run(bucket, 120).code == 0
    return bucket


def test_a_table_that_was_left_out_catches_up_when_it_is_taken_back(two: Bucket) -> None:
    two.rows("t/100/2", "I 130 2 b")
    two.rows("e/100/2", "I 130 2 b")
    assert run(two, 140, WITHOUT_T).code == 0
    assert (two.state("t"), two.state("e")) == ([(1, "a")], [(1, "a"), (2, "b")])
    assert (status(two), ledger(two).table_checkpoint(T), ledger(two).checkpoint) == (TableStatus.EXCLUDED, 120, 140)
    two.rows("t/100/3", "U 150 2 c")
    ran = run(two, 160)
    assert (ran.code, two.state("t"), status(two)) == (0, [(1, "a"), (2, "c")], TableStatus.RUNNING)
    assert "left out by --tables" in ran.told


def test_its_schema_changes_are_made_up_for_in_order(two: Bucket) -> None:
    two.rows("t/100/2", "I 130 2 b")
    two.schema("t", 140, "id,v", "TRUNCATE TABLE `test`.`t`", 11)
    two.rows("t/140/1", "I 150 3 c")
    two.schema("t", 160, "id,v,c", "ALTER TABLE `test`.`t` ADD COLUMN `c` INT DEFAULT 7", 5)
    two.rows("e/100/2", "I 165 2 b")
    assert run(two, 170, WITHOUT_T).code == 0
    two.rows("t/160/1", "I 180 4 d 8")
    assert run(two, 190, WITHOUT_T).code == 0
    assert two.state("t") == [(1, "a")]
    assert run(two, 200).code == 0
    assert two.state("t") == [(3, "c", 7), (4, "d", 8)]


def test_its_drop_is_made_up_for(two: Bucket) -> None:
    two.schema("t", 140, "id,v", "DROP TABLE `test`.`t`", 4)
    assert run(two, 150, WITHOUT_T).code == 0
    assert two.state("t") == [(1, "a")]
    assert run(two, 160).code == 0
    assert two.state("t") is None
    two.create("t", 170)
    two.rows("t/170/1", "I 180 9 z")
    assert run(two, 190).code == 0
    assert two.state("t") == [(9, "z")]


def test_the_drop_of_its_database_is_made_up_for(two: Bucket) -> None:
    """The database comes back with another table of its name, which is filled from its own beginning."""
    two.schema("", 125, (), "CREATE DATABASE `other`", 1, database="other")
    for table in ("k", "l"):
        two.create(table, 126, database="other")
        two.rows(f"{table}/126/1", "I 127 1 a", database="other")
    assert run(two, 130).code == 0
    two.schema("", 140, (), "DROP DATABASE `other`", 2, database="other")
    two.schema("", 150, (), "CREATE DATABASE `other`", 1, database="other")
    two.create("l", 155, database="other")
    assert run(two, 160, "*.*,!other.k").code == 0
    assert (two.state("l", "other"), run(two, 170).code, two.state("k", "other")) == ([], 0, None)
    two.create("k", 175, database="other")
    two.rows("k/175/1", "I 180 2 b", database="other")
    assert run(two, 190).code == 0
    assert two.state("k", "other") == [(2, "b")]


def test_the_drop_of_its_database_ends_a_table_that_came_to_be_while_it_was_left_out(two: Bucket) -> None:
    """``n`` was never followed; ``e`` was dropped while it was, and came to be once more."""
    without = "*.*,!test.n,!test.e"
    two.schema("e", 125, "id,v", "DROP TABLE `test`.`e`", 4)
    assert run(two, 130).code == 0
    two.create("n", 131)
    two.create("e", 132)
    for table, version in (("n", 131), ("e", 132)):
        two.rows(f"{table}/{version}/1", "I 135 1 a")
    two.schema("", 140, (), "DROP DATABASE `test`", 2)
    two.schema("", 150, (), "CREATE DATABASE `test`", 1)
    assert run(two, 160, without).code == 0
    assert (run(two, 170).code, two.state("n"), two.state("e"), two.state("t")) == (0, None, None, None)


@pytest.mark.parametrize("statement", ["", "SELECT 1"], ids=["skipped", "edited"])
def test_the_drop_of_its_database_that_did_not_run_takes_no_table(two: Bucket, statement: str) -> None:
    two.schema("", 140, (), "DROP DATABASE `test`", 2)
    policies = SchemaChangePolicies.parse_text("drop-database=approve")
    assert run(two, 160, WITHOUT_T, policies=policies).code == 3
    decide(two, Verdict.EDIT if statement else Verdict.SKIP, statement)
    assert run(two, 170, WITHOUT_T, policies=policies).code == 0
    assert run(two, 180).code == 0
    assert (two.state("e"), two.state("t")) == ([(1, "a")], [(1, "a")])


def test_left_out_and_taken_back_again_and_again(two: Bucket) -> None:
    for n, tables in enumerate([WITHOUT_T, "", WITHOUT_T, WITHOUT_T, ""]):
        two.rows(f"t/100/{n + 2}", f"I {130 + 10 * n} {n + 2} x{n}")
        two.rows(f"e/100/{n + 2}", f"I {130 + 10 * n} {n + 2} x{n}")
        assert run(two, 135 + 10 * n, tables).code == 0
    assert two.state("t") == two.state("e")


def test_a_table_that_is_left_out_does_not_grow_the_position(two: Bucket) -> None:
    for n in range(30):
        two.rows(f"t/100/{n + 2}", f"I {130 + n} {n + 2} x")
    two.rows("e/100/2", "I 131 2 b")
    run(two, 132, WITHOUT_T)
    before = len(ledger(two).position)
    two.rows("e/100/3", "I 171 3 b")
    run(two, 180, WITHOUT_T)
    assert len(ledger(two).position) < before + 100


def test_holes_in_what_it_missed_stop_it_with_the_way_out(two: Bucket) -> None:
    two.rows("t/100/2", "I 130 2 b")
    gone = two.rows("t/100/3", "I 131 3 c")
    two.rows("t/100/4", "I 132 4 d")
    two.rows("e/100/2", "I 131 2 b")
    run(two, 140, WITHOUT_T)
    (two.root / gone).unlink()
    for checkpoint in (150, 160):
        ran = run(two, checkpoint)
        assert (ran.code, two.state("t"), status(two)) == (3, [(1, "a")], TableStatus.INCOMPLETE)
    assert "file numbers 3 in test/t/100 are missing" in ledger(two).tables[T].reason
    assert "headrace table resync test.t" in ledger(two).tables[T].reason


def test_a_skipped_truncate_does_not_make_up_for_what_is_missing(two: Bucket) -> None:
    """The rows that it leaves are wanted, so they have to be loaded."""
    two.rows("t/100/2", "I 130 2 b")
    lost = two.rows("t/100/3", "U 131 1 new")
    two.rows("t/100/4", "I 132 4 d")
    assert run(two, 140, WITHOUT_T).code == 0
    (two.root / lost).unlink()
    assert run(two, 150).code == 3
    two.schema("t", 160, "id,v", "TRUNCATE TABLE `test`.`t`", 11)
    two.rows("t/160/1", "I 175 9 e")
    assert run(two, 180, policies=SchemaChangePolicies.parse_text("truncate-table=skip")).code == 3
    assert (status(two), two.state("t")) == (TableStatus.INCOMPLETE, [(1, "a")])
    assert (run(two, 190).code, two.state("t")) == (0, [(9, "e")])


def test_whole_days_that_are_gone_when_it_is_taken_back_stop_it_with_the_way_out(tmp_path: Path) -> None:
    """No number is missing in a directory that is gone: what a run saw there while the table was left out tells."""
    bucket = Bucket(tmp_path, OPTIONS.replace("date-separator=none", "date-separator=day"))
    for name in "te":
        bucket.create(name)
        for day in range(1, 6):
            bucket.rows(f"{name}/100/2026-01-0{day}/1", f"I {100 + 10 * day} {day} {name}")
    assert run(bucket, 115).code == 0
    assert run(bucket, 200, WITHOUT_T).code == 0
    for day in (2, 3):
        shutil.rmtree(bucket.root / f"test/t/100/2026-01-0{day}")
    assert run(bucket, 210, WITHOUT_T).code == 0
    ran = run(bucket, 220)
    assert (ran.code, bucket.state("t"), status(bucket)) == (3, [(1, "t")], TableStatus.INCOMPLETE)
    assert "test/t/100/2026-01-02/CDC000001.csv is missing" in ledger(bucket).tables[T].reason
    with duckdb.connect(str(bucket.database)) as target:
        target.execute("INSERT INTO \"test\".\"t\" VALUES (2, 't'), (3, 't'), (4, 't'), (5, 't')")
    with open_sink(bucket.sink) as sink:
        assert sink.ledger is not None
        sink.ledger.request("default", TableRequest("1", T, RequestKind.RESYNC, to=220))
        sink.ledger.close()
    bucket.rows("t/100/2026-01-06/1", "I 225 6 t")
    ran = run(bucket, 230)
    assert (ran.code, ran.stopped, len(bucket.state("t") or ())) == (0, {}, 6)


def test_a_rename_into_the_filter_brings_the_rows_along(bucket: Bucket) -> None:
    bucket.create("a")
    bucket.rows("a/100/1", "I 110 1 x")
    bucket.schema("b", 200, "id,v", "RENAME TABLE `test`.`a` TO `test`.`b`", 14)
    bucket.rows("b/200/1", "I 210 2 y")
    assert run(bucket, 300, "test.b").code == 0
    assert (bucket.tables(), bucket.state("b")) == ({("test", "b")}, [(1, "x"), (2, "y")])


def test_a_rename_into_the_filter_is_followed_however_late_it_comes(bucket: Bucket) -> None:
    bucket.create("a")
    bucket.create("e")
    bucket.rows("a/100/1", "I 110 1 x")
    assert run(bucket, 120, "test.b,test.e").code == 0
    assert bucket.tables() == {("test", "e")}
    bucket.rows("a/100/2", "I 130 2 x")
    bucket.schema("b", 200, "id,v", "RENAME TABLE `test`.`a` TO `test`.`b`", 14)
    assert run(bucket, 140, "test.b,test.e").code == 0
    bucket.rows("b/200/1", "U 210 2 y")
    assert run(bucket, 300, "test.b,test.e").code == 0
    assert bucket.state("b") == [(1, "x"), (2, "y")]


def test_a_rename_into_the_filter_by_another_left_out_name(bucket: Bucket) -> None:
    bucket.create("a")
    bucket.rows("a/100/1", "I 110 1 x")
    bucket.schema("c", 150, "id,v", "RENAME TABLE `test`.`a` TO `test`.`c`", 14)
    bucket.rows("c/150/1", "I 160 2 y")
    bucket.schema("b", 200, "id,v", "RENAME TABLE `test`.`c` TO `test`.`b`", 14)
    assert run(bucket, 300, "test.b").code == 0
    assert (bucket.tables(), bucket.state("b")) == ({("test", "b")}, [(1, "x"), (2, "y")])


def test_what_had_a_name_while_it_was_left_out_is_over_when_a_followed_table_gets_it(bucket: Bucket) -> None:
    """Neither its CREATE nor its DROP is a change of the table that was renamed to the name later, there and back."""
    bucket.create("e", 90)
    bucket.rows("e/90/1", "I 110 1 a")
    bucket.create("t")
    bucket.schema("t", 105, "id,v", "DROP TABLE `test`.`t`", 4)
    assert run(bucket, 120, WITHOUT_T).code == 0
    for version, old, new in ((130, "e", "t"), (140, "t", "e"), (150, "e", "t")):
        bucket.schema(new, version, "id,v", f"RENAME TABLE `test`.`{old}` TO `test`.`{new}`", 14)
        assert run(bucket, version + 5, WITHOUT_T).code == 0
    ran = run(bucket, 200)
    assert (ran.code, ran.stopped) == (0, {})
    assert (bucket.state("t"), bucket.state("e")) == ([(1, "a")], None)


def test_a_rename_out_of_the_filter_keeps_its_place_under_the_new_name(two: Bucket) -> None:
    two.schema("u", 140, "id,v", "RENAME TABLE `test`.`t` TO `test`.`u`", 14)
    two.rows("u/140/1", "I 150 2 b")
    two.rows("e/100/2", "I 150 2 b")
    assert run(two, 160, "*.*,!test.u").code == 0
    assert (two.state("t"), two.state("u")) == (None, [(1, "a")])
    two.rows("u/140/2", "I 170 3 c")
    assert run(two, 180).code == 0
    assert two.state("u") == [(1, "a"), (2, "b"), (3, "c")]


def test_a_rename_out_of_the_filter_goes_into_the_database_that_is_there_by_then(two: Bucket) -> None:
    """The one of that name was dropped before; its table that was left out goes when it is taken back, and nothing else does."""
    two.schema("", 125, (), "CREATE DATABASE `other`", 1, database="other")
    two.create("k", 126, database="other")
    two.rows("k/126/1", "I 127 1 a", database="other")
    assert run(two, 130).code == 0
    two.schema("", 140, (), "DROP DATABASE `other`", 2, database="other")
    two.schema("", 150, (), "CREATE DATABASE `other`", 1, database="other")
    two.create("k", 155, database="other")
    two.schema("u", 160, "id,v", "RENAME TABLE `test`.`t` TO `other`.`u`", 14, database="other")
    two.rows("u/160/1", "I 170 2 b", database="other")
    assert run(two, 180, "test.*").code == 0
    assert (two.state("k", "other"), two.state("t"), two.state("u", "other")) == ([(1, "a")], None, [(1, "a")])
    ran = run(two, 190)
    assert (ran.code, two.state("k", "other"), two.state("u", "other")) == (0, [], [(1, "a"), (2, "b")]), ran.told


def test_what_was_renamed_out_of_the_filter_makes_room_for_the_next_one(two: Bucket) -> None:
    """``u`` was dropped meanwhile, by a change that concerns the filter only because of the table that comes after it."""
    two.schema("u", 140, "id,v", "RENAME TABLE `test`.`t` TO `test`.`u`", 14)
    two.schema("u", 150, "id,v", "DROP TABLE `test`.`u`", 4)
    two.schema("u", 160, "id,v", "RENAME TABLE `test`.`e` TO `test`.`u`", 14)
    ran = run(two, 170, "*.*,!test.u")
    assert (ran.code, two.state("t"), two.state("e"), two.state("u")) == (0, None, None, [(1, "a")]), ran.told
    two.rows("u/160/1", "I 180 2 b")
    assert (run(two, 190).code, two.state("u")) == (0, [(1, "a"), (2, "b")])


def renamed_out(bucket: Bucket, at: int) -> None:
    """``other.c`` becomes ``other.a`` at 120, and ``test.b`` gets its name, at once or later."""
    bucket.schema("", 101, (), "CREATE DATABASE `other`", 1, database="other")
    bucket.create("c", 102, database="other")
    bucket.rows("c/102/1", "I 111 1 c", database="other")
    bucket.create("b", 106)
    bucket.rows("b/106/1", "I 111 1 b")
    bucket.schema("a", 120, "id,v", "RENAME TABLE `other`.`c` TO `other`.`a`", 14, database="other")
    bucket.schema("c", at, "id,v", "RENAME TABLE `test`.`b` TO `other`.`c`", 14, database="other")


@pytest.mark.parametrize("at", [120, 125])
def test_who_had_the_name_before_a_rename_out_of_the_filter_keeps_its_rows(bucket: Bucket, at: int) -> None:
    renamed_out(bucket, at)
    assert run(bucket, 130, "test.*").code == 0
    bucket.rows("a/120/1", "I 140 2 d", database="other")
    assert (run(bucket, 150).code, bucket.state("c", "other")) == (0, [(1, "b")])
    assert bucket.state("a", "other") == [(1, "c"), (2, "d")]


@pytest.mark.parametrize("at", [120, 125])
def test_who_had_it_before_the_start_stops_the_rename_with_the_way_out(bucket: Bucket, at: int) -> None:
    renamed_out(bucket, at)
    ran = run(bucket, 130, "test.*", start=105)
    assert (ran.code, bucket.state("b"), bucket.state("c", "other")) == (3, [(1, "b")], None)
    assert "Let --tables include other.c." in ran.problems[0].hint
    assert (run(bucket, 150).code, bucket.state("c", "other"), bucket.state("a", "other")) == (0, [(1, "b")], [(1, "c")])


@pytest.mark.parametrize("tables", ["test.a", "test.b"])
def test_a_swap_across_the_border(bucket: Bucket, tables: str) -> None:
    for table, row in (("a", "I 110 1 of_a"), ("b", "I 110 1 of_b")):
        bucket.create(table)
        bucket.rows(f"{table}/100/1", row)
    assert run(bucket, 120, tables).code == 0
    for old, new in (("b", "a"), ("x", "b")):
        bucket.schema(new, 200, "id,v", f"RENAME TABLE `test`.`{old}` TO `test`.`{new}`", 14)
    bucket.rows("a/200/1", "I 210 2 then_a")
    bucket.rows("b/200/1", "I 210 2 then_b")
    assert run(bucket, 300, tables).code == 0
    swapped = {"a": [(1, "of_b"), (2, "then_a")], "b": [(1, "of_a"), (2, "then_b")]}
    inside, outside = tables[-1], "ab".replace(tables[-1], "")
    assert (bucket.state(inside), bucket.state(outside)) == (swapped[inside], swapped[outside][:1])
    assert run(bucket, 310).code == 0
    assert bucket.state(outside) == swapped[outside]


def test_a_rename_of_rows_from_before_the_start_stops_with_the_way_out(bucket: Bucket) -> None:
    bucket.create("a")
    bucket.rows("a/100/1", "I 110 1 x")
    bucket.schema("b", 200, "id,v", "RENAME TABLE `test`.`a` TO `test`.`b`", 14)
    bucket.rows("b/200/1", "I 210 2 y")
    ran = run(bucket, 300, "test.b", start=150)
    assert (ran.code, bucket.state("b"), status(bucket, B)) == (3, None, TableStatus.NEEDS_RESYNC)
    assert "--tables leaves test.a out" in ran.stopped["test.b"]
    assert "headrace ddl skip" in ran.stopped["test.b"]


def test_a_table_like_one_that_is_left_out_gets_its_shape(bucket: Bucket) -> None:
    bucket.create("a", shape="id,v,c")
    bucket.schema("b", 200, "id,v,c", "CREATE TABLE `test`.`b` LIKE `test`.`a`", 3)
    bucket.rows("b/200/1", "I 210 2 y 9")
    assert run(bucket, 300, "test.b").code == 0
    assert bucket.state("b") == [(2, "y", 9)]


def test_a_ledger_that_an_older_headrace_wrote_tells_what_it_cannot_know(two: Bucket) -> None:
    """It lifted tables that were left out with the pipeline's checkpoint."""
    with duckdb.connect(str(two.database)) as connection:
        connection.execute("UPDATE headrace.pipelines SET definition_fingerprint = ?", [WITHOUT_T])
    two.rows("t/100/2", "I 130 2 b")
    ran = run(two, 140)
    assert (ran.code, status(two)) == (3, TableStatus.INCOMPLETE)
    assert "an older version of Headrace" in ledger(two).tables[T].reason


def test_a_table_that_was_never_included_is_filled_though_the_watermark_stands(bucket: Bucket) -> None:
    for table in ("t", "e"):
        bucket.create(table)
        bucket.rows(f"{table}/100/1", "I 110 1 a")
    assert run(bucket, 120, WITHOUT_T).code == 0
    assert bucket.state("t") is None
    assert run(bucket, 120).code == 0
    assert bucket.state("t") == [(1, "a")]


def test_a_start_brings_back_no_table_of_a_database_that_was_dropped_before(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.schema("", 90, (), "CREATE DATABASE `test`", 1)
    bucket.create("t")
    bucket.schema("", 150, (), "DROP DATABASE `test`", 2)
    bucket.schema("", 160, (), "CREATE DATABASE `test`", 1)
    bucket.create("n", 170)
    bucket.rows("n/170/1", "I 270 1 x")
    assert bucket.at(250, start=200).code == 0
    assert bucket.tables() == {("test", "n")}
    bucket.schema("t", 300, "id,v", "RENAME TABLE `test`.`n` TO `test`.`t`", 14)
    assert bucket.at(350).code == 0
    assert bucket.state("t") == [(1, "x")]


@pytest.mark.parametrize("way", [["skip", "--yes", "--file", "test/t/101/CDC000002.csv"], ["resync", "--at", "190"]])
def test_a_left_out_table_that_is_followed_goes_on_as_it_is_told_to(bucket: Bucket, way: list[str]) -> None:
    """It is stopped only while a run follows it, and each of these runs begins with its place."""
    bucket.create("e")
    bucket.create("t", 101)
    bucket.rows("t/101/1", "I 110 1 a")
    bad = bucket.rows("t/101/2", "U x 1 bad")
    bucket.schema("z", 200, "id,v", "RENAME TABLE `test`.`t` TO `test`.`z`", 14)
    bucket.rows("z/200/1", "I 220 5 e")
    assert run(bucket, 300, WITHOUT_T).code == 3
    if way[0] == "resync":
        with duckdb.connect(str(bucket.database)) as connection:
            connection.execute("INSERT INTO test.t VALUES (1, 'a')")
    assert main(["table", way[0], "test.t", *way[1:], "--sink", bucket.sink]) == 0
    ran = run(bucket, 310, WITHOUT_T)
    if way[0] == "resync":  # no later file shows that the bad one ends before
        assert (ran.code, f"table skip test.t --file '{bad}'" in ran.stopped["test.t"]) == (3, True)
        assert main(["table", "skip", "test.t", "--yes", "--file", bad, "--sink", bucket.sink]) == 0
        ran = run(bucket, 320, WITHOUT_T)
    assert (ran.code, bucket.state("z"), ledger(bucket).requests) == (0, [(1, "a"), (5, "e")], {})
