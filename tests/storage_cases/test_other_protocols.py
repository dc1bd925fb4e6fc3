"""Files of another protocol than the one that is read: their tables wait, and nothing counts as applied."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import Bucket, ledger

from headrace.cli.main import main
from headrace.model.table import TableId
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
    '{"id":0,"database":"test","table":"t","pkNames":["id"],"isDdl":false,"type":"INSERT","es":1,"ts":1,"sql":"",'
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
    assert "name it with protocol= in the source's URI" in ran.stopped["test.t"]
    bucket.options = OPTIONS
    bucket.rows("o/101/9", "I 185 5 e")
    ran = bucket.at(190)
    assert (list(ran.stopped), bucket.state()) == (["test.o"], [(1, "a"), (2, "b")])
