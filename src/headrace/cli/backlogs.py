"""What ``headrace status`` shows of a stream: how far the pipeline is behind its ends, and how soon it removes what is needed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from headrace.cli.output import Output
from headrace.cli.progress import counted, seconds_text
from headrace.errors import HeadraceError
from headrace.model.backlog import PartitionBacklog, fields_of_backlog
from headrace.model.ledger import LedgerState
from headrace.sources.base import DataSource, LaggingSource

_PARTITIONS_SHOWN = 20
_COLUMNS = ("partition", "oldest needed", "read to", "end", "not read", "age", "kept for another")


def backlog_of(state: LedgerState, source: DataSource | None, output: Output) -> Sequence[PartitionBacklog] | None:
    """What the pipeline has yet to take of the source's partitions.

    ``None`` for a source without partitions, for that of another pipeline, and if the source cannot be reached, which is warned of.
    """
    if source is None or source.identity != state.source_identity or not isinstance(source, LaggingSource):
        return None
    try:
        return source.backlog(state.position)
    except HeadraceError as error:
        output.warning(f"How far the pipeline is behind the source's end is not known. {error.message} {error.hint}".rstrip())
        return None


def backlog_fields(found: Sequence[PartitionBacklog] | None) -> dict[str, object]:
    """A backlog as plain values, for machines; empty if there is none."""
    if found is None:
        return {}
    now_ms = int(time.time() * 1000)
    used = [of.kept.used(now_ms) for of in found if of.kept is not None]
    return {
        "records_behind": sum(of.behind for of in found),
        "retention_used": round(max(used), 3) if used else None,
        "partitions": [fields_of_backlog(of, now_ms) for of in found],
    }


def show_backlog(found: Sequence[PartitionBacklog], output: Output) -> None:
    """Prints the partitions that have something the pipeline still needs, those that are farthest behind first."""
    now_ms = int(time.time() * 1000)
    behind, partitions = sum(of.behind for of in found), [of for of in found if of.needed < of.end]
    output.line(f"not read yet: {counted(behind, 'record')} in {counted(sum(of.behind > 0 for of in found), 'partition')}")
    partitions.sort(key=lambda of: (-of.behind, of.partition))
    output.table("partitions with needed records", _COLUMNS, [_row(of, now_ms) for of in partitions[:_PARTITIONS_SHOWN]])
    if len(partitions) > _PARTITIONS_SHOWN:
        output.line(f"and {counted(len(partitions) - _PARTITIONS_SHOWN, 'partition')} more; --json has all of them")


def retention_warnings(found: Sequence[PartitionBacklog]) -> Iterator[str]:
    """A sentence for each partition that has lost needed records, or may lose them soon."""
    now_ms = int(time.time() * 1000)
    for of in found:
        if of.lost:
            yield f"partition {of.partition}: {counted(of.lost, 'needed record')} before offset {of.first} are not kept any more."
        if of.kept is not None and of.kept.ends_soon(now_ms):
            share = f"{of.kept.used(now_ms):.0%} of its retention is used up"
            left = of.kept.left_ms(now_ms)
            when = "" if left is None else f"; for its age it may be removed in {seconds_text(left / 1000)}"
            yield f"partition {of.partition}: offset {max(of.needed, of.first)} is still needed, and {share}{when}."


def _row(of: PartitionBacklog, now_ms: int) -> tuple[str, ...]:
    age = left = ""
    if of.kept is not None:
        age = "" if of.kept.written_ms is None else seconds_text(max(0, now_ms - of.kept.written_ms) / 1000)
        left_ms = of.kept.left_ms(now_ms)
        left = "no limit of age" if left_ms is None else seconds_text(left_ms / 1000)
    figures = (of.needed, of.read_to, of.end, of.behind)
    return (of.partition, *(f"{figure:,}" for figure in figures), age or "?", left or "?")
