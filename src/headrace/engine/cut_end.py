"""The end of a cut: the ledger rows of its tables, and what the task that commits the whole cut writes with the data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from headrace.engine import table_places
from headrace.engine.given_up import running_reason, served_requests
from headrace.engine.journal import is_pending
from headrace.engine.unreadable import has_never_lived, is_unborn
from headrace.model.cut import Cut, CutOutcome, Hold
from headrace.model.events import SchemaChange
from headrace.model.ledger import CutRecord, LedgerState, RowFigures, TableProgress, TableStatus
from headrace.model.offer import PositionAfter
from headrace.model.outcome import Problem, SplitReport, WriteOutcome
from headrace.model.table import TableId, folded_name
from headrace.sinks.base import LedgerUpdate
from headrace.sinks.cut_commit import CutCommit


@dataclass(frozen=True)
class CutEnd:
    """The end of a cut."""

    cut: Cut
    state: LedgerState
    """The ledger's state before the step that ends the cut."""
    problems: Mapping[TableId, Problem]
    """The tables that keep their checkpoints, with the reason."""
    holds: Mapping[TableId, Hold]
    """The tables that advance only up to a schema change."""
    reborn: Mapping[TableId, int]
    """The tables that were gone and begin anew with a change at this commit ts (TSO)."""

    @property
    def checkpoint(self) -> int:
        """The pipeline's checkpoint (TSO) after the cut. A cut of tables that catch up ends below it and does not change it."""
        return max(self.cut.hi, self.state.checkpoint)

    @property
    def stopped(self) -> dict[TableId, Problem]:
        """Every table that does not reach the end of the cut, with the reason."""
        return {t: hold.problem for t, hold in self.holds.items()} | dict(self.problems)

    def progress(self, settled: LedgerState, changes: Iterable[SchemaChange] = ()) -> CutOutcome:
        """The outcome that is passed to the source. ``settled`` is the ledger's state after the cut.

        ``changes`` are the schema changes that a source which forgets delivered. It has to deliver those again that stopped tables
        wait for.
        """
        behind = frozenset(t for t, own in settled.tables.items() if own.needs_files)
        gone = frozenset(t for t, own in settled.tables.items() if own.status.is_gone)
        left_out = frozenset(t for t, own in settled.tables.items() if own.status is TableStatus.EXCLUDED)
        undecided = min(_undecided(settled, changes, behind - left_out), default=None)
        return CutOutcome(self.cut.hi, frozenset(self.problems), behind, gone, left_out, undecided)

    def commit(self, after: PositionAfter) -> CutCommit:
        """What the task that commits the cut writes, as far as it is known before the rows are read."""
        progress, going_on = self.progress(self.state), self.running_rows()
        bearing = {t for bearers in self.cut.bearers.values() for t in bearers.tables}
        return CutCommit(
            self.checkpoint,
            self.cut.checkpoints,
            self.stopped_rows(),
            {t: self.state.tables[t] for t in (*self.cut.checkpoints, *bearing) if t in self.state.tables},
            self.state.dead_letters,
            going_on=going_on,
            over=served_requests(LedgerUpdate(checkpoint=self.checkpoint, tables=going_on).applied_to(self.state)),
            progress=replace(progress, behind=progress.behind - self.cut.checkpoints.keys()),
            after=after,
            bearers=self.cut.bearers,
        )

    def stopped_rows(self) -> tuple[TableProgress, ...]:
        """The rows of stopped tables: with a problem at their former checkpoint, otherwise at the schema change that holds them."""
        rows = []
        for table_id, problem in self.stopped.items():
            own = self.state.tables.get(table_id)
            row = replace(
                own or table_places.unborn(table_id, self.state.start),
                checkpoint=self.state.table_checkpoint(table_id),
                status=problem.status,
                reason=problem.sentence(),
            )
            if table_id not in self.problems:
                change = self.holds[table_id].change
                # A table that is already gone gets no new row because the DROP of its database is held.
                is_over = own is not None and own.status.is_gone and table_id not in change.changes
                if is_over or not table_places.follows(own, change):
                    continue
                row = table_places.held(row, self.holds[table_id].at, own)
            elif own is not None and own.status.is_gone:
                if table_id in self.reborn:
                    row = table_places.held(row, self.reborn[table_id], own)
                elif has_never_lived(own):
                    row = replace(row, checkpoint=own.incarnation)
                else:
                    continue  # the table ended in this cut and stays gone
            # A table that lacks rows keeps its place: whether it was ever created, and since when changes of it are missing.
            rows.append(own if own is not None and own.status is TableStatus.INCOMPLETE else row)
        return tuple(rows)

    def running_rows(self) -> tuple[TableProgress, ...]:
        """The rows of tables that are new to the ledger or resume after a stop, either level with the others or still behind."""
        status = TableStatus.RUNNING if self.cut.hi >= self.state.checkpoint else TableStatus.CATCHING_UP
        rows = []
        for table_id in sorted(self.cut.tables - self.stopped.keys()):
            own = self.state.tables.get(table_id)
            if table_id in self.cut.outside:
                rows += self._followed_row(table_id, own)
            elif own is None:
                rows.append(TableProgress(table_id, self.cut.hi, status=status))
            elif own.status is TableStatus.INCOMPLETE:
                continue  # no schema change has ended the lack of rows
            elif own.status.is_gone:
                is_followed = own.status is not TableStatus.NOT_FOLLOWED
                rows.append(replace(own, status=TableStatus.GONE if is_followed else own.status, reason=""))
            elif is_unborn(own):
                # The table was not created, and no change is left that would do so. Whatever still comes begins at its checkpoint.
                rows.append(replace(own, checkpoint=max(0, own.checkpoint - 1), status=TableStatus.GONE, reason=""))
            elif own.status.is_stopped or own.status is TableStatus.CATCHING_UP:
                reason = running_reason(self.state, own)
                reached = max(own.checkpoint, self.cut.hi)
                rows.append(replace(own, checkpoint=reached, status=status, reason=reason))
        return tuple({row.table_id: row for row in (*rows, *self._left_lives())}.values())

    def _left_lives(self) -> Iterator[TableProgress]:
        """The rows of ``Cut.left_lives`` whose names are free by now."""
        for table_id, row in self.cut.left_lives.items():
            own = self.state.tables.get(table_id)
            if own is not None and own.status.is_gone and own.checkpoint <= row.incarnation and row.checkpoint <= self.cut.hi:
                yield row

    def _followed_row(self, table_id: TableId, own: TableProgress | None) -> list[TableProgress]:
        """The row of a left-out table that was followed up to a schema change or up to the cut's end; empty if it does not move."""
        reached = min(self.cut.hi, self.cut.outside[table_id])
        if own is None:
            return [TableProgress(table_id, reached, status=TableStatus.EXCLUDED)] if reached else []
        if own.status.is_gone or own.status is TableStatus.INCOMPLETE or own.checkpoint >= reached:
            return []
        return [replace(own, checkpoint=reached, after=False, status=TableStatus.EXCLUDED, reason="")]


def _undecided(settled: LedgerState, changes: Iterable[SchemaChange], stopped: Collection[TableId]) -> Iterator[int]:
    """The commit ts (TSO) of the schema changes that the stopped tables wait for, or will wait for when they take part again."""
    databases = {folded_name(table_id.database) for table_id in stopped}

    def concerned(tables: Iterable[TableId]) -> bool:
        return any(t in stopped or (t.is_database and folded_name(t.database) in databases) for t in tables)

    for entry in settled.journal.values():
        if not entry.state.is_settled and concerned(entry.tables):
            yield entry.commit_ts
    for change in changes if stopped else ():
        if concerned(change.changes) and is_pending(settled, change):
            yield change.commit_ts


def record_of(
    cut: Cut,
    reports: Collection[SplitReport],
    outcomes: Iterable[WriteOutcome],
    rows: RowFigures,
    schema_changes: int,
    seconds: float,
) -> CutRecord:
    """The record of a cut that ends now, for display. ``seconds`` is its duration."""
    written = list(outcomes)
    return CutRecord(
        hi=cut.hi,
        finished_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        seconds=round(seconds, 3),
        files=len(reports),
        read_rows=rows.read,
        upserts=sum(o.upserts for o in written),
        deletes=sum(o.deletes for o in written),
        read_bytes=sum(r.size for r in reports),
        schema_changes=schema_changes,
        exact=CutRecord.number_of(cut.precision),
        netted=rows.netted,
        refused=rows.refused,
        left=rows.left,
        passed=rows.passed,
    )
