"""Arrow columns as LOAD DATA text and as literals, the collations of TiDB, and the sink's URI. No server."""

from __future__ import annotations

import pyarrow as pa
import pytest
from mysql_writing import column, rows_of, table

from headrace.ddl.lexer import rendered, words
from headrace.errors import DefinitionError
from headrace.model.types import ColumnType, TypeKind
from headrace.sinks.mysql import collation
from headrace.sinks.mysql.adaptation import Adapted, Server, UnadaptableError, adapt_for
from headrace.sinks.mysql.settings import read_settings
from headrace.sinks.mysql.text import batches, load_assignments, load_text, row_literals
from headrace.sinks.mysql.types import column_definition, create_table, type_text

COLUMNS = [column("id", "INT"), column("b", "BLOB"), column("s", "VARCHAR"), column("f", "DOUBLE"), column("y", "YEAR")]
ROWS = [(1, b"\x00\xff", "a\tb\\c\n", 1e20, 0), (2, None, None, -0.0, 2024), (None, b"", "\\N", 0.1, None)]


def test_load_text_escapes_what_separates_and_tells_null_from_its_text():
    (text,) = load_text(rows_of(COLUMNS, ROWS), COLUMNS)
    assert bytes(text) == b"1\t00ff\ta\\tb\\\\c\\n\t1e+20\t0000\n2\t\\N\t\\N\t-0\t2024\n\\N\t\t\\\\N\t0.1\t\\N\n"


def test_a_slice_of_rows_is_text_of_the_slice_only():
    whole, tail = rows_of(COLUMNS, ROWS), rows_of(COLUMNS, ROWS).slice(1)
    assert bytes(load_text(tail, COLUMNS)[0]) == bytes(load_text(whole, COLUMNS)[0]).split(b"\n", 1)[1]


def test_binary_and_bit_columns_are_converted_by_the_server():
    names, assignments = load_assignments([*COLUMNS[:2], column("flag`", "BIT")])
    assert names == "`id`, @v1, @v2"
    assert assignments == " SET `b` = UNHEX(@v1), `flag``` = CAST(@v2 AS UNSIGNED)"


def test_literals_quote_text_and_leave_exact_numbers_bare():
    columns = [column("d", "DECIMAL"), column("s", "VARCHAR"), column("b", "BINARY"), column("f", "FLOAT")]
    literals = row_literals(rows_of(columns, [("-1.50", "o'\\", b"\x01", 0.5), (None, None, None, None)]), columns)
    assert literals.to_pylist() == ["(-1.50,'o\\'\\\\',x'01','0.5'),", "(NULL,NULL,NULL,NULL),"]


@pytest.mark.parametrize(("max_rows", "max_bytes"), [(1, 1000), (2, 1000), (10, 1), (10, 9), (10, 1000)])
def test_batches_hold_every_row_once(max_rows, max_bytes):
    columns = [column("id", "INT")]
    parts = list(batches(row_literals(rows_of(columns, [(n,) for n in range(7)]), columns), max_rows, max_bytes))
    assert b",".join(text for _, _, text in parts) == b"(0),(1),(2),(3),(4),(5),(6)"
    assert [start for start, _, _ in parts] == [sum(count for _, count, _ in parts[:i]) for i in range(len(parts))]


def test_no_rows_make_no_batch():
    empty = rows_of(COLUMNS, [])
    assert list(batches(row_literals(empty, COLUMNS), 5, 100)) == []
    assert isinstance(empty, pa.Table)


@pytest.mark.parametrize(
    ("statement", "default", "expected"),
    [
        (
            "CREATE TABLE `t` (`a` VARCHAR(3) COMMENT ')') PARTITION BY HASH(`a`)",
            "utf8mb4_bin",
            "CREATE TABLE `t` (`a` VARCHAR(3) COMMENT ')') DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
            " PARTITION BY HASH(`a`)",
        ),
        ("CREATE TABLE `t` (`a` INT)", "gbk_bin", "CREATE TABLE `t` (`a` INT) DEFAULT CHARACTER SET gbk COLLATE gbk_bin"),
        ("CREATE TABLE `t` LIKE `u`", "utf8mb4_bin", "CREATE TABLE `t` LIKE `u`"),
        (
            "CREATE TABLE `t` (`a` INT) ENGINE=InnoDB DEFAULT CHARSET=latin1 COMMENT='COLLATE x'",
            "utf8mb4_bin",
            "CREATE TABLE `t` (`a` INT) ENGINE=InnoDB DEFAULT CHARSET=latin1 COLLATE latin1_bin COMMENT='COLLATE x'",
        ),
        ("CREATE TABLE t (a INT) COLLATE utf8mb4_general_ci", "utf8mb4_bin", "CREATE TABLE t (a INT) COLLATE utf8mb4_general_ci"),
    ],
)
def test_a_table_gets_the_collation_that_tidb_means(statement, default, expected):
    assert collation.create_table(statement, default) == expected


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (
            "CREATE TABLE t (a VARCHAR(3) CHARACTER SET latin1 NOT NULL, b CHAR(3) CHARSET gbk COLLATE gbk_bin)",
            "CREATE TABLE t (a VARCHAR(3) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL, b CHAR(3) CHARSET gbk COLLATE gbk_bin)",
        ),
        (
            "ALTER TABLE `t` ADD COLUMN (`b` ENUM('a,(') CHARACTER SET UTF8MB4, `c` INT COMMENT 'CHARSET latin1')",
            "ALTER TABLE `t` ADD COLUMN (`b` ENUM('a,(') CHARACTER SET UTF8MB4 COLLATE utf8mb4_bin,"
            " `c` INT COMMENT 'CHARSET latin1')",
        ),
        (
            "ALTER TABLE `t` CONVERT TO CHARACTER SET UTF8MB4",
            "ALTER TABLE `t` CONVERT TO CHARACTER SET UTF8MB4 COLLATE utf8mb4_bin",
        ),
        ("ALTER DATABASE `d` CHAR SET latin1", "ALTER DATABASE `d` CHAR SET latin1 COLLATE latin1_bin"),
        (
            "CREATE TABLE t (a CHAR(3) CHAR  SET 'latin1' NOT NULL, b CHAR CHAR SET latin1 BINARY)",
            "CREATE TABLE t (a CHAR(3) CHAR  SET 'latin1' COLLATE latin1_bin NOT NULL, b CHAR CHAR SET latin1 BINARY)",
        ),
        ("ALTER DATABASE `d` CHARACTER SET = latin1", "ALTER DATABASE `d` CHARACTER SET = latin1 COLLATE latin1_bin"),
        (
            "ALTER TABLE `t` ADD COLUMN `b` CHAR(3) AS (CAST(`a` AS CHAR CHARACTER SET latin1))",
            "ALTER TABLE `t` ADD COLUMN `b` CHAR(3) AS (CAST(`a` AS CHAR CHARACTER SET latin1))",
        ),
        ("CREATE VIEW `v` AS SELECT _latin1'CHARSET gbk'", "CREATE VIEW `v` AS SELECT _latin1'CHARSET gbk'"),
    ],
)
def test_every_character_set_gets_the_collation_that_tidb_means(statement, expected):
    assert collation.spell_out(statement) == expected


def test_a_database_gets_the_collation_that_tidb_means():
    assert collation.create_database("CREATE DATABASE `a`;").endswith("`a` DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    assert collation.create_database("CREATE DATABASE a CHARACTER SET = utf8").endswith("= utf8 COLLATE utf8_bin")
    assert collation.create_database("CREATE DATABASE a COLLATE gbk_bin") == "CREATE DATABASE a COLLATE gbk_bin"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (
            "CREATE TABLE `gk` (`a` INT,`s` INT AS(`a`+1) STORED NOT NULL,UNIQUE(`s`),KEY((LOWER(`v`)))) COMMENT 'x'",
            "CREATE TABLE `gk` (`a` INT,`s` INT AS(`a`+1) STORED,UNIQUE(`s`)) COMMENT 'x'",
        ),
        (
            "CREATE TABLE `v` (`vector` INT,`v` VECTOR(3),`w` VECTOR COMMENT 'VECTOR(3)')",
            "CREATE TABLE `v` (`vector` INT,`v` LONGTEXT,`w` LONGTEXT COMMENT 'VECTOR(3)')",
        ),
        (
            "CREATE TABLE j (a JSON, b INT AS (`a`->'$.x'), c TEXT AS (a->>'$.y'))",
            "CREATE TABLE j (a JSON, b INT AS (JSON_EXTRACT(`a`, '$.x')), c TEXT AS (JSON_UNQUOTE(JSON_EXTRACT(a, '$.y'))))",
        ),
        ("ALTER TABLE `t` ADD INDEX `i` ((`a` + 1)), ADD COLUMN `b` INT", "ALTER TABLE `t` ADD COLUMN `b` INT"),
        ("ALTER TABLE `t` ADD INDEX `i` (`a`, (`b` + 1))", ""),
        ("CREATE UNIQUE INDEX `i` ON `t` ((LOWER(`a`)))", ""),
        ("CREATE INDEX `i` ON `t` (`a`(3))", "CREATE INDEX `i` ON `t` (`a`(3))"),
        ("ALTER TABLE `t` ADD COLUMN (`b` INT, `c` INT)", "ALTER TABLE `t` ADD COLUMN (`b` INT, `c` INT)"),
    ],
)
def test_what_mariadb_lacks_is_rewritten_and_told(statement, expected):
    adapted = adapt_for(statement, Server("MariaDB"))
    assert " ".join(adapted.statement.split()) == expected
    assert bool(adapted.notices) == (statement != expected and "->" not in statement)
    assert adapt_for(statement, Server("TiDB")) == Adapted(statement)


@pytest.mark.parametrize(
    ("statement", "expected", "told"),
    [
        (
            "CREATE TABLE `t` (`id` BIGINT /*T![auto_rand] AUTO_RANDOM(5) */,PRIMARY KEY(`id`) /*T![clustered_index] CLUSTERED */)"
            " COMMENT='/*T! x */' /*T! SHARD_ROW_ID_BITS=4 */",
            "CREATE TABLE `t` (`id` BIGINT ,PRIMARY KEY(`id`) ) COMMENT='/*T! x */'",
            ["AUTO_RANDOM(5)", "SHARD_ROW_ID_BITS=4"],
        ),
        (
            "CREATE TABLE `t` (`id` BIGINT AUTO_RANDOM(5, 54) PRIMARY KEY NONCLUSTERED) SHARD_ROW_ID_BITS = 4 PRE_SPLIT_REGIONS=2"
            " AUTO_ID_CACHE 1 PLACEMENT POLICY = `p` TTL = `d` + INTERVAL 1 DAY TTL_ENABLE = 'OFF' STATS_SAMPLE_RATE=0.1",
            "CREATE TABLE `t` (`id` BIGINT PRIMARY KEY )",
            ["AUTO_RANDOM(5, 54)", "PRE_SPLIT_REGIONS=2", "AUTO_ID_CACHE 1", "PLACEMENT POLICY = `p`", "INTERVAL 1 DAY", "0.1"],
        ),
        ("ALTER TABLE `t` CACHE", "", ["CACHE", "nothing"]),
        ("ALTER TABLE `t` SET TIFLASH REPLICA 1 LOCATION LABELS 'a', 'b'", "", ["TIFLASH"]),
        ("ALTER TABLE `t` ATTRIBUTES='merge_option=allow'", "", ["ATTRIBUTES"]),
        ("ALTER TABLE `t` /*T![ttl] REMOVE TTL */", "", ["REMOVE TTL", "nothing"]),
        ("ALTER DATABASE `d` PLACEMENT POLICY = `p`", "", ["PLACEMENT", "nothing"]),
        (
            "ALTER TABLE `t` ADD VECTOR INDEX `v`((VEC_COSINE_DISTANCE(`e`))) USING HNSW, ADD COLUMN `a` INT",
            "ALTER TABLE `t` ADD COLUMN `a` INT",
            ["ADD VECTOR INDEX"],
        ),
        ("CREATE VECTOR INDEX `v` ON `t` ((VEC_L2_DISTANCE(`e`)))", "", ["VECTOR INDEX"]),
        (
            "CREATE TABLE `t` (`a` INT PRIMARY KEY CHECK(`a`>0) NOT ENFORCED,CONSTRAINT `c` CHECK((`a`)<9) ENFORCED)",
            "CREATE TABLE `t` (`a` INT PRIMARY KEY )",
            ["CHECK(`a`>0)", "CONSTRAINT `c`"],
        ),
        ("ALTER TABLE `t` ADD CONSTRAINT `c` CHECK(`a`>0), DROP CHECK `d`", "", ["CHECK(`a`>0)", "DROP CHECK"]),
        (
            "ALTER TABLE `t` ADD COLUMN `a` INT, ALGORITHM = INPLACE, LOCK = NONE",
            "ALTER TABLE `t` ADD COLUMN `a` INT",
            ["ALGORITHM = INPLACE", "LOCK = NONE"],
        ),
        ("CREATE TABLE `t` (`engine` INT PRIMARY KEY) ENGINE = MyISAM", "CREATE TABLE `t` (`engine` INT PRIMARY KEY)", ["MyISAM"]),
        (
            "CREATE TABLE `t` (`a` INT PRIMARY KEY,`b` INT,UNIQUE `u`(`b`) /*T![global_index] GLOBAL */)",
            "CREATE TABLE `t` (`a` INT PRIMARY KEY,`b` INT,INDEX `u`(`b`) )",
            ["plain index"],
        ),
        (
            "ALTER TABLE `t` ADD UNIQUE INDEX `u`(`b`) WHERE `b`>0, ADD INDEX `where`(`b`)",
            "ALTER TABLE `t` ADD INDEX `u`(`b`) , ADD INDEX `where`(`b`)",
            ["plain index"],
        ),
        (
            "CREATE DEFINER = `root`@`%` SQL SECURITY DEFINER VIEW `v` AS SELECT 1",
            "CREATE DEFINER = CURRENT_USER SQL SECURITY DEFINER VIEW `v` AS SELECT 1",
            ["`root`@`%`"],
        ),
        (
            "ALTER TABLE `t` ADD FULLTEXT INDEX `f`(`a`) WITH PARSER MULTILINGUAL",
            "ALTER TABLE `t` ADD FULLTEXT INDEX `f`(`a`)",
            ["PARSER"],
        ),
        (
            "ALTER TABLE `t` /*T![force_inc] FORCE */ AUTO_INCREMENT = 9",
            "ALTER TABLE `t` AUTO_INCREMENT = 9",
            [],
        ),
        (
            "ALTER TABLE `t` /*T![force_inc] FORCE */ /*T![auto_rand_base] AUTO_RANDOM_BASE = 9 */",
            "",
            ["FORCE AUTO_RANDOM_BASE = 9", "nothing"],
        ),
        (
            "CREATE TABLE `t` (`affinity` INT PRIMARY KEY) /*T![affinity] AFFINITY='table' */ COMMENT 'AFFINITY=1'",
            "CREATE TABLE `t` (`affinity` INT PRIMARY KEY) COMMENT 'AFFINITY=1'",
            ["AFFINITY='table'"],
        ),
    ],
)
def test_what_only_tidb_knows_is_left_out_and_told(statement, expected, told):
    adapted = adapt_for(statement, Server("MySQL"))
    assert " ".join(adapted.statement.split()) == expected
    notices = " ".join(adapted.notices)
    assert [part for part in told if part not in notices] == []
    assert bool(notices) == bool(told)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("ALTER TABLE `t` ALTER INDEX `i` INVISIBLE", "ALTER TABLE `t` ALTER INDEX `i` IGNORED"),
        ("ALTER TABLE `t` ADD INDEX `i`(`a`) VISIBLE", "ALTER TABLE `t` ADD INDEX `i`(`a`) NOT IGNORED"),
        (
            "ALTER TABLE `p` EXCHANGE PARTITION `x` WITH TABLE `y` WITHOUT VALIDATION",
            "ALTER TABLE `p` EXCHANGE PARTITION `x` WITH TABLE `y`",
        ),
        (
            "CREATE TABLE `t` (`a` INT,`b` VARCHAR(9) GENERATED ALWAYS AS(UPPER(`a`)) VIRTUAL COLLATE utf8mb4_bin COMMENT 'c')",
            "CREATE TABLE `t` (`a` INT,`b` VARCHAR(9) COLLATE utf8mb4_bin GENERATED ALWAYS AS(UPPER(`a`)) VIRTUAL COMMENT 'c')",
        ),
        (
            "CREATE TABLE `t` (`h` BINARY(16) DEFAULT (UUID_TO_BIN(UUID())),`u` CHAR(36) DEFAULT (UUID()))",
            "CREATE TABLE `t` (`h` BINARY(16) ,`u` CHAR(36) DEFAULT (UUID()))",
        ),
        (
            "ALTER TABLE `t` ADD PARTITION (PARTITION `d` VALUES IN (DEFAULT))",
            "ALTER TABLE `t` ADD PARTITION (PARTITION `d` DEFAULT)",
        ),
        (
            "CREATE VIEW `v` AS SELECT `t`.`j`->'$.a',j ->> _utf8mb4'$.b' FROM `t`",
            "CREATE VIEW `v` AS SELECT JSON_EXTRACT(`t`.`j`, '$.a'),JSON_UNQUOTE(JSON_EXTRACT(j, '$.b')) FROM `t`",
        ),
        (
            "ALTER TABLE `t` ADD COLUMN `g` INT NOT NULL AS (`a`+1) VIRTUAL UNIQUE KEY NOT NULL,ADD COLUMN `h` INT NOT NULL",
            "ALTER TABLE `t` ADD COLUMN `g` INT AS (`a`+1) VIRTUAL UNIQUE KEY,ADD COLUMN `h` INT NOT NULL",
        ),
        (
            "ALTER TABLE `t` ADD COLUMN `g` INT AS (IF(`a` IS NOT NULL,1,_UTF8MB4'_utf8mb4''x'))",
            "ALTER TABLE `t` ADD COLUMN `g` INT AS (IF(`a` IS NOT NULL,1,'_utf8mb4''x'))",
        ),
    ],
)
def test_what_mysql_says_otherwise_is_said_in_mariadbs_words(statement, expected):
    assert " ".join(adapt_for(statement, Server("MariaDB")).statement.split()) == expected
    assert adapt_for(statement, Server("MySQL")).statement == statement


@pytest.mark.parametrize(
    "place",
    [
        "ALTER TABLE `t` ADD COLUMN `g` VARCHAR(9) AS (CONCAT({}))",
        "ALTER TABLE `t` ADD COLUMN `g` VARCHAR(9) DEFAULT {}",
        "ALTER TABLE `t` ALTER COLUMN `g` SET DEFAULT {}",
        "ALTER TABLE `t` ADD COLUMN `g` INT AS (`j`->{})",
        "CREATE TABLE `t` (`a` INT,`g` VARCHAR(9) DEFAULT (CONCAT({})))",
        "CREATE TABLE `t` (`g` VARCHAR(9)) PARTITION BY LIST COLUMNS (`g`) (PARTITION `p` VALUES IN ({}))",
        "CREATE VIEW `v` AS SELECT CONCAT({}) AS `x` FROM `t` WHERE `j`->>{}=1",
    ],
)
def test_mariadb_gets_no_character_set_before_a_literal(place):
    mariadb, plain = Server("MariaDB"), adapt_for(place.replace("{}", "'a''b'"), Server("MariaDB")).statement
    for introducer in ("_utf8mb4", "_UTF8MB4 ", "_utf8", "_UTF8 ", "_utf8mb3", "_Utf8mb3\t", "_utf8/* x */", "/*T! _utf8mb4*/ "):
        written = place.replace("{}", introducer + "'a''b'")
        assert words(adapt_for(written, mariadb).statement) == words(plain)
        for server in ("MySQL", "TiDB"):
            assert words(adapt_for(written, Server(server)).statement) == words(written)
    for literal in ("_latin1'a'", "_binary'a'", "_utf8mb4 0x27", "_utf8mb4 x'27'", "_utf8 b'1'", "_utf8mb3 0b1", "_é'a'"):
        with pytest.raises(UnadaptableError, match=r"literal with the character set _.*, which MariaDB stores as another"):
            adapt_for(place.replace("{}", literal), mariadb)


def test_names_that_look_like_a_character_set_stay():
    for statement in (
        "CREATE VIEW `v` AS SELECT `_utf8` 'a' FROM `t`",
        "CREATE VIEW `v` AS SELECT `t`._utf8,é_utf8 'a' FROM `t`",
        "CREATE TABLE `t` (_utf8mb4 INT,`_utf8` INT DEFAULT '_utf8')",
        "ALTER TABLE `t` RENAME COLUMN _utf8 TO `_utf8mb4`",
    ):
        assert adapt_for(statement, Server("MariaDB")).statement == statement
    with pytest.raises(UnadaptableError, match="literal with the character set _utf8"):
        adapt_for("CREATE VIEW `v` AS SELECT `t`._utf8 'a' FROM `t`", Server("MariaDB"))


WORDS_OF_TIDB = "a->'$.x' COLLATE gbk_bin CHARSET latin1 AUTO_RANDOM(5) CHECK (1) /*T![ttl] TTL */ VECTOR, INVISIBLE STORED NULL"


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE `t` ADD COLUMN `c` VARCHAR(99) DEFAULT '{}' COMMENT '{}'",
        "ALTER TABLE `t` ADD COLUMN `c` ENUM('x->','{}'), ADD INDEX `{}` (`c`)",
        'ALTER TABLE `t` ADD COLUMN `c` JSON COMMENT "{}"',
        "ALTER TABLE `t` ADD COLUMN `c` INT /* it's {} */, ADD COLUMN `d` VARCHAR(9) DEFAULT '->'",
        "ALTER TABLE `t` ADD COLUMN `c` INT, -- it's {}\n ADD COLUMN `d` VARCHAR(9) DEFAULT '->' # it's {}",
    ],
)
@pytest.mark.parametrize("server", ["MariaDB", "MySQL", "TiDB"])
def test_texts_names_and_comments_stay_as_they_are(statement, server):
    text = WORDS_OF_TIDB.replace("/*T![ttl] TTL */", "") if "/*" in statement else WORDS_OF_TIDB
    text = text.replace('"', '""') if '"{}"' in statement else text.replace("'", "''") if "'{}'" in statement else text
    written = statement.format(text, text)
    adapted = adapt_for(collation.spell_out(written), Server(server, knows_collation=lambda name: name != "gbk_bin"))
    assert adapted.statement == rendered(words(written) or ())
    assert adapted.notices == ()


def test_an_index_that_was_left_out_is_not_dropped_either():
    server = Server("MariaDB", has_index=lambda name: name == "a`b")
    adapted = adapt_for("ALTER TABLE `t` DROP INDEX `gone`, RENAME INDEX `a``b` TO `c`", server)
    assert adapted.statement == "ALTER TABLE `t` RENAME INDEX `a``b` TO `c`"
    assert "DROP INDEX `gone`" in adapted.notices[0]
    assert adapt_for("DROP INDEX `gone` ON `t`", server).statement == ""


def test_a_unique_key_that_only_tidb_has_is_not_left_out_when_rows_are_known_by_it():
    with pytest.raises(UnadaptableError, match="only key"):
        adapt_for("CREATE TABLE `t` (`a` INT NOT NULL,`b` INT,UNIQUE `u`(`a`) GLOBAL)", Server("MySQL"))


def test_a_collation_becomes_one_that_holds_the_same_texts_for_equal_or_is_refused():
    lacking = Server("MariaDB", lambda name: not name.startswith(("utf8mb4_0900", "gb18030")))
    adapted = adapt_for("ALTER TABLE `t` CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci", lacking)
    assert adapted.statement.endswith("COLLATE utf8mb4_uca1400_nopad_ai_ci")
    assert "utf8mb4_0900_ai_ci became" in adapted.notices[0]
    adapted = adapt_for("CREATE TABLE `t` (`a` CHAR(3) CHARACTER SET gb18030 COLLATE gb18030_bin)", lacking)
    assert adapted.statement == "CREATE TABLE `t` (`a` CHAR(3) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)"
    with pytest.raises(UnadaptableError, match="gb18030_chinese_ci"):
        adapt_for("CREATE TABLE `t` (`a` CHAR(3) CHARACTER SET gb18030 COLLATE gb18030_chinese_ci)", lacking)


@pytest.mark.parametrize(
    ("column_type", "expected"),
    [
        (ColumnType(TypeKind.TINYINT, length=1), "TINYINT(1)"),
        (ColumnType(TypeKind.INT, unsigned=True, length=10), "INT UNSIGNED"),
        (ColumnType(TypeKind.DOUBLE, length=22), "DOUBLE"),
        (ColumnType(TypeKind.DECIMAL, length=10, scale=2), "DECIMAL(10, 2)"),
        (ColumnType(TypeKind.DATETIME, scale=6), "DATETIME(6)"),
        (ColumnType(TypeKind.BIT, unsigned=True, length=8), "BIT(8)"),
        (ColumnType(TypeKind.YEAR, unsigned=True, length=4), "YEAR"),
        (ColumnType(TypeKind.ENUM, elements=("a", "b'c")), "ENUM('a', 'b''c')"),
        (ColumnType(TypeKind.SET), "TEXT"),
        (ColumnType(TypeKind.VECTOR), "LONGTEXT"),
    ],
)
def test_types_become_ddl(column_type, expected):
    assert type_text(column_type) == expected


def test_a_shape_becomes_a_create_table():
    schema = table("t", [column("id", "BIGINT", nullable=False, primary_key=True), column("n", "VARCHAR", length=9, default="x'y")])
    assert create_table(schema.table_id, schema) == (
        "CREATE TABLE `shop`.`t` (`id` BIGINT NOT NULL, `n` VARCHAR(9) NULL DEFAULT 'x''y', PRIMARY KEY (`id`))"
        " DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    )
    assert column_definition(column("t", "TIMESTAMP", scale=3, default="CURRENT_TIMESTAMP")).endswith("CURRENT_TIMESTAMP(3)")


def test_the_uri_of_a_ticdc_changefeed_is_taken_as_it_is():
    settings = read_settings("mysql://root:p%40ss@db:3307/?worker-count=16&max-txn-row=5000&time-zone=%2B08:00&safe-mode=true")
    assert (settings.host, settings.port, settings.user, settings.password) == ("db", 3307, "root", "p@ss")
    assert (settings.writers, settings.time_zone) == (16, "+08:00")
    assert "p@ss" not in repr(settings)
    assert read_settings("tidb://db").port == 4000
    assert read_settings("mysql://db/?time-zone=+08:00").time_zone == "+08:00"


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("mysql://db/?worker-cuont=3", "worker-count"),
        ("mysql://db/shop", "database"),
        ("mysql://db/?worker-count=0", "worker-count"),
        ("mysql://db/?worker-count=²", "worker-count"),
        (f"mysql://db/?worker-count={'9' * 5000}", "worker-count"),
        ("mysql://db/?local-infile=maybe", "auto"),
        ("mysql://db/?time-zone=noon!", "time zone"),
        ("mysql://db/?ledger-database=a`b", "ledger-database"),
        ("mysql://db/?timeout=soon", "duration"),
        (f"mysql://db/?timeout={'9' * 5000}", "duration"),
    ],
)
def test_a_wrong_uri_is_explained(uri, said):
    with pytest.raises(DefinitionError, match=said):
        read_settings(uri)
