"""Generated columns that MySQL and MariaDB compute with other values than TiDB, on a real MariaDB."""

from __future__ import annotations

import pytest
from mysql_writing import Target, acquired, change, column, table

from headrace.model.events import AddColumnEvent, AlterColumnTypeEvent, CreateTableEvent, SchemaChange, SchemaChangeEvent
from headrace.model.outcome import Problem
from headrace.model.place import PlaceInFile
from headrace.model.table import Column, Generated, TableId, TableSchema
from headrace.sinks.metadata_applier import SchemaChangeRefused
from headrace.sinks.mysql.computed_values import computed_otherwise

pytestmark = pytest.mark.server

T = TableId("shop", "t")
ID = column("id", "INT", nullable=False, primary_key=True)
SOURCES = {
    "f": ("FLOAT", column("f", "FLOAT")),
    "d": ("DOUBLE", column("d", "DOUBLE")),
    "t": ("TIME(6)", column("t", "TIME", scale=6)),
    "dt": ("DATETIME(6)", column("dt", "DATETIME", scale=6)),
    "whole": ("DATETIME", column("whole", "DATETIME")),
    "b": ("BIT(8)", column("b", "BIT", length=8)),
    "n": ("INT", column("n", "INT")),
    "v": ("VARCHAR(64)", column("v", "VARCHAR", length=64)),
    "j": ("JSON", column("j", "JSON")),
}
TEXT, INT, BIG = ("VARCHAR(64)", {"length": 64}), ("INT", {}), ("BIGINT", {})
CENTS, EXACT = ("DECIMAL(30,2)", {"length": 30, "scale": 2}), ("DECIMAL(30,6)", {"length": 30, "scale": 6})
DAY, REAL, MOMENT = ("DATE", {}), ("DOUBLE", {}), ("DATETIME(3)", {"scale": 3})
Type = tuple[str, dict[str, int]]
DIFFERENT: list[tuple[str, Type]] = [
    ("`f`", TEXT),
    ("(`f`)", TEXT),
    ("CONCAT(`f`)", TEXT),
    ("concat('a', F)", TEXT),
    ("CAST(`f` AS CHAR)", TEXT),
    ("CONVERT(`f`, CHAR(9))", TEXT),
    ("CONVERT(`f` USING utf8mb4)", TEXT),
    ("`f` + 1", TEXT),
    ("IF(`n` > 1, `f`, 0)", TEXT),
    ("CASE WHEN `n` = 1 THEN `f` ELSE 0 END", TEXT),
    ("IFNULL(ROUND(`f`, 7), 0)", TEXT),
    ("LENGTH(`f`)", INT),
    ("`f` LIKE '1%'", INT),
    ("UPPER(CONCAT(`n`, ABS(`f`)))", TEXT),
    ("`d`", TEXT),
    ("CONCAT(`d` / 3)", TEXT),
    ("`t`", INT),
    ("`dt`", BIG),
    ("`dt`", CENTS),
    ("`t` + 0", INT),
    ("IFNULL(`t`, 0)", INT),
    ("CAST(`dt` AS SIGNED)", BIG),
    ("CAST(`dt` AS DECIMAL(30, 2))", EXACT),
    ("CONVERT(`dt`, UNSIGNED)", BIG),
    ("FLOOR(`t`)", INT),
    ("TIME_TO_SEC(`t`)", INT),
    ("CONCAT(CAST(`dt` AS SIGNED))", TEXT),
    ("`b`", TEXT),
]
EQUAL: list[tuple[str, Type]] = [
    ("`f`", REAL),
    ("`f` * 2", REAL),
    ("ROUND(`f`, 2)", REAL),
    ("`f` > 1", INT),
    ("IF(`f` > 1, 'a', 'b')", TEXT),
    ("CASE WHEN `f` IS NULL THEN 'none' ELSE 'some' END", TEXT),
    ("CONCAT(ISNULL(`f`))", TEXT),
    ("DATE(`dt`)", DAY),
    ("YEAR(`dt`)", INT),
    ("CONCAT(YEAR(`dt`), '-', MONTH(`dt`))", TEXT),
    ("DATE_FORMAT(`dt`, '%Y%m')", TEXT),
    ("CONCAT(`dt`)", TEXT),
    ("`dt`", TEXT),
    ("`dt`", EXACT),
    ("CAST(`dt` AS DECIMAL(30, 6))", EXACT),
    ("EXTRACT(HOUR FROM `t`)", INT),
    ("`t` > '10:00:00'", INT),
    ("`whole`", BIG),
    ("CAST(`whole` AS SIGNED)", BIG),
    ("`whole` + 0", BIG),
    ("UPPER(`v`)", TEXT),
    ("CONCAT(`v`, 'f')", TEXT),
    ("`n` * `n`", INT),
    ("CONCAT(`n`)", TEXT),
    ("JSON_UNQUOTE(JSON_EXTRACT(`j`, '$.f'))", TEXT),
]
REFUSED_BY_MARIADB = [("DATE_FORMAT(`dt`, '%Y%m')", TEXT)]
"""In a stored column: it depends on the session's language."""
WHOLE, CLOCK, MICROS = ("DATETIME", {}), ("TIME", {}), ("DATETIME(6)", {"scale": 6})
CUT: list[tuple[str, Type]] = [
    ("`dt`", MOMENT),
    ("`dt`", WHOLE),
    ("`dt`", CLOCK),
    ("`t`", CLOCK),
    ("(`t`)", ("TIME(3)", {"scale": 3})),
    ("IFNULL(`dt`, `whole`)", WHOLE),
    ("DATE_ADD(`dt`, INTERVAL 1 DAY)", WHOLE),
    ("CAST(`dt` AS DATETIME)", MICROS),
    ("CAST(`dt` AS DATETIME(3))", MICROS),
    ("CONVERT(`dt`, TIME)", CLOCK),
    ("CONCAT(CAST(`dt` AS DATETIME))", TEXT),
    ("TIME(`dt`)", CLOCK),
    ("TIMESTAMP(`dt`)", MICROS),
    ("TIMESTAMPADD(DAY, 1, `dt`)", WHOLE),
    ("CONVERT_TZ(`dt`, '+00:00', '+08:00')", WHOLE),
    ("`v`", WHOLE),
    ("CAST(`v` AS DATETIME)", MICROS),
    ("CAST(`v` AS DATETIME)", TEXT),
    ("STR_TO_DATE(`v`, '%Y-%m-%d %H:%i:%s.%f')", WHOLE),
    ("JSON_UNQUOTE(JSON_EXTRACT(`j`, '$.t'))", WHOLE),
    ("TIME(`v`)", CLOCK),
    ("CONCAT(`dt`)", WHOLE),
    ("CAST(CONCAT(`dt`, '') AS DATETIME)", WHOLE),
    ("DATE_ADD(`whole`, INTERVAL 999999 MICROSECOND)", WHOLE),
    ("`whole` + INTERVAL '0.9' SECOND_MICROSECOND", WHOLE),
    ("ADDTIME(`whole`, '00:00:00.9')", WHOLE),
    ("DATE(CAST(`v` AS DATETIME))", DAY),
    ("HOUR(CAST(`v` AS TIME))", INT),
    ("CAST(`v` AS DATETIME)", BIG),
]
"""By a session of MariaDB with the default SQL mode."""
NOT_CUT: list[tuple[str, Type]] = [
    ("`dt`", MICROS),
    ("`dt`", TEXT),
    ("`dt`", DAY),
    ("`whole`", WHOLE),
    ("CAST(`dt` AS DATETIME(6))", MICROS),
    ("CONCAT(`dt`)", TEXT),
    ("DATE_ADD(`dt`, INTERVAL 1 DAY)", MICROS),
    ("`dt` > '2024-01-01'", INT),
    ("TIME(`whole`)", CLOCK),
    ("DATE_ADD(`whole`, INTERVAL `n` HOUR)", WHOLE),
    ("IF(`n` > 1, `whole`, NULL)", WHOLE),
    ("CASE WHEN `n` IN (1, 2) THEN `whole` ELSE DATE(`dt`) END", DAY),
    ("CAST(`whole` AS DATETIME)", TEXT),
    ("TIMESTAMPADD(MINUTE, `n`, `whole`)", MOMENT),
]


def shape(expression: str, wanted: Type, *, stored: bool = True) -> TableSchema:
    definition, more = wanted
    kind = Generated.STORED if stored else Generated.VIRTUAL
    last = column("g", definition.partition("(")[0], generated=kind, expression=expression, **more)
    return table("t", [ID, *(source for _, source in SOURCES.values()), last])


def created(expression: str, wanted: Type, kind: str = "STORED", name: str = "`t`") -> str:
    sources = ", ".join(f"`{source}` {definition}" for source, (definition, _) in SOURCES.items())
    return f"CREATE TABLE {name} (`id` INT PRIMARY KEY, {sources}, `g` {wanted[0]} AS ({expression}) {kind}, UNIQUE KEY `u` (`g`))"


def apply(target: Target, statement: str, schema: TableSchema, event: SchemaChangeEvent | None = None) -> None:
    events = (event or CreateTableEvent(T, schema),)
    changed = SchemaChange(5, T, events, statement, T.database, frozenset({T}), schema=schema, origin=PlaceInFile("f.json"))
    target.sink.metadata_applier.apply_schema_change(changed)


def refused(target: Target, statement: str, schema: TableSchema, event: SchemaChangeEvent | None = None) -> Problem:
    with pytest.raises(SchemaChangeRefused) as caught:
        apply(target, statement, schema, event)
    return caught.value.problem


def row(schema: TableSchema, number: int, **values: object) -> tuple[object, ...]:
    return tuple(number if c.name == "id" else values.get(c.name) for c in schema.row_columns)


@pytest.mark.parametrize(("expression", "wanted"), DIFFERENT)
def test_an_expression_that_converts_otherwise_is_known(expression: str, wanted: Type) -> None:
    (found,) = computed_otherwise(shape(expression, wanted))
    assert found.column.name == "g"
    assert found.cause


@pytest.mark.parametrize(("expression", "wanted"), EQUAL)
def test_an_expression_that_converts_nothing_otherwise_passes(expression: str, wanted: Type) -> None:
    assert computed_otherwise(shape(expression, wanted)) == []


@pytest.mark.parametrize(("expression", "wanted"), CUT)
def test_a_time_that_loses_digits_is_known_and_differs_by_session(mariadb, expression: str, wanted: Type) -> None:
    assert [found.column.name for found in computed_otherwise(shape(expression, wanted), cuts_digits=True)] == ["g"]
    assert read_in_two_ways(mariadb, expression, wanted) == 2


@pytest.mark.parametrize(("expression", "wanted"), NOT_CUT)
def test_a_time_that_keeps_its_digits_passes_and_is_the_same_in_each_session(mariadb, expression: str, wanted: Type) -> None:
    assert computed_otherwise(shape(expression, wanted), cuts_digits=True) == []
    assert read_in_two_ways(mariadb, expression, wanted) == 1


def read_in_two_ways(server, expression: str, wanted: Type) -> int:
    """How many values a virtual column has, for a session that rounds times and for one with the server's default."""
    target, found, moment = acquired(server), set(), "2024-01-01 23:59:59.999999"
    values = f"1, '10:00:00.999999', '{moment}', '2024-01-01 23:59:59', 2, '{moment}', JSON_OBJECT('t', '{moment}')"
    # A table of its own for each: the server may keep how it computes a column while the table is open.
    for name, mode in (("shop.t", "TIME_ROUND_FRACTIONAL"), ("shop.u", "STRICT_TRANS_TABLES")):
        target.execute(created(expression, wanted, "VIRTUAL", name).replace(", UNIQUE KEY `u` (`g`)", ""))
        target.execute(f"SET STATEMENT sql_mode = '{mode}' FOR INSERT INTO {name} (id, t, dt, whole, n, v, j) VALUES ({values})")
        found.add(str(target.execute(f"SET STATEMENT sql_mode = '{mode}' FOR SELECT g FROM {name}")))
    return len(found)


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize(
    ("expression", "wanted"), [("`f`", TEXT), ("CONCAT(`f`)", TEXT), ("`t`", INT), ("`dt`", BIG), ("`dt`", MOMENT)]
)
def test_a_statement_that_defines_such_a_column_is_refused(mariadb, expression: str, wanted: Type, stored: bool) -> None:
    target = acquired(mariadb)
    statement = created(expression, wanted, "STORED" if stored else "VIRTUAL")
    problem = refused(target, statement, shape(expression, wanted, stored=stored))
    assert problem.column == "g"
    assert "converts a value in another way than TiDB" in problem.message
    assert ("as a plain one" if stored else "without the column") in problem.hint
    assert target.execute("SHOW TABLES FROM shop") == []


@pytest.mark.parametrize(
    ("action", "event"),
    [
        ("ADD COLUMN `g` VARCHAR(64) AS (CONCAT(`f`)) STORED", AddColumnEvent),
        ("MODIFY COLUMN `f` FLOAT", lambda t, _: AlterColumnTypeEvent(t, SOURCES["f"][1], column("f", "INT"))),
    ],
)
def test_so_is_one_that_alters_it_or_what_it_reads(mariadb, action: str, event) -> None:
    target, schema = acquired(mariadb), shape("CONCAT(`f`)", TEXT)
    target.execute("CREATE TABLE shop.t (id INT PRIMARY KEY, f INT)")
    assert refused(target, f"ALTER TABLE `t` {action}", schema, event(T, schema.columns[-1])).column == "g"


def test_another_statement_on_the_table_passes(mariadb) -> None:
    target, schema = acquired(mariadb), shape("CONCAT(`f`)", TEXT)
    target.execute("CREATE TABLE shop.t (id INT PRIMARY KEY, f FLOAT, g VARCHAR(64))")
    added: Column = column("c", "INT")
    apply(target, "ALTER TABLE `t` ADD COLUMN `c` INT", table("t", [*schema.columns, added]), AddColumnEvent(T, added))


@pytest.mark.parametrize(("expression", "wanted"), [pair for pair in EQUAL if pair not in REFUSED_BY_MARIADB])
def test_a_column_without_such_a_conversion_is_created(mariadb, expression: str, wanted: Type) -> None:
    target = acquired(mariadb)
    apply(target, created(expression, wanted), shape(expression, wanted))
    assert len(target.execute("SHOW TABLES FROM shop")) == 1


@pytest.mark.parametrize(
    ("kind", "expression", "wanted", "values"),
    [
        ("STORED", "`t`", INT, [("00:00:01.600000", 2), ("00:00:01.400000", 1)]),
        ("VIRTUAL", "`t`", INT, [("00:00:01.600000", 2), ("00:00:01.400000", 1)]),
    ],
)
def test_no_row_is_written_to_a_table_that_computes_such_a_column(mariadb, kind, expression, wanted, values) -> None:
    target, schema = acquired(mariadb), shape(expression, wanted, stored=kind == "STORED")
    target.execute(created(expression, wanted, kind, "shop.t"))
    rows = [row(schema, number, t=time, g=computed) for number, (time, computed) in enumerate(values)]
    (outcome,) = target.write(change(schema, rows))
    assert outcome.problem is not None
    assert outcome.problem.column == "g"
    assert "computes other values than the source" in outcome.problem.message
    target.execute(outcome.problem.hint.split("Run ", 1)[1].split(";")[0])
    (outcome,) = target.write(change(schema, rows))
    assert outcome.problem is None
    held = target.execute("SELECT id FROM shop.t ORDER BY id" if kind == "VIRTUAL" else "SELECT g FROM shop.t ORDER BY id")
    assert held == ([(0,), (1,)] if kind == "VIRTUAL" else [(computed,) for _, computed in values])


def test_a_virtual_column_without_unique_key_stores_nothing(mariadb) -> None:
    target, schema = acquired(mariadb), shape("`t`", INT, stored=False)
    target.execute(created("`t`", INT, "VIRTUAL", "shop.t").replace("UNIQUE KEY", "KEY"))
    assert target.write(change(schema, [row(schema, 1, t="00:00:01.600000")]))[0].problem is None


def test_a_column_that_reads_such_a_column_is_one_too() -> None:
    schema = shape("`t`", INT, stored=False)
    last = column("h", "INT", generated=Generated.STORED, expression="`g` + 1")
    found = computed_otherwise(table("t", [*schema.columns, last]))
    assert [other.column.name for other in found] == ["g", "h"]
