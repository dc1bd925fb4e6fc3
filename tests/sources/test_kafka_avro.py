"""Every golden case of the protocol ``avro``, from a real broker and a schema registry into both kinds of target."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from test_kafka_conformance import KILLS, check, empty, run

from harness import ExpectedTable, State
from headrace.cli.main import main
from headrace.testing.faults import Crashed, Moment, Step, armed, crash_at
from kafka_cases import CASES, KafkaCase
from kafka_server import KafkaBroker, Record
from places import Place
from schema_registry import Registry
from targets import MariaDbTarget, Target

pytestmark = [pytest.mark.server, pytest.mark.pipeline]

TIMED = ["watermark-mode"]
UNTIMED = ["basic-extension", "basic-plain", "before-value", "types-string-modes"]
AT_THE_END = {"until_end": True, "quiet": 0.2}
CLAMPED = (0, 2, 4)
"""The offsets in ``types-precise-long`` of rows with 18446744073709551615, which the encoder wrote as 9223372036854775807."""
DDL_LEFT = {
    ("d1", "t"): ("It was renamed.", {"id": "int", "w": "varchar(60)"}, (("1", "aa"), ("2", "b"), ("3", "dd"), ("4", "z"))),
    ("d1", "t2"): ("It was truncated.", {"id": "int", "w": "varchar(60)"}, (("4", "zz"), ("9", "n"))),
    ("d2", "x"): ("It was dropped.", {"id": "int", "w": "varchar(60)"}, (("1", "x"),)),
}
"""What ``ddl`` leaves, and why that differs from the upstream: none of these changes is in the topic."""
RENAMED = "ALTER TABLE d1.t RENAME COLUMN v TO w"


def uri_of(kafka: KafkaBroker, registry: Registry, case: KafkaCase, topic: str, **params: object) -> str:
    timed = "true" if case.name in TIMED else "false"
    told = {"schema_registry": registry.holding(case.name, case.schemas), "avro_enable_watermark": timed, **params}
    return kafka.uri(topic, protocol="avro", **told)


def filled(kafka: KafkaBroker, case: KafkaCase) -> str:
    """A topic with all records of a case, each a moment later than the one before it."""
    topic = kafka.make_topic(case.partitions)
    records = [golden.record for golden in case.records]
    begin = int(time.time() * 1000) - 10 * len(records)
    kafka.write(topic, [replace(record, timestamp_ms=begin + 10 * number) for number, record in enumerate(records)])
    return topic


def as_told(target: Target, case: KafkaCase) -> State:
    """The final state as MariaDB shows it in types of the most digits, where Avro does not tell how many a column has.

    It never tells those of a time, and those of a DECIMAL only if that is written as a number.
    """
    if not isinstance(target, MariaDbTarget):
        return case.final
    digits = {"time": 6, "datetime": 6, "timestamp": 6} | ({"decimal": 30} if case.name == "types-string-modes" else {})
    return replace(case.final, tables=tuple(widest(table, digits) for table in case.final.tables))


def widest(table: ExpectedTable, digits: dict[str, int]) -> ExpectedTable:
    def shown(kind: str, value: str | None) -> str | None:
        count = digits.get(kind.partition("(")[0])
        if value is None or count is None:
            return value
        whole, _, fraction = value.partition(".")
        return f"{whole}.{fraction.ljust(count, '0')}"

    rows = (tuple(shown(kind, value) for kind, value in zip(table.types.values(), row, strict=True)) for row in table.rows)
    return replace(table, rows=tuple(rows))


def steps(case: KafkaCase) -> Iterator[list[Record]]:
    """The records, a few at a time."""
    records = [golden.record for golden in case.records]
    for start in range(0, len(records), 4):
        yield records[start : start + 4]


def test_every_case_is_read() -> None:
    assert {path.name for path in (CASES / "avro").iterdir()} == {*TIMED, *UNTIMED, "types-precise-long", "ddl"}


@pytest.mark.parametrize("name", TIMED)
def test_with_watermarks_one_run_gives_the_final_state_and_a_second_changes_nothing(
    name: str, kafka: KafkaBroker, registry: Registry, place: Place
) -> None:
    case = KafkaCase("avro", name)
    uri, (target, sink) = uri_of(kafka, registry, case, filled(kafka, case)), empty(place)
    for _ in range(2):
        assert run(uri, sink) == 0
        check(target, case.final)


@pytest.mark.parametrize("name", [*TIMED, *UNTIMED[:2]])
def test_each_table_has_its_own_topic_as_ticdc_wants_it(name: str, kafka: KafkaBroker, registry: Registry, place: Place) -> None:
    case = KafkaCase("avro", name)
    default, (target, sink) = kafka.make_topic(case.partitions), empty(place)
    topics = {golden.topic: f"{default}-{golden.topic}" for golden in case.records} | {"cdc": default}
    for topic in set(topics.values()) - {default}:
        kafka.make_topic(case.partitions, name=topic)
    for golden in case.records:
        kafka.write(topics[golden.topic], [golden.record])
    uri = uri_of(kafka, registry, case, default, topics=f"{default}-*")
    assert run(uri, sink, **({} if name in TIMED else AT_THE_END)) == 0
    check(target, case.final)


@pytest.mark.parametrize("name", TIMED)
def test_with_watermarks_records_may_arrive_in_steps_and_again(
    name: str, kafka: KafkaBroker, registry: Registry, place: Place
) -> None:
    case = KafkaCase("avro", name)
    topic, (target, sink) = kafka.make_topic(case.partitions), empty(place)
    for records in [*case.rounds(), *case.rounds()]:
        kafka.write(topic, records)
        assert run(uri_of(kafka, registry, case, topic), sink) == 0
    check(target, case.final)


@pytest.mark.parametrize(("moment", "step"), KILLS)
@pytest.mark.parametrize("name", TIMED)
def test_with_watermarks_runs_that_are_killed_lose_and_repeat_nothing(
    name: str, moment: Moment, step: Step, kafka: KafkaBroker, registry: Registry, place: Place
) -> None:
    case = KafkaCase("avro", name)
    topic, (target, sink) = kafka.make_topic(case.partitions), empty(place)
    uri, killed = uri_of(kafka, registry, case, topic), 0
    for records in case.rounds():
        kafka.write(topic, records)
        try:
            with armed(crash_at(moment, step)):
                run(uri, sink)
        except Crashed:
            killed += 1
    assert killed
    assert run(uri, sink) == 0
    check(target, case.final)


@pytest.mark.parametrize("name", UNTIMED)
def test_without_watermarks_a_run_to_the_end_gives_the_final_state(
    name: str, kafka: KafkaBroker, registry: Registry, place: Place
) -> None:
    case = KafkaCase("avro", name)
    uri, (target, sink) = uri_of(kafka, registry, case, filled(kafka, case)), empty(place)
    for _ in range(2):
        assert run(uri, sink, **AT_THE_END) == 0
        check(target, as_told(target, case))


@pytest.mark.parametrize("name", UNTIMED[:3])
def test_without_watermarks_the_rows_of_a_key_may_be_in_any_partition(
    name: str, kafka: KafkaBroker, registry: Registry, place: Place
) -> None:
    """As with the dispatcher ``index-value``: all rows of a key are in one."""
    case = KafkaCase("avro", name)
    topic, (target, sink) = kafka.make_topic(3), empty(place)
    for records in steps(case):
        kafka.write(topic, [replace(record, partition=(record.key or b"\0")[-1] % 3) for record in records])
        assert run(uri_of(kafka, registry, case, topic), sink, **AT_THE_END) == 0
    check(target, case.final)


@pytest.mark.parametrize("name", UNTIMED[:3])
def test_without_watermarks_records_may_arrive_in_steps_and_again(
    name: str, kafka: KafkaBroker, registry: Registry, place: Place
) -> None:
    case = KafkaCase("avro", name)
    topic, (target, sink) = kafka.make_topic(case.partitions), empty(place)
    for records in [*steps(case), *steps(case)]:
        kafka.write(topic, records)
        assert run(uri_of(kafka, registry, case, topic), sink, **AT_THE_END) == 0
    check(target, case.final)


@pytest.mark.parametrize(("moment", "step"), KILLS)
@pytest.mark.parametrize("name", UNTIMED[:1])
def test_without_watermarks_runs_that_are_killed_lose_and_repeat_nothing(
    name: str, moment: Moment, step: Step, kafka: KafkaBroker, registry: Registry, place: Place
) -> None:
    case = KafkaCase("avro", name)
    topic, (target, sink) = kafka.make_topic(case.partitions), empty(place)
    uri, killed = uri_of(kafka, registry, case, topic), 0
    for records in steps(case):
        kafka.write(topic, records)
        try:
            with armed(crash_at(moment, step)):
                run(uri, sink, **AT_THE_END)
        except Crashed:
            killed += 1
    assert killed
    assert run(uri, sink, **AT_THE_END) == 0
    check(target, case.final)


def test_the_largest_signed_number_of_an_unsigned_column_is_no_value_and_can_be_given_up(
    kafka: KafkaBroker, registry: Registry, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """``types-precise-long``: later changes of the rows have other numbers, so the final state is reached."""
    case = KafkaCase("avro", "types-precise-long")
    uri, (target, sink) = uri_of(kafka, registry, case, filled(kafka, case)), empty(place)
    for offset in CLAMPED:
        assert run(uri, sink, **AT_THE_END) == 3
        assert f"partition 0, offset {offset}, column c_ubig: The value 9223372036854775807" in "".join(capsys.readouterr())
        skip = ["table", "skip", "ty.t", "--partition", "0", "--offset", str(offset), "--yes"]
        assert main([*skip, "--sink", sink, "--source", uri]) == 0
    assert run(uri, sink, **AT_THE_END) == 0
    check(target, as_told(target, case))


def test_a_column_that_may_have_been_renamed_waits_for_a_decision(
    kafka: KafkaBroker, registry: Registry, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """``ddl``: the only schema changes that the topic shows are those of columns."""
    case = KafkaCase("avro", "ddl")
    uri, (target, sink) = uri_of(kafka, registry, case, filled(kafka, case)), empty(place)
    assert run(uri, sink, **AT_THE_END) == 3
    told = "".join(capsys.readouterr())
    assert "no statement says what became of v: it may have been renamed to w, or dropped." in told
    change = re.search(r"headrace ddl skip\|edit '([^']+)'", told)
    assert change is not None
    assert main(["ddl", "edit", change[1], RENAMED, "--sink", sink]) == 0
    assert run(uri, sink, **AT_THE_END) == 0
    tables = (ExpectedTable(*name, "BASE TABLE", types, ("id",), rows) for name, (_, types, rows) in DDL_LEFT.items())
    check(target, replace(case.final, tables=tuple(tables)))
