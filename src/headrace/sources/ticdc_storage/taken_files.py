"""Computes the position after a cut from the reports of its files: on the driver, and in the task that commits the cut. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from headrace.model.cut import CutOutcome
from headrace.model.outcome import SplitReport
from headrace.model.table import TableId
from headrace.sources.ticdc_storage.drains import Drain
from headrace.sources.ticdc_storage.omitted_files import LeftOutFiles
from headrace.sources.ticdc_storage.position import FileState, StoragePosition
from headrace.sources.ticdc_storage.position_update import advanced, file_states, with_files, without_files
from headrace.sources.ticdc_storage.stores import StoredFile


@dataclass(frozen=True)
class Taking:
    """What is known before a cut of an offer is applied (``headrace.model.offer.PositionAfter``)."""

    place: StoragePosition
    """The position before the cut, with the owners of folders as they were listed."""
    watermark: int
    """The largest watermark seen so far (TSO)."""
    published: int
    """The same, only from ``metadata``."""
    announced: Mapping[str, tuple[TableId, StoredFile]]
    """The offered files, and those that an aborted cut took, by path, each with its table."""
    left_out: LeftOutFiles
    unchanged: tuple[FileState, ...] = ()
    """Files that were written again with the same content."""
    drain: Drain | None = None
    """The final drain to which the cut belongs."""

    def after(self, reports: Iterable[SplitReport], progress: CutOutcome) -> str:
        """See ``PositionAfter.after``."""
        return self.place_after(reports, progress).to_text()

    def place_after(self, reports: Iterable[SplitReport], progress: CutOutcome) -> StoragePosition:
        """The position as a value.

        It also names files that a stopped table has not read yet, so that a later run notices if one vanishes.
        """
        known = tuple(reports)
        modified = {r.split_key: self.announced[r.split_key][1].modified for r in known if r.split_key in self.announced}
        states = file_states(known, progress, modified)
        read = {report.split_key for report in known}
        for table_id, stored in self.announced.values():
            if table_id not in progress.behind or stored.path in read or self.place.is_open(stored.path):
                continue
            # What a table has read before a schema change of the cut is already applied.
            if not self.place.is_applied(stored.path, stored.size, stored.modified):
                states.append(FileState(stored.path, stored.size, stored.modified, consumed=False))
        place = advanced(self.place, max(progress.hi, self.watermark), [*states, *self.unchanged])
        ended = (path for path, (table_id, _) in self.announced.items() if table_id in progress.gone) if place.begun else ()
        place = replace(place, drain=self._drain_after(progress.hi), begun=without_files(place.begun, ended))
        return replace(place, left_out=self.left_out.groups(place))

    def begun(self, paths: Iterable[str], hi: int) -> StoragePosition:
        """The position before the first of several steps of a cut up to ``hi`` (TSO) that reads the files with these paths.

        If the run dies, the next run finds in it the files that may have been applied in these steps, those that the cut left out,
        and the final drain.
        """
        drain = self.place.drain if self.drain is None or hi < self.drain.end else self.drain
        place = replace(self.place, begun=with_files(self.place.begun, paths), drain=drain)
        return replace(place, left_out=self.left_out.groups(place))

    def _drain_after(self, hi: int) -> Drain | None:
        """The final drain that the cut completes, or an earlier one unless the watermark has passed it.

        When ``metadata`` promises the drain's time, everything that was still missing from it is there; later it can only be
        repeated.
        """
        drain = self.place.drain if self.drain is None or hi < self.drain.end else self.drain
        return None if drain is not None and min(self.published, hi) > drain.end else drain
