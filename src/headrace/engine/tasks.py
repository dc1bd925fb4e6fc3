"""What runs inside Spark tasks: read splits, net, bucket, gather, write. Plain functions over iterators; no Spark here.

Between the two halves of a job travel opaque rows (:data:`EXCHANGE_SCHEMA`): Arrow IPC bytes of netted rows of one (table,
version, bucket), and the reports of all splits, which go to every write task, so that no task writes a table of which
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
from headrace.engine.bag import Attempt, EqualInStreams, MissingOldImages, attempts, bag_change, unsure_files
from headrace.engine.net import buckets, commit_order, last_states, net_change
from headrace.engine.progress_channel import ProgressAddress, ProgressSender
from headrace.engine.requests import without_given_up
from headrace.errors import HeadraceError
from headrace.faults import Step
from headrace.model.block import COMMIT_TS, META_FIELDS, ChangeBlock
from headrace.model.cut import Split, Window
from headrace.model.letters import Letter
from headrace.model.outcome import Notice, Problem, SplitReport, WriteOutcome, is_repeated
from headrace.model.progress import TableProgress
from headrace.model.table import TableId, TableSchema
from headrace.sinks.base import ChangeDemand, CutCommit, TableChange, UnitWriter, WriterContext
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
class TablePart:
    """The rows of one table version in one round: how they are netted and over how many write tasks they are spread.

    Its buckets go to the write tasks ``first``, ``first + 1``, … (modulo the number of write tasks).
    """

    table_id: TableId
    version: int
    schema: TableSchema
    window: Window
    buckets: int = 1
    first: int = 0
    progress: TableProgress | None = None

    @property
    def is_bag(self) -> bool:
        """Whether equal rows are counted because there is no key; all of the table is then one bucket."""
        return not self.schema.handle_key


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

    def part_numbers(self) -> dict[tuple[TableId, int], int]:
        return {(p.table_id, p.version): n for n, p in enumerate(self.parts)}


class _Pending:
    """Rows of one part that wait to be sent, so that small files do not make small payloads."""

    def __init__(self, part: TablePart, job: ReadJob) -> None:
        self._part, self._job = part, job
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._is_netted = False

    def add(self, block: ChangeBlock) -> bool:
        """Takes a block; true when it is time to drain. Rows are netted together: a block by itself repeats few keys."""
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
        batch = _combined(batches)
        if self._is_netted or self._job.demand is ChangeDemand.ALL or self._part.is_bag:
            return batch
        return last_states(batch, self._part.schema.handle_key, deletes_first=self._job.deletes_first)


def _combined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of all, the columns being those that any of them carries (a deletion may bring its key only)."""
    if len(batches) == 1:
        return batches[0]
    table = pa.concat_tables([pa.Table.from_batches([b]) for b in batches], promote_options="default").combine_chunks()
    return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=table.schema)


def read_splits(job: ReadJob, splits: Iterable[Split]) -> Iterator[tuple[int, pa.RecordBatch] | SplitReport]:
    """Reads splits one after another: ``(part number, netted rows)`` and one report a split."""
    numbers = job.part_numbers()
    pending: dict[int, _Pending] = {}
    sender = ProgressSender(job.progress_to)
    for split in splits:
        number = numbers[(split.table_id, split.version)]
        part = job.parts[number]
        old_images = job.demand is ChangeDemand.ALL or part.is_bag
        key = () if job.demand is ChangeDemand.ALL else part.schema.handle_key
        tolerance = job.letters.most if job.letters is not None and not part.is_bag else 0
        for item in _with_whole_keys(_read_one(job.source, split, part.window, old_images, tolerance), split, key):
            if isinstance(item, SplitReport):
                sender.add(files=1)
                yield _with_letters(replace(item, given_up=part.window.given_up), part, job.letters)
                continue
            sender.add(rows=item.num_rows)
            waiting = pending.setdefault(number, _Pending(part, job))
            if waiting.add(item):
                yield number, waiting.drain()
                del pending[number]
    for number, waiting in pending.items():
        yield number, waiting.drain()
    sender.close()


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
            part.version,
            part.window.lo,
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
    items: Iterator[ChangeBlock | SplitReport], split: Split, key: tuple[str, ...]
) -> Iterator[ChangeBlock | SplitReport]:
    """The items, up to a block in which a row lacks its key: nothing would tell which row it means.

    Deletions may hold no more than the key that TiCDC took, which a declared key need not be.
    """
    for item in items:
        names = item.batch.schema.names if isinstance(item, ChangeBlock) else key
        lost = next((n for n in key if n not in names or (isinstance(item, ChangeBlock) and item.batch.column(n).null_count)), None)
        if lost is not None:
            message = "a row has no value in this column of its key, so nothing tells which row it means."
            hint = "Declare the key that TiCDC uses, or set delete-only-output-handle-key-columns = false in the changefeed."
            problem = Problem(split.table_id, message, file=split.key, column=lost, hint=hint)
            yield SplitReport(split.key, split.table_id, problem=problem)
            return
        yield item


def exchange_rows(job: ReadJob, splits: Iterable[Split]) -> Iterator[pa.RecordBatch]:
    """The decode half of a job: batches of :data:`EXCHANGE_SCHEMA`, each for one target; the reports come last."""
    outbox = _Outbox()
    reports: list[SplitReport] = []
    for item in read_splits(job, splits):
        if isinstance(item, SplitReport):
            reports.append(item)
            continue
        number, batch = item
        part = job.parts[number]
        for bucket, rows in _split_by_bucket(batch, part, job.demand):
            target = (part.first + bucket) % job.write_tasks
            for payload in _payloads(rows):
                yield from outbox.add(target, number, payload)
    told = pickle.dumps(reports)
    for target in range(job.write_tasks):
        yield from outbox.add(target, _REPORTS, told)
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
    numbers = buckets(batch, part.schema.handle_key, part.buckets)
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(part.buckets + 1))
    grouped = batch.take(pa.array(order))
    for bucket in range(part.buckets):
        start, end = int(ends[bucket]), int(ends[bucket + 1])
        if end > start:
            yield bucket, grouped.slice(start, end - start)


def _payloads(rows: pa.RecordBatch) -> Iterator[bytes]:
    count = max(1, -(-rows.nbytes // _PAYLOAD_BYTES))
    step = max(1, -(-rows.num_rows // count))
    for offset in range(0, rows.num_rows, step):
        yield _to_ipc(rows.slice(offset, step))


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
        self.notices: dict[TableId, list[Notice]] = defaultdict(list)

    def add_exchange(self, batch: pa.RecordBatch) -> None:
        for number, payload in zip(batch.column(1).to_pylist(), batch.column(2), strict=True):
            if number == _REPORTS:
                for report in pickle.loads(payload.as_py()):
                    self.add_report(report)
            else:
                self._batches[number].extend(pa.ipc.open_stream(payload.as_buffer()))

    def add_rows(self, number: int, batch: pa.RecordBatch) -> None:
        self._batches[number].append(batch)

    def add_report(self, report: SplitReport) -> None:
        self.reports[report.split_key] = report

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

    def letters(self) -> Counter[TableId]:
        """How many records of each table became dead letters while they were read."""
        counts: Counter[TableId] = Counter()
        for report in self.reports.values():
            if report.letters:
                counts[report.table_id] += len(report.letters)
        return counts

    def changes(self) -> tuple[list[TableChange], list[WriteOutcome]]:
        """The table changes to write, versions of one table in order, without the tables that could not be read.

        The outcomes are of tables whose rows turn out not to be applicable.
        """
        problems = read_problems(self.reports.values())
        changes: list[TableChange] = []
        outcomes: list[WriteOutcome] = []
        for number in sorted(self._batches, key=lambda n: (self._job.parts[n].version, n)):
            part = self._job.parts[number]
            batches = self._batches.pop(number)
            if part.table_id in problems:
                continue
            try:
                changes.append(self._change(part, _combined(batches)))
            except (MissingOldImages, EqualInStreams) as error:
                explained = _missing_old_images if isinstance(error, MissingOldImages) else _equal_in_streams
                problems[part.table_id] = explained(part.table_id)
                outcomes.append(WriteOutcome(part.table_id, problem=problems[part.table_id]))
        return [c for c in changes if c.table_id not in problems], outcomes

    def _change(self, part: TablePart, batch: pa.RecordBatch) -> TableChange:
        if part.is_bag and self._job.demand is ChangeDemand.NET:
            reports = [r for r in self.reports.values() if r.table_id == part.table_id]
            self.notices[part.table_id] += [_guessed(part.table_id, file) for file in unsure_files(reports, batch)]
            return _bag_table_change(part, batch, attempts(reports, batch))
        return _table_change(part, batch, self._job)


def _missing_old_images(table_id: TableId) -> Problem:
    return Problem(
        table_id,
        "it has no key, and an update came without the old row, so which row it changed cannot be known.",
        hint="Set output-old-value = true under [sink.csv] of the changefeed (it holds for files written from then on), "
        "or give the table a primary key.",
    )


def _equal_in_streams(table_id: TableId) -> Problem:
    return Problem(
        table_id,
        "it has no key, and two dispatchers wrote an equal row at one commit ts: whether both count or one repeats the other "
        "cannot be known.",
        hint="Give the table a primary key, or set enable-table-across-nodes = false under [scheduler] of the changefeed and copy "
        "the table anew.",
    )


def _guessed(table_id: TableId, file: str) -> Notice:
    message = (
        "The table has no key, and the file begins with rows of the very commit ts at which the one before it ends: what it "
        "holds again of that transaction in full is taken for a repetition, anything less for the rest of it."
    )
    return Notice(message, table_id, file)


def _bag_table_change(part: TablePart, batch: pa.RecordBatch, attempt_of: Mapping[int, Attempt]) -> TableChange:
    bag = bag_change(batch, attempt_of)
    reached = pc.max(batch.column(COMMIT_TS)).as_py()
    progress = part.progress
    if progress is not None:
        progress = replace(progress, checkpoint=max(progress.checkpoint, reached))
    none = pa.Table.from_batches([batch.slice(0, 0)])
    return TableChange(part.table_id, part.version, part.schema, bag.deletes, bag.inserts, none, progress)


def _table_change(part: TablePart, batch: pa.RecordBatch, job: ReadJob) -> TableChange:
    if job.demand is ChangeDemand.ALL:
        rows = pa.Table.from_batches([batch.take(pa.array(commit_order(batch, deletes_first=job.deletes_first)))])
        empty = rows.select(rows.column_names[len(META_FIELDS) :]).slice(0, 0)
        return TableChange(part.table_id, part.version, part.schema, empty, empty, rows)
    net = net_change(batch, part.schema.handle_key, deletes_first=job.deletes_first)
    return TableChange(part.table_id, part.version, part.schema, net.deletes, net.upserts, net.ordered, lo=part.window.lo)


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
    if slot == 0:
        yield from gathered.reports.values()
    changes, unfit = gathered.changes()
    yield from unfit
    if not changes and job.commit is None:
        return
    try:
        job.writer.open(replace(job.context, slot=slot))
        try:
            faults.before(Step.UNIT)
            outcomes = job.writer.write(changes, _with_problems(job.commit, gathered, unfit))
            faults.after(Step.UNIT)
        finally:
            job.writer.close()
    except Exception as error:  # noqa: BLE001 -- raised again on the driver, where its class decides
        yield error
        return
    reached = {c.table_id: c.progress for c in changes}
    for outcome in outcomes:
        table_id = outcome.table_id
        told = (*outcome.notices, *gathered.notices.get(table_id, ()))
        yield outcome if outcome.problem else replace(outcome, progress=reached.get(table_id), notices=told)


def _with_problems(commit: CutCommit | None, gathered: Gathered, unfit: list[WriteOutcome]) -> CutCommit | None:
    if commit is None:
        return None
    problems = {o.table_id: o.problem for o in unfit if o.problem} | read_problems(gathered.reports.values())
    stopped = (*commit.stopped, *map(commit.stopped_row, problems.values()))
    return replace(commit, stopped=stopped, new_letters=gathered.letters())


def result_batch(results: Iterable[object]) -> Iterator[pa.RecordBatch]:
    """Pickled results as rows of :data:`RESULT_SCHEMA`."""
    payloads = [pickle.dumps(result) for result in results]
    if payloads:
        yield pa.RecordBatch.from_arrays([pa.array(payloads, pa.binary())], schema=RESULT_SCHEMA)


def plan_parts(
    splits: Iterable[Split],
    windows: Mapping[TableId, Window],
    write_tasks: int,
    bytes_per_bucket: int,
    progress: Mapping[TableId, TableProgress],
) -> tuple[TablePart, ...]:
    """The parts of a round. A table's buckets grow with its bytes; small tables take turns over the write tasks.

    All versions of a table share their buckets and first task, so that one task applies a key's history in order.
    """
    sizes: dict[TableId, int] = defaultdict(int)
    shapes: dict[tuple[TableId, int], TableSchema] = {}
    for split in splits:
        sizes[split.table_id] += split.size
        shapes[(split.table_id, split.version)] = split.schema
    bags = {table_id for (table_id, _), schema in shapes.items() if not schema.handle_key}
    parts, turn = [], 0
    places: dict[TableId, tuple[int, int]] = {}
    for table_id in sorted(sizes, key=lambda t: (-sizes[t], t)):
        count = 1 if table_id in bags else min(write_tasks, max(1, -(-sizes[table_id] // bytes_per_bucket)))
        places[table_id] = (count, turn % write_tasks)
        turn += count
    for (table_id, version), schema in sorted(shapes.items(), key=lambda item: item[0]):
        count, first = places[table_id]
        parts.append(TablePart(table_id, version, schema, windows[table_id], count, first, progress.get(table_id)))
    return tuple(parts)
