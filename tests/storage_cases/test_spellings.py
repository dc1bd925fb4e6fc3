"""Keys that only a collation unites: two rows of a source without new collations, one row of a source with them.

``new-collations`` is not set here unless a test says so: what a run sees decides. Every history is applied in one task and as large
ones are, in many.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from building import TEXT_KEY, Bucket, Ran

from headrace.ddl.told import source_tables
from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.model.ledger import RequestKind, TableRequest
from headrace.model.policy import OnError
from headrace.model.table import TableId
from headrace.pipeline.registry import open_sink, open_source
from headrace.sinks.dead_letters import open_dead_letters
from large_rounds import as_if_large
from servers import MariaDb
from storage_folder import OPTIONS

NUMBER: dict[str, Any] = {"ColumnName": "v", "ColumnType": "INT", "ColumnPrecision": "11"}
ID: dict[str, Any] = NUMBER | {"ColumnName": "k", "ColumnNullable": "false", "ColumnIsPk": "true"}
NAME: dict[str, Any] = {"ColumnName": "v", "ColumnType": "VARCHAR", "ColumnPrecision": "16"}
BY_TEXT = "CREATE TABLE `t` (`k` VARCHAR(16) PRIMARY KEY,`v` INT) DEFAULT CHARSET=utf8mb4 COLLATE={}"
BY_NUMBER = "CREATE TABLE `t` (`k` INT PRIMARY KEY,`v` VARCHAR(16),UNIQUE KEY u (`v`)) DEFAULT CHARSET=utf8mb4 COLLATE={}"
BY_TEXT_AND_NUMBER = BY_TEXT.replace("`v` INT", "`v` INT,UNIQUE KEY u (`v`)")
TWO_TEXTS = BY_TEXT.replace("`v` INT", "`v` VARCHAR(16),UNIQUE KEY u (`v`)")
CUT = "--"

pytestmark = pytest.mark.server


@pytest.fixture(params=["one task", "many tasks"], autouse=True)
def spread(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param == "many tasks":
        as_if_large(monkeypatch)
    return bool(request.param == "many tasks")


class Feed:
    """A changefeed of one table ``t``: a text key and a number (``statement``), or, ``by_number``, a number and a unique text."""

    def __init__(
        self, folder: Path, mariadb: MariaDb, *, collation: str, by_number: bool, options: str = OPTIONS, statement: str = BY_TEXT
    ) -> None:
        self.bucket, self.mariadb = Bucket(folder, options), mariadb
        shape, statement = (
            ((ID, NAME), BY_NUMBER) if by_number else ((TEXT_KEY, NAME if statement is TWO_TEXTS else NUMBER), statement)
        )
        self.bucket.schema("t", 100, shape, statement.format(collation), 3)
        self._files, self._ts = 0, 100

    def run(self) -> Ran:
        return self.bucket.run(sink=self.mariadb.uri())

    def apply(self, history: list[str]) -> Ran:
        """Lines such as ``I A 1``, each a commit of its own but for ``&``, which goes with the one before; ``--`` ends a cut."""
        ran = Ran()
        for cut in "\n".join(history).split(CUT):
            lines = []
            for line in filter(None, cut.split("\n")):
                self._ts += not line.startswith("&")
                operation, key, value = line.lstrip("&").split(" ")
                fields = [operation[0], self._ts, *(["true" if operation[1:] else "false"] if "old" in self.bucket.options else [])]
                texts = [f'"{f}"' if isinstance(f, str) and f not in ("true", "false") else str(f) for f in fields]
                texts[1:1] = ['"t"', '"test"']
                texts += [part.replace("_", " ") if part.isdigit() else '"' + part.replace("_", " ") + '"' for part in (key, value)]
                lines.append(",".join(texts) + "\n")
            # Two files, so that several tasks read.
            half = len(lines) // 2 or len(lines)
            for part in filter(None, (lines[:half], lines[half:])):
                self._files += 1
                self.bucket.write(f"test/t/100/CDC{self._files:06d}.csv", "".join(part))
            self._ts += 1
            self.bucket.checkpoint(self._ts)
            ran = self.run()
            if ran.code != EXIT_OK:
                return ran
        return ran

    def rows(self) -> set[tuple[str, str]]:
        with self.mariadb.connect(database="test") as connection, connection.cursor() as cursor:
            cursor.execute("SELECT k, v FROM t")
            return {(str(key), str(value)) for key, value in cursor.fetchall()}


def stopped(ran: Ran) -> str:
    assert ran.code == EXIT_TABLE_STOPPED
    (sentence,) = ran.stopped.values()
    assert "new-collations=false" in sentence
    assert "new-collations=true" in sentence
    return sentence


TWO_ROWS = [
    pytest.param("utf8mb4_general_ci", ["I A 1", "I a 2"], id="one cut"),
    pytest.param("utf8mb4_general_ci", ["I a 1", "&I A 2"], id="one transaction"),
    pytest.param("utf8mb4_general_ci", ["I A 1", CUT, "I b 2", CUT, "I a 2"], id="far apart"),
    pytest.param("utf8mb4_bin", ["I a 1", CUT, "I a_ 2"], id="padding"),
    pytest.param("utf8mb4_general_ci", ["I é 1", CUT, "I e 2"], id="accents"),
    pytest.param("utf8mb4_general_ci", ["I A 1", CUT, "U b 1", "I a 2", "U a 3"], id="the second one is updated"),
    pytest.param("utf8mb4_general_ci", ["I A 1", CUT, "U A 2", "I a 2"], id="the first one is updated"),
    pytest.param("utf8mb4_general_ci", ["I A 1", "I a 2", "U A 3"], id="the first one is updated in the same cut"),
    pytest.param("utf8mb4_general_ci", ["I A 1", "I a 2", "D A 1"], id="the first one is deleted"),
    pytest.param("utf8mb4_general_ci", ["I A 1", CUT, "I a 2", "D A 1"], id="the first one is deleted later"),
    pytest.param("utf8mb4_general_ci", ["I A 1", CUT, "I a 2", "D a 2", "I a 3"], id="the second one comes twice"),
    pytest.param("utf8mb4_general_ci", ["I A 1", CUT, "I a 2", "D a 2"], id="the second one comes and goes"),
    pytest.param("utf8mb4_general_ci", ["I A 1", "D A 1", CUT, "I á 1", CUT, "D b 9", "I A 2"], id="a third spelling"),
]


@pytest.mark.parametrize(("collation", "history"), TWO_ROWS)
def test_two_rows_that_only_a_collation_unites_stop_the_table(
    collation: str, history: list[str], mariadb: MariaDb, tmp_path: Path
) -> None:
    feed = Feed(tmp_path, mariadb, collation=collation, by_number=False)
    assert "which the target's collation treats as equal" in stopped(feed.apply(history))


TWO_VALUES = [
    pytest.param(["I 1 A", "I 2 a"], id="one cut"),
    pytest.param(["I 1 A", CUT, "I 3 b", CUT, "I 2 a"], id="far apart"),
    pytest.param(["I 1 A", "I 2 b", CUT, "U 2 a"], id="by an update"),
    pytest.param(["I 1 A", "I 2 b", CUT, "D 2 b", "&I 2 a"], id="by an update that is split"),
    pytest.param(["I 1 A", CUT, "U 1 Á", "I 2 a"], id="both"),
]


@pytest.mark.parametrize("history", TWO_VALUES)
def test_other_unique_keys_are_watched_too(history: list[str], mariadb: MariaDb, tmp_path: Path) -> None:
    feed = Feed(tmp_path, mariadb, collation="utf8mb4_general_ci", by_number=True)
    sentence = stopped(feed.apply(history))
    assert "column v: two rows have the keys" in sentence
    assert "(rows '2' and '1')" in sentence or "(rows '1' and '2')" in sentence


def test_a_row_that_pushes_out_two_does_not_hide_behind_one_that_pushes_out_none(mariadb: MariaDb, tmp_path: Path) -> None:
    """``á`` came back after ``A`` came and went, and its former row is deleted already; ``b`` gets ``z`` where ``c`` has ``Z``."""
    feed = Feed(tmp_path, mariadb, collation="utf8mb4_general_ci", by_number=False, statement=TWO_TEXTS)
    history = ["I á x", "I b y", "I c Z", CUT, "D á x", "I A q", "D A q", "I á x", "U b z"]
    assert "column v: two rows have the keys 'Z' and 'z' (rows 'b' and 'c')" in stopped(feed.apply(history))


ONE_ROW = [
    pytest.param(["I A 1", CUT, "D A 1", "I a 2"], {("a", "2")}, id="deleted and inserted"),
    pytest.param(["I A 1", CUT, "D A 1", "&I a 2"], {("a", "2")}, id="an update that is split"),
    pytest.param(["I A 1", "D A 1", "I a 2", "D a 2", "I á 3"], {("á", "3")}, id="in one cut"),
    pytest.param(["I A 1", CUT, "U a 2"], {("a", "2")}, id="an update by its new row alone"),
    pytest.param(["I A 1", "U a 2", CUT, "U A 3", "U á 4"], {("á", "4")}, id="such updates in one cut"),
    pytest.param(["I A 1", CUT, "U a 2", "D a 2", "I á 3"], {("á", "3")}, id="a spelling that comes and goes"),
    pytest.param(["I A 1", CUT, "D A 1", "I a 2", "U A 3"], {("A", "3")}, id="there and back"),
    pytest.param(["I A 1", "U a 2", "D a 2", "I á 3", "I b 1"], {("á", "3"), ("b", "1")}, id="all in one cut"),
    pytest.param(["I A 1", CUT, "U a 1", "U A 2", "D A 2"], set(), id="gone in the former spelling"),
    pytest.param(["I A 1", CUT, "I b 1", "D b 1", "D A 1", "I a 2", "D a 2"], set(), id="keys that come and go"),
    pytest.param(["I A 1", "I pas 1", CUT, "I pass 1", "U A 2", "D pas 1"], {("A", "2"), ("pass", "1")}, id="not equal at all"),
]


@pytest.mark.parametrize(("history", "rows"), ONE_ROW)
def test_one_row_that_changes_its_spelling_stops_nothing(
    history: list[str], rows: set[tuple[str, str]], mariadb: MariaDb, tmp_path: Path
) -> None:
    feed = Feed(tmp_path, mariadb, collation="utf8mb4_general_ci", by_number=False)
    ran = feed.apply(history)
    assert (ran.code, ran.stopped) == (EXIT_OK, {})
    assert feed.rows() == rows


@pytest.mark.parametrize("more", ["", "&new-collations=true"])
def test_a_former_spelling_pushes_out_no_row_that_took_over_its_unique_value(more: str, mariadb: MariaDb, tmp_path: Path) -> None:
    """``A`` becomes ``a`` and gives its number to ``aa``, for so many letters that tasks write some before and some after it."""
    options, statement = OPTIONS + more, BY_TEXT_AND_NUMBER
    feed = Feed(tmp_path, mariadb, collation="utf8mb4_general_ci", by_number=False, options=options, statement=statement)
    letters = "abcdefghijkl"
    former = [f"I {letter.upper()} {n}" for n, letter in enumerate(letters)]
    later = [line for n, letter in enumerate(letters) for line in (f"U {letter} {n + 100}", f"I {letter}{letter} {n}")]
    ran = feed.apply([*former, *later])
    assert (ran.code, ran.stopped) == (EXIT_OK, {})
    spelt = {(letter, str(n + 100)) for n, letter in enumerate(letters)}
    assert feed.rows() == spelt | {(letter * 2, str(n)) for n, letter in enumerate(letters)}


@pytest.mark.parametrize("more", ["", "&new-collations=true"])
def test_a_replay_of_dead_letters_writes_no_former_spelling_either(more: str, mariadb: MariaDb, tmp_path: Path) -> None:
    """As above, with a record that cannot be decoded among them, and is repaired later."""
    options, table_id = OPTIONS + more, TableId("test", "t")
    feed = Feed(tmp_path, mariadb, collation="utf8mb4_general_ci", by_number=False, options=options, statement=BY_TEXT_AND_NUMBER)
    pairs = list(enumerate("abcdefghijkl"))
    former = [("I", letter.upper(), n) for n, letter in pairs]
    later = [change for n, letter in pairs for change in (("U", letter, n + 100), ("I", letter * 2, n))]
    spelt = {(letter, str(n + 100)) for n, letter in pairs} | {(letter * 2, str(n)) for n, letter in pairs}
    lines = [f'"{kind}","t","test",{101 + n},"{key}",{number}\n' for n, (kind, key, number) in enumerate([*former, *later])]
    file, record = "test/t/100/CDC000001.csv", '"I","t","test",{},"zz",99\n'
    folder = open_dead_letters(str(tmp_path / "letters"), "default")

    def run(commit_ts: object) -> None:
        feed.bucket.write(file, "".join([record.format(commit_ts), *lines]))
        ran = feed.bucket.run(sink=mariadb.uri(), on_error=OnError.DEAD_LETTER, letters=folder)
        assert (ran.code, ran.stopped) == (EXIT_OK, {})

    feed.bucket.checkpoint(200)
    run("no number")
    assert feed.rows() == spelt
    with open_sink(mariadb.uri()) as sink:
        assert sink.ledger is not None
        sink.ledger.request("default", TableRequest("1", table_id, RequestKind.REPLAY))
        sink.ledger.close()
    run(101)
    assert folder.of(table_id) == {}
    assert feed.rows() == spelt | {("zz", "99")}


ONE_VALUE = [
    pytest.param(["I 1 A", CUT, "D 1 A", "I 2 a"], {("2", "a")}, id="another row takes it over"),
    pytest.param(["I 1 A", "I 2 b", CUT, "U 1 B", "U 2 a"], {("1", "B"), ("2", "a")}, id="a swap"),
    pytest.param(["I 1 A", CUT, "U 1 b", "I 2 a", "I 3 c"], {("1", "b"), ("2", "a"), ("3", "c")}, id="it is given up"),
    pytest.param(["I 1 A", CUT, "U 1 a"], {("1", "a")}, id="the row itself is spelled otherwise"),
    pytest.param(["I 1 A", CUT, "U 2 a"], {("2", "a")}, id="the key moved, and the old one is lost"),
    pytest.param(["I 1 A", "D 1 A", "I 2 a", "D 2 a", "I 3 á", "I 1 x"], {("3", "á"), ("1", "x")}, id="in one cut"),
]


@pytest.mark.parametrize(("history", "rows"), ONE_VALUE)
def test_a_unique_value_that_goes_from_row_to_row_in_another_spelling_stops_nothing(
    history: list[str], rows: set[tuple[str, str]], mariadb: MariaDb, tmp_path: Path
) -> None:
    feed = Feed(tmp_path, mariadb, collation="utf8mb4_general_ci", by_number=True)
    ran = feed.apply(history)
    assert (ran.code, ran.stopped) == (EXIT_OK, {})
    assert feed.rows() == rows


def test_the_setting_lets_a_stopped_table_go_on_with_both_rows(mariadb: MariaDb, tmp_path: Path) -> None:
    """With it alone the target still holds them for equal; then the ALTER TABLE that ``validate`` names."""
    feed = Feed(tmp_path, mariadb, collation="utf8mb4_general_ci", by_number=False)
    stopped(feed.apply(["I A 1", CUT, "I a 2"]))
    assert feed.rows() == {("A", "1")}
    feed.bucket.options += "&new-collations=false"
    ran = feed.run()
    assert ran.code == EXIT_TABLE_STOPPED
    assert "The source compares bytes (new-collations=false): run the ALTER TABLE that headrace validate names." in str(ran.stopped)
    source = open_source(feed.bucket.folder.uri(feed.bucket.options)).event_source
    with open_sink(mariadb.uri()) as sink:
        tables = list(source_tables(source.poll("", 0).schema_changes).values())
        (check,) = [check for check in sink.check_tables("p", tables) if check.name == "collations"]
    alter = check.advice.removeprefix("Run ").partition(";")[0]
    assert alter.startswith("ALTER TABLE `test`.`t` MODIFY")
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute(alter)
    assert feed.run().code == EXIT_OK
    assert feed.rows() == {("A", "1"), ("a", "2")}


def test_a_source_that_is_said_to_have_new_collations_is_not_watched(mariadb: MariaDb, tmp_path: Path) -> None:
    options = f"{OPTIONS}&new-collations=true"
    feed = Feed(tmp_path, mariadb, collation="utf8mb4_general_ci", by_number=False, options=options)
    assert feed.apply(["I A 1", CUT, "I a 2"]).code == EXIT_OK
    assert feed.rows() == {("a", "2")}


def test_a_dead_letter_may_be_the_deletion_so_its_table_is_not_watched(mariadb: MariaDb, tmp_path: Path) -> None:
    feed = Feed(tmp_path, mariadb, collation="utf8mb4_general_ci", by_number=False)
    assert feed.apply(["I A 1"]).code == EXIT_OK
    lines = ['"D","t","test",not a number,"A",1\n', '"I","t","test",900,"a",2\n']
    feed.bucket.write("test/t/100/CDC000009.csv", "".join(lines))
    feed.bucket.checkpoint(1000)
    ran = feed.bucket.run(
        sink=mariadb.uri(), on_error=OnError.DEAD_LETTER, letters=open_dead_letters(str(tmp_path / "letters"), "p")
    )
    assert (ran.code, ran.stopped) == (EXIT_OK, {})
    assert feed.rows() == {("a", "2")}


def test_keys_that_compare_bytes_are_not_watched(mariadb: MariaDb, tmp_path: Path) -> None:
    options = f"{OPTIONS}&new-collations=false"
    feed = Feed(tmp_path, mariadb, collation="utf8mb4_general_ci", by_number=True, options=options)
    assert feed.apply(["I 1 A", "I 2 a", CUT, "I 3 a_", "U 1 Á"]).code == EXIT_OK
    assert feed.rows() == {("1", "Á"), ("2", "a"), ("3", "a ")}
