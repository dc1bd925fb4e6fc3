"""Is this a container, and on which of its volumes does a folder lie? A container has one user, whatever accounts its image has."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from headrace.errors import DefinitionError

SWITCH = "HEADRACE_CONTAINER"
"""The variable that answers for a container that cannot be told (``yes``), or that several users share (``no``)."""
_KUBERNETES = "KUBERNETES_SERVICE_HOST"
_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))
"""Docker makes the one, Podman the other."""
_PROCESSES_OF_THE_HOST = "pid:[4026531836]"
"""The first namespace of processes; Linux fixes its number. A machine that was made from an image has the image's mark too."""
_EMPTY_DIR = "/kubernetes.io~empty-dir/"
"""In the host's path of an ``emptyDir``, which tells it from a folder of the host's."""


def is_container() -> bool:
    """Whether this process runs in a container. Raises DefinitionError for a switch that says neither yes nor no."""
    switch = os.environ.get(SWITCH, "")
    if switch not in ("", "yes", "no"):
        raise DefinitionError(f"The environment variable {SWITCH} is {switch!r}: it takes yes or no.")
    if switch:
        return switch == "yes"
    return _KUBERNETES in os.environ or (any(mark.exists() for mark in _MARKS) and _has_processes_of_its_own())


def volume_of(folder: Path) -> Path:
    """The folder at which the file system begins on which an absolute path without links lies: ``/`` for the container's own."""
    return next(place for place in (folder, *folder.parents) if os.path.ismount(place))


def is_volume_of_pod(folder: Path) -> bool:
    """Whether a volume is mounted here in a pod of Kubernetes. Many have mode 0777."""
    return _KUBERNETES in os.environ and os.path.ismount(folder)


def is_empty_dir(folder: Path) -> bool:
    """Whether a volume of a pod is an ``emptyDir``, which no other pod reaches."""
    if not is_volume_of_pod(folder):
        return False
    root, kind = "", ""
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
            mount, _, file_system = line.partition(" - ")
            if _unescaped(mount.split(" ")[4]) == str(folder):  # the last one lies over the others
                root, kind = _unescaped(mount.split(" ")[3]), file_system.split(" ")[0]
    return _EMPTY_DIR in f"{root}/" or (root == "/" and kind == "tmpfs")


def _unescaped(path: str) -> str:
    """A path as the kernel lists it: with a blank, a tab, a line break and a backslash as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), path)


def _has_processes_of_its_own() -> bool:
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink()) != _PROCESSES_OF_THE_HOST
    return False
