"""Why a schema change does not run automatically: its statement is not understood, or names something that it must not touch. Pure.

Whoever writes the source's files controls the statements, and a target runs them with the rights of the pipeline's account. So a
statement runs only if the grammar covers every word of it (``headrace.ddl.grammar``), and if the change may touch each name in it:
the object in whose file it is, and what the filter includes. All other statements wait for a decision.
"""

from __future__ import annotations

from headrace.ddl.grammar.statements import Judgement, judge
from headrace.ddl.statement import Statement, StatementKind, read_statement
from headrace.engine.excluded_tables import Followed
from headrace.engine.unreadable import is_understood
from headrace.model.events import SchemaChange
from headrace.model.table import TableId, folded_name
from headrace.sinks.reserved import Reserved

_OF_DATABASES = frozenset({StatementKind.CREATE_DATABASE, StatementKind.DROP_DATABASE, StatementKind.ALTER_DATABASE})
_SYSTEM_OF_TIDB = frozenset({"information_schema", "inspection_schema", "metrics_schema", "mysql", "performance_schema"})
_DROPS = frozenset({StatementKind.DROP_TABLE, StatementKind.DROP_VIEW})


def objection(change: SchemaChange, follows: Followed) -> str:
    """Why the change waits for a person, as a sentence; empty if it may run, or has no statement."""
    judgement = judge(change.statement, change.database)
    why = judgement.objection
    if not why and change.statement.strip():
        read = read_statement(change.statement, change.database)
        why = _of_system(judgement) or _of_others(change, read) or _of_left_out(change, read, judgement, follows)
    if not why:
        return ""
    statement = " ".join(change.statement.split())
    return f"its schema change at {change.commit_ts} does not run by itself, because {why}: {statement}."


def databases_of(change: SchemaChange) -> list[str]:
    """The databases of all tables that the change touches and that its statement names, sorted.

    For a statement that is not understood: those of its own table and of the names that can be read. The tables that wait for it do
    not count.
    """
    read = read_statement(change.statement, change.database)
    touched = change.touches if is_understood(change) else {change.table_id}
    named = (*touched, *read.tables, *read.reads, *judge(change.statement, change.database).names)
    return sorted({table_id.database for table_id in named if table_id.database})


def reserved_database(change: SchemaChange, reserved: Reserved) -> tuple[str, str] | None:
    """A database of the change that is reserved in the target, with the reason."""
    return next(((database, why) for database in databases_of(change) if (why := reserved.sentence(database))), None)


def _of_system(judgement: Judgement) -> str:
    """Why no changefeed can have written the statement, whatever the target has under that name."""
    named = sorted({name.database for name in judgement.names if name.database.casefold() in _SYSTEM_OF_TIDB})
    return f"it names {named[0]}, a database of TiDB's own system" if named else ""


def _of_others(change: SchemaChange, read: Statement) -> str:
    """Why the statement cannot belong to the object in whose file it is. TiCDC writes one object into one file."""
    own = change.table_id
    if read.kind in _OF_DATABASES:
        named = read.tables[0]
        if own.is_database and folded_name(named.database) == folded_name(own.database):
            return ""
        return f"it names the database {named.database}, and stands in a file of {own}"
    if read.brings_back:
        objects = sorted(judge(change.statement, change.database).names)
        others = [] if any(name.folded == own.folded for name in objects) else objects
        return f"it names {', '.join(map(str, others))}, and stands in a file of {own}" if others else ""
    objects = [new for _, new in read.renames] or list(read.tables[: None if read.kind in _DROPS else 1])
    if len(read.renames) > 1 and any(name.folded == own.folded for pair in read.renames for name in pair):
        return ""  # several at once, as in a swap; TiCDC writes them one by one
    others = [name for name in objects if name.folded != own.folded]
    return f"it names {', '.join(map(str, others))}, and stands in a file of {own}" if others else ""


def _of_left_out(change: SchemaChange, read: Statement, judgement: Judgement, follows: Followed) -> str:
    """Why the statement would touch a table that the filter leaves out.

    A RENAME of one table, and an EXCHANGE, may name a table that is followed only up to them; until then such a table is created
    and dropped by its own files. Other statements may not touch it: which tables are followed depends on later statements, and on
    this one. For CREATE TABLE … LIKE and a foreign key, a target uses only the pipeline's tables (``Ownership.bounded``).
    """
    swapped = frozenset(name for pair in read.renames for name in pair) if len(read.renames) > 1 else frozenset()
    own = frozenset(judgement.names if read.brings_back else read.tables if read.kind in _DROPS else ())
    left_out = {name for name in judgement.selects | swapped if not follows.includes(name)}
    left_out |= {name for name in own if not _is_followed(name, change, follows)}
    return f"it names {', '.join(map(str, sorted(left_out)))}, which --tables leaves out" if left_out else ""


def _is_followed(name: TableId, change: SchemaChange, follows: Followed) -> bool:
    return follows.end(name) >= change.commit_ts
