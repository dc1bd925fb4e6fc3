"""Why two shapes alone may not tell what happened between them."""

from __future__ import annotations

from headrace.model.table import Column, TableSchema, folded_name
from headrace.model.types import BINARY_KINDS, TypeKind

_WITHOUT_DEFAULT = BINARY_KINDS | {TypeKind.BIT, TypeKind.DECIMAL}
"""The types whose default a registered schema of Avro does not tell."""
_OF_NOW = "CURRENT_TIMESTAMP"


def doubt_about(before: TableSchema | None, after: TableSchema, *, tells_defaults: bool = True) -> str:
    """What is not known of a change that only its shapes show, as a sentence for a person who decides; empty if all of it is.

    A column that is gone while another one is new may have been renamed; then its values stay. A column that was added has its
    default in the rows that were there before. ``tells_defaults``: whether ``after`` has the defaults of columns.
    """
    if before is None:
        return ""
    gone = [column.name for column in before.columns if not after.has_column(column.name)]
    new = [column for column in after.columns if not before.has_column(column.name)]
    if gone and new:
        return (
            f"no statement says what became of {', '.join(gone)}: it may have been renamed to "
            f"{' or '.join(column.name for column in new)}, or dropped."
        )
    unknown = [column.name for column in new if not tells_defaults or _lacks_default(column)]
    if unknown:
        return f"nothing tells the default of {', '.join(unknown)}, so it is not known what older rows have in it."
    moved = [column.name for column in after.columns if column.primary_key != _of(before, column).primary_key]
    return f"its key has other columns than before: {', '.join(moved)}." if moved and not new else ""


def _of(schema: TableSchema, column: Column) -> Column:
    return schema.column(column.name) if schema.has_column(folded_name(column.name)) else column


def _lacks_default(column: Column) -> bool:
    if column.default is None:
        return column.type.kind in _WITHOUT_DEFAULT
    return column.default.upper().startswith(_OF_NOW)
