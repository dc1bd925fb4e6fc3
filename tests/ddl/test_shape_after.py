"""Shapes from statements alone, compared with what TiCDC wrote of the same statements into schema files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.ddl.columns import annotate
from headrace.ddl.shape_after import collation_after, shape_after
from headrace.ddl.statement import StatementKind, read_statement
from headrace.ddl.stored_defaults import UnreadDefinitionError
from headrace.formats.schema_file import SchemaFile, parse_schema_file
from headrace.model.table import Column, Generated, Index, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind

CASES = Path(__file__).parents[1] / "conformance" / "ticdc-storage"
T = TableId("d", "t")


def told(
    statement: str, before: TableSchema | None = None, pattern: TableSchema | None = None, *, collation: str = ""
) -> TableSchema | None:
    read = read_statement(statement, "d")
    schema = shape_after(read, T, before, pattern, collation=collation)
    return annotate(statement, schema, pattern or before) if schema else None


def histories() -> list[str]:
    return sorted(folder.name for folder in CASES.iterdir() if folder.is_dir())


def comparable(schema: TableSchema) -> list[Column]:
    """Columns without what only schema files or only the text can have."""
    columns = [replace(column, column_id=None) for column in schema.columns if not column.hidden]
    return [replace(c, type=replace(c.type, length=_length(c.type), kind=_kind(c.type))) for c in columns]


def _length(of: ColumnType) -> int | None:
    return 1 if of.kind is TypeKind.CHAR and of.length is None else of.length


def _kind(of: ColumnType) -> TypeKind:
    return TypeKind.VARCHAR if of.kind is TypeKind.VAR_STRING else of.kind


@pytest.mark.parametrize("case", histories())
def test_the_statements_of_a_changefeed_give_the_shapes_that_ticdc_gives(case: str) -> None:
    files: dict[tuple[str, int], SchemaFile] = {}
    for path in sorted((CASES / case / "data").rglob("schema*.json")):
        file = parse_schema_file(path.read_bytes())
        files.setdefault((str(file.table_id), file.version), file)
    tables: dict[TableId, TableSchema] = {}
    checked = 0
    for file in sorted(files.values(), key=lambda file: (file.version, file.table_id)):
        read = read_statement(file.statement, file.database)
        origin = read.renames[0][0] if len(read.renames) == 1 else file.table_id
        before, pattern = tables.get(origin), tables.get(read.like) if read.like else None
        found = shape_after(read, file.table_id, before, pattern)
        if file.schema is None or read.kind in (StatementKind.DROP_TABLE, StatementKind.CREATE_VIEW, StatementKind.DROP_VIEW):
            tables.pop(file.table_id, None)
            continue
        expected = annotate(file.statement, file.schema, pattern or before)
        if found is not None and file.statement:
            found = annotate(file.statement, found, pattern or before)
            assert comparable(found) == comparable(expected), f"{file.statement}"
            assert found.handle_key == expected.handle_key
            checked += 1
        tables[file.table_id] = expected
    assert checked or not any(read_statement(f.statement, "").kind is StatementKind.CREATE_TABLE for f in files.values())


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("bool", ColumnType(TypeKind.TINYINT, length=1)),
        ("integer unsigned", ColumnType(TypeKind.INT, True, 10)),
        ("int(5) zerofill", ColumnType(TypeKind.INT, True, 5)),
        ("numeric(7)", ColumnType(TypeKind.DECIMAL, length=7, scale=0)),
        ("float(30)", ColumnType(TypeKind.DOUBLE, length=22)),
        ("double precision", ColumnType(TypeKind.DOUBLE, length=22)),
        ("national varchar(9)", ColumnType(TypeKind.VARCHAR, length=9)),
        ("character varying (9)", ColumnType(TypeKind.VARCHAR, length=9)),
        ("varchar(9) character set binary", ColumnType(TypeKind.VARBINARY, length=9)),
        ("text charset binary", ColumnType(TypeKind.BLOB, length=65_535)),
        ("text(63)", ColumnType(TypeKind.TINYTEXT, length=255)),
        ("text(64)", ColumnType(TypeKind.TEXT, length=65_535)),
        ("text(85) charset utf8", ColumnType(TypeKind.TINYTEXT, length=255)),
        ("text(86) collate utf8mb3_bin", ColumnType(TypeKind.TEXT, length=65_535)),
        ("text(255) character set latin1", ColumnType(TypeKind.TINYTEXT, length=255)),
        ("text(256) char set ascii", ColumnType(TypeKind.TEXT, length=65_535)),
        ("text(127) collate gbk_chinese_ci", ColumnType(TypeKind.TINYTEXT, length=255)),
        ("text(128) charset gbk", ColumnType(TypeKind.TEXT, length=65_535)),
        ("text(255) charset binary", ColumnType(TypeKind.TINYBLOB, length=255)),
        ("blob(300)", ColumnType(TypeKind.BLOB, length=65_535)),
        ("long varbinary", ColumnType(TypeKind.MEDIUMBLOB, length=16_777_215)),
        ("datetime(0)", ColumnType(TypeKind.DATETIME)),
        ("enum('a', 'it''s')", ColumnType(TypeKind.ENUM, elements=("a", "it's"))),
        ("enum(0x61, x'62', b'1100011', 0b1100100)", ColumnType(TypeKind.ENUM, elements=("a", "b", "c", "d"))),
        ("set(0x6120, 'b')", ColumnType(TypeKind.SET, elements=("a", "b"))),
        (r"enum('a\\b', 'c\'d', 'e\%')", ColumnType(TypeKind.ENUM, elements=("a\\b", "c'd", "e\\%"))),
        ("enum('a', 0xc3a4)", ColumnType(TypeKind.ENUM)),  # the text depends on the column's charset
        ("serial", ColumnType(TypeKind.BIGINT, True, 20)),
    ],
)
def test_a_type_is_read_as_tidb_reads_it(written: str, expected: ColumnType) -> None:
    schema = told(f"CREATE TABLE t (c {written})")
    assert schema is not None
    assert schema.column("c").type == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("int default -3", "-3"),
        ("int default null", None),
        ("varchar(9) default 'it''s'", "it's"),
        ("varchar(9) default _utf8mb4'x'", "x"),
        ("varchar(9) default 'a' 'b'\n\"c\"", "abc"),
        ("varchar(9) default ('a')", "a"),
        ("bool default true", "1"),
        ("varchar(9) default true", "1"),
        ("binary(2) default 0x4142", "AB"),
        ("binary(3) default 'a'", "a\0\0"),
        ("varbinary(3) default 'a'", "a"),
        ("varchar(9) default 0xc3a4", "ä"),
        ("datetime(3) default current_timestamp(3) on update current_timestamp(3)", "CURRENT_TIMESTAMP(3)"),
        ("varchar(40) default (uuid())", "uuid()"),
        ("int references p (id) on delete set default", None),
        ("int references p (id) on delete set default default 4", "4"),
        ("varchar(9) default 007", "7"),
        ("varchar(9) default 1e1", "10"),
        ("varchar(9) default -1.25e-1", "-0.125"),
        ("varchar(9) default 1.50", "1.50"),
        ("varchar(30) default 1e20", "100000000000000000000"),
        ("varchar(30) default 1.5e-9", "0.0000000015"),
        ("varchar(9) default -.5", "-0.5"),
        ("varchar(9) default 01.", "1"),
        ("varchar(9) default -0", "0"),
        ("varchar(30) default 123456789012345678901", "123456789012345678901"),
        ("int default b'101'", "5"),
        ("int default 0x10", "16"),
        ("int default 1e2", "100"),
        ("int default (-3)", "-3"),
        ("decimal(5,2) default .1", "0.1"),
        ("int default ' 7'", " 7"),
        ("bit(8) default 5", "\x05"),
        ("bit(8) default true", "\x01"),
        ("bit(8) default b'101'", "\x05"),
        ("bit(8) default '5'", "5"),
        ("set('a','b','c') default 'c,a,c'", "a,c"),
        ("set('a','B') default 'b,A'", "a,B"),
        ("set('a','b') default ''", ""),
        ("enum('Red','blue') default 'RED'", "Red"),
        ("enum('Red','blue') default 'blue '", "blue"),
        ("enum('a','A') collate utf8mb4_bin default 'A'", "A"),
        ("enum('','x') default ''", ""),
        ("enum('1','2') default '2'", "2"),
        ("enum('a','b') default 2", "b"),
        ("enum('a','b') default true", "a"),
        ("set('a','b','c') default 5", "a,c"),
        ("date default '2020-1-2'", "2020-01-02"),
        ("date default '20200102'", "2020-01-02"),
        ("date default 20200102", "2020-01-02"),
        ("datetime default '2020-1-2'", "2020-01-02 00:00:00"),
        ("datetime default '2020-01-02 3:4'", "2020-01-02 03:04:00"),
        ("datetime default 20200102030405", "2020-01-02 03:04:05"),
        ("datetime default '2020-12-31 23:59:59.5'", "2021-01-01 00:00:00"),
        ("datetime(2) default '2020-01-02T03:04:05.125'", "2020-01-02 03:04:05.13"),
        ("datetime(3) default '2020-01-02 03:04:05'", "2020-01-02 03:04:05.000"),
        ("datetime default 0", "0000-00-00 00:00:00"),
        ("datetime default '20-1-2'", "20-1-2"),  # left as it is, since its value is not certain
        ("date default '2020-01-02 03:04:05'", "2020-01-02 03:04:05"),
        ("time default '1:2'", "01:02:00"),
        ("time default '-838:59:59'", "-838:59:59"),
        ("time default 101112", "10:11:12"),
        ("time default '1112'", "00:11:12"),
        ("time(1) default '10:11:12.25'", "10:11:12.3"),
        ("time default '-00:00:01.6'", "-00:00:02"),
        ("time default '-00:00:01.5'", "-00:00:01.5"),
        ("year default 24", "24"),
    ],
)
def test_a_default_is_read_as_tidb_stores_it(written: str, expected: str | None) -> None:
    schema = told(f"CREATE TABLE t (c {written})")
    assert schema is not None
    assert schema.column("c").default == expected


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("enum('a','b') default 'c'", "the default 'c' of column c is no member of its ENUM"),
        ("enum('a','b') default '2'", "no member"),
        ("enum('a','b') default 0x61", "the default '0x61' of column c is no text"),
        ("enum('é','b') default 'e'", "no member"),
        ("enum('a','b') default 3", "the default 3 of column c is no member of its ENUM"),
        ("enum('a','b') default 0", "no member"),
        ("enum('a','b') default 1.0", "no member"),
        ("set('a','b') default 4", "no member"),
        ("set('a','b') default -1", "no member"),
        ("enum('a', 0xc3a4) default 'a'", "members of its ENUM, which are not known"),
        ("set('a','b') default 'a,c'", "the default 'a,c' of column c is no member of its SET"),
        ("set('a','b') default 'a,,b'", "no member"),
        ("varchar(9) default 0xff", "the default '0xff' of column c is no text in UTF-8"),
        ("varchar(9) default _latin1'ä'", "has the character set LATIN1"),
        ("varchar(9) default -'a'", "has a sign"),
        ("int default 1e999", "too large"),
        ("int default 0x112233445566778899", "does not fit the type INT"),
        ("bit(8) default 1.5", "does not fit the type BIT"),
        ("bit(8) default -1", "does not fit the type BIT"),
        ("date default 0x10", "is no DATE"),
        ("date default 20102", "is a number whose DATE is not certain"),
        ("time default 1.5", "is no TIME"),
        ("year default 2020.0", "is no year"),
        ("int default", "column c has nothing behind DEFAULT"),
    ],
)
def test_a_default_whose_value_is_not_certain_is_not_guessed(written: str, why: str) -> None:
    with pytest.raises(UnreadDefinitionError, match=why):
        told(f"CREATE TABLE t (c {written})")


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("ALTER COLUMN s SET DEFAULT 'b,A'", {"s": "a,b"}),
        ("ALTER e SET DEFAULT 'B'", {"e": "b"}),
        ("ALTER v SET DEFAULT 1e1", {"v": "10"}),
        ("ALTER v SET DEFAULT 'x' 'y'", {"v": "xy"}),
        ("ALTER v SET DEFAULT NULL", {"v": None}),
        ("ALTER v DROP DEFAULT", {"v": None}),
        ("ALTER d SET DEFAULT '2020-1-2'", {"d": "2020-01-02"}),
    ],
)
def test_a_default_that_is_set_is_read_by_the_type_of_the_column(clause: str, expected: dict[str, str | None]) -> None:
    before = told("CREATE TABLE t (s set('a','b'), e enum('a','b'), v varchar(9) default 'v', d date)")
    after = told(f"ALTER TABLE t {clause}", before)
    assert after is not None
    assert {name: after.column(name).default for name in expected} == expected


def test_a_default_that_is_set_and_is_no_member_is_not_guessed() -> None:
    with pytest.raises(UnreadDefinitionError, match="the default 'z' of column e is no member of its ENUM"):
        told("ALTER TABLE t ALTER e SET DEFAULT 'z'", told("CREATE TABLE t (e enum('a','b'))"))


def test_words_in_parentheses_are_no_attributes_of_a_column() -> None:
    schema = told(
        "CREATE TABLE t (a int check (a is not null and a <> 0), b bigint as (cast(a as unsigned)) virtual, "
        "c int default (if(1 is not null, cast(2 as unsigned), 3)), d int as (a + 1) virtual check (stored > 0), "
        "e varchar(9) check (e collate binary <> 'x'), stored int unsigned not null comment '(unsigned' check (stored > 0))"
    )
    assert schema is not None
    assert [(c.name, c.type.kind, c.type.unsigned, c.nullable) for c in schema.columns] == [
        ("a", TypeKind.INT, False, True),
        ("b", TypeKind.BIGINT, False, True),
        ("c", TypeKind.INT, False, True),
        ("d", TypeKind.INT, False, True),
        ("e", TypeKind.VARCHAR, False, True),
        ("stored", TypeKind.INT, True, False),
    ]
    assert schema.column("d").generated is Generated.VIRTUAL


def test_keys_and_the_order_of_columns_follow_the_clauses() -> None:
    schema = told("CREATE TABLE t (a int, b int not null, c serial, constraint x primary key (b), key k (a))")
    assert schema is not None
    assert schema.handle_key == ("b",)
    changed = told(
        "ALTER TABLE t ADD (d int, e int), ADD f int FIRST, ADD COLUMN g int AFTER b, DROP a, RENAME COLUMN b TO h, DROP KEY k, "
        "MODIFY COLUMN c varchar(3) AFTER f, CHANGE d d2 bigint, ALTER e SET DEFAULT 4",
        schema,
    )
    assert changed is not None
    assert [(column.name, column.type.kind) for column in changed.columns] == [
        ("f", TypeKind.INT),
        ("c", TypeKind.VARCHAR),
        ("h", TypeKind.INT),
        ("g", TypeKind.INT),
        ("d2", TypeKind.BIGINT),
        ("e", TypeKind.INT),
    ]
    assert (changed.handle_key, changed.indexes, changed.column("e").default) == (("h",), (Index("c", ("c",), unique=True),), "4")


TWO_KEYS = "CREATE TABLE t (x int not null, z int not null, v int, unique key u1 (x), unique key u2 (z))"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("DROP INDEX u1 ON t", ("z",)),
        ("ALTER TABLE t DROP INDEX u1", ("z",)),
        ("DROP INDEX u2 ON t", ("x",)),
        ("CREATE UNIQUE INDEX u0 ON t (z, x)", ("x",)),
        ("TRUNCATE TABLE t", ("x",)),
        ("RENAME TABLE o TO t", ("x",)),
    ],
)
def test_the_handle_key_of_a_table_without_primary_key_is_a_unique_key_that_it_still_has(
    statement: str, expected: tuple[str, ...]
) -> None:
    after = told(statement, told(TWO_KEYS))
    assert after is not None
    assert after.handle_key == expected


def test_a_table_has_no_handle_key_without_its_last_unique_key_until_it_gets_another() -> None:
    without = told("DROP INDEX u ON t", told("CREATE TABLE t (x int not null, z int not null, unique key u (x))"))
    assert without is not None
    assert without.handle_key == ()
    again = told("CREATE UNIQUE INDEX w ON t (z)", without)
    assert again is not None
    assert again.handle_key == ("z",)


def test_a_table_like_another_has_its_handle_key() -> None:
    for text, key in ((TWO_KEYS, ("x",)), ("CREATE TABLE t (a int, b int, primary key (b))", ("b",))):
        copy = told("CREATE TABLE t LIKE o", pattern=told(text))
        assert copy is not None
        assert copy.handle_key == key


@pytest.mark.parametrize(
    "statement",
    [
        "DROP INDEX `PRIMARY` ON t",
        "DROP INDEX IF EXISTS `primary` ON t",
        "ALTER TABLE t DROP INDEX `PRIMARY`",
        "ALTER TABLE t DROP KEY IF EXISTS `PRIMARY`",
        "ALTER TABLE t DROP PRIMARY KEY",
    ],
)
def test_the_primary_key_can_be_dropped_as_the_index_of_its_name(statement: str) -> None:
    after = told(statement, told("CREATE TABLE t (a int, b int, primary key (a))"))
    assert after is not None
    assert after.handle_key == ()
    assert not any(column.primary_key for column in after.columns)


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("ALTER TABLE t ADD COLUMN c varchar(9)", TypeKind.VARBINARY),
        ("ALTER TABLE t ADD (d int, c text)", TypeKind.BLOB),
        ("ALTER TABLE t MODIFY a char(9)", TypeKind.BINARY),
        ("ALTER TABLE t CHANGE a c mediumtext", TypeKind.MEDIUMBLOB),
        ("ALTER TABLE t ADD c varchar(9) CHARACTER SET utf8mb4", TypeKind.VARCHAR),
        ("ALTER TABLE t ADD c varchar(9) COLLATE utf8mb4_bin", TypeKind.VARCHAR),
        ("ALTER TABLE t DEFAULT CHARSET utf8mb4, ADD c varchar(9)", TypeKind.VARCHAR),
    ],
)
def test_a_column_of_a_table_with_the_charset_binary_is_of_bytes_unless_it_has_its_own(statement: str, kind: TypeKind) -> None:
    after = told(statement, told("CREATE TABLE t (a int)"), collation="binary")
    assert after is not None
    assert kind in {column.type.kind for column in after.columns}


def test_converting_a_table_to_the_charset_binary_makes_its_texts_bytes() -> None:
    after = told("ALTER TABLE t CONVERT TO CHARACTER SET binary", told("CREATE TABLE t (a int, b varchar(9), c text)"))
    assert after is not None
    assert [column.type.kind for column in after.columns] == [TypeKind.INT, TypeKind.VARBINARY, TypeKind.BLOB]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("CREATE TABLE t (a int)", "gbk_bin"),
        ("CREATE TABLE t (a text charset latin1) COMMENT 'x' CHARSET=binary PARTITION BY HASH (a)", "binary"),
        ("CREATE TABLE t LIKE o", "gbk_bin"),
        ("ALTER TABLE t CONVERT TO CHARACTER SET binary", "binary"),
        ("ALTER TABLE t ADD b int, COMMENT 'x' DEFAULT CHARACTER SET = binary", "binary"),
        ("ALTER TABLE t DEFAULT CHARSET latin1 COLLATE latin1_bin", "latin1_bin"),
        ("ALTER TABLE t ADD b text CHARSET binary, MODIFY c text COLLATE utf8mb4_bin, CHANGE d e text CHARSET utf8", "gbk_bin"),
        ("TRUNCATE TABLE t", "gbk_bin"),
        ("CREATE INDEX i ON t (a)", "gbk_bin"),
    ],
)
def test_the_default_collation_of_a_table_follows_its_options(statement: str, expected: str) -> None:
    assert collation_after(read_statement(statement, "d"), "gbk_bin") == expected


@pytest.mark.parametrize("definition", ["serial", "bigint unsigned serial default value"])
def test_serial_is_a_unique_key_without_null(definition: str) -> None:
    for schema in (
        told(f"CREATE TABLE t (v int, id {definition})"),
        told(f"ALTER TABLE t ADD id {definition}", told("CREATE TABLE t (v int)")),
    ):
        assert schema is not None
        assert (schema.handle_key, schema.indexes) == (("id",), (Index("id", ("id",), unique=True),))
        assert (schema.column("id").nullable, schema.column("id").default) == (False, None)


def test_a_table_that_was_never_seen_has_no_shape_after_a_change() -> None:
    assert told("ALTER TABLE t ADD a int") is None


def test_an_unknown_type_is_not_guessed() -> None:
    with pytest.raises(UnreadDefinitionError, match="the type 'geometry' of column c is not known"):
        told("CREATE TABLE t (c geometry)")


@pytest.mark.parametrize("qualifier", ["t.", "`d`.t."])
@pytest.mark.parametrize(
    "clauses",
    [
        "ADD COLUMN {}n INT UNIQUE KEY",
        "ADD COLUMN ({}n INT, {}m FLOAT(7,3))",
        "MODIFY {}e ENUM('a','b','c') FIRST",
        "CHANGE {}e {}f SET('x','y') FIRST",
        "CHANGE {}g {}h INT AS (id + 2) STORED",
        "DROP COLUMN {}e, MODIFY {}v VARCHAR(9) NOT NULL, ADD UNIQUE KEY uv ({}v)",
        "RENAME COLUMN {}e TO {}f",
        "ALTER COLUMN {}v SET DEFAULT 'x'",
        "ADD UNIQUE KEY u ({}v), ALTER COLUMN {}v DROP DEFAULT",
    ],
)
def test_a_column_may_be_named_with_its_table(clauses: str, qualifier: str) -> None:
    """TiDB accepts that, so every reader of statements has to."""
    made = told("CREATE TABLE t (id INT PRIMARY KEY, e ENUM('a','b'), v VARCHAR(9), g INT AS (id + 1) VIRTUAL)")
    plain, named = (told(f"ALTER TABLE t {clauses.replace('{}', text)}", made) for text in ("", qualifier))
    assert named == plain
    assert named != made
