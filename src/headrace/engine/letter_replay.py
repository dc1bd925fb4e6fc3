"""Replays dead letters: a cut of one table is applied again, from before its letters up to the table's checkpoint.

Any repetition of a complete cut is harmless (rule 3): each key in the window gets its state at the table's checkpoint. So a letter
that was repaired is applied at its place and cannot overwrite later changes. A record that is still bad becomes a letter again.
Position and checkpoints do not change, and an aborted replay is repeated.

A restore or a failover may undo a replay. So replayed letters are kept, and are included if the ledger counts more letters than the
folder has; it is harmless to replay a letter again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from headrace import faults
from headrace.engine.conservation import row_figures
from headrace.engine.cut_run import RoundFactory
from headrace.engine.segments import TableShapes, changes_of
from headrace.engine.shapes import with_kept_shapes
from headrace.engine.write_task import read_problems
from headrace.errors import DefinitionError, NoWatermarkError
from headrace.faults import Step
from headrace.model.cut import Cut, CutRound
from headrace.model.events import SchemaChange
from headrace.model.ledger import LedgerState, RequestKind, TableProgress, TableRequest
from headrace.model.letters import Letter
from headrace.model.offer import Offer
from headrace.model.outcome import Notice
from headrace.model.place import file_of
from headrace.model.split import Segment, Split, Window
from headrace.model.table import TableId
from headrace.sinks.base import ChangeDemand, DataSink, Ledger, LedgerUpdate, RowsRefused, WriterContext
from headrace.sinks.dead_letters import KEPT_REPLAYED, DeadLetters
from headrace.sources.base import EventSource

_BY_HAND = "Repair its rows by hand, then remove the letters with headrace replay-dead-letters --discard."


class _Refused(Exception):
    """Nothing is done. Carries the message for people."""


@dataclass(frozen=True)
class _Found:
    """A table's letters by name: those that count, and the replayed ones, which may count again.

    ``missing`` is the number of letters that the ledger counts and the folder lacks.
    """

    there: dict[str, Letter]
    replayed: dict[str, Letter]
    missing: int

    def left(self, version: int) -> int:
        """How many letters stay counted because a schema change at ``version`` (TSO) came after them.

        It is not known which of the replayed letters the ledger counts, so these are assumed to count.
        """
        there, replayed = (sum(letter.version < version for letter in each.values()) for each in (self.there, self.replayed))
        return there + min(replayed, max(self.missing, 0))


def waits_for(state: LedgerState, request: TableRequest) -> Notice | None:
    """The notice about what a replay must wait for; ``None`` if nothing. Until then the target is not at the table's checkpoint.

    A schema change that was begun may have run already, or may run while the rows are written. A loaded table is ahead of its
    checkpoint until the request about it is carried out, and a replay would undo the load.
    """
    table_id = request.table_id
    if request.kind is not RequestKind.REPLAY:
        return None
    if table_id in state.holds:
        return Notice("the replay of its dead letters waits until the table is released.", table_id)
    begun = [e.commit_ts for e in state.journal.values() if e.state.may_have_run and table_id in e.tables]
    if begun:
        return Notice(f"the replay of its dead letters waits until its schema change at {min(begun)} is done.", table_id)
    loaded = (RequestKind.RESYNC, RequestKind.LOADED)
    if any(r.kind in loaded and r.table_id == table_id for r in state.requests.values()):
        return Notice("the replay of its dead letters waits until the table goes on from where it was loaded anew.", table_id)
    return None


@dataclass(frozen=True)
class Replayer:
    """Carries out requests about dead letters. ``source`` is an object of its own, without earlier polls.

    ``with_keys`` puts declared keys into an offer; ``prepare`` is called before rows are read.
    """

    letters: DeadLetters
    source: EventSource
    sink: DataSink
    ledger: Ledger
    make_round: RoundFactory
    with_keys: Callable[[Offer], Offer]
    prepare: Callable[[], None]

    def carry_out(self, state: LedgerState, request: TableRequest) -> tuple[LedgerState, Notice]:
        """The ledger's state when the request is completed, and the result. Raises what sources, sinks and ledgers raise."""
        try:
            if request.kind is RequestKind.DISCARD:
                state, told = self._discard(state, request.table_id)
            else:
                state, told = self._replay(state, request.table_id)
        except _Refused as refused:
            told = str(refused)
        except BaseException:
            self.sink.abandon_cut()
            raise
        return self._update(state, LedgerUpdate(used_requests=(request.identity,))), Notice(told, request.table_id)

    def _update(self, state: LedgerState, update: LedgerUpdate) -> LedgerState:
        faults.before(Step.REQUESTS)
        self.ledger.update(update)
        faults.after(Step.REQUESTS)
        return update.applied_to(state)

    def _discard(self, state: LedgerState, table_id: TableId) -> tuple[LedgerState, str]:
        removed = self.letters.discard(table_id)
        return self._update(state, LedgerUpdate(dead_letters={table_id: 0})), f"its dead letters were removed ({removed})."

    def _replay(self, state: LedgerState, table_id: TableId) -> tuple[LedgerState, str]:
        """Raises _Refused."""
        own = state.tables.get(table_id)
        if own is None or own.status.is_gone:
            raise _Refused(f"its dead letters are not replayed: the table is not there any more. {_BY_HAND}")
        hi = state.table_checkpoint(table_id)
        found = self._found(state, table_id, hi)
        offer = self._offer(state, hi)
        version = _newest_version(offer, state, own, hi)
        outdated = found.left(version)
        wanted = {name: letter for name, letter in (found.replayed | found.there).items() if letter.version >= version}
        if outdated and not wanted:
            raise _Refused(f"a schema change at {version} came after its dead letters, so they cannot be replayed. {_BY_HAND}")
        new: frozenset[str] = frozenset()
        if wanted:
            window = Window(min(letter.lo for letter in wanted.values()), hi)
            splits = self._splits(state, table_id, offer, wanted, window)
            cut = _cut(offer, splits, _segment(offer, table_id, splits, window, version))
            new = self._write(state, cut, len(wanted))
        left = len(new) + outdated
        # The checkpoint stays the same, but makes an atomic sink commit. The new attempt ends the tasks, as after any round.
        update = LedgerUpdate(checkpoint=state.checkpoint, dead_letters={table_id: left}, attempt=state.attempt + 1)
        state = self._update(state, update)
        self.letters.set_aside(table_id, wanted.keys() - new)
        self.letters.forget_replayed(table_id, datetime.now(UTC) - KEPT_REPLAYED)
        told = f"its dead letters were replayed ({len(wanted)})"
        told += f"; {len(new)} are still bad and stay in {self.letters.location(table_id)}" if new else ""
        told += (
            f"; {outdated} from before its schema change at {version} cannot be replayed and stay. {_BY_HAND}" if outdated else "."
        )
        return state, told

    def _found(self, state: LedgerState, table_id: TableId, hi: int) -> _Found:
        """The letters up to the table's checkpoint. Raises _Refused.

        Later letters belong to a cut that a restore undid, and are written again if necessary.
        """
        known = state.dead_letters.get(table_id, 0)
        try:
            there = {name: letter for name, letter in self.letters.of(table_id).items() if letter.lo < hi}
            missing = known - len(there)
            kept = self.letters.replayed(table_id) if missing > 0 else {}
        except DefinitionError as error:
            raise _Refused(f"its dead letters are not replayed: {error}") from None
        kept = {name: letter for name, letter in kept.items() if letter.lo < hi and name not in there}
        if missing > len(kept):
            replayed = f", and {len(kept)} that were replayed in the last {KEPT_REPLAYED.days} days" if kept else ""
            raise _Refused(
                f"its dead letters are not replayed: the ledger counts {known}, and {self.letters.location(table_id)} has "
                f"{len(there)}{replayed}. Start with the --dead-letters of the run that wrote them, or bring them back. "
                f"Otherwise: {_BY_HAND}"
            )
        return _Found(there, kept, missing)

    def _offer(self, state: LedgerState, hi: int) -> Offer:
        """All that the source has, complete up to ``hi``; there may be no watermark above rows that a final drain applied."""
        shapes = state.shapes_by_table if self.source.needs_shapes else None
        try:
            offer = self.source.poll("", 0, shapes=shapes)
        except NoWatermarkError:
            offer = self.source.poll("", 0, final=True, shapes=shapes)
        if offer.watermark < hi:
            offer = self.source.poll("", 0, final=True, shapes=shapes)
        return self.with_keys(offer if shapes is None else with_kept_shapes(offer, state))

    def _splits(
        self, state: LedgerState, table_id: TableId, offer: Offer, wanted: dict[str, Letter], window: Window
    ) -> tuple[Split, ...]:
        """The files to read again: all of the table, since those of any version may have rows of the window.

        Raises _Refused if they cannot give the state at the end of the window.
        """
        if not offer.precision.is_exact:
            why = "rows carry no exact commit ts, so Headrace cannot tell which change of a row is the last."
            last = "If no later file is applied yet, upload the repaired file again: it is then read again as a whole. Otherwise:"
            raise _Refused(f"its dead letters are not replayed: {why} {last} {_BY_HAND}")
        problem = next((p for p in offer.problems if p.table_id == table_id), None)
        if problem is not None:
            raise _Refused(f"its dead letters are not replayed: {problem.sentence()}")
        splits = tuple(s for s in offer.splits if s.table_id == table_id and s.begins <= window.hi)
        noun = next((letter.place.noun for letter in wanted.values() if letter.place is not None), "file")
        there = {file_of(split.place) for split in splits}
        gone = [file for letter in wanted.values() if (file := file_of(letter.place)) and file not in there]
        gone += self.source.vanished(state.position, table_id, window.lo)
        if why := next((text for text in gone if text.endswith(".")), ""):
            raise _Refused(f"its dead letters are not replayed: {why} {_BY_HAND}")
        if gone:
            files = f"{gone[0]} and {len(gone) - 1} other {noun}s" if len(gone) > 1 else gone[0]
            raise _Refused(f"its dead letters are not replayed: {files} vanished since. Restore what is missing, or: {_BY_HAND}")
        if not splits:
            raise _Refused(f"its dead letters are not replayed: none of its {noun}s is there any more. {_BY_HAND}")
        return splits

    def _write(self, state: LedgerState, cut: Cut, count: int) -> frozenset[str]:
        """Reads and writes the cut of one table. Returns the names of the letters that it wrote. Raises _Refused."""
        (cut_round,) = cut.rounds
        ((table_id, segment),) = cut_round.segments.items()
        if self.sink.capabilities.demand_of(table_id, segment.schema) is ChangeDemand.ALL:
            raise _Refused(
                f"{self.sink.identity} cannot undo what was written, so dead letters cannot be replayed there. {_BY_HAND}"
            )
        if not segment.schema.handle_key:
            raise _Refused(f"its dead letters are not replayed: it has no key. {_BY_HAND}")
        letters = replace(self.letters, most=self.letters.most + count)
        context = WriterContext(state.pipeline, state.epoch, state.attempt, 0, letters, cut.advice)
        self.prepare()
        self.sink.begin_cut()
        try:
            faults.before(Step.ROUND)
            report = self.sink.event_sink.write(self.make_round(cut, cut_round, context, None, {table_id: state.tables[table_id]}))
            faults.after(Step.ROUND)
            row_figures(report, cut_round.splits, read_problems(report.splits).keys())
            problem = next(iter((read_problems(report.splits) | report.problems()).values()), None)
        except RowsRefused as refused:
            problem = refused.problem
        if problem is not None:
            self.sink.abandon_cut()
            raise _Refused(f"its dead letters are not replayed: {problem.sentence()}")
        return report.letters().get(table_id, frozenset())


def _cut(offer: Offer, splits: tuple[Split, ...], segment: Segment) -> Cut:
    """The repeated cut of one table: its rows are netted and written by the same rules as in any cut of the offer."""
    table_id, window = segment.schema.table_id, segment.window
    return replace(
        offer.empty_cut(window.hi),
        rounds=(CutRound((), splits, {table_id: segment}),),
        windows={table_id: window},
        checkpoints={table_id: window.hi},
        lacking=frozenset({table_id}),
    )


def _segment(offer: Offer, table_id: TableId, splits: tuple[Split, ...], window: Window, version: int) -> Segment:
    """The rows of the window after the table's newest schema change; the table did not exist before its first one."""
    known = changes_of({table_id}, offer.schema_changes).get(table_id, [])
    begins = version if any(change.commit_ts < version for change in known) else 0
    shapes = TableShapes(splits, known)
    newest, schema = shapes.in_force(window.hi + 1)
    return Segment(window, newest, schema, version, begins, recasts=shapes.recasts(newest, schema))


def _newest_version(offer: Offer, state: LedgerState, own: TableProgress, hi: int) -> int:
    """The newest schema change that the table has had. Rows before it have another shape, or are gone."""

    def is_applied(change: SchemaChange) -> bool:
        # A change with neither is a restart of the writer.
        ends_something = bool(change.statement or change.events)
        # The row of a running table does not show what was done at the pipeline's checkpoint; the journal does.
        done = change.commit_ts < hi or (change.commit_ts == hi and (own.after or (hi, change.place) in state.settled))
        return own.table_id in change.changes and ends_something and done

    return max((change.commit_ts for change in offer.schema_changes if is_applied(change)), default=0)
