"""The conformance tests' own judgement: right states pass, wrong ones fail and say how. No pipeline runs here."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from harness import Case, ExpectedTable, State, all_cases, assert_state, commit_timestamps, reveal, three_steps
from servers import MariaDb
from targets import DuckDbTarget, MariaDbTarget, base_type

TYPED_CASES = ["binary-hex", "bit-enum-set-json-vector", "decimal-float", "ints-limits", "strings", "temporal"]


@pytest.mark.server
@pytest.mark.parametrize("name", TYPED_CASES)
def test_rows_that_mariadb_holds_exactly_are_the_expected_ones(name: str, mariadb: MariaDb) -> None:
    state = without_vectors(Case(f"csv-{name}").final)
    load_into_mariadb(mariadb, state)
    assert_state(MariaDbTarget(mariadb), state)


def without_vectors(state: State) -> State:
    return replace(state, tables=tuple(t for t in state.tables if "vector" not in map(base_type, t.types.values())))


def load_into_mariadb(server: MariaDb, state: State) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO', time_zone = '+00:00'")
        for table in state.tables:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS `{table.database}`")
            cursor.execute(f"USE `{table.database}`")
            cursor.execute(re.sub(r"/\*T!.*?\*/", "", table.create))
            bases = [base_type(text) for text in table.types.values()]
            marks = ", ".join(map(placeholder, bases))
            cursor.executemany(f"INSERT INTO `{table.name}` VALUES ({marks})", table.rows)


def placeholder(base: str) -> str:
    if "binary" in base or "blob" in base:
        return "UNHEX(%s)"
    # As a text the year "0" would be 2000.
    return "CAST(%s AS UNSIGNED)" if base in ("bit", "year") else "%s"


@pytest.mark.server
def test_a_difference_says_which_table_and_which_row(mariadb: MariaDb) -> None:
    state = Case("csv-basic").final
    load_into_mariadb(mariadb, state)
    with mariadb.connect(database="test") as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE t1 SET v = 'wrong' WHERE id = 3")
        cursor.execute("CREATE TABLE t3 (id INT)")
        cursor.execute("ALTER TABLE t2 ADD COLUMN extra INT")
    with pytest.raises(AssertionError) as error:
        assert_state(MariaDbTarget(mariadb), state)
    lines = str(error.value).split("\n")[1:]
    assert lines == [
        "  table test.t3 should not be there",
        "  test.t1: row missing: ('3', 'odku', '33')",
        "  test.t1: row too many: ('3', 'wrong', '33')",
        "  test.t2: columns missing: [], too many: ['extra']",
    ]


def test_duckdb_values_are_told_as_the_cases_write_them(tmp_path: Path) -> None:
    target = DuckDbTarget(tmp_path / "t.duckdb")
    with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
        connection.execute("CREATE SCHEMA test")
        connection.execute(
            "CREATE TABLE test.t (i BIGINT, f FLOAT, d DOUBLE, b BLOB, n UBIGINT, ts TIMESTAMPTZ, dt TIMESTAMP, t TIME, "
            "long INTERVAL, text VARCHAR, j JSON, p DECIMAL(10,2))"
        )
        connection.execute(
            "INSERT INTO test.t VALUES (-1, 1234567.1, 1e-10, '\\x00\\xFF'::BLOB, 18446744073709551615, "
            "'2024-06-05 09:30:23.694+00', '1000-01-01 00:00:00', '12:34:56.5', to_microseconds(-3020399000000), 'é', "
            '\'{"b":1,"a":2.0}\', 1.5)'
        )
        connection.execute("INSERT INTO test.t (i) VALUES (2)")
    types = {
        "i": "bigint(20)",
        "f": "float",
        "d": "double",
        "b": "varbinary(10)",
        "n": "bit(64)",
        "ts": "timestamp(3)",
        "dt": "datetime",
        "t": "time(6)",
        "long": "time",
        "text": "varchar(10)",
        "j": "json",
        "p": "decimal(10,2)",
    }
    full = ("-1", "1234567.1", "0.0000000001", "00ff", str((1 << 64) - 1), "2024-06-05 09:30:23.694", "1000-01-01 00:00:00")
    rest = ("12:34:56.500000", "-838:59:59", "é", '{"a": 2.0, "b": 1}', "1.50")
    table = ExpectedTable("test", "t", "BASE TABLE", types, (), (("2", *[None] * 11), full + rest))
    assert_state(target, State(1, frozenset({"test"}), (table,)))


def test_a_date_with_a_zero_is_null_in_duckdb(tmp_path: Path) -> None:
    target = DuckDbTarget(tmp_path / "t.duckdb")
    assert target.held("date", "2024-00-00") is None
    assert target.held("datetime", "2024-01-00 10:00:00") is None
    assert target.held("timestamp(3)", "2024-10-30 00:00:00.000") == "2024-10-30 00:00:00.000"
    assert target.held("varchar(20)", "2024-00-00") == "2024-00-00"


def test_files_arrive_with_their_first_row_and_schemas_after_their_version(tmp_path: Path) -> None:
    case = Case("csv-basic")
    first, second, final = three_steps(case)
    seen = []
    for state in (first, second, final):
        reveal(case, tmp_path, state.checkpoint_ts)
        seen.append({path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()})
    assert {path.split("/")[1] for path in seen[0] if "/" in path} == {"t1"}
    assert seen[0] < seen[1] < seen[2]
    assert seen[2] == {path.relative_to(case.data).as_posix() for path in case.data.rglob("*") if path.is_file()}
    assert (tmp_path / "metadata").read_bytes() == (case.data / "metadata").read_bytes()


def test_a_whole_tree_is_held_back_by_its_metadata_only(tmp_path: Path) -> None:
    case = Case("csv-basic")
    reveal(case, tmp_path, 470605972164837377, whole=True)
    assert len(list(tmp_path.rglob("*"))) == len(list(case.data.rglob("*")))
    assert b"470605972164837377" in (tmp_path / "metadata").read_bytes()


def test_the_source_uri_tells_the_time_zone() -> None:
    uri = Case("csv-temporal-tz").source_uri()
    assert uri.endswith("/csv-temporal-tz/data?protocol=csv&flush-interval=10m&worker-count=2&time-zone=Asia%2FShanghai")


def test_a_selected_column_is_known_as_unreplicated() -> None:
    assert Case("csv-column-selector").unreplicated_columns == {"secret"}


def test_every_data_file_says_when_its_rows_were_committed() -> None:
    """Files arrive by their smallest commit ts, which the harness looks for in their bytes."""
    for case in filter(lambda case: case.has_commit_ts, all_cases()):
        for path in (p for p in case.data.rglob("CDC*") if p.suffix in (".csv", ".json") and p.is_file()):
            assert case.description["start_ts"] < min(commit_timestamps(path)) < case.final.checkpoint_ts, path
