"""Every golden topic of TiDB's secondary binlog, from a real broker into every target."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from binlog_cases import ROOT, records
from harness import ExpectedTable, State, assert_state, run_once
from headrace.testing.engine import LocalEngine
from kafka_server import KafkaBroker, Record
from servers import MariaDb
from targets import DuckDbTarget, MariaDbTarget, Target

pytestmark = [pytest.mark.server, pytest.mark.pipeline]

CASES = ["basic", "ddl", "ddl-only", "generated", "keys", "restart", "seek", "timezone", "types", "zero-dates"]
MakeTarget = Callable[[], tuple[Target, str]]
_COLUMN = re.compile(r"^  `((?:[^`]|``)+)` ([a-z]+(?:\([^)]*\))?(?: unsigned)?)", re.MULTILINE)
_KEY = re.compile(r"^  PRIMARY KEY \(([^)]*)\)", re.MULTILINE)


@pytest.fixture(params=["mariadb", "duckdb"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Target, str]:
    """An empty target, and the sink's URI."""
    if request.param == "mariadb":
        server: MariaDb = request.getfixturevalue("mariadb")
        return MariaDbTarget(server), server.uri(any_database=True)
    target = DuckDbTarget(tmp_path / "target.duckdb")
    return target, target.uri


def final_state(case: str, target: Target) -> State:
    """What the upstream held, as far as the target has room for it: DuckDB is given no views."""
    document = json.loads((ROOT / case / "final_state.json").read_bytes())
    tables = tuple(map(_table, document["tables"]))
    tables = tuple(t for t in tables if not (t.is_view and isinstance(target, DuckDbTarget)))
    held = (replace(t, rows=tuple(tuple(map(target.held, t.types.values(), row)) for row in t.rows)) for t in tables)
    return State(0, frozenset(document["databases"]), tuple(held))


def _table(document: dict[str, Any]) -> ExpectedTable:
    text = document["create_table"]
    types = {name.replace("``", "`"): kind for name, kind in _COLUMN.findall(text)}
    types = {name: types.get(name, "") for name in document["columns"]}
    keys = [name.replace("``", "`") for found in _KEY.findall(text) for name in re.findall("`((?:[^`]|``)+)`", found)]
    rows = tuple(tuple(map(_text, row)) for row in document["rows"] or ())
    kind = "BASE TABLE" if text.startswith("CREATE TABLE") else "VIEW"
    return ExpectedTable(document["schema"], document["table"], kind, types, tuple(keys), rows)


def _text(value: Any) -> str | None:
    if isinstance(value, dict):
        return str(value["hex"] if "hex" in value else value["text"])
    return value if value is None or isinstance(value, str) else repr(value)


def write(kafka: KafkaBroker, topic: str, case: str, part: slice = slice(None)) -> None:
    kafka.write(topic, [Record(record.value, timestamp_ms=record.timestamp_ms) for record in records(case)[part]])


def source_uri(kafka: KafkaBroker, topic: str, case: str) -> str:
    zone = json.loads((ROOT / case / "case.json").read_bytes())["producer_time_zone"]
    return f"tidb-binlog://{kafka.server}/{topic}?time-zone={quote(zone, safe='')}"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.reading_case("A21", "A54", "A55", "A57", "A65", "A66", "A67")
def test_one_run_gives_the_final_state_and_a_second_changes_nothing(
    case: str, target: tuple[Target, str], kafka: KafkaBroker
) -> None:
    topic = kafka.make_topic()
    write(kafka, topic, case)
    for _ in range(2):
        assert run_once(source_uri(kafka, topic, case), target[1], None, case, LocalEngine()) == 0
        assert_state(target[0], final_state(case, target[0]), frozenset())


@pytest.mark.parametrize("case", [case for case in CASES if case != "seek"])
def test_a_run_for_each_few_records_gives_the_final_state(case: str, target: tuple[Target, str], kafka: KafkaBroker) -> None:
    """No server takes the value that TiDB has for an invalid member of an ENUM: the table waits until the row has another one."""
    topic, count = kafka.make_topic(), len(records(case))
    codes = []
    for begin in range(0, count, max(1, count // 4)):
        write(kafka, topic, case, slice(begin, begin + max(1, count // 4)))
        codes.append(run_once(source_uri(kafka, topic, case), target[1], None, case, LocalEngine()))
    may_wait = case == "zero-dates" and isinstance(target[0], MariaDbTarget)
    assert set(codes) == ({0, 3} if may_wait else {0})
    assert codes[-1] == 0
    assert_state(target[0], final_state(case, target[0]), frozenset())


@pytest.mark.spark
def test_sparks_tasks_read_the_topic(target: tuple[Target, str], kafka: KafkaBroker) -> None:
    topic = kafka.make_topic()
    write(kafka, topic, "types")
    assert run_once(source_uri(kafka, topic, "types"), target[1], None, "types") == 0
    assert_state(target[0], final_state("types", target[0]), frozenset())
