"""Tables that stop: they keep what they need while the rest goes on, and people say how they go on (``headrace table``)."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest

from crashing import Crashed, CrashPoints, install
from damage import Repair, edit_line, remove, rewrite
from following import Following, run_once
from harness import assert_state
from headrace.cli.main import main
from headrace.model.ledger import JournalState, LedgerState, RequestKind, TableStatus
from headrace.model.policy import SchemaChangePolicies
from headrace.model.table import Column, TableId
from headrace.pipeline.registry import open_sink
from headrace.testing.upstream import Delete, Insert, Update
from places import Place
from servers import MariaDb
from targets import Target, sort_rows
from upstreams import CUSTOMERS, INT, KEY, NAME, ORDERS, Changefeed

pytestmark = pytest.mark.pipeline

BROKEN = b"I,orders,shop,no number,broken"


@pytest.fixture
def scene(place: Place, tmp_path: Path) -> Scene:
    return Scene(place, tmp_path)


class Scene:
    """Two tables with two rows each, applied; what comes then is written one file a checkpoint."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.place = place
        self.changefeed = Changefeed(folder / "feed")
        self.upstream = self.changefeed.upstream
        self.upstream.create_database("shop")
        self.upstream.create_table(ORDERS, [KEY, NAME])
        self.upstream.create_table(CUSTOMERS, [KEY, NAME])
        self.number = 0
        self.target: Target
        self.uri: str
        self.start()

    def start(self) -> None:
        """An empty target, in which the first rows are applied."""
        self.target, self.uri = self.place.fresh()
        if not self.number:
            self.both(2)
        assert self.run() == 0

    def both(self, times: int = 1) -> int:
        """A row in each table at a time, each with a checkpoint of its own; the last checkpoint."""
        for _ in range(times):
            self.number += 1
            row = {"id": self.number, "name": f"number {self.number}"}
            self.upstream.execute(Insert(ORDERS, row))
            self.upstream.execute(Insert(CUSTOMERS, row), Update(CUSTOMERS, (1,), {"name": f"seen {self.number}"}))
            self.upstream.checkpoint()
        return self.changefeed.watermark

    def customers(self) -> int:
        """A row in the table that goes on, with a checkpoint after it."""
        self.number += 1
        self.upstream.execute(Update(CUSTOMERS, (1,), {"name": f"seen {self.number}"}))
        return self.upstream.checkpoint()

    def run(self, **options: Any) -> int:
        return run_once(self.changefeed, self.uri, **options)

    def files(self, table_id: TableId = ORDERS) -> list[Path]:
        found = (self.changefeed.writer.root / table_id.database / table_id.table).rglob("CDC*.csv")
        return sorted(found, key=lambda path: (int(path.relative_to(self.changefeed.writer.root).parts[2]), path))

    def name_of(self, path: Path) -> str:
        return path.relative_to(self.changefeed.writer.root).as_posix()

    def breaks(self, path: Path) -> Repair:
        """Makes the first record of a file one that nobody can read."""
        return rewrite(path, edit_line(1, lambda _: BROKEN))

    def state(self) -> LedgerState:
        with open_sink(self.uri) as sink:
            assert sink.ledger is not None
            state = sink.ledger.peek("default")
            sink.ledger.close()
        assert state is not None
        return state

    @property
    def orders(self) -> TableStatus:
        return self.state().tables[ORDERS].status

    def table(self, *words: str) -> int:
        return main(["table", *words, "--sink", self.uri])

    def listed(self, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
        """What ``headrace table list`` tells machines."""
        capsys.readouterr()
        assert self.table("list", "--json") == 0
        events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return [event for event in events if event["event"] == "stopped_table"]

    def ids(self, table_id: TableId = ORDERS) -> list[int]:
        return sorted(int(row[0] or 0) for row in self.target.rows("shop", table_id.table, {"id": "int"}))

    def execute(self, statement: str) -> None:
        """What a person does in the target."""
        if self.place.mariadb is not None:
            with self.place.mariadb.connect(autocommit=True) as connection, connection.cursor() as cursor:
                cursor.execute(statement)
        else:
            with duckdb.connect(self.uri.removeprefix("duckdb://").partition("?")[0]) as file:
                file.execute(statement)

    def others_are_whole(self) -> None:
        (expected,) = self.changefeed.state(CUSTOMERS).tables
        assert sort_rows(self.target.rows("shop", "customers", {"id": "int", "name": "varchar"})) == sort_rows(expected.rows)

    def is_whole(self) -> None:
        assert_state(self.target, self.changefeed.state())


def test_a_stopped_table_keeps_its_files_over_hundreds_of_cuts_and_restarts_and_catches_up(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.both()
    damaged = scene.files()[-1]
    repair = scene.breaks(damaged)
    assert scene.run() == 3
    before = scene.state().tables[ORDERS]
    assert (before.status, scene.name_of(damaged) in before.reason) == (TableStatus.STOPPED, True)
    for _ in range(4):
        run = Following(scene.changefeed, scene.uri)
        for _ in range((240 if scene.place.mariadb else 20) // 4):
            run.wait_for(scene.customers())
        run.interrupt()
        run.ended()
        scene.both()
        with monkeypatch.context() as patch:
            install(CrashPoints(fatal=3), patch)
            with pytest.raises(Crashed):
                scene.run()
        assert scene.run() == 3
    assert scene.state().tables[ORDERS] == before
    (told,) = scene.listed(capsys)
    assert [entry["file"] for entry in told["files"]] == [scene.name_of(path) for path in scene.files() if path >= damaged]
    assert told["bytes"] == sum(path.stat().st_size for path in scene.files() if path >= damaged)
    assert (told["checkpoint"], told["reason"], told["status"]) == (before.checkpoint, before.reason, "stopped")
    repair()
    assert scene.run() == 0
    scene.is_whole()
    assert scene.listed(capsys) == []


def test_a_table_is_tried_again_at_once_when_it_is_told_to(scene: Scene) -> None:
    scene.both()
    repair = scene.breaks(scene.files()[-1])
    run = Following(scene.changefeed, scene.uri)
    run.wait_until(lambda: run.display.polls > 3)  # a run tries what stopped at its start again by itself
    assert scene.orders is TableStatus.STOPPED
    repair()
    assert scene.table("resume", "shop.orders") == 0
    run.wait_until(lambda: scene.orders is TableStatus.RUNNING)
    run.interrupt()
    run.ended()
    assert scene.state().requests == {}
    scene.is_whole()


def test_rows_up_to_a_commit_ts_are_given_up_and_schema_changes_run(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.both()
    scene.breaks(scene.files()[-1])
    assert scene.run() == 3
    scene.both()
    scene.upstream.add_column(ORDERS, Column("price", INT, default="7"))
    scene.breaks(scene.files()[-1])
    scene.both()
    given_up = scene.changefeed.watermark
    assert scene.run() == 3
    since = scene.state().tables[ORDERS].checkpoint
    assert scene.table("skip", "shop.orders", "--to", "latest", "--yes") == 0
    assert scene.listed(capsys)[0]["requests"][0]["to"] == given_up
    scene.both()
    assert scene.run() == 0
    assert scene.ids() == [1, 2, scene.number]
    assert scene.target.columns("shop", "orders") == {"id", "name", "price"}
    told = f"its rows from {since + 1} to {given_up} were given up"
    assert told in capsys.readouterr().err
    state = scene.state()
    assert (state.tables[ORDERS].reason, state.requests) == (told, {})
    scene.both()
    assert scene.run() == 0
    assert scene.ids() == [1, 2, scene.number - 1, scene.number]
    scene.others_are_whole()


def test_a_damaged_file_that_may_go_beyond_what_is_given_up_still_stops_its_table(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.both()
    scene.both()
    repair = scene.breaks(scene.files()[-1])
    assert scene.run() == 3
    assert scene.table("skip", "shop.orders", "--to", "latest", "--yes") == 0
    assert scene.run() == 3
    reason = scene.state().tables[ORDERS].reason
    assert "No later file shows that it ends before" in reason
    assert f"headrace table skip shop.orders --file '{scene.name_of(scene.files()[-1])}'" in reason
    assert scene.ids() == [1, 2]
    scene.both()
    repair()
    assert scene.run() == 0
    assert scene.ids() == [1, 2, scene.number]


def test_one_file_is_given_up(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.both()
    damaged = scene.files()[-1]
    scene.breaks(damaged)
    scene.both()
    vanished = scene.files()[-1]
    assert scene.run() == 3
    remove(vanished)
    scene.both()
    assert scene.run() == 3
    for file in (damaged, vanished):
        assert scene.table("skip", "shop.orders", "--file", scene.name_of(file), "--yes") == 0
    scene.both()
    assert scene.run() == 0
    assert scene.ids() == [1, 2, scene.number - 1, scene.number]
    reason = f"the file {scene.name_of(damaged)} was given up; the file {scene.name_of(vanished)} was given up"
    state = scene.state()
    assert (state.tables[ORDERS].reason, state.requests) == (reason, {})
    scene.both()
    assert scene.run() == 0
    assert scene.ids() == [1, 2, *range(scene.number - 2, scene.number + 1)]


def loaded_anew(scene: Scene) -> int:
    """Orders stops, and is loaded by hand as of a later commit ts, in its shape of then; that commit ts."""
    scene.both()
    scene.breaks(scene.files()[-1])
    assert scene.run() == 3
    scene.upstream.add_column(ORDERS, Column("price", INT, default="7"))
    scene.both()
    at = scene.changefeed.watermark
    rows = ", ".join(f"({n}, 'number {n}', 7)" for n in range(1, scene.number + 1))
    for statement in (
        "DROP TABLE shop.orders",
        "CREATE TABLE shop.orders (id INT PRIMARY KEY, name VARCHAR(40), price INT DEFAULT 7)",
        f"INSERT INTO shop.orders VALUES {rows}",
    ):
        scene.execute(statement)
    scene.both()
    assert scene.run() == 3
    return at


def test_a_table_that_was_loaded_anew_goes_on_from_there(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    at = loaded_anew(scene)
    assert scene.table("resync", "shop.orders", "--at", str(at)) == 0
    assert scene.run() == 0
    scene.is_whole()
    state = scene.state()
    assert (state.tables[ORDERS].reason, state.requests) == (f"loaded anew as of {at}", {})
    assert [e.commit_ts <= at for e in state.journal.values() if e.state is JournalState.SKIPPED] == [True]
    scene.upstream.execute(Delete(ORDERS, (1,)))
    scene.both()
    assert scene.run() == 0
    scene.is_whole()


def test_a_schema_change_that_concerns_another_table_too_is_not_passed_over(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.both()
    repair = scene.breaks(scene.files()[-1])
    assert scene.run() == 3
    scene.upstream.rename_table(ORDERS, TableId("shop", "purchases"))
    scene.upstream.execute(Insert(TableId("shop", "purchases"), {"id": 900, "name": "later"}))
    at = scene.upstream.checkpoint()
    assert scene.run() == 3
    assert scene.table("resync", "shop.orders", "--at", str(at)) == 0
    assert scene.run() == 3
    assert "moves its rows to shop.purchases" in capsys.readouterr().err
    assert scene.state().requests == {}
    repair()
    assert scene.run() == 0
    scene.is_whole()


def never_read(scene: Scene, kind: str) -> set[int]:
    """Breaks a file of orders behind which others lie, and asks for something; the rows that the target then never gets."""
    scene.both()
    if kind == "hold":
        assert scene.table("hold", "shop.orders") == 0
        assert scene.run() == 3
        assert scene.table("release", "shop.orders") == 0
        return set()
    if kind == "back":
        assert scene.run() == 0
        at, rows = scene.changefeed.watermark, scene.ids()
        scene.both(2)
        assert scene.run() == 0
        scene.execute(f"DELETE FROM shop.orders WHERE id NOT IN ({', '.join(map(str, rows))})")
        assert scene.table("resync", "shop.orders", "--at", str(at)) == 0
        return set()
    damaged, lost = scene.files()[-1], scene.number
    repair = scene.breaks(damaged)
    scene.both()
    assert scene.run() == 3
    if kind == "resume":
        repair()
        assert scene.table("resume", "shop.orders") == 0
        return set()
    if kind == "file":
        assert scene.table("skip", "shop.orders", "--file", scene.name_of(damaged), "--yes") == 0
        return {lost}
    if kind == "rows":
        assert scene.table("skip", "shop.orders", "--to", "latest", "--yes") == 0
        return {lost, lost + 1}
    scene.execute(f"INSERT INTO shop.orders VALUES ({lost}, 'number {lost}'), ({lost + 1}, 'number {lost + 1}')")
    assert scene.table("resync", "shop.orders", "--at", str(scene.changefeed.watermark)) == 0
    return set()


@pytest.mark.parametrize("kind", ["resume", "rows", "file", "resync", "hold", "back"])
def test_a_crash_at_any_step_of_a_request_is_made_good(kind: str, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that stopped meets request after request until no step is left to die before."""
    missing: set[int] = set()
    steps: list[str] = []
    for fatal in range(1, 60):
        missing |= never_read(scene, kind)
        scene.both()
        points = CrashPoints(fatal)
        with monkeypatch.context() as patch, suppress(Crashed):
            install(points, patch)
            assert scene.run() == 0
            steps = points.passed
        assert scene.run() == 0, points.passed
        assert scene.ids() == sorted(set(range(1, scene.number + 1)) - missing), points.passed
        scene.others_are_whole()
        assert scene.state().requests == {}
        if len(points.passed) < fatal:
            break
    assert len(steps) >= 4


def test_schema_changes_that_wait_for_a_decision_wait_behind_rows_that_were_given_up(scene: Scene) -> None:
    policies = SchemaChangePolicies.parse({"truncate-table": "approve"})
    scene.both()
    scene.breaks(scene.files()[-1])
    scene.both()
    scene.upstream.truncate_table(ORDERS)
    scene.both()
    assert scene.run(policies=policies) == 3
    assert scene.table("skip", "shop.orders", "--to", "latest", "--yes") == 0
    assert scene.run(policies=policies) == 3
    assert (scene.orders, len(scene.state().requests)) == (TableStatus.WAITING, 1)
    (waiting,) = [e.identity for e in scene.state().journal.values() if not e.state.is_settled]
    assert main(["ddl", "approve", waiting, "--sink", scene.uri]) == 0
    scene.both()
    assert scene.run(policies=policies) == 0
    assert (scene.ids(), scene.state().requests) == ([scene.number], {})


def test_what_cannot_be_asked_is_refused_in_words(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.both()
    assert scene.table("resume", "shop.orders") == 2
    damaged = scene.files()[-1]
    scene.breaks(damaged)
    assert scene.run() == 3
    capsys.readouterr()
    checkpoint = scene.state().tables[ORDERS].checkpoint
    for words, told in {
        ("resume", "shop.customers"): "Stopped tables: shop.orders",
        ("skip", "shop.orders", "--yes"): "pass exactly one of --to, --file",
        ("skip", "shop.orders", "--to", "latest", "--file", "x", "--yes"): "pass exactly one of --to, --file",
        ("skip", "shop.orders", "--to", "yesterday", "--yes"): "neither a TSO nor an ISO time",
        ("skip", "shop.orders", "--to", str(checkpoint), "--yes"): "Changes up to there are already applied",
        ("skip", "shop.orders", "--to", "2100-01-01", "--yes"): "Wait until the pipeline has reached it",
        ("skip", "shop.orders", "--to", "latest"): "Pass --yes",
        ("skip", "shop.orders", "--file", scene.name_of(damaged)): "Pass --yes",
        ("skip", "shop.orders", "--file", "shop/orders/1/CDC000001.csv", "--yes"): "does not wait for a file",
        ("skip", "shop.orders", "--partition", "0", "--offset", "3", "--yes"): "is no stream, and has no partitions",
        ("resync", "shop.orders", "--at", "yesterday"): "neither a TSO nor an ISO time",
        ("resync", "shop.none", "--at", "1"): "knows no table shop.none",
    }.items():
        assert scene.table(*words) == 2, words
        assert told in capsys.readouterr().err
    scene.execute("DROP TABLE shop.orders")
    assert scene.table("resync", "shop.orders", "--at", str(scene.state().checkpoint)) == 2
    assert "holds no table shop.orders" in capsys.readouterr().err
    assert scene.state().requests == {}


def test_nothing_is_given_up_before_a_person_writes_the_tables_name(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.both()
    scene.breaks(scene.files()[-1])
    assert scene.run() == 3
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for written, left in (("yes", 0), ("shop.orders", 1)):
        monkeypatch.setattr("typer.prompt", lambda *_, written=written, **__: written)
        assert scene.table("skip", "shop.orders", "--to", "latest") == 0
        assert len(scene.state().requests) == left


def test_files_that_a_stopped_table_needs_and_ticdc_will_remove_are_told(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    toml = scene.changefeed.toml
    toml.write_text(toml.read_text().replace("file-size = ", "file-expiration-days = 7\nfile-size = "))
    scene.both()
    assert scene.run() == 0
    assert "TiCDC removes" not in capsys.readouterr().err
    scene.breaks(scene.files()[-1])
    scene.both()
    assert scene.run() == 3
    scene.both()
    capsys.readouterr()
    assert scene.run() == 3
    day = scene.files()[-1].parent.name
    told = f"needs files of {day}; TiCDC removes them after {day[:-2]}{int(day[-2:]) + 7:02}"
    assert f"table shop.orders: it is stopped and {told}" in capsys.readouterr().err
    definition = toml.with_name("pipeline.yaml")
    source = f'source: {{uri: "{scene.changefeed.uri}", changefeed: "{toml}"}}'
    definition.write_text(f'{source}\nsink: {{uri: "{scene.uri}"}}\npipeline: {{name: default}}\n')
    assert main(["status", str(definition)]) == 0
    assert told in capsys.readouterr().err
    assert main(["table", "list", "-d", str(definition)]) == 0
    text = capsys.readouterr().out
    assert told in text
    assert f"{scene.name_of(scene.files()[-1])}, about " in text


def test_a_run_takes_up_a_hold_and_a_release_while_no_table_is_stopped(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("headrace.engine.loop._DECISIONS_EVERY", 0.1)
    run = Following(scene.changefeed, scene.uri)
    run.wait_until(lambda: run.display.polls > 3)
    assert scene.table("hold", "shop.orders") == 0
    run.wait_until(lambda: scene.orders is TableStatus.HELD)
    assert scene.listed(capsys)[0]["held"] is True
    held = scene.state().tables[ORDERS]
    run.wait_for(scene.both())
    assert scene.state().tables[ORDERS] == held
    assert scene.table("release", "shop.orders") == 0
    run.wait_until(lambda: scene.orders is TableStatus.RUNNING)
    run.interrupt()
    run.ended()
    assert scene.state().requests == {}
    scene.is_whole()


@pytest.mark.parametrize(
    ("stands_still", "touched", "told"),
    [
        ("released", "ALTER TABLE shop.orders DROP PRIMARY KEY", "no unique index"),
        ("resynced", "ALTER TABLE shop.orders ENGINE = MyISAM", "transactions"),
        ("repaired", "ALTER TABLE shop.orders DROP PRIMARY KEY", "no unique index"),
    ],
)
def test_what_a_person_may_have_changed_is_looked_at_again_by_the_run_that_goes_on(
    mariadb: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stands_still: str, touched: str, told: str
) -> None:
    """The run had found the table fit before, and wrote into it as if it still were."""
    monkeypatch.setattr("headrace.engine.loop._DECISIONS_EVERY", 0.1)
    scene = Scene(Place(tmp_path, mariadb), tmp_path)
    run = Following(scene.changefeed, scene.uri)
    run.wait_for(scene.both())
    loaded = scene.changefeed.watermark
    repair = None
    if stands_still == "repaired":
        scene.upstream.execute(Insert(ORDERS, {"id": 99, "name": "broken"}))
        scene.changefeed.writer.flush()  # the run must not read the file before it is broken
        repair = scene.breaks(scene.files()[-1])
        scene.customers()
        run.wait_until(lambda: scene.orders is TableStatus.STOPPED)
    else:
        assert scene.table("hold", "shop.orders") == 0
        run.wait_until(lambda: scene.orders is TableStatus.HELD)
    scene.execute(touched)
    before = scene.ids()
    if repair is not None:
        repair()
        assert scene.table("resume", "shop.orders") == 0
    else:
        words = ("release",) if stands_still == "released" else ("resync", "--at", str(loaded))
        assert scene.table(words[0], "shop.orders", *words[1:]) == 0
        scene.both()
    run.wait_until(lambda: any(told in problem.sentence() for problem in run.display.stopped))
    run.interrupt()
    run.ended()
    assert (scene.orders, scene.ids()) == (TableStatus.STOPPED, before)


def test_each_request_that_is_refused_is_told_and_shown(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also the second one that a run refuses in the same words."""
    monkeypatch.setattr("headrace.engine.loop._DECISIONS_EVERY", 0.1)
    run = Following(scene.changefeed, scene.uri)
    assert scene.table("hold", "shop.orders") == 0
    run.wait_until(lambda: scene.orders is TableStatus.HELD)
    capsys.readouterr()
    for _ in range(2):
        assert scene.table("resync", "shop.orders", "--at", "1") == 0
        run.wait_until(lambda: RequestKind.RESYNC not in {request.kind for request in scene.state().requests.values()})
        run.wait_until(lambda: "does not go on from 1" in "".join(capsys.readouterr()))
    run.interrupt()
    run.ended()
    assert "the table does not go on from 1" in scene.listed(capsys)[0]["reason"]


@pytest.mark.parametrize("released", [False, True])
def test_a_table_whose_rows_nobody_touched_leaves_a_refused_resync_by_its_own_checkpoint(scene: Scene, released: bool) -> None:
    """A release alone does not help: what was loaded before the refusal is not known."""
    assert scene.table("hold", "shop.orders") == 0
    assert scene.run() == 3
    assert scene.table("resync", "shop.orders", "--at", "1") == 0
    assert scene.run() == 3
    assert scene.orders is TableStatus.HELD
    scene.both()
    if released:
        assert scene.table("release", "shop.orders") == 0
        assert scene.run() == 3
        assert scene.orders is TableStatus.INCOMPLETE
    own = scene.state().table_checkpoint(ORDERS)
    assert scene.table("resync", "shop.orders", "--at", str(own)) == 0
    assert scene.run() == 0
    scene.is_whole()
