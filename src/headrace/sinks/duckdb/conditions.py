"""Whether the file's tables keep the conditions under which the order of writes does not matter (docs/guarantees.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.errors import HeadraceError
from headrace.model.progress import TableStatus
from headrace.model.table import SourceTable
from headrace.sinks.base import Check, CheckState
from headrace.sinks.duckdb.database import CATALOG, Database, Session
from headrace.sinks.duckdb.types import literal
from headrace.sinks.sql_ledger import DUCKDB, SqlLedger

_NO_KEYS = "the target has none that the source lacks"
_Tables = dict[tuple[str, str], SourceTable]


def check_tables(database: Database, pipeline: str, tables: Sequence[SourceTable]) -> list[Check]:
    """See ``DataSink.check_tables``."""
    by_name = {(t.schema.table_id.database.casefold(), t.schema.table_id.table.casefold()): t for t in tables}
    try:
        return _checks(database, pipeline, by_name)
    except HeadraceError as error:  # another process has the file meanwhile
        return [Check("tables", CheckState.FAILED, error.message, error.hint)]


def _checks(database: Database, pipeline: str, by_name: _Tables) -> list[Check]:
    with database.reading() as session:
        if session is None:
            return []
        keys = list(_unique_keys(session, by_name)) or [Check("unique keys", CheckState.OK, _NO_KEYS)]
        writers = list(_other_writers(session, pipeline, by_name)) or [Check("other writers", CheckState.OK, "no other pipeline")]
        return keys + writers


def _unique_keys(session: Session, tables: _Tables) -> Iterator[Check]:
    for schema, name, columns in session.execute(
        "SELECT schema_name, table_name, constraint_column_names FROM duckdb_constraints()"
        " WHERE database_name = ? AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')",
        (CATALOG,),
    ):
        table = tables.get((str(schema).casefold(), str(name).casefold()))
        names = [str(column) for column in columns] if isinstance(columns, list) else []
        if table is None or table.is_unique(frozenset(column.casefold() for column in names)):
            continue
        detail = f"{table.schema.table_id} has a unique key over {', '.join(names)}"
        anew = "make the table anew without it"
        if table.keys_told:
            detail += ", which the source lacks: the table will stop at the first rows that share a value."
            yield Check("unique keys", CheckState.FAILED, detail, f"Add the key in the source, or {anew}.")
        else:
            detail += "; the files do not tell whether the source has it."
            yield Check("unique keys", CheckState.WARNING, detail, f"Unless it does, {anew}.")


def _other_writers(session: Session, pipeline: str, tables: _Tables) -> Iterator[Check]:
    ledger = SqlLedger(DUCKDB)
    if not ledger.exists(session):
        return
    pipelines = ledger.table("pipelines")
    writers: dict[str, list[str]] = {}
    for other, schema, name in session.execute(
        f"SELECT pipeline, database_name, table_name FROM {ledger.table('tables')} JOIN {pipelines} USING (pipeline)"
        " WHERE pipeline <> ? AND status <> ?",
        (pipeline, str(TableStatus.GONE)),
    ):
        if (str(schema).casefold(), str(name).casefold()) in tables:
            writers.setdefault(str(other), []).append(f"{schema}.{name}")
    for other, shared in sorted(writers.items()):
        forget = f"DELETE FROM {pipelines} WHERE pipeline = {literal(other)}"
        yield Check(
            "other writers",
            CheckState.FAILED,
            f"the pipeline {other!r} writes {', '.join(sorted(shared))} too.",
            f"Leave them out of one of the two with --tables; if that pipeline is no more, run {forget}; in the target.",
        )
