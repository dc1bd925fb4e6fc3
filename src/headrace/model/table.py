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
    """The name of a database, table, column or index in the form that TiDB compares: each character in lower case, without regard
    to others.

    ``str.casefold`` would hold ``straße`` and ``strasse`` for one name.
    """
    return name.lower() if name.isascii() else "".join(character.lower()[0] for character in name)


_LONGEST_NAME = 64
_KEY = re.compile(r"`(?P<length>[0-9]{1,2})`(?P<names>.*)", re.DOTALL)


def is_possible_name(name: str) -> bool:
    """Whether a database or table can have this name. TiDB refuses all others, as MySQL and MariaDB do.

    Ledgers rely on it: their columns hold 64 characters, and compare ``t`` and ``t `` as equal on MySQL and MariaDB. So a source
    lets no other name become that of a table.
    """
    return len(name) <= _LONGEST_NAME and not name.endswith(" ") and is_possible_text(name)


def is_possible_text(name: str) -> bool:
    """Whether anything can have this name as far as its characters go: a column, an index or a partition, too.

    No server takes an empty name or U+0000 in one, between backquotes or not ("Schema Object Names" of MySQL's manual).
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
        """What two names have in common that TiDB takes for one: it compares names without case."""
        return TableId(folded_name(self.database), folded_name(self.table))

    @property
    def is_possible(self) -> bool:
        """Whether a database and a table can have its names, as far as it has any (``is_possible_name``)."""
        return all(is_possible_name(name) for name in (self.database, self.table) if name)

    def lies_in(self, database: str) -> bool:
        """Whether it is in the database of that name, or is it. TiDB compares names of databases without case."""
        return folded_name(self.database) == folded_name(database)

    @property
    def key(self) -> str:
        """The name as a key that no other table and no database has, while ``str`` gives one for ``a``.``b.c`` and ``a.b``.``c``.

        It is ``str`` unless a name holds a dot or a backquote: then the length of the database's name stands before it. Names in
        backquotes would be up to twice as long, and ledgers hold 191 characters of what begins with a key.
        """
        names = self.database + self.table
        return f"`{len(self.database)}`{self}" if "." in names or "`" in names else str(self)

    @classmethod
    def of_key(cls, key: str) -> TableId:
        """The table or database of a :attr:`key`. One that was written as ``str`` is split at its first dot."""
        found = _KEY.fullmatch(key)
        if found is None:
            return cls(*key.split(".", 1))
        length = int(found["length"])
        return cls(found["names"][:length], found["names"][length + 1 :])

    @property
    def quoted(self) -> str:
        """The name for people where it could be another one's without quotes: each part in backquotes."""
        return ".".join(f"`{name.replace('`', '``')}`" for name in (self.database, self.table) if name)

    def is_named(self, name: str) -> bool:
        """Whether a person means it by a name, with each part in backquotes or none."""
        return name in (str(self), self.quoted)

    def __str__(self) -> str:
        return f"{self.database}.{self.table}" if self.table else self.database


NOBODYS = TableId("")
"""Stands for the table of a record of which nobody can tell that."""


class Generated(StrEnum):
    """How a generated column is kept. Neither kind is ever written to."""

    VIRTUAL = "VIRTUAL"
    STORED = "STORED"


@dataclass(frozen=True)
class Column:
    """A column of a table.

    ``default`` is the text of the default value as TiDB stores it, ``None`` for no default or NULL. ``column_id`` is TiDB's
    id, which survives renames; it is there only with ``output-column-id``. ``generated`` and the generating ``expression``, as
    the source wrote it, are known only from DDL text. ``hidden`` marks the columns behind expression indexes.
    """

    name: str
    type: ColumnType
    nullable: bool = True
    primary_key: bool = False
    default: str | None = None
    column_id: str | None = None
    generated: Generated | None = None
    hidden: bool = False
    expression: str = ""


@dataclass(frozen=True)
class Index:
    """An index, as DDL text tells it; ``unique`` says that no two rows agree in its columns.

    A unique key over prefixes or expressions is not ``unique``; an expression among ``columns`` is an empty name.
    """

    name: str
    columns: tuple[str, ...]
    unique: bool = False


@dataclass(frozen=True)
class TableSchema:
    """The shape of a table at one version: columns in order, and the handle key (primary key, else a declared unique key).

    An empty ``handle_key`` means a table without a usable key. ``indexes`` are those that DDL text has told of, in order,
    the primary key not among them.
    Equality compares the shape, so it does not depend on the version.
    """

    table_id: TableId
    columns: tuple[Column, ...]
    handle_key: tuple[str, ...] = ()
    indexes: tuple[Index, ...] = ()

    @cached_property
    def told(self) -> str:
        """What the source itself tells of the columns, as text of one form for good: identities in ledgers are made of it.

        What statements of before tell besides is not in it, since they may be gone.
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
    def places(self) -> Mapping[str, int]:
        """Where each column stands, from 0, by its folded name."""
        return {folded_name(column.name): number for number, column in enumerate(self.columns)}

    @property
    def row_columns(self) -> tuple[Column, ...]:
        """The columns that rows carry: all but virtual generated and hidden ones."""
        return tuple(c for c in self.columns if c.generated is not Generated.VIRTUAL and not c.hidden)

    @property
    def written_columns(self) -> tuple[Column, ...]:
        """The columns a sink writes to: all that rows carry, without the stored generated ones."""
        return tuple(c for c in self.row_columns if c.generated is None)


def _told(column: Column) -> list[object]:
    kind = column.type
    of_type = [str(kind.kind), kind.unsigned, kind.length, kind.scale, kind.elements]
    return [column.name, of_type, column.nullable, column.primary_key, column.default]


@dataclass(frozen=True)
class SourceTable:
    """What is known of a source's table, for the question whether a target's table fits it.

    ``keys_told``: its unique keys over whole columns are all known, and not only those that some statement told of. ``collations``
    are those of its columns that the source named, by the column's folded name. ``carried`` are the columns that its rows bring.
    """

    schema: TableSchema
    keys_told: bool = False
    collations: Mapping[str, str] = field(default_factory=dict)
    carried: tuple[Column, ...] = ()

    def is_unique(self, columns: frozenset[str]) -> bool:
        """Whether no two rows of the source agree in these columns (folded names), as far as is known."""
        keys = (self.schema.handle_key, *(key.columns for key in self.schema.unique_keys))
        return any(key and {folded_name(name) for name in key} <= columns for key in keys)
