"""What a source offers at a poll, and its position after a cut."""

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
    """What a source has learned at a poll and has not written into its position. Only the source interprets it.

    It can be pickled. The source gets it back with the offer when the offer is applied, and at the next poll of the same run.
    """

    def without(self, tables: Collection[TableId]) -> Learned:
        """The same without these tables, which have ended: what was offered of them is not needed any more."""
        ...


@dataclass(frozen=True)
class Offer:
    """What a source has at a poll, found without reading data."""

    watermark: int
    """TSO: rows with ``commit_ts <= watermark`` are complete."""
    schema_bound: int
    """TSO: schema changes with ``commit_ts < schema_bound`` are complete (rule 2)."""
    schema_changes: tuple[SchemaChange, ...] = ()
    """All known schema changes, in order."""
    splits: tuple[Split, ...] = ()
    """All splits that may hold rows which were not applied yet."""
    problems: tuple[Problem, ...] = ()
    """Tables that cannot be read at all, and the tables of ``unread``."""
    notices: tuple[Notice, ...] = ()
    precision: CommitTsPrecision = CommitTsPrecision.EXACT
    promised: int | None = None
    """The source's own watermark (TSO), if the offer ends below it."""
    left_bytes: int = 0
    """The size in bytes of what the offer leaves for later."""
    catches_up: frozenset[TableId] = frozenset()
    """Tables that are behind the pipeline's checkpoint by more than a cut may hold. The offer then ends below that checkpoint.

    Of the tables that count for the bound (``Bound.counts``), such an offer has only splits of ``catches_up``. Of tables that take
    no part it has all splits, as every offer has.
    """
    unread: tuple[SchemaChange, ...] = ()
    """Schema changes that exist and cannot be read (``SchemaChange.unread``)."""
    new_collations: bool | None = True
    """Whether the source compares texts by the collations that its tables name; ``None`` if this was not configured."""
    more: bool = False
    """Whether the next poll reads on: a bound left out records that the watermark waits for, and how far these reach is not known,
    or the offer ends before a schema change.

    The watermark of such an offer is at least ``Bound.at_least``, so a run that polls while there is more comes to an end.
    If it is false, nothing that the source had at the poll could raise its watermark. A bound may still have left out records
    above the watermark."""
    at_once: bool = False
    """Whether the source has no watermark that its rows wait for. Splits then make a cut even if the watermark is the checkpoint.

    In this case rows have no commit ts, they are ordered as the splits are, and only the position shows which are applied. Splits
    of tables that take no part (stopped, held or left out) make no cut alone; they stay offered."""
    passed: int | None = None
    """The commit ts (TSO) up to which the source may have skipped records of tables that do not hold its position. ``None`` for a
    source that can provide all records again."""
    gone: int = 0
    """The commit ts (TSO) up to which the source no longer keeps records that only tables need which are not running."""
    is_stuck: bool = False
    """Whether the watermark cannot rise before a person decides about a record whose table is unknown. A notice describes it."""
    updates_alone: bool = False
    """Whether an update whose key changed may lack its old row. This is so in CSV, unless it has old values."""
    advice: SourceAdvice = NO_ADVICE
    learned: Learned | None = field(default=None, repr=False)

    repeats: Repeats = Repeats.CHANGES
    """How the source's repeats can be recognised, if its commit ts are exact."""

    @property
    def source_watermark(self) -> int:
        """The TSO up to which the source is complete, even if less is offered."""
        return self.watermark if self.promised is None else self.promised

    def empty_cut(self, hi: int) -> Cut:
        """A cut up to ``hi`` (TSO) without rounds yet. It has only the properties that the source declares for all its rows."""
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
    """Computes a source's position after a cut from the reports of its splits. Used by the task that commits the cut.

    It can be pickled, and does no I/O.
    """

    def after(self, reports: Iterable[SplitReport], progress: CutOutcome) -> str:
        """The position. Splits of tables that stopped count in it as not read."""
        ...
