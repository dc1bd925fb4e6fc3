"""What tables that stand still have to read yet, and until when TiCDC leaves it there. Pure.

With ``date-separator = day`` TiCDC removes the files of dates before the checkpoint's less ``file-expiration-days``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

from headrace.model.cut import HeldSplit
from headrace.model.outcome import Notice
from headrace.model.table import TableId
from headrace.sources.ticdc_storage.options import StorageOptions
from headrace.sources.ticdc_storage.paths import DataPath, parse_path
from headrace.sources.ticdc_storage.position import StoragePosition

_LONGEST = 36_500


def held_files(
    place: StoragePosition, options: StorageOptions, table_of: Callable[[str], TableId] | None = None
) -> tuple[HeldSplit, ...]:
    """The open files with changes up to the watermark, the oldest first; ``table_of`` knows the table of a path."""
    found = []
    for path, entry in place.open.items():
        parsed = parse_path(path, options.date_separator)
        if not isinstance(parsed, DataPath) or (entry.pending_ts is not None and entry.pending_ts > place.watermark):
            continue
        table_id = table_of(path) if table_of else TableId(*parsed.parent.split("/"))
        day = _day(parsed.date)
        days = min(options.expiration_days, _LONGEST)
        removed = (day + timedelta(days=days)).isoformat() if day and days else ""
        found.append((parsed.order, HeldSplit(path, table_id, entry.size, parsed.date, removed)))
    return tuple(held for _, held in sorted(found, key=lambda item: (item[1].table_id, item[0])))


def expiry_notices(
    place: StoragePosition, options: StorageOptions, table_of: Callable[[str], TableId] | None = None
) -> tuple[Notice, ...]:
    """For each table that stands still: of which day it needs files, and when TiCDC removes them; nothing where it never does."""
    if not options.expiration_days:
        return ()
    oldest: dict[TableId, HeldSplit] = {}
    for held in held_files(place, options, table_of):
        if held.removed_after and held.day < oldest.setdefault(held.table_id, held).day:
            oldest[held.table_id] = held
    return tuple(expiry_notice(held) for held in oldest.values())


def expiry_notice(held: HeldSplit) -> Notice:
    """What people are told of the oldest file that a table still needs."""
    message = f"it stands still and needs files of {held.day}; TiCDC removes them after {held.removed_after}."
    return Notice(message, held.table_id, held.key)


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if len(text) == len("2026-11-21") else None
    except ValueError:
        return None
