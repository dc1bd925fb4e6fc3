"""Messages whose bytes begin with the id of their schema in a registry, and these schemas.

Format: Confluent documentation, "Wire format": a zero byte, the id in four bytes (the highest first), and Avro's binary encoding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from headrace.formats.avro.schema import AvroSchemaError, Record, parse_schema
from headrace.kafka.registry import SchemaRegistry, UnknownSchemaError

FRAME = 5
"""The bytes before the content."""
_GLUE = b"\x03\x00"
_GLUE_FRAME = 18
_IN_GLUE = "it names its schema by AWS Glue's UUID, and Headrace reads only registries with Confluent's API."
_NO_FRAME = "its first bytes do not name a schema of a registry. The protocol may be another one."
_MOST_UNKNOWN = 1000
"""Behind so many schemas that are not known, others need not be asked for: nothing is applied behind the first message of one."""
_NOT_ASKED = (
    "its schema was not asked for, since {count} others that messages before it name are not known to the registry {url}. Check "
    "protocol and schema-registry in the source's URI."
)
_MOST_KEPT = 10_000
_MOST_KEPT_CHARACTERS = 64 << 20
"""Parsed, a schema takes some ten times the memory of its text."""


def schema_id_of(message: bytes) -> int | None:
    """The id of the schema with which a message was written; ``None`` if it has no frame."""
    return int.from_bytes(message[1:FRAME], "big") if len(message) >= FRAME and not message[0] else None


def why_unframed(message: bytes) -> str:
    """Why a message has no frame, as the end of a sentence."""
    return _IN_GLUE if len(message) >= _GLUE_FRAME and message.startswith(_GLUE) else _NO_FRAME


def by_schema(messages: Sequence[bytes]) -> dict[int | None, list[int]]:
    """The numbers of the messages that were written with each schema; ``None`` for those without a frame."""
    found: dict[int | None, list[int]] = defaultdict(list)
    for number, message in enumerate(messages):
        found[schema_id_of(message)].append(number)
    return dict(found)


class FetchedSchemas:
    """Schemas that were fetched. It forgets all of them before it holds too many or too long ones."""

    def __init__(self, most_characters: int = _MOST_KEPT_CHARACTERS) -> None:
        self._most_characters = most_characters
        self._characters = 0
        self._records: dict[tuple[SchemaRegistry, int], Record] = {}

    def find(self, registry: SchemaRegistry, schema_id: int) -> Record | None:
        """The schema, if it is held."""
        return self._records.get((registry, schema_id))

    def keep(self, registry: SchemaRegistry, schema_id: int, record: Record, characters: int) -> None:
        """Holds a schema whose text has so many characters."""
        if len(self._records) >= _MOST_KEPT or self._characters + characters > self._most_characters:
            self._records.clear()
            self._characters = 0
        self._records[registry, schema_id] = record
        self._characters += characters


# A schema of an id never changes, so all readers of a process share what they fetched.
_FETCHED = FetchedSchemas()


@dataclass(frozen=True)
class RegisteredSchemas:
    """The schemas of a registry. Picklable; each process fetches a schema once."""

    registry: SchemaRegistry
    _unknown: dict[int, str] | None = field(default=None, compare=False, repr=False)
    """Why schemas that a read has asked for are not known, by their ids; ``None`` outside one."""

    def for_a_read(self) -> RegisteredSchemas:
        """The same for one read, which asks only once for a schema that is not known: it may be registered later."""
        return replace(self, _unknown={})

    def find(self, schema_id: int) -> Record | str:
        """The record with which messages of an id were written, or why it is unknown, as the end of a sentence.

        Raises SourceUnreachableError if the registry cannot be asked.
        """
        if (fetched := _FETCHED.find(self.registry, schema_id)) is not None:
            return fetched
        unknown = {} if self._unknown is None else self._unknown
        if schema_id in unknown:
            return unknown[schema_id]
        if len(unknown) >= _MOST_UNKNOWN:
            return _NOT_ASKED.format(url=self.registry.url, count=_MOST_UNKNOWN)
        found = self._fetched(schema_id)
        if isinstance(found, str):
            unknown[schema_id] = found
            return found
        return found

    def _fetched(self, schema_id: int) -> Record | str:
        try:
            told = self.registry.schema(schema_id)
        except UnknownSchemaError as error:
            return str(error)
        where = f"its schema, {schema_id} of {self.registry.url},"
        if told.type != "AVRO":
            return f"{where} is of the type {told.type[:20]}, and not Avro."
        if told.has_references:
            return f"{where} refers to other schemas, which Headrace does not read."
        try:
            schema = parse_schema(told.text)
        except AvroSchemaError as error:
            return f"{where} cannot be read: {error}"
        if not isinstance(schema, Record):
            return f"{where} is not a record."
        _FETCHED.keep(self.registry, schema_id, schema, len(told.text))
        return schema

    def record(self, schema_id: int) -> Record:
        """As :meth:`find`, for an id that was found before. Raises ValueError, the end of a sentence, if it is gone."""
        found = self.find(schema_id)
        if isinstance(found, str):
            raise ValueError(found)
        return found
