"""What must not reach a target is found by the words of a statement, however they are spelled."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.ddl.grammar.statements import judge
from headrace.ddl.lexer import Cursor, Word, rendered, split_at_commas, words
from headrace.ddl.statement import read_statement
from headrace.model.table import TableId
from headrace.sinks.metadata_applier import Begun
from headrace.sinks.mysql import collation
from headrace.sinks.mysql.adaptation import Server, UnadaptableError, adapt_for
from headrace.sinks.mysql.adaptation import mariadb as mariadb_adaptation
from headrace.sinks.mysql.adaptation.draft import Draft
from headrace.sinks.mysql.adaptation.unchanged import require_same_columns
from headrace.sinks.mysql.definitions import compared
from hostile import Statement, benign_statements

SERVERS = [Server(name) for name in ("MariaDB", "MySQL", "TiDB")]
NAMES = ("secrets", "ลูกค้า", "e\u0301tat", "a€b", "a$b", "$", "a\u00a0b", "\u0130x", "ſecrets", "x1e5", "表", "a‿b")
"""Names without backquotes: letters, and what a regular expression does not count among letters."""
OPENINGS = ("/*T! ", "/*T![x] ", "/*T![clustered_index] ", "/*T![ttl,x] ")


def sent(statement: str, server: Server, *foreign: TableId) -> str:
    """What a server gets of a statement of the database ``shop``, which runs without a decision."""
    assert not judge(statement, "shop").objection
    text = adapt_for(rendered(words(statement) or ()), server, "shop", foreign).statement
    assert "/*" not in outside(text)
    return text


def outside(text: str) -> str:
    """A statement without what is in quotes."""
    return re.sub(r"'(?:[^'\\]|\\.|'')*'|`(?:[^`]|``)*`", "", text, flags=re.DOTALL)


def hidden(statement: str, chance: Random) -> str:
    """The statement with some of its words in a TiDB comment."""
    found = words(statement) or ()
    first, last = sorted(chance.choices(range(len(found)), k=2))
    start, end = found[first].start, found[last].end
    return f"{statement[:start]}{chance.choice(OPENINGS)}{statement[start:end]} */ {statement[end:]}"


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.name)
@pytest.mark.parametrize(
    "clause",
    [
        "CREATE TABLE orders (id INT PRIMARY KEY, uk INT, {})",
        "CREATE TABLE orders (id INT PRIMARY KEY, uk INT, CONSTRAINT c {}, INDEX (uk))",
        "ALTER TABLE orders ADD {}, ADD COLUMN b INT",
        "ALTER TABLE shop . orders ADD CONSTRAINT {}",
    ],
)
@given(
    st.sampled_from(NAMES),
    st.sampled_from(["{}", "`{}`", "shop.{}", "`shop` . `{}`", "shop .{}", "SHOP.`{}`", "shop/**/./**/{}"]),
    st.randoms(use_true_random=False),
)
def test_a_foreign_key_to_a_table_of_others_is_left_out_however_it_is_named(server, clause, name, spelled, chance) -> None:
    statement = clause.format(f"FOREIGN KEY (uk) REFERENCES {spelled.format(name)} (id) ON DELETE RESTRICT")
    for text in (statement, hidden(statement, chance)):
        adapted = sent(text, server, TableId("shop", name))
        assert not any(word.says("REFERENCES") or word.text == name for word in words(adapted) or ())
        assert "REFERENCES" in sent(text, server, TableId("shop", f"{name}_"), TableId("other", name))


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.name)
@pytest.mark.parametrize("name", NAMES)
def test_a_reference_of_a_column_is_left_out_however_its_table_is_named(name: str, server: Server) -> None:
    for spelled in (name, f"`{name}`", f"shop . {name}", f"`shop`.`{name}`"):
        statement = f"ALTER TABLE orders ADD COLUMN c INT REFERENCES {spelled} (id) MATCH FULL ON DELETE CASCADE NOT NULL"
        assert words(sent(statement, server)) == words("ALTER TABLE orders ADD COLUMN c INT NOT NULL")


@pytest.mark.parametrize("name", [*NAMES, "a`b", "a b"])
def test_a_key_that_is_not_there_is_not_dropped_however_it_is_named(name: str) -> None:
    asked: list[str] = []
    server = Server("MySQL", has_index=asked.append, has_foreign_key=asked.append)
    quoted = f"`{name.replace('`', '``')}`"
    for spelled in (name, quoted) if name in NAMES else (quoted,):
        for what in ("INDEX", "KEY", "FOREIGN KEY"):
            assert adapt_for(f"ALTER TABLE t DROP {what} {spelled}", server, "shop").statement == ""
    assert set(asked) == {name}


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.name)
@pytest.mark.parametrize(
    "account",
    [
        "root",
        "`root`@`localhost`",
        "`root` @`localhost`",
        "`root`@ `localhost`",
        "'root' @ '%'",
        "root@localhost",
        "current_user_x@localhost",
        "current_user$@localhost",
        "view@view",
        "`SQL`@`VIEW`",
        "ลูกค้า @ e\u0301",
        "root/*T! @ */localhost",
        "/*T![x] `current_user` */",
    ],
)
def test_a_view_runs_as_headraces_user(account: str, server: Server) -> None:
    plain = rendered(words(account) or ())
    for head in ("CREATE", "CREATE OR REPLACE ALGORITHM = MERGE"):
        for behind in ("SQL SECURITY DEFINER VIEW", "VIEW"):
            rest = f"{behind} v (`definer`) AS SELECT id AS a FROM orders"
            for definer in (f"DEFINER = {account}", f"/*T! DEFINER={plain} */", f"/*T![x] DEFINER */ = {plain}"):
                assert words(sent(f"{head} {definer} {rest}", server)) == words(f"{head} DEFINER = CURRENT_USER {rest}")


@pytest.mark.parametrize("account", ["CURRENT_USER", "current_user()", "CURRENT_USER ( )"])
def test_a_view_of_its_own_user_stays(account: str) -> None:
    statement = f"CREATE DEFINER = {account} SQL SECURITY INVOKER VIEW v AS SELECT id FROM orders"
    assert all(words(sent(statement, server)) == words(statement) for server in SERVERS)


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.name)
@pytest.mark.parametrize("name", ["s", "private.s", "private . `s`", "ลูกค้า", "a$b"])
@pytest.mark.parametrize("value", ["NEXT VALUE FOR {}", "(NEXT VALUE FOR {})", "( NEXTVAL ( {} ) )", "NEXTVAL({})"])
def test_the_next_value_of_a_sequence_is_left_out_and_nothing_else(value: str, name: str, server: Server) -> None:
    default = f"DEFAULT {value.format(name)}"
    for text in (default, f"/*T! {default} */", f"/*T![sequence] {default} */"):
        for statement in ("CREATE TABLE t (id INT PRIMARY KEY, n INT {})", "ALTER TABLE t ADD COLUMN (n INT {} COMMENT ')')"):
            assert words(sent(statement.format(text), server)) == words(statement.format(""))
    assert words(sent(f"ALTER TABLE t ALTER n SET {default}", server)) == words("ALTER TABLE t ALTER n DROP DEFAULT")


ORDERS = "CREATE TABLE orders (id INT PRIMARY KEY){}"
ALTER = "ALTER TABLE orders {}"
PARTITION = "(PARTITION p VALUES LESS THAN (9))"
IGNORED_BY_TIDB = [
    # What MySQL or MariaDB would obey with an effect on rows, or on the target's replicas, or with a refusal.
    ("ALTER IGNORE TABLE orders ADD UNIQUE INDEX u (v)", ALTER.format("ADD UNIQUE INDEX u (v)")),
    ("ALTER IGNORE TABLE orders MODIFY v INT, ADD x INT", ALTER.format("MODIFY v INT, ADD x INT")),
    ("ALTER IGNORE TABLE orders ENGINE = MyISAM", ""),
    (ALTER.format(f"ADD PARTITION NO_WRITE_TO_BINLOG {PARTITION}"), ALTER.format(f"ADD PARTITION {PARTITION}")),
    (ALTER.format(f"ADD PARTITION IF NOT EXISTS LOCAL {PARTITION}"), ALTER.format(f"ADD PARTITION IF NOT EXISTS {PARTITION}")),
    (ALTER.format("ADD COLUMN x INT, LOCK = NONE, ALGORITHM = INSTANT"), ALTER.format("ADD COLUMN x INT")),
    ("CREATE INDEX i ON orders (v) ALGORITHM = INSTANT LOCK NONE", "CREATE INDEX i ON orders (v)"),
    ("CREATE UNIQUE INDEX `lock` ON orders (`lock`) LOCK = SHARED", "CREATE UNIQUE INDEX `lock` ON orders (`lock`)"),
    ("DROP INDEX i ON orders LOCK = EXCLUSIVE ALGORITHM COPY", "DROP INDEX i ON orders"),
    (ORDERS.format(" ENGINE = FEDERATED"), ORDERS.format("")),
    (ALTER.format("ADD COLUMN x INT REFERENCES secrets (id) ON DELETE CASCADE"), ALTER.format("ADD COLUMN x INT")),
    (ALTER.format("ADD COLUMN x INT CHECK (x > 0) NOT ENFORCED"), ALTER.format("ADD COLUMN x INT")),
    (ORDERS.format(" SECONDARY_ENGINE = rapid ENCRYPTION = 'N'"), ORDERS.format("")),
    # What they obey without an effect on rows: how they store them and keep statistics. Which rows are in a partition, see
    # headrace.sinks.mysql.partitions.
    *(
        (ORDERS.format(f" {option}"), ORDERS.format(f" {option}"))
        for option in (
            *("DELAY_KEY_WRITE = 1", "CHECKSUM = 1", "PAGE_CHECKSUM = 1", "PACK_KEYS = 1", "AVG_ROW_LENGTH = 9", "MAX_ROWS = 1"),
            *("MIN_ROWS = 9", "ROW_FORMAT = COMPRESSED", "KEY_BLOCK_SIZE = 1", "STATS_PERSISTENT = 0", "STATS_SAMPLE_PAGES = 1"),
            *("PARTITION BY KEY ALGORITHM = 1 (id) PARTITIONS 2", "PARTITION BY LINEAR HASH (id) PARTITIONS 2"),
        )
    ),
    (ALTER.format("FORCE"), ALTER.format("FORCE")),
    (ALTER.format("ORDER BY v DESC"), ALTER.format("ORDER BY v DESC")),
    (ALTER.format("ADD UNIQUE KEY u (v) USING HASH"), ALTER.format("ADD UNIQUE KEY u (v) USING HASH")),
]
"""Words that TiDB's parser accepts and that its executor ignores, with the statement that MySQL and MariaDB get."""


@pytest.mark.parametrize("server", [server for server in SERVERS if not server.is_tidb], ids=lambda server: server.name)
@pytest.mark.parametrize(("statement", "expected"), IGNORED_BY_TIDB)
def test_a_word_that_tidb_ignores_has_no_effect_on_another_server(statement: str, expected: str, server: Server) -> None:
    assert words(sent(statement, server)) == words(expected)
    head, _, rest = statement.partition(" ")
    assert words(sent(f"/*T! {head} */ {rest}", server)) == words(expected)


@pytest.mark.parametrize(
    "statement",
    [
        *(
            ORDERS.format(f" {words}")
            for words in ("IGNORE", "REPLACE", "IGNORE SELECT 1", "REPLACE AS SELECT 1", "ON COMMIT DELETE ROWS")
        ),
        *(ORDERS.format(f" {option}") for option in ("UNION = (secrets)", "INSERT_METHOD = LAST", "DATA DIRECTORY = '/x'")),
        *(
            ORDERS.format(f" {option}")
            for option in ("INDEX DIRECTORY = '/x'", "CONNECTION = 'x'", "TABLESPACE = x", "AUTOEXTEND_SIZE = 1")
        ),
        *(ALTER.format(f"{clause}") for clause in ("DISABLE KEYS", "ENABLE KEYS", "DISCARD TABLESPACE", "IMPORT TABLESPACE")),
        *(ALTER.format(f"{clause} PARTITION LOCAL p") for clause in ("OPTIMIZE", "REBUILD", "ANALYZE", "REPAIR", "CHECK")),
        ALTER.format("COALESCE PARTITION NO_WRITE_TO_BINLOG 1"),
        ALTER.format("REORGANIZE PARTITION NO_WRITE_TO_BINLOG p INTO (PARTITION q VALUES LESS THAN (9))"),
        *(f"ALTER {word} TABLE orders ADD COLUMN x INT" for word in ("ONLINE", "OFFLINE", "QUICK", "IGNORE IGNORE")),
        "CREATE TEMPORARY TABLE orders (id INT)",
        "CREATE ONLINE INDEX i ON orders (v)",
        "ALTER TABLE orders WAIT 9 ADD COLUMN x INT",
    ],
)
def test_a_word_that_tidb_ignores_or_does_not_know_waits_if_no_grammar_accepts_it(statement: str) -> None:
    assert judge(statement, "shop").objection


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.name)
def test_what_a_person_approved_is_written_to_the_binlog_too(server: Server) -> None:
    adapted = adapt_for(ALTER.format("COALESCE PARTITION NO_WRITE_TO_BINLOG 1"), server, "shop")
    assert words(adapted.statement) == words(ALTER.format("COALESCE PARTITION 1"))
    assert "binlog" in adapted.notices[0]


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.name)
def test_ignore_is_left_out_with_a_notice(server: Server) -> None:
    adapted = adapt_for("ALTER IGNORE TABLE orders DROP COLUMN v", server, "shop")
    assert adapted.statement == "ALTER TABLE orders DROP COLUMN v"
    assert adapted.notices == ("IGNORE was left out: TiDB takes no notice of it, and the target could delete rows.",)


STATEMENTS = (
    "CREATE TABLE orders (id INT PRIMARY KEY, uk INT, v VARCHAR(3) COLLATE 'utf8mb4_bin' COMMENT 'it''s */',"
    " n INT DEFAULT NEXT VALUE FOR s, CONSTRAINT c FOREIGN KEY (uk) REFERENCES secrets (id), INDEX `*/` (uk)) COMMENT = '*/ , x'",
    "ALTER TABLE orders ADD COLUMN c INT REFERENCES secrets (id), ADD CONSTRAINT c FOREIGN KEY (uk) REFERENCES secrets (id)",
    "CREATE DEFINER = root@localhost SQL SECURITY DEFINER VIEW v AS WITH secrets AS (SELECT '*/ (') SELECT * FROM secrets",
    "ALTER TABLE orders RENAME COLUMN a TO b, RENAME INDEX i TO j, DROP COLUMN d, ADD CHECK (a > 0), ENGINE = CSV",
)


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.name)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_what_tidb_executes_in_its_comments_is_adapted_like_the_rest(statement: str, server: Server) -> None:
    expected = words(sent(statement, server, TableId("shop", "secrets")))
    assert expected
    for seed in range(200):
        text = hidden(statement, Random(seed))
        assert words(text) == words(statement)
        assert words(sent(text, server, TableId("shop", "secrets"))) == expected, text
        assert "/*" not in rendered(words(text) or ())
        plain = adapt_for(text, server, "shop", [TableId("shop", "secrets")]).statement
        assert words(plain) == expected, text


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.name)
@pytest.mark.parametrize("entry", benign_statements(), ids=lambda entry: entry.name)
def test_no_server_gets_a_comment_that_another_one_would_skip(entry: Statement, server: Server) -> None:
    """Whatever kind of statement it is, and whatever words are in the comment."""
    plain = rendered(words(entry.sql) or ())
    try:
        expected = words(adapt_for(entry.sql, server, "shop").statement)
    except UnadaptableError:
        return
    for text in (entry.sql, *(hidden(plain, Random(seed)) for seed in range(5))):
        if words(text) == words(plain):  # the comment does not end inside a name with its database
            sent = adapt_for(text, server, "shop").statement
            assert "/*" not in outside(sent)
            assert words(sent) == expected


@pytest.mark.parametrize("quote", ["{}", "'{}'", '"{}"', "`{}`"])
def test_a_collation_in_quotes_is_one_too(quote: str) -> None:
    name, charset = quote.format("utf8mb4_general_ci"), quote.format("latin1")
    statement = f"CREATE TABLE t (a CHAR(3) CHARACTER SET {charset} COLLATE {name} NOT NULL, b CHAR(3) CHARSET = {charset} NULL)"
    by_bytes = collation.spell_out(statement, by_bytes=True)
    assert by_bytes == (
        "CREATE TABLE t (a CHAR(3) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL,"
        " b CHAR(3) CHARSET = utf8mb4 COLLATE utf8mb4_0900_bin NULL)"
    )
    spelled = collation.spell_out(statement)
    assert spelled == statement.replace(" NULL)", " COLLATE latin1_bin NULL)")
    lacking = Server("MariaDB", lambda known: known not in ("utf8mb4_0900_ai_ci", "gb18030_bin"))
    lacked = f"ALTER TABLE t CONVERT TO CHARACTER SET {quote.format('gb18030')} COLLATE {quote.format('utf8mb4_0900_ai_ci')}"
    adapted = "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_nopad_ai_ci"
    assert adapt_for(lacked, lacking).statement == adapted


@pytest.mark.parametrize("text", ["'x y'", "'x; DROP TABLE t'", "`a``b`", "ลูก", "'é'"])
def test_no_server_is_asked_about_a_collation_that_is_no_word(text: str) -> None:
    asked: list[str] = []
    statement = f"ALTER TABLE t ADD COLUMN a CHAR(3) AS (b COLLATE {text})"
    assert adapt_for(statement, Server("MySQL", knows_collation=asked.append)).statement == statement
    assert asked == []


@pytest.mark.parametrize("name", ["x$CHARSET", "e\u0301CHARSET", "x\u00a0CHARSET", "CHARSET$", "ก\u0e34COLLATE", "a.CHARSET"])
def test_a_keyword_in_a_name_is_none(name: str) -> None:
    statement = f"CREATE TABLE t (a INT AS ({name} + 1), b INT AS (CHECK$ + $DEFAULT), INDEX i (x$UNIQUE))"
    assert collation.spell_out(statement, by_bytes=True) == statement
    assert all(adapt_for(statement, server).statement == statement for server in SERVERS)


def test_a_partition_that_is_named_with_a_blank_is_one() -> None:
    before = ("PARTITION `a b` VALUES LESS THAN (1) ENGINE = InnoDB",)
    now = ("PARTITION `c d` VALUES LESS THAN (1) ENGINE = InnoDB",)
    assert compared(before, ("x",), (*now, "x"), repeatable=False) is Begun.UNCLEAR


DEFINITIONS = (
    "a INT NOT NULL",
    "`b` VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL DEFAULT ', NOT NULL AS (' COMMENT ') COLLATE utf8mb4_bin'",
    "c VARCHAR(16) COLLATE utf8mb4_bin UNIQUE",
    "d VARCHAR(16) COLLATE utf8mb4_0900_ai_ci NULL",
    "e DECIMAL(5, 2) UNSIGNED NOT NULL DEFAULT '0.00'",
    "f INT GENERATED ALWAYS AS (id + 1) VIRTUAL",
    "g VARCHAR(20) NOT NULL AS (CONCAT(v, 'x')) STORED NOT NULL COLLATE utf8mb4_general_ci COMMENT 'NULL'",
    "h JSON AS (j->'$.x') NULL",
    "i INT NOT NULL CHECK (i IS NOT NULL) NOT ENFORCED",
    "k VECTOR(3) NOT NULL",
    "l BIGINT /*T![auto_rand] AUTO_RANDOM(5) */ NOT NULL",
    "m INT REFERENCES o (id) ON DELETE SET NULL NOT NULL",
    "n BINARY(16) NOT NULL DEFAULT (UUID_TO_BIN(UUID()))",
    "o ENUM('x', 'AS (', 'NOT NULL') NOT NULL COLUMN_FORMAT FIXED STORAGE DISK",
    "p INT DEFAULT (NEXT VALUE FOR s) COMMENT 'p'",
    "q TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3)",
)
INDEXES = (
    "INDEX i1 (id)",
    "INDEX i2 ((id + 1))",
    "UNIQUE INDEX i3 (id) GLOBAL",
    "UNIQUE KEY i4 (v) WHERE v IS NOT NULL",
    "INDEX i5 (v) COMMENT 'INVISIBLE' INVISIBLE",
    "CONSTRAINT i6 UNIQUE (id) VISIBLE",
    "VECTOR INDEX i7 ((VEC_COSINE_DISTANCE(k))) USING HNSW",
    "CONSTRAINT i8 FOREIGN KEY (id) REFERENCES secrets (id)",
)
CHECKS = ("CHECK (id > 0)", "CONSTRAINT i9 CHECK (v IS NOT NULL AND id IN (1, 2)) NOT ENFORCED")


def parts_of(statement: str) -> list[list[str]]:
    """The words of each definition in a CREATE TABLE, or in the ADD clauses of an ALTER TABLE, without ADD COLUMN."""
    read = read_statement(statement, "shop")
    found: list[tuple[Word, ...]] = list(read.definitions)
    for action in read.actions:
        cursor = Cursor(action)
        assert cursor.accept("ADD")
        cursor.accept("COLUMN")
        found += split_at_commas(cursor.group()) if cursor.peek().says("(") else [cursor.rest()]
    assert all(found), statement
    return [[word.text for word in part] for part in found]


@pytest.mark.long
@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.name)
@given(
    st.lists(st.sampled_from(DEFINITIONS + INDEXES + CHECKS), unique=True, min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
@settings(max_examples=150, deadline=None)
def test_a_definition_is_adapted_in_the_same_way_wherever_it_is(server: Server, parts: list[str], chance: Random) -> None:
    lacking = Server(server.name, knows_collation=lambda name: "0900" not in name or server.name != "MariaDB")
    parts = sorted(parts, key=CHECKS.__contains__)  # only in parentheses may a CHECK come before a column
    inside = parts if chance.random() < 0.5 else chance.sample(parts, len(parts))
    add = chance.choice(["ADD", "ADD COLUMN", "add column", "ADD COLUMN IF NOT EXISTS"])

    def adapted(statement: str) -> tuple[list[list[str]], set[str]]:
        made = adapt_for(statement, lacking, "shop", [TableId("shop", "secrets")])
        told = {notice.replace("ADD ", "") for notice in made.notices if "nothing of the statement" not in notice}
        return parts_of(made.statement), told

    alone = [adapted(f"CREATE TABLE t (id INT PRIMARY KEY, {part})") for part in inside]
    definitions = [definition for found, _ in alone for definition in found[1:]]
    notices = {notice for _, told in alone for notice in told}
    created = adapted(f"CREATE TABLE t (id INT PRIMARY KEY, {', '.join(inside)})")
    assert (created[0][1:], created[1]) == (definitions, notices)
    assert adapted(f"ALTER TABLE t {add} ({', '.join(inside)})".replace("IF NOT EXISTS ", "")) == (definitions, notices)
    listed = [part if part in INDEXES + CHECKS else f"COLUMN {part}" for part in inside]
    assert adapted("ALTER TABLE t " + ", ".join(f"ADD {part}" for part in listed)) == (definitions, notices)
    mixed = f"ALTER TABLE t ADD COLUMN z INT, {add} ({', '.join(inside)}), ADD INDEX zz (z)"
    assert adapted(mixed.replace("IF NOT EXISTS ", ""))[0] == [["z", "INT"], *definitions, ["INDEX", "zz", "(", "z", ")"]]


def test_columns_in_parentheses_keep_what_is_their_own() -> None:
    mariadb = SERVERS[0]
    for own, generated in (
        ("`a` INT NOT NULL", "`g` INT GENERATED ALWAYS AS(`id`+1) VIRTUAL"),
        ("`c` VARCHAR(16) COLLATE utf8mb4_bin UNIQUE", "`g` VARCHAR(20) AS (CONCAT(`v`, 'x'))"),
    ):
        for statement in (f"ALTER TABLE `t` ADD COLUMN ({own}, {generated})", f"ALTER TABLE `t` ADD ({generated}, {own})"):
            assert adapt_for(statement, mariadb).statement == statement
            assert adapt_for(statement, mariadb).notices == ()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("ALTER TABLE t ADD COLUMN (a INT NOT NULL, g INT AS (id))", "ALTER TABLE t ADD COLUMN (a INT, g INT AS (id))"),
        (
            "ALTER TABLE t ADD COLUMN (g TEXT AS (id), c TEXT COLLATE x)",
            "ALTER TABLE t ADD COLUMN (g TEXT COLLATE x AS (id), c TEXT)",
        ),
        ("CREATE TABLE t (a INT, b INT)", "CREATE TABLE t (a INT)"),
        ("CREATE TABLE t (a INT)", "CREATE TABLE t (a INT, b INT)"),
        ("ALTER TABLE t MODIFY a INT DEFAULT 1", "ALTER TABLE t MODIFY a INT"),
        ("ALTER TABLE t CHANGE a b CHAR(3) NOT NULL", "ALTER TABLE t CHANGE a b CHAR(4) NOT NULL"),
        ("ALTER TABLE t ADD a INT UNSIGNED", "ALTER TABLE t ADD a INT"),
        ("ALTER TABLE t ADD a INT COMMENT 'x'", "ALTER TABLE t ADD a INT COMMENT 'y'"),
    ],
)
def test_a_column_that_an_adaptation_would_alter_is_refused(before: str, after: str) -> None:
    require_same_columns(before, before.replace("NOT NULL,", "NOT NULL ,"), "shop")
    with pytest.raises(UnadaptableError, match="in another way"):
        require_same_columns(before, after, "shop")


def test_an_adaptation_that_alters_a_column_reaches_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(draft: Draft) -> None:
        draft.replace(re.compile(r"\s+NOT NULL"), "", "")

    monkeypatch.setattr(mariadb_adaptation, "rewrite", careless)
    assert adapt_for("ALTER TABLE t ADD COLUMN g INT AS (a) NOT NULL", SERVERS[0]).statement.endswith("AS (a)")
    with pytest.raises(UnadaptableError, match="defines a in another way"):
        adapt_for("ALTER TABLE t ADD COLUMN (a INT NOT NULL, g INT AS (a) NOT NULL)", SERVERS[0])


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.name)
@pytest.mark.parametrize("mark", ["", "= "])
@pytest.mark.parametrize("quote", ["", "'", "`"])
def test_a_collation_and_a_character_set_are_adapted_however_they_are_written(server: Server, mark: str, quote: str) -> None:
    for option in ("COLLATE", "CHARACTER SET", "CHAR SET", "CHARSET"):
        name = "utf8mb4_bin" if option == "COLLATE" else "utf8mb4"
        equals = "" if option == "COLLATE" else mark
        column = f"`a` VARCHAR(9) {option} {equals}{quote}{name}{quote}"
        assert name in adapt_for(f"CREATE TABLE `t` ({column}, `b` INT /*T! GLOBAL */)", server, "shop").statement
    if server.name == "MariaDB":
        old = Server("MariaDB", knows_collation=lambda name: "0900" not in name)
        adapted = adapt_for(f"CREATE TABLE `t` (`a` VARCHAR(9) COLLATE {quote}utf8mb4_0900_bin{quote})", old, "shop")
        assert "0900" not in adapted.statement
