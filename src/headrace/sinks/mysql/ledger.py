"""The ledger in the target itself, so that progress can go with the data in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TypeVar

import pymysql
import structlog

from headrace.errors import FencedError
from headrace.model.progress import Decision, LedgerState, TableRequest
from headrace.sinks.base import LedgerUpdate
from headrace.sinks.mysql import refusal
from headrace.sinks.mysql.connection import ErrorClass, MySqlSession, classify, repeat
from headrace.sinks.mysql.fence import Fence
from headrace.sinks.mysql.settings import MySqlSettings
from headrace.sinks.sql_ledger import MYSQL, SqlLedger

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)


class MySqlLedger:
    """``Ledger`` over the tables of ``sql_ledger``, plus the fence. It connects at its first call, and again after a loss."""

    def __init__(self, settings: MySqlSettings) -> None:
        self._settings = settings
        self.tables = SqlLedger(MYSQL, settings.ledger_database)
        self.fence = Fence(self.tables)
        self._session: MySqlSession | None = None
        self._pipeline = ""
        self._epoch = 0

    @property
    def run(self) -> tuple[str, int]:
        """The pipeline and epoch of this run; an empty name before :meth:`acquire`."""
        return self._pipeline, self._epoch

    def peek(self, pipeline: str) -> LedgerState | None:
        """See ``Ledger.peek``."""
        return self._in_transaction(lambda s: self.tables.load(s, pipeline) if self.tables.exists(s) else None)

    def pipelines(self) -> list[str]:
        """See ``Ledger.pipelines``."""
        return self._in_transaction(lambda s: self.tables.pipelines(s) if self.tables.exists(s) else [])

    def acquire(self, pipeline: str, source_identity: str, fingerprint: str, start: int) -> LedgerState:
        """See ``Ledger.acquire``. The former run's connections are ended before its locks can hold this up, and again after."""

        def create(session: MySqlSession) -> None:
            self.tables.verify_place(session, pipeline, source_identity)
            self.tables.create_tables(session)
            self.fence.create_table(session)

        def take(session: MySqlSession) -> LedgerState:
            self.tables.verify_source(session, pipeline, source_identity)
            self._end_writers(session, pipeline, self.fence.recorded(session, pipeline), ddl=True)
            state = self.tables.acquire(session, pipeline, source_identity, fingerprint, start)
            recorded = self.fence.recorded(session, pipeline)
            self.fence.raise_to(session, pipeline, state.epoch, state.attempt)
            session.commit()
            # A writer or a DDL that came in between saw the old epoch; from now on none can.
            self._end_writers(session, pipeline, recorded, ddl=True)
            return state

        self._in_transaction(create)
        state = self._in_transaction(take, locks=True)
        self._pipeline, self._epoch = pipeline, state.epoch
        return state

    def decide(self, pipeline: str, decision: Decision) -> None:
        """See ``Ledger.decide``."""

        def leave(session: MySqlSession) -> None:
            self.tables.create_tables(session)
            self.tables.decide(session, pipeline, decision)

        self._in_transaction(leave)

    def decisions(self, pipeline: str) -> dict[str, Decision]:
        """See ``Ledger.decisions``."""
        return self._in_transaction(lambda session: self.tables.decisions(session, pipeline))

    def request(self, pipeline: str, request: TableRequest) -> None:
        """See ``Ledger.request``."""

        def leave(session: MySqlSession) -> None:
            self.tables.create_tables(session)
            self.tables.request(session, pipeline, request)

        self._in_transaction(leave)

    def requests(self, pipeline: str) -> dict[str, TableRequest]:
        """See ``Ledger.requests``."""
        return self._in_transaction(lambda session: self.tables.requests(session, pipeline))

    def next_attempt(self) -> int:
        """See ``Ledger.next_attempt``."""
        pipeline, epoch = self._own_run()

        def raise_attempt(session: MySqlSession) -> int:
            self._end_writers(session, pipeline, self.fence.recorded(session, pipeline), ddl=False)
            attempt = self.tables.raise_attempt(session, pipeline, epoch)
            self.fence.raise_to(session, pipeline, epoch, attempt)
            return attempt

        return self._in_transaction(raise_attempt, locks=True)

    def update(self, update: LedgerUpdate) -> None:
        """See ``Ledger.update``. An update is repeatable, so a connection lost at COMMIT does no harm."""
        pipeline, epoch = self._own_run()

        def write(session: MySqlSession) -> None:
            self.tables.write_update(session, pipeline, epoch, update)
            if update.attempt is not None:
                self.fence.raise_to(session, pipeline, epoch, update.attempt)

        self._in_transaction(write, locks=True)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _own_run(self) -> tuple[str, int]:
        if not self._pipeline:
            raise FencedError("The ledger was not acquired, so nothing may be written to it.")
        return self._pipeline, self._epoch

    def _end_writers(self, session: MySqlSession, pipeline: str, connections: list[int], *, ddl: bool) -> None:
        for notice in self.fence.kill(session, pipeline, connections, ddl=ddl):
            _log.warning(notice.sentence(), pipeline=pipeline)

    def _in_transaction(self, action: Callable[[MySqlSession], _T], *, locks: bool = False) -> _T:
        """``locks``: the action locks the pipeline's row, which the next run has to lock too."""

        def attempt() -> _T:
            if self._session is None:
                self._session = MySqlSession(self._settings)
            session = self._session
            try:
                with session.promptly() if locks else nullcontext():
                    result = action(session)
                    session.commit()
            except BaseException as error:
                self._recover(error)
                raise
            return result

        try:
            return repeat(attempt, "The ledger", self._recover)
        except pymysql.err.MySQLError as error:
            raise refusal.of_ledger(error) from None

    def _recover(self, error: BaseException) -> None:
        if self._session is None:
            return
        try:
            if isinstance(error, (pymysql.err.MySQLError, OSError)) and classify(error) is ErrorClass.LOST:
                self.close()
            else:
                self._session.rollback()
        except (pymysql.err.MySQLError, OSError):
            self.close()
