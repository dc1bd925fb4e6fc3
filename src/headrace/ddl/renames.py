"""Puts the renames of one statement, which TiCDC writes as one schema file per table, back into an order that can run.

All files of one statement have the same version, so nothing but the names tells the order. In a swap (``a TO x, b TO a,
x TO b``) the file of the first step has the same path as that of the last one and is overwritten: the missing step is
inferred from what remains and from the tables that existed before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from headrace.model.table import Column, TableId, TableSchema

Rename = tuple[TableId, TableId]
"""From the old name to the new one."""


@dataclass(frozen=True)
class RenamePlan:
    """``steps`` in an order that can run; ``inferred`` are those of them that no file told.

    ``unclear`` are the tables whose missing step could not be inferred, or whose renames wait for each other in a circle.
    """

    steps: tuple[Rename, ...]
    inferred: frozenset[Rename] = frozenset()
    unclear: frozenset[TableId] = frozenset()


def rename_statement(*steps: Rename) -> str:
    """RENAME TABLE with these steps, its names quoted."""
    return "RENAME TABLE " + ", ".join(f"{_quoted(old)} TO {_quoted(new)}" for old, new in steps)


def _quoted(table_id: TableId) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in (table_id.database, table_id.table))


def can_run(renames: Sequence[Rename], known: Collection[TableId]) -> bool:
    """Whether the renames can run one after another as they are told: no step is missing.

    Of the ``known`` tables some may have gone: a name of theirs that a step needs counts as free where all steps are there.
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
    """The order of the renames of one version.

    ``existing`` are the tables known before; ``shapes`` the shapes that the files give for the new names.
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
    """The overwritten steps: an existing table whose name is taken goes to a name that is used and that nothing makes.

    Two or more such pairs are told apart by their shapes.
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
    """Again and again the first rename whose source is there and whose target is free; and those that wait in a circle."""
    # Each file is of another table, so a source that no file told of was there before; but not in a circle, where one of the
    # names only lives in between.
    circles = _in_circles(dict(renames))
    names = set(existing) | {old for old, _ in renames if old not in circles}
    waiting = list(renames)
    steps: list[Rename] = []
    while waiting:
        ready = next((r for r in waiting if r[0] in names and r[1] not in names), None)
        if ready is None:
            # A target that none of the others frees was known by mistake (its DROP was filtered out): the target will tell.
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
    """The names from which the renames lead back to themselves."""
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
