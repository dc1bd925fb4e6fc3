"""The URI and the changefeed file of a Kafka source."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from headrace.errors import DefinitionError
from headrace.model.uri import parse_uri
from headrace.sources.kafka import KafkaSource, open_source
from headrace.sources.kafka.topics import Topics

URI = "kafka://h1:9092,h2:9093/cdc"


def source(rest: str = "protocol=canal-json", base: str = URI, changefeed: str | None = None) -> KafkaSource:
    return open_source(f"{base}?{rest}", {"changefeed": changefeed} if changefeed else {})


def test_a_changefeeds_own_uri_is_read() -> None:
    found = source(
        "protocol=canal-json&partition-num=6&replication-factor=2&max-message-bytes=67108864&kafka-version=2.4.0"
        "&enable-tidb-extension=true&compression=lz4&kafka-client-id=x&auto-create-topic=true&required-acks=-1"
    )
    assert found.identity == "kafka://h1:9092,h2:9093/cdc"
    assert found.cluster.servers == ("h1:9092", "h2:9093")
    assert (found.options.topics, found.options.exact) == (Topics("cdc", partition_num=6), True)
    assert found.cluster.settings == {"client.id": "x", "security.protocol": "plaintext"}


def test_logins_and_certificates_become_settings_of_the_client() -> None:
    found = source("protocol=canal-json&sasl-user=u&sasl-password=p%26w&sasl-mechanism=scram-sha-512&ca=/ca.pem")
    assert found.cluster.settings == {
        "sasl.username": "u",
        "sasl.password": "p&w",
        "sasl.mechanism": "SCRAM-SHA-512",
        "ssl.ca.location": "/ca.pem",
        "security.protocol": "sasl_ssl",
    }
    assert "p&w" not in repr(found)


def test_any_setting_of_the_client_may_be_given_but_those_that_reading_depends_on() -> None:
    assert source("protocol=canal-json&kafka.socket.timeout.ms=5").cluster.settings["socket.timeout.ms"] == "5"
    with pytest.raises(DefinitionError, match=r"kafka\.isolation\.level cannot be set"):
        source("protocol=canal-json&kafka.isolation.level=read_uncommitted")


def test_a_host_without_a_port_has_kafkas_own() -> None:
    assert source(base="kafka://h/t").cluster.servers == ("h:9092",)
    assert source(base="kafka://[::1]/t").cluster.servers == ("[::1]:9092",)


@pytest.mark.parametrize(
    ("rest", "base", "told"),
    [
        ("protocol=csv", URI, "The protocol 'csv' is not one that Headrace reads from Kafka"),
        ("protocol=simple&encoding-format=xml", URI, "encoding-format must be json or avro, not 'xml'"),
        ("protocol=avro", URI, "The protocol avro needs a schema registry"),
        ("protocol=debezium-avro", URI, "The protocol debezium-avro needs a schema registry"),
        ("protocol=debezium-avro&schema-registry=http://h", URI, "does not show which values are NULL"),
        ("protocol=avro&schema-registry=registry:8081", URI, "schema-registry is not the URL of a registry"),
        ("protocol=avro&schema-registry=http://h:x", URI, "schema-registry is not the URL of a registry"),
        ("protocol=avro&schema-registry-ca=/ca.pem", URI, "need schema-registry, the registry's URL"),
        ("protocol=avro&schema-registry=http://h&schema-registry-ca=/c", URI, "need a registry with https"),
        ("protocol=avro&schema-registry=http://h&avro-enable-watermark=yes", URI, "avro-enable-watermark must be true or false"),
        ("protocol=canal-json&partition-nums=3", URI, "Unknown parameter of a Kafka source 'partition-nums'"),
        ("protocol=canal-json&partition-num=0", URI, "partition-num=0 is not a number of partitions"),
        ("protocol=canal-json&enable-tidb-extension=maybe", URI, "enable-tidb-extension must be true or false"),
        ("large-message-handle-compression=zip", URI, "large-message-handle-compression must be one of none, lz4, snappy"),
        ("protocol=canal-json&time-zone=Mars", URI, "'Mars' is no time zone"),
        ("protocol=canal-json", "kafka://h:9092/", "does not name a topic"),
        ("protocol=canal-json", "kafka://h:9092/a/b", "does not name a topic"),
        ("protocol=canal-json", "kafka:///t", "does not name a server"),
        ("protocol=canal-json", "kafka://u:p@h:9092/t", "has a user before its host"),
        ("protocol=canal-json", "kafka://h:9092,i:x/t", "is not a number from 1 to 65535"),
    ],
)
def test_a_uri_that_cannot_be_read_says_what_to_write(rest: str, base: str, told: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        source(rest, base)
    assert told in refused.value.message


def changefeed(folder: Path, text: str) -> str:
    path = folder / "changefeed.toml"
    path.write_text(text)
    return str(path)


def test_a_changefeed_file_completes_the_uri(tmp_path: Path) -> None:
    file = changefeed(tmp_path, '[sink]\nprotocol = "canal-json"\n[sink.kafka-config]\npartition-num = 4\n')
    assert source("", changefeed=file).options.topics.partition_num == 4
    assert source("partition-num=2", changefeed=file).options.topics.partition_num == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '[sink]\nprotocol = "canal-json"\ncolumn-selectors = [{matcher = ["/a/.*"], columns = ["*"]}]\n',
            "is a regular expression",
        ),
        ('[sink]\nprotokol = "canal-json"\n', "Unknown [sink] key"),
    ],
)
def test_a_changefeed_file_that_headrace_cannot_follow_is_refused(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError) as refused:
        source("protocol=canal-json", changefeed=changefeed(tmp_path, text))
    assert told in refused.value.message


@pytest.mark.parametrize(("rest", "name"), [("protocol=simple", "simple"), ("protocol=Open-Protocol", "open-protocol"), ("", "")])
def test_the_protocol_is_named_or_left_to_the_messages(rest: str, name: str) -> None:
    assert source(rest).options.protocol == name


def test_the_default_protocol_is_the_open_one() -> None:
    assert source("protocol=default").event_source.reader.protocol.name == "open-protocol"  # type: ignore[attr-defined]


def test_either_encoding_may_be_named(tmp_path: Path) -> None:
    file = changefeed(tmp_path, '[sink]\nprotocol = "simple"\n[sink.kafka-config.codec-config]\nencoding-format = "avro"\n')
    for named in (source("", changefeed=file), source("protocol=simple&encoding-format=json")):
        assert named.event_source.reader.protocol.name == "simple"  # type: ignore[attr-defined]


def test_a_changefeeds_own_options_of_avro_are_accepted(tmp_path: Path) -> None:
    file = changefeed(
        tmp_path,
        """
        [sink]
        protocol = "avro"
        schema-registry = "http://me:secret@h:8081/path/"
        [sink.kafka-config.codec-config]
        enable-tidb-extension = true
        avro-enable-watermark = true
        avro-decimal-handling-mode = "string"
        avro-bigint-unsigned-handling-mode = "string"
        """,
    )
    found = source("avro-include-before-value=true&avro-decimal-handling-mode=string", changefeed=file)
    assert found.options.registry is not None
    assert found.options.registry.url == "http://h:8081/path"
    assert found.options.registry.login == ("me", "secret")
    assert "secret" not in repr(found)
    assert found.options.avro_watermarks
    assert found.caveats == ()
    reader = found.event_source.reader
    assert pickle.loads(pickle.dumps(reader)).protocol == reader.protocol  # type: ignore[attr-defined]


def test_the_password_of_a_registry_is_a_secret() -> None:
    uri = parse_uri("kafka://h/t?protocol=avro&schema-registry=http://me:p%2540ss@h:8081")
    assert uri.secrets() == ["p%40ss", "p@ss"]
    assert parse_uri("kafka://h/t?schema-registry=http://h:8081/a@b:c").secrets() == []


def test_a_source_can_be_sent_to_tasks() -> None:
    reader = source().event_source.reader
    assert pickle.loads(pickle.dumps(reader)) == reader


SEVERAL = "protocol=canal-json&topics="


class TestSeveralTopics:
    def test_names_and_patterns_beside_the_default_topic(self) -> None:
        found = source(f"{SEVERAL}orders,shop_*,!shop_tmp&partition-num=3")
        assert found.identity == "kafka://h1:9092,h2:9093/cdc"
        assert found.options.topics == Topics("cdc", ("orders", "shop_*"), ("shop_tmp",), 3)

    def test_without_a_default_topic_they_name_the_source(self) -> None:
        found = source(f"{SEVERAL}shop_*,orders", "kafka://h:9092/")
        assert found.identity == "kafka://h:9092/?topics=orders,shop_*"

    def test_those_that_exist_are_chosen_the_default_one_first(self) -> None:
        topics = Topics("cdc", ("orders", "shop_*", "*_offsets"), ("shop_tmp*",))
        present = ["__consumer_offsets", "shop_b", "shop_a", "shop_tmp1", "Shop_x", "other", "cdc"]
        assert topics.chosen(present) == ("cdc", "shop_a", "shop_b")
        assert topics.missing(present) == ["orders"]

    def test_a_partition_is_named_by_its_number_or_with_its_topic(self) -> None:
        topics = Topics("cdc", ("shop_*",), ("shop_tmp",), 2)
        for place, name in {("cdc", 1): "1", ("shop_a", 12): "shop_a/12"}.items():
            assert (topics.partition_name(*place), topics.place(name)) == (name, place)
        assert [name for name in ("0", "2", "shop_a/7", "shop_tmp/0", "b/0") if topics.includes(name)] == ["0", "shop_a/7"]

    @pytest.mark.parametrize(
        ("rest", "base", "told"),
        [
            (f"{SEVERAL}a/b", URI, "topics= has 'a/b', which is no name of a Kafka topic"),
            (SEVERAL, "kafka://h:9092/", "does not name a topic"),
            (f"{SEVERAL}!a", "kafka://h:9092/", "does not name a topic"),
            (
                f"{SEVERAL}a&partition-num=2",
                "kafka://h:9092/",
                "partition-num is the number of partitions of the",
            ),
        ],
    )
    def test_what_cannot_be_read_is_refused(self, rest: str, base: str, told: str) -> None:
        with pytest.raises(DefinitionError) as refused:
            source(rest, base)
        assert told in refused.value.message


class TestDispatchers:
    """To which topics a changefeed file sends tables."""

    def patterns(self, folder: Path, matcher: str, topic: str, rest: str = "") -> Topics:
        text = f'[sink]\nprotocol = "canal-json"\ndispatchers = [{{matcher = {matcher}, topic = "{topic}"}}]\n'
        return source(rest, changefeed=changefeed(folder, text)).options.topics

    @pytest.mark.parametrize(
        ("matcher", "topic", "pattern"),
        [
            ('["*.*"]', "{schema}_{table}", "*_*"),
            ('["shop.*"]', "cdc_{schema}.{table}_v1", "cdc_shop.*_v1"),
            ('["shop.orders"]', "{schema}", "shop"),
            ('["shop.a?"]', "{table}", "a?"),
            ('["shop.[ab]"]', "{table}", "?"),
            ('["/sh.p/.a"]', "{schema}-{table}", "*-*"),
            ('["*.*"]', "plain", "plain"),
        ],
    )
    def test_an_expression_becomes_a_pattern_of_its_tables(self, matcher: str, topic: str, pattern: str, tmp_path: Path) -> None:
        assert self.patterns(tmp_path, matcher, topic) == Topics("cdc", (pattern,), any_case=True)

    def test_b48_a_character_that_a_topic_cannot_have_becomes_an_underscore(self, tmp_path: Path) -> None:
        found = self.patterns(tmp_path, '["\\"a.b\\".中文"]', "hello_{schema}_{table}")
        assert found.patterns == ("hello_a.b___",)

    @pytest.mark.parametrize(
        ("database", "pattern"), [('\\".\\"', "_"), ('\\"..\\"', "__"), ("x" * 300, "x" * 249)], ids=["dot", "dots", "long"]
    )
    def test_b49_names_that_no_topic_can_have_are_replaced(self, database: str, pattern: str, tmp_path: Path) -> None:
        assert self.patterns(tmp_path, f'["{database}.a"]', "{schema}").patterns == (pattern,)

    @pytest.mark.parametrize("expression", ["{table}_{schema}", "{schema}{x}", "{schema}_{schema}", "a b"])
    def test_b50_an_expression_that_ticdc_does_not_have_is_refused(self, expression: str, tmp_path: Path) -> None:
        with pytest.raises(DefinitionError, match="is no topic expression of TiCDC"):
            self.patterns(tmp_path, '["*.*"]', expression)

    def test_rules_without_a_topic_and_negative_ones_name_none(self, tmp_path: Path) -> None:
        text = 'dispatchers = [{matcher = ["a.*"], partition = "ts"}, {matcher = ["b.*", "!b.x"], topic = "{schema}"}]\n'
        file = changefeed(tmp_path, f'[sink]\nprotocol = "canal-json"\n{text}')
        assert source("", changefeed=file).options.topics.patterns == ("b",)

    def test_topics_in_the_uri_take_precedence_and_those_left_out_are_taken_away(self, tmp_path: Path) -> None:
        assert self.patterns(tmp_path, '["*.*"]', "{schema}", f"{SEVERAL}a").patterns == ("a",)
        assert self.patterns(tmp_path, '["*.*"]', "{schema}", f"{SEVERAL}!a") == Topics("cdc", ("*",), ("a",), any_case=True)
