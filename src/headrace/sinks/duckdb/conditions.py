"""Checks whether DuckDB supports the source's tables, and meets the conditions under which the order of writes does not matter."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence

from headrace.errors import HeadraceError
from headrace.model.table import SourceTable, TableId, folded_name
from headrace.sinks.base import Check, CheckState
from headrace.sinks.duckdb.catalog import TargetTable, find_tables
from headrace.sinks.duckdb.database import CATALOG, Database, Session
from headrace.sinks.duckdb.generated import columns_left_out
from headrace.sinks.duckdb.types import INTEGER_TYPES, UnsupportedPolicy, UnsupportedTypeError, duckdb_type, quoted, spelled
from headrace.sinks.missing_tables import missing_tables
from headrace.sinks.sql_ledger import SqlLedger

_NO_KEYS = "the target has none that the source lacks"
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_Tables = dict[tuple[str, str], SourceTable]


def check_tables(
    database: Database, ledger: SqlLedger, pipeline: str, tables: Sequence[SourceTable], unsupported: UnsupportedPolicy
) -> list[Check]:
    """See ``DataSink.check_tables``."""
    return [*_types(tables, unsupported), *_in_file(database, ledger, pipeline, tables, unsupported)]


def _types(tables: Sequence[SourceTable], unsupported: UnsupportedPolicy) -> Iterator[Check]:
    """The types that DuckDB lacks: for all tables at once, so that a run does not stop at one table after another."""
    refused: dict[str, list[str]] = {}
    left_out: list[str] = []
    for schema in sorted((table.schema for table in tables), key=lambda schema: schema.table_id):
        for column in schema.row_columns:
            try:
                duckdb_type(column.type, unsupported)
            except UnsupportedTypeError as error:
                refused.setdefault(error.limit, []).append(f"{schema.table_id}.{column.name} {spelled(column.type)}")
        left_out += [f"{schema.table_id}.{name}" for name in columns_left_out(schema, unsupported)]
    for limit, columns in refused.items():
        advice = "Set unsupported=text in the sink's URI to hold them as text, or leave the tables out with --tables."
        yield Check("column types", CheckState.FAILED, f"{limit} These tables will stop: {', '.join(columns)}.", advice)
    if not refused:
        yield Check("column types", CheckState.OK, "DuckDB has a type for every column")
    if left_out:
        detail = f"DuckDB cannot compute these virtual columns, so they will be left out: {', '.join(left_out)}."
        yield Check("generated columns", CheckState.WARNING, detail)


def _in_file(
    database: Database, ledger: SqlLedger, pipeline: str, tables: Sequence[SourceTable], unsupported: UnsupportedPolicy
) -> list[Check]:
    by_name = {(folded_name(t.schema.table_id.database), folded_name(t.schema.table_id.table)): t for t in tables}
    try:
        return _checks(database, ledger, pipeline, by_name, unsupported)
    except HeadraceError as error:  # another process has opened the file meanwhile
        return [Check("tables", CheckState.FAILED, error.message, error.hint)]


def _checks(database: Database, ledger: SqlLedger, pipeline: str, by_name: _Tables, unsupported: UnsupportedPolicy) -> list[Check]:
    with database.reading() as session:
        if session is None:
            return []
        state = ledger.load(session, pipeline)
        targets = find_tables(session, {table.schema.table_id for table in by_name.values()})
        keys = list(_unique_keys(session, by_name)) or [Check("unique keys", CheckState.OK, _NO_KEYS)]
        writers = list(_other_writers(session, ledger, pipeline, by_name))
        return [
            *missing_tables(state, by_name.values(), targets),
            *_other_types(targets, by_name.values(), state.tables if state else (), unsupported),
            *keys,
            *(writers or [Check("other writers", CheckState.OK, "no other pipeline")]),
        ]


def _other_types(
    targets: Mapping[TableId, TargetTable],
    tables: Collection[SourceTable],
    followed: Collection[TableId],
    unsupported: UnsupportedPolicy,
) -> Iterator[Check]:
    """Existing columns of a type other than the source's.

    A CREATE does not take over a table with such a column. For tables that are already ``followed``, some columns may not hold
    every value. DuckDB does not keep the length of a VARCHAR.
    """
    for schema in (table.schema for table in tables if table.schema.table_id in targets):
        target = targets[schema.table_id]
        for column in schema.row_columns:
            found = target.find(column.name)
            try:
                given = duckdb_type(column.type, unsupported)
            except UnsupportedTypeError:
                continue  # already reported
            if found is None or found[1] == given or (schema.table_id in followed and _holds(found[1], given)):
                continue
            named = f"{quoted(target.table_id.database)}.{quoted(target.table_id.table)}"
            stops = "at the first value that does not fit"
            if schema.table_id not in followed:
                stops = "at its CREATE, which takes over only columns of the same type"
            place = f"{schema.table_id}, column {column.name}: the column in the DuckDB file is {found[1]}"
            advice = f"Run ALTER TABLE {named} ALTER {quoted(found[0])} TYPE {given}; in the DuckDB file."
            yield Check(
                "types", CheckState.WARNING, f"{place}, the source's values are {given}: the table will stop {stops}.", advice
            )


def _holds(held: str, given: str) -> bool:
    """Whether a column of type ``held`` can hold every value of type ``given`` unchanged."""
    if held in (given, "JSON") or (held == "VARCHAR" and given != "BLOB"):
        return True
    if held in INTEGER_TYPES and given in INTEGER_TYPES:
        (low, high), (held_low, held_high) = INTEGER_TYPES[given], INTEGER_TYPES[held]
        return held_low <= low and high <= held_high
    numbers = [_DECIMAL.fullmatch(name) for name in (held, given)]
    if all(numbers):
        (digits, scale), (of_given, given_scale) = ((int(n[1]), int(n[2])) for n in numbers if n is not None)
        return digits - scale >= of_given - given_scale and scale >= given_scale
    return (held, given) == ("DOUBLE", "FLOAT")


def _unique_keys(session: Session, tables: _Tables) -> Iterator[Check]:
    for schema, name, columns in session.execute(
        "SELECT schema_name, table_name, constraint_column_names FROM duckdb_constraints()"
        " WHERE database_name = ? AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')",
        (CATALOG,),
    ):
        table = tables.get((folded_name(str(schema)), folded_name(str(name))))
        names = [str(column) for column in columns] if isinstance(columns, list) else []
        if table is None or table.is_unique(frozenset(folded_name(column) for column in names)):
            continue
        detail = f"{table.schema.table_id} has a unique key over {', '.join(names)}"
        anew = "make the table anew without it"
        if table.keys_told:
            detail += ", which the source lacks: the table will stop at the first rows that share a value."
            yield Check("unique keys", CheckState.FAILED, detail, f"Add the key in the source, or {anew}.")
        else:
            detail += "; the files do not tell whether the source has it."
            yield Check("unique keys", CheckState.WARNING, detail, f"Unless it does, {anew}.")


def _other_writers(session: Session, ledger: SqlLedger, pipeline: str, tables: _Tables) -> Iterator[Check]:
    writers: dict[str, list[str]] = {}
    for other, table_id in ledger.written_by_others(session, pipeline):
        if (folded_name(table_id.database), folded_name(table_id.table)) in tables:
            writers.setdefault(other, []).append(str(table_id))
    for other, shared in sorted(writers.items()):
        yield Check(
            "other writers",
            CheckState.FAILED,
            f"the pipeline {other!r} writes {', '.join(sorted(shared))} too.",
            f"If you mean that pipeline, give --name {shlex.quote(other)}. If you mean another one, leave them out of one of"
            " the two with --tables; if that pipeline is no more, forget it: "
            f"headrace reset --name {shlex.quote(other)}.",
        )
