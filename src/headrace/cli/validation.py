"""``headrace validate``: runs checks, and prints ok or what to do for each. Changes nothing; only the Spark check starts a JVM."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from headrace.cli.backlogs import retention_warnings
from headrace.cli.output import Output
from headrace.cli.progress import counted
from headrace.ddl.told import source_databases, source_tables
from headrace.engine.excluded_tables import Followed
from headrace.engine.keys import with_declared_keys
from headrace.engine.launch import is_local
from headrace.engine.objections import databases_of, objection
from headrace.engine.spark import session_settings
from headrace.errors import EXIT_OK, EXIT_USAGE, HeadraceError
from headrace.model.inspection import Severity
from headrace.model.ledger import LedgerState
from headrace.model.offer import Offer
from headrace.model.precision import CommitTsPrecision
from headrace.model.table import SourceTable, TableId, TableSchema
from headrace.model.tso import format_tso
from headrace.pipeline.assembly import Assembly
from headrace.pipeline.definition import Definition
from headrace.pipeline.local_places import local_places
from headrace.pipeline.registry import open_source, source_options
from headrace.sinks.base import ChangeDemand, Check, CheckState, SinkCapabilities
from headrace.sinks.record_owner import require_owner
from headrace.sinks.reserved import Reserved
from headrace.sources.base import AdvisedSource, DataSource, LaggingSource, StreamSource

_TABLES_SHOWN = 5
_CheckTables = Callable[[str, Sequence[SourceTable]], list[Check]]


def show_checks(pipeline: Definition, output: Output, *, with_spark: bool) -> int:
    """Runs the checks one after another and prints each result at once. ``with_spark`` also starts a Spark session.

    Returns 0 if no check failed, else 2.
    """
    failed = False
    for check in _checks(pipeline, with_spark=with_spark):
        failed |= check.state is CheckState.FAILED
        if output.is_json:
            output.event("check", name=check.name, state=str(check.state), detail=check.detail, advice=check.advice)
        else:
            tail = " ".join(part for part in (check.detail, check.advice) if part)
            output.line(f"{check.state:<8}{check.name}" + (f": {tail}" if tail else ""))
    return EXIT_USAGE if failed else EXIT_OK


def _checks(pipeline: Definition, *, with_spark: bool) -> Iterator[Check]:
    yield _java()
    spark_conf: Mapping[str, str] = {}
    try:
        target = pipeline.target.assembled()
        with target.opened() as ledger:
            sink = target.sink
            spark_conf = sink.spark_conf()
            yield from _places(pipeline, target)
            checks = sink.check()
            yield from checks
            reached = all(check.state is not CheckState.FAILED for check in checks)
            owner = ledger.peek(pipeline.name) if reached else None
            yield from _source_checks(pipeline, sink.capabilities, sink.check_tables if reached else None, owner)
    except HeadraceError as error:
        yield Check("target", CheckState.FAILED, error.message, error.hint)
        yield from _source_checks(pipeline, SinkCapabilities(ChangeDemand.NET), None, None)
    if with_spark:
        yield _spark(pipeline.spark, spark_conf)


def _places(pipeline: Definition, target: Assembly) -> Iterator[Check]:
    """Whether Spark's workers can reach the places that they need. No check if Spark runs only on this machine."""
    try:
        master = session_settings(pipeline.spark, target.sink.spark_conf())["spark.master"]
    except HeadraceError as error:
        yield Check("Spark settings", CheckState.FAILED, error.message, error.hint)
        return
    if is_local(master):
        return
    try:
        source = open_source(pipeline.source, source_options(pipeline.changefeed)).event_source
    except HeadraceError:
        source = None  # the check of the source reports it
    found = list(local_places(master, source, target.sink.capabilities, target.work, pipeline.options.letters))
    for place in found:
        yield Check("work place", CheckState.FAILED, place.message, place.hint)
    if not found:
        yield Check("work place", CheckState.OK, "tasks on other machines can reach the work place and the folder of dead letters")


def _java() -> Check:
    from headrace.engine.java import find_java

    try:
        found = find_java()
    except HeadraceError as error:
        return Check("Java", CheckState.FAILED, error.message, error.hint)
    return Check("Java", CheckState.OK, f"{found.version} from {found.origin} ({found.home})")


_MEANING = {
    CommitTsPrecision.MILLISECOND: "rows carry the millisecond of their commit ts",
    CommitTsPrecision.SECOND: "rows carry the second of their commit ts",
    CommitTsPrecision.NONE: "rows carry no commit ts",
}


def _source_checks(
    pipeline: Definition, capabilities: SinkCapabilities, check_tables: _CheckTables | None, record: LedgerState | None
) -> Iterator[Check]:
    """Checks the source, and whether the target's tables match it. ``check_tables`` is ``None`` if the target cannot be reached.

    ``record`` is what the ledger holds of the pipeline.
    """
    includes = pipeline.options.includes
    try:
        source = open_source(pipeline.source, source_options(pipeline.changefeed))
        if record is not None:
            require_owner(pipeline.name, record.source_identity, source.identity)
        if isinstance(source.event_source, StreamSource):
            yield from _stream_checks(source, record)
            return
        offer = with_declared_keys(source.event_source.poll("", -1), pipeline.options.keys)
    except HeadraceError as error:
        yield Check("source", CheckState.FAILED, error.message, error.hint)
        return
    yield Check("source", CheckState.OK, f"{source.identity} is complete up to {format_tso(offer.watermark)}")
    for problem in offer.problems:
        if includes(problem.table_id):
            yield Check("source files", CheckState.FAILED, problem.sentence())
    for notice in offer.notices:
        yield Check("source files", CheckState.WARNING, notice.sentence())
    yield from _reserved_databases(offer, includes, capabilities.reserved)
    yield from _objections(offer, includes)
    known = source_tables(offer.schema_changes)
    tables = [table for table_id, table in known.items() if includes(table_id)]
    if known and not tables:
        yield _matches_nothing(pipeline.options.filter_text, list(known))
    else:
        yield from _converge_checks(offer, includes, capabilities)
    if check_tables is not None:
        carried = [replace(table, carried=source.carried(table.schema)) for table in tables]
        filled = {table.schema.table_id.database for table in tables}
        empty = [TableId(name) for name in sorted(source_databases(offer.schema_changes) - filled) if includes(TableId(name))]
        yield from check_tables(pipeline.name, [*carried, *(SourceTable(TableSchema(database, ())) for database in empty)])


_STATES = {Severity.INFO: CheckState.OK, Severity.WARNING: CheckState.WARNING, Severity.ERROR: CheckState.FAILED}


def _stream_checks(source: DataSource, record: LedgerState | None) -> Iterator[Check]:
    """Whether a stream can be read, how it is set up, and whether it still keeps what the pipeline needs.

    Raises SourceUnreachableError, SourceNotReadyError.
    """
    source.event_source.mark("")
    yield Check("source", CheckState.OK, f"{source.identity} can be read; headrace inspect shows what is in it")
    for finding in source.advise() if isinstance(source, AdvisedSource) else ():
        yield Check(finding.kind, _STATES[finding.severity], finding.message)
    if isinstance(source, LaggingSource) and record is not None:
        for told in retention_warnings(source.backlog(record.position)):
            yield Check("retention", CheckState.WARNING, told)


def _matches_nothing(filter_text: str, known: Sequence[TableId]) -> Check:
    """The warning for a table filter that excludes all tables that the source has now."""
    names = [str(table_id) for table_id in sorted(known)]
    shown = ", ".join(names[:_TABLES_SHOWN]) + (f" and {len(names) - _TABLES_SHOWN} more" if len(names) > _TABLES_SHOWN else "")
    detail = f"--tables {shlex.quote(filter_text)} includes no table of the source, which has {shown}."
    return Check("tables", CheckState.WARNING, detail, "Correct the filter, unless the tables are still to come.")


def _reserved_databases(offer: Offer, includes: Callable[[TableId], bool], reserved: Reserved) -> Iterator[Check]:
    """Checks for databases of the source that the target cannot have."""
    changes = [change for change in offer.schema_changes if any(map(includes, change.changes))]
    for database in sorted({database for change in changes for database in databases_of(change)}):
        if why := reserved.sentence(database):
            yield Check("databases", CheckState.FAILED, why, reserved.hint(database))


def _objections(offer: Offer, includes: Callable[[TableId], bool]) -> Iterator[Check]:
    """Warns about schema changes whose statements do not run without a decision."""
    for change in offer.schema_changes:
        if any(map(includes, change.changes)) and (why := objection(change, Followed(includes))):
            hint = "Unless it is already done, a run stops the table before it until you decide with headrace ddl skip or edit."
            yield Check("schema changes", CheckState.WARNING, f"{change.origin.name}: {why}" if change.origin else why, hint)


def _converge_checks(offer: Offer, includes: Callable[[TableId], bool], capabilities: SinkCapabilities) -> Iterator[Check]:
    """Checks the conditions under which the order of writes does not matter (docs/guarantees.md).

    Tables for which the sink takes all changes, as in a log, are left out: there the order always matters.
    """
    shapes = {t: s for t, s in newest_shapes(offer).items() if includes(t)}
    netted = {t: s for t, s in shapes.items() if capabilities.demand_of(t, s) is not ChangeDemand.ALL}
    if not netted and (shapes or capabilities.demand is ChangeDemand.ALL):
        return
    exact, bags = offer.precision.is_exact, capabilities.bags
    keyless = sorted(str(t) for t, s in netted.items() if not s.handle_key)
    if keyless and bags and not exact:
        advice = "Give them a primary key upstream, declare their keys with --key, or let rows carry their commit ts."
        detail = f"no usable key, so rows are counted, which needs the exact commit ts: {', '.join(keyless)}."
        yield Check("keys", CheckState.WARNING, detail, advice)
    elif keyless and bags:
        yield Check("keys", CheckState.OK, f"no usable key, so equal rows are counted: {', '.join(keyless)}")
    elif keyless:
        advice = "Give them a primary key upstream, declare their keys with --key, or leave them out with --tables."
        yield Check("keys", CheckState.FAILED, f"no usable key: {', '.join(keyless)}.", advice)
    else:
        yield Check("keys", CheckState.OK, f"{counted(len(netted), 'table')}, each with a key")
    if exact:
        yield Check("commit ts", CheckState.OK, f"{offer.precision}: cuts are complete and repeatable")
    else:
        yield Check(
            "commit ts",
            CheckState.WARNING,
            f"{offer.precision}: {_MEANING[offer.precision]}, so the target is consistent only eventually.",
            offer.advice.exact_commit_ts,
        )


def newest_shapes(offer: Offer) -> dict[TableId, TableSchema]:
    """The last known shape of each table that has one."""
    shapes: dict[TableId, TableSchema] = {}
    for change in sorted(offer.schema_changes, key=lambda c: c.commit_ts):
        if change.schema is None:
            shapes.pop(change.table_id, None)
        else:
            shapes[change.table_id] = change.schema
    return shapes


def _spark(user: Mapping[str, str], sink: Mapping[str, str]) -> Check:
    from headrace.engine.spark import SparkEngine

    try:
        engine = SparkEngine(session_settings(user, sink))
        engine.warm_up()
        parallelism = engine.parallelism()
        engine.stop()
    except HeadraceError as error:
        return Check("Spark", CheckState.FAILED, error.message, error.hint)
    return Check("Spark", CheckState.OK, f"runs {parallelism} tasks at once")
