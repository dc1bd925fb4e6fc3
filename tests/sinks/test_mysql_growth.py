"""Statements are rewritten for a server in time that grows in proportion to their length, whatever is repeated in them."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from headrace.ddl.lexer import words
from headrace.ddl.statement import read_statement
from headrace.errors import DefinitionError
from headrace.model.table import TableId
from headrace.sinks.mysql import collation
from headrace.sinks.mysql.adaptation import Server, adapt_for
from headrace.sinks.mysql.settings import read_settings

pytestmark = pytest.mark.long

REPEATED = 4_000
CONSTRUCTS: dict[str, Callable[[int], str]] = {
    "string": lambda n: f"CREATE TABLE t (id INT COMMENT '{'x' * n}')",
    "quoted name": lambda n: f"CREATE TABLE t (`{'x' * n}` INT)",
    "word": lambda n: f"CREATE TABLE t ({'x' * n} INT)",
    "digits": lambda n: f"CREATE TABLE t (id INT DEFAULT {'1' * n})",
    "dots": lambda n: f"CREATE TABLE t (id INT AS (t{'.t' * n}))",
    "view of a string": lambda n: f"CREATE VIEW v AS SELECT '{'x' * n}' FROM t",
    "comment of a table": lambda n: f"CREATE TABLE t (id INT) COMMENT '{'x' * n}'",
    "members": lambda n: f"ALTER TABLE t ADD COLUMN e ENUM ({', '.join(['0'] * n)})",
    "arrows": lambda n: "CREATE TABLE t (j JSON, c INT AS (" + " + ".join(["j->'$.a'"] * n) + "))",
    "texts with a character set": lambda n: "CREATE TABLE t (c TEXT AS (CONCAT(" + ", ".join(["_utf8mb4'a'"] * n) + ")))",
    "parentheses": lambda n: f"CREATE TABLE t (a INT AS ({'(' * n}a LIKE 'x'{')' * n}), b INT AS ({'(a) + ' * n} 1))",
    "comments of partitions": lambda n: (
        "CREATE TABLE t (a INT) PARTITION BY LIST (a) ("
        + ", ".join(f"PARTITION p{number} VALUES IN ({number}) COMMENT 'it''s'" for number in range(n))
        + ")"
    ),
    "foreign keys": lambda n: "CREATE TABLE t (" + ", ".join(["FOREIGN KEY (a) REFERENCES secrets (id)", "a INT"] * n) + ")",
    "references": lambda n: "CREATE TABLE t (" + ", ".join(["a INT REFERENCES secrets (id)"] * n) + ")",
    "sequences": lambda n: "CREATE TABLE t (" + ", ".join(["a INT DEFAULT NEXT VALUE FOR s"] * n) + ")",
    "checks": lambda n: "CREATE TABLE t (" + ", ".join(["a INT CHECK (a > 0)"] * n) + ")",
    "character sets": lambda n: "CREATE TABLE t (" + ", ".join(["a CHAR(3) CHARACTER SET latin1"] * n) + ")",
    "comments of TiDB": lambda n: "CREATE TABLE t (" + ", ".join(["a INT /*T![x] AUTO_RANDOM(5) */ /*T! NULL */"] * n) + ")",
    "collations": lambda n: "CREATE TABLE t (c TEXT AS (CONCAT(" + ", ".join(["'a' COLLATE utf8mb4_bin"] * n) + ")))",
}


def forget_parsed() -> None:
    """Fills the caches of parsed statements with one text: else the shorter of two texts would be found there, and not parsed."""
    words("x" * (2 << 20))
    read_statement("x" * (2 << 20), "d")


@pytest.mark.parametrize("server", ["MariaDB", "MySQL", "TiDB"])
@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_twice_as_many_take_about_twice_as_long(construct: str, server: str) -> None:
    def seconds(count: int) -> float:
        text, taken = CONSTRUCTS[construct](count), []
        for _ in range(2):
            forget_parsed()
            began = time.process_time()
            adapt_for(collation.spell_out(text), Server(server), "d", [TableId("d", "secrets")])
            taken.append(time.process_time() - began)
        return min(taken)

    for _ in range(3):  # what other processes do to the machine may meet one of the two; time that grows faster shows each time
        once, twice = seconds(REPEATED), seconds(2 * REPEATED)
        if twice < 3 * once + 0.2:
            return
    pytest.fail(f"{once:.3f} s for {REPEATED}, {twice:.3f} s for twice as many")


def test_a_long_text_in_place_of_a_uri_is_refused_at_once() -> None:
    began = time.process_time()
    with pytest.raises(DefinitionError):
        read_settings("/" + "data" * 25_000)
    assert time.process_time() - began < 1
