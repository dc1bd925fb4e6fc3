"""Adds to a column list what only DDL text contains: generated and hidden columns, the key of a table without primary key, the
members of ENUM and SET, and the digits of FLOAT and DOUBLE.

TiCDC's schema files list virtual generated columns and the hidden columns of expression indexes, although rows carry neither. They
do not record unique keys. Files of older releases do not list members. Messages of TiCDC's Simple Protocol do not record how many
digits a FLOAT(8,3) has after the point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headrace.ddl.classify import column_renames
from headrace.ddl.column_definition import members_of, read_type
from headrace.ddl.column_effects import skip_to_name
from headrace.ddl.indexes import is_constraint, new_indexes
from headrace.ddl.lexer import Cursor, Word, outside_parentheses, rendered, split_at_commas, unqualified
from headrace.ddl.statement import Statement, StatementKind, read_statement
from headrace.ddl.stored_defaults import UnreadDefinitionError
from headrace.model.table import Column, Generated, Index, TableSchema, folded_name
from headrace.model.types import ColumnType, TypeKind, unfit_members

HIDDEN_PREFIX = "_V$_"
_FLOATING = frozenset({TypeKind.FLOAT, TypeKind.DOUBLE})


@dataclass(frozen=True)
class _Generation:
    """How a column is generated, and the words of its expression; both empty for a plain column."""

    kind: Generated | None = None
    expression: tuple[Word, ...] = ()


@dataclass
class _Facts:
    """What a text says about columns and about existing indexes."""

    members: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By folded column name, the members of ENUM and SET columns."""
    floating: dict[str, ColumnType] = field(default_factory=dict)
    """By folded column name, the types of FLOAT and DOUBLE columns."""
    generated: dict[str, _Generation] = field(default_factory=dict)
    """By folded name of each column that the text defines, how it is generated, if at all."""
    dropped: set[str] = field(default_factory=set)
    """The folded names of dropped indexes."""
    renamed: dict[str, str] = field(default_factory=dict)
    """The new names of renamed indexes, by folded old name."""


def annotate(statement: str, schema: TableSchema, before: TableSchema | None) -> TableSchema:
    """The schema with ``generated`` and ``hidden`` marks and expressions.

    It gets members, digits of FLOAT and DOUBLE, and a handle key from the text if the source has none.

    The handle key of a table without primary key is a UNIQUE key whose columns are all NOT NULL, stored, and whole (no prefix, no
    expression): the former handle key as long as it exists, else the first such key. ``before`` is the table's shape before the
    statement. Its marks and unique keys are kept unless the statement creates the table anew. For CREATE TABLE … LIKE, pass the
    shape of the pattern as ``before``.
    """
    read = read_statement(statement, schema.table_id.database)
    facts = _facts(read)
    anew = read.kind is StatementKind.CREATE_TABLE and read.like is None
    kept = None if anew else before
    renames = {folded_name(new): folded_name(old) for old, new in _renames(read, kept, schema).items()}
    former = {folded_name(c.name): c for c in kept.columns} if kept else {}
    folded = [(column, folded_name(column.name)) for column in schema.columns]
    columns = tuple(_marked(column, facts, former.get(renames.get(name, name))) for column, name in folded)
    moved = {old: new for new, old in renames.items()}
    marked = replace(schema, columns=columns, indexes=_indexes(schema, kept, read, facts, moved))
    return replace(marked, handle_key=_handle_key(marked, kept, moved))


def _renames(read: Statement, before: TableSchema | None, after: TableSchema) -> Mapping[str, str]:
    return column_renames(read, before, after) if before else {}


def _marked(column: Column, facts: _Facts, former: Column | None) -> Column:
    told = facts.generated.get(folded_name(column.name))
    column = _with_digits(_with_members(column, facts, former), facts, former)
    if column.name.startswith(HIDDEN_PREFIX):
        return replace(column, generated=Generated.VIRTUAL, hidden=True)
    if told is not None:
        return replace(column, generated=told.kind, hidden=False, expression=rendered(told.expression))
    known = former or column
    return replace(column, generated=known.generated, hidden=False, expression=known.expression)


def _with_members(column: Column, facts: _Facts, former: Column | None) -> Column:
    """The column with the members from the text, or with its former members if the text does not define it.

    Without members if TiDB cannot have such members.
    """
    kind, name = column.type.kind, folded_name(column.name)
    if kind not in (TypeKind.ENUM, TypeKind.SET) or column.type.elements:
        return column
    members = facts.members.get(name, ())
    if name not in facts.generated and former is not None and former.type.kind is kind:
        members = former.type.elements
    if unfit_members(kind, members):
        members = ()
    return replace(column, type=replace(column.type, elements=members))


def _with_digits(column: Column, facts: _Facts, former: Column | None) -> Column:
    """The column with the digits of FLOAT(8,3) from the text, or with its former ones if the text does not define it."""
    kind, name = column.type.kind, folded_name(column.name)
    if kind not in _FLOATING or column.type.scale is not None:
        return column
    known = facts.floating.get(name)
    if name not in facts.generated and former is not None:
        known = former.type
    if known is None or known.kind is not kind or known.scale is None:
        return column
    return replace(column, type=replace(column.type, length=known.length, scale=known.scale))


def _indexes(
    schema: TableSchema, before: TableSchema | None, read: Statement, facts: _Facts, renames: Mapping[str, str]
) -> tuple[Index, ...]:
    """The indexes after the statement: the remaining ones, under their new names, and the new ones."""
    there = before.indexes if before else ()
    indexes: list[Index] = []
    for index in there:
        columns = _moved(index.columns, renames)
        folded = folded_name(index.name)
        if folded not in facts.dropped and all(schema.has_column(name) for name in columns if name):
            indexes.append(Index(facts.renamed.get(folded, index.name), columns, index.unique))
    made = new_indexes(read, [index.name for index in there])
    indexes += [Index(index.name, index.columns, index.unique) for index in made if not index.primary]
    return tuple(indexes)


def _moved(columns: tuple[str, ...], renames: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(renames.get(folded_name(name), name) for name in columns)


def _handle_key(schema: TableSchema, before: TableSchema | None, renames: Mapping[str, str]) -> tuple[str, ...]:
    if any(c.primary_key for c in schema.columns):
        return schema.handle_key or tuple(c.name for c in schema.columns if c.primary_key)
    candidates = [key.columns for key in schema.unique_keys]
    if before and before.handle_key and not any(c.primary_key for c in before.columns):
        former = _moved(before.handle_key, renames)
        if former in candidates or not any(key.columns == before.handle_key for key in before.unique_keys):
            candidates.insert(0, former)
    if schema.handle_key:
        candidates.insert(0, schema.handle_key)
    for names in candidates:
        if all(_identifies(schema, name) for name in names):
            return tuple(schema.column(name).name for name in names)
    return ()


def _identifies(schema: TableSchema, name: str) -> bool:
    if not schema.has_column(name):
        return False
    column = schema.column(name)
    return not column.nullable and not column.hidden and column.generated is not Generated.VIRTUAL


def _facts(read: Statement) -> _Facts:
    facts = _Facts()
    for definition in read.definitions:
        _definition(definition, facts)
    for action in read.actions:
        _action(action, facts)
    return facts


def _action(action: tuple[Word, ...], facts: _Facts) -> None:
    """One clause of ALTER TABLE."""
    cursor = Cursor(action)
    if cursor.accept("RENAME"):
        if _accepts_index(cursor):
            old = cursor.next().text
            facts.renamed[folded_name(old)] = cursor.next().text if cursor.accept("TO") else old
        return
    if cursor.accept("DROP"):
        if _accepts_index(cursor) or cursor.accept("CONSTRAINT"):
            cursor.accept("IF", "EXISTS")
            facts.dropped.add(folded_name(cursor.next().text))
        return
    if not (cursor.accept("ADD") or cursor.accept("MODIFY") or cursor.accept("CHANGE")):
        return
    changed = action[0].says("CHANGE")
    skip_to_name(cursor)
    if changed:
        cursor.column_name()
    if cursor.peek().says("("):
        for part in split_at_commas(cursor.group()):
            _definition(part, facts)
    else:
        _definition(cursor.rest(), facts)


def _definition(definition: tuple[Word, ...], facts: _Facts) -> None:
    """One part of CREATE TABLE's parenthesis: a column, or a constraint, which is ignored here."""
    if not definition:
        return
    if is_constraint(definition):
        return
    definition = unqualified(definition)
    name = definition[0].text
    facts.generated[folded_name(name)] = _generation(Cursor(definition[1:]))
    facts.members[folded_name(name)] = members_of(definition)
    try:
        column_type = read_type(definition)
    except UnreadDefinitionError:
        return
    if column_type.kind in _FLOATING:
        facts.floating[folded_name(name)] = column_type


def _accepts_index(cursor: Cursor) -> bool:
    return cursor.accept("INDEX") or cursor.accept("KEY")


def _generation(cursor: Cursor) -> _Generation:
    """How the column is generated: ``AS (expression)``, and STORED behind it; VIRTUAL is the default."""
    while not cursor.done:
        if cursor.accept("AS"):
            expression = cursor.group()
            stored = any(word.says("STORED") for word in outside_parentheses(cursor.rest()))
            return _Generation(Generated.STORED if stored else Generated.VIRTUAL, expression)
        if cursor.peek().says("("):
            cursor.group()
        else:
            cursor.next()
    return _Generation()
