"""Whatever a row holds, what a writer of the format writes is what the decoders read."""

from __future__ import annotations

import math
import struct

import pytest
from changes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Row, canal, csv_escaped, csv_quoted, rows_and_error, rows_of, table
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.formats.base import MEMBER_TIMES, DecodeError, MembersNotKnownError, OverlongMembersError, TruncatedRecordError
from headrace.formats.canal_json import CanalJsonOptions, decode_canal_json
from headrace.formats.csv import CsvOptions, decode_csv
from headrace.formats.csv_exact import decode_exact
from headrace.model.table import TableSchema
from headrace.model.types import ColumnType, TypeKind

pytestmark = pytest.mark.long

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


Names = tuple[str, str, str]
NAMES: tuple[Names, ...] = (("id", "v", "w"), ("id", "列", "null"), ("id", '"v":null', "a\\b"), ("id", "é\n", "}],"))
VALUES = st.none() | st.sampled_from(["a", "null", '"v":null', "v"]) | TEXT
STATES = st.tuples(st.integers(0, 2), VALUES, VALUES)


@st.composite
def canal_changes(draw: st.DrawFn, names: Names) -> tuple[bytes, list[Row]]:
    """A message and its rows; of an update's old row it holds all columns, the changed ones, or those and some others."""
    kind, before, after = draw(st.sampled_from(["INSERT", "UPDATE", "UPDATE", "DELETE"])), draw(STATES), draw(STATES)
    if kind == "INSERT":
        return canal(kind, dict(zip(names, after, strict=True))), [(INSERT, 100, *after)]
    if kind == "DELETE":
        return canal(kind, dict(zip(names, before, strict=True))), [(DELETE, 100, *before)]
    left_out = draw(st.sets(st.sampled_from(names)))
    old = {n: b for n, b, a in zip(names, before, after, strict=True) if b != a or n not in left_out}
    return canal(kind, dict(zip(names, after, strict=True)), old), [(UPDATE_BEFORE, 100, *before), (UPDATE_AFTER, 100, *after)]


@given(
    st.sampled_from(NAMES).flatmap(lambda n: st.tuples(st.just(n), st.lists(canal_changes(n), min_size=1, max_size=8))),
    st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_each_update_of_canal_json_shows_which_columns_its_old_row_holds(
    drawn: tuple[Names, list[tuple[bytes, list[Row]]]], with_key: bool
) -> None:
    """By Arrow's reader, which takes lines, and message by message, as where messages are no lines."""
    names, changes = drawn
    keyed = table(**dict(zip(names, ("INT", "VARCHAR", "VARCHAR"), strict=True)))
    schema = keyed if with_key else TableSchema(keyed.table_id, keyed.columns, ())
    expected = [row for _, rows in changes for row in rows]
    for terminator in ("\r\n", ""):
        data = b"".join(message + terminator.encode() for message, _ in changes)
        assert rows_of(decode_canal_json(data, schema, CanalJsonOptions(terminator=terminator))) == expected
        moved = rows_of(decode_canal_json(data, schema, CanalJsonOptions(terminator=terminator), old_images=False))
        if not with_key:
            assert moved == expected
            continue
        kept = [row for _, rows in changes for row in rows if row[0] is not UPDATE_BEFORE or row[2] != rows[1][2]]
        # Of an old row only the key counts then.
        assert [row if row[0] is not UPDATE_BEFORE else row[:3] for row in moved] == [
            row if row[0] is not UPDATE_BEFORE else row[:3] for row in kept
        ]


MEMBERS = st.lists(st.sampled_from(["a", "b", "1", "2", "x y"]), max_size=4, unique=True).map(tuple)


@given(st.sampled_from([TypeKind.ENUM, TypeKind.SET]), MEMBERS, st.booleans(), st.lists(st.integers(0, 9), min_size=1, max_size=6))
@settings(max_examples=200, deadline=None)
def test_a_place_of_a_member_becomes_the_member_or_an_error(
    kind: TypeKind, members: tuple[str, ...], in_message: bool, places: list[int]
) -> None:
    """Canal-JSON writes places: an index of an ENUM, a bit mask of a SET. A place is never taken for a text."""
    schema = table(id="INT", m=ColumnType(kind, elements=() if in_message else members))
    listed = ",".join(f"'{member}'" for member in members)
    types = {"m": f"{kind.lower()}({listed})"} if in_message and members else None
    data = b"".join(canal("INSERT", {"id": n, "m": str(place)}, mysql_types=types) + b"\r\n" for n, place in enumerate(places))
    wanted = [_member(kind, members, place) for place in places]
    found: list[Row] = []
    error: DecodeError | None = None
    try:
        for batch in decode_canal_json(data, schema, CanalJsonOptions()):
            found += rows_of([batch])
    except DecodeError as raised:
        error = raised
    readable = wanted.index(None) if None in wanted else len(wanted)
    assert [row[3] for row in found] == wanted[:readable]
    assert (error is not None) == (readable < len(wanted))
    assert isinstance(error, MembersNotKnownError) == (not members)


def _member(kind: TypeKind, members: tuple[str, ...], place: int) -> str | None:
    """``None`` where there is no such member, and where nobody knows the members."""
    if not members:
        return None
    if kind is TypeKind.ENUM:
        return ("", *members)[place] if place <= len(members) else None
    chosen = [member for bit, member in enumerate(members) if place & 1 << bit]
    return ",".join(chosen) if place < 1 << len(members) else None


@given(
    st.sampled_from([TypeKind.ENUM, TypeKind.SET]),
    st.lists(st.integers(1, 20_000).map(lambda length: "é" * (length % 2) + "x" * length), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from([None, "all", "changed"])), min_size=1, max_size=40),
    st.sampled_from(["\r\n", ""]),
)
@settings(max_examples=100, deadline=None)
def test_rows_that_name_long_members_are_no_more_than_so_many_times_as_large_as_their_messages(
    kind: TypeKind, members: list[str], drawn: list[tuple[int, str | None]], terminator: str
) -> None:
    """Inserts, and updates whose old rows hold all columns or the changed ones."""
    known = tuple(members)
    schema = table(id="INT", a=ColumnType(kind, elements=known), b=ColumnType(kind, elements=known))
    data, wanted = b"", list[Row]()
    for place, update in drawn:
        if (text := _member(kind, known, place)) is None:
            continue
        row = {"id": "1", "a": str(place), "b": str(place)}
        if update is None:
            data += canal("INSERT", row) + terminator.encode()
        else:
            data += canal("UPDATE", row, {**(row if update == "all" else {}), "a": "1"}) + terminator.encode()
            wanted.append((UPDATE_BEFORE, 100, 1, known[0], text))
        wanted.append((INSERT if update is None else UPDATE_AFTER, 100, 1, text, text))
    size = sum(len(str(text).encode()) for row in wanted for text in row[3:])
    batches = decode_canal_json(data, schema, CanalJsonOptions(terminator=terminator))
    if size <= MEMBER_TIMES * len(data) * (2 if any(row[0] is UPDATE_BEFORE for row in wanted) else 1):
        assert rows_of(batches) == wanted
        return
    found, error = rows_and_error(batches)
    assert isinstance(error, OverlongMembersError)
    assert (found, error.line) == ([], 1 if terminator else None)
    assert error.column in ("a", "b")


SHORT_NAMES = [*"abcdefghjklmnopqrstuvwxyz0123456789", *"$_äöü"]


@given(
    st.integers(1, 40),
    st.integers(1, 255) | st.just(255),
    st.sampled_from(["x", "é", "汉", "\U0001f600"]),
    st.lists(st.sampled_from([None, "all", "changed"]), min_size=1, max_size=4),
    st.sampled_from(["\r\n", ""]),
)
@example(40, 255, "\U0001f600", [None], "\r\n")
@example(40, 255, "\U0001f600", ["changed"], "")
@settings(max_examples=50, deadline=None)
def test_members_as_long_as_tidb_lets_them_be_are_read(
    columns: int, length: int, sign: str, messages: list[str | None], terminator: str
) -> None:
    """In messages that TiCDC cannot write shorter."""
    longest = (sign * length, sign * (length - 1) + "y")
    names = [SHORT_NAMES[number] for number in range(columns)]
    schema = table(**{"id": "INT", **{name: ColumnType(TypeKind.ENUM, elements=longest) for name in names}})
    types = dict.fromkeys(names, "enum")
    after, before = {"id": "1", **dict.fromkeys(names, "2")}, {"id": "1", **dict.fromkeys(names, "1")}
    data, wanted = b"", list[Row]()
    for update in messages:
        if update is None:
            data += canal("INSERT", after, mysql_types=types) + terminator.encode()
            wanted.append((INSERT, 100, 1, *[longest[1]] * columns))
            continue
        old = before if update == "all" else {names[0]: "1"}
        data += canal("UPDATE", after, old, mysql_types=types) + terminator.encode()
        wanted.append((UPDATE_BEFORE, 100, 1, longest[0], *[longest[0] if update == "all" else longest[1]] * (columns - 1)))
        wanted.append((UPDATE_AFTER, 100, 1, *[longest[1]] * columns))
    assert rows_of(decode_canal_json(data, schema, CanalJsonOptions(terminator=terminator))) == wanted
