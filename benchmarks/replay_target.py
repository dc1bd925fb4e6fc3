"""Replay into MariaDB, beside a script that runs the same statements in the same transactions over as many connections."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pyarrow as pa

from benchmarks.report import Measurement, median
from headrace.model.block import META_COUNT, ChangeBlock, block_schema
from headrace.model.events import RowKind
from headrace.model.table import Column, Index, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.replay.conflict_keys import ConflictKeys, unique_keys_of
from headrace.replay.transactions import Transactions
from headrace.sinks.base import TableChange, UnitWriter, WriterContext
from headrace.sinks.mysql.applying import ReplayedTables
from headrace.sinks.mysql.replay import ReplayWriter
from headrace.sinks.mysql.replay_statements import row_changes, statements
from headrace.sinks.mysql.settings import MySqlSettings, read_settings
from headrace.sinks.mysql.sink import open_sink
from headrace.sinks.mysql.writer import MySqlWriter
from headrace.sinks.sql_claim import Claim
from servers import MariaDb

CONNECTIONS = 4
_ROWS = 5
_COMMIT_ROWS = 1_024
"""So many rows are in a transaction of the target, as in replay: old images count as rows."""
_T = TableId("bench_replay", "t")
_COLUMNS = (
    Column("id", ColumnType(TypeKind.BIGINT), False, True),
    Column("code", ColumnType(TypeKind.BIGINT), False),
    Column("name", ColumnType(TypeKind.VARCHAR, length=40)),
    Column("price", ColumnType(TypeKind.DECIMAL, length=12, scale=2)),
)
_SCHEMA = TableSchema(_T, _COLUMNS, ("id",), (Index("code", ("code",), unique=True),))
_CREATE = "CREATE TABLE bench_replay.t (id BIGINT PRIMARY KEY, code BIGINT NOT NULL UNIQUE, name VARCHAR(40), price DECIMAL(12,2))"


def measure(server: MariaDb, counts: Mapping[RowKind, int], repeats: int) -> Iterator[Measurement]:
    """Transactions of five rows each, a second: so many that insert, and that update."""
    uri = server.uri(any_database=True, apply="replay", replay_connections=CONNECTIONS)
    for kind, count in counts.items():
        block = _block(count, kind)
        spent: dict[str, list[float]] = {"script": [], "replay": [], "converge": []}
        for _ in range(repeats):
            for whose, work in _works(server, uri, block).items():
                _prepare(server, count if kind is RowKind.UPDATE_AFTER else 0)
                spent[whose].append(work())
        rates = {whose: count / median(times) for whose, times in spent.items()}
        name = "inserts" if kind is RowKind.INSERT else "updates"
        details = {f"transactions/s by {whose}": rate for whose, rate in rates.items()}
        yield Measurement(f"replay of {name}: of the script's rate", 100 * rates["replay"] / rates["script"], "%", details=details)


def _works(server: MariaDb, uri: str, block: ChangeBlock) -> dict[str, Callable[[], float]]:
    """What to measure. Each gives its seconds, without those that a run spends once."""
    commits = list(_commits(block))
    empty = pa.Table.from_batches([block.batch.slice(0, 0)]).select(block.batch.schema.names[META_COUNT:])
    rows = pa.Table.from_batches([block.batch])
    pieces = [rows.slice(start, 20_000) for start in range(0, rows.num_rows, 20_000)]
    changes = [TableChange(_T, 1, _SCHEMA, empty, empty, piece) for piece in pieces]
    new = rows.filter(pa.compute.greater_equal(rows.column(0), int(RowKind.INSERT))).select(empty.column_names)
    net = [TableChange(_T, 1, _SCHEMA, empty, new, rows.slice(0, 0))]
    return {
        "script": lambda: _script(server, commits),
        "replay": lambda: _write(uri, _replay_writer, changes),
        "converge": lambda: _write(uri, MySqlWriter, net),
    }


def _block(count: int, kind: RowKind) -> ChangeBlock:
    """The rows of so many transactions; of updates with their old images."""
    shape = block_schema(_COLUMNS)
    kinds = [RowKind.INSERT] if kind is RowKind.INSERT else [RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER]
    rows = [(number, of) for number in range(count * _ROWS) for of in kinds]
    names = [f"name {number} {'new' if of is RowKind.UPDATE_AFTER else 'old'}" for number, of in rows]
    numbers = [number for number, _ in rows]
    columns = [
        [int(of) for _, of in rows],
        [number // _ROWS + 1 for number in numbers],
        list(range(len(rows))),
        numbers,
        [number * 7 for number in numbers],
        names,
        [f"{number}.50" for number in numbers],
    ]
    arrays = [pa.array(values, of.type) for values, of in zip(columns, shape, strict=True)]
    return ChangeBlock(_T, 1, _SCHEMA, pa.record_batch(arrays, schema=shape))


def _commits(block: ChangeBlock) -> Iterator[list[bytes]]:
    """The statements of each transaction of the target."""
    keys = unique_keys_of(_SCHEMA)
    whole, conflicts = Transactions.of(block), ConflictKeys(_SCHEMA, keys, old_images=True)
    each = max(1, _COMMIT_ROWS * len(whole) // block.num_rows)
    for start in range(0, len(whole), each):
        part = whole.part(start, min(start + each, len(whole)))
        (changes,) = row_changes(part, conflicts, keys, in_order=False)
        yield [s.text for s in statements(_SCHEMA, part.block.batch, changes, most_bytes=1 << 20, most_rows=_COMMIT_ROWS)]


def _script(server: MariaDb, commits: Sequence[Sequence[bytes]]) -> float:
    queue: SimpleQueue[Sequence[bytes] | None] = SimpleQueue()
    for commit in [*commits, *[None] * CONNECTIONS]:
        queue.put(commit)

    def work(_: int) -> None:
        with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
            while (commit := queue.get()) is not None:
                for text in commit:
                    cursor.execute(text)
                connection.commit()

    begun = time.perf_counter()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(work, range(CONNECTIONS)))
    return time.perf_counter() - begun


def _replay_writer(settings: MySqlSettings, claim: Claim) -> ReplayWriter:
    return ReplayWriter(settings, claim, ReplayedTables(settings.apply))


def _write(uri: str, make: Callable[[MySqlSettings, Claim], UnitWriter], changes: Sequence[TableChange]) -> float:
    with open_sink(uri) as sink:
        state = sink.ledger.acquire("bench-replay", "bench", "", 0)
        writer = make(read_settings(uri), sink.ledger.own_claim())
        writer.open(WriterContext("bench-replay", state.epoch, state.attempt, 0))
        try:
            begun = time.perf_counter()
            outcomes = writer.write(changes, None)
            seconds = time.perf_counter() - begun
        finally:
            writer.close()
    assert all(outcome.problem is None for outcome in outcomes), outcomes
    return seconds


def _prepare(server: MariaDb, count: int) -> None:
    """The table as it is before the transactions; no record of earlier ones."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS bench_replay")
        cursor.execute("DROP DATABASE IF EXISTS headrace")
        cursor.execute("CREATE DATABASE bench_replay")
        cursor.execute("USE bench_replay")
        cursor.execute(_CREATE)
        if count:
            cursor.execute(
                f"INSERT INTO bench_replay.t SELECT seq, seq * 7, CONCAT('name ', seq, ' old'), seq + 0.5"
                f" FROM seq_0_to_{count * _ROWS - 1}"
            )
