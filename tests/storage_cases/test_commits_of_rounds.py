"""What a round commits together with its rows says as much as the step behind it: a run may die between the two."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from building import Bucket, Ran, ledger_at

from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.model.ledger import RequestKind, TableRequest, TableStatus
from headrace.model.place import PlaceInFile
from headrace.model.policy import OnError, SchemaChangePolicies
from headrace.model.table import TableId
from headrace.pipeline.registry import open_sink
from headrace.sinks.dead_letters import DeadLetters, open_dead_letters
from headrace.testing.faults import Crashed, Moment, Step, armed, crash_at
from large_rounds import as_if_large
from servers import MariaDb

pytestmark = [pytest.mark.pipeline, pytest.mark.server]

T, S = TableId("test", "t"), TableId("test", "s")


def execute(mariadb: MariaDb, statement: str) -> list[tuple[Any, ...]]:
    with mariadb.connect(database="test") as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def letters_of(tmp_path: Path) -> tuple[DeadLetters, dict[str, Any]]:
    """A folder for dead letters, and the options of runs that put them there."""
    box = open_dead_letters(str(tmp_path / "letters"), "default")
    return box, {"on_error": OnError.DEAD_LETTER, "letters": box}


class TestRoundOfTwoJobs:
    """A round too large for one transaction, of which one table is written once more, by a job that would fit in one."""

    KEYED = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(16) COLLATE utf8mb4_general_ci NOT NULL,UNIQUE KEY `v` (`v`))"
    SMALL = "abcdefghij"

    @pytest.fixture
    def bucket(self, tmp_path: Path, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch) -> Bucket:
        """``t`` gives its unique texts to other rows, in capitals, so that a part of its changes does not tell who had them."""
        as_if_large(monkeypatch)
        bucket = Bucket(tmp_path)
        bucket.schema("t", 100, "id,v", self.KEYED, 3)
        bucket.create("s", 101)
        bucket.rows("t/100/1", *(f"I 110 {n} {letter}" for n, letter in enumerate(self.SMALL, 1)))
        bucket.rows("s/101/1", "I 110 1 a")
        bucket.checkpoint(150)
        assert bucket.run(mariadb.uri()).code == EXIT_OK
        moved = bucket.rows(
            "t/100/2",
            *(f"U 160 {n} z{n}" for n in range(1, 11)),
            *(f"I 161 {20 + n} {letter.upper()}" for n, letter in enumerate(self.SMALL, 1)),
        )
        monkeypatch.setattr("headrace.sinks.mysql.sink.ATOMIC_BYTES", (bucket.root / moved).stat().st_size + 10)
        bucket.checkpoint(200)
        return bucket

    def test_the_second_job_does_not_take_along_a_table_that_stopped_in_the_first(self, bucket: Bucket, mariadb: MariaDb) -> None:
        path = bucket.root / bucket.rows("s/101/2", "I 160 2 b", "I 161 3 c")
        whole = path.read_text()
        path.write_text(whole.replace("161,3", "161,three"))
        ran = bucket.run(mariadb.uri())
        assert (ran.code, list(ran.stopped)) == (EXIT_TABLE_STOPPED, ["test.s"])
        state = ledger_at(mariadb.uri())
        assert (state.checkpoint, state.table_checkpoint(S), state.tables[S].status) == (200, 150, TableStatus.STOPPED)
        path.write_text(whole)
        bucket.checkpoint(300)
        assert bucket.run(mariadb.uri()).code == EXIT_OK
        assert execute(mariadb, "SELECT COUNT(*) FROM s") == [(3,)]
        assert execute(mariadb, "SELECT COUNT(*) FROM t") == [(20,)]

    def test_the_letters_of_the_first_job_are_counted(self, bucket: Bucket, mariadb: MariaDb, tmp_path: Path) -> None:
        box, options = letters_of(tmp_path)
        execute(mariadb, "ALTER TABLE s MODIFY v VARCHAR(2)")
        bucket.rows("s/101/2", "I 160 2 refused", "I 161 3 c")
        assert bucket.run(mariadb.uri(), **options).code == EXIT_OK
        assert ledger_at(mariadb.uri()).dead_letters == {S: 1}
        assert len(box.names(S)) == 1
        assert execute(mariadb, "SELECT COUNT(*) FROM s") == [(2,)]


class TestRunThatDiesBehindARound:
    """Between the transaction of a whole cut and the step behind it: the next run knows all that a living one would."""

    @pytest.fixture(params=[False, True], ids=["lives", "dies"])
    def dies(self, request: pytest.FixtureRequest) -> bool:
        return bool(request.param)

    @pytest.fixture
    def bucket(self, tmp_path: Path, mariadb: MariaDb) -> Bucket:
        bucket = Bucket(tmp_path)
        bucket.create("t")
        bucket.create("s", 101)
        bucket.rows("t/100/1", "I 110 1 a")
        bucket.rows("s/101/1", "I 110 1 a")
        bucket.checkpoint(150)
        assert bucket.run(mariadb.uri()).code == EXIT_OK
        return bucket

    def cut(self, bucket: Bucket, mariadb: MariaDb, dies: bool, **options: Any) -> None:
        """A cut that is one transaction; a run that ``dies`` takes no step behind it."""
        if dies:
            with armed(crash_at(Moment.AFTER, Step.ROUND)), suppress(Crashed):
                bucket.run(mariadb.uri(), **options)
        else:
            bucket.run(mariadb.uri(), **options)
        assert ledger_at(mariadb.uri()).checkpoint > 150

    def next_run(self, bucket: Bucket, mariadb: MariaDb, **options: Any) -> Ran:
        bucket.rows("s/101/9", "I 260 9 z")
        bucket.checkpoint(300)
        return bucket.run(mariadb.uri(), **options)

    @pytest.mark.parametrize("what", ["record", "refused"])
    def test_letters_before_a_schema_change_that_waits_are_counted(
        self, bucket: Bucket, mariadb: MariaDb, dies: bool, what: str, tmp_path: Path
    ) -> None:
        box, options = letters_of(tmp_path)
        options["policies"] = SchemaChangePolicies.parse({"truncate-table": "approve"})
        path = bucket.root / bucket.rows("t/100/2", "I 160 2 refused", "I 161 3 c")
        if what == "record":
            path.write_text(path.read_text().replace("160,2", "160,two"))
        else:
            execute(mariadb, "ALTER TABLE t MODIFY v VARCHAR(2)")
        bucket.schema("t", 170, "id,v", "TRUNCATE TABLE `t`", 11)
        bucket.checkpoint(200)
        self.cut(bucket, mariadb, dies, **options)
        assert self.next_run(bucket, mariadb, **options).code == EXIT_TABLE_STOPPED
        assert (ledger_at(mariadb.uri()).dead_letters, len(box.names(T))) == ({T: 1}, 1)

    def test_letters_of_a_table_that_goes_on_after_a_stop_are_counted_once(
        self, bucket: Bucket, mariadb: MariaDb, dies: bool, tmp_path: Path
    ) -> None:
        """So are those of a record without a readable commit ts, whose file is not read again behind the cut."""
        path = bucket.root / bucket.rows("t/100/2", "I 160 2 b", "I 161 3 c")
        path.write_text(path.read_text().replace("160,2", "never,2"))
        bucket.checkpoint(180)
        assert bucket.run(mariadb.uri()).code == EXIT_TABLE_STOPPED
        box, options = letters_of(tmp_path)
        bucket.checkpoint(200)
        self.cut(bucket, mariadb, dies, **options)
        ran = self.next_run(bucket, mariadb, **options)
        assert (ran.code, ran.files) == (EXIT_OK, 1)
        assert (ledger_at(mariadb.uri()).dead_letters, len(box.names(T))) == ({T: 1}, 1)

    def test_a_file_that_its_stopped_table_needs_is_missed_when_it_vanishes(
        self, bucket: Bucket, mariadb: MariaDb, dies: bool
    ) -> None:
        path = bucket.root / bucket.rows("t/100/2", "I 160 2 b")
        path.write_text(path.read_text().replace("160,2", "160,two"))
        bucket.rows("s/101/2", "I 160 2 b")
        bucket.checkpoint(200)
        self.cut(bucket, mariadb, dies)
        path.unlink()
        ran = self.next_run(bucket, mariadb)
        assert (ran.code, list(ran.stopped)) == (EXIT_TABLE_STOPPED, ["test.t"])
        assert "vanished" in ran.stopped["test.t"]

    def test_a_file_that_comes_after_larger_numbers_is_told(self, bucket: Bucket, mariadb: MariaDb, dies: bool) -> None:
        bucket.rows("t/100/3", "I 190 3 c")
        bucket.checkpoint(200)
        self.cut(bucket, mariadb, dies)
        bucket.rows("t/100/2", "I 160 2 late")
        assert "1 of its rows are not above the checkpoint (200)" in self.next_run(bucket, mariadb).told

    def test_a_row_that_a_bounded_cut_left_behind_stops_its_table(self, bucket: Bucket, mariadb: MariaDb, dies: bool) -> None:
        bucket.rows("t/100/2", *(f"I {160 + n} {n} a" for n in range(2, 22)))
        bucket.rows("t/100/3", "I 240 100 a", "I 165 101 out-of-order")
        bucket.checkpoint(250)
        self.cut(bucket, mariadb, dies, max_cut=100)
        ran = self.next_run(bucket, mariadb, max_cut=100)
        assert ran.code == EXIT_TABLE_STOPPED
        assert "not in the order of their commit ts" in ledger_at(mariadb.uri()).tables[T].reason

    def test_what_a_changefeed_brings_behind_a_final_drain_is_told(self, bucket: Bucket, mariadb: MariaDb, dies: bool) -> None:
        bucket.rows("t/100/2", "I 190 2 b")
        self.cut(bucket, mariadb, dies, once=False, until_end=True, quiet=0.0)
        bucket.rows("t/100/3", "I 180 3 late")
        assert "came after --until-end" in self.next_run(bucket, mariadb).told


class TestRunThatDiesInsideACut:
    """Tables move in the steps of a cut before its end: the next run knows which files may be applied, and which were left out."""

    @pytest.fixture
    def bucket(self, tmp_path: Path, mariadb: MariaDb) -> Bucket:
        bucket = Bucket(tmp_path)
        bucket.create("t")
        bucket.rows("t/100/1", "I 110 1 a")
        bucket.schema("bag", 101, "c,v", "CREATE TABLE `bag` (`c` INT,`v` VARCHAR(16))", 3)
        bucket.rows("bag/101/1", "I 110 1 a")
        bucket.checkpoint(150)
        assert bucket.run(mariadb.uri()).code == EXIT_OK
        return bucket

    def dies(self, bucket: Bucket, mariadb: MariaDb, step: Step, **options: Any) -> None:
        with armed(crash_at(Moment.AFTER, step)), pytest.raises(Crashed):
            bucket.run(mariadb.uri(), **options)
        assert ledger_at(mariadb.uri()).checkpoint == 150

    def next_run(self, bucket: Bucket, mariadb: MariaDb, **options: Any) -> Ran:
        bucket.checkpoint(300)
        return bucket.run(mariadb.uri(), **options)

    @pytest.mark.parametrize("twice", [False, True])
    @pytest.mark.parametrize("table", ["t", "bag"])
    def test_a_file_that_comes_after_larger_numbers_is_told(
        self, bucket: Bucket, mariadb: MariaDb, table: str, twice: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A table with a key moves with its schema change, one without a key with its rows. ``twice``: so dies the next run."""
        number = {"t": 100, "bag": 101}[table]
        bucket.rows(f"{table}/{number}/3", "I 190 3 c")
        if table == "t":
            bucket.schema("t", 195, "id,v,c", "ALTER TABLE `t` ADD COLUMN `c` INT", 5)
            step = Step.JOURNAL_SETTLED
        else:
            as_if_large(monkeypatch)
            step = Step.ROUND
        bucket.checkpoint(200)
        self.dies(bucket, mariadb, step)
        bucket.rows(f"{table}/{number}/2", "I 160 2 late")
        if twice:
            bucket.schema("s", 240, "id,v", "CREATE TABLE `s` (`id` INT PRIMARY KEY,`v` VARCHAR(16))", 3)
            bucket.checkpoint(250)
            self.dies(bucket, mariadb, Step.ROUND)
        ran = self.next_run(bucket, mariadb)
        assert ran.code == EXIT_OK
        assert "came after others with larger numbers" in ran.told
        assert "rows may be missing: The file came after others with larger numbers" in self.next_run(bucket, mariadb).told

    def test_a_row_that_a_bounded_cut_left_behind_stops_its_table(self, bucket: Bucket, mariadb: MariaDb) -> None:
        bucket.rows("t/100/2", *(f"I {160 + n} {n} a" for n in range(2, 22)))
        bucket.schema("t", 190, "id,v", "ALTER TABLE `t` COMMENT = 'x'", 5)
        bucket.rows("t/100/3", "I 240 100 a", "I 165 101 out-of-order")
        bucket.checkpoint(250)
        self.dies(bucket, mariadb, Step.JOURNAL_SETTLED, max_cut=100)
        self.next_run(bucket, mariadb, max_cut=100)
        assert "not in the order of their commit ts" in ledger_at(mariadb.uri()).tables[T].reason

    @pytest.mark.parametrize("is_restored", [True, False])
    def test_a_file_that_vanishes_stops_its_table(
        self, bucket: Bucket, mariadb: MariaDb, is_restored: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Until it is restored, or a person gives it up."""
        as_if_large(monkeypatch)
        path = bucket.root / bucket.rows("t/100/2", "I 160 2 b")
        content = path.read_bytes()
        bucket.checkpoint(200)
        self.dies(bucket, mariadb, Step.INTENT)
        path.unlink()
        for _ in range(2):
            ran = self.next_run(bucket, mariadb)
            assert (ran.code, list(ran.stopped)) == (EXIT_TABLE_STOPPED, ["test.t"])
            assert "vanished" in ran.stopped["test.t"]
        if is_restored:
            path.write_bytes(content)
        else:
            with open_sink(mariadb.uri()) as sink:
                assert sink.ledger is not None
                request = TableRequest("2026", T, RequestKind.SKIP_FILE, place=PlaceInFile(str(path.relative_to(bucket.root))))
                sink.ledger.request("default", request)
        assert self.next_run(bucket, mariadb).code == EXIT_OK
        assert execute(mariadb, "SELECT COUNT(*) FROM t") == [(1 + is_restored,)]
