"""Removes rows from a table without key: as many as requested of those that equal a given row.

Equal means the same value, whatever the column's collation: text is compared byte by byte. Each distinct row is one DELETE with a
LIMIT, so a table without an index is scanned once for each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pymysql

from headrace.model.advice import SourceAdvice
from headrace.model.outcome import Problem
from headrace.model.table import Column, TableId
from headrace.model.types import CHARACTER_KINDS, TypeKind
from headrace.sinks.base import TableChange
from headrace.sinks.cut_commit import CutCommit
from headrace.sinks.mysql import refusal
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.server_errors import ErrorClass, classify
from headrace.sinks.mysql.text import literals, quote_name
from headrace.sinks.mysql.types import qualified
from headrace.sinks.refused_row import missing_rows

_BY_BYTES = CHARACTER_KINDS | {TypeKind.ENUM, TypeKind.SET, TypeKind.JSON, TypeKind.VECTOR}
_INDEXED = frozenset({TypeKind.CHAR, TypeKind.VARCHAR, TypeKind.VAR_STRING})


def take_away(session: MySqlSession, table_id: TableId, columns: list[Column], rows: pa.Table) -> None:
    """Deletes the rows; a row that is given twice is deleted twice. ``columns`` are those of ``rows``.

    Raises refusal.Refused if the table has fewer of them, after deleting those that it has.
    """
    conditions = row_conditions(rows, columns, json_is_text="MariaDB" in session.version).dictionary_encode()
    _, first, counts = np.unique(conditions.indices.to_numpy(), return_index=True, return_counts=True)
    head = f"DELETE FROM {qualified(table_id)} WHERE "
    missing = 0
    example = -1
    for condition, at, count in zip(conditions.dictionary, first.tolist(), counts.tolist(), strict=True):
        try:
            deleted = session.affect(f"{head}{condition.as_py()} LIMIT {count}".encode())
        except pymysql.err.MySQLError as error:
            if classify(error) is ErrorClass.REFUSED:
                raise refusal.from_error(error, table_id, session) from None
            raise
        if deleted < count:
            missing += count - deleted
            example = at if example < 0 else example
    if missing:
        raise refusal.Refused(missing_rows(table_id, rows.slice(example, 1).to_pylist()[0], missing))


def row_conditions(rows: pa.Table, columns: list[Column], *, json_is_text: bool) -> pa.Array:
    """For each row, the condition that exactly its equals meet. ``json_is_text``: the server keeps JSON as it was written."""
    parts: list[pa.Array | pa.Scalar] = []
    for number, column in enumerate(columns):
        values = literals(rows, number, column)
        for before, after in _comparisons(column, json_is_text=json_is_text):
            parts += [_text(f"{' AND ' if parts else ''}{before}"), values, _text(after)]
    return pc.binary_join_element_wise(*parts, pa.scalar("", pa.large_string()))


def _comparisons(column: Column, *, json_is_text: bool) -> list[tuple[str, str]]:
    """The text around a literal, for each comparison that a column needs."""
    kind, name = column.type.kind, quote_name(column.name)
    as_it_is = (f"{name} <=> ", "")
    if kind is TypeKind.JSON and not json_is_text:
        return [(f"{name} <=> CAST(", " AS JSON)")]
    if kind not in _BY_BYTES:
        return [as_it_is]
    by_bytes = (f"CAST(CONVERT({name} USING utf8mb4) AS BINARY) <=> CAST(", " AS BINARY)")
    return [as_it_is, by_bytes] if kind in _INDEXED else [by_bytes]  # the first may use an index, the second cannot


def _text(text: str) -> pa.Scalar:
    return pa.scalar(text, pa.large_string())


def without_progress(changes: Sequence[TableChange], commit: CutCommit | None, advice: SourceAdvice) -> dict[TableId, Problem]:
    """Problems of tables without key whose repetition could not be detected, so that inserts would be doubled.

    Rows with a commit ts move the checkpoint beyond the one before the cut. Rows without one carry no progress.
    """
    return {
        change.table_id: Problem(
            change.table_id,
            "it has no key and its changes carry no exact commit ts, so a change that is applied twice could not be recognized.",
            hint=f"{advice.exact_commit_ts} Or give the table a primary key, or leave it out with --tables.".removeprefix(" Or "),
        )
        for change in changes
        if not change.schema.handle_key and not _moves(change, commit)
    }


def _moves(change: TableChange, commit: CutCommit | None) -> bool:
    before = commit.checkpoints.get(change.table_id, 0) if commit is not None else 0
    return change.progress is not None and change.progress.checkpoint > before
