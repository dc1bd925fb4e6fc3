"""Files without commit ts that were written again after they were applied: which of them may be read again.

When such a file is read again, its rows are applied again, whatever came after them. That is harmless only if nothing after the
file is applied. This is the case for files that TiCDC itself writes again: it starts with the last number again if it died before
it wrote the index.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field

from headrace.formats.storage_paths import DataPath, DateSeparator, first_file_in
from headrace.model.events import DropDatabaseEvent, DropTableEvent, RenameTableEvent, SchemaChange, TruncateTableEvent
from headrace.model.outcome import Notice, Problem
from headrace.model.place import PlaceInFile
from headrace.model.table import TableId
from headrace.sources.ticdc_storage.catalogue import Catalogue
from headrace.sources.ticdc_storage.intervals import numbers_of
from headrace.sources.ticdc_storage.position import StoragePosition
from headrace.sources.ticdc_storage.split_selection import AGAIN, Candidate, of_tables
from headrace.sources.ticdc_storage.stores import StoredFile, UnreadableFileError
from headrace.sources.ticdc_storage.table_versions import TableVersion

_OUTLIVED = (
    "was written again after it was applied, and its table was dropped, renamed or emptied since: it is not read once more, as "
    "its rows have no commit ts. If the table was renamed, repair by hand the rows that differ in the file now."
)
_UNCERTAIN = (
    "The file was written again after it was applied, and the ledger does not record whether its content changed. Its rows have "
    "no commit ts: if they were read again, they would be applied twice."
)
_UNCERTAIN_HINT = "If the content is the same, or is not wanted: headrace table skip --file. Else copy the table anew."
_OVERTAKEN = (
    "The file was written again after it was applied, with different content, and later files or schema changes are already "
    "applied. Its rows have no commit ts: if they were read now, they would replace later values."
)
_OVERTAKEN_HINT = "Repair by hand the rows that differ in it now, then run headrace table skip --file. Or copy the table anew."


@dataclass(frozen=True)
class Judged:
    """The decision about files that were written again. ``changed`` are read again; ``applied`` are not, with their contents."""

    changed: tuple[Candidate, ...] = ()
    applied: Mapping[StoredFile, int] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True)
class Rewritten:
    """Decides about files by what is applied.

    ``schema_bound`` (TSO) is the end of certain schema changes, ``separator`` the date separator.
    """

    place: StoragePosition
    catalogue: Catalogue
    schema_bound: int
    separator: DateSeparator | None

    def judge(self, suspects: Iterable[Candidate], content: Callable[[StoredFile], int | UnreadableFileError | None]) -> Judged:
        """``content`` computes a file's CRC-32; ``None`` if the file changes at this moment: the next poll checks again."""
        changed: list[Candidate] = []
        outlived: list[Candidate] = []
        applied: dict[StoredFile, int] = {}
        problems: list[Problem] = []
        for candidate in suspects:
            stored, path, version = candidate
            known, has_ended = self.place.content_of(path), self._has_ended(version)
            if known is None and not has_ended:
                problems.append(Problem(version.table_id, _UNCERTAIN, PlaceInFile(stored.path), hint=_UNCERTAIN_HINT))
            elif (found := content(stored)) is None:
                continue
            elif isinstance(found, UnreadableFileError):
                place = PlaceInFile(stored.path)
                problems.append(Problem(version.table_id, found.message, place, hint=found.hint, transient=True))
            elif found == known or has_ended:
                applied[stored] = found
                outlived += [candidate] if found != known else []
            else:
                changed.append(candidate)
        rewritten = {(path.directory, path.stream, path.number) for _, path, _ in changed}
        overtaken = [c for c in changed if self._is_overtaken(c, rewritten)]
        problems += [Problem(v.table_id, _OVERTAKEN, PlaceInFile(stored.path), hint=_OVERTAKEN_HINT) for stored, _, v in overtaken]
        changed = [candidate for candidate in changed if candidate not in overtaken]
        notices = (*of_tables(changed, AGAIN), *of_tables(outlived, _OUTLIVED))
        return Judged(tuple(changed), applied, tuple(problems), notices)

    def _is_overtaken(self, candidate: Candidate, rewritten: Container[tuple[str, str, int]]) -> bool:
        _, path, version = candidate
        passed = self.place.passed.get(path.parent, 0) > version.version
        return passed or bool(self._changes_behind(version)) or self._has_files_behind(path, rewritten)

    def _has_files_behind(self, path: DataPath, rewritten: Container[tuple[str, str, int]]) -> bool:
        """Whether files after this one are applied: of its stream, or of a later date or version of its path.

        ``rewritten`` are files, by directory, stream and number, that do not count because they are read again, too.
        """
        for directory in self.place.consumed_directories():
            other = first_file_in(directory, self.separator, self.catalogue.table_ids)
            if other is None or (other.parent, other.partition) != (path.parent, path.partition):
                continue
            same = directory == path.directory
            if not same and (other.version, other.date) < (path.version, path.date):
                continue
            for stream, intervals in self.place.consumed_in(directory).items():
                if same and stream != path.stream:
                    continue
                behind = (number for number in numbers_of(intervals) if not same or number > path.number)
                if any((directory, stream, number) not in rewritten for number in behind):
                    return True
        return False

    def _changes_behind(self, version: TableVersion) -> list[SchemaChange]:
        """The certain schema changes after a version, of its table. A change that a restart writes has no statement."""
        changes = (c for c in self.catalogue.changes if c.statement and version.version < c.commit_ts < self.schema_bound)
        return [c for c in changes if version.table_id in c.changes or _ends(c, version.table_id)]

    def _has_ended(self, version: TableVersion) -> bool:
        """Whether a version's table was dropped, renamed or emptied since."""
        return any(_ends(change, version.table_id) for change in self._changes_behind(version))


def _ends(change: SchemaChange, table_id: TableId) -> bool:
    for event in change.events:
        match event:
            case DropTableEvent(ended) | TruncateTableEvent(ended) | RenameTableEvent(ended, _) if ended == table_id:
                return True
            case DropDatabaseEvent(database) if table_id.lies_in(database):
                return True
            case _:
                pass
    return False
