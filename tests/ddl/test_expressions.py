"""Generated columns' expressions in DuckDB: the same values as in TiDB, or a refusal."""

from __future__ import annotations

import duckdb
import pytest

from headrace.ddl.expression_values import UntranslatableError
from headrace.ddl.expressions import to_duckdb
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind

INT = ColumnType(TypeKind.INT)
TEXT = ColumnType(TypeKind.VARCHAR, length=40)
PRICE = ColumnType(TypeKind.DECIMAL, length=10, scale=2)
DOUBLE = ColumnType(TypeKind.DOUBLE)
JSON = ColumnType(TypeKind.JSON)
DATE = ColumnType(TypeKind.DATE)

NESTED = r'{"x:\"": 1, "y": [1, {"z,": "a,b:\\"}], "": {}}'
# Name: its type, and a value of it in DuckDB.
COLUMNS = {
    "tiny": (ColumnType(TypeKind.TINYINT), "100::TINYINT"),
    "a": (INT, "-7::INTEGER"),
    "b": (INT, "2::INTEGER"),
    "zero": (INT, "0::INTEGER"),
    "big": (ColumnType(TypeKind.BIGINT, unsigned=True), "18446744073709551615::UBIGINT"),
    "long": (ColumnType(TypeKind.BIGINT), "450253245302439941::BIGINT"),
    "wide": (ColumnType(TypeKind.DECIMAL, length=65, scale=30), "'9'"),
    "y": (ColumnType(TypeKind.YEAR), "0::SMALLINT"),
    "nothing": (TEXT, "NULL::VARCHAR"),
    "t": (TEXT, "' Zoë '"),
    "d": (PRICE, "12.50::DECIMAL(10,2)"),
    "f": (ColumnType(TypeKind.FLOAT), "0.1::FLOAT"),
    "j": (JSON, f"""'{{"k": "one", "n": 5, "null": null, "a b": [10, 20], "o": {NESTED}}}'::JSON"""),
    "at": (ColumnType(TypeKind.DATETIME), "'2024-06-05 23:59:58'::TIMESTAMP"),
    "at6": (ColumnType(TypeKind.DATETIME, scale=6), "'2024-06-05 23:59:58.600000'::TIMESTAMP"),
    "ts": (ColumnType(TypeKind.TIMESTAMP), "'2024-06-05 23:59:58+00'::TIMESTAMPTZ"),
    "e": (ColumnType(TypeKind.ENUM, elements=("red", "green")), "'red'"),
    "bin": (ColumnType(TypeKind.BLOB), "'x'::BLOB"),
}
SCHEMA = TableSchema(TableId("test", "t"), tuple(Column(name, kind) for name, (kind, _) in COLUMNS.items()))


def evaluated(expression: str, target: ColumnType) -> str | None:
    values = ", ".join(f'{value} AS "{name}"' for name, (_, value) in COLUMNS.items())
    found = duckdb.connect(":memory:").execute(
        f"SELECT ({to_duckdb(expression, target, SCHEMA).sql})::VARCHAR FROM (SELECT {values})"
    )
    return found.fetchall()[0][0]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("expression", "target", "expected"),
    [
        ("`a`*2", INT, "-14"),
        ("`A` + `b` * (`b` - 1)", INT, "-5"),
        ("`tiny`*`tiny`", INT, "10000"),
        ("`big` + 1 - 1", INT, "18446744073709551615"),
        ("-`tiny` * 2", INT, "-200"),
        ("`d` * `b`", PRICE, "25.00"),
        ("`f` * 3", DOUBLE, "0.30000000447034836"),
        ("`a` DIV `b`", INT, "-3"),
        ("`a` % `b`", INT, "-1"),
        ("MOD(`a`, `zero`)", INT, None),
        ("`a` DIV `zero`", INT, None),
        ("`b` / 3", PRICE, "0.666666666"),
        ("`a` / 3", PRICE, "-2.333333333"),
        ("`long` / 1000", PRICE, "450253245302439.941000000"),
        ("-(`long`) / -1", INT, "450253245302439941.000000000"),
        ("`a` / `zero`", PRICE, None),
        ("`f` / `zero`", DOUBLE, None),
        ("FLOOR(`d`)", INT, "12"),
        ("FLOOR(`long`)", INT, "450253245302439941"),
        ("CEIL(`long` + 1)", INT, "450253245302439942"),
        ("ABS(`tiny` + `a`)", INT, "93"),
        ("CONCAT(`e`, _UTF8MB4'!', `a`, `d`)", TEXT, "red!-712.50"),
        ("CONCAT(`e`, `nothing`)", TEXT, None),
        ("CONCAT_WS(_UTF8MB4'-', `nothing`, `e`, `b`)", TEXT, "red-2"),
        ("CONCAT(_UTF8MB4'it''s \\\\', _UTF8MB4'\"')", TEXT, "it's \\\""),
        ("UPPER(TRIM(`t`))", TEXT, "ZOË"),
        ("UPPER(CONCAT(`t`, 'straße ẞ'))", TEXT, " ZOË STRAßE ẞ"),
        ("CONCAT(`t`, '  ')", ColumnType(TypeKind.CHAR, length=9), " Zoë"),
        ("LENGTH(`t`)", INT, "6"),
        ("CHAR_LENGTH(`t`)", INT, "5"),
        ("SUBSTRING(`t`, 2, 2)", TEXT, "Zo"),
        ("LEFT(`t`, 4)", TEXT, " Zoë"),
        ("JSON_EXTRACT(`j`, _UTF8MB4'$.\"a b\"[1]')", JSON, "20"),
        ("JSON_UNQUOTE(JSON_EXTRACT(`j`, _UTF8MB4'$.k'))", TEXT, "one"),
        ("`j`->>'$.n'", TEXT, "5"),
        ("`j`->>'$.null'", TEXT, "null"),
        ("`j`->>'$.o'", TEXT, NESTED),
        ("`at`", ColumnType(TypeKind.DATETIME), "2024-06-05 23:59:58"),
        ("`at6`", ColumnType(TypeKind.DATETIME, scale=6), "2024-06-05 23:59:58.6"),
        ("`j`->>'$.absent'", TEXT, None),
        ("CAST(JSON_EXTRACT(`j`, '$.n') AS UNSIGNED) + 1", INT, "6"),
        ("IF(`a` < 0 AND NOT `b` IS NULL, `b`, `d`)", PRICE, "2.00"),
        ("CASE WHEN `a` > 1 THEN 1 WHEN `a` = -7 THEN 2 END", INT, "2"),
        ("IFNULL(`nothing`, _UTF8MB4'none')", TEXT, "none"),
        ("`a` IS NOT NULL", INT, "true"),
        ("CAST(`d` AS SIGNED)", INT, "13"),
        ("CAST(`a` AS CHAR)", TEXT, "-7"),
        ("DATE(`at`)", DATE, "2024-06-05"),
        ("YEAR(`at`) * 100 + MONTH(`at`)", INT, "202406"),
        ("DATE_FORMAT(`at`, _UTF8MB4'%Y-%m %H:%i:%s')", TEXT, "2024-06 23:59:58"),
        ("TRUE", INT, "1"),
        ("99999999.99 * 99999999.99", ColumnType(TypeKind.DECIMAL, length=20, scale=4), "9999999998000000.0001"),
        ("(`d` * `d`) * `d`", ColumnType(TypeKind.DECIMAL, length=20, scale=6), "1953.125000"),
        ("IF(`a` > 0, `a`, 1)", TEXT, "1"),
    ],
)
def test_values_are_those_of_tidb(expression: str, target: ColumnType, expected: str | None) -> None:
    assert evaluated(expression, target) == expected


@pytest.mark.parametrize(
    ("expression", "target"),
    [
        ("`a` / `b` * 100", PRICE),  # TiDB keeps more digits on the way than a double can tell
        ("`b` / 3", ColumnType(TypeKind.DECIMAL, length=20, scale=9)),
        ("`d` / 3", PRICE),  # DuckDB divides decimals as doubles
        ("`big` / 3", PRICE),
        ("IF(`wide` > 10, 1, 0)", INT),  # may be held as text
        ("`a`", ColumnType(TypeKind.DECIMAL, length=65, scale=2)),
        ("`b` * `b` / 3", PRICE),
        ("`f` * 1.5", ColumnType(TypeKind.DOUBLE, length=10, scale=2)),  # the source rounds
        ("`f`", ColumnType(TypeKind.FLOAT, length=10, scale=2)),
        ("`at6`", ColumnType(TypeKind.DATETIME)),
        ("`at6`", ColumnType(TypeKind.DATETIME, scale=3)),
        ("`at6`", DATE),
        ("`a`", ColumnType(TypeKind.YEAR)),  # 24 is 2024
        ("CONCAT('x', `y`)", TEXT),  # the year 0 is 0000
        ("CAST(`y` AS CHAR)", TEXT),
        ("`t` + 1", INT),
        ("`t` = _UTF8MB4'zoe'", INT),  # true or not by the collation
        ("`e` LIKE _UTF8MB4'r%'", INT),
        ("DATE(`ts`)", DATE),  # by the reader's time zone
        ("CONCAT(`f`, '')", TEXT),
        ("CONCAT(`bin`, '')", TEXT),
        ("CONCAT(_BINARY'x', '')", TEXT),
        ("SUBSTRING(`t`, -2)", TEXT),
        ("JSON_EXTRACT(`j`, '$.k', '$.n')", JSON),
        ("`j`->'$[*]'", JSON),
        ("`j`->'$.k'", TEXT),
        ("CAST(`t` AS SIGNED)", INT),
        ("`absent` + 1", INT),
        ("`e`", INT),  # the place of the member
        ("IFNULL(`e`, _UTF8MB4'10')", PRICE),
        ("`j`->'$.k[0]'", JSON),  # for MySQL what is no array is one of itself
        ("IF(`a` > 0, `d`, 1)", TEXT),  # 1 or 1.00
        ("CONCAT(COALESCE(`d`, 0), '')", TEXT),
        ("CASE WHEN `a` BETWEEN 1 AND 2 THEN 1 END", INT),
        ("VITESS_HASH(`a`)", INT),
        ("`a` +", INT),
        ("'", INT),
        ("", INT),
    ],
)
def test_what_might_differ_is_refused(expression: str, target: ColumnType) -> None:
    with pytest.raises(UntranslatableError):
        to_duckdb(expression, target, SCHEMA)
