"""Files of another protocol than the one that is read: their tables wait, and nothing counts as applied."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import duckdb
import pytest
from building import Bucket, ledger

from headrace.cli.main import main
from headrace.model.table import TableId
from headrace.sources.ticdc_storage.position import StoragePosition
from headrace.transform.filters import TableFilter
from quick import without_pauses
from storage_folder import OPTIONS

pytestmark = pytest.mark.pipeline

JSON = OPTIONS.replace("csv", "canal-json")


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    without_pauses(monkeypatch)
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.create("o", 101)
    bucket.rows("t/100/1", "I 110 1 a", "I 140 2 b")
    return bucket


def test_a_wrong_protocol_loses_nothing(bucket: Bucket) -> None:
    assert JSON != OPTIONS
    bucket.options = JSON
    for checkpoint in (150, 160):
        ran = bucket.at(checkpoint)
        assert (ran.code, list(ran.stopped)) == (3, ["test.t"])
        assert "CDC000001.csv: The file is .csv, and the protocol is canal-json" in ran.stopped["test.t"]
        assert "No data file is .json: correct protocol=" in ran.stopped["test.t"]
    bucket.options = OPTIONS
    assert (bucket.run().code, bucket.state()) == (0, [(1, "a"), (2, "b")])


def test_a_file_of_another_protocol_stops_its_table_until_it_is_moved_away(bucket: Bucket) -> None:
    bucket.at(150)
    bucket.rows("o/101/1", "I 155 1 o")
    bucket.write("test/t/100/CDC000002.json", '{"type":"INSERT"}\n')
    ran = bucket.at(160)
    assert (ran.code, list(ran.stopped), bucket.state("o")) == (3, ["test.t"], [(1, "o")])
    assert "If it is not a file of this changefeed, move it away or give it up" in ran.stopped["test.t"]
    (bucket.root / "test/t/100/CDC000002.json").unlink()
    bucket.rows("t/100/2", "I 158 3 c")
    assert (bucket.at(170).code, bucket.state()) == (0, [(1, "a"), (2, "b"), (3, "c")])


def test_files_of_a_protocol_that_was_applied_before_stop_nothing(bucket: Bucket) -> None:
    bucket.at(150)
    assert (bucket.at(160).code, ledger(bucket).tables[TableId("test", "t")].status.value) == (0, "running")
    bucket.write("test/t/100/CDC000003.json", "")
    assert bucket.at(170).code == 0


def test_a_file_of_another_protocol_with_the_number_of_one_that_was_applied_stops_its_table(bucket: Bucket) -> None:
    bucket.at(150)
    bucket.write("test/t/100/CDC000001.json", '{"type":"INSERT"}\n')
    ran = bucket.at(160)
    assert (ran.code, list(ran.stopped)) == (3, ["test.t"])
    (bucket.root / "test/t/100/CDC000001.json").unlink()
    assert (bucket.at(170).code, bucket.state()) == (0, [(1, "a"), (2, "b")])


def _give_up(bucket: Bucket, path: str) -> int:
    return main(["table", "skip", "test.t", "--file", path, "--yes", "--sink", bucket.sink])


def test_a_file_of_another_protocol_can_be_given_up_and_leaves_its_number_to_the_changefeed(bucket: Bucket) -> None:
    bucket.at(150)
    foreign = "test/t/100/CDC000002.json"
    bucket.write(foreign, '{"type":"INSERT"}\n')
    assert bucket.at(160).code == 3
    assert _give_up(bucket, foreign) == 0
    assert (bucket.at(165).code, ledger(bucket).tables[TableId("test", "t")].status.value) == (0, "running")
    bucket.rows("t/100/2", "I 168 3 c")
    assert (bucket.at(170).code, bucket.state()) == (0, [(1, "a"), (2, "b"), (3, "c")])
    bucket.write(foreign, '{"type":"INSERT","id":0}\n')  # written again it is another file
    assert bucket.at(180).code == 3


def test_a_file_of_another_protocol_is_given_up_beside_an_unread_one_of_its_number(bucket: Bucket) -> None:
    bucket.at(150)
    bucket.rows("t/100/2", "I 158 3 c")
    bucket.write("test/t/100/CDC000002.json", '{"type":"INSERT"}\n')
    assert bucket.at(160).code == 3
    assert _give_up(bucket, "test/t/100/CDC000003.json") == 2  # there is none
    assert _give_up(bucket, "test/t/100/CDC000002.json") == 0
    assert (bucket.at(165).code, bucket.state()) == (0, [(1, "a"), (2, "b"), (3, "c")])


def test_a_file_of_another_protocol_in_a_version_that_is_over_stops_nothing(bucket: Bucket) -> None:
    bucket.at(150)
    bucket.schema("t", 155, "id,v", "TRUNCATE TABLE `test`.`t`", 11)
    bucket.rows("t/155/1", "I 158 3 c")
    assert bucket.at(160).code == 0
    bucket.write("test/t/100/CDC000002.json", '{"type":"INSERT"}\n')  # no file of the shape comes there any more
    assert (bucket.at(170).code, bucket.state()) == (0, [(3, "c")])
    bucket.write("test/t/155/CDC000002.json", '{"type":"INSERT"}\n')
    assert bucket.at(180).code == 3


CANAL = (
    '{"id":0,"database":"test","table":"t","pkNames":["id"],"isDdl":false,"type":"INSERT","es":0,"ts":0,"sql":"",'
    '"sqlType":{"id":4,"v":12},"mysqlType":{"id":"int","v":"varchar(64)"},"old":null,"data":[{"id":"1","v":"FOREIGN"}],'
    '"_tidb":{"commitTs":170}}\n'
)


def test_a_file_that_was_given_up_is_not_applied_when_the_others_are_removed(bucket: Bucket) -> None:
    bucket.options = bucket.options.replace("protocol=csv&", "").replace("&protocol=csv", "")  # by the files' names
    assert "protocol" not in bucket.options
    bucket.at(150)
    foreign = "test/t/100/CDC000007.json"
    bucket.write(foreign, CANAL)
    assert bucket.at(160).code == 3
    assert _give_up(bucket, foreign) == 0
    for path in [*bucket.root.glob("test/*/*/*.csv"), *bucket.root.glob("test/*/*/*/*.csv")]:
        path.unlink()  # as file-expiration-days does
    for checkpoint in (170, 180, 500):
        assert (bucket.at(checkpoint).code, bucket.state()) == (0, [(1, "a"), (2, "b")])
    bucket.rows("t/100/8", "I 510 3 c")
    assert (bucket.at(520).code, bucket.state()) == (0, [(1, "a"), (2, "b"), (3, "c")])


def test_the_protocol_stays_the_one_of_what_was_applied(bucket: Bucket) -> None:
    bucket.options = bucket.options.replace("protocol=csv&", "").replace("&protocol=csv", "")
    bucket.at(150)
    for path in [*bucket.root.glob("test/*/*/*.csv"), *bucket.root.glob("test/*/*/*/*.csv")]:
        path.unlink()
    for number in (7, 8):
        bucket.write(f"test/t/100/CDC00000{number}.json", CANAL)
    ran = bucket.at(200)
    assert (ran.code, bucket.state()) == (3, [(1, "a"), (2, "b")])
    assert "The file is .json, and the protocol is csv" in ran.stopped["test.t"]


def test_a_file_of_another_protocol_hides_no_gap_in_the_numbers(bucket: Bucket) -> None:
    bucket.at(150)
    foreign = "test/t/100/CDC000002.json"
    bucket.write(foreign, CANAL)
    assert bucket.at(160).code == 3
    assert _give_up(bucket, foreign) == 0
    bucket.at(165)
    bucket.rows("t/100/3", "I 168 3 c")
    assert "File numbers 2 are missing" in bucket.at(170).told


def test_a_protocol_that_was_detected_wrongly_is_corrected_in_the_uri(bucket: Bucket) -> None:
    """More files of another changefeed than of this one: what they hold may be applied, but the changefeed's own rows wait."""
    bucket.options = bucket.options.replace("protocol=csv&", "")
    for number in (7, 8):
        bucket.write(f"test/o/101/CDC00000{number}.json", CANAL.replace('"table":"t"', '"table":"o"'))
    ran = bucket.at(180)
    assert (ran.code, bucket.state()) == (3, None)
    assert "If the changefeed's protocol is csv, name it with protocol=csv in the source's URI" in ran.stopped["test.t"]
    bucket.options = OPTIONS
    bucket.rows("o/101/9", "I 185 5 e")
    ran = bucket.at(190)
    assert (list(ran.stopped), bucket.state()) == (["test.o"], [(1, "a"), (2, "b")])


@pytest.mark.parametrize("how", ["reset", "resync"])
def test_a_file_that_was_given_up_stands_for_no_file_of_its_number(bucket: Bucket, how: str) -> None:
    """A table that is to be read again, but whose file was removed, is refused."""
    bucket.rows("t/100/2", "I 145 3 c")
    bucket.at(150)
    foreign = "test/t/100/CDC000001.json"
    bucket.write(foreign, CANAL)
    assert bucket.at(160).code == 3
    assert _give_up(bucket, foreign) == 0
    bucket.at(165)
    (bucket.root / "test/t/100/CDC000001.csv").unlink()
    with duckdb.connect(str(bucket.database)) as target:
        target.execute("DROP TABLE test.t" if how == "reset" else "DELETE FROM test.t")
    command = ["reset", "--table", "test.t", "--yes"] if how == "reset" else ["table", "resync", "test.t", "--at", "105"]
    main([*command, "--sink", bucket.sink])
    bucket.rows("o/101/1", "I 168 1 o")
    ran = bucket.at(170)
    assert ran.code == 3
    assert "number 1" in ran.told + "".join(ran.stopped.values())


def test_a_position_that_went_back_misses_a_file_beside_one_of_another_protocol(bucket: Bucket) -> None:
    bucket.at(150)
    former = ledger(bucket).position
    bucket.rows("t/100/2", "I 155 3 c")
    bucket.at(160)
    known = ledger(bucket).position
    bucket.write("test/t/100/CDC000002.json", CANAL)
    (bucket.root / "test/t/100/CDC000002.csv").unlink()
    source = bucket.consumer().source
    assert "2.csv" in "".join(path for path, _ in StoragePosition.parse(source.missing_again(known, former)).unread_files())


def test_the_protocol_is_taken_from_what_an_older_ledger_knows_of_applied_files(bucket: Bucket) -> None:
    bucket.options = bucket.options.replace("protocol=csv&", "")
    bucket.at(150)
    with duckdb.connect(str(bucket.database)) as target:
        target.execute("""UPDATE headrace.pipelines SET source_position = replace(source_position, ',"y":"csv"', '')""")
    assert '"y"' not in ledger(bucket).position
    (bucket.root / "test/t/100/CDC000001.csv").unlink()
    bucket.write("test/t/100/CDC000002.json", CANAL)
    ran = bucket.at(200)
    assert "The file is .json, and the protocol is csv" in ran.stopped["test.t"]
    assert bucket.state() == [(1, "a"), (2, "b")]


def test_a_file_that_cannot_be_read_settles_no_protocol_and_takes_no_number(bucket: Bucket) -> None:
    bucket.options = bucket.options.replace("protocol=csv&", "")
    for path in bucket.root.glob("test/*/*/*.csv"):
        path.unlink()
    stray = "test/t/100/CDC000001.json"
    bucket.write(stray, "garbage\n")
    assert bucket.at(105).code == 3
    (bucket.root / stray).unlink()
    for number in (1, 2):
        bucket.rows(f"t/100/{number}", f"I {110 + number} {number} a")
    assert bucket.at(150).code == 3  # it vanished
    assert _give_up(bucket, stray) == 0
    ran = bucket.at(160)
    assert (ran.code, bucket.state()) == (0, [(1, "a"), (2, "a")])
    assert "written again" not in ran.told


def test_a_file_that_was_read_with_a_wrong_protocol_is_not_waited_for_once_it_is_given_up(bucket: Bucket) -> None:
    stray = "test/t/100/CDC000009.json"
    bucket.write(stray, "garbage\n")
    bucket.options = JSON
    assert bucket.at(150).code == 3
    bucket.options = OPTIONS
    assert bucket.at(160).code == 3
    assert _give_up(bucket, stray) == 0
    assert (bucket.at(170).code, bucket.state()) == (0, [(1, "a"), (2, "b")])
    (bucket.root / stray).unlink()
    bucket.rows("t/100/2", "I 175 3 c")
    assert (bucket.at(180).code, bucket.state()) == (0, [(1, "a"), (2, "b"), (3, "c")])


def test_an_old_file_of_another_protocol_with_a_number_that_was_applied_stops_its_table(bucket: Bucket) -> None:
    """Of so many files the position keeps the latest time alone."""
    for number in range(2, 72):
        bucket.rows(f"t/100/{number}", f"I {100 + number} {number + 10} x")
    bucket.at(180)
    bucket.write("test/t/100/CDC000001.json", CANAL)
    os.utime(bucket.root / "test/t/100/CDC000001.json", (1e9, 1e9))
    assert bucket.at(190).code == 3


def test_a_position_with_an_unknown_extension_is_refused() -> None:
    with pytest.raises(ValueError, match="is not the extension of a data file"):
        StoragePosition.parse('{"v":2,"w":1,"y":"avro"}')


@pytest.mark.parametrize("seed", range(12))
def test_any_history_with_files_of_another_protocol_is_applied_once_or_says_what_lacks(bucket: Bucket, seed: int) -> None:
    chance = Random(seed)
    if chance.random() < 0.5:
        bucket.options = bucket.options.replace("protocol=csv&", "")
    without_t = "*.*,!test.t"
    wanted, number, at, lost = [(1, "a"), (2, "b")], 1, 150, False
    bucket.at(at)
    told = ""
    for _ in range(12):
        at += 10
        match chance.choice(("rows", "rows", "foreign", "foreign", "expire", "lost", "leave out")):
            case "foreign":
                bucket.write(f"test/t/100/CDC{chance.randrange(1, number + 3):06d}.json", CANAL.replace("170", str(at - 5)))
            case "expire":
                for path in bucket.root.glob("test/t/100/*.csv"):
                    path.unlink()
            case "leave out":
                bucket.at(at, includes=TableFilter.parse(without_t).includes, filter_text=without_t)
                at += 10
            case step:
                number += 1
                if step == "lost":
                    lost = True
                else:
                    wanted.append((at, "x"))
                    bucket.rows(f"t/100/{number}", f"I {at - 5} {at} x")
        ran = bucket.at(at)
        told += ran.told
        for path in sorted(bucket.root.glob("test/t/100/*.json")) if ran.stopped else ():
            _give_up(bucket, str(path.relative_to(bucket.root)))
        at += 10
        ran = bucket.at(at)
        told += ran.told
        if ran.stopped:
            assert lost, ran.stopped
            assert "missing" in ran.stopped["test.t"]
            return
        assert sorted(bucket.state() or []) == sorted(wanted)
