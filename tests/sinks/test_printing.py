"""print:// prints every change once, as JSON lines in commit order."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from headrace.errors import DefinitionError, TransientError
from headrace.model.block import block_schema
from headrace.model.events import DropTableEvent, RowKind, SchemaChange
from headrace.model.outcome import WriteOutcome
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.places.work_place import WorkPlace, open_work
from headrace.sinks.base import ChangeDemand, DataSink, TableChange, UnitWriter, WriterContext, WriteReport
from headrace.sinks.printing import open_sink
from headrace.sinks.printing import sink as printing_sink
from headrace.sinks.printing.lines import row_lines
from servers import S3Server

ORDERS, ITEMS = TableId("shop", "orders"), TableId("shop", "items")
COLUMNS = (
    Column("id", ColumnType(TypeKind.BIGINT, unsigned=True), primary_key=True),
    Column("name", ColumnType(TypeKind.VARCHAR)),
    Column("picture", ColumnType(TypeKind.BLOB)),
)
Row = tuple[RowKind, int, int, int, str | None, bytes | None]


def change(table_id: TableId, rows: Sequence[Row]) -> TableChange:
    schema = block_schema(COLUMNS)
    columns = [pa.array(list(values), field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=True)]
    empty = pa.table({})
    return TableChange(table_id, 1, TableSchema(table_id, COLUMNS, ("id",)), empty, empty, pa.table(columns, schema=schema))


class FakeRound:
    """A round whose units run here, one after the other, each with a writer that went through pickle as in Spark."""

    def __init__(self, *units: Sequence[TableChange], fail: bool = False, runs: int = 1, work: str | None = None) -> None:
        self._units, self._fail, self._runs = units, fail, runs
        self._work = open_work(work)

    def work_place(self) -> WorkPlace:
        return self._work.place()

    def write_in_tasks(self, writer: UnitWriter) -> WriteReport:
        outcomes: list[WriteOutcome] = []
        for slot, unit in enumerate(self._units):
            for _ in range(self._runs):
                copy = pickle.loads(pickle.dumps(writer))
                copy.open(WriterContext("shop", 1, 0, slot))
                written = copy.write(unit, None)
                copy.close()
            outcomes.extend(written)
        if self._fail:
            raise TransientError("a task broke")
        return WriteReport(outcomes=tuple(outcomes))


def print_sink() -> DataSink:
    return open_sink("print://")


def test_changes_come_out_in_commit_order_over_all_tables_and_units(capsys: pytest.CaptureFixture[str]) -> None:
    orders = [(RowKind.INSERT, 10, 1, 1, "a", None), (RowKind.DELETE, 300, 2, 1, "b", None)]
    items = [(RowKind.UPDATE_BEFORE, 20, 1, 7, "c", None), (RowKind.UPDATE_AFTER, 20, 2, 7, "d", None)]
    late = [(RowKind.INSERT, 9, 0, 2, "e", None)]
    report = print_sink().event_sink.write(FakeRound([change(ORDERS, orders)], [change(ITEMS, items), change(ORDERS, late)]))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["commit_ts"], line["kind"], line["table"], line["row"]["name"]) for line in lines] == [
        (9, "+I", "shop.orders", "e"),
        (10, "+I", "shop.orders", "a"),
        (20, "-U", "shop.items", "c"),
        (20, "+U", "shop.items", "d"),
        (300, "-D", "shop.orders", "b"),
    ]
    assert sum(outcome.upserts for outcome in report.outcomes) == 3
    assert sum(outcome.deletes for outcome in report.outcomes) == 2


def test_changes_of_a_transaction_are_printed_table_by_table_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    """Also where a table comes in pieces: a deletion that the source has behind the new row of its key comes before it."""
    pieces = [(RowKind.DELETE, 5, 7, 1, "a", None)], [(RowKind.UPDATE_AFTER, 5, 3, 1, "b", None)]
    others = [(RowKind.UPDATE_BEFORE, 5, 2, 2, "c", None), (RowKind.UPDATE_AFTER, 5, 8, 2, "d", None)]
    print_sink().event_sink.write(FakeRound([change(ORDERS, pieces[0]), change(ORDERS, pieces[1])], [change(ITEMS, others)]))
    assert [json.loads(line)["row"]["name"] for line in capsys.readouterr().out.splitlines()] == ["a", "b", "c", "d"]


def test_values_are_printed_without_loss(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(RowKind.INSERT, 1, 1, (1 << 64) - 1, 'ü "\n\u2028', b"\x00\xff"), (RowKind.INSERT, 1, 2, 1, None, None)]
    print_sink().event_sink.write(FakeRound([change(ORDERS, rows)]))
    first, second = [json.loads(line)["row"] for line in capsys.readouterr().out.rstrip("\n").split("\n")]
    assert first == {"id": (1 << 64) - 1, "name": 'ü "\n\u2028', "picture": "AP8="}
    assert second == {"id": 1, "name": None, "picture": None}


def test_a_failed_round_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(RowKind.INSERT, 1, 1, 1, "a", None)]
    with pytest.raises(TransientError):
        print_sink().event_sink.write(FakeRound([change(ORDERS, rows)], fail=True))
    assert capsys.readouterr().out == ""


def test_a_repeated_task_prints_once(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(RowKind.INSERT, 1, 1, 1, "a", None)]
    print_sink().event_sink.write(FakeRound([change(ORDERS, rows)], runs=2))
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.server
def test_lines_go_through_a_store_where_no_folder_is_shared(s3: S3Server, capsys: pytest.CaptureFixture[str]) -> None:
    location = s3.uri(s3.make_bucket(), "work")
    rows = [(RowKind.INSERT, 2, 1, 2, "ü", None)], [(RowKind.INSERT, 1, 1, 1, "a", None)]
    units = FakeRound(*([change(ORDERS, part)] for part in rows), work=location)
    print_sink().event_sink.write(units)
    assert [json.loads(line)["row"]["name"] for line in capsys.readouterr().out.splitlines()] == ["a", "ü"]
    assert units.work_place().keys() == []


class EmptiedRound(FakeRound):
    """Somebody empties the work place before the driver reads it."""

    def write_in_tasks(self, writer: UnitWriter) -> WriteReport:
        report = super().write_in_tasks(writer)
        self.work_place().remove("spool-1")
        return report


def test_lines_that_are_gone_are_an_error_not_silence() -> None:
    with pytest.raises(TransientError, match="Rows cannot be handed over"):
        print_sink().event_sink.write(EmptiedRound([change(ORDERS, [(RowKind.INSERT, 1, 1, 1, "a", None)])]))


class ShortenedRound(FakeRound):
    """The files of all units but the first lose their last lines before the driver reads them."""

    def write_in_tasks(self, writer: UnitWriter) -> WriteReport:
        report = super().write_in_tasks(writer)
        work = self.work_place()
        for outcome in report.outcomes[1:]:
            (key,) = outcome.spooled
            lines = work.read(key).to_pybytes().splitlines(keepends=True)
            work.write(key, b"".join(lines[: len(lines) // 2]))
        return report


@pytest.mark.parametrize("rows", [1, 4])
def test_a_spooled_file_that_is_not_whole_prints_nothing(rows: int, capsys: pytest.CaptureFixture[str]) -> None:
    units = [change(ORDERS, [(RowKind.INSERT, n, n, n, "a", None) for n in range(1, rows + 1)]) for _ in range(2)]
    with pytest.raises(TransientError, match="A file of rows in the work place is not whole"):
        print_sink().event_sink.write(ShortenedRound(*([unit] for unit in units)))
    assert capsys.readouterr().out == ""


def test_schema_changes_are_printed_too(capsys: pytest.CaptureFixture[str]) -> None:
    drop = SchemaChange(5, ORDERS, (DropTableEvent(ORDERS),), "DROP TABLE orders", "shop", frozenset({ORDERS}))
    applier = print_sink().metadata_applier
    assert applier.apply_schema_change(drop) == ()
    assert applier.describe(ORDERS) is None
    assert json.loads(capsys.readouterr().out) == {
        "kind": "DDL",
        "table": "shop.orders",
        "commit_ts": 5,
        "events": ["DropTableEvent"],
        "statement": "DROP TABLE orders",
        "changes": ["shop.orders"],
    }


def test_every_change_is_asked_for_and_the_ledger_is_elsewhere() -> None:
    sink = print_sink()
    assert sink.capabilities.demand is ChangeDemand.ALL
    assert sink.ledger is None
    assert not sink.capabilities.atomic_cut


def test_a_reader_that_has_gone_is_said_in_a_sentence() -> None:
    program = """
import sys
from headrace.errors import SinkUnreachableError
from headrace.sinks.printing.sink import print_lines
try:
    print_lines("x" * 100 + chr(10) for _ in range(100_000))
except SinkUnreachableError as error:
    sys.stderr.write(str(error))
"""
    done = subprocess.run(
        ["sh", "-c", '"$0" -c "$1" | true', sys.executable, program], capture_output=True, text=True, check=False, timeout=60
    )
    assert "The program that reads the standard output has ended." in done.stderr


@pytest.mark.parametrize("uri", ["print://host", "print:///path", "print://?limit=5"])
def test_options_are_refused(uri: str) -> None:
    with pytest.raises(DefinitionError, match="print://"):
        open_sink(uri)


@pytest.mark.parametrize("first", [ORDERS, ITEMS])
def test_what_nobody_foresaw_about_the_rows_of_one_table_stops_that_table(
    first: TableId, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it shows behind rows that were spooled already."""

    def failing(found: TableChange) -> Iterator[str]:
        yield from row_lines(found)
        if found.table_id == ORDERS:
            raise KeyError("a bug over these rows")

    monkeypatch.setattr(printing_sink, "row_lines", failing)
    rows = [(RowKind.INSERT, 1, 1, 1, "a", None)]
    tables = [first, *({ORDERS, ITEMS} - {first})]
    report = print_sink().event_sink.write(FakeRound([change(table_id, rows) for table_id in tables for _ in range(2)]))
    assert report.problems().keys() == {ORDERS}
    assert [json.loads(line)["table"] for line in capsys.readouterr().out.splitlines()] == ["shop.items"] * 2
    assert sum(outcome.upserts for outcome in report.outcomes) == 2
