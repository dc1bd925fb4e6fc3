"""What TiCDC may do with the same changes on their way from an upstream into files.

Tables progress at different speeds, transactions are cut into files, updates take other forms, and after a crash everything that
was not acknowledged is written again. TiCDC's promises hold: when a checkpoint is published, the rows up to it and the schema
changes below it are in files; a schema change comes after the rows before it; only a crash cuts a file short.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Literal

from headrace.model.table import TableId, TableSchema
from headrace.testing.ticdc_options import ChangefeedOptions
from headrace.testing.ticdc_schema_file import schema_checksum
from headrace.testing.ticdc_writer import RowChange, SchemaFile, TicdcWriter

KeyUpdates = Literal["sorted", "unsorted", "raw"]
_SCHEMA_FILE = re.compile(r"^schema_(\d+)_(\d{10})\.json$")


@dataclass(frozen=True)
class Conduct:
    """How a release of TiCDC behaves where the format leaves it free."""

    key_updates: KeyUpdates = "sorted"
    """Updates that change a key are written as deletes before inserts (``sorted``), as delete-insert pairs (``unsorted``), or whole
    (``raw``)."""
    discards_stale: bool = False
    """After a restart, rows for which a newer directory of the same shape exists are left out, as the newer architecture does.
    Otherwise they are written into that directory."""
    atomic: bool = False
    """Transactions are never cut."""
    dispatchers: int = 1
    """How many dispatchers share a table across nodes."""


@dataclass(frozen=True)
class _Rows:
    ts: int
    table_id: TableId
    schema: TableSchema
    changes: tuple[RowChange, ...]
    partition: int | None

    @property
    def objects(self) -> frozenset[TableId]:
        return frozenset({self.table_id})


@dataclass(frozen=True)
class _SchemaChange:
    ts: int
    files: tuple[SchemaFile, ...]
    gone: frozenset[TableId]

    @property
    def objects(self) -> frozenset[TableId]:
        return self.gone | {file.table_id for file in self.files}


class Delivery:
    """The path of a changefeed from the upstream into files. An ``Upstream`` can drive it in place of a :class:`TicdcWriter`."""

    def __init__(self, root: Path, options: ChangefeedOptions, conduct: Conduct, chance: Random) -> None:
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self.promised = 0
        """The highest checkpoint that was ever published."""
        self.published = 0
        """What ``metadata`` says: less, after a restart from an earlier time."""
        self._root, self._options, self._conduct, self._chance = root, options, conduct, chance
        self._writer = self._new_writer()
        self._log: list[_Rows | _SchemaChange] = []
        self._pending: list[_Rows | _SchemaChange] = []
        self._schemas: dict[TableId, TableSchema] = {}
        self._resumed: dict[TableId, tuple[TableSchema, int | None]] = {}
        self._discarded: set[TableId] = set()
        self._started, self._epoch = 0, 0
        self._torn: list[tuple[Path, bytes]] = []

    @property
    def uri(self) -> str:
        return self._writer.uri

    def rows(self, table_id: TableId, commit_ts: int, changes: Iterable[RowChange], *, partition: int | None = None) -> None:
        self._add(_Rows(commit_ts, table_id, self._schemas[table_id], tuple(changes), partition))

    def schema_changes(self, version: int, files: Sequence[SchemaFile], gone: Iterable[TableId] = ()) -> None:
        change = _SchemaChange(version, tuple(file for file in files if not file.overtaken), frozenset(gone))
        self._schemas |= {file.table_id: file.schema for file in change.files if file.schema is not None}
        self._add(change)

    def _add(self, event: _Rows | _SchemaChange) -> None:
        self._log.append(event)
        self._pending.append(event)

    def checkpoint(self, ts: int) -> None:
        """Delivers everything up to ``ts`` into files, then writes ``metadata``. A schema change at ``ts`` may come later."""
        rest = []
        for event in self._pending:
            if event.ts < ts or (event.ts == ts and isinstance(event, _Rows)):
                self._deliver(event)
            else:
                rest.append(event)
        self._pending = rest
        self.complete()
        self._writer.checkpoint(ts)
        self.promised = self.published = ts

    def deliver_some(self) -> None:
        """Delivers some of the waiting changes, in the order of each table. May put what was delivered into visible files."""
        rest: list[_Rows | _SchemaChange] = []
        held: set[TableId] = set()
        for event in self._pending:
            if _meets(event.objects, held) or self._chance.random() < 0.4:
                held |= event.objects
                rest.append(event)
            elif isinstance(event, _Rows) and len(event.changes) > 1 and self._cuts(event) and self._chance.random() < 0.3:
                middle = self._chance.randrange(1, len(event.changes))
                self._deliver(replace(event, changes=event.changes[:middle]))
                held |= event.objects
                rest.append(replace(event, changes=event.changes[middle:]))
            else:
                self._deliver(event)
        self._pending = rest
        if self._chance.random() < 0.5:
            self.complete()
            self._writer.flush()

    def begin_files(self) -> None:
        """Leaves files half-written, as TiCDC does when it writes in place. :meth:`complete` finishes them."""
        self.complete()
        self._torn = self._writer.tear(self._chance)

    def complete(self) -> None:
        for path, whole in self._torn:
            path.write_bytes(whole)
        self._torn = []

    def restart(self, acknowledged: int, *, torn: bool = False) -> None:
        """TiCDC crashes, perhaps in the middle of files, and resumes from ``acknowledged``.

        That is a ts (TSO) up to which everything was promised once. Raises ``ValueError`` if it is above the promise.
        """
        if acknowledged > self.promised:
            raise ValueError(f"nothing was acknowledged up to {acknowledged}")
        self.complete()
        if torn and not self._options.enable_table_across_nodes:  # there it is unknown if another dispatcher repeats the rows
            self._writer.tear(self._chance)
        # A schema change at the very checkpoint may not have run yet.
        self._pending = [e for e in self._log if e.ts > acknowledged or (e.ts == acknowledged and isinstance(e, _SchemaChange))]
        self._resumed = _tables_below(self._log, acknowledged)
        self._discarded = set()
        self._started, self._epoch = acknowledged, self._epoch + 1
        self._writer = self._new_writer()
        if self._chance.random() < 0.5:
            self._writer.checkpoint(acknowledged)
            self.published = acknowledged

    def move_partition(self, table_id: TableId, partition: int) -> None:
        """Moves a partition to another node, which writes again what was not acknowledged.

        In the old layout it writes into another directory. Raises ``ValueError`` if the repetition would cross a schema change.
        """
        delivered = [event for event in self._log if event not in self._pending and event.ts > self.promised]
        if table_id in self._resumed or any(table_id in e.objects for e in delivered if isinstance(e, _SchemaChange)):
            raise ValueError(f"{table_id} cannot move now")
        again = [e for e in delivered if isinstance(e, _Rows) and (e.table_id, e.partition) == (table_id, partition)]
        self.complete()
        self._writer.flush()
        if self._options.legacy:
            self._writer.begin_anew(table_id, partition, self.promised)
        self._pending = sorted([*again, *self._pending], key=lambda event: event.ts)

    def disturb_indexes(self) -> None:
        """Removes or empties index files, or gives them wrong contents. Index files are hints only."""
        for path in sorted(self._root.rglob("CDC*.index")):
            match self._chance.randrange(4):
                case 0:
                    path.unlink()
                case 1:
                    path.write_text(f"CDC{self._chance.randrange(1, 9):0{self._options.digits}d}.{self._options.extension}\n")
                case 2:
                    path.write_text("")

    def remove_files(self) -> None:
        """Removes data files, and TiCDC numbers from 1 again; or it finds an old index file and overwrites old numbers.

        To be called only when every consumer has read all files, so that nothing is lost.
        """
        self.complete()
        for folder in sorted({path.parent for path in self._root.rglob("CDC*") if path.suffix != ".index"}):
            match self._chance.randrange(3):
                case 0:
                    for path in (*folder.glob("CDC*"), *folder.glob("meta/CDC*.index")):
                        path.unlink()
                    self._writer.count_from(folder, lambda _: 0)
                case 1:
                    self._writer.count_from(folder, lambda number: self._chance.randrange(number + 1))

    def litter(self) -> None:
        """Puts something that TiCDC did not write into one of the folders."""
        folder = self._chance.choice(sorted({self._root, *(path for path in self._root.rglob("*") if path.is_dir())}))
        name = f"CDC{self._chance.randrange(10):0{self._options.digits}d}.{self._options.extension}.{len(list(folder.iterdir()))}"
        match self._chance.randrange(4):
            case 0:
                Path(os.fsdecode(os.fsencode(folder / name) + b"\xff")).write_text("x")
            case 1:
                os.mkfifo(folder / f"{name}.pipe")
            case 2:
                (folder / f"{name}.link").symlink_to("nowhere")
            case 3:
                (folder / f"{name}.loop").symlink_to(folder)

    def _new_writer(self) -> TicdcWriter:
        fields = {name: getattr(self._options, name) for name in self._options.__dataclass_fields__ if name != "protocol"}
        return TicdcWriter(self._root, self._options.protocol, clock=self._now, **fields)

    def _now(self) -> datetime:
        return self.clock()

    def _deliver(self, event: _Rows | _SchemaChange) -> None:
        self.complete()
        if isinstance(event, _SchemaChange):
            for table_id in event.objects:
                self._resumed.pop(table_id, None)
                self._discarded.discard(table_id)
            self._writer.schema_changes(event.ts, event.files, event.gone)
            return
        if event.table_id in self._resumed:
            self._resume(event, *self._resumed.pop(event.table_id))
        if event.table_id not in self._discarded:
            self._write(event, self._forms(event))

    def _write(self, event: _Rows, changes: Sequence[RowChange]) -> None:
        across = self._options.enable_table_across_nodes
        for change in changes:
            if self._cuts(event) and self._chance.random() < 0.1:
                self._writer.flush(event.table_id)
            dispatcher = _dispatcher(event, change, self._epoch, self._conduct.dispatchers) if across else ""
            self._writer.rows(event.table_id, event.ts, [change], partition=event.partition, dispatcher=dispatcher)

    def _resume(self, event: _Rows, schema: TableSchema, physical_id: int | None) -> None:
        """Chooses the directory for a table that existed before the restart (section 2.10 of the format)."""
        table_id = event.table_id
        if self._options.use_table_id_as_path and event.partition is not None:
            self._writer.resume(table_id, schema, self._started, physical_id)  # each partition has directories of its own
            return
        if self._options.legacy:
            self._writer.schema_change(table_id, self._started, "", schema, 0, physical_id=physical_id)
            return
        names = (str(physical_id),) if self._options.use_table_id_as_path else (table_id.database, table_id.table)
        checksum = schema_checksum(table_id, schema, column_id=self._options.output_column_id)
        matches = [_SCHEMA_FILE.match(path.name) for path in self._root.joinpath(*names, "meta").glob("schema_*.json")]
        versions = [int(match[1]) for match in matches if match and int(match[2]) == checksum]
        newest = self._started if self._started in versions else max(versions, default=0)
        if not newest:
            self._writer.schema_change(table_id, self._started, "", schema, 0, physical_id=physical_id)
            return
        if newest > self._started and self._conduct.discards_stale:
            self._discarded.add(table_id)
        self._writer.resume(table_id, schema, newest, physical_id)

    def _cuts(self, event: _Rows) -> bool:
        # In a table without key, a cut transaction cannot be distinguished from a repetition: the format is ambiguous here.
        return not self._conduct.atomic and bool(event.schema.handle_key)

    def _forms(self, event: _Rows) -> list[RowChange]:
        if self._chance.random() < 0.5:
            return list(event.changes)
        befores = [change.before for change in event.changes if change.before is not None]
        afters = [change.after for change in event.changes if change.after is not None]
        self._chance.shuffle(befores)
        self._chance.shuffle(afters)
        key = event.schema.handle_key
        whole = not key or (self._conduct.key_updates == "raw")
        whole = whole and (self._options.protocol == "canal-json" or self._options.output_old_value)
        deletes: list[RowChange] = []
        others: list[RowChange] = []
        for position in range(max(len(befores), len(afters))):
            before = befores[position] if position < len(befores) else None
            after = afters[position] if position < len(afters) else None
            same_key = before is not None and after is not None and key and all(before[n] == after[n] for n in key)
            if before is None or after is None or ((whole or same_key) and self._chance.random() < 0.7):
                (deletes if after is None else others).append(RowChange(before, after))
            elif self._conduct.key_updates == "unsorted":
                others += [RowChange(before=before), RowChange(after=after)]
            else:
                deletes.append(RowChange(before=before))
                others.append(RowChange(after=after))
        return deletes + others


def _meets(objects: frozenset[TableId], held: set[TableId]) -> bool:
    databases = {table_id.database for table_id in held}
    whole = {table_id.database for table_id in held if table_id.is_database}
    return any(o in held or o.database in whole or (o.is_database and o.database in databases) for o in objects)


def _tables_below(log: Iterable[_Rows | _SchemaChange], ts: int) -> dict[TableId, tuple[TableSchema, int | None]]:
    tables: dict[TableId, tuple[TableSchema, int | None]] = {}
    for event in log:
        if event.ts < ts and isinstance(event, _SchemaChange):
            tables |= {file.table_id: (file.schema, file.physical_id) for file in event.files if file.schema is not None}
            for table_id in event.gone:
                tables.pop(table_id, None)
    return tables


def _dispatcher(event: _Rows, change: RowChange, epoch: int, count: int) -> str:
    """The digits of the dispatcher that writes a row. Each restart distributes rows anew."""
    row = change.before or change.after or {}
    handle = "".join(str(row[name]).casefold().rstrip(" ") for name in event.schema.handle_key)
    number = zlib.crc32(f"{event.table_id} {epoch} {zlib.crc32(handle.encode()) % count}".encode())
    return f"{number:010d}" * 3


def options_text(options: ChangefeedOptions, conduct: Conduct) -> str:
    """The options that differ from the defaults, for a message."""
    changed = {name: value for name, value in vars(options).items() if value != getattr(ChangefeedOptions(), name)}
    behaves = {name: value for name, value in vars(conduct).items() if value != getattr(Conduct(), name)}
    return json.dumps(changed | behaves, ensure_ascii=False)
