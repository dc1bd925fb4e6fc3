"""What tasks say: done with figures, or a typed problem. Tasks never raise for data (rule 17 of the design)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

from headrace.model.bearers import Bearers
from headrace.model.ledger import TableProgress, TableStatus
from headrace.model.letters import RejectedRecord
from headrace.model.place import PlaceInFile, SourcePlace, file_of
from headrace.model.table import TableId

_VALUE_LIMIT = 80
_MESSAGE_BEGINNING, _MESSAGE_END = 8_000, 1_000


class Remedy(StrEnum):
    """What lets a stopped table go on."""

    REPAIR = "repair"
    """The data or the target are mended; the table is tried again by itself."""
    DECISION = "decision"
    """Somebody decides about a schema change (``headrace ddl``)."""
    RESYNC = "resync"
    """Rows changed that no event tells: the table is loaded anew, and then the schema change skipped."""

    @property
    def behind(self) -> Remedy:
        """What a table waits for that waits for one with this remedy."""
        return self if self is Remedy.REPAIR else Remedy.DECISION


_STATUS = {
    Remedy.REPAIR: TableStatus.STOPPED,
    Remedy.DECISION: TableStatus.WAITING,
    Remedy.RESYNC: TableStatus.NEEDS_RESYNC,
}


@dataclass(frozen=True)
class Problem:
    """Why a table cannot go on, told so that a person can act: :meth:`sentence` is what is printed.

    ``place`` is where in the source it is; ``row`` is a row's key where that is not known any more; ``column`` is a
    column's name; ``value`` is cut when printed, ``message`` where it is very long. ``transient`` problems are worth another try
    without a repair (a torn read, a file that is still being written).
    """

    table_id: TableId
    message: str
    place: SourcePlace | None = None
    column: str = ""
    value: str | None = None
    hint: str = ""
    transient: bool = False
    remedy: Remedy = Remedy.REPAIR
    row: str = ""
    needs_whole: bool = False
    """A writer that had only some of the table's changes could not tell whether there is a problem: one task has to write all."""
    latest: int | None = None
    """The greatest commit ts (TSO) of the rows that nobody knows the columns of; ``None`` for any other problem."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", _cut(self.message))
        object.__setattr__(self, "place", _written_place(self.place))
        for name in ("message", "column", "value", "hint", "row"):
            object.__setattr__(self, name, _written(getattr(self, name)))

    @property
    def file(self) -> str:
        """The file's name, where it is in a file."""
        return file_of(self.place)

    @property
    def status(self) -> TableStatus:
        """How the table stands that stops for it."""
        return _STATUS[self.remedy]

    def sentence(self) -> str:
        """One sentence: table, place or row, column and value where they exist, what is wrong, what to do."""
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
    """Something worth knowing that stops nothing (a hole in file numbers, a checksum that does not match)."""

    message: str
    table_id: TableId | None = None
    place: SourcePlace | None = None
    missing: tuple[int, int] | None = None
    """The table may lack rows from now on, whose commit ts (TSO) go from the first to the second one: the ledger keeps saying so,
    in the step that makes it so."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", _written(_cut(self.message)))
        object.__setattr__(self, "place", _written_place(self.place))

    @property
    def file(self) -> str:
        """The file's name, where it is about one."""
        return file_of(self.place)

    def sentence(self) -> str:
        place = "" if self.table_id is None else f"{'database' if self.table_id.is_database else 'table'} {self.table_id}: "
        return f"{place}{self.message}" + ("" if self.place is None else f" ({self.place.name})")


_Text = TypeVar("_Text", str, None, str | None)


def _written(text: _Text) -> _Text:
    """The text in a form that every ledger, file and terminal takes: half of a character, as JSON may hold it, is escaped."""
    return text if text is None or text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _written_place(place: SourcePlace | None) -> SourcePlace | None:
    return None if place is None else place.spelled(_written)


def _cut(message: str) -> str:
    """The message, without its middle where it is longer than a person reads: it may tell a statement of 16 MiB."""
    if len(message) <= _MESSAGE_BEGINNING + _MESSAGE_END:
        return message
    return f"{message[:_MESSAGE_BEGINNING]} … {message[3 - _MESSAGE_END :]}"


@dataclass(frozen=True)
class SplitReport:
    """What was found in a split that was read to its end, or up to ``problem``.

    ``rows`` counts all rows of the split, ``kept`` those inside the window, ``left`` those above it, and ``passed`` those below it,
    replays, and records that were given up; ``min_ts`` and ``max_ts`` (TSO) are over all
    rows, 0 for none; ``pending_ts`` is the smallest commit ts above the window's ``hi``, ``None`` when nothing is left.
    ``rolled_over`` says that the split ended because it was full, so that a transaction may go on in the next one.
    ``rank`` is the split's; ``stream`` names the sequence that it belongs to: what a writer repeats after a crash comes later in
    the same one. ``truncated`` says that the last record is cut in the middle; ``truncated_ts`` is its commit ts where that much
    is readable. ``given_up`` is the window's; ``ended`` says that the split's version lies below the window's. ``rejects`` are the
    records inside the window that cannot be decoded and were left out; before anything is applied they become dead letters, whose
    names are ``letters``.
    """

    split_key: str
    table_id: TableId
    rank: int = 0
    stream: str = ""
    rows: int = 0
    kept: int = 0
    left: int = 0
    passed: int = 0
    size: int = 0
    min_ts: int = 0
    max_ts: int = 0
    pending_ts: int | None = None
    rolled_over: bool = False
    goes_on: bool = False
    """What wrote the split did not begin again between it and the next one, for certain. That it was full does not tell that."""
    interrupted: bool = False
    """It ended where a transaction may well go on (a watermark of a stream lies there), though it may have been short."""
    anew: bool = False
    """What wrote the split had begun again before it: whatever it repeats is another delivery, for certain."""
    truncated: bool = False
    truncated_ts: int | None = None
    truncated_line: int | None = None
    rejects: tuple[RejectedRecord, ...] = ()
    letters: tuple[str, ...] = ()
    problem: Problem | None = None
    notices: tuple[Notice, ...] = ()
    given_up: int = 0
    ended: bool = False
    place: SourcePlace | None = None
    """Where the split lies, if not in the file of the name ``split_key``. The engine fills it in."""
    first_row: str = ""
    """Kind and key of the first row that counts; empty where there is none, and for tables without key."""
    truncated_row: str = ""
    """The same of the first row at ``truncated_ts``, or ``max_ts``: it may be the one that is cut off."""
    counted: tuple[int, int] | None = None
    """The least and the greatest commit ts (TSO) of rows that count here, zeros for none; ``None``: all do. Another split has the
    others, so this one cannot stand for it."""
    content: int | None = None
    """The CRC-32 of what was read, where only that tells whether the split is another one later: rows have no commit ts."""

    def at(self, *, line: int | None = None, offset: int | None = None) -> SourcePlace:
        """The place of a record of the split, or of all of it."""
        place = self.place or PlaceInFile(self.split_key)
        return place if line is None and offset is None else place.at(line=line, offset=offset)

    @property
    def span(self) -> tuple[int, int]:
        """The least and the greatest commit ts (TSO) by which it can stand for another split; zeros for none."""
        return (self.min_ts, self.max_ts) if self.counted is None else self.counted

    def after(self, earlier: SplitReport | None) -> SplitReport:
        """What is known of a split that was read for two rounds: the later reading knows what is left of it."""
        if earlier is None:
            return self
        letters = tuple(dict.fromkeys((*earlier.letters, *self.letters)))
        return replace(self, kept=earlier.kept + self.kept, letters=letters, notices=(*earlier.notices, *self.notices))


def told_of_bearers(reports: Iterable[SplitReport], known: Mapping[str, Bearers]) -> tuple[SplitReport, ...]:
    """The reports, telling of rows that are missing of the tables that have such rows now, ``known`` by the keys of splits."""
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
    """Why tables may lack rows, the first reason of each (:attr:`Notice.missing`)."""
    found: dict[TableId, str] = {}
    for report in reports:
        for notice in report.notices:
            if notice.missing is not None:
                found.setdefault(notice.table_id or report.table_id, replace(notice, table_id=None).sentence())
    return found


def is_repeated(report: SplitReport, reports: Iterable[SplitReport]) -> bool:
    """Whether a later split of the same stream holds again what is cut off at the end of this one.

    A writer that died was not acknowledged, so it writes everything again from a commit ts at or below the one of the record
    that it did not finish. Other streams of the table cover the same time and hold other rows. A split that begins with this very
    commit ts goes on in its transaction, unless it begins with the transaction's first row.
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
    """The rows of one table that a read task got from its splits, that netting took away there, and that it sent on."""

    table_id: TableId
    received: int
    netted: int
    sent: int


@dataclass(frozen=True)
class WriteCount:
    """The rows of one table that a write task got, that netting took away there, and that it handed to its writer."""

    table_id: TableId
    gathered: int
    netted: int
    handed: int


@dataclass(frozen=True)
class WriteOutcome:
    """What became of one (table, bucket): rows sent as upserts and deletes, or the problem that stopped it.

    ``refused`` counts rows that became dead letters, ``netted`` those that the writer itself found to be overtaken by others.
    ``spooled`` are files that the unit left for the sink's part on the driver. Only files named by an outcome count, so those
    of a task attempt that failed, or that was repeated, are never loaded. ``progress`` is the ledger's row of a table without
    key, which goes with the data. ``letters`` are the names of the dead letters that refused rows became. ``table_id`` is the
    source's table, ``target`` the target's where that has another name.
    """

    table_id: TableId
    upserts: int = 0
    deletes: int = 0
    problem: Problem | None = None
    notices: tuple[Notice, ...] = field(default=())
    letters: tuple[str, ...] = ()
    refused: int = 0
    netted: int = 0
    spooled: tuple[str, ...] = ()
    progress: TableProgress | None = None
    target: TableId | None = None

    def __post_init__(self) -> None:
        if self.target == self.table_id:
            object.__setattr__(self, "target", None)

    @property
    def written_to(self) -> TableId:
        """The table of the target."""
        return self.target or self.table_id
