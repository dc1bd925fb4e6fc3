"""A small disk that can be filled up, and emptied again."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

_FILE_BYTES = 1024
_SERVER_FILE_BYTES = 1 << 20


@dataclass(frozen=True)
class SmallDisk:
    """A folder on a disk of its own (tmpfs). Where this process may not mount one (``is_mounted``), full means that no file can
    become larger than it needs to be for a start."""

    folder: Path
    is_mounted: bool

    @contextmanager
    def full(self, capfd: pytest.CaptureFixture[str], server: int = 0) -> Iterator[None]:
        """While it lasts there is no room; ``server`` is the process that writes there, 0 for this one."""
        if self.is_mounted:
            ballast = self.folder / "ballast"
            with ballast.open("wb", buffering=0) as file, suppress(OSError):
                while file.write(bytes(4096)):
                    pass
            try:
                yield
            finally:
                ballast.unlink()
            return
        limits = resource.prlimit(server, resource.RLIMIT_FSIZE)
        with capfd.disabled():  # what pytest keeps of the output is a file as well
            resource.prlimit(server, resource.RLIMIT_FSIZE, (_SERVER_FILE_BYTES if server else _FILE_BYTES, limits[1]))
            try:
                yield
            finally:
                resource.prlimit(server, resource.RLIMIT_FSIZE, limits)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[SmallDisk]:
    """A disk of this size (``"3m"``) at ``folder``, which is made."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield SmallDisk(folder, mounted)
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
