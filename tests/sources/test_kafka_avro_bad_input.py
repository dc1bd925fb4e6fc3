"""The protocol ``avro`` where messages, schemas or the registry are not what they should be."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pytest

from avro_writer import long, written
from certificates import Authority
from harness import run_once
from headrace.cli.main import main
from headrace.testing.engine import LocalEngine
from kafka_cases import tso
from kafka_server import KafkaBroker, Record
from schema_registry import Registry, running_registry
from servers import free_port

pytestmark = [pytest.mark.server, pytest.mark.pipeline]

INT = {"type": "int", "connect.parameters": {"tidb_type": "INT"}}
TEXT = {"type": "string", "connect.parameters": {"tidb_type": "TEXT"}}
DECIMAL = {
    **{"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
    "connect.parameters": {"tidb_type": "DECIMAL"},
}
OWN = [{"name": name, "type": of} for name, of in (("_tidb_op", "string"), ("_tidb_commit_ts", "long"))]
KEY_ID, VALUE_ID, WIDER_ID = 7, 8, 9
_STATEMENT = {"query": "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(20))", "schema": "shop", "table": "a", "commitTs": tso(1)}
CREATED = b"\x01" + json.dumps(_STATEMENT).encode()


def record(table: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": table, "namespace": "default.shop", "fields": list(fields)}


ID = {"name": "id", "type": INT}
V = {"name": "v", "type": ["null", TEXT], "default": None}
KEY = record("a", ID)
VALUE = record("a", ID, V, *OWN)
COUNT = {"name": "c", "type": [INT, "null"], "default": 5}


def framed(schema_id: int, told: dict[str, Any], row: dict[str, Any]) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + written(told, row)


@dataclass
class Scene:
    """A topic, a registry, and a DuckDB file that runs apply the topic to."""

    kafka: KafkaBroker
    registry: Registry
    folder: Path
    capsys: pytest.CaptureFixture[str]
    topic: str = ""
    path: str = ""
    told: str = ""
    timed: bool = False
    params: dict[str, str] = field(default_factory=dict)
    time: int = 1_750_000_000_000

    def __post_init__(self) -> None:
        self.topic = self.path = self.kafka.make_topic()
        self.register({KEY_ID: KEY, VALUE_ID: VALUE})

    def register(self, schemas: dict[int, Any], **more: object) -> None:
        texts = {number: told if isinstance(told, str) else json.dumps(told) for number, told in schemas.items()}
        self.registry.holding(self.path, texts, **more)

    def write(self, *records: tuple[bytes | None, bytes | None]) -> None:
        """Keys and values, each a second later than the one before it."""
        made = []
        for key, value in records:
            self.time += 1000
            made.append(Record(value, key=key, timestamp_ms=self.time))
        self.kafka.write(self.topic, made)

    def put(self, key: int, v: str | None = "x", schema_id: int = VALUE_ID, told: dict[str, Any] = VALUE, **more: object) -> None:
        row = {"id": key, "v": v, "_tidb_op": "c", "_tidb_commit_ts": tso(self.time // 1000 - 1_750_000_000 + 1), **more}
        self.write((framed(KEY_ID, KEY, {"id": key}), framed(schema_id, told, row)))

    def drop(self, key: int) -> None:
        self.write((framed(KEY_ID, KEY, {"id": key}), None))

    @property
    def uri(self) -> str:
        told = {
            "schema_registry": f"{self.registry.url}/{self.path}",
            "avro_enable_watermark": str(self.timed).lower(),
            **self.params,
        }
        return self.kafka.uri(self.topic, protocol="avro", **told)

    @property
    def sink(self) -> str:
        return f"duckdb://{self.folder}/x.duckdb"

    def run(self) -> int:
        """The exit code of a run; what it printed is in ``told``."""
        self.capsys.readouterr()
        more = {} if self.timed else {"until_end": True, "quiet": 0.2}
        code = run_once(self.uri, self.sink, engine=LocalEngine(), **more)
        self.told = "".join(self.capsys.readouterr())
        return code

    def skip(self, offset: int, *table: str) -> None:
        place = ["--partition", "0", "--offset", str(offset), "--yes", "--sink", self.sink, "--source", self.uri]
        assert main(["table", "skip", *table, *place]) == 0

    def rows(self, columns: str = "id, v") -> list[tuple[Any, ...]]:
        with duckdb.connect(str(self.folder / "x.duckdb")) as connection:
            return connection.execute(f"SELECT {columns} FROM shop.a ORDER BY id").fetchall()


@pytest.fixture
def scene(kafka: KafkaBroker, registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Scene:
    return Scene(kafka, registry, tmp_path, capsys)


# --- the registry -----------------------------------------------------------------------------------------------------------


@pytest.mark.reading_case("B29")
def test_a_schema_is_fetched_once(scene: Scene) -> None:
    for key in range(30):
        scene.put(key)
    assert scene.run() == 0
    assert len(scene.rows()) == 30
    assert sorted(path for path in scene.registry.asked if scene.path in path) == [
        f"/{scene.path}/schemas/ids/{number}" for number in (KEY_ID, VALUE_ID)
    ]


def test_a_registry_that_is_down_ends_the_run_and_stops_no_table(scene: Scene) -> None:
    scene.put(1)
    up, scene.registry = scene.registry, Registry(free_port())
    assert scene.run() == 4
    assert f"The schema registry {scene.registry.url}/{scene.path} cannot be read: Connection refused." in scene.told
    scene.registry = up
    assert scene.run() == 0
    assert scene.rows() == [(1, "x")]


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (503, b"{}", "it answers HTTP 503"),
        (429, b"{}", "it answers HTTP 429"),
        (200, b"<html>", "its answer is none of a schema registry (HTTP 200)"),
        (200, b'{"schema": 1}', "its answer is none of a schema registry (HTTP 200)"),
        (404, b"<html>not here</html>", "its answer is none of a schema registry (HTTP 404)"),
        (302, b"", "its answer is none of a schema registry (HTTP 302)"),
        (403, b"{}", "access is denied (HTTP 403)"),
    ],
)
def test_an_answer_that_is_none_ends_the_run(status: int, body: bytes, told: str, scene: Scene) -> None:
    scene.put(1)
    with running_registry() as broken:
        broken.answer = status, body
        scene.registry = broken
        assert scene.run() == 4
    assert f"cannot be read: {told}." in scene.told


@pytest.mark.parametrize("status", [400, 406, 409, 410, 422])
def test_an_id_that_the_registry_refuses_holds_its_partition_until_it_is_given(scene: Scene, status: int) -> None:
    scene.register({99: VALUE})
    with running_registry() as refusing:
        refusing.schemas, refusing.answers[99] = scene.registry.schemas, (status, b'{"error_code":42201,"message":"Invalid"}')
        up, scene.registry = scene.registry, refusing
        scene.put(1)
        scene.put(2, schema_id=99)
        scene.put(3)
        assert scene.run() == 3
        refuses = f"the schema registry {refusing.url}/{scene.path} refuses to give the schema with the id 99 (HTTP {status})."
        assert f"partition 0, offset 1: {refuses}" in scene.told
    scene.registry = up
    assert scene.run() == 0
    assert scene.rows() == [(1, "x"), (2, "x"), (3, "x")]


@pytest.mark.parametrize(
    ("answer", "tries"), [((408, b"{}"), 3), ((500, b"{}"), 3), ((407, b"{}"), 1), ((400, b"<html>bad gateway</html>"), 1)]
)
def test_an_answer_that_says_nothing_of_the_id_stops_no_table(scene: Scene, answer: tuple[int, bytes], tries: int) -> None:
    scene.register({99: VALUE})
    scene.put(1, schema_id=99)
    with running_registry() as refusing:
        refusing.schemas, refusing.answers[99] = scene.registry.schemas, answer
        up, scene.registry = scene.registry, refusing
        assert scene.run() == 4
        assert f"(HTTP {answer[0]})" in scene.told or f"it answers HTTP {answer[0]}" in scene.told
        assert sum(path.endswith("/99") for path in refusing.asked) % tries == 0
        assert any(path.endswith("/99") for path in refusing.asked)
    scene.registry = up
    assert scene.run() == 0
    assert scene.rows() == [(1, "x")]


def test_a_login_is_sent_and_never_shown(scene: Scene) -> None:
    scene.put(1)
    with running_registry("me:p%ss w@rd") as locked:
        scene.registry = locked
        scene.register({KEY_ID: KEY, VALUE_ID: VALUE})
        assert scene.run() == 4
        assert "the login is refused (HTTP 401). Write schema-registry=http://user:password@host:port." in scene.told
        at = f"127.0.0.1:{locked.port}/{scene.path}"
        scene.params = {"schema_registry": f"http://me:wr0ng-secret@{at}"}
        assert scene.run() == 4
        assert "wr0ng-secret" not in scene.told
        scene.params = {"schema_registry": f"http://me:p%25ss%20w%40rd@{at}"}
        assert scene.run() == 0
    assert scene.rows() == [(1, "x")]


def test_a_registry_with_tls_is_verified(scene: Scene, tmp_path: Path) -> None:
    scene.put(1)
    authority = Authority.made(tmp_path, "authority")
    with running_registry(certificate=authority.issue("registry", "127.0.0.1")) as encrypted:
        scene.registry = encrypted
        scene.register({KEY_ID: KEY, VALUE_ID: VALUE})
        assert scene.run() == 4
        assert "TLS fails (CERTIFICATE_VERIFY_FAILED). Check schema-registry-ca" in scene.told
        scene.params = {"schema_registry_ca": str(authority.path)}
        assert scene.run() == 0
    assert scene.rows() == [(1, "x")]


def test_an_unknown_id_holds_its_partition_until_it_is_given_up(scene: Scene) -> None:
    """The schema names the table, so it may be of any."""
    scene.put(1)
    scene.put(2, schema_id=99)
    scene.put(3)
    assert scene.run() == 3
    assert (
        f"partition 0, offset 1: the schema registry {scene.registry.url}/{scene.path} has no schema with the id 99." in scene.told
    )
    scene.skip(1)
    assert scene.run() == 0
    assert scene.rows() == [(1, "x"), (3, "x")]


@pytest.mark.parametrize(
    ("text", "more", "told"),
    [
        ("{", {}, "cannot be read: the type '{' is not defined."),
        ('"string"', {}, "is not a record."),
        ("syntax = 'proto3';", {"schemaType": "PROTOBUF"}, "is of the type PROTOBUF, and not Avro."),
        ('"string"', {"references": [{"name": "x", "subject": "x", "version": 1}]}, "refers to other schemas"),
        (json.dumps({"type": "record", "name": "a", "fields": []}), {}, "its schema does not name its table."),
    ],
)
def test_a_schema_that_is_none_of_a_table_is_told(text: str, more: dict[str, object], told: str, scene: Scene) -> None:
    scene.register({99: text}, **more)
    scene.put(1, schema_id=99)
    assert scene.run() == 3
    assert "partition 0, offset 0: its schema" in scene.told
    assert told in scene.told


# --- messages ---------------------------------------------------------------------------------------------------------------


def test_a_value_that_cannot_be_decoded_stops_its_table_until_it_is_given_up(scene: Scene) -> None:
    other, own_key = record("b", ID, V), record("b", ID)
    scene.register({20: own_key, 21: other})
    scene.put(1)
    whole = framed(VALUE_ID, VALUE, {"id": 2, "v": "x", "_tidb_op": "c", "_tidb_commit_ts": 1})
    scene.write((framed(KEY_ID, KEY, {"id": 2}), whole[:8]))
    scene.put(3)
    scene.write((framed(20, own_key, {"id": 1}), framed(21, other, {"id": 1, "v": None})))
    assert scene.run() == 3
    assert "table shop.a, partition 0, offset 1: The message cannot be read: in v, it ends in the middle of a value." in scene.told
    with duckdb.connect(str(scene.folder / "x.duckdb")) as connection:
        assert connection.execute("SELECT * FROM shop.b").fetchall() == [(1, None)]
    scene.skip(1, "shop.a")
    assert scene.run() == 0
    assert scene.rows() == [(1, "x"), (3, "x")]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b'{"id":1}', "its first bytes do not name a schema of a registry"),
        (b"\0\0", "its first bytes do not name a schema of a registry"),
        (b"\x03\0" + bytes(16) + b"\x02", "it names its schema by AWS Glue's UUID"),
        (b"\x02" + tso(5).to_bytes(8, "big"), "Set avro-enable-watermark=true in the source's URI, too."),
        (b'\x01{"query":"DROP TABLE a"}', "Set avro-enable-watermark=true in the source's URI, too."),
        (b"\x03" + tso(5).to_bytes(8, "big"), "Set avro-enable-watermark=true in the source's URI, too."),
    ],
)
@pytest.mark.reading_case("B30")
def test_a_message_without_confluents_frame_is_told(value: bytes, told: str, scene: Scene) -> None:
    scene.put(1)
    scene.write((b"", value))
    assert scene.run() == 3
    assert "partition 0, offset 1: it" in scene.told
    assert told in scene.told


@pytest.mark.reading_case("B31")
def test_a_key_without_a_value_is_a_deletion(scene: Scene) -> None:
    scene.put(1)
    scene.put(2)
    scene.drop(1)
    assert scene.run() == 0
    assert scene.rows() == [(2, "x")]
    scene.put(1, "again")
    scene.drop(2)
    scene.drop(2)
    assert scene.run() == 0
    assert scene.rows() == [(1, "again")]


@pytest.mark.reading_case("B32")
def test_what_only_a_changefeed_with_watermarks_writes_is_read(scene: Scene) -> None:
    scene.timed = True
    scene.write((None, CREATED))
    scene.put(1, _tidb_commit_ts=tso(2))
    scene.put(2, _tidb_commit_ts=tso(3))
    scene.write((framed(KEY_ID, KEY, {"id": 1}), b"\x03" + tso(9).to_bytes(8, "big")))
    scene.write((None, b"\x02" + tso(5).to_bytes(8, "big")))
    assert scene.run() == 0
    assert scene.rows() == [(1, "x"), (2, "x")]
    scene.write((None, b"\x02" + tso(9).to_bytes(8, "big")))
    assert scene.run() == 0
    assert scene.rows() == [(2, "x")]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "it carries no commit ts. Set enable-tidb-extension=true and avro-enable-watermark=true"),
        (b"\x02" + bytes(8), "its first bytes do not name a schema of a registry"),
        (b"\x01{}", "the schema change cannot be read: it has no commitTs, no query or no schema."),
        (b"\x01\xff", "the schema change cannot be read: it is not UTF-8."),
    ],
)
def test_with_watermarks_a_message_that_does_not_fit_is_told(value: bytes | None, told: str, scene: Scene) -> None:
    scene.timed = True
    scene.write((None, CREATED), (framed(KEY_ID, KEY, {"id": 1}), value), (None, b"\x02" + tso(5).to_bytes(8, "big")))
    scene.run()
    assert f"partition 0, offset 1: {told}" in scene.told


def test_a_row_whose_time_is_before_that_of_the_row_before_it_stops_its_table(scene: Scene) -> None:
    scene.put(1)
    scene.time -= 5000
    scene.put(1, "later")
    assert scene.run() == 3
    assert "partition 0, offset 1: Kafka keeps an earlier time for it than for a record before it" in scene.told


def test_a_time_is_compared_with_those_of_all_records_that_were_read_before(scene: Scene) -> None:
    """Also with what was read in another part of its range (4 MiB), and in another run."""
    scene.put(1)
    for key in range(2, 7):
        scene.put(key, "x" * 1_000_000)
    scene.time -= 60_000
    scene.drop(1)
    assert scene.run() == 3
    assert "partition 0, offset 6: Kafka keeps an earlier time for it than for a record before it" in scene.told


def test_a_time_is_compared_with_those_before_its_range(scene: Scene) -> None:
    scene.put(1)
    assert scene.run() == 0
    scene.time -= 60_000
    scene.drop(1)
    scene.time += 30_000
    scene.put(2)
    assert scene.run() == 3
    assert "partition 0, offset 1: Kafka keeps an earlier time for it than for a record before it" in scene.told


# --- names that Avro does not allow -----------------------------------------------------------------------------------------

OTHER_KEY, OTHER = KEY | {"name": "a_b"}, VALUE | {"name": "a_b"}
OTHER_KEY_ID, OTHER_ID = 17, 18


def put_other(scene: Scene, key: int) -> tuple[bytes, bytes]:
    row = {"id": key, "v": "x", "_tidb_op": "c", "_tidb_commit_ts": tso(5)}
    scene.register({OTHER_KEY_ID: OTHER_KEY, OTHER_ID: OTHER})
    return framed(OTHER_KEY_ID, OTHER_KEY, {"id": key}), framed(OTHER_ID, OTHER, row)


def statement(second: int, query: str, table: str) -> tuple[None, bytes]:
    return None, b"\x01" + json.dumps({"query": query, "schema": "shop", "table": table, "commitTs": tso(second)}).encode()


def test_two_tables_that_have_one_name_in_avro_are_not_mixed(scene: Scene) -> None:
    scene.timed = True
    columns = "(id INT PRIMARY KEY, v VARCHAR(20))"
    scene.write(
        statement(1, f"CREATE TABLE `a-b` {columns}", "a-b"),
        statement(2, f"CREATE TABLE a_b {columns}", "a_b"),
        statement(2, f"CREATE TABLE a {columns}", "a"),
        put_other(scene, 1),
    )
    scene.put(1)
    scene.write((None, b"\x02" + tso(3600 * 24).to_bytes(8, "big")))
    assert scene.run() == 3
    assert "table shop.a_b, partition 0, offset 0: rows of the table shop.a-b have the name shop.a_b in Avro" in scene.told
    assert scene.rows("id") == [(1,)]


def test_a_name_in_two_topics_may_be_of_two_tables(scene: Scene) -> None:
    """Also if a run has read only one of them: the ledger keeps the topic."""
    topics = [scene.kafka.make_topic(name=f"{scene.topic}-{name}") for name in ("a_b", "a-b")]
    scene.params = {"topics": f"{scene.topic}-*"}
    for number, code in enumerate((0, 0, 3)):
        scene.topic = topics[number // 2]
        scene.write(put_other(scene, number))
        scene.topic = scene.path
        assert scene.run() == code
    assert (
        f"table shop.a_b, partition {topics[1]}/0, offset 0: records with its name are in the topic {topics[0]} and in "
        in scene.told
    )


def test_a_name_that_only_one_table_can_have_may_be_in_two_topics(scene: Scene) -> None:
    scene.kafka.make_topic(name=f"{scene.topic}-2")
    scene.params = {"topics": f"{scene.topic}-*"}
    scene.put(1)
    scene.topic = f"{scene.path}-2"
    scene.put(2)
    scene.topic = scene.path
    assert scene.run() == 0
    assert scene.rows("id") == [(1,), (2,)]


# --- schemas that change ----------------------------------------------------------------------------------------------------


def test_a_column_that_is_added_has_its_default_in_older_rows(scene: Scene) -> None:
    wider = record("a", ID, COUNT, V, *OWN)
    scene.register({WIDER_ID: wider})
    scene.put(1)
    assert scene.run() == 0
    scene.put(2, schema_id=WIDER_ID, told=wider, c=6)
    assert scene.run() == 0
    assert scene.rows("id, c, v") == [(1, 5, "x"), (2, 6, "x")]


def test_rows_that_are_sent_again_with_their_old_schema_do_not_take_the_table_back(scene: Scene) -> None:
    wider = record("a", ID, COUNT, V, *OWN)
    scene.register({WIDER_ID: wider})
    scene.put(1)
    scene.put(2, schema_id=WIDER_ID, told=wider, c=6)
    assert scene.run() == 0
    scene.put(1)
    scene.put(3)
    scene.put(2, "y", schema_id=WIDER_ID, told=wider, c=7)
    assert scene.run() == 0
    assert scene.rows("id, c, v") == [(1, 5, "x"), (2, 7, "y"), (3, 5, "x")]


def test_an_added_decimal_waits_for_a_decision_since_its_default_is_not_known(scene: Scene) -> None:
    wider = record("a", ID, V, {"name": "d", "type": ["null", DECIMAL], "default": None}, *OWN)
    scene.register({WIDER_ID: wider})
    scene.put(1)
    scene.put(2, schema_id=WIDER_ID, told=wider, d=long(120)[:1])
    assert scene.run() == 3
    assert "nothing tells the default of d, so it is not known what older rows have in it." in scene.told
    assert scene.rows() == [(1, "x")]


def test_a_type_that_is_not_known_stops_its_table(scene: Scene) -> None:
    shape = {"type": "string", "connect.parameters": {"tidb_type": "GEOMETRY"}}
    odd = record("a", ID, {"name": "g", "type": shape}, *OWN)
    scene.register({WIDER_ID: odd})
    scene.put(1, schema_id=WIDER_ID, told=odd, g="POINT(1 1)")
    assert scene.run() == 3
    assert "table shop.a, partition 0, offset 0: the schema change cannot be read: the type 'GEOMETRY' of column g" in scene.told


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("nothing", [None, b""])
@pytest.mark.reading_case("B42")
def test_a_message_without_key_and_value_may_be_a_deletion_and_is_told(nothing: bytes | None, timed: bool, scene: Scene) -> None:
    """The deletion of a row that has no key. A null and an empty key are the same."""
    scene.timed = timed
    scene.write((nothing, nothing))
    scene.run()
    assert "partition 0, offset 0: it has neither a key nor a value" in scene.told


def test_a_table_without_a_key_is_stopped_unless_that_is_accepted(scene: Scene) -> None:
    scene.write((None, framed(VALUE_ID, VALUE, {"id": 1, "v": "x", "_tidb_op": "c", "_tidb_commit_ts": 1})))
    assert scene.run() == 3
    assert "table shop.a, partition 0, offset 0: The table has no primary key" in scene.told


# --- what is weaker ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["run", "inspect", "validate", "status"])
def test_what_is_weaker_is_told(command: str, scene: Scene) -> None:
    scene.put(1)
    assert scene.run() == 0
    definition = scene.folder / "pipeline.yaml"
    definition.write_text(json.dumps({"source": {"uri": scene.uri}, "sink": {"uri": scene.sink}}))
    arguments = {
        "run": ["run", "--until-end", "--quiet", "0.2"],
        "inspect": ["inspect", scene.uri],
        "validate": ["validate"],
        "status": ["status"],
    }[command]
    scene.capsys.readouterr()
    text = scene.told
    if command != "run":
        main([*arguments, *([str(definition)] if command != "inspect" else [])])
        text = "".join(scene.capsys.readouterr())
    assert "the protocol avro has no watermarks" in " ".join(text.split())
    assert "the protocol avro has no schema changes" in " ".join(text.split())
