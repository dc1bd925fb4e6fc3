"""The files that bounded cuts left out, so that no row of such a file is lost that belonged into the cut."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from headrace.formats.storage_paths import DataPath, FilePlace, place_of
from headrace.model.split import Window
from headrace.model.table import TableId
from headrace.sources.ticdc_storage.intervals import add_numbers, contains
from headrace.sources.ticdc_storage.position import Files, LeftOut, StoragePosition
from headrace.sources.ticdc_storage.split_selection import Candidate
from headrace.sources.ticdc_storage.stores import StoredFile


@dataclass(frozen=True)
class LeftOutFiles:
    """The existing files that cuts left out, as listed, each with the cuts (TSO).

    A file that a cut has taken since, and that has rows beyond that cut, is not included, because it was read completely then.
    """

    files: Mapping[StoredFile, tuple[DataPath, Window]] = field(default_factory=dict)

    @classmethod
    def recalled(cls, candidates: Iterable[Candidate], place: StoragePosition) -> LeftOutFiles:
        """Those of the candidates that the position lists as left out."""
        files: dict[StoredFile, tuple[DataPath, Window]] = {}
        for stored, path, _ in candidates if place.left_out else ():
            if not _was_read(stored, place):
                file = place_of(stored.path)
                windows = [Window(left.lo, left.hi) for left in place.left_out if _has_file(left.files, file)]
                if windows:
                    files[stored] = (path, windows[0])
        return cls(files)

    @property
    def windows(self) -> dict[StoredFile, Window]:
        """The cuts that left out each file."""
        return {stored: window for stored, (_, window) in self.files.items()}

    def extended(
        self, candidates: Iterable[Candidate], firsts: Mapping[StoredFile, int], reached: Callable[[TableId], int]
    ) -> LeftOutFiles:
        """Adds cuts whose position was not written and that left out a file whose first row is still to come.

        ``firsts`` are the first rows (TSO); ``reached`` is the ts up to which a table is applied (TSO).
        """
        files = dict(self.files)
        for stored, _, version in candidates if files else ():
            entry = files.get(stored)
            done = reached(version.table_id)
            if entry is not None and entry[1].hi < done < firsts[stored]:
                files[stored] = (entry[0], Window(entry[1].lo, done))
        return LeftOutFiles(files)

    def leaving(
        self, candidates: Iterable[Candidate], taken: Collection[StoredFile], hi: int, reached: Callable[[TableId], int]
    ) -> LeftOutFiles:
        """The state after a cut up to ``hi`` (TSO) that leaves out the files which are not taken.

        A table that is applied up to there has its rows; a table without key may be, after an aborted cut.
        """
        files = dict(self.files)
        for stored, path, version in candidates:
            done = reached(version.table_id)
            if stored not in taken and done < hi:
                before = files.get(stored)
                files[stored] = (path, Window(done if before is None else before[1].lo, hi))
        return LeftOutFiles(files)

    def groups(self, place: StoragePosition) -> tuple[LeftOut, ...]:
        """What the position must store about those that are not consumed."""
        numbers: dict[tuple[int, int], dict[str, dict[str, list[int]]]] = {}
        for stored, (path, window) in self.files.items():
            if not place.is_consumed(path) and not _was_read(stored, place):
                units = numbers.setdefault((window.lo, window.hi), {}).setdefault(path.directory, {})
                units.setdefault(f"{path.stream}.{path.extension}", []).append(path.number)
        return tuple(
            LeftOut(lo, hi, {d: {unit: add_numbers((), found) for unit, found in units.items()} for d, units in files.items()})
            for (lo, hi), files in sorted(numbers.items())
        )


def _was_read(stored: StoredFile, place: StoragePosition) -> bool:
    """Whether a cut has read the file in its present form and found rows beyond the cut's end."""
    return stored.path in place.open and place.open[stored.path].is_of(stored.size, stored.modified)


def _has_file(files: Files, place: FilePlace) -> bool:
    units = files.get(place.directory)
    return units is not None and contains(units.get(place.unit, ()), place.number)
