"""Reads databases and tables from the target's catalogue. Names are looked up by SHOW, which compares them as the server does."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection

import pymysql

from headrace.model.table import SYSTEM_DATABASES, TableId, folded_name
from headrace.mysql_answers import understood
from headrace.sinks.base import TextComparison, UniqueTexts
from headrace.sinks.metadata_applier import TableDescription
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.server_errors import INTERRUPTED, error_code
from headrace.sinks.mysql.text import quote_name
from headrace.sinks.mysql.types import qualified

# No such database or table; or a name that the server does not allow for either: 64 bytes, trailing spaces, 😀 on MariaDB.
_MISSING = frozenset({1049, 1146, 1102, 1103, 1300})
_INVALID_VIEW = 1356
_WITHOUT_ROWS = _MISSING | {1347, _INVALID_VIEW}  # 1347: it is a view, not a table
_WEIGHS_SUPPLEMENTARY = re.compile(r"_(?:520|0900|uca\d+)_")
_BY_BYTES = re.compile(r"^binary$|_nopad_bin$|_0900_bin$")
_AUTO_INCREMENT = re.compile(r" AUTO_INCREMENT=\d+")
_ASKED_BY_NAME = 20
"""Up to this number, tables of a database are queried one by one."""
_SAMPLE = 100
"""The number of rows that distinguish a table from another one with the same columns."""
_QUOTED = re.compile(r"`((?:[^`]|``)+)`")


def describe(session: MySqlSession, table_id: TableId) -> TableDescription | None:
    """The present table, view or database; ``None`` if there is none. The session is one for DDL, in autocommit."""
    try:
        return _database(session, table_id) if table_id.is_database else _table(session, table_id)
    except pymysql.err.MySQLError as error:
        if error_code(error) in _MISSING:
            return None
        raise


def exists(session: MySqlSession, table_id: TableId) -> bool:
    """Whether there is a table, view or database of that name. Does not read its columns, rows or tables."""
    try:
        created_by(session, table_id)
    except pymysql.err.MySQLError as error:
        if error_code(error) in _MISSING:
            return False
        raise
    return True


def objects(session: MySqlSession, database: str) -> dict[str, str]:
    """The objects in the database by name, without routines and events: ``TABLE``, ``VIEW`` or ``SEQUENCE``; empty without one."""
    try:
        rows = session.execute(f"SHOW FULL TABLES FROM {qualified(TableId(database))}")
    except pymysql.err.MySQLError as error:
        if error_code(error) in _MISSING:
            return {}
        raise
    kinds = {"VIEW": "VIEW", "SYSTEM VIEW": "VIEW", "SEQUENCE": "SEQUENCE"}
    return {str(name): kinds.get(str(kind).upper(), "TABLE") for name, kind in rows}


def programs(session: MySqlSession, database: str) -> list[str]:
    """The routines and events of the database that this user may see, in the form ``procedure p``."""
    rows = session.execute(
        "SELECT LOWER(routine_type), routine_name FROM information_schema.routines WHERE routine_schema = ?"
        " UNION ALL SELECT 'event', event_name FROM information_schema.events WHERE event_schema = ?",
        (database, database),
    )
    return sorted(f"{kind} {name}" for kind, name in rows)


def has_index(session: MySqlSession, table_id: TableId, index: str) -> bool:
    """Whether the table has an index of that name. True for a missing table, because its indexes are unknown."""
    try:
        found = session.execute(f"SHOW INDEX FROM {qualified(table_id)}")
    except pymysql.err.MySQLError as error:
        if error_code(error) in _MISSING:
            return True
        raise
    return any(folded_name(str(row[2])) == folded_name(index) for row in found)


def has_foreign_key(session: MySqlSession, table_id: TableId, name: str) -> bool:
    """Whether the table has a foreign key of that name. True for a missing table, because its keys are unknown."""
    select = (
        "SELECT constraint_name FROM information_schema.table_constraints"
        " WHERE table_schema = ? AND table_name = ? AND constraint_type = 'FOREIGN KEY'"
    )
    found = session.find([select], (table_id.database, table_id.table))
    return any(folded_name(str(key)) == folded_name(name) for (key,) in found) or not exists(session, table_id)


def foreign_keys(session: MySqlSession, database: str = "") -> list[tuple[TableId, str, TableId]]:
    """The foreign keys of a database's tables, or of all, as (table, key, referenced table).

    TiDB (8.5) has the referenced table's database only here: ``referential_constraints`` has the key's own in its place.
    """
    select = (
        "SELECT DISTINCT table_schema, table_name, constraint_name, referenced_table_schema, referenced_table_name"
        " FROM information_schema.key_column_usage WHERE referenced_table_name IS NOT NULL"
    )
    of_database = (f"{select} AND table_schema = ?", (database,)) if database else (select, ())
    found = session.find([of_database[0]], of_database[1], columns=5)
    return [(TableId(*map(str, row[:2])), str(row[2]), TableId(*map(str, row[3:]))) for row in found]


def unique_keys(session: MySqlSession, table_id: TableId) -> dict[str, frozenset[str]]:
    """The table's unique keys, including its primary key, with the folded names of their columns; empty if there is no table.

    An expression in a key has no name.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for index, column in session.find(
        [
            "SELECT index_name, COALESCE(column_name, '') FROM information_schema.statistics"
            " WHERE table_schema = ? AND table_name = ? AND non_unique = 0"
        ],
        (table_id.database, table_id.table),
        columns=2,
    ):
        found[str(index)].add(folded_name(str(column)))
    return {index: frozenset(columns) for index, columns in found.items()}


def computed_from(session: MySqlSession, table_id: TableId) -> dict[str, frozenset[str]]:
    """For each generated column of the table, the columns in its expression; all names folded."""
    select = "SELECT column_name, generation_expression FROM information_schema.columns WHERE table_schema = ? AND table_name = ?"
    found = session.find([f"{select} AND generation_expression <> ''"], (table_id.database, table_id.table), columns=2)
    named = {str(name): _QUOTED.findall(str(expression)) for name, expression in found}
    return {folded_name(name): frozenset(folded_name(n.replace("``", "`")) for n in names) for name, names in named.items()}


def row_checksum(session: MySqlSession, table_id: TableId) -> str:
    """A checksum over all rows of the table; empty if there is no table of that name, or if it is a view.

    If the server cannot open a table (because of a lock, or a killed statement), it returns NULL and a warning. The warning is
    raised as an error; otherwise it would look as if the table's rows were gone.
    """
    if session.is_tidb:
        return queried_checksum(session, table_id)
    rows = session.execute(f"CHECKSUM TABLE {qualified(table_id)} EXTENDED")
    with understood():
        ((_, checksum),) = rows
    if checksum is not None:
        return str(checksum)
    warnings = [(int(str(code)), str(message)) for _, code, message in session.execute("SHOW WARNINGS")]
    if warnings and all(code in _WITHOUT_ROWS for code, _ in warnings):
        return ""
    causes = (warning for warning in warnings if warning[0] not in _WITHOUT_ROWS)
    raise pymysql.err.OperationalError(*next(causes, (INTERRUPTED, "CHECKSUM TABLE gave no checksum and no reason")))


def queried_checksum(session: MySqlSession, table_id: TableId, partition: str = "") -> str:
    """A checksum over the rows of a table, or of one of its partitions; empty if there is no table of that name, or a view.

    TiDB has no CHECKSUM TABLE, and its ADMIN CHECKSUM TABLE includes the keys, which contain table ids.
    """
    part = f" PARTITION ({quote_name(partition)})" if partition else ""
    return _checksum(session, table_id, f"{qualified(table_id)}{part}")


def row_sample(session: MySqlSession, table_id: TableId) -> str:
    """A checksum over the first rows of a table by its primary key; empty if there is no table of that name, or a view."""
    key = session.find(
        [
            "SELECT seq_in_index, column_name FROM information_schema.statistics"
            " WHERE table_schema = ? AND table_name = ? AND index_name = 'PRIMARY'"
        ],
        (table_id.database, table_id.table),
        columns=2,
    )
    names = [quote_name(str(column)) for _, column in sorted(key, key=lambda row: int(str(row[0])))]
    order = f" ORDER BY {', '.join(names)}" if names else ""
    return _checksum(session, table_id, qualified(table_id), f"{order} LIMIT {_SAMPLE}")


def _checksum(session: MySqlSession, table_id: TableId, place: str, end: str = "") -> str:
    """Rows that differ in any value give different texts, of which a checksum is made, in any time zone of the session."""
    description = describe(session, table_id)
    if description is None or description.is_view:
        return ""
    types = {quote_name(str(row[0])): str(row[1]).lower() for row in session.execute(f"SHOW COLUMNS FROM {qualified(table_id)}")}
    values = ", ".join(f"ISNULL({name}), {_exactly(name, shown)}" for name, shown in types.items())
    source = f"(SELECT {', '.join(types)} FROM {place}{end}) AS first_rows" if end else place
    # TiDB reads a TIMESTAMP in the session's time zone, in which two moments of a repeated hour are equal.
    hint = "/*+ SET_VAR(time_zone = '+00:00') */ " if session.is_tidb else ""
    # CRC32 alone is linear: it has the same sum for rows that exchanged their values far too often.
    rows = session.execute(f"SELECT {hint}COUNT(*), SUM(CRC32(SHA1(CONCAT_WS('#', {values})))) FROM {source}")
    return ":".join(map(str, rows[0]))


def _exactly(name: str, shown: str) -> str:
    """An expression without ``#`` that differs for different values of a column, whose type is shown in lower case."""
    value = name
    if shown.startswith(("float", "double")):
        value = f"{name} * 1e0"  # the text of a FLOAT has six digits, that of a DOUBLE all of them
    elif shown.startswith("timestamp"):
        value = f"UNIX_TIMESTAMP({name})"
    # The digits of a long text could exceed max_allowed_packet, which gives NULL.
    function = "SHA1" if shown.endswith(("text", "blob", "json")) else "HEX"
    return f"{function}(CAST({value} AS BINARY))"


def created_by(session: MySqlSession, table_id: TableId) -> str:
    """The statement that would create the table, view or database in its present form."""
    kind = "DATABASE" if table_id.is_database else "TABLE"
    return str(session.execute(f"SHOW CREATE {kind} {qualified(table_id)}")[0][1])


def definition(session: MySqlSession, table_id: TableId) -> str | None:
    """The statement that would create the table or view, without the next AUTO_INCREMENT value; ``None`` if there is none."""
    try:
        return _AUTO_INCREMENT.sub("", created_by(session, table_id))
    except pymysql.err.MySQLError as error:
        if error_code(error) in _MISSING:
            return None
        raise


def creation_times(session: MySqlSession, tables: Collection[TableId]) -> dict[TableId, str]:
    """When the existing ones of these tables were created, in the server's time, to the second. Views have none.

    Distinguishes a table from one that a person created later with the same definition. Some alterations also change it.
    """
    select = "SELECT table_name, create_time FROM information_schema.tables WHERE table_schema = ? AND create_time IS NOT NULL"
    found: dict[TableId, str] = {}
    for database in sorted({table_id.database for table_id in tables}):
        names = sorted(table_id.table for table_id in tables if table_id.database == database)
        # Without a name the server opens every table of the database.
        few = len(names) <= _ASKED_BY_NAME
        selects = [f"{select} AND table_name = ?"] * len(names) if few else [select]
        parameters = [text for name in names for text in (database, name)] if few else [database]
        found |= {TableId(database, str(name)): str(time) for name, time in session.find(selects, parameters, columns=2)}
    return {table_id: time for table_id, time in found.items() if table_id in tables}


def is_view(session: MySqlSession, table_id: TableId) -> bool:
    """Whether there is a view of that name."""
    select = "SELECT 1 FROM information_schema.tables WHERE table_schema = ? AND table_name = ? AND table_type LIKE '%VIEW'"
    return session.finds(select, (table_id.database, table_id.table))


def view_query(session: MySqlSession, table_id: TableId) -> str | None:
    """The query of a view as the server stores it, with all names qualified; ``None`` if there is no view of that name."""
    select = "SELECT view_definition FROM information_schema.views WHERE table_schema = ? AND table_name = ?"
    rows = session.find([select], (table_id.database, table_id.table))
    return str(rows[0][0]) if rows else None


def databases(session: MySqlSession) -> list[str]:
    """All databases except the server's own."""
    found = session.execute("SELECT schema_name FROM information_schema.schemata")
    return [str(name) for (name,) in found if str(name).casefold() not in SYSTEM_DATABASES]


def without_transactions(session: MySqlSession, databases: Collection[str], table: str = "") -> dict[TableId, str]:
    """The tables of these databases, or one of them, whose engine has no transactions, with the engine: ``MyISAM``, ``Aria``."""
    if not databases:
        return {}
    found = session.execute(
        "SELECT t.table_schema, t.table_name, t.engine FROM information_schema.tables t JOIN information_schema.engines e"
        " ON e.engine = t.engine WHERE t.table_type = 'BASE TABLE' AND COALESCE(e.transactions, 'NO') <> 'YES'"
        f" AND t.table_schema IN ({', '.join('?' * len(databases))}){' AND t.table_name = ?' if table else ''}",
        [*sorted(databases), *([table] if table else [])],
    )
    return {TableId(str(database), str(name)): str(engine) for database, name, engine in found}


def with_triggers(session: MySqlSession) -> set[TableId]:
    """All tables of the server that have triggers which this user may see."""
    found = session.execute("SELECT DISTINCT event_object_schema, event_object_table FROM information_schema.triggers")
    return {TableId(str(database), str(table)) for database, table in found}


def partitioning(session: MySqlSession, table_id: TableId) -> tuple[str, str]:
    """The table's partitioning method, in upper case (``LINEAR HASH``), and its expression; two empty texts if it has none."""
    select = (
        "SELECT partition_method, partition_expression FROM information_schema.partitions"
        " WHERE table_schema = ? AND table_name = ? AND partition_name IS NOT NULL LIMIT 1"
    )
    rows = session.find([select], (table_id.database, table_id.table), columns=2)
    return (str(rows[0][0]).upper(), str(rows[0][1])) if rows else ("", "")


def partitions(session: MySqlSession, table_id: TableId) -> list[str]:
    """The names of the table's partitions; empty if it has none."""
    select = (
        "SELECT DISTINCT partition_name FROM information_schema.partitions"
        " WHERE table_schema = ? AND table_name = ? AND partition_name IS NOT NULL"
    )
    return [str(name) for (name,) in session.find([select], (table_id.database, table_id.table))]


def default_collations(session: MySqlSession, database: str) -> tuple[str, str]:
    """The default collations of a new table in the database (``None``, as text, if that is missing) and of a new database."""
    select = "SELECT (SELECT default_collation_name FROM information_schema.schemata WHERE schema_name = ?), @@collation_server"
    rows = session.execute(select, (database,))
    with understood():
        ((of_database, of_server),) = rows
    return str(of_database), str(of_server)


def collations(session: MySqlSession, table_id: TableId, columns: Collection[str]) -> list[str]:
    """The distinct collations of these columns (folded names)."""
    shown = session.execute(f"SHOW FULL COLUMNS FROM {qualified(table_id)}")
    return sorted({str(row[2]) for row in shown if folded_name(str(row[0])) in columns})


def text_columns(session: MySqlSession, table_id: TableId) -> dict[str, str]:
    """The collations of the table's text columns, by column name."""
    select = "SELECT column_name, collation_name FROM information_schema.columns WHERE table_schema = ? AND table_name = ?"
    found = session.find([f"{select} AND collation_name IS NOT NULL"], (table_id.database, table_id.table), columns=2)
    return {str(name): str(collation) for name, collation in found}


def computed_columns(session: MySqlSession, table_id: TableId) -> dict[str, bool]:
    """Whether each column of the table is a generated one, by folded name."""
    select = "SELECT column_name, extra FROM information_schema.columns WHERE table_schema = ? AND table_name = ?"
    found = session.find([select], (table_id.database, table_id.table), columns=2)
    # MySQL reports DEFAULT_GENERATED for a default that is an expression.
    return {folded_name(str(name)): "GENERATED" in str(extra).upper().split() for name, extra in found}


def compares_bytes(collation: str) -> bool:
    """Whether texts that differ in a byte are never equal, including trailing spaces."""
    return _BY_BYTES.search(collation) is not None


def text_comparisons(session: MySqlSession, tables: Collection[TableId]) -> dict[TableId, TextComparison]:
    """See ``headrace.sinks.base.TextComparisons``. The collations' names determine how they compare."""
    databases = sorted({table_id.database for table_id in tables})
    wanted = {(folded_name(table_id.database), folded_name(table_id.table)): table_id for table_id in tables}
    weighed: dict[TableId, set[str]] = defaultdict(set)
    compared: dict[TableId, set[str]] = defaultdict(set)
    for database, table, column, collation in session.execute(
        "SELECT table_schema, table_name, column_name, collation_name FROM information_schema.columns"
        f" WHERE collation_name IS NOT NULL AND table_schema IN ({', '.join('?' * len(databases))})",
        databases,
    ):
        table_id = wanted.get((folded_name(str(database)), folded_name(str(table))))
        if table_id is None:
            continue
        if _WEIGHS_SUPPLEMENTARY.search(str(collation)):
            weighed[table_id].add(folded_name(str(column)))
        if not compares_bytes(str(collation)):
            compared[table_id].add(folded_name(str(column)))
    return {
        table_id: TextComparison(frozenset(weighed[table_id]), _unique_texts(session, table_id, compared[table_id]))
        for table_id in {*weighed, *compared}
    }


def _unique_texts(session: MySqlSession, table_id: TableId, compared: Collection[str]) -> tuple[UniqueTexts, ...]:
    """The unique keys with a column that is compared by a collation, without those over expressions."""
    parts: dict[str, list[tuple[str, int]]] = defaultdict(list)
    if not compared:
        return ()
    for row in session.execute(f"SHOW INDEX FROM {qualified(table_id)}"):
        _, non_unique, index, _, column, _, _, prefix = row[:8]
        if int(str(non_unique)) == 0:
            parts[str(index)].append(("" if column is None else folded_name(str(column)), int(str(prefix or 0))))
    keys = (UniqueTexts(tuple(of_key), frozenset(compared) & {name for name, _ in of_key}) for of_key in parts.values())
    return tuple(key for key in keys if key.texts and all(name for name, _ in key.parts))


def _database(session: MySqlSession, table_id: TableId) -> TableDescription:
    return TableDescription(table_id, (), bool(session.execute(f"SHOW TABLES FROM {qualified(table_id)}")))


def columns(session: MySqlSession, table_id: TableId) -> tuple[str, ...] | None:
    """The names of a table's columns in order; empty for a view whose tables are gone; ``None`` if there is no such table."""
    try:
        return tuple(str(row[0]) for row in session.execute(f"SHOW COLUMNS FROM {qualified(table_id)}"))
    except pymysql.err.MySQLError as error:
        if error_code(error) in _MISSING:
            return None
        if error_code(error) == _INVALID_VIEW:
            return ()  # the view exists anyway, and can be dropped
        raise


def _table(session: MySqlSession, table_id: TableId) -> TableDescription | None:
    found = columns(session, table_id)
    if found is None:
        return None
    if not found or is_view(session, table_id):
        return TableDescription(table_id, found, has_rows=bool(found), is_view=True)
    return TableDescription(table_id, found, session.finds(f"SELECT 1 FROM {qualified(table_id)} LIMIT 1"))
