"""Foreign keys that would stay without their referenced table, and would bind a table that others create under its name.

TiDB also keeps such a key when it drops the table with ``foreign_key_checks`` off. There only its own users create tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from headrace import faults
from headrace.faults import Step
from headrace.model.events import DropDatabaseEvent, DropTableEvent, SchemaChange
from headrace.model.outcome import Notice
from headrace.model.table import TableId
from headrace.sinks.mysql import catalogue
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.text import quote_name
from headrace.sinks.mysql.types import qualified


def drop_left_keys(session: MySqlSession, change: SchemaChange) -> list[Notice]:
    """Drops the foreign keys of the pipeline's running tables to the tables that the change drops. Reports which, and which stay.

    To be called before the tables are dropped: after a crash, the rest is then done again with the change.
    """
    dropped = {event.table_id for event in change.events if isinstance(event, DropTableEvent)}
    dropped = dropped.union(*(event.tables for event in change.events if isinstance(event, DropDatabaseEvent)))
    folds = bool(dropped) and str(session.scalar("SELECT @@lower_case_table_names")) != "0"
    running = {_as_compared(child, folds=folds) for child in change.running}
    notices = []
    for child, name, parent in sorted(_keys_to(session, dropped, change.own, folds=folds)) if dropped else ():
        statement = f"ALTER TABLE {qualified(child)} DROP FOREIGN KEY {quote_name(name)}"
        if _as_compared(child, folds=folds) not in running:
            notices.append(Notice(_STAYS.format(name=name, child=child, statement=statement), parent))
            continue
        faults.before(Step.MYSQL_STATEMENT, statement)
        session.run(statement)
        faults.after(Step.MYSQL_STATEMENT, statement)
        notices.append(Notice(f"its foreign key {name} was dropped: the source dropped {parent}, which it refers to.", child))
    return notices


_STAYS = (
    "the source dropped it, and the foreign key {name} of {child} to it stays, because {child} is not a running table that this "
    "pipeline made. The key will bind any table that gets this name in the target. To drop it, run {statement}; in the target."
)


def _keys_to(
    session: MySqlSession, parents: Collection[TableId], own: Collection[TableId], *, folds: bool
) -> Iterator[tuple[TableId, str, TableId]]:
    """The foreign keys to some tables, as (table, key, referenced table), of all other tables in the pipeline's databases."""
    wanted = {_as_compared(parent, folds=folds): parent for parent in parents}
    databases = {_as_compared(TableId(table_id.database), folds=folds): table_id.database for table_id in own}
    for database in databases.values():
        for child, name, parent in catalogue.foreign_keys(session, database):
            found = wanted.get(_as_compared(parent, folds=folds))
            if found is not None and _as_compared(child, folds=folds) not in wanted:
                yield child, name, found


def _as_compared(table_id: TableId, *, folds: bool) -> TableId:
    """The same value for names that the server considers equal. ``folds``: it compares them without case."""
    return table_id.folded if folds else table_id
