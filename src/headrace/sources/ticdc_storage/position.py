"""Which of a changefeed's files need not be read again: pure values, and the JSON text that the ledger stores.

The position lists few files. Consumed files are stored as intervals of their numbers, per directory and stream. Past date
directories share one text per stream. Files that a stopped table still has to read are intervals, too. Only files with rows above
the watermark are listed one by one.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

from headrace.formats.storage_paths import EXTENSIONS, DataPath, FilePlace, parse_data_name, path_of, place_of, stream_of
from headrace.model.table import TableId
from headrace.sources.ticdc_storage.days import check_days, days_of, last_day, numbers_at, reaches
from headrace.sources.ticdc_storage.drains import Drain, Late, drain_in
from headrace.sources.ticdc_storage.intervals import (
    Intervals,
    add_number,
    add_numbers,
    contains,
    count_of,
    format_intervals,
    holds,
    numbers_of,
    parse_intervals,
)
from headrace.sources.ticdc_storage.json_values import (
    extension_in,
    files_in,
    files_to_json,
    integer_in,
    list_in,
    members_in,
    numbers_in,
    text_in,
    unit_in,
    whole_in,
)

UNSETTLED = -1
"""For a directory whose latest time of consumed files was not recorded, because the ledger is from an older Headrace."""
_FORMAT = 2
_FORMATS = (1, _FORMAT)

Files = Mapping[str, Mapping[str, Intervals]]
"""Directory and :func:`unit_of` a file's name -> numbers."""


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file that was announced and whose rows up to the watermark are applied.

    ``pending_ts`` (TSO) is the smallest commit ts that is not applied. ``modified`` 0 is unknown.
    """

    size: int
    modified: int
    pending_ts: int
    first_ts: int = 0
    """The smallest commit ts (TSO) of all its rows, if ``last_ts`` is known."""
    last_ts: int = 0
    """The greatest commit ts (TSO); 0 if unknown."""

    def is_of(self, size: int, modified: int) -> bool:
        """Whether a file of this size and time is the one that was read."""
        return self.size == size and self.modified in (0, modified)


@dataclass(frozen=True, slots=True)
class Unread:
    """Files of one directory and unit that must be read regardless of the watermark. ``size`` is their total in bytes."""

    numbers: Intervals
    size: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A consumed file: its modification time in ns, :func:`fingerprint`, and the CRC-32 of its content if that counts.

    ``modified`` is 0 if unknown, and the fingerprint is empty then, except for marks from an older Headrace.
    """

    modified: int
    print: str
    content: int | None = None


@dataclass(frozen=True, slots=True)
class FileState:
    """The result of a cut for one file. ``consumed``: every row of it is applied; ``modified`` 0 is unknown.

    A file that is not consumed and has no ``pending_ts`` (TSO) must be read again regardless of the watermark: its table stopped,
    or its last record was cut off.
    """

    path: str
    size: int
    modified: int
    consumed: bool
    pending_ts: int | None = None
    content: int | None = None
    first_ts: int = 0
    last_ts: int = 0
    """See :class:`OpenFile`."""
    told: bool = False
    """It was read to its end, and its late rows were reported."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Files that cuts from ``lo`` to ``hi`` (TSO) left out, because their first rows are above."""

    lo: int
    hi: int
    files: Files


@dataclass(frozen=True, slots=True)
class Owner:
    """The table to which a folder named by a table id belongs, according to its newest readable schema file."""

    version: int
    table_id: TableId


@dataclass(frozen=True, slots=True)
class Gone:
    """Consumed files of a table's path that are gone and that the position no longer lists (:mod:`~.forgetting`)."""

    files: int
    """Their number; a file counts each time it is dropped."""
    version: int
    """The newest of their versions."""
    day: str = ""
    """The last day (ISO) of the newest of their past dates; ``""`` for none."""
    undated: bool = False
    """Whether some had no date, or one that was not past."""


@dataclass(frozen=True)
class StoragePosition:
    """The source's position in a changefeed's folder."""

    watermark: int = 0
    passed: Mapping[str, int] = field(default_factory=dict)
    """A table's path -> the version below which its checkpoint has passed all rows."""
    unknown_below: Mapping[str, int] = field(default_factory=dict)
    """A table's path -> the version below which an older Headrace dropped its list of consumed files: all that existed."""
    consumed: Mapping[str, Mapping[str, Intervals]] = field(default_factory=dict)
    """Directory and stream -> numbers."""
    days: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The parent of date directories, and stream with the length of their names -> the numbers (:mod:`~.days`)."""
    settled: Mapping[str, int] = field(default_factory=dict)
    """Directory, or parent of date directories -> a time (ns): a consumed file modified later has a mark, or is another one."""
    marks: Mapping[str, Mapping[str, Mark]] = field(default_factory=dict)
    """Directory and file name -> the marks of consumed files that are later than that."""
    open: Mapping[str, OpenFile] = field(default_factory=dict)
    unread: Mapping[str, Mapping[str, Unread]] = field(default_factory=dict)
    late: Mapping[str, Late] = field(default_factory=dict)
    """The unread files that came late, by path: a cut that takes them reports the rows that it skips."""
    left_out: tuple[LeftOut, ...] = ()
    begun: Files = field(default_factory=dict)
    """Files that a cut of several steps takes: their rows may be applied before anything else here shows it."""
    drain: Drain | None = None
    """Kept until the watermark has passed it."""
    owners: Mapping[str, Owner] = field(default_factory=dict)
    """Table id -> the table, since paths do not show it when its schema files are damaged or removed."""
    gone: Mapping[str, Gone] = field(default_factory=dict)
    """A table's path -> its dropped files."""
    given_up: Mapping[str, str] = field(default_factory=dict)
    """The path of a file of another protocol that a person gave up -> its :func:`fingerprint`. Its number says nothing of the
    changefeed's own files, so ``consumed`` does not have it."""
    extension: str = ""
    """The extension of the files that were applied; empty if there are none, or if only an older Headrace applied some."""
    counted: str = ""
    """The extension of the files of which ``consumed``, ``days``, ``settled``, ``marks`` and ``gone`` speak, unless it is
    ``extension``. These name files by numbers, which files of two protocols have in common."""
    aside: Mapping[str, StoragePosition] = field(default_factory=dict)
    """Another extension -> the same five parts for its files."""
    own: tuple[str, ...] = ()
    """:attr:`own_extensions`; empty if there are none, or if only an older Headrace read the files."""

    @classmethod
    def parse(cls, text: str) -> StoragePosition:
        """The position in a ledger's text. An empty text is the beginning. Raises ``ValueError`` for any other text."""
        if not text:
            return cls()
        try:
            document = json.loads(text)
        except RecursionError:
            raise ValueError("not a position of a TiCDC storage source") from None
        if not isinstance(document, dict) or type(document.get("v")) is not int or document["v"] not in _FORMATS:
            raise ValueError("not a position of a TiCDC storage source, or one of a newer Headrace")
        return _of_first_format(document) if document["v"] == 1 else _of_document(document)

    @property
    def applied_extension(self) -> str:
        """The extension of the files that were applied, at least in part; of one of them if an older Headrace did not record it."""
        if self.extension or self.counted:
            return self.extension
        marked = (name for marks in self.marks.values() for name in marks)
        begun = (unit for units in self.begun.values() for unit in units)
        return next((name.rpartition(".")[2] for name in chain(marked, self.open, begun)), "")

    @cached_property
    def counted_extension(self) -> str:
        """The extension of the files that count as consumed; empty if an older Headrace consumed files and did not record it."""
        if self.counted or self.extension:
            return self.counted or self.extension
        marked = {name.rpartition(".")[2] for marks in self.marks.values() for name in marks}
        return marked.pop() if len(marked) == 1 else ""

    @cached_property
    def own_extensions(self) -> tuple[str, ...]:
        """The extensions of all protocols that were the changefeed's: configured, or of applied files, and not only guessed."""
        applied = self.applied_extension
        return self.own or (tuple(sorted({applied, *self.aside})) if applied else ())

    def owning(self, extension: str) -> StoragePosition:
        """The position with one more of :attr:`own_extensions`."""
        return replace(self, own=tuple(sorted({*self.own_extensions, extension})))

    def of_files(self, extension: str) -> StoragePosition:
        """The position in which the files of this extension count, and those of another one are kept aside.

        A number that was consumed of a file of another protocol says nothing of these. Nothing is forgotten: when the protocol is
        changed back, no file is read twice.
        """
        own = self.counted_extension
        if not extension or not own or own == extension:
            return self
        kept = _counted_of(self, StoragePosition())
        aside = {other: place for other, place in self.aside.items() if other != extension}
        if kept != StoragePosition():
            aside[own] = kept
        found = _counted_of(self.aside.get(extension, StoragePosition()), self)
        applied = self.applied_extension
        return replace(found, extension=applied, counted="" if extension == applied else extension, aside=aside)

    @cached_property
    def _others(self) -> StoragePosition:
        """The position of the files of the other extension."""
        return self.of_files(next(extension for extension in EXTENSIONS if extension != self.counted_extension))

    def _counting(self, key: str) -> StoragePosition:
        """The position in which the files of this one's extension count."""
        own = self.counted_extension
        return self if not own or key.endswith(own) else self._others

    def to_text(self) -> str:
        """Compact JSON, the same for equal positions."""
        return json.dumps(self._document(), separators=(",", ":"), ensure_ascii=False, sort_keys=False)

    def _document(self) -> dict[str, object]:
        document: dict[str, object] = {"v": _FORMAT, "w": self.watermark}
        parts: dict[str, object] = {
            "s": dict(self.passed),
            "f": dict(self.unknown_below),
            "d": files_to_json(self.consumed),
            "a": {base: dict(streams) for base, streams in self.days.items()},
            "m": dict(self.settled),
            "i": {directory: _marks_to_json(marks) for directory, marks in self.marks.items() if marks},
            "o": {path: _open_to_json(entry) for path, entry in self.open.items()},
            "u": {
                directory: {unit: [format_intervals(entry.numbers), entry.size] for unit, entry in sorted(units.items())}
                for directory, units in self.unread.items()
            },
            "n": {path: late.numbers for path, late in self.late.items()},
            "l": [[left.lo, left.hi, files_to_json(left.files)] for left in self.left_out],
            "b": files_to_json(self.begun),
            "t": {parent: [o.version, o.table_id.database, o.table_id.table] for parent, o in self.owners.items()},
            "g": {parent: [g.files, g.version, g.day, int(g.undated)] for parent, g in self.gone.items()},
            "x": dict(self.given_up),
            "y": self.extension,
            "k": self.counted,
            "p": list(self.own),
            "z": {extension: place._document() for extension, place in sorted(self.aside.items())},
        }
        document |= {key: part for key, part in parts.items() if part}
        if self.drain is not None:
            document["e"] = self.drain.numbers
        return document

    def is_consumed(self, path: DataPath) -> bool:
        """Whether every row of the file is applied, according to its name."""
        return self.is_consumed_at(path.directory, path.dispatcher, path.digits, path.key)

    def is_consumed_at(self, directory: str, dispatcher: str, digits: str, key: str) -> bool:
        """:meth:`is_consumed` for the parts of a path whose layout is not known."""
        counting = self._counting(key)
        number = int(digits)
        streams = counting.consumed.get(directory)
        known = streams is not None and contains(streams.get(stream_of(dispatcher, digits), ()), number)
        if not known:
            known = counting.is_sealed_at(directory, dispatcher, digits)
        return known and key not in self.open and not self.is_unread(directory, key)

    def is_sealed_at(self, directory: str, dispatcher: str, digits: str) -> bool:
        """Whether the file was consumed before its date directory was sealed."""
        base, _, name = directory.rpartition("/")
        streams = self.days.get(base)
        if streams is None:
            return False
        text = streams.get(f"{stream_of(dispatcher, digits)}/{len(name)}")
        return text is not None and contains(numbers_at(text, name), int(digits))

    def is_sealed(self, directory: str) -> bool:
        """Whether the directory is that of a date, and old enough that nothing should be written into it any more."""
        return directory not in self.consumed and self.is_before_sealed(directory)

    def is_before_sealed(self, directory: str) -> bool:
        """Whether a later date than the directory's is already sealed."""
        base, _, name = directory.rpartition("/")
        return any(reaches(text, name) for text in self.days.get(base, {}).values())

    def is_before_gone(self, path: DataPath) -> bool:
        """Whether the file is unknown, and files of its date, or of later dates of its table, were dropped."""
        gone = self.gone.get(path.parent)
        if gone is None or not gone.day or self.is_open(path.key) or path.stream in self.consumed.get(path.directory, {}):
            return False
        return "" < last_day(path.date) <= gone.day

    def is_unread(self, directory: str, key: str) -> bool:
        """Whether the file was announced and must be read regardless of the watermark."""
        units = self.unread.get(directory)
        if units is None:
            return False
        place = place_of(key)
        entry = units.get(place.unit)
        return entry is not None and contains(entry.numbers, place.number)

    def is_open(self, key: str) -> bool:
        """Whether the file was announced and has rows that are not applied."""
        return key in self.open or (bool(self.unread) and self.is_unread(key.rpartition("/")[0], key))

    def has_begun(self, key: str, size: int, modified: int) -> bool:
        """Whether the file with this size and time was read and has rows that are not applied."""
        entry = self.open.get(key)
        return entry is not None and entry.is_of(size, modified)

    def is_behind(self, path: DataPath) -> bool:
        """Whether the file was never announced, though one with a larger number was applied, at least in part."""
        if path.key in self.late:
            return self.late[path.key].is_behind
        return not (self.is_consumed(path) or self.is_open(path.key)) and self.is_behind_at(place_of(path.key))

    def drain_before(self, key: str) -> Drain | None:
        """The final drain after which the file came."""
        if key in self.late:
            return self.late[key].drain
        return None if self.is_open(key) else self.drain

    def is_behind_at(self, place: FilePlace) -> bool:
        """Whether a file with a larger number than this place was applied, at least in part."""
        path = place
        begun = self.begun.get(path.directory, {}).get(place.unit, ())
        consumed = self._counting(place.unit).consumed.get(path.directory, {})
        applied = [consumed.get(place.stream, ()), () if contains(begun, place.number) else begun]
        largest = max([numbers[-1][1] for numbers in applied if numbers], default=0)
        return place.number < max(largest, self._largest_open.get((path.directory, place.unit), 0))

    @cached_property
    def _largest_open(self) -> Mapping[tuple[str, str], int]:
        """The largest number of the open files of each directory and unit."""
        found: dict[tuple[str, str], int] = {}
        for place in map(place_of, self.open):
            key = place.directory, place.unit
            found[key] = max(place.number, found.get(key, 0))
        return found

    def consumed_in(self, directory: str) -> dict[str, Intervals]:
        """The numbers of a directory's consumed files by stream, sealed or not."""
        found = dict(self.consumed.get(directory, {}))
        base, _, name = directory.rpartition("/")
        for key, text in self.days.get(base, {}).items():
            stream = key.rpartition("/")[0]
            found[stream] = add_numbers(found.get(stream, ()), numbers_of(numbers_at(text, name)))
        return found

    def has_part(self, prefix: str) -> bool:
        """Whether any file whose path begins like this was read, or is to be read."""
        tables = (f"{parent}/" for parent in self.gone)
        known = any(path.startswith(prefix) for path in (*self.consumed, *self.days, *self.unread, *self.open, *tables))
        return known or any(place.has_part(prefix) for place in self.aside.values())

    def goes_on_from(self, former: StoragePosition) -> bool:
        """Whether every file that counts as consumed at ``former`` also does here."""
        if self is former:
            return True
        extensions = (former.counted_extension, *former.aside)
        return all(self.of_files(each)._goes_on_from(former.of_files(each)) for each in extensions)

    def _goes_on_from(self, former: StoragePosition) -> bool:
        opened = {path.rpartition("/")[0] for path in self.open.keys() - former.open.keys()}
        opened |= {directory for directory, units in self.unread.items() if units != former.unread.get(directory)}
        if any(former.consumed_in(directory) for directory in opened):
            # A file that is not applied here may have been applied there.
            paths = [*self.open.keys() - former.open.keys(), *(path for path, _ in self.unread_files())]
            if any(not former.is_open(path) and former.is_consumed_path(path) for path in paths):
                return False
        changed = {directory for directory, streams in former.consumed.items() if self.consumed.get(directory) != streams}
        for base, texts in former.days.items():
            if self.days.get(base) != texts:
                changed |= {f"{base}/{name}" for text in texts.values() for name in days_of(text)}
        return all(holds(self.consumed_in(directory), former.consumed_in(directory)) for directory in changed)

    def is_consumed_path(self, path: str) -> bool:
        """:meth:`is_consumed` for a path whose layout is not known."""
        directory, _, name = path.rpartition("/")
        parsed = parse_data_name(name)
        return parsed is not None and self.is_consumed_at(directory, parsed[0], parsed[1], path)

    def consumed_directories(self) -> Iterator[str]:
        """The directories with consumed files, including those of sealed dates."""
        yield from self.consumed
        for base, streams in self.days.items():
            for name in sorted({name for text in streams.values() for name in days_of(text)}):
                if f"{base}/{name}" not in self.consumed:
                    yield f"{base}/{name}"

    def is_changed(self, path: DataPath, size: int, modified: int) -> bool:
        """Whether a consumed file is known to have been a different one."""
        return self._is_changed_at(path.directory, path.key, size, modified)

    def is_applied(self, key: str, size: int, modified: int) -> bool:
        """Whether every row of the file with this size and time is applied. Does not need to know the layout."""
        directory = key.rpartition("/")[0]
        return self.is_consumed_path(key) and not self._is_changed_at(directory, key, size, modified)

    def _is_changed_at(self, directory: str, key: str, size: int, modified: int) -> bool:
        counting = self._counting(key)
        if counting is not self:
            return counting._is_changed_at(directory, key, size, modified)
        mark = self.marks[directory].get(key.rpartition("/")[2]) if directory in self.marks else None
        if mark is not None:
            return mark.print not in ("", fingerprint(size, modified))
        settled = self.settled.get(directory)
        if settled is None:
            settled = 0 if directory in self.consumed else self.settled.get(directory.rpartition("/")[0], 0)
        return settled != UNSETTLED and modified > settled

    def content_of(self, path: DataPath) -> int | None:
        """The CRC-32 of a consumed file's content, if known."""
        mark = self.marks.get(path.directory, {}).get(path.key.rpartition("/")[2])
        return mark.content if mark is not None else None

    def needs_reading(self, path: DataPath, size: int, modified: int, watermark: int) -> bool:
        """Whether the file may hold rows up to ``watermark`` that are not applied."""
        entry = self.open.get(path.key) if self.open else None
        if entry is not None:
            return not entry.is_of(size, modified) or entry.pending_ts <= watermark
        return not self.is_consumed(path) or self.is_changed(path, size, modified)

    def unread_files(self) -> Iterator[tuple[str, int]]:
        """The path and the average size in bytes of each file that must be read regardless of the watermark."""
        for directory, units in self.unread.items():
            for unit, entry in units.items():
                size, rest = divmod(entry.size, max(1, count_of(entry.numbers)))
                for number in numbers_of(entry.numbers):
                    yield path_of(directory, unit, number), size + rest
                    rest = 0

    def begun_files(self) -> Iterator[str]:
        """The paths of the files that an aborted cut took."""
        for directory, units in self.begun.items():
            for unit, numbers in units.items():
                yield from (path_of(directory, unit, number) for number in numbers_of(numbers))


def _counted_of(place: StoragePosition, others: StoragePosition) -> StoragePosition:
    """What ``place`` knows of consumed files, and the rest from ``others``."""
    known = replace(others, consumed=place.consumed, days=place.days, settled=place.settled)
    return replace(known, marks=place.marks, gone=place.gone)


def fingerprint(size: int, modified: int) -> str:
    """A short mark of a file's size and modification time."""
    return f"{zlib.crc32(f'{size}/{modified}'.encode()):08x}"


def _open_to_json(entry: OpenFile) -> list[int]:
    ends = [entry.first_ts, entry.last_ts] if entry.last_ts else []
    return [entry.size, entry.modified, entry.pending_ts, *ends]


def _marks_to_json(marks: Mapping[str, Mark]) -> dict[str, str]:
    return {
        name: f"{mark.modified:x}.{mark.print}" if mark.content is None else f"{mark.modified:x}.{mark.print}.{mark.content:x}"
        for name, mark in marks.items()
    }


def _of_document(document: Mapping[str, object]) -> StoragePosition:
    return StoragePosition(
        watermark=whole_in(document.get("w")),
        passed={path: whole_in(version) for path, version in members_in(document.get("s", {}))},
        unknown_below={path: whole_in(version) for path, version in members_in(document.get("f", {}))},
        consumed=files_in(document.get("d", {})),
        days={
            base: {stream: check_days(text_in(text)) for stream, text in members_in(streams)}
            for base, streams in members_in(document.get("a", {}))
        },
        settled={directory: integer_in(modified) for directory, modified in members_in(document.get("m", {}))},
        marks={
            directory: {name: _mark(entry) for name, entry in members_in(entries)}
            for directory, entries in members_in(document.get("i", {}))
            if entries
        },
        open={path: _open_file(entry) for path, entry in members_in(document.get("o", {}))},
        unread={
            directory: {unit_in(unit): _unread(entry) for unit, entry in members_in(units)}
            for directory, units in members_in(document.get("u", {}))
        },
        late={
            path: Late.of([whole_in(number) for number in numbers_in(entry, 1, 4, 5)])
            for path, entry in members_in(document.get("n", {}))
        },
        left_out=tuple(_left_out(entry) for entry in list_in(document.get("l", []))),
        begun=files_in(document.get("b", {})),
        drain=drain_in(document["e"]) if "e" in document else None,
        owners={parent: _owner(entry) for parent, entry in members_in(document.get("t", {}))},
        gone={parent: _gone(entry) for parent, entry in members_in(document.get("g", {}))},
        given_up={path: text_in(mark) for path, mark in members_in(document.get("x", {}))},
        extension=extension_in(document.get("y", "")),
        counted=extension_in(document.get("k", "")),
        own=tuple(extension_in(extension) for extension in list_in(document.get("p", []))),
        aside={extension_in(extension): _aside(place) for extension, place in members_in(document.get("z", {}))},
    )


def _of_first_format(document: Mapping[str, object]) -> StoragePosition:
    """The position in the format of an older Headrace: no times, files of stopped tables one by one, old versions dropped."""
    consumed = files_in(document.get("d"))
    sealed = {path: whole_in(version) for path, version in members_in(document.get("s"))}
    opened: dict[str, OpenFile] = {}
    unread: dict[str, dict[str, Unread]] = {}
    for path, entry in members_in(document.get("o")):
        size, modified, pending_ts = numbers_in(entry, 3)
        if pending_ts is not None:
            opened[path] = OpenFile(whole_in(size), integer_in(modified), whole_in(pending_ts))
            continue
        place = place_of(path)
        units = unread.setdefault(place.directory, {})
        before = units.get(place.unit, Unread((), 0))
        units[place.unit] = Unread(add_number(before.numbers, place.number), before.size + whole_in(size))
    return StoragePosition(
        watermark=whole_in(document.get("w")),
        passed=sealed,
        unknown_below=dict(sealed),
        consumed=consumed,
        settled=dict.fromkeys(consumed, UNSETTLED),
        marks={
            directory: {name: Mark(0, text_in(mark)) for name, mark in members_in(entries)}
            for directory, entries in members_in(document.get("i"))
            if entries
        },
        open=opened,
        unread=unread,
        drain=drain_in(document["e"]) if "e" in document else None,
    )


def _owner(entry: object) -> Owner:
    version, database, table = list_in(entry)
    return Owner(whole_in(version), TableId(text_in(database), text_in(table)))


def _gone(entry: object) -> Gone:
    files, version, day, undated = numbers_in(entry, 4)
    return Gone(whole_in(files), whole_in(version), text_in(day), bool(whole_in(undated)))


def _aside(value: object) -> StoragePosition:
    return _of_document({"w": 0, **{key: part for key, part in members_in(value) if key in "damig"}})


def _unread(value: object) -> Unread:
    numbers, size = numbers_in(value, 2)
    return Unread(parse_intervals(text_in(numbers)), whole_in(size))


def _mark(value: object) -> Mark:
    modified, fingerprint_text, *content = text_in(value).split(".")
    return Mark(int(modified, 16), fingerprint_text, int(content[0], 16) if content else None)


def _open_file(value: object) -> OpenFile:
    size, modified, pending_ts, *ends = numbers_in(value, 3, 5)
    return OpenFile(whole_in(size), integer_in(modified), whole_in(pending_ts), *map(whole_in, ends))


def _left_out(value: object) -> LeftOut:
    lo, hi, files = numbers_in(value, 3)
    return LeftOut(whole_in(lo), whole_in(hi), files_in(files))
