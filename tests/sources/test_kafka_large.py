"""Rows that were too large for Kafka: from the claim-check storage, or known by their handle key alone."""

from __future__ import annotations

import base64
import json
import pickle
import shutil
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from test_kafka_conformance import CLAIM_CHECK, HANDLE_ONLY, case_of, check, empty, filled, run, uri_of

from headrace.errors import DefinitionError
from headrace.formats.large_messages import LargeMessage
from headrace.model.table import TableId, TableSchema
from headrace.sources.kafka import large_rows, open_source
from headrace.sources.kafka.canal_json import CanalJsonProtocol
from headrace.sources.kafka.large_options import LargeRowPlaces
from headrace.sources.kafka.large_rows import decode_rows
from headrace.sources.kafka.open_protocol import OpenProtocol
from headrace.sources.kafka.protocol import KafkaProtocol, Messages
from headrace.sources.kafka.simple import SimpleProtocol
from headrace.sources.stream.reader import BadRecordError
from headrace.sources.stream.records import PIECE, RecordKind
from headrace.sources.ticdc_storage import stores
from headrace.sources.ticdc_storage.stores import StoreLocation
from headrace.upstream.settings import Upstream
from kafka_cases import KafkaCase, created, database_created, message, row, tso, watermark
from kafka_server import KafkaBroker, Record
from places import Place
from protocol_replay import history_of, messages_of, packed, pieces_of
from servers import S3Server, free_port

pytestmark = [pytest.mark.server, pytest.mark.pipeline]

Edit = Callable[[bytes], bytes]


def storage_of(case: KafkaCase, folder: Path, edit: Edit = lambda content: content) -> Path:
    """A copy of the case's claim-check storage, with edited files."""
    copy = folder / "storage"
    shutil.copytree(case.claim_check, copy)
    for path in copy.iterdir():
        path.write_bytes(edit(path.read_bytes()))
    return copy


def first_file(case: KafkaCase) -> str:
    """The name of the file of the case's first large row."""
    value = next(golden.record for golden in case.records if golden.offset == 3)
    text = (value.key or b"") + (value.value or b"")
    return text.partition(b"file:///claim-check/")[2][: len("ba40e8c8-19ca-441c-a24f-bd69a9051666.json")].decode()


def raw(content: bytes) -> bytes:
    """A file's content as it is with ``claim-check-raw-value=true``."""
    return base64.b64decode(json.loads(content)["value"])


def with_value(content: bytes, edit: Edit) -> bytes:
    told = json.loads(content)
    return json.dumps(
        {**told, "value": base64.b64encode(edit(base64.b64decode(told["value"]))).decode()}, separators=(",", ":")
    ).encode()


# --- claim-check ------------------------------------------------------------------------------------------------------------


@pytest.mark.reading_case("B40")
@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("canal-json/claim-check", raw),
        ("simple/json-claim-check", raw),
        ("canal-json/claim-check", lambda content: packed(raw(content), "snappy")),
        ("simple/json-claim-check", lambda content: with_value(content, lambda value: packed(value, "lz4"))),
    ],
)
def test_raw_and_compressed_files_give_the_same_rows(
    name: str, edit: Edit, kafka: KafkaBroker, place: Place, tmp_path: Path
) -> None:
    case = case_of(name)
    storage = storage_of(case, tmp_path, edit)
    uri, (target, sink) = uri_of(kafka, case, filled(kafka, case), claim_check_storage_uri=f"file://{storage}"), empty(place)
    assert run(uri, sink) == 0
    check(target, case.final)


def test_the_storage_may_be_an_object_store(kafka: KafkaBroker, place: Place, s3: S3Server) -> None:
    case, bucket = case_of("canal-json/claim-check"), s3.make_bucket()
    s3.upload(case.claim_check, bucket, "large/rows")
    target, sink = empty(place)
    uri = uri_of(kafka, case, filled(kafka, case), claim_check_storage_uri=s3.uri(bucket, "large/rows"))
    assert run(uri, sink) == 0
    check(target, case.final)


@pytest.mark.reading_case("B39")
def test_only_the_name_of_the_file_counts_whatever_a_location_says(kafka: KafkaBroker, place: Place, tmp_path: Path) -> None:
    case = case_of("canal-json/claim-check")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path in case.claim_check.iterdir():
        (elsewhere / path.name).write_bytes(b"not read")
    told = f"file://{elsewhere}/../elsewhere/".encode()
    records = [replace(g.record, value=(g.record.value or b"").replace(b"file:///claim-check/", told)) for g in case.records]
    assert any(told in (record.value or b"") for record in records)
    topic, (target, sink) = kafka.make_topic(), empty(place)
    kafka.write(topic, records)
    assert run(uri_of(kafka, case, topic, claim_check_storage_uri=f"file://{storage_of(case, tmp_path)}"), sink) == 0
    check(target, case.final)


@pytest.mark.parametrize("name", CLAIM_CHECK)
def test_a_missing_file_stops_its_table_until_it_is_there(
    name: str, kafka: KafkaBroker, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = case_of(name)
    storage, missing = storage_of(case, tmp_path), first_file(case)
    (storage / missing).rename(tmp_path / missing)
    uri, (target, sink) = uri_of(kafka, case, filled(kafka, case), claim_check_storage_uri=f"file://{storage}"), empty(place)
    assert run(uri, sink) == 3
    told = "".join(capsys.readouterr())
    assert "table b.t, partition 0, offset 3: The row was too large for Kafka" in told
    assert f"the rest is in the file {missing} of the claim-check storage, which {storage} does not have." in told
    (tmp_path / missing).rename(storage / missing)
    assert run(uri, sink) == 0
    check(target, case.final)


def test_a_file_that_the_storage_does_not_give_stops_its_table_until_it_does(
    kafka: KafkaBroker, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read every file, so the refusal is made where the file is opened."""
    case = case_of("canal-json/claim-check")
    storage, denied = storage_of(case, tmp_path), first_file(case)
    uri, (target, sink) = uri_of(kafka, case, filled(kafka, case), claim_check_storage_uri=f"file://{storage}"), empty(place)
    opened = stores.opened_inside

    def refusing(root: str, path: str) -> object:
        if path == denied:
            raise PermissionError(13, "Permission denied")
        return opened(root, path)

    with monkeypatch.context() as patched:
        patched.setattr(stores, "opened_inside", refusing)
        assert run(uri, sink) == 3
    told = "".join(capsys.readouterr())
    assert "table b.t" in told
    assert f"Cannot read {denied} in {storage}: access is denied." in told
    assert run(uri, sink) == 0
    check(target, case.final)


def test_a_link_out_of_the_storage_is_not_followed(
    kafka: KafkaBroker, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = case_of("canal-json/claim-check")
    storage, name = storage_of(case, tmp_path), first_file(case)
    (storage / name).rename(tmp_path / name)
    (storage / name).symlink_to(tmp_path / name)
    _, sink = empty(place)
    assert run(uri_of(kafka, case, filled(kafka, case), claim_check_storage_uri=f"file://{storage}"), sink) == 3
    assert f"file {name} of the claim-check storage, which {storage} does not have." in "".join(capsys.readouterr())


def test_without_the_storages_uri_the_option_is_named(kafka: KafkaBroker, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    case = case_of("simple/json-claim-check")
    _, sink = empty(place)
    assert run(uri_of(kafka, case, filled(kafka, case)), sink) == 3
    assert "Name the storage with claim-check-storage-uri in the source's URI." in "".join(capsys.readouterr())


def test_a_storage_that_is_down_lets_tables_wait_until_it_is_there(
    kafka: KafkaBroker, place: Place, tmp_path: Path, s3: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    case = case_of("canal-json/claim-check")
    topic, (target, sink) = filled(kafka, case), empty(place)
    for storage in (f"file://{tmp_path / 'not-mounted'}", s3.uri("no-such-bucket")):
        assert run(uri_of(kafka, case, topic, claim_check_storage_uri=storage), sink) == 3
        told = "".join(capsys.readouterr())
        assert "there is no such folder" in told or "there is no such bucket" in told
        assert s3.secret_key not in told
    assert run(uri_of(kafka, case, topic, claim_check_storage_uri=f"file://{case.claim_check}"), sink) == 0
    check(target, case.final)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda content: content[:-20], "it is not one JSON object"),
        (lambda content: b'{"key":null,"value":"?"}', "its key and value are not base64."),
        (lambda content: b'{"key":null}', "its key and value are not base64."),
        (lambda content: b"\xff" + content, "it is not UTF-8."),
        (lambda content: b"", "it does not hold exactly one row."),
        (
            lambda content: with_value(content, lambda value: value.replace(b'"table":"t"', b'"table":"u"')),
            "it holds a row of b.u at",
        ),
        (lambda content: row(4, 2), "it holds a row of shop.a at"),
        (lambda content: created(2), "it does not hold exactly one row."),
        (lambda content: watermark(2), "it does not hold exactly one row."),
        (lambda content: packed(raw(content), "lz4")[:-9], "it is compressed with lz4, and damaged."),
        (
            lambda content: raw(content).replace(b'"_tidb":{', b'"_tidb":{"claimCheckLocation":"a/x.json",'),
            "it does not hold exactly one row.",
        ),
    ],
)
def test_a_file_with_anything_but_the_records_own_row_stops_the_table(
    edit: Edit, reason: str, kafka: KafkaBroker, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = case_of("canal-json/claim-check")
    storage = storage_of(case, tmp_path, edit)
    _, sink = empty(place)
    assert run(uri_of(kafka, case, filled(kafka, case), claim_check_storage_uri=f"file://{storage}"), sink) == 3
    told = "".join(capsys.readouterr())
    assert (
        f"table b.t, partition 0, offset 3: The file {first_file(case)} in the claim-check storage cannot be used: {reason}" in told
    )


def test_other_tables_go_on_while_one_misses_its_file(kafka: KafkaBroker, place: Place, tmp_path: Path) -> None:
    large = message(
        "INSERT",
        tso(4),
        mysqlType={"id": "int"},
        data=[{"id": "1"}],
        _tidb={"commitTs": tso(4), "claimCheckLocation": "file:///x/f.json"},
    )
    topic, (target, sink) = kafka.make_topic(), empty(place)
    kafka.write(topic, map(Record, (database_created(1), created(2), created(3, "b"), large, row(5, 7, table="b"), watermark(6))))
    uri = kafka.uri(topic, claim_check_storage_uri=f"file://{tmp_path}")
    assert run(uri, sink) == 3
    assert target.rows("shop", "b", {"id": "int", "v": "varchar(20)"}) == [("7", "x")]
    (tmp_path / "f.json").write_bytes(row(4, 1))
    assert run(uri, sink) == 0
    assert target.rows("shop", "a", {"id": "int", "v": "varchar(20)"}) == [("1", "x")]


def test_validate_reads_large_rows_too(kafka: KafkaBroker, tmp_path: Path) -> None:
    case = case_of("open-protocol/claim-check")
    storage = storage_of(case, tmp_path)
    source = open_source(uri_of(kafka, case, filled(kafka, case), claim_check_storage_uri=f"file://{storage}"))
    assert source.check().inspection.findings == ()
    (storage / first_file(case)).unlink()
    (finding,) = source.check().inspection.findings
    assert (finding.kind, finding.file, finding.table_id) == ("bad-row", "partition 0, offset 3", TableId("b", "t"))


@pytest.mark.parametrize("forged", [b"\0../../etc/passwd\0{}", b"\0\0{}", b"\0a.json", b"\0"])
def test_a_message_cannot_name_a_file_by_the_mark_of_large_ones(forged: bytes) -> None:
    protocol = OpenProtocol()
    head = struct.pack(">Q", 1)
    key = b'{"ts":5,"scm":"d","tbl":"t","t":1}'
    messages = Messages([0], [struct.pack(">Q", len(forged)) + forged], [head + struct.pack(">Q", len(key)) + key])
    (record,) = protocol.read(messages).to_pylist()
    assert record["kind"] == RecordKind.UNKNOWN
    assert b"a zero byte in front" in record["value"]


@pytest.mark.parametrize("value", [b"\0../x\0{}", b"\0.x\0{}", b"\0a/b\0{}", b"\0a.json", b"\0", b"\0\xff\0{}"])
def test_a_large_record_with_another_name_than_that_of_a_file_stops_its_table(value: bytes, tmp_path: Path) -> None:
    records = pa.record_batch([pa.array([1]), pa.array([5]), pa.array([value], pa.binary())], schema=PIECE)
    places = LargeRowPlaces(StoreLocation.of_folder(str(tmp_path)))
    with pytest.raises(BadRecordError, match="not written as TiCDC writes"):
        decode_rows(OpenProtocol(), places, TableId("d", "t"), TableSchema(TableId("d", "t"), ()), records)


# --- a few at a time --------------------------------------------------------------------------------------------------------


def large_rows_of(case: KafkaCase, times: int) -> tuple[KafkaProtocol, Sequence[object]]:
    protocol = CanalJsonProtocol()
    records = protocol.read(messages_of(case))
    ((_, schema, piece),) = pieces_of(records, history_of(protocol, records))
    return protocol, (schema, piece.take([1] * times))


@pytest.mark.parametrize(("times", "most", "decoded"), [(5, 1 << 30, 5), (40, 1 << 30, 16), (5, 20_000, 3), (5, 1, 1)])
def test_only_a_few_large_rows_are_in_memory_at_a_time(
    times: int, most: int, decoded: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = case_of("canal-json/claim-check")
    monkeypatch.setattr(large_rows, "_MOST_BYTES", most)
    protocol, (schema, piece) = large_rows_of(case, times)
    places = LargeRowPlaces(StoreLocation.of_folder(str(case.claim_check)))
    rows, counts = decode_rows(protocol, places, TableId("b", "t"), schema, piece)
    assert counts == [1] * decoded
    assert rows.num_rows == decoded
    assert set(rows.column("id").to_pylist()) == {2}


OTHER_KEY = [(b'"id":"2"', b'"id":"7"'), (b'"f":11,"v":2', b'"f":11,"v":7'), (b"\x04id\x02\x04", b"\x04id\x02\x0e")]
"""What makes a record of another row of one of the second row, as in ``SECOND_ROW``."""


@pytest.mark.parametrize("name", CLAIM_CHECK)
def test_a_file_with_the_row_of_another_record_is_not_used_for_it(name: str) -> None:
    case = case_of(name)
    protocol = {"canal-json": CanalJsonProtocol(), "open-protocol": OpenProtocol()}.get(name.partition("/")[0], SimpleProtocol())
    records = protocol.read(messages_of(case))
    ((table_id, schema, piece),) = pieces_of(records, history_of(protocol, records))
    large = [row for row in piece.to_pylist() if row["value"].startswith(b"\0")]
    places = LargeRowPlaces(StoreLocation.of_folder(str(case.claim_check)))
    for own in large[:2] + large[3:]:  # an insert, an update and a deletion
        other = own["value"]
        for before, after in OTHER_KEY:
            other = other.replace(before, after)
        assert other != own["value"]
        both = pa.RecordBatch.from_pylist([own, {**own, "value": other}], schema=PIECE)
        rows, counts = decode_rows(protocol, places, table_id, schema, both)
        assert (len(counts), set(rows.column("id").to_pylist())) == (1, {2})
        with pytest.raises(BadRecordError, match="it holds the row of another record, whose id is '2' and not '7'") as stopped:
            decode_rows(protocol, places, table_id, schema, both.slice(1))
        assert (stopped.value.record, stopped.value.column) == (0, "id")


def test_records_before_a_missing_file_are_decoded_first(tmp_path: Path) -> None:
    case = case_of("canal-json/claim-check")
    storage = storage_of(case, tmp_path)
    protocol = CanalJsonProtocol()
    records = protocol.read(messages_of(case))
    ((table_id, schema, piece),) = pieces_of(records, history_of(protocol, records))
    files = [LargeMessage.of_value(value)[0].file for value in piece.column("value").to_pylist()[1:5]]
    (storage / files[2]).unlink()
    places, counts, at = LargeRowPlaces(StoreLocation.of_folder(str(storage))), [], 0
    for _ in range(2):
        counts.append(len(decode_rows(protocol, places, table_id, schema, piece.slice(at))[1]))
        at += counts[-1]
    assert counts == [1, 2]
    with pytest.raises(BadRecordError, match=r"which .* does not have") as stopped:
        decode_rows(protocol, places, table_id, schema, piece.slice(at))
    assert stopped.value.record == 0


# --- handle-key-only, without an upstream -----------------------------------------------------------------------------------


def written(commit_ts: int) -> list[bytes]:
    """What messages have of a commit ts: it and its millisecond as digits, and in Avro a varint of twice of it."""
    varint, rest = b"", 2 * commit_ts
    while rest > 127:
        varint, rest = varint + bytes([rest & 127 | 128]), rest >> 7
    return [str(commit_ts).encode(), str(commit_ts >> 18).encode(), varint + bytes([rest])]


def moved(record: Record, old: int, new: int) -> Record:
    """The record with another commit ts."""
    key, value = record.key, record.value
    for before, after in zip(written(old), written(new), strict=True):
        key, value = (None if text is None else text.replace(before, after) for text in (key, value))
    return replace(record, key=key, value=value)


SECOND_ROW = [
    *((b'"id":"1"', b'"id":"2"'), (b'"f":11,"v":1', b'"f":11,"v":2'), (b"\x04id\x02\x02", b"\x04id\x02\x04")),
    *((b'"k":"a"', b'"k":"b"'), (b'"v":"a"', b'"v":"b"'), (b"\x02k\x08\x02a", b"\x02k\x08\x02b")),
]
"""What makes another row of the first one, in canal-JSON and Simple, Open Protocol, and Avro."""


@pytest.mark.parametrize("name", HANDLE_ONLY)
def test_a_deletion_needs_no_more_than_the_key(name: str, kafka: KafkaBroker, place: Place) -> None:
    case = case_of(name)
    times = [event["commit_ts"] for event in case.events if event["kind"] == "row"]
    records = {golden.offset: golden.record for golden in case.records}
    (promised,) = [e["commit_ts"] for e in case.events if e["kind"] == "watermark"][:1]
    second = moved(records[2], times[0], times[1])
    for old, new in SECOND_ROW:
        second = replace(second, value=(second.value or b"").replace(old, new))
    topic, (target, sink) = kafka.make_topic(), empty(place)
    kafka.write(topic, [records[0], records[1], records[2], second, moved(records[7], promised, times[1])])
    uri, types = uri_of(kafka, case, topic), {"id": "int", "k": "varchar(10)", "s": "longtext", "v": "int"}
    assert run(uri, sink) == 0
    assert sorted(target.rows("b", "t", types)) == [("1", "a", "small", "1"), ("2", "b", "small", "1")]
    kafka.write(topic, [records[6], records[7], records[8], records[9]])
    assert run(uri, sink) == 0
    assert sorted(target.rows("b", "t", types)) == [("1", "a", "small", "1"), ("3", "c", None, "3")]


# --- options ----------------------------------------------------------------------------------------------------------------


UPSTREAM = "mysql://u:p%40ss@tidb:4001/?ssl-ca=/ca.pem&ssl-verify=ca"


def options_of(**params: str) -> LargeRowPlaces:
    told = "&".join(f"{name.replace('_', '-')}={quote(value, safe='')}" for name, value in params.items())
    return open_source(f"kafka://h:9092/t?{told}").options.large


def test_the_options_name_storage_and_upstream_and_show_no_secret() -> None:
    found = options_of(
        large_message_handle_option="claim-check",
        claim_check_storage_uri="s3://bucket/x?access-key=AK&secret-access-key=SK",
        claim_check_raw_value="true",
        upstream=UPSTREAM,
    )
    assert found.storage is not None
    assert (found.storage.url, found.storage.parameter("secret-access-key")) == ("s3://bucket/x", "SK")
    assert found.upstream == Upstream("mysql://tidb:4001/", "tidb", 4001, "u", "p@ss", "/ca.pem", verify_identity=False)
    assert not any(secret in repr(found) for secret in ("p@ss", "SK"))
    assert pickle.loads(pickle.dumps(found)) == found


def test_the_changefeeds_file_has_them_in_their_own_section(tmp_path: Path) -> None:
    file = tmp_path / "changefeed.toml"
    file.write_text(
        "[sink.kafka-config.large-message-handle]\nlarge-message-handle-option = 'claim-check'\nclaim-check-raw-value = true\n"
        "claim-check-storage-uri = 'file:///data/large'\nlarge-message-handle-compression = 'lz4'\n"
    )
    found = open_source("kafka://h:9092/t", {"changefeed": str(file)}).options.large
    assert found.storage is not None
    assert found.storage.path == "/data/large"
    file.write_text("[sink.kafka-config.large-message-handle]\nlarge-message-handle-options = 'claim-check'\n")
    with pytest.raises(DefinitionError, match="Did you mean 'large-message-handle-option'"):
        open_source("kafka://h:9092/t", {"changefeed": str(file)})
    file.write_text("[sink.kafka-config]\nlarge-message-handle = 'claim-check'\n")
    with pytest.raises(DefinitionError, match="is not a section"):
        open_source("kafka://h:9092/t", {"changefeed": str(file)})


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"large_message_handle_option": "split"}, "must be one of none, claim-check, handle-key-only"),
        ({"claim_check_raw_value": "maybe"}, "claim-check-raw-value must be one of true, false"),
        ({"claim_check_storage_uri": "ftp://x/y"}, "ftp:// is not a storage service"),
        ({"claim_check_storage_uri": "/data/x"}, "is not a URI"),
        ({"claim_check_storage_uri": "file:///data/x?regoin=1"}, "Unknown parameter of claim-check-storage-uri 'regoin'"),
        ({"upstream": "postgres://u:secret@h/"}, "upstream: postgres://h/ does not name a server"),
        ({"upstream": "mysql://u:secret@h:4000/shop"}, "names a database"),
        ({"upstream": "mysql://u:secret@h:4000/?ssl-cert=/x"}, "parameters of TLS and no ssl-ca"),
        ({"upstream": "mysql://u:secret@h:4000/?ssl-ca=/x&ssl-verify=none"}, "ssl-verify of upstream is identity or ca"),
        ({"upstream": "mysql://u:secret@h:4000/?password=secret"}, "Unknown parameter of upstream 'password'"),
    ],
)
def test_options_that_do_not_work_say_so_without_secrets(params: dict[str, str], told: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        options_of(**params)
    assert told in refused.value.message
    assert "secret" not in str(refused.value)


def test_an_upstream_that_does_not_answer_is_told_without_secrets(
    kafka: KafkaBroker, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    case = case_of("canal-json/handle-key-only")
    _, sink = empty(place)
    port = free_port()
    uri = uri_of(kafka, case, filled(kafka, case), upstream=f"mysql://someone:s3cret@127.0.0.1:{port}/")
    assert run(uri, sink) == 3
    told = "".join(capsys.readouterr())
    assert f"The upstream mysql://127.0.0.1:{port}/ cannot be read" in told
    assert "s3cret" not in told
