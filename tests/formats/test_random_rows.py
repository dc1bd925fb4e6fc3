"""Whatever a row holds, what a writer of the format writes is what the decoders read."""

from __future__ import annotations

import math
import struct

from changes import INSERT, Row, canal, csv_escaped, csv_quoted, rows_of, table
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.formats.base import TruncatedRecordError
from headrace.formats.canal_json import CanalJsonOptions, decode_canal_json
from headrace.formats.csv import CsvOptions, decode_csv
from headrace.formats.csv_exact import decode_exact

SCHEMA = table(id="BIGINT", u="BIGINT UNSIGNED", v="VARCHAR", d="DOUBLE", n="DECIMAL", b="BLOB", j="JSON")
TEXT = st.text(
    st.one_of(st.sampled_from('"\\,\r\n\tN[*]|+{}:\u0085\u2028\x00é€😀'), st.characters(codec="utf-8")),
    max_size=12,
)
ROWS = st.lists(
    st.tuples(
        st.integers(-(2**63), 2**63 - 1),
        st.none() | st.integers(0, 2**64 - 1),
        st.none() | TEXT,
        st.none() | st.floats(allow_nan=False, allow_infinity=False),
        st.none() | st.decimals(allow_nan=False, allow_infinity=False, places=4).map(lambda number: format(number, "f")),
        st.none() | st.binary(max_size=12),
        st.none() | TEXT,
    ),
    min_size=1,
    max_size=8,
)


def expected(rows: list[tuple[object, ...]]) -> list[Row]:
    return [(INSERT, number, *row) for number, row in enumerate(rows, 100)]


def same(found: list[Row], rows: list[tuple[object, ...]]) -> bool:
    """Equal, and floats to the last bit."""
    bits = [struct.pack("<d", value) for row in found for value in row if isinstance(value, float) and not math.isnan(value)]
    wanted = [struct.pack("<d", value) for row in rows for value in row if isinstance(value, float)]
    return found == expected(rows) and bits == wanted


@given(ROWS, st.sampled_from([",", "\t", ";"]), st.sampled_from(['"', "'"]))
@settings(max_examples=150, deadline=None)
def test_quoted_csv_reads_what_was_written(rows: list[tuple[object, ...]], delimiter: str, quote: str) -> None:
    data = b"".join(csv_quoted(row, SCHEMA, number, delimiter, quote) for number, row in enumerate(rows, 100))
    options = CsvOptions(delimiter=delimiter, quote=quote)
    assert same(rows_of(decode_csv(data, SCHEMA, options)), rows)
    assert same(rows_of(decode_exact(memoryview(data), SCHEMA, options)), rows)


@given(ROWS, st.sampled_from([",", "[*]", "|+", "\t"]))
@settings(max_examples=150, deadline=None)
def test_escaped_csv_reads_what_was_written(rows: list[tuple[object, ...]], delimiter: str) -> None:
    data = b"".join(csv_escaped(row, SCHEMA, number, delimiter) for number, row in enumerate(rows, 100))
    assert same(rows_of(decode_csv(data, SCHEMA, CsvOptions(quote="", delimiter=delimiter))), rows)


@given(ROWS, st.sampled_from(["\r\n", "\n", "", "|"]))
@settings(max_examples=150, deadline=None)
def test_canal_json_reads_what_was_written(rows: list[tuple[object, ...]], terminator: str) -> None:
    names = [column.name for column in SCHEMA.columns]
    data = b"".join(
        canal("INSERT", dict(zip(names, row, strict=True)), commit_ts=number) + terminator.encode()
        for number, row in enumerate(rows, 100)
    )
    assert same(rows_of(decode_canal_json(data, SCHEMA, CanalJsonOptions(terminator=terminator))), rows)


@given(ROWS, st.data())
@settings(max_examples=150, deadline=None)
def test_a_file_cut_anywhere_gives_a_beginning_of_its_rows(rows: list[tuple[object, ...]], data: st.DataObject) -> None:
    whole = b"".join(csv_quoted(row, SCHEMA, number) for number, row in enumerate(rows, 100))
    cut = data.draw(st.integers(0, len(whole)))
    for decoder in (decode_csv, lambda raw, schema, options: decode_exact(memoryview(raw), schema, options)):
        found: list[Row] = []
        failed = False
        try:
            for batch in decoder(whole[:cut], SCHEMA, CsvOptions(include_commit_ts=True, output_old_value=False)):
                found += rows_of([batch])
        except TruncatedRecordError:
            failed = True
        assert found == expected(rows)[: len(found)]
        lengths = [len(csv_quoted(row, SCHEMA, number)) for number, row in enumerate(rows, 100)]
        ends = [sum(lengths[:count]) for count in range(len(lengths) + 1)]
        assert len(found) == max(count for count, end in enumerate(ends) if end <= cut)
        assert failed == (cut not in ends)
