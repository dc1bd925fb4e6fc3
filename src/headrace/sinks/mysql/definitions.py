"""How far a table came from one definition to another, according to the lines of SHOW CREATE TABLE.

The lines that a statement adds and removes are looked up in the present definition, whatever else was altered there.
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
    ("partition", re.compile(r"\(?(?:SUB)?PARTITION (`(?:[^`]|``)+`|\S+) ")),
)
_BY_KIND = frozenset({"unique", "partition"})
"""Such a part has the same effect under another name: it refuses or replaces rows, or has rows that were to be removed."""


def lines(definition: str, tables: Collection[TableId]) -> tuple[str, ...]:
    """The lines of a definition, without the table's name and the parts that follow from it and from its database.

    ``tables`` are the names that the definition may have for its own table. Servers derive the names of constraints from the
    table's, and omit the database of a referenced table if it is the table's own.
    """
    shown = _NAMED_TABLE.sub("", definition, count=1)
    return tuple(_without_place(line.strip().removesuffix(","), tables) for line in shown.splitlines())


def renamed(definition: str, name: str) -> str:
    """The CREATE TABLE of a table for another name; ``name`` is quoted."""
    return _NAMED_TABLE.sub(lambda _: f"CREATE TABLE {name}", definition, count=1)


def is_table(definition: str) -> bool:
    """Whether the definition is that of a table, and not of a view."""
    return definition.startswith("CREATE TABLE")


def columns_and_unique_keys(definition: str) -> frozenset[str]:
    """The lines that define a table's columns and unique keys."""
    return frozenset(line for line in lines(definition, ()) if _part(line)[0] in ("column", "unique"))


def compared(before: Sequence[str], after: Sequence[str], now: Sequence[str], *, repeatable: bool) -> Begun:
    """What a table (``now``) shows of a statement that leads from ``before`` to ``after``.

    ``repeatable``: if the lines before and after are the same, running the statement again is harmless, as when a column moves. It
    is not harmless if columns swap their names.
    """
    added, removed = set(after) - set(before), set(before) - set(after)
    if not added and not removed:
        return _in_order(before, after, now, repeatable=repeatable)
    if added <= set(now) and not removed & set(now):
        return Begun.UNCLEAR if _leaves(removed, after, set(now) - {*before, *after}) else Begun.DONE
    return Begun.ABSENT if removed <= set(now) and not added & set(now) else Begun.UNCLEAR


def _in_order(before: Sequence[str], after: Sequence[str], now: Sequence[str], *, repeatable: bool) -> Begun:
    """For unchanged lines: the order of those that exist shows it."""
    was, ends, found = ([line for line in found if line in before and line in now] for found in (before, after, now))
    if was != ends and found in (was, ends):
        return Begun.DONE if found == ends else Begun.ABSENT
    return Begun.REPEATABLE if repeatable else Begun.UNCLEAR


def _leaves(removed: Collection[str], after: Collection[str], new: Collection[str]) -> bool:
    """Whether a part that the statement removes may exist in another form: altered, or under another name."""
    kept = {_part(line) for line in after}
    gone = {part for line in removed if (part := _part(line)) not in kept}
    kinds = {kind for kind, _ in gone} & _BY_KIND
    return any(part in gone or part[0] in kinds for part in map(_part, new) if part[0])


def _part(line: str) -> tuple[str, str]:
    """The kind of part that a line defines, and its folded name; ``("", "")`` for a line without a name."""
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
