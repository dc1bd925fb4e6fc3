"""Segments: which rows of a table belong to which round of a cut, and their shape there. Pure.

A version determines how its rows are decoded. Only their commit ts determines between which schema changes they count: partitions
of a table may have different versions, and TiCDC continues in an older version when a table gets back the columns that it had
there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.model.events import AddColumnEvent, CreateTableEvent, DropColumnEvent, RenameColumnEvent, SchemaChange
from headrace.model.precision import CommitTsPrecision
from headrace.model.split import Recast, Segment, Split, Window
from headrace.model.table import TableId, TableSchema, folded_name
from headrace.model.tso import MAX_TSO, tso_from_ms, tso_to_ms
from headrace.model.types import arrow_type

_ColumnEvent = RenameColumnEvent | DropColumnEvent | AddColumnEvent


@dataclass(frozen=True)
class TablePlan:
    """The data of one table in a cut."""

    window: Window
    splits: Sequence[Split]
    known: Sequence[SchemaChange]
    """All schema changes of the table that were ever reported."""
    changes: Sequence[tuple[int, int]] = ()
    """The table's schema changes in the cut, as commit ts (TSO) and level, in order."""
    below: int = MAX_TSO + 1
    """The upper bound (TSO, exclusive) of the schema changes that count for its shape."""
    is_new: bool = False
    """The table does not exist before the first change of the cut."""

    def level(self, split: Split) -> int:
        """The level of the round in which the first rows of a split are expected."""
        place = bisect_right(self.changes, max(split.begins, self.window.lo), key=lambda change: change[0])
        if place == 0 and not (self.is_new and self.changes):
            return 0
        return self.changes[max(place, 1) - 1][1]

    def segments(self, precision: CommitTsPrecision) -> dict[int, Segment]:
        """The segment of each level. If only milliseconds are known, a schema change counts at the first TSO of its millisecond."""
        found = {}
        shapes = TableShapes(self.splits, self.known)
        bounds = [(0, 0), *self.changes]
        if self.is_new and self.changes:
            bounds = bounds[1:]
        for number, (at, level) in enumerate(bounds):
            after = bounds[number + 1][0] if number + 1 < len(bounds) else None
            version, schema = shapes.in_force(self.below if after is None else after)
            found[level] = Segment(
                self.window,
                version,
                schema,
                follows=at,
                begins=0 if (self.is_new and not number) or not precision.has_commit_ts else _counted(at, precision),
                ends=None if after is None or not precision.has_commit_ts else _counted(after, precision),
                recasts=shapes.recasts(version, schema),
            )
        return found


def _counted(ts: int, precision: CommitTsPrecision) -> int:
    return ts if precision.is_exact else tso_from_ms(tso_to_ms(ts))


def is_found_later(change: SchemaChange, table_id: TableId) -> bool:
    """Whether a schema change is the first known one of a table that existed before, so that rows may be older than it."""
    creates = any(isinstance(event, CreateTableEvent) and event.table_id == table_id for event in change.events)
    return creates and not change.statement


def changes_of(tables: Collection[TableId], changes: Iterable[SchemaChange]) -> Mapping[TableId, list[SchemaChange]]:
    """The schema changes that affect the columns of each table, in order."""
    found: dict[TableId, list[SchemaChange]] = defaultdict(list)
    for change in changes:
        if change.table_id in tables:
            found[change.table_id].append(change)
    return found


class TableShapes:
    """The shapes that a table has had. Their sources are sorted once, because each round of a cut looks up its own shape."""

    def __init__(self, splits: Iterable[Split], known: Iterable[SchemaChange]) -> None:
        """``known`` are the table's own schema changes."""
        changes = sorted(known, key=_commit_ts)
        newest: dict[tuple[int, int], TableSchema] = {}
        self._held: dict[int, TableSchema] = {}
        for split in splits:
            newest.setdefault((split.version, 1), split.schema)
            self._held[split.version] = split.schema
        for change in changes:
            if change.schema is not None:
                newest.setdefault((change.commit_ts, 0), change.schema)
        self._told = [(*key, newest[key]) for key in sorted(newest)]
        self._carried: dict[int, tuple[int, dict[str, str]]] = {}
        self._of_columns = [change for change in changes if any(isinstance(event, _ColumnEvent) for event in change.events)]

    def in_force(self, below: int) -> tuple[int, TableSchema]:
        """The newest shape below a commit ts (TSO), with its version.

        The shape of a version's rows takes precedence over the shape in a schema change. If nothing is older, the first shape that
        rows have.
        """
        place = bisect_left(self._told, below, key=lambda entry: entry[0])
        version, _, schema = self._told[place - 1] if place else next(entry for entry in self._told if entry[1])
        return version, schema

    def recasts(self, version: int, schema: TableSchema) -> Mapping[int, Recast]:
        """How to convert the rows of each version whose columns differ from the shape in force."""
        return _Recasts(self, version, schema)

    @property
    def held(self) -> Mapping[int, TableSchema]:
        """The shape of the rows of each version that has rows."""
        return self._held

    def recast(self, own: int, version: int, schema: TableSchema) -> Recast:
        """How the rows of a version become rows of the shape in force, whose version (TSO) is ``version``.

        Columns are followed through renames. A column that was added later has no value in such rows, even if a former column had
        its name. The same applies to a column whose type has changed.
        """
        written, names = self._held[own], self._names(own, version)
        kept, missing = [], []
        for column in schema.row_columns:
            name = names.get(folded_name(column.name))
            if name is None or _kind(written, name) != _kind(schema, column.name):
                missing.append(column.name)
            else:
                kept.append((name, column.name))
        used = {name for name, _ in kept}
        return Recast(tuple(kept), tuple(c.name for c in written.row_columns if c.name not in used), tuple(missing))

    def _names(self, own: int, version: int) -> Mapping[str, str]:
        """The names at a later version of the columns in a version's rows: the folded name there, with the name in the rows.

        Rounds come in order, so the names are continued from where the last round left them.
        """
        first = bisect_right(self._of_columns, own, key=_commit_ts)
        end = max(first, bisect_right(self._of_columns, version, key=_commit_ts))
        reached, names = self._carried.get(own, (end + 1, {}))
        if reached > end:
            reached, names = first, {folded_name(column.name): column.name for column in self._held[own].row_columns}
        for change in self._of_columns[reached:end]:
            _follow(names, change)
        self._carried[own] = end, names
        return names


def _commit_ts(change: SchemaChange) -> int:
    return change.commit_ts


class _Recasts(Mapping[int, Recast]):
    """Created on demand: there are as many rounds as versions, and each round reads rows of few versions."""

    def __init__(self, shapes: TableShapes, version: int, schema: TableSchema) -> None:
        self._shapes, self._version, self._schema = shapes, version, schema

    def __getitem__(self, version: int) -> Recast:
        own = self._shapes.held[version]
        if own is self._schema or _columns(own) == _columns(self._schema):
            raise KeyError(version)
        return self._shapes.recast(version, self._version, self._schema)

    def __iter__(self) -> Iterator[int]:
        wanted = _columns(self._schema)
        return (version for version, own in self._shapes.held.items() if _columns(own) != wanted)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def of_other_shape(splits: Sequence[Split], known: Iterable[SchemaChange], below: int) -> Split | None:
    """A split whose rows must be converted to the newest shape below a commit ts (TSO), if there is one."""
    _, schema = TableShapes(splits, known).in_force(below)
    return next((split for split in splits if _columns(split.schema) != _columns(schema)), None)


def _follow(names: dict[str, str], change: SchemaChange) -> None:
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


def _columns(schema: TableSchema) -> dict[str, object]:
    return {column.name: _kind(schema, column.name) for column in schema.row_columns}


def _kind(schema: TableSchema, name: str) -> object:
    column_type = schema.column(name).type
    return column_type.kind, arrow_type(column_type)
