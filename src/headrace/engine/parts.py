"""The parts of a round: one of each table, what the sink wants of it, and over how many units its rows are spread."""

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
    """A table's rows in one round, of all its versions: what the sink wants of them and over how many units they are spread."""

    table_id: TableId
    segment: Segment
    demand: ChangeDemand
    buckets: int = 1
    first: int = 0
    """Its buckets go to the units ``first``, ``first + 1``, … (modulo the number of units)."""
    progress: TableProgress | None = None
    weighed: frozenset[str] = frozenset()
    """The columns whose collation in the target weighs supplementary characters."""
    watched: tuple[UniqueTexts, ...] = ()
    """The unique keys of the target of which writers watch the spellings."""
    by_collation: bool = False
    """The target compares handle keys by a collation, so that different texts may be one key."""

    @property
    def schema(self) -> TableSchema:
        """The shape in force, which all rows of the part have."""
        return self.segment.schema

    @property
    def is_bag(self) -> bool:
        """Whether equal rows are counted because there is no key; all of the table is then one bucket."""
        return self.demand is ChangeDemand.BAG

    @property
    def is_log(self) -> bool:
        """Whether the sink wants every change, in order."""
        return self.demand is ChangeDemand.ALL

    @property
    def spread_by(self) -> tuple[str, ...]:
        """The columns that tell to which bucket a row belongs: the key, or the whole row where nothing else spreads it."""
        return self.schema.handle_key or tuple(column.name for column in self.schema.columns)

    def units(self, units: int) -> frozenset[int]:
        """The units that its rows may go to, of so many."""
        return frozenset((self.first + bucket) % units for bucket in range(min(self.buckets, units)))


@dataclass(frozen=True)
class Spreading:
    """How the parts of a round are made: how many units there are, and how much of a table is a bucket of its own (bytes)."""

    units: int
    bucket_bytes: int
    demand_of: Callable[[TableId, TableSchema], ChangeDemand]
    spread: Spread = Spread.BY_TABLE
    """Of tables of which all changes are wanted."""
    progress: Mapping[TableId, TableProgress] = field(default_factory=dict)
    """The ledger's rows of tables without key, which go with their data."""
    texts: Mapping[TableId, TextComparison] = field(default_factory=dict)
    """How the target compares them."""
    unwatched: Collection[TableId] = ()
    """Tables of which nobody watches the spellings of keys."""

    def buckets(self, part: TablePart, size: int) -> int:
        """Over how many units a part of so many bytes goes."""
        keyless = not part.schema.handle_key
        whole = part.is_bag or (part.is_log and (self.spread is Spread.BY_TABLE or (self.spread is Spread.BY_KEY and keyless)))
        return 1 if whole else min(self.units, max(1, -(-size // self.bucket_bytes)))


def plan_parts(splits: Iterable[Split], segments: Mapping[TableId, Segment], spreading: Spreading) -> tuple[TablePart, ...]:
    """The parts of a round. A table's buckets grow with its bytes; small tables take turns over the units."""
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
