"""What a round commits together with its rows says as much as the step behind it: a run may die between the two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from building import Bucket, ledger_at

from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.model.policy import OnError
from headrace.model.progress import TableStatus
from headrace.model.table import TableId
from headrace.sinks.dead_letters import DeadLetters, open_dead_letters
from local_engine import as_if_large
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
