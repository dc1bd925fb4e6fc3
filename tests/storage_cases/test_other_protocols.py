"""Files of another protocol than the one that is read: their tables wait, and nothing counts as applied."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import Bucket, ask, ledger

from headrace.cli.stopped_tables import new_request
from headrace.model.ledger import RequestKind
from headrace.model.place import PlaceInFile
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


def _give_up(bucket: Bucket, path: str) -> None:
    table_id = TableId("test", "t")
    state = ledger(bucket)
    since = state.table_checkpoint(table_id)
    ask(bucket, new_request(state, table_id, RequestKind.SKIP_FILE, since=since, place=PlaceInFile(path)))


def test_a_file_of_another_protocol_can_be_given_up_and_leaves_its_number_to_the_changefeed(bucket: Bucket) -> None:
    bucket.at(150)
    foreign = "test/t/100/CDC000002.json"
    bucket.write(foreign, '{"type":"INSERT"}\n')
    assert bucket.at(160).code == 3
    _give_up(bucket, foreign)
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
    _give_up(bucket, "test/t/100/CDC000002.json")
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
