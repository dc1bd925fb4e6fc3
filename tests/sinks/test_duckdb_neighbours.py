"""A DuckDB file lies where no other user of the machine can put or exchange anything: DuckDB opens what lies beside it, by name."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

from headrace.errors import DefinitionError
from headrace.sinks.base import CheckState
from headrace.sinks.duckdb.database import Database
from headrace.sinks.duckdb.sink import open_sink

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")
NEIGHBOUR, UNKNOWN = 1, 4711
"""Another user of the machine, and a number that has no account on it."""


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def make(folder: Path, bits: int, owner: int = 0, group: int = 0) -> Path:
    folder.mkdir()
    os.chown(folder, owner, group)
    folder.chmod(bits)
    return folder


def write(database: Database) -> None:
    with database.transaction():
        pass


def read(database: Database) -> None:
    with database.reading():
        pass


OPENINGS = pytest.mark.parametrize("opening", [write, read, Database.begin_cut])


def customers(database: Database) -> list[tuple[object, ...]]:
    with database.transaction() as session:
        session.execute("CREATE TABLE IF NOT EXISTS customers AS SELECT 'Ada' AS name")
    with database.reading() as session:
        assert session is not None
        return session.execute("SELECT name FROM customers")


@OPENINGS
@pytest.mark.parametrize("bits", [0o1777, 0o777, 0o1702])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_folder_that_every_user_can_write_to_is_refused(
    place: Path, opening: Callable[[Database], None], bits: int, is_there: bool
) -> None:
    """Also a sticky one: the file's log is made anew by name at each commit, and whoever made one first would have it used."""
    folder = make(place / "shared", bits)
    if is_there:
        duckdb.connect(folder / "shop.duckdb").close()
    before = list(folder.iterdir())
    with pytest.raises(DefinitionError) as refused:
        opening(Database(folder / "shop.duckdb"))
    assert f"Every user of the machine can write to {folder}, which has mode {bits:04o}" in refused.value.message
    assert refused.value.hint == f"Name a file in a folder of your own, such as {Path.home()}/headrace/shop.duckdb."
    assert list(folder.iterdir()) == before


@OPENINGS
@pytest.mark.parametrize("below", ["", "own"])
def test_a_folder_of_another_user_is_refused(place: Path, opening: Callable[[Database], None], below: str) -> None:
    folder = make(place / "theirs", 0o755, NEIGHBOUR)
    if below:
        make(folder / below, 0o700)
    with pytest.raises(DefinitionError, match=f"{folder} belongs to user daemon, who could read or replace the DuckDB") as told:
        opening(Database(folder / below / "shop.duckdb"))
    assert "Name a file in a folder of your own, such as " in str(told.value.hint)


@OPENINGS
def test_a_folder_that_others_can_exchange_is_refused(place: Path, opening: Callable[[Database], None]) -> None:
    make(make(place / "open", 0o777) / "own", 0o700)
    with pytest.raises(DefinitionError, match=f"{place}/open for the DuckDB file has mode 0777"):
        opening(Database(place / "open" / "own" / "shop.duckdb"))


@OPENINGS
@pytest.mark.parametrize("way", ["target", "other"])
def test_a_link_is_followed_to_the_folder_in_which_the_file_lies(
    place: Path, opening: Callable[[Database], None], way: str
) -> None:
    own, shared = make(place / "own", 0o700), make(place / "shared", 0o1777)
    (own / "target").symlink_to("../shared/shop.duckdb")
    (own / "other").symlink_to(shared / "link")
    (shared / "link").symlink_to(own / "shop.duckdb")
    with pytest.raises(DefinitionError, match=f"can write to {own}/../shared|can write to {shared}"):
        opening(Database(own / way))


def test_validate_tells_it_before_there_is_a_file(place: Path) -> None:
    folder = make(place / "shared", 0o1777)
    checks = open_sink(f"duckdb://{folder}/shop.duckdb").check()
    (failed,) = [check for check in checks if check.state is CheckState.FAILED]
    assert f"Every user of the machine can write to {folder}" in failed.detail
    assert "Name a file in a folder of your own" in failed.advice


@pytest.mark.parametrize(
    ("bits", "group"),
    [(0o700, 0), (0o755, 0), (0o2775, UNKNOWN), (0o2775, NEIGHBOUR)],
    ids=["private", "readable", "own group", "a team's"],
)
def test_a_folder_in_a_sticky_one_that_only_trusted_users_can_write_to_is_used(place: Path, bits: int, group: int) -> None:
    own = make(make(place / "shared", 0o1777) / "own", bits, 0, group)
    assert customers(Database(own / "shop.duckdb")) == [("Ada",)]


def test_a_mounted_folder_of_a_user_that_the_container_does_not_know_is_used(place: Path) -> None:
    assert customers(Database(make(place / "mounted", 0o755, UNKNOWN, UNKNOWN) / "shop.duckdb")) == [("Ada",)]


def test_the_file_of_another_user_in_a_folder_of_ones_own_is_used(place: Path) -> None:
    """A team that shares a target has its own folder."""
    database = Database(place / "shop.duckdb")
    customers(database)
    os.chown(database.path, NEIGHBOUR, NEIGHBOUR)
    assert customers(database) == [("Ada",)]
