"""How far a table came from one definition to another, told by the lines of SHOW CREATE TABLE.

The lines that a statement brings and takes away are looked for in the present definition, whatever else somebody altered there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace.model.table import folded_name
from headrace.sinks.base import Begun

_NAMED_TABLE = re.compile(r"CREATE TABLE `(?:[^`]|``)+`")
_NAME = r"`((?:[^`]|``)+)`"
_PARTS = (
    ("column", re.compile(_NAME)),
    ("unique", re.compile(rf"(?:UNIQUE KEY {_NAME}|PRIMARY KEY)")),
    ("key", re.compile(rf"(?:\w+ )?KEY {_NAME}")),
    ("constraint", re.compile(rf"CONSTRAINT {_NAME}")),
    ("partition", re.compile(r"\(?(?:SUB)?PARTITION `?([^\s`]+)`? ")),
)


def lines(definition: str) -> tuple[str, ...]:
    """The lines of a definition without the table's name."""
    return tuple(line.strip().removesuffix(",") for line in _NAMED_TABLE.sub("", definition, count=1).splitlines())


def renamed(definition: str, name: str) -> str:
    """The CREATE TABLE of a table for another one; ``name`` is quoted."""
    return _NAMED_TABLE.sub(lambda _: f"CREATE TABLE {name}", definition, count=1)


def is_table(definition: str) -> bool:
    """Whether this makes a table, and not a view."""
    return definition.startswith("CREATE TABLE")


def columns_and_unique_keys(definition: str) -> frozenset[str]:
    """The lines that say what columns and unique keys a table has."""
    return frozenset(line for line in lines(definition) if _part(line)[0] in ("column", "unique"))


def compared(before: Sequence[str], after: Sequence[str], now: Sequence[str], *, repeatable: bool) -> Begun:
    """What a table shows (``now``) of a statement that leads from ``before`` to ``after``.

    ``repeatable``: where the lines are the same ones before and after, to run it again does no harm, as where a column moves; with
    columns that swap their names it does.
    """
    added, removed = set(after) - set(before), set(before) - set(after)
    if not added and not removed:
        return _in_order(before, after, now, repeatable=repeatable)
    if added <= set(now) and not removed & set(now):
        return Begun.DONE
    return Begun.ABSENT if removed <= set(now) and not added & set(now) else Begun.UNCLEAR


def _in_order(before: Sequence[str], after: Sequence[str], now: Sequence[str], *, repeatable: bool) -> Begun:
    """The lines are the same ones: their order tells, of those that are there."""
    was, ends, found = ([line for line in found if line in before and line in now] for found in (before, after, now))
    if was != ends and found in (was, ends):
        return Begun.DONE if found == ends else Begun.ABSENT
    return Begun.REPEATABLE if repeatable else Begun.UNCLEAR


def _part(line: str) -> tuple[str, str]:
    """What a line defines, and its folded name; ``("", "")`` for what has none."""
    for kind, pattern in _PARTS:
        found = pattern.match(line)
        if found is not None:
            return kind, folded_name(found[1] or "PRIMARY")
    return "", ""
