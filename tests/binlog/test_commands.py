"""``headrace binlog print`` and ``headrace binlog seek`` against a real broker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from binlog.logs import message
from binlog_cases import G4, G8, G10, lines, records
from headrace.cli.main import main
from headrace.errors import EXIT_TABLE_STOPPED, EXIT_UNREACHABLE, EXIT_USAGE
from kafka_server import LOGIN, KafkaBroker, Record

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def basic(kafka: KafkaBroker) -> str:
    """The topic of the case ``basic``."""
    topic = kafka.make_topic()
    kafka.write(topic, [Record(record.value) for record in records("basic")])
    return topic


def run(kafka: KafkaBroker, command: str, topic: str, *options: str) -> int:
    return main(["binlog", command, "--kafka-addr", kafka.server, "--topic", topic, *options])


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_every_change_is_printed_as_a_json_line(kafka: KafkaBroker, basic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(kafka, "print", basic) == 0
    expected = [{n: v for n, v in line.items() if n not in ("seq", "where")} for line in lines("basic", "changes")]
    assert printed(capsys) == expected


def test_tables_kinds_and_times_can_be_chosen(kafka: KafkaBroker, basic: str, capsys: pytest.CaptureFixture[str]) -> None:
    changes = lines("basic", "changes")
    first, last = changes[3]["commit_ts"], changes[-2]["commit_ts"]
    options = ["--tables", "shop.ITEM", "--ops", "update,delete", "--commit-ts", str(first), "--until", str(last)]
    assert run(kafka, "print", basic, *options) == 0
    found = printed(capsys)
    assert [(line["offset"], line["op"]) for line in found] == [
        (line["offset"], line["op"])
        for line in changes
        if line["table"] == "item" and line["op"] in ("update", "delete") and first < line["commit_ts"] <= last
    ]
    assert found


def test_values_without_a_form_in_json_are_objects(kafka: KafkaBroker, capsys: pytest.CaptureFixture[str]) -> None:
    topic = kafka.make_topic()
    kafka.write(topic, [Record(G10)])
    assert run(kafka, "print", topic) == 0
    (line,) = printed(capsys)
    row = line["after"]
    assert (row["enum"], row["set"], row["vb"], row["dec"]) == ({"ordinal": 2}, {"mask": 5}, {"hex": "00ff"}, "3.140")


def test_a_bad_record_stops_the_command_with_its_place_or_is_left_out(
    kafka: KafkaBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = kafka.make_topic()
    kafka.write(topic, [Record(G8), Record(b"\x07"), Record(G4)])
    assert run(kafka, "print", topic, "--charset", "latin-1") == EXIT_TABLE_STOPPED
    output = capsys.readouterr()
    assert f"Topic {topic}, partition 0, offset 1: The field at byte 0 has the number 0" in output.err
    assert len(output.out.splitlines()) == 1
    assert run(kafka, "print", topic, "--charset", "latin-1", "--skip-bad") == 0
    output = capsys.readouterr()
    assert [json.loads(line)["offset"] for line in output.out.splitlines()] == [0, 2]
    assert "offset 1" in output.err
    assert "The record is left out." in output.err


def test_seek_says_where_to_begin(kafka: KafkaBroker, capsys: pytest.CaptureFixture[str]) -> None:
    topic = kafka.make_topic()
    kafka.write(topic, [Record(message(ts)) for ts in (10, 20, 30)])
    assert run(kafka, "seek", topic, "--commit-ts", "20") == 0
    text = capsys.readouterr().out
    assert f"begin at offset 2 of topic {topic}, partition 0" in text
    assert run(kafka, "seek", topic, "--commit-ts", "5", "--allow-gap", "--json") == 0
    (event,) = printed(capsys)
    assert (event["offset"], event["oldest_ts"], event["has_gap"], event["end_offset"]) == (0, 10, True, 3)


def test_errors_are_sentences_that_name_topic_partition_and_offset(kafka: KafkaBroker, capsys: pytest.CaptureFixture[str]) -> None:
    topic = kafka.make_topic()
    kafka.write(topic, [Record(message(10))])
    assert run(kafka, "seek", topic, "--commit-ts", "5") == EXIT_UNREACHABLE
    assert f"The oldest record of topic {topic}, partition 0, at offset 0, has the commit ts 10" in capsys.readouterr().err
    assert run(kafka, "print", "no-such-topic") == EXIT_UNREACHABLE
    assert "topic no-such-topic does not exist" in capsys.readouterr().err
    assert run(kafka, "print", topic, "--offset", "7") == EXIT_USAGE
    assert f"topic {topic}, partition 0 has no offset 7" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--commit-ts", "yesterday"], "--commit-ts: 'yesterday' is neither a TSO nor an ISO time"),
        (["--ops", "upsert"], "--ops: 'upsert' is not a kind of change"),
        (["--tables", "item"], "names no database"),
        (["--setting", "security.protocol"], "A --setting is not NAME=VALUE"),
        (["--topic", ""], "Neither a topic nor a cluster id"),
        (["--kafka-addr", ","], "No broker is given"),
    ],
)
def test_wrong_options_are_refused(options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = ["binlog", "print", "--kafka-addr", "127.0.0.1:1", "--topic", "t", *options]
    assert main(told) == EXIT_USAGE
    assert words in capsys.readouterr().err


def test_a_secret_setting_comes_from_the_environment_and_appears_in_no_output(
    kafka: KafkaBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, (user, password) = kafka.make_topic(), LOGIN
    kafka.write(topic, [Record(G4)])
    login = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", f"sasl.username={user}", "sasl.password=${PASSWORD}")
    told = ["binlog", "print", "--topic", topic, "--kafka-addr", f"127.0.0.1:{kafka.secured}"]
    told += [word for setting in login for word in ("--setting", setting)]
    monkeypatch.setenv("PASSWORD", password)
    assert main(told) == 0
    assert len(printed(capsys)) == 1
    monkeypatch.setenv("PASSWORD", "a-wrong-secret")
    assert main(told) == EXIT_UNREACHABLE
    assert "a-wrong-secret" not in capsys.readouterr().err
