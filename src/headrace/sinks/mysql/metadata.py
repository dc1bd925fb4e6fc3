"""Schema changes on the target: runs the source's own statement on the connection that holds the pipeline's named lock.

What is already done is read from the target's catalogue, never from an error number. After a lost connection it is unknown whether
the statement ran: its named lock shows when it has ended, and the catalogue how.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeVar

import pymysql

from headrace import faults
from headrace.ddl.grammar.statements import judge
from headrace.ddl.indexes import changed_names
from headrace.ddl.lexer import Word, begins_with, rendered, words
from headrace.ddl.statement import Statement, StatementKind, read_statement
from headrace.errors import TransientError
from headrace.faults import Step
from headrace.model.events import (
    AddColumnEvent,
    AlterColumnTypeEvent,
    CreateDatabaseEvent,
    CreateTableEvent,
    DropColumnEvent,
    DropDatabaseEvent,
    DropTableEvent,
    RenameColumnEvent,
    RenameTableEvent,
    SchemaChange,
    TruncateTableEvent,
)
from headrace.model.outcome import Notice
from headrace.model.table import Generated, SourceTable, TableId, TableSchema, folded_name
from headrace.sinks.base import TextComparison
from headrace.sinks.metadata_applier import Begun, SchemaChangeUnclear, TableDescription, TargetUnreadableError
from headrace.sinks.mysql import catalogue, collation, databases, denied, end_state
from headrace.sinks.mysql.adaptation import Adapted, UnadaptableError, adapt
from headrace.sinks.mysql.computed_values import refuse_computed_otherwise
from headrace.sinks.mysql.computing import refuse_long_computing, refuse_many_members
from headrace.sinks.mysql.connection import MySqlSession, repeat
from headrace.sinks.mysql.end_state import Before, EndState
from headrace.sinks.mysql.fill_values import filled_as_by_tidb
from headrace.sinks.mysql.ledger import MySqlLedger
from headrace.sinks.mysql.left_keys import drop_left_keys
from headrace.sinks.mysql.partitions import same_rows, spelled_as_here
from headrace.sinks.mysql.server_errors import ErrorClass, classify, error_text
from headrace.sinks.mysql.settings import MySqlSettings
from headrace.sinks.mysql.shown import are_renamed, is_by_shape, not_shown, reuses_names, same_columns, shows
from headrace.sinks.mysql.statements import (
    Sending,
    at_its_time,
    execute,
    refuse_rows_brought_back,
    refused,
    server_refused,
    shown,
    unclear,
)
from headrace.sinks.mysql.types import alter_table, create_table, qualified
from headrace.sinks.mysql.unseen_values import refuse_unseen_values
from headrace.sinks.mysql.views import refuse_exploding_view
from headrace.sinks.mysql.zones import refuse_other_zone

_GRANT_HINT = "headrace validate names the rights that are missing."
_LOCK_TRIES = 15
_LOCK_SECONDS = 2
_COLUMN_ACTIONS = frozenset({"ADD", "CHANGE", "DROP", "RENAME"})
_NAME_ACTIONS = frozenset({"DROP", "RENAME"})
"""Actions that are done if the names are right. ADD and CHANGE also give a column its type and values."""
_NOT_COLUMNS = frozenset(
    {"CHECK", "CONSTRAINT", "FOREIGN", "FULLTEXT", "INDEX", "KEY", "PARTITION", "PRIMARY", "SPATIAL", "UNIQUE", "AS", "TO"}
    | {"COLUMNAR", "HYBRID", "STATS_EXTENDED", "VECTOR"}
)
_HINTS = frozenset({"ALGORITHM", "LOCK"})


_T = TypeVar("_T")


class MySqlMetadataApplier:
    """``MetadataApplier`` for MySQL, MariaDB and TiDB. Removes each table that a schema change touches from ``verified``."""

    def __init__(self, settings: MySqlSettings, ledger: MySqlLedger, *, adopt: bool, verified: set[TableId] | None = None) -> None:
        self._verified: Final[set[TableId]] = set() if verified is None else verified
        self._settings = settings
        self._ledger = ledger
        self._adopt = adopt
        self._session: MySqlSession | None = None
        self._lost_connection = 0
        # The number of schema changes that the pipeline's slot has counted.
        self._count = 0
        # The target's state before the next change, as the journal keeps it.
        self._before: dict[str, Before] = {}

    def apply_schema_change(self, change: SchemaChange) -> tuple[Notice, ...]:
        """See ``MetadataApplier.apply_schema_change``."""
        self._verified.difference_update(change.changes)
        known = self._before.pop(change.identity, None)
        sending, former, notices = Sending(change), [known] if known else [], list[Notice]()
        taken_by: set[MySqlSession] = set()

        def attempt() -> tuple[Notice, ...]:
            session = self._connected()
            if not former:
                former.append(end_state.before(session, change))
            # If the server has acknowledged the statement, only what follows it must be repeated.
            if session not in taken_by:
                if not (sending.is_begun and self._has_run(session, sending, former[0])):
                    notices[:] = self._apply(session, sending)
                taken_by.add(session)
            if sending.is_begun:
                faults.before(Step.MYSQL_VERIFY, change.statement)
                _verify(session, change)
                faults.after(Step.MYSQL_VERIFY, change.statement)
            self._counted(session)
            return tuple(notices)

        try:
            return self._repeated(attempt, f"The schema change of {change.table_id}")
        except pymysql.err.MySQLError as error:
            if sending.is_begun:
                message = (
                    "this statement was sent to the target, and Headrace cannot tell whether it took effect "
                    f"({error_text(error)}): {shown(change)}."
                )
                raise unclear(change, message) from None
            raise server_refused(change, error, self._session) from None

    def _has_run(self, session: MySqlSession, sending: Sending, former: Before) -> bool:
        """Whether a statement that was sent has run, according to the target. Raises SchemaChangeUnclear."""
        found = self._begun(session, sending.change, former)
        if found is Begun.UNCLEAR:
            message = (
                "an error came up while this statement ran, and Headrace cannot tell whether it took effect: "
                f"{shown(sending.change)}."
            )
            raise unclear(sending.change, message)
        if found is Begun.ABSENT:
            sending.taken = 0
        return found is Begun.DONE

    def run_instead(self, change: SchemaChange, statement: str) -> tuple[Notice, ...]:
        """See ``MetadataApplier.run_instead``. Not retried after a lost connection, because the effect of the statement is unknown.

        The statement may change the session, open a transaction or lock tables, so the session is closed afterwards.
        """
        self._verified.difference_update(change.changes)
        try:
            execute(self._connected(), change, statement)
            self.close()
            self._repeated(lambda: self._counted(self._connected()), f"Counting the statement for {change.table_id}")
        except pymysql.err.MySQLError as error:
            if classify(error) is ErrorClass.LOST:
                self._recover(error)
                raise TransientError(f"The connection was lost while this ran: {statement}") from None
            problem = server_refused(replace(change, statement=statement), error, self._session).problem
            # The first of several steps, or of rows in a table without transactions, may stay.
            raise SchemaChangeUnclear(replace(problem, message=f"{problem.message} A part of it may have run.")) from None
        finally:
            self.close()
        return (Notice(f"in place of the source's statement this was run: {statement}", change.table_id),)

    def describe(self, table_id: TableId) -> TableDescription | None:
        """See ``MetadataApplier.describe``."""
        try:
            return self._repeated(lambda: catalogue.describe(self._connected(), table_id), f"Reading the definition of {table_id}")
        except pymysql.err.MySQLError as error:
            raise self._unreadable(f"The definition of {table_id} cannot be read", error, table_id.database) from None

    def text_comparisons(self, tables: Collection[TableId]) -> Mapping[TableId, TextComparison]:
        """See ``headrace.sinks.base.TextComparisons``."""
        what = "Reading the collations of columns"
        try:
            return self._repeated(lambda: catalogue.text_comparisons(self._connected(), tables), what)
        except pymysql.err.MySQLError as error:
            raise self._unreadable("The collations of columns cannot be read", error) from None

    def state_before(self, change: SchemaChange) -> str:
        """See ``MetadataApplier.state_before``."""
        what = f"Reading the definition of {change.table_id}"
        try:
            before = self._repeated(lambda: end_state.before(self._connected(), change), what)
        except pymysql.err.MySQLError as error:
            raise self._unreadable(f"The definition of {change.table_id} cannot be read", error, change.database) from None
        self._before[change.identity] = before
        return before.text()

    def begun(self, change: SchemaChange, state_before: str) -> Begun:
        """See ``MetadataApplier.begun``. May create a table in the ledger's database, and drops it again."""
        what = f"Finding out whether the schema change of {change.table_id} ran"
        try:
            return self._repeated(lambda: self._begun(self._connected(), change, Before.read(state_before)), what)
        except pymysql.err.MySQLError as error:
            raise self._unreadable(f"{what} failed", error, change.database) from None

    def keeps_unique(self, change: SchemaChange) -> str:
        """See ``MetadataApplier.keeps_unique``. Rows replace others that are equal in a unique key."""
        self._verified.difference_update(change.changes)  # a skipped change leaves the target's table in another shape
        what = f"Reading the unique keys of {change.table_id}"
        try:
            return self._repeated(lambda: _kept_key(self._connected(), change), what)
        except pymysql.err.MySQLError as error:
            raise self._unreadable(f"The unique keys of {change.table_id} cannot be read", error, change.database) from None

    def _unreadable(self, what: str, error: pymysql.err.MySQLError, database: str = "") -> TargetUnreadableError:
        hint = denied.to_grant(self._session, error, [database]) or _GRANT_HINT
        return TargetUnreadableError(f"{what}: {error_text(error)}.", hint)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _counted(self, session: MySqlSession) -> None:
        """Counts a schema change that ran, so that the ledger's next step detects a server that was promoted without it."""
        claim = self._ledger.claim
        if claim is not None:
            counted = self._ledger.fence.count_ddl(session, claim, self._count)
            self._ledger.expect([counted])
            self._count = counted.after

    def _apply(self, session: MySqlSession, sending: Sending) -> tuple[Notice, ...]:
        """Checks the conditions for the change, and sends its statements if anything is left to do."""
        change = sending.change
        left = drop_left_keys(session, change)
        dropped = next((event for event in change.events if isinstance(event, DropDatabaseEvent)), None)
        if dropped is not None:
            return (*left, *databases.drop_database(session, dropped, sending))
        created = next((event for event in change.events if isinstance(event, CreateTableEvent)), None)
        notices = left
        if created is not None:
            present = catalogue.describe(session, created.table_id)
            if present is None:
                notices.extend(_ensure_database(session, change, created.table_id.database))
                notices.extend(_left_out_of_shape(change, created.schema))
            else:
                notices.extend(self._taken_over(change, present))
                _require_no_more_keys(session, change, created)
                if _is_shaped(change, present, created.schema):
                    return tuple(notices)
        elif _is_done(session, change):
            return tuple(notices)
        else:
            for renamed in (event for event in change.events if isinstance(event, RenameTableEvent)):
                # Not every layout reports databases, so a rename may be the first change that names one.
                notices.extend(_ensure_database(session, change, renamed.new_table_id.database))
        refuse_rows_brought_back(change)
        refuse_exploding_view(session, change)
        refuse_long_computing(change)
        refuse_many_members(change)
        refuse_other_zone(change, self._settings.time_zone)
        refuse_computed_otherwise(session, change)
        notices.extend(refuse_unseen_values(session, change, self._settings.time_zone))
        notices.extend(_differing_default(session, change))
        adapted_statements = list(self._adapted_statements(session, change))  # raises for all of them before any is sent
        notices.extend(Notice(text, change.table_id) for adapted in adapted_statements for text in adapted.notices)
        for adapted in adapted_statements:
            if adapted.statement:
                with at_its_time(session, change):
                    sending.send(session, adapted.statement)
        return tuple(notices)

    def _taken_over(self, change: SchemaChange, present: TableDescription) -> tuple[Notice, ...]:
        if present.is_view:
            raise refused(change, "the target has a view of this name.", "Drop the view in the target if a table belongs there.")
        if not present.has_rows:
            return ()
        if not self._adopt:
            raise refused(
                change,
                "the target already has this table, with rows that Headrace did not write.",
                "Start with --adopt if these rows are the source's own as of the start, else empty or drop the table. If another "
                "pipeline made it, run that one instead, with its --name; the command status without --name shows them all.",
            )
        return (Notice("the table and the rows it has were adopted.", change.table_id),)

    def _statements(self, session: MySqlSession, change: SchemaChange) -> list[str]:
        """The statements to run: the source's own text, completed, or text made from the typed events.

        The source's text is written again from its parsed words, so that this server reads what Headrace has read, and nothing
        else.
        """
        statement = rendered(words(change.statement) or ())
        created = next((event for event in change.events if isinstance(event, CreateTableEvent)), None)
        kind = read_statement(change.statement, change.database).kind
        if kind is StatementKind.CREATE_DATABASE:
            return [collation.create_database(statement, by_bytes=change.by_bytes)]
        if kind is StatementKind.CREATE_TABLE and not change.by_shape:
            return [collation.create_table(statement, _default_collation(change), by_bytes=change.by_bytes)]
        if created is not None and not catalogue.exists(session, created.table_id):
            # First known by an ALTER, or by its shape alone; or a copy of a table that has changed since.
            return [create_table(created.table_id, created.schema, _defaults(change))]
        if statement:
            return [collation.spell_out(statement, by_bytes=change.by_bytes)]
        return _rendered(session, change)

    def _adapted_statements(self, session: MySqlSession, change: SchemaChange) -> Iterator[Adapted]:
        for source_statement in self._statements(session, change):
            filling = filled_as_by_tidb(source_statement, change, is_mariadb="MariaDB" in session.version)
            statement = same_rows(session, change, source_statement if session.is_tidb else filling)
            adapted = _adapted(session, change, spelled_as_here(session, statement, change.database))
            _require_same_names(change, adapted.statement)
            yield adapted

    def _begun(self, session: MySqlSession, change: SchemaChange, former: Before) -> Begun:
        def statements() -> list[str]:
            if not change.events:  # a person's
                return [change.statement]
            adapted = [adapted.statement for adapted in self._adapted_statements(session, change) if adapted.statement]
            return adapted or [change.statement]  # the object that it drops may be gone because it ran

        digest = hashlib.sha256((self._ledger.claim.pipeline if self._ledger.claim else "").encode()).hexdigest()[:16]
        scratch = TableId(self._settings.ledger_database, f"scratch_{digest}")
        return EndState(session, change, former, statements, scratch).begun()

    def _connected(self) -> MySqlSession:
        """The session. It holds the pipeline's lock as long as this run is the newest according to the ledger."""
        if self._session is None:
            session = MySqlSession(self._settings, ddl=True, interruption=self._ledger.interruption)
            try:
                with session.promptly():
                    self._take_lock(session)
            except BaseException:
                session.close()
                raise
            self._session = session
        return self._session

    def _take_lock(self, session: MySqlSession) -> None:
        claim = self._ledger.claim
        if claim is None:
            return
        pipeline = claim.pipeline
        for _ in range(_LOCK_TRIES):
            self._ledger.tables.verify(session, claim)  # a run that was taken over does not even wait
            if self._ledger.fence.take_ddl_lock(session, pipeline, _LOCK_SECONDS):
                # Before the epoch is checked: a run that raises it afterwards finds this connection.
                self._count = self._ledger.fence.enter_ddl(session, claim)
                self._ledger.tables.verify(session, claim)
                return
            # Our own lost connection is left to finish its statement; a former run's is not. One that has finished may be there
            # for hours: where the network broke off, the server does not notice.
            holder = self._ledger.fence.ddl_holder(session, pipeline)
            if holder is not None and (holder != self._lost_connection or _is_idle(session, holder)):
                _end(session, holder)
        raise TransientError(f"Another connection still runs a schema change of pipeline {pipeline!r}.")

    def _repeated(self, action: Callable[[], _T], what: str) -> _T:
        try:
            return repeat(action, what, self._recover, self._ledger.interruption)
        finally:
            self._rest()

    def _rest(self) -> None:
        """Releases the lock if it is expensive to hold: TiDB's is an open transaction, which delays its garbage collection."""
        if self._session is not None and self._session.is_tidb:
            self.close()

    def _recover(self, error: BaseException) -> None:
        if (
            self._session is not None
            and isinstance(error, (pymysql.err.MySQLError, OSError))
            and classify(error) is ErrorClass.LOST
        ):
            self._lost_connection = self._session.connection_id
            self.close()


def _kept_key(session: MySqlSession, change: SchemaChange) -> str:
    """See ``MetadataApplier.keeps_unique``."""
    read = read_statement(change.statement, change.database)
    names = changed_names(read)
    columns = names.columns | _changed_columns(change)
    if not (names.indexes or columns or names.texts):
        return ""
    # The statement may rename the table, as in its events; the target has the former name.
    table_id = read.tables[0] if read.tables else change.table_id
    keys = catalogue.unique_keys(session, table_id) if catalogue.exists(session, table_id) else {}
    if names.texts:
        columns |= {folded_name(name) for name in catalogue.text_columns(session, table_id)}
    computed = catalogue.computed_from(session, table_id) if columns else {}
    for key, of_key in keys.items():
        needed = of_key.union(*(computed.get(name, ()) for name in of_key))
        # An expression in a key has no name, and may use any of these columns.
        if folded_name(key) in names.indexes or needed & columns or (columns and "" in of_key):
            return key
    return ""


def _changed_columns(change: SchemaChange) -> frozenset[str]:
    """The columns (folded names) that the change drops, renames or gives another type, according to its events."""
    found = set()
    for event in change.events:
        match event:
            case DropColumnEvent():
                found.add(folded_name(event.column_name))
            case RenameColumnEvent():
                found.add(folded_name(event.old_name))
            case AlterColumnTypeEvent() if event.column.type != event.old_column.type:
                found.add(folded_name(event.column.name))
    return frozenset(found)


def _is_shaped(change: SchemaChange, present: TableDescription, wanted: TableSchema) -> bool:
    """Whether an existing table needs nothing more from a change that begins it.

    The change is a CREATE, a shape, or an ALTER of a table that the source never showed before. Raises SchemaChangeRefused if the
    table is another one.
    """
    read = read_statement(change.statement, change.database)
    same = same_columns(present.columns, wanted, by_shape=is_by_shape(change))
    if read.kind not in (StatementKind.CREATE_TABLE, StatementKind.EMPTY):
        return same and any(_moves_columns(action) for action in read.actions) and _is_told_by_names(read)
    if not same:
        raise refused(
            change,
            f"the target already has this table, with other columns ({', '.join(present.columns)}).",
            "Drop it or rename it in the target; Headrace then creates it as the source has it.",
        )
    return True


def _left_out_of_shape(change: SchemaChange, schema: TableSchema) -> Iterator[Notice]:
    """What a table that is made from its shape does not get, though a statement told it."""
    if not is_by_shape(change):
        return
    left_out = [f"the index {index.name}" for index in schema.indexes]
    left_out += [f"the generated column {column.name}" for column in schema.columns if column.generated is Generated.VIRTUAL]
    if left_out:
        yield Notice(f"it was created from its shape, without {', '.join(left_out)}.", change.table_id)


def _require_no_more_keys(session: MySqlSession, change: SchemaChange, created: CreateTableEvent) -> None:
    """Raises SchemaChangeRefused if an existing table has a unique key that the source's table does not have (yet).

    Rows that the source has side by side would replace each other.
    """
    if read_statement(change.statement, change.database).kind is not StatementKind.CREATE_TABLE or change.by_shape:
        return  # not all of the source's keys are known
    source = SourceTable(created.schema)
    found = catalogue.unique_keys(session, created.table_id)
    more = sorted(name for name, columns in found.items() if "" not in columns and not source.is_unique(columns))
    like = read_statement(change.statement, change.database).like is not None
    if more and not like:
        raise refused(
            change,
            f"the target already has this table, with the unique key {', '.join(more)}, which the source's table does not have at "
            "that time.",
            "Drop the table, or the key, in the target. If you only emptied the table, it still has the keys that were added "
            "later.",
        )


def _is_told_by_names(statement: Statement, verbs: Collection[str] = _COLUMN_ACTIONS) -> bool:
    """Whether names show that the whole statement ran: each clause of ALTER TABLE does one of these actions to a column.

    For other clauses, names do not prove that they ran, since a person may have added or dropped the columns.
    """
    actions = [action for action in statement.actions if action[0].text.upper() not in _HINTS]
    in_other_case = any(folded_name(old) == folded_name(new) for old, new in statement.column_renames)
    return all(_moves_columns(action, verbs) for action in actions) and not in_other_case


def _moves_columns(action: tuple[Word, ...], verbs: Collection[str] = _COLUMN_ACTIONS) -> bool:
    """Whether a clause of ALTER TABLE adds, drops or renames a column, so that column names show whether it ran."""
    first, second = (*action, Word(""), Word(""))[:2]
    return first.text.upper() in verbs and (second.is_name or second.text.upper() not in _NOT_COLUMNS)


def _ensure_database(session: MySqlSession, change: SchemaChange, database: str) -> list[Notice]:
    if catalogue.exists(session, TableId(database)):
        return []
    statement = _adapted(
        session, change, f"CREATE DATABASE IF NOT EXISTS {qualified(TableId(database))} {_defaults(change)}"
    ).statement
    faults.before(Step.MYSQL_STATEMENT, statement)
    session.run(statement)
    faults.after(Step.MYSQL_STATEMENT, statement)
    own = f"the source's collation {change.database_collation}" if change.database_collation else "TiDB's default collation"
    collated = "a collation that compares bytes" if change.by_bytes else own
    return [Notice(f"the database was not there and was created, with {collated}.", TableId(database))]


def _adapted(session: MySqlSession, change: SchemaChange, statement: str) -> Adapted:
    """The statement in a form that this server accepts. Raises SchemaChangeRefused."""
    try:
        return adapt(statement, session, change.database, change.foreign)
    except UnadaptableError as error:
        raise refused(change, f"{error.message} The statement is {shown(change)}.", error.hint) from None


def _require_same_names(change: SchemaChange, statement: str) -> None:
    """Raises SchemaChangeRefused if the statement to be sent names other tables than the statement that was judged.

    Adaptations work on text. If one of them changed a name into another one, that would be a bug, and must not reach the server.
    """
    judged, sent = judge(change.statement, change.database), judge(statement, change.database)
    if judged.objection:  # such a statement runs only by a person's decision
        return
    of_events = {event.new_table_id for event in change.events if isinstance(event, RenameTableEvent)}
    known = {name.folded for name in (*judged.names, *change.changes, *change.reads, *of_events)}
    known |= {TableId(name.database) for name in known}  # which may be made for its first table
    strange = [name for name in sent.names if name.folded not in known]
    if not strange and not sent.objection and {name.folded for name in sent.selects} == {name.folded for name in judged.selects}:
        return
    if begins_with(statement, "DELETE"):  # made of a judged expression (``same_rows``)
        return
    why = sent.objection or f"it names {', '.join(map(str, sorted(strange))) or 'other tables'}"
    message = f"its statement as adapted for the target does not match the source's ({why}): {statement}."
    raise refused(change, message, "This is a bug of Headrace: please report it. Make the change by hand and skip it, or edit it.")


def _default_collation(change: SchemaChange) -> str:
    """The collation of a source's table that names none."""
    return collation.BY_BYTES if change.by_bytes else change.database_collation or collation.TIDB_COLLATION


def _defaults(change: SchemaChange) -> str:
    return collation.as_default(_default_collation(change))


def _differing_default(session: MySqlSession, change: SchemaChange) -> list[Notice]:
    """The notice about a default of the target's database that a person chose, perhaps because it is the source's."""
    if change.by_bytes or change.database_collation or not collation.names_none(change.statement):
        return []
    chosen, of_server = catalogue.default_collations(session, change.database)
    if chosen in (collation.TIDB_COLLATION, "None", of_server):
        return []
    charset = chosen.partition("_")[0]
    message = (
        f"it was created with TiDB's default collation, {collation.TIDB_COLLATION}: its statement names no collation, and no file "
        f"names that of the source's database. The target's database has {chosen}. If SHOW CREATE TABLE in the source shows "
        f"{chosen}, run ALTER TABLE {qualified(change.table_id)} CONVERT TO CHARACTER SET {charset} COLLATE {chosen} in "
        "the target."
    )
    return [Notice(message, change.table_id)]


def _rendered(session: MySqlSession, change: SchemaChange) -> list[str]:
    statements: list[str] = []
    for event in change.events:
        match event:
            case CreateDatabaseEvent(database=database):
                statements.append(f"CREATE DATABASE {qualified(TableId(database))} {_defaults(change)}")
            case DropTableEvent(table_id=table_id):
                statements.append(f"DROP TABLE {qualified(table_id)}")
            case TruncateTableEvent(table_id=table_id):
                statements.append(f"TRUNCATE TABLE {qualified(table_id)}")
            case RenameTableEvent(table_id=old, new_table_id=new):
                statements.append(f"RENAME TABLE {qualified(old)} TO {qualified(new)}")
            case _:
                pass
    # For a table that already has a part of it, only the rest. If a column gets another one's name, names do not show that.
    whole = reuses_names(change)
    altered = alter_table(change.table_id, [event for event in change.events if whole or not shows(session, event)])
    return [*statements, altered] if altered else statements


def _is_done(session: MySqlSession, change: SchemaChange) -> bool:
    """Whether the catalogue already shows the whole change. What ran before a crash is found by the journal's state before."""
    renames = [event for event in change.events if isinstance(event, RenameTableEvent)]
    if renames:
        return len(renames) == len(change.events) and are_renamed(session, renames)
    # The name of a column shows neither its type nor its values.
    if any(isinstance(event, TruncateTableEvent | AddColumnEvent | AlterColumnTypeEvent) for event in change.events):
        return False
    if reuses_names(change) or not _is_told_by_names(read_statement(change.statement, change.database), _NAME_ACTIONS):
        return False
    shown = [shows(session, event) for event in change.events]
    return any(shown) and all(seen is not False for seen in shown)


def _verify(session: MySqlSession, change: SchemaChange) -> None:
    """The server has accepted the statement, so the catalogue must show it. Raises SchemaChangeUnclear."""
    lacking = not_shown(session, change)
    if lacking:
        raise unclear(change, f"the target took the statement, but {lacking}: {shown(change)}.")


def _is_idle(session: MySqlSession, connection_id: int) -> bool:
    return session.scalar("SELECT command FROM information_schema.processlist WHERE id = ?", (connection_id,)) == "Sleep"


def _end(session: MySqlSession, connection_id: int) -> None:
    try:
        session.execute(f"KILL {connection_id}")
    except pymysql.err.MySQLError as error:
        if classify(error) is not ErrorClass.REFUSED:
            raise
        # It ended by itself, or belongs to another user: then the lock stays taken, and that is reported.
