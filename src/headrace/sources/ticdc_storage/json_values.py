"""Values of a parsed JSON text, each checked for its kind: ``ValueError`` for any other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.formats.storage_paths import EXTENSIONS, path_of
from headrace.sources.ticdc_storage.intervals import Intervals, format_intervals, parse_intervals


def integer_in(value: object) -> int:
    """A JSON integer."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is not an integer")
    return value


def whole_in(value: object) -> int:
    """A JSON integer that is not negative."""
    number = integer_in(value)
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number


def text_in(value: object) -> str:
    """A JSON text."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value


def list_in(value: object) -> list[object]:
    """A JSON array."""
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is not a list")
    return value


def members_in(value: object) -> Iterable[tuple[str, object]]:
    """The members of a JSON object."""
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not an object")
    return value.items()


def numbers_in(value: object, *counts: int) -> list[object]:
    """A JSON array of one of these lengths."""
    members = list_in(value)
    if len(members) not in counts:
        raise ValueError(f"{value!r} has not the right length")
    return members


def files_in(value: object) -> dict[str, dict[str, Intervals]]:
    """Directory and stream or unit -> numbers."""
    return {
        directory: {stream: parse_intervals(text_in(numbers)) for stream, numbers in members_in(streams)}
        for directory, streams in members_in(value)
    }


def files_to_json(files: Mapping[str, Mapping[str, Intervals]]) -> dict[str, object]:
    """The inverse of :func:`files_in`."""
    return {
        directory: {unit: format_intervals(numbers) for unit, numbers in sorted(units.items())}
        for directory, units in files.items()
    }


def extension_in(value: object) -> str:
    """The extension of a data file, or an empty text."""
    if value not in ("", *EXTENSIONS):
        raise ValueError(f"{value!r} is not the extension of a data file")
    return text_in(value)


def unit_in(value: str) -> str:
    """The unit of a data file's name, see ``FilePlace``."""
    path_of("", value, 1)
    return value
