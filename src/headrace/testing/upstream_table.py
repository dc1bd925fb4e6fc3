"""One table of the upstream model: its shape, its rows, and the effect of statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS, INTEGER_KINDS, TypeKind
from headrace.testing.ticdc_writer import RowChange

_INTEGRAL = INTEGER_KINDS | {TypeKind.BIT, TypeKind.YEAR}
_FLOATS = frozenset({TypeKind.FLOAT, TypeKind.DOUBLE})
_WITH_SIZE = frozenset(
    {TypeKind.CHAR, TypeKind.VARCHAR, TypeKind.BINARY, TypeKind.VARBINARY, TypeKind.BIT, TypeKind.DECIMAL, TypeKind.VECTOR}
)
_WITH_FRACTION = frozenset({TypeKind.TIME, TypeKind.DATETIME, TypeKind.TIMESTAMP})

Row = dict[str, object]
Key = tuple[object, ...]


@dataclass(frozen=True)
class Insert:
    """A new row. Columns that it leaves out get their default."""

    table_id: TableId
    row: Mapping[str, object]


@dataclass(frozen=True)
class Update:
    """New values for the row with this key (a whole row if the table has no key). They may change the key."""

    table_id: TableId
    key: Key
    values: Mapping[str, object]


@dataclass(frozen=True)
class Delete:
    table_id: TableId
    key: Key


Statement = Insert | Update | Delete


@dataclass
class Partitions:
    """Ranges of an integer column: names in order, each with its upper bound (``None``: MAXVALUE) and physical id."""

    column: str
    bounds: dict[str, int | None]
    ids: dict[str, int]

    def of(self, row: Mapping[str, object]) -> str:
        """The partition that holds a row. Raises ``ValueError`` if there is none."""
        value = row[self.column]
        for name, bound in self.bounds.items():
            if bound is None or value is None or (isinstance(value, int) and value < bound):
                return name
        raise ValueError(f"no partition holds {value}")


@dataclass
class Table:
    """A table with its rows."""

    schema: TableSchema
    physical_id: int
    rows: dict[Key, Row] = field(default_factory=dict)
    next_row_id: int = 1
    next_column_id: int = 1
    uniques: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The columns of the unique keys, by name of the key."""
    indexes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The columns of the other indexes, by name of the index."""
    ignores_case: bool = False
    """The collation of its texts ignores case. Trailing spaces do not count in any collation."""
    partitions: Partitions | None = None
    generating: dict[str, Callable[[Row], object]] = field(default_factory=dict)
    """Computes the generated columns of a row."""

    def key_of(self, row: Row) -> Key:
        """The handle key, or a hidden row number if there is none."""
        if self.schema.handle_key:
            return tuple(row[name] for name in self.schema.handle_key)
        self.next_row_id += 1
        return (self.next_row_id,)

    def find(self, key: Key) -> Key:
        if self.schema.handle_key:
            if key not in self.rows:
                raise KeyError(f"{self.schema.table_id} has no row {key}")
            return key
        for row_id, row in self.rows.items():
            if tuple(row.values()) == key:
                return row_id
        raise KeyError(f"{self.schema.table_id} has no row {key}")

    def apply(self, statement: Statement) -> None:
        """Runs one statement. Unique keys are checked by :meth:`check`, at the end of the transaction."""
        if isinstance(statement, Insert):
            row = self._generated(complete(self.schema, statement.row))
            self._put(self.key_of(row), row)
            return
        key = self.find(statement.key)
        old = self.rows.pop(key)
        if isinstance(statement, Update):
            row = self._generated(old | dict(statement.values))
            self._put(self.key_of(row) if self.schema.handle_key else key, row)

    def check(self) -> None:
        """Raises ``ValueError`` if two rows have equal keys under the table's collation, or if no partition holds a row."""
        for columns in (self.schema.handle_key, *self.uniques.values()):
            seen: set[Key] = set()
            for row in self.rows.values() if columns else ():
                value = tuple(map(self._compared, (row[name] for name in columns)))
                if value in seen and None not in value:
                    raise ValueError(f"{self.schema.table_id} has two rows {value}")
                seen.add(value)
        if self.partitions:
            for row in self.rows.values():
                self.partitions.of(row)

    def rekey(self) -> None:
        """Stores the rows under the keys of the new shape."""
        rows = list(self.rows.values())
        self.rows = {}
        for row in rows:
            self._put(self.key_of(row), row)

    def number_columns(self) -> None:
        """Gives new ids to the columns without one. An id is never used again."""
        numbered = []
        for column in self.schema.columns:
            new = column.column_id is None
            numbered.append(replace(column, column_id=str(self.next_column_id)) if new else column)
            self.next_column_id += new
        self.schema = replace(self.schema, columns=tuple(numbered))

    def recompute(self) -> None:
        """Orders the values of each row like the columns, and computes generated columns again."""
        names = [column.name for column in self.schema.columns]
        for row in self.rows.values():
            ordered = self._generated({name: row.get(name) for name in names})
            row.clear()
            row.update(ordered)

    def partition_id(self, row: Row) -> int | None:
        return self.partitions.ids[self.partitions.of(row)] if self.partitions else None

    def _generated(self, row: Row) -> Row:
        return row | {name: compute(row) for name, compute in self.generating.items()}

    def _compared(self, value: object) -> object:
        if not isinstance(value, str):
            return value
        return (value.casefold() if self.ignores_case else value).rstrip(" ")

    def _put(self, key: Key, row: Row) -> None:
        if key in self.rows:
            raise ValueError(f"{self.schema.table_id} has a row {key}")
        self.rows[key] = row


def net_changes(before: dict[Key, Row], after: dict[Key, Row]) -> list[RowChange]:
    """Deletes first, then the other changes. A changed key is a delete and an insert."""
    deletes = [RowChange(before=dict(row)) for key, row in before.items() if key not in after]
    upserts = [
        RowChange(None if key not in before else dict(before[key]), dict(row))
        for key, row in after.items()
        if key not in before or before[key] != row
    ]
    return deletes + upserts


def complete(schema: TableSchema, values: Mapping[str, object]) -> Row:
    unknown = values.keys() - {column.name for column in schema.columns}
    if unknown:
        raise ValueError(f"{schema.table_id} has no column {sorted(unknown)}")
    row: Row = {}
    for column in schema.columns:
        if column.name not in values and column.default is None and not column.nullable and column.generated is None:
            raise ValueError(f"{schema.table_id}.{column.name} has no default")
        row[column.name] = values[column.name] if column.name in values else default_value(column)
    return row


def default_value(column: Column) -> object:
    """The default in canonical form. A NOT NULL column without a default, added to a table, gets TiDB's zero value."""
    kind, text = column.type.kind, column.default
    if text is None and (column.nullable or column.generated is not None):
        return None
    if kind in _INTEGRAL:
        return int(text or 0)
    if kind in _FLOATS:
        return float(text or 0)
    if kind is TypeKind.DECIMAL:
        return text or f"{0:.{column.type.scale or 0}f}"
    if kind in BINARY_KINDS:
        return (text or "").encode()
    if text is None and kind not in CHARACTER_KINDS:
        raise ValueError(f"a NOT NULL column of type {kind} needs a default here")
    return text or ""


def column_definition(column: Column) -> str:
    """A column as TiDB's normalized statements define it."""
    kind, length, scale = column.type.kind, column.type.length, column.type.scale
    text = f"{quoted_name(column.name)} {kind}"
    if kind in (TypeKind.ENUM, TypeKind.SET):
        text += "(" + ",".join(literal(element) for element in column.type.elements) + ")"
    elif kind is TypeKind.DECIMAL and length is not None:
        text += f"({length},{scale or 0})"
    elif kind in _WITH_SIZE and length is not None:
        text += f"({length})"
    elif kind in _WITH_FRACTION and scale:
        text += f"({scale})"
    if column.type.unsigned and kind not in (TypeKind.BIT, TypeKind.YEAR):
        text += " UNSIGNED"
    if column.generated is not None:
        return f"{text} GENERATED ALWAYS AS({column.expression}) {column.generated}"
    if not column.nullable:
        text += " NOT NULL"
    elif kind is TypeKind.TIMESTAMP:
        text += " NULL"  # without it some servers make the first TIMESTAMP column NOT NULL
    if column.default is not None:
        bare = kind in _INTEGRAL or kind in _FLOATS or kind is TypeKind.DECIMAL
        text += f" DEFAULT {column.default if bare else '_UTF8MB4' + literal(column.default)}"
    return text


def quoted_name(name: str) -> str:
    """A name as TiDB writes it."""
    return "`" + name.replace("`", "``") + "`"


def quoted(table_id: TableId) -> str:
    return f"{quoted_name(table_id.database)}.{quoted_name(table_id.table)}"


def quoted_names(names: Iterable[str]) -> str:
    return ", ".join(map(quoted_name, names))


def literal(text: str) -> str:
    """A string literal as TiCDC restores it: only quotes are doubled, and a backslash is an ordinary character."""
    return "'" + text.replace("'", "''") + "'"
