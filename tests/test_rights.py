"""An account of the target needs the rights that docs/connectors/mysql.md grants, and no others.

``validate`` tells what it lacks, and what it has too much.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from following import run_once
from headrace.cli.main import main
from headrace.errors import HeadraceError
from headrace.model.table import Column, SourceTable, TableId, TableSchema
from headrace.sinks.base import Check, CheckState
from headrace.sinks.mysql import checks, excess, open_sink
from headrace.testing.upstream import Delete, Insert
from servers import MariaDb, documented, grant, on_database
from targets import MariaDbTarget
from upstreams import CUSTOMERS, INT, KEY, NAME, ORDERS, Changefeed, shop, shop_goes_on, shop_reopens

pytestmark = pytest.mark.server

PAGE = documented()
ACCOUNT = "repl@'%'"
DATABASES = ("shop", "other", "gone")
PARENTS, CHILDREN, MOVED = (TableId("other", name) for name in ("parents", "children", "clients"))


class Repl:
    """An account of the server, which may do nothing at first."""

    def __init__(self, server: MariaDb) -> None:
        self.server = server
        self.uri = f"{server.scheme}://repl:r3pl@{server.host}:{server.port}/"
        self.run("DROP USER IF EXISTS repl@'%'", "CREATE USER repl@'%' IDENTIFIED BY 'r3pl'")

    def run(self, *statements: str) -> None:
        with self.server.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def grant(self, rights: tuple[str, ...], where: str = "*.*") -> None:
        self.run(grant(rights, where, ACCOUNT))

    def grant_documented(self, databases: tuple[str, ...] = DATABASES) -> None:
        """What has to be granted, without what a DROP DATABASE needs beside that."""
        self.grant(PAGE.ledger, on_database("headrace"))
        for database in databases:
            self.grant(PAGE.database, on_database(database))

    def checks(self, name: str) -> list[Check]:
        with open_sink(self.uri) as sink:
            return [check for check in sink.check() if check.name == name]

    def check(self) -> Check:
        (found,) = self.checks("privileges")
        return found

    def excess(self) -> list[Check]:
        """What the account has too much."""
        found = self.checks("excess privileges")
        assert {check.state for check in found} in ({CheckState.WARNING}, {CheckState.OK})
        return [check for check in found if check.state is CheckState.WARNING]

    def follow(self, advice: str) -> None:
        """Runs the statements in an advice."""
        self.run(*re.findall(r"(?:GRANT|REVOKE|SET DEFAULT ROLE) [^;]+", advice.replace("`DATABASE`", "`shop`")))


@pytest.fixture
def repl(mariadb: MariaDb) -> Iterator[Repl]:
    user = Repl(mariadb)
    yield user
    user.run("DROP USER repl@'%'", "DROP ROLE IF EXISTS wide", "DROP ROLE IF EXISTS narrow")


@pytest.fixture(scope="module")
def changefeed(tmp_path_factory: pytest.TempPathFactory) -> Changefeed:
    """Every kind of statement that a right is needed for: databases, tables, indexes, views, foreign keys, bags, renames."""
    changefeed = Changefeed(tmp_path_factory.mktemp("feed"))
    upstream = changefeed.upstream
    for part in (shop, shop_reopens, shop_goes_on):
        part(changefeed, with_bag=True)
    upstream._table_change(ORDERS, "CREATE INDEX `by_price` ON `shop`.`orders` (`price`)", 7)
    upstream._database_change("shop", "ALTER DATABASE `shop` COLLATE utf8mb4_general_ci", 26)
    upstream.create_database("other")
    upstream.create_table(PARENTS, [KEY, NAME])
    upstream.create_table(CHILDREN, [KEY, Column("parent", INT)])
    key = "ALTER TABLE `other`.`children` ADD CONSTRAINT `fk` FOREIGN KEY (`parent`) REFERENCES `other`.`parents` (`id`)"
    upstream._table_change(CHILDREN, key, 9)
    upstream.execute(Insert(PARENTS, {"id": 1, "name": "p"}), Insert(CHILDREN, {"id": 1, "parent": 1}))
    view = TableSchema(TableId("shop", "v"), (KEY,))
    for begin in ("CREATE VIEW", "CREATE OR REPLACE VIEW"):
        statement = f"{begin} `shop`.`v` AS SELECT `id` FROM `shop`.`orders`"
        changefeed.writer.schema_change(view.table_id, upstream._commit(), statement, view, 21)
    upstream.rename_table(CUSTOMERS, MOVED)
    upstream.execute(Delete(ORDERS, (10,)), Insert(ORDERS, {"id": 70, "price": 7}))
    upstream.create_database("gone")
    upstream.create_table(TableId("gone", "t"), [KEY])
    upstream.drop_database("gone")
    upstream.checkpoint()
    return changefeed


def outcome(changefeed: Changefeed, uri: str) -> tuple[int, str]:
    """How a run ends, and the sentence it ends with."""
    try:
        return run_once(changefeed, uri), ""
    except HeadraceError as error:
        return error.exit_code, str(error)


def needed(right: str) -> bool:
    """Whether a run needs it: UPDATE is for statements of a person, TRIGGER lets validate see triggers, and MariaDB does not use
    REFERENCES."""
    return right not in ("UPDATE", "TRIGGER", "REFERENCES")


def test_the_page_and_validate_name_the_same_rights() -> None:
    assert PAGE.database == PAGE.pattern == PAGE.everywhere == excess.ON_DATABASES
    assert PAGE.ledger == excess.ON_LEDGER
    assert set(checks.FOR_LEDGER) <= set(PAGE.ledger)
    assert set(excess.NEEDED) <= set(PAGE.database)
    assert PAGE.whole_databases == excess.TO_SEE_ALL


def test_an_account_with_the_documented_grants_runs_a_whole_pipeline(repl: Repl, mariadb: MariaDb, changefeed: Changefeed) -> None:
    repl.grant_documented()
    assert repl.check().state is CheckState.OK
    assert not repl.excess()
    assert run_once(changefeed, repl.uri) == 0
    target = MariaDbTarget(mariadb)
    assert {("shop", "v"), ("other", "clients")} <= target.tables()
    assert len(target.rows("other", "children", {"id": "int", "parent": "int"})) == 1


def test_the_grants_that_validate_prints_are_the_documented_ones(repl: Repl, changefeed: Changefeed) -> None:
    check = repl.check()
    assert check.state is CheckState.FAILED
    needed_ones = ", ".join(excess.NEEDED)
    assert check.detail == f"missing: {needed_ones}; SELECT, INSERT, UPDATE, DELETE, CREATE on the ledger's database headrace"
    repl.follow(check.advice)
    for database in ("other", "gone"):
        repl.follow(check.advice.replace("DATABASE", database))
    assert repl.check().state is CheckState.OK
    assert not repl.excess()
    assert run_once(changefeed, repl.uri) == 0


@pytest.mark.parametrize("right", list(filter(needed, PAGE.database)))
def test_without_one_of_them_validate_names_it_and_the_run_says_what_is_lacking(
    right: str, repl: Repl, changefeed: Changefeed, capfd: pytest.CaptureFixture[str]
) -> None:
    repl.grant_documented()
    repl.run(*(f"REVOKE {right} ON {on_database(database)} FROM {ACCOUNT}" for database in DATABASES))
    check = repl.check()
    if "VIEW" in right:
        assert check.state is CheckState.WARNING
        assert check.detail in (f"all but {right}, which views need", f"all but {right}, which views and foreign keys need")
    else:
        assert check.state is CheckState.FAILED
        assert f"missing: {right} on `gone`.*; {right} on `other`.*; {right} on `shop`.*" in check.detail
    code, sentence = outcome(changefeed, repl.uri)
    told = sentence + capfd.readouterr().err
    assert code != 0
    assert f"{right} command denied to user 'repl'" in told or "Access denied for user 'repl'" in told
    assert "Traceback" not in told
    for _ in DATABASES:  # one lacks the right after another
        assert re.search(
            r"If the database `\w+` is to be replicated, run as an administrator of the target: GRANT [^;]*; The next run", told
        ), told
        repl.follow(told)
        code, sentence = outcome(changefeed, repl.uri)
        told = sentence + capfd.readouterr().err
        if "denied" not in told:
            break
    assert (code, "denied" in told) == (0, False), told
    assert not repl.excess()


def test_without_rights_on_the_ledger_the_run_names_the_grant(repl: Repl, changefeed: Changefeed) -> None:
    repl.grant_documented()
    repl.run(f"REVOKE INSERT ON `headrace`.* FROM {ACCOUNT}")
    code, sentence = outcome(changefeed, repl.uri)
    assert code != 0
    assert re.search(r"administrator of the target: GRANT [^;]* ON `headrace`\.\* TO `repl`@`%`; Then start", sentence), sentence
    repl.follow(sentence)
    assert outcome(changefeed, repl.uri) == (0, "")


def test_without_the_other_ones_it_runs_too(repl: Repl, mariadb: MariaDb, changefeed: Changefeed) -> None:
    repl.grant_documented()
    others = "UPDATE, TRIGGER" if repl.server.is_tidb else "UPDATE, TRIGGER, REFERENCES"
    repl.run(*(f"REVOKE {others} ON {on_database(database)} FROM {ACCOUNT}" for database in DATABASES))
    assert repl.check().state is CheckState.OK
    assert run_once(changefeed, repl.uri) == 0
    assert ("shop", "v") in MariaDbTarget(mariadb).tables()


def test_a_pattern_covers_every_database_that_fits(repl: Repl, changefeed: Changefeed) -> None:
    for pattern in ("`shop%`.*", "`o%`.*", "`g%`.*"):
        repl.grant(PAGE.pattern, pattern)
    assert repl.check().detail == "missing: SELECT, INSERT, UPDATE, DELETE, CREATE on the ledger's database headrace"
    repl.grant(PAGE.ledger, on_database("headrace"))
    check = repl.check()
    assert (check.state, check.detail.partition(" only; ")[2]) == (
        CheckState.OK,
        "a new database of the source needs its own grant",
    )
    assert not repl.excess()
    assert run_once(changefeed, repl.uri) == 0


def test_a_pattern_that_may_be_of_replicated_databases_too_is_not_taken_for_the_ledgers_alone(repl: Repl) -> None:
    repl.grant(PAGE.database, on_database("shop"))
    repl.grant(PAGE.ledger[:5], "`head%`.*")
    assert repl.check().detail == "missing: DROP, ALTER, INDEX on `head%`.*"


def test_of_two_patterns_that_match_one_counts_alone(repl: Repl, changefeed: Changefeed, capfd: pytest.CaptureFixture[str]) -> None:
    repl.grant_documented()
    repl.run(f"REVOKE ALL PRIVILEGES ON `shop`.* FROM {ACCOUNT}")
    # TiDB lets the one count that was granted first, MariaDB the more specific one.
    repl.grant(("SELECT",), "`shop`.*")
    repl.grant(PAGE.database, "`sh%`.*")
    assert "INSERT, DELETE, CREATE, DROP, ALTER, INDEX on `shop`.*" in repl.check().detail
    code, sentence = outcome(changefeed, repl.uri)
    assert code != 0
    assert "Access denied for user 'repl'@'%' to database 'shop'" in sentence + capfd.readouterr().err


def test_a_right_that_one_database_lacks_is_named_with_it(repl: Repl) -> None:
    repl.grant(PAGE.database, "`shop`.*")
    repl.grant(PAGE.database[:7], "`a``b`.*")
    repl.grant(PAGE.ledger, "headrace.*")
    assert repl.check().detail == "missing: INDEX on `a``b`.*"


def test_a_database_of_the_source_for_which_nothing_is_granted_is_named(repl: Repl) -> None:
    repl.grant_documented(("shop",))
    tables = [SourceTable(TableSchema(TableId(database, "t"), (KEY,))) for database in ("shop", "my_shop")]
    with open_sink(repl.uri) as sink:
        found = [check for check in sink.check_tables("p", tables) if check.name == "privileges"]
    assert [(check.state, check.detail) for check in found] == [
        (CheckState.FAILED, "nothing is granted on `my_shop`.*, which the source has")
    ]
    repl.follow(found[0].advice)
    with open_sink(repl.uri) as sink:
        assert not [check for check in sink.check_tables("p", tables) if check.name == "privileges"]
    assert not repl.excess()


def test_a_database_of_the_source_without_tables_is_named_too(
    repl: Repl, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    feed = Changefeed(tmp_path / "feed")
    for name in ("shop", "gone", "empty"):
        feed.upstream.create_database(name)
    feed.upstream.create_table(ORDERS, [KEY])
    feed.upstream.drop_database("gone")
    feed.upstream.checkpoint()
    repl.grant_documented(("shop",))
    arguments = ["validate", "--source", feed.uri, "--changefeed", str(feed.toml), "--sink", repl.uri, "--no-spark"]
    assert main(arguments) == 2
    told = capsys.readouterr().out
    assert "nothing is granted on `empty`.*, which the source has GRANT" in told
    assert "`gone`.*" not in told
    repl.grant(PAGE.database, "`empty`.*")
    assert main(arguments) == 0
    assert main([*arguments, "--tables", "shop.*"]) == 0


def test_rights_on_single_tables_are_not_enough(repl: Repl) -> None:
    repl.run("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT)")
    repl.grant(PAGE.ledger, on_database("headrace"))
    repl.grant(("SELECT", "INSERT", "UPDATE", "DELETE"), "shop.t")
    assert repl.check().detail == f"missing: {', '.join(excess.NEEDED)} on whole databases"


def test_a_prepared_ledger_needs_no_create(repl: Repl, mariadb: MariaDb, changefeed: Changefeed) -> None:
    with open_sink(mariadb.uri()) as sink:
        sink.ledger.acquire("another", "source", "", 0)
    repl.grant_documented()
    repl.run(f"REVOKE CREATE, DROP, ALTER, INDEX ON {on_database('headrace')} FROM {ACCOUNT}")
    assert "CREATE on the ledger's database" in repl.check().detail
    assert run_once(changefeed, repl.uri) == 0


def test_rights_on_everything_are_enough_and_validate_tells_what_they_give_away(repl: Repl, changefeed: Changefeed) -> None:
    repl.grant(PAGE.everywhere)
    assert repl.check().detail == "all that is needed, on all databases"
    (found,) = repl.excess()
    assert "on *.*: this includes the database mysql, where the accounts are kept, so it can take any right" in found.detail
    assert run_once(changefeed, repl.uri) == 0
    repl.follow(found.advice)
    assert not repl.excess()
    assert repl.check().state is CheckState.OK


def server_rights(mariadb: MariaDb) -> list[str]:
    """Every right that this server can grant on ``*.*``, and that the page does not grant anywhere."""
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW PRIVILEGES")
        names = {name.upper() for name, *_ in cursor.fetchall()}
    aliases = {"DELETE VERSIONING ROWS": "DELETE HISTORY"}
    return sorted({aliases.get(n, n) for n in names} - {*PAGE.everywhere, *PAGE.whole_databases, "USAGE", "PROXY", "GRANT OPTION"})


def test_validate_tells_what_each_right_beyond_the_documented_ones_gives_away(repl: Repl, mariadb: MariaDb) -> None:
    repl.grant_documented()
    rights = server_rights(mariadb)
    assert {"FILE", "SUPER", "PROCESS", "RELOAD", "SHUTDOWN", "CREATE USER", "SHOW DATABASES"} <= set(rights)
    for right in rights:
        repl.grant((right,))
        (found,) = repl.excess()
        assert re.fullmatch(rf"{right} on \*\.\*: it can [^.]+\.", found.detail), found.detail
        assert "in a way that Headrace never does" not in found.detail
        repl.follow(found.advice)
        assert not repl.excess(), right
    assert repl.check().state is CheckState.OK


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("GRANT SELECT ON `mysql`.* TO {}", r"SELECT on `mysql`\.\*: .* read the hashes of all passwords\."),
        ("GRANT INSERT ON `mysql`.* TO {}", r"INSERT on `mysql`\.\*: .* take any right\."),
        ("GRANT SELECT, UPDATE ON mysql.db TO {}", r"SELECT, UPDATE on `mysql`\.`db`: .*\."),
        ("GRANT DELETE ON `m%`.* TO {}", r"DELETE on `m%`\.\*: this includes the database mysql, .*\."),
        ("GRANT SELECT ON `sys`.* TO {}", r"SELECT on `sys`\.\*: this includes sys, .*\."),
        (
            "GRANT SELECT ON `shop`.* TO {} WITH GRANT OPTION",
            r"GRANT OPTION on `shop`\.\*: .* to any other account\.",
        ),
        ("GRANT USAGE ON *.* TO {} WITH GRANT OPTION", r"GRANT OPTION on \*\.\*: .* give its rights there to any other account\."),
        ("GRANT ALL PRIVILEGES ON `shop`.* TO {}", r"ALL PRIVILEGES on `shop`\.\*: .* store routines .*\."),
        ("GRANT ALL PRIVILEGES ON *.* TO {}", r"ALL PRIVILEGES on \*\.\*: it is an administrator, .*\."),
        ("GRANT LOCK TABLES ON `shop`.* TO {}", r"LOCK TABLES on `shop`\.\*: it can lock everybody else out of tables\."),
    ],
)
def test_validate_tells_what_wider_grants_give_away(given: str, sentence: str, repl: Repl) -> None:
    repl.grant_documented()
    repl.run(given.format(ACCOUNT))
    (found,) = repl.excess()
    assert re.fullmatch(sentence, found.detail), found.detail
    repl.follow(found.advice)
    assert not repl.excess()
    repl.grant_documented()  # a right on everything that was taken back had been more than one of a database
    assert repl.check().state is CheckState.OK


def test_an_underscore_that_stands_for_any_character_is_told(repl: Repl) -> None:
    repl.grant_documented()
    repl.grant(PAGE.database, "`my_shop`.*")
    (found,) = repl.excess()
    assert found.detail == "rights on `my_shop`.*: _ stands for any character, so databases of other names are included."
    repl.follow(found.advice)
    assert not repl.excess()
    assert repl.check().state is CheckState.OK


def test_no_database_loses_its_rights_when_a_grant_with_an_underscore_is_taken_back(repl: Repl) -> None:
    """Whoever follows the advice replaces the grant by one on each database that it covers."""
    repl.run("CREATE DATABASE d1", "CREATE DATABASE d2", "CREATE DATABASE shop_eu", "CREATE DATABASE shopxus")
    repl.grant(PAGE.ledger, on_database("headrace"))
    repl.grant(PAGE.database, "`d_`.*")
    repl.grant(PAGE.database, "`shop_%`.*")
    found = repl.excess()
    assert [re.findall(r"GRANT [^;]* ON (\S+)\.\*", check.advice) for check in found] == [
        ["`d1`", "`d2`"],
        ["`shop\\_%`", "`shopxus`"],
    ]
    assert all("the same on each other database of the source" in check.advice for check in found)
    for check in found:
        repl.follow(check.advice)
    assert not repl.excess()
    tables = [SourceTable(TableSchema(TableId(name, "t"), (KEY,))) for name in ("d1", "d2", "shop_eu", "shopxus")]
    with open_sink(repl.uri) as sink:
        assert not [check for check in sink.check_tables("p", tables) if check.name == "privileges"]


def test_all_rights_but_one_count_as_all_of_them(repl: Repl) -> None:
    repl.run(f"GRANT ALL PRIVILEGES ON *.* TO {ACCOUNT}", f"REVOKE TRIGGER ON *.* FROM {ACCOUNT}")
    (found,) = repl.excess()
    assert found.detail.startswith("ALL PRIVILEGES on *.*")


def test_a_routine_that_may_be_called_is_told(repl: Repl) -> None:
    if repl.server.is_tidb:
        pytest.skip("TiDB has no routines")
    repl.run("CREATE DATABASE shop", "CREATE PROCEDURE shop.p() SELECT 1", f"GRANT EXECUTE ON PROCEDURE shop.p TO {ACCOUNT}")
    (found,) = repl.excess()
    assert found.detail == "EXECUTE on PROCEDURE `shop`.`p`: it can run that with the rights of who made it."
    repl.follow(found.advice)
    assert not repl.excess()


def test_what_a_role_gives_counts_when_it_is_active_by_itself(repl: Repl, mariadb: MariaDb, changefeed: Changefeed) -> None:
    repl.run("CREATE ROLE narrow", f"GRANT narrow TO {ACCOUNT}")
    for statement in [grant(PAGE.ledger, on_database("headrace"), "narrow")] + [
        grant(PAGE.database, on_database(d), "narrow") for d in DATABASES
    ]:
        repl.run(statement)
    check = repl.check()
    assert check.state is CheckState.FAILED
    assert re.search(r"; the role \S*narrow\S* would give them, but it is not active by default$", check.detail)
    repl.follow(check.advice)
    assert repl.check().state is CheckState.OK
    assert not repl.excess()
    assert run_once(changefeed, repl.uri) == 0


def test_what_a_role_gives_too_much_is_told_also_when_it_is_not_active(repl: Repl) -> None:
    repl.grant_documented()
    repl.run("CREATE ROLE narrow", "CREATE ROLE wide", "GRANT FILE ON *.* TO wide", "GRANT wide TO narrow")
    repl.run(f"GRANT narrow TO {ACCOUNT}")
    (found,) = repl.excess()
    assert re.match(r"through the role \S*narrow\S* FILE on \*\.\*: it can read and write files on the server", found.detail)
    repl.follow(found.advice)
    assert not repl.excess()
    assert repl.check().state is CheckState.OK


def test_a_role_that_the_account_may_give_to_others_is_told(repl: Repl) -> None:
    if repl.server.is_tidb:
        pytest.skip("TiDB has no WITH ADMIN OPTION")
    repl.grant_documented()
    repl.run("CREATE ROLE narrow", f"GRANT narrow TO {ACCOUNT} WITH ADMIN OPTION")
    (found,) = repl.excess()
    assert found.detail == "the role `narrow` WITH ADMIN OPTION: it can give the role to any other account."
    repl.follow(found.advice)
    assert not repl.excess()


def test_what_everybody_is_granted_is_told_and_not_taken_for_a_replicated_database(repl: Repl) -> None:
    if repl.server.is_tidb:
        pytest.skip("TiDB grants nothing to everybody")
    repl.grant_documented()
    repl.run("GRANT SELECT, LOCK TABLES ON `scratch`.* TO PUBLIC")
    try:
        (found,) = repl.excess()
        assert repl.check().state is CheckState.OK
        assert found.detail == "LOCK TABLES on `scratch`.*: it can lock everybody else out of tables."
        repl.follow(found.advice)
        assert not repl.excess()
    finally:
        repl.run("REVOKE ALL PRIVILEGES ON `scratch`.* FROM PUBLIC")


def test_triggers_that_the_account_cannot_see_are_told(repl: Repl) -> None:
    repl.grant_documented(("shop",))
    repl.run("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
    table = SourceTable(TableSchema(TableId("shop", "t"), (KEY,)))

    def seen() -> CheckState:
        with open_sink(repl.uri) as sink:
            (found,) = [check for check in sink.check_tables("p", [table]) if check.name == "triggers"]
            return found.state

    assert seen() is CheckState.OK
    repl.run(f"REVOKE TRIGGER ON `shop`.* FROM {ACCOUNT}")
    repl.grant(("TRIGGER",), on_database("other"))
    assert seen() is CheckState.WARNING


def test_what_a_message_quotes_of_the_source_names_no_other_database(
    repl: Repl, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whoever writes to the source chooses names, and the server's message holds them."""
    feed = Changefeed(tmp_path / "feed")
    hostile = TableId("mysql'x", "t")
    feed.upstream.create_database(hostile.database)
    feed.upstream.create_table(hostile, [KEY])
    feed.upstream.checkpoint()
    repl.grant(PAGE.ledger, on_database("headrace"))
    _, sentence = outcome(feed, repl.uri)
    told = sentence + capfd.readouterr().err
    assert "GRANT" in told
    assert "ON `mysql`" not in told
    assert "ON `mysql'x`" in told
