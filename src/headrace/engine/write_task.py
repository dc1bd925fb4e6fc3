"""The write half of a job: a task takes units one after another, makes table changes of their rows and writes these. Without Spark.

A task holds one unit in memory at a time, about 64 MiB of source bytes, however few tasks write. Of a table for which the sink
takes every change, it holds only a few pieces (:mod:`headrace.engine.change_log`).
"""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from headrace import faults
from headrace.engine.bag import Delivery, EqualInStreams, Guess, MissingOldImages, bag_change, deliveries
from headrace.engine.change_log import OrderedChanges
from headrace.engine.conservation import require_same_split, verify_gathering, verify_handing, verify_reading
from headrace.engine.exchange import DIGEST, REPORTING_UNIT, ExchangeRow, ReadDigest
from headrace.engine.given_up import without_given_up
from headrace.engine.net import net_change
from headrace.engine.parts import TablePart
from headrace.engine.read_task import ReadJob, read_splits
from headrace.errors import FencedError, TransientError
from headrace.faults import Step
from headrace.model.advice import SourceAdvice
from headrace.model.block import COMMIT_TS, META_COUNT, combined, in_pieces
from headrace.model.commands import skip_command
from headrace.model.containment import contained
from headrace.model.cut import Repeats
from headrace.model.ledger import TableProgress
from headrace.model.outcome import Notice, Problem, ReadCount, SplitReport, WriteCount, WriteOutcome, is_repeated
from headrace.model.split import Split
from headrace.model.table import TableId, folded_name
from headrace.sinks.base import SpellingWatch, TableChange, UnitWriter, WriterContext
from headrace.sinks.cut_commit import CutCommit
from headrace.transform.targets import routed

RESULT_SCHEMA = pa.schema([("payload", pa.binary())])

_Rows = Iterable[tuple[int, pa.RecordBatch]]
"""Batches of one table, each with the order of its first row."""


@dataclass
class Reading:
    """The information of one unit about the reading of its tables, from all read tasks."""

    job: ReadJob
    reports: dict[str, SplitReport] = field(default_factory=dict)
    counts: list[ReadCount] = field(default_factory=list)
    sent: Counter[TableId] = field(default_factory=Counter)

    def add(self, digest: ReadDigest) -> None:
        """Adds the digest of one read task."""
        for report in digest.reports:
            self.take(report)
        self.counts += digest.counts
        self.sent.update(digest.sent)

    def take(self, report: SplitReport) -> None:
        """Adds the report of a split, in place of an earlier one of this split. Raises AmbiguousSplitsError."""
        require_same_split(report, self.reports.get(report.split_key))
        self.reports[report.split_key] = report

    def settle(self) -> None:
        """Adjusts problems once all reports are there: given-up damage is not a problem, too many dead letters of a table are."""
        self.reports = dict(without_given_up(self.reports.values()))
        if self.job.letters is None:
            return
        for table_id, count in self.letters().items():
            problem = self.job.letters.too_many(table_id, count)
            if problem is not None:
                last = [report for report in self.reports.values() if report.letters and report.table_id == table_id][-1]
                self.reports[last.split_key] = replace(last, problem=last.problem or problem)

    def letters(self) -> Counter[TableId]:
        """The number of records of each table that became dead letters during reading."""
        counts: Counter[TableId] = Counter()
        for report in self.reports.values():
            if report.letters:
                counts[report.table_id] += len(report.letters)
        return counts

    def of(self, table_id: TableId) -> tuple[SplitReport, ...]:
        """The reports of a table's splits."""
        return tuple(report for report in self.reports.values() if report.table_id == table_id)


class Unit:
    """The rows of one unit, table by table: the changes to write, and the counts, notices and problems of the other rows.

    ``tables`` yields the rows with the number of their part. It is iterated once.
    """

    def __init__(self, reading: Reading, tables: Iterable[tuple[int, _Rows]]) -> None:
        self.reading = reading
        self.job = reading.job
        self.problems = read_problems(reading.reports.values())
        self.unfit: list[WriteOutcome] = []
        """The outcomes of tables whose rows turned out not to be applicable."""
        self.notices: dict[TableId, list[Notice]] = defaultdict(list)
        self._tables = tables
        self._gathered: Counter[TableId] = Counter()
        self._netted: Counter[TableId] = Counter()
        self._handed: Counter[TableId] = Counter()

    def changes(self) -> Iterator[TableChange]:
        """The changes of the tables that could be read: one per table, or pieces in order if the sink takes every change."""
        for number, of_table in self._tables:
            part, rows = self.job.parts[number], iter(of_table)
            found: list[Problem] = []
            if part.table_id in self.problems:
                self._gathered[part.table_id] += sum(batch.num_rows for _, batch in rows)
            elif part.is_log:
                with contained(found.append, part.table_id):
                    yield from self._logged(part, rows)
                self._gathered[part.table_id] += sum(batch.num_rows for _, batch in rows)  # rows left over after a failure
            else:
                batches = [batch for _, batch in rows]
                self._gathered[part.table_id] += sum(batch.num_rows for batch in batches)
                with contained(found.append, part.table_id):
                    try:
                        change = self._change(part, combined(batches))
                    except (MissingOldImages, EqualInStreams) as error:
                        explained = _missing_old_images if isinstance(error, MissingOldImages) else _equal_in_streams
                        found.append(explained(part.table_id, self.job.advice))
                if not found:
                    self._handed[part.table_id] += change.num_rows
                    yield change
            for problem in found:
                self.problems[part.table_id] = problem
                self.unfit.append(WriteOutcome(part.table_id, problem=problem))

    def counts(self, *, reporting: bool) -> list[WriteCount]:
        """The row counts, after all changes were taken. Raises RowsLostError unless they equal the numbers of rows sent.

        The ``reporting`` unit has the reports of all splits, so it also verifies the counts of the reading.
        """
        if reporting:
            verify_reading(self.reading.reports.values(), self.reading.counts)
        verify_gathering(self.reading.sent, self._gathered)
        counts = [WriteCount(t, rows, self._netted[t], self._handed[t]) for t, rows in self._gathered.items()]
        for count in counts:
            if count.table_id in self._handed:
                verify_handing(count)
        return counts

    def _logged(self, part: TablePart, rows: _Rows) -> Iterator[TableChange]:
        """A table's changes in pieces. Repeated rows count as netted."""
        job, table_id = self.job, part.table_id
        if job.repeats is Repeats.UNKNOWN:
            self.notices[table_id].append(_may_be_repeated(table_id))
        log = OrderedChanges(job.order, job.repeats, part.schema.handle_key, self.reading.of(table_id))
        for piece in log.merged(self._counted(table_id, rows)):
            table = pa.Table.from_batches([piece])
            empty = table.select(table.column_names[META_COUNT:]).slice(0, 0)
            self._handed[table_id] += table.num_rows
            change = TableChange(table_id, part.segment.version, part.schema, empty, empty, table, lo=part.segment.lo)
            yield replace(change, in_order=job.repeats is Repeats.TRANSACTIONS, routed=routed(part.schema))
        self._netted[table_id] += log.repeated
        self.notices[table_id] += [_guessed(table_id, guess) for guess in log.guesses]

    def _counted(self, table_id: TableId, rows: _Rows) -> _Rows:
        for first, batch in rows:
            self._gathered[table_id] += batch.num_rows
            yield first, batch

    def _change(self, part: TablePart, batch: pa.RecordBatch) -> TableChange:
        if part.is_bag:
            told = deliveries(self.reading.of(part.table_id), batch)
            self.notices[part.table_id] += [_guessed(part.table_id, guess) for guess in told.guesses]
            change, netted = _bag_table_change(part, batch, self.job, told.of)
        else:
            change, netted = _table_change(part, batch, self.job)
            if self.reading.letters()[part.table_id]:
                change = replace(change, watch=None)  # a deletion may be among the dead letters
        self._netted[part.table_id] += netted
        return change


@dataclass(frozen=True)
class _Gathered:
    """The rows of a complete unit, by the number of the part. The rows of a table are released when they are taken."""

    waiting: dict[int, list[tuple[int, pa.RecordBatch]]]

    def __iter__(self) -> Iterator[tuple[int, _Rows]]:
        for number in sorted(self.waiting):
            yield number, self.waiting.pop(number)


def unit_of_rows(job: ReadJob, rows: Iterator[ExchangeRow]) -> Unit:
    """The unit made of rows of the exchange.

    If the sink takes every change of some table, the rows come in order: first the digests, then table by table. Otherwise they
    come in any order and are all collected first.
    """
    reading = Reading(job)
    if job.has_logs:
        grouped = groupby(rows, key=lambda row: row.table)
        for table, of_table in grouped:
            assert table == DIGEST, "the digests come first"
            for row in of_table:
                reading.add(row.digest())
            break
        reading.settle()
        return Unit(reading, ((table, _batches(of_table)) for table, of_table in grouped))
    waiting: dict[int, list[ExchangeRow]] = defaultdict(list)
    for row in rows:
        if row.table == DIGEST:
            reading.add(row.digest())
        else:
            waiting[row.table].append(row)
    reading.settle()
    return Unit(reading, _Gathered({table: list(_batches(of_table)) for table, of_table in waiting.items()}))


def unit_of_splits(job: ReadJob, splits: Iterable[Split]) -> Unit:
    """The unit of a task that both reads and writes a whole round."""
    reading = Reading(job)
    waiting: dict[int, list[tuple[int, pa.RecordBatch]]] = defaultdict(list)
    for item in read_splits(job, splits):
        if isinstance(item, SplitReport):
            reading.take(item)
        elif isinstance(item, ReadCount):
            reading.counts.append(item)
            reading.sent[item.table_id] += item.sent
        else:
            number, batch = item
            waiting[number] += job.order.pieces(batch) if job.parts[number].is_log else [(0, batch)]
    reading.settle()
    return Unit(reading, _Gathered({number: sorted(rows, key=lambda piece: piece[0]) for number, rows in waiting.items()}))


def _batches(rows: Iterable[ExchangeRow]) -> Iterator[tuple[int, pa.RecordBatch]]:
    for row in rows:
        for batch in row.batches():
            yield row.first, batch


def _may_be_repeated(table_id: TableId) -> Notice:
    message = "its changes carry no exact commit ts, so those that the source writes again after a restart come twice."
    return Notice(message, table_id)


def _missing_old_images(table_id: TableId, advice: SourceAdvice) -> Problem:
    return Problem(
        table_id,
        "it has no key, and an update came without the old row, so which row it changed cannot be known.",
        hint=_one_of(advice.old_rows, "Give the table a primary key."),
    )


def _equal_in_streams(table_id: TableId, advice: SourceAdvice) -> Problem:
    return Problem(
        table_id,
        "it has no key, and two dispatchers wrote an equal row at one commit ts: whether both count or one repeats the other "
        "cannot be known.",
        hint=_one_of("Give the table a primary key.", advice.one_writer),
    )


def _one_of(first: str, second: str) -> str:
    """A hint with two alternatives; either may be empty."""
    return f"{first} Or {second[0].lower()}{second[1:]}" if first and second else first or second


def _guessed(table_id: TableId, guess: Guess) -> Notice:
    noun = guess.place.noun
    assumed = (
        f"They are taken for a repetition after a restart, which begins with this {noun}."
        if guess.is_repetition
        else "They are taken for more rows of the same transaction."
    )
    message = (
        f"The table has no key, and the {noun} begins with the commit ts at which the one before it ends: rows of that transaction "
        f"are there twice. {assumed} Compare the number of rows with the source."
    )
    return Notice(message, table_id, guess.place)


def _bag_table_change(
    part: TablePart, batch: pa.RecordBatch, job: ReadJob, delivery_of: Mapping[int, Delivery]
) -> tuple[TableChange, int]:
    """The change of a table without key, and the number of rows that netting removed."""
    bag = bag_change(batch, delivery_of, keeps_commit_ts=job.keeps_commit_ts)
    reached = pc.max(batch.column(COMMIT_TS)).as_py()
    progress = part.progress
    if progress is not None:
        progress = replace(progress, checkpoint=max(progress.checkpoint, reached)) if reached else None
    none = pa.Table.from_batches([batch.slice(0, 0)])
    change = TableChange(part.table_id, part.segment.version, part.schema, bag.deletes, bag.inserts, none, progress)
    return replace(change, routed=routed(part.schema)), bag.netted


def _table_change(part: TablePart, batch: pa.RecordBatch, job: ReadJob) -> tuple[TableChange, int]:
    """The change of a table with a key, and the number of rows that netting removed."""
    sights = job.sights(part)
    net = net_change(
        batch,
        part.schema.handle_key,
        deletes_first=job.deletes_first,
        weighed=part.weighed,
        sights=sights,
        keeps_commit_ts=job.keeps_commit_ts,
    )
    change = TableChange(
        part.table_id,
        part.segment.version,
        part.schema,
        net.deletes,
        net.upserts,
        net.ordered,
        lo=part.segment.lo,
        watch=_watch(part, job),
        groups=net.groups,
        routed=routed(part.schema),
    )
    return change, net.netted


def _watch(part: TablePart, job: ReadJob) -> SpellingWatch | None:
    if not part.watched:
        return None
    weighed = frozenset(folded_name(name) for name in part.weighed)
    return SpellingWatch(part.watched, job.new_collations, part.buckets == 1, weighed)


def read_problems(reports: Iterable[SplitReport]) -> dict[TableId, Problem]:
    """The first problem of each table that could not be read completely. Includes cut-off files that no later file repeats."""
    known = list(reports)
    found: dict[TableId, Problem] = {}
    for report in known:
        problem = report.problem or (_truncated(report, known) if report.truncated else None)
        if problem is not None:
            found.setdefault(report.table_id, problem)
    return found


def _truncated(report: SplitReport, reports: list[SplitReport]) -> Problem | None:
    """The problem of a file whose last record is cut off, unless a later file repeats it.

    ``None`` too if the cut-off record lies above the window, because this cut does not need it.
    """
    cut_off = report.truncated_ts
    if report.pending_ts is not None and (cut_off is None or cut_off >= report.pending_ts):
        return None
    if is_repeated(report, reports):
        return None
    return Problem(
        report.table_id,
        "the last record is cut off in the middle, and no later file repeats it.",
        place=report.at(line=report.truncated_line),
        hint="Upload the complete file again under the same name. If later files of the same table version hold all of it, as "
        f"after a crash of TiCDC, give it up: {skip_command(report.table_id, report.at())}. Rows that files of newer versions "
        "repeat are not applied, so they do not replace it.",
    )


@dataclass(frozen=True)
class WriteJob:
    """What every write task needs. ``commit`` is set only if a single task has the whole cut."""

    writer: UnitWriter
    context: WriterContext
    commit: CutCommit | None = None


class WriteTask:
    """Writes units one after another through one writer. An exception becomes a result, so that its class reaches the driver.

    Results are split reports and read counts (of the reporting unit), write counts, outcomes, and finally the writer's commits.
    """

    def __init__(self, job: WriteJob, slot: int) -> None:
        self._job, self._slot = job, slot
        self._is_open = False

    def results(self, units: Iterable[tuple[int, Unit]]) -> Iterator[object]:
        """Writes the units and yields their results. After an exception no further unit is written."""
        try:
            try:
                for number, unit in units:
                    reporting = number == REPORTING_UNIT
                    if reporting:
                        yield from unit.reading.reports.values()
                        yield from unit.reading.counts
                    yield from self._written(unit, reporting=reporting)
                if self._is_open:
                    yield from self._job.writer.commits()
            finally:
                if self._is_open:
                    self._job.writer.close()
        except Exception as error:  # noqa: BLE001 -- raised again on the driver, where its class decides
            yield error

    def _written(self, unit: Unit, *, reporting: bool) -> Iterator[object]:
        """Writes one unit and yields its results. Raises what the writer raises, and RowsLostError."""
        changes: Iterable[TableChange] = unit.changes()
        at_once = not unit.job.has_logs or self._job.commit is not None
        if at_once:
            # All changes of the unit are known, and its counts verified, before any of them is written.
            changes = list(changes)
            yield from unit.counts(reporting=reporting)
            yield from unit.unfit
            if not changes and self._job.commit is None:
                return
        if not self._is_open:
            self._is_open = True
            self._job.writer.open(replace(self._job.context, slot=self._slot))
        progress: dict[TableId, TableProgress] = {}
        faults.before(Step.UNIT)
        outcomes = self._job.writer.write(_noting_progress(changes, progress), _once_read(self._job.commit, unit))
        faults.after(Step.UNIT)
        if not at_once:
            yield from unit.counts(reporting=reporting)
            yield from unit.unfit
        for outcome in outcomes:
            told = (*outcome.notices, *unit.notices.pop(outcome.table_id, ()))
            yield outcome if outcome.problem else replace(outcome, progress=progress.get(outcome.table_id), notices=told)


def _noting_progress(changes: Iterable[TableChange], noted: dict[TableId, TableProgress]) -> Iterable[TableChange]:
    """The changes. While they are taken, the progress of tables without key is added to ``noted``."""
    if isinstance(changes, list):
        noted |= {change.table_id: change.progress for change in changes if change.progress is not None}
        return changes
    return _noted(changes, noted)


def _noted(changes: Iterable[TableChange], noted: dict[TableId, TableProgress]) -> Iterator[TableChange]:
    for change in changes:
        if change.progress is not None:
            noted[change.table_id] = change.progress
        yield change


def _once_read(commit: CutCommit | None, unit: Unit) -> CutCommit | None:
    """The commit, completed with the dead letters, reports and problems from reading the cut."""
    if commit is None:
        return None
    found = replace(commit, new_letters=unit.reading.letters(), reports=tuple(unit.reading.reports.values()))
    return found.stopping(unit.problems.values())


@dataclass(frozen=True)
class Chunks:
    """How the units of a round come to the driver: in chunks, one after another."""

    counts: tuple[int, ...]
    """The number of chunks of each unit."""

    @property
    def total(self) -> int:
        """The number of all chunks."""
        return sum(self.counts)

    def of(self, unit: int, number: int) -> int:
        """The chunk of a unit's ``number``-th piece. Pieces beyond the estimate belong to the unit's last chunk."""
        return sum(self.counts[:unit]) + min(number // _PIECES_A_CHUNK, self.counts[unit] - 1)


STREAM_SCHEMA = pa.schema([("chunk", pa.int32()), ("number", pa.int64()), ("payload", pa.binary())])
_PIECES_A_CHUNK = 2
_STREAMED_BYTES = 8 << 20


def streamed_units(units: Iterable[tuple[int, Unit]], chunks: Chunks) -> Iterator[pa.RecordBatch]:
    """The table changes of units in pieces of about 8 MiB, then their results, as rows of :data:`STREAM_SCHEMA`."""
    for number, unit in units:
        for piece, item in enumerate(_streamed(unit, reporting=number == REPORTING_UNIT)):
            columns = [[chunks.of(number, piece)], [piece], [pickle.dumps(item)]]
            yield pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, STREAM_SCHEMA, strict=True)], schema=STREAM_SCHEMA)


def _streamed(unit: Unit, *, reporting: bool) -> Iterator[object]:
    problems: list[Problem] = []
    try:
        for change in unit.changes():
            with contained(problems.append, change.table_id):
                yield from in_change_pieces(change)
        if reporting:
            yield from unit.reading.reports.values()
            yield from unit.reading.counts
        yield from unit.counts(reporting=reporting)
        yield from unit.unfit
        yield from (WriteOutcome(problem.table_id, problem=problem) for problem in problems)
        for table_id, notices in unit.notices.items():
            yield WriteOutcome(table_id, notices=tuple(notices))
    except Exception as error:  # noqa: BLE001 -- raised again on the driver, where its class decides
        yield error


def in_change_pieces(change: TableChange) -> Iterator[TableChange]:
    """A change split into several that have the same effect if they are applied in order: deletions, ordered rows, then upserts.

    The ordered rows, which only the target can net, stay together. Up to 8 MiB of deletions and upserts are not split.
    """
    if change.deletes.nbytes + change.upserts.nbytes <= _STREAMED_BYTES:
        yield change
        return
    nothing = replace(
        change, deletes=change.deletes.slice(0, 0), upserts=change.upserts.slice(0, 0), ordered=change.ordered.slice(0, 0)
    )
    for deletes in in_pieces(change.deletes, _STREAMED_BYTES, change.deletes.num_rows):
        yield replace(nothing, deletes=deletes, groups=())
    if change.ordered.num_rows:
        yield replace(nothing, ordered=change.ordered)
    for upserts in in_pieces(change.upserts, _STREAMED_BYTES, change.upserts.num_rows):
        yield replace(nothing, upserts=upserts, groups=())


def result_batch(results: Iterable[object]) -> Iterator[pa.RecordBatch]:
    """Pickled results as rows of :data:`RESULT_SCHEMA`."""
    payloads = [pickle.dumps(result) for result in results]
    if payloads:
        yield pa.RecordBatch.from_arrays([pa.array(payloads, pa.binary())], schema=RESULT_SCHEMA)


def raise_first(results: Iterable[object]) -> None:
    """Raises the most important exception among results: FencedError, then TransientError, then any other."""
    errors = [r for r in results if isinstance(r, BaseException)]
    for kind in (FencedError, TransientError, BaseException):
        for error in errors:
            if isinstance(error, kind):
                raise error
