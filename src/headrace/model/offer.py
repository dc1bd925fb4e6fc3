"""What a source knows now, and where it stands after a cut of that."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from headrace.model.advice import NO_ADVICE, SourceAdvice
from headrace.model.cut import Cut, CutOutcome, Repeats
from headrace.model.events import SchemaChange
from headrace.model.outcome import Notice, Problem, SplitReport
from headrace.model.precision import CommitTsPrecision
from headrace.model.split import Split
from headrace.model.table import TableId


class Learned(Protocol):
    """What a source has learned while it polled, and has not written into the position: what is its own affair.

    It pickles. The source gets it back with the offer when that is applied, and with the next poll of the same run.
    """

    def without(self, tables: Collection[TableId]) -> Learned:
        """What is left of it when these tables have come to their end: nobody misses what was offered of them."""
        ...


@dataclass(frozen=True)
class Offer:
    """What a source knows now, without reading data.

    Rows with ``commit_ts <= watermark`` are complete, and so are schema changes with ``commit_ts < schema_bound`` (rule 2).
    ``schema_changes`` are all that are known, in order; ``splits`` all that may hold rows which were not applied yet. ``unread``
    are schema changes that are there and cannot be read (``SchemaChange.unread``), and ``problems`` name their tables too.
    ``problems`` name tables that cannot be read at all. ``promised`` is the source's own watermark where the offer was cut
    short of it, and ``left_bytes`` the size of what it leaves for later. ``catches_up`` names tables that lie behind the
    pipeline's checkpoint by more than a cut may hold: the offer then ends below that checkpoint. Of the tables that count for the
    bound (``Bound.counts``) it has splits of theirs only; of those that take no part it has all splits, as every offer has.
    """

    watermark: int
    schema_bound: int
    schema_changes: tuple[SchemaChange, ...] = ()
    splits: tuple[Split, ...] = ()
    problems: tuple[Problem, ...] = ()
    notices: tuple[Notice, ...] = ()
    precision: CommitTsPrecision = CommitTsPrecision.EXACT
    promised: int | None = None
    left_bytes: int = 0
    catches_up: frozenset[TableId] = frozenset()
    unread: tuple[SchemaChange, ...] = ()
    new_collations: bool | None = True
    """Whether the source compares texts by the collations that its tables name; ``None`` where nobody has said so."""
    more: bool = False
    """A bound left out records that the watermark waits for, and how far these reach is not known, or the offer was cut short
    before a schema change: the next poll reads on.

    The watermark of such an offer is at least ``Bound.at_least``, so a run that polls for as long as there is more comes to an end.
    Where there is none, nothing that the source had at the poll lets its watermark rise, though a bound may have left out records
    above it."""
    at_once: bool = False
    """The source has no watermark that its rows wait for: splits make a cut though the watermark stands at the checkpoint.

    Rows have no commit ts then, their order is that of the splits, and the position alone tells which are applied. Splits of tables
    that take no part, since they stopped or are held or left out, make no cut by themselves; they stay offered."""
    passed: int | None = None
    """Up to which commit ts (TSO) a source that forgets may have passed over records of tables that do not hold its position;
    ``None`` for a source that can tell all of them again."""
    gone: int = 0
    """Up to which commit ts (TSO) records are not kept any more that only tables need which do not run."""
    updates_alone: bool = False
    """An update may come without its old row although its key moved: CSV does so, unless it has old values."""
    advice: SourceAdvice = NO_ADVICE
    learned: Learned | None = field(default=None, repr=False)

    repeats: Repeats = Repeats.CHANGES
    """How the source's repeats can be told, where its commit ts are exact."""

    @property
    def source_watermark(self) -> int:
        """Up to where the source is complete, however much of it is offered."""
        return self.watermark if self.promised is None else self.promised

    def empty_cut(self, hi: int) -> Cut:
        """A cut up to ``hi`` (TSO) with nothing in it yet: what the source says of all its rows, whoever takes them."""
        return Cut(
            hi,
            precision=self.precision,
            advice=self.advice,
            new_collations=self.new_collations,
            updates_alone=self.updates_alone,
            repeats=self.repeats if self.precision.is_exact else Repeats.UNKNOWN,
            passed=self.passed or 0,
        )


class PositionAfter(Protocol):
    """A source's position after a cut, where only the reports of its splits are missing: for the task that commits the cut.

    It pickles, and looks at nothing but what it holds.
    """

    def after(self, reports: Iterable[SplitReport], progress: CutOutcome) -> str:
        """The position, in which splits of tables that stopped count as not read."""
        ...
