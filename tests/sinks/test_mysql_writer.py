"""The writer of the MySQL sink on a real server: what it writes, what it refuses, and what it survives."""

from __future__ import annotations

import random
import threading
import time
from contextlib import nullcontext

import numpy as np
import pymysql
import pytest
from mysql_writing import PIPELINE, Target, acquired, change, column, table

from headrace.errors import FencedError, SinkUnreachableError, TerminalError
from headrace.model.events import RowKind
from headrace.model.ledger import TableStatus
from headrace.model.table import TableId
from headrace.sinks.base import WriterContext
from headrace.sinks.cut_commit import CutCommit
from headrace.sinks.mysql import writer as writer_module
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.settings import read_settings
from headrace.sinks.mysql.writer import MySqlWriter
from headrace.sinks.sql_claim import Claim

pytestmark = pytest.mark.server

ITEMS = table("items", [column("id", "INT", nullable=False, primary_key=True), column("name", "VARCHAR"), column("u", "INT")])
CREATE_ITEMS = "CREATE TABLE shop.items (id INT PRIMARY KEY, name VARCHAR(20), u INT, UNIQUE (u)) COLLATE utf8mb4_bin"
OTHERS = table("others", [column("id", "INT", nullable=False, primary_key=True), column("v", "INT")])
CREATE_OTHERS = "CREATE TABLE shop.others (id INT PRIMARY KEY, v INT)"


@pytest.fixture
def target(mariadb) -> Target:
    target = acquired(mariadb)
    target.execute(CREATE_ITEMS, CREATE_OTHERS)
    return target


@pytest.fixture(params=["auto", "off"])
def either_way(mariadb, request) -> Target:
    """A target that is written with LOAD DATA, and one that is written with REPLACE, as TiDB always is."""
    return acquired(mariadb, local_infile=request.param)


def test_deletes_and_upserts_reach_the_table(target):
    target.write(change(ITEMS, [(1, "a", 1), (2, "b", 2), (3, None, None)]))
    (outcome,) = target.write(change(ITEMS, [(1, "A", 1)], deletes=[(2,), (9,)]))
    assert (outcome.upserts, outcome.deletes, outcome.problem) == (1, 2, None)
    assert target.execute("SELECT * FROM shop.items ORDER BY id") == [(1, "A", 1), (3, None, None)]


@pytest.mark.reading_case("A59", "A66")
def test_swaps_of_a_unique_value_converge_in_any_order_and_when_repeated(target):
    generator = random.Random(5)
    target.write(change(ITEMS, [(n, "old", n) for n in range(20)]))
    values = list(range(20))
    generator.shuffle(values)
    alive = [(n, "new", values[n]) for n in range(15)]
    changes = [change(ITEMS, [row]) for row in alive] + [change(ITEMS, deletes=[(n,)]) for n in range(15, 20)]
    for _ in range(3):
        generator.shuffle(changes)
        target.write(*changes)
    assert sorted(target.execute("SELECT * FROM shop.items")) == alive


def test_of_ordered_changes_the_last_one_of_each_key_counts(target):
    target.execute("CREATE TABLE shop.folded (name VARCHAR(9) PRIMARY KEY, v INT) COLLATE utf8mb4_general_ci")
    folded = table("folded", [column("name", "VARCHAR", nullable=False, primary_key=True), column("v", "INT")], ["name"])
    ordered = [
        (RowKind.INSERT, 1, 1, "A", 1),
        (RowKind.DELETE, 2, 2, "á", None),
        (RowKind.UPDATE_AFTER, 2, 3, "Á", 2),
        (RowKind.DELETE, 3, 4, "a", None),
        (RowKind.INSERT, 4, 5, "b", 3),
        (RowKind.UPDATE_BEFORE, 5, 6, "B", 3),
        (RowKind.UPDATE_AFTER, 5, 7, "b ", 4),
    ]
    (outcome,) = target.write(change(folded, ordered=ordered))
    assert target.execute("SELECT * FROM shop.folded") == [("b ", 4)]
    assert (outcome.upserts, outcome.deletes, outcome.netted) == (1, 3, 3)


@pytest.mark.reading_case("A51")
def test_an_update_that_was_not_split_takes_its_old_key_away(target):
    """``A`` becomes ``a`` in a table that tells them apart; both belong to one group of keys that others hold for equal."""
    target.execute("CREATE TABLE shop.folded (name VARCHAR(9) PRIMARY KEY, v INT) COLLATE utf8mb4_bin")
    target.execute("INSERT INTO shop.folded VALUES ('A', 1)")
    folded = table("folded", [column("name", "VARCHAR", nullable=False, primary_key=True), column("v", "INT")], ["name"])
    ordered = [(RowKind.UPDATE_BEFORE, 2, 1, "A", 1), (RowKind.UPDATE_AFTER, 2, 2, "a", 1)]
    (outcome,) = target.write(change(folded, ordered=ordered))
    assert target.execute("SELECT * FROM shop.folded") == [("a", 1)]
    assert (outcome.upserts, outcome.deletes) == (1, 1)


@pytest.mark.parametrize(
    ("collation", "there"),
    [
        ("utf8mb4_bin", ["A", "a ", "b", "á", "😀", "😁"]),
        ("utf8mb4_nopad_bin", ["A", "a", "a ", "b", "á", "😀", "😁"]),
        ("utf8mb4_general_ci", ["b", "á", "😁"]),
        ("utf8mb4_unicode_ci", ["b", "á", "😁"]),
        ("gbk_chinese_ci", ["a ", "b"]),
    ],
)
def test_the_server_tells_which_spellings_are_one_key(target, collation, there):
    texts = ["a", "A", "a ", "á", "😀", "😁", "b"] if not collation.startswith("gbk") else ["A", "a", "a ", "b"]
    target.execute(f"CREATE TABLE shop.spelt (n INT, k VARCHAR(9) COLLATE {collation}, u INT UNIQUE, PRIMARY KEY (n, k))")
    columns = [column("n", "INT", nullable=False, primary_key=True), column("k", "VARCHAR", nullable=False, primary_key=True)]
    spelt = table("spelt", [*columns, column("u", "INT")], ["n", "k"])
    target.write(change(spelt, [(1, "c", 99)]))
    # Former states of a key have the unique value that "c" has now.
    ordered = [(RowKind.UPDATE_AFTER, n, n, 1, text, n if text in there else 99) for n, text in enumerate(texts)]
    (outcome,) = target.write(change(spelt, ordered=ordered))
    final = [(1, text, n) for n, text in enumerate(texts) if text in there]
    assert sorted(target.execute("SELECT * FROM shop.spelt")) == sorted([*final, (1, "c", 99)])
    assert (outcome.upserts, outcome.netted) == (len(there), len(texts) - len(there))


def test_many_keys_that_only_the_group_holds_for_equal_are_written_at_once(target):
    """To some collations all characters beyond U+FFFF are one; to this one they are not."""
    target.execute("CREATE TABLE shop.signs (k VARCHAR(9) COLLATE utf8mb4_bin PRIMARY KEY, v INT)")
    signs = table("signs", [column("k", "VARCHAR", nullable=False, primary_key=True), column("v", "INT")], ["k"])
    ordered = [(RowKind.INSERT, n, n, chr(0x20000 + n), n) for n in range(20_000)]
    (outcome,) = target.write(change(signs, ordered=ordered))
    assert (outcome.upserts, outcome.netted) == (20_000, 0)
    assert target.execute("SELECT COUNT(*), SUM(v) FROM shop.signs") == [(20_000, sum(range(20_000)))]


def test_the_answer_which_spellings_are_one_key_may_be_long(target):
    """Servers cut off what GROUP_CONCAT gives beyond 1024 characters, unless they are told more."""
    target.execute("CREATE TABLE shop.spelt (k VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY, v INT)")
    spelt = table("spelt", [column("k", "VARCHAR", nullable=False, primary_key=True), column("v", "INT")], ["k"])
    spellings = ["".join("aA"[number >> bit & 1] for bit in range(11)) for number in range(2_000)]
    ordered = [(RowKind.UPDATE_AFTER, n, n, spelling, n) for n, spelling in enumerate(spellings)]
    (outcome,) = target.write(change(spelt, ordered=ordered))
    assert (outcome.upserts, outcome.netted) == (1, 1_999)
    assert target.execute("SELECT * FROM shop.spelt") == [(spellings[-1], 1_999)]


ALL_TEXT = "".join(chr(n) for n in range(1, 0x250)) + "\\N'\"`\\' \u2028😀\x00\x1a end"


def test_text_of_every_kind_comes_back_as_it_was(either_way):
    schema = table("texts", [column("id", "INT"), column("s", "TEXT"), column("k", "VARCHAR")], ["id"])
    either_way.execute("CREATE TABLE shop.texts (id INT PRIMARY KEY, s TEXT, k VARCHAR(30) UNIQUE) COLLATE utf8mb4_bin")
    texts = [ALL_TEXT, "", "\\N", "NULL", "\\", "\t", "\n", "\r\n", "\\\n", "'", "trailing ", None]
    rows = [(n, text, f"k\\{n}'") for n, text in enumerate(texts)]
    assert either_way.write(change(schema, rows))[0].problem is None
    assert either_way.execute("SELECT * FROM shop.texts ORDER BY id") == rows


def test_keys_of_any_text_and_bytes_are_deleted(target):
    schema = table("keys", [column("k", "VARCHAR", nullable=False), column("b", "VARBINARY", nullable=False)], ["k", "b"])
    target.execute("CREATE TABLE shop.keys (k VARCHAR(40), b VARBINARY(9), PRIMARY KEY (k, b)) COLLATE utf8mb4_bin")
    rows = [("a'b\\c", b"\x00'\\"), ("\n\t\x00", b""), ("😀", b"\xff"), ("%s ?", b"%")]
    target.write(change(schema, [*rows, ("stays", b"")]))
    (outcome,) = target.write(change(schema, deletes=rows))
    assert outcome.deletes == 4
    assert target.execute("SELECT * FROM shop.keys") == [("stays", b"")]


def test_values_at_the_edges_of_their_types_come_back_as_they_were(either_way):
    columns = [
        column("id", "BIGINT", unsigned=True),
        column("b", "VARBINARY"),
        column("bits", "BIT"),
        column("d", "DATE"),
        column("dt", "DATETIME"),
        column("ts", "TIMESTAMP"),
        column("t", "TIME"),
        column("y", "YEAR"),
        column("f", "FLOAT"),
        column("g", "DOUBLE"),
        column("n", "DECIMAL"),
        column("e", "ENUM"),
        column("m", "SET"),
        column("j", "JSON"),
    ]
    either_way.execute(
        "CREATE TABLE shop.edges (id BIGINT UNSIGNED PRIMARY KEY, b VARBINARY(300), bits BIT(64), d DATE, dt DATETIME(6),"
        " ts TIMESTAMP(6) NULL, t TIME(6), y YEAR, f FLOAT, g DOUBLE, n DECIMAL(65,30), e ENUM('x','1','é'),"
        " m SET('p','q'), j JSON)"
    )
    rows = [
        (2**64 - 1, bytes(range(256)), 2**64 - 1, "0000-00-00", "2024-00-00 00:00:00.000000", "1970-01-01 00:00:01.000001",
         "-838:59:59.000000", 0, 16777216.0, 1.7976931348623157e308, "9" * 35 + "." + "9" * 30, "1", "p,q", '{"a": "\\n😀"}'),
        (0, b"", 0, "9999-12-31", "9999-12-31 23:59:59.999999", "0000-00-00 00:00:00.000000",
         "838:59:59.000000", 2155, 0.5, 5e-324, "-" + "9" * 35 + "." + "9" * 30, "é", "", "null"),
        (1, None, None, None, None, None, None, None, None, None, None, None, None, None),
        (2, b"\\N", 9, "2023-02-31", "2024-03-31 02:30:00.000000", "2024-03-31 02:30:00.000000",
         "00:00:00.000001", 1901, -0.0, -0.0, "0." + "0" * 30, "x", "q", "[]"),
    ]  # fmt: skip
    schema = table("edges", columns)
    assert either_way.write(change(schema, rows))[0].problem is None
    found = either_way.execute(
        "SELECT id, b, bits + 0, CAST(d AS CHAR), CAST(dt AS CHAR), CAST(ts AS CHAR), CAST(t AS CHAR), y + 0,"
        " CAST(f AS DOUBLE), g, CAST(n AS CHAR), e, m, j FROM shop.edges ORDER BY FIELD(id, 18446744073709551615, 0, 1, 2)"
    )
    assert [tuple(row) for row in found] == rows
    (outcome,) = either_way.write(change(schema, deletes=[(2**64 - 1,), (0,)]))
    assert outcome.deletes == 2
    assert either_way.execute("SELECT id FROM shop.edges ORDER BY id") == [(1,), (2,)]


def test_floats_come_back_bit_for_bit(target):
    target.execute("CREATE TABLE shop.floats (id INT PRIMARY KEY, f FLOAT, g DOUBLE)")
    schema = table("floats", [column("id", "INT"), column("f", "FLOAT"), column("g", "DOUBLE")])
    generator = random.Random(1)
    values = [generator.uniform(-1, 1) * 10.0 ** generator.randint(-37, 37) for _ in range(2000)]
    sent = change(schema, [(n, value, value) for n, value in enumerate(values)])
    assert target.write(sent)[0].problem is None
    assert [row[0] for row in target.execute("SELECT g FROM shop.floats ORDER BY id")] == values
    # The server prints FLOAT with six digits; as a double it shows all of it.
    found = [row[0] for row in target.execute("SELECT CAST(f AS DOUBLE) FROM shop.floats ORDER BY id")]
    assert found == [value.as_py() for value in sent.upserts.column("f")]


def test_every_float_comes_back_whatever_its_bits(either_way):
    either_way.execute("CREATE TABLE shop.singles (id INT PRIMARY KEY, f FLOAT)")
    schema = table("singles", [column("id", "INT"), column("f", "FLOAT")])
    bits = np.random.default_rng(2).integers(0, 2**32, 5000, dtype=np.uint32)
    limits = [0x7F7FFFFF, 0xFF7FFFFF, 0x7F7FFFFE, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000]
    patterns = np.concatenate([np.array(limits, np.uint32), bits]).view(np.float32)
    values = [float(value) for value in patterns if np.isfinite(value)]
    assert either_way.write(change(schema, list(enumerate(values))))[0].problem is None
    assert [row[0] for row in either_way.execute("SELECT CAST(f AS DOUBLE) FROM shop.singles ORDER BY id")] == values


def test_columns_that_rows_do_not_carry_are_left_to_the_server(target):
    target.execute("CREATE TABLE shop.gen (id INT PRIMARY KEY, a INT, b INT AS (a + 1) STORED)")
    schema = table("gen", [column("id", "INT"), column("a", "INT")])
    target.write(change(schema, [(1, 2)]))
    assert target.execute("SELECT * FROM shop.gen") == [(1, 2, 3)]


def test_a_zero_stays_zero_in_an_auto_increment_column(target):
    target.execute("CREATE TABLE shop.auto (id INT AUTO_INCREMENT PRIMARY KEY, v INT)")
    target.write(change(table("auto", [column("id", "INT", nullable=False), column("v", "INT")]), [(0, 1)]))
    assert target.execute("SELECT * FROM shop.auto") == [(0, 1)]


def test_a_parent_row_is_replaced_without_touching_its_children(target):
    target.execute(
        "CREATE TABLE shop.parent (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE shop.child (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES shop.parent (id) ON DELETE CASCADE)",
        "INSERT INTO shop.parent VALUES (1, 1)",
        "INSERT INTO shop.child VALUES (1)",
    )
    target.write(change(table("parent", [column("id", "INT"), column("v", "INT")]), [(1, 2)]))
    assert target.execute("SELECT * FROM shop.child") == [(1,)]


def test_a_refused_value_stops_its_table_only_and_is_named(either_way):
    either_way.execute(CREATE_ITEMS, CREATE_OTHERS)
    refused, fine = either_way.write(change(ITEMS, [(1, "short", 1), (2, "x" * 21, 2)], deletes=[(7,)]), change(OTHERS, [(1, 1)]))
    assert (refused.problem.column, refused.problem.value) == ("name", "x" * 21)
    assert "wide" in refused.problem.hint
    assert fine.problem is None
    assert either_way.execute("SELECT COUNT(*) FROM shop.items") == [(0,)]
    assert either_way.execute("SELECT * FROM shop.others") == [(1, 1)]


@pytest.mark.parametrize(
    ("definition", "value", "kind"),
    [("TINYINT", 300, "INT"), ("DECIMAL(5,2)", "1.234", "DECIMAL"), ("DATE", "2024-13-01", "DATE"), ("ENUM('a')", "b", "ENUM")],
)
def test_values_that_do_not_fit_are_refused_and_never_changed(either_way, definition, value, kind):
    either_way.execute(f"CREATE TABLE shop.narrow (id INT PRIMARY KEY, v {definition})")
    (outcome,) = either_way.write(change(table("narrow", [column("id", "INT"), column("v", kind)]), [(1, value)]))
    assert outcome.problem.column == "v"
    assert outcome.problem.value == str(value)
    assert either_way.execute("SELECT COUNT(*) FROM shop.narrow") == [(0,)]


def test_a_null_where_none_may_be_is_refused(target):
    target.execute("CREATE TABLE shop.strict (id INT PRIMARY KEY, v INT NOT NULL)")
    (outcome,) = target.write(change(table("strict", [column("id", "INT"), column("v", "INT")]), [(1, None)]))
    assert outcome.problem.column == "v"


def test_a_missing_column_is_a_problem_that_names_it(target):
    target.execute("ALTER TABLE shop.items DROP COLUMN name")
    refused, fine = target.write(change(ITEMS, [(1, "a", 1)]), change(OTHERS, [(1, 1)]))
    assert refused.problem.column == "name"
    assert "lacks a column" in refused.problem.message
    assert fine.problem is None


@pytest.mark.parametrize("drop", ["DROP TABLE shop.items", "DROP DATABASE shop"])
def test_a_table_that_was_dropped_by_hand_is_a_problem(target, drop):
    target.execute(drop)
    outcomes = target.write(change(ITEMS, [(1, "a", 1)]), change(ITEMS, deletes=[(1,)]))
    assert all("no such table" in outcome.problem.message for outcome in outcomes)


def test_a_cut_and_its_progress_are_one_transaction(target):
    commit = CutCommit(42, {ITEMS.table_id: 7, OTHERS.table_id: 8})
    target.write(change(ITEMS, [(1, "a", 1)]), change(OTHERS, [(1, 1)]), commit=commit)
    state = target.sink.ledger.peek(PIPELINE)
    assert (state.checkpoint, state.tables) == (42, {})
    assert target.execute("SELECT COUNT(*) FROM shop.items") == [(1,)]


def test_a_refused_table_keeps_its_place_in_an_atomic_cut(target):
    commit = CutCommit(42, {ITEMS.table_id: 7, OTHERS.table_id: 8})
    outcomes = target.write(change(ITEMS, [(1, "x" * 99, 1)]), change(OTHERS, [(1, 1)]), commit=commit)
    assert outcomes[0].problem is not None
    state = target.sink.ledger.peek(PIPELINE)
    assert state.checkpoint == 42
    assert (state.tables[ITEMS.table_id].status, state.tables[ITEMS.table_id].checkpoint) == (TableStatus.STOPPED, 7)
    assert target.execute("SELECT * FROM shop.others") == [(1, 1)]


def test_an_empty_cut_commits_its_progress(target):
    assert target.write(commit=CutCommit(42, {})) == []
    assert target.sink.ledger.peek(PIPELINE).checkpoint == 42


def test_nothing_of_an_atomic_cut_stays_when_another_run_took_over(target):
    writer = target.writer()
    target.execute("UPDATE headrace.pipelines SET epoch = epoch + 1")
    with pytest.raises(FencedError):
        writer.write([change(ITEMS, [(1, "a", 1)])], CutCommit(42, {ITEMS.table_id: 7}))
    writer.close()
    assert target.execute("SELECT COUNT(*) FROM shop.items") == [(0,)]
    assert target.sink.ledger.peek(PIPELINE).checkpoint == 0


def test_a_task_of_a_former_attempt_cannot_commit(target):
    zombie = target.writer()
    target.attempt = target.sink.ledger.next_attempt()
    with pytest.raises(FencedError, match="Attempt 0"):
        zombie.write([change(ITEMS, [(1, "late", 1)])], None)
    zombie.close()
    with pytest.raises(FencedError):
        target.writer(attempt=0)
    assert target.write(change(ITEMS, [(1, "a", 1)]))[0].problem is None


def test_an_attempt_ends_the_transactions_of_the_former_one(target):
    zombie = target.writer()
    zombie._own_slot().connected().run("REPLACE INTO shop.items VALUES (1, 'held', 1)")  # paused with its locks
    target.attempt = target.sink.ledger.next_attempt()
    begun = time.monotonic()
    assert target.write(change(ITEMS, [(1, "a", 1)]))[0].problem is None
    assert time.monotonic() - begun < 5
    zombie.close()


def test_a_takeover_ends_the_former_runs_connections_even_while_they_hold_the_fence(target):
    zombie = target.writer()
    zombie._own_slot().connected().run("REPLACE INTO shop.items VALUES (1, 'held', 1)")
    zombie._own_slot().prove()  # paused right before COMMIT
    begun = time.monotonic()
    target.epoch = target.sink.ledger.acquire(PIPELINE, "source", "", 0).epoch
    assert time.monotonic() - begun < 5
    with pytest.raises(pymysql.err.MySQLError):
        zombie._own_slot().commit()
    assert target.execute("SELECT COUNT(*) FROM shop.items") == [(0,)]


def test_a_connection_that_is_nobodys_writer_is_left_alone(target):
    with target.server.connect() as bystander:
        target.writer().close()
        target.execute(f"UPDATE headrace.fences SET connection_id = {bystander.thread_id()}")
        target.sink.ledger.next_attempt()
        bystander.ping(reconnect=False)


def deadlocks(target) -> int:
    on_tidb, on_mariadb = "SELECT COUNT(*) FROM information_schema.deadlocks", "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'"
    return int(target.execute(on_tidb if target.server.is_tidb else on_mariadb)[0][-1])


def test_a_deadlock_is_repeated(target):
    target.write(change(ITEMS, [(1, "a", 1), (2, "b", 2)]))
    before = deadlocks(target)
    blocker = target.server.connect(autocommit=False)
    with blocker.cursor() as cursor:
        cursor.execute("SELECT * FROM shop.items WHERE id = 2 FOR UPDATE")
        # Rows that the blocker changed make its transaction the heavier one, so MariaDB gives up the writer's.
        rows = ", ".join(f"({n}, 1)" for n in range(100, 1100))
        cursor.execute(f"INSERT INTO shop.others VALUES {rows}")
        outcomes = []
        writing = threading.Thread(
            target=lambda: outcomes.extend(target.write(change(ITEMS, [(1, "x", 1)]), change(ITEMS, [(2, "y", 2)])))
        )
        writing.start()
        time.sleep(0.5)
        # TiDB gives up whoever closes the circle.
        with pytest.raises(pymysql.err.OperationalError, match="1213") if target.server.is_tidb else nullcontext():
            cursor.execute("SELECT * FROM shop.items WHERE id = 1 FOR UPDATE")
        blocker.commit()
    writing.join(20)
    assert deadlocks(target) > before
    assert [outcome.problem for outcome in outcomes] == [None, None]
    assert target.execute("SELECT name FROM shop.items ORDER BY id") == [("x",), ("y",)]


def test_two_writers_of_one_table_with_two_unique_keys_get_through(target):
    generator = random.Random(3)
    values = list(range(400))
    target.write(change(ITEMS, [(n, "old", n) for n in values]))
    generator.shuffle(values)
    halves = [[(n, "new", values[n]) for n in range(part, 400, 2)] for part in (0, 1)]
    errors = []

    def run(slot: int) -> None:
        try:
            for start in range(0, 200, 20):
                target.write(change(ITEMS, halves[slot][start : start + 20]), slot=slot)
        except Exception as error:  # noqa: BLE001 (shown by the assertion below)
            errors.append(error)

    threads = [threading.Thread(target=run, args=(slot,)) for slot in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    # A row that lost its unique value to another half comes back when its own half is written again: converge repeats.
    target.write(change(ITEMS, [*halves[0], *halves[1]]))
    assert target.execute("SELECT COUNT(*) FROM shop.items WHERE name = 'new'") == [(400,)]


def test_a_lost_connection_is_made_again(target):
    writer = target.writer()
    writer.write([change(ITEMS, [(1, "a", 1)])], None)
    target.execute(f"KILL {writer._own_slot().connected().connection_id}")
    assert writer.write([change(ITEMS, [(2, "b", 2)])], None)[0].problem is None
    writer.close()
    assert target.execute("SELECT COUNT(*) FROM shop.items") == [(2,)]


def test_large_changes_are_cut_into_transactions(target, monkeypatch):
    monkeypatch.setattr(writer_module, "TRANSACTION_ROWS", 100)
    commits = []
    monkeypatch.setattr(MySqlSession, "commit", lambda session: (commits.append(1), session._connection.commit()))
    rows = [(n, "n", n) for n in range(950)]
    assert target.write(change(ITEMS, rows), change(OTHERS, [(1, 1)]))[0].upserts == 950
    assert target.execute("SELECT COUNT(*) FROM shop.items") == [(950,)]
    assert len(commits) == 11  # the slot, and ten times at most 100 rows


def test_a_server_without_local_infile_is_written_by_replace_and_says_so_once(target):
    target.execute("SET GLOBAL local_infile = OFF")
    try:
        outcomes = target.write(change(ITEMS, [(1, "a", 1)]), change(OTHERS, [(1, 1)]))
    finally:
        target.execute("SET GLOBAL local_infile = ON")
    notices = [notice.sentence() for outcome in outcomes for notice in outcome.notices]
    assert len(notices) == (0 if target.server.is_tidb else 1)
    assert all("LOAD DATA LOCAL" in notice for notice in notices)
    assert target.execute("SELECT * FROM shop.items") == [(1, "a", 1)]


def test_local_infile_that_is_switched_off_meanwhile_changes_the_way(target):
    writer = target.writer()
    target.execute("SET GLOBAL local_infile = OFF")
    try:
        (outcome,) = writer.write([change(ITEMS, [(1, "a", 1)])], None)
    finally:
        target.execute("SET GLOBAL local_infile = ON")
        writer.close()
    assert outcome.problem is None
    assert len(outcome.notices) == (0 if target.server.is_tidb else 1)


def test_a_server_gets_no_file_that_it_was_not_offered(target, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("1\tsecret\t1\n")
    session = MySqlSession(read_settings(target.uri))
    statement = f"LOAD DATA LOCAL INFILE '{secret}' INTO TABLE shop.items (id, name, u)"
    with pytest.raises(TerminalError, match="not offered"):  # outside a load nothing is
        session.run(statement)
    session.close()
    session = MySqlSession(read_settings(target.uri))
    with pytest.raises(TerminalError, match="not offered"):
        session.load(statement, [])
    session.close()
    assert target.execute("SELECT COUNT(*) FROM shop.items") == [(0,)]


def test_a_wrong_password_is_one_sentence_without_the_password(mariadb):
    uri = f"mysql://headrace:wr0ng-pass@{mariadb.host}:{mariadb.port}/"
    writer = MySqlWriter(read_settings(uri), Claim(PIPELINE, 1, "token"))
    begun = time.monotonic()
    with pytest.raises(SinkUnreachableError, match="refuses the login") as raised:
        writer.open(WriterContext(PIPELINE, 1, 0, 0))
    assert "wr0ng" not in str(raised.value)
    assert time.monotonic() - begun < 5


def test_a_server_that_is_not_there_is_unreachable():
    with pytest.raises(SinkUnreachableError, match="cannot be reached"):
        MySqlWriter(read_settings("mysql://127.0.0.1:1/"), Claim(PIPELINE, 1, "token")).open(WriterContext(PIPELINE, 1, 0, 0))


@pytest.mark.reading_case("A53")
def test_names_with_signs_of_every_kind_are_quoted(target):
    target.execute("CREATE TABLE shop.`we``ird ?%s` (`i``d ?` INT PRIMARY KEY, `b%s` BLOB)")
    schema = table("we`ird ?%s", [column("i`d ?", "INT"), column("b%s", "BLOB")], ["i`d ?"])
    assert target.write(change(schema, [(1, b"x"), (2, b"y")]))[0].problem is None
    assert target.write(change(schema, deletes=[(1,)]))[0].problem is None
    assert schema.table_id == TableId("shop", "we`ird ?%s")
    assert target.execute("SELECT * FROM shop.`we``ird ?%s`".replace("%", "%")) == [(2, b"y")]


@pytest.mark.parametrize("whole", [True, False], ids=["atomic", "transactions"])
@pytest.mark.parametrize("error", [KeyError("a bug"), MemoryError(), pymysql.err.ProgrammingError(1064, "odd syntax")])
@pytest.mark.parametrize("step", ["_load", "settled"])
@pytest.mark.parametrize("first", [True, False])
def test_what_nobody_foresaw_about_the_rows_of_one_table_stops_that_table(target, monkeypatch, step, error, whole, first):
    """The rows that it has written before in the same transaction are not there, and its session is not used any more."""
    original = getattr(writer_module, step)

    def failing(session, given):
        found = original(session, given)
        if given.table_id == ITEMS.table_id:
            raise error
        return found

    monkeypatch.setattr(writer_module, step, failing)
    commit = CutCommit(42, {ITEMS.table_id: 7, OTHERS.table_id: 8}) if whole else None
    late = [(int(RowKind.INSERT), 10, 1, 9, "z", 9)]
    changes = [change(ITEMS, [(1, "a", 1)], ordered=late), change(OTHERS, [(1, 1)])]
    outcomes = target.write(*(changes if first else changes[::-1]), commit=commit)
    problems = {outcome.table_id: outcome.problem for outcome in outcomes}
    assert problems[ITEMS.table_id] is not None
    assert problems[OTHERS.table_id] is None
    assert target.execute("SELECT COUNT(*) FROM shop.items") == [(0,)]
    assert target.execute("SELECT * FROM shop.others") == [(1, 1)]
    if whole:
        state = target.sink.ledger.peek(PIPELINE)
        assert (state.checkpoint, state.tables[ITEMS.table_id].status, state.tables[ITEMS.table_id].checkpoint) == (
            42,
            TableStatus.STOPPED,
            7,
        )
