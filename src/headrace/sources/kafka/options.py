"""The configured options of a changefeed that writes to Kafka, from the source's URI and from TiCDC's own changefeed file.

Names and defaults are TiCDC's (TiCDC documentation, "Replicate Data to Kafka"). The URI takes precedence over the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.errors import DefinitionError
from headrace.formats.values import check_time_zone
from headrace.kafka.registry import PARAMETERS as REGISTRY_PARAMETERS
from headrace.kafka.registry import SchemaRegistry, registry_of
from headrace.kafka.settings import CLUSTER_PARAMETERS, PREFIX, is_topic_name
from headrace.model.uri import Uri, reject_unknown
from headrace.sources.changefeed_file import ChangefeedFile, read_changefeed_file
from headrace.sources.changefeed_rules import ColumnSelectors, read_selectors
from headrace.sources.kafka.large_options import LARGE_PARAMETERS, LargeRowPlaces, large_section, read_large_options
from headrace.sources.kafka.topics import Topics, patterns_of_file, topics_of_text

PROTOCOLS = (
    *("canal-json", "open-protocol", "simple", "avro", "debezium", "debezium-avro", "maxwell", "canal", "craft"),
    *("debezium-mysql", "maxwell-mysql"),
)
"""The protocols that are read: by TiCDC's names, and two for topics of Debezium and Maxwell themselves."""
_OTHER_NAMES = {"default": "open-protocol", "flat-avro": "avro"}
_OF_STREAM = LARGE_PARAMETERS | {
    *("protocol", "partition-num", "enable-tidb-extension", "encoding-format", "schema-registry", "avro-enable-watermark")
}
_OWN = frozenset({"accept-keyless", "accept-unclear", "allow-gap", "time-zone", "topics"})
_WITHOUT_EFFECT = frozenset(
    {
        *("auto-create-topic", "compression", "content-compatible", "delete-only-output-handle-key-columns", "dial-timeout"),
        *("kafka-version", "max-batch-size", "max-message-bytes", "only-output-updated-columns", "output-row-key", "read-timeout"),
        *("avro-bigint-unsigned-handling-mode", "avro-decimal-handling-mode", "avro-include-before-value"),
        *("replication-factor", "required-acks", "write-timeout", "output-raw-change-event"),
        *("debezium-disable-schema", "debezium-output-old-value", "debezium-include-start-ts"),
    }
)
URI_PARAMETERS = CLUSTER_PARAMETERS | REGISTRY_PARAMETERS | _OF_STREAM | _OWN | _WITHOUT_EFFECT
"""All parameters that a Kafka source's URI may have, besides those of librdkafka (``kafka.…``)."""
_TRUE, _FALSE = frozenset({"true", "1"}), frozenset({"false", "0"})


@dataclass(frozen=True)
class KafkaOptions:
    """How to read a changefeed's topics."""

    topics: Topics
    exact: bool = True
    """Whether messages have to carry a commit ts (the TiDB extension)."""
    accept_keyless: bool = False
    """Whether tables without a key are applied, though rows that the changefeed sends again may be there twice then."""
    protocol: str = ""
    """One of :data:`PROTOCOLS`; empty if the topic's first messages have to show it."""
    time_zone: str = "UTC"
    """The zone of TIMESTAMP text, where messages do not name it."""
    selectors: ColumnSelectors = field(default_factory=ColumnSelectors)
    """Which columns the changefeed writes into rows."""
    registry: SchemaRegistry | None = None
    """Of ``avro`` and ``debezium-avro``."""
    avro_watermarks: bool = False
    """Whether messages of ``avro`` and ``debezium-avro`` carry watermarks and schema changes, and deletions a commit ts."""
    accept_unclear: bool = False
    """Whether values are applied as messages have them where the protocol does not show the source's value exactly."""
    large: LargeRowPlaces = field(default_factory=LargeRowPlaces)
    """Where the rows are of which messages have only the handle key."""
    allow_gap: bool = False
    """Whether a pipeline may begin although changes after its start may not be kept any more."""


def read_options(uri: Uri, changefeed: str | None = None) -> KafkaOptions:
    """The options of a URI and, with lower precedence, of the changefeed file at ``changefeed``. Raises DefinitionError."""
    own = [name for name in uri.params if not name.startswith(PREFIX)]
    reject_unknown(own, URI_PARAMETERS, "parameter of a Kafka source")
    file = read_changefeed_file(changefeed) if changefeed else None
    told: dict[str, object] = _of_file(file) if file else {}
    told.update(uri.params)
    _check_encoding(told)
    time_zone = str(told.get("time-zone", "UTC"))
    try:
        check_time_zone(time_zone)
    except ValueError as error:
        raise DefinitionError(f"The options of the changefeed do not work: {error}.") from None
    return KafkaOptions(
        _topics(uri, file, _partitions(told)),
        _flag(told, "enable-tidb-extension", True),
        _flag(told, "accept-keyless", False),
        _protocol(told),
        time_zone,
        read_selectors(file) if file else ColumnSelectors(),
        registry_of({name: str(value) for name, value in told.items()}),
        _flag(told, "avro-enable-watermark", False),
        _flag(told, "accept-unclear", False),
        read_large_options(told),
        _flag(told, "allow-gap", False),
    )


def _of_file(file: ChangefeedFile) -> dict[str, object]:
    """The file's options with the URI's names. Raises DefinitionError."""
    kafka = file.section("kafka-config")
    codec = kafka.get("codec-config")
    encoding = codec if isinstance(codec, dict) else {}
    large = large_section(kafka, file.path)
    told = {key: value for key, value in {**kafka, **encoding, **file.sink, **large}.items() if key in _OF_STREAM}
    return {key: value for key, value in told.items() if value not in ("", None)}


def _protocol(told: Mapping[str, object]) -> str:
    protocol = str(told.get("protocol", "")).lower()
    protocol = _OTHER_NAMES.get(protocol, protocol)
    if protocol and protocol not in PROTOCOLS:
        raise DefinitionError(
            f"The protocol {protocol!r} is not one that Headrace reads from Kafka.", f"Known are: {', '.join(PROTOCOLS)}."
        )
    return protocol


def _check_encoding(told: Mapping[str, object]) -> None:
    """Messages show their encoding themselves."""
    encoding = str(told.get("encoding-format", "json")).lower()
    if encoding not in ("json", "avro"):
        raise DefinitionError(f"encoding-format must be json or avro, not {encoding!r}.")


def _topics(uri: Uri, file: ChangefeedFile | None, partition_num: int | None) -> Topics:
    """The topics that the URI names, and if it has no ``topics=``, those to which the changefeed file dispatches tables."""
    default = uri.path.strip("/")
    patterns, left_out = topics_of_text(uri.params.get("topics", ""))
    of_file = not patterns and file is not None
    if of_file and file is not None:
        patterns = tuple(dict.fromkeys(patterns_of_file(file)))
    if (default or not patterns) and not is_topic_name(default):
        raise DefinitionError(
            f"{uri.redacted()} does not name a topic.",
            "Write kafka://host:9092/topic?protocol=canal-json, or name several with kafka://host:9092/?topics=a,b,shop_*.",
        )
    if partition_num is not None and not default:
        raise DefinitionError(
            "partition-num is the number of partitions of the changefeed's default topic, and the URI does not name that.",
            "Write the default topic as the URI's path, or leave partition-num out.",
        )
    any_case = of_file and file is not None and not file.case_sensitive
    return Topics(default, patterns, left_out, partition_num, any_case)


def _partitions(told: Mapping[str, object]) -> int | None:
    text = str(told.get("partition-num", ""))
    if text and not re.fullmatch("[1-9][0-9]{0,5}", text):
        raise DefinitionError(f"partition-num={text} is not a number of partitions.")
    return int(text) if text else None


def _flag(told: Mapping[str, object], name: str, default: bool) -> bool:
    value = str(told.get(name, default)).lower()
    if value not in _TRUE | _FALSE:
        raise DefinitionError(f"{name} must be true or false, not {value!r}.")
    return value in _TRUE
