"""What of a changefeed's files nobody needs to read again: pure values, and the JSON text that the ledger keeps of them.

The position never lists every file. Consumed files are intervals of their numbers per directory and stream; directories of
versions that a table's checkpoint has passed are sealed, one number per table. Only open files (announced, with rows that
are not applied yet) are named one by one.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.sources.ticdc_storage.paths import DataPath, parse_data_name, stream_of

Intervals = tuple[tuple[int, int], ...]
"""Closed, disjoint, ascending intervals that do not touch."""

_FORMAT = 1
_IDENTITIES_PER_DIRECTORY = 100
_IDENTITIES_IN_ALL = 5_000
_LEAST_IDENTITIES = 2


def _lower_end(interval: tuple[int, int]) -> int:
    return interval[0]


def add_number(intervals: Intervals, number: int) -> Intervals:
    """The intervals with one more number."""
    at = bisect_right(intervals, number, key=_lower_end)
    low = high = number
    start = end = at
    if at > 0 and intervals[at - 1][1] >= number - 1:
        start = at - 1
        low = intervals[start][0]
        high = max(number, intervals[start][1])
    if at < len(intervals) and intervals[at][0] <= high + 1:
        end = at + 1
        high = max(high, intervals[at][1])
    return (*intervals[:start], (low, high), *intervals[end:])


def contains(intervals: Intervals, number: int) -> bool:
    """Whether the number is in one of the intervals."""
    at = bisect_right(intervals, number, key=_lower_end)
    return at > 0 and intervals[at - 1][1] >= number


def missing_numbers(numbers: Iterable[int]) -> Intervals:
    """The gaps below the largest number, counted from 1."""
    gaps = []
    expected = 1
    for number in sorted(set(numbers)):
        if number > expected:
            gaps.append((expected, number - 1))
        expected = number + 1
    return tuple(gaps)


def format_intervals(intervals: Intervals) -> str:
    """``1-5,7``."""
    return ",".join(f"{low}-{high}" if low != high else str(low) for low, high in intervals)


def parse_intervals(text: str) -> Intervals:
    """The inverse of :func:`format_intervals`. Raises ``ValueError``."""
    intervals = []
    for part in text.split(",") if text else []:
        low, _, high = part.partition("-")
        intervals.append((int(low), int(high or low)))
    return tuple(intervals)


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file that was announced and is not consumed.

    ``pending_ts`` (TSO) is the smallest commit ts that is not applied, ``None`` when the file has to be read again whatever
    the watermark is (its table stopped, or its last record was cut off). ``modified`` 0 is unknown.
    """

    size: int
    modified: int
    pending_ts: int | None = None


@dataclass(frozen=True, slots=True)
class FileState:
    """What a cut made of one file. ``consumed`` means that every row of it is applied; ``modified`` 0 is unknown."""

    path: str
    size: int
    modified: int
    consumed: bool
    pending_ts: int | None = None


@dataclass(frozen=True, slots=True)
class Drain:
    """A final drain: what lies above ``published``, up to ``end`` (TSO), was taken though ``metadata`` had not promised it.

    ``schema_files`` is how many schema files of these versions were there then, to notice what came later.
    """

    published: int
    end: int
    schema_files: int


@dataclass(frozen=True)
class StoragePosition:
    """The source's place in a changefeed's folder.

    ``consumed`` maps directory and stream to numbers; ``identities`` maps a directory to the names of its last
    consumed files and the :func:`fingerprint` of each, to notice that one was written again; ``sealed`` maps a table's
    path to the version below which its directories need no listing. ``drain`` is there until the watermark has passed it.
    """

    watermark: int = 0
    sealed: Mapping[str, int] = field(default_factory=dict)
    consumed: Mapping[str, Mapping[str, Intervals]] = field(default_factory=dict)
    open: Mapping[str, OpenFile] = field(default_factory=dict)
    identities: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    drain: Drain | None = None

    @classmethod
    def parse(cls, text: str) -> StoragePosition:
        """The position of a ledger's text; empty text is the beginning. Raises ``ValueError`` for text that is no position."""
        if not text:
            return cls()
        try:
            document = json.loads(text)
        except RecursionError:
            raise ValueError("not a position of a TiCDC storage source") from None
        if not isinstance(document, dict) or document.get("v") != _FORMAT:
            raise ValueError("not a position of a TiCDC storage source, or one of a newer Headrace")
        return cls(
            watermark=_whole(document.get("w")),
            sealed={path: _whole(version) for path, version in _members(document.get("s"))},
            consumed={
                directory: {stream: parse_intervals(_text(numbers)) for stream, numbers in _members(streams)}
                for directory, streams in _members(document.get("d"))
            },
            open={path: _open_file(entry) for path, entry in _members(document.get("o"))},
            identities={
                directory: {name: _text(mark) for name, mark in _members(entries)}
                for directory, entries in _members(document.get("i"))
            },
            drain=_drain(document["e"]) if "e" in document else None,
        )

    def to_text(self) -> str:
        """Compact JSON, the same for equal positions."""
        document: dict[str, object] = {
            "v": _FORMAT,
            "w": self.watermark,
            "s": dict(self.sealed),
            "d": {
                directory: {stream: format_intervals(numbers) for stream, numbers in sorted(streams.items())}
                for directory, streams in self.consumed.items()
            },
            "o": {path: [entry.size, entry.modified, entry.pending_ts] for path, entry in self.open.items()},
            "i": {directory: dict(entries) for directory, entries in self.identities.items()},
        }
        if self.drain is not None:
            document["e"] = [self.drain.published, self.drain.end, self.drain.schema_files]
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False, sort_keys=False)

    def is_consumed(self, path: DataPath) -> bool:
        """Whether every row of the file is applied, going by its name."""
        return self.is_consumed_at(path.directory, path.dispatcher, path.digits, path.key)

    def is_consumed_at(self, directory: str, dispatcher: str, digits: str, key: str) -> bool:
        """:meth:`is_consumed` for the parts of a path whose layout is not known."""
        streams = self.consumed.get(directory)
        known = streams is not None and contains(streams.get(stream_of(dispatcher, digits), ()), int(digits))
        return known and key not in self.open

    def is_changed(self, path: DataPath, size: int, modified: int) -> bool:
        """Whether a consumed file is known to have been another one."""
        key = path.key
        known = self.identities.get(path.directory, {}).get(key.rpartition("/")[2])
        return known is not None and known != fingerprint(size, modified)

    def needs_reading(self, path: DataPath, size: int, modified: int, watermark: int) -> bool:
        """Whether the file may hold rows up to ``watermark`` that are not applied."""
        entry = self.open.get(path.key) if self.open else None
        if entry is not None:
            unchanged = entry.size == size and entry.modified in (0, modified)
            return not unchanged or entry.pending_ts is None or entry.pending_ts <= watermark
        return not self.is_consumed(path) or self.is_changed(path, size, modified)


def fingerprint(size: int, modified: int) -> str:
    """A short mark of a file's size and modification time."""
    return f"{zlib.crc32(f'{size}/{modified}'.encode()):08x}"


def advanced(position: StoragePosition, watermark: int, states: Sequence[FileState]) -> StoragePosition:
    """The position after a cut that made these of its files."""
    consumed = {directory: dict(streams) for directory, streams in position.consumed.items()}
    identities = dict(position.identities)
    opened = dict(position.open)
    for state in states:
        directory, stream, number = _place(state.path)
        if not state.consumed:
            opened[state.path] = OpenFile(state.size, state.modified, state.pending_ts)
            continue
        opened.pop(state.path, None)
        streams = consumed.setdefault(directory, {})
        streams[stream] = add_number(streams.get(stream, ()), number)
        name = state.path.rpartition("/")[2]
        entries = {known: mark for known, mark in identities.get(directory, {}).items() if known != name}
        if state.modified:
            entries[name] = fingerprint(state.size, state.modified)
        identities[directory] = entries
    limit = _identity_limit(len(identities))
    return replace(
        position,
        watermark=max(position.watermark, watermark),
        consumed=consumed,
        open=opened,
        identities={directory: _last(entries, limit) for directory, entries in identities.items()},
    )


def newest_sealable(versions: Collection[int], checkpoint: int, busy: Collection[int]) -> int:
    """The version below which a table's directories need no listing: the newest that its checkpoint has passed.

    Every row of an older directory has ``commit_ts <= version <= checkpoint``. ``busy`` are the versions with open files;
    nothing from the oldest of them on is sealed. 0 seals nothing.
    """
    passed = max((version for version in versions if version <= checkpoint), default=0)
    return min([passed, *busy])


def sealed_below(position: StoragePosition, limits: Mapping[str, int]) -> StoragePosition:
    """The position with the directories of each table path below its limit sealed, and forgotten one by one."""
    sealed = dict(position.sealed)
    for path, version in limits.items():
        if version > sealed.get(path, 0):
            sealed[path] = version
    if sealed == position.sealed:
        return position

    def kept(directory: str) -> bool:
        return not is_sealed(directory, sealed)

    return replace(
        position,
        sealed=sealed,
        consumed={directory: streams for directory, streams in position.consumed.items() if kept(directory)},
        identities={directory: entries for directory, entries in position.identities.items() if kept(directory)},
    )


def is_sealed(directory: str, sealed: Mapping[str, int]) -> bool:
    """Whether a data directory lies in a sealed version of its table."""
    segments = directory.split("/")
    for length in (1, 2):
        limit = sealed.get("/".join(segments[:length]))
        if limit is not None and len(segments) > length and segments[length].isdecimal():
            return int(segments[length]) < limit
    return False


def _identity_limit(directories: int) -> int:
    """How many identities a directory may keep: the position goes into the ledger with every cut, so it has to stay small."""
    return max(_LEAST_IDENTITIES, min(_IDENTITIES_PER_DIRECTORY, _IDENTITIES_IN_ALL // max(1, directories)))


def _last(entries: Mapping[str, str], count: int) -> Mapping[str, str]:
    return entries if len(entries) <= count else dict(list(entries.items())[-count:])


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is not an integer")
    return value


def _whole(value: object) -> int:
    number = _integer(value)
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value


def _members(value: object) -> Iterable[tuple[str, object]]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not an object")
    return value.items()


def _numbers(value: object, count: int) -> list[object]:
    if not isinstance(value, list) or len(value) != count:
        raise ValueError(f"{value!r} is not a list of {count}")
    return value


def _open_file(value: object) -> OpenFile:
    size, modified, pending_ts = _numbers(value, 3)
    return OpenFile(_whole(size), _integer(modified), None if pending_ts is None else _whole(pending_ts))


def _drain(value: object) -> Drain:
    published, end, schema_files = _numbers(value, 3)
    return Drain(_whole(published), _whole(end), _whole(schema_files))


def _place(path: str) -> tuple[str, str, int]:
    """Directory, stream and number of a data file."""
    directory, _, name = path.rpartition("/")
    parsed = parse_data_name(name)
    if parsed is None:
        raise ValueError(f"{path} is not the path of a data file")
    dispatcher, digits, _ = parsed
    return directory, stream_of(dispatcher, digits), int(digits)
