"""The ledger's tables on DuckDB; ``test_mysql_ledger.py`` runs the same statements on a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import duckdb
import pytest

from headrace.errors import DefinitionError, FencedError, TargetWentBackError
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
    Words,
)
from headrace.model.place import PlaceInFile, PlaceInStream
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sinks.base import KEPT_CUTS, LedgerPart, LedgerUpdate
from headrace.sinks.sql_claim import Claim
from headrace.sinks.sql_dialect import DUCKDB
from headrace.sinks.sql_ledger import PART_LENGTH, SqlLedger

LEDGER = SqlLedger(DUCKDB)
ORDERS = TableId("shop", "orders")
ARCHIVE = TableId("archive", "orders")
MINE = TableId("mine", "orders")
SHAPE = TableSchema(ORDERS, (Column("id", ColumnType(TypeKind.BIGINT), nullable=False),), ("id",))


class DuckDbSession:
    def __init__(self) -> None:
        self.connection = duckdb.connect()

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        return self.connection.execute(statement, list(parameters)).fetchall()


def acquire(session: DuckDbSession) -> Claim:
    return LEDGER.acquire(session, "p", "src", "f", 5)[1]


def step(session: DuckDbSession, claim: Claim, update: LedgerUpdate) -> Claim:
    """Writes one step; what the run holds then."""
    assert LEDGER.write_update(session, claim, update)
    return claim.following


@pytest.fixture
def session() -> DuckDbSession:
    session = DuckDbSession()
    LEDGER.create_tables(session)
    return session


def counted(session: DuckDbSession, update: LedgerUpdate, claim: Claim) -> list[str]:
    """The statements of one step."""
    statements: list[str] = []

    class Counting:
        def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
            statements.append(statement)
            return session.execute(statement, parameters)

    assert LEDGER.write_update(Counting(), claim, update)
    return statements


def test_creating_the_tables_twice_keeps_what_is_there(session):
    acquire(session)
    LEDGER.create_tables(session)
    assert LEDGER.exists(session)
    assert LEDGER.pipelines(session) == ["p"]


def test_an_unknown_pipeline_has_no_record(session):
    assert LEDGER.load(session, "nobody") is None


def test_the_first_run_begins_at_its_start_with_epoch_one(session):
    state, _claim = LEDGER.acquire(session, "p", "src", "f", 5)
    assert (state.epoch, state.attempt, state.start, state.checkpoint, state.attempted) == (1, 0, 5, 5, 5)


def test_a_later_run_takes_the_next_epoch_and_keeps_the_first_start_and_fingerprint(session):
    claim = acquire(session)
    assert LEDGER.raise_attempt(session, claim) == 1
    assert LEDGER.raise_attempt(session, claim.following) == 2
    state, claim = LEDGER.acquire(session, "p", "src", "g", 77)
    assert (state.epoch, state.attempt, state.start, state.fingerprint) == (2, 0, 5, "f")
    step(session, claim, LedgerUpdate(fingerprint="g"))
    assert LEDGER.load(session, "p").fingerprint == "g"


def test_a_namespace_in_another_case_is_the_same_one_in_duckdb(session):
    acquire(session)
    other = SqlLedger(DUCKDB, LEDGER.namespace.upper())
    other.create_tables(session)
    assert other.load(session, "p") == LEDGER.load(session, "p")
    assert other.acquire(session, "q", "src", "f", 5)[0].epoch == 1
    assert LEDGER.pipelines(session) == ["p", "q"]


def test_another_source_under_the_same_name_is_refused_with_the_way_out(session):
    acquire(session)
    with pytest.raises(DefinitionError, match="--name"):
        LEDGER.acquire(session, "p", "other", "f", 5)


def test_a_run_that_was_taken_over_writes_no_progress(session):
    former = acquire(session)
    acquire(session)
    with pytest.raises(FencedError, match="took over"):
        step(session, former, LedgerUpdate(checkpoint=9))
    with pytest.raises(FencedError):
        LEDGER.raise_attempt(session, former)


def test_of_two_runs_with_one_epoch_the_second_is_the_one_that_writes(session):
    former = acquire(session)
    session.execute(f"UPDATE {LEDGER.table('pipelines')} SET epoch = 0")  # the target went back to before the first run
    newer = acquire(session)
    assert former.epoch == newer.epoch
    with pytest.raises(FencedError, match=r"took over, or the target was restored to the time of another run: .* start this run"):
        step(session, former, LedgerUpdate(checkpoint=9))
    step(session, newer, LedgerUpdate(checkpoint=8))
    assert LEDGER.load(session, "p").checkpoint == 8


def test_a_step_on_a_ledger_that_went_back_is_refused(session):
    claim = acquire(session)
    last = step(session, step(session, claim, LedgerUpdate(checkpoint=8)), LedgerUpdate(checkpoint=9))
    session.execute(f"UPDATE {LEDGER.table('pipelines')} SET step = 1, checkpoint_ts = 8")
    with pytest.raises(TargetWentBackError):
        step(session, last, LedgerUpdate(checkpoint=10))
    with pytest.raises(TargetWentBackError):
        LEDGER.raise_attempt(session, last)
    session.execute(f"UPDATE {LEDGER.table('pipelines')} SET epoch = 0, run_token = 'another'")
    with pytest.raises(TargetWentBackError):
        step(session, last, LedgerUpdate(checkpoint=10))
    state, again = LEDGER.acquire(session, "p", "src", "f", 5, above=last.epoch)
    assert (state.checkpoint, again.epoch) == (8, 2)


def test_a_step_that_is_sent_again_is_written_once(session):
    claim = acquire(session)
    update = LedgerUpdate(checkpoint=9, cut=CutRecord(9, "now", 0.1, 0, 0, 0, 0))
    assert LEDGER.write_update(session, claim, update)
    assert not LEDGER.write_update(session, claim, update, repeated=True)
    with pytest.raises(TargetWentBackError):
        LEDGER.write_update(session, claim, update)
    assert LEDGER.raise_attempt(session, claim.following) == LEDGER.raise_attempt(session, claim.following, repeated=True) == 1


def test_an_update_of_a_forgotten_pipeline_is_refused(session):
    with pytest.raises(FencedError, match="gone"):
        LEDGER.write_update(session, Claim("nobody", 1, "t"), LedgerUpdate(checkpoint=9))


def test_every_field_of_an_update_is_read_back(session):
    claim = acquire(session)
    gone = TableProgress(TableId("shop", "old"), 8, status=TableStatus.GONE, incarnation=3)
    stopped = TableProgress(ORDERS, 7, after=False, status=TableStatus.STOPPED, reason="schlecht: 'é'\\")
    entry = JournalEntry("8/shop.old/0", 8, (TableId("shop", "old"), TableId("shop")), "DROP TABLE `old`", JournalState.DONE, "x")
    cut = CutRecord(9, "2024-06-05T00:00:00Z", 0.25, 1, 2, 3, 4, 5, 6, 1, 7, 8, 9, 10)
    claim = step(session, claim, LedgerUpdate(9, 12, '{"files": []}', (gone, stopped), (entry,), cut=cut))
    state = LEDGER.load(session, "p")
    assert (state.checkpoint, state.attempted, state.position) == (9, 12, '{"files": []}')
    assert state.tables == {gone.table_id: gone, ORDERS: stopped}
    assert state.journal == {entry.identity: entry}
    assert state.cuts == (cut,)


def test_fields_that_an_update_leaves_out_stay(session):
    claim = acquire(session)
    claim = step(session, claim, LedgerUpdate(checkpoint=9, position="here"))
    claim = step(session, claim, LedgerUpdate(attempted=20))
    state = LEDGER.load(session, "p")
    assert (state.checkpoint, state.attempted, state.position) == (9, 20, "here")


def test_a_smaller_intent_does_not_take_back_the_mark_of_a_larger_one(session):
    claim = acquire(session)
    claim = step(session, claim, LedgerUpdate(attempted=20))
    claim = step(session, claim, LedgerUpdate(attempted=10))
    assert LEDGER.load(session, "p").attempted == 20


def test_rows_are_put_by_table_and_names_differ_by_case(session):
    claim = acquire(session)
    upper = TableProgress(TableId("shop", "Orders"), 3)
    claim = step(session, claim, LedgerUpdate(tables=(TableProgress(ORDERS, 1), upper)))
    claim = step(session, claim, LedgerUpdate(tables=(TableProgress(ORDERS, 2),)))
    state = LEDGER.load(session, "p")
    assert state.tables[ORDERS].checkpoint == 2
    assert state.tables[upper.table_id] == upper


@pytest.mark.long
def test_named_journal_entries_are_forgotten_however_many(session):
    claim = acquire(session)
    entries = tuple(JournalEntry(f"{ts}/t", ts, (ORDERS,), "s", JournalState.DONE) for ts in range(1100))
    claim = step(session, claim, LedgerUpdate(journal=entries))
    claim = step(session, claim, LedgerUpdate(forget_journal=tuple(e.identity for e in entries[:-2])))
    assert set(LEDGER.load(session, "p").journal) == {"1098/t", "1099/t"}


def test_a_decision_stays_until_a_step_uses_it_up(session):
    claim = acquire(session)
    approve, edit = Decision("7/t/a", Verdict.APPROVE), Decision("9/t/b", Verdict.EDIT, "DROP TABLE `é'`")
    for decision in (Decision("9/t/b", Verdict.SKIP), approve, edit):
        LEDGER.decide(session, "p", decision)
    assert LEDGER.words(session, "p").decisions == LEDGER.load(session, "p").decisions == {"7/t/a": approve, "9/t/b": edit}
    claim = step(session, claim, LedgerUpdate(used_decisions=("7/t/a",)))
    assert LEDGER.words(session, "p").decisions == {"9/t/b": edit}
    assert LEDGER.words(session, "other") == Words()


def test_a_request_stays_until_a_step_carries_it_out(session):
    claim = acquire(session)
    later = TableRequest("2/b", ORDERS, RequestKind.SKIP_ROWS, to=9, since=5)
    earlier = TableRequest("1/a", ORDERS, RequestKind.SKIP_FILE, place=PlaceInFile("shop/orders/7/é'.csv"))
    record = TableRequest("3/c", ORDERS, RequestKind.SKIP_RECORD, place=PlaceInStream("a:é", 0))
    for request in (later, earlier, record, later):
        LEDGER.request(session, "p", request)
    assert list(LEDGER.load(session, "p").requests.values()) == [earlier, later, record]
    taken_up = replace(later, kind=RequestKind.HELD)
    claim = step(session, claim, LedgerUpdate(used_requests=("1/a", "3/c"), requests=(taken_up,)))
    assert LEDGER.words(session, "p").requests == {"2/b": taken_up}
    assert LEDGER.words(session, "other") == Words()


def test_a_request_of_a_headrace_that_knew_of_files_alone_is_read(session):
    acquire(session)
    session.execute(
        f"INSERT INTO {LEDGER.table('table_requests')} (pipeline, identity, database_name, table_name, kind, to_ts, since_ts,"
        " file_name) VALUES ('p', '1', 'shop', 'orders', 'skip file', 0, 5, 'shop/orders/7/a:1.csv')"
    )
    asked = TableRequest("1", ORDERS, RequestKind.SKIP_FILE, since=5, place=PlaceInFile("shop/orders/7/a:1.csv"))
    assert LEDGER.words(session, "p").requests == {"1": asked}


def test_a_ledger_that_an_older_version_made_gets_the_tables_it_lacks(session):
    acquire(session)
    session.execute(f"DROP TABLE {LEDGER.table('ddl_decisions')}")
    session.execute(f"DROP TABLE {LEDGER.table('table_requests')}")
    assert LEDGER.exists(session)
    assert LEDGER.load(session, "p").decisions == LEDGER.load(session, "p").requests == {}
    LEDGER.create_tables(session)
    LEDGER.decide(session, "p", Decision("7/t/a", Verdict.SKIP))
    assert set(LEDGER.load(session, "p").decisions) == {"7/t/a"}


def test_the_cuts_that_an_older_version_recorded_get_the_figures_that_they_lack(session):
    claim = acquire(session)
    cut = CutRecord(9, "now", 0.1, 1, 6, 2, 0, netted=1, refused=1, left=1, passed=1)
    claim = step(session, claim, LedgerUpdate(cut=cut))
    for column in ("netted_rows", "refused_rows", "left_rows", "passed_rows"):
        session.execute(f"ALTER TABLE {LEDGER.table('cuts')} DROP COLUMN {column}")
    assert LEDGER.load(session, "p").cuts == (replace(cut, netted=0, refused=0, left=0, passed=0),)
    LEDGER.create_tables(session)
    claim = step(session, claim, LedgerUpdate(cut=replace(cut, hi=10)))
    assert LEDGER.load(session, "p").cuts == (replace(cut, netted=0, refused=0, left=0, passed=0), replace(cut, hi=10))


def test_the_tables_that_an_older_version_recorded_lack_what_it_did_not_know(session):
    claim = acquire(session)
    own = TableProgress(ORDERS, 9, again=True, let_in=True, lacks="rows that came late", loaded=5)
    claim = step(session, claim, LedgerUpdate(tables=(own,)))
    assert LEDGER.load(session, "p").tables == {ORDERS: own}
    for column in ("again", "let_in", "lacks", "loaded_ts"):
        session.execute(f"ALTER TABLE {LEDGER.table('tables')} DROP COLUMN {column}")
    assert LEDGER.load(session, "p").tables == {ORDERS: TableProgress(ORDERS, 9)}
    LEDGER.create_tables(session)
    assert LEDGER.load(session, "p").tables == {ORDERS: TableProgress(ORDERS, 9)}
    step(session, claim, LedgerUpdate(tables=(own,)))
    assert LEDGER.load(session, "p").tables == {ORDERS: own}


@pytest.mark.long
def test_the_last_hundred_cuts_are_kept_in_order(session):
    claim = acquire(session)
    for hi in range(KEPT_CUTS + 5):
        claim = step(session, claim, LedgerUpdate(cut=CutRecord(hi, "now", 0.1, 0, 0, 0, 0)))
    assert [cut.hi for cut in LEDGER.load(session, "p").cuts] == list(range(5, KEPT_CUTS + 5))


def test_pipelines_do_not_see_each_other(session):
    claim = acquire(session)
    LEDGER.acquire(session, "q", "src2", "f", 6)
    claim = step(session, claim, LedgerUpdate(checkpoint=9, tables=(TableProgress(ORDERS, 2),)))
    state = LEDGER.load(session, "q")
    assert (state.checkpoint, state.tables) == (6, {})


def test_an_update_that_is_repeated_counts_its_cut_once(session):
    claim = acquire(session)
    for _ in range(2):
        claim = step(session, claim, LedgerUpdate(checkpoint=9, cut=CutRecord(9, "now", 0.1, 0, 0, 0, 0)))
    assert len(LEDGER.load(session, "p").cuts) == 1


def test_a_tables_own_checkpoint_is_read_alone(session):
    claim = acquire(session)
    assert LEDGER.rows.lock(session, "p", ORDERS, ORDERS) is None
    claim = step(session, claim, LedgerUpdate(tables=(TableProgress(ORDERS, 8),)))
    assert LEDGER.rows.lock(session, "p", ORDERS, ORDERS) == 8


@pytest.mark.parametrize("length", [0, 1, PART_LENGTH, PART_LENGTH + 1, 3 * PART_LENGTH + 7])
def test_a_position_of_any_length_is_read_back_whole(session, length):
    claim = acquire(session)
    for position in ("x" * (2 * PART_LENGTH + 1), "é😀" * (length // 2) + "z" * (length % 2)):
        claim = step(session, claim, LedgerUpdate(position=position))
        assert LEDGER.load(session, "p").position == position
    kept = session.execute("SELECT max(length(content)) FROM headrace.position_parts")[0][0]
    assert kept is None or kept <= PART_LENGTH


def test_a_ledger_without_room_for_long_positions_gets_it(session):
    claim = acquire(session)
    claim = step(session, claim, LedgerUpdate(position="short"))
    session.execute("DROP TABLE headrace.position_parts")
    assert LEDGER.load(session, "p").position == "short"
    LEDGER.create_tables(session)
    claim = step(session, claim, LedgerUpdate(position="y" * (PART_LENGTH + 1)))
    assert LEDGER.load(session, "p").position == "y" * (PART_LENGTH + 1)


@pytest.mark.parametrize("lost", [("pipelines",), ("tables",), ("ddl_journal",), ("pipelines", "ddl_journal")])
def test_a_ledger_that_lost_a_table_is_not_taken_for_one_with_an_empty_table(session, lost):
    acquire(session)
    for name in lost:
        session.execute(f"DROP TABLE headrace.{name}")
    for use in (
        lambda: LEDGER.exists(session),
        lambda: LEDGER.load(session, "p"),
        lambda: LEDGER.create_tables(session),
        lambda: LEDGER.verify_place(session, "p", "src"),
        lambda: list(LEDGER.written_by_others(session, "p")),
    ):
        with pytest.raises(DefinitionError, match=" and ".join(rf"headrace\.{name}" for name in lost)) as raised:
            use()
        assert "from a backup" in raised.value.hint
        assert "To begin anew" in raised.value.hint


def test_a_new_pipeline_begins_with_nothing_of_a_former_one_of_its_name(session):
    tables = session.execute("SELECT table_name FROM information_schema.columns WHERE column_name = 'pipeline'")
    for pipeline in ("p", "q"):
        claim = LEDGER.acquire(session, pipeline, "src", "f", 5)[1]
        entry = JournalEntry("8/t", 8, (ORDERS,), "DROP TABLE orders", JournalState.DONE)
        cut = CutRecord(9, "now", 0.1, 0, 0, 0, 0)
        rows = (TableProgress(ORDERS, 8),)
        position = "x" * (PART_LENGTH + 1)
        update = LedgerUpdate(9, position=position, tables=rows, journal=(entry,), cut=cut, dead_letters={ORDERS: 1})
        step(session, claim, update)
        LEDGER.decide(session, pipeline, Decision("7/t/a", Verdict.SKIP))
        LEDGER.request(session, pipeline, TableRequest("1/a", ORDERS, RequestKind.RESUME))
    other = LEDGER.load(session, "q")
    for (table,) in tables:
        assert session.execute(f"SELECT DISTINCT pipeline FROM {LEDGER.table(table)} ORDER BY pipeline") == [("p",), ("q",)], table
    session.execute(f"DELETE FROM {LEDGER.table('pipelines')} WHERE pipeline = 'p'")
    assert LEDGER.acquire(session, "p", "src", "g", 6)[0] == LedgerState("p", "src", "g", 1, 0, 6, 6, 6, "")
    for (table,) in tables:
        left = session.execute(f"SELECT DISTINCT pipeline FROM {LEDGER.table(table)} ORDER BY pipeline")
        assert left == ([("p",), ("q",)] if table == "pipelines" else [("q",)]), table
    assert LEDGER.load(session, "q") == other


def test_shapes_are_kept_by_table_life_and_version_where_the_pipeline_asks_for_them(session):
    LEDGER.create_tables(session, (LedgerPart.SHAPES,))
    claim = acquire(session)
    first, second = TableShape(5, 6, SHAPE), TableShape(5, 9, replace(SHAPE, handle_key=()), "[…]", "utf8mb4_bin")
    later = TableShape(8, 9, SHAPE)
    claim = step(session, claim, LedgerUpdate(shapes=(first, second, later)))
    claim = step(session, claim, LedgerUpdate(shapes=(replace(second, schema=SHAPE),), forget_shapes=(first.key,)))
    state = LEDGER.load(session, "p")
    assert state.shapes == {second.key: replace(second, schema=SHAPE), later.key: later}
    assert LEDGER.acquire(session, "q", "src", "f", 5)[0].shapes == {}


def test_a_step_of_shapes_that_is_sent_again_is_written_once(session):
    LEDGER.create_tables(session, (LedgerPart.SHAPES,))
    claim = acquire(session)
    step(session, claim, LedgerUpdate(shapes=(TableShape(5, 6, SHAPE),) * 2))
    assert session.execute(f"SELECT count(*) FROM {LEDGER.table('shapes')}") == [(1,)]


def test_a_ledger_has_no_room_for_what_no_pipeline_asks_for(session):
    acquire(session)
    LEDGER.create_tables(session)
    names = {
        name for (name,) in session.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'headrace'")
    }
    assert names == LEDGER.names - {"shapes", "routed_tables", "replayed"}
    assert LEDGER.reset(session, "p")
    assert LEDGER.acquire(session, "p", "src", "f", 5)[0].shapes == {}


def test_a_step_without_shapes_and_routes_costs_no_statement_more(session):
    """The statements are those of a one-row cut: the cut's record, the checkpoint, the position and the row of a bag."""
    LEDGER.create_tables(session, tuple(LedgerPart))
    row, cut = TableProgress(ORDERS, 8), CutRecord(9, "now", 0.1, 1, 1, 1, 0)
    statements = counted(session, LedgerUpdate(9, 9, "here", tables=(row,), cut=cut), acquire(session))
    assert len(statements) == 9
    assert not any(part in statement for statement in statements for part in LedgerPart)


def test_a_table_may_go_to_two_tables_of_the_target_with_progress_of_their_own(session):
    LEDGER.create_tables(session, (LedgerPart.ROUTED_TABLES,))
    claim = acquire(session)
    own, archived = TableProgress(ORDERS, 7), TableProgress(ORDERS, 9, status=TableStatus.STOPPED, target=ARCHIVE)
    claim = step(session, claim, LedgerUpdate(tables=(own, archived)))
    claim = step(session, claim, LedgerUpdate(tables=(replace(own, checkpoint=8),)))
    state = LEDGER.load(session, "p")
    assert state.tables == {}  # which of the two is meant nobody could say
    assert set(state.rows) == {replace(own, checkpoint=8), archived}
    assert state.row_of(ORDERS, ORDERS) == replace(own, checkpoint=8)
    assert state.row_of(ORDERS, ARCHIVE) == archived
    assert state.row_of(ORDERS, MINE) is None
    assert [LEDGER.rows.lock(session, "p", ORDERS, target) for target in (ORDERS, ARCHIVE, MINE)] == [8, 9, None]


def test_a_table_with_one_target_is_found_by_the_source_alone(session):
    LEDGER.create_tables(session, (LedgerPart.ROUTED_TABLES,))
    routed = TableProgress(ORDERS, 7, target=ARCHIVE)
    step(session, acquire(session), LedgerUpdate(tables=(routed,)))
    state = LEDGER.load(session, "p")
    assert state.tables == {ORDERS: routed}
    assert state.row_of(ORDERS, ARCHIVE) == routed
    assert state.row_of(ORDERS, ORDERS) is None
    assert state.table_checkpoint(ORDERS) == 7


def test_rows_of_a_ledger_without_targets_go_to_tables_of_the_same_name(session):
    claim = step(session, acquire(session), LedgerUpdate(tables=(TableProgress(ORDERS, 7),)))
    LEDGER.create_tables(session, tuple(LedgerPart))  # as a later run does that has routes
    state = LEDGER.load(session, "p")
    assert state.tables[ORDERS].pair == (ORDERS, ORDERS)
    claim = step(session, claim, LedgerUpdate(tables=(TableProgress(ORDERS, 8, target=ORDERS),)))
    assert LEDGER.load(session, "p").tables == {ORDERS: TableProgress(ORDERS, 8)}


def test_other_pipelines_are_told_by_the_target_tables_that_they_write(session):
    LEDGER.create_tables(session, (LedgerPart.ROUTED_TABLES,))
    rows = (TableProgress(ORDERS, 7, target=ARCHIVE), TableProgress(MINE, 7), TableProgress(ARCHIVE, 7, status=TableStatus.GONE))
    step(session, acquire(session), LedgerUpdate(tables=rows))
    assert sorted(LEDGER.written_by_others(session, "q")) == [("p", ARCHIVE), ("p", MINE)]
    assert list(LEDGER.written_by_others(session, "p")) == []


def test_what_pipelines_ask_for_goes_with_their_record(session):
    LEDGER.create_tables(session, tuple(LedgerPart))
    for reset in (True, False):
        update = LedgerUpdate(tables=(TableProgress(ORDERS, 7, target=ARCHIVE),), shapes=(TableShape(5, 6, SHAPE),))
        step(session, acquire(session), update)
        if reset:
            assert LEDGER.reset(session, "p")
        else:
            session.execute(f"DELETE FROM {LEDGER.table('pipelines')}")
        state, _ = LEDGER.acquire(session, "p", "src", "f", 5)
        assert (state.rows, state.shapes) == ((), {})
