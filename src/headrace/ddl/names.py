"""Names in statements, and the tables and databases that they mean: TiDB compares names without regard to case.

A source keeps a statement as somebody typed it, while its folders and rows have the name that the table was created with.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from typing import Protocol, runtime_checkable

from headrace.ddl.statement import Statement
from headrace.model.table import TableId, folded_name


@runtime_checkable
class IndexedNames(Protocol):
    """Tables that are found by their names in whatever case without going through all of them."""

    def __contains__(self, table_id: object, /) -> bool: ...

    def of_name(self, folded: TableId) -> TableId | None:
        """The first of those whose ``TableId.folded`` is this."""

    def of_database(self, folded: str) -> str | None:
        """The database whose ``folded_name`` is this, as the first of the tables has it."""


class _Index:
    """Names that are gone through when the first one is looked for."""

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
    """Finds the tables and databases that names mean. Of tables that differ only in case those of an earlier group count.

    A name that no table has stands for itself, in the database that it means.
    """

    def __init__(self, *groups: Collection[TableId] | IndexedNames) -> None:
        self._groups = [group if isinstance(group, IndexedNames) else _Index(group) for group in groups]

    def meant(self, name: TableId) -> TableId:
        """The known table or database, or the name itself where there is none."""
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
    """The text with every name as what it means is spelled; ``statement`` is what was read of it."""
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
