"""Schema files that TiCDC wrote, read and written again, are the same bytes under the same name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ddl.action_codes import action_code
from headrace.ddl.lexer import quoted_text
from headrace.ddl.statement import read_statement
from headrace.formats.schema_file import parse_schema_file, with_escapes
from headrace.formats.schema_file_encoder import SchemaFileText, without_escapes

CASES = Path(__file__).parents[1] / "conformance" / "ticdc-storage"
FILES = sorted(CASES.glob("*/data/**/schema_*.json"))
SAME_CODE = {20: {20, 6}, 60: {3}, 230: {7}}
"""Numbers of TiCDC that a statement alone does not show, with those that are written for it."""


def is_of_view(text: bytes) -> bool:
    """A view's file says UNSPECIFIED for its computed columns, which is no type of a column."""
    return b"UNSPECIFIED" in text


def test_every_file_is_written_as_ticdc_wrote_it() -> None:
    assert FILES
    for path in FILES:
        raw = path.read_bytes()
        if is_of_view(raw):
            continue
        read = parse_schema_file(raw)
        text = SchemaFileText(
            read.table_id, read.version, read.schema, read.statement, read.type_code, column_ids=b'"ColumnId"' in raw
        )
        assert text.text.encode() == raw, path
        assert text.name == path.name


def test_the_number_of_every_statement_is_that_of_ticdc() -> None:
    told = set()
    for path in FILES:
        read = parse_schema_file(path.read_bytes())
        if read.statement:
            told.add(read.type_code)
            code = action_code(read_statement(read.statement, read.database))
            assert code in SAME_CODE.get(read.type_code, {read.type_code}), (read.statement, read.type_code, code)
    assert len(told) > 20


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_a_string_of_a_statement_goes_round(text: str) -> None:
    statement = f"ALTER TABLE `t\\'s` COMMENT = {quoted_text(text)} /* it's */"
    told = without_escapes(statement)
    assert without_escapes(with_escapes(told)) == told
    words = read_statement(with_escapes(told), "d").actions
    assert words == read_statement(statement, "d").actions


@pytest.mark.parametrize(
    ("server", "ticdc"),
    [
        (r"COMMENT 'it\'s'", "COMMENT 'it''s'"),
        (r'COMMENT "a\\b"', "COMMENT 'a\\b'"),
        ("`it's` INT DEFAULT 'x'", "`it's` INT DEFAULT 'x'"),
    ],
)
def test_strings_are_written_without_escapes(server: str, ticdc: str) -> None:
    assert without_escapes(server) == ticdc
