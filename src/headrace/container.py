"""Detects whether this process runs in a container, and on which of its volumes a folder lies.

A container has one user, whatever accounts its image lists.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from headrace.errors import DefinitionError

SWITCH = "HEADRACE_CONTAINER"
"""The environment variable that overrides the detection.

``yes``: this is a container that is not recognised as one. ``no``: several users share this container.
"""
_KUBERNETES = "KUBERNETES_SERVICE_HOST"
_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))
"""Docker creates the first file, Podman the second."""
_PROCESSES_OF_THE_HOST = "pid:[4026531836]"
"""The initial process namespace, whose number is fixed in Linux. The file marks alone are not enough: a machine that was made from
a container image has them too."""
_EMPTY_DIR = "/kubernetes.io~empty-dir/"
"""Part of the host's path of an ``emptyDir``. It distinguishes an ``emptyDir`` from a folder of the host."""


def is_container() -> bool:
    """Whether this process runs in a container. Raises DefinitionError if :data:`SWITCH` is set to neither yes nor no."""
    switch = os.environ.get(SWITCH, "")
    if switch not in ("", "yes", "no"):
        raise DefinitionError(f"The environment variable {SWITCH} is {switch!r}: it takes yes or no.")
    if switch:
        return switch == "yes"
    return _KUBERNETES in os.environ or (any(mark.exists() for mark in _MARKS) and _has_processes_of_its_own())


def volume_of(folder: Path) -> Path:
    """The mount point of the file system that holds ``folder``: ``/`` for the container's own file system.

    ``folder`` is an absolute path without links.
    """
    return next(place for place in (folder, *folder.parents) if os.path.ismount(place))


def is_volume_of_pod(folder: Path) -> bool:
    """Whether ``folder`` is the mount point of a volume in a Kubernetes pod. Many such volumes have mode 0777."""
    return _KUBERNETES in os.environ and os.path.ismount(folder)


def is_empty_dir(folder: Path) -> bool:
    """Whether ``folder`` is the mount point of an ``emptyDir``, a volume that no other pod can access."""
    if not is_volume_of_pod(folder):
        return False
    root, kind = "", ""
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
            mount, _, file_system = line.partition(" - ")
            if _unescaped(mount.split(" ")[4]) == str(folder):  # of several mounts at one path, the last one hides the others
                root, kind = _unescaped(mount.split(" ")[3]), file_system.split(" ")[0]
    return _EMPTY_DIR in f"{root}/" or (root == "/" and kind == "tmpfs")


def _unescaped(path: str) -> str:
    """Decodes a path of ``mountinfo``, in which the kernel writes space, tab, line break and backslash as octal escapes."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), path)


def _has_processes_of_its_own() -> bool:
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink()) != _PROCESSES_OF_THE_HOST
    return False
