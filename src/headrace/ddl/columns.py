"""What a column list does not tell and DDL text does: generated and hidden columns, and the key of a table without primary key.

TiCDC's schema files list virtual generated columns and the hidden columns behind expression indexes though rows carry neither,
and do not record unique keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from headrace.ddl.classify import column_renames
from headrace.ddl.lexer import Cursor, Word, split_at_commas, text_of
from headrace.ddl.statement import Statement, StatementKind, read_statement
from headrace.model.table import Column, Generated, TableSchema, UniqueKey

HIDDEN_PREFIX = "_V$_"
_CONSTRAINTS = ("PRIMARY", "UNIQUE", "KEY", "INDEX", "FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR", "FOREIGN", "CHECK", "CONSTRAINT")


@dataclass(frozen=True)
class _Generation:
    """How a column is generated, and from which words; of a plain column, from none."""

    kind: Generated | None = None
    expression: tuple[Word, ...] = ()


@dataclass
class _Facts:
    """Found in a text: per folded column name how it is generated, if at all, and what becomes of unique keys.

    ``unique`` are new ones in order, without a name where the text gives none; ``named`` are the folded names of all new indexes,
    ``dropped`` those of dropped ones, ``renamed`` maps old ones to new names.
    """

    generated: dict[str, _Generation] = field(default_factory=dict)
    unique: list[UniqueKey] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    renamed: dict[str, str] = field(default_factory=dict)


def annotate(statement: str, schema: TableSchema, before: TableSchema | None) -> TableSchema:
    """The schema with ``generated`` and ``hidden`` marks, expressions, and a handle key where the source could not tell one.

    A table without primary key gets the columns of a UNIQUE key whose columns are all NOT NULL, stored, and whole (no prefix, no
    expression): the one it had for as long as that is there, else the first. ``before`` is the table's shape before the
    statement: its marks and unique keys are kept unless the statement creates the table anew. For CREATE TABLE … LIKE give the
    shape of the pattern as ``before``.
    """
    read = read_statement(statement, schema.table_id.database)
    facts = _facts(read)
    anew = read.kind is StatementKind.CREATE_TABLE and read.like is None
    kept = None if anew else before
    renames = {new.casefold(): old.casefold() for old, new in _renames(read, kept, schema).items()}
    former = {c.name.casefold(): c for c in kept.columns} if kept else {}
    folded = [(column, column.name.casefold()) for column in schema.columns]
    columns = tuple(_marked(column, facts, former.get(renames.get(name, name)), statement) for column, name in folded)
    moved = {old: new for new, old in renames.items()}
    marked = replace(schema, columns=columns, unique_keys=_unique_keys(schema, kept, facts, moved))
    return replace(marked, handle_key=_handle_key(marked, kept, moved))


def _renames(read: Statement, before: TableSchema | None, after: TableSchema) -> Mapping[str, str]:
    return column_renames(read, before, after) if before else {}


def _marked(column: Column, facts: _Facts, former: Column | None, statement: str) -> Column:
    told = facts.generated.get(column.name.casefold())
    if column.name.startswith(HIDDEN_PREFIX):
        return replace(column, generated=Generated.VIRTUAL, hidden=True)
    if told is not None:
        return replace(column, generated=told.kind, hidden=False, expression=text_of(told.expression, statement))
    known = former or column
    return replace(column, generated=known.generated, hidden=False, expression=known.expression)


def _unique_keys(
    schema: TableSchema, before: TableSchema | None, facts: _Facts, renames: Mapping[str, str]
) -> tuple[UniqueKey, ...]:
    """The unique keys after the statement: those that were there and stay, under their new names, and the new ones."""
    keys: list[UniqueKey] = []
    for key in before.unique_keys if before else ():
        columns = _moved(key.columns, renames)
        if key.name.casefold() not in facts.dropped and all(schema.has_column(name) for name in columns):
            keys.append(UniqueKey(facts.renamed.get(key.name.casefold(), key.name), columns))
    taken = {key.name.casefold() for key in keys} | facts.named
    for key in facts.unique:
        name = key.name or _free_name(key.columns[0], taken)
        taken.add(name.casefold())
        keys.append(UniqueKey(name, key.columns))
    return tuple(keys)


def _free_name(column: str, taken: set[str]) -> str:
    """The name of an index without one: its first column's, with a number where that is taken."""
    names = (column if number == 1 else f"{column}_{number}" for number in count(1))
    return next(name for name in names if name.casefold() not in taken)


def _moved(columns: tuple[str, ...], renames: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(renames.get(name.casefold(), name) for name in columns)


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
    if cursor.peek().says("UNIQUE"):
        _definition(action, facts)
        return
    if cursor.accept("RENAME"):
        if _accepts_index(cursor):
            old = cursor.next().text
            facts.renamed[old.casefold()] = cursor.next().text if cursor.accept("TO") else old
        return
    if cursor.accept("DROP"):
        if _accepts_index(cursor) or cursor.accept("CONSTRAINT"):
            cursor.accept("IF", "EXISTS")
            facts.dropped.add(cursor.next().text.casefold())
        return
    if not (cursor.accept("ADD") or cursor.accept("MODIFY") or cursor.accept("CHANGE")):
        return
    changed = action[0].says("CHANGE")
    cursor.accept("COLUMN")
    if not cursor.accept("IF", "NOT", "EXISTS"):
        cursor.accept("IF", "EXISTS")
    if changed:
        cursor.next()
    if cursor.peek().says("("):
        for part in split_at_commas(cursor.group()):
            _definition(part, facts)
    else:
        _definition(cursor.rest(), facts)


def _definition(definition: tuple[Word, ...], facts: _Facts) -> None:
    """One part of CREATE TABLE's parenthesis: a column, or a constraint."""
    if not definition:
        return
    if any(definition[0].says(keyword) for keyword in _CONSTRAINTS):
        _constraint(Cursor(definition), facts)
        return
    name = definition[0].text
    facts.generated[name.casefold()] = _generation(Cursor(definition[1:]))
    if _is_unique(Cursor(definition[1:])):
        facts.unique.append(UniqueKey("", (name,)))


def _accepts_index(cursor: Cursor) -> bool:
    return cursor.accept("INDEX") or cursor.accept("KEY")


def _constraint(cursor: Cursor, facts: _Facts) -> None:
    """``[CONSTRAINT [symbol]] [UNIQUE] [INDEX | KEY] [name] [USING …] (columns)``; the symbol names a unique key without a name."""
    symbol = ""
    if cursor.accept("CONSTRAINT") and not any(cursor.peek().says(keyword) for keyword in _CONSTRAINTS):
        symbol = cursor.next().text
    unique = cursor.accept("UNIQUE")
    if not unique and not any(cursor.peek().says(keyword) for keyword in ("INDEX", "KEY")):
        return
    _accepts_index(cursor)
    cursor.accept("IF", "NOT", "EXISTS")
    name = symbol if any(cursor.peek().says(sign) for sign in ("(", "USING")) else cursor.next().text
    facts.named.add(name.casefold())
    while not cursor.done and not cursor.peek().says("("):
        cursor.next()
    parts = split_at_commas(cursor.group())
    # A part of more than a name and a direction is a prefix or an expression: no value of the row is unique then.
    if unique and all(part[0].text != "(" and (len(part) == 1 or part[1].says("ASC") or part[1].says("DESC")) for part in parts):
        facts.unique.append(UniqueKey(name, tuple(part[0].text for part in parts)))


def _generation(cursor: Cursor) -> _Generation:
    """How the column is generated: ``AS (expression)``, and STORED behind it; VIRTUAL is the default."""
    while not cursor.done:
        if cursor.accept("AS"):
            expression = cursor.group()
            stored = any(word.says("STORED") for word in cursor.rest())
            return _Generation(Generated.STORED if stored else Generated.VIRTUAL, expression)
        if cursor.peek().says("("):
            cursor.group()
        else:
            cursor.next()
    return _Generation()


def _is_unique(cursor: Cursor) -> bool:
    while not cursor.done:
        if cursor.peek().says("("):
            cursor.group()
        elif cursor.next().says("UNIQUE"):
            return True
    return False
