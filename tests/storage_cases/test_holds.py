"""Tables that a person holds: nothing touches them, the others go on, and they catch up when they are released."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from building import Bucket, ask, ledger, tables
from test_ownership import only

from headrace.cli.main import main
from headrace.engine import retries
from headrace.model.ledger import RequestKind, TableProgress, TableRequest, TableStatus
from headrace.model.table import TableId

pytestmark = pytest.mark.pipeline

T = TableId("test", "t")


@pytest.fixture(autouse=True)
def _one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_LOOKS", 0)


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return begun(tmp_path)


def begun(folder: Path) -> Bucket:
    """``t`` and ``o`` have rows up to 120."""
    bucket = Bucket(folder)
    tables(bucket, "o")
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a", "I 111 2 b")
    assert bucket.at(120).code == 0
    return bucket


def table(bucket: Bucket, *words: str) -> int:
    """``headrace table …``"""
    return main(["table", *words, "--sink", bucket.sink])


def own(bucket: Bucket, table_id: TableId = T) -> TableProgress:
    return ledger(bucket).tables[table_id]


def listed(bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    capsys.readouterr()
    assert table(bucket, "list", "--json") == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {event["table"]: event for event in events if event["event"] == "stopped_table"}


def execute(bucket: Bucket, *statements: str) -> None:
    with duckdb.connect(str(bucket.database)) as connection:
        for statement in statements:
            connection.execute(statement)


def test_a_running_table_is_held_and_catches_up_when_it_is_released(bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    assert table(bucket, "hold", "test.t") == 0
    assert (listed(bucket, capsys)["test.t"]["status"], listed(bucket, capsys)["test.t"]["held"]) == ("running", False)
    bucket.rows("t/100/2", "U 150 1 c", "D 151 2 b")
    ran = bucket.at(300)
    assert (ran.code, "the table is held at 120" in ran.told) == (3, True)
    assert (own(bucket).status, own(bucket).checkpoint) == (TableStatus.HELD, 120)
    shown = listed(bucket, capsys)["test.t"]
    assert (shown["status"], shown["held"], [f["file"] for f in shown["files"]]) == ("held", True, ["test/t/100/CDC000002.csv"])
    bucket.rows("o/100/2", "I 350 5 later")
    assert bucket.at(400).code == 3
    assert bucket.state("t") == [(1, "a"), (2, "b")]
    assert (5, "later") in (bucket.state("o") or [])
    assert table(bucket, "release", "test.t") == 0
    assert bucket.run().code == 0  # also while the watermark stands still
    assert bucket.state("t") == [(1, "c")]
    assert (own(bucket).status, ledger(bucket).requests) == (TableStatus.RUNNING, {})


def test_a_table_that_is_loaded_while_it_is_held_is_not_tried_before_the_load_is_over(bucket: Bucket) -> None:
    """The first run behind a repair used to apply rows that the load then overwrote or brought back."""
    execute(bucket, "ALTER TABLE test.t DROP COLUMN v")
    bucket.rows("t/100/2", "U 150 1 b")
    assert set(bucket.at(160).stopped) == {"test.t"}
    assert table(bucket, "hold", "test.t") == 0
    assert bucket.at(170).code == 3
    stopped = own(bucket)
    assert (stopped.status, stopped.checkpoint) == (TableStatus.STOPPED, 120)
    bucket.rows("t/100/3", "U 250 1 c", "D 260 2 b")
    execute(bucket, "DROP TABLE test.t", "CREATE TABLE test.t (id INT PRIMARY KEY, v VARCHAR)")
    assert bucket.at(300).code == 3
    assert own(bucket) == stopped
    assert bucket.state("t") == []
    execute(bucket, "INSERT INTO test.t VALUES (1, 'b'), (2, 'b')")  # the rows as of 200
    assert table(bucket, "resync", "test.t", "--at", "200") == 0
    assert bucket.at(400).code == 0
    assert bucket.state("t") == [(1, "c")]
    assert ledger(bucket).requests == {}


def test_schema_changes_of_a_held_table_wait_and_others_go_on(bucket: Bucket) -> None:
    assert table(bucket, "hold", "test.t") == 0
    bucket.schema("t", 200, "id,v,c", "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", 5)
    bucket.schema("o", 260, "id,v,c", "ALTER TABLE `o` ADD COLUMN `c` INT DEFAULT 7", 5)
    bucket.schema("z", 220, "id,v,c", "RENAME TABLE `test`.`t` TO `test`.`z`", 14)
    ran = bucket.at(300)
    assert ran.code == 3
    assert "test.t, which is held. It goes on when test.t does: headrace table release test.t" in ran.stopped["test.z"]
    assert [len(row) for row in (bucket.state("t") or [])] == [2, 2]
    assert {len(row) for row in (bucket.state("o") or [])} == {3}
    assert table(bucket, "release", "test.t") == 0
    ran = bucket.at(310)
    assert (ran.code, ran.stopped) == (0, {})
    assert (bucket.state("t"), bucket.state("z")) == (None, [(1, "a", 7), (2, "b", 7)])


def test_the_end_of_a_held_table_that_lacks_rows_waits(bucket: Bucket) -> None:
    bucket.rows("t/100/4", "I 240 4 d")
    bucket.rows("t/100/5", "I 250 5 e")
    assert bucket.at(300, **only("*.*,!test.t")).code == 0
    (bucket.root / "test/t/100/CDC000004.csv").unlink()
    assert bucket.at(320).code == 3
    assert own(bucket).status is TableStatus.INCOMPLETE
    assert table(bucket, "hold", "test.t") == 0
    bucket.schema("t", 400, "id,v", "TRUNCATE TABLE `t`", 11)
    assert bucket.at(500).code == 3
    assert bucket.state("t") == [(1, "a"), (2, "b")]
    assert table(bucket, "release", "test.t") == 0
    assert bucket.at(510).code == 0
    assert bucket.state("t") == []


def test_a_file_is_given_up_when_the_table_is_released(bucket: Bucket) -> None:
    bucket.write(bucket.rows("t/100/2", "U 150 1 c"), b'"U","t"\x00\xff\r\n"')
    bucket.rows("t/100/3", "U 170 2 d")
    assert bucket.at(200).code == 3
    assert table(bucket, "hold", "test.t") == 0
    assert table(bucket, "skip", "test.t", "--file", "test/t/100/CDC000002.csv", "--yes") == 0
    assert bucket.at(210).code == 3
    assert (own(bucket).status, bucket.state("t")) == (TableStatus.STOPPED, [(1, "a"), (2, "b")])
    assert table(bucket, "release", "test.t") == 0
    assert bucket.at(220).code == 0
    assert bucket.state("t") == [(1, "a"), (2, "d")]


def test_a_hold_outlives_that_the_filter_leaves_the_table_out(bucket: Bucket) -> None:
    assert table(bucket, "hold", "test.t") == 0
    bucket.rows("t/100/2", "U 150 1 c")
    assert bucket.at(200, **only("*.*,!test.t")).code == 0
    assert bucket.at(300).code == 3
    assert (own(bucket).status, bucket.state("t")) == (TableStatus.HELD, [(1, "a"), (2, "b")])
    assert table(bucket, "release", "test.t") == 0
    assert bucket.at(310).code == 0
    assert bucket.state("t") == [(1, "c"), (2, "b")]


def test_a_release_ends_whatever_held_the_table_until_then(bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    ask(bucket, *(TableRequest(f"{number:020}", T, RequestKind.HOLD) for number in (1, 2)))
    for at in (250, 260):
        assert table(bucket, "resync", "test.t", "--at", str(10**17 + at)) == 0
    bucket.rows("t/100/2", "U 150 1 c")
    assert bucket.at(200).code == 3
    capsys.readouterr()
    assert table(bucket, "release", "test.t") == 0
    told = capsys.readouterr().out
    assert "taken back: headrace table resync test.t --sink " in told
    assert f" --at {10**17 + 260}\n" in told
    assert "it catches up from 120" in told
    assert bucket.at(210).code == 0
    assert (bucket.state("t"), ledger(bucket).requests) == ([(1, "c"), (2, "b")], {})


def test_a_hold_that_comes_after_a_release_stands(bucket: Bucket) -> None:
    for word in ("hold", "release", "hold"):
        assert table(bucket, word, "test.t") == 0
    bucket.rows("t/100/2", "U 150 1 c")
    assert bucket.at(200).code == 3
    assert (own(bucket).status, bucket.state("t")) == (TableStatus.HELD, [(1, "a"), (2, "b")])


def test_a_table_that_is_reset_and_then_held_is_not_touched(tmp_path: Path) -> None:
    """Neither was taken up yet, and no file of the table has to be read again."""
    bucket = Bucket(tmp_path)
    tables(bucket, "o")
    bucket.create("t")
    assert bucket.at(120).code == 0
    execute(bucket, "DROP TABLE test.t")
    assert main(["reset", "--table", "test.t", "--sink", bucket.sink, "--yes"]) == 0
    assert table(bucket, "hold", "test.t") == 0
    assert bucket.at(130).code == 3
    assert (own(bucket).status, own(bucket).checkpoint, bucket.state("t")) == (TableStatus.HELD, 100, None)
    assert table(bucket, "release", "test.t") == 0
    assert bucket.at(140).code == 0
    assert bucket.state("t") == []


@pytest.mark.parametrize("held", [True, False])
def test_a_table_that_was_loaded_in_vain_does_not_go_on_when_it_is_released(
    bucket: Bucket, held: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its rows are of before its place, and nothing would bring what came between."""
    bucket.schema("t", 200, "id,v,c", "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", 5)
    bucket.rows("t/200/1", "U 250 2 d 8", "I 251 3 e 9")
    assert bucket.at(300).code == 0
    if held:
        assert table(bucket, "hold", "test.t") == 0
        assert bucket.at(310).code == 3
    execute(bucket, "DELETE FROM test.t", "INSERT INTO test.t VALUES (1, 'c', 7), (2, 'b', 7)")  # as of 190
    assert table(bucket, "resync", "test.t", "--at", "190") == 0
    ran = bucket.at(320)
    assert (ran.code, "run headrace table resync test.t once more" in ran.told) == (3, True)
    assert all("release" not in way for way in listed(bucket, capsys)["test.t"]["goes_on"])
    assert table(bucket, "release", "test.t") == 0
    assert "it does not go on: it was loaded as of 190" in capsys.readouterr().out
    bucket.rows("t/200/2", "U 325 1 x 1", "U 345 3 y 2")
    assert bucket.at(330).code == 3
    assert (own(bucket).status, ledger(bucket).requests) == (TableStatus.INCOMPLETE, {})
    execute(bucket, "DELETE FROM test.t", "INSERT INTO test.t VALUES (1, 'x', 1), (2, 'd', 8), (3, 'e', 9)")  # as of 340
    assert table(bucket, "resync", "test.t", "--at", "340") == 0
    assert bucket.at(350).code == 0
    assert bucket.state("t") == [(1, "x", 1), (2, "d", 8), (3, "y", 2)]


def test_a_table_that_was_loaded_and_is_released_instead_lacks_rows(bucket: Bucket) -> None:
    bucket.rows("t/100/2", "U 150 1 c")
    assert bucket.at(200).code == 0
    assert table(bucket, "hold", "test.t") == 0
    assert bucket.at(210).code == 3
    assert table(bucket, "resync", "test.t", "--at", "130") == 0
    assert table(bucket, "release", "test.t") == 0
    ran = bucket.at(220)
    assert (ran.code, "it was loaded as of 130 and released" in ran.told) == (3, True)
    assert own(bucket).status is TableStatus.INCOMPLETE


@pytest.mark.parametrize("renamed", [False, True])
def test_a_table_that_was_loaded_and_is_released_while_it_is_left_out_lacks_rows(bucket: Bucket, renamed: bool) -> None:
    """Its place is not that of its rows, however it comes back into the filter."""
    without = only("*.*,!test.t")
    lost = bucket.rows("t/100/2", "U 150 1 c", "I 160 3 n", "D 250 2 b")
    assert bucket.at(300).code == 0
    assert table(bucket, "hold", "test.t") == 0
    assert bucket.at(301).code == 3
    (bucket.root / lost).unlink()  # so no resync to before it is carried out
    assert table(bucket, "resync", "test.t", "--at", "130") == 0
    if renamed:
        bucket.schema("z", 305, "id,v", "RENAME TABLE `test`.`t` TO `test`.`z`", 14)
    bucket.at(310, **without)
    assert own(bucket).status is TableStatus.EXCLUDED
    assert table(bucket, "release", "test.t") == 0
    assert bucket.at(320, **without).code == (3 if renamed else 0)
    assert own(bucket).status is (TableStatus.GONE if renamed else TableStatus.INCOMPLETE)
    assert bucket.at(400, **(without if renamed else {})).code == 3
    assert own(bucket, TableId("test", "z") if renamed else T).status is TableStatus.INCOMPLETE


def test_each_load_that_a_release_takes_back_counts(bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody loads the table as of before its place, and asks for another time by mistake."""
    bucket.rows("t/100/2", "U 150 1 c")
    assert bucket.at(300).code == 0
    for words in (["hold"], ["resync", "--at", "130"], ["resync", "--at", "1300"], ["release"]):
        capsys.readouterr()
        assert table(bucket, words[0], "test.t", *words[1:]) == 0
    assert "it does not go on: it was loaded as of 130" in capsys.readouterr().out
    ran = bucket.at(320)
    assert (ran.code, "it was loaded as of 130 and released" in ran.told) == (3, True)
    assert own(bucket).status is TableStatus.INCOMPLETE


def test_what_cannot_be_held_or_released_is_told(bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    bucket.schema("o", 200, "id,v", "DROP TABLE `test`.`o`", 4)
    assert bucket.at(300).code == 0
    assert table(bucket, "hold", "test.t") == 0
    for words, told in {
        ("hold", "test.t"): "is already to be held",
        ("hold", "test.o"): "test.o cannot be held: nothing is written to it, because it is gone",
        ("hold", "test.none"): "knows no table test.none",
        ("hold", "test"): "knows no table test",
        ("release", "test.o"): "Held tables: test.t",
    }.items():
        assert table(bucket, *words) == 2
        assert told in capsys.readouterr().err
    assert bucket.at(310).code == 3
    assert table(bucket, "resume", "test.t") == 2
    assert "headrace table release test.t" in capsys.readouterr().err


def test_a_hold_that_is_asked_for_after_a_resync_stands(bucket: Bucket) -> None:
    """Neither was taken up yet."""
    bucket.rows("t/100/2", "U 150 1 c")
    assert bucket.at(170).code == 0
    assert table(bucket, "resync", "test.t", "--at", "160") == 0
    assert table(bucket, "hold", "test.t") == 0
    bucket.schema("t", 200, "id,v", "DROP TABLE `test`.`t`", 4)
    assert bucket.at(300).code == 3
    assert (own(bucket).status, own(bucket).checkpoint) == (TableStatus.HELD, 160)
    assert bucket.state("t") == [(1, "c"), (2, "b")]
    assert table(bucket, "release", "test.t") == 0
    assert bucket.at(310).code == 0
    assert (bucket.state("t"), ledger(bucket).requests) == (None, {})


@pytest.mark.parametrize("then", ["resync", "reset"])
def test_a_table_is_held_once_more_when_its_hold_is_to_end(bucket: Bucket, then: str) -> None:
    """Somebody loads it once more: nothing may touch it then."""
    bucket.rows("t/100/2", "U 150 1 c")
    assert bucket.at(170).code == 0
    assert table(bucket, "hold", "test.t") == 0
    assert table(bucket, "hold", "test.t") == 2
    assert bucket.at(180).code == 3
    if then == "resync":
        assert table(bucket, "resync", "test.t", "--at", "160") == 0
    else:
        execute(bucket, "DROP TABLE test.t")
        assert main(["reset", "--table", "test.t", "--sink", bucket.sink, "--yes"]) == 0
    for expected in (0, 2):
        assert table(bucket, "hold", "test.t") == expected
    bucket.rows("t/100/3", "U 190 1 d")
    assert bucket.at(200).code == 3
    assert (own(bucket).status, own(bucket).checkpoint) == (TableStatus.HELD, 160 if then == "resync" else 100)
    assert bucket.state("t") == ([(1, "c"), (2, "b")] if then == "resync" else None)
    assert table(bucket, "release", "test.t") == 0
    assert bucket.at(210).code == 0
    assert bucket.state("t") == [(1, "d"), (2, "b")]


def test_a_held_table_that_the_filter_leaves_out_is_not_renamed_into_it(bucket: Bucket) -> None:
    assert table(bucket, "hold", "test.t") == 0
    assert bucket.at(130).code == 3
    bucket.rows("t/100/2", "U 150 1 c")
    bucket.schema("z", 200, "id,v", "RENAME TABLE `test`.`t` TO `test`.`z`", 14)
    ran = bucket.at(300, **only("*.*,!test.t"))
    assert (ran.code, "test.t, which is held" in ran.stopped["test.z"]) == (3, True)
    assert (bucket.state("t"), bucket.state("z")) == ([(1, "a"), (2, "b")], None)
    assert table(bucket, "release", "test.t") == 0
    assert bucket.at(310, **only("*.*,!test.t")).code == 0
    assert (bucket.state("t"), bucket.state("z")) == (None, [(1, "c"), (2, "b")])
