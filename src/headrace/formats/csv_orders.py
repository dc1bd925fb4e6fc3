"""The order in which the columns of CSV records come: the one that the table has at the record's commit ts.

TiCDC finds the directory of a row by a checksum of the table's columns in which their order does not count, so one directory may
hold records of several orders: it goes on in an older directory of a partition when columns change places, and after a
restart it writes older rows into the newest one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from headrace.model.tso import MAX_TSO


@dataclass(frozen=True)
class ColumnOrder:
    """The names of a table's columns, in order, for records with ``begins <= commit_ts < ends`` (TSO)."""

    names: tuple[str, ...]
    begins: int = 0
    ends: int = MAX_TSO + 1

    def holds(self, low: int, high: int) -> bool:
        """Whether all records from the one commit ts (TSO) to the other have it."""
        return self.begins <= low and high < self.ends


@dataclass(frozen=True)
class OrderHistory:
    """The orders that the same columns of a table had, one after another; empty where there was only one.

    All directories of the table share it: a history of each would cost memory by the square of the number of schema files.
    """

    versions: tuple[int, ...] = ()
    """Where each order begins (TSO). Before the first one that is known, that one counts."""
    names: tuple[tuple[str, ...], ...] = ()
    """The columns' names of each; equal ones are one object, so that they pickle once."""

    @classmethod
    def of(cls, shapes: Iterable[tuple[int, tuple[str, ...]]]) -> OrderHistory:
        """``shapes`` are all versions of the table with these columns, in order, each with the names."""
        kept: dict[tuple[str, ...], tuple[str, ...]] = {}
        found: list[tuple[int, tuple[str, ...]]] = []
        for version, names in shapes:
            if not found or found[-1][1] != names:
                found.append((version, kept.setdefault(names, names)))
        return cls(*zip(*found, strict=True)) if len(found) > 1 else cls()

    @cached_property
    def different(self) -> tuple[tuple[str, ...], ...]:
        """The orders, each once."""
        return tuple(dict.fromkeys(self.names))

    def next_after(self, version: int) -> int:
        """Where the order that is in force at a version (TSO) ends."""
        place = bisect_right(self.versions, version)
        return self.versions[place] if place < len(self.versions) else MAX_TSO + 1


@dataclass(frozen=True)
class ColumnOrders:
    """The orders that records of one directory may have, by commit ts."""

    history: OrderHistory = OrderHistory()
    directory: int = 0
    """The version (TSO) of the directory."""
    in_doubt: bool = False
    """TiCDC may have gone on in the directory after columns changed places, so that records without a commit ts may have any."""

    @property
    def are_several(self) -> bool:
        return bool(self.history.versions)

    def at(self, commit_ts: int) -> ColumnOrder:
        """The order of a record; there must be several."""
        versions, names = self.history.versions, self.history.names
        place = max(bisect_right(versions, commit_ts, key=self._first_behind), 1)
        begins = self._first_behind(versions[place - 1]) if place > 1 else 0
        ends = self._first_behind(versions[place]) if place < len(versions) else MAX_TSO + 1
        return ColumnOrder(names[place - 1], begins, ends)

    def _first_behind(self, version: int) -> int:
        """The first commit ts (TSO) of records that a schema change counts for.

        A row at its very commit ts belongs before it when it lies in an older directory.
        """
        return version + (version > self.directory)


ONE_ORDER = ColumnOrders()


def orders_in(directory: int, history: OrderHistory, left: int = MAX_TSO + 1) -> ColumnOrders:
    """The orders in the directory of a version (TSO), which TiCDC ``left`` for a newer one at that version."""
    if not history.versions:
        return ONE_ORDER
    return ColumnOrders(history, directory, in_doubt=history.next_after(directory) < left)
