"""The parts of a round: one for each table, with the sink's demand and the number of units over which its rows are spread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from headrace.model.ledger import TableProgress
from headrace.model.split import Segment, Split
from headrace.model.table import TableId, TableSchema, folded_name
from headrace.sinks.base import ChangeDemand, Spread, TextComparison, UniqueTexts


@dataclass(frozen=True)
class TablePart:
    """A table's rows in one round, of all its versions."""

    table_id: TableId
    segment: Segment
    demand: ChangeDemand
    buckets: int = 1
    first: int = 0
    """Its buckets go to the units ``first``, ``first + 1``, … (modulo the number of units)."""
    progress: TableProgress | None = None
    weighed: frozenset[str] = frozenset()
    """The columns whose collation in the target gives each supplementary character a weight."""
    watched: tuple[UniqueTexts, ...] = ()
    """The target's unique keys whose spellings the writers watch."""
    by_collation: bool = False
    """The target compares handle keys by a collation, so that different texts may be one key."""

    @property
    def schema(self) -> TableSchema:
        """The shape in force: all rows of the part have it."""
        return self.segment.schema

    @property
    def is_bag(self) -> bool:
        """Whether equal rows are counted because there is no key. The whole table is then one bucket."""
        return self.demand is ChangeDemand.BAG

    @property
    def is_log(self) -> bool:
        """Whether the sink takes every change, in order."""
        return self.demand is ChangeDemand.ALL

    @property
    def spread_by(self) -> tuple[str, ...]:
        """The columns that determine a row's bucket: the key, or the whole row if there is no other way."""
        return self.schema.handle_key or tuple(column.name for column in self.schema.columns)

    def units(self, units: int) -> frozenset[int]:
        """The units to which its rows may go, given the number of units."""
        return frozenset((self.first + bucket) % units for bucket in range(min(self.buckets, units)))


@dataclass(frozen=True)
class Spreading:
    """How the parts of a round are made: the number of units, and the size of a bucket in bytes."""

    units: int
    bucket_bytes: int
    demand_of: Callable[[TableId, TableSchema], ChangeDemand]
    spread: Spread = Spread.BY_TABLE
    """For tables with the demand ALL."""
    progress: Mapping[TableId, TableProgress] = field(default_factory=dict)
    """The ledger's rows of tables without key, which are committed with their data."""
    texts: Mapping[TableId, TextComparison] = field(default_factory=dict)
    """How the target compares the tables' texts."""
    unwatched: Collection[TableId] = ()
    """Tables for which the spellings of keys are not watched."""

    def buckets(self, part: TablePart, size: int) -> int:
        """The number of units for a part of this many bytes."""
        keyless = not part.schema.handle_key
        whole = part.is_bag or (part.is_log and (self.spread is Spread.BY_TABLE or (self.spread is Spread.BY_KEY and keyless)))
        return 1 if whole else min(self.units, max(1, -(-size // self.bucket_bytes)))


def plan_parts(splits: Iterable[Split], segments: Mapping[TableId, Segment], spreading: Spreading) -> tuple[TablePart, ...]:
    """The parts of a round. A table's number of buckets grows with its bytes; small tables are distributed over the units."""
    sizes: dict[TableId, int] = defaultdict(int)
    versions: dict[TableId, set[int]] = defaultdict(set)
    for split in splits:
        sizes[split.table_id] += split.size
        versions[split.table_id].add(split.version)
    parts, turn = [], 0
    for table_id in sorted(sizes, key=lambda t: (-sizes[t], t)):
        segment = segments[table_id].reading(versions[table_id])
        demand = spreading.demand_of(table_id, segment.schema)
        part = TablePart(table_id, segment, demand, progress=spreading.progress.get(table_id))
        count = spreading.buckets(part, sizes[table_id])
        compared = spreading.texts.get(table_id, TextComparison())
        columns = frozenset(column.name for column in part.schema.columns if folded_name(column.name) in compared.weighed)
        watched = () if part.is_bag or table_id in spreading.unwatched else compared.keys
        handle = {folded_name(name) for name in part.schema.handle_key}
        united = any(handle & key.texts for key in compared.keys)
        spread = replace(part, buckets=count, first=turn % spreading.units)
        parts.append(replace(spread, weighed=columns, watched=watched, by_collation=united))
        turn += count
    return tuple(sorted(parts, key=lambda part: part.table_id))
