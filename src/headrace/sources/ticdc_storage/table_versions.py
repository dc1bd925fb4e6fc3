"""The versions of tables: the shape of the data files in a directory, and the order of the columns in their records."""

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
    """One version of a table: the shape of the data files in its directory.

    Rows with ``stale_from <= commit_ts < version`` in the directory are replays of rows in an older directory, or are older than
    the table (TiCDC writes replayed rows to the newest version with the same checksum). Equal values mean that no row is stale.
    ``orders`` are the possible column orders of its CSV records.
    """

    table_id: TableId
    version: int
    schema: TableSchema
    stale_from: int
    origin: str
    statement: str = ""
    orders: ColumnOrders = ONE_ORDER

    def csv(self, options: CsvOptions) -> CsvOptions:
        """The options for reading the CSV files of its directory."""
        return replace(options, orders=self.orders) if self.orders.are_several else options


_Columns = tuple[TableId, frozenset[str]]
"""A table with the names of its columns, in any order."""


def with_bounds(paths: Mapping[str, Mapping[int, TableVersion]]) -> dict[str, dict[int, TableVersion]]:
    """The versions of each path, each with the bound below which its rows are stale, and with its column orders."""
    orders = _Orders(paths)
    found: dict[str, dict[int, TableVersion]] = {}
    for path, versions in paths.items():
        oldest, columns = min(versions), {number: _columns(version) for number, version in versions.items()}
        # Where TiCDC continues with rows of the same columns: it writes to the newest directory of a path.
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
    """The column orders that all tables have had."""

    def __init__(self, paths: Mapping[str, Mapping[int, TableVersion]]) -> None:
        shapes: dict[_Columns, dict[int, tuple[str, ...]]] = defaultdict(dict)
        beginnings: dict[TableId, set[int]] = defaultdict(set)
        for version in (version for versions in paths.values() for version in versions.values()):
            shapes[_columns(version)][version.version] = _names(version)
            if version.stale_from == 0:
                beginnings[version.table_id].add(version.version)
        self._histories = {columns: OrderHistory.of(sorted(known.items())) for columns, known in shapes.items()}
        # When it begins (CREATE, TRUNCATE), a table gets other directories.
        self._beginnings = {table_id: sorted(known) for table_id, known in beginnings.items()}

    def of(self, version: TableVersion, columns: _Columns, beside: int) -> ColumnOrders:
        """The orders in the directory of a version. ``beside`` is the next version (TSO) of its path with the same columns."""
        beginnings = self._beginnings.get(version.table_id, [])
        place = bisect_right(beginnings, version.version)
        left = min(beside, beginnings[place]) if place < len(beginnings) else beside
        return orders_in(version.version, self._histories[columns], left)


def _columns(version: TableVersion) -> _Columns:
    return version.table_id, frozenset(_names(version))


def _names(version: TableVersion) -> tuple[str, ...]:
    return tuple(column.name for column in version.schema.columns)
