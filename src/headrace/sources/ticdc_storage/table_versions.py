"""The versions of tables: which shape the data files of a directory have, and in which order the columns of their records come."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.formats.csv import CsvOptions
from headrace.formats.csv_orders import ONE_ORDER, ColumnOrders, OrderHistory, orders_in
from headrace.model.table import TableId, TableSchema
from headrace.model.tso import MAX_TSO


@dataclass(frozen=True)
class TableVersion:
    """One version of a table: the shape that the data files of its directory have.

    Rows with ``stale_from <= commit_ts < version`` in the directory are replays of rows that an older directory holds, or
    are older than the table (TiCDC writes replayed rows to the newest version with the same checksum). Equal values mean
    that no row is stale. ``orders`` are those that the columns of its CSV records may have.
    """

    table_id: TableId
    version: int
    schema: TableSchema
    stale_from: int
    origin: str
    statement: str = ""
    orders: ColumnOrders = ONE_ORDER

    def csv(self, options: CsvOptions) -> CsvOptions:
        """How the CSV files of its directory are read."""
        return replace(options, orders=self.orders) if self.orders.are_several else options


_Columns = tuple[TableId, frozenset[str]]
"""A table with the names of its columns, in whatever order."""


def with_bounds(paths: Mapping[str, Mapping[int, TableVersion]]) -> dict[str, dict[int, TableVersion]]:
    """The versions of each path, each with the bound below which its rows are stale, and the orders of its columns."""
    orders = _Orders(paths)
    found: dict[str, dict[int, TableVersion]] = {}
    for path, versions in paths.items():
        oldest, columns = min(versions), {number: _columns(version) for number, version in versions.items()}
        # Where TiCDC goes on with rows of the same columns: it writes to the newest directory of a path.
        beside: dict[int, int] = {}
        newer: dict[_Columns, int] = {}
        for number in sorted(versions, reverse=True):
            beside[number] = newer.get(columns[number], MAX_TSO + 1)
            newer[columns[number]] = number
        found[path] = {
            number: replace(
                version,
                stale_from=min(version.stale_from, oldest),
                orders=orders.of(version, columns[number], beside[number]),
            )
            for number, version in sorted(versions.items())
        }
    return found


class _Orders:
    """The orders that the columns of all tables had."""

    def __init__(self, paths: Mapping[str, Mapping[int, TableVersion]]) -> None:
        shapes: dict[_Columns, dict[int, tuple[str, ...]]] = defaultdict(dict)
        beginnings: dict[TableId, set[int]] = defaultdict(set)
        for version in (version for versions in paths.values() for version in versions.values()):
            shapes[_columns(version)][version.version] = _names(version)
            if version.stale_from == 0:
                beginnings[version.table_id].add(version.version)
        self._histories = {columns: OrderHistory.of(sorted(known.items())) for columns, known in shapes.items()}
        # At its beginnings (CREATE, TRUNCATE) a table gets other directories.
        self._beginnings = {table_id: sorted(known) for table_id, known in beginnings.items()}

    def of(self, version: TableVersion, columns: _Columns, beside: int) -> ColumnOrders:
        """Those in the directory of a version; ``beside`` is the next one (TSO) of its path with the same columns."""
        beginnings = self._beginnings.get(version.table_id, [])
        place = bisect_right(beginnings, version.version)
        left = min(beside, beginnings[place]) if place < len(beginnings) else beside
        return orders_in(version.version, self._histories[columns], left)


def _columns(version: TableVersion) -> _Columns:
    return version.table_id, frozenset(_names(version))


def _names(version: TableVersion) -> tuple[str, ...]:
    return tuple(column.name for column in version.schema.columns)
