"""The part that runs in Spark tasks: converts canonical values to DuckDB's types, into Arrow files for the driver to load.

DuckDB itself converts, inside the task and on one thread, so that its casts mean exactly the same as in the target.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.block import KIND, META_COUNT
from headrace.model.containment import contained
from headrace.model.events import RowKind
from headrace.model.letters import Letter
from headrace.model.outcome import Notice, Problem, WriteOutcome
from headrace.model.table import Column, TableId, TableSchema
from headrace.places.work_place import WorkPlace
from headrace.sealed_duckdb import open_duckdb, seal
from headrace.sinks.base import Commits, TableChange, WriterContext
from headrace.sinks.cut_commit import CutCommit
from headrace.sinks.dead_letters import DeadLetters, no_letters_of_bags, row_letters
from headrace.sinks.duckdb.types import DATE_KINDS, UnsupportedPolicy, UnsupportedTypeError, from_canonical, quoted
from headrace.sinks.refused_row import of_source, row_name

DELETES, UPSERTS = "deletes", "upserts"
_KEY = b"headrace$key"
_FORGIVEN = "dates in column {column} that DuckDB cannot hold were written as NULL."


@dataclass(frozen=True)
class ValuePolicies:
    """How to treat values that DuckDB cannot hold: ``zero_dates_null`` turns dates such as 2024-00-00 into NULL.

    ``time_zone`` is that of the source's sessions, for schema changes; empty if not configured.
    """

    unsupported: UnsupportedPolicy = UnsupportedPolicy.ERROR
    zero_dates_null: bool = False
    time_zone: str = ""


@dataclass(frozen=True)
class SpooledFile:
    """The parsed key of a spooled file in the work place."""

    key: str
    version: int
    kind: str
    """:data:`DELETES` (keys; whole rows of a keyless table) or :data:`UPSERTS`."""

    @classmethod
    def parse(cls, key: str) -> SpooledFile:
        version, kind, _ = key.rpartition("/")[2].split(".", 2)
        return cls(key, int(version), kind)


class UnfitValueError(Exception):
    """A value that the target cannot hold. Carries the problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


@dataclass
class SpoolWriter:
    """Writes each table change to files below ``folder`` in the work place. A ``UnitWriter``."""

    work: WorkPlace
    folder: str
    policies: ValuePolicies
    letters: DeadLetters | None = None

    def open(self, context: WriterContext) -> None:
        """There is nothing to connect to and nothing to fence, because only files named by an outcome are loaded."""
        self.letters = context.letters

    def write(self, changes: Iterable[TableChange], commit: CutCommit | None) -> list[WriteOutcome]:
        """Converts and spools. ``commit`` is ignored, because the driver commits with the data."""
        outcomes: list[WriteOutcome] = []
        connection = _opened()
        try:
            for change in changes:
                problems: list[Problem] = []
                with contained(problems.append, change.table_id):
                    outcomes.append(self._spool(change, connection))
                if problems:
                    outcomes.append(WriteOutcome(change.table_id, problem=problems[0]))
                    connection.close()  # after an internal error, DuckDB refuses all further statements on the connection
                    connection = _opened()
        finally:
            connection.close()
        return outcomes

    def commits(self) -> tuple[Commits, ...]:
        """Nothing is committed in tasks."""
        return ()

    def close(self) -> None: ...

    def _spool(self, change: TableChange, connection: Any) -> WriteOutcome:
        deletes, upserts, netted = exact_changes(change)
        notices: list[Notice] = []
        spooled: list[str] = []
        refused: list[Letter] = []
        counts = {DELETES: 0, UPSERTS: 0}
        most = self.letters.most + 1 if self.letters is not None and change.schema.handle_key else 0
        try:
            for kind, rows in ((DELETES, deletes), (UPSERTS, upserts)):
                if rows.num_rows:
                    unfit: dict[int, Problem] = {}
                    converted = convert(rows, change.target_schema, self.policies, connection, notices, unfit, most)
                    refused += row_letters(unfit, rows, change.schema, change.version, change.lo)
                    spooled.append(self._save(converted, change.version, kind, change.target_schema.handle_key))
                    counts[kind] = converted.num_rows
        except UnfitValueError as error:
            problem = of_source(error.problem, change.table_id)
            if self.letters is not None and not most:
                problem = no_letters_of_bags(problem)
            return WriteOutcome(change.table_id, problem=problem)
        if self.letters is not None and (too_many := self.letters.too_many(change.table_id, len(refused))) is not None:
            return WriteOutcome(change.table_id, problem=too_many)
        return WriteOutcome(
            change.table_id,
            counts[UPSERTS],
            counts[DELETES],
            notices=tuple(replace(notice, table_id=change.table_id) for notice in notices),
            spooled=tuple(spooled),
            letters=self.letters.put(refused) if self.letters is not None else (),
            refused=len(refused),
            netted=netted,
            target=change.target,
        )

    def _save(self, rows: pa.Table, version: int, kind: str, key: tuple[str, ...]) -> str:
        rows = rows.replace_schema_metadata({_KEY: json.dumps(key)})
        key_of_file = f"{self.folder}/{version}.{kind}.{uuid.uuid4().hex}.arrow"
        # Not compressed: in a local work place, the driver maps the file, and DuckDB reads it in place.
        with self.work.writing(key_of_file) as file, pa.ipc.new_file(file, rows.schema) as writer:
            writer.write_table(rows)
        return key_of_file


def _opened() -> Any:
    # Large buffers: a column of the rows of one task may be larger than 2 GiB.
    connection = open_duckdb(settings={"threads": "1", "arrow_large_buffer_size": "true"})
    seal(connection)
    return connection


def spooled_key(rows: pa.Table) -> list[str]:
    """The key columns of the table to which spooled rows belong; empty for a keyless table."""
    key: list[str] = json.loads(rows.schema.metadata[_KEY])
    return key


def exact_changes(change: TableChange) -> tuple[pa.Table, pa.Table, int]:
    """Deletes and upserts, with ``ordered`` merged into them, and the number of ordered rows that were overtaken by others.

    DuckDB compares texts byte by byte. So of keys that are only equal elsewhere, the last row of each exact key counts. In a
    keyless table every row counts: old images and deletes are removed, new ones added.
    """
    if change.ordered.num_rows == 0:
        return change.deletes, change.upserts, 0
    key = list(change.target_schema.handle_key)
    ordered = change.ordered.combine_chunks()
    rows = ordered.select(ordered.column_names[META_COUNT:])
    kinds = ordered.column(KIND).to_numpy()
    alive = np.isin(kinds, [kind.value for kind in RowKind if kind.is_upsert])
    if key:
        numbered = rows.select(key).append_column(KIND, pa.array(np.arange(rows.num_rows)))
        last = numbered.group_by(key).aggregate([(KIND, "max")]).column(f"{KIND}_max").to_numpy()
        counts = np.zeros(rows.num_rows, dtype=bool)
        counts[last] = True
    else:
        counts = np.ones(rows.num_rows, dtype=bool)
    gone = rows.filter(pa.array(counts & ~alive)).select(key or rows.column_names)
    there = rows.filter(pa.array(counts & alive))
    return (
        pa.concat_tables([change.deletes, gone]) if change.deletes.num_rows else gone,
        pa.concat_tables([change.upserts, there]) if change.upserts.num_rows else there,
        int((~counts).sum()),
    )


def convert(
    rows: pa.Table,
    schema: TableSchema,
    policies: ValuePolicies,
    connection: Any,
    notices: list[Notice],
    unfit: dict[int, Problem],
    most: int,
) -> pa.Table:
    """The rows in DuckDB's types, without virtual and hidden columns.

    Up to ``most`` rows with a value that DuckDB cannot hold are put into ``unfit`` by their number, and left out. Raises
    UnfitValueError for the first bad value beyond that, or for one that does not belong to a single row.
    """
    columns = [c for c in schema.row_columns if c.name in rows.column_names]
    parts = []
    for column in columns:
        try:
            value = from_canonical(quoted(column.name), column.type, policies.unsupported)
        except UnsupportedTypeError as error:
            raise UnfitValueError(unsupported_problem(schema.table_id, column, error)) from None
        parts.append(f"{value} AS {quoted(column.name)}")
    connection.register("canonical_rows", rows)
    try:
        converted: pa.Table = connection.sql(f"SELECT {', '.join(parts)} FROM canonical_rows").to_arrow_table()
    finally:
        connection.unregister("canonical_rows")
    for column in columns:
        if rows.column(column.name).null_count != converted.column(column.name).null_count:
            if _is_forgiven(schema, column, policies):
                notices.append(Notice(_FORGIVEN.format(column=column.name), schema.table_id))
                continue
            for number in _lost(rows.column(column.name), converted.column(column.name)):
                problem = unfit_problem(
                    schema.table_id,
                    column,
                    str(rows.column(column.name)[number].as_py()),
                    is_key=column.name in schema.handle_key,
                )
                if number not in unfit and len(unfit) >= most:
                    raise UnfitValueError(replace(problem, row=row_name(rows, number, schema.handle_key)))
                unfit.setdefault(number, problem)
    if unfit:
        kept = np.ones(rows.num_rows, dtype=bool)
        kept[list(unfit)] = False
        converted = converted.filter(pa.array(kept))
    return converted


def _is_forgiven(schema: TableSchema, column: Column, policies: ValuePolicies) -> bool:
    """Whether values of the column that DuckDB cannot hold become NULL."""
    return column.type.kind in DATE_KINDS and policies.zero_dates_null and column.name not in schema.handle_key


def _lost(before: pa.ChunkedArray, after: pa.ChunkedArray) -> list[int]:
    """The rows whose value became NULL."""
    lost = pc.and_(pc.is_valid(before), pc.is_null(after))
    return [int(number) for number in np.flatnonzero(lost.to_numpy())]


def unfit_problem(table_id: TableId, column: Column, value: str, *, is_key: bool = False) -> Problem:
    """The problem of a value that the column's DuckDB type cannot hold."""
    hint = ""
    if is_key:  # NULL would be the key of many rows, and no row could be found by it
        hint = "It is part of the key: change it in the source, or leave the table out with --tables."
    elif column.type.kind in DATE_KINDS:
        hint = "Set zero-dates=null in the sink's URI to write such dates as NULL."
    return Problem(table_id, f"DuckDB cannot hold this value of type {column.type}.", column=column.name, value=value, hint=hint)


def unsupported_problem(table_id: TableId, column: Column, error: UnsupportedTypeError) -> Problem:
    """The problem of a column whose type DuckDB lacks."""
    return Problem(table_id, str(error), column=column.name, hint="Set unsupported=text in the sink's URI to hold it as text.")
