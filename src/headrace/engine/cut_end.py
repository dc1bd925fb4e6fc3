"""How a cut ends: where its tables stand then, and what the task that commits all of it writes with the rows."""

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
    """The end of a cut. ``state`` is the ledger's before the step that says so.

    ``problems`` are the tables that stay where they were, ``holds`` those that come as far as a schema change, ``reborn`` those
    that were gone and begin anew with a change at this commit ts (TSO).
    """

    cut: Cut
    state: LedgerState
    problems: Mapping[TableId, Problem]
    holds: Mapping[TableId, Hold]
    reborn: Mapping[TableId, int]

    @property
    def checkpoint(self) -> int:
        """The pipeline's checkpoint (TSO) then: a cut of tables that catch up ends below the one that it has."""
        return max(self.cut.hi, self.state.checkpoint)

    @property
    def stopped(self) -> dict[TableId, Problem]:
        """Every table that does not reach the end of the cut, and why."""
        return {t: hold.problem for t, hold in self.holds.items()} | dict(self.problems)

    def progress(self, settled: LedgerState, changes: Iterable[SchemaChange] = ()) -> CutOutcome:
        """What the source is told of the cut's end; ``settled`` is the ledger's state after the cut.

        ``changes`` are those that a source which forgets has told: those that stopped tables wait for, it has to tell again.
        """
        behind = frozenset(t for t, own in settled.tables.items() if own.needs_files)
        gone = frozenset(t for t, own in settled.tables.items() if own.status.is_gone)
        left_out = frozenset(t for t, own in settled.tables.items() if own.status is TableStatus.EXCLUDED)
        undecided = min(_undecided(settled, changes, behind - left_out), default=None)
        return CutOutcome(self.cut.hi, frozenset(self.problems), behind, gone, left_out, undecided)

    def commit(self, after: PositionAfter) -> CutCommit:
        """What the task writes that commits the cut, as far as it is known before the rows are read."""
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
        """Tables with a problem stay where they are; those before a schema change they may not pass stand at it."""
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
                # What went with a database already does not come back with its DROP.
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
                    continue  # it came to its end in this cut, and stays gone
            if own is not None and own.status is TableStatus.INCOMPLETE:
                row = replace(row, status=own.status, reason=own.reason)
            rows.append(row)
        return tuple(rows)

    def running_rows(self) -> tuple[TableProgress, ...]:
        """Tables that are new to the ledger, or that go on again after a stop: at once with the others, or still behind them."""
        status = TableStatus.RUNNING if self.cut.hi >= self.state.checkpoint else TableStatus.CATCHING_UP
        rows = []
        for table_id in sorted(self.cut.tables - self.stopped.keys()):
            own = self.state.tables.get(table_id)
            if table_id in self.cut.outside:
                rows += self._followed_row(table_id, own)
            elif own is None:
                rows.append(TableProgress(table_id, self.cut.hi, status=status))
            elif own.status is TableStatus.INCOMPLETE:
                continue  # no schema change has ended that
            elif own.status.is_gone:
                is_followed = own.status is not TableStatus.NOT_FOLLOWED
                rows.append(replace(own, status=TableStatus.GONE if is_followed else own.status, reason=""))
            elif is_unborn(own):
                # Nothing made it, and nothing is left that would. What may come yet begins where it stood.
                rows.append(replace(own, checkpoint=max(0, own.checkpoint - 1), status=TableStatus.GONE, reason=""))
            elif own.status.is_stopped or own.status is TableStatus.CATCHING_UP:
                reason = running_reason(self.state, own)
                reached = max(own.checkpoint, self.cut.hi)
                rows.append(replace(own, checkpoint=reached, status=status, reason=reason))
        return tuple({row.table_id: row for row in (*rows, *self._left_lives())}.values())

    def _left_lives(self) -> Iterator[TableProgress]:
        """The left-out tables whose names are free for them by now."""
        for table_id, row in self.cut.left_lives.items():
            own = self.state.tables.get(table_id)
            if own is not None and own.status.is_gone and own.checkpoint <= row.incarnation and row.checkpoint <= self.cut.hi:
                yield row

    def _followed_row(self, table_id: TableId, own: TableProgress | None) -> list[TableProgress]:
        """Where a table stands that the filter leaves out, and that was followed up to a schema change, or so far."""
        reached = min(self.cut.hi, self.cut.outside[table_id])
        if own is None:
            return [TableProgress(table_id, reached, status=TableStatus.EXCLUDED)] if reached else []
        if own.status.is_gone or own.status is TableStatus.INCOMPLETE or own.checkpoint >= reached:
            return []
        return [replace(own, checkpoint=reached, after=False, status=TableStatus.EXCLUDED, reason="")]


def _undecided(settled: LedgerState, changes: Iterable[SchemaChange], stopped: Collection[TableId]) -> Iterator[int]:
    """The commit ts (TSO) of the schema changes that these tables wait for, or will when they take part again."""
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
    """What people are shown of a cut that ends now. ``seconds`` is how long it took."""
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
