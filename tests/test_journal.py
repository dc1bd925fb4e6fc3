"""The journal of schema changes: in whichever phase of one a run dies, it takes effect exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddl_history import History
from following import Following, run_once
from harness import assert_state
from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED, HeadraceError
from headrace.model.ledger import Decision, Verdict
from headrace.sinks.mysql import open_sink, variables
from headrace.testing.faults import Crashed, Fault, Moment, Passage, Step, armed, crash_at
from places import Place
from servers import MariaDb
from severing import severable
from targets import MariaDbTarget
from unrepeatable import BASE, ROWS, UNREPEATABLE, Unrepeatable

pytestmark = pytest.mark.pipeline


def die_at(passed: list[Passage], number: int) -> Fault:
    """Dies at the point that had this number in another run, and was its first, second, … of that kind there."""
    point = passed[number]
    left = iter(range(passed[:number].count(point)))

    def fault(passage: Passage) -> None:
        if passage == point and next(left, None) is None:
            raise Crashed(str(passage))

    return fault


def phases(passed: list[Passage], kind: Unrepeatable) -> dict[str, int]:
    """The numbers of the points around the schema change, in the order in which a run comes by them."""
    after_it = (Moment.AFTER, Step.SCHEMA_CHANGE)
    ran = [n for n, p in enumerate(passed) if (p.moment, p.step) == after_it and kind.statement in p.detail]
    after = ran[kind.occurrence]
    points = {
        "before the intent is durable": _last(passed, Moment.BEFORE, Step.JOURNAL_PENDING, after),
        "after the intent": _last(passed, Moment.BEFORE, Step.SCHEMA_CHANGE, after),
        "after the statement, before it is verified": _last(passed, Moment.AFTER, Step.MYSQL_STATEMENT, after),
        "after it is verified": after,
        "after it is complete": _next(passed, Moment.AFTER, Step.JOURNAL_SETTLED, after),
        "after rows came": _next(passed, Moment.AFTER, Step.ROUND, after),
    }
    return {phase: number for phase, number in points.items() if number is not None}


def _last(passed: list[Passage], moment: Moment, step: Step, before: int) -> int | None:
    start = max((n for n in range(before) if passed[n].step is Step.JOURNAL_SETTLED), default=0)
    return max((n for n in range(start, before) if (passed[n].moment, passed[n].step) == (moment, step)), default=None)


def _next(passed: list[Passage], moment: Moment, step: Step, after: int) -> int | None:
    return next((n for n in range(after, len(passed)) if (passed[n].moment, passed[n].step) == (moment, step)), None)


@pytest.mark.parametrize("name", UNREPEATABLE)
def test_a_crash_in_any_phase_lets_a_schema_change_take_effect_once(name: str, place: Place, tmp_path: Path) -> None:
    kind = UNREPEATABLE[name]
    history = kind.built(tmp_path / "changefeed")
    target, uri = place.fresh()
    before = _executed(kind, place)
    with armed() as passed:
        assert run_once(history, uri) == EXIT_OK
    assert_state(target, history.state())
    once = _executed(kind, place) - before
    points = phases(passed, kind)
    if place.mariadb is None:  # a cut is one transaction: one phase is as good as another
        points = {phase: points[phase] for phase in ("after it is verified", "after it is complete")}
    assert len(points) == (6 if place.mariadb else 2)
    failures = []
    for phase, number in points.items():
        target, uri = place.fresh()
        before = _executed(kind, place)
        with armed(die_at(passed, number)), pytest.raises(Crashed):
            run_once(history, uri)
        try:
            assert run_once(history, uri) == EXIT_OK
            assert_state(target, history.state())
            assert _executed(kind, place) - before in _allowed(kind, phase, once), "statements were executed again"
        except (AssertionError, HeadraceError) as error:
            failures.append(f"after a crash {phase}, {passed[number]}: {error}")
    assert not failures, "\n".join(failures)


@pytest.mark.server
def test_values_that_a_persons_statement_computed_stay_as_they_are(mariadb: MariaDb, tmp_path: Path) -> None:
    """UUID() would give other ones the second time, and no file tells what it gave."""
    history = History(tmp_path)
    history.create("t", *BASE, rows=ROWS)
    statement = "ALTER TABLE `t` ADD COLUMN `b` VARCHAR(36) DEFAULT (UUID())"
    history.ddl("t", statement, 5, columns=(*BASE, "b VARCHAR(36) = uuid()"), effect=lambda rows: [(*row, None) for row in rows])
    history.insert("t", (4, "four", "from upstream"))
    history.finish()

    def computed() -> list[tuple[int, str]]:
        with mariadb.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT id, b FROM shop.t WHERE id < 4 ORDER BY id")
            return list(cursor.fetchall())

    kind = UNREPEATABLE["ADD COLUMN, computed"]
    for step in (Step.MYSQL_STATEMENT, Step.SCHEMA_CHANGE, Step.JOURNAL_SETTLED):
        mariadb.fresh()
        assert run_once(history, mariadb.uri()) == EXIT_TABLE_STOPPED
        with open_sink(mariadb.uri()) as sink:
            state = sink.ledger.peek("default")
            (waiting,) = [entry.identity for entry in state.journal.values() if not entry.state.is_settled]
            sink.ledger.decide("default", Decision(waiting, Verdict.EDIT, statement))
        before = kind.executed(mariadb)
        with armed(crash_at(Moment.AFTER, step)), pytest.raises(Crashed):
            run_once(history, mariadb.uri())
        values = computed()
        assert len({value for _, value in values}) == len(ROWS)
        assert run_once(history, mariadb.uri()) == EXIT_OK
        assert computed() == values
        assert kind.executed(mariadb) == before + 1


@pytest.mark.server
@pytest.mark.parametrize("name", [name for name in UNREPEATABLE if name != "CREATE"])
def test_a_statement_whose_connection_broke_off_is_looked_at_when_it_is_over(
    name: str, mariadb: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server goes on with it, and does not notice that nobody listens. It waits for a reader here until Headrace is back."""
    monkeypatch.setattr(variables, "_DDL_LOCK_WAIT_SECONDS", 60)
    kind = UNREPEATABLE[name]
    history = kind.built(tmp_path)
    target = MariaDbTarget(mariadb)
    before = kind.executed(mariadb)
    with severable(mariadb) as proxy, mariadb.connect(autocommit=False) as reader, mariadb.connect() as watcher:

        def sessions(condition: str) -> bool:
            with watcher.cursor() as cursor:
                return bool(cursor.execute(f"SELECT 1 FROM information_schema.PROCESSLIST WHERE {condition}"))

        def hold(passage: Passage) -> None:
            here = (passage.moment, passage.step) == (Moment.BEFORE, Step.MYSQL_STATEMENT) and kind.statement in passage.detail
            if here and kind.executed(mariadb) == before:
                reader.query("SELECT COUNT(*) FROM shop.t")

        with armed(hold):
            run = Following(history, proxy.server.uri())
            run.wait_until(lambda: sessions("STATE LIKE 'Waiting for table metadata lock%'"), 60)
            proxy.sever()
            run.wait_until(lambda: sessions("INFO LIKE 'SELECT GET_LOCK%' AND STATE LIKE 'User lock%'"), 60)
            reader.rollback()
            run.wait_for(history.watermark, 60)
        run.interrupt()
        run.ended()
    assert_state(target, history.state())
    assert kind.executed(mariadb) - before in ((1, 2) if kind.repeats else (kind.statements,))


def _allowed(kind: Unrepeatable, phase: str, once: int) -> tuple[int, ...]:
    """How many statements the server may have been given in all. One that does no harm at once is not looked at, but repeated."""
    unknown = phase.startswith(("after the statement", "after it is verified"))
    return (once, once + 1) if kind.repeats and unknown else (once,)


def _executed(kind: Unrepeatable, place: Place) -> int:
    return kind.executed(place.mariadb) if place.mariadb else 0
