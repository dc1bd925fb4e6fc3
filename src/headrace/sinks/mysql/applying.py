"""Which tables are replayed and which converge: the parameters ``apply`` and ``apply-tables`` of the sink's URI."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from headrace.errors import DefinitionError
from headrace.model.patterns import TablePattern
from headrace.model.table import TableId, TableSchema
from headrace.sinks.base import ChangeDemand


class Apply(StrEnum):
    """How rows of tables with a key are applied."""

    CONVERGE = "converge"
    """Only the last state of each key in a cut is written."""
    REPLAY = "replay"
    """Every transaction of the source is executed, as a whole, and behind those that it depends on."""
    AUTO = "auto"
    """Tables on which the target has triggers are replayed, since converge fires them for net changes, and for repeated ones. The
    others converge."""


@dataclass(frozen=True)
class ApplyRules:
    """How each table is applied. Picklable."""

    default: Apply = Apply.CONVERGE
    tables: tuple[tuple[TablePattern, Apply], ...] = ()
    """Patterns for tables of the source; the last one that matches counts."""

    @classmethod
    def read(cls, params: Mapping[str, str]) -> ApplyRules:
        """Reads ``apply=replay`` and ``apply-tables=shop.*:replay,shop.log:converge``. Raises DefinitionError."""
        return cls(_mode(params.get("apply", Apply.CONVERGE), "apply"), tuple(map(_rule, _parts(params.get("apply-tables", "")))))

    def of(self, table_id: TableId) -> Apply:
        """How a table of the source is applied."""
        return next((mode for pattern, mode in reversed(self.tables) if pattern.matches(table_id)), self.default)

    @property
    def modes(self) -> frozenset[Apply]:
        """All that occur."""
        return frozenset((self.default, *(mode for _, mode in self.tables)))

    @property
    def may_replay(self) -> bool:
        """Whether any table may be replayed."""
        return self.modes != {Apply.CONVERGE}


@dataclass(frozen=True)
class ReplayedTables:
    """The rules, with what ``auto`` needs to know of the target. Picklable."""

    rules: ApplyRules
    triggered: frozenset[TableId] = frozenset()
    """The folded names of the target's tables that have triggers."""

    def have(self, table_id: TableId) -> bool:
        """Whether a table of the source, which has its name in the target too, is replayed if it has a key."""
        mode = self.rules.of(table_id)
        return mode is Apply.REPLAY or (mode is Apply.AUTO and table_id.folded in self.triggered)

    def demand_of(self, table_id: TableId, schema: TableSchema) -> ChangeDemand:
        """See ``SinkCapabilities.own_demand``. A table without key is applied as a bag, in one transaction for each cut."""
        return ChangeDemand.ALL if schema.handle_key and self.have(table_id) else ChangeDemand.NET


class ReplayedOfTarget:
    """Asks the target for its triggers when ``auto`` needs them first, and keeps the answer, so that no cut changes its mode."""

    def __init__(self, rules: ApplyRules, triggered: Callable[[], Collection[TableId]]) -> None:
        self._rules, self._triggered = rules, triggered
        self._known: ReplayedTables | None = None

    def known(self) -> ReplayedTables:
        """Raises SinkUnreachableError, and what ``triggered`` raises."""
        if self._known is None:
            asks = Apply.AUTO in self._rules.modes
            self._known = ReplayedTables(self._rules, frozenset(t.folded for t in self._triggered()) if asks else frozenset())
        return self._known

    def demand_of(self, table_id: TableId, schema: TableSchema) -> ChangeDemand:
        """See ``SinkCapabilities.own_demand``."""
        return self.known().demand_of(table_id, schema)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _rule(text: str) -> tuple[TablePattern, Apply]:
    pattern, colon, mode = text.rpartition(":")
    if not colon:
        raise DefinitionError(f"apply-tables: {text!r} has no mode.", f"Write {text}:replay, {text}:converge or {text}:auto.")
    return TablePattern.parse(pattern), _mode(mode, f"apply-tables: {pattern}")


def _mode(text: str, name: str) -> Apply:
    if text not in set(Apply):
        raise DefinitionError(f"{name}={text} is neither converge nor replay nor auto.", "Write replay, or leave it out.")
    return Apply(text)
