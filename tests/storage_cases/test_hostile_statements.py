"""Hostile statements that run in part, or as TiDB reads them: what others have in the target stays as it was, and what must not
reach the target does not. Those that run nowhere are in ``tests/engine/test_objections.py``."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from building import COLUMNS, Bucket

from headrace.ddl.statement import StatementKind, read_statement
from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.faults import Moment, Step
from headrace.testing.faults import Crashed, armed, crash_at
from headrace.transform.filters import TableFilter
from hostile import FILTER, Ends, HostileStatement, hostile_statements
from person import Person
from places import Place
from quick import without_pauses

pytestmark = pytest.mark.pipeline

OPTIONS: dict[str, Any] = {"includes": TableFilter.parse(FILTER).includes, "filter_text": FILTER}
RUN_IN_PART = [statement for statement in hostile_statements() if statement.ends is not Ends.REFUSED]
THEIRS = ('"shop"."secrets"', '"private"."people"')
MULTI = 60
X = {"ColumnName": "x", "ColumnType": "INT", "ColumnPrecision": "11"}


class Scene:
    """A target in which somebody has tables of their own, beside those of a pipeline."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.target, self.uri = place.fresh()
        self.person = Person.at(place, self.target)
        self.bucket = Bucket(folder)
        self.is_mariadb = place.mariadb is not None
        for database in ("shop", "private"):
            self.person.run(f'CREATE {"DATABASE" if self.is_mariadb else "SCHEMA"} "{database}"')
        for table in THEIRS:
            self.person.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, secret INT)", f"INSERT INTO {table} VALUES (1, 42)")

    def theirs(self) -> list[object]:
        return [(self.shown(table), self.person.run(f"SELECT * FROM {table}")) for table in THEIRS]

    def shown(self, table: str) -> str:
        """How the target shows a table or view; empty where there is none, and in DuckDB."""
        with suppress(Exception):
            return str(self.person.run(f"SHOW CREATE TABLE {table}")[0][1]) if self.is_mariadb else ""
        return ""

    def meets(self, statement: HostileStatement) -> int:
        """Runs what stands before the statement, and the statement; the exit code."""
        creates = read_statement(statement.sql, "shop").kind is StatementKind.CREATE_TABLE
        for table in ("customers",) if creates else ("customers", "orders"):
            self.bucket.create(table, database="shop")
            self.bucket.rows(f"{table}/100/1", "I 110 1 a", database="shop")
        assert self._at(120) == EXIT_OK
        columns = [COLUMNS["id"]] if creates else [COLUMNS["id"], COLUMNS["v"]]
        columns += [X] if "COLUMN x" in statement.sql else []
        own = statement.own
        self.bucket.schema(own.table, 200, tuple(columns), statement.sql, database=own.database)
        return self._at(300)

    def _at(self, checkpoint: int) -> int:
        return self.bucket.at(checkpoint, sink=self.uri, **OPTIONS).code


@pytest.mark.parametrize("statement", RUN_IN_PART, ids=lambda statement: statement.name)
def test_what_others_have_stays_as_it_was(statement: HostileStatement, place: Place, tmp_path: Path) -> None:
    scene = Scene(place, tmp_path)
    before = scene.theirs()
    assert scene.meets(statement) in (EXIT_OK, EXIT_TABLE_STOPPED)
    assert scene.theirs() == before
    for name in ("orders", "v"):
        shown = scene.shown(f'"shop"."{name}"').replace("`", "").replace("DEFINER=root@localhost", "")
        assert not statement.never or statement.never.lower() not in shown.lower()
        assert "secrets" not in shown
        assert "people" not in shown


def test_no_word_that_tidb_ignores_deletes_rows_or_changes_values(place: Place, tmp_path: Path) -> None:
    scene = Scene(place, tmp_path)
    for number in range(2):
        scene.bucket.create(f"t{number}", database="shop")
        scene.bucket.rows(f"t{number}/100/1", "I 110 1 a", "I 111 2 a", database="shop")
    assert scene._at(120) == EXIT_OK
    scene.bucket.schema("t0", 200, "id,v", "ALTER IGNORE TABLE `t0` ADD UNIQUE INDEX `u` (`v`)", database="shop")
    partitions = "PARTITION BY RANGE (`id`) (PARTITION `p` VALUES LESS THAN (2))"
    scene.bucket.schema("t1", 200, "id,v", f"ALTER IGNORE TABLE `t1` {partitions}", database="shop")
    assert scene._at(300) == (EXIT_TABLE_STOPPED if scene.is_mariadb else EXIT_OK)
    for number in range(2):
        assert scene.person.run(f'SELECT id, v FROM "shop"."t{number}" ORDER BY id') == [(1, "a"), (2, "a")]


def test_a_foreign_key_to_a_table_of_others_is_left_out_and_told(place: Place, tmp_path: Path) -> None:
    scene = Scene(place, tmp_path)
    scene.bucket.create("customers", database="shop")
    statement = (
        "CREATE TABLE `orders` (`id` INT PRIMARY KEY, `uk` INT NOT NULL, "
        "CONSTRAINT `s` FOREIGN KEY (`uk`) REFERENCES `secrets` (`id`) ON DELETE RESTRICT, "
        "CONSTRAINT `c` FOREIGN KEY (`uk`) REFERENCES `shop`.`customers` (`id`))"
    )
    scene.bucket.schema("orders", 110, "id,uk", statement, 3, database="shop")
    ran = scene.bucket.at(300, sink=scene.uri, **OPTIONS)
    assert ran.code == EXIT_OK
    if scene.is_mariadb:
        assert 'CONSTRAINT "c" FOREIGN KEY' in scene.shown('"shop"."orders"')
        assert "secrets" not in scene.shown('"shop"."orders"')
        assert "REFERENCES `secrets` (`id`) ON DELETE RESTRICT was left out: this table or the one that it refers to" in ran.told


def test_a_column_that_would_take_minutes_to_compute_for_one_row_stops_its_table_alone(place: Place, tmp_path: Path) -> None:
    scene = Scene(place, tmp_path)
    scene.bucket.create("customers", database="shop")
    expression = "CHAR_LENGTH(REGEXP_REPLACE(REPEAT(`v`, 4000000), 'a', 'b'))"
    statement = f"CREATE TABLE `orders` (`id` INT PRIMARY KEY, `v` VARCHAR(16), `x` INT AS ({expression}) STORED)"
    scene.bucket.schema("orders", 110, (COLUMNS["id"], COLUMNS["v"], X), statement, 3, database="shop")
    scene.bucket.rows("orders/110/1", "I 120 1 aaaa 16000000", database="shop")
    scene.bucket.rows("customers/100/1", "I 130 1 a", database="shop")
    ran = scene.bucket.at(300, sink=scene.uri, **OPTIONS)
    assert scene.person.run('SELECT id FROM "shop"."customers"') == [(1,)]
    if scene.is_mariadb:
        assert set(ran.stopped) == {"shop.orders"}
        assert "REPEAT(`v`, 4000000) may make a text of more than 65,536 characters" in ran.stopped["shop.orders"]
    else:  # where STORED columns are plain ones
        assert scene.person.run('SELECT id, x FROM "shop"."orders"') == [(1, 16_000_000)]


STOPPING = {
    "a column without backquotes": ("_v", "CHAR_LENGTH(REPLACE(REPEAT(_v, 60000), 'a', 'bbb'))"),
    "a number made of a date": ("v", "CHAR_LENGTH(REPEAT('x', LEAST(CAST(`v` AS DATE), 101) DIV 10))"),
    "JSON with many keys": ("v", "CHAR_LENGTH(JSON_MERGE_PATCH(REPEAT(`v`, 1900), `v`))"),
    "quotes in quotes": (
        "v",
        f"CHAR_LENGTH({'JSON_SET(JSON_ARRAY(0), _utf8mb4$[0], ' * 20}`v`{')' * 20})".replace("$[0]", "'$[0]'"),
    ),
    "a chain that overflows the stack": ("v", "+".join(["`v`"] * 4_000)),
}


@pytest.mark.parametrize("expression", STOPPING)
def test_an_expression_that_costs_its_server_too_much_stops_its_table_alone(place: Place, tmp_path: Path, expression: str) -> None:
    scene = Scene(place, tmp_path)
    scene.bucket.create("customers", database="shop")
    name, text = STOPPING[expression]
    column = COLUMNS["v"] | {"ColumnName": name}
    statement = f"CREATE TABLE `orders` (`id` INT PRIMARY KEY, {name} VARCHAR(16), `x` INT AS ({text}) STORED)"
    scene.bucket.schema("orders", 110, (COLUMNS["id"], column, X), statement, 3, database="shop")
    scene.bucket.rows("orders/110/1", "I 120 1 aaaa 1", database="shop")
    scene.bucket.rows("customers/100/1", "I 130 1 a", database="shop")
    ran = scene.bucket.at(300, sink=scene.uri, **OPTIONS)
    assert scene.person.run('SELECT id FROM "shop"."customers"') == [(1,)]
    if scene.is_mariadb:
        assert set(ran.stopped) == {"shop.orders"}


def test_functions_in_functions_hold_up_nobody(place: Place, tmp_path: Path) -> None:
    scene = Scene(place, tmp_path)
    scene.bucket.create("customers", database="shop")
    statement = f"CREATE TABLE `orders` (`id` INT PRIMARY KEY, `x` VARCHAR(9) AS ({'TRIM(' * 40}'b'{')' * 40}) STORED)"
    column = COLUMNS["v"] | {"ColumnName": "x"}
    scene.bucket.schema("orders", 110, (COLUMNS["id"], column), statement, 3, database="shop")
    scene.bucket.rows("customers/100/1", "I 130 1 a", database="shop")
    scene.bucket.at(300, sink=scene.uri, **OPTIONS)
    assert scene.person.run('SELECT id FROM "shop"."customers"') == [(1,)]


def test_a_foreign_key_to_a_table_that_is_not_there_binds_none_that_somebody_makes_later(place: Place, tmp_path: Path) -> None:
    scene = Scene(place, tmp_path)
    scene.bucket.create("customers", database="shop")
    keys = (
        "CONSTRAINT `l` FOREIGN KEY (`uk`) REFERENCES `later` (`id`) ON DELETE RESTRICT, "
        "CONSTRAINT `o` FOREIGN KEY (`uk`) REFERENCES `orders` (`id`), "
        "CONSTRAINT `c` FOREIGN KEY (`uk`) REFERENCES `customers` (`id`)"
    )
    scene.bucket.schema(
        "orders", 110, "id,uk", f"CREATE TABLE `orders` (`id` INT PRIMARY KEY, `uk` INT NOT NULL, {keys})", 3, database="shop"
    )
    scene.bucket.schema("customers", 120, "id,v", "DROP TABLE `customers`", 4, database="shop")
    added = "ALTER TABLE `orders` ADD CONSTRAINT `d` FOREIGN KEY (`uk`) REFERENCES `customers` (`id`)"
    scene.bucket.schema("orders", 130, "id,uk", added, 9, database="shop")
    scene.bucket.rows("orders/130/1", "I 140 1 5", database="shop")
    ran = scene.bucket.at(300, sink=scene.uri, **OPTIONS)
    assert ran.code == EXIT_OK
    if scene.is_mariadb:
        assert (
            ran.told.count("was left out: this table or the one that it refers to is not one of this pipeline's, or not there.")
            == 2
        )
        shown = scene.shown('"shop"."orders"')
        assert [name for name in "locd" if f'CONSTRAINT "{name}"' in shown] == ["o"]
    scene.person.run('CREATE TABLE "shop"."later" (id INT PRIMARY KEY)', 'INSERT INTO "shop"."later" VALUES (5)')
    scene.person.run('DELETE FROM "shop"."later"')


GONE = {
    "dropped": ("customers", "id,v", "DROP TABLE `customers`", 4),
    "with its database": ("", (), "DROP DATABASE `shop`", 2),
}


@pytest.mark.parametrize("gone", list(GONE))
@pytest.mark.parametrize("killed", [None, *Moment])
def test_a_foreign_key_does_not_outlive_its_table(
    place: Place, tmp_path: Path, gone: str, killed: Moment | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TiDB keeps it, and with ``foreign_key_checks`` off so does the target: it would bind what somebody makes under that name."""
    without_pauses(monkeypatch)
    scene = Scene(place, tmp_path)
    child = "shop" if gone == "dropped" else "test"
    scene.bucket.create("customers", database="shop")
    scene.bucket.create("kept", database=child)
    keys = (
        "CONSTRAINT `c` FOREIGN KEY (`uk`) REFERENCES `shop`.`customers` (`id`) ON DELETE RESTRICT, "
        "CONSTRAINT `k` FOREIGN KEY (`uk`) REFERENCES `kept` (`id`)"
    )
    created = f"CREATE TABLE `orders` (`id` INT PRIMARY KEY, `uk` INT NOT NULL, {keys})"
    scene.bucket.schema("orders", 110, "id,uk", created, 3, database=child)
    scene.bucket.rows("orders/110/1", "I 120 1 5", database=child)
    scene.bucket.rows("kept/100/1", "I 120 5 a", database=child)
    options = {"includes": lambda table_id: True, "filter_text": ""}
    assert scene.bucket.at(150, sink=scene.uri, **options).code == EXIT_OK
    if scene.is_mariadb:
        theirs = f'CREATE TABLE "private"."t" (id INT, CONSTRAINT t FOREIGN KEY (id) REFERENCES {child}.kept (id))'
        scene.person.run(theirs)
    table, columns, statement, kind = GONE[gone]
    scene.bucket.schema(table, 200, columns, statement, kind, database="shop")
    scene.bucket.checkpoint(300)
    if killed is not None and scene.is_mariadb:
        with armed(crash_at(killed, Step.MYSQL_STATEMENT)), pytest.raises(Crashed):
            scene.bucket.run(sink=scene.uri, **options)
    ran = scene.bucket.run(sink=scene.uri, **options)
    assert (ran.code, ran.stopped) == (EXIT_OK, {})
    if scene.is_mariadb:
        shown = scene.shown(f'"{child}"."orders"')
        assert [name for name in "ck" if f'CONSTRAINT "{name}"' in shown] == ["k"]
        assert 'CONSTRAINT "t"' in scene.shown('"private"."t"')
        told = "its foreign key c was dropped: the source dropped shop.customers, which it refers to."
        assert (told in ran.told) == (killed is not Moment.AFTER)
        scene.person.run('CREATE DATABASE IF NOT EXISTS "shop"')
    else:
        scene.person.run('CREATE SCHEMA IF NOT EXISTS "shop"')
    scene.person.run('CREATE TABLE "shop"."customers" (id INT PRIMARY KEY)', 'INSERT INTO "shop"."customers" VALUES (5)')
    scene.person.run('DELETE FROM "shop"."customers"')


def test_a_foreign_key_follows_its_table_to_another_name(place: Place, tmp_path: Path) -> None:
    scene = Scene(place, tmp_path)
    scene.bucket.create("customers", database="shop")
    key = "CONSTRAINT `c` FOREIGN KEY (`uk`) REFERENCES `customers` (`id`)"
    created = f"CREATE TABLE `orders` (`id` INT PRIMARY KEY, `uk` INT NOT NULL, {key})"
    scene.bucket.schema("orders", 110, "id,uk", created, 3, database="shop")
    scene.bucket.schema("buyers", 120, "id,v", "RENAME TABLE `shop`.`customers` TO `shop`.`buyers`", 14, database="shop")
    scene.bucket.schema("buyers", 130, "id,v", "TRUNCATE TABLE `buyers`", 11, database="shop")
    assert scene.bucket.at(300, sink=scene.uri, includes=lambda table_id: True, filter_text="").code == EXIT_OK
    if scene.is_mariadb:
        assert 'REFERENCES "buyers"' in scene.shown('"shop"."orders"')


def test_a_foreign_key_that_was_left_out_can_be_dropped(place: Place, tmp_path: Path) -> None:
    scene = Scene(place, tmp_path)
    statement = "CREATE TABLE `orders` (`id` INT PRIMARY KEY, CONSTRAINT `l` FOREIGN KEY (`id`) REFERENCES `later` (`id`))"
    scene.bucket.schema("orders", 110, "id", statement, 3, database="shop")
    scene.bucket.schema(
        "orders", 120, "id,v", "ALTER TABLE `orders` DROP FOREIGN KEY `L`, ADD COLUMN `v` INT", MULTI, database="shop"
    )
    ran = scene.bucket.at(300, sink=scene.uri, **OPTIONS)
    assert ran.code == EXIT_OK
    assert scene.target.columns("shop", "orders") == {"id", "v"}
    if scene.is_mariadb:
        server = "TiDB" if place.mariadb and place.mariadb.is_tidb else "MariaDB"
        assert f"DROP FOREIGN KEY `L` was left out: the table in {server} has no such key." in ran.told


def test_a_view_over_a_table_that_the_pipeline_did_not_make_waits(place: Place, tmp_path: Path) -> None:
    scene = Scene(place, tmp_path)
    scene.person.run('CREATE TABLE "shop"."theirs" (id INT)')
    scene.bucket.create("orders", database="shop")
    scene.bucket.schema("v", 110, "id", "CREATE VIEW `v` AS SELECT `id` FROM `shop`.`theirs`", 21, database="shop")
    ran = scene.bucket.at(300, sink=scene.uri, **OPTIONS)
    if scene.is_mariadb:
        assert "already has shop.theirs, which this pipeline did not make" in ran.stopped["shop.v"]
    assert ("shop", "v") not in scene.target.tables()


def test_a_statement_for_a_database_that_is_not_there_meets_no_table_of_another_one(place: Place, tmp_path: Path) -> None:
    scene = Scene(place, tmp_path)
    scene.bucket.create("orders", database="shop")
    assert scene.bucket.at(120, sink=scene.uri).code == EXIT_OK
    scene.bucket.schema("orders", 200, "id,v", "DROP TABLE IF EXISTS `orders`", 4, database="gone")
    scene.bucket.schema("orders", 210, "id,v,c", "ALTER TABLE `orders` ADD COLUMN `c` INT DEFAULT 7", 5, database="shop")
    scene.bucket.at(300, sink=scene.uri)
    assert "c" in scene.target.columns("shop", "orders")


def test_a_database_without_rights_stops_its_tables_and_no_others(place: Place, tmp_path: Path) -> None:
    scene = Scene(place, tmp_path)
    for table, database in (("orders", "shop"), ("t", "nobody_s")):
        scene.bucket.create(table, database=database)
        scene.bucket.rows(f"{table}/100/1", "I 110 1 a", database=database)
    ran = scene.bucket.at(120, sink=scene.uri)
    assert ran.code == (EXIT_TABLE_STOPPED if scene.is_mariadb else EXIT_OK)
    assert scene.person.run('SELECT id FROM "shop"."orders"') == [(1,)]
    if scene.is_mariadb:
        assert "denied" in ran.stopped["nobody_s.t"]


def test_views_over_views_that_double_with_each_level_wait(place: Place, tmp_path: Path) -> None:
    scene = Scene(place, tmp_path)
    scene.bucket.create("v0", database="shop")
    for number in range(1, 12):
        twice = f"SELECT `id` FROM `v{number - 1}` UNION SELECT `id` FROM `v{number - 1}`"
        scene.bucket.schema(f"v{number}", 100 + number, "id", f"CREATE VIEW `v{number}` AS {twice}", 21, database="shop")
    ran = scene.bucket.at(300, sink=scene.uri)
    if scene.is_mariadb:
        assert "has more than 200 tables and SELECTs" in ran.stopped["shop.v7"]
        assert {("shop", f"v{number}") for number in range(7)} == {name for name in scene.target.tables() if name[1][0] == "v"}


def test_a_view_that_its_server_cannot_open_stops_what_names_it_and_nothing_else(place: Place, tmp_path: Path) -> None:
    scene = Scene(place, tmp_path)
    if scene.is_mariadb:
        scene.person.run('CREATE DEFINER=nobody@nowhere VIEW "shop"."nodef" AS SELECT 1 AS id')
    scene.bucket.create("orders", database="shop")
    scene.bucket.schema("v", 110, "id", "CREATE VIEW `v` AS SELECT `id` FROM `nodef`", 21, database="shop")
    scene.bucket.rows("orders/100/1", "I 120 1 a", database="shop")
    scene.bucket.at(300, sink=scene.uri, **OPTIONS)
    assert scene.person.run('SELECT id FROM "shop"."orders"') == [(1,)]


SECRET: dict[str, Any] = {"includes": TableFilter.parse("*.*,!shop.secret").includes, "filter_text": "*.*,!shop.secret"}
PARTITIONED = (
    "CREATE TABLE `p` (`id` INT PRIMARY KEY, `v` VARCHAR(16)) PARTITION BY RANGE (`id`) (PARTITION `p0` VALUES LESS THAN (9))"
)
EXCHANGE = "ALTER TABLE `p` EXCHANGE PARTITION `p0` WITH TABLE `secret`"


def left_out_later(place: Place, folder: Path) -> Scene:
    """``secret`` and ``p`` were made by the pipeline; since then ``--tables`` leaves ``secret`` out."""
    scene = Scene(place, folder)
    scene.bucket.create("secret", database="shop")
    scene.bucket.rows("secret/100/1", "I 110 1 classified", database="shop")
    scene.bucket.schema("p", 102, "id,v", PARTITIONED, 3, database="shop")
    scene.bucket.rows("p/102/1", "I 110 2 mine", database="shop")
    assert scene.bucket.at(120, sink=scene.uri).code == EXIT_OK
    assert scene.bucket.at(150, sink=scene.uri, **SECRET).code == EXIT_OK
    return scene


@pytest.mark.parametrize("later", [0, 1, 2])
def test_no_later_statement_lets_a_view_read_a_table_that_is_left_out(place: Place, tmp_path: Path, later: int) -> None:
    """An EXCHANGE or a RENAME that comes later lets rows of it be followed, and no more."""
    scene = left_out_later(place, tmp_path)
    scene.bucket.schema("v", 200, "id,v", "CREATE VIEW `v` AS SELECT `id`, `v` FROM `secret`", 21, database="shop")
    for commit_ts in (250, 260)[:later]:
        scene.bucket.schema("p", commit_ts, "id,v", EXCHANGE, 42, database="shop")
    ran = scene.bucket.at(300, sink=scene.uri, **SECRET)
    assert ran.code == EXIT_TABLE_STOPPED
    assert "it names shop.secret, which --tables leaves out" in ran.stopped["shop.v"]
    with pytest.raises(Exception, match="v"):
        scene.person.run('SELECT * FROM "shop"."v"')


def test_no_rename_of_several_tables_lets_itself_reach_a_table_that_is_left_out(place: Place, tmp_path: Path) -> None:
    scene = left_out_later(place, tmp_path)
    statement = "RENAME TABLE `secret` TO `x`, `x` TO `secret`"
    scene.bucket.schema("x", 200, "id,v", statement, 14, database="shop")
    ran = scene.bucket.at(300, sink=scene.uri, **SECRET)
    assert ran.code == EXIT_TABLE_STOPPED
    assert "it names shop.secret, which --tables leaves out" in ran.stopped["shop.x"]
    assert scene.person.run('SELECT * FROM "shop"."secret"') == [(1, "classified")]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM /*T! remove */ `secrets`",
        "SELECT * FROM /*T! `remove` */ `secrets`",
        "SELECT * FROM shop./*T! remove */ `secrets`",
        "SELECT * FROM `shop`./*T![x] `remove` */ `secrets`",
        "WITH remove AS (SELECT id, v FROM `remove`) SELECT * FROM /*T! remove */ `secrets`",
        "WITH `remove` AS (SELECT id, v FROM `orders`) SELECT * FROM /*T![ttl] `remove` */ `secrets`",
        "SELECT * FROM /*T![ttl] remove `a` */ , shop. /*T! remove */ `secrets`",
        "SELECT `id` FROM `orders` /*T![affinity] `a` WHERE `id` NOT IN (1) UNION ALL SELECT `id` FROM `orders` AS */ `secrets`",
    ],
)
def test_no_words_in_a_comment_of_tidb_let_a_view_read_a_table_that_is_left_out(place: Place, tmp_path: Path, query: str) -> None:
    """The target skips such a comment: what is in it must not be what keeps the view from the table."""
    scene = Scene(place, tmp_path)
    for table in ("remove", "orders"):
        scene.bucket.create(table, database="shop")
        scene.bucket.rows(f"{table}/100/1", "I 110 9 a", database="shop")
    scene.bucket.schema("v", 200, "id,v", f"CREATE VIEW `v` AS {query}", 21, database="shop")
    ran = scene.bucket.at(300, sink=scene.uri, **OPTIONS)
    assert ran.code in (EXIT_OK, EXIT_TABLE_STOPPED)
    assert not ran.stopped or "`remove`" not in query or "remove AS" in query
    if scene.is_mariadb and ran.code == EXIT_OK:
        assert all(row[0] == 9 for row in scene.person.run('SELECT * FROM "shop"."v"'))


@pytest.mark.parametrize(
    "comment", ["/*T! affinity */", "/*T! `affinity` */", "/*T![affinity] affinity.*/", "/*T![x] `affinity`.*/"]
)
@pytest.mark.parametrize("database", ["shop", "affinity"])
def test_no_words_in_a_comment_of_tidb_let_a_rename_move_a_table_that_is_left_out(
    place: Place, tmp_path: Path, database: str, comment: str
) -> None:
    """The target reads ``.secrets`` as a table of the current database."""
    scene = Scene(place, tmp_path)
    uri = place.mariadb.uri(any_database=True) if place.mariadb else scene.uri
    options = OPTIONS | {"includes": TableFilter.parse("*.*,!shop.secrets,!private.*").includes}
    options |= {"filter_text": "*.*,!shop.secrets,!private.*"}
    before = scene.theirs()
    scene.bucket.schema("", 90, "id", "CREATE DATABASE `affinity`", 1, database="affinity")
    scene.bucket.create("secrets", database="affinity")
    scene.bucket.rows("secrets/100/1", "I 110 9 a", database="affinity")
    assert scene.bucket.at(150, sink=uri, **options).code == EXIT_OK
    dot = "" if comment.endswith(".*/") else "."
    statement = f"RENAME TABLE {comment}{dot}`secrets` TO `{database}`.`orders2`"
    scene.bucket.schema("orders2", 200, "id,v", statement, 14, database=database)
    ran = scene.bucket.at(300, sink=uri, **options)
    assert scene.theirs() == before
    if "`affinity`" in comment:
        assert ran.code == EXIT_OK
        assert scene.person.run(f'SELECT id FROM "{database}"."orders2"') == [(9,)]
    else:
        assert ran.code == EXIT_TABLE_STOPPED


def test_no_later_statement_lets_a_foreign_key_refer_to_a_table_that_is_left_out(place: Place, tmp_path: Path) -> None:
    scene = left_out_later(place, tmp_path)
    key = "CONSTRAINT `s` FOREIGN KEY (`uk`) REFERENCES `secret` (`id`) ON DELETE RESTRICT"
    statement = f"CREATE TABLE `child` (`id` INT PRIMARY KEY, `uk` INT NOT NULL, {key})"
    scene.bucket.schema("child", 200, "id,uk", statement, 3, database="shop")
    scene.bucket.schema("p", 250, "id,v", EXCHANGE, 42, database="shop")
    ran = scene.bucket.at(300, sink=scene.uri, **SECRET)
    assert ran.code == EXIT_OK
    if scene.is_mariadb:
        assert "secret" not in scene.shown('"shop"."child"')
        assert "REFERENCES `secret` (`id`) ON DELETE RESTRICT was left out" in ran.told


@pytest.mark.parametrize(
    ("table", "statement", "secret"),
    [("p", EXCHANGE, [(2, "mine")]), ("x", "RENAME TABLE `secret` TO `x`", None)],
    ids=["EXCHANGE PARTITION", "RENAME"],
)
def test_what_a_changefeed_can_do_to_a_table_that_the_pipeline_made_and_that_is_left_out_since(
    place: Place, tmp_path: Path, table: str, statement: str, secret: list[tuple[object, ...]] | None
) -> None:
    """As docs/security.md says: the source may run either, and rows come into the filter by them."""
    scene = left_out_later(place, tmp_path)
    scene.bucket.schema(table, 200, "id,v", statement, 0, database="shop")
    assert scene.bucket.at(300, sink=scene.uri, **SECRET).code == EXIT_OK
    assert scene.person.run(f'SELECT * FROM "shop"."{table}"') == [(1, "classified")]
    if secret is not None:
        assert scene.person.run('SELECT * FROM "shop"."secret"') == secret
    else:
        with pytest.raises(Exception, match="secret"):
            scene.person.run('SELECT * FROM "shop"."secret"')


@pytest.mark.parametrize(
    ("table", "statement"),
    [("p", EXCHANGE.replace("secret", "secrets")), ("x", "RENAME TABLE `secrets` TO `x`")],
    ids=["EXCHANGE PARTITION", "RENAME"],
)
def test_neither_reaches_a_table_that_the_pipeline_did_not_make(place: Place, tmp_path: Path, table: str, statement: str) -> None:
    scene = left_out_later(place, tmp_path)
    before = scene.theirs()
    scene.bucket.schema(table, 200, "id,v", statement, 0, database="shop")
    scene.bucket.at(300, sink=scene.uri, **OPTIONS)
    assert scene.theirs() == before
    assert (1, 42) not in scene.person.run('SELECT * FROM "shop"."p"')
