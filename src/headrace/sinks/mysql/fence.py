"""The fence: one row per writer slot that every commit proves itself against, and the end of a former run's connections.

A task of a failed job, or of a run that was taken over, goes on for seconds. It may write, but it cannot commit: right before
COMMIT each transaction locks its slot's row and compares epoch, attempt and connection. Whoever raises epoch or attempt
changes the rows, after killing the connections of the former one: a paused writer would hold its locks for ever.

Each connection also holds a named lock that carries its id. A recorded id is killed only while that lock is held, so an id that
the server has given to somebody else since is left alone. The connection that runs the pipeline's DDL has a slot of its own, and
the pipeline's lock: its id is recorded too, since TiDB's IS_USED_LOCK tells that a lock is held, but not by whom.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import pymysql

from headrace.errors import FencedError, TransientError
from headrace.model.outcome import Notice
from headrace.sinks.base import WriterContext
from headrace.sinks.mysql.connection import ErrorClass, MySqlSession, classify, error_code, error_text
from headrace.sinks.mysql.settings import LEDGER_DATABASE
from headrace.sinks.sql_ledger import SqlLedger

_NO_SUCH_THREAD = 1094
_LOCK_NAME_LIMIT = 64
_DDL_SLOT = -1


def pipeline_lock(ledger: SqlLedger, pipeline: str) -> str:
    """The named lock of a pipeline: its holder runs the pipeline's DDL. Long names are folded into the server's 64 characters.

    Two ledgers of one server may have pipelines of the same name. The usual ledger's locks have the name that they always had, so
    that a run of an older Headrace is taken over.
    """
    return _lock_name(f"headrace:{pipeline}" if ledger.namespace == LEDGER_DATABASE else f"headrace@{ledger.namespace}:{pipeline}")


def _slot_lock(pipeline: str, connection_id: int) -> str:
    return _lock_name(f"headrace-writer:{connection_id}:{pipeline}")


def _lock_name(name: str) -> str:
    # Names of locks are compared without case, names of pipelines with it.
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{name[: _LOCK_NAME_LIMIT - 13]}:{digest}"


@dataclass(frozen=True)
class Fence:
    """The statements on the table of slots; it holds no connection. See the module for what they are for."""

    ledger: SqlLedger

    @property
    def _slots(self) -> str:
        return self.ledger.table("fences")

    def create_table(self, session: MySqlSession) -> None:
        """Creates the table of slots unless it is there."""
        found = session.execute(
            "SELECT 1 FROM information_schema.tables WHERE table_schema = ? AND table_name = 'fences'", (self.ledger.namespace,)
        )
        if not found:
            session.execute(
                f"CREATE TABLE IF NOT EXISTS {self._slots} (pipeline {self.ledger.dialect.name_type} NOT NULL,"
                " slot BIGINT NOT NULL, epoch BIGINT NOT NULL, attempt BIGINT NOT NULL, connection_id BIGINT NOT NULL,"
                " PRIMARY KEY (pipeline, slot))"
            )

    def enter(self, session: MySqlSession, context: WriterContext) -> None:
        """Takes the slot for this connection, and commits. Raises FencedError when the run or the attempt is over."""
        session.execute("SELECT GET_LOCK(?, 0)", (_slot_lock(context.pipeline, session.connection_id),))
        with session.promptly():
            self._take_slot(session, context)

    def _take_slot(self, session: MySqlSession, context: WriterContext) -> None:
        current = self.ledger.verify(session, context.pipeline, context.epoch)
        if current != context.attempt:
            session.rollback()
            raise _attempt_over(context, current)
        key = (context.pipeline, context.slot)
        session.execute(f"DELETE FROM {self._slots} WHERE pipeline = ? AND slot = ?", key)
        session.execute(
            f"INSERT INTO {self._slots} (pipeline, slot, epoch, attempt, connection_id) VALUES (?, ?, ?, ?, ?)",
            (*key, context.epoch, context.attempt, session.connection_id),
        )
        session.commit()

    def prove(self, session: MySqlSession, context: WriterContext) -> None:
        """Locks the slot and compares it: the last statement before COMMIT.

        Raises FencedError when another run or attempt has begun, TransientError when another task of this attempt took the slot.
        """
        rows = session.execute(
            f"SELECT epoch, attempt, connection_id FROM {self._slots} WHERE pipeline = ? AND slot = ?"
            f"{self.ledger.dialect.for_update}",
            (context.pipeline, context.slot),
        )
        if not rows or rows[0][0] != context.epoch:
            raise FencedError(f"Another run of pipeline {context.pipeline!r} took over; this one must not write any more.")
        if rows[0][1] != context.attempt:
            raise _attempt_over(context, rows[0][1])
        if rows[0][2] != session.connection_id:
            raise TransientError(f"Another task took writer slot {context.slot} of pipeline {context.pipeline!r}.")

    def raise_to(self, session: MySqlSession, pipeline: str, epoch: int, attempt: int) -> None:
        """Moves every slot of the pipeline to this epoch and attempt, in the caller's transaction."""
        session.execute(
            f"UPDATE {self._slots} SET epoch = ?, attempt = ?, connection_id = 0 WHERE pipeline = ? AND slot <> {_DDL_SLOT}",
            (epoch, attempt, pipeline),
        )

    def recorded(self, session: MySqlSession, pipeline: str) -> list[int]:
        """The connections that took the pipeline's slots."""
        rows = session.find(
            [f"SELECT connection_id FROM {self._slots} WHERE pipeline = ? AND slot <> {_DDL_SLOT} AND connection_id <> 0"],
            (pipeline,),
        )
        return [int(str(row[0])) for row in rows]

    def enter_ddl(self, session: MySqlSession, pipeline: str, epoch: int) -> None:
        """Records the connection that holds the pipeline's lock. The session is one for DDL, in autocommit."""
        session.execute(
            f"REPLACE INTO {self._slots} (pipeline, slot, epoch, attempt, connection_id) VALUES (?, {_DDL_SLOT}, ?, 0, ?)",
            (pipeline, epoch, session.connection_id),
        )

    def ddl_holder(self, session: MySqlSession, pipeline: str) -> int | None:
        """The connection that holds the pipeline's lock; ``None`` for nobody, or, in TiDB, for one that is not recorded yet."""
        held = session.scalar("SELECT IS_USED_LOCK(?)", (pipeline_lock(self.ledger, pipeline),))
        if held is None or not session.is_tidb:
            return held if isinstance(held, int) else None
        found = session.scalar(f"SELECT connection_id FROM {self._slots} WHERE pipeline = ? AND slot = {_DDL_SLOT}", (pipeline,))
        return found if isinstance(found, int) else None

    def kill(self, session: MySqlSession, pipeline: str, connections: list[int], *, ddl: bool) -> list[Notice]:
        """Ends these connections as far as they still are writers of the pipeline, and with ``ddl`` the one that runs its DDL."""
        targets = {number for number in connections if _is_held(session, _slot_lock(pipeline, number))}
        holder = self.ddl_holder(session, pipeline) if ddl else None
        if holder is not None:
            targets.add(holder)
        notices = [_kill(session, number) for number in sorted(targets - {session.connection_id})]
        return [notice for notice in notices if notice is not None]


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


def _attempt_over(context: WriterContext, current: object) -> FencedError:
    return FencedError(
        f"Attempt {context.attempt} of pipeline {context.pipeline!r} is over (now {current}); its tasks must not write any more."
    )
