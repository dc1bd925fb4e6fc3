"""Statements that empty, drop or exchange a partition, on servers that put other rows into a partition than TiDB.

TiDB has its own hash for KEY and treats LINEAR HASH as plain HASH. Its first partition has the rows whose HASH expression is NULL
(MariaDB 10.11, as tested, uses another one, depending on the type). HASH of other values agrees, and so do RANGE and LIST if texts
compare as in the source.
"""

from __future__ import annotations

from headrace.ddl.computing import excess
from headrace.ddl.grammar.statements import judge_expression
from headrace.ddl.lexer import words
from headrace.ddl.statement import read_statement
from headrace.model.events import DeletePartitionRowsEvent, ExchangePartitionEvent, SchemaChange
from headrace.model.outcome import Problem, Remedy
from headrace.model.table import TableId, folded_name
from headrace.sinks.metadata_applier import SchemaChangeRefused
from headrace.sinks.mysql import catalogue
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.statements import refused
from headrace.sinks.mysql.text import quote_name
from headrace.sinks.mysql.types import qualified

_BY_CONTENT = frozenset({"TRUNCATE", "DROP", "EXCHANGE"})


def same_rows(session: MySqlSession, change: SchemaChange, statement: str) -> str:
    """The statement, or another one with the source's effect on rows. Raises SchemaChangeRefused if there is none."""
    read = read_statement(change.statement, change.database)
    named = [action for action in read.actions if len(action) > 2 and action[1].says("PARTITION") and not action[2].says("ALL")]
    if session.is_tidb or not any(action[0].text.upper() in _BY_CONTENT for action in named):
        return statement
    table_id = read.tables[0]
    method, expression = catalogue.partitioning(session, table_id)
    if method.startswith(("RANGE", "LIST")) or not method:
        _refuse_texts(session, change, table_id, method, expression)
        return statement
    if method == "HASH":
        tables = {table_id} | {event.other for event in change.events if isinstance(event, ExchangePartitionEvent)}
        if not any(_has_null(session, table, expression) for table in tables):
            return statement
        deleted = [event for event in change.events if isinstance(event, DeletePartitionRowsEvent)]
        if deleted and len(deleted) == len(change.events) == len(read.actions):
            judged = (judge_expression(event.condition) or excess(event.condition, change.schema) for event in deleted)
            if why := next(filter(None, judged), ""):
                raise refused(change, f"the rows of the partition depend on an expression that cannot run: {why}.")
            conditions = " OR ".join(f"({event.condition})" for event in deleted)
            return f"DELETE FROM {qualified(table_id)} WHERE {conditions}"
    message = f"the target puts other rows than TiDB into a partition by {method}, so the statement would hit the wrong ones."
    hint = "Load the table anew and skip the statement, or partition the table in the target by RANGE or LIST."
    raise SchemaChangeRefused(Problem(change.table_id, message, place=change.origin, hint=hint, remedy=Remedy.RESYNC))


def spelled_as_here(session: MySqlSession, statement: str, database: str) -> str:
    """The statement, with the partition that it exchanges spelled as in the target.

    Partition names are compared without case, but on MariaDB (10.11) such an EXCHANGE fails with an error about renaming a file.
    """
    read = read_statement(statement, database)
    named = (a[2] for a in read.actions if len(a) > 2 and a[0].says("EXCHANGE") and a[1].says("PARTITION"))
    word = next(named, None)
    if word is None:
        return statement
    here = {folded_name(name): name for name in catalogue.partitions(session, read.tables[0])}
    name = here.get(folded_name(word.text), word.text)
    return statement if name == word.text else f"{statement[: word.start]}{quote_name(name)}{statement[word.end :]}"


def _refuse_texts(session: MySqlSession, change: SchemaChange, table_id: TableId, method: str, expression: str) -> None:
    """Raises SchemaChangeRefused if the partition depends on a text that the source may compare differently."""
    named = {folded_name(word.text) for word in words(expression) or () if not word.is_literal}
    for column, collation in catalogue.text_columns(session, table_id).items():
        if folded_name(column) in named and not _compares_as_source(collation, by_bytes=change.by_bytes):
            message = (
                f"which rows are in a partition by {method} depends on how texts compare. The target compares these by {collation},"
                " the source perhaps otherwise, so the statement could hit the wrong rows."
            )
            hint = "Load the table anew and skip the statement, or edit it to a DELETE of the rows that the source removed."
            raise SchemaChangeRefused(
                Problem(change.table_id, message, place=change.origin, column=column, hint=hint, remedy=Remedy.RESYNC)
            )


def _compares_as_source(collation: str, *, by_bytes: bool) -> bool:
    """Whether the source certainly compares in the same way.

    A source without new collations compares bytes, whatever the collation's name. Only a ``_bin`` collation means the same in both
    kinds of source. A NO PAD collation alone proves nothing: a person may have used it in place of another one that this server
    compares differently from TiDB (see ``handle.refuse_coarse_keys``).
    """
    if collation == "binary" or by_bytes:
        return catalogue.compares_bytes(collation)
    return collation.endswith("_bin") and not catalogue.compares_bytes(collation)


def _has_null(session: MySqlSession, table_id: TableId, expression: str) -> bool:
    return session.finds(f"SELECT 1 FROM {qualified(table_id)} WHERE ({expression}) IS NULL LIMIT 1")
