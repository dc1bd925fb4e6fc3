"""What changed: row changes (DataChangeEvent) and schema changes (SchemaChangeEvent and its kinds).

The names are Flink CDC's. A :class:`SchemaChange` is what a source hands out: the typed events of one statement at one
commit ts, with the statement itself and the tables it changes and reads.
"""

from __future__ import annotations

import json
import zlib
from base64 import b32encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cached_property
from hashlib import sha256

from headrace.model.outcome import Problem
from headrace.model.place import SourcePlace, file_of
from headrace.model.table import Column, TableId, TableSchema


class RowKind(IntEnum):
    """The kind of one row of a block, as stored in its kind column (int8)."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def is_upsert(self) -> bool:
        return self in (RowKind.INSERT, RowKind.UPDATE_AFTER)


@dataclass(frozen=True)
class DataChangeEvent:
    """One row change, for connectors and user code: the row-wise face of a block. Values are canonical (``model.types``)."""

    table_id: TableId
    commit_ts: int
    before: Mapping[str, object] | None
    after: Mapping[str, object] | None


class Position(StrEnum):
    """Where an added or altered column goes."""

    LAST = "LAST"
    FIRST = "FIRST"
    AFTER = "AFTER"


@dataclass(frozen=True)
class ColumnPosition:
    """``AFTER`` names the column it follows; ``LAST`` also means "where it is" for an altered column."""

    position: Position = Position.LAST
    after: str = ""


@dataclass(frozen=True)
class CreateDatabaseEvent:
    database: str


@dataclass(frozen=True)
class DropDatabaseEvent:
    """``tables`` are the tables and views of it that the pipeline made or adopted: all that may go with it. ``stays`` are those
    that it follows and did not make: they end with it, and stay in the target.

    No source knows them; the engine puts them in right before the change runs.
    """

    database: str
    tables: frozenset[TableId] = frozenset()
    stays: frozenset[TableId] = frozenset()


@dataclass(frozen=True)
class CreateTableEvent:
    """A table comes to be. From a shape-only schema file it means "create it unless it is there"."""

    table_id: TableId
    schema: TableSchema


@dataclass(frozen=True)
class DropTableEvent:
    table_id: TableId


@dataclass(frozen=True)
class TruncateTableEvent:
    table_id: TableId


@dataclass(frozen=True)
class RenameTableEvent:
    table_id: TableId
    new_table_id: TableId


@dataclass(frozen=True)
class AddColumnEvent:
    table_id: TableId
    column: Column
    position: ColumnPosition = field(default_factory=ColumnPosition)


@dataclass(frozen=True)
class DropColumnEvent:
    table_id: TableId
    column_name: str


@dataclass(frozen=True)
class RenameColumnEvent:
    table_id: TableId
    old_name: str
    new_name: str


@dataclass(frozen=True)
class AlterColumnTypeEvent:
    """A column's type, nullability, default or position changes; ``column`` is what it becomes (its name is unchanged)."""

    table_id: TableId
    column: Column
    old_column: Column
    position: ColumnPosition = field(default_factory=ColumnPosition)


@dataclass(frozen=True)
class DeletePartitionRowsEvent:
    """All rows of these partitions go, by DROP PARTITION or TRUNCATE PARTITION; no row events tell of it.

    ``condition`` is a boolean expression in MySQL's SQL over the table's columns that is true exactly for these rows, and
    false or NULL for all others.
    """

    table_id: TableId
    partitions: tuple[str, ...]
    condition: str


@dataclass(frozen=True)
class ExchangePartitionEvent:
    """The rows of a partition and all rows of the table ``other``, of the same shape, change places; no row events tell of it.

    ``condition`` is that of :class:`DeletePartitionRowsEvent`. Rows of ``other`` for which it is not true were let in WITHOUT
    VALIDATION: then no condition tells any more which rows a partition has.
    """

    table_id: TableId
    other: TableId
    partition: str
    condition: str


@dataclass(frozen=True)
class OtherEvent:
    """A change that only carries a statement: indexes, comments, charsets, definitions of partitions, views.

    It also stands for rows that change without row events, where nothing tells which these are.
    """

    table_id: TableId


SchemaChangeEvent = (
    CreateDatabaseEvent
    | DropDatabaseEvent
    | CreateTableEvent
    | DropTableEvent
    | TruncateTableEvent
    | RenameTableEvent
    | AddColumnEvent
    | DropColumnEvent
    | RenameColumnEvent
    | AlterColumnTypeEvent
    | DeletePartitionRowsEvent
    | ExchangePartitionEvent
    | OtherEvent
)


@dataclass(frozen=True)
class SchemaChange:
    """One schema change at ``commit_ts`` (TSO).

    ``statement`` is the source's own text, empty when only a shape was found; ``database`` is the current database for its
    unqualified names. ``changes`` and ``reads`` are the objects it touches (a database is ``TableId(db)``); ``schema`` is the
    shape afterwards of the table that ``table_id`` names, ``None`` for databases and dropped tables. ``origin`` says where in
    the source it was read. ``doubt`` says why only a person can tell what is to be done. ``by_bytes``: the source
    compares texts byte by byte, whatever collations the statement names. ``database_collation`` is the default of the current
    database, empty where no statement told of another one than TiDB's.

    ``unread`` says why the source cannot read now what the change is: ``changes`` are then all tables that it may concern, and wait
    until it can be read, or a person decides. ``has_rows``: there are rows behind it that cannot be read without it.
    ``known_as`` is its identity in the journal where that alone still tells of it, ``named`` where the journal has another one for
    it (``headrace.engine.identities``).
    ``by_shape``: a target makes the table as ``schema`` says, since the table that the statement copies is another one by now.
    ``foreign`` are tables that foreign keys of the statement refer to, and that they may not bind: a target leaves these keys out.
    """

    commit_ts: int
    table_id: TableId
    events: tuple[SchemaChangeEvent, ...]
    statement: str
    database: str
    changes: frozenset[TableId]
    reads: frozenset[TableId] = frozenset()
    schema: TableSchema | None = None
    origin: SourcePlace | None = None
    doubt: str = ""
    by_bytes: bool = False
    database_collation: str = ""
    partitioning: str = ""
    """How the table that ``table_id`` names is partitioned afterwards (``headrace.ddl.partition_text``); empty where it is not,
    where nothing tells it, and for sources that can tell their schema changes again."""
    unread: Problem | None = None
    has_rows: bool = False
    known_as: str = ""
    named: str = ""
    by_shape: bool = False
    foreign: frozenset[TableId] = frozenset()
    own: frozenset[TableId] = frozenset()
    """The pipeline's tables in the target, of a change that drops some: foreign keys of tables beside them may refer to these. The
    engine puts them in right before the change runs, as it does with ``running``."""
    running: frozenset[TableId] = frozenset()
    """Those of ``own`` that the pipeline made or adopted and that run in this cut: only they are altered so that others can go."""

    @property
    def file(self) -> str:
        """The name of the file that it was read in, where there is one."""
        return file_of(self.origin)

    @cached_property
    def identity(self) -> str:
        """The journal's key, which people give for their decisions: stable between runs, and of this very change.

        It has 120 bits of a digest of the statement and the columns that the source tells of after it. Whoever writes the source
        can make no two changes with one identity, so what a person decided of one counts for no other.
        """
        return self.known_as or self.named or f"{self.place}/{self.digest}"

    @property
    def former_identity(self) -> str:
        """The identity that older versions of Headrace gave it: with a checksum of the statement alone."""
        return f"{self.place}/{self.former_digest}"

    @property
    def former_digest(self) -> str:
        """What stands in an identity of older versions for the digest."""
        return f"{zlib.crc32(self.statement.encode()):08x}"

    @cached_property
    def digest(self) -> str:
        """The digest in its identity, unless it has that of an entry in the journal."""
        shape = self.schema.told if self.schema is not None else ""
        content = json.dumps([self.database, self.statement, shape])
        return b32encode(sha256(content.encode()).digest()[:15]).decode().lower()

    @property
    def place(self) -> str:
        """Where the source tells of it: one table's or database's version. Another part of the same statement has another place."""
        return f"{self.commit_ts}/{self.table_id.key}"

    @property
    def is_nobodys(self) -> bool:
        """Whether there are rows behind a change that cannot be read, and nothing tells of which table they are."""
        return self.unread is not None and self.has_rows and not self.table_id.table

    @property
    def touches(self) -> frozenset[TableId]:
        return self.changes | self.reads


_UNREAD = "/* unknown: "


def unread_statement(origin: str) -> str:
    """What stands for the statement of a change that cannot be read: it names the file, and nothing runs it."""
    return f"{_UNREAD}{origin} */"


def is_unread_statement(statement: str) -> bool:
    return statement.startswith(_UNREAD)
