"""The table filter of a pipeline: patterns such as ``shop.*,!shop.tmp_*``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import translate

from headrace.errors import DefinitionError
from headrace.model.table import TableId, folded_name


@dataclass(frozen=True)
class TableFilter:
    """Includes a table when the last pattern that matches it does not begin with ``!`` (as TiCDC's own filter rules do).

    Names match without case; ``*`` and ``?`` work as in a shell. Without patterns everything is included. If all patterns exclude,
    everything else is included. A database is included if a table in it could be.
    """

    patterns: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> TableFilter:
        """Parses a comma-separated list. Raises DefinitionError for a pattern without a database part."""
        patterns = tuple(part.strip() for part in text.split(",") if part.strip())
        for pattern in patterns:
            if "." not in pattern.removeprefix("!"):
                raise DefinitionError(f"The table pattern {pattern!r} names no database.", f"Write {pattern}.* for all its tables.")
        return cls(patterns)

    def includes(self, table_id: TableId) -> bool:
        included = all(pattern.startswith("!") for pattern in self.patterns)
        for pattern in self.patterns:
            excludes = pattern.startswith("!")
            database, table = pattern.removeprefix("!").split(".", 1)
            if table_id.is_database and excludes and table != "*":
                continue
            if _matches(database, table_id.database) and (table_id.is_database or _matches(table, table_id.table)):
                included = not excludes
        return included


def _matches(pattern: str, name: str) -> bool:
    return re.fullmatch(translate(folded_name(pattern)), folded_name(name)) is not None
