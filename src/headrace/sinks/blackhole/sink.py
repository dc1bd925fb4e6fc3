"""The blackhole sink: reads, decodes, nets and counts as for any target, and stores nothing."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.errors import DefinitionError
from headrace.model.block import KIND
from headrace.model.events import RowKind, SchemaChange
from headrace.model.outcome import Notice, WriteOutcome
from headrace.model.table import TableId
from headrace.model.uri import NO_OPTIONS, ConnectorOptions, parse_uri, reject_unknown
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
from headrace.sinks.stateless import StatelessSink
from headrace.sinks.table_by_table import outcomes_of


def open_sink(uri: str, options: ConnectorOptions = NO_OPTIONS) -> BlackholeSink:
    """The sink of ``blackhole://``.

    ``adopt`` and ``allow-non-transactional`` have no effect. Raises DefinitionError for a URI with anything after ``blackhole://``.
    """
    reject_unknown(options, SINK_OPTIONS, "option of blackhole://")
    parsed = parse_uri(uri)
    if parsed.host or parsed.path.strip("/") or parsed.params:
        raise DefinitionError("blackhole:// takes no host, path or parameters.", "Write it as blackhole://.")
    return BlackholeSink()


class BlackholeSink(StatelessSink):
    """A :class:`headrace.sinks.base.DataSink` that stores no data. Its progress is kept in a file ledger."""

    identity = "blackhole://"
    capabilities = SinkCapabilities(demand=ChangeDemand.NET, bags=True)

    def __init__(self) -> None:
        self.event_sink = BlackholeEventSink()
        self.metadata_applier = BlackholeMetadataApplier()

    def check(self) -> list[Check]:
        return [Check("blackhole", CheckState.OK, "changes are counted and dropped")]


class BlackholeEventSink:
    """Runs the tasks without the writing."""

    def write(self, round: Round) -> WriteReport:
        """Runs the round's job. The report says how much would have been written."""
        return round.write_in_tasks(CountingWriter())


class BlackholeMetadataApplier:
    """Accepts every schema change and does nothing."""

    def apply_schema_change(self, change: SchemaChange) -> tuple[Notice, ...]:
        """Nothing to do."""
        return ()

    def run_instead(self, change: SchemaChange, statement: str) -> tuple[Notice, ...]:
        """Nothing to do."""
        return ()

    def describe(self, table_id: TableId) -> TableDescription | None:
        """There are no tables."""
        return None

    def state_before(self, change: SchemaChange) -> str:
        """No state is kept."""
        return ""

    def begun(self, change: SchemaChange, state_before: str) -> Begun:
        """Repeating the change has no effect."""
        return Begun.REPEATABLE

    def keeps_unique(self, change: SchemaChange) -> str:
        """There are no tables."""
        return ""


class CountingWriter:
    """A :class:`headrace.sinks.base.UnitWriter` that only counts."""

    def open(self, context: WriterContext) -> None:
        """Nothing to connect to."""

    def write(self, changes: Iterable[TableChange], commit: CutCommit | None) -> list[WriteOutcome]:
        """Counts the changes. There is no ledger to commit."""
        return outcomes_of(changes, _outcome)

    def commits(self) -> tuple[Commits, ...]:
        """Nothing is committed in tasks."""
        return ()

    def close(self) -> None:
        """Nothing is open."""


def _outcome(change: TableChange) -> WriteOutcome:
    kinds = change.ordered.column(KIND).to_pylist()
    ordered_upserts = sum(RowKind(kind).is_upsert for kind in kinds)
    return WriteOutcome(
        change.table_id,
        upserts=change.upserts.num_rows + ordered_upserts,
        deletes=change.deletes.num_rows + len(kinds) - ordered_upserts,
    )
