"""Checks that the target keeps rows as written: distinguished by their handle key, unchanged by triggers, with all columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

import pymysql

from headrace.ddl.zones import zoned_columns
from headrace.model.outcome import Problem
from headrace.model.table import Column, Generated, TableId, TableSchema, folded_name
from headrace.sinks.mysql import catalogue, collation, refusal
from headrace.sinks.mysql.adaptation.collations import COARSER, EQUAL
from headrace.sinks.mysql.column_fit import HeldType
from headrace.sinks.mysql.computed_values import computed_otherwise
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.server_errors import ErrorClass, classify
from headrace.sinks.mysql.text import quote_name
from headrace.sinks.mysql.types import DECLARED_KEY, qualified, type_text


def require_index(session: MySqlSession, schema: TableSchema) -> None:
    """Raises refusal.Refused unless the target has a unique index that covers only columns of the handle key.

    Also refuses the index that the table got for a former declared key. A table without key passes.
    """
    if not schema.handle_key:
        return
    key = {folded_name(name) for name in schema.handle_key}
    try:
        indexes = _unique_indexes(session, schema.table_id)
    except pymysql.err.MySQLError as error:
        if classify(error) is ErrorClass.REFUSED:
            raise refusal.from_error(error, schema.table_id, session) from None
        raise
    former = indexes.get(DECLARED_KEY, key)
    if any(columns <= key for columns in indexes.values()) and former == key:
        return
    names = ", ".join(quote_name(name) for name in schema.handle_key)
    if former != key:
        has_key = any(columns <= key for name, columns in indexes.items() if name != DECLARED_KEY)
        adds = "" if has_key else f"ADD UNIQUE KEY ({names}), "
        raise refusal.Refused(
            Problem(
                schema.table_id,
                f"the target still has the unique index {DECLARED_KEY} of the key that was declared for it before "
                f"({', '.join(sorted(former))}). Its key is now ({', '.join(schema.handle_key)}): rows could replace each other.",
                hint=f"Run ALTER TABLE {qualified(schema.table_id)} {adds}DROP INDEX {DECLARED_KEY} in the target.",
            )
        )
    raise refusal.Refused(
        Problem(
            schema.table_id,
            f"the target has no unique index over its key ({', '.join(schema.handle_key)}), so every change would add a row.",
            hint=f"Run ALTER TABLE {qualified(schema.table_id)} ADD UNIQUE KEY ({names}) in the target.",
        )
    )


def refuse_coarse_keys(session: MySqlSession, table_id: TableId, columns: Iterable[HeldType]) -> None:
    """Raises refusal.Refused if a unique index has a column whose collation treats more texts as equal than TiDB's.

    ``columns`` are the table's (``column_fit.held_columns``).
    """
    coarser = [] if session.is_tidb else [column for column in columns if column.collation in COARSER]
    unique = set().union(*_unique_indexes(session, table_id).values()) if coarser else set()
    for name, coarse in ((column.name, column.collation) for column in coarser):
        if folded_name(name) in unique:
            change = collation.to_modify(catalogue.created_by(session, table_id), table_id, name, by_bytes(session))
            raise refusal.Refused(
                Problem(
                    table_id,
                    f"it is in a unique key, and the target's collation {coarse} treats texts as equal that TiDB distinguishes "
                    "('l·' and 'l', for example), so rows would replace each other.",
                    column=name,
                    hint=f"{change[0].upper()}{change[1:]}: that distinguishes all texts. Or change the collation in the source.",
                )
            )


def refuse_views(session: MySqlSession, table_id: TableId) -> None:
    """Raises refusal.Refused if the target is a view: through it, rows would reach a table that is perhaps not the pipeline's."""
    if catalogue.is_view(session, table_id):
        raise refusal.Refused(
            Problem(
                table_id,
                "the target has a view of this name, and rows are written only into tables.",
                hint=f"Leave it out with --tables, or run DROP VIEW {qualified(table_id)}; in the target if a table belongs there.",
            )
        )


def refuse_non_transactional(session: MySqlSession, schema: TableSchema, *, allowed: bool) -> None:
    """Raises refusal.Refused if the target's engine has no transactions. ``allowed``: accepted for a table with a key."""
    table_id = schema.table_id
    found = catalogue.without_transactions(session, [table_id.database], table_id.table)
    if not found or (allowed and schema.handle_key):
        return
    (engine,) = found.values()
    otherwise = ", or start with --allow-non-transactional (docs/connectors/mysql.md says what is lost)"
    raise refusal.Refused(
        Problem(
            table_id,
            f"the target's engine {engine} has no transactions, so the rows of a cut that fails cannot be rolled back."
            + ("" if schema.handle_key else " Rows of a table without key would be doubled."),
            hint=f"Run ALTER TABLE {qualified(table_id)} ENGINE=InnoDB; in the target{otherwise if schema.handle_key else ''}.",
        )
    )


def by_bytes(session: MySqlSession) -> str:
    """The server's collation that distinguishes all texts that differ in a byte."""
    return EQUAL[collation.BY_BYTES] if session.is_mariadb else collation.BY_BYTES


def refuse_changing_triggers(session: MySqlSession, table_id: TableId, *, updates: bool) -> None:
    """Raises refusal.Refused if a trigger of the target may change rows before they are written. Other triggers are accepted.

    ``updates``: rows are written by UPDATE, too.
    """
    found = session.execute(
        "SELECT trigger_schema, trigger_name FROM information_schema.triggers WHERE event_object_schema = ?"
        " AND event_object_table = ? AND action_timing = 'BEFORE' AND event_manipulation IN ('INSERT', ?)",
        (table_id.database, table_id.table, "UPDATE" if updates else "INSERT"),
    )
    if not found:
        return
    trigger = TableId(str(found[0][0]), str(found[0][1]))
    raise refusal.Refused(
        Problem(
            table_id,
            f"the target's trigger {trigger.table} may change rows before they are written, so they would not be the source's.",
            hint=f"Run DROP TRIGGER {qualified(trigger)} in the target.",
        )
    )


def refuse_zoned_columns(session: MySqlSession, schema: TableSchema) -> None:
    """Raises refusal.Refused if the target computes and stores a generated column that depends on the writer's time zone.

    Statements that define one are refused (see ``zones``), but the table may have existed before. A virtual column is stored only
    in an index, which matters if that is unique.
    """
    zoned = zoned_columns(schema)
    if not zoned:
        return
    cause = "the target computes this generated column in UTC, the source in the time zone of each session that writes."
    _refuse_computed(session, schema, [(found.column, cause) for found in zoned])


def with_plain_columns(session: MySqlSession, schema: TableSchema) -> TableSchema:
    """The schema, with stored generated columns as plain ones if the target has them so: rows carry their values.

    A person may have left out an expression that the target would compute differently. Raises refusal.Refused.
    """
    if all(column.generated is not Generated.STORED for column in schema.columns):
        return schema
    try:
        is_computed = catalogue.computed_columns(session, schema.table_id)
    except pymysql.err.MySQLError as error:
        if classify(error) is ErrorClass.REFUSED:
            raise refusal.from_error(error, schema.table_id, session) from None
        raise
    columns = (
        replace(column, generated=None)
        if column.generated is Generated.STORED and is_computed.get(folded_name(column.name)) is False
        else column
        for column in schema.columns
    )
    return replace(schema, columns=tuple(columns))


def _unique_indexes(session: MySqlSession, table_id: TableId) -> dict[str, set[str]]:
    """The folded column names of each unique index, by index name. An index on an expression has a part without name."""
    indexes: dict[str, set[str]] = defaultdict(set)
    for row in session.execute(f"SHOW INDEX FROM {qualified(table_id)}"):
        _, non_unique, name, _, column = row[:5]
        if int(str(non_unique)) == 0:
            indexes[str(name)].add("" if column is None else folded_name(str(column)))
    return indexes


def refuse_columns_computed_otherwise(session: MySqlSession, schema: TableSchema) -> None:
    """Raises refusal.Refused if the target computes and stores a generated column with other conversions than TiDB's.

    Statements that define one are refused (see ``computed_values``), but the table may have existed before.
    """
    found = [] if session.is_tidb else computed_otherwise(schema)
    message = "the target computes other values than the source for this generated column"
    if found:
        _refuse_computed(session, schema, [(other.column, f"{message}: {other.cause}.") for other in found])


def _refuse_computed(session: MySqlSession, schema: TableSchema, columns: Iterable[tuple[Column, str]]) -> None:
    """Raises refusal.Refused for the first of these generated columns that the target computes and stores, with its message."""
    computed = catalogue.computed_columns(session, schema.table_id)
    unique = set().union(*_unique_indexes(session, schema.table_id).values())
    for column, message in columns:
        name = folded_name(column.name)
        if not computed.get(name) or (column.generated is Generated.VIRTUAL and name not in unique):
            continue
        plain = f"MODIFY {quote_name(column.name)} {type_text(column.type)} NULL"
        action = plain if column.generated is Generated.STORED else f"DROP COLUMN {quote_name(column.name)}"
        hint = f"Run ALTER TABLE {qualified(schema.table_id)} {action}; in the target, and load the table anew if it has rows."
        raise refusal.Refused(Problem(schema.table_id, message, column=column.name, hint=hint))
