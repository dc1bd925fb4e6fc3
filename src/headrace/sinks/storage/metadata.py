"""Schema changes as schema files: readers of the target learn from them what the source's readers learned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from headrace.ddl.action_codes import (
    CREATE_DATABASE,
    CREATE_TABLE,
    DROP_DATABASE,
    DROP_TABLE,
    DROP_VIEW,
    NONE,
    RENAME_TABLE,
    action_code,
)
from headrace.ddl.lexer import words
from headrace.ddl.statement import StatementKind, read_statement
from headrace.formats.schema_file_encoder import SchemaFileText
from headrace.model.events import (
    CreateDatabaseEvent,
    CreateTableEvent,
    DropDatabaseEvent,
    DropTableEvent,
    ExchangePartitionEvent,
    RenameTableEvent,
    SchemaChange,
)
from headrace.model.outcome import Notice, Problem
from headrace.model.table import Column, Generated, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sinks.metadata_applier import Begun, SchemaChangeRefused, TableDescription
from headrace.sinks.storage.open_cut import CutWriter
from headrace.sinks.storage.tables import unwritable_name

_OVER = frozenset({DROP_DATABASE, DROP_TABLE, DROP_VIEW})
_UNKNOWN = TableSchema(TableId("", ""), (Column("unknown", ColumnType(TypeKind.INT)),))
"""The shape in the file of a DROP of a table that the target has no file of. Readers need a shape there, and do not use it."""


class StorageMetadataApplier:
    """A :class:`headrace.sinks.metadata_applier.MetadataApplier`. A change becomes visible with the cut that it belongs to."""

    def __init__(self, writer: CutWriter, *, column_ids: bool, adopt: bool) -> None:
        """``adopt``: a table that the source creates may be in the target before, with rows."""
        self._writer = writer
        self._tables = writer.tables
        self._column_ids, self._adopt = column_ids, adopt

    def apply_schema_change(self, change: SchemaChange) -> tuple[Notice, ...]:
        """Writes the change's schema files into the open cut. A change that needs no statement, and is done, writes none.

        Raises SchemaChangeRefused for a name that no folder can have, for a table that the target has from before, and for a
        statement whose names need another current database than the table's: a schema file can say no other. Raises
        SinkUnreachableError.
        """
        self._require_names(change)
        self._require_new_tables(change)
        if self._is_done(change):
            return ()
        if read_statement(change.statement, change.database).kind is StatementKind.CREATE_VIEW and change.schema is None:
            return (
                Notice("the view is not written: a schema file lists columns, and the source does not tell them.", change.table_id),
            )
        renamed = [event for event in change.events if isinstance(event, RenameTableEvent)]
        files = list(self._renames(change, renamed) if renamed else self._files(change))
        for file in files:
            self._require_current_database(change, file)
        for event in renamed:
            self._writer.end_name(event.table_id)
        for file in files:
            self._writer.write_schema(file, is_over=file.type_code in _OVER)
        return ()

    def run_instead(self, change: SchemaChange, statement: str) -> tuple[Notice, ...]:
        """Writes a person's statement in the change's place. The shape is the one that the source has after the change."""
        renames = read_statement(statement, change.database).renames
        events = tuple(RenameTableEvent(old, new) for old, new in renames)
        return self.apply_schema_change(replace(change, statement=statement, events=events))

    def describe(self, table_id: TableId) -> TableDescription | None:
        """The table, view or database, as its newest schema file has it. A table has rows if there are data files of it."""
        held = self._tables.held(table_id)
        if held.is_over:
            return None
        if held.schema is None:
            return TableDescription(table_id, (), bool(self._tables.names(table_id.database)))
        columns = tuple(column.name for column in held.schema.columns)
        return TableDescription(table_id, columns, held.is_view or self._tables.has_rows(table_id), held.is_view)

    def state_before(self, change: SchemaChange) -> str:
        """No state is kept."""
        return ""

    def begun(self, change: SchemaChange, state_before: str) -> Begun:
        """A change takes effect with its cut, so one that was begun and is not journalled as done did not."""
        return Begun.ABSENT

    def keeps_unique(self, change: SchemaChange) -> str:
        """Files have no keys."""
        return ""

    def _is_done(self, change: SchemaChange) -> bool:
        """Whether the target is in the end state of a change that leaves nothing else to tell."""
        if change.statement:
            return False
        created = [event.table_id for event in change.events if isinstance(event, CreateTableEvent)]
        return bool(created) and not any(self._tables.held(table_id).is_over for table_id in created)

    def _files(self, change: SchemaChange) -> Iterator[SchemaFileText]:
        read = read_statement(change.statement, change.database)
        code = action_code(read)
        if change.table_id.is_database:
            kinds = {CreateDatabaseEvent: CREATE_DATABASE, DropDatabaseEvent: DROP_DATABASE}
            code = next((kinds[type(event)] for event in change.events if type(event) in kinds), code)
            name = change.table_id if code == CREATE_DATABASE else self._tables.spelled(change.table_id)
            yield SchemaFileText(name, change.commit_ts, None, change.statement, code)
            return
        dropped = {event.table_id for event in change.events if isinstance(event, DropTableEvent)}
        dropped |= {change.table_id} if read.kind is StatementKind.DROP_VIEW else set()
        for table_id in sorted(dropped):
            held = self._tables.held(table_id)
            if not held.is_over or held.version == 0:
                # A statement that drops several is written for each of them: readers run what stands in each file.
                own = f"DROP {'VIEW' if code == DROP_VIEW else 'TABLE'} {table_id.quoted}"
                told = replace(change, statement=own) if len(dropped) > 1 else change
                yield self._file(told, table_id, held.schema or _UNKNOWN, code or DROP_TABLE)
        if change.table_id not in dropped:
            yield self._file(change, change.table_id, change.schema or self._tables.held(change.table_id).schema, code)
        for event in change.events:
            if isinstance(event, CreateTableEvent) and event.table_id != change.table_id:
                yield self._file(change, event.table_id, event.schema, CREATE_TABLE)
            if isinstance(event, ExchangePartitionEvent):  # the statement stands in the file of the partitioned table alone
                shape = self._tables.held(event.other).schema or change.schema
                yield self._file(replace(change, statement=""), event.other, shape, NONE)

    def _renames(self, change: SchemaChange, renamed: list[RenameTableEvent]) -> Iterator[SchemaFileText]:
        """A file under each new name. TiCDC writes one statement for each of them, too."""
        read = read_statement(change.statement, change.database)
        is_plain = read.kind is StatementKind.RENAME_TABLE or not change.statement
        made: dict[TableId, SchemaFileText] = {}
        for event in renamed:
            held = made.pop(event.table_id, None) or self._tables.held(event.table_id)
            shape = change.schema if event.new_table_id == change.table_id else held.schema
            statement = f"RENAME TABLE {event.table_id.quoted} TO {event.new_table_id.quoted}" if is_plain else change.statement
            # Readers go by versions: the RENAME comes behind what happened under the old name, also in the same millisecond.
            own = replace(change, statement=statement, commit_ts=max(change.commit_ts, held.version + 1))
            made[event.new_table_id] = self._file(own, event.new_table_id, shape, RENAME_TABLE)
            yield made[event.new_table_id]

    def _file(self, change: SchemaChange, table_id: TableId, schema: TableSchema | None, code: int) -> SchemaFileText:
        """The schema file of a table. Raises SchemaChangeRefused if no shape of it is known."""
        if schema is None:
            raise SchemaChangeRefused(
                Problem(
                    table_id,
                    "a schema file lists the columns, and the source does not tell them.",
                    place=change.origin,
                    hint="The table needs no schema file before it has rows: skip the change.",
                )
            )
        shape = schema if schema.table_id == table_id else replace(schema, table_id=table_id)
        statement = _without_stored(change.statement, shape)
        return SchemaFileText(table_id, change.commit_ts, shape, statement, code, self._column_ids)

    def _require_names(self, change: SchemaChange) -> None:
        names = {name for table_id in change.changes for name in (table_id.database, table_id.table)}
        if name := unwritable_name(sorted(names)):
            raise SchemaChangeRefused(
                Problem(
                    change.table_id,
                    f"its name cannot be that of a folder: {name!r}.",
                    place=change.origin,
                    hint="Leave the table out with --tables.",
                )
            )

    def _require_new_tables(self, change: SchemaChange) -> None:
        """Raises SchemaChangeRefused if the source creates a table of which the target has rows: readers would have both."""
        for event in change.events:
            if not isinstance(event, CreateTableEvent) or self._adopt:
                continue
            if not self._tables.held(event.table_id).is_over and self._tables.has_rows(event.table_id):
                raise SchemaChangeRefused(
                    Problem(
                        event.table_id,
                        "the source creates the table, but the target has changes of it from before.",
                        place=change.origin,
                        hint="Go on behind them with --adopt, or name another folder. Another pipeline goes on with its --name.",
                    )
                )

    def _require_current_database(self, change: SchemaChange, file: SchemaFileText) -> None:
        """Raises SchemaChangeRefused if readers would take a name in the statement for that of another table."""
        if read_statement(file.statement, change.database) != read_statement(file.statement, file.table_id.database):
            raise SchemaChangeRefused(
                Problem(
                    change.table_id,
                    f"its statement names tables of the database {change.database} without that database. Readers of a schema file "
                    f"look for them in {file.table_id.database}.",
                    place=change.origin,
                    hint=f"Write it with full names: {change.statement}",
                )
            )


def _without_stored(statement: str, shape: TableSchema) -> str:
    """The statement with VIRTUAL for STORED, if rows do not have the stored columns: then readers have to compute them.

    In the shapes of such a source (TiDB Binlog) all generated columns are virtual.
    """
    generated = {column.generated for column in shape.columns}
    if generated.isdisjoint({Generated.VIRTUAL}) or Generated.STORED in generated:
        return statement
    found = words(statement) or ()
    for former, word in reversed(list(pairwise(found))):
        if word.says("STORED") and former.says(")"):
            statement = statement[: word.start] + Generated.VIRTUAL + statement[word.end :]
    return statement
