"""The position after a cut, as the reports of its files tell it: on the driver, and in the task that commits the cut. Pure."""

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
    """What the source knows before a cut of an offer is applied (``headrace.model.cut.PositionAfter``)."""

    place: StoragePosition
    """The position before the cut, with the owners of folders as they were listed."""
    watermark: int
    """The largest watermark that was seen (TSO)."""
    published: int
    """The same, of those in ``metadata`` alone."""
    announced: Mapping[str, tuple[TableId, StoredFile]]
    """The files that were offered, and those that a cut took which broke off, by their paths, each with its table."""
    left_out: LeftOutFiles
    unchanged: tuple[FileState, ...] = ()
    """Files that were written again with the content that they had."""
    drain: Drain | None = None
    """The final drain that the cut is a part of."""

    def after(self, reports: Iterable[SplitReport], progress: CutOutcome) -> str:
        """See ``PositionAfter.after``."""
        return self.place_after(reports, progress).to_text()

    def place_after(self, reports: Iterable[SplitReport], progress: CutOutcome) -> StoragePosition:
        """The position as a value.

        Files that a stopped table has not read yet are named too: when one vanishes, a later run has to know.
        """
        known = tuple(reports)
        modified = {r.split_key: self.announced[r.split_key][1].modified for r in known if r.split_key in self.announced}
        states = file_states(known, progress, modified)
        read = {report.split_key for report in known}
        for table_id, stored in self.announced.values():
            if table_id not in progress.behind or stored.path in read or self.place.is_open(stored.path):
                continue
            # What a table has read before a schema change of the cut is applied already.
            if not self.place.is_applied(stored.path, stored.size, stored.modified):
                states.append(FileState(stored.path, stored.size, stored.modified, consumed=False))
        place = advanced(self.place, max(progress.hi, self.watermark), [*states, *self.unchanged])
        ended = (path for path, (table_id, _) in self.announced.items() if table_id in progress.gone) if place.begun else ()
        place = replace(place, drain=self._drain_after(progress.hi), begun=without_files(place.begun, ended))
        return replace(place, left_out=self.left_out.groups(place))

    def begun(self, paths: Iterable[str], hi: int) -> StoragePosition:
        """The position before the first of several steps of a cut up to ``hi`` (TSO) that reads the files of these paths.

        What moves in these steps is then known to a run that comes after one which died: the files that it may have applied, those
        that the cut did without, and the final drain.
        """
        drain = self.place.drain if self.drain is None or hi < self.drain.end else self.drain
        place = replace(self.place, begun=with_files(self.place.begun, paths), drain=drain)
        return replace(place, left_out=self.left_out.groups(place))

    def _drain_after(self, hi: int) -> Drain | None:
        """The final drain that the cut completes, or an earlier one unless the watermark has passed it.

        Whatever of the drain's time was still to come is there when ``metadata`` promises it; later it can only be repeated.
        """
        drain = self.place.drain if self.drain is None or hi < self.drain.end else self.drain
        return None if drain is not None and min(self.published, hi) > drain.end else drain
