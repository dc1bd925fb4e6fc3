"""Builds a changefeed's folder in the words of the specification's cases, and runs the pipeline on it into a DuckDB file.

``t/100/1`` is ``test/t/100/CDC000001.csv`` with its index; a row ``I 110 1 a`` is ``"I","t","test",110,1,"a"``; shapes are names
of :data:`COLUMNS`, such as ``id,v``. Runs are in this process and without Spark.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb

from following import Recorder
from headrace.engine import loop
from headrace.engine.run_options import RunOptions
from headrace.formats.schema_file import schema_checksum
from headrace.model.cut import Cut
from headrace.model.events import RowKind
from headrace.model.ledger import Decision, JournalState, LedgerState, TableRequest, Verdict
from headrace.model.outcome import Notice, Problem, SplitReport
from headrace.model.tso import latest_tso
from headrace.pipeline.assembly import DEFAULT_LEDGER
from headrace.pipeline.definition import Definition
from headrace.pipeline.registry import open_sink
from headrace.pipeline.runner import PipelineRun
from headrace.testing.engine import LocalEngine
from storage_folder import ID, OPTIONS, C, Consumer, StorageFolder, V

Row = str | tuple[object, ...]
"""``I 110 1 a``, or its fields as a tuple where a value has spaces. ``NULL`` and ``None`` are NULL; after the operation a ``+``
marks a row of an update, a ``-`` one that is none (with ``output-old-value``)."""

Read = tuple[object, ...]
"""A row as it was read: ``I``, ``D``, or ``-`` and ``+`` for the old and the new row of an update; commit ts; values."""

UK = {"ColumnName": "uk", "ColumnType": "INT", "ColumnPrecision": "11", "ColumnNullable": "false"}
TEXT_KEY: dict[str, Any] = {
    "ColumnName": "k",
    "ColumnType": "VARCHAR",
    "ColumnPrecision": "16",
    "ColumnNullable": "false",
    "ColumnIsPk": "true",
}
COLUMNS: dict[str, dict[str, Any]] = {"id": ID, "v": V, "c": C, "uk": UK}
"""The columns that shapes name."""
_NUMBERS = ("INT", "BIT", "YEAR", "FLOAT", "DOUBLE")


@dataclass
class Ran:
    """What a run did: its exit code, and what it told."""

    code: int = 0
    notices: list[Notice] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    files: int = 0
    """Data files that were planned to be read."""

    @property
    def told(self) -> str:
        """All notices as one text."""
        return "\n".join(notice.sentence() for notice in self.notices)

    @property
    def stopped(self) -> dict[str, str]:
        """Why tables stopped, by their names."""
        return {str(problem.table_id): problem.sentence() for problem in self.problems}


class Bucket:
    """A changefeed's folder and a target for it. ``options`` are the query of its URI, ``changefeed`` the text of its TOML."""

    def __init__(self, folder: Path, options: str = OPTIONS, changefeed: str = "") -> None:
        self.folder = StorageFolder(folder / "feed")
        self.root = self.folder.root
        self.write, self.checkpoint = self.folder.write, self.folder.checkpoint
        self.options = options
        self.database = folder / "target.duckdb"
        self.shapes: dict[tuple[str, int], tuple[dict[str, Any], ...]] = {}
        self.changefeed = folder / "changefeed.toml" if changefeed else None
        if self.changefeed:
            self.changefeed.write_text(changefeed, encoding="utf-8")

    @property
    def sink(self) -> str:
        return f"duckdb://{self.database}"

    def consumer(self) -> Consumer:
        """Polls and reads the folder by hand, without a target."""
        return self.folder.consumer(self.options, str(self.changefeed) if self.changefeed else None)

    def schema(
        self,
        table: str,
        version: int,
        shape: str | tuple[dict[str, Any], ...] = "id,v",
        statement: str = "",
        type: int | None = None,
        *,
        database: str = "test",
        parent: str = "",
    ) -> str:
        """``S(table, version, shape, statement, type)``; an empty ``table`` makes it database-level. Returns the path.

        ``parent`` is the folder when it is not ``database/table`` (table-id mode).
        """
        columns = tuple(COLUMNS[name] for name in shape.split(",")) if isinstance(shape, str) else shape
        raw = self.folder.schema_text(table, version, statement, columns if table else (), database)
        if type is not None:
            raw = json.dumps(json.loads(raw) | {"Type": type}, indent=4, ensure_ascii=False).encode()
        folder = parent or (f"{database}/{table}" if table else database)
        self.shapes[folder, version] = columns
        path = f"{folder}/meta/schema_{version}_{schema_checksum(raw):010d}.json"
        self.write(path, raw)
        return path

    def create(self, table: str, version: int = 100, shape: str = "id,v", *, database: str = "test") -> str:
        """The schema file of a CREATE TABLE."""
        definitions = {"id": "`id` INT PRIMARY KEY", "v": "`v` VARCHAR(16)", "c": "`c` INT DEFAULT 7"}
        statement = f"CREATE TABLE `{table}` ({','.join(definitions[name] for name in shape.split(','))})"
        return self.schema(table, version, shape, statement, 3, database=database)

    def rows(self, place: str, *rows: Row, database: str = "test", name: str = "", terminator: str = "\n") -> str:
        """A data file ``t/100/1``, ``p/100/112/1``, ``t/100/2024-06-05/1``, with its index. Returns its path.

        ``name`` is the table in the rows when it is not the path's first part. A last part that is no number is taken as the
        file's whole name.
        """
        directory, _, file = f"{database}/{place}".rpartition("/")
        file = f"CDC{int(file):06d}.csv" if file.isdecimal() else file
        table = name or place.split("/", maxsplit=1)[0]
        columns = self._columns(database, table, directory)
        self.write(f"{directory}/{file}", "".join(csv_record(row, table, database, columns) + terminator for row in rows))
        self.write(f"{directory}/meta/CDC.index", f"{file}\n")
        return f"{directory}/{file}"

    def _columns(self, database: str, table: str, directory: str) -> tuple[dict[str, Any], ...]:
        """The shape that was written for the version of the directory, else ``id,v``."""
        parent = f"{database}/{table}"
        version = directory.removeprefix(f"{parent}/").split("/")[0]
        return self.shapes.get((parent, int(version)), (ID, V)) if version.isdecimal() else (ID, V)

    def decoded(
        self, raw: bytes, columns: tuple[dict[str, Any], ...] = (ID, V), statement: str = ""
    ) -> tuple[list[Read], SplitReport]:
        """The rows of a data file of ``test.t`` with this content, as its source reads them, and the report on it."""
        self.schema("t", 100, columns, statement)
        self.write(f"test/t/100/CDC000001.{'json' if 'canal-json' in self.options else 'csv'}", raw)
        self.checkpoint(latest_tso(time.time()))
        consumer = self.consumer()
        consumer.cut()
        (report,) = consumer.reports
        return [_read(row) for _, _, row in consumer.rows], report

    def run(
        self,
        sink: str = "",
        ledger: str = DEFAULT_LEDGER,
        *,
        adopt: bool = False,
        allow_non_transactional: bool = False,
        name: str = "default",
        **options: Any,
    ) -> Ran:
        """``headrace run --once``; ``options`` are those of its loop. Raises HeadraceError as the command would tell it."""
        definition = Definition(
            source=self.folder.uri(self.options),
            sink=sink or self.sink,
            adopt=adopt,
            name=name,
            allow_non_transactional=allow_non_transactional,
            ledger=ledger,
            changefeed=str(self.changefeed) if self.changefeed else None,
            options=RunOptions(**({"once": True} | options)),
        )
        display = _Display()
        # A run that is to end looks again at what may only be on its way; here nothing is.
        with patch.object(loop, "_LOOK_PAUSE", 0.01):
            display.ran.code = PipelineRun(definition, display, LocalEngine()).run()  # type: ignore[arg-type]
        return display.ran

    def at(self, checkpoint: int, **options: Any) -> Ran:
        """``C = checkpoint``, and a run."""
        self.checkpoint(checkpoint)
        return self.run(**options)

    def state(self, table: str = "t", database: str = "test") -> list[tuple[Any, ...]] | None:
        """The rows of a table in the target, sorted; ``None`` when there is no such table."""
        if not self.database.exists() or (database, table) not in self.tables():
            return None
        with duckdb.connect(str(self.database), read_only=True) as connection:
            return sorted(connection.execute(f"SELECT * FROM {_quoted(database)}.{_quoted(table)}").fetchall(), key=repr)

    def tables(self) -> set[tuple[str, str]]:
        """The tables in the target, but for the ledger's."""
        with duckdb.connect(str(self.database), read_only=True) as connection:
            found = connection.execute("SELECT schema_name, table_name FROM duckdb_tables() WHERE schema_name <> 'headrace'")
            return set(found.fetchall())


class _Display(Recorder):
    """Remembers what a run told."""

    def __init__(self) -> None:
        super().__init__()
        self.ran = Ran()

    def cut_started(self, cut: Cut) -> None:
        self.ran.files += sum(len(part.splits) for part in cut.rounds)

    def notice(self, notice: Notice) -> None:
        self.ran.notices.append(notice)

    def table_stopped(self, problem: Problem) -> None:
        self.ran.problems.append(problem)


def _read(row: Mapping[str, object]) -> Read:
    kind, commit_ts, _, *values = row.values()
    return ("I-+D"[RowKind(kind)], commit_ts, *values)  # type: ignore[arg-type]


def csv_record(row: Row, table: str, database: str, columns: tuple[Mapping[str, Any], ...] = (ID, V)) -> str:
    """A record in TiCDC's default dialect with a commit ts, without its terminator."""
    operation, ts, *values = row.split() if isinstance(row, str) else row
    operation = str(operation)
    fields = [_text(operation[0]), _text(table), _text(database), str(ts)]
    if operation[1:]:
        fields.append("true" if operation[1:] == "+" else "false")
    for index, value in enumerate(values):
        kind = str(columns[index]["ColumnType"]) if index < len(columns) else "VARCHAR"
        if value is None or value == "NULL":
            fields.append("\\N")
        else:
            fields.append(str(value) if kind.startswith(_NUMBERS) or "INT" in kind else _text(str(value)))
    return ",".join(fields)


def _text(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def ledger(bucket: Bucket) -> LedgerState:
    """The pipeline's record in the DuckDB file."""
    return ledger_at(bucket.sink)


def ledger_at(uri: str) -> LedgerState:
    """The pipeline's record in the target of this URI."""
    with open_sink(uri) as sink:
        assert sink.ledger is not None
        state = sink.ledger.peek("default")
        sink.ledger.close()
    assert state is not None
    return state


def decide(bucket: Bucket, verdict: Verdict, statement: str = "", identity: str = "") -> None:
    """A person's word on the one schema change that waits, or on the one with this identity."""
    with open_sink(bucket.sink) as sink:
        assert sink.ledger is not None
        state = sink.ledger.peek("default")
        assert state is not None
        waiting = [entry.identity for entry in state.journal.values() if entry.state is JournalState.WAITING]
        (waits,) = [identity] if identity else waiting
        sink.ledger.decide("default", Decision(waits, verdict, statement))
        sink.ledger.close()


def tables(bucket: Bucket, *names: str) -> None:
    """Tables with two rows each, from 100 on."""
    for number, name in enumerate(names):
        bucket.create(name, 100 + number)
        later = [f"I 250 9 {name}9"] if name == "o" else []  # the others have changed by then
        bucket.rows(f"{name}/{100 + number}/1", f"I 110 1 {name}1", f"I 111 2 {name}2", *later)


def ask(bucket: Bucket, *requests: TableRequest) -> None:
    """What a person asks of stopped tables."""
    with open_sink(bucket.sink) as sink:
        assert sink.ledger is not None
        for request in requests:
            sink.ledger.request("default", request)
        sink.ledger.close()
