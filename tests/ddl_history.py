"""A history of one kind of schema change: rows, the statement as TiDB restores it, rows again; and what upstream then holds.

What a statement does to the rows that are there is said by the test, since no file tells it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from harness import ExpectedTable, State
from headrace.model.table import Column, Generated, TableId, TableSchema
from headrace.model.tso import tso_from_datetime
from headrace.model.types import ColumnType, TypeKind
from headrace.testing.ticdc_writer import RowChange
from upstreams import Changefeed

DATABASE = "shop"
BYSTANDER = TableId(DATABASE, "other")
_COLUMN = re.compile(
    r"(?P<name>\w+) (?P<kind>[A-Z]+)(?:\((?P<size>[^)]*)\))?(?P<flags>(?: (?:UNSIGNED|PK|NOT NULL|VIRTUAL|STORED))*)"
    r"(?: = (?P<default>.*))?"
)
_PARTITION = 101  # which one a row lies in is told by its values, not by the folder
_WITH_SCALE = frozenset({TypeKind.DATETIME, TypeKind.TIMESTAMP, TypeKind.TIME})

Row = tuple[object, ...]
Effect = Callable[[list[Row]], list[Row]]


def column(text: str) -> Column:
    """A column from ``id INT PK``, ``n DECIMAL(10,2) NOT NULL = 1.50`` (after ``=`` the default), ``g INT VIRTUAL``."""
    found = _COLUMN.fullmatch(text)
    assert found is not None, text
    kind, flags, size = TypeKind(found["kind"]), found["flags"], (found["size"] or "").split(",")
    numbers = [int(number) for number in size if number.strip().isdecimal()]
    length, scale = (None, numbers[0]) if kind in _WITH_SCALE and numbers else ((*numbers, None, None)[:2])
    key = "PK" in flags
    generated = next((kept for kept in Generated if kept in flags), None)
    column_type = ColumnType(kind, "UNSIGNED" in flags, length, scale)
    return Column(found["name"], column_type, not (key or "NOT NULL" in flags), key, found["default"], generated=generated)


class History(Changefeed):
    """A changefeed whose statements are given as text. It begins with a database, and a table that nothing happens to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._tables: dict[TableId, tuple[TableSchema, list[Row]]] = {}
        self._views: set[TableId] = set()
        self._partitioned: set[TableId] = set()
        self.statements: list[str] = []
        self.database(f"CREATE DATABASE `{DATABASE}`", 1)
        self.create("other", "id INT PK", "a VARCHAR(20)", rows=[(1, "before")])
        self.statements.clear()

    def finish(self) -> None:
        """The table that nothing happened to gets its last row, and the checkpoint passes everything."""
        self.insert("other", (2, "after"))
        self.writer.checkpoint(self._ts())

    def database(self, statement: str, code: int, name: str = DATABASE) -> None:
        """A statement about a database."""
        self.statements.append(statement)
        self.writer.schema_change(TableId(name), self._ts(), statement, None, code)
        if statement.startswith("DROP"):
            self._tables = {t: table for t, table in self._tables.items() if t.database != name}

    def create(self, name: str, *columns: str, rows: Sequence[Row] = (), statement: str = "", database: str = DATABASE) -> None:
        """CREATE TABLE, from the columns or with a text of its own, and rows."""
        shape = [column(text) for text in columns]
        definitions = [re.sub(r" (?:PK|= .*|VIRTUAL|STORED)$", "", text) for text in columns]
        key = ", ".join(f"`{c.name}`" for c in shape if c.primary_key)
        parts = [*(f"`{c.name}`{text[len(c.name) :]}" for c, text in zip(shape, definitions, strict=True))]
        parts += [f"PRIMARY KEY({key})"] if key else []
        self.ddl(name, statement or f"CREATE TABLE `{name}` ({','.join(parts)})", 3, columns=columns, database=database)
        self.insert(name, *rows, database=database)

    def ddl(
        self,
        name: str,
        statement: str,
        code: int,
        *,
        columns: Sequence[str] = (),
        effect: Effect = list,
        database: str = DATABASE,
        at: int = 0,
        instead_of: TableId | None = None,
        handle: Sequence[str] = (),
    ) -> int:
        """A statement filed under a table, its shape afterwards (as it was, if not given) and what becomes of the rows.

        ``at`` is the version where it is that of another statement, ``instead_of`` the table whose rows it has now. Returns the
        version.
        """
        table_id = TableId(database, name)
        version = at or self._ts()
        schema, rows = self._tables.get(instead_of or table_id, (TableSchema(table_id, ()), []))
        shape = tuple(column(text) for text in columns) or schema.columns
        schema = TableSchema(table_id, shape, tuple(handle) or tuple(c.name for c in shape if c.primary_key))
        if statement:
            self.statements.append(statement)
        if "PARTITION BY" in statement:
            self._partitioned.add(table_id)
        elif "REMOVE PARTITIONING" in statement:
            self._partitioned.discard(table_id)
        self.writer.schema_change(table_id, version, statement, replace(schema, columns=shape), code)
        if instead_of is not None:
            self.writer.flush(instead_of)
        self._tables[table_id] = (schema, effect(rows))
        return version

    def drop(self, name: str, statement: str, code: int = 4, database: str = DATABASE) -> None:
        """DROP TABLE: the shape in the file is the one that it had."""
        self.ddl(name, statement, code, database=database)
        del self._tables[TableId(database, name)]

    def forget(self, name: str, database: str = DATABASE) -> list[Row]:
        """Takes a table out of what upstream holds, its rows for another place."""
        self.writer.flush(TableId(database, name))
        return self._tables.pop(TableId(database, name))[1]

    def view(self, name: str, statement: str, *columns: str, database: str = DATABASE) -> None:
        """CREATE VIEW, with the view's columns."""
        self.ddl(name, statement, 21, columns=columns, database=database)
        self._views.add(TableId(database, name))

    def drop_view(self, name: str, statement: str) -> None:
        self.drop(name, statement, 24)
        self._views.discard(TableId(DATABASE, name))

    def insert(self, name: str, *rows: Row, database: str = DATABASE) -> None:
        for row in rows:
            schema, held = self._tables[TableId(database, name)]
            held.append(row)
            self._write(schema, RowChange(after=self._named(schema, row)))

    def update(self, name: str, old: Row, new: Row, database: str = DATABASE) -> None:
        """One row becomes another one of the same key."""
        schema, held = self._tables[TableId(database, name)]
        held[held.index(old)] = new
        self._write(schema, RowChange(self._named(schema, old), self._named(schema, new)))

    def delete(self, name: str, row: Row, database: str = DATABASE) -> None:
        schema, held = self._tables[TableId(database, name)]
        held.remove(row)
        self._write(schema, RowChange(before=self._named(schema, row)))

    def rows_of(self, name: str, database: str = DATABASE) -> list[Row]:
        return list(self._tables[TableId(database, name)][1])

    def state(self, *tables: TableId, views: bool = True) -> State:
        """What upstream holds of these tables, or of all; ``views`` with its views."""
        found = []
        for table_id, (schema, rows) in self._tables.items():
            if (tables and table_id not in tables) or (table_id in self._views and not views):
                continue
            types = {c.name: _type_text(c.type) for c in schema.columns}
            kind = "VIEW" if table_id in self._views else "BASE TABLE"
            texts = tuple(tuple(None if value is None else str(value) for value in row) for row in rows)
            found.append(ExpectedTable(table_id.database, table_id.table, kind, types, schema.handle_key, texts))
        databases = {table.database for table in found} | {DATABASE, "shop2"}
        return State(0, frozenset(databases), tuple(found))

    def columns_of(self, table_id: TableId) -> list[str]:
        """A table's column names in order."""
        return [c.name for c in self._tables[table_id][0].columns]

    def _write(self, schema: TableSchema, change: RowChange) -> None:
        partition = _PARTITION if schema.table_id in self._partitioned else None
        self.writer.rows(schema.table_id, self._ts(), [change], partition=partition)

    @staticmethod
    def _named(schema: TableSchema, row: Row) -> dict[str, object]:
        """The row as files carry it: virtual columns are not in it."""
        pairs = zip(schema.columns, row, strict=True)
        return {c.name: value for c, value in pairs if c.generated is not Generated.VIRTUAL}

    def _ts(self) -> int:
        self.upstream.advance(1)
        return tso_from_datetime(self.upstream.now)


def _type_text(column_type: ColumnType) -> str:
    size = column_type.scale if column_type.kind in _WITH_SCALE else None
    return f"{column_type.kind.lower()}({size})" if size else column_type.kind.lower()
