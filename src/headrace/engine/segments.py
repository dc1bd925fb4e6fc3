"""Segments: which rows of a table belong to which round of a cut, and the shape they have there. Pure.

A version says how its rows are decoded. Their commit ts alone says between which schema changes they count: partitions of a
table may stand at different versions, and TiCDC goes on in an older version when a table gets the columns back that it had there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.model.events import AddColumnEvent, CreateTableEvent, DropColumnEvent, RenameColumnEvent, SchemaChange
from headrace.model.precision import CommitTsPrecision
from headrace.model.split import Recast, Segment, Split, Window
from headrace.model.table import TableId, TableSchema, folded_name
from headrace.model.tso import MAX_TSO, tso_from_ms, tso_to_ms
from headrace.model.types import arrow_type


@dataclass(frozen=True)
class TablePlan:
    """What there is of one table in a cut.

    ``changes`` are its schema changes of the cut, as commit ts (TSO) and level, in order; ``below`` bounds those that count for
    its shape (TSO). ``known`` is what has ever been told of it. ``is_new``: before the first change of the cut it is not there.
    """

    window: Window
    splits: Sequence[Split]
    known: Sequence[SchemaChange]
    changes: Sequence[tuple[int, int]] = ()
    below: int = MAX_TSO + 1
    is_new: bool = False

    def level(self, split: Split) -> int:
        """The level of the round in which the first rows of a split are expected."""
        place = bisect_right(self.changes, max(split.begins, self.window.lo), key=lambda change: change[0])
        if place == 0 and not (self.is_new and self.changes):
            return 0
        return self.changes[max(place, 1) - 1][1]

    def segments(self, precision: CommitTsPrecision) -> dict[int, Segment]:
        """The segment of each level. Where only milliseconds are known, a schema change counts at the first TSO of its own."""
        found = {}
        bounds = [(0, 0), *self.changes]
        if self.is_new and self.changes:
            bounds = bounds[1:]
        for number, (at, level) in enumerate(bounds):
            after = bounds[number + 1][0] if number + 1 < len(bounds) else None
            version, schema = in_force(self.splits, self.known, self.below if after is None else after)
            found[level] = Segment(
                self.window,
                version,
                schema,
                follows=at,
                begins=0 if (self.is_new and not number) or not precision.has_commit_ts else _counted(at, precision),
                ends=None if after is None or not precision.has_commit_ts else _counted(after, precision),
                recasts=recasts(self.splits, self.known, version, schema),
            )
        return found


def _counted(ts: int, precision: CommitTsPrecision) -> int:
    return ts if precision.is_exact else tso_from_ms(tso_to_ms(ts))


def is_found_later(change: SchemaChange, table_id: TableId) -> bool:
    """Whether a schema change is the first that is known of a table which was there before: rows may be older than it."""
    creates = any(isinstance(event, CreateTableEvent) and event.table_id == table_id for event in change.events)
    return creates and not change.statement


def changes_of(tables: Collection[TableId], changes: Iterable[SchemaChange]) -> Mapping[TableId, list[SchemaChange]]:
    """The schema changes that tell something of the columns of each table, in order."""
    found: dict[TableId, list[SchemaChange]] = defaultdict(list)
    for change in changes:
        if change.table_id in tables:
            found[change.table_id].append(change)
    return found


def in_force(splits: Iterable[Split], known: Iterable[SchemaChange], below: int) -> tuple[int, TableSchema]:
    """The newest shape of a table below a commit ts (TSO), with its version. ``known`` are the table's own schema changes."""
    told = [(c.commit_ts, 0, c.schema) for c in known if c.schema is not None and c.commit_ts < below]
    held = [(s.version, 1, s.schema) for s in splits]
    found = max((*told, *(h for h in held if h[0] < below)), key=lambda entry: entry[:2], default=None)
    version, _, schema = found if found is not None else min(held, key=lambda entry: entry[:2])
    return version, schema


def of_other_shape(splits: Sequence[Split], known: Iterable[SchemaChange], below: int) -> Split | None:
    """A split whose rows have to be brought to the newest shape below a commit ts (TSO), if there is one."""
    _, schema = in_force(splits, known, below)
    return next((split for split in splits if _columns(split.schema) != _columns(schema)), None)


def recasts(splits: Iterable[Split], known: Iterable[SchemaChange], version: int, schema: TableSchema) -> dict[int, Recast]:
    """What is to be done with rows of each version that has not the columns of the shape in force."""
    wanted = _columns(schema)
    others = {s.version: s.schema for s in splits if s.schema is not schema}
    return {
        number: recast_of(own, schema, [c for c in known if number < c.commit_ts <= version])
        for number, own in others.items()
        if _columns(own) != wanted
    }


def recast_of(own: TableSchema, wanted: TableSchema, between: Iterable[SchemaChange]) -> Recast:
    """How rows of the shape ``own`` become rows of the shape ``wanted``, to which these schema changes led.

    Columns are followed through renames. One that came later has no value in such rows, also when it has the name of a former
    one, and neither has one whose type is another one now.
    """
    names = {folded_name(column.name): column.name for column in own.row_columns}
    for change in between:
        for event in change.events:
            match event:
                case RenameColumnEvent(old_name=old, new_name=new) if folded_name(old) in names:
                    names[folded_name(new)] = names.pop(folded_name(old))
                case DropColumnEvent(column_name=name):
                    names.pop(folded_name(name), None)
                case AddColumnEvent(column=column):
                    names.pop(folded_name(column.name), None)
                case _:
                    pass
    kept, missing = [], []
    for column in wanted.row_columns:
        written = names.get(folded_name(column.name))
        if written is None or _kind(own, written) != _kind(wanted, column.name):
            missing.append(column.name)
        else:
            kept.append((written, column.name))
    used = {written for written, _ in kept}
    return Recast(tuple(kept), tuple(c.name for c in own.row_columns if c.name not in used), tuple(missing))


def _columns(schema: TableSchema) -> dict[str, object]:
    return {column.name: _kind(schema, column.name) for column in schema.row_columns}


def _kind(schema: TableSchema, name: str) -> object:
    column_type = schema.column(name).type
    return column_type.kind, arrow_type(column_type)
