"""Foreign keys that a target must not have: of or to tables that are not the pipeline's, and those that TiDB itself ignores."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from headrace.ddl.lexer import Cursor, words
from headrace.model.table import TableId
from headrace.sinks.mysql.adaptation.draft import Draft

_FOREIGN = re.compile(r"\bFOREIGN\s+KEY\b", re.IGNORECASE)
_ACTION = r"(?:RESTRICT|CASCADE|SET\s+NULL|SET\s+DEFAULT|NO\s+ACTION)"
_OF_COLUMN = re.compile(
    r"\bREFERENCES\s*[\w.]+(?:\s*\([^()]*(?:\([^()]*\)[^()]*)*\))?(?:\s+MATCH\s+\w+)?"
    rf"(?:\s*\bON\s+(?:DELETE|UPDATE)\s+{_ACTION})*",
    re.IGNORECASE,
)


def leave_out(draft: Draft, database: str, foreign: Collection[TableId]) -> None:
    """Removes foreign keys to ``foreign`` tables, and the REFERENCES of columns, which TiDB parses and ignores.

    Names without a database are in ``database``. A key to a table of others would prevent its owners from deleting rows.
    """
    folded = {name.folded for name in foreign}

    def is_foreign(text: str, masked: str) -> bool:
        parent = _parent(text, database) if _FOREIGN.search(masked) else None
        return parent is not None and parent.folded in folded

    draft.drop_clauses(
        is_foreign, "{clause} was left out: this table or the one that it refers to is not one of this pipeline's, or not there."
    )
    ignored = []
    for start, end in reversed(draft.clauses()):
        masked = draft.masked[start:end]
        if _FOREIGN.search(masked) and _parent(draft.text[start:end], database) is not None:
            continue
        for found in reversed(list(_OF_COLUMN.finditer(masked))):
            first, last = start + found.start(), start + found.end()
            draft.tell("{clause} of a column was left out, as TiDB ignores it.", draft.text[first:last])
            ignored.append((first, last, ""))
    draft.edit(ignored)


def leave_out_missing(draft: Draft, server: str, has_key: Callable[[str], bool]) -> None:
    """Removes the DROP of keys that the table does not have, since they may have been left out at their creation."""

    def is_missing(text: str, masked: str) -> bool:
        clause = Cursor(words(text) or () if _FOREIGN.search(masked) else ())
        if not clause.accept("DROP", "FOREIGN", "KEY"):
            return False
        clause.accept("IF", "EXISTS")
        return not has_key(clause.next().text)

    draft.drop_clauses(is_missing, f"{{clause}} was left out: the table in {server} has no such key.")


def _parent(text: str, database: str) -> TableId | None:
    """The table to which the foreign key of a clause refers; ``None`` for a clause without one."""
    clause = Cursor(words(text) or ())
    clause.accept("ADD")
    if clause.accept("CONSTRAINT") and not clause.peek().says("FOREIGN"):
        clause.next()
    if not clause.accept("FOREIGN", "KEY"):
        return None
    while not clause.done:
        if clause.accept("REFERENCES"):
            named, name = clause.name()
            return TableId(named or database, name)
        clause.next()
    return None
