"""The read half of a job: reads splits, nets or sorts their rows, and sends them to the units that write them. Without Spark."""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from headrace import faults
from headrace.engine.change_log import LogOrder
from headrace.engine.exchange import DIGEST, REPORTING_UNIT, Outbox, ReadDigest, to_ipc
from headrace.engine.net import Sights, buckets, last_states
from headrace.engine.parts import TablePart
from headrace.engine.payload_files import PayloadFile
from headrace.engine.progress_channel import ProgressAddress, ProgressSender
from headrace.engine.recast import recast_rows
from headrace.errors import HeadraceError
from headrace.faults import Step
from headrace.model.advice import NO_ADVICE, SourceAdvice
from headrace.model.block import ChangeBlock, combined, in_pieces
from headrace.model.containment import contained
from headrace.model.cut import Repeats
from headrace.model.letters import Letter
from headrace.model.outcome import Notice, Problem, ReadCount, SplitReport
from headrace.model.split import Split, Window
from headrace.model.table import TableId
from headrace.sinks.dead_letters import DeadLetters, no_letters_of_bags
from headrace.sources.base import EventSource

_FLUSH_ROWS = 131_072
_FLUSH_BYTES = 32 << 20
_PAYLOAD_BYTES = 8 << 20


@dataclass(frozen=True)
class ReadJob:
    """What every read task needs."""

    source: EventSource
    parts: tuple[TablePart, ...]
    """Indexed by the exchange's ``table`` column."""
    deletes_first: bool
    has_commit_ts: bool = True
    repeats: Repeats = Repeats.CHANGES
    units: int = 1
    progress_to: ProgressAddress | None = None
    payload_folder: str = ""
    """Where read tasks write large payloads for write tasks on the same machine (:mod:`~.payload_files`); empty if they run on
    several machines."""
    letters: DeadLetters | None = None
    new_collations: bool | None = True
    updates_alone: bool = False
    keeps_commit_ts: bool = False
    """The writer gets netted rows with their commit ts (``SinkCapabilities.keeps_commit_ts``)."""
    advice: SourceAdvice = NO_ADVICE

    @property
    def order(self) -> LogOrder:
        """The order in which changes apply."""
        return LogOrder(self.has_commit_ts)

    @property
    def has_logs(self) -> bool:
        """Whether the sink takes every change of some table, so that write tasks get the rows in order."""
        return any(part.is_log for part in self.parts)

    def sights(self, part: TablePart) -> Sights | None:
        """What netting has to record for the keys of a part; ``None`` for nothing."""
        return Sights(self.updates_alone) if part.watched or (part.by_collation and self.updates_alone) else None

    def part_numbers(self) -> dict[TableId, int]:
        """The number of each table's part."""
        return {part.table_id: number for number, part in enumerate(self.parts)}


class _Counts:
    """A read task's row counts by table, updated batch by batch (:mod:`headrace.engine.conservation`)."""

    def __init__(self) -> None:
        self.received: Counter[TableId] = Counter()
        self.netted: Counter[TableId] = Counter()
        self.sent: Counter[TableId] = Counter()

    def of_tables(self) -> list[ReadCount]:
        return [ReadCount(t, received, self.netted[t], self.sent[t]) for t, received in self.received.items()]


class _Pending:
    """Collects rows of one part before they are sent, so that small files do not cause small payloads."""

    def __init__(self, part: TablePart, job: ReadJob, counts: _Counts) -> None:
        self._part, self._job, self._counts = part, job, counts
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._is_netted = False

    def add(self, block: ChangeBlock) -> bool:
        """Adds a block. True if it is time to drain. Blocks are netted together, because a single block repeats few keys."""
        self._counts.received[self._part.table_id] += block.num_rows
        self._batches.append(block.batch)
        self._is_netted = False
        self._rows += block.batch.num_rows
        self._bytes += block.batch.nbytes
        if self._rows < _FLUSH_ROWS and self._bytes < _FLUSH_BYTES:
            return False
        if self._part.is_log:
            return True
        netted = self.drain()
        self._batches, self._rows, self._bytes, self._is_netted = [netted], netted.num_rows, netted.nbytes, True
        return self._rows >= _FLUSH_ROWS // 2 or self._bytes >= _FLUSH_BYTES // 2

    def drain(self) -> pa.RecordBatch:
        """Removes and returns the collected rows: netted by key, sorted if the sink takes every change, or unchanged for a bag."""
        batches, self._batches, self._rows, self._bytes = self._batches, [], 0, 0
        batch = combined(batches)
        if self._part.is_log:
            return self._job.order.sorted(batch)
        if self._is_netted or self._part.is_bag:
            return batch
        sights = self._job.sights(self._part)
        states = last_states(batch, self._part.schema.handle_key, deletes_first=self._job.deletes_first, sights=sights)
        self._counts.netted[self._part.table_id] += batch.num_rows - states.num_rows
        return states


def read_splits(job: ReadJob, splits: Iterable[Split]) -> Iterator[tuple[int, pa.RecordBatch] | SplitReport | ReadCount]:
    """Reads splits one after another. Yields ``(part number, netted rows)``, one report per split, and finally one count per table.

    A second report for a split replaces the first one. It has a problem that was found later, when the table's rows were netted.
    """
    counts = _Counts()
    failed: dict[int, Problem] = {}
    last: dict[int, SplitReport] = {}
    numbers = job.part_numbers()
    for item in _read_all(job, splits, counts, failed):
        if isinstance(item, SplitReport):
            last[numbers[item.table_id]] = item
        else:
            counts.sent[job.parts[item[0]].table_id] += item[1].num_rows
        yield item
    for number, problem in failed.items():
        yield replace(last[number], problem=last[number].problem or problem)
        table_id = job.parts[number].table_id
        counts.netted[table_id] = counts.received[table_id] - counts.sent[table_id]  # the other rows are not sent
    yield from counts.of_tables()


def _read_all(
    job: ReadJob, splits: Iterable[Split], counts: _Counts, failed: dict[int, Problem]
) -> Iterator[tuple[int, pa.RecordBatch] | SplitReport]:
    """Reads splits. Adds a problem to ``failed`` for each part whose rows could not be netted or sorted."""
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
            drained = None
            with contained(partial(failed.setdefault, number), part.table_id, split.place):
                drained = waiting.drain() if waiting.add(item) and number not in failed else None
            if drained is not None:
                yield number, drained
                del pending[number]
    for number, waiting in pending.items():
        drained = None
        with contained(partial(failed.setdefault, number), job.parts[number].table_id):
            drained = waiting.drain() if number not in failed else None
        if drained is not None:
            yield number, drained
    sender.close()


def _read_part(job: ReadJob, split: Split, part: TablePart) -> Iterator[ChangeBlock | SplitReport]:
    """The rows of a split inside the part's window, in the shape in force, and the split's report."""
    window, recast = part.segment.window_of(split.version), part.segment.recasts.get(split.version)
    if split.of_others:
        window = replace(window, loaded=0)
    if split.of_gone:
        window = replace(window, hi=window.lo)
    whole = part.is_log or part.is_bag
    old_images = whole or split.schema.handle_key != part.schema.handle_key
    tolerance = job.letters.most if job.letters is not None and part.schema.handle_key and not split.ends else 0
    items = _read_one(job.source, split, window, old_images, tolerance)
    if recast is not None:
        items = recast_rows(items, split, recast, part.segment, whole=whole)
    key = () if part.is_log and part.buckets == 1 else part.schema.handle_key
    got = 0
    for item in _contained(_with_whole_keys(items, split, key, job.advice.whole_deletes), split):
        if isinstance(item, ChangeBlock):
            got += item.num_rows
            yield item
            continue
        report = replace(item, given_up=window.given_up, ended=split.version < window.ended, place=split.place)
        if report.problem is None and report.rolled_over and job.repeats is Repeats.TRANSACTIONS:
            report = replace(report, problem=_ends_inside(split))
        if report.problem is not None and report.kept != got:
            # The engine stopped the reading early, not the source, so the report's figures are replaced.
            report = replace(report, rank=split.rank, rows=got, kept=got, left=0, passed=0)
        yield _of_ended(report, split) if split.ends else report


def _of_ended(report: SplitReport, split: Split) -> SplitReport:
    """The report of a split of a table that has ended. Damage in it stops no table; a notice says that rows may be missing."""
    problem, is_as_told = report.problem, split.of_gone or report.max_ts <= split.ends
    if not is_as_told or (not report.truncated and (problem is None or problem.transient)):
        return report
    damage = "its last record is cut off" if problem is None else problem.message.rstrip(".")
    told = (
        f"A file of its former name came late and cannot be read whole ({damage}): rows of it may be missing. If its source has "
        "such rows, copy the table anew."
    )
    notice = Notice(told, split.table_id, split.place, missing=(split.begins, split.ends))
    return replace(report, problem=None, truncated=False, pending_ts=None, notices=(notice, *report.notices))


def _ends_inside(split: Split) -> Problem:
    """The problem of a source whose splits contradict the ``repeats`` that it declares."""
    message = (
        "its source recognizes repeated transactions by their splits, and this split may end inside a transaction: the rest of "
        "that transaction could not be told from a repetition."
    )
    hint = "The connector of the source has to recognize repetitions by changes, or to declare that it cannot: repeats=UNKNOWN."
    return Problem(split.table_id, message, place=split.place, hint=hint)


def _contained(items: Iterator[ChangeBlock | SplitReport], split: Split) -> Iterator[ChangeBlock | SplitReport]:
    """The items. After an unforeseen error, a report whose problem stops the table follows (``model/containment.py``)."""
    problems: list[Problem] = []
    with contained(problems.append, split.table_id, split.place):
        yield from items
        return
    yield SplitReport(split.key, split.table_id, problem=problems[0])


def _read_one(
    source: EventSource, split: Split, window: Window, old_images: bool, tolerance: int
) -> Iterator[ChangeBlock | SplitReport]:
    """Reads one split. If the store fails in the middle, only the split's table stops, and is tried again."""
    try:
        faults.before(Step.READ, split.key)
        yield from source.read(split, window, old_images=old_images, tolerance=tolerance)
    except HeadraceError as error:
        problem = Problem(split.table_id, error.message, place=split.place, hint=error.hint, transient=True)
        yield SplitReport(split.key, split.table_id, problem=problem)
        return
    faults.after(Step.READ, split.key)


def _with_letters(report: SplitReport, part: TablePart, letters: DeadLetters | None) -> SplitReport:
    """The report after its rejected records were written as dead letters. If that fails, the table stops.

    It is tried again if the folder cannot be reached.
    """
    if letters is None:
        return report
    problem = report.problem
    if not part.schema.handle_key and problem is not None and problem.place is not None and problem.place.is_record:
        return replace(report, problem=no_letters_of_bags(problem))
    problems: list[Problem] = []
    try:
        with contained(problems.append, report.table_id, report.at()):
            return replace(report, rejects=(), letters=letters.put(_letters(report, part)))
    except HeadraceError as error:
        problems.append(Problem(report.table_id, error.message, place=report.at(), hint=error.hint, transient=True))
    return replace(report, rejects=(), problem=problems[0])


def _letters(report: SplitReport, part: TablePart) -> list[Letter]:
    return [
        Letter(
            report.table_id,
            part.segment.version,
            part.segment.lo,
            reject.message,
            reject.commit_ts,
            report.at(line=reject.line, offset=reject.offset),
            reject.column,
            reject.value,
            reject.raw,
        )
        for reject in report.rejects
    ]


def _with_whole_keys(
    items: Iterator[ChangeBlock | SplitReport], split: Split, key: tuple[str, ...], whole_deletes: str
) -> Iterator[ChangeBlock | SplitReport]:
    """The items up to a block with a row that lacks a key column, because it would be unknown which row it changes.

    Deletions may have only the columns of the key that the source chose, which may differ from a declared key. ``whole_deletes`` is
    the source's advice for this case.
    """
    for item in items:
        names = item.batch.schema.names if isinstance(item, ChangeBlock) else key
        lost = next((n for n in key if n not in names or (isinstance(item, ChangeBlock) and item.batch.column(n).null_count)), None)
        if lost is not None:
            message = "a change has no value in this column of its key, so it is not known which row it changes."
            hint = f"Declare the key that the source uses. {whole_deletes}".rstrip()
            problem = Problem(split.table_id, message, place=split.place, column=lost, hint=hint)
            yield SplitReport(split.key, split.table_id, problem=problem)
            return
        yield item


def exchange_rows(job: ReadJob, splits: Iterable[Split]) -> Iterator[pa.RecordBatch]:
    """The read half of a job: batches of :data:`headrace.engine.exchange.EXCHANGE_SCHEMA`, each for one unit; digests come last."""
    outbox = Outbox()
    reports: list[SplitReport] = []
    counts: list[ReadCount] = []
    sent: dict[int, Counter[TableId]] = defaultdict(Counter)
    failed: dict[TableId, Problem] = {}
    with PayloadFile(job.payload_folder) as file:
        for item in read_splits(job, splits):
            if isinstance(item, SplitReport):
                reports.append(item)
            elif isinstance(item, ReadCount):
                arrives = sum(of_unit[item.table_id] for of_unit in sent.values())
                unsent = item.sent - arrives if item.table_id in failed else 0  # these rows reach no unit
                counts.append(replace(item, sent=arrives, netted=item.netted + unsent))
            else:
                number, batch = item
                part = job.parts[number]
                with contained(partial(failed.setdefault, part.table_id), part.table_id):
                    for bucket, rows in _split_by_bucket(batch, part):
                        unit = (part.first + bucket) % job.units
                        for first, piece in _pieces(rows, part, job.order):
                            payload = file.put(piece) if file.takes(piece) else to_ipc(piece)
                            sent[unit][part.table_id] += piece.num_rows
                            yield from outbox.add(unit, number, first, payload)
    last = {report.table_id: report for report in reports}
    reports += [replace(last[t], problem=last[t].problem or problem) for t, problem in failed.items()]
    tables_of = _tables_of_units(job)
    for unit in range(job.units):
        told = reports if unit == REPORTING_UNIT else [report for report in reports if report.table_id in tables_of[unit]]
        digest = ReadDigest(tuple(told), tuple(counts) if unit == REPORTING_UNIT else (), sent[unit])
        if told or digest.counts or digest.sent:
            yield from outbox.add(unit, DIGEST, 0, pickle.dumps(digest))
    yield from outbox.rest()


def _tables_of_units(job: ReadJob) -> dict[int, set[TableId]]:
    found: dict[int, set[TableId]] = defaultdict(set)
    for part in job.parts:
        for unit in part.units(job.units):
            found[unit].add(part.table_id)
    return found


def _pieces(rows: pa.RecordBatch, part: TablePart, order: LogOrder) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows in pieces for the exchange (netted ones of about 8 MiB), each with the order of its first row."""
    if part.is_log:
        yield from order.pieces(rows)
        return
    for piece in in_pieces(rows, _PAYLOAD_BYTES, rows.num_rows):
        yield 0, piece


def _split_by_bucket(batch: pa.RecordBatch, part: TablePart) -> Iterator[tuple[int, pa.RecordBatch]]:
    if part.buckets == 1:
        yield 0, batch
        return
    columns = tuple(name for name in part.spread_by if name in batch.schema.names)
    numbers = buckets(batch, columns, part.buckets, part.weighed)
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(part.buckets + 1))
    grouped = batch.take(pa.array(order))
    for bucket in range(part.buckets):
        start, end = int(ends[bucket]), int(ends[bucket + 1])
        if end > start:
            yield bucket, grouped.slice(start, end - start)
