"""What a storage target holds of each table, as its schema files tell it: the target is its own catalogue.

The newest schema file of a table is its shape, and names the directory that its rows go to. A table is over if that file is of a
DROP, if a newer file of its database is of a DROP, or if a note below ``_headrace/renamed`` says that this was its last file:
TiCDC's layout writes nothing under the old name of a table that is renamed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256

from headrace.ddl.action_codes import CREATE_TABLE, CREATE_VIEW, DROP_DATABASE, DROP_TABLE, DROP_VIEW, RENAME_TABLE, TRUNCATE_TABLE
from headrace.errors import SinkUnreachableError
from headrace.formats.schema_file import SchemaFile, SchemaFileError, parse_schema_file
from headrace.formats.schema_file_encoder import SchemaFileText
from headrace.formats.storage_paths import METADATA, SchemaPath, parse_data_name, parse_path
from headrace.model.table import TableId, TableSchema
from headrace.sinks.storage.target_store import OWN, TargetStore


@dataclass(frozen=True)
class Held:
    """What the target holds of a table or a database."""

    version: int
    """The table version (TSO) of its newest schema file."""
    checksum: int
    schema: TableSchema | None
    """The shape; ``None`` for a database."""
    is_over: bool = False
    """Whether it was dropped, or renamed away."""
    is_view: bool = False
    dropped: int = 0
    """For a database: the version of its last DROP, with which the tables of then ended."""


_TAKEN = frozenset({".", "..", OWN, METADATA})
_UNWRITABLE = re.compile(r"[/\\\x00-\x1f\x7f]")
_LONGEST = 255
"""The most bytes of a name in the file systems in use."""
_NOTHING = Held(0, 0, None, is_over=True)


def note_of_rename(table_id: TableId) -> str:
    """The path of the note that a table of this name was renamed. It holds the version of its last schema file."""
    name = sha256(json.dumps([table_id.database, table_id.table]).encode()).hexdigest()[:32]
    return f"{OWN}/renamed/{name}.json"


class TargetTables:
    """The tables and databases of the target, each read once. An open cut sees its own changes (:meth:`put`, :meth:`end`).

    All methods raise SinkUnreachableError.
    """

    def __init__(self, store: TargetStore, *, column_ids: bool) -> None:
        self._store = store
        self._column_ids = column_ids
        self._found: dict[TableId, Held] = {}
        self._changed: dict[TableId, Held] = {}

    def held(self, object_id: TableId) -> Held:
        """The table, view or database of that name, also if it is over."""
        found = self._changed.get(object_id) or self._found.get(object_id)
        if found is None:
            found = self._found[object_id] = self._read(object_id)
        if object_id.is_database or found.is_over:
            return found
        database = self.held(TableId(object_id.database))
        return replace(found, is_over=database.dropped >= found.version)

    def spelled(self, database: TableId) -> TableId:
        """The database under the name that the target has: a statement may use another case. The same if there is no such one."""
        if not self.held(database).is_over:
            return database
        there = (TableId(name) for name in sorted(self._store.folders("")) if name != OWN)
        return next((name for name in there if name.folded == database.folded and not self.held(name).is_over), database)

    def names(self, database: str) -> list[TableId]:
        """The tables and views of a database that are not over."""
        written = {table_id for table_id in self._changed if table_id.lies_in(database) and table_id.table}
        found = {TableId(database, name) for name in self._store.folders(database) if name != "meta"}
        return sorted(table_id for table_id in written | found if not self.held(table_id).is_over)

    def has_rows(self, table_id: TableId) -> bool:
        """Whether there are published data files of the table since its CREATE or TRUNCATE. True for a table that was renamed."""
        for path in reversed(self._schema_files(table_id)):
            if self._has_files(f"{table_id.database}/{table_id.table}/{path.version}"):
                return True
            code = self._parsed(path).type_code
            if code in (CREATE_TABLE, TRUNCATE_TABLE, RENAME_TABLE):
                return code == RENAME_TABLE
        return False

    def put(self, file: SchemaFileText, *, is_over: bool) -> None:
        """The open cut writes a schema file."""
        dropped = file.version if is_over else self.held(file.table_id).dropped
        is_view = file.type_code == CREATE_VIEW
        self._changed[file.table_id] = Held(file.version, file.checksum, file.schema, is_over, is_view, dropped)

    def end(self, table_id: TableId) -> None:
        """The open cut renames a table, so that this name is free."""
        self._changed[table_id] = replace(self.held(table_id), is_over=True)

    def keep(self) -> None:
        """The open cut is committed."""
        self._found |= self._changed
        self._changed = {}

    def abandon(self) -> None:
        """The open cut is abandoned."""
        self._changed = {}

    def forget(self) -> None:
        """Reads everything anew when it is needed: another run may have written to the target."""
        self._found, self._changed = {}, {}

    def _read(self, object_id: TableId) -> Held:
        paths = self._schema_files(object_id)
        if not paths:
            return _NOTHING
        newest = paths[-1]
        if object_id.is_database:
            drops = [path.version for path in paths if self._parsed(path).type_code == DROP_DATABASE]
            return Held(newest.version, int(newest.checksum), None, newest.version in drops, dropped=max(drops, default=0))
        file = self._parsed(newest)
        is_over = file.type_code in (DROP_TABLE, DROP_VIEW) or self._renamed_at(object_id) >= newest.version
        return Held(newest.version, int(newest.checksum), file.schema, is_over, file.type_code == CREATE_VIEW)

    def _schema_files(self, object_id: TableId) -> list[SchemaPath]:
        """The published schema files of an object, by version."""
        folder = "/".join(part for part in (object_id.database, object_id.table, "meta") if part)
        paths = [path for name in self._store.files(folder) if isinstance(path := parse_path(f"{folder}/{name}"), SchemaPath)]
        return sorted((path for path in paths if not path.legacy), key=lambda path: (path.version, path.checksum))

    def _parsed(self, path: SchemaPath) -> SchemaFile:
        raw = self._store.read(path.key)
        try:
            return parse_schema_file(raw or b"")
        except SchemaFileError as error:
            raise SinkUnreachableError(
                f"{path.key} in {self._store.name} cannot be read: {error.message}",
                "Restore it, or move the table's folder away: the table then begins anew.",
            ) from None

    def _has_files(self, directory: str) -> bool:
        names = self._store.files(directory)
        dates = self._store.folders(directory)
        return any(parse_data_name(name) for name in names) or any(self._has_files(f"{directory}/{date}") for date in dates)

    def _renamed_at(self, table_id: TableId) -> int:
        """The version of the last schema file of the table that had this name before a RENAME; -1 if there was none."""
        noted = self._store.read(note_of_rename(table_id))
        return int(json.loads(noted)["version"]) if noted is not None else -1


def unwritable_name(names: Iterable[str]) -> str:
    """The first of these names that no folder of the layout can have; empty if there is none."""
    return next((name for name in names if name in _TAKEN or _UNWRITABLE.search(name) or len(name.encode()) > _LONGEST), "")
