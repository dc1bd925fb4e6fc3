"""The schema changes that turn one shape of a table into another. For the structure, the shapes count and not the text."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import takewhile

from headrace.model.events import (
    AddColumnEvent,
    AlterColumnTypeEvent,
    ColumnPosition,
    DropColumnEvent,
    Position,
    RenameColumnEvent,
    SchemaChangeEvent,
)
from headrace.model.table import Column, TableId, TableSchema, folded_name

_TEMPORARY_NAME = "headrace$renamed"


def renames_by_id(before: TableSchema, after: TableSchema) -> dict[str, str]:
    """Old to new names of columns whose TiDB id is the same in both shapes (there only with ``output-column-id``).

    The reverse does not hold: a MODIFY that rewrites the data gives a column a new id under its old name.
    """
    names = {c.column_id: c.name for c in before.columns if c.column_id}
    return {
        names[c.column_id]: c.name
        for c in after.columns
        if c.column_id in names and folded_name(names[c.column_id]) != folded_name(c.name)
    }


def difference(
    before: TableSchema, after: TableSchema, renames: Mapping[str, str], anew: Collection[str] = ()
) -> tuple[SchemaChangeEvent, ...]:
    """The events that lead from ``before`` to ``after`` when applied in order; empty when the columns are equal.

    The order is: drops, then renames, then additions and alterations with their positions, from left to right. ``renames`` maps old
    to new names; a rename that the shapes do not confirm is ignored. Hidden columns do not count, and names compare without case.
    Swapped names are renamed through a temporary name. All events name the table of ``after``.

    ``anew`` are the folded names of columns that are added although ``before`` has columns of these names. They are only added, not
    dropped before: the engine adds no column that the target still has.
    """
    table_id = after.table_id
    old = {folded_name(c.name): c for c in before.columns if not c.hidden}
    target = [c for c in after.columns if not c.hidden]
    origin = _origins(old, [c for c in target if folded_name(c.name) not in anew], renames)
    kept = {source: new for new, source in origin.items()}
    events: list[SchemaChangeEvent] = [
        DropColumnEvent(table_id, c.name) for key, c in old.items() if key not in kept and key not in anew
    ]
    new_names = {folded_name(c.name): c.name for c in target}
    survivors = [c for key, c in old.items() if key in kept]
    moves = {c.name: new_names[kept[folded_name(c.name)]] for c in survivors}
    events.extend(_renamings(table_id, {old_name: new_name for old_name, new_name in moves.items() if old_name != new_name}))
    current = [replace(c, name=moves[c.name]) for c in survivors]
    events.extend(_placements(table_id, current, target))
    return tuple(events)


def _origins(old: Mapping[str, Column], target: list[Column], renames: Mapping[str, str]) -> dict[str, str]:
    """Folded new name to folded old name, for every column of the target that existed before."""
    new_names = {folded_name(c.name) for c in target}
    origin: dict[str, str] = {}
    taken: set[str] = set()
    for old_name, new_name in renames.items():
        source, destination = folded_name(old_name), folded_name(new_name)
        borne_out = source in old and destination in new_names and destination not in origin and source not in taken
        if borne_out and source != destination:
            origin[destination] = source
            taken.add(source)
    for name in new_names:
        if name not in origin and name in old and name not in taken:
            origin[name] = name
    return origin


def _renamings(table_id: TableId, moves: dict[str, str]) -> list[SchemaChangeEvent]:
    """Orders renames so that each target name is free, and breaks each cycle with one temporary name.

    A rename waits for at most one column, which still has its target name. So each rename is considered once, and once more when
    that name becomes free.
    """
    events: list[SchemaChangeEvent] = []
    waiting = dict(moves)
    turn = {name: number for number, name in enumerate(waiting)}
    waits_for = {folded_name(new): name for name, new in waiting.items()}
    held = {folded_name(name) for name in waiting}
    ready = [name for name, new in waiting.items() if folded_name(new) not in held or folded_name(new) == folded_name(name)]
    temporary = 0
    while waiting:
        freed = ready
        for name in ready:
            events.append(RenameColumnEvent(table_id, name, waiting.pop(name)))
        if not ready:
            name, new = next(iter(waiting.items()))
            aside = f"{_TEMPORARY_NAME}{temporary}"
            temporary += 1
            events.append(RenameColumnEvent(table_id, name, aside))
            del waiting[name]
            waiting[aside] = new
            turn[aside] = len(turn)
            waits_for[folded_name(new)] = aside
            freed = [name]
        following = (waits_for.get(folded_name(name), "") for name in freed)
        ready = sorted((name for name in following if name in waiting), key=turn.__getitem__)
    return events


def _placements(table_id: TableId, current: list[Column], target: list[Column]) -> list[SchemaChangeEvent]:
    """Additions and alterations from left to right. Each places its column directly after its left neighbour in the target."""
    events: list[SchemaChangeEvent] = []
    by_name = {c.name: c for c in current}
    rank = {c.name: place for place, c in enumerate(target)}
    stays = _longest_increasing([c.name for c in current], rank)
    # The columns that are still after the last placed one: those that stay, and those that were after the last of these.
    staying = len(stays)
    behind = {c.name for c in takewhile(lambda c: c.name not in stays, reversed(current))}
    previous = ""
    for column in target:
        known = by_name.get(column.name)
        moved = known is not None and column.name not in stays
        position = ColumnPosition()
        if known is None or moved:
            position = _position(previous, last=not staying and not behind and not moved)
            behind.discard(column.name)
        else:
            staying -= 1
        if known is None:
            events.append(AddColumnEvent(table_id, column, position))
        elif moved or replace(known, column_id=column.column_id) != column:
            events.append(AlterColumnTypeEvent(table_id, column, known, position))
        previous = column.name
    return events


def _position(previous: str, *, last: bool) -> ColumnPosition:
    if last:
        return ColumnPosition()
    return ColumnPosition(Position.AFTER, previous) if previous else ColumnPosition(Position.FIRST)


def _longest_increasing(names: list[str], rank: Mapping[str, int]) -> set[str]:
    """The largest set of columns that can stay: a longest increasing subsequence of target places (patience sorting)."""
    tails: list[int] = []
    ends: list[int] = []
    before: dict[int, int] = {}
    for index, name in enumerate(names):
        slot = bisect_left(tails, rank[name])
        if slot == len(tails):
            tails.append(rank[name])
            ends.append(index)
        else:
            tails[slot], ends[slot] = rank[name], index
        before[index] = ends[slot - 1] if slot else -1
    chosen: set[str] = set()
    at = ends[-1] if ends else -1
    while at >= 0:
        chosen.add(names[at])
        at = before[at]
    return chosen
