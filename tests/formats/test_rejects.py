"""Bad records that are left out: what is rejected, as it stands in the file, and that every other row is there under its number."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from changes import canal, csv_escaped, csv_quoted, rows_of, table

from headrace.formats import base, csv, csv_exact
from headrace.formats.base import DecodeError, OverlongRecordError, Rejects, SchemaMismatchError, TruncatedRecordError
from headrace.formats.canal_json import CanalJsonOptions, decode_canal_json
from headrace.formats.csv import CsvOptions, decode_csv
from headrace.formats.csv_exact import decode_exact
from headrace.model.block import SEQ

SHAPE = table(id="INT", v="VARCHAR")
QUOTED = CsvOptions()
ESCAPED = CsvOptions(quote="")
LINES = CanalJsonOptions()
STREAM = CanalJsonOptions(terminator="")

Decoder = Callable[[bytes, Rejects], Iterator[pa.RecordBatch]]


def csv_of(options: CsvOptions) -> Decoder:
    return lambda data, rejects: decode_csv(data, SHAPE, options, rejects)


def canal_json(options: CanalJsonOptions) -> Decoder:
    return lambda data, rejects: decode_canal_json(data, SHAPE, options, rejects=rejects)


def exactly(data: bytes, rejects: Rejects) -> Iterator[pa.RecordBatch]:
    """Record by record."""
    return decode_exact(memoryview(data), SHAPE, QUOTED, rejects=rejects)


def quoted(number: int, ts: int) -> bytes:
    return csv_quoted((number, f"two\r\nlines, {number}"), SHAPE, ts)


def escaped(number: int, ts: int) -> bytes:
    return csv_escaped((number, f"row {number}"), SHAPE, ts)


def line(number: int, ts: int) -> bytes:
    return canal("INSERT", {"id": number, "v": f"row {number}"}, commit_ts=ts) + b"\r\n"


def message(number: int, ts: int) -> bytes:
    return canal("INSERT", {"id": number, "v": f"row {number}"}, commit_ts=ts)


def bad_value(number: int, ts: int) -> bytes:
    return quoted(number, ts).replace(f",{ts},{number},".encode(), f",{ts},no number,".encode())


# How to write a good record and each kind of bad one; of the bad ones: the column that is named, and whether its ts is readable.
FORMATS: dict[str, tuple[Decoder, Callable[[int, int], bytes], list[tuple[Callable[[int, int], bytes], str, bool]], int]] = {
    "csv": (
        csv_of(QUOTED),
        quoted,
        [
            (bad_value, "id", True),
            (lambda n, ts: quoted(n, ts).replace(b'"I"', b'"X"'), "operation", True),
            (lambda n, ts: quoted(n, ts).replace(f",{ts},".encode(), b",soon,"), "commit-ts", False),
            (lambda n, ts: csv_quoted((n, "short"), SHAPE, ts).replace(b',"short"', b""), "", True),
            (lambda n, ts: csv_quoted((n, "long"), SHAPE, ts).replace(b"\r\n", b",5\r\n"), "", True),
            (lambda n, ts: csv_quoted((n, "bytes"), SHAPE, ts).replace(b"bytes", b"\xff\xfe"), "v", True),
            (lambda _n, _ts: b'"I"\r\n', "", False),
        ],
        1,
    ),
    "csv, exactly": (exactly, quoted, [(bad_value, "id", True), (lambda _n, _ts: b"1,2\r\n", "", False)], 1),
    "csv, escaped": (
        csv_of(ESCAPED),
        escaped,
        [
            (lambda n, ts: escaped(n, ts).replace(f",{n},".encode(), b",no number,"), "id", True),
            (lambda n, ts: escaped(n, ts).replace(b",row", b",row,"), "", True),
        ],
        1,
    ),
    "canal-json": (
        canal_json(LINES),
        line,
        [
            (lambda n, ts: line(n, ts).replace(b'"INSERT"', b'"QUERY"'), "type", True),
            (lambda n, ts: line(n, ts).replace(f'"id":"{n}"'.encode(), b'"id":"no number"'), "id", True),
            (lambda n, ts: line(n, ts).replace(b'"data":', b'"data":,'), "", True),
            (lambda _n, _ts: b"no message\r\n", "", False),
            (lambda _n, _ts: b"null\r\n", "", False),
            (lambda n, ts: line(n, ts).replace(b"row", b"\xff"), "", True),
            (lambda n, ts: line(n, ts).replace(b'"v":"row', b'"v":true,"w":"'), "v", True),
        ],
        2,
    ),
    "canal-json, a stream": (
        canal_json(STREAM),
        message,
        [
            (lambda n, ts: message(n, ts).replace(b'"INSERT"', b'"QUERY"'), "type", True),
            (lambda n, ts: message(n, ts).replace(f'"id":"{n}"'.encode(), b'"id":"no number"'), "id", True),
        ],
        2,
    ),
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("seed", range(4))
def test_bad_records_are_left_out_as_they_stand_and_all_others_are_there(name: str, seed: int) -> None:
    decode, good, kinds, places = FORMATS[name]
    dice = random.Random(seed)
    count, chance = dice.choice([(40, 0.3), (400, 0.02), (400, 0.5)])
    data, expected, bad = b"", [], []
    for number in range(count):
        ts = 1_000 + number
        # canal-JSON takes its columns from the first row, and a stream's first message tells that it is one.
        if dice.random() < chance and (number or name.startswith("csv")):
            write, column, readable = dice.choice(kinds)
            record = write(number, ts)
            bad.append((number, len(data), record.rstrip(b"\r\n"), column, ts if readable else None))
        else:
            record = good(number, ts)
            expected.append((number, ts, number))
        data += record
    rejects = Rejects(most=len(bad))
    batches = list(decode(data, rejects))
    numbers = [seq // places for batch in batches for seq in batch.column(SEQ).to_pylist()]
    assert [(n, row[1], row[2]) for n, row in zip(numbers, rows_of(batches), strict=True)] == expected
    found = [(r.number // places, r.offset, r.raw, r.column, r.commit_ts) for r in rejects.records]
    assert found == bad
    for record in rejects.records:
        assert record.message
        if name != "canal-json, a stream":
            assert record.line == data[: record.offset].count(b"\n") + 1


@pytest.mark.parametrize("name", FORMATS)
def test_one_bad_record_more_than_may_be_left_out_is_raised(name: str) -> None:
    decode, good, kinds, _ = FORMATS[name]
    bad = kinds[0][0]
    data = good(1, 1) + bad(2, 2) + good(3, 3) + bad(4, 4) + good(5, 5) + bad(6, 6) + good(7, 7)
    for most, before in ((0, [1]), (1, [1, 3]), (2, [1, 3, 5])):
        rejects, rows = Rejects(most), []
        with pytest.raises(DecodeError) as raised:
            rows.extend(decode(data, rejects))  # extend keeps what came before the error
        assert [row[2] for row in rows_of(rows)] == before
        assert len(rejects.records) == most
        assert (f"more than the {most} that" in raised.value.hint) is (most > 0)


@pytest.mark.parametrize(
    "bad",
    [
        quoted(2, 2).replace(b'"two', b'"two"x'),
        b'"I","t","test",2,2,"no end\r\n',
        b'"I","t","test",2,2,"a",""b"\r\n',
        b'"I","t","test",2,2\r\n"swallowed\r\n","test",3,3,"c"\r\n'.replace(b'2\r\n"', b'2,"\r\n'),
    ],
)
def test_a_quote_in_the_wrong_place_ends_the_file(bad: bytes) -> None:
    """What stands between it and the next quote may be good rows."""
    rejects, rows = Rejects(10), []
    with pytest.raises(DecodeError):
        rows.extend(decode_csv(quoted(1, 1) + bad + quoted(3, 3) + quoted(4, 4), SHAPE, QUOTED, rejects))
    assert [row[2] for row in rows_of(rows)] == [1]
    assert rejects.records == []


def test_what_concerns_the_whole_file_is_raised() -> None:
    other = csv_quoted((1, "a", 5), table(id="INT", v="VARCHAR", w="INT"), 1)
    for data, kind in (
        (other * 3, SchemaMismatchError),
        (b'"I"\r\n', SchemaMismatchError),
        (quoted(1, 1) + quoted(2, 2)[:-3], TruncatedRecordError),
    ):
        with pytest.raises(kind):
            list(decode_csv(data, SHAPE, QUOTED, Rejects(10)))
    for data, kind in (
        (line(1, 1).replace(b'"v":', b'"w":') + line(2, 2), SchemaMismatchError),
        (line(1, 1) + line(2, 2)[:-3], TruncatedRecordError),
    ):
        with pytest.raises(kind):
            list(decode_canal_json(data, SHAPE, LINES, rejects=Rejects(10)))
    with pytest.raises(DecodeError, match="not valid JSON"):
        list(decode_canal_json(message(1, 1) + b"{no message}" + message(2, 2), SHAPE, STREAM, rejects=Rejects(10)))


def test_a_large_file_with_bad_records_goes_on_through_arrow() -> None:
    rows = [csv_quoted((number, "x" * 60), SHAPE, number + 1) for number in range(70_000)]
    for number in (3, 40_000, 69_999):
        rows[number] = rows[number].replace(f",{number},".encode(), b",oops,")
    rejects = Rejects(3)
    batches = list(decode_csv(b"".join(rows), SHAPE, QUOTED, rejects))
    assert sum(batch.num_rows for batch in batches) == 69_997
    assert [record.number for record in rejects.records] == [3, 40_000, 69_999]
    assert [record.line for record in rejects.records] == [4, 40_001, 70_000]


def test_a_file_without_a_record_that_fits_is_not_held_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_exact, "_MOST_UNDECIDED", 5)
    other = csv_quoted((1, "a", 5), table(id="INT", v="VARCHAR", w="INT"), 1)
    rejects = Rejects(sys.maxsize)
    assert [batch.num_rows for batch in decode_csv(other * 5 + quoted(6, 6), SHAPE, QUOTED, rejects)] == [1]
    assert [record.line for record in rejects.records] == [1, 2, 3, 4, 5]
    with pytest.raises(SchemaMismatchError) as raised:
        list(decode_csv(other * 6 + quoted(7, 7), SHAPE, QUOTED, Rejects(sys.maxsize)))
    assert raised.value.line == 1


@pytest.mark.parametrize(
    ("decode", "good", "overlong"),
    [
        (csv_of(QUOTED), quoted, csv_quoted((2, "two\r\nlines" * 100), SHAPE, 1001)),
        (csv_of(ESCAPED), escaped, csv_escaped((2, "text" * 300), SHAPE, 1001)),
        (canal_json(LINES), line, canal("INSERT", {"id": 2, "v": "text" * 300}, commit_ts=1001) + b"\r\n"),
        (canal_json(STREAM), message, canal("INSERT", {"id": 2, "v": "text" * 300}, commit_ts=1001)),
    ],
    ids=["csv", "csv, escaped", "canal-json", "canal-json, a stream"],
)
def test_a_record_that_no_row_is_as_long_as_ends_its_file_and_is_never_left_out(
    decode: Decoder, good: Callable[[int, int], bytes], overlong: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow's arrays could not hold it, which would end the whole run. 1,000 bytes stand here for a GiB."""
    monkeypatch.setattr(base, "MOST_RECORD_BYTES", 1_000)
    monkeypatch.setattr(csv, "BATCH_BYTES", 125)
    rows: list[pa.RecordBatch] = []
    with pytest.raises(OverlongRecordError, match="no row of TiDB is that large"):
        rows += decode(good(1, 1000) + overlong + good(3, 1002), Rejects(most=5))
    assert [row[2] for row in rows_of(rows)] == [1]
