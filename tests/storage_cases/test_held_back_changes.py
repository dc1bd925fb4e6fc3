"""An event filter of the changefeed holds back changes of columns: what follows is right in the target, or its table stops."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from building import COLUMNS, Bucket, Ran

from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.model.ledger import Decision, Verdict
from headrace.pipeline.registry import open_sink
from person import Person
from places import Place
from quick import without_pauses

pytestmark = pytest.mark.pipeline

Shape = tuple[dict[str, Any], ...]
ID, V, C = COLUMNS["id"], COLUMNS["v"], COLUMNS["c"]
SEVEN = C | {"ColumnDefault": "7"}
D, W, E, C_AS_V = C | {"ColumnName": "d"}, V | {"ColumnName": "w"}, SEVEN | {"ColumnName": "e"}, C | {"ColumnName": "v"}
TEXT = {"ColumnName": "c", "ColumnType": "VARCHAR", "ColumnPrecision": "9", "ColumnDefault": "z"}
WIDER = SEVEN | {"ColumnType": "BIGINT", "ColumnPrecision": "20"}


def with_ids(shape: Shape, *ids: int) -> Shape:
    return tuple(column | {"ColumnId": str(number)} for column, number in zip(shape, ids, strict=True))


class World:
    """A table ``test.t`` of columns id, v and c, with the row (1, 'a', 3), which the target has."""

    def __init__(self, place: Place, folder: Path, shape: Shape = (ID, V, C)) -> None:
        target, self.uri = place.fresh()
        self.bucket, self.person = Bucket(folder), Person.at(place, target)
        self.bucket.schema("t", 100, shape, "CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(16), `c` INT)", 3)
        self.bucket.rows("t/100/1", "I 110 1 a 3")
        assert self.at(120).code == EXIT_OK

    def at(self, checkpoint: int) -> Ran:
        self.bucket.checkpoint(checkpoint)
        return self.bucket.run(self.uri)

    def rows(self, columns: str = "*") -> list[tuple[Any, ...]]:
        return sorted(self.person.run(f"SELECT {columns} FROM test.t"))

    def decide(self, reason: str, verdict: Verdict) -> None:
        """A person decides about the change that a reason names."""
        with open_sink(self.uri) as sink:
            assert sink.ledger is not None
            sink.ledger.decide("default", Decision(reason.rsplit("'", 2)[1], verdict))
            sink.ledger.close()


@pytest.fixture
def world(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    without_pauses(monkeypatch)
    return World(place, tmp_path)


ADDED_AGAIN: dict[str, tuple[Shape, str]] = {
    "the same": ((ID, V, SEVEN), "ADD COLUMN `c` INT DEFAULT 7"),
    "in parentheses": ((ID, V, SEVEN), "ADD COLUMN (`c` INT DEFAULT 7)"),
    "unless it is there": ((ID, V, SEVEN), "ADD COLUMN IF NOT EXISTS `c` INT DEFAULT 7"),
    "together with another": ((ID, V, E, SEVEN), "ADD COLUMN `e` INT DEFAULT 7, ADD COLUMN `c` INT DEFAULT 7"),
    "another type": ((ID, V, TEXT), "ADD COLUMN `c` VARCHAR(9) DEFAULT 'z'"),
    "wider": ((ID, V, WIDER), "ADD COLUMN `c` BIGINT DEFAULT 7"),
    "first": ((SEVEN, ID, V), "ADD COLUMN `c` INT DEFAULT 7 FIRST"),
}


@pytest.mark.parametrize("how", ADDED_AGAIN)
def test_a_column_whose_drop_was_held_back_does_not_keep_its_values(world: World, how: str) -> None:
    shape, clauses = ADDED_AGAIN[how]
    world.bucket.schema("t", 150, shape, f"ALTER TABLE `t` {clauses}", 5)
    for checkpoint in (170, 180):
        ran = world.at(checkpoint)
        assert ran.code == EXIT_TABLE_STOPPED
        assert "column c: the source adds the column at 150, but the target already has it" in ran.stopped["test.t"]
        assert world.rows() == [(1, "a", 3)]
    world.person.run("ALTER TABLE test.t DROP COLUMN c")
    assert world.at(190).code == EXIT_OK
    assert world.rows("id, v, c") == [(1, "a", "z" if shape[-1] is TEXT else 7)]


UNEXPLAINED: dict[str, tuple[Shape, str, str]] = {
    "rename, drop": ((ID, D), "ALTER TABLE `t` DROP COLUMN `v`", "column d is new and column c is gone"),
    "rename, add": ((ID, V, D, E), "ALTER TABLE `t` ADD COLUMN `e` INT DEFAULT 7", "column d is new and column c is gone"),
    "rename, add the former name": ((ID, V, D, SEVEN), "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", "column d is new"),
    "rename, rename to the former name": (
        (ID, W, C_AS_V),
        "ALTER TABLE `t` RENAME COLUMN `c` TO `v`",
        "column w is new and column v is gone",
    ),
    "drop, rename to the former name": ((ID, C_AS_V), "ALTER TABLE `t` RENAME COLUMN `c` TO `v`", "column v is gone"),
    "drop, change to the former name": ((ID, C_AS_V), "ALTER TABLE `t` CHANGE `c` `v` INT", "column v is gone"),
    "drop, add another": ((ID, V, E), "ALTER TABLE `t` ADD COLUMN `e` INT DEFAULT 7", "column c is gone"),
    "add, rename": ((ID, V, C, E), "ALTER TABLE `t` RENAME COLUMN `d` TO `e`", "column e is new"),
    "add, comment": ((ID, V, C, D), "ALTER TABLE `t` COMMENT = 'x'", "column d is new"),
    "add, index": ((ID, V, C, D), "CREATE INDEX `i` ON `t` (`v`)", "column d is new"),
    "drop, truncate": ((ID, V), "TRUNCATE TABLE `t`", "column c is gone"),
    "rename, drop and add if": (
        (ID, V, D, E),
        "ALTER TABLE `t` DROP COLUMN IF EXISTS `c`, ADD COLUMN IF NOT EXISTS `d` INT DEFAULT 7, ADD COLUMN `e` INT DEFAULT 7",
        "column d is new, or column c under another name",
    ),
    "rename, shape alone": ((ID, V, D), "", "column d is new and column c is gone, and no statement says why"),
}


@pytest.mark.parametrize("which", UNEXPLAINED)
def test_a_statement_that_does_not_explain_the_columns_stops_the_table_before_it(world: World, which: str) -> None:
    shape, statement, gap = UNEXPLAINED[which]
    world.bucket.schema("t", 150, shape, statement, 5)
    for checkpoint in (170, 180):
        ran = world.at(checkpoint)
        assert ran.code == EXIT_TABLE_STOPPED
        assert gap in ran.stopped["test.t"]
        assert "A schema change of test.t between 100 and 150 is missing, perhaps because an event filter" in ran.stopped["test.t"]
        assert world.rows() == [(1, "a", 3)]


@pytest.mark.parametrize(("shape", "clause"), [((ID, V), "column c is gone"), ((ID, V, C, D), "column d is new")])
def test_a_table_that_is_renamed_stops_before_a_shape_that_no_statement_explains(world: World, shape: Shape, clause: str) -> None:
    world.bucket.schema("u", 150, shape, "RENAME TABLE `test`.`t` TO `test`.`u`")
    ran = world.at(160)
    assert ran.code == EXIT_TABLE_STOPPED
    assert any(clause in reason for reason in ran.stopped.values()), ran.stopped


def test_a_column_that_may_have_been_there_is_not_to_be_dropped_at_once(world: World) -> None:
    """Nothing was held back: the source had the column."""
    world.bucket.schema("t", 150, (ID, C), "ALTER TABLE `t` DROP COLUMN `v`, ADD COLUMN IF NOT EXISTS `c` INT DEFAULT 7")
    (reason,) = world.at(160).stopped.values()
    assert "If the source had the column before, the values are right" in reason


def test_the_missing_schema_file_lets_the_table_go_on(world: World) -> None:
    world.bucket.schema("t", 150, (ID, D), "ALTER TABLE `t` DROP COLUMN `v`", 6)
    world.bucket.rows("t/150/1", ("I", 160, 2, 9))
    assert world.at(170).code == EXIT_TABLE_STOPPED
    world.bucket.schema("t", 140, (ID, V, D), "ALTER TABLE `t` RENAME COLUMN `c` TO `d`", 12)
    ran = world.at(180)
    if ran.code == EXIT_TABLE_STOPPED:
        world.decide(ran.stopped["test.t"], Verdict.APPROVE)
        ran = world.at(190)
    assert (ran.code, world.rows("id, d")) == (EXIT_OK, [(1, 3), (2, 9)])


def test_a_person_may_do_both_changes_and_skip_the_statement(world: World) -> None:
    world.bucket.schema("t", 150, (ID, D), "ALTER TABLE `t` DROP COLUMN `v`", 6)
    world.bucket.rows("t/150/1", ("I", 160, 2, 9))
    reason = world.at(170).stopped["test.t"]
    world.person.run("ALTER TABLE test.t RENAME COLUMN c TO d")
    world.person.run("ALTER TABLE test.t DROP COLUMN v")
    world.decide(reason, Verdict.SKIP)
    assert (world.at(180).code, world.rows("id, d")) == (EXIT_OK, [(1, 3), (2, 9)])


def test_a_column_that_another_one_replaced_is_known_by_its_id(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DROP COLUMN and ADD COLUMN were both held back, so only the id shows that the column is new."""
    without_pauses(monkeypatch)
    world = World(place, tmp_path, with_ids((ID, V, C), 1, 2, 3))
    world.bucket.schema("t", 150, with_ids((ID, V, C), 1, 2, 4), "ALTER TABLE `t` COMMENT = 'x'", 25)
    ran = world.at(170)
    assert (ran.code, world.rows()) == (EXIT_TABLE_STOPPED, [(1, "a", 3)])
    assert "column c is new and column c is gone" in ran.stopped["test.t"]


LEGITIMATE: dict[str, tuple[Shape, str]] = {
    "a column that stays before older ones": (
        (ID, V, C, E),
        "ADD COLUMN IF NOT EXISTS `v` VARCHAR(16), ADD COLUMN `e` INT DEFAULT 7",
    ),
    "a column of the same id": (
        with_ids((ID, V, C, E), 1, 2, 3, 4),
        "ADD COLUMN IF NOT EXISTS `c` INT, ADD COLUMN `e` INT DEFAULT 7",
    ),
    "a column of another id after MODIFY": (
        with_ids((ID, V, WIDER, E), 1, 2, 5, 6),
        "MODIFY COLUMN `t`.`c` BIGINT DEFAULT 7, ADD COLUMN `e` INT DEFAULT 7",
    ),
    "a column that is not there to be dropped": ((ID, V, C, E), "DROP COLUMN IF EXISTS `x`, ADD COLUMN `e` INT DEFAULT 7"),
    "keys and columns": ((ID, V, C, E), "ADD COLUMN (`e` INT DEFAULT 7, INDEX `i` (`v`)), ADD INDEX `j` (`c`)"),
}


@pytest.mark.parametrize("what", LEGITIMATE)
def test_a_statement_that_explains_the_columns_runs(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    without_pauses(monkeypatch)
    world = World(place, tmp_path, with_ids((ID, V, C), 1, 2, 3))
    shape, clauses = LEGITIMATE[what]
    world.bucket.schema("t", 150, shape, f"ALTER TABLE `t` {clauses}", 5)
    ran = world.at(170)
    assert "Headrace cannot tell what" not in ran.stopped.get("test.t", "")
    assert "the target already has it" not in ran.stopped.get("test.t", "")
    if ran.code == EXIT_OK:
        assert world.rows("id, v, c, e") == [(1, "a", 3, 7)]


class Source:
    """A table of integers in the source. Each change of its columns is in the changefeed, or held back."""

    NAMES = ("a", "b", "c", "d")

    def __init__(self, chance: random.Random, *, ids: bool) -> None:
        self.chance, self.ids = chance, ids
        self.last_id = 1
        self.columns: list[dict[str, Any]] = []
        self.rows: dict[int, dict[str, int | None]] = {}
        for name in ("a", "b"):
            self.columns.append(self._new(name, 0))
        self.insert()

    @property
    def shape(self) -> Shape:
        key = ID | {"ColumnId": "1"} if self.ids else ID
        return (key, *(dict(column) for column in self.columns))

    @property
    def held(self) -> list[str]:
        return [column["ColumnName"] for column in self.columns]

    def contents(self) -> list[tuple[Any, ...]]:
        return sorted((key, *(row[name] for name in self.held)) for key, row in self.rows.items())

    def insert(self) -> tuple[Any, ...]:
        key = len(self.rows) + 1
        self.rows[key] = {name: self.chance.randrange(100, 1000) for name in self.held}
        return key, *(self.rows[key][name] for name in self.held)

    def alter(self) -> str:
        """Runs a random statement of one or two clauses, each about columns of its own. Returns its text."""
        touched: set[str] = set()
        clauses = [self._clause(touched) for _ in range(self.chance.choice((1, 1, 2)))]
        return f"ALTER TABLE `t` {', '.join(filter(None, clauses)) or 'COMMENT = ' + repr(str(self.chance.random()))}"

    def _new(self, name: str, default: int) -> dict[str, Any]:
        self.last_id += 1
        column = C | {"ColumnName": name, "ColumnDefault": str(default)}
        return column | {"ColumnId": str(self.last_id)} if self.ids else column

    def _clause(self, touched: set[str]) -> str:
        free = [name for name in self.NAMES if name not in self.held and name not in touched]
        own = [name for name in self.held if name not in touched]
        kinds: list[tuple[bool, Callable[[Sequence[str], Sequence[str], set[str]], str]]] = [
            (bool(free), self._add),
            (bool(own) and len(self.held) > 1, self._drop),
            (bool(own and free), self._rename),
            (bool(own and free), self._rename),
        ]
        possible = [kind for is_possible, kind in kinds if is_possible]
        return self.chance.choice(possible)(own, free, touched) if possible and self.chance.random() < 0.9 else ""

    def _add(self, own: Sequence[str], free: Sequence[str], touched: set[str]) -> str:
        name, default = self.chance.choice(free), self.chance.randrange(10, 100)
        first, condition = self.chance.random() < 0.2, self.chance.choice(("", "IF NOT EXISTS "))
        self.columns.insert(0 if first else len(self.columns), self._new(name, default))
        for row in self.rows.values():
            row[name] = default
        touched.add(name)
        return f"ADD COLUMN {condition}`{name}` INT DEFAULT {default}{' FIRST' if first else ''}"

    def _drop(self, own: Sequence[str], free: Sequence[str], touched: set[str]) -> str:
        name = self.chance.choice(own)
        self.columns = [column for column in self.columns if column["ColumnName"] != name]
        for row in self.rows.values():
            del row[name]
        touched.add(name)
        return f"DROP COLUMN `{name}`"

    def _rename(self, own: Sequence[str], free: Sequence[str], touched: set[str]) -> str:
        old, new = self.chance.choice(own), self.chance.choice(free)
        column = next(column for column in self.columns if column["ColumnName"] == old)
        column["ColumnName"] = new
        for row in self.rows.values():
            row[new] = row.pop(old)
        touched |= {old, new}
        definition = f"INT DEFAULT {column['ColumnDefault']}"
        return self.chance.choice((f"RENAME COLUMN `{old}` TO `{new}`", f"CHANGE COLUMN `{old}` `{new}` {definition}"))


def follows(
    source: Source, bucket: Bucket, run: Callable[[int], Ran], look: Callable[[str], list[tuple[Any, ...]]]
) -> tuple[bool, bool]:
    """Writes a history and runs it bit by bit until its table stops. Returns whether a change was held back, and if it stopped.

    TiCDC writes the shape without a statement when rows come after a change that it holds back. Without ids it does not show if a
    column is dropped and added, or renamed and added, by two such changes. So without ids there is one between two files.
    """
    chance = source.chance
    bucket.schema("t", 100, source.shape, "CREATE TABLE `t` (`id` INT PRIMARY KEY, `a` INT DEFAULT 0, `b` INT DEFAULT 0)", 3)
    bucket.rows("t/100/1", ("I", 105, *source.contents()[0]))
    assert run(109).code == EXIT_OK
    version, number, ever, missing = 100, 1, False, 0
    for at in range(110, 110 + 10 * chance.randrange(2, 7), 10):
        statement = source.alter()
        if chance.random() < 0.35 and (source.ids or not missing):
            ever, missing = True, missing + 1
        else:
            bucket.schema("t", at, source.shape, statement, 5)
            version, number, missing = at, 0, 0
        if chance.random() < 0.5:
            if missing:
                bucket.schema("t", at + 1, source.shape, "", 0)
                version, number, missing = at + 1, 0, 0
            number += 1
            bucket.rows(f"t/{version}/{number}", ("I", at + 5, *source.insert()))
        if not missing and chance.random() < 0.6:
            ran = run(at + 9)
            if ran.code == EXIT_TABLE_STOPPED:
                return ever, True
            assert look(", ".join(["id", *source.held])) == source.contents(), statement
    if missing:
        return ever, False
    ran = run(900)
    if ran.code == EXIT_OK:
        assert look(", ".join(["id", *source.held])) == source.contents()
    return ever, ran.code == EXIT_TABLE_STOPPED


@pytest.mark.parametrize("ids", [False, True])
def test_random_changes_of_columns_are_right_in_the_target_or_stop_it(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ids: bool
) -> None:
    """A history of which nothing is held back does not stop."""
    without_pauses(monkeypatch)
    found: list[tuple[bool, bool]] = []
    for seed in range(8):
        target, uri = place.fresh()
        bucket, person = Bucket(tmp_path / str(seed)), Person.at(place, target)

        def run(checkpoint: int, bucket: Bucket = bucket, uri: str = uri) -> Ran:
            bucket.checkpoint(checkpoint)
            return bucket.run(uri)

        def look(columns: str, person: Person = person) -> list[tuple[Any, ...]]:
            return sorted(person.run(f"SELECT {columns} FROM test.t"))

        found.append(follows(Source(random.Random(seed), ids=ids), bucket, run, look))
        assert found[-1] != (False, True), f"history {seed} stopped although the changefeed has all of it"
    assert found.count((True, True)) > 1
    assert found.count((False, False)) > 0
