"""TableSink: takes the changes of one table, gives what is resolved to an event sink, and knows how far the table is."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from functools import partial
from threading import Event, Lock

import numpy as np
import pyarrow as pa

from headrace.model.block import ChangeBlock, combined
from headrace.model.table import TableId
from headrace.replay.errors import OutOfOrderError, SinkClosedError
from headrace.replay.progress_tracker import ProgressTracker
from headrace.replay.resolved_ts import ResolvedTs
from headrace.replay.transactions import EventSink, Numbers, TransactionEvents, Transactions

_LOOKS_SECONDS = 0.1
"""How often a close looks whether it was cancelled, or the event sink failed."""


class TableSinkState(Enum):
    SINKING = "sinking"
    STOPPING = "stopping"
    STOPPED = "stopped"


class TableSink:
    """Takes the changes of one table in the order of commit ts. Rows of one commit ts are one transaction.

    It holds the only buffer on the way to the target: what is appended and not resolved. What is resolved belongs to the event
    sink, which bounds it. The table sink knows the event sink, never the other way round.

    :meth:`append_row_changed_events` and :meth:`update_resolved_ts` are for one thread. Everything else may be called from any.
    """

    def __init__(self, table_id: TableId, event_sink: EventSink) -> None:
        self._table_id = table_id
        self._event_sink = event_sink
        self._tracker = ProgressTracker()
        self._resolved_ts = ResolvedTs(0)
        self._buffer: list[Transactions] = []
        # The last transaction, whose rows may continue in the next block.
        self._open: list[pa.RecordBatch] = []
        self._open_block: ChangeBlock | None = None
        self._last_ts = 0
        self._lock = Lock()
        self._state = TableSinkState.SINKING
        self._last_synced_ts = 0

    @property
    def state(self) -> TableSinkState:
        return self._state

    @property
    def last_synced_ts(self) -> int:
        """The greatest commit ts (TSO) that was ever acknowledged. It may be ahead of the checkpoint."""
        return self._last_synced_ts

    @property
    def buffered_bytes(self) -> int:
        """The bytes of what is appended and not resolved."""
        return sum(part.nbytes for part in self._buffer) + sum(int(rows.nbytes) for rows in self._open)

    def append_row_changed_events(self, block: ChangeBlock, *, new_piece: bool = False) -> None:
        """Puts rows into the buffer. Nothing is sent. For one thread.

        The block's rows are in the order of commit ts, and behind all rows before them; its table and shape may change only between
        transactions. Rows with the commit ts of the last transaction belong to it, unless ``new_piece`` begins another piece of it.
        Raises OutOfOrderError, and SinkClosedError after :meth:`close`.
        """
        self._refuse_if_closed()
        if not block.num_rows:
            return
        transactions = Transactions.of(block)
        first = int(transactions.commit_ts[0])
        self._refuse_if_late(first)
        if self._open_block is not None and (new_piece or first != self._last_ts):
            self._end_open_transaction()
        if self._open_block is not None:
            if self._open_block.schema != block.schema:
                raise OutOfOrderError(f"The shape of table {self._table_id} changes within the transaction at commit ts {first}.")
            head = transactions.part(0, 1)
            self._open.append(head.block.batch)
            transactions = transactions.part(1, len(transactions))
        if len(transactions):
            self._end_open_transaction()
            last = len(transactions) - 1
            if last:
                self._buffer.append(transactions.part(0, last))
            self._open_block = transactions.part(last, last + 1).block
            self._open = [self._open_block.batch]
            self._last_ts = int(transactions.commit_ts[last])

    def _refuse_if_late(self, commit_ts: int) -> None:
        if commit_ts < self._last_ts:
            raise OutOfOrderError(
                f"A row of table {self._table_id} with commit ts {commit_ts} comes after one with commit ts {self._last_ts}."
            )
        if ResolvedTs(commit_ts) <= self._resolved_ts:
            raise OutOfOrderError(
                f"A row of table {self._table_id} with commit ts {commit_ts} comes after resolved ts {self._resolved_ts}."
            )

    def _end_open_transaction(self) -> None:
        if self._open_block is not None:
            block = replace(self._open_block, batch=combined(self._open))
            self._buffer.append(Transactions(block, np.array([0, block.num_rows], dtype=np.int64)))
        self._open, self._open_block = [], None

    def update_resolved_ts(self, resolved_ts: ResolvedTs) -> None:
        """Writes the events up to a resolved ts to the event sink. For one thread.

        Returns when the event sink has taken them, before they are durable: :meth:`get_checkpoint_ts` tells that. The same resolved
        ts again changes nothing. Raises OutOfOrderError if it is below the last one, SinkClosedError after :meth:`close`, and what
        ``EventSink.write_events`` raises. After SinkFailedError the table has to begin again at its checkpoint.
        """
        self._refuse_if_closed()
        if resolved_ts < self._resolved_ts:
            raise OutOfOrderError(f"The resolved ts of table {self._table_id} went back from {self._resolved_ts} to {resolved_ts}.")
        if resolved_ts == self._resolved_ts:
            return
        self._resolved_ts = resolved_ts
        parts = self._resolved_parts(resolved_ts.ts)
        writes = [(part, self._tracker.add_events(len(part)).start) for part in parts]
        # Before the writes: a sink may acknowledge while it takes the events.
        self._tracker.add_resolved_ts(resolved_ts)
        for part, first in writes:
            self._event_sink.write_events(TransactionEvents(part, partial(self._acknowledge, part, first)))

    def _resolved_parts(self, ts: int) -> list[Transactions]:
        """Takes what is resolved out of the buffer."""
        if self._open_block is not None and self._last_ts <= ts:
            self._end_open_transaction()
        resolved: list[Transactions] = []
        kept: list[Transactions] = []
        for part in self._buffer:
            count = int(np.searchsorted(part.commit_ts, ts, side="right"))
            resolved += [part.part(0, count) if count < len(part) else part] if count else []
            kept += [part.part(count, len(part))] if count < len(part) else []
        self._buffer = kept
        return resolved

    def _acknowledge(self, part: Transactions, first: int, numbers: Numbers) -> None:
        if not len(numbers):
            return
        with self._lock:
            self._last_synced_ts = max(self._last_synced_ts, int(part.commit_ts[numbers].max()))
        self._tracker.acknowledge(numbers + first)

    def get_checkpoint_ts(self) -> ResolvedTs:
        """The newest resolved ts up to which everything is acknowledged. Any thread may ask.

        ``ResolvedTs.mark`` of it is the commit ts up to which all transactions are whole in the target.
        """
        return self._tracker.advance()

    def close(self, cancelled: Event | None = None) -> bool:
        """Ends the table sink, and waits until the event sink has acknowledged what it took.

        First the checkpoint is frozen, then events are refused. What was not resolved is dropped. Returns whether all that was
        written is acknowledged: not, if the event sink failed before, or ``cancelled`` was set, which ends the wait. Any thread may
        call it, more than once, also to wait again after a cancelled wait.
        """
        self._tracker.freeze()
        with self._lock:
            if self._state is TableSinkState.SINKING:
                self._state = TableSinkState.STOPPING
        while not self._tracker.wait_acknowledged(_LOOKS_SECONDS):
            if cancelled is not None and cancelled.is_set():
                return False
            if self._event_sink.failure is not None:
                break
        self._state = TableSinkState.STOPPED
        return self._tracker.pending == 0

    def _refuse_if_closed(self) -> None:
        if self._state is not TableSinkState.SINKING:
            raise SinkClosedError(f"The table sink of {self._table_id} is closed and takes no more events.")
