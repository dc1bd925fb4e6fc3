"""What ``headrace inspect`` and ``headrace validate`` tell of a topic."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from harness import run_once
from headrace.cli.main import main
from headrace.errors import SourceNotReadyError
from headrace.model.inspection import Severity
from headrace.model.table import TableId
from headrace.model.tso import format_tso
from headrace.sources.kafka import open_source
from headrace.sources.kafka.reader import KafkaReader
from headrace.testing.engine import LocalEngine
from kafka_cases import KafkaCase, created, database_created, message, row, tso, watermark
from kafka_server import KafkaBroker, Record

pytestmark = pytest.mark.server

A, B = TableId("shop", "a"), TableId("shop", "b")


def filled(kafka: KafkaBroker, *values: bytes, partitions: int = 1) -> str:
    topic = kafka.make_topic(partitions)
    kafka.write(topic, [Record(value) for value in values])
    return kafka.uri(topic)


def test_a_topic_is_told_with_its_tables_and_its_watermark(kafka: KafkaBroker) -> None:
    alter = message("ALTER", tso(5), sql="ALTER TABLE a ADD w INT")
    values = (database_created(1), created(2), row(4, 1), row(5, 2), alter, row(6, 3), watermark(7))
    found = open_source(filled(kafka, *values)).inspect(count_rows=True)
    assert (found.databases, found.checkpoint, found.findings) == (("shop",), tso(7), ())
    (table,) = found.tables
    assert (table.table_id, table.exists, [version.rows for version in table.versions]) == (A, True, [2, 1])


def test_what_is_wrong_is_found(kafka: KafkaBroker) -> None:
    bad = message("INSERT", tso(4), mysqlType={}, data=[{"id": "x", "v": "1"}])
    values = (database_created(1), created(2), row(4, 1), bad, row(5, 1, table="b"), b"{", watermark(7))
    found = open_source(filled(kafka, *values, partitions=2)).check()
    told = {(finding.kind, finding.table_id, finding.file, finding.severity) for finding in found.findings}
    assert told == {
        ("bad-row", A, "partition 0, offset 3", Severity.ERROR),
        ("unknown-columns", B, "", Severity.ERROR),
        ("unreadable-message", None, "partition 0, offset 5", Severity.ERROR),
        ("no-watermark", None, "", Severity.WARNING),
    }
    assert found.inspection.checkpoint is None


@pytest.mark.parametrize(
    ("protocol", "name"),
    [
        *(("canal-json", name) for name in ("content-compatible", "ddl", "only-updated")),
        *(("open-protocol", name) for name in ("ddl", "only-updated", "types")),
        *(("simple", name) for name in ("json-basic", "json-ddl", "json-types")),
    ],
)
def test_nothing_is_wrong_with_what_ticdc_writes(protocol: str, name: str, kafka: KafkaBroker) -> None:
    case = KafkaCase(protocol, name)
    topic = kafka.make_topic(case.partitions)
    kafka.write(topic, [golden.record for golden in case.records])
    found = open_source(kafka.uri(topic, protocol=protocol)).check()
    assert (found.errors, found.findings, found.inspection.protocol) == (0, (), protocol)
    rows = sum(table.rows or 0 for table in found.inspection.tables)
    assert rows == sum(golden.kind == "row" for golden in case.records)


def test_a_protocol_that_the_uri_does_not_name_is_shown_by_the_messages(
    kafka: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = filled(kafka, database_created(1), created(2), row(4, 1), watermark(5)).replace("protocol=canal-json", "")
    found = open_source(uri).inspect()
    assert found.protocol == "canal-json"
    (finding,) = found.findings
    assert (finding.kind, finding.severity) == ("reading", Severity.INFO)
    assert "show protocol=canal-json" in finding.message
    assert run_once(uri, f"duckdb://{tmp_path}/x.duckdb", engine=LocalEngine()) == 0
    assert "The source's URI names no protocol." in "".join(capsys.readouterr())


def test_a_task_is_told_the_protocol_that_the_driver_detected(kafka: KafkaBroker) -> None:
    uri = filled(kafka, database_created(1), created(2), row(4, 1)).replace("protocol=canal-json", "")
    reader = open_source(uri).event_source.reader
    assert isinstance(reader, KafkaReader)
    assert reader.ends()
    sent = pickle.loads(pickle.dumps(reader))
    assert sent.options.protocol == "canal-json"
    assert (len(reader.notices), len(sent.notices)) == (1, 0)


def test_a_topic_that_shows_no_protocol_says_what_to_set(kafka: KafkaBroker) -> None:
    uri = filled(kafka, b"nothing", b"{}").replace("protocol=canal-json", "")
    with pytest.raises(SourceNotReadyError, match=r"do not show in which protocol the changefeed writes\. Add protocol="):
        open_source(uri).inspect()


def test_the_commands_print_it(kafka: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = filled(kafka, database_created(1), created(2), row(4, 1), watermark(5))
    assert main(["inspect", uri, "--check"]) == 0
    told = capsys.readouterr().out
    assert f"checkpoint {format_tso(tso(5))}" in told
    assert "nothing wrong found" in told
    assert main(["validate", "--source", uri, "--sink", f"duckdb://{tmp_path}/x.duckdb", "--no-spark"]) == 0
    assert "can be read; headrace inspect shows what is in it" in capsys.readouterr().out
