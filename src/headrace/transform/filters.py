"""The table filter of a pipeline: patterns such as ``shop.*,!shop.tmp_*``."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.patterns import TablePattern
from headrace.model.table import TableId


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
            TablePattern.parse(pattern.removeprefix("!"))
        return cls(patterns)

    def includes(self, table_id: TableId) -> bool:
        included = all(pattern.startswith("!") for pattern in self.patterns)
        for pattern in self.patterns:
            excludes = pattern.startswith("!")
            tables = TablePattern.parse(pattern.removeprefix("!"))
            if table_id.is_database and excludes and tables.table != "*":
                continue
            if tables.matches(table_id):
                included = not excludes
        return included
