"""The SQL ledger's relation of shapes: (table, incarnation, version, shape). Only ledgers of pipelines that need it have it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.model.ledger import ShapeKey, TableShape
from headrace.model.shape_text import kept_shape_from_text, kept_shape_to_text
from headrace.sinks.base import LedgerPart
from headrace.sinks.sql_dialect import LedgerDialect, SqlSession, integer
from headrace.sinks.sql_rows import equal

_KEY = ("pipeline", "database_name", "table_name", "incarnation", "version")


@dataclass(frozen=True)
class ShapeRows:
    """The statements for shapes. ``place`` gives the qualified name of one of the ledger's tables."""

    dialect: LedgerDialect
    place: Callable[[str], str]

    def layout(self) -> dict[str, tuple[str, str]]:
        """Table name -> (columns, primary key)."""
        name, number = self.dialect.name_type, "BIGINT NOT NULL"
        columns = (
            f"pipeline {name} NOT NULL, database_name {name} NOT NULL, table_name {name} NOT NULL, incarnation {number},"
            f" version {number}, shape {self.dialect.text_type} NOT NULL"
        )
        return {LedgerPart.SHAPES: (columns, ", ".join(_KEY))}

    def load(self, session: SqlSession, pipeline: str) -> dict[ShapeKey, TableShape]:
        """All shapes of a pipeline. Raises DefinitionError for one that a later version of Headrace wrote."""
        rows = session.execute(
            f"SELECT incarnation, version, shape FROM {self.place(LedgerPart.SHAPES)} WHERE pipeline = ?", (pipeline,)
        )
        shapes = (kept_shape_from_text(integer(born), integer(version), str(text)) for born, version, text in rows)
        return {shape.key: shape for shape in shapes}

    def put(self, session: SqlSession, pipeline: str, shape: TableShape) -> None:
        """Writes a shape in place of the one with the same key."""
        self.forget(session, pipeline, shape.key)
        session.execute(
            f"INSERT INTO {self.place(LedgerPart.SHAPES)} ({', '.join(_KEY)}, shape) VALUES (?, ?, ?, ?, ?, ?)",
            (*_values(pipeline, shape.key), kept_shape_to_text(shape)),
        )

    def forget(self, session: SqlSession, pipeline: str, key: ShapeKey) -> None:
        """Removes a shape."""
        session.execute(f"DELETE FROM {self.place(LedgerPart.SHAPES)} WHERE {equal(_KEY)}", _values(pipeline, key))


def _values(pipeline: str, key: ShapeKey) -> tuple[object, ...]:
    return pipeline, key.table_id.database, key.table_id.table, key.incarnation, key.version
