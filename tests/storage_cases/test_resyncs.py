"""Tables that a person loads anew and that go on from there, whatever their state and however far they were."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import Bucket, ask, decide, ledger, tables
from test_holds import T, begun, execute, own, table
from test_ownership import only
from test_tables_without_key import PLAIN

from headrace.cli.main import main
from headrace.engine import retries
from headrace.model.ledger import JournalState, RequestKind, TableRequest, TableStatus, Verdict
from headrace.model.policy import SchemaChangePolicies
from headrace.model.table import TableId
from headrace.model.tso import format_tso
from person import Person
from places import Place
from storage_folder import V

pytestmark = pytest.mark.pipeline

SKIPS_CREATES = SchemaChangePolicies.parse_text("create-table=skip")


@pytest.fixture(autouse=True)
def _one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_LOOKS", 0)


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return begun(tmp_path)


def loaded(bucket: Bucket, *rows: tuple[int, str]) -> None:
    """What a person does: the table is emptied and filled."""
    execute(bucket, "DELETE FROM test.t", *(f"INSERT INTO test.t VALUES ({key}, '{value}')" for key, value in rows))


def resync(bucket: Bucket, at: int, name: str = "test.t") -> None:
    assert table(bucket, "resync", name, "--at", str(at)) == 0


@pytest.mark.parametrize("held", [True, False])
def test_a_running_table_goes_back_to_where_it_was_loaded(bucket: Bucket, held: bool) -> None:
    bucket.rows("t/100/2", "U 150 1 c", "I 160 3 n", "D 250 2 b", "U 260 3 o")
    assert bucket.at(300).code == 0
    if held:
        assert table(bucket, "hold", "test.t") == 0
        assert bucket.at(310).code == 3
    loaded(bucket, (1, "c"), (2, "b"), (3, "n"))  # as of 200
    resync(bucket, 200)
    ran = bucket.run()  # also while the watermark stands still
    assert (ran.code, "loaded anew as of 200" in ran.told) == (0, True)
    assert bucket.state("t") == [(1, "c"), (3, "o")]
    bucket.rows("t/100/3", "U 350 3 p")
    assert bucket.at(400).code == 0
    assert bucket.state("t") == [(1, "c"), (3, "p")]
    assert (own(bucket).status, ledger(bucket).requests) == (TableStatus.RUNNING, {})


def test_a_table_that_was_loaded_as_of_a_time_ahead_is_held_until_then(bucket: Bucket) -> None:
    loaded(bucket, (1, "z"), (2, "z"))
    resync(bucket, 250)
    bucket.rows("t/100/2", "U 150 1 c", "U 230 1 z", "U 240 2 z")
    assert bucket.at(200).code == 3
    assert (own(bucket).status, bucket.state("t")) == (TableStatus.HELD, [(1, "z"), (2, "z")])
    bucket.rows("t/100/3", "D 260 2 z")
    assert bucket.at(300).code == 0
    assert bucket.state("t") == [(1, "z")]


def test_a_resync_that_waits_is_taken_back(bucket: Bucket) -> None:
    """Somebody wrote the wrong time."""
    resync(bucket, 10**17)
    bucket.rows("t/100/2", "U 150 1 c")
    assert bucket.at(200).code == 3
    assert own(bucket).status is TableStatus.HELD
    assert table(bucket, "release", "test.t") == 0
    assert bucket.at(210).code == 0
    assert (bucket.state("t"), ledger(bucket).requests) == ([(1, "c"), (2, "b")], {})


def test_a_table_does_not_go_back_behind_a_schema_change_and_stays_held(bucket: Bucket) -> None:
    bucket.rows("t/100/2", "U 150 1 c")
    bucket.schema("t", 200, "id,v,c", "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", 5)
    bucket.rows("t/200/1", "U 250 2 d 8")
    assert bucket.at(300).code == 0
    execute(bucket, "UPDATE test.t SET v = 'loaded'")
    resync(bucket, 199)
    ran = bucket.at(310)
    assert (ran.code, "Load the table as of 200 or later" in ran.told) == (3, True)
    assert (own(bucket).status, own(bucket).checkpoint) == (TableStatus.HELD, 300)
    resync(bucket, 200)
    assert bucket.at(320).code == 0
    assert bucket.state("t") == [(1, "loaded", 7), (2, "d", 8)]
    assert [entry.state for entry in ledger(bucket).journal.values()] == [JournalState.DONE] * 3


def test_a_table_does_not_go_back_to_before_its_beginning_or_the_pipelines(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.create("u", 150)
    bucket.rows("t/100/1", "I 160 1 a")
    execute(bucket, "CREATE SCHEMA test", "CREATE TABLE test.t (id INT PRIMARY KEY, v VARCHAR)")
    assert bucket.at(200, start=120, adopt=True).code == 0
    resync(bucket, 110)
    assert "the pipeline begins at 120" in bucket.at(210).told
    resync(bucket, 140, "test.u")
    assert "Load the table as of 150 or later" in bucket.at(220).told


def test_a_table_does_not_go_back_where_files_are_gone(bucket: Bucket) -> None:
    path = bucket.rows("t/100/2", "U 150 1 c")
    bucket.rows("t/100/3", "U 250 1 d")
    assert bucket.at(300).code == 0
    (bucket.root / path).unlink()
    loaded(bucket, (1, "a"), (2, "b"))
    resync(bucket, 130)
    ran = bucket.at(310)
    assert (ran.code, "test/t/100, number 2 is not there any more" in ran.told) == (3, True)
    bucket.write(path, b'"U","t","test",150,1,"c"\n')
    resync(bucket, 130)
    assert bucket.at(320).code == 0
    assert bucket.state("t") == [(1, "d"), (2, "b")]


def without_key(tmp_path: Path) -> Bucket:
    bucket = Bucket(tmp_path)
    tables(bucket, "o")
    bucket.schema("t", 100, (PLAIN, V), "CREATE TABLE `t` (`id` INT,`v` VARCHAR(16))", 3)
    bucket.rows("t/100/1", "I 110 1 a", "I 111 1 a")
    bucket.rows("t/100/2", "I 150 1 a", "D 250 1 a", "I 260 2 b")
    assert bucket.at(300).code == 0
    return bucket


def test_a_table_without_key_goes_back_once_it_was_held(tmp_path: Path, place: Place) -> None:
    """Its rows are counted: each of the changes since then is applied once."""
    target, uri = place.fresh()
    bucket, person = Bucket(tmp_path), Person.at(place, target)
    tables(bucket, "o")
    bucket.schema("t", 100, (PLAIN, V), "CREATE TABLE `t` (`id` INT,`v` VARCHAR(16))", 3)
    bucket.rows("t/100/1", "I 110 1 a", "I 111 1 a")
    bucket.rows("t/100/2", "I 150 1 a", "D 250 1 a", "I 260 2 b")
    assert bucket.at(300, sink=uri).code == 0
    assert main(["table", "hold", "test.t", "--sink", uri]) == 0
    assert bucket.at(310, sink=uri).code == 3
    person.run("DELETE FROM test.t", "INSERT INTO test.t VALUES (1, 'a'), (1, 'a'), (1, 'a')")  # as of 200
    assert main(["table", "resync", "test.t", "--at", "200", "--sink", uri]) == 0
    bucket.rows("t/100/3", "I 350 2 b")
    for checkpoint in (400, 410):
        assert bucket.at(checkpoint, sink=uri).code == 0
        assert sorted(person.run("SELECT id, v FROM test.t")) == [(1, "a"), (1, "a"), (2, "b"), (2, "b")]


def test_a_table_without_key_that_ran_while_it_was_loaded_is_not_taken_for_whole(tmp_path: Path) -> None:
    """What was applied during the load would be applied twice."""
    bucket = without_key(tmp_path)
    loaded(bucket, (1, "a"), (1, "a"), (1, "a"))
    resync(bucket, 200)
    ran = bucket.at(310)
    assert (ran.code, "Load it once more, now that it is held" in ran.told) == (3, True)
    assert own(bucket).status is TableStatus.HELD
    loaded(bucket, (1, "a"), (1, "a"), (1, "a"))
    resync(bucket, 200)
    assert bucket.at(320).code == 0
    assert bucket.state("t") == [(1, "a"), (1, "a"), (2, "b")]


@pytest.mark.parametrize("shape", ["id,v", "id,v,c"])
def test_a_table_that_is_not_followed_is_taken_in(tmp_path: Path, shape: str) -> None:
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a", "I 111 2 b")
    assert bucket.at(120, policies=SKIPS_CREATES).code == 0
    at, extra, columns = 130, [], "id INT PRIMARY KEY, v VARCHAR"
    if shape != "id,v":
        bucket.schema("t", 200, shape, "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", 5)
        at, extra, columns = 205, [7], f"{columns}, c INT DEFAULT 7"
    value = " 9" if extra else ""
    bucket.rows("t/200/1" if extra else "t/100/2", f"U 210 1 a2{value}")
    assert bucket.at(300, policies=SKIPS_CREATES).code == 0
    assert own(bucket).status is TableStatus.NOT_FOLLOWED
    execute(
        bucket, "CREATE SCHEMA test", f"CREATE TABLE test.t ({columns})", "INSERT INTO test.t (id, v) VALUES (1, 'a'), (2, 'b')"
    )
    if extra:
        resync(bucket, 150)
        assert "Load the table as of 200 or later" in bucket.at(305, policies=SKIPS_CREATES).told
        assert own(bucket).status is TableStatus.NOT_FOLLOWED
    resync(bucket, at)
    assert bucket.at(310, policies=SKIPS_CREATES).code == 0
    assert bucket.state("t") == [(1, "a2", *([9] if extra else [])), (2, "b", *extra)]
    bucket.rows(f"t/{200 if extra else 100}/3", f"D 350 2 b{value}")
    assert bucket.at(400, policies=SKIPS_CREATES).code == 0
    assert bucket.state("t") == [(1, "a2", *([9] if extra else []))]


def test_rows_that_were_given_up_are_wanted_again_when_the_table_was_loaded_as_of_before_them(bucket: Bucket) -> None:
    bucket.write(bucket.rows("t/100/2", "U 150 1 c"), b'"U","t"\x00\xff\r\n"')
    bucket.rows("t/100/3", "U 170 2 d", "U 250 1 e")
    assert bucket.at(300).code == 3
    ask(bucket, TableRequest("1", T, RequestKind.SKIP_ROWS, to=200, since=120))
    bucket.write("test/t/100/CDC000002.csv", b'"U","t","test",150,1,"c"\n')
    loaded(bucket, (1, "c"), (2, "b"))
    ask(bucket, TableRequest("2", T, RequestKind.RESYNC, to=160, since=120))
    assert bucket.at(310).code == 0
    assert bucket.state("t") == [(1, "e"), (2, "d")]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("lacks_rows", [True, False])
def test_files_that_vanish_with_rows_from_behind_the_load_stop_the_table(bucket: Bucket, when: str, lacks_rows: bool) -> None:
    """Those of before are missed by nobody: the next file begins no later than the load."""
    earlier = bucket.rows("t/100/2", "U 150 1 c")
    bucket.rows("t/100/3", "U 160 2 d")
    if lacks_rows:
        assert bucket.at(170, **WITHOUT_T).code == 0
        (bucket.root / earlier).unlink()
        assert bucket.at(180).code == 3
        assert own(bucket).status is TableStatus.INCOMPLETE
    else:
        assert table(bucket, "hold", "test.t") == 0
    gone = bucket.rows("t/100/4", "U 250 2 new", "I 260 3 n")
    assert bucket.at(300).code == 3
    (bucket.root / earlier).unlink(missing_ok=True)
    loaded(bucket, (1, "c"), (2, "d"))  # as of 200
    if when == "before":
        (bucket.root / gone).unlink()
    resync(bucket, 200)
    if when == "after":
        (bucket.root / gone).unlink()
    bucket.rows("t/100/5", "I 305 9 z")
    ran = bucket.at(310)
    assert (ran.code, own(bucket).checkpoint) == (3, 200)
    assert f"{gone}: The file vanished" in ran.stopped["test.t"]
    assert table(bucket, "skip", "test.t", "--file", gone, "--yes") == 0
    assert bucket.at(320).code == 0
    assert bucket.state("t") == [(1, "c"), (2, "d"), (9, "z")]


WITHOUT_T = only("*.*,!test.t")


@pytest.mark.parametrize("was", [TableStatus.INCOMPLETE, TableStatus.NOT_FOLLOWED, TableStatus.HELD])
def test_a_table_that_is_loaded_while_it_is_left_out_stays_left_out_and_misses_its_files(tmp_path: Path, was: TableStatus) -> None:
    bucket = Bucket(tmp_path)
    skips = {"policies": SKIPS_CREATES} if was is TableStatus.NOT_FOLLOWED else {}
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a")
    bucket.at(120, **skips)
    lost = bucket.rows("t/100/2", "U 150 1 b")
    bucket.rows("t/100/3", "U 170 1 c")
    if was is TableStatus.INCOMPLETE:
        bucket.at(190, **WITHOUT_T)
        (bucket.root / lost).unlink()
    if was is TableStatus.HELD:
        assert table(bucket, "hold", "test.t") == 0
    bucket.at(210, **skips)
    assert own(bucket).status is was
    execute(
        bucket,
        "CREATE SCHEMA IF NOT EXISTS test",
        "CREATE OR REPLACE TABLE test.t (id INT PRIMARY KEY, v VARCHAR)",
        "INSERT INTO test.t VALUES (1, 'c')",
    )
    gone = bucket.rows("t/100/4", "I 230 5 e")
    resync(bucket, 200)
    assert bucket.at(300, **WITHOUT_T, **skips).code == 0
    assert (own(bucket).status, own(bucket).checkpoint) == (TableStatus.EXCLUDED, 200)
    (bucket.root / gone).unlink()
    ran = bucket.at(400)
    assert (ran.code, own(bucket).status, "CDC000004.csv is missing" in ran.told) == (3, TableStatus.INCOMPLETE, True)


def test_days_that_are_sealed_are_read_again_from_the_day_before_on(tmp_path: Path) -> None:
    """Most of a long history is a few bytes a day in the position, and files of earlier days stay read."""
    bucket = Bucket(tmp_path)
    bucket.create("t")
    day = 86_400_000 << 18
    begins = 19_000 * day  # 2022-01-08
    for number in range(40):
        ts = begins + number * day
        bucket.rows(f"t/100/{format_tso(ts)[:10]}/1", f"I {ts + 5} {number} n{number}")
    assert bucket.at(begins + 50 * day).code == 0
    at = begins + 37 * day
    execute(bucket, "DELETE FROM test.t", *(f"INSERT INTO test.t VALUES ({n}, 'loaded')" for n in range(37)))
    resync(bucket, at)
    ran = bucket.at(begins + 51 * day)
    assert (ran.code, ran.files, "appeared in the directory" in ran.told) == (0, 4, False)
    assert [value for _, value in sorted(bucket.state("t") or [])] == ["loaded"] * 37 + ["n37", "n38", "n39"]
    assert bucket.at(begins + 52 * day).files == 0


def test_a_skipped_create_of_a_waiting_table_is_taken_in_later(tmp_path: Path) -> None:
    """Somebody else has a table of the name, moves it away, and lets the source's one pass for now."""
    bucket = Bucket(tmp_path)
    execute(bucket, "CREATE SCHEMA test", "CREATE TABLE test.t (n INT)", "INSERT INTO test.t VALUES (1)")
    bucket.create("t")
    bucket.create("o")
    bucket.rows("t/100/1", "I 110 1 a")
    assert bucket.at(120).code == 3
    execute(bucket, "DROP TABLE test.t")
    decide(bucket, Verdict.SKIP)
    assert bucket.at(130).code == 0
    execute(bucket, "CREATE TABLE test.t (id INT PRIMARY KEY, v VARCHAR)", "INSERT INTO test.t VALUES (1, 'a')")
    bucket.rows("t/100/2", "I 140 2 b")
    assert bucket.at(150).code == 0
    resync(bucket, 135)
    assert bucket.at(160).code == 0
    assert bucket.state("t") == [(1, "a"), (2, "b")]


SWAP = {"tmp": "t", "t": "u", "u": "tmp"}
"""A RENAME of several tables by which two change names: what TiCDC writes in each new name's schema file."""
CIRCLE = [("t", "x"), ("u", "t"), ("x", "u")]


@pytest.mark.parametrize("in_parts", [True, False])
def test_tables_that_change_names_are_not_passed_over(bucket: Bucket, in_parts: bool) -> None:
    """The other table of the two has its rows under the former name, and needs the schema change."""
    bucket.create("u", 121)
    bucket.rows("u/121/1", "I 122 1 u1")
    assert bucket.at(130).code == 0
    assert table(bucket, "hold", "test.t") == 0
    assert bucket.at(140).code == 3
    bucket.rows("t/100/2", "I 150 3 t3")
    parts = {new: f"`test`.`{old}` TO `test`.`{new}`" for new, old in SWAP.items()}
    for new in SWAP if in_parts else "tu":
        bucket.schema(new, 200, "id,v", f"RENAME TABLE {parts[new] if in_parts else ', '.join(parts.values())}", 14)
    bucket.rows("t/200/1", "I 210 4 u4")
    bucket.rows("u/200/1", "I 210 5 t5")
    assert bucket.at(250).code == 3
    execute(bucket, "DELETE FROM test.u", "INSERT INTO test.u VALUES (1, 'a'), (2, 'b'), (3, 't3'), (5, 't5')")  # as of 240
    resync(bucket, 240, "test.u")
    ran = bucket.at(300)
    assert (ran.code, "its schema change at 200 also concerns test.t" in ran.told) == (3, True)
    assert (own(bucket).status, set(ledger(bucket).holds)) == (TableStatus.HELD, {T, TableId("test", "u")})
    if in_parts:
        execute(bucket, "DELETE FROM test.u", "INSERT INTO test.u VALUES (1, 'u1')")  # as it was
        assert "headrace table resync test.u --at 199" in ran.told
        resync(bucket, 199, "test.u")
        assert table(bucket, "release", "test.t") == 0
        assert bucket.at(310).code == 0
        assert bucket.state("t") == [(1, "u1"), (4, "u4")]
        assert bucket.state("u") == [(1, "a"), (2, "b"), (3, "t3"), (5, "t5")]


@pytest.mark.parametrize("asks", ["resync skip release", "resync run skip release", "resync run release skip"])
def test_what_was_loaded_past_a_change_of_names_gets_no_rows_of_the_former_table(bucket: Bucket, asks: str) -> None:
    """The change is decided about, and both tables are loaded as of a time behind it."""
    bucket.create("u", 121)
    bucket.rows("u/121/1", "I 122 1 u1")
    assert bucket.at(130).code == 0
    assert table(bucket, "hold", "test.t") == 0
    bucket.rows("t/100/2", "I 150 3 t3")
    for new in "xtu":
        bucket.schema(new, 200, "id,v", f"RENAME TABLE {', '.join(f'`test`.`{a}` TO `test`.`{b}`' for a, b in CIRCLE)}", 14)
    bucket.rows("t/200/1", "U 210 1 u2", "I 260 4 u4")
    assert bucket.at(300).code == 3
    loaded(bucket, (1, "u2"))
    execute(bucket, "DELETE FROM test.u", "INSERT INTO test.u VALUES (1, 'a'), (2, 'b'), (3, 't3')")
    for word in asks.split():
        if word == "resync":
            resync(bucket, 250)
        elif word == "release":
            assert table(bucket, "release", "test.t") == 0
        elif word == "run":
            ran = bucket.at(310)
            assert (ran.code, "load all of them as of a later time, and resync each" in ran.told) == (3, True)
        else:
            decide(bucket, Verdict.SKIP)
    assert bucket.at(320).code == 3
    assert own(bucket).status is TableStatus.INCOMPLETE
    for name in "tu":
        resync(bucket, 250, f"test.{name}")
    assert bucket.at(330).code == 0
    assert bucket.state("t") == [(1, "u2"), (4, "u4")]
    assert bucket.state("u") == [(1, "a"), (2, "b"), (3, "t3")]


@pytest.mark.parametrize("seen", ["refused", "waits", "never"])
def test_what_was_loaded_into_a_later_table_of_a_name_does_not_pass_for_the_renamed_one(bucket: Bucket, seen: str) -> None:
    assert table(bucket, "hold", "test.t") == 0
    assert bucket.at(130).code == 3
    bucket.schema("u", 200, "id,v", "RENAME TABLE `test`.`t` TO `test`.`u`", 14)
    bucket.create("t", 210)
    bucket.rows("t/210/1", "I 220 50 new", "I 310 51 later")
    if seen != "never":
        assert bucket.at(300).code == 3
    loaded(bucket, (50, "new"))
    resync(bucket, 250)
    if seen == "refused":
        ran = bucket.at(305)
        assert (ran.code, "moves its rows to test.u" in ran.told, "it stays held: load it again" in ran.told) == (3, True, True)
    assert table(bucket, "release", "test.t") == 0
    ran = bucket.at(320)
    assert (ran.code, "it was loaded as of 250 and released" in ran.told) == (3, True)
    assert (own(bucket).status, own(bucket, TableId("test", "u")).status) == (TableStatus.RUNNING, TableStatus.INCOMPLETE)
    assert bucket.state("t") == [(50, "new"), (51, "later")]
    execute(bucket, "DELETE FROM test.u", "INSERT INTO test.u VALUES (1, 'a'), (2, 'b')")
    resync(bucket, 320, "test.u")
    assert bucket.at(330).code == 0
    assert bucket.state("u") == [(1, "a"), (2, "b")]


def test_a_table_that_was_renamed_away_and_back_is_loaded_under_its_name(bucket: Bucket) -> None:
    assert table(bucket, "hold", "test.t") == 0
    assert bucket.at(130).code == 3
    bucket.rows("t/100/2", "U 150 1 c")
    bucket.schema("u", 200, "id,v", "RENAME TABLE `test`.`t` TO `test`.`u`", 14)
    bucket.schema("t", 210, "id,v", "RENAME TABLE `test`.`u` TO `test`.`t`", 14)
    bucket.rows("t/210/1", "U 220 2 d", "U 290 2 e")
    bucket.create("u", 230)
    bucket.rows("u/230/1", "I 240 9 new")
    assert bucket.at(300).code == 3
    loaded(bucket, (1, "c"), (2, "d"))
    resync(bucket, 250)
    assert bucket.at(310).code == 0
    assert (bucket.state("t"), bucket.state("u")) == ([(1, "c"), (2, "e")], [(9, "new")])
    assert ledger(bucket).requests == {}


def test_the_end_of_a_database_is_not_passed_over(bucket: Bucket) -> None:
    assert table(bucket, "hold", "test.t") == 0
    assert bucket.at(130).code == 3
    bucket.schema("", 200, "id,v", "DROP DATABASE `test`", 2)
    bucket.schema("", 210, "id,v", "CREATE DATABASE `test`", 1)
    bucket.create("t", 220)
    bucket.rows("t/220/1", "I 230 5 n", "I 310 6 later")
    bucket.create("o", 221)
    assert bucket.at(300).code == 3
    loaded(bucket, (5, "n"))
    resync(bucket, 250)
    ran = bucket.at(320)
    assert (ran.code, "drops its database" in ran.told, "--at 199" in ran.told) == (3, True, True)
    resync(bucket, 199)
    bucket.at(330)
    assert bucket.at(340).code == 0
    assert (bucket.state("t"), bucket.state("o")) == ([(5, "n"), (6, "later")], [(9, "o9")])


@pytest.mark.parametrize("stands_still", ["held", "stopped"])
def test_the_drop_of_a_table_with_the_name_in_another_case_is_passed_over(bucket: Bucket, stands_still: str) -> None:
    """To the target both are one table: the DROP would take what was loaded, whenever the former one comes to it."""
    if stands_still == "held":
        assert table(bucket, "hold", "test.t") == 0
    else:
        bucket.rows("t/100/2", "U x 1 bad")
    bucket.schema("t", 190, "id,v,c", "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", 5)
    bucket.schema("t", 200, "id,v,c", "DROP TABLE `test`.`t`", 4)
    bucket.create("T", 210)
    bucket.rows("T/210/1", "I 220 5 e", "I 260 6 f")
    assert bucket.at(300).code == 3
    loaded(bucket, (5, "e"))
    resync(bucket, 250, "test.T")
    ran = bucket.at(310)
    assert (ran.code, "it was dropped by the schema change at 200, which counts as done" in ran.told) == (0, True)
    bucket.rows("T/210/2", "I 315 7 g")
    for checkpoint in (320, 330):
        assert bucket.at(checkpoint).code == 0
        assert bucket.state("T" if ("test", "T") in bucket.tables() else "t") == [(5, "e"), (6, "f"), (7, "g")]
    assert (own(bucket).status, own(bucket, TableId("test", "T")).status) == (TableStatus.GONE, TableStatus.RUNNING)


@pytest.mark.parametrize("ends", ["RENAME TABLE `test`.`t` TO `test`.`z`", "DROP DATABASE `test`"])
def test_a_table_that_still_has_the_name_in_another_case_is_not_passed_over(bucket: Bucket, ends: str) -> None:
    assert table(bucket, "hold", "test.t") == 0
    assert bucket.at(130).code == 3
    if ends.startswith("RENAME"):
        bucket.schema("z", 200, "id,v", ends, 14)
    else:
        bucket.schema("", 200, (), ends, 2)
        bucket.schema("", 205, (), "CREATE DATABASE `test`", 1)
    bucket.create("T", 210)
    bucket.rows("T/210/1", "I 220 5 e")
    assert bucket.at(300).code == 3
    loaded(bucket, (5, "e"))
    resync(bucket, 250, "test.T")
    ran = bucket.at(310)
    assert (ran.code, "test.t, whose name differs only in case, has not reached" in ran.told) == (3, True)
    loaded(bucket, (1, "a"), (2, "b"))
    assert table(bucket, "release", "test.t") == 0
    assert bucket.at(320).code == 0
    assert (own(bucket, TableId("test", "T")).status, bucket.state("T")) == (TableStatus.RUNNING, [(5, "e")])
    assert bucket.state("z") == ([(1, "a"), (2, "b")] if ends.startswith("RENAME") else None)


def test_a_bad_file_of_a_table_that_was_passed_over_stops_no_later_one_of_its_name(bucket: Bucket) -> None:
    bucket.rows("t/100/2", "U x 1 bad")
    bucket.schema("z", 200, "id,v", "RENAME TABLE `test`.`t` TO `test`.`z`", 14)
    bucket.create("t", 210)
    bucket.rows("t/210/1", "I 220 5 e")
    assert bucket.at(300).code == 3
    execute(bucket, "ALTER TABLE test.t RENAME TO z")
    resync(bucket, 250, "test.z")
    for checkpoint in (310, 320, 330):
        assert bucket.at(checkpoint).code == 0
    assert (bucket.state("t"), bucket.state("z")) == ([(5, "e")], [(1, "a"), (2, "b")])


def test_a_file_that_was_to_be_given_up_while_the_table_was_held_is_read_when_it_was_loaded(bucket: Bucket) -> None:
    damaged = bucket.rows("t/100/2", "I 150 3 x")
    whole = (bucket.root / damaged).read_text().replace('"x"', '"c"')
    (bucket.root / damaged).write_text('"I","t","test",150,no number,"c"\n')
    assert bucket.at(200).code == 3
    assert table(bucket, "hold", "test.t") == 0
    assert bucket.at(210).code == 3
    assert table(bucket, "skip", "test.t", "--file", damaged, "--yes") == 0
    (bucket.root / damaged).write_text(whole)
    loaded(bucket, (1, "a"), (2, "b"))  # as of 140
    resync(bucket, 140)
    told = [bucket.at(220).told, bucket.at(230).told]
    assert (bucket.state("t"), own(bucket).status) == ([(1, "a"), (2, "b"), (3, "c")], TableStatus.RUNNING)
    assert ("it is not given up" in told[0], ledger(bucket).requests) == (True, {})
