"""Finds source columns whose names are reserved for Headrace. Only their tables stop. Pure."""

from __future__ import annotations

from dataclasses import replace

from headrace.model.block import RESERVED_PREFIX
from headrace.model.offer import Offer
from headrace.model.outcome import Problem
from headrace.model.place import SourcePlace
from headrace.model.table import TableId, TableSchema, folded_name


def without_reserved_columns(offer: Offer) -> Offer:
    """The offer with a problem for each table that has, or had, a column whose name begins with Headrace's reserved prefix."""
    found: dict[TableId, Problem] = {}
    for change in offer.schema_changes:
        _check(change.schema, change.table_id, change.origin, found)
    for split in offer.splits:
        _check(split.schema, split.table_id, split.place, found)
    return replace(offer, problems=(*offer.problems, *found.values())) if found else offer


def _check(schema: TableSchema | None, table_id: TableId, place: SourcePlace | None, found: dict[TableId, Problem]) -> None:
    if schema is None or table_id in found:
        return
    name = next((c.name for c in schema.columns if folded_name(c.name).startswith(RESERVED_PREFIX)), None)
    if name is not None:
        message = f"names that begin with {RESERVED_PREFIX} are Headrace's own."
        found[table_id] = Problem(
            table_id, message, place, column=name, hint="Rename the column, or leave the table out with --tables."
        )
