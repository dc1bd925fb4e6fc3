"""Selects the splits that may hold rows which are not applied yet, from a listing, a catalogue and a position. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

from headrace.ddl.lexer import words
from headrace.errors import SourceUnreachableError
from headrace.formats.storage_paths import DataPath, has_possible_names, is_misplaced
from headrace.formats.values import repeats_an_hour
from headrace.model.commands import skip_command
from headrace.model.outcome import Notice, Problem
from headrace.model.place import PlaceInFile
from headrace.model.split import Window
from headrace.model.table import TableId
from headrace.model.types import TypeKind
from headrace.sources.ticdc_storage.catalogue import Catalogue
from headrace.sources.ticdc_storage.final_drain import late_schema_files
from headrace.sources.ticdc_storage.intervals import (
    Intervals,
    add_numbers,
    count_of,
    format_intervals,
    missing_numbers,
    united,
)
from headrace.sources.ticdc_storage.options import Protocol, StorageOptions
from headrace.sources.ticdc_storage.position import StoragePosition, fingerprint
from headrace.sources.ticdc_storage.reader import Listing
from headrace.sources.ticdc_storage.splits import FileSplit
from headrace.sources.ticdc_storage.stores import StoredFile, StoreLocation
from headrace.sources.ticdc_storage.table_versions import TableVersion

_VANISHED_HINT = "Restore it, or copy the table anew; if TiCDC removed it, its file-expiration-days are too few."

_LOAD_ANEW = "Load the table anew as of a time after the change of protocol, and run headrace table resync TABLE --at TIME."

AGAIN = "was written again after it was applied; it is read once more."
_LATE = (
    "appeared in the directory of a date that is over in every time zone. It is read, but rows of it up to the checkpoint are "
    "not applied: look at the clock and the zone of the TiCDC nodes, and compare the table with its source."
)
_BEGINNING = StoragePosition()
_META = "meta"
_GAPS_SHOWN = 20
_NONE_LEFT_OUT: Mapping[StoredFile, Window] = {}
_NONE_EARLY: Mapping[StoredFile, int] = {}
_MIXED_PARTITIONS = (
    "The table is partitioned, and its files lie in no folder of a partition. Older releases of TiCDC let the partitions overwrite "
    "each other's files there, and the folder does not show whether that happened: set enable-partition-separator = true."
)

Candidate = tuple[StoredFile, DataPath, TableVersion]
"""A file to read, with the table version to which it belongs."""


@dataclass(frozen=True)
class Selection:
    """The files to read, with notices about the selection."""

    candidates: tuple[Candidate, ...]
    unknown: tuple[tuple[StoredFile, DataPath], ...]
    """Files of versions without a schema file."""
    notices: tuple[Notice, ...]
    suspects: tuple[Candidate, ...] = ()
    """Files that were written again after they were applied, if only their times show it and another reading would apply their rows
    again."""


def detect_protocol(listing: Listing, options: StorageOptions, position: StoragePosition = _BEGINNING) -> Protocol:
    """The changefeed's protocol as configured, otherwise that of most data files."""
    if options.protocol is not None:
        return options.protocol
    if applied := position.applied_extension:
        return _protocol_of(applied)
    counts = Counter(path.extension for stored, path in listing.data if not _is_given_up(stored, position))
    return Protocol.CANAL_JSON if counts["json"] > counts["csv"] else Protocol.CSV


def of_protocol(listing: Listing, protocol: Protocol) -> Listing:
    """The listing with the data files of the protocol only. A file of another one proves nothing about a number of these."""
    return of_extension(listing, protocol.extension)


def of_extension(listing: Listing, extension: str) -> Listing:
    """The listing with the data files of this extension only."""
    own = tuple(file for file in listing.data if file[1].extension == extension)
    return listing if len(own) == len(listing.data) else replace(listing, data=own)


def select_files(
    listing: Listing,
    catalogue: Catalogue,
    position: StoragePosition,
    watermark: int,
    schema_bound: int,
    *,
    protocol: Protocol,
    exact: bool,
) -> Selection:
    """The files of the listing that may hold rows up to ``watermark`` that are not applied. ``exact``: rows have a commit ts.

    Schema changes are certain below ``schema_bound``.
    """
    candidates = []
    unknown = []
    suspects = []
    again = []
    late = []
    repeatable = exact or protocol is not Protocol.CSV
    for stored, path in listing.data:
        # TiCDC has created an empty file but not filled it yet. It is written again with rows, or never.
        if stored.size == 0 or not position.needs_reading(path, stored.size, stored.modified, watermark):
            continue
        version = catalogue.versions.get(path.parent, {}).get(path.version)
        if version is None:
            unknown.append((stored, path))
            continue
        if position.is_consumed(path):
            if not repeatable:
                suspects.append((stored, path, version))
                continue
            again.append((stored, path, version))
        elif position.is_sealed(path.directory) or position.is_before_gone(path):
            late.append((stored, path, version))
        # A schema change at the watermark is not certain yet, and the rows after it are above the watermark.
        if path.version >= schema_bound and (not exact or version.stale_from < path.version):
            continue
        candidates.append((stored, path, version))
    notices = (*of_tables(again, AGAIN), *of_tables(late, _LATE))
    return Selection(tuple(candidates), tuple(unknown), notices, tuple(suspects))


def stranger_problems(
    listing: Listing,
    catalogue: Catalogue,
    position: StoragePosition,
    schema_bound: int,
    protocol: Protocol,
    *,
    is_detected: bool,
) -> tuple[Problem, ...]:
    """A problem for each table with files of another protocol, which names the first of them, one with
    rows that are not applied if there is one: its rows would be passed over.

    Not for files that a person gave up, and not for those of versions that are over or not certain yet (``schema_bound``, TSO).
    ``is_detected``: the protocol was not configured.
    """
    found: dict[TableId, tuple[StoredFile, DataPath]] = {}
    others = [f for f in listing.data if f[1].extension != protocol.extension and f[0].size and not _is_given_up(f[0], position)]
    for stored, path in sorted(others, key=lambda file: position.is_applied(file[0].path, file[0].size, file[0].modified)):
        if position.passed.get(path.parent, 0) <= path.version < schema_bound:
            found.setdefault(catalogue.table_of(path.parent, path.version), (stored, path))
    is_any_ours = bool(of_protocol(listing, protocol).data)
    return tuple(
        Problem(
            table_id,
            f"The file is .{path.extension}, and the protocol is {protocol}: the table waits, so that no row of it is passed over.",
            PlaceInFile(stored.path),
            hint=_ways_on(
                path.extension,
                protocol,
                skip_command(table_id, PlaceInFile(stored.path)),
                is_detected=is_detected,
                is_any_ours=is_any_ours,
                may_be_needed=path.extension in position.own_extensions
                and not position.is_applied(stored.path, stored.size, stored.modified),
            ),
        )
        for table_id, (stored, path) in found.items()
    )


def _ways_on(
    extension: str, protocol: Protocol, skip: str, *, is_detected: bool, is_any_ours: bool, may_be_needed: bool = False
) -> str:
    other = _protocol_of(extension)
    if is_detected:
        wrong = f"If the changefeed's protocol is {other}, name it with protocol={other} in the source's URI."
    elif not is_any_ours:
        return (
            f"Look up the changefeed's protocol first. No data file is .{protocol.extension}: correct protocol= in the source's "
            f"URI, or leave it out, if it is {other}. If it is {protocol}, move the file away or give it up with {skip}."
        )
    else:
        wrong = "A changefeed that was made anew with another protocol needs a folder and a pipeline of its own."
    if may_be_needed:
        needed = f"Files of this changefeed were .{extension} before, and rows of this one may not be applied"
        return f"{needed}: do not move it away. {_LOAD_ANEW} If no row of it is needed, give it up with {skip}. {wrong}"
    return f"If it is not a file of this changefeed, move it away or give it up with {skip}. {wrong}"


def _protocol_of(extension: str) -> Protocol:
    return next(protocol for protocol in Protocol if protocol.extension == extension)


def _is_given_up(stored: StoredFile, position: StoragePosition) -> bool:
    mark = position.given_up.get(stored.path)
    return mark is not None and mark == fingerprint(stored.size, stored.modified)


def of_tables(files: Iterable[Candidate], message: str) -> Iterator[Notice]:
    """One notice for each table, which names the first of its files."""
    by_table: dict[TableId, list[str]] = defaultdict(list)
    for stored, _, version in files:
        by_table[version.table_id].append(stored.path)
    for table_id, paths in by_table.items():
        others = f" The same goes for {len(paths) - 1} more of the table." if len(paths) > 1 else ""
        yield Notice(f"The file {message}{others}", table_id, PlaceInFile(paths[0]))


def mixed_partition_notices(candidates: Iterable[Candidate], catalogue: Catalogue) -> tuple[Notice, ...]:
    """A warning for each table that has partitions by its statement, and whose files are not in partition folders."""
    versions = {v.origin: v for _, path, v in candidates if not path.partition and path.parent not in catalogue.table_ids}
    tables = {version.table_id for version in versions.values() if _makes_partitions(version.statement)}
    return tuple(Notice(_MIXED_PARTITIONS, table_id) for table_id in sorted(tables))


def _makes_partitions(statement: str) -> bool:
    if "PARTITION" not in statement.upper():
        return False
    return any(word.says("PARTITION") and after.says("BY") for word, after in pairwise(words(statement) or ()))


def ranked_splits(
    candidates: Iterable[Candidate],
    location: StoreLocation,
    options: StorageOptions,
    protocol: Protocol,
    has_commit_ts: bool,
    position: StoragePosition = _BEGINNING,
    left_out: Mapping[StoredFile, Window] = _NONE_LEFT_OUT,
    earliest: Mapping[StoredFile, int] = _NONE_EARLY,
) -> tuple[FileSplit, ...]:
    """The splits of the files, each with its rank in the natural order of its table.

    If ``position`` remembers a final drain, files that it does not hold open came after that drain. ``left_out`` are the ts of the
    cuts that left a file out. ``earliest`` is where the rows of files begin that have rows below their version.
    """
    tables: dict[TableId, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        tables[candidate[2].table_id].append(candidate)
    splits = []
    for table_id in sorted(tables):
        ordered = sorted(tables[table_id], key=lambda candidate: (candidate[1].order, candidate[1].parent))
        for rank, (stored, path, version) in enumerate(ordered):
            splits.append(
                FileSplit(
                    key=stored.path,
                    table_id=table_id,
                    version=path.version,
                    rank=rank,
                    size=stored.size,
                    schema=version.schema,
                    modified=stored.modified,
                    location=location,
                    protocol=protocol,
                    csv=version.csv(options.csv),
                    canal_json=options.canal_json,
                    has_commit_ts=has_commit_ts,
                    stale_from=version.stale_from,
                    stale_below=path.version,
                    file_size=options.file_size,
                    most_bytes=options.most_file_bytes,
                    stream=f"{path.parent}/{path.partition}/{path.dispatcher}",
                    after=position.drain_before(stored.path),
                    left_out=left_out.get(stored),
                    earliest=earliest.get(stored),
                    is_behind=position.is_behind(path),
                    begun=position.has_begun(stored.path, stored.size, stored.modified),
                )
            )
    return tuple(splits)


def unknown_versions(
    unknown: Iterable[tuple[StoredFile, DataPath]], catalogue: Catalogue, broken: Collection[tuple[str, int]]
) -> list[tuple[DataPath, Problem]]:
    """The table versions that have data and no schema file, with the message, unless the file exists and is ``broken``."""
    first: dict[tuple[str, int], tuple[StoredFile, DataPath]] = {}
    for stored, path in unknown:
        first.setdefault((path.parent, path.version), (stored, path))
    return [
        (
            path,
            Problem(
                catalogue.table_of(parent, version),
                f"There is no schema file for version {version} of the table, which has data files.",
                PlaceInFile(stored.path),
                hint=f"Restore {parent}/meta/schema_{version}_….json.",
            ),
        )
        for (parent, version), (stored, path) in first.items()
        if (parent, version) not in broken
    ]


def vanished_problems(
    listing: Listing,
    position: StoragePosition,
    announced: Mapping[str, TableId],
    tables: Callable[[str], TableId | None],
    protocol: Protocol,
    *,
    is_certain: bool,
) -> tuple[Problem, ...]:
    """A problem for each announced file that may hold rows which are not applied, and that has disappeared.

    ``announced`` are the files that this run has offered. ``tables`` gives the table of each file that the position holds open;
    ``None`` for a path that does not belong to a table. ``is_certain``: the protocol is not a guess, so that a file of one that
    was never the changefeed's was moved away, and nothing waits for it unless the protocol is changed to that.
    """
    present = {stored.path for stored, _ in listing.data}
    held = (*position.open, *(path for path, _ in position.unread_files()), *position.begun_files())
    gone = {path: table_id for path in held if path not in present and (table_id := tables(path)) is not None}
    gone.update({path: table for path, table in announced.items() if path not in present})
    problems = []
    for path, table_id in sorted(gone.items()):
        message, hint, place = "The file vanished before all its changes were applied.", _VANISHED_HINT, PlaceInFile(path)
        extension = path.rpartition(".")[2]
        if extension != protocol.extension and extension in position.own_extensions:
            message = (
                f"The file vanished before all its changes were applied. It was .{extension}, and the protocol is {protocol} now."
            )
            hint = f"{_LOAD_ANEW} If no row of it is needed, give it up: {skip_command(table_id, place)}."
        elif extension != protocol.extension:
            if is_certain:
                continue
            message = f"The file vanished before all its changes were applied. It was .{extension}, and most files are {protocol}."
            hint = (
                f"If it was not a file of this changefeed, give it up: {skip_command(table_id, place)}. If it was, restore it, and "
                f"name its protocol with protocol={_protocol_of(extension)} in the source's URI."
            )
        problems.append(Problem(table_id, message, place, hint=hint))
    return tuple(problems)


def stray_notices(listing: Listing) -> tuple[Notice, ...]:
    """Entries of the folder that are ignored because they cannot be files of a changefeed."""
    if not listing.strays:
        return ()
    first = listing.strays[0]
    message = f"{len(listing.strays)} entries of the folder cannot be of a changefeed and are left out; of one: {first.reason}."
    return (Notice(message, place=PlaceInFile(first.path)),)


def unlisted_problems(listing: Listing, position: StoragePosition, tables: Callable[[str], TableId]) -> tuple[Problem, ...]:
    """A problem for each table with a folder that cannot be listed, since new files may be there.

    Raises SourceUnreachableError for a folder above tables' folders, unless nothing in it was ever read.
    """
    found = []
    for stray in listing.strays:
        if not stray.unlisted or not has_possible_names(f"{stray.path}/"):
            continue
        message = f"{stray.path} cannot be read: {stray.reason}."
        parts = stray.path.split("/")
        if len(parts) > 1 and parts[1] != _META:
            found.append(Problem(tables("/".join(parts[:2])), message, PlaceInFile(stray.path), hint=stray.hint, transient=True))
        elif len(parts) > 1 or position.has_part(f"{stray.path}/"):
            raise SourceUnreachableError(message, stray.hint)
    return tuple(found)


def misplaced_notices(listing: Listing) -> tuple[Notice, ...]:
    """Files that are ignored because their folder is not part of the layout, though TiCDC must have written them."""
    paths = [file.path for file in listing.foreign if file.size and is_misplaced(file.path)]
    misnamed = [path for path in paths if not has_possible_names(path)]
    misplaced = [path for path in paths if has_possible_names(path)]
    found = []
    if misplaced:
        message = (
            f"{len(misplaced)} schema and data files lie in folders that do not match TiCDC's layout and are left out; a table "
            "whose name holds a slash cannot be told from its folders."
        )
        found.append(Notice(message, place=PlaceInFile(misplaced[0])))
    if misnamed:
        message = (
            f"{len(misnamed)} schema and data files lie in folders whose names no database or table of TiDB can have, and are left "
            "out: a name has 64 characters at most, and no blank at its end."
        )
        found.append(Notice(message, place=PlaceInFile(misnamed[0])))
    return tuple(found)


def repeated_hour_notices(splits: Iterable[FileSplit], time_zone: str) -> tuple[Notice, ...]:
    """The notice that TIMESTAMP texts in this zone, TiCDC's, may stand for two moments; empty if they do not."""
    if not repeats_an_hour(time_zone):
        return ()
    if not any(column.type.kind is TypeKind.TIMESTAMP for split in splits for column in split.schema.row_columns):
        return ()
    message = (
        f"When the clocks of {time_zone} are put back, an hour comes twice, and the files do not tell which one a TIMESTAMP is of: "
        "it is taken as the earlier one. Run TiCDC with --tz UTC."
    )
    return (Notice(message),)


def gaps(
    listing: Listing, position: StoragePosition, busy: Collection[str], *, unread: bool = False
) -> dict[tuple[str, str], Intervals]:
    """The missing file numbers by directory and dispatcher, in the directories ``busy``, taking applied files into account.

    If the protocol was changed, its files may continue the numbers of the former one's: then no number is in both.

    ``unread``: only those after applied files.
    """
    numbers: dict[tuple[str, str], set[int]] = defaultdict(set)
    forgotten: set[str] = set()
    for _, path in listing.data:
        if path.directory in busy:
            numbers[path.directory, path.dispatcher].add(path.number)
            gone = position.gone.get(path.parent)
            if gone is not None and ((gone.undated and path.version <= gone.version) or position.is_before_gone(path)):
                forgotten.add(path.directory)
    found = {}
    for (directory, dispatcher), present in numbers.items():
        known = add_numbers((), present)
        consumed = _of_dispatcher(position, directory, dispatcher)
        own = united(known, chain.from_iterable(consumed))
        for intervals in consumed:
            known = united(known, ((1, intervals[-1][1]),) if unread else intervals)
        for former in (former for place in position.aside.values() for former in _of_dispatcher(place, directory, dispatcher)):
            if count_of(united(own, former)) == count_of(own) + count_of(former):
                known = united(known, former)
        if directory in forgotten and not consumed and not unread:
            # Earlier files may be those that the position has dropped.
            known = united(known, ((1, known[0][0]),))
        missing = missing_numbers(known)
        if missing:
            found[directory, dispatcher] = missing
    return found


def _of_dispatcher(position: StoragePosition, directory: str, dispatcher: str) -> list[Intervals]:
    return [n for stream, n in position.consumed_in(directory).items() if n and stream.rpartition("/")[0] == dispatcher]


def gap_notice(directory: str, dispatcher: str, missing: Intervals, table_id: TableId) -> Notice:
    """The notice about a gap. A gap alone is not an error, because TiCDC skips numbers and removes old files."""
    of_dispatcher = f" of dispatcher {dispatcher}" if dispatcher else ""
    shown, more = format_intervals(missing[:_GAPS_SHOWN]), len(missing) - _GAPS_SHOWN
    others = f" and {more} more gaps" if more > 0 else ""
    return Notice(f"File numbers {shown}{others}{of_dispatcher} are missing.", table_id, PlaceInFile(directory))


def content_notices(listing: Listing, catalogue: Catalogue, place: StoragePosition, selected: Selection) -> Iterator[Notice]:
    """The notices about the files in the folder."""
    yield from catalogue.notices
    yield from misplaced_notices(listing)
    yield from stray_notices(listing)
    yield from selected.notices
    yield from mixed_partition_notices(selected.candidates, catalogue)
    yield from _gap_notices(listing, place, catalogue, selected.candidates)
    if place.drain is not None:
        yield from late_schema_files(place.drain, catalogue)


def _gap_notices(
    listing: Listing, place: StoragePosition, catalogue: Catalogue, candidates: Sequence[Candidate]
) -> Collection[Notice]:
    tables = {path.directory: version.table_id for _, path, version in candidates}
    return [
        gap_notice(directory, dispatcher, missing, tables[directory])
        for (directory, dispatcher), missing in gaps(listing, place, tables.keys()).items()
    ]
