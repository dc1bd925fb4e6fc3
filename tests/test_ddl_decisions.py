"""Schema changes that a person decides about: policies, ``headrace ddl``, and the tables that wait."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from crashing import Crashed, CrashPoints, install
from following import Following, run_once
from harness import assert_state
from headrace.cli.main import main
from headrace.model.ledger import JournalState, LedgerState, TableStatus
from headrace.model.policy import SchemaChangePolicies
from headrace.model.table import TableId
from headrace.pipeline.registry import open_sink
from headrace.testing.upstream import Insert
from places import Place
from targets import Target
from upstreams import CUSTOMERS, KEY, NAME, ORDERS, Changefeed

pytestmark = pytest.mark.pipeline


@pytest.fixture
def place(place: Place) -> tuple[Target, str]:
    """An empty target, and its sink URI."""
    return place.fresh()


@pytest.fixture
def changefeed(tmp_path: Path) -> Changefeed:
    """Two tables with a row each, applied up to a checkpoint that no run has seen yet."""
    made = Changefeed(tmp_path)
    made.upstream.create_database("shop")
    made.upstream.create_table(ORDERS, [KEY, NAME])
    made.upstream.create_table(CUSTOMERS, [KEY, NAME])
    both(made, 1)
    return made


def both(changefeed: Changefeed, number: int) -> None:
    row = {"id": number, "name": f"number {number}"}
    changefeed.upstream.execute(Insert(ORDERS, row), Insert(CUSTOMERS, row))


def ledger_state(uri: str) -> LedgerState:
    with open_sink(uri) as sink:
        assert sink.ledger is not None
        state = sink.ledger.peek("default")
        sink.ledger.close()
    assert state is not None
    return state


def waiting(uri: str) -> str:
    """The identity of the one schema change that waits."""
    (entry,) = [e for e in ledger_state(uri).journal.values() if not e.state.is_settled]
    return entry.identity


def policies(**by_kind: str) -> dict[str, Any]:
    return {"policies": SchemaChangePolicies.parse({kind.replace("_", "-"): word for kind, word in by_kind.items()})}


def rows(target: Target, table: str) -> list[tuple[str | None, ...]]:
    return sorted(target.rows("shop", table, {"id": "int"}))


def test_a_truncate_that_needs_approval_holds_its_table_with_all_rows_before_it(
    place: tuple[Target, str], changefeed: Changefeed
) -> None:
    target, uri = place
    changefeed.upstream.truncate_table(ORDERS)
    both(changefeed, 2)
    changefeed.upstream.checkpoint()
    asks = policies(truncate_table="approve")

    assert run_once(changefeed, uri, **asks) == 3
    assert (rows(target, "orders"), rows(target, "customers")) == ([("1",)], [("1",), ("2",)])
    table = ledger_state(uri).tables[ORDERS]
    assert (table.status, table.after) == (TableStatus.WAITING, False)
    assert "waits for approval: TRUNCATE TABLE" in table.reason

    both(changefeed, 3)
    changefeed.upstream.checkpoint()
    assert run_once(changefeed, uri, **asks) == 3
    assert (rows(target, "orders"), rows(target, "customers")) == ([("1",)], [("1",), ("2",), ("3",)])

    # A variable that is not set decides about nothing.
    assert main(["ddl", "approve", " ", "--sink", uri]) == main(["ddl", "skip", "", "--sink", uri]) == 2
    assert ledger_state(uri).decisions == {}
    assert main(["ddl", "approve", waiting(uri), "--sink", uri]) == 0
    assert run_once(changefeed, uri, **asks) == 0
    assert_state(target, changefeed.state())
    state = ledger_state(uri)
    assert (state.decisions, state.tables[ORDERS].status) == ({}, TableStatus.RUNNING)
    assert run_once(changefeed, uri, **asks) == 0


def test_a_decision_about_a_copy_counts_though_the_pattern_has_moved_on(place: tuple[Target, str], changefeed: Changefeed) -> None:
    target, uri = place
    changefeed.upstream.checkpoint()
    assert run_once(changefeed, uri) == 0
    asks = policies(create_table="approve")
    copy = TableId("shop", "copy")
    changefeed.upstream.create_table_like(copy, ORDERS)
    changefeed.upstream.execute(Insert(copy, {"id": 7, "name": "seven"}))
    changefeed.upstream.drop_column(ORDERS, "name")
    changefeed.upstream.checkpoint()
    assert run_once(changefeed, uri, **asks) == 3
    told = waiting(uri)
    assert run_once(changefeed, uri, **asks) == 3
    assert waiting(uri) == told
    assert main(["ddl", "approve", told, "--sink", uri]) == 0
    assert run_once(changefeed, uri, **asks) == 0
    assert_state(target, changefeed.state())
    state = ledger_state(uri)
    assert state.decisions == {}
    assert all(entry.state.is_settled for entry in state.journal.values())


def test_a_run_that_follows_takes_up_a_decision(place: tuple[Target, str], changefeed: Changefeed) -> None:
    target, uri = place
    changefeed.upstream.drop_column(ORDERS, "name")
    changefeed.upstream.checkpoint()
    run = Following(changefeed, uri, **policies(drop_column="approve"))
    run.wait_for(changefeed.watermark)
    assert main(["ddl", "approve", waiting(uri), "--sink", uri]) == 0
    run.wait_until(lambda: ledger_state(uri).tables[ORDERS].status is TableStatus.RUNNING)
    run.interrupt()
    run.ended()
    assert_state(target, changefeed.state())


def test_a_policy_skips_what_is_not_wanted(place: tuple[Target, str], changefeed: Changefeed) -> None:
    target, uri = place
    changefeed.upstream.truncate_table(ORDERS)
    both(changefeed, 2)
    changefeed.upstream.drop_table(CUSTOMERS)
    changefeed.upstream.checkpoint()
    assert run_once(changefeed, uri, **policies(truncate_table="skip", drop_table="skip")) == 0
    assert rows(target, "orders") == rows(target, "customers") == [("1",), ("2",)]
    state = ledger_state(uri)
    assert state.tables[CUSTOMERS].status is TableStatus.GONE
    assert [e.statement[:8] for e in state.journal.values() if e.state is JournalState.SKIPPED] == ["TRUNCATE", "DROP TAB"]


def test_a_table_whose_creation_is_skipped_is_not_followed(place: tuple[Target, str], changefeed: Changefeed) -> None:
    target, uri = place
    changefeed.upstream.checkpoint()
    assert run_once(changefeed, uri, **policies(create_table="skip")) == 0
    assert target.tables() == set()
    both(changefeed, 2)
    changefeed.upstream.checkpoint()
    assert run_once(changefeed, uri, **policies(create_table="skip")) == 0
    assert target.tables() == set()


def test_a_person_runs_another_statement_in_its_place(place: tuple[Target, str], changefeed: Changefeed) -> None:
    target, uri = place
    changefeed.upstream.truncate_table(ORDERS)
    both(changefeed, 2)
    changefeed.upstream.checkpoint()
    assert run_once(changefeed, uri, **policies(truncate_table="approve")) == 3
    elsewhere = "CREATE VIEW shop.orders_before AS SELECT * FROM shop.orders WHERE id = 1"
    assert main(["ddl", "edit", waiting(uri)[:10], elsewhere, "--sink", uri]) == 0
    assert run_once(changefeed, uri, **policies(truncate_table="approve")) == 0
    assert (rows(target, "orders"), rows(target, "orders_before")) == ([("1",), ("2",)], [("1",)])
    assert elsewhere in [entry.statement for entry in ledger_state(uri).journal.values()]


@pytest.mark.reading_case("A58")
def test_a_statement_that_the_target_refuses_leaves_the_change_waiting(
    place: tuple[Target, str], changefeed: Changefeed, capsys: pytest.CaptureFixture[str]
) -> None:
    target, uri = place
    changefeed.upstream.truncate_table(ORDERS)
    changefeed.upstream.checkpoint()
    assert run_once(changefeed, uri, **policies(truncate_table="approve")) == 3
    assert main(["ddl", "edit", waiting(uri), "TRUNCATE shop.nothing", "--sink", uri]) == 0
    assert run_once(changefeed, uri, **policies(truncate_table="approve")) == 3
    assert "nothing" in capsys.readouterr().err
    assert rows(target, "orders") == [("1",)]
    assert main(["ddl", "skip", waiting(uri), "--sink", uri]) == 0
    assert run_once(changefeed, uri, **policies(truncate_table="approve")) == 0


@pytest.mark.parametrize("verdict", [["approve"], ["skip"], ["edit"]])
def test_a_crash_at_any_step_of_a_decided_change_is_made_good(
    verdict: list[str], place: tuple[Target, str], changefeed: Changefeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that is waiting meets decision after decision until no step is left to die before."""
    target, uri = place
    changefeed.upstream.checkpoint()
    asks = policies(truncate_table="approve", drop_column="approve")
    assert run_once(changefeed, uri, **asks) == 0
    steps = [""]
    for number in range(2, 100):
        changefeed.upstream.truncate_table(ORDERS)
        both(changefeed, number)
        changefeed.upstream.checkpoint()
        assert run_once(changefeed, uri, **asks) == 3
        edited = ["DELETE FROM shop.orders"] if verdict == ["edit"] else []
        assert main(["ddl", *verdict, waiting(uri), *edited, "--sink", uri]) == 0
        points = CrashPoints(fatal=number - 1)
        with monkeypatch.context() as patch, suppress(Crashed):
            install(points, patch)
            assert run_once(changefeed, uri, **asks) == 0
            steps = points.passed
        assert run_once(changefeed, uri, **asks) == 0, points.passed
        kept = range(1, number + 1) if verdict == ["skip"] else [number]
        assert rows(target, "orders") == sorted((str(n),) for n in kept), points.passed
        assert rows(target, "customers") == sorted((str(n),) for n in range(1, number + 1))
        if len(points.passed) < number - 1:
            break
    assert len(steps) >= 4


def test_the_list_shows_what_waits_and_what_was_done(
    place: tuple[Target, str], changefeed: Changefeed, capsys: pytest.CaptureFixture[str]
) -> None:
    _, uri = place
    changefeed.upstream.truncate_table(ORDERS)
    changefeed.upstream.checkpoint()
    assert run_once(changefeed, uri, **policies(truncate_table="approve")) == 3
    capsys.readouterr()
    assert main(["ddl", "list", "--sink", uri]) == 0
    text = capsys.readouterr().out
    assert "CREATE TABLE" in text
    assert f"waiting: {waiting(uri)}" in text
    assert "waits for approval" in text
    assert main(["ddl", "list", "--sink", uri, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["state"] for line in lines] == ["done", "done", "done", "waiting"]
    assert main(["ddl", "skip", "1/nothing", "--sink", uri]) == 2
    assert "Schema changes that wait" in capsys.readouterr().err
    done = next(line["change"] for line in lines if line["state"] == "done")
    assert main(["ddl", "skip", done, "--sink", uri]) == 2
    assert "is done already" in capsys.readouterr().err
    definition = changefeed.toml.with_name("pipeline.yaml")
    definition.write_text(f'source: {{uri: "{changefeed.uri}"}}\nsink: {{uri: "{uri}"}}\npipeline: {{name: default}}\n')
    assert main(["ddl", "list", "--definition", str(definition)]) == 0
    assert f"waiting: {waiting(uri)}" in capsys.readouterr().out
    assert main(["ddl", "list", "--sink", uri, "--name", "other"]) == 2
    assert "there are: default" in capsys.readouterr().err


def test_a_change_whose_rows_nothing_tells_needs_a_resync(
    place: tuple[Target, str], changefeed: Changefeed, capsys: pytest.CaptureFixture[str]
) -> None:
    """RECOVER TABLE brings rows back without events: the table is loaded by hand, and the change skipped."""
    target, uri = place
    changefeed.upstream.checkpoint()
    assert run_once(changefeed, uri) == 0
    version = changefeed.upstream.drop_table(ORDERS)
    schema_file = max((changefeed.writer.root / "shop" / "orders" / "meta").iterdir())
    changefeed.upstream.checkpoint()
    assert run_once(changefeed, uri) == 0
    recovered = version + (1 << 18)
    document = json.loads(schema_file.read_text())
    document |= {"TableVersion": recovered, "Query": "RECOVER TABLE `orders`", "Type": 25}
    name = schema_file.name.replace(str(version), str(recovered))
    schema_file.with_name(name).write_text(json.dumps(document))
    (changefeed.writer.root / "metadata").write_text(json.dumps({"checkpoint-ts": recovered + (1 << 20)}))

    assert run_once(changefeed, uri) == 3
    assert "headrace ddl" in capsys.readouterr().err
    assert ledger_state(uri).tables[ORDERS].status is TableStatus.NEEDS_RESYNC
    assert target.tables() == {("shop", "customers")}
    assert run_once(changefeed, uri) == 3

    assert main(["ddl", "skip", waiting(uri), "--sink", uri]) == 0
    assert run_once(changefeed, uri) == 0
    assert ledger_state(uri).tables[ORDERS].status is TableStatus.RUNNING


def test_the_journal_keeps_the_newest_changes_for_people(place: tuple[Target, str], changefeed: Changefeed) -> None:
    _, uri = place
    changefeed.upstream.checkpoint()
    for _ in range(3):
        assert run_once(changefeed, uri) == 0
        both(changefeed, len(changefeed.upstream.keys(ORDERS)) + 1)
        changefeed.upstream.checkpoint()
    assert len(ledger_state(uri).journal) == 3
