"""TiCDC's CSV: the dialect options of a changefeed, and the meaning of each field of a record.

Format: TiCDC documentation, "TiCDC CSV Protocol". A record is ``operation, table, schema [, commit-ts] [, is-update]
[, handle-key], columns…``; an optional header names the columns that rows carry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from headrace.formats.base import SchemaMismatchError, told_tso
from headrace.formats.csv_orders import ONE_ORDER, ColumnOrder, ColumnOrders
from headrace.formats.values import WRITTEN, Written, check_time_zone
from headrace.model.table import Column, TableId, TableSchema, folded_name
from headrace.model.tso import LOGICAL_BITS

HEADER_OPERATION = b"ticdc-meta$operation"
_COMMIT_TS = "ticdc-meta$commit-ts"
_IS_UPDATE = "ticdc-meta$is-update"
_NAME_FIELDS = 3
_BOOLEANS = (b"true", b"false")
# 2015 to 2100, as TSO.
_LIKELY_TSO = range(1_420_070_400_000 << LOGICAL_BITS, 4_102_444_800_000 << LOGICAL_BITS)
_LINE_BREAKS = ("\r\n", "\n", "\r")
_MOST_ORDERS = 64
_MEND = (
    "Set output-field-header = true in the changefeed, or give the changefeed's file: it holds the column selectors and "
    "include-commit-ts."
)


@dataclass(frozen=True)
class CsvOptions:
    """Settings of CSV files that the files do not record. The defaults are TiCDC's. Raises ValueError for values that cannot work.

    ``quote`` empty is TiCDC's escape mode. ``include_commit_ts`` and ``output_old_value`` are found out per file when
    ``None``: from the header, else by counting fields. ``header`` false keeps a header from naming the columns (header lines
    are never rows). ``time_zone`` is that of TIMESTAMP text: TiCDC's ``--tz``. ``column_selected(table_id, column_name)`` is the
    changefeed's column selector. ``orders`` are the column orders of the directory that is read, according to the schema files.
    """

    delimiter: str = ","
    quote: str = '"'
    null: str = "\\N"
    terminator: str = "\r\n"
    include_commit_ts: bool | None = None
    output_old_value: bool | None = None
    output_handle_key: bool = False
    header: bool | None = None
    binary_encoding: str = "base64"
    time_zone: str = "UTC"
    column_selected: Callable[[TableId, str], bool] | None = None
    orders: ColumnOrders = ONE_ORDER

    def __post_init__(self) -> None:
        if not self.terminator:
            raise ValueError("CSV with an empty terminator cannot be parsed")
        if not self.delimiter or any(mark in self.delimiter for mark in "\r\n"):
            raise ValueError("the CSV delimiter must be one to three characters other than line breaks")
        if len(self.quote.encode()) > 1 or self.quote in ("\r", "\n") or (self.quote and self.quote in self.delimiter):
            raise ValueError("the CSV quote must be empty or one character that is neither a line break nor in the delimiter")
        if not self.quote and not set(self.terminator) <= set("\r\n"):
            raise ValueError("CSV without quotes needs a terminator of CR and LF, because text may hold any other")
        if not self.quote and _is_lost_among_escapes(self.delimiter, self.null):
            raise ValueError(
                f"CSV without quotes cannot be parsed with the delimiter {self.delimiter}, because different texts look the same "
                "after escaping; a changefeed with another delimiter or with quotes can be read"
            )
        if self.binary_encoding not in ("base64", "hex"):
            raise ValueError(f"the binary encoding must be base64 or hex, not {self.binary_encoding!r}")
        check_time_zone(self.time_zone)

    @property
    def is_columnar(self) -> bool:
        """Whether Arrow's own CSV reader supports this dialect."""
        return len(self.quote) == 1 and len(self.delimiter.encode()) == 1 and self.terminator in _LINE_BREAKS

    def columns(self, schema: TableSchema) -> tuple[Column, ...]:
        """The columns that rows of this table carry, in order."""
        selected = self.column_selected
        if selected is None:
            return schema.row_columns
        return tuple(column for column in schema.row_columns if selected(schema.table_id, column.name))


@dataclass(frozen=True)
class CsvLayout:
    """Field numbers (from 0) of a record. ``columns`` pairs each with its column, in the order of the schema.

    ``orders`` are the column orders that other records may have. ``order`` is that of this layout, ``None`` while it is known only
    from a header.
    """

    field_count: int
    commit_ts: int | None
    is_update: int | None
    columns: tuple[tuple[int, Column], ...]
    orders: ColumnOrders = ONE_ORDER
    order: ColumnOrder | None = None

    def holds(self, low: int, high: int) -> bool:
        """Whether this is the layout of all records with a commit ts (TSO) from ``low`` to ``high``."""
        return not self.orders.are_several or (self.order is not None and self.order.holds(low, high))

    def at(self, commit_ts: int) -> CsvLayout:
        """The layout of a record with this commit ts (TSO)."""
        if self.holds(commit_ts, commit_ts):
            return self
        found = self.ordered(self.orders.at(commit_ts))
        if self.order is None and found.columns != self.columns:
            # No schema file has the order of the header, so schema files cannot show when it changes either.
            return replace(self, orders=ONE_ORDER)
        return found

    def ordered(self, order: ColumnOrder) -> CsvLayout:
        """The same fields with the columns in another order."""
        ranks = {name: rank for rank, name in enumerate(order.names)}
        names = sorted((column.name for _, column in self.columns), key=ranks.__getitem__)
        places = dict(zip(names, sorted(place for place, _ in self.columns), strict=True))
        return replace(self, columns=tuple((places[column.name], column) for _, column in self.columns), order=order)

    @property
    def used_fields(self) -> tuple[int, ...]:
        """The fields that are used for a row of a block, in order."""
        meta = [place for place in (0, self.commit_ts, self.is_update) if place is not None]
        return tuple(sorted([*meta, *(place for place, _ in self.columns)]))

    def column(self, field: int) -> Column:
        """The column in a field. Raises KeyError."""
        return self._by_field[field]

    @cached_property
    def _by_field(self) -> Mapping[int, Column]:
        return dict(self.columns)

    def expectation(self, field: int) -> str:
        """The expected content of the field, for a message."""
        if field == 0:
            return "one of I, U and D"
        if field == self.commit_ts:
            return "a commit ts"
        if field == self.is_update:
            return "true or false"
        return f"a value of the type {self.column(field).type}"

    def name(self, field: int) -> str:
        """The name of a field in a message."""
        for number, column in self.columns:
            if number == field:
                return column.name
        return {0: "operation", self.commit_ts: "commit-ts", self.is_update: "is-update"}.get(field, f"field {field + 1}")


def layout_from_header(names: list[str], schema: TableSchema, options: CsvOptions) -> CsvLayout:
    """The layout according to a header line. Raises SchemaMismatchError for a column that the schema file does not list."""
    position = _NAME_FIELDS
    places: list[int | None] = []
    for meta, wanted in ((_COMMIT_TS, options.include_commit_ts), (_IS_UPDATE, options.output_old_value)):
        # Only the position is decisive, because a table may have a column of that name.
        present = names[position : position + 1] == [meta] and not (wanted is False and schema.has_column(meta))
        places.append(position if present else None)
        position += present
    order = schema.places
    # The header has no name for the handle-key field.
    shift = 1 if options.output_handle_key else 0
    found: dict[int, int] = {}
    for number, name in enumerate(names[position:], position):
        if folded_name(name) not in order:
            raise SchemaMismatchError(
                f"The header names column {name}, which the schema file of {schema.table_id} does not list.", column=name
            )
        found[order[folded_name(name)]] = number + shift
    columns = tuple((found[number], schema.columns[number]) for number in sorted(found))
    orders = ONE_ORDER if places[0] is None else options.orders
    return CsvLayout(len(names) + shift, places[0], places[1], columns, orders)


def known_layout(fields: list[bytes], schema: TableSchema, options: CsvOptions) -> CsvLayout:
    """As :func:`layout_from_record`, but also raises SchemaMismatchError if the order of the columns cannot be known."""
    layout = layout_from_record(fields, schema, options)
    if layout.commit_ts is None and options.orders.in_doubt:
        raise SchemaMismatchError(
            f"The columns of {schema.table_id} changed places, and TiCDC may have gone on in its former directory. The records "
            "have no commit ts, so the order of the values in a record is not known.",
            line=1,
            hint="Set include-commit-ts = true or output-field-header = true in the changefeed, and copy the table anew.",
        )
    return layout


def layout_from_record(fields: list[bytes], schema: TableSchema, options: CsvOptions) -> CsvLayout:
    """The layout according to the number of fields of a record (raw, with quotes). Raises SchemaMismatchError if none matches.

    If the record's commit ts determines the order of the columns, this is the layout of records of that time.
    """
    columns = options.columns(schema)
    shift = 1 if options.output_handle_key else 0
    for commit_ts, is_update in product(_choices(options.include_commit_ts), _choices(options.output_old_value)):
        start = _NAME_FIELDS + commit_ts + is_update + shift
        if start + len(columns) != len(fields):
            continue
        layout = CsvLayout(
            field_count=len(fields),
            commit_ts=_NAME_FIELDS if commit_ts else None,
            is_update=_NAME_FIELDS + commit_ts if is_update else None,
            columns=tuple((start + number, column) for number, column in enumerate(columns)),
        )
        told = options.include_commit_ts is not None and options.output_old_value is not None
        for ordered in _by_order(fields, layout, options.orders):
            if told or _plausible(fields, ordered, options):
                return ordered
    raise SchemaMismatchError(
        f"The record has {len(fields)} fields, which does not fit the {len(columns)} columns of {schema.table_id}; rows leave out "
        "virtual generated columns and those that a selector drops, and may have a commit ts that the settings do not mention.",
        line=1,
        hint=_MEND,
    )


def _by_order(fields: list[bytes], layout: CsvLayout, orders: ColumnOrders) -> Iterator[CsvLayout]:
    """The layout with the columns in each order that the record may have."""
    if layout.commit_ts is not None and orders.are_several:
        text = fields[layout.commit_ts]
        yield replace(layout, orders=orders).ordered(orders.at(told_tso(text) or 0))
    elif orders.in_doubt:
        # The record is refused in any case, so a few orders are enough to show that it is a record of the table.
        yield from (layout.ordered(ColumnOrder(names)) for names in orders.history.different[:_MOST_ORDERS])
    else:
        yield layout


def _is_lost_among_escapes(delimiter: str, null: str) -> bool:
    """Whether escaped fields cannot be separated with this delimiter.

    Only whole delimiters in texts are escaped. If a delimiter ends with the characters with which it begins, a text that ends with
    these characters is ambiguous together with the delimiter after it. A backslash would turn ``n`` and ``r`` into line breaks, and
    texts that look like the null string into NULL.
    """
    overlaps = any(delimiter[:length] == delimiter[-length:] for length in range(1, len(delimiter)))
    escaped = "".join(f"\\{mark}" for mark in delimiter)
    return overlaps or escaped == null or any(mark in delimiter for mark in "nr\\")


def _choices(option: bool | None) -> tuple[bool, ...]:
    return (True, False) if option is None else (option,)


def _plausible(fields: list[bytes], layout: CsvLayout, options: CsvOptions) -> bool:
    """Whether the fields look like the layout. The number of fields alone may match by chance if a virtual column is unknown."""
    if layout.commit_ts is not None and not fields[layout.commit_ts].isdigit():
        return False
    if layout.is_update is not None and fields[layout.is_update] not in _BOOLEANS:
        return False
    if layout.columns and layout.commit_ts is None and options.include_commit_ts is None:
        # A commit ts would be taken for the first column, and every other value for that of the next column.
        first = told_tso(fields[layout.columns[0][0]])
        if first is not None and first in _LIKELY_TSO:  # a search for a value that is not a number would go through the whole range
            return False
    if not options.quote:
        return True
    quote, null = options.quote.encode(), options.null.encode()
    for number, column in layout.columns:
        raw = fields[number]
        text = WRITTEN[column.type.kind] is not Written.NUMBER
        if raw != null and (raw.startswith(quote) != text or raw in _BOOLEANS):
            return False
    return True
