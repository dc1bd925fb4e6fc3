"""What must not reach a target is found by the words of a statement, however they are spelled."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ddl.grammar.statements import judge
from headrace.ddl.lexer import rendered, words
from headrace.model.table import TableId
from headrace.sinks.metadata_applier import Begun
from headrace.sinks.mysql import collation
from headrace.sinks.mysql.adaptation import Server, UnadaptableError, adapt_for
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
