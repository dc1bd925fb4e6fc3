"""The final drain: what a finished changefeed left above its last checkpoint, and what comes after that all the same."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

import pyarrow.compute as pc

from headrace.model.block import KIND
from headrace.model.events import RowKind
from headrace.model.outcome import Notice, Problem, SplitReport
from headrace.model.place import PlaceInFile
from headrace.model.split import Window
from headrace.model.table import TableId
from headrace.model.tso import MAX_TSO, tso_and_time
from headrace.sources.ticdc_storage.catalogue import Catalogue
from headrace.sources.ticdc_storage.position import Drain
from headrace.sources.ticdc_storage.splits import FileSplit, read_split
from headrace.sources.ticdc_storage.stores import StoredFile

NO_PROMISE = Notice(
    "There is no metadata: the changefeed ended before its first checkpoint, and nothing was ever promised to be complete. "
    "Everything that is in the files is taken.",
    place=PlaceInFile("metadata"),
)
_WITHOUT_COMMIT_TS = Notice(
    "The files carry no commit ts, so they are taken whole in any case. What --until-end adds are the files that came after the "
    "last checkpoint, and the schema changes at or above it."
)


@dataclass(frozen=True)
class Rest:
    """What lies above a checkpoint: the greatest ts of anything (TSO), and how many rows and schema changes there are."""

    end: int
    rows: int
    changes: int


@dataclass
class FileEnds:
    """Where files end, kept so that a drain in parts reads each file once to find that. Of files as they were listed."""

    ends: dict[StoredFile, int] = field(default_factory=dict)
    """The greatest commit ts (TSO)."""
    above: dict[StoredFile, tuple[int, int]] = field(default_factory=dict)
    """A commit ts (TSO), and how many rows lie above it."""

    def keep(self, present: Container[StoredFile]) -> None:
        """Forgets all other files."""
        self.ends = {stored: end for stored, end in self.ends.items() if stored in present}
        self.above = {stored: above for stored, above in self.above.items() if stored in present}

    def find_rest(
        self, splits: Iterable[FileSplit], catalogue: Catalogue, *, watermark: int, published: int, checkpoint: int, latest: int
    ) -> Rest:
        """What the files of a final offer hold above ``checkpoint``, by reading them; ``end`` is no less than ``watermark``.

        ``published`` is the greatest watermark that ``metadata`` had (TSO); ``latest`` is the TSO behind which nothing counts.
        """
        end = max([watermark, *versions_of(catalogue, latest)])
        rows = 0
        for split in splits:
            if split.has_commit_ts:
                stored = _stored(split)
                if stored not in self.ends or self.above[stored][0] != checkpoint:
                    self._read(split, checkpoint)
                end, rows = max(end, self.ends[stored]), rows + self.above[stored][1]
        # The change at a published checkpoint is not certain to be there; at a drained one it was taken.
        first = checkpoint if checkpoint == published else checkpoint + 1
        return Rest(end, rows, sum(first <= change.commit_ts <= latest for change in catalogue.changes))

    def find_end(self, splits: Iterable[FileSplit], checkpoint: int) -> int:
        """The greatest commit ts (TSO) in the files of a final offer, 0 where there is none."""
        end = 0
        for split in splits:
            if split.has_commit_ts:
                if _stored(split) not in self.ends:
                    self._read(split, checkpoint)
                end = max(end, self.ends[_stored(split)])
        return end

    def find_ahead(self, splits: Iterable[FileSplit], checkpoint: int, latest: int) -> tuple[Problem, ...]:
        """The tables with rows behind ``latest`` (TSO), each with a file of such: no changefeed can have written them yet."""
        found: dict[TableId, Problem] = {}
        for split in splits:
            if split.table_id not in found and (end := self.find_end([split], checkpoint)) > latest:
                message = f"a row's commit ts ({tso_and_time(end)}) lies too far ahead of this machine's clock."
                hint = "Correct the clock if it is wrong. Else replace the file, or give it up with headrace table skip."
                found[split.table_id] = Problem(split.table_id, message, place=PlaceInFile(split.key), hint=hint)
        return tuple(found.values())

    def _read(self, split: FileSplit, checkpoint: int) -> None:
        """Reads a file. Its rows themselves are read again, by tasks, when it is known up to where."""
        end = rows = 0
        for item in read_split(split, Window(checkpoint, MAX_TSO), old_images=False):
            if isinstance(item, SplitReport):
                end = max(item.max_ts, item.truncated_ts or 0)
            else:
                rows += pc.sum(pc.not_equal(item.batch.column(KIND), RowKind.UPDATE_BEFORE.value)).as_py()
        self.ends[_stored(split)], self.above[_stored(split)] = end, (checkpoint, rows)


def rest_notices(rest: Rest, published: int, *, has_commit_ts: bool) -> tuple[Notice, ...]:
    """What a person vouches for by calling this the end."""
    if not has_commit_ts:
        return (_WITHOUT_COMMIT_TS,)
    if not rest.rows and not rest.changes:
        return ()
    promised = f"lie beyond what metadata promises ({tso_and_time(published)})" if published else "are in the files"
    return (
        Notice(
            f"{rest.rows} rows and {rest.changes} schema changes {promised}. They are "
            f"taken, up to {tso_and_time(rest.end)}, because --until-end says that the changefeed is finished; nothing tells "
            "whether their last transactions are complete."
        ),
    )


def drained(end: int, aim: int, catalogue: Catalogue, published: int) -> Drain | None:
    """What the position has to remember of a drain up to ``end`` (TSO), ``None`` when nothing but the promised was taken.

    It is a part of one that goes up to ``aim``.
    """
    if end <= published:
        return None
    return Drain(published, end, _schema_files(catalogue, published, end), aim if aim > end else 0)


def late_schema_files(drain: Drain, catalogue: Catalogue) -> tuple[Notice, ...]:
    """A notice when there are schema files now that the drain should have met."""
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
    """For a watermark that has not reached the end of a drain."""
    return Notice(
        f"--until-end took everything up to {tso_and_time(drain.end)}; metadata says {tso_and_time(read)}. If the changefeed "
        "goes on after all, it is followed again when metadata has passed that."
    )


def _schema_files(catalogue: Catalogue, low: int, high: int) -> int:
    return sum(low <= version <= high for version in versions_of(catalogue))


def versions_of(catalogue: Catalogue, latest: int = MAX_TSO) -> list[int]:
    """Of every schema file up to ``latest`` (TSO): those of tables by their versions, those of databases by their changes."""
    databases = [change.commit_ts for change in catalogue.changes if change.table_id.is_database]
    tables = [number for versions in catalogue.versions.values() for number in versions]
    return [number for number in (*databases, *tables) if number <= latest]


def ahead_notices(catalogue: Catalogue, latest: int) -> tuple[Notice, ...]:
    """What a final drain does without: schema files with versions behind ``latest`` (TSO)."""
    return tuple(
        Notice(
            f"the version of the schema file ({tso_and_time(change.commit_ts)}) lies too far ahead of this machine's "
            "clock: its schema change is not taken.",
            change.table_id,
            change.origin,
        )
        for change in catalogue.changes
        if change.commit_ts > latest
    )


def _stored(split: FileSplit) -> StoredFile:
    return StoredFile(split.key, split.size, split.modified)
