"""Topics that are not what they should be: the run names partition and offset, stops what it must, and loses nothing."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from test_binlog_source import ddl

from harness import run_once
from headrace.cli.main import main
from headrace.pipeline.given import definitions_from
from headrace.testing.engine import LocalEngine
from kafka_cases import COLUMNS, created, database_created, message, row, statement, tso, watermark
from kafka_server import KafkaBroker, Record
from servers import free_port

pytestmark = [pytest.mark.server, pytest.mark.pipeline]

TABLES = (database_created(1), created(2), created(3, "b"))


@dataclass
class Scene:
    """A topic, and a DuckDB file that runs apply it to."""

    kafka: KafkaBroker
    topic: str
    folder: Path
    capsys: pytest.CaptureFixture[str]
    told: str = ""

    def write(self, *values: bytes | None, partition: int = 0) -> None:
        self.kafka.write(self.topic, [Record(value, partition) for value in values])

    def run(self, uri: str = "", **params: object) -> int:
        """The exit code of a run; what it printed is in ``told``."""
        self.capsys.readouterr()
        more: dict[str, Any] = {"until_end": True, "quiet": 0.2} if params.pop("until_end", False) else {}
        more |= {name: params.pop(name) for name in ("start", "given") if name in params}
        sink = f"duckdb://{self.folder}/x.duckdb"
        code = run_once(uri or self.kafka.uri(self.topic, **params), sink, engine=LocalEngine(), **more)
        self.told = "".join(self.capsys.readouterr())
        return code

    def keys(self, table: str = "a") -> list[int]:
        with duckdb.connect(str(self.folder / "x.duckdb")) as connection:
            return [key for (key,) in connection.execute(f"SELECT id FROM shop.{table} ORDER BY id").fetchall()]


@pytest.fixture
def scene(kafka: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Scene:
    return Scene(kafka, kafka.make_topic(), tmp_path, capsys)


def with_partitions(scene: Scene, count: int) -> Scene:
    scene.topic = scene.kafka.make_topic(count)
    return scene


def test_a_damaged_row_stops_its_table_and_no_other(scene: Scene) -> None:
    scene.write(*TABLES, row(4, 1), row(5, 2)[:-20], row(6, 3), row(7, 1, table="b"), watermark(8))
    assert scene.run() == 3
    assert "table shop.a, partition 0, offset 4: it is not one JSON object" in scene.told
    assert scene.keys("b") == [1]


def test_behind_a_message_of_no_table_nothing_is_applied(scene: Scene) -> None:
    scene.write(*TABLES, row(4, 1), watermark(5))
    assert scene.run() == 0
    scene.write(b"\xff\xfe not canal-JSON", row(6, 2), watermark(7))
    scene.run()
    assert "partition 0, offset 5: it is not UTF-8. The record's table is unknown" in scene.told
    assert scene.keys() == [1]


@pytest.mark.parametrize(("damaged", "table"), [(b"?", ()), (row(3, 9)[:-20], ("shop.a",))], ids=["of no table", "of a table"])
def test_a_record_that_was_given_up_stays_so_behind_the_watermark_too(damaged: bytes, table: tuple[str, ...], scene: Scene) -> None:
    """The run stages it once, together with what it applies up to the watermark and then to the end."""
    scene.write(*TABLES[:1], damaged, *TABLES[1:], row(4, 1), watermark(5), row(6, 2))
    assert scene.run() == 3
    skip = ["table", "skip", *table, "--partition", "0", "--offset", "1", "--yes"]
    assert main([*skip, "--source", scene.kafka.uri(scene.topic), "--sink", f"duckdb://{scene.folder}/x.duckdb"]) == 0
    assert scene.run(until_end=True) == 0, scene.told
    assert scene.keys() == [1, 2]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"null", "it is not one JSON object."),
        (b"[" * 100_000, "it is nested too deeply."),
        (row(5, 2) + b"\n" + row(5, 3), "it is not one JSON object: Extra data"),
        (message("MERGE", tso(5)), "its type is 'MERGE', which is not known."),
        (message("INSERT", tso(5), _tidb={"commitTs": -1}), "_tidb.commitTs is not a commit ts."),
        (message("TIDB_WATERMARK", tso(5), _tidb={}), "it is a watermark without a ts"),
        (message("INSERT", tso(5), table=""), "it does not name its table."),
    ],
)
@pytest.mark.reading_case("B21")
def test_a_message_that_is_not_understood_is_told_with_its_place(value: bytes, reason: str, scene: Scene) -> None:
    scene.write(*TABLES, row(4, 1), value, row(6, 2), watermark(7))
    scene.run()
    assert "partition 0, offset 4: " + reason in scene.told


@pytest.mark.reading_case("B21")
def test_empty_values_and_line_ends_of_old_releases_mean_nothing(scene: Scene) -> None:
    scene.write(*TABLES, None, b"", row(4, 1) + b"\r\n", b" \r\n", row(5, 2), watermark(6))
    assert scene.run() == 0
    assert scene.keys() == [1, 2]


def test_a_row_that_does_not_fit_its_table_names_its_column(scene: Scene) -> None:
    wrong = message("INSERT", tso(5), mysqlType={}, data=[{"id": "x", "v": "1"}])
    scene.write(*TABLES, row(4, 1), wrong, watermark(6))
    assert scene.run() == 3
    assert "table shop.a, partition 0, offset 4, column id" in scene.told
    assert "not a value of the type INT" in scene.told


@pytest.mark.parametrize(
    ("column", "told", "sentence"),
    [
        ("VARCHAR(20)", "varbinary", "the column holds bytes, and by the table's schema changes it holds text."),
        ("VARBINARY(20)", "varchar", "the column holds text, and by the table's schema changes it holds bytes."),
    ],
)
def test_bytes_are_never_read_as_text(column: str, told: str, sentence: str, scene: Scene) -> None:
    """The default charset of the database may be older than the topic, so that the statements do not show it."""
    wrong = message("INSERT", tso(4), mysqlType={"id": "int", "v": told}, data=[{"id": "1", "v": "é"}])
    scene.write(database_created(1), statement(2, f"CREATE TABLE a (id INT PRIMARY KEY, v {column})"), created(3, "b"), wrong)
    scene.write(row(5, 1, table="b"), watermark(6))
    assert scene.run() == 3
    assert "table shop.a, partition 0, offset 3, column v" in scene.told
    assert sentence in scene.told
    assert scene.keys("b") == [1]


def test_a_row_with_columns_of_an_unknown_schema_change_stops_its_table(scene: Scene) -> None:
    wider = message("INSERT", tso(5), mysqlType={}, data=[{"id": "2", "v": "1", "w": "2"}])
    scene.write(*TABLES, row(4, 1), watermark(4), wider, watermark(6))
    assert scene.run() == 3
    assert "partition 0, offset 5, column w: The columns of the row are not those that shop.a has" in scene.told


def test_a_table_that_the_topic_never_creates_is_told(scene: Scene) -> None:
    scene.write(*TABLES, row(4, 1, table="older"), row(5, 1), watermark(6))
    assert scene.run() == 3
    assert "table shop.older" in scene.told
    assert "its columns are not known" in scene.told
    assert scene.keys() == [1]


@pytest.mark.parametrize(
    ("text", "kind", "table"),
    [
        ("DROP TABLE `a`", "ERASE", "a"),
        ("RENAME TABLE `shop`.`a` TO `shop`.`c`", "RENAME", "c"),
        ("DROP DATABASE shop", "ERASE", ""),
    ],
)
def test_rows_behind_the_end_of_their_table_are_never_passed_over(text: str, kind: str, table: str, scene: Scene) -> None:
    """An event filter of the changefeed may leave out the CREATE TABLE of the next table of that name."""
    scene.write(database_created(1), created(2), row(3, 1), statement(4, text, table=table, type=kind), row(5, 2), watermark(6))
    assert scene.run() == 3
    assert "table shop.a" in scene.told
    assert "it was dropped or renamed before these rows" in scene.told
    assert scene.run() == 3


def test_the_end_of_a_temporary_table_is_no_end_of_the_table_of_that_name(scene: Scene) -> None:
    dropped = statement(4, "DROP TEMPORARY TABLE IF EXISTS a", type="ERASE")
    scene.write(database_created(1), created(2), row(3, 1), dropped, row(5, 2), watermark(6))
    while scene.run() == 3:
        found = re.search(r"ddl \S+ '([^']+)'", scene.told)
        assert found is not None, "nothing but a decision about the statement is missing"
        assert main(["ddl", "skip", found[1], "--sink", f"duckdb://{scene.folder}/x.duckdb"]) == 0
    assert scene.keys() == [1, 2]


def test_a_schema_change_of_an_unknown_type_stops_its_table(scene: Scene) -> None:
    scene.write(*TABLES, statement(4, "ALTER TABLE a ADD p geometry", type="ALTER"), row(5, 1, table="b"), watermark(6))
    assert scene.run() == 3
    assert (
        "partition 0, offset 3: the shape that a schema change gives it is not known: the type 'geometry' of column p" in scene.told
    )
    assert scene.keys("b") == [1]


@pytest.mark.reading_case("B58")
def test_a_watermark_that_goes_back_undoes_nothing(scene: Scene) -> None:
    scene.write(*TABLES, row(4, 1), row(6, 2), watermark(8))
    assert scene.run() == 0
    scene.write(watermark(5), row(6, 2), row(9, 3))
    assert scene.run() == 0
    assert scene.keys() == [1, 2]
    scene.write(watermark(10))
    assert scene.run() == 0
    assert scene.keys() == [1, 2, 3]


@pytest.mark.reading_case("B51", "B68")
def test_rows_above_the_least_watermark_wait(scene: Scene) -> None:
    scene = with_partitions(scene, 2)
    scene.write(*TABLES, row(4, 1), row(9, 2), watermark(10))
    scene.write(row(5, 3), watermark(6), row(8, 4), partition=1)
    assert scene.run() == 0
    assert scene.keys() == [1, 3]
    scene.write(watermark(12), partition=1)
    assert scene.run() == 0
    assert scene.keys() == [1, 2, 3, 4]


@pytest.mark.reading_case("B61")
def test_a_surplus_partition_holds_everything_until_it_is_left_out(scene: Scene) -> None:
    scene = with_partitions(scene, 3)
    scene.write(*TABLES, row(4, 1), watermark(5))
    scene.write(watermark(5), partition=1)
    scene.run()
    assert "Partition 2 has no watermark, and others have: nothing is applied until it has one." in scene.told
    assert "Set partition-num in the source's URI" in scene.told
    assert scene.run(partition_num=2) == 0
    assert scene.keys() == [1]


def test_records_in_partitions_above_partition_num_are_told(scene: Scene) -> None:
    scene = with_partitions(scene, 3)
    for partition in range(2):
        scene.write(*TABLES, row(4, partition), watermark(5), partition=partition)
    assert scene.run(partition_num=2) == 0
    assert "is not read, because partition-num is 2" not in scene.told
    for partition in range(3):
        scene.write(row(7, 10 + partition), watermark(8), partition=partition)
    assert scene.run(partition_num=2) == 0
    assert f"Partition 2 of the topic {scene.topic} has records and is not read, because partition-num is 2." in scene.told
    assert scene.run(partition_num=3) == 0
    assert "1 changes came too late" in scene.told


def test_a_topic_with_too_few_partitions_is_told(scene: Scene) -> None:
    assert scene.run(partition_num=2) == 4
    assert f"The topic {scene.topic} has 1 partitions, and partition-num is 2." in scene.told


def test_an_empty_topic_has_nothing_to_apply(scene: Scene) -> None:
    assert scene.run() == 0
    assert "nothing new was applied" in scene.told


def test_a_topic_that_does_not_exist_is_told(scene: Scene) -> None:
    assert scene.run(scene.kafka.uri("nowhere")) == 4
    assert "The topic nowhere does not exist" in scene.told


def test_a_broker_that_is_down_is_told(scene: Scene) -> None:
    port = free_port()
    assert scene.run(scene.kafka.uri(scene.topic, port)) == 4
    assert f"Kafka at 127.0.0.1:{port} cannot be read" in scene.told
    assert "Connection refused" in scene.told


def test_records_that_retention_removed_before_they_were_applied_are_lost_loudly(scene: Scene) -> None:
    scene.write(*TABLES, row(4, 1), watermark(5))
    assert scene.run() == 0
    scene.write(row(6, 2), row(7, 3), watermark(8))
    scene.kafka.delete_records(scene.topic, 6)
    assert scene.run() == 4
    assert "of partition 0 were not applied yet, and are not kept any more." in scene.told
    assert scene.keys() == [1]


def test_records_that_retention_removed_after_they_were_applied_are_not_missed(scene: Scene) -> None:
    scene.write(*TABLES, row(4, 1), watermark(5))
    assert scene.run() == 0
    scene.kafka.delete_records(scene.topic, 5)
    scene.write(row(6, 2), watermark(8))
    assert scene.run() == 0
    assert scene.keys() == [1, 2]


class TestAPipelineThatBeginsAtATime:
    """Its tables were loaded as of that time. Retention may have removed messages by then."""

    ROWS = (row(4, 1), watermark(5), row(6, 2), watermark(7))

    def begin(self, scene: Scene, start: int, **params: object) -> int:
        definitions = scene.folder / "shop.sql"
        definitions.write_text(f"CREATE DATABASE shop; CREATE TABLE shop.a ({COLUMNS});")
        return scene.run(start=tso(start), given=definitions_from(str(definitions)), **params)

    def test_is_refused_if_messages_after_it_may_be_gone(self, scene: Scene) -> None:
        scene.write(*self.ROWS)
        scene.kafka.delete_records(scene.topic, 2)
        assert self.begin(scene, 3) == 4
        assert f"Partition 0 of the topic {scene.topic} begins at" in scene.told
        assert "(offset 2)" in scene.told
        assert self.begin(scene, 3, allow_gap="true") == 0
        assert scene.keys() == [2]

    def test_goes_on_behind_a_message_that_is_not_later(self, scene: Scene) -> None:
        scene.write(*self.ROWS)
        scene.kafka.delete_records(scene.topic, 1)
        assert self.begin(scene, 5) == 0
        assert scene.keys() == [2]

    def test_needs_no_message_before_it_in_a_topic_that_has_lost_none(self, scene: Scene) -> None:
        scene.write(*self.ROWS)
        assert self.begin(scene, 3) == 0
        assert scene.keys() == [1, 2]
        assert "not kept any more" not in scene.told

    def test_is_refused_if_one_of_the_partitions_has_lost_messages_after_it(self, scene: Scene) -> None:
        with_partitions(scene, 2)
        for partition in (0, 1):
            scene.write(*self.ROWS, partition=partition)
        scene.kafka.delete_records(scene.topic, 2, partition=1)
        assert self.begin(scene, 3) == 4
        assert f"Partition 1 of the topic {scene.topic} begins at" in scene.told

    def test_is_refused_if_the_topic_has_no_message_any_more(self, scene: Scene) -> None:
        scene.write(*self.ROWS)
        scene.kafka.delete_records(scene.topic, 4)
        assert self.begin(scene, 3) == 4
        assert "has no record any more before its end (offset 4)" in scene.told

    def test_is_warned_of_another_topic_that_has_no_message_any_more(self, scene: Scene) -> None:
        """TiCDC writes nothing to a topic whose tables were dropped, and nothing shows when that was."""
        scene.write(*self.ROWS)
        other = scene.kafka.make_topic()
        scene.kafka.write(other, [Record(row(1, 1, table="b"), 0)])
        scene.kafka.delete_records(other, 1)
        assert self.begin(scene, 3, topics=other) == 0
        assert f"of partition 0 of the topic {other} before offset 1 are not kept any more" in scene.told

    def test_is_warned_where_no_message_tells_a_time(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("headrace.sources.kafka.reader._LOOKED_AT", 1)
        scene.write(row(4, 1), b"{}", row(6, 2), watermark(7))
        scene.kafka.delete_records(scene.topic, 1)
        self.begin(scene, 3)
        assert f"of partition 0 of the topic {scene.topic} before offset 1 are not kept any more" in scene.told

    def test_is_warned_where_messages_tell_no_exact_time(self, scene: Scene) -> None:
        scene.write(*(row(n, n) for n in (4, 6)))
        scene.kafka.delete_records(scene.topic, 1)
        options = {"enable_tidb_extension": "false", "until_end": True}
        assert self.begin(scene, 3, **options) == 0
        assert f"of partition 0 of the topic {scene.topic} before offset 1 are not kept any more" in scene.told
        assert scene.keys() == [6]


@pytest.mark.parametrize("upto", [1, 500, 802])
def test_retention_may_remove_each_record_that_was_applied(upto: int, scene: Scene) -> None:
    """Though one that was not applied was read with them."""
    scene.write(*TABLES, *(row(4 + n, n) for n in range(800)), watermark(900), row(901, 1000))
    assert scene.run() == 0
    scene.kafka.delete_records(scene.topic, upto)
    assert scene.run() == 0
    scene.write(watermark(902))
    assert scene.run() == 0
    assert scene.keys() == [*range(800), 1000]


def test_records_that_only_a_stopped_table_needs_may_go_and_the_others_go_on(scene: Scene) -> None:
    scene.write(*TABLES, row(4, 1), row(4, 1, table="b"), row(5, 2)[:-20], row(6, 3), row(6, 5, table="b"), watermark(7))
    assert scene.run() == 3
    scene.kafka.delete_records(scene.topic, 8)
    scene.write(row(8, 9), row(8, 9, table="b"), watermark(9))
    assert scene.run() == 3
    assert scene.keys("b") == [1, 5, 9]
    assert "table shop.a: it does not go on: it stands at 0, and records up to" in scene.told


def test_a_lost_record_of_an_unknown_table_ends_the_run_though_the_checkpoint_is_past_it(scene: Scene) -> None:
    scene.write(*TABLES, row(4, 1), watermark(5), b"?")
    assert scene.run() == 3
    scene.kafka.delete_records(scene.topic, 6)
    scene.write(row(8, 9), watermark(9))
    assert scene.run() == 4
    assert "were not applied yet, and are not kept any more" in scene.told


@pytest.mark.parametrize("source", ["kafka", "tidb-binlog"])
@pytest.mark.parametrize("rows", [1, 5])
def test_a_topic_that_was_made_again_is_another_stream(source: str, rows: int, scene: Scene) -> None:
    """Its offsets say nothing of what was read, whether it is shorter or longer by now."""
    of_drainer = [ddl(n, f"CREATE DATABASE d{n}", "", f"d{n}") for n in range(3)]
    values = of_drainer if source == "tidb-binlog" else [watermark(n) for n in range(1, 4)]
    uri = f"{source}://{scene.kafka.server}/{scene.topic}" + ("?protocol=canal-json" if source == "kafka" else "")
    scene.write(*values)
    assert scene.run(uri) == 0
    scene.kafka.make_again(scene.topic)
    scene.write(*values[:1] * rows)
    assert scene.run(uri) == 4
    assert "is another stream than the one that was read: it was deleted and made again. Load the tables anew" in scene.told


def test_a_topic_of_another_protocol_is_told_in_one_sentence(scene: Scene) -> None:
    scene.write(*TABLES, row(4, 1), watermark(5))
    assert scene.run(protocol="open-protocol") == 3
    assert scene.told.count("warning:") == 1
    assert "partition 0, offset 0: its key has no version of the Open Protocol" in scene.told
    assert "There are more such records behind it. Check that the source's URI names the right stream and format" in scene.told


def test_a_change_of_the_future_is_told_and_can_be_given_up_with_the_command_that_is_printed(scene: Scene) -> None:
    scene.write(*TABLES, row(4, 1), row(60 * 24 * 365 * 90, 2), row(6, 3), watermark(7))
    assert scene.run() == 0
    assert scene.keys() == [1, 3]
    assert "too far ahead of this machine's clock, so the change waits" in scene.told
    assert "headrace table skip --partition 0 --offset 4" in scene.told
    sink = f"duckdb://{scene.folder}/x.duckdb"
    skip = ["table", "skip", "--partition", "0", "--offset", "4", "--yes", "--sink", sink]
    assert main([*skip, "--source", scene.kafka.uri(scene.topic)]) == 0
    assert scene.run() == 0
    assert "was given up" in scene.told


def test_without_the_extension_the_offset_orders_the_rows_of_a_millisecond(scene: Scene) -> None:
    """A restart repeats them under other offsets: that changes nothing."""
    plain = [without_extension(value) for value in (*TABLES, row(4, 1, "old"), row(4, 1, "new"), row(5, 2))]
    scene.write(*plain)
    assert scene.run(enable_tidb_extension="false", until_end=True) == 0
    scene.write(*plain)
    assert scene.run(enable_tidb_extension="false", until_end=True) == 0
    with duckdb.connect(str(scene.folder / "x.duckdb")) as connection:
        assert connection.execute("SELECT * FROM shop.a ORDER BY id").fetchall() == [(1, "new"), (2, "x")]


def test_without_the_extension_a_row_may_end_in_the_millisecond_in_which_it_began(scene: Scene) -> None:
    """One of them is written again and stays."""
    types = {"id": "int", "v": "varchar"}
    gone = [message("DELETE", tso(4), mysqlType=types, data=[{"id": key, "v": "x"}]) for key in ("1", "2")]
    changes = (row(4, 1), row(4, 2), *gone, row(4, 2, "again"))
    scene.write(*map(without_extension, (*TABLES, *changes)))
    assert scene.run(enable_tidb_extension="false", until_end=True) == 0
    assert scene.keys() == [2]


def without_extension(value: bytes) -> bytes:
    told = json.loads(value)
    del told["_tidb"]
    return json.dumps(told).encode()


def test_a_table_without_a_key_is_stopped_unless_that_is_accepted(scene: Scene) -> None:
    keyless = statement(2, "CREATE TABLE a (id INT, v VARCHAR(20))")
    scene.write(TABLES[0], keyless, row(4, 1), row(4, 1), watermark(5))
    assert scene.run() == 3
    assert "table shop.a, partition 0, offset 2: The table has no primary key" in scene.told
    assert scene.run(accept_keyless="true") == 0
    assert scene.keys() == [1, 1]


V, W = {"id": "int", "v": "varchar"}, {"id": "int", "v": "varchar", "w": "varchar"}


@pytest.mark.parametrize(
    ("odd", "sentence"),
    [
        (message("INSERT", tso(5), mysqlType={"id": "int"}, data=[{"id": "2"}]), "The message lacks the column v."),
        (
            message("UPDATE", tso(5), mysqlType={"id": "int"}, data=[{"id": "1"}], old=[{"id": "1"}]),
            "The message lacks the column v.",
        ),
        (
            message("INSERT", tso(5), mysqlType=W, data=[{"id": "2", "v": "y", "w": "z"}]),
            "column w: The columns of the row are not",
        ),
        (message("INSERT", tso(5), data=[{"id": "2", "v": "y", "w": "z"}]), "column w: The columns of the row are not"),
        (message("INSERT", tso(5), mysqlType={}, data=[{"id": "2"}]), "The message lacks the column v."),
    ],
)
def test_a_row_with_other_columns_stops_its_table_wherever_it_lies(odd: bytes, sentence: str, scene: Scene) -> None:
    """Rows before and after it have those of the table, and the last one only the key."""
    last = message("DELETE", tso(7), mysqlType={"id": "int"}, data=[{"id": "9"}])
    scene.write(*TABLES, row(4, 1), odd, row(6, 3), last, watermark(8))
    assert scene.run() == 3
    assert "table shop.a, partition 0, offset 4" in scene.told
    assert sentence in scene.told
