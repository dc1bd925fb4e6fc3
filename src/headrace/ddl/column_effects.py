"""What the text of a statement does to columns, and whether it explains how the shape of its table differs from the one before.

A statement that a changefeed holds back (an event filter) shows only in the next shape. If the text that comes with this shape does
not explain the difference, it is unknown which values a column has: those of a renamed column, or those of a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from headrace.ddl.indexes import CONSTRAINTS, is_constraint
from headrace.ddl.lexer import Cursor, Word, split_at_commas
from headrace.ddl.statement import Statement, StatementKind, read_statement
from headrace.model.table import Column, TableSchema, folded_name

_KEYS = ("PRIMARY", "FOREIGN", "INDEX", "KEY", "CHECK", "CONSTRAINT")
NO_COLUMNS = ("PARTITION", "STATS_EXTENDED")
"""What ADD and DROP of ALTER TABLE may concern beside columns, keys and constraints."""
_SHAPED = frozenset(
    {
        *(StatementKind.ALTER_TABLE, StatementKind.CREATE_INDEX, StatementKind.OTHER),
        *(StatementKind.RENAME_TABLE, StatementKind.TRUNCATE_TABLE),
    }
)


@dataclass
class ColumnEffects:
    """The columns that a text adds, drops, renames and rewrites, by folded names."""

    added: set[str] = field(default_factory=set)
    """Includes those of IF NOT EXISTS."""
    appended_if_absent: set[str] = field(default_factory=set)
    """Those of ``added`` that have IF NOT EXISTS and no position, in a text that does more than to add them.

    A text that did nothing at all would not be in the source.
    """
    optional: set[str] = field(default_factory=set)
    """Those of ``added`` and ``dropped`` that have IF NOT EXISTS or IF EXISTS."""
    dropped: set[str] = field(default_factory=set)
    renamed: dict[str, str] = field(default_factory=dict)
    """New to old names, by RENAME COLUMN and by CHANGE."""
    rewritten: set[str] = field(default_factory=set)
    """The names afterwards of columns with MODIFY and CHANGE. TiDB may give these a new id, and another place."""


def column_effects(read: Statement) -> ColumnEffects:
    """The effects of a statement; none for other statements than ALTER TABLE."""
    effects = ColumnEffects()
    if read.kind is not StatementKind.ALTER_TABLE:
        return effects
    effects.renamed = {folded_name(new): folded_name(old) for old, new in read.column_renames}
    appended: set[str] = set()
    for action in read.actions:
        cursor = Cursor(action)
        if cursor.accept("ADD"):
            _add(cursor, effects, appended)
        elif cursor.accept("DROP"):
            if not _begins_with(cursor, *_KEYS, *NO_COLUMNS):
                is_optional = skip_to_name(cursor)
                name = folded_name(cursor.column_name())
                effects.dropped.add(name)
                effects.optional |= {name} if is_optional else set()
        elif cursor.accept("MODIFY"):
            skip_to_name(cursor)
            effects.rewritten.add(folded_name(cursor.column_name()))
        elif cursor.accept("CHANGE"):
            skip_to_name(cursor)
            cursor.column_name()
            effects.rewritten.add(folded_name(cursor.column_name()))
    if len(read.actions) > 1 or len(effects.added) > 1:
        effects.appended_if_absent = appended
    return effects


def is_added_if_absent(statement: str, database: str, column: str) -> bool:
    """Whether a statement adds a column with IF NOT EXISTS."""
    effects = column_effects(read_statement(statement, database))
    return folded_name(column) in effects.added & effects.optional


def added_anew(read: Statement, before: TableSchema, after: TableSchema) -> frozenset[str]:
    """The folded names of columns that the statement adds although the table had columns of these names: those were dropped, or
    renamed, by statements that the source does not have."""
    effects = column_effects(read)
    if not effects.added:
        return frozenset()
    old, new = _visible(before), _visible(after)
    again = {name for name in effects.added if name in old and name in new and not _same_id(old[name], new[name])}
    return frozenset(again - effects.dropped - set(effects.renamed.values()) - _left_alone(effects, old, new))


def unexplained(read: Statement, before: TableSchema, after: TableSchema) -> str:
    """How the shapes differ beyond what the statement says, as a clause such as "column c is gone, and …"; empty if it says all.

    An empty text says nothing. Then columns may be gone, or new, but not both, unless their ids tell which is which. A column that
    the table has and that the statement adds is left to :func:`added_anew`, since the target shows whether it still has it. A type
    is no difference, because releases of TiCDC describe the same type in several ways.
    """
    is_shape = read.kind is StatementKind.EMPTY
    if not is_shape and (read.kind not in _SHAPED or read.brings_back):
        return ""
    effects = column_effects(read)
    old, new = _visible(before), _visible(after)
    again = added_anew(read, before, after)
    origins, unknown = _origins(effects, old, new, again)
    kept = set(origins.values())
    gone = [c.name for name, c in old.items() if name not in kept and name not in effects.dropped | again]
    if is_shape:
        return _clause(unknown, gone) + ", and no statement says why" if unknown and gone else ""
    moved = [
        f"column {old[source].name} is now {new[name].name} by its id"
        for name, source in origins.items()
        if effects.renamed.get(name, name) != source
    ]
    told = _clause(unknown, gone, *moved) or _may_be_renamed(effects, old, new)
    return f"{told}, and the statement does not say why" if told else ""


def _origins(
    effects: ColumnEffects, old: Mapping[str, Column], new: Mapping[str, Column], again: frozenset[str]
) -> tuple[dict[str, str], list[str]]:
    """New to old folded names of the columns whose origin is known, and the names of those that come from nowhere."""
    by_id = {column.column_id: name for name, column in old.items() if column.column_id}
    origins = {name: by_id[column.column_id] for name, column in new.items() if column.column_id in by_id}
    taken, moved = set(origins.values()), set(effects.renamed.values())
    unknown = []
    for name, column in new.items():
        if name in origins or name in again or (name in effects.added and name not in old):
            continue
        source = effects.renamed.get(name, name)
        is_there = source in old and source not in taken and source not in effects.dropped
        if is_there and (name in effects.renamed or source not in moved) and _may_be(column, old[source], effects):
            origins[name] = source
            taken.add(source)
        else:
            unknown.append(column.name)
    return origins, unknown


def _may_be_renamed(effects: ColumnEffects, old: Mapping[str, Column], new: Mapping[str, Column]) -> str:
    """A column that the statement drops if it exists, and one that it adds unless it exists, may be one that was renamed before."""
    lost = [c.name for name, c in old.items() if name in effects.dropped & effects.optional and name not in new and not c.column_id]
    come = [c.name for name, c in new.items() if name in effects.added & effects.optional and name not in old]
    return f"column {come[0]} is new, or column {lost[0]} under another name" if lost and come else ""


def _may_be(column: Column, former: Column, effects: ColumnEffects) -> bool:
    has_ids = column.column_id and former.column_id
    return not has_ids or column.column_id == former.column_id or folded_name(column.name) in effects.rewritten


def _same_id(column: Column, other: Column) -> bool:
    return bool(column.column_id) and column.column_id == other.column_id


def _left_alone(effects: ColumnEffects, old: Mapping[str, Column], new: Mapping[str, Column]) -> set[str]:
    """The columns of ``appended_if_absent`` that the table had all along: an older column that stays in its place comes after them.

    A column that the statement had added without a position would come after all older ones.
    """
    left: set[str] = set()
    pending: set[str] = set()
    for name in new:
        if name in effects.appended_if_absent and name in old:
            pending.add(name)
        elif name in old and name not in effects.added | effects.rewritten | effects.renamed.keys():
            left |= pending
            pending.clear()
    return left


def _clause(unknown: Iterable[str], gone: Iterable[str], *more: str) -> str:
    return " and ".join(part for part in (_names(unknown, "new"), _names(gone, "gone"), *more) if part)


def _names(names: Iterable[str], what: str) -> str:
    known = list(names)
    return f"column{'s' if len(known) > 1 else ''} {', '.join(known)} {'are' if len(known) > 1 else 'is'} {what}" if known else ""


def _visible(schema: TableSchema) -> dict[str, Column]:
    return {folded_name(column.name): column for column in schema.columns if not column.hidden}


def _add(cursor: Cursor, effects: ColumnEffects, appended: set[str]) -> None:
    if _begins_with(cursor, *CONSTRAINTS, *NO_COLUMNS):
        return
    if_absent = skip_to_name(cursor)
    for definition in _definitions(cursor):
        if not is_constraint(definition):
            name = folded_name(Cursor(definition).column_name())
            effects.added.add(name)
            effects.optional |= {name} if if_absent else set()
            if if_absent and not _has_position(definition):
                appended.add(name)


def _definitions(cursor: Cursor) -> Iterator[tuple[Word, ...]]:
    if cursor.peek().says("("):
        yield from split_at_commas(cursor.group())
    elif rest := cursor.rest():
        yield rest


def _has_position(definition: tuple[Word, ...]) -> bool:
    return definition[-1].says("FIRST") or column_before(definition) is not None


def column_before(definition: tuple[Word, ...]) -> str | None:
    """The name of the column after AFTER, with which a definition ends; ``None`` if it does not."""
    at = len(definition) - 2
    while at > 0 and definition[at].says("."):
        at -= 2
    return definition[-1].text if at > 0 and definition[at].says("AFTER") else None


def _begins_with(cursor: Cursor, *keywords: str) -> bool:
    return any(cursor.peek().says(keyword) for keyword in keywords)


def skip_to_name(cursor: Cursor) -> bool:
    """Steps over ``[COLUMN] [IF [NOT] EXISTS]``. Returns whether it has such a condition."""
    cursor.accept("COLUMN")
    return cursor.accept("IF", "NOT", "EXISTS") or cursor.accept("IF", "EXISTS")
