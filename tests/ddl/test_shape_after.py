"""Shapes from statements alone, compared with what TiCDC wrote of the same statements into schema files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.ddl.column_definition import UnreadDefinitionError
from headrace.ddl.columns import annotate
from headrace.ddl.shape_after import collation_after, shape_after
from headrace.ddl.statement import StatementKind, read_statement
from headrace.formats.schema_file import SchemaFile, parse_schema_file
from headrace.model.table import Column, Index, TableId, TableSchema
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
        ("bool default true", "1"),
        ("binary(2) default 0x4142", "AB"),
        ("datetime(3) default current_timestamp(3) on update current_timestamp(3)", "CURRENT_TIMESTAMP(3)"),
        ("varchar(40) default (uuid())", "uuid()"),
    ],
)
def test_a_default_is_read_as_tidb_stores_it(written: str, expected: str | None) -> None:
    schema = told(f"CREATE TABLE t (c {written})")
    assert schema is not None
    assert schema.column("c").default == expected


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
