"""``make bench``: measures, prints a table, and writes ``bench-result.json``. Everything it starts it also stops."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import binlog, encode, floor, kafka_protocols, replay, replay_target
from benchmarks.avro import measure_avro
from benchmarks.kafka import OneRowTopic, binlog_topic, canal_json_topic, many_canal_json
from benchmarks.latency import poll_seconds, stream_times
from benchmarks.machine import cores, machine_facts
from benchmarks.memory import Peak, measure_run
from benchmarks.pipeline import RunFailed, RunTimes, run_once
from benchmarks.report import RATE_UNIT, Measurement, median, percentile, print_table, write_json
from benchmarks.workload import (
    Changes,
    OneRowCuts,
    Workload,
    fill_tables,
    net_rows,
    orders,
    small_rows,
    write_many_orders,
    write_orders,
    write_tables,
)
from headrace.engine.spark import SparkEngine, session_settings
from headrace.errors import HeadraceError
from headrace.model.events import RowKind
from headrace.testing.ticdc_options import Protocol
from kafka_server import running_kafka
from servers import MariaDb, running_mariadb

RESULT = Path("bench-result.json")
_CHANGES = 1_000_000
_WARM_CHANGES = 150_000
_BINLOG_CHANGES = 60_000
_REPLAYED = 100_000
_REPLAYED_INTO = {RowKind.INSERT: 200_000, RowKind.UPDATE_AFTER: 40_000}
_TABLES = 1_000
_ROWS_PER_TABLE = 100
_STREAM_CUTS = 100
_MEMORY_MILLIONS = (1, 10, 50)
# What a server for work has: its own durability, and memory for the table. Servers of tests trade the first for speed.
_SERVER = {"innodb_flush_log_at_trx_commit": 1, "innodb_buffer_pool_size": "1G", "innodb_log_file_size": "512M"}


@dataclass
class Bench:
    """What all measurements share: one folder, one server, one Spark session, each made when first needed."""

    folder: Path
    stack: ExitStack
    repeats: int
    millions: Sequence[int] = _MEMORY_MILLIONS
    floors: dict[str, float] = field(default_factory=dict)
    _numbers: int = 0

    @cached_property
    def server(self) -> MariaDb:
        return self.stack.enter_context(running_mariadb(**_SERVER))

    @cached_property
    def engine(self) -> SparkEngine:
        engine = SparkEngine(session_settings({}, {}))
        self.stack.callback(engine.stop)
        engine.warm_up()
        # Both halves of a job once: the first in which workers load anything takes seconds longer.
        workload = write_orders(self.fresh(), "csv", orders(_WARM_CHANGES))
        run_once(engine, workload.uri, "blackhole://", self.fresh())
        return engine

    @cached_property
    def changes(self) -> Changes:
        return orders(_CHANGES)

    def fresh(self) -> Path:
        """A new empty folder."""
        self._numbers += 1
        folder = self.folder / str(self._numbers)
        folder.mkdir()
        return folder

    def target(self, kind: str) -> str:
        """The URI of an empty target: ``MariaDB``, ``DuckDB`` or ``nothing``."""
        if kind == "MariaDB":
            self.server.fresh()
            return self.server.uri()
        if kind.startswith("storage"):
            return f"{self.fresh().as_uri()}?protocol={'csv' if kind.endswith('CSV') else 'canal-json'}"
        return f"duckdb://{self.fresh() / 'bench.duckdb'}" if kind == "DuckDB" else "blackhole://"

    def login(self) -> dict[str, Any]:
        server = self.server
        return {"host": server.host, "port": server.port, "user": server.user, "password": server.password, "charset": "utf8mb4"}

    def run_repeatedly(self, source: str, kind: str) -> RunTimes:
        """The run of median length into fresh targets, after one that is not counted."""
        runs = [run_once(self.engine, source, self.target(kind), self.fresh()) for _ in range(self.repeats + 1)][1:]
        return sorted(runs, key=lambda run: run.seconds)[len(runs) // 2]


def measure_csv(bench: Bench) -> Iterator[Measurement]:
    """A million changes as CSV."""
    yield from _measure_protocol(bench, "csv")


def measure_storage_sink(bench: Bench) -> Iterator[Measurement]:
    """A million changes as CSV into files of the same layout, against the same to nothing, in turns."""
    workload = write_orders(bench.fresh(), "csv", bench.changes)
    found: dict[str, list[float]] = {"nothing": [], "storage as CSV": [], "storage as canal-JSON": []}
    for _ in range(bench.repeats + 1):
        for name, times in found.items():
            run = run_once(bench.engine, workload.uri, bench.target(name), bench.fresh())
            if run.changes != workload.changes:
                raise RunFailed(f"{run.changes} changes were read, not {workload.changes}.")
            times.append(run.seconds)
    seconds = {name: median(times[1:]) for name, times in found.items()}
    for name, spent in seconds.items():
        yield Measurement(f"csv to {name}", workload.changes / spent, RATE_UNIT, details={"run": spent})
        if name != "nothing":
            yield Measurement(f"csv to {name}: against nothing", 100 * seconds["nothing"] / spent, "%")


def measure_canal_json(bench: Bench) -> Iterator[Measurement]:
    """A million changes as canal-JSON."""
    yield from _measure_protocol(bench, "canal-json")


def _measure_protocol(bench: Bench, protocol: Protocol) -> Iterator[Measurement]:
    workload = write_orders(bench.fresh(), protocol, bench.changes)
    for target in ("nothing", "MariaDB", "DuckDB"):
        yield _throughput(bench, workload, target)


def measure_kafka(bench: Bench) -> Iterator[Measurement]:
    """The same million changes as canal-JSON files, as a changefeed's topic and as a Drainer's, into MariaDB."""
    workload = write_orders(bench.fresh(), "canal-json", bench.changes)
    files = bench.run_repeatedly(workload.uri, "MariaDB").seconds
    yield Measurement("canal-json files to MariaDB", workload.changes / files, RATE_UNIT)
    with running_kafka() as broker:
        topics = {
            "canal-json topic": f"kafka://{broker.server}/{canal_json_topic(broker, workload, bench.changes)}?protocol=canal-json",
            "binlog topic": f"tidb-binlog://{broker.server}/{binlog_topic(broker, bench.changes)}",
        }
        for name, uri in topics.items():
            run = bench.run_repeatedly(uri, "MariaDB")
            if run.written != workload.keys:
                raise RunFailed(f"{run.written} rows were written of {name}, not {workload.keys}.")
            details = {"run": run.seconds, "cuts": run.cut_seconds}
            yield Measurement(f"{name} to MariaDB", workload.changes / run.seconds, RATE_UNIT, details=details)
            yield Measurement(f"{name} against files", 100 * files / run.seconds, "%")


def measure_kafka_stream(bench: Bench) -> Iterator[Measurement]:
    """Cuts of one row into MariaDB, from files and from a topic, in turns."""
    found: dict[str, list[float]] = {"files": [], "topic": []}
    line = write_orders(bench.fresh(), "canal-json", orders(1)).files[0].read_bytes().splitlines()[0]
    with running_kafka() as broker:
        for _ in range(2):
            for name, stream in (("files", OneRowCuts(bench.fresh())), ("topic", OneRowTopic(broker, line))):
                sink = bench.target("MariaDB")
                found[name] += stream_times(bench.engine, stream, sink, bench.fresh(), cuts=_STREAM_CUTS // 2).arrivals
    tails = {name: percentile(times, 95) for name, times in found.items()}
    for name, times in found.items():
        yield Measurement(f"one row of a {name.rstrip('s')}: p95", tails[name], "s", details={"p50": percentile(times, 50)})
    yield Measurement("one row of a topic against files: p95", tails["topic"] / tails["files"], "times")


def measure_kafka_memory(bench: Bench) -> Iterator[Measurement]:
    """The memory of a topic with 10 million messages against that of one with a million, into MariaDB."""
    changes = orders(1_000_000)
    workload = write_orders(bench.fresh(), "canal-json", changes)
    least = 0.0
    for millions in (1, 10):
        with running_kafka() as broker:
            uri = f"kafka://{broker.server}/{many_canal_json(broker, workload, changes, millions)}?protocol=canal-json"
            peak = measure_run(uri, bench.target("MariaDB"), bench.fresh())
        yield Measurement(f"memory, topic of {millions}M messages", peak.total, "MiB", details=_shares(peak))
        least = least or peak.total
    yield Measurement("memory, topic of 10M against 1M", peak.total / least, "times")


def measure_decoding(bench: Bench) -> Iterator[Measurement]:
    """The decoding of the same million changes in Avro, against canal-JSON files."""
    yield from measure_avro(write_orders(bench.fresh(), "canal-json", bench.changes), bench.changes)


def measure_kafka_protocols(bench: Bench) -> Iterator[Measurement]:
    """A fifth of the changes as messages of TiCDC's protocols, decoded, against the same as canal-JSON files."""
    changes = orders(len(bench.changes) // 5)
    workload = write_orders(bench.fresh(), "canal-json", changes)
    (_, files), *found = kafka_protocols.rates(workload, changes)
    yield Measurement("decode canal-json files", files, RATE_UNIT)
    for name, rate in found:
        yield Measurement(f"decode {name}", rate, RATE_UNIT)
        yield Measurement(f"decode {name}: against files", 100 * rate / files, "%")


def measure_encoding(bench: Bench) -> Iterator[Measurement]:
    """A fifth of the changes encoded, beside the decoding of the same bytes and Arrow's CSV writer."""
    floor_rate, *found = encode.rates(orders(len(bench.changes) // 5))
    yield Measurement(f"encode: {floor_rate.name}", floor_rate.encode, RATE_UNIT)
    for rate in found:
        details = {"bytes a row": rate.bytes_per_row} if rate.bytes_per_row else {}
        least = floor_rate.encode if rate.name == "csv" else None
        yield Measurement(f"encode {rate.name}", rate.encode, RATE_UNIT, least, details)
        if rate.decode:
            yield Measurement(f"decode {rate.name}", rate.decode, RATE_UNIT)


def measure_no_local(bench: Bench) -> Iterator[Measurement]:
    """A million changes as CSV into a server that forbids LOAD DATA LOCAL."""
    workload = write_orders(bench.fresh(), "csv", bench.changes, name="csv")
    _allow_local(bench, "OFF")
    try:
        yield _throughput(bench, workload, "MariaDB", local=False)
    finally:
        _allow_local(bench, "ON")


def _allow_local(bench: Bench, setting: str) -> None:
    # A connection for each time: a fresh target ends all that are open.
    with bench.server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SET GLOBAL local_infile = {setting}")


def _throughput(bench: Bench, workload: Workload, target: str, *, local: bool = True) -> Measurement:
    name = f"{workload.name} to {target}" + ("" if local else " without LOCAL")
    run = bench.run_repeatedly(workload.uri, target)
    if run.changes != workload.changes or run.written != workload.keys:
        raise RunFailed(f"{run.changes} changes were read and {run.written} written, not {workload.changes} and {workload.keys}.")
    floor_seconds = _decode_floor(bench, workload) + _write_floor(bench, target, local=local)
    details = {"run": run.seconds, "cut": run.cut_seconds, "floor": floor_seconds}
    details |= dict(zip(("read+net", "net+write"), run.stages, strict=False))
    return Measurement(name, workload.changes / run.seconds, RATE_UNIT, workload.changes / floor_seconds, details)


def _decode_floor(bench: Bench, workload: Workload) -> float:
    name = f"decode {workload.name}"
    if name not in bench.floors:
        bench.floors[name] = floor.decode_seconds(workload.files, cores())
    return bench.floors[name]


def _write_floor(bench: Bench, target: str, *, local: bool) -> float:
    if target == "nothing":
        return 0.0
    name = f"write {target}" + ("" if local else " without LOCAL")
    if name not in bench.floors:
        rows = net_rows(bench.changes)
        if target == "MariaDB":
            bench.server.fresh()
            seconds = [floor.mysql_seconds(rows, bench.login(), cores(), bench.fresh(), local=local) for _ in range(3)]
        else:
            seconds = [floor.duckdb_seconds(rows, bench.fresh() / "floor.duckdb") for _ in range(3)]
        bench.floors[name] = median(seconds)
    return bench.floors[name]


def measure_tables(bench: Bench) -> Iterator[Measurement]:
    """Many small tables: one cut that creates them, one cut that brings rows for all of them."""
    for target in ("MariaDB", "DuckDB"):
        workload = write_tables(bench.fresh(), _TABLES)
        least = _tables_floor(bench, target)
        sink, folder = bench.target(target), bench.fresh()
        created = run_once(bench.engine, workload.uri, sink, folder)
        cut = {"cut": created.cut_seconds}
        yield Measurement(f"tables to {target}: CREATE", created.seconds, "s", least.create, cut)
        changes = fill_tables(workload, _ROWS_PER_TABLE)
        filled = run_once(bench.engine, workload.uri, sink, folder)
        if filled.changes != changes or filled.written != changes:
            raise RunFailed(f"{filled.changes} changes were read and {filled.written} written, not {changes}.")
        details = {"cut": filled.cut_seconds, **{f"stage {n}": s for n, s in enumerate(filled.stages, 1)}}
        yield Measurement(f"tables to {target}: rows", filled.seconds, "s", least.rows, details)
        for moved in (False, True):
            spent = poll_seconds(workload.uri, sink, moved=moved, repeats=10)
            what = "moved" if moved else "standing"
            yield Measurement(f"poll of {_TABLES} tables in {target}, watermark {what}", 1000 * median(spent), "ms")


def _tables_floor(bench: Bench, target: str) -> floor.TablesFloor:
    rows = small_rows(_ROWS_PER_TABLE)
    if target == "MariaDB":
        bench.server.fresh()
        return floor.mysql_tables_seconds(_TABLES, rows, bench.login())
    return floor.duckdb_tables_seconds(_TABLES, rows, bench.fresh() / "floor.duckdb")


def measure_stream(bench: Bench) -> Iterator[Measurement]:
    """Cuts of one row in follow mode, and polls when there is nothing."""
    for target in ("MariaDB", "DuckDB"):
        stream, sink = OneRowCuts(bench.fresh()), bench.target(target)
        times = stream_times(bench.engine, stream, sink, bench.fresh(), cuts=_STREAM_CUTS)
        name = f"stream to {target}"
        alone = {"cut p50": percentile(times.cuts, 50), "cut p95": percentile(times.cuts, 95), "most": max(times.arrivals)}
        yield Measurement(f"{name}: p50", percentile(times.arrivals, 50), "s")
        yield Measurement(f"{name}: p95", percentile(times.arrivals, 95), "s", details=alone)
        if target == "MariaDB":
            for moved in (False, True):
                spent = [1000 * seconds for seconds in poll_seconds(stream.writer.uri, sink, moved=moved)]
                tail = {"p95": percentile(spent, 95)}
                yield Measurement("idle poll, watermark moved" if moved else "idle poll", median(spent), "ms", details=tail)
            yield Measurement("idle poll: Spark jobs", times.idle_jobs, "jobs")


def measure_binlog(bench: Bench) -> Iterator[Measurement]:
    """Binlog messages to record batches on one core, without Spark, against the protobuf library."""
    for rows in (1, 10, 1000):
        messages = binlog.transactions(_BINLOG_CHANGES, rows)
        spent = binlog.seconds(messages, _BINLOG_CHANGES, 2 * bench.repeats)
        name = f"binlog, {rows} row{'s' if rows > 1 else ''} a transaction"
        others = {"protobuf": 1 / spent.protobuf, "one by one": 1 / spent.one_by_one}
        yield Measurement(name, 1 / spent.columnar, RATE_UNIT, details=others)
        yield Measurement(f"{name}: against protobuf", spent.protobuf / spent.columnar, "times")


def measure_replay_tracker(bench: Bench) -> Iterator[Measurement]:
    """The progress tracker alone: batches of events against single ones."""
    yield from replay.measure_tracker(bench.repeats)


def measure_replay_target(bench: Bench) -> Iterator[Measurement]:
    """Replay into MariaDB, beside a script with the same statements."""
    yield from replay_target.measure(bench.server, _REPLAYED_INTO, bench.repeats)


def measure_replay_detector(bench: Bench) -> Iterator[Measurement]:
    """The conflict detector alone, against union-set grouping."""
    yield from replay.measure_detector(_REPLAYED, bench.repeats)


def measure_memory(bench: Bench) -> Iterator[Measurement]:
    """The memory of backlogs of some million changes against that of the smallest, each run in a process of its own."""
    smallest: dict[str, float] = {}
    for millions in sorted(bench.millions):
        workload = write_many_orders(bench.fresh(), millions)
        for target in ("MariaDB", "DuckDB"):
            peak = measure_run(workload.uri, bench.target(target), bench.fresh())
            yield Measurement(f"memory, {workload.name} to {target}", peak.total, "MiB", details=_shares(peak))
            least = smallest.setdefault(target, peak.total)
            if millions > min(bench.millions):
                yield Measurement(f"memory of {millions}M against {min(bench.millions)}M, {target}", peak.total / least, "times")


def _shares(peak: Peak) -> dict[str, float]:
    return {"driver": peak.driver, "JVM": peak.jvm, "workers": peak.workers}


Measure = Callable[[Bench], Iterator[Measurement]]
SHORT: dict[str, Measure] = {
    "csv": measure_csv,
    "canal-json": measure_canal_json,
    "tables": measure_tables,
    "stream": measure_stream,
    "binlog": measure_binlog,
    "kafka": measure_kafka,
    "kafka-stream": measure_kafka_stream,
    "avro": measure_decoding,
    "kafka-protocols": measure_kafka_protocols,
    "replay-tracker": measure_replay_tracker,
    "replay-detector": measure_replay_detector,
    "replay-target": measure_replay_target,
    "storage-sink": measure_storage_sink,
    "encode": measure_encoding,
}
LONG: dict[str, Measure] = {"no-local": measure_no_local, "memory": measure_memory, "kafka-memory": measure_kafka_memory}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures what the arguments ask for. Exit code 1 when a measurement broke, whatever the figures are."""
    options = _parser().parse_args(arguments)
    chosen = options.only or [*SHORT, *(LONG if options.full else ())]
    console = Console(width=None if Console().is_terminal else 180, soft_wrap=not Console().is_terminal)
    machine = machine_facts()
    console.print(", ".join(f"{name} {value}" for name, value in machine.items()))
    measurements: list[Measurement] = []
    with _bench(options.repeats, options.millions or _MEMORY_MILLIONS) as bench:
        for name in chosen:
            measurements += _measured(bench, name, console)
        measurements += [Measurement(f"floor: {n}", seconds, "s") for n, seconds in bench.floors.items()]
    print_table(console, measurements)
    write_json(options.output, machine, measurements)
    console.print(f"written to {options.output}")
    return 1 if any(m.error for m in measurements) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--only", action="append", choices=[*SHORT, *LONG], help="measure this only; may be repeated")
    parser.add_argument("--full", action="store_true", help=f"also what takes long: {', '.join(LONG)}")
    parser.add_argument("--repeats", type=int, default=3, help="counted runs of each throughput; the median is shown")
    parser.add_argument(
        "--millions", action="append", type=int, help="changes in a backlog whose memory is measured, in millions; may be repeated"
    )
    parser.add_argument("--output", type=Path, default=RESULT, help="where the JSON goes")
    return parser


@contextmanager
def _bench(repeats: int, millions: Sequence[int]) -> Iterator[Bench]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        yield Bench(folder, stack, repeats, millions)


def _measured(bench: Bench, name: str, console: Console) -> list[Measurement]:
    """The figures of one measurement as far as it gets, the cause among them when it breaks."""
    found: list[Measurement] = []
    started = time.perf_counter()
    try:
        for measurement in {**SHORT, **LONG}[name](bench):
            found.append(measurement)
            console.print(f"  {measurement.name}: {measurement.value:,.3f} {measurement.unit}")
    except (RunFailed, HeadraceError) as error:
        found.append(Measurement(name, 0, "", error=str(error)))
    console.print(f"{name}: {time.perf_counter() - started:.0f} s")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
