"""What ``docs/write-a-connector.md`` says holds, and its example is a sink of pipelines. The example has a test of its own, too."""

from __future__ import annotations

import importlib
import re
import sqlite3
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import headrace
from headrace.errors import DefinitionError
from headrace.model.table import Column
from headrace.pipeline.registry import open_sink
from headrace.testing.engine import LocalEngine
from headrace.testing.upstream import Insert, Update
from headrace.testing.upstream_ddl import AddColumn
from upstreams import KEY, NAME, ORDERS, Changefeed

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "headrace-sqlite"
PAGE = (ROOT / "docs" / "write-a-connector.md").read_text()


def test_the_page_shows_what_the_example_has() -> None:
    (toml,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert toml in (EXAMPLE / "pyproject.toml").read_text()
    (test,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert test in (EXAMPLE / "tests" / "test_sqlite.py").read_text()


def test_the_modules_for_connectors_are_there() -> None:
    names = re.findall(r"`(headrace\.[\w.]+)`", PAGE)
    assert len(set(names)) > 10
    for name in names:
        assert name == "headrace.run" or importlib.import_module(name)


def test_the_example_imports_nothing_that_is_private() -> None:
    told = set(re.findall(r"`(headrace\.[\w.]+)`", PAGE.partition("## What stays stable")[2].partition("Everything else")[0]))
    files = [EXAMPLE / "src" / "headrace_sqlite" / "__init__.py", EXAMPLE / "tests" / "test_sqlite.py"]
    used = {name for file in files for name in re.findall(r"^from (headrace(?:\.\w+)*) import", file.read_text(), re.MULTILINE)}
    assert used
    assert not [module for module in used if not any(module == name or module.startswith(f"{name}.") for name in told)]


def test_the_example_uses_no_mark_that_only_headrace_s_own_tests_have() -> None:
    """pytest warns of it in a package of its own."""
    assert set(re.findall(r"pytest\.mark\.(\w+)", (EXAMPLE / "tests" / "test_sqlite.py").read_text())) <= {"parametrize"}


def test_what_a_copy_renames_is_in_the_example() -> None:
    renamed = re.findall(r"^\| `([^`]+)` \|", PAGE.partition("Then rename")[2].partition("\nIf both")[0], re.MULTILINE)
    assert len(renamed) > 3
    text = "\n".join(path.read_text() for path in EXAMPLE.rglob("*") if path.suffix in (".py", ".toml"))
    assert not [name for name in renamed if name not in text]


def test_the_example_is_installed_as_its_definition_says() -> None:
    definition = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())
    (entry,) = (entry for entry in entry_points(group="headrace.sinks") if entry.name == "sqlite")
    assert definition["project"]["entry-points"]["headrace.sinks"] == {entry.name: entry.value}


@pytest.mark.parametrize("uri", ["sqlite://", "sqlite:///", "sqlite://host/file.db", "sqlite:///file.db?mode=ro"])
def test_the_example_refuses_uris_that_name_no_file(uri: str) -> None:
    with pytest.raises(DefinitionError, match="names no SQLite file"):
        open_sink(uri)


@pytest.mark.pipeline
def test_a_pipeline_writes_into_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.pipeline.runner.SparkEngine", lambda _settings: LocalEngine())
    feed = Changefeed(tmp_path / "changefeed")
    feed.upstream.create_table(ORDERS, [KEY, NAME])
    feed.upstream.execute(Insert(ORDERS, {"id": 1, "name": "one"}), Insert(ORDERS, {"id": 2, "name": "two"}))
    feed.upstream.checkpoint()
    path = tmp_path / "shop.db"
    pipeline = headrace.Pipeline(
        feed.uri, f"sqlite://{path}", changefeed=feed.toml, work=tmp_path / "work", ledger=tmp_path / "ledger"
    )
    assert not pipeline.run().stopped
    feed.upstream.execute(Update(ORDERS, (1,), {"name": "new"}))
    feed.upstream.alter(ORDERS, AddColumn(Column("note", NAME.type)))
    feed.upstream.execute(Insert(ORDERS, {"id": 3, "name": "three", "note": "last"}))
    feed.upstream.checkpoint()
    assert not pipeline.run().stopped
    with sqlite3.connect(path) as connection:
        rows = connection.execute(f'SELECT * FROM "{ORDERS}" ORDER BY id').fetchall()
    assert rows == [(1, "new", None), (2, "two", None), (3, "three", "last")]
