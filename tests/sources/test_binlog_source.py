"""What a topic of TiDB's binlog may hold besides good messages, from a real broker: nothing is lost, each error says what to do."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from harness import run_once
from headrace import faults
from headrace.cli.main import main
from headrace.formats.binlog import slave_binlog_pb2 as pb
from headrace.pipeline.given import definitions_from
from headrace.testing.engine import LocalEngine
from headrace.testing.faults import Crashed
from kafka_server import KafkaBroker, Record

pytestmark = [pytest.mark.server, pytest.mark.pipeline]

FIRST = 470605854321410048
MINUTE = 60_000 << 18


SHAPES = "CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY, n INT); CREATE TABLE shop.u (id INT PRIMARY KEY, n INT);"


def ddl(minute: int, statement: str, table: str = "t", schema: str = "shop") -> bytes:
    message = pb.Binlog(type=1, commit_ts=FIRST + minute * MINUTE)
    message.ddl_data.schema_name, message.ddl_data.table_name = schema.encode(), table.encode()
    message.ddl_data.ddl_query = statement.encode()
    return message.SerializeToString()


def rows(minute: int, *ids: int, table: str = "t", more: tuple[str, ...] = (), deleted: tuple[int, ...] = ()) -> bytes:
    """A transaction that inserts rows with these ids, and deletes some; ``more`` are further INT columns, with the value 7."""
    return binlog(minute, *ids, table=table, more=more, deleted=deleted).SerializeToString()


def of_two(minute: int, first: pb.Binlog, second: pb.Binlog) -> bytes:
    """One transaction with the rows of two."""
    message = pb.Binlog(type=0, commit_ts=FIRST + minute * MINUTE)
    message.dml_data.tables.extend([*first.dml_data.tables, *second.dml_data.tables])
    return message.SerializeToString()


def binlog(minute: int, *ids: int, table: str = "t", more: tuple[str, ...] = (), deleted: tuple[int, ...] = ()) -> pb.Binlog:
    """See :func:`rows`."""
    message = pb.Binlog(type=0, commit_ts=FIRST + minute * MINUTE)
    changes = message.dml_data.tables.add()
    changes.schema_name, changes.table_name = b"shop", table.encode()
    for name in ("id", *more):
        info = changes.column_info.add()
        info.name, info.mysql_type, info.is_primary_key, info.flen, info.decimal = name.encode(), b"int", name == "id", 11, 0
    for kind, row in [*((0, n) for n in ids), *((2, n) for n in deleted)]:
        mutation = changes.mutations.add()
        mutation.type = kind
        for value in (row, *(7 for _ in more)):
            mutation.row.columns.add().int64_value = value
    return message


BEGIN = [ddl(0, "CREATE DATABASE `shop`;", ""), ddl(1, "CREATE TABLE `t` (`id` INT PRIMARY KEY);"), rows(2, 1)]


class Topic:
    """A topic, and the DuckDB file into which it is replicated."""

    def __init__(self, kafka: KafkaBroker, folder: Path) -> None:
        self.kafka, self.folder, self.name = kafka, folder, kafka.make_topic()

    @property
    def uri(self) -> str:
        return f"tidb-binlog://{self.kafka.server}/{self.name}"

    @property
    def sink(self) -> str:
        return f"duckdb://{self.folder / 'target.duckdb'}"

    def write(self, *messages: bytes) -> None:
        self.kafka.write(self.name, [Record(message) for message in messages])

    def run(self, uri: str = "", **more: object) -> int:
        return run_once(uri or self.uri, self.sink, None, "shop", LocalEngine(), **more)

    def ids(self, table: str = "t") -> list[tuple[object, ...]]:
        with duckdb.connect(str(self.folder / "target.duckdb")) as connection:
            return connection.sql(f"SELECT * FROM shop.{table} ORDER BY ALL").fetchall()


@pytest.fixture
def topic(kafka: KafkaBroker, tmp_path: Path) -> Topic:
    return Topic(kafka, tmp_path)


def test_a_damaged_message_holds_what_follows_until_it_is_given_up(topic: Topic, capsys: pytest.CaptureFixture[str]) -> None:
    topic.write(*BEGIN, rows(3, 2)[:-3], rows(4, 3))
    assert topic.run() == 3
    told = capsys.readouterr().err
    assert "partition 0, offset 3" in told
    assert "headrace table skip --partition 0 --offset 3" in told
    assert topic.ids() == [(1,)]
    assert main(["table", "skip", "--partition", "0", "--offset", "3", "--sink", topic.sink, "--name", "shop", "--yes"]) == 0
    assert topic.run() == 0
    assert topic.ids() == [(1,), (3,)]


def test_a_column_of_a_change_that_is_under_way_is_passed_over(topic: Topic) -> None:
    """TiDB writes a new column before its ALTER is done, so a message may have it. It is known once the statement is there."""
    topic.write(*BEGIN, rows(3, 2, more=("n",)))
    topic.run()
    topic.write(ddl(4, "ALTER TABLE `t` ADD COLUMN `n` INT DEFAULT 5;"), rows(5, 3, more=("n",)), rows(6, 4, more=("n", "m")))
    topic.write(ddl(7, "ALTER TABLE `t` ADD COLUMN `m` INT DEFAULT 6;"), ddl(8, "ALTER TABLE `t` DROP COLUMN `n`;"))
    topic.write(rows(9, 5, more=("n", "m")), rows(10, 6, more=("m",)))
    assert topic.run() == 0
    assert topic.ids() == [(1, 6), (2, 6), (3, 6), (4, 6), (5, 7), (6, 7)]


def test_a_column_that_no_statement_adds_stops_its_table(topic: Topic, capsys: pytest.CaptureFixture[str]) -> None:
    topic.write(*BEGIN, ddl(2, "CREATE TABLE `u` (`id` INT PRIMARY KEY);", "u"), rows(3, 2, more=("n",)), rows(4, 9, table="u"))
    topic.write(rows(5, 10, table="u"))
    assert topic.run() == 3
    assert "shop.t" in (told := capsys.readouterr().err)
    assert "has the column n, which the schema does not have" in told
    assert "partition 0, offset 4" in told
    assert topic.ids("u") == [(9,), (10,)]


def test_one_message_that_inserts_and_deletes_a_row_leaves_none(topic: Topic) -> None:
    topic.write(*BEGIN, rows(3, 2, 3, deleted=(2,)))
    assert topic.run() == 0
    assert topic.ids() == [(1,), (3,)]


@pytest.mark.reading_case("A56")
def test_a_database_is_created_without_being_used_before(topic: Topic) -> None:
    topic.write(ddl(0, "/* c */ CREATE  SCHEMA IF NOT EXISTS shop", ""), *BEGIN[1:])
    assert topic.run() == 0
    assert topic.ids() == [(1,)]


@pytest.mark.reading_case("A57")
def test_a_drop_of_several_tables_comes_once_for_each(topic: Topic) -> None:
    topic.write(*BEGIN, ddl(3, "CREATE TABLE `u` (`id` INT PRIMARY KEY);", "u"))
    topic.write(ddl(4, "DROP TABLE `t`, `u`;"), ddl(5, "CREATE TABLE `t` (`id` INT PRIMARY KEY);"), rows(6, 5))
    topic.write(ddl(7, "DROP TABLE `t`, `u`;", "u"))
    assert topic.run() == 0
    assert topic.ids() == [(5,)]
    with pytest.raises(duckdb.CatalogException):
        topic.ids("u")


def test_a_topic_that_begins_after_the_start_is_refused(topic: Topic, capsys: pytest.CaptureFixture[str]) -> None:
    topic.write(*BEGIN, rows(3, 2), rows(4, 3))
    topic.kafka.delete_records(topic.name, 3)
    assert topic.run(start=FIRST + MINUTE) == 4
    told = capsys.readouterr().err
    assert "begins at" in told
    assert "(offset 3)" in told
    assert "allow-gap=true" in told


def test_a_topic_that_has_lost_all_its_records_is_refused_at_once(topic: Topic, capsys: pytest.CaptureFixture[str]) -> None:
    topic.write(*BEGIN, rows(3, 2))
    topic.kafka.delete_records(topic.name, 4)
    assert topic.run(start=FIRST + MINUTE) == 4
    assert "has no record any more before its end (offset 4)" in capsys.readouterr().err
    assert topic.run(f"{topic.uri}?allow-gap=true", start=FIRST + MINUTE) == 0


def test_a_record_that_cannot_be_read_hides_no_gap_at_the_beginning(topic: Topic, capsys: pytest.CaptureFixture[str]) -> None:
    topic.write(*BEGIN, rows(3, 2), rows(4, 3)[:-3], rows(5, 4))
    topic.kafka.delete_records(topic.name, 4)
    assert topic.run(start=FIRST + MINUTE) == 4
    told = capsys.readouterr().err
    assert "begins at" in told
    assert "(offset 5)" in told


def test_one_rename_swaps_two_tables(topic: Topic) -> None:
    topic.write(*BEGIN, ddl(2, "CREATE TABLE `u` (`id` INT, `v` INT PRIMARY KEY);", "u"), rows(3, 1, table="u", more=("v",)))
    topic.write(ddl(4, "RENAME TABLE `t` TO `tmp`, `u` TO `t`, `tmp` TO `u`;", "u"), rows(5, 5, table="u"))
    topic.write(rows(5, 1, more=("v",)))
    assert topic.run() == 0
    assert topic.ids("u") == [(1,), (5,)]
    assert topic.ids() == [(1, 7)]


def test_one_rename_gives_two_tables_of_one_message_one_version(topic: Topic) -> None:
    topic.write(*BEGIN[:2], ddl(2, "CREATE TABLE `u` (`id` INT PRIMARY KEY);", "u"))
    topic.write(ddl(3, "RENAME TABLE `t` TO `t2`, `u` TO `u2`;", "u2"))
    topic.write(of_two(4, binlog(4, 1, table="t2"), binlog(4, 2, table="u2")))
    assert topic.run() == 0
    assert topic.ids("t2") == [(1,)]
    assert topic.ids("u2") == [(2,)]


@pytest.mark.parametrize("bad", ["t", "u"])
def test_a_table_stops_whose_rows_lie_in_one_message_with_those_of_another(
    topic: Topic, tmp_path: Path, bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (shapes := tmp_path / "shapes.sql").write_text(SHAPES)
    first, second = (binlog(5, 1, table=name, more=("n",)) for name in "tu")
    damaged = first if bad == "t" else second
    value = damaged.dml_data.tables[0].mutations[0].row.columns[1]
    value.Clear()
    value.string_value = b"x"
    topic.write(of_two(5, first, second))
    for _ in range(2):
        assert topic.run(start=FIRST + MINUTE, given=definitions_from(str(shapes))) == 3
        assert f"table shop.{bad}, partition 0, offset 0, column n" in capsys.readouterr().err
    assert topic.ids(bad) == []
    assert topic.ids("u" if bad == "t" else "t") == [(1, 7)]


def test_records_that_are_gone_before_they_were_read_end_the_run(topic: Topic, capsys: pytest.CaptureFixture[str]) -> None:
    topic.write(*BEGIN)
    assert topic.run() == 0
    topic.write(rows(3, 2), rows(4, 3))
    topic.kafka.delete_records(topic.name, 4)
    assert topic.run() == 4
    assert "Records 3 to 3 of partition 0" in capsys.readouterr().err
    assert topic.ids() == [(1,)]


def test_an_empty_topic_and_one_that_does_not_exist(topic: Topic, capsys: pytest.CaptureFixture[str]) -> None:
    assert topic.run(f"tidb-binlog://{topic.kafka.server}/none") == 4
    assert "The topic none does not exist" in capsys.readouterr().err
    assert topic.run() == 0


def test_what_is_in_a_topic_is_told_with_its_places(topic: Topic, capsys: pytest.CaptureFixture[str]) -> None:
    topic.write(*BEGIN, rows(3, 2), *BEGIN[1:], rows(4, 3)[:-3], rows(5, 4, more=("n",)))
    assert main(["inspect", topic.uri, "--check"]) == 3
    told = capsys.readouterr().out
    assert "watermark-goes-back: 1 found" in told
    assert "(partition 0, offset 4)" in told
    assert "unreadable-message: 1 found" in told
    assert "(partition 0, offset 6)" in told
    assert "table shop.t: The message about table shop.t has the column n" in told
    assert f"{1 + 1 + 1 + 1}\n" in next(line for line in told.splitlines(keepends=True) if "shop.t  " in line)


@pytest.mark.parametrize(
    ("uri", "sentence"),
    [
        ("tidb-binlog://127.0.0.1:1/", "names neither a topic nor a cluster id"),
        ("tidb-binlog://127.0.0.1:1/?cluster-id=x", "cluster-id must be a number"),
        ("tidb-binlog://127.0.0.1:1/t?time-zone=Nowhere", "time zone"),
        ("tidb-binlog://127.0.0.1:1/t?protocol=canal-json", "Unknown parameter of a binlog source 'protocol'"),
    ],
)
def test_wrong_uris_are_refused(uri: str, sentence: str, topic: Topic, capsys: pytest.CaptureFixture[str]) -> None:
    assert topic.run(uri) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("killed_at", range(2, 40, 4))
@pytest.mark.reading_case("A64", "A66")
def test_a_run_that_is_killed_leaves_nothing_out_and_repeats_nothing(topic: Topic, killed_at: int) -> None:
    topic.write(*BEGIN, ddl(2, "CREATE TABLE `bag` (`id` INT);", "bag"), rows(3, 5, 5, table="bag"), rows(4, 2))
    topic.write(ddl(5, "ALTER TABLE `t` ADD COLUMN `n` INT;"), rows(3, 5, 5, table="bag"), rows(4, 2))
    topic.write(ddl(5, "ALTER TABLE `t` ADD COLUMN `n` INT;"), rows(6, 3, more=("n",)), rows(7, 5, table="bag", deleted=(5,)))
    left = killed_at

    def strike(moment: faults.Moment, step: faults.FaultPoint, detail: str) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            raise Crashed(f"{moment} {step}")

    former = faults.arm(strike)
    try:
        topic.run()
    except Crashed:
        pass
    finally:
        faults.arm(former)
    assert topic.run() == 0
    assert topic.ids() == [(1, None), (2, None), (3, 7)]
    assert topic.ids("bag") == [(5,), (5,)]
