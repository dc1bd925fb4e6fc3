"""The effect of partition statements on rows in DuckDB, which has no partitions: the rows are found by a condition.

A condition is refused if DuckDB might interpret it differently, or if it does not determine the source's rows in the partition.
Then only loading the table again helps.
"""

from __future__ import annotations

from headrace.ddl.expression_values import UntranslatableError
from headrace.ddl.expressions import Condition, condition_to_duckdb
from headrace.model.collation import fold_text
from headrace.model.events import DeletePartitionRowsEvent, ExchangePartitionEvent, SchemaChange
from headrace.model.outcome import Problem, Remedy
from headrace.model.table import TableId, TableSchema, folded_name
from headrace.sinks.duckdb.catalog import TargetTable, find_table, place
from headrace.sinks.duckdb.database import Session
from headrace.sinks.duckdb.generated import MOST_NODES, size_of_virtual
from headrace.sinks.duckdb.spool import ValuePolicies
from headrace.sinks.duckdb.types import DATE_KINDS, quoted
from headrace.sinks.metadata_applier import SchemaChangeRefused

_MOVED = quoted("headrace$moved")
_LONGEST_SHOWN = 500


def rows_unseen(change: SchemaChange, table_id: TableId, message: str) -> SchemaChangeRefused:
    """The refusal of a change of rows that has no events and cannot be followed here. ``message`` says why."""
    hint = "Load the table anew and skip the statement, or leave the table out by a filter."
    return SchemaChangeRefused(Problem(table_id, message, place=change.origin, hint=hint, remedy=Remedy.RESYNC))


def delete_rows(session: Session, change: SchemaChange, event: DeletePartitionRowsEvent, policies: ValuePolicies) -> None:
    """Deletes the rows of the partitions. Raises SchemaChangeRefused."""
    target = _target(session, change, event.table_id)
    condition = _condition(session, change, target, event.condition, policies)
    session.execute(f"DELETE FROM {place(event.table_id)} WHERE {condition.sql}")


def exchange_rows(session: Session, change: SchemaChange, event: ExchangePartitionEvent, policies: ValuePolicies) -> None:
    """Exchanges the rows of the partition and those of the other table. Raises SchemaChangeRefused."""
    target, other = _target(session, change, event.table_id), _target(session, change, event.other)
    if _shape(target) != _shape(other):
        message = f"its columns in the DuckDB file are not those of {event.other}, with which a partition was exchanged."
        raise rows_unseen(change, event.table_id, message)
    condition = _condition(session, change, target, event.condition, policies)
    here, there = place(event.table_id), place(event.other)
    if session.execute(f"SELECT 1 FROM {there} WHERE ({condition.sql}) IS NOT TRUE LIMIT 1"):
        message = (
            f"rows of {event.other} do not belong in partition {event.partition}, so it is no longer known which rows the "
            "partition holds."
        )
        raise rows_unseen(change, event.table_id, message)
    columns = ", ".join(quoted(name) for name in target.columns if name not in target.generated)
    session.execute(f"CREATE TEMPORARY TABLE {_MOVED} AS SELECT {columns} FROM {here} WHERE {condition.sql}")
    session.execute(f"DELETE FROM {here} WHERE {condition.sql}")
    session.execute(f"INSERT INTO {here} ({columns}) SELECT {columns} FROM {there}")
    session.execute(f"DELETE FROM {there}")
    session.execute(f"INSERT INTO {there} ({columns}) SELECT {columns} FROM temp.{_MOVED}")
    session.execute(f"DROP TABLE temp.{_MOVED}")


def _target(session: Session, change: SchemaChange, table_id: TableId) -> TargetTable:
    found = find_table(session, table_id)
    if found is None:
        message = f"{table_id}, whose rows the statement changes, is not in the DuckDB file."
        raise rows_unseen(change, change.table_id, message)
    return found


def _shape(target: TargetTable) -> dict[str, str]:
    return {folded_name(name): type_name for name, type_name in target.columns.items() if name not in target.generated}


def _condition(session: Session, change: SchemaChange, target: TargetTable, text: str, policies: ValuePolicies) -> Condition:
    """The condition in DuckDB's SQL, after a check that everything it depends on is in the table."""
    table_id, schema = target.table_id, change.schema
    if schema is None:
        raise rows_unseen(change, table_id, "the shape of the table is not known, so its rows cannot be told apart.")
    try:
        condition = condition_to_duckdb(text, schema)
    except UntranslatableError:
        cut = f"{text[:_LONGEST_SHOWN]}…" if len(text) > _LONGEST_SHOWN else text
        message = f"DuckDB cannot tell which rows were in the partition; the condition for them is {cut}."
        raise rows_unseen(change, table_id, message) from None
    if size_of_virtual(condition.columns, schema, policies.unsupported) > MOST_NODES:
        message = (
            "DuckDB cannot tell which rows were in the partition: with virtual columns put into it, the condition is too long."
        )
        raise rows_unseen(change, table_id, message)
    for name in sorted(condition.columns):
        _check_column(session, change, target, schema, name, policies)
    for name, texts in sorted(condition.texts.items()):
        _check_texts(session, change, target, name, texts)
    return condition


def _check_texts(session: Session, change: SchemaChange, target: TargetTable, name: str, texts: frozenset[str]) -> None:
    """Refuses if a value differs from a text with which it is compared but may be equal to it by some collation."""
    folded = {fold_text(text) for text in texts}
    values = session.execute(f"SELECT DISTINCT {quoted(name)} FROM {place(target.table_id)} WHERE {quoted(name)} IS NOT NULL")
    for (value,) in values:
        if value not in texts and fold_text(str(value)) in folded:
            message = f"whether {value!r} in column {name} was in the partition depends on the source's unknown collation."
            raise rows_unseen(change, target.table_id, message)


def _check_column(
    session: Session, change: SchemaChange, target: TargetTable, schema: TableSchema, name: str, policies: ValuePolicies
) -> None:
    """Refuses NULL in a column that is NOT NULL at the source: it stands for a missing value, or for a date that DuckDB lacks."""
    if target.find(name) is None:
        message = f"column {name}, which decides about the partition of a row, is not in the DuckDB file."
        raise rows_unseen(change, target.table_id, message)
    column, table = schema.column(name), place(target.table_id)
    stands_for_dates = policies.zero_dates_null and column.type.kind in DATE_KINDS
    if column.nullable and not stands_for_dates:
        return
    if session.execute(f"SELECT 1 FROM {table} WHERE {quoted(name)} IS NULL LIMIT 1"):
        have = "may have" if column.nullable else "have"
        message = f"column {name}, which decides about the partition of a row, is NULL here in rows that {have} a value upstream."
        raise rows_unseen(change, target.table_id, message)
