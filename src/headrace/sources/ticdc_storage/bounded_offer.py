"""Limits offers: the ts up to which an offer goes if all available data would be too much for one cut.

An offer up to any ts is complete if it includes every file that may have a row up to that ts. So for each file a lower bound of the
ts of its remaining rows is enough; how far an offer goes is then only a matter of size. That bound is the ts of the file's first
row, because one writer fills a file in commit order (TiCDC documentation, "Storage path structure": a file is written once, from
memory). The order of files is not relied on: after a restart, later files repeat earlier ones; partitions may share one sequence of
numbers; and an overwritten file begins later than its successor.
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
from headrace.sources.ticdc_storage.stores import Content, StoredFile
from headrace.sources.ticdc_storage.table_versions import TableVersion

_PEEK_BYTES = (4 << 10, 64 << 10, 1 << 20, 16 << 20)
_PEEKED_AT_ONCE = 64 << 20
_FILES_AT_ONCE = 1_000

ReadStarts = Callable[[list[str], int], list[Content]]
"""Reads the first bytes of files, up to a maximum for each."""


@dataclass(frozen=True)
class Stretch:
    """A file's range of commit ts (TSO): no row below ``begins`` counts and is not yet applied.

    ``first`` and ``last`` are those of all its rows; ``last`` is 0 if the file was not read.
    """

    begins: int
    size: int
    first: int = 0
    last: int = 0


@dataclass(frozen=True)
class BoundedOffer:
    """The files of an offer up to ``hi`` (TSO), and the bound below which schema changes belong to it.

    If ``catches_up`` is not empty, the offer is only for these tables, because they are behind all others.
    """

    hi: int
    schema_bound: int
    candidates: tuple[Candidate, ...]
    catches_up: frozenset[TableId] = frozenset()

    @property
    def files(self) -> frozenset[StoredFile]:
        """The files as listed."""
        return frozenset(stored for stored, _, _ in self.candidates)


@dataclass
class Beginnings:
    """Where files begin. Cached, so that no file is examined twice. Files are identified as listed."""

    firsts: dict[StoredFile, int] = field(default_factory=dict)
    """The commit ts (TSO) of the first row; 0 if it cannot be determined."""

    def keep(self, present: Container[StoredFile]) -> None:
        """Drops all other files."""
        self.firsts = {stored: ts for stored, ts in self.firsts.items() if stored in present}

    def look_into(
        self,
        candidates: Sequence[Candidate],
        protocol: Protocol,
        options: StorageOptions,
        read: ReadStarts,
        looked: Callable[[int, int], None],
    ) -> None:
        """Reads the first commit ts of each file; 0 if it cannot be determined. Calls ``looked`` with the number done and all."""
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
        """Where rows begin (TSO) in the files that have rows below their version which count.

        ``look`` calls :meth:`look_into` for the files that may have such rows.

        Rows below the oldest version of a path exist nowhere else (after a changefeed was created again at an earlier time). They
        count from the table's first version on, which is the oldest one unless partitions have their own paths.
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
        """The range of the file's rows, to be called after :meth:`look_into`. Rows up to ``reached`` (TSO) are applied.

        ``early`` is the result of :meth:`early`. For a file that an earlier cut read in part, the end of its rows is known.
        """
        stored, path, _ = candidate
        first = self.firsts[stored]
        # Rows below its version are stale, or wait for it anyway, except for those found to count. The same is assumed if the first
        # row is unknown: otherwise a new table's file would be below its CREATE, and the table behind all others.
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
        """Reads this many bytes of each file. Returns the files for which that was not enough."""
        left = []
        for (stored, version), start in zip(files, read([stored.path for stored, _ in files], length), strict=True):
            found = None
            # An error in the file is reported when the file is read.
            with contained(lambda problem: None, version.table_id):
                found = _first_commit_ts(start, version, protocol, options) if isinstance(start, bytes) else None
            self.firsts[stored] = found or 0
            if found is None and length < stored.size:
                left.append((stored, version))
        return left


def _first_commit_ts(start: bytes, version: TableVersion, protocol: Protocol, options: StorageOptions) -> int | None:
    """The commit ts of the first record of a file with this beginning; ``None`` if no whole record can be read."""
    if protocol is Protocol.CSV:
        return first_commit_ts(start, version.schema, version.csv(options.csv))
    batches = decode_canal_json(start, version.schema, options.canal_json, old_images=False)
    try:
        first = next((batch for batch in batches if batch.num_rows), None)
    except DecodeError:
        return None
    return int(first.column(COMMIT_TS)[0].as_py()) if first is not None else None


def _is_later(candidate: Candidate, reached: Callable[[TableId], int]) -> bool:
    """Whether the file is in a later version than the oldest of its path, and rows below that version may still count."""
    return reached(candidate[2].table_id) < candidate[2].stale_from < candidate[1].version


def bounded_by_ts(
    candidates: Sequence[Candidate], stretches: Sequence[Stretch], limit: int, at_least: int, watermark: int, *, exact: bool
) -> BoundedOffer | None:
    """The part of an offer with about ``limit`` bytes of rows; ``None`` if that is all of it.

    ``stretches`` belong to the candidates. If only milliseconds are known, the part ends with a whole millisecond. It includes at
    least the first row, whatever its file's size.
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
    """The next part for tables more than ``limit`` bytes behind the pipeline's ``checkpoint`` (TSO); ``None`` if there are none.

    Tables that are less far behind take part together with the others.
    """
    behind = frozenset(c[2].table_id for c, s in zip(candidates, stretches, strict=True) if s.begins <= checkpoint)
    theirs = [(c, s) for c, s in zip(candidates, stretches, strict=True) if c[2].table_id in behind]
    if sum(s.size for _, s in theirs if s.begins <= checkpoint) <= limit:
        return None
    earliest = _earliest(s for _, s in theirs)
    part = bounded_by_ts([c for c, _ in theirs], [s for _, s in theirs], limit, earliest, checkpoint, exact=exact)
    return None if part is None else replace(part, catches_up=behind)


def bounded_hi(stretches: Sequence[Stretch], limit: int, at_least: int, watermark: int) -> int:
    """The greatest ts (TSO) up to which the files have about ``limit`` bytes, or the bytes of one file if that is more.

    The bytes of a file that was read are assumed to be spread evenly over its ts. A file that was not read counts whole from its
    beginning.
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
    """The first files in the order of versions, with about ``limit`` bytes; ``None`` if that is all.

    For files without commit ts, each of which is taken whole, once. ``pending`` are the ts (TSO) of schema changes that may still
    have to be applied: the offer ends before the next one after its files, so that no change overtakes a file.
    """
    ordered = sorted(candidates, key=lambda candidate: (candidate[1].version, candidate[2].table_id, candidate[1].order))
    barriers = sorted(pending)
    count = _count_within([stored.size for stored, _, _ in ordered], limit)
    while count < len(ordered):
        version = ordered[count][1].version
        hi = max(version, at_least)
        if hi < min([watermark, *(barrier for barrier in barriers if barrier > version)]):
            return BoundedOffer(hi, version + 1, tuple(ordered[:count]))
        # Another cut does not fit before the next schema change.
        count = next((n for n in range(count, len(ordered)) if ordered[n][1].version > version), len(ordered))
    return None


def _count_within(sizes: Sequence[int], limit: int) -> int:
    """How many of them fit within the limit together; at least one."""
    total = 0
    for number, size in enumerate(sizes):
        total += size
        if total > limit and number:
            return number
    return len(sizes)


def _earliest(stretches: Iterable[Stretch]) -> int:
    return min((stretch.begins for stretch in stretches), default=0)


def _end_of_ms_before(ts: int) -> int:
    """The last TSO of the millisecond before that of ``ts``."""
    return tso_from_ms(tso_to_ms(ts)) - 1


def _with_sequences_of_bags(candidates: Iterable[Candidate], taken: Sequence[Candidate]) -> list[Candidate]:
    """The taken files, and the files between those of tables without key, because the order of files matters there."""
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
    """The candidates of tables and versions that count for a bound, and all others."""
    parts: Mapping[bool, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        parts[counts(candidate[2].table_id, candidate[1].version)].append(candidate)
    return tuple(parts[True]), tuple(parts[False])
