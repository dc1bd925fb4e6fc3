"""Avro schemas as values.

Format: Apache Avro specification 1.12, "Schema Declaration". Aliases, doc strings and sort orders are left out, because they do not
matter to who reads with the writer's schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

_LONGEST_TEXT = 4 << 20
_DEEPEST = 32
_MOST_PARTS = 50_000
"""The most types and symbols of a schema, with named types counted wherever they are used. A table has at most 4096 columns."""
LONGEST_NAME = 512
"""The most characters of a name, with its namespace, or of a symbol. Values are read with the names of each place of a type.

TiCDC's have the names of the changefeed, the database and the table.
"""
_MOST_FIXED = 1 << 20


class AvroSchemaError(ValueError):
    """A text is not an Avro schema that can be read; ``str()`` is the end of a sentence."""


class Kind(StrEnum):
    """The types without parts."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    BYTES = "bytes"
    STRING = "string"


@dataclass(frozen=True)
class Primitive:
    """A type without parts, with what its writer says of it."""

    kind: Kind
    logical: str = ""
    """``logicalType``; empty for none."""
    precision: int = 0
    scale: int = 0
    """Of the logical type ``decimal``."""
    connect_name: str = ""
    """``connect.name``, Kafka Connect's name of the type; empty for none."""
    parameters: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    """``connect.parameters``, which TiCDC and Debezium use for the type of the column."""


@dataclass(frozen=True)
class Enumeration:
    """One of some names."""

    name: str
    symbols: tuple[str, ...]


@dataclass(frozen=True)
class Fixed:
    """So many bytes."""

    name: str
    size: int


@dataclass(frozen=True)
class Array:
    """Any number of values of one type."""

    items: AvroType


@dataclass(frozen=True)
class Map:
    """Values of one type by a text each."""

    values: AvroType


@dataclass(frozen=True)
class Union:
    """One of several types."""

    branches: tuple[AvroType, ...]

    @property
    def optional(self) -> AvroType | None:
        """The type that is optional here, if the union is of null and one other type."""
        others = [branch for branch in self.branches if branch != NULL]
        return others[0] if len(self.branches) == 2 and len(others) == 1 else None


@dataclass(frozen=True)
class Field:
    """A field of a record."""

    name: str
    type: AvroType
    default: object = None
    """As JSON has it; of meaning only with ``has_default``."""
    has_default: bool = False
    tidb_type: str = ""
    """TiDB's type of a column, which TiCDC's ``debezium-avro`` writes here; empty for none."""

    @property
    def value_type(self) -> AvroType:
        """The type of its values that are not null."""
        optional = self.type.optional if isinstance(self.type, Union) else None
        return self.type if optional is None else optional

    @property
    def nullable(self) -> bool:
        """Whether its value may be null."""
        return NULL in self.type.branches if isinstance(self.type, Union) else self.type == NULL


@dataclass(frozen=True)
class Record:
    """Named fields, in order."""

    name: str
    """Without the namespace."""
    namespace: str
    fields: tuple[Field, ...]

    @property
    def full_name(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace else self.name

    def field(self, name: str) -> Field | None:
        """The field of a name."""
        return next((field for field in self.fields if field.name == name), None)


AvroType = Primitive | Enumeration | Fixed | Array | Map | Union | Record
NULL = Primitive(Kind.NULL)
_KINDS = {str(kind): kind for kind in Kind}


def branch_name(of: AvroType) -> str:
    """How a branch of a union is called in Arrow's columns: a named type's full name, else the kind of the type."""
    match of:
        case Primitive():
            return str(of.kind)
        case Record():
            return of.full_name
        case Enumeration() | Fixed():
            return of.name
        case _:
            return type(of).__name__.lower()


def parse_schema(text: str) -> AvroType:
    """The schema that a JSON text declares. Raises AvroSchemaError; a record must not contain itself."""
    if len(text) > _LONGEST_TEXT:
        raise AvroSchemaError(f"it has more than {_LONGEST_TEXT} characters.")
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        told = text  # the name of a type need not be quoted where a registry answers with it
    return _Parser().parse(told, "", 0)


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, tuple[AvroType, int]] = {}
        self._open: set[str] = set()
        self._parts = 0

    def parse(self, told: object, namespace: str, depth: int) -> AvroType:
        self._count(1)
        if depth > _DEEPEST:
            raise AvroSchemaError("its types are nested too deeply.")
        if isinstance(told, str):
            return self._of_name(told, namespace)
        if isinstance(told, list):
            return self._union(told, namespace, depth)
        if not isinstance(told, dict):
            raise AvroSchemaError(f"{_shown(told)} is not a type.")
        kind = told.get("type")
        if isinstance(kind, str) and kind in _MADE:
            return _MADE[kind](self, told, namespace, depth)
        if isinstance(kind, str) and kind in _KINDS:
            return _primitive(_KINDS[kind], told)
        return self.parse(kind, namespace, depth + 1)

    def _count(self, parts: int) -> None:
        self._parts += parts
        if self._parts > _MOST_PARTS:
            raise AvroSchemaError(f"it has more than {_MOST_PARTS} types and symbols.")

    def _of_name(self, name: str, namespace: str) -> AvroType:
        if name in _KINDS:
            return Primitive(_KINDS[name])
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full in self._open:
            raise AvroSchemaError(f"the type {_shown(full)} contains itself.")
        if full not in self._named:
            raise AvroSchemaError(f"the type {_shown(full)} is not defined.")
        found, parts = self._named[full]
        self._count(parts)
        return found

    def _union(self, told: list[object], namespace: str, depth: int) -> Union:
        branches = tuple(self.parse(branch, namespace, depth + 1) for branch in told)
        names = [branch_name(branch) for branch in branches]
        if not branches or any(isinstance(branch, Union) for branch in branches) or len(set(names)) < len(names):
            raise AvroSchemaError("a union is empty, directly in another union, or has the same type twice.")
        return Union(branches)

    def array(self, told: Mapping[str, object], namespace: str, depth: int) -> AvroType:
        return Array(self.parse(told.get("items"), namespace, depth + 1))

    def map(self, told: Mapping[str, object], namespace: str, depth: int) -> AvroType:
        return Map(self.parse(told.get("values"), namespace, depth + 1))

    def record(self, told: Mapping[str, object], namespace: str, depth: int) -> AvroType:
        name, own = _names(told, namespace)
        full = f"{own}.{name}" if own else name
        listed = told.get("fields")
        if not isinstance(listed, list):
            raise AvroSchemaError(f"the record {_shown(name)} has no list of fields.")
        before = self._parts
        self._open.add(full)
        fields = tuple(self._field(entry, own, depth) for entry in listed)
        self._open.discard(full)
        if len({field.name for field in fields}) < len(fields):
            raise AvroSchemaError(f"the record {_shown(name)} has two fields of one name.")
        return self._define(full, Record(name, own, fields), self._parts - before)

    def _field(self, told: object, namespace: str, depth: int) -> Field:
        name = told.get("name") if isinstance(told, dict) else None
        if not isinstance(told, dict) or not isinstance(name, str) or not name:
            raise AvroSchemaError("a field has no name.")
        _check_length(name)
        of, column_type = self.parse(told.get("type"), namespace, depth + 1), str(told.get("tidb_type") or "")
        return Field(name, of, told.get("default"), "default" in told, column_type)

    def enumeration(self, told: Mapping[str, object], namespace: str, _depth: int) -> AvroType:
        name, own = _names(told, namespace)
        symbols = told.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            raise AvroSchemaError(f"the enum {_shown(name)} has no list of symbols.")
        self._count(len(symbols))
        for symbol in symbols:
            _check_length(symbol)
        return self._define(f"{own}.{name}" if own else name, Enumeration(name, tuple(symbols)), 1 + len(symbols))

    def fixed(self, told: Mapping[str, object], namespace: str, _depth: int) -> AvroType:
        name, own = _names(told, namespace)
        size = told.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _MOST_FIXED:
            raise AvroSchemaError(f"the size of {_shown(name)} is not a number of bytes.")
        return self._define(f"{own}.{name}" if own else name, Fixed(name, size), 1)

    def _define(self, full: str, found: AvroType, parts: int) -> AvroType:
        if full in self._named:
            raise AvroSchemaError(f"the type {_shown(full)} is defined twice.")
        self._named[full] = found, parts
        return found


_MADE: Mapping[str, Callable[[_Parser, Mapping[str, object], str, int], AvroType]] = {
    "array": _Parser.array,
    "map": _Parser.map,
    "record": _Parser.record,
    "enum": _Parser.enumeration,
    "fixed": _Parser.fixed,
}


def _names(told: Mapping[str, object], namespace: str) -> tuple[str, str]:
    """The name of a named type, without and with its namespace."""
    name, own = told.get("name"), told.get("namespace", namespace)
    if not isinstance(name, str) or not name or not isinstance(own, str):
        raise AvroSchemaError("a record, enum or fixed type has no name.")
    if "." in name:
        own, _, name = name.rpartition(".")
    _check_length(f"{own}.{name}")
    return name, own


def _check_length(name: str) -> None:
    if len(name) > LONGEST_NAME:
        raise AvroSchemaError(f"the name {_shown(name)} has more than {LONGEST_NAME} characters.")


def _primitive(kind: Kind, told: Mapping[str, object]) -> Primitive:
    parameters = told.get("connect.parameters")
    logical, precision, scale = told.get("logicalType"), told.get("precision"), told.get("scale", 0)
    if logical == "decimal" and not (_is_digits(precision, 1) and _is_digits(scale, 0)):
        raise AvroSchemaError(f"a decimal has the precision {_shown(precision)} and the scale {_shown(scale)}.")
    return Primitive(
        kind,
        logical if isinstance(logical, str) else "",
        precision if isinstance(precision, int) and logical == "decimal" else 0,
        scale if isinstance(scale, int) and logical == "decimal" else 0,
        str(told.get("connect.name") or ""),
        MappingProxyType({str(name): str(value) for name, value in parameters.items()} if isinstance(parameters, dict) else {}),
    )


def _is_digits(number: object, least: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and least <= number <= 1000


def _shown(told: object) -> str:
    return repr(told)[:80]
