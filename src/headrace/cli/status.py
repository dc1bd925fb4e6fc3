"""``headrace status``: shows what the ledger in a target records. Starts no JVM, writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from headrace.cli.backlogs import backlog_fields, backlog_of, retention_warnings, show_backlog
from headrace.cli.ledgers import require_place
from headrace.cli.output import Output
from headrace.cli.progress import NOTHING_APPLIED, checkpoint_text, counted, lag_seconds
from headrace.cli.remedies import is_held, ways_on
from headrace.cli.stopped_tables import needs, reads_stream, removal
from headrace.errors import DefinitionError
from headrace.model.backlog import PartitionBacklog
from headrace.model.ledger import CutRecord, JournalState, LedgerState, TableProgress, TableStatus
from headrace.model.tso import format_tso
from headrace.pipeline.assembly import Target
from headrace.sources.base import DataSource, caveats_of

_CUTS_SHOWN = 5
_LEFT_BEHIND = (
    "if its rows are now in a table of another name, repair them there by hand; then remove the letters "
    "(headrace replay-dead-letters --discard)"
)
_ROW_COLUMNS = ("rows", "netted", "written", "refused", "left", "passed")


def show_status(target: Target, name: str, output: Output, source: DataSource | None = None) -> int:
    """Prints each pipeline of the target's ledger, or only the named one. Raises DefinitionError if there is none.

    With ``source`` it also shows how far the pipeline is behind it, and warns about what is still needed and that the source will
    remove.
    """
    parts, of_stream = target.assembled(), reads_stream(source)
    with parts.opened() as ledger:
        names = [name] if name else ledger.pipelines()
        states = [state for state in (ledger.peek(each) for each in names) if state is not None]
        if not states:
            what = f"no pipeline named {name}" if name else "no pipeline's ledger"
            require_place(ledger, f"There is {what}")
            raise DefinitionError(f"{parts.sink.identity} holds {what}.", "The first headrace run creates it.")
        for caveat in caveats_of(source):
            output.warning(caveat)
        for state in states:
            backlog = backlog_of(state, source, output)
            if output.is_json:
                output.event("status", **status_fields(state, of_stream=of_stream), **backlog_fields(backlog))
            else:
                _print(state, parts.sink.identity, output, backlog, of_stream=of_stream)
            for told in retention_warnings(backlog or ()):
                output.warning(told)
            for table_id, held in needs(state, source).items() if source else ():
                if told := removal(held):
                    output.warning(f"table {table_id} is stopped: {told}.")
    return 0


def status_fields(state: LedgerState, *, of_stream: bool = False) -> dict[str, object]:
    """A ledger's state as plain values, for machines."""
    return {
        "pipeline": state.pipeline,
        "source": state.source_identity,
        "epoch": state.epoch,
        "checkpoint": state.checkpoint,
        "checkpoint_time": format_tso(state.checkpoint),
        "lag_seconds": round(lag_seconds(state.checkpoint), 1),
        "attempted": state.attempted,
        "tables": [
            {
                "table": str(p.table_id),
                "status": str(p.status),
                "checkpoint": state.table_checkpoint(t),
                "reason": p.reason,
                "lacks": p.lacks,
                "held": is_held(p, state),
                "goes_on": list(ways_on(p, state, of_stream=of_stream)),
            }
            for t, p in sorted(state.tables.items())
        ],
        "dead_letters": {str(t): count for t, count in sorted(state.dead_letters.items())},
        "pending_schema_changes": [e.statement for e in state.journal.values() if e.state is JournalState.PENDING],
        "running_schema_changes": [
            {"statement": e.statement, "since": e.since, "tables": [str(t) for t in e.tables]}
            for e in state.journal.values()
            if e.state is JournalState.RUNNING
        ],
        "cuts": [_cut_fields(cut) for cut in state.cuts[-_CUTS_SHOWN:]],
    }


def _cut_fields(cut: CutRecord) -> dict[str, object]:
    return {**asdict(cut), "exact": int(cut.precision.is_exact), "commit_ts": str(cut.precision)}


def _print(
    state: LedgerState, target: str, output: Output, backlog: Sequence[PartitionBacklog] | None = None, *, of_stream: bool = False
) -> None:
    output.line(f"pipeline {state.pipeline}: {state.source_identity} -> {target}")
    output.line(f"checkpoint {checkpoint_text(state.checkpoint)}" if state.checkpoint else NOTHING_APPLIED)
    if state.attempted > state.checkpoint:
        output.line(f"a cut up to {format_tso(state.attempted)} is unfinished: the target may be ahead of the checkpoint")
    if backlog is not None:
        show_backlog(backlog, output)
    if state.cuts and not (precision := state.cuts[-1].precision).is_exact:
        output.line(f"commit ts of the source's rows: {precision}; tables are consistent with each other only eventually")
    rows = [
        (str(t), str(p.status), _reached(state.table_checkpoint(t)), _reason(p, state))
        for t, p in sorted(state.tables.items())
        if p.status is not TableStatus.GONE and (p.status.is_stopped or not t.is_database)
    ]
    output.table("tables", ("table", "status", "checkpoint", "reason"), rows)
    for table_id, own in sorted(state.tables.items()):
        for way in ways_on(own, state, of_stream=of_stream):
            output.line(f"{table_id}: {way}")
    for table_id, count in sorted(state.dead_letters.items()):
        if table_id not in state.tables or state.tables[table_id].status.is_gone:
            output.line(f"{table_id}: dead letters: {count}, of a table that was dropped or renamed since; {_LEFT_BEHIND}")
    output.table(
        "last cuts",
        ("finished (UTC)", "up to", "pieces" if of_stream else "files", *_ROW_COLUMNS, "seconds"),
        [*map(_cut, state.cuts[-_CUTS_SHOWN:])],
    )


def _reached(checkpoint: int) -> str:
    return format_tso(checkpoint) if checkpoint else NOTHING_APPLIED


def _cut(cut: CutRecord) -> tuple[str, ...]:
    """One row of the table of cuts. The first of its row counts, the rows read, is the sum of the others."""
    rows = (cut.read_rows, cut.netted, cut.upserts + cut.deletes, cut.refused, cut.left, cut.passed)
    finished = cut.finished_at[:19].replace("T", " ")
    return (finished, format_tso(cut.hi), str(cut.files), *(f"{figure:,}" for figure in rows), f"{cut.seconds:.2f}")


def _reason(own: TableProgress, state: LedgerState) -> str:
    """The number of the table's dead letters, a hold, why it is stopped, and why rows may be missing."""
    count = state.dead_letters.get(own.table_id, 0)
    letters = f"dead letters: {counted(count, 'change')} that the target lacks" if count else ""
    hold = state.holds.get(own.table_id)
    held = "held" if is_held(own, state) else "a hold was asked for, and has not taken effect yet" if hold else ""
    lacks = f"rows may be missing: {own.lacks}" if own.lacks else ""
    return "; ".join(filter(None, (letters, held if own.status is not TableStatus.HELD else "", own.reason, lacks)))
