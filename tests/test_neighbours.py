"""Other users of the machine reach the ports of a run, and get nothing out of it, nor anything into it."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from headrace.scratch import remove_leftovers

SERVING = """
import os, subprocess, sys
from headrace.engine.spark import SparkEngine, session_settings
user = dict(pair.split("=", 1) for pair in sys.argv[1:])
engine = SparkEngine(session_settings({"spark.master": "local[1,4]", **user}, {}))
engine.warm_up()
context = engine.start().sparkContext
env = context._jvm.org.apache.spark.SparkEnv.get()
print(env.rpcEnv().address().port(), env.blockManager().blockManagerId().port(), context._gateway.proc.pid, flush=True)
sys.stdin.read()
"""
RPC_REQUEST, RPC_FAILURE = 3, 5
NO_SUCH_CLASS = "headrace.sent.by.a.Neighbour"
PATIENCE = 10.0


@dataclass(frozen=True)
class Serving:
    """A run whose session is up: its processes, and the ports of the driver's RPC and of the block manager."""

    driver: int
    jvm: int
    rpc: int
    blocks: int


@contextmanager
def serving(*settings: str, working_folder: Path | None = None) -> Iterator[Serving]:
    # As the command `headrace`, and other than `python -c`, it imports nothing from the working folder.
    command = [sys.executable, "-P", "-c", SERVING, *settings]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=working_folder) as process:
        assert process.stdout is not None
        rpc, blocks, jvm = map(int, process.stdout.readline().split())
        yield Serving(process.pid, jvm, rpc, blocks)
        process.communicate("")


@pytest.fixture(scope="module")
def run() -> Iterator[Serving]:
    with serving() as found:
        yield found


@pytest.fixture(scope="module")
def run_without_secret() -> Iterator[Serving]:
    with serving("spark.authenticate=false") as found:
        yield found


def ended_within(process: psutil.Process, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < until:
        time.sleep(0.01)
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.spark
def test_what_a_killed_run_left_is_removed_once_its_jvm_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with serving() as run:
        (left,) = tmp_path.iterdir()
        assert any(left.glob("blockmgr-*"))
        os.kill(run.driver, signal.SIGKILL)
        jvm = psutil.Process(run.jvm)
        until = time.monotonic() + 60
        while left.exists() and time.monotonic() < until:
            remove_leftovers(tmp_path)
            time.sleep(0.01)
        # It was ending already: as long as it lives it uses the folder. Where nobody waits for it, it stays as a zombie.
        assert ended_within(jvm, 5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
def test_no_process_of_a_run_imports_modules_from_the_working_folder(tmp_path: Path) -> None:
    """It may be one that others write to, such as the temporary folder."""
    place = tmp_path / "shared"
    (place / "pyspark").mkdir(parents=True)
    for module in ("numbers.py", "select.py", "pyspark/__init__.py"):
        (place / module).write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write(__name__)")
    try:
        with serving(working_folder=place) as run:
            assert len(family(run.driver)) >= 3, "the driver, the JVM and a daemon"
    finally:
        assert not (tmp_path / "imported").exists()


@pytest.mark.spark
@pytest.mark.parametrize("beside", ["above the working folder", "in the working folder"])
def test_no_program_of_a_neighbours_is_run_from_the_working_folder_or_above(
    tmp_path: Path, beside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark looks for its own in the folder above first; an empty variable stands for the working folder."""
    own = tmp_path / "shared" / "own"
    own.mkdir(parents=True)
    planted = own.parent if beside == "above the working folder" else own
    (planted / "jars").mkdir()
    for program in ("bin/spark-submit", "bin/spark-class", "bin/load-spark-env.sh", "conf/spark-env.sh", "java", "bash", "ps"):
        (planted / program).parent.mkdir(exist_ok=True)
        (planted / program).write_text(f"#!/bin/sh\nid > {tmp_path / 'ran'}\nexit 1\n")
        (planted / program).chmod(0o755)
    if planted == own:
        monkeypatch.setenv("SPARK_HOME", "")
        monkeypatch.setenv("SPARK_CONF_DIR", "")
        monkeypatch.setenv("PATH", f":.:{os.environ['PATH']}")
    try:
        with serving(working_folder=own) as run:
            assert len(family(run.driver)) >= 3, "the driver, the JVM and a daemon"
    finally:
        assert not (tmp_path / "ran").exists()


# --- the protocol of Spark's ports ------------------------------------------------------------------------------------


def utf(text: str) -> bytes:
    """As Java's ``DataOutputStream.writeUTF``."""
    return struct.pack("!H", len(text.encode())) + text.encode()


def sized(data: bytes) -> bytes:
    return struct.pack("!i", len(data)) + data


JAVA_OBJECT = b"\xac\xed\x00\x05\x73\x72" + utf(NO_SUCH_CLASS) + bytes(8) + b"\x02\x00\x00\x78\x70"
"""A Java object of a class that is nowhere: who deserialises it says so."""


def for_driver() -> bytes:
    """A message to an endpoint of the driver, as ``org.apache.spark.rpc.netty.RequestMessage`` reads it."""
    return b"\x00" + b"\x01" + utf("127.0.0.1") + struct.pack("!i", 1) + utf("HeartbeatReceiver") + JAVA_OBJECT


def for_block_manager() -> bytes:
    """``UploadBlock`` (type 1), whose metadata is a Java object."""
    return b"\x01" + b"".join(map(sized, (b"app", b"driver", b"test_block", JAVA_OBJECT, b"rows")))


def ask(port: int, *bodies: bytes) -> list[bytes]:
    """What the port answers to each request of one connection, ``b""`` where it ended that."""
    answers = []
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
        connection.settimeout(PATIENCE)
        for body in bodies:
            request = struct.pack("!BqI", RPC_REQUEST, 4711, len(body)) + body
            connection.sendall(struct.pack("!q", len(request) + 8) + request)
            head = received(connection, 8)
            answers.append(received(connection, struct.unpack("!q", head)[0] - 8) if len(head) == 8 else b"")
    return answers


def received(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        try:
            part = connection.recv(length - len(data))
        except (ConnectionResetError, TimeoutError):
            break
        if not part:
            break
        data += part
    return data


MESSAGES = pytest.mark.parametrize(
    ("port", "body"), [("rpc", for_driver()), ("blocks", for_block_manager())], ids=["driver", "blocks"]
)


@pytest.mark.spark
@MESSAGES
def test_a_neighbour_without_the_secret_gets_nothing_deserialised(run: Serving, port: str, body: bytes) -> None:
    for answer in ask(getattr(run, port), body, body):
        assert NO_SUCH_CLASS.encode() not in answer
        assert b"ObjectInputStream" not in answer
        assert not answer or answer[0] == RPC_FAILURE


@pytest.mark.spark
@MESSAGES
def test_a_user_may_turn_the_secret_off_and_everything_is_deserialised_then(
    run_without_secret: Serving, port: str, body: bytes
) -> None:
    """It shows too that the test above asks for what would be done without the setting."""
    (answer,) = ask(getattr(run_without_secret, port), body)
    assert answer[0] == RPC_FAILURE
    assert f"ClassNotFoundException: {NO_SUCH_CLASS}".encode() in answer
    assert b"ObjectInputStream" in answer


# --- all ports, command lines and environments ------------------------------------------------------------------------


def family(root: int) -> list[int]:
    """A process and all that it started."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
    found = [root]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found


def sockets_of(process: int) -> set[str]:
    inodes = set()
    for path in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):
            if found := re.fullmatch(r"socket:\[(\d+)\]", str(path.readlink())):
                inodes.add(found.group(1))
    return inodes


def listening(processes: list[int]) -> dict[tuple[str, int], int]:
    """Where these processes listen (address in the kernel's hex, port), and which one."""
    owners = {inode: process for process in processes for inode in sockets_of(process)}
    found = {}
    for kind, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == state and fields[9] in owners:
                address, port = fields[1].split(":")
                found[address, int(port, 16)] = owners[fields[9]]
    return found


# Py4J says an error, or nothing; PySpark's servers say "err", a daemon after the number of the process that it made for it.
REFUSAL = rb"|!x.*|.{0,4}\x00\x00\x00\x03err"
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


@pytest.mark.spark
def test_every_port_of_a_run_is_on_the_loopback_address(run: Serving) -> None:
    found = listening(family(run.driver))
    assert {address for address, _ in found} <= LOOPBACK
    assert {port for _, port in found} > {run.rpc, run.blocks}
    assert sum(1 for process in found.values() if process == run.jvm) == 3, "the driver's RPC, blocks, and Py4J's gateway"


@pytest.mark.spark
def test_every_port_of_a_run_asks_for_a_secret(run: Serving) -> None:
    """A client that says something else is told nothing but that it is refused, and its connection ends."""
    tcp = {port for (address, port), _ in listening(family(run.driver)).items() if is_tcp(port)}
    for port in tcp - {run.rpc, run.blocks}:
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
            connection.settimeout(2)  # PySpark's server for accumulators serves the JVM alone, and others wait for ever
            connection.sendall(b"c\nj\nrj\ne\n" + struct.pack("!i", 4) + b"none" + bytes(8))
            with suppress(OSError):  # some have ended the connection by now
                connection.shutdown(socket.SHUT_WR)
            answer = received(connection, 1000)
        assert re.fullmatch(REFUSAL, answer, re.DOTALL), (port, answer)


def is_tcp(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), PATIENCE).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.spark
def test_the_jvm_does_not_hold_the_output_of_the_run_open(run: Serving) -> None:
    """A JVM that is still starting ends seconds after a run without work, and whoever reads its output would wait for that."""
    assert Path(f"/proc/{run.driver}/fd/1").readlink() != Path(f"/proc/{run.jvm}/fd/1").readlink()


@pytest.mark.spark
def test_no_command_line_shows_what_authenticates(run: Serving) -> None:
    lines = b"".join(Path(f"/proc/{process}/cmdline").read_bytes() for process in family(run.driver))
    assert b"org.apache.spark.deploy.SparkSubmit" in lines
    assert b"pyspark.daemon" in lines
    assert not re.search(rb"(?i)secret|password|[0-9a-f]{32,}", lines)


@pytest.mark.spark
def test_environments_are_for_their_user_alone(run: Serving) -> None:
    """The daemons of PySpark get their secrets there; Spark's own secret is in none."""
    seen = 0
    for process in family(run.driver):
        with suppress(FileNotFoundError, ProcessLookupError):  # a process that has ended
            path = Path(f"/proc/{process}/environ")
            assert path.stat().st_mode & 0o077 == 0
            assert b"_SPARK_AUTH_SECRET" not in path.read_bytes()
            seen += 1
    assert seen >= 3, "the driver, the JVM and a daemon"
