"""Where the programs and files of a Spark session come from: never from the working folder, or from beside it.

PySpark searches the folder above the working folder for ``spark-submit`` first; every user may have write access there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from headrace.errors import DefinitionError, MissingPartError

_FOLDERS = ("SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Spark runs and loads files from there: programs, ``spark-env.sh``, ``spark-defaults.conf``, ``log4j2.properties``."""
_SEARCHED = ("PATH", "LD_LIBRARY_PATH", "SPARK_DIST_CLASSPATH")
"""Lists of folders. An empty or relative entry means a place in the working folder."""

_PATH = "/usr/local/bin:/usr/bin:/bin"
"""Used if no entry of ``PATH`` is left: an empty ``PATH`` means the working folder, and bash invents one if there is none."""


def launch_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The changes to the environment that are needed before PySpark launches a JVM.

    Raises DefinitionError for a variable that names a folder relative to the working folder, MissingPartError if no Spark is
    installed.
    """
    for name in _FOLDERS:
        folder = environment.get(name, "")
        if folder and not Path(folder).is_absolute():
            raise DefinitionError(
                f"The environment variable {name} is the relative path {folder!r}: Spark would run what is in the working folder.",
                "Write the path in full.",
            )
    changes = {name: _absolute_entries(environment[name]) for name in _SEARCHED if name in environment}
    changes["PATH"] = changes.get("PATH") or _PATH
    return changes | {"SPARK_HOME": environment.get("SPARK_HOME") or str(_installed_spark())}


def _absolute_entries(searched: str) -> str:
    return os.pathsep.join(entry for entry in searched.split(os.pathsep) if Path(entry).is_absolute())


def _installed_spark() -> Path:
    """The Spark in the installed package, or the one that PySpark's installation put beside it (PYSPARK_HADOOP_VERSION)."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise MissingPartError("PySpark is not installed.", "Run: pip install pyspark")
    package = Path(found.origin).resolve().parent
    for home in (package / "spark-distribution", package):
        if (home / "bin" / "spark-submit").is_file() and (home / "jars").is_dir():
            return home
    raise MissingPartError(f"The PySpark in {package} has no bin/spark-submit and no jars.", "Install pyspark, or set SPARK_HOME.")
