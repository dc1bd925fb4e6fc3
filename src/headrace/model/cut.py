"""Cuts: the planned units of progress, and their outcomes."""

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
    """How a repeated change is distinguished from a second change, for sinks that take every change."""

    CHANGES = "changes"
    """A transaction has at most one deletion and one new row of a key. So an equal change with the same commit ts is a repeat."""
    TRANSACTIONS = "transactions"
    """A transaction may change a key several times. A split contains a transaction once and completely, so the same transaction in
    a later split is a repeat.

    Not valid for a stream: its ranges may end anywhere, and partitions share transactions. A table stops if its split may end
    inside a transaction (``SplitReport.rolled_over``)."""
    UNKNOWN = "unknown"
    """Repeats cannot be recognised, so changes may be applied twice."""


@dataclass(frozen=True)
class Hold:
    """A schema change before which its tables stop, and the reason. The tables get all rows before the change and none after it."""

    change: SchemaChange
    problem: Problem

    @property
    def at(self) -> int:
        return self.change.commit_ts


@dataclass(frozen=True)
class CutRound:
    """Schema changes of one level, in commit order, and then the splits whose first rows come after these changes.

    ``segments`` says which rows of a table belong to the round, including rows of splits that an earlier round has read.
    """

    changes: tuple[SchemaChange, ...] = ()
    splits: tuple[Split, ...] = ()
    segments: Mapping[TableId, Segment] = field(default_factory=dict)


@dataclass(frozen=True)
class Cut:
    """One planned unit of progress."""

    hi: int
    """The TSO up to which the cut goes."""
    rounds: tuple[CutRound, ...] = ()
    windows: Mapping[TableId, Window] = field(default_factory=dict)
    checkpoints: Mapping[TableId, int] = field(default_factory=dict)
    """The tables' checkpoints (TSO) before the cut, for every table that has splits or changes."""
    problems: Mapping[TableId, Problem] = field(default_factory=dict)
    """The tables that cannot take part, with the reason. Their splits and changes are left out."""
    holds: Mapping[TableId, Hold] = field(default_factory=dict)
    """The tables that take part up to a schema change."""
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    """The decisions of a person or a policy about the cut's changes, by the changes' identities."""
    precision: CommitTsPrecision = CommitTsPrecision.EXACT
    outside: Mapping[TableId, int] = field(default_factory=dict)
    """The tables that the filter leaves out, and that changes of the cut touch or that the cut follows, each with the TSO up to
    which it is followed."""
    reborn: Mapping[TableId, int] = field(default_factory=dict)
    """The tables that were gone, and that begin anew with a change at this commit ts (TSO)."""
    waiting: tuple[SchemaChange, ...] = ()
    """Changes that are reported although they may hold no table: the first change that cannot be read now, and changes that, if
    they passed, would end the record that a table lacks rows."""
    outdated: tuple[str, ...] = ()
    """Identities of such changes in the journal that can be read by now, or that are gone."""
    advice: SourceAdvice = NO_ADVICE
    new_collations: bool | None = True
    """See ``Offer.new_collations``."""
    updates_alone: bool = False
    """See ``Offer.updates_alone``."""
    unapproved: frozenset[str] = frozenset()
    """Identities of changes to tables whose CREATE is skipped in the cut. If such a table was created by hand, its change waits
    for approval; else the change is skipped too."""
    left_behind: tuple[SchemaChange, ...] = ()
    """Changes that take no part because their only table is stopped before them."""
    repeats: Repeats = Repeats.CHANGES
    """See ``Offer.repeats``; unknown where commit ts are not exact."""
    passed: int = 0
    """See ``Offer.passed``."""
    left_lives: Mapping[TableId, TableProgress] = field(default_factory=dict)
    """The ledger rows of left-out tables whose names belong to followed tables until the cut. They apply once the followed tables
    have ended."""
    lacking: frozenset[TableId] = frozenset()
    """Tables with dead letters: the target may still hold rows of them that are gone in the source."""
    bearers: Mapping[str, Bearers] = field(default_factory=dict)
    """The tables that now contain the rows of late splits, by the splits' keys. Only for splits whose rows are not all in the table
    of their name."""

    @property
    def tables(self) -> frozenset[TableId]:
        return frozenset(self.checkpoints)


@dataclass(frozen=True)
class CutOutcome:
    """What a cut reached.

    It is passed to ``EventSource.advance``, and to the ledger: inside the data's own transaction if the target can do that.
    """

    hi: int
    """Every table that is not stopped has at least all changes up to this TSO."""
    stopped: frozenset[TableId] = frozenset()
    """Tables that stopped; they keep the checkpoint that they had."""
    behind: frozenset[TableId] = frozenset()
    """All stopped tables, in whichever cut they stopped. Files of them were not read."""
    gone: frozenset[TableId] = frozenset()
    """Tables that no longer exist."""
    left_out: frozenset[TableId] = frozenset()
    """Tables that the filter leaves out, each at its own checkpoint. They are in ``behind`` too."""
    undecided: int | None = None
    """The commit ts (TSO) of the first schema change that a stopped table waits for, or will wait for when it takes part again. If
    it was found late, it may be far below the checkpoints of its tables. Only the source can provide it again."""
