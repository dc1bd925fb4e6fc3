"""Topics of Debezium's own connector, recorded from a MariaDB, from a real broker into both kinds of target."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import duckdb
import pytest
from test_kafka_conformance import KILLS, check, empty, run

from debezium_cases import DebeziumCase, DebeziumRecord, DebeziumTopics, in_steps
from harness import State, assert_tables
from headrace.cli.main import main
from headrace.testing.faults import Crashed, Moment, Step, armed, crash_at
from kafka_server import KafkaBroker
from places import Place
from targets import Target

pytestmark = [pytest.mark.server, pytest.mark.pipeline]

WITH, WITHOUT = DebeziumCase(with_schema=True), DebeziumCase(with_schema=False)
AT_THE_END = {"until_end": True, "quiet": 0.2}
PARAMS: dict[DebeziumCase, dict[str, object]] = {WITH: {}, WITHOUT: {"accept_unclear": "true"}}


@pytest.fixture(params=[WITH, WITHOUT], ids=["schema", "no-schema"])
def case(request: pytest.FixtureRequest) -> DebeziumCase:
    assert isinstance(request.param, DebeziumCase)
    return request.param


def test_one_run_gives_the_final_state_and_a_second_changes_nothing(kafka: KafkaBroker, case: DebeziumCase, place: Place) -> None:
    topics, (target, sink) = DebeziumTopics.made(kafka, case.records), empty(place)
    topics.write(case.records)
    for _ in range(2):
        assert run(topics.uri(**PARAMS[case]), sink, **AT_THE_END) == 0
        check(target, case.final)


@pytest.mark.parametrize("length", [7])
def test_records_may_arrive_in_steps_and_again(kafka: KafkaBroker, case: DebeziumCase, place: Place, length: int) -> None:
    """A connector that was restarted sends its last records again."""
    topics, (target, sink) = DebeziumTopics.made(kafka, case.records), empty(place)
    for step in in_steps(case.records, length):
        topics.write(step)
        assert run(topics.uri(**PARAMS[case]), sink, **AT_THE_END) == 0
        topics.write(record for record in step if not record.is_of_snapshot)
    assert run(topics.uri(**PARAMS[case]), sink, **AT_THE_END) == 0
    check(target, case.final)


def test_one_run_over_records_that_were_sent_again_gives_the_final_state(kafka: KafkaBroker, place: Place) -> None:
    topics, (target, sink) = DebeziumTopics.made(kafka, WITH.records), empty(place)
    for step in in_steps(WITH.records, 5):
        topics.write(step)
        topics.write(record for record in step if not record.is_of_snapshot)
    assert run(topics.uri(), sink, **AT_THE_END) == 0
    check(target, WITH.final)


@pytest.mark.parametrize(("moment", "step"), KILLS)
def test_runs_that_are_killed_lose_and_repeat_nothing(moment: Moment, step: Step, kafka: KafkaBroker, place: Place) -> None:
    topics, (target, sink) = DebeziumTopics.made(kafka, WITH.records), empty(place)
    killed = 0
    for records in in_steps(WITH.records, 10):
        topics.write(records)
        try:
            with armed(crash_at(moment, step)):
                run(topics.uri(), sink, **AT_THE_END)
        except Crashed:
            killed += 1
    assert killed
    assert run(topics.uri(), sink, **AT_THE_END) == 0
    check(target, WITH.final)


def test_a_later_snapshot_drops_no_table_before_a_person_has_decided(
    kafka: KafkaBroker, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """A connector that only reads its schema changes again (``snapshot.mode=recovery``) sends no rows behind them."""
    topics, (target, sink) = DebeziumTopics.made(kafka, WITH.records), empty(place)
    topics.write(WITH.records)
    assert run(topics.uri(), sink, **AT_THE_END) == 0
    again = [record for record in WITH.records if record.is_of_snapshot and b'"ddl":"' in (record.value or b"")]
    assert any(b"DROP TABLE" in (record.value or b"") for record in again)
    topics.write(moved(record, '"file":"binlog.000003"') for record in again)
    assert run(topics.uri(), sink, **AT_THE_END) == 3
    assert "the connector takes a new snapshot, which drops the table" in "".join(capsys.readouterr())
    check(target, WITH.final)


def test_a_later_snapshot_replaces_the_tables_if_that_is_accepted(kafka: KafkaBroker, place: Place) -> None:
    topics, (target, sink) = DebeziumTopics.made(kafka, WITH.records), empty(place)
    topics.write(WITH.records)
    assert run(topics.uri(accept_unclear="true"), sink, **AT_THE_END) == 0
    topics.write(moved(record, '"file":"binlog.000003"') for record in WITH.records if record.is_of_snapshot)
    assert run(topics.uri(accept_unclear="true"), sink, **AT_THE_END) == 0
    assert {row[0] for row in target.rows("shop", "item", {"id": "int"})} == {"1", "2", "3"}
    assert target.columns("shop", "item") == {"id", "name", "price", "stock"}
    assert {row[0] for row in target.rows("shop", "later", {"id": "int"})} == {"2", "3"}


def test_a_later_snapshot_replaces_the_tables_that_a_person_approves(
    kafka: KafkaBroker, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    topics, (target, sink) = DebeziumTopics.made(kafka, WITH.records), empty(place)
    topics.write(WITH.records)
    assert run(topics.uri(), sink, **AT_THE_END) == 0
    topics.write(moved(record, '"file":"binlog.000003"') for record in WITH.records if record.is_of_snapshot)
    while run(topics.uri(), sink, **AT_THE_END) == 3:
        waiting = set(re.findall(r"ddl approve\|skip\|edit '([^']+)'", "".join(capsys.readouterr())))
        assert waiting, "it says what to do"
        for identity in waiting:
            assert main(["ddl", "approve", identity, "--sink", sink]) == 0
    assert {row[0] for row in target.rows("shop", "item", {"id": "int"})} == {"1", "2", "3"}
    assert {row[0] for row in target.rows("shop", "later", {"id": "int"})} == {"2", "3"}


def moved(record: DebeziumRecord, place: str, written_ms: int = 0) -> DebeziumRecord:
    """The record as if it was read from another file of a binlog."""
    value = (record.value or b"").replace(b'"file":"binlog.000001"', place.encode())
    if written_ms:
        value = value.replace(b'"ts_ms":%d' % record.payload["source"]["ts_ms"], b'"ts_ms":%d' % written_ms, 1)
    return replace(record, value=value)


def test_behind_a_message_of_another_binlog_nothing_is_applied(
    kafka: KafkaBroker, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    topics, (target, sink) = DebeziumTopics.made(kafka, WITH.records), empty(place)
    topics.write(WITH.records)
    assert run(topics.uri(), sink, **AT_THE_END) == 0
    later = WITH.records[-1].payload["ts_ms"] + 60_000
    changes = [record for record in WITH.records if record.suffix == "shop.line" and record.value is not None]
    topics.write(moved(record, '"file":"binlog.000000"', later) for record in changes if not record.is_of_snapshot)
    assert run(topics.uri(), sink, **AT_THE_END) == 3
    assert "it is from another binlog than the messages before it" in "".join(capsys.readouterr())
    check(target, WITH.final)


def check_others(target: Target, state: State, *left_out: str) -> None:
    others = tuple(table for table in state.tables if table.name not in left_out)
    assert_tables(target, [(table.database, table.name) for table in others], replace(state, tables=others))


def damaged(records: list[DebeziumRecord], text: bytes, by: bytes) -> Iterator[DebeziumRecord]:
    for record in records:
        yield replace(record, value=record.value.replace(text, by)) if record.value is not None else record


def test_a_damaged_value_stops_its_table_and_no_other(kafka: KafkaBroker, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    topics, (target, sink) = DebeziumTopics.made(kafka, WITH.records), empty(place)
    topics.write(damaged(WITH.records, b'"price":"AMg="', b'"price":"?"'))
    assert run(topics.uri(), sink, **AT_THE_END) == 3
    told = "".join(capsys.readouterr())
    assert "table shop.item, partition" in told
    assert "column price, value '?': The value is not written as a DECIMAL." in told
    check_others(target, WITH.final, "item")


def test_a_value_that_may_be_null_stops_its_table_unless_that_is_accepted(
    kafka: KafkaBroker, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Debezium writes the schema of a nullable column with a default."""
    field = b'{"type":"int32","optional":true,"field":"v"}'
    records = list(damaged(WITH.records, field, field.replace(b"true,", b'true,"default":3,')))
    topics, (target, sink) = DebeziumTopics.made(kafka, records), empty(place)
    topics.write(records)
    assert run(topics.uri(), sink, **AT_THE_END) == 3
    told = "".join(capsys.readouterr())
    assert "column v, value '3': The message does not show whether the value is NULL" in told
    assert "replace.null.with.default=false" in told
    check_others(target, WITH.final, "emptied")
    assert run(topics.uri(accept_unclear="true"), sink, **AT_THE_END) == 0
    check(target, WITH.final)


def test_without_schemas_tables_stop_whose_values_depend_on_settings(
    kafka: KafkaBroker, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    topics, (target, sink) = DebeziumTopics.made(kafka, WITHOUT.records), empty(place)
    topics.write(WITHOUT.records)
    assert run(topics.uri(), sink, **AT_THE_END) == 3
    told = "".join(capsys.readouterr())
    assert "only that shows how the connector writes a DECIMAL" in told
    assert "value.converter.schemas.enable=true" in told
    check_others(target, WITHOUT.final, "item", "types", "later")


def test_what_is_weaker_is_told(kafka: KafkaBroker, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    topics, (_, sink) = DebeziumTopics.made(kafka, WITH.records), empty(place)
    topics.write(WITH.records)
    assert run(topics.uri(protocol=""), sink) == 0
    told = "".join(capsys.readouterr())
    assert "show protocol=debezium-mysql." in told
    assert "Changes are applied only with --until-end, once the connector has written everything" in told
    assert "Debezium leaves TRUNCATE out unless the connector has skipped.operations=none" in told


def test_a_snapshot_does_not_drop_a_table_that_the_pipeline_did_not_make(kafka: KafkaBroker, place: Place) -> None:
    topics, (target, sink) = DebeziumTopics.made(kafka, WITH.records), empty(place)
    topics.write(WITH.records)
    make_own_table(place, sink)
    assert run(topics.uri(), sink, **AT_THE_END) == 3
    assert target.rows("shop", "item", {"id": "int", "mine": "int"}) == [("77", "1")]
    check_others(target, WITH.final, "item")


def make_own_table(place: Place, sink: str) -> None:
    statements = (
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.item (id INT PRIMARY KEY, mine INT)",
        "INSERT INTO shop.item VALUES (77, 1)",
    )
    if place.mariadb is not None:
        with place.mariadb.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        return
    with duckdb.connect(sink.removeprefix("duckdb://").partition("?")[0]) as connection:
        for statement in statements:
            connection.execute(statement)


def test_existing_rows_get_the_time_at_which_the_source_added_a_column(kafka: KafkaBroker, place: Place) -> None:
    added = b"ADD COLUMN `rank` INT NOT NULL DEFAULT 3"
    records = list(damaged(WITH.records, added, b"ADD COLUMN at DATETIME DEFAULT CURRENT_TIMESTAMP"))
    (number,) = (number for number, record in enumerate(records) if record != WITH.records[number])
    topics, (target, sink) = DebeziumTopics.made(kafka, records), empty(place)
    topics.write(records[: number + 1])
    assert run(topics.uri(), sink, **AT_THE_END) == 0
    ran = datetime.fromtimestamp(records[number].payload["source"]["ts_ms"] // 1000, UTC)
    assert {row[1] for row in target.rows("shop", "item", {"id": "int", "at": "datetime"})} == {f"{ran:%Y-%m-%d %H:%M:%S}"}
