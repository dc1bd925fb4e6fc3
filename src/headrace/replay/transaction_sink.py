"""TransactionSink: the event sink of transactions. A conflict detector, and a thread with a writer for each of its workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event, Thread
from typing import Protocol

import structlog

from headrace.errors import HeadraceError, TransientError
from headrace.model.block import ChangeBlock
from headrace.replay.conflict_detector import Assigned, ConflictDetector
from headrace.replay.conflict_keys import ConflictKeys
from headrace.replay.slots import MOST_TRANSACTIONS
from headrace.replay.transactions import TransactionEvents

_PARTS_OF_QUOTA = 8
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
_log = structlog.get_logger(__name__)


class TransactionWriter(Protocol):
    """Executes transactions in the target, on a connection of its own. Used by one thread."""

    def write(self, assigned: Sequence[Assigned]) -> None:
        """Executes the transactions in order and returns when all of them are durable.

        After an error the writer is closed, and another one gets the same transactions again, in the same order, first of all: so a
        writer finds out which of them the former one has committed, and executes only the others. Raises TransientError if another
        writer may succeed (a lost connection), and any other error if none can.
        """
        ...

    def close(self) -> None:
        """Closes the connection. What is not committed is rolled back."""
        ...


class TransactionSink:
    """An ``EventSink`` (``replay.transactions``). Every method may be called from any thread.

    ``open_writer`` makes the writer of a worker (numbered from 0), on that worker's thread; ``keys_of`` gives the conflict keys of
    a block's table, on the thread that writes events. A writer that fails for a passing reason is replaced, and its unacknowledged
    transactions run again. After ``most_failures`` in a row without an acknowledgement between them, or another error, the sink has
    failed: nothing more is executed.
    """

    def __init__(
        self,
        open_writer: Callable[[int], TransactionWriter],
        keys_of: Callable[[ChangeBlock], ConflictKeys],
        *,
        workers: int,
        quota: int,
        most_rows: int = 256,
        most_failures: int = 8,
    ) -> None:
        """``quota`` (bytes) bounds what is taken and not durable, ``most_rows`` what a writer gets at a time."""
        self._open_writer = open_writer
        self._keys_of = keys_of
        self._quota = quota
        self._most_failures = most_failures
        self._detector = ConflictDetector(workers, quota=quota, most_rows=most_rows)
        self._closing = Event()
        self._threads = [Thread(target=self._work, args=(n,), name=f"replay-{n}", daemon=True) for n in range(workers)]
        for thread in self._threads:
            thread.start()

    def write_events(self, events: TransactionEvents) -> None:
        """See ``EventSink.write_events``. Waits while the quota is used up."""
        keys = self._keys_of(events.transactions.block)
        for start, stop in self._parts(events):
            part = events.part(start, stop)
            self._detector.add(part, keys.touched(part.transactions))

    def _parts(self, events: TransactionEvents) -> list[tuple[int, int]]:
        """Cuts events into parts of an eighth of the quota, since the memory of a part is free only when all of it is executed."""
        starts = events.transactions.starts
        rows = int(starts[-1])
        most_bytes = max(1, self._quota // _PARTS_OF_QUOTA)
        rows_each = max(1, rows * most_bytes // max(1, events.transactions.nbytes))
        parts, start = [], 0
        while start < len(starts) - 1:
            stop = int(starts.searchsorted(starts[start] + rows_each, side="right")) - 1
            stop = min(max(stop, start + 1), start + MOST_TRANSACTIONS)
            parts.append((start, stop))
            start = stop
        return parts

    @property
    def failure(self) -> BaseException | None:
        return self._detector.failure

    @property
    def pending_bytes(self) -> int:
        """The bytes of what is taken and not durable."""
        return self._detector.pending_bytes

    def close(self) -> None:
        """Ends the workers when they have executed what they took. Close table sinks first, to wait for all that they wrote."""
        self._closing.set()
        self._detector.close()
        for thread in self._threads:
            thread.join()

    def _work(self, worker: int) -> None:
        try:
            self._execute(worker)
        except BaseException as error:  # noqa: BLE001 -- ``failure`` for the thread of the table sink, which would wait for ever
            self._detector.fail(error)

    def _execute(self, worker: int) -> None:
        writer: TransactionWriter | None = None
        failures = 0
        try:
            while (assigned := self._detector.take(worker)) is not None:
                try:
                    writer = writer or self._open_writer(worker)
                    writer.write(assigned)
                except TransientError as error:
                    failures += 1
                    if failures >= self._most_failures:
                        raise
                    _log.warning("a writer of transactions is replaced", worker=worker, failures=failures, reason=str(error))
                    _close(writer)
                    writer = None
                    self._detector.give_back(worker)
                    self._closing.wait(min(_FIRST_PAUSE_SECONDS * 2 ** (failures - 1), _LONGEST_PAUSE_SECONDS))
                else:
                    self._detector.acknowledge(worker)
                    failures = 0
        finally:
            _close(writer)


def _close(writer: TransactionWriter | None) -> None:
    if writer is not None:
        with suppress(HeadraceError, OSError):
            writer.close()
