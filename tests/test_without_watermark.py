"""A source that knows no watermark: what it has is applied at once, in its order, and its position alone says what is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.run_options import RunOptions
from headrace.faults import Moment, Step
from headrace.model.block import COMMIT_TS, KIND, SEQ, SEQ_RANK_SHIFT, ChangeBlock, block_schema
from headrace.model.cut import CutOutcome
from headrace.model.events import CreateTableEvent, RowKind, SchemaChange
from headrace.model.ledger import RequestKind, TableRequest
from headrace.model.offer import Offer
from headrace.model.outcome import Problem, SplitReport
from headrace.model.precision import CommitTsPrecision
from headrace.model.split import Split, Window
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sources.base import Bound
from headrace.testing.faults import Crashed, Passage
from headrace.testing.memory_sink import CAPABILITIES, MemorySink, Server
from headrace.testing.memory_source import MemoryStream
from headrace.testing.sink_runs import PIPELINE, SinkRuns, SinkUnderTest, SourceUnderTest, at
from headrace.transform.filters import TableFilter
from sampling import drawn

pytestmark = pytest.mark.pipeline

T, U = TableId("shop", "t"), TableId("shop", "u")
INT = ColumnType(TypeKind.INT)
SCHEMA = TableSchema(T, (Column("id", INT, nullable=False, primary_key=True), Column("v", INT)), ("id",))
SCHEMAS = {T: SCHEMA, U: replace(SCHEMA, table_id=U)}
CREATED = 1
_MOST = 2
"""Messages in one offer."""

Message = tuple[RowKind, int, int | None]
INSERT, UPDATE, DELETE = RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE


@dataclass
class Queue:
    """Messages with a few rows each, in order. Nothing in them tells a time."""

    messages: list[list[Message]] = field(default_factory=list)
    of_u: set[int] = field(default_factory=set)
    """The numbers of the messages of U; all others are of T."""
    damaged: set[int] = field(default_factory=set)
    """Those that cannot be read."""

    def add(self, table_id: TableId, *rows: Message, damaged: bool = False) -> None:
        number = len(self.messages)
        self.of_u |= {number} if table_id == U else set()
        self.damaged |= {number} if damaged else set()
        self.messages.append([*rows])

    def table(self, number: int) -> TableId:
        return U if number in self.of_u else T

    def rows(self, table_id: TableId = T) -> dict[int, int | None]:
        """What a table holds that applied them all."""
        found: dict[int, int | None] = {}
        own = (message for number, message in enumerate(self.messages) if self.table(number) == table_id)
        for kind, key, value in (change for message in own for change in message):
            if kind is DELETE:
                found.pop(key, None)
            else:
                found[key] = value
        return found


@dataclass(frozen=True)
class _Position:
    """The numbers of the messages that were applied."""

    former: str

    @property
    def numbers(self) -> set[int]:
        return {int(number) for number in self.former.split(",") if number}

    def after(self, reports: Sequence[SplitReport], progress: CutOutcome) -> str:
        read = {int(r.split_key) for r in reports if r.problem is None and r.table_id not in progress.behind | progress.stopped}
        return ",".join(str(number) for number in sorted(self.numbers | read))


@dataclass
class QueueSource:
    """An ``EventSource`` over a queue."""

    queue: Queue
    needs_shapes: bool = False

    def poll(self, position: str, checkpoint: int, bound: Bound | None = None, **_: Any) -> Offer:
        done = _Position(position).numbers
        left = [number for number in range(len(self.queue.messages)) if number not in done]
        counted = [number for number in left if bound is None or bound.counts(self.queue.table(number), CREATED)]
        offered = sorted({*left} - {*counted[_MOST:]})
        return Offer(
            watermark=CREATED,
            schema_bound=CREATED + 1,
            schema_changes=tuple(_created(table_id) for table_id in (T, U)),
            splits=tuple(Split(str(n), table, CREATED, n, 10, SCHEMAS[table]) for n in offered if (table := self.queue.table(n))),
            precision=CommitTsPrecision.NONE,
            at_once=True,
            left_bytes=10 * len(counted[_MOST:]),
            more=len(counted) > _MOST,
        )

    def mark(self, position: str) -> str:
        return str(len(self.queue.messages))

    def read(self, split: Split, window: Window, **_: Any) -> Iterator[ChangeBlock | SplitReport]:
        rows = self.queue.messages[int(split.key)]
        if int(split.key) in self.queue.damaged:
            yield SplitReport(
                split.key, split.table_id, split.rank, size=split.size, problem=Problem(split.table_id, "it is damaged.")
            )
            return
        layout = block_schema(SCHEMA.row_columns)
        meta = {
            KIND: [int(kind) for kind, _, _ in rows],
            COMMIT_TS: [0] * len(rows),
            SEQ: [(split.rank << SEQ_RANK_SHIFT) + n for n in range(len(rows))],
            "id": [key for _, key, _ in rows],
            "v": [value for _, _, value in rows],
        }
        batch = pa.record_batch([pa.array(meta[f.name], f.type) for f in layout], schema=layout)
        yield ChangeBlock(split.table_id, split.version, split.schema, batch)
        yield SplitReport(split.key, split.table_id, split.rank, rows=len(rows), kept=len(rows), size=split.size)

    def advance(
        self, position: str, offer: Offer, reports: Sequence[SplitReport], progress: CutOutcome, checkpoints: Mapping[TableId, int]
    ) -> str:
        return _Position(position).after(reports, progress)

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

    def has_rows(self, *_: Any) -> bool:
        return False

    def give_up(self, position: str, *_: Any) -> str:
        return position

    def read_again(self, position: str, *_: Any) -> str:
        return position

    def forget_vanished(self, position: str, *_: Any) -> tuple[str, frozenset[str]]:
        return position, frozenset()

    def forget_lives(self, position: str, *_: Any) -> str:
        return position


def _created(table_id: TableId) -> SchemaChange:
    events, schema = (CreateTableEvent(table_id, SCHEMAS[table_id]),), SCHEMAS[table_id]
    statement = f"CREATE TABLE {table_id.table} (id INT PRIMARY KEY, v INT)"
    return SchemaChange(CREATED, table_id, events, statement, table_id.database, frozenset({table_id}), schema=schema)


def _runs(
    queue: Queue, folder: Path, kind: str = "nothing atomic", opened: Callable[[Queue], QueueSource] = QueueSource
) -> tuple[SinkRuns, Server]:
    server, capabilities = Server(), CAPABILITIES[kind]
    target = SinkUnderTest(lambda: MemorySink(server, capabilities), lambda _: ())
    source = SourceUnderTest(lambda: opened(queue), MemoryStream(1))  # nothing writes by an upstream
    return SinkRuns(target, folder / "ledger", source), server


def _held(server: Server, table_id: TableId = T) -> dict[object, object]:
    table = server.contents.tables.get(table_id)
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
    assert server.contents.ledgers[PIPELINE].position == "0,1,2,3,4,5"
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


@given(st.lists(st.tuples(st.sampled_from([T, T, U]), _CHANGES), min_size=1, max_size=12), st.data())
@settings(max_examples=drawn(40), deadline=None, derandomize=True)
def test_the_order_of_the_source_decides(
    tmp_path_factory: pytest.TempPathFactory, messages: list[tuple[TableId, list[Message]]], data: st.DataObject
) -> None:
    """Also where messages cannot be read for a while: their table stops, and the other one goes on."""
    queue = Queue()
    runs, server = _runs(queue, tmp_path_factory.mktemp("ledger"), data.draw(st.sampled_from(list(CAPABILITIES))))

    def die(passage: Passage) -> None:
        raise Crashed(str(passage))

    def check() -> None:
        for table_id in {T, U} - {queue.table(number) for number in queue.damaged}:
            assert _held(server, table_id) == queue.rows(table_id)

    while messages:
        count = data.draw(st.integers(1, len(messages)))
        for table_id, rows in messages[:count]:
            queue.add(table_id, *rows, damaged=data.draw(st.integers(0, 7)) == 0)
        messages = messages[count:]
        if data.draw(st.booleans()):
            queue.damaged.clear()
        try:
            runs.run(at(data.draw(st.integers(1, 40)), die, lambda _: True))
        except Crashed:
            continue
        check()
    runs.run()
    check()
    queue.damaged.clear()
    runs.run()
    check()


def _follow(runs: SinkRuns, polls: int, **options: Any) -> float:
    """A run that follows the source up to so many polls; how many seconds it took."""

    def die(passage: Passage) -> None:
        raise Crashed(str(passage))

    begun = time.monotonic()
    with pytest.raises(Crashed):
        runs.run(
            at(polls, die, lambda p: p.step is Step.POLL and p.moment is Moment.BEFORE),
            options=RunOptions(poll_interval=_PAUSE, **options),
        )
    return time.monotonic() - begun


_PAUSE = 0.03
_WITHOUT_T = "*.*,!shop.t"


@pytest.mark.parametrize("kind", CAPABILITIES)
@pytest.mark.parametrize("why", ["stopped", "held", "left out"])
def test_what_is_offered_of_a_table_that_takes_no_part_makes_no_cuts(why: str, kind: str, tmp_path: Path) -> None:
    queue = Queue()
    queue.add(T, (INSERT, 1, 10))
    runs, server = _runs(queue, tmp_path, kind)
    runs.run()
    options = {"filter_text": _WITHOUT_T, "includes": TableFilter.parse(_WITHOUT_T).includes} if why == "left out" else {}
    if why == "held":
        with runs.opened() as (_, ledger):
            ledger.request(PIPELINE, TableRequest("1", T, RequestKind.HOLD))
    for number in range(4):
        queue.add(T, (UPDATE, 1, number), damaged=why == "stopped" and not number)
    queue.add(U, (INSERT, 1, 10))
    _follow(runs, 4, **options)
    cuts = server.contents.ledgers[PIPELINE].cuts
    assert _held(server, U) == queue.rows(U)
    assert _held(server) == {1: 10}
    begun = len(cuts)
    took = _follow(runs, 9, **options)
    assert len(server.contents.ledgers[PIPELINE].cuts) <= begun + 1, "a stopped table is tried at the start of a run"
    assert took > 6 * _PAUSE
    queue.add(U, (INSERT, 2, 20))
    _follow(runs, 4, **options)
    assert _held(server, U) == queue.rows(U), "what the others have is still a cut"
    queue.damaged.clear()
    if why == "held":
        with runs.opened() as (_, ledger):
            ledger.request(PIPELINE, TableRequest("2", T, RequestKind.RELEASE))
    runs.run()
    assert _held(server) == queue.rows(), "nothing of it was lost"


class _Stuck(QueueSource):
    """Its position stands still while a table is behind, as a single offset would."""

    def advance(
        self, position: str, offer: Offer, reports: Sequence[SplitReport], progress: CutOutcome, checkpoints: Mapping[TableId, int]
    ) -> str:
        return position if progress.behind else super().advance(position, offer, reports, progress, checkpoints)


@pytest.mark.parametrize("kind", CAPABILITIES)
def test_a_run_whose_cuts_move_nothing_pauses_between_them(kind: str, tmp_path: Path) -> None:
    queue = Queue()
    queue.add(T, (INSERT, 1, 10), damaged=True)
    queue.add(U, (INSERT, 1, 10))
    runs, server = _runs(queue, tmp_path, kind, _Stuck)
    runs.run()
    assert _follow(runs, 9) > 6 * _PAUSE
    assert _held(server, U) == queue.rows(U)
    queue.damaged.clear()
    runs.run()
    assert (_held(server), _held(server, U)) == (queue.rows(), queue.rows(U))
