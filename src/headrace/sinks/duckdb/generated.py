"""Virtual generated columns in DuckDB, which has them too but adds them only with the table.

So a table is built anew when it gets one later. What DuckDB would refuse is tried out beforehand in a database of its own, since
an error gives up the whole transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import duckdb

from headrace.ddl.expressions import UntranslatableError, to_duckdb
from headrace.model.outcome import Notice
from headrace.model.table import Column, Generated, TableId, TableSchema, folded_name
from headrace.sealed_duckdb import open_duckdb, seal
from headrace.sinks.duckdb.catalog import TargetTable, mark_ours, place
from headrace.sinks.duckdb.database import Session
from headrace.sinks.duckdb.types import UnsupportedPolicy, UnsupportedTypeError, duckdb_type, quoted

_REBUILT = "headrace$rebuilt"


@dataclass(frozen=True)
class GeneratedColumns:
    """What DuckDB can compute: folded names to definitions, for CREATE TABLE; and what became of the others."""

    definitions: dict[str, str]
    notices: tuple[Notice, ...]


def is_virtual(column: Column) -> bool:
    """Whether it is a generated column that rows do not carry; those behind expression indexes do not count."""
    return column.generated is Generated.VIRTUAL and not column.hidden


def generated_columns(schema: TableSchema, unsupported: UnsupportedPolicy) -> GeneratedColumns:
    """The definitions of the shape's virtual columns, each tried out. Raises UnsupportedTypeError for another column's type."""
    waiting = [column for column in schema.columns if is_virtual(column)]
    if not waiting:
        return GeneratedColumns({}, ())
    plain = [f"{quoted(c.name)} {duckdb_type(c.type, unsupported)}" for c in schema.row_columns]
    accepted: dict[str, str] = {}
    left_over = len(waiting) + 1
    # A column may be made of another one that comes after it.
    while waiting and len(waiting) < left_over:
        left_over = len(waiting)
        for column in list(waiting):
            definition = _definition(column, schema, unsupported)
            if definition and _is_accepted([*plain, *accepted.values(), definition]):
                accepted[folded_name(column.name)] = definition
                waiting.remove(column)
    return GeneratedColumns(accepted, tuple(_left_out(schema.table_id, column) for column in waiting))


def columns_left_out(schema: TableSchema, unsupported: UnsupportedPolicy) -> list[str]:
    """The virtual columns that DuckDB cannot compute, or whose expression is not known. Nothing where another type is refused."""
    try:
        accepted = generated_columns(schema, unsupported).definitions
    except UnsupportedTypeError:
        return []
    return [column.name for column in schema.columns if is_virtual(column) and folded_name(column.name) not in accepted]


def build_again(session: Session, target: TargetTable, table_id: TableId, more: list[str]) -> None:
    """Makes the table anew as ``table_id``, with its rows, its generated columns, and the definitions of further ones.

    Indexes and constraints that people gave it are lost; DuckDB cannot move them to another table.
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


def _definition(column: Column, schema: TableSchema, unsupported: UnsupportedPolicy) -> str:
    """Empty when the expression has no counterpart in DuckDB, or is not known."""
    try:
        type_name = duckdb_type(column.type, unsupported)
        expression = to_duckdb(column.expression, column.type, schema)
    except (UntranslatableError, UnsupportedTypeError):
        return ""
    return f"{quoted(column.name)} {type_name} GENERATED ALWAYS AS (TRY_CAST({expression} AS {type_name}))"


def _is_accepted(definitions: list[str]) -> bool:
    connection = open_duckdb()
    try:
        seal(connection)
        connection.execute(f"CREATE TABLE tried ({', '.join(definitions)})")
    except duckdb.Error:
        return False
    finally:
        connection.close()
    return True


def _left_out(table_id: TableId, column: Column) -> Notice:
    if not column.expression:
        return Notice(f"virtual column {column.name} was left out, since its expression is not known.", table_id)
    message = f"virtual column {column.name} was left out, since DuckDB cannot compute its expression: {column.expression}"
    return Notice(message, table_id)
