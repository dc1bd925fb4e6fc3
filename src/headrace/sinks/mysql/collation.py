"""The collations that TiDB means where a statement does not name them: MySQL and MariaDB have other defaults.

TiDB takes the binary collation of a character set (TiDB documentation, "Character Set and Collation"). A target that compared
keys without case would take two of the source's rows for one.
"""

from __future__ import annotations

import re

_QUOTED = r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`|/\*(?!!).*?\*/"""
_SKIPPED = re.compile(_QUOTED, re.DOTALL)
_SIGNS = re.compile(rf"{_QUOTED}|[()]", re.DOTALL)
_CHARSET = re.compile(r"\b(?:CHARACTER\s+SET|CHARSET)\s*=?\s*(?P<name>\w+)", re.IGNORECASE)
_COLLATE = re.compile(r"\bCOLLATE\b", re.IGNORECASE)
_EXCEPTIONS = {"binary": "binary", "gbk": "gbk_chinese_ci", "gb18030": "gb18030_chinese_ci"}
TIDB_COLLATION = "utf8mb4_bin"


def create_database(statement: str) -> str:
    """CREATE DATABASE with TiDB's default charset and collation spelled out, as far as the statement leaves them open."""
    return _completed(statement.rstrip().rstrip(";"), 0, inherit=False)


def create_table(statement: str, *, inherit: bool) -> str:
    """CREATE TABLE with its charset and collation spelled out.

    ``inherit``: the database's default is the source's own, so a statement that names no charset stays as it is.
    CREATE TABLE … LIKE stays as it is always.
    """
    start = _after_columns(statement)
    return statement if start is None else _completed(statement, start, inherit=inherit)


def _completed(statement: str, start: int, *, inherit: bool) -> str:
    visible = _SKIPPED.sub(lambda found: " " * len(found[0]), statement)
    if _COLLATE.search(visible, start):
        return statement
    named = _CHARSET.search(visible, start)
    if named is not None:
        charset = named["name"].lower()
        end = named.end()
        return f"{statement[:end]} COLLATE {_EXCEPTIONS.get(charset, f'{charset}_bin')}{statement[end:]}"
    if inherit:
        return statement
    end = start or len(statement)
    return f"{statement[:end]} DEFAULT CHARACTER SET utf8mb4 COLLATE {TIDB_COLLATION}{statement[end:]}"


def _after_columns(statement: str) -> int | None:
    """Where the parenthesis of the column definitions ends; ``None`` when there is none."""
    depth = 0
    for found in _SIGNS.finditer(statement):
        if found[0] == "(":
            depth += 1
        elif found[0] == ")":
            depth -= 1
            if depth == 0:
                return found.end()
    return None
