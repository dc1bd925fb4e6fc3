"""The storage sink as a pipeline holds it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from headrace.errors import HeadraceError
from headrace.model.outcome import WriteOutcome
from headrace.model.table import SourceTable, TableId
from headrace.model.uri import NO_OPTIONS, ConnectorOptions, flag_of, parse_uri, reject_unknown
from headrace.places.location import Location
from headrace.places.object_place import Place, place_at
from headrace.sinks.base import SINK_OPTIONS, ChangeDemand, Check, CheckState, Round, SinkCapabilities, WriteReport
from headrace.sinks.file_ledger import FileLedger
from headrace.sinks.reserved import Reserved
from headrace.sinks.storage.ledger import StorageLedger
from headrace.sinks.storage.metadata import StorageMetadataApplier
from headrace.sinks.storage.open_cut import CutWriter
from headrace.sinks.storage.output import StorageOutput, read_output
from headrace.sinks.storage.staging import StagedFile, StagingWriter
from headrace.sinks.storage.tables import TargetTables, unwritable_name
from headrace.sinks.storage.target_store import OWN, TargetStore

_WHAT = "target"


def open_sink(uri: str, options: ConnectorOptions = NO_OPTIONS) -> StorageSink:
    """The sink of ``file:///path?protocol=csv``, ``s3://bucket/prefix?protocol=canal-json&…``. Connects to nothing yet.

    Parameters: those of TiCDC's storage sink (:mod:`headrace.sinks.storage.output`), and the store's own. Options: ``adopt`` goes
    on in the tables of a target that has some; ``allow-non-transactional`` has no effect. Raises DefinitionError.
    """
    reject_unknown(options, SINK_OPTIONS, "option of a storage sink")
    parsed = parse_uri(uri)
    output = read_output(parsed)
    place = place_at(Location.of_uri(parsed), _WHAT)
    return StorageSink(TargetStore(place), output, adopt=flag_of(options, "adopt"))


class StorageSink:
    """A :class:`headrace.sinks.base.DataSink` for change files in TiCDC's layout. A cut becomes visible as a whole."""

    table_marks = None

    def __init__(self, store: TargetStore, output: StorageOutput, *, adopt: bool = False) -> None:
        self._store, self._adopt = store, adopt
        self._writer = CutWriter(store, output, TargetTables(store, column_ids=output.column_ids))
        self.event_sink = StorageEventSink(store, output, self._writer)
        self.metadata_applier = StorageMetadataApplier(self._writer, column_ids=output.column_ids, adopt=adopt)
        ledger_place = Place(replace(store.place.location, path=f"{store.place.location.path}/{OWN}/ledger"), "ledger")
        self.ledger = StorageLedger(FileLedger(ledger_place), store, self._writer, output=output.told, adopt=adopt)

    @property
    def identity(self) -> str:
        return self._store.name

    @property
    def capabilities(self) -> SinkCapabilities:
        return SinkCapabilities(
            ChangeDemand.ALL,
            atomic_cut=True,
            bags=True,
            views=True,
            adopts=self._adopt,
            reserved=Reserved(OWN, "Rename the database"),
        )

    def spark_conf(self) -> Mapping[str, str]:
        return {}

    def check(self) -> list[Check]:
        """Looks whether the target can be listed and, if it is a folder, written to."""
        try:
            if (refused := self._store.refused()) is not None:
                return [Check("target", CheckState.FAILED, refused, "Change its permissions, or name another folder.")]
            self._store.folders("")
        except HeadraceError as error:
            return [Check("target", CheckState.FAILED, error.message, error.hint or "")]
        return [Check("target", CheckState.OK, f"{self._store.name} can be {'written' if self._store.is_local else 'listed'}")]

    def check_tables(self, pipeline: str, tables: Sequence[SourceTable]) -> list[Check]:
        """Names that no folder can have."""
        named = (table.schema.table_id for table in tables)
        bad = [table_id for table_id in named if unwritable_name([table_id.database, table_id.table])]
        advice = "Leave the table out with --tables."
        return [Check(str(t), CheckState.FAILED, "its name cannot be that of a folder", advice) for t in bad]

    def begin_cut(self) -> None:
        self._writer.begin()

    def interrupt(self) -> None:
        """No step of the driver takes long by itself."""

    def forget_tables(self, tables: Collection[TableId]) -> None:
        """A person may have changed files of the target."""
        self._writer.tables.forget()

    def abandon_cut(self) -> None:
        self._writer.abandon()
        self.ledger.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.abandon_cut()


class StorageEventSink:
    """Writes a round: tasks stage files, and the cut takes those of tables without a problem."""

    def __init__(self, store: TargetStore, output: StorageOutput, writer: CutWriter) -> None:
        self._store, self._output, self._writer = store, output, writer

    def write(self, round: Round) -> WriteReport:
        """Part of the open cut. Raises TransientError, SinkUnreachableError."""
        report = round.write_in_tasks(StagingWriter(self._store, self._writer.open.folder, self._output))
        stopped = report.problems().keys()
        staged: dict[TableId, list[StagedFile]] = {}
        for outcome in report.outcomes:
            if outcome.table_id not in stopped:
                staged.setdefault(outcome.table_id, []).extend(map(StagedFile.of_text, outcome.spooled))
        for files in staged.values():
            self._writer.add_files(files)
        return replace(report, outcomes=tuple(_without_files(outcome) for outcome in report.outcomes))


def _without_files(outcome: WriteOutcome) -> WriteOutcome:
    return replace(outcome, spooled=())
