"""Records that come too late: their commit ts is below what was applied before their partition had promised it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from headrace.model.commands import word
from headrace.model.outcome import Notice
from headrace.model.place import PlaceInStream
from headrace.model.stream import StagedPiece
from headrace.model.table import TableId
from headrace.model.tso import tso_and_time
from headrace.sources.stream.position import StreamPosition
from headrace.sources.stream.staged import Staged


def late_notices(
    staged: Staged, position: StreamPosition, reached: Callable[[TableId], int], read: Callable[[StagedPiece], pa.Table]
) -> Iterator[Notice]:
    """One notice for each range and table with records that came too late. Such records are skipped, like repeats.

    The partition's promise before a record distinguishes the two: a record at or below it can only be a repeat. Records that had
    been read when the position was written are not late. ``reached`` is the ts up to which a table has all rows (TSO), and ``read``
    reads the records of a piece (``headrace.sources.stream.records.PIECE``). Raises what ``read`` raises.
    """
    promises: dict[str, int] = {}
    for report in sorted(staged.reports, key=lambda report: (report.range.partition, report.range.start)):
        name = report.range.partition
        promised = promises.get(name, position.promise(name))
        promises[name] = max(promised, report.greatest_watermark or 0)
        if promised >= position.applied_to or report.range.start < position.of(name).read_to:
            continue
        late: dict[TableId, list[_Late]] = defaultdict(list)
        for piece in report.pieces:
            above, up_to = max(promised, piece.promised), min(position.applied_to, reached(piece.table_id))
            if above < piece.max_ts and piece.min_ts <= up_to:
                late[piece.table_id] += _found(piece, above, up_to, read)
        for table_id, found in ((table_id, found) for table_id, found in late.items() if found):
            yield _notice(table_id, name, found, position.applied_to)


_Late = tuple[int, int, int, int, int]
"""The number of records of a piece that came too late, the offsets of the first and the last one, and their commit ts (TSO)."""


def _found(piece: StagedPiece, above: int, up_to: int, read: Callable[[StagedPiece], pa.Table]) -> Iterator[_Late]:
    """The records with ``above < commit_ts <= up_to`` (TSO). Within a piece, commit ts do not decrease."""
    if above < piece.min_ts and piece.max_ts <= up_to:
        yield piece.records, piece.first, piece.last, piece.min_ts, piece.max_ts
        return
    records = read(piece)
    times, offsets = records.column("commit_ts").to_numpy(), records.column("offset")
    first, end = np.searchsorted(times, [above, up_to], side="right").tolist()
    if first < end:
        yield end - first, offsets[first].as_py(), offsets[end - 1].as_py(), int(times[first]), int(times[end - 1])


def _notice(table_id: TableId, partition: str, found: list[_Late], applied_to: int) -> Notice:
    counts, firsts, lasts, earliest, latest = zip(*found, strict=True)
    count, place = sum(counts), PlaceInStream(partition, min(firsts), max(lasts))
    return Notice(
        f"{count} changes came too late: everything up to {tso_and_time(applied_to)} was applied before the partition had declared "
        "it complete, because of --until-end, because the stream did not name the partition yet, or because it had no watermarks "
        "for a while. The late changes are not applied. If they only repeat earlier ones, nothing is missing. Otherwise load the "
        f"table anew, and go on with headrace table resync {word(table_id)} --at.",
        table_id,
        place,
        missing=(min(earliest), max(latest)),
    )
