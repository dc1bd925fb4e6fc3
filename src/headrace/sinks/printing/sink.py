"""The print sink: tasks spool lines into a folder that they share with the driver, the driver merges and prints them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc

from headrace.errors import DefinitionError, SinkUnreachableError
from headrace.model.block import KIND
from headrace.model.events import RowKind, SchemaChange
from headrace.model.outcome import Notice, WriteOutcome
from headrace.model.table import TableId
from headrace.model.uri import NO_OPTIONS, ConnectorOptions, parse_uri, reject_unknown
from headrace.scratch import Scratch
from headrace.sinks.base import (
    SINK_OPTIONS,
    Begun,
    ChangeDemand,
    Check,
    CheckState,
    Round,
    SinkCapabilities,
    TableChange,
    TableDescription,
    WriterContext,
    WriteReport,
)
from headrace.sinks.cut_commit import CutCommit
from headrace.sinks.printing.lines import merged_lines, row_lines, schema_change_line, spool, spool_file
from headrace.sinks.stateless import StatelessSink


def open_sink(uri: str, options: ConnectorOptions = NO_OPTIONS) -> PrintSink:
    """The sink of ``print://``.

    There is nothing to adopt, and nothing to roll back. Raises DefinitionError for a URI with anything behind that.
    """
    reject_unknown(options, SINK_OPTIONS, "option of print://")
    parsed = parse_uri(uri)
    if parsed.host or parsed.path.strip("/") or parsed.params:
        raise DefinitionError("print:// takes no host, path or parameters.", "Write it as print://.")
    return PrintSink()


class PrintSink(StatelessSink):
    """A :class:`headrace.sinks.base.DataSink`. After a crash the cut is printed again: a pipe cannot take anything back."""

    identity = "print://"
    capabilities = SinkCapabilities(demand=ChangeDemand.ALL, owns_stdout=True)

    def __init__(self) -> None:
        self.event_sink = PrintEventSink()
        self.metadata_applier = PrintMetadataApplier()

    def check(self) -> list[Check]:
        return [Check("standard output", CheckState.OK, "every change is printed as a JSON line")]


class PrintEventSink:
    """Prints a round once all of its tasks are done, so that a failed job prints nothing."""

    def write(self, round: Round) -> WriteReport:
        """Prints the round's changes in commit order. Raises SinkUnreachableError when tasks run on other machines."""
        with Scratch.make("print") as scratch:
            report = round.write_in_tasks(SpoolingWriter(scratch.path))
            printed = print_lines(merged_lines(sorted(scratch.path.glob("*.jsonl"))))
        written = sum(outcome.upserts + outcome.deletes for outcome in report.outcomes)
        if printed < written:
            raise SinkUnreachableError(
                f"print:// received {printed} of {written} lines, because tasks ran on other machines.",
                "Use print:// with Spark in local mode.",
            )
        return report


class PrintMetadataApplier:
    """Prints schema changes, and accepts all of them."""

    def apply_schema_change(self, change: SchemaChange) -> tuple[Notice, ...]:
        """Prints the change. After a crash in this moment it is printed again."""
        print_lines([schema_change_line(change) + "\n"])
        return ()

    def run_instead(self, change: SchemaChange, statement: str) -> tuple[Notice, ...]:
        """Prints the change with the statement that a person wrote."""
        return self.apply_schema_change(replace(change, statement=statement))

    def describe(self, table_id: TableId) -> TableDescription | None:
        """There are no tables in an output."""
        return None

    def state_before(self, change: SchemaChange) -> str:
        """Nothing has to be kept."""
        return ""

    def begun(self, change: SchemaChange, state_before: str) -> Begun:
        """It is printed again."""
        return Begun.REPEATABLE

    def keeps_unique(self, change: SchemaChange) -> str:
        """There are no tables in an output."""
        return ""


class SpoolingWriter:
    """A :class:`headrace.sinks.base.UnitWriter` that writes one sorted file of lines each time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._slot = 0
        self._count = 0

    def open(self, context: WriterContext) -> None:
        """Takes the slot's name for its files; on another machine it makes the folder, where the driver will miss it."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._slot, self._count = context.slot, 0

    def write(self, changes: Sequence[TableChange], commit: CutCommit | None) -> list[WriteOutcome]:
        """Spools the changes. There is no ledger to commit."""
        lines = [line for change in changes for line in row_lines(change)]
        if lines:
            spool(lines, spool_file(self._folder, self._slot, self._count))
            self._count += 1
        return [_outcome(change) for change in changes]

    def commits(self) -> None:
        """Nothing is committed in tasks."""

    def close(self) -> None:
        """Nothing stays open."""


def _outcome(change: TableChange) -> WriteOutcome:
    """Counts every printed line: old images and deletes as deletes, the others as upserts."""
    kinds: Counter[RowKind] = Counter()
    for pair in pc.value_counts(change.ordered.column(KIND)).to_pylist():
        kinds[RowKind(pair["values"])] = pair["counts"]
    upserts = kinds[RowKind.INSERT] + kinds[RowKind.UPDATE_AFTER]
    return WriteOutcome(change.table_id, upserts=upserts, deletes=kinds.total() - upserts)


def print_lines(lines: Iterable[str]) -> int:
    """Writes lines to the standard output; returns how many."""
    count = 0
    try:
        for line in lines:
            sys.stdout.write(line)
            count += 1
        sys.stdout.flush()
    except BrokenPipeError:
        raise SinkUnreachableError("The reader of the standard output has gone.") from None
    return count
