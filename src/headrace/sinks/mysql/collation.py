"""The collations that TiDB means where a statement does not name them: MySQL and MariaDB have other defaults.

TiDB takes the binary collation of a character set (TiDB documentation, "Character Set and Collation"). A target that compared
keys without case would take two of the source's rows for one.
"""

from __future__ import annotations

import re

_QUOTED = r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`|/\*(?!!).*?\*/"""
_SKIPPED = re.compile(_QUOTED, re.DOTALL)
_CHARSET = re.compile(r"\b(?:CHARACTER\s+SET|CHARSET)\s*=?\s*(?P<name>\w+)", re.IGNORECASE)
_COLLATE = re.compile(r"\bCOLLATE\b", re.IGNORECASE)
_CAST = re.compile(r"\bAS\s+N?CHAR\b", re.IGNORECASE)
_WITH_CHARSETS = re.compile(r"\s*(?:CREATE|ALTER)\s+(?:IGNORE\s+)?(?:TABLE|DATABASE|SCHEMA)\b", re.IGNORECASE)
_EXCEPTIONS = {"binary": "binary", "gbk": "gbk_chinese_ci", "gb18030": "gb18030_chinese_ci"}
TIDB_COLLATION = "utf8mb4_bin"


def create_database(statement: str) -> str:
    """CREATE DATABASE with TiDB's default charset and collation spelled out, as far as the statement leaves them open."""
    return _with_default(spell_out(statement.rstrip().rstrip(";")), None)


def create_table(statement: str, *, inherit: bool) -> str:
    """CREATE TABLE with its charset and collation spelled out.

    ``inherit``: the database's default is the source's own, so a statement that names no charset stays as it is.
    CREATE TABLE … LIKE stays as it is always.
    """
    spelled = spell_out(statement)
    end = _after_columns(_visible(spelled))
    return spelled if end is None or inherit else _with_default(spelled, end)


def spell_out(statement: str) -> str:
    """The statement with the collation behind every character set of a column, table or database that is named without one."""
    visible = _visible(statement)
    if not _WITH_CHARSETS.match(visible):
        return statement
    for named in reversed(list(_CHARSET.finditer(visible))):
        clause = _clause_around(visible, named.start())
        if not _COLLATE.search(clause) and not _CAST.search(clause):
            charset, end = named["name"].lower(), named.end()
            statement = f"{statement[:end]} COLLATE {_EXCEPTIONS.get(charset, f'{charset}_bin')}{statement[end:]}"
    return statement


def _visible(statement: str) -> str:
    """The statement with strings, names and comments blanked out, every other character in its place."""
    return _SKIPPED.sub(lambda found: " " * len(found[0]), statement)


def _with_default(statement: str, after: int | None) -> str:
    visible = _visible(statement)
    if _COLLATE.search(visible, after or 0):
        return statement
    end = len(statement) if after is None else after
    return f"{statement[:end]} DEFAULT CHARACTER SET utf8mb4 COLLATE {TIDB_COLLATION}{statement[end:]}"


def _clause_around(visible: str, at: int) -> str:
    """What stands around a place up to the next commas and parentheses of its own level; deeper levels are left out."""
    found = []
    for places in (range(at - 1, -1, -1), range(at, len(visible))):
        inwards, outwards = (")", "(") if places.step < 0 else ("(", ")")
        depth = 0
        side = []
        for place in places:
            sign = visible[place]
            depth += (sign == inwards) - (sign == outwards)
            if depth < 0 or (depth == 0 and sign == ","):
                break
            side.append(sign if depth == 0 else " ")
        found.append("".join(reversed(side)) if places.step < 0 else "".join(side))
    return found[0] + found[1]


def _after_columns(visible: str) -> int | None:
    """Where the parenthesis of the column definitions ends; ``None`` when there is none."""
    depth = 0
    for at, sign in enumerate(visible):
        depth += (sign == "(") - (sign == ")")
        if sign == ")" and depth == 0:
            return at + 1
    return None
