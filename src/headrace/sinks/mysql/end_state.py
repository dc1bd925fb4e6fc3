"""Determines from the catalogue whether a begun schema change reached its end state. Changes no table of the pipeline.

If a run dies or loses its connection, it is unknown whether the statement ran. Each kind of change has its own proof. A difference
from the state before is not a proof, since a person may have added an index, or the server may have been upgraded. Names show
whether tables and databases were created, dropped or renamed. Checksums show whether rows changed places. For ALTER TABLE, the
server itself is used: an empty table in the ledger's database gets the former definition and the statement, and the lines of SHOW
CREATE TABLE that this changes are looked up in the present definition.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import pymysql

from headrace.ddl.lexer import Word
from headrace.ddl.statement import Statement, StatementKind, read_statement
from headrace.model.events import (
    CreateDatabaseEvent,
    CreateTableEvent,
    DeletePartitionRowsEvent,
    DropDatabaseEvent,
    DropTableEvent,
    RenameTableEvent,
    SchemaChange,
    TruncateTableEvent,
)
from headrace.model.table import TableId
from headrace.sinks.metadata_applier import Begun, SchemaChangeRefused
from headrace.sinks.mysql import catalogue
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.definitions import columns_and_unique_keys, compared, is_table, lines, renamed
from headrace.sinks.mysql.server_errors import ErrorClass, classify
from headrace.sinks.mysql.shown import origins, reuses_names, same_columns, shows
from headrace.sinks.mysql.types import qualified

_OF_ONE_TABLE = frozenset(
    {"ADD", "ALGORITHM", "ALTER", "AUTO_INCREMENT", "CHANGE", "CHAR", "CHARACTER", "CHARSET", "COALESCE", "COLLATE", "COMMENT"}
    | {"DEFAULT", "DROP", "FORCE", "INDEX", "LOCK", "MODIFY", "PARTITION", "REMOVE", "REORGANIZE", "ROW_FORMAT", "TRUNCATE"}
    | {"UNIQUE"}
)
"""The first words of ALTER TABLE clauses that can be tried on another table: they touch no other table, file or tablespace."""
_KEYS = frozenset({"CHECK", "CONSTRAINT", "FOREIGN", "INDEX", "KEY", "PRIMARY", "UNIQUE"})


@dataclass(frozen=True)
class Before:
    """The target before a change, as far as needed to determine later whether the change ran."""

    definitions: Mapping[TableId, str | None]
    """``None``: the table does not exist."""
    rows: Mapping[tuple[TableId, str], str]
    """Checksums of rows that the change moves, by table and partition (or an empty text)."""
    made: Mapping[TableId, str] | None
    """When the change's tables, and those that it drops, were created; ``None`` if an older Headrace did not record it."""

    def text(self) -> str:
        """The text for the journal. ASCII, because a DEFAULT in a definition may have bytes that are not text."""
        definitions = [[t.database, t.table, definition] for t, definition in self.definitions.items()]
        rows = [[t.database, t.table, partition, checksum] for (t, partition), checksum in self.rows.items()]
        made = [[t.database, t.table, time] for t, time in (self.made or {}).items()]
        return json.dumps({"definitions": definitions, "rows": rows, "made": made})

    @classmethod
    def read(cls, text: str) -> Before:
        """Parses :meth:`text`. The fields are unknown in the format of an older Headrace."""
        try:
            told = json.loads(text)
            definitions = {TableId(database, table): definition for database, table, definition in told["definitions"]}
            rows = {(TableId(database, table), partition): checksum for database, table, partition, checksum in told["rows"]}
            made = {TableId(database, table): time for database, table, time in told["made"]} if "made" in told else None
        except (ValueError, KeyError, TypeError):
            return cls({}, {}, None)
        return cls(definitions, rows, made)


def before(session: MySqlSession, change: SchemaChange) -> Before:
    """The present state of the target. Reads all rows of tables that change places, and the first rows of renamed tables."""
    tables = sorted(name for name in change.changes | {change.table_id} if not name.is_database)
    definitions = {table_id: catalogue.definition(session, table_id) for table_id in tables}
    there = {table_id for table_id, definition in definitions.items() if definition is not None}
    made = catalogue.creation_times(session, there | set(_dropped(change)))
    return Before(definitions, _moved_rows(session, change), made)


@dataclass(frozen=True)
class EndState:
    """Determines how far a change came that a run began on ``former``.

    ``statements`` gives the statements that would be run now. ``scratch`` is a table that may be created, altered and dropped.
    """

    session: MySqlSession
    change: SchemaChange
    former: Before
    statements: Callable[[], Iterable[str]]
    scratch: TableId

    def begun(self) -> Begun:
        """The result of the first proof that applies to this kind of change."""
        proofs = (self._of_tables_made, self._of_databases, self._of_repeatable, self._of_renames)
        for proof in (*proofs, self._of_tables_dropped, self._of_exchanged_rows, self._of_definitions):
            found = proof()
            if found is not None:
                return found
        return Begun.UNCLEAR

    @property
    def _statement(self) -> Statement:
        return read_statement(self.change.statement, self.change.database)

    def _of_tables_made(self) -> Begun | None:
        created = [event for event in self.change.events if isinstance(event, CreateTableEvent)]
        if created and self._statement.kind is StatementKind.ALTER_TABLE and self.former.definitions.get(created[0].table_id):
            return None  # the first change that the source has of an existing table
        if created:
            found = {self._made(event) for event in created}
            return found.pop() if len(found) == 1 else Begun.REPEATABLE
        is_view = self._statement.kind is StatementKind.CREATE_VIEW and self.change.events
        return self._view_made() if is_view else None

    def _view_made(self) -> Begun:
        """Done if a view selects what the statement says. A table with its name belongs to others; a former view is replaced."""
        name = self.change.table_id
        query, was_there = catalogue.view_query(self.session, name), self.former.definitions.get(name, "") is not None
        if query is not None and query == self._tried_view():
            return Begun.DONE
        if query is None:
            return Begun.ABSENT
        return Begun.REPEATABLE if was_there else Begun.UNCLEAR

    def _tried_view(self) -> str | None:
        """What a view made by the statement selects; ``None`` if that cannot be tried."""
        name = qualified(self.scratch)
        try:
            texts = [_under_another_name(text, self.change.database, self.scratch) for text in self.statements()]
            self.session.run(f"DROP VIEW IF EXISTS {name}")
            self.session.run(f"USE {qualified(TableId(self.change.database))}")
            for text in texts:
                self.session.run(text)
            query = catalogue.view_query(self.session, self.scratch)
            self.session.run(f"DROP VIEW IF EXISTS {name}")
        except SchemaChangeRefused:
            return None
        except pymysql.err.MySQLError as error:
            if classify(error) is not ErrorClass.REFUSED:
                raise
            return None
        return query

    def _made(self, event: CreateTableEvent) -> Begun:
        """A CREATE can be run again: it checks the existing table's rows, columns and unique keys.

        An ALTER that begins a table would add again what is already in its shape. So it is done if the table did not exist before,
        has no rows, and has these columns.
        """
        present = catalogue.describe(self.session, event.table_id)
        if present is None:
            return Begun.ABSENT
        was_absent = self.former.definitions.get(event.table_id, "") is None
        is_altered = self._statement.kind is StatementKind.ALTER_TABLE
        is_made = is_altered and was_absent and not present.has_rows and same_columns(present.columns, event.schema, by_shape=True)
        return Begun.DONE if is_made else Begun.REPEATABLE

    def _of_databases(self) -> Begun | None:
        """An interrupted DROP DATABASE leaves the tables that it had not reached."""
        events = [event for event in self.change.events if isinstance(event, CreateDatabaseEvent | DropDatabaseEvent)]
        if not events:
            return None
        if all(shows(self.session, event) for event in events):
            return Begun.DONE
        return Begun.REPEATABLE if self._are_those_of_before(_dropped(self.change)) else Begun.UNCLEAR

    def _are_those_of_before(self, tables: Collection[TableId]) -> bool:
        """Whether the existing ones of these tables were created before the change: no person has recreated or loaded them."""
        if self.former.made is None:
            return True
        now = catalogue.creation_times(self.session, tables)
        return all(self.former.made.get(table_id) == time for table_id, time in now.items())

    def _of_repeatable(self) -> Begun | None:
        """A TRUNCATE, or a change without statement, can be repeated.

        Nothing follows a TRUNCATE before it is journalled as done. A change without statement adds what the target lacks; not if a
        column gets another one's name, because names do not show then what is missing.
        """
        is_such = self._statement.kind in (StatementKind.EMPTY, StatementKind.ALTER_DATABASE) and not reuses_names(self.change)
        empties = any(isinstance(event, TruncateTableEvent) for event in self.change.events)
        return Begun.REPEATABLE if is_such or empties else None

    def _of_renames(self) -> Begun | None:
        """Names show how far it came. The tables must be the former ones: people may move tables away and create others."""
        renames = [event for event in self.change.events if isinstance(event, RenameTableEvent)]
        if not renames:
            return None
        places = origins(renames)
        final, start = set(places), set(places.values())
        if final == start:
            return self._swapped(places)
        there = {name for name in final | start if catalogue.exists(self.session, name)}
        if start <= there and not (final - start) & there:
            return Begun.ABSENT if all(self._is_former(name, name) for name in start) else Begun.UNCLEAR
        # One statement renames and alters, or does neither. Its other effects on the table are not checked.
        is_renamed = len(renames) == len(self.change.events) and final <= there and not (start - final) & there
        return Begun.DONE if is_renamed and all(self._is_former(old, new) for new, old in places.items()) else Begun.UNCLEAR

    def _is_former(self, old: TableId, name: TableId) -> bool:
        """Whether the table with this name has the columns, unique keys and first rows that ``old`` had before the change.

        The creation time is not used, because on MariaDB a rename changes it. A view has no rows.
        """
        was, now = self.former.definitions.get(old), catalogue.definition(self.session, name)
        if was is None or now is None or is_table(was) != is_table(now):
            return False
        rows = self.former.rows.get((old, ""))
        same_rows = rows is not None and rows == catalogue.row_sample(self.session, name)
        return not is_table(was) or (same_rows and columns_and_unique_keys(was) == columns_and_unique_keys(now))

    def _swapped(self, places: Mapping[TableId, TableId]) -> Begun:
        """For tables that swapped names: rows show which table has which name, and definitions if the rows are alike."""
        names, rows = sorted(places), _moved_rows(self.session, self.change)
        if any((name, "") not in self.former.rows for name in names):
            return Begun.UNCLEAR
        was = {name: self.former.rows[name, ""] for name in names}
        now = {name: rows.get((name, ""), "") for name in names}
        if len(set(was.values())) < len(names):
            was = {name: was[name] + _columns_and_keys(self.former.definitions.get(name) or "") for name in names}
            now = {name: now[name] + _columns_and_keys(catalogue.definition(self.session, name) or "") for name in names}
        if now == was:  # if the tables are equal in everything, a repetition is harmless
            return Begun.ABSENT
        return Begun.DONE if all(now[name] == was[places[name]] for name in names) else Begun.UNCLEAR

    def _of_tables_dropped(self) -> Begun | None:
        """A table with another definition, or created since, may be a different table, which a DROP would destroy."""
        dropped = [event.table_id for event in self.change.events if isinstance(event, DropTableEvent)]
        if self.change.events and self._statement.kind is StatementKind.DROP_VIEW:
            dropped = list(self._statement.tables)
        if not dropped:
            return None
        left = [table_id for table_id in dropped if catalogue.exists(self.session, table_id)]
        if not left:
            return Begun.DONE
        same = all(self.former.definitions.get(t) == catalogue.definition(self.session, t) for t in left)
        return Begun.REPEATABLE if same and self._are_those_of_before(left) else Begun.UNCLEAR

    def _of_exchanged_rows(self) -> Begun | None:
        """A partition and a table that exchange their rows."""
        name, tables = _exchanged_partition(self._statement), self._statement.tables
        if not name:
            return None
        was, now = self.former.rows, _moved_rows(self.session, self.change)
        if not was or was.keys() != now.keys():
            return Begun.UNCLEAR
        if now == was:
            return Begun.ABSENT
        partition, table = (tables[0], name), (tables[1], "")
        return Begun.DONE if now[partition] == was[table] and now[table] == was[partition] else Begun.UNCLEAR

    def _of_definitions(self) -> Begun | None:
        """Looks for the lines of a definition that the statement changes."""
        read = self._statement
        if self.change.statement and not (read.tables and read.actions):
            deletes = all(isinstance(event, DeletePartitionRowsEvent) for event in self.change.events)
            return None if not self.change.events else Begun.REPEATABLE if deletes else self._if_unchanged()
        try:
            statements = list(self.statements())
        except SchemaChangeRefused:  # cannot be tried here; the error is reported when it runs (again)
            return self._if_unchanged()
        if not self.change.statement:  # for a mere shape, the statements made of it are tried
            read = read_statement("".join(statements[:1]), self.change.database)
        if not read.tables:
            return self._if_unchanged()
        table_id = read.tables[0]
        was, present = self.former.definitions.get(table_id), catalogue.definition(self.session, table_id)
        texts = [_moved_to(text, self.change.database, self.scratch) for text in statements]
        if was is None or present is None or None in texts:
            return self._if_unchanged()
        try:
            before = self._tried(table_id, was)
            after = self._tried(table_id, was, [text for text in texts if text])
            now = self._tried(table_id, present)
        except pymysql.err.MySQLError as error:
            if classify(error) is not ErrorClass.REFUSED:
                raise
            return self._if_unchanged()
        found = compared(before, after, now, repeatable=not reuses_names(self.change))
        # A person may have created the dropped object again, with their own rows or values.
        drops = any(map(_drops_values, read.actions))
        altered = found is Begun.ABSENT and drops and not self._are_those_of_before([table_id])
        return Begun.UNCLEAR if altered else found

    def _tried(self, table_id: TableId, definition: str, statements: Iterable[str] = ()) -> tuple[str, ...]:
        """The lines of the definition of an empty copy of the table after these statements."""
        name = qualified(self.scratch)
        self.session.run(f"DROP TABLE IF EXISTS {name}")
        try:
            self.session.run(renamed(definition, name))
            for statement in statements:
                self.session.run(statement)
            return lines(catalogue.definition(self.session, self.scratch) or "", (table_id, self.scratch))
        finally:
            self.session.run(f"DROP TABLE IF EXISTS {name}")

    def _if_unchanged(self) -> Begun:
        """Without another proof: the change may run (again) if all definitions are unchanged."""
        were = self.former.definitions.items()
        same = all(was == catalogue.definition(self.session, table_id) for table_id, was in were)
        return Begun.REPEATABLE if were and same else Begun.UNCLEAR


def _moved_to(statement: str, database: str, scratch: TableId) -> str | None:
    """The statement for another table; ``None`` if it cannot be tried."""
    read = read_statement(statement, database)
    if not read.actions or read.renames or len(read.tables) != 1 or not all(map(_is_of_one_table, read.actions)):
        return None
    mention = next(mention for mention in read.mentions if mention.table_id == read.tables[0])
    return f"{statement[: mention.start]}{qualified(scratch)}{statement[mention.end :]}"


def _under_another_name(statement: str, database: str, name: TableId) -> str:
    """A CREATE VIEW for a view with another name."""
    read = read_statement(statement, database)
    mention = next(mention for mention in read.mentions if mention.table_id == read.tables[0])
    return f"{statement[: mention.start]}{qualified(name)}{statement[mention.end :]}"


def _is_of_one_table(action: tuple[Word, ...]) -> bool:
    first, second = (word.text.upper() for word in (*action, Word(""), Word(""))[:2])
    if first == "CONVERT":
        return second == "TO"
    return first in _OF_ONE_TABLE or (first == "RENAME" and second in ("COLUMN", "INDEX", "KEY"))


def _dropped(change: SchemaChange) -> frozenset[TableId]:
    """The tables and views that the change drops, including those of a database."""
    dropped = {event.table_id for event in change.events if isinstance(event, DropTableEvent)}
    return frozenset(dropped.union(*(event.tables for event in change.events if isinstance(event, DropDatabaseEvent))))


def _drops_values(action: tuple[Word, ...]) -> bool:
    """Whether a clause of ALTER TABLE drops a column or a partition. Dropping a key loses no values."""
    first, second = (*action, Word(""), Word(""))[:2]
    return first.says("DROP") and (second.is_name or second.text.upper() not in _KEYS)


def _columns_and_keys(definition: str) -> str:
    return "".join(line for line in definition.splitlines() if line.startswith("  "))


def _exchanged_partition(read: Statement) -> str:
    """The partition in EXCHANGE PARTITION; empty for any other statement."""
    found = (a[2].text for a in read.actions if len(a) > 2 and a[0].says("EXCHANGE") and a[1].says("PARTITION"))
    return next(found, "") if len(read.tables) > 1 else ""


def _moved_rows(session: MySqlSession, change: SchemaChange) -> dict[tuple[TableId, str], str]:
    """Checksums of the tables whose rows may change places without a change of definition; empty for other changes.

    EXCHANGE PARTITION, and a swap of names: running them twice undoes them, so all rows are read. For renamed tables, the first
    rows distinguish them from tables that people create. Also empty if the target refuses the query, because it has no such
    partition.
    """
    read = read_statement(change.statement, change.database)
    partition = _exchanged_partition(read)
    places = origins([event for event in change.events if isinstance(event, RenameTableEvent)])
    try:
        if partition:
            moved = [(read.tables[0], partition), (read.tables[1], "")]
            return {place: catalogue.queried_checksum(session, *place) for place in moved}
        checksum = catalogue.row_checksum if set(places) == set(places.values()) else catalogue.row_sample
        return {(name, ""): checksum(session, name) for name in sorted(places.values())}
    except pymysql.err.MySQLError as error:
        if classify(error) is not ErrorClass.REFUSED:
            raise
        return {}
