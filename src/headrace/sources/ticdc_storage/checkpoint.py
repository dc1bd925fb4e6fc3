"""The ``metadata`` file, with the commit ts up to which the files are complete."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from headrace.errors import NoWatermarkError, SourceNotReadyError
from headrace.formats.storage_paths import METADATA, ForeignPath, parse_path
from headrace.model.tso import CLOCK_TOLERANCE, MAX_TSO, format_tso, latest_tso, tso_and_time, tso_from_ms, tso_to_ms
from headrace.sources.ticdc_storage.stores import Store

_KEY = "checkpoint-ts"
_MOST_BYTES = 4 << 10
"""TiCDC's file has 36 bytes."""
_MOST_FOLDERS = 8
"""So many folders are looked into to say what the place is."""
_PAUSES = (0.02, 0.1, 0.3)
"""Seconds between the attempts. TiCDC rewrites the file in place every two seconds, so a read may see it incomplete."""


def read_checkpoint(
    store: Store,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.time,
    tolerance: int = CLOCK_TOLERANCE,
) -> int:
    """The checkpoint (TSO): all rows with ``commit_ts <=`` it, and all schema changes with a smaller ts, are in the files.

    ``tolerance`` is how far (seconds) it may be ahead of the clock. Raises SourceNotReadyError if it cannot be read or is in the
    future (NoWatermarkError if the changefeed has not written one yet), and SourceUnreachableError.
    """
    for pause in (*_PAUSES, None):
        try:
            checkpoint = _parsed(store.read_start(METADATA, _MOST_BYTES + 1))
        except FileNotFoundError:
            # The file is not half-written: either the first checkpoint is still to come, or this is not a changefeed's folder.
            raise _missing(store) from None
        if checkpoint is not None:
            return _come(checkpoint, store, clock(), tolerance)
        if pause is not None:
            sleep(pause)
    raise SourceNotReadyError(
        f"The file {METADATA} in {store.place} holds no checkpoint.", f'It should read {{"{_KEY}":…}}, as TiCDC writes it.'
    )


def _come(checkpoint: int, store: Store, now: float, tolerance: int) -> int:
    """The checkpoint. Raises SourceNotReadyError for one that no changefeed can have reached yet."""
    if checkpoint > latest_tso(now, tolerance):
        minutes = (tso_to_ms(checkpoint) - int(now * 1000)) // 60_000
        raise SourceNotReadyError(
            f"The checkpoint in the file {METADATA} in {store.place} ({tso_and_time(checkpoint)}) lies {minutes} minutes ahead of "
            f"this machine's clock ({format_tso(tso_from_ms(int(now * 1000)))}), so it is not used.",
            "Correct this machine's clock if it is behind. If TiDB's is ahead by so much, name that as clock-tolerance in the "
            "source's URI. Else the file is wrong, and nothing is applied until TiCDC writes it again.",
        )
    return checkpoint


def _parsed(raw: bytes) -> int | None:
    if len(raw) > _MOST_BYTES:
        return None
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    value = document.get(_KEY) if isinstance(document, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TSO else None


def _missing(store: Store) -> SourceNotReadyError:
    root = store.entries()
    if not root.files and not root.folders:
        store.require_bucket()
        if store.is_local and not store.exists():
            return SourceNotReadyError(f"There is no folder {store.place}.", "Check the path in the source's URI.")
        return SourceNotReadyError(
            f"{store.place} is empty.", "Check the path, and that the changefeed runs: TiCDC writes there within seconds."
        )
    if inner := next((folder for folder in root.folders[:_MOST_FOLDERS] if _has_metadata(store, folder)), None):
        return SourceNotReadyError(
            f"{store.place} has no file {METADATA}, but its folder {inner} has one.",
            f"Name that folder in the source's URI: {store.place.rstrip('/')}/{inner}.",
        )
    if _looks_like_changefeed(store, root.folders):
        return NoWatermarkError(
            f"{store.place} has no file {METADATA} yet.",
            "TiCDC writes it with its first checkpoint: wait, or look at the changefeed. "
            "One that ended before that is taken with --until-end.",
        )
    return SourceNotReadyError(
        f"{store.place} does not look like the output of a changefeed: there is no file {METADATA} in it.",
        "The URI must name the folder that the changefeed's sink URI names.",
    )


def _has_metadata(store: Store, folder: str) -> bool:
    """Whether a folder is that of a changefeed; a database's has folders of tables only."""
    return any(file.path.endswith(f"/{METADATA}") for file in store.entries(folder).files)


def _looks_like_changefeed(store: Store, folders: tuple[str, ...]) -> bool:
    """Whether one of the first folders has a file of the format."""
    for folder in folders[:_MOST_FOLDERS]:
        for file in store.entries(folder, recursive=True).files[:64]:
            if not isinstance(parse_path(file.path), ForeignPath):
                return True
    return False
