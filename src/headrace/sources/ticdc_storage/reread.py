"""The position in which files count as not read, so that their rows are read again. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from headrace.sources.ticdc_storage.days import days_of, with_days
from headrace.sources.ticdc_storage.position import Files, Gone, StoragePosition
from headrace.sources.ticdc_storage.vanished_files import oldest_day


def without(place: StoragePosition, parents: set[str], wanted: Callable[[str], bool]) -> StoragePosition:
    """The position in which no file of the ``wanted`` directories was read. ``parents`` are the folders of their tables.

    Files that must be read regardless of the watermark stay so.
    """
    days: dict[str, dict[str, str]] = {}
    for base, streams in place.days.items():
        for stream, text in streams.items():
            kept = {name: numbers for name, numbers in days_of(text).items() if not wanted(f"{base}/{name}")}
            if kept:
                days.setdefault(base, {})[stream] = text if len(kept) == len(days_of(text)) else with_days("", kept)
    left_out = [replace(left, files=_without(left.files, wanted)) for left in place.left_out]
    return replace(
        place,
        consumed={directory: streams for directory, streams in place.consumed.items() if not wanted(directory)},
        days=days,
        settled={directory: at for directory, at in place.settled.items() if directory in days or not wanted(directory)},
        marks={directory: marks for directory, marks in place.marks.items() if not wanted(directory)},
        open={path: entry for path, entry in place.open.items() if not wanted(path.rpartition("/")[0])},
        unknown_below={parent: version for parent, version in place.unknown_below.items() if parent not in parents},
        left_out=tuple(left for left in left_out if left.files),
    )


def earlier(gone: Gone, since: int) -> Gone:
    """The part of the dropped files that still counts as read if no file with rows above a commit ts (TSO) does."""
    before = (oldest_day(since) - timedelta(days=1)).isoformat()
    return replace(gone, day=min(gone.day, before), undated=False)


def _without(files: Files, wanted: Callable[[str], bool]) -> Files:
    return {directory: units for directory, units in files.items() if not wanted(directory)}
