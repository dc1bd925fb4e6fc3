"""What polls have learned about a changefeed's folder and the position does not have yet. It is carried in the offer. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from headrace.formats.storage_paths import parse_data_name
from headrace.model.offer import Offer
from headrace.model.table import TableId
from headrace.sources.ticdc_storage.catalogue import Catalogue
from headrace.sources.ticdc_storage.drains import Drain
from headrace.sources.ticdc_storage.omitted_files import LeftOutFiles
from headrace.sources.ticdc_storage.position import FileState, StoragePosition
from headrace.sources.ticdc_storage.position_update import adopted
from headrace.sources.ticdc_storage.reader import Listing
from headrace.sources.ticdc_storage.stores import StoredFile

Announced = Mapping[str, tuple[TableId, StoredFile]]
"""Files by path, each with its table, as listed."""


@dataclass(frozen=True)
class Forgotten:
    """What an older Headrace did not record, as a poll found it. The next cut records it."""

    newest: Mapping[str, int] = field(default_factory=dict)
    """Directory -> the latest modification time (ns) of its consumed files."""
    files: tuple[str, ...] = ()
    """The consumed files of old versions."""
    is_adopted: bool = False
    """Whether anything was found."""

    def adopted_by(self, place: StoragePosition) -> StoragePosition:
        """The position with it."""
        return adopted(place, self.newest, self.files) if self.is_adopted else place


@dataclass(frozen=True)
class StorageLearned:
    """See ``headrace.model.offer.Learned``."""

    watermark: int = 0
    """The largest watermark seen so far (TSO)."""
    published: int = 0
    """The same, only from ``metadata``."""
    exact: bool | None = None
    """Whether a file was found to have exact commit ts; ``None`` until one was examined."""
    announced: Announced = field(default_factory=dict)
    """Files offered in this offer or an earlier one that are not applied."""
    catalogue: Catalogue | None = None
    """The contents of the schema files; ``None`` if nothing was listed yet."""
    left_out: LeftOutFiles = field(default_factory=LeftOutFiles)
    unchanged: tuple[FileState, ...] = ()
    """Files that were written again with the same content."""
    forgotten: Forgotten = field(default_factory=Forgotten)
    drain: Drain | None = None
    """The final drain to which a cut of the offer belongs."""
    listing: Listing = field(default_factory=Listing)
    """The listing that belongs to the catalogue."""
    extension: str = ""
    """The extension of the files of the changefeed's protocol; empty if nothing was listed yet."""

    def without(self, tables: Collection[TableId]) -> StorageLearned:
        """See ``Learned.without``."""
        return replace(self, announced={path: entry for path, entry in self.announced.items() if entry[0] not in tables})

    def at(self, place: StoragePosition) -> StorageLearned:
        """What still counts for the next poll at a position: applied files are no longer expected to exist."""
        announced = {path: entry for path, entry in self.announced.items() if not is_done(path, place)}
        return StorageLearned(self.watermark, self.published, self.exact, announced, self.catalogue, extension=self.extension)

    def of_files(self, extension: str, place: StoragePosition) -> StorageLearned:
        """What still counts if the changefeed's files have this extension: others that were given up are no longer expected."""
        given_up = (path for path in self.announced if path in place.given_up and not path.endswith(f".{extension}"))
        dropped = frozenset(given_up)
        announced = {path: entry for path, entry in self.announced.items() if path not in dropped}
        return replace(self, announced=announced, extension=extension)


def learned_of(offer: Offer) -> StorageLearned:
    """What this source's polls had learned by the offer. Raises ``TypeError`` for an offer of another source."""
    if not isinstance(offer.learned, StorageLearned):
        raise TypeError("the offer is none of this source")
    return offer.learned


def is_done(path: str, place: StoragePosition) -> bool:
    """Whether nothing of the file needs reading any more. Does not need to know the layout."""
    directory, _, name = path.rpartition("/")
    parsed = parse_data_name(name)
    return parsed is None or place.is_consumed_at(directory, *parsed[:2], path)
