"""A DuckDB file as schema changes find it, for the tests of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb

from headrace.ddl.classify import classify
from headrace.ddl.columns import annotate
from headrace.model.events import DropDatabaseEvent, SchemaChange
from headrace.model.outcome import Notice
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.tso import parse_tso
from headrace.model.types import ColumnType, TypeKind
from headrace.sinks.duckdb import open_sink

T = TableId("test", "t")
NOON = parse_tso("2024-06-05T12:00:00Z")


def column(name: str, kind: TypeKind = TypeKind.INT, **more: object) -> Column:
    own = {k: more.pop(k) for k in ("nullable", "default", "generated", "hidden", "primary_key") if k in more}
    return Column(name, ColumnType(kind, **more), **own)  # type: ignore[arg-type]


ID = column("id", nullable=False, primary_key=True)


def shape(*columns: Column, table_id: TableId = T) -> TableSchema:
    return TableSchema(table_id, (ID, *columns), ("id",))


class Target:
    """A sink with the shapes it was told, so that a test can write statements."""

    def __init__(self, path: Path, **options: object) -> None:
        query = "&".join(f"{k.replace('_', '-')}={v}" for k, v in options.items() if k != "adopt")
        self.path = path
        self.sink = open_sink(f"duckdb://{path}?{query}", {"adopt": bool(options.get("adopt"))})
        self.before: TableSchema | None = None

    def run(
        self,
        statement: str,
        after: TableSchema | None = None,
        table_id: TableId | None = None,
        own: frozenset[TableId] = frozenset(),
        ts: int = NOON,
    ) -> tuple[Notice, ...]:
        """Applies a statement; ``own`` are the tables that a dropped database takes with it."""
        name = table_id or (after.table_id if after else T)
        after = annotate(statement, after, self.before) if after else None
        found = classify(statement, database="test", table_id=name, before=self.before, after=after)
        events = tuple(replace(e, tables=own) if isinstance(e, DropDatabaseEvent) else e for e in found.events)
        change = SchemaChange(ts, name, events, statement, "test", found.changes, found.reads, after)
        notices = self.sink.metadata_applier.apply_schema_change(change)
        self.before = after
        return notices

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        """Another program on the file. Its catalogue is named ``f``."""
        connection = duckdb.connect(":memory:")
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"ATTACH '{self.path}' AS f")
        connection.execute("USE f")
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()

    def columns(self, table: str = "t") -> list[tuple[object, ...]]:
        return self.sql(f"SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = '{table}' ORDER BY column_index")
