"""One poll of a changefeed's folder: makes an offer from the position and what earlier polls have learned."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.errors import NoWatermarkError
from headrace.formats.storage_paths import DataPath, SchemaPath, parse_path
from headrace.model.events import SchemaChange
from headrace.model.offer import Offer
from headrace.model.outcome import Notice, Problem
from headrace.model.precision import CommitTsPrecision
from headrace.model.table import TableId
from headrace.model.tso import MAX_TSO, format_tso, latest_tso, tso_and_time
from headrace.sources.base import Bound
from headrace.sources.ticdc_storage.advice import advice_for, no_commit_ts
from headrace.sources.ticdc_storage.bounded_offer import (
    BoundedOffer,
    bounded_by_files,
    bounded_by_ts,
    catching_up_by_ts,
    split_by_table,
)
from headrace.sources.ticdc_storage.catalogue import Catalogue
from headrace.sources.ticdc_storage.final_drain import (
    NO_PROMISE,
    ahead_notices,
    ahead_problems,
    drained,
    rest_notices,
    versions_of,
    went_on,
)
from headrace.sources.ticdc_storage.folder import Folder
from headrace.sources.ticdc_storage.learned import Announced, Forgotten, StorageLearned
from headrace.sources.ticdc_storage.omitted_files import LeftOutFiles
from headrace.sources.ticdc_storage.options import Protocol, StorageOptions
from headrace.sources.ticdc_storage.position import UNSETTLED, FileState, StoragePosition
from headrace.sources.ticdc_storage.reader import Listing
from headrace.sources.ticdc_storage.retention import expiry_notices
from headrace.sources.ticdc_storage.rewritten import Judged, Rewritten
from headrace.sources.ticdc_storage.split_selection import (
    Candidate,
    Selection,
    content_notices,
    detect_protocol,
    of_protocol,
    ranked_splits,
    repeated_hour_notices,
    select_files,
    stranger_problems,
    unknown_versions,
    unlisted_problems,
    vanished_problems,
)
from headrace.sources.ticdc_storage.splits import FileSplit
from headrace.sources.ticdc_storage.stores import StoredFile, StoreLocation
from headrace.sources.ticdc_storage.unread import owner_of, unread_changes, unread_files

_LOST_KEYS = (
    "With output-raw-change-event = true an update that changes a primary key is not split, and without output-old-value = true "
    "under [sink.csv] it does not tell the old key: the row under the old key stays in the target, and nothing in the data shows "
    "it. Change one of the two settings, and copy the tables whose keys were updated anew."
)

_OTHER_PROTOCOL = (
    "The files that were applied last are .{applied}, and the protocol is {protocol} now: no .{own} file counts as read because "
    "one of these was. Rows of .{own} files up to their table's checkpoint are passed over: if the tables got rows of files that "
    "are not of this changefeed, or had passed over rows of its own, load them anew, and run headrace table resync TABLE --at TIME."
)


@dataclass(frozen=True)
class _Found:
    """What the folder has that may not be applied yet, before the bound is applied."""

    catalogue: Catalogue
    whole: Listing
    """Everything in the folder."""
    listing: Listing
    """The same without data files of another protocol."""
    protocol: Protocol
    exact: bool | None
    """Whether rows have their exact commit ts: as configured, otherwise as a data file shows; ``None`` if not needed yet."""
    watermark: int
    schema_bound: int
    selected: Selection
    judged: Judged

    @property
    def is_exact(self) -> bool:
        return self.exact is not False

    @property
    def precision(self) -> CommitTsPrecision:
        return precision_of(self.protocol, exact=self.is_exact)


@dataclass(frozen=True)
class _Part:
    """The offered files, and the files that the cut leaves out. ``bounded`` is ``None`` if all files are offered."""

    candidates: Sequence[Candidate]
    left_out: LeftOutFiles
    bounded: BoundedOffer | None = None


@dataclass(frozen=True)
class Poll:
    """One poll. Its result does not depend on earlier polls of this object; what ``folder`` caches only saves work.

    ``known`` is what earlier polls have learned, as far as it counts at ``place``.
    """

    folder: Folder
    location: StoreLocation
    options: StorageOptions
    place: StoragePosition
    known: StorageLearned
    checkpoint: int
    final: bool = False
    bound: Bound | None = None

    def offer(self) -> Offer:
        """Reads the watermark first, then lists the folder, unless the watermark has not moved. See ``EventSource.poll``."""
        published = published_in(self.folder) if self.final else self.folder.reader.checkpoint()
        known, notices = self._see_watermark(published or 0)
        if published is None:
            notices.append(NO_PROMISE)
        if known.watermark <= self.checkpoint and not self.final:
            return Offer(known.watermark, known.watermark, notices=tuple(notices), learned=known)
        listing, catalogue = self.folder.scan(self.place)
        protocol = detect_protocol(listing, self.options, self.place)
        place = self.place.of_files(protocol.extension)
        forgotten = _forgotten(of_protocol(listing, protocol), place)
        known = replace(known.of_files(protocol.extension, place), forgotten=forgotten)
        poll = replace(self, place=forgotten.adopted_by(place), known=known)
        return poll._offer_of(listing, catalogue, notices)

    def _offer_of(self, listing: Listing, catalogue: Catalogue, notices: list[Notice]) -> Offer:
        notices += expiry_notices(self.place, self.options, lambda path: table_of(path, catalogue, self.options))
        found = self._found(listing, catalogue)
        notices += self._format_notices(found)
        notices += content_notices(found.listing, catalogue, self.place, found.selected)
        unread, owned = self._unread(found)
        vanished = self._vanished(found, owned)
        stopped = {problem.table_id for problem in vanished}
        candidates = [c for c in found.selected.candidates if c[2].table_id not in stopped]
        if self.final:
            end, told, endless = self._end(found, candidates, unread)
            notices += told
            vanished, stopped = (*vanished, *endless), {problem.table_id for problem in endless}
            unread = tuple(change for change in unread if change.commit_ts <= end)
            candidates = [c for c in candidates if c[2].table_id not in stopped]
            found = replace(found, watermark=end, schema_bound=end + 1)
        early = self._early(found, candidates)
        part = self._part(found, candidates, (*catalogue.changes, *unread), early)
        splits = ranked_splits(
            part.candidates,
            self.location,
            self.options,
            found.protocol,
            found.precision.has_commit_ts,
            self.place,
            part.left_out.windows,
            early,
        )
        notices += repeated_hour_notices(splits, self.options.csv.time_zone)
        offer = Offer(
            watermark=found.watermark,
            schema_bound=found.schema_bound,
            schema_changes=_by_bytes(catalogue.changes) if self.options.new_collations is False else catalogue.changes,
            splits=splits,
            problems=(*(c.unread for c in unread if c.unread is not None and c.table_id.table), *vanished),
            notices=tuple(dict.fromkeys(notices)),
            precision=found.precision,
            new_collations=self.options.new_collations,
            updates_alone=found.protocol is Protocol.CSV,
            advice=advice_for(found.protocol),
            unread=unread,
        )
        if part.bounded is not None:
            offer = replace(
                offer,
                watermark=part.bounded.hi,
                schema_bound=part.bounded.schema_bound,
                promised=found.watermark,
                left_bytes=_size_of(candidates) - _size_of(part.candidates),
                catches_up=part.bounded.catches_up,
            )
        learned = self._learned(found, offer, part.left_out, owned)
        return replace(offer, learned=replace(learned, listing=found.listing))

    def _learned(self, found: _Found, offer: Offer, left_out: LeftOutFiles, owned: Announced) -> StorageLearned:
        """What a cut of the offer, and the next poll, need to know."""
        offered = {stored.path: (version.table_id, stored) for stored, _, version in found.selected.candidates}
        applied = found.judged.applied.items()
        drain = None
        if self.final and not offer.catches_up:
            drain = drained(offer.watermark, found.watermark, found.catalogue, offer.unread, self.known.published)
        return replace(
            self.known,
            exact=self.known.exact if found.exact is None else found.exact,
            announced={**self.known.announced, **owned, **offered},
            catalogue=found.catalogue,
            left_out=left_out,
            unchanged=tuple(FileState(f.path, f.size, f.modified, consumed=True, content=content) for f, content in applied),
            drain=drain,
        )

    def _see_watermark(self, read: int) -> tuple[StorageLearned, list[Notice]]:
        """Keeps the largest watermark ever seen: data that were once complete stay complete, whatever is written again."""
        drain = self.place.drain
        seen = max(self.known.watermark, self.place.watermark)
        promised = drain.published if drain is not None else self.place.watermark
        published = max(self.known.published, promised, read)
        known = replace(self.known, watermark=max(seen, read), published=published)
        if read >= seen:
            return known, []
        if seen > self._latest:
            return known, [
                Notice(
                    f"Everything up to {tso_and_time(seen)} counts as applied, and that time lies too far ahead of this machine's "
                    "clock. Nothing is applied until then. If the clock is right, metadata was wrong once: begin anew with "
                    "headrace reset."
                )
            ]
        if drain is not None and read >= published:
            return known, [] if self.final else [went_on(drain, read)]
        return known, [
            Notice(
                f"The checkpoint in metadata went back from {seen} ({format_tso(seen)}): the changefeed was resumed or created "
                "anew at an earlier time, or metadata was wrong. Nothing is applied until it passes where it was. Rows with a "
                "commit ts up to there count as applied: those that are written only now are passed over. If there are such "
                "(metadata was wrong, or the source was restored to an earlier state), load the tables anew, as of a later "
                "time, and run headrace table resync TABLE --at TIME for each."
            )
        ]

    def _found(self, whole: Listing, catalogue: Catalogue) -> _Found:
        """The files that may have rows below the watermark and the bound for schema changes, and whether commit ts are exact."""
        protocol = detect_protocol(whole, self.options, self.place)
        listing = of_protocol(whole, protocol)
        watermark, schema_bound = (MAX_TSO, MAX_TSO) if self.final else (self.known.watermark, self._schema_bound())

        def select(*, exact: bool) -> Selection:
            return select_files(listing, catalogue, self.place, watermark, schema_bound, protocol=protocol, exact=exact)

        told = told_exact(protocol, self.options)
        exact = self.known.exact if told is None else told
        selected = select(exact=exact is not False)
        if exact is None and selected.candidates:
            exact = self.folder.peek(protocol, self.options, selected.candidates)
            selected = select(exact=False) if exact is False else selected
        judge = Rewritten(self.place, catalogue, schema_bound, self.options.date_separator).judge
        self.folder.keep_contents({stored for stored, _, _ in selected.suspects})
        judged = judge(selected.suspects, self.folder.content)
        candidates, notices = (*selected.candidates, *judged.changed), (*selected.notices, *judged.notices)
        selected = replace(selected, candidates=candidates, notices=notices)
        return _Found(catalogue, whole, listing, protocol, exact, watermark, schema_bound, selected, judged)

    def _format_notices(self, found: _Found) -> Iterator[Notice]:
        """Notices about what is lost with files of this kind."""
        if (applied := self.place.applied_extension) not in ("", found.protocol.extension):
            yield Notice(_OTHER_PROTOCOL.format(applied=applied, own=found.protocol.extension, protocol=found.protocol))
        if not found.is_exact:
            yield Notice(no_commit_ts(found.protocol))
        if found.protocol is Protocol.CSV and self.options.raw_change_events and not self.options.csv.output_old_value:
            yield Notice(_LOST_KEYS)

    def _unread(self, found: _Found) -> tuple[tuple[SchemaChange, ...], Announced]:
        """What missing or unreadable schema files may do, and the data files that need them, with their tables."""
        catalogue, unknown = found.catalogue, found.selected.unknown
        broken = schema_problems(catalogue, self.place)
        known = {(path.parent, path.version) for problem in broken if isinstance(path := parse_path(problem.file), SchemaPath)}
        missing = unknown_versions(unknown, catalogue, known)
        rows_at = {(path.parent, path.version) for _, path in unknown}
        files = unread_files(catalogue, broken, missing, rows_at, self.options.use_table_id_as_path)
        owners = {(file.parent, file.version): owner for file in files if (owner := owner_of(catalogue, file)) is not None}
        owned = {
            stored.path: (owner, stored)
            for stored, path in unknown
            if (owner := owners.get((path.parent, path.version))) is not None
        }
        return unread_changes(catalogue, files), owned

    def _vanished(self, found: _Found, owned: Announced) -> tuple[Problem, ...]:
        """Problems that prevent a complete offer of tables: folders that cannot be listed, and files that have disappeared.

        Also files that may have been applied before they were written again, if that cannot be determined.
        """
        announced = {path: table_id for path, (table_id, _) in {**self.known.announced, **owned}.items()}
        return (
            *unlisted_problems(found.whole, self.place, found.catalogue.table_of),
            *vanished_problems(
                found.whole,
                self.place,
                announced,
                lambda path: table_of(path, found.catalogue, self.options),
                found.protocol,
                is_certain=bool(self.options.protocol or self.place.applied_extension),
            ),
            *self._strangers(found),
            *found.judged.problems,
        )

    def _strangers(self, found: _Found) -> tuple[Problem, ...]:
        is_detected = self.options.protocol is None
        given = found.whole, found.catalogue, self.place, found.schema_bound, found.protocol
        return stranger_problems(*given, is_detected=is_detected)

    def _end(
        self, found: _Found, candidates: Sequence[Candidate], unread: Sequence[SchemaChange]
    ) -> tuple[int, tuple[Notice, ...], tuple[Problem, ...]]:
        """Where the files of a final offer end (TSO), what a person confirms, and the problems of tables without an end.

        Everything beyond the end is reported. Rows without a readable schema file are above its version, so the end includes that
        version, and their tables stop there (``unread``). Data ahead of the clock do not determine the end; they stop their table.
        What a person confirms is reported once for a drain, not for each of its parts.
        """
        catalogue, ends, known, latest = found.catalogue, self.folder.ends, self.known, self._latest
        told = tuple(ahead_notices(catalogue, unread, latest))
        endless = tuple(ahead_problems(candidates, unread, latest))
        splits = self._splits_of(found, candidates, endless)
        ends.keep({stored for stored, _, _ in candidates})
        endless += ends.find_stopped(splits, self.checkpoint, latest)
        splits = self._splits_of(found, candidates, endless)
        versions = (*versions_of(catalogue, latest), *(c.commit_ts for c in unread if c.commit_ts <= latest))
        least = max([known.watermark, *versions])
        aim = self.place.drain.aim if self.place.drain is not None else 0
        if aim >= max(least, ends.find_end(splits, self.checkpoint) if aim else 0):
            return aim, told, endless
        marks = {"least": least, "published": known.published, "checkpoint": self.checkpoint, "latest": latest}
        rest = ends.find_rest(splits, catalogue, **marks)
        told += rest_notices(rest, known.published, has_commit_ts=found.precision.has_commit_ts)
        return rest.end, told, endless

    def _splits_of(self, found: _Found, candidates: Sequence[Candidate], problems: Sequence[Problem]) -> tuple[FileSplit, ...]:
        """The files of a final offer whose end must be found by reading, without those of tables with problems."""
        stopped = {problem.table_id for problem in problems}
        others = [candidate for candidate in candidates if candidate[2].table_id not in stopped]
        return ranked_splits(others, self.location, self.options, found.protocol, found.precision.has_commit_ts, self.place)

    def _early(self, found: _Found, candidates: Sequence[Candidate]) -> Mapping[StoredFile, int]:
        """The files with rows that count below their version, and where these begin (TSO)."""
        beginnings = self.folder.beginnings
        beginnings.keep({stored for stored, _, _ in candidates})
        if not found.is_exact:
            return {}
        reached = self._bound.reached
        return beginnings.early(candidates, found.catalogue, reached, lambda files: self._look_into(files, found.protocol))

    def _look_into(self, candidates: Sequence[Candidate], protocol: Protocol) -> None:
        read = self.folder.read_starts
        self.folder.beginnings.look_into(candidates, protocol, self.options, read, self._bound.looked)

    @property
    def _latest(self) -> int:
        """The TSO above which nothing counts."""
        return latest_tso(time.time(), self.options.clock_tolerance)

    @property
    def _bound(self) -> Bound:
        return self.bound or Bound(0)

    def _part(
        self, found: _Found, candidates: Sequence[Candidate], changes: Sequence[SchemaChange], early: Mapping[StoredFile, int]
    ) -> _Part:
        """The part of the offer that the bound allows.

        It always includes the files of tables that do not count for the bound, so that none is lost whatever happens to such a
        table.
        """
        left_out, bound = LeftOutFiles.recalled(candidates, self.place), self._bound
        counted, others = split_by_table(candidates, bound.counts)
        if self.bound is None or _size_of(counted) <= bound.limit:
            return _Part(candidates, left_out)
        if not found.is_exact and found.protocol is Protocol.CSV:
            part = bounded_by_files(counted, bound.pending(changes), bound.limit, bound.at_least, found.watermark)
        else:
            self._look_into(counted, found.protocol)
            beginnings, reached, exact = self.folder.beginnings, bound.reached, found.is_exact
            left_out = left_out.extended(counted, beginnings.firsts, reached)
            stretches = [beginnings.stretch(c, self.place, reached(c[2].table_id), early) for c in counted]
            part = catching_up_by_ts(counted, stretches, bound.limit, bound.checkpoint, exact=exact)
            if part is not None:
                theirs = [c for c in counted if c[2].table_id in part.catches_up]
                return _Part((*part.candidates, *others), left_out.leaving(theirs, part.files, part.hi, reached), part)
            part = bounded_by_ts(counted, stretches, bound.limit, bound.at_least, found.watermark, exact=exact)
            if part is not None:
                left_out = left_out.leaving(counted, part.files, part.hi, reached)
        return _Part(candidates if part is None else (*part.candidates, *others), left_out, part)

    def _schema_bound(self) -> int:
        """Schema changes at the watermark are not certain, unless a final drain applied what was there."""
        watermark = self.known.watermark
        is_drained = self.place.drain is not None and self.place.drain.end == watermark
        return watermark + 1 if is_drained else watermark


def _forgotten(listing: Listing, place: StoragePosition) -> Forgotten:
    """What an older Headrace did not record, as found now."""
    unsettled = {directory for directory, modified in place.settled.items() if modified == UNSETTLED}
    if not unsettled and not place.unknown_below:
        return Forgotten()
    files = []
    newest: dict[str, int] = {}
    for stored, path in listing.data:
        below = path.version < place.unknown_below.get(path.parent, 0)
        if below and stored.size and not place.is_open(stored.path):
            files.append(stored.path)
        if below or path.directory in unsettled:
            newest[path.directory] = max(newest.get(path.directory, 0), stored.modified)
    return Forgotten(newest, tuple(files), is_adopted=True)


def _by_bytes(changes: tuple[SchemaChange, ...]) -> tuple[SchemaChange, ...]:
    return tuple(replace(change, by_bytes=True) for change in changes)


def _size_of(candidates: Sequence[Candidate]) -> int:
    return sum(stored.size for stored, _, _ in candidates)


def told_exact(protocol: Protocol, options: StorageOptions) -> bool | None:
    """Whether rows have their exact commit ts, as configured; ``None`` if only the files show it."""
    return options.csv.include_commit_ts if protocol is Protocol.CSV else options.enable_tidb_extension


def precision_of(protocol: Protocol, *, exact: bool) -> CommitTsPrecision:
    """The precision of the rows' commit ts: a canal-JSON message without commit ts still has its millisecond."""
    if exact:
        return CommitTsPrecision.EXACT
    return CommitTsPrecision.NONE if protocol is Protocol.CSV else CommitTsPrecision.MILLISECOND


def published_in(folder: Folder) -> int | None:
    """The checkpoint in ``metadata``; ``None`` if the changefeed has never written one."""
    try:
        return folder.reader.checkpoint()
    except NoWatermarkError:
        return None


def table_of(path: str, catalogue: Catalogue, options: StorageOptions) -> TableId | None:
    """The table of a data file, by its path; ``None`` for another path, which an older Headrace may have taken for such a file."""
    parsed = parse_path(path, options.date_separator, catalogue.table_ids)
    return catalogue.table_of(parsed.parent, parsed.version) if isinstance(parsed, DataPath) else None


def schema_problems(catalogue: Catalogue, place: StoragePosition) -> list[Problem]:
    """The catalogue's problems that still matter: not those of versions that all rows have passed."""
    problems = []
    for problem in catalogue.problems:
        path = parse_path(problem.file)
        if not isinstance(path, SchemaPath) or path.version >= place.passed.get(path.parent, 0):
            problems.append(problem)
    return problems
