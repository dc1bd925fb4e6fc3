"""Foreign keys that would be left without the table they refer to, and would bind the table that somebody makes under its name.

TiDB, too, lets such a key stay when it drops the table with ``foreign_key_checks`` off. There only its own users make tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from headrace import faults
from headrace.faults import Step
from headrace.model.events import DropDatabaseEvent, DropTableEvent, SchemaChange
from headrace.model.outcome import Notice
from headrace.model.table import TableId
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.text import quote_name
from headrace.sinks.mysql.types import qualified


def drop_left_keys(session: MySqlSession, change: SchemaChange) -> list[Notice]:
    """Drops the foreign keys of the pipeline's other tables to the tables that the change drops; says which.

    It has to come before the tables go: what a crash leaves is then done again with the change.
    """
    dropped = {event.table_id for event in change.events if isinstance(event, DropTableEvent)}
    dropped = dropped.union(*(event.tables for event in change.events if isinstance(event, DropDatabaseEvent)))
    notices = []
    for child, name, parent in sorted(_keys_to(session, dropped, change.own - dropped)) if dropped else ():
        statement = f"ALTER TABLE {qualified(child)} DROP FOREIGN KEY {quote_name(name)}"
        faults.before(Step.MYSQL_STATEMENT, statement)
        session.run(statement)
        faults.after(Step.MYSQL_STATEMENT, statement)
        notices.append(Notice(f"its foreign key {name} was dropped: the source dropped {parent}, which it refers to.", child))
    return notices


def _keys_to(
    session: MySqlSession, parents: Collection[TableId], children: Collection[TableId]
) -> Iterator[tuple[TableId, str, TableId]]:
    """The foreign keys of some tables to others, as (table, key, table it refers to)."""
    folds = str(session.scalar("SELECT @@lower_case_table_names")) != "0"
    wanted = {parent.folded if folds else parent for parent in parents}
    own = {child.folded if folds else child for child in children}
    for database in sorted({child.database for child in children}):
        for table, name, other_database, other_table in session.execute(
            "SELECT table_name, constraint_name, unique_constraint_schema, referenced_table_name"
            " FROM information_schema.referential_constraints WHERE constraint_schema = ?",
            (database,),
        ):
            child, parent = TableId(database, str(table)), TableId(str(other_database), str(other_table))
            if (child.folded if folds else child) in own and (parent.folded if folds else parent) in wanted:
                yield child, str(name), parent
