"""``headrace inspect``: shows what a source contains and what is wrong with it. Starts no JVM, writes nothing."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict

from headrace.cli.output import Output
from headrace.cli.progress import seconds_text
from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED, DefinitionError
from headrace.model.inspection import Checkup, Finding, Inspection, PartitionInspection, Severity, TableInspection
from headrace.model.tso import format_tso
from headrace.pipeline.registry import open_source, source_options
from headrace.sources.base import InspectableSource

_EXAMPLES = 5
_PROGRESS_SECONDS = 2.0


def show_inspection(source: str, changefeed: str | None, rows: bool, output: Output) -> int:
    """Prints an inspection of a source. Raises SourceUnreachableError, DefinitionError."""
    found = _inspectable(source, changefeed).inspect(count_rows=rows)
    if output.is_json:
        output.event("inspection", **asdict(found))
        return EXIT_OK
    _show_contents(found, rows, output)
    for finding in found.findings:
        place = f" ({finding.file})" if finding.file else ""
        table = f"{finding.table_id}: " if finding.table_id else ""
        output.line(f"{finding.kind}: {table}{finding.message}{place}")
    if not found.findings:
        output.line("nothing wrong found")
    return EXIT_OK


def show_checkup(source: str, changefeed: str | None, output: Output) -> int:
    """Reads every file and prints what is wrong. Returns 3 when there were errors. Raises what :func:`show_inspection` raises."""
    found = _inspectable(source, changefeed).check(_progress(output))
    if output.is_json:
        for finding in found.findings:
            output.event("finding", **asdict(finding))
        contents = {name: value for name, value in asdict(found.inspection).items() if name != "findings"}
        counts = [{"kind": kind, "severity": severity, "count": count} for (kind, severity), count in found.counts.items()]
        output.event("inspection", **contents, findings=counts)
    else:
        _show_contents(found.inspection, True, output)
        _show_findings(found, output)
    return EXIT_TABLE_STOPPED if found.errors else EXIT_OK


def _inspectable(uri: str, changefeed: str | None) -> InspectableSource:
    source = open_source(uri, source_options(changefeed))
    if not isinstance(source, InspectableSource):
        raise DefinitionError(f"{source.identity} cannot be inspected.", "headrace inspect does not support sources of this kind.")
    return source


def _progress(output: Output) -> Callable[[int, int], None]:
    """Reports from time to time how far a check is. For people it goes to standard error, so that a redirected report is clean."""
    told = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal told
        if time.monotonic() - told < _PROGRESS_SECONDS:
            return
        told = time.monotonic()
        if output.is_json:
            output.event("progress", phase="checking", files_done=done, files_total=total)
        else:
            sys.stderr.write(f"checked {done:,} of {total:,} files\n")

    return tell


def _show_contents(found: Inspection, rows: bool, output: Output) -> None:
    output.line(f"{found.place} ({found.protocol}, commit ts: {found.commit_ts})")
    output.line(_checkpoint_text(found))
    output.line(f"databases: {', '.join(found.databases) or 'none'}")
    if found.partitions:
        rows_of = [_partition_row(partition) for partition in found.partitions]
        output.table("partitions", ("partition", "first offset", "end", "tables", "watermark", "lag"), rows_of)
    columns = ("table", "versions", "files", "bytes", "rows") if rows else ("table", "versions", "files", "bytes")
    output.table("tables", columns, [_table_row(table, rows) for table in found.tables])
    versions = [
        (str(table.table_id), version.version, version.files, version.statement or "(shape only)")
        for table in found.tables
        for version in table.versions
    ]
    output.table("versions", ("table", "version", "files", "schema change"), versions)


def _show_findings(found: Checkup, output: Output) -> None:
    """Prints the findings, the most severe first: each kind with its count and the first few examples."""
    for severity in (Severity.ERROR, Severity.WARNING, Severity.INFO):
        examples = _by_kind(finding for finding in found.findings if finding.severity is severity)
        for kind, kept in examples.items():
            count = found.counts[kept[0].kind, severity]
            output.line(f"{severity}: {kind}: {count:,} found")
            for finding in kept[:_EXAMPLES]:
                output.line(f"  {_finding_text(finding)}")
            if count > _EXAMPLES:
                output.line(f"  … and {count - min(_EXAMPLES, len(kept)):,} more")
    if not found.counts:
        output.line("nothing wrong found")


def _by_kind(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    kinds: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        kinds[finding.kind].append(finding)
    return kinds


def _finding_text(finding: Finding) -> str:
    """A finding's sentence and its place. A sentence that begins with the table already contains the place."""
    if finding.message.startswith(("table ", "database ")):
        return finding.message
    if finding.table_id is None:
        return finding.message + (f" ({finding.file})" if finding.file and finding.file not in finding.message else "")
    parts = [finding.file] if finding.file else []
    parts += [f"line {finding.line}"] if finding.line is not None else []
    parts += [f"commit ts {finding.commit_ts}"] if finding.commit_ts is not None else []
    return f"table {finding.table_id}: {finding.message}" + (f" ({', '.join(parts)})" if parts else "")


def _checkpoint_text(found: Inspection) -> str:
    if found.checkpoint is None or found.lag_seconds is None:
        return "checkpoint: none yet, so nothing can be applied"
    return f"checkpoint {format_tso(found.checkpoint)} ({found.checkpoint}), lag {seconds_text(found.lag_seconds)}"


def _partition_row(of: PartitionInspection) -> tuple[object, ...]:
    lag = "" if of.lag_seconds is None else seconds_text(of.lag_seconds)
    return (of.partition, of.first, of.end, len(of.tables), "none" if of.watermark is None else format_tso(of.watermark), lag)


def _table_row(table: TableInspection, rows: bool) -> tuple[object, ...]:
    name = str(table.table_id) + ("" if table.exists else " (gone)")
    cells: tuple[object, ...] = (name, len(table.versions), table.files, table.bytes)
    return (*cells, table.rows if table.rows is not None else "?") if rows else cells
