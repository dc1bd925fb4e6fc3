"""The contract of a source (with Flink CDC's names: DataSource, EventSource, MetadataAccessor).

A source reports what is available (``poll``, on the driver, cheap), reads one split (``read``, in a Spark task), and records what
need not be read again (``advance``). It does not depend on the target, the ledger or Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from headrace.model.backlog import PartitionBacklog
from headrace.model.block import ChangeBlock
from headrace.model.cut import CutOutcome
from headrace.model.events import SchemaChange
from headrace.model.inspection import Checkup, Finding, Inspection
from headrace.model.ledger import TableShape
from headrace.model.offer import Learned, Offer, PositionAfter
from headrace.model.outcome import Problem, SplitReport
from headrace.model.place import SourcePlace
from headrace.model.split import HeldSplit, Split, Window
from headrace.model.stream import Range, StageReport, StreamStatement
from headrace.model.table import Column, TableId, TableSchema


@dataclass(frozen=True)
class Bound:
    """How much an offer may hold, so that a backlog is applied in parts."""

    limit: int
    """In bytes as they are stored."""
    at_least: int = 0
    """The ts (TSO) that the offer's watermark must reach, if the source is complete up to it."""
    checkpoint: int = 0
    """The pipeline's checkpoint (TSO)."""
    reached: Callable[[TableId], int] = lambda _: 0
    """Each table's own checkpoint (TSO). A table that is more than ``limit`` behind ``checkpoint`` gets offers of its own
    (``Offer.catches_up``)."""
    counts: Callable[[TableId, int], bool] = lambda table_id, version: True
    """Whether splits of this version (TSO) of a table will be read. Other splits are offered without regard to the bound."""
    pending: Callable[[Sequence[SchemaChange]], Iterable[int]] = lambda changes: [change.commit_ts for change in changes]
    """Takes all schema changes in their order and gives the commit ts (TSO) of those that tables may still have to apply."""
    looked: Callable[[int, int], None] = lambda done, total: None
    """Called with the number of files examined and the total, while files must be examined for the bound."""


KeptShapes = Mapping[TableId, Sequence[TableShape]]
"""Each table's shapes as the ledger keeps them, the oldest first, for sources that need them (``EventSource.needs_shapes``)."""


class EventSource(Protocol):
    """The stream of changes. Everything that it takes into a task must be picklable.

    The result of each method depends only on its arguments and on what the source holds at the moment. What an object remembers of
    earlier calls only saves work. So one object may poll, another read and a third advance, in any order.
    """

    @property
    def needs_shapes(self) -> bool:
        """Whether the ledger must keep the tables' shapes for it, because the source can deliver a schema change only once."""
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
        """What is available now and may not be applied yet.

        ``position`` is the last result of :meth:`advance` (``""`` at first), ``checkpoint`` the pipeline's (TSO). Reads the
        watermark *before* it lists anything (rule 1). If the watermark has not moved past ``checkpoint``, it returns an offer
        without splits and lists nothing. A source without any watermark offers what it has (``Offer.at_once``). Raises
        SourceUnreachableError, SourceNotReadyError.

        ``learned`` is ``Offer.learned`` of the run's previous offer; ``None`` at first, and when a table is to be read again. It
        lets the source detect that something it offered then has disappeared. A notice is repeated in each offer as long as its
        cause lasts; the caller shows each notice once.

        ``final`` asks for the last offer of a source to which nothing is written any more, as a person has confirmed. The watermark
        is then the greatest ts of all data that are there, with schema changes at that ts included, whatever the source promised;
        it may equal ``checkpoint``. A source that has not promised anything yet has an offer then, too.

        With a ``bound``, the offer may end below the ts up to which the source is complete (``Offer.promised``, or ``Offer.more``
        if the source cannot tell that ts). It is still complete up to its own watermark, which is greater than that of the previous
        offer, except for tables that catch up. A split with an unknown range of ts limits the watermark, not the reverse.
        """
        ...

    def mark(self, position: str) -> str:
        """A text that identifies the watermark and all data beyond ``position``. It stays equal as long as nothing arrives.

        Raises what :meth:`poll` raises if there are no change data at all. A missing watermark is part of the mark.
        """
        ...

    def read(
        self, split: Split, window: Window, *, old_images: bool = True, tolerance: int = 0
    ) -> Iterator[ChangeBlock | SplitReport]:
        """The rows of a split inside the window, in blocks of 1-8 MiB, followed by exactly one report.

        With ``old_images`` false, the old rows of updates that keep the handle key may be left out. Deterministic. Bad data end the
        reading early, with ``SplitReport.problem``; only bugs raise. Up to ``tolerance`` records that cannot be decoded are left
        out. The report holds those of them that belong, or may belong, into the window.
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
        """The position after a cut of the offer: what every table has applied is not offered again.

        ``reports`` are those of the splits read in the cut; splits of stopped tables count as not read. ``checkpoints`` holds each
        known table's checkpoint (TSO) after the cut. With it the source seals what lies before a schema change.
        """
        ...

    def taking(self, position: str, offer: Offer, keys: Collection[str]) -> PositionAfter:
        """What :meth:`advance` will return after a cut of the offer that reads the splits with these keys, but for the sealing."""
        ...

    def begin(self, position: str, offer: Offer, splits: Collection[Split], hi: int) -> str:
        """The position before a cut of the offer, up to ``hi`` (TSO), that reads these splits and is applied in several steps.

        From then on the splits may be partly applied. If the run dies, the next run can see that only from this position.
        """
        ...

    def consumed(self, position: str, offer: Offer, reports: Sequence[SplitReport]) -> str:
        """The position in the middle of a cut of the offer: splits that were read to their end are not offered again.

        For tables at a schema change whose rows do not show on which side of the change they belong.
        """
        ...

    def vanished(self, position: str, table_id: TableId, since: int) -> tuple[str, ...]:
        """Files of the table that count as read and have disappeared, though they may hold rows above ``since`` (TSO).

        Files from before the table's last schema change are not covered. An entry that ends with a full stop is a sentence: it says
        why a file is not read again although it is there.
        """
        ...

    def missing_again(self, former: str, position: str) -> str:
        """The position in which splits count as missed that an older, restored position lacks and that have disappeared since.

        ``former`` is the position that the run had reached, ``position`` the restored one. A missed split stops its table. Splits
        from before a table's last schema change at ``former`` are not covered.
        """
        ...

    def missing(self, position: str, offer: Offer, table_id: TableId, since: int) -> str:
        """Why files with rows of the table above ``since`` (TSO) may have disappeared before they were read.

        For a table whose files were not examined for a while. The text is the end of a sentence; ``""`` if nothing suggests a loss.
        """
        ...

    def has_rows(self, offer: Offer, table_id: TableId, above: int, up_to: int) -> bool:
        """Whether the source has read rows of the table with ``above < commit_ts <= up_to`` (TSO) for the offer, in any shape.

        Only a source that :attr:`needs_shapes` reads rows for an offer. Raises TransientError.
        """
        ...

    def give_up(self, position: str, table_id: TableId, place: SourcePlace) -> str:
        """The position in which the table's split, or record of a stream, counts as read because a person gave it up.

        Unchanged if the table does not wait for it, or if it belongs to another table.
        """
        ...

    def read_again(self, position: str, table_id: TableId, since: int) -> str:
        """The position in which no file of the table that may hold rows above ``since`` (TSO) counts as read.

        The next poll must start with nothing learned. Files that have disappeared by then are reported by :meth:`vanished` and
        :meth:`missing`.
        """
        ...

    def forget_vanished(
        self, position: str, offer: Offer, loaded: Mapping[TableId, int], ended: Mapping[TableId, int]
    ) -> tuple[str, frozenset[str]]:
        """The position in which vanished splits count as read if their rows are not needed, and the keys of these splits.

        For tables that were ``loaded`` as of a commit ts (TSO): splits that hold nothing above it, if that can be determined. For
        tables that a schema change at a commit ts (TSO) has ``ended``, or will end: splits of earlier versions. All other splits
        stay missed.
        """
        ...

    def forget_lives(self, position: str, ended: Mapping[TableId, int]) -> str:
        """The position in which no version before a table's commit ts (TSO) in ``ended`` needs reading: the table ended there."""
        ...


class StagingPlace(Protocol):
    """Storage for staged pieces that the driver and the tasks can reach. Picklable."""

    def write(self, key: str, *parts: bytes | pa.Buffer) -> None:
        """Writes an object as a whole. Raises TransientError."""
        ...

    def read(self, key: str) -> pa.Buffer:
        """An object; in a folder it is mapped into memory. Raises TransientError."""
        ...

    def keys(self, below: str) -> Collection[str]:
        """The keys of all objects in a folder; empty if the folder does not exist. Raises TransientError."""
        ...

    def remove(self, below: str) -> None:
        """Removes a folder of objects if it exists. Raises TransientError."""
        ...


@runtime_checkable
class StreamSource(EventSource, Protocol):
    """A source whose records must be read to find out which tables they belong to.

    :meth:`poll` stages the records that it does not know yet, and offers the staged pieces.
    """

    def stage(self, of: Range) -> StageReport:
        """Reads one range, in a task. Raises SourceUnreachableError, TransientError."""
        ...

    def effects(self, statements: Sequence[StreamStatement]) -> tuple[Sequence[SchemaChange], Sequence[Problem]]:
        """What statements do that do not come from the stream, with the shapes that rows have after them.

        The problems are those of statements whose effect is not known. Does not connect.
        """
        ...

    def staged_by(self, run: StageRunner, place: StagingPlace) -> EventSource:
        """The source, bound to a function that has its ranges staged and to the place for the pieces.

        The place may be cleared during a run; what was staged there is then staged again.
        """
        ...


StageRunner = Callable[[StreamSource, Sequence[Range]], Sequence[StageReport]]
"""Has ranges staged, in tasks, or in the driver if they are few. The reports come in the order of the ranges."""


class MetadataAccessor(Protocol):
    """What exists in a source, for ``inspect`` and for planning by hand."""

    def list_databases(self) -> list[str]: ...

    def list_tables(self, database: str) -> list[TableId]: ...

    def get_table_schema(self, table_id: TableId) -> TableSchema:
        """The newest shape. Raises ``KeyError`` for an unknown table."""
        ...


Progress = Callable[[int, int], None]
"""Called with the number of files done and the total."""


@runtime_checkable
class InspectableSource(Protocol):
    """An optional part of a :class:`DataSource`: reports what the source holds, and what is wrong with it. Only reads."""

    def inspect(self, *, count_rows: bool = False) -> Inspection:
        """What the source holds. ``count_rows`` reads all data, to count. Raises SourceUnreachableError, SourceNotReadyError."""
        ...

    def check(self, progress: Progress = lambda _done, _all: None) -> Checkup:
        """Reads everything and reports all errors. Raises what :meth:`inspect` raises."""
        ...


@runtime_checkable
class AdvisedSource(Protocol):
    """An optional part of a :class:`DataSource`: tells how it is set up, and what of that is risky, for ``validate``."""

    def advise(self) -> Sequence[Finding]:
        """What to know before a run. Reads no data to speak of. Raises SourceUnreachableError, SourceNotReadyError."""
        ...


@runtime_checkable
class LaggingSource(Protocol):
    """An optional part of a :class:`DataSource`: a stream reports how far a pipeline is behind its ends. Only reads."""

    def backlog(self, position: str) -> Sequence[PartitionBacklog]:
        """What a pipeline at this position has yet to take of each partition, and how long that is kept.

        Raises SourceUnreachableError, SourceNotReadyError.
        """
        ...


@runtime_checkable
class WeakerSource(Protocol):
    """An optional part of a :class:`DataSource`: some guarantees do not hold for what it is configured to read."""

    @property
    def caveats(self) -> Sequence[str]:
        """What is weaker than usual, a sentence for each thing; may be empty. Does not connect."""
        ...


def caveats_of(source: object) -> Sequence[str]:
    """What is weaker than usual with a source; empty for one that says nothing of it."""
    return source.caveats if isinstance(source, WeakerSource) else ()


class DataSource(Protocol):
    """A source as the pipeline holds it.

    ``identity`` names it without secrets; the ledger refuses a source with another identity.
    """

    @property
    def identity(self) -> str: ...

    @property
    def event_source(self) -> EventSource: ...

    @property
    def metadata_accessor(self) -> MetadataAccessor: ...

    def carried(self, schema: TableSchema) -> tuple[Column, ...]:
        """The table's columns that its rows carry. The source may be configured to leave some out."""
        ...

    def held(self, position: str) -> tuple[HeldSplit, ...]:
        """The splits that stopped tables still have to read, the oldest first. Looks only at the position."""
        ...
