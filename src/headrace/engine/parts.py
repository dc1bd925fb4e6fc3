"""The parts of a round: one of each table, and over how many write tasks its rows are spread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from headrace.model.ledger import TableProgress
from headrace.model.split import Segment, Split
from headrace.model.table import TableId, TableSchema, folded_name
from headrace.sinks.base import TextComparison, UniqueTexts

_NO_TEXTS: Mapping[TableId, TextComparison] = {}


@dataclass(frozen=True)
class TablePart:
    """A table's rows in one round, of all its versions: how they are netted and over how many write tasks they are spread.

    Its buckets go to the write tasks ``first``, ``first + 1``, … (modulo the number of write tasks). ``weighed`` are the
    columns whose collation in the target weighs supplementary characters, ``watched`` the unique keys of the target of which
    writers watch the spellings. ``by_collation``: the target compares handle keys by one, so that different texts may be one key.
    """

    table_id: TableId
    segment: Segment
    buckets: int = 1
    first: int = 0
    progress: TableProgress | None = None
    weighed: frozenset[str] = frozenset()
    watched: tuple[UniqueTexts, ...] = ()
    by_collation: bool = False

    @property
    def schema(self) -> TableSchema:
        """The shape in force, which all rows of the part have."""
        return self.segment.schema

    @property
    def is_bag(self) -> bool:
        """Whether equal rows are counted because there is no key; all of the table is then one bucket."""
        return not self.schema.handle_key


def plan_parts(
    splits: Iterable[Split],
    segments: Mapping[TableId, Segment],
    write_tasks: int,
    bytes_per_bucket: int,
    progress: Mapping[TableId, TableProgress],
    texts: Mapping[TableId, TextComparison] = _NO_TEXTS,
    unwatched: Collection[TableId] = (),
) -> tuple[TablePart, ...]:
    """The parts of a round. A table's buckets grow with its bytes; small tables take turns over the write tasks.

    ``texts`` is how the target compares them, ``unwatched`` are tables of which nobody watches the spellings of keys.
    """
    sizes: dict[TableId, int] = defaultdict(int)
    for split in splits:
        sizes[split.table_id] += split.size
    parts, turn = [], 0
    for table_id in sorted(sizes, key=lambda t: (-sizes[t], t)):
        part = TablePart(table_id, segments[table_id], progress=progress.get(table_id))
        count = 1 if part.is_bag else min(write_tasks, max(1, -(-sizes[table_id] // bytes_per_bucket)))
        compared = texts.get(table_id, TextComparison())
        columns = frozenset(column.name for column in part.schema.columns if folded_name(column.name) in compared.weighed)
        watched = () if part.is_bag or table_id in unwatched else compared.keys
        handle = {folded_name(name) for name in part.schema.handle_key}
        united = any(handle & key.texts for key in compared.keys)
        spread = replace(part, buckets=count, first=turn % write_tasks)
        parts.append(replace(spread, weighed=columns, watched=watched, by_collation=united))
        turn += count
    return tuple(sorted(parts, key=lambda part: part.table_id))
