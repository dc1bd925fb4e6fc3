"""Statements of a person that change rows, in place of a schema change: they run in one transaction with the journal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from building import Bucket, Ran, ledger_at

from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED, FencedError
from headrace.model.ledger import Decision, JournalEntry, JournalState, Verdict
from headrace.model.policy import SchemaChangePolicies
from headrace.sinks.mysql import open_sink
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.ledger import MySqlLedger
from headrace.testing.faults import Crashed, Moment, Passage, Step, armed, crash_at
from person import Person
from servers import MariaDb
from targets import MariaDbTarget

pytestmark = pytest.mark.server

ADDS = "UPDATE test.t SET v = CONCAT(v, '!')"
ASKS = SchemaChangePolicies.parse_text("index=approve")


class Scene:
    """A table ``t`` with a row, which waits before an index."""

    def __init__(self, server: MariaDb, folder: Path) -> None:
        self.uri, self.bucket = server.uri(), Bucket(folder)
        self.person = Person(MariaDbTarget(server), server)
        self.bucket.create("t")
        self.bucket.rows("t/100/1", "I 110 1 a")
        self.bucket.schema("t", 200, "id,v", "ALTER TABLE `t` ADD INDEX `iv` (`v`)", 7)
        self.bucket.rows("t/200/1", "I 210 2 b")
        assert self.run().code == EXIT_TABLE_STOPPED

    def run(self, **options: Any) -> Ran:
        self.bucket.checkpoint(300)
        return self.bucket.run(self.uri, policies=ASKS, **options)

    def waiting(self) -> JournalEntry:
        (entry,) = (e for e in ledger_at(self.uri).journal.values() if e.state is JournalState.WAITING)
        return entry

    def edit(self, statement: str) -> None:
        with open_sink(self.uri) as sink:
            assert sink.ledger is not None
            sink.ledger.decide("default", Decision(self.waiting().identity, Verdict.EDIT, statement))
            sink.ledger.close()

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(self.person.run("SELECT * FROM test.t"))


@pytest.fixture
def scene(mariadb: MariaDb, tmp_path: Path) -> Scene:
    return Scene(mariadb, tmp_path)


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("step", [Step.MYSQL_STATEMENT, Step.MYSQL_COMMIT, Step.JOURNAL_SETTLED, Step.ROUND])
def test_it_runs_once_wherever_a_run_dies(scene: Scene, step: Step, moment: Moment) -> None:
    scene.edit(ADDS)
    with armed(crash_at(moment, step)) as passed, pytest.raises(Crashed):
        scene.run()
    assert passed
    assert scene.run().code == EXIT_OK
    assert scene.rows() == [(1, "a!"), (2, "b")]


@pytest.mark.parametrize("behind", [False, True])
def test_it_runs_once_wherever_the_connection_breaks_off(scene: Scene, monkeypatch: pytest.MonkeyPatch, behind: bool) -> None:
    """Before the COMMIT nothing of it stays; behind it the ledger tells that all of it did."""
    scene.edit(ADDS)
    write, commit, breaks = MySqlLedger._write, MySqlSession.commit, [OSError("the connection broke off")]
    in_step: Iterator[bool] = iter(())

    def written(ledger: MySqlLedger, session: MySqlSession, *more: Any, **options: Any) -> None:
        nonlocal in_step
        write(ledger, session, *more, **options)
        if breaks and session.execute("SELECT COUNT(*) FROM test.t WHERE v = 'a!'") == [(1,)]:
            if not behind:
                session.close()
                raise breaks.pop()
            in_step = iter([True])

    def committed(session: MySqlSession) -> None:
        commit(session)
        if next(in_step, False):
            session.close()
            raise breaks.pop()

    monkeypatch.setattr(MySqlLedger, "_write", written)
    monkeypatch.setattr(MySqlSession, "commit", committed)
    assert scene.run().code == EXIT_OK
    assert not breaks
    assert scene.rows() == [(1, "a!"), (2, "b")]


def test_what_is_refused_waits_and_changes_nothing(scene: Scene) -> None:
    scene.edit("UPDATE test.t SET nothing = 7")
    ran = scene.run()
    assert ran.code == EXIT_TABLE_STOPPED
    assert "Unknown column 'nothing'" in ran.problems[0].message
    assert scene.waiting().statement.startswith("ALTER")
    assert scene.rows() == [(1, "a")]
    scene.edit("DELETE FROM test.t WHERE id = 1")
    assert scene.run().code == EXIT_OK
    assert scene.rows() == [(2, "b")]
    assert not ledger_at(scene.uri).decisions


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM test.t WHERE v LIKE '%nobody%' -- 100 % sure",
        "DELETE FROM test.t WHERE id = 100;",
        "DELETE x FROM test.t x JOIN test.t y ON x.id = y.id + 100",
        "DELETE FROM test.t WHERE id > 100 ORDER BY id RETURNING id",
        "/* nobody */ DELETE FROM test.t WHERE v = '?'",
    ],
)
def test_it_is_sent_as_it_is_written(scene: Scene, statement: str, transactional: bool) -> None:
    """Also one that deletes no row, which MariaDB is asked about again where Headrace wrote the statement itself."""
    if not transactional:
        scene.person.run("CREATE TABLE test.log (v INT) ENGINE=Aria")
    scene.edit(statement)
    with armed(lambda passage: sent.append(passage) if passage.step is Step.MYSQL_STATEMENT else None):
        sent: list[Passage] = []
        assert scene.run().code == EXIT_OK
    assert [passage.detail for passage in sent] == [statement] * 2
    assert scene.rows() == [(1, "a"), (2, "b")]


def test_where_a_table_has_no_transactions_a_person_is_asked(scene: Scene) -> None:
    """A trigger might write to it, and nothing would take that back."""
    scene.person.run("CREATE TABLE test.log (v INT) ENGINE=Aria")
    scene.edit(ADDS)
    with armed(crash_at(Moment.AFTER, Step.MYSQL_STATEMENT)), pytest.raises(Crashed):
        scene.run()
    assert "cannot tell whether it took effect" in scene.run().problems[0].message
    assert scene.rows() == [(1, "a!")]


def test_a_run_that_was_taken_over_takes_back_what_it_ran(scene: Scene) -> None:
    scene.edit(ADDS)
    others: list[Passage] = []

    def takes_over(passage: Passage) -> None:
        if (passage.moment, passage.step) == (Moment.AFTER, Step.MYSQL_STATEMENT) and not others:
            others.append(passage)
            scene.person.run("UPDATE headrace.pipelines SET epoch = epoch + 1, run_token = 'another'")

    with armed(takes_over), pytest.raises(FencedError):
        scene.run()
    assert others
    assert scene.rows() == [(1, "a")]
    assert scene.run().code == EXIT_OK
    assert scene.rows() == [(1, "a!"), (2, "b")]
