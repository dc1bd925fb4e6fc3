"""The sinks pass through the public suite, as those of other authors would."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

import duckdb
import pytest
from pymysql.cursors import DictCursor

from headrace.errors import FencedError
from headrace.faults import Moment
from headrace.model.policy import ChangeKind
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.pipeline.registry import open_sink
from headrace.testing.faults import Passage
from headrace.testing.memory_server import Server
from headrace.testing.memory_sink import CAPABILITIES, TABLE_COMMIT, MemorySink
from headrace.testing.sink_runs import SinkRuns, at
from headrace.testing.sink_suite import OwnLedgerSuite, SinkSuite, SinkUnderTest
from headrace.testing.upstream import Insert
from headrace.testing.values import SAMPLES
from servers import MariaDb, saved_databases
from storage_target import StorageReader, read_again

pytestmark = pytest.mark.pipeline


def test_the_suite_has_values_of_every_type_that_a_column_can_have() -> None:
    assert {sample.type.kind for sample in SAMPLES} == set(TypeKind) - {TypeKind.VAR_STRING}


def held(server: Server, schema: TableSchema) -> Iterable[Mapping[str, object]]:
    """The rows of a table of the server."""
    return list(server.contents.tables[schema.table_id].rows.values())


class InMemory(OwnLedgerSuite):
    """A sink in memory."""

    capability = "nothing atomic"
    streams = False

    @pytest.fixture
    def target(self) -> SinkUnderTest:
        server, capabilities = Server(), CAPABILITIES[self.capability]
        return SinkUnderTest(
            lambda: MemorySink(server, capabilities, streams=self.streams), partial(held, server), save=server.saved
        )


class TestMemoryWithAtomicCuts(InMemory):
    capability = "atomic cuts"


class TestMemoryWithSmallAtomicCuts(InMemory):
    capability = "atomic small cuts"


class TestMemoryWithNothingAtomic(InMemory):
    capability = "nothing atomic"


class TestMemoryOnTheDriver(InMemory):
    streams = True


class TestMemoryThatKeepsCommitTs(InMemory):
    @pytest.fixture
    def target(self) -> SinkUnderTest:
        server, capabilities = Server(), replace(CAPABILITIES["nothing atomic"], keeps_commit_ts=True)

        def commit_ts(schema: TableSchema) -> Mapping[tuple[object, ...], int]:
            return server.contents.tables[schema.table_id].commit_ts

        return SinkUnderTest(lambda: MemorySink(server, capabilities), partial(held, server), server.saved, commit_ts)


class TestMemoryWithoutItsOwnLedger(SinkSuite):
    @pytest.fixture
    def target(self) -> SinkUnderTest:
        server, capabilities = Server(), replace(CAPABILITIES["nothing atomic"], bags=False)
        return SinkUnderTest(lambda: MemorySink(server, capabilities, keeps_ledger=False), partial(held, server))


class TestMemoryThatMarksTables(SinkSuite):
    """Nothing but a table's own commit tells how far it is, and its ledger lies elsewhere."""

    @pytest.fixture
    def target(self) -> SinkUnderTest:
        server, capabilities = Server(), CAPABILITIES["nothing atomic"]
        return SinkUnderTest(lambda: MemorySink(server, capabilities, keeps_ledger=False, marks_tables=True), partial(held, server))

    def test_a_run_that_was_taken_over_before_it_commits_a_table_doubles_nothing(self, runs: SinkRuns) -> None:
        """Nothing but the table itself fences it."""
        upstream, table_id = runs.upstream, TableId("suite_shop", "bag")
        upstream.create_database("suite_shop")
        upstream.create_table(table_id, [Column("id", ColumnType(TypeKind.INT))])
        runs.applied()
        upstream.execute(*(Insert(table_id, {"id": n}) for n in (1, 1, 2)))

        def take_over(_: Passage) -> None:
            runs.applied()

        upstream.checkpoint()
        with pytest.raises(FencedError):
            runs.run(at(1, take_over, lambda passage: (passage.moment, passage.step) == (Moment.BEFORE, TABLE_COMMIT)))
        runs.check()


class TestMemoryThatTakesFewSchemaChanges(SinkSuite):
    @pytest.fixture
    def target(self) -> SinkUnderTest:
        server = Server()
        few = frozenset({ChangeKind.CREATE_DATABASE, ChangeKind.DROP_DATABASE, ChangeKind.CREATE_TABLE})
        capabilities = replace(CAPABILITIES["nothing atomic"], bags=False, supported_schema_changes=few)
        return SinkUnderTest(lambda: MemorySink(server, capabilities, keeps_ledger=False), partial(held, server))


class TestDuckDb(OwnLedgerSuite):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SinkUnderTest:
        path = tmp_path / "target.duckdb"

        def read(schema: TableSchema) -> Iterable[Mapping[str, object]]:
            name = f'"{schema.table_id.database}"."{schema.table_id.table}"'
            with duckdb.connect(str(path)) as connection:
                found = connection.execute(f"SELECT * FROM {name}")
                names = [column[0] for column in found.description or ()]
                return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

        def save() -> Callable[[], None]:
            held = path.read_bytes()

            def put_back() -> None:
                path.write_bytes(held)

            return put_back

        return SinkUnderTest(lambda: open_sink(f"duckdb://{path}?unsupported=text"), read, save)


class TestStorageInCsv(OwnLedgerSuite):
    """The rows are what a storage source makes of the files, in a pipeline of its own."""

    parameters = "protocol=csv"

    @pytest.fixture
    def target(self, tmp_path: Path) -> SinkUnderTest:
        root = tmp_path / "changes"
        uri = f"{root.as_uri()}?{self.parameters}"
        reader = StorageReader(root, self.parameters, tmp_path)
        return SinkUnderTest(lambda: open_sink(uri), reader.read, reader.saved)

    @pytest.mark.parametrize("name", [TableId("suite_shop", "a"), TableId("suite_shop", "c")], ids=["recover", "flashback"])
    def test_a_table_that_is_brought_back_has_its_rows_or_stops(self, runs: SinkRuns, name: TableId, tmp_path: Path) -> None:
        """The statement is passed on, as TiCDC passes it on. It is the readers of the target that cannot know the rows."""
        upstream, table_id = runs.upstream, TableId("suite_shop", "a")
        upstream.create_database("suite_shop")
        upstream.create_table(table_id, [Column("id", ColumnType(TypeKind.INT), nullable=False, primary_key=True)])
        upstream.execute(Insert(table_id, {"id": 1}))
        runs.applied()
        upstream.drop_table(table_id)
        upstream.recover_table(table_id, None if name == table_id else name)
        upstream.checkpoint()
        assert not runs.run().stopped
        assert runs.columns(name) == ("id",)
        _, told = read_again(f"{(tmp_path / 'changes').as_uri()}?{self.parameters}", tmp_path)
        assert name in {problem.table_id for problem in told.stopped}


class TestStorageInCanalJson(TestStorageInCsv):
    parameters = "protocol=canal-json&date-separator=none"


@pytest.mark.server
class TestMariaDb(OwnLedgerSuite):
    parameters: ClassVar[dict[str, object]] = {}

    @pytest.fixture
    def target(self, mariadb: MariaDb) -> SinkUnderTest:
        def read(schema: TableSchema) -> Iterable[Mapping[str, object]]:
            # A FLOAT shows six digits only.
            floats = {c.name for c in schema.columns if c.type.kind is TypeKind.FLOAT}
            fields = ", ".join(
                f"CAST(`{c.name}` AS DOUBLE) `{c.name}`" if c.name in floats else f"`{c.name}`" for c in schema.columns
            )
            with mariadb.connect(init_command="SET time_zone = '+00:00'") as server, server.cursor(DictCursor) as cursor:
                cursor.execute(f"SELECT {fields} FROM `{schema.table_id.database}`.`{schema.table_id.table}`")
                return list(cursor.fetchall())

        return SinkUnderTest(
            partial(open_sink, mariadb.uri(any_database=True, **self.parameters)),
            read,
            save=partial(saved_databases, mariadb),
            secrets=(mariadb.password, quote(mariadb.password, safe="")),
        )


class TestMariaDbThatReplays(TestMariaDb):
    """Each transaction of the source is executed, on several connections."""

    parameters: ClassVar[dict[str, object]] = {"apply": "replay", "replay_connections": 3}
