"""What polls have learned of a changefeed's folder that the position does not hold yet: it travels in the offer. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from headrace.model.offer import Offer
from headrace.model.table import TableId
from headrace.sources.ticdc_storage.catalogue import Catalogue
from headrace.sources.ticdc_storage.drains import Drain
from headrace.sources.ticdc_storage.omitted_files import LeftOutFiles
from headrace.sources.ticdc_storage.paths import parse_data_name
from headrace.sources.ticdc_storage.position import FileState, StoragePosition
from headrace.sources.ticdc_storage.position_update import adopted
from headrace.sources.ticdc_storage.reader import Listing
from headrace.sources.ticdc_storage.stores import StoredFile

Announced = Mapping[str, tuple[TableId, StoredFile]]
"""Files by their paths, each with its table and as it was listed."""


@dataclass(frozen=True)
class Forgotten:
    """What an older Headrace did not write down, as a poll found it; the next cut writes it down."""

    newest: Mapping[str, int] = field(default_factory=dict)
    """Directory -> the latest modification time (ns) of its consumed files."""
    files: tuple[str, ...] = ()
    """The consumed files of old versions."""
    is_adopted: bool = False
    """Whether there was anything to find."""

    def adopted_by(self, place: StoragePosition) -> StoragePosition:
        """The position with it."""
        return adopted(place, self.newest, self.files) if self.is_adopted else place


@dataclass(frozen=True)
class StorageLearned:
    """See ``headrace.model.offer.Learned``."""

    watermark: int = 0
    """The largest watermark that was seen (TSO)."""
    published: int = 0
    """The same, of those in ``metadata`` alone."""
    exact: bool | None = None
    """Whether a file was found to have exact commit ts; ``None`` while none was looked into."""
    announced: Announced = field(default_factory=dict)
    """The files that were offered, in this offer or before it, and are not applied."""
    catalogue: Catalogue | None = None
    """What the schema files told; ``None`` when nothing was listed yet."""
    left_out: LeftOutFiles = field(default_factory=LeftOutFiles)
    unchanged: tuple[FileState, ...] = ()
    """Files that were written again with the content that they had."""
    forgotten: Forgotten = field(default_factory=Forgotten)
    drain: Drain | None = None
    """The final drain that a cut of the offer is a part of."""
    listing: Listing = field(default_factory=Listing)
    """What was there, where there is a catalogue."""

    def without(self, tables: Collection[TableId]) -> StorageLearned:
        """See ``Learned.without``."""
        return replace(self, announced={path: entry for path, entry in self.announced.items() if entry[0] not in tables})

    def at(self, place: StoragePosition) -> StorageLearned:
        """What still counts at a position for the next poll: files that are applied by then are not missed."""
        announced = {path: entry for path, entry in self.announced.items() if not is_done(path, place)}
        return StorageLearned(self.watermark, self.published, self.exact, announced, self.catalogue)


def learned_of(offer: Offer) -> StorageLearned:
    """What this source's polls had learned when they made the offer. Raises ``TypeError`` for an offer of another source."""
    if not isinstance(offer.learned, StorageLearned):
        raise TypeError("the offer is none of this source")
    return offer.learned


def is_done(path: str, place: StoragePosition) -> bool:
    """Whether nothing of the file needs reading any more; the layout does not matter for that."""
    directory, _, name = path.rpartition("/")
    parsed = parse_data_name(name)
    return parsed is None or place.is_consumed_at(directory, *parsed[:2], path)
