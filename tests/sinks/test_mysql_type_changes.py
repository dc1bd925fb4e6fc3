"""What MariaDB's MODIFY COLUMN makes of values is what TiDB makes of them, but for the rows that are refused."""

from __future__ import annotations

import math

import pymysql
import pytest
from mysql_writing import Target, acquired, column, table

from ask_conversions import Asker
from conversions import Conversion, conversions
from headrace.model.events import AlterColumnTypeEvent, SchemaChange
from headrace.model.place import PlaceInFile
from headrace.model.table import TableId
from headrace.model.types import ColumnType, TypeKind
from headrace.sinks.metadata_applier import SchemaChangeRefused
from headrace.sinks.mysql.type_changes import converted_otherwise
from headrace.sinks.mysql.variables import SQL_MODE
from servers import MariaDb

pytestmark = pytest.mark.server

ASKED = (
    "BIT(8)",
    "BIT(64)",
    "YEAR",
    "FLOAT",
    "DOUBLE",
    "DECIMAL(10,2)",
    "TIME(3)",
    "TIME(6)",
    "DATETIME(3)",
    "TIMESTAMP(3)",
    "INT",
)
"""The old types of which any pair differs, and one of which none does; those of texts are told by their character sets."""
FLOATS = (TypeKind.FLOAT, TypeKind.DOUBLE)


class _Asker(Asker):
    """A session like those of the sink."""

    def __init__(self, connection: pymysql.connections.Connection) -> None:
        super().__init__(connection)
        self._strict = f"{SQL_MODE},TIME_ROUND_FRACTIONAL"

    def lasting(self, conversion: Conversion, condition: str | None) -> list[tuple[str | None, str | None]]:
        """TiDB's and the server's value of each row that TiDB's strict mode converts, and that the condition is not true of."""
        answers = [(value, a.text) for value, a in zip(conversion.old.values, conversion.answers, strict=True) if a.strict]
        self._run("SET sql_mode = '', time_zone = '+00:00'")
        name = self._table(conversion.old, [value for value, _ in answers])
        self._cursor.execute(f"SELECT id FROM {name} WHERE {condition or 'FALSE'}")
        refused = {number for (number,) in self._cursor.fetchall()}
        self._run(f"DELETE FROM {name} WHERE {condition or 'FALSE'}")
        kept = [text for number, (_, text) in enumerate(answers) if number not in refused]
        found = self._converted(name, conversion.new, self._strict)
        self._run(f"DROP TABLE {name}")
        if isinstance(found, pymysql.err.MySQLError):
            return []  # the server refuses it in words
        return list(zip(kept, found, strict=True))


def _equal(told: str | None, found: str | None, new: ColumnType) -> bool:
    if told is None or found is None or new.kind not in FLOATS:
        return told == found
    return math.isclose(float(told), float(found), rel_tol=1e-5)  # as text a FLOAT has six digits here


@pytest.mark.parametrize("definition", ASKED)
def test_what_the_server_converts_otherwise_is_refused(mariadb: MariaDb, definition: str) -> None:
    with mariadb.connect() as connection:
        asker = _Asker(connection)
        asked = [c for c in conversions() if c.old.definition == definition and any(a.strict for a in c.answers)]
        assert len(asked) > 10
        for conversion in asked:
            condition = converted_otherwise(conversion.old.type, conversion.new.type, "v")
            for told, found in asker.lasting(conversion, condition):
                assert _equal(told, found, conversion.new.type), (
                    f"to {conversion.new.definition}: {found!r}, where TiDB has {told!r}"
                )


@pytest.mark.parametrize(("value", "is_refused"), [("2024-06-05 09:30:23.5", True), ("2024-06-05 09:30:23", False)])
def test_only_rows_that_it_concerns_stop_the_change(mariadb: MariaDb, value: str, is_refused: bool) -> None:
    target = acquired(mariadb)
    target.execute(
        "CREATE TABLE shop.t (id INT PRIMARY KEY, c DATETIME(3))", f"INSERT INTO shop.t VALUES (1, '{value}'), (2, NULL)"
    )
    if not is_refused:
        _modify(target)
        assert target.execute("SELECT c FROM shop.t ORDER BY id") == [(20240605093023,), (None,)]
        return
    with pytest.raises(SchemaChangeRefused) as caught:
        _modify(target)
    assert "differently from TiDB" in caught.value.problem.message
    assert caught.value.problem.column == "c"


def _modify(target: Target) -> None:
    t, new = TableId("shop", "t"), column("c", "BIGINT")
    event = AlterColumnTypeEvent(t, new, column("c", "DATETIME", scale=3))
    shape = table("t", [column("id", "INT", nullable=False, primary_key=True), new])
    statement = "ALTER TABLE `t` MODIFY COLUMN `c` BIGINT"
    target.sink.metadata_applier.apply_schema_change(
        SchemaChange(100, t, (event,), statement, "shop", frozenset({t}), schema=shape, origin=PlaceInFile("f.json"))
    )
