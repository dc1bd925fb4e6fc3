"""How far a table came from one definition to another, told by the lines of SHOW CREATE TABLE.

The lines that a statement brings and takes away are looked for in the present definition, whatever else somebody altered there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from headrace.model.table import TableId, folded_name
from headrace.sinks.metadata_applier import Begun

_NAMED_TABLE = re.compile(r"CREATE TABLE `(?:[^`]|``)+`")
_NAME = r"`((?:[^`]|``)+)`"
_CONSTRAINT = re.compile(rf"CONSTRAINT {_NAME} (?=FOREIGN KEY|CHECK)")
_REFERENCES = re.compile(rf"(?<= REFERENCES ){_NAME}\.(?=`)")
_NUMBER = re.compile(r"_(?:ibfk|chk)_\d+")
_PARTS = (
    ("column", re.compile(_NAME)),
    ("unique", re.compile(rf"(?:UNIQUE KEY {_NAME}|PRIMARY KEY)")),
    ("key", re.compile(rf"(?:\w+ )?KEY {_NAME}")),
    ("constraint", re.compile(rf"CONSTRAINT {_NAME}")),
    ("partition", re.compile(r"\(?(?:SUB)?PARTITION `?([^\s`]+)`? ")),
)
_BY_KIND = frozenset({"unique", "partition"})
"""Under another name such a part does what it did: it refuses or replaces rows, or holds those that were to go."""


def lines(definition: str, tables: Collection[TableId]) -> tuple[str, ...]:
    """The lines of a definition without the table's name, and without what follows from that and from its database.

    ``tables`` are those that the definition may name as its own. Servers make names of constraints of the table's, and leave out
    the database of a referenced table where it is the table's own.
    """
    shown = _NAMED_TABLE.sub("", definition, count=1)
    return tuple(_without_place(line.strip().removesuffix(","), tables) for line in shown.splitlines())


def renamed(definition: str, name: str) -> str:
    """The CREATE TABLE of a table for another one; ``name`` is quoted."""
    return _NAMED_TABLE.sub(lambda _: f"CREATE TABLE {name}", definition, count=1)


def is_table(definition: str) -> bool:
    """Whether this makes a table, and not a view."""
    return definition.startswith("CREATE TABLE")


def columns_and_unique_keys(definition: str) -> frozenset[str]:
    """The lines that say what columns and unique keys a table has."""
    return frozenset(line for line in lines(definition, ()) if _part(line)[0] in ("column", "unique"))


def compared(before: Sequence[str], after: Sequence[str], now: Sequence[str], *, repeatable: bool) -> Begun:
    """What a table shows (``now``) of a statement that leads from ``before`` to ``after``.

    ``repeatable``: where the lines are the same ones before and after, to run it again does no harm, as where a column moves; with
    columns that swap their names it does.
    """
    added, removed = set(after) - set(before), set(before) - set(after)
    if not added and not removed:
        return _in_order(before, after, now, repeatable=repeatable)
    if added <= set(now) and not removed & set(now):
        return Begun.UNCLEAR if _leaves(removed, after, set(now) - {*before, *after}) else Begun.DONE
    return Begun.ABSENT if removed <= set(now) and not added & set(now) else Begun.UNCLEAR


def _in_order(before: Sequence[str], after: Sequence[str], now: Sequence[str], *, repeatable: bool) -> Begun:
    """The lines are the same ones: their order tells, of those that are there."""
    was, ends, found = ([line for line in found if line in before and line in now] for found in (before, after, now))
    if was != ends and found in (was, ends):
        return Begun.DONE if found == ends else Begun.ABSENT
    return Begun.REPEATABLE if repeatable else Begun.UNCLEAR


def _leaves(removed: Collection[str], after: Collection[str], new: Collection[str]) -> bool:
    """Whether something of what the statement takes away may be there in another form: altered, or under another name."""
    kept = {_part(line) for line in after}
    gone = {part for line in removed if (part := _part(line)) not in kept}
    kinds = {kind for kind, _ in gone} & _BY_KIND
    return any(part in gone or part[0] in kinds for part in map(_part, new) if part[0])


def _part(line: str) -> tuple[str, str]:
    """What a line defines, and its folded name; ``("", "")`` for what has none."""
    for kind, pattern in _PARTS:
        found = pattern.match(line)
        if found is not None:
            return kind, folded_name(found[1] or "PRIMARY")
    return "", ""


def _without_place(line: str, tables: Collection[TableId]) -> str:
    named = _CONSTRAINT.match(line)
    if named is not None and any(_NUMBER.fullmatch(named[1].removeprefix(table_id.table)) for table_id in tables):
        line = line[named.end() :]
    databases = {folded_name(table_id.database) for table_id in tables}
    return _REFERENCES.sub(lambda found: "" if folded_name(found[1]) in databases else found[0], line)
