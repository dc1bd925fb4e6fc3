"""The client that reads ranges of partitions, on a real broker."""

from __future__ import annotations

import itertools
import time

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from headrace.errors import DefinitionError, SourceLostError, SourceNotReadyError, SourceUnreachableError
from headrace.kafka.client import KafkaClient, Message
from headrace.kafka.settings import KafkaCluster, cluster_of
from headrace.model.uri import parse_uri
from kafka_server import LOGIN, KafkaBroker, Record
from servers import free_port

pytestmark = pytest.mark.server

USER, PASSWORD = LOGIN
FAST = 2.0


@pytest.fixture
def client(kafka: KafkaBroker) -> KafkaClient:
    return KafkaClient.connect([kafka.server], {})


def offsets(client: KafkaClient, topic: str, start: int, end: int, partition: int = 0) -> list[int]:
    return [message.offset for batch in client.fetch(topic, partition, start, end) for message in batch]


def await_end(client: KafkaClient, topic: str, end: int) -> None:
    """Waits until the partition ends there: a broker writes the marker of a transaction after its producer has the answer."""
    deadline = time.monotonic() + 30
    while client.ends(topic, 0) != (0, end):
        assert time.monotonic() < deadline, client.ends(topic, 0)
        time.sleep(0.05)


def test_a_range_has_its_records_and_no_others(kafka: KafkaBroker, client: KafkaClient) -> None:
    topic = kafka.make_topic()
    kafka.write(topic, [Record(b"%d" % n) for n in range(30_000)])
    assert client.ends(topic, 0) == (0, 30_000)
    assert offsets(client, topic, 12_345, 25_000) == list(range(12_345, 25_000))
    assert offsets(client, topic, 29_999, 30_000) == [29_999]
    assert offsets(client, topic, 7, 7) == []


def test_a_record_keeps_its_key_headers_timestamp_and_missing_value(kafka: KafkaBroker, client: KafkaClient) -> None:
    topic = kafka.make_topic(partitions=2)
    headers: tuple[tuple[str, bytes | None], ...] = (("h", b"1"), ("h", None))
    kafka.write(topic, [Record(None, 1, b"k", 1_600_000_000_123, headers), Record(b"", 1)])
    ((first, second),) = client.fetch(topic, 1, 0, 2)
    assert first == Message(0, b"k", None, 1_600_000_000_123, headers)
    assert (second.key, second.value, second.headers) == (None, b"", ())
    assert client.partitions(topic) == (0, 1)


def test_the_first_record_from_a_time_on_is_found(kafka: KafkaBroker, client: KafkaClient) -> None:
    topic = kafka.make_topic()
    first = 1_600_000_000_000
    kafka.write(topic, [Record(b"", timestamp_ms=first + ms) for ms in (0, 500, 90, 80, 600)])
    found = [client.offset_from_time(topic, 0, first + ms) for ms in (-9, 0, 1, 91, 500, 501, 601)]
    assert found == [0, 0, 1, 1, 1, 4, None]
    assert client.offset_from_time(topic, 0, 1 << 62) is None


def test_a_range_ends_where_its_last_offsets_are_no_records(kafka: KafkaBroker, client: KafkaClient) -> None:
    topic = kafka.make_topic()
    producer = Producer({"bootstrap.servers": kafka.server, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"committed")
    producer.commit_transaction(30)  # its marker has offset 1
    producer.begin_transaction()
    producer.produce(topic, b"aborted")
    producer.flush()
    producer.abort_transaction(30)
    await_end(client, topic, 4)
    began = time.monotonic()
    assert offsets(client, topic, 0, 4) == [0]
    assert offsets(client, topic, 1, 3) == []
    assert time.monotonic() - began < 10


def test_records_of_an_open_transaction_are_not_there_yet(kafka: KafkaBroker, client: KafkaClient) -> None:
    topic = kafka.make_topic()
    kafka.write(topic, [Record(b"before")])
    producer = Producer({"bootstrap.servers": kafka.server, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush()
    assert client.ends(topic, 0) == (0, 1)
    producer.commit_transaction(30)
    await_end(client, topic, 3)
    assert offsets(client, topic, 0, 3) == [0, 1]


def test_a_message_above_every_limit_of_a_fetch_is_read(kafka: KafkaBroker) -> None:
    topic = kafka.make_topic(max_message_bytes="30000000")
    kafka.write(topic, [Record(b"a"), Record(b"x" * 20_000_000), Record(b"b")])
    small = KafkaClient.connect([kafka.server], {"fetch.max.bytes": "1000000", "message.max.bytes": "1000000"})
    assert [m.size for batch in small.fetch(topic, 0, 0, 3) for m in batch] == [1, 20_000_000, 1]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_that_the_producer_compressed_are_read(codec: str, kafka: KafkaBroker, client: KafkaClient) -> None:
    topic = kafka.make_topic()
    kafka.write(topic, [Record(b"value" * 100)] * 50, **{"compression.type": codec})
    assert {m.value for batch in client.fetch(topic, 0, 0, 50) for m in batch} == {b"value" * 100}


def test_reading_leaves_no_trace_of_a_group(kafka: KafkaBroker, client: KafkaClient) -> None:
    topic = kafka.make_topic()
    kafka.write(topic, [Record(b"a")])
    assert offsets(client, topic, 0, 1) == [0]
    client.close()
    assert "headrace" not in {group.group_id for group in kafka.admin.list_consumer_groups().result().valid}


def test_removed_records_are_lost_and_not_passed_over(kafka: KafkaBroker, client: KafkaClient) -> None:
    topic = kafka.make_topic()
    kafka.write(topic, [Record(b"a") for _ in range(100)])
    kafka.delete_records(topic, 60)
    assert client.ends(topic, 0) == (60, 100)
    with pytest.raises(SourceLostError, match=f"from offset 10 on of partition 0 of topic {topic} are not kept any more"):
        offsets(client, topic, 10, 100)
    assert offsets(client, topic, 60, 100) == list(range(60, 100))


def test_a_topic_that_does_not_exist_is_named_and_not_made(kafka: KafkaBroker, client: KafkaClient) -> None:
    with pytest.raises(SourceNotReadyError, match="The topic nowhere does not exist at "):
        client.partitions("nowhere")
    assert "nowhere" not in kafka.admin.list_topics(timeout=10).topics


def test_an_added_partition_is_seen(kafka: KafkaBroker, client: KafkaClient) -> None:
    topic = kafka.make_topic()
    assert client.partitions(topic) == (0,)
    kafka.admin.create_partitions([NewPartitions(topic, 2)])[topic].result()
    deadline = time.monotonic() + 20
    while client.partitions(topic) != (0, 1):
        assert time.monotonic() < deadline


def test_a_broker_that_is_down_is_named_within_seconds() -> None:
    server = f"127.0.0.1:{free_port()}"
    began = time.monotonic()
    with KafkaClient.connect([server], {}) as client, pytest.raises(SourceUnreachableError) as refused:
        client.ends("t", 0)
    assert f"Kafka at {server} cannot be read (partition 0 of topic t)" in refused.value.message
    assert "Connection refused" in refused.value.message
    assert time.monotonic() - began < 10


def test_a_name_that_cannot_be_resolved_is_told() -> None:
    with KafkaClient.connect(["nowhere.invalid:9092"], {}, wait=FAST) as client, pytest.raises(SourceUnreachableError) as refused:
        client.partitions("t")
    assert "the server's name is unknown" in refused.value.message


def secured(kafka: KafkaBroker, topic: str, password: str) -> KafkaCluster:
    params = {"sasl_user": USER, "sasl_password": password, "sasl_mechanism": "plain"}
    return cluster_of(parse_uri(kafka.uri(topic, kafka.secured, **params)))


def test_a_login_is_used_and_a_wrong_one_is_told_without_its_password(kafka: KafkaBroker) -> None:
    topic = kafka.make_topic()
    with secured(kafka, topic, PASSWORD).connect() as client:
        assert client.partitions(topic) == (0,)
    cluster = secured(kafka, topic, "wr0ng-secret")
    with cluster.connect(wait=20) as client, pytest.raises(SourceUnreachableError) as refused:
        client.partitions(topic)
    assert "the login is refused" in refused.value.message
    assert "wr0ng-secret" not in f"{refused.value} {cluster!r}"


def test_tls_verifies_the_server(kafka: KafkaBroker) -> None:
    topic = kafka.make_topic()
    with cluster_of(parse_uri(kafka.uri(topic, kafka.encrypted, ca=kafka.authority))).connect() as client:
        assert client.partitions(topic) == (0,)
    unverified = cluster_of(parse_uri(kafka.uri(topic, kafka.encrypted, enable_tls="true")))
    with unverified.connect(wait=20) as client, pytest.raises(SourceUnreachableError) as refused:
        client.partitions(topic)
    assert "TLS fails" in refused.value.message
    assert "certificate" in refused.value.message


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"nonsense": "s3cret"}, "librdkafka refuses the setting nonsense: No such configuration property"),
        ({"security.protocol": "s3cret"}, "librdkafka refuses the setting security.protocol: Invalid value"),
    ],
)
def test_a_setting_that_does_not_exist_is_refused_without_its_value(settings: dict[str, str], told: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        KafkaClient.connect(["127.0.0.1:9"], settings)
    assert told in refused.value.message
    assert "s3cret" not in str(refused.value)


def test_two_fetches_follow_each_other_on_one_client(kafka: KafkaBroker, client: KafkaClient) -> None:
    topic = kafka.make_topic(partitions=2)
    kafka.write(topic, [Record(b"%d" % n, n % 2) for n in range(200)])
    first = client.fetch(topic, 0, 0, 100)
    assert next(iter(first))
    first.close()  # type: ignore[attr-defined]
    found = list(itertools.chain.from_iterable(client.fetch(topic, 1, 50, 100)))
    assert [message.value for message in found] == [b"%d" % n for n in range(101, 200, 2)]


class TestManyPartitions:
    """Requests for all topics together."""

    @pytest.mark.parametrize("partitions", [3, 60])
    def test_their_offsets_are_those_of_each(self, partitions: int, kafka: KafkaBroker, client: KafkaClient) -> None:
        topic, other = kafka.make_topic(partitions), kafka.make_topic()
        kafka.write(topic, [Record(b"x", partition) for partition in range(3) for _ in range(partition + 1)])
        kafka.write(other, [Record(b"x")] * 5)
        kafka.delete_records(other, 2)
        producer = Producer({"bootstrap.servers": kafka.server, "transactional.id": topic})
        producer.init_transactions(10)
        producer.begin_transaction()
        producer.produce(topic, b"open", partition=0)
        producer.flush(10)
        places = [(topic, partition) for partition in range(partitions)] + [(other, 0)]
        found = client.all_ends(places)
        assert found == {place: client.ends(*place) for place in places}
        assert (found[topic, 0], found[topic, 2], found[other, 0]) == ((0, 1), (0, 3), (2, 5)), "an open transaction is not read"
        producer.abort_transaction(10)

    @pytest.mark.parametrize("partitions", [1, 60])
    def test_a_topic_that_does_not_exist_is_told(self, partitions: int, kafka: KafkaBroker, client: KafkaClient) -> None:
        topic = kafka.make_topic(partitions)
        with pytest.raises(SourceNotReadyError, match="does not exist at"):
            client.all_ends([*((topic, partition) for partition in range(partitions)), ("nowhere", 0)])
        with pytest.raises(SourceNotReadyError, match="does not exist at"):
            client.topic_ids([topic, "nowhere"])

    def test_topics_are_listed_with_their_partitions_ids_and_settings(self, kafka: KafkaBroker, client: KafkaClient) -> None:
        first, second = kafka.make_topic(2), kafka.make_topic(retention_ms="5000")
        found = client.topics()
        assert (found[first], found[second]) == ((0, 1), (0,))
        ids = client.topic_ids([first, second])
        assert len({*ids.values()} - {""}) == 2
        settings = client.topics_settings([first, second], ["retention.ms", "cleanup.policy"])
        assert settings == {
            first: {"retention.ms": "-1", "cleanup.policy": "delete"},
            second: {"retention.ms": "5000", "cleanup.policy": "delete"},
        }
        assert client.topic_ids([]) == client.topics_settings([], []) == {}
