"""The columns of a CSV record come in the order that the table had at the record's commit ts."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest
from changes import INSERT, rows_and_error, rows_of, table

from headrace.formats.base import SchemaMismatchError
from headrace.formats.csv import CsvOptions, decode_csv, first_commit_ts, has_commit_ts
from headrace.formats.csv_exact import BATCH_BYTES, decode_exact
from headrace.formats.csv_orders import ONE_ORDER, ColumnOrders, OrderHistory, orders_in
from headrace.model.tso import MAX_TSO

A_B = table(a="INT", b="INT", v="VARCHAR")
FORMER, LATER = ("a", "b", "v"), ("b", "a", "v")
SHAPES = [(100, FORMER), (200, LATER), (300, FORMER)]
HISTORY = OrderHistory.of(SHAPES)
HEADER = b"ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,ticdc-meta$commit-ts,"


def options(directory: int = 100, left: int = MAX_TSO + 1, shapes: list[tuple[int, tuple[str, ...]]] = SHAPES) -> CsvOptions:
    return CsvOptions(orders=orders_in(directory, OrderHistory.of(shapes), left))


def record(ts: int, number: int, text: str = "x") -> bytes:
    """The row with ``a`` = ``number`` and ``b`` = -``number``, in the order of its time in directory 100."""
    values = (-number, number) if 200 < ts <= 300 else (number, -number)
    return f'"I","t","test",{ts},{values[0]},{values[1]},"{text}"\r\n'.encode()


def decode(data: bytes, how: CsvOptions) -> list[tuple[object, ...]]:
    """The rows, by both ways, which must agree."""
    rows = rows_of(decode_csv(pa.py_buffer(data), A_B, how))
    assert rows_of(decode_exact(memoryview(data), A_B, how)) == rows
    return rows


@pytest.mark.parametrize("header", [b"", HEADER + b"a,b,v\r\n"], ids=["without header", "with header"])
def test_each_record_has_the_order_of_its_commit_ts(header: bytes) -> None:
    stamps = [150, 200, 201, 300, 301, 150, 250]
    data = b"".join(record(ts, number) for number, ts in enumerate(stamps, 1))
    assert decode(header + data, options()) == [(INSERT, ts, number, -number, "x") for number, ts in enumerate(stamps, 1)]


@pytest.mark.long
def test_a_large_file_changes_its_order_anywhere() -> None:
    """Some chunks of Arrow's reader have one order, others have several."""
    chance, text = random.Random(7), "x" * 1000
    stamps = sorted(chance.choices([150, 250, 350], k=4 * BATCH_BYTES // len(text)))
    data = b"".join(record(ts, number, text) for number, ts in enumerate(stamps))
    batches = list(decode_csv(pa.py_buffer(data), A_B, options()))
    assert rows_of(iter(batches)) == [(INSERT, ts, number, -number, text) for number, ts in enumerate(stamps)]


def test_a_header_with_an_order_that_no_schema_file_tells_counts() -> None:
    data = HEADER + b'v,b,a\r\n"I","t","test",150,"x",-1,1\r\n"I","t","test",250,"y",-2,2\r\n'
    assert decode(data, options()) == [(INSERT, 150, 1, -1, "x"), (INSERT, 250, 2, -2, "y")]


def test_a_column_selector_leaves_the_order_of_the_others() -> None:
    how = replace(options(), column_selected=lambda _, name: name != "v")
    data = b'"I","t","test",150,1,-1\r\n"I","t","test",250,-2,2\r\n'
    assert decode(data, how) == [(INSERT, 150, 1, -1), (INSERT, 250, 2, -2)]


def test_records_of_another_order_tell_their_commit_ts() -> None:
    schema = table(a="INT", v="VARCHAR")
    how = options(shapes=[(100, ("a", "v")), (200, ("v", "a"))])
    data = b'"I","t","test",250,"x",1\r\n'
    assert has_commit_ts(data, schema, how)
    assert first_commit_ts(data, schema, how) == 250


def test_without_commit_ts_an_order_that_cannot_be_known_is_refused() -> None:
    data = b'"I","t","test",1,-1,"x"\r\n'
    assert not has_commit_ts(data, A_B, options())
    for decoder in (decode_csv, lambda d, s, o: decode_exact(memoryview(d), s, o)):
        _, error = rows_and_error(decoder(data, A_B, options()))
        assert isinstance(error, SchemaMismatchError)
        assert "the order of the values" in error.message


def test_without_commit_ts_a_directory_beside_the_one_of_the_new_order_has_its_own() -> None:
    how = options(100, 200)
    assert decode(b'"I","t","test",1,-1,"x"\r\n', how) == [(INSERT, 0, 1, -1, "x")]


@pytest.mark.parametrize(
    ("directory", "left", "in_doubt"),
    [(100, MAX_TSO + 1, True), (100, 200, False), (100, 250, True), (200, MAX_TSO + 1, True), (300, MAX_TSO + 1, False)],
)
def test_an_order_is_in_doubt_while_ticdc_may_go_on_in_the_directory(directory: int, left: int, in_doubt: bool) -> None:
    assert orders_in(directory, HISTORY, left).in_doubt is in_doubt


def test_a_record_at_the_very_schema_change_lies_behind_it_in_its_own_directory_only() -> None:
    assert [orders_in(directory, HISTORY).at(200).names for directory in (100, 200, 300)] == [FORMER, LATER, LATER]


def test_an_order_tells_for_which_records_it_is() -> None:
    found = [orders_in(200, HISTORY).at(ts) for ts in (50, 199, 200, 300, 301)]
    assert [(order.names, order.begins, order.ends) for order in found] == [
        (FORMER, 0, 200),
        (FORMER, 0, 200),
        (LATER, 200, 301),
        (LATER, 200, 301),
        (FORMER, 301, MAX_TSO + 1),
    ]


def test_one_order_needs_no_history() -> None:
    assert orders_in(100, OrderHistory.of([(100, FORMER), (200, FORMER)])) == ONE_ORDER == ColumnOrders()
