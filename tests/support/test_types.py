"""Every type of TiDB at its limits, in both protocols, on both targets: what is in the target is what was upstream.

Each case is a table. Its rows are inserted in a first cut; in a second one rows are updated and deleted, by keys of every type
that can be one. What is read back is compared as it is: strings and binary values byte for byte, floats bit for bit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from recorder import DUCKDB, DUCKDB_LENIENT, MARIADB, record
from type_cases import CASES, ZERO_DATES, TypeCase

from following import Recorder
from headrace.engine.run_options import RunOptions
from headrace.model.outcome import Notice, Problem
from headrace.model.table import Column, Generated, TableId, TableSchema
from headrace.model.tso import tso_from_ms
from headrace.model.types import ColumnType, TypeKind
from headrace.pipeline.definition import Definition
from headrace.pipeline.runner import PipelineRun
from headrace.testing.engine import LocalEngine
from headrace.testing.ticdc_options import Protocol
from headrace.testing.ticdc_writer import RowChange, TicdcWriter, split_key_updates
from servers import MariaDb
from targets import DuckDbTarget, MariaDbTarget, Target, normal_value

pytestmark = pytest.mark.server

DATABASE = "types"
START_MS = 1_750_000_000_000
INT = ColumnType(TypeKind.INT)
UPDATED, DELETED = 1000, 2000
_USUAL = frozenset({None, "utf8mb4"})
_NUMBERS = frozenset({TypeKind.DECIMAL, TypeKind.FLOAT, TypeKind.DOUBLE})


@dataclass(frozen=True)
class Way:
    """How the files are written and read. ``statements``: tables come with their CREATE TABLE, else as a shape only."""

    protocol: Protocol
    options: Mapping[str, Any]
    statements: bool
    time_zone: str = "UTC"
    local_infile: bool = True


CSV = {"include_commit_ts": True, "output_old_value": True}
CANAL = {"enable_tidb_extension": True}
WAYS = {
    "csv": Way("csv", CSV, statements=True),
    "csv-hex-escaped": Way(
        "csv", CSV | {"binary_encoding_method": "hex", "quote": "", "delimiter": "[*]"}, False, "Asia/Shanghai", local_infile=False
    ),
    "canal-json": Way("canal-json", CANAL, True, "America/New_York", local_infile=False),
    "canal-json-content-compatible": Way("canal-json", CANAL | {"content_compatible": True}, statements=False),
}


@dataclass
class Place:
    """A target as the page names it. Its answers are texts, as in ``targets``."""

    name: str
    target: Target
    uri: str
    query: Callable[[str], list[tuple[Any, ...]]]

    def columns(self) -> dict[str, str]:
        """The type of ``v`` in the target's catalogue, by table."""
        where = f"WHERE table_schema = '{DATABASE}' AND column_name = 'v'"
        if self.name != MARIADB:
            return dict(self.query(f"SELECT table_name, data_type FROM information_schema.columns {where}"))
        found = self.query(f"SELECT TABLE_NAME, COLUMN_TYPE, CHARACTER_SET_NAME FROM information_schema.COLUMNS {where}")
        return {
            table: re.sub(r"^(enum|set)\(.*", r"\1(…)", kind) + (f" CHARACTER SET {charset}" if charset not in _USUAL else "")
            for table, kind, charset in found
        }


@dataclass
class Story:
    """What happens to a case's table: a transaction, then one or two more; and its rows afterwards by their first column."""

    case: TypeCase
    table_id: TableId
    schema: TableSchema
    first: list[RowChange]
    second: list[list[RowChange]]
    rows: dict[object, object]

    @property
    def statement(self) -> str:
        """The table as TiDB would have it created."""
        value = f"`v` {self.case.definition}" + (" NOT NULL" if self.case.key else "")
        other = "`n` INT" if self.case.key else "`id` INT NOT NULL"
        return (
            f"CREATE TABLE `{self.table_id.database}`.`{self.table_id.table}` "
            f"({other},{value},PRIMARY KEY(`{self.schema.handle_key[0]}`))"
        )

    @property
    def type_text(self) -> str:
        """The type for ``targets``; texts that it would bring into a normal form are compared as they are."""
        kind, scale = self.case.type.kind, self.case.type.scale
        if kind in (TypeKind.JSON, TypeKind.VECTOR):
            return "longtext"
        return f"{kind.lower()}({scale})" if scale and kind not in _NUMBERS else kind.lower()

    def held(self, target: Target) -> dict[object, object]:
        """The target's rows in the form of ``rows``."""
        key, other = ("v", "n") if self.case.key else ("id", "v")
        types = {"v": self.type_text, "n" if self.case.key else "id": "int"}
        found = target.rows(self.table_id.database, self.table_id.table, {name: types[name] for name in (key, other)})
        rows: dict[object, object] = {row[0]: row[1] for row in found}
        assert len(rows) == len(found), f"{self.case.row} has rows with equal keys: {found}"
        return rows

    def text(self, value: object) -> str | None:
        """A canonical value as ``targets`` tells it."""
        if value is None or isinstance(value, bytes):
            return None if value is None else value.hex()
        return normal_value(self.type_text, repr(value) if isinstance(value, float) else str(value))


def tell(number: int, case: TypeCase) -> Story:
    return _keyed_story(number, case) if case.key else _plain_story(number, case)


def _plain_story(number: int, case: TypeCase) -> Story:
    table_id = TableId(DATABASE, f"t{number}")
    columns = (Column("id", INT, nullable=False, primary_key=True), Column("v", case.type))
    values = [None, *case.values]
    story = Story(case, table_id, TableSchema(table_id, columns, ("id",)), [], [[]], {})

    def row(key: int, value: object) -> dict[str, object]:
        return {"id": key, "v": value}

    for place, value in enumerate(values):
        before, after = row(UPDATED + place, values[place - 1]), row(UPDATED + place, value)
        story.first += [RowChange(after=row(place, value)), RowChange(after=before), RowChange(after=row(DELETED + place, value))]
        story.second[0] += [RowChange(before, after), RowChange(before=row(DELETED + place, value))]
        story.rows |= {str(place): story.text(value), str(UPDATED + place): story.text(value)}
    return story


def _keyed_story(number: int, case: TypeCase) -> Story:
    """Rows at even places are updated, those at odd ones deleted; then the first row takes the key of the second one."""
    table_id = TableId(DATABASE, f"k{number}")
    columns = (Column("n", INT), Column("v", case.type, nullable=False, primary_key=True))
    schema = TableSchema(table_id, columns, ("v",))
    story = Story(case, table_id, schema, [], [[]], {})
    for place, value in enumerate(case.values):
        before, after = {"n": place, "v": value}, {"n": 100 + place, "v": value}
        story.first.append(RowChange(after=before))
        story.second[0].append(RowChange(before, after) if place % 2 == 0 else RowChange(before=before))
        if place % 2 == 0:
            story.rows[story.text(value)] = str(100 + place)
    taken, given = case.values[:2]
    moves = [RowChange({"n": 100, "v": taken}, {"n": 100, "v": given})]
    story.rows[story.text(given)] = story.rows.pop(story.text(taken))
    if case.respelled:
        old, new = case.respelled
        kept = case.values.index(old) + 100
        moves.append(RowChange({"n": kept, "v": old}, {"n": kept, "v": new}))
        story.rows[new] = story.rows.pop(old)
    story.second.append(split_key_updates(schema, moves))
    return story


class Observed(Recorder):
    """Keeps what a run says."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: dict[TableId, Problem] = {}
        self.notices: list[str] = []

    def notice(self, notice: Notice) -> None:
        self.notices.append(notice.sentence())

    def table_stopped(self, problem: Problem) -> None:
        self.problems[problem.table_id] = problem


class Feed:
    """A changefeed's output that is written in the given way."""

    def __init__(self, folder: Path, way: Way) -> None:
        self.way = way
        self.writer = TicdcWriter(folder / "data", way.protocol, time_zone=way.time_zone, **way.options)
        self.toml = folder / "changefeed.toml"
        self.toml.write_text(self.writer.options.changefeed_toml(), encoding="utf-8")
        self.ts = tso_from_ms(START_MS)

    def next_ts(self) -> int:
        self.ts += tso_from_ms(1)
        return self.ts

    def create(self, story: Story) -> None:
        statement = story.statement if self.way.statements or story.case.told else ""
        self.writer.schema_change(story.table_id, self.next_ts(), statement, story.schema, 3 if statement else 0)

    def run(self, sink_uri: str) -> Observed:
        """Publishes a checkpoint and brings the target there."""
        self.writer.checkpoint(self.next_ts())
        source = f"{self.writer.uri}&time-zone={self.way.time_zone}"
        definition = Definition(source=source, sink=sink_uri, changefeed=str(self.toml), options=RunOptions(once=True))
        observed = Observed()
        PipelineRun(definition, observed, LocalEngine()).run()  # type: ignore[arg-type]
        return observed


@contextmanager
def opened(name: str, folder: Path, way: Way, request: pytest.FixtureRequest) -> Iterator[Place]:
    """An empty target."""
    if name == MARIADB:
        server: MariaDb = request.getfixturevalue("mariadb_server")
        server.fresh()

        def ask(statement: str) -> list[tuple[Any, ...]]:
            with server.connect() as connection, connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())

        yield Place(name, MariaDbTarget(server), server.uri(**({} if way.local_infile else {"local_infile": "off"})), ask)
        return
    path = folder / "target.duckdb"
    target = DuckDbTarget(path)

    def look(statement: str) -> list[tuple[Any, ...]]:
        with duckdb.connect(str(path)) as connection:
            return list(connection.execute(statement).fetchall())

    yield Place(name, target, target.uri if name == DUCKDB_LENIENT else f"duckdb://{path}", look)


@dataclass
class Outcome:
    """A target after both cuts."""

    place: Place
    stories: list[Story]
    problems: Mapping[TableId, Problem]


RUNS = [(name, way) for name in (MARIADB, DUCKDB_LENIENT) for way in WAYS] + [(DUCKDB, "csv"), (DUCKDB, "canal-json")]


@pytest.fixture(scope="module", params=RUNS, ids=[f"{name.replace(' with `', '?').rstrip('`')}-{way}" for name, way in RUNS])
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    name, way = request.param[0], WAYS[request.param[1]]
    folder = tmp_path_factory.mktemp("types")
    with opened(name, folder, way, request) as place:
        feed = Feed(folder, way)
        feed.writer.schema_change(TableId(DATABASE), feed.next_ts(), f"CREATE DATABASE `{DATABASE}`", None, 1)
        stories = [tell(number, case) for number, case in enumerate(CASES)]
        for story in stories:
            feed.create(story)
            feed.writer.rows(story.table_id, feed.next_ts(), story.first)
        feed.run(place.uri)
        for story in stories:
            for changes in story.second:
                feed.writer.rows(story.table_id, feed.next_ts(), changes)
        problems = feed.run(place.uri).problems
        # One connection that stays open makes all others to the file fast.
        with duckdb.connect(str(folder / "target.duckdb")):
            yield Outcome(place, stories, problems)


AS_NULL = "Set zero-dates=null in the sink's URI to write such dates as NULL."
AS_TEXT = (
    "column v: DuckDB holds decimals of at most 38 digits, this column has {}. Set unsupported=text in the sink's URI to hold it"
)
KEY = "It is part of the key: change it in the source, or leave the table out with --tables."
REFUSED = {
    (MARIADB, "`VARCHAR(20) CHARACTER SET latin1`, what TiDB lets in beyond it"): (
        "row id=1, column v, value '中文': the target refused a value: Incorrect string value",
        "Give the target's column a character set that holds it, such as utf8mb4.",
    ),
    (MARIADB, "`ENUM('a','b')`, the invalid value (index 0)"): (
        "row id=2, column v, value '': the target refused a value: Data truncated for column 'v'",
        "Give the row a member in the source, or add '' to the members of the target's column.",
    ),
    (MARIADB, "`JSON`, 60 levels deep"): (
        "row id=2, column v, value '[[[[[[[[[[",
        "MariaDB checks JSON, and takes at most 32 levels. Drop the check in the target: ALTER TABLE `types`.",
    ),
    (DUCKDB, "`DECIMAL(39,0)`"): (AS_TEXT.format(39),),
    (DUCKDB, "`DECIMAL(65,0)`"): (AS_TEXT.format(65),),
    (DUCKDB, "`DECIMAL(65,30)`"): (AS_TEXT.format(65),),
    (DUCKDB, "`DECIMAL(65,30)` as key"): (AS_TEXT.format(65),),
    (DUCKDB, "`DATE`, zero and impossible dates"): (
        "row id=2, column v, value '0000-00-00': DuckDB cannot hold this value of type DATE.",
        AS_NULL,
    ),
    (DUCKDB, "`DATETIME`, zero and impossible dates"): (
        "row id=2, column v, value '0000-00-00 00:00:00': DuckDB cannot hold this value of type DATETIME.",
        AS_NULL,
    ),
    (DUCKDB, "`TIMESTAMP(3)`, the zero timestamp"): (
        "row id=2, column v, value '0000-00-00 00:00:00.000': DuckDB cannot hold this value of type TIMESTAMP.",
        AS_NULL,
    ),
} | {
    (name, "`DATETIME` as key, the zero date"): (
        "row v=0000-00-00 00:00:00, column v, value '0000-00-00 00:00:00': DuckDB cannot hold this value of type DATETIME.",
        KEY,
    )
    for name in (DUCKDB, DUCKDB_LENIENT)
}
"""What stops a table, and the parts of the sentence that says so."""
BECOMES: Mapping[tuple[str, str], Mapping[str, str | None]] = {
    (MARIADB, "`FLOAT`, negative zero"): {"-0": "0"},
    (MARIADB, "`DOUBLE`, negative zero"): {"-0": "0"},
    (DUCKDB_LENIENT, "`DATE`, zero and impossible dates"): dict.fromkeys(ZERO_DATES),
    (DUCKDB_LENIENT, "`DATETIME`, zero and impossible dates"): {f"{date} 00:00:00": None for date in ZERO_DATES},
    (DUCKDB_LENIENT, "`TIMESTAMP(3)`, the zero timestamp"): {"0000-00-00 00:00:00.000": None},
}
"""What a target makes of values that it has no room for, where that is its policy."""


def test_a_value_is_in_the_target_as_it_was_upstream_or_it_is_refused(outcome: Outcome) -> None:
    place = outcome.place
    columns = place.columns()
    failures = []
    for story in outcome.stories:
        row, column = story.case.row, columns.get(story.table_id.table)
        problem = outcome.problems.get(story.table_id)
        if problem is None and (place.name, row) not in REFUSED:
            differences = differing(story, story.held(place.target))
            if differences != BECOMES.get((place.name, row), {}):
                failures.append(f"{row} ({story.table_id}, {column}) differs: {differences}")
            record("types", row, place.name, held_cell(column, differences))
            continue
        sentence = problem.sentence() if problem is not None else "it was not refused"
        parts = (f"table {story.table_id}, ", *REFUSED.get((place.name, row), ("no refusal",)))
        if not all(part in sentence for part in parts):
            failures.append(f"{row} ({story.table_id}, {column}) is refused otherwise: {sentence}")
        if column is not None and story.held(place.target):
            failures.append(f"{row} ({story.table_id}, {column}) was refused, but has rows")
        if problem is not None:
            record("types", row, place.name, refused_cell(column, problem))
    assert not failures, "\n".join(failures)


@pytest.fixture(params=[MARIADB, DUCKDB, DUCKDB_LENIENT])
def target_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


REPAIRS = {
    "`VARCHAR(20) CHARACTER SET latin1`, what TiDB lets in beyond it": "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "`ENUM('a','b')`, the invalid value (index 0)": "ENUM('a','b','')",
    "`JSON`, 60 levels deep": "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
}
"""The definitions that make room in MariaDB, as the messages ask for it."""


def refused_by(name: str) -> list[TypeCase]:
    return [case for case in CASES if (name, case.row) in REFUSED and (DUCKDB_LENIENT, case.row) not in REFUSED]


@pytest.mark.parametrize("name", [MARIADB, DUCKDB])
def test_a_refused_table_catches_up_when_what_the_message_asks_for_is_done(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    way = WAYS["csv"]
    with opened(name, tmp_path, way, request) as place:
        feed, stories = Feed(tmp_path, way), [tell(number, case) for number, case in enumerate(refused_by(name))]
        for story in stories:
            feed.create(story)
            for changes in (story.first, *story.second):
                feed.writer.rows(story.table_id, feed.next_ts(), changes)
        stopped = feed.run(place.uri).problems
        assert stopped.keys() == {story.table_id for story in stories}
        for story in stories if name == MARIADB else ():
            definition = REPAIRS[story.case.row]
            assert "ALTER TABLE" not in stopped[story.table_id].hint or f"MODIFY `v` {definition}." in stopped[story.table_id].hint
            place.query(f"ALTER TABLE {story.table_id} MODIFY v {definition}")
        repaired = f"{place.uri}?unsupported=text&zero-dates=null" if name == DUCKDB else place.uri
        assert not feed.run(repaired).problems
        for story in stories:
            becomes = BECOMES.get((DUCKDB_LENIENT, story.case.row), {}) if name == DUCKDB else {}
            assert differing(story, story.held(place.target)) == becomes, story.case.row


FIRST, AGAIN = "2024-11-03 05:30:00", "2024-11-03 06:30:00"
"""Half past one in New York, before and after the clocks were put back."""


@pytest.mark.parametrize("protocol", ["csv", "canal-json"])
def test_a_timestamp_in_the_hour_that_comes_twice_is_taken_as_the_earlier_one(
    protocol: Protocol, target_name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    way = Way(protocol, CSV if protocol == "csv" else CANAL, statements=True, time_zone="America/New_York")
    case = TypeCase("TIMESTAMP", ColumnType(TypeKind.TIMESTAMP), (FIRST, AGAIN), "the hour that comes twice in TiCDC's zone")
    with opened(target_name, tmp_path, way, request) as place:
        feed, story = Feed(tmp_path, way), tell(0, case)
        feed.create(story)
        feed.writer.rows(story.table_id, feed.next_ts(), story.first)
        said = feed.run(place.uri).notices
        feed.writer.rows(story.table_id, feed.next_ts(), story.second[0])
        feed.run(place.uri)
        differences = differing(story, story.held(place.target))
        record("types", case.row, place.name, held_cell(place.columns()[story.table_id.table], differences))
    assert differences == {AGAIN: FIRST}
    assert [text for text in said if "America/New_York" in text and "--tz UTC" in text], said


GENERATED = TableId(DATABASE, "generated")
NOT_WRITTEN = -1
"""What the files say of the stored column, so that it shows whether somebody took it from there."""


@pytest.mark.parametrize("protocol", ["csv", "canal-json"])
def test_a_generated_column_has_its_value_and_is_not_written(
    protocol: Protocol, target_name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    way = Way(protocol, CSV if protocol == "csv" else CANAL, statements=True)
    columns = (
        Column("id", INT, nullable=False, primary_key=True),
        Column("a", INT),
        Column("v", INT, generated=Generated.VIRTUAL),
        Column("s", INT, generated=Generated.STORED),
    )
    statement = (
        "CREATE TABLE `types`.`generated` (`id` INT NOT NULL,`a` INT,`v` INT GENERATED ALWAYS AS (`a` + 1) VIRTUAL,"
        "`s` INT GENERATED ALWAYS AS (`a` * 2) STORED,PRIMARY KEY(`id`))"
    )
    with opened(target_name, tmp_path, way, request) as place:
        feed = Feed(tmp_path, way)
        feed.writer.schema_change(GENERATED, feed.next_ts(), statement, TableSchema(GENERATED, columns, ("id",)), 3)

        def row(key: int, a: int | None) -> dict[str, object]:
            return {"id": key, "a": a, "s": None if a is None else NOT_WRITTEN}

        feed.writer.rows(GENERATED, feed.next_ts(), [RowChange(after=row(n, n)) for n in (1, 2, 3)])
        feed.writer.rows(GENERATED, feed.next_ts(), [RowChange(after=row(4, None))])
        assert not feed.run(place.uri).problems
        feed.writer.rows(GENERATED, feed.next_ts(), [RowChange(row(2, 2), row(2, 20)), RowChange(before=row(3, 3))])
        assert not feed.run(place.uri).problems
        held = {(r[0], r[1]): r[2:] for r in place.target.rows(DATABASE, "generated", dict.fromkeys(("id", "a", "v", "s"), "int"))}
        assert {key: values[0] for key, values in held.items()} == {("1", "1"): "2", ("2", "20"): "21", ("4", None): None}
        stored = {key: values[1] for key, values in held.items()}
        computed = stored == {("1", "1"): "2", ("2", "20"): "40", ("4", None): None}
        assert computed or stored == {("1", "1"): "-1", ("2", "20"): "-1", ("4", None): None}
        column = place.columns()["generated"]
        record("types", "generated column, `VIRTUAL`", place.name, f"`{column}`, computed by the target")
        told = "computed by the target" if computed else "a plain column with the values of the files"
        record("types", "generated column, `STORED`", place.name, f"`{column}`, {told}")


def differing(story: Story, held: Mapping[object, object]) -> dict[object, object]:
    """Upstream's values and what the target has in their place; of whole rows, those that are not in both."""
    if story.case.key or story.rows.keys() != held.keys():
        found: dict[object, object] = dict.fromkeys(story.rows.items() - held.items(), "missing")
        return found | dict.fromkeys(held.items() - story.rows.items(), "too many")
    return {story.rows[key]: held[key] for key in held if held[key] != story.rows[key]}


def held_cell(column: str | None, differences: Mapping[object, object]) -> str:
    """A page's cell about values that were read back."""
    if not differences:
        return f"`{column}`, exact"
    became: dict[object, list[str]] = {}
    for value, held in differences.items():
        became.setdefault(held, []).append(f"`{value}`")
    told = [f"{', '.join(values)} become{'s' * (len(values) == 1)} {shown(held)}" for held, values in became.items()]
    return f"`{column}`, exact but for {'; '.join(told)}"


def shown(held: object) -> str:
    return "NULL" if held is None else f"`{held}`"


def refused_cell(column: str | None, problem: Problem) -> str:
    """A page's cell about a table that stopped."""
    if column is None:
        return f"refused: {problem.message}"
    value = problem.value or ""
    short = value if len(value) <= 24 else value[:24] + "…"
    name = f"`{problem.table_id.database}`.`{problem.table_id.table}`"
    return f"`{column}`, refused: `'{short}'`. {problem.hint.replace(name, '…')}"
