"""Topics of Maxwell itself, recorded from a MariaDB, from a real broker into both kinds of target."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_kafka_conformance import check, empty, run

from debezium_cases import IN_ORDER
from harness import assert_tables
from headrace.testing.faults import Crashed, Moment, Step, armed, crash_at
from kafka_server import KafkaBroker, Record
from maxwell_cases import PARTITIONS, final, in_steps, records
from places import Place

pytestmark = [pytest.mark.server, pytest.mark.pipeline]

AT_THE_END = {"until_end": True, "quiet": 0.2}


def uri_of(kafka: KafkaBroker, topic: str, **params: object) -> str:
    return kafka.uri(topic, **{"protocol": "maxwell-mysql", "accept_unclear": "true", **params})


def filled(kafka: KafkaBroker, found: list[Record]) -> str:
    topic = kafka.make_topic(PARTITIONS)
    kafka.write(topic, found, **IN_ORDER)
    return topic


def test_one_run_gives_the_final_state_and_a_second_changes_nothing(kafka: KafkaBroker, place: Place) -> None:
    uri, (target, sink) = uri_of(kafka, filled(kafka, records())), empty(place)
    for _ in range(2):
        assert run(uri, sink, **AT_THE_END) == 0
        check(target, final())


def test_records_may_arrive_in_steps_and_again(kafka: KafkaBroker, place: Place) -> None:
    topic, (target, sink) = kafka.make_topic(PARTITIONS), empty(place)
    for step in in_steps(7):
        kafka.write(topic, step, **IN_ORDER)
        assert run(uri_of(kafka, topic), sink, **AT_THE_END) == 0
        kafka.write(topic, step, **IN_ORDER)
    assert run(uri_of(kafka, topic), sink, **AT_THE_END) == 0
    check(target, final())


def test_runs_that_are_killed_lose_and_repeat_nothing(kafka: KafkaBroker, place: Place) -> None:
    topic, (target, sink) = kafka.make_topic(PARTITIONS), empty(place)
    killed = 0
    for step in in_steps(12):
        kafka.write(topic, step, **IN_ORDER)
        try:
            with armed(crash_at(Moment.AFTER, Step.ROUND)):
                run(uri_of(kafka, topic), sink, **AT_THE_END)
        except Crashed:
            killed += 1
    assert killed
    assert run(uri_of(kafka, topic), sink, **AT_THE_END) == 0
    check(target, final())


def test_a_time_that_may_be_another_one_stops_its_table(
    kafka: KafkaBroker, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    uri, (target, sink) = uri_of(kafka, filled(kafka, records()), accept_unclear="false"), empty(place)
    assert run(uri, sink, **AT_THE_END) == 3
    told = "".join(capsys.readouterr())
    assert "column ti, value '14:59:59': Maxwell writes a TIME below zero or above 24 hours as another one" in told
    others = tuple(table for table in final().tables if table.name != "types")
    assert_tables(target, [(table.database, table.name) for table in others], replace(final(), tables=others))


def test_without_places_nothing_is_applied(kafka: KafkaBroker, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    without = [replace(record, value=(record.value or b"").replace(b'"position":', b'"place":')) for record in records()]
    uri, (_, sink) = uri_of(kafka, filled(kafka, without)), empty(place)
    assert run(uri, sink, **AT_THE_END) == 3
    assert "it has no position. Set output_binlog_position=true for Maxwell." in "".join(capsys.readouterr())


def test_what_is_weaker_is_told(kafka: KafkaBroker, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    uri, (_, sink) = uri_of(kafka, filled(kafka, records()), protocol=""), empty(place)
    assert run(uri, sink) == 0
    told = "".join(capsys.readouterr())
    assert "show protocol=maxwell-mysql." in told
    assert "Maxwell leaves TRUNCATE out, and the target keeps the rows." in told
