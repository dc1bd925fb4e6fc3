"""What is in the DuckDB file: tables, columns, and which tables Headrace made."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from headrace.model.table import TableId
from headrace.sinks.duckdb.database import CATALOG, Session
from headrace.sinks.duckdb.types import literal, quoted

# A table's comment outlives every ALTER and any run, so it tells our tables from those that people made.
MARK = "Created by Headrace."


def place(table_id: TableId) -> str:
    """The quoted, fully qualified name of a table, or of a database's schema."""
    schema = f"{quoted(CATALOG)}.{quoted(table_id.database)}"
    return f"{schema}.{quoted(table_id.table)}" if table_id.table else schema


@dataclass(frozen=True)
class TargetTable:
    """A table as the catalogue tells it. ``columns`` maps names to DuckDB types, in order, ``generated`` to expressions."""

    table_id: TableId
    columns: dict[str, str]
    ours: bool
    generated: dict[str, str] = field(default_factory=dict)

    def find(self, name: str) -> tuple[str, str] | None:
        """The column's own spelling and its type; names compare without case."""
        folded = name.casefold()
        return next(((n, t) for n, t in self.columns.items() if n.casefold() == folded), None)

    def spelling(self, name: str) -> str:
        """The column's own spelling. Raises ``KeyError``."""
        found = self.find(name)
        if found is None:
            raise KeyError(name)
        return found[0]

    @property
    def fingerprint(self) -> str:
        text = "\n".join(f"{name} {type_name}" for name, type_name in self.columns.items())
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def find_table(session: Session, table_id: TableId) -> TargetTable | None:
    """The table, ``None`` if there is none. Names compare without case, as in TiDB."""
    where = "database_name = ? AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?)"
    names = (CATALOG, table_id.database, table_id.table)
    found = session.execute(f"SELECT comment FROM duckdb_tables() WHERE {where}", names)
    if not found:
        return None
    columns = session.execute(
        f"SELECT column_name, data_type, generation_expression FROM duckdb_columns() WHERE {where} ORDER BY column_index", names
    )
    ours = str(found[0][0] or "").startswith(MARK)
    generated = {str(name): str(expression) for name, _, expression in columns if expression is not None}
    return TargetTable(table_id, {str(name): str(type_name) for name, type_name, _ in columns}, ours, generated)


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
    """What a schema holds, as (``VIEW`` or ``TABLE``, name), views first."""
    names = (CATALOG, database)
    found = [("VIEW", "duckdb_views", "view_name"), ("TABLE", "duckdb_tables", "table_name")]
    return [
        (kind, str(row[0]))
        for kind, function, column in found
        for row in session.execute(
            f"SELECT {column} FROM {function}() WHERE database_name = ? AND lower(schema_name) = lower(?) AND NOT internal", names
        )
    ]


def mark_ours(session: Session, table_id: TableId) -> None:
    """Notes in the catalogue that Headrace made the table."""
    session.execute(f"COMMENT ON TABLE {place(table_id)} IS {literal(MARK)}")
