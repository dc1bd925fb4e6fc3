"""The targets of faulty runs, and what people do to them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import duckdb

from headrace.faults import Step
from headrace.model.table import TableId
from headrace.pipeline.registry import open_sink
from headrace.sinks.base import ChangeDemand, DataSink, SinkCapabilities
from headrace.sinks.duckdb.ledger import LEDGER_SCHEMA
from headrace.sinks.mysql.settings import LEDGER_DATABASE, SYSTEM_DATABASES
from headrace.testing.memory_server import Server
from headrace.testing.memory_sink import CAPABILITIES, MemorySink
from server_settings import settled
from servers import MariaDb, saved_databases
from simulated_target import SimulatedTarget
from targets import DuckDbTarget, MariaDbTarget, Target


@dataclass
class Downstream:
    """A target of one kind, empty at first. ``server`` is the simulated one, ``spools``: tasks by themselves write nothing."""

    name: str
    target: Callable[[], Target]
    sink: Callable[[], DataSink]
    spools: bool
    save: Callable[[], Callable[[], None]]
    """Remembers all that the target holds; what it returns puts that back, as a failover or a restored backup does."""
    comment: Callable[[TableId, str], None]
    """A person gives a table of the target a comment, which is no business of the pipeline's."""
    clear: Callable[[], None]
    """A person drops all databases and tables but the ledger's."""
    run: Callable[[str], None]
    """A person runs a statement in the target's own SQL."""
    save_table: Callable[[TableId], Callable[[], None]]
    """A person keeps a table's rows. What it returns loads them again, into a table of the same columns."""
    server: Server | None = None
    set_variables: Callable[[Collection[str]], None] | None = None
    """A person gives the server the hostile values of these variables, and its own of all others."""
    nested_at: frozenset[Step] = frozenset(Step)
    """The steps at which another run can take over in the same thread: where this one holds no lock that it would wait for."""
    quote: str = '"'

    def __str__(self) -> str:
        return self.name

    def qualified(self, table_id: TableId) -> str:
        """A table's name in the target's own SQL."""
        return ".".join(f"{self.quote}{part}{self.quote}" for part in (table_id.database, table_id.table))


def simulated(capability: str) -> Downstream:
    """A target in memory."""
    server, capabilities = Server(), CAPABILITIES[capability]

    def sink() -> DataSink:
        return MemorySink(server, capabilities)

    def target() -> Target:
        return SimulatedTarget(server.contents)

    acts = (server.saved, server.comment, server.clear, server.run, server.saved_table)
    return Downstream(f"simulated, {capability}", target, sink, capabilities.atomic_cut, *acts, server)


def with_file_ledger() -> Downstream:
    """A target in memory that cannot keep a ledger. Nothing fences its tasks, and it cannot take tables without key."""
    server, capabilities = Server(), SinkCapabilities(ChangeDemand.NET)

    def sink() -> DataSink:
        return MemorySink(server, capabilities, keeps_ledger=False)

    def target() -> Target:
        return SimulatedTarget(server.contents)

    return Downstream(
        "simulated, file ledger",
        target,
        sink,
        False,
        server.saved,
        server.comment,
        server.clear,
        server.run,
        server.saved_table,
        server,
    )


def on_mariadb(mariadb: MariaDb) -> Downstream:
    mariadb = settled(mariadb)
    mariadb.fresh()
    # In the middle of a transaction of the ledger the next run would wait for the lock on its row.
    nested_at = frozenset(Step) - {Step.MYSQL_COMMIT}
    target, save = MariaDbTarget(mariadb), partial(saved_databases, mariadb)

    def comment(table_id: TableId, text: str) -> None:
        with mariadb.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE `{table_id.database}`.`{table_id.table}` COMMENT = %s", (text,))

    def clear() -> None:
        with mariadb.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SHOW DATABASES")
            for name in {name for (name,) in cursor.fetchall()} - SYSTEM_DATABASES - {LEDGER_DATABASE}:
                cursor.execute(f"DROP DATABASE `{name}`")

    def run(statement: str) -> None:
        with mariadb.connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement)

    def save_table(table_id: TableId) -> Callable[[], None]:
        name = f"`{table_id.database}`.`{table_id.table}`"
        with mariadb.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {name}")
            rows = cursor.fetchall()

        def load() -> None:
            with mariadb.connect() as connection, connection.cursor() as cursor:
                cursor.execute(f"DELETE FROM {name}")
                for row in rows:
                    cursor.execute(f"INSERT INTO {name} VALUES ({', '.join(['%s'] * len(row))})", row)

        return load

    acts = (save, comment, clear, run, save_table)
    return Downstream(
        "mariadb",
        lambda: target,
        lambda: open_sink(mariadb.uri()),
        False,
        *acts,
        set_variables=mariadb.set_variables,
        nested_at=nested_at,
        quote="`",
    )


def on_duckdb(folder: Path) -> Downstream:
    target = DuckDbTarget(folder / "target.duckdb")

    def save() -> Callable[[], None]:
        held = target.path.read_bytes()

        def put_back() -> None:
            target.path.write_bytes(held)

        return put_back

    def comment(table_id: TableId, text: str) -> None:
        with duckdb.connect(str(target.path)) as connection:
            # The comment of the table itself is Headrace's mark.
            name = f'"{table_id.database}"."{table_id.table}"'
            ((column, *_), *_) = connection.execute(f"DESCRIBE {name}").fetchall()
            connection.execute(f"""COMMENT ON COLUMN {name}."{column}" IS '{text}'""")

    def clear() -> None:
        with duckdb.connect(str(target.path)) as connection:
            found = connection.execute("SELECT schema_name FROM duckdb_schemas() WHERE NOT internal").fetchall()
            for name in {name for (name,) in found} - {LEDGER_SCHEMA}:
                connection.execute(f'DROP SCHEMA "{name}" CASCADE')

    def run(statement: str) -> None:
        with duckdb.connect(str(target.path)) as connection:
            connection.execute(statement)

    def save_table(table_id: TableId) -> Callable[[], None]:
        name = f'"{table_id.database}"."{table_id.table}"'
        with duckdb.connect(str(target.path)) as connection:
            rows = connection.execute(f"SELECT * FROM {name}").fetchall()

        def load() -> None:
            with duckdb.connect(str(target.path)) as connection:
                connection.execute(f"DELETE FROM {name}")
                for row in rows:
                    connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)

        return load

    acts = (save, comment, clear, run, save_table)
    # The file is open, and so locked, while a cut lasts.
    nested_at = frozenset({Step.POLL})
    return Downstream("duckdb", lambda: target, lambda: open_sink(target.uri), True, *acts, nested_at=nested_at)
