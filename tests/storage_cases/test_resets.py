"""``headrace reset``: a pipeline, or one of its tables, is forgotten, and begins anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from building import Bucket, ledger_at
from test_ownership import only
from test_tables_without_key import create

from headrace.cli.main import main
from headrace.engine import retries
from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED, EXIT_USAGE, FencedError
from headrace.model.ledger import Decision, RequestKind, TableProgress, TableRequest, TableStatus, Verdict
from headrace.model.policy import SchemaChangePolicies
from headrace.model.table import TableId
from headrace.pipeline.registry import open_sink
from headrace.sinks.base import Ledger, LedgerPart, LedgerUpdate
from headrace.sinks.file_ledger import open_file_ledger
from headrace.sinks.sql_dialect import DUCKDB
from headrace.sinks.sql_ledger import SqlLedger
from headrace.testing.faults import Crashed, Moment, Step, armed, crash_at
from person import Person
from places import Place
from servers import MariaDb
from storage_folder import ID, V

pytestmark = pytest.mark.pipeline

T = TableId("test", "t")


@pytest.fixture(autouse=True)
def _one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_LOOKS", 0)


class Scene:
    """A changefeed with ``t`` and ``o``, applied to a target up to 150."""

    def __init__(self, folder: Path, place: Place) -> None:
        (self.target, self.uri), self.bucket = place.fresh(), Bucket(folder)
        self.person = Person.at(place, self.target)
        self.bucket.create("o", 99)
        self.bucket.rows("o/99/1", "I 110 1 o")
        self.bucket.create("t")
        self.bucket.rows("t/100/1", "I 110 1 a", "I 111 2 b")
        assert self.at(150).code == EXIT_OK

    def at(self, checkpoint: int, **options: Any) -> Any:
        self.bucket.checkpoint(checkpoint)
        return self.bucket.run(self.uri, **options)

    def reset(self, *words: str) -> int:
        return main(["reset", "--sink", self.uri, "--yes", *words])

    def rows(self, table: str = "t") -> list[tuple[Any, ...]]:
        return sorted(self.person.run(f"SELECT * FROM test.{table}"))

    def drop(self, *tables: str) -> None:
        self.person.run(*(f"DROP TABLE test.{name}" for name in tables))

    def own(self, table_id: TableId = T) -> TableProgress:
        return ledger_at(self.uri).tables[table_id]


@pytest.fixture
def scene(tmp_path: Path, place: Place) -> Scene:
    return Scene(tmp_path, place)


def test_nothing_of_a_pipeline_stays_recorded_but_that_it_was_there(scene: Scene, tmp_path: Path) -> None:
    with open_sink(scene.uri) as sink:
        assert sink.ledger is not None
        sink.ledger.decide("default", Decision("1/test/t/x", Verdict.SKIP))
        sink.ledger.request("default", TableRequest("1", T, RequestKind.RESUME))
        sink.ledger.close()
    assert scene.reset() == EXIT_OK
    recorded = [
        name for (name,) in scene.person.run("SELECT table_name FROM information_schema.columns WHERE column_name = 'pipeline'")
    ]
    assert set(recorded) >= SqlLedger(DUCKDB).names - set(LedgerPart)
    left = {name: scene.person.run(f"SELECT * FROM headrace.{name} WHERE pipeline = 'default'") for name in recorded}
    assert {name for name, rows in left.items() if rows} == {"pipelines"}
    with open_sink(scene.uri) as sink:
        assert sink.ledger is not None
        assert (sink.ledger.peek("default"), sink.ledger.pipelines()) == (None, [])
        sink.ledger.close()
    assert scene.rows() == [(1, "a"), (2, "b")]
    # The name may belong to another source now, which begins with its first file.
    scene.drop("t", "o")
    other = Bucket(tmp_path / "other")
    other.create("t")
    other.rows("t/100/1", "I 110 7 new")
    other.checkpoint(120)
    assert other.run(scene.uri).code == EXIT_OK
    assert scene.rows() == [(7, "new")]


def test_what_an_interrupted_removal_left_is_removed_too(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.person.run("DELETE FROM headrace.pipelines WHERE pipeline = 'default'")
    assert scene.reset() == EXIT_OK
    assert scene.person.run("SELECT * FROM headrace.tables") == []
    assert scene.reset() == EXIT_USAGE
    assert "There is no pipeline named default here" in capsys.readouterr().err


def test_a_ledger_that_an_older_version_made_is_forgotten(scene: Scene) -> None:
    scene.person.run("DROP TABLE headrace.table_requests", "ALTER TABLE headrace.pipelines DROP COLUMN run_token")
    assert scene.reset() == EXIT_OK
    assert scene.person.run("SELECT * FROM headrace.tables") == []
    scene.drop("t", "o")
    assert scene.at(160).code == EXIT_OK
    assert scene.rows() == [(1, "a"), (2, "b")]


def test_nobody_is_there_to_be_asked(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reset", "--sink", scene.uri]) == EXIT_USAGE
    assert "its checkpoint 150, 2 tables" in " ".join(capsys.readouterr().err.split())
    assert ledger_at(scene.uri).checkpoint == 150


def fenced(ledger: Ledger) -> str:
    with pytest.raises(FencedError) as caught:
        ledger.update(LedgerUpdate(9))
    return caught.value.message


@pytest.mark.parametrize("begun_anew", [False, True])
def test_a_run_that_lives_ends_with_its_next_step(place: Place, tmp_path: Path, begun_anew: bool) -> None:
    """Also when another one has begun anew under the name: it must not take that one's record for its own."""
    _, uri = place.fresh()
    with open_sink(uri) as sink, open_sink(uri) as other:
        files = open_file_ledger(str(tmp_path / "ledger")), open_file_ledger(str(tmp_path / "ledger"))
        for mine, others in ((sink.ledger, other.ledger), files):
            assert mine is not None
            assert others is not None
            for _ in range(3):
                mine.acquire("default", "source", "fingerprint", 1)
            mine.update(LedgerUpdate(5))
            assert others.reset("default")
            assert others.peek("default") is None
            if begun_anew:
                assert others.acquire("default", "another source", "f", 1).epoch > 3
                others.update(LedgerUpdate(6))
            assert ("gone" if mine is not files[0] and not begun_anew else "took over") in fenced(mine)
            if begun_anew:
                state = others.peek("default")
                assert state is not None
                assert (state.checkpoint, state.source_identity) == (6, "another source")
            others.close()
            mine.close()


def test_a_file_ledger_forgets_what_people_left(tmp_path: Path) -> None:
    ledger = open_file_ledger(str(tmp_path / "ledger"))
    ledger.acquire("default", "source", "f", 1)
    ledger.request("default", TableRequest("1", T, RequestKind.RESUME))
    ledger.decide("default", Decision("1/test/t/x", Verdict.SKIP))
    assert ledger.reset("default")
    assert ledger.pipelines() == []
    assert not ledger.reset("default")
    assert len(list((tmp_path / "ledger").rglob("*.json"))) == 2  # what tells of the reset, and the state before it
    # Left again before the next record begins, or by a removal by hand.
    ledger.request("default", TableRequest("1", T, RequestKind.RESUME))
    state = ledger.acquire("default", "another source", "f", 1)
    assert (state.requests, state.decisions, ledger.pipelines()) == ({}, {}, ["default"])


def test_a_run_without_a_ledger_of_its_sinks(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a")
    bucket.checkpoint(120)
    place = str(tmp_path / "ledger")
    assert bucket.run("blackhole://", place).code == EXIT_OK
    assert main(["reset", "--sink", "blackhole://", "--ledger", place, "--yes"]) == EXIT_OK
    assert open_file_ledger(place).peek("default") is None
    assert bucket.run("blackhole://", place).code == EXIT_OK
    state = open_file_ledger(place).peek("default")
    assert state is not None
    assert [cut.read_rows for cut in state.cuts] == [1]


@pytest.mark.parametrize("held", [False, True])
def test_a_table_begins_anew(scene: Scene, held: bool) -> None:
    scene.bucket.schema("t", 200, "id,v,c", "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", 5)
    scene.bucket.rows("t/200/1", "U 250 2 d 8", "I 251 3 e 9")
    scene.bucket.rows("o/99/2", "I 260 2 p")
    assert scene.at(300).code == EXIT_OK
    upstream = scene.rows()
    if held:
        assert main(["table", "hold", "test.t", "--sink", scene.uri]) == EXIT_OK
        assert scene.at(310).code == EXIT_TABLE_STOPPED
    scene.drop("t")
    assert scene.reset("--table", "test.t") == EXIT_OK
    ran = scene.at(320)
    assert (ran.code, "the table was reset, and begins anew from 100" in ran.told) == (EXIT_OK, True)
    assert scene.rows() == upstream == [(1, "a", 7), (2, "d", 8), (3, "e", 9)]
    assert scene.rows("o") == [(1, "o"), (2, "p")]
    state = ledger_at(scene.uri)
    assert (state.requests, state.tables[T].status) == ({}, TableStatus.RUNNING)
    scene.bucket.rows("t/200/2", "D 350 1 a 7")
    assert scene.at(400).code == EXIT_OK
    assert scene.rows() == [(2, "d", 8), (3, "e", 9)]


def test_a_table_without_key_begins_anew(scene: Scene) -> None:
    create(scene.bucket, "n", 160)
    scene.bucket.rows("n/160/1", "I 170 1 a", "I 171 1 a")
    assert scene.at(200).code == EXIT_OK
    scene.drop("n")
    assert scene.reset("--table", "test.n") == EXIT_OK
    scene.bucket.rows("n/160/2", "I 250 2 b")
    assert scene.at(300).code == EXIT_OK
    assert scene.rows("n") == [(1, "a"), (1, "a"), (2, "b")]


def test_a_table_that_is_still_there_with_rows_stops(scene: Scene) -> None:
    assert scene.reset("--table", "test.t") == EXIT_OK
    ran = scene.at(200)
    assert ran.code == EXIT_TABLE_STOPPED
    assert "Headrace" in ran.stopped["test.t"]  # did not write them, or creates the table once this one is dropped
    assert scene.rows() == [(1, "a"), (2, "b")]
    scene.drop("t")
    assert scene.at(300).code == EXIT_OK
    assert scene.rows() == [(1, "a"), (2, "b")]


def test_a_second_life_begins_with_its_own_create(scene: Scene) -> None:
    scene.bucket.schema("t", 200, "id,v", "DROP TABLE `test`.`t`", 4)
    scene.bucket.create("t", 210)
    scene.bucket.rows("t/210/1", "I 220 5 x")
    assert scene.at(300).code == EXIT_OK
    scene.drop("t")
    assert scene.reset("--table", "test.t") == EXIT_OK
    assert scene.at(310).code == EXIT_OK
    assert scene.rows() == [(5, "x")]


def test_a_table_that_was_skipped_is_taken_in(tmp_path: Path, place: Place) -> None:
    (target, uri), bucket = place.fresh(), Bucket(tmp_path)
    bucket.create("o", 99)
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a")
    bucket.checkpoint(150)
    assert bucket.run(uri, policies=SchemaChangePolicies.parse_text("create-table=skip")).code == EXIT_OK
    assert ledger_at(uri).tables[T].status is TableStatus.NOT_FOLLOWED
    assert main(["reset", "--sink", uri, "--yes", "--table", "test.t"]) == EXIT_OK
    bucket.checkpoint(160)
    assert bucket.run(uri).code == EXIT_OK
    assert list(Person.at(place, target).run("SELECT * FROM test.t")) == [(1, "a")]


def test_a_table_that_was_renamed_does_not_begin_anew(scene: Scene) -> None:
    scene.bucket.schema("u", 200, "id,v", "RENAME TABLE `test`.`t` TO `test`.`u`", 14)
    scene.bucket.rows("u/200/1", "I 210 3 c")
    assert scene.at(300).code == EXIT_OK
    assert scene.reset("--table", "test.u") == EXIT_OK
    ran = scene.at(310)
    assert "its schema change at 200 also concerns test.t" in ran.told
    assert "headrace table resync test.u --at" in ran.told
    assert scene.rows("u") == [(1, "a"), (2, "b"), (3, "c")]
    assert ledger_at(scene.uri).requests == {}


def test_a_table_whose_files_are_gone_does_not_begin_anew(scene: Scene) -> None:
    (scene.bucket.root / "test/t/100/CDC000001.csv").unlink()
    assert scene.reset("--table", "test.t") == EXIT_OK
    ran = scene.at(200)
    assert "test/t/100, number 1 is not there any more" in ran.told
    assert scene.own().status is TableStatus.RUNNING
    assert scene.rows() == [(1, "a"), (2, "b")]


def test_a_table_that_is_left_out_or_not_known_is_refused(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.at(200, **only("*.*,!test.t")).code == EXIT_OK
    assert scene.reset("--table", "test.t") == EXIT_USAGE
    assert "cannot begin anew: it is left out by --tables" in capsys.readouterr().err
    assert scene.reset("--table", "test.nobody") == EXIT_USAGE
    assert "knows no table test.nobody" in capsys.readouterr().err


def test_a_shape_that_was_there_before_the_pipeline(tmp_path: Path, place: Place) -> None:
    """It began with --start, on a table that somebody had loaded."""
    (target, uri), bucket = place.fresh(), Bucket(tmp_path)
    person = Person.at(place, target)
    person.run("CREATE SCHEMA test", "CREATE TABLE test.t (id INT PRIMARY KEY, v VARCHAR(16))")
    person.run("INSERT INTO test.t VALUES (1, 'a')")
    bucket.schema("t", 100, (ID, V), "", 0)
    bucket.rows("t/100/1", "I 110 1 a", "I 250 2 b")
    bucket.checkpoint(300)
    assert bucket.run(uri, start=200, adopt=True).code == EXIT_OK
    assert main(["reset", "--sink", uri, "--yes", "--table", "test.t"]) == EXIT_OK
    bucket.checkpoint(310)
    ran = bucket.run(uri, start=200, adopt=True)
    assert (ran.code, "run headrace table resync test.t --at 200" in ran.told) == (EXIT_TABLE_STOPPED, True)
    person.run("DELETE FROM test.t WHERE id = 2")
    assert main(["table", "resync", "--sink", uri, "test.t", "--at", "200"]) == EXIT_OK
    assert bucket.run(uri, start=200, adopt=True).code == EXIT_OK
    assert sorted(person.run("SELECT * FROM test.t")) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("loaded", [True, False])
def test_a_table_without_key_that_was_there_at_the_start_waits_until_it_is_loaded(
    tmp_path: Path, place: Place, loaded: bool
) -> None:
    """Its rows since then are in the target yet: they would be there twice."""
    (target, uri), bucket = place.fresh(), Bucket(tmp_path)
    person = Person.at(place, target)
    create(bucket, "t", 100)
    bucket.rows("t/100/1", "I 110 1 a", "I 130 2 b")
    person.run("CREATE SCHEMA test", "CREATE TABLE test.t (id INT, v VARCHAR(16))", "INSERT INTO test.t VALUES (1, 'a')")
    bucket.checkpoint(200)
    assert bucket.run(uri, start=120, adopt=True).code == EXIT_OK
    assert main(["reset", "--sink", uri, "--yes", "--table", "test.t"]) == EXIT_OK
    assert bucket.run(uri).code == EXIT_TABLE_STOPPED
    assert sorted(person.run("SELECT * FROM test.t")) == [(1, "a"), (2, "b")]
    if loaded:
        person.run("DELETE FROM test.t WHERE id = 2")
    words = ["resync", "--at", "120"] if loaded else ["release"]
    assert main(["table", *words, "test.t", "--sink", uri]) == EXIT_OK
    assert bucket.run(uri).code == (EXIT_OK if loaded else EXIT_TABLE_STOPPED)
    assert ledger_at(uri).tables[T].status is (TableStatus.RUNNING if loaded else TableStatus.INCOMPLETE)
    assert sorted(person.run("SELECT * FROM test.t")) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_create_that_a_policy_skips_takes_no_rows_of_before_a_reset_for_its_own(
    tmp_path: Path, place: Place, is_empty: bool
) -> None:
    (target, uri), bucket = place.fresh(), Bucket(tmp_path)
    person, skips = Person.at(place, target), SchemaChangePolicies.parse_text("create-table=skip")
    create(bucket, "t", 100)
    bucket.rows("t/100/1", "I 110 1 a", "I 130 2 b")
    person.run("CREATE SCHEMA test", "CREATE TABLE test.t (id INT, v VARCHAR(16))")
    bucket.checkpoint(200)
    assert bucket.run(uri, policies=skips).code == EXIT_OK
    assert main(["reset", "--sink", uri, "--yes", "--table", "test.t"]) == EXIT_OK
    if not is_empty:
        ran = bucket.run(uri, policies=skips)
        assert (ran.code, "with rows from before" in ran.stopped["test.t"]) == (EXIT_TABLE_STOPPED, True)
    person.run("DELETE FROM test.t")
    assert bucket.run(uri, policies=skips).code == EXIT_OK
    assert sorted(person.run("SELECT * FROM test.t")) == [(1, "a"), (2, "b")]


def test_a_table_begins_anew_whose_schema_change_was_begun(tmp_path: Path, mariadb: MariaDb) -> None:
    """A run ended right after it; nobody needs to know whether it ran, since the table is dropped."""
    scene = Scene(tmp_path, Place(tmp_path, mariadb))
    scene.bucket.schema("t", 200, "id,v,c", "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", 5)
    scene.bucket.rows("t/200/1", "I 210 3 c 8")
    with armed(crash_at(Moment.AFTER, Step.MYSQL_STATEMENT)), pytest.raises(Crashed):
        scene.at(250)
    scene.drop("t")
    assert scene.reset("--table", "test.t") == EXIT_OK
    assert scene.at(260).code == EXIT_OK
    assert scene.rows() == [(1, "a", 7), (2, "b", 7), (3, "c", 8)]


@pytest.mark.parametrize("whole", [True, False])
def test_what_was_reset_is_not_adopted(scene: Scene, whole: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """The source's rows from the first one on would be added to those that a table without key has."""
    create(scene.bucket, "n", 160)
    scene.bucket.rows("n/160/1", "I 170 1 a", "I 171 1 a")
    assert scene.at(200, adopt=True).code == EXIT_OK
    assert scene.reset(*(() if whole else ("--table", "test.n"))) == EXIT_OK
    assert "--adopt" not in capsys.readouterr().out
    ran = scene.at(300, adopt=True)
    assert (ran.code, set(ran.stopped)) == (EXIT_TABLE_STOPPED, {"test.n"})
    assert scene.rows("n") == [(1, "a"), (1, "a")]
    scene.drop("n")
    assert scene.at(310, adopt=True).code == EXIT_OK
    assert scene.rows("n") == [(1, "a"), (1, "a")]


def test_a_table_with_key_that_was_reset_is_not_adopted_either(scene: Scene) -> None:
    assert scene.reset("--table", "test.t") == EXIT_OK
    scene.person.run("INSERT INTO test.t VALUES (3, 'mine')")
    ran = scene.at(200, adopt=True)
    assert "or it was reset" in ran.stopped["test.t"]
    scene.drop("t")
    assert scene.at(300, adopt=True).code == EXIT_OK
    assert scene.rows() == [(1, "a"), (2, "b")]


def test_a_table_that_was_dropped_for_a_reset_that_is_refused_lacks_rows(scene: Scene) -> None:
    (scene.bucket.root / "test/t/100/CDC000001.csv").unlink()
    scene.drop("t")
    assert scene.reset("--table", "test.t") == EXIT_OK
    ran = scene.at(200)
    assert (ran.code, "test/t/100, number 1 is not there any more" in ran.told) == (EXIT_TABLE_STOPPED, True)
    assert (scene.own().status, ledger_at(scene.uri).requests) == (TableStatus.INCOMPLETE, {})
    scene.person.run("CREATE TABLE test.t (id INT PRIMARY KEY, v VARCHAR(16))", "INSERT INTO test.t VALUES (1, 'a'), (2, 'b')")
    assert main(["table", "resync", "test.t", "--at", "190", "--sink", scene.uri]) == EXIT_OK
    scene.bucket.rows("t/100/2", "I 195 3 c")
    assert scene.at(300).code == EXIT_OK
    assert scene.rows() == [(1, "a"), (2, "b"), (3, "c")]


def test_a_table_does_not_begin_anew_without_a_schema_change_that_ran(scene: Scene) -> None:
    truncated = scene.bucket.schema("t", 200, "id,v", "TRUNCATE TABLE `t`", 11)
    assert scene.at(300).code == EXIT_OK
    (scene.bucket.root / truncated).unlink()
    scene.drop("t")
    assert scene.reset("--table", "test.t") == EXIT_OK
    ran = scene.at(310)
    assert "no longer has its schema change at 200" in ran.told
    assert (ran.code, scene.own().status) == (EXIT_TABLE_STOPPED, TableStatus.INCOMPLETE)
