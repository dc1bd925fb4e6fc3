"""A source that knows no watermark: what it has is applied at once, in its order, and its position alone says what is done."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.faults import Moment
from headrace.model.block import COMMIT_TS, KIND, SEQ, SEQ_RANK_SHIFT, ChangeBlock, block_schema
from headrace.model.cut import CutOutcome
from headrace.model.events import CreateTableEvent, RowKind, SchemaChange
from headrace.model.offer import Offer
from headrace.model.outcome import SplitReport
from headrace.model.precision import CommitTsPrecision
from headrace.model.split import Split, Window
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.testing.faults import Crashed, Passage
from headrace.testing.memory_sink import CAPABILITIES, MemorySink, Server
from headrace.testing.memory_source import MemoryStream
from headrace.testing.sink_runs import PIPELINE, SinkRuns, SinkUnderTest, SourceUnderTest, at

T = TableId("shop", "t")
INT = ColumnType(TypeKind.INT)
SCHEMA = TableSchema(T, (Column("id", INT, nullable=False, primary_key=True), Column("v", INT)), ("id",))
CREATED = 1
_MOST = 2
"""Messages in one offer."""

Message = tuple[RowKind, int, int | None]
INSERT, UPDATE, DELETE = RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE


@dataclass
class Queue:
    """Messages with a few rows each, in order. Nothing in them tells a time."""

    messages: list[list[Message]] = field(default_factory=list)

    def rows(self) -> dict[int, int | None]:
        """What a table holds that applied them all."""
        found: dict[int, int | None] = {}
        for kind, key, value in (change for message in self.messages for change in message):
            if kind is DELETE:
                found.pop(key, None)
            else:
                found[key] = value
        return found


@dataclass(frozen=True)
class _Position:
    former: str

    def after(self, reports: Sequence[SplitReport], progress: CutOutcome) -> str:
        read = {int(report.split_key) for report in reports if report.problem is None}
        return str(max([int(self.former or 0), *(number + 1 for number in read)]))


@dataclass
class QueueSource:
    """An ``EventSource`` over a queue; its position is the number of the next message."""

    queue: Queue
    needs_shapes: bool = False

    def poll(self, position: str, checkpoint: int, **_: Any) -> Offer:
        begin = int(position or 0)
        numbers = range(begin, min(len(self.queue.messages), begin + _MOST))
        events = (CreateTableEvent(T, SCHEMA),)
        statement = "CREATE TABLE t (id INT PRIMARY KEY, v INT)"
        created = SchemaChange(CREATED, T, events, statement, T.database, frozenset({T}), schema=SCHEMA)
        left = len(self.queue.messages) - begin - len(numbers)
        return Offer(
            watermark=CREATED,
            schema_bound=CREATED + 1,
            schema_changes=(created,),
            splits=tuple(Split(str(n), T, CREATED, n, 10, SCHEMA) for n in numbers),
            precision=CommitTsPrecision.NONE,
            at_once=True,
            left_bytes=10 * left,
            more=left > 0,
        )

    def mark(self, position: str) -> str:
        return str(len(self.queue.messages))

    def read(self, split: Split, window: Window, **_: Any) -> Iterator[ChangeBlock | SplitReport]:
        rows = self.queue.messages[int(split.key)]
        layout = block_schema(SCHEMA.row_columns)
        meta = {
            KIND: [int(kind) for kind, _, _ in rows],
            COMMIT_TS: [0] * len(rows),
            SEQ: [(split.rank << SEQ_RANK_SHIFT) + n for n in range(len(rows))],
            "id": [key for _, key, _ in rows],
            "v": [value for _, _, value in rows],
        }
        batch = pa.record_batch([pa.array(meta[f.name], f.type) for f in layout], schema=layout)
        yield ChangeBlock(T, split.version, split.schema, batch)
        yield SplitReport(split.key, T, split.rank, rows=len(rows), kept=len(rows), size=split.size)

    def advance(
        self, position: str, offer: Offer, reports: Sequence[SplitReport], progress: CutOutcome, checkpoints: Mapping[TableId, int]
    ) -> str:
        return position if progress.stopped else _Position(position).after(reports, progress)

    def taking(self, position: str, offer: Offer, keys: Collection[str]) -> _Position:
        return _Position(position)

    def begin(self, position: str, *_: Any) -> str:
        return position

    consumed = begin

    def vanished(self, *_: Any) -> tuple[str, ...]:
        return ()

    def missing_again(self, former: str, position: str) -> str:
        return position

    def missing(self, *_: Any) -> str:
        return ""

    def give_up(self, position: str, *_: Any) -> str:
        return position

    def read_again(self, position: str, *_: Any) -> str:
        return position

    def forget_vanished(self, position: str, *_: Any) -> tuple[str, frozenset[str]]:
        return position, frozenset()

    def forget_lives(self, position: str, *_: Any) -> str:
        return position


def _runs(queue: Queue, folder: Path, kind: str = "nothing atomic") -> tuple[SinkRuns, Server]:
    server, capabilities = Server(), CAPABILITIES[kind]
    target = SinkUnderTest(lambda: MemorySink(server, capabilities), lambda _: ())
    source = SourceUnderTest(lambda: QueueSource(queue), MemoryStream(1))  # nothing writes by an upstream
    return SinkRuns(target, folder / "ledger", source), server


def _held(server: Server) -> dict[object, object]:
    table = server.contents.tables.get(T)
    return {row["id"]: row["v"] for row in table.rows.values()} if table is not None else {}


@pytest.mark.parametrize("kind", CAPABILITIES)
def test_what_comes_is_applied_though_no_time_moves_on(kind: str, tmp_path: Path) -> None:
    queue = Queue([[(INSERT, 1, 10), (INSERT, 2, 20)]])
    runs, server = _runs(queue, tmp_path, kind)
    runs.run()
    assert _held(server) == queue.rows()
    queue.messages += [
        [(DELETE, 1, None)],
        [(UPDATE, 2, 21), (INSERT, 1, 11)],
        [(INSERT, 3, 30)],
        [(DELETE, 2, None)],
        [(UPDATE, 3, 31)],
    ]
    told = runs.run()
    assert _held(server) == queue.rows(), "a run to the end takes all that is there, in parts"
    assert [cut.hi for cut in told.cuts] == [CREATED] * 3
    assert server.contents.ledgers[PIPELINE].position == "6"
    assert runs.run().cuts == [], "nothing new makes no cut"


@pytest.mark.parametrize("kind", CAPABILITIES)
@pytest.mark.parametrize("moment", list(Moment))
def test_wherever_a_run_dies_the_next_one_goes_on(kind: str, moment: Moment, tmp_path: Path) -> None:
    queue = Queue()
    runs, server = _runs(queue, tmp_path, kind)

    def die(passage: Passage) -> None:
        raise Crashed(str(passage))

    number, died = 0, True
    while died:
        number += 1
        queue.messages += [[(INSERT, number, 0)], [(UPDATE, number, 1), (DELETE, number - 1, None)], [(INSERT, -number, 2)]]
        try:
            runs.run(at(number, die, lambda passage: passage.moment is moment))
            died = False
        except Crashed:
            runs.run()
        assert _held(server) == queue.rows()
    assert number > 5, "a run comes by many steps"


_CHANGES = st.lists(
    st.tuples(st.sampled_from([INSERT, UPDATE, DELETE]), st.integers(0, 3), st.integers(0, 99)), min_size=1, max_size=4
)


@given(st.lists(_CHANGES, min_size=1, max_size=12), st.data())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_the_order_of_the_source_decides(tmp_path_factory: pytest.TempPathFactory, messages: list[list[Message]], data) -> None:
    queue = Queue()
    runs, server = _runs(queue, tmp_path_factory.mktemp("ledger"), data.draw(st.sampled_from(list(CAPABILITIES))))
    while messages:
        count = data.draw(st.integers(1, len(messages)))
        queue.messages, messages = queue.messages + messages[:count], messages[count:]

        def die(passage: Passage) -> None:
            raise Crashed(str(passage))

        try:
            runs.run(at(data.draw(st.integers(1, 40)), die, lambda _: True))
        except Crashed:
            continue
        assert _held(server) == queue.rows()
    runs.run()
    assert _held(server) == queue.rows()
