"""The conformance data are the real encoders' output, byte for byte: a changed byte would make every test over them worthless."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ORIGINALS = HERE.parents[2] / "shared" / "conformance"
SETS = {"ticdc-storage": 1000, "tidb-binlog": 50, "ticdc-kafka": 25}
"""Each set of cases, and how many files it has at least. Of ``ticdc-kafka`` only the protocols that are read have been copied."""


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file by its path relative to ``folder``."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def recorded(name: str) -> dict[str, str]:
    """The manifest, in the format of ``sha256sum``."""
    lines = (HERE / f"{name}.sha256").read_text(encoding="utf-8").splitlines()
    return {path: digest for digest, path in (line.split("  ", 1) for line in lines)}


@pytest.fixture(scope="module", params=SETS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def copy(name: str) -> dict[str, str]:
    return digests(HERE / name)


def test_the_copy_is_what_the_manifest_records(name: str, copy: dict[str, str]) -> None:
    assert len(copy) > SETS[name]
    assert copy == recorded(name)


def test_the_copy_equals_the_original_where_that_is_at_hand(name: str, copy: dict[str, str]) -> None:
    # Outside the place where Headrace is developed there is only the manifest to compare with.
    found = digests(ORIGINALS / name) if (ORIGINALS / name).is_dir() else recorded(name)
    wanted = {path: digest for path, digest in found.items() if path in copy} if name == "ticdc-kafka" else found
    assert copy == wanted
