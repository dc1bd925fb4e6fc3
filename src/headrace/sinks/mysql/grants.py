"""Interprets SHOW GRANTS: which rights an account has, where, and which of them count for a database.

All servers use the same form: ``GRANT SELECT, INSERT (`c`) ON `shop`.* TO `repl`@`%` WITH GRANT OPTION``, with ``ALL PRIVILEGES``
for all rights. MySQL 8 also has ``REVOKE INSERT ON `mysql`.* FROM …``, which removes a part of a grant on ``*.*``. A line may
contain the hash of a password, so lines are never shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

EVERYWHERE = "*.*"
ALL = "ALL PRIVILEGES"
PROXY = "PROXY"
EVERYBODY = "PUBLIC"
"""The grantee of rights that all accounts have on MariaDB."""
_NAME = r"(?:`(?:[^`]|``)*`|'(?:[^']|'')*'|[^\s`']*)"
_ACCOUNT = rf"{_NAME}(?:@{_NAME})?"
_PLACE = rf"\*\.\*|(?:[A-Z]+(?: BODY)? )?{_NAME}\.(?:\*|{_NAME})|{_ACCOUNT}"
_LINE = re.compile(
    rf"(?P<verb>GRANT|REVOKE) (?P<what>.+?) ON (?P<where>{_PLACE}) (?:TO|FROM) (?P<who>{_ACCOUNT})(?P<rest>.*)", re.DOTALL
)
_ROLES = re.compile(rf"GRANT (?P<roles>{_ACCOUNT}(?:, ?{_ACCOUNT})*) TO {_ACCOUNT}(?P<rest>.*)", re.DOTALL)
_OF_COLUMNS = re.compile(r"\((?:[^`)]|`(?:[^`]|``)*`)*\)")
_SIGN = re.compile(r"\\(?P<plain>.)|(?P<many>%)|(?P<one>_)|(?P<other>.)", re.DOTALL)


class Asking(Protocol):
    """The part of a session that is needed here."""

    def execute(self, statement: str) -> list[tuple[object, ...]]: ...


@dataclass(frozen=True)
class Grant:
    """A line of SHOW GRANTS."""

    rights: frozenset[str]
    """In upper case; without rights on single columns."""
    place: str
    """``*.*``, ```shop`.*``, ```shop`.`t```, ``PROCEDURE `shop`.`p```, or an account for PROXY."""
    grantee: str
    """As in the line: the account, a role, or PUBLIC."""
    may_be_passed_on: bool = False
    """WITH GRANT OPTION."""
    takes: bool = False
    """A partial revoke."""

    @property
    def pattern(self) -> str | None:
        """The pattern of names, if the grant is on databases."""
        if self.place == EVERYWHERE or not self.place.endswith(".*"):
            return None
        return _unquoted(self.place.removesuffix(".*"))


@dataclass(frozen=True)
class Role:
    """A role of the account, quoted. ``may_be_passed_on``: WITH ADMIN OPTION."""

    name: str
    may_be_passed_on: bool = False


@dataclass(frozen=True)
class Grants:
    """All rights of an account."""

    lines: tuple[Grant, ...] = ()
    roles: tuple[Role, ...] = ()
    literal: bool = False
    """Database names are not patterns (``partial_revokes`` of MySQL 8)."""
    folds: bool = False
    """The case of names does not count (``lower_case_table_names``)."""
    any_may_count: bool = False
    """If several patterns match, it is unknown which one counts: in TiDB (8.5) the one that was granted first, in MariaDB and MySQL
    the most specific one."""

    @property
    def everywhere(self) -> frozenset[str]:
        """The rights on ``*.*``, including ``ALL PRIVILEGES`` if granted."""
        return frozenset().union(*(line.rights for line in self.lines if line.place == EVERYWHERE and not line.takes))

    def on(self, database: str, of_all: Iterable[str]) -> frozenset[str]:
        """The rights that count for this database. ``of_all`` are those to return if all are granted.

        Of an account's grants on matching names only one counts. The rights of roles are added.
        """
        held: set[str] = set()
        for grantee in {line.grantee for line in self.lines}:
            lines = [
                replace(line, rights=line.rights.union(of_all)) if ALL in line.rights else line
                for line in self.lines
                if line.grantee == grantee
            ]
            held |= self._of_grantee(lines, database)
        return frozenset(held)

    def _of_grantee(self, lines: Sequence[Grant], database: str) -> set[str]:
        held: set[str] = set().union(*(line.rights for line in lines if line.place == EVERYWHERE and not line.takes))
        for line in lines:
            if line.takes and line.pattern is not None and self._fold(line.pattern) == self._fold(database):
                held -= line.rights
        deciding = [line.rights for line in self._deciding(lines, database)]
        return held.union(frozenset.intersection(*deciding)) if deciding else held

    def may_count(self, line: Grant, database: str) -> bool:
        """Whether this grant on databases decides for this database. All grants must have the same grantee."""
        return line in self._deciding(self.lines, database)

    def _deciding(self, lines: Sequence[Grant], database: str) -> list[Grant]:
        found = {
            line.pattern: line
            for line in lines
            if line.pattern is not None and not line.takes and self.matches(line.pattern, database)
        }
        return list(found.values()) if self.any_may_count or not found else [found[max(found, key=self._specificity)]]

    def matches(self, pattern: str, database: str) -> bool:
        """Whether a database pattern, with ``%``, ``_`` and backslash-escaped characters, matches a name."""
        if self.literal:
            return self._fold(pattern) == self._fold(database)
        expression = "".join(
            ".*" if sign["many"] else "." if sign["one"] else re.escape(sign["plain"] or sign["other"])
            for sign in _SIGN.finditer(self._fold(pattern))
        )
        return re.fullmatch(expression, self._fold(database), re.DOTALL) is not None

    def is_only(self, pattern: str, database: str) -> bool:
        """Whether the pattern is the name of this one database if its wildcards are ordinary characters."""
        return self._fold(literal_name(pattern)) == self._fold(database)

    def has_wildcards(self, pattern: str, wildcards: str = "_%") -> bool:
        """Whether the pattern has one of these characters as a wildcard."""
        return not self.literal and any(sign[0] in wildcards for sign in _SIGN.finditer(pattern))

    def _specificity(self, pattern: str) -> int:
        """The length of a pattern before its first wildcard. A pattern without wildcards is the most specific."""
        if not self.has_wildcards(pattern):
            return len(pattern) + 1000
        return next(number for number, sign in enumerate(_SIGN.finditer(pattern)) if sign[0] in "_%")

    def _fold(self, name: str) -> str:
        return name.lower() if self.folds else name


def read_grants(lines: Iterable[str], *, literal: bool = False, folds: bool = False, any_may_count: bool = False) -> Grants:
    """Parses the lines of SHOW GRANTS; other lines than rights and roles are skipped. For the arguments see :class:`Grants`."""
    grants: list[Grant] = []
    roles: list[Role] = []
    for line in lines:
        found = _LINE.match(line)
        if found is not None:
            rest = found["rest"].upper()
            rights = frozenset(_rights(found["what"]))
            passed_on = "WITH GRANT OPTION" in rest or "GRANT OPTION" in rights
            rights -= {"USAGE", "GRANT OPTION"}
            grants.append(Grant(rights, found["where"], found["who"], passed_on, found["verb"] == "REVOKE"))
        elif (given := _ROLES.match(line)) is not None:
            may_be_passed_on = "ADMIN OPTION" in given["rest"].upper()
            roles += [Role(name, may_be_passed_on) for name in re.findall(_ACCOUNT, given["roles"]) if name.strip(", ")]
    return Grants(tuple(grants), tuple(roles), literal, folds, any_may_count)


def _rights(text: str) -> Iterable[str]:
    """The names in a list of rights. A right on single columns is not a right on the table."""
    parts = _OF_COLUMNS.sub("()", text).split(",")
    names = (part.strip().upper() for part in parts if not part.strip().endswith("()"))
    return (ALL if name == "ALL" else name for name in names)


def active_grants(session: Asking) -> Grants:
    """The grants that count for the account's connections: its own, and those of its roles that are active by default."""
    rows = session.execute("SHOW VARIABLES WHERE Variable_name IN ('partial_revokes', 'lower_case_table_names', 'version')")
    values = {str(name).lower(): str(value).upper() for name, value in rows}
    return read_grants(
        (str(row[0]) for row in session.execute("SHOW GRANTS")),
        literal=values.get("partial_revokes") == "ON",
        folds=values.get("lower_case_table_names", "0") != "0",
        any_may_count="TIDB" in values.get("version", ""),
    )


def literal_name(pattern: str) -> str:
    """The name that a pattern would match if its wildcards were ordinary characters."""
    return re.sub(r"\\(.)", r"\1", pattern, flags=re.DOTALL)


def escaped(name: str) -> str:
    """The pattern that matches only this name."""
    return re.sub(r"([\\_%])", r"\\\1", name)


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
