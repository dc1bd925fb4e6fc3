"""The parts of the sink component alone: no rows are decoded, and nothing is written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Thread

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.report import Measurement, median
from benchmarks.union_set import UnionSet
from headrace.model.block import ChangeBlock, block_schema
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.replay.conflict_detector import ConflictDetector
from headrace.replay.progress_tracker import ProgressTracker
from headrace.replay.slots import touched
from headrace.replay.transactions import TransactionEvents, Transactions

Hashes = npt.NDArray[np.uint64]
_EVENTS = 10_000_000
_EVENTS_EACH = 100_000
_SINGLE_EVENTS = 1_000_000
_WORKERS = 8
_ROWS = 5
_KEYS = 10
"""A transaction has 5 rows of a table with a primary and a unique key."""
_RECENT_ROWS = 5_000
_PIECE = 2_000
_PENDING = 4 * _PIECE
RATES = (0, 1, 10, 50)
WRITE_SECONDS = 0.002
"""What a write takes where workers wait: a round trip and a commit."""
_SCHEMA = TableSchema(TableId("bench", "t"), (Column("id", ColumnType(TypeKind.BIGINT), False, True),), ("id",))


def measure_tracker(repeats: int) -> Iterator[Measurement]:
    """Ten million events, added and acknowledged in batches in random order, against one call for each event."""
    order = np.random.default_rng(1).permutation(_EVENTS_EACH)
    single = median([_cpu_seconds(_track_one_by_one) for _ in range(repeats)]) / _SINGLE_EVENTS
    tracker = ProgressTracker()
    batches = median([_cpu_seconds(partial(_track_in_batches, order)) for _ in range(repeats)]) / _EVENTS
    details = {"ns an event": batches * 1e9, "ns with a call each": single * 1e9}
    yield Measurement("tracker: batches against single calls", single / batches, "times", details=details)
    tracker.add_events(_EVENTS)
    yield Measurement("tracker: memory", tracker.nbytes * 8 / _EVENTS, "bits an event")


def _track_one_by_one() -> None:
    tracker = ProgressTracker()
    for _ in range(_SINGLE_EVENTS // 1_000):
        for acknowledge in [tracker.add_event() for _ in range(1_000)]:
            acknowledge()
        tracker.advance()


def _track_in_batches(order: npt.NDArray[np.int64]) -> None:
    tracker = ProgressTracker()
    for _ in range(_EVENTS // _EVENTS_EACH):
        events = tracker.add_events(_EVENTS_EACH)
        for part in np.split(order, 10):
            tracker.acknowledge(part + events.start)
        tracker.advance()
    if tracker.pending:
        raise RuntimeError("events are missing")


def measure_detector(count: int, repeats: int) -> Iterator[Measurement]:
    """The detector against union-set grouping, by how many of 100 rows repeat the keys of one of the last 5,000 rows.

    Both get the hashes of keys. First with 8 workers on threads that write nothing, so that a stall of union-set takes the time
    in which threads hand over; then the CPU time of everything on one thread, where a stall costs nothing; then transactions per
    second with workers whose writes take 2 ms.
    """
    for rate in RATES:
        hashes = keys_of_transactions(count, rate)
        threads: dict[str, list[float]] = {"detector": [], "union-set": []}
        alone: dict[str, list[float]] = {"detector": [], "union-set": []}
        for _ in range(repeats):
            threads["detector"].append(_with_detector(hashes, 0))
            threads["union-set"].append(_with_union_set(hashes, 0))
            alone["detector"].append(_cpu_seconds(partial(_run_detector, hashes)))
            alone["union-set"].append(_cpu_seconds(partial(_run_union_set, hashes)))
        name = f"detector, {rate} % conflicts"
        yield from _compared(name, threads, count)
        yield from _compared(f"{name}, CPU", alone, count)
        some = hashes[: count // 5]
        rates = {"detector": len(some) / _with_detector(some, WRITE_SECONDS)}
        rates["union-set"] = len(some) / _with_union_set(some, WRITE_SECONDS)
        against = rates["detector"] / rates["union-set"]
        yield Measurement(f"{name}, 2 ms a write: against union-set", against, "times", details=rates)


def _compared(name: str, seconds: Mapping[str, Sequence[float]], count: int) -> Iterator[Measurement]:
    spent = {whose: median(times) / count * 1e6 for whose, times in seconds.items()}
    details = {f"µs with {whose}": time_each for whose, time_each in spent.items()}
    yield Measurement(f"{name}: against union-set", spent["union-set"] / spent["detector"], "times", details=details)


def keys_of_transactions(count: int, rate: int) -> Hashes:
    """The hashes of the keys of each transaction (10 in a row of the array), ``rate`` percent of whose rows repeat earlier ones."""
    rng = np.random.default_rng(rate)
    rows = np.arange(count * _ROWS)
    back = np.maximum(rows - rng.integers(_ROWS, _RECENT_ROWS, len(rows)), 0)
    repeated = np.flatnonzero(rng.random(len(rows)) * 100 < rate)
    for row in repeated.tolist():  # in order: a row may repeat one that repeats another
        rows[row] = rows[back[row]]
    keys = np.stack([2 * rows, 2 * rows + 1], axis=1).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (keys ^ (keys >> np.uint64(32))).reshape(count, _KEYS) * np.uint64(0xD6E8FEB86659FD93)


def _cpu_seconds(work: Callable[[], object]) -> float:
    """The CPU time of this thread, on which all of the work is done: other load on the machine counts less."""
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


def _pieces(hashes: Hashes) -> list[tuple[Transactions, Hashes]]:
    """Transactions with their hashes, a few thousand at a time. The rows of all pieces are the same, since nothing reads them."""
    rows = _PIECE * _ROWS
    commit_ts = np.repeat(np.arange(_PIECE), _ROWS)
    arrays = [pa.array(np.zeros(rows), pa.int8()), *(pa.array(values, pa.int64()) for values in [commit_ts] * 3)]
    block = ChangeBlock(_SCHEMA.table_id, 1, _SCHEMA, pa.record_batch(arrays, schema=block_schema(_SCHEMA.columns)))
    whole = Transactions.of(block)
    return [(whole.part(0, len(piece)), piece) for piece in np.split(hashes, range(_PIECE, len(hashes), _PIECE))]


def _add(detector: ConflictDetector, transactions: Transactions, hashes: Hashes) -> None:
    owners = np.repeat(np.arange(len(hashes), dtype=np.uint64), _KEYS)
    events = TransactionEvents(transactions, lambda numbers: None)
    detector.add(events, touched(hashes.ravel(), owners))


def _run_detector(hashes: Hashes) -> None:
    detector = ConflictDetector(_WORKERS, quota=1 << 40)
    for transactions, piece in _pieces(hashes):
        _add(detector, transactions, piece)
        _execute(detector, _PENDING)
    _execute(detector, 0)


def _run_union_set(hashes: Hashes) -> None:
    union = UnionSet(_WORKERS, partial(_execute, left=0))
    for piece in np.split(hashes, range(_PIECE, len(hashes), _PIECE)):
        union.add(piece.tolist())
        _execute(union, _PENDING)
    _execute(union, 0)


def _execute(given: ConflictDetector | UnionSet, left: int) -> None:
    """Lets the workers in turn execute what they have, until so many transactions are pending."""
    while given.pending > left:
        for worker in range(_WORKERS):
            if given.take(worker, 0):
                given.acknowledge(worker)


@contextmanager
def _workers_on_threads(given: ConflictDetector | UnionSet, seconds: float) -> Iterator[None]:
    """Workers whose writes take so long. At the end all is executed."""

    def work(worker: int) -> None:
        while given.take(worker):
            time.sleep(seconds)
            given.acknowledge(worker)

    threads = [Thread(target=work, args=(worker,), daemon=True) for worker in range(_WORKERS)]
    for thread in threads:
        thread.start()
    yield
    while given.pending:
        time.sleep(0.001)
    given.close()
    for thread in threads:
        thread.join()


def _with_detector(hashes: Hashes, write_seconds: float) -> float:
    """The seconds until all is executed."""
    detector, begun = ConflictDetector(_WORKERS, quota=1 << 40), time.perf_counter()
    with _workers_on_threads(detector, write_seconds):
        for transactions, piece in _pieces(hashes):
            _add(detector, transactions, piece)
    return time.perf_counter() - begun


def _with_union_set(hashes: Hashes, write_seconds: float) -> float:
    union, begun = UnionSet(_WORKERS, UnionSet.wait_empty), time.perf_counter()
    with _workers_on_threads(union, write_seconds):
        for piece in np.split(hashes, range(_PIECE, len(hashes), _PIECE)):
            union.add(piece.tolist())
    return time.perf_counter() - begun
