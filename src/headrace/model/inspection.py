"""The result of inspecting a source, for people: tables, versions, how far it is complete, and what looks wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from headrace.model.precision import CommitTsPrecision
from headrace.model.table import TableId


class Severity(StrEnum):
    """How bad a finding is.

    ``INFO`` is worth knowing, a ``WARNING`` is likely to surprise, and at an ``ERROR`` a run stops or produces wrong data.
    """

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """Something in a source that deserves attention."""

    kind: str
    message: str
    """One plain sentence."""
    table_id: TableId | None = None
    file: str = ""
    severity: Severity = Severity.INFO
    line: int | None = None
    """The physical line, counted from 1."""
    commit_ts: int | None = None
    """TSO."""
    key: str = ""
    """The row's key as a JSON list of texts."""


@dataclass(frozen=True)
class VersionInspection:
    """One version of a table.

    ``statement`` is the DDL that led to it (empty if only a shape was found). ``rows`` is ``None`` unless rows were counted.
    """

    version: int
    statement: str
    columns: int
    files: int
    bytes: int
    rows: int | None = None


@dataclass(frozen=True)
class TableInspection:
    """One table under the name that it has in the files. ``exists`` says whether it exists after all schema changes."""

    table_id: TableId
    exists: bool
    versions: tuple[VersionInspection, ...]

    @property
    def files(self) -> int:
        return sum(version.files for version in self.versions)

    @property
    def bytes(self) -> int:
        return sum(version.bytes for version in self.versions)

    @property
    def rows(self) -> int | None:
        """The change rows of all versions, ``None`` unless they were counted."""
        counts = [version.rows for version in self.versions]
        return None if any(count is None for count in counts) else sum(count or 0 for count in counts)


@dataclass(frozen=True)
class PartitionInspection:
    """One partition of a stream. Records have the offsets from ``first`` up to ``end``, exclusive."""

    partition: str
    first: int
    end: int
    watermark: int | None
    """Its greatest watermark (TSO); ``None`` if it has none."""
    lag_seconds: float | None
    """The age of that watermark in seconds."""
    tables: tuple[TableId, ...]
    """The tables of which it has rows."""


@dataclass(frozen=True)
class Inspection:
    """The contents of a source."""

    place: str
    protocol: str
    commit_ts: CommitTsPrecision
    """The precision of the rows' commit ts: as configured, else as found in the first rows that can be read."""
    checkpoint: int | None
    """The source's checkpoint (TSO), ``None`` if it has not published one yet."""
    lag_seconds: float | None
    """The age of the checkpoint in seconds, ``None`` without a checkpoint."""
    databases: tuple[str, ...]
    tables: tuple[TableInspection, ...]
    findings: tuple[Finding, ...]
    partitions: tuple[PartitionInspection, ...] = ()
    """Only of a stream."""


@dataclass(frozen=True)
class Checkup:
    """The result of a check. ``counts`` has the number of all findings by kind and severity, including those that were not kept."""

    inspection: Inspection
    counts: Mapping[tuple[str, Severity], int]

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.inspection.findings

    @property
    def errors(self) -> int:
        return sum(count for (_, severity), count in self.counts.items() if severity is Severity.ERROR)
