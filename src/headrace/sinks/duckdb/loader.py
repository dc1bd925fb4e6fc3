"""The part that runs on the driver: loads what tasks spooled into the tables, inside the cut's transaction.

DuckDB aborts a whole transaction on any error, so everything that can be known to fail is checked first. Tables have no primary-key
index: upserting 500,000 rows into 2 million took 0.3 to 0.8 s without one and 8.5 s with it.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from dataclasses import dataclass, replace

import duckdb
import pyarrow as pa

from headrace import faults
from headrace.errors import HeadraceError, TransientError
from headrace.faults import Step
from headrace.model.containment import unforeseen
from headrace.model.outcome import Problem, WriteOutcome
from headrace.model.table import TableId
from headrace.places.work_place import WorkLease, WorkPlace
from headrace.sinks.base import Round, RowsRefused, WriteReport
from headrace.sinks.duckdb.catalog import TargetTable, find_tables, has_rows, place
from headrace.sinks.duckdb.database import REFUSALS, Database, Session
from headrace.sinks.duckdb.spool import DELETES, UPSERTS, SpooledFile, SpoolWriter, ValuePolicies, spooled_key
from headrace.sinks.duckdb.types import own_name, quoted
from headrace.sinks.refused_row import missing_rows, of_source

_WAY_OUT = {
    True: "Drop the constraint or index that was added to the table by hand.",
    False: "A column of the table has another type in the DuckDB file than in the source: give it the source's.",
}
_SPOOLED = "headrace$spooled"
_GONE, _STAYING = 'temp."headrace$gone"', 'temp."headrace$staying"'
_ADD_COLUMN = "Was it dropped by hand? Add it again, as the source defines it, with its values for the rows that are there."


@dataclass
class DuckDbEventSink:
    """Writes a round: tasks spool, the driver loads.

    ``own_work`` is used for the spool files instead of the run's work place. Each round has a folder there.
    """

    database: Database
    own_work: WorkLease | None
    policies: ValuePolicies
    _rounds: int = 0

    def write(self, round: Round) -> WriteReport:
        """Part of the open cut; outside a cut, durable on return. Raises TransientError, RowsRefused."""
        self._rounds += 1
        folder = f"spool-{self._rounds}"
        work = self.own_work.place() if self.own_work is not None else round.work_place()
        try:
            report = round.write_in_tasks(SpoolWriter(work, folder, self.policies))
            with self.database.transaction() as session:
                faults.before(Step.DUCKDB_LOAD)
                loaded = self._load(session, work, report)
                faults.after(Step.DUCKDB_LOAD)
                return loaded
        finally:
            with contextlib.suppress(TransientError):  # the rest is removed with the run
                work.remove(folder)

    def close(self) -> None:
        """Removes its own work place, if it has one."""
        if self.own_work is not None:
            self.own_work.close()

    def _load(self, session: Session, work: WorkPlace, report: WriteReport) -> WriteReport:
        stopped = set(report.problems())
        tables: dict[tuple[TableId, TableId], list[WriteOutcome]] = defaultdict(list)
        for outcome in report.outcomes:
            if outcome.table_id not in stopped:
                tables[outcome.table_id, outcome.written_to].append(outcome)
        problems: dict[TableId, Problem] = {}
        targets = find_tables(session, {target for _, target in tables})
        for (table_id, target), outcomes in tables.items():
            files = [SpooledFile.parse(key) for outcome in outcomes for key in outcome.spooled]
            try:
                problem = load_table(session, work, target, targets.get(target), files)
            except RowsRefused as refused:
                raise RowsRefused(of_source(refused.problem, table_id)) from refused
            except Exception as error:
                if not _is_of_table(error):
                    raise
                # Some of the table's rows may already be in the transaction.
                raise RowsRefused(unforeseen(error, table_id)) from error
            if problem is not None:
                problems.setdefault(table_id, of_source(problem, table_id))
        settled = (
            WriteOutcome(o.table_id, problem=problems[o.table_id]) if o.table_id in problems else replace(o, spooled=())
            for o in report.outcomes
        )
        return replace(report, outcomes=tuple(settled))


def _is_of_table(error: Exception) -> bool:
    """Whether an error while a table was loaded is about that table, and not about the file, the disk or the run."""
    if isinstance(error, duckdb.Error):
        return isinstance(error, REFUSALS)
    return not isinstance(error, (HeadraceError, OSError))


def load_table(
    session: Session, work: WorkPlace, table_id: TableId, target: TargetTable | None, files: list[SpooledFile]
) -> Problem | None:
    """Loads files into a table of the target, in the order of versions.

    Returns the problem if that is impossible, before any write. Raises RowsRefused if DuckDB finds a problem while it writes.
    """
    if not files:
        return None
    if target is None:
        return Problem(
            table_id,
            "the table is not in the DuckDB file.",
            hint="Was it dropped by hand? Create it again with the rows it had when it stopped.",
        )
    steps = []
    for version in sorted({file.version for file in files}):
        rows = {kind: _read(work, [f for f in files if f.version == version and f.kind == kind]) for kind in (DELETES, UPSERTS)}
        steps.append(rows)
        for part in rows.values():
            problem = _mismatch(session, target, part) if part is not None else None
            if problem is not None:
                return problem
    try:
        for rows in steps:
            _apply(session, target, rows[DELETES], rows[UPSERTS])
    except REFUSALS as error:
        message = f"DuckDB refused the rows: {str(error).strip().splitlines()[0].rstrip('.')}."
        raise RowsRefused(Problem(table_id, message, hint=_WAY_OUT[isinstance(error, duckdb.ConstraintException)])) from error
    return None


def _read(work: WorkPlace, files: list[SpooledFile]) -> pa.Table | None:
    """The files as one table. In a local work place, it is in mapped files, not in memory.

    Raises TransientError, also for a file that is not whole. Its end shows that, and the cut is then written again.
    """
    if not files:
        return None
    try:
        return pa.concat_tables([pa.ipc.open_file(work.open(file.key)).read_all() for file in files])
    except (pa.ArrowException, OSError) as error:
        raise TransientError(
            f"A file of rows in the work place is not whole ({str(error).strip().rstrip('.')}), so they are written again.",
            "If this happens again, check the disk or the store of the work place (--work).",
        ) from error


def _mismatch(session: Session, target: TargetTable, rows: pa.Table) -> Problem | None:
    """The problem if these rows cannot go into the table: a column is missing, or its type cannot hold some values unchanged."""
    unlike: list[tuple[str, str, str]] = []
    for name, given in zip(rows.column_names, _types(session, rows), strict=True):
        found = target.find(name)
        if found is None:
            return Problem(target.table_id, "the table in the DuckDB file has no such column.", column=name, hint=_ADD_COLUMN)
        if found[1] not in (given, "JSON"):
            unlike.append((name, given, found[1]))
    if not unlike:
        return None
    with session.arrow(_SPOOLED, rows):
        for name, given, wanted in unlike:
            column = quoted(name)
            back = f"TRY_CAST(TRY_CAST({column} AS {wanted}) AS {given})"
            if (given, wanted) == ("BLOB", "VARCHAR"):  # the cast would write escape sequences for bytes
                back = f"encode({column}::VARCHAR)"
            unfit = session.execute(
                f"SELECT {column}::VARCHAR FROM {quoted(_SPOOLED)} WHERE {back} IS DISTINCT FROM {column} LIMIT 1"
            )
            if unfit:
                message = f"the column in the DuckDB file is {wanted}, which cannot hold this value of type {given} unchanged."
                named = f"{quoted(target.table_id.database)}.{quoted(target.table_id.table)}"
                hint = f"Give the column that type: ALTER TABLE {named} ALTER {column} TYPE {given};"
                return Problem(target.table_id, message, column=name, value=str(unfit[0][0]), hint=hint)
    return None


_TYPES: dict[object, str] = {}
"""A cache of DuckDB's names for the types of Arrow fields, by type and metadata, which has extension types."""


def _types(session: Session, rows: pa.Table) -> list[str]:
    """DuckDB's names for the types of the columns. Each type is looked up once, not for each of thousands of tables."""
    kinds = [(field.type, tuple((field.metadata or {}).items())) for field in rows.schema]
    if not _TYPES.keys() >= set(kinds):
        with session.arrow(_SPOOLED, rows):
            described = session.execute(f"DESCRIBE SELECT * FROM {quoted(_SPOOLED)}")
        _TYPES.update(zip(kinds, (str(row[1]) for row in described), strict=True))
    return [_TYPES[kind] for kind in kinds]


def _apply(session: Session, target: TargetTable, deletes: pa.Table | None, upserts: pa.Table | None) -> None:
    parts = [part for part in (deletes, upserts) if part is not None]
    key = spooled_key(parts[0])
    replaces = bool(key) and has_rows(session, target.table_id)
    for part in parts:
        with session.arrow(_SPOOLED, part):
            if replaces:
                session.execute(
                    f"DELETE FROM {place(target.table_id)} AS kept USING {quoted(_SPOOLED)} AS gone"
                    f" WHERE {_equal(target, key, 'kept', 'gone', '=')}"
                )
            if part is upserts:
                columns = ", ".join(_cast(target, name) for name in upserts.column_names)
                session.execute(f"INSERT INTO {place(target.table_id)} BY NAME SELECT {columns} FROM {quoted(_SPOOLED)}")
    if deletes is not None and not key:
        _take_away(session, target, deletes)


def _take_away(session: Session, target: TargetTable, rows: pa.Table) -> None:
    """Removes from a bag as many rows as given, of those that equal them. Raises RowsRefused if it has fewer.

    All equal rows are deleted, and those that are too many are put back: DuckDB's ``rowid``, which would distinguish them, cannot
    be used in a table with a column of that name.
    """
    own = [target.spelling(name) for name in rows.column_names]
    values = ", ".join(_cast(target, name) for name in rows.column_names)
    equal = " AND ".join(f"kept.{quoted(name)} IS NOT DISTINCT FROM gone.{quoted(name)}" for name in own)
    there, many, number = place(target.table_id), own_name("many"), own_name("number")
    try:
        with session.arrow(_SPOOLED, rows):
            session.execute(
                f"CREATE TEMP TABLE {_GONE} AS SELECT *, count(*) AS {many}, row_number() OVER () AS {number}"
                f" FROM (SELECT {values} FROM {quoted(_SPOOLED)}) GROUP BY ALL"
            )
        _refuse_missing(session, target, own, f"gone.{many} - (SELECT count(*) FROM {there} AS kept WHERE {equal})")
        stored = ", ".join(f"kept.{quoted(name)}" for name in target.columns if name not in target.generated)
        session.execute(
            f"CREATE TEMP TABLE {_STAYING} AS SELECT {stored} FROM {there} AS kept JOIN {_GONE} AS gone ON {equal}"
            f" QUALIFY row_number() OVER (PARTITION BY gone.{number}) > gone.{many}"
        )
        session.execute(f"DELETE FROM {there} AS kept USING {_GONE} AS gone WHERE {equal}")
        session.execute(f"INSERT INTO {there} BY NAME FROM {_STAYING}")
    finally:
        # If the transaction was aborted, these tables are gone with it.
        with contextlib.suppress(duckdb.Error):
            session.execute(f"DROP TABLE IF EXISTS {_GONE}")
            session.execute(f"DROP TABLE IF EXISTS {_STAYING}")


def _refuse_missing(session: Session, target: TargetTable, columns: list[str], lacking: str) -> None:
    """Raises RowsRefused if the bag has fewer rows than must be removed; ``lacking`` gives the number for each."""
    lacks = own_name("lacks")
    example = ", ".join(f"{quoted(name)}::VARCHAR" for name in columns)
    judged = f"(SELECT *, {lacking} AS {lacks} FROM {_GONE} AS gone)"
    found = session.execute(f"SELECT sum({lacks}) OVER (), {example} FROM {judged} WHERE {lacks} > 0 LIMIT 1")
    for missing, *row in found:
        raise RowsRefused(missing_rows(target.table_id, dict(zip(columns, row, strict=True)), int(str(missing))))


def _equal(target: TargetTable, names: list[str], left: str, right: str, operator: str) -> str:
    return " AND ".join(
        f"{left}.{quoted(target.spelling(name))} {operator} CAST({right}.{quoted(name)} AS {target.columns[target.spelling(name)]})"
        for name in names
    )


def _cast(target: TargetTable, name: str) -> str:
    own = target.spelling(name)
    return f"CAST({quoted(name)} AS {target.columns[own]}) AS {quoted(own)}"
