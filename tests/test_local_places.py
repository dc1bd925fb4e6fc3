"""Where Spark runs on other machines, a place that only this one reaches is refused before Spark starts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.cli.main import main
from headrace.engine.spark import SparkEngine
from headrace.errors import EXIT_USAGE
from storage_folder import StorageFolder

REMOTE = "spark.master=spark://cluster:7077"
STORE = "s3://bucket/work?endpoint=http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: SparkEngine) -> None:
        raise AssertionError("Spark starts")

    monkeypatch.setattr(SparkEngine, "start", start)


@pytest.fixture
def source(tmp_path: Path) -> str:
    return f"file://{tmp_path}/feed?protocol=csv"


Told = Callable[..., str]
Checks = Callable[..., list[dict[str, str]]]


@pytest.fixture
def told(source: str, capsys: pytest.CaptureFixture[str]) -> Told:
    """What ``headrace run`` refuses, without line breaks."""

    def run(*arguments: str) -> str:
        assert main(["run", "--once", "--source", source, *arguments]) == EXIT_USAGE
        return " ".join(capsys.readouterr().err.split())

    return run


@pytest.fixture
def checks(capsys: pytest.CaptureFixture[str]) -> Checks:
    """What ``headrace validate`` says of the work place."""

    def run(*arguments: str) -> list[dict[str, str]]:
        main(["validate", "--no-spark", "--json", *arguments])
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert found
        return [check for check in found if check.get("name") == "work place"]

    return run


@pytest.mark.parametrize("master", ["spark://cluster:7077", "yarn", "k8s://https://h:443", "local-cluster[2,1,1024]"])
@pytest.mark.parametrize("sink", ["duckdb:///{tmp_path}/t.duckdb", "print://"])
def test_a_sink_that_spools_needs_a_work_place_that_workers_reach(sink: str, master: str, told: Told, tmp_path: Path) -> None:
    found = told("--sink", sink.format(tmp_path=tmp_path), "--spark", f"spark.master={master}")
    assert f"Spark runs on other machines (spark.master={master}), and the work place" in found
    assert "with --work, or work under pipeline: s3://bucket/prefix." in found


@pytest.mark.parametrize("work", ["{tmp_path}/work", "file://{tmp_path}/work"])
def test_a_folder_is_no_work_place_of_other_machines(work: str, told: Told, tmp_path: Path) -> None:
    found = told("--sink", "print://", "--spark", REMOTE, "--work", work.format(tmp_path=tmp_path))
    assert f"is a folder of this machine: {tmp_path}/work." in found


def test_a_folder_that_the_sink_spools_in_is_refused_also_beside_a_store(told: Told, tmp_path: Path) -> None:
    found = told("--sink", f"duckdb:///{tmp_path}/t.duckdb?spool={tmp_path}/spool", "--spark", REMOTE, "--work", STORE)
    assert "spool in the sink's URI names a folder, and each machine has its own folder of that name." in found
    assert "Take it out" in found


@pytest.mark.parametrize("sink", ["blackhole://", "mysql://root@127.0.0.1:1/"])
def test_dead_letters_in_a_folder_are_refused(sink: str, told: Told, tmp_path: Path) -> None:
    letters = ["--on-error", "dead-letter", "--dead-letters", f"{tmp_path}/letters"]
    found = told("--sink", sink, "--spark", REMOTE, *letters)
    assert f"and each of them would write dead letters to a folder of its own: {tmp_path}/letters." in found
    assert "--dead-letters" in found


def test_a_store_will_do(checks: Checks, source: str) -> None:
    (check,) = checks("--source", source, "--sink", "print://", "--spark", REMOTE, "--work", STORE)
    assert check["state"] == "ok"


@pytest.mark.parametrize("master", ["local", "local[*,4]"])
def test_on_this_machine_alone_every_folder_will_do(master: str, checks: Checks, tmp_path: Path) -> None:
    folder = StorageFolder(tmp_path / "feed")
    assert not checks("--source", folder.uri(), "--sink", "print://", "--spark", f"spark.master={master}")


def test_validate_names_every_place_of_a_definition(checks: Checks, source: str, tmp_path: Path) -> None:
    definition = tmp_path / "pipeline.yaml"
    definition.write_text(
        f"""
source:
  uri: "{source}"
sink:
  uri: print://
pipeline:
  work: work
  on-error: dead-letter
  dead-letters: letters
  spark:
    spark.master: yarn
"""
    )
    work, letters = checks(str(definition))
    assert work["state"] == letters["state"] == "failed"
    assert f"is a folder of this machine: {tmp_path}/work." in work["detail"]
    assert f"a folder of its own: {tmp_path}/letters." in letters["detail"]
