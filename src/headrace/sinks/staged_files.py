"""A round's rows as typed Parquet files in the work place, for sinks whose driver applies them with one statement (``MERGE``)."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.model.block import KIND
from headrace.model.events import RowKind
from headrace.model.outcome import WriteOutcome
from headrace.model.table import TableId
from headrace.places.work_place import WorkPlace
from headrace.sinks.base import Commits, Round, TableChange, WriterContext, WriteReport
from headrace.sinks.cut_commit import CutCommit
from headrace.sinks.table_by_table import outcomes_of


class RowsOf(StrEnum):
    """What the rows of a file are."""

    DELETES = "deletes"
    """Keys that end deleted. For a table without key: whole rows, each of which removes one equal row."""
    UPSERTS = "upserts"
    """Rows that end alive, with the columns that the source carries in canonical types (``headrace.model.types``)."""
    CHANGES = "changes"
    """Changes in the layout of a block (``headrace.model.block``): all, in commit order, or only those that the target itself must
    net."""


@dataclass(frozen=True)
class StagedFile:
    """One Parquet file in the work place."""

    key: str
    rows: RowsOf
    version: int
    """The version (TSO) of the table's shape in which the rows are."""


@dataclass(frozen=True)
class StagedRound:
    """The files of a round by table, and its report. Tables with a problem in the report must not be applied."""

    report: WriteReport
    files: Mapping[TableId, tuple[StagedFile, ...]]


def staged_files(round: Round, folder: str) -> StagedRound:
    """Writes the rows of a round into files below ``folder`` of the work place, in one job.

    The result does not include files of failed or repeated task attempts. Raises what ``Round.write_in_tasks`` raises.
    """
    report = round.write_in_tasks(StagingWriter(round.work_place(), folder))
    files: dict[TableId, list[StagedFile]] = defaultdict(list)
    for outcome in report.outcomes:
        files[outcome.table_id] += map(_parsed, outcome.spooled)
    outcomes = tuple(replace(outcome, spooled=()) for outcome in report.outcomes)
    return StagedRound(replace(report, outcomes=outcomes), {table_id: tuple(found) for table_id, found in files.items()})


class StagingWriter:
    """A :class:`headrace.sinks.base.UnitWriter` that writes Parquet files. A file counts only when an outcome names it."""

    def __init__(self, work: WorkPlace, folder: str) -> None:
        self._work, self._folder = work, folder

    def open(self, context: WriterContext) -> None:
        """Nothing to connect to, and nothing to fence."""

    def write(self, changes: Iterable[TableChange], commit: CutCommit | None) -> list[WriteOutcome]:
        """Writes the files of each change. There is no ledger to commit."""
        return outcomes_of(changes, self._staged)

    def _staged(self, change: TableChange) -> WriteOutcome:
        keys = []
        for rows, table in ((RowsOf.DELETES, change.deletes), (RowsOf.UPSERTS, change.upserts), (RowsOf.CHANGES, change.ordered)):
            if table.num_rows:
                keys.append(f"{self._folder}/{secrets.token_hex(8)}.{rows}.{change.version}.parquet")
                with self._work.writing(keys[-1]) as file:
                    pq.write_table(table, file)
        upserts = change.upserts.num_rows + _upserts(change.ordered)
        return WriteOutcome(change.table_id, upserts=upserts, deletes=change.num_rows - upserts, spooled=tuple(keys))

    def commits(self) -> tuple[Commits, ...]:
        """Nothing is committed in tasks."""
        return ()

    def close(self) -> None:
        """Nothing stays open."""


def _upserts(ordered: pa.Table) -> int:
    if not ordered.num_rows:
        return 0
    alive = pa.array([int(kind) for kind in RowKind if kind.is_upsert], pa.int8())
    return int(pc.sum(pc.is_in(ordered.column(KIND), value_set=alive)).as_py() or 0)


def _parsed(key: str) -> StagedFile:
    _, rows, version, _ = key.rpartition("/")[2].split(".")
    return StagedFile(key, RowsOf(rows), int(version))
