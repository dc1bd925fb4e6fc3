"""What runs inside Spark tasks: read splits, net, bucket, gather, write. Plain functions over iterators; no Spark here.

Between the two halves of a job travel opaque rows (:data:`EXCHANGE_SCHEMA`): Arrow IPC bytes of netted rows of one (table,
bucket), and the reports of all splits, which go to every write task, so that no task writes a table of which
another task could not read everything.
"""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace import faults
from headrace.engine.bag import Delivery, EqualInStreams, MissingOldImages, bag_change, deliveries, unsure_files
from headrace.engine.conservation import RowsLostError, verify_gathering, verify_handing, verify_reading
from headrace.engine.net import Sights, buckets, commit_order, last_states, net_change
from headrace.engine.parts import TablePart
from headrace.engine.progress_channel import ProgressAddress, ProgressSender
from headrace.engine.recast import recast_rows
from headrace.engine.requests import without_given_up
from headrace.errors import HeadraceError
from headrace.faults import Step
from headrace.model.advice import NO_ADVICE, SourceAdvice
from headrace.model.block import COMMIT_TS, META_FIELDS, ChangeBlock, combined, in_pieces
from headrace.model.containment import contained
from headrace.model.letters import Letter
from headrace.model.outcome import Notice, Problem, ReadCount, SplitReport, WriteCount, WriteOutcome, is_repeated
from headrace.model.split import Split, Window
from headrace.model.table import TableId, folded_name
from headrace.sinks.base import (
    ChangeDemand,
    SpellingWatch,
    TableChange,
    UnitWriter,
    WriterContext,
)
from headrace.sinks.cut_commit import CutCommit
from headrace.sinks.dead_letters import DeadLetters, no_letters_of_bags
from headrace.sources.base import EventSource

EXCHANGE_SCHEMA = pa.schema([("target", pa.int32()), ("table", pa.int32()), ("payload", pa.binary())])
RESULT_SCHEMA = pa.schema([("payload", pa.binary())])
_REPORTS = -1
_FLUSH_ROWS = 131_072
_FLUSH_BYTES = 32 << 20
_PAYLOAD_BYTES = 8 << 20
_BATCH_BYTES = 1 << 20


@dataclass(frozen=True)
class ReadJob:
    """What every decode task needs. ``parts`` are indexed by the exchange's ``table`` column."""

    source: EventSource
    parts: tuple[TablePart, ...]
    demand: ChangeDemand
    deletes_first: bool
    write_tasks: int = 1
    progress_to: ProgressAddress | None = None
    letters: DeadLetters | None = None
    new_collations: bool | None = True
    updates_alone: bool = False
    advice: SourceAdvice = NO_ADVICE

    def sights(self, part: TablePart) -> Sights | None:
        """What netting has to note of a part's keys."""
        return Sights(self.updates_alone) if part.watched or (part.by_collation and self.updates_alone) else None

    def part_numbers(self) -> dict[TableId, int]:
        return {part.table_id: number for number, part in enumerate(self.parts)}


class _Counts:
    """What a read task counts of each table, a batch at a time (:mod:`headrace.engine.conservation`)."""

    def __init__(self) -> None:
        self.received: Counter[TableId] = Counter()
        self.netted: Counter[TableId] = Counter()
        self.sent: Counter[TableId] = Counter()

    def of_tables(self) -> list[ReadCount]:
        return [ReadCount(t, received, self.netted[t], self.sent[t]) for t, received in self.received.items()]


class _Pending:
    """Rows of one part that wait to be sent, so that small files do not make small payloads."""

    def __init__(self, part: TablePart, job: ReadJob, counts: _Counts) -> None:
        self._part, self._job, self._counts = part, job, counts
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._is_netted = False

    def add(self, block: ChangeBlock) -> bool:
        """Takes a block; true when it is time to drain. Rows are netted together: a block by itself repeats few keys."""
        self._counts.received[self._part.table_id] += block.num_rows
        self._batches.append(block.batch)
        self._is_netted = False
        self._rows += block.batch.num_rows
        self._bytes += block.batch.nbytes
        if self._rows < _FLUSH_ROWS and self._bytes < _FLUSH_BYTES:
            return False
        netted = self.drain()
        self._batches, self._rows, self._bytes, self._is_netted = [netted], netted.num_rows, netted.nbytes, True
        return self._rows >= _FLUSH_ROWS // 2 or self._bytes >= _FLUSH_BYTES // 2

    def drain(self) -> pa.RecordBatch:
        """The netted rows; nothing waits then."""
        batches, self._batches, self._rows, self._bytes = self._batches, [], 0, 0
        batch = combined(batches)
        if self._is_netted or self._job.demand is ChangeDemand.ALL or self._part.is_bag:
            return batch
        sights = self._job.sights(self._part)
        states = last_states(batch, self._part.schema.handle_key, deletes_first=self._job.deletes_first, sights=sights)
        self._counts.netted[self._part.table_id] += batch.num_rows - states.num_rows
        return states


def read_splits(job: ReadJob, splits: Iterable[Split]) -> Iterator[tuple[int, pa.RecordBatch] | SplitReport | ReadCount]:
    """Reads splits one after another: ``(part number, netted rows)``, one report a split, and at last one count a table."""
    counts = _Counts()
    for item in _read_all(job, splits, counts):
        if not isinstance(item, SplitReport):
            counts.sent[job.parts[item[0]].table_id] += item[1].num_rows
        yield item
    yield from counts.of_tables()


def _read_all(job: ReadJob, splits: Iterable[Split], counts: _Counts) -> Iterator[tuple[int, pa.RecordBatch] | SplitReport]:
    numbers = job.part_numbers()
    pending: dict[int, _Pending] = {}
    sender = ProgressSender(job.progress_to)
    for split in splits:
        number = numbers[split.table_id]
        part = job.parts[number]
        for item in _read_part(job, split, part):
            if isinstance(item, SplitReport):
                sender.add(files=1)
                yield _with_letters(item, part, job.letters)
                continue
            sender.add(rows=item.num_rows)
            waiting = pending.setdefault(number, _Pending(part, job, counts))
            if waiting.add(item):
                yield number, waiting.drain()
                del pending[number]
    for number, waiting in pending.items():
        yield number, waiting.drain()
    sender.close()


def _read_part(job: ReadJob, split: Split, part: TablePart) -> Iterator[ChangeBlock | SplitReport]:
    """The rows of a split that belong to the part, in the shape in force, and the report."""
    window, recast = part.segment.window_of(split.version), part.segment.recasts.get(split.version)
    whole = job.demand is ChangeDemand.ALL or part.is_bag
    old_images = whole or split.schema.handle_key != part.schema.handle_key
    tolerance = job.letters.most if job.letters is not None and not part.is_bag else 0
    items = _read_one(job.source, split, window, old_images, tolerance)
    if recast is not None:
        items = recast_rows(items, split, recast, part.segment, whole=whole)
    key = () if job.demand is ChangeDemand.ALL else part.schema.handle_key
    got = 0
    for item in _contained(_with_whole_keys(items, split, key, job.advice.whole_deletes), split):
        if isinstance(item, ChangeBlock):
            got += item.num_rows
            yield item
            continue
        report = replace(item, given_up=window.given_up, ended=split.version < window.ended)
        if report.problem is not None and report.kept != got:
            # The reading was broken off here, and not by the source.
            report = replace(report, rank=split.rank, rows=got, kept=got, left=0, passed=0)
        yield report


def _contained(items: Iterator[ChangeBlock | SplitReport], split: Split) -> Iterator[ChangeBlock | SplitReport]:
    """The items; where something fails that nobody foresaw, the report is of a table that stops (``model/containment.py``)."""
    problems: list[Problem] = []
    with contained(problems.append, split.table_id, split.key):
        yield from items
        return
    yield SplitReport(split.key, split.table_id, problem=problems[0])


def _read_one(
    source: EventSource, split: Split, window: Window, old_images: bool, tolerance: int
) -> Iterator[ChangeBlock | SplitReport]:
    """Reads one split; a store that fails in the middle stops the split's table, to be tried again, and no other."""
    try:
        faults.before(Step.READ, split.key)
        yield from source.read(split, window, old_images=old_images, tolerance=tolerance)
    except HeadraceError as error:
        problem = Problem(split.table_id, error.message, file=split.key, hint=error.hint, transient=True)
        yield SplitReport(split.key, split.table_id, problem=problem)
        return
    faults.after(Step.READ, split.key)


def _with_letters(report: SplitReport, part: TablePart, letters: DeadLetters | None) -> SplitReport:
    """The report once the records that were left out lie as dead letters; where they cannot, the table is tried again later."""
    if letters is None:
        return report
    if part.is_bag and report.problem is not None and report.problem.line is not None:
        return replace(report, problem=no_letters_of_bags(report.problem))
    found = [
        Letter(
            report.table_id,
            part.segment.version,
            part.segment.lo,
            reject.message,
            reject.commit_ts,
            report.split_key,
            reject.line,
            reject.offset,
            reject.column,
            reject.value,
            reject.raw,
        )
        for reject in report.rejects
    ]
    try:
        return replace(report, rejects=(), letters=letters.put(found))
    except HeadraceError as error:
        problem = Problem(report.table_id, error.message, file=report.split_key, hint=error.hint, transient=True)
        return replace(report, rejects=(), problem=problem)


def _with_whole_keys(
    items: Iterator[ChangeBlock | SplitReport], split: Split, key: tuple[str, ...], whole_deletes: str
) -> Iterator[ChangeBlock | SplitReport]:
    """The items, up to a block in which a row lacks its key: nothing would tell which row it means.

    Deletions may hold no more than the key that the source took, which a declared key need not be; ``whole_deletes`` is its advice.
    """
    for item in items:
        names = item.batch.schema.names if isinstance(item, ChangeBlock) else key
        lost = next((n for n in key if n not in names or (isinstance(item, ChangeBlock) and item.batch.column(n).null_count)), None)
        if lost is not None:
            message = "a row has no value in this column of its key, so nothing tells which row it means."
            hint = f"Declare the key that the source uses. {whole_deletes}".rstrip()
            problem = Problem(split.table_id, message, file=split.key, column=lost, hint=hint)
            yield SplitReport(split.key, split.table_id, problem=problem)
            return
        yield item


def exchange_rows(job: ReadJob, splits: Iterable[Split]) -> Iterator[pa.RecordBatch]:
    """The decode half of a job: batches of :data:`EXCHANGE_SCHEMA`, each for one target; the reports come last."""
    outbox = _Outbox()
    reports: list[SplitReport] = []
    counts: list[ReadCount] = []
    sent: dict[int, Counter[TableId]] = defaultdict(Counter)
    for item in read_splits(job, splits):
        if isinstance(item, SplitReport):
            reports.append(item)
        elif isinstance(item, ReadCount):
            counts.append(replace(item, sent=sum(of_target[item.table_id] for of_target in sent.values())))
        else:
            number, batch = item
            part = job.parts[number]
            for bucket, rows in _split_by_bucket(batch, part, job.demand):
                target = (part.first + bucket) % job.write_tasks
                for piece in in_pieces(rows, _PAYLOAD_BYTES, rows.num_rows):
                    sent[target][part.table_id] += piece.num_rows
                    yield from outbox.add(target, number, _to_ipc(piece))
    for target in range(job.write_tasks):
        yield from outbox.add(target, _REPORTS, pickle.dumps((reports, counts, sent[target])))
    yield from outbox.rest()


class _Outbox:
    """Rows of the exchange that wait for others with the same target: a batch of its own for each costs more than a small row."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
        self._bytes: dict[int, int] = defaultdict(int)

    def add(self, target: int, table: int, payload: bytes) -> Iterator[pa.RecordBatch]:
        self._waiting[target].append((table, payload))
        self._bytes[target] += len(payload)
        if self._bytes[target] >= _BATCH_BYTES:
            yield self._batch(target)

    def rest(self) -> Iterator[pa.RecordBatch]:
        for target in list(self._waiting):
            yield self._batch(target)

    def _batch(self, target: int) -> pa.RecordBatch:
        rows = self._waiting.pop(target)
        del self._bytes[target]
        tables, payloads = zip(*rows, strict=True)
        columns = [pa.array([target] * len(rows), pa.int32()), pa.array(tables, pa.int32()), pa.array(payloads, pa.binary())]
        return pa.RecordBatch.from_arrays(columns, schema=EXCHANGE_SCHEMA)


def _split_by_bucket(batch: pa.RecordBatch, part: TablePart, demand: ChangeDemand) -> Iterator[tuple[int, pa.RecordBatch]]:
    if part.buckets == 1 or demand is ChangeDemand.ALL:
        yield 0, batch
        return
    numbers = buckets(batch, part.schema.handle_key, part.buckets, part.weighed)
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(part.buckets + 1))
    grouped = batch.take(pa.array(order))
    for bucket in range(part.buckets):
        start, end = int(ends[bucket]), int(ends[bucket + 1])
        if end > start:
            yield bucket, grouped.slice(start, end - start)


def _to_ipc(batch: pa.RecordBatch) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(out.getvalue())


class Gathered:
    """Everything of one write task: the rows of its parts, and the reports of all splits."""

    def __init__(self, job: ReadJob) -> None:
        self._job = job
        self._batches: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        self.reports: dict[str, SplitReport] = {}
        self.reads: list[ReadCount] = []
        self._sent: Counter[TableId] = Counter()
        self._netted: Counter[TableId] = Counter()
        self.notices: dict[TableId, list[Notice]] = defaultdict(list)

    def add_exchange(self, batch: pa.RecordBatch) -> None:
        for number, payload in zip(batch.column(1).to_pylist(), batch.column(2), strict=True):
            if number == _REPORTS:
                reports, reads, sent = pickle.loads(payload.as_py())
                self.reports |= {report.split_key: report for report in reports}
                self.reads += reads
                self._sent.update(sent)
            else:
                self._batches[number].extend(pa.ipc.open_stream(payload.as_buffer()))

    def add(self, item: tuple[int, pa.RecordBatch] | SplitReport | ReadCount) -> None:
        """What :func:`read_splits` gives, where the task that reads also writes."""
        if isinstance(item, SplitReport):
            self.reports[item.split_key] = item
        elif isinstance(item, ReadCount):
            self.reads.append(item)
            self._sent[item.table_id] += item.sent
        else:
            self._batches[item[0]].append(item[1])

    def settle(self) -> None:
        """Once all reports are there: what is damaged and was given up is no problem, and too many dead letters are one."""
        self.reports = dict(without_given_up(self.reports.values()))
        if self._job.letters is None:
            return
        for table_id, count in self.letters().items():
            problem = self._job.letters.too_many(table_id, count)
            if problem is not None:
                last = [report for report in self.reports.values() if report.letters and report.table_id == table_id][-1]
                self.reports[last.split_key] = replace(last, problem=last.problem or problem)

    def counted(self) -> Counter[TableId]:
        """The rows of each table that are here. Raises RowsLostError unless they are all that was read and sent here."""
        found: Counter[TableId] = Counter()
        for number, batches in self._batches.items():
            found[self._job.parts[number].table_id] += sum(batch.num_rows for batch in batches)
        verify_reading(self.reports.values(), self.reads)
        verify_gathering(self._sent, found)
        return found

    def counts(self, gathered: Mapping[TableId, int], changes: Iterable[TableChange]) -> list[WriteCount]:
        """What became of the rows that were here, which ``changes`` are to hold. Raises RowsLostError unless they do."""
        handed: Counter[TableId] = Counter()
        for change in changes:
            handed[change.table_id] += change.num_rows
        counts = [WriteCount(t, rows, self._netted[t], handed[t]) for t, rows in gathered.items()]
        for count in counts:
            if count.table_id in handed:
                verify_handing(count)
        return counts

    def letters(self) -> Counter[TableId]:
        """How many records of each table became dead letters while they were read."""
        counts: Counter[TableId] = Counter()
        for report in self.reports.values():
            if report.letters:
                counts[report.table_id] += len(report.letters)
        return counts

    def changes(self) -> tuple[list[TableChange], list[WriteOutcome]]:
        """The table changes to write, one of each table, without the tables that could not be read.

        The outcomes are of tables whose rows turn out not to be applicable.
        """
        problems = read_problems(self.reports.values())
        changes: list[TableChange] = []
        outcomes: list[WriteOutcome] = []
        for number in sorted(self._batches):
            part = self._job.parts[number]
            batches = self._batches.pop(number)
            if part.table_id in problems:
                continue
            found: list[Problem] = []
            with contained(found.append, part.table_id):
                try:
                    changes.append(self._change(part, combined(batches)))
                except (MissingOldImages, EqualInStreams) as error:
                    explained = _missing_old_images if isinstance(error, MissingOldImages) else _equal_in_streams
                    found.append(explained(part.table_id, self._job.advice))
            for problem in found:
                problems[part.table_id] = problem
                outcomes.append(WriteOutcome(part.table_id, problem=problem))
        return [c for c in changes if c.table_id not in problems], outcomes

    def _change(self, part: TablePart, batch: pa.RecordBatch) -> TableChange:
        if part.is_bag and self._job.demand is ChangeDemand.NET:
            reports = [r for r in self.reports.values() if r.table_id == part.table_id]
            self.notices[part.table_id] += [_guessed(part.table_id, file) for file in unsure_files(reports, batch)]
            change, netted = _bag_table_change(part, batch, deliveries(reports, batch))
        else:
            change, netted = _table_change(part, batch, self._job)
            if self.letters()[part.table_id]:
                change = replace(change, watch=None)  # a deletion may be among them
        self._netted[part.table_id] += netted
        return change


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
    """Two ways on, of which either may be unknown."""
    return f"{first} Or {second[0].lower()}{second[1:]}" if first and second else first or second


def _guessed(table_id: TableId, file: str) -> Notice:
    message = (
        "The table has no key, and the file begins with rows of the very commit ts at which the one before it ends: what it "
        "holds again of that transaction in full is taken for a repetition, anything less for the rest of it."
    )
    return Notice(message, table_id, file)


def _bag_table_change(part: TablePart, batch: pa.RecordBatch, delivery_of: Mapping[int, Delivery]) -> tuple[TableChange, int]:
    """The change, and how many rows netting took away."""
    bag = bag_change(batch, delivery_of)
    reached = pc.max(batch.column(COMMIT_TS)).as_py()
    progress = part.progress
    if progress is not None:
        progress = replace(progress, checkpoint=max(progress.checkpoint, reached)) if reached else None
    none = pa.Table.from_batches([batch.slice(0, 0)])
    return TableChange(part.table_id, part.segment.version, part.schema, bag.deletes, bag.inserts, none, progress), bag.netted


def _table_change(part: TablePart, batch: pa.RecordBatch, job: ReadJob) -> tuple[TableChange, int]:
    """The change, and how many rows netting took away."""
    if job.demand is ChangeDemand.ALL:
        rows = pa.Table.from_batches([batch.take(pa.array(commit_order(batch, deletes_first=job.deletes_first)))])
        empty = rows.select(rows.column_names[len(META_FIELDS) :]).slice(0, 0)
        return TableChange(part.table_id, part.segment.version, part.schema, empty, empty, rows), 0
    sights = job.sights(part)
    net = net_change(batch, part.schema.handle_key, deletes_first=job.deletes_first, weighed=part.weighed, sights=sights)
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
    )
    return change, net.netted


def _watch(part: TablePart, job: ReadJob) -> SpellingWatch | None:
    if not part.watched:
        return None
    weighed = frozenset(folded_name(name) for name in part.weighed)
    return SpellingWatch(part.watched, job.new_collations, part.buckets == 1, weighed)


def read_problems(reports: Iterable[SplitReport]) -> dict[TableId, Problem]:
    """Why tables could not be read whole: the first problem of each, truncated files that nothing makes good included."""
    known = list(reports)
    found: dict[TableId, Problem] = {}
    for report in known:
        problem = report.problem or (_truncated(report, known) if report.truncated else None)
        if problem is not None:
            found.setdefault(report.table_id, problem)
    return found


def _truncated(report: SplitReport, reports: list[SplitReport]) -> Problem | None:
    """A file cut in its last record is made good by a later one that repeats it.

    What lies above the window is nobody's concern yet.
    """
    cut_off = report.truncated_ts
    if report.pending_ts is not None and (cut_off is None or cut_off >= report.pending_ts):
        return None
    if is_repeated(report, reports):
        return None
    return Problem(
        report.table_id,
        "the last record is cut off in the middle, and no later file repeats it.",
        file=report.split_key,
        line=report.truncated_line,
        hint="Upload the complete file again under the same name.",
    )


@dataclass(frozen=True)
class WriteJob:
    """What every write task needs. ``commit`` comes only with a single task that holds the whole cut."""

    writer: UnitWriter
    context: WriterContext
    commit: CutCommit | None = None


def write_gathered(gathered: Gathered, job: WriteJob, slot: int) -> Iterator[object]:
    """The write half: outcomes, and (from slot 0) the split reports. An exception is an outcome too, so its class survives."""
    gathered.settle()
    try:
        rows = gathered.counted()
        changes, unfit = gathered.changes()
        writes = gathered.counts(rows, changes)
    except RowsLostError as error:
        yield error
        return
    if slot == 0:
        yield from gathered.reports.values()
        yield from gathered.reads
    yield from writes
    yield from unfit
    if not changes and job.commit is None:
        return
    try:
        job.writer.open(replace(job.context, slot=slot))
        try:
            faults.before(Step.UNIT)
            outcomes = job.writer.write(changes, _once_read(job.commit, gathered, unfit))
            faults.after(Step.UNIT)
            commits = job.writer.commits()
        finally:
            job.writer.close()
    except Exception as error:  # noqa: BLE001 -- raised again on the driver, where its class decides
        yield error
        return
    if commits is not None:
        yield commits
    reached = {c.table_id: c.progress for c in changes}
    for outcome in outcomes:
        table_id = outcome.table_id
        told = (*outcome.notices, *gathered.notices.get(table_id, ()))
        yield outcome if outcome.problem else replace(outcome, progress=reached.get(table_id), notices=told)


def _once_read(commit: CutCommit | None, gathered: Gathered, unfit: list[WriteOutcome]) -> CutCommit | None:
    """The commit with what reading the cut has shown."""
    if commit is None:
        return None
    problems = {o.table_id: o.problem for o in unfit if o.problem} | read_problems(gathered.reports.values())
    found = replace(commit, new_letters=gathered.letters(), reports=tuple(gathered.reports.values()))
    return found.stopping(problems.values())


def result_batch(results: Iterable[object]) -> Iterator[pa.RecordBatch]:
    """Pickled results as rows of :data:`RESULT_SCHEMA`."""
    payloads = [pickle.dumps(result) for result in results]
    if payloads:
        yield pa.RecordBatch.from_arrays([pa.array(payloads, pa.binary())], schema=RESULT_SCHEMA)
