"""Checks whether the target's tables meet the conditions under which the order of writes does not matter (docs/guarantees.md).

All data come from ``information_schema``, whose names are compared without case, like TiDB's.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import pymysql

from headrace.errors import HeadraceError
from headrace.model.table import SourceTable, TableId, folded_name
from headrace.sinks.base import Check, CheckState
from headrace.sinks.missing_tables import missing_tables
from headrace.sinks.mysql import catalogue
from headrace.sinks.mysql.adaptation.collations import COARSER, EQUAL
from headrace.sinks.mysql.applying import Apply
from headrace.sinks.mysql.checks import check_databases
from headrace.sinks.mysql.collation import to_modify
from headrace.sinks.mysql.column_fit import HELD, HeldType, misfit
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.grants import active_grants
from headrace.sinks.mysql.handle import by_bytes
from headrace.sinks.mysql.server_errors import error_text
from headrace.sinks.mysql.settings import MySqlSettings
from headrace.sinks.mysql.text import quote_name
from headrace.sinks.mysql.types import qualified, type_text
from headrace.sinks.sql_dialect import MYSQL
from headrace.sinks.sql_ledger import SqlLedger

_CHANGING = frozenset({"CASCADE", "SET NULL", "SET DEFAULT"})
_UNKNOWN_COLLATION = "utf8mb4_bin"


@dataclass(frozen=True)
class _TargetColumn:
    """A column of the target's table."""

    name: str
    collation: str
    has_default: bool
    generated: bool
    held: HeldType


@dataclass(frozen=True)
class _Target:
    """A table of the target with the source's table.

    ``unique`` maps each unique index to its parts, ``None`` for a part that is not a whole column.
    """

    table_id: TableId
    source: SourceTable
    columns: dict[str, _TargetColumn]
    unique: dict[str, list[str | None]] = field(default_factory=dict)


def check_tables(settings: MySqlSettings, pipeline: str, tables: Sequence[SourceTable]) -> list[Check]:
    """See ``DataSink.check_tables``."""
    try:
        with MySqlSession(settings, ddl=True) as session:
            ledger = SqlLedger(MYSQL, settings.ledger_database)
            state = ledger.load(session, pipeline)
            found = _targets(session, {_folded(table.schema.table_id): table for table in tables})
            return [
                *check_databases(session, settings, {table.schema.table_id.database for table in tables}),
                *missing_tables(state, tables, [target.table_id for target in found.values()]),
                *_or_ok("unique keys", _unique_keys(found), "the target has none that the source lacks"),
                *_or_ok(
                    "collations",
                    _collations(session, found),
                    "unique keys compare as in the source, as far as its collations are known",
                ),
                *_or_ok("types", _misfits(found), "columns hold the source's values as they are"),
                *_or_ok("whole rows", _partial_rows(found), "rows contain every column of the target"),
                *_or_ok("engines", _engines(session, settings, found), "all of the tables have transactions"),
                *_triggers(session, settings, found),
                *_or_ok("foreign keys", _foreign_keys(session, found), "none changes rows by itself"),
                *_other_writers(session, settings, pipeline, found),
            ]
    except HeadraceError:
        return []  # already reported
    except (pymysql.err.MySQLError, OSError) as error:
        return [Check("tables", CheckState.FAILED, f"the target's catalogue cannot be read: {error_text(error)}.")]


def _or_ok(name: str, found: Iterator[Check], detail: str) -> list[Check]:
    return list(found) or [Check(name, CheckState.OK, detail)]


def _folded(table_id: TableId) -> tuple[str, str]:
    return folded_name(table_id.database), folded_name(table_id.table)


def _targets(session: MySqlSession, tables: dict[tuple[str, str], SourceTable]) -> dict[tuple[str, str], _Target]:
    """The tables that the target has, by their folded names."""
    found: dict[tuple[str, str], _Target] = {}
    for database, table, name, nullable, collation, default, extra, *held in _of_databases(
        session,
        tables,
        "SELECT table_schema, table_name, column_name, is_nullable, collation_name, column_default, extra,"
        f" {HELD} FROM information_schema.columns WHERE table_schema",
    ):
        table_id = TableId(str(database), str(table))
        source = tables.get(_folded(table_id))
        if source is None:
            continue
        target = found.setdefault(_folded(table_id), _Target(table_id, source, {}))
        free = nullable == "YES"
        target.columns[folded_name(str(name))] = _TargetColumn(
            str(name),
            str(collation or ""),
            free or default is not None or "auto_increment" in str(extra).lower(),
            "GENERATED" in str(extra).upper() and "DEFAULT_GENERATED" not in str(extra).upper(),
            HeldType.of(*held),
        )
    for database, table, index, column, prefix in _of_databases(
        session,
        tables,
        "SELECT table_schema, table_name, index_name, column_name, sub_part FROM information_schema.statistics"
        " WHERE non_unique = 0 AND table_schema",
    ):
        indexed = found.get(_folded(TableId(str(database), str(table))))
        if indexed is not None:
            whole = column is not None and prefix is None
            indexed.unique.setdefault(str(index), []).append(folded_name(str(column)) if whole else None)
    return found


def _of_databases(session: MySqlSession, tables: dict[tuple[str, str], SourceTable], statement: str) -> list[tuple[object, ...]]:
    """The rows that a statement finds in the tables' databases. The statement ends where the database names belong."""
    databases = sorted({table.schema.table_id.database for table in tables.values()})
    return session.execute(f"{statement} IN ({', '.join('?' * len(databases))})", databases) if databases else []


def _unique_keys(found: dict[tuple[str, str], _Target]) -> Iterator[Check]:
    for target in found.values():
        for index, parts in target.unique.items():
            whole = frozenset(part for part in parts if part is not None)
            if target.source.is_unique(whole):
                continue
            dropped = "DROP PRIMARY KEY" if index == "PRIMARY" else f"DROP INDEX {quote_name(index)}"
            drop = f"ALTER TABLE {qualified(target.table_id)} {dropped}"
            if target.source.keys_told and None not in parts:
                detail = f"{target.table_id} has the unique key {index}, which the source lacks: rows would replace each other."
                yield Check("unique keys", CheckState.FAILED, detail, f"Run {drop}; in the target, or add the key in the source.")
            else:
                detail = f"{target.table_id} has the unique key {index}; the files do not tell whether the source's table has it."
                yield Check("unique keys", CheckState.WARNING, detail, f"Unless it does, run {drop}; in the target.")


def _collations(session: MySqlSession, found: dict[tuple[str, str], _Target]) -> Iterator[Check]:
    for target in found.values():
        for name in sorted({part for parts in target.unique.values() for part in parts if part is not None}):
            column = target.columns[name]
            told = target.source.collations.get(name)
            wanted = told or _UNKNOWN_COLLATION
            if wanted in COARSER and not session.is_tidb:
                wanted = by_bytes(session)
            if not column.collation or _family(column.collation) == _family(wanted):
                continue
            wanted = EQUAL.get(wanted, wanted)
            modify = to_modify(catalogue.created_by(session, target.table_id), target.table_id, column.name, wanted)
            place = f"{target.table_id}, column {column.name} of a unique key: it compares by {column.collation}"
            if told:
                detail = f"{place}, in the source by {told}: keys that differ there may be equal here, or the other way round."
                yield Check("collations", CheckState.FAILED, detail, f"{modify[0].upper()}{modify[1:]}.")
            else:
                detail = f"{place}; the files do not tell the source's collation, which by TiDB's default is {_UNKNOWN_COLLATION}."
                yield Check("collations", CheckState.WARNING, detail, f"If it is that, {modify}.")


def _family(collation: str) -> str:
    """The common part of collations that treat the same texts as equal in different character sets: ``general_ci``."""
    return EQUAL.get(collation, collation).partition("_")[2] or collation


def _misfits(found: dict[tuple[str, str], _Target]) -> Iterator[Check]:
    for target in found.values():
        for column in target.source.carried:
            held = target.columns.get(folded_name(column.name))
            if held is None:
                continue
            if held.held.changes(column):
                problem = misfit(target.table_id, column, held.held)
                detail = f"{target.table_id}, column {column.name}: {problem.message}"
                yield Check("types", CheckState.FAILED, detail, problem.hint)
            elif held.held.refuses(column):
                null = " NOT NULL" if not held.held.takes_null and column.nullable else ""
                place = f"{target.table_id}, column {column.name}: the target's column is {held.held.declared.upper()}{null}"
                source = f"the source's {type_text(column.type)}"
                detail = f"{place}, {source}: the table will stop at the first value that does not fit."
                yield Check("types", CheckState.WARNING, detail, "Give it the source's type in the target.")


def _partial_rows(found: dict[tuple[str, str], _Target]) -> Iterator[Check]:
    for target in found.values():
        carried = {folded_name(column.name) for column in target.source.carried}
        for name, column in target.columns.items():
            if name in carried or column.generated:
                continue
            drop = f"ALTER TABLE {qualified(target.table_id)} DROP COLUMN {quote_name(column.name)}"
            place = f"{target.table_id}, column {column.name}: the source's rows do not contain it, so each change "
            advice = f"Include it in the changefeed's column selectors, or run {drop}; in the target."
            if any(name in parts for parts in target.unique.values()):
                yield Check("whole rows", CheckState.FAILED, f"{place}leaves a part of a unique key unset.", advice)
            elif not column.has_default:
                yield Check("whole rows", CheckState.FAILED, f"{place}is refused, since it has no default.", advice)
            else:
                yield Check("whole rows", CheckState.WARNING, f"{place}sets it to its default.", advice)


def _engines(session: MySqlSession, settings: MySqlSettings, found: dict[tuple[str, str], _Target]) -> Iterator[Check]:
    databases = {target.table_id.database for target in found.values()}
    for table_id, engine in sorted(catalogue.without_transactions(session, databases).items()):
        target = found.get(_folded(table_id))
        if target is None:
            continue
        allowed = settings.allow_non_transactional and bool(target.source.schema.handle_key)
        detail = (
            f"{table_id} has the engine {engine}, which has no transactions: the rows of a cut that fails cannot be rolled back."
        )
        state = CheckState.WARNING if allowed else CheckState.FAILED
        yield Check("engines", state, detail, f"Run ALTER TABLE {qualified(table_id)} ENGINE=InnoDB; in the target.")


_UNSEEN_TRIGGERS = {
    Apply.AUTO: "Grant it: with apply=auto, tables whose triggers are not seen converge.",
    Apply.REPLAY: "Make sure that none is BEFORE INSERT or BEFORE UPDATE.",
    Apply.CONVERGE: "Make sure that there are none.",
}


def _triggers(session: MySqlSession, settings: MySqlSettings, found: dict[tuple[str, str], _Target]) -> Iterator[Check]:
    """With replay, a trigger fires once for each change of the source, so it only must not change the rows themselves."""
    told, modes = "none", settings.apply.modes
    failed: list[Check] = []
    for schema, name, database, table, timing, event in _of_databases(
        session,
        {names: target.source for names, target in found.items()},
        "SELECT trigger_schema, trigger_name, event_object_schema, event_object_table, action_timing, event_manipulation"
        " FROM information_schema.triggers WHERE event_object_schema",
    ):
        table_id = TableId(str(database), str(table))
        if _folded(table_id) not in found:
            continue
        replays = settings.apply.of(found[_folded(table_id)].source.schema.table_id) is not Apply.CONVERGE
        if replays and (str(timing).upper() == "AFTER" or str(event).upper() == "DELETE"):
            told = "none changes rows before they are written, and each change fires them once"
            continue
        why = "may change rows before they are written" if replays else "fires at each change, also at one that is repeated"
        drop = f"DROP TRIGGER {qualified(TableId(str(schema), str(name)))}"
        detail = f"{table_id} has the trigger {name}, which {why}."
        failed.append(Check("triggers", CheckState.FAILED, detail, f"Run {drop}; in the target."))
    if failed:
        yield from failed
    elif not _sees_triggers(session, {target.table_id.database for target in found.values()}):
        detail = "this user lacks the privilege TRIGGER, without which triggers of the target's tables are not shown."
        advice = _UNSEEN_TRIGGERS[next((mode for mode in (Apply.AUTO, Apply.CONVERGE) if mode in modes), Apply.REPLAY)]
        yield Check("triggers", CheckState.WARNING, detail, advice)
    else:
        yield Check("triggers", CheckState.OK, told)


def _sees_triggers(session: MySqlSession, databases: Collection[str]) -> bool:
    grants = active_grants(session)
    return all("TRIGGER" in grants.on(database, ["TRIGGER"]) for database in databases)


def _foreign_keys(session: MySqlSession, found: dict[tuple[str, str], _Target]) -> Iterator[Check]:
    """Headrace's sessions do not check foreign keys, so that they do not cascade. Other sessions do."""
    rules = session.execute(
        "SELECT constraint_schema, table_name, constraint_name, UPPER(delete_rule), UPPER(update_rule)"
        " FROM information_schema.referential_constraints"
    )
    changing = {tuple(map(str, key)) for *key, on_delete, on_update in rules if {on_delete, on_update} & _CHANGING}
    for child, name, parent in catalogue.foreign_keys(session):
        if (child.database, child.table, name) not in changing:
            continue
        drop = f"ALTER TABLE {qualified(child)} DROP FOREIGN KEY {quote_name(name)}"
        if _folded(child) in found and _folded(parent) not in found:
            detail = f"{child} has the foreign key {name}: a change of {parent}, which is not replicated, changes its rows."
            yield Check("foreign keys", CheckState.FAILED, detail, f"Run {drop}; in the target, or replicate {parent} too.")
        elif _folded(parent) in found and _folded(child) not in found:
            detail = f"{child}, which is not replicated, has the foreign key {name} to {parent}: changes are not passed on to it."
            yield Check("foreign keys", CheckState.WARNING, detail, f"Run {drop}; in the target if you rely on that.")


def _other_writers(
    session: MySqlSession, settings: MySqlSettings, pipeline: str, found: dict[tuple[str, str], _Target]
) -> Iterator[Check]:
    ledger = SqlLedger(MYSQL, settings.ledger_database)
    writers: dict[str, list[TableId]] = defaultdict(list)
    for other, table_id in ledger.written_by_others(session, pipeline):
        if _folded(table_id) in found:
            writers[other].append(table_id)
    for other, shared in sorted(writers.items()):
        names = ", ".join(map(str, sorted(shared)))
        yield Check(
            "other writers",
            CheckState.FAILED,
            f"the pipeline {other!r} writes {names} too.",
            f"If you mean that pipeline, give --name {shlex.quote(other)}. If you mean another one, leave them out of one of"
            " the two with --tables; if that pipeline is no more, forget it: "
            f"headrace reset --name {shlex.quote(other)}.",
        )
    if not writers:
        yield Check("other writers", CheckState.OK, "no other pipeline of this ledger; other writers cannot be seen")
