"""``make soak``: pipelines under random kills for half an hour, with all other trouble in between, and a table in the end.

History follows history, into MariaDB and DuckDB in turn. Everything follows from a history's seed, so ``--seed`` repeats one; at
which step of its work a trouble hits the run is up to the machine. The exit code is 1 when a target differs from the upstream or a
run does not go on, and the folder is kept.
"""

from __future__ import annotations

import argparse
import logging
import secrets
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random

import duckdb
import psutil
import pymysql

import conftest  # noqa: F401 -- makes this process independent of the machine, as it does for tests
import kafka_server
from kafka_server import KafkaBroker, running_kafka
from killing import Ordeal, Tally, Victim
from servers import MariaDb, running_mariadb, running_s3, started_again
from targets import DuckDbTarget, MariaDbTarget, Target

_KINDS = (1, 4, 3, 0, 5, 2)
"""What is left of seeds divided by 6, in turn: odd for MariaDB, even for DuckDB; from 2 on the source is S3, from 4 on Kafka."""
_TROUBLES = 8
"""How many befall one history."""
_KILLED, _AT_WORK, _CHECKED = 0.6, 0.8, 0.3
SERVER_DIES, CONNECTIONS_END = "SIGKILL for MariaDB, which starts again", "KILL for every connection to MariaDB"
BROKER_DIES = "SIGKILL for the Kafka broker, which starts again"
LOCK, TAKEOVER = "somebody locks rows, or DuckDB's file, for seconds", "a second copy of the run takes over"
# A commit must outlive the server's process, which kills end; a lock that is held for seconds must be too long.
_SERVER = {"innodb_flush_log_at_trx_commit": 2, "innodb_lock_wait_timeout": 2, "innodb_buffer_pool_size": "64M"}

Trouble = Callable[[Ordeal], None]
KILLS: dict[str, Trouble] = {f"SIGKILL for the {victim}": partial(Ordeal.kill, victim=victim) for victim in Victim}


def kill_and_wait(pid: int) -> None:
    """SIGKILL for a process."""
    process = psutil.Process(pid)
    process.kill()
    with suppress(psutil.NoSuchProcess):
        process.wait(30)


class Server:
    """A MariaDB that is killed now and then, and everything that a MariaDB may do to its clients."""

    def __init__(self, server: MariaDb, stack: ExitStack) -> None:
        self.running = server
        self._stack = stack

    def dies(self, ordeal: Ordeal) -> None:
        """SIGKILL, and a start on the same data some seconds later."""
        kill_and_wait(self.running.pid)
        ordeal.go_on(ordeal.chance.randint(0, 30))
        self.running = self._stack.enter_context(started_again(self.running))

    def ends_connections(self, ordeal: Ordeal) -> None:
        """KILL for every connection there is."""
        with self.running.connect() as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT ID FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() AND USER = %s", (self.running.user,)
            )
            for (thread,) in cursor.fetchall():
                with suppress(pymysql.err.MySQLError):  # it has ended by itself meanwhile
                    cursor.execute("KILL CONNECTION %s", (thread,))

    def locks_rows(self, ordeal: Ordeal) -> None:
        """A transaction holds a table's rows, or the ledger's, for some seconds."""
        with self.running.connect(autocommit=False) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA LIKE 'd%'")
            tables = [*sorted(cursor.fetchall()), ("headrace", "pipelines"), ("headrace", "tables")]
            database, table = ordeal.chance.choice(tables)
            with suppress(pymysql.err.MySQLError):  # the table has gone, or the run holds the rows itself
                cursor.execute(f"SELECT * FROM `{database}`.`{table}` FOR UPDATE")
            ordeal.go_on(ordeal.chance.randint(5, 50))
            connection.rollback()


class Broker:
    """A Kafka broker that is killed now and then."""

    def __init__(self, broker: KafkaBroker, stack: ExitStack) -> None:
        self.running = broker
        self._stack = stack

    def dies(self, ordeal: Ordeal) -> None:
        """SIGKILL, and a start on the same data while the run asks for it."""
        kill_and_wait(self.running.pid)
        time.sleep(ordeal.chance.uniform(0, 10))
        self.running = self._stack.enter_context(kafka_server.started_again(self.running))


def _reads_file(path: Path) -> Trouble:
    def read(ordeal: Ordeal) -> None:
        """Somebody has the file open for some seconds, which keeps the run from writing."""
        with suppress(duckdb.Error), duckdb.connect(str(path), read_only=True):
            ordeal.go_on(ordeal.chance.randint(5, 50))

    return read


@contextmanager
def _ordeal(seed: int, folder: Path, tally: Tally) -> Iterator[tuple[Ordeal, dict[str, Trouble]]]:
    """A history with its target, and what may happen to it besides kills of its own processes."""
    with ExitStack() as stack:
        target: Target
        troubles: dict[str, Trouble]
        if seed % 2:
            server = Server(stack.enter_context(running_mariadb(**_SERVER)), stack)
            target, uri = MariaDbTarget(server.running), server.running.uri()
            troubles = {SERVER_DIES: server.dies, CONNECTIONS_END: server.ends_connections, LOCK: server.locks_rows}
        else:
            target = DuckDbTarget(folder / "target.duckdb")
            uri, troubles = target.uri, {LOCK: _reads_file(folder / "target.duckdb")}
        place = seed % len(_KINDS) // 2
        store = stack.enter_context(running_s3()) if place == 1 else None
        broker = Broker(stack.enter_context(running_kafka()), stack) if place == 2 else None
        if broker is not None:
            troubles[BROKER_DIES] = broker.dies
        with Ordeal(seed, folder, target, uri, tally, store=store, broker=broker and broker.running) as ordeal:
            yield ordeal, troubles | {TAKEOVER: Ordeal.take_over}


def _play(seed: int, folder: Path, tally: Tally, troubles: Counter[str], say: Callable[[str], None]) -> None:
    with _ordeal(seed, folder, tally) as (ordeal, others):
        say(str(ordeal))
        chance = ordeal.chance
        for _ in range(_TROUBLES):
            name = chance.choice(list(KILLS if chance.random() < _KILLED else others))
            if chance.random() < _AT_WORK:  # else while it still starts, or recovers
                ordeal.go_on_until_applied()
            ordeal.go_on(chance.randint(0, 25))
            say(name)
            troubles[name] += 1
            ordeal.history.told.append(name)
            (KILLS | others)[name](ordeal)
            if chance.random() < _CHECKED:
                ordeal.check()
                say("the target holds what the upstream holds")
        ordeal.finish()
        say("the run was told to end; the target holds what the upstream holds")


def _table(tally: Tally, troubles: Counter[str], seconds: float, failures: int) -> str:
    figures = {
        "seconds": round(seconds),
        "histories": tally.histories,
        "starts of headrace run": tally.starts,
        "cuts in the ledgers": tally.cuts,
        "rows applied": tally.rows,
        "schema changes": tally.schema_changes,
        "kills of a driver, worker or JVM": sum(troubles[name] for name in KILLS),
        **{name: troubles[name] for name in (*KILLS, SERVER_DIES, CONNECTIONS_END, BROKER_DIES, LOCK, TAKEOVER)},
        "mismatches and other failures": failures,
    }
    return "\n".join(f"{name:50} {figure:>9,}" for name, figure in figures.items())


def main() -> int:
    """Plays histories until the time is over; a history that has begun is played to its end."""
    parser = argparse.ArgumentParser(description="Random kills and other trouble for half an hour, and a table in the end.")
    parser.add_argument("--seconds", type=float, default=1800.0, help="for how long")
    parser.add_argument("--seed", type=int, help="play this one history, to repeat a failure")
    arguments = parser.parse_args()
    began, tally, troubles, failures = time.monotonic(), Tally(), Counter[str](), 0

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {text}", flush=True)  # noqa: T201

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # each request to the S3 store
    seeds = Random(secrets.randbits(64))
    number = 0
    while not failures and time.monotonic() - began < arguments.seconds and not (number and arguments.seed is not None):
        seed = arguments.seed if arguments.seed is not None else seeds.randrange(10**9) * len(_KINDS) + _KINDS[number % len(_KINDS)]
        number += 1
        folder = Path(tempfile.mkdtemp(prefix="headrace-soak-"))
        try:
            _play(seed, folder, tally, troubles, say)
        except Exception:  # noqa: BLE001 -- told with its seed, whatever it is
            traceback.print_exc()
            say(f"FAILED; repeat it with: python tests/soak.py --seed {seed} (kept in {folder})")
            failures += 1
        else:
            shutil.rmtree(folder)
    say("done")
    print(_table(tally, troubles, time.monotonic() - began, failures))  # noqa: T201
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
