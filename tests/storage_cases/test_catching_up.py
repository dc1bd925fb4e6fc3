"""Tables that catch up in cuts of their own, because more of them is behind than a cut takes: nothing of other tables is passed."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from building import Bucket, Ran, ledger_at
from test_ownership import only

from headrace.cli.main import main
from headrace.engine.loop import Loop
from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.model.ledger import Decision, TableStatus, Verdict
from headrace.model.offer import Offer
from headrace.model.policy import SchemaChangePolicies
from headrace.model.table import TableId
from headrace.pipeline.registry import open_sink
from headrace.sources.base import Bound
from person import Person
from places import Place
from targets import Target

pytestmark = pytest.mark.pipeline

Rows = list[tuple[str | None, ...]]
CUTS = [0, 30, 100]
BAD = '"I","{t}","test",160,"xx","b"\n'
GARBAGE = '"I","{t}","test",no number,1,"a"\n'
NOBODY = TableId("test", "nobody")
_MOST_STEPS = 60


@pytest.fixture
def _comes_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails a test whose runs go on and on."""
    steps, step = count(), Loop._step

    def counted(loop: Loop) -> bool:
        assert next(steps) < _MOST_STEPS, "the run goes on for ever"
        return step(loop)

    monkeypatch.setattr(Loop, "_step", counted)


class Backlog:
    """A changefeed and a target; each run takes about ``most`` bytes a cut."""

    def __init__(self, folder: Path, place: Place, most: int) -> None:
        self.bucket, self.most = Bucket(folder), most
        self.target: Target
        self.target, self.uri = place.fresh()

    def at(self, checkpoint: int, patterns: str = "", **options: Any) -> Ran:
        self.bucket.checkpoint(checkpoint)
        more = only(patterns) if patterns else {}
        return self.bucket.run(self.uri, max_cut=self.most, **more, **options)

    def damaged(self, place: str) -> Path:
        """A file with a record that cannot be read, and its row 2 once it is repaired."""
        path = self.bucket.root / self.bucket.rows(place, "I 160 2 b")
        path.write_text(BAD.format(t=place.split("/", maxsplit=1)[0]))
        return path

    def without_a_beginning(self, place: str) -> Path:
        """A file that cannot be read from its first record on, so that nothing tells where it begins."""
        path = self.bucket.root / self.bucket.rows(place, "I 160 1 a")
        path.write_text(GARBAGE.format(t=place.split("/", maxsplit=1)[0]))
        return path

    def statuses(self) -> dict[str, tuple[TableStatus, int]]:
        """How each table stands, and where."""
        return {t.table: (own.status, own.checkpoint) for t, own in ledger_at(self.uri).tables.items() if t.table}

    def approve(self) -> None:
        """A person approves all that waits."""
        with open_sink(self.uri) as sink:
            assert sink.ledger is not None
            for entry in ledger_at(self.uri).journal.values():
                if not entry.state.is_settled:
                    sink.ledger.decide("default", Decision(entry.identity, Verdict.APPROVE))
            sink.ledger.close()

    def repair(self, *paths: Path) -> None:
        for path in paths:
            path.write_text(path.read_text().replace('"xx"', "2"))

    def keys(self, table: str) -> list[str | None]:
        return sorted((row[0] for row in self.target.rows("test", table, {"id": "int"})), key=lambda key: int(str(key)))


@pytest.mark.parametrize("most", CUTS)
@pytest.mark.parametrize("renamed", [False, True])
def test_a_table_that_ends_in_one_part_and_begins_anew_in_a_later_one_has_its_rows(
    tmp_path: Path, place: Place, most: int, renamed: bool
) -> None:
    backlog = Backlog(tmp_path, place, most)
    bucket = backlog.bucket
    for number, table in enumerate("otx"):
        bucket.create(table, 99 + number)
        bucket.rows(f"{table}/{99 + number}/1", f"I 110 1 {table}")
    assert backlog.at(150).code == EXIT_OK
    late = [backlog.damaged("t/100/2")]
    if renamed:
        bucket.schema("b", 210, "id,v", "RENAME TABLE `test`.`t` TO `test`.`b`", 14)
        grows = "b/210"
    else:
        late.append(backlog.damaged("x/101/2"))
        bucket.schema("t", 210, "id,v", "DROP TABLE `test`.`t`", 4)
        grows = "x/101"
    for number in range(8):
        bucket.rows(f"{grows}/{number + 3}", f"I {214 + number * 8} {3 + number} c")
    bucket.create("t", 230)
    bucket.rows("t/230/1", "I 235 10 x")
    bucket.rows("t/230/2", "I 240 11 y")
    assert backlog.at(300).code == EXIT_TABLE_STOPPED
    backlog.repair(*late)
    for checkpoint in (310, 320, 330):
        assert backlog.at(checkpoint).code == EXIT_OK
    assert backlog.keys("t") == ["10", "11"]
    numbers = [str(number) for number in range(1, 11)]
    assert backlog.keys("b" if renamed else "x") == numbers


@pytest.mark.parametrize("most", CUTS)
@pytest.mark.parametrize("drop", ["DROP TABLE `test`.`t`", "DROP DATABASE `test`"])
def test_a_table_that_ends_while_it_catches_up_begins_anew_in_the_same_run(
    tmp_path: Path, place: Place, most: int, drop: str
) -> None:
    """Its next CREATE lies below the checkpoint, and nothing else leads to another cut."""
    backlog = Backlog(tmp_path, place, most)
    bucket = backlog.bucket
    bucket.create("o", 99)
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a")
    assert backlog.at(120).code == EXIT_OK
    bucket.schema("t", 130, "id,v,c", "ALTER TABLE `test`.`t` ADD COLUMN `c` INT", 6)
    if "TABLE" in drop:
        bucket.schema("t", 150, "id,v,c", drop, 4)
    else:
        bucket.schema("", 150, (), drop, 2)
        bucket.schema("", 151, (), "CREATE DATABASE `test`", 1)
    bucket.create("x", 156)  # as long as nobody knows that it is left out, a part of the backlog ends with its files
    for number in range(1, 5):
        bucket.rows(f"x/156/{number}", f"I 16{number} {number} x")
    bucket.create("t", 170)
    bucket.rows("t/170/1", "I 175 10 x")
    policies = SchemaChangePolicies.parse_text("add-column=approve")
    assert backlog.at(300, "*.*,!test.x", policies=policies).code == EXIT_TABLE_STOPPED
    backlog.approve()
    assert backlog.at(300, "*.*,!test.x", policies=policies).code == EXIT_OK
    assert backlog.keys("t") == ["10"]


@pytest.mark.parametrize("most", [0, 40])
def test_a_table_that_is_followed_out_of_the_filter_has_all_its_rows(tmp_path: Path, place: Place, most: int) -> None:
    backlog = Backlog(tmp_path, place, most)
    bucket = backlog.bucket
    bucket.create("a")
    bucket.create("o", 102)
    bucket.rows("o/102/1", "I 110 1 o")
    bucket.rows("a/100/1", "I 110 1 a")
    assert backlog.at(120).code == EXIT_OK
    late = backlog.damaged("a/100/2")
    bucket.rows("a/100/3", "I 165 3 a")
    bucket.schema("b", 200, "id,v", "RENAME TABLE `test`.`a` TO `test`.`b`", 14)
    for number in range(1, 5):
        bucket.rows(f"b/200/{number}", f"I 21{number} {number + 3} b")
    bucket.rows("o/102/2", "I 230 2 o")
    assert backlog.at(250, "*.*,!test.a").code == EXIT_TABLE_STOPPED
    backlog.repair(late)
    bucket.rows("o/102/3", "I 260 3 o")
    for checkpoint in (270, 280):
        assert backlog.at(checkpoint, "*.*,!test.a").code == EXIT_OK
    assert backlog.at(290).code == EXIT_OK
    assert backlog.keys("b") == [str(number) for number in range(1, 8)]


@pytest.mark.parametrize("most", [0, 100])
def test_a_table_that_was_never_included_waits_behind_the_parts_of_another(tmp_path: Path, place: Place, most: int) -> None:
    backlog = Backlog(tmp_path, place, most)
    bucket = backlog.bucket
    bucket.create("o", 99)
    bucket.create("c", 100)
    bucket.rows("c/100/1", "I 110 1 a")
    bucket.rows("o/99/1", "I 110 1 a")
    assert backlog.at(150).code == EXIT_OK
    for number in range(2, 10):
        bucket.rows(f"c/100/{number}", f"I 2{number}0 {number} x")
    bucket.create("n", 300)
    bucket.rows("n/300/1", "I 310 1 n")
    bucket.rows("n/300/2", "I 320 2 n")
    bucket.rows("o/99/2", "I 330 2 a")
    assert backlog.at(350, "test.o").code == EXIT_OK
    bucket.rows("o/99/3", "I 360 3 a")
    bucket.rows("n/300/3", "I 361 3 n")
    assert backlog.at(400).code == EXIT_OK
    assert (len(backlog.keys("c")), len(backlog.keys("n")), len(backlog.keys("o"))) == (9, 3, 3)


@pytest.mark.parametrize("most", [0, 1])
def test_a_table_that_catches_up_does_not_wait_for_its_database_that_waits_further_on(
    tmp_path: Path, place: Place, most: int
) -> None:
    """The database's DROP waits for the table, and the part that the table catches up in ends before it."""
    backlog = Backlog(tmp_path, place, most)
    bucket = backlog.bucket
    bucket.create("o", 99)
    bucket.rows("o/99/1", "I 110 1 o")
    assert backlog.at(120).code == EXIT_OK
    bucket.create("a", 130)
    bucket.rows("a/130/1", "I 135 1 a")
    bucket.rows("a/130/2", "I 136 2 a")
    bucket.schema("", 140, (), "DROP DATABASE `test`", 2)
    bucket.schema("", 150, (), "CREATE DATABASE `test`", 1)
    bucket.create("u", 160)
    bucket.rows("u/160/1", "I 165 1 u")
    policies = SchemaChangePolicies.parse_text("drop-database=approve,create-table=approve")
    ran = backlog.at(170, "*.*,!test.a", policies=policies)
    for checkpoint in range(180, 240, 10):
        ran = backlog.at(checkpoint, policies=policies)
        backlog.approve()
    assert (ran.code, ran.stopped) == (EXIT_OK, {})
    assert backlog.target.tables() == {("test", "u")}


@pytest.mark.usefixtures("_comes_to_an_end")
@pytest.mark.parametrize("most", [0, 1, 60, 150])
@pytest.mark.parametrize("stopped", [False, True])
def test_a_held_table_that_is_loaded_anew_while_another_catches_up_has_all_its_rows(
    tmp_path: Path, place: Place, most: int, stopped: bool
) -> None:
    """The part of the backlog that the source offers was asked for while the table was held still."""
    backlog = Backlog(tmp_path, place, most)
    bucket = backlog.bucket
    bucket.create("t", 100)
    bucket.create("o", 101)
    assert backlog.at(106).code == EXIT_OK
    if stopped:
        backlog.damaged("t/100/1")
        assert backlog.at(107).code == EXIT_TABLE_STOPPED
    assert main(["table", "hold", "test.t", "--sink", backlog.uri]) == 0
    assert backlog.at(108).code == EXIT_TABLE_STOPPED
    late = backlog.damaged("o/101/1")
    for number in range(3, 7):
        bucket.rows(f"o/101/{number}", f"I 1{number + 60} {number} o")
    bucket.rows("t/100/1", "I 110 1 a", "I 117 2 b")
    bucket.rows("t/100/2", "I 163 3 c", "I 164 4 d")
    bucket.rows("t/100/3", "I 190 5 e")
    assert backlog.at(200).code == EXIT_TABLE_STOPPED
    backlog.repair(late)
    Person.at(place, backlog.target).run("INSERT INTO test.t VALUES (1, 'a'), (2, 'b')")  # as of 120
    assert main(["table", "resync", "test.t", "--at", "120", "--sink", backlog.uri]) == 0
    for checkpoint in (210, 220):
        assert backlog.at(checkpoint).code == EXIT_OK
    assert (backlog.keys("t"), backlog.keys("o")) == (["1", "2", "3", "4", "5"], ["2", "3", "4", "5", "6"])


@pytest.mark.parametrize("most", CUTS)
def test_tables_of_one_change_catch_up_together_where_one_of_them_has_the_backlog(tmp_path: Path, place: Place, most: int) -> None:
    """The other one waits for it, and must be tried with it, not only before."""
    backlog = Backlog(tmp_path, place, most)
    bucket = backlog.bucket
    for number, table in enumerate("otx"):
        bucket.create(table, 99 + number)
        bucket.rows(f"{table}/{99 + number}/1", f"I 110 1 {table}")
    assert backlog.at(150).code == EXIT_OK
    for table in ("z", "t", "o"):
        swap = "RENAME TABLE `test`.`t` TO `test`.`z`, `test`.`o` TO `test`.`t`, `test`.`z` TO `test`.`o`"
        bucket.schema(table, 200, "id,v", swap, 14)
    for number in range(2, 10):
        bucket.rows(f"t/200/{number}", f"I 21{number} {number} b")
    for number in range(2, 6):
        bucket.rows(f"x/101/{number}", f"I 16{number} {number} x")
    approving = SchemaChangePolicies.parse_text("rename-table=approve")
    assert backlog.at(300, "*.*,!test.x", policies=approving).code == EXIT_TABLE_STOPPED
    bucket.rows("x/101/6", "I 320 9 x")
    assert (ran := backlog.at(350, "*.*,!test.x")).code == EXIT_OK, ran.stopped
    assert (backlog.keys("t"), backlog.keys("o")) == ([str(number) for number in range(1, 10)], ["1"])


@pytest.mark.usefixtures("_comes_to_an_end")
@pytest.mark.parametrize("most", [0, 1, 30, 50, 100])
@pytest.mark.parametrize("ended", [False, True])
def test_a_damaged_file_of_a_new_table_keeps_no_other_one_from_catching_up(
    tmp_path: Path, place: Place, most: int, ended: bool
) -> None:
    """The file lies in its table's version and not below it, though nothing tells where it begins. ``ended``: the name was used."""
    backlog = Backlog(tmp_path, place, most)
    bucket = backlog.bucket
    bucket.create("d", 99)
    bucket.rows("d/99/1", "I 110 1 x")
    if ended:
        bucket.create("a", 101)
        bucket.schema("a", 120, "id,v", "DROP TABLE `test`.`a`", 4)
    assert backlog.at(150).code == EXIT_OK
    late = backlog.damaged("d/99/2")
    for number in range(3, 7):
        bucket.rows(f"d/99/{number}", f"I 1{number + 60} {number} x")
    assert backlog.at(200).code == EXIT_TABLE_STOPPED
    bucket.create("a", 210)
    damaged = backlog.without_a_beginning("a/210/1")
    backlog.repair(late)
    ran = backlog.at(300)
    assert (ran.code, set(ran.stopped)) == (EXIT_TABLE_STOPPED, {"test.a"})
    assert backlog.keys("d") == [str(number) for number in range(1, 7)]
    assert backlog.statuses() == {"a": (TableStatus.STOPPED, 210), "d": (TableStatus.RUNNING, 300)}
    damaged.write_text('"I","a","test",220,1,"a"\n')
    assert backlog.at(310).code == EXIT_OK
    assert backlog.keys("a") == ["1"]


@pytest.mark.usefixtures("_comes_to_an_end")
@pytest.mark.parametrize("most", [0, 1, 30, 50, 100])
def test_a_damaged_file_of_a_new_table_is_told_beside_that_of_another(tmp_path: Path, place: Place, most: int) -> None:
    backlog = Backlog(tmp_path, place, most)
    bucket = backlog.bucket
    bucket.create("d", 99)
    bucket.rows("d/99/1", "I 110 1 x")
    assert backlog.at(150).code == EXIT_OK
    bucket.create("a", 155)
    damaged = [backlog.without_a_beginning("a/155/1"), backlog.without_a_beginning("d/99/2")]
    for checkpoint in (200, 210):
        ran = backlog.at(checkpoint)
        assert (ran.code, set(ran.stopped)) == (EXIT_TABLE_STOPPED, {"test.a", "test.d"})
        assert backlog.statuses() == {"a": (TableStatus.STOPPED, 155), "d": (TableStatus.STOPPED, 150)}
    for path in damaged:
        path.write_text(f'"I","{path.parent.parent.name}","test",160,2,"a"\n')
    assert backlog.at(220).code == EXIT_OK
    assert (backlog.keys("a"), backlog.keys("d")) == (["2"], ["1", "2"])


@pytest.mark.usefixtures("_comes_to_an_end")
@pytest.mark.parametrize("until_end", [False, True])
def test_a_part_that_moves_nothing_does_not_come_again_and_again(
    tmp_path: Path, place: Place, until_end: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a source says of tables that catch up: the others have their turn, and the run tells of it and ends."""
    backlog = Backlog(tmp_path, place, 30)
    backlog.bucket.create("d", 99)
    assert backlog.at(150).code == EXIT_OK
    poll = Loop._poll

    def with_endless_parts(loop: Loop, checkpoint: int, *, final: bool = False, bound: Bound | None = None) -> Offer:
        offer = poll(loop, checkpoint, final=final, bound=bound)
        if bound is None or not bound.counts(NOBODY, 100):
            return offer
        return replace(offer, watermark=120, schema_bound=121, promised=offer.watermark, splits=(), catches_up=frozenset({NOBODY}))

    monkeypatch.setattr(Loop, "_poll", with_endless_parts)
    for number in range(1, 4):
        backlog.bucket.rows(f"d/99/{number}", f"I 16{number} {number} x")
    options = {"once": False, "until_end": True, "quiet": 0.0, "poll_interval": 0.01} if until_end else {}
    ran = backlog.at(200, **options)
    assert (ran.code, backlog.keys("d")) == (EXIT_TABLE_STOPPED, ["1", "2", "3"])
    assert "table test.nobody: it is behind the other tables, and the last cut of its backlog made no progress." in ran.told


@pytest.mark.parametrize("altered", [False, True])
def test_a_file_without_a_beginning_of_a_table_that_was_made_anew_stops_that(tmp_path: Path, place: Place, altered: bool) -> None:
    """Nothing tells that its rows do not begin in the table's former life, in which it is not there any more when they are due."""
    backlog = Backlog(tmp_path, place, 0)
    bucket = backlog.bucket
    bucket.create("t", 100)
    bucket.rows("t/100/1", "I 110 1 a")
    assert backlog.at(150).code == EXIT_OK
    bucket.schema("t", 150, "id,v", "DROP TABLE `test`.`t`", 4)
    bucket.create("t", 230)
    if altered:
        bucket.schema("t", 240, "id,v", "ALTER TABLE `test`.`t` COMMENT 'x'", 17)
    path = backlog.without_a_beginning(f"t/{240 if altered else 230}/1")
    bucket.rows(f"t/{240 if altered else 230}/2", "I 260 12 c")
    for _ in range(2):
        assert backlog.at(300).code == EXIT_TABLE_STOPPED
    path.write_text('"I","t","test",250,11,"b"\n')
    assert backlog.at(310).code == EXIT_OK
    assert backlog.keys("t") == ["11", "12"]
