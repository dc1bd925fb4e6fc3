"""A table's shape as text, for the ledger. Later versions of Headrace must read it back exactly too.

The text is JSON with the number of the format. Fields with their default value are left out; all other fields of
:class:`TableSchema` and of its parts are there by name. A reader rejects unknown fields, because an ignored field might change the
meaning of rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any

from headrace.errors import DefinitionError
from headrace.model.ledger import TableShape
from headrace.model.table import Column, Generated, Index, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind

FORMAT = 1


_BESIDE = ("partitioning", "collation")
"""The fields of :class:`TableShape` that its text also contains. Texts from before these fields existed get the default."""


def kept_shape_to_text(shape: TableShape) -> str:
    """A kept shape as text, without its two TSOs, which the ledger stores separately."""
    beside = {name: value for name in _BESIDE if (value := getattr(shape, name))}
    return _text(shape.schema, beside)


def kept_shape_from_text(incarnation: int, version: int, text: str) -> TableShape:
    """The shape that :func:`kept_shape_to_text` was given. Raises DefinitionError as :func:`shape_from_text` does."""
    schema, beside = _parsed(text)
    return TableShape(incarnation, version, schema, **beside)


def shape_to_text(schema: TableSchema) -> str:
    """The shape as ASCII text. Equal shapes, with the same fields that equality leaves out, give equal texts."""
    return _text(schema, {})


def shape_from_text(text: str) -> TableSchema:
    """The shape that :func:`shape_to_text` was given. Raises DefinitionError for another format or an invalid text."""
    return _parsed(text)[0]


def _text(schema: TableSchema, beside: Mapping[str, str]) -> str:
    return json.dumps({"format": FORMAT, **_to_json(schema), **beside}, separators=(",", ":"))


def _parsed(text: str) -> tuple[TableSchema, dict[str, str]]:
    try:
        data = json.loads(text)
        number = data.pop("format")
        if number == FORMAT:
            beside = {name: str(data.pop(name)) for name in _BESIDE if name in data}
            return _schema(data), beside
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DefinitionError(
            f"The ledger holds a shape of a table that cannot be read ({error}): {text[:200]!r}.",
            "Restore the ledger from a backup, or forget the pipeline with headrace reset.",
        ) from None
    raise DefinitionError(
        f"The ledger holds shapes of tables in format {number!r}, and this Headrace reads format {FORMAT}.",
        "Run the version of Headrace that wrote them, or a later one.",
    )


def _to_json(value: object) -> dict[str, Any]:
    """The fields of a dataclass that do not have their default value."""
    found = {}
    for part in fields(value):  # type: ignore[arg-type]
        own = getattr(value, part.name)
        if part.default is MISSING or own != part.default:
            found[part.name] = _json_of(own)
    return found


def _json_of(value: object) -> object:
    if isinstance(value, tuple):
        return [_json_of(part) for part in value]
    return value if value is None or isinstance(value, str | int) else _to_json(value)


_Reader = Callable[[Any], object]


def _read(kind: type, data: Mapping[str, Any], /, **readers: _Reader) -> dict[str, Any]:
    """The arguments of a dataclass from its JSON. Raises ValueError for a field that it does not have."""
    known: dict[str, Field[Any]] = {part.name: part for part in fields(kind)}
    strange = data.keys() - known.keys()
    if strange:
        raise ValueError(f"{kind.__name__} has no {', '.join(sorted(strange))}")
    return {name: readers[name](value) if name in readers and value is not None else value for name, value in data.items()}


def _schema(data: Mapping[str, Any]) -> TableSchema:
    return TableSchema(
        **_read(
            TableSchema,
            data,
            table_id=lambda found: TableId(**_read(TableId, found)),
            columns=lambda found: tuple(map(_column, found)),
            handle_key=tuple,
            indexes=lambda found: tuple(Index(**_read(Index, index, columns=tuple)) for index in found),
        )
    )


def _column(data: Mapping[str, Any]) -> Column:
    return Column(**_read(Column, data, type=_type, generated=Generated))


def _type(data: Mapping[str, Any]) -> ColumnType:
    return ColumnType(**_read(ColumnType, data, kind=TypeKind, elements=tuple))
