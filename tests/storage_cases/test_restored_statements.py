"""Statements as TiCDC restores them: in a string only quotes are doubled, and each string may name its character set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from building import Bucket

from headrace.errors import EXIT_OK
from person import Person
from places import Place
from storage_folder import ID, V

pytestmark = pytest.mark.pipeline


def text_column(name: str, **more: Any) -> dict[str, Any]:
    return {"ColumnName": name, "ColumnType": "VARCHAR", "ColumnPrecision": "50"} | more


def test_a_backslash_in_a_default_is_a_plain_character(place: Place, tmp_path: Path) -> None:
    target, uri = place.fresh()
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 x")
    columns = (ID, V, text_column("p", ColumnDefault="C:\\temp"), text_column("q", ColumnDefault="it's C:\\"))
    statement = (
        r"ALTER TABLE `t` ADD COLUMN `p` VARCHAR(50) DEFAULT _UTF8MB4'C:\temp', ADD COLUMN `q` VARCHAR(50) DEFAULT 'it''s C:\'"
    )
    bucket.schema("t", 200, columns, statement, 5)
    bucket.create("other", 300)
    bucket.rows("other/300/1", "I 310 1 y")
    bucket.checkpoint(400)
    ran = bucket.run(uri)
    assert (ran.code, ran.stopped) == (EXIT_OK, {})
    person = Person.at(place, target)
    assert person.run("SELECT p, q FROM test.t") == [("C:\\temp", "it's C:\\")]
    assert person.run("SELECT id FROM test.other") == [(1,)]


@pytest.mark.parametrize("text", ["gelöscht", "a\\tb", "two\nlines", "it's", "中😀"])
def test_a_text_in_an_expression_is_the_sources(text: str, place: Place, tmp_path: Path) -> None:
    """The unique key holds only rows that are not deleted; with another text both would have the same email in it."""
    target, uri = place.fresh()
    bucket = Bucket(tmp_path)
    literal = text.replace("'", "''")
    expression = f"IF(`v`=_UTF8MB4'{literal}', NULL, `email`)"
    statement = (
        "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(16),`email` VARCHAR(50),"
        f"`live` VARCHAR(50) GENERATED ALWAYS AS({expression}) VIRTUAL,UNIQUE `u`(`live`))"
    )
    bucket.schema("t", 100, (ID, V, text_column("email"), text_column("live")), statement, 3)
    bucket.rows("t/100/1", ("I", 110, 1, text, "a@x"), ("I", 111, 2, "new", "a@x"))
    bucket.checkpoint(400)
    ran = bucket.run(uri)
    assert (ran.code, ran.stopped) == (EXIT_OK, {})
    assert sorted(Person.at(place, target).run("SELECT id, v FROM test.t")) == [(1, text), (2, "new")]
