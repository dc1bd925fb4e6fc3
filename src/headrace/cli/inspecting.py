"""``headrace inspect``: what is in a changefeed's folder, and what is wrong in there. Starts no JVM, writes nothing."""

from __future__ import annotations

from dataclasses import asdict

from headrace.cli.output import Output
from headrace.cli.progress import seconds_text
from headrace.errors import EXIT_OK
from headrace.model.tso import format_tso
from headrace.sources.ticdc_storage.inspection import Inspection, TableInspection, inspect


def show_inspection(source: str, changefeed: str | None, rows: bool, output: Output) -> int:
    """Prints an inspection of the folder. Raises SourceUnreachableError, DefinitionError."""
    found = inspect(source, changefeed, rows)
    if output.is_json:
        output.event("inspection", **asdict(found))
        return EXIT_OK
    output.line(f"{found.place} ({found.protocol})")
    output.line(_checkpoint_text(found))
    output.line(f"databases: {', '.join(found.databases) or 'none'}")
    columns = ("table", "versions", "files", "bytes", "rows") if rows else ("table", "versions", "files", "bytes")
    output.table("tables", columns, [_table_row(table, rows) for table in found.tables])
    versions = [
        (str(table.table_id), version.version, version.files, version.statement or "(shape only)")
        for table in found.tables
        for version in table.versions
    ]
    output.table("versions", ("table", "version", "files", "schema change"), versions)
    for finding in found.findings:
        place = f" ({finding.file})" if finding.file else ""
        table = f"{finding.table_id}: " if finding.table_id else ""
        output.line(f"{finding.kind}: {table}{finding.message}{place}")
    if not found.findings:
        output.line("nothing wrong found")
    return EXIT_OK


def _checkpoint_text(found: Inspection) -> str:
    if found.checkpoint is None or found.lag_seconds is None:
        return "checkpoint: none yet, so nothing can be applied"
    return f"checkpoint {format_tso(found.checkpoint)} ({found.checkpoint}), lag {seconds_text(found.lag_seconds)}"


def _table_row(table: TableInspection, rows: bool) -> tuple[object, ...]:
    name = str(table.table_id) + ("" if table.exists else " (gone)")
    cells: tuple[object, ...] = (name, len(table.versions), table.files, table.bytes)
    return (*cells, table.rows if table.rows is not None else "?") if rows else cells
