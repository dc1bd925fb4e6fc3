"""Which Spark is started, and that nothing of it depends on the working folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.engine.spark_home import launch_environment
from headrace.errors import DefinitionError


@pytest.mark.parametrize("environment", [{}, {"SPARK_HOME": ""}])
def test_the_installed_spark_is_used_whatever_lies_beside_the_working_folder(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (tmp_path, tmp_path / "own"):
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "spark-submit").touch()
        (folder / "jars").mkdir()
    monkeypatch.chdir(tmp_path / "own")
    home = Path(launch_environment(environment)["SPARK_HOME"])
    assert home.is_absolute()
    assert tmp_path not in home.parents
    assert (home / "bin" / "spark-submit").is_file()


def test_the_spark_that_the_environment_names_is_used() -> None:
    assert launch_environment({"SPARK_HOME": "/opt/spark"})["SPARK_HOME"] == "/opt/spark"


@pytest.mark.parametrize("name", ["SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR"])
def test_a_folder_relative_to_the_working_folder_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match=f"{name} is the relative path '../spark'"):
        launch_environment({name: "../spark"})


@pytest.mark.parametrize("name", ["PATH", "LD_LIBRARY_PATH", "SPARK_DIST_CLASSPATH"])
def test_lists_of_folders_lose_what_stands_for_the_working_folder(name: str) -> None:
    given = os.pathsep.join(["", "/usr/bin", ".", "bin", "", "/bin", ""])
    assert launch_environment({name: given})[name] == f"/usr/bin{os.pathsep}/bin"


@pytest.mark.parametrize("environment", [{}, *({"PATH": path} for path in ("", ":", ".", "bin:../bin:"))], ids=str)
def test_a_path_of_which_nothing_is_left_does_not_mean_the_working_folder(environment: dict[str, str]) -> None:
    """An empty PATH means it, and where there is none, bash has a PATH of its own, which may end in it."""
    assert launch_environment(environment)["PATH"] == "/usr/local/bin:/usr/bin:/bin"
