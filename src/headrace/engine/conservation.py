"""Conservation of rows: every row is counted, whatever happens to it (rule 22 of the design).

Each stage of a job counts the rows that it receives and passes on, batch by batch. The figures of consecutive stages must be equal.
If they are not, a bug has lost or doubled rows, and nothing of the cut may count as applied. Figures of splits are found by the
splits' keys, so no two splits may have one key::

    rows of a split   = inside the window + left for later + passed over (applied before)
    inside the window = received by the read task
    received          = netted there + sent
    sent              = gathered by write tasks
    gathered          = netted there + handed to the writer
    handed            = written + refused + netted by the writer

Unwritten rows of a table that stops count as refused. Records that cannot be decoded are not rows: those that became dead letters
count as read and as refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from headrace.errors import HeadraceError
from headrace.model.ledger import RowFigures
from headrace.model.outcome import ReadCount, SplitReport, WriteCount
from headrace.model.split import Split
from headrace.model.table import TableId
from headrace.sinks.base import WriteReport


class RowsLostError(HeadraceError):
    """The figures of a cut do not add up, which is a bug. The checkpoint has not moved."""

    exit_code = 1


class AmbiguousSplitsError(HeadraceError):
    """Two splits have one key, which is a bug: it is not known which of them was read. The checkpoint has not moved."""

    exit_code = 1


def require_own_keys(splits: Iterable[Split]) -> None:
    """Raises AmbiguousSplitsError if two splits have one key."""
    known: dict[str, Split] = {}
    for split in splits:
        if (other := known.setdefault(split.key, split)) is not split:
            raise _ambiguous(split.key, other.table_id, split.table_id)


def require_same_split(report: SplitReport, other: SplitReport | None) -> None:
    """Raises AmbiguousSplitsError if two reports that have one key are of splits of two tables."""
    if other is not None and other.table_id != report.table_id:
        raise _ambiguous(report.split_key, other.table_id, report.table_id)


def _ambiguous(key: str, *tables: TableId) -> AmbiguousSplitsError:
    named = " and ".join(f"table {table_id}" for table_id in tables)
    return AmbiguousSplitsError(
        f"Two splits, of {named}, have one key, {key}, so it is not known which of them was read. This is a bug of Headrace or of "
        "the connector that reads the source; the checkpoint was not moved.",
        "Please report it with this message.",
    )


def _lost(table_id: TableId, what: str) -> RowsLostError:
    return RowsLostError(
        f"table {table_id}: {what}. The rows of a cut do not add up, which is a bug of Headrace or of the connector that reads or "
        "writes them; the checkpoint was not moved.",
        "Please report it with these figures.",
    )


@dataclass(frozen=True)
class _Step:
    """Two figures that must be equal, with their names."""

    given: str
    found: str
    figures: tuple[int, int]

    def require(self, table_id: TableId) -> None:
        given, found = self.figures
        if given != found:
            raise _lost(table_id, f"{given:,} {self.given}, but {found:,} {self.found}")


def verify_reading(reports: Iterable[SplitReport], counts: Iterable[ReadCount]) -> None:
    """Verifies the steps up to what read tasks sent. Raises RowsLostError."""
    kept: Counter[TableId] = Counter()
    received: Counter[TableId] = Counter()
    for count in counts:
        received[count.table_id] += count.received
        _Step("rows were read", "were netted or sent on", (count.received, count.netted + count.sent)).require(count.table_id)
    for report in reports:
        kept[report.table_id] += report.kept
        parts = report.kept + report.left + report.passed
        what = f"rows were found in {report.at().name}"
        _Step(what, "lie in, above or below the cut", (report.rows, parts)).require(report.table_id)
    for table_id in sorted({*kept, *received}):
        figures = (kept[table_id], received[table_id])
        _Step("rows lie in the cut", "came to the read tasks", figures).require(table_id)


def verify_gathering(sent: Mapping[TableId, int], gathered: Mapping[TableId, int]) -> None:
    """Compares what was sent to write tasks with what they received. Raises RowsLostError."""
    for table_id in sorted({*sent, *gathered}):
        figures = (sent.get(table_id, 0), gathered.get(table_id, 0))
        _Step("rows were sent to write tasks", "arrived there", figures).require(table_id)


def verify_handing(count: WriteCount) -> None:
    """Compares what a write task received with what it hands to its writer. Raises RowsLostError."""
    figures = (count.gathered, count.netted + count.handed)
    _Step("rows arrived at a write task", "were netted or handed to the writer", figures).require(count.table_id)


def row_figures(report: WriteReport, splits: Collection[Split], unreadable: Collection[TableId] = ()) -> RowFigures:
    """The figures of a round that has read these splits. Raises RowsLostError if they do not add up.

    ``unreadable`` are tables that could not be read completely, so that none of their rows are written.
    """
    reported = {(found.split_key, found.table_id) for found in report.splits}
    for split in splits:
        if (split.key, split.table_id) not in reported:
            raise _lost(split.table_id, f"{split.place.described} was to be read, and no task has reported on it")
    verify_reading(report.splits, report.reads)
    verify_gathering(_sums((r.table_id, r.sent) for r in report.reads), _sums((w.table_id, w.gathered) for w in report.writes))
    stopped = report.problems()
    refused = _refused(report, {*stopped, *unreadable})
    letters = sum(len(found.letters) for found in report.splits)
    figures = RowFigures(
        read=sum(r.received for r in report.reads) + sum(s.left + s.passed for s in report.splits) + letters,
        netted=sum(r.netted for r in report.reads) + sum(w.netted for w in report.writes) + sum(o.netted for o in report.outcomes),
        written=sum(o.upserts + o.deletes for o in report.outcomes),
        refused=refused + letters,
        left=sum(s.left for s in report.splits),
        passed=sum(s.passed for s in report.splits),
    )
    assert figures.read == figures.netted + figures.written + figures.refused + figures.left + figures.passed, figures
    return figures


def _refused(report: WriteReport, stopped: Collection[TableId]) -> int:
    """The number of rows that were, or should have been, handed to writers and were not written. Raises RowsLostError."""
    handed = _sums((w.table_id, w.gathered - w.netted) for w in report.writes)
    ended = _sums((o.table_id, o.upserts + o.deletes + o.netted) for o in report.outcomes)
    refused = _sums((o.table_id, o.refused) for o in report.outcomes)
    for table_id in sorted({*handed, *ended}):
        if table_id not in stopped:
            what = "were written, refused or netted by it"
            figures = (handed[table_id], ended[table_id] + refused[table_id])
            _Step("rows were handed to the writer", what, figures).require(table_id)
    return sum(handed[table_id] - ended[table_id] for table_id in handed)


def _sums(figures: Iterable[tuple[TableId, int]]) -> Counter[TableId]:
    found: Counter[TableId] = Counter()
    for table_id, figure in figures:
        found[table_id] += figure
    return found
