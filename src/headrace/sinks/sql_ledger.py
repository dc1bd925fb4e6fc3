"""The ledger as SQL tables: its contents, and the statements that read and write it, shared by every SQL target.

The statements run on a :class:`SqlSession` inside the caller's transaction; this module never commits. Names of tables are compared
with case, as TiDB stores them.

Every step is a compare-and-set: a run writes only on top of its own last step (:class:`Claim`). In this way a run notices a target
that a failover or a restored backup took back to an older state, and another run that got the same epoch there.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from headrace.errors import DefinitionError, FencedError, TargetWentBackError
from headrace.model.ledger import (
    CutRecord,
    Decision,
    JournalEntry,
    JournalState,
    LedgerState,
    RequestKind,
    TableProgress,
    TableRequest,
    Verdict,
    Words,
)
from headrace.model.place import place_of_text, place_text
from headrace.model.table import TableId
from headrace.sinks.base import KEPT_CUTS, LedgerPart, LedgerUpdate
from headrace.sinks.record_owner import require_owner
from headrace.sinks.sql_claim import Claim, Held
from headrace.sinks.sql_dialect import LedgerDialect, SqlSession, integer
from headrace.sinks.sql_replayed import ReplayedRows
from headrace.sinks.sql_rows import put_rows
from headrace.sinks.sql_shapes import ShapeRows
from headrace.sinks.sql_tables import TableRows
from headrace.sinks.sql_whole import whole

_FORGOTTEN_AT_ONCE = 500
_NOBODYS = ""
"""The source of a record that was reset."""
_ROW_FIGURES = ("netted_rows", "refused_rows", "left_rows", "passed_rows")
"""Columns of the table ``cuts`` that a later version of Headrace added, in the order of ``CutRecord``'s last fields."""
_CLAIMS = {"run_token": "VARCHAR(64) DEFAULT ''", "step": "BIGINT DEFAULT 0"}
"""Columns of the table ``pipelines`` that a later version of Headrace added: the run that wrote the last step, and its number."""
PART_LENGTH = 1 << 17
"""How many characters of a position one statement writes: up to half a MiB. Servers accept packets of at least 1 MiB."""


@dataclass(frozen=True)
class SqlLedger:
    """The ledger's statements for one dialect and one namespace (a database of MySQL, a schema of DuckDB).

    It holds no connection, so it is picklable and is sent along with a writer.
    """

    dialect: LedgerDialect
    namespace: str = "headrace"

    def table(self, name: str) -> str:
        """The quoted, qualified name of one of the ledger's tables."""
        return f"{self.dialect.quoted(self.namespace)}.{self.dialect.quoted(name)}"

    @property
    def rows(self) -> TableRows:
        """The statements for the rows of tables."""
        return TableRows(self.dialect, self.table)

    @property
    def shapes(self) -> ShapeRows:
        """The statements for the shapes of tables, which not every ledger keeps."""
        return ShapeRows(self.dialect, self.table)

    @property
    def replayed(self) -> ReplayedRows:
        """The statements for replayed transactions, which not every ledger keeps."""
        return ReplayedRows(self.dialect, self.table)

    @property
    def names(self) -> frozenset[str]:
        """The names of the ledger's tables."""
        return frozenset(self._layout())

    def exists(self, session: SqlSession) -> bool:
        """Whether there is a ledger here."""
        return "cuts" in whole(self._shape(session), self.namespace)

    def verify_place(self, session: SqlSession, pipeline: str, source_identity: str) -> None:
        """Raises DefinitionError if the pipeline has no record here but has one in another namespace of the target.

        Otherwise a change of the setting alone would make the pipeline start over, on tables that it has already filled.
        """
        if self.exists(session) and (self._owner(session, pipeline) or ("", 0))[0]:
            return
        found = session.execute("SELECT table_schema FROM information_schema.tables WHERE table_name = 'ddl_journal'")
        for namespace in sorted({str(name) for (name,) in found} - {self.namespace}):
            other = replace(self, namespace=namespace)
            if {"pipelines", "tables", "cuts"} <= other._shape(session).keys() and session.execute(
                f"SELECT 1 FROM {other.table('pipelines')} WHERE pipeline = ? AND source_identity = ?", (pipeline, source_identity)
            ):
                raise DefinitionError(
                    f"Pipeline {pipeline!r} of this source has its ledger in {namespace}, not in {self.namespace}: with an empty "
                    "ledger it would begin anew.",
                    f"Set {self.dialect.setting}={namespace}, or move the ledger's tables to {self.namespace} first "
                    '(docs/operations.md, "Move the ledger"). If this is another pipeline, give it a --name of its own.',
                )

    def create_tables(self, session: SqlSession, parts: Collection[LedgerPart] = ()) -> None:
        """Creates the namespace and its tables unless they exist, so that a login without CREATE can use prepared ones.

        The tables of :class:`LedgerPart` are created if they are in ``parts``.
        """
        present = whole(self._shape(session), self.namespace)
        if "cuts" in present:
            self._add_columns(session, "cuts", present["cuts"], dict.fromkeys(_ROW_FIGURES, "BIGINT DEFAULT 0"))
        if "tables" in present:
            self._add_columns(session, "tables", present["tables"], self.rows.added_columns)
        if "pipelines" in present:
            self._add_columns(session, "pipelines", present["pipelines"], _CLAIMS)
        unasked = frozenset(LedgerPart).difference(parts)
        missing = {name: layout for name, layout in self._layout().items() if name not in {*present, *unasked}}
        if not missing:
            return
        namespace = self.dialect.quoted(self.namespace)
        if not session.execute(
            f"SELECT 1 FROM information_schema.schemata WHERE {self._is_here('schema_name')}", (self.namespace,)
        ):
            session.execute(f"CREATE SCHEMA IF NOT EXISTS {namespace}{self.dialect.namespace_options}")
        for name, (columns, key) in missing.items():
            constraint = f", PRIMARY KEY ({key})" if self.dialect.primary_keys else ""
            session.execute(f"CREATE TABLE IF NOT EXISTS {self.table(name)} ({columns}{constraint}){self.dialect.table_options}")

    def _add_columns(self, session: SqlSession, table: str, present: Collection[str], wanted: Mapping[str, str]) -> None:
        """Adds the columns that a ledger created by an older Headrace lacks."""
        for name, definition in wanted.items():
            if name not in present:
                session.execute(f"ALTER TABLE {self.table(table)} ADD COLUMN {name} {definition}")

    def _shape(self, session: SqlSession) -> dict[str, set[str]]:
        """The columns of each ledger table that exists. A table created by an older Headrace has fewer."""
        found: dict[str, set[str]] = defaultdict(set)
        for table, column in session.execute(
            f"SELECT table_name, column_name FROM information_schema.columns WHERE {self._is_here('table_schema')}",
            (self.namespace,),
        ):
            found[str(table)].add(str(column))
        return dict(found)

    def _is_here(self, column: str) -> str:
        """The condition that a name in the catalogue equals the namespace."""
        return f"LOWER({column}) = LOWER(?)" if self.dialect.folds_case else f"{column} = ?"

    def pipelines(self, session: SqlSession) -> list[str]:
        """The names of the pipelines recorded here, sorted."""
        select = f"SELECT pipeline FROM {self.table('pipelines')} WHERE source_identity <> ? ORDER BY pipeline"
        return [str(name) for (name,) in session.execute(select, (_NOBODYS,))]

    def written_by_others(self, session: SqlSession, pipeline: str) -> Iterator[tuple[str, TableId]]:
        """The target tables to which other pipelines write, each with its pipeline. Empty if there is no ledger."""
        present = whole(self._shape(session), self.namespace)
        return self.rows.written_by_others(session, pipeline, present) if "cuts" in present else iter(())

    def load(self, session: SqlSession, pipeline: str) -> LedgerState | None:
        """The pipeline's whole record, ``None`` if there is none, or no ledger."""
        shape = whole(self._shape(session), self.namespace)
        if "cuts" not in shape:
            return None
        rows = session.execute(
            "SELECT source_identity, definition_fingerprint, epoch, attempt, start_ts, checkpoint_ts, attempted_ts,"
            f" source_position FROM {self.table('pipelines')} WHERE pipeline = ? AND source_identity <> ?",
            (pipeline, _NOBODYS),
        )
        if not rows:
            return None
        identity, fingerprint, epoch, attempt, start, checkpoint, attempted, position = rows[0]
        if not position and "position_parts" in shape:
            position = self._load_position(session, pipeline)
        words = self.words(session, pipeline) if {"ddl_decisions", "table_requests"} <= shape.keys() else Words()
        state = LedgerState(
            pipeline=pipeline,
            source_identity=str(identity),
            fingerprint=str(fingerprint),
            epoch=integer(epoch),
            attempt=integer(attempt),
            start=integer(start),
            checkpoint=integer(checkpoint),
            attempted=integer(attempted),
            position=str(position),
            journal=self._load_journal(session, pipeline),
            cuts=self._load_cuts(session, pipeline, shape["cuts"]),
            decisions=words.decisions,
            requests=words.requests,
            dead_letters=self._load_dead_letters(session, pipeline) if "dead_letters" in shape else {},
            shapes=self.shapes.load(session, pipeline) if LedgerPart.SHAPES in shape else {},
        )
        return state.with_rows(self.rows.load(session, pipeline, shape))

    def decide(self, session: SqlSession, pipeline: str, decision: Decision) -> None:
        """Stores a decision, in place of an earlier one about the same change."""
        self._forget_decision(session, pipeline, decision.identity)
        session.execute(
            f"INSERT INTO {self.table('ddl_decisions')} (pipeline, change_identity, verdict, statement) VALUES (?, ?, ?, ?)",
            (pipeline, decision.identity, str(decision.verdict), decision.statement),
        )

    def _forget_decision(self, session: SqlSession, pipeline: str, identity: str) -> None:
        session.execute(
            f"DELETE FROM {self.table('ddl_decisions')} WHERE pipeline = ? AND change_identity = ?", (pipeline, identity)
        )

    def request(self, session: SqlSession, pipeline: str, request: TableRequest) -> None:
        """Stores a request about a table. The same identity can exist only after a commit whose acknowledgement was lost."""
        self._forget_request(session, pipeline, request.identity)
        session.execute(
            f"INSERT INTO {self.table('table_requests')} (pipeline, identity, database_name, table_name, kind, to_ts, since_ts,"
            " file_name) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(pipeline, request.identity, request.table_id.database, request.table_id.table),
                *(str(request.kind), request.to, request.since, place_text(request.place)),
            ),
        )

    def words(self, session: SqlSession, pipeline: str) -> Words:
        """The decisions not used by a schema change yet, and the requests not carried out yet: one SELECT."""
        rows = session.execute(
            "SELECT change_identity AS identity, verdict AS kind, statement AS content, '' AS database_name, '' AS table_name,"
            f" -1 AS to_ts, -1 AS since_ts FROM {self.table('ddl_decisions')} WHERE pipeline = ?"
            " UNION ALL SELECT identity, kind, file_name, database_name, table_name, to_ts, since_ts"
            f" FROM {self.table('table_requests')} WHERE pipeline = ? ORDER BY identity",
            (pipeline, pipeline),
        )
        words = Words()
        for identity, kind, content, database, table, to, since in rows:
            key, text = str(identity), str(content)
            if to == -1:
                words.decisions[key] = Decision(key, Verdict(str(kind)), text)
            else:
                table_id, times = TableId(str(database), str(table)), {"to": integer(to), "since": integer(since)}
                asked = RequestKind(str(kind))
                place = place_of_text(text, in_stream=asked is RequestKind.SKIP_RECORD)
                words.requests[key] = TableRequest(key, table_id, asked, place=place, **times)
        return words

    def _forget_request(self, session: SqlSession, pipeline: str, identity: str) -> None:
        session.execute(f"DELETE FROM {self.table('table_requests')} WHERE pipeline = ? AND identity = ?", (pipeline, identity))

    def acquire(
        self, session: SqlSession, pipeline: str, source_identity: str, fingerprint: str, start: int, *, above: int = 0
    ) -> tuple[LedgerState, Claim]:
        """Takes the next epoch, with attempt 0. Creates the record if there is none; ``fingerprint`` and ``start`` count only then.

        A new record starts empty: what an earlier pipeline of this name left in the other tables is deleted. The epoch is greater
        than that of a record that was reset, and greater than ``above``, this run's last epoch, which the ledger may have
        forgotten.

        Raises DefinitionError if the record belongs to another source.
        """
        known = self.verify_source(session, pipeline, source_identity, lock=True)
        _, last = self._owner(session, pipeline) or ("", 0)
        claim = Claim(pipeline, max(last, above) + 1, uuid.uuid4().hex)
        pipelines = self.table("pipelines")
        if known is None:
            session.execute(f"DELETE FROM {pipelines} WHERE pipeline = ? AND source_identity = ?", (pipeline, _NOBODYS))
            session.execute(
                f"INSERT INTO {pipelines} (pipeline, source_identity, definition_fingerprint, epoch, attempt, start_ts,"
                " checkpoint_ts, attempted_ts, source_position, run_token, step) VALUES (?, ?, ?, ?, 0, ?, ?, ?, '', ?, 0)",
                (pipeline, source_identity, fingerprint, claim.epoch, start, start, start, claim.token),
            )
            self._clear(session, pipeline)
        else:
            session.execute(
                f"UPDATE {pipelines} SET epoch = ?, attempt = 0, run_token = ?, step = 0 WHERE pipeline = ?",
                (claim.epoch, claim.token, pipeline),
            )
        state = self.load(session, pipeline)
        if state is None:
            raise FencedError(f"The ledger's record of pipeline {pipeline!r} vanished while it was taken.")
        return state, claim

    def _clear(self, session: SqlSession, pipeline: str) -> None:
        """Deletes everything that the tables hold of a pipeline, except its new record.

        A person who removes a pipeline by hand may miss a table. If a position stayed, the next pipeline of that name would skip
        files.
        """
        for name in self._beside_pipelines(session):
            session.execute(f"DELETE FROM {self.table(name)} WHERE pipeline = ?", (pipeline,))

    def _beside_pipelines(self, session: SqlSession) -> list[str]:
        """The ledger tables that exist, without the table ``pipelines``."""
        names = self._layout().keys() - {"pipelines"}
        return sorted(names - (frozenset(LedgerPart) - self._shape(session).keys()))

    def reset(self, session: SqlSession, pipeline: str) -> bool:
        """Removes the whole record of a pipeline. Returns whether there was one.

        The epoch stays, in a row without source, so that a run of the former pipeline does not mistake the record of the name's
        next pipeline for its own.
        """
        pipelines = self.table("pipelines")
        source_identity, _ = self._owner(session, pipeline, lock=True) or (_NOBODYS, 0)
        names = self._beside_pipelines(session)
        left = any(session.execute(f"SELECT 1 FROM {self.table(name)} WHERE pipeline = ? LIMIT 1", (pipeline,)) for name in names)
        self._clear(session, pipeline)
        session.execute(
            f"UPDATE {pipelines} SET source_identity = ?, definition_fingerprint = '', source_position = '', epoch = epoch + 1,"
            " run_token = '', step = 0 WHERE pipeline = ?",
            (_NOBODYS, pipeline),
        )
        return left or source_identity != _NOBODYS

    def _owner(self, session: SqlSession, pipeline: str, *, lock: bool = False) -> tuple[str, int] | None:
        """The record's source (empty after a reset) and its epoch; ``None`` if there is no record."""
        rows = session.execute(
            f"SELECT source_identity, epoch FROM {self.table('pipelines')} WHERE pipeline = ?"
            f"{self.dialect.for_update if lock else ''}",
            (pipeline,),
        )
        return (str(rows[0][0]), integer(rows[0][1])) if rows else None

    def verify_source(self, session: SqlSession, pipeline: str, source_identity: str, *, lock: bool = False) -> int | None:
        """The record's epoch; ``None`` if there is no record. Raises DefinitionError if it belongs to another source."""
        owner, epoch = self._owner(session, pipeline, lock=lock) or (_NOBODYS, 0)
        if owner == _NOBODYS:
            return None
        require_owner(pipeline, owner, source_identity)
        return epoch

    def raise_attempt(self, session: SqlSession, claim: Claim, *, repeated: bool = False) -> int:
        """Takes the next attempt of this epoch, as a step of its own (see :meth:`write_update`). Raises as :meth:`verify`."""
        held = self.verify(session, claim, may_follow=repeated)
        if held.claim == claim.following:
            return held.attempt
        self._write_pipeline(session, claim, LedgerUpdate(attempt=held.attempt + 1))
        return held.attempt + 1

    def verify(self, session: SqlSession, claim: Claim, *, may_follow: bool = False, attempt: int | None = None) -> Held:
        """Locks the pipeline's row and returns what it records about the run.

        ``may_follow``: the run's next step may already be there, because the acknowledgement of its COMMIT was lost. ``attempt`` is
        the calling task's. Raises FencedError if another run took the record or the attempt is over, and TargetWentBackError if the
        record is not as this run left it.
        """
        held = self._held(session, claim.pipeline)
        found = held.claim
        if found.epoch > claim.epoch or (found.epoch == claim.epoch and found.token != claim.token):
            raise FencedError.taken_over(claim.pipeline, claim.epoch, found.epoch)
        if attempt is not None and found.epoch == claim.epoch and held.attempt > attempt:
            raise attempt_over(claim.pipeline, attempt, held.attempt)
        if found != claim and not (may_follow and found == claim.following):
            cause = "a failover lost transactions, or a backup was restored"
            if found.epoch == claim.epoch and found.step > claim.step:
                cause = "a task wrote a step whose answer was lost"
            raise TargetWentBackError(
                f"The ledger of pipeline {claim.pipeline!r} is not as this run left it: it stands at step {found.step} of epoch "
                f"{found.epoch}, and this run had written step {claim.step} of epoch {claim.epoch}: {cause}. The run goes on from "
                "what the ledger records now."
            )
        return held

    def _held(self, session: SqlSession, pipeline: str) -> Held:
        """Raises FencedError if there is no record."""
        rows = session.execute(
            "SELECT epoch, run_token, step, attempt, source_identity"
            f" FROM {self.table('pipelines')} WHERE pipeline = ?{self.dialect.for_update}",
            (pipeline,),
        )
        if not rows or rows[0][4] == _NOBODYS:
            raise FencedError.forgotten(pipeline)
        epoch, token, step, attempt, _ = rows[0]
        return Held(Claim(pipeline, integer(epoch), str(token), integer(step)), integer(attempt))

    def put_tables(self, session: SqlSession, claim: Claim, tables: Iterable[TableProgress]) -> None:
        """Writes the rows of tables that were applied in the same transaction. Not a step: many tasks do it concurrently.

        Raises as :meth:`verify`.
        """
        self.verify(session, claim)
        self.rows.put(session, claim.pipeline, tables)

    def write_update(self, session: SqlSession, claim: Claim, update: LedgerUpdate, *, repeated: bool = False) -> bool:
        """Writes one step of progress on top of the run's last one. Returns false if it was already there.

        ``repeated``: the step was sent before, without an acknowledgement. Raises as :meth:`verify`.
        """
        pipeline = claim.pipeline
        if self.verify(session, claim, may_follow=repeated).claim != claim:
            return False
        self._write_pipeline(session, claim, update)
        self.rows.put(session, pipeline, update.tables)
        self._put_journal(session, pipeline, update.journal)
        for start in range(0, len(update.forget_journal), _FORGOTTEN_AT_ONCE):
            identities = update.forget_journal[start : start + _FORGOTTEN_AT_ONCE]
            marks = ", ".join("?" * len(identities))
            session.execute(
                f"DELETE FROM {self.table('ddl_journal')} WHERE pipeline = ? AND change_identity IN ({marks})",
                (pipeline, *identities),
            )
        for identity in update.used_decisions:
            self._forget_decision(session, pipeline, identity)
        for request in update.requests:
            self.request(session, pipeline, request)
        for identity in update.used_requests:
            self._forget_request(session, pipeline, identity)
        for table_id, count in update.dead_letters.items():
            self._put_dead_letters(session, pipeline, table_id, count)
        for key in update.forget_shapes:
            self.shapes.forget(session, pipeline, key)
        for table_shape in update.shapes:
            self.shapes.put(session, pipeline, table_shape)
        if update.forget_replayed and LedgerPart.REPLAYED in self._shape(session):
            self.replayed.forget(session, pipeline, update.forget_replayed)
        if update.cut is not None:
            self._put_cut(session, pipeline, update.cut)
        return True

    def _layout(self) -> dict[str, tuple[str, str]]:
        """Table name -> (columns, primary key)."""
        name, text, number = self.dialect.name_type, self.dialect.text_type, "BIGINT NOT NULL"
        return {
            "pipelines": (
                f"pipeline {name} NOT NULL, source_identity {text} NOT NULL, definition_fingerprint {text} NOT NULL,"
                f" epoch {number}, attempt {number}, start_ts {number}, checkpoint_ts {number}, attempted_ts {number},"
                f" source_position {text} NOT NULL, " + ", ".join(f"{column} {kind}" for column, kind in _CLAIMS.items()),
                "pipeline",
            ),
            "position_parts": (f"pipeline {name} NOT NULL, part {number}, content {text} NOT NULL", "pipeline, part"),
            **self.rows.layout(),
            **self.shapes.layout(),
            **self.replayed.layout(),
            "ddl_journal": (
                f"pipeline {name} NOT NULL, change_identity {name} NOT NULL, commit_ts {number}, touched {text} NOT NULL,"
                f" statement {text} NOT NULL, state {name} NOT NULL, fingerprint {text} NOT NULL",
                "pipeline, change_identity",
            ),
            "ddl_decisions": (
                f"pipeline {name} NOT NULL, change_identity {name} NOT NULL, verdict {name} NOT NULL, statement {text} NOT NULL",
                "pipeline, change_identity",
            ),
            "table_requests": (
                f"pipeline {name} NOT NULL, identity {name} NOT NULL, database_name {name} NOT NULL, table_name {name} NOT NULL,"
                f" kind {name} NOT NULL, to_ts {number}, since_ts {number}, file_name {text} NOT NULL",
                "pipeline, identity",
            ),
            "dead_letters": (
                f"pipeline {name} NOT NULL, database_name {name} NOT NULL, table_name {name} NOT NULL, letters {number}",
                "pipeline, database_name, table_name",
            ),
            "cuts": (
                f"pipeline {name} NOT NULL, ordinal {number}, hi {number}, finished_at {name} NOT NULL,"
                f" seconds {self.dialect.float_type} NOT NULL, files {number}, read_rows {number}, upserts {number},"
                f" deletes {number}, read_bytes {number}, schema_changes {number}, exact_commit_ts {number},"
                + ", ".join(f" {name} BIGINT DEFAULT 0" for name in _ROW_FIGURES),
                "pipeline, ordinal",
            ),
        }

    def _load_journal(self, session: SqlSession, pipeline: str) -> dict[str, JournalEntry]:
        rows = session.execute(
            "SELECT change_identity, commit_ts, touched, statement, state, fingerprint"
            f" FROM {self.table('ddl_journal')} WHERE pipeline = ? ORDER BY commit_ts, change_identity",
            (pipeline,),
        )
        tables: dict[str, tuple[TableId, ...]] = {}  # many changes may name the same tables, even all of them
        return {
            str(identity): JournalEntry(
                identity=str(identity),
                commit_ts=integer(commit_ts),
                tables=tables.get(str(touched)) or tables.setdefault(str(touched), _tables_from_text(str(touched))),
                statement=str(statement),
                state=JournalState(str(state)),
                state_before=str(fingerprint),
            )
            for identity, commit_ts, touched, statement, state, fingerprint in rows
        }

    def _load_cuts(self, session: SqlSession, pipeline: str, present: Collection[str]) -> tuple[CutRecord, ...]:
        figures = ", ".join(name if name in present else f"0 AS {name}" for name in _ROW_FIGURES)
        rows = session.execute(
            "SELECT hi, finished_at, seconds, files, read_rows, upserts, deletes, read_bytes, schema_changes, exact_commit_ts,"
            f" {figures} FROM {self.table('cuts')} WHERE pipeline = ? ORDER BY ordinal",
            (pipeline,),
        )
        return tuple(
            CutRecord(integer(hi), str(finished_at), float(str(seconds)), *(integer(figure) for figure in figures))
            for hi, finished_at, seconds, *figures in rows
        )

    def _load_dead_letters(self, session: SqlSession, pipeline: str) -> dict[TableId, int]:
        rows = session.execute(
            f"SELECT database_name, table_name, letters FROM {self.table('dead_letters')} WHERE pipeline = ?", (pipeline,)
        )
        return {TableId(str(database), str(table)): integer(count) for database, table, count in rows}

    def _put_dead_letters(self, session: SqlSession, pipeline: str, table_id: TableId, count: int) -> None:
        letters, key = self.table("dead_letters"), (pipeline, table_id.database, table_id.table)
        session.execute(f"DELETE FROM {letters} WHERE pipeline = ? AND database_name = ? AND table_name = ?", key)
        if count:
            session.execute(
                f"INSERT INTO {letters} (pipeline, database_name, table_name, letters) VALUES (?, ?, ?, ?)", (*key, count)
            )

    def _write_pipeline(self, session: SqlSession, claim: Claim, update: LedgerUpdate) -> None:
        pipeline = claim.pipeline
        assignments = ["step = ?"]
        values: list[object] = [claim.following.step]
        if update.attempt is not None:
            assignments.append("attempt = ?")
            values.append(update.attempt)
        if update.fingerprint is not None:
            assignments.append("definition_fingerprint = ?")
            values.append(update.fingerprint)
        if update.checkpoint is not None:
            assignments.append("checkpoint_ts = ?")
            values.append(update.checkpoint)
        if update.attempted is not None:  # the highest ever attempted: a smaller value does not lower it
            assignments.append("attempted_ts = GREATEST(attempted_ts, ?)")
            values.append(update.attempted)
        if update.position is not None:
            assignments.append("source_position = ?")
            values.append(self._put_position(session, pipeline, update.position))
        session.execute(f"UPDATE {self.table('pipelines')} SET {', '.join(assignments)} WHERE pipeline = ?", (*values, pipeline))

    def _put_position(self, session: SqlSession, pipeline: str, position: str) -> str:
        """Writes a position that is too long for one statement in parts. Returns what the pipeline's own row holds instead."""
        parts = self.table("position_parts")
        session.execute(f"DELETE FROM {parts} WHERE pipeline = ?", (pipeline,))
        if len(position) <= PART_LENGTH:
            return position
        for number, start in enumerate(range(0, len(position), PART_LENGTH)):
            content = position[start : start + PART_LENGTH]
            session.execute(f"INSERT INTO {parts} (pipeline, part, content) VALUES (?, ?, ?)", (pipeline, number, content))
        return ""

    def _load_position(self, session: SqlSession, pipeline: str) -> str:
        """A position that was written in parts."""
        rows = session.execute(f"SELECT content FROM {self.table('position_parts')} WHERE pipeline = ? ORDER BY part", (pipeline,))
        return "".join(str(content) for (content,) in rows)

    def _put_journal(self, session: SqlSession, pipeline: str, entries: Iterable[JournalEntry]) -> None:
        columns = ("pipeline", "change_identity", "commit_ts", "touched", "statement", "state", "fingerprint")
        rows = (
            (pipeline, e.identity, e.commit_ts, _tables_to_text(e.tables), e.statement, str(e.state), e.state_before)
            for e in entries
        )
        put_rows(session, self.dialect, self.table("ddl_journal"), columns, 2, rows)

    def _put_cut(self, session: SqlSession, pipeline: str, cut: CutRecord) -> None:
        cuts = self.table("cuts")
        rows = session.execute(f"SELECT MAX(ordinal) FROM {cuts} WHERE pipeline = ?", (pipeline,))
        # A commit whose acknowledgement was lost is repeated, with the same record.
        session.execute(
            f"DELETE FROM {cuts} WHERE pipeline = ? AND hi = ? AND finished_at = ?", (pipeline, cut.hi, cut.finished_at)
        )
        ordinal = 1 if rows[0][0] is None else integer(rows[0][0]) + 1
        figures = (cut.files, cut.read_rows, cut.upserts, cut.deletes, cut.read_bytes, cut.schema_changes, cut.exact)
        became = (cut.netted, cut.refused, cut.left, cut.passed)
        session.execute(
            f"INSERT INTO {cuts} (pipeline, ordinal, hi, finished_at, seconds, files, read_rows, upserts, deletes, read_bytes,"
            f" schema_changes, exact_commit_ts, {', '.join(_ROW_FIGURES)})"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (pipeline, ordinal, cut.hi, cut.finished_at, cut.seconds, *figures, *became),
        )
        session.execute(f"DELETE FROM {cuts} WHERE pipeline = ? AND ordinal <= ?", (pipeline, ordinal - KEPT_CUTS))


def attempt_over(pipeline: str, attempt: int, current: int) -> FencedError:
    """The error for a task whose attempt is over."""
    return FencedError(f"Attempt {attempt} of pipeline {pipeline!r} is over (now {current}); its tasks must not write any more.")


def _tables_to_text(tables: Iterable[TableId]) -> str:
    return json.dumps([[table.database, table.table] for table in tables], ensure_ascii=False)


def _tables_from_text(text: str) -> tuple[TableId, ...]:
    return tuple(TableId(database, table) for database, table in json.loads(text))
