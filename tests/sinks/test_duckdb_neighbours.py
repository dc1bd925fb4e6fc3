"""A DuckDB file in a folder that every user can write to: what others put beside it, or made before it, is not opened."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from headrace.errors import DefinitionError
from headrace.sinks.duckdb import database as module
from headrace.sinks.duckdb.database import Database

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")
NEIGHBOUR = 65534


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder as /tmp is."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o1777)
        yield Path(made)


@pytest.fixture
def database(shared: Path) -> Database:
    database = Database(shared / "shop.duckdb")
    with database.transaction() as session:
        session.execute("CREATE TABLE customers (name VARCHAR)")
        session.execute("INSERT INTO customers VALUES ('Ada')")
    return database


def forged_log(database: Database, folder: Path) -> Path:
    """The log of a copy in which the customers are others, as whoever can read the file makes it."""
    copy = folder / "copy.duckdb"
    shutil.copy(database.path, copy)
    with duckdb.connect(copy) as connection:
        connection.execute("SET checkpoint_threshold = '1TB'; PRAGMA disable_checkpoint_on_shutdown")
        connection.execute("UPDATE customers SET name = 'Mallory'")
    return folder / "copy.duckdb.wal"


def customers(database: Database) -> list[tuple[object, ...]]:
    with database.transaction() as session:
        return session.execute("SELECT name FROM customers")


def test_a_log_that_a_neighbour_put_beside_the_file_is_not_applied(database: Database, tmp_path: Path) -> None:
    log = Path(f"{database.path}.wal")
    shutil.copy(forged_log(database, tmp_path), log)
    os.chown(log, NEIGHBOUR, NEIGHBOUR)
    with pytest.raises(DefinitionError, match=f"{log} belongs to user nobody, who could read or replace the target there"):
        customers(database)
    with pytest.raises(DefinitionError, match="belongs to user nobody"), database.reading():
        pass
    log.unlink()
    assert customers(database) == [("Ada",)]


def test_a_log_of_ones_own_is_applied(database: Database, tmp_path: Path) -> None:
    """It shows that the log above would be applied, and that a killed run's is."""
    shutil.copy(forged_log(database, tmp_path), f"{database.path}.wal")
    assert customers(database) == [("Mallory",)]


class Watched:
    """A connection that tells who has the log at the moment when DuckDB opens the file."""

    def __init__(self, connection: Any, log: Path) -> None:
        self.connection, self.log = connection, log
        self.seen: list[tuple[int, int]] = []

    def execute(self, statement: str, *parameters: object) -> Any:
        if statement.startswith("ATTACH"):
            found = self.log.stat()
            self.seen.append((found.st_uid, found.st_mode & 0o777))
        return self.connection.execute(statement, *parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)


def test_nobody_can_put_a_log_there_while_the_file_is_opened(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of this user's is there already, and in a sticky folder nobody else can replace it."""
    opening, watched = module.open_duckdb, []

    def watch(**settings: Any) -> Watched:
        watched.append(Watched(opening(**settings), Path(f"{database.path}.wal")))
        return watched[-1]

    monkeypatch.setattr(module, "open_duckdb", watch)
    assert customers(database) == [("Ada",)]
    assert [made.seen for made in watched] == [[(0, 0o600)]]
    assert not Path(f"{database.path}.wal").exists()


@pytest.mark.parametrize("suffix", ["", ".tmp"])
def test_what_a_neighbour_made_first_is_not_used(shared: Path, suffix: str) -> None:
    planted = shared / f"shop.duckdb{suffix}"
    if suffix:
        planted.mkdir()
    else:
        duckdb.connect(planted).close()
    os.chown(planted, NEIGHBOUR, NEIGHBOUR)
    with (
        pytest.raises(DefinitionError, match=f"{planted} belongs to user nobody"),
        Database(shared / "shop.duckdb").transaction(),
    ):
        pass


def test_the_file_of_another_user_in_a_folder_that_is_not_open_to_all_is_used(tmp_path: Path) -> None:
    """A team that shares a target has its own folder."""
    with duckdb.connect(tmp_path / "shop.duckdb") as connection:
        connection.execute("CREATE TABLE customers AS SELECT 'Ada' AS name")
    os.chown(tmp_path / "shop.duckdb", NEIGHBOUR, NEIGHBOUR)
    assert customers(Database(tmp_path / "shop.duckdb")) == [("Ada",)]
