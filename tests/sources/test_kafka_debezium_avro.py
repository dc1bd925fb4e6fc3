"""Every golden case of the protocol ``debezium-avro``, from a real broker and a schema registry into both kinds of target."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_kafka_avro import AT_THE_END, widest
from test_kafka_conformance import KILLS, check, empty, filled, run

from harness import State, assert_tables
from headrace.cli.main import main
from headrace.testing.faults import Crashed, Moment, Step, armed, crash_at
from kafka_cases import CASES, KafkaCase
from kafka_server import KafkaBroker
from places import Place
from schema_registry import Registry
from targets import MariaDbTarget, Target

pytestmark = [pytest.mark.server, pytest.mark.pipeline]

TIMED, UNTIMED = KafkaCase("debezium-avro", "basic"), KafkaCase("debezium-avro", "types-string-modes")


def uri_of(kafka: KafkaBroker, registry: Registry, case: KafkaCase, topic: str, **params: object) -> str:
    timed = "true" if case is TIMED else "false"
    told = {"schema_registry": registry.holding(f"debezium-{case.name}", case.schemas), "avro_enable_watermark": timed}
    return kafka.uri(topic, **{**case.params, **told, **params})


def as_told(target: Target, case: KafkaCase) -> State:
    """The final state as MariaDB shows it in types of the most digits, where a schema does not tell how many a column has."""
    if not isinstance(target, MariaDbTarget):
        return case.final
    digits = {"time": 6, "datetime": 6, "timestamp": 6, "decimal": 30}
    return replace(case.final, tables=tuple(widest(table, digits) for table in case.final.tables))


def test_every_case_is_read() -> None:
    assert {path.name for path in (CASES / "debezium-avro").iterdir()} == {TIMED.name, UNTIMED.name}


def test_with_watermarks_one_run_gives_the_final_state_and_a_second_changes_nothing(
    kafka: KafkaBroker, registry: Registry, place: Place
) -> None:
    uri, (target, sink) = uri_of(kafka, registry, TIMED, filled(kafka, TIMED)), empty(place)
    for _ in range(2):
        assert run(uri, sink) == 0
        check(target, TIMED.final)


def test_with_watermarks_records_may_arrive_in_steps_and_again(kafka: KafkaBroker, registry: Registry, place: Place) -> None:
    topic, (target, sink) = kafka.make_topic(TIMED.partitions), empty(place)
    for records in [*TIMED.rounds(), *TIMED.rounds()]:
        kafka.write(topic, records)
        assert run(uri_of(kafka, registry, TIMED, topic), sink) == 0
    check(target, TIMED.final)


@pytest.mark.parametrize(("moment", "step"), KILLS)
def test_with_watermarks_runs_that_are_killed_lose_and_repeat_nothing(
    moment: Moment, step: Step, kafka: KafkaBroker, registry: Registry, place: Place
) -> None:
    topic, (target, sink) = kafka.make_topic(TIMED.partitions), empty(place)
    uri, killed = uri_of(kafka, registry, TIMED, topic), 0
    for records in TIMED.rounds():
        kafka.write(topic, records)
        try:
            with armed(crash_at(moment, step)):
                run(uri, sink)
        except Crashed:
            killed += 1
    assert killed
    assert run(uri, sink) == 0
    check(target, TIMED.final)


def test_without_watermarks_a_run_to_the_end_gives_the_final_state(kafka: KafkaBroker, registry: Registry, place: Place) -> None:
    uri, (target, sink) = uri_of(kafka, registry, UNTIMED, filled(kafka, UNTIMED)), empty(place)
    for _ in range(2):
        assert run(uri, sink, **AT_THE_END) == 0
        check(target, as_told(target, UNTIMED))


def test_without_watermarks_transactions_may_arrive_in_steps_and_again(
    kafka: KafkaBroker, registry: Registry, place: Place
) -> None:
    """A run to the end must not come in the middle of a transaction: its later rows would be late."""
    topic, (target, sink) = kafka.make_topic(UNTIMED.partitions), empty(place)
    records = [golden.record for golden in UNTIMED.records]
    for start in [*range(0, len(records), 4), *range(0, len(records), 4)]:
        kafka.write(topic, records[start : start + 4])
        assert run(uri_of(kafka, registry, UNTIMED, topic), sink, **AT_THE_END) == 0
    check(target, as_told(target, UNTIMED))


def test_the_protocol_need_not_be_named(
    kafka: KafkaBroker, registry: Registry, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    target, sink = empty(place)
    assert run(uri_of(kafka, registry, TIMED, filled(kafka, TIMED), protocol=""), sink) == 0
    assert "show protocol=debezium-avro." in "".join(capsys.readouterr())
    check(target, TIMED.final)


@pytest.mark.parametrize(
    ("change", "place_told"),
    [
        (lambda value: value[:11], "partition 0, offset 3"),
        (lambda value: value.replace(b"\x02x", b"\x00", 1), "partition 0, offset 3, column price"),
        (lambda value: value.replace(b"pen", b"p\xffn", 1), "partition 0, offset 3"),
    ],
    ids=["cut", "decimal", "text"],
)
def test_a_damaged_row_stops_its_table_and_no_other(
    change: object, place_told: str, kafka: KafkaBroker, registry: Registry, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(change)
    records = [golden.record for golden in TIMED.records]
    records[3] = replace(records[3], value=change(records[3].value))
    assert records[3] != TIMED.records[3].record
    topic, (target, sink) = kafka.make_topic(TIMED.partitions), empty(place)
    kafka.write(topic, records)
    assert run(uri_of(kafka, registry, TIMED, topic), sink) == 3
    told = "".join(capsys.readouterr())
    assert f"table shop.item, {place_told}" in told
    others = tuple(table for table in TIMED.final.tables if table.name != "item")
    assert_tables(target, [(table.database, table.name) for table in others], replace(TIMED.final, tables=others))


def test_a_value_that_may_be_null_stops_its_table_unless_that_is_accepted(
    kafka: KafkaBroker, registry: Registry, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, (_, sink) = filled(kafka, TIMED), empty(place)
    assert run(uri_of(kafka, registry, TIMED, topic, accept_unclear="false"), sink) == 3
    told = "".join(capsys.readouterr())
    assert "table shop.item, partition 0, offset 6, column qty" in told
    assert "for NULL, TiCDC writes the column's default" in told


def test_without_watermarks_no_value_shows_that_it_is_not_null(
    kafka: KafkaBroker, registry: Registry, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    _, sink = empty(place)
    uri = uri_of(kafka, registry, UNTIMED, filled(kafka, UNTIMED), accept_unclear="false")
    assert main(["run", "--source", uri, "--sink", sink, "--once", "--until-end"]) == 2
    assert "does not show which values are NULL" in "".join(capsys.readouterr())
