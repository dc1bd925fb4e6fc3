"""Schema changes on a real MariaDB: the source's statements, shapes without one, and runs that were killed in between."""

from __future__ import annotations

import re
import threading
import time
from contextlib import nullcontext

import pymysql
import pytest
from mysql_writing import PIPELINE, Target, acquired, column, table

from headrace import faults
from headrace.ddl.patterns import MOST_STEPS, steps_of_pattern
from headrace.errors import FencedError, TransientError
from headrace.model.events import (
    AddColumnEvent,
    AlterColumnTypeEvent,
    ColumnPosition,
    CreateDatabaseEvent,
    CreateTableEvent,
    DeletePartitionRowsEvent,
    DropColumnEvent,
    DropDatabaseEvent,
    DropTableEvent,
    ExchangePartitionEvent,
    OtherEvent,
    Position,
    RenameColumnEvent,
    RenameTableEvent,
    SchemaChange,
    TruncateTableEvent,
)
from headrace.model.outcome import Remedy
from headrace.model.place import PlaceInFile
from headrace.model.table import TableId
from headrace.model.tso import tso_from_ms
from headrace.sinks.metadata_applier import SchemaChangeRefused
from headrace.sinks.mysql import catalogue, connection, open_sink, variables
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.settings import read_settings
from headrace.sinks.mysql.statements import Sending

pytestmark = pytest.mark.server

ID = column("id", "INT", nullable=False, primary_key=True)
SHAPE = table("t", [ID, column("a", "VARCHAR", length=20)])
T = SHAPE.table_id
CREATE = "CREATE TABLE `t` (`id` INT NOT NULL,`a` VARCHAR(20),PRIMARY KEY(`id`) /*T![clustered_index] CLUSTERED */)"


@pytest.fixture
def target(mariadb) -> Target:
    return acquired(mariadb)


def schema_change(statement: str, *events: object, table_id: TableId = T, ts: int = 5, schema: object = None) -> SchemaChange:
    return SchemaChange(
        ts, table_id, events, statement, table_id.database, frozenset({table_id}), schema=schema, origin=PlaceInFile("f.json")
    )


def apply(target: Target, statement: str, *events: object, **more: object):
    return target.sink.metadata_applier.apply_schema_change(schema_change(statement, *events, **more))


def columns(target: Target, name: str = "t") -> list[str]:
    return [str(row[0]) for row in target.execute(f"SHOW COLUMNS FROM shop.{name}")]


def collation(target: Target, name: str = "t") -> str:
    (row,) = target.execute(
        f"SELECT TABLE_COLLATION FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'shop' AND TABLE_NAME = '{name}'"
    )
    return str(row[0])


def test_a_table_is_created_by_the_sources_statement(target):
    assert apply(target, CREATE, CreateTableEvent(T, SHAPE)) == ()
    assert columns(target) == ["id", "a"]
    assert collation(target) == "utf8mb4_bin"


def test_a_missing_database_is_created_before_its_table(target):
    target.execute("DROP DATABASE shop")
    (notice,) = apply(target, CREATE, CreateTableEvent(T, SHAPE))
    assert "database" in notice.message
    assert collation(target) == "utf8mb4_bin"


def test_a_missing_database_is_created_before_a_table_moves_into_it(target):
    """With table ids as paths no file tells of databases."""
    moved = TableId("store", "t")
    apply(target, CREATE, CreateTableEvent(T, SHAPE))
    (notice,) = apply(target, "RENAME TABLE `shop`.`t` TO `store`.`t`", RenameTableEvent(T, moved), table_id=moved)
    assert "was not there and was created" in notice.message
    assert target.execute("SHOW TABLES FROM store") == [("t",)]


def test_a_database_with_the_servers_own_default_does_not_change_the_collation_of_tables(target):
    ((own,),) = target.execute("SELECT @@collation_server")
    target.execute(f"ALTER DATABASE shop COLLATE {own}")
    apply(target, CREATE, CreateTableEvent(T, SHAPE))
    assert collation(target) == "utf8mb4_bin"


def test_a_database_gets_the_collation_that_its_statement_names(target):
    apply(target, "CREATE DATABASE x CHARACTER SET latin1", CreateDatabaseEvent("x"), table_id=TableId("x"))
    (default,) = target.execute("SELECT DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = 'x'")
    assert default == ("latin1_bin",)


def test_creating_a_table_that_is_there_and_empty_is_done(target):
    apply(target, CREATE, CreateTableEvent(T, SHAPE))
    assert apply(target, CREATE, CreateTableEvent(T, SHAPE)) == ()


def test_a_table_with_rows_needs_adopt(target):
    apply(target, CREATE, CreateTableEvent(T, SHAPE))
    target.execute("INSERT INTO shop.t VALUES (1, 'a')")
    with pytest.raises(SchemaChangeRefused) as refused:
        apply(target, CREATE, CreateTableEvent(T, SHAPE))
    assert "--adopt" in refused.value.problem.hint
    with open_sink(target.uri, {"adopt": True}) as sink:
        (notice,) = sink.metadata_applier.apply_schema_change(schema_change(CREATE, CreateTableEvent(T, SHAPE)))
    assert "adopted" in notice.message


def test_an_empty_table_with_a_unique_key_of_later_is_not_taken_over(target):
    """A table that somebody emptied has the keys that the source added later."""
    apply(target, CREATE, CreateTableEvent(T, SHAPE))
    target.execute("ALTER TABLE shop.t ADD UNIQUE KEY k (a)")
    with pytest.raises(SchemaChangeRefused, match="the unique key k, which the source's table does not have at that time"):
        apply(target, CREATE, CreateTableEvent(T, SHAPE))
    target.execute("ALTER TABLE shop.t DROP KEY k, ADD UNIQUE KEY wider (id, a), ADD KEY plain (a)")
    assert apply(target, CREATE, CreateTableEvent(T, SHAPE)) == ()


def test_another_table_of_that_name_is_refused(target):
    target.execute("CREATE TABLE shop.t (id INT PRIMARY KEY, other INT)")
    with pytest.raises(SchemaChangeRefused, match="other columns"):
        apply(target, CREATE, CreateTableEvent(T, SHAPE))


def test_columns_go_and_are_renamed_and_a_second_time_changes_nothing(target):
    target.execute("CREATE TABLE shop.t (id INT PRIMARY KEY, a VARCHAR(20), b INT)")
    change = (
        "ALTER TABLE `t` DROP COLUMN `a`, RENAME COLUMN `id` TO `no`",
        DropColumnEvent(T, "a"),
        RenameColumnEvent(T, "id", "no"),
    )
    for _ in range(2):
        apply(target, *change)
        assert columns(target) == ["no", "b"]


def test_a_column_is_added_once_and_one_of_its_name_is_not_taken_for_it(target):
    target.execute("CREATE TABLE shop.t (id INT PRIMARY KEY)")
    change = "ALTER TABLE `t` ADD COLUMN `b` INT", AddColumnEvent(T, column("b", "INT"))
    apply(target, *change)
    assert columns(target) == ["id", "b"]
    with pytest.raises(SchemaChangeRefused, match="Duplicate column name 'b'"):
        apply(target, *change)


def test_a_rename_that_changes_the_case_of_a_name_only_does_not_hide_the_rest(target):
    target.execute("CREATE TABLE shop.t (id INT PRIMARY KEY, price DECIMAL(10,2))", "INSERT INTO shop.t VALUES (1, 1.75)")
    rename = RenameColumnEvent(T, "price", "Price")
    retype = AlterColumnTypeEvent(T, column("Price", "DECIMAL", length=10), column("price", "DECIMAL", length=10, scale=2))
    apply(target, "ALTER TABLE `t` CHANGE COLUMN `price` `Price` DECIMAL(10,0)", rename, retype)
    assert columns(target) == ["id", "Price"]
    assert str(target.execute("SELECT price FROM shop.t")[0][0]) == "2"
    apply(target, "ALTER TABLE `t` RENAME COLUMN `Price` TO `PRICE`", RenameColumnEvent(T, "Price", "PRICE"))
    assert columns(target) == ["id", "PRICE"]


LONGER = AlterColumnTypeEvent(T, column("a", "VARCHAR", length=99), column("a", "VARCHAR", length=20))
ANOTHER = [("MODIFY COLUMN `a` VARCHAR(99)", LONGER), ("ADD INDEX `i` (`a`)", OtherEvent(T))]


@pytest.mark.parametrize(("clause", "event"), ANOTHER)
def test_a_column_that_came_or_went_before_does_not_hide_the_rest_of_a_statement(target, clause, event):
    """The server refuses such a statement whole, so the table stops."""
    target.execute("CREATE TABLE shop.t (id INT PRIMARY KEY, a VARCHAR(20))")
    with pytest.raises(SchemaChangeRefused, match="b"):
        apply(target, f"ALTER TABLE `t` DROP COLUMN `b`, {clause}", DropColumnEvent(T, "b"), event)
    target.execute("ALTER TABLE shop.t ADD COLUMN b INT")
    with pytest.raises(SchemaChangeRefused, match="b"):
        apply(target, f"ALTER TABLE `t` ADD COLUMN `b` INT, {clause}", AddColumnEvent(T, column("b", "INT")), event)


def test_of_a_shape_only_what_is_missing_is_run(target):
    target.execute("CREATE TABLE shop.t (id INT PRIMARY KEY, a VARCHAR(20), b INT)")
    apply(target, "", AddColumnEvent(T, column("b", "INT")), DropColumnEvent(T, "c"), LONGER)
    assert [str(row[1]) for row in target.execute("SHOW COLUMNS FROM shop.t WHERE field = 'a'")] == ["varchar(99)"]
    assert columns(target) == ["id", "a", "b"]


def test_a_new_column_gets_the_time_of_the_source(target):
    target.execute("CREATE TABLE shop.t (id INT PRIMARY KEY)", "INSERT INTO shop.t VALUES (1)")
    event = AddColumnEvent(T, column("c", "DATETIME"))
    apply(target, "ALTER TABLE t ADD COLUMN c DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3)", event, ts=tso_from_ms(1717579823694))
    assert str(target.execute("SELECT c FROM shop.t")[0][0]) == "2024-06-05 09:30:23.694000"


def test_ddl_runs_in_the_time_zone_of_the_source(mariadb):
    target = acquired(mariadb, time_zone="+08:00")
    target.execute("CREATE TABLE shop.t (id INT PRIMARY KEY)", "INSERT INTO shop.t VALUES (1)")
    apply(target, "ALTER TABLE t ADD COLUMN c TIMESTAMP DEFAULT '2024-01-01 08:00:00'", AddColumnEvent(T, column("c", "TIMESTAMP")))
    assert str(target.execute("SELECT c FROM shop.t")[0][0]) == "2024-01-01 00:00:00"


def test_shapes_without_a_statement_become_ddl(target):
    apply(target, "", CreateTableEvent(T, SHAPE))
    apply(
        target,
        "",
        AddColumnEvent(T, column("b", "BIGINT", unsigned=True), ColumnPosition(Position.AFTER, "id")),
        AlterColumnTypeEvent(T, column("a", "VARCHAR", length=40, default="x"), column("a", "VARCHAR", length=20)),
    )
    # MariaDB shows the display widths of integers, TiDB does not.
    shown = [(row[0], re.sub(r"int\(\d+\)", "int", str(row[1]))) for row in target.execute("SHOW COLUMNS FROM shop.t")]
    assert shown == [("id", "int"), ("b", "bigint unsigned"), ("a", "varchar(40)")]
    apply(target, "", RenameColumnEvent(T, "b", "c"), DropColumnEvent(T, "a"))
    assert columns(target) == ["id", "c"]
    apply(target, "", RenameTableEvent(T, TableId("shop", "u")))
    assert columns(target, "u") == ["id", "c"]


def test_a_table_that_an_alter_shows_for_the_first_time_is_created_from_its_shape(target):
    apply(target, "ALTER TABLE `t` ADD COLUMN `a` VARCHAR(20)", CreateTableEvent(T, SHAPE))
    assert columns(target) == ["id", "a"]


def test_an_adopted_table_follows_the_first_alter(mariadb):
    target = acquired(mariadb)
    target.execute("CREATE TABLE shop.t (id INT PRIMARY KEY)")
    change = ("ALTER TABLE `t` ADD COLUMN `a` VARCHAR(20)", CreateTableEvent(T, SHAPE))
    for _ in range(2):
        apply(target, *change)
        assert columns(target) == ["id", "a"]
    apply(target, "ALTER TABLE `t` MODIFY COLUMN `a` VARCHAR(99)", CreateTableEvent(T, SHAPE))
    assert target.execute("SHOW COLUMNS FROM shop.t")[1][1] == "varchar(99)"


def test_drops_renames_and_truncates_are_repeatable(target):
    other = TableId("shop", "u")
    target.execute("CREATE TABLE shop.t (id INT)", "INSERT INTO shop.t VALUES (1)")
    for _ in range(2):
        apply(target, "TRUNCATE TABLE `t`", TruncateTableEvent(T))
        assert target.sink.metadata_applier.describe(T).has_rows is False
    for _ in range(2):
        apply(target, "RENAME TABLE `shop`.`t` TO `shop`.`u`;", RenameTableEvent(T, other), table_id=other)
        assert target.sink.metadata_applier.describe(T) is None
    for _ in range(2):
        apply(target, "DROP TABLE `shop`.`u`", DropTableEvent(other), table_id=other)
        assert target.sink.metadata_applier.describe(other) is None
    target.execute("CREATE TABLE shop.t (id INT)", "CREATE VIEW shop.v AS SELECT 1")
    own = frozenset({T, TableId("shop", "v"), TableId("shop", "absent")})
    for _ in range(2):
        apply(target, "DROP DATABASE `shop`", DropDatabaseEvent("shop", own), table_id=TableId("shop"))
        assert target.sink.metadata_applier.describe(TableId("shop")) is None


def test_a_statement_that_the_server_does_not_know_is_refused_with_all_that_is_needed(target):
    target.execute("CREATE TABLE shop.t (id INT PRIMARY KEY)")
    with pytest.raises(SchemaChangeRefused) as refused:
        apply(target, "ALTER TABLE `t` ADD TIDB_NONSENSE", OtherEvent(T))
    sentence = refused.value.problem.sentence()
    assert "shop.t" in sentence
    assert "ALTER TABLE `t` ADD TIDB_NONSENSE" in sentence
    assert "1064" in sentence
    assert "by hand" in sentence


@pytest.mark.parametrize("statement", ["RECOVER TABLE `t`", "FLASHBACK TABLE `u` TO `t`"])
def test_rows_that_come_back_ask_for_a_resync_and_nothing_is_sent(target, statement):
    """A TiDB target would bring back what it has dropped itself, which may have lacked rows."""
    sent = []
    former = faults.arm(lambda moment, step, detail: sent.append(detail) if step is faults.Step.MYSQL_STATEMENT else None)
    try:
        with pytest.raises(SchemaChangeRefused) as refused:
            apply(target, statement, OtherEvent(T))
    finally:
        faults.arm(former)
    assert not sent
    assert refused.value.problem.remedy is Remedy.RESYNC
    assert "Load the table anew" in refused.value.problem.hint


def test_partitions_are_dropped_and_exchanged_by_the_sources_statement(target):
    target.execute(
        "CREATE TABLE shop.t (id INT PRIMARY KEY) PARTITION BY RANGE (id)"
        " (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))",
        "CREATE TABLE shop.u (id INT PRIMARY KEY)",
        "INSERT INTO shop.t VALUES (1), (11)",
    )
    other = TableId("shop", "u")
    apply(target, "ALTER TABLE `t` EXCHANGE PARTITION `p1` WITH TABLE `u`", ExchangePartitionEvent(T, other, "p1", "id >= 10"))
    assert target.execute("SELECT id FROM shop.u") == [(11,)]
    apply(target, "ALTER TABLE `t` DROP PARTITION `p0`", DeletePartitionRowsEvent(T, ("p0",), "id < 10"))
    assert target.execute("SELECT id FROM shop.t") == []
    assert "`p0`" not in str(target.execute("SHOW CREATE TABLE shop.t"))


def test_a_table_with_a_vector_is_created_and_told(target):
    shape = table("t", [ID, column("v", "VECTOR")])
    notices = apply(target, "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VECTOR(3))", CreateTableEvent(T, shape))
    kept = target.execute("SHOW COLUMNS FROM shop.t")[1][1]
    if target.server.is_tidb:
        assert (kept, notices) == ("vector(3)", ())
    else:
        assert kept == "longtext"
        assert ["VECTOR" in notice.sentence() for notice in notices] == [True]


def test_a_reader_that_holds_the_table_makes_ddl_wait_and_not_fail_for_good(target, monkeypatch):
    monkeypatch.setattr(connection, "RETRY_DELAYS", (0.1,))
    monkeypatch.setattr(variables, "_DDL_LOCK_WAIT_SECONDS", 1)
    target.execute("CREATE TABLE shop.t (id INT PRIMARY KEY)")
    with target.server.connect(autocommit=False) as reader, reader.cursor() as cursor:
        cursor.execute("SELECT * FROM shop.t")
        if target.server.is_tidb:  # its schema changes wait for transactions without a limit
            threading.Timer(1, reader.rollback).start()
        with nullcontext() if target.server.is_tidb else pytest.raises(TransientError):
            apply(target, "ALTER TABLE `t` ADD COLUMN a INT", AddColumnEvent(T, column("a", "INT")))
    apply(target, "ALTER TABLE `t` ADD COLUMN a INT", AddColumnEvent(T, column("a", "INT")))
    assert columns(target) == ["id", "a"]


@pytest.fixture
def executed(target, monkeypatch) -> list[str]:
    """The statements that ran; the answer to each is lost."""
    found: list[str] = []

    def lose_the_answer(sending, session, statement):
        found.append(statement)
        original(sending, session, statement)
        target.execute(f"KILL {session.connection_id}")
        session.scalar("SELECT 1")

    original = Sending.send
    monkeypatch.setattr(Sending, "send", lose_the_answer)
    return found


def test_ddl_whose_connection_was_lost_is_judged_by_the_catalogue(target, executed):
    target.execute("CREATE TABLE shop.t (id INT PRIMARY KEY, a INT)")
    apply(target, "ALTER TABLE `t` ADD INDEX `i` (`a`)", OtherEvent(T))
    assert len(executed) == 1
    assert "KEY `i`" in target.execute("SHOW CREATE TABLE shop.t")[0][1]


def test_an_exchange_whose_connection_was_lost_is_judged_by_the_rows(target, executed):
    target.execute(
        "CREATE TABLE shop.t (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (9))",
        "CREATE TABLE shop.u (id INT PRIMARY KEY)",
        "INSERT INTO shop.t VALUES (1)",
        "INSERT INTO shop.u VALUES (2)",
    )
    apply(target, "ALTER TABLE `t` EXCHANGE PARTITION `p` WITH TABLE `u`", OtherEvent(T))
    assert len(executed) == 1
    assert (target.execute("SELECT id FROM shop.t"), target.execute("SELECT id FROM shop.u")) == ([(2,)], [(1,)])


@pytest.fixture
def exchanging(target, monkeypatch) -> Target:
    """A partition and a table, in short waits for locks."""
    monkeypatch.setattr(connection, "RETRY_DELAYS", (0.01, 0.1, 0.1))
    monkeypatch.setattr(variables, "_DDL_LOCK_WAIT_SECONDS", 1)
    target.execute(
        "CREATE TABLE shop.t (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (9))",
        "CREATE TABLE shop.u (id INT PRIMARY KEY)",
        "INSERT INTO shop.u VALUES (2)",
    )
    return target


@pytest.mark.parametrize("trouble", ["lock", "kill"])
def test_an_exchange_is_not_taken_for_done_while_its_rows_cannot_be_read(exchanging, monkeypatch, trouble):
    """CHECKSUM TABLE answers NULL, without an error, when it waited too long for a lock, or was killed while it waited."""
    run, read = MySqlSession.run_verbatim, catalogue.row_checksum
    with exchanging.server.connect() as other, other.cursor() as cursor:

        def unlock(connection_id: int) -> None:
            if trouble == "kill":
                cursor.execute(f"KILL QUERY {connection_id}")
            cursor.execute("UNLOCK TABLES")

        def killed_first(session, statement):
            monkeypatch.setattr(MySqlSession, "run_verbatim", run)
            monkeypatch.setattr(catalogue, "row_checksum", locked_first)
            session.execute("KILL QUERY CONNECTION_ID()")

        def locked_first(session, table_id):
            monkeypatch.setattr(catalogue, "row_checksum", read)
            cursor.execute("LOCK TABLES shop.u WRITE")
            threading.Timer(0.3 if trouble == "kill" else 1.3, unlock, [session.connection_id]).start()
            return read(session, table_id)

        monkeypatch.setattr(MySqlSession, "run_verbatim", killed_first)
        apply(exchanging, "ALTER TABLE `t` EXCHANGE PARTITION `p` WITH TABLE `u`", OtherEvent(T))
    assert (exchanging.execute("SELECT id FROM shop.t"), exchanging.execute("SELECT id FROM shop.u")) == ([(2,)], [])


TOLD_APART = {
    "digits of a FLOAT": ("FLOAT", ["'1.2345678'"], ["'1.2345679'"]),
    "digits of a DOUBLE": ("DOUBLE", ["0.12345678901234566"], ["0.12345678901234568"]),
    "the repeated hour": ("TIMESTAMP(6)", ["'2024-10-27 00:30:00.5'"], ["'2024-10-27 01:30:00.5'"]),
    "zero and NULL": ("TIMESTAMP NULL", ["'0000-00-00'"], ["NULL"]),
    "a digit of a time": ("TIME(6)", ["'-00:00:00.000001'"], ["'-00:00:00.000002'"]),
    "bytes": ("VARBINARY(9)", ["x'00'"], ["x'0000'"]),
    "case": ("VARCHAR(9)", ["'a'"], ["'A'"]),
    "a long text": ("LONGTEXT", ["REPEAT('a', 9000000)"], ["CONCAT(REPEAT('a', 8999999), 'b')"]),
    "values that look like two": ("VARCHAR(9), b VARCHAR(9)", ["'x#0#y', NULL"], ["'x', 'y#1'"]),
    "values with the sign between them": ("VARCHAR(9), b VARCHAR(9)", ["'x#0#y', 'z'"], ["'x', 'y#0#z'"]),
}


@pytest.mark.parametrize("case", TOLD_APART)
def test_rows_that_differ_in_any_way_have_another_checksum(target, case):
    kind, *both = TOLD_APART[case]
    for name, values in zip(("t", "u"), both, strict=True):
        target.execute(f"CREATE TABLE shop.{name} (a {kind})")
        target.execute(*(f"INSERT INTO shop.{name} VALUES ({value})" for value in values))
    found = []
    for zone in ("+00:00", "+08:00"):
        with MySqlSession(read_settings(target.server.uri(time_zone=zone)), ddl=True) as session:
            found.append([catalogue.queried_checksum(session, TableId("shop", name)) for name in ("t", "u")])
    assert found[0] == found[1]
    assert found[0][0] != found[0][1]
    assert all(":None" not in checksum for checksum in found[0])


def test_only_what_is_no_table_has_no_checksum(exchanging):
    exchanging.execute("CREATE TABLE shop.e (id INT)", "CREATE VIEW shop.w AS SELECT * FROM shop.u")
    exchanging.execute("CREATE TABLE shop.x (id INT)", "CREATE VIEW shop.broken AS SELECT * FROM shop.x", "DROP TABLE shop.x")
    with MySqlSession(read_settings(exchanging.uri), ddl=True) as session:
        found = {name: catalogue.row_checksum(session, TableId("shop", name)) for name in ("t", "e", "u", "w", "broken", "missing")}
        assert catalogue.row_checksum(session, TableId("nowhere", "t")) == ""
        assert [name for name, checksum in found.items() if not checksum] == ["w", "broken", "missing"]
        with exchanging.server.connect() as other, other.cursor() as cursor:
            cursor.execute("LOCK TABLES shop.u WRITE")
            with pytest.raises(pymysql.err.OperationalError) as raised:
                catalogue.row_checksum(session, TableId("shop", "u"))
        assert connection.classify(raised.value) is connection.ErrorClass.TRANSIENT


def test_a_run_that_was_taken_over_runs_no_ddl(target):
    target.execute("CREATE TABLE shop.t (id INT PRIMARY KEY)")
    with open_sink(target.uri) as newer:
        newer.ledger.acquire(PIPELINE, "source", "", 0)
        with pytest.raises(FencedError):
            apply(target, "DROP TABLE t", DropTableEvent(T))
    assert columns(target) == ["id"]


def test_a_takeover_ends_the_connection_that_runs_the_ddl(target):
    target.execute("CREATE TABLE shop.t (id INT PRIMARY KEY)")
    target.sink.metadata_applier.describe(T)  # takes the named lock
    with open_sink(target.uri) as newer:
        newer.ledger.acquire(PIPELINE, "source", "", 0)
        newer.metadata_applier.apply_schema_change(schema_change("DROP TABLE t", DropTableEvent(T)))
        with pytest.raises(FencedError):
            apply(target, "CREATE TABLE t (id INT PRIMARY KEY)", CreateTableEvent(T, table("t", [ID])))
    assert target.sink.ledger.own_claim().epoch == target.epoch


def test_a_takeover_waits_for_a_statement_that_is_under_way(target):
    target.execute("CREATE TABLE shop.t (id INT PRIMARY KEY)")
    reader = target.server.connect(autocommit=False)
    reader.query("SELECT * FROM shop.t")
    errors = []

    def alter() -> None:
        try:
            apply(target, "ALTER TABLE `t` ADD COLUMN a INT", AddColumnEvent(T, column("a", "INT")))
        except FencedError as error:
            errors.append(error)

    altering = threading.Thread(target=alter)
    altering.start()
    time.sleep(0.5)
    with open_sink(target.uri) as newer:
        newer.ledger.acquire(PIPELINE, "source", "", 0)
        reader.close()
        newer.metadata_applier.describe(T)
        altering.join(10)
    assert len(errors) == 1


def test_a_table_is_described_by_its_columns_and_whether_it_has_rows(target):
    target.execute("CREATE TABLE shop.t (id INT AUTO_INCREMENT PRIMARY KEY, a INT)")
    first = target.sink.metadata_applier.describe(T)
    target.execute("INSERT INTO shop.t (a) VALUES (1), (2)")
    second = target.sink.metadata_applier.describe(T)
    assert (first.columns, first.has_rows, second.has_rows) == (("id", "a"), False, True)
    database = target.sink.metadata_applier.describe(TableId("shop"))
    assert (database.columns, database.has_rows) == ((), True)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE `t` (`id` INT PRIMARY KEY, `a` VARCHAR(20),"
        " `g` BIGINT AS (CHAR_LENGTH(REGEXP_REPLACE(REPEAT(`a`, 4000000), 'a', 'b'))) STORED)",
        "CREATE TABLE `t` (`id` INT PRIMARY KEY, `a` VARCHAR(20), CHECK (SPACE(`id`) <> 'x'))",
        "CREATE TABLE `t` (`id` INT PRIMARY KEY, `a` VARCHAR(20), `x` INT GENERATED ALWAYS AS (`a` REGEXP '(a|a)*$') STORED)",
    ],
)
def test_a_statement_by_which_the_server_would_compute_for_minutes_for_a_row_waits(target, statement):
    with pytest.raises(SchemaChangeRefused) as caught:
        apply(target, statement, CreateTableEvent(T, SHAPE), schema=SHAPE)
    assert "the target would compute for long for each row, because" in caught.value.problem.message
    assert "headrace ddl edit" in caught.value.problem.hint
    assert target.execute("SHOW TABLES FROM shop") == []


def test_the_server_searches_by_the_slowest_patterns_that_run_in_seconds(target):
    """What PCRE would take for minutes by other patterns: 8 KB of which each start leads to the end."""
    for pattern in (r"[[:space:]]+$", "^ * *x", r"^( | | | | | | | | ) * *x"):
        assert steps_of_pattern(pattern) <= MOST_STEPS
        begun = time.monotonic()
        assert target.execute(f"SELECT CONCAT(REPEAT(' ', 8000), 'y') REGEXP '{pattern}'") == [(0,)]
        assert time.monotonic() - begun < 20


def test_expressions_that_make_no_long_texts_run(target):
    generated = (
        "`g` VARCHAR(40) AS (LPAD(`id`, 10, '0')) STORED, `h` VARCHAR(40) AS (CONCAT(`a`, REPEAT('x', 3))) VIRTUAL, "
        "`i` VARCHAR(40) AS (REGEXP_REPLACE(`a`, '[^0-9]', '')) STORED, CHECK (`a` REGEXP '^[a-z]+[0-9]+$')"
    )
    shape = table("t", [*SHAPE.columns, *(column(name, "VARCHAR", length=40) for name in "ghi")])
    apply(target, CREATE.replace("PRIMARY", f"{generated},PRIMARY"), CreateTableEvent(T, shape), schema=shape)
    target.execute("INSERT INTO shop.t (id, a) VALUES (7, 'b12')")
    assert target.execute("SELECT * FROM shop.t") == [(7, "b12", "0000000007", "b12xxx", "12")]
