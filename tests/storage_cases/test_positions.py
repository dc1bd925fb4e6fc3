"""What is remembered of files that were applied: written again, removed, of days that are over, left out, of older ledgers."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path

import duckdb
import pytest
from building import Bucket, ledger

from headrace.errors import EXIT_OK
from headrace.pipeline.registry import open_sink
from headrace.sinks import sql_ledger
from headrace.sinks.base import LedgerUpdate
from headrace.sources.ticdc_storage.position import StoragePosition
from person import Person
from places import Place
from storage_folder import OPTIONS

pytestmark = pytest.mark.pipeline

DAYS = "protocol=csv&terminator=%0A&date-separator=day"
NOW = 470605999435415552  # on 2026-11-20
CREATE = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(16))"


def position(bucket: Bucket) -> str:
    with open_sink(bucket.sink) as sink:
        state = sink.ledger.peek("default")
        assert state is not None
        return state.position


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket(tmp_path)


@pytest.mark.parametrize("files", [3, 64, 130])
@pytest.mark.parametrize("whole", [True, False], ids=["the directory is removed, and counted from 1", "one file is overwritten"])
def test_a_file_that_is_written_again_under_an_old_number_is_read(bucket: Bucket, files: int, whole: bool) -> None:
    bucket.create("t")
    for number in range(1, files + 1):
        bucket.rows(f"t/100/{number}", f"I {100 + number} {number} a")
    assert bucket.at(240).code == 0
    if whole:
        shutil.rmtree(bucket.root / "test/t/100")
    path = bucket.rows("t/100/1", "I 300 1000 new", "D 301 3 a")
    ran = bucket.at(310)
    assert ran.code == 0
    assert ran.told == f"table test.t: The file was written again after it was applied; it is read once more. ({path})"
    assert bucket.state() == sorted([*((n, "a") for n in range(1, files + 1) if n != 3), (1000, "new")], key=repr)
    bucket.rows("t/100/2", "I 320 1001 new")
    ran = bucket.at(330)
    assert (ran.files, len(bucket.state() or ())) == (1, files + 1)
    assert bucket.at(340).files == 0


def of_days(tmp_path: Path, days: int, first: str = "2026-01-01") -> tuple[Bucket, int]:
    """A bucket of so many days of three files, applied day by day, with two days left; and the next free ts."""
    bucket = Bucket(tmp_path, DAYS)
    bucket.create("t", NOW)
    start, ts = datetime.date.fromisoformat(first), NOW
    names = [str(start + datetime.timedelta(days=day)) for day in range(days)]
    for day, name in enumerate(names):
        for number in (1, 2, 3):
            ts += 10
            bucket.rows(f"t/{NOW}/{name}/{number}", f"I {ts} {day * 10 + number} a")
        if day % 5 == 4 or day == days - 1:
            assert bucket.at(ts).code == 0
            for old in names[: max(0, day - 1)]:
                shutil.rmtree(bucket.root / f"test/t/{NOW}/{old}", ignore_errors=True)
    return bucket, ts + 10


def test_days_that_are_over_take_no_room(tmp_path: Path) -> None:
    bucket, _ = of_days(tmp_path, 10)
    short = len(position(bucket))
    longer, _ = of_days(tmp_path / "longer", 30)
    assert len(position(longer)) <= short + 2
    assert len(longer.state() or ()) == 90


def test_days_are_not_over_before_the_watermark_is_there(tmp_path: Path) -> None:
    bucket, _ = of_days(tmp_path, 4, "2026-11-20")
    assert '"a":' not in position(bucket)


@pytest.mark.parametrize("place", ["2026-01-04/4", "2026-01-01/4", "2026-01-04/1", "2025-12-24/1"])
def test_a_file_that_appears_in_a_day_that_is_over_is_told_and_read(tmp_path: Path, place: str) -> None:
    """A new number, in a directory that was removed, under an old number, before the first day."""
    bucket, ts = of_days(tmp_path, 5)
    path = bucket.rows(f"t/{NOW}/{place}", f"I {ts} 999 late")
    ran = bucket.at(ts)
    assert ran.code == 0
    words = "was written again after it was applied" if place.endswith("4/1") and "01-04" in place else "a date that is over"
    assert words in ran.told
    assert path in ran.told
    assert (999, "late") in (bucket.state() or ())
    assert len(bucket.state() or ()) == 16
    assert bucket.at(ts + 1).files == 0


def test_a_file_that_comes_after_larger_numbers_is_read_and_what_is_missing_of_it_is_told(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a")
    bucket.rows("t/100/4", "I 140 4 d")
    assert "File numbers 2-3 are missing" in bucket.at(200).told
    bucket.rows("t/100/3", "I 250 3 c")
    assert "larger numbers" not in bucket.at(300).told
    path = bucket.rows("t/100/2", "I 130 2 b", "I 310 5 e")
    told = bucket.at(400).told
    assert "1 of its rows are not above the checkpoint (300): they are not applied" in told
    assert path in told
    assert bucket.state() == [(1, "a"), (3, "c"), (4, "d"), (5, "e")]
    assert "rows may be missing: The file came after others with larger numbers" in bucket.at(500).told


def test_so_is_one_that_comes_while_rows_of_a_larger_number_wait_above_the_checkpoint(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.rows("t/100/2", "I 190 2 b", "I 250 3 c")
    bucket.at(200)
    path = bucket.rows("t/100/1", "I 160 1 late")
    told = bucket.at(300).told
    assert "1 of its rows are not above the checkpoint (200): they are not applied" in told
    assert path in told


class TestWithoutCommitTs:
    """Read once more, such files would be applied once more: only their content tells whether they are others."""

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ([("t", 250, "id,v", "TRUNCATE TABLE `t`", 11)], {"t": []}),
            ([("t", 250, "id,v", "DROP TABLE `t`", 4), ("t", 300, "id,v", CREATE, 3)], {"t": []}),
            (
                [("t2", 250, "id,v", "RENAME TABLE `test`.`t` TO `test`.`t2`", 14), ("t", 300, "id,v", CREATE, 3)],
                {"t": [], "t2": [(2, "b")]},
            ),
            ([("t", 250, "id,v,c", "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", 5)], {"t": [(2, "b", 7)]}),
        ],
    )
    def test_a_file_counts_before_the_schema_changes_behind_it_and_no_more(
        self, changes: list[tuple[str, int, str, str, int]], expected: dict[str, list[tuple[object, ...]]], tmp_path: Path
    ) -> None:
        bucket = Bucket(tmp_path, OPTIONS + "&include-commit-ts=false")
        bucket.create("t", 200)
        bucket.write("test/t/200/CDC000001.csv", '"I","t","test",2,"b"\n')
        for change in changes:
            bucket.schema(*change)
        ran = bucket.at(400)
        assert (ran.code, ran.stopped) == (0, {})
        assert {name: bucket.state(name) for name in expected} == expected

    @pytest.fixture
    def bucket(self, tmp_path: Path) -> Bucket:
        bucket = Bucket(tmp_path)
        bucket.create("t")
        bucket.write("test/t/100/CDC000001.csv", '"I","t","test",1,"old"\n')
        bucket.write("test/t/100/CDC000002.csv", '"U","t","test",1,"new"\n')
        assert bucket.at(200).code == 0
        assert bucket.state() == [(1, "new")]
        return bucket

    def test_a_file_of_another_time_and_the_same_content_is_not_applied_again(self, bucket: Bucket) -> None:
        bucket.write("test/t/100/CDC000001.csv", '"I","t","test",1,"old"\n')
        for ts in (300, 400):
            ran = bucket.at(ts)
            assert (ran.code, ran.files, "again" in ran.told) == (0, 0, False)
        assert bucket.state() == [(1, "new")]

    def test_the_last_file_is_where_its_content_is_another_one(self, bucket: Bucket) -> None:
        """A TiCDC that died before it wrote the index begins with the same number again."""
        path = bucket.write("test/t/100/CDC000002.csv", '"U","t","test",1,"newer"\n')
        ran = bucket.at(300)
        assert path.name in ran.told
        assert bucket.state() == [(1, "newer")]
        assert bucket.at(400).files == 0

    def test_all_files_from_one_on_are_as_well(self, bucket: Bucket) -> None:
        bucket.write("test/t/100/CDC000001.csv", '"I","t","test",2,"old"\n')
        bucket.write("test/t/100/CDC000002.csv", '"U","t","test",2,"newer"\n')
        assert (bucket.at(300).code, bucket.at(400).files) == (0, 0)
        assert bucket.state() == [(1, "new"), (2, "newer")]

    def test_a_file_that_others_have_overtaken_is_not_but_stops_its_table(self, bucket: Bucket) -> None:
        """Its rows would replace what the files behind it brought."""
        bucket.schema("t", 250, "id,v,c", "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", 5)
        bucket.write("test/t/250/CDC000001.csv", '"U","t","test",1,"newest",8\n')
        assert bucket.at(300).code == 0
        for number in (1, 2):
            path = f"test/t/100/CDC{number:06d}.csv"
            bucket.write(path, f'"I","t","test",1,"repaired {number}"\n')
            ran = bucket.at(300 + 20 * number)
            assert (ran.code, list(ran.stopped)) == (3, ["test.t"])
            assert "they would replace later values" in ran.stopped["test.t"]
            assert bucket.state() == [(1, "newest", 8)]
            skip(bucket, path)
            assert bucket.at(310 + 20 * number).code == 0
            assert bucket.state() == [(1, "newest", 8)]
        assert (bucket.at(360).code, bucket.at(370).files) == (0, 0)

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ([("t", 250, "id,v", "TRUNCATE TABLE `t`", 11)], {"t": []}),
            ([("t", 250, "id", "ALTER TABLE `t` DROP COLUMN `v`", 5), ("t", 260, "id", "TRUNCATE TABLE `t`", 11)], {"t": []}),
            ([("t", 250, "id,v", "DROP TABLE `t`", 4), ("t", 260, "id,v", CREATE, 3)], {"t": []}),
            ([("b", 250, "id,v", "RENAME TABLE `test`.`t` TO `test`.`b`", 14)], {"b": [(1, "new")], "t": None}),
            (
                [
                    ("s", 210, "id,v", CREATE.replace("`t`", "`s`"), 3),
                    ("b", 250, "id,v", "RENAME TABLE `test`.`t` TO `test`.`b`", 14),
                    ("t", 260, "id,v", "RENAME TABLE `test`.`s` TO `test`.`t`", 14),
                ],
                {"b": [(1, "new")], "t": []},
            ),
        ],
    )
    def test_a_file_of_a_table_that_ended_is_told_and_not_read_again(
        self, bucket: Bucket, changes: list[tuple[str, int, str, str, int]], expected: dict[str, object]
    ) -> None:
        for change in changes:
            bucket.schema(*change)
        assert bucket.at(300).code == 0
        path = bucket.write("test/t/100/CDC000002.csv", '"I","t","test",1,"late"\n')
        told = []
        for ts in (310, 320):
            ran = bucket.at(ts)
            assert (ran.code, ran.stopped, ran.files) == (0, {}, 0)
            assert "it is read once more" not in ran.told
            told.append("it is not read once more" in ran.told and path.name in ran.told)
            assert {name: bucket.state(name) for name in expected} == expected
        assert told == [True, False]

    def test_a_file_behind_which_only_a_schema_change_is_applied_stops_its_table(self, bucket: Bucket) -> None:
        bucket.schema("t", 250, "id,v,c", "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", 5)
        assert bucket.at(300).code == 0
        bucket.write("test/t/100/CDC000002.csv", '"U","t","test",1,"late"\n')
        ran = bucket.at(310)
        assert (ran.code, bucket.state()) == (3, [(1, "new", 7)])
        assert "later files or schema changes are already applied" in ran.stopped["test.t"]
        skip(bucket, "test/t/100/CDC000002.csv")
        assert bucket.at(320).code == 0

    def test_a_restart_of_the_writer_is_no_schema_change(self, bucket: Bucket) -> None:
        bucket.schema("t", 250, "id,v", "", 0)
        bucket.write("test/t/100/CDC000002.csv", '"U","t","test",1,"newer"\n')
        assert bucket.at(300).code == 0
        assert bucket.state() == [(1, "newer")]

    def test_the_folder_of_a_former_id_brings_nothing_back(self, tmp_path: Path) -> None:
        bucket = Bucket(tmp_path / "ids", OPTIONS + "&include-commit-ts=false&use-table-id-as-path=true")
        bucket.schema("t", 100, "id,v", CREATE, 3, parent="110")
        bucket.write("110/100/CDC000001.csv", '"I","t","test",1,"old"\n')
        assert bucket.at(150).code == 0
        bucket.schema("t", 200, "id,v", "TRUNCATE TABLE `t`", 11, parent="111")
        bucket.write("111/200/CDC000001.csv", '"I","t","test",1,"new"\n')
        assert bucket.at(250).code == 0
        bucket.write("110/100/CDC000001.csv", '"I","t","test",1,"older"\n"I","t","test",2,"two"\n')
        ran = bucket.at(300)
        assert (ran.code, bucket.state()) == (0, [(1, "new")])
        assert "it is not read once more" in ran.told

    def test_where_the_content_is_not_known_the_table_stops_until_a_person_says(self, bucket: Bucket) -> None:
        for number in range(3, 70):
            bucket.write(f"test/t/100/CDC{number:06d}.csv", f'"I","t","test",{number},"a"\n')
        assert bucket.at(300).code == 0
        bucket.write("test/t/100/CDC000001.csv", '"I","t","test",1,"old"\n')
        ran = bucket.at(400)
        assert ran.code == 3
        assert "does not record whether its content changed" in ran.stopped["test.t"]
        assert bucket.state()[0] == (1, "new")
        skip(bucket, "test/t/100/CDC000001.csv")
        assert bucket.at(500).code == 0
        assert bucket.state()[0] == (1, "new")
        assert bucket.at(600).code == 0


def skip(bucket: Bucket, path: str) -> None:
    """``headrace table skip --file``."""
    from headrace.model.ledger import RequestKind, TableRequest
    from headrace.model.place import PlaceInFile
    from headrace.model.table import TableId

    with open_sink(bucket.sink) as sink:
        request = TableRequest("2026", TableId("test", "t"), RequestKind.SKIP_FILE, place=PlaceInFile(path))
        sink.ledger.request("default", request)


def test_a_row_that_an_earlier_run_left_behind_stops_its_table(bucket: Bucket) -> None:
    """A cut that does without a file, a restart, and then a row in it that belonged to the cut."""
    bucket.create("t")
    bucket.rows("t/100/1", *(f"I {110 + n} {n} a" for n in range(20)))
    bucket.rows("t/100/2", "I 400 100 a", "I 150 101 out-of-order")
    bucket.checkpoint(500)
    consumer = bucket.consumer()
    consumer.max_cut = 100
    offer = consumer.cut()
    assert offer.watermark < 400
    consumer = consumer.restarted()
    while consumer.checkpoint < 500:
        consumer.cut()
    assert any(r.problem is not None and "not in the order" in r.problem.message for r in consumer.reports)


@pytest.mark.parametrize("max_cut", [1, 60, 150])
def test_a_file_that_parts_took_from_and_left_alone_in_turn_is_no_matter(max_cut: int, tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.create("o", 101)
    for number, ts in enumerate((110, 300, 310, 390), 1):
        bucket.rows(f"o/101/{number}", f"I {ts} {number} many")
    bucket.rows("t/100/1", "I 200 1 early", "I 400 2 late")
    ran = bucket.at(500, max_cut=max_cut)
    assert (ran.code, ran.stopped) == (0, {})
    assert bucket.state("t") == [(1, "early"), (2, "late")]


def test_the_ledger_of_an_older_headrace_is_taken_over(bucket: Bucket) -> None:
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a")
    bucket.schema("t", 150, "id,v", "ALTER TABLE `t` COMMENT = 'x'")
    bucket.rows("t/150/1", "I 160 2 a")
    assert bucket.at(200).code == 0
    older = (
        '{"v":1,"w":200,"s":{"test/t":150},"d":{"test/t/150":{"/6":"1"}},"o":{},"i":{"test/t/150":{"CDC000001.csv":"00000000"}}}'
    )
    with open_sink(bucket.sink) as sink:
        state = sink.ledger.acquire("default", sink_source(bucket), "", 0)
        sink.ledger.update(LedgerUpdate(position=older))
        assert state.checkpoint == 200
    ran = bucket.at(300)  # the mark of the older ledger is that of another file, so that one is read once more
    assert (ran.code, ran.files) == (0, 1)
    assert '"f"' not in position(bucket)
    bucket.rows("t/100/2", "I 310 3 a")
    bucket.rows("t/150/1", "I 320 4 a")
    ran = bucket.at(400)
    assert (ran.code, ran.files) == (0, 2)
    assert bucket.state() == [(1, "a"), (2, "a"), (3, "a"), (4, "a")]


def sink_source(bucket: Bucket) -> str:
    with duckdb.connect(str(bucket.database), read_only=True) as connection:
        return str(connection.execute("SELECT source_identity FROM headrace.pipelines").fetchall()[0][0])


def test_a_pipeline_that_is_begun_anew_reads_every_file(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever deletes its record alone leaves its position behind, when that was long."""
    monkeypatch.setattr(sql_ledger, "PART_LENGTH", 10)
    (target, uri), bucket = place.fresh(), Bucket(tmp_path)
    person = Person.at(place, target)
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a", "I 111 2 b")
    bucket.checkpoint(150)
    assert bucket.run(uri).code == 0
    assert len(person.run("SELECT part FROM headrace.position_parts")) > 1
    person.run("DELETE FROM headrace.pipelines WHERE pipeline = 'default'", "DROP TABLE test.t")
    assert bucket.run(uri).code == 0
    assert sorted(person.run("SELECT * FROM test.t")) == [(1, "a"), (2, "b")]


def test_a_missing_file_of_a_new_version_is_told_whatever_was_forgotten_of_older_ones(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.create("t", 100)
    bucket.rows("t/100/1", "I 101 1 a")
    versions = range(110, 410, 10)
    for version in versions:
        bucket.schema("t", version, "id,v", f"ALTER TABLE `t` COMMENT = 'c{version}'", 20)
        bucket.rows(f"t/{version}/1", f"I {version + 1} {version} a")
    assert bucket.at(409).code == EXIT_OK
    for version in versions[:-1]:
        for file in (bucket.root / "test" / "t" / str(version)).glob("*.csv"):
            file.unlink()
    bucket.rows("t/400/2", "I 411 9999 x")
    assert bucket.at(415).code == EXIT_OK
    assert StoragePosition.parse(ledger(bucket).position).gone
    bucket.schema("t", 420, "id,v", "ALTER TABLE `t` COMMENT = 'new'", 20)
    bucket.rows("t/420/2", "I 423 2 second")
    assert "File numbers 1 are missing. (test/t/420)" in bucket.at(430).told
