"""Two MariaDB servers with asynchronous replication, and a failover that loses the last transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pymysql

from servers import PERSON, MariaDb, running_mariadb
from severing import Proxy, severable

_SECONDS = 20


@dataclass
class Pair:
    """A primary and its replica. ``address`` is described as the primary; after :meth:`fail_over` it leads to the replica."""

    primary: MariaDb
    replica: MariaDb
    proxy: Proxy

    @property
    def address(self) -> MariaDb:
        return self.proxy.server

    def begin(self) -> None:
        """Both are empty; the replica follows, and the primary is the one that answers."""
        _query(self.replica, "STOP SLAVE", "RESET SLAVE ALL")
        self.primary.fresh()
        self.replica.fresh()
        self.proxy.lead_to(self.primary)
        ((file, position, *_),) = _query(self.primary, "SHOW MASTER STATUS")
        user, password = PERSON
        _query(
            self.replica,
            f"CHANGE MASTER TO MASTER_HOST = '{self.primary.host}', MASTER_PORT = {self.primary.port}, MASTER_USER = '{user}',"
            f" MASTER_PASSWORD = '{pymysql.converters.escape_string(password)}', MASTER_SSL_VERIFY_SERVER_CERT = 0,"
            f" MASTER_LOG_FILE = '{file}', MASTER_LOG_POS = {position}",
            "START SLAVE",
        )

    def cut_off(self) -> None:
        """The replica takes what the primary has committed by now, and nothing that comes after."""
        ((file, position, *_),) = _query(self.primary, "SHOW MASTER STATUS")
        ((waited,),) = _query(self.replica, f"SELECT MASTER_POS_WAIT('{file}', {position}, {_SECONDS})")
        assert int(str(-1 if waited is None else waited)) >= 0, _query(self.replica, "SHOW SLAVE STATUS")
        _query(self.replica, "STOP SLAVE")

    def fail_over(self) -> None:
        """All connections break off, and later ones reach the replica as it is."""
        self.proxy.lead_to(self.replica)

    def switch_over(self) -> None:
        """Later connections reach the replica; the primary goes on, and those that are there stay with it."""
        self.proxy.lead_new_ones_to(self.replica)


def _query(server: MariaDb, *statements: str) -> list[tuple[object, ...]]:
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


@contextmanager
def running_pair() -> Iterator[Pair]:
    """Runs both, stopped and removed at the end."""
    logged = {"log_bin": "binlog", "binlog_format": "ROW"}
    with (
        running_mariadb(server_id=1, **logged) as primary,
        running_mariadb(server_id=2, **logged) as replica,
        severable(primary) as proxy,
    ):
        yield Pair(primary, replica, proxy)
        with suppress(pymysql.err.MySQLError):
            _query(replica, "STOP SLAVE")
