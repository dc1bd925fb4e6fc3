"""What ``validate`` says when a condition of the theorem is broken, and that the way out which it names mends it.

The conditions are those of docs/guarantees.md; ``test_converge.py`` shows that they are needed.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import duckdb
import pytest

from headrace.cli.display import RunDisplay
from headrace.cli.main import main
from headrace.cli.output import make_output
from headrace.engine.run_options import RunOptions
from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.tso import tso_from_ms
from headrace.model.types import ColumnType, TypeKind
from headrace.pipeline.definition import Definition
from headrace.pipeline.runner import PipelineRun
from headrace.sinks.base import Check, CheckState
from headrace.testing.engine import LocalEngine
from headrace.testing.ticdc_writer import RowChange, TicdcWriter
from servers import MariaDb

pytestmark = pytest.mark.long

USERS = TableId("shop", "users")
COLUMNS = (
    Column("id", ColumnType(TypeKind.INT), nullable=False, primary_key=True),
    Column("mail", ColumnType(TypeKind.VARCHAR, length=20)),
    Column("n", ColumnType(TypeKind.INT)),
)
MADE = "CREATE TABLE shop.users (id INT PRIMARY KEY, mail VARCHAR(20) COLLATE utf8mb4_general_ci, n INT, UNIQUE KEY by_mail (mail))"
MADE_PLAIN = "CREATE TABLE shop.users (id INT PRIMARY KEY, mail VARCHAR(20), n INT, UNIQUE KEY by_mail (mail))"
SELECTORS = '[[sink.column-selectors]]\nmatcher = ["shop.*"]\ncolumns = ["*", "!n"]\n'


class Feed:
    """A changefeed of ``shop.users``. An empty statement tells the shape alone."""

    def __init__(self, folder: Path, statement: str = MADE, selectors: str = "") -> None:
        folder.mkdir()
        self.writer = TicdcWriter(folder / "data", "csv", include_commit_ts=True, output_old_value=True)
        self.toml = folder / "changefeed.toml"
        self.toml.write_text(self.writer.options.changefeed_toml() + selectors, encoding="utf-8")
        self.writer.schema_change(USERS, _ts(1), statement, TableSchema(USERS, COLUMNS, ("id",)), 3)
        self.writer.checkpoint(_ts(2))

    @property
    def uri(self) -> str:
        return self.writer.uri


def _ts(milliseconds: int) -> int:
    return tso_from_ms(1_767_225_600_000 + milliseconds)


def validated(feed: Feed, sink: str, capsys: pytest.CaptureFixture[str], *options: str) -> list[Check]:
    """All checks. The exit code says whether one failed."""
    capsys.readouterr()
    arguments = ["validate", "--source", feed.uri, "--changefeed", str(feed.toml), "--sink", sink, "--no-spark", "--json"]
    code = main([*arguments, *options])
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    checks = [Check(t["name"], CheckState(t["state"]), t["detail"], t["advice"]) for t in told if t["event"] == "check"]
    assert code == (2 if any(check.state is CheckState.FAILED for check in checks) else 0)
    return checks


class Scene:
    """A changefeed and a MariaDB whose tables somebody has prepared."""

    def __init__(self, folder: Path, server: MariaDb, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.server, self._capsys = folder, server, capsys
        self.feed = Feed(folder / "feed")
        self.run("CREATE DATABASE shop")

    def run(self, *statements: str) -> None:
        with self.server.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def broken(self, name: str, *options: str) -> list[Check]:
        """What ``validate`` says under this name, unless all is well."""
        checks = [check for check in validated(self.feed, self.server.uri(), self._capsys, *options) if check.name == name]
        assert checks, f"nothing is said of {name}"
        return [check for check in checks if check.state is not CheckState.OK]

    def check(self, name: str, state: CheckState, *words: str) -> None:
        """That one thing is wrong, told with these words, and that the statement of the advice mends it."""
        (check,) = self.broken(name)
        assert check.state is state
        for word in ("shop.users", *words):
            assert word in check.detail
        found = re.search(r"run (.*); in the target", check.advice, re.IGNORECASE)
        assert found is not None, check.advice
        self.run(found[1])
        assert self.broken(name) == []


@pytest.fixture
def scene(tmp_path: Path, mariadb: MariaDb, capsys: pytest.CaptureFixture[str]) -> Scene:
    return Scene(tmp_path, mariadb, capsys)


NAMES = ("unique keys", "collations", "types", "whole rows", "engines", "triggers", "foreign keys", "other writers")


@pytest.mark.server
@pytest.mark.parametrize("made", [True, False], ids=["made by a run", "not there yet"])
def test_a_table_that_a_run_makes_keeps_all_conditions(scene: Scene, made: bool) -> None:
    if made:
        assert _run_as(scene.feed, scene.server.uri(), "default") == 0
    for name in NAMES:
        assert scene.broken(name) == []


@pytest.mark.server
@pytest.mark.parametrize("key", ["UNIQUE KEY extra (n)", "UNIQUE KEY extra (n, mail(3))"])
def test_a_unique_key_that_the_source_lacks(scene: Scene, key: str) -> None:
    scene.run(MADE.replace("UNIQUE", f"{key}, UNIQUE"))
    scene.check("unique keys", CheckState.WARNING if "(3)" in key else CheckState.FAILED, "extra")


@pytest.mark.server
def test_unique_keys_that_the_files_do_not_tell_are_unknown(scene: Scene) -> None:
    scene.feed = Feed(scene.folder / "shape", "")
    scene.run(MADE)
    scene.check("unique keys", CheckState.WARNING, "by_mail", "do not tell")


@pytest.mark.server
def test_a_unique_key_over_more_columns_than_the_sources_is_fine(scene: Scene) -> None:
    scene.run(MADE.replace("UNIQUE", "UNIQUE KEY wider (n, mail), UNIQUE"))
    assert scene.broken("unique keys") == []


@pytest.mark.server
@pytest.mark.parametrize("collation", ["utf8mb4_bin", "utf8mb4_general_nopad_ci", "utf8mb4_unicode_ci"])
def test_a_unique_key_that_compares_otherwise(scene: Scene, collation: str) -> None:
    scene.run(MADE.replace("utf8mb4_general_ci", collation))
    scene.check("collations", CheckState.FAILED, "mail", collation, "utf8mb4_general_ci")


@pytest.mark.server
def test_a_collation_that_the_files_do_not_tell_is_unknown_unless_it_is_tidbs_default(scene: Scene) -> None:
    scene.feed = Feed(scene.folder / "plain", MADE_PLAIN)
    scene.run(MADE)
    scene.check("collations", CheckState.WARNING, "mail", "utf8mb4_general_ci", "do not tell")


@pytest.mark.server
@pytest.mark.parametrize(
    ("column", "state"),
    [
        ("extra INT", CheckState.WARNING),
        ("extra INT NOT NULL", CheckState.FAILED),
        ("extra INT NOT NULL DEFAULT 7", CheckState.WARNING),
        ("extra INT AS (n + 1) STORED", CheckState.OK),
        ("extra TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP", CheckState.WARNING),
    ],
)
def test_a_column_that_rows_do_not_bring(scene: Scene, column: str, state: CheckState) -> None:
    scene.run(MADE.replace("UNIQUE", f"{column}, UNIQUE"))
    if state is CheckState.OK:
        assert scene.broken("whole rows") == []
    else:
        scene.check("whole rows", state, "extra")


@pytest.mark.server
def test_a_column_selector_that_leaves_a_part_of_a_key_open(scene: Scene) -> None:
    scene.run(MADE.replace("UNIQUE", "UNIQUE KEY wider (mail, n), UNIQUE"))
    assert scene.broken("whole rows") == []
    scene.feed = Feed(scene.folder / "partial", selectors=SELECTORS)
    (check,) = scene.broken("whole rows")
    assert check.state is CheckState.FAILED
    assert "column n" in check.detail
    assert "column selectors" in check.advice
    scene.run("ALTER TABLE shop.users DROP INDEX wider")
    scene.check("whole rows", CheckState.WARNING, "column n")


@pytest.mark.server
@pytest.mark.parametrize("engine", ["MyISAM", "Aria", "MEMORY"])
def test_an_engine_without_transactions(scene: Scene, engine: str) -> None:
    scene.run(f"{MADE} ENGINE={engine}")
    (check,) = scene.broken("engines", "--allow-non-transactional")
    assert check.state is CheckState.WARNING
    scene.check("engines", CheckState.FAILED, engine)


@pytest.mark.server
def test_a_trigger(scene: Scene) -> None:
    scene.run(MADE, "CREATE TRIGGER shop.grow BEFORE INSERT ON shop.users FOR EACH ROW SET NEW.n = NEW.n + 1")
    scene.check("triggers", CheckState.FAILED, "grow")


@pytest.mark.server
@pytest.mark.parametrize("when", ["BEFORE INSERT", "AFTER INSERT"])
def test_a_trigger_that_changes_rows_stops_its_table_until_it_is_gone(scene: Scene, when: str) -> None:
    what = "SET NEW.n = NEW.n + 1" if when == "BEFORE INSERT" else "SET @seen = NEW.id"
    scene.run(MADE, f"CREATE TRIGGER shop.grow {when} ON shop.users FOR EACH ROW {what}")
    scene.feed.writer.rows(USERS, _ts(3), [RowChange(None, {"id": 1, "mail": "a", "n": 7})])
    scene.feed.writer.checkpoint(_ts(4))
    if when == "BEFORE INSERT":
        assert _run_as(scene.feed, scene.server.uri(), "default") == EXIT_TABLE_STOPPED
        scene.run("DROP TRIGGER shop.grow")
    assert _run_as(scene.feed, scene.server.uri(), "default") == EXIT_OK
    with scene.server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM shop.users")
        assert cursor.fetchall() == ((1, "a", 7),)


@pytest.mark.server
def test_triggers_that_the_user_may_not_see_are_unknown(scene: Scene) -> None:
    rights = "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, CREATE VIEW, SHOW VIEW"
    scene.run(MADE, "CREATE OR REPLACE USER blind IDENTIFIED BY 'x'", f"GRANT {rights} ON *.* TO blind")
    for state in (CheckState.WARNING, CheckState.OK):
        sink = f"mysql://blind:x@{scene.server.host}:{scene.server.port}/"
        (check,) = (c for c in validated(scene.feed, sink, scene._capsys) if c.name == "triggers")
        assert check.state is state
        scene.run("GRANT TRIGGER ON *.* TO blind")


@pytest.mark.server
@pytest.mark.parametrize("rule", ["ON DELETE CASCADE", "ON UPDATE CASCADE", "ON DELETE SET NULL"])
def test_a_foreign_key_by_which_others_change_rows(scene: Scene, rule: str) -> None:
    key = f"CONSTRAINT fk FOREIGN KEY (n) REFERENCES shop.others (id) {rule}"
    scene.run("CREATE TABLE shop.others (id INT PRIMARY KEY)", MADE.replace("UNIQUE", f"{key}, UNIQUE"))
    scene.check("foreign keys", CheckState.FAILED, "fk", "shop.others")


@pytest.mark.server
def test_a_foreign_key_to_a_table_of_the_same_name_elsewhere(scene: Scene) -> None:
    key = "CONSTRAINT fk FOREIGN KEY (n) REFERENCES test.users (id) ON DELETE CASCADE"
    scene.run("CREATE DATABASE test", "CREATE TABLE test.users (id INT PRIMARY KEY)", MADE.replace("UNIQUE", f"{key}, UNIQUE"))
    scene.check("foreign keys", CheckState.FAILED, "fk", "test.users")


@pytest.mark.server
def test_a_foreign_key_that_only_refuses_is_fine(scene: Scene) -> None:
    key = "CONSTRAINT fk FOREIGN KEY (n) REFERENCES shop.others (id)"
    scene.run("CREATE TABLE shop.others (id INT PRIMARY KEY)", MADE.replace("UNIQUE", f"{key}, UNIQUE"))
    assert scene.broken("foreign keys") == []


@pytest.mark.server
def test_a_foreign_key_that_does_not_cascade_any_more(scene: Scene) -> None:
    """Sessions of Headrace do not check foreign keys, so a deleted row leaves behind what refers to it."""
    scene.run(MADE, "INSERT INTO shop.users VALUES (1, 'a', 1)")
    scene.run("CREATE TABLE shop.notes (u INT, CONSTRAINT fk FOREIGN KEY (u) REFERENCES shop.users (id) ON DELETE CASCADE)")
    scene.check("foreign keys", CheckState.WARNING, "shop.notes", "fk")


@pytest.mark.server
def test_another_pipeline_with_the_same_table(scene: Scene) -> None:
    other = Feed(scene.folder / "other")
    assert _run_as(other, scene.server.uri(), "it's another") == 0
    (check,) = scene.broken("other writers")
    assert check.state is CheckState.FAILED
    assert "it's another" in check.detail
    (command,) = re.findall(r"headrace (reset .*)\.$", check.advice)  # a sink with a password in it is not printed
    told = [scene.server.uri() if word == "SINK" else word for word in shlex.split(command)]
    assert main([*told, "--yes"]) == EXIT_OK
    assert scene.broken("other writers") == []


def _run_as(feed: Feed, sink: str, name: str) -> int:
    """Catches up under another name."""
    definition = Definition(feed.uri, sink, name=name, changefeed=str(feed.toml), options=RunOptions(once=True))
    with RunDisplay(make_output(json=False)) as display:
        return PipelineRun(definition, display, LocalEngine()).run()  # type: ignore[arg-type] -- stands in for Spark's


def test_duckdb_tables_of_a_run_keep_the_conditions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    feed, sink = Feed(tmp_path / "feed"), f"duckdb://{tmp_path}/t.duckdb"
    assert _run_as(feed, sink, "default") == 0
    assert _said(feed, sink, capsys) == {"unique keys": CheckState.OK, "other writers": CheckState.OK}


def test_duckdb_tables_with_keys_of_their_own_and_other_writers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    feed, path = Feed(tmp_path / "feed"), tmp_path / "t.duckdb"
    assert _run_as(feed, f"duckdb://{path}", "another") == 0
    with duckdb.connect(path) as connection:
        connection.execute("CREATE OR REPLACE TABLE shop.users (id INT PRIMARY KEY, mail VARCHAR, n INT UNIQUE)")
    assert _said(feed, f"duckdb://{path}", capsys) == {"unique keys": CheckState.FAILED, "other writers": CheckState.FAILED}
    with duckdb.connect(path) as connection:
        connection.execute("CREATE OR REPLACE TABLE shop.users (id INT PRIMARY KEY, mail VARCHAR, n INT)")
    assert main(["reset", "--sink", f"duckdb://{path}", "--name", "another", "--yes"]) == EXIT_OK
    assert _said(feed, f"duckdb://{path}", capsys) == {"unique keys": CheckState.OK, "other writers": CheckState.OK}


def test_what_duckdb_does_not_have_is_told_of_all_tables_before_the_first_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    feed, sink = Feed(tmp_path / "feed"), f"duckdb://{tmp_path}/t.duckdb"
    for number, name in enumerate(("bills", "sums")):
        table_id = TableId("shop", name)
        columns = (Column("id", ColumnType(TypeKind.INT), nullable=False, primary_key=True), *WIDE)
        text = f"CREATE TABLE `shop`.`{name}` (`id` INT PRIMARY KEY,`a` DECIMAL(39,2),`b` DECIMAL(65,30),`c` DECIMAL(38,2))"
        feed.writer.schema_change(table_id, _ts(3 + number), text, TableSchema(table_id, columns, ("id",)), 3)
    feed.writer.checkpoint(_ts(9))
    (told,) = (check for check in validated(feed, sink, capsys) if check.name == "column types")
    assert told.state is CheckState.FAILED
    assert told.detail == (
        "DuckDB holds decimals of at most 38 digits. These tables will stop: shop.bills.a DECIMAL(39,2),"
        " shop.bills.b DECIMAL(65,30), shop.sums.a DECIMAL(39,2), shop.sums.b DECIMAL(65,30)."
    )
    assert "unsupported=text" in told.advice
    (told,) = (check for check in validated(feed, f"{sink}?unsupported=text", capsys) if check.name == "column types")
    assert told.state is CheckState.OK


WIDE = tuple(
    Column(name, ColumnType(TypeKind.DECIMAL, length=length, scale=scale))
    for name, length, scale in (("a", 39, 2), ("b", 65, 30), ("c", 38, 2))
)


def test_a_unique_key_that_the_source_lacks_stops_a_table_in_duckdb(tmp_path: Path) -> None:
    feed, path = Feed(tmp_path / "feed"), tmp_path / "t.duckdb"
    with duckdb.connect(path) as connection:
        connection.execute("CREATE SCHEMA shop")
        connection.execute("CREATE TABLE shop.users (id INT PRIMARY KEY, mail VARCHAR, n INT UNIQUE)")
    rows = [RowChange(None, {"id": number, "mail": str(number), "n": 7}) for number in (1, 2)]
    feed.writer.rows(USERS, _ts(3), rows)
    feed.writer.checkpoint(_ts(4))
    assert _run_as(feed, f"duckdb://{path}", "default") == EXIT_TABLE_STOPPED
    with duckdb.connect(path) as connection:
        assert connection.execute("SELECT * FROM shop.users").fetchall() == []


def test_a_column_in_duckdb_that_may_not_hold_the_values_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    feed, path = Feed(tmp_path / "feed"), tmp_path / "t.duckdb"
    with duckdb.connect(path) as connection:
        connection.execute("CREATE SCHEMA shop")
        connection.execute("CREATE TABLE shop.users (id INT, mail VARCHAR(3), n TINYINT)")
    (told,) = (check for check in validated(feed, f"duckdb://{path}", capsys) if check.name == "types")
    assert told.state is CheckState.WARNING
    assert told.detail.startswith(
        "shop.users, column n: the column in the DuckDB file is TINYINT, the source's values are INTEGER: "
    )
    feed.writer.rows(USERS, _ts(3), [RowChange(None, {"id": 1, "mail": "four", "n": 1000})])
    feed.writer.checkpoint(_ts(4))
    assert _run_as(feed, f"duckdb://{path}", "default") == EXIT_TABLE_STOPPED
    with duckdb.connect(path) as connection:
        connection.execute(told.advice.removeprefix("Run ").removesuffix("; in the DuckDB file."))
    assert not [check for check in validated(feed, f"duckdb://{path}", capsys) if check.name == "types"]
    assert _run_as(feed, f"duckdb://{path}", "default") == EXIT_OK
    for held, why in (("BIGINT", ""), ("SMALLINT", "the source's values are INTEGER: the table will stop at the first value")):
        with duckdb.connect(path) as connection:
            connection.execute(f"ALTER TABLE shop.users ALTER n TYPE {held}")
        found = [check.detail for check in validated(feed, f"duckdb://{path}", capsys) if check.name == "types"]
        assert [why in detail for detail in found] == ([True] if why else [])


@pytest.mark.server
@pytest.mark.parametrize("in_duckdb", [True, False])
def test_a_table_that_the_ledger_follows_and_the_target_does_not_have_is_told(
    in_duckdb: bool, tmp_path: Path, mariadb: MariaDb, capsys: pytest.CaptureFixture[str]
) -> None:
    feed, path = Feed(tmp_path / "feed"), tmp_path / "t.duckdb"
    sink = f"duckdb://{path}" if in_duckdb else mariadb.uri()
    assert not [check for check in validated(feed, sink, capsys) if check.name == "tables"]  # there is no ledger yet
    assert _run_as(feed, sink, "default") == 0
    assert not [check for check in validated(feed, sink, capsys) if check.name == "tables"]
    if in_duckdb:
        with duckdb.connect(path) as connection:
            connection.execute("DROP TABLE shop.users")
    else:
        with mariadb.connect() as connection, connection.cursor() as cursor:
            cursor.execute("DROP TABLE shop.users")
    (told,) = (check for check in validated(feed, sink, capsys) if check.name == "tables")
    assert told.state is CheckState.FAILED
    assert told.detail == (
        "shop.users: the ledger says that it is running, but the target does not have it: it will stop at its next rows."
    )
    assert not [check for check in validated(feed, sink, capsys, "--tables", "!shop.users") if "the ledger says" in check.detail]
    assert main(["reset", "--sink", sink, "--table", "shop.users", "--yes"]) == EXIT_OK
    assert _run_as(feed, sink, "default") == 0
    assert not [check for check in validated(feed, sink, capsys) if check.name == "tables"]


def _said(feed: Feed, sink: str, capsys: pytest.CaptureFixture[str]) -> dict[str, CheckState]:
    return {check.name: check.state for check in validated(feed, sink, capsys) if check.name in NAMES}
