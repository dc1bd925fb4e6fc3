"""Writes folders as TiCDC's storage sink does, file by file, and reads them through the source.

CSV has the dialect ``, " \\N`` LF with commit ts; the shape is ``id INT PRIMARY KEY, v VARCHAR(16)`` unless told.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace.formats.schema_file import schema_checksum
from headrace.model.block import ChangeBlock
from headrace.model.cut import CutOutcome
from headrace.model.offer import Learned, Offer
from headrace.model.outcome import SplitReport
from headrace.model.split import Window
from headrace.model.table import TableId
from headrace.sources.base import Bound
from headrace.sources.ticdc_storage import open_source
from headrace.sources.ticdc_storage.source import StorageEventSource

ID = {"ColumnName": "id", "ColumnType": "INT", "ColumnPrecision": "11", "ColumnNullable": "false", "ColumnIsPk": "true"}
V = {"ColumnName": "v", "ColumnType": "VARCHAR", "ColumnPrecision": "16"}
C = {"ColumnName": "c", "ColumnType": "INT", "ColumnDefault": "7", "ColumnPrecision": "11"}
OPTIONS = "protocol=csv&terminator=%0A&date-separator=none"


class StorageFolder:
    """A changefeed's folder on the local disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self._clock = 1_700_000_000

    def write(self, path: str, content: str | bytes) -> Path:
        """Writes a file; each write has a later modification time than the one before."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        self._clock += 1
        os.utime(target, (self._clock, self._clock))
        return target

    def checkpoint(self, ts: int) -> None:
        self.write("metadata", json.dumps({"checkpoint-ts": ts}, separators=(",", ":")))

    def schema_text(
        self, table: str, version: int, statement: str = "", columns: tuple[dict[str, Any], ...] = (ID, V), database: str = "test"
    ) -> bytes:
        document = {
            "Table": table,
            "Schema": database,
            "Version": 1,
            "TableVersion": version,
            "Query": statement,
            "Type": 3 if statement else 0,
            "TableColumns": list(columns) or None,
            "TableColumnsTotal": len(columns),
        }
        return json.dumps(document, indent=4, ensure_ascii=False).encode()

    def schema(
        self,
        table: str,
        version: int,
        statement: str = "",
        columns: tuple[dict[str, Any], ...] = (ID, V),
        database: str = "test",
        parent: str | None = None,
    ) -> str:
        """A schema file; an empty ``table`` makes a database-level one. Returns its path."""
        raw = self.schema_text(table, version, statement, columns if table else (), database)
        folder = parent or (f"{database}/{table}" if table else database)
        path = f"{folder}/meta/schema_{version}_{schema_checksum(raw):010d}.json"
        self.write(path, raw)
        return path

    def data(self, directory: str, number: int | str, *rows: str, extension: str = "csv") -> str:
        """A data file of rows such as ``I 110 1 a`` (operation, commit ts, id, v). Returns its path."""
        digits = number if isinstance(number, str) else f"{number:06d}"
        path = f"{directory}/CDC{digits}.{extension}"
        self.write(path, "".join(self.line(directory, row) + "\n" for row in rows))
        return path

    def line(self, directory: str, row: str) -> str:
        database, table = directory.split("/")[:2]
        operation, ts, key, *values = row.split()
        return ",".join([f'"{operation}"', f'"{table}"', f'"{database}"', ts, key, *(f'"{value}"' for value in values)])

    def uri(self, options: str = OPTIONS) -> str:
        return f"file://{self.root}?{options}"

    def consumer(self, options: str = OPTIONS, changefeed: str | None = None) -> Consumer:
        return Consumer(open_source(self.uri(options), {"changefeed": changefeed} if changefeed else {}).event_source)


@dataclass
class Consumer:
    """Polls, reads and advances as the engine does, and keeps the rows it was given. ``max_cut`` bounds offers, in bytes.

    Its offers have the notices that were not told before.
    """

    source: StorageEventSource
    position: str = ""
    checkpoint: int = 0
    rows: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list)
    reports: list[SplitReport] = field(default_factory=list)
    max_cut: int | None = None
    learned: Learned | None = None
    told: set[str] = field(default_factory=set)

    def poll(self, *, final: bool = False) -> Offer:
        bound = None if self.max_cut is None else Bound(self.max_cut, self.checkpoint + 1)
        offer = self.source.poll(self.position, self.checkpoint, final=final, bound=bound, learned=self.learned)
        self.learned = offer.learned
        notices = tuple(notice for notice in offer.notices if notice.sentence() not in self.told)
        self.told |= {notice.sentence() for notice in notices}
        return replace(offer, notices=notices)

    def cut(self, stopped: frozenset[TableId] = frozenset(), hi: int | None = None) -> Offer:
        """One cut up to the watermark; the rows of this cut are then in ``rows``."""
        offer = self.poll()
        self.rows, self.reports = [], []
        if hi is None:
            hi = offer.watermark
        if hi <= self.checkpoint:
            return offer
        window = Window(self.checkpoint, hi)
        for split in offer.splits:
            for item in self.source.read(split, window):
                if isinstance(item, ChangeBlock):
                    self._keep(item)
                else:
                    self.reports.append(item)
        tables = {split.table_id for split in offer.splits} | {c.table_id for c in offer.schema_changes}
        checkpoints: Mapping[TableId, int] = {t: self.checkpoint if t in stopped else hi for t in tables}
        self.position = self.source.advance(self.position, offer, self.reports, CutOutcome(hi, stopped), checkpoints)
        self.checkpoint = hi
        return offer

    def restarted(self) -> Consumer:
        """The same pipeline in a new process: only position and checkpoint are left."""
        source = self.source.__reduce__()
        return Consumer(source[0](*source[1]), self.position, self.checkpoint, max_cut=self.max_cut)

    @property
    def changes(self) -> list[str]:
        """The rows of the last cut in order of commit ts and place, as ``110 1 a``."""
        ordered = sorted(self.rows, key=lambda row: (row[1], row[2]["headrace$seq"]))
        return [f"{ts} {row['id']} {row.get('v')}" for _, ts, row in ordered]

    def _keep(self, block: ChangeBlock) -> None:
        for row in block.batch.to_pylist():
            self.rows.append((str(block.table_id), row["headrace$commit_ts"], row))
