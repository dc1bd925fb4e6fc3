"""The tables of a history, and the sets of tables that are held by schema changes that may concern any of them. Pure.

Each such set is stored once, and their total size is limited. Otherwise memory would grow with the product of the numbers of files
and tables.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cached_property

from headrace.model.table import TableId, TableSchema, folded_name

MOST_NAMES = 500_000
"""The limit for all sets together: about 32 MB."""
_FEW = 16


class HeldTables:
    """The sets of tables that changes of one history hold.

    Beyond :data:`MOST_NAMES`, a change holds ``everything``: all present, former and future tables. Tables that are created after
    the change then wait for it, too.
    """

    def __init__(self, everything: Callable[[], frozenset[TableId]]) -> None:
        self._find_everything = everything
        self._everything: frozenset[TableId] | None = None
        self._sets: dict[frozenset[TableId], frozenset[TableId]] = {}
        self._names = 0

    @property
    def are_many(self) -> bool:
        """Whether changes hold everything from now on."""
        return self._everything is not None

    def kept(self, tables: frozenset[TableId]) -> frozenset[TableId]:
        """The set to store in place of this one: an equal one, or a larger one."""
        if len(tables) <= _FEW:
            return tables
        if self._everything is not None:
            return self._with_everything(tables)
        known = self._sets.get(tables)
        if known is not None:
            return known
        if self._names + len(tables) > MOST_NAMES:
            self._everything = self._find_everything()
            return self._with_everything(tables)
        self._names += len(tables)
        self._sets[tables] = tables
        return tables

    def everything(self) -> frozenset[TableId]:
        """All tables. Needed once :attr:`are_many` holds."""
        assert self._everything is not None
        return self._everything

    def _with_everything(self, tables: frozenset[TableId]) -> frozenset[TableId]:
        assert self._everything is not None
        if not tables <= self._everything:
            self._everything |= tables
        return self._everything


class NameIndex:
    """Tables by their names in any case, updated as they come and go: see ``headrace.ddl.names.IndexedNames``."""

    def __init__(self) -> None:
        self._tables: dict[TableId, dict[TableId, None]] = defaultdict(dict)
        self._databases: dict[str, Counter[str]] = defaultdict(Counter)

    def __contains__(self, table_id: object) -> bool:
        return isinstance(table_id, TableId) and table_id in self._tables.get(table_id.folded, ())

    def add(self, table_id: TableId) -> None:
        if table_id not in self:
            self._tables[table_id.folded][table_id] = None
            self._databases[folded_name(table_id.database)][table_id.database] += 1

    def discard(self, table_id: TableId) -> None:
        if table_id not in self:
            return
        del self._tables[table_id.folded][table_id]
        databases = self._databases[folded_name(table_id.database)]
        databases[table_id.database] -= 1
        if not databases[table_id.database]:
            del databases[table_id.database]

    def of_name(self, folded: TableId) -> TableId | None:
        return next(iter(self._tables.get(folded, ())), None)

    def of_database(self, folded: str) -> str | None:
        return next(iter(self._databases.get(folded, ())), None)


class Tables(dict[TableId, TableSchema]):
    """The tables at one time, with their shapes. ``names`` is the same object as long as the set of tables does not change."""

    _names: frozenset[TableId] | None = None

    @cached_property
    def index(self) -> NameIndex:
        """The tables by their names in any case."""
        return NameIndex()

    @property
    def names(self) -> frozenset[TableId]:
        if self._names is None or len(self._names) != len(self):
            self._names = frozenset(self)
        return self._names

    def __setitem__(self, table_id: TableId, schema: TableSchema) -> None:
        if table_id not in self:
            self._names = None
            self.index.add(table_id)
        super().__setitem__(table_id, schema)

    def __delitem__(self, table_id: TableId) -> None:
        self._names = None
        self.index.discard(table_id)
        super().__delitem__(table_id)

    def remove(self, table_id: TableId) -> TableSchema | None:
        """Removes the table and returns its shape, if it is there."""
        if table_id not in self:
            return None
        schema = self[table_id]
        del self[table_id]
        return schema
