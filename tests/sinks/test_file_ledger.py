"""The ledger of numbered states: what it remembers, and that of two runs only one goes on."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import obstore
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.main import main
from headrace.errors import EXIT_OK, EXIT_UNREACHABLE, EXIT_USAGE, DefinitionError, FencedError, SinkUnreachableError
from headrace.model.ledger import (
    CutRecord,
    Decision,
    JournalEntry,
    JournalState,
    LedgerState,
    RequestKind,
    TableProgress,
    TableRequest,
    TableShape,
    TableStatus,
    Verdict,
)
from headrace.model.place import PlaceInFile, PlaceInStream
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.tso import MAX_TSO
from headrace.model.types import ColumnType, TypeKind
from headrace.places.object_place import open_place
from headrace.sinks.base import KEPT_CUTS, LedgerUpdate
from headrace.sinks.file_ledger import (
    KEPT_STATES,
    FileLedger,
    open_file_ledger,
    state_from_json,
    state_to_json,
)
from servers import S3Server

SOURCE = "s3://bucket/feed"
ORDERS = TableId("shop", "orders")
TSO = 450_253_107_233_619_969  # odd, and above 2**53: a float would lose it


def acquire(ledger: FileLedger, pipeline: str = "shop") -> LedgerState:
    return ledger.acquire(pipeline, SOURCE, "filters", 7)


def cut(hi: int) -> CutRecord:
    return CutRecord(hi, "2026-01-02T03:04:05+00:00", 0.5, 3, 100, 80, 10)


def test_a_first_run_starts_a_record_and_the_next_one_continues_it(tmp_path: Path) -> None:
    first = open_file_ledger(str(tmp_path / "ledger"))
    state = acquire(first)
    assert (state.epoch, state.attempt, state.start, state.checkpoint, state.attempted) == (1, 0, 7, 7, 7)
    first.update(LedgerUpdate(attempted=TSO))
    first.update(LedgerUpdate(checkpoint=TSO, position="read", tables=(TableProgress(ORDERS, TSO),), cut=cut(TSO)))
    assert first.next_attempt() == 1
    first.close()
    second = open_file_ledger(f"file://{tmp_path}/ledger").acquire("shop", SOURCE, "other filters", 9)
    assert (second.epoch, second.attempt, second.start) == (2, 0, 7)
    assert (second.checkpoint, second.attempted, second.position, second.fingerprint) == (TSO, TSO, "read", "filters")
    assert second.tables == {ORDERS: TableProgress(ORDERS, TSO)}
    assert second.cuts == (cut(TSO),)


def test_peeking_creates_nothing_and_takes_no_epoch(tmp_path: Path) -> None:
    ledger = open_file_ledger(str(tmp_path / "ledger"))
    assert ledger.peek("shop") is None
    assert ledger.pipelines() == []
    assert list(tmp_path.iterdir()) == []
    acquire(ledger)
    assert open_file_ledger(str(tmp_path / "ledger")).peek("shop") == ledger.peek("shop")
    ledger.update(LedgerUpdate(checkpoint=8))


def test_the_former_run_is_fenced_by_the_next_one(tmp_path: Path) -> None:
    former, later = open_file_ledger(str(tmp_path)), open_file_ledger(str(tmp_path))
    acquire(former)
    assert acquire(later).epoch == 2
    for write in (lambda: former.update(LedgerUpdate(checkpoint=99)), former.next_attempt):
        with pytest.raises(FencedError, match="took over"):
            write()
    later.update(LedgerUpdate(checkpoint=8))
    state = later.peek("shop")
    assert state is not None
    assert (state.checkpoint, state.epoch, state.attempt) == (8, 2, 0)


def test_a_run_that_slept_while_its_numbers_were_swept_away_is_fenced(tmp_path: Path) -> None:
    sleeper, other = open_file_ledger(str(tmp_path)), open_file_ledger(str(tmp_path))
    acquire(sleeper)
    acquire(other)
    for checkpoint in range(10, 40):
        other.update(LedgerUpdate(checkpoint=checkpoint))
    assert not (tmp_path / "shop" / f"{2:020}.json").exists()
    with pytest.raises(FencedError):
        sleeper.update(LedgerUpdate(checkpoint=99))
    assert not (tmp_path / "shop" / f"{2:020}.json").exists()
    state = other.peek("shop")
    assert state is not None
    assert state.checkpoint == 39


def test_only_the_last_states_are_kept(tmp_path: Path) -> None:
    ledger = open_file_ledger(str(tmp_path))
    acquire(ledger)
    for checkpoint in range(100):
        ledger.update(LedgerUpdate(checkpoint=checkpoint, cut=cut(checkpoint)))
    assert KEPT_STATES <= len(list((tmp_path / "shop").iterdir())) <= 2 * KEPT_STATES + 1
    ledger.update(LedgerUpdate(cut=cut(100)))
    state = ledger.peek("shop")
    assert state is not None
    assert [c.hi for c in state.cuts] == list(range(101 - KEPT_CUTS, 101))


def test_a_write_whose_answer_was_lost_is_recognised_as_our_own(tmp_path: Path) -> None:
    ledger = open_file_ledger(str(tmp_path))
    acquire(ledger)
    before = dict(vars(ledger))
    ledger.update(LedgerUpdate(checkpoint=8))
    vars(ledger).update(before)  # as if the request had failed after the store had done it
    ledger.update(LedgerUpdate(checkpoint=8))
    ledger.update(LedgerUpdate(checkpoint=9))
    state = ledger.peek("shop")
    assert state is not None
    assert state.checkpoint == 9


def test_a_torn_newest_state_is_passed_over(tmp_path: Path) -> None:
    ledger = open_file_ledger(str(tmp_path))
    acquire(ledger)
    ledger.update(LedgerUpdate(checkpoint=8))
    ledger.update(LedgerUpdate(checkpoint=9))
    newest = max((tmp_path / "shop").iterdir())
    newest.write_text(newest.read_text()[:100])
    state = acquire(open_file_ledger(str(tmp_path)))
    assert (state.checkpoint, state.epoch) == (8, 2)
    with pytest.raises(FencedError):
        ledger.update(LedgerUpdate(checkpoint=10))


def test_a_ledger_without_any_readable_state_is_an_error_not_a_new_start(tmp_path: Path) -> None:
    ledger = open_file_ledger(str(tmp_path))
    acquire(ledger)
    ledger.update(LedgerUpdate(checkpoint=8))
    tear(tmp_path)
    with pytest.raises(SinkUnreachableError, match=r"No state of pipeline 'shop'.*headrace reset"):
        acquire(open_file_ledger(str(tmp_path)))


def tear(folder: Path) -> None:
    """What a power failure may leave of states that were written right before it."""
    for path in (folder / "shop").iterdir():
        path.write_text("")


def test_a_ledger_without_any_readable_state_can_be_reset(tmp_path: Path) -> None:
    """Its run has ended then, whatever epoch it had."""
    former = open_file_ledger(str(tmp_path))
    for _ in range(3):
        acquire(former)
    tear(tmp_path)
    assert open_file_ledger(str(tmp_path)).reset("shop")
    assert open_file_ledger(str(tmp_path)).peek("shop") is None
    with pytest.raises(FencedError):
        former.update(LedgerUpdate(checkpoint=9))
    assert acquire(open_file_ledger(str(tmp_path))).epoch > 3


def test_a_torn_first_step_is_no_record(tmp_path: Path) -> None:
    """Nothing was done after it."""
    acquire(open_file_ledger(str(tmp_path)))
    tear(tmp_path)
    ledger = open_file_ledger(str(tmp_path))
    assert (ledger.peek("shop"), ledger.pipelines()) == (None, [])
    assert acquire(ledger).checkpoint == 7
    ledger.update(LedgerUpdate(checkpoint=8))
    state = ledger.peek("shop")
    assert state is not None
    assert state.checkpoint == 8


def test_a_folder_that_was_given_another_name_is_refused_and_can_be_reset(tmp_path: Path) -> None:
    """Its steps would go to the pipeline that it was copied from, and end that one's run."""
    former = open_file_ledger(str(tmp_path))
    acquire(former)
    shutil.copytree(tmp_path / "shop", tmp_path / "copy")
    copy = open_file_ledger(str(tmp_path))
    with pytest.raises(SinkUnreachableError, match=r"is that of pipeline 'shop'.*headrace reset --name copy"):
        acquire(copy, "copy")
    assert copy.reset("copy")
    assert acquire(copy, "copy").checkpoint == 7
    copy.update(LedgerUpdate(checkpoint=9))
    former.update(LedgerUpdate(checkpoint=8))
    state = copy.peek("copy")
    assert state is not None
    assert (state.pipeline, state.checkpoint) == ("copy", 9)


@pytest.mark.parametrize("torn", ["the reset", "the first step after it"])
def test_a_step_that_is_torn_around_a_reset_is_passed_over(torn: str, tmp_path: Path) -> None:
    """The state before a reset stays until the next step, and the reset until the one after that."""
    ledger = open_file_ledger(str(tmp_path))
    acquire(ledger)
    ledger.update(LedgerUpdate(checkpoint=8))
    assert ledger.reset("shop")
    if torn == "the reset":
        max((tmp_path / "shop").iterdir()).write_text("")
        assert acquire(open_file_ledger(str(tmp_path))).checkpoint == 8
        return
    acquire(ledger)
    ledger.close()
    max((tmp_path / "shop").iterdir()).write_text("")
    assert open_file_ledger(str(tmp_path)).peek("shop") is None
    assert acquire(open_file_ledger(str(tmp_path))).checkpoint == 7


def test_a_pipeline_of_which_nothing_can_be_read_is_reset_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = open_file_ledger(str(tmp_path))
    acquire(ledger)
    ledger.update(LedgerUpdate(checkpoint=8))
    tear(tmp_path)
    options = ["--sink", "blackhole://", "--ledger", str(tmp_path), "--name", "shop"]
    assert main(["status", *options]) == EXIT_UNREACHABLE
    assert "forget the pipeline with headrace reset" in " ".join(capsys.readouterr().err.split())
    assert main(["reset", *options]) == EXIT_USAGE
    assert "though none of it can be read" in " ".join(capsys.readouterr().err.split())
    assert main(["reset", *options, "--yes"]) == EXIT_OK
    assert acquire(open_file_ledger(str(tmp_path))).checkpoint == 7


@pytest.mark.server
def test_an_object_that_stays_cut_short_can_be_reset(s3: S3Server) -> None:
    location = s3.uri(s3.make_bucket(), "ledger")
    ledger = open_file_ledger(location)
    acquire(ledger)
    store = open_place(location, "ledger").store(create=True)
    obstore.put(store, f"shop/{2:020}.json", b'{"format"')
    with pytest.raises(SinkUnreachableError, match=r"did not send.*headrace reset"):
        open_file_ledger(location).peek("shop")
    assert open_file_ledger(location).reset("shop")
    assert open_file_ledger(location).peek("shop") is None
    assert acquire(open_file_ledger(location)).checkpoint == 7


def test_a_state_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    acquire(open_file_ledger(str(tmp_path)))
    (path,) = (tmp_path / "shop").iterdir()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    with pytest.raises(DefinitionError, match="another version"):
        open_file_ledger(str(tmp_path)).peek("shop")


def test_a_record_of_another_source_is_refused_with_the_way_out(tmp_path: Path) -> None:
    acquire(open_file_ledger(str(tmp_path)))
    with pytest.raises(DefinitionError, match=r"belongs to the source s3://bucket/feed, not to s3://other.*--name"):
        open_file_ledger(str(tmp_path)).acquire("shop", "s3://other", "filters", 7)


@pytest.mark.parametrize("name", ["a/b", "..", ".", "ü ß%20", "x" * 50])
def test_pipelines_may_have_any_name(tmp_path: Path, name: str) -> None:
    ledger = open_file_ledger(str(tmp_path / "ledger"))
    acquire(ledger, name)
    ledger.update(LedgerUpdate(checkpoint=8))
    acquire(open_file_ledger(str(tmp_path / "ledger")), "other")
    assert ledger.pipelines() == sorted([name, "other"])
    assert [path.name for path in tmp_path.iterdir()] == ["ledger"]


def test_a_file_where_the_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "ledger").touch()
    with pytest.raises(SinkUnreachableError, match="ledger"):
        acquire(open_file_ledger(str(tmp_path / "ledger")))


@pytest.mark.parametrize(
    ("location", "hint"),
    [
        ("s4://bucket/ledger", "Known are: azure, file, gcs, s3."),
        ("s3://bucket/ledger?acces-key=x", "Did you mean 'access-key'"),
        ("file:///tmp/x?region=y", "Unknown parameter of file://"),
    ],
)
def test_locations_that_make_no_sense_are_refused(location: str, hint: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        open_file_ledger(location)
    assert hint in str(caught.value)


def test_named_journal_entries_are_forgotten() -> None:
    entries = tuple(JournalEntry(name, 5, (ORDERS,), "drop", JournalState.DONE) for name in ("a", "b", "c"))
    state = LedgerUpdate(journal=entries).applied_to(LedgerState("shop"))
    state = LedgerUpdate(forget_journal=("a", "c", "unknown")).applied_to(state)
    assert list(state.journal) == ["b"]


def test_a_decision_is_no_step_of_the_run_and_stays_until_it_is_used_up(tmp_path: Path) -> None:
    location = str(tmp_path / "ledger")
    run = open_file_ledger(location)
    run.acquire("shop.a", "src", "", 5)
    decision = Decision("8/shop.orders/00", Verdict.EDIT, "DROP TABLE é")
    for each in (Decision(decision.identity, Verdict.SKIP), decision):
        open_file_ledger(location).decide("shop.a", each)
    assert run.words("shop.a").decisions == {decision.identity: decision}
    state = run.peek("shop.a")
    assert state is not None
    assert state.decisions == {decision.identity: decision}
    run.update(LedgerUpdate(checkpoint=9, used_decisions=(decision.identity,)))
    assert run.words("shop.a").decisions == open_file_ledger(location).acquire("shop.a", "src", "", 5).decisions == {}


def test_the_mark_of_what_was_attempted_never_goes_back() -> None:
    state = LedgerUpdate(attempted=8).applied_to(LedgerState("shop", attempted=9))
    assert state.attempted == 9


TSOS = st.integers(0, MAX_TSO)
IDS = st.builds(TableId, st.text(), st.text())
TABLES = st.builds(TableProgress, IDS, TSOS, st.booleans(), st.sampled_from(TableStatus), st.text(), TSOS)
ENTRIES = st.builds(
    JournalEntry,
    st.text(),
    TSOS,
    st.lists(IDS, max_size=2).map(tuple),
    st.text(),
    st.sampled_from(JournalState),
    st.text(),
)
STATES = st.builds(
    LedgerState,
    pipeline=st.text(),
    source_identity=st.text(),
    fingerprint=st.text(),
    epoch=st.integers(0, 1 << 31),
    attempt=st.integers(0, 1 << 31),
    start=TSOS,
    checkpoint=TSOS,
    attempted=TSOS,
    position=st.text(),
    tables=st.lists(TABLES, max_size=3).map(lambda tables: {table.table_id: table for table in tables}),
    journal=st.lists(ENTRIES, max_size=3).map(lambda entries: {entry.identity: entry for entry in entries}),
    cuts=st.lists(TSOS.map(cut), max_size=2).map(tuple),
)


@given(STATES)
def test_states_survive_their_json_form(state: LedgerState) -> None:
    text = state_to_json(state, "me")
    assert state_from_json(text) == (state, "me", "")


@given(STATES)
def test_readers_with_floats_for_numbers_keep_every_tso(state: LedgerState) -> None:
    through_floats, *_ = state_from_json(json.dumps(json.loads(state_to_json(state, "me"), parse_int=float)))
    assert through_floats.checkpoint == state.checkpoint
    assert through_floats.tables == state.tables
    assert through_floats.journal == state.journal


@pytest.mark.server
def test_the_ledger_in_an_object_store_fences_as_well(s3: S3Server) -> None:
    location = s3.uri(s3.make_bucket(), "deep/ledger of mine")
    former, later = open_file_ledger(location), open_file_ledger(location)
    assert former.peek("shop") is None
    acquire(former)
    former.update(LedgerUpdate(checkpoint=TSO))
    state = acquire(later)
    assert (state.epoch, state.checkpoint) == (2, TSO)
    with pytest.raises(FencedError):
        former.update(LedgerUpdate(checkpoint=TSO + 1))
    for step in range(15):
        later.update(LedgerUpdate(checkpoint=TSO + step))
    with pytest.raises(FencedError):
        former.update(LedgerUpdate(checkpoint=TSO + 1))
    assert later.pipelines() == ["shop"]
    found = open_file_ledger(location).peek("shop")
    assert found is not None
    assert found.checkpoint == TSO + 14


@pytest.mark.server
def test_an_object_store_that_refuses_is_named_without_secrets(s3: S3Server) -> None:
    location = s3.uri("no-such-bucket", "ledger", secret_access_key="topsecret")
    with pytest.raises(SinkUnreachableError, match="s3://no-such-bucket/ledger") as caught:
        acquire(open_file_ledger(location))
    assert "topsecret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_request_is_no_step_of_the_run_and_stays_until_it_is_carried_out(tmp_path: Path) -> None:
    location = str(tmp_path / "ledger")
    run = open_file_ledger(location)
    run.acquire("shop.a", "src", "", 5)
    skip = TableRequest("2/b", TableId("shop", "é"), RequestKind.SKIP_ROWS, to=MAX_TSO, since=7)
    file = TableRequest("1/a", TableId("shop", "é"), RequestKind.SKIP_FILE, place=PlaceInFile("shop/é/7/CDC000001.csv"))
    record = TableRequest("3/c", TableId("shop", "é"), RequestKind.SKIP_RECORD, place=PlaceInStream("a:é", 0))
    for request in (skip, record, file):
        open_file_ledger(location).request("shop.a", request)
    state = run.peek("shop.a")
    assert state is not None
    assert list(state.requests.values()) == [file, skip, record]
    taken_up = replace(skip, kind=RequestKind.HELD)
    run.update(LedgerUpdate(checkpoint=9, used_requests=(file.identity, record.identity), requests=(taken_up,)))
    assert run.words("shop.a").requests == open_file_ledger(location).acquire("shop.a", "src", "", 5).requests == {"2/b": taken_up}


def test_requests_of_a_headrace_that_knew_of_files_alone_are_read(tmp_path: Path) -> None:
    ledger = open_file_ledger(str(tmp_path))
    acquire(ledger)
    file = TableRequest("1", ORDERS, RequestKind.SKIP_FILE, place=PlaceInFile("shop/orders/7/CDC000001.csv"))
    hold = TableRequest("2", ORDERS, RequestKind.HOLD)
    for request in (file, hold):
        ledger.request("shop", request)
    texts = [path.read_text() for path in tmp_path.rglob("requests/*.json")]
    as_then = [
        '{"identity": "1", "table_id": ["shop", "orders"], "kind": "skip file", "to": "0", "since": "0", '
        '"file": "shop/orders/7/CDC000001.csv"}',
        '{"identity": "2", "table_id": ["shop", "orders"], "kind": "hold", "to": "0", "since": "0", "file": ""}',
    ]
    assert sorted(texts) == as_then
    assert list(ledger.words("shop").requests.values()) == [file, hold]


def test_shapes_and_targets_are_read_back_and_a_state_without_them_too(tmp_path: Path) -> None:
    ledger = open_file_ledger(str(tmp_path))
    acquire(ledger)
    own, archived = TableProgress(ORDERS, TSO), TableProgress(ORDERS, 9, target=TableId("archive", "orders"))
    shape = TableShape(TSO, TSO, TableSchema(ORDERS, (Column("id", ColumnType(TypeKind.INT)),), ("id",)), "[…]", "utf8mb4_bin")
    ledger.update(LedgerUpdate(tables=(own,), shapes=(shape, replace(shape, version=7))))
    ledger.update(LedgerUpdate(tables=(archived,), forget_shapes=(replace(shape, version=7).key,)))
    state = ledger.peek("shop")
    assert state is not None
    assert (state.tables, state.pairs) == ({}, {own.pair: own, archived.pair: archived})
    assert state.shapes == {shape.key: shape}
    older = json.loads(state_to_json(replace(state, pairs={}, tables={ORDERS: own}), "w"))
    del older["shapes"]
    assert state_from_json(json.dumps(older))[0] == replace(state, pairs={}, tables={ORDERS: own}, shapes={})
