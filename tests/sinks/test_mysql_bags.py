"""Tables without key in the MySQL sink: rows are counted, and nothing is ever applied twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pymysql
import pytest
from mysql_writing import PIPELINE, Target, acquired, change, column, rows_of, table

from headrace.errors import TransientError
from headrace.model.ledger import TableProgress, TableStatus
from headrace.model.table import Generated, TableSchema
from headrace.sinks.base import TableChange
from headrace.sinks.cut_commit import CutCommit
from headrace.sinks.mysql import open_sink
from headrace.sinks.mysql.bag import row_conditions
from headrace.sinks.mysql.connection import MySqlSession

LOG = table("log", [column("v", "INT"), column("s", "VARCHAR")], [])
OTHERS = table("others", [column("id", "INT", nullable=False, primary_key=True), column("v", "INT")])
server = pytest.mark.server


@pytest.fixture(params=["auto", "off"])
def target(mariadb, request) -> Target:
    """Written with LOAD DATA, and with INSERT."""
    target = acquired(mariadb, local_infile=request.param)
    target.execute(
        "CREATE TABLE shop.log (v INT, s VARCHAR(20)) COLLATE utf8mb4_general_ci",
        "CREATE TABLE shop.others (id INT PRIMARY KEY, v INT)",
    )
    return target


def bag(
    schema: TableSchema, inserts: Sequence[Sequence[object]], deletes: Sequence[Sequence[object]], checkpoint: int
) -> TableChange:
    """A change of a table without key that takes it to the checkpoint."""
    rows = rows_of(schema.row_columns, deletes)
    return replace(change(schema, inserts), deletes=rows, progress=TableProgress(schema.table_id, checkpoint))


def held(target: Target, name: str = "log") -> list[tuple[object, ...]]:
    return sorted(target.execute(f"SELECT * FROM shop.{name}"), key=repr)


def own_row(target: Target):
    return target.sink.ledger.peek(PIPELINE).tables.get(LOG.table_id)


def lose_the_answer_of_the_next_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server commits, and the connection is gone before it says so."""
    commit = MySqlSession.commit

    def committed_and_lost(session: MySqlSession) -> None:
        commit(session)
        monkeypatch.setattr(MySqlSession, "commit", commit)
        session.close()
        raise pymysql.err.OperationalError(2013, "Lost connection to MySQL server during query")

    monkeypatch.setattr(MySqlSession, "commit", committed_and_lost)


def test_the_sink_says_that_it_can_hold_bags():
    assert open_sink("mysql://h/").capabilities.bags


def test_conditions_compare_text_by_its_bytes_and_json_by_its_value_where_the_server_has_one():
    columns = [column("n", "INT"), column("s", "TEXT"), column("j", "JSON")]
    rows = rows_of(columns, [(1, "a'", "{}"), (None, None, None)])
    text = "CAST(CONVERT(`{0}` USING utf8mb4) AS BINARY) <=> CAST({1} AS BINARY)"
    assert row_conditions(rows, columns, json_is_text=True)[0].as_py() == " AND ".join(
        ["`n` <=> 1", text.format("s", "'a\\''"), text.format("j", "'{}'")]
    )
    assert row_conditions(rows, columns, json_is_text=False)[1].as_py() == " AND ".join(
        ["`n` <=> NULL", text.format("s", "NULL"), "`j` <=> CAST(NULL AS JSON)"]
    )


@server
def test_each_delete_takes_one_of_the_rows_that_are_equal(target):
    target.write(bag(LOG, [(1, "a")] * 3 + [(2, None)] * 2 + [(None, "b")], [], 10))
    (outcome,) = target.write(bag(LOG, [(3, "c")], [(1, "a"), (1, "a"), (2, None), (None, "b")], 20))
    assert (outcome.upserts, outcome.deletes, outcome.problem) == (1, 4, None)
    assert held(target) == [(1, "a"), (2, None), (3, "c")]
    assert (own_row(target).checkpoint, own_row(target).status) == (20, TableStatus.RUNNING)


@server
def test_changes_that_cancel_out_take_the_table_to_their_checkpoint(target):
    (outcome,) = target.write(bag(LOG, [], [], 10))
    assert outcome.problem is None
    assert own_row(target).checkpoint == 10


@server
def test_rows_that_a_collation_takes_for_equal_are_told_apart(target):
    texts = ["a", "A", "á", "a ", "a  ", "", " ", None, "a\\'", "\t", "😀", "😁"]
    target.write(bag(LOG, [(1, text) for text in texts], [], 10))
    generator = random.Random(1)
    generator.shuffle(texts)
    for number, text in enumerate(texts):
        assert target.write(bag(LOG, [], [(1, text)], 20 + number))[0].problem is None
        assert {row[1] for row in held(target)} == set(texts[number + 1 :])


@server
def test_a_row_that_is_not_there_stops_the_table_as_it_was(target):
    target.write(bag(LOG, [(1, "a"), (2, "b")], [], 10))
    deletes = [(2, "b"), (1, "a"), (1, "a"), (7, "gone")]
    refused, fine = target.write(bag(LOG, [(5, "e")], deletes, 20), change(OTHERS, [(1, 1)]))
    assert "2 rows that the source deleted are not in the target" in refused.problem.message
    assert refused.problem.value == "v=1, s=a"
    assert fine.problem is None
    assert held(target) == [(1, "a"), (2, "b")]
    assert own_row(target).checkpoint == 10


@server
def test_random_deletions_are_carried_out_in_full_or_refused(target):
    chance, expected = random.Random(19), Counter()
    values = [(v, s) for v in (1, None) for s in ("a", "A")]
    for checkpoint in range(1, 60):
        deletes = Counter(chance.choices(values, k=chance.randint(0, 2)))
        inserts = Counter(row for row in chance.choices(values, k=3) if row not in deletes)
        (outcome,) = target.write(bag(LOG, list(inserts.elements()), list(deletes.elements()), checkpoint))
        missing = (deletes - expected).total()
        if missing:
            assert outcome.problem.message.startswith(f"{missing} row")
        else:
            assert outcome.problem is None
            expected = expected - deletes + inserts
        assert held(target) == sorted(expected.elements(), key=repr)


@server
def test_a_row_that_is_not_there_stops_its_table_in_an_atomic_cut(target):
    commit = CutCommit(42, {LOG.table_id: 7, OTHERS.table_id: 8})
    refused, _ = target.write(bag(LOG, [], [(1, "a")], 40), change(OTHERS, [(1, 1)]), commit=commit)
    assert "1 row that the source deleted is not" in refused.problem.message
    assert (own_row(target).checkpoint, own_row(target).status) == (7, TableStatus.STOPPED)
    assert target.sink.ledger.peek(PIPELINE).checkpoint == 42
    assert held(target, "others") == [(1, 1)]


@server
@pytest.mark.parametrize("commit", [None, CutCommit(42, {LOG.table_id: 7, OTHERS.table_id: 8})])
def test_a_repetition_after_a_lost_commit_applies_nothing_twice(target, monkeypatch, commit):
    target.write(bag(LOG, [(1, "a")] * 3, [], 10))
    writer = target.writer()
    lose_the_answer_of_the_next_commit(monkeypatch)
    outcomes = writer.write([bag(LOG, [(2, "b")], [(1, "a")], 40), change(OTHERS, [(1, 1)])], commit)
    writer.close()
    assert [outcome.problem for outcome in outcomes] == [None, None]
    assert held(target) == [(1, "a"), (1, "a"), (2, "b")]
    assert own_row(target).checkpoint == 40


@server
def test_a_refused_bag_is_still_refused_after_a_lost_commit(target, monkeypatch):
    writer = target.writer()
    lose_the_answer_of_the_next_commit(monkeypatch)
    (outcome,) = writer.write([bag(LOG, [], [(1, "a")], 40)], CutCommit(42, {LOG.table_id: 7}))
    writer.close()
    assert outcome.problem is not None
    assert own_row(target).status is TableStatus.STOPPED


@server
def test_a_task_that_runs_again_leaves_a_bag_alone_and_asks_for_a_new_plan(target):
    target.write(bag(LOG, [(1, "a")], [], 10))
    with pytest.raises(TransientError, match="planned again"):
        target.write(bag(LOG, [(1, "a")], [], 10))
    assert held(target) == [(1, "a")]


@server
def test_a_bag_without_commit_ts_is_a_problem_of_its_own(target):
    without = replace(bag(LOG, [(1, "a")], [], 0), progress=None)
    unmoved = bag(LOG, [(1, "a")], [], 7)
    commit = CutCommit(42, {LOG.table_id: 7, OTHERS.table_id: 8})
    for kept, atomic in ((without, None), (unmoved, commit)):
        refused, fine = target.write(kept, change(OTHERS, [(1, 1)]), commit=atomic)
        assert "no exact commit ts" in refused.problem.message
        assert fine.problem is None
    assert held(target) == []
    assert own_row(target).checkpoint == 7


@server
def test_the_versions_of_a_bag_are_one_transaction(target, monkeypatch):
    commits = []
    monkeypatch.setattr(MySqlSession, "commit", lambda session: (commits.append(1), session._connection.commit()))
    later = replace(bag(LOG, [], [(1, "a")], 30), version=2)
    target.write(bag(LOG, [(1, "a"), (2, "b")], [], 20), later)
    assert len(commits) == 2  # the slot, and the table
    assert held(target) == [(2, "b")]
    assert own_row(target).checkpoint == 30


@server
def test_a_nullable_unique_value_may_go_from_row_to_row_and_no_insert_replaces(target):
    target.execute("ALTER TABLE shop.log ADD UNIQUE (v)")
    target.write(bag(LOG, [(1, "a"), (2, "b"), (None, "n"), (None, "n")], [], 10))
    assert target.write(bag(LOG, [(1, "B"), (2, "A")], [(1, "a"), (2, "b")], 20))[0].problem is None
    (outcome,) = target.write(bag(LOG, [(1, "second")], [], 30))
    assert "Duplicate entry" in outcome.problem.message
    assert held(target) == [(1, "B"), (2, "A"), (None, "n"), (None, "n")]


@server
def test_stored_generated_columns_are_neither_written_nor_compared(target):
    target.execute("CREATE TABLE shop.gen (a INT, b INT AS (a + 1) STORED)")
    schema = table("gen", [column("a", "INT"), column("b", "INT", generated=Generated.STORED)], [])
    target.write(bag(schema, [(1, 2), (1, 2)], [], 10))
    assert target.write(bag(schema, [], [(1, 99)], 20))[0].problem is None
    assert target.execute("SELECT * FROM shop.gen") == [(1, 2)]


EDGES = [
    ("BIGINT", "BIGINT UNSIGNED", [2**64 - 1, 2**63, 0, None]),
    ("BIT", "BIT(64)", [2**64 - 1, 0, 1, None]),
    ("YEAR", "YEAR", [0, 1901, 2000, 2155, None]),
    ("DOUBLE", "DOUBLE", [1.7976931348623157e308, 5e-324, 0.1, -0.1, None]),
    ("DECIMAL", "DECIMAL(65,30)", ["9" * 35 + "." + "9" * 30, "9" * 35 + "." + "9" * 29 + "8", "-0." + "0" * 29 + "1", None]),
    ("DATE", "DATE", ["0000-00-00", "2023-02-31", "2024-00-00", "9999-12-31", None]),
    ("DATETIME", "DATETIME(6)", ["0000-00-00 00:00:00.000000", "2024-00-00 00:00:00.000000", "9999-12-31 23:59:59.999999", None]),
    ("TIMESTAMP", "TIMESTAMP(6) NULL", ["0000-00-00 00:00:00.000000", "1970-01-01 00:00:01.000001", None]),
    ("TIME", "TIME(6)", ["-838:59:59.000000", "838:59:59.000000", "-00:00:00.000001", None]),
    ("ENUM", "ENUM('x', '1', '2', 'é') COLLATE utf8mb4_bin", ["x", "1", "2", "é", None]),
    ("SET", "SET('p', 'q')", ["p,q", "q", "", None]),
    ("JSON", "JSON", ['{"a": 1}', '{"a": 1.0}', "null", '"A"', '"a"', '{"b": "\\\\n😀"}', None]),
    ("VECTOR", "LONGTEXT", ["[1,2]", "[1,2.5]", None]),
    ("CHAR", "CHAR(9) CHARACTER SET latin1", ["é", "e", "E", "", None]),
    ("VARCHAR", "VARCHAR(9) CHARACTER SET gbk", ["中", "文", "a ", "a", None]),
    ("TEXT", "TEXT COLLATE utf8mb4_general_ci", ["a", "a ", "A", "", "x" * 60_000, None]),
    ("BINARY", "BINARY(3)", [b"a\0\0", b"a  ", b"\xff\xff\xff", None]),
    ("BLOB", "BLOB", [b"", b"\0", b" ", b"a", b"A", bytes(range(256)), None]),
]


@server
@pytest.mark.parametrize(("kind", "definition", "values"), EDGES, ids=[kind for kind, _, _ in EDGES])
@pytest.mark.reading_case("A49")
def test_a_value_of_any_type_is_found_again_and_no_other_for_it(target, kind, definition, values):
    if kind == "JSON" and target.server.is_tidb:
        values = [value for value in values if value != '{"a": 1.0}']  # TiDB keeps JSON by its value
    target.execute(f"CREATE TABLE shop.edges (n INT, v {definition})")
    unsigned = "UNSIGNED" in definition
    schema = table("edges", [column("n", "INT"), column("v", kind, unsigned=unsigned)], [])
    assert target.write(bag(schema, [(1, value) for value in values] * 2, [], 10))[0].problem is None
    for number, value in enumerate(values):
        assert target.write(bag(schema, [], [(1, value)], 20 + number))[0].problem is None
    assert target.execute("SELECT COUNT(*) FROM shop.edges") == [(len(values),)]
    assert len(set(target.execute("SELECT v FROM shop.edges"))) == len(values)
    (outcome,) = target.write(bag(schema, [], [(1, values[0])] * 2, 99))
    assert outcome.problem is not None


@server
def test_floats_of_any_bits_are_found_again(target):
    target.execute("CREATE TABLE shop.floats (f FLOAT, g DOUBLE)")
    schema = table("floats", [column("f", "FLOAT"), column("g", "DOUBLE")], [])
    generator = np.random.default_rng(4)
    singles = np.concatenate(
        [np.array([0x7F7FFFFF, 0xFF7FFFFF, 1, 0x007FFFFF], np.uint32), generator.integers(0, 2**32, 200, dtype=np.uint32)]
    ).view(np.float32)
    doubles = generator.integers(0, 2**63, len(singles), dtype=np.uint64).view(np.float64)
    rows = [(float(f), float(g)) for f, g in zip(singles, doubles, strict=True) if np.isfinite(f) and np.isfinite(g)]
    assert target.write(bag(schema, rows, [], 10))[0].problem is None
    assert target.write(bag(schema, [], rows, 20))[0].problem is None
    assert target.execute("SELECT COUNT(*) FROM shop.floats") == [(0,)]
