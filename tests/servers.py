"""The real servers that tests talk to: MariaDB, and an S3 store. Each runs on a free loopback port in a temporary folder.

``conftest.py`` starts each of them at most once in a test session, as the fixtures ``mariadb`` and ``s3``. A test that needs a
server with other options opens its own with :func:`running_mariadb`. With ``--mysql-server tidb`` the fixture ``mariadb`` gives a
TiDB (``tidb_server.py``) instead, so that the same tests run on it.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, urlencode

import pymysql
import pytest

SYSTEM_DATABASES = frozenset({"mysql", "information_schema", "metrics_schema", "performance_schema", "sys"})
LOGIN = ("headrace", "pass:w@rd/1%")
"""The account of pipelines."""
PERSON = ("person", "does what she likes")
"""The account of the tests themselves, which may do everything."""
DATABASES = (
    *("shop", "shop2", "test", "other", "bank", "gone", "out", "store", "nowhere", "tgt", "schema1", "heap", "heavy", "odd"),
    *("d", "d1", "d2", "d3", "d-2", "db2", "x", "k", "od", "zz", "bench", "floor", "of0", "of1", "of2", "of3", "of4", "types"),
    *("Shop", "SHOP", "Test", "TEST", "tesT", "straße", "strasse", "店", "läden", "数据", "my-db", "my.shop"),
    *("d`b", "d'\"b;--%s?{}\\"),
)
"""The databases that pipelines of the tests may write to. A test whose pipeline writes to others lets it use ``any_database``."""
LEDGERS = ("headrace", "others", "progress", "progress-1", "Progress", "Headrace")
_ANYWHERE = "headrace_anywhere"
_PAGE = Path(__file__).parent.parent / "docs" / "connectors" / "mysql.md"
_SQL = re.compile(r"^```sql\n(.*?)^```", re.MULTILINE | re.DOTALL)
_GRANT = re.compile(r"GRANT (?P<rights>[A-Z, ]+) ON (?P<place>\S+) TO repl@'10\.0\.0\.%';")
_START_SECONDS = 60
_STOP_SECONDS = 20
_PORT_ATTEMPTS = 3
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded here, since little is safe between fork and exec

# Durability is of no use to a test; the character set is Debian's own setting, named because --no-defaults hides its file.
_MARIADB_OPTIONS = {
    "skip_networking": 0,
    "bind_address": "127.0.0.1",
    "skip_name_resolve": 1,
    "innodb_flush_log_at_trx_commit": 0,
    "innodb_buffer_pool_size": "256M",
    "local_infile": 1,
    "character_set_server": "utf8mb4",
    "collation_server": "utf8mb4_general_ci",
}


@dataclass(frozen=True)
class Documented:
    """The grants that docs/connectors/mysql.md tells people to make, by where they are.

    The tests' pipelines have exactly these: where Headrace needs another right, tests fail until the page names it.
    """

    ledger: tuple[str, ...]
    database: tuple[str, ...]
    whole_databases: tuple[str, ...]
    """What a DROP DATABASE needs beyond that."""
    pattern: tuple[str, ...]
    everywhere: tuple[str, ...]

    def on_databases(self, user: str, databases: Iterable[str], ledgers: Iterable[str] = ("headrace",)) -> Iterator[str]:
        """The statements for an account that writes these databases, with its ledger in one of those."""
        for ledger in ledgers:
            yield grant(self.ledger, on_database(ledger), user)
        for database in databases:
            yield grant(self.database, on_database(database), user)
            yield grant(self.whole_databases, on_database(database), user)


@cache
def documented() -> Documented:
    """What the page says."""
    section = _PAGE.read_text(encoding="utf-8").partition("\n### Rights\n")[2].partition("\n## ")[0]
    found = [
        (match["place"], tuple(match["rights"].split(", "))) for block in _SQL.findall(section) for match in _GRANT.finditer(block)
    ]
    places = [place for place, _ in found]
    assert places == ["`headrace`.*", "`shop`.*", "`shop`.*", r"`shop\_%`.*", "*.*"], f"{_PAGE} grants on {places}"
    return Documented(*(rights for _, rights in found))


def grant(rights: Iterable[str], place: str, user: str) -> str:
    return f"GRANT {', '.join(rights)} ON {place} TO {user}"


def on_database(database: str) -> str:
    """This one database: the name in a grant is a pattern."""
    name = re.sub(r"([\\_%])", r"\\\1", database).replace("`", "``")
    return f"`{name}`.*"


@dataclass(frozen=True)
class MariaDb:
    """A running MariaDB.

    Pipelines connect as ``user``, who has the grants that docs/connectors/mysql.md tells people to make, and whose password holds
    characters that a URI has to escape. :meth:`connect` is for the tests themselves: as somebody who may do everything.
    """

    scheme: ClassVar[str] = "mysql"
    is_tidb: ClassVar[bool] = False

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    pid: int
    command: tuple[str, ...] = field(default=(), repr=False)

    def uri(self, *, any_database: bool = False, **params: object) -> str:
        """``mysql://user:password@host:port/``, of a TiDB ``tidb://…``, with ``params`` as its query; underscores in their names
        become dashes. ``any_database``: as an account with the grants for databases of any name."""
        query = urlencode({name.replace("_", "-"): str(value) for name, value in params.items()})
        login = f"{_ANYWHERE if any_database else quote(self.user, safe='')}:{quote(self.password, safe='')}"
        return f"{self.scheme}://{login}@{self.host}:{self.port}/" + (f"?{query}" if query else "")

    def connect(self, **options: Any) -> pymysql.connections.Connection:
        """A new connection (autocommit, utf8mb4); ``options`` are those of ``pymysql.connect``."""
        settings: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "user": PERSON[0],
            "password": PERSON[1],
            "charset": "utf8mb4",
            "autocommit": True,
            "ssl_disabled": True,  # reading the system's certificates takes ten times as long as all the rest
        }
        return pymysql.connect(**(settings | options))

    def fresh(self) -> None:
        """Ends all other connections and drops every database that is not the server's own."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT ID FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() AND USER IN %s",
                ((self.user, _ANYWHERE, PERSON[0]),),
            )
            for (thread,) in cursor.fetchall():
                with suppress(pymysql.err.MySQLError):  # it may have ended by itself meanwhile
                    cursor.execute("KILL CONNECTION %s", (thread,))
            cursor.execute("SET SESSION foreign_key_checks = 0")
            cursor.execute("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
            for (name,) in cursor.fetchall():
                if name.lower() not in SYSTEM_DATABASES:
                    cursor.execute(f"DROP DATABASE `{name.replace('`', '``')}`")


@dataclass(frozen=True)
class TiDb(MariaDb):
    """A running TiDB, where tests ask for a MariaDB: they are told apart by ``is_tidb`` where the two differ by right."""

    scheme: ClassVar[str] = "tidb"
    is_tidb: ClassVar[bool] = True


@contextmanager
def running_mariadb(**options: object) -> Iterator[MariaDb]:
    """Runs a MariaDB of its own, stopped and removed at the end.

    ``options`` are server variables, for example ``local_infile="OFF"``.
    """
    program, installer = _mariadb_programs()
    folder = Path(tempfile.mkdtemp(prefix="headrace-mariadb-"))
    try:
        _install_database(installer, folder)
        process, port = _start_on_free_port(program, folder, options)
        try:
            with pymysql.connect(unix_socket=str(folder / "socket"), user="root") as root:
                server = create_user(MariaDb("127.0.0.1", port, *LOGIN, process.pid), root)
            yield replace(server, command=tuple(map(str, process.args)))
        finally:
            stop(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def saved_databases(server: MariaDb) -> Callable[[], None]:
    """Reads everything that is not the server's own. What it returns puts that back, and ends all other connections."""
    statements: list[tuple[str, list[tuple[object, ...]]]] = []
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE'")
        tables = [(database, table) for database, table in cursor.fetchall() if database.lower() not in SYSTEM_DATABASES]
        cursor.execute("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
        for (database,) in cursor.fetchall():
            if database.lower() not in SYSTEM_DATABASES:
                cursor.execute(f"SHOW CREATE DATABASE `{database}`")
                statements.append((cursor.fetchone()[1], []))
        for database, table in tables:
            cursor.execute(f"SHOW CREATE TABLE `{database}`.`{table}`")
            statements.append((f"USE `{database}`", []))
            statements.append((cursor.fetchone()[1], []))
            cursor.execute(f"SELECT * FROM `{database}`.`{table}`")
            marks = ", ".join(["%s"] * len(cursor.description))
            statements.append((f"INSERT INTO `{database}`.`{table}` VALUES ({marks})", list(cursor.fetchall())))

    def put_back() -> None:
        server.fresh()
        with server.connect() as connection, connection.cursor() as cursor:
            for statement, rows in statements:
                if rows:
                    cursor.executemany(statement, rows)
                elif not statement.startswith("INSERT"):
                    cursor.execute(statement)

    return put_back


@contextmanager
def started_again(server: MariaDb) -> Iterator[MariaDb]:
    """Starts a server that has ended on the port and the data it had."""
    process = subprocess.Popen(server.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=end_with_parent)  # noqa: PLW1509
    try:
        unix_socket = next(Path(part.partition("=")[2]) for part in server.command if part.startswith("--socket="))
        if not _answers(process, unix_socket):
            pytest.fail("MariaDB did not start again.", pytrace=False)
        yield replace(server, pid=process.pid)
    finally:
        stop(process)


def _mariadb_programs() -> tuple[str, str]:
    found = _find_mariadb()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", "mariadb-server"]):
            subprocess.run(command, env=environment, capture_output=True, check=False)
        found = _find_mariadb()
    if found is None:
        pytest.fail("These tests need a MariaDB server: install the package mariadb-server.", pytrace=False)
    return found


def _find_mariadb() -> tuple[str, str] | None:
    # Debian keeps the server in a folder that an ordinary user's PATH lacks.
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/usr/libexec"])
    server = shutil.which("mariadbd", path=path) or shutil.which("mysqld", path=path)
    installer = shutil.which("mariadb-install-db", path=path) or shutil.which("mysql_install_db", path=path)
    return (server, installer) if server and installer else None


def _system_user() -> list[str]:
    return ["--user=root"] if os.geteuid() == 0 else []


def _install_database(installer: str, folder: Path) -> None:
    command = [
        installer,
        "--no-defaults",
        f"--datadir={folder / 'data'}",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        *_system_user(),
    ]
    # Two installations at a time would take each other's temporary tables in one folder.
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"TMPDIR": str(folder)})
    if done.returncode != 0:
        pytest.fail(f"{installer} failed: {(done.stderr or done.stdout)[-2000:]}", pytrace=False)


def _start_on_free_port(server: str, folder: Path, options: dict[str, object]) -> tuple[subprocess.Popen[bytes], int]:
    log = folder / "log"
    for _ in range(_PORT_ATTEMPTS):  # another process may take the port between the look and the start
        port = free_port()
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in (_MARIADB_OPTIONS | options).items()]
        command = [
            server,
            "--no-defaults",
            f"--datadir={folder / 'data'}",
            f"--tmpdir={folder}",
            f"--socket={folder / 'socket'}",
            f"--pid-file={folder / 'pid'}",
            f"--port={port}",
            *_system_user(),
            *flags,
        ]
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, preexec_fn=end_with_parent)  # noqa: PLW1509 (one call)
        if _answers(process, folder / "socket"):
            return process, port
        stop(process)
    pytest.fail(f"MariaDB did not start: {log.read_text(errors='replace')[-2000:]}", pytrace=False)


def _answers(process: subprocess.Popen[bytes], unix_socket: Path) -> bool:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            pymysql.connect(unix_socket=str(unix_socket), user="root").close()
        except pymysql.err.MySQLError:
            time.sleep(0.05)
        else:
            return True
    return False


def create_user(server: MariaDb, root: pymysql.connections.Connection) -> MariaDb:
    """Gives the server the accounts that it is described with, and the one of the tests."""
    page = documented()
    grants = [
        "GRANT ALL PRIVILEGES ON *.* TO person@'%' WITH GRANT OPTION",
        *page.on_databases(f"{server.user}@'%'", DATABASES, LEDGERS),
        grant(page.everywhere, "*.*", f"{_ANYWHERE}@'%'"),
        grant(page.whole_databases, "*.*", f"{_ANYWHERE}@'%'"),
    ]
    with root.cursor() as cursor:
        for user, password in (PERSON, (server.user, server.password), (_ANYWHERE, server.password)):
            cursor.execute("CREATE USER %s@'%%' IDENTIFIED BY %s", (user, password))
        for statement in grants:
            cursor.execute(statement)
    return server


def free_port() -> int:
    """A loopback port that nobody listens on; another process may take it before the caller does."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end_with_parent() -> None:
    """Lets the kernel end the server when the test session is killed: it would hold its memory for ever otherwise."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a server, by force when it does not end by itself within seconds."""
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@dataclass(frozen=True)
class S3Server:
    """An S3 store in this process (moto)."""

    endpoint: str
    access_key: str = "headrace-test"
    secret_key: str = field(default="headrace/test+secret", repr=False)
    region: str = "us-east-1"

    def client(self) -> Any:
        """A boto3 client of the store."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
        )

    def make_bucket(self) -> str:
        """Creates an empty bucket and returns its name."""
        name = f"headrace-{uuid.uuid4().hex[:12]}"
        self.client().create_bucket(Bucket=name)
        return name

    def upload(self, folder: Path, bucket: str, prefix: str = "") -> None:
        """Puts every file of ``folder`` under ``prefix``."""
        client = self.client()
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            key = "/".join(part for part in (prefix.strip("/"), path.relative_to(folder).as_posix()) if part)
            client.put_object(Bucket=bucket, Key=key, Body=path.read_bytes())

    def uri(self, bucket: str, prefix: str = "", **params: object) -> str:
        """``s3://bucket/prefix?…`` with TiCDC's parameters for endpoint and keys; underscores in names become dashes."""
        query = {
            "endpoint": self.endpoint,
            "region": self.region,
            "access-key": self.access_key,
            "secret-access-key": self.secret_key,
            "force-path-style": "true",
            **{name.replace("_", "-"): str(value) for name, value in params.items()},
        }
        return f"s3://{bucket}/{quote(prefix.strip('/'))}?{urlencode(query)}"


@contextmanager
def running_s3() -> Iterator[S3Server]:
    """Runs an S3 store on a free port."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield S3Server(f"http://{host}:{port}")
    finally:
        server.stop()
