"""What the tests of the MySQL sink share: a target with a ledger, and writers driven without Spark, after a pickle."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from headrace.model.block import block_schema
from headrace.model.outcome import WriteOutcome
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind, arrow_type
from headrace.sinks.base import TableChange, WriterContext, WriteReport
from headrace.sinks.cut_commit import CutCommit
from headrace.sinks.mysql import MySqlSink, open_sink
from headrace.sinks.mysql.settings import read_settings
from headrace.sinks.mysql.writer import MySqlWriter
from servers import MariaDb

PIPELINE = "p"


def column(name: str, kind: str, **more: object) -> Column:
    unsigned = bool(more.pop("unsigned", False))
    elements = tuple(more.pop("elements", ()))
    length, scale = more.pop("length", None), more.pop("scale", None)
    return Column(name, ColumnType(TypeKind(kind), unsigned, length, scale, elements), **more)


def table(name: str, columns: Sequence[Column], key: Sequence[str] = ("id",)) -> TableSchema:
    return TableSchema(TableId("shop", name), tuple(columns), tuple(key))


def rows_of(columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> pa.Table:
    arrays = [pa.array([row[i] for row in rows], arrow_type(c.type)) for i, c in enumerate(columns)]
    return pa.table(arrays, names=[c.name for c in columns])


def change(
    schema: TableSchema,
    upserts: Sequence[Sequence[object]] = (),
    deletes: Sequence[Sequence[object]] = (),
    ordered: Sequence[Sequence[object]] = (),
) -> TableChange:
    """``ordered`` rows begin with kind, commit ts and seq."""
    keys = [schema.column(name) for name in schema.handle_key]
    layout = block_schema(schema.row_columns)
    arrays = [pa.array([row[i] for row in ordered], field.type) for i, field in enumerate(layout)]
    return TableChange(
        schema.table_id,
        1,
        schema,
        rows_of(keys, deletes),
        rows_of(schema.row_columns, upserts),
        pa.table(arrays, schema=layout),
    )


@dataclass
class Target:
    """A server with an acquired ledger."""

    server: MariaDb
    uri: str
    sink: MySqlSink
    epoch: int = 0
    attempt: int = 0

    def execute(self, *statements: str) -> list[tuple[object, ...]]:
        with self.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def writer(self, slot: int = 0, attempt: int | None = None, epoch: int | None = None) -> MySqlWriter:
        epoch = epoch or self.epoch
        claim = replace(self.sink.ledger.own_claim(), epoch=epoch)
        writer: MySqlWriter = pickle.loads(pickle.dumps(MySqlWriter(read_settings(self.uri), claim)))
        context = WriterContext(PIPELINE, epoch, self.attempt if attempt is None else attempt, slot)
        writer.open(pickle.loads(pickle.dumps(context)))
        return writer

    def write(self, *changes: TableChange, commit: CutCommit | None = None, slot: int = 0) -> list[WriteOutcome]:
        writer = self.writer(slot)
        try:
            outcomes = writer.write(changes, commit)
        finally:
            writer.close()
        if commit is not None:
            self.sink.ledger.wrote(WriteReport(committed=True))
        return outcomes


def acquired(server: MariaDb, **params: object) -> Target:
    uri = server.uri(**params)
    sink = open_sink(uri)
    target = Target(server, uri, sink)
    target.execute("CREATE DATABASE shop DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    target.epoch = sink.ledger.acquire(PIPELINE, "source", "", 0).epoch
    return target
