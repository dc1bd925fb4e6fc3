"""Which rows of a table belong to which round, and the shape they have there. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.barriers import PlanRules
from headrace.engine.plan import plan_cut
from headrace.engine.recast import recast_rows
from headrace.engine.segments import TableShapes
from headrace.model.block import META_FIELDS, ChangeBlock
from headrace.model.cut import Cut
from headrace.model.events import (
    AddColumnEvent,
    CreateTableEvent,
    DropColumnEvent,
    RenameColumnEvent,
    RowKind,
    SchemaChange,
    SchemaChangeEvent,
    TruncateTableEvent,
)
from headrace.model.ledger import LedgerState, TableProgress
from headrace.model.offer import Offer
from headrace.model.outcome import SplitReport
from headrace.model.precision import CommitTsPrecision
from headrace.model.split import Recast, Segment, Split, Window
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.tso import tso_from_ms
from headrace.model.types import ColumnType, TypeKind

T = TableId("shop", "t")
INT = ColumnType(TypeKind.INT)
RULES = PlanRules(includes=lambda _: True)


def shape(*names: str, kind: ColumnType = INT) -> TableSchema:
    key = Column("id", INT, nullable=False, primary_key=True)
    return TableSchema(T, (key, *(Column(name, kind) for name in names)), ("id",))


def change(ts: int, schema: TableSchema, *events: SchemaChangeEvent) -> SchemaChange:
    return SchemaChange(ts, T, events, f"ALTER TABLE {T} ADD COLUMN c INT", T.database, frozenset({T}), schema=schema)


def split(version: int, schema: TableSchema, **more: int) -> Split:
    return Split(f"{version}", T, version, 0, 100, schema, **more)


def recast_of(own: TableSchema, wanted: TableSchema, *events: SchemaChangeEvent) -> Recast:
    """What becomes of rows of the shape ``own`` when these events led to the shape ``wanted``."""
    return TableShapes([split(100, own)], [change(200, wanted, *events)]).recasts(200, wanted)[100]


def planned(changes: list[SchemaChange], splits: list[Split], known: int | None = 100, **more: bool) -> Cut:
    tables = {T: TableProgress(T, known)} if known is not None else {}
    offer = Offer(10_000_000, 10_000_000, tuple(changes), tuple(splits), **more)  # type: ignore[arg-type]
    return plan_cut(LedgerState("p", tables=tables, checkpoint=known or 0), offer, RULES)


def windows(cut: Cut, version: int) -> list[tuple[int, int]]:
    found = [r.segments[T].window_of(version) for r in cut.rounds]
    return [(w.lo, w.hi) for w in found]


def test_a_round_takes_the_rows_between_two_schema_changes_whatever_their_version() -> None:
    changes = [change(200, shape(), TruncateTableEvent(T)), change(300, shape(), TruncateTableEvent(T))]
    cut = planned(changes, [split(100, shape())])
    assert [len(r.splits) for r in cut.rounds] == [1, 0, 0]
    assert windows(cut, 100) == [(100, 200), (200, 300), (300, 10_000_000)]


def test_a_row_at_a_schema_change_belongs_behind_it_where_its_version_does() -> None:
    cut = planned([change(200, shape(), TruncateTableEvent(T))], [split(100, shape()), split(200, shape())])
    assert windows(cut, 100) == [(100, 200), (200, 10_000_000)]
    assert windows(cut, 200) == [(100, 199), (199, 10_000_000)]


def test_where_only_milliseconds_are_known_the_version_decides_within_one() -> None:
    at, instant = tso_from_ms(5) + 3, tso_from_ms(5)
    cut = planned(
        [change(at, shape(), TruncateTableEvent(T))],
        [split(100, shape()), split(at, shape())],
        precision=CommitTsPrecision.MILLISECOND,
    )
    assert cut.rounds[0].segments[T].window_of(100).hi == instant
    assert cut.rounds[1].segments[T].window_of(at).lo == instant - 1


def test_what_is_older_than_a_new_table_comes_behind_its_first_schema_change() -> None:
    cut = planned([change(150, shape(), CreateTableEvent(T, shape()))], [split(150, shape())], known=None)
    assert [r.segments[T].window_of(150).lo for r in cut.rounds] == [0]
    again = planned([change(150, shape(), TruncateTableEvent(T))], [split(150, shape(), earliest=120)])
    assert [len(r.splits) for r in again.rounds] == [1, 0]
    assert windows(again, 150) == [(100, 149), (149, 10_000_000)]


def test_the_newest_shape_below_the_next_change_is_in_force() -> None:
    added = change(200, shape("a"), AddColumnEvent(T, Column("a", INT)))
    dropped = change(300, shape(), DropColumnEvent(T, "a"))
    cut = planned([added, dropped], [split(100, shape()), split(250, shape("a"))])
    assert [r.segments[T].schema.columns for r in cut.rounds] == [shape().columns, shape("a").columns, shape().columns]
    assert [sorted(r.segments[T].recasts) for r in cut.rounds] == [[250], [100], [250]]


@pytest.mark.parametrize(
    ("own", "wanted", "events", "names", "left_out", "missing"),
    [
        (shape("a"), shape("b"), [RenameColumnEvent(T, "a", "b")], [("id", "id"), ("a", "b")], (), ()),
        (shape("a"), shape(), [DropColumnEvent(T, "a")], [("id", "id")], ("a",), ()),
        (shape(), shape("a"), [AddColumnEvent(T, Column("a", INT))], [("id", "id")], (), ("a",)),
        (
            shape("a"),
            shape("a", "b"),
            [DropColumnEvent(T, "a"), AddColumnEvent(T, Column("b", INT)), AddColumnEvent(T, Column("a", INT))],
            [("id", "id")],
            ("a",),
            ("a", "b"),
        ),
        (shape("a"), shape("a", kind=ColumnType(TypeKind.VARCHAR)), [], [("id", "id")], ("a",), ("a",)),
    ],
)
def test_columns_are_followed(
    own: TableSchema,
    wanted: TableSchema,
    events: list[SchemaChangeEvent],
    names: list[tuple[str, str]],
    left_out: tuple[str, ...],
    missing: tuple[str, ...],
) -> None:
    recast = recast_of(own, wanted, *events)
    assert (list(recast.names), recast.left_out, recast.missing) == (names, left_out, missing)


@pytest.mark.parametrize(("kind", "whole", "stops"), [("INSERT", False, True), ("DELETE", False, False), ("DELETE", True, True)])
def test_a_row_without_a_value_stops_its_table_unless_its_key_is_all_that_counts(kind: str, whole: bool, stops: bool) -> None:
    own, wanted = shape(), shape("a")
    recast = recast_of(own, wanted, AddColumnEvent(T, Column("a", INT)))
    columns = [pa.array([int(RowKind[kind])], pa.int8()), *(pa.array([n], pa.int64()) for n in (310, 0, 1))]
    batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema([*META_FIELDS, pa.field("id", pa.int64())]))
    items = iter([ChangeBlock(T, 100, own, batch), SplitReport("f", T, rows=1)])
    segment = Segment(Window(), 200, wanted)
    found = list(recast_rows(items, replace(split(100, own), key="f"), recast, segment, whole=whole))
    (report,) = (item for item in found if isinstance(item, SplitReport))
    assert (report.problem is not None) == stops
    assert len(found) == (1 if stops else 2)
    if report.problem is not None:
        assert (report.problem.column, report.problem.file) == ("a", "f")
        assert "a version between 200 and 310" in report.problem.hint


def newest_shape(splits: Sequence[Split], known: Sequence[SchemaChange], below: int) -> tuple[int, TableSchema]:
    """The definition: the newest of what changes and splits tell below a commit ts, where both do that of the split."""
    told = [(c.commit_ts, 0, c.schema) for c in known if c.schema is not None and c.commit_ts < below]
    held = [(s.version, 1, s.schema) for s in splits]
    found = max((*told, *(h for h in held if h[0] < below)), key=lambda entry: entry[:2], default=None)
    version, _, schema = found if found is not None else min(held, key=lambda entry: entry[:2])
    return version, schema


def recasts(splits: Sequence[Split], known: Sequence[SchemaChange], version: int, schema: TableSchema) -> dict[int, Recast]:
    """The definition: the columns of each version are led through all changes after it up to the shape in force."""
    others = {s.version: s.schema for s in splits if columns_of(s.schema) != columns_of(schema)}
    return {v: led(own, schema, [c for c in known if v < c.commit_ts <= version]) for v, own in others.items()}


def led(own: TableSchema, wanted: TableSchema, changes: Sequence[SchemaChange]) -> Recast:
    names = {column.name.lower(): column.name for column in own.columns}
    for event in (event for c in changes for event in c.events):
        if isinstance(event, RenameColumnEvent) and event.old_name.lower() in names:
            names[event.new_name.lower()] = names.pop(event.old_name.lower())
        elif isinstance(event, DropColumnEvent):
            names.pop(event.column_name.lower(), None)
        elif isinstance(event, AddColumnEvent):
            names.pop(event.column.name.lower(), None)
    sources = {c.name: names.get(c.name.lower()) for c in wanted.columns}
    kept = {name: source for name, source in sources.items() if source and own.column(source).type == wanted.column(name).type}
    left_out = tuple(c.name for c in own.columns if c.name not in kept.values())
    return Recast(tuple((source, name) for name, source in kept.items()), left_out, tuple(n for n in sources if n not in kept))


def columns_of(schema: TableSchema) -> list[tuple[str, ColumnType]]:
    return [(column.name, column.type) for column in schema.columns[1:]]


NAMES = st.sampled_from(["a", "b", "B", "c"])
TEXT = ColumnType(TypeKind.VARCHAR)
SHAPES = st.builds(
    lambda names, kind: shape(*sorted(names), kind=kind),
    st.sets(NAMES).filter(lambda n: not {"b", "B"} <= n),
    st.sampled_from([INT, TEXT]),
)
EVENTS = st.one_of(
    st.builds(RenameColumnEvent, st.just(T), NAMES, NAMES),
    st.builds(DropColumnEvent, st.just(T), NAMES),
    st.builds(AddColumnEvent, st.just(T), st.builds(Column, NAMES, st.just(INT))),
    st.just(TruncateTableEvent(T)),
)
TIMES = st.integers(1, 12)
CHANGES = st.builds(
    lambda ts, after, events: replace(change(ts, shape(), *events), schema=after), TIMES, st.none() | SHAPES, st.lists(EVENTS)
)
KNOWN = st.lists(CHANGES, max_size=12).map(lambda changes: sorted(changes, key=lambda c: c.commit_ts))
VERSIONS = st.dictionaries(TIMES, SHAPES, min_size=1)


@pytest.mark.long
@settings(deadline=None)
@given(VERSIONS, KNOWN, st.lists(st.integers(0, 14), min_size=1, max_size=4), st.data())
def test_of_any_history_the_shapes_are_those_of_the_definition(
    versions: dict[int, TableSchema], known: list[SchemaChange], bounds: list[int], data: st.DataObject
) -> None:
    numbers = data.draw(st.lists(st.sampled_from(sorted(versions)), min_size=1))
    splits = [split(version, versions[version]) for version in numbers]
    shapes = TableShapes(splits, known)
    for below in bounds:
        version, schema = newest_shape(splits, known, below)
        assert shapes.in_force(below) == (version, schema)
        wanted = recasts(splits, known, version, schema)
        read = data.draw(st.sets(TIMES))
        segment = Segment(Window(), version, schema, recasts=shapes.recasts(version, schema))
        assert segment.reading(read).recasts == {number: recast for number, recast in wanted.items() if number in read}
        assert segment.recasts == wanted
