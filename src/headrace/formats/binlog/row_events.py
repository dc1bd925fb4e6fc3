"""The rows of a message as Python values: what users of the Driver get.

| type | Python value |
| --- | --- |
| integers, YEAR, BIT | ``int`` |
| FLOAT, DOUBLE | ``float``; a FLOAT is the 32-bit value widened, so 1.1 is 1.100000023841858 |
| DECIMAL | ``decimal.Decimal`` with its scale |
| CHAR, VARCHAR, TEXT, JSON | ``str`` |
| BINARY, VARBINARY, BLOB | ``bytes`` |
| DATE, TIME, DATETIME | ``str``, MySQL's text, since zero dates and 838 hours have no Python value |
| TIMESTAMP | ``str`` in UTC with a time zone; ``LocalTimestamp`` without |
| ENUM, SET | ``str`` with a schema that has the members, else ``EnumOrdinal`` and ``SetMask`` |
| a type that Headrace does not know | what the field contains: ``int``, ``float``, ``str`` or ``bytes`` |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.formats.binlog.cell_values import ValueOptions, converter
from headrace.formats.binlog.errors import BinlogError
from headrace.formats.binlog.messages import Binlog, Cell, ColumnInfo, MutationType, TableChanges, UniqueKey
from headrace.formats.binlog.shapes import generated_columns, is_hidden
from headrace.model.table import Column, TableId, TableSchema, folded_name


@dataclass(frozen=True)
class RowEvent:
    """A change of one row. ``before`` is ``None`` for an insert, ``after`` for a delete. Hidden columns are left out."""

    commit_ts: int
    """TSO."""
    type: MutationType
    table_id: TableId
    before: Mapping[str, object] | None
    after: Mapping[str, object] | None
    unique_keys: tuple[UniqueKey, ...] = ()
    unreliable: frozenset[str] = frozenset()
    """The generated columns of an update, as far as a schema names them: Drainer sends NULL for them whatever they contain."""

    @property
    def op(self) -> str:
        """``insert``, ``update`` or ``delete``."""
        return self.type.name.lower()

    @property
    def changed(self) -> tuple[str, ...]:
        """The columns whose values differ between ``before`` and ``after``; of an insert or delete all."""
        before, after = self.before or {}, self.after or {}
        return tuple(name for name in (after or before) if name not in before or name not in after or before[name] != after[name])


_MOST_SHAPES = 10_000
SchemaOf = Callable[[TableId], TableSchema | None]
"""The shape of a table, ``None`` if it is unknown."""


class RowReader:
    """Converts messages to row events. Keeps the converters of the table shapes that it met."""

    def __init__(self, options: ValueOptions, schema_of: SchemaOf | None = None) -> None:
        self._options = options
        self._schema_of: SchemaOf = schema_of or (lambda _table_id: None)
        self._readers: dict[tuple[TableId, tuple[ColumnInfo, ...], TableSchema | None], _TableReader] = {}

    def events(self, binlog: Binlog) -> Iterator[RowEvent]:
        """The row events of a message in its order. Raises BinlogError for a value that cannot be read."""
        for changes in binlog.tables:
            yield from self._reader(changes).events(binlog.commit_ts, changes)

    def _reader(self, changes: TableChanges) -> _TableReader:
        schema = self._schema_of(changes.table_id)
        key = (changes.table_id, changes.columns, schema)
        if key not in self._readers:
            if len(self._readers) >= _MOST_SHAPES:
                self._readers.clear()
            self._readers[key] = _TableReader(changes.columns, schema, self._options)
        return self._readers[key]


class _TableReader:
    def __init__(self, columns: Sequence[ColumnInfo], schema: TableSchema | None, options: ValueOptions) -> None:
        self._convert = [
            (place, info.name, converter(info, _known(schema, info.name), options))
            for place, info in enumerate(columns)
            if not is_hidden(info.name)
        ]
        generated = generated_columns(schema) if schema is not None else frozenset()
        self._generated = frozenset(info.name for info in columns if folded_name(info.name) in generated)

    def events(self, commit_ts: int, changes: TableChanges) -> Iterator[RowEvent]:
        for mutation in changes:
            row: dict[str, object] | None = self._values(mutation.row, changes.table_id)
            old = None if mutation.old is None else self._values(mutation.old, changes.table_id)
            if mutation.type is MutationType.DELETE:
                row, old = None, row
            unreliable = self._generated if mutation.type is MutationType.UPDATE else frozenset()
            yield RowEvent(commit_ts, mutation.type, changes.table_id, old, row, changes.unique_keys, unreliable)

    def _values(self, cells: Sequence[Cell], table_id: TableId) -> dict[str, object]:
        values: dict[str, object] = {}
        for place, name, convert in self._convert:
            try:
                values[name] = convert(cells[place])
            except BinlogError as error:
                error.message = f"Table {table_id}: {error.message}"
                raise
        return values


def _known(schema: TableSchema | None, name: str) -> Column | None:
    return schema.column(name) if schema is not None and schema.has_column(name) else None
