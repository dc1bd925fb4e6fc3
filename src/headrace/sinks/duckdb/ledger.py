"""The ledger in the DuckDB file; part of the cut's transaction while one is open."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from headrace.errors import FencedError, TransientError
from headrace.model.ledger import Decision, LedgerState, TableRequest, Words
from headrace.sinks.base import LedgerPart, LedgerUpdate
from headrace.sinks.duckdb.database import Database, FileMark, Session
from headrace.sinks.sql_claim import Claim
from headrace.sinks.sql_dialect import DUCKDB
from headrace.sinks.sql_ledger import SqlLedger

LEDGER_SCHEMA = "headrace"
"""The ledger's schema, unless the URI names another one."""


@dataclass
class DuckDbLedger:
    """One pipeline's record after :meth:`acquire`; before that it can only be read. ``schema`` is its schema."""

    database: Database
    schema: str = LEDGER_SCHEMA
    _claim: Claim | None = None
    _in_cut: tuple[Session, Claim] | None = field(default=None, repr=False)
    """The open cut's session, and the run's claim after its commit."""

    _words: tuple[FileMark | None, Words] = field(default=(None, Words()), repr=False)
    """The decisions and requests found when the file had this mark."""

    @property
    def tables(self) -> SqlLedger:
        """The ledger's statements."""
        return SqlLedger(DUCKDB, self.schema)

    def missing(self) -> str:
        """See ``PlacedLedger.missing``."""
        return "" if self.database.path.exists() else f"the DuckDB file {self.database.path}"

    def peek(self, pipeline: str) -> LedgerState | None:
        """The current record; ``None`` if there is none. Raises TransientError while another process writes."""
        with self.database.reading() as session:
            return self.tables.load(session, pipeline) if session is not None else None

    def pipelines(self) -> list[str]:
        """The names of the pipelines recorded here."""
        with self.database.reading() as session:
            if session is None or not self.tables.exists(session):
                return []
            return self.tables.pipelines(session)

    def acquire(
        self, pipeline: str, source_identity: str, fingerprint: str, start: int, parts: Collection[LedgerPart] = (), above: int = 0
    ) -> LedgerState:
        """Takes the next epoch. A previous run that is still working is fenced at its next update."""
        with self.database.transaction() as session:
            self.tables.verify_place(session, pipeline, source_identity)
            self.tables.create_tables(session, parts)
            above = max(above, 0 if self._claim is None else self._claim.epoch)
            state, claim = self.tables.acquire(session, pipeline, source_identity, fingerprint, start, above=above)
        self._claim, self._words = claim, (None, Words(state.decisions, state.requests))
        return state

    def decide(self, pipeline: str, decision: Decision) -> None:
        """Stores a decision. Raises TransientError while another process writes."""
        with self.database.transaction() as session:
            self.tables.create_tables(session)
            self.tables.decide(session, pipeline, decision)

    def request(self, pipeline: str, request: TableRequest) -> None:
        """Stores a request about a table. Raises TransientError while another process writes."""
        with self.database.transaction() as session:
            self.tables.create_tables(session)
            self.tables.request(session, pipeline, request)

    def words(self, pipeline: str) -> Words | None:
        """See ``Ledger.words``. Opens the file only if it may have changed since the last look.

        ``None`` while another program has it open, so that an idle run does not need the file.
        """
        mark = self.database.mark()
        if mark is None or mark != self._words[0]:
            try:
                with self.database.reading(patience=0) as session:
                    self._words = mark, self.tables.words(session, pipeline) if session is not None else Words()
            except TransientError:
                return None
        return self._words[1]

    def reset(self, pipeline: str) -> bool:
        """See ``Ledger.reset``. Raises TransientError while another process writes."""
        with self.database.reading() as session:
            if session is None or not self.tables.exists(session):
                return False
        with self.database.transaction() as session:
            self.tables.create_tables(session)
            return self.tables.reset(session, pipeline)

    def next_attempt(self) -> int:
        """Increments the attempt. Files from tasks of the former attempt are never loaded, so no other fence is needed."""
        with self.database.transaction() as session:
            claim = self._held_by(session)
            attempt = self.tables.raise_attempt(session, claim)
        self._took(session, claim)
        return attempt

    def update(self, update: LedgerUpdate) -> None:
        """Writes one step: as part of the open cut, which an update with a checkpoint commits; otherwise in its own transaction."""
        with self.database.transaction() as session:
            claim = self._held_by(session)
            self.tables.write_update(session, claim, update)
        self._took(session, claim)
        if self.database.in_cut and update.checkpoint is not None:
            self.database.commit_cut()
            self._claim = claim.following

    def close(self) -> None:
        """Rolls back an open cut."""
        self.database.abandon_cut()

    def _held_by(self, session: Session) -> Claim:
        """The run's claim as seen by the session: an open cut has steps that count only with its commit."""
        if self._claim is None:
            raise FencedError("This run has not taken the pipeline's ledger yet.")
        if self._in_cut is not None and self._in_cut[0] is session:
            return self._in_cut[1]
        return self._claim

    def _took(self, session: Session, claim: Claim) -> None:
        if self.database.in_cut:
            self._in_cut = session, claim.following
        else:
            self._claim = claim.following
