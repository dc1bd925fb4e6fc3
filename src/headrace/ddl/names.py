"""Names in statements, and the tables and databases that they mean: TiDB compares names without regard to case.

A source keeps a statement as somebody typed it, while its folders and rows have the name that the table was created with.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from headrace.ddl.statement import Statement
from headrace.model.table import TableId, folded_name


class KnownNames:
    """Finds the tables and databases that names mean. Of tables that differ only in case those of an earlier group count.

    A name that no table has stands for itself, in the database that it means.
    """

    def __init__(self, *groups: Collection[TableId]) -> None:
        self._groups = groups
        self._by_folded: dict[TableId, TableId] | None = None
        self._databases: dict[str, str] = {}

    def meant(self, name: TableId) -> TableId:
        """The known table or database, or the name itself where there is none."""
        if any(name in group for group in self._groups):
            return name
        if self._by_folded is None:
            self._by_folded = {}
            for table_id in (t for group in self._groups for t in group):
                self._by_folded.setdefault(table_id.folded, table_id)
                self._databases.setdefault(folded_name(table_id.database), table_id.database)
        known = self._by_folded.get(name.folded)
        return known or TableId(self._databases.get(folded_name(name.database), name.database), name.table)

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
