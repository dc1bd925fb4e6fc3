"""The schema files of a changefeed as one history: every table's versions, and the schema changes in the order in which they ran.

Only new files are read. Nothing is kept between runs, because the folder itself is the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from headrace.ddl.classify import Classified, classify
from headrace.ddl.columns import annotate
from headrace.ddl.indexes import with_index_names
from headrace.ddl.lexer import MOST_WORDS, has_too_many_words
from headrace.ddl.names import KnownNames, spelled
from headrace.ddl.partitions import Partitioning, partitioning_after
from headrace.ddl.renames import Rename, RenamePlan, plan_renames, rename_statement
from headrace.ddl.statement import Statement, StatementKind, read_statement
from headrace.ddl.told import named_collation
from headrace.formats.schema_file import MOST_BYTES, SchemaFile, SchemaFileError, ToldParts, parse_schema_file, told_parts
from headrace.formats.storage_paths import SchemaPath
from headrace.model.containment import contained
from headrace.model.events import (
    DropDatabaseEvent,
    DropTableEvent,
    RenameTableEvent,
    SchemaChange,
    SchemaChangeEvent,
)
from headrace.model.outcome import Notice, Problem
from headrace.model.table import TableId, TableSchema, folded_name
from headrace.sources.ticdc_storage.held_tables import HeldTables, Tables
from headrace.sources.ticdc_storage.position import Owner
from headrace.sources.ticdc_storage.stores import Content, Store, StoredFile, UnreadableFileError
from headrace.sources.ticdc_storage.table_versions import TableVersion, with_bounds

_VIEW_KINDS = frozenset({StatementKind.CREATE_VIEW, StatementKind.DROP_VIEW})
_OF_DATABASES = frozenset({StatementKind.CREATE_DATABASE, StatementKind.ALTER_DATABASE, StatementKind.DROP_DATABASE})
_BEGINNINGS = frozenset({StatementKind.CREATE_TABLE, StatementKind.TRUNCATE_TABLE})
_FIRST, _STATEMENT, _SHAPE, _LAST = range(4)
_READ_AT_ONCE = 1_000
MOST_STATEMENT_BYTES = 16 << 20
"""A longer statement is not read, unless ``max-statement-bytes`` allows it. TiDB does not accept statements of this length."""


@dataclass(frozen=True)
class SchemaEntry:
    """One readable schema file, with the names that count: those in the path, or in table-id mode those in the file."""

    path: SchemaPath
    file: SchemaFile
    table_id: TableId
    statement: Statement

    @property
    def rename(self) -> Rename | None:
        """The rename in the file's statement, if it has exactly one."""
        renames = self.statement.renames
        return (renames[0][0], self.table_id) if len(renames) == 1 and self.table_id.table else None


@dataclass(frozen=True)
class Catalogue:
    """The contents of the schema files."""

    changes: tuple[SchemaChange, ...] = ()
    versions: Mapping[str, Mapping[int, TableVersion]] = field(default_factory=dict)
    """A table's path and version -> the version."""
    tables: Mapping[TableId, TableSchema] = field(default_factory=dict)
    """The newest shapes."""
    databases: frozenset[str] = frozenset()
    table_ids: frozenset[str] = frozenset()
    """The first path segments that are table ids."""
    problems: tuple[Problem, ...] = ()
    notices: tuple[Notice, ...] = ()
    mismatched: tuple[str, ...] = ()
    """The paths of files with a wrong checksum, for inspection."""
    broken: tuple[str, ...] = ()
    """The paths of unusable files, for inspection."""
    told: Mapping[str, ToldParts] = field(default_factory=dict)
    """The readable part of each unusable file, by path."""
    former: Mapping[str, Owner] = field(default_factory=dict)
    """The owners, from the position, of folders named by table ids."""

    def owners(self, parent: str) -> dict[int, TableId]:
        """The tables whose files are or were under ``parent``, by version."""
        found = {version: known.table_id for version, known in self.versions.get(parent, {}).items()}
        if (former := self.former.get(parent)) is not None:
            found.setdefault(former.version, former.table_id)
        return found

    def table_of(self, parent: str, version: int | None = None) -> TableId:
        """The table whose files are under ``parent``: at ``version``, otherwise at the newest one, otherwise by the path."""
        owners = self.owners(parent)
        if owners:
            return owners[version if version in owners else max(owners)]
        database, _, table = parent.partition("/")
        return TableId(database, table)

    def remembering(self, former: Mapping[str, Owner]) -> Catalogue:
        """The catalogue with the owners, from earlier schema files, of folders named by table ids."""
        return replace(self, former=former, table_ids=self.table_ids | former.keys()) if former else self

    def owners_by_id(self) -> dict[str, Owner]:
        """The newest owner of each folder named by a table id."""
        found = {}
        for parent in self.former.keys() | self.table_ids:
            if owners := self.owners(parent):
                found[parent] = Owner(max(owners), owners[max(owners)])
        return found


@dataclass(frozen=True)
class _Loaded:
    """The result of reading one schema file."""

    entry: SchemaEntry | None
    problem: Problem | None
    notices: tuple[Notice, ...] = ()
    mismatched: bool = False
    repeat: bool = False
    told: ToldParts | None = None


@dataclass(frozen=True)
class _Known:
    """What is known about a table between two schema files."""

    schema: TableSchema | None = None
    partitioning: Partitioning | None = None
    version: int = 0
    """The version of the file that told the shape, as far as this is known."""


@dataclass(frozen=True)
class _Step:
    """The effect of one schema file on the tables. ``statement`` has names for the indexes whose names are left to TiDB."""

    entry: SchemaEntry
    before: _Known
    pattern: _Known
    after: _Known
    classified: Classified
    statement: str


class CatalogueReader:
    """Caches the schema files of one folder. ``strict`` makes a wrong checksum a problem.

    Any error in a file is a problem of its table.
    """

    def __init__(
        self,
        store: Store,
        *,
        strict: bool = False,
        table_id_paths: bool | None = None,
        most_statement_bytes: int = MOST_STATEMENT_BYTES,
    ) -> None:
        self._most_statement_bytes = most_statement_bytes
        self._store = store
        self._strict = strict
        self._table_id_paths = table_id_paths
        self._loaded: dict[StoredFile, _Loaded] = {}
        self._steps: dict[str, _Step] = {}
        self._catalogue = Catalogue()

    @property
    def catalogue(self) -> Catalogue:
        """The last result of :meth:`update`."""
        return self._catalogue

    def update(self, files: Sequence[tuple[StoredFile, SchemaPath]]) -> Catalogue:
        """Reads files that are new or were written again, and returns the history of all files."""
        fresh = [(stored, path) for stored, path in files if stored not in self._loaded]
        if not fresh and len(files) == len(self._loaded):
            return self._catalogue
        for files_at_once in _parts(fresh):
            texts = self._store.read_starts([stored.path for stored, _ in files_at_once], MOST_BYTES + 1)
            for (stored, path), raw in zip(files_at_once, texts, strict=True):
                self._loaded[stored] = self._load(path, raw)
        present = {stored for stored, _ in files}
        loaded = {stored: result for stored, result in self._loaded.items() if stored in present}
        self._catalogue = self._build(list(loaded.values()))
        # Files that may have been half-written are read again next time.
        self._loaded = {stored: result for stored, result in loaded.items() if not result.repeat}
        return self._catalogue

    def _load(self, path: SchemaPath, raw: Content) -> _Loaded:
        named = TableId(path.database, path.table)
        if raw is None:
            gone = Problem(named, "The schema file vanished while it was read.", path.place, transient=True)
            return _Loaded(None, gone, repeat=True)
        if isinstance(raw, UnreadableFileError):
            return _Loaded(None, Problem(named, raw.message, path.place, hint=raw.hint, transient=True), repeat=True)
        if len(raw) > MOST_BYTES:
            message = f"The schema file has more than {MOST_BYTES >> 20} MiB, which TiCDC never writes."
            return _Loaded(None, Problem(named, message, path.place))
        problems: list[Problem] = []
        with contained(problems.append, named, path.place):
            try:
                return self._read(path, named, parse_schema_file(raw))
            except SchemaFileError as error:
                hint = "It may not be written completely yet." if error.incomplete else ""
                problem = Problem(named, error.message, path.place, hint=hint, transient=error.incomplete)
                return _Loaded(None, problem, repeat=error.incomplete, told=self._told(raw))
        return _Loaded(None, problems[0])

    def _told(self, raw: bytes) -> ToldParts:
        """The readable part of an unusable file; its statement only if it is also understood."""
        told = told_parts(raw)
        if told.statement is None or self._is_too_long(told.statement):
            return replace(told, statement=None)
        with contained(lambda problem: None, TableId(told.database, told.table)):
            read_statement(told.statement, told.database)
            return told
        return replace(told, statement=None)

    def _is_too_long(self, statement: str) -> bool:
        return len(statement) > self._most_statement_bytes or len(statement.encode()) > self._most_statement_bytes

    def _read(self, path: SchemaPath, named: TableId, file: SchemaFile) -> _Loaded:
        table_id = named
        if not path.table and file.table and self._table_id_paths is not False and path.database.isdecimal():
            table_id = TableId(file.database, file.table)
        if self._is_too_long(file.statement):
            message = f"Its statement has more than {self._most_statement_bytes} bytes."
            hint = "If it is as the source ran it, set max-statement-bytes in the source's URI."
            told = ToldParts(file.database, file.table, file.version, None)
            return _Loaded(None, Problem(table_id, message, path.place, hint=hint), told=told)
        if has_too_many_words(file.statement):
            message = f"Its statement has more than {MOST_WORDS:,} words."
            told = ToldParts(file.database, file.table, file.version, None)
            return _Loaded(None, Problem(table_id, message, path.place), told=told)
        file = replace(file, schema=_renamed(file.schema, table_id))
        entry = SchemaEntry(path, file, table_id, read_statement(file.statement, table_id.database))
        notices = _naming_notices(entry)
        mismatched = bool(path.checksum) and int(path.checksum) != file.checksum
        if mismatched:
            message = f"The schema file's content has the checksum {file.checksum:010d}, not the one in its name."
            if self._strict:
                problem = Problem(table_id, message, path.place, hint="Without --strict it would be used.")
                told = ToldParts(table_id.database, table_id.table, file.version, file.statement)
                return _Loaded(None, problem, notices, mismatched=True, told=told)
            notices = (*notices, Notice(message, table_id, path.place))
        return _Loaded(entry, None, notices, mismatched)

    def _build(self, loaded: Sequence[_Loaded]) -> Catalogue:
        entries = sorted((r.entry for r in loaded if r.entry), key=lambda e: (e.path.version, e.path.parent, e.path.checksum))
        history = _History(self._steps, entries)
        for version, group in groupby(entries, key=lambda entry: entry.path.version):
            history.take(version, list(group))
        broken = [r.problem.file for r in loaded if r.problem and not r.mismatched]
        self._steps = history.steps
        return Catalogue(
            changes=tuple(history.changes),
            versions=history.table_versions(),
            tables=history.tables,
            databases=frozenset(e.table_id.database for e in entries),
            table_ids=frozenset(e.path.database for e in entries if not e.path.table and e.table_id.table),
            problems=(*(r.problem for r in loaded if r.problem), *history.problems),
            notices=(*(notice for r in loaded for notice in r.notices), *history.notices),
            mismatched=tuple(r.entry.path.key for r in loaded if r.entry and r.mismatched)
            + tuple(r.problem.file for r in loaded if r.problem and r.mismatched),
            broken=(*broken, *history.told),
            told={r.problem.file: r.told for r in loaded if r.problem and r.told} | history.told,
        )


def _parts(files: Sequence[tuple[StoredFile, SchemaPath]]) -> Iterator[list[tuple[StoredFile, SchemaPath]]]:
    """The files in groups that are small enough to be read at once."""
    part: list[tuple[StoredFile, SchemaPath]] = []
    size = 0
    for stored, path in files:
        if part and (len(part) >= _READ_AT_ONCE or size + stored.size > MOST_BYTES):
            yield part
            part, size = [], 0
        part.append((stored, path))
        size += stored.size
    if part:
        yield part


def _with_known_names(entry: SchemaEntry, known: KnownNames) -> SchemaEntry:
    """The entry, with the names in its statement spelled like the tables to which they refer."""
    text = spelled(entry.file.statement, entry.statement, known.meant)
    if text == entry.file.statement:
        return entry
    statement = read_statement(text, entry.table_id.database)
    return replace(entry, file=replace(entry.file, statement=text), statement=statement)


def _renamed(schema: TableSchema | None, table_id: TableId) -> TableSchema | None:
    return replace(schema, table_id=table_id) if schema is not None and table_id.table else None


def _naming_notices(entry: SchemaEntry) -> tuple[Notice, ...]:
    file = entry.file
    notices = []
    if (file.database, file.table) != (entry.table_id.database, entry.table_id.table):
        swapped = (file.database, file.table) == (entry.table_id.table, entry.table_id.database)
        said = "has the names of database and table swapped" if swapped else f"says it is of {file.table_id}"
        notices.append(Notice(f"The schema file {said}; its path counts.", entry.table_id, entry.path.place))
    if file.version != entry.path.version:
        message = f"The schema file says TableVersion {file.version}; its path counts."
        notices.append(Notice(message, entry.table_id, entry.path.place))
    return tuple(notices)


class _History:
    """Goes through the schema files in the order of their versions. ``former`` are the steps of the last time, to save parsing."""

    def __init__(self, former: Mapping[str, _Step], entries: Sequence[SchemaEntry]) -> None:
        self._former, self._entries = former, entries
        self.steps: dict[str, _Step] = {}
        self.tables = Tables()
        self._held = HeldTables(self._all_names)
        self.changes: list[SchemaChange] = []
        self.problems: list[Problem] = []
        self.notices: list[Notice] = []
        self.told: dict[str, ToldParts] = {}
        self._versions: dict[str, dict[int, TableVersion]] = {}
        self._partitionings: dict[TableId, Partitioning] = {}
        self._collations: dict[str, str] = {}
        self._told_at: dict[TableId, int] = {}

    def take(self, version: int, entries: list[SchemaEntry]) -> None:
        """All schema files of one version."""
        problems: list[Problem] = []
        with contained(problems.append, entries[0].table_id):
            self._take(version, entries)
            return
        while self.changes and self.changes[-1].commit_ts == version:
            self.changes.pop()
        for entry in entries:
            self._fail(entry, problems[0])

    def _fail(self, entry: SchemaEntry, problem: Problem) -> None:
        """Leaves out an entry that cannot be handled. It counts as an unreadable file with a known statement."""
        self.problems.append(replace(problem, table_id=entry.table_id, place=entry.path.place))
        names = entry.table_id
        self.told[entry.path.key] = ToldParts(names.database, names.table, entry.path.version, entry.file.statement)
        while self.changes and self.changes[-1].file == entry.path.key:
            self.changes.pop()
        versions = self._versions.get(entry.path.parent, {})
        if (known := versions.get(entry.path.version)) is not None and known.origin == entry.path.key:
            del versions[entry.path.version]
        if not versions:
            self._versions.pop(entry.path.parent, None)

    def _take(self, version: int, entries: list[SchemaEntry]) -> None:
        known = KnownNames({entry.table_id for entry in entries}, self.tables.index)
        entries = sorted((_with_known_names(entry, known) for entry in entries), key=_rank)
        renames = {rename: entry for entry in entries if (rename := entry.rename) is not None}
        plan = RenamePlan(tuple(renames))
        if len(renames) > 1:
            shapes = {e.table_id: e.file.schema for e in renames.values() if e.file.schema}
            plan = plan_renames(tuple(renames), self.tables, shapes)
            self._explain(plan, version)
        done = False
        for entry in entries:
            if entry.rename is None:
                self._apply(entry)
            elif not done:
                done = True
                for rename in plan.steps:
                    if rename in renames:
                        self._apply(renames[rename])
                    else:
                        self._infer(rename, version)
                if plan.unclear:
                    self._leave_open(version, renames, plan.unclear)

    def table_versions(self) -> dict[str, dict[int, TableVersion]]:
        """The versions of each path."""
        return with_bounds(self._versions)

    def _apply(self, entry: SchemaEntry) -> None:
        with contained(lambda problem: self._fail(entry, problem), entry.table_id, entry.path.place):
            self._carry_out(entry)

    def _carry_out(self, entry: SchemaEntry) -> None:
        step = self._step(entry)
        self.steps[entry.path.key] = step
        classified = step.classified
        schema = step.after.schema
        self._keep_version(entry, schema, classified.events)
        gone = self._move(classified.events, step.after, entry.table_id, is_view=entry.statement.kind in _VIEW_KINDS)
        database = folded_name(entry.table_id.database)
        if entry.statement.kind in _OF_DATABASES:
            before = self._collations.get(database, "") if entry.statement.kind is StatementKind.ALTER_DATABASE else ""
            self._collations[database] = named_collation(entry.statement.options) or before
        if not entry.file.statement and not classified.events:
            return
        changes = classified.changes
        if not classified.parsed:
            # It is unknown what the text touches, so it must wait for everything, and everything for it.
            names = self.tables.names
            changes = self._held.kept(names if changes <= names else names | changes)
        change = SchemaChange(
            commit_ts=entry.path.version,
            table_id=entry.table_id,
            events=classified.events,
            statement=step.statement,
            database=entry.table_id.database,
            changes=changes,
            reads=classified.reads - changes,
            schema=None if gone else schema,
            origin=entry.path.place,
            database_collation=self._collations.get(database, ""),
            unexplained=classified.unexplained,
        )
        self.changes.append(change)

    def _all_names(self) -> frozenset[TableId]:
        """The names of all tables in any schema file."""
        named = (name for e in self._entries for name in (*e.statement.tables, *(new for _, new in e.statement.renames)))
        return frozenset(name for name in (*(e.table_id for e in self._entries), *named) if name.table)

    def _step(self, entry: SchemaEntry) -> _Step:
        """The effect of the entry, reused from the last time if nothing before it has changed."""
        statement = entry.statement
        renamed_from = statement.renames[0][0] if len(statement.renames) == 1 else entry.table_id
        schema_before = self.tables.get(renamed_from, self.tables.get(entry.table_id))
        before = _Known(schema_before, self._partitionings.get(renamed_from), self._told_at.get(entry.table_id, 0))
        pattern = _Known()
        if statement.like:
            pattern = _Known(self.tables.get(statement.like), self._partitionings.get(statement.like))
        former = self._former.get(entry.path.key)
        if former is not None and (former.entry, former.before, former.pattern) == (entry, before, pattern):
            return former
        database, schema = entry.table_id.database, entry.file.schema
        indexes = before.schema.indexes if before.schema else ()
        text = with_index_names(entry.file.statement, statement, [index.name for index in indexes])
        if schema is not None and statement.kind not in _VIEW_KINDS:
            schema = annotate(text, schema, pattern.schema if statement.like else before.schema)
        classified = classify(
            text,
            database=database,
            table_id=entry.table_id,
            before=before.schema,
            after=schema,
            partitioning=before.partitioning,
            again=before.version == entry.path.version,
        )
        partitioning = partitioning_after(before.partitioning, text, database, pattern.partitioning)
        return _Step(entry, before, pattern, _Known(schema, partitioning, entry.path.version), classified, text)

    def _keep_version(self, entry: SchemaEntry, schema: TableSchema | None, events: Iterable[SchemaChangeEvent]) -> None:
        if schema is None:
            return
        versions = self._versions.setdefault(entry.path.parent, {})
        known = versions.get(entry.path.version)
        if known is not None and known.statement and not entry.file.statement:
            return
        # No row of this path counts that is older than the table's creation, truncation, or rename to this name.
        begins = entry.statement.kind in _BEGINNINGS or any(isinstance(event, RenameTableEvent) for event in events)
        versions[entry.path.version] = TableVersion(
            entry.table_id,
            entry.path.version,
            schema,
            0 if begins else entry.path.version,
            entry.path.key,
            entry.file.statement,
        )

    def _move(self, events: Sequence[SchemaChangeEvent], after: _Known, table_id: TableId, *, is_view: bool) -> bool:
        """Applies the events to the known tables. Returns whether the file's table is gone afterwards."""
        gone = False
        renames = [event for event in events if isinstance(event, RenameTableEvent)]
        for event in events:
            match event:
                case DropTableEvent(dropped):
                    self.tables.remove(dropped)
                    self._partitionings.pop(dropped, None)
                    gone |= dropped == table_id
                case DropDatabaseEvent(database):
                    for table in [t for t in self.tables if t.lies_in(database)]:
                        del self.tables[table]
                        self._partitionings.pop(table, None)
                    gone = True
                case RenameTableEvent(old, new):
                    moved = self.tables.remove(old)
                    if moved is not None:
                        self.tables[new] = replace(moved, table_id=new)
                    self._partition(new, self._partitionings.pop(old, None))
                case _:
                    pass
        if after.schema is not None and not gone and not is_view:
            self.tables[table_id] = after.schema
            self._told_at[table_id] = after.version
            if len(renames) < 2:  # else each table has kept its own
                self._partition(table_id, after.partitioning)
        return gone

    def _partition(self, table_id: TableId, partitioning: Partitioning | None) -> None:
        self._partitionings.pop(table_id, None)
        if partitioning is not None:
            self._partitionings[table_id] = partitioning

    def _infer(self, rename: Rename, version: int) -> None:
        old, new = rename
        schema = replace(self.tables[old], table_id=new)
        statement = rename_statement(rename)
        events = (RenameTableEvent(old, new),)
        self._move(events, _Known(schema, self._partitionings.get(old)), new, is_view=False)
        databases = frozenset((TableId(old.database), TableId(new.database)))
        change = SchemaChange(version, new, events, statement, old.database, frozenset(rename), databases, schema)
        self.changes.append(change)

    def _leave_open(self, version: int, renames: Mapping[Rename, SchemaEntry], unclear: frozenset[TableId]) -> None:
        """Makes one schema change of renames whose order is unknown; a person must decide about it."""
        for renamed in renames.values():
            self._keep_version(renamed, renamed.file.schema, ())
        names = frozenset(name for rename in renames for name in rename) | unclear
        for name in names:
            self.tables.remove(name)
            self._partition(name, None)
        for renamed in renames.values():
            if renamed.file.schema is not None:
                self.tables[renamed.table_id] = renamed.file.schema
        first = next(iter(renames.values()))
        change = SchemaChange(
            commit_ts=version,
            table_id=first.table_id,
            events=tuple(RenameTableEvent(old, new) for old, new in renames),
            statement=rename_statement(*renames),
            database=first.table_id.database,
            changes=names,
            origin=first.path.place,
            doubt="the files that TiCDC left do not show the order of the renames. Rename the tables in the target by hand.",
        )
        self.changes.append(change)

    def _explain(self, plan: RenamePlan, version: int) -> None:
        for old, new in plan.steps:
            if (old, new) in plan.inferred:
                message = f"A rename of {old} to {new} at version {version} was inferred: TiCDC overwrote its schema file."
                self.notices.append(Notice(message, new))


def _rank(entry: SchemaEntry) -> tuple[int, str]:
    """The order within one version: databases are created first and dropped last; statements come before shapes."""
    if not entry.table_id.table:
        return (_LAST if entry.statement.kind is StatementKind.DROP_DATABASE else _FIRST, entry.path.key)
    return (_STATEMENT if entry.file.statement else _SHAPE, entry.path.key)
