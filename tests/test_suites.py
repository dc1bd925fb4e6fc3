"""The sinks pass through the public suite, as those of other authors would."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import quote

import duckdb
import pytest
from pymysql.cursors import DictCursor

from headrace.model.policy import ChangeKind
from headrace.model.table import TableSchema
from headrace.model.types import TypeKind
from headrace.pipeline.registry import open_sink
from headrace.testing.memory_server import Server
from headrace.testing.memory_sink import CAPABILITIES, MemorySink
from headrace.testing.sink_suite import OwnLedgerSuite, SinkSuite, SinkUnderTest
from headrace.testing.values import SAMPLES
from servers import MariaDb, saved_databases

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


@pytest.mark.server
class TestMariaDb(OwnLedgerSuite):
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
            partial(open_sink, mariadb.uri(any_database=True)),
            read,
            save=partial(saved_databases, mariadb),
            secrets=(mariadb.password, quote(mariadb.password, safe="")),
        )
