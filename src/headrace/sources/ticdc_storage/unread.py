"""Unreadable or missing schema files, as schema changes that tables wait for. Pure.

The effect of such a file is unknown, so it holds every table that it may concern, and no other:

- a statement that can still be read names them; an empty one only gives its own table a shape;
- the file of a database concerns the database and the tables in it;
- a table that existed before can be altered, emptied or dropped. A statement that also touches another table (EXCHANGE PARTITION,
  a chain of renames) leaves a file of the same version for that one;
- a table that did not exist may be a renamed one or a copy: of any table that existed, so all wait;
- with table ids as paths, the folder's other versions show the table, or the position, which stores the table of the newest
  one; if neither does, all wait.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from headrace.ddl.names import KnownNames
from headrace.ddl.statement import StatementKind, read_statement
from headrace.ddl.told import brought_back
from headrace.formats.storage_paths import DataPath, SchemaPath, parse_path
from headrace.model.events import (
    CreateTableEvent,
    DropDatabaseEvent,
    DropTableEvent,
    RenameTableEvent,
    SchemaChange,
    SchemaChangeEvent,
    unread_statement,
)
from headrace.model.outcome import Problem
from headrace.model.table import TableId
from headrace.sources.ticdc_storage.catalogue import Catalogue
from headrace.sources.ticdc_storage.held_tables import HeldTables, NameIndex

_DATABASE_KINDS = frozenset({StatementKind.CREATE_DATABASE, StatementKind.DROP_DATABASE, StatementKind.ALTER_DATABASE})


@dataclass(frozen=True)
class UnreadFile:
    """A version without a usable schema file."""

    parent: str
    """Its folder: ``database/table``, a database, or a table id."""
    version: int
    problem: Problem
    table_id: TableId | None = None
    """The table, if its path or the readable part shows it; ``TableId(database)`` for a database."""
    statement: str | None = None
    """The text of the statement; ``None`` if it cannot be read."""
    has_rows: bool = False
    """Data files of the version wait to be read."""


def unread_files(
    catalogue: Catalogue,
    broken: Iterable[Problem],
    missing: Iterable[tuple[DataPath, Problem]],
    rows_at: Collection[tuple[str, int]],
    uses_table_ids: bool | None,
) -> list[UnreadFile]:
    """The versions whose schema files are ``broken``, or ``missing`` beside data files.

    ``rows_at`` are the folders and versions with data files that wait for a schema file. ``uses_table_ids`` is the configured
    option.
    """
    found = []
    for problem in broken:
        path = parse_path(problem.file)
        if isinstance(path, SchemaPath):
            table_id, statement = _told(path, catalogue, uses_table_ids)
            has_rows = (path.parent, path.version) in rows_at
            found.append(UnreadFile(path.parent, path.version, problem, table_id, statement, has_rows))
    for data, problem in missing:
        database, _, table = data.parent.partition("/")
        table_id = TableId(database, table) if table else None
        found.append(UnreadFile(data.parent, data.version, problem, table_id, None, has_rows=True))
    return found


def _told(path: SchemaPath, catalogue: Catalogue, uses_table_ids: bool | None) -> tuple[TableId | None, str | None]:
    """The table and the statement of an unusable file, as far as its path and its readable part show them."""
    told = catalogue.told.get(path.key)
    is_whole = told is not None and told.version == path.version
    if path.table or not _is_table_id(path.database, catalogue, uses_table_ids):
        named = TableId(path.database, path.table)
        same = told is not None and (told.database, told.table) == (path.database, path.table)
        return named, told.statement if told is not None and is_whole and same else None
    if told is None or not is_whole or not told.database or not told.table:
        return None, None
    return TableId(told.database, told.table), told.statement


def _is_table_id(folder: str, catalogue: Catalogue, uses_table_ids: bool | None) -> bool:
    if uses_table_ids is not None:
        return uses_table_ids
    return folder in catalogue.table_ids or (folder.isdecimal() and folder not in catalogue.databases)


def unread_changes(catalogue: Catalogue, files: Iterable[UnreadFile]) -> tuple[SchemaChange, ...]:
    """The changes that tables must wait for, in order. ``changes`` are the tables that may be concerned; the rest is unknown."""
    ordered = sorted(files, key=lambda file: (file.version, file.parent))
    if not ordered:
        return ()
    history = _History(catalogue, ordered)
    found = []
    for version, group in groupby(ordered, key=lambda file: file.version):
        together = list(group)
        history.go_to(version, together)
        changes = [_change(catalogue, file, history.concerned(file)) for file in together]
        history.add(file.table_id for file in together if file.table_id is not None)
        for concerned in {id(change.changes): change.changes for change in changes}.values():
            history.may_be_gone |= concerned
        found += changes
    return tuple(found)


def owner_of(catalogue: Catalogue, file: UnreadFile) -> TableId | None:
    """The table for messages: the one in the file, otherwise the one to which its folder belonged before, or after."""
    if file.table_id is not None:
        return file.table_id
    owners = catalogue.owners(file.parent)
    before = [number for number in owners if number <= file.version]
    if not owners:
        return None
    return owners[max(before) if before else min(owners)]


def _change(catalogue: Catalogue, file: UnreadFile, concerned: frozenset[TableId]) -> SchemaChange:
    owner = owner_of(catalogue, file) or TableId(file.parent)
    return SchemaChange(
        commit_ts=file.version,
        table_id=owner,
        events=(),
        statement=unread_statement(file.problem.file or file.parent),
        database=owner.database,
        changes=concerned,
        origin=file.problem.place,
        unread=replace(file.problem, table_id=owner),
        has_rows=file.has_rows,
    )


@dataclass(frozen=True)
class _Version:
    """What is common to all unreadable files of one version."""

    are_apart: bool
    """Whether each file concerns its own table: there is only one file, or all are in folders named by tables."""
    are_known: bool
    """Whether all are files of existing tables."""
    named: frozenset[TableId]
    """The tables in the files of this version, including the readable ones."""
    there: frozenset[TableId]
    """The tables that exist or may exist, and those."""


class _History:
    """Which tables exist, as far as can be known. Goes through the schema changes once."""

    def __init__(self, catalogue: Catalogue, files: Sequence[UnreadFile]) -> None:
        self._catalogue, self._files = catalogue, files
        self._held = HeldTables(self._all_names)
        self._changes: Sequence[SchemaChange] = catalogue.changes
        self._next = 0
        self._at: dict[int, list[SchemaChange]] = defaultdict(list)
        for change in self._changes:
            self._at[change.commit_ts].append(change)
        self._shapes_at: dict[int, set[TableId]] = defaultdict(set)
        for versions in catalogue.versions.values():
            for version, known in versions.items():
                if not known.statement:
                    self._shapes_at[version].add(known.table_id)
        self.existing: set[TableId] = set()
        self.may_exist: set[TableId] = set()
        self._existing, self._may_exist = NameIndex(), NameIndex()
        self.may_be_gone: set[TableId] = set()
        """Tables that an unreadable change may have dropped or renamed."""
        self._now: _Version

    def go_to(self, version: int, together: Sequence[UnreadFile]) -> None:
        """Applies all changes below the version. ``together`` are all of the version's unreadable files."""
        while self._next < len(self._changes) and self._changes[self._next].commit_ts < version:
            change = self._changes[self._next]
            _carry_out(change, self.existing, self._existing)
            self.may_be_gone -= {event.table_id for event in change.events if isinstance(event, CreateTableEvent)}
            self.may_be_gone -= brought_back(change)
            self._next += 1
        found = [owner_of(self._catalogue, file) for file in together]
        owners = frozenset(owner for owner in found if owner is not None)
        partners = self._partners(version)
        # A name freed by a rename in the same statement may be the new name of any table.
        freed = {e.table_id for change in self._at[version] for e in change.events if isinstance(e, RenameTableEvent)}
        is_known = None not in found and owners <= self.existing
        self._now = _Version(
            are_apart=len(together) == 1 or all("/" in file.parent for file in together),
            are_known=is_known and owners.isdisjoint(self.may_be_gone) and owners.isdisjoint(freed),
            named=owners | partners,
            there=partners.union(self.existing, self.may_exist),
        )

    def add(self, tables: Iterable[TableId]) -> None:
        """Adds tables that an unreadable change may have created."""
        for table_id in tables:
            self.may_exist.add(table_id)
            self._may_exist.add(table_id)

    def concerned(self, file: UnreadFile) -> frozenset[TableId]:
        """The tables that the change of a file of the present version may concern."""
        return self._held.kept(self._concerned(file))

    def _all_names(self) -> frozenset[TableId]:
        """The names of all tables in any change or file."""
        owners = (owner_of(self._catalogue, file) for file in self._files)
        names = {owner for owner in owners if owner is not None}
        for sets in {id(change.changes): change.changes for change in self._changes}.values():
            names |= sets
        return frozenset(name for name in names | self._catalogue.tables.keys() if name.table)

    def _concerned(self, file: UnreadFile) -> frozenset[TableId]:
        owner = owner_of(self._catalogue, file)
        own = frozenset() if owner is None else frozenset({owner})
        if file.statement is not None and (named := self._named(file, owner)) is not None:
            return named | own
        if owner is not None and owner.is_database:
            return own | self._tables_of(owner.database)
        names = self._names(file) | own
        if self._is_bounded(file):
            return _with(self._now.named, names | self._first_seen_after(file))
        if self._held.are_many:
            return _with(self._held.everything(), names)
        return _with(self._now.there, names | self._first_seen_after(file))

    def _named(self, file: UnreadFile, owner: TableId | None) -> frozenset[TableId] | None:
        """The tables that the statement names; ``None`` if it is not understood."""
        assert file.statement is not None
        statement = read_statement(file.statement, owner.database if owner else "")
        if statement.kind is StatementKind.UNKNOWN or (statement.kind is not StatementKind.EMPTY and owner is None):
            return None
        known = KnownNames(frozenset() if owner is None else {owner}, self._existing, self._may_exist)
        found = known.all_meant((*statement.tables, *statement.reads, *(name for pair in statement.renames for name in pair)))
        if statement.kind in _DATABASE_KINDS:
            return found.union(*(self._tables_of(database.database) for database in found))
        return frozenset(t for t in found if t.table)

    def _tables_of(self, database: str) -> frozenset[TableId]:
        return frozenset(t for t in self.existing | self.may_exist if t.lies_in(database))

    def _names(self, file: UnreadFile) -> frozenset[TableId]:
        """With table ids as paths: all names that the folder's table ever had."""
        if "/" in file.parent:
            return frozenset()
        names = {*self._catalogue.owners(file.parent).values()}
        return frozenset(t for t in names.union(*self._sets_in_folders[file.parent].values()) if t.table)

    @cached_property
    def _sets_in_folders(self) -> dict[str, dict[int, frozenset[TableId]]]:
        """The sets of tables held by the changes of each folder named by a table id; many hold the same set."""
        found: dict[str, dict[int, frozenset[TableId]]] = defaultdict(dict)
        for change in self._changes:
            path = parse_path(change.file) if change.file else None
            if isinstance(path, SchemaPath) and "/" not in path.parent:
                found[path.parent][id(change.changes)] = change.changes
        return found

    def _is_bounded(self, file: UnreadFile) -> bool:
        """Whether only tables in files of this version can be concerned."""
        return self._now.are_apart and (self._now.are_known or self._is_known_by_id(file))

    def _is_known_by_id(self, file: UnreadFile) -> bool:
        """Whether a table had this id before. Then no other table is concerned, because each has a file of its own."""
        return "/" not in file.parent and any(number < file.version for number in self._catalogue.versions.get(file.parent, {}))

    def _partners(self, version: int) -> frozenset[TableId]:
        found = {*self._shapes_at[version]}
        for change in self._at[version]:
            tables = {table_id for table_id in change.changes if table_id.table}
            if len(tables) > 1:
                found |= tables
        return frozenset(found)

    def _first_seen_after(self, file: UnreadFile) -> frozenset[TableId]:
        """Names that no CREATE TABLE explains. If the file's own name is unknown, it may have created one of them."""
        if file.table_id is not None:
            return frozenset()
        at, names = self._unexplained
        return frozenset(names[bisect_right(at, file.version) :])

    @cached_property
    def _unexplained(self) -> tuple[list[int], list[TableId]]:
        """The names that changes use without a CREATE TABLE, in order, with the last version of each in which that is so."""
        existing, index, last = set[TableId](), NameIndex(), dict[TableId, int]()
        for change in self._changes:
            if not _creates(change):
                unknown = change.changes - existing
                last |= {t: change.commit_ts for t in unknown if t.table and not _becomes(change, t)}
            _carry_out(change, existing, index)
        names = sorted(last, key=last.__getitem__)
        return [last[name] for name in names], names


def _with(tables: frozenset[TableId], more: frozenset[TableId]) -> frozenset[TableId]:
    """The union; the same set object if nothing is new, so that many changes may share it."""
    return tables if more <= tables else tables | more


def _carry_out(change: SchemaChange, existing: set[TableId], index: NameIndex) -> None:
    """Adds and removes tables as the change does, also in an index of them."""
    for event in change.events:
        gone, come = _moved(event, existing)
        existing -= gone
        existing |= come
        for table_id in gone:
            index.discard(table_id)
        for table_id in come:
            index.add(table_id)
    for table_id in brought_back(change):
        existing.add(table_id)
        index.add(table_id)


def _moved(event: SchemaChangeEvent, existing: Iterable[TableId]) -> tuple[set[TableId], set[TableId]]:
    """The tables that an event removes and adds."""
    match event:
        case CreateTableEvent(table_id):
            return set(), {table_id}
        case DropTableEvent(table_id):
            return {table_id}, set()
        case RenameTableEvent(old, new):
            return {old}, {new}
        case DropDatabaseEvent(database):
            return {t for t in existing if t.lies_in(database)}, set()
        case _:
            return set(), set()


def _becomes(change: SchemaChange, table_id: TableId) -> bool:
    return any(isinstance(event, RenameTableEvent) and event.new_table_id == table_id for event in change.events)


def _creates(change: SchemaChange) -> bool:
    return read_statement(change.statement, change.database).kind is StatementKind.CREATE_TABLE
