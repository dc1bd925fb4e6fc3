"""The loop of a pipeline: poll, plan, apply, and recover between cuts after a failure.

A failed cut does not move the checkpoint. The attempt number is raised first, because tasks of the failed job may keep writing
for some seconds (rule 15). Then the cut is planned again, with a ``hi`` no smaller than that of the failed cut.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from headrace import faults
from headrace.engine.barriers import PlanRules
from headrace.engine.bounds import bound_of, end_of, has_let_go, has_rows_at_once
from headrace.engine.cut_letters import recounted
from headrace.engine.cut_run import CutRun, RoundFactory, TablesExcluded
from headrace.engine.excluded_tables import back, followed, left_out, taken_back
from headrace.engine.gone_records import find_begun_untold, lose_gone
from headrace.engine.identities import as_journalled
from headrace.engine.journal import comes_back, concerns
from headrace.engine.kept_keys import left_unique_key
from headrace.engine.keys import changed_definition, read_fingerprint, with_declared_keys
from headrace.engine.late_records import note_late
from headrace.engine.letter_replay import Replayer, waits_for
from headrace.engine.marked_tables import LedgerOutrunError, caught_up, in_doubt, say_of_requests, unknown
from headrace.engine.observer import Observer, telling
from headrace.engine.passed_tables import Missing, cut_short, note_passed, with_kept_changes
from headrace.engine.plan import ending_incomplete, plan_cut
from headrace.engine.quiet import Quiet
from headrace.engine.requests import Carried, carry_out, give_up_places, releases_to_judge, resyncs_due, take_up_holds
from headrace.engine.reserved_columns import without_reserved_columns
from headrace.engine.retries import Retries, all_stopped
from headrace.engine.run_options import RunOptions
from headrace.engine.shapes import given_shapes
from headrace.engine.table_reset import begin_anew, resets_asked
from headrace.engine.told_stops import ToldStops
from headrace.engine.tries import Tries
from headrace.engine.turns import Turns
from headrace.errors import (
    EXIT_OK,
    EXIT_TABLE_STOPPED,
    FencedError,
    HeadraceError,
    JobFailedError,
    NoWatermarkError,
    SinkUnreachableError,
    SourceNotReadyError,
    SourceUnreachableError,
    TargetWentBackError,
    TransientError,
)
from headrace.faults import Step
from headrace.model.cut import Hold
from headrace.model.ledger import Decision, JournalState, LedgerState, TableProgress, TableStatus
from headrace.model.offer import Learned, Offer
from headrace.model.outcome import Notice, Problem
from headrace.model.policy import OnError
from headrace.model.recent import Recent
from headrace.model.table import TableId
from headrace.model.tso import format_tso
from headrace.sinks.base import DataSink, Ledger, LedgerPart, LedgerUpdate
from headrace.sources.base import Bound, EventSource
from headrace.transform.filters import TableFilter

_PASSING = (TransientError, SourceNotReadyError, SourceUnreachableError, SinkUnreachableError, JobFailedError)
_FIRST_PAUSE, _LONGEST_PAUSE, _RETRY_STOPPED_EVERY = 1.0, 30.0, 30.0
_DECISIONS_EVERY, _LOOK_PAUSE, _TELL_EVERY = 2.0, 1.0, 2.0


class Loop:
    """Runs one pipeline. ``run`` belongs to one thread; ``stop`` may be called from any thread."""

    def __init__(
        self,
        name: str,
        *,
        source: EventSource,
        source_identity: str,
        sink: DataSink,
        ledger: Ledger,
        make_round: RoundFactory,
        observer: Observer,
        options: RunOptions,
        before_cut: Callable[[], None] = lambda: None,
    ) -> None:
        """``before_cut`` is called before a cut that reads data. It may wait for Spark until the loop is stopped."""
        self._before_cut = before_cut
        self._name, self._source, self._source_identity = name, source, source_identity
        self._sink, self._ledger, self._make_round = sink, ledger, make_round
        self._observer, self._options = observer, options
        self._stopping = threading.Event()
        self._told = Recent[Notice]()
        self._tries = Tries()
        self._told_at = 0.0
        self._goal: int | None = None
        # The position before the target went back, kept until the ledger records which files are missing since then.
        self._farthest = ""
        self._begin(LedgerState(name))

    def _begin(self, state: LedgerState) -> None:
        """Starts from the ledger's state and forgets what this run saw before."""
        self._state = state
        # What the source learned in earlier polls; passed to the next poll.
        self._learned: Learned | None = None
        self._asked_at = float("-inf")
        self._decided: dict[str, Decision] = {}
        self._asked: set[str] = set()
        self._told_stops = ToldStops()
        self._quiet = Quiet()
        self._turns = Turns()
        self._retries = Retries()
        # Tables outside the filter whose rows or names schema changes bring into it. None before the first offer of changes.
        self._followed: frozenset[TableId] | None = None
        # Whether an unreadable schema change of an unknown table waits. It stops no table, but the exit code shows it.
        self._waits = self._is_stuck = False
        # Whether a table that is gone may have a new CREATE below the checkpoint since the last check: a cut may have been
        # interrupted, in this run or an earlier one, or a table ended while it caught up.
        self._may_be_back = True
        # Whether the marks in target tables may be ahead of the ledger.
        self._may_be_ahead = True
        # Whether to plan even if the watermark does not move, for example because a changed definition includes more tables.
        self._plans_anew = False

    def stop(self) -> None:
        """Ends the loop after the cut that is being applied."""
        self._stopping.set()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def state(self) -> LedgerState:
        """The ledger's state as of this run's last read or update."""
        return self._state

    def run(self) -> int:
        """Runs until the run is complete, is stopped, or fails permanently. Returns the exit code."""
        self._acquire_when_possible()
        while not self._stopping.is_set():
            try:
                finished = self._step()
                if finished:
                    self._replay()  # requests that had to wait for a cut of this run
                self._tries = Tries()
            except _PASSING as error:
                self._failed(error)
                continue
            if finished:
                break
        stopped = [t for t, p in self._state.tables.items() if p.status.is_stopped and self._options.includes(t)]
        return EXIT_TABLE_STOPPED if stopped or self._waits or self._is_stuck or self._turns.is_stuck else EXIT_OK

    def _acquire_when_possible(self) -> None:
        """Acquires the ledger, with retries: another process may keep a DuckDB file open for longer than its sink waits."""
        while not self._stopping.is_set():
            try:
                self._acquire()
            except (TransientError, SourceNotReadyError, SourceUnreachableError) as error:
                self._wait_after(error)
            else:
                break
        self._tries = Tries()

    def _acquire(self, above: int = 0) -> None:
        options = self._options
        known = self._ledger.peek(self._name)
        if known is None:
            # A source that does not exist, perhaps because of a typing error, must not claim the pipeline's name.
            with telling(self._observer, "listing the source", _TELL_EVERY):
                self._source.mark("")
        else:
            options.require_going_on(known)
            self._tell(changed_definition(known, options.filter_text, options.keys))
        shapes = given_shapes(known, self._source, options, self._tell)
        faults.before(Step.ACQUIRE)
        parts = [LedgerPart.SHAPES] if self._source.needs_shapes else []
        record = self._name, self._source_identity, options.fingerprint, options.start or 0
        self._begin(self._ledger.acquire(*record, parts, above))
        faults.after(Step.ACQUIRE)
        running = (own for own in self._state.tables.values() if own.status is TableStatus.RUNNING)
        self._tell(tuple(Notice(f"rows may be missing: {own.lacks}", own.table_id) for own in running if own.lacks))
        changed = known is not None and known.fingerprint != options.fingerprint
        # A waiting change whose table is unknown stops no table, so no retry of a stopped table would look at it again.
        self._plans_anew = changed or any(not e.tables and e.state is JournalState.WAITING for e in self._state.journal.values())
        # The checkpoints of tables that the definition leaves out are written together with its fingerprint.
        former = TableFilter.parse(read_fingerprint(self._state.fingerprint)[0])
        rows = left_out(self._state, options.includes, former.includes)
        if rows or shapes or self._state.fingerprint != options.fingerprint:
            self._serve(Carried(LedgerUpdate(tables=rows, shapes=shapes, fingerprint=options.fingerprint)))

    def _step(self) -> bool:
        """One poll and, if there is something to do, one cut. True when the run is complete.

        While tables catch up in cuts of their own, every second step serves the other tables.
        """
        gone = {t for t, own in self._state.tables.items() if own.status.is_gone}
        apart, self._turns = self._turns.without(gone), self._turns.taken()
        if self._may_be_ahead:
            self._follow(in_doubt(self._state))
            self._may_be_ahead = False
        told = self._has_new_words()
        self._serve(take_up_holds(self._state))
        self._plans_anew |= bool(releases_to_judge(self._state))
        retried = self._tables_to_retry(told=told) - apart
        self._serve(give_up_places(self._state, self._source.give_up, self._options.includes))
        self._replay()
        looks = self._may_be_back and bool(gone)
        self._may_be_back = False
        seen = -1 if retried or self._plans_anew or looks or (self._turns.apart and not apart) else self._state.checkpoint
        try:
            offer = self._poll(seen, bound=self._bound(retried, apart))
        except NoWatermarkError:
            if self._options.until_end:
                return self._drain_when_quiet()
            raise
        self._tell(offer.notices)
        self._is_stuck = offer.is_stuck
        if self._goal is None:
            until = self._options.until
            self._goal = offer.source_watermark if until is None else min(offer.source_watermark, until)
        if not apart:
            self._turns = self._turns.offered(offer.catches_up)
        hi = min(offer.watermark, end_of(self._state, offer, apart, self._options.until))
        more = has_rows_at_once(self._state, offer, self._options.includes, retried, apart)
        more |= looks and comes_back(self._state, offer.schema_changes)
        if hi < self._state.attempted and not offer.catches_up:
            if offer.watermark < self._state.attempted:  # else the cut ends before a schema change that waits for other tables
                self._wait_for_watermark(offer)
        elif hi > self._state.checkpoint or retried or self._plans_anew or offer.catches_up or more:
            self._plans_anew, before, due = False, self._state, self._retries.due
            problems = self._apply(offer, retried, apart)
            # After a cut that moved nothing, an immediate poll would return the same offer.
            moved = self._state.has_moved(before) or (not offer.at_once and self._retries.due != due)
            if self._plans_anew or moved:
                self._turns = self._turns.moved()
            if self._plans_anew or self._worth_another_look(problems) or (moved and not self._is_done(offer)):
                return False
        if self._turns.goes_on or self._retries.moved:
            return False
        self._tell(self._turns.notices())
        return self._is_done(offer) or (not offer.more and self._pause(offer))

    def _poll(self, checkpoint: int, *, final: bool = False, bound: Bound | None = None) -> Offer:
        self._told_at = time.monotonic()
        faults.before(Step.POLL)
        state, needs_shapes = self._state, self._source.needs_shapes
        shapes = state.shapes_by_table if needs_shapes else None
        with telling(self._observer, "listing the source", _TELL_EVERY):
            offer = self._source.poll(state.position, checkpoint, final=final, bound=bound, learned=self._learned, shapes=shapes)
        if needs_shapes:
            offer = with_kept_changes(offer, state)
        faults.after(Step.POLL)
        self._learned = offer.learned
        if offer.schema_changes:  # an offer without anything new has none
            known = self._followed
            self._followed = frozenset(followed(self._state, offer.schema_changes, self._options.includes).until)
            if self._followed != known and not all(map(self._follows, offer.catches_up)):
                # This part was chosen for tables that turn out to be left out, so it may have no files of the followed tables.
                return self._poll(checkpoint, final=final, bound=bound)
        offer = as_journalled(with_declared_keys(without_reserved_columns(offer), self._options.keys), self._state)
        return cut_short(self._state, offer, self._options.includes, self._missing(offer)) if needs_shapes else offer

    def _looked(self, done: int, total: int) -> None:
        if done < total and time.monotonic() - self._told_at >= _TELL_EVERY:
            self._told_at = time.monotonic()
            self._observer.phase(f"looking where the backlog's files begin: {done:,} of {total:,}")

    def _bound(self, retried: frozenset[TableId], apart: frozenset[TableId] = frozenset()) -> Bound | None:
        """The size limit of the next cut; None without ``max_cut``."""
        limit, includes = self._options.max_cut, self._options.includes
        return bound_of(self._state, limit, includes, self._follows, retried, apart, self._looked) if limit else None

    def _follows(self, table_id: TableId) -> bool:
        """Whether the table is in the filter, or a schema change brings it there. True for every table before the first offer."""
        return self._options.includes(table_id) or self._followed is None or table_id in self._followed

    def _worth_another_look(self, problems: Iterable[Problem]) -> bool:
        """Whether to poll again soon, a few times at most: a torn or just replaced file may be complete within a second."""
        again = self._retries.looking_again(problems)
        if again is None:
            return False
        self._retries = again
        self._stopping.wait(_LOOK_PAUSE)
        return True

    def _is_done(self, offer: Offer) -> bool:
        if self._turns.goes_on or self._retries.moved or self._may_be_back or resyncs_due(self._state) or resets_asked(self._state):
            return False
        if self._options.until is not None and self._state.checkpoint >= self._options.until:
            return True  # even if the source has more
        # Parts of the offer that this run started with may still follow.
        if not self._options.once or offer.more:
            return False
        return offer.promised is None or (self._goal is not None and self._state.checkpoint >= self._goal)

    def _drain_when_quiet(self) -> bool:
        """Applies the source's final offer once nothing has changed for a while. True when the run is complete."""
        with telling(self._observer, "listing the source", _TELL_EVERY):
            mark, quiet = self._source.mark(self._state.position), self._options.quiet
        if mark != self._quiet.mark:
            self._quiet = self._quiet.seen(mark, time.monotonic())
            self._observer.phase(f"waiting until nothing changes for {quiet:g} s, to take what lies beyond the last checkpoint")
        left = self._quiet.left(quiet, time.monotonic())
        if left > 0:
            self._stopping.wait(min(left, self._options.poll_interval))
            return False
        # This is the last try for stopped tables, and without a watermark the only one.
        retried = all_stopped(self._state)
        self._observer.phase("looking where the files end")
        while not self.stopping:
            offer = self._poll(self._state.checkpoint, final=True, bound=self._bound(retried))
            self._tell(offer.notices)
            if offer.source_watermark < self._state.attempted:
                end, attempted = offer.source_watermark, self._state.attempted
                raise SourceNotReadyError(
                    f"The files end at {end}, but rows up to {attempted} may have been written before.",
                    "Bring back the files that were there then.",
                )
            self._plans_anew, before = False, self._state
            problems = self._apply(offer, retried)
            if self._plans_anew:
                continue
            if self._worth_another_look(problems):
                return False
            if offer.catches_up and not (problems or self._state.has_moved(before)):
                self._turns = Turns().offered(offer.catches_up).taken()
                self._tell(self._turns.notices())
                return True  # the next part would be the same part
            retried -= {problem.table_id for problem in problems}
            if offer.promised is None and not offer.more:
                if not self._retries.moved:
                    return True
                retried, self._retries = all_stopped(self._state), self._retries.settled()
        return False

    def _pause(self, offer: Offer) -> bool:
        if self._options.until_end:
            return self._drain_when_quiet()
        self._observer.caught_up(self._state.checkpoint)
        self._stopping.wait(self._options.poll_interval)
        return False

    def _wait_for_watermark(self, offer: Offer) -> None:
        """Reports that the source is behind a former attempt. Raises SourceNotReadyError with ``once``: such a run ends."""
        text = (
            f"the source is complete up to {format_tso(offer.watermark)} only, but rows up to "
            f"{format_tso(self._state.attempted)} may have been written before"
        )
        if self._options.once:
            raise SourceNotReadyError(f"{text[0].upper()}{text[1:]}.", "Run again when the source has reached that time.")
        self._tell((Notice(f"{text}; waiting until it reaches that time"),))

    def _tables_to_retry(self, *, told: bool) -> frozenset[TableId]:
        """Tables that catch up, that the filter includes again, or with a due resync, reset or retry (:class:`Retries`)."""
        tables = self._state.tables
        behind = frozenset(t for t, p in tables.items() if p.status is TableStatus.CATCHING_UP and self._options.includes(t))
        behind |= back(self._state, self._options.includes) | resyncs_due(self._state) | resets_asked(self._state)
        apart = self._turns.goes_on
        self._retries = self._retries.begun(self._state, time.monotonic(), told=told, apart=apart, every=_RETRY_STOPPED_EVERY)
        return behind | self._retries.tables(self._state)

    def _has_new_words(self) -> bool:
        """Whether the ledger has new decisions or requests. Copies all of them into the state."""
        if time.monotonic() - self._asked_at < _DECISIONS_EVERY:
            return False
        self._asked_at = time.monotonic()
        words = self._ledger.words(self._name)
        if words is None:
            return False
        fresh = {k: d for k, d in words.decisions.items() if self._decided.get(k) != d}
        self._decided = words.decisions
        asked = words.requests.keys() - self._asked
        self._asked = set(words.requests)
        self._state = replace(self._state, decisions=words.decisions, requests=words.requests)
        return bool(fresh or asked)

    def _follow(self, rows: Iterable[TableProgress]) -> None:
        """Moves the ledger's rows of these tables forward where the marks in the target are ahead of them."""
        self._serve(caught_up(self._state, rows, self._sink.table_marks, self._options.letters), of_tables=True)

    def _serve(self, carried: Carried | None, *, of_tables: bool = False) -> None:
        """Writes an update and reports its notices. ``of_tables``: it comes from the tables' own marks, which need no update."""
        if carried is not None:
            faults.before(Step.REQUESTS)
            if not of_tables:
                say_of_requests(self._state, carried.update.tables, self._sink.table_marks)
            self._ledger.update(carried.update)
            faults.after(Step.REQUESTS)
            self._state = carried.update.applied_to(self._state)
            self._sink.forget_tables([row.table_id for row in carried.update.tables])
            for notice in dict.fromkeys(carried.notices):  # every request is answered, even if the text was reported before
                self._observer.notice(notice)

    def _replay(self) -> None:
        """Carries out requests about dead letters."""
        options = self._options
        for request in [r for r in self._state.requests.values() if r.kind.is_of_letters and options.includes(r.table_id)]:
            if options.letters is None:
                told = "the request about its dead letters waits for a run with --dead-letters, which names their folder."
                self._tell((Notice(told, request.table_id),))
                continue
            if (waits := waits_for(self._state, request)) is not None:
                self._tell((waits,))
                continue
            if self.stopping:
                return
            replayer = Replayer(
                options.letters,
                self._source,
                self._sink,
                self._ledger,
                self._make_round,
                lambda offer: with_declared_keys(offer, options.keys),
                self._before_cut,
            )
            self._state, notice = replayer.carry_out(self._state, request)
            self._observer.notice(notice)

    def _apply(self, offer: Offer, retried: frozenset[TableId], apart: frozenset[TableId] = frozenset()) -> Iterable[Problem]:
        """Plans and applies one cut. Returns the problems that stopped tables in it."""
        self._follow(unknown(self._state, (s.table_id for s in offer.splits if self._options.includes(s.table_id))))
        if self._take_back(offer) or self._carry_out(offer):
            self._plans_anew = True  # the offer lacks files that are missing or read again, or it reaches too far
            return ()
        # While a table is stopped, users may load or repair it in the target.
        self._sink.forget_tables([t for t, own in self._state.tables.items() if own.status is not TableStatus.RUNNING])
        end = end_of(self._state, offer, apart, self._options.until)
        rules = replace(PlanRules.of(self._options, self._sink.capabilities), until=end, retried=retried, apart=apart)
        excluded: dict[TableId, Problem] = {}
        held: dict[TableId, Hold] = {}
        while True:
            cut = plan_cut(self._state, offer, replace(rules, excluded=excluded, held=held))
            if any(r.splits for r in cut.rounds):
                self._before_cut()
            if self.stopping:
                return ()
            self._observer.cut_started(cut)
            run = CutRun(
                cut,
                self._state,
                source=self._source,
                offer=offer,
                sink=self._sink,
                ledger=self._ledger,
                make_round=self._make_round,
                includes=self._options.includes,
                letters=self._options.letters if self._options.on_error is OnError.DEAD_LETTER else None,
            )
            try:
                record = run.run()
                break
            except TablesExcluded as found:
                self._sink.abandon_cut()
                excluded |= found.problems
                held |= found.held
            except BaseException:
                self._sink.abandon_cut()
                raise
        before, self._state = self._state, run.state
        self._may_be_ahead = bool(run.stopped)
        if self._learned is not None:
            gone = {t for t, own in self._state.tables.items() if own.status.is_gone}
            self._learned = self._learned.without(gone)
        ahead = {t for t in retried if before.table_checkpoint(t) > cut.hi} if offer.catches_up or apart else set()
        waiting = {t for t in retried if t in run.holds and concerns(run.holds[t].change, apart)}
        self._retries = self._retries.tried(retried - ahead - waiting).noting(before, self._state)
        if cut.hi < self._state.checkpoint:
            self._may_be_back |= any(own.status.is_gone and own != before.tables.get(t) for t, own in self._state.tables.items())
        nobodys = [change.unread for change in cut.waiting if change.unread is not None and not change.changes]
        self._waits = bool(nobodys)
        self._tell((*run.notices, *(Notice(f"{p.message} Its table is not known.", place=p.place) for p in nobodys)))
        self._told_stops = self._told_stops.telling(self._observer, run.stopped, before, self._state)
        self._observer.cut_finished(record, offer.source_watermark, offer.left_bytes)
        rested = {t for t, own in before.tables.items() if own.status.is_stopped} - retried
        return [problem for t, problem in run.stopped.items() if t not in rested]

    def _carry_out(self, offer: Offer) -> bool:
        """Carries out requests about tables. True if the source has to make a new offer before anything is planned."""
        asked, released = self._state, releases_to_judge(self._state)
        self._serve(take_up_holds(self._state, offer))
        options, applier = self._options, self._sink.metadata_applier
        anew = begin_anew(self._state, offer, self._source, options.includes, self._has_rows)
        self._serve(anew)
        carried = carry_out(
            self._state, offer, self._source, options.includes, lambda change: left_unique_key(change, self._state, applier)
        )
        if carried is not None and options.letters is not None:
            carried = replace(carried, update=recounted(carried.update, self._state, options.letters))
        self._serve(carried)
        if any(each is not None and each.reads_anew for each in (anew, carried)):
            self._learned = None  # so that files which now count as unread are offered again
            return True
        return bool(released) or has_let_go(asked, self._state) or self._end_incomplete(offer) is not None

    def _has_rows(self, table_id: TableId) -> bool:
        """Whether the target has rows of the table. True without a query if the sink has no ledger, because it keeps no tables."""
        if self._sink.ledger is None:
            return True
        present = self._sink.metadata_applier.describe(table_id)
        return present is not None and present.has_rows

    def _end_incomplete(self, offer: Offer) -> Carried | None:
        """Forgets missing files of tables that lack rows, if a change of the offer ends such a table; None if there are none."""
        ended = ending_incomplete(self._state, offer, self._options.includes)
        position, forgotten = self._state.position, frozenset[str]()
        if ended:
            position, forgotten = self._source.forget_vanished(position, offer, {}, ended)
        carried = Carried(LedgerUpdate(position=position)) if forgotten else None
        self._serve(carried)
        return carried

    def _missing(self, offer: Offer) -> Missing:
        return lambda table_id, since: self._source.missing(self._state.position, offer, table_id, since)

    def _take_back(self, offer: Offer) -> bool:
        """Lets tables catch up that the filter includes again, unless files may be gone; records what the cut passes over.

        True if the source has to make a new offer: that of a source that forgets was cut short for tables that have changed since.
        """
        before, missing, includes = self._state, self._missing(offer), self._options.includes
        if again := back(before, includes):
            self._serve(Carried(*taken_back(before, again, missing)))
        if not self._source.needs_shapes:
            return False
        self._serve(lose_gone(self._state, offer) if offer.gone else None)
        if self._state is not before:
            return True
        self._serve(note_late(self._state, offer))
        self._serve(note_passed(self._state, offer, includes, missing))
        self._serve(find_begun_untold(self._state, offer, self._source, includes))
        return False

    def _tell(self, notices: tuple[Notice, ...]) -> None:
        for notice in notices:
            if ((of := notice.table_id) is None or of.is_database or self._follows(of)) and self._told.add(notice):
                self._observer.notice(notice)

    def _failed(self, error: HeadraceError) -> None:
        """Waits before the next try and reads the ledger again. Keeps trying while the ledger is unreachable."""
        failure: HeadraceError | None = error
        while failure is not None:
            self._wait_after(failure)
            if isinstance(failure, SourceNotReadyError | SourceUnreachableError) and not self._farthest:
                return
            again = self._farthest or isinstance(failure, TargetWentBackError)
            failure = self._take_again(failure) if again else self._reload()

    def _wait_after(self, error: HeadraceError) -> None:
        """Waits, longer each time. Raises the error on the last try: in a run that is to end, or if jobs fail repeatedly."""
        self._tries = self._tries.failed()
        if self._tries.is_last(error, ends=self._options.once or self._options.until_end):
            raise error
        if self.stopping:
            self._observer.notice(Notice(f"the run ends, and its last cut failed: {error}"))
        else:
            pause = self._tries.pause(_FIRST_PAUSE, _LONGEST_PAUSE)
            self._observer.trying_again(str(error), pause)
            self._stopping.wait(pause)

    def _reload(self) -> HeadraceError | None:
        """Fences the tasks of a failed cut with a new attempt and reads the state again. Returns an error of the ledger."""
        try:
            self._forget_target()
            faults.before(Step.NEXT_ATTEMPT)
            self._ledger.next_attempt()
            faults.after(Step.NEXT_ATTEMPT)
            known = self._ledger.peek(self._name) or self._state
            # The cut may have been committed with its rows. Then tables that waited for tables of the cut are tried again.
            self._retries = self._retries.noting(self._state, known)
            self._state = known
            self._may_be_back = self._may_be_ahead = True
        except (TransientError, SinkUnreachableError) as error:
            return None if self.stopping else error
        return None

    def _take_again(self, why: HeadraceError) -> HeadraceError | None:
        """Continues from the ledger's present state, as a new run would. Returns the error if that is not possible yet."""
        self._learned = None
        self._forget_target()
        self._farthest = self._farthest or self._state.position
        try:
            if self._ledger.peek(self._name) is None:
                raise FencedError.forgotten(self._name)
            if isinstance(why, LedgerOutrunError):
                self._ledger.next_attempt()  # raises if another run has taken over; then this run ends here
            self._acquire(why.epoch if isinstance(why, LedgerOutrunError) else 0)
            position = self._source.missing_again(self._farthest, self._state.position)
            self._serve(Carried(LedgerUpdate(position=position)) if position != self._state.position else None)
            self._farthest = ""
        except (TransientError, SinkUnreachableError, SourceNotReadyError, SourceUnreachableError) as error:
            return None if self.stopping else error
        return None

    def _forget_target(self) -> None:
        """Discards what is known of the target and closes its connection: another server may have the address now."""
        self._sink.abandon_cut()
        self._ledger.close()
