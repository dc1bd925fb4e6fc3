"""Pipelines in Python programs: what ``import headrace`` offers.

    import headrace

    result = headrace.run("s3://bucket/prefix?protocol=csv", "mysql://repl:${PASSWORD}@db:3306/")
    print(result.checkpoint_time, result.stopped)

A run needs Java and starts Spark, as ``headrace run`` does. Nothing is printed: pass a :class:`Progress` to be notified of each
step. Failures raise a subclass of :class:`HeadraceError`. The exception is a failure of a single table: that table stops, and the
result contains the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from inspect import signature
from os import PathLike
from pathlib import Path
from typing import ParamSpec, Self, TypeVar

from headrace.engine.keys import DeclaredKeys
from headrace.engine.run_options import MAX_CUT, RunOptions
from headrace.errors import EXIT_INTERRUPTED, DefinitionError
from headrace.model.cut import Cut
from headrace.model.ledger import CutRecord, LedgerState, TableStatus
from headrace.model.outcome import Notice, Problem
from headrace.model.policy import OnError, SchemaChangePolicies
from headrace.model.table import TableId
from headrace.model.tso import parse_tso, tso_from_datetime, tso_to_datetime
from headrace.model.uri import near_match
from headrace.pipeline.assembly import DEFAULT_LEDGER, DEFAULT_SINK
from headrace.pipeline.definition import Settings, parse_bytes, parse_count, parse_seconds, read_settings
from headrace.pipeline.runner import PipelineRun

_P = ParamSpec("_P")
_R = TypeVar("_R")

Moment = int | str | datetime
"""A point of TiDB's time: a TSO, ISO time as text, or a ``datetime`` with a time zone."""


class Progress:
    """Callbacks for the steps of a run. Override the methods that you need. The run calls them from its own threads.

    An exception that a method raises ends the run.
    """

    def phase(self, text: str) -> None:
        """A step that may take a while begins. ``text`` is for people: "starting Spark"."""

    def cut_finished(self, cut: CutRecord) -> None:
        """A cut (one step of a run, up to one TSO) is applied and durable.

        - ``cut.hi``: the TSO up to which the cut went;
        - ``cut.files``, ``read_rows``, ``upserts``, ``deletes``, ``read_bytes``, ``schema_changes``: what the cut contained;
        - ``cut.seconds``: how long it took;
        - ``cut.finished_at``: when it ended (ISO time in UTC).
        """

    def caught_up(self, checkpoint: int) -> None:
        """Everything that the source has published up to ``checkpoint`` (TSO) is applied. Only a run that follows says so."""

    def table_stopped(self, problem: Problem) -> None:
        """A table stopped; the other tables go on.

        - ``problem.sentence()`` says where and why, and what to do;
        - ``problem.table_id`` has ``database`` and ``table``;
        - ``problem.message`` and ``problem.hint`` are texts;
        - ``problem.file`` is the name of the file, or empty if the problem is not in a file.
        """

    def table_resumed(self, table: str) -> None:
        """A stopped table goes on. ``table`` is its name: ``database.table``, or only the database."""

    def notice(self, notice: Notice) -> None:
        """A warning that stops nothing.

        ``notice.sentence()`` is its text. ``notice.table_id`` is the table, or ``None`` if the notice does not concern one table.
        """

    def trying_again(self, reason: str, seconds: float) -> None:
        """The source or the target failed temporarily. ``reason`` is a sentence; the run tries again after ``seconds``."""


_ARGUMENTS_OF_RUN = ("follow", "until", "until_end", "quiet", "start", "progress")
_ELSEWHERE = {
    "once": "Leave it out: a run ends by itself unless follow=True is passed.",
    "json": "Leave it out: nothing is printed. Pass an object as progress to be told of each step.",
}
"""Options of the command line that the Python calls do not have, with what to do instead."""


def _refusing_unknown(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wraps the function: for an unknown argument it raises DefinitionError and suggests the name that may be meant."""
    known = [name for name in signature(function).parameters if name != "self"]

    @wraps(function)
    def called(*arguments: _P.args, **settings: _P.kwargs) -> _R:
        _refuse_unknown(settings, known)
        return function(*arguments, **settings)

    return called


def _refuse_unknown(names: Collection[str], known: Collection[str]) -> None:
    for name in names:
        if name in known:
            continue
        hint = _ELSEWHERE.get(name) or near_match(name, known)
        if name in _ARGUMENTS_OF_RUN:
            hint = f"Pass it to the run: Pipeline(…).run({name}=…)."
        raise DefinitionError(f"Unknown setting {name!r}.", hint)


@dataclass(frozen=True)
class TableState:
    """The state of one table."""

    name: str
    """``database.table``."""
    status: TableStatus
    checkpoint: int
    """TSO up to which the table's changes are applied."""
    reason: str = ""
    """Why the table is stopped; empty for a running table."""
    dead_letters: int = 0
    """How many of its changes were not applied and are in the dead-letter folder."""
    lacks: str = ""
    """Why rows may be missing that arrived too late to be applied; empty if there is no sign of that."""

    @property
    def is_stopped(self) -> bool:
        """Whether the table needs an action: a repair, a decision, a resync, or the release of a hold."""
        return self.status.is_stopped


@dataclass(frozen=True)
class PipelineState:
    """What the ledger in the target records of a pipeline."""

    name: str
    checkpoint: int
    """TSO up to which all changes of the running tables are applied."""
    tables: tuple[TableState, ...]
    """Sorted by name: the tables that a schema change named, and those with a checkpoint other than the pipeline's.

    Tables that are gone are left out.
    """
    cuts: tuple[CutRecord, ...]
    """The last cuts, oldest first."""

    @property
    def checkpoint_time(self) -> datetime:
        """The checkpoint in UTC."""
        return tso_to_datetime(self.checkpoint)

    @property
    def stopped(self) -> tuple[TableState, ...]:
        """The tables that are stopped."""
        return tuple(table for table in self.tables if table.is_stopped)


@dataclass(frozen=True)
class RunResult:
    """What a run did, and the state of the pipeline at its end."""

    state: PipelineState
    cuts: tuple[CutRecord, ...]
    """The cuts of this run, oldest first, each with its rows, bytes and seconds."""
    notices: tuple[Notice, ...]
    problems: tuple[Problem, ...]
    """Why tables stopped during this run. Some may have gone on since; ``stopped`` has the tables that are stopped now."""
    interrupted: bool = False
    """Whether a signal or :meth:`Pipeline.stop` ended the run before it was done."""

    @property
    def checkpoint(self) -> int:
        """TSO up to which all changes of the running tables are applied."""
        return self.state.checkpoint

    @property
    def checkpoint_time(self) -> datetime:
        """The checkpoint in UTC."""
        return self.state.checkpoint_time

    @property
    def tables(self) -> tuple[TableState, ...]:
        """See :attr:`PipelineState.tables`."""
        return self.state.tables

    @property
    def stopped(self) -> tuple[TableState, ...]:
        """The tables that are stopped; the others are up to date."""
        return self.state.stopped


class Pipeline:
    """Where changes come from, where they go, and how. A pipeline may run many times, one run at a time.

    Its progress is stored in the target under its name, so another process with the same definition continues from there.
    """

    @_refusing_unknown
    def __init__(
        self,
        source: str,
        sink: str = DEFAULT_SINK,
        *,
        name: str = "default",
        changefeed: str | PathLike[str] | None = None,
        schema_from: str | PathLike[str] | None = None,
        tables: str = "",
        keys: Mapping[str, Sequence[str]] | Sequence[str] | None = None,
        schema_changes: Mapping[str, str] | str | None = None,
        on_error: str = "stop",
        dead_letters: str | PathLike[str] | None = None,
        max_dead_letters: int | str | None = None,
        adopt: bool = False,
        allow_non_transactional: bool = False,
        strict: bool = False,
        poll_interval: float | str = 1.0,
        max_cut: int | str = MAX_CUT,
        ledger: str | PathLike[str] = DEFAULT_LEDGER,
        work: str | PathLike[str] | None = None,
        spark: Mapping[str, str] | None = None,
    ) -> None:
        """``source`` and ``sink`` are URIs. Every other setting is the option of ``headrace run`` with that name.

        - ``poll_interval`` is in seconds, or a text such as ``"500ms"``;
        - ``max_cut`` is in bytes (0: no limit), or a text such as ``"512MiB"``;
        - ``keys`` is ``{"shop.orders": ["order_no"]}``, or a text such as ``"shop.orders=order_no"``;
        - ``schema_changes`` is ``{"drop-table": "approve"}``, or a text such as ``"drop-table=approve"``.

        Opens no connection. Raises DefinitionError.
        """
        _require_texts({"source": source, "sink": sink, "name": name, "tables": tables, "on_error": on_error})
        if on_error not in set(OnError):
            raise DefinitionError(f"{on_error!r} is not a valid value for on_error.", "Use 'stop' or 'dead-letter'.")
        self._settings = Settings(
            source=source,
            sink=sink,
            name=name,
            changefeed=_path(changefeed),
            schema_from=_path(schema_from),
            tables=tables,
            keys=_keys(keys or {}),
            policies=_policies(schema_changes or {}),
            on_error=OnError(on_error),
            dead_letters=_path(dead_letters),
            max_dead_letters=parse_count(max_dead_letters) if isinstance(max_dead_letters, str) else max_dead_letters,
            adopt=adopt,
            allow_non_transactional=allow_non_transactional,
            strict=strict,
            poll_interval=_seconds(poll_interval),
            max_cut=parse_bytes(max_cut) if isinstance(max_cut, str) else max_cut,
            ledger=_path(ledger),
            work=_path(work),
            spark=dict(spark or {}),
        )
        self._check()

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Self:
        """The pipeline of a definition file (YAML). Raises DefinitionError, which names the wrong line."""
        pipeline = cls.__new__(cls)
        pipeline._settings = read_settings(Path(path))
        pipeline._check()
        return pipeline

    def _check(self) -> None:
        self._running: PipelineRun | None = None
        self._settings.definition(RunOptions())

    def __repr__(self) -> str:
        return f"Pipeline(name={self.name!r})"  # URIs may hold passwords

    @property
    def name(self) -> str:
        """The pipeline's name in the ledger."""
        return self._settings.name or "default"

    @_refusing_unknown
    def run(
        self,
        *,
        follow: bool = False,
        until: Moment | None = None,
        until_end: bool = False,
        quiet: float | str = 10.0,
        start: Moment | None = None,
        progress: Progress | None = None,
    ) -> RunResult:
        """Applies what the source has published, and returns when that is done.

        Args:
            follow: go on with what is published later, until a signal or :meth:`stop` ends the run.
            until: stop when everything up to this moment is applied.
            until_end: the changefeed is finished. Once nothing has changed for ``quiet`` seconds, also apply what lies beyond its
                last checkpoint.
            quiet: see ``until_end``.
            start: begin after this moment. The target must hold a snapshot of it. Only for the first run of a pipeline.
            progress: its methods are called at each step.

        On the main thread the first SIGINT or SIGTERM lets the current cut finish. Raises a HeadraceError if the run cannot go on:
        the source or the target cannot be reached, another run took over, or Spark failed repeatedly.
        """
        if until is not None and until_end:
            raise DefinitionError("until and until_end exclude each other.", "A run ends at one of them.")
        options = RunOptions(
            once=not (follow or until_end or until is not None),
            until=_tso(until, "until"),
            until_end=until_end,
            quiet=_seconds(quiet),
            start=_tso(start, "start"),
        )
        recorder = _Recorder(progress or Progress())
        run = PipelineRun(self._settings.definition(options), recorder)
        self._running = run
        try:
            code = run.run()
        finally:
            self._running = None
        state = _state(run.state)
        return RunResult(state, tuple(recorder.cuts), tuple(recorder.notices), tuple(recorder.problems), code == EXIT_INTERRUPTED)

    def stop(self) -> None:
        """Ends the current run after its current cut. May be called from any thread and from a progress method."""
        if (run := self._running) is not None:
            run.stop()

    def state(self) -> PipelineState | None:
        """What the ledger in the target records; ``None`` if the pipeline has not run yet. Starts no Spark and changes nothing.

        Raises SinkUnreachableError, LedgerUnreadableError.
        """
        with self._settings.target.assembled().opened() as ledger:
            known = ledger.peek(self.name)
        return None if known is None else _state(known)


def run(
    source: str,
    sink: str = DEFAULT_SINK,
    *,
    follow: bool = False,
    until: Moment | None = None,
    until_end: bool = False,
    quiet: float | str = 10.0,
    start: Moment | None = None,
    progress: Progress | None = None,
    **settings: object,
) -> RunResult:
    """Applies what the source has published to the target, and returns.

    A short form of ``Pipeline(source, sink, **settings).run(…)``; ``run`` gets the other arguments. The default ``sink`` is the
    DuckDB file ``headrace.duckdb``.
    """
    _refuse_unknown(settings, [*list(signature(Pipeline).parameters), *_ARGUMENTS_OF_RUN])
    pipeline = Pipeline(source, sink, **settings)  # type: ignore[arg-type]
    return pipeline.run(follow=follow, until=until, until_end=until_end, quiet=quiet, start=start, progress=progress)


@dataclass
class _Recorder:
    """Records the events of a run, and passes them on."""

    progress: Progress
    cuts: list[CutRecord] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def phase(self, text: str) -> None:
        self.progress.phase(text)

    def cut_started(self, cut: Cut) -> None:
        """Nothing: :class:`Progress` is notified when the cut is finished."""

    def cut_finished(self, record: CutRecord, watermark: int, left_bytes: int = 0) -> None:
        self.cuts.append(record)
        self.progress.cut_finished(record)

    def caught_up(self, checkpoint: int) -> None:
        self.progress.caught_up(checkpoint)

    def table_stopped(self, problem: Problem) -> None:
        self.problems.append(problem)
        self.progress.table_stopped(problem)

    def table_resumed(self, table_id: TableId) -> None:
        self.progress.table_resumed(str(table_id))

    def notice(self, notice: Notice) -> None:
        self.notices.append(notice)
        self.progress.notice(notice)

    def trying_again(self, reason: str, seconds: float) -> None:
        self.progress.trying_again(reason, seconds)

    def tick(self, files: int, rows: int) -> None:
        """Nothing is shown."""


def _state(known: LedgerState) -> PipelineState:
    return PipelineState(known.pipeline, known.checkpoint, tuple(_tables(known)), known.cuts)


def _tables(known: LedgerState) -> Iterable[TableState]:
    for table_id, own in sorted(known.tables.items()):
        if own.status is not TableStatus.GONE and (own.status.is_stopped or not table_id.is_database):
            letters = known.dead_letters.get(table_id, 0)
            yield TableState(str(table_id), own.status, known.table_checkpoint(table_id), own.reason, letters, own.lacks)


def _require_texts(values: Mapping[str, object]) -> None:
    for name, value in values.items():
        if not isinstance(value, str):
            hint = "Write all patterns as one: 'shop.*,!shop.tmp_*'." if name == "tables" else ""
            raise DefinitionError(f"{name} must be a text, and is a {type(value).__name__}.", hint)


def _keys(keys: Mapping[str, Sequence[str]] | Sequence[str]) -> DeclaredKeys:
    if isinstance(keys, Mapping):
        named = {t: [c.strip() for c in columns.split(",")] if isinstance(columns, str) else columns for t, columns in keys.items()}
        return DeclaredKeys.parse(named)
    return DeclaredKeys.parse_texts([keys] if isinstance(keys, str) else keys)


def _policies(changes: Mapping[str, str] | str) -> SchemaChangePolicies:
    return SchemaChangePolicies.parse_text(changes) if isinstance(changes, str) else SchemaChangePolicies.parse(changes)


def _seconds(duration: float | str) -> float:
    return parse_seconds(duration) if isinstance(duration, str) else duration


def _path(path: str | PathLike[str] | None) -> str | None:
    return None if path is None else str(path)


def _tso(moment: Moment | None, name: str) -> int | None:
    if moment is None or isinstance(moment, int):
        return moment
    try:
        if isinstance(moment, datetime):
            if moment.tzinfo is None:
                raise ValueError(f"{moment.isoformat()} has no time zone")
            return tso_from_datetime(moment)
        return parse_tso(moment)
    except ValueError as error:
        raise DefinitionError(f"{name}: {error}.") from None
