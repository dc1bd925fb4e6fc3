"""Rows in DuckDB: the writer runs in this process, behind a pickle round trip, as a Spark task would run it."""

from __future__ import annotations

import pickle
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from headrace.errors import TransientError
from headrace.model.block import block_schema
from headrace.model.events import CreateTableEvent, RowKind, SchemaChange
from headrace.model.outcome import Problem, SplitReport
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind, arrow_type
from headrace.places.work_place import WorkLease, WorkPlace, open_work
from headrace.scratch import MARKER
from headrace.sinks.base import LedgerUpdate, RowsRefused, TableChange, UnitWriter, WriterContext, WriteReport
from headrace.sinks.duckdb import loader, open_sink, spool
from headrace.sinks.duckdb.sink import DuckDbSink
from servers import S3Server

pytestmark = pytest.mark.long  # each test opens a dozen database files

T = TableId("shop", "orders")


def column(name: str, kind: TypeKind, *, key: bool = False, **more: object) -> Column:
    return Column(name, ColumnType(kind, **more), nullable=not key, primary_key=key)  # type: ignore[arg-type]


def schema(*columns: Column, table_id: TableId = T) -> TableSchema:
    return TableSchema(table_id, columns, tuple(c.name for c in columns if c.primary_key))


PLAIN = schema(column("id", TypeKind.INT, key=True), column("v", TypeKind.VARCHAR))
Row = dict[str, object]


def rows_of(shape: TableSchema, rows: list[Row], *, names: tuple[str, ...] | None = None) -> pa.Table:
    columns = [c for c in shape.columns if names is None or c.name in names]
    return pa.table([pa.array([row[c.name] for row in rows], arrow_type(c.type)) for c in columns], names=[c.name for c in columns])


def change(
    shape: TableSchema,
    upserts: list[Row] = (),  # type: ignore[assignment]
    deletes: list[Row] = (),  # type: ignore[assignment]
    ordered: list[tuple[RowKind, Row]] = (),  # type: ignore[assignment]
    version: int = 1,
) -> TableChange:
    layout = block_schema(shape.columns)
    values = [[int(kind), 1, place, *row.values()] for place, (kind, row) in enumerate(ordered)]
    block = pa.Table.from_arrays([pa.array([v[i] for v in values], field.type) for i, field in enumerate(layout)], schema=layout)
    keys = rows_of(shape, list(deletes), names=shape.handle_key or None)
    return TableChange(shape.table_id, version, shape, keys, rows_of(shape, list(upserts)), block)


@dataclass
class InProcessRound:
    """Each of ``units`` is what one write task gets; ``repeats`` runs the first one twice, as after a lost executor."""

    units: list[list[TableChange]]
    splits: tuple[SplitReport, ...] = ()
    repeats: int = 0
    work: WorkLease = field(default_factory=WorkLease)

    def work_place(self) -> WorkPlace:
        return self.work.place()

    def write_in_tasks(self, writer: UnitWriter) -> WriteReport:
        outcomes = []
        for slot, unit in enumerate([*self.units[:1] * self.repeats, *self.units]):
            copy = pickle.loads(pickle.dumps(writer))
            copy.open(WriterContext("p", 1, 0, slot))
            written = pickle.loads(pickle.dumps(copy.write(unit, None)))
            copy.close()
            if slot >= self.repeats:
                outcomes.extend(written)
        return WriteReport(self.splits, tuple(outcomes))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.duckdb"


@pytest.fixture
def sink(path: Path) -> Iterator[DuckDbSink]:
    with open_sink(f"duckdb://{path}") as opened:
        opened.ledger.acquire("p", "file:///source", "", 0)
        yield opened


def create(sink: DuckDbSink, *shapes: TableSchema) -> None:
    for shape in shapes:
        event = CreateTableEvent(shape.table_id, shape)
        changed = frozenset({shape.table_id})
        sink.metadata_applier.apply_schema_change(
            SchemaChange(1, shape.table_id, (event,), "", shape.table_id.database, changed, schema=shape)
        )


def write(sink: DuckDbSink, *units: list[TableChange]) -> dict[TableId, Problem]:
    report = sink.event_sink.write(InProcessRound(list(units)))
    return report.problems()


def content(path: Path, table: str = "shop.orders", order: str = "1") -> list[tuple[object, ...]]:
    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"ATTACH '{path}' AS t (READ_ONLY)")
    try:
        return connection.execute(f"FROM t.{table} ORDER BY {order}").fetchall()
    finally:
        connection.close()


def test_upserts_replace_rows_and_deletes_remove_them(sink: DuckDbSink, path: Path) -> None:
    create(sink, PLAIN)
    write(sink, [change(PLAIN, [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "c"}])])
    write(sink, [change(PLAIN, [{"id": 2, "v": "B"}, {"id": 4, "v": "d"}], deletes=[{"id": 1}])])
    assert content(path) == [(2, "B"), (3, "c"), (4, "d")]


def test_writing_a_round_again_changes_nothing(sink: DuckDbSink, path: Path) -> None:
    create(sink, PLAIN)
    unit = [change(PLAIN, [{"id": 1, "v": "a"}], deletes=[{"id": 2}])]
    for _ in range(2):
        write(sink, unit)
    assert content(path) == [(1, "a")]


def test_files_of_a_repeated_task_are_not_loaded_twice(sink: DuckDbSink, path: Path) -> None:
    create(sink, PLAIN)
    sink.event_sink.write(InProcessRound([[change(PLAIN, [{"id": 1, "v": "a"}])]], repeats=1))
    assert content(path) == [(1, "a")]


def test_a_cut_is_seen_only_when_its_checkpoint_is_written(sink: DuckDbSink, path: Path) -> None:
    create(sink, PLAIN)
    sink.begin_cut()
    write(sink, [change(PLAIN, [{"id": 1, "v": "a"}])])
    sink.ledger.update(LedgerUpdate(attempted=7))
    sink.abandon_cut()
    assert content(path) == []
    sink.begin_cut()
    write(sink, [change(PLAIN, [{"id": 1, "v": "a"}])])
    sink.ledger.update(LedgerUpdate(checkpoint=7))
    assert content(path) == [(1, "a")]
    state = sink.ledger.peek("p")
    assert state is not None
    assert (state.checkpoint, state.attempted) == (7, 0)


def test_a_load_that_is_interrupted_fails_for_now_and_blames_no_table(sink: DuckDbSink, path: Path) -> None:
    create(sink, PLAIN)
    sink.begin_cut()
    ended = threading.Event()

    def interrupt() -> None:
        while not ended.wait(0.002):
            sink.interrupt()

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    try:
        with pytest.raises(TransientError, match="Interrupted"):
            write(sink, [change(PLAIN, [{"id": n, "v": "a"} for n in range(200_000)])])
    finally:
        ended.set()
        interrupting.join()
    sink.abandon_cut()
    assert content(path) == []


def test_versions_of_a_table_are_loaded_in_order(sink: DuckDbSink, path: Path) -> None:
    create(sink, PLAIN)
    older, newer = change(PLAIN, [{"id": 1, "v": "old"}], version=9), change(PLAIN, [{"id": 1, "v": "new"}], version=10)
    write(sink, [older, newer])
    assert content(path) == [(1, "new")]


def test_of_keys_that_look_equal_elsewhere_each_keeps_its_own_last_state(sink: DuckDbSink, path: Path) -> None:
    shape = schema(column("k", TypeKind.VARCHAR, key=True), column("v", TypeKind.INT))
    create(sink, shape)
    write(sink, [change(shape, [{"k": "A", "v": 1}, {"k": "b", "v": 1}])])
    ordered = [
        (RowKind.UPDATE_BEFORE, {"k": "A", "v": 1}),
        (RowKind.UPDATE_AFTER, {"k": "a", "v": 2}),
        (RowKind.DELETE, {"k": "a", "v": 2}),
        (RowKind.INSERT, {"k": "B", "v": 3}),
    ]
    write(sink, [change(shape, ordered=ordered)])
    assert content(path) == [("B", 3), ("b", 1)]


def test_every_type_arrives_as_itself(sink: DuckDbSink, path: Path) -> None:
    cases: list[tuple[Column, object, object]] = [
        (column("id", TypeKind.BIGINT, key=True, unsigned=True), 2**64 - 1, 2**64 - 1),
        (column("ti", TypeKind.TINYINT), -128, -128),
        (column("mu", TypeKind.MEDIUMINT, unsigned=True), 16777215, 16777215),
        (column("b", TypeKind.BIT, length=64), 2**64 - 1, 2**64 - 1),
        (column("y", TypeKind.YEAR), 2155, 2155),
        (column("f", TypeKind.FLOAT), 0.5, 0.5),
        (
            column("d", TypeKind.DECIMAL, length=38, scale=3),
            "-12345678901234567890123456789012345.678",
            Decimal("-12345678901234567890123456789012345.678"),
        ),
        (column("c", TypeKind.CHAR), "é\\N", "é\\N"),
        (column("bin", TypeKind.VARBINARY), b"\x00\xff", b"\x00\xff"),
        (column("day", TypeKind.DATE), "1000-01-01", date(1000, 1, 1)),
        (
            column("span", TypeKind.TIME, scale=6),
            "-838:59:58.000001",
            -timedelta(hours=838, minutes=59, seconds=58, microseconds=1),
        ),
        (column("dt", TypeKind.DATETIME, scale=6), "9999-12-31 23:59:59.999999", datetime(9999, 12, 31, 23, 59, 59, 999999)),
        (
            column("ts", TypeKind.TIMESTAMP, scale=3),
            "2024-01-01 10:11:12.123",
            datetime(2024, 1, 1, 10, 11, 12, 123000, tzinfo=UTC),
        ),
        (column("e", TypeKind.ENUM), "it's", "it's"),
        (column("j", TypeKind.JSON), '{"a": [1, null]}', '{"a": [1, null]}'),
        (column("vec", TypeKind.VECTOR), "[1,2.5]", "[1,2.5]"),
        (column("n", TypeKind.JSON), None, None),
    ]
    shape = schema(*(c for c, _, _ in cases))
    create(sink, shape)
    assert write(sink, [change(shape, [{c.name: value for c, value, _ in cases}])]) == {}
    (row,) = content(path)
    assert row == tuple(expected for _, _, expected in cases)


def test_a_value_that_does_not_fit_stops_its_table_and_no_other(sink: DuckDbSink, path: Path) -> None:
    other = schema(column("id", TypeKind.INT, key=True), column("d", TypeKind.DATE), table_id=TableId("shop", "days"))
    create(sink, PLAIN, other)
    good = change(other, [{"id": 1, "d": "2024-01-01"}])
    bad = change(other, [{"id": 2, "d": "2024-01-02"}, {"id": 3, "d": "2024-00-00"}])
    problems = write(sink, [change(PLAIN, [{"id": 1, "v": "a"}]), good], [bad])
    assert problems[other.table_id].sentence() == (
        "table shop.days, row id=3, column d, value '2024-00-00': DuckDB cannot hold this value of type DATE."
        " Set zero-dates=null in the sink's URI to write such dates as NULL."
    )
    assert content(path) == [(1, "a")]
    assert content(path, "shop.days") == []


def test_dates_that_do_not_exist_become_null_on_request(path: Path) -> None:
    shape = schema(column("id", TypeKind.INT, key=True), column("d", TypeKind.DATETIME))
    with open_sink(f"duckdb://{path}?zero-dates=null") as sink:
        create(sink, shape)
        report = sink.event_sink.write(InProcessRound([[change(shape, [{"id": 1, "d": "0000-00-00 00:00:00"}])]]))
        assert "written as NULL" in report.outcomes[0].notices[0].message
    assert content(path) == [(1, None)]


def test_a_long_decimal_is_refused_or_held_as_text(path: Path, tmp_path: Path) -> None:
    shape = schema(column("id", TypeKind.INT, key=True), column("d", TypeKind.DECIMAL, length=65, scale=30))
    with open_sink(f"duckdb://{path}?unsupported=text") as sink:
        create(sink, shape)
        write(sink, [change(shape, [{"id": 1, "d": "1." + "3" * 30}])])
    assert content(path) == [(1, "1." + "3" * 30)]


def test_a_table_dropped_by_hand_is_a_problem_and_not_the_end_of_the_cut(sink: DuckDbSink, path: Path) -> None:
    create(sink, PLAIN)
    gone = schema(*PLAIN.columns, table_id=TableId("shop", "gone"))
    problems = write(sink, [change(gone, [{"id": 1, "v": "a"}]), change(PLAIN, [{"id": 1, "v": "a"}])])
    assert "not in the DuckDB file" in problems[gone.table_id].message
    assert content(path) == [(1, "a")]


@pytest.mark.parametrize(("by_hand", "wrong_column"), [("DROP COLUMN v", "v"), ("ALTER COLUMN v TYPE INTEGER", "v")])
def test_a_column_changed_by_hand_is_a_problem_that_names_it(sink: DuckDbSink, path: Path, by_hand: str, wrong_column: str) -> None:
    create(sink, PLAIN)
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS other")
        connection.execute(f"ALTER TABLE shop.shop.orders {by_hand}")
    problems = write(sink, [change(PLAIN, [{"id": 1, "v": "text"}])])
    assert problems[T].column == wrong_column


def test_a_keyless_table_is_a_bag(sink: DuckDbSink, path: Path) -> None:
    shape = schema(column("a", TypeKind.INT), column("b", TypeKind.VARCHAR))
    create(sink, shape)
    write(sink, [change(shape, [{"a": 1, "b": None}, {"a": 1, "b": None}, {"a": 1, "b": None}, {"a": 2, "b": "x"}])])
    write(sink, [change(shape, [{"a": 3, "b": "y"}], deletes=[{"a": 1, "b": None}, {"a": 1, "b": None}, {"a": 2, "b": "x"}])])
    assert content(path) == [(1, None), (3, "y")]


def test_a_bag_that_holds_fewer_rows_than_the_source_deleted_is_refused(sink: DuckDbSink, path: Path) -> None:
    """A deletion without effect would go unnoticed for ever. The names of columns are none of the statement's own."""
    shape = schema(column("many", TypeKind.INT), column("number", TypeKind.VARCHAR))
    create(sink, shape)
    write(sink, [change(shape, [{"many": 1, "number": None}, {"many": 2, "number": "x"}])])
    gone = [{"many": 1, "number": None}, {"many": 1, "number": None}, {"many": 2, "number": "y"}]
    with pytest.raises(RowsRefused) as refused:
        write(sink, [change(shape, deletes=gone)])
    assert "2 rows that the source deleted are not in the target" in refused.value.problem.message
    assert refused.value.problem.value in ("many=1, number=None", "many=2, number=y")
    assert content(path) == [(1, None), (2, "x")]
    write(sink, [change(shape, deletes=[{"many": 1, "number": None}])])
    assert content(path) == [(2, "x")]


@pytest.mark.parametrize("name", ["rowid", "kept", "gone", "ROWID"])
def test_a_bag_loses_no_other_row_whatever_its_columns_are_called(sink: DuckDbSink, path: Path, name: str) -> None:
    """DuckDB's own ``rowid`` gives way to a column of that name."""
    shape = schema(column(name, TypeKind.INT), column("w", TypeKind.INT))
    create(sink, shape)
    write(sink, [change(shape, [{name: 1, "w": w} for w in (10, 10, 10, 20, 30)])])
    write(sink, [change(shape, deletes=[{name: 1, "w": 10}, {name: 1, "w": 20}])])
    assert content(path, order="2") == [(1, 10), (1, 10), (1, 30)]


def test_rows_that_stay_in_a_bag_keep_what_the_source_does_not_tell(sink: DuckDbSink, path: Path) -> None:
    """Columns that were added by hand, and those that DuckDB computes."""
    shape = schema(column("a", TypeKind.INT))
    create(sink, shape)
    write(sink, [change(shape, [{"a": 1}, {"a": 1}, {"a": 2}])])
    with duckdb.connect(":memory:") as connection:
        connection.execute(f"ATTACH '{path}' AS t")
        connection.execute("CREATE TABLE t.shop.made (a INTEGER, note VARCHAR, b INTEGER GENERATED ALWAYS AS (a + 1))")
        connection.execute("INSERT INTO t.shop.made SELECT a, 'mine' FROM t.shop.orders")
        connection.execute("DROP TABLE t.shop.orders")
        connection.execute("ALTER TABLE t.shop.made RENAME TO orders")
    write(sink, [change(shape, deletes=[{"a": 1}])])
    assert content(path) == [(1, "mine", 2), (2, "mine", 3)]


@pytest.mark.long
def test_random_deletions_from_a_bag_are_carried_out_in_full_or_refused(sink: DuckDbSink, path: Path) -> None:
    shape = schema(column("a", TypeKind.INT), column("b", TypeKind.VARCHAR))
    create(sink, shape)
    chance, expected = Random(19), Counter[tuple[object, ...]]()
    values = [(a, b) for a in (1, None) for b in ("x", "X")]
    for _ in range(60):
        deletes = Counter(chance.choices(values, k=chance.randint(0, 2)))
        inserts = Counter(row for row in chance.choices(values, k=3) if row not in deletes)
        upserts, gone = ([dict(zip("ab", row, strict=True)) for row in rows.elements()] for rows in (inserts, deletes))
        missing = (deletes - expected).total()
        if missing:
            with pytest.raises(RowsRefused, match=f"^.*{missing} row"):
                write(sink, [change(shape, upserts, gone)])
        else:
            write(sink, [change(shape, upserts, gone)])
            expected = expected - deletes + inserts
        assert Counter(content(path)) == expected


def test_the_spool_is_empty_afterwards(sink: DuckDbSink, path: Path, tmp_path: Path) -> None:
    with open_sink(f"duckdb://{tmp_path}/other.duckdb?spool={tmp_path}/spool") as other:
        create(other, PLAIN)
        write(other, [change(PLAIN, [{"id": 1, "v": "a"}])])
        assert {path.name for path in (tmp_path / "spool").glob("*/*")} == {MARKER}
    assert not list((tmp_path / "spool").glob("*"))


def test_without_a_folder_of_its_own_rows_go_through_the_runs_work_place(sink: DuckDbSink, path: Path, tmp_path: Path) -> None:
    with open_work(str(tmp_path / "work")) as work:
        create(sink, PLAIN)
        sink.event_sink.write(InProcessRound([[change(PLAIN, [{"id": 1, "v": "a"}])]], work=work))
        assert [made.name.startswith("headrace-work-run-") for made in (tmp_path / "work").iterdir()] == [True]
        assert work.place().keys() == []
    assert content(path, str(PLAIN.table_id)) == [(1, "a")]


@pytest.mark.parametrize("length", [0, 0.5, 0.999])
def test_a_file_of_rows_that_is_not_whole_has_the_cut_written_again(
    sink: DuckDbSink, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: float
) -> None:
    saved = spool.SpoolWriter._save

    def torn(writer: spool.SpoolWriter, *given: Any) -> str:
        key = saved(writer, *given)
        whole = writer.work.read(key).to_pybytes()
        writer.work.write(key, whole[: int(len(whole) * length)])
        return key

    create(sink, PLAIN)
    monkeypatch.setattr(spool.SpoolWriter, "_save", torn)
    with pytest.raises(TransientError, match="A file of rows in the work place is not whole"):
        write(sink, [change(PLAIN, [{"id": 1, "v": "a"}])])
    monkeypatch.setattr(spool.SpoolWriter, "_save", saved)
    write(sink, [change(PLAIN, [{"id": 1, "v": "a"}])])
    assert content(path) == [(1, "a")]


@pytest.mark.server
def test_rows_go_through_a_store_where_no_folder_is_shared(sink: DuckDbSink, path: Path, s3: S3Server) -> None:
    with open_work(s3.uri(s3.make_bucket(), "work")) as work:
        create(sink, PLAIN)
        sink.event_sink.write(InProcessRound([[change(PLAIN, [{"id": 1, "v": "a"}], [{"id": 2}])]], work=work))
        assert work.place().keys() == []
    assert content(path, str(PLAIN.table_id)) == [(1, "a")]


OTHER = schema(column("id", TypeKind.INT, key=True), column("v", TypeKind.VARCHAR), table_id=TableId("shop", "items"))


@pytest.mark.parametrize(
    "error", [KeyError("a bug"), MemoryError(), duckdb.BinderException("odd"), duckdb.InternalException("odd")]
)
@pytest.mark.parametrize("first", [PLAIN, OTHER], ids=["first", "last"])
def test_what_nobody_foresaw_while_rows_are_converted_stops_their_table(
    sink: DuckDbSink, path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, first: TableSchema
) -> None:
    def failing(rows: pa.Table, shape: TableSchema, *given: Any) -> pa.Table:
        if shape.table_id == T:
            raise error
        return convert(rows, shape, *given)

    convert = spool.convert
    monkeypatch.setattr(spool, "convert", failing)
    create(sink, PLAIN, OTHER)
    shapes = (PLAIN, OTHER) if first is PLAIN else (OTHER, PLAIN)
    problems = write(sink, [change(shape, [{"id": 1, "v": "a"}]) for shape in shapes])
    assert problems.keys() == {T}
    assert content(path, "shop.items") == [(1, "a")]


@pytest.mark.parametrize("error", [KeyError("a bug"), MemoryError(), pa.ArrowInvalid("odd"), duckdb.BinderException("odd")])
@pytest.mark.parametrize("step", ["_read", "_mismatch", "_apply"])
def test_what_nobody_foresaw_while_a_table_is_loaded_refuses_its_rows(
    sink: DuckDbSink, path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, step: str
) -> None:
    create(sink, PLAIN)

    def failing(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(loader, step, failing)
        with pytest.raises(RowsRefused) as refused:
            write(sink, [change(PLAIN, [{"id": 1, "v": "a"}])])
    assert refused.value.problem.table_id == T
    write(sink, [change(PLAIN, [{"id": 1, "v": "a"}])])
    assert content(path) == [(1, "a")]


@pytest.mark.parametrize("error", [duckdb.IOException("disk full"), duckdb.InterruptException("stop"), TransientError("gone")])
def test_what_is_about_no_table_is_tried_again(sink: DuckDbSink, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    create(sink, PLAIN)

    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(loader, "_mismatch", failing)
    with pytest.raises(TransientError):
        write(sink, [change(PLAIN, [{"id": 1, "v": "a"}])])
