"""A schema file that cannot be read, or is not there, for some cuts: whatever it does, it is done in its place once it is there."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from building import Bucket, ask, csv_record, decide, ledger, tables

from headrace.engine import journal, loop, retries
from headrace.model.events import is_unread_statement
from headrace.model.ledger import JournalState, RequestKind, TableRequest, TableStatus, Verdict
from headrace.model.offer import Offer
from headrace.model.place import PlaceInFile
from headrace.model.policy import ChangeKind, Policy, SchemaChangePolicies
from headrace.model.table import TableId
from headrace.pipeline.registry import open_source
from headrace.sources.ticdc_storage.catalogue import Catalogue
from storage_folder import ID, OPTIONS, C, V

pytestmark = pytest.mark.pipeline

A, B = TableId("test", "a"), TableId("test", "b")
PARTITIONS = "PARTITION BY RANGE (`id`) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"
TABLE_IDS = OPTIONS + "&use-table-id-as-path=true"
DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "torn": lambda raw: raw[:80],
    "torn behind the statement": lambda raw: raw[:-40],
    "empty": lambda raw: b"",
    "garbage": lambda raw: bytes(255 - byte for byte in raw),
    "another checksum": lambda raw: raw.replace(b'"VARCHAR"', b'"CHAR"').replace(b'"Table": "', b'"Table": "x', 1),
    "of an unknown type": lambda raw: raw.replace(b'"VARCHAR"', b'"GEOMETRY"'),
    "missing": lambda raw: None,
}


@pytest.fixture(autouse=True)
def _one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_LOOKS", 0)


def states(bucket: Bucket) -> dict[tuple[str, str], object]:
    return {(database, table): bucket.state(table, database) for database, table in sorted(bucket.tables())}


# Histories: each begins with what is there up to 150, and goes on with what may be damaged; ``end`` is what comes after the repair.

Part = Callable[[Bucket], list[str]]


def rename(bucket: Bucket) -> list[str]:
    tables(bucket, "a", "o")
    path = bucket.schema("b", 200, "id,v", "RENAME TABLE `test`.`a` TO `test`.`b`", 14)
    bucket.rows("b/200/1", "I 210 3 c", "D 220 1 a1")
    return [path]


def chain(bucket: Bucket) -> list[str]:
    tables(bucket, "a", "b", "o")
    paths = [bucket.schema(new, 200, "id,v", f"RENAME TABLE `test`.`{old}` TO `test`.`{new}`", 14) for old, new in ("bc", "ab")]
    bucket.rows("b/200/1", "I 210 3 a3")
    bucket.rows("c/200/1", "I 211 4 b4")
    return paths


def swap(bucket: Bucket) -> list[str]:
    tables(bucket, "a", "b")
    paths = [bucket.schema(new, 200, "id,v", f"RENAME TABLE `test`.`{old}` TO `test`.`{new}`", 14) for old, new in ("ba", "xb")]
    bucket.rows("a/200/1", "I 210 3 b3")
    bucket.rows("b/200/1", "I 211 4 a4", "D 212 1 a1")
    return paths


def truncate(bucket: Bucket) -> list[str]:
    tables(bucket, "a", "o")
    path = bucket.schema("a", 200, "id,v", "TRUNCATE TABLE `test`.`a`", 11)
    bucket.rows("a/200/1", "I 210 3 c")
    return [path]


def drop(bucket: Bucket) -> list[str]:
    tables(bucket, "a", "o")
    path = bucket.schema("a", 200, "id,v", "DROP TABLE `test`.`a`", 4)
    again = bucket.create("a", 230, "id,c")
    bucket.rows("a/230/1", "I 240 5 7")
    return [path, again]


def alter(bucket: Bucket) -> list[str]:
    tables(bucket, "a", "o")
    path = bucket.schema("a", 200, "id,v,c", "ALTER TABLE `test`.`a` ADD COLUMN `c` INT DEFAULT 7", 5)
    bucket.rows("a/200/1", "I 210 3 c 8")
    later = bucket.schema("a", 230, "id,c", "ALTER TABLE `test`.`a` DROP COLUMN `v`", 6)
    bucket.rows("a/230/1", "I 240 4 9")
    return [path, later]


def like(bucket: Bucket) -> list[str]:
    tables(bucket, "a", "o")
    path = bucket.schema("b", 200, "id,v", "CREATE TABLE `test`.`b` LIKE `test`.`a`", 3)
    bucket.rows("b/200/1", "I 210 3 c")
    bucket.schema("a", 230, "id,v,c", "ALTER TABLE `test`.`a` ADD COLUMN `c` INT DEFAULT 7", 5)
    bucket.rows("a/230/1", "I 240 4 x 8")
    return [path]


def exchange(bucket: Bucket) -> list[str]:
    statement = f"CREATE TABLE `p` (`id` INT PRIMARY KEY,`v` VARCHAR(16)) {PARTITIONS}"
    bucket.schema("p", 100, "id,v", statement, 3)
    tables(bucket, "e", "o")
    bucket.rows("p/100/112/1", "I 110 1 in_p")
    path = bucket.schema("p", 200, "id,v", "ALTER TABLE `test`.`p` EXCHANGE PARTITION `p0` WITH TABLE `test`.`e`", 42)
    other = bucket.schema("e", 200, "id,v", "", 0)
    bucket.rows("p/200/112/1", "I 210 5 p5")
    bucket.rows("e/200/1", "D 211 1 in_p")
    return [path, other]


def databases(bucket: Bucket) -> list[str]:
    tables(bucket, "o")
    made = bucket.schema("", 150, (), "CREATE DATABASE `d`", 1, database="d")
    created = bucket.create("t", 160, database="d")
    bucket.rows("t/160/1", "I 170 1 x", database="d")
    dropped = bucket.schema("", 200, (), "DROP DATABASE `d`", 2, database="d")
    back = bucket.schema("", 210, (), "CREATE DATABASE `d`", 1, database="d")
    bucket.create("t", 220, database="d")
    bucket.rows("t/220/1", "I 230 2 y", database="d")
    return [made, created, dropped, back]


def chain_of_new_tables(bucket: Bucket) -> list[str]:
    tables(bucket, "o")
    paths = [bucket.create("a", 130), bucket.create("b", 131, "id,c")]
    bucket.rows("a/130/1", "I 140 1 x")
    bucket.rows("b/131/1", "I 140 2 7")
    bucket.schema("z", 200, "id,v", "RENAME TABLE `test`.`a` TO `test`.`z`", 14)
    bucket.schema("a", 200, "id,c", "RENAME TABLE `test`.`b` TO `test`.`a`", 14)
    bucket.rows("a/200/1", "I 210 3 8")
    return paths


HISTORIES: list[Part] = [rename, chain, swap, truncate, drop, alter, like, exchange, databases, chain_of_new_tables]


def repaired(folder: Path, history: Part, number: int, damage: Callable[[bytes], bytes | None]) -> tuple[Bucket, Bucket] | None:
    """The history with one file damaged for two cuts, and a whole one; ``None`` when there is no such file."""
    whole, broken = Bucket(folder / "whole", OPTIONS + "&strict=true"), Bucket(folder / "broken", OPTIONS + "&strict=true")
    history(whole)
    paths = history(broken)
    if number >= len(paths):
        return None
    raw = (broken.root / paths[number]).read_bytes()
    if (damaged := damage(raw)) is None:
        (broken.root / paths[number]).unlink()
    elif damaged == raw:
        return None
    else:
        broken.write(paths[number], damaged)
    assert broken.at(120).code == 0
    assert broken.at(300).code in (0, 3)
    assert broken.at(310).code in (0, 3)
    broken.write(paths[number], raw)
    assert whole.at(400).code == 0
    ran = broken.at(400)
    assert (ran.code, ran.stopped) == (0, {}), ran.stopped
    return whole, broken


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("history", HISTORIES)
def test_after_the_repair_everything_ran_in_order(tmp_path: Path, history: Part, number: int) -> None:
    """A torn file tells nothing but its path; so do others (:func:`test_any_damage_is_made_good`)."""
    both = repaired(tmp_path, history, number, DAMAGES["torn"])
    if both is not None:
        whole, broken = both
        assert states(broken) == states(whole)
        state = ledger(broken)
        assert not [entry for entry in state.journal.values() if not entry.state.is_settled]
        assert not [own for own in state.tables.values() if own.status.is_stopped]
        assert state.checkpoint == 400


def freed_name(bucket: Bucket) -> list[str]:
    """``a`` is dropped, and ``b`` takes its name: nothing but the DROP tells that the second change is of two tables."""
    tables(bucket, "a", "b", "o")
    dropped = bucket.schema("a", 200, "id,v", "DROP TABLE `test`.`a`", 4)
    renamed = bucket.schema("a", 210, "id,v", "RENAME TABLE `test`.`b` TO `test`.`a`", 14)
    bucket.rows("a/210/1", "I 220 3 b3")
    return [dropped, renamed]


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("history", [swap, chain, exchange, databases, freed_name, alter])
def test_two_damaged_files_that_are_repaired_one_after_the_other(tmp_path: Path, history: Part, first: int) -> None:
    whole, broken = Bucket(tmp_path / "whole", OPTIONS), Bucket(tmp_path / "broken", OPTIONS)
    history(whole)
    paths = history(broken)
    two = [paths[first], paths[1 - first]]
    raw = {path: (broken.root / path).read_bytes() for path in two}
    assert broken.at(120).code == 0
    for path in two:
        broken.write(path, raw[path][:80])
    for checkpoint, path in zip((300, 310), two, strict=True):
        assert broken.at(checkpoint).code == 3
        broken.write(path, raw[path])
    assert whole.at(400).code == 0
    ran = broken.at(400)
    assert (ran.code, ran.stopped) == (0, {}), ran.stopped
    assert states(broken) == states(whole)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("history", [exchange, rename])
def test_any_damage_is_made_good(tmp_path: Path, history: Part, damage: str) -> None:
    both = repaired(tmp_path, history, 0, DAMAGES[damage])
    assert both is not None
    whole, broken = both
    assert states(broken) == states(whole)


def by_id(bucket: Bucket, table_id: int, version: int, table: str, shape: str, statement: str, *rows: str) -> str:
    """A version of a table in table-id mode, with a data file."""
    path = bucket.schema(table, version, shape, statement, parent=str(table_id))
    columns = bucket.shapes[str(table_id), version]
    if rows:
        text = "".join(csv_record(row, table, "test", columns) + "\n" for row in rows)
        bucket.write(f"{table_id}/{version}/CDC000001.csv", text)
    return path


def ids_of_tables(bucket: Bucket) -> list[str]:
    create = "CREATE TABLE `test`.`{}` (`id` INT PRIMARY KEY,`v` VARCHAR(16))"
    by_id(bucket, 110, 100, "a", "id,v", create.format("a"), "I 110 1 a1", "I 111 2 a2")
    by_id(bucket, 111, 101, "o", "id,v", create.format("o"), "I 112 1 o1", "I 250 2 o2")
    return [
        by_id(bucket, 110, 200, "a", "id,v", "ALTER TABLE `test`.`a` COMMENT = 'x'", "I 201 3 a3", "D 202 1 a1"),
        by_id(bucket, 110, 210, "b", "id,v", "RENAME TABLE `test`.`a` TO `test`.`b`", "I 211 4 a4"),
        by_id(bucket, 120, 220, "b", "id,v", "TRUNCATE TABLE `test`.`b`", "I 221 5 b5"),
        by_id(bucket, 130, 230, "c", "id,v", "CREATE TABLE `test`.`c` LIKE `test`.`b`", "I 231 6 c6"),
        by_id(bucket, 120, 240, "b", "id,v,c", "ALTER TABLE `test`.`b` ADD COLUMN `c` INT DEFAULT 7", "I 241 7 b7 8"),
        by_id(bucket, 130, 250, "c", "id,v", "DROP TABLE `test`.`c`"),
    ]


@pytest.mark.parametrize("damage", ["torn", "garbage", "missing"])
@pytest.mark.parametrize("number", range(6))
def test_with_table_ids_as_paths_everything_ran_in_order_too(tmp_path: Path, number: int, damage: str) -> None:
    whole, broken = Bucket(tmp_path / "whole", TABLE_IDS), Bucket(tmp_path / "broken", TABLE_IDS)
    ids_of_tables(whole)
    path = ids_of_tables(broken)[number]
    raw = (broken.root / path).read_bytes()
    damaged = DAMAGES[damage](raw)
    if damaged is None:
        (broken.root / path).unlink()
        if number == 5:
            return  # nothing tells of a DROP that never was there
    else:
        broken.write(path, damaged)
    for checkpoint in (120, 300):
        broken.at(checkpoint)
    assert not [table for table in ledger(broken).tables if not table.table and table.database.isdecimal()]
    broken.write(path, raw)
    assert whole.at(400).code == 0
    ran = broken.at(400)
    assert (ran.code, ran.stopped) == (0, {})
    assert states(broken) == states(whole)


def test_an_unreadable_file_in_table_id_mode_is_told_of_the_tables_that_wait(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, TABLE_IDS)
    path = ids_of_tables(bucket)[0]
    raw = (bucket.root / path).read_bytes()
    bucket.write(path, raw[:80])
    ran = bucket.at(300)
    assert (ran.code, set(ran.stopped)) == (3, {"test.a", "test.b", "test.c"})
    assert f"table test.a, file {path}: The schema file is not valid JSON" in ran.stopped["test.a"]
    assert "headrace ddl skip|edit '200/test.a/" in ran.stopped["test.a"]
    assert bucket.state("a") == [(1, "a1"), (2, "a2")]  # all rows before it are there, and none after
    assert bucket.state("o") == [(1, "o1"), (2, "o2")]


def test_a_file_of_which_nothing_tells_the_table_holds_all_that_existed(tmp_path: Path) -> None:
    """Whatever came to be by itself later goes on."""
    bucket = Bucket(tmp_path, TABLE_IDS)
    ids_of_tables(bucket)
    by_id(bucket, 140, 225, "n", "id,v", "CREATE TABLE `test`.`n` (`id` INT PRIMARY KEY,`v` VARCHAR(16))", "I 226 1 n1")
    path = next(iter((bucket.root / "120" / "meta").glob("schema_220_*.json")))
    raw = path.read_bytes()
    bucket.write("120/meta/" + path.name, raw[:10])
    next(path.parent.glob("schema_240_*.json")).unlink()
    (bucket.root / "120/240/CDC000001.csv").unlink()
    ran = bucket.at(300)
    assert ran.code == 3
    assert {"test.b", "test.o"} <= set(ran.stopped)
    assert "test.n" not in ran.stopped
    assert bucket.state("n") == [(1, "n1")]
    assert bucket.state("o") == [(1, "o1")]


def test_a_file_of_which_nothing_tells_the_table_holds_one_that_was_recovered(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, TABLE_IDS)
    create = "CREATE TABLE `test`.`{}` (`id` INT PRIMARY KEY,`v` VARCHAR(16))"
    by_id(bucket, 110, 100, "a", "id,v", create.format("a"), "I 110 1 a1")
    by_id(bucket, 111, 101, "o", "id,v", create.format("o"), "I 112 1 o1")
    by_id(bucket, 110, 200, "a", "id,v", "DROP TABLE `test`.`a`")
    by_id(bucket, 110, 210, "a", "id,v", "RECOVER TABLE `test`.`a`", "I 211 2 a2")
    assert set(bucket.at(220).stopped) == {"test.a"}
    decide(bucket, Verdict.EDIT, 'CREATE TABLE "test"."a" (id INTEGER PRIMARY KEY, v VARCHAR)')
    assert bucket.at(230).code == 0
    assert bucket.state("a") == [(2, "a2")]
    path = by_id(bucket, 120, 240, "a", "id,v", "TRUNCATE TABLE `test`.`a`")
    bucket.write(path, (bucket.root / path).read_bytes()[:10])
    assert set(bucket.at(300).stopped) == {"test.a", "test.o"}


def test_a_first_file_that_cannot_be_read_is_told_though_no_table_is_known(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, TABLE_IDS)
    create = "CREATE TABLE `test`.`a` (`id` INT PRIMARY KEY,`v` VARCHAR(16))"
    path = by_id(bucket, 110, 100, "a", "id,v", create, "I 110 1 a1")
    raw = (bucket.root / path).read_bytes()
    bucket.write(path, raw[:5])
    ran = bucket.at(200)
    assert (ran.code, ran.stopped, ledger(bucket).tables) == (3, {}, {})
    assert "Its table is not known." in ran.told
    assert path in ran.told
    bucket.write(path, raw)
    assert bucket.at(300).code == 0
    assert bucket.state("a") == [(1, "a1")]


# With table ids as paths, what was applied and then loses its schema file.


def two_tables_by_id(bucket: Bucket) -> str:
    """Two tables that were applied; the path of the first one's schema file."""
    create = "CREATE TABLE `test`.`{}` (`id` INT PRIMARY KEY,`v` VARCHAR(16))"
    path = by_id(bucket, 110, 100, "a", "id,v", create.format("a"), "I 110 1 a1")
    by_id(bucket, 111, 101, "o", "id,v", create.format("o"), "I 112 1 o1")
    assert bucket.at(120).code == 0
    return path


@pytest.mark.parametrize("damage", ["torn", "torn behind the statement", "empty", "garbage", "missing"])
@pytest.mark.parametrize("is_remembered", [True, False])
def test_rows_in_the_folder_of_an_id_wait_for_the_schema_file_that_was_applied(
    tmp_path: Path, damage: str, is_remembered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the ledger of an older Headrace does not tell whose folder it is."""
    with monkeypatch.context() as older:
        if not is_remembered:
            older.setattr(Catalogue, "owners_by_id", lambda self: {})
        bucket = Bucket(tmp_path, TABLE_IDS)
        path = two_tables_by_id(bucket)
        raw = (bucket.root / path).read_bytes()
        bucket.write(path, DAMAGES[damage](raw) or b"")
        if damage == "missing":
            (bucket.root / path).unlink()
        bucket.write("110/100/CDC000002.csv", csv_record("I 210 9 late", "a", "test") + "\n")
        bucket.write("111/101/CDC000002.csv", csv_record("I 211 9 o9", "o", "test") + "\n")
        for checkpoint in (300, 305):
            ran = bucket.at(checkpoint)
            assert (ran.code, set(ran.stopped)) == (3, {"test.a"})
            assert bucket.state("o") == [(1, "o1"), (9, "o9")]
        bucket.write(path, raw)
        assert bucket.at(310).code == 0
    assert bucket.state("a") == [(1, "a1"), (9, "late")]
    assert all(entry.state.is_settled for entry in ledger(bucket).journal.values())


def test_rows_in_the_folder_of_an_id_belong_to_the_name_that_its_table_took_last(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, TABLE_IDS)
    two_tables_by_id(bucket)
    path = by_id(bucket, 110, 200, "b", "id,v", "RENAME TABLE `test`.`a` TO `test`.`b`", "I 210 2 b2")
    assert bucket.at(220).code == 0
    raw = (bucket.root / path).read_bytes()
    (bucket.root / path).unlink()
    bucket.write("110/200/CDC000002.csv", csv_record("I 230 9 late", "b", "test") + "\n")
    ran = bucket.at(300)
    assert (ran.code, set(ran.stopped)) == (3, {"test.b"})
    bucket.write(path, raw)
    assert bucket.at(310).code == 0
    assert bucket.state("b") == [(1, "a1"), (2, "b2"), (9, "late")]


def test_rows_of_which_nothing_tells_the_table_are_told_of_at_every_run(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, TABLE_IDS)
    create = "CREATE TABLE `test`.`a` (`id` INT PRIMARY KEY,`v` VARCHAR(16))"
    path = by_id(bucket, 110, 100, "a", "id,v", create, "I 110 1 a1")
    raw = (bucket.root / path).read_bytes()
    bucket.write(path, raw[:5])
    for checkpoint in (200, 200, 300):
        ran = bucket.at(checkpoint)
        assert ran.code == 3
        assert "Its table is not known." in ran.told
    bucket.write(path, raw)
    assert bucket.at(300).code == 0
    assert bucket.state("a") == [(1, "a1")]


def test_nobody_decides_about_rows_of_which_nothing_tells_the_table(tmp_path: Path) -> None:
    """A new id of ``a`` after a TRUNCATE: neither a decision about the change nor a resync lets its rows be passed."""
    bucket = Bucket(tmp_path, TABLE_IDS)
    two_tables_by_id(bucket)
    assert bucket.at(190).code == 0
    path = by_id(bucket, 120, 200, "a", "id,v", "TRUNCATE TABLE `test`.`a`", "I 310 2 n")
    raw = (bucket.root / path).read_bytes()
    bucket.write(path, raw[:5])
    assert set(bucket.at(400).stopped) == {"test.a", "test.o"}
    decide(bucket, Verdict.SKIP)
    ask(bucket, TableRequest("1", A, RequestKind.RESYNC, to=380))
    ran = bucket.at(410)
    assert (ran.code, set(ran.stopped)) == (3, {"test.o"})
    assert "move the data files of version 200 away" in ledger(bucket).tables[A].reason
    assert "later rows of it may lie in the folder of 120/" in ran.told
    assert "it stays held" in ran.told, "the change may give its name to rows of another table"
    bucket.write(path, raw)
    assert bucket.at(420).code == 3
    with duckdb.connect(str(bucket.database)) as connection:
        connection.execute("DELETE FROM test.a; INSERT INTO test.a VALUES (2, 'n')")
    ask(bucket, TableRequest("2", A, RequestKind.RESYNC, to=380))
    assert bucket.at(430).code == 0
    assert bucket.state("a") == [(2, "n")]


def test_the_folder_of_an_id_that_is_removed_with_unread_rows_keeps_its_table_stopped(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, TABLE_IDS)
    two_tables_by_id(bucket)
    bucket.write("110/100/CDC000002.csv", '"I","a"\n')
    assert set(bucket.at(300).stopped) == {"test.a"}
    shutil.rmtree(bucket.root / "110")
    ran = bucket.at(310)
    assert (ran.code, set(ran.stopped)) == (3, {"test.a"})
    assert "The file vanished" in ran.stopped["test.a"]
    state = ledger(bucket)
    assert set(state.tables) == {A, TableId("test", "o")}
    held = open_source(bucket.folder.uri(bucket.options)).held(state.position)
    assert [(split.table_id, split.key) for split in held] == [(A, "110/100/CDC000002.csv")]


def test_a_file_in_the_folder_of_an_id_is_given_up_by_its_own_table_only(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, TABLE_IDS)
    two_tables_by_id(bucket)
    for folder in ("110/100", "111/101"):
        bucket.write(f"{folder}/CDC000002.csv", '"I","x"\n')
    assert set(bucket.at(200).stopped) == {"test.a", "test.o"}
    bucket.write("111/101/CDC000002.csv", csv_record("I 150 9 o9", "o", "test") + "\n")
    ask(bucket, TableRequest("1", A, RequestKind.SKIP_FILE, place=PlaceInFile("111/101/CDC000002.csv")))
    ran = bucket.at(210)
    assert set(ran.stopped) == {"test.a"}
    assert "nothing was given up" in ran.told
    assert bucket.state("o") == [(1, "o1"), (9, "o9")]
    ask(bucket, TableRequest("2", A, RequestKind.SKIP_FILE, place=PlaceInFile("110/100/CDC000002.csv")))
    assert bucket.at(220).code == 0


# What is held, and what goes on.


def held_by(bucket: Bucket, path: str, damage: str = "torn") -> set[str]:
    raw = (bucket.root / path).read_bytes()
    damaged = DAMAGES[damage](raw)
    assert damaged is not None
    bucket.write(path, damaged)
    ran = bucket.at(300)
    assert ran.code == 3
    return set(ran.stopped)


def test_what_touches_one_table_alone_stops_no_other(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    (path,) = truncate(bucket)
    assert held_by(bucket, path) == {"test.a"}
    assert bucket.state("a") == [(1, "a1"), (2, "a2")]
    assert bucket.state("o") == [(1, "o1"), (2, "o2"), (9, "o9")]


def test_what_a_table_that_was_not_there_became_of_may_be_any(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    (path,) = rename(bucket)
    assert held_by(bucket, path) == {"test.a", "test.b", "test.o"}
    assert bucket.state("o") == [(1, "o1"), (2, "o2")]


def test_a_statement_that_can_still_be_read_says_whom_it_concerns(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    (path,) = rename(bucket)
    assert held_by(bucket, path, "torn behind the statement") == {"test.a", "test.b"}
    assert bucket.state("o") == [(1, "o1"), (2, "o2"), (9, "o9")]


def test_the_other_table_of_an_exchange_waits_too(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    path, _ = exchange(bucket)
    assert held_by(bucket, path) == {"test.p", "test.e"}
    assert bucket.state("e") == [(1, "e1"), (2, "e2")]


def test_the_file_of_a_database_holds_the_tables_in_it(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    paths = databases(bucket)
    assert held_by(bucket, paths[2]) == {"d", "d.t"}
    assert bucket.state("t", "d") == [(1, "x")]


def test_a_file_that_is_damaged_after_it_was_applied_stops_nobody(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    (path,) = rename(bucket)
    assert bucket.at(300).code == 0
    bucket.write(path, b"{")
    bucket.rows("o/101/2", "I 350 10 x")
    ran = bucket.at(400)
    assert (ran.code, ran.stopped) == (0, {})
    assert bucket.state("o") == [(1, "o1"), (10, "x"), (2, "o2"), (9, "o9")]


# What a person may decide.


def test_a_change_that_was_made_by_hand_is_skipped(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    (path,) = truncate(bucket)
    (bucket.root / path).unlink()
    (bucket.root / "test/a/200/CDC000001.csv").unlink()
    bucket.write(path, b"")
    assert bucket.at(300).code == 3
    decide(bucket, Verdict.SKIP)
    ran = bucket.at(310)
    assert (ran.code, ran.stopped) == (0, {})
    assert bucket.state("a") == [(1, "a1"), (2, "a2")]
    assert ledger(bucket).checkpoint == 310


def test_another_statement_runs_in_its_place(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    (path,) = truncate(bucket)
    (bucket.root / "test/a/200/CDC000001.csv").unlink()
    bucket.write(path, b"")
    assert bucket.at(300).code == 3
    decide(bucket, Verdict.EDIT, 'DELETE FROM "test"."a" WHERE "id" = 1')
    assert bucket.at(310).code == 0
    assert bucket.state("a") == [(2, "a2")]


def test_rows_of_a_version_without_shape_stop_their_table_also_after_the_decision(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    (path,) = rename(bucket)
    raw = (bucket.root / path).read_bytes()
    bucket.write(path, raw[:80])
    assert bucket.at(300).code == 3
    decide(bucket, Verdict.SKIP)
    ran = bucket.at(310)
    assert (ran.code, set(ran.stopped)) == (3, {"test.b"})
    assert "headrace table skip test.b --file PATH" in ran.stopped["test.b"]
    assert bucket.state("o") == [(1, "o1"), (2, "o2"), (9, "o9")]
    assert ledger(bucket).tables[B].status is TableStatus.STOPPED


@pytest.mark.parametrize(("asked", "rows"), [((200,), [7, 8]), ((300, 200), [7, 8]), ((200, 300), [1, 2, 8])])
def test_the_last_word_counts_of_where_a_table_goes_on(tmp_path: Path, asked: tuple[int, ...], rows: list[int]) -> None:
    """A TRUNCATE at 250 is behind a table that was loaded as of 200, and was seen by one that was loaded as of 300."""
    bucket = Bucket(tmp_path)
    tables(bucket, "a", "o")
    assert bucket.at(120).code == 0
    path = bucket.rows("a/100/2", "I 130 3 x")
    raw = (bucket.root / path).read_bytes()
    bucket.write(path, b'"I","a"\n')
    bucket.schema("a", 250, "id,v", "TRUNCATE TABLE `test`.`a`", 11)
    bucket.rows("a/250/1", "I 260 7 new", "I 320 8 new")
    assert set(bucket.at(350).stopped) == {"test.a"}
    ask(bucket, *(TableRequest(str(n), A, RequestKind.RESYNC, to=at, since=120) for n, at in enumerate(asked)))
    bucket.write(path, raw)
    ran = bucket.at(360)
    assert ran.code == 0
    assert ("was replaced by a later one" in ran.told) == (len(asked) > 1)
    assert [row[0] for row in bucket.state("a") or ()] == rows
    assert ledger(bucket).requests == {}


def test_a_change_that_cannot_be_read_and_that_a_table_was_loaded_behind_is_over(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    tables(bucket, "a", "o")
    path = bucket.schema("a", 250, "id,v", "TRUNCATE TABLE `test`.`a`", 11)
    raw = (bucket.root / path).read_bytes()
    bucket.write(path, raw[:80])
    bucket.rows("a/250/1", "I 320 7 new")
    assert set(bucket.at(350).stopped) == {"test.a"}
    ask(bucket, TableRequest("1", A, RequestKind.RESYNC, to=300, since=250))
    assert set(bucket.at(360).stopped) == {"test.a"}  # its rows need the shape
    bucket.write(path, raw)
    ran = bucket.at(370)
    assert (ran.code, ran.stopped) == (0, {})
    assert bucket.state("a") == [(1, "a1"), (2, "a2"), (7, "new")]


def test_a_change_whose_file_is_gone_and_that_a_table_was_loaded_behind_is_over(tmp_path: Path) -> None:
    bucket, path, raw = waiting(tmp_path, truncate, "truncate-table")
    assert bucket.at(310).code == 3
    ask(bucket, TableRequest("1", A, RequestKind.RESYNC, to=300, since=200))
    for checkpoint in (320, 330):
        ran = bucket.at(checkpoint)
        assert (ran.code, ran.stopped) == (0, {})
        bucket.write(path, raw)
    assert bucket.state("a") == [(1, "a1"), (2, "a2")]
    assert all(entry.state.is_settled for entry in ledger(bucket).journal.values())


# What waits, and loses its file.


def waiting(folder: Path, history: Part, kind: str) -> tuple[Bucket, str, bytes]:
    """The history with its change waiting for approval, and its file gone, with what was in it."""
    bucket, policies = Bucket(folder), SchemaChangePolicies.parse({kind: "approve"})
    (path, *_) = history(bucket)
    for data in bucket.root.glob("test/*/200/*.csv"):
        data.unlink()
    assert bucket.at(225, policies=policies).code == 3
    raw = (bucket.root / path).read_bytes()
    (bucket.root / path).unlink()
    return bucket, path, raw


@pytest.mark.parametrize(
    ("history", "kind", "instead", "after"),
    [
        (truncate, "truncate-table", 'DELETE FROM "test"."a"', {"a": [], "b": None}),
        (drop, "drop-table", 'DROP TABLE "test"."a"', {"a": [(5, 7)], "b": None}),
        (rename, "rename-table", 'ALTER TABLE "test"."a" RENAME TO "b"', {"a": None, "b": [(1, "a1"), (2, "a2")]}),
    ],
)
def test_a_change_that_waits_holds_its_tables_also_when_its_file_is_removed(
    tmp_path: Path, history: Part, kind: str, instead: str, after: dict[str, object]
) -> None:
    bucket, path, raw = waiting(tmp_path, history, kind)
    (identity,) = ledger(bucket).journal.keys() - {i for i, e in ledger(bucket).journal.items() if e.state.is_settled}
    for checkpoint in (310, 320):
        ran = bucket.at(checkpoint)
        assert ran.code == 3
        assert bucket.state("a") == [(1, "a1"), (2, "a2")]
        assert "its schema file is not there any more" in ran.stopped["test.a"]
        assert f"headrace ddl skip|edit '{identity}'" in ran.stopped["test.a"]
    decide(bucket, Verdict.EDIT, instead)
    ran = bucket.at(330)
    assert (ran.code, ran.stopped) == (0, {})
    assert {name: bucket.state(name) for name in after} == after
    bucket.write(path, raw)
    assert bucket.at(340).code == 0
    assert {name: bucket.state(name) for name in after} == after
    assert all(entry.state.is_settled for entry in ledger(bucket).journal.values())


def test_a_change_that_waits_and_whose_file_comes_back_is_approved(tmp_path: Path) -> None:
    bucket, path, raw = waiting(tmp_path, truncate, "truncate-table")
    assert bucket.at(310).code == 3
    decide(bucket, Verdict.APPROVE)
    assert bucket.at(320).code == 3
    bucket.write(path, raw)
    assert bucket.at(330).code == 0
    assert bucket.state("a") == []


def test_a_change_that_waits_with_its_file_gone_is_skipped(tmp_path: Path) -> None:
    bucket, _, _ = waiting(tmp_path, truncate, "truncate-table")
    decide(bucket, Verdict.SKIP)
    assert bucket.at(310).code == 0
    assert bucket.state("a") == [(1, "a1"), (2, "a2")]


def test_a_change_that_waits_and_cannot_be_read_any_more_is_decided_once(tmp_path: Path) -> None:
    bucket, path, raw = waiting(tmp_path, truncate, "truncate-table")
    bucket.write(path, b"")
    ran = bucket.at(310)
    assert (ran.code, set(ran.stopped)) == (3, {"test.a"})
    (entry,) = [entry for entry in ledger(bucket).journal.values() if is_unread_statement(entry.statement)]
    decide(bucket, Verdict.SKIP, identity=entry.identity)
    assert bucket.at(320).code == 0
    assert bucket.at(330).code == 0
    assert all(entry.state.is_settled for entry in ledger(bucket).journal.values())
    bucket.write(path, raw)
    assert bucket.at(340).code == 0
    assert bucket.state("a") == [(1, "a1"), (2, "a2")]


# What is found later still.


def test_a_change_whose_file_was_not_there_when_its_tables_passed_is_not_lost_without_a_word(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    tables(bucket, "a", "o")
    assert bucket.at(300).code == 0
    path = bucket.schema("a", 200, "id,v", "TRUNCATE TABLE `test`.`a`", 11)
    ran = bucket.at(400)
    assert (ran.code, set(ran.stopped)) == (3, {"test.a"})
    assert path in ran.stopped["test.a"]
    assert "was found only after later rows were applied: TRUNCATE TABLE" in ran.stopped["test.a"]
    assert "headrace ddl approve|skip|edit '200/test.a/" in ran.stopped["test.a"]
    assert ledger(bucket).tables[A].status is TableStatus.WAITING
    decide(bucket, Verdict.APPROVE)
    assert bucket.at(410).code == 0
    assert bucket.state("a") == []


def test_a_change_that_is_found_late_and_skipped_is_over(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    tables(bucket, "a", "o")
    assert bucket.at(300).code == 0
    bucket.schema("b", 200, "id,v", "RENAME TABLE `test`.`a` TO `test`.`b`", 14)
    assert bucket.at(400).code == 3
    decide(bucket, Verdict.SKIP)
    assert bucket.at(410).code == 0
    assert bucket.at(420).code == 0
    assert bucket.state("a") == [(1, "a1"), (2, "a2")]


def test_a_file_whose_statement_changes_after_it_was_applied_runs_nothing_again(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    (path,) = truncate(bucket)
    assert bucket.at(300).code == 0
    raw = (bucket.root / path).read_bytes()
    bucket.write(path, raw.replace(b"TRUNCATE TABLE", b"TRUNCATE  TABLE"))
    ran = bucket.at(400)
    assert (ran.code, ran.stopped) == (0, {})
    assert bucket.state("a") == [(3, "c")]


# What was applied, and cannot be read any more when the next change comes.


def altered(bucket: Bucket, shape: object, statement: str) -> list[str]:
    """``t`` with a column that came later; the file of that is the one that matters."""
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a")
    path = bucket.schema("t", 120, "id,v,c", "ALTER TABLE `test`.`t` ADD COLUMN `c` INT", 5)
    bucket.rows("t/120/1", "I 125 2 b 22")
    assert bucket.at(130).code == 0
    bucket.schema("t", 200, shape, statement, 5)
    return [path]


def created_only(bucket: Bucket) -> list[str]:
    path = bucket.create("t", 100, "id,v,c")
    bucket.rows("t/100/1", "I 110 1 a 1")
    assert bucket.at(130).code == 0
    bucket.schema("t", 200, "id,v", "ALTER TABLE `test`.`t` DROP COLUMN `c`", 5)
    return [path]


def reorganized(bucket: Bucket) -> list[str]:
    bucket.schema("t", 100, "id,v", f"CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(16)) {PARTITIONS}", 3)
    bucket.rows("t/100/112/1", "I 110 3 a", "I 111 7 b", "I 112 15 c")
    parts = "(PARTITION `p0` VALUES LESS THAN (5), PARTITION `p1` VALUES LESS THAN (20))"
    path = bucket.schema("t", 120, "id,v", f"ALTER TABLE `test`.`t` REORGANIZE PARTITION `p0`,`p1` INTO {parts}", 64)
    assert bucket.at(130).code == 0
    bucket.schema("t", 200, "id,v", "ALTER TABLE `test`.`t` DROP PARTITION `p1`", 20)
    return [path]


def exchange_after_a_cut(bucket: Bucket) -> list[str]:
    bucket.schema("t", 100, "id,v", f"CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(16)) {PARTITIONS}", 3)
    path = bucket.create("e", 101)
    bucket.rows("t/100/112/1", "I 110 1 in_t")
    bucket.rows("e/101/1", "I 111 2 in_e")
    assert bucket.at(130).code == 0
    bucket.schema("t", 200, "id,v", "ALTER TABLE `test`.`t` EXCHANGE PARTITION `p0` WITH TABLE `test`.`e`", 42)
    bucket.schema("e", 200, "id,v", "", 0)
    return [path]


BEFORE_IT: dict[str, Part] = {
    "RENAME COLUMN": lambda b: altered(b, (ID, V, {**C, "ColumnName": "d"}), "ALTER TABLE `test`.`t` RENAME COLUMN `c` TO `d`"),
    "DROP COLUMN": lambda b: altered(b, "id,v", "ALTER TABLE `test`.`t` DROP COLUMN `c`"),
    "DROP COLUMN of the first shape": created_only,
    "DROP PARTITION": reorganized,
    "EXCHANGE PARTITION": exchange_after_a_cut,
}


@pytest.mark.parametrize("damage", ["torn", "missing"])
@pytest.mark.parametrize("change", BEFORE_IT)
def test_an_alter_behind_a_file_that_was_applied_and_is_lost_waits_for_it(tmp_path: Path, change: str, damage: str) -> None:
    """Without it a renamed column would be a new one, and a dropped one nothing at all."""
    whole, broken = Bucket(tmp_path / "whole"), Bucket(tmp_path / "broken")
    BEFORE_IT[change](whole)
    (path,) = BEFORE_IT[change](broken)
    raw = (broken.root / path).read_bytes()
    damaged = DAMAGES[damage](raw)
    if damaged is None:
        (broken.root / path).unlink()
    else:
        broken.write(path, damaged)
    before = states(broken)
    ran = broken.at(300)
    assert ran.code == 3
    assert "was applied, is now damaged or missing" in ran.stopped["test.t"]
    assert states(broken) == before
    broken.write(path, raw)
    assert (whole.at(400).code, broken.at(400).code) == (0, 0)
    assert states(broken) == states(whole)
    assert JournalState.DONE is next(e.state for e in ledger(broken).journal.values() if e.commit_ts == 200)


def test_an_alter_behind_a_lost_file_is_decided_and_the_next_one_runs(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    (path,) = created_only(bucket)
    (bucket.root / path).unlink()
    assert bucket.at(300).code == 3
    decide(bucket, Verdict.EDIT, 'ALTER TABLE "test"."t" DROP COLUMN "c"')
    assert bucket.at(310).code == 0
    bucket.schema("t", 320, "id,v,c", "ALTER TABLE `test`.`t` ADD COLUMN `c` INT DEFAULT 7", 5)
    ran = bucket.at(400)
    assert (ran.code, ran.stopped) == (0, {})
    assert bucket.state("t") == [(1, "a", 7)]


# A table that was repaired, with nothing to read.


def test_a_repaired_table_with_nothing_to_read_goes_on(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    tables(bucket, "a", "o")
    assert bucket.at(120).code == 0
    path = bucket.schema("a", 200, "id,v", "", 0)
    raw = (bucket.root / path).read_bytes()
    bucket.write(path, raw[:80])
    assert bucket.at(300).code == 3
    bucket.write(path, raw)
    assert bucket.at(400).code == 0
    assert {own.status for own in ledger(bucket).tables.values()} == {TableStatus.RUNNING}


def test_what_stood_behind_another_table_goes_on_with_it(tmp_path: Path) -> None:
    """``b`` is held by its rename with ``a``, whose rows are damaged; after the repair neither has anything more to read."""
    bucket = Bucket(tmp_path)
    tables(bucket, "a", "b")
    whole = (bucket.root / bucket.rows("a/100/2", "I 150 3 a3")).read_bytes()
    bucket.write("test/a/100/CDC000002.csv", b"torn")
    bucket.schema("b", 200, "id,v", "DROP TABLE `test`.`b`", 4)
    bucket.schema("b", 210, "id,v", "RENAME TABLE `test`.`a` TO `test`.`b`", 14)
    assert bucket.at(300).code == 3
    bucket.write("test/a/100/CDC000002.csv", whole)
    assert bucket.at(400).code == 0
    assert (bucket.state("a"), bucket.state("b")) == (None, [(1, "a1"), (2, "a2"), (3, "a3")])
    assert not [own for own in ledger(bucket).tables.values() if own.status.is_stopped]


def test_a_run_in_small_cuts_ends_though_several_tables_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The renames of ``c`` wait for its rows; ``x`` waits behind what the cuts of the tables that catch up reach."""
    monkeypatch.setattr(retries, "_LOOKS", 2)
    bucket = Bucket(tmp_path)
    tables(bucket, "b", "c", "o")
    assert bucket.at(150).code == 0
    damaged = [f"test/{table}/meta/{path.name}" for table in "bc" for path in (bucket.root / "test" / table / "meta").iterdir()]
    raw = {path: (bucket.root / path).read_bytes() for path in damaged}
    for path in damaged:
        bucket.write(path, raw[path][:30])
    bucket.rows("b/100/2", "I 160 3 b3")
    bucket.rows("c/101/2", "I 161 3 c3")
    assert set(bucket.at(170).stopped) == {"test.b", "test.c"}
    bucket.schema("a", 200, "id,v", "RENAME TABLE `test`.`c` TO `test`.`a`", 14)
    bucket.schema("c", 200, "id,v", "RENAME TABLE `test`.`b` TO `test`.`c`", 14)
    bucket.rows("a/200/1", "I 211 4 a4")
    bucket.rows("a/200/2", "I 221 5 a5")
    bucket.rows("c/200/1", "I 212 4 c4")
    bucket.rows("c/200/2", "I 222 5 c5")
    assert set(bucket.at(230).stopped) == {"test.a", "test.b", "test.c"}
    bucket.schema("x", 300, "id,v", "RENAME TABLE `test`.`a` TO `test`.`x`", 14)
    assert set(bucket.at(310).stopped) == {"test.a", "test.b", "test.c", "test.x"}
    polls, poll = 0, loop.Loop._poll

    def counted(run: loop.Loop, *arguments: Any, **options: Any) -> Offer:
        nonlocal polls
        polls += 1
        assert polls < 40, "the run goes on for ever"
        return poll(run, *arguments, **options)

    monkeypatch.setattr(loop.Loop, "_poll", counted)
    assert set(bucket.at(400, max_cut=1).stopped) == {"test.a", "test.b", "test.c", "test.x"}
    for path in damaged:
        bucket.write(path, raw[path])
    polls = 0
    assert bucket.at(410, max_cut=1).code == 0
    assert {table: len(bucket.state(table) or ()) for table in "cox"} == {"c": 5, "o": 3, "x": 5}


def test_a_change_that_waits_is_replaced_by_what_its_mended_file_says(tmp_path: Path) -> None:
    """``headrace ddl`` lists what is there to decide about, and no longer what the file said before."""
    bucket = Bucket(tmp_path)
    tables(bucket, "a")
    asks = {"policies": SchemaChangePolicies({ChangeKind.ADD_COLUMN: Policy.APPROVE})}
    for default in (7, 8):
        bucket.schema("a", 200, "id,v,c", f"ALTER TABLE `a` ADD COLUMN `c` INT DEFAULT {default}", 5)
        assert set(bucket.at(300 + default, **asks).stopped) == {"test.a"}
        (waiting,) = [entry for entry in ledger(bucket).journal.values() if entry.state is JournalState.WAITING]
        assert waiting.statement.endswith(f"DEFAULT {default}")
    decide(bucket, Verdict.APPROVE)
    assert bucket.at(400, **asks).code == 0
    assert bucket.state("a") == [(1, "a1", 7), (2, "a2", 7)]  # the shape says so, which stayed


def test_a_renamed_table_that_catches_up_in_small_cuts_takes_its_former_name_along(tmp_path: Path) -> None:
    """Only what is under the new name has rows to read: the old one has to be tried in the same cut."""
    bucket = Bucket(tmp_path)
    tables(bucket, "a", "o")
    assert bucket.at(150).code == 0
    path = bucket.schema("b", 200, "id,v", "RENAME TABLE `test`.`a` TO `test`.`b`", 14)
    raw = (bucket.root / path).read_bytes()
    bucket.write(path, raw[:30])
    bucket.rows("b/200/1", "I 210 3 b3")
    bucket.rows("b/200/2", "I 220 4 b4")
    assert set(bucket.at(300).stopped) >= {"test.a", "test.b"}
    bucket.write(path, raw)
    assert bucket.at(310, max_cut=1).code == 0
    assert bucket.state("b") == [(1, "a1"), (2, "a2"), (3, "b3"), (4, "b4")]


@pytest.mark.parametrize("how", ["told", "untold"])
def test_a_run_that_follows_goes_on_when_a_lost_schema_file_is_put_back(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a person could decide without it: the message says that the file may be put back."""
    bucket = Bucket(tmp_path)
    tables(bucket, "a", "o")
    policies = SchemaChangePolicies({ChangeKind.TRUNCATE_TABLE: Policy.APPROVE}) if how == "untold" else SchemaChangePolicies()
    if how == "told":
        path = bucket.schema("a", 160, "id,v,c", "ALTER TABLE `a` ADD COLUMN `c` INT", 5)
        assert bucket.at(180).code == 0
        bucket.schema("a", 200, (ID, V, {**C, "ColumnName": "d"}), "ALTER TABLE `a` RENAME COLUMN `c` TO `d`", 5)
    else:
        path = bucket.schema("a", 200, "id,v", "TRUNCATE TABLE `a`", 11)
        assert bucket.at(250, policies=policies).code == 3
    raw = (bucket.root / path).read_bytes()
    (bucket.root / path).unlink()
    assert bucket.at(300).code == 3
    monkeypatch.setattr(loop, "_RETRY_STOPPED_EVERY", 0.05)
    pauses = 0

    def pause(run: loop.Loop, offer: Offer) -> bool:
        nonlocal pauses
        pauses += 1
        bucket.write(path, raw)
        time.sleep(0.06)
        if pauses > 3:
            run.stop()
        return False

    monkeypatch.setattr(loop.Loop, "_pause", pause)
    assert bucket.run(once=False).code == 0
    assert ledger(bucket).tables[A].status is TableStatus.RUNNING


@pytest.mark.parametrize("damage", ["torn", "missing"])
def test_a_rename_that_spells_the_name_otherwise_waits_for_the_files_that_tell_whom_it_means(damage: str, tmp_path: Path) -> None:
    """The rows that are under the name stay with it, and are not left behind."""
    bucket = Bucket(tmp_path)
    tables(bucket, "a", "o")
    assert bucket.at(150).code == 0
    (path,) = [f"test/a/meta/{path.name}" for path in (bucket.root / "test/a/meta").iterdir()]
    raw = (bucket.root / path).read_bytes()
    damaged = DAMAGES[damage](raw)
    if damaged is None:
        (bucket.root / path).unlink()
    else:
        bucket.write(path, damaged)
    bucket.schema("b", 200, "id,v", "RENAME TABLE `test`.`A` TO `test`.`b`", 14)
    bucket.rows("b/200/1", "I 210 3 b3")
    ran = bucket.at(300)
    assert (ran.code, set(ran.stopped)) == (3, {"test.a", "test.b"})
    assert "names test.A, and the target has test.a" in ran.stopped["test.b"]
    assert len(bucket.state("a") or ()) == 2
    bucket.write(path, raw)
    assert bucket.at(310).code == 0
    assert (bucket.state("a"), len(bucket.state("b") or ())) == (None, 3)


@pytest.mark.parametrize("reads", ["a changed file without its schema", "a late file without its schema"])
def test_a_table_that_is_gone_stays_so_whatever_cannot_be_read_of_it(reads: str, tmp_path: Path) -> None:
    """Else it would count as made, and a DROP DATABASE would take what somebody else has under its name."""
    bucket = Bucket(tmp_path)
    tables(bucket, "a", "o")
    bucket.schema("a", 200, "id,v", "DROP TABLE `a`", 4)
    assert bucket.at(250).code == 0
    (path,) = [f"test/a/meta/{p.name}" for p in (bucket.root / "test/a/meta").iterdir() if p.name.startswith("schema_100_")]
    raw = (bucket.root / path).read_bytes()
    if reads.startswith("a changed"):
        bucket.write(path, raw[:30])
        bucket.rows("a/100/1", "I 110 1 a1", "I 111 2 a2")
    else:
        (bucket.root / path).unlink()
        bucket.rows("a/100/2", "I 120 7 late")
    assert (bucket.at(300).code, ledger(bucket).tables[A].status) == (0, TableStatus.GONE)
    bucket.write(path, raw)
    assert (bucket.at(310).code, ledger(bucket).tables[A].status) == (0, TableStatus.GONE)
    with duckdb.connect(str(bucket.database)) as connection:
        connection.execute("CREATE TABLE test.a (mine INT)")
    bucket.schema("", 400, statement="DROP DATABASE `test`", type=2)
    assert bucket.at(500).code == 0
    assert bucket.state("a") == []


def test_what_comes_after_a_drop_and_cannot_be_read_holds_the_next_table_of_the_name(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    tables(bucket, "a", "o")
    bucket.schema("a", 200, "id,v", "DROP TABLE `a`", 4)
    assert bucket.at(250).code == 0
    path = bucket.create("a", 300)
    bucket.rows("a/300/1", "I 310 5 new")
    raw = (bucket.root / path).read_bytes()
    bucket.write(path, raw[:-40])
    assert set(bucket.at(320).stopped) == {"test.a"}
    assert not ledger(bucket).tables[A].is_made
    assert set(bucket.at(330).stopped) == {"test.a"}
    bucket.write(path, raw)
    assert bucket.at(340).code == 0
    assert bucket.state("a") == [(5, "new")]


def test_a_table_that_was_let_in_stays_though_its_files_could_not_be_read_at_first(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    tables(bucket, "o")
    assert bucket.at(110).code == 0
    with duckdb.connect(str(bucket.database)) as connection:
        connection.execute("CREATE TABLE test.a (id INT PRIMARY KEY, v TEXT); INSERT INTO test.a VALUES (1, 'mine')")
    bucket.create("a", 120)
    path = bucket.rows("a/120/1", "I 130 x bad")
    assert set(bucket.at(150).stopped) == {"test.a"}
    assert not ledger(bucket).tables[A].is_made
    bucket.rows("a/120/1", "I 130 5 good")
    ran = bucket.at(160)
    assert "was not created by Headrace" in ran.stopped["test.a"], path
    decide(bucket, Verdict.SKIP)
    assert bucket.at(170).code == 0
    bucket.schema("a", 200, "id,v", "DROP TABLE `a`", 4)
    ran = bucket.at(300)
    assert "this pipeline did not make it" in ran.told
    assert bucket.state("a") == [(1, "mine"), (5, "good")]


def truncated(bucket: Bucket) -> str:
    bucket.schema("c", 150, "id,v,c", "ALTER TABLE `c` ADD COLUMN `c` INT DEFAULT 7", 5, parent="102")
    path = bucket.schema("c", 160, "id,v,c", "TRUNCATE TABLE `c`", 11, parent="104")
    bucket.schema("x", 300, "id,v,c", "RENAME TABLE `test`.`c` TO `test`.`x`", 14, parent="104")
    return path


def created_anew(bucket: Bucket) -> str:
    bucket.schema("c", 150, "id,v", "DROP TABLE `c`", 4, parent="102")
    path = bucket.schema("c", 160, "id,v", "CREATE TABLE `c` (`id` INT PRIMARY KEY,`v` VARCHAR(16))", 3, parent="104")
    bucket.schema("x", 300, "id,v", "RENAME TABLE `test`.`c` TO `test`.`x`", 14, parent="104")
    return path


@pytest.mark.parametrize("begins", [truncated, created_anew])
def test_the_first_file_of_a_folder_waits_though_a_later_owner_of_it_is_held_behind(
    tmp_path: Path, begins: Callable[[Bucket], str]
) -> None:
    """With table ids as paths: ``x`` stands at the rename that is to make it, and has passed nothing of ``c``."""
    bucket = Bucket(tmp_path, TABLE_IDS)
    bucket.schema("c", 100, "id,v", "CREATE TABLE `c` (`id` INT PRIMARY KEY,`v` VARCHAR(16))", 3, parent="102")
    bucket.write("102/100/CDC000001.csv", csv_record("I 110 1 old", "c", "test") + "\n")
    assert bucket.at(120).code == 0
    asks = {"policies": SchemaChangePolicies(dict.fromkeys((ChangeKind.ADD_COLUMN, ChangeKind.DROP_TABLE), Policy.APPROVE))}
    path = begins(bucket)
    assert set(bucket.at(400, **asks).stopped) == {"test.c", "test.x"}
    raw = (bucket.root / path).read_bytes()
    bucket.write(path, raw[:20])
    (first,) = [entry.identity for entry in ledger(bucket).journal.values() if entry.commit_ts == 150]
    decide(bucket, Verdict.APPROVE, identity=first)
    for ts in (410, 420):
        ran = bucket.at(ts, **asks)
        assert ran.code == 3
        assert path in ran.stopped["test.c"]
        assert bucket.state("x") is None
    bucket.write(path, raw)
    ran = bucket.at(430, **asks)
    assert (ran.code, ran.stopped) == (0, {})
    assert (bucket.state("c"), bucket.state("x")) == (None, [])
    assert not [entry for entry in ledger(bucket).journal.values() if not entry.state.is_settled]


@pytest.mark.parametrize("statement", ["ADD COLUMN `c` INT", "ADD INDEX `i` (`v`)"])
def test_rows_in_an_older_directory_wait_for_the_shape_that_was_applied(tmp_path: Path, statement: str) -> None:
    """TiCDC goes on in a partition's older directory when its columns come back; the shape in force is the table's own."""
    bucket = Bucket(tmp_path, OPTIONS + "&use-table-id-as-path=true")

    def write(file: str, *records: str) -> None:
        bucket.write(file, "".join(f"{record}\n" for record in records))

    bucket.schema("p", 100, "id,v", f"CREATE TABLE `p` (`id` INT PRIMARY KEY,`v` VARCHAR(16)) {PARTITIONS}", 3, parent="110")
    bucket.schema("p", 100, "id,v", "", 0, parent="112")
    write("112/100/CDC000001.csv", '"I","p","test",110,1,"a"')
    bucket.schema("p", 200, "id,v,c", "ALTER TABLE `p` ADD COLUMN `c` INT", 5, parent="110")
    bucket.schema("p", 200, "id,v,c", "", 0, parent="112")
    write("112/200/CDC000001.csv", '"I","p","test",210,2,"b",2')
    bucket.schema("p", 300, "id,v", "ALTER TABLE `p` DROP COLUMN `c`", 6, parent="110")
    comes_back = "ADD COLUMN" in statement
    last = bucket.schema("p", 400, "id,v,c" if comes_back else "id,v", f"ALTER TABLE `p` {statement}", 5, parent="110")
    assert bucket.at(420).code == 0
    (bucket.root / last).unlink()
    folder, value = ("200", ",5") if comes_back else ("100", "")
    write(f"112/{folder}/CDC000009.csv", f'"I","p","test",430,5,"e"{value}')
    ran = bucket.at(450)
    if comes_back:
        assert "its applied schema file at 400 is damaged or missing" in ran.stopped["test.p"]
    else:
        assert (ran.code, len(bucket.state("p") or [])) == (0, 3)


@pytest.mark.parametrize(("shape", "alter"), [("id,v", "DROP COLUMN `c`"), ("id,v,d", "RENAME COLUMN `c` TO `d`")])
def test_a_lost_schema_file_is_missed_however_many_changes_were_applied_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str, alter: str
) -> None:
    monkeypatch.setattr(journal, "JOURNAL_KEPT", 0)
    bucket = Bucket(tmp_path)
    bucket.create("t", 100)
    bucket.create("o", 101)
    lost = bucket.root / bucket.schema("t", 200, "id,v,c", "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", 5)
    bucket.rows("t/200/1", "I 210 1 a 5")
    assert bucket.at(250).code == 0
    bucket.schema("o", 300, "id,v", "ALTER TABLE `o` ADD INDEX `i` (`v`)", 7)
    assert bucket.at(350).code == 0
    whole = lost.read_bytes()
    lost.unlink()
    columns = (ID, V, {**C, "ColumnName": "d"}) if shape.endswith("d") else (ID, V)
    bucket.schema("t", 400, columns, f"ALTER TABLE `t` {alter}", 6)
    assert "the schema file of test.t at 200, which was applied, is now damaged or missing" in bucket.at(450).stopped["test.t"]
    lost.write_bytes(whole)
    assert bucket.at(460).code == 0
    assert bucket.state("t") == ([(1, "a", 5)] if shape.endswith("d") else [(1, "a")])
