"""Every reason for which a table stops is told with a command that lets it go on."""

from __future__ import annotations

import ast
import io
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

import headrace
from headrace.cli.letters import tables_of as letters_of
from headrace.cli.main import app
from headrace.cli.output import PlainOutput
from headrace.cli.remedies import ways_on
from headrace.cli.status import _print, status_fields
from headrace.cli.stopped_tables import _print as print_table
from headrace.cli.stopped_tables import known_table
from headrace.errors import DefinitionError
from headrace.model.events import unread_statement
from headrace.model.ledger import CutRecord, JournalEntry, JournalState, LedgerState, TableProgress, TableStatus
from headrace.model.outcome import Problem, Remedy
from headrace.model.precision import CommitTsPrecision
from headrace.model.table import TableId

SOURCES = Path(headrace.__file__).parent
T = TableId("shop", "orders")
COMMANDS: Any = typer.main.get_command(app)
ALIKE = TableId("a", "b.c"), TableId("a.b", "c")
STATE = LedgerState("p", tables={name: TableProgress(name, 5) for name in ALIKE}, dead_letters=dict.fromkeys(ALIKE, 1))
STOPPED = [status for status in TableStatus if status.is_stopped]


@cache
def reasons() -> dict[str, Remedy | None]:
    """Each place in the code that makes a problem, with its remedy; none where it is that of another problem."""
    return dict(_reasons())


def _reasons() -> Iterator[tuple[str, Remedy | None]]:
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "Problem(" in text else ():
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Problem"):
                continue
            place = f"{path.relative_to(SOURCES)}:{node.lineno}"
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            match given.get("remedy"):
                case None:
                    yield place, Problem(T, "").remedy
                case ast.Attribute(value=ast.Name(id="Remedy"), attr=name):
                    yield place, Remedy[name]
                case _:
                    yield place, None


def state(status: TableStatus, *entries: JournalEntry) -> LedgerState:
    own = TableProgress(T, 100, after=False, status=status, reason="it cannot go on.")
    return LedgerState("p", checkpoint=200, tables={T: own}, journal={e.identity: e for e in entries})


def waiting(statement: str = "DROP TABLE `orders`") -> JournalEntry:
    return JournalEntry("100/shop.orders/0000abcd", 100, (T,), statement, JournalState.WAITING)


def check_command(way: str) -> None:
    """The command is there, and has the options."""
    words = way.partition("headrace ")[2].replace(", or", "").split()
    command: Any = COMMANDS.commands[words[0]]
    for name in words[1].split("|"):
        options = {option for parameter in command.commands[name].params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, way


def test_the_reasons_are_found() -> None:
    found = reasons()
    assert len(found) > 40
    assert set(Remedy) <= set(found.values()), "each remedy is somebody's"


@pytest.mark.parametrize("place", reasons())
def test_each_reason_is_told_with_a_command(place: str) -> None:
    remedy = reasons()[place]
    for status in STOPPED if remedy is None else [Problem(T, "", remedy=remedy).status]:
        ledger = state(status, waiting()) if status is TableStatus.WAITING else state(status)
        ways = ways_on(ledger.tables[T], ledger)
        assert ways
        for way in ways:
            check_command(way)


@pytest.mark.parametrize("status", STOPPED)
def test_status_shows_the_commands(status: TableStatus) -> None:
    ledger = state(status, waiting())
    out = io.StringIO()
    _print(ledger, "target", PlainOutput(out, io.StringIO()))
    ways = ways_on(ledger.tables[T], ledger)
    # What is decided of a held table's change takes effect only when it is released.
    futile = status in (TableStatus.NEEDS_RESYNC, TableStatus.GONE_WAITING)  # nothing tells the rows, or whose they are
    verdicts = "skip|edit" if futile else "approve|skip|edit"
    decided = f"headrace ddl {verdicts} '100/shop.orders/0000abcd'"
    named = "headrace table release" if status is TableStatus.HELD else decided
    assert any(named in way for way in ways)
    assert all(way in out.getvalue() for way in ways)
    assert status_fields(ledger)["tables"][0]["goes_on"] == list(ways)  # type: ignore[index]


def test_of_a_table_that_never_began_nothing_is_told_in_numbers() -> None:
    """A TSO of 0 is 1970, and a lag of 20,000 days."""
    own, out = TableProgress(T, 0, status=TableStatus.STOPPED), io.StringIO()
    _print(LedgerState("p", tables={T: own}), "target", PlainOutput(out, out))
    print_table(own, (), (), PlainOutput(out, out), held=False)
    told = out.getvalue().splitlines()
    assert told[1] == "nothing applied yet"
    assert told[4].split("  ")[-1] == "nothing applied yet"
    assert told[-1] == "shop.orders: stopped, nothing applied yet"
    assert not [line for line in told if "lag" in line]


def test_a_change_that_cannot_be_read_is_not_offered_for_approval() -> None:
    ledger = state(TableStatus.STOPPED, waiting(unread_statement("shop/orders/meta/schema_100_0000000001.json")))
    assert any("headrace ddl skip|edit" in way for way in ways_on(ledger.tables[T], ledger))


@pytest.mark.parametrize("status", [status for status in TableStatus if not status.is_stopped])
def test_a_table_that_goes_on_needs_no_command(status: TableStatus) -> None:
    ledger = state(status, waiting())
    assert ways_on(ledger.tables[T], ledger) == ()


def test_a_database_is_given_no_command_for_rows() -> None:
    database = TableId("shop")
    entry = JournalEntry(
        "100/shop/0000abcd", 100, (database,), unread_statement("shop/meta/schema_100_1.json"), JournalState.WAITING
    )
    own = TableProgress(database, 90, status=TableStatus.STOPPED, reason="it cannot be read.")
    ways = ways_on(own, LedgerState("p", checkpoint=200, tables={database: own}, journal={entry.identity: entry}))
    assert [way.partition("headrace ")[2] for way in ways] == ["table resume shop", "ddl skip|edit '100/shop/0000abcd'"]


@pytest.mark.parametrize("name", ["or'ders $(x)", "straße", "orders; ls"])
def test_a_shell_takes_the_names_in_commands_as_they_are(name: str) -> None:
    table_id = TableId("shop", name)
    change = f"100/{table_id}/0000abcd"
    own = TableProgress(table_id, 100, after=False, status=TableStatus.STOPPED, reason="it cannot go on.")
    entry = JournalEntry(change, 150, (table_id,), "DROP TABLE `x`", JournalState.WAITING)
    ways = ways_on(own, LedgerState("p", checkpoint=200, tables={table_id: own}, journal={change: entry}))
    words = [shlex.split(way.partition("headrace ")[2].replace(" TSO|latest, or", "")) for way in ways]
    assert {each[2] for each in words} == {str(table_id), change}


@pytest.mark.parametrize("precision", CommitTsPrecision)
def test_status_says_what_is_known_of_commit_timestamps(precision: CommitTsPrecision) -> None:
    cut = CutRecord(9, "2026-01-02T03:04:05+00:00", 0.5, 3, 100, 80, 10, exact=CutRecord.number_of(precision))
    ledger = replace(state(TableStatus.RUNNING), cuts=(cut,))
    assert status_fields(ledger)["cuts"][0]["commit_ts"] == precision.value  # type: ignore[index]
    out = io.StringIO()
    _print(ledger, "target", PlainOutput(out, io.StringIO()))
    told = f"commit ts of the source's rows: {precision.value}; tables are consistent with each other only eventually"
    assert (told in out.getvalue()) is not precision.is_exact


def test_records_of_an_older_headrace_are_read() -> None:
    """They say 1 or 0, of which 0 may mean the millisecond too."""
    read = [CutRecord(9, "2026-01-02T03:04:05+00:00", 0.5, 3, 100, 80, 10, 5, 1, exact).precision for exact in (1, 0)]
    assert read == [CommitTsPrecision.EXACT, CommitTsPrecision.NONE]


@pytest.mark.parametrize("named", [lambda name: known_table(STATE, name).table_id, lambda name: letters_of(STATE, name)[0]])
def test_of_two_tables_whose_names_read_alike_the_quotes_tell_which_is_meant(named: Callable[[str], TableId]) -> None:
    with pytest.raises(
        DefinitionError, match=r"a\.b\.c is ambiguous: it may be table b\.c of database a or table c of database a\.b"
    ) as raised:
        named("a.b.c")
    assert raised.value.hint == "Write it with backquotes: '`a`.`b.c`' or '`a.b`.`c`'."
    assert [named("`a`.`b.c`"), named("`a.b`.`c`")] == [*ALIKE]
