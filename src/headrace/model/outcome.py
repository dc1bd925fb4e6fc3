"""The results of tasks: figures, or a typed problem. Tasks never raise for bad data (rule 17 of the design)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from headrace.model.bearers import Bearers
from headrace.model.ledger import TableProgress, TableStatus
from headrace.model.letters import RejectedRecord
from headrace.model.place import PlaceInFile, SourcePlace, file_of
from headrace.model.table import TableId
from headrace.model.writable_text import writable

_VALUE_LIMIT = 80
_MESSAGE_BEGINNING, _MESSAGE_END = 8_000, 1_000


class Remedy(StrEnum):
    """What lets a stopped table go on."""

    REPAIR = "repair"
    """The data or the target is repaired; the table is then tried again automatically."""
    DECISION = "decision"
    """A person decides about a schema change (``headrace ddl``)."""
    RESYNC = "resync"
    """Rows changed without row events: the table is loaded anew, and then the schema change is skipped."""

    @property
    def behind(self) -> Remedy:
        """The remedy for a table that waits for another table with this remedy."""
        return self if self is Remedy.REPAIR else Remedy.DECISION


_STATUS = {
    Remedy.REPAIR: TableStatus.STOPPED,
    Remedy.DECISION: TableStatus.WAITING,
    Remedy.RESYNC: TableStatus.NEEDS_RESYNC,
}


@dataclass(frozen=True)
class Problem:
    """Why a table cannot go on, so that a person can act. :meth:`sentence` is the text that is printed."""

    table_id: TableId
    message: str
    """Shortened in the middle if it is very long."""
    place: SourcePlace | None = None
    """Where in the source the problem is."""
    column: str = ""
    value: str | None = None
    """Shortened when it is printed."""
    hint: str = ""
    transient: bool = False
    """Whether a retry without a repair may succeed (a torn read, a file that is still being written)."""
    remedy: Remedy = Remedy.REPAIR
    row: str = ""
    """The row's key, if its place is not known any more."""
    needs_whole: bool = False
    """Whether the writer had only a part of the table's changes and so could not decide if there is a problem. One task then has to
    write all changes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", _cut(self.message))
        object.__setattr__(self, "place", _written_place(self.place))
        for name in ("message", "column", "value", "hint", "row"):
            object.__setattr__(self, name, writable(getattr(self, name)))

    @property
    def file(self) -> str:
        """The file's name; empty if the problem is not in a file."""
        return file_of(self.place)

    @property
    def status(self) -> TableStatus:
        """The status of a table that stops because of this problem."""
        return _STATUS[self.remedy]

    def sentence(self) -> str:
        """One sentence: table, place or row, column and value if they exist, what is wrong, and what to do."""
        place = f"table {self.table_id}" if self.table_id.table else f"database {self.table_id}"
        if self.place is not None:
            place += f", {self.place}"
        if self.row:
            place += f", row {self.row}"
        if self.column:
            place += f", column {self.column}"
        if self.value is not None:
            text = self.value if len(self.value) <= _VALUE_LIMIT else self.value[:_VALUE_LIMIT] + "…"
            place += f", value {text!r}"
        return f"{place}: {self.message}" + (f" {self.hint}" if self.hint else "")


@dataclass(frozen=True)
class Notice:
    """A warning that stops nothing (a gap in file numbers, a checksum that does not match)."""

    message: str
    table_id: TableId | None = None
    place: SourcePlace | None = None
    missing: tuple[int, int] | None = None
    """The first and the last commit ts (TSO) of rows that the table may lack from now on. The ledger records this in the same step
    that causes it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", writable(_cut(self.message)))
        object.__setattr__(self, "place", _written_place(self.place))

    @property
    def file(self) -> str:
        """The file's name; empty if the notice is not about a file."""
        return file_of(self.place)

    def sentence(self) -> str:
        place = "" if self.table_id is None else f"{'database' if self.table_id.is_database else 'table'} {self.table_id}: "
        return f"{place}{self.message}" + ("" if self.place is None else f" ({self.place.name})")


def _written_place(place: SourcePlace | None) -> SourcePlace | None:
    return None if place is None else place.spelled(writable)


def _cut(message: str) -> str:
    """The message, without its middle if it is too long for a person to read: it may contain a statement of 16 MiB."""
    if len(message) <= _MESSAGE_BEGINNING + _MESSAGE_END:
        return message
    return f"{message[:_MESSAGE_BEGINNING]} … {message[3 - _MESSAGE_END :]}"


@dataclass(frozen=True)
class SplitReport:
    """What was found in a split that was read to its end, or up to ``problem``."""

    split_key: str
    table_id: TableId
    rank: int = 0
    """The split's rank."""
    stream: str = ""
    """The sequence that the split belongs to. What a writer repeats after a crash comes later in the same sequence."""
    rows: int = 0
    """The number of all rows of the split."""
    kept: int = 0
    """The number of rows inside the window."""
    left: int = 0
    """The number of rows above the window."""
    passed: int = 0
    """The number of rows below the window, replays, and records that were given up."""
    size: int = 0
    min_ts: int = 0
    max_ts: int = 0
    """The least and the greatest commit ts (TSO) of all rows, 0 for none."""
    pending_ts: int | None = None
    """The smallest commit ts (TSO) above the window's ``hi``, ``None`` if no row is left."""
    rolled_over: bool = False
    """Whether the split ended because it was full, so that a transaction may continue in the next split."""
    goes_on: bool = False
    """Whether it is certain that the writer did not restart between this split and the next. A full split does not prove that."""
    interrupted: bool = False
    """Whether the split ended where a transaction may continue (at a watermark of a stream), although it may not have been full."""
    anew: bool = False
    """Whether it is certain that the writer restarted before this split, so that everything it repeats was delivered again."""
    truncated: bool = False
    """Whether the last record is cut off in the middle."""
    truncated_ts: int | None = None
    """The commit ts (TSO) of the cut-off record, if it can be read."""
    truncated_line: int | None = None
    rejects: tuple[RejectedRecord, ...] = ()
    """The records inside the window that could not be decoded and were left out. Before anything is applied they become dead
    letters."""
    letters: tuple[str, ...] = ()
    """The names of these dead letters."""
    problem: Problem | None = None
    notices: tuple[Notice, ...] = ()
    given_up: int = 0
    """``given_up`` of the window."""
    ended: bool = False
    """Whether the split's version is below ``ended`` of the window."""
    place: SourcePlace | None = None
    """Where the split is, if not in the file named ``split_key``. The engine fills it in."""
    first_row: str = ""
    """Kind and key of the first row that counts; empty if there is none, and for tables without key."""
    truncated_row: str = ""
    """Kind and key of the first row at ``truncated_ts``, or else ``max_ts``. It may be the row that is cut off."""
    counted: tuple[int, int] | None = None
    """The least and the greatest commit ts (TSO) of the rows that count here, zeros for none; ``None`` if all rows count. The other
    rows belong to another split, so this split cannot replace it."""
    content: int | None = None
    """The CRC-32 of what was read. Set if rows have no commit ts, because only the content then shows whether the split changed."""

    def at(self, *, line: int | None = None, offset: int | None = None) -> SourcePlace:
        """The place of a record of the split, or of the whole split."""
        place = self.place or PlaceInFile(self.split_key)
        return place if line is None and offset is None else place.at(line=line, offset=offset)

    @property
    def span(self) -> tuple[int, int]:
        """The least and the greatest commit ts (TSO) for which this split can replace another one; zeros for none."""
        return (self.min_ts, self.max_ts) if self.counted is None else self.counted

    def after(self, earlier: SplitReport | None) -> SplitReport:
        """The combined report of a split that was read for two rounds. What is left is taken from this, the later report."""
        if earlier is None:
            return self
        letters = tuple(dict.fromkeys((*earlier.letters, *self.letters)))
        return replace(self, kept=earlier.kept + self.kept, letters=letters, notices=(*earlier.notices, *self.notices))


def told_of_bearers(reports: Iterable[SplitReport], known: Mapping[str, Bearers]) -> tuple[SplitReport, ...]:
    """The reports, with each notice about missing rows assigned to the tables that contain such rows now.

    ``known`` has these tables by the keys of splits.
    """
    return tuple(
        replace(report, notices=tuple(_of_bearers(report.notices, known[report.split_key])))
        if report.split_key in known
        else report
        for report in reports
    )


def _of_bearers(notices: Iterable[Notice], bearers: Bearers) -> Iterator[Notice]:
    for notice in notices:
        if notice.missing is None:
            yield notice
        else:
            yield from (replace(notice, table_id=table_id) for table_id in sorted(bearers.of(*notice.missing)))


def missing_rows(reports: Iterable[SplitReport]) -> dict[TableId, str]:
    """Why tables may lack rows: the first reason of each table (:attr:`Notice.missing`)."""
    found: dict[TableId, str] = {}
    for report in reports:
        for notice in report.notices:
            if notice.missing is not None:
                found.setdefault(notice.table_id or report.table_id, replace(notice, table_id=None).sentence())
    return found


def is_repeated(report: SplitReport, reports: Iterable[SplitReport]) -> bool:
    """Whether a later split of the same stream repeats the record that is cut off at the end of this one.

    A writer that crashed was not acknowledged, so it writes everything again from a commit ts at or below that of the unfinished
    record. Other streams of the table cover the same time and hold other rows. A split that begins with exactly this commit ts
    continues the transaction, unless it begins with the transaction's first row.
    """
    end = report.truncated_ts if report.truncated_ts is not None else report.max_ts
    place = (report.table_id, report.stream)
    for other in reports:
        first, last = other.span
        if (other.table_id, other.stream) != place or other.rank <= report.rank or not 0 < first <= end <= last:
            continue
        if first < end or (report.truncated_row and report.truncated_row == other.first_row):
            return True
    return False


@dataclass(frozen=True)
class ReadCount:
    """Row counts of one table in a read task: received from its splits, removed by netting, and sent on."""

    table_id: TableId
    received: int
    netted: int
    sent: int


@dataclass(frozen=True)
class WriteCount:
    """Row counts of one table in a write task: received, removed by netting, and passed to its writer."""

    table_id: TableId
    gathered: int
    netted: int
    handed: int


@dataclass(frozen=True)
class WriteOutcome:
    """The result of one (table, bucket): the numbers of rows sent as upserts and deletes, or the problem that stopped it."""

    table_id: TableId
    """The source's table."""
    upserts: int = 0
    deletes: int = 0
    problem: Problem | None = None
    notices: tuple[Notice, ...] = field(default=())
    letters: tuple[str, ...] = ()
    """The names of the dead letters that refused rows became."""
    refused: int = 0
    """The number of rows that became dead letters."""
    netted: int = 0
    """The number of rows that the writer itself found to be superseded by others."""
    spooled: tuple[str, ...] = ()
    """Files that the unit left for the sink's part on the driver. Only files named by an outcome count, so files of a task attempt
    that failed or was repeated are never loaded."""
    progress: TableProgress | None = None
    """The ledger's row of a table without key. It is committed with the data."""
    target: TableId | None = None
    """The target's table; ``None`` if it has the same name."""

    def __post_init__(self) -> None:
        if self.target == self.table_id:
            object.__setattr__(self, "target", None)

    @property
    def written_to(self) -> TableId:
        """The table of the target."""
        return self.target or self.table_id
