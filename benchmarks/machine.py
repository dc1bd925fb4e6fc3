"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

import psutil

from headrace.engine.java import find_java

_PACKAGES = ("pyspark", "pyarrow", "duckdb", "PyMySQL")


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_facts() -> dict[str, object]:
    """Hardware, load at the beginning, and versions."""
    return {
        "processor": _processor(),
        "cores": cores(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load_at_start": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": _java(),
        **{name.lower(): version(name) for name in _PACKAGES},
    }


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def _java() -> str:
    program = find_java().home / "bin" / "java"
    told = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "([^"]+)"', told.stderr)
    return found[1] if found else "unknown"
