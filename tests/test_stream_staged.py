"""Which staged rows of a table are repeats, and where what writes the stream began again: what was read of its partition tells."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.model.stream import Mark, Range
from headrace.model.table import TableId, TableSchema
from headrace.sources.stream.history import StreamHistory
from headrace.sources.stream.position import PartitionPosition, StreamPosition
from headrace.sources.stream.records import RecordKind
from headrace.sources.stream.stage import stage
from headrace.sources.stream.staged import Staged, StagedSplit, splits
from headrace.testing.memory_source import MemoryReader, MemoryRecord
from serial_stream import SerialReader
from streams import ID, A, B, Folder

SCHEMA = TableSchema(A, (ID,))
CREATED = 10
WATERMARK = 1000
"""What the pipeline has reached: more than any record here."""


@dataclass
class Stream:
    """One partition, whose records have these commit ts, table by table."""

    root: Path
    records: Sequence[tuple[TableId | None, int]]
    """Without a table: a watermark."""
    whole_transactions: bool = True

    def splits(self, size: int, applied: int, begin: int = 0) -> list[StagedSplit]:
        """Those of a table that has applied so much (TSO), when records from ``begin`` on are staged, ``size`` in a range."""
        statement = MemoryRecord(
            RecordKind.STATEMENT, A, CREATED, _pickled("CREATE TABLE `shop`.`a` (`id` INT PRIMARY KEY)", SCHEMA)
        )
        told = [(RecordKind.ROWS if table_id else RecordKind.WATERMARK, table_id, ts) for table_id, ts in self.records]
        partition = [
            statement,
            *(MemoryRecord(kind, table_id or TableId(""), ts, self._value(table_id)) for kind, table_id, ts in told),
        ]
        reader = (SerialReader if self.whole_transactions else MemoryReader)([partition], [0])
        ranges = [Range("0", at, min(at + size, len(partition)), 100 * size) for at in range(begin, len(partition), size)]
        reports = tuple(stage(reader, of, Folder(self.root), f"{size}/{of.start}") for of in ranges)
        whole = stage(reader, Range("0", 0, len(partition), 100), Folder(self.root), "whole")
        history = StreamHistory({}, whole.statements)
        marks = tuple(Mark(at, max(record.commit_ts for record in partition[:at])) for at in range(1, len(partition) + 1))
        position = StreamPosition({"0": PartitionPosition(begin, marks)}, WATERMARK)
        staged = Staged(reports, {"0": begin})
        more = {"whole_transactions": reader.whole_transactions}
        return list(splits(staged, history, WATERMARK, lambda _: applied, position, **more))

    def rows(self, size: int, applied: int, begin: int = 0) -> list[int]:
        """The commit ts of the rows that these splits give to the table."""
        found = []
        for split in self.splits(size, applied, begin):
            own = [
                ts
                for at, (table_id, ts) in enumerate(self.records, 1)
                if table_id == A and split.piece.first <= at <= split.piece.last
            ]
            found += [ts for ts in own if max(split.above, applied) < ts <= split.up_to]
        return found

    def _value(self, table_id: TableId | None) -> bytes:
        return _pickled({table_id: [(None, {"id": 1})]}) if self.whole_transactions else _pickled(None, {"id": 1})


def _pickled(*content: object) -> bytes:
    return pickle.dumps(content[0] if len(content) == 1 else content)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
class TestWholeTransactions:
    """Each record promises its own commit ts. What is at or below a promise that was read before comes again."""

    def test_what_the_pipeline_has_reached_makes_no_row_a_repeat(self, tmp_path: Path, size: int) -> None:
        stream = Stream(tmp_path, [(A, 20), (B, 21), (A, 30), (B, 31), (A, 40), (A, 50)])
        assert stream.rows(size, applied=15) == [20, 30, 40, 50]
        assert stream.rows(size, applied=30) == [40, 50]

    def test_repeats_are_told_across_ranges(self, tmp_path: Path, size: int) -> None:
        stream = Stream(tmp_path, [(A, 20), (B, 21), (A, 30), (A, 20), (B, 21), (A, 30), (A, 40), (B, 41), (A, 40), (A, 50)])
        assert stream.rows(size, applied=15) == [20, 30, 40, 50]

    def test_what_is_not_staged_any_more_was_applied_by_a_table_that_needs_only_later_rows(self, tmp_path: Path, size: int) -> None:
        """Staged from the repeated record at 20 on. The table has what comes before that."""
        stream = Stream(tmp_path, [(A, 20), (B, 25), (A, 20), (B, 25), (A, 30), (A, 20), (B, 25), (A, 30), (A, 40)])
        assert stream.rows(size, applied=25, begin=3) == [30, 40]

    def test_a_promise_for_another_table_tells_repeats_too(self, tmp_path: Path, size: int) -> None:
        stream = Stream(tmp_path, [(A, 20), (B, 60), (A, 20), (B, 60), (A, 70)])
        assert stream.rows(size, applied=15) == [20, 70]


@pytest.mark.parametrize("size", [1, 2, 100])
def test_rows_that_a_watermark_between_had_promised_show_a_restart(tmp_path: Path, size: int) -> None:
    """Also where the pipeline is far above them. Without that the second row would only perhaps be the first one again."""
    stream = Stream(tmp_path, [(A, 20), (None, 25), (A, 20), (A, 30)], whole_transactions=False)
    found = [split for split in stream.splits(size, applied=15) if split.piece.min_ts == 20]
    assert [split.anew for split in found] == [False, True]
