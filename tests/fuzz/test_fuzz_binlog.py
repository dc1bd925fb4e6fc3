"""Damaged binlog messages: at once and one by one what one way refuses the other does not read, and there is no other error."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from binlog_cases import CASES, records, told_type
from fuzzing import damaged, fuzz
from headrace.formats.base import DecodeError
from headrace.formats.binlog.cell_values import ValueOptions
from headrace.formats.binlog.columns import BinlogBatch
from headrace.formats.binlog.errors import BinlogError
from headrace.formats.binlog.messages import read_binlog
from headrace.formats.binlog.row_events import RowReader
from headrace.formats.binlog.wire import peek_commit_ts
from headrace.model.table import Column, TableSchema

pytestmark = pytest.mark.long

MESSAGES = [record.value for case in CASES for record in records(case)[:60]]
PIECES = (
    *(b"\x00", b"\xff", b"\x80" * 9, b"\x80" * 10, b"\xff" * 9 + b"\x01"),
    *(b"\x0a\x00", b"\x22", b"\x08\x00\x12", b"\x1a", b"\x10\x01"),
)


def made(chance: Random) -> tuple[bytes, ...]:
    """Some messages, of which one is damaged."""
    found = [chance.choice(MESSAGES) for _ in range(chance.randrange(1, 4))]
    found[0] = damaged(chance, found[0], PIECES)
    chance.shuffle(found)
    return tuple(found)


def check(values: tuple[bytes, ...]) -> None:
    expected, found = one_by_one(values), at_once(values)
    if expected is not None:
        assert found is not None
        assert found[0] == expected
    else:
        assert found is None or not found[1]


def one_by_one(values: tuple[bytes, ...]) -> int | None:
    """The number of mutations, ``None`` if a message is refused."""
    reader, count = RowReader(ValueOptions("UTC")), 0
    try:
        for value in values:
            binlog = read_binlog(value)
            assert peek_commit_ts(value) == binlog.commit_ts
            count += sum(map(len, binlog.tables))
            with suppress(BinlogError):  # for a value
                list(reader.events(binlog))
    except BinlogError:
        return None
    return count


def at_once(values: tuple[bytes, ...]) -> tuple[int, bool] | None:
    """The number of mutations, and whether all rows could be read; ``None`` if a message is refused."""
    try:
        batch = BinlogBatch(values)
    except BinlogError:
        return None
    whole = True
    for rows in batch.tables:
        try:
            columns = tuple(Column(info.name, told_type(info)) for info in rows.columns)
            rows.block(TableSchema(rows.table_id, columns), 1, ValueOptions("UTC")).batch.validate(full=True)
        except DecodeError:
            whole = False
    return batch.mutation_count, whole


def test_damaged_messages_are_refused_in_both_ways() -> None:
    fuzz(3000, made, check)
