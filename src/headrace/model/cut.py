"""Units of progress, planned, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.model.advice import NO_ADVICE, SourceAdvice
from headrace.model.bearers import Bearers
from headrace.model.events import SchemaChange
from headrace.model.ledger import Decision, TableProgress
from headrace.model.outcome import Problem
from headrace.model.precision import CommitTsPrecision
from headrace.model.split import Segment, Split, Window
from headrace.model.table import TableId


class Repeats(StrEnum):
    """By what a repeated change is told from a second one, for sinks that want every change."""

    CHANGES = "changes"
    """A transaction holds at most one deletion and one new row of a key: an equal one of the same commit ts is a repeat."""
    TRANSACTIONS = "transactions"
    """A transaction may change a key several times. A split holds it once and whole, so one of a later split is a repeat.

    Not for a stream: its ranges end anywhere, and partitions share transactions. A table stops whose split may end inside of one
    (``SplitReport.rolled_over``)."""
    UNKNOWN = "unknown"
    """Nothing tells: changes may come twice."""


@dataclass(frozen=True)
class Hold:
    """A schema change that its tables stop before, and why: they get all rows up to it and none after."""

    change: SchemaChange
    problem: Problem

    @property
    def at(self) -> int:
        return self.change.commit_ts


@dataclass(frozen=True)
class CutRound:
    """Schema changes of one level, in commit order, then the splits whose first rows come after them.

    ``segments`` say which rows of a table belong to the round: also of splits that were read in an earlier one.
    """

    changes: tuple[SchemaChange, ...] = ()
    splits: tuple[Split, ...] = ()
    segments: Mapping[TableId, Segment] = field(default_factory=dict)


@dataclass(frozen=True)
class Cut:
    """One unit of progress, planned.

    ``checkpoints`` are the tables' checkpoints before it (TSO), for every table that has splits or changes. ``problems`` are the
    tables that cannot take part, with the reason; their splits and changes are left out. ``holds`` are the tables that take part
    up to a schema change. ``decisions`` are what a person or a policy says of the cut's changes, by their identity. ``outside``
    are tables that the filter leaves out and that changes of the cut touch, or that it follows: up to where (TSO). ``waiting``
    are changes that people are told of though they may hold no table: the first that cannot be read now, and those that would end
    that a table lacks rows, if they were let pass; ``outdated`` are identities of such ones in the journal that can be read by
    now, or are gone.
    """

    hi: int
    rounds: tuple[CutRound, ...] = ()
    windows: Mapping[TableId, Window] = field(default_factory=dict)
    checkpoints: Mapping[TableId, int] = field(default_factory=dict)
    problems: Mapping[TableId, Problem] = field(default_factory=dict)
    holds: Mapping[TableId, Hold] = field(default_factory=dict)
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    precision: CommitTsPrecision = CommitTsPrecision.EXACT
    outside: Mapping[TableId, int] = field(default_factory=dict)
    reborn: Mapping[TableId, int] = field(default_factory=dict)
    """The tables that were gone, and begin anew with a change at this commit ts (TSO)."""
    waiting: tuple[SchemaChange, ...] = ()
    outdated: tuple[str, ...] = ()
    advice: SourceAdvice = NO_ADVICE
    new_collations: bool | None = True
    """See ``Offer.new_collations``."""
    updates_alone: bool = False
    """See ``Offer.updates_alone``."""
    unapproved: frozenset[str] = frozenset()
    """Identities of changes that wait for approval if somebody made their tables, whose CREATE is skipped in the cut; else they
    are skipped too."""
    left_behind: tuple[SchemaChange, ...] = ()
    """Changes that take no part because the one table which they are of is stopped before them."""
    repeats: Repeats = Repeats.CHANGES
    """See ``Offer.repeats``; unknown where commit ts are not exact."""
    passed: int = 0
    """See ``Offer.passed``."""
    left_lives: Mapping[TableId, TableProgress] = field(default_factory=dict)
    """The rows of left-out tables whose names followed ones have until the cut: for when these have had their end."""
    lacking: frozenset[TableId] = frozenset()
    """Tables with dead letters: their target may hold rows that are gone in the source."""
    bearers: Mapping[str, Bearers] = field(default_factory=dict)
    """Whose the rows of late splits are by now, by the splits' keys, where not only the table of their name has such."""

    @property
    def tables(self) -> frozenset[TableId]:
        return frozenset(self.checkpoints)


@dataclass(frozen=True)
class CutOutcome:
    """What a cut reached: every table that is not stopped has all changes up to ``hi`` at least.

    ``stopped`` keep the checkpoint they had. Given to ``EventSource.advance`` and, inside the data's own transaction
    where a target can do that, to the ledger. ``behind`` are all stopped tables, since whatever cut, so that files of
    theirs were not read; ``gone`` those that exist no more.
    """

    hi: int
    stopped: frozenset[TableId] = frozenset()
    behind: frozenset[TableId] = frozenset()
    gone: frozenset[TableId] = frozenset()
    left_out: frozenset[TableId] = frozenset()
    """Tables that the filter leaves out, each at its own place. They are behind, too."""
    undecided: int | None = None
    """The commit ts (TSO) of the first schema change that a stopped table waits for, or will when it takes part again. It may be
    far below where its tables stand, if it was found late; only the source can tell it again."""
