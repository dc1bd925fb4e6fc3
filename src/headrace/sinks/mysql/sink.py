"""The sink for MySQL, MariaDB and TiDB as a pipeline holds it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from headrace.errors import DefinitionError
from headrace.model.table import SYSTEM_DATABASES, SourceTable, TableId
from headrace.model.uri import NO_OPTIONS, ConnectorOptions, flag_of, reject_unknown
from headrace.sinks.base import (
    SINK_OPTIONS,
    ChangeDemand,
    Check,
    EventSink,
    Round,
    SinkCapabilities,
    TextComparison,
    UnitWriter,
    WriteReport,
)
from headrace.sinks.mysql import catalogue
from headrace.sinks.mysql.applying import ReplayedOfTarget
from headrace.sinks.mysql.checks import check_target
from headrace.sinks.mysql.conditions import check_tables
from headrace.sinks.mysql.connection import MySqlSession, repeat
from headrace.sinks.mysql.ledger import MySqlLedger
from headrace.sinks.mysql.metadata import MySqlMetadataApplier
from headrace.sinks.mysql.replay import ReplayWriter
from headrace.sinks.mysql.settings import MySqlSettings, read_settings
from headrace.sinks.mysql.writer import MySqlWriter
from headrace.sinks.reserved import Reserved

# The size that one transaction can have without straining the server's undo log. Larger cuts take several transactions.
ATOMIC_BYTES = 8 * 1024 * 1024
_MOVE_LEDGER = "Give the ledger a database of another name with ledger-database=… in the sink's URI"


class MySqlEventSink:
    """``EventSink``: every task of a round writes through its own connection.

    ``verified`` are the tables for which writers of this run have found a unique index on the handle key. A schema change removes
    its tables.
    """

    def __init__(
        self,
        settings: MySqlSettings,
        ledger: MySqlLedger,
        verified: set[TableId],
        metadata_applier: MySqlMetadataApplier,
        replayed: ReplayedOfTarget,
    ) -> None:
        self._settings, self._ledger, self._replayed = settings, ledger, replayed
        self._verified: Final = verified  # the applier has the same set, and removes tables from it
        self._metadata_applier = metadata_applier
        self._texts: dict[TableId, TextComparison] = {}

    def write(self, round: Round) -> WriteReport:
        """See ``EventSink.write``."""
        claim = self._ledger.own_claim()
        if self._settings.apply.may_replay:
            writer: UnitWriter = ReplayWriter(self._settings, claim, self._replayed.known(), self._verified)
        else:
            writer = MySqlWriter(self._settings, claim, self._verified)
        report = round.write_in_tasks(writer, self._text_comparisons)
        self._ledger.wrote(report)
        stopped = report.problems()  # a person may alter these tables
        self._verified.update(outcome.written_to for outcome in report.outcomes)
        self._verified.difference_update(stopped, (o.written_to for o in report.outcomes if o.table_id in stopped))
        return report

    def forget(self, tables: Collection[TableId] | None = None) -> None:
        """Drops what is known about these tables of the target, or about all."""
        for table_id in {*self._verified, *self._texts} if tables is None else tables:
            self._verified.discard(table_id)
            self._texts.pop(table_id, None)

    def _text_comparisons(self, tables: Collection[TableId]) -> Mapping[TableId, TextComparison]:
        unknown = {table_id for table_id in tables if table_id not in self._verified or table_id not in self._texts}
        if unknown:
            found = self._metadata_applier.text_comparisons(unknown)
            self._texts |= {table_id: found.get(table_id, TextComparison()) for table_id in unknown}
        return {table_id: self._texts[table_id] for table_id in tables}


class MySqlSink:
    """``DataSink``. Connects at its first use."""

    table_marks = None

    def __init__(self, settings: MySqlSettings, *, adopt: bool) -> None:
        self._settings, self._adopt = settings, adopt
        self._ledger = MySqlLedger(settings)
        verified: set[TableId] = set()
        self._metadata_applier = MySqlMetadataApplier(settings, self._ledger, adopt=adopt, verified=verified)
        self._replayed = ReplayedOfTarget(settings.apply, lambda: _with_triggers(settings))
        self._event_sink = MySqlEventSink(settings, self._ledger, verified, self._metadata_applier, self._replayed)

    @property
    def identity(self) -> str:
        return self._settings.identity

    @property
    def capabilities(self) -> SinkCapabilities:
        replays = self._settings.apply.may_replay
        return SinkCapabilities(
            ChangeDemand.NET,
            own_demand=self._replayed.demand_of if replays else None,
            replays=replays,
            atomic_bytes=0 if replays else ATOMIC_BYTES,
            writers=self._settings.writers,
            bags=True,
            views=True,
            adopts=self._adopt,
            reserved=Reserved(self._settings.ledger_database, _MOVE_LEDGER, SYSTEM_DATABASES),
        )

    @property
    def event_sink(self) -> EventSink:
        return self._event_sink

    @property
    def metadata_applier(self) -> MySqlMetadataApplier:
        return self._metadata_applier

    @property
    def ledger(self) -> MySqlLedger:
        return self._ledger

    def spark_conf(self) -> Mapping[str, str]:
        return {}

    def check(self) -> list[Check]:
        """See ``DataSink.check``."""
        return check_target(self._settings)

    def check_tables(self, pipeline: str, tables: Sequence[SourceTable]) -> list[Check]:
        """See ``DataSink.check_tables``."""
        return check_tables(self._settings, pipeline, tables)

    def begin_cut(self) -> None:
        """Nothing to do: rounds are transactions of their own."""

    def interrupt(self) -> None:
        """See ``DataSink.interrupt``. Does not affect tasks, which write the rows."""
        self._ledger.interruption.request()

    def forget_tables(self, tables: Collection[TableId]) -> None:
        """See ``DataSink.forget_tables``."""
        self._event_sink.forget(tables)

    def abandon_cut(self) -> None:
        """No cut is open. Drops the connection for schema changes, which may lead to a former server after a failover."""
        self._metadata_applier.close()
        self._event_sink.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._metadata_applier.close()
        self._ledger.close()


def _with_triggers(settings: MySqlSettings) -> set[TableId]:
    def ask() -> set[TableId]:
        with MySqlSession(settings) as session:
            return catalogue.with_triggers(session)

    return repeat(ask, "Looking for triggers in the target", lambda _: None)


def open_sink(uri: str, options: ConnectorOptions = NO_OPTIONS) -> MySqlSink:
    """The sink named by a ``mysql://`` or ``tidb://`` URI.

    Options: with ``adopt``, existing tables with rows are taken over as they are, if their columns match. With
    ``allow-non-transactional``, tables with a key may have an engine without transactions. Raises DefinitionError.
    """
    reject_unknown(options, SINK_OPTIONS, "option of mysql://")
    settings = replace(read_settings(uri), allow_non_transactional=flag_of(options, "allow-non-transactional"))
    if settings.allow_non_transactional and settings.apply.may_replay:
        raise DefinitionError(
            "--allow-non-transactional and apply=replay exclude each other: without transactions, what a run that dies has "
            "executed is executed again.",
            "Run ALTER TABLE … ENGINE=InnoDB for these tables, or leave apply=replay out of the sink's URI.",
        )
    return MySqlSink(settings, adopt=flag_of(options, "adopt"))
