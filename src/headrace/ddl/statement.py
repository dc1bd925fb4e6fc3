"""Reads the kind of a DDL statement and the names in it, in one pass over its words. Makes no guesses about structure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from headrace.ddl.grammar.vocabulary import RESERVED
from headrace.ddl.lexer import Cursor, Word, split_at_commas, words
from headrace.ddl.statement_cache import remembered
from headrace.model.table import TableId


class StatementKind(StrEnum):
    """The kinds that Headrace treats differently. All others are ``OTHER`` if they are recognised, else ``UNKNOWN``."""

    EMPTY = "EMPTY"
    CREATE_DATABASE = "CREATE DATABASE"
    DROP_DATABASE = "DROP DATABASE"
    ALTER_DATABASE = "ALTER DATABASE"
    CREATE_TABLE = "CREATE TABLE"
    DROP_TABLE = "DROP TABLE"
    TRUNCATE_TABLE = "TRUNCATE TABLE"
    RENAME_TABLE = "RENAME TABLE"
    ALTER_TABLE = "ALTER TABLE"
    CREATE_INDEX = "CREATE INDEX"
    CREATE_VIEW = "CREATE VIEW"
    DROP_VIEW = "DROP VIEW"
    OTHER = "OTHER"
    UNKNOWN = "UNKNOWN"


_DATABASE_OPTIONS = ("CHAR", "CHARACTER", "CHARSET", "COLLATE", "DEFAULT", "SET", "PLACEMENT", "ENCRYPTION")


@dataclass(frozen=True)
class Mention:
    """A name of a table or database in a statement."""

    table_id: TableId
    start: int
    end: int
    """Where the name starts and ends in the statement, in characters. Includes the name's database if that is written."""


@dataclass(frozen=True)
class Statement:
    """A statement's kind and names, all resolved against the current database."""

    kind: StatementKind
    tables: tuple[TableId, ...] = ()
    """The tables, views or database that it changes, in order. Empty for RENAME TABLE."""
    reads: tuple[TableId, ...] = ()
    """The tables that it only refers to."""
    renames: tuple[tuple[TableId, TableId], ...] = ()
    """Table renames, old to new, in the order in which they run."""
    column_renames: tuple[tuple[str, str], ...] = ()
    """Column renames, old to new, in order."""
    like: TableId | None = None
    """The table after LIKE in CREATE TABLE … LIKE."""
    definitions: tuple[tuple[Word, ...], ...] = ()
    """The parts inside the parenthesis of CREATE TABLE, each as words."""
    options: tuple[Word, ...] = ()
    """The words after that parenthesis, or after the name of a database."""
    actions: tuple[tuple[Word, ...], ...] = ()
    """The clauses of ALTER TABLE, each as words. CREATE INDEX has one action, ``INDEX name (columns)`` or ``UNIQUE name
    (columns)``. DROP INDEX has the action ``DROP INDEX name``."""
    brings_back: bool = False
    """Whether it is RECOVER or FLASHBACK, of tables or of anything else."""
    if_exists: bool = False
    """Whether it says IF EXISTS (DROP TABLE, DROP VIEW) or IF NOT EXISTS (CREATE TABLE, CREATE VIEW)."""
    mentions: tuple[Mention, ...] = field(default=(), compare=False)
    """Every place where it names a table or database."""

    @property
    def named(self) -> Iterator[TableId]:
        """The tables and databases that it acts on, and the table after LIKE. Not those that foreign keys and views refer to."""
        yield from self.tables
        yield from (name for pair in self.renames for name in pair)
        if self.like is not None:
            yield self.like

    @property
    def shows_current(self) -> bool:
        """Whether the database of the statement's table was the current one, or no table is named without a database.

        Only for a statement that was read with an empty current database. The table of a RENAME is the new one.
        """
        own = self.renames[-1][1] if self.renames else next(iter(self.tables), None)
        return own is None or not own.database or all(mention.table_id.database for mention in self.mentions)


@remembered
def read_statement(text: str, database: str) -> Statement:
    """Reads a statement; never raises. ``database`` is the current database for names without one."""
    found = words(text)
    if found is None:
        return Statement(StatementKind.UNKNOWN)
    if not found:
        return Statement(StatementKind.EMPTY)
    return _Reader(found, database).read()


class _Reader:
    """Reads the words of a statement, or of a part of one. For a part, ``mentions`` is the list of the whole statement."""

    def __init__(self, found: tuple[Word, ...], database: str, mentions: list[Mention] | None = None, begin: int = 0) -> None:
        self._cursor = Cursor(found, begin)
        self._database = database
        self._mentions = [] if mentions is None else mentions
        self._torn = False

    def read(self) -> Statement:
        readers = {
            "CREATE": self._create,
            "DROP": self._drop,
            "ALTER": self._alter,
            "TRUNCATE": self._truncate,
            "RENAME": self._rename,
            "RECOVER": self._recover,
            "FLASHBACK": self._recover,
        }
        first = self._cursor.next()
        for keyword, reader in readers.items():
            if first.says(keyword):
                statement = reader()
                # A text that ends where a name should stand was cut off, so its meaning is unknown. TiDB runs no statement with a
                # name that no table can have.
                is_unknown = self._torn or not all(name.is_possible for name in statement.named)
                return Statement(StatementKind.UNKNOWN) if is_unknown else replace(statement, mentions=tuple(self._mentions))
        return Statement(StatementKind.UNKNOWN)

    def _truncate(self) -> Statement:
        self._cursor.accept("TABLE")
        return Statement(StatementKind.TRUNCATE_TABLE, (self._table(),))

    def _recover(self) -> Statement:
        if not self._cursor.accept("TABLE"):
            return Statement(StatementKind.UNKNOWN, brings_back=True)
        tables = [self._table()]
        if self._cursor.accept("TO"):
            tables.append(self._table())
        return Statement(StatementKind.OTHER, tuple(tables), brings_back=True)

    def _table(self) -> TableId:
        first = self._cursor.peek()
        database, name = self._cursor.name()
        self._torn = self._torn or not name
        table_id = TableId(database or self._database, name)
        self._mentions.append(Mention(table_id, first.start, self._cursor.last.end))
        return table_id

    def _table_list(self) -> tuple[TableId, ...]:
        tables = [self._table()]
        while self._cursor.accept(","):
            tables.append(self._table())
        return tuple(tables)

    def _database_statement(self, kind: StatementKind) -> Statement:
        self._skip_existence()
        word = self._cursor.peek()
        # In ALTER DATABASE the name may be omitted; this means the current database.
        unnamed = not word.text or any(word.says(keyword) for keyword in _DATABASE_OPTIONS)
        named = TableId(self._database if unnamed else word.text)
        if not unnamed:
            self._mentions.append(Mention(named, word.start, word.end))
            self._cursor.next()
        return Statement(kind, (named,), options=self._cursor.rest())

    def _skip_existence(self) -> bool:
        """Steps past IF [NOT] EXISTS. Returns whether it was there."""
        return self._cursor.accept("IF", "NOT", "EXISTS") or self._cursor.accept("IF", "EXISTS")

    def _create(self) -> Statement:
        cursor = self._cursor
        if cursor.accept("DATABASE") or cursor.accept("SCHEMA"):
            return self._database_statement(StatementKind.CREATE_DATABASE)
        cursor.skip_any("GLOBAL", "TEMPORARY")
        if cursor.accept("TABLE"):
            return self._create_table()
        unique = cursor.peek().says("UNIQUE")
        cursor.skip_any("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR")
        if cursor.accept("INDEX"):
            name, table, keys = self._index()
            return Statement(StatementKind.CREATE_INDEX, (table,), actions=((Word("UNIQUE" if unique else "INDEX"), name, *keys),))
        if self._step_to("VIEW"):
            return self._create_view()
        return Statement(StatementKind.UNKNOWN)

    def _step_to(self, keyword: str) -> bool:
        """Steps past this keyword, which ends the options of CREATE VIEW, if it comes before AS. Returns whether it did."""
        ahead = 0
        while self._cursor.at + ahead < self._cursor.length and not self._cursor.peek(ahead).says("AS"):
            if self._cursor.peek(ahead).says(keyword):
                for _ in range(ahead + 1):
                    self._cursor.next()
                return True
            ahead += 1
        return False

    def _create_table(self) -> Statement:
        cursor = self._cursor
        if_exists = self._skip_existence()
        table = self._table()
        bracketed = cursor.peek().says("(") and cursor.peek(1).says("LIKE")
        if bracketed:
            cursor.next()
        if cursor.accept("LIKE"):
            like = self._table()
            return Statement(StatementKind.CREATE_TABLE, (table,), reads=(like,), like=like, if_exists=if_exists)
        body = cursor.group()
        return Statement(
            StatementKind.CREATE_TABLE,
            (table,),
            reads=self._named_after(body, "REFERENCES"),
            definitions=tuple(split_at_commas(body)),
            options=cursor.rest(),
            if_exists=if_exists,
        )

    def _create_view(self) -> Statement:
        if_exists = self._skip_existence()
        view = self._table()
        reads = self._named_after(self._cursor.rest(), "FROM", "JOIN")
        return Statement(StatementKind.CREATE_VIEW, (view,), reads=reads, if_exists=if_exists)

    def _named_after(self, body: tuple[Word, ...], *keywords: str) -> tuple[TableId, ...]:
        """The tables named after these keywords, including the further ones in ``FROM a AS x, b``. Best effort, for ordering."""
        found: dict[TableId, None] = {}
        for at, word in enumerate(body):
            if not any(word.says(keyword) for keyword in keywords):
                continue
            reader = _Reader(body, self._database, self._mentions, at + 1)
            while not reader._cursor.done and _may_be_name(reader._cursor.peek()):
                found[reader._table()] = None
                reader._cursor.accept("AS")
                if not reader._cursor.peek().says(",") and reader._cursor.peek(1).says(","):
                    reader._cursor.next()
                if word.says("REFERENCES") or not reader._cursor.accept(","):
                    break
        return tuple(found)

    def _drop(self) -> Statement:
        cursor = self._cursor
        if cursor.accept("DATABASE") or cursor.accept("SCHEMA"):
            return self._database_statement(StatementKind.DROP_DATABASE)
        if cursor.accept("TEMPORARY"):
            return Statement(StatementKind.EMPTY)  # of its own session only, also where a table has the same name
        cursor.skip_any("GLOBAL", "TEMPORARY")
        if cursor.accept("TABLE") or cursor.accept("TABLES"):
            if_exists = self._skip_existence()
            return Statement(StatementKind.DROP_TABLE, self._table_list(), if_exists=if_exists)
        if cursor.accept("VIEW"):
            if_exists = self._skip_existence()
            return Statement(StatementKind.DROP_VIEW, self._table_list(), if_exists=if_exists)
        if cursor.accept("INDEX"):
            name, table, _ = self._index()
            return Statement(StatementKind.OTHER, (table,), actions=((Word("DROP"), Word("INDEX"), name),))
        return Statement(StatementKind.UNKNOWN)

    def _index(self) -> tuple[Word, TableId, tuple[Word, ...]]:
        """The index's name, the table after ON, and the words after the table."""
        self._skip_existence()
        name = self._cursor.next()
        while not self._cursor.done and not self._cursor.accept("ON"):
            self._cursor.next()
        return name, self._table(), self._cursor.rest()

    def _rename(self) -> Statement:
        pairs: list[tuple[TableId, TableId]] = []
        if not self._cursor.accept("TABLE"):
            return Statement(StatementKind.UNKNOWN)
        while True:
            old = self._table()
            if not self._cursor.accept("TO"):
                return Statement(StatementKind.UNKNOWN)
            pairs.append((old, self._table()))
            if not self._cursor.accept(","):
                return Statement(StatementKind.RENAME_TABLE, renames=tuple(pairs))

    def _alter(self) -> Statement:
        cursor = self._cursor
        if cursor.accept("DATABASE") or cursor.accept("SCHEMA"):
            return self._database_statement(StatementKind.ALTER_DATABASE)
        cursor.accept("IGNORE")
        if not cursor.accept("TABLE"):
            return Statement(StatementKind.UNKNOWN)
        self._skip_existence()
        table = self._table()
        changed: list[TableId] = [table]
        reads: list[TableId] = []
        tables: list[tuple[TableId, TableId]] = []
        columns: list[tuple[str, str]] = []
        actions = tuple(split_at_commas(cursor.rest()))
        for action in actions:
            reader = _Reader(action, self._database, self._mentions)
            reads.extend(self._named_after(action, "REFERENCES"))
            if action[0].says("RENAME"):
                reader._alter_rename(table, tables, columns)
            elif action[0].says("CHANGE"):
                columns.append(_changed_column(reader._cursor))
            elif action[0].says("EXCHANGE"):
                changed.extend(reader._exchanged_table())
        return Statement(StatementKind.ALTER_TABLE, tuple(changed), tuple(reads), tuple(tables), tuple(columns), actions=actions)

    def _alter_rename(self, table: TableId, tables: list[tuple[TableId, TableId]], columns: list[tuple[str, str]]) -> None:
        cursor = self._cursor
        cursor.next()
        if cursor.accept("COLUMN"):
            old = cursor.next().text
            if cursor.accept("TO"):
                columns.append((old, cursor.next().text))
        elif not any(cursor.peek().says(k) for k in ("INDEX", "KEY")):
            cursor.skip_any("TO", "AS", "=")
            tables.append((table, self._table()))

    def _exchanged_table(self) -> list[TableId]:
        while not self._cursor.done:
            if self._cursor.accept("WITH", "TABLE"):
                return [self._table()]
            self._cursor.next()
        return []


def _may_be_name(word: Word) -> bool:
    return word.is_name or not (word.says("(") or word.text.upper() in RESERVED)


def _changed_column(cursor: Cursor) -> tuple[str, str]:
    """The names in ``CHANGE [COLUMN] [IF EXISTS] old new …``."""
    cursor.next()
    cursor.accept("COLUMN")
    cursor.accept("IF", "EXISTS")
    return cursor.column_name(), cursor.column_name()
