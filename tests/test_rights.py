"""A user of the target needs the rights that ``validate`` prints, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from following import run_once
from headrace.errors import HeadraceError
from headrace.model.table import Column, TableId, TableSchema
from headrace.sinks.base import Check, CheckState
from headrace.sinks.mysql import open_sink
from headrace.testing.upstream import Delete, Insert
from servers import MariaDb
from targets import MariaDbTarget
from upstreams import CUSTOMERS, INT, KEY, NAME, ORDERS, Changefeed, shop, shop_goes_on, shop_reopens

pytestmark = pytest.mark.server

RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER", "INDEX", "CREATE VIEW", "SHOW VIEW")
PARENTS, CHILDREN = TableId("other", "parents"), TableId("other", "children")


class Repl:
    """A user of the server, who may do nothing at first."""

    def __init__(self, server: MariaDb) -> None:
        self._server = server
        self.uri = f"mysql://repl:r3pl@{server.host}:{server.port}/"
        self.run("CREATE OR REPLACE USER repl@'%' IDENTIFIED BY 'r3pl'")

    def run(self, *statements: str) -> None:
        with self._server.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def grant(self, rights: tuple[str, ...], place: str = "*.*") -> None:
        self.run(f"GRANT {', '.join(rights)} ON {place} TO repl@'%'")

    def check(self) -> Check:
        with open_sink(self.uri) as sink:
            return next(check for check in sink.check() if check.name == "privileges")


@pytest.fixture
def repl(mariadb: MariaDb) -> Iterator[Repl]:
    user = Repl(mariadb)
    yield user
    user.run("DROP USER repl@'%'")


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
    upstream.rename_table(CUSTOMERS, TableId("shop", "clients"))
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


def test_a_user_with_the_rights_that_validate_prints_runs_a_whole_pipeline(
    repl: Repl, mariadb: MariaDb, changefeed: Changefeed
) -> None:
    check = repl.check()
    assert check.state is CheckState.FAILED
    assert (
        check.detail
        == f"missing: {', '.join(RIGHTS[:8])}; SELECT, INSERT, UPDATE, DELETE, CREATE on the ledger's database headrace"
    )
    printed = re.match(r"GRANT ([A-Z, ]+) ON \*\.\* TO `repl`@`%`", check.advice)
    assert printed is not None
    assert tuple(printed[1].split(", ")) == RIGHTS
    repl.run(printed[0])
    assert repl.check().state is CheckState.OK
    assert run_once(changefeed, repl.uri) == 0
    target = MariaDbTarget(mariadb)
    assert ("shop", "v") in target.tables()
    assert len(target.rows("other", "children", {"id": "int", "parent": "int"})) == 1


@pytest.mark.parametrize("right", RIGHTS)
def test_without_one_of_them_validate_names_it_and_the_run_says_what_is_lacking(
    right: str, repl: Repl, changefeed: Changefeed, capfd: pytest.CaptureFixture[str]
) -> None:
    repl.grant(tuple(name for name in RIGHTS if name != right))
    check = repl.check()
    if "VIEW" in right:
        assert (check.state, check.detail) == (CheckState.WARNING, f"all but {right}, which views need")
    else:
        assert check.state is CheckState.FAILED
        assert f"missing: {right}" in check.detail
    code, sentence = outcome(changefeed, repl.uri)
    told = sentence + capfd.readouterr().err
    assert code != 0
    assert f"{right} command denied to user 'repl'" in told or "Access denied for user 'repl'" in told
    assert "Traceback" not in told


def test_rights_on_single_databases_are_enough(repl: Repl, mariadb: MariaDb, changefeed: Changefeed) -> None:
    for database in ("shop", "other", "go__"):
        repl.grant(RIGHTS, f"`{database}`.*")
    check = repl.check()
    assert check.detail == "missing: SELECT, INSERT, UPDATE, DELETE, CREATE on the ledger's database headrace"
    repl.grant(("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE"), "`head%`.*")
    assert repl.check().state is CheckState.FAILED  # a pattern may be of replicated databases too
    repl.run("REVOKE ALL ON `head%`.* FROM repl@'%'")
    repl.grant(("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE"), "headrace.*")
    check = repl.check()
    assert check.state is CheckState.OK
    assert "a new database of the source needs its own grant" in check.detail
    assert run_once(changefeed, repl.uri) == 0
    assert ("other", "children") in MariaDbTarget(mariadb).tables()


def test_a_right_that_one_database_lacks_is_named_with_it(repl: Repl) -> None:
    repl.grant(RIGHTS, "`shop`.*")
    repl.grant(RIGHTS[:7], "`a``b`.*")
    repl.grant(RIGHTS, "headrace.*")
    assert repl.check().detail == "missing: INDEX on `a``b`.*"


def test_a_prepared_ledger_needs_no_create(repl: Repl, mariadb: MariaDb, changefeed: Changefeed) -> None:
    with open_sink(mariadb.uri()) as sink:
        sink.ledger.acquire("another", "source", "", 0)
    for database in ("shop", "other", "gone"):
        repl.grant(RIGHTS, f"`{database}`.*")
    repl.grant(("SELECT", "INSERT", "UPDATE", "DELETE"), "headrace.*")
    assert "CREATE on the ledger's database" in repl.check().detail
    assert run_once(changefeed, repl.uri) == 0
