"""The order of the columns in CSV records: the order that the table has at the record's commit ts.

TiCDC chooses the directory of a row by a checksum of the table's columns that ignores their order. So one directory may contain
records of several orders. When columns change places, TiCDC continues in an older directory of a partition. After a restart it
writes older rows into the newest directory.
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
        """Whether all records with a commit ts (TSO) from ``low`` to ``high`` have this order."""
        return self.begins <= low and high < self.ends


@dataclass(frozen=True)
class OrderHistory:
    """The successive orders of the same columns of a table; empty if there was only one.

    All directories of the table share one history. With a history for each, memory would grow with the square of the number of
    schema files.
    """

    versions: tuple[int, ...] = ()
    """The TSO at which each order begins. The first known order also applies before its TSO."""
    names: tuple[tuple[str, ...], ...] = ()
    """The column names of each order. Equal ones are the same object, so that they are pickled once."""

    @classmethod
    def of(cls, shapes: Iterable[tuple[int, tuple[str, ...]]]) -> OrderHistory:
        """``shapes`` are all versions of the table with these columns, in order, each with its column names."""
        kept: dict[tuple[str, ...], tuple[str, ...]] = {}
        found: list[tuple[int, tuple[str, ...]]] = []
        for version, names in shapes:
            if not found or found[-1][1] != names:
                found.append((version, kept.setdefault(names, names)))
        return cls(*zip(*found, strict=True)) if len(found) > 1 else cls()

    @cached_property
    def different(self) -> tuple[tuple[str, ...], ...]:
        """The distinct orders."""
        return tuple(dict.fromkeys(self.names))

    def next_after(self, version: int) -> int:
        """The TSO at which the order in force at ``version`` (TSO) ends."""
        place = bisect_right(self.versions, version)
        return self.versions[place] if place < len(self.versions) else MAX_TSO + 1


@dataclass(frozen=True)
class ColumnOrders:
    """The orders that records of one directory may have, by commit ts."""

    history: OrderHistory = OrderHistory()
    directory: int = 0
    """The version (TSO) of the directory."""
    in_doubt: bool = False
    """Whether TiCDC may have continued in the directory after columns changed places. Records without a commit ts may then have any
    order."""

    @property
    def are_several(self) -> bool:
        return bool(self.history.versions)

    def at(self, commit_ts: int) -> ColumnOrder:
        """The order of a record with this commit ts (TSO). There must be several orders."""
        versions, names = self.history.versions, self.history.names
        place = max(bisect_right(versions, commit_ts, key=self._first_behind), 1)
        begins = self._first_behind(versions[place - 1]) if place > 1 else 0
        ends = self._first_behind(versions[place]) if place < len(versions) else MAX_TSO + 1
        return ColumnOrder(names[place - 1], begins, ends)

    def _first_behind(self, version: int) -> int:
        """The first commit ts (TSO) of records after a schema change.

        A row with exactly the commit ts of the schema change belongs before it if the row is in an older directory.
        """
        return version + (version > self.directory)


ONE_ORDER = ColumnOrders()


def orders_in(directory: int, history: OrderHistory, left: int = MAX_TSO + 1) -> ColumnOrders:
    """The orders in the directory of a version (TSO). ``left`` is the version at which TiCDC switched to a newer directory."""
    if not history.versions:
        return ONE_ORDER
    return ColumnOrders(history, directory, in_doubt=history.next_after(directory) < left)
