"""The SQL ledger's rows of tables.

Most tables are written to a target table of the same name; their rows are in the relation ``tables``. Rows of the others are in
``routed_tables``, whose key has both names. It is a separate relation because the key of ``tables`` cannot be extended in existing
ledgers: TiDB cannot change a clustered primary key, and a login may lack the right to alter a prepared ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from headrace.model.ledger import TableProgress, TableStatus
from headrace.model.table import TableId
from headrace.sinks.base import LedgerPart
from headrace.sinks.sql_dialect import LedgerDialect, SqlSession, integer
from headrace.sinks.sql_rows import equal, put_rows

TABLES = "tables"
_ADDED = ("again", "let_in", "lacks", "loaded_ts")
"""Columns of the table ``tables`` that a later version of Headrace added."""
_SOURCE = ("database_name", "table_name")
_TARGET = ("target_database", "target_table")
_VALUES = ("checkpoint_ts", "after_schema_change", "status", "reason", "incarnation", *_ADDED)


@dataclass(frozen=True)
class TableRows:
    """The statements for the rows of tables. ``place`` gives the qualified name of one of the ledger's tables."""

    dialect: LedgerDialect
    place: Callable[[str], str]

    @property
    def added_columns(self) -> dict[str, str]:
        """The later columns of the table ``tables``, which an older Headrace did not create, each with its type."""
        number = "BIGINT DEFAULT 0"
        return {"again": number, "let_in": number, "lacks": self.dialect.text_type, "loaded_ts": number}

    def layout(self) -> dict[str, tuple[str, str]]:
        """Table name -> (columns, primary key)."""
        name, text, number = self.dialect.name_type, self.dialect.text_type, "BIGINT NOT NULL"
        values = (
            f"checkpoint_ts {number}, after_schema_change {number}, status {name} NOT NULL, reason {text} NOT NULL,"
            f" incarnation {number}, " + ", ".join(f"{column} {kind}" for column, kind in self.added_columns.items())
        )
        pair = ", ".join(f"{column} {self.dialect.identifier_type} NOT NULL" for column in (*_SOURCE, *_TARGET))
        return {
            TABLES: (
                f"pipeline {name} NOT NULL, database_name {name} NOT NULL, table_name {name} NOT NULL, {values}",
                ", ".join(("pipeline", *_SOURCE)),
            ),
            LedgerPart.ROUTED_TABLES: (
                f"pipeline {name} NOT NULL, {pair}, {values}",
                ", ".join(("pipeline", *_SOURCE, *_TARGET)),
            ),
        }

    def load(self, session: SqlSession, pipeline: str, present: Mapping[str, Collection[str]]) -> Iterator[TableProgress]:
        """All rows of a pipeline. ``present`` are the existing ledger tables with their columns."""
        for relation in (TABLES, LedgerPart.ROUTED_TABLES):
            if relation not in present:
                continue
            target = [name if name in present[relation] else f"'' AS {name}" for name in _TARGET]
            values = [name if name in present[relation] else f"NULL AS {name}" for name in _VALUES]
            columns = ", ".join((*_SOURCE, *target, *values))
            for row in session.execute(f"SELECT {columns} FROM {self.place(relation)} WHERE pipeline = ?", (pipeline,)):
                database, table, target_database, target_table, checkpoint, after, status, reason, incarnation, *added = row
                again, let_in, lacks, loaded = added
                yield TableProgress(
                    table_id=TableId(str(database), str(table)),
                    checkpoint=integer(checkpoint),
                    after=bool(after),
                    status=TableStatus(str(status)),
                    reason=str(reason),
                    incarnation=integer(incarnation),
                    again=bool(again),
                    let_in=bool(let_in),
                    target=TableId(str(target_database), str(target_table)) if relation == LedgerPart.ROUTED_TABLES else None,
                    lacks=str(lacks or ""),
                    loaded=integer(loaded or 0),
                )

    def written_by_others(self, session: SqlSession, pipeline: str, present: Collection[str]) -> Iterator[tuple[str, TableId]]:
        """The target tables to which other pipelines write, each with its pipeline."""
        idle = (str(TableStatus.GONE), str(TableStatus.EXCLUDED), str(TableStatus.NOT_FOLLOWED))
        for relation, columns in ((TABLES, _SOURCE), (LedgerPart.ROUTED_TABLES, _TARGET)):
            if relation not in present:
                continue
            for other, database, table in session.execute(
                f"SELECT pipeline, {', '.join(columns)} FROM {self.place(relation)} JOIN {self.place('pipelines')} USING (pipeline)"
                " WHERE pipeline <> ? AND status NOT IN (?, ?, ?)",
                (pipeline, *idle),
            ):
                yield str(other), TableId(str(database), str(table))

    def put(self, session: SqlSession, pipeline: str, rows: Iterable[TableProgress]) -> None:
        """Writes rows, each in place of the row with the same pair of tables."""
        found: dict[tuple[str, tuple[str, ...]], list[tuple[object, ...]]] = {}
        for row in rows:
            relation, columns, key = _key(pipeline, *row.pair)
            added = (int(row.again), int(row.let_in), row.lacks, row.loaded)
            values = (row.checkpoint, int(row.after), str(row.status), row.reason, row.incarnation, *added)
            found.setdefault((relation, columns), []).append((*key, *values))
        for (relation, columns), of_relation in found.items():
            put_rows(session, self.dialect, self.place(relation), (*columns, *_VALUES), len(columns), of_relation)

    def lock(self, session: SqlSession, pipeline: str, table_id: TableId, target: TableId) -> int | None:
        """Locks the row of a pair of tables and returns its checkpoint (TSO); ``None`` if there is none."""
        relation, columns, key = _key(pipeline, table_id, target)
        rows = session.execute(
            f"SELECT checkpoint_ts FROM {self.place(relation)} WHERE {equal(columns)}{self.dialect.for_update}", key
        )
        return integer(rows[0][0]) if rows else None


def _key(pipeline: str, table_id: TableId, target: TableId) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The relation that holds the row of a pair, with the columns and values of its key."""
    key = (pipeline, table_id.database, table_id.table)
    if target == table_id:
        return TABLES, ("pipeline", *_SOURCE), key
    return LedgerPart.ROUTED_TABLES, ("pipeline", *_SOURCE, *_TARGET), (*key, target.database, target.table)
