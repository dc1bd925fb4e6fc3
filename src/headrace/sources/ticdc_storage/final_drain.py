"""The final drain: applies what a finished changefeed left above its last checkpoint, and handles what still comes afterwards."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field, replace

import pyarrow.compute as pc

from headrace.errors import SourceNotReadyError
from headrace.formats.storage_paths import DataPath
from headrace.model.block import KIND, SEQ, SEQ_RANK_SHIFT
from headrace.model.events import RowKind, SchemaChange
from headrace.model.outcome import Notice, Problem, SplitReport
from headrace.model.place import PlaceInFile, SourcePlace
from headrace.model.split import Window
from headrace.model.table import TableId
from headrace.model.tso import MAX_TSO, tso_and_time
from headrace.sources.ticdc_storage.catalogue import Catalogue
from headrace.sources.ticdc_storage.drains import Drain
from headrace.sources.ticdc_storage.splits import FileSplit, read_split
from headrace.sources.ticdc_storage.stores import StoredFile
from headrace.sources.ticdc_storage.table_versions import TableVersion

NO_PROMISE = Notice(
    "There is no metadata: the changefeed ended before its first checkpoint, so no checkpoint says up to where the files are "
    "complete. Everything in the files is applied.",
    place=PlaceInFile("metadata"),
)
_WITHOUT_COMMIT_TS = Notice(
    "The files carry no commit ts, so they are taken whole in any case. What --until-end adds are the files that came after the "
    "last checkpoint, and the schema changes at or above it."
)
_MOST_BAD = 100_000
"""The maximum of bad records in a file that are passed over to find its end. Each is kept, so a file with more stops its table."""
_NUMBERS = (1 << SEQ_RANK_SHIFT) - 1
_GIVE_UP = "Correct the clock if it is wrong. Else replace the file, or give it up with headrace table skip."


@dataclass(frozen=True)
class Rest:
    """What is above a checkpoint: the greatest ts of all data (TSO), and the number of rows and schema changes."""

    end: int
    rows: int
    changes: int


@dataclass
class FileEnds:
    """Where files end, cached so that a drain in several parts reads each file only once for that. Files are as listed."""

    ends: dict[StoredFile, int] = field(default_factory=dict)
    """The greatest commit ts (TSO)."""
    above: dict[StoredFile, tuple[int, int]] = field(default_factory=dict)
    """A commit ts (TSO), and the number of rows above it."""
    unplaced: set[StoredFile] = field(default_factory=set)
    """Files that end with a bad record for which no commit ts shows that a cut reaches it."""
    problems: dict[StoredFile, Problem] = field(default_factory=dict)
    """Why a file could not be read to its end, so that its end is unknown."""

    def keep(self, present: Container[StoredFile]) -> None:
        """Drops all other files, and those that could not be read because of a transient error."""
        passing = {stored for stored, problem in self.problems.items() if problem.transient}
        self.ends = {stored: end for stored, end in self.ends.items() if stored in present and stored not in passing}
        self.above = {stored: above for stored, above in self.above.items() if stored in self.ends}
        self.problems = {stored: problem for stored, problem in self.problems.items() if stored in self.ends}
        self.unplaced &= self.ends.keys()

    def find_rest(
        self, splits: Iterable[FileSplit], catalogue: Catalogue, *, least: int, published: int, checkpoint: int, latest: int
    ) -> Rest:
        """Reads the files of a final offer to find what they hold above ``checkpoint``. ``end`` is at least ``least``.

        ``published`` is the greatest watermark that ``metadata`` had (TSO); ``latest`` is the TSO above which nothing counts.
        """
        end, rows = least, 0
        for split in splits:
            if split.has_commit_ts:
                stored = _stored(split)
                if stored not in self.ends or self.above[stored][0] != checkpoint:
                    self._read(split, checkpoint)
                end, rows = max(end, self.ends[stored]), rows + self.above[stored][1]
                # Only the first drain that includes the file must reach the record: its table may have stopped there.
                if stored in self.unplaced and (checkpoint == published or split.after is not None):
                    end = max(end, checkpoint + 1)
        # The change at a published checkpoint may not be there yet; the change at a drained one was applied.
        first = checkpoint if checkpoint == published else checkpoint + 1
        return Rest(end, rows, sum(first <= change.commit_ts <= latest for change in catalogue.changes))

    def find_end(self, splits: Iterable[FileSplit], checkpoint: int) -> int:
        """The greatest commit ts (TSO) in the files of a final offer; 0 if there is none."""
        end = 0
        for split in splits:
            if split.has_commit_ts:
                if _stored(split) not in self.ends:
                    self._read(split, checkpoint)
                end = max(end, self.ends[_stored(split)])
        return end

    def find_stopped(self, splits: Iterable[FileSplit], checkpoint: int, latest: int) -> tuple[Problem, ...]:
        """Problems of the tables whose end is unknown, each with the file that causes it.

        Either the file cannot be read to its end, or it has rows above ``latest`` (TSO), which no changefeed can have written yet.
        """
        found: dict[TableId, Problem] = {}
        for split in splits:
            if split.table_id in found:
                continue
            end, problem = self.find_end([split], checkpoint), self.problems.get(_stored(split))
            if problem is None and end > latest:
                message = f"a row's commit ts ({tso_and_time(end)}) lies too far ahead of this machine's clock."
                problem = Problem(split.table_id, message, place=PlaceInFile(split.key), hint=_GIVE_UP)
            if problem is not None:
                found[split.table_id] = problem
        return tuple(found.values())

    def _read(self, split: FileSplit, checkpoint: int) -> None:
        """Reads a file to find its end. Tasks read its rows again once the end of the cut is known.

        Bad records are passed over; whether they stop their table or become dead letters is decided later.
        """
        stored, end, rows, last = _stored(split), 0, 0, -1
        for item in read_split(split, Window(checkpoint, MAX_TSO), old_images=False, tolerance=_MOST_BAD):
            if isinstance(item, SplitReport):
                # A cut must reach a bad record after all rows: at its own commit ts if that is readable, otherwise at any.
                behind = [record.commit_ts or 0 for record in item.rejects if record.number > last]
                end = max(item.max_ts, item.truncated_ts or 0, *behind)
                if behind and end <= checkpoint:
                    self.unplaced.add(stored)
                if item.problem is not None and stored not in self.ends:
                    self.problems[stored] = item.problem
            else:
                rows += pc.sum(pc.not_equal(item.batch.column(KIND), RowKind.UPDATE_BEFORE.value)).as_py()
                last = item.batch.column(SEQ)[-1].as_py() & _NUMBERS
        # The end of a file that was once read completely stays known, even if this read fails.
        self.ends[stored], self.above[stored] = max(end, self.ends.get(stored, 0)), (checkpoint, rows)


def rest_notices(rest: Rest, published: int, *, has_commit_ts: bool) -> tuple[Notice, ...]:
    """What a person confirms by calling this the end of the changefeed."""
    if not has_commit_ts:
        return (_WITHOUT_COMMIT_TS,)
    if not rest.rows and not rest.changes:
        return ()
    promised = f"lie beyond the checkpoint in metadata ({tso_and_time(published)})" if published else "are in the files"
    return (
        Notice(
            f"{rest.rows} rows and {rest.changes} schema changes {promised}. They are taken, up to {tso_and_time(rest.end)}, "
            "because --until-end says that the changefeed is finished; Headrace cannot check whether their last transactions are "
            "complete."
        ),
    )


def drained(end: int, aim: int, catalogue: Catalogue, unread: Iterable[SchemaChange], published: int) -> Drain | None:
    """What the position must remember of a drain up to ``end`` (TSO); ``None`` if only promised data were applied.

    It is a part of a drain up to ``aim``. Tables wait for the ``unread`` schema files, so these do not count as late.
    """
    if end <= published:
        return None
    awaited = {(change.commit_ts, change.table_id) for change in unread if published <= change.commit_ts <= end}
    return Drain(published, end, _schema_files(catalogue, published, end) + len(awaited), aim if aim > end else 0)


def late_schema_files(drain: Drain, catalogue: Catalogue) -> tuple[Notice, ...]:
    """A notice if there are schema files now that the drain should have included."""
    late = _schema_files(catalogue, drain.published, drain.end) - drain.schema_files
    if late <= 0:
        return ()
    return (
        Notice(
            f"{late} schema files with versions from {drain.published} to {drain.end} came after --until-end had taken "
            "everything up to there: the changefeed was not finished. Their schema changes are not applied; copy the tables anew."
        ),
    )


def went_on(drain: Drain, read: int) -> Notice:
    """The notice for a watermark that has not reached the end of a drain."""
    return Notice(
        f"--until-end took everything up to {tso_and_time(drain.end)}; metadata says {tso_and_time(read)}. If the changefeed goes "
        "on after all, Headrace follows it again when metadata has passed the first of these times."
    )


def _schema_files(catalogue: Catalogue, low: int, high: int) -> int:
    return sum(low <= version <= high for version in versions_of(catalogue))


def versions_of(catalogue: Catalogue, latest: int = MAX_TSO) -> list[int]:
    """The versions of all schema files up to ``latest`` (TSO): for tables their versions, for databases those of their changes."""
    databases = [change.commit_ts for change in catalogue.changes if change.table_id.is_database]
    tables = [number for versions in catalogue.versions.values() for number in versions]
    return [number for number in (*databases, *tables) if number <= latest]


def ahead_notices(catalogue: Catalogue, unread: Iterable[SchemaChange], latest: int) -> Iterator[Notice]:
    """Notices about what a final drain leaves out: schema files with versions above ``latest`` (TSO), readable or not.

    Data files that wait for an unreadable schema file are reported by :func:`ahead_problems`.
    """
    alone = (change for change in unread if not change.has_rows)
    ahead = [change for change in (*catalogue.changes, *alone) if change.commit_ts > latest]
    for change in ahead:
        yield _ahead_notice(change.commit_ts, "schema change", change.table_id, change.origin)
    told = {change.origin for change in ahead}
    for version in (version for versions in catalogue.versions.values() for version in versions.values()):
        place = PlaceInFile(version.origin)
        if version.version > latest and place not in told:
            yield _ahead_notice(version.version, "shape", version.table_id, place)


def _ahead_notice(version: int, what: str, table_id: TableId, place: SourcePlace | None) -> Notice:
    message = f"the version of the schema file ({tso_and_time(version)}) lies too far ahead of this machine's clock"
    return Notice(f"{message}: its {what} is not taken.", table_id, place)


def ahead_problems(
    candidates: Iterable[tuple[StoredFile, DataPath, TableVersion]], unread: Iterable[SchemaChange], latest: int
) -> Iterator[Problem]:
    """Problems of the tables with data files in directories of versions above ``latest`` (TSO), each with a file.

    The rows in these files do not matter. Raises SourceNotReadyError if it is unknown to which table the rows belong.
    """
    for change in unread:
        problem = change.unread
        if change.commit_ts <= latest or not change.has_rows or problem is None:
            continue
        message = f"{problem.message} {_version_ahead(change.commit_ts)}"
        if change.is_nobodys:
            raise SourceNotReadyError(f"{problem.file}: {message} Its table is not known.", problem.hint)
        yield replace(problem, message=message, hint=f"{problem.hint} {_GIVE_UP}".lstrip())
    found: dict[TableId, Problem] = {}
    for stored, path, version in candidates:
        if path.version > latest and version.table_id not in found:
            message = _version_ahead(path.version)
            found[version.table_id] = Problem(version.table_id, message, place=PlaceInFile(stored.path), hint=_GIVE_UP)
    yield from found.values()


def _version_ahead(version: int) -> str:
    return f"The version of its directory ({tso_and_time(version)}) lies too far ahead of this machine's clock."


def _stored(split: FileSplit) -> StoredFile:
    return StoredFile(split.key, split.size, split.modified)
