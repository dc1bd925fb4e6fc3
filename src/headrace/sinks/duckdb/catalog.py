"""Reads the catalogue of the DuckDB file: tables, columns, and which tables Headrace created."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

from headrace.model.table import TableId, folded_name
from headrace.sinks.duckdb.database import CATALOG, Session
from headrace.sinks.duckdb.types import literal, quoted

# A table's comment survives every ALTER and any run, so it distinguishes Headrace's tables from those that people created.
MARK = "Created by Headrace."


def place(table_id: TableId) -> str:
    """The quoted, fully qualified name of a table, or of a database's schema."""
    schema = f"{quoted(CATALOG)}.{quoted(table_id.database)}"
    return f"{schema}.{quoted(table_id.table)}" if table_id.table else schema


@dataclass(frozen=True)
class TargetTable:
    """A table in the catalogue. ``columns`` maps names to DuckDB types, in order; ``generated`` maps names to expressions."""

    table_id: TableId
    columns: dict[str, str]
    ours: bool
    generated: dict[str, str] = field(default_factory=dict)

    def find(self, name: str) -> tuple[str, str] | None:
        """The column's own spelling and its type. Names are compared without case."""
        folded = folded_name(name)
        return next(((n, t) for n, t in self.columns.items() if folded_name(n) == folded), None)

    def spelling(self, name: str) -> str:
        """The column's own spelling. Raises ``KeyError``."""
        found = self.find(name)
        if found is None:
            raise KeyError(name)
        return found[0]


def find_table(session: Session, table_id: TableId) -> TargetTable | None:
    """The table; ``None`` if there is none. Names are compared without case, as in TiDB."""
    where = "database_name = ? AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?)"
    names = (CATALOG, table_id.database, table_id.table)
    found = session.execute(f"SELECT comment FROM duckdb_tables() WHERE {where}", names)
    if not found:
        return None
    columns = session.execute(
        f"SELECT column_name, data_type, generation_expression FROM duckdb_columns() WHERE {where} ORDER BY column_index", names
    )
    return _target(table_id, found[0][0], columns)


def find_tables(session: Session, table_ids: Collection[TableId]) -> dict[TableId, TargetTable]:
    """The tables that exist, in one query, since DuckDB scans its whole catalogue for one table as for all of them."""
    if len(table_ids) == 1:
        found = [find_table(session, table_id) for table_id in table_ids]
        return {target.table_id: target for target in found if target is not None}
    columns: dict[tuple[str, str], list[tuple[object, ...]]] = defaultdict(list)
    for schema, table, *column in session.execute(
        "SELECT lower(schema_name), lower(table_name), column_name, data_type, generation_expression FROM duckdb_columns()"
        " WHERE database_name = ? ORDER BY column_index",
        (CATALOG,),
    ):
        columns[str(schema), str(table)].append(tuple(column))
    comments = {
        (schema, table): comment
        for schema, table, comment in session.execute(
            "SELECT lower(schema_name), lower(table_name), comment FROM duckdb_tables() WHERE database_name = ?", (CATALOG,)
        )
    }
    places = {table_id: (table_id.database.lower(), table_id.table.lower()) for table_id in table_ids}
    return {t: _target(t, comments[names], columns[names]) for t, names in places.items() if names in comments}


def _target(table_id: TableId, comment: object, columns: list[tuple[object, ...]]) -> TargetTable:
    generated = {str(name): str(expression) for name, _, expression in columns if expression is not None}
    types = {str(name): str(type_name) for name, type_name, _ in columns}
    return TargetTable(table_id, types, str(comment or "").startswith(MARK), generated)


def has_rows(session: Session, table_id: TableId) -> bool:
    """Whether the table holds any row."""
    return bool(session.execute(f"SELECT 1 FROM {place(table_id)} LIMIT 1"))


def schema_exists(session: Session, database: str) -> bool:
    """Whether there is a schema of that name."""
    return bool(
        session.execute(
            "SELECT 1 FROM duckdb_schemas() WHERE database_name = ? AND lower(schema_name) = lower(?)", (CATALOG, database)
        )
    )


def objects_of(session: Session, database: str) -> list[tuple[str, str]]:
    """The objects in a schema, as (kind, name): ``VIEW`` first, then ``TABLE``, ``SEQUENCE``, ``TYPE`` and ``MACRO``."""
    names = (CATALOG, database)
    found = [
        ("VIEW", "duckdb_views", "view_name", " AND NOT internal"),
        ("TABLE", "duckdb_tables", "table_name", " AND NOT internal"),
        ("SEQUENCE", "duckdb_sequences", "sequence_name", ""),
        ("TYPE", "duckdb_types", "type_name", " AND NOT internal"),
        ("MACRO", "duckdb_functions", "function_name", " AND NOT internal"),
    ]
    return [
        (kind, str(row[0]))
        for kind, function, column, ours in found
        for row in session.execute(
            f"SELECT DISTINCT {column} FROM {function}() WHERE database_name = ? AND lower(schema_name) = lower(?){ours}"
            f" ORDER BY {column}",
            names,
        )
    ]


def mark_ours(session: Session, table_id: TableId) -> None:
    """Marks the table in the catalogue as created by Headrace."""
    session.execute(f"COMMENT ON TABLE {place(table_id)} IS {literal(MARK)}")
