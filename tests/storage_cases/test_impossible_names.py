"""Names that no database or table of TiDB can have: longer than 64 characters, or with a blank at the end.

MySQL and MariaDB compare ``t`` and ``t `` as equal, also in the ledger's keys, and its columns hold no longer names. So no folder,
schema file or statement may bring one there.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from building import Bucket, ledger_at

from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.model.table import TableId
from headrace.sources.ticdc_storage.catalogue import Catalogue
from headrace.sources.ticdc_storage.local_folders import Stray
from headrace.sources.ticdc_storage.position import StoragePosition
from headrace.sources.ticdc_storage.reader import Listing
from headrace.sources.ticdc_storage.split_selection import unlisted_problems
from person import Person
from places import Place
from storage_folder import ID, OPTIONS, V

pytestmark = pytest.mark.pipeline

LONG = "x" * 65
FOLDERS = [("test", "h "), ("test ", "h"), ("test", LONG), ("y" * 120, "x" * 120)]
BAG = ({**ID, "ColumnIsPk": "false"}, V)


class Scene:
    """A table without key with a file that is read in part, and another table, in an empty target."""

    def __init__(self, place: Place, folder: Path, options: str = OPTIONS) -> None:
        self.target, self.uri = place.fresh()
        self.person = Person.at(place, self.target)
        self.bucket = Bucket(folder, options)
        self.bucket.schema("h", 100, BAG, "CREATE TABLE `h` (`id` INT, `v` VARCHAR(16))", 3)
        self.bucket.rows("h/100/1", "I 110 1 a", "I 111 1 a", "I 211 2 b")
        self.bucket.create("ok", 105)
        assert self.bucket.at(120, sink=self.uri).code == EXIT_OK

    def names(self) -> set[TableId]:
        """The tables in the ledger."""
        return {table_id for table_id in ledger_at(self.uri).tables if table_id.table}

    def rows(self) -> list[tuple[object, ...]]:
        return sorted(self.person.run('SELECT * FROM "test"."h"'))


@pytest.mark.parametrize(("database", "table"), FOLDERS)
@pytest.mark.parametrize("with_schema", [True, False], ids=["schema file", "data file alone"])
def test_files_in_folders_of_such_names_are_left_out_and_told(
    place: Place, tmp_path: Path, database: str, table: str, *, with_schema: bool
) -> None:
    scene = Scene(place, tmp_path)
    bucket = scene.bucket
    first = bucket.create(table, 130, database=database) if with_schema else ""
    data = bucket.rows(f"{table}/130/1", "I 140 7 q", database=database)
    ran = bucket.at(150, sink=scene.uri)
    assert (ran.code, ran.stopped) == (EXIT_OK, {})
    (notice,) = ran.notices
    assert "lie in folders whose names no database or table of TiDB can have, and are left out" in notice.message
    assert notice.file in (first, data)
    assert bucket.at(300, sink=scene.uri).code == EXIT_OK
    assert scene.names() == {TableId("test", "h"), TableId("test", "ok")}
    assert scene.rows() == [(1, "a"), (1, "a"), (2, "b")]


STATEMENTS = [
    f"RENAME TABLE `h` TO `{LONG}`",
    "RENAME TABLE `h` TO `h `",
    "RENAME TABLE `w` TO `h `, `h ` TO `w`",
    "CREATE TABLE `w` LIKE `h `",
    f"CREATE TABLE `w` LIKE `{LONG}`",
    "DROP TABLE `w`, `h `",
    "ALTER TABLE `w` EXCHANGE PARTITION `p` WITH TABLE `h `",
    "CREATE DATABASE `test `",
    f"DROP DATABASE `{LONG}`",
    f"CREATE TABLE `w` (`id` INT PRIMARY KEY, `v` VARCHAR(16), FOREIGN KEY (`id`) REFERENCES `{LONG}` (`id`))",
    "CREATE VIEW `w` AS SELECT `id`, `v` FROM `h `",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_with_such_a_name_waits(place: Place, tmp_path: Path, statement: str) -> None:
    scene = Scene(place, tmp_path)
    table = "" if "DATABASE" in statement else "w"
    scene.bucket.schema(table, 200, "id,v", statement, 0)
    ran = scene.bucket.at(300, sink=scene.uri)
    assert ran.code == EXIT_TABLE_STOPPED
    assert any("does not run by itself, because" in sentence and "can have" in sentence for sentence in ran.stopped.values())
    state = ledger_at(scene.uri)
    journalled = {table_id for entry in state.journal.values() for table_id in entry.tables}
    assert all(name.is_possible for name in {*state.tables, *journalled})


@pytest.mark.parametrize(("database", "table"), FOLDERS)
@pytest.mark.parametrize("cut_off", [False, True], ids=["whole", "cut off"])
def test_a_schema_file_with_such_a_name_in_a_folder_of_a_table_id(
    place: Place, tmp_path: Path, database: str, table: str, *, cut_off: bool
) -> None:
    scene = Scene(place, tmp_path)
    path = scene.bucket.schema(table, 130, "id,v", f"CREATE TABLE `{table}` (`id` INT)", 3, database=database, parent="712")
    file = scene.bucket.root / path
    if cut_off:
        file.write_bytes(file.read_bytes()[:-40])
    scene.bucket.write("712/130/CDC000001.csv", '"I","h","test",140,7,"q"\n')
    for checkpoint in (150, 300):
        ran = scene.bucket.at(checkpoint, sink=scene.uri)
        assert ran.code == EXIT_TABLE_STOPPED
        assert any(path in sentence for sentence in ran.stopped.values())
    assert scene.names() <= {TableId("test", "h"), TableId("test", "ok"), TableId("712")}


def test_a_folder_of_such_a_name_that_cannot_be_listed_is_of_no_table() -> None:
    def stray(path: str) -> Stray:
        return Stray(path, "permission denied", unlisted=True)

    listing = Listing(strays=(stray("test/t"), stray("test/t "), stray("test "), stray(f"test/{LONG}/100")))
    (problem,) = unlisted_problems(listing, StoragePosition(consumed={"test /t/100": {}}), Catalogue().table_of)
    assert problem.table_id == TableId("test", "t")


def test_a_position_that_tells_of_such_files_goes_on(tmp_path: Path) -> None:
    """As an older Headrace left it, which read them."""
    bucket = Bucket(tmp_path)
    bucket.create("h")
    bucket.rows("h/100/1", "I 110 1 a", "I 211 2 b")
    bucket.checkpoint(120)
    consumer = bucket.consumer()
    consumer.cut()
    assert "test/h/100" in consumer.position
    older = consumer.restarted()
    older.position = consumer.position.replace("test/h/100", "test/h /100")
    bucket.checkpoint(300)
    bucket.create("h ")
    bucket.rows("h /100/1", "I 110 1 a", "I 211 2 b")
    offer = older.cut()
    assert not offer.problems
    assert older.changes == ["211 2 b"]
    assert older.restarted().cut().problems == ()


@pytest.mark.parametrize("name", ["w\0", "\0", ""], ids=["behind it", "alone", "no name"])
def test_a_column_of_such_a_name_stops_its_table_alone(place: Place, tmp_path: Path, name: str) -> None:
    """By a file without a statement, whose shape is all that is known of the table."""
    scene = Scene(place, tmp_path)
    bucket = scene.bucket
    bucket.schema("bad", 130, (ID, {**V, "ColumnName": name}), "")
    bucket.rows("bad/130/1", "I 140 1 q")
    bucket.rows("ok/105/1", "I 141 1 fine")
    ran = bucket.at(150, sink=scene.uri)
    assert ran.code == EXIT_TABLE_STOPPED
    assert ran.stopped.keys() == {"test.bad"}
    assert "nothing has such a name" in ran.stopped["test.bad"]
    assert scene.person.run('SELECT * FROM "test"."ok"') == [(1, "fine")]
