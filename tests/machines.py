"""Machines and containers with accounts and volumes of their own, as one process sees them: who may keep what in a folder there?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

_LOOK = """
import json, os, sys
from pathlib import Path
from headrace.errors import DefinitionError
from headrace.own_paths import require_own_file, require_own_folder, require_own_names, require_own_program
user, group, *groups = map(int, sys.argv[2].split(","))
os.setgroups(groups)
os.setgid(group)
os.setuid(user)
told = {}
for use, look in {
    "ledger": lambda path: require_own_folder(path / ".headrace", "ledger"),
    "target": lambda path: require_own_file(path / "shop.duckdb", "DuckDB file"),
    "temporary": lambda path: require_own_names(path, "temporary files"),
    "program": lambda path: require_own_program(path / "headrace", "the start of Java"),
}.items():
    try:
        look(Path(sys.argv[1]))
        told[use] = ""
    except DefinitionError as error:
        told[use] = str(error)
print(json.dumps(told))
"""
ROOT = "root:x:0:0::/:/bin/sh"
EVERYTHING = {"ledger", "target", "temporary", "program"}


@dataclass(frozen=True)
class Machine:
    """The lines of its ``/etc/passwd`` and ``/etc/group``, its environment, and what is mounted, in shell commands."""

    accounts: tuple[str, ...]
    groups: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: str = ":"

    def refusals(self, folder: Path, user: int, group: int, *groups: int) -> dict[str, str]:
        """For each use of a folder the sentence that refuses it, empty where it may be used; this user has these groups."""
        return json.loads(self.run(_LOOK, folder, ",".join(map(str, (user, group, *groups)))))

    def uses(self, folder: Path, user: int, group: int, *groups: int) -> set[str]:
        """What this user may keep in a folder: of :data:`EVERYTHING`."""
        return {use for use, told in self.refusals(folder, user, group, *groups).items() if not told}

    def run(self, program: str, *arguments: object) -> str:
        """What a Python program that starts as root prints there. Skips the test where nothing can be mounted."""
        with tempfile.TemporaryDirectory() as made:
            for name, lines in (("passwd", (ROOT, *self.accounts)), ("group", ("root:x:0:", *self.groups))):
                Path(made, name).write_text("".join(f"{line}\n" for line in lines))
                Path(made, name).chmod(0o644)
            bound = " && ".join(f"mount --bind {made}/{name} /etc/{name}" for name in ("passwd", "group"))
            script = f'{bound} && {{ {self.mounts}; }} || exit 99; exec "$0" "$@"'
            done = subprocess.run(
                ["unshare", "--mount", "sh", "-c", script, sys.executable, "-c", program, *map(str, arguments)],
                env={**os.environ, **self.environment},
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode == 99 or done.stderr.startswith("unshare:"):
            pytest.skip(done.stderr)
        assert done.returncode == 0, done.stderr
        return done.stdout
