"""Patterns for tables, such as ``shop.tmp_*``: a pattern for the database and one for the table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import translate

from headrace.errors import DefinitionError
from headrace.model.table import TableId, folded_name


@dataclass(frozen=True)
class TablePattern:
    """Names match without case; ``*`` and ``?`` work as in a shell."""

    database: str
    table: str

    @classmethod
    def parse(cls, text: str) -> TablePattern:
        """Raises DefinitionError for a pattern without a database part."""
        database, dot, table = text.partition(".")
        if not dot:
            raise DefinitionError(f"The table pattern {text!r} names no database.", f"Write {text}.* for all its tables.")
        return cls(database, table)

    def matches(self, table_id: TableId) -> bool:
        """Whether it is one of the tables; for a database, whether one of its tables could be."""
        return _name_matches(self.database, table_id.database) and (
            table_id.is_database or _name_matches(self.table, table_id.table)
        )


def _name_matches(pattern: str, name: str) -> bool:
    return re.fullmatch(translate(folded_name(pattern)), folded_name(name)) is not None
