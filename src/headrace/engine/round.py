"""One round of a cut as a sink receives it: what is read, how it is spread, and three ways to get the rows. Without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from headrace.engine.marked_tables import marks_of
from headrace.engine.parts import Spreading, plan_parts
from headrace.engine.read_task import ReadJob
from headrace.engine.write_task import Chunks, WriteJob
from headrace.model.cut import Cut, CutRound, Repeats
from headrace.model.ledger import TableProgress
from headrace.model.outcome import ReadCount, SplitReport, WriteCount, WriteOutcome
from headrace.model.split import Split
from headrace.model.table import TableId
from headrace.model.types import CHARACTER_KINDS
from headrace.places.work_place import WorkLease, WorkPlace
from headrace.sinks.base import (
    Commits,
    SinkCapabilities,
    TableChange,
    TextComparison,
    TextComparisons,
    UnitWriter,
    WriterContext,
    WriteReport,
)
from headrace.sinks.cut_commit import CutCommit
from headrace.sinks.table_marks import TableMark
from headrace.sources.base import EventSource

ONE_TASK_BYTES = 8 << 20
"""A round of up to this many source bytes is one task, without a shuffle and a second Python stage."""
_READ_TASK_BYTES = 32 << 20
_UNIT_BYTES = 64 << 20
_BUCKET_BYTES = 4 << 20
_CHUNK_BYTES = 16 << 20


class Engine(Protocol):
    """Runs the tasks of a round."""

    def parallelism(self) -> int:
        """How many tasks run at once. Raises JobFailedError."""
        ...

    def run(self, read: ReadJob, write: WriteJob, tasks: list[list[Split]], writers: int) -> list[object]:
        """Runs one job: with a single unit, one task reads and writes; otherwise rows go through an exchange to ``writers`` tasks.

        Returns split reports, counts and outcomes. Raises what a writer raised, or JobFailedError.
        """
        ...

    def stream(self, read: ReadJob, tasks: list[list[Split]], chunks: Chunks) -> Iterator[object]:
        """As :meth:`run`, without a writer: the table changes come to the driver with the results, one chunk at a time."""
        ...


@dataclass(frozen=True)
class EngineRound:
    """A :class:`headrace.sinks.base.Round`.

    ``commit`` is set if the round is the whole cut and has at most ``SinkCapabilities.atomic_bytes``.
    """

    engine: Engine
    source: EventSource
    capabilities: SinkCapabilities
    cut: Cut
    round: CutRound
    context: WriterContext
    work: WorkLease
    progress: Mapping[TableId, TableProgress]
    commit: CutCommit | None = None

    def work_place(self) -> WorkPlace:
        """See ``Round.work_place``."""
        return self.work.place()

    def marks(self) -> Mapping[TableId, TableMark]:
        """See ``Round.marks``."""
        return marks_of(self.context, self.cut, self.round, self.progress)

    def write_in_tasks(self, writer: UnitWriter, texts: TextComparisons | None = None) -> WriteReport:
        """See ``Round.write_in_tasks``."""
        report = self._write(writer, self._plan(self.round.splits, texts), commit=self.commit)
        apart = frozenset(problem.table_id for o in report.outcomes if (problem := o.problem) is not None and problem.needs_whole)
        if not apart:
            return report
        # Rows of these tables that were already written are written again, which is harmless because a cut may be repeated. The
        # ledger's part is never included: this job does not have the first job's results for the other tables.
        again = self._write(writer, self._plan((s for s in self.round.splits if s.table_id in apart), texts, spread=False))
        return WriteReport(
            (*(r for r in report.splits if r.table_id not in apart), *again.splits),
            (*(o for o in report.outcomes if o.table_id not in apart), *again.outcomes),
            committed=report.committed,
            reads=(*(r for r in report.reads if r.table_id not in apart), *again.reads),
            writes=(*(w for w in report.writes if w.table_id not in apart), *again.writes),
            commits=(*report.commits, *again.commits),
        )

    def stream_from_tasks(self, texts: TextComparisons | None = None) -> StreamedRound:
        """See ``Round.stream_from_tasks``."""
        plan = self._plan(self.round.splits, texts)
        return StreamedRound(self.engine.stream(plan.read, plan.tasks, plan.chunks()))

    def _write(self, writer: UnitWriter, plan: _Plan, *, commit: CutCommit | None = None) -> WriteReport:
        results = self.engine.run(plan.read, WriteJob(writer, self.context, commit), plan.tasks, plan.writers)
        return _report(results, committed=commit is not None)

    def _plan(self, of_round: Iterable[Split], texts: TextComparisons | None, *, spread: bool = True) -> _Plan:
        """Plans one job. Without ``spread``, each table is one bucket."""
        splits = sorted(of_round, key=lambda s: (s.table_id, s.rank))
        total = sum(s.size for s in splits)
        is_small = total <= max(ONE_TASK_BYTES, self.capabilities.atomic_bytes)
        parallelism = 1 if is_small else self.engine.parallelism()
        writers = min(self.capabilities.writers or parallelism, parallelism)
        units = 1 if is_small else max(writers, 2, -(-total // _UNIT_BYTES))
        spreading = Spreading(
            units,
            _BUCKET_BYTES if spread else max(total, 1),
            self.capabilities.demand_of,
            self.capabilities.spread,
            self.progress,
            self._texts(splits, texts) if texts is not None else {},
            self.cut.lacking if self._is_watched() else {s.table_id for s in splits},
        )
        read = ReadJob(
            source=self.source,
            parts=plan_parts(splits, self.round.segments, spreading),
            # A transaction that changes a key several times may delete it last.
            deletes_first=self.cut.precision.is_exact and self.cut.repeats is Repeats.CHANGES,
            has_commit_ts=self.cut.precision.has_commit_ts,
            advice=self.cut.advice,
            repeats=self.cut.repeats,
            units=units,
            letters=self.context.letters,
            new_collations=self.cut.new_collations,
            updates_alone=self.cut.updates_alone,
            keeps_commit_ts=self.capabilities.keeps_commit_ts,
        )
        return _Plan(read, [splits] if is_small else pack(splits, total, parallelism), writers)

    def _is_watched(self) -> bool:
        """Whether writers watch the spellings of keys. Without commit ts they do not.

        A repeated file then brings old spellings back for a while.
        """
        return self.cut.new_collations is not True and self.cut.precision.has_commit_ts

    def _texts(self, splits: Iterable[Split], texts: TextComparisons) -> Mapping[TableId, TextComparison]:
        """How the target compares the relevant texts: those of keys, and, if spellings are watched, all texts of the table."""
        shapes = {s.table_id: self.round.segments[s.table_id].schema for s in splits}
        wanted = set()
        for table_id, shape in shapes.items():
            names = [c.name for c in shape.columns] if shape.handle_key and self._is_watched() else shape.handle_key
            if any(shape.column(name).type.kind in CHARACTER_KINDS for name in names):
                wanted.add(table_id)
        return texts(wanted) if wanted else {}


@dataclass(frozen=True)
class _Plan:
    """One job of a round: what is read, by which tasks, and the number of write tasks."""

    read: ReadJob
    tasks: list[list[Split]]
    writers: int

    def chunks(self) -> Chunks:
        """The number of parts in which each unit comes to the driver: more than its bytes require, since rows may grow."""
        sizes = dict.fromkeys(range(self.read.units), 0)
        of_table = {part.table_id: sorted(part.units(self.read.units)) for part in self.read.parts}
        for split in (split for task in self.tasks for split in task):
            units = of_table[split.table_id]
            for unit in units:
                sizes[unit] += -(-split.size // len(units))
        return Chunks(tuple(1 + 4 * size // _CHUNK_BYTES if self.read.has_logs else 1 for size in sizes.values()))


class StreamedRound:
    """The table changes of a round on the driver, one by one, followed by the round's report.

    Can be iterated once. Raises JobFailedError, and the errors of reading and netting.
    """

    def __init__(self, items: Iterator[object]) -> None:
        self._items = items
        self._results: list[object] = []

    def __iter__(self) -> Iterator[TableChange]:
        for item in self._items:
            if isinstance(item, TableChange):
                yield item
            else:
                self._results.append(item)

    def report(self, outcomes: Iterable[WriteOutcome]) -> WriteReport:
        """The round's report, with the sink's outcomes. To be called only after the last change."""
        assert next(self._items, None) is None, "all changes are taken before anything is told of them"
        return _report([*self._results, *outcomes])


def _report(results: Iterable[object], *, committed: bool = False) -> WriteReport:
    known = list(results)
    return WriteReport(
        tuple(r for r in known if isinstance(r, SplitReport)),
        tuple(r for r in known if isinstance(r, WriteOutcome)),
        committed=committed,
        reads=tuple(r for r in known if isinstance(r, ReadCount)),
        writes=tuple(r for r in known if isinstance(r, WriteCount)),
        commits=tuple(r for r in known if isinstance(r, Commits)),
    )


def pack(splits: list[Split], total: int, parallelism: int) -> list[list[Split]]:
    """Groups splits, in their order, into tasks of about equal bytes: several per core, up to 32 MiB except for larger files."""
    target = max(1, min(_READ_TASK_BYTES, total // (parallelism * 2)))
    tasks: list[list[Split]] = []
    filled = 0
    for split in splits:
        if not tasks or filled + split.size > target:
            tasks.append([])
            filled = 0
        tasks[-1].append(split)
        filled += split.size
    return tasks
