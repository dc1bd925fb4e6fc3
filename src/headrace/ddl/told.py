"""What is known of tables from all schema changes of a source: the last shape, whether all unique keys are known, collations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.ddl.lexer import Cursor, Word
from headrace.ddl.statement import Statement, StatementKind, read_statement
from headrace.model.events import CreateDatabaseEvent, CreateTableEvent, DropDatabaseEvent, RenameTableEvent, SchemaChange
from headrace.model.table import SourceTable, TableId, TableSchema, folded_name
from headrace.model.types import CHARACTER_KINDS

BY_BYTES = "utf8mb4_0900_bin"
# TiDB's default collation of a character set is its binary one, except for these.
_DEFAULTS = {"binary": "binary", "gbk": "gbk_chinese_ci", "gb18030": "gb18030_chinese_ci"}


def source_tables(changes: Iterable[SchemaChange]) -> dict[TableId, SourceTable]:
    """The tables that exist after these changes."""
    tables: dict[TableId, SourceTable] = {}
    for change in sorted(changes, key=lambda c: c.commit_ts):
        statement = read_statement(change.statement, change.database)
        former = dict(tables)
        for event in change.events:
            if isinstance(event, RenameTableEvent):
                tables.pop(event.table_id, None)
        if change.schema is None:
            tables.pop(change.table_id, None)
            continue
        before = former.get(_origin(change, statement))
        tables[change.table_id] = SourceTable(
            change.schema,
            keys_told=_creates(statement) or (before is not None and before.keys_told),
            collations=_of_bytes(change.schema) if change.by_bytes else _collations(statement, before, change.database_collation),
            carried=change.schema.row_columns,
        )
    return tables


def source_databases(changes: Iterable[SchemaChange]) -> frozenset[str]:
    """The databases that exist after these changes, with tables or without."""
    databases: set[str] = set()
    for change in sorted(changes, key=lambda c: c.commit_ts):
        for event in change.events:
            if isinstance(event, DropDatabaseEvent):
                databases.discard(event.database)
            elif isinstance(event, CreateDatabaseEvent):
                databases.add(event.database)
        if change.schema is not None:
            databases.add(change.table_id.database)
    return frozenset(databases)


def brought_back(change: SchemaChange) -> frozenset[TableId]:
    """The table that RECOVER TABLE or FLASHBACK TABLE restores, under its name afterwards. There are no row events for its rows.
    The change has only an ``OtherEvent``, which does not show this and which a sink refuses."""
    is_table = bool(change.table_id.table)
    return frozenset({change.table_id} if is_table and read_statement(change.statement, change.database).brings_back else ())


def newly_named(change: SchemaChange) -> Iterator[TableId]:
    """The tables that get their names by the change, or first appear with it."""
    yield from brought_back(change)
    for event in change.events:
        if isinstance(event, CreateTableEvent):
            yield event.table_id
        elif isinstance(event, RenameTableEvent):
            yield event.new_table_id


def _origin(change: SchemaChange, statement: Statement) -> TableId:
    """The table whose keys and collations this table keeps or copies."""
    if statement.like is not None:
        return statement.like
    renames = (e.table_id for e in change.events if isinstance(e, RenameTableEvent) and e.new_table_id == change.table_id)
    return next(renames, change.table_id)


def _creates(statement: Statement) -> bool:
    return statement.kind is StatementKind.CREATE_TABLE and statement.like is None


def _collations(statement: Statement, before: SourceTable | None, database_collation: str) -> dict[str, str]:
    if _creates(statement):
        of_table = named_collation(statement.options) or database_collation
        parts = filter(None, statement.definitions)
        of_columns = {folded_name(Cursor(part).column_name()): named_collation(part[1:]) or of_table for part in parts}
        return {name: collation for name, collation in of_columns.items() if collation}
    if before is None or any(named_collation(action) for action in statement.actions):
        return {}
    return dict(before.collations)


def _of_bytes(schema: TableSchema) -> dict[str, str]:
    """The collations of a source that compares bytes, whatever collations its statements name."""
    return {folded_name(column.name): BY_BYTES for column in schema.columns if column.type.kind in CHARACTER_KINDS}


def accepts_charset(cursor: Cursor) -> bool:
    """Steps over ``CHARACTER SET``, ``CHAR SET`` or ``CHARSET``. Returns whether it did."""
    return cursor.accept("CHARACTER", "SET") or cursor.accept("CHAR", "SET") or cursor.accept("CHARSET")


def named_collation(words: tuple[Word, ...]) -> str:
    """The collation after COLLATE, else the default collation of the named character set; empty if there is neither."""
    cursor, charset = Cursor(words), ""
    while not cursor.done:
        if cursor.peek().says("("):
            cursor.group()
        elif cursor.accept("COLLATE"):
            cursor.accept("=")
            return cursor.next().text.lower()
        elif accepts_charset(cursor):
            cursor.accept("=")
            charset = cursor.next().text.lower()
        else:
            cursor.next()
    return _DEFAULTS.get(charset, f"{charset}_bin") if charset else ""
