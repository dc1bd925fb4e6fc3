"""The Driver against a real broker: golden topics, where it begins, how it goes on, and what it refuses."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer

from binlog.logs import message
from binlog_cases import CASES, G8, lines, records, told
from headrace.binlog import (
    NEWEST,
    OLDEST,
    BadRecordError,
    BinlogWarning,
    CommitTsTooOldError,
    Driver,
    OffsetGapError,
    Position,
    Transaction,
    find_offset,
    topic_name,
)
from headrace.binlog.seek import seek
from headrace.binlog.topic import Batches, KafkaLog
from headrace.errors import DefinitionError, SourceNotReadyError, SourceUnreachableError
from headrace.kafka.client import BATCH_MESSAGES, KafkaClient
from kafka_server import LOGIN, KafkaBroker, Record

pytestmark = pytest.mark.server

GOOD = [case for case in CASES if lines(case, "decoded")]
MakeTopic = Callable[[str], str]


@pytest.fixture(scope="module")
def golden(kafka: KafkaBroker) -> MakeTopic:
    """The topic of a case, written once."""
    made: dict[str, str] = {}

    def topic(case: str) -> str:
        if case not in made:
            made[case] = kafka.make_topic()
            kafka.write(made[case], [Record(record.value, timestamp_ms=record.timestamp_ms) for record in records(case)])
        return made[case]

    return topic


def write(kafka: KafkaBroker, *values: bytes) -> str:
    topic = kafka.make_topic()
    kafka.write(topic, [Record(value) for value in values])
    return topic


def driver(kafka: KafkaBroker, topic: str, **options: Any) -> Driver:
    return Driver(kafka_addr=[kafka.server], topic=topic, **{"follow": False, **options})


def read(kafka: KafkaBroker, topic: str, **options: Any) -> list[Transaction]:
    with driver(kafka, topic, **options) as reader:
        return list(reader)


def commit_ts(kafka: KafkaBroker, topic: str, **options: Any) -> list[int]:
    return [transaction.commit_ts for transaction in read(kafka, topic, **options)]


@pytest.mark.parametrize("case", GOOD)
def test_a_golden_topic_comes_as_the_upstream_committed_it_each_transaction_once(
    case: str, kafka: KafkaBroker, golden: MakeTopic
) -> None:
    found = read(kafka, golden(case))
    expected: dict[int, dict[str, Any]] = {}
    for line in lines(case, "decoded"):
        expected.setdefault(line["commit_ts"], line)
    assert [transaction.commit_ts for transaction in found] == sorted(expected)
    for transaction in found:
        line = expected[transaction.commit_ts]
        assert transaction.offset == line["offset"]
        if transaction.ddl is not None:
            assert transaction.ddl.text == line["ddl"]["query"]
        ops = [mutation["type"].lower() for table in line.get("tables", ()) for mutation in table["mutations"]]
        assert [row.op for row in transaction] == ops


@pytest.mark.reading_case("A34", "A35", "A36")
def test_a_transaction_that_drainer_sends_again_comes_once(kafka: KafkaBroker) -> None:
    """After its restart, or at once because the producer tried again. To pass over what is at most the commit ts is not enough."""
    topic = write(kafka, *map(message, (10, 20, 20, 30, 40, 20, 30, 40, 50, 50)))
    with driver(kafka, topic, commit_ts=30) as reader:
        assert [transaction.commit_ts for transaction in reader] == [40, 50]
    assert commit_ts(kafka, topic) == [10, 20, 30, 40, 50]


class CountedLog:
    """The partition, and how often it was fetched from."""

    def __init__(self, log: KafkaLog) -> None:
        self._log, self.where, self.fetches = log, log.where, 0

    def ends(self) -> tuple[int, int]:
        return self._log.ends()

    def fetch(self, start: int, end: int, *, most: int = BATCH_MESSAGES) -> Batches:
        self.fetches += 1
        return self._log.fetch(start, end, most=most)


@pytest.mark.parametrize("case", ["seek", "restart"])
def test_every_commit_ts_of_the_golden_tables_gives_the_transactions_after_it(
    case: str, kafka: KafkaBroker, golden: MakeTopic
) -> None:
    topic, table = golden(case), told(case, "seek")
    with KafkaClient.connect([kafka.server], {}) as client:
        for query in table["queries"][:: 12 if case == "seek" else 7]:
            log = CountedLog(KafkaLog(client, topic, pytest.fail))
            found = seek(log, query["commit_ts"], allow_gap=True)
            assert found.offset <= query["latest_safe_offset"]
            assert log.fetches <= (table["next_offset"] - table["low_offset"]).bit_length() + 3
            got = commit_ts(kafka, topic, commit_ts=query["commit_ts"], allow_gap=True)
            assert len(got) == query["delivered"]
            assert hashlib.sha256(",".join(map(str, got)).encode()).hexdigest() == query["delivered_sha256"]


def test_a_topic_with_missing_offsets_is_searched_too(kafka: KafkaBroker) -> None:
    # A transaction's marker takes an offset, so this topic has 10 at 0, 20 at 2, 30 at 4, and no record at its end.
    topic = kafka.make_topic()
    producer = Producer({"bootstrap.servers": kafka.server, "transactional.id": topic})
    producer.init_transactions(10)
    for ts in (10, 20, 30):
        producer.begin_transaction()
        producer.produce(topic, message(ts), partition=0)
        producer.commit_transaction(10)
    with KafkaClient.connect([kafka.server], {}) as client:
        assert client.ends(topic, 0) == (0, 6)
    assert [find_offset([kafka.server], topic, ts).offset for ts in (10, 20, 30, 40)] == [1, 3, 5, 5]
    assert commit_ts(kafka, topic, commit_ts=10) == [20, 30]


def test_a_commit_ts_before_the_oldest_record_is_an_error_that_names_it(kafka: KafkaBroker) -> None:
    topic = write(kafka, *map(message, (10, 20, 30, 40)))
    kafka.delete_records(topic, 2)
    with pytest.raises(CommitTsTooOldError, match=f"topic {topic}, partition 0, at offset 2, has the commit ts 30"):
        driver(kafka, topic, commit_ts=20)
    assert commit_ts(kafka, topic, commit_ts=20, allow_gap=True) == [30, 40]
    assert commit_ts(kafka, topic, commit_ts=30) == [40]


def test_an_empty_topic_and_one_that_lost_all_records_begin_at_their_end(kafka: KafkaBroker) -> None:
    empty, emptied = kafka.make_topic(), write(kafka, message(10), message(20))
    kafka.delete_records(emptied, 2)
    for topic, end in ((empty, 0), (emptied, 2)):
        started = time.monotonic()
        assert find_offset([kafka.server], topic, 15).offset == end
        assert read(kafka, topic, commit_ts=15) == []
        assert time.monotonic() - started < 10


def test_a_missing_topic_is_an_error_and_stays_missing(kafka: KafkaBroker) -> None:
    with pytest.raises(SourceNotReadyError, match="topic 12_obinlog does not exist"):
        Driver(kafka_addr=[kafka.server], cluster_id=12, commit_ts=5)
    assert "12_obinlog" not in kafka.admin.list_topics(timeout=10).topics


@pytest.mark.reading_case("A40", "A43")
def test_the_guides_offsets_are_taken_as_they_are(kafka: KafkaBroker) -> None:
    topic = write(kafka, *map(message, (10, 20, 30)))
    assert commit_ts(kafka, topic) == [10, 20, 30]
    assert commit_ts(kafka, topic, offset=OLDEST) == [10, 20, 30]
    assert commit_ts(kafka, topic, offset=2) == [30]
    assert commit_ts(kafka, topic, offset=NEWEST) == []
    assert commit_ts(kafka, topic, offset=0, commit_ts=20) == [30]
    with pytest.raises(DefinitionError, match="has no offset 9"):
        driver(kafka, topic, offset=9)
    kafka.delete_records(topic, 1)
    with pytest.raises(OffsetGapError, match="has the offset 1, with the commit ts 20"):
        driver(kafka, topic, offset=0)
    assert commit_ts(kafka, topic, offset=0, allow_gap=True) == [20, 30]


@pytest.mark.reading_case("A38", "A40")
def test_a_stored_position_goes_on_where_it_was(kafka: KafkaBroker) -> None:
    topic = write(kafka, *map(message, (10, 20, 30, 20, 30, 40)))
    second = read(kafka, topic)[1].position
    assert second == Position(topic, 2, 20)
    assert Position.from_json(second.to_json()) == second
    with driver(kafka, topic, resume=second) as reader:
        assert (reader.start_offset, [t.commit_ts for t in reader], reader.repeats) == (2, [30, 40], 2)
    kafka.delete_records(topic, 2)
    assert commit_ts(kafka, topic, resume=second) == [30, 40]
    kafka.delete_records(topic, 3)
    with pytest.raises(OffsetGapError, match="begin at offset 2"):
        driver(kafka, topic, resume=second)
    assert commit_ts(kafka, topic, resume=second, allow_gap=True) == [30, 40]
    with pytest.raises(DefinitionError, match="is one of topic"):
        driver(kafka, write(kafka, message(1)), resume=second)


@pytest.mark.parametrize(("stored", "offset"), [(Position("t", 3, 25), 2), (Position("t", 99, 20), 2)])
@pytest.mark.reading_case("A39")
def test_a_topic_that_was_made_anew_is_searched_by_commit_ts(kafka: KafkaBroker, stored: Position, offset: int) -> None:
    topic = write(kafka, *map(message, (10, 20, 30, 40)))
    notices: list[str] = []
    resume = Position(topic, stored.next_offset, stored.commit_ts)
    with driver(kafka, topic, resume=resume, on_notice=notices.append) as reader:
        assert reader.start_offset == offset
        assert [transaction.commit_ts for transaction in reader] == [30, 40]
    assert len(notices) == 1
    assert "made anew or lost records" in notices[0]


@pytest.mark.reading_case("A17", "A41")
def test_a_bad_record_is_an_error_with_its_place_or_is_handed_over(kafka: KafkaBroker) -> None:
    topic = write(kafka, message(10), G8, message(20), b"\x07", message(-1), message(30))
    reader = driver(kafka, topic)
    with closing(reader):
        assert next(reader).commit_ts == 10
        for _ in range(2):  # a loop that is begun again does not go on behind the record
            with pytest.raises(BadRecordError, match=f"Topic {topic}, partition 0, offset 3: The field at byte 0"):
                list(reader)
    bad: list[tuple[int, bytes]] = []
    found = commit_ts(kafka, topic, on_bad_record=lambda error, value: bad.append((error.offset, value)))
    assert found == [10, 20, 30]
    assert bad == [(3, b"\x07"), (4, message(-1))]


def test_the_malformed_records_are_left_out_one_by_one(kafka: KafkaBroker, golden: MakeTopic) -> None:
    for line, record in zip(lines("malformed", "expected"), records("malformed"), strict=True):
        if line["expect"] == "error":
            topic = write(kafka, record.value)
            with driver(kafka, topic) as reader, pytest.raises(BadRecordError, match="partition 0, offset 0"):
                list(reader)


def test_a_string_of_another_charset_is_named_with_its_column(kafka: KafkaBroker) -> None:
    topic, words = write(kafka, G8), r"offset 0 \(column v\): Table d.t: A string is not utf-8"
    with driver(kafka, topic) as reader, pytest.raises(BadRecordError, match=words):
        list(reader)
    (transaction,) = read(kafka, topic, charset="latin-1")
    assert [row.after for row in transaction] == [{"v": "ÿ"}]


@pytest.mark.reading_case("A45")
def test_a_driver_waits_for_more_until_it_is_closed(kafka: KafkaBroker) -> None:
    topic = write(kafka, message(10))
    reader = driver(kafka, topic, follow=True)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.extend(transaction.commit_ts for transaction in reader))
    thread.start()
    kafka.write(topic, [Record(message(20)), Record(message(10)), Record(message(30))])
    deadline = time.monotonic() + 30
    while len(found) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    reader.close()
    thread.join(20)
    assert not thread.is_alive()
    assert (found, reader.repeats) == ([10, 20, 30], 1)
    reader.close()


def test_a_loop_may_be_left_at_any_time(kafka: KafkaBroker) -> None:
    topic = write(kafka, *map(message, (10, 20, 30)))
    with driver(kafka, topic, follow=True) as reader:
        for transaction in reader:
            if transaction.commit_ts == 20:
                break
    assert list(reader) == []


@pytest.mark.reading_case("A44")
def test_only_partition_0_is_read(kafka: KafkaBroker) -> None:
    topic = kafka.make_topic(3)
    kafka.write(topic, [Record(message(10)), Record(message(20), partition=1)])
    with pytest.warns(BinlogWarning, match="has 3 partitions. Only partition 0"):
        assert commit_ts(kafka, topic) == [10]


def test_any_setting_of_librdkafka_is_passed_on(kafka: KafkaBroker) -> None:
    topic, (user, password) = write(kafka, message(10)), LOGIN
    secured = [f"127.0.0.1:{kafka.secured}"]
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": password}
    with Driver(kafka_addr=secured, topic=topic, settings=login, follow=False) as reader:
        assert [transaction.commit_ts for transaction in reader] == [10]
    with pytest.raises(SourceUnreachableError):
        Driver(kafka_addr=secured, topic=topic, settings={**login, "sasl.password": "wrong"})
    with pytest.raises(DefinitionError, match=r"no\.such"):
        Driver(kafka_addr=[kafka.server], topic=topic, settings={"no.such": "1"})


@pytest.mark.reading_case("A29")
def test_a_large_transaction_comes_whole(kafka: KafkaBroker) -> None:
    statement = b"x" * 20_000_000
    fields = b"\x0a\x01d\x12\x01t\x1a" + varint(len(statement)) + statement
    large = b"\x08\x01\x10\x0a\x22" + varint(len(fields)) + fields
    topic = kafka.make_topic(max_message_bytes="30000000")
    kafka.write(topic, [Record(large)])
    (transaction,) = read(kafka, topic)
    assert transaction.ddl is not None
    assert len(transaction.ddl.query) == 20_000_000


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


@pytest.mark.parametrize(
    ("topic", "cluster_id", "name"),
    [("", "6823548660393262086", "6823548660393262086_obinlog"), ("", 7, "7_obinlog"), ("mine", "7", "mine")],
)
@pytest.mark.reading_case("A42")
def test_the_topic_is_the_given_one_or_drainers_own(topic: str, cluster_id: str | int, name: str) -> None:
    assert topic_name(topic, cluster_id) == name


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kafka_addr": ["h:1"]}, "Neither a topic nor a cluster id"),
        ({"kafka_addr": ["h:1"], "cluster_id": "mine"}, "'mine' is not a number"),
        ({"kafka_addr": "h:1", "topic": "t"}, "not a list of brokers"),
        ({"kafka_addr": [], "topic": "t"}, "not a list of brokers"),
        ({"kafka_addr": ["h:1"], "topic": "t", "time_zone": "Moon/Base"}, "no time zone"),
        ({"kafka_addr": ["h:1"], "topic": "t", "charset": "klingon"}, "no charset"),
    ],
)
@pytest.mark.reading_case("A42")
def test_wrong_settings_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        Driver(**options)


def test_a_wrong_commit_ts_is_refused(kafka: KafkaBroker) -> None:
    with pytest.raises(DefinitionError, match="commit_ts -1 is not a commit ts"):
        driver(kafka, write(kafka, message(1)), commit_ts=-1)
    with pytest.raises(DefinitionError, match="is not a position"):
        Position.from_json("{}")
