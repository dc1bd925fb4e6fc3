"""DuckDB loads no extensions, and statements that run in it reach no files but the target's."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

import headrace
from headrace.sealed_duckdb import open_duckdb
from headrace.sinks.duckdb.database import Database
from headrace.sources.ticdc_storage.key_history import KeyHistory

REACHING = [
    "SELECT * FROM read_text('{file}')",
    "CREATE TABLE t AS FROM read_csv('{file}')",
    "CREATE VIEW v AS FROM '{file}'",
    "COPY (SELECT 1) TO '{file}.out'",
    "ATTACH '{file}.duckdb'",
    "EXPORT DATABASE '{file}.folder'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SELECT * FROM read_csv('https://127.0.0.1:1/x.csv')",
    "SET enable_external_access = true",
    "SET autoload_known_extensions = true",
    "SET autoinstall_known_extensions = true",
    "RESET lock_configuration",
]


@pytest.mark.parametrize("statement", REACHING)
def test_a_statement_reaches_nothing_but_the_target(tmp_path: Path, statement: str) -> None:
    (tmp_path / "file.csv").write_text("a\n1\n")
    before = sorted(tmp_path.iterdir())
    target = tmp_path / "target" / "shop.duckdb"
    target.parent.mkdir()
    connection = Database(target)._open(read_only=False).connection
    with pytest.raises(
        (duckdb.PermissionException, duckdb.InvalidInputException, duckdb.IOException), match=r"disabled|locked|Cannot"
    ):
        connection.execute(statement.format(file=tmp_path / "file.csv"))
    connection.close()
    assert sorted(path for path in tmp_path.iterdir() if path != target.parent) == before


@pytest.mark.parametrize("read_only", [True, False])
def test_no_extension_is_loaded_or_installed(tmp_path: Path, read_only: bool) -> None:
    duckdb.connect(str(tmp_path / "shop.duckdb")).close()
    connections = [
        open_duckdb(),
        open_duckdb(tmp_path / "shop.duckdb", read_only=read_only),
        Database(tmp_path / "x")._open(read_only=False).connection,
    ]
    with KeyHistory(tmp_path) as history:
        connections.append(history._database)
        for connection in connections:
            for setting in ("autoinstall_known_extensions", "autoload_known_extensions", "allow_community_extensions"):
                assert connection.execute(f"SELECT current_setting('{setting}')").fetchone() == (False,)


def test_a_name_in_a_statement_is_no_variable_of_python(tmp_path: Path) -> None:
    secrets = duckdb.sql("SELECT 1 AS one").to_arrow_table()
    assert duckdb.sql("FROM secrets").fetchall() == [(1,)]
    with pytest.raises(duckdb.CatalogException, match="secrets"):
        open_duckdb().execute("FROM secrets")
    assert secrets.num_rows == 1


@pytest.mark.long
def test_what_does_not_fit_into_memory_is_still_put_beside_the_target(tmp_path: Path) -> None:
    session = Database(tmp_path / "shop.duckdb", {"memory_limit": "60MB", "threads": "1"})._open(read_only=False)
    session.execute("CREATE TABLE big AS SELECT range AS i, hash(range) AS h, repeat('x', 100) || range AS s FROM range(600000)")
    assert session.execute("SELECT count(*), max(s) IS NOT NULL FROM (SELECT * FROM big ORDER BY h, s OFFSET 1)") == [
        (599_999, True)
    ]
    found = session.connection.execute("FROM big ORDER BY s")
    assert (tmp_path / "shop.duckdb.tmp").is_dir()
    assert found.fetchone() is not None
    session.connection.close()


def test_duckdb_is_opened_in_one_place() -> None:
    root = Path(headrace.__file__).parent
    opening = [path.name for path in root.rglob("*.py") if re.search(r"(?<!import )duckdb\.connect\(", path.read_text())]
    assert sorted(opening) == ["demo.py", "sealed_duckdb.py"], "the demo shows a command to people"
