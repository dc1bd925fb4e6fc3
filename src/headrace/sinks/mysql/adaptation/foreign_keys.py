"""Foreign keys that a target must not have: of or to tables that are not the pipeline's, and those that TiDB itself ignores."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from headrace.ddl.lexer import Cursor, words
from headrace.model.table import TableId
from headrace.sinks.mysql.adaptation.draft import Draft
from headrace.sinks.mysql.text import unquoted_name

_NAME = r"[\w$.]+"
_KEY = re.compile(
    rf"\s*(?:ADD\s+)?(?:CONSTRAINT\s+(?:(?!FOREIGN\b)\S+\s+)?)?FOREIGN\s+KEY\b.*?\bREFERENCES\s+(?P<name>{_NAME})",
    re.IGNORECASE | re.DOTALL,
)
_ACTION = r"(?:RESTRICT|CASCADE|SET\s+NULL|SET\s+DEFAULT|NO\s+ACTION)"
_DROPPED = re.compile(r"\s*DROP\s+FOREIGN\s+KEY\s+(?:IF\s+EXISTS\s+)?(?P<name>[^\s;]+)", re.IGNORECASE)
_OF_COLUMN = re.compile(
    rf"\bREFERENCES\s+{_NAME}(?:\s*\([^()]*(?:\([^()]*\)[^()]*)*\))?(?:\s+MATCH\s+\w+)?(?:\s+ON\s+(?:DELETE|UPDATE)\s+{_ACTION})*",
    re.IGNORECASE,
)


def leave_out(draft: Draft, database: str, foreign: Collection[TableId]) -> None:
    """Removes foreign keys to ``foreign`` tables, and the REFERENCES of columns, which TiDB parses and ignores.

    Names without a database are in ``database``. A key to a table of others would prevent its owners from deleting rows.
    """
    folded = {name.folded for name in foreign}

    def is_foreign(text: str, masked: str) -> bool:
        found = _KEY.match(masked)
        return found is not None and _named(text[slice(*found.span("name"))], database).folded in folded

    draft.drop_clauses(
        is_foreign, "{clause} was left out: this table or the one that it refers to is not one of this pipeline's, or not there."
    )
    for start, end in reversed(draft.clauses()):
        masked = draft.masked[start:end]
        if _KEY.match(masked):
            continue
        for found in reversed(list(_OF_COLUMN.finditer(masked))):
            first, last = start + found.start(), start + found.end()
            draft.tell("{clause} of a column was left out, as TiDB ignores it.", draft.text[first:last])
            draft.put(first, last)


def leave_out_missing(draft: Draft, server: str, has_key: Callable[[str], bool]) -> None:
    """Removes the DROP of keys that the table does not have, since they may have been left out at their creation."""

    def is_missing(text: str, masked: str) -> bool:
        found = _DROPPED.match(masked)
        return found is not None and not has_key(unquoted_name(text[slice(*found.span("name"))]))

    draft.drop_clauses(is_missing, f"{{clause}} was left out: the table in {server} has no such key.")


def _named(text: str, database: str) -> TableId:
    named, name = Cursor(words(text) or ()).name()
    return TableId(named or database, name)
