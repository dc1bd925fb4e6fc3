"""Offers that are cut short: up to which ts an offer goes when all there is would be too much for one cut.

An offer up to any ts is complete when every file that may hold a row up to there is in it. So it is enough to know of each file a
ts that none of its rows which still count lies below; how far an offer goes is then a matter of size alone. That ts is the
file's first row's: one writer fills a file in commit order (TiCDC documentation, "Storage path structure": a file is written
once, from memory). The order of files is not relied on: after a restart later files repeat earlier ones, partitions may share
one sequence of numbers, and an overwritten file begins later than its successor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from headrace.formats.base import DecodeError
from headrace.formats.canal_json import decode_canal_json
from headrace.formats.csv import first_commit_ts
from headrace.model.block import COMMIT_TS
from headrace.model.containment import contained
from headrace.model.table import TableId
from headrace.model.tso import tso_from_ms, tso_to_ms
from headrace.sources.ticdc_storage.catalogue import Catalogue
from headrace.sources.ticdc_storage.options import Protocol, StorageOptions
from headrace.sources.ticdc_storage.position import StoragePosition
from headrace.sources.ticdc_storage.split_selection import Candidate
from headrace.sources.ticdc_storage.stores import StoredFile
from headrace.sources.ticdc_storage.table_versions import TableVersion

_PEEK_BYTES = (4 << 10, 64 << 10, 1 << 20, 16 << 20)
_PEEKED_AT_ONCE = 64 << 20
_FILES_AT_ONCE = 1_000

ReadStarts = Callable[[list[str], int], list[bytes | None]]
"""The first bytes of files, at most so many of each; ``None`` for one that is gone."""


@dataclass(frozen=True)
class Stretch:
    """A file's rows on the line of commit ts (TSO): none that counts and is not applied lies below ``begins``.

    ``first`` and ``last`` are those of all its rows, ``last`` 0 while the file was not read.
    """

    begins: int
    size: int
    first: int = 0
    last: int = 0


@dataclass(frozen=True)
class BoundedOffer:
    """The files of an offer up to ``hi`` (TSO), and the bound below which schema changes belong to it.

    ``catches_up`` are the tables that it is of alone, because they lie behind all others.
    """

    hi: int
    schema_bound: int
    candidates: tuple[Candidate, ...]
    catches_up: frozenset[TableId] = frozenset()

    @property
    def files(self) -> frozenset[StoredFile]:
        """The files as they were listed."""
        return frozenset(stored for stored, _, _ in self.candidates)


@dataclass
class Beginnings:
    """Where files begin, kept so that none is looked into twice. Of files as they were listed."""

    firsts: dict[StoredFile, int] = field(default_factory=dict)
    """The commit ts (TSO) of the first row; 0 where it cannot be told."""

    def keep(self, present: Container[StoredFile]) -> None:
        """Forgets all other files."""
        self.firsts = {stored: ts for stored, ts in self.firsts.items() if stored in present}

    def look_into(
        self,
        candidates: Sequence[Candidate],
        protocol: Protocol,
        options: StorageOptions,
        read: ReadStarts,
        looked: Callable[[int, int], None],
    ) -> None:
        """Learns the first commit ts of each file; 0 where it cannot be told. ``looked`` is told how many of how many are done."""
        unknown = [(stored, version) for stored, _, version in candidates if stored not in self.firsts]
        for length in _PEEK_BYTES:
            count = min(_FILES_AT_ONCE, _PEEKED_AT_ONCE // length)
            left = []
            for start in range(0, len(unknown), count):
                left += self._peek(unknown[start : start + count], length, protocol, options, read)
                looked(min(start + count, len(unknown)), len(unknown))
            unknown = left

    def early(
        self,
        candidates: Sequence[Candidate],
        catalogue: Catalogue,
        reached: Callable[[TableId], int],
        look: Callable[[list[Candidate]], None],
    ) -> dict[StoredFile, int]:
        """Where the rows of files begin (TSO) that have some which count below their version.

        ``look`` calls :meth:`look_into`, for those that may have some.

        Rows below the oldest version of a path are nowhere else (a changefeed that was created anew at an earlier time), and they
        count from the table's first version on: which is that one, unless partitions have paths of their own.
        """
        born: dict[TableId, int] = {}
        for versions in catalogue.versions.values():
            for version in versions.values():
                born[version.table_id] = min(version.version, born.get(version.table_id, version.version))
        may_be = [
            c for c in candidates if max(born[c[2].table_id], reached(c[2].table_id)) < c[2].stale_from or _is_later(c, reached)
        ]
        if may_be:
            look(may_be)
        return {
            stored: max(self.firsts[stored], born[version.table_id])
            for stored, path, version in may_be
            if self.firsts[stored] < min(version.stale_from, path.version)
        }

    def stretch(self, candidate: Candidate, place: StoragePosition, reached: int, early: Mapping[StoredFile, int]) -> Stretch:
        """Where the file's rows lie, after :meth:`look_into`. Those up to ``reached`` (TSO) are applied.

        ``early`` is what :meth:`early` found. A file that was read in part, in an earlier cut, tells where its rows end.
        """
        stored, path, _ = candidate
        first = self.firsts[stored]
        # What lies below its version is stale, or waits for it all the same, but for what was found to count. That holds also where
        # nothing tells of the first row: a new table's file does not lie below its CREATE, or the table would be behind all others.
        begins = early.get(stored, max(first, path.version))
        last = 0
        entry = place.open.get(stored.path)
        if entry is not None and entry.is_of(stored.size, stored.modified):
            begins = max(begins, entry.pending_ts)
            first, last = (entry.first_ts, entry.last_ts) if entry.last_ts else (first, 0)
        return Stretch(max(begins, reached + 1), stored.size, first, last)

    def _peek(
        self,
        files: Sequence[tuple[StoredFile, TableVersion]],
        length: int,
        protocol: Protocol,
        options: StorageOptions,
        read: ReadStarts,
    ) -> list[tuple[StoredFile, TableVersion]]:
        """Looks at so many bytes of each file. Returns the files of which that was too little."""
        left = []
        for (stored, version), start in zip(files, read([stored.path for stored, _ in files], length), strict=True):
            found = None
            # What is wrong with the file is reported when it is read.
            with contained(lambda problem: None, version.table_id):
                found = None if start is None else _first_commit_ts(start, version, protocol, options)
            self.firsts[stored] = found or 0
            if found is None and length < stored.size:
                left.append((stored, version))
        return left


def _first_commit_ts(start: bytes, version: TableVersion, protocol: Protocol, options: StorageOptions) -> int | None:
    """The commit ts of the first record of a file that begins so, ``None`` when no whole record can be read."""
    if protocol is Protocol.CSV:
        return first_commit_ts(start, version.schema, version.csv(options.csv))
    batches = decode_canal_json(start, version.schema, options.canal_json, old_images=False)
    try:
        first = next((batch for batch in batches if batch.num_rows), None)
    except DecodeError:
        return None
    return int(first.column(COMMIT_TS)[0].as_py()) if first is not None else None


def _is_later(candidate: Candidate, reached: Callable[[TableId], int]) -> bool:
    """Whether the file lies in a later version than the oldest of its path, and rows below that one may still count."""
    return reached(candidate[2].table_id) < candidate[2].stale_from < candidate[1].version


def bounded_by_ts(
    candidates: Sequence[Candidate], stretches: Sequence[Stretch], limit: int, at_least: int, watermark: int, *, exact: bool
) -> BoundedOffer | None:
    """The part of an offer that holds about ``limit`` bytes of rows; ``None`` when that is all of it.

    ``stretches`` belong to the candidates. Where only milliseconds are known it ends with a whole one. At least the first row
    is in it, whatever its file's size.
    """
    hi = bounded_hi(stretches, limit, at_least, watermark)
    if not exact and hi < watermark:
        hi = max(_end_of_ms_before(hi + 1), _end_of_ms_before(max(at_least, _earliest(stretches)) + tso_from_ms(1)))
    if hi >= watermark:
        return None
    taken = [c for c, stretch in zip(candidates, stretches, strict=True) if stretch.begins <= hi]
    return BoundedOffer(hi, hi + 1, tuple(_with_sequences_of_bags(candidates, taken)))


def catching_up_by_ts(
    candidates: Sequence[Candidate], stretches: Sequence[Stretch], limit: int, checkpoint: int, *, exact: bool
) -> BoundedOffer | None:
    """The next part for tables that lie behind the pipeline's ``checkpoint`` (TSO) by more than ``limit`` bytes, if there are any.

    What is less goes along with the others.
    """
    behind = frozenset(c[2].table_id for c, s in zip(candidates, stretches, strict=True) if s.begins <= checkpoint)
    theirs = [(c, s) for c, s in zip(candidates, stretches, strict=True) if c[2].table_id in behind]
    if sum(s.size for _, s in theirs if s.begins <= checkpoint) <= limit:
        return None
    earliest = _earliest(s for _, s in theirs)
    part = bounded_by_ts([c for c, _ in theirs], [s for _, s in theirs], limit, earliest, checkpoint, exact=exact)
    return None if part is None else replace(part, catches_up=behind)


def bounded_hi(stretches: Sequence[Stretch], limit: int, at_least: int, watermark: int) -> int:
    """The greatest ts (TSO) up to which the files hold about ``limit`` bytes, or one file's where that is more.

    Of a file that was read its bytes are taken as spread evenly over its ts; one that was not counts whole from its beginning.
    """
    if not stretches:
        return watermark
    begins = np.array([max(s.begins, at_least) for s in stretches], dtype=np.int64)
    sizes = np.array([s.size for s in stretches], dtype=np.float64)
    last = np.array([s.last for s in stretches], dtype=np.int64)
    length = np.maximum(last - np.array([s.first for s in stretches], dtype=np.int64) + 1, 1).astype(np.float64)
    most = max(limit, *(s.size for s in stretches))

    def held(hi: int) -> float:
        share = np.clip((np.minimum(last, hi) - begins + 1) / length, 0.0, 1.0)
        return float(sizes @ np.where(last > 0, share, begins <= hi))

    low, high = max(at_least, _earliest(stretches)), watermark
    if low >= high or held(high) <= most:
        return watermark
    while high - low > 1:  # held(high) is too much
        middle = (low + high) // 2
        if held(middle) <= most:
            low = middle
        else:
            high = middle
    return low


def bounded_by_files(
    candidates: Sequence[Candidate], pending: Iterable[int], limit: int, at_least: int, watermark: int
) -> BoundedOffer | None:
    """The first files in the order of versions, about ``limit`` bytes of them; ``None`` when that is all.

    For files without commit ts, which are taken whole, each once. ``pending`` are the ts of the schema changes that may still
    have to be applied (TSO): the offer ends before the next one behind its files, so that none overtakes a file.
    """
    ordered = sorted(candidates, key=lambda candidate: (candidate[1].version, candidate[2].table_id, candidate[1].order))
    barriers = sorted(pending)
    count = _count_within([stored.size for stored, _, _ in ordered], limit)
    while count < len(ordered):
        version = ordered[count][1].version
        hi = max(version, at_least)
        if hi < min([watermark, *(barrier for barrier in barriers if barrier > version)]):
            return BoundedOffer(hi, version + 1, tuple(ordered[:count]))
        # There is no room for another cut before the next schema change.
        count = next((n for n in range(count, len(ordered)) if ordered[n][1].version > version), len(ordered))
    return None


def _count_within(sizes: Sequence[int], limit: int) -> int:
    """How many of them stay within the limit together; at least one."""
    total = 0
    for number, size in enumerate(sizes):
        total += size
        if total > limit and number:
            return number
    return len(sizes)


def _earliest(stretches: Iterable[Stretch]) -> int:
    return min((stretch.begins for stretch in stretches), default=0)


def _end_of_ms_before(ts: int) -> int:
    """The last TSO of the millisecond before the one of ``ts``."""
    return tso_from_ms(tso_to_ms(ts)) - 1


def _with_sequences_of_bags(candidates: Iterable[Candidate], taken: Sequence[Candidate]) -> list[Candidate]:
    """The taken ones, and what lies between those of tables without key: there it counts which file comes after which."""
    last: dict[TableId, tuple[object, ...]] = {}
    for _, path, version in taken:
        if not version.schema.handle_key:
            last[version.table_id] = max(last.get(version.table_id, ()), (path.order, path.parent))
    if not last:
        return list(taken)
    chosen = {stored for stored, _, _ in taken}
    return [c for c in candidates if c[0] in chosen or (c[1].order, c[1].parent) < last.get(c[2].table_id, ())]


def split_by_table(
    candidates: Iterable[Candidate], counts: Callable[[TableId, int], bool]
) -> tuple[tuple[Candidate, ...], tuple[Candidate, ...]]:
    """The candidates of tables and versions that count for a bound, and the others."""
    parts: Mapping[bool, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        parts[counts(candidate[2].table_id, candidate[1].version)].append(candidate)
    return tuple(parts[True]), tuple(parts[False])
