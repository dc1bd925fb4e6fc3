"""The order in which the columns of CSV records come: the one that the table has at the record's commit ts.

TiCDC finds the directory of a row by a checksum of the table's columns in which their order does not count, so one directory may
hold records of several orders: it goes on in an older directory of a partition when columns change places, and after a
restart it writes older rows into the newest one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass

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
class ColumnOrders:
    """The orders that records of one directory may have, by commit ts; ``steps`` is empty where there is only one.

    ``in_doubt``: TiCDC may have gone on in the directory after columns changed places, so that records without a commit ts may
    have any of them.
    """

    steps: tuple[ColumnOrder, ...] = ()
    in_doubt: bool = False

    def at(self, commit_ts: int) -> ColumnOrder:
        """The order of a record. Before the first one that is known, that one counts."""
        place = bisect_right(self.steps, commit_ts, key=lambda step: step.begins)
        return self.steps[max(place, 1) - 1]


ONE_ORDER = ColumnOrders()


def orders_in(
    directory: int, shapes: Iterable[tuple[int, tuple[str, ...]]], in_path: Collection[int], beginnings: Iterable[int]
) -> ColumnOrders:
    """The orders in the directory of a version.

    ``shapes`` are all versions of the table with the same columns as this one, in order, each with its columns' names; ``in_path``
    are those of them with a directory beside this one, where TiCDC writes to the newest. At its ``beginnings`` (CREATE,
    TRUNCATE) a table gets other directories.
    """
    found: list[tuple[int, tuple[str, ...]]] = []
    own: tuple[str, ...] = ()
    for version, names in shapes:
        if version <= directory:
            own = names
        if not found or found[-1][1] != names:
            found.append((version, names))
    if len(found) < 2:
        return ONE_ORDER
    # A row at the very commit ts of a schema change belongs before it when it lies in an older directory.
    begins = [0, *(version + (version > directory) for version, _ in found[1:])]
    ends = [*begins[1:], MAX_TSO + 1]
    left = min((v for v in (*in_path, *beginnings) if v > directory), default=MAX_TSO + 1)
    return ColumnOrders(
        tuple(ColumnOrder(names, *bounds) for (_, names), bounds in zip(found, zip(begins, ends, strict=True), strict=True)),
        in_doubt=any(directory < version < left and names != own for version, names in found),
    )
