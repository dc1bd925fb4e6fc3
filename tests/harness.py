"""End-to-end conformance: real TiCDC output in, a target's rows out, compared with what the upstream held.

A :class:`Case` is one folder of ``tests/conformance/ticdc-storage``; its README says how the data came about and how
values are written. Targets answer in that same form, so that a comparison is one of texts.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from headrace.cli.display import RunDisplay
from headrace.cli.output import make_output
from headrace.engine.run_options import RunOptions
from headrace.engine.spark import SparkEngine, session_settings
from headrace.errors import HeadraceError
from headrace.model.table import TableId, folded_name
from headrace.pipeline.definition import Definition
from headrace.pipeline.runner import PipelineRun
from headrace.transform.filters import TableFilter
from targets import Target, normal_value, sort_rows

CASES = Path(__file__).parent / "conformance" / "ticdc-storage"

_SCHEMA_FILE = re.compile(r"^schema_(\d+)_\d{10}\.json$")
_DATA_FILE = re.compile(r"^CDC(?:_(\d+)_)?(\d{6,})\.(?:csv|json)$")
_COMMIT_TS = re.compile(rb"\b47060[56]\d{12}\b")  # all cases were written within one hour
_ROWS_SHOWN = 5


@dataclass(frozen=True)
class ExpectedTable:
    """A table as the upstream held it. ``types`` are MySQL's own, by column name; rows are texts in column order."""

    database: str
    name: str
    kind: str
    types: dict[str, str]
    primary_key: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]
    create: str = ""

    @property
    def is_view(self) -> bool:
        return self.kind == "VIEW"


@dataclass(frozen=True)
class State:
    """All tables at one checkpoint (TSO)."""

    checkpoint_ts: int
    databases: frozenset[str]
    tables: tuple[ExpectedTable, ...]


@dataclass(frozen=True)
class Case:
    """One conformance case."""

    name: str

    @property
    def folder(self) -> Path:
        return CASES / self.name

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @cached_property
    def description(self) -> dict[str, Any]:
        described: dict[str, Any] = json.loads((self.folder / "case.json").read_bytes())
        return described

    @cached_property
    def final(self) -> State:
        """The state that everything in ``data`` leads to."""
        return _state(json.loads((self.folder / "expected.json").read_bytes()))

    @cached_property
    def intermediate(self) -> tuple[State, ...]:
        """The states at the checkpoints on the way, in their order."""
        path = self.folder / "states.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        return tuple(_state(json.loads(line)) for line in lines)

    @property
    def has_commit_ts(self) -> bool:
        """Whether rows say when they were committed: without it only the final state is promised."""
        toml, params = self.description["changefeed_toml"], self.description["sink_uri_params"]
        return "include-commit-ts = true" in toml or "enable-tidb-extension=true" in params

    @property
    def unreplicated_columns(self) -> frozenset[str]:
        """The columns that a column selector keeps out of the rows."""
        sink = tomllib.loads(self.description["changefeed_toml"])["sink"]
        selectors = sink.get("column-selectors", [])
        return frozenset(name[1:] for selector in selectors for name in selector["columns"] if name.startswith("!"))

    def source_uri(self, data: Path | None = None) -> str:
        """The source's URI, for this case's data or a copy of it. A time zone is told, since no bucket tells it."""
        uri = f"{(data or self.data).resolve().as_uri()}?{self.description['sink_uri_params']}"
        return f"{uri}&time-zone={quote(self.description['ticdc_tz'], safe='')}"

    def write_changefeed(self, folder: Path) -> Path:
        """Writes the changefeed's configuration file and returns its path."""
        path = folder / "changefeed.toml"
        path.write_text(self.description["changefeed_toml"], encoding="utf-8")
        return path


def all_cases() -> list[Case]:
    return [Case(path.name) for path in sorted(CASES.iterdir()) if path.is_dir()]


def three_steps(case: Case) -> list[State]:
    """At most three states: up to two checkpoints on the way, then the end."""
    states = [state for state in case.intermediate if state.checkpoint_ts < case.final.checkpoint_ts]
    chosen = states if len(states) < 3 else [states[0], states[-1]]
    return [*(chosen if case.has_commit_ts else []), case.final]


def reveal(case: Case, folder: Path, checkpoint_ts: int, *, whole: bool = False) -> None:
    """Brings ``folder`` to what the bucket may have looked like when ``metadata`` said this checkpoint.

    A schema file is there once the checkpoint has passed its version, a data file once its smallest commit ts is reached;
    it may hold later rows too. ``whole``: all files are there, and only ``metadata`` holds the consumer back.
    """
    for path in sorted(p for p in case.data.rglob("*") if p.is_file()):
        target = folder / path.relative_to(case.data)
        if path.suffix != ".index" and not target.exists() and (whole or _visible(path, checkpoint_ts)):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    _write_indexes(folder)
    (folder / "metadata").write_text(f'{{"checkpoint-ts":{checkpoint_ts}}}', encoding="utf-8")


def _visible(path: Path, checkpoint_ts: int) -> bool:
    schema_file = _SCHEMA_FILE.match(path.name)
    if schema_file:
        return int(schema_file[1]) < checkpoint_ts
    if not _DATA_FILE.match(path.name):
        return False
    return min(commit_timestamps(path), default=0) <= checkpoint_ts


def commit_timestamps(path: Path) -> set[int]:
    """The commit ts in a data file; empty where its rows carry none."""
    return {int(stamp) for stamp in _COMMIT_TS.findall(path.read_bytes())}


def _write_indexes(folder: Path) -> None:
    newest: dict[Path, tuple[int, str]] = {}
    for path in folder.rglob("CDC*"):
        match = _DATA_FILE.match(path.name)
        if match and path.is_file():
            index = path.parent / "meta" / (f"CDC_{match[1]}.index" if match[1] else "CDC.index")
            newest[index] = max(newest.get(index, (0, "")), (int(match[2]), path.name))
    for index, (_, name) in newest.items():
        index.parent.mkdir(exist_ok=True)
        index.write_text(f"{name}\n", encoding="utf-8")


@cache
def spark_engine() -> SparkEngine:
    """The one Spark session of a test process."""
    return SparkEngine(session_settings({"spark.master": "local[2,4]"}, {}))


def run_once(
    source_uri: str, sink_uri: str, changefeed: Path | None = None, name: str = "default", engine: Any = None, **more: Any
) -> int:
    """Catches up and returns the exit code, in this process and on its one Spark session unless ``engine`` is another.

    ``more`` are fields of the definition (``adopt``) or of its run options (``until``, ``until_end``, ``quiet``, ``start``,
    ``includes``, ``given``).
    """
    options = {key: more.pop(key) for key in ("until", "until_end", "quiet", "start", "includes", "given") if key in more}
    definition = Definition(
        source=source_uri,
        sink=sink_uri,
        name=name,
        changefeed=str(changefeed) if changefeed else None,
        options=RunOptions(once=not options.get("until_end"), **options),
        **more,
    )
    with RunDisplay(make_output(json=False)) as display:
        try:
            return PipelineRun(definition, display, engine or spark_engine()).run()
        except HeadraceError as error:
            sys.stderr.write(f"error: {error}\n")
            return error.exit_code


def assert_state(target: Target | Included, state: State, unreplicated: frozenset[str] = frozenset()) -> None:
    """Fails, with a difference that can be read, unless the target holds exactly the tables and rows of ``state``.

    Columns are compared by name, whatever their order; ``unreplicated`` ones only have to be there. A database without
    tables may be missing: where it was created before the changefeed, nothing in the data tells of it.
    """
    differences = list(_differences(target, state, unreplicated))
    assert not differences, "\n".join([f"{target} differs from the upstream at {state.checkpoint_ts}:", *differences])


def assert_tables(target: Target, found: Collection[tuple[str, str]], state: State) -> None:
    """Fails, with a difference that can be read, unless ``found`` are the tables of ``state``, with its rows."""
    wanted = {(table.database, table.name) for table in state.tables}
    differences = [f"  {'.'.join(name)} is missing, or one too many" for name in sorted(wanted.symmetric_difference(found))]
    for table in state.tables:
        if (table.database, table.name) in found:
            differences += _table_differences(target, table, frozenset())
    assert not differences, "\n".join([f"{target} differs from the upstream at {state.checkpoint_ts}:", *differences])


class Included:
    """What a target holds of the tables that ``--tables`` includes."""

    def __init__(self, target: Target, tables: str) -> None:
        self._target, self._filter = target, TableFilter.parse(tables)

    def tables(self) -> set[tuple[str, str]]:
        return {name for name in self._target.tables() if self._filter.includes(TableId(*name))}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def __str__(self) -> str:
        return f"{self._target}, its tables {','.join(self._filter.patterns) or '*.*'},"


def included(state: State, tables: str) -> State:
    """The state without the tables that ``--tables`` leaves out."""
    chosen = TableFilter.parse(tables)
    return replace(state, tables=tuple(t for t in state.tables if chosen.includes(TableId(t.database, t.name))))


def _differences(target: Target | Included, state: State, unreplicated: frozenset[str]) -> Iterator[str]:
    found = target.tables()
    wanted = {(table.database, table.name) for table in state.tables}
    for database, name in sorted(wanted - found):
        yield f"  table {database}.{name} is missing"
    for database, name in sorted(found - wanted):
        yield f"  table {database}.{name} should not be there"
    for database in sorted(target.databases() - state.databases):
        yield f"  database {database} should not be there"
    for table in state.tables:
        if (table.database, table.name) in found and not table.is_view:
            yield from _table_differences(target, table, unreplicated)


def _table_differences(target: Target | Included, table: ExpectedTable, unreplicated: frozenset[str]) -> Iterator[str]:
    name = f"{table.database}.{table.name}"
    folded = {folded_name(column) for column in table.types}
    columns = {folded_name(column) for column in target.columns(table.database, table.name)}
    if columns != folded:
        yield f"  {name}: columns missing: {sorted(folded - columns)}, too many: {sorted(columns - folded)}"
        return
    kept = {column: type_text for column, type_text in table.types.items() if column not in unreplicated}
    positions = [index for index, column in enumerate(table.types) if column in kept]
    expected = sort_rows(
        tuple(target.held(t, normal_value(t, row[index])) for index, t in zip(positions, kept.values(), strict=True))
        for row in table.rows
    )
    actual = sort_rows(target.rows(table.database, table.name, kept))
    yield from _row_differences(name, expected, actual)


def _row_differences(name: str, expected: list[Any], actual: list[Any]) -> Iterator[str]:
    missing, extra = list(expected), []
    for row in actual:
        if row in missing:
            missing.remove(row)
        else:
            extra.append(row)
    for what, rows in (("missing", missing), ("too many", extra)):
        for row in rows[:_ROWS_SHOWN]:
            yield f"  {name}: row {what}: {row!r}"
        if len(rows) > _ROWS_SHOWN:
            yield f"  {name}: … and {len(rows) - _ROWS_SHOWN} more rows {what}"


def _state(document: dict[str, Any]) -> State:
    return State(document["checkpoint_ts"], frozenset(document["databases"]), tuple(map(_table, document["tables"])))


def _table(document: dict[str, Any]) -> ExpectedTable:
    return ExpectedTable(
        document["schema"],
        document["table"],
        document["type"],
        {column["name"]: column["type"] for column in document.get("columns", ())},
        tuple(document.get("primary_key") or ()),
        tuple(map(tuple, document.get("rows") or ())),
        document.get("create", ""),
    )
