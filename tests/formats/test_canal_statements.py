"""The messages of schema changes and watermarks are those of TiCDC, byte for byte."""

from __future__ import annotations

import json

import numpy as np
import pytest

from headrace.formats.canal_envelope import EnvelopeKind, read_envelopes, read_statement_message
from headrace.formats.canal_statements import CanalStatementType, statement_message, statement_type, watermark_message
from headrace.model.table import TableId
from kafka_cases import KafkaCase

CASES = ["basic-extension", "basic-plain", "claim-check", "content-compatible", "ddl", "only-updated", "types"]


@pytest.mark.parametrize("name", CASES)
def test_golden_messages_without_rows_are_the_same_bytes(name: str) -> None:
    found = 0
    for golden in KafkaCase("canal-json", name).records:
        value = golden.record.value or b""
        if golden.kind == "row":
            continue
        told = json.loads(value)
        extension = told.get("_tidb")
        if golden.kind == "checkpoint":
            again = watermark_message(extension["watermarkTs"], built_ms=told["ts"])
        else:
            table_id = TableId(told["database"], told["table"])
            commit_ts = told["es"] << 18 if extension is None else extension["commitTs"]
            again = statement_message(table_id, told["sql"], commit_ts, extension=extension is not None, built_ms=told["ts"])
        assert again == value
        found += 1
    assert found


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        ("CREATE DATABASE d", CanalStatementType.OTHER),
        ("CREATE TABLE t (id INT)", CanalStatementType.CREATE),
        ("DROP TABLE t", CanalStatementType.DROP),
        ("TRUNCATE t", CanalStatementType.TRUNCATE),
        ("RENAME TABLE t TO u", CanalStatementType.RENAME),
        ("ALTER TABLE t RENAME TO u", CanalStatementType.RENAME),
        ("CREATE UNIQUE INDEX i ON t (a)", CanalStatementType.CREATE_INDEX),
        ("ALTER TABLE t ADD INDEX i (a)", CanalStatementType.CREATE_INDEX),
        ("ALTER TABLE t ADD CONSTRAINT c FOREIGN KEY (a) REFERENCES u (a)", CanalStatementType.CREATE_INDEX),
        ("ALTER TABLE t DROP PRIMARY KEY", CanalStatementType.DROP_INDEX),
        ("DROP INDEX i ON t", CanalStatementType.DROP_INDEX),
        ("ALTER TABLE t ADD `index` INT", CanalStatementType.ALTER),
        ("ALTER TABLE t ADD COLUMN c INT", CanalStatementType.ALTER),
        ("CREATE VIEW v AS SELECT 1", CanalStatementType.OTHER),
        ("DROP VIEW v", CanalStatementType.OTHER),
    ],
)
def test_a_statement_has_the_type_that_canal_names(statement: str, wanted: CanalStatementType) -> None:
    assert statement_type(statement, "d") is wanted


@pytest.mark.parametrize(
    ("statement", "read"),
    [
        (
            r"CREATE TABLE `a\b` (v TEXT DEFAULT 'a\\b') COMMENT 'it''s'",
            r"CREATE TABLE `a\b` (v TEXT DEFAULT 'a\\b') COMMENT 'it''s'",
        ),
        (r"ALTER TABLE t COMMENT 'it\'s \"x\"\\'", r"""ALTER TABLE t COMMENT 'it''s "x"\\'"""),
        (r"ALTER TABLE t COMMENT 'a\nb\%\z'", "ALTER TABLE t COMMENT 'a\nb\\\\%z'"),
    ],
)
def test_a_statement_is_read_back_with_the_same_meaning(statement: str, read: str) -> None:
    found = read_statement_message(statement_message(TableId("d", "t"), statement, 1 << 40, extension=True))
    assert (found.database, found.table, found.statement) == ("d", "t", read)


def test_messages_say_what_they_are() -> None:
    values = [watermark_message(7 << 40), statement_message(TableId("d"), "DROP DATABASE d", 5 << 40, extension=True)]
    found = read_envelopes(values)
    assert found.kinds.tolist() == [EnvelopeKind.WATERMARK, EnvelopeKind.STATEMENT]
    assert np.array_equal(found.commit_ts, [7 << 40, 5 << 40])
    assert found.databases == ["", "d"]
