"""Schema changes in DuckDB: typed events as DuckDB's DDL, each checked against the catalogue first.

DuckDB appends added columns and has no column positions. Rows are inserted by column name, so the order does not matter here.
Virtual generated columns come last in a change, when all columns that they use exist.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import duckdb

from headrace.ddl.classify import changes_rows_unseen
from headrace.ddl.defaults import ZoneMismatch, computed_default, zone_mismatch
from headrace.ddl.statement import StatementKind, read_statement
from headrace.model.events import (
    AddColumnEvent,
    AlterColumnTypeEvent,
    CreateDatabaseEvent,
    CreateTableEvent,
    DeletePartitionRowsEvent,
    DropColumnEvent,
    DropDatabaseEvent,
    DropTableEvent,
    ExchangePartitionEvent,
    OtherEvent,
    RenameColumnEvent,
    RenameTableEvent,
    SchemaChange,
    TruncateTableEvent,
)
from headrace.model.outcome import Notice, Problem
from headrace.model.table import Column, Generated, TableId, TableSchema, folded_name
from headrace.model.types import TypeKind
from headrace.sinks.duckdb.catalog import (
    TargetTable,
    find_table,
    has_rows,
    mark_ours,
    objects_of,
    place,
    schema_exists,
)
from headrace.sinks.duckdb.conversion import BY_HAND, type_change
from headrace.sinks.duckdb.database import REFUSALS, Database, Session
from headrace.sinks.duckdb.fill_values import Fill, fill_of
from headrace.sinks.duckdb.generated import build_again, generated_columns, is_virtual
from headrace.sinks.duckdb.partitions import delete_rows, exchange_rows, rows_unseen
from headrace.sinks.duckdb.spool import ValuePolicies, unfit_problem, unsupported_problem
from headrace.sinks.duckdb.types import DATE_KINDS, UnsupportedTypeError, duckdb_type, quoted, spelled
from headrace.sinks.metadata_applier import Begun, SchemaChangeRefused, TableDescription

_SHOWN = 20


_ROLLED_BACK = frozenset(
    {duckdb.StatementType.ALTER, duckdb.StatementType.CREATE, duckdb.StatementType.DELETE, duckdb.StatementType.DROP}
    | {duckdb.StatementType.INSERT, duckdb.StatementType.MERGE_INTO, duckdb.StatementType.SELECT, duckdb.StatementType.UPDATE}
)
"""The kinds of statements that are part of the cut's transaction, do not end it, and do not change the session."""


def _require_rollback(change: SchemaChange, statement: str) -> None:
    """Raises SchemaChangeRefused for a text that is not a statement, or that cannot be part of the cut's transaction."""
    kinds = {found.type for found in duckdb.extract_statements(statement)}
    if kinds and kinds <= _ROLLED_BACK:
        return
    message = (
        f"this statement cannot be run in place of the schema change, because it cannot be part of a transaction: {statement}."
    )
    hint = "Use INSERT, UPDATE, DELETE, MERGE, CREATE, ALTER, DROP or SELECT. To run nothing, skip the change."
    raise SchemaChangeRefused(Problem(change.table_id, message, place=change.origin, hint=hint))


@dataclass
class DuckDbMetadataApplier:
    """Applies schema changes inside the open cut, or each in a transaction of its own."""

    database: Database
    policies: ValuePolicies
    adopt: bool = False

    def apply_schema_change(self, change: SchemaChange) -> tuple[Notice, ...]:
        """Executes the typed events in order. Raises SchemaChangeRefused; the open cut must then be abandoned."""
        with self.database.transaction() as session:
            work = _Change(session, change, self.policies, self.adopt)
            try:
                work.run()
            except REFUSALS as error:
                message = f"DuckDB refused the schema change: {str(error).strip().splitlines()[0]}"
                raise SchemaChangeRefused(Problem(change.table_id, message, place=change.origin)) from error
            return tuple(work.notices)

    def run_instead(self, change: SchemaChange, statement: str) -> tuple[Notice, ...]:
        """Executes a person's statement in the open cut. Raises SchemaChangeRefused; then it has no effect."""
        with self.database.transaction() as session:
            try:
                _require_rollback(change, statement)
                session.execute(statement)
            except duckdb.Error as error:
                message = f"DuckDB refused the statement that was to be run instead: {str(error).strip().splitlines()[0]}"
                raise SchemaChangeRefused(Problem(change.table_id, message, place=change.origin)) from error
        return (Notice(f"in place of the source's statement this was run: {statement}", change.table_id),)

    def describe(self, table_id: TableId) -> TableDescription | None:
        """The table, or the schema of a database, as in the catalogue."""
        with self.database.reading() as session:
            if session is None:
                return None
            if table_id.is_database:
                if not schema_exists(session, table_id.database):
                    return None
                held = objects_of(session, table_id.database)
                return TableDescription(table_id, (), bool(held))
            found = find_table(session, table_id)
            if found is None:
                return None
            return TableDescription(table_id, tuple(found.columns), has_rows(session, table_id))

    def state_before(self, change: SchemaChange) -> str:
        """No state is kept."""
        return ""

    def begun(self, change: SchemaChange, state_before: str) -> Begun:
        """A cut is one transaction, so a change that was begun and is not journalled as done was rolled back."""
        return Begun.ABSENT

    def keeps_unique(self, change: SchemaChange) -> str:
        """The table's own key, if another type makes it distinguish other values, because rows are found by it.

        Tables are created without unique keys, and a key that a person added refuses rows instead of replacing others.
        """
        if change.schema is None:
            return ""
        key = {folded_name(name) for name in change.schema.handle_key}
        altered = (e for e in change.events if isinstance(e, AlterColumnTypeEvent) and folded_name(e.column.name) in key)
        if any(self._type(event.column) != self._type(event.old_column) for event in altered):
            return f"({', '.join(change.schema.handle_key)})"
        return ""

    def _type(self, column: Column) -> str:
        return duckdb_type(column.type, self.policies.unsupported)


class _Change:
    """The execution of one schema change."""

    def __init__(self, session: Session, change: SchemaChange, policies: ValuePolicies, adopt: bool) -> None:
        self._session = session
        self._change = change
        self._policies = policies
        self._adopt = adopt
        self._incomplete: set[TableId] = set()  # tables that may lack virtual columns
        self.notices: list[Notice] = []

    def run(self) -> None:
        self._refuse_other_zone()
        steps: dict[type, Callable[..., None]] = {
            CreateDatabaseEvent: self._create_database,
            DropDatabaseEvent: self._drop_database,
            CreateTableEvent: self._create_table,
            DropTableEvent: self._drop_table,
            TruncateTableEvent: self._truncate_table,
            RenameTableEvent: self._rename_table,
            AddColumnEvent: self._add_column,
            DropColumnEvent: self._drop_column,
            RenameColumnEvent: self._rename_column,
            AlterColumnTypeEvent: self._alter_column,
            DeletePartitionRowsEvent: self._delete_partition_rows,
            ExchangePartitionEvent: self._exchange_partition,
            OtherEvent: self._other,
        }
        for event in self._change.events:
            steps[type(event)](event)
        self._generate()

    def _refuse_other_zone(self) -> None:
        """A configured time zone that is not the source's would convert values wrongly. Defaults themselves are in UTC."""
        zone = self._policies.time_zone
        mismatch = zone_mismatch(self._change.statement, self._change.schema, zone) if zone else None
        if mismatch is not None:
            raise self._refusal(self._change.table_id, mismatch.sentence(zone), ZoneMismatch.HINT, mismatch.column)

    # --- databases and tables -------------------------------------------------------------------------------------

    def _create_database(self, event: CreateDatabaseEvent) -> None:
        self._session.execute(f"CREATE SCHEMA IF NOT EXISTS {place(TableId(event.database))}")

    def _drop_database(self, event: DropDatabaseEvent) -> None:
        if not schema_exists(self._session, event.database):
            return
        own = {folded_name(table_id.table) for table_id in event.tables}
        # One by one: after DROP SCHEMA … CASCADE, the commit fails if a table got rows in the same transaction.
        for kind, name in objects_of(self._session, event.database):
            if kind == "TABLE" and folded_name(name) in own:
                self._session.execute(f"DROP TABLE {place(TableId(event.database, name))}")
        left = [f"{kind.lower()} {name}" for kind, name in objects_of(self._session, event.database)]
        if left:
            more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
            told = "the source dropped it; what this pipeline had made in it was dropped. The schema stays, because it also holds"
            told = f"{told} {', '.join(left[:_SHOWN])}{more}, which is not this pipeline's."
            self.notices.append(Notice(told, TableId(event.database)))
        elif folded_name(event.database) != "main":
            self._session.execute(f"DROP SCHEMA {place(TableId(event.database))}")

    def _create_table(self, event: CreateTableEvent) -> None:
        there = find_table(self._session, event.table_id)
        if there is None:
            self._create_database(CreateDatabaseEvent(event.table_id.database))
            parts = {folded_name(c.name): f"{quoted(c.name)} {self._type(event.table_id, c)}" for c in event.schema.row_columns}
            generated = generated_columns(event.schema, self._policies.unsupported)
            parts.update(generated.definitions)
            self.notices.extend(generated.notices)
            folded = [folded_name(c.name) for c in event.schema.columns]
            if not generated.may_stand_anywhere:
                folded = [*(name for name in folded if name not in generated.definitions), *generated.definitions]
            columns = ", ".join(parts[name] for name in folded if name in parts)
            self._session.execute(f"CREATE TABLE {place(event.table_id)} ({columns})")
            mark_ours(self._session, event.table_id)
            return
        if has_rows(self._session, event.table_id) and not there.ours and not self._adopt:
            message = "the table is already in the DuckDB file, holds rows, and was not created by Headrace."
            raise self._refusal(event.table_id, message, "Take it over with --adopt, or name another file.")
        kind = read_statement(self._change.statement, self._change.database).kind
        if has_rows(self._session, event.table_id) and kind is StatementKind.CREATE_TABLE and not self._adopt:
            message = (
                "the source creates the table, but the DuckDB file still has it, with rows from before: its DROP never ran here."
            )
            hint = (
                "If another pipeline made it, run that one, with its --name; the command status without --name shows them all. "
                "Otherwise drop the table in the file; Headrace then creates it."
            )
            raise self._refusal(event.table_id, message, hint)
        self._complete(there, event.schema)

    def _complete(self, there: TargetTable, schema: TableSchema) -> None:
        """Adds what the shape has in addition to an existing table, and refuses types that differ."""
        for column in schema.row_columns:
            found = there.find(column.name)
            wanted = self._type(there.table_id, column)
            if found is None:
                self._add(there, column)
                self.notices.append(Notice(f"column {column.name} was added to the table that was there.", there.table_id))
            elif found[1] != wanted:
                message = f"the column in the DuckDB file is {found[1]}, it has to be {wanted}."
                raise self._refusal(there.table_id, message, "Alter or drop the table in the file.", column.name)
        if any(is_virtual(c) and c.expression and there.find(c.name) is None for c in schema.columns):
            self._incomplete.add(there.table_id)

    def _drop_table(self, event: DropTableEvent) -> None:
        if find_table(self._session, event.table_id) is not None:
            self._session.execute(f"DROP TABLE {place(event.table_id)}")

    def _truncate_table(self, event: TruncateTableEvent) -> None:
        self._target(event.table_id)
        self._session.execute(f"DELETE FROM {place(event.table_id)}")

    def _rename_table(self, event: RenameTableEvent) -> None:
        old, new = event.table_id, event.new_table_id
        taken = find_table(self._session, new)
        there = find_table(self._session, old)
        if there is None and taken is not None:
            return
        there = self._target(old)
        same_name = (folded_name(old.database), folded_name(old.table)) == (folded_name(new.database), folded_name(new.table))
        if taken is not None and not same_name:
            raise self._refusal(old, f"it cannot be renamed: there is a table {new} already.", "Rename or drop that one.")
        if folded_name(old.database) == folded_name(new.database):
            self._session.execute(f"ALTER TABLE {place(old)} RENAME TO {quoted(new.table)}")
            return
        # DuckDB cannot move a table to another schema.
        self._create_database(CreateDatabaseEvent(new.database))
        build_again(self._session, there, new, [])

    def _delete_partition_rows(self, event: DeletePartitionRowsEvent) -> None:
        delete_rows(self._session, self._change, event, self._policies)

    def _exchange_partition(self, event: ExchangePartitionEvent) -> None:
        exchange_rows(self._session, self._change, event, self._policies)

    def _other(self, event: OtherEvent) -> None:
        if changes_rows_unseen(self._change.statement, self._change.database):
            message = "the statement changes rows without change events, and DuckDB cannot run it."
            raise rows_unseen(self._change, event.table_id, message)
        if self._change.statement and read_statement(self._change.statement, self._change.database).kind is StatementKind.UNKNOWN:
            message = f"Headrace does not know what this statement does: {' '.join(self._change.statement.split())}."
            raise self._refusal(event.table_id, message, "")
        if self._change.statement:
            self.notices.append(Notice("DuckDB has no need of this schema change; nothing was done.", event.table_id))

    # --- columns --------------------------------------------------------------------------------------------------

    def _add_column(self, event: AddColumnEvent) -> None:
        target = self._target(event.table_id)
        if _is_carried(event.column):
            self._add(target, event.column)
        elif is_virtual(event.column):
            self._incomplete.add(event.table_id)

    def _add(self, target: TargetTable, column: Column) -> None:
        wanted = self._type(target.table_id, column)
        found = target.find(column.name)
        if found is not None:
            if found[1] != wanted:
                message = f"there is a column of that name already, of type {found[1]}."
                raise self._refusal(target.table_id, message, "Drop it in the file.", column.name)
            return
        function = computed_default(read_statement(self._change.statement, self._change.database), column.name)
        if function and has_rows(self._session, target.table_id):
            message = f"the source computed {function} for each row that existed, and no event contains the results."
            raise rows_unseen(self._change, target.table_id, message)
        fill = fill_of(column, self._change, self._policies)
        default = f" DEFAULT {self._checked_fill(target, column, fill)}" if fill is not None else ""
        table = place(target.table_id)
        self._session.execute(f"ALTER TABLE {table} ADD COLUMN {quoted(column.name)} {wanted}{default}")
        if default:
            self._session.execute(f"ALTER TABLE {table} ALTER COLUMN {quoted(column.name)} DROP DEFAULT")
        if column.generated is Generated.STORED and has_rows(self._session, target.table_id):
            message = f"generated column {column.name} is NULL in the rows that existed; no event contains their values."
            self.notices.append(Notice(message, target.table_id))

    def _checked_fill(self, target: TargetTable, column: Column, fill: Fill) -> str:
        filled = has_rows(self._session, target.table_id)
        if fill.unknown and filled:
            raise rows_unseen(
                self._change, target.table_id, f"no file records which value the rows got in column {column.name}: {fill.unknown}"
            )
        if fill.about and filled:
            self.notices.append(Notice(fill.about, target.table_id))
        if self._session.execute(f"SELECT ({fill.expression}) IS NOT NULL")[0][0]:
            return fill.expression
        forgiven = column.type.kind in DATE_KINDS and self._policies.zero_dates_null
        if not forgiven and filled:
            problem = unfit_problem(target.table_id, column, fill.told)
            raise SchemaChangeRefused(replace(problem, place=self._change.origin))
        return "NULL"

    def _drop_column(self, event: DropColumnEvent) -> None:
        target = self._target(event.table_id)
        self._drop(target, event.column_name)

    def _drop(self, target: TargetTable, name: str) -> None:
        found = target.find(name)
        if found is None:
            return
        # CASCADE also drops generated columns that use it. Those that the table must keep are added again at the end.
        cascade = " CASCADE" if target.generated else ""
        self._session.execute(f"ALTER TABLE {place(target.table_id)} DROP COLUMN {quoted(found[0])}{cascade}")
        if target.generated:
            self._incomplete.add(target.table_id)

    def _rename_column(self, event: RenameColumnEvent) -> None:
        target = self._target(event.table_id)
        if target.find(event.old_name) is None:
            schema = self._change.schema
            carried = schema is None or any(c.name == event.new_name for c in schema.row_columns)
            if carried and target.find(event.new_name) is None:
                raise self._refusal(event.table_id, "there is no such column in the DuckDB file.", "", event.old_name)
            return
        self._session.execute(
            f"ALTER TABLE {place(event.table_id)} RENAME COLUMN {quoted(event.old_name)} TO {quoted(event.new_name)}"
        )

    def _alter_column(self, event: AlterColumnTypeEvent) -> None:
        target, column = self._target(event.table_id), event.column
        if _is_carried(column) != _is_carried(event.old_column) or is_virtual(column):
            self._alter_generation(target, event)
            return
        if not _is_carried(column):
            return
        if target.find(column.name) is None:
            raise self._refusal(event.table_id, "there is no such column in the DuckDB file.", "", column.name)
        policies = self._policies
        try:
            step = type_change(column.name, event.old_column.type, column.type, policies.unsupported, policies.time_zone)
        except UnsupportedTypeError as error:
            raise SchemaChangeRefused(unsupported_problem(event.table_id, column, error)) from None
        if not step.expression:
            return
        table, name = place(event.table_id), quoted(column.name)
        self._refuse_time_for_null(event)
        unfit = self._session.execute(
            f"SELECT {name}::VARCHAR FROM {table} WHERE {name} IS NOT NULL AND ({step.expression}) IS NULL LIMIT 1"
        )
        if unfit and step.refusal is not None:
            raise self._refusal(event.table_id, str(step.refusal), step.refusal.hint, column.name)
        if unfit:
            message = (
                f"it is not known how TiDB converted this value from {spelled(event.old_column.type)} to {spelled(column.type)}."
            )
            problem = Problem(
                event.table_id, message, self._change.origin, column=column.name, value=str(unfit[0][0]), hint=BY_HAND
            )
            raise SchemaChangeRefused(problem)
        if step.changes_type:
            self._drop_generated(target)  # DuckDB cannot change a type that they depend on
            self._session.execute(f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {step.target} USING {step.expression}")
        else:
            self._session.execute(f"UPDATE {table} SET {name} = {step.expression} WHERE {name} IS DISTINCT FROM {step.expression}")

    def _refuse_time_for_null(self, event: AlterColumnTypeEvent) -> None:
        """When a column of another type becomes TIMESTAMP NOT NULL, TiDB puts its own time into rows with NULL."""
        old, new = event.old_column, event.column
        if new.type.kind is not TypeKind.TIMESTAMP or new.nullable or old.type.kind is TypeKind.TIMESTAMP:
            return
        if self._session.execute(f"SELECT 1 FROM {place(event.table_id)} WHERE {quoted(new.name)} IS NULL LIMIT 1"):
            message = (
                f"TiDB put the time into the rows that had NULL in column {new.name}, and no event shows which rows those are."
            )
            raise rows_unseen(self._change, event.table_id, message)

    def _alter_generation(self, target: TargetTable, event: AlterColumnTypeEvent) -> None:
        """A virtual column is altered, becomes a plain one, or replaces one."""
        old, column = event.old_column, event.column
        if (old.generated, old.type, old.expression) == (column.generated, column.type, column.expression):
            return
        self._drop(target, column.name)
        if _is_carried(column):
            self._add(self._target(event.table_id), column)
        self._incomplete.add(event.table_id)

    def _drop_generated(self, target: TargetTable) -> None:
        for name in target.generated:
            self._session.execute(f"ALTER TABLE {place(target.table_id)} DROP COLUMN IF EXISTS {quoted(name)} CASCADE")
        if target.generated:
            self._incomplete.add(target.table_id)

    def _generate(self) -> None:
        """Adds the virtual columns that tables lack."""
        schema = self._change.schema
        for table_id in sorted(self._incomplete):
            if schema is None:
                continue
            target = self._target(table_id)
            there = {folded_name(name) for name in target.generated}
            generated = generated_columns(schema, self._policies.unsupported, there)
            self.notices.extend(generated.notices)
            missing = [definition for name, definition in generated.definitions.items() if target.find(name) is None]
            if missing:
                build_again(self._session, target, table_id, missing)

    # --- shared ---------------------------------------------------------------------------------------------------

    def _type(self, table_id: TableId, column: Column) -> str:
        try:
            return duckdb_type(column.type, self._policies.unsupported)
        except UnsupportedTypeError as error:
            raise SchemaChangeRefused(unsupported_problem(table_id, column, error)) from None

    def _target(self, table_id: TableId) -> TargetTable:
        found = find_table(self._session, table_id)
        if found is None:
            raise self._refusal(table_id, "the table is not in the DuckDB file.", "Was it dropped by hand?")
        return found

    def _refusal(self, table_id: TableId, message: str, hint: str, column: str = "") -> SchemaChangeRefused:
        return SchemaChangeRefused(Problem(table_id, message, place=self._change.origin, column=column, hint=hint))


def _is_carried(column: Column) -> bool:
    """Whether rows carry the column, so that DuckDB has it."""
    return column.generated is not Generated.VIRTUAL and not column.hidden
