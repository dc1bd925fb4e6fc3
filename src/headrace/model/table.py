"""Names and shapes of tables."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from headrace.model.types import ColumnType


def folded_name(name: str) -> str:
    """The name of a database, table, column or index in the form that TiDB compares: each character in lower case by itself.

    ``str.casefold`` would make ``straße`` and ``strasse`` the same name.
    """
    return name.lower() if name.isascii() else "".join(character.lower()[0] for character in name)


SYSTEM_DATABASES = frozenset({"information_schema", "metrics_schema", "mysql", "performance_schema", "sys"})
"""The own databases of MySQL, MariaDB and TiDB, in lower case. Only TiDB has metrics_schema."""
_LONGEST_NAME = 64
_KEY = re.compile(r"`(?P<length>[0-9]{1,2})`(?P<names>.*)", re.DOTALL)


def is_possible_name(name: str) -> bool:
    """Whether a database or table can have this name. TiDB refuses all others, as MySQL and MariaDB do.

    Ledgers rely on this: their columns hold 64 characters, and MySQL and MariaDB compare ``t`` and ``t `` as equal. So a source
    accepts no other name for a table.
    """
    return len(name) <= _LONGEST_NAME and not name.endswith(" ") and is_possible_text(name)


def is_possible_text(name: str) -> bool:
    """Whether the characters of a name are allowed, for a column, an index or a partition too.

    No server accepts an empty name, or U+0000 in a name, even between backquotes (MySQL manual, "Schema Object Names").
    """
    return bool(name) and "\0" not in name


@dataclass(frozen=True, order=True)
class TableId:
    """A table's name. With an empty ``table`` it stands for the database itself, as the object a schema change touches."""

    database: str
    table: str = ""

    @property
    def is_database(self) -> bool:
        return not self.table

    @property
    def folded(self) -> TableId:
        """The folded name. It is equal for names that TiDB treats as the same, because TiDB compares names without case."""
        return TableId(folded_name(self.database), folded_name(self.table))

    @property
    def is_possible(self) -> bool:
        """Whether its non-empty names are possible names (``is_possible_name``)."""
        return all(is_possible_name(name) for name in (self.database, self.table) if name)

    def lies_in(self, database: str) -> bool:
        """Whether it is in the database of that name, or is it. TiDB compares names of databases without case."""
        return folded_name(self.database) == folded_name(database)

    @property
    def key(self) -> str:
        """The name as a unique key. ``str`` is not unique: it is the same for ``a``.``b.c`` and ``a.b``.``c``.

        The key is ``str`` unless a name contains a dot or a backquote. Then the length of the database's name, in backquotes, comes
        before it. Quoted names would be up to twice as long, and columns of ledgers that begin with a key hold 191 characters.
        """
        names = self.database + self.table
        return f"`{len(self.database)}`{self}" if "." in names or "`" in names else str(self)

    @classmethod
    def of_key(cls, key: str) -> TableId:
        """The table or database of a :attr:`key`. A key that was written with ``str`` is split at its first dot."""
        found = _KEY.fullmatch(key)
        if found is None:
            return cls(*key.split(".", 1))
        length = int(found["length"])
        return cls(found["names"][:length], found["names"][length + 1 :])

    @property
    def quoted(self) -> str:
        """The name with each part in backquotes, for messages in which the plain name would be ambiguous."""
        return ".".join(f"`{name.replace('`', '``')}`" for name in (self.database, self.table) if name)

    def is_named(self, name: str) -> bool:
        """Whether ``name`` is the table's name as a person writes it: without backquotes, or with each part in backquotes."""
        return name in (str(self), self.quoted)

    def __str__(self) -> str:
        return f"{self.database}.{self.table}" if self.table else self.database


NOBODYS = TableId("")
"""Stands for the unknown table of a record."""


class Generated(StrEnum):
    """How a generated column is stored. Neither kind is ever written to."""

    VIRTUAL = "VIRTUAL"
    STORED = "STORED"


@dataclass(frozen=True)
class Column:
    """A column of a table.

    ``generated`` and ``expression`` are known only from DDL text.
    """

    name: str
    type: ColumnType
    nullable: bool = True
    primary_key: bool = False
    default: str | None = None
    """The text of the default value as TiDB stores it; ``None`` for no default and for NULL."""
    column_id: str | None = None
    """TiDB's id of the column, which renames do not change. Present only with ``output-column-id``."""
    generated: Generated | None = None
    hidden: bool = False
    """Whether this is the hidden column of an expression index."""
    expression: str = ""
    """The generating expression as the source wrote it."""


@dataclass(frozen=True)
class Index:
    """An index, as DDL text defines it. ``unique`` means that no two rows have the same values in its columns.

    A unique key over prefixes or expressions is not ``unique``. In ``columns`` an empty name stands for an expression.
    """

    name: str
    columns: tuple[str, ...]
    unique: bool = False


@dataclass(frozen=True)
class TableSchema:
    """The shape of a table at one version: columns in order, and the handle key (primary key, else a declared unique key).

    An empty ``handle_key`` means that the table has no usable key. ``indexes`` are the indexes known from DDL text, in order,
    without the primary key. Equality compares the shape, so it does not depend on the version.
    """

    table_id: TableId
    columns: tuple[Column, ...]
    handle_key: tuple[str, ...] = ()
    indexes: tuple[Index, ...] = ()
    registered: int = field(default=0, compare=False)
    """The id of the schema in a registry that the shape was made from; 0 for a shape that statements made."""
    named_in: str = field(default="", compare=False)
    """The part of the stream whose records have this name, if other tables may have it there; empty if the name is certain."""

    @cached_property
    def told(self) -> str:
        """The columns as the source itself describes them, as JSON text. Its form must never change: identities depend on it.

        It leaves out what is known only from earlier statements, because these may be gone.
        """
        return json.dumps([_told(column) for column in self.columns])

    @property
    def unique_keys(self) -> tuple[Index, ...]:
        return tuple(index for index in self.indexes if index.unique)

    def column(self, name: str) -> Column:
        """The column of that name, compared as TiDB does, without case. Raises ``KeyError``."""
        return self._by_name[folded_name(name)]

    def has_column(self, name: str) -> bool:
        return folded_name(name) in self._by_name

    @cached_property
    def _by_name(self) -> Mapping[str, Column]:
        return {folded_name(column.name): column for column in reversed(self.columns)}

    @cached_property
    def row_columns_by_name(self) -> Mapping[str, Column]:
        """The columns that rows carry, by their folded names."""
        return {folded_name(column.name): column for column in self.row_columns}

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The position of each column, from 0, by its folded name."""
        return {folded_name(column.name): number for number, column in enumerate(self.columns)}

    @property
    def row_columns(self) -> tuple[Column, ...]:
        """The columns that rows carry: all except virtual generated and hidden ones."""
        return tuple(c for c in self.columns if c.generated is not Generated.VIRTUAL and not c.hidden)

    @property
    def written_columns(self) -> tuple[Column, ...]:
        """The columns that a sink writes to: the columns that rows carry, without stored generated ones."""
        return tuple(c for c in self.row_columns if c.generated is None)


def _told(column: Column) -> list[object]:
    kind = column.type
    of_type = [str(kind.kind), kind.unsigned, kind.length, kind.scale, kind.elements]
    return [column.name, of_type, column.nullable, column.primary_key, column.default]


@dataclass(frozen=True)
class SourceTable:
    """What is known of a source's table, for checking whether a target's table matches it."""

    schema: TableSchema
    keys_told: bool = False
    """Whether all unique keys over whole columns are known, and not only those of some statements."""
    collations: Mapping[str, str] = field(default_factory=dict)
    """The collations that the source named for columns, by the column's folded name."""
    carried: tuple[Column, ...] = ()
    """The columns that the table's rows carry."""

    def is_unique(self, columns: frozenset[str]) -> bool:
        """Whether it is known that no two rows of the source have the same values in these columns (folded names)."""
        keys = (self.schema.handle_key, *(key.columns for key in self.schema.unique_keys))
        return any(key and {folded_name(name) for name in key} <= columns for key in keys)
