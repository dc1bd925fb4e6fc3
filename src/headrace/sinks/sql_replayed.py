"""The SQL ledger's relation of replayed transactions: those that are executed beyond the checkpoints of their tables.

A transaction of the source is a table and a commit ts. A transaction of the target executes some of them and has one row here that
names them all, so a run that ends in the middle of a cut leaves none to execute twice. Only ledgers of sinks that replay have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from headrace.model.table import TableId
from headrace.sinks.base import LedgerPart
from headrace.sinks.sql_dialect import LedgerDialect, SqlSession, integer
from headrace.sinks.sql_rows import equal

_TABLE = ("pipeline", "database_name", "table_name")
_MOST = 1 << 10
"""So many transactions are in one row, at most: a row then has about 20 KiB."""


@dataclass(frozen=True)
class ReplayedRows:
    """The statements for replayed transactions. ``place`` gives the qualified name of one of the ledger's tables."""

    dialect: LedgerDialect
    place: Callable[[str], str]

    def layout(self) -> dict[str, tuple[str, str]]:
        """Table name -> (columns, primary key). ``others`` are the commit ts behind ``first_ts``, as differences from it."""
        name, number = self.dialect.name_type, "BIGINT NOT NULL"
        columns = (
            f"pipeline {name} NOT NULL, database_name {name} NOT NULL, table_name {name} NOT NULL, first_ts {number},"
            f" last_ts {number}, others {self.dialect.text_type} NOT NULL"
        )
        return {LedgerPart.REPLAYED: (columns, ", ".join((*_TABLE, "first_ts")))}

    def put(self, session: SqlSession, pipeline: str, table_id: TableId, commit_ts: Iterable[int]) -> None:
        """Records transactions of one of the source's tables (TSO), each of which was not recorded before."""
        for statement, parameters in self.records(pipeline, table_id, commit_ts):
            session.execute(statement, parameters)

    def records(self, pipeline: str, table_id: TableId, commit_ts: Iterable[int]) -> Iterator[tuple[str, tuple[object, ...]]]:
        """The statements of :meth:`put`, each with its parameters. Each inserts one row."""
        found = sorted(commit_ts)
        for first in range(0, len(found), _MOST):
            some = found[first : first + _MOST]
            others = ",".join(str(ts - some[0]) for ts in some[1:])
            yield (
                f"INSERT INTO {self.place(LedgerPart.REPLAYED)} ({', '.join(_TABLE)}, first_ts, last_ts, others)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (*_key(pipeline, table_id), some[0], some[-1], others),
            )

    def since(self, session: SqlSession, pipeline: str, table_id: TableId, lo: int) -> frozenset[int]:
        """The recorded transactions of a table from ``lo`` (TSO) on: at a schema change, a row may have its very commit ts."""
        rows = session.execute(
            f"SELECT first_ts, others FROM {self.place(LedgerPart.REPLAYED)} WHERE {equal(_TABLE)} AND last_ts >= ?",
            (*_key(pipeline, table_id), lo),
        )
        found: set[int] = set()
        for first_ts, others in rows:
            first = integer(first_ts)
            found.update((first, *(first + int(other) for other in str(others).split(",") if other)))
        return frozenset(ts for ts in found if ts >= lo)

    def sweep(self, session: SqlSession, pipeline: str, table_id: TableId, checkpoint: int) -> None:
        """Removes what lies before the table's checkpoint (TSO)."""
        session.execute(
            f"DELETE FROM {self.place(LedgerPart.REPLAYED)} WHERE {equal(_TABLE)} AND last_ts < ?",
            (*_key(pipeline, table_id), checkpoint),
        )

    def forget(self, session: SqlSession, pipeline: str, tables: Iterable[TableId]) -> None:
        """Removes all of these tables."""
        for table_id in tables:
            session.execute(f"DELETE FROM {self.place(LedgerPart.REPLAYED)} WHERE {equal(_TABLE)}", _key(pipeline, table_id))


def _key(pipeline: str, table_id: TableId) -> tuple[str, str, str]:
    return pipeline, table_id.database, table_id.table
