"""What readers of a ``headrace.testing.memory_server`` see, as the harness compares it with the upstream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.model.table import TableId
from headrace.testing.memory_server import Contents
from targets import Row, normal_value


@dataclass
class SimulatedTarget:
    """What it holds now, or held at some commit."""

    contents: Contents

    def __str__(self) -> str:
        return "the simulated server"

    def databases(self) -> set[str]:
        return self.contents.databases

    def tables(self) -> set[tuple[str, str]]:
        return {(t.database, t.table) for t in self.contents.tables}

    def columns(self, database: str, table: str) -> set[str]:
        return set(self.contents.tables[TableId(database, table)].columns)

    def rows(self, database: str, table: str, types: Mapping[str, str]) -> list[Row]:
        found = self.contents.tables[TableId(database, table)].rows.values()
        return [tuple(normal_value(t, _text(row[name])) for name, t in types.items()) for row in found]

    def held(self, type_text: str, text: str | None) -> str | None:
        return text


def _text(value: Any) -> str | None:
    """As the tests' upstream tells the value."""
    if value is None:
        return None
    return value.hex() if isinstance(value, bytes) else str(value)
