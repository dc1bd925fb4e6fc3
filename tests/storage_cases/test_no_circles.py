"""Whatever a table waits for, the commands that are named for it lead on: none refers to another one that refers back."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from building import Bucket, ledger, tables
from test_holds import execute, table
from test_ownership import only

from headrace.cli.main import main
from headrace.cli.remedies import ways_on
from headrace.engine import retries
from headrace.model.ledger import JournalState, TableStatus
from headrace.model.policy import SchemaChangePolicies
from headrace.model.table import TableId

pytestmark = pytest.mark.pipeline

A = TableId("test", "a")
APPROVING = SchemaChangePolicies.parse_text("drop-table=approve,alter-column=approve")
DAMAGED = "test/a/100/CDC000002.csv"


@pytest.fixture(autouse=True)
def _one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_LOOKS", 0)


def begun(folder: Path) -> Bucket:
    """``a`` and ``o`` have rows up to 120."""
    bucket = Bucket(folder)
    tables(bucket, "a", "o")
    assert bucket.at(120).code == 0
    return bucket


def damaged(bucket: Bucket) -> None:
    """``a`` stops behind 120, and a row of it at 150 is not there."""
    bucket.write(bucket.rows("a/100/2", "I 150 7 x"), b'"I","a"\x00\xff\r\n"')
    assert set(bucket.at(160).stopped) == {"test.a"}


def renamed(bucket: Bucket) -> None:
    """``a`` stops, and gets the name ``z`` at 200; ``z`` has a row at 210."""
    damaged(bucket)
    bucket.schema("z", 200, "id,v", "RENAME TABLE `test`.`a` TO `test`.`z`", 14)
    bucket.rows("z/200/1", "I 210 3 y")
    bucket.at(300)


def load(bucket: Bucket, name: str, *rows: str) -> None:
    execute(bucket, f"CREATE OR REPLACE TABLE test.{name} (id INT PRIMARY KEY, v VARCHAR)")
    execute(bucket, *(f"INSERT INTO test.{name} VALUES {row}" for row in rows))


def ddl(bucket: Bucket, *words: str) -> int:
    return main(["ddl", *words, "--sink", bucket.sink])


def statuses(bucket: Bucket) -> dict[str, TableStatus]:
    return {str(t): own.status for t, own in ledger(bucket).tables.items() if t.table}


@pytest.mark.parametrize("earlier", [False, True])
def test_the_new_name_of_a_stopped_table_is_resynced(tmp_path: Path, earlier: bool) -> None:
    bucket = begun(tmp_path)
    if earlier:  # a change of the stopped table alone, that the loaded rows have behind them too
        bucket.schema("a", 180, "id,v,c", "ALTER TABLE `a` ADD COLUMN `c` INT DEFAULT 7", 5)
    renamed(bucket)
    load(bucket, "z", "(1, 'a1')", "(7, 'x')", "(3, 'y')")
    assert table(bucket, "resync", "test.z", "--at", "300") == 0
    ran = bucket.at(310)
    assert (ran.code, "If the target still has a table test.a, that table is no longer needed" in ran.told) == (0, True)
    bucket.rows("z/200/2", "D 320 1 a1", "I 330 4 n")
    assert bucket.at(400).code == 0
    assert bucket.state("z") == [(3, "y"), (4, "n"), (7, "x")]
    assert statuses(bucket) == {"test.a": TableStatus.GONE, "test.o": TableStatus.RUNNING, "test.z": TableStatus.RUNNING}
    assert all(entry.state.is_settled for entry in ledger(bucket).journal.values())


def test_the_old_name_is_told_where_its_rows_are(tmp_path: Path) -> None:
    bucket = begun(tmp_path)
    renamed(bucket)
    assert table(bucket, "resync", "test.a", "--at", "300") == 0
    assert "moves its rows to test.z. Load that table instead, and resync it." in bucket.at(310).told
    load(bucket, "a", "(1, 'loaded')", "(7, 'x')")
    bucket.write(DAMAGED, b'"I","a","test",150,7,"x"\n')
    assert table(bucket, "resync", "test.a", "--at", "190") == 0  # before the RENAME it is the one
    assert bucket.at(320).code == 0
    assert bucket.state("z") == [(1, "loaded"), (3, "y"), (7, "x")]


def test_two_renames_in_a_row_are_passed_over(tmp_path: Path) -> None:
    bucket = begun(tmp_path)
    damaged(bucket)
    bucket.schema("b", 200, "id,v", "RENAME TABLE `test`.`a` TO `test`.`b`", 14)
    bucket.schema("z", 220, "id,v", "RENAME TABLE `test`.`b` TO `test`.`z`", 14)
    bucket.rows("z/220/1", "I 230 3 y", "I 310 4 n")
    assert set(bucket.at(300).stopped) == {"test.a", "test.b", "test.z"}
    load(bucket, "z", "(7, 'x')", "(3, 'y')")
    assert table(bucket, "resync", "test.z", "--at", "300") == 0
    assert bucket.at(400).code == 0
    assert bucket.state("z") == [(3, "y"), (4, "n"), (7, "x")]
    assert (statuses(bucket)["test.a"], statuses(bucket)["test.b"]) == (TableStatus.GONE, TableStatus.GONE)


@pytest.mark.parametrize("verdict", ["skip", "edit"])
@pytest.mark.parametrize("earlier", [False, True])
def test_a_rename_is_decided_while_its_table_stands_still(tmp_path: Path, verdict: str, earlier: bool) -> None:
    """What the stopped table lacks goes along."""
    bucket = begun(tmp_path)
    if earlier:
        bucket.schema("a", 180, "id,v,c", "ALTER TABLE `a` ADD COLUMN `c` INT DEFAULT 7", 5)
    renamed(bucket)
    if verdict == "skip":
        execute(bucket, "ALTER TABLE test.a RENAME TO z")
        assert ddl(bucket, "skip", "200/") == 0
    else:
        assert ddl(bucket, "edit", "200/", "ALTER TABLE test.a RENAME TO z") == 0
    ran = bucket.at(310)
    assert (ran.code, "it got the rows of test.a" in ran.told) == (3, True)
    assert (statuses(bucket)["test.a"], statuses(bucket)["test.z"]) == (TableStatus.GONE, TableStatus.INCOMPLETE)
    assert all(entry.state.is_settled for entry in ledger(bucket).journal.values())
    assert bucket.at(320).code == 3
    load(bucket, "z", "(7, 'x')", "(3, 'y')")
    assert table(bucket, "resync", "test.z", "--at", "300") == 0
    assert bucket.at(330).code == 0
    assert bucket.state("z") == [(3, "y"), (7, "x")]


def test_a_statement_in_place_of_a_rename_that_the_target_refuses_is_told(tmp_path: Path) -> None:
    """It is not tried for ever."""
    bucket = begun(tmp_path)
    renamed(bucket)
    assert ddl(bucket, "edit", "200/", "ALTER TABLE test.none RENAME TO z") == 0
    ran = bucket.at(310)
    assert (ran.code, "none" in ran.stopped["test.z"]) == (3, True)
    assert bucket.state("a") is not None


def test_a_rename_and_both_its_names_may_be_asked_about_at_once(tmp_path: Path) -> None:
    bucket = begun(tmp_path)
    renamed(bucket)
    load(bucket, "z", "(7, 'x')", "(3, 'y')")
    assert table(bucket, "resync", "test.z", "--at", "300") == 0
    assert table(bucket, "resync", "test.a", "--at", "190") == 0
    assert ddl(bucket, "skip", "200/") == 0
    assert table(bucket, "hold", "test.a") == 0
    assert bucket.at(310).code == 0
    assert bucket.state("z") == [(3, "y"), (7, "x")]
    assert (statuses(bucket)["test.a"], ledger(bucket).requests) == (TableStatus.GONE, {})
    assert not ledger(bucket).decisions


def test_a_rename_of_two_tables_is_decided_and_only_the_stopped_one_lacks_rows(tmp_path: Path) -> None:
    bucket = begun(tmp_path)
    damaged(bucket)
    bucket.schema("z", 200, "id,v", "RENAME TABLE `test`.`a` TO `test`.`z`, `test`.`o` TO `test`.`y`", 14)
    bucket.at(300)
    execute(bucket, "ALTER TABLE test.a RENAME TO z", "ALTER TABLE test.o RENAME TO y")
    assert ddl(bucket, "skip", "200/") == 0
    assert bucket.at(310).code == 3
    assert statuses(bucket) == {
        "test.a": TableStatus.GONE,
        "test.o": TableStatus.GONE,
        "test.y": TableStatus.RUNNING,
        "test.z": TableStatus.INCOMPLETE,
    }
    assert bucket.state("y") == [(1, "o1"), (2, "o2")]


def test_a_table_that_was_just_found_stopped_is_not_taken_for_one_that_lacks_rows(tmp_path: Path) -> None:
    """The decision was made when the table was well: it may be so again in a moment."""
    bucket = begun(tmp_path)
    policies = SchemaChangePolicies.parse_text("rename-table=approve")
    bucket.schema("z", 200, "id,v", "RENAME TABLE `test`.`a` TO `test`.`z`", 14)
    assert bucket.at(190, policies=policies).code == 0
    assert bucket.at(300, policies=policies).code == 3
    assert ledger(bucket).tables[A].checkpoint == 200
    execute(bucket, "ALTER TABLE test.a RENAME TO z")
    assert ddl(bucket, "skip", "200/") == 0
    assert bucket.at(310, policies=policies).code == 0
    assert statuses(bucket)["test.z"] is TableStatus.RUNNING


# Every reason to stop, with every command that is named for it.

Story = Callable[[Bucket], None]


def refused(bucket: Bucket) -> None:
    """The target has the column already, which somebody else made."""
    execute(bucket, "ALTER TABLE test.a ADD COLUMN c INT")
    bucket.schema("a", 200, "id,v,c", "ALTER TABLE `a` ADD COLUMN `c` INT DEFAULT 7", 5)
    bucket.at(300)


def asked(bucket: Bucket) -> None:
    bucket.schema("a", 200, "id,v", "DROP TABLE `test`.`a`", 4)
    bucket.at(300, policies=APPROVING)


def unseen(bucket: Bucket) -> None:
    """Needs a resync: rows came that no file tells."""
    bucket.schema("a", 200, "id,v", "FLASHBACK TABLE `test`.`a`", 62)
    bucket.at(300)


def lacking(bucket: Bucket) -> None:
    bucket.rows("a/100/4", "I 240 4 d")
    bucket.rows("a/100/5", "I 250 5 e")
    bucket.at(300, **only("*.*,!test.a"))
    (bucket.root / "test/a/100/CDC000004.csv").unlink()
    bucket.at(320)


def held(bucket: Bucket) -> None:
    assert table(bucket, "hold", "test.a") == 0
    bucket.at(300)


def held_before_a_rename(bucket: Bucket) -> None:
    assert table(bucket, "hold", "test.a") == 0
    bucket.schema("z", 200, "id,v", "RENAME TABLE `test`.`a` TO `test`.`z`", 14)
    bucket.at(300)


def stopped_and_held(bucket: Bucket) -> None:
    damaged(bucket)
    held(bucket)


def found_late(bucket: Bucket) -> None:
    """Gone, and a schema change from before its end comes to light."""
    bucket.schema("a", 200, "id,v", "DROP TABLE `test`.`a`", 4)
    assert bucket.at(300).code == 0
    bucket.schema("a", 180, "id,v,c", "ALTER TABLE `a` ADD COLUMN `c` INT", 5)
    bucket.at(310)


def unreadable(bucket: Bucket) -> None:
    path = bucket.schema("a", 200, "id,v", "TRUNCATE TABLE `test`.`a`", 11)
    bucket.write(path, b"{")
    bucket.at(300)


STORIES: dict[str, Story] = {
    story.__name__: story
    for story in (
        damaged,
        renamed,
        refused,
        asked,
        unseen,
        lacking,
        held,
        held_before_a_rename,
        stopped_and_held,
        found_late,
        unreadable,
    )
}
_COMMAND = re.compile(r"headrace (table|ddl) ([a-z|]+)(?: (\S+))?")


def named(bucket: Bucket) -> list[list[str]]:
    """Each command that ``headrace table list`` and ``status`` name for tables that are stopped, with its arguments."""
    state = ledger(bucket)
    found: list[list[str]] = []
    for table_id, own in state.tables.items():
        for way in ways_on(own, state):
            match = _COMMAND.search(way)
            assert match is not None, way
            group, verbs, _ = match.groups()
            for verb in verbs.split("|"):
                if verb == "list":
                    continue
                if group == "ddl":
                    change = way.partition("'")[2].rstrip("'")
                    found.append(["ddl", verb, change, *(["SELECT 1"] if verb == "edit" else [])])
                elif verb == "skip":
                    found.append(["table", verb, str(table_id), "--to", "latest", "--yes"])
                elif verb == "resync":
                    below = re.search(r"below (\d+)", way)
                    at = int(below[1]) - 1 if below else state.checkpoint
                    found.append(["table", verb, str(table_id), "--at", str(at)])
                else:
                    found.append(["table", verb, str(table_id)])
    return found


def cases() -> list[tuple[str, int]]:
    return [(name, number) for name in STORIES for number in range(8)]


@pytest.mark.parametrize(("name", "number"), cases())
def test_each_command_that_is_named_leads_on(name: str, number: int, tmp_path: Path) -> None:
    """After it the table runs or is gone, or the change is over. What is to be repaired first is repaired."""
    bucket = begun(tmp_path)
    STORIES[name](bucket)
    before = ledger(bucket)
    assert any(own.status.is_stopped for own in before.tables.values())
    commands = named(bucket)
    assert commands, "a table that is stopped has a way on"
    assert len(commands) <= 8
    if number >= len(commands):
        return
    command = commands[number]
    if command[1] in ("resume", "approve", "release"):
        repaired(bucket, name)
    if command[1] == "resync":
        load(bucket, command[2].partition(".")[2], "(1, 'loaded')")
    assert main([*command, "--sink", bucket.sink]) == 0
    policies = {"policies": APPROVING} if name == "asked" else {}
    checkpoint = before.checkpoint + 10
    ran = bucket.at(checkpoint, **policies)
    bucket.at(checkpoint + 10, **policies)
    after = ledger(bucket)
    if command[0] == "ddl":
        assert after.journal[command[2]].state is (JournalState.DONE if command[1] != "skip" else JournalState.SKIPPED), ran.told
    else:
        own = after.tables[TableId(*command[2].split("."))]
        # A damaged file with no later one that shows its end is named once more, with the command that gives it up.
        whole = f"headrace table skip {own.table_id} --file"
        assert own.status in (TableStatus.RUNNING, TableStatus.GONE) or whole in own.reason, (command, own, ran.told)
    assert not after.decisions
    assert not after.holds.keys() & {TableId(*command[2].split("."))}


def repaired(bucket: Bucket, name: str) -> None:
    """What stopped the table is mended."""
    if (bucket.root / DAMAGED).exists():
        bucket.write(DAMAGED, b'"I","a","test",150,7,"x"\n')
    if name == "refused":
        execute(bucket, "ALTER TABLE test.a DROP COLUMN c")
    if name == "unreadable":
        (broken,) = (bucket.root / "test/a/meta").glob("schema_200_*")
        broken.unlink()
        bucket.schema("a", 200, "id,v", "TRUNCATE TABLE `test`.`a`", 11)
