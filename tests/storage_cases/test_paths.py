"""Section 8.1 of the specification of TiCDC's storage output: paths and discovery."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from building import Bucket

from headrace.formats.storage_paths import DataPath, DateSeparator, parse_path
from headrace.model.table import TableId
from headrace.sources.ticdc_storage import open_source
from headrace.sources.ticdc_storage.inspection import FindingKind
from servers import S3Server
from storage_folder import OPTIONS, Consumer

pytestmark = pytest.mark.pipeline

DISPATCHER = "1234567890123456789987654321098765432"
NAMES = [
    ("my-db", "or.der$"),
    ("数据", "表"),
    ("a b", "c d"),
    ("100% +1%20", "c@d#e?f&g+h=%2F"),
    ("Shop", "ORDERS"),
    ("Shop", "a.b"),
    ("Shop.a", "b"),
]


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    made = Bucket(tmp_path)
    made.create("t")
    return made


@pytest.mark.parametrize(
    ("key", "separator", "expected"),
    [
        ("test/t/100/CDC000001.csv", "none", DataPath("test/t", 100, "", "", "", "000001", "csv")),
        ("test/t/100/2024-06-05/CDC000001.csv", "day", DataPath("test/t", 100, "", "2024-06-05", "", "000001", "csv")),
        ("test/t/100/2024/CDC000001.csv", "year", DataPath("test/t", 100, "", "2024", "", "000001", "csv")),
        ("test/t/100/2024-06/CDC000001.csv", "month", DataPath("test/t", 100, "", "2024-06", "", "000001", "csv")),
        ("test/p/100/112/CDC000001.csv", "none", DataPath("test/p", 100, "112", "", "", "000001", "csv")),
        ("test/p/100/112/2024-06-05/CDC000001.csv", "day", DataPath("test/p", 100, "112", "2024-06-05", "", "000001", "csv")),
        ("test/p/100/2024-06-05/CDC000001.csv", "day", DataPath("test/p", 100, "", "2024-06-05", "", "000001", "csv")),
        ("112/100/2024-06-05/CDC000001.csv", "day", DataPath("112", 100, "", "2024-06-05", "", "000001", "csv")),
        (
            f"test/t/100/2024-06-05/CDC_{DISPATCHER}_00000000000000000001.json",
            "day",
            DataPath("test/t", 100, "", "2024-06-05", DISPATCHER, "00000000000000000001", "json"),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_t01_every_layout_of_data_files_is_read_and_written(key: str, separator: str, expected: DataPath) -> None:
    assert parse_path(key, DateSeparator(separator)) == expected
    assert expected.key == key
    if separator != "year":
        # A year is the one directory that only the configuration can tell from a partition.
        assert parse_path(key) == expected


def test_t02_a_schema_file_is_never_taken_for_canal_json_data(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, "protocol=canal-json&enable-tidb-extension=true&date-separator=none")
    path = bucket.schema("t", 100)
    assert path == "test/t/meta/schema_100_3633961634.json"
    message = {"database": "test", "table": "t", "type": "INSERT", "es": 0, "old": None, "data": [{"id": "1", "v": "a"}]}
    bucket.write("test/t/100/CDC000001.json", json.dumps(message | {"_tidb": {"commitTs": 110}}) + "\r\n")
    bucket.checkpoint(200)
    offer = bucket.consumer().poll()
    assert [split.key for split in offer.splits] == ["test/t/100/CDC000001.json"]
    assert [change.file for change in offer.schema_changes] == [path]
    assert bucket.run().code == 0
    assert bucket.state() == [(1, "a")]


def test_t03_files_are_taken_in_the_order_of_their_numbers(bucket: Bucket) -> None:
    assert bucket.rows("t/100/1000000", "U 110 1 b") == "test/t/100/CDC1000000.csv"
    bucket.rows("t/100/999999", "U 110 1 a")
    assert bucket.at(200).code == 0
    assert bucket.state() == [(1, "b")]


def test_t04_a_dispatcher_is_digits_and_what_has_no_such_name_is_ignored_and_counted(bucket: Bucket) -> None:
    taken = bucket.rows("t/100/CDC_12345678901234567890_000001.csv", "I 110 1 a")
    for number, name in enumerate(("CDC__000001.csv", "CDC_abc_000001.csv", "CDC00001.csv"), 2):
        bucket.rows(f"t/100/{name}", f"I 110 {number} x")
    parsed = parse_path(taken)
    assert isinstance(parsed, DataPath)
    assert (parsed.dispatcher, parsed.number) == ("12345678901234567890", 1)
    ran = bucket.at(200)
    assert (ran.code, ran.files, ran.problems, bucket.state()) == (0, 1, [], [(1, "a")])
    (unknown,) = [f for f in open_source(bucket.folder.uri()).inspect().findings if f.kind is FindingKind.UNKNOWN_FILES]
    assert unknown.message.startswith("3 files")


def test_t05_names_of_any_characters_are_taken_as_they_are(tmp_path: Path) -> None:
    bucket = named_bucket(tmp_path)
    assert bucket.run().code == 0
    assert {name: bucket.state(name[1], name[0]) for name in NAMES} == {name: [(n, name[1])] for n, name in enumerate(NAMES)}


@pytest.mark.server
def test_t05_names_of_any_characters_are_taken_as_they_are_from_s3(tmp_path: Path, s3: S3Server) -> None:
    bucket = named_bucket(tmp_path)
    where = s3.make_bucket()
    s3.upload(bucket.root, where, "a feed/100%+1")
    uri = s3.uri(where, "a feed/100%+1", protocol="csv", terminator="\n", date_separator="none")
    consumer = Consumer(open_source(uri).event_source)
    consumer.cut()
    assert {name: row["v"] for name, _, row in consumer.rows} == {f"{database}.{table}": table for database, table in NAMES}


def named_bucket(folder: Path) -> Bucket:
    bucket = Bucket(folder)
    for number, (database, table) in enumerate(NAMES):
        bucket.create(table, 100, database=database)
        bucket.rows(f"{table}/100/1", ("I", 110, number, table), database=database)
    bucket.checkpoint(200)
    return bucket


def test_t05_a_name_with_a_slash_is_left_out_and_told(bucket: Bucket) -> None:
    """TiCDC's layout has no room for it: its folders could be those of other tables."""
    bucket.rows("t/100/1", "I 110 1 a")
    path = bucket.create("x/y", 100)
    bucket.rows("x/y/100/1", "I 110 7 b", name="x/y")
    ran = bucket.at(200)
    assert (ran.code, bucket.tables(), bucket.state()) == (0, {("test", "t")}, [(1, "a")])
    (notice,) = ran.notices
    assert notice.message.startswith("2 schema and data files lie in folders that do not match TiCDC's layout")
    assert notice.file in (path, "test/x/y/100/CDC000001.csv")


def test_t06_files_that_are_not_of_the_format_are_ignored(bucket: Bucket) -> None:
    bucket.rows("t/100/1", "I 110 1 a")
    whole = (bucket.root / "test/t/100/CDC000001.csv").read_text()
    for name in ("CDC000002.csv.tmp.6f1c2d9e", "CDC000001.csv.checkpoint"):
        bucket.write(f"test/t/100/{name}", whole.replace('"a"', '"b"'))
    bucket.write("README", "read me")
    ran = bucket.at(200)
    assert (ran.code, ran.notices, ran.problems, bucket.state()) == (0, [], [], [(1, "a")])
    assert {f.kind for f in open_source(bucket.folder.uri()).inspect().findings} == {
        FindingKind.UNKNOWN_FILES,
        FindingKind.TEMPORARY_FILES,
    }


@pytest.mark.server
def test_t06_an_empty_object_in_the_place_of_a_folder_is_ignored(bucket: Bucket, s3: S3Server) -> None:
    bucket.rows("t/100/1", "I 110 1 a")
    bucket.checkpoint(200)
    where = s3.make_bucket()
    s3.upload(bucket.root, where, "feed")
    for key in ("feed/", "feed/test/t/", "feed/test/t/100/"):
        s3.client().put_object(Bucket=where, Key=key, Body=b"")
    uri = s3.uri(where, "feed", protocol="csv", terminator="\n", date_separator="none")
    consumer = Consumer(open_source(uri).event_source)
    offer = consumer.cut()
    assert (offer.problems, offer.notices, consumer.changes) == ((), (), ["110 1 a"])
    assert open_source(uri).inspect().findings == ()


@pytest.mark.parametrize("told", ["", "&use-table-id-as-path=true"])
def test_t07_in_table_id_mode_the_names_come_from_the_schema_file(tmp_path: Path, told: str) -> None:
    bucket = Bucket(tmp_path, OPTIONS + told)
    assert bucket.schema("t", 100, parent="112") == "112/meta/schema_100_3633961634.json"
    bucket.write("112/100/CDC000001.csv", '"I","t","test",110,1,"a"\n')
    bucket.checkpoint(200)
    assert bucket.run().code == 0
    assert (bucket.tables(), bucket.state()) == ({("test", "t")}, [(1, "a")])
    assert open_source(bucket.folder.uri()).metadata_accessor.list_tables("test") == [TableId("test", "t")]


def test_t08_the_tree_of_old_releases_and_the_new_one_are_one_table(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    legacy = json.loads(bucket.folder.schema_text("t", 100))
    del legacy["Type"]
    text = json.dumps(legacy | {"TableColumnsTotal": "2"}, indent=4).replace("ColumnPrecision", "ColumnLength")
    bucket.write("test/t/100/schema.json", text)
    bucket.write("test/t/100/CDC.index", "CDC000001.csv\n")
    bucket.rows("t/100/1", "I 110 1 a", "I 120 2 b")
    bucket.schema("t", 200, type=0)
    # The other order of versions would bring the deleted row back.
    bucket.rows("t/200/1", "D 210 1 a", "I 220 3 c")
    ran = bucket.at(300)
    assert (ran.code, ran.notices) == (0, [])
    assert bucket.state() == [(2, "b"), (3, "c")]
    assert [c.commit_ts for c in bucket.consumer().poll().schema_changes] == [100]


def test_t09_an_index_may_name_a_file_that_is_still_to_come(bucket: Bucket) -> None:
    bucket.rows("t/100/1", "I 110 1 a")
    bucket.write("test/t/100/meta/CDC.index", "CDC000002.csv\n")
    ran = bucket.at(120)
    assert (ran.code, ran.problems, bucket.state()) == (0, [], [(1, "a")])
    bucket.rows("t/100/2", "I 130 2 b")
    assert bucket.at(140).code == 0
    assert bucket.state() == [(1, "a"), (2, "b")]


def test_t10_an_index_may_lag_behind_the_files(bucket: Bucket) -> None:
    bucket.rows("t/100/1", "I 110 1 a")
    bucket.rows("t/100/2", "I 120 2 b")
    bucket.write("test/t/100/meta/CDC.index", "CDC000001.csv\n")
    assert bucket.at(200).code == 0
    assert bucket.state() == [(1, "a"), (2, "b")]


def test_t11_an_empty_file_is_waited_for(bucket: Bucket) -> None:
    bucket.rows("t/100/1", "I 110 1 a")
    bucket.write("test/t/100/CDC000002.csv", "")
    ran = bucket.at(200)
    assert (ran.code, ran.files, ran.notices, bucket.state()) == (0, 1, [], [(1, "a")])
    bucket.rows("t/100/2", "I 210 2 b")
    assert bucket.at(300).files == 1
    assert bucket.state() == [(1, "a"), (2, "b")]
    # Applied once: nothing of it is left to read.
    assert bucket.at(400).files == 0


def test_t12_a_gap_in_the_numbers_is_told_and_stops_nothing(bucket: Bucket) -> None:
    bucket.rows("t/100/4", "I 110 1 a")
    bucket.rows("t/100/6", "I 120 2 b")
    ran = bucket.at(200)
    assert (ran.code, ran.problems, bucket.state()) == (0, [], [(1, "a"), (2, "b")])
    assert ran.told == "table test.t: File numbers 1-3,5 are missing. (test/t/100)"
    bucket.rows("t/100/7", "I 210 3 c")
    bucket.checkpoint(250)
    consumer = bucket.consumer()
    assert len(consumer.poll().notices) == 1
    assert consumer.poll().notices == ()


def test_t13_dates_of_directories_say_nothing_about_rows(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, "protocol=csv&terminator=%0A&date-separator=day")
    bucket.create("t")
    # Midnight between the two days lies between the two commit ts; the row of the 5th was written on the 6th.
    day = 1717632000000 << 18
    bucket.rows("t/100/2024-06-05/9", f"I {day - 2} 1 a", f"I {day - 1} 2 newest")
    bucket.rows("t/100/2024-06-06/1", f"U {day - 3} 2 older", f"U {day - 1} 1 z", f"I {day + 5} 3 c")
    assert bucket.at(day).code == 0
    assert bucket.state() == [(1, "z"), (2, "newest")]
    assert bucket.at(day + 9).code == 0
    assert bucket.state() == [(1, "z"), (2, "newest"), (3, "c")]


def test_t14_a_file_that_was_written_again_is_read_again_and_only_the_window_counts(bucket: Bucket) -> None:
    path = bucket.rows("t/100/1", "I 110 1 a")
    assert bucket.at(140).code == 0
    assert bucket.state() == [(1, "a")]
    # The first row is another one now: below the checkpoint it changes nothing.
    bucket.rows("t/100/1", "I 110 1 q", "I 120 2 q", "U 150 1 z")
    ran = bucket.at(200)
    assert ran.files == 1
    assert ran.told == f"table test.t: The file was written again after it was applied; it is read once more. ({path})"
    assert bucket.state() == [(1, "z")]
    assert bucket.at(300).files == 0


def test_t15_partitions_are_one_table_and_known_by_their_ids(bucket: Bucket) -> None:
    bucket.create("p")
    bucket.rows("p/100/112/1", "I 110 1 a", "D 120 1 a")
    bucket.rows("p/100/113/1", "I 120 1 moved", "I 130 2 b")
    bucket.checkpoint(200)
    splits = bucket.consumer().poll().splits
    assert [split.table_id for split in splits] == [TableId("test", "p")] * 2
    paths = [parse_path(split.key) for split in splits]
    assert [path.partition for path in paths if isinstance(path, DataPath)] == ["112", "113"]
    assert bucket.run().code == 0
    assert bucket.state("p") == [(1, "moved"), (2, "b")]
