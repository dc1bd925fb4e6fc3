"""The contract of a source (Flink CDC's names: DataSource, EventSource, MetadataAccessor).

A source says what it knows (``poll``, on the driver, cheap), reads one split (``read``, in a Spark task), and remembers what
nobody needs to read again (``advance``). It knows no target, no ledger and no Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from headrace.model.block import ChangeBlock
from headrace.model.cut import CutOutcome
from headrace.model.events import SchemaChange
from headrace.model.inspection import Checkup, Inspection
from headrace.model.ledger import TableShape
from headrace.model.offer import Learned, Offer, PositionAfter
from headrace.model.outcome import SplitReport
from headrace.model.place import SourcePlace
from headrace.model.split import HeldSplit, Split, Window
from headrace.model.stream import Range, StageReport
from headrace.model.table import Column, TableId, TableSchema


@dataclass(frozen=True)
class Bound:
    """How much an offer may hold, so that a backlog is caught up with in parts.

    ``limit`` is in bytes as they are stored; ``at_least`` is the ts (TSO) that the offer's watermark must reach when the source
    has come so far. ``counts`` says whether splits of a table's version (TSO) will be read. ``pending`` gives the commit ts (TSO)
    of those of all schema changes, in their order, that tables may still have to pass. Other splits are offered as ever.
    ``reached`` is each table's own checkpoint (TSO) and ``checkpoint`` the pipeline's: tables that lie behind it by more than
    ``limit`` get offers of their own (``Offer.catches_up``). ``looked`` is called while files have to be looked into for that,
    with how many of how many are done.
    """

    limit: int
    at_least: int = 0
    checkpoint: int = 0
    reached: Callable[[TableId], int] = lambda _: 0
    counts: Callable[[TableId, int], bool] = lambda table_id, version: True
    pending: Callable[[Sequence[SchemaChange]], Iterable[int]] = lambda changes: [change.commit_ts for change in changes]
    looked: Callable[[int, int], None] = lambda done, total: None


KeptShapes = Mapping[TableId, Sequence[TableShape]]
"""What the ledger keeps of each table's shapes, the oldest first, for sources that ask for it (``EventSource.needs_shapes``)."""


class EventSource(Protocol):
    """The stream of changes. Everything it carries to a task must pickle.

    Each method is a function of its arguments, and of what the source holds at the moment: what an object remembers of former
    calls only saves work. So one object may poll, another read and a third advance, in any order.
    """

    @property
    def needs_shapes(self) -> bool:
        """Whether the ledger keeps the shapes of tables for it, since it can tell a schema change only once."""
        ...

    def poll(
        self,
        position: str,
        checkpoint: int,
        *,
        final: bool = False,
        bound: Bound | None = None,
        learned: Learned | None = None,
        shapes: KeptShapes | None = None,
    ) -> Offer:
        """What there is now that may not be applied yet.

        ``position`` is what :meth:`advance` returned last (``""`` at first), ``checkpoint`` the pipeline's (TSO). Reads the
        watermark *before* it lists anything (rule 1). When the watermark has not moved past ``checkpoint`` it returns an
        offer without splits, without listing; one without any watermark offers what it has (``Offer.at_once``). Raises
        SourceUnreachableError, SourceNotReadyError.

        ``learned`` is ``Offer.learned`` of the run's offer before, ``None`` at first, and when a table is to be read again: what
        was offered then is missed if it is not there any more. Notices are the same while what they tell of lasts: who tells them
        tells each once.

        ``final`` asks for the last offer of a source that nobody writes to any more (a person says so): the watermark is the
        greatest ts of anything that is there, schema changes at it included, whatever the source promised; it may stand at
        ``checkpoint``. Then a source that promised nothing yet has an offer too.

        With a ``bound`` the offer may end below what the source is complete up to (``Offer.promised``, or ``Offer.more`` where the
        source cannot tell how far that is): still complete up to its
        own watermark, which is greater than that of the offer before, but for tables that catch up. A split whose ts range is
        not known bounds the watermark, never the other way round.
        """
        ...

    def mark(self, position: str) -> str:
        """A mark of the watermark and of all that there is behind ``position``: equal for as long as nothing arrives.

        Raises what :meth:`poll` raises when there are no change data at all; a missing watermark is part of the mark.
        """
        ...

    def read(
        self, split: Split, window: Window, *, old_images: bool = True, tolerance: int = 0
    ) -> Iterator[ChangeBlock | SplitReport]:
        """The rows of a split inside the window, in blocks of 1-8 MiB, then exactly one report, last.

        With ``old_images`` false the old rows of updates may be left out where the handle key stays. Deterministic. Bad data end
        it early with ``SplitReport.problem``; only bugs raise. Up to ``tolerance`` records that cannot be decoded are left out; the
        report holds those of them that belong into the window, or may.
        """
        ...

    def advance(
        self,
        position: str,
        offer: Offer,
        reports: Sequence[SplitReport],
        progress: CutOutcome,
        checkpoints: Mapping[TableId, int],
    ) -> str:
        """The position after a cut of the offer: what every table has taken is not offered again.

        ``reports`` are of the splits read in the cut; those of stopped tables count as not read. ``checkpoints`` holds each
        known table's checkpoint (TSO) after the cut, for sealing what lies behind a schema change.
        """
        ...

    def taking(self, position: str, offer: Offer, keys: Collection[str]) -> PositionAfter:
        """What :meth:`advance` will say after a cut of the offer that reads the splits of these keys, but for the sealing."""
        ...

    def begin(self, position: str, offer: Offer, splits: Collection[Split], hi: int) -> str:
        """The position before a cut of the offer, up to ``hi`` (TSO), that reads these splits and is applied in several steps.

        The splits may be applied in part from then on, which nothing but this says to a run that follows one which died.
        """
        ...

    def consumed(self, position: str, offer: Offer, reports: Sequence[SplitReport]) -> str:
        """The position in the middle of a cut of the offer, in which splits that were read to their end are not offered again.

        For tables at a schema change whose rows do not tell on which side of it they belong.
        """
        ...

    def vanished(self, position: str, table_id: TableId, since: int) -> tuple[str, ...]:
        """Files of the table that count as read and are not there any more, though they may hold rows above ``since`` (TSO).

        Of files before the table's last schema change nothing is known.
        """
        ...

    def missing_again(self, former: str, position: str) -> str:
        """The position in which the splits are missed that one which went back does not know of, and that are gone since.

        ``former`` is how far the run had come. A split that is missed stops its table. Of splits before a table's last schema
        change at ``former`` nothing is known.
        """
        ...

    def missing(self, position: str, offer: Offer, table_id: TableId, since: int) -> str:
        """Why files with rows of the table above ``since`` (TSO) that were never read may not be there any more.

        The end of a sentence, of a table whose files were not looked at for a while; ``""`` when nothing speaks for it.
        """
        ...

    def give_up(self, position: str, table_id: TableId, place: SourcePlace) -> str:
        """The position in which the table's split, or record of a stream, counts as read because somebody gave it up.

        Unchanged when the table does not wait for it, or it is another table's.
        """
        ...

    def read_again(self, position: str, table_id: TableId, since: int) -> str:
        """The position in which no file of the table that may hold rows above ``since`` (TSO) counts as read.

        The next poll begins with nothing learned. Of files that are gone by then :meth:`vanished` and :meth:`missing` tell.
        """
        ...

    def forget_vanished(
        self, position: str, offer: Offer, loaded: Mapping[TableId, int], ended: Mapping[TableId, int]
    ) -> tuple[str, frozenset[str]]:
        """The position in which splits that vanished count as read, and their keys, where nobody misses their rows.

        Of tables that were ``loaded`` as of a commit ts (TSO) those that hold nothing above it, as far as that can be told; of
        tables that a schema change at a commit ts (TSO) has ``ended``, or will, those of versions before it. All others stay
        missed.
        """
        ...

    def forget_lives(self, position: str, ended: Mapping[TableId, int]) -> str:
        """The position in which nothing of versions before a commit ts (TSO) needs reading: the tables have ended there."""
        ...


class StagingPlace(Protocol):
    """Where pieces lie: driver and tasks reach it. It pickles."""

    def write(self, key: str, *parts: bytes | pa.Buffer) -> None:
        """Writes an object whole. Raises TransientError."""
        ...

    def read(self, key: str) -> pa.Buffer:
        """An object; in a folder it is mapped into memory. Raises TransientError."""
        ...

    def keys(self, below: str) -> Collection[str]:
        """The keys of all objects in a folder; none where it is not there. Raises TransientError."""
        ...

    def remove(self, below: str) -> None:
        """Removes a folder of objects, whether it is there or not. Raises TransientError."""
        ...


@runtime_checkable
class StreamSource(EventSource, Protocol):
    """A source that must be read to be known: what :meth:`poll` does not know yet it has staged, and offers what that leaves."""

    def stage(self, of: Range) -> StageReport:
        """Reads one range, in a task. Raises SourceUnreachableError, TransientError."""
        ...

    def staged_by(self, run: StageRunner, place: StagingPlace) -> EventSource:
        """The source with what reads its ranges, and the place where these leave their pieces.

        Somebody may clear that place under a living run: what was staged is then staged again.
        """
        ...


StageRunner = Callable[[StreamSource, Sequence[Range]], Sequence[StageReport]]
"""Has ranges staged, in tasks or, where they are few, in the driver; the reports come in the order of the ranges."""


class MetadataAccessor(Protocol):
    """What exists in a source, for ``inspect`` and for planning by hand."""

    def list_databases(self) -> list[str]: ...

    def list_tables(self, database: str) -> list[TableId]: ...

    def get_table_schema(self, table_id: TableId) -> TableSchema:
        """The newest shape. Raises ``KeyError`` for an unknown table."""
        ...


Progress = Callable[[int, int], None]
"""Told how many of how many files are done."""


@runtime_checkable
class InspectableSource(Protocol):
    """What a :class:`DataSource` may offer besides: a look at what it holds and what is wrong in there. Reads only."""

    def inspect(self, *, count_rows: bool = False) -> Inspection:
        """What there is; ``count_rows`` reads all data for that. Raises SourceUnreachableError, SourceNotReadyError."""
        ...

    def check(self, progress: Progress = lambda _done, _all: None) -> Checkup:
        """Reads everything, and tells all that is wrong. Raises what :meth:`inspect` raises."""
        ...


class DataSource(Protocol):
    """A source as the pipeline holds it. ``identity`` names it without secrets: the ledger refuses another one."""

    @property
    def identity(self) -> str: ...

    @property
    def event_source(self) -> EventSource: ...

    @property
    def metadata_accessor(self) -> MetadataAccessor: ...

    def carried(self, schema: TableSchema) -> tuple[Column, ...]:
        """The columns of the table that its rows bring; the source may be told to leave some out."""
        ...

    def held(self, position: str) -> tuple[HeldSplit, ...]:
        """What stopped tables have to read yet, the oldest first. Looks at nothing but the position."""
        ...
