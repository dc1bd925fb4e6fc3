"""Rows of which Kafka has only the handle key, read from a real TiDB at their commit ts: the tests need ``make test-tidb``.

What a query is made of is tested without a server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pymysql
import pytest
from test_kafka_conformance import HANDLE_ONLY, case_of, check, empty, run
from test_kafka_large import moved, written

from headrace import mysql_answers
from headrace.errors import SourceUnreachableError
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sources.kafka.snapshots import SnapshotError, canonical, select_of, snapshots_of
from headrace.upstream.settings import Upstream, upstream_of
from hostile_server import OK, answers, endless_rows, hostile_server, local_request, result
from kafka_cases import KafkaCase, message
from kafka_server import KafkaBroker, Record
from places import Place
from servers import MariaDb

D_T = TableId("d", "t")


def column(name: str, kind: TypeKind = TypeKind.INT, **more: Any) -> Column:
    return Column(name, ColumnType(kind, **more))


def shape(*columns: Column, key: Sequence[str] = ("id",), table: TableId = D_T) -> TableSchema:
    return TableSchema(table, columns, tuple(key))


# --- queries ----------------------------------------------------------------------------------------------------------------


def test_a_query_asks_for_all_keys_of_a_snapshot_at_once() -> None:
    schema = shape(column("id"), column("v", TypeKind.VARCHAR), column("b", TypeKind.BIT, length=3))
    keys = pa.record_batch({"id": pa.array([1, -2], pa.int32())})
    assert select_of(schema, keys) == "SELECT `id`, `v`, `b` + 0 FROM `d`.`t` WHERE `id` IN (1, -2)"


def test_texts_and_bytes_of_keys_are_hexadecimal_and_names_are_quoted() -> None:
    schema = shape(column("a`b", TypeKind.VARCHAR), column("x", TypeKind.VARBINARY), key=("a`b", "x"), table=TableId("d-1", "t`"))
    keys = pa.record_batch({"a`b": pa.array(["'; DROP TABLE t; --", ""]), "x": pa.array([b"\x00'", b""])})
    assert select_of(schema, keys) == (
        "SELECT `a``b`, `x` FROM `d-1`.`t``` WHERE (`a``b`, `x`) IN "
        "((_utf8mb4 X'273b2044524f50205441424c4520743b202d2d', X'0027'), (_utf8mb4 X'', X''))"
    )


def test_a_text_of_a_number_is_no_statement() -> None:
    schema = shape(column("d", TypeKind.DECIMAL), key=("d",))
    values = ["-1.50", "1 OR 1", "1)", "1e5"]
    keys = pa.record_batch({"d": pa.array(values)})
    assert select_of(schema, keys).endswith("WHERE `d` IN (-1.50, '1 OR 1', _utf8mb4 X'3129', '1e5')")


def test_a_key_that_is_null_is_no_key() -> None:
    with pytest.raises(SnapshotError, match="The key's column id is None"):
        select_of(shape(column("id")), pa.record_batch({"id": pa.array([None], pa.int32())}))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (TypeKind.BIGINT, b"-9223372036854775808", -(1 << 63)),
        (TypeKind.YEAR, b"2023", 2023),
        (TypeKind.BIT, b"5", 5),
        (TypeKind.DECIMAL, b"-1.50", "-1.50"),
        (TypeKind.DOUBLE, b"1e+20", 1e20),
        (TypeKind.TIMESTAMP, b"2020-01-01 00:00:00.5", "2020-01-01 00:00:00.5"),
        (TypeKind.ENUM, b"b,c", "b,c"),
        (TypeKind.VARBINARY, b"\xff\x00", b"\xff\x00"),
        (TypeKind.VARCHAR, "测".encode(), "测"),
        (TypeKind.JSON, b'{"a": 1}', '{"a": 1}'),
    ],
)
def test_values_of_the_server_become_canonical(kind: TypeKind, text: bytes, value: object) -> None:
    assert canonical(column("c", kind), [text, None]).to_pylist() == [value, None]


@pytest.mark.parametrize(
    ("kind", "text"), [(TypeKind.INT, b"x"), (TypeKind.BIGINT, b"9223372036854775808"), (TypeKind.VARCHAR, b"\xff")]
)
def test_a_value_of_another_type_is_refused(kind: TypeKind, text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        canonical(column("c", kind), [text])


# --- servers that are no TiDB -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", [b"time_zone", b"tidb_snapshot", b"SELECT `id`"])
def test_an_upstream_that_asks_for_a_file_gets_nothing(when: bytes) -> None:
    schema, keys = shape(column("id")), pa.record_batch({"id": pa.array([1])})

    def answer(statement: bytes) -> bytes | None:
        return local_request(b"/etc/passwd") if when in statement else None

    with (
        hostile_server(answer) as server,
        pytest.raises(SourceUnreachableError, match="cannot be read: it asks for a file of this machine"),
        snapshots_of(upstream_of(server.uri)) as snapshots,
    ):
        snapshots.rows(schema, 5, keys)
    assert when in server.statements[-1]
    assert server.received == []


@pytest.mark.parametrize("plugin", [b"mysql_clear_password", b"dialog"])
def test_an_upstream_without_verified_tls_gets_no_password_in_clear_text(plugin: bytes) -> None:
    with (
        hostile_server(lambda _: None, clear_text=plugin) as server,
        pytest.raises(SourceUnreachableError, match="password in clear text"),
        snapshots_of(upstream_of(server.uri)),
    ):
        pass
    assert server.passwords == []


@pytest.mark.parametrize("answer", [OK, result([("1",)], 1), result([("1", "2", "3")], 3)], ids=["none", "few", "many"])
def test_an_upstream_whose_answer_has_other_columns_cannot_be_read(answer: bytes) -> None:
    schema, keys = shape(column("id"), column("v")), pa.record_batch({"id": pa.array([1])})
    with (
        hostile_server(lambda s: answers(answer) if s.startswith(b"SELECT `id`") else None) as server,
        pytest.raises(SourceUnreachableError, match="cannot be read: the server's answer is not valid in MySQL's protocol"),
        snapshots_of(upstream_of(server.uri)) as snapshots,
    ):
        snapshots.rows(schema, 5, keys)


def test_an_upstream_whose_answer_does_not_end_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql_answers, "MOST_BYTES", 2 << 20)
    schema, keys = shape(column("id")), pa.record_batch({"id": pa.array([1])})
    with (
        hostile_server(lambda s: endless_rows() if s.startswith(b"SELECT `id`") else None) as server,
        pytest.raises(SourceUnreachableError, match="cannot be read: the server's answer is larger than 2097152 bytes"),
        snapshots_of(upstream_of(server.uri)) as snapshots,
    ):
        snapshots.rows(schema, 5, keys)


# --- a real TiDB ------------------------------------------------------------------------------------------------------------


@dataclass
class Tidb:
    """A TiDB that a changefeed could replicate."""

    server: MariaDb
    times: list[int] = field(default_factory=list)
    """The commit ts of each transaction (TSO)."""

    @property
    def uri(self) -> str:
        return f"mysql://root@127.0.0.1:{self.server.port}/"

    @property
    def upstream(self) -> Upstream:
        return upstream_of(self.uri)

    def execute(self, *statements: str) -> int:
        """One transaction, or a schema change. The commit ts, of a schema change a ts after it."""
        with pymysql.connect(host="127.0.0.1", port=self.server.port, user="root") as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()
            if statements[-1].split()[0].lower() in ("insert", "update", "delete", "replace"):
                cursor.execute("SELECT @@tidb_last_txn_info")
                self.times.append(json.loads(cursor.fetchall()[0][0])["commit_ts"])
            else:
                cursor.execute("BEGIN")
                cursor.execute("SELECT @@tidb_current_ts")
                self.times.append(int(cursor.fetchall()[0][0]))
        return self.times[-1]

    def keep_since(self, moment: str) -> None:
        """Sets what TiKV's GC sets: since when old rows are kept."""
        self.execute(
            "REPLACE INTO mysql.tidb VALUES ('tikv_gc_safe_point', '" + moment + " +0000', '')",
        )


@pytest.fixture
def tidb(mariadb: MariaDb) -> Iterator[Tidb]:
    """A TiDB: the tests that need one run with ``--mysql-server tidb`` only."""
    found = Tidb(mariadb)
    found.keep_since("20200101-00:00:00")
    found.execute("DROP DATABASE IF EXISTS b")
    found.times.clear()
    yield found
    found.keep_since("20200101-00:00:00")


def replayed(tidb: Tidb, case: KafkaCase) -> list[Record]:
    """The records of a case with the commit ts that its statements have in this TiDB."""
    told = [(step["commit_ts"], step["sql"]) for step in case.steps]
    times = {old: tidb.execute(*statements) for old, statements in told}
    last = max(times.values())
    promised = [event["commit_ts"] for event in case.events if event["kind"] == "watermark"]
    records = []
    for golden in case.records:
        record = golden.record
        text = (record.key or b"") + (record.value or b"")
        old = next((old for old in times if any(form in text for form in written(old)[::2])), None)
        if old is None:  # a watermark
            old = next(at for at in promised if any(form in text for form in written(at)[::2]))
            before = [new for earlier, new in times.items() if earlier < old]
            record = moved(record, old, before[-1] if old < max(times) else last + 1)
        else:
            record = moved(record, old, times[old])
        records.append(record)
    return records


@pytest.mark.server
@pytest.mark.pipeline
@pytest.mark.parametrize("name", HANDLE_ONLY)
def test_the_golden_cases_end_in_their_final_state(name: str, kafka: KafkaBroker, tidb: Tidb, tmp_path: Any) -> None:
    case = case_of(name)
    topic, (target, sink) = kafka.make_topic(), empty(Place(tmp_path, None))
    kafka.write(topic, replayed(tidb, case))
    # Later changes of the rows are not looked at.
    tidb.execute("UPDATE b.t SET s = 'later', v = 99")
    uri = kafka.uri(topic, protocol=case.protocol, upstream=tidb.uri)
    for _ in range(2):
        assert run(uri, sink) == 0
        check(target, case.final)


@pytest.mark.reading_case("B41")
@pytest.mark.server
@pytest.mark.pipeline
def test_what_the_upstream_does_not_keep_stops_the_table(
    kafka: KafkaBroker, tidb: Tidb, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    case = case_of("canal-json/handle-key-only")
    topic, (target, sink) = kafka.make_topic(), empty(Place(tmp_path, None))
    kafka.write(topic, replayed(tidb, case))
    tidb.keep_since("20990101-00:00:00")
    uri = kafka.uri(topic, protocol=case.protocol, upstream=tidb.uri)
    assert run(uri, sink) == 3
    told = "".join(capsys.readouterr())
    assert "table b.t, partition 0, offset 3: The row was too large for Kafka" in told
    assert "does not keep the rows of b.t at" in told
    assert "they are older than its GC life time." in told
    tidb.keep_since("20200101-00:00:00")
    assert run(uri, sink) == 0
    check(target, case.final)


@pytest.mark.reading_case("B41")
@pytest.mark.server
def test_rows_are_read_as_they_were_with_the_columns_that_the_table_had(tidb: Tidb) -> None:
    tidb.execute("CREATE DATABASE b")
    tidb.execute("CREATE TABLE b.t (id INT PRIMARY KEY, v INT)")
    first = tidb.execute("INSERT INTO b.t VALUES (1, 10), (2, 20)")
    second = tidb.execute("UPDATE b.t SET v = 11 WHERE id = 1")
    tidb.execute("ALTER TABLE b.t DROP COLUMN v")
    tidb.execute("DROP TABLE b.t")
    schema = shape(column("id"), column("v"), table=TableId("b", "t"))
    keys = pa.record_batch({"id": pa.array([2, 1], pa.int32())})
    with snapshots_of(tidb.upstream) as snapshots:
        rows = [snapshots.rows(schema, ts, keys).column("v").to_pylist() for ts in (second, second - 1, first)]
        assert rows == [[20, 11], [20, 10], [20, 10]]
        with pytest.raises(SnapshotError, match=r"has no such row at .*: id=2"):
            snapshots.rows(schema, first - 1, keys)
        with pytest.raises(SnapshotError, match=r"refuses to show b\.t at .*: Table 'b.t' doesn't exist"):
            snapshots.rows(schema, tidb.times[-1], keys)
        with pytest.raises(SnapshotError, match="Unknown column 'w'"):
            snapshots.rows(shape(column("id"), column("w"), table=TableId("b", "t")), second, keys)


@pytest.mark.server
def test_bytes_are_not_taken_for_text_nor_text_for_bytes(tidb: Tidb) -> None:
    tidb.execute("CREATE DATABASE b")
    tidb.execute("CREATE TABLE b.t (id INT PRIMARY KEY, v VARCHAR(5), x VARBINARY(5), s LONGTEXT, y BLOB)")
    at = tidb.execute("INSERT INTO b.t VALUES (1, 'v', X'FF', 's', X'00')")
    kinds = {"v": TypeKind.VARCHAR, "x": TypeKind.VARBINARY, "s": TypeKind.LONGTEXT, "y": TypeKind.BLOB}
    others = {"v": TypeKind.VARBINARY, "x": TypeKind.VARCHAR, "s": TypeKind.LONGBLOB, "y": TypeKind.TEXT}
    key = pa.record_batch({"id": pa.array([1], pa.int32())})
    with snapshots_of(tidb.upstream) as snapshots:
        for name in kinds:
            told = kinds | {name: others[name]}
            schema = shape(column("id"), *(column(n, kind) for n, kind in told.items()), table=TableId("b", "t"))
            with pytest.raises(SnapshotError, match=f"The column {name} is (text|bytes) upstream, and (bytes|text) by the schema"):
                snapshots.rows(schema, at, key)
        schema = shape(column("id"), *(column(n, kind) for n, kind in kinds.items()), table=TableId("b", "t"))
        (row,) = snapshots.rows(schema, at, key).to_pylist()
    assert row == {"id": 1, "v": "v", "x": b"\xff", "s": "s", "y": b"\x00"}


@pytest.mark.server
def test_keys_and_values_of_every_type_come_back_as_they_are(tidb: Tidb) -> None:
    types: Mapping[str, tuple[TypeKind, str, object, dict[str, Any]]] = {
        "i": (TypeKind.BIGINT, "BIGINT UNSIGNED", 18446744073709551615, {"unsigned": True}),
        "s": (TypeKind.VARCHAR, "VARCHAR(20)", "it's \\ 测 ", {}),
        "c": (TypeKind.CHAR, "CHAR(5)", "Ab", {}),
        "x": (TypeKind.VARBINARY, "VARBINARY(20)", b"\x00'\xff", {}),
        "b": (TypeKind.BINARY, "BINARY(4)", b"\x01\x00\x00\x00", {}),
        "d": (TypeKind.DECIMAL, "DECIMAL(10,3)", "-1.500", {"length": 10, "scale": 3}),
        "f": (TypeKind.FLOAT, "FLOAT", 0.10000000149011612, {}),
        "g": (TypeKind.DOUBLE, "DOUBLE", 0.1, {}),
        "t": (TypeKind.TIMESTAMP, "TIMESTAMP(3)", "2020-01-02 03:04:05.678", {}),
        "u": (TypeKind.DATETIME, "DATETIME", "2020-01-02 03:04:05", {}),
        "y": (TypeKind.YEAR, "YEAR", 2023, {}),
        "h": (TypeKind.TIME, "TIME", "-838:59:59", {}),
        "e": (TypeKind.ENUM, "ENUM('p','q')", "q", {"elements": ("p", "q")}),
        "m": (TypeKind.SET, "SET('p','q')", "p,q", {"elements": ("p", "q")}),
        "n": (TypeKind.BIT, "BIT(10)", 513, {"length": 10}),
        "j": (TypeKind.JSON, "JSON", '{"a": [1, "x"]}', {}),
    }
    literals = {"x": "X'0027FF'", "b": "X'01000000'", "t": "'2020-01-02 03:04:05.678'", "n": "513"}
    shown = [
        literals.get(name, repr(value) if not isinstance(value, str) else pymysql_literal(value))
        for name, (_, _, value, _) in types.items()
    ]
    tidb.execute("CREATE DATABASE b")
    made = ", ".join(f"{name} {text} NOT NULL" for name, (_, text, _, _) in types.items())
    key = [name for name in types if name != "j"]
    for unique in ([name] for name in key):
        tidb.execute("DROP TABLE IF EXISTS b.t")
        tidb.execute(f"CREATE TABLE b.t ({made}, PRIMARY KEY ({', '.join(unique)}))")
        at = tidb.execute("SET SESSION time_zone = '+00:00'", f"INSERT INTO b.t VALUES ({', '.join(shown)})")
        columns = tuple(Column(name, ColumnType(kind, **more)) for name, (kind, _, _, more) in types.items())
        schema = shape(*columns, key=unique, table=TableId("b", "t"))
        values = {name: pa.array([value], canonical(schema.column(name), []).type) for name, (_, _, value, _) in types.items()}
        with snapshots_of(tidb.upstream) as snapshots:
            found = snapshots.rows(schema, at, pa.record_batch({name: values[name] for name in unique}))
        assert found.to_pylist() == pa.record_batch(values).to_pylist()


def pymysql_literal(text: str) -> str:
    return "'" + pymysql.converters.escape_string(text) + "'"


@pytest.mark.server
@pytest.mark.pipeline
def test_an_update_of_a_table_without_key_gets_its_old_row_from_right_before_it(
    kafka: KafkaBroker, tidb: Tidb, tmp_path: Any
) -> None:
    """Such messages have a unique key that Headrace does not know as one, as after ``ADD UNIQUE`` was passed over."""
    tidb.execute("CREATE DATABASE b")
    tidb.execute("CREATE TABLE b.t (id INT NOT NULL, v VARCHAR(20), UNIQUE KEY (id))")
    created = tidb.times[-1]
    inserted = tidb.execute("INSERT INTO b.t VALUES (1, 'old'), (2, 'gone')")
    changed = tidb.execute("UPDATE b.t SET v = 'new' WHERE id = 1")
    deleted = tidb.execute("DELETE FROM b.t WHERE id = 2")

    def row(kind: str, at: int, key: str, **more: Any) -> bytes:
        only = {"commitTs": at, "onlyHandleKey": True}
        return message(kind, at, "b", "t", mysqlType={"id": "int"}, data=[{"id": key}], _tidb=only, **more)

    messages = [
        message("QUERY", created - 2, "b", "", sql="CREATE DATABASE b"),
        message("CREATE", created - 1, "b", "t", sql="CREATE TABLE t (id INT, v VARCHAR(20))"),
        *(row("INSERT", inserted, key) for key in ("1", "2")),
        row("UPDATE", changed, "1", old=[{"id": "1"}]),
        row("DELETE", deleted, "2"),
        message("TIDB_WATERMARK", deleted + 1, "", "", _tidb={"watermarkTs": deleted + 1}),
    ]
    topic = kafka.make_topic()
    kafka.write(topic, map(Record, messages))
    uri = kafka.uri(topic, upstream=tidb.uri, accept_keyless="true")
    assert run(uri, f"duckdb://{tmp_path}/x.duckdb") == 0
    with duckdb.connect(f"{tmp_path}/x.duckdb") as connection:
        assert connection.execute("SELECT * FROM b.t").fetchall() == [(1, "new")]


@pytest.mark.server
@pytest.mark.pipeline
def test_a_mariadb_is_not_taken_for_the_upstream(
    kafka: KafkaBroker, mariadb: MariaDb, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    case = case_of("canal-json/handle-key-only")
    topic = kafka.make_topic()
    kafka.write(topic, [golden.record for golden in case.records])
    upstream = f"mysql://{mariadb.user}:{quote(mariadb.password, safe='')}@127.0.0.1:{mariadb.port}/"
    assert run(kafka.uri(topic, upstream=upstream), f"duckdb://{tmp_path}/x.duckdb") == 3
    told = "".join(capsys.readouterr())
    assert f"The upstream mysql://127.0.0.1:{mariadb.port}/ is not a TiDB: it has no variable tidb_snapshot." in told
    assert mariadb.password not in told
