"""DROP DATABASE: drops the pipeline's own tables and views one by one, and the database itself if nothing is left in it.

The server's DROP DATABASE would also drop the objects of others.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.model.events import DropDatabaseEvent
from headrace.model.outcome import Notice
from headrace.model.table import TableId, folded_name
from headrace.sinks.mysql import catalogue
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.excess import TO_SEE_ALL
from headrace.sinks.mysql.grants import active_grants
from headrace.sinks.mysql.statements import Sending
from headrace.sinks.mysql.types import qualified

_SHOWN = 20


def drop_database(session: MySqlSession, event: DropDatabaseEvent, sending: Sending) -> tuple[Notice, ...]:
    """Drops the objects that the event names, and the database unless something is left in it. May be repeated after a crash.

    Returns notices about what stays. An object that others create between the last check and the server's DROP DATABASE, within
    about a millisecond, is lost, because no server has a DROP DATABASE that only drops empty ones.
    """
    notices: list[Notice] = []
    for database in _databases(event):
        for kind, table_id in _own_objects(session, database, event):
            sending.send(session, f"DROP {kind} {qualified(table_id)}")
        why = _why_it_stays(session, database)
        if why:
            notices.append(
                Notice(f"the source dropped it; what this pipeline had made in it was dropped. {why}", TableId(database))
            )
        elif catalogue.exists(session, TableId(database)):
            sending.send(session, f"DROP DATABASE {qualified(TableId(database))}")
    return tuple(notices)


def is_dropped(session: MySqlSession, event: DropDatabaseEvent) -> bool:
    """Whether nothing is left to do: no object that the event names exists, nor an empty database."""
    return not any(
        catalogue.exists(session, TableId(database))
        and (any(_own_objects(session, database, event)) or not _why_it_stays(session, database))
        for database in _databases(event)
    )


def _databases(event: DropDatabaseEvent) -> list[str]:
    """The database in each spelling that its tables have here: on this server these may be separate databases."""
    return sorted({event.database, *(table_id.database for table_id in event.tables)})


def _own_objects(session: MySqlSession, database: str, event: DropDatabaseEvent) -> Iterator[tuple[str, TableId]]:
    """The existing objects of the event, as (``VIEW`` or ``TABLE``, name)."""
    kinds = catalogue.objects(session, database)
    folds = str(session.scalar("SELECT @@lower_case_table_names")) != "0"
    named = {folded_name(name) if folds else name: kind for name, kind in kinds.items()}
    for table_id in sorted(t for t in event.tables if t.database == database):
        kind = named.get(folded_name(table_id.table) if folds else table_id.table)
        if kind in ("TABLE", "VIEW"):
            yield kind, table_id


def _why_it_stays(session: MySqlSession, database: str) -> str:
    """What keeps the database from being dropped; empty if nothing does."""
    left = [f"{kind.lower()} {name}" for name, kind in catalogue.objects(session, database).items()]
    left += catalogue.programs(session, database)
    if left:
        more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
        return f"The database stays, because it also holds {', '.join(left[:_SHOWN])}{more}, which is not this pipeline's."
    if _sees_programs(session, database):
        return ""
    return (
        "The database, which looks empty, stays: without the rights EVENT and EXECUTE this user does not see whether it holds "
        "events and routines. Drop it by hand, or grant them."
    )


def _sees_programs(session: MySqlSession, database: str) -> bool:
    if session.is_tidb:  # it has neither routines nor events
        return True
    return active_grants(session).on(database, TO_SEE_ALL) >= set(TO_SEE_ALL)
