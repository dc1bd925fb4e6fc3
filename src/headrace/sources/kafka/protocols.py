"""The protocols that are read, by their names, and how the first messages of a topic show which one it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from headrace.errors import DefinitionError, SourceNotReadyError
from headrace.formats.canal.messages import BEGINNING as CANAL
from headrace.formats.canal_json import CanalJsonOptions
from headrace.formats.compressed_values import uncompressed_all
from headrace.formats.craft.messages import is_craft
from headrace.formats.debezium_messages import is_debezium
from headrace.formats.debezium_mysql_messages import is_plain_debezium
from headrace.formats.maxwell_messages import is_maxwell
from headrace.formats.maxwell_mysql_messages import is_plain_maxwell
from headrace.formats.open_messages import is_open_protocol
from headrace.formats.simple_messages import is_avro
from headrace.kafka.client import Message
from headrace.sources.kafka.avro import AvroProtocol
from headrace.sources.kafka.canal import CanalProtocol
from headrace.sources.kafka.canal_json import CanalJsonProtocol
from headrace.sources.kafka.craft import CraftProtocol
from headrace.sources.kafka.debezium import DebeziumProtocol
from headrace.sources.kafka.debezium_avro import DebeziumAvroProtocol
from headrace.sources.kafka.debezium_mysql import DebeziumMySqlProtocol
from headrace.sources.kafka.maxwell import MaxwellProtocol
from headrace.sources.kafka.maxwell_mysql import MaxwellMySqlProtocol
from headrace.sources.kafka.open_protocol import OpenProtocol
from headrace.sources.kafka.options import KafkaOptions
from headrace.sources.kafka.protocol import KafkaProtocol
from headrace.sources.kafka.registered import RegisteredSchemas, schema_id_of
from headrace.sources.kafka.simple import SimpleProtocol

_CANAL_JSON = re.compile(rb'\s*\{"id":[0-9]+,"database":"')
# The members version and connector of a source; the names of TiCDC and mysql have the same length, which stands before them.
_DEBEZIUM_IN_AVRO = re.compile(rb"[0-9]\.Final\n(?:TiCDC|mysql)")
_SIMPLE = re.compile(rb'\s*\{"version":[0-9]+,"')
# TiCDC writes these members first. A row of Maxwell has a key of the Open Protocol without events.
_SHOWN_BY: Sequence[tuple[str, Callable[[bytes | None, bytes], bool]]] = (
    ("maxwell", is_maxwell),
    ("open-protocol", lambda key, _value: is_open_protocol(key)),
    ("simple", lambda key, value: not key and is_avro(value)),
    ("debezium-avro", lambda _key, value: schema_id_of(value) is not None and _DEBEZIUM_IN_AVRO.search(value) is not None),
    ("avro", lambda key, value: schema_id_of(value) is not None and schema_id_of(key or b"") is not None),
    ("canal", lambda key, value: not key and value.startswith(CANAL)),
    ("craft", lambda key, value: not key and is_craft(value)),
    ("debezium", lambda _key, value: is_debezium(value)),
    ("debezium-mysql", lambda _key, value: is_plain_debezium(value)),
    ("maxwell-mysql", lambda _key, value: is_plain_maxwell(value)),
    ("canal-json", lambda _key, value: _CANAL_JSON.match(value) is not None),
    ("simple", lambda _key, value: _SIMPLE.match(value) is not None),
)
"""What shows a protocol, by key and value of a message."""


def _canal_json(options: KafkaOptions) -> KafkaProtocol:
    return CanalJsonProtocol(options.exact, CanalJsonOptions(terminator="\n", time_zone=options.time_zone))


def _registered(protocol: str, options: KafkaOptions) -> RegisteredSchemas:
    if options.registry is None:
        raise DefinitionError(
            f"The protocol {protocol} needs a schema registry, and the source's URI names none.",
            "Write schema-registry=http://host:8081, as in the changefeed's own command.",
        )
    return RegisteredSchemas(options.registry)


def _avro(options: KafkaOptions) -> KafkaProtocol:
    return AvroProtocol(_registered("avro", options), options.avro_watermarks, options.time_zone)


def _debezium_avro(options: KafkaOptions) -> KafkaProtocol:
    schemas = _registered("debezium-avro", options)
    if not options.avro_watermarks and not options.accept_unclear:
        raise DefinitionError(
            "Without avro-enable-watermark, the protocol debezium-avro does not show which values are NULL: TiCDC writes a "
            "column's default for it, and no message has the defaults.",
            "Set enable-tidb-extension=true and avro-enable-watermark=true in the changefeed's sink URI, and "
            "avro-enable-watermark=true in the source's. Or have values applied as messages have them, with accept-unclear=true.",
        )
    return DebeziumAvroProtocol(schemas, options.avro_watermarks, options.accept_unclear)


_MADE: Mapping[str, Callable[[KafkaOptions], KafkaProtocol]] = {
    "canal-json": _canal_json,
    "open-protocol": lambda options: OpenProtocol(options.time_zone),
    "avro": _avro,
    "debezium-avro": _debezium_avro,
    "simple": lambda _options: SimpleProtocol(),
    "maxwell": lambda options: MaxwellProtocol(options.time_zone),
    "canal": lambda options: CanalProtocol(options.time_zone),
    "craft": lambda options: CraftProtocol(options.time_zone),
    "debezium": lambda options: DebeziumProtocol(options.accept_unclear),
    "debezium-mysql": lambda options: DebeziumMySqlProtocol(options.accept_unclear),
    "maxwell-mysql": lambda options: MaxwellMySqlProtocol(options.accept_unclear),
}


def protocol_of(name: str, options: KafkaOptions) -> KafkaProtocol:
    """The protocol of a name in ``headrace.sources.kafka.options.PROTOCOLS``."""
    return _MADE[name](options)


def detected(messages: Iterable[Message]) -> str | None:
    """The name of the protocol of the first message that shows one; ``None`` if no message does."""
    return next((name for message in messages if (name := _shown(message)) is not None), None)


def _shown(message: Message) -> str | None:
    (value,), _ = uncompressed_all([message.value or b""])
    return next((name for name, shows in _SHOWN_BY if shows(message.key, value)), None)


def undetected(topics: Sequence[str], names: Iterable[str]) -> SourceNotReadyError:
    """The error for topics whose first messages show no protocol."""
    what = f"the topic {topics[0]}" if len(topics) == 1 else f"the topics {', '.join(topics)}"
    return SourceNotReadyError(
        f"The first messages of {what} do not show in which protocol the changefeed writes.",
        f"Add protocol= to the source's URI. Headrace reads {', '.join(names)}.",
    )
