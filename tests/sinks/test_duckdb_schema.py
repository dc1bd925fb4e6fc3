"""Schema changes in a real DuckDB file, and what the sink says of itself."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from duckdb_target import NOON, T, Target, column, shape
from fills import FILLS, SPELLED

from headrace.ddl.columns import annotate
from headrace.ddl.shape_after import shape_after
from headrace.ddl.statement import read_statement
from headrace.errors import DefinitionError, FencedError, TransientError
from headrace.model.events import SchemaChange
from headrace.model.ledger import RequestKind, TableProgress, TableRequest, Words
from headrace.model.outcome import Remedy
from headrace.model.table import Column, Generated, TableId, TableSchema
from headrace.model.types import TypeKind
from headrace.sinks.base import CheckState, LedgerUpdate
from headrace.sinks.duckdb import open_sink
from headrace.sinks.duckdb.database import Database
from headrace.sinks.duckdb.sink import DuckDbSink
from headrace.sinks.metadata_applier import SchemaChangeRefused
from targets import held_open

pytestmark = pytest.mark.long  # each test opens a dozen database files


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(tmp_path / "test.duckdb")


def test_a_table_is_created_with_the_columns_that_rows_carry(target: Target) -> None:
    virtual, hidden = column("v", generated=Generated.VIRTUAL), column("_V$_i_0", hidden=True)
    target.run("CREATE TABLE t (…)", shape(column("s", generated=Generated.STORED), virtual, hidden))
    assert target.columns() == [("id", "INTEGER"), ("s", "INTEGER")]


REFUSED = ["CHECKPOINT", "/* done by hand */", "", "BEGIN", "COMMIT", "USE test", "SET threads = 1", "PRAGMA version", "nonsense"]
REFUSED += ["UPDATE test.t SET id = id + 1; COMMIT; SELECT * FROM nothing", "UPDATE test.t SET id = id + 1; SELECT * FROM nothing"]
REFUSED += ["ATTACH ':memory:' AS a", "COPY test.t TO '/dev/null'"]


@pytest.mark.parametrize("statement", REFUSED)
def test_a_persons_statement_that_is_no_part_of_the_cut_is_refused_and_leaves_nothing(target: Target, statement: str) -> None:
    target.run("CREATE TABLE t (id INT PRIMARY KEY)", shape())
    target.sql("INSERT INTO test.t VALUES (1)")
    change = SchemaChange(NOON, T, (), "ALTER TABLE t ADD INDEX i (id)", "test", frozenset({T}))
    with pytest.raises(SchemaChangeRefused):
        target.sink.metadata_applier.run_instead(change, statement)
    assert target.sql("SELECT * FROM test.t") == [(1,)]


def test_rows_that_were_there_get_an_added_columns_default(target: Target) -> None:
    target.run("CREATE TABLE t (id INT PRIMARY KEY)", shape())
    target.sql("INSERT INTO test.t VALUES (1)")
    added = (
        column("a", default="7"),
        column("b", TypeKind.VARCHAR, default='it\'s, "x"', nullable=False),
        column("c", TypeKind.DATETIME, default="CURRENT_TIMESTAMP"),
        column("d", TypeKind.DECIMAL, length=10, scale=3, default="1.5"),
        column("e", TypeKind.ENUM, nullable=False, elements=("red", "green")),
        column("f", TypeKind.BIT, length=8, default="\x05"),
        column("g", nullable=False),
        column("h", TypeKind.BINARY, length=3, default="a"),
        column("i"),
        column("j", TypeKind.JSON, nullable=False),
    )
    target.run("ALTER TABLE t ADD …", shape(*added))
    rows = target.sql("SELECT a, b, c::VARCHAR, d::VARCHAR, e, f, g, h, i, j FROM test.t")
    assert rows == [(7, 'it\'s, "x"', "2024-06-05 12:00:00", "1.500", "red", 5, 0, b"a\0\0", None, "null")]


def test_rows_that_were_there_get_what_tidb_put_there(target: Target) -> None:
    target.run("CREATE TABLE t (id INT PRIMARY KEY)", shape())
    target.sql("INSERT INTO test.t VALUES (1)")
    names = [f"x{number}" for number in range(len(FILLS))]
    definitions = ", ".join(f"`{name}` {definition}" for name, (definition, _, _) in zip(names, FILLS, strict=True))
    added = [replace(column, name=name) for name, (_, column, _) in zip(names, FILLS, strict=True)]
    assert target.run(f"ALTER TABLE `t` ADD COLUMN ({definitions})", shape(*added)) == ()
    (held,) = target.sql(f"SELECT {', '.join(f'{name}::VARCHAR' for name in names)} FROM test.t")
    assert dict(zip([definition for definition, _, _ in FILLS], held, strict=True)) == {d: expected for d, _, expected in FILLS}


def with_column(definition: str) -> TableSchema:
    """The shape that a statement alone gives."""
    after = shape_after(read_statement(f"ALTER TABLE `t` ADD COLUMN `x` {definition}", "test"), T, shape(), None)
    assert after is not None
    return annotate(f"ALTER TABLE `t` ADD COLUMN `x` {definition}", after, shape())


def test_rows_that_were_there_get_the_default_of_a_statement_as_tidb_reads_it(target: Target) -> None:
    target.run("CREATE TABLE t (id INT PRIMARY KEY)", shape())
    target.sql("INSERT INTO test.t VALUES (1)")
    names = [f"x{number}" for number in range(len(SPELLED))]
    definitions = ", ".join(f"`{name}` {definition}" for name, (definition, _) in zip(names, SPELLED, strict=True))
    statement = f"ALTER TABLE `t` ADD COLUMN ({definitions})"
    assert target.run(statement, shape_after(read_statement(statement, "test"), T, shape(), None)) == ()
    (held,) = target.sql(f"SELECT {', '.join(f'{name}::VARCHAR' for name in names)} FROM test.t")
    found = dict(zip([definition for definition, _ in SPELLED], held, strict=True))
    assert {d: _without_zeros(v) for d, v in found.items()} == dict(SPELLED)


def _without_zeros(value: str) -> str:
    """A time with the digits of its column: DuckDB keeps six."""
    head, point, fraction = value.partition(".")
    return f"{head}.{fraction.rstrip('0')}" if point and ":" in head and fraction.isdigit() else value


@pytest.mark.parametrize(("definition", "stored", "_"), FILLS)
def test_a_statement_alone_gives_the_default_that_tidb_stores(definition: str, stored: Column, _: str) -> None:
    found = with_column(definition).column("x").default
    in_zone = "2024-01-01 08:00:00"  # TiDB stores a TIMESTAMP in UTC, and no statement names its zone
    assert found == (in_zone if stored.type.kind is TypeKind.TIMESTAMP else stored.default)


@pytest.mark.parametrize("definition", ["INT DEFAULT '1.5e0'", "INT DEFAULT '.5'", "INT DEFAULT '7x'", "DATE DEFAULT '20-1-2'"])
def test_a_default_whose_value_is_not_certain_stops_the_table(target: Target, definition: str) -> None:
    target.run("CREATE TABLE t (id INT PRIMARY KEY)", shape())
    target.sql("INSERT INTO test.t VALUES (1)")
    with pytest.raises(SchemaChangeRefused):
        target.run(f"ALTER TABLE `t` ADD COLUMN `x` {definition}", with_column(definition))


@pytest.mark.parametrize(
    ("definition", "added"),
    [
        ("VARBINARY(4) DEFAULT x'81ff'", column("x", TypeKind.VARBINARY, length=4, default="\ufffd\ufffd")),
        ("", column("x", TypeKind.BIT, length=8, default="\ufffd")),
    ],
)
def test_a_default_whose_bytes_are_lost_needs_a_resync(target: Target, definition: str, added: Column) -> None:
    """A TiDB 8.5 shows other bytes in its rows than the statement says, since it keeps defaults as JSON."""
    target.run("CREATE TABLE t (id INT PRIMARY KEY)", shape())
    target.sql("INSERT INTO test.t VALUES (1)")
    with pytest.raises(SchemaChangeRefused) as caught:
        target.run(f"ALTER TABLE `t` ADD COLUMN `x` {definition}" if definition else "", shape(added))
    assert caught.value.problem.remedy is Remedy.RESYNC


TIMES = [
    ("DATETIME DEFAULT CURRENT_TIMESTAMP", column("a", TypeKind.DATETIME, default="CURRENT_TIMESTAMP")),
    ("DATETIME(3) DEFAULT NOW(3)", column("b", TypeKind.DATETIME, scale=3, default="CURRENT_TIMESTAMP(3)")),
    ("TIMESTAMP DEFAULT NOW()", column("c", TypeKind.TIMESTAMP, default="CURRENT_TIMESTAMP")),
    ("DATE DEFAULT (CURRENT_DATE)", column("d", TypeKind.DATE, default="CURRENT_DATE")),
]


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        ("", ("2024-06-05 12:00:00", "2024-06-05 12:00:00.694", "2024-06-05 12:00:00+00", "2024-06-05")),
        ("%2B13:00", ("2024-06-06 01:00:00", "2024-06-06 01:00:00.694", "2024-06-05 12:00:00+00", "2024-06-06")),
    ],
)
def test_the_time_of_a_statement_is_near_the_source_and_that_is_told(tmp_path: Path, zone: str, expected: tuple[str, ...]) -> None:
    target = Target(tmp_path / "f.duckdb", **({"time_zone": zone} if zone else {}))
    target.run("CREATE TABLE t (id INT PRIMARY KEY)", shape())
    target.sql("INSERT INTO test.t VALUES (1)")
    definitions = ", ".join(f"`{added.name}` {definition}" for definition, added in TIMES)
    notices = target.run(
        f"ALTER TABLE `t` ADD COLUMN ({definitions})", shape(*(added for _, added in TIMES)), ts=NOON + (694 << 18)
    )
    told = [notice.message for notice in notices]
    assert [text.partition(" holds ")[0] for text in told] == [f"column {name} of the rows that existed" for name in "abcd"]
    assert target.sql("SELECT a::VARCHAR, b::VARCHAR, c::VARCHAR, d::VARCHAR FROM test.t") == [expected]


@pytest.mark.parametrize(
    "statement",
    ["CREATE TABLE `t` (`id` INT PRIMARY KEY,`x` {})", "ALTER TABLE `t` ADD COLUMN `x` {}", "ALTER TABLE `t` MODIFY COLUMN `x` {}"],
)
def test_a_default_that_belongs_to_another_time_zone_than_the_one_that_is_named_stops_the_table(
    tmp_path: Path, statement: str
) -> None:
    target = Target(tmp_path / "f.duckdb", time_zone="Europe/Berlin")
    old = () if "ADD" in statement else (column("x", TypeKind.TIMESTAMP),)
    if "CREATE" not in statement:
        target.run("CREATE TABLE t (id INT PRIMARY KEY)", shape(*old))
    new = shape(column("x", TypeKind.TIMESTAMP, default="2024-01-01 00:00:00"))
    with pytest.raises(SchemaChangeRefused) as caught:
        target.run(statement.format("TIMESTAMP NULL DEFAULT '2024-01-01 08:00:00'"), new)
    assert "time-zone" in caught.value.problem.hint
    assert caught.value.problem.column == "x"


def test_a_zero_date_for_rows_that_were_there_is_refused_or_null(tmp_path: Path) -> None:
    for query, refused in (({}, True), ({"zero_dates": "null"}, False)):
        target = Target(tmp_path / f"{refused}.duckdb", **query)
        target.run("CREATE TABLE t (id INT PRIMARY KEY)", shape())
        target.sql("INSERT INTO test.t VALUES (1)")
        if refused:
            with pytest.raises(SchemaChangeRefused) as caught:
                target.run("ALTER TABLE t ADD d DATE NOT NULL", shape(column("d", TypeKind.DATE, nullable=False)))
            assert caught.value.problem.column == "d"
            assert target.columns() == [("id", "INTEGER")]
        else:
            target.run("ALTER TABLE t ADD d DATE NOT NULL", shape(column("d", TypeKind.DATE, nullable=False)))
            assert target.sql("FROM test.t") == [(1, None)]


def test_columns_are_renamed_swapped_and_dropped(target: Target) -> None:
    target.run("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, c INT)", shape(column("a"), column("b"), column("c")))
    target.sql("INSERT INTO test.t VALUES (1, 10, 20, 30)")
    text = "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a, DROP COLUMN c"
    target.run(text, shape(column("b"), column("a")))
    assert target.sql("SELECT id, a, b FROM test.t") == [(1, 20, 10)]
    target.run("ALTER TABLE t CHANGE a A VARCHAR(9)", shape(column("b"), column("A", TypeKind.VARCHAR, length=9)))
    assert target.columns() == [("id", "INTEGER"), ("b", "INTEGER"), ("A", "VARCHAR")]
    assert target.sql("SELECT A FROM test.t") == [("20",)]


@pytest.mark.parametrize(
    ("old", "value", "new", "expected"),
    [
        (column("v", TypeKind.VARCHAR, length=20), "'123'", column("v"), "123"),
        (column("v", TypeKind.BIGINT), "300", column("v", TypeKind.TINYINT), "127"),
        (column("v", TypeKind.INT), "-9000000", column("v", TypeKind.MEDIUMINT), "-8388608"),
        (column("v", TypeKind.INT), "-5", column("v", TypeKind.INT, unsigned=True), "0"),
        (column("v", TypeKind.DATETIME, scale=6), "'2024-06-30 23:59:59.5'", column("v", TypeKind.DATE), "2024-06-30"),
        (column("v", TypeKind.DATETIME, scale=6), "'1969-12-31 23:59:59.5'", column("v", TypeKind.DATETIME), "1970-01-01 00:00:00"),
        (
            column("v", TypeKind.TIMESTAMP, scale=6),
            "'2024-01-01 00:00:00.44+00'",
            column("v", TypeKind.TIMESTAMP, scale=1),
            "2024-01-01 00:00:00.4+00",
        ),
        (column("v", TypeKind.VARCHAR, length=20), "'abcdef'", column("v", TypeKind.VARCHAR, length=5), "abcde"),
        (column("v", TypeKind.DECIMAL, length=10, scale=2), "1.25", column("v", TypeKind.DECIMAL, length=10, scale=1), "1.3"),
        (column("v", TypeKind.VARCHAR), "'é'", column("v", TypeKind.BLOB), "\\xC3\\xA9"),
        (column("v", TypeKind.BLOB), "'\\xC3\\xA9'::BLOB", column("v", TypeKind.TEXT), "é"),
    ],
)
def test_values_follow_a_change_of_type(target: Target, old: Column, value: str, new: Column, expected: str) -> None:
    target.run("CREATE TABLE t (id INT PRIMARY KEY, v …)", shape(old))
    target.sql(f"INSERT INTO test.t VALUES (1, {value}), (2, NULL)")
    target.run("ALTER TABLE t MODIFY v …", shape(new))
    assert target.sql("SELECT v::VARCHAR FROM test.t ORDER BY id") == [(expected,), (None,)]


@pytest.mark.parametrize("name", ["m", "M", "word", "member"])
@pytest.mark.parametrize("old", [TypeKind.SET, TypeKind.VARCHAR])
def test_members_of_a_set_are_followed_whatever_the_column_is_called(target: Target, name: str, old: TypeKind) -> None:
    told = {"elements": ("a", "b", "c")} if old is TypeKind.SET else {"length": 20}
    target.run(f"CREATE TABLE t (id INT PRIMARY KEY, {name} {old})", shape(column(name, old, **told)))
    target.sql("INSERT INTO test.t VALUES (1, 'a'), (2, 'b,c'), (3, ''), (4, NULL)")
    target.run(f"ALTER TABLE t MODIFY {name} SET('c','b','a')", shape(column(name, TypeKind.SET, elements=("c", "b", "a"))))
    assert target.sql("FROM test.t ORDER BY id") == [(1, "a"), (2, "c,b"), (3, ""), (4, None)]


def test_a_type_that_values_cannot_follow_is_refused_by_name(target: Target) -> None:
    target.run("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", shape(column("v", TypeKind.VARCHAR)))
    target.sql("INSERT INTO test.t VALUES (1, 'x1')")
    with pytest.raises(SchemaChangeRefused) as caught:
        target.run("ALTER TABLE t MODIFY v INT", shape(column("v")))
    assert caught.value.problem.sentence().startswith(
        "table test.t, column v, value 'x1': it is not known how TiDB converted this value from VARCHAR to INT. "
    )
    assert "headrace ddl edit" in caught.value.problem.hint


def test_a_pair_of_types_that_duckdb_cannot_follow_is_refused_unless_no_row_has_a_value(target: Target) -> None:
    target.run("CREATE TABLE t (id INT PRIMARY KEY, v DOUBLE)", shape(column("v", TypeKind.DOUBLE)))
    target.sql("INSERT INTO test.t VALUES (1, NULL)")
    target.run("ALTER TABLE t MODIFY v JSON", shape(column("v", TypeKind.JSON)))
    assert target.columns()[1] == ("v", "JSON")
    target.run("ALTER TABLE t MODIFY v DOUBLE", shape(column("v", TypeKind.DOUBLE)))
    target.sql("UPDATE test.t SET v = 1.5")
    with pytest.raises(SchemaChangeRefused) as caught:
        target.run("ALTER TABLE t MODIFY v JSON", shape(column("v", TypeKind.JSON)))
    sentence = caught.value.problem.sentence()
    assert "table test.t, column v: DuckDB cannot convert DOUBLE to JSON as TiDB does. " in sentence
    assert "headrace ddl edit" in sentence


@pytest.mark.parametrize(
    ("zone", "expected"),
    [("", None), ("Asia/Shanghai", "2024-06-05 17:30:23"), ("%2B08:00", "2024-06-05 17:30:23"), ("UTC", "2024-06-05 09:30:23")],
)
def test_a_timestamp_becomes_a_date_of_the_sessions_time_zone_once_that_is_named(
    tmp_path: Path, zone: str, expected: str | None
) -> None:
    target = Target(tmp_path / "f.duckdb", **({"time_zone": zone} if zone else {}))
    target.run("CREATE TABLE t (id INT PRIMARY KEY, v TIMESTAMP)", shape(column("v", TypeKind.TIMESTAMP)))
    target.sql("INSERT INTO test.t VALUES (1, '2024-06-05 09:30:23+00')")
    altered = shape(column("v", TypeKind.DATETIME))
    if expected is None:
        with pytest.raises(SchemaChangeRefused) as caught:
            target.run("ALTER TABLE t MODIFY v DATETIME", altered)
        assert "time-zone" in caught.value.problem.hint
        return
    target.run("ALTER TABLE t MODIFY v DATETIME", altered)
    assert target.sql("SELECT v::VARCHAR FROM test.t") == [(expected,)]
    target.run("ALTER TABLE t MODIFY v TIMESTAMP", shape(column("v", TypeKind.TIMESTAMP)))
    assert target.sql("SELECT v::VARCHAR FROM test.t") == [("2024-06-05 09:30:23+00",)]


@pytest.mark.parametrize("moment", ["2024-11-03 01:30:00", "2024-03-10 02:30:00"])
def test_an_hour_that_a_change_of_clocks_repeats_or_skips_is_refused(tmp_path: Path, moment: str) -> None:
    target = Target(tmp_path / "f.duckdb", time_zone="America/New_York")
    target.run("CREATE TABLE t (id INT PRIMARY KEY, v DATETIME)", shape(column("v", TypeKind.DATETIME)))
    target.sql(f"INSERT INTO test.t VALUES (1, '{moment}')")
    with pytest.raises(SchemaChangeRefused, match="it is not known how TiDB converted this value"):
        target.run("ALTER TABLE t MODIFY v TIMESTAMP", shape(column("v", TypeKind.TIMESTAMP)))


def test_rows_with_null_whose_column_becomes_a_timestamp_not_null_need_a_resync(target: Target) -> None:
    """TiDB puts its own time into them."""
    target.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", shape(column("v")))
    target.sql("INSERT INTO test.t VALUES (1, NULL)")
    with pytest.raises(SchemaChangeRefused) as caught:
        target.run("ALTER TABLE t MODIFY v TIMESTAMP NOT NULL", shape(column("v", TypeKind.TIMESTAMP, nullable=False)))
    assert caught.value.problem.remedy is Remedy.RESYNC


def test_a_decimal_too_long_for_duckdb_is_refused_by_column(target: Target) -> None:
    with pytest.raises(SchemaChangeRefused) as caught:
        target.run("CREATE TABLE t (…)", shape(column("d", TypeKind.DECIMAL, length=65, scale=30)))
    assert caught.value.problem.column == "d"
    assert "unsupported=text" in caught.value.problem.hint


def test_tables_are_renamed_within_and_across_databases(target: Target) -> None:
    target.run("CREATE TABLE t (id INT PRIMARY KEY)", shape())
    target.sql("INSERT INTO test.t VALUES (1)")
    target.run("RENAME TABLE t TO u", shape(table_id=TableId("test", "u")))
    target.run("RENAME TABLE test.u TO other.U", shape(table_id=TableId("other", "U")))
    assert target.sql("FROM other.u") == [(1,)]
    assert target.sink.metadata_applier.describe(TableId("test", "u")) is None
    assert target.sink.metadata_applier.describe(TableId("other", "U")).has_rows  # type: ignore[union-attr]


def test_names_are_swapped_through_a_third(target: Target) -> None:
    for name in ("a", "b"):
        target.before = None
        target.run(f"CREATE TABLE {name} (id INT)", shape(table_id=TableId("test", name)))
        target.sql(f"INSERT INTO test.{name} VALUES ({ord(name)})")
    target.run("RENAME TABLE a TO x, b TO a, x TO b", table_id=TableId("test"))
    assert target.sql("SELECT a.id, b.id FROM test.a a, test.b b") == [(98, 97)]


def test_one_cut_may_fill_drop_and_create_again(target: Target) -> None:
    """DuckDB 2.0 fails such a commit after DROP SCHEMA … CASCADE, so tables are dropped one by one."""
    target.sink.ledger.acquire("p", "s", "", 0)
    target.sink.begin_cut()
    target.run("CREATE TABLE t (id INT PRIMARY KEY)", shape())
    with target.sink.metadata_applier.database.transaction() as session:
        session.execute("INSERT INTO test.t VALUES (1)")
    target.run("TRUNCATE TABLE t", shape())
    target.run("DROP DATABASE test", table_id=TableId("test"), own=frozenset({T}))
    with target.sink.metadata_applier.database.transaction() as session:
        assert not session.execute("SELECT 1 FROM duckdb_schemas() WHERE schema_name = 'test'")
    target.run("CREATE DATABASE test", table_id=TableId("test"))
    target.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", shape(column("v")))
    target.sink.ledger.update(LedgerUpdate(checkpoint=9, tables=(TableProgress(T, 9),)))
    assert target.sql("FROM test.t") == []
    assert [name for name, _ in target.columns()] == ["id", "v"]


def test_what_is_done_already_is_done(target: Target) -> None:
    target.run("CREATE TABLE t (id INT PRIMARY KEY)", shape())
    target.before = None
    assert target.run("CREATE TABLE t (id INT PRIMARY KEY)", shape()) == ()
    target.sql("INSERT INTO test.t VALUES (1)")
    target.before = None
    assert target.run("", shape()) == ()
    target.run("DROP TABLE t")
    target.run("DROP TABLE t")
    target.run("DROP DATABASE nowhere", table_id=TableId("nowhere"))


def test_a_table_with_rows_that_people_made_needs_adopt(tmp_path: Path) -> None:
    path = tmp_path / "f.duckdb"
    plain = Target(path)
    plain.sql("CREATE SCHEMA test")
    plain.sql("CREATE TABLE test.t AS SELECT 1::INTEGER AS ID")
    with pytest.raises(SchemaChangeRefused) as caught:
        plain.run("CREATE TABLE t (id INT PRIMARY KEY)", shape(column("v")))
    assert "--adopt" in caught.value.problem.hint
    adopting = Target(path, adopt=True)
    (notice,) = adopting.run("CREATE TABLE t (id INT PRIMARY KEY)", shape(column("v")))
    assert "column v was added" in notice.message
    assert adopting.sql("FROM test.t") == [(1, None)]


@pytest.mark.parametrize("clause", ["DROP PARTITION p0", "TRUNCATE PARTITION p0", "EXCHANGE PARTITION p0 WITH TABLE u"])
def test_a_statement_that_changes_rows_unseen_is_refused(target: Target, clause: str) -> None:
    target.run("CREATE TABLE t (id INT PRIMARY KEY)", shape())
    with pytest.raises(SchemaChangeRefused):
        target.run(f"ALTER TABLE t {clause}", shape())


def test_a_statement_that_duckdb_has_no_need_of_is_told(target: Target) -> None:
    target.run("CREATE TABLE t (id INT PRIMARY KEY)", shape())
    (notice,) = target.run("ALTER TABLE t ADD INDEX i (id)", shape())
    assert "nothing was done" in notice.message


def test_a_file_named_like_its_schema_is_no_trouble(tmp_path: Path) -> None:
    target = Target(tmp_path / "headrace.duckdb")
    target.sink.ledger.acquire("p", "s", "", 5)
    assert target.sink.ledger.pipelines() == ["p"]


def test_an_older_run_is_fenced_and_its_cut_lost(target: Target) -> None:
    older = target.sink
    older.ledger.acquire("p", "s", "", 0)
    newer = open_sink(f"duckdb://{target.path}")
    newer.ledger.acquire("p", "s", "", 0)
    older.begin_cut()
    target.run("CREATE TABLE t (id INT PRIMARY KEY)", shape())
    with pytest.raises(FencedError):
        older.ledger.update(LedgerUpdate(checkpoint=3))
    older.abandon_cut()
    assert newer.metadata_applier.describe(T) is None


@pytest.mark.long
def test_a_locked_file_is_waited_for_and_then_named(target: Target) -> None:
    target.sql("CREATE SCHEMA test")
    with held_open(target.path):
        target.sink.metadata_applier.database.patience = 0.3
        with pytest.raises(TransientError, match=r"test\.duckdb is locked"):
            target.sink.begin_cut()
        assert target.sink.check()[-1].state is CheckState.FAILED
    target.sink.begin_cut()
    target.sink.abandon_cut()
    assert target.sink.check()[-1].state is CheckState.OK


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("duckdb:///f.duckdb?zero-date=null", "zero-dates"),
        ("duckdb:///f.duckdb?zero-dates=nul", "null"),
        ("duckdb:///f.duckdb?threads=many", "threads"),
        ("duckdb:///f.duckdb?threads=21e5", "threads"),
        ("duckdb:///f.duckdb?memory-limit=\ud8001GB", "memory-limit"),
        ("duckdb://", "does not name a file"),
    ],
)
def test_a_wrong_uri_is_explained(uri: str, told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        open_sink(uri)


def test_two_slashes_name_a_file_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_sink("duckdb://Shop.duckdb").identity == f"duckdb://{tmp_path}/Shop.duckdb"


def test_what_people_left_is_looked_for_only_when_the_file_has_changed(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle run asks every two seconds, and a person may have the file open all day."""
    ledger = target.sink.ledger
    ledger.acquire("default", "source", "", 0)
    long_ago = target.path.stat().st_mtime - 60
    os.utime(target.path, (long_ago, long_ago))
    assert ledger.words("default") == Words()
    with held_open(target.path):
        assert ledger.words("default") == Words()
        os.utime(target.path)
        assert ledger.words("default") is None, "the file may have changed, and cannot be opened"
    hold = TableRequest("1", T, RequestKind.HOLD)
    open_sink(f"duckdb://{target.path}").ledger.request("default", hold)
    assert ledger.words("default").requests == {"1": hold}
    os.utime(target.path, (long_ago, long_ago))
    assert ledger.words("default").requests == {"1": hold}
    with monkeypatch.context() as patch:
        patch.setattr(Database, "reading", None)  # it cannot be opened any more
        assert ledger.words("default").requests == {"1": hold}


def test_looking_at_a_ledger_creates_no_file(target: Target) -> None:
    sink: DuckDbSink = target.sink
    assert sink.ledger.peek("p") is None
    assert sink.ledger.pipelines() == []
    assert not target.path.exists()
