"""Finds the tables and databases that names in statements mean. TiDB compares names without case.

A source stores a statement as it was typed, while its folders and rows have the name with which the table was created.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from typing import Protocol, runtime_checkable

from headrace.ddl.statement import Statement
from headrace.model.table import TableId, folded_name


@runtime_checkable
class IndexedNames(Protocol):
    """Tables with an index for finding them by name in any case."""

    def __contains__(self, table_id: object, /) -> bool: ...

    def of_name(self, folded: TableId) -> TableId | None:
        """The first table whose ``TableId.folded`` is this; ``None`` if there is none."""

    def of_database(self, folded: str) -> str | None:
        """The database whose ``folded_name`` is this, spelled as in the first of the tables; ``None`` if there is none."""


class _Index:
    """An index of names that is built at the first lookup."""

    def __init__(self, names: Collection[TableId]) -> None:
        self._names = names

    def __contains__(self, table_id: object) -> bool:
        return table_id in self._names

    def of_name(self, folded: TableId) -> TableId | None:
        return self._found[0].get(folded)

    def of_database(self, folded: str) -> str | None:
        return self._found[1].get(folded)

    @cached_property
    def _found(self) -> tuple[dict[TableId, TableId], dict[str, str]]:
        names: dict[TableId, TableId] = {}
        databases: dict[str, str] = {}
        for table_id in self._names:
            names.setdefault(table_id.folded, table_id)
            databases.setdefault(folded_name(table_id.database), table_id.database)
        return names, databases


class KnownNames:
    """Finds the tables and databases that names mean. Of tables that differ only in case, the one in the earliest group counts.

    A name that no table has stands for itself, in the database that is found for it.
    """

    def __init__(self, *groups: Collection[TableId] | IndexedNames) -> None:
        self._groups = [group if isinstance(group, IndexedNames) else _Index(group) for group in groups]

    def meant(self, name: TableId) -> TableId:
        """The known table or database, or the name itself if there is none."""
        if any(name in group for group in self._groups):
            return name
        known = next((t for group in self._groups if (t := group.of_name(name.folded)) is not None), None)
        if known is not None:
            return known
        folded = folded_name(name.database)
        database = next((d for group in self._groups if (d := group.of_database(folded)) is not None), name.database)
        return TableId(database, name.table)

    def all_meant(self, names: Iterable[TableId]) -> frozenset[TableId]:
        return frozenset(map(self.meant, names))


def spelled(text: str, statement: Statement, meant: Callable[[TableId], TableId]) -> str:
    """The text with every name spelled as the table that it means. ``statement`` is the parsed text."""
    kept, at = [], 0
    for mention in sorted(set(statement.mentions), key=lambda mention: mention.start):
        table_id = meant(mention.table_id)
        if table_id != mention.table_id and mention.start >= at:
            kept += [text[at : mention.start], _quoted(table_id)]
            at = mention.end
    return "".join([*kept, text[at:]])


def _quoted(table_id: TableId) -> str:
    names = (table_id.database, table_id.table) if table_id.table else (table_id.database,)
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)
