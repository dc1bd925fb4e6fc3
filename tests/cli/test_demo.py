"""The demo, as a newcomer runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb
import pytest

from headrace.cli.demo import BEST_SELLERS, commands, run_demo
from headrace.cli.output import make_output
from headrace.errors import DefinitionError
from headrace.testing.shop import CUSTOMERS, PRODUCTS, Shop, write_shop

pytestmark = pytest.mark.long

HEADRACE = Path(sys.executable).parent / "headrace"


def headrace(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(HEADRACE), *arguments], cwd=folder, text=True, capture_output=True, timeout=180, check=False, env=dict(os.environ)
    )


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """What the demo writes, but for the time."""
    return write_shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the user stands: a name that a shell would take apart."""
    return tmp_path_factory.mktemp("it's a folder")


@pytest.fixture(scope="module")
def ran(folder: Path) -> subprocess.CompletedProcess[str]:
    return headrace("demo", folder=folder)


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    with pytest.raises(DefinitionError, match=r"is not empty\. Remove it, or name another one with --folder\."):
        run_demo(tmp_path, make_output(json=False))
    assert list(tmp_path.iterdir()) == [mine]


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DefinitionError, match="The demo cannot use"):
        run_demo(tmp_path / "file" / "folder", make_output(json=False))


@pytest.mark.spark
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders to other users")
def test_an_empty_folder_of_another_users_is_refused() -> None:
    """They could put links there while the demo writes."""
    with tempfile.TemporaryDirectory(dir="/tmp") as shared:
        Path(shared).chmod(0o1777)
        folder = Path(shared) / "headrace-demo"
        folder.mkdir()
        os.chown(folder, 65534, 65534)
        with pytest.raises(DefinitionError, match=f"{folder} belongs to user nobody"):
            run_demo(folder, make_output(json=False))


def test_what_arrives_is_what_the_shop_holds(ran: subprocess.CompletedProcess[str], folder: Path, shop: Shop) -> None:
    assert ran.returncode == 0, ran.stderr
    with duckdb.connect(str(folder / "headrace-demo" / "warehouse.duckdb"), read_only=True) as connection:
        held = connection.sql("SELECT table_name FROM information_schema.tables WHERE table_schema = 'shop'").fetchall()
        assert {name for (name,) in held} == {table_id.table for table_id in shop.rows}
        for table_id, count in shop.rows.items():
            assert connection.sql(f"SELECT count(*) FROM {table_id}").fetchall() == [(count,)]
        skus = {sku for (sku,) in connection.sql(f"SELECT sku FROM {PRODUCTS}").fetchall()}
        assert skus == {row["sku"] for row in shop.expected_rows(PRODUCTS)}
        points = connection.sql(f"SELECT sum(points) FROM {CUSTOMERS}").fetchall()
        assert points == [(sum(int(str(row["points"])) for row in shop.expected_rows(CUSTOMERS)),)]


@pytest.mark.spark
def test_it_prints_what_arrived_and_nothing_of_sparks(ran: subprocess.CompletedProcess[str], shop: Shop) -> None:
    for table_id, count in shop.rows.items():
        assert [line.split() for line in ran.stdout.splitlines()].count([str(table_id), str(count)]) == 1
    assert BEST_SELLERS in ran.stdout
    assert "everything up to" in ran.stdout
    assert ran.stderr == ""


@pytest.mark.spark
def test_the_printed_commands_work_as_they_are(ran: subprocess.CompletedProcess[str], folder: Path) -> None:
    lines = ran.stdout.splitlines()
    printed = [lines[i + 1] for i, line in enumerate(lines) if line.startswith("# ")]
    assert len(printed) == len(commands("file:///cf", folder / "f.duckdb", "duckdb:///f.duckdb"))
    outputs = [
        subprocess.run(line, shell=True, cwd=folder, text=True, capture_output=True, timeout=180, check=False) for line in printed
    ]
    assert [(done.returncode, done.stderr) for done in outputs] == [(0, "")] * len(printed)
    status, inspection, again, query = (done.stdout for done in outputs)
    assert "pipeline default" in status
    assert "nothing wrong found" in inspection
    assert "nothing new was applied" in again
    assert "customer_id" in query


@pytest.mark.spark
def test_a_second_demo_in_the_same_place_is_refused(ran: subprocess.CompletedProcess[str], folder: Path) -> None:
    assert ran.returncode == 0
    again = headrace("demo", folder=folder)
    assert again.returncode == 2
    assert again.stderr == ("error: The folder headrace-demo is not empty. Remove it, or name another one with --folder.\n")


@pytest.mark.spark
def test_machines_get_events_only(tmp_path: Path, shop: Shop) -> None:
    done = headrace("demo", "--folder", "elsewhere", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    events = {event["event"]: event for event in map(json.loads, done.stdout.splitlines())}
    assert "message" not in events
    assert events["demo_arrived"]["rows"] == {str(table_id): count for table_id, count in shop.rows.items()}
    assert events["demo_arrived"]["checkpoint"] == events["cut"]["checkpoint"]
