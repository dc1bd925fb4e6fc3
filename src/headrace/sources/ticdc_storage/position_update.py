"""Updates a position: the results of a cut's files, sealing, and what an older ledger did not record. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from headrace.formats.storage_paths import FilePlace, place_of
from headrace.model.cut import CutOutcome
from headrace.model.outcome import SplitReport, is_repeated
from headrace.sources.ticdc_storage.days import days_of, with_days
from headrace.sources.ticdc_storage.drains import Late
from headrace.sources.ticdc_storage.intervals import (
    Intervals,
    add_number,
    add_numbers,
    contains,
    numbers_of,
    remove_number,
)
from headrace.sources.ticdc_storage.position import (
    UNSETTLED,
    Files,
    FileState,
    Mark,
    OpenFile,
    StoragePosition,
    Unread,
    fingerprint,
)

_MARKS_PER_DIRECTORY = 64
_MARKS_IN_ALL = 2_500
_LEAST_MARKS = 2


def advanced(position: StoragePosition, watermark: int, states: Sequence[FileState], *, is_applied: bool = True) -> StoragePosition:
    """The position after a cut with these results. Of several states of one file, the last one counts.

    Unless ``is_applied``, consumed files are those that are not to be read, which shows nothing about the changefeed's protocol.
    """
    taken = {state.path.rpartition(".")[2] for state in states if state.consumed or state.pending_ts is not None}
    counted = max(taken, default="")
    position = position.of_files(counted)
    extension = counted if is_applied else position.applied_extension
    opened = dict(position.open)
    unread, late = _Unread(position.unread), dict(position.late)
    numbers: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    marks: dict[str, dict[str, Mark]] = {}
    for state in states:
        place = place_of(state.path)
        opened.pop(state.path, None)
        if not state.consumed and state.pending_ts is None:
            unread.add(place, state.size)
            if state.told:
                late.pop(state.path, None)
            elif not (position.is_open(state.path) or position.is_consumed_path(state.path)):
                late[state.path] = Late(position.is_behind_at(place), position.drain)
            continue
        unread.remove(place, state.size)
        late.pop(state.path, None)
        if state.pending_ts is not None and not state.consumed:
            opened[state.path] = OpenFile(state.size, state.modified, state.pending_ts, state.first_ts, state.last_ts)
            continue
        numbers[place.directory][place.stream].append(place.number)
        known = marks.setdefault(place.directory, dict(position.marks.get(place.directory, {})))
        name = state.path.rpartition("/")[2]
        known.pop(name, None)
        known[name] = Mark(state.modified, fingerprint(state.size, state.modified) if state.modified else "", state.content)
    consumed = dict(position.consumed)
    settled = dict(position.settled)
    for directory, streams in numbers.items():
        if directory not in consumed and position.is_sealed(directory):
            settled[directory] = position.settled.get(directory.rpartition("/")[0], UNSETTLED)
        before = consumed.get(directory, {})
        consumed[directory] = {**before, **{stream: add_numbers(before.get(stream, ()), new) for stream, new in streams.items()}}
    return _within_bounds(
        replace(
            position,
            watermark=max(position.watermark, watermark),
            consumed=consumed,
            settled=settled,
            marks={directory: entries for directory, entries in {**position.marks, **marks}.items() if entries},
            open=opened,
            extension=extension if taken else position.extension,
            counted=("" if counted == extension else counted) if taken else position.counted,
            own=position.owning(counted).own if taken and is_applied else position.own,
            unread=unread.entries,
            late={path: known for path, known in late.items() if known.is_behind or known.drain is not None},
            begun=without_files(position.begun, (state.path for state in states)) if position.begun else position.begun,
        )
    )


def dropped(position: StoragePosition, paths: Collection[str]) -> StoragePosition:
    """The position in which these files, of another protocol, are not read and not waited for. Their numbers stay free."""
    unread = _Unread(position.unread)
    for path in paths:
        unread.remove(place_of(path), 0)
    return replace(
        position,
        open={path: entry for path, entry in position.open.items() if path not in paths},
        unread=unread.entries,
        late={path: entry for path, entry in position.late.items() if path not in paths},
        begun=without_files(position.begun, paths) if position.begun else position.begun,
    )


def with_files(files: Files, paths: Iterable[str]) -> Files:
    """The files together with those of these paths."""
    added: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for place in map(place_of, paths):
        added[place.directory][place.unit].append(place.number)
    known = {directory: dict(units) for directory, units in files.items()}
    for directory, units in added.items():
        there = known.setdefault(directory, {})
        there.update({unit: add_numbers(there.get(unit, ()), numbers) for unit, numbers in units.items()})
    return known


def without_files(files: Files, paths: Iterable[str]) -> Files:
    """The files without those of these paths."""
    removed: dict[tuple[str, str], set[int]] = defaultdict(set)
    for place in map(place_of, paths):
        removed[place.directory, place.unit].add(place.number)
    left: dict[str, dict[str, Intervals]] = defaultdict(dict)
    for directory, units in files.items():
        for unit, numbers in units.items():
            gone = removed.get((directory, unit), set())
            kept = add_numbers((), [n for n in numbers_of(numbers) if n not in gone]) if gone else numbers
            if kept:
                left[directory][unit] = kept
    return dict(left)


def file_states(reports: Sequence[SplitReport], progress: CutOutcome, modified: Mapping[str, int]) -> list[FileState]:
    """The result of a cut for each file that it read. ``modified`` are the files' modification times.

    A file is consumed if its table is not stopped, it has no problem and nothing above the window, and its last record is whole. Or
    its last record is cut off, and a later file of the table repeats it (as TiCDC does after a crash).
    """
    states = []
    for report in reports:
        good = report.table_id not in progress.stopped and report.problem is None
        pending = report.pending_ts if good else None
        consumed = good and pending is None and (not report.truncated or is_repeated(report, reports))
        modification = modified.get(report.split_key, 0)
        ends = (report.min_ts, report.max_ts) if report.rows and report.max_ts else (0, 0)
        told = report.problem is None and not report.truncated
        states.append(FileState(report.split_key, report.size, modification, consumed, pending, report.content, *ends, told))
    return states


class _Unread:
    """Files that must be read, while some are added and removed."""

    def __init__(self, entries: Mapping[str, Mapping[str, Unread]]) -> None:
        self.entries = dict(entries)
        self._own: set[str] = set()

    def add(self, place: FilePlace, size: int) -> None:
        entry = self.entries.get(place.directory, {}).get(place.unit, Unread((), 0))
        if not contains(entry.numbers, place.number):
            self._put(place, Unread(add_number(entry.numbers, place.number), entry.size + size))

    def remove(self, place: FilePlace, size: int) -> None:
        entry = self.entries.get(place.directory, {}).get(place.unit)
        if entry is not None and contains(entry.numbers, place.number):
            self._put(place, Unread(remove_number(entry.numbers, place.number), max(0, entry.size - size)))

    def _put(self, place: FilePlace, entry: Unread) -> None:
        units = {**self.entries.get(place.directory, {}), place.unit: entry}
        if not entry.numbers:
            del units[place.unit]
        self.entries[place.directory] = units
        if not units:
            del self.entries[place.directory]


def _within_bounds(position: StoragePosition) -> StoragePosition:
    """The position without excess marks. A file that loses its mark is covered by the time up to which all files are settled."""
    limit = max(_LEAST_MARKS, min(_MARKS_PER_DIRECTORY, _MARKS_IN_ALL // max(1, len(position.marks))))
    settled = dict(position.settled)
    marks = {}
    for directory, entries in position.marks.items():
        if len(entries) <= limit:
            marks[directory] = entries
            continue
        ordered = sorted(entries.items(), key=lambda item: item[1].modified)
        if settled.get(directory, 0) != UNSETTLED:
            settled[directory] = max(settled.get(directory, 0), ordered[-limit - 1][1].modified)
        marks[directory] = dict(ordered[-limit:])
    return replace(position, settled=settled, marks=marks)


def adopted(position: StoragePosition, newest: Mapping[str, int], files: Iterable[str]) -> StoragePosition:
    """The position with what an older Headrace did not record: the times of consumed files, and the consumed files of old versions.

    ``newest`` maps directories to the latest modification time (ns) of their files. ``files`` are those of the old versions.
    """
    numbers: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for path in files:
        place = place_of(path)
        numbers[place.directory][place.stream].append(place.number)
    consumed = dict(position.consumed)
    for directory, streams in numbers.items():
        before = consumed.get(directory, {})
        consumed[directory] = {**before, **{stream: add_numbers(before.get(stream, ()), new) for stream, new in streams.items()}}
    unsettled = {directory for directory, modified in position.settled.items() if modified == UNSETTLED}
    settled = dict(position.settled)
    for directory in (unsettled | numbers.keys()) & consumed.keys():
        settled[directory] = max(newest.get(directory, 0), 0)
    return replace(position, consumed=consumed, settled=settled, unknown_below={})


def newest_passed(reached: Mapping[int, int], busy: Collection[int]) -> int:
    """The version below which a table needs nothing: the newest that was passed together with all earlier ones; 0 for none.

    ``reached`` maps each version to the checkpoint of the table that has it. A version is passed if that table has reached it, and
    the table of the previous version, too. ``busy`` are the versions with files that are not applied; from the oldest of them on,
    no version counts as passed.
    """
    passed = 0
    for version in sorted(reached):
        if version > reached[version] or version > reached.get(passed, version):
            break
        passed = version
    return min([passed, *busy])


def passed_below(position: StoragePosition, limits: Mapping[str, int]) -> StoragePosition:
    """The position in which the versions of each table path below its limit are passed."""
    passed = dict(position.passed)
    for path, version in limits.items():
        if version > passed.get(path, 0):
            passed[path] = version
    return position if passed == position.passed else replace(position, passed=passed)


def without_marks(position: StoragePosition, directories: Iterable[str]) -> StoragePosition:
    """The position in which the files of these directories have no marks, and are covered by the time of the latest one."""
    settled, marks = dict(position.settled), dict(position.marks)
    for directory in directories:
        entries = marks.pop(directory, {})
        if settled.get(directory, 0) != UNSETTLED and entries:
            settled[directory] = max(settled.get(directory, 0), *(mark.modified for mark in entries.values()))
    return replace(position, settled=settled, marks=marks)


def sealed_days(position: StoragePosition, directories: Collection[str]) -> StoragePosition:
    """The position in which these date directories are in the texts of their streams."""
    chosen = [directory for directory in directories if directory in position.consumed]
    if not chosen:
        return position
    position = without_marks(position, chosen)
    consumed, settled = dict(position.consumed), dict(position.settled)
    days = {base: dict(streams) for base, streams in position.days.items()}
    added: dict[tuple[str, str], dict[str, Intervals]] = defaultdict(dict)
    for directory in chosen:
        base, _, name = directory.rpartition("/")
        for stream, numbers in consumed.pop(directory).items():
            added[base, f"{stream}/{len(name)}"][name] = numbers
        settled[base] = _later(settled.get(base), settled.pop(directory, 0))
    for (base, stream), dates in added.items():
        text = days.setdefault(base, {}).get(stream, "")
        known = days_of(text) if text else {}
        merged = {date: add_numbers(numbers, numbers_of(known.get(date, ()))) for date, numbers in dates.items()}
        days[base][stream] = with_days(text, merged)
    return replace(position, consumed=consumed, settled=settled, days=days)


def _later(one: int | None, other: int) -> int:
    if one is None:
        return other
    return UNSETTLED if UNSETTLED in (one, other) else max(one, other)
