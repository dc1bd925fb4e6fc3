"""The ledger in the target itself, so that progress can be committed with the data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import nullcontext
from dataclasses import replace
from typing import TypeVar

import pymysql
import structlog

from headrace.errors import DefinitionError, FencedError, TargetWentBackError, TransientError
from headrace.model.events import SchemaChange
from headrace.model.ledger import Decision, LedgerState, TableRequest, Words
from headrace.sinks.base import Commits, LedgerPart, LedgerUpdate, WriteReport
from headrace.sinks.mysql import catalogue, refusal
from headrace.sinks.mysql.connection import MySqlSession, repeat
from headrace.sinks.mysql.fence import Fence
from headrace.sinks.mysql.interruption import Interruption
from headrace.sinks.mysql.server_errors import ErrorClass, classify, error_code, error_text
from headrace.sinks.mysql.settings import MySqlSettings
from headrace.sinks.mysql.statements import changes_rows_only, execute, server_refused
from headrace.sinks.mysql.types import qualified
from headrace.sinks.sql_claim import Claim
from headrace.sinks.sql_dialect import MYSQL
from headrace.sinks.sql_ledger import SqlLedger

_T = TypeVar("_T")
_DUPLICATE_COLUMN = 1060
_NOT_THERE = frozenset({1049, 1054, 1146})  # no such database, column or table
_log = structlog.get_logger(__name__)


class MySqlLedger:
    """``Ledger`` on the tables of ``sql_ledger``, with the fence. Connects at its first call, and again after a loss."""

    def __init__(self, settings: MySqlSettings) -> None:
        self._settings = settings
        self.tables = SqlLedger(MYSQL, settings.ledger_database)
        self.fence = Fence(self.tables)
        self.interruption = Interruption()
        self._session: MySqlSession | None = None
        self._claim: Claim | None = None
        # The counts that the slots must have at the next step: see ``Commits``.
        self._commits: dict[int, int] = {}

    @property
    def claim(self) -> Claim | None:
        """This run's hold on the record; ``None`` before :meth:`acquire`."""
        return self._claim

    def own_claim(self) -> Claim:
        """The claim of a run that writes. Raises FencedError before :meth:`acquire`."""
        if self._claim is None:
            raise FencedError("The ledger was not acquired, so nothing may be written to it.")
        return self._claim

    def wrote(self, report: WriteReport) -> None:
        """Records a round: a step that was committed with its rows, and the counts that the next step must find.

        Raises TargetWentBackError if a later part of the round did not find what an earlier one had committed.
        """
        if report.committed and self._claim is not None:
            self._claim, self._commits = self._claim.following, {}
        else:
            self.expect(report.commits)

    def expect(self, commits: Iterable[Commits]) -> None:
        """Makes the next step fail unless the target has these transactions. Raises as :meth:`wrote`."""
        for unit in commits:
            if unit.before < self._commits.get(unit.slot, 0):
                raise TargetWentBackError(
                    f"The target lost transactions of writer {unit.slot} while this run went on: a failover, or a restored backup. "
                    "The run goes on from what the ledger records now."
                )
            self._commits[unit.slot] = unit.after

    def peek(self, pipeline: str) -> LedgerState | None:
        """See ``Ledger.peek``."""
        return self._in_transaction(lambda s: self.tables.load(s, pipeline))

    def pipelines(self) -> list[str]:
        """See ``Ledger.pipelines``."""
        return self._in_transaction(lambda s: self.tables.pipelines(s) if self.tables.exists(s) else [])

    def acquire(
        self, pipeline: str, source_identity: str, fingerprint: str, start: int, parts: Collection[LedgerPart] = (), above: int = 0
    ) -> LedgerState:
        """See ``Ledger.acquire``. Ends the previous run's connections before their locks can block this run, and again later."""

        needed = {*parts, *((LedgerPart.REPLAYED,) if self._settings.apply.may_replay else ())}

        def create(session: MySqlSession) -> None:
            self.tables.verify_place(session, pipeline, source_identity)
            self._create_tables(session, needed)
            self._require_transactions(session)

        last = max(above, 0 if self._claim is None else self._claim.epoch)

        def take(session: MySqlSession) -> tuple[LedgerState, Claim]:
            self.tables.verify_source(session, pipeline, source_identity)
            self._end_writers(session, pipeline, self.fence.recorded(session, pipeline, ddl=True), ddl=True)
            try:
                state, claim = self.tables.acquire(session, pipeline, source_identity, fingerprint, start, above=last)
            except pymysql.err.IntegrityError:
                raise TransientError(f"Another run of pipeline {pipeline!r} began at the same moment.") from None
            recorded = self.fence.recorded(session, pipeline, ddl=True)
            self.fence.raise_to(session, pipeline, state.epoch, state.attempt)
            session.commit()
            # A writer or DDL connection in between may have seen the old epoch; from now on none can.
            self._end_writers(session, pipeline, recorded, ddl=True)
            return state, claim

        self._in_transaction(create)
        state, self._claim = self._in_transaction(take, locks=True)
        self._commits = {}
        return state

    def _create_tables(self, session: MySqlSession, parts: Collection[LedgerPart] = ()) -> None:
        """Creates missing tables and columns of the ledger. Another process may add the same columns at the same time."""
        while True:
            try:
                self.tables.create_tables(session, parts)
                self.fence.create_table(session)
            except pymysql.err.MySQLError as error:
                if error_code(error) != _DUPLICATE_COLUMN:
                    raise
            else:
                return

    def _require_transactions(self, session: MySqlSession) -> None:
        """Raises DefinitionError if a table has no transactions, since an interrupted step would then be written partly."""
        for table_id, engine in self.fence.without_transactions(session).items():
            raise DefinitionError(
                f"The ledger's table {table_id} has the engine {engine}, which has no transactions: a step that fails midway would "
                "leave a part of its changes.",
                f"Run ALTER TABLE {qualified(table_id)} ENGINE=InnoDB; in the target.",
            )

    def decide(self, pipeline: str, decision: Decision) -> None:
        """See ``Ledger.decide``."""

        def leave(session: MySqlSession) -> None:
            self._create_tables(session)
            self.tables.decide(session, pipeline, decision)

        self._in_transaction(leave)

    def request(self, pipeline: str, request: TableRequest) -> None:
        """See ``Ledger.request``."""

        def leave(session: MySqlSession) -> None:
            self._create_tables(session)
            self.tables.request(session, pipeline, request)

        self._in_transaction(leave)

    def words(self, pipeline: str) -> Words:
        """See ``Ledger.words``."""
        return self._in_transaction(lambda session: self.tables.words(session, pipeline))

    def reset(self, pipeline: str) -> bool:
        """See ``Ledger.reset``. Ends the connections of a current run, so that nothing waits for its locks."""

        found = False

        def forget(session: MySqlSession) -> bool:
            nonlocal found  # the acknowledgement of a COMMIT may be lost: the retry finds nothing
            if not self.tables.exists(session):
                return found
            self._create_tables(session)  # the ledger of an older Headrace has fewer tables and columns
            recorded = self.fence.recorded(session, pipeline, ddl=True)
            self._end_writers(session, pipeline, recorded, ddl=True)
            found |= self.tables.reset(session, pipeline)
            recorded = [*recorded, *self.fence.recorded(session, pipeline, ddl=True)]
            self.fence.forget(session, pipeline)
            session.commit()
            self._end_writers(session, pipeline, recorded, ddl=True)
            return found

        return self._in_transaction(forget, locks=True)

    def next_attempt(self) -> int:
        """See ``Ledger.next_attempt``. Also ends writers that took a slot before the row was locked."""
        claim = self.own_claim()

        def raise_attempt(session: MySqlSession, repeated: bool) -> int:
            self._end_writers(session, claim.pipeline, self.fence.recorded(session, claim.pipeline, ddl=False), ddl=False)
            attempt = self.tables.raise_attempt(session, claim, repeated=repeated)
            recorded = self.fence.recorded(session, claim.pipeline, ddl=False)
            self.fence.raise_to(session, claim.pipeline, claim.epoch, attempt)
            session.commit()
            self._end_writers(session, claim.pipeline, recorded, ddl=False)
            return attempt

        return self._step(raise_attempt)

    def update(self, update: LedgerUpdate) -> None:
        """See ``Ledger.update``. A connection lost at COMMIT is harmless: the step's number shows whether it was written."""
        claim = self.own_claim()
        self._step(lambda session, repeated: self._write(session, claim, update, repeated=repeated))

    def takes_in(self, statement: str) -> bool:
        """See ``EditingLedger.takes_in``. False if a table, which a trigger may write to, has no transactions."""
        if not changes_rows_only(statement):
            return False
        found = self._in_transaction(lambda s: catalogue.without_transactions(s, catalogue.databases(s)))
        return not found

    def update_with(self, update: LedgerUpdate, change: SchemaChange, statement: str) -> None:
        """See ``EditingLedger.update_with``. Locks the pipeline's row last, so that no other run waits for the statement."""
        claim = self.own_claim()

        def write(session: MySqlSession, repeated: bool) -> None:
            if repeated and self.tables.verify(session, claim, may_follow=True).claim != claim:
                return
            try:
                execute(session, change, statement)
            except pymysql.err.MySQLError as error:
                if classify(error) is not ErrorClass.REFUSED:
                    raise
                raise server_refused(replace(change, statement=statement), error, session) from None
            self._write(session, claim, update, repeated=repeated)

        self._step(write)

    def _write(self, session: MySqlSession, claim: Claim, update: LedgerUpdate, *, repeated: bool) -> None:
        if not self.tables.write_update(session, claim, update, repeated=repeated):
            return
        self.fence.require_commits(session, claim.pipeline, self._commits)
        if update.attempt is not None:
            self.fence.raise_to(session, claim.pipeline, claim.epoch, update.attempt)

    def _step(self, action: Callable[[MySqlSession, bool], _T]) -> _T:
        """One step of the run. ``action`` gets whether it was sent before."""
        tries = 0

        def attempt(session: MySqlSession) -> _T:
            nonlocal tries
            tries += 1
            return action(session, tries > 1)

        claim = self.own_claim()
        result = self._in_transaction(attempt, locks=True)
        self._claim, self._commits = claim.following, {}
        return result

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _end_writers(self, session: MySqlSession, pipeline: str, connections: list[int], *, ddl: bool) -> None:
        for notice in self.fence.kill(session, pipeline, connections, ddl=ddl):
            _log.warning(notice.sentence(), pipeline=pipeline)

    def _in_transaction(self, action: Callable[[MySqlSession], _T], *, locks: bool = False) -> _T:
        """``locks``: the action locks the pipeline's row, which the next run must lock, too."""

        def attempt() -> _T:
            if self._session is None:
                self._session = MySqlSession(self._settings, interruption=self.interruption)
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
            return repeat(attempt, "The ledger", self._recover, self.interruption)
        except pymysql.err.MySQLError as error:
            if self._claim is not None and error_code(error) in _NOT_THERE:
                raise TargetWentBackError(
                    f"The target lacks a part of the ledger that this run had written to: {error_text(error)}: a failover lost "
                    "transactions, or a backup was restored. The run goes on from what the ledger records now."
                ) from None
            raise refusal.of_ledger(error, self._session, self._settings.ledger_database) from None

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
