"""Puts the renames of one statement, which TiCDC writes as one schema file per table, back into an order that can run.

All files of one statement have the same version, so only the names show the order. In a swap (``a TO x, b TO a, x TO b``) the file
of the first step has the same path as that of the last one and is overwritten. The missing step is inferred from the remaining
steps and from the tables that existed before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from headrace.model.table import Column, TableId, TableSchema

Rename = tuple[TableId, TableId]
"""The old and the new name of a table."""


@dataclass(frozen=True)
class RenamePlan:
    """The renames of one version as they are to run."""

    steps: tuple[Rename, ...]
    """The renames in an order that can run; empty if there are unclear tables."""
    inferred: frozenset[Rename] = frozenset()
    """The steps that no file contains."""
    unclear: frozenset[TableId] = frozenset()
    """The tables whose missing step could not be inferred, or whose renames block each other in a cycle."""


def rename_statement(*steps: Rename) -> str:
    """RENAME TABLE with these steps and quoted names."""
    return "RENAME TABLE " + ", ".join(f"{_quoted(old)} TO {_quoted(new)}" for old, new in steps)


def _quoted(table_id: TableId) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in (table_id.database, table_id.table))


def can_run(renames: Sequence[Rename], known: Collection[TableId]) -> bool:
    """Whether the renames can run one after another in the given order, so that no step is missing.

    Some of the ``known`` tables may no longer exist. A known name that a step needs to be free therefore counts as free, unless a
    step also renames a table that is neither known nor made by an earlier step.
    """
    made, left = set[TableId](), set[TableId]()
    is_missing = is_taken = False
    for old, new in renames:
        if new in made or old in left:
            return False
        is_missing |= old not in made and old not in known
        is_taken |= new in known and new not in left
        made.discard(old)
        left.add(old)
        made.add(new)
        left.discard(new)
    return not (is_missing and is_taken)


def plan_renames(
    renames: Sequence[Rename], existing: Mapping[TableId, TableSchema], shapes: Mapping[TableId, TableSchema]
) -> RenamePlan:
    """Puts the renames of one version into an order that can run.

    ``existing`` are the tables known before. ``shapes`` are the shapes that the files give for the new names.
    """
    inferred, unclear = _missing_steps(renames, existing, shapes)
    if unclear:
        return RenamePlan((), unclear=unclear)
    steps, stuck = _ordered([*inferred, *renames], existing)
    if stuck:
        return RenamePlan((), unclear=frozenset(name for rename in stuck for name in rename))
    return RenamePlan(tuple(steps), frozenset(inferred))


def _missing_steps(
    renames: Sequence[Rename], existing: Mapping[TableId, TableSchema], shapes: Mapping[TableId, TableSchema]
) -> tuple[list[Rename], frozenset[TableId]]:
    """The overwritten steps, and the tables for which they are unclear.

    An overwritten step leads from an existing table whose name another rename takes, to a name that is renamed, but neither exists
    nor is made by another rename. If there are several such pairs, the shapes of the tables decide which names belong together.
    """
    sources = {old for old, _ in renames}
    targets = {new for _, new in renames}
    missing = [old for old, _ in renames if old not in existing and old not in targets]
    occupied = [new for _, new in renames if new in existing and new not in sources]
    if not missing or not occupied:
        return [], frozenset()
    if len(missing) == len(occupied) == 1:
        return [(occupied[0], missing[0])], frozenset()
    final = dict(renames)
    inferred = []
    for name in missing:
        shape = shapes.get(final[name])
        fitting = [table for table in occupied if shape is not None and _columns(existing[table]) == _columns(shape)]
        if len(fitting) != 1:
            return [], frozenset([*missing, *occupied])
        inferred.append((fitting[0], name))
    if len({old for old, _ in inferred}) < len(inferred):
        return [], frozenset([*missing, *occupied])
    return inferred, frozenset()


def _columns(schema: TableSchema) -> tuple[tuple[str, object], ...]:
    def shape(column: Column) -> tuple[str, object]:
        return (column.name, (column.type, column.nullable, column.default))

    return tuple(shape(column) for column in schema.columns)


def _ordered(renames: Sequence[Rename], existing: Collection[TableId]) -> tuple[list[Rename], list[Rename]]:
    """Repeatedly takes the first rename whose source exists and whose target is free. Returns these, and those left in a cycle."""
    # Each file is about a different table, so the source of a rename existed before, even if it is not known. This does not hold in
    # a cycle, where one of the names exists only between two steps.
    circles = _in_circles(dict(renames))
    names = set(existing) | {old for old, _ in renames if old not in circles}
    waiting = list(renames)
    steps: list[Rename] = []
    while waiting:
        ready = next((r for r in waiting if r[0] in names and r[1] not in names), None)
        if ready is None:
            # A new name that no other rename frees was known by mistake (its DROP was filtered out). If the name is in use after
            # all, the target database reports it.
            pending = {old for old, _ in waiting}
            ready = next((r for r in waiting if r[1] not in pending), None)
        if ready is None:
            return steps, waiting
        waiting.remove(ready)
        steps.append(ready)
        names.discard(ready[0])
        names.add(ready[1])
    return steps, []


def _in_circles(renames: Mapping[TableId, TableId]) -> set[TableId]:
    """The names that lie on a cycle of renames."""
    found: set[TableId] = set()
    followed: dict[TableId, TableId] = {}
    for start in renames:
        name = start
        while name in renames and name not in followed:
            followed[name] = start
            name = renames[name]
        while followed.get(name) == start and name not in found:
            found.add(name)
            name = renames[name]
    return found
