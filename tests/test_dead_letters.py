"""Dead letters: what cannot be applied is left out, lies in a folder, and takes its place after a repair."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from crashing import Crashed, CrashPoints, install
from damage import Repair, edit_line, remove, rewrite
from faulty_proxy import Fault, Kind, faulty_proxy
from following import Following, run_once
from harness import assert_state, spark_engine
from headrace.cli.display import RunDisplay
from headrace.cli.main import main
from headrace.cli.output import make_output
from headrace.engine.run_options import RunOptions
from headrace.errors import SinkUnreachableError
from headrace.model.ledger import LedgerState, RequestKind, TableRequest, TableStatus
from headrace.model.letters import Letter
from headrace.model.place import PlaceInFile
from headrace.model.policy import OnError
from headrace.model.table import Column, TableId
from headrace.model.types import ColumnType, TypeKind
from headrace.pipeline.definition import Definition, read_settings
from headrace.pipeline.registry import open_sink
from headrace.pipeline.runner import PipelineRun
from headrace.sinks.dead_letters import KEPT_REPLAYED, DeadLetters, open_dead_letters
from headrace.testing.engine import LocalEngine
from headrace.testing.faults import Moment, Step, armed, crash_at
from headrace.testing.upstream import Delete, Insert, Statement, Update
from places import Place
from quick import without_pauses
from servers import S3Server
from targets import DuckDbTarget, Target
from upstreams import CUSTOMERS, INT, KEY, NAME, ORDERS, VISITS, Changefeed, visit

pytestmark = pytest.mark.pipeline

BROKEN = {"csv": b'"I","orders","shop",no number', "canal-json": b'{"broken":'}
DAY = Column("day", ColumnType(TypeKind.DATE))


def _order(letter: Letter) -> tuple[int, str, int]:
    place = letter.place
    return (letter.lo, "", 0) if place is None else (letter.lo, place.container, place.offset or 0)


def _line(letter: Letter) -> int | None:
    return letter.place.line if isinstance(letter.place, PlaceInFile) else None


class Scene:
    """Two tables in a changefeed, of which ``orders`` meets trouble; the first three rows of each are applied."""

    def __init__(self, place: Place, folder: Path, protocol: Any = "csv", **options: Any) -> None:
        self.place, self.protocol = place, protocol
        self.changefeed = Changefeed(folder / "feed", protocol, **options)
        self.upstream = self.changefeed.upstream
        self.folder = folder / "letters"
        self.target: Target
        self.uri: str
        self.target, self.uri = place.fresh()
        self.upstream.create_database("shop")
        for table_id in (ORDERS, CUSTOMERS):
            self.upstream.create_table(table_id, [KEY, NAME])
            self.upstream.execute(*(Insert(table_id, {"id": n, "name": f"number {n}"}) for n in (1, 2, 3)))
        self.upstream.checkpoint()
        assert self.run() == 0

    @property
    def box(self) -> DeadLetters:
        return open_dead_letters(str(self.folder), "default")

    def options(self, **more: Any) -> dict[str, Any]:
        return {"on_error": OnError.DEAD_LETTER, "letters": self.box} | more

    def run(self, **more: Any) -> int:
        return run_once(self.changefeed, self.uri, **self.options(**more))

    def write(self, *statements: Statement) -> Path:
        """One transaction each, then a checkpoint; the file that holds those of orders."""
        for statement in statements:
            self.upstream.execute(statement)
        self.upstream.checkpoint()
        return self.files()[-1]

    def orders(self, *numbers: int) -> Path:
        return self.write(*(Insert(ORDERS, {"id": n, "name": f"number {n}"}) for n in numbers))

    def files(self, table_id: TableId = ORDERS) -> list[Path]:
        root = self.changefeed.writer.root
        found = [p for p in (root / table_id.database / table_id.table).rglob("CDC*") if p.suffix in (".csv", ".json")]
        return sorted(found, key=lambda path: (int(path.relative_to(root).parts[2]), path))

    def breaks(self, path: Path, *lines: int) -> Repair:
        """Makes records of a file such as nobody can read."""
        repairs = [rewrite(path, edit_line(line, lambda _: BROKEN[self.protocol])) for line in lines]
        return repairs[0]

    def letters(self, table_id: TableId = ORDERS) -> list[Letter]:
        return sorted(self.box.of(table_id).values(), key=_order)

    def ids(self, table_id: TableId = ORDERS) -> list[int]:
        return sorted(int(row[0] or 0) for row in self.target.rows("shop", table_id.table, {"id": "int"}))

    def state(self) -> LedgerState:
        with open_sink(self.uri) as sink:
            assert sink.ledger is not None
            state = sink.ledger.peek("default")
            sink.ledger.close()
        assert state is not None
        return state

    def replay(self, *words: str) -> int:
        """What a person asks for; the next run does it."""
        return main(["replay-dead-letters", *words, "--sink", self.uri])

    def ask(self, *requests: TableRequest) -> None:
        """As ``headrace table`` and ``headrace replay-dead-letters`` do."""
        with open_sink(self.uri) as sink:
            assert sink.ledger is not None
            for request in requests:
                sink.ledger.request("default", request)
            sink.ledger.close()

    def by_hand(self, *statements: str) -> None:
        """What a person does in the target."""
        if self.place.mariadb is not None:
            with self.place.mariadb.connect(autocommit=True) as connection, connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
            return
        assert isinstance(self.target, DuckDbTarget)
        with duckdb.connect(str(self.target.path)) as connection:
            for statement in statements:
                connection.execute(statement)

    def backup(self) -> Callable[[], object]:
        """Copies the target's file; what brings the copy back."""
        assert isinstance(self.target, DuckDbTarget)
        file, copy = self.target.path, self.target.path.with_suffix(".backup")
        shutil.copy(file, copy)
        return lambda: shutil.copy(copy, file)

    def replayed(self, table_id: TableId = ORDERS) -> list[Path]:
        """The files of letters that were replayed, and do not count any more."""
        return sorted((self.folder / "default" / table_id.database / table_id.table / "replayed").glob("*.json"))

    def is_whole(self) -> None:
        assert_state(self.target, self.changefeed.state())
        assert (self.letters(), self.state().dead_letters) == ([], {})


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)


@pytest.fixture(params=["csv", "canal-json"])
def scene(request: pytest.FixtureRequest, place: Place, tmp_path: Path) -> Scene:
    return Scene(place, tmp_path, request.param)


@pytest.fixture
def csv_scene(place: Place, tmp_path: Path) -> Scene:
    return Scene(place, tmp_path)


def test_a_bad_record_is_left_out_and_all_others_are_applied(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    before = scene.changefeed.watermark
    file = scene.orders(4, 5, 6, 7)
    line = file.read_bytes().split(b"\r\n")[1]
    scene.breaks(file, 2)
    capsys.readouterr()
    assert scene.run() == 0
    assert (scene.ids(), scene.ids(CUSTOMERS)) == ([1, 2, 3, 4, 6, 7], [1, 2, 3])
    state = scene.state()
    assert state.table_checkpoint(ORDERS) == state.checkpoint == scene.changefeed.watermark
    assert state.tables[ORDERS].status is TableStatus.RUNNING
    assert state.dead_letters == {ORDERS: 1}
    (letter,) = scene.letters()
    assert letter.raw == BROKEN[scene.protocol] != line
    assert (letter.table_id, letter.lo) == (ORDERS, before)
    name, offset = file.relative_to(scene.changefeed.writer.root).as_posix(), file.read_bytes().index(letter.raw)
    assert letter.place == PlaceInFile(name, 2, offset)
    (written,) = (scene.folder / "default" / "shop" / "orders").glob("*.json")
    assert json.loads(written.read_text())["reason"] == letter.reason
    assert (
        f"1 of its changes up to {state.checkpoint} could not be applied and are kept as dead letters in" in capsys.readouterr().err
    )
    assert main(["status", "--sink", scene.uri]) == 0
    assert "dead letters: 1 change that the target lacks" in capsys.readouterr().out
    assert main(["status", "--sink", scene.uri, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dead_letters"] == {"shop.orders": 1}


def test_after_a_repair_a_letter_takes_its_place_below_what_came_since(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    file = scene.write(
        Update(ORDERS, (1,), {"name": "old"}),
        Update(ORDERS, (2,), {"name": "only here"}),
        Delete(ORDERS, (3,)),
        Insert(ORDERS, {"id": 4, "name": "short-lived"}),
        Insert(ORDERS, {"id": 5, "name": "good"}),
    )
    lines = file.read_bytes().splitlines(keepends=True)
    repair = rewrite(file, lambda _: b"".join([BROKEN[scene.protocol] + b"\r\n"] * (len(lines) - 1) + lines[-1:]))
    scene.orders(10)
    assert scene.run() == 0
    assert scene.ids() == [1, 2, 3, 5, 10]
    scene.write(Update(ORDERS, (1,), {"name": "new"}), Insert(ORDERS, {"id": 3, "name": "again"}), Delete(ORDERS, (4,)))
    assert scene.run() == 0
    lost = scene.state().dead_letters[ORDERS]
    assert lost == len(scene.letters()) >= 4
    checkpoint = scene.state().checkpoint
    repair()
    assert scene.replay() == 0
    capsys.readouterr()
    assert scene.run() == 0
    assert f"its dead letters were replayed ({lost})." in capsys.readouterr().err
    scene.is_whole()
    assert (scene.state().checkpoint, scene.state().requests) == (checkpoint, {})
    scene.orders(11)
    assert scene.run() == 0
    scene.is_whole()


def test_what_is_still_bad_stays_a_letter_and_a_repeated_replay_does_no_harm(csv_scene: Scene) -> None:
    file = csv_scene.orders(4, 5, 6)
    whole = file.read_bytes()
    csv_scene.breaks(file, 1, 3)
    assert csv_scene.run() == 0
    later = csv_scene.orders(7, 8)
    repair = csv_scene.breaks(later, 2)
    assert csv_scene.run() == 0
    assert (csv_scene.ids(), csv_scene.state().dead_letters) == ([1, 2, 3, 5, 7], {ORDERS: 3})
    rewrite(file, edit_line(1, lambda _: whole.split(b"\r\n")[0]))
    repair()
    for _ in range(2):
        assert csv_scene.replay("--table", "shop.orders") == 0
        assert csv_scene.run() == 0
        assert (csv_scene.ids(), csv_scene.state().dead_letters) == ([1, 2, 3, 4, 5, 7, 8], {ORDERS: 1})
        assert [(_line(letter), letter.raw) for letter in csv_scene.letters()] == [(3, BROKEN["csv"])]
    file.write_bytes(whole)
    assert csv_scene.replay() == 0
    assert csv_scene.run() == 0
    csv_scene.is_whole()


def refused(scene: Scene) -> tuple[list[int], Repair]:
    """Rows of orders of which the target takes not all; the ids that it refuses, and how it comes to take them."""
    if scene.place.mariadb is not None:
        with scene.place.mariadb.connect() as connection, connection.cursor() as cursor:
            cursor.execute("ALTER TABLE shop.orders MODIFY name VARCHAR(12)")

        def repair() -> None:
            assert scene.place.mariadb is not None
            with scene.place.mariadb.connect() as connection, connection.cursor() as cursor:
                cursor.execute("ALTER TABLE shop.orders MODIFY name VARCHAR(40)")

        names = {n: {"name": f"number {n}" + " is long" * (n % 10 == 7)} for n in range(10, 60)}
    else:
        scene.upstream.add_column(ORDERS, DAY)
        scene.uri = scene.uri.partition("?")[0]

        def repair() -> None:
            scene.uri += "?zero-dates=null"

        names = {n: {"name": f"number {n}", "day": "0000-00-00" if n % 10 == 7 else "2026-01-01"} for n in range(10, 60)}
    scene.write(*(Insert(ORDERS, {"id": n, **row}) for n, row in names.items()))
    return [17, 27, 37, 47, 57], repair


@pytest.mark.parametrize("large", [False, True])
def test_rows_that_the_target_refuses_for_a_value_become_letters(
    large: bool, csv_scene: Scene, request: pytest.FixtureRequest
) -> None:
    if large:
        request.getfixturevalue("many_transactions")
    ids, repair = refused(csv_scene)
    assert csv_scene.run() == 0
    assert csv_scene.ids() == sorted({1, 2, 3, *range(10, 60)} - set(ids))
    assert csv_scene.state().dead_letters == {ORDERS: len(ids)}
    found = {int((letter.key or {})["id"] or 0): letter for letter in csv_scene.letters()}
    assert sorted(found) == ids
    for number, letter in found.items():
        assert letter.row is not None
        assert letter.row["id"] == str(number)
        assert letter.column in letter.row
        assert letter.raw is None
        assert letter.reason
    csv_scene.write(Update(ORDERS, (17,), {"name": "newer"}), Delete(ORDERS, (27,)), Update(ORDERS, (10,), {"name": "newer"}))
    assert csv_scene.run() == 0
    repair()
    assert csv_scene.replay() == 0
    assert csv_scene.run() == 0
    assert csv_scene.ids() == sorted({1, 2, 3, *range(10, 60)} - {27})
    assert (csv_scene.letters(), csv_scene.state().dead_letters) == ([], {})
    if csv_scene.place.mariadb is not None:
        csv_scene.is_whole()


def test_a_crash_at_any_step_of_a_cut_with_letters_is_made_good(csv_scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, number = 1, 10
    for fatal in range(1, 30):
        file = csv_scene.orders(number, number + 1, number + 2)
        csv_scene.breaks(file, 2)
        points = CrashPoints(fatal)
        with monkeypatch.context() as patch, suppress(Crashed):
            install(points, patch)
            csv_scene.run()
        assert csv_scene.run() == 0
        number += 3
        assert csv_scene.ids() == [1, 2, 3, *(n for n in range(10, number) if n % 3 != 2)], points.passed
        assert csv_scene.state().dead_letters == {ORDERS: fatal} == {ORDERS: len(csv_scene.letters())}, points.passed
        steps = max(steps, len(points.passed))
        if len(points.passed) < fatal:
            break
    assert steps >= 3


def test_letters_before_a_schema_change_are_counted_wherever_the_cut_breaks_off(
    csv_scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table moves past them with the journal, and a repeat of the cut does not read them again."""
    steps, number = 1, 10
    for fatal in range(1, 40):
        file = csv_scene.orders(number, number + 1)
        rewrite(file, edit_line(1, lambda line: line + b',"one more"'))  # its commit ts can still be read
        csv_scene.upstream.truncate_table(ORDERS)
        csv_scene.orders(number + 2)
        points = CrashPoints(fatal)
        with monkeypatch.context() as patch, suppress(Crashed):
            install(points, patch)
            csv_scene.run()
        assert csv_scene.run() == 0
        number += 3
        assert csv_scene.ids() == [number - 1], points.passed
        assert csv_scene.state().dead_letters == {ORDERS: fatal} == {ORDERS: len(csv_scene.letters())}, points.passed
        steps = max(steps, len(points.passed))
        if len(points.passed) < fatal:
            break
    assert steps >= 6


@pytest.mark.parametrize("moment", Moment)
def test_a_replay_waits_until_a_schema_change_that_was_begun_is_done(
    moment: Moment, csv_scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table is empty by then, or not; its checkpoint lies before."""
    repair = csv_scene.breaks(csv_scene.orders(4, 5), 1)
    assert csv_scene.run() == 0
    csv_scene.upstream.truncate_table(ORDERS)
    csv_scene.orders(6)
    with armed(crash_at(moment, Step.SCHEMA_CHANGE)), suppress(Crashed):
        csv_scene.run()
    repair()
    assert csv_scene.replay() == 0
    capsys.readouterr()
    assert csv_scene.run() == 0
    told = capsys.readouterr().err
    if csv_scene.place.mariadb is not None:  # a DuckDB file took all of it back
        assert "the replay of its dead letters waits until its schema change at" in told
        assert "came after its dead letters" in told
    assert csv_scene.replay("--discard", "--yes") == 0
    assert csv_scene.run() == 0
    csv_scene.is_whole()


def test_a_replay_waits_until_a_table_goes_on_from_where_it_was_loaded(csv_scene: Scene) -> None:
    """What was loaded is ahead of the table's checkpoint, and of the pipeline's."""
    repair = csv_scene.breaks(csv_scene.orders(4, 5), 1)
    assert csv_scene.run() == 0
    stops = csv_scene.write(Update(ORDERS, (5,), {"name": "older"}))
    mend = rewrite(stops, lambda data: data + b'"I","orders","shop",')
    assert csv_scene.run() == 3
    repair()
    csv_scene.write(Update(ORDERS, (4,), {"name": "loaded"}), Delete(ORDERS, (5,)))
    loaded = csv_scene.changefeed.watermark
    csv_scene.by_hand("DELETE FROM shop.orders WHERE id = 5", "INSERT INTO shop.orders VALUES (4, 'loaded')")
    csv_scene.ask(TableRequest("1", ORDERS, RequestKind.RESYNC, to=loaded), TableRequest("2", ORDERS, RequestKind.REPLAY))
    csv_scene.run()
    csv_scene.orders(9)
    csv_scene.run()
    mend()
    assert csv_scene.run() == 0
    assert_state(csv_scene.target, csv_scene.changefeed.state())
    assert csv_scene.replay() == 0
    assert csv_scene.run() == 0
    csv_scene.is_whole()


def test_letters_of_a_cut_that_was_not_taken_are_gone_after_the_repair(csv_scene: Scene) -> None:
    """Else they would count as changes that the target lacks."""
    good = csv_scene.orders(4, 5, 6)
    repair = csv_scene.breaks(good, 2)
    mend = rewrite(csv_scene.orders(7, 8), lambda data: data + b'"I","orders","shop",')
    assert (csv_scene.run(), csv_scene.state().dead_letters, len(csv_scene.letters())) == (3, {}, 1)
    repair()
    mend()
    assert csv_scene.run() == 0
    csv_scene.is_whole()


def test_a_replay_that_does_not_find_the_letters_is_refused(csv_scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """Another run of the same name and folder replayed them for its own target, or the folder is another one."""
    repair = csv_scene.breaks(csv_scene.orders(4, 5), 1)
    assert csv_scene.run() == 0
    repair()
    assert csv_scene.replay() == 0
    capsys.readouterr()
    assert csv_scene.run(letters=open_dead_letters(f"{csv_scene.folder}-another", "default")) == 0
    assert "the ledger counts 1, and" in capsys.readouterr().err
    assert csv_scene.state().dead_letters == {ORDERS: 1}
    assert csv_scene.replay() == 0
    assert csv_scene.run() == 0
    csv_scene.is_whole()


def test_a_replay_that_a_restore_took_back_is_done_again(csv_scene: Scene) -> None:
    """The restored ledger counts the letter, and the rows are without it; later letters do not stand for it."""
    first = csv_scene.breaks(csv_scene.orders(4, 5), 2)
    assert csv_scene.run() == 0
    first()
    assert csv_scene.replay() == 0
    assert csv_scene.run() == 0
    csv_scene.is_whole()
    assert len(csv_scene.replayed()) == 1
    csv_scene.by_hand(
        "DELETE FROM shop.orders WHERE id = 5", "INSERT INTO headrace.dead_letters VALUES ('default', 'shop', 'orders', 1)"
    )
    second = csv_scene.breaks(csv_scene.orders(6, 7), 1)
    assert csv_scene.run() == 0
    assert (csv_scene.ids(), csv_scene.state().dead_letters) == ([1, 2, 3, 4, 7], {ORDERS: 2})
    second()
    assert csv_scene.replay() == 0
    assert csv_scene.run() == 0
    csv_scene.is_whole()


@pytest.fixture
def file_scene(tmp_path: Path) -> Scene:
    """With a target that a copy of its file restores."""
    return Scene(Place(tmp_path, None), tmp_path)


@pytest.mark.parametrize("is_repaired", [False, True])
def test_letters_of_a_cut_that_a_restore_took_back_do_not_stand_for_others(is_repaired: bool, file_scene: Scene) -> None:
    """They are made again where they still are bad."""
    scene = file_scene
    first = scene.breaks(scene.orders(4, 5), 2)
    assert scene.run() == 0
    restore = scene.backup()
    first()
    assert scene.replay() == 0
    assert scene.run() == 0
    second = scene.breaks(scene.orders(6, 7), 1)
    assert scene.run() == 0
    assert scene.state().dead_letters == {ORDERS: 1}
    restore()
    if is_repaired:
        second()
    scene.orders(8)
    assert scene.run() == 0
    assert scene.state().dead_letters == {ORDERS: 1 if is_repaired else 2}
    if not is_repaired:
        second()
    assert scene.replay() == 0
    assert scene.run() == 0
    scene.is_whole()


def test_letters_are_replayed_before_the_cut_that_a_restore_took_back_is_taken_again(file_scene: Scene) -> None:
    scene = file_scene
    first = scene.breaks(scene.orders(4, 5), 2)
    assert scene.run() == 0
    restore = scene.backup()
    first()
    assert scene.replay() == 0
    assert scene.run() == 0
    second = scene.breaks(scene.orders(6, 7), 2)
    assert scene.run() == 0
    restore()
    assert scene.replay() == 0
    assert scene.run() == 0
    assert (scene.ids(), scene.state().dead_letters) == ([1, 2, 3, 4, 5, 6], {ORDERS: 1})
    second()
    assert scene.replay() == 0
    assert scene.run() == 0
    scene.is_whole()


def test_a_letter_that_was_set_aside_counts_again_where_its_ledger_comes_back(file_scene: Scene) -> None:
    """An older backup was restored first, and its run applied the repaired record."""
    scene = file_scene
    older = scene.target.path.with_suffix(".older")
    shutil.copy(scene.target.path, older)
    repair = scene.breaks(scene.orders(4, 5), 2)
    assert scene.run() == 0
    restore = scene.backup()
    shutil.copy(older, scene.target.path)
    repair()
    scene.breaks(scene.orders(6, 7), 2)
    assert scene.run() == 0
    assert (scene.ids(), scene.state().dead_letters) == ([1, 2, 3, 4, 5, 6], {ORDERS: 1})
    restore()
    assert scene.run() == 0
    assert (scene.ids(), scene.state().dead_letters) == ([1, 2, 3, 4, 6], {ORDERS: 2})
    assert scene.replay() == 0
    assert scene.run() == 0
    assert (scene.ids(), scene.state().dead_letters) == ([1, 2, 3, 4, 5, 6], {ORDERS: 1})


def test_a_replay_that_a_restore_took_back_is_refused_behind_a_schema_change(
    file_scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = file_scene
    repair = scene.breaks(scene.orders(4, 5), 2)
    assert scene.run() == 0
    restore = scene.backup()
    repair()
    assert scene.replay() == 0
    assert scene.run() == 0
    restore()
    scene.upstream.add_column(ORDERS, Column("price", INT))
    again = scene.breaks(scene.orders(6, 7), 2)
    assert scene.run() == 0
    again()
    assert scene.replay() == 0
    capsys.readouterr()
    assert scene.run() == 0
    assert "from before its schema change" in capsys.readouterr().err
    assert (scene.ids(), scene.state().dead_letters) == ([1, 2, 3, 4, 6, 7], {ORDERS: 1})
    assert scene.replay("--discard", "--yes") == 0
    assert scene.run() == 0
    assert (scene.state().dead_letters, scene.letters(), scene.replayed()) == ({}, [], [])


def test_letters_of_a_table_that_was_renamed_are_kept_as_well(file_scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene = file_scene
    repair = scene.breaks(scene.orders(4, 5), 2)
    assert scene.run() == 0
    restore = scene.backup()
    repair()
    assert scene.replay() == 0
    assert scene.run() == 0
    scene.upstream.rename_table(ORDERS, TableId("shop", "sales"))
    scene.upstream.checkpoint()
    assert scene.run() == 0
    restore()
    assert scene.run() == 0
    assert scene.state().dead_letters == {ORDERS: 1}
    assert len(scene.replayed()) == 1
    assert main(["status", "--sink", scene.uri]) == 0
    assert "shop.orders: dead letters: 1, of a table that was dropped or renamed since" in capsys.readouterr().out


def test_letters_that_were_replayed_are_kept_for_thirty_days(file_scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene = file_scene
    repair = scene.breaks(scene.orders(4, 5), 2)
    assert scene.run() == 0
    restore = scene.backup()
    repair()
    assert scene.replay() == 0
    assert scene.run() == 0
    (old,) = scene.replayed()
    month = KEPT_REPLAYED.total_seconds()
    for age, kept in ((month - 3600, 2), (month + 3600, 2)):
        os.utime(old, (time.time() - age,) * 2)
        repair = scene.breaks(scene.orders(int(age), int(age) + 1), 2)
        assert scene.run() == 0
        repair()
        assert scene.replay() == 0
        assert scene.run() == 0
        assert (len(scene.replayed()), old.exists()) == (kept, age < month)
    restore()
    assert scene.run() == 0
    for path in scene.replayed():
        path.unlink()
    assert scene.replay() == 0
    capsys.readouterr()
    assert scene.run() == 0
    assert "the ledger counts 1, and" in capsys.readouterr().err
    assert scene.state().dead_letters == {ORDERS: 1}


def test_letters_that_a_table_makes_again_count_once(file_scene: Scene) -> None:
    """It goes back to where it was loaded, before them."""
    scene = file_scene
    loaded = scene.changefeed.watermark
    repair = scene.breaks(scene.orders(4, 5), 2)
    assert scene.run() == 0
    scene.by_hand("DELETE FROM shop.orders WHERE id > 3")
    scene.ask(TableRequest("1", ORDERS, RequestKind.RESYNC, to=loaded))
    assert scene.run() == 0
    assert (scene.ids(), scene.state().dead_letters, len(scene.letters())) == ([1, 2, 3, 4], {ORDERS: 1}, 1)
    repair()
    assert scene.replay() == 0
    assert scene.run() == 0
    scene.is_whole()


def test_letters_of_a_table_that_is_gone_are_told(csv_scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    csv_scene.breaks(csv_scene.orders(4, 5), 1)
    assert csv_scene.run() == 0
    csv_scene.upstream.rename_table(ORDERS, TableId("shop", "sales"))
    csv_scene.upstream.checkpoint()
    assert csv_scene.run() == 0
    capsys.readouterr()
    assert main(["status", "--sink", csv_scene.uri]) == 0
    assert "shop.orders: dead letters: 1, of a table that was dropped or renamed since" in capsys.readouterr().out


@pytest.mark.parametrize("step", [Step.LETTERS_PUT, Step.LETTERS_REMOVED])
@pytest.mark.parametrize("moment", Moment)
def test_a_crash_around_letters_is_made_good(moment: Moment, step: Step, csv_scene: Scene) -> None:
    repair = csv_scene.breaks(csv_scene.orders(10, 11, 12), 2)
    with armed(crash_at(moment, step)) as passed, suppress(Crashed):
        csv_scene.run()
    assert csv_scene.run() == 0
    assert (csv_scene.ids(), csv_scene.state().dead_letters) == ([1, 2, 3, 10, 12], {ORDERS: 1})
    csv_scene.write(Update(ORDERS, (10,), {"name": "newer"}))
    assert csv_scene.run() == 0
    repair()
    assert csv_scene.replay() == 0
    with armed(crash_at(moment, step)) as again, suppress(Crashed):
        csv_scene.run()
    assert (moment, step) in {(passage.moment, passage.step) for passage in (*passed, *again)}
    assert csv_scene.run() == 0
    csv_scene.is_whole()


def test_a_crash_at_any_step_of_a_replay_is_made_good(csv_scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[str] = []
    for fatal in range(1, 30):
        first = fatal * 10
        repair = csv_scene.breaks(csv_scene.orders(first, first + 1), 1)
        assert csv_scene.run() == 0
        csv_scene.write(Update(ORDERS, (first,), {"name": "newer"}) if fatal % 2 else Delete(ORDERS, (first + 1,)))
        assert csv_scene.run() == 0
        repair()
        assert csv_scene.replay() == 0
        points = CrashPoints(fatal)
        with monkeypatch.context() as patch, suppress(Crashed):
            install(points, patch)
            csv_scene.run()
        passed = points.passed
        assert csv_scene.run() == 0
        csv_scene.is_whole()
        assert csv_scene.state().requests == {}
        if len(passed) < fatal:
            break
    assert len(passed) >= 3


def test_too_many_letters_stop_the_table(csv_scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    file = csv_scene.orders(*range(10, 20))
    csv_scene.breaks(file, 1, 3, 5)
    few = open_dead_letters(str(csv_scene.folder), "default", most=2)
    assert csv_scene.run(letters=few) == 3
    assert "It is one bad record more than the 2 that may be left out." in capsys.readouterr().err
    assert (csv_scene.ids(), csv_scene.state().dead_letters) == ([1, 2, 3], {})
    assert csv_scene.run(letters=open_dead_letters(str(csv_scene.folder), "default", most=3)) == 0
    assert csv_scene.state().dead_letters == {ORDERS: 3}


@pytest.mark.parametrize("large", [False, True])
def test_too_many_letters_of_several_files_or_of_refused_rows_stop_the_table(
    large: bool, csv_scene: Scene, request: pytest.FixtureRequest
) -> None:
    if large:
        request.getfixturevalue("many_transactions")
    for number in (4, 6, 8):
        csv_scene.breaks(csv_scene.orders(number, number + 1), 1)
    few = open_dead_letters(str(csv_scene.folder), "default", most=2)
    assert csv_scene.run(letters=few) == 3
    assert "more than 2 of its records in one cut" in csv_scene.state().tables[ORDERS].reason
    assert csv_scene.run() == 0
    ids, _ = refused(csv_scene)
    assert csv_scene.run(letters=few) == 3
    assert csv_scene.state().tables[ORDERS].status is TableStatus.STOPPED
    assert csv_scene.run() == 0
    assert csv_scene.state().dead_letters == {ORDERS: 3 + len(ids)}


def test_whole_file_trouble_and_structure_still_stop_the_table(csv_scene: Scene) -> None:
    file = csv_scene.orders(4, 5)
    for damage in (
        lambda raw: raw.replace(b'"number 4"', b'"number" 4"'),
        lambda raw: raw[:-5],
        lambda raw: raw.replace(b'"number', b'5,"number'),
    ):
        repair = rewrite(file, damage)
        assert csv_scene.run() == 3
        assert csv_scene.state().tables[ORDERS].status is TableStatus.STOPPED
        repair()
    assert csv_scene.run() == 0
    execute(csv_scene, "ALTER TABLE shop.orders DROP COLUMN name")
    csv_scene.orders(6)
    assert csv_scene.run() == 3
    assert csv_scene.letters() == []


def execute(scene: Scene, statement: str) -> None:
    """What a person does in the target."""
    if scene.place.mariadb is not None:
        with scene.place.mariadb.connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement)
    else:
        import duckdb

        with duckdb.connect(scene.uri.removeprefix("duckdb://").partition("?")[0]) as file:
            file.execute(statement)


def test_a_table_without_key_stops_and_says_why(csv_scene: Scene) -> None:
    csv_scene.upstream.create_table(VISITS, [Column("page", NAME.type), Column("seconds", INT)])
    visit(csv_scene.upstream, "/", 1, 3)
    csv_scene.upstream.checkpoint()
    repair = csv_scene.breaks(csv_scene.files(VISITS)[-1], 1)
    assert csv_scene.run() == 3
    assert "A table without key has no dead letters" in csv_scene.state().tables[VISITS].reason
    assert csv_scene.letters(VISITS) == []
    repair()
    assert csv_scene.run() == 0
    csv_scene.is_whole()


def test_a_record_that_may_belong_to_another_cut_is_not_lost(csv_scene: Scene) -> None:
    """Its commit ts cannot be read, and rows of its file are taken in two cuts."""
    first = csv_scene.upstream.execute(Insert(ORDERS, {"id": 4, "name": "four"}))
    for number in (5, 6, 7):
        csv_scene.upstream.execute(Insert(ORDERS, {"id": number, "name": f"number {number}"}))
    csv_scene.upstream.checkpoint()
    repair = csv_scene.breaks(csv_scene.files()[-1], 2, 4)
    assert csv_scene.run(until=first) == 0
    early = len(csv_scene.letters())
    assert csv_scene.run() == 0
    assert early <= len(csv_scene.letters()) >= 2
    assert csv_scene.ids() == [1, 2, 3, 4, 6]
    repair()
    assert csv_scene.replay() == 0
    assert csv_scene.run() == 0
    csv_scene.is_whole()


def test_a_run_that_goes_on_replays_within_seconds(csv_scene: Scene) -> None:
    repair = csv_scene.breaks(csv_scene.orders(4, 5), 1)
    run = Following(csv_scene.changefeed, csv_scene.uri, **csv_scene.options())
    run.wait_for(csv_scene.changefeed.watermark)
    repair()
    assert csv_scene.replay() == 0
    run.wait_until(lambda: csv_scene.state().dead_letters == {})
    run.interrupt()
    run.ended()
    csv_scene.is_whole()


def test_replays_that_could_do_harm_are_refused_in_words(csv_scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    lost = csv_scene.orders(4, 5)
    repair = csv_scene.breaks(lost, 1)
    later = csv_scene.orders(6, 7)
    assert csv_scene.run() == 0

    def is_refused(why: str, **options: Any) -> None:
        assert csv_scene.replay() == 0
        capsys.readouterr()
        assert csv_scene.run(**options) == 0
        assert why in capsys.readouterr().err
        assert (csv_scene.ids(), len(csv_scene.letters())) == ([1, 2, 3, 5, 6, 7], 1)

    repair()
    for vanished in (later, lost):
        back = remove(vanished)
        is_refused("vanished since. Restore what is missing")
        back()
    folder = csv_scene.folder / "default" / "shop" / "orders"
    (folder / "README").write_text("no letter")
    (folder / "copy.json").write_text("{}")
    assert csv_scene.replay() == 0
    assert csv_scene.run() == 0
    assert "copy.json is no dead letter that this Headrace can read" in capsys.readouterr().err
    (folder / "copy.json").unlink()
    is_refused("waits for a run with --dead-letters", letters=None, on_error=OnError.STOP)
    csv_scene.upstream.add_column(ORDERS, Column("price", INT))
    csv_scene.upstream.execute(Delete(ORDERS, (6,)))
    csv_scene.upstream.checkpoint()
    assert csv_scene.run(letters=None, on_error=OnError.STOP) == 0
    capsys.readouterr()
    assert csv_scene.run() == 0
    assert "came after its dead letters" in capsys.readouterr().err
    assert (csv_scene.ids(), len(csv_scene.letters())) == ([1, 2, 3, 5, 7], 1)
    csv_scene.upstream.drop_table(ORDERS)
    csv_scene.upstream.checkpoint()
    assert csv_scene.run() == 0
    assert csv_scene.replay() == 0
    capsys.readouterr()
    assert csv_scene.run() == 0
    assert "the table is not there any more" in capsys.readouterr().err
    assert csv_scene.replay("--discard", "--yes") == 0
    assert csv_scene.run() == 0
    csv_scene.is_whole()


def test_letters_are_discarded_only_on_a_persons_word(csv_scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    csv_scene.breaks(csv_scene.orders(4, 5), 1)
    assert csv_scene.run() == 0
    for words, told in {
        ("--discard",): "Pass --yes",
        ("--table", "shop.customers"): "Tables with dead letters: shop.orders.",
    }.items():
        assert csv_scene.replay(*words) == 2
        assert told in capsys.readouterr().err
    assert csv_scene.replay("--discard", "--yes", "--json") == 0
    event = {"event": "request", "table": "shop.orders", "kind": "discard dead letters", "letters": 1}
    assert json.loads(capsys.readouterr().out) == event
    assert csv_scene.run() == 0
    assert (csv_scene.letters(), csv_scene.state().dead_letters, csv_scene.ids()) == ([], {}, [1, 2, 3, 5])
    assert csv_scene.replay() == 0
    assert "nothing was requested" in capsys.readouterr().out


def test_without_commit_ts_a_repaired_file_is_read_again_whole(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(place, tmp_path, include_commit_ts=False)
    repair = scene.breaks(scene.orders(4, 5), 1)
    assert scene.run() == 0
    assert (scene.ids(), scene.state().dead_letters) == ([1, 2, 3, 5], {ORDERS: 1})
    repair()
    assert scene.replay() == 0
    assert scene.run() == 0
    assert "rows carry no exact commit ts" in capsys.readouterr().err
    scene.orders(6)
    assert scene.run() == 0
    assert_state(scene.target, scene.changefeed.state())


def test_what_is_printed_takes_letters_and_no_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changefeed = Changefeed(tmp_path / "feed")
    changefeed.upstream.create_table(ORDERS, [KEY, NAME])
    for number in (1, 2, 3):
        changefeed.upstream.execute(Insert(ORDERS, {"id": number, "name": f"number {number}"}))
    changefeed.upstream.checkpoint()
    (file,) = (changefeed.writer.root / "shop").rglob("CDC*.csv")
    rewrite(file, edit_line(2, lambda _: BROKEN["csv"]))
    letters = open_dead_letters((tmp_path / "letters").as_uri(), "default")
    options = RunOptions(once=True, on_error=OnError.DEAD_LETTER, letters=letters)
    ledger = str(tmp_path / "ledger")
    definition = Definition(changefeed.uri, "print://", changefeed=str(changefeed.toml), ledger=ledger, options=options)

    def run() -> None:
        with RunDisplay(make_output(json=False, aside=True)) as display:
            assert PipelineRun(definition, display, LocalEngine()).run() == 0  # type: ignore[arg-type]

    run()
    assert [json.loads(line)["row"]["id"] for line in capsys.readouterr().out.splitlines() if '"+I"' in line] == [1, 3]
    assert len(letters.of(ORDERS)) == 1
    assert main(["replay-dead-letters", "--sink", "print://", "--ledger", ledger]) == 0
    capsys.readouterr()
    run()
    assert "print:// cannot undo what was written" in capsys.readouterr().err


def test_letters_lie_in_an_object_store(csv_scene: Scene, s3: S3Server) -> None:
    url = s3.uri(s3.make_bucket(), "letters")
    letters = open_dead_letters(url, "default")
    repair = csv_scene.breaks(csv_scene.orders(4, 5, 6), 1, 2)
    assert csv_scene.run(letters=letters) == 0
    assert [_line(letter) for letter in letters.of(ORDERS).values()] == [1, 2]
    assert "secret" not in f"{letters!r}{letters.location(ORDERS)}"
    repair()
    assert csv_scene.replay() == 0
    assert csv_scene.run(letters=letters) == 0
    assert letters.of(ORDERS) == {}
    csv_scene.by_hand(
        "DELETE FROM shop.orders WHERE id < 6", "INSERT INTO headrace.dead_letters VALUES ('default', 'shop', 'orders', 2)"
    )
    assert csv_scene.replay() == 0
    assert csv_scene.run(letters=letters) == 0
    assert csv_scene.ids() == [4, 5, 6]
    assert len(letters.replayed(ORDERS)) == 2
    assert letters.discard(ORDERS) == 0
    assert letters.replayed(ORDERS) == {}


@pytest.mark.parametrize("word", [(), ("--discard", "--yes")], ids=["replay", "discard"])
def test_a_request_waits_while_the_letters_are_listed_without_content(
    file_scene: Scene, s3: S3Server, word: tuple[str, ...]
) -> None:
    """Otherwise the request would be used up, or letters would stay that do not count any more."""
    scene = file_scene
    with faulty_proxy(s3.endpoint) as proxy:
        letters = open_dead_letters(replace(s3, endpoint=proxy.endpoint).uri(s3.make_bucket(), "letters"), "default")
        repair = scene.breaks(scene.orders(4, 5), 1)
        assert scene.run(letters=letters) == 0
        repair()
        assert scene.replay(*word) == 0
        with (
            proxy.troubled(Fault.HTML, only=Kind.LIST),
            pytest.raises(SinkUnreachableError, match="its listing lacks what was just written"),
        ):
            scene.run(letters=letters)
        assert scene.state().dead_letters == {ORDERS: 1}
        assert scene.run(letters=letters) == 0
        assert (letters.of(ORDERS), scene.state().dead_letters) == ({}, {})
        assert scene.ids() == ([1, 2, 3, 5] if word else [1, 2, 3, 4, 5])


def test_a_letter_that_is_answered_with_something_else_once_is_read_again(file_scene: Scene, s3: S3Server) -> None:
    scene = file_scene
    with faulty_proxy(s3.endpoint) as proxy:
        letters = open_dead_letters(replace(s3, endpoint=proxy.endpoint).uri(s3.make_bucket(), "letters"), "default")
        repair = scene.breaks(scene.orders(4, 5), 1)
        assert scene.run(letters=letters) == 0
        repair()
        assert scene.replay() == 0
        left = [Fault.HTML]
        proxy.fault = lambda request: left.pop() if request.kind is Kind.GET and left else None
        assert scene.run(letters=letters) == 0
        assert not left
    scene.is_whole()


@pytest.mark.parametrize("name", ["注文明細" * 8 + "甲", "é" * 64, "😀" * 64, "a.b" * 21, "orders"])
def test_letters_of_tables_with_long_names_are_found_again(tmp_path: Path, name: str) -> None:
    """Most file systems hold names of 255 bytes, and a name of 64 characters may take 768."""
    box = open_dead_letters(str(tmp_path / "letters"), "default")
    longer, other = TableId("店" * 64, name), TableId("店" * 64, name[:-1] + "乙")
    letters = [Letter(table_id, 1, 1, "no number", place=PlaceInFile("f", offset=0), raw=b"x") for table_id in (longer, other)]
    assert [box.put([letter]) for letter in letters] == [(letter.name,) for letter in letters]
    assert list(box.of(longer).values()) == letters[:1]
    assert box.discard(longer) == 1
    assert (box.names(longer), box.names(other)) == ([], [letters[1].name])


def test_letters_that_cannot_be_written_stop_the_table_until_they_can(csv_scene: Scene) -> None:
    csv_scene.breaks(csv_scene.orders(4, 5), 1)
    csv_scene.folder.write_text("a file where the folder should be")
    assert csv_scene.run() == 3
    assert "The dead-letter folder" in csv_scene.state().tables[ORDERS].reason
    assert csv_scene.ids() == [1, 2, 3]
    csv_scene.folder.unlink()
    assert csv_scene.run() == 0
    assert (csv_scene.ids(), csv_scene.state().dead_letters) == ([1, 2, 3, 5], {ORDERS: 1})


def test_a_lone_surrogate_is_left_out_and_replayed_like_other_bad_values(place: Place, tmp_path: Path) -> None:
    """JSON may write half of a surrogate pair, which UTF-8 cannot: the letter can be written nevertheless."""
    scene = Scene(place, tmp_path, "canal-json")
    half = edit_line(2, lambda line: line.replace(b"number 5", rb"a\ud800b"))
    repair = rewrite(scene.orders(4, 5, 6), half)
    scene.write(Insert(CUSTOMERS, {"id": 4, "name": "number 4"}))
    assert scene.run() == 0
    assert (scene.ids(), scene.ids(CUSTOMERS)) == ([1, 2, 3, 4, 6], [1, 2, 3, 4])
    (letter,) = scene.letters()
    assert (letter.value, scene.state().dead_letters) == ("a\ud800b", {ORDERS: 1})
    repair()
    assert (scene.replay(), scene.run()) == (0, 0)
    scene.is_whole()


def test_an_unforeseen_error_with_letters_stops_their_table_alone(csv_scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    csv_scene.breaks(csv_scene.orders(4, 5), 1)
    csv_scene.write(Insert(CUSTOMERS, {"id": 4, "name": "number 4"}))
    with monkeypatch.context() as patched:
        patched.setattr("headrace.sinks.dead_letters.letter_to_json", lambda letter: letter.raw + 1)
        assert csv_scene.run() == 3
    assert "Headrace failed while handling it" in csv_scene.state().tables[ORDERS].reason
    assert (csv_scene.ids(), csv_scene.ids(CUSTOMERS)) == ([1, 2, 3], [1, 2, 3, 4])
    assert csv_scene.run() == 0
    assert (csv_scene.ids(), csv_scene.state().dead_letters) == ([1, 2, 3, 5], {ORDERS: 1})


@pytest.mark.spark
def test_tasks_of_spark_write_letters(tmp_path: Path) -> None:
    scene = Scene(Place(tmp_path, None), tmp_path)
    repair = scene.breaks(scene.orders(4, 5, 6), 2)
    for step in ((), ("replay",)):
        if step:
            repair()
            assert scene.replay() == 0
        options = RunOptions(once=True, **scene.options())
        definition = Definition(scene.changefeed.uri, scene.uri, changefeed=str(scene.changefeed.toml), options=options)
        with RunDisplay(make_output(json=False)) as display:
            assert PipelineRun(definition, display, spark_engine()).run() == 0
        assert scene.ids() == ([1, 2, 3, 4, 5, 6] if step else [1, 2, 3, 4, 6])
    scene.is_whole()


def test_options_that_do_not_go_together_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    definition = tmp_path / "pipeline.yaml"
    for words, told in {
        ("--on-error", "ignore"): "'ignore' is not a valid value for on-error. Known are: dead-letter, stop.",
        ("--on-error", "dead-letter"): "no folder is named for dead letters. Name one with --dead-letters",
        ("--on-error", "dead-letter", "--dead-letters", "~no-such-user/letters"): "~no-such-user/letters names no folder",
        ("--on-error", "dead-letter", "--dead-letters", "ftp://nowhere/"): "No dead-letter folder can be kept at ftp://nowhere/",
        ("--max-dead-letters", "0"): "'0' is not a number of dead letters",
    }.items():
        assert main(["run", "--source", "file:///nowhere", *words]) == 2
        assert told in capsys.readouterr().err, words
    for line, told in {
        "on-error: ignore": "line 3, pipeline.on-error: 'ignore' is not a valid value for on-error. Known are: dead-letter, stop.",
        "max-dead-letters: many": "line 3, pipeline.max-dead-letters: 'many' is not a number of dead letters",
    }.items():
        definition.write_text(f'source: {{uri: "file:///nowhere"}}\npipeline:\n  {line}\n')
        assert main(["run", str(definition)]) == 2
        assert told in capsys.readouterr().err
    definition.write_text(
        'source: {uri: "file:///nowhere"}\npipeline: {name: shop, on-error: dead-letter, dead-letters: dead, max-dead-letters: 7}\n'
    )
    options = read_settings(definition).definition(RunOptions()).options
    assert options.on_error is OnError.DEAD_LETTER
    assert options.letters is not None
    assert (options.letters.pipeline, options.letters.most) == ("shop", 7)
    assert options.letters.location(ORDERS) == f"file://{tmp_path}/dead/shop/shop/orders"
