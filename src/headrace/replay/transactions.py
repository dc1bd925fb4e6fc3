"""Transactions of one table as parts of a block, so that what is done with each is done for all of them by column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.model.block import COMMIT_TS, ChangeBlock
from headrace.model.table import TableId
from headrace.replay.errors import OutOfOrderError

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Transaction:
    """One transaction: a table, its commit ts (TSO), and the rows in their order, in the layout of ``model.block``.

    A transaction of the source that changes several tables is one transaction for each of them. A piece of a large transaction is
    one, too (:class:`headrace.replay.resolved_ts.ResolvedTs`).
    """

    table_id: TableId
    commit_ts: int
    rows: pa.RecordBatch


@dataclass(frozen=True)
class Transactions:
    """Consecutive transactions of one table, in the order of commit ts. They are numbered from 0.

    ``block`` has their rows; transaction ``n`` is the rows from ``starts[n]`` to before ``starts[n + 1]`` (int64, one entry more
    than there are transactions, the first one 0). Immutable, so any thread may read it.
    """

    block: ChangeBlock
    starts: Numbers

    @classmethod
    def of(cls, block: ChangeBlock) -> Transactions:
        """The transactions of a block whose rows are in the order of commit ts. Raises OutOfOrderError if they are not."""
        commit_ts = block.batch.column(COMMIT_TS).to_numpy()
        steps = np.diff(commit_ts)
        if (steps < 0).any():
            row = int((steps < 0).argmax())
            before, ts = commit_ts[row : row + 2]
            raise OutOfOrderError(f"A row of table {block.table_id} with commit ts {ts} comes after one with commit ts {before}.")
        begins = np.flatnonzero(steps) + 1
        return cls(block, np.concatenate(([0], begins, [len(commit_ts)] if len(commit_ts) else [])).astype(np.int64))

    @classmethod
    def of_lengths(cls, block: ChangeBlock, lengths: Numbers) -> Transactions:
        """The transactions of a block, each with so many of its rows. They may be in another order than that of commit ts."""
        return cls(block, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, number: int) -> Transaction:
        start, stop = int(self.starts[number]), int(self.starts[number + 1])
        rows = self.block.batch.slice(start, stop - start)
        return Transaction(self.block.table_id, int(self.commit_ts[number]), rows)

    @property
    def table_id(self) -> TableId:
        return self.block.table_id

    @cached_property
    def commit_ts(self) -> Numbers:
        """The commit ts (TSO) of each transaction."""
        return np.asarray(self.block.batch.column(COMMIT_TS).to_numpy()[self.starts[:-1]], dtype=np.int64)

    @cached_property
    def nbytes(self) -> int:
        """The bytes of the rows in memory."""
        return int(self.block.batch.nbytes)

    def part(self, start: int, stop: int) -> Transactions:
        """The transactions from ``start`` to before ``stop``, without a copy of their rows."""
        first, end = int(self.starts[start]), int(self.starts[stop])
        block = replace(self.block, batch=self.block.batch.slice(first, end - first))
        return Transactions(block, self.starts[start : stop + 1] - first)

    def chosen(self, numbers: Numbers) -> Transactions:
        """These transactions, in the order of ``numbers``."""
        return Transactions.of_lengths(replace(self.block, batch=self.rows_of(numbers)), np.diff(self.starts)[numbers])

    def rows_of(self, numbers: Numbers) -> pa.RecordBatch:
        """The rows of these transactions, one transaction after the other in the order of ``numbers``."""
        starts, lengths = self.starts[:-1][numbers], np.diff(self.starts)[numbers]
        if len(numbers) and (numbers == np.arange(numbers[0], numbers[0] + len(numbers))).all():
            return self.block.batch.slice(int(starts[0]), int(lengths.sum()))
        before = np.cumsum(lengths) - lengths
        return self.block.batch.take(pa.array(np.arange(lengths.sum()) + np.repeat(starts - before, lengths)))


@dataclass(frozen=True)
class TransactionEvents:
    """Transactions on their way into an event sink.

    ``acknowledge`` takes the numbers of transactions that are durable in the target (int64, any order) and is the callback of each
    of them. It may be called from any thread, within ``write_events`` too, and again for a transaction that was acknowledged.
    """

    transactions: Transactions
    acknowledge: Callable[[Numbers], None]

    def part(self, start: int, stop: int) -> TransactionEvents:
        """The events from ``start`` to before ``stop``, numbered from 0."""
        return TransactionEvents(self.transactions.part(start, stop), lambda numbers: self.acknowledge(numbers + start))


class EventSink(Protocol):
    """Where table sinks write their events. It knows events and their callbacks, and neither table sinks nor progress."""

    def write_events(self, events: TransactionEvents) -> None:
        """Takes events of one table, which come behind all that it took of the table before. Any thread may call it.

        Returns when the events are taken, which may be long before they are durable; waits while too much is pending. Raises
        SinkClosedError after :meth:`close`, and SinkFailedError if the sink failed: what is not acknowledged may then be durable or
        not.
        """
        ...

    @property
    def failure(self) -> BaseException | None:
        """Why nothing is acknowledged any more; ``None`` while the sink works. Any thread may ask."""
        ...

    def close(self) -> None:
        """Ends the sink and what it runs. What it has not begun is not executed. Any thread may call it, more than once."""
        ...
