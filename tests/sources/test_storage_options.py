"""What a user says of a changefeed: URI and changefeed file."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from headrace.errors import DefinitionError
from headrace.formats.storage_paths import DateSeparator
from headrace.model.table import TableId
from headrace.model.uri import parse_uri
from headrace.places.location import Location
from headrace.sources.changefeed_rules import ColumnSelector, ColumnSelectors
from headrace.sources.ticdc_storage.options import Protocol, StorageOptions, read_options
from headrace.sources.ticdc_storage.stores import store_location

CHANGEFEED = """
case-sensitive = false
force-replicate = true
memory-quota = 1073741824
[filter]
rules = ["*.*", "!test.*"]
[[filter.event-filters]]
matcher = ["test.worker"]
[mounter]
worker-num = 16
[sink]
protocol = "csv"
terminator = "\\n"
date-separator = "month"
file-index-digit = 6
[sink.csv]
delimiter = "\\t"
quote = "'"
null = "NULL"
include-commit-ts = true
output-old-value = true
binary-encoding-method = "hex"
[sink.cloud-storage-config]
flush-interval = "5s"
output-column-id = true
a-key-of-the-future = 1
[[sink.column-selectors]]
matcher = ["test.*"]
columns = ["*", "!secret"]
"""


def options(query: str = "", changefeed: str | None = None) -> StorageOptions:
    return read_options(parse_uri(f"s3://bucket/prefix?{query}"), changefeed)


def changefeed(tmp_path: Path, text: str) -> str:
    path = tmp_path / "changefeed.toml"
    path.write_text(text)
    return str(path)


def test_the_defaults_are_those_of_ticdc_and_unknown_facts_stay_unknown() -> None:
    told = options()
    assert (told.csv.delimiter, told.csv.quote, told.csv.null, told.csv.terminator) == (",", '"', "\\N", "\r\n")
    assert (told.protocol, told.date_separator, told.csv.include_commit_ts, told.enable_tidb_extension) == (None,) * 4


def test_the_changefeed_file_is_read_and_the_uri_wins(tmp_path: Path) -> None:
    told = options("date-separator=day&null=NIL&time-zone=Asia/Shanghai", changefeed(tmp_path, CHANGEFEED))
    assert told.protocol is Protocol.CSV
    assert told.date_separator is DateSeparator.DAY
    assert (told.csv.delimiter, told.csv.quote, told.csv.null, told.csv.terminator) == ("\t", "'", "NIL", "\n")
    assert told.csv.include_commit_ts is True
    assert told.csv.binary_encoding == "hex"
    assert told.csv.time_zone == told.canal_json.time_zone == "Asia/Shanghai"
    assert told.csv.column_selected is not None
    assert not told.csv.column_selected(TableId("test", "t"), "secret")
    assert told.csv.column_selected(TableId("test", "t"), "id")
    assert pickle.loads(pickle.dumps(told)) == told


def test_the_section_of_cloud_storage_tells_when_files_are_full_and_whether_updates_are_split(tmp_path: Path) -> None:
    text = "[sink.cloud-storage-config]\nfile-size = 1048576\noutput-raw-change-event = true\n"
    told = options("", changefeed(tmp_path, text))
    assert (told.file_size, told.raw_change_events) == (1 << 20, True)
    assert options("file-size=2097152", changefeed(tmp_path, text)).file_size == 2 << 20


def test_control_characters_may_be_written_in_the_uri() -> None:
    told = options("delimiter=%5Ct&terminator=%5Cr%5Cn")
    assert (told.csv.delimiter, told.csv.terminator) == ("\t", "\r\n")


def test_parameters_of_ticdc_that_do_not_concern_a_reader_are_accepted() -> None:
    told = options(
        "protocol=canal-json&enable-tidb-extension=true&worker-count=2&flush-interval=5s&file-size=1048576&storage-class=STANDARD"
        "&access-key=a&secret-access-key=b&endpoint=http://h:1&content-compatible=true"
    )
    assert told.protocol is Protocol.CANAL_JSON
    assert told.enable_tidb_extension is True


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("protcol=csv", "Did you mean 'protocol'"),
        ("protocol=avro", "is not one that Headrace reads"),
        ("include-commit-ts=maybe", "must be true or false"),
        ("quote=%22%22", "quote"),
        ("time-zone=Mars/Olympus", "Mars/Olympus"),
        ("date-separator=hour", "date-separator 'hour'"),
    ],
)
def test_mistakes_in_the_uri_are_explained(query: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        options(query)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[sinc]\n", "Did you mean 'sink'"),
        ("[sink]\nterminater = 'x'\n", "Did you mean 'terminator'"),
        ("[sink.csv]\nquotes = 'x'\n", "Did you mean 'quote'"),
        ("sink = 1\n", "is not a section"),
        ("[sink\n", "not valid TOML"),
        ("[sink]\nterminator = 1\n", "must be a text"),
        ("[[sink.column-selectors]]\nmatcher = ['a.b']\n", "lacks its lists"),
    ],
)
def test_mistakes_in_the_changefeed_file_are_explained(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        options("", changefeed(tmp_path, text))


def test_a_missing_changefeed_file_is_named() -> None:
    with pytest.raises(DefinitionError, match=r"nowhere\.toml cannot be read"):
        options("", "/nowhere.toml")


@pytest.mark.parametrize(
    ("matcher", "column"), [("a./^t$/", "*"), ("/^a/.t", "*"), ("!a\\_.t", "*"), ("a.[^b]", "*"), ("a.b", "/x/")]
)
def test_what_is_no_plain_pattern_is_not_taken_for_one(tmp_path: Path, matcher: str, column: str) -> None:
    text = f"[[sink.column-selectors]]\nmatcher = ['{matcher}']\ncolumns = ['{column}']\n"
    with pytest.raises(DefinitionError, match="is a regular expression, or has escapes"):
        options("", changefeed(tmp_path, text))


def test_slashes_in_quoted_names_are_no_regular_expression(tmp_path: Path) -> None:
    text = "[[sink.column-selectors]]\nmatcher = ['`/a`.t', 'x.a/b']\ncolumns = ['!v']\n"
    selected = options("", changefeed(tmp_path, text)).csv.column_selected
    assert selected is not None
    assert [selected(TableId(*name), "v") for name in (("/a", "t"), ("x", "a/b"), ("x", "c"))] == [False, False, True]


def test_the_first_selector_that_holds_decides_and_in_it_the_last_rule() -> None:
    selectors = ColumnSelectors(
        (
            ColumnSelector(("shop.orders_?", "!shop.orders_x"), ("*", "!price*", "price_net")),
            ColumnSelector(("shop.*",), ("id",)),
        )
    )
    orders = TableId("Shop", "orders_1")
    assert [selectors(orders, name) for name in ("id", "price", "PRICE_NET")] == [True, False, True]
    assert [selectors(TableId("shop", "orders_x"), name) for name in ("id", "price")] == [True, False]
    assert selectors(TableId("other", "t"), "anything")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("file://data/x", "file:///data/x"),
        ("file:///", "names no folder"),
        ("s3:///prefix", "names no bucket"),
        ("ftp://host/x", "not a storage service"),
    ],
)
def test_locations_that_cannot_be_are_explained(uri: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        store_location(parse_uri(uri))


@pytest.mark.parametrize("user", ["no-such-user", "half-of-a-character-\ud800"])
def test_the_home_of_a_user_that_there_cannot_be_is_explained(user: str) -> None:
    with pytest.raises(DefinitionError, match="there is no such user"):
        Location.of_folder(f"~{user}/changefeed")


def test_a_location_pickles_with_its_credentials_and_never_shows_them() -> None:
    location = store_location(parse_uri("s3://bucket/a/b/?access-key=AKID&secret-access-key=hush&endpoint=http://me:pw@h:9000"))
    assert pickle.loads(pickle.dumps(location)) == location
    assert dict(location.parameters)["secret-access-key"] == "hush"
    assert location.place == "s3://bucket/a/b at h:9000"
    for secret in ("hush", "AKID", "pw"):
        assert secret not in repr(location)
