"""What a table sink writes, and what it tells of its progress. Traces as in TiCDC's table_sink_impl_test.go, without start ts."""

from __future__ import annotations

from dataclasses import replace
from threading import Event, Thread

import numpy as np
import pytest

from headrace.model.table import Column
from headrace.replay.errors import OutOfOrderError, SinkClosedError, SinkFailedError
from headrace.replay.resolved_ts import ResolvedTs
from headrace.replay.table_sink import TableSink, TableSinkState
from headrace.replay.transactions import TransactionEvents
from transaction_cases import INT, PK_UK, Change, KeepingSink, T, block_of, inserts, table


def sinks() -> tuple[TableSink, KeepingSink]:
    kept = KeepingSink()
    return TableSink(T, kept), kept


def test_rows_of_one_commit_ts_are_one_transaction() -> None:
    sink, kept = sinks()
    sink.append_row_changed_events(inserts(101, 102, 102, 102, 103))
    sink.append_row_changed_events(inserts(103, 104, 105))
    sink.append_row_changed_events(inserts(105, 105), new_piece=True)
    assert kept.taken == []
    sink.update_resolved_ts(ResolvedTs(105))
    assert kept.commit_ts == [101, 102, 103, 104, 105, 105]
    rows = [events.transactions[n].rows.num_rows for events in kept.taken for n in range(len(events.transactions))]
    assert rows == [1, 3, 2, 1, 1, 2]


def test_only_what_is_resolved_is_written() -> None:
    sink, kept = sinks()
    sink.append_row_changed_events(inserts(101, 102, 102, 103, 105))
    written = []
    for ts in (100, 101, 102, 102, 104, 105):
        sink.update_resolved_ts(ResolvedTs(ts))
        written.append(len(kept.commit_ts))
    assert written == [0, 1, 2, 2, 3, 4]
    assert sink.buffered_bytes == 0


def test_rows_of_many_blocks_stay_one_transaction_in_their_order() -> None:
    sink, kept = sinks()
    for pk in range(5):
        sink.append_row_changed_events(block_of(PK_UK, [(7, [Change(None, {"pk": pk, "uk": pk})])]))
    sink.update_resolved_ts(ResolvedTs(7))
    (events,) = kept.taken
    assert events.transactions[0].rows.column("pk").to_pylist() == [0, 1, 2, 3, 4]


def test_the_checkpoint_follows_acknowledgements_and_the_last_synced_ts_runs_ahead() -> None:
    sink, kept = sinks()
    sink.append_row_changed_events(inserts(101, 102, 103, 104, 105))
    sink.update_resolved_ts(ResolvedTs(101))
    assert sink.get_checkpoint_ts() == ResolvedTs(0)
    kept.acknowledge(0)
    assert sink.get_checkpoint_ts() == ResolvedTs(101)
    sink.update_resolved_ts(ResolvedTs(105))
    kept.acknowledge(2)
    assert (sink.get_checkpoint_ts(), sink.last_synced_ts) == (ResolvedTs(101), 103)
    kept.acknowledge(4, 3, 1)
    assert (sink.get_checkpoint_ts(), sink.last_synced_ts) == (ResolvedTs(105), 105)


def test_a_resolved_ts_without_events_is_the_checkpoint() -> None:
    sink, kept = sinks()
    sink.update_resolved_ts(ResolvedTs(9))
    assert (sink.get_checkpoint_ts(), kept.taken) == (ResolvedTs(9), [])


def test_a_sink_may_acknowledge_while_it_takes_the_events() -> None:
    class AtOnce(KeepingSink):
        def write_events(self, events: TransactionEvents) -> None:
            events.acknowledge(np.arange(len(events.transactions)))

    sink = TableSink(T, AtOnce())
    sink.append_row_changed_events(inserts(1, 2, 3))
    sink.update_resolved_ts(ResolvedTs(3))
    assert sink.get_checkpoint_ts() == ResolvedTs(3)


def test_pieces_of_a_large_transaction_are_written_before_the_whole_of_it_is_there() -> None:
    sink, kept = sinks()
    sink.append_row_changed_events(inserts(6, 7, 7))
    sink.update_resolved_ts(ResolvedTs(7, 1))
    sink.append_row_changed_events(inserts(7, 7, 7))
    sink.update_resolved_ts(ResolvedTs(7, 2))
    assert kept.commit_ts == [6, 7, 7]
    kept.acknowledge(0, 1)
    assert (sink.get_checkpoint_ts(), sink.get_checkpoint_ts().mark) == (ResolvedTs(7, 1), 6)
    kept.acknowledge(2)
    sink.update_resolved_ts(ResolvedTs(7))
    assert (sink.get_checkpoint_ts(), sink.get_checkpoint_ts().mark) == (ResolvedTs(7), 7)


def test_a_resolved_ts_that_goes_back_names_the_table() -> None:
    sink, _ = sinks()
    sink.update_resolved_ts(ResolvedTs(9))
    with pytest.raises(OutOfOrderError, match=r"resolved ts of table d\.t went back from 9 to 9, batch 4"):
        sink.update_resolved_ts(ResolvedTs(9, 4))
    assert sink.get_checkpoint_ts() == ResolvedTs(9)


@pytest.mark.parametrize("late", [[3], [6, 5]])
def test_rows_out_of_order_name_the_table(late: list[int]) -> None:
    sink, kept = sinks()
    sink.append_row_changed_events(inserts(5))
    with pytest.raises(OutOfOrderError, match=r"d\.t with commit ts \d comes after one with commit ts"):
        sink.append_row_changed_events(inserts(*late))
    sink.update_resolved_ts(ResolvedTs(9))
    assert kept.commit_ts == [5]


def test_a_row_that_was_resolved_before_it_came_is_refused() -> None:
    sink, _ = sinks()
    sink.update_resolved_ts(ResolvedTs(9))
    with pytest.raises(OutOfOrderError, match=r"commit ts 9 comes after resolved ts 9"):
        sink.append_row_changed_events(inserts(9))


def test_the_shape_does_not_change_within_a_transaction() -> None:
    sink, kept = sinks()
    wider = table(*PK_UK.columns, Column("more", INT))
    sink.append_row_changed_events(inserts(5))
    later = block_of(wider, [(5, [Change(None, {"pk": 1, "uk": 1, "more": 1})])])
    with pytest.raises(OutOfOrderError, match=r"shape of table d\.t changes within the transaction at commit ts 5"):
        sink.append_row_changed_events(later)
    sink.append_row_changed_events(block_of(wider, [(6, [Change(None, {"pk": 1, "uk": 1, "more": 1})])]))
    sink.update_resolved_ts(ResolvedTs(6))
    assert [events.transactions.block.schema for events in kept.taken] == [PK_UK, wider]


def test_a_closed_sink_refuses_events() -> None:
    sink, _ = sinks()
    assert sink.close()
    assert sink.state is TableSinkState.STOPPED
    for call in (lambda: sink.append_row_changed_events(inserts(1)), lambda: sink.update_resolved_ts(ResolvedTs(1))):
        with pytest.raises(SinkClosedError, match=r"d\.t is closed"):
            call()
    assert sink.close()


def test_closing_freezes_the_checkpoint_and_waits_for_what_is_under_way() -> None:
    sink, kept = sinks()
    sink.append_row_changed_events(inserts(1, 2, 3))
    sink.update_resolved_ts(ResolvedTs(2))
    thread = Thread(target=sink.close)
    thread.start()
    while sink.state is TableSinkState.SINKING:
        pass
    kept.acknowledge(0, 1)
    thread.join(10)
    assert (sink.state, sink.get_checkpoint_ts()) == (TableSinkState.STOPPED, ResolvedTs(0))
    assert kept.commit_ts == [1, 2]


def test_closing_can_be_cancelled_and_done_again() -> None:
    sink, kept = sinks()
    sink.append_row_changed_events(inserts(1))
    sink.update_resolved_ts(ResolvedTs(1))
    cancelled = Event()
    cancelled.set()
    assert not sink.close(cancelled)
    assert sink.state is TableSinkState.STOPPING
    kept.acknowledge(0)
    assert sink.close()


def test_closing_ends_when_the_event_sink_has_failed() -> None:
    sink, kept = sinks()
    sink.append_row_changed_events(inserts(1))
    sink.update_resolved_ts(ResolvedTs(1))
    kept.failure = SinkFailedError("The connection is lost.")
    assert not sink.close()
    assert sink.state is TableSinkState.STOPPED


def test_an_event_sink_that_fails_leaves_the_checkpoint() -> None:
    class Failing(KeepingSink):
        def write_events(self, events: TransactionEvents) -> None:
            raise SinkFailedError("The connection is lost.")

    sink = TableSink(T, Failing())
    sink.append_row_changed_events(inserts(1))
    with pytest.raises(SinkFailedError):
        sink.update_resolved_ts(ResolvedTs(1))
    assert sink.get_checkpoint_ts() == ResolvedTs(0)


def test_a_part_of_events_acknowledges_its_own() -> None:
    sink, kept = sinks()
    sink.append_row_changed_events(replace(inserts(1, 2, 3), version=4))
    sink.update_resolved_ts(ResolvedTs(3))
    for events in kept.taken:
        for number in range(len(events.transactions)):
            part = events.part(number, number + 1)
            assert part.transactions.commit_ts.tolist() == [events.transactions[number].commit_ts]
            part.acknowledge(np.array([0]))
    assert sink.get_checkpoint_ts() == ResolvedTs(3)
