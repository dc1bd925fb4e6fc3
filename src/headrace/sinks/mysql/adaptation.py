"""Rewrites of TiDB's DDL for servers that lack what it names, each with the sentence that tells people what was lost.

``VECTOR`` becomes LONGTEXT outside TiDB, as TiCDC does it: the data carry its text. MariaDB (10.11 tried) knows no NOT NULL on
generated columns, no indexes over expressions and no ``->`` operators.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.sinks.mysql.connection import MySqlSession

_QUOTED = re.compile(r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`|/\*(?!!).*?\*/""", re.DOTALL)
_VECTOR = re.compile(r"\bVECTOR\b(?:\s*<\s*FLOAT\s*>)?(?:\s*\(\s*\d+\s*\))?", re.IGNORECASE)
_GENERATED_NOT_NULL = re.compile(r"(?P<kept>\b(?:STORED|VIRTUAL))\s+NOT\s+NULL\b", re.IGNORECASE)
_ARROW = re.compile(
    r"(?P<column>(?:`(?:[^`]|``)*`\.)*`(?:[^`]|``)*`|\b[A-Za-z_]\w*)\s*(?P<arrow>->>?)\s*(?P<path>'(?:[^'\\]|\\.)*')"
)
_INDEX = re.compile(r"\s*(?:ADD\s+)?(?:UNIQUE\s+)?(?:INDEX|KEY|UNIQUE)\b", re.IGNORECASE)
_INDEX_OF_EXPRESSION = re.compile(r"[(,]\s*\(")
_CREATE_INDEX = re.compile(r"\s*CREATE\s+(?:UNIQUE\s+)?INDEX\b", re.IGNORECASE)
_CREATE_TABLE = re.compile(r"\s*CREATE\s+TABLE\b", re.IGNORECASE)
_ALTER_TABLE = re.compile(r"\s*ALTER\s+TABLE\s+(?:\S+)", re.IGNORECASE)


@dataclass(frozen=True)
class Adapted:
    """A statement for this server, empty when nothing of it is left, and what was changed."""

    statement: str
    notices: tuple[str, ...] = ()


def adapt(statement: str, session: MySqlSession) -> Adapted:
    """The statement as this server can read it."""
    return adapt_for(statement, tidb=session.is_tidb, mariadb="MariaDB" in session.version)


def adapt_for(statement: str, *, tidb: bool, mariadb: bool) -> Adapted:
    """See :func:`adapt`."""
    notices: list[str] = []
    if not tidb:
        statement = _replaced(statement, _VECTOR, "LONGTEXT", notices, "a VECTOR column is kept as its text (LONGTEXT).")
    if mariadb:
        lost = "NOT NULL of a generated column was left out, which MariaDB does not know."
        statement = _replaced(statement, _GENERATED_NOT_NULL, r"\g<kept>", notices, lost)
        statement = _ARROW.sub(_extraction, statement)
        kept = _without_expression_indexes(statement)
        if kept != statement:
            notices.append("an index over an expression was left out, which MariaDB does not know.")
        statement = kept
    return Adapted(statement, tuple(notices))


def _masked(statement: str) -> str:
    """The statement with names, strings and comments blanked out, every other character in its place."""
    return _QUOTED.sub(lambda found: "." * len(found[0]), statement)


def _replaced(statement: str, pattern: re.Pattern[str], replacement: str, notices: list[str], notice: str) -> str:
    found = list(pattern.finditer(_masked(statement)))
    for match in reversed(found):
        statement = statement[: match.start()] + match.expand(replacement) + statement[match.end() :]
    if found:
        notices.append(notice)
    return statement


def _extraction(found: re.Match[str]) -> str:
    extracted = f"JSON_EXTRACT({found['column']}, {found['path']})"
    return f"JSON_UNQUOTE({extracted})" if found["arrow"] == "->>" else extracted


def _without_expression_indexes(statement: str) -> str:
    masked = _masked(statement)
    if _CREATE_INDEX.match(masked):
        return "" if _INDEX_OF_EXPRESSION.search(masked) else statement
    if _CREATE_TABLE.match(masked):
        start = masked.find("(") + 1
        return _without_parts(statement, masked, start) if start else statement
    head = _ALTER_TABLE.match(masked)
    return _without_parts(statement, masked, head.end()) if head else statement


def _without_parts(statement: str, masked: str, start: int) -> str:
    """Leaves out the indexes over expressions among the comma-separated parts from ``start`` on."""
    parts = list(_parts(masked, start))
    kept = [(a, b) for a, b in parts if not (_INDEX.match(masked[a:b]) and _INDEX_OF_EXPRESSION.search(masked[a:b]))]
    if len(kept) == len(parts):
        return statement
    if not kept:
        return ""
    return statement[:start] + ",".join(statement[a:b] for a, b in kept) + statement[parts[-1][1] :]


def _parts(masked: str, start: int) -> Iterator[tuple[int, int]]:
    """The bounds of the parts between commas, up to the end or to the parenthesis that closes them."""
    depth, begin = 0, start
    for at in range(start, len(masked)):
        if masked[at] == ")" and depth == 0:
            yield begin, at
            return
        depth += (masked[at] == "(") - (masked[at] == ")")
        if masked[at] == "," and depth == 0:
            yield begin, at
            begin = at + 1
    yield begin, len(masked)
