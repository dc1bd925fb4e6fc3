"""The tests that every sink must pass, for authors of sinks to run with pytest.

Derive a class with a fixture that returns an empty target:

    class TestMySink(SinkSuite):
        @pytest.fixture
        def target(self, tmp_path: Path) -> SinkUnderTest:
            return SinkUnderTest(open=lambda: open_sink(f"mine://{tmp_path}"), read=...)

For a sink that keeps its own ledger derive from ``OwnLedgerSuite``, which has these tests and more.

Each test drives the sink through the engine as a pipeline does, in this process and without Spark. If a sink declares that it
cannot do something (``SinkCapabilities``), the test requires that the affected tables wait for a person and are left unchanged.
Every sink must be able to create and drop databases, and to create tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.engine.run_options import RunOptions
from headrace.errors import DefinitionError, FencedError
from headrace.faults import Moment, Step
from headrace.model.ledger import Decision, LedgerState, RequestKind, TableProgress, TableRequest, TableStatus, Verdict
from headrace.model.policy import ChangeKind, Policy, SchemaChangePolicies
from headrace.model.table import Column, TableId
from headrace.model.types import ColumnType, TypeKind
from headrace.sinks.base import CheckState, Ledger, LedgerUpdate, SinkCapabilities
from headrace.testing.faults import Crashed, Passage
from headrace.testing.memory_source import MemoryStream
from headrace.testing.sink_runs import IDENTITY, PIPELINE, KeepingEngine, SinkRuns, SinkUnderTest, at
from headrace.testing.upstream import Delete, Insert, Update, Upstream
from headrace.testing.upstream_ddl import (
    AddColumn,
    AddPrimaryKey,
    DropColumn,
    DropIndex,
    DropPrimaryKey,
    ModifyColumn,
    RenameColumn,
)
from headrace.testing.values import SAMPLES, Sample

__all__ = ["OwnLedgerSuite", "SinkSuite", "SinkUnderTest"]

INT, BIGINT = ColumnType(TypeKind.INT), ColumnType(TypeKind.BIGINT)
TEXT = ColumnType(TypeKind.VARCHAR, length=20)
LONG_TEXT = ColumnType(TypeKind.LONGTEXT)
ID = Column("id", INT, nullable=False, primary_key=True)
DATABASE = "suite_shop"
A, B, C = (TableId(DATABASE, name) for name in ("a", "b", "c"))
_LOOKING = frozenset({Step.POLL, Step.STAGE, Step.READ})
"""Steps that change nothing: a crash after one of them is the same as a crash after the step before it."""
_MANY_ROWS, _LONG = 600, 20_000


def _create_tables(upstream: Upstream) -> None:
    """Tables ``A`` (``id``, ``v``, ``k``, two rows) and ``B`` (the same, no rows)."""
    upstream.create_database(DATABASE)
    for table_id in (A, B):
        upstream.create_table(table_id, [ID, Column("v", TEXT), Column("k", INT)])
    upstream.execute(*(Insert(A, {"id": n, "v": "old", "k": n}) for n in (1, 2)))


def _create_with_partitions(upstream: Upstream) -> None:
    """As ``_create_tables``, but ``A`` has a partition for each of its rows. ``B`` has a row that fits into the first one."""
    upstream.create_database(DATABASE)
    upstream.create_table(A, [ID, Column("v", TEXT), Column("k", INT)], partitions={"p0": 2, "p1": 5})
    upstream.create_table(B, [ID, Column("v", TEXT), Column("k", INT)])
    upstream.execute(*(Insert(A, {"id": n, "v": "old", "k": n}) for n in (1, 2)))
    upstream.execute(Insert(B, {"id": 0, "v": "to exchange", "k": 0}))


def _create_with_unique_key(upstream: Upstream) -> None:
    """As ``_create_tables``, but ``A`` has a unique key on ``k``."""
    upstream.create_database(DATABASE)
    upstream.create_table(A, [ID, Column("v", TEXT), Column("k", INT, nullable=False)], ["k"])
    upstream.create_table(B, [ID, Column("v", TEXT), Column("k", INT)])
    upstream.execute(*(Insert(A, {"id": n, "v": "old", "k": n}) for n in (1, 2)))


def _create_nonclustered(upstream: Upstream) -> None:
    """As ``_create_tables``, but the primary key of ``A`` is not clustered, so it can be dropped."""
    upstream.create_database(DATABASE)
    upstream.create_table(A, [ID, Column("v", TEXT), Column("k", INT, nullable=False)], ["k"], nonclustered=True)
    upstream.create_table(B, [ID, Column("v", TEXT), Column("k", INT)])
    upstream.execute(*(Insert(A, {"id": n, "v": "old", "k": n}) for n in (1, 2)))


def _move_primary_key(upstream: Upstream) -> None:
    """Moves the primary key to ``k``. Two rows then have the same ``id``."""
    upstream.alter(A, DropPrimaryKey())
    upstream.execute(Insert(A, {"id": 1, "v": "beside", "k": 7}))
    upstream.alter(A, AddPrimaryKey(("k",)))


@dataclass(frozen=True)
class Change:
    """A schema change to the tables that ``create`` makes."""

    kind: ChangeKind
    name: str
    happens: Callable[[Upstream], object]
    create: Callable[[Upstream], None] = _create_tables

    def __str__(self) -> str:
        return self.name


def _drop_database(upstream: Upstream) -> None:
    upstream.drop_database(DATABASE)


def _drop_unique_key(upstream: Upstream) -> None:
    upstream.alter(A, DropIndex("uk"))
    upstream.execute(Insert(A, {"id": 3, "v": "beside", "k": 1}))


CHANGES = (
    Change(ChangeKind.CREATE_DATABASE, "create a database", lambda u: u.create_database("suite_other")),
    Change(ChangeKind.DROP_DATABASE, "drop a database", _drop_database),
    Change(ChangeKind.CREATE_TABLE, "create a table", lambda u: u.create_table(C, [ID, Column("v", TEXT)])),
    Change(ChangeKind.DROP_TABLE, "drop a table", lambda u: u.drop_table(A)),
    Change(ChangeKind.TRUNCATE_TABLE, "truncate a table", lambda u: u.truncate_table(A)),
    Change(ChangeKind.RENAME_TABLE, "rename a table", lambda u: u.rename_table(A, C)),
    Change(ChangeKind.ADD_COLUMN, "add a column", lambda u: u.alter(A, AddColumn(Column("n", INT, default="7")))),
    Change(ChangeKind.DROP_COLUMN, "drop a column", lambda u: u.alter(A, DropColumn("v"))),
    Change(ChangeKind.RENAME_COLUMN, "rename a column", lambda u: u.alter(A, RenameColumn("v", "w"))),
    Change(ChangeKind.ALTER_COLUMN, "widen a column", lambda u: u.alter(A, ModifyColumn("k", Column("k", BIGINT)))),
    Change(ChangeKind.INDEX, "drop a unique key", _drop_unique_key, _create_with_unique_key),
    Change(ChangeKind.KEY, "move the primary key", _move_primary_key, _create_nonclustered),
    Change(ChangeKind.PARTITION, "add a partition", lambda u: u.add_partition(A, "p2", 20), _create_with_partitions),
    Change(ChangeKind.PARTITION, "truncate a partition", lambda u: u.truncate_partition(A, "p0"), _create_with_partitions),
    Change(ChangeKind.PARTITION, "drop a partition", lambda u: u.drop_partition(A, "p0"), _create_with_partitions),
    Change(ChangeKind.PARTITION, "exchange a partition", lambda u: u.exchange_partition(A, "p0", B), _create_with_partitions),
)
"""At least one of each kind that affects rows; views and non-unique indexes do not."""


class SinkSuite:
    """The tests. A subclass provides a fixture ``target``: a :class:`SinkUnderTest` with an empty target."""

    keeps_ledger = False

    @pytest.fixture
    def target(self) -> SinkUnderTest:
        """The sink under test, provided by the subclass."""
        raise NotImplementedError("a subclass of SinkSuite needs a fixture named target")

    @pytest.fixture
    def runs(self, target: SinkUnderTest, tmp_path: Path) -> SinkRuns:
        """Runs into the target."""
        return SinkRuns(target, tmp_path)

    def test_a_sink_with_its_own_ledger_goes_through_the_tests_of_those(self, runs: SinkRuns) -> None:
        """A sink must be tested with ``OwnLedgerSuite`` if it keeps its own ledger, and only then."""
        with runs.opened() as (sink, _):
            assert (sink.ledger is not None) == self.keeps_ledger

    # --- rows ---------------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("sample", SAMPLES, ids=str)
    def test_values_of_a_type_go_round(self, runs: SinkRuns, sample: Sample, request: pytest.FixtureRequest) -> None:
        """Inserts the values; in a second cut, each row takes the value of the row before it."""
        if (why := runs.target.inexact.get(str(sample))) is not None:
            request.applymarker(pytest.mark.xfail(reason=why, raises=AssertionError, strict=True))
        upstream, values = runs.upstream, (*sample.values, None)
        upstream.create_database(DATABASE)
        upstream.create_table(A, [ID, Column("v", sample.type)])
        upstream.execute(*(Insert(A, {"id": n, "v": value}) for n, value in enumerate(values)))
        runs.applied()
        upstream.execute(*(Update(A, (n,), {"v": values[n - 1]}) for n in range(len(values))))
        runs.applied()

    def test_rows_are_inserted_updated_and_deleted_and_change_their_keys(self, runs: SinkRuns) -> None:
        upstream = _two_tables(runs)
        upstream.execute(*(Insert(B, {"id": n, "v": "b", "k": 1}) for n in range(5)))
        upstream.execute(Update(B, (0,), {"v": "new"}), Delete(B, (1,)), Update(B, (2,), {"id": 20}), Delete(A, (1,)))
        runs.applied()
        upstream.execute(Update(B, (0,), {"id": 1, "v": None}), Delete(B, (20,)), Insert(B, {"id": 2, "v": "again", "k": 2}))
        upstream.execute(Delete(B, (2,)))
        upstream.execute(Insert(B, {"id": 2, "v": "and again", "k": 2}))
        runs.applied()
        upstream.execute(Insert(B, {"id": 30, "v": "cancels out", "k": 3}))
        upstream.execute(Delete(B, (30,)))
        runs.applied()

    def test_keys_that_differ_in_their_bytes_only_are_different_keys(self, runs: SinkRuns) -> None:
        upstream = runs.upstream
        upstream.create_database(DATABASE)
        upstream.create_table(A, [Column("id", ColumnType(TypeKind.VARBINARY, length=20), primary_key=True), Column("v", INT)])
        keys = [b"a", b"A", b"a ", b"a\x00", b"\xc3\xa9", b"e\xcc\x81"]
        upstream.execute(*(Insert(A, {"id": key, "v": n}) for n, key in enumerate(keys)))
        runs.applied()
        upstream.execute(Delete(A, (keys[0],)), Update(A, (keys[2],), {"v": 20}))
        runs.applied()

    def test_rows_of_a_table_without_key_are_there_as_often_as_upstream(self, runs: SinkRuns) -> None:
        """A sink that does not support such tables (``bags``) gets none of their rows; other tables are replicated."""
        upstream = runs.upstream
        upstream.create_database(DATABASE)
        upstream.create_table(A, [Column("id", INT), Column("v", TEXT)])
        upstream.create_table(B, [ID, Column("v", TEXT)])
        upstream.execute(*(Insert(A, {"id": n, "v": "v"}) for n in (1, 1, 1, 2, None)), Insert(B, {"id": 1, "v": "v"}))
        if not _capabilities(runs).bags:
            upstream.checkpoint()
            assert [problem.table_id for problem in runs.run().stopped] == [A]
            assert runs.columns(A) is None or not runs.held(upstream.schema(A))
            assert runs.held(upstream.schema(B)).total() == 1
            return
        runs.applied()
        upstream.execute(Delete(A, (1, "v")), Update(A, (2, "v"), {"v": None}), Insert(A, {"id": 1, "v": ""}))
        runs.applied()
        upstream.execute(Insert(A, {"id": 3, "v": "cancels out"}))
        upstream.execute(Delete(A, (3, "cancels out")))
        runs.applied()

    def test_a_round_of_many_megabytes_is_written_by_several_tasks(self, runs: SinkRuns) -> None:
        upstream = runs.upstream
        upstream.create_database(DATABASE)
        for table_id in (A, B):
            upstream.create_table(table_id, [ID, Column("v", LONG_TEXT)])
            for first in range(0, _MANY_ROWS, 100):
                rows = ({"id": n, "v": f"{n} " * (_LONG // 4)} for n in range(first, first + 100))
                upstream.execute(*(Insert(table_id, row) for row in rows))
        runs.applied()

    def test_rows_keep_the_commit_ts_of_their_last_change(self, runs: SinkRuns) -> None:
        """Across several tasks, and when the source repeats changes. Only for sinks with ``keeps_commit_ts``."""
        if not _capabilities(runs).keeps_commit_ts:
            assert runs.target.commit_ts is None
            return
        upstream, writer = _two_tables(runs), runs.source.writer
        upstream.create_table(C, [ID, Column("v", LONG_TEXT)])
        last: dict[int, int] = {}
        for first in range(0, _MANY_ROWS, 100):
            ids = range(first, first + 100)
            last |= dict.fromkeys(ids, upstream.execute(*(Insert(C, {"id": n, "v": "v" * _LONG}) for n in ids)))
        for n in range(0, _MANY_ROWS, 7):
            last[n] = upstream.execute(Update(C, (n,), {"v": "new"}))
        upstream.execute(*(Delete(C, (n,)) for n in range(0, _MANY_ROWS, 14)))
        back = range(0, _MANY_ROWS, 28)
        last |= dict.fromkeys(back, upstream.execute(*(Insert(C, {"id": n, "v": "back"}) for n in back)))
        assert isinstance(writer, MemoryStream)
        writer.repeat(0)
        runs.applied()
        _keep(runs, C, last)
        last[1] = upstream.execute(Update(C, (1,), {"v": "newer"}))
        runs.applied()
        _keep(runs, C, last)

    # --- runs that die ------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("keyless", [False, True], ids=["with a key", "and without one"])
    def test_rows_are_there_once_wherever_a_run_dies(self, runs: SinkRuns, keyless: bool) -> None:
        """The case without a key applies only to sinks that support such tables (``bags``)."""
        upstream, keyless = runs.upstream, keyless and _capabilities(runs).bags
        upstream.create_database(DATABASE)
        upstream.create_table(A, [Column("id", INT) if keyless else ID, Column("v", TEXT)])
        runs.applied()

        def happen(number: int) -> None:
            upstream.execute(*(Insert(A, {"id": 2 * number + n, "v": "v"}) for n in range(2)))
            if number > 1:
                upstream.execute(Delete(A, (2 * number - 2, "v") if keyless else (2 * number - 2,)))

        _die_everywhere(runs, happen)

    @pytest.mark.parametrize("change", CHANGES, ids=str)
    def test_a_schema_change_takes_effect_once_wherever_a_run_dies(self, runs: SinkRuns, change: Change) -> None:
        """Starts over for each crash: two tables, the change, and rows after it. An unsupported change must stop its table."""
        if change.kind not in _capabilities(runs).supported_schema_changes:
            _stops_its_tables(runs, change)
            return

        def happen(_: int) -> None:
            upstream = runs.upstream
            if any(t.database == DATABASE for t in upstream.tables):
                upstream.drop_database(DATABASE)
            if change.kind is ChangeKind.CREATE_DATABASE:
                upstream.drop_database("suite_other")
            change.create(upstream)
            runs.applied()
            change.happens(upstream)
            for table_id in upstream.tables:
                row = {c.name: 4 if c.type.kind is not TypeKind.VARCHAR else "new" for c in upstream.schema(table_id).columns}
                upstream.execute(Insert(table_id, row))

        _die_everywhere(runs, happen)

    @pytest.mark.parametrize("name", [A, C], ids=["recover", "flashback"])
    def test_a_table_that_is_brought_back_has_its_rows_or_stops(self, runs: SinkRuns, name: TableId) -> None:
        """No change event carries these rows. A target that treated the statement as done without them would silently lack rows."""
        upstream = _two_tables(runs)
        runs.applied()
        upstream.drop_table(A)
        upstream.checkpoint()
        runs.run()
        upstream.recover_table(A, None if name == A else name)
        upstream.checkpoint()
        if not {A, name} & {problem.table_id for problem in runs.run().stopped}:
            runs.check()
            assert runs.columns(name) == ("id", "v", "k")

    def test_no_row_pushes_out_another_one_by_a_unique_key_that_the_source_has_no_more(self, runs: SinkRuns) -> None:
        """If the drop of the key is skipped, the table stops or the target has no such key (``MetadataApplier.keeps_unique``)."""
        upstream = runs.upstream
        _create_with_unique_key(upstream)
        runs.applied()
        schema = upstream.schema(A)
        before = runs.held(schema)
        _drop_unique_key(upstream)
        upstream.checkpoint()
        stopped = runs.run(options=RunOptions(once=True, policies=SchemaChangePolicies({ChangeKind.INDEX: Policy.SKIP}))).stopped
        if A in {problem.table_id for problem in stopped}:
            assert runs.held(schema) == before
        else:
            runs.check()

    # --- the ledger, and who may write --------------------------------------------------------------------------------------

    def test_a_look_at_an_empty_target_creates_nothing(self, runs: SinkRuns) -> None:
        for _ in range(2):
            with runs.opened() as (sink, ledger):
                assert ledger.peek(PIPELINE) is None
                assert ledger.pipelines() == []
                assert sink.metadata_applier.describe(TableId(DATABASE)) is None
                assert sink.metadata_applier.describe(A) is None

    def test_a_step_is_read_as_it_was_written_by_every_other_object(self, runs: SinkRuns) -> None:
        own = TableProgress(
            A, 40, status=TableStatus.STOPPED, reason="it is full: 'x' \\ 漢", let_in=True, lacks="rows of 漢", loaded=30
        )
        with runs.opened() as (_, ledger):
            state = _acquired(ledger)
            update = LedgerUpdate(checkpoint=50, attempted=60, position='{"a": 1}', tables=(own,), dead_letters={A: 2})
            ledger.update(update)
        with runs.opened() as (_, ledger):
            assert ledger.peek(PIPELINE) == update.applied_to(state)
            assert ledger.pipelines() == [PIPELINE]

    def test_a_step_leaves_alone_what_it_does_not_name(self, runs: SinkRuns) -> None:
        with runs.opened() as (_, ledger):
            state = _acquired(ledger)
            first, second = LedgerUpdate(position="p", tables=(TableProgress(A, 4),)), LedgerUpdate(attempted=70)
            ledger.update(first)
            ledger.update(second)
        with runs.opened() as (_, ledger):
            assert ledger.peek(PIPELINE) == second.applied_to(first.applied_to(state))

    def test_a_run_that_was_taken_over_writes_no_step_more(self, runs: SinkRuns) -> None:
        with runs.opened() as (_, ledger):
            former = _acquired(ledger)
            with runs.opened() as (_, second):
                state = _acquired(second)
                assert state.epoch > former.epoch
                with pytest.raises(FencedError):
                    ledger.update(LedgerUpdate(checkpoint=99))
                with pytest.raises(FencedError):
                    ledger.next_attempt()
                second.update(LedgerUpdate(checkpoint=20))
        with runs.opened() as (_, ledger):
            found = ledger.peek(PIPELINE)
        assert found is not None
        assert found.checkpoint == 20

    def test_a_ledger_of_another_source_is_refused(self, runs: SinkRuns) -> None:
        with runs.opened() as (_, ledger):
            _acquired(ledger)
        with runs.opened() as (_, ledger), pytest.raises(DefinitionError):
            ledger.acquire(PIPELINE, "memory://another", "print", 10)

    def test_decisions_and_requests_come_to_the_run_and_go_when_they_are_used(self, runs: SinkRuns) -> None:
        decision, request = Decision("1-a", Verdict.EDIT, "it's ; --"), TableRequest("2026-01-01-r1", A, RequestKind.HOLD)
        with runs.opened() as (_, ledger):
            _acquired(ledger)
            with runs.opened() as (_, other):
                other.decide(PIPELINE, Decision("1-a", Verdict.SKIP))
                other.decide(PIPELINE, decision)
                other.request(PIPELINE, request)
            words = ledger.words(PIPELINE)
            assert words is not None
            assert (dict(words.decisions), dict(words.requests)) == ({"1-a": decision}, {request.identity: request})
            ledger.update(LedgerUpdate(used_decisions=("1-a",), used_requests=(request.identity,)))
            left = ledger.words(PIPELINE)
            assert left is not None
            assert not left.decisions
            assert not left.requests

    def test_a_pipeline_that_is_reset_is_gone_and_its_run_ends(self, runs: SinkRuns) -> None:
        with runs.opened() as (_, ledger):
            former = _acquired(ledger)
            with runs.opened() as (_, other):
                assert other.reset(PIPELINE)
                assert not other.reset(PIPELINE)
                assert other.peek(PIPELINE) is None
            with pytest.raises(FencedError):
                ledger.update(LedgerUpdate(checkpoint=99))
            assert _acquired(ledger).epoch > former.epoch

    def test_a_run_that_another_one_took_over_ends_and_changes_nothing(self, runs: SinkRuns) -> None:
        upstream = _two_tables(runs)
        upstream.checkpoint()

        def take_over(_: Passage) -> None:
            upstream.execute(Update(A, (1,), {"v": "newer"}), Delete(A, (2,)))
            runs.applied()
            upstream.execute(Insert(A, {"id": 3, "v": "late", "k": 3}))
            upstream.checkpoint()

        with pytest.raises(FencedError):
            runs.run(at(1, take_over, _is(Moment.BEFORE, Step.POLL)))
        upstream.execute(Delete(A, (3,)))
        runs.check()

    # --- what people see ----------------------------------------------------------------------------------------------------

    def test_a_check_changes_nothing_and_finds_a_good_target_good(self, runs: SinkRuns) -> None:
        with runs.opened() as (sink, ledger):
            checks = [*sink.check(), *sink.check_tables(PIPELINE, [])]
            assert [check.name for check in checks if check.state is CheckState.FAILED] == []
            assert all(check.name for check in checks)
            assert ledger.peek(PIPELINE) is None
            assert sink.metadata_applier.describe(TableId(DATABASE)) is None

    def test_no_secret_is_told(self, runs: SinkRuns) -> None:
        with runs.opened() as (sink, _):
            told = [sink.identity, repr(sink), *(repr(check) for check in sink.check())]
        assert sink.identity
        assert [secret for secret in runs.target.secrets if any(secret in text for text in told)] == []

    def test_a_table_is_described_as_it_is(self, runs: SinkRuns) -> None:
        _two_tables(runs)
        runs.applied()
        with runs.opened() as (sink, _):
            found, empty = sink.metadata_applier.describe(A), sink.metadata_applier.describe(B)
            database = sink.metadata_applier.describe(TableId(DATABASE))
        assert found is not None
        assert (found.columns, found.has_rows) == (("id", "v", "k"), True)
        assert empty is not None
        assert not empty.has_rows
        assert database is not None
        assert database.has_rows


class OwnLedgerSuite(SinkSuite):
    """The tests of a sink that keeps its own ledger: its target fences tasks, and a restore takes data and ledger back together.

    The target must support saving (``SinkUnderTest.save``).
    """

    keeps_ledger = True

    def test_a_task_of_an_attempt_that_is_over_changes_nothing(self, runs: SinkRuns) -> None:
        upstream, engine = _two_tables(runs), KeepingEngine()
        upstream.checkpoint()
        runs.run(engine=engine)
        upstream.execute(Update(A, (1,), {"v": "newer"}), Delete(A, (2,)))
        runs.applied()
        engine.late()
        runs.check()

    def test_a_target_that_goes_back_gets_what_it_lost_again(self, runs: SinkRuns) -> None:
        upstream = _two_tables(runs)
        runs.applied()
        put_back = _saved(runs)
        upstream.execute(Update(A, (1,), {"v": "lost"}), Delete(A, (2,)))
        runs.applied()
        put_back()
        runs.applied()

    def test_a_run_notices_a_target_that_goes_back_under_it(self, runs: SinkRuns) -> None:
        upstream = _two_tables(runs)
        runs.applied()
        put_back = _saved(runs)
        upstream.execute(Update(A, (1,), {"v": "lost"}), Delete(A, (2,)))
        runs.applied()
        upstream.execute(Insert(A, {"id": 4, "v": "after", "k": 3}))
        upstream.checkpoint()
        runs.run(at(1, lambda _: put_back(), _is(Moment.AFTER, Step.POLL)))
        runs.check()


def _two_tables(runs: SinkRuns) -> Upstream:
    _create_tables(runs.upstream)
    return runs.upstream


def _capabilities(runs: SinkRuns) -> SinkCapabilities:
    with runs.opened() as (sink, _):
        return sink.capabilities


def _keep(runs: SinkRuns, table_id: TableId, last: Mapping[int, int]) -> None:
    """Asserts that the target's rows have these commit ts (TSO), by ``id``."""
    assert runs.target.commit_ts is not None, "a sink that keeps commit ts needs SinkUnderTest.commit_ts"
    told = runs.target.commit_ts(runs.upstream.schema(table_id))
    there = [key for (key,) in runs.upstream.keys(table_id)]
    assert {key: told.get((key,)) for key in there} == {key: last[int(str(key))] for key in there}


def _saved(runs: SinkRuns) -> Callable[[], None]:
    assert runs.target.save is not None, "a target with its own ledger needs SinkUnderTest.save"
    return runs.target.save()


def _stops_its_tables(runs: SinkRuns, change: Change) -> None:
    """Asserts that the change is not applied, that its table stops unchanged, and that another table continues."""
    upstream = runs.upstream
    change.create(upstream)
    runs.applied()
    schema, other = upstream.schema(A), upstream.schema(B)
    before = runs.columns(A), runs.held(schema)
    there = runs.held(other).total()
    change.happens(upstream)
    if B in upstream.tables:
        upstream.execute(Insert(B, {"id": 9, "v": "new", "k": 9}))
    upstream.checkpoint()
    stopped = {problem.table_id for problem in runs.run().stopped}
    assert A in stopped
    assert (runs.columns(A), runs.held(schema)) == before
    assert runs.columns(C) is None
    assert runs.held(other).total() == there + (B in upstream.tables and B not in stopped)


def _acquired(ledger: Ledger) -> LedgerState:
    return ledger.acquire(PIPELINE, IDENTITY, "print", 10)


def _is(moment: Moment, step: Step) -> Callable[[Passage], bool]:
    return lambda passage: (passage.moment, passage.step) == (moment, step)


def _has_changed(passage: Passage) -> bool:
    return passage.moment is Moment.AFTER and passage.step not in _LOOKING


def _die_everywhere(runs: SinkRuns, happen: Callable[[int], None]) -> None:
    """Crashes a run after its first step, then after its second step, and so on. Each time, a further run completes the work.

    A crash after a step also covers a crash before the next one, because nothing durable happens in between.
    """

    def die(passage: Passage) -> None:
        raise Crashed(str(passage))

    number = 0
    died = True
    while died:
        number += 1
        happen(number)
        runs.upstream.checkpoint()
        try:
            runs.run(at(number, die, _has_changed))
            died = False
        except Crashed:
            stopped = runs.run().stopped
            assert not stopped, [problem.sentence() for problem in stopped]
        _same_tables(runs)
    assert number > 2, "the run came by no step at which it could die"


def _same_tables(runs: SinkRuns) -> None:
    runs.check()
    for table_id in (A, B, C):
        there = runs.upstream.tables
        wanted = tuple(c.name for c in runs.upstream.schema(table_id).columns) if table_id in there else None
        assert runs.columns(table_id) == wanted, table_id
