"""The options of a changefeed for messages that are too large for Kafka, by TiCDC's names, and where their rows are.

TiCDC documentation, "Replicate Data to Kafka", section "Handle messages that exceed the Kafka topic limit". In the changefeed file
they are in ``[sink.kafka-config.large-message-handle]``. Each message shows itself how it was handled, so most of them only have to
be valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.errors import DefinitionError
from headrace.formats.compressed_values import COMPRESSIONS
from headrace.model.uri import parse_uri, reject_unknown
from headrace.places.location import STORE_PARAMETERS
from headrace.sources.ticdc_storage.stores import StoreLocation, store_location
from headrace.upstream.settings import Upstream, upstream_of

SECTION = "large-message-handle"
_COMPRESSION, _OPTION, _RAW = "large-message-handle-compression", "large-message-handle-option", "claim-check-raw-value"
_STORAGE = "claim-check-storage-uri"
_OF_TICDC = frozenset({_COMPRESSION, _OPTION, _RAW, _STORAGE})
LARGE_PARAMETERS = _OF_TICDC | {"upstream"}
_VALUES = {_COMPRESSION: COMPRESSIONS, _OPTION: ("none", "claim-check", "handle-key-only"), _RAW: ("true", "false")}


@dataclass(frozen=True)
class LargeRowPlaces:
    """Where the rows are of which Kafka has only the handle key. Picklable."""

    storage: StoreLocation | None = None
    """The claim-check storage."""
    upstream: Upstream | None = None
    """The TiDB that the changefeed replicates."""


def large_section(kafka: Mapping[str, object], path: str) -> Mapping[str, object]:
    """The options in ``[sink.kafka-config.large-message-handle]`` of the changefeed file at ``path``. Raises DefinitionError."""
    section = kafka.get(SECTION, {})
    if not isinstance(section, dict):
        raise DefinitionError(
            f"{SECTION!r} in the changefeed file {path} is not a section.", f"Write [sink.kafka-config.{SECTION}]."
        )
    reject_unknown(section.keys(), _OF_TICDC, f"[sink.kafka-config.{SECTION}] key of the changefeed file {path}")
    return section


def read_large_options(told: Mapping[str, object]) -> LargeRowPlaces:
    """The options among ``told``. Does not connect. Raises DefinitionError, and MissingPartError without PyMySQL."""
    for name, values in _VALUES.items():
        value = str(told.get(name, values[0])).lower()
        if value not in values:
            raise DefinitionError(f"{name} must be one of {', '.join(values)}, not {value!r}.")
    storage, upstream = (str(told.get(name) or "") for name in (_STORAGE, "upstream"))
    return LargeRowPlaces(_storage(storage) if storage else None, upstream_of(upstream) if upstream else None)


def _storage(text: str) -> StoreLocation:
    uri = parse_uri(text)
    reject_unknown(uri.params, STORE_PARAMETERS, f"parameter of {_STORAGE}")
    return store_location(uri)
