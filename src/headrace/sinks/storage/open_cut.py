"""The cut that a storage sink has open: the schema changes and staged files of its rounds, and what they become at its end."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from headrace.formats.schema_file import SchemaFile, parse_schema_file
from headrace.formats.schema_file_encoder import SchemaFileText
from headrace.formats.storage_paths import DataPath, IndexPath, SchemaPath, parse_data_name
from headrace.model.table import TableId, TableSchema
from headrace.sinks.storage.output import StorageOutput
from headrace.sinks.storage.publication import CUTS, Publication, Round
from headrace.sinks.storage.staging import StagedFile
from headrace.sinks.storage.tables import TargetTables, note_of_rename
from headrace.sinks.storage.target_store import TargetStore


@dataclass
class OpenCut:
    """What the cut publishes when it is committed."""

    folder: str
    rounds: list[Round] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    last: dict[tuple[str, str], str] = field(default_factory=dict)
    """By directory, the newest data file of the cut."""

    @classmethod
    def begun(cls) -> OpenCut:
        return cls(f"{CUTS}/{uuid.uuid4().hex}")

    @property
    def is_empty(self) -> bool:
        return not self.rounds and not self.notes


class CutWriter:
    """Collects what the open cut writes. Nothing is visible before the publication is completed."""

    def __init__(self, store: TargetStore, output: StorageOutput, tables: TargetTables) -> None:
        self._store, self._output, self.tables = store, output, tables
        self._numbers: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        self.cut: OpenCut | None = None

    def begin(self) -> None:
        """Opens a cut."""
        self.abandon()
        self.cut = OpenCut.begun()

    def abandon(self) -> None:
        """Forgets the open cut. Its staged files are removed when the next run begins."""
        self.cut = None
        self._taken = {}
        self.tables.abandon()

    def keep(self) -> None:
        """The open cut is committed and published."""
        self._numbers |= self._taken
        self.tables.keep()
        self.abandon()

    def forget(self) -> None:
        """Another run may have written to the target."""
        self.abandon()
        self._numbers = {}
        self.tables.forget()

    @property
    def open(self) -> OpenCut:
        """The open cut."""
        assert self.cut is not None, "rows and schema changes come in a cut"
        return self.cut

    def write_schema(self, file: SchemaFileText, *, is_over: bool = False) -> SchemaFileText:
        """Adds a schema file, and returns it with its version: that is larger than the table's last one, which readers go by."""
        file = replace(file, version=max(file.version, self.tables.held(file.table_id).version + 1))
        parent = (file.table_id.database, file.table_id.table)
        path = SchemaPath(*parent, file.version, f"{file.checksum:010d}")
        self.open.rounds.append(Round(texts={path.key: file.text}))
        self.tables.put(file, is_over=is_over)
        return file

    def end_name(self, table_id: TableId) -> None:
        """The table of this name gets another one."""
        self.open.notes[note_of_rename(table_id)] = f'{{"version":{self.tables.held(table_id).version}}}'
        self.tables.end(table_id)

    def add_files(self, files: Iterable[StagedFile]) -> None:
        """Gives the staged files of a table their final names, in order. Adds a schema file for a shape that has none."""
        for file in files:
            told = parse_schema_file(file.schema_text.encode())
            path = self._path(told.table_id, self._directory_version(told, file.checksum), self._output.date(datetime.now(UTC)))
            self.open.last[path.directory, path.extension] = path.key
            self.open.rounds.append(Round(files={file.key: path.key}))

    def publication(self, checkpoint: int) -> Publication:
        """What the cut publishes, with this checkpoint (TSO) for ``metadata``; 0 leaves it as it is."""
        cut = self.open
        indexes = {IndexPath(directory, "").key: f"{key.rpartition('/')[2]}\n" for (directory, _), key in cut.last.items()}
        return Publication(cut.folder, _joined(cut.rounds), indexes | cut.notes, checkpoint)

    def _directory_version(self, told: SchemaFile, checksum: int) -> int:
        """The table version whose directory rows of this shape go to."""
        held = self.tables.held(told.table_id)
        if not held.is_over and held.checksum == checksum and _names(held.schema) == _names(told.schema):
            return held.version
        return self.write_schema(
            SchemaFileText(told.table_id, told.version, told.schema, column_ids=self._output.column_ids)
        ).version

    def _path(self, table_id: TableId, version: int, date: str) -> DataPath:
        """The next data file of a directory. ``date`` is the date directory, or empty."""
        first = DataPath(f"{table_id.database}/{table_id.table}", version, "", date, "", "", self._output.extension)
        number = self._number(first.directory) + 1
        self._taken[first.directory] = number
        return replace(first, digits=f"{number:0{self._output.digits}d}")

    def _number(self, directory: str) -> int:
        """The greatest number of a data file in a directory, published or not; also one that only the index file still tells."""
        known = self._taken.get(directory, self._numbers.get(directory))
        if known is not None:
            return known
        index = self._store.read(IndexPath(directory, "").key) or b""
        names = [*self._store.files(directory), index.decode("utf-8", "replace").strip()]
        return max((int(parsed[1]) for name in names if (parsed := parse_data_name(name)) is not None), default=0)


def _names(schema: TableSchema | None) -> list[str]:
    """The columns in order, on which the checksum of a shape does not depend."""
    return [column.name for column in schema.columns] if schema is not None else []


def _joined(rounds: Iterable[Round]) -> list[Round]:
    """Rounds in which as much as possible is done at once: all schema files in a row, then all data files in a row."""
    joined: list[Round] = []
    for one in rounds:
        if joined and not (one.texts and joined[-1].files):
            joined[-1] = Round(joined[-1].texts | one.texts, joined[-1].files | one.files)
        else:
            joined.append(one)
    return joined
