"""A real TiDB for the tests: built once from its Go modules into ``.tidb``, and run with its store inside the process.

``python tests/tidb_server.py`` builds it, which takes minutes; ``make test-tidb`` does that, and runs tests on it. The store is
TiDB's own unistore, not TiKV: SQL, types, DDL and locks are TiDB's, but nothing is told about speed or about many nodes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pymysql
import pytest

from servers import LOGIN, TiDb, create_user, end_with_parent, free_port, stop

# The commit of TiDB, and the hashes of its modules' sources; those of their dependencies are in TiDB's own go.sum.
_COMMIT = "20251126154744-e4e814fdc0af"
_MODULES = {
    f"github.com/pingcap/tidb@v1.1.0-beta.0.{_COMMIT}": "h1:XbxlkSbDcD1RMxOaKMib+BwyzQHr2l3Ke59K27lFIII=",
    f"github.com/pingcap/tidb/pkg/parser@v0.0.0-{_COMMIT}": "h1:vuDJApTAfkQHPiHS21zd04CEgd2NlJUBr6nUNM6rKHY=",
}
_PARSER = Path("pkg/parser")  # where TiDB's go.mod looks for the second module
CACHE = Path(__file__).parents[1] / ".tidb"
PROGRAM = CACHE / f"tidb-server-{_COMMIT}"
_START_SECONDS = 120
_CONFIG = """
[log]
level = "error"
enable-slow-log = false
[performance]
run-auto-analyze = false
[status]
report-status = false
"""


class BuildError(Exception):
    """The server could not be built; the message says why."""


def build() -> Path:
    """The server's program, built when it is not there yet. Raises BuildError."""
    if PROGRAM.exists():
        return PROGRAM
    go = shutil.which("go")
    if go is None:
        raise BuildError("TiDB is built from its sources, which needs Go 1.23.6 or newer on PATH.")
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        sources, built = Path(folder, "sources"), Path(folder, "tidb-server")
        for (module, digest), place in zip(_MODULES.items(), (sources, sources / _PARSER), strict=True):
            shutil.copytree(_downloaded(go, module, digest), place)
            _run(["chmod", "-R", "u+w", str(place)], sources)  # Go keeps its modules from being written to
        # Without the flag the linker refuses an old dependency that reaches into the runtime.
        _run([go, "build", "-mod=mod", "-ldflags", "-checklinkname=0", "-o", str(built), "./cmd/tidb-server"], sources)
        built.rename(PROGRAM)
    return PROGRAM


def _downloaded(go: str, module: str, digest: str) -> Path:
    found = json.loads(_run([go, "mod", "download", "-json", module], CACHE))
    if found["Sum"] != digest:
        raise BuildError(f"{module} has the hash {found['Sum']}, where {digest} was expected.")
    return Path(found["Dir"])


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)} failed: {(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


@contextmanager
def running_tidb() -> Iterator[TiDb]:
    """Runs a TiDB of its own on free loopback ports, stopped and removed at the end."""
    if not PROGRAM.exists():
        pytest.fail("These tests need a TiDB server: make test-tidb builds one.", pytrace=False)
    folder = Path(tempfile.mkdtemp(prefix="headrace-tidb-"))
    config = folder / "config.toml"
    config.write_text(_CONFIG, encoding="utf-8")
    port = free_port()
    command = [
        str(PROGRAM),
        "--store=unistore",
        "--lease=1s",  # how long a schema change waits before it looks again whether a transaction is over
        "--host=127.0.0.1",
        f"-P={port}",
        f"--path={folder / 'data'}",
        f"--socket={folder / 'socket'}",
        f"--temp-dir={folder / 'temp'}",
        f"--config={config}",
    ]
    try:
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=os.environ | {"TMPDIR": str(folder)},
                preexec_fn=end_with_parent,  # noqa: PLW1509 (one call)
            )
        try:
            with _opened(process, port, folder / "log") as root:
                server = create_user(TiDb("127.0.0.1", port, *LOGIN, process.pid), root)
            yield replace(server, command=tuple(command))
        finally:
            stop(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _opened(process: subprocess.Popen[bytes], port: int, log: Path) -> pymysql.connections.Connection:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            return pymysql.connect(host="127.0.0.1", port=port, user="root", ssl_disabled=True)
        except pymysql.err.MySQLError:
            time.sleep(0.1)
    pytest.fail(f"TiDB did not start: {log.read_text(errors='replace')[-2000:]}", pytrace=False)


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{build()}\n")
    except BuildError as error:
        sys.exit(f"error: {error}")
