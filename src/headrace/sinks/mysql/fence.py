"""The fence: one row per writer slot, which every commit checks, and the termination of a previous run's connections.

A task of a failed job, or of a run that was taken over, continues for seconds. It may write, but it cannot commit: right before
COMMIT, each transaction locks its slot's row and compares epoch, attempt and connection. A run that raises epoch or attempt first
kills the former connections and then changes the rows; otherwise a paused writer would hold its locks forever.

The row also counts the transactions of its slot. The next step of the ledger compares the counts with those that the tasks
reported. A server that was promoted without the last transactions of the former one has lower counts.

Each connection also holds a named lock that contains its id. A recorded id is killed only while that lock is held, so that an id
which the server has since given to another client is left alone. The connection that runs the pipeline's DDL has a slot of its own,
and also the pipeline's lock. It is found by its recorded id as well, because the name of the pipeline's lock contains the ledger's
database as spelled in the sink's URI, and a server may accept two spellings for one database. A run of an older Headrace is found
only by the pipeline's lock; on TiDB, IS_USED_LOCK shows that it is held, but not by which connection.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import pymysql

from headrace.errors import FencedError, TargetWentBackError, TransientError
from headrace.model.outcome import Notice
from headrace.model.table import TableId
from headrace.sinks.base import Commits, WriterContext
from headrace.sinks.mysql import catalogue
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.server_errors import INTERRUPTED, ErrorClass, classify, error_code, error_text
from headrace.sinks.mysql.settings import LEDGER_DATABASE
from headrace.sinks.sql_claim import Claim
from headrace.sinks.sql_ledger import SqlLedger, attempt_over

_NO_SUCH_THREAD = 1094
_LOCK_NAME_LIMIT = 64
_DDL_SLOT = -1


def pipeline_lock(ledger: SqlLedger, pipeline: str) -> str:
    """The named lock of a pipeline, whose holder runs the pipeline's DDL. Long names are hashed to fit the server's 64 characters.

    Two ledgers of one server may have pipelines of the same name. For the default ledger, the locks keep their original names, so
    that a run of an older Headrace is taken over.
    """
    return _lock_name(f"headrace:{pipeline}" if ledger.namespace == LEDGER_DATABASE else f"headrace@{ledger.namespace}:{pipeline}")


def _slot_lock(pipeline: str, connection_id: int) -> str:
    return _lock_name(f"headrace-writer:{connection_id}:{pipeline}")


def _lock_name(name: str) -> str:
    # Lock names are compared without case, pipeline names with case.
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{name[: _LOCK_NAME_LIMIT - 13]}:{digest}"


@dataclass(frozen=True)
class Fence:
    """The statements on the table of slots. Holds no connection. The module's docstring explains the fence."""

    ledger: SqlLedger

    @property
    def _slots(self) -> str:
        return self.ledger.table("fences")

    def create_table(self, session: MySqlSession) -> None:
        """Creates the table of slots unless it exists."""
        found = session.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = ? AND table_name = 'fences'",
            (self.ledger.namespace,),
        )
        if not found:
            session.execute(
                f"CREATE TABLE IF NOT EXISTS {self._slots} (pipeline {self.ledger.dialect.name_type} NOT NULL,"
                " slot BIGINT NOT NULL, epoch BIGINT NOT NULL, attempt BIGINT NOT NULL, connection_id BIGINT NOT NULL,"
                f" commits BIGINT DEFAULT 0, PRIMARY KEY (pipeline, slot)){self.ledger.dialect.table_options}"
            )
        elif ("commits",) not in found:  # created by an older Headrace
            session.execute(f"ALTER TABLE {self._slots} ADD COLUMN commits BIGINT DEFAULT 0")

    def without_transactions(self, session: MySqlSession) -> dict[TableId, str]:
        """The ledger's tables, including the slots, whose engine has no transactions, with the engine."""
        names = {"fences", *self.ledger.names}
        found = catalogue.without_transactions(session, [self.ledger.namespace])
        return {table_id: engine for table_id, engine in found.items() if table_id.table in names}

    def enter(self, session: MySqlSession, claim: Claim, context: WriterContext, former: Former | None = None) -> int:
        """Takes the slot for this connection, and commits. Returns how many transactions the slot's writers have committed.

        ``former`` describes the writer's lost connection, which this one replaces. Raises FencedError if the run or the attempt is
        over; TargetWentBackError if the ledger is not as the run left it, or lacks what the former connection committed; and
        TransientError if another task has taken the slot from it.
        """
        session.execute("SELECT GET_LOCK(?, 0)", (_slot_lock(context.pipeline, session.connection_id),))
        with session.promptly():
            return self._take_slot(session, claim, context, former)

    def _take_slot(self, session: MySqlSession, claim: Claim, context: WriterContext, former: Former | None) -> int:
        self.ledger.verify(session, claim, may_follow=former is not None and former.is_in_doubt, attempt=context.attempt)
        key = (context.pipeline, context.slot)
        rows = session.execute(
            f"SELECT epoch, attempt, connection_id, commits FROM {self._slots} WHERE pipeline = ? AND slot = ?"
            f"{self.ledger.dialect.for_update}",
            key,
        )
        is_of_attempt = bool(rows) and rows[0][:2] == (context.epoch, context.attempt)
        commits = int(str(rows[0][3])) if is_of_attempt else 0
        if former is not None:
            former.require_kept(context, int(str(rows[0][2])) if is_of_attempt else 0, commits)
        session.execute(f"DELETE FROM {self._slots} WHERE pipeline = ? AND slot = ?", key)
        session.execute(
            f"INSERT INTO {self._slots} (pipeline, slot, epoch, attempt, connection_id, commits) VALUES (?, ?, ?, ?, ?, ?)",
            (*key, context.epoch, context.attempt, session.connection_id, commits),
        )
        session.commit()
        return commits

    def prove(self, session: MySqlSession, context: WriterContext) -> None:
        """Locks the slot, compares it, and counts the transaction, in one statement if all is well: the last one before COMMIT.

        Raises FencedError if another run or attempt has begun, and TransientError if another task of this attempt took the slot.
        """
        if session.affect(*self.proof(context, session.connection_id)):
            return
        key = (context.pipeline, context.slot)
        rows = session.execute(
            f"SELECT epoch, attempt, connection_id FROM {self._slots} WHERE pipeline = ? AND slot = ?"
            f"{self.ledger.dialect.for_update}",
            key,
        )
        if not rows or rows[0][0] != context.epoch:
            raise FencedError(f"Another run of pipeline {context.pipeline!r} took over; this one must not write any more.")
        if rows[0][1] != context.attempt:
            raise attempt_over(context.pipeline, context.attempt, int(str(rows[0][1])))
        if rows[0][2] != session.connection_id:
            raise TransientError(f"Another task took writer slot {context.slot} of pipeline {context.pipeline!r}.")
        raise pymysql.err.OperationalError(INTERRUPTED, "The count of a slot's transactions was interrupted")

    def proof(self, context: WriterContext, connection_id: int) -> tuple[str, tuple[object, ...]]:
        """The statement of :meth:`prove` and its parameters. It affects one row if the slot is this connection's."""
        return (
            f"UPDATE {self._slots} SET commits = commits + 1 WHERE pipeline = ? AND slot = ? AND epoch = ? AND attempt = ?"
            " AND connection_id = ?",
            (context.pipeline, context.slot, context.epoch, context.attempt, connection_id),
        )

    def require_commits(self, session: MySqlSession, pipeline: str, expected: Mapping[int, int]) -> None:
        """Raises TargetWentBackError if a slot lacks transactions that its writers have committed (slot -> count)."""
        if not expected:
            return
        rows = session.execute(f"SELECT slot, commits FROM {self._slots} WHERE pipeline = ?", (pipeline,))
        found = {int(str(slot)): int(str(commits)) for slot, commits in rows}
        for slot, count in expected.items():
            if found.get(slot, 0) < count:
                raise _lacks_commits(pipeline, slot, found.get(slot, 0), count)

    def raise_to(self, session: MySqlSession, pipeline: str, epoch: int, attempt: int) -> None:
        """Sets every slot of the pipeline to this epoch and attempt, in the caller's transaction. Their counts restart at 0."""
        session.execute(
            f"UPDATE {self._slots} SET epoch = ?, attempt = ?, connection_id = 0, commits = 0"
            f" WHERE pipeline = ? AND slot <> {_DDL_SLOT}",
            (epoch, attempt, pipeline),
        )

    def forget(self, session: MySqlSession, pipeline: str) -> None:
        """Removes the pipeline's slots, in the caller's transaction. No writer that has one can commit from then on."""
        session.execute(f"DELETE FROM {self._slots} WHERE pipeline = ?", (pipeline,))

    def recorded(self, session: MySqlSession, pipeline: str, *, ddl: bool) -> list[int]:
        """The connections that took the pipeline's slots; with ``ddl`` also the last one for its DDL."""
        others = "" if ddl else f" AND slot <> {_DDL_SLOT}"
        rows = session.find(
            [f"SELECT connection_id FROM {self._slots} WHERE pipeline = ? AND connection_id <> 0{others}"], (pipeline,)
        )
        return [int(str(row[0])) for row in rows]

    def take_ddl_lock(self, session: MySqlSession, pipeline: str, seconds: int) -> bool:
        """Takes the pipeline's lock, and waits for the end of the connection last recorded for its DDL.

        Returns false if that takes longer than ``seconds``.
        """
        if session.scalar("SELECT GET_LOCK(?, ?)", (pipeline_lock(self.ledger, pipeline), seconds)) != 1:
            return False
        former = self._ddl_connection(session, pipeline)
        if former is None or former == session.connection_id:
            return True
        lock = _slot_lock(pipeline, former)
        if session.scalar("SELECT GET_LOCK(?, ?)", (lock, seconds)) != 1:
            return False
        session.scalar("SELECT RELEASE_LOCK(?)", (lock,))
        return True

    def enter_ddl(self, session: MySqlSession, claim: Claim) -> int:
        """Records the connection that holds the pipeline's lock. Returns the number of schema changes counted in this epoch.

        The session is one for DDL, in autocommit.
        """
        session.execute("SELECT GET_LOCK(?, 0)", (_slot_lock(claim.pipeline, session.connection_id),))
        key = (claim.pipeline, _DDL_SLOT)
        rows = session.execute(f"SELECT epoch, commits FROM {self._slots} WHERE pipeline = ? AND slot = ?", key)
        commits = int(str(rows[0][1])) if rows and rows[0][0] == claim.epoch else 0
        session.execute(
            f"REPLACE INTO {self._slots} (pipeline, slot, epoch, attempt, connection_id, commits) VALUES (?, ?, ?, 0, ?, ?)",
            (*key, claim.epoch, session.connection_id, commits),
        )
        return commits

    def count_ddl(self, session: MySqlSession, claim: Claim, commits: int) -> Commits:
        """Counts a schema change that ran on this connection, so that a server without the change also lacks the count.

        ``commits`` is the count before. Raises as ``SqlLedger.verify``.
        """
        session.execute(
            f"UPDATE {self._slots} SET commits = ? WHERE pipeline = ? AND slot = ? AND epoch = ? AND connection_id = ?",
            (commits + 1, claim.pipeline, _DDL_SLOT, claim.epoch, session.connection_id),
        )
        return Commits(_DDL_SLOT, commits, commits + 1)

    def ddl_holder(self, session: MySqlSession, pipeline: str) -> int | None:
        """The other connection that runs the pipeline's DDL; ``None`` if there is none or, in TiDB, if it is not recorded yet."""
        held = session.scalar("SELECT IS_USED_LOCK(?)", (pipeline_lock(self.ledger, pipeline),))
        if isinstance(held, int) and not session.is_tidb and held != session.connection_id:
            return held
        found = self._ddl_connection(session, pipeline)
        if found is None or found == session.connection_id:
            return None
        is_there = (session.is_tidb and held is not None) or _is_held(session, _slot_lock(pipeline, found))
        return found if is_there else None

    def _ddl_connection(self, session: MySqlSession, pipeline: str) -> int | None:
        """The connection last recorded for the pipeline's DDL, whether or not it still exists."""
        found = session.scalar(f"SELECT connection_id FROM {self._slots} WHERE pipeline = ? AND slot = {_DDL_SLOT}", (pipeline,))
        return found if isinstance(found, int) else None

    def kill(self, session: MySqlSession, pipeline: str, connections: list[int], *, ddl: bool) -> list[Notice]:
        """Kills these connections if they are still writers of the pipeline; with ``ddl`` also the one that runs its DDL."""
        targets = {number for number in connections if _is_held(session, _slot_lock(pipeline, number))}
        holder = self.ddl_holder(session, pipeline) if ddl else None
        if holder is not None:
            targets.add(holder)
        notices = [_kill(session, number) for number in sorted(targets - {session.connection_id})]
        return [notice for notice in notices if notice is not None]


@dataclass(frozen=True)
class Former:
    """A writer's data about its lost connections: their ids, and the slot's last count of transactions.

    ``is_in_doubt``: a COMMIT was sent and not acknowledged.
    """

    connections: tuple[int, ...]
    commits: int
    is_in_doubt: bool

    def require_kept(self, context: WriterContext, connection_id: int, commits: int) -> None:
        """Compares with the slot's present values. Raises TargetWentBackError or TransientError, see :meth:`Fence.enter`."""
        if commits < self.commits:
            raise _lacks_commits(context.pipeline, context.slot, commits, self.commits)
        if connection_id not in self.connections or commits > self.commits + self.is_in_doubt:
            raise TransientError(f"Another task took writer slot {context.slot} of pipeline {context.pipeline!r}.")


def _lacks_commits(pipeline: str, slot: int, found: int, count: int) -> TargetWentBackError:
    what = "schema changes" if slot == _DDL_SLOT else f"transactions of writer {slot}"
    return TargetWentBackError(
        f"The target lacks {what} of pipeline {pipeline!r} that this run has committed ({found} of {count} are there): a failover "
        "lost transactions, or a backup was restored. The run goes on from what the ledger records now."
    )


def _is_held(session: MySqlSession, lock: str) -> bool:
    return session.scalar("SELECT IS_USED_LOCK(?)", (lock,)) is not None


def _kill(session: MySqlSession, connection_id: int) -> Notice | None:
    try:
        session.execute(f"KILL {connection_id}")
    except pymysql.err.MySQLError as error:
        if error_code(error) == _NO_SUCH_THREAD:
            return None
        if classify(error) is not ErrorClass.REFUSED:
            raise
        return Notice(
            f"The former run's connection {connection_id} could not be ended ({error_text(error)}); it cannot commit any more, "
            "but its locks may last until the server drops it."
        )
    return None
