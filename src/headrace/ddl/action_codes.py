"""TiDB's numbers of schema changes (``ActionType``), as TiCDC writes them beside a statement.

Source: TiCDC documentation, "Replicate Data to Storage Services", attribute ``Type``, and the table of codes in section 3.5 of the
format's specification. Readers take the number as a hint and the statement as the truth.
"""

from __future__ import annotations

from headrace.ddl.lexer import Word
from headrace.ddl.statement import Statement, StatementKind

NONE = 0
"""Of a file that only describes a shape."""
CREATE_DATABASE, DROP_DATABASE, CREATE_TABLE, DROP_TABLE = 1, 2, 3, 4
TRUNCATE_TABLE, RENAME_TABLE, CREATE_VIEW, DROP_VIEW, EXCHANGE_PARTITION = 11, 14, 21, 24, 42
_SEVERAL = 61
_BY_KIND = {
    StatementKind.CREATE_DATABASE: CREATE_DATABASE,
    StatementKind.DROP_DATABASE: DROP_DATABASE,
    StatementKind.ALTER_DATABASE: 26,
    StatementKind.CREATE_TABLE: CREATE_TABLE,
    StatementKind.DROP_TABLE: DROP_TABLE,
    StatementKind.TRUNCATE_TABLE: TRUNCATE_TABLE,
    StatementKind.RENAME_TABLE: RENAME_TABLE,
    StatementKind.CREATE_INDEX: 7,
    StatementKind.CREATE_VIEW: CREATE_VIEW,
    StatementKind.DROP_VIEW: DROP_VIEW,
}
_BY_TWO_WORDS = {
    "ADD INDEX": 7,
    "ADD KEY": 7,
    "ADD UNIQUE": 7,
    "DROP INDEX": 8,
    "DROP KEY": 8,
    "ADD FOREIGN": 9,
    "DROP FOREIGN": 10,
    "ADD PRIMARY": 32,
    "DROP PRIMARY": 33,
    "ADD PARTITION": 19,
    "DROP PARTITION": 20,
    "TRUNCATE PARTITION": 23,
    "REMOVE PARTITIONING": 72,
    "PARTITION BY": 71,
    "RENAME INDEX": 18,
    "RENAME KEY": 18,
    "RENAME COLUMN": 12,
    "ALTER INDEX": 41,
    "REMOVE TTL": 67,
}
_BY_WORD = {
    "ADD": 5,
    "DROP": 6,
    "MODIFY": 12,
    "CHANGE": 12,
    "AUTO_INCREMENT": 13,
    "RENAME": RENAME_TABLE,
    "ALTER": 15,
    "COMMENT": 17,
    "CHARACTER": 22,
    "CHARSET": 22,
    "COLLATE": 22,
    "CONVERT": 22,
    "DEFAULT": 22,
    "EXCHANGE": EXCHANGE_PARTITION,
    "REORGANIZE": 64,
    "TTL": 65,
}


def action_code(statement: Statement) -> int:
    """The number of a statement; :data:`NONE` for one that has no number here, and for none at all."""
    if statement.brings_back:
        return 25
    if statement.kind is not StatementKind.ALTER_TABLE:
        return _BY_KIND.get(statement.kind, _of_actions(statement))
    return _of_actions(statement)


def _of_actions(statement: Statement) -> int:
    if len(statement.actions) > 1:
        return _SEVERAL
    return _of_action(statement.actions[0]) if statement.actions else NONE


def _of_action(action: tuple[Word, ...]) -> int:
    first, second = (word.text.upper() if not (word.is_name or word.is_literal) else "" for word in (*action, *_NO_WORDS)[:2])
    return _BY_TWO_WORDS.get(f"{first} {second}", _BY_WORD.get(first, NONE))


_NO_WORDS = (Word("", is_name=True), Word("", is_name=True))
