"""Names the row, and its table, that a sink could not write: by its key, because netted rows no longer have a file and line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from headrace.model.outcome import Problem
from headrace.model.table import TableId

_SHOWN = 40


def row_name(rows: pa.Table, number: int, key: Sequence[str]) -> str:
    """The key of a row, as ``id=3, day=2024-05-01``; binary values in hex. Empty without a key."""
    names = [name for name in key if name in rows.column_names]
    return ", ".join(f"{name}={_shown(rows.column(name)[number].as_py())}" for name in names)


def _shown(value: object) -> str:
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def missing_rows(table_id: TableId, example: Mapping[str, object], count: int) -> Problem:
    """The problem of a table without key for which ``count`` rows should be deleted that the target does not hold."""
    shown = ", ".join(f"{name}={_shown(value)}" for name, value in example.items())
    rows = "1 row that the source deleted is" if count == 1 else f"{count} rows that the source deleted are"
    return Problem(
        table_id,
        f"{rows} not in the target. Something else changed the target's table, or it did not begin with the source's rows.",
        value=shown,
        hint="Restore the rows as the source held them, or drop the table and replicate it in a pipeline of its own (--name).",
    )


def of_source(problem: Problem, table_id: TableId) -> Problem:
    """A problem with a target table, as a problem of the source's table. The message names both if they differ."""
    target = problem.table_id
    return (
        problem
        if target == table_id
        else replace(problem, table_id=table_id, message=f"{problem.message} Its table in the target is {target}.")
    )
