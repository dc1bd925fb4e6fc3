"""Units of progress: what a source offers, and the windows, cuts and rounds that the engine makes of it."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.events import SchemaChange
from headrace.model.outcome import Notice, Problem
from headrace.model.table import TableId, TableSchema
from headrace.model.tso import MAX_TSO


@dataclass(frozen=True)
class Window:
    """The rows of a cut: ``lo < commit_ts <= hi`` (TSO). Data without a commit ts are taken whole.

    ``given_up`` (TSO, 0 for none): nobody wants rows up to there any more, so what is damaged down there harms nothing.
    """

    lo: int = 0
    hi: int = MAX_TSO
    given_up: int = 0


@dataclass(frozen=True)
class Split:
    """What one decode task reads: a file of one table version. A source adds its own fields by subclassing.

    ``key`` names it for the source's position, ``rank`` is its place in the order of the table's splits of this offer
    (versions, then dates, dispatchers, numbers), ``size`` its bytes.
    """

    key: str
    table_id: TableId
    version: int
    rank: int
    size: int
    schema: TableSchema


@dataclass(frozen=True)
class HeldSplit:
    """A split that a table which stands still has to read yet, as the source's position tells it.

    ``day`` is the date that the source files it under, and ``removed_after`` the one after which the source removes it (ISO dates,
    ``""`` when there is none).
    """

    key: str
    table_id: TableId
    size: int
    day: str = ""
    removed_after: str = ""


@dataclass(frozen=True)
class Offer:
    """What a source knows now, without reading data.

    Rows with ``commit_ts <= watermark`` are complete, and so are schema changes with ``commit_ts < schema_bound`` (rule 2).
    ``schema_changes`` are all that are known, in order; ``splits`` all that may hold rows which were not applied yet.
    ``problems`` name tables that cannot be read at all. ``promised`` is the source's own watermark where the offer was cut
    short of it, and ``left_bytes`` the size of what it leaves for later. ``catches_up`` names tables that lie behind the
    pipeline's checkpoint by more than a cut may hold: the offer then ends below that checkpoint, and has splits of theirs only.
    """

    watermark: int
    schema_bound: int
    schema_changes: tuple[SchemaChange, ...] = ()
    splits: tuple[Split, ...] = ()
    problems: tuple[Problem, ...] = ()
    notices: tuple[Notice, ...] = ()
    has_commit_ts: bool = True
    deletes_first: bool = True
    """Commit ts are exact, so within one and for one key deletes come before upserts. Else a commit ts is the first of its
    millisecond, and within that the source's order decides."""
    promised: int | None = None
    left_bytes: int = 0
    catches_up: frozenset[TableId] = frozenset()

    @property
    def source_watermark(self) -> int:
        """Up to where the source is complete, however much of it is offered."""
        return self.watermark if self.promised is None else self.promised


@dataclass(frozen=True)
class Progress:
    """What a cut reached: every table that is not stopped has all changes up to ``hi`` at least.

    ``stopped`` keep the checkpoint they had. Given to ``EventSource.advance`` and, inside the data's own transaction
    where a target can do that, to the ledger. ``behind`` are all tables that stand still, since whatever cut, so that files of
    theirs were not read; ``gone`` those that exist no more.
    """

    hi: int
    stopped: frozenset[TableId] = frozenset()
    behind: frozenset[TableId] = frozenset()
    gone: frozenset[TableId] = frozenset()
