"""Every kind of schema change that TiCDC writes, on every target: what is there afterwards is what upstream holds.

What was observed goes to ``docs/types-and-ddl.md``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ddl_kinds import DUCKDB, KINDS, MARIADB, UNKNOWN, Kind
from recorder import record

from ddl_history import BYSTANDER, History
from following import Recorder, defined, run_once
from harness import assert_state
from headrace.ddl.lexer import words
from headrace.engine.run_options import RunOptions
from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.model.outcome import Notice, Problem, Remedy
from headrace.pipeline.runner import PipelineRun
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.statements import Sending
from headrace.testing.engine import LocalEngine
from headrace.testing.faults import Crashed, Moment, Passage, Step, armed
from places import Place
from servers import MariaDb
from targets import MariaDbTarget, Target

pytestmark = pytest.mark.server

_STATUS = {Remedy.RESYNC: "needs resync", Remedy.DECISION: "waits for a decision", Remedy.REPAIR: "stops the table"}
_WITHOUT_LOSS = ("CLUSTERED", "NONCLUSTERED", "FORCE")
_VERSION = re.compile(r" at version \d+")
_SERVER_VERSION = re.compile(r"; check the manual that corresponds to your \w+ server version for the right syntax to use")


@dataclass
class Observed:
    """What a run showed, and what it executed on a SQL server."""

    code: int = -1
    notices: list[Notice] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    executed: list[str] = field(default_factory=list)


class _Watching(Recorder):
    def __init__(self, seen: Observed) -> None:
        super().__init__()
        self._seen = seen

    def notice(self, notice: Notice) -> None:
        self._seen.notices.append(notice)

    def table_stopped(self, problem: Problem) -> None:
        self._seen.problems.append(problem)


def observe(history: History, uri: str, patch: pytest.MonkeyPatch) -> Observed:
    seen = Observed()
    send = Sending.send

    def watched(sending: Sending, session: MySqlSession, statement: str) -> None:
        seen.executed.append(statement)
        send(sending, session, statement)

    with patch.context() as context:
        context.setattr(Sending, "send", watched)
        run = PipelineRun(defined(history, uri, RunOptions(once=True)), _Watching(seen), LocalEngine())  # type: ignore[arg-type]
        seen.code = run.run()
    return seen


def built(kind: Kind, folder: Path) -> History:
    history = History(folder)
    kind.build(history)
    history.finish()
    return history


def cell(kind: Kind, target: str, history: History, seen: Observed) -> str:
    """What the page says of it."""
    if seen.problems:
        problem = next((p for p in seen.problems if p.table_id == kind.table), seen.problems[0])
        message = _SERVER_VERSION.sub("", problem.message).replace(problem.file, "…") if problem.file else problem.message
        return f"{_STATUS[problem.remedy]}: {message}"
    notices = list(dict.fromkeys(_VERSION.sub("", notice.message.rstrip(".")) for notice in seen.notices))
    if target == DUCKDB:
        return "; ".join(notices if any("nothing was done" in n for n in notices) else ["typed change", *notices])
    source = words(history.statements[-1]) or ()
    executed = [words(statement) for statement in seen.executed]
    if source in executed:
        return "; ".join(["source's statement", *notices])
    introduced = "COLLATE" not in seen.executed[-1] and "_UTF8MB4" in history.statements[-1]
    silent = "the character set before a text is left out" if introduced else "the collation that TiDB means is spelled out"
    if tuple(word for word in source if not any(map(word.says, _WITHOUT_LOSS))) in executed:
        silent = "an option of TiDB without an effect on rows is left out"
    return "adapted: " + "; ".join(notices or [silent])


@pytest.fixture(params=[MARIADB, DUCKDB])
def target_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("name", KINDS)
def test_a_target_follows_or_stops_that_table_only(
    name: str, target_name: str, mariadb_server: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = KINDS[name]
    place = Place(tmp_path, mariadb_server if target_name == MARIADB else None)
    target, uri = place.fresh()
    history = built(kind, tmp_path)
    seen = observe(history, uri, monkeypatch)
    reason = kind.stops.get(target_name)
    if reason is None:
        assert (seen.code, seen.problems) == (EXIT_OK, [])
        assert_state(target, history.state(views=target_name == MARIADB))
        if isinstance(target, MariaDbTarget):
            check_definition(kind, mariadb_server, history)
            for told in kind.told:
                assert any(told in notice.sentence() for notice in seen.notices), seen.notices
    else:
        assert seen.code == EXIT_TABLE_STOPPED
        check_stop(kind, target, history, seen, reason)
    record("ddl", name, target_name, cell(kind, target_name, history, seen))


def check_definition(kind: Kind, server: MariaDb, history: History) -> None:
    database, table = kind.table.database, kind.table.table
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SHOW CREATE TABLE `{database}`.`{table}`")
        ((_, definition, *_),) = cursor.fetchall()
        cursor.execute(f"SHOW COLUMNS FROM `{database}`.`{table}`")
        columns = [row[0] for row in cursor.fetchall()]
    assert columns == history.columns_of(kind.table)
    for piece in kind.shows:
        assert piece in definition
    for piece in kind.hides:
        assert piece not in definition


def check_stop(kind: Kind, target: Target, history: History, seen: Observed, reason: str) -> None:
    stopped = {problem.table_id for problem in seen.problems}
    (sentence, *_) = (problem.sentence() for problem in seen.problems)
    assert re.search(reason, sentence, re.IGNORECASE), sentence
    assert "headrace ddl" in sentence
    if UNKNOWN in history.statements:  # nobody knows what it touches
        assert BYSTANDER in stopped
    else:
        assert BYSTANDER not in stopped
        held = target.rows(BYSTANDER.database, BYSTANDER.table, {"id": "int", "a": "varchar"})
        assert sorted(held) == [("1", "before"), ("2", "after")]


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if MARIADB not in kind.stops])
def test_a_crash_after_the_statement_does_not_run_it_twice(name: str, mariadb: MariaDb, tmp_path: Path) -> None:
    """The run dies between the last statement and the journal's entry that it is done."""
    history = built(KINDS[name], tmp_path)
    last = history.statements[-1]

    def die(passage: Passage) -> None:
        if (passage.moment, passage.step) == (Moment.AFTER, Step.SCHEMA_CHANGE) and passage.detail.endswith(last):
            raise Crashed(str(passage))

    with armed(die), pytest.raises(Crashed):
        run_once(history, mariadb.uri())
    assert run_once(history, mariadb.uri()) == EXIT_OK
    assert_state(MariaDbTarget(mariadb), history.state())
    check_definition(KINDS[name], mariadb, history)
