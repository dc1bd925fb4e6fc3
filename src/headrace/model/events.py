"""Row changes (DataChangeEvent) and schema changes (SchemaChangeEvent and its kinds).

The names are those of Flink CDC. A source provides each schema change as a :class:`SchemaChange`: the typed events of one statement
at one commit ts, with the statement itself and the tables that it changes and reads.
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
from headrace.model.tso import tso_to_ms


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
    """One row change, for connectors and user code; a block holds such rows in columns. Values are canonical (``model.types``)."""

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
    """DROP DATABASE. A source leaves ``tables`` and ``stays`` empty; the engine fills them in right before the change runs."""

    database: str
    tables: frozenset[TableId] = frozenset()
    """The tables and views of the database that the pipeline created or adopted. Only these may be dropped with it."""
    stays: frozenset[TableId] = frozenset()
    """The tables of the database that the pipeline follows and did not create. For the pipeline they end with the database, but
    they stay in the target."""


@dataclass(frozen=True)
class CreateTableEvent:
    """CREATE TABLE. From a schema file that has only a shape it means "create the table unless it exists"."""

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
    """DROP PARTITION or TRUNCATE PARTITION deletes all rows of these partitions. There are no row events for these rows.

    ``condition`` is a boolean expression in MySQL's SQL over the table's columns. It is true exactly for these rows, and false or
    NULL for all others.
    """

    table_id: TableId
    partitions: tuple[str, ...]
    condition: str


@dataclass(frozen=True)
class ExchangePartitionEvent:
    """EXCHANGE PARTITION swaps the rows of a partition with all rows of the table ``other``, which has the same shape.

    There are no row events for these rows. ``condition`` is as in :class:`DeletePartitionRowsEvent`. Rows of ``other`` for which it
    is not true were admitted WITHOUT VALIDATION; after that, no condition describes which rows a partition has.
    """

    table_id: TableId
    other: TableId
    partition: str
    condition: str


@dataclass(frozen=True)
class OtherEvent:
    """A change that has only a statement: indexes, comments, charsets, definitions of partitions, views.

    It also stands for rows that change without row events, if it is unknown which rows these are.
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
    """One schema change. In ``changes`` and ``reads``, ``TableId(db)`` stands for a database."""

    commit_ts: int
    """TSO."""
    table_id: TableId
    events: tuple[SchemaChangeEvent, ...]
    statement: str
    """The source's own text; empty if only a shape was found."""
    database: str
    """The current database for the statement's unqualified names."""
    changes: frozenset[TableId]
    """The objects that the statement changes."""
    reads: frozenset[TableId] = frozenset()
    """The objects that the statement reads."""
    schema: TableSchema | None = None
    """The shape, after the change, of the table that ``table_id`` names; ``None`` for databases and dropped tables."""
    origin: SourcePlace | None = None
    """Where in the source the change was read."""
    doubt: str = ""
    """Why only a person can decide what to do instead; empty if there is no doubt."""
    asks: str = ""
    """Why a person must approve it before it runs; empty if it needs no approval."""
    unexplained: str = ""
    """How the table's shape differs from the one before beyond what the statement says, as a clause. Another schema change of the
    table is then missing from the source. Empty if the statement explains the shape, or no shape before is known."""
    by_bytes: bool = False
    """Whether the source compares texts byte by byte, whatever collations the statement names."""
    database_collation: str = ""
    """The default collation of the current database; empty if no statement named one other than TiDB's default."""
    partitioning: str = ""
    """How the table that ``table_id`` names is partitioned afterwards (``headrace.ddl.partition_text``). Empty if the table is not
    partitioned, if this is unknown, and for sources that can provide their schema changes again."""
    collation: str = ""
    """The default collation of the table that ``table_id`` names, afterwards. Empty if no statement named one, and for sources that
    can provide their schema changes again."""
    unread: Problem | None = None
    """Why the source cannot read the change now. ``changes`` are then all tables that the change may concern. They wait until the
    change can be read, or a person decides."""
    has_rows: bool = False
    """Whether there are rows after the change that cannot be read without it."""
    known_as: str = ""
    """The change's identity in the journal, if only the journal still records the change."""
    named: str = ""
    """The change's identity in the journal, if it differs from the computed one (``headrace.engine.identities``)."""
    by_shape: bool = False
    """Whether a target creates the table from ``schema``, because the table that the statement copies is a different one by now."""
    foreign: frozenset[TableId] = frozenset()
    """Tables that foreign keys of the statement refer to but may not bind. A target leaves these keys out."""
    own: frozenset[TableId] = frozenset()
    """For a change that drops tables: the pipeline's tables in the target, because foreign keys of other tables may refer to the
    dropped ones. The engine fills in ``own`` and ``running`` right before the change runs."""
    running: frozenset[TableId] = frozenset()
    """The tables of ``own`` that the pipeline created or adopted and that run in this cut. Only these are altered so that other
    tables can be dropped."""
    unchanged: frozenset[TableId] = frozenset()
    """Tables that the statement drops or creates as views, and the other way round: the source left them as they were.
    ``events`` lack them. The engine fills this in right before the change runs."""
    ran_ms: int | None = None
    """When the source ran the statement (ms since 1970); ``None`` where the commit ts tells it."""

    @property
    def time_ms(self) -> int:
        """When the source ran the statement (ms since 1970): existing rows get defaults of that time."""
        return tso_to_ms(self.commit_ts) if self.ran_ms is None else self.ran_ms

    @property
    def file(self) -> str:
        """The name of the file in which the change was read; empty if there is none."""
        return file_of(self.origin)

    @cached_property
    def identity(self) -> str:
        """The change's key in the journal, which people use for their decisions. It is stable between runs and unique.

        It contains 120 bits of a digest of the statement and of the columns that the source reports after it. So even a malicious
        writer of the source cannot create two changes with one identity, and a decision about one change applies to no other.
        """
        return self.known_as or self.named or f"{self.place}/{self.digest}"

    @property
    def former_identity(self) -> str:
        """The identity that older versions of Headrace gave the change: it contains a checksum of the statement only."""
        return f"{self.place}/{self.former_digest}"

    @property
    def former_digest(self) -> str:
        """The part of ``former_identity`` in place of the digest: the CRC-32 of the statement in hex."""
        return f"{zlib.crc32(self.statement.encode()):08x}"

    @cached_property
    def digest(self) -> str:
        """The digest in ``identity``, unless ``known_as`` or ``named`` gives the identity."""
        shape = self.schema.told if self.schema is not None else ""
        content = json.dumps([self.database, self.statement, shape])
        return b32encode(sha256(content.encode()).digest()[:15]).decode().lower()

    @property
    def place(self) -> str:
        """The version of a table or database that the change belongs to. Each part of one statement has its own place."""
        return f"{self.commit_ts}/{self.table_id.key}"

    @property
    def is_nobodys(self) -> bool:
        """Whether the change cannot be read and is followed by rows whose table is unknown."""
        return self.unread is not None and self.has_rows and not self.table_id.table

    @property
    def touches(self) -> frozenset[TableId]:
        return self.changes | self.reads


_UNREAD = "/* unknown: "


def unread_statement(origin: str) -> str:
    """The placeholder for the statement of a change that cannot be read. It names the file and is never run."""
    return f"{_UNREAD}{origin} */"


def is_unread_statement(statement: str) -> bool:
    return statement.startswith(_UNREAD)
