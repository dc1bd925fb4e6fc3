"""What a view in the target may not lead to: rows in tables of others, and a run that does not end."""

from __future__ import annotations

import itertools
import re
import threading
from pathlib import Path
from typing import Any

import pymysql
import pytest
from test_hostile_statements import OPTIONS, Scene

from headrace.ddl.lexer import Word, rendered, words
from person import Person
from places import Place
from servers import MariaDb

pytestmark = pytest.mark.pipeline

ID_AND_V = ({"ColumnName": "id", "ColumnType": "INT"}, {"ColumnName": "v", "ColumnType": "VARCHAR", "ColumnPrecision": "16"})
SYNTAX = 1064


def with_view(place: Place, folder: Path, query: str, columns: Any = "id") -> Scene:
    """Tables ``orders`` and ``customers`` with a row each, and a view over the first."""
    scene = Scene(place, folder)
    for table in ("orders", "customers"):
        scene.bucket.create(table, database="shop")
        scene.bucket.rows(f"{table}/100/1", "I 110 1 a", database="shop")
    scene.bucket.schema("v", 200, columns, f"CREATE VIEW `v` AS {query}", 21, database="shop")
    scene.bucket.at(300, sink=scene.uri, **OPTIONS)
    assert ("shop", "v") in scene.target.tables() or not scene.is_mariadb
    return scene


def test_no_row_goes_through_a_view_into_a_table_that_somebody_made_since(place: Place, tmp_path: Path) -> None:
    scene = with_view(place, tmp_path, "SELECT `id`, `v` FROM `orders`", ID_AND_V)
    scene.bucket.schema("orders", 310, "id,v", "DROP TABLE `orders`", 4, database="shop")
    scene.bucket.at(320, sink=scene.uri, **OPTIONS)
    scene.person.run('CREATE TABLE "shop"."orders" (id INT PRIMARY KEY, v VARCHAR(16))')
    scene.person.run('INSERT INTO "shop"."orders" VALUES (1, \'theirs\')')
    scene.bucket.rows("v/200/1", "D 330 1 theirs", "I 331 2 hostile", database="shop")
    ran = scene.bucket.at(400, sink=scene.uri, **OPTIONS)
    assert scene.person.run('SELECT id, v FROM "shop"."orders"') == [(1, "theirs")]
    if scene.is_mariadb:
        assert "the target has a view of this name, and rows are written only into tables" in ran.stopped["shop.v"]


def test_no_view_is_read_whose_query_does_not_end(place: Place, tmp_path: Path) -> None:
    """Its query meets no row, and looks at 299^8 combinations to find that out."""
    tables = " JOIN ".join(f"orders AS {name}" for name in "abcdefgh")
    scene = with_view(place, tmp_path, f"SELECT a.`id` FROM {tables} WHERE {'+'.join(f'{name}.id' for name in 'abcdefgh')} < 0")
    scene.bucket.rows("orders/100/2", *[f"I 302 {number} a" for number in range(2, 300)], database="shop")
    scene.bucket.schema("v", 306, "id", "ALTER TABLE `v` COMMENT 'x'", 9, database="shop")
    scene.bucket.schema("w", 307, "id", "RENAME TABLE `v` TO `w`", 14, database="shop")
    scene.bucket.rows("customers/100/2", "I 390 5 new", database="shop")
    running = threading.Thread(target=scene.bucket.at, args=(400,), kwargs={"sink": scene.uri, **OPTIONS}, daemon=True)
    running.start()
    running.join(60)
    ended = not running.is_alive()
    if not ended:
        end_queries(scene.person)
    assert ended
    assert scene.person.run('SELECT id FROM "shop"."customers" ORDER BY id') == [(1,), (5,)]


def end_queries(person: Person) -> None:
    """So that a failed test leaves nothing that goes on."""
    running = "SELECT id FROM information_schema.processlist WHERE user = 'headrace' AND info IS NOT NULL"
    for (number,) in person.run(running):
        person.run(f"KILL {number}")


@pytest.mark.server
@pytest.mark.parametrize(("letters", "length"), [("10exb_$.a+", 4), ("1e.xa", 5)])
def test_what_is_one_name_here_is_one_name_there(mariadb: MariaDb, letters: str, length: int) -> None:
    """Each spelling of a name without backquotes, so that no rest of it is another word for the server."""
    misread = []
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE names")
        cursor.execute("CREATE TABLE names.empty (nothing INT)")
        cursor.execute("USE names")
        for spelling in ("".join(some) for n in range(1, length + 1) for some in itertools.product(letters, repeat=n)):
            found = words(spelling)
            if found and any(map(begins_with_a_digit, found)) and not is_read_alike(cursor, found):
                misread.append(spelling)
    assert not misread


def begins_with_a_digit(word: Word) -> bool:
    return not word.is_literal and word.text[0].isdigit()


def is_read_alike(cursor: pymysql.cursors.Cursor, found: tuple[Word, ...]) -> bool:
    """Whether the server refuses the words as it does such names: they are columns that it does not have, or no syntax at all."""
    try:
        cursor.execute(f"SELECT {rendered(found)} FROM empty")
    except pymysql.err.MySQLError as error:
        code, message = error.args
        unknown = re.search("^Unknown (?:column|table|database) '([^']*)'", message)
        names = {word.text for word in found if not word.is_literal}
        return code == SYNTAX or (unknown is not None and set(unknown[1].split(".")) <= names)
    return False
