"""What a look into a source found, for people: tables, versions, how far it is complete, and what looks wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from headrace.model.precision import CommitTsPrecision
from headrace.model.table import TableId


class Severity(StrEnum):
    """How bad a finding is: worth knowing, likely to surprise, or something that a run stops at or gets wrong."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """Something worth a look; ``message`` is one plain sentence.

    ``line`` counts physical lines from 1, ``commit_ts`` is a TSO, ``key`` a row's key as a JSON list of texts.
    """

    kind: str
    message: str
    table_id: TableId | None = None
    file: str = ""
    severity: Severity = Severity.INFO
    line: int | None = None
    commit_ts: int | None = None
    key: str = ""


@dataclass(frozen=True)
class VersionInspection:
    """One version of a table: ``statement`` is the DDL that made it (empty for a shape), ``rows`` ``None`` unless counted."""

    version: int
    statement: str
    columns: int
    files: int
    bytes: int
    rows: int | None = None


@dataclass(frozen=True)
class TableInspection:
    """One table under the name it has in the files; ``exists`` says whether it does after all schema changes."""

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
class Inspection:
    """What is in a source. ``checkpoint`` (TSO) is ``None`` where it promises nothing yet, and so is ``lag_seconds``, its age."""

    place: str
    protocol: str
    commit_ts: CommitTsPrecision
    """What is known of the commit ts of its rows: as configured, else by the first rows that can be read."""
    checkpoint: int | None
    lag_seconds: float | None
    databases: tuple[str, ...]
    tables: tuple[TableInspection, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Checkup:
    """What a check found. ``counts`` are all findings by kind and severity, also those that were not kept."""

    inspection: Inspection
    counts: Mapping[tuple[str, Severity], int]

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.inspection.findings

    @property
    def errors(self) -> int:
        return sum(count for (_, severity), count in self.counts.items() if severity is Severity.ERROR)
