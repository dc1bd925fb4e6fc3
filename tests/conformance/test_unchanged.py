"""The conformance data are TiCDC's output, byte for byte: a changed byte would make every test over them worthless."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

COPY = Path(__file__).parent / "ticdc-storage"
MANIFEST = Path(__file__).parent / "ticdc-storage.sha256"
ORIGINAL = Path(__file__).parents[3] / "shared" / "conformance" / "ticdc-storage"


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file by its path relative to ``folder``."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def recorded() -> dict[str, str]:
    """The manifest, in the format of ``sha256sum``."""
    lines = MANIFEST.read_text(encoding="utf-8").splitlines()
    return {path: digest for digest, path in (line.split("  ", 1) for line in lines)}


@pytest.fixture(scope="module")
def copy() -> dict[str, str]:
    return digests(COPY)


def test_the_copy_is_what_the_manifest_records(copy: dict[str, str]) -> None:
    assert len(copy) > 1000
    assert copy == recorded()


def test_the_copy_equals_the_original_where_that_is_at_hand(copy: dict[str, str]) -> None:
    # Outside the place where Headrace is developed there is only the manifest to compare with.
    assert copy == (digests(ORIGINAL) if ORIGINAL.is_dir() else recorded())
