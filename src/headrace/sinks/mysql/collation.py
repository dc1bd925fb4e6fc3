"""The collations that TiDB uses if a statement names none: MySQL and MariaDB have other defaults.

TiDB uses the binary collation of a character set (TiDB documentation, "Character Set and Collation"). A target that compared keys
without case would treat two of the source's rows as one.
"""

from __future__ import annotations

import re

from headrace.ddl.lexer import Cursor, rendered
from headrace.ddl.mask import edited, masked, name_found
from headrace.ddl.statement import read_statement
from headrace.model.table import TableId, folded_name
from headrace.sinks.mysql.types import qualified

_NAMED = r"\s*=?\s*(?P<name>\w+|\.+)"  # TiDB also takes the name in quotes
CHARSET = re.compile(rf"\b(?:CHAR(?:ACTER)?\s+SET|CHARSET)\b{_NAMED}", re.IGNORECASE)
"""The name of a character set, behind the words for it, in a statement whose texts are masked."""
_COLLATE = re.compile(r"\bCOLLATE\b", re.IGNORECASE)
_COLLATION = re.compile(rf"\bCOLLATE\b{_NAMED}", re.IGNORECASE)
_CAST = re.compile(r"\bAS\s+N?CHAR\b", re.IGNORECASE)
_BINARY = re.compile(
    r"\b(?P<type>(?:CHAR(?:ACTER)?(?!\s+SET)|VARCHAR|VARCHARACTER|(?:TINY|MEDIUM|LONG)?TEXT)\b(?:\s*\(\s*\d+\s*\))?"
    r"(?:\s+(?:CHAR(?:ACTER)?\s+SET|CHARSET)\s+\w+)?)\s+BINARY\b",
    re.IGNORECASE,
)
_WITH_CHARSETS = re.compile(r"\s*(?:CREATE|ALTER)\s+(?:IGNORE\s+)?(?:TABLE|DATABASE|SCHEMA)\b", re.IGNORECASE)
_CREATE_TABLE = re.compile(r"\s*CREATE\s+TABLE\b", re.IGNORECASE)
_EXCEPTIONS = {"gbk": "gbk_chinese_ci", "gb18030": "gb18030_chinese_ci"}
TIDB_COLLATION = "utf8mb4_bin"
BY_BYTES = "utf8mb4_0900_bin"
"""Distinguishes texts that differ in a byte, including trailing spaces. MariaDB's name for it is substituted later."""


def create_database(statement: str, *, by_bytes: bool = False) -> str:
    """CREATE DATABASE with TiDB's default charset and collation written out where the statement names none.

    ``by_bytes``: see :func:`spell_out`.
    """
    default = BY_BYTES if by_bytes else TIDB_COLLATION
    return _with_default(spell_out(statement.rstrip().rstrip(";"), by_bytes=by_bytes), None, default)


def create_table(statement: str, default: str, *, by_bytes: bool = False) -> str:
    """CREATE TABLE with its charset and collation written out; ``default`` if it names none.

    CREATE TABLE … LIKE is not changed. ``by_bytes``: see :func:`spell_out`.
    """
    spelled = spell_out(statement, by_bytes=by_bytes)
    end = _after_columns(masked(spelled))
    return spelled if end is None else _with_default(spelled, end, default)


def names_none(statement: str) -> bool:
    """Whether it is a CREATE TABLE whose collation is left to its database."""
    visible = masked(statement)
    end = _after_columns(visible) if _CREATE_TABLE.match(visible) else None
    return end is not None and not _COLLATE.search(visible, end) and not CHARSET.search(visible, end)


def as_default(collation: str) -> str:
    """The table or database option for this default collation."""
    return f"DEFAULT CHARACTER SET {collation.partition('_')[0]} COLLATE {collation}"


def spell_out(statement: str, *, by_bytes: bool = False) -> str:
    """The statement with a collation after every character set of a column, table or database that has none.

    ``binary``, which makes a text column a column of bytes, has only its own collation. ``by_bytes``: the source compares byte by
    byte, whatever it names, so every character set and collation becomes the one that does so, except for ``binary``.
    """
    visible = masked(statement)
    if not _WITH_CHARSETS.match(visible):
        return statement
    if by_bytes:
        statement = _all_by_bytes(statement)
        visible = masked(statement)
    edits = []
    for named in CHARSET.finditer(visible):
        clause = _clause_around(visible, named.start())
        charset = name_found(statement, named)
        if (
            charset not in ("", "binary")
            and not _COLLATE.search(clause)
            and not _CAST.search(clause)
            and not _BINARY.search(clause.replace("(", " ").replace(")", " "))
        ):
            collation = BY_BYTES if by_bytes else _EXCEPTIONS.get(charset, f"{charset}_bin")
            edits.append((named.end(), named.end(), f" COLLATE {collation}"))
    return edited(statement, edits)


def to_modify(created: str, table_id: TableId, column: str, collation: str) -> str:
    """How a person can give a text column another collation, as the middle of a sentence.

    ``created`` is the target's SHOW CREATE TABLE. MODIFY removes what it does not repeat, and empties a generated column without
    its expression. So the statement has the whole definition, in which only the collation differs.
    """
    for definition in read_statement(created, table_id.database).definitions:
        words = Cursor(definition)
        name = words.next()
        if not name.is_name or folded_name(name.text) != folded_name(column):
            continue
        words.next()
        words.group()  # the type's length, or its members
        typed = definition[: words.at]
        if words.accept("CHARACTER", "SET"):
            words.next()
        if words.accept("COLLATE"):
            words.next()
        rest = "" if words.done else f" {rendered(words.rest())}"
        modify = f"MODIFY {rendered(typed)} COLLATE {collation}{rest}"
        return f"run ALTER TABLE {qualified(table_id)} {modify}; in the target"
    return f"change the collation of the column {column} to {collation} in the target, and nothing else of its definition"


def _all_by_bytes(statement: str) -> str:
    # The attribute BINARY selects a PAD SPACE collation.
    statement = edited(statement, [(found.end("type"), found.end(), "") for found in _BINARY.finditer(masked(statement))])
    visible = masked(statement)
    named = [(found, "utf8mb4") for found in CHARSET.finditer(visible)] + [(f, BY_BYTES) for f in _COLLATION.finditer(visible)]
    return edited(
        statement,
        [
            (*found.span("name"), name)
            for found, name in named
            if name_found(statement, found) not in ("", "binary") and not _CAST.search(_clause_around(visible, found.start()))
        ],
    )


def _with_default(statement: str, after: int | None, collation: str) -> str:
    visible = masked(statement)
    if _COLLATE.search(visible, after or 0):
        return statement
    end = len(statement) if after is None else after
    return f"{statement[:end]} {as_default(collation)}{statement[end:]}"


def _clause_around(visible: str, at: int) -> str:
    """The text around a place, up to the next commas and parentheses of its own level, without deeper levels."""
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
    """Where the parenthesis of the column definitions ends; ``None`` if there is none."""
    depth = 0
    for at, sign in enumerate(visible):
        depth += (sign == "(") - (sign == ")")
        if sign == ")" and depth == 0:
            return at + 1
    return None
