"""Every golden case of the protocols that are read from Kafka, from a real broker into both kinds of target."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness import State, assert_state, assert_tables, run_once
from headrace.sources.kafka.options import KafkaOptions
from headrace.sources.kafka.protocols import protocol_of
from headrace.testing.engine import LocalEngine
from headrace.testing.faults import Crashed, Moment, Step, armed, crash_at
from kafka_cases import CASES, KafkaCase
from kafka_server import KafkaBroker
from places import Place
from protocol_replay import compressed, messages_of
from targets import DuckDbTarget, Target

pytestmark = [pytest.mark.server, pytest.mark.pipeline]

WHOLE = [
    *(
        f"canal-json/{name}"
        for name in ("basic-extension", "content-compatible", "ddl", "only-updated", "raw-change-event", "types")
    ),
    *(f"open-protocol/{name}" for name in ("basic", "ddl", "only-updated", "types", "unbatched-partitions")),
    *(f"simple/{encoding}-{name}" for encoding in ("json", "avro") for name in ("basic", "ddl", "types")),
    *(f"debezium/{name}" for name in ("basic-noschema", "basic-schema", "ddl", "types")),
]
CREATING = [
    *(f"canal-json/{name}" for name in ("basic-extension", "only-updated", "raw-change-event")),
    *(f"open-protocol/{name}" for name in ("basic", "only-updated", "unbatched-partitions")),
    *("simple/json-basic", "simple/avro-basic", "debezium/basic-noschema", "debezium/basic-schema", "debezium/types"),
]
"""Cases whose statements only create tables, so that their events give each state on the way."""
KILLED = [
    *(f"canal-json/{name}" for name in ("content-compatible", "ddl", "only-updated")),
    *("open-protocol/only-updated", "open-protocol/ddl", "simple/json-ddl", "simple/avro-ddl", "debezium/ddl"),
    "debezium/basic-schema",
]
SENT_AGAIN = [
    *("canal-json/basic-extension", "canal-json/only-updated", "open-protocol/basic", "simple/json-basic"),
    "debezium/basic-schema",
]
CLAIM_CHECK = ["canal-json/claim-check", "open-protocol/claim-check", "simple/json-claim-check", "simple/avro-claim-check"]
HANDLE_ONLY = [
    *("canal-json/handle-key-only", "open-protocol/handle-key-only"),
    *("simple/json-handle-key-only", "simple/avro-handle-key-only"),
]
"""Messages that were too large hold only the handle key; ``test_kafka_large.py`` has more of both."""
WITHOUT_TIME = ["canal-json/basic-plain"]
"""Messages carry neither a commit ts nor watermarks."""
UNTIL_END = ["maxwell/basic", "maxwell/types", "canal/basic", "canal/types", "craft/basic"]
"""Cases that are read to their end: messages carry no watermarks, or the last ones are behind the last watermark."""
SPOILED = ["craft/types"]
"""The encoder overwrote parts of values."""
KILLS = [(Moment.AFTER, Step.STAGE), (Moment.BEFORE, Step.ROUND), (Moment.AFTER, Step.ROUND), (Moment.AFTER, Step.SCHEMA_CHANGE)]


def case_of(path: str) -> KafkaCase:
    return KafkaCase(*path.split("/"))


def uri_of(kafka: KafkaBroker, case: KafkaCase, topic: str, **params: object) -> str:
    return kafka.uri(topic, **case.params, **params)


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


def test_every_case_is_read_or_it_is_known_why_not() -> None:
    found = {f"{path.parent.name}/{path.name}" for path in CASES.glob("*/*") if path.is_dir()}
    without = {name for name in found if not name.startswith(("avro/", "debezium-avro/"))}  # these need a registry
    assert without == {*WHOLE, *CLAIM_CHECK, *HANDLE_ONLY, *WITHOUT_TIME, *UNTIL_END, *SPOILED}


@pytest.mark.parametrize("name", WHOLE)
def test_one_run_gives_the_final_state_and_a_second_changes_nothing(name: str, kafka: KafkaBroker, place: Place) -> None:
    case = case_of(name)
    uri, (target, sink) = uri_of(kafka, case, filled(kafka, case)), empty(place)
    for _ in range(2):
        assert run(uri, sink) == 0
        check(target, case.final)


@pytest.mark.parametrize("name", UNTIL_END)
def test_a_complete_topic_gives_the_final_state_and_a_second_run_changes_nothing(
    name: str, kafka: KafkaBroker, place: Place
) -> None:
    case = case_of(name)
    uri, (target, sink) = uri_of(kafka, case, filled(kafka, case)), empty(place)
    for _ in range(2):
        assert run(uri, sink, until_end=True, quiet=0.2) == 0
        check(target, case.final)


@pytest.mark.parametrize(("moment", "step"), KILLS)
@pytest.mark.parametrize("name", UNTIL_END)
def test_runs_over_a_complete_topic_that_are_killed_lose_and_repeat_nothing(
    name: str, moment: Moment, step: Step, kafka: KafkaBroker, place: Place
) -> None:
    case = case_of(name)
    uri, (target, sink) = uri_of(kafka, case, filled(kafka, case)), empty(place)
    with armed(crash_at(moment, step)), pytest.raises(Crashed):
        run(uri, sink, until_end=True, quiet=0.2)
    assert run(uri, sink, until_end=True, quiet=0.2) == 0
    check(target, case.final)


@pytest.mark.parametrize("name", UNTIL_END)
def test_a_complete_topic_may_be_read_in_ranges_of_one_message(
    name: str, kafka: KafkaBroker, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.sources.stream.source.RANGE_BYTES", 1)
    case = case_of(name)
    target, sink = empty(place)
    assert run(uri_of(kafka, case, filled(kafka, case)), sink, until_end=True, quiet=0.2) == 0
    check(target, case.final)


@pytest.mark.parametrize("name", [case for case in UNTIL_END if not case.startswith("craft/")])
def test_without_watermarks_nothing_is_applied_before_the_end(
    name: str, kafka: KafkaBroker, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    case = case_of(name)
    target, sink = empty(place)
    assert run(uri_of(kafka, case, filled(kafka, case)), sink) == 0
    assert "carry no watermark and no exact commit ts. Changes are applied only with --until-end" in "".join(capsys.readouterr())
    assert target.tables() == set()


@pytest.mark.parametrize(
    ("name", "how"), [("canal-json/types", "lz4"), ("open-protocol/types", "snappy"), ("simple/json-types", "lz4")]
)
def test_values_that_the_changefeed_compressed_are_read(name: str, how: str, kafka: KafkaBroker, place: Place) -> None:
    case = case_of(name)
    protocol = protocol_of(case.protocol, KafkaOptions("t"))
    values = compressed(protocol, messages_of(case), how).values
    topic, (target, sink) = kafka.make_topic(case.partitions), empty(place)
    kafka.write(topic, [replace(golden.record, value=value) for golden, value in zip(case.records, values, strict=True)])
    assert run(f"kafka://{kafka.server}/{topic}?large-message-handle-compression={how}", sink) == 0
    check(target, case.final)


@pytest.mark.parametrize("name", CREATING)
def test_records_that_arrive_in_steps_give_the_state_at_each_watermark(name: str, kafka: KafkaBroker, place: Place) -> None:
    case = case_of(name)
    topic, (target, sink) = kafka.make_topic(case.partitions), empty(place)
    states = list(case.states())
    rounds = case.rounds()
    assert len(states) == len(rounds) > 1
    for records, state in zip(rounds, states, strict=True):
        kafka.write(topic, records)
        assert run(uri_of(kafka, case, topic), sink) == 0
        check(target, state)
    check(target, case.final)


@pytest.mark.parametrize(("moment", "step"), KILLS)
@pytest.mark.parametrize("name", KILLED)
def test_runs_that_are_killed_lose_and_repeat_nothing(
    name: str, moment: Moment, step: Step, kafka: KafkaBroker, place: Place
) -> None:
    case = case_of(name)
    topic, (target, sink) = kafka.make_topic(case.partitions), empty(place)
    killed = 0
    for records in case.rounds():
        kafka.write(topic, records)
        try:
            with armed(crash_at(moment, step)):
                run(uri_of(kafka, case, topic), sink)
        except Crashed:
            killed += 1
    assert killed
    assert run(uri_of(kafka, case, topic), sink) == 0
    check(target, case.final)


@pytest.mark.parametrize("name", SENT_AGAIN)
@pytest.mark.reading_case("B55")
def test_a_changefeed_that_sends_everything_again_changes_nothing(name: str, kafka: KafkaBroker, place: Place) -> None:
    case = case_of(name)
    topic, (target, sink) = filled(kafka, case), empty(place)
    assert run(uri_of(kafka, case, topic), sink) == 0
    kafka.write(topic, [golden.record for golden in case.records])
    assert run(uri_of(kafka, case, topic), sink) == 0
    check(target, case.final)


@pytest.mark.reading_case("B20")
def test_without_the_extension_nothing_is_applied_and_the_setting_is_named(
    kafka: KafkaBroker, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    case = case_of("canal-json/basic-plain")
    target, sink = empty(place)
    run(uri_of(kafka, case, filled(kafka, case)), sink)
    assert "Set enable-tidb-extension=true in its sink URI" in "".join(capsys.readouterr())
    assert target.tables() == set()


def test_a_complete_topic_without_the_extension_is_read_to_its_end(kafka: KafkaBroker, place: Place) -> None:
    case = case_of("canal-json/basic-plain")
    uri, (target, sink) = uri_of(kafka, case, filled(kafka, case), enable_tidb_extension="false"), empty(place)
    assert run(uri, sink, until_end=True, quiet=0.2) == 0
    check(target, case.final)


@pytest.mark.parametrize("name", CLAIM_CHECK)
def test_rows_in_the_claim_check_storage_are_read(name: str, kafka: KafkaBroker, place: Place) -> None:
    case = case_of(name)
    uri = uri_of(kafka, case, filled(kafka, case), claim_check_storage_uri=f"file://{case.claim_check}")
    target, sink = empty(place)
    for _ in range(2):
        assert run(uri, sink) == 0
        check(target, case.final)


@pytest.mark.parametrize("name", HANDLE_ONLY)
def test_a_message_without_its_row_stops_its_table_and_says_why(
    name: str, kafka: KafkaBroker, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    case = case_of(name)
    _, sink = empty(place)
    assert run(uri_of(kafka, case, filled(kafka, case)), sink) == 3
    told = "".join(capsys.readouterr())
    assert "b.t" in told
    assert "partition 0, offset 3" in told
    assert "the message holds only its handle key (handle-key-only). The rest has to be read from the upstream." in told
    assert "Name the upstream TiDB with upstream=mysql://… in the source's URI." in told


@pytest.mark.parametrize("name", SPOILED)
def test_a_message_without_the_whole_value_stops_its_table_and_names_the_column(
    name: str, kafka: KafkaBroker, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    case = case_of(name)
    _, sink = empty(place)
    assert run(uri_of(kafka, case, filled(kafka, case)), sink) == 3
    told = "".join(capsys.readouterr())
    assert "table ty.t, partition 0, offset 3, column c_float" in told
    assert "The message may not have the whole value" in told


@pytest.mark.parametrize(
    "name", ["open-protocol/ddl", "simple/json-basic", "simple/avro-basic", "debezium/types", "debezium/basic-noschema"]
)
def test_the_protocol_need_not_be_named(name: str, kafka: KafkaBroker, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    case = case_of(name)
    target, sink = empty(place)
    assert run(kafka.uri(filled(kafka, case), **{**case.params, "protocol": ""}), sink) == 0
    assert f"show protocol={case.protocol}." in "".join(capsys.readouterr())
    check(target, case.final)


@pytest.mark.parametrize("name", UNTIL_END)
def test_the_protocol_of_a_complete_topic_need_not_be_named(
    name: str, kafka: KafkaBroker, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    case = case_of(name)
    target, sink = empty(place)
    uri = kafka.uri(filled(kafka, case), **{**case.params, "protocol": ""})
    assert run(uri, sink, until_end=True, quiet=0.2) == 0
    assert f"show protocol={case.protocol}." in "".join(capsys.readouterr())
    check(target, case.final)


@pytest.mark.parametrize(
    ("name", "old", "new", "place_told"),
    [
        ("open-protocol/basic", b'"v":10}', b'"v":1.}', "partition 0, offset 3"),
        ("simple/json-basic", b'"qty":"10"', b'"qty":"1."', "partition 0, offset 4, column qty"),
        ("debezium/basic-schema", b'"qty":10}', b'"qty":1.5}', "partition 0, offset 3, column qty"),
        ("debezium/basic-noschema", b'"qty":10}', b'"qty":1.}', "partition 0, offset 3"),
    ],
)
def test_a_damaged_row_stops_its_table_and_no_other(
    name: str, old: bytes, new: bytes, place_told: str, kafka: KafkaBroker, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    case = case_of(name)
    records = [golden.record for golden in case.records]
    number = next(n for n, golden in enumerate(case.records) if golden.kind == "row" and old in (golden.record.value or b""))
    records[number] = replace(records[number], value=(records[number].value or b"").replace(old, new))
    topic, (target, sink) = kafka.make_topic(case.partitions), empty(place)
    kafka.write(topic, records)
    assert run(uri_of(kafka, case, topic), sink) == 3
    assert f"table shop.item, {place_told}" in "".join(capsys.readouterr())
    others = tuple(table for table in case.final.tables if table.name != "item")
    assert others
    assert_tables(target, [(table.database, table.name) for table in others], replace(case.final, tables=others))
