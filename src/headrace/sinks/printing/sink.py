"""The print sink: tasks spool lines into the work place; the driver merges and prints them."""

from __future__ import annotations

import sys
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import groupby

import pyarrow.compute as pc

from headrace.errors import DefinitionError, SinkUnreachableError, TransientError
from headrace.model.block import KIND
from headrace.model.containment import contained
from headrace.model.events import RowKind, SchemaChange
from headrace.model.outcome import Notice, Problem, WriteOutcome
from headrace.model.table import TableId
from headrace.model.uri import NO_OPTIONS, ConnectorOptions, parse_uri, reject_unknown
from headrace.places.work_place import WorkPlace
from headrace.sinks.base import (
    SINK_OPTIONS,
    ChangeDemand,
    Check,
    CheckState,
    Commits,
    Round,
    SinkCapabilities,
    TableChange,
    WriterContext,
    WriteReport,
)
from headrace.sinks.cut_commit import CutCommit
from headrace.sinks.metadata_applier import Begun, TableDescription
from headrace.sinks.printing.lines import merge_spooled, merged_lines, row_lines, schema_change_line, spool
from headrace.sinks.stateless import StatelessSink


def open_sink(uri: str, options: ConnectorOptions = NO_OPTIONS) -> PrintSink:
    """The sink of ``print://``.

    ``adopt`` and ``allow-non-transactional`` have no effect. Raises DefinitionError for a URI with anything after ``print://``.
    """
    reject_unknown(options, SINK_OPTIONS, "option of print://")
    parsed = parse_uri(uri)
    if parsed.host or parsed.path.strip("/") or parsed.params:
        raise DefinitionError("print:// takes no host, path or parameters.", "Write it as print://.")
    return PrintSink()


class PrintSink(StatelessSink):
    """A :class:`headrace.sinks.base.DataSink`. After a crash, a cut is printed again, because output cannot be taken back."""

    identity = "print://"
    capabilities = SinkCapabilities(demand=ChangeDemand.ALL, owns_stdout=True, spools=True)

    def __init__(self) -> None:
        self.event_sink = PrintEventSink()
        self.metadata_applier = PrintMetadataApplier()

    def check(self) -> list[Check]:
        return [Check("standard output", CheckState.OK, "every change is printed as a JSON line")]


class PrintEventSink:
    """Prints a round once all of its tasks are done, so that a failed job prints nothing."""

    def __init__(self) -> None:
        self._rounds = 0

    def write(self, round: Round) -> WriteReport:
        """Prints the round's changes in commit order. Raises TransientError, SinkUnreachableError."""
        self._rounds += 1
        work, folder = round.work_place(), f"spool-{self._rounds}"
        try:
            report = round.write_in_tasks(SpoolingWriter(work, folder))
            print_lines(merged_lines(work, [key for outcome in report.outcomes for key in outcome.spooled]))
        finally:
            with suppress(TransientError):  # what is left goes with the run
                work.remove(folder)
        return replace(report, outcomes=tuple(replace(outcome, spooled=()) for outcome in report.outcomes))


class PrintMetadataApplier:
    """Prints schema changes, and accepts all of them."""

    def apply_schema_change(self, change: SchemaChange) -> tuple[Notice, ...]:
        """Prints the change. If the run dies at this point, the change is printed again."""
        print_lines([schema_change_line(change) + "\n"])
        return ()

    def run_instead(self, change: SchemaChange, statement: str) -> tuple[Notice, ...]:
        """Prints the change with the statement that a person wrote."""
        return self.apply_schema_change(replace(change, statement=statement))

    def describe(self, table_id: TableId) -> TableDescription | None:
        """An output has no tables."""
        return None

    def state_before(self, change: SchemaChange) -> str:
        """No state is kept."""
        return ""

    def begun(self, change: SchemaChange, state_before: str) -> Begun:
        """The change may be printed again."""
        return Begun.REPEATABLE

    def keeps_unique(self, change: SchemaChange) -> str:
        """An output has no tables."""
        return ""


class SpoolingWriter:
    """A :class:`headrace.sinks.base.UnitWriter` that writes one sorted file of lines for each unit."""

    def __init__(self, work: WorkPlace, folder: str) -> None:
        self._work, self._folder = work, folder

    def open(self, context: WriterContext) -> None:
        """There is nothing to connect to and nothing to fence, because only files named by an outcome are printed."""

    def write(self, changes: Iterable[TableChange], commit: CutCommit | None) -> list[WriteOutcome]:
        """Spools the changes; the first outcome names the file. There is no ledger to commit."""
        outcomes: list[WriteOutcome] = []
        keys: list[str] = []
        parts = f"{self._folder}/{uuid.uuid4().hex}"
        for table_id, pieces in groupby(changes, key=lambda change: change.table_id):
            begun, problems = len(outcomes), list[Problem]()
            key = f"{parts}/{begun}.jsonl"
            with contained(problems.append, table_id):
                spool(_lines(pieces, outcomes), self._work, key)
            if problems:
                outcomes[begun:] = [WriteOutcome(table_id, problem=problems[0])]
            else:
                keys.append(key)
        if keys:
            key = merge_spooled(self._work, keys, self._folder)
            outcomes[0] = replace(outcomes[0], spooled=(key,))
        return outcomes

    def commits(self) -> tuple[Commits, ...]:
        """Nothing is committed in tasks."""
        return ()

    def close(self) -> None:
        """Nothing stays open."""


def _lines(pieces: Iterable[TableChange], outcomes: list[WriteOutcome]) -> Iterator[str]:
    """The lines of a table's pieces. Appends the outcome of each piece to ``outcomes``."""
    for piece in pieces:
        outcomes.append(_outcome(piece))
        yield from row_lines(piece)


def _outcome(change: TableChange) -> WriteOutcome:
    """Counts every printed line: old images and deletes as deletes, all others as upserts."""
    kinds: Counter[RowKind] = Counter()
    for pair in pc.value_counts(change.ordered.column(KIND)).to_pylist():
        kinds[RowKind(pair["values"])] = pair["counts"]
    upserts = kinds[RowKind.INSERT] + kinds[RowKind.UPDATE_AFTER]
    return WriteOutcome(change.table_id, upserts=upserts, deletes=kinds.total() - upserts)


def print_lines(lines: Iterable[str]) -> int:
    """Writes lines to the standard output. Returns their number."""
    count = 0
    try:
        for line in lines:
            sys.stdout.write(line)
            count += 1
        sys.stdout.flush()
    except BrokenPipeError:
        raise SinkUnreachableError("The program that reads the standard output has ended.") from None
    return count
