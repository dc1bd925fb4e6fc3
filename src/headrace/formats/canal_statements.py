"""Canal-JSON messages without rows, for Kafka: schema changes and watermarks. They have no keys.

Format: TiCDC documentation, "TiCDC Canal-JSON Protocol", sections "DDL Event" and "WATERMARK Event".
"""

from __future__ import annotations

import re
from enum import StrEnum

from headrace.ddl.lexer import begins_with
from headrace.ddl.statement import StatementKind, read_statement
from headrace.formats.canal_encoder import TEXTS, beginning, now_ms
from headrace.model.table import TableId
from headrace.model.tso import LOGICAL_BITS


class CanalStatementType(StrEnum):
    """The ``type`` of a message of a schema change."""

    CREATE = "CREATE"
    RENAME = "RENAME"
    CREATE_INDEX = "CINDEX"
    DROP_INDEX = "DINDEX"
    ALTER = "ALTER"
    DROP = "ERASE"
    TRUNCATE = "TRUNCATE"
    OTHER = "QUERY"
    """Databases, views, and everything else."""


_OF_STATEMENTS = {
    StatementKind.CREATE_TABLE: CanalStatementType.CREATE,
    StatementKind.DROP_TABLE: CanalStatementType.DROP,
    StatementKind.TRUNCATE_TABLE: CanalStatementType.TRUNCATE,
    StatementKind.RENAME_TABLE: CanalStatementType.RENAME,
    StatementKind.CREATE_INDEX: CanalStatementType.CREATE_INDEX,
}
_INDEX_WORDS = frozenset({"INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "PRIMARY", "FOREIGN", "CONSTRAINT"})
_OF_INDEX_ACTIONS = {"ADD": CanalStatementType.CREATE_INDEX, "DROP": CanalStatementType.DROP_INDEX}
_IN_STRINGS = re.compile(r"`(?:[^`]|``)*`|\"(?:[^\"\\]|\"\"|\\.)*\"|'(?:[^'\\]|''|\\.)*'", re.DOTALL)
_BACKSLASH = re.compile(r"\\(.)", re.DOTALL)
_LETTERS = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "'": "''", "%": "\\%", "_": "\\_"}


def statement_type(statement: str, database: str) -> CanalStatementType:
    """The ``type`` of a schema change's message. ``database`` is the current one for names without a database."""
    read = read_statement(statement, database)
    if read.kind in _OF_STATEMENTS:
        return _OF_STATEMENTS[read.kind]
    if begins_with(statement, "DROP", "INDEX"):
        return CanalStatementType.DROP_INDEX
    if read.kind is not StatementKind.ALTER_TABLE:
        return CanalStatementType.OTHER
    if read.renames:
        return CanalStatementType.RENAME
    first = [word.text.upper() for word in read.actions[0][:2] if not word.is_name] if read.actions else []
    if len(first) == 2 and first[0] in _OF_INDEX_ACTIONS and first[1] in _INDEX_WORDS:
        return _OF_INDEX_ACTIONS[first[0]]
    return CanalStatementType.ALTER


def statement_message(table_id: TableId, statement: str, commit_ts: int, *, extension: bool, built_ms: int | None = None) -> bytes:
    """The message of a schema change, for partition 0 of the topic of its table.

    ``table_id`` is the table afterwards, without a table for a change of a database; its database is the current one for names
    without one. ``statement`` is as a server reads it, with backslashes as escapes in its strings. ``commit_ts`` is a TSO,
    ``extension`` is ``enable-tidb-extension``, and ``built_ms`` as for :meth:`CanalJsonEncoder.lines`.
    """
    kind = statement_type(statement, table_id.database)
    told = f'"_tidb":{{"commitTs":{commit_ts}}}' if extension else ""
    return _without_rows(table_id, kind, is_ddl=True, ts=commit_ts, statement=_plain(statement), extension=told, built_ms=built_ms)


def watermark_message(watermark_ts: int, built_ms: int | None = None) -> bytes:
    """The message that all changes up to a commit ts (TSO) are in the topic, for every partition.

    It exists only with ``enable-tidb-extension``; without it, TiCDC writes no watermark.
    """
    told = f'"_tidb":{{"watermarkTs":{watermark_ts}}}'
    kind = "TIDB_WATERMARK"
    return _without_rows(TableId(""), kind, is_ddl=False, ts=watermark_ts, statement="", extension=told, built_ms=built_ms)


def _without_rows(
    table_id: TableId, kind: str, *, is_ddl: bool, ts: int, statement: str, extension: str, built_ms: int | None
) -> bytes:
    built = now_ms() if built_ms is None else built_ms
    flag = "true" if is_ddl else "false"
    return (
        beginning(table_id.database, table_id.table)
        + f'"pkNames":null,"isDdl":{flag},"type":"{kind}","es":{ts >> LOGICAL_BITS},"ts":{built},"sql":{TEXTS.quoted(statement)},'
        + '"sqlType":null,"mysqlType":null,"data":null,"old":null'
        + (f",{extension}}}" if extension else "}")
    ).encode()


def _plain(statement: str) -> str:
    """The statement as TiCDC writes it: in strings in single quotes a backslash is a plain character, and quotes are doubled."""

    def plain(found: re.Match[str]) -> str:
        if found[0][0] != "'":
            return found[0]
        return _BACKSLASH.sub(lambda escape: _LETTERS.get(escape[1], escape[1]), found[0])

    return _IN_STRINGS.sub(plain, statement)
