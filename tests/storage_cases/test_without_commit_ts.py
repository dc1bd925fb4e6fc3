"""Files without commit ts: what tables have read before a schema change is not applied again behind it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from building import Bucket, ask
from test_holds import execute, table
from test_ownership import only

from headrace.cli.main import main
from headrace.engine import loop
from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED, EXIT_USAGE, TransientError
from headrace.model.ledger import RequestKind, TableRequest
from headrace.model.table import TableId
from headrace.testing.faults import Crashed, Moment, Step, armed, crash_at, fail_at
from places import Place
from quick import without_pauses
from storage_folder import ID, OPTIONS, V
from targets import Target

pytestmark = pytest.mark.pipeline

SWAP = "RENAME TABLE `test`.`t` TO `test`.`z`, `test`.`o` TO `test`.`t`, `test`.`z` TO `test`.`o`"
SHAPE = "ALTER TABLE `t` DROP COLUMN `v`, ADD COLUMN `c` INT DEFAULT 7"
Rows = dict[str, list[tuple[str | None, ...]]]
Happens = Callable[[Bucket], Rows]


def truncates(bucket: Bucket) -> Rows:
    bucket.schema("t", 200, "id,v", "TRUNCATE TABLE `t`", 11)
    write(bucket, "t/200/1", '"I","{t}","test",3,"c"')
    return {"t": [("3", "c")], "o": [("1", "o")]}


def creates_anew(bucket: Bucket) -> Rows:
    bucket.schema("t", 200, "id,v", "DROP TABLE `t`", 4)
    bucket.create("t", 201)
    write(bucket, "t/201/1", '"I","{t}","test",3,"c"')
    return {"t": [("3", "c")], "o": [("1", "o")]}


def swaps(bucket: Bucket) -> Rows:
    for name in ("z", "t", "o"):
        bucket.schema(name, 200, "id,v", SWAP, 14)
    write(bucket, "t/200/1", '"I","{t}","test",9,"t"')
    return {"t": [("1", "o"), ("9", "t")], "o": [("1", "a"), ("2", "b")]}


def changes_its_columns(bucket: Bucket) -> Rows:
    bucket.schema("t", 200, "id,c", SHAPE, 5)
    write(bucket, "t/200/1", '"I","{t}","test",3,5')
    return {"t": [("1", "7"), ("2", "7"), ("3", "5")], "o": [("1", "o")]}


CHANGES = [truncates, creates_anew, swaps, changes_its_columns]
POINTS = [
    (Moment.AFTER, Step.JOURNAL_PENDING),
    (Moment.AFTER, Step.SCHEMA_CHANGE),
    (Moment.AFTER, Step.JOURNAL_SETTLED),
    (Moment.BEFORE, Step.CHECKPOINT),
]


def write(bucket: Bucket, place: str, *records: str) -> Path:
    path = bucket.root / "test" / f"{place.rpartition('/')[0]}/CDC{int(place.rpartition('/')[2]):06d}.csv"
    bucket.write(str(path.relative_to(bucket.root)), "".join(f"{r.format(t=place.split('/', maxsplit=1)[0])}\n" for r in records))
    return path


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    without_pauses(monkeypatch)
    made = Bucket(tmp_path, OPTIONS + "&include-commit-ts=false")
    made.create("t", 100)
    made.create("o", 101)
    write(made, "t/100/1", '"I","{t}","test",1,"a"', '"I","{t}","test",2,"b"')
    write(made, "o/101/1", '"I","{t}","test",1,"o"')
    return made


def held(target: Target, tables: Rows) -> Rows:
    found = {table: sorted(target.columns("test", table), key=["id", "v", "c"].index) for table in tables}
    return {t: sorted(target.rows("test", t, dict.fromkeys(names, "varchar"))) for t, names in found.items()}


@pytest.mark.parametrize("happens", CHANGES)
@pytest.mark.parametrize(("moment", "step"), POINTS)
def test_a_cut_that_breaks_off_at_a_schema_change_is_right_when_it_is_taken_again(
    bucket: Bucket, place: Place, happens: Happens, moment: Moment, step: Step
) -> None:
    target, uri = place.fresh()
    assert bucket.at(105, sink=uri).code == EXIT_OK
    expected = happens(bucket)
    bucket.checkpoint(250)
    with armed(crash_at(moment, step)), pytest.raises(Crashed):
        bucket.run(uri)
    assert bucket.run(uri).code == EXIT_OK
    assert held(target, expected) == expected


@pytest.mark.parametrize("happens", CHANGES)
def test_a_passing_failure_behind_a_schema_change_repeats_nothing(bucket: Bucket, place: Place, happens: Happens) -> None:
    target, uri = place.fresh()
    expected = happens(bucket)
    bucket.checkpoint(250)
    with armed(fail_at(Moment.BEFORE, Step.CHECKPOINT, lambda: TransientError("for once"))):
        assert bucket.run(uri).code == EXIT_OK
    assert held(target, expected) == expected


@pytest.mark.parametrize("happens", CHANGES)
def test_a_table_that_stops_behind_a_schema_change_goes_on_from_there(bucket: Bucket, place: Place, happens: Happens) -> None:
    target, uri = place.fresh()
    expected = happens(bucket)
    (behind,) = bucket.root.glob("test/t/20?/CDC*.csv")
    whole = behind.read_text()
    behind.write_text(whole.rpartition(",")[0] + "\n")
    bucket.checkpoint(250)
    ran = bucket.run(uri)
    assert (ran.code, list(ran.stopped)) == (EXIT_TABLE_STOPPED, ["test.t"])
    behind.write_text(whole)
    bucket.checkpoint(260)
    assert bucket.run(uri).code == EXIT_OK
    assert held(target, expected) == expected


def test_a_table_that_comes_back_without_a_key_stops(bucket: Bucket, place: Place) -> None:
    """It was gone: nothing of it would be missed."""
    target, uri = place.fresh()
    assert bucket.at(150, sink=uri).code == EXIT_OK
    bucket.schema("t", 200, "id,v", "DROP TABLE `t`", 4)
    assert bucket.at(250, sink=uri).code == EXIT_OK
    keyless = ID | {"ColumnNullable": "true", "ColumnIsPk": "false"}
    bucket.schema("t", 300, (keyless, V), "CREATE TABLE `t` (`id` INT,`v` VARCHAR(16))", 3)
    write(bucket, "t/300/1", '"I","{t}","test",3,"c"')
    for checkpoint in (350, 360):
        ran = bucket.at(checkpoint, sink=uri)
        assert (ran.code, list(ran.stopped)) == (EXIT_TABLE_STOPPED, ["test.t"])
        assert "--key 'test.t=COLUMN,…'" in ran.stopped["test.t"]
    assert held(target, {"o": []}) == {"o": [("1", "o")]}


def test_a_dropped_database_is_passed_in_parts_too_by_a_table_that_it_took_while_left_out(bucket: Bucket, place: Place) -> None:
    """The database's DROP is over when the table is taken in, but not for the table."""
    target, uri = place.fresh()
    bucket.create("n", 102)
    write(bucket, "n/102/1", '"I","{t}","test",1,"n"')
    write(bucket, "n/102/2", '"I","{t}","test",2,"n"')
    bucket.schema("", 140, (), "DROP DATABASE `test`", 2)
    bucket.schema("", 150, (), "CREATE DATABASE `test`", 1)
    bucket.checkpoint(160)
    assert bucket.run(uri, **only("*.*,!test.n")).code == EXIT_OK
    bucket.create("u", 170)
    write(bucket, "u/170/1", '"I","{t}","test",1,"u"')
    bucket.checkpoint(180)
    assert bucket.run(uri, max_cut=1).code == EXIT_OK
    assert target.tables() == {("test", "u")}


def test_the_end_of_a_changefeed_is_reached_in_parts_without_what_is_left_out(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that nobody reads is not offered in each part, a tick of the clock further each time."""
    cuts = 0
    applied = loop.Loop._apply

    def counted(self: loop.Loop, *args: Any, **more: Any) -> Any:
        nonlocal cuts
        cuts += 1
        assert cuts < 30
        return applied(self, *args, **more)

    monkeypatch.setattr(loop.Loop, "_apply", counted)
    left_out = only("*.*,!test.t")
    assert bucket.at(150, **left_out).code == EXIT_OK
    write(bucket, "o/101/2", '"I","{t}","test",3,"c"')
    bucket.schema("o", 1 << 28, "id,v", "ALTER TABLE `o` ADD INDEX `i` (`v`)", 7)
    ran = bucket.run(max_cut=1, once=False, until_end=True, quiet=0.0, poll_interval=0.01, **left_out)
    assert (ran.code, bucket.state("o")) == (EXIT_OK, [(1, "o"), (3, "c")])


def test_without_commit_ts_a_table_that_was_loaded_leads_to_a_reset(bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing tells which rows of its files it has, whatever time it was loaded as of: those may hold rows above the checkpoint."""
    assert bucket.at(150).code == EXIT_OK
    assert table(bucket, "hold", "test.t") == 0
    write(bucket, "t/100/2", '"U","{t}","test",1,"c"')
    assert bucket.at(200).code == EXIT_TABLE_STOPPED
    assert table(bucket, "resync", "test.t", "--at", "150") == EXIT_USAGE
    assert "Let the pipeline begin anew on an empty target: headrace reset --sink " in capsys.readouterr().err
    ask(bucket, TableRequest("2", TableId("test", "t"), RequestKind.RESYNC, to=150))  # before a run knew what the source is
    ran = bucket.run()
    assert ran.code == EXIT_TABLE_STOPPED
    assert "Let the pipeline begin anew on an empty target: headrace reset." in ran.told
    execute(bucket, "DROP TABLE test.t", "DROP TABLE test.o")
    assert main(["reset", "--yes", "--sink", bucket.sink]) == EXIT_OK
    assert bucket.run().code == EXIT_OK
    assert bucket.state("t") == [(1, "c"), (2, "b")]
