"""Every golden case of canal-JSON on Kafka, from a real broker into both kinds of target."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness import State, assert_state, run_once
from headrace.testing.engine import LocalEngine
from headrace.testing.faults import Crashed, Moment, Step, armed, crash_at
from kafka_cases import KafkaCase
from kafka_server import KafkaBroker
from places import Place
from targets import DuckDbTarget, Target

pytestmark = [pytest.mark.server, pytest.mark.pipeline]

WHOLE = ["basic-extension", "content-compatible", "ddl", "only-updated", "raw-change-event", "types"]
CREATING = ["basic-extension", "only-updated", "raw-change-event"]
"""Cases whose statements only create tables, so that their events give each state on the way."""
KILLS = [(Moment.AFTER, Step.STAGE), (Moment.BEFORE, Step.ROUND), (Moment.AFTER, Step.ROUND), (Moment.AFTER, Step.SCHEMA_CHANGE)]


def canal(name: str) -> KafkaCase:
    return KafkaCase("canal-json", name)


def filled(kafka: KafkaBroker, case: KafkaCase) -> str:
    """A topic with all records of a case."""
    topic = kafka.make_topic(case.partitions)
    kafka.write(topic, [golden.record for golden in case.records])
    return topic


def check(target: Target, state: State) -> None:
    if isinstance(target, DuckDbTarget):  # which is not given views
        state = replace(state, tables=tuple(table for table in state.tables if not table.is_view))
    assert_state(target, state)


def empty(place: Place) -> tuple[Target, str]:
    """An empty target, and the URI of a sink that may make any database there."""
    target, sink = place.fresh()
    return target, sink if place.mariadb is None else place.mariadb.uri(any_database=True)


def run(uri: str, sink: str, **options: object) -> int:
    return run_once(uri, sink, engine=LocalEngine(), **options)


@pytest.mark.parametrize("name", WHOLE)
def test_one_run_gives_the_final_state_and_a_second_changes_nothing(name: str, kafka: KafkaBroker, place: Place) -> None:
    case = canal(name)
    uri, (target, sink) = kafka.uri(filled(kafka, case)), empty(place)
    for _ in range(2):
        assert run(uri, sink) == 0
        check(target, case.final)


@pytest.mark.parametrize("name", CREATING)
def test_records_that_arrive_in_steps_give_the_state_at_each_watermark(name: str, kafka: KafkaBroker, place: Place) -> None:
    case = canal(name)
    topic, (target, sink) = kafka.make_topic(case.partitions), empty(place)
    states = list(case.states())
    rounds = case.rounds()
    assert len(states) == len(rounds) > 1
    for records, state in zip(rounds, states, strict=True):
        kafka.write(topic, records)
        assert run(kafka.uri(topic), sink) == 0
        check(target, state)
    check(target, case.final)


@pytest.mark.parametrize(("moment", "step"), KILLS)
@pytest.mark.parametrize("name", ["content-compatible", "ddl", "only-updated"])
def test_runs_that_are_killed_lose_and_repeat_nothing(
    name: str, moment: Moment, step: Step, kafka: KafkaBroker, place: Place
) -> None:
    case = canal(name)
    topic, (target, sink) = kafka.make_topic(case.partitions), empty(place)
    killed = 0
    for records in case.rounds():
        kafka.write(topic, records)
        try:
            with armed(crash_at(moment, step)):
                run(kafka.uri(topic), sink)
        except Crashed:
            killed += 1
    assert killed
    assert run(kafka.uri(topic), sink) == 0
    check(target, case.final)


@pytest.mark.parametrize("name", ["basic-extension", "only-updated"])
def test_a_changefeed_that_sends_everything_again_changes_nothing(name: str, kafka: KafkaBroker, place: Place) -> None:
    case = canal(name)
    topic, (target, sink) = filled(kafka, case), empty(place)
    assert run(kafka.uri(topic), sink) == 0
    kafka.write(topic, [golden.record for golden in case.records])
    assert run(kafka.uri(topic), sink) == 0
    check(target, case.final)


def test_without_the_extension_nothing_is_applied_and_the_setting_is_named(
    kafka: KafkaBroker, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    case = canal("basic-plain")
    target, sink = empty(place)
    run(kafka.uri(filled(kafka, case)), sink)
    assert "Set enable-tidb-extension=true in its sink URI" in "".join(capsys.readouterr())
    assert target.tables() == set()


def test_a_complete_topic_without_the_extension_is_read_to_its_end(kafka: KafkaBroker, place: Place) -> None:
    case = canal("basic-plain")
    uri, (target, sink) = kafka.uri(filled(kafka, case), enable_tidb_extension="false"), empty(place)
    assert run(uri, sink, until_end=True, quiet=0.2) == 0
    check(target, case.final)


@pytest.mark.parametrize("name", ["handle-key-only", "claim-check"])
def test_a_message_without_its_row_stops_its_table_and_says_why(
    name: str, kafka: KafkaBroker, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    case = canal(name)
    _, sink = empty(place)
    assert run(kafka.uri(filled(kafka, case)), sink) == 3
    told = "".join(capsys.readouterr())
    assert "b.t" in told
    assert "partition 0, offset 3" in told
    assert "raise max-message-bytes of the changefeed" in told
