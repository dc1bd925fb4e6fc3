"""The files that stopped tables still have to read, and how long TiCDC keeps them. Pure.

With ``date-separator = day``, TiCDC removes the files of dates earlier than the checkpoint's date less ``file-expiration-days``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

from headrace.formats.storage_paths import DataPath, parse_path, path_of
from headrace.model.outcome import Notice
from headrace.model.place import PlaceInFile
from headrace.model.split import HeldSplit
from headrace.model.table import TableId
from headrace.sources.ticdc_storage.options import StorageOptions
from headrace.sources.ticdc_storage.position import StoragePosition

_LONGEST = 36_500


def held_files(
    place: StoragePosition, options: StorageOptions, table_of: Callable[[str], TableId | None] | None = None
) -> tuple[HeldSplit, ...]:
    """The open files with changes up to the watermark, the oldest first. ``table_of`` gives the table of a path."""
    opened = ((path, entry.size) for path, entry in place.open.items() if entry.pending_ts <= place.watermark)
    found = []
    for path, size in (*opened, *place.unread_files()):
        held = _held(path, size, options, place, table_of)
        if held is not None:
            found.append(held)
    return tuple(held for _, held in sorted(found, key=lambda item: (item[1].table_id, item[0])))


def _held(
    path: str, size: int, options: StorageOptions, place: StoragePosition, table_of: Callable[[str], TableId | None] | None
) -> tuple[tuple[object, ...], HeldSplit] | None:
    """The file with its place in the order of its table."""
    parsed = parse_path(path, options.date_separator, place.owners)
    if not isinstance(parsed, DataPath):
        return None
    owner = place.owners.get(parsed.parent)
    named = owner.table_id if owner is not None else TableId(*parsed.parent.split("/"))
    table_id = (table_of(path) if table_of else None) or named
    day = _day(parsed.date)
    days = min(options.expiration_days, _LONGEST)
    removed = (day + timedelta(days=days)).isoformat() if day and days else ""
    return parsed.order, HeldSplit(path, table_id, size, parsed.date, removed)


def expiry_notices(
    place: StoragePosition, options: StorageOptions, table_of: Callable[[str], TableId | None] | None = None
) -> tuple[Notice, ...]:
    """For each stopped table: the day of the files that it needs, and when TiCDC removes them. Empty if TiCDC never does."""
    if not options.expiration_days:
        return ()
    paths = [path for path, entry in place.open.items() if entry.pending_ts <= place.watermark]
    for directory, units in place.unread.items():
        # All files of a directory have the same date.
        paths += [path_of(directory, unit, entry.numbers[0][0]) for unit, entry in units.items()]
    oldest: dict[TableId, HeldSplit] = {}
    for path in sorted(paths):
        found = _held(path, 0, options, place, table_of)
        if found is not None and found[1].removed_after and found[1].day < oldest.setdefault(found[1].table_id, found[1]).day:
            oldest[found[1].table_id] = found[1]
    return tuple(expiry_notice(held) for held in oldest.values())


def expiry_notice(held: HeldSplit) -> Notice:
    """The notice about the oldest file that a table still needs."""
    message = f"it is stopped and needs files of {held.day}; TiCDC removes them after {held.removed_after}."
    return Notice(message, held.table_id, PlaceInFile(held.key))


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if len(text) == len("2026-11-21") else None
    except ValueError:
        return None
