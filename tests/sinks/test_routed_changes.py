"""A change whose target has another name than the source's table: every sink writes there, and tells of both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
import test_duckdb_rows as in_duckdb
import test_printing as printed
from mysql_writing import PIPELINE, Target, acquired, change, column, table

from headrace.errors import TransientError
from headrace.model.events import RowKind
from headrace.model.ledger import TableProgress
from headrace.model.table import TableId, TableSchema
from headrace.sinks.base import LedgerPart, TableChange, WriterContext
from headrace.sinks.dead_letters import open_dead_letters
from headrace.sinks.duckdb import open_sink
from headrace.sinks.duckdb.sink import DuckDbSink
from headrace.transform.targets import routed, target_of
from servers import MariaDb

ITEMS = table("items", [column("id", "INT", nullable=False, primary_key=True), column("v", "VARCHAR", length=9)])
NAMED = table("named", [column("name", "VARCHAR", nullable=False, primary_key=True), column("v", "INT")], ["name"])
BAG = replace(ITEMS, handle_key=())
ARCHIVED = TableId("store", "things")


def to_archive(found: TableChange) -> TableChange:
    return replace(found, routed=replace(found.schema, table_id=ARCHIVED))


@pytest.mark.parametrize("schema", [ITEMS, BAG])
def test_every_table_keeps_its_name_until_there_are_routes(schema: TableSchema) -> None:
    assert target_of(schema.table_id) == schema.table_id
    assert routed(schema) is None
    found = change(schema)
    assert (found.target, found.target_schema) == (schema.table_id, schema)
    assert to_archive(found).target == ARCHIVED


@pytest.mark.server
class TestMariaDb:
    @pytest.fixture
    def target(self, mariadb: MariaDb) -> Target:
        """The source's own name stands for another table, which nothing may touch."""
        target = acquired(mariadb)
        target.execute("CREATE DATABASE store", "CREATE TABLE shop.items (id INT PRIMARY KEY, v VARCHAR(9))")
        target.execute("INSERT INTO shop.items VALUES (1, 'his')")
        return target

    def test_rows_go_to_the_target_and_nowhere_else(self, target: Target) -> None:
        target.execute("CREATE TABLE store.things (id INT PRIMARY KEY, v VARCHAR(9))")
        target.write(to_archive(change(ITEMS, [(1, "a"), (2, "b")])))
        (outcome,) = target.write(to_archive(change(ITEMS, [(1, "A")], deletes=[(2,)])))
        assert (outcome.table_id, outcome.written_to, outcome.problem) == (ITEMS.table_id, ARCHIVED, None)
        assert target.execute("SELECT * FROM store.things") == [(1, "A")]
        assert target.execute("SELECT * FROM shop.items") == [(1, "his")]

    def test_which_keys_are_equal_the_targets_table_tells(self, target: Target) -> None:
        target.execute("CREATE TABLE store.things (name VARCHAR(9) PRIMARY KEY, v INT) COLLATE utf8mb4_general_ci")
        target.execute("CREATE TABLE shop.named (name VARCHAR(9) PRIMARY KEY, v INT) COLLATE utf8mb4_bin")
        ordered = [(RowKind.INSERT, 1, 1, "A", 1), (RowKind.INSERT, 1, 2, "b", 2), (RowKind.DELETE, 2, 3, "a", None)]
        target.write(to_archive(change(NAMED, ordered=ordered)))
        assert target.execute("SELECT * FROM store.things") == [("b", 2)]

    def test_a_refused_value_is_told_of_the_sources_table_and_names_the_target(self, target: Target) -> None:
        target.execute("CREATE TABLE store.things (id INT PRIMARY KEY, v VARCHAR(1))")
        others = table("others", [column("id", "INT", nullable=False, primary_key=True), column("v", "VARCHAR")])
        target.execute("CREATE TABLE shop.others (id INT PRIMARY KEY, v VARCHAR(9))")
        outcomes = target.write(to_archive(change(ITEMS, [(7, "long")])), change(others, [(1, "b")]))
        problem = outcomes[0].problem
        assert problem is not None
        assert problem.sentence().startswith("table shop.items, row id=7, column v, value 'long': the target refused a value: ")
        assert "Its table in the target is store.things." in problem.message
        assert target.execute("SELECT * FROM shop.others") == [(1, "b")]

    def test_a_dead_letter_is_one_of_the_sources_table(self, target: Target, tmp_path: Path) -> None:
        target.execute("CREATE TABLE store.things (id INT PRIMARY KEY, v VARCHAR(1))")
        letters = open_dead_letters(str(tmp_path), PIPELINE)
        writer = target.writer()
        writer.open(WriterContext(PIPELINE, target.epoch, 0, 0, letters))
        (outcome,) = writer.write([to_archive(change(ITEMS, [(7, "long"), (8, "c")]))], None)
        writer.close()
        assert (outcome.problem, outcome.refused, outcome.upserts) == (None, 1, 1)
        assert len(letters.names(ITEMS.table_id)) == 1
        assert target.execute("SELECT * FROM store.things") == [(8, "c")]

    def test_a_bag_is_repeated_by_the_progress_of_its_pair_alone(self, target: Target) -> None:
        target.execute("CREATE TABLE store.things (id INT, v VARCHAR(9))")
        target.epoch = target.sink.ledger.acquire(PIPELINE, "source", "", 0, [LedgerPart.ROUTED_TABLES]).epoch
        own = TableProgress(ITEMS.table_id, 9, target=ARCHIVED)
        bag = replace(to_archive(change(BAG, [(1, "a")])), progress=own)
        target.write(bag)
        with pytest.raises(TransientError, match="stands at 9 already"):
            target.write(bag)
        assert target.execute("SELECT * FROM store.things") == [(1, "a")]
        state = target.sink.ledger.peek(PIPELINE)
        assert state is not None
        assert state.tables == {ITEMS.table_id: own}


class TestDuckDb:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "shop.duckdb"

    @pytest.fixture
    def sink(self, path: Path) -> Iterator[DuckDbSink]:
        with open_sink(f"duckdb://{path}") as opened:
            opened.ledger.acquire("p", "file:///source", "", 0)
            in_duckdb.create(opened, in_duckdb.PLAIN)
            yield opened

    def archived(self, *rows: dict[str, object]) -> TableChange:
        return to_archive(in_duckdb.change(in_duckdb.PLAIN, list(rows)))

    def test_rows_go_to_the_target_and_nowhere_else(self, sink: DuckDbSink, path: Path) -> None:
        in_duckdb.create(sink, replace(in_duckdb.PLAIN, table_id=ARCHIVED))
        assert in_duckdb.write(sink, [self.archived({"id": 1, "v": "a"})]) == {}
        assert in_duckdb.content(path, "store.things") == [(1, "a")]
        assert in_duckdb.content(path) == []

    def test_one_table_goes_to_two_targets_in_one_round(self, sink: DuckDbSink, path: Path) -> None:
        in_duckdb.create(sink, replace(in_duckdb.PLAIN, table_id=ARCHIVED))
        row = {"id": 1, "v": "a"}
        assert in_duckdb.write(sink, [self.archived(row), in_duckdb.change(in_duckdb.PLAIN, [row])]) == {}
        assert in_duckdb.content(path, "store.things") == in_duckdb.content(path) == [(1, "a")]

    def test_a_target_that_is_missing_or_does_not_fit_is_told_of_the_sources_table(self, sink: DuckDbSink, path: Path) -> None:
        unit = [self.archived({"id": 1, "v": "a"})]
        source = in_duckdb.PLAIN.table_id
        problem = in_duckdb.write(sink, unit)[source]
        assert problem.sentence().startswith(
            f"table {source}: the table is not in the DuckDB file. Its table in the target is store.things. Was it dropped by hand?"
        )
        with duckdb.connect(str(path)) as connection:
            connection.execute("CREATE SCHEMA store; CREATE TABLE store.things (id INT)")
        problem = in_duckdb.write(sink, unit)[source]
        assert (problem.table_id, problem.column) == (source, "v")
        assert problem.message == "the table in the DuckDB file has no such column. Its table in the target is store.things."


def test_what_is_printed_has_the_targets_name(capsys: pytest.CaptureFixture[str]) -> None:
    found = to_archive(printed.change(printed.ORDERS, [(RowKind.INSERT, 10, 1, 1, "a", None)]))
    report = printed.print_sink().event_sink.write(printed.FakeRound([found]))
    assert json.loads(capsys.readouterr().out)["table"] == "store.things"
    assert [outcome.table_id for outcome in report.outcomes] == [printed.ORDERS]
