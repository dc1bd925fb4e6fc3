"""Statements whose values in rows that are there would not be the source's, on a real MariaDB."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fills import FILLS, SPELLED
from mysql_writing import Target, acquired, column, table

from headrace.ddl.columns import annotate
from headrace.ddl.shape_after import shape_after
from headrace.ddl.statement import read_statement
from headrace.model.events import AddColumnEvent, AlterColumnTypeEvent, CreateTableEvent, SchemaChange
from headrace.model.outcome import Notice, Remedy
from headrace.model.place import PlaceInFile
from headrace.model.table import Column, TableId
from headrace.model.tso import tso_from_ms
from headrace.model.types import BINARY_KINDS, TypeKind
from headrace.sinks.metadata_applier import SchemaChangeRefused

pytestmark = pytest.mark.server

T = TableId("shop", "t")
V = tso_from_ms(1717579823694)  # 2024-06-05 09:30:23.694 UTC
ID = column("id", "INT", nullable=False, primary_key=True)
LITERAL = "TIMESTAMP NULL DEFAULT '2024-01-01 08:00:00'"
IN_UTC = column("c", "TIMESTAMP", default="2024-01-01 00:00:00")


def apply(target: Target, statement: str, event: object, new: Column) -> tuple[Notice, ...]:
    shape = table("t", [ID, new])
    change = SchemaChange(V, T, (event,), statement, T.database, frozenset({T}), schema=shape, origin=PlaceInFile("f.json"))
    return target.sink.metadata_applier.apply_schema_change(change)


def filled(target: Target, definition: str = "") -> None:
    target.execute(f"CREATE TABLE shop.t (id INT PRIMARY KEY{definition})", "INSERT INTO shop.t (id) VALUES (1)")


@pytest.mark.parametrize("kind", ["CREATE", "ADD", "MODIFY"])
def test_a_default_of_another_time_zone_stops_the_table_until_time_zone_names_it(mariadb, kind: str) -> None:
    def run(**options: str) -> None:
        target = acquired(mariadb, **options)
        if kind == "CREATE":
            event = CreateTableEvent(T, table("t", [ID, IN_UTC]))
            apply(target, f"CREATE TABLE `t` (`id` INT PRIMARY KEY,`c` {LITERAL})", event, IN_UTC)
        elif kind == "ADD":
            filled(target)
            apply(target, f"ALTER TABLE `t` ADD COLUMN `c` {LITERAL}", AddColumnEvent(T, IN_UTC), IN_UTC)
        else:
            filled(target, ", c TIMESTAMP NULL")
            event = AlterColumnTypeEvent(T, IN_UTC, column("c", "TIMESTAMP"))
            apply(target, f"ALTER TABLE `t` MODIFY COLUMN `c` {LITERAL}", event, IN_UTC)

    with pytest.raises(SchemaChangeRefused) as caught:
        run()
    assert caught.value.problem.column == "c"
    assert "Set time-zone" in caught.value.problem.hint
    mariadb.fresh()
    run(time_zone="+08:00")


def test_a_timestamp_changes_to_a_date_only_in_a_time_zone_that_was_named(mariadb) -> None:
    new, old = column("c", "DATETIME"), column("c", "TIMESTAMP")
    statement = "ALTER TABLE `t` MODIFY COLUMN `c` DATETIME"
    for zone, expected in (("", None), ("+08:00", "2024-06-05 17:30:23"), ("+00:00", "2024-06-05 09:30:23")):
        mariadb.fresh()
        target = acquired(mariadb, **({"time_zone": zone} if zone else {}))
        filled(target, ", c TIMESTAMP NULL")
        target.execute("SET time_zone = '+00:00'", "UPDATE shop.t SET c = '2024-06-05 09:30:23'")
        if expected is None:
            with pytest.raises(SchemaChangeRefused) as caught:
                apply(target, statement, AlterColumnTypeEvent(T, new, old), new)
            assert "Set time-zone" in caught.value.problem.hint
        else:
            apply(target, statement, AlterColumnTypeEvent(T, new, old), new)
            assert str(target.execute("SELECT c FROM shop.t")[0][0]) == expected


def test_what_no_event_tells_needs_a_resync(mariadb) -> None:
    """TiDB puts its own time where NULL was, and shows other bytes of a binary default than the statement says."""
    target = acquired(mariadb, time_zone="+00:00")
    filled(target, ", c INT")
    stamped, number = column("c", "TIMESTAMP", nullable=False), column("c", "INT")
    vector = column("e", "VECTOR", nullable=False)
    mangled = column("d", "VARBINARY", length=4, default="\ufffd\ufffd")
    changes = [
        ("ALTER TABLE `t` MODIFY COLUMN `c` TIMESTAMP NOT NULL", AlterColumnTypeEvent(T, stamped, number), stamped),
        ("ALTER TABLE `t` ADD COLUMN `d` VARBINARY(4) DEFAULT x'81FF'", AddColumnEvent(T, mangled), mangled),
        ("ALTER TABLE `t` ADD COLUMN `e` VECTOR(3) NOT NULL", AddColumnEvent(T, vector), vector),
    ]
    for statement, event, new in changes:
        with pytest.raises(SchemaChangeRefused) as caught:
            apply(target, statement, event, new)
        assert caught.value.problem.remedy is Remedy.RESYNC


def shown(kind: TypeKind, name: str) -> str:
    """The value as FILLS has it."""
    if kind in (TypeKind.BIT, TypeKind.YEAR):
        return f"CAST({name} + 0 AS CHAR)"
    if kind in BINARY_KINDS:
        return f"REPLACE(CONVERT({name} USING latin1), CHAR(0), '\\\\x00')"
    if kind is TypeKind.TIMESTAMP:
        return f"CONCAT({name}, '+00')"
    return f"REPLACE(REPLACE({name}, '.000', ''), '1e20', '1e+20')"


@pytest.mark.parametrize("together", [True, False])
def test_rows_that_were_there_get_what_tidb_put_there(mariadb, together: bool) -> None:
    target = acquired(mariadb, time_zone="+08:00")
    filled(target)
    added = [(f"x{number}", definition, replace(new, name=f"x{number}")) for number, (definition, new, _) in enumerate(FILLS)]
    for columns in [added] if together else [[one] for one in added]:
        definitions = ", ".join(f"`{name}` {definition}" for name, definition, _ in columns)
        statement = (
            f"ALTER TABLE `t` ADD COLUMN ({definitions})" if together else f"ALTER TABLE `t` ADD {definitions} COMMENT 'a' FIRST"
        )
        events = tuple(AddColumnEvent(T, new) for _, _, new in columns)
        shape = table("t", [ID, *(new for _, _, new in columns)])
        change = SchemaChange(V, T, events, statement, T.database, frozenset({T}), schema=shape, origin=PlaceInFile("f.json"))
        target.sink.metadata_applier.apply_schema_change(change)
    (held,) = target.execute(f"SELECT {', '.join(shown(new.type.kind, name) for name, _, new in added)} FROM shop.t")
    told = dict(zip([definition for definition, _, _ in FILLS], held, strict=True))
    assert told == {definition: expected for definition, _, expected in FILLS}


def test_rows_that_were_there_get_the_default_of_a_statement_as_tidb_reads_it(mariadb) -> None:
    target = acquired(mariadb)
    filled(target)
    held = {}
    for number, (definition, _) in enumerate(SPELLED):
        statement = f"ALTER TABLE `t` ADD COLUMN `x{number}` {definition}"
        before = table("t", [ID])
        after = shape_after(read_statement(statement, T.database), T, before, None)
        assert after is not None
        new = annotate(statement, after, before).column(f"x{number}")
        apply(target, statement, AddColumnEvent(T, new), new)
        ((held[definition],),) = target.execute(f"SELECT {shown(new.type.kind, new.name)} FROM shop.t")
    assert held == dict(SPELLED)


def test_the_time_of_a_statement_is_near_the_source_and_that_is_told(mariadb) -> None:
    target = acquired(mariadb)
    filled(target)
    added = column("c", "DATETIME", default="CURRENT_TIMESTAMP")
    (notice,) = apply(target, "ALTER TABLE `t` ADD COLUMN `c` DATETIME DEFAULT CURRENT_TIMESTAMP", AddColumnEvent(T, added), added)
    assert notice.message.startswith("column c of the rows that existed holds the time of the schema change")
    assert str(target.execute("SELECT c FROM shop.t")[0][0]) == "2024-06-05 09:30:23"
