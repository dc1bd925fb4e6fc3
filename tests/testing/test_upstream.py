"""The model of an upstream: what it writes leads to what it says must result."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay import as_bag, replay
from ticdc_files import read_schema_file

from headrace.model.table import Column, TableId
from headrace.model.types import ColumnType, TypeKind
from headrace.testing.ticdc_writer import TicdcWriter
from headrace.testing.upstream import Delete, Insert, Update, Upstream, column_definition

INT = ColumnType(TypeKind.INT)
KEYED, KEYLESS, UNIQUE = TableId("d", "keyed"), TableId("d", "keyless"), TableId("d", "unique")
CSV = {"include_commit_ts": True, "output_old_value": True}
CANAL = {"enable_tidb_extension": True}


def shop(root: Path, protocol: Any = "csv", **options: Any) -> Upstream:
    upstream = Upstream(TicdcWriter(root, protocol, **(options or CSV)))
    upstream.create_database("d")
    text = Column("v", ColumnType(TypeKind.VARCHAR, length=20))
    upstream.create_table(KEYED, [Column("id", INT, primary_key=True), text])
    upstream.create_table(KEYLESS, [Column("id", INT), text])
    upstream.create_table(UNIQUE, [Column("id", INT, nullable=False), text], unique=["id"])
    return upstream


def test_a_transaction_is_written_as_its_net_change_with_deletes_first(tmp_path: Path) -> None:
    upstream = shop(tmp_path, include_commit_ts=True, date_separator="none")
    upstream.execute(Insert(KEYED, {"id": 1, "v": "a"}), Insert(KEYED, {"id": 2, "v": "b"}))
    ts = upstream.execute(
        Insert(KEYED, {"id": 9, "v": "gone again"}),
        Update(KEYED, (2,), {"id": 3}),
        Update(KEYED, (1,), {"v": "x"}),
        Update(KEYED, (1,), {"v": "y"}),
        Delete(KEYED, (9,)),
    )
    (first, *_), last = upstream.writer.flush(KEYED), b'"keyed","d",%d,' % ts
    assert first.read_bytes().splitlines()[2:] == [b'"D",' + last + b'2,"b"', b'"I",' + last + b'3,"b"', b'"U",' + last + b'1,"y"']
    assert upstream.expected_rows(KEYED) == [{"id": 1, "v": "y"}, {"id": 3, "v": "b"}]


@pytest.mark.parametrize(
    "statements",
    [
        [Insert(KEYED, {"id": 2}), Insert(KEYED, {"id": 1})],
        [Insert(KEYED, {"id": 2}), Delete(KEYED, (7,))],
        [Insert(KEYED, {"id": 2}), Insert(KEYED, {"id": 3, "w": 1})],
        [Insert(KEYED, {"id": 2}), Insert(KEYED, {"v": "without a key"})],
        [Delete(KEYED, (1,)), Insert(TableId("d", "nowhere"), {})],
    ],
)
def test_a_transaction_that_fails_changes_nothing(statements: list[Any], tmp_path: Path) -> None:
    upstream = shop(tmp_path)
    upstream.execute(Insert(KEYED, {"id": 1}))
    with pytest.raises((KeyError, ValueError)):
        upstream.execute(*statements)
    assert upstream.expected_rows(KEYED) == [{"id": 1, "v": None}]
    assert upstream.changes == 1


def test_schema_changes_are_written_as_tidb_words_them(tmp_path: Path) -> None:
    upstream = shop(tmp_path)
    upstream.add_column(KEYED, Column("n", ColumnType(TypeKind.DECIMAL, length=10, scale=2), nullable=False, default="1.50"))
    upstream.drop_column(KEYED, "v")
    upstream.truncate_table(KEYED)
    upstream.rename_table(KEYED, TableId("d", "renamed"))
    upstream.drop_table(TableId("d", "renamed"))
    upstream.drop_database("d")
    files = sorted((read_schema_file(path) for path in tmp_path.rglob("schema_*.json")), key=lambda file: file.version)
    assert [(file.type_code, file.statement) for file in files if file.table_id not in (KEYLESS, UNIQUE)] == [
        (1, "CREATE DATABASE `d`"),
        (3, "CREATE TABLE `d`.`keyed` (`id` INT NOT NULL,`v` VARCHAR(20),PRIMARY KEY(`id`))"),
        (5, "ALTER TABLE `d`.`keyed` ADD COLUMN `n` DECIMAL(10,2) NOT NULL DEFAULT 1.50"),
        (6, "ALTER TABLE `d`.`keyed` DROP COLUMN `v`"),
        (11, "TRUNCATE TABLE `d`.`keyed`"),
        (14, "RENAME TABLE `d`.`keyed` TO `d`.`renamed`"),
        (4, "DROP TABLE `d`.`renamed`"),
        (2, "DROP DATABASE `d`"),
    ]
    assert upstream.schema_changes == len(files)


def test_an_added_column_gives_the_rows_its_default(tmp_path: Path) -> None:
    upstream = shop(tmp_path)
    upstream.execute(Insert(KEYED, {"id": 1}))
    upstream.add_column(KEYED, Column("n", INT, default="7"))
    upstream.add_column(KEYED, Column("m", INT, nullable=False))
    upstream.execute(Insert(KEYED, {"id": 2, "n": None, "m": 5}))
    assert [(row["n"], row["m"]) for row in upstream.expected_rows(KEYED)] == [(7, 0), (None, 5)]


def test_rows_of_a_keyless_table_are_found_by_all_their_values(tmp_path: Path) -> None:
    upstream = shop(tmp_path)
    upstream.execute(Insert(KEYLESS, {"id": 1, "v": "a"}), Insert(KEYLESS, {"id": 1, "v": "a"}))
    upstream.execute(Delete(KEYLESS, (1, "a")))
    upstream.execute(Update(KEYLESS, (1, "a"), {"v": "b"}))
    assert upstream.expected_rows(KEYLESS) == [{"id": 1, "v": "b"}]


def test_time_passes_with_commits_and_names_the_date_folders(tmp_path: Path) -> None:
    upstream = shop(tmp_path)
    upstream.execute(Insert(KEYED, {"id": 1}))
    upstream.checkpoint()
    upstream.advance(24 * 3600 * 1000)
    upstream.execute(Insert(KEYED, {"id": 2}))
    checkpoint_ts = upstream.checkpoint()
    assert sorted(path.parent.name for path in tmp_path.rglob("*.csv")) == ["2026-01-01", "2026-01-02"]
    assert (tmp_path / "metadata").read_text(encoding="utf-8") == f'{{"checkpoint-ts":{checkpoint_ts}}}'


def test_columns_are_defined_with_their_whole_type() -> None:
    choice = ColumnType(TypeKind.ENUM, elements=("a", "it's"))
    assert column_definition(Column("e", choice, default="it's")) == "`e` ENUM('a','it''s') DEFAULT _UTF8MB4'it''s'"
    assert column_definition(Column("t", ColumnType(TypeKind.DATETIME, scale=3))) == "`t` DATETIME(3)"
    assert (
        column_definition(Column("n", ColumnType(TypeKind.BIGINT, unsigned=True), nullable=False)) == "`n` BIGINT UNSIGNED NOT NULL"
    )


ACTION_NAMES = ["insert", "update", "move", "delete", "add", "drop", "truncate", "rename", "flush"]
ACTIONS = st.lists(st.tuples(st.sampled_from(ACTION_NAMES), st.integers(0, 9)), max_size=30)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(actions=ACTIONS, protocol=st.sampled_from(["csv", "canal-json"]), keyless=st.booleans())
def test_whatever_happens_the_files_lead_to_the_expected_rows(actions: list[tuple[str, int]], protocol: str, keyless: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        upstream = shop(Path(folder), protocol, **(CSV if protocol == "csv" else CANAL))
        table_id = KEYLESS if keyless else KEYED
        for action, number in actions:
            table_id = act(upstream, table_id, action, number)
        upstream.checkpoint()
        found = replay(Path(folder), upstream.writer.options)
        assert found.keys() == set(upstream.tables)
        for name in upstream.tables:
            assert as_bag(found[name]) == as_bag(upstream.expected_rows(name))


def act(upstream: Upstream, table_id: TableId, action: str, number: int) -> TableId:
    """Does one thing where it is possible; returns the table's name afterwards."""
    schema, rows = upstream.schema(table_id), upstream.expected_rows(table_id)
    chosen = rows[number % len(rows)] if rows else {}
    key = tuple(chosen.get(name) for name in schema.handle_key or chosen)
    taken = {row["id"] for row in rows} if schema.handle_key else set()
    extra = f"c{number}"
    if action == "insert" and number not in taken:
        upstream.execute(Insert(table_id, {"id": number, "v": f"text {number}"}))
    elif action == "update" and rows:
        upstream.execute(Update(table_id, key, {"v": f"changed {number}"}))
    elif action == "move" and rows and number not in taken:
        upstream.execute(Update(table_id, key, {"id": number}))
    elif action == "delete" and rows:
        upstream.execute(Delete(table_id, key))
    elif action == "add" and not schema.has_column(extra):
        upstream.add_column(table_id, Column(extra, INT, default=str(number) if number % 2 else None))
    elif action == "drop" and schema.has_column(extra):
        upstream.drop_column(table_id, extra)
    elif action == "truncate":
        upstream.truncate_table(table_id)
    elif action == "flush":
        upstream.writer.flush()
    elif action == "rename" and TableId("d", f"r{number}") not in upstream.tables:
        upstream.rename_table(table_id, TableId("d", f"r{number}"))
        return TableId("d", f"r{number}")
    return table_id
