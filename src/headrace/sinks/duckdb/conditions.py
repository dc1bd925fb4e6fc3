"""Whether DuckDB has what the source's tables need, and keeps the conditions under which the order of writes does not matter."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from headrace.errors import HeadraceError
from headrace.model.table import SourceTable, folded_name
from headrace.sinks.base import Check, CheckState
from headrace.sinks.duckdb.catalog import find_tables
from headrace.sinks.duckdb.database import CATALOG, Database, Session
from headrace.sinks.duckdb.generated import columns_left_out
from headrace.sinks.duckdb.types import UnsupportedPolicy, UnsupportedTypeError, duckdb_type, spelled
from headrace.sinks.missing_tables import missing_tables
from headrace.sinks.sql_ledger import SqlLedger

_NO_KEYS = "the target has none that the source lacks"
_Tables = dict[tuple[str, str], SourceTable]


def check_tables(
    database: Database, ledger: SqlLedger, pipeline: str, tables: Sequence[SourceTable], unsupported: UnsupportedPolicy
) -> list[Check]:
    """See ``DataSink.check_tables``."""
    return [*_types(tables, unsupported), *_in_file(database, ledger, pipeline, tables)]


def _types(tables: Sequence[SourceTable], unsupported: UnsupportedPolicy) -> Iterator[Check]:
    """What DuckDB does not have: of all tables at once, so that nobody meets it table by table in a run."""
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


def _in_file(database: Database, ledger: SqlLedger, pipeline: str, tables: Sequence[SourceTable]) -> list[Check]:
    by_name = {(folded_name(t.schema.table_id.database), folded_name(t.schema.table_id.table)): t for t in tables}
    try:
        return _checks(database, ledger, pipeline, by_name)
    except HeadraceError as error:  # another process has the file meanwhile
        return [Check("tables", CheckState.FAILED, error.message, error.hint)]


def _checks(database: Database, ledger: SqlLedger, pipeline: str, by_name: _Tables) -> list[Check]:
    with database.reading() as session:
        if session is None:
            return []
        state = ledger.load(session, pipeline) if ledger.exists(session) else None
        targets = find_tables(session, {table.schema.table_id for table in by_name.values()})
        keys = list(_unique_keys(session, by_name)) or [Check("unique keys", CheckState.OK, _NO_KEYS)]
        writers = list(_other_writers(session, ledger, pipeline, by_name))
        return [
            *missing_tables(state, by_name.values(), targets),
            *keys,
            *(writers or [Check("other writers", CheckState.OK, "no other pipeline")]),
        ]


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
            "Leave them out of one of the two with --tables; if that pipeline is no more, forget it: "
            f"headrace reset --name {shlex.quote(other)}.",
        )
