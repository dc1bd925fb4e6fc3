"""What SHOW GRANTS says: which rights the user has, and on which databases."""

from __future__ import annotations

import re
from collections.abc import Iterable

EVERYWHERE = "*.*"
ALL = "ALL PRIVILEGES"
_GRANT = re.compile(r"GRANT (?P<what>.+?) ON (?P<where>\*\.\*|`(?:[^`]|``)+`\.\*) TO ", re.IGNORECASE)
_PATTERN = re.compile(r"\\(?P<plain>.)|(?P<many>%)|(?P<one>_)", re.DOTALL)


def read_grants(lines: Iterable[str], of_all: Iterable[str]) -> dict[str, frozenset[str]]:
    """The rights by where they count: ``*.*``, or a pattern of databases with ``.*`` behind it.

    ``of_all`` are the rights to name where all are granted.
    """
    granted: dict[str, frozenset[str]] = {}
    for found in filter(None, map(_GRANT.match, lines)):
        names = {name.strip().upper() for name in found["what"].split(",")}
        if names & {"ALL", ALL}:
            names.update(of_all)
        granted[found["where"]] = granted.get(found["where"], frozenset()) | names
    return granted


def database_of(place: str) -> str:
    """The pattern of databases in a place that is not ``*.*``."""
    return place.removesuffix(".*")[1:-1].replace("``", "`")


def names_only(place: str, database: str) -> bool:
    """Whether the place is this one database."""
    return re.sub(r"\\(.)", r"\1", database_of(place)) == database


def matches(place: str, database: str) -> bool:
    """Whether a pattern of databases, with ``%``, ``_`` and backslashes before signs that mean themselves, matches a name."""
    expression, end = "", 0
    pattern = database_of(place)
    for found in _PATTERN.finditer(pattern):
        sign = ".*" if found["many"] else "." if found["one"] else re.escape(found["plain"])
        expression, end = expression + re.escape(pattern[end : found.start()]) + sign, found.end()
    return re.fullmatch(expression + re.escape(pattern[end:]), database, re.DOTALL) is not None
