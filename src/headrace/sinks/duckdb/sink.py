"""The DuckDB sink as a pipeline holds it, and the settings in its URI."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit
from zoneinfo import ZoneInfoNotFoundError

import duckdb

from headrace.ddl.defaults import zone_of
from headrace.errors import DefinitionError, HeadraceError
from headrace.model.table import SourceTable, TableId
from headrace.model.uri import (
    NO_OPTIONS,
    ConnectorOptions,
    Uri,
    expand_environment,
    flag_of,
    near_match,
    parse_uri,
    reject_unknown,
    time_zone_of,
)
from headrace.places.work_place import open_work
from headrace.sealed_duckdb import open_duckdb
from headrace.sinks.base import SINK_OPTIONS, ChangeDemand, Check, CheckState, SinkCapabilities
from headrace.sinks.duckdb.conditions import check_tables
from headrace.sinks.duckdb.database import Database
from headrace.sinks.duckdb.ledger import LEDGER_SCHEMA, DuckDbLedger
from headrace.sinks.duckdb.loader import DuckDbEventSink
from headrace.sinks.duckdb.metadata import DuckDbMetadataApplier
from headrace.sinks.duckdb.spool import ValuePolicies
from headrace.sinks.duckdb.types import UnsupportedPolicy
from headrace.sinks.reserved import Reserved

_PARAMETERS = frozenset({"unsupported", "zero-dates", "memory-limit", "threads", "spool", "ledger-schema", "time-zone"})
_THREADS = re.compile(r"0*[1-9][0-9]{0,3}")
SYSTEM_SCHEMAS = frozenset({"information_schema", "pg_catalog"})
_SCHEMA_NAME = re.compile(r"[0-9A-Za-z_$-]{1,64}")
_MOVE_LEDGER = "Give the ledger a schema of another name with ledger-schema=… in the sink's URI"


_OWN_SPOOL = "spool in the sink's URI"


class _ZeroDates(StrEnum):
    ERROR = "error"
    NULL = "null"


def open_sink(uri: str, options: ConnectorOptions = NO_OPTIONS) -> DuckDbSink:
    """The sink of ``duckdb:///path/to/file.duckdb?…``, or ``duckdb:///file.duckdb`` in the working folder. Opens nothing yet.

    Parameters: ``unsupported`` (``error``, or ``text`` to store decimals over 38 digits as text), ``zero-dates`` (``error`` or
    ``null``), ``memory-limit`` (such as ``2GB``) and ``threads`` of DuckDB in the driver, ``spool`` (a folder for the tasks' rows,
    instead of the run's work place), ``ledger-schema`` (the ledger's schema), ``time-zone`` (of the source's sessions, for schema
    changes). Options: ``adopt`` takes over tables with rows that Headrace did not create; ``allow-non-transactional`` has no
    effect, because all of DuckDB's tables have transactions.

    Raises DefinitionError.
    """
    parsed = parse_uri(uri)
    path = _path(uri)
    reject_unknown(options, SINK_OPTIONS, "option of duckdb://")
    reject_unknown(parsed.params, _PARAMETERS, "parameter of duckdb://")
    policies = ValuePolicies(
        UnsupportedPolicy(_choice(parsed, "unsupported", [p.value for p in UnsupportedPolicy])),
        _choice(parsed, "zero-dates", [z.value for z in _ZeroDates]) == _ZeroDates.NULL,
        _time_zone(parsed.params.get("time-zone", "")),
    )
    settings = {}
    if "memory-limit" in parsed.params:
        settings["memory_limit"] = parsed.params["memory-limit"]
    if "threads" in parsed.params:
        settings["threads"] = parsed.params["threads"]
    _try_settings(settings)
    spool = parsed.params.get("spool")
    ledger = _ledger_schema(parsed.params.get("ledger-schema", LEDGER_SCHEMA))
    return DuckDbSink(
        Database(path, settings), policies, adopt=flag_of(options, "adopt"), spool=spool or None, ledger_schema=ledger
    )


def _ledger_schema(text: str) -> str:
    if not _SCHEMA_NAME.fullmatch(text) or text.casefold() in SYSTEM_SCHEMAS | {"main"}:
        raise DefinitionError(
            f"ledger-schema={text} is not the name of a schema for the ledger alone.",
            "Use letters, digits, _, $ and -, and none of DuckDB's own schemas.",
        )
    return text


def _path(uri: str) -> Path:
    """The file: an absolute path, except that a bare name means the working folder (databases are not kept in ``/``)."""
    split = urlsplit(uri)
    path = expand_environment(unquote(split.netloc + split.path))
    if path.count("/") == 1 and path.startswith("/"):
        path = path[1:]
    if not path or path.endswith("/"):
        raise DefinitionError("duckdb:// does not name a file.", "Write duckdb:///path/to/file.duckdb, or duckdb:///file.duckdb.")
    return Path(path).absolute()


def _choice(uri: Uri, name: str, known: list[str]) -> str:
    value = uri.params.get(name, known[0]).lower()
    if value not in known:
        raise DefinitionError(f"{name}={value} is not a choice of duckdb://.", near_match(value, known))
    return value


def _time_zone(text: str) -> str:
    zone = time_zone_of(text)
    try:
        zone_of(zone or "+00:00")
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise DefinitionError(
            f"time-zone={zone} is not a time zone.", "Write a name such as Asia/Shanghai, or %2B08:00."
        ) from error
    return zone


def _try_settings(settings: Mapping[str, str]) -> None:
    threads = settings.get("threads", "1")
    if not _THREADS.fullmatch(threads):  # DuckDB would start that many
        raise DefinitionError(f"DuckDB does not accept threads={threads}.", "Write a number from 1 to 9999.")
    try:
        open_duckdb(settings=settings).close()
    except (duckdb.Error, RuntimeError) as error:  # RuntimeError: for texts that are not Unicode
        raise DefinitionError(
            f"DuckDB does not accept memory-limit or threads: {str(error).strip().splitlines()[0]}",
            "Write them as memory-limit=2GB&threads=4.",
        ) from error


class DuckDbSink:
    """A DuckDB file as target. A whole cut is one transaction, and the file is open only during a cut."""

    table_marks = None

    def __init__(
        self,
        database: Database,
        policies: ValuePolicies,
        *,
        adopt: bool = False,
        spool: str | None = None,
        ledger_schema: str = LEDGER_SCHEMA,
    ) -> None:
        self._database, self._adopt = database, adopt
        self._policies = policies
        self._event_sink = DuckDbEventSink(database, open_work(spool, _OWN_SPOOL) if spool else None, policies)
        self._metadata_applier = DuckDbMetadataApplier(database, policies, adopt)
        self._ledger = DuckDbLedger(database, ledger_schema)

    @property
    def identity(self) -> str:
        return f"duckdb://{self._database.path}"

    @property
    def capabilities(self) -> SinkCapabilities:
        reserved = Reserved(self._ledger.schema, _MOVE_LEDGER, SYSTEM_SCHEMAS)
        return SinkCapabilities(
            ChangeDemand.NET,
            atomic_cut=True,
            bags=True,
            adopts=self._adopt,
            reserved=reserved,
            spools=True,
            own_spool=_OWN_SPOOL if self._event_sink.own_work is not None else "",
        )

    @property
    def event_sink(self) -> DuckDbEventSink:
        return self._event_sink

    @property
    def metadata_applier(self) -> DuckDbMetadataApplier:
        return self._metadata_applier

    @property
    def ledger(self) -> DuckDbLedger:
        return self._ledger

    def spark_conf(self) -> Mapping[str, str]:
        return {}

    def check(self) -> list[Check]:
        """Checks that the folder is writable, and that this version can open the file while no other process holds it."""
        path = self._database.path
        checks = [Check("DuckDB version", CheckState.OK, duckdb.__version__)]
        folder = path.parent
        if not folder.is_dir():
            return [*checks, Check("DuckDB file", CheckState.FAILED, f"There is no folder {folder}.", f"Create {folder}.")]
        writable = os.access(folder, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))
        if not writable:
            return [*checks, Check("DuckDB file", CheckState.FAILED, f"{path} cannot be written.", "Change its permissions.")]
        try:
            with self._database.reading() as session:
                detail = f"{path} will be created." if session is None else f"{path} can be opened."
        except HeadraceError as error:
            return [*checks, Check("DuckDB file", CheckState.FAILED, error.message, error.hint)]
        return [*checks, Check("DuckDB file", CheckState.OK, detail)]

    def check_tables(self, pipeline: str, tables: Sequence[SourceTable]) -> list[Check]:
        """See ``DataSink.check_tables``. DuckDB has no triggers, and its foreign keys do not cascade."""
        return check_tables(self._database, self._ledger.tables, pipeline, tables, self._policies.unsupported)

    def begin_cut(self) -> None:
        self._database.begin_cut()

    def interrupt(self) -> None:
        """Ends a load in the middle. The cut is then rolled back."""
        self._database.interrupt()

    def forget_tables(self, tables: Collection[TableId]) -> None:
        """Nothing is cached: each cut checks the tables that it writes."""

    def abandon_cut(self) -> None:
        self._database.abandon_cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._database.abandon_cut()
        self._event_sink.close()
