"""Connectors by the schemes of their URIs."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from headrace.errors import DefinitionError
from headrace.pipeline.registry import open_sink

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
NEEDS_NOTHING = {"print", "blackhole", "hdfs"}
"""Schemes that need no package beyond what all others need."""


def test_every_connector_has_an_extra_with_what_the_default_installation_has() -> None:
    for group in ("headrace.sources", "headrace.sinks"):
        for scheme in {entry.name for entry in entry_points(group=group) if entry.value.startswith("headrace.")} - NEEDS_NOTHING:
            assert set(PROJECT["optional-dependencies"][scheme]) <= set(PROJECT["dependencies"])


@pytest.mark.long
@pytest.mark.parametrize(
    ("package", "uri"),
    [
        ("pymysql", "mysql://u@h/"),
        ("pymysql", "tidb://u@h/"),
        ("duckdb", "duckdb:///x.duckdb"),
        ("duckdb", "file:///x?protocol=csv"),
    ],
)
def test_a_connector_whose_package_is_missing_names_its_extra(package: str, uri: str, tmp_path: Path) -> None:
    source, sink = (uri, "blackhole://") if uri.startswith("file") else (f"file://{tmp_path}?protocol=csv", uri)
    code = (
        f"import sys; sys.modules[{package!r}] = None; from headrace.cli.main import main; "
        f"sys.exit(main(['validate', '--source', {source!r}, '--sink', {sink!r}, '--no-spark']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    scheme = uri.partition(":")[0]
    needs = f"The connector {scheme}:// needs the Python package {package}, which is not installed."
    assert f"{needs} Run: pip install 'headrace[{scheme}]'" in done.stdout
    assert (done.returncode, done.stderr) == (2, "")


def test_an_unknown_scheme_is_told_with_one_that_is_near() -> None:
    with pytest.raises(DefinitionError) as refused:
        open_sink("mysqk://h/")
    assert (refused.value.message, refused.value.hint) == ("Unknown sink scheme 'mysqk'.", "Did you mean 'mysql'?")
