"""A writer's connection, which holds a slot of the fence and takes it again after a loss."""

from __future__ import annotations

from dataclasses import replace

import pymysql

from headrace.sinks.base import Commits, WriterContext
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.fence import Fence, Former
from headrace.sinks.mysql.server_errors import ErrorClass, classify
from headrace.sinks.mysql.settings import MySqlSettings
from headrace.sinks.sql_claim import Claim
from headrace.sinks.sql_dialect import MYSQL
from headrace.sinks.sql_ledger import SqlLedger


class WriterSlot:
    """The session of one writer, whose commits the fence checks and counts. Used by one thread."""

    def __init__(self, settings: MySqlSettings, claim: Claim, context: WriterContext, *, for_replay: bool = False) -> None:
        """``claim`` is the run's hold on the ledger; ``for_replay``: see :class:`MySqlSession`."""
        self._settings, self._claim, self._context = settings, claim, context
        self._for_replay = for_replay
        self._fence = Fence(SqlLedger(MYSQL, settings.ledger_database))
        self._session: MySqlSession | None = None
        self._former: Former | None = None
        # The slot's count when it was first taken, and its present count; whether a COMMIT was not acknowledged yet.
        self._begun_at: int | None = None
        self._count = 0
        self._is_in_doubt = False

    @property
    def context(self) -> WriterContext:
        return self._context

    @property
    def session(self) -> MySqlSession | None:
        """The session, unless it was lost or closed."""
        return self._session

    def connected(self) -> MySqlSession:
        """The session with its slot. Created again after a loss.

        Raises SinkUnreachableError, and as ``Fence.enter``.
        """
        if self._session is None:
            session = MySqlSession(self._settings, for_replay=self._for_replay)
            try:
                if self._former is not None:
                    # If the network failed, the server may not have noticed: the lost connection still locks the rows.
                    self._fence.kill(session, self._context.pipeline, list(self._former.connections), ddl=False)
                self._count = self._fence.enter(session, self._claim, self._context, self._former)
            except BaseException:
                if self._former is not None:  # it may have taken the slot in spite of the error
                    self._former = replace(self._former, connections=(*self._former.connections, session.connection_id))
                session.close()
                raise
            self._session, self._former = session, None
            self._begun_at = self._count if self._begun_at is None else self._begun_at
        return self._session

    def prove(self) -> None:
        """The last statements before a commit. Raises as ``Fence.prove``."""
        self._fence.prove(self.connected(), self._context)

    def proof(self) -> str:
        """The statement of :meth:`prove`, for ``run_together``. Only if it affects one row, the transaction may be committed."""
        session = self.connected()
        return session.text(*self._fence.proof(self._context, session.connection_id))

    def commit(self) -> None:
        """Commits what was proved. After an error it may be committed or not."""
        self._is_in_doubt = True
        self.connected().commit()
        self._is_in_doubt, self._count = False, self._count + 1

    def recover(self, error: BaseException) -> None:
        """Prepares the session for another try: rolls it back, or drops it."""
        if self._session is None:
            return
        try:
            if classify(error) is ErrorClass.LOST:
                self.leave()
            else:
                self._session.rollback()
        except (pymysql.err.MySQLError, OSError):
            self.leave()

    def leave(self) -> None:
        """Abandons the session. The next one ends what the server still has of it."""
        if self._session is not None:
            self._former = Former((self._session.connection_id,), self._count, self._is_in_doubt)
            self.close()

    def commits(self) -> tuple[Commits, ...]:
        """See ``UnitWriter.commits``."""
        return () if self._begun_at is None else (Commits(self._context.slot, self._begun_at, self._count),)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
