"""Virtual generated columns in DuckDB, which supports them but can only add them when the table is created.

So a table is rebuilt when it gets one later. Definitions that DuckDB might refuse are tried first in a separate database, since an
error aborts the whole transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb

from headrace.ddl.expression_values import UntranslatableError
from headrace.ddl.expressions import to_duckdb
from headrace.model.outcome import Notice
from headrace.model.table import Column, Generated, TableId, TableSchema, folded_name
from headrace.sealed_duckdb import open_duckdb, seal
from headrace.sinks.duckdb.catalog import TargetTable, mark_ours, place
from headrace.sinks.duckdb.database import Session
from headrace.sinks.duckdb.types import UnsupportedPolicy, UnsupportedTypeError, duckdb_type, quoted

_REBUILT = "headrace$rebuilt"


MOST_COLUMNS = 256
"""The maximum number of virtual columns in a table, since DuckDB checks all of them at each change of its definition."""
MOST_NODES = 10_000
"""The maximum number of operators, functions, values and names in a table's virtual columns, after the columns that they use are
expanded. DuckDB expands them for each statement that writes, which then takes about a second."""
_MOST_AHEAD = 8  # each column that comes before one that it uses doubles the time of CREATE TABLE
_LONGEST_TEXTS = 262_144  # characters in all expressions of a table, which take some seconds to parse
_MOST_DEPTH = 500
"""How deep expanded expressions may nest. It is half of what DuckDB takes, since statements that write nest them deeper."""
_SHOWN = 20
_LONGEST_SHOWN = 200


@dataclass(frozen=True)
class GeneratedColumns:
    """The columns that DuckDB can compute: folded names to definitions, for CREATE TABLE; and notices about the others.

    A column comes after those that it uses. ``may_stand_anywhere``: they may also have the order of the shape.
    """

    definitions: dict[str, str]
    notices: tuple[Notice, ...]
    may_stand_anywhere: bool = True


@dataclass(frozen=True)
class _Candidate:
    """A virtual column with an equivalent: its definition, and how often it names other columns, by their folded names."""

    column: Column
    definition: str
    size: int
    virtual: Mapping[str, int]
    plain: Collection[str]


def is_virtual(column: Column) -> bool:
    """Whether it is a generated column that rows do not carry. Hidden columns of expression indexes do not count."""
    return column.generated is Generated.VIRTUAL and not column.hidden


def generated_columns(
    schema: TableSchema, unsupported: UnsupportedPolicy, there: Collection[str] = frozenset()
) -> GeneratedColumns:
    """The tested definitions of the shape's virtual columns. Raises UnsupportedTypeError for the type of another column.

    ``there`` are the folded names of those that the table already has; they count first for the limits of a table.
    """
    virtual = {folded_name(column.name): column for column in schema.columns if is_virtual(column)}
    if not virtual:
        return GeneratedColumns({}, ())
    plain = {folded_name(c.name): f"{quoted(c.name)} {duckdb_type(c.type, unsupported)}" for c in schema.row_columns}
    names = sorted(virtual, key=lambda name: name not in there)
    names, beyond = names[:MOST_COLUMNS], names[MOST_COLUMNS:]
    candidates = _candidates([virtual[name] for name in names], schema, unsupported)
    ordered = _in_order([name for name in candidates if name in there], candidates, [])
    ordered = _in_order([name for name in candidates if name not in there], candidates, ordered)
    sizes = _expanded_sizes({name: candidates[name] for name in ordered})
    accepted = _accepted(plain, {name: candidates[name] for name in sizes})
    notices = [
        _too_large(schema.table_id, column) if name in ordered and name not in sizes else _left_out(schema.table_id, column)
        for name, column in virtual.items()
        if name not in accepted and name not in beyond
    ]
    if beyond:
        notices.append(_too_many(schema.table_id, [virtual[name].name for name in beyond]))
    places = {folded_name(column.name): place for place, column in enumerate(schema.columns)}
    return GeneratedColumns(
        {name: candidate.definition for name, candidate in accepted.items()},
        tuple(notices),
        _most_ahead(accepted, places) <= _MOST_AHEAD,
    )


def size_of_virtual(columns: Mapping[str, int], schema: TableSchema, unsupported: UnsupportedPolicy) -> int:
    """By how much an expression grows when the virtual columns in it are expanded; see :data:`MOST_NODES`."""
    named = {folded_name(name): count for name, count in columns.items()}
    virtual = [column for column in schema.columns if is_virtual(column)]
    if named.keys().isdisjoint(folded_name(column.name) for column in virtual):
        return 0
    candidates = _candidates(virtual[:MOST_COLUMNS], schema, unsupported)
    sizes = _expanded_sizes({name: candidates[name] for name in _in_order([*candidates], candidates, [])})
    return sum(count * sizes.get(name, 0) for name, count in named.items())


def columns_left_out(schema: TableSchema, unsupported: UnsupportedPolicy) -> list[str]:
    """The virtual columns that DuckDB cannot compute, or whose expression is unknown. Empty if another column's type is refused."""
    try:
        accepted = generated_columns(schema, unsupported).definitions
    except UnsupportedTypeError:
        return []
    return [column.name for column in schema.columns if is_virtual(column) and folded_name(column.name) not in accepted]


def build_again(session: Session, target: TargetTable, table_id: TableId, more: list[str]) -> None:
    """Rebuilds the table as ``table_id``, with its rows, its generated columns, and further definitions.

    Indexes and constraints added by people are lost, because DuckDB cannot move them to another table.
    """
    plain = [name for name in target.columns if name not in target.generated]
    own = {name: f" GENERATED ALWAYS AS ({expression})" for name, expression in target.generated.items()}
    parts = [f"{quoted(name)} {type_name}{own.get(name, '')}" for name, type_name in target.columns.items()]
    rebuilt = replace(table_id, table=_REBUILT)
    session.execute(f"CREATE TABLE {place(rebuilt)} ({', '.join([*parts, *more])})")
    names = ", ".join(quoted(name) for name in plain)
    session.execute(f"INSERT INTO {place(rebuilt)} BY NAME SELECT {names} FROM {place(target.table_id)}")
    session.execute(f"DROP TABLE {place(target.table_id)}")
    session.execute(f"ALTER TABLE {place(rebuilt)} RENAME TO {quoted(table_id.table)}")
    if target.ours:
        mark_ours(session, table_id)


def _candidates(columns: Sequence[Column], schema: TableSchema, unsupported: UnsupportedPolicy) -> dict[str, _Candidate]:
    """The virtual columns with an equivalent, by their folded names, within the limit for the total length of their texts."""
    virtual = {folded_name(column.name) for column in schema.columns if is_virtual(column)}
    found: dict[str, _Candidate] = {}
    left = _LONGEST_TEXTS
    for column in columns:
        left -= len(column.expression)
        candidate = _candidate(column, schema, unsupported, virtual) if left >= 0 else None
        if candidate is not None:
            found[folded_name(column.name)] = candidate
    return found


def _candidate(column: Column, schema: TableSchema, unsupported: UnsupportedPolicy, virtual: Collection[str]) -> _Candidate | None:
    """``None`` if the expression has no equivalent in DuckDB, or is unknown."""
    try:
        type_name = duckdb_type(column.type, unsupported)
        computed = to_duckdb(column.expression, column.type, schema)
    except (UntranslatableError, UnsupportedTypeError):
        return None
    definition = f"{quoted(column.name)} {type_name} GENERATED ALWAYS AS (TRY_CAST({computed.sql} AS {type_name}))"
    named = {folded_name(name): count for name, count in computed.columns.items()}
    of_virtual = {name: count for name, count in named.items() if name in virtual}
    return _Candidate(column, definition, computed.size + 1, of_virtual, named.keys() - of_virtual.keys())


def _in_order(names: Sequence[str], candidates: Mapping[str, _Candidate], before: Sequence[str]) -> list[str]:
    """First the columns in ``before``, then these, each after those that it uses. Circular columns and their users are left out."""
    ordered, waiting = [*before], [*names]
    while waiting:
        placed = {*ordered}
        ready = [name for name in waiting if candidates[name].virtual.keys() <= placed]
        if not ready:
            break
        ordered += ready
        placed.update(ready)
        waiting = [name for name in waiting if name not in placed]
    return ordered


def _expanded_sizes(columns: Mapping[str, _Candidate]) -> dict[str, int]:
    """The sizes of columns with the columns that they use expanded, for those that fit into :data:`MOST_NODES` together."""
    sizes: dict[str, int] = {}
    left = MOST_NODES
    for name, candidate in columns.items():
        if sizes.keys() >= candidate.virtual.keys():
            size = candidate.size + sum(count * sizes[other] for other, count in candidate.virtual.items())
            if size <= left:
                sizes[name] = size
                left -= size
    return sizes


def _most_ahead(columns: Mapping[str, _Candidate], places: Mapping[str, int]) -> int:
    """The maximum number of columns of a chain that come before the column that they use."""
    ahead: dict[str, int] = {}
    for name, candidate in columns.items():
        ahead[name] = max((ahead[other] + (places[other] > places[name]) for other in candidate.virtual), default=0)
    return max(ahead.values(), default=0)


def _accepted(plain: Mapping[str, str], candidates: Mapping[str, _Candidate]) -> dict[str, _Candidate]:
    """The columns that DuckDB accepts: tried all at once first, and otherwise one by one, each with those that it uses."""
    connection = open_duckdb()
    try:
        connection.execute(f"SET max_expression_depth = {_MOST_DEPTH}")
        seal(connection)
        if _is_taken(connection, [*plain.values(), *(candidate.definition for candidate in candidates.values())]):
            return dict(candidates)
        accepted: dict[str, _Candidate] = {}
        for name, candidate in candidates.items():
            virtual, named = _made_of(name, candidates)
            definitions = [plain[other] for other in plain if other in named] or [*plain.values()][:1]
            if accepted.keys() >= {*virtual[:-1]} and _is_taken(
                connection, [*definitions, *(candidates[other].definition for other in virtual)]
            ):
                accepted[name] = candidate
        return accepted
    finally:
        connection.close()


def _made_of(name: str, candidates: Mapping[str, _Candidate]) -> tuple[list[str], set[str]]:
    """The virtual columns that a column uses, in order and ending with itself, and the plain columns that these name."""
    needed = {name}
    for other in reversed([*candidates]):
        if other in needed:
            needed.update(candidates[other].virtual)
    return [other for other in candidates if other in needed], {p for other in needed for p in candidates[other].plain}


def _is_taken(connection: Any, definitions: Sequence[str]) -> bool:
    try:
        connection.execute(f"CREATE OR REPLACE TABLE tried ({', '.join(definitions)})")
        connection.execute("INSERT INTO tried DEFAULT VALUES")  # only a statement that writes finds them too deep
    except duckdb.Error:
        return False
    return True


def _left_out(table_id: TableId, column: Column) -> Notice:
    if not column.expression:
        return Notice(f"virtual column {column.name} was left out, since its expression is not known.", table_id)
    cut = column.expression[:_LONGEST_SHOWN] + "…" if len(column.expression) > _LONGEST_SHOWN else column.expression
    message = f"virtual column {column.name} was left out, since DuckDB cannot compute its expression: {cut}"
    return Notice(message, table_id)


def _too_large(table_id: TableId, column: Column) -> Notice:
    message = (
        f"virtual column {column.name} was left out, since DuckDB expands the virtual columns that it depends on into "
        f"its expression. "
        f"With it, the expressions of the table would have more than {MOST_NODES:,} parts, which slows down each statement."
    )
    return Notice(message, table_id)


def _too_many(table_id: TableId, names: Sequence[str]) -> Notice:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    shown = ", ".join(names[:_SHOWN])
    message = f"virtual columns were left out, since DuckDB takes long with more than {MOST_COLUMNS} in a table: {shown}{more}."
    return Notice(message, table_id)
