"""What canal-JSON messages are about: the fast way over many of them, and the slow one for those that are unusual."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats import canal_envelope
from headrace.formats.canal_envelope import EnvelopeKind, Envelopes, read_envelopes, read_row_heads, read_statement_message
from headrace.model.tso import LOGICAL_BITS
from kafka_cases import KafkaCase, created, message, row, tso, watermark

ROW = row(4, 1)
_TOLD = json.loads(ROW)
REGULAR = json.dumps({**{k: v for k, v in _TOLD.items() if k != "_tidb"}, "_tidb": _TOLD["_tidb"]}, separators=(",", ":")).encode()
"""As TiCDC writes it: the extension comes last."""
Edit = Callable[[dict[str, object]], object]


def edited(edit: Edit) -> bytes:
    told = json.loads(ROW)
    edit(told)
    return json.dumps(told).encode()


def one(value: bytes, *, exact: bool = True) -> tuple[object, ...]:
    found = read_envelopes([value], exact=exact)
    assert len(found.kinds) == 1
    return EnvelopeKind(found.kinds[0]), found.databases[0], found.tables[0], int(found.commit_ts[0])


def listed(found: Envelopes) -> list[tuple[object, ...]]:
    columns = (found.kinds.tolist(), found.databases, found.tables, found.commit_ts.tolist(), found.is_exact.tolist())
    return [*zip(*columns, strict=True)]


@pytest.mark.reading_case("B19")
def test_each_kind_of_message_is_told_with_its_table_and_time() -> None:
    assert one(ROW) == (EnvelopeKind.ROWS, "shop", "a", tso(4))
    assert one(created(2)) == (EnvelopeKind.STATEMENT, "shop", "a", tso(2))
    assert one(watermark(3)) == (EnvelopeKind.WATERMARK, "", "", tso(3))
    assert one(b" \r\n")[0] is EnvelopeKind.EMPTY


def test_many_messages_are_read_as_each_by_itself() -> None:
    values = [golden.record.value or b"" for name in ("ddl", "only-updated") for golden in KafkaCase("canal-json", name).records]
    assert listed(read_envelopes(values)) == [told for value in values for told in listed(read_envelopes([value]))]


def test_the_slow_way_gives_what_the_fast_one_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [golden.record.value or b"" for name in ("types", "ddl") for golden in KafkaCase("canal-json", name).records]
    heads, together = read_row_heads(pa.array(values, pa.binary())), read_envelopes(values)
    assert heads.is_regular.tolist() == (together.kinds == EnvelopeKind.ROWS).tolist()
    names = zip(heads.databases.to_pylist(), heads.tables.to_pylist(), heads.commit_ts.tolist(), strict=True)
    told = [(EnvelopeKind.ROWS, *of_one, True) for of_one in names]
    monkeypatch.setattr(canal_envelope, "_parsed_together", lambda _values: None)
    slow = listed(read_envelopes(values))
    assert slow == listed(together)
    assert [row for row, is_row in zip(slow, heads.is_regular, strict=True) if is_row] == [
        row for row, is_row in zip(told, heads.is_regular, strict=True) if is_row
    ]


@pytest.mark.parametrize(
    "change",
    [
        (b'"type":"INSERT"', b'"type":"TIDB_WATERMARK"'),
        (b'"type":"INSERT"', b'"type":"CREATE"'),
        (b'"isDdl":false', b'"isDdl":true'),
        (b'"table":"a"', b'"table":""'),
        (b'"table":"a"', b'"table":null'),
        (b'"table":"a",', b""),
        (b'"commitTs":', b'"onlyHandleKey":true,"commitTs":'),
        (b'"commitTs":', b'"commitTs":0'),
        (b'"commitTs":', b'"commitTs":-'),
        (re.compile(rb'"commitTs":[0-9]{18}').search(REGULAR)[0], b'"commitTs":0x1234567890123456'),  # type: ignore[index]
        (b'"commitTs":', b'"commitTs":1'),
        (b',"_tidb":{"commitTs"', b',"x":{"commitTs"'),
        (b"}}", b'},"x":1}'),
        (b"}}", b"}}]"),
        (b"}}", b"}} "),
    ],
)
def test_what_is_written_in_another_way_is_looked_at_by_itself(change: tuple[bytes, bytes]) -> None:
    value = REGULAR.replace(*change)
    assert value != REGULAR
    assert read_row_heads(pa.array([REGULAR, value, REGULAR], pa.binary())).is_regular.tolist() == [True, False, True]
    found = read_envelopes([REGULAR, value, REGULAR])
    assert listed(found) == [told for each in (REGULAR, value, REGULAR) for told in listed(read_envelopes([each]))]


def test_a_commit_ts_in_a_value_is_none() -> None:
    told = json.loads(ROW)
    told["data"][0]["v"] = ',"_tidb":{"commitTs":400000000000000001}}'
    del told["_tidb"]
    assert one(json.dumps(told, separators=(",", ":")).encode())[0] is EnvelopeKind.UNREADABLE


def test_one_damaged_message_leaves_its_neighbours_as_they_are() -> None:
    found = read_envelopes([ROW, b"{", created(5), b"\xff", watermark(6)])
    assert [EnvelopeKind(kind).name for kind in found.kinds] == ["ROWS", "UNREADABLE", "STATEMENT", "UNREADABLE", "WATERMARK"]
    assert set(found.reasons) == {1, 3}


@pytest.mark.parametrize("cut", [1, 30, 150])
def test_a_row_that_is_cut_off_still_names_its_table(cut: int) -> None:
    assert one(ROW[:-cut])[:3] == (EnvelopeKind.UNREADABLE, "shop", "a")


@pytest.mark.parametrize("value", [created(2)[:-5], watermark(3)[:-5], ROW[:40], b'{"database":"shop","table":"a","isDdl":false'])
def test_a_damaged_message_that_may_be_more_than_a_row_names_no_table(value: bytes) -> None:
    assert one(value)[:3] == (EnvelopeKind.UNREADABLE, "", "")


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda told: told.pop("_tidb"), "it carries no commit ts"),
        (lambda told: told["_tidb"].update(commitTs="5"), "_tidb.commitTs is not a commit ts."),
        (lambda told: told["_tidb"].update(commitTs=True), "_tidb.commitTs is not a commit ts."),
        (lambda told: told["_tidb"].update(commitTs=1 << 70), "_tidb.commitTs is not a commit ts."),
        (lambda told: told["_tidb"].update(claimCheckLocation="s3://b/"), "its claim-check location 's3://b/' does not end with"),
        (lambda told: told.update(type="TRUNCATE?"), "its type is 'TRUNCATE?'"),
        (lambda told: told.update(table=None), "it does not name its table."),
        (lambda told: told.update(database=7), "it does not name its table."),
        (lambda told: told.update(database="\ud800"), "it does not name its table."),
    ],
)
def test_an_unusual_message_says_why_it_cannot_be_used(edit: Edit, reason: str) -> None:
    found = read_envelopes([edited(edit)])
    assert found.kinds.tolist() == [EnvelopeKind.UNREADABLE]
    assert found.reasons[0].startswith(reason)


def test_a_half_of_a_character_is_no_text() -> None:
    assert one(ROW.replace(b'"a"', b'"\\udc00"')[:-1])[:3] == (EnvelopeKind.UNREADABLE, "", "")
    assert one(ROW.replace(b'"a"', b'"\\udc00"'))[:3] == (EnvelopeKind.UNREADABLE, "shop", None)
    with pytest.raises(ValueError, match="database, table and sql are not all texts"):
        read_statement_message(message("ALTER", tso(3), sql="x").replace(b'"x"', b'"\\ud800"'))


def test_without_the_extension_the_millisecond_counts_if_that_is_wanted() -> None:
    plain = edited(lambda told: told.pop("_tidb"))
    found = read_envelopes([plain, ROW], exact=False)
    assert listed(found) == [
        (EnvelopeKind.ROWS, "shop", "a", (tso(4) >> LOGICAL_BITS) << LOGICAL_BITS, False),
        (EnvelopeKind.ROWS, "shop", "a", tso(4), True),
    ]


def test_a_statement_is_read_with_its_database() -> None:
    found = read_statement_message(message("ALTER", tso(3), sql="alter table a add `店` int"))
    assert (found.database, found.table, found.statement) == ("shop", "a", "alter table a add `店` int")


@given(
    st.lists(st.one_of(st.binary(max_size=60), st.sampled_from([ROW, created(1), watermark(2), b"null", b"{}", b"[]"])), max_size=8)
)
def test_no_bytes_raise_and_none_are_passed_over(values: list[bytes]) -> None:
    found = read_envelopes(values)
    assert len(found.kinds) == len(values)
    for number, (value, kind) in enumerate(zip(values, found.kinds.tolist(), strict=True)):
        assert (kind == EnvelopeKind.EMPTY) == (not value.strip(b" \t\r\n"))
        assert (kind == EnvelopeKind.UNREADABLE) == (number in found.reasons)
