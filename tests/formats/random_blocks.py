"""Random tables of all column types, and random changes of their rows, as blocks and as rows for the writer of test data."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from hypothesis import strategies as st

from headrace.model.block import block_schema
from headrace.model.events import RowKind
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import BINARY_KINDS, INTEGER_KINDS, ColumnType, TypeKind

Row = dict[str, object]
TEXT = st.text(
    st.one_of(
        st.sampled_from("\"'\\,\r\n\tN[*]|+{}:<>&\x00\x08\x0c\x1f\x7f\u0080\u0085\u2028\u2029é€😀"), st.characters(codec="utf-8")
    ),
    max_size=10,
) | st.sampled_from(["", "\\N", "NULL", "null"])
MEMBERS = ("red", "it's", "blue dark", "数", "1", '"', "<b>")
_INTEGERS = {TypeKind.TINYINT: 8, TypeKind.SMALLINT: 16, TypeKind.MEDIUMINT: 24, TypeKind.INT: 32, TypeKind.BIGINT: 64}
_MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2037, 12, 31))
TYPES: tuple[ColumnType, ...] = (
    *(ColumnType(kind, unsigned) for kind in sorted(INTEGER_KINDS) for unsigned in (False, True)),
    *(
        ColumnType(kind)
        for kind in TypeKind
        if kind not in INTEGER_KINDS | {TypeKind.ENUM, TypeKind.SET, TypeKind.DECIMAL, TypeKind.VARCHAR, TypeKind.VARBINARY}
    ),
    ColumnType(TypeKind.VARCHAR, length=32),
    ColumnType(TypeKind.VARBINARY, length=16),
    ColumnType(TypeKind.DECIMAL, length=20, scale=4),
    ColumnType(TypeKind.DECIMAL, unsigned=True),
    ColumnType(TypeKind.DOUBLE, unsigned=True, length=10, scale=3),
    ColumnType(TypeKind.DATETIME, scale=3),
    ColumnType(TypeKind.ENUM, elements=MEMBERS),
    ColumnType(TypeKind.SET, elements=MEMBERS),
)


def values(column_type: ColumnType) -> st.SearchStrategy[object]:
    """Canonical values of a type."""
    kind = column_type.kind
    if kind in _INTEGERS:
        bits = _INTEGERS[kind]
        return st.integers(0, 2**bits - 1) if column_type.unsigned else st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if kind in BINARY_KINDS:
        return st.binary(max_size=8)
    special: dict[TypeKind, st.SearchStrategy[object]] = {
        TypeKind.BIT: st.integers(0, 2**64 - 1),
        TypeKind.YEAR: st.just(0) | st.integers(1901, 2155),
        TypeKind.FLOAT: st.floats(width=32, allow_nan=False, allow_infinity=False)
        | st.sampled_from([0.0, 1.0, 123456.0, 1e6, 0.0001, 1e-5]).map(_single),
        TypeKind.DOUBLE: st.floats(allow_nan=False, allow_infinity=False)
        | st.sampled_from([0.0, 1.0, 999999.0, 1e6, 1e15, 1e16, 1e21, 1e22, 0.0001, 1e-5, 5e-324]),
        TypeKind.DECIMAL: st.decimals(allow_nan=False, allow_infinity=False, places=4).map(lambda number: format(number, "f")),
        TypeKind.ENUM: st.sampled_from(("", *MEMBERS)),
        TypeKind.SET: st.sets(st.sampled_from(MEMBERS)).map(lambda s: ",".join(m for m in MEMBERS if m in s)),
        TypeKind.DATE: st.sampled_from(["2024-06-05", "0000-00-00", "2024-00-00"]),
        TypeKind.TIME: st.sampled_from(["-838:59:59", "00:00:00.000001", "12:00:00"]),
        TypeKind.DATETIME: st.sampled_from(["0000-00-00 00:00:00", "9999-12-31 23:59:59.999999", "2024-06-05 09:30:23.694"]),
        TypeKind.TIMESTAMP: st.just("0000-00-00 00:00:00")
        | st.tuples(_MOMENTS, st.sampled_from(["", ".5", ".000001"])).map(_moment),
    }
    return special.get(kind, TEXT)


def _single(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _moment(drawn: tuple[object, str]) -> str:
    return str(drawn[0])[:19] + drawn[1]


@dataclass(frozen=True)
class Change:
    """One change of a row, as an insert, an update or a deletion."""

    commit_ts: int
    before: Row | None
    after: Row | None


@st.composite
def tables(draw: st.DrawFn) -> TableSchema:
    """A table with an integer key and up to six columns of any type."""
    types = draw(st.lists(st.sampled_from(TYPES), max_size=6))
    names = draw(st.lists(st.sampled_from(["a", "列", 'q"', "b\\", "<x>", "c,d", "e f"]), min_size=6, max_size=6, unique=True))
    named = zip(names, types, strict=False)
    key = Column("id", ColumnType(TypeKind.INT, length=11), nullable=False, primary_key=True)
    columns = (key, *(Column(name, column_type) for name, column_type in named))
    name, database = draw(st.sampled_from([("t", "test"), ("q\"'t", "数<"), ("a,b", "c\\d")]))
    return TableSchema(TableId(database, name), columns, ("id",))


@st.composite
def changes_of_rows(draw: st.DrawFn, schema: TableSchema, *, moves: bool = False) -> list[Change]:
    """Changes in commit order; updates keep the key unless ``moves``."""

    def row() -> Row:
        return {c.name: draw(values(c.type) if not c.nullable else st.none() | values(c.type)) for c in schema.columns}

    found = []
    for commit_ts in sorted(draw(st.lists(st.integers(1, 2**62), min_size=1, max_size=6))):
        kind = draw(st.sampled_from("IUUD"))
        before, after = row() if kind != "I" else None, row() if kind != "D" else None
        if before is not None and after is not None:
            kept = {"id"} if not moves else set()
            kept |= draw(st.sets(st.sampled_from([c.name for c in schema.columns])))
            # The writer of test data takes 0 and -0 as equal; the encoder writes both.
            kept |= {name for name, value in after.items() if value == before[name]}
            after |= {name: before[name] for name in kept}
        found.append(Change(commit_ts, before, after))
    return found


def block(schema: TableSchema, changes: Iterable[Change], *, old_rows: bool = True) -> pa.RecordBatch:
    """The changes in the layout of ``model.block``; ``old_rows`` false leaves the old rows of updates out."""
    rows: list[tuple[RowKind, int, Row]] = []
    for change in changes:
        if change.before is not None and change.after is not None:
            if old_rows:
                rows.append((RowKind.UPDATE_BEFORE, change.commit_ts, change.before))
            rows.append((RowKind.UPDATE_AFTER, change.commit_ts, change.after))
        elif change.after is not None:
            rows.append((RowKind.INSERT, change.commit_ts, change.after))
        elif change.before is not None:
            rows.append((RowKind.DELETE, change.commit_ts, change.before))
    meta: Sequence[Sequence[object]] = [[int(k) for k, _, _ in rows], [ts for _, ts, _ in rows], range(len(rows))]
    arrow = block_schema(schema.row_columns)
    data = [*meta, *([row[c.name] for _, _, row in rows] for c in schema.row_columns)]
    return pa.RecordBatch.from_arrays([pa.array(list(v), field.type) for v, field in zip(data, arrow, strict=True)], schema=arrow)


def same_rows(found: Iterable[pa.RecordBatch], wanted: pa.RecordBatch, *, signed_zeros: bool = True) -> bool:
    """Whether the batches together have the same kinds, commit ts and values as a batch, floats to the last bit.

    ``signed_zeros`` false: 0 and -0 are the same.
    """

    def comparable(value: object) -> object:
        return (value if signed_zeros else value + 0.0).hex() if isinstance(value, float) else value

    def plain(batch: pa.RecordBatch) -> list[list[object]]:
        columns = [column for name, column in zip(batch.schema.names, batch.columns, strict=True) if name != "headrace$seq"]
        return [[comparable(value) for value in column.to_pylist()] for column in columns]

    table = pa.Table.from_batches(list(found))
    (batch,) = table.combine_chunks().to_batches()
    return plain(batch) == plain(wanted) and batch.schema == wanted.schema
