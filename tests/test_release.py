"""The wheel and the sdist: what is in them, what they depend on, that anyone can build them again, and that they run."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import duckdb
import pytest
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation import make_schemabased_validator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bill_of_materials import BILL, LOCK, bill_of_materials, read_lock
from headrace import __version__

pytestmark = pytest.mark.long

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "headrace"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKS = sorted(ROOT.glob("requirements*.txt"))
# What is set for the tests must not leak into what is released.
OUTSIDE = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def build(source: Path, out: Path, *formats: str) -> dict[str, Path]:
    """Builds in the way of ``make dist``; file name endings to files."""
    command = [sys.executable, "-m", "build", "--no-isolation", *formats, "--outdir", str(out), str(source)]
    subprocess.run(command, check=True, capture_output=True, env=OUTSIDE | {"SOURCE_DATE_EPOCH": "1700000000"})
    return {path.suffix: path for path in out.iterdir()}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sdist, and the wheel that is built from it."""
    return build(ROOT, tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def wheel(release: dict[str, Path]) -> zipfile.ZipFile:
    return zipfile.ZipFile(release[".whl"])


@pytest.fixture(scope="module")
def installed(release: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``headrace`` command of an environment that has the wheel, and of this one all but Headrace.

    The libraries are those of the hashed lock already. A line in a ``.pth`` file makes them importable. The ``.pth`` file of the
    checkout's own Headrace is not read there.
    """
    folder = tmp_path_factory.mktemp("installed") / "environment"
    venv.create(folder, symlinks=True)
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    libraries = Path(pytest.__file__).parent.parent
    (packages / "libraries.pth").write_text(f"{libraries}\n")
    python = folder / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, str(release[".whl"])], check=True, env=OUTSIDE)
    return folder / "bin" / "headrace"


class TestFiles:
    """What is in the wheel and in the sdist."""

    def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(self, wheel: zipfile.ZipFile) -> None:
        files = [path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        assert {path.name for path in files if path.suffix != ".py"} == {
            "py.typed",
            "log4j2.properties",
            "slave_binlog.proto",
            "canal.proto",
        }
        info = f"headrace-{__version__}.dist-info"
        about = ["METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "sboms/headrace.cdx.json"]
        wanted = [path.relative_to(PACKAGE.parent).as_posix() for path in files] + [f"{info}/{name}" for name in about]
        assert sorted(wheel.namelist()) == sorted(wanted)

    def test_the_sdist_holds_the_package_its_docs_and_what_builds_it(self, release: dict[str, Path]) -> None:
        with tarfile.open(release[".gz"]) as sdist:
            names = {name.split("/", 1)[1] for name in sdist.getnames()}
        folders = {name.split("/")[0] for name in names if "/" in name}
        assert folders == {"src", "docs"}
        assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "headrace.cdx.json", "requirements.txt"} <= names

    @pytest.mark.skipif(not (ROOT / ".git").exists(), reason="only a checkout has files that are not committed")
    @pytest.mark.parametrize("stray", ["src/headrace/.env", "src/headrace/sinks/local.py", "docs/notes.md"])
    def test_no_release_is_made_with_a_file_that_is_not_committed(self, tmp_path: Path, stray: str) -> None:
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(tmp_path / "clone")], check=True)
        shutil.copy(ROOT / "Makefile", tmp_path / "clone")
        (tmp_path / "clone" / stray).write_text("PASSWORD=secret")
        making = ["make", "dist", f"PY={sys.executable}", "DEV="]
        done = subprocess.run(making, cwd=tmp_path / "clone", capture_output=True, text=True, check=False, env=OUTSIDE)
        assert done.returncode != 0
        assert stray in done.stdout
        assert not (tmp_path / "clone" / "dist").exists()

    def test_the_sdist_builds_the_same_wheel_as_the_checkout(self, release: dict[str, Path], tmp_path: Path) -> None:
        assert digest(build(ROOT, tmp_path, "--wheel")[".whl"]) == digest(release[".whl"])

    def test_a_build_elsewhere_and_later_gives_the_same_bytes(self, release: dict[str, Path], tmp_path: Path) -> None:
        """The same files with other times and rights, in a folder of another name."""
        copy = tmp_path / "copy"
        with tarfile.open(release[".gz"]) as sdist:
            sdist.extractall(copy, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        (unpacked,) = copy.iterdir()
        (unpacked / "PKG-INFO").unlink()  # which a checkout has not
        for path in unpacked.rglob("*"):
            os.utime(path, (1_600_000_000, 1_600_000_000))
            path.chmod(path.stat().st_mode & 0o700)
        again = build(unpacked, tmp_path / "out")
        assert {kind: digest(path) for kind, path in again.items()} == {kind: digest(path) for kind, path in release.items()}


class TestSupply:
    """What a release stands on."""

    def test_every_dependency_has_an_upper_bound(self) -> None:
        requirements = [Requirement(text) for text in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["java"]]]
        unbounded = [str(r) for r in requirements if not any(s.operator in ("<", "==", "~=") for s in r.specifier)]
        assert unbounded == []

    def test_what_is_tested_lies_within_the_bounds(self) -> None:
        locked = {package.name: package.version for package in read_lock(LOCK.read_text())}
        requirements = [Requirement(text) for text in PROJECT["dependencies"]]
        assert [str(r) for r in requirements if not r.specifier.contains(locked[canonicalize_name(r.name)])] == []

    @pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
    def test_locks_hold_hashes_and_no_addresses(self, lock: Path) -> None:
        text = lock.read_text()
        assert list(read_lock(text))
        assert re.findall(r".*://.*|^ *-.*(?:index|find-links|trusted).*", text, re.MULTILINE) == []

    def test_a_package_without_a_hash_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"^rich has no hash in the lock: run make lock$"):
            list(read_lock("pytz==2026.6 \\\n    --hash=sha256:" + "0" * 64 + "\nrich==15.0.0\n    # via typer\n"))

    def test_the_bill_of_materials_is_that_of_the_lock(self) -> None:
        assert BILL.read_text() == bill_of_materials(LOCK.read_text()), "run make lock"

    def test_the_bill_of_materials_keeps_to_the_schema_of_cyclonedx(self) -> None:
        validator = make_schemabased_validator(OutputFormat.JSON, SchemaVersion.V1_6)
        assert validator.validate_str(BILL.read_text()) is None
        assert validator.validate_str(BILL.read_text().replace('"library"', '"book"')) is not None

    def test_the_bill_of_materials_names_each_package_and_who_needs_it(self) -> None:
        bill = json.loads(BILL.read_text())
        assert {(c["name"], c["version"]) for c in bill["components"]} == {(p.name, p.version) for p in read_lock(LOCK.read_text())}
        needs = {entry["ref"]: entry.get("dependsOn", []) for entry in bill["dependencies"]}
        assert needs["headrace"] == sorted(canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"])
        assert needs["pandas"] == ["numpy", "python-dateutil", "pytz", "tzdata"]

    def test_the_bill_of_materials_names_no_address_to_download_from(self) -> None:
        bill = json.loads(BILL.read_text())
        assert "://" not in json.dumps({key: value for key, value in bill.items() if key != "$schema"})


class TestInstalled:
    """The wheel alone, in an environment and a folder that are not the checkout's."""

    def test_headrace_comes_from_the_wheel(self, installed: Path, tmp_path: Path) -> None:
        own = "[e for e in m.entry_points(group='headrace.sinks') if e.dist.name == 'headrace']"
        told = f"import headrace, importlib.metadata as m; print(headrace.__file__, len({own}))"
        found = subprocess.check_output([installed.parent / "python", "-c", told], cwd=tmp_path, env=OUTSIDE, text=True)
        place, sinks = found.split()
        assert Path(place).is_relative_to(installed.parent.parent)
        assert int(sinks) == len(PROJECT["entry-points"]["headrace.sinks"])
        assert __version__ in subprocess.check_output([installed, "version"], cwd=tmp_path, env=OUTSIDE, text=True)

    @pytest.mark.spark
    def test_the_demo_runs(self, installed: Path, tmp_path: Path) -> None:
        command = [installed, "demo"]
        done = subprocess.run(command, cwd=tmp_path, env=OUTSIDE, text=True, capture_output=True, check=False)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        with duckdb.connect(str(next(tmp_path.rglob("*.duckdb"))), read_only=True) as target:
            assert target.sql("SELECT count(*) > 0 FROM headrace.cuts").fetchall() == [(True,)]
