"""The kinds of schema changes that TiCDC writes, each as a small history (type codes as in TiDB's ActionType).

``KINDS`` maps the kind's name, which is a row of ``docs/types-and-ddl.md``, to how it comes about and what a target shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ddl_history import Effect, History, Row
from headrace.model.table import TableId

MARIADB, DUCKDB = "MariaDB", "DuckDB"
BASE = ("id INT PK", "a VARCHAR(20)")
ROWS: tuple[Row, ...] = ((1, "one"), (2, "two"), (3, "three"))
NEW = (4, "four")


T, U, V = (TableId("shop", name) for name in "tuv")


@dataclass(frozen=True)
class Kind:
    """One kind. ``shows`` are pieces of the table's definition in MariaDB, ``hides`` what must not be in it.

    ``stops`` says for a target that does not follow what its message says; there the table keeps what it held before.
    ``told`` are pieces of the notices on MariaDB.
    """

    build: Callable[[History], None]
    shows: tuple[str, ...] = ()
    hides: tuple[str, ...] = ()
    stops: Mapping[str, str] = field(default_factory=dict)
    told: tuple[str, ...] = ()
    table: TableId = T


KINDS: dict[str, Kind] = {}


def altered(
    name: str,
    statement: str,
    code: int,
    *,
    after: Sequence[str] = (),
    effect: Effect = list,
    new: Row = NEW,
    columns: Sequence[str] = BASE,
    rows: Sequence[Row] = ROWS,
    create: str = "",
    handle: Sequence[str] = (),
    **more: object,
) -> None:
    """A kind that is one statement about the table ``t``. Afterwards one row comes and the second one goes."""

    def build(history: History) -> None:
        history.create("t", *columns, rows=rows, statement=create)
        history.ddl("t", statement, code, columns=after, effect=effect, handle=handle)
        history.insert("t", new)
        held = history.rows_of("t")
        if len(held) > 2:
            history.delete("t", held[1])

    KINDS[name] = Kind(build, **more)  # type: ignore[arg-type]


def kind(name: str, **more: object) -> Callable[[Callable[[History], None]], None]:
    """A kind whose history is written out."""

    def add(build: Callable[[History], None]) -> None:
        KINDS[name] = Kind(build, **more)  # type: ignore[arg-type]

    return add


def appended(*values: object) -> Effect:
    return lambda rows: [(*row, *values) for row in rows]


# --- tables -------------------------------------------------------------------------------------------------------


@kind("CREATE TABLE, DROP TABLE, and CREATE again")
def _(history: History) -> None:
    history.create("t", *BASE, rows=ROWS)
    history.drop("t", "DROP TABLE `shop`.`t`")
    history.create("t", "k VARCHAR(9) PK", rows=[("again",)])


@kind("CREATE TABLE … LIKE", table=TableId("shop", "u"), shows=("KEY `ia` (`a`)",))
def _(history: History) -> None:
    history.create("t", *BASE, statement="CREATE TABLE `t` (`id` INT PRIMARY KEY,`a` VARCHAR(20),INDEX `ia`(`a`))", rows=ROWS)
    history.create("u", *BASE, statement="CREATE TABLE `u` LIKE `t`", rows=[NEW])


@kind("CREATE TABLE … LIKE a table of another database", table=TableId("shop2", "t"))
def _(history: History) -> None:
    history.create("t", *BASE, rows=ROWS)
    history.database("CREATE DATABASE `shop2`", 1, "shop2")
    history.create("t", *BASE, statement="CREATE TABLE `shop2`.`t` LIKE `shop`.`t`", rows=[NEW], database="shop2")


@kind("CREATE TABLES in one batch (BR restore)")
def _(history: History) -> None:
    for name in ("t", "u"):
        version = history.ddl(name, f"CREATE TABLE `{name}` (`id` INT PRIMARY KEY,`a` VARCHAR(20));", 60, columns=BASE)
        assert version
        history.insert(name, *ROWS)


@kind("TRUNCATE TABLE")
def _(history: History) -> None:
    history.create("t", *BASE, rows=ROWS)
    history.ddl("t", "TRUNCATE TABLE `t`", 11, effect=lambda _: [])
    history.insert("t", (2, "again"))


RESYNC = "load|rows"


@kind("RECOVER TABLE", stops={MARIADB: RESYNC, DUCKDB: RESYNC})
def _(history: History) -> None:
    history.create("t", *BASE, rows=ROWS)
    history.drop("t", "DROP TABLE `shop`.`t`")
    history.ddl("t", "RECOVER TABLE `t`", 25, columns=BASE)
    history.insert("t", NEW)
    history.forget("t")


@kind("FLASHBACK TABLE … TO", stops={MARIADB: RESYNC, DUCKDB: RESYNC})
def _(history: History) -> None:
    history.create("t", *BASE, rows=ROWS)
    history.drop("t", "DROP TABLE `shop`.`t`")
    history.ddl("u", "FLASHBACK TABLE `t` TO `u`", 25, columns=BASE)
    history.insert("u", NEW)
    history.forget("u")


# --- renames ------------------------------------------------------------------------------------------------------


def renamed(history: History, *pairs: tuple[TableId, TableId]) -> None:
    """One RENAME TABLE of several tables: a file for each under its new name, all of one version."""
    held = {old: history.rows_of(old.table, old.database) for old, _ in pairs}
    for old, _ in pairs:
        history.writer.flush(old)
    version = 0
    for old, new in pairs:
        statement = f"RENAME TABLE `{old.database}`.`{old.table}` TO `{new.database}`.`{new.table}`"
        rows = held[old]
        version = history.ddl(
            new.table, statement + (";" if len(pairs) > 1 else ""), 14, columns=BASE, database=new.database, at=version,
            effect=lambda _, rows=rows: list(rows),
        )  # fmt: skip
    for gone in {old for old, _ in pairs} - {new for _, new in pairs}:
        history.forget(gone.table, gone.database)


def filled(history: History, *names: str) -> None:
    for name in names:
        history.create(name, *BASE, rows=[(1, f"of {name}"), (2, "x")])


@kind("RENAME TABLE", table=U)
def _(history: History) -> None:
    filled(history, "t")
    renamed(history, (T, U))
    history.insert("u", NEW)


@kind("ALTER TABLE … RENAME TO", table=U)
def _(history: History) -> None:
    filled(history, "t")
    history.ddl("u", "ALTER TABLE `t` RENAME AS `u`", 14, instead_of=T)
    history.forget("t")
    history.insert("u", NEW)


@kind("RENAME TABLE to another database", table=TableId("shop2", "t"))
def _(history: History) -> None:
    filled(history, "t")
    history.database("CREATE DATABASE `shop2`", 1, "shop2")
    renamed(history, (T, TableId("shop2", "t")))
    history.insert("t", NEW, database="shop2")


@kind("RENAME TABLE, a chain", table=U)
def _(history: History) -> None:
    filled(history, "t", "u")
    renamed(history, (U, V), (T, U))
    history.insert("u", NEW)
    history.delete("v", (2, "x"))


@kind("RENAME TABLE, a swap", table=U)
def _(history: History) -> None:
    filled(history, "t", "u")
    swapped = {"t": history.rows_of("u"), "u": history.rows_of("t")}
    version = 0
    for old, new in (("u", "t"), ("x", "u")):  # `t` TO `x` was written first, and overwritten by the last of the same table
        version = history.ddl(
            new, f"RENAME TABLE `shop`.`{old}` TO `shop`.`{new}`;", 14, columns=BASE, at=version,
            effect=lambda _, rows=swapped[new]: rows,
        )  # fmt: skip
    history.insert("u", NEW)
    history.delete("t", (2, "x"))


@kind("RENAME TABLE, a cycle of three", table=U)
def _(history: History) -> None:
    filled(history, "t", "u", "v")
    # RENAME TABLE t TO x, v TO t, u TO v, x TO u
    moved = {"t": history.rows_of("v"), "v": history.rows_of("u"), "u": history.rows_of("t")}
    version = 0
    for old, new in (("v", "t"), ("u", "v"), ("x", "u")):
        version = history.ddl(
            new, f"RENAME TABLE `shop`.`{old}` TO `shop`.`{new}`;", 14, columns=BASE, at=version,
            effect=lambda _, rows=moved[new]: rows,
        )  # fmt: skip
    history.insert("u", NEW)
    history.delete("t", (2, "x"))


# --- columns ------------------------------------------------------------------------------------------------------

altered(
    "ADD COLUMN with a default", "ALTER TABLE `t` ADD COLUMN `b` INT DEFAULT 7", 5,
    after=(*BASE, "b INT = 7"), effect=appended(7), new=(*NEW, 8),
)  # fmt: skip
altered(
    "ADD COLUMN … NOT NULL without a default", "ALTER TABLE `t` ADD COLUMN `b` INT NOT NULL", 5,
    after=(*BASE, "b INT NOT NULL"), effect=appended(0), new=(*NEW, 8),
)  # fmt: skip
altered(
    "ADD COLUMN … FIRST", "ALTER TABLE `shop`.`t` ADD COLUMN `b` VARCHAR(9) DEFAULT _UTF8MB4'x,\"y\"' FIRST", 5,
    after=('b VARCHAR(9) = x,"y"', *BASE), effect=lambda rows: [('x,"y"', *row) for row in rows], new=("b", *NEW),
)  # fmt: skip
altered(
    "ADD COLUMN … AFTER", "ALTER TABLE `t` ADD COLUMN `b` INT DEFAULT 7 AFTER `id`", 5,
    after=("id INT PK", "b INT = 7", "a VARCHAR(20)"),
    effect=lambda rows: [(row[0], 7, row[1]) for row in rows], new=(4, 8, "four"),
)  # fmt: skip
altered(
    "ADD COLUMN … DEFAULT CURRENT_TIMESTAMP",
    "ALTER TABLE `t` ADD COLUMN `b` DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3)", 5,
    after=(*BASE, "b DATETIME(3) = CURRENT_TIMESTAMP(3)"),
    effect=appended("2026-01-01 00:00:00.008"), new=(*NEW, "2026-01-02 03:04:05.678"),
)  # fmt: skip
altered(
    "ADD COLUMN … DEFAULT (UUID())", "ALTER TABLE `t` ADD COLUMN `b` VARCHAR(36) DEFAULT (UUID())", 5,
    after=(*BASE, "b VARCHAR(36) = uuid()"), effect=appended("only upstream knows"), new=(*NEW, "x"),
    stops={MARIADB: "computed UUID", DUCKDB: "computed UUID"},
)  # fmt: skip
altered(
    "ALTER COLUMN … SET DEFAULT (UUID())", "ALTER TABLE `t` ALTER COLUMN `a` SET DEFAULT (UUID())", 15,
    after=("id INT PK", "a VARCHAR(20) = uuid()"), shows=("uuid()",),
)  # fmt: skip
altered(
    "DROP COLUMN", "ALTER TABLE `t` DROP COLUMN `a`", 6,
    after=("id INT PK",), effect=lambda rows: [row[:1] for row in rows], new=(4,),
)  # fmt: skip
altered("RENAME COLUMN", "ALTER TABLE `t` RENAME COLUMN `a` TO `b`", 12, after=("id INT PK", "b VARCHAR(20)"))
altered(
    "CHANGE COLUMN", "ALTER TABLE `t` CHANGE COLUMN `a` `b` VARCHAR(99) NOT NULL DEFAULT _UTF8MB4'-'", 12,
    after=("id INT PK", "b VARCHAR(99) NOT NULL = -"),
)  # fmt: skip
altered(
    "MODIFY COLUMN, wider", "ALTER TABLE `t` MODIFY COLUMN `a` VARCHAR(99)", 12, after=("id INT PK", "a VARCHAR(99)"),
    shows=("varchar(99)",),
)  # fmt: skip
altered(
    "MODIFY COLUMN that truncates values", "ALTER TABLE `t` MODIFY COLUMN `a` VARCHAR(2)", 12,
    after=("id INT PK", "a VARCHAR(2)"), effect=lambda rows: [(row[0], str(row[1])[:2]) for row in rows], new=(4, "fo"),
)  # fmt: skip
altered(
    "MODIFY COLUMN … FIRST", "ALTER TABLE `t` MODIFY COLUMN `a` VARCHAR(20) FIRST", 12,
    after=("a VARCHAR(20)", "id INT PK"), effect=lambda rows: [row[::-1] for row in rows], new=NEW[::-1],
)  # fmt: skip
altered(
    "several changes in one statement",
    "ALTER TABLE `t` ADD COLUMN `b` INT DEFAULT 7, DROP COLUMN `a`, ADD COLUMN `c` VARCHAR(9) FIRST, ADD INDEX `ib`(`b`)", 61,
    after=("c VARCHAR(9)", "id INT PK", "b INT = 7"), effect=lambda rows: [(None, row[0], 7) for row in rows], new=("c", 4, 8),
    shows=("KEY `ib` (`b`)",),
)  # fmt: skip
altered(
    "ALTER COLUMN … SET DEFAULT", "ALTER TABLE `t` ALTER COLUMN `a` SET DEFAULT _UTF8MB4'x'", 15,
    after=("id INT PK", "a VARCHAR(20) = x"), shows=("DEFAULT 'x'",),
)  # fmt: skip
altered(
    "ALTER COLUMN … DROP DEFAULT", "ALTER TABLE `t` ALTER COLUMN `a` DROP DEFAULT", 15,
    columns=("id INT PK", "a VARCHAR(20) = x"), after=BASE,
    create="CREATE TABLE `t` (`id` INT PRIMARY KEY,`a` VARCHAR(20) DEFAULT 'x')",
    hides=("DEFAULT 'x'",),
)  # fmt: skip
altered(
    "ADD COLUMN with a character set", "ALTER TABLE `t` ADD COLUMN `b` VARCHAR(9) CHARACTER SET LATIN1", 5,
    after=(*BASE, "b VARCHAR(9)"), effect=appended(None), new=(*NEW, "b"), shows=("latin1_bin",),
)  # fmt: skip
altered(
    "ADD COLUMN, generated", "ALTER TABLE `t` ADD COLUMN `b` INT GENERATED ALWAYS AS(`id`+1) VIRTUAL NOT NULL", 5,
    after=(*BASE, "b INT VIRTUAL"), effect=lambda rows: [(*row, int(str(row[0])) + 1) for row in rows], new=(*NEW, 5),
    told=("NOT NULL",),
)  # fmt: skip
altered(
    "ADD COLUMN of type VECTOR", "ALTER TABLE `t` ADD COLUMN `b` VECTOR(2)", 5,
    after=(*BASE, "b VECTOR(2)"), effect=appended(None), new=(*NEW, "[1,2.5]"), shows=("longtext",), told=("VECTOR",),
)  # fmt: skip

# --- keys and indexes ---------------------------------------------------------------------------------------------

NOT_NULL = ("id INT NOT NULL", "a VARCHAR(20)")
KEYLESS = "CREATE TABLE `t` (`id` INT NOT NULL,`a` VARCHAR(20))"
INDEXED = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`a` VARCHAR(20),INDEX `ia`(`a`))"

altered(
    "ADD PRIMARY KEY", "ALTER TABLE `t` ADD PRIMARY KEY(`id`) /*T![clustered_index] NONCLUSTERED */", 32,
    columns=NOT_NULL, create=KEYLESS, after=BASE, shows=("PRIMARY KEY (`id`)",),
)  # fmt: skip
altered(
    "DROP PRIMARY KEY", "ALTER TABLE `t` DROP PRIMARY KEY", 33,
    create="CREATE TABLE `t` (`id` INT NOT NULL,`a` VARCHAR(20),PRIMARY KEY(`id`) /*T![clustered_index] NONCLUSTERED */)",
    after=NOT_NULL, hides=("PRIMARY KEY",),
)  # fmt: skip
altered("ADD INDEX", "ALTER TABLE `t` ADD INDEX `ia`(`a`)", 7, shows=("KEY `ia` (`a`)",))
altered("CREATE INDEX", "CREATE INDEX `ia` ON `t` (`a`(3) DESC)", 7, shows=("KEY `ia` (`a`(3)",))
altered("DROP INDEX", "ALTER TABLE `t` DROP INDEX `ia`", 8, create=INDEXED, hides=("`ia`",))
altered("RENAME INDEX", "ALTER TABLE `t` RENAME INDEX `ia` TO `ib`", 18, create=INDEXED, shows=("`ib`",), hides=("`ia`",))
altered("ADD UNIQUE", "ALTER TABLE `t` ADD UNIQUE `ua`(`a`)", 7, shows=("UNIQUE KEY `ua` (`a`)",))
altered(
    "ADD UNIQUE, global", "ALTER TABLE `t` ADD UNIQUE `ua`(`a`) /*T![global_index] GLOBAL */", 7,
    create="CREATE TABLE `t` (`id` INT PRIMARY KEY,`a` VARCHAR(20)) PARTITION BY HASH (`id`) PARTITIONS 2",
    shows=("KEY `ua` (`a`)",), hides=("UNIQUE",), told=("plain index",),
)  # fmt: skip
altered(
    "ALTER INDEX … INVISIBLE",
    "ALTER TABLE `t` ALTER INDEX `ia` INVISIBLE",
    41,
    create=INDEXED,
    shows=("IGNORED",),
    told=("IGNORED",),
)
altered(
    "ADD FULLTEXT INDEX", "ALTER TABLE `t` ADD FULLTEXT INDEX `fa`(`a`) WITH PARSER STANDARD", 230,
    shows=("FULLTEXT KEY `fa`",), told=("PARSER STANDARD",),
)  # fmt: skip
altered("ADD HYBRID INDEX", "ALTER TABLE `t` ADD HYBRID INDEX `ha`(`a`) PARAMETER '{}'", 231, hides=("`ha`",), told=("HYBRID",))
altered("ADD INDEX over an expression", "ALTER TABLE `t` ADD INDEX `ie`((LOWER(`a`)))", 7, hides=("`ie`",), told=("expression",))


@kind("DROP INDEX that was over an expression", told=("no such index",))
def _(history: History) -> None:
    history.create("t", *BASE, rows=ROWS)
    history.ddl("t", "ALTER TABLE `t` ADD INDEX `ie`((LOWER(`a`)))", 7)
    history.ddl("t", "ALTER TABLE `t` DROP INDEX `ie`", 8)
    history.insert("t", NEW)


altered(
    "ADD VECTOR INDEX", "CREATE VECTOR INDEX `vi` ON `t` ((VEC_COSINE_DISTANCE(`v`))) USING HNSW", 7,
    columns=(*BASE, "v VECTOR(2)"), rows=[(1, "one", "[1,2]")], new=(*NEW, "[3,4]"), told=("VECTOR INDEX",),
)  # fmt: skip
altered(
    "ADD FOREIGN KEY", "ALTER TABLE `t` ADD CONSTRAINT `fk` FOREIGN KEY `fk`(`id`) REFERENCES `other`(`id`) ON DELETE CASCADE", 9,
    shows=("CONSTRAINT `fk` FOREIGN KEY",),
)  # fmt: skip
altered(
    "DROP FOREIGN KEY", "ALTER TABLE `t` DROP FOREIGN KEY `fk`", 10,
    create="CREATE TABLE `t` (`id` INT PRIMARY KEY,`a` VARCHAR(20),CONSTRAINT `fk` FOREIGN KEY (`id`) REFERENCES `other`(`id`))",
    hides=("FOREIGN KEY",),
)  # fmt: skip
altered(
    "CHECK constraints", "ALTER TABLE `t` ADD COLUMN `b` INT DEFAULT 0 CHECK(`b`>0) NOT ENFORCED", 5,
    after=(*BASE, "b INT = 0"), effect=appended(0), new=(*NEW, -1), hides=("CHECK",), told=("CHECK",),
)  # fmt: skip

# --- options ------------------------------------------------------------------------------------------------------

altered("table comment", "ALTER TABLE `t` COMMENT = 'it''s; \"here\"'", 17, shows=("COMMENT=",))
altered(
    "CONVERT TO CHARACTER SET", "ALTER TABLE `t` CONVERT TO CHARACTER SET UTF8MB4", 22,
    create="CREATE TABLE `t` (`id` INT PRIMARY KEY,`a` VARCHAR(20)) DEFAULT CHARACTER SET = LATIN1", shows=("utf8mb4_bin",),
)  # fmt: skip
altered(
    "table collation that the target lacks", "ALTER TABLE `t` CONVERT TO CHARACTER SET UTF8MB4 COLLATE UTF8MB4_0900_AI_CI", 22,
    shows=("uca1400_nopad_ai_ci",), told=("utf8mb4_0900_ai_ci",),
)  # fmt: skip
altered(
    "column collation",
    "ALTER TABLE `t` MODIFY COLUMN `a` VARCHAR(20) COLLATE utf8mb4_general_ci",
    12,
    shows=("utf8mb4_general_ci",),
)
altered("AUTO_INCREMENT =", "ALTER TABLE `t` /*T![force_inc] FORCE */ AUTO_INCREMENT = 100", 13)
altered("AUTO_ID_CACHE", "ALTER TABLE `t` /*T![auto_id_cache] AUTO_ID_CACHE = 1 */", 59, told=("AUTO_ID_CACHE",))
altered("SHARD_ROW_ID_BITS", "ALTER TABLE `t` /*T! SHARD_ROW_ID_BITS = 4 */", 16, told=("SHARD_ROW_ID_BITS",))
altered(
    "AUTO_RANDOM", "ALTER TABLE `t` /*T![auto_rand_base] AUTO_RANDOM_BASE = 9 */", 58, told=("AUTO_RANDOM(5)", "AUTO_RANDOM_BASE"),
    columns=("id BIGINT PK", "a VARCHAR(20)"),
    create="CREATE TABLE `t` (`id` BIGINT /*T![auto_rand] AUTO_RANDOM(5) */,`a` VARCHAR(20),PRIMARY KEY(`id`) "
    "/*T![clustered_index] CLUSTERED */)",
)  # fmt: skip
altered(
    "TTL set", "ALTER TABLE `t` /*T![ttl] TTL=`d` + INTERVAL 1 DAY */ /*T![ttl] TTL_ENABLE='OFF' */", 65, told=("TTL",),
    columns=("id INT PK", "d DATETIME"), rows=[(1, "2026-01-01 00:00:00")], new=(4, "2026-01-01 00:00:01"),
)  # fmt: skip
altered("TTL removed", "ALTER TABLE `t` /*T![ttl] REMOVE TTL */", 67, told=("REMOVE TTL",))
altered("CACHE", "ALTER TABLE `t` CACHE", 57, told=("CACHE",))
altered("NOCACHE", "ALTER TABLE `t` NOCACHE", 58, told=("NOCACHE",))
altered("PLACEMENT POLICY", "ALTER TABLE `t` /*T![placement] PLACEMENT POLICY=`p` */", 55, told=("PLACEMENT",))
altered("SET TIFLASH REPLICA", "ALTER TABLE `t` SET TIFLASH REPLICA 1", 40, told=("TIFLASH",))
altered("ATTRIBUTES", "ALTER TABLE `t` ATTRIBUTES='merge_option=allow'", 51, told=("ATTRIBUTES",))

# --- databases and views ------------------------------------------------------------------------------------------


@kind("ALTER DATABASE … CHARACTER SET", shows=("latin1_bin",))
def _(history: History) -> None:
    history.create("u", *BASE, rows=ROWS)
    history.database("ALTER DATABASE `shop` CHARACTER SET = latin1", 26)
    history.create("t", *BASE, rows=ROWS)


@kind("CREATE DATABASE, DROP DATABASE", table=TableId("shop", "t"))
def _(history: History) -> None:
    history.database("CREATE DATABASE `shop2` COLLATE utf8mb4_general_ci", 1, "shop2")
    history.create("t", *BASE, rows=ROWS, database="shop2")
    history.database("DROP DATABASE `shop2`", 2, "shop2")
    history.create("t", *BASE, rows=ROWS)


VIEW = "ALGORITHM = UNDEFINED DEFINER = `nobody`@`%` SQL SECURITY DEFINER VIEW"


@kind("CREATE VIEW", table=V, shows=("`twice`",), told=("DEFINER",))
def _(history: History) -> None:
    filled(history, "t")
    history.view("v", f"CREATE {VIEW} `v` AS SELECT `id`,`id`*2 AS `twice` FROM `t`", "id INT", "twice BIGINT")


@kind("CREATE OR REPLACE VIEW", table=V, shows=("3",), told=("DEFINER",))
def _(history: History) -> None:
    filled(history, "t")
    history.view("v", f"CREATE {VIEW} `v` AS SELECT `id` FROM `t`", "id INT")
    history.view("v", f"CREATE OR REPLACE {VIEW} `v` AS SELECT `id`*3 AS `thrice` FROM `t`", "thrice BIGINT")


@kind("CREATE VIEW that the target cannot make", table=V, stops={MARIADB: "TIDB_VERSION", DUCKDB: "TIDB_VERSION"})
def _(history: History) -> None:
    filled(history, "t")
    history.view("v", "CREATE VIEW `v` AS SELECT TIDB_VERSION() AS `x` FROM `t`", "x VARCHAR(9)")


@kind("DROP VIEW", told=("DEFINER",))
def _(history: History) -> None:
    filled(history, "t", "u")
    history.view("v", f"CREATE {VIEW} `v` AS SELECT `id` FROM `u`", "id INT")
    history.drop("u", "DROP TABLE `shop`.`u`")
    history.drop_view("v", "DROP VIEW `shop`.`v`")


# --- partitions ---------------------------------------------------------------------------------------------------

RANGES = (
    "CREATE TABLE `t` (`id` INT,`a` VARCHAR(20),PRIMARY KEY(`id`)) PARTITION BY RANGE (`id`) "
    "(PARTITION `p0` VALUES LESS THAN (3),PARTITION `p1` VALUES LESS THAN (6))"
)
HASHED = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`a` VARCHAR(20)) PARTITION BY HASH (`id`) PARTITIONS 4"

altered(
    "ADD PARTITION", "ALTER TABLE `t` ADD PARTITION (PARTITION `p2` VALUES LESS THAN (9))", 19, create=RANGES, new=(8, "eight"),
    shows=("`p2`",),
)  # fmt: skip
altered(
    "DROP PARTITION", "ALTER TABLE `t` DROP PARTITION `p0`", 20, create=RANGES, hides=("`p0`",),
    effect=lambda rows: [row for row in rows if int(str(row[0])) >= 3],
)  # fmt: skip
altered(
    "TRUNCATE PARTITION", "ALTER TABLE `t` TRUNCATE PARTITION `p0`", 23, create=RANGES, shows=("`p0`",),
    effect=lambda rows: [row for row in rows if int(str(row[0])) >= 3],
)  # fmt: skip
altered(
    "REORGANIZE PARTITION",
    "ALTER TABLE `t` REORGANIZE PARTITION `p0` INTO (PARTITION `p00` VALUES LESS THAN (2), PARTITION `p01` VALUES LESS THAN (3))",
    64, create=RANGES, shows=("`p00`", "`p01`"),
)  # fmt: skip
altered("PARTITION BY", "ALTER TABLE `t` PARTITION BY HASH (`id`) PARTITIONS 2", 71, create=HASHED, shows=("PARTITIONS 2",))
altered("REMOVE PARTITIONING", "ALTER TABLE `t` REMOVE PARTITIONING", 72, create=HASHED, hides=("PARTITION",))
altered("COALESCE PARTITION", "ALTER TABLE `t` COALESCE PARTITION 1", 0, create=HASHED, shows=("PARTITIONS 3",))


@kind("EXCHANGE PARTITION", told=("VALIDATION",))
def _(history: History) -> None:
    history.create("t", *BASE, statement=RANGES, rows=ROWS)
    history.create("u", *BASE, rows=[(0, "of u")])
    mine, other = history.rows_of("t"), history.rows_of("u")
    history.writer.flush()
    version = history.ddl(
        "t", "ALTER TABLE `shop`.`t` EXCHANGE PARTITION `p0` WITH TABLE `shop`.`u` WITHOUT VALIDATION", 42,
        effect=lambda _: [mine[2], *other],
    )  # fmt: skip
    history.ddl("u", "", 0, at=version, effect=lambda _: mine[:2])
    history.insert("t", NEW)
    history.delete("u", mine[1])


# --- unknown statements --------------------------------------------------------------------------------------------

UNKNOWN = "TIDB SPEAKS `t` OTHERWISE"


@kind("an unknown statement", stops={MARIADB: UNKNOWN, DUCKDB: UNKNOWN})
def _(history: History) -> None:
    history.create("t", *BASE, rows=ROWS)
    history.ddl("t", UNKNOWN, 99)


altered(
    "a clause of ALTER TABLE that the target does not know", "ALTER TABLE `t` SPLIT MAXVALUE PARTITION LESS THAN (9)", 99,
    stops={MARIADB: "does not know this syntax.*SPLIT MAXVALUE"},
)  # fmt: skip
