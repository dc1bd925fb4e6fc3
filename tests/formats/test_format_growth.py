"""Reading a data file costs time in proportion to its length, whatever signs are repeated in it: a file holds up no other table.

What is measured is the time of twice as many against that of once as many, in time of the processor.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest
from changes import canal, csv_quoted

from headrace.formats.base import DecodeError
from headrace.formats.canal_json import CanalJsonOptions, decode_canal_json, has_commit_ts
from headrace.formats.csv import CsvOptions, decode_csv, first_commit_ts
from headrace.formats.csv_orders import OrderHistory, orders_in
from headrace.model.table import Column, Generated, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind

pytestmark = pytest.mark.long

REPEATED = 10_000
SCHEMA = TableSchema(
    TableId("test", "t"),
    (Column("id", ColumnType(TypeKind.INT), primary_key=True), Column("v", ColumnType(TypeKind.VARCHAR, length=16))),
    ("id",),
)


def grows_in_proportion(read: Callable[[bytes], object], make: Callable[[int], bytes]) -> None:
    takes_in_proportion(lambda count: partial(read, make(count)), REPEATED)


def takes_in_proportion(prepare: Callable[[int], Callable[[], object]], repeated: int) -> None:
    """``prepare`` gives what to do for so many; what it does itself is not measured."""

    once, twice = seconds(prepare(repeated)), seconds(prepare(2 * repeated))
    assert twice < 3 * once + 0.2, f"{once:.3f} s for {repeated}, {twice:.3f} s for twice as many"


def seconds(read: Callable[[], object]) -> float:
    """The time of the processor that it takes, the better of two."""
    taken = []
    for _ in range(2):
        began = time.process_time()
        with suppress(DecodeError):
            read()
        taken.append(time.process_time() - began)
    return min(taken)


ROW = b'"I","t","test",110,1,"a"\r\n'
SIGNS = {
    "quotes": b'"',
    "quotes and letters": b'"x',
    "doubled quotes and letters": b'""x',
    "delimiters": b",",
    "backslashes": b"\\",
    "line ends": b"\r\n",
    "carriage returns": b"\r",
    "blanks": b" ",
    "short records": b'"I",1\r\n',
}
DIALECTS = {
    "usual": CsvOptions(include_commit_ts=True),
    "escaped": CsvOptions(quote="", include_commit_ts=True),
    "own": CsvOptions(delimiter="||", terminator="\n\n", include_commit_ts=True),
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("sign", SIGNS)
def test_a_csv_file_of_twice_as_many_signs_takes_about_twice_as_long(sign: str, dialect: str) -> None:
    options, signs = DIALECTS[dialect], SIGNS[sign]

    def read(data: bytes) -> None:
        first_commit_ts(data, SCHEMA, options)
        list(decode_csv(data, SCHEMA, options))

    for before, behind in ((b"", b"x"), (ROW + b'"I","t","test",111,2,', b"x\r\n" + ROW)):
        grows_in_proportion(read, lambda count: before + signs * count + behind)  # noqa: B023


MESSAGE = (
    b'{"id":0,"database":"test","table":"t","pkNames":["id"],"isDdl":false,"type":"INSERT","es":1,"ts":2,"sql":"",'
    b'"sqlType":{"id":4,"v":12},"mysqlType":{"id":"int","v":"varchar(16)"},"old":null,"data":[{"id":"1","v":"a"}],'
    b'"_tidb":{"commitTs":262144}}\r\n'
)
PIECES = {
    "lines with the mark of a row": b'{"type":"INSERT",\r\n' * 4,
    "marks of a row": b'"type":"INSERT",',
    "short messages": b'{"type":"INSERT","es":1}\r\n',
    "old rows": b'"old":[{"a":null}],"data":',
    "commit timestamps": b'{"_tidb":{"commitTs":1}}\r\n',
    "open extensions": b'{"_tidb":',
    "digits": b"1",
    "quotes": b'"',
    "backslashes": b"\\",
    "brackets": b"[",
    "blanks": b" ",
    "line ends": b"\r\n",
}


@pytest.mark.parametrize("terminator", ["\r\n", ""], ids=["lines", "stream"])
@pytest.mark.parametrize("piece", PIECES)
def test_a_canal_json_file_of_twice_as_many_pieces_takes_about_twice_as_long(piece: str, terminator: str) -> None:
    def read(data: bytes) -> None:
        has_commit_ts(data)
        list(decode_canal_json(data, SCHEMA, CanalJsonOptions(terminator=terminator)))

    pieces = PIECES[piece]
    for before, behind in ((b"", b"x"), (MESSAGE, b"\r\n" + MESSAGE)):
        grows_in_proportion(read, lambda count: before + pieces * count + behind)  # noqa: B023


COLUMNS = 2_000
NAMES = {"plain": "c{}", "letters beyond ASCII": "列{}", "quotes": '"{}'}


def wide(columns: int, name: str = "c{}", **more: object) -> TableSchema:
    """A table without key, so that old images are wanted whole."""
    kind = ColumnType(TypeKind.VARCHAR, length=16)
    return TableSchema(TableId("test", "t"), tuple(Column(name.format(n), kind, **more) for n in range(columns)))  # type: ignore[arg-type]


def messages_of(schema: TableSchema, old: dict[str, str | None] | None, count: int, *, damaged: bool = False) -> bytes:
    """Updates of the whole row; a damaged one at the end has the block read message by message."""
    data = {column.name: "1" for column in schema.columns}
    text = canal("UPDATE", data, old, commit_ts=262144).replace(b'"sqlType":', b'"ignored":')
    return (text + b"\r\n") * count + (b'{"type":"UPDATE"}\r\n' if damaged else b"")


@pytest.mark.parametrize("damaged", [False, True], ids=["sound", "damaged"])
@pytest.mark.parametrize("terminator", ["\r\n", ""], ids=["lines", "stream"])
@pytest.mark.parametrize("name", NAMES)
def test_old_rows_of_a_table_of_twice_as_many_columns_take_about_twice_as_long(name: str, terminator: str, damaged: bool) -> None:
    def prepare(columns: int) -> Callable[[], object]:
        schema = wide(columns, NAMES[name])
        data = messages_of(schema, {schema.columns[0].name: None}, 6, damaged=damaged)
        return lambda: list(decode_canal_json(data, schema, CanalJsonOptions(terminator=terminator)))

    takes_in_proportion(prepare, COLUMNS)


def test_a_long_old_value_is_not_searched_for_each_column() -> None:
    """The table has twice as many columns; the old value, which holds a ``null``, has as many letters as before."""
    value = "null " * 200_000

    def prepare(columns: int) -> Callable[[], object]:
        schema = wide(columns)
        data = messages_of(schema, {schema.columns[0].name: value}, 2)
        return lambda: list(decode_canal_json(data, schema, CanalJsonOptions()))

    takes_in_proportion(prepare, COLUMNS)


def test_members_that_do_not_end_are_read_once() -> None:
    schema = TableSchema(TableId("test", "t"), (Column("e", ColumnType(TypeKind.ENUM)),))

    def make(count: int) -> bytes:
        return canal("INSERT", {"e": "x"}, mysql_types={"e": "enum('" + r"\'" * count}) + b"\r\n"

    grows_in_proportion(lambda data: list(decode_canal_json(data, schema, CanalJsonOptions())), make)


def test_columns_that_rows_need_not_bring_are_passed_over_one_by_one() -> None:
    def prepare(columns: int) -> Callable[[], object]:
        schema = wide(columns, generated=Generated.VIRTUAL)
        schema = replace(schema, columns=(Column("id", ColumnType(TypeKind.INT)), *schema.columns))
        data = messages_of(schema, None, 4, damaged=True)
        return lambda: list(decode_canal_json(data, schema, CanalJsonOptions()))

    takes_in_proportion(prepare, COLUMNS)


def test_headers_that_name_one_column_are_read_as_fast_in_a_wide_table_as_in_a_narrow_one() -> None:
    data = b"ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,c0\r\n" * COLUMNS

    def reading(columns: int) -> float:
        schema = wide(columns)
        return seconds(lambda: list(decode_csv(data, schema, CsvOptions())))

    narrow, of_many = reading(2), reading(COLUMNS)
    assert of_many < 3 * narrow + 0.2, f"{narrow:.3f} s with 2 columns, {of_many:.3f} s with {COLUMNS}"


def test_csv_records_of_a_table_of_twice_as_many_columns_take_about_twice_as_long() -> None:
    """Columns change places back and forth, so that each record has another order than the one before it."""

    def prepare(columns: int) -> Callable[[], object]:
        schema = wide(columns)
        names = tuple(column.name for column in schema.columns)
        history = OrderHistory.of((version, names[:: 1 - version % 2 * 2]) for version in range(100, 120))
        options = CsvOptions(include_commit_ts=True, orders=orders_in(100, history))
        data = b"".join(csv_quoted(["x"] * columns, schema, commit_ts) for commit_ts in range(101, 105))
        return lambda: list(decode_csv(data, schema, options))

    takes_in_proportion(prepare, COLUMNS)


def test_a_line_without_an_end_is_copied_a_few_times_however_long_it_is() -> None:
    """The end of a line is looked for in ever larger parts of the file."""
    options = CanalJsonOptions("\n")
    takes_in_proportion(lambda mib: lambda: list(decode_canal_json(b"{" * (mib << 20), SCHEMA, options)), 128)
