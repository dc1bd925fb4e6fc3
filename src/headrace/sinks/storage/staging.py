"""The part of a storage sink that runs in tasks: encodes the changes of a unit into staged files, which nobody reads yet."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.encoding import EncodeError
from headrace.formats.schema_file_encoder import SchemaFileText
from headrace.model.block import KIND, META_COUNT, in_pieces
from headrace.model.containment import contained
from headrace.model.events import RowKind
from headrace.model.outcome import Problem, WriteOutcome
from headrace.model.table import TableId, TableSchema
from headrace.sinks.base import Commits, TableChange, WriterContext
from headrace.sinks.cut_commit import CutCommit
from headrace.sinks.refused_row import row_name
from headrace.sinks.storage.output import RowEncoder, StorageOutput
from headrace.sinks.storage.target_store import TargetStore
from headrace.sinks.storage.whole_updates import WholeUpdates


@dataclass(frozen=True)
class StagedFile:
    """A staged data file, as the outcome of a unit tells it to the driver (``WriteOutcome.spooled``)."""

    key: str
    """Its path in the target."""
    version: int
    """The table version (TSO) of its rows in the source."""
    checksum: int
    """The checksum of the shape of its rows."""
    schema_text: str
    """A schema file for that shape, without a statement."""

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> StagedFile:
        return cls(**json.loads(text))


@dataclass
class StagingWriter:
    """A :class:`headrace.sinks.base.UnitWriter`. Its files have names of their own: those of lost tasks are never published."""

    store: TargetStore
    folder: str
    """The folder of the cut's staged files."""
    output: StorageOutput

    def open(self, context: WriterContext) -> None:
        """There is nothing to connect to, and nothing to fence: only files that an outcome names are published."""

    def write(self, changes: Iterable[TableChange], commit: CutCommit | None) -> list[WriteOutcome]:
        """Stages the changes. The last outcome of a table names its files, in order. There is no ledger to commit.

        A table with a change that the format cannot carry yields a problem and no file.
        """
        outcomes: list[WriteOutcome] = []
        for table_id, pieces in groupby(changes, key=lambda change: change.table_id):
            problems: list[Problem] = []
            with contained(problems.append, table_id):
                outcomes += self._staged(table_id, pieces)
            outcomes += (WriteOutcome(table_id, problem=problem) for problem in problems)
        return outcomes

    def commits(self) -> tuple[Commits, ...]:
        """Nothing is committed in tasks."""
        return ()

    def close(self) -> None:
        """Nothing stays open."""

    def _staged(self, table_id: TableId, pieces: Iterable[TableChange]) -> list[WriteOutcome]:
        outcomes: list[WriteOutcome] = []
        files: list[str] = []
        try:
            for _, of_one_version in groupby(pieces, key=lambda change: change.version):
                staged = _Files(self)
                for change in of_one_version:
                    outcomes.append(_counted(change))
                    staged.add(change)
                files += staged.finished()
        except _Unfit as error:
            return [WriteOutcome(table_id, problem=error.problem)]
        outcomes[-1] = replace(outcomes[-1], spooled=tuple(files))
        return outcomes


class _Unfit(Exception):
    """A change that the format cannot carry. Carries the problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class _Files:
    """The staged files of a table's rows of one version."""

    def __init__(self, writer: StagingWriter) -> None:
        self._writer = writer
        self._updates: WholeUpdates | None = None
        self._first: TableChange | None = None
        self._encoders: dict[tuple[str, ...], RowEncoder] = {}
        self._header = b""
        self._parts: list[pa.Buffer] = []
        self._size = 0
        self._staged: list[str] = []

    def add(self, change: TableChange) -> None:
        """Encodes a piece. Raises _Unfit, SinkUnreachableError."""
        self._first = self._first or change
        self._updates = self._updates or WholeUpdates(change.target_schema.handle_key)
        for piece in in_pieces(change.ordered, self._writer.output.file_size, change.ordered.num_rows):
            if (rows := self._updates.taken(piece)) is not None:
                self._encode(rows)

    def finished(self) -> Iterator[str]:
        """Writes what is left, and returns the staged files as text."""
        rest = self._updates.rest() if self._updates is not None else None
        if rest is not None:
            self._encode(rest)
        self._write()
        return iter(self._staged)

    def _encode(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        assert self._first is not None, "rows come with a change"
        try:
            encoder = self._encoder(self._first.target_schema, tuple(rows.schema.names[META_COUNT:]))
            part = encoder.encode(rows)
        except EncodeError as error:
            raise _Unfit(_problem(error, self._first, rows)) from error
        if encoder.header != self._header or self._size >= self._writer.output.file_size:
            self._write()
            self._header = encoder.header
        self._parts.append(part)
        self._size += part.size

    def _encoder(self, schema: TableSchema, names: tuple[str, ...]) -> RowEncoder:
        if names not in self._encoders:
            self._encoders[names] = self._writer.output.encoder(schema, names)
        return self._encoders[names]

    def _write(self) -> None:
        if not self._parts:
            return
        assert self._first is not None, "rows come with a change"
        writer, schema = self._writer, self._first.target_schema
        key = f"{writer.folder}/{uuid.uuid4().hex}"
        writer.store.put(key, self._header, *self._parts)
        shape = SchemaFileText(schema.table_id, self._first.version, schema, column_ids=writer.output.column_ids)
        self._staged.append(StagedFile(key, self._first.version, shape.checksum, shape.text).to_text())
        self._parts, self._size = [], 0


def _problem(error: EncodeError, change: TableChange, rows: pa.RecordBatch) -> Problem:
    key = change.target_schema.handle_key
    row = "" if error.row is None else row_name(pa.Table.from_batches([rows]), error.row, key)
    value = None if error.value is None else str(error.value)
    return Problem(change.table_id, f"it {error.reason}.", column=error.column, value=value, row=row, hint=error.hint)


def _counted(change: TableChange) -> WriteOutcome:
    """Counts every change: old rows and deletions as deletes, all others as upserts."""
    kinds: Counter[RowKind] = Counter()
    for pair in pc.value_counts(change.ordered.column(KIND)).to_pylist():
        kinds[RowKind(pair["values"])] = pair["counts"]
    upserts = kinds[RowKind.INSERT] + kinds[RowKind.UPDATE_AFTER]
    return WriteOutcome(change.table_id, upserts=upserts, deletes=kinds.total() - upserts, target=change.target)
