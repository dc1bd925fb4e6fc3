"""What a run says of records of a stream that it cannot use: of no table, or of a time that has not come yet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from headrace.model.commands import skip_command
from headrace.model.outcome import Notice, Problem
from headrace.model.place import PlaceInStream
from headrace.model.table import NOBODYS, TableId
from headrace.model.tso import tso_and_time
from headrace.sources.stream.staged import Staged


def records_of_no_table(problems: Iterable[Problem]) -> Iterator[Notice]:
    """The first record of each partition that holds up everything behind it, with the command that gives it up.

    ``problems`` of tables are left out.
    """
    found: dict[str, list[tuple[PlaceInStream, str]]] = defaultdict(list)
    for problem in problems:
        if not problem.table_id.table and isinstance(problem.place, PlaceInStream):
            found[problem.place.partition].append((problem.place, problem.message))
    for records in found.values():
        place, message = min(records, key=lambda record: record[0].offset)
        more = " There are more such records behind it." if len(records) > 1 else ""  # their number would change at each poll
        yield Notice(
            f"{place}: {message} The record's table is unknown, so nothing behind it in this partition is applied.{more} Check "
            "that the source's URI names the right stream and format. If the record's changes are not wanted, give it up with "
            f"{skip_command(NOBODYS, place)}."
        )


def watermarks_ahead(staged: Staged) -> Iterator[Notice]:
    """Watermarks that are not used, because they lie in the future."""
    for report in staged.reports:
        for offset, watermark in report.ahead:
            yield Notice(
                f"{PlaceInStream(report.range.partition, offset)}: the watermark ({tso_and_time(watermark)}) lies too far "
                "ahead of this machine's clock, so it is not used. Correct the clock if it is wrong, and start the run again."
            )


def changes_ahead(staged: Staged, latest: int) -> Iterator[Problem]:
    """Problems of tables with changes above ``latest`` (TSO), which no source can have committed yet; they do not set the end."""
    for table_id, commit_ts, place in _changes_above(staged, latest):
        message = f"a change's commit ts ({tso_and_time(commit_ts)}) lies too far ahead of this machine's clock."
        yield Problem(table_id, message, place, hint="Correct the clock if it is wrong. Else give the record up.")


def waiting_changes(staged: Staged, latest: int) -> Iterator[Notice]:
    """Changes above ``latest`` (TSO), which wait until that time comes."""
    for table_id, commit_ts, place in _changes_above(staged, latest):
        yield Notice(
            f"a change's commit ts ({tso_and_time(commit_ts)}) lies too far ahead of this machine's clock, so the change waits. "
            f"Correct the clock if it is wrong. Else give the record up with {skip_command(NOBODYS, place)}.",
            table_id,
            place,
        )


def _changes_above(staged: Staged, latest: int) -> Iterator[tuple[TableId, int, PlaceInStream]]:
    """Table, commit ts (TSO) and place of schema changes and pieces above ``latest`` (TSO), a piece's at its last record."""
    for report in staged.reports:
        for told in report.statements:
            if told.commit_ts > latest:
                yield told.table_id, told.commit_ts, told.place
        for piece in report.pieces:
            if piece.max_ts > latest:
                yield piece.table_id, piece.max_ts, PlaceInStream(piece.partition, piece.last)
