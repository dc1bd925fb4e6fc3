"""Schema changes of the model: how TiCDC words and files them, and what they leave in the table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ticdc_files import read_schema_file

from headrace.model.table import Column, Generated, TableId
from headrace.model.types import ColumnType, TypeKind
from headrace.testing.ticdc_writer import TicdcWriter
from headrace.testing.upstream import Insert, Update, Upstream
from headrace.testing.upstream_ddl import (
    AddColumn,
    AddIndex,
    AddPrimaryKey,
    Clause,
    DropColumn,
    DropIndex,
    DropPrimaryKey,
    ModifyColumn,
    RenameColumn,
    SetDefault,
)

INT, TEXT = ColumnType(TypeKind.INT), ColumnType(TypeKind.VARCHAR, length=20)
A, B, X = (TableId("d", name) for name in "abx")
ID = Column("id", INT, nullable=False, primary_key=True)


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    made = Upstream(TicdcWriter(tmp_path, include_commit_ts=True, output_old_value=True, output_column_id=True))
    made.create_table(A, [ID, Column("v", TEXT), Column("n", INT)])
    made.execute(Insert(A, {"id": 1, "v": "x", "n": 5}))
    return made


def statements(root: Path, version: int) -> dict[TableId, tuple[int, str]]:
    files = [read_schema_file(path) for path in root.rglob(f"schema_{version}_*.json")]
    return {file.table_id: (file.type_code, file.statement) for file in files}


@pytest.mark.parametrize(
    ("clauses", "type_code", "text", "row"),
    [
        ([AddColumn(Column("w", INT, default="7"), "")], 5, "ADD COLUMN `w` INT DEFAULT 7 FIRST", [7, 1, "x", 5]),
        ([AddColumn(Column("w", INT), "id")], 5, "ADD COLUMN `w` INT AFTER `id`", [1, None, "x", 5]),
        ([ModifyColumn("n", Column("n", ColumnType(TypeKind.BIGINT)), "")], 12, "MODIFY COLUMN `n` BIGINT FIRST", [5, 1, "x"]),
        ([ModifyColumn("n", Column("m", INT, default="1"))], 12, "CHANGE COLUMN `n` `m` INT DEFAULT 1", [1, "x", 5]),
        ([RenameColumn("v", "w")], 12, "RENAME COLUMN `v` TO `w`", [1, "x", 5]),
        ([SetDefault("v", "y")], 15, "ALTER COLUMN `v` SET DEFAULT _UTF8MB4'y'", [1, "x", 5]),
        ([AddIndex("i", ("v", "n"))], 7, "ADD INDEX `i`(`v`, `n`)", [1, "x", 5]),
        ([AddIndex("u", ("n",), unique=True)], 7, "ADD UNIQUE `u`(`n`)", [1, "x", 5]),
        ([DropColumn("v"), AddColumn(Column("w", INT))], 61, "DROP COLUMN `v`, ADD COLUMN `w` INT", [1, 5, None]),
    ],
)
def test_clauses_change_the_rows_and_are_worded_as_tidb_does(
    upstream: Upstream, tmp_path: Path, clauses: list[Clause], type_code: int, text: str, row: list[object]
) -> None:
    version = upstream.alter(A, *clauses)
    assert statements(tmp_path, version) == {A: (type_code, f"ALTER TABLE `d`.`a` {text}")}
    assert [list(found.values()) for found in upstream.expected_rows(A)] == [row]


def test_columns_keep_their_id_and_no_id_returns(upstream: Upstream) -> None:
    upstream.alter(A, RenameColumn("v", "w"))
    upstream.alter(A, DropColumn("n"))
    upstream.alter(A, AddColumn(Column("n", INT), ""))
    assert {column.name: column.column_id for column in upstream.schema(A).columns} == {"n": "4", "id": "1", "w": "2"}


@pytest.mark.parametrize(
    "clause",
    [
        AddColumn(Column("n", INT)),
        DropColumn("id"),
        RenameColumn("v", "n"),
        AddPrimaryKey(("n",)),
        AddIndex("u", ("n",), unique=True),
    ],
)
def test_what_tidb_refuses_changes_nothing(upstream: Upstream, clause: Clause) -> None:
    upstream.execute(Insert(A, {"id": 2, "n": 5}))
    shape, rows = upstream.schema(A), upstream.expected_rows(A)
    with pytest.raises(ValueError, match=r"d\.a"):
        upstream.alter(A, clause)
    assert (upstream.schema(A), upstream.expected_rows(A)) == (shape, rows)


def test_a_table_without_its_primary_key_is_known_by_its_unique_key(upstream: Upstream) -> None:
    upstream.create_table(B, [ID, Column("u", INT, nullable=False)], unique=["u"], nonclustered=True)
    upstream.execute(Insert(B, {"id": 1, "u": 8}))
    upstream.alter(B, DropPrimaryKey())
    assert upstream.keys(B) == [(8,)]
    upstream.alter(B, AddPrimaryKey(("id",)), DropIndex("uk"))
    assert upstream.keys(B) == [(1,)]


def test_of_several_renames_each_tables_last_step_is_written_and_all_have_one_version(upstream: Upstream, tmp_path: Path) -> None:
    upstream.create_table(B, [Column("k", INT, primary_key=True)])
    version = upstream.rename_tables((A, X), (B, A), (X, B))
    assert statements(tmp_path, version) == {
        A: (14, "RENAME TABLE `d`.`b` TO `d`.`a`;"),
        B: (14, "RENAME TABLE `d`.`x` TO `d`.`b`;"),
    }
    assert (upstream.expected_rows(A), upstream.keys(B)) == ([], [(1,)])
    with pytest.raises(ValueError, match="cannot become"):
        upstream.rename_tables((A, X), (A, X))


def test_a_table_like_another_has_its_shape_and_none_of_its_rows(upstream: Upstream, tmp_path: Path) -> None:
    version = upstream.create_table_like(B, A)
    assert statements(tmp_path, version) == {B: (3, "CREATE TABLE `d`.`b` LIKE `d`.`a`")}
    assert upstream.expected_rows(B) == []
    upstream.alter(B, DropColumn("n"))
    assert upstream.schema(A).has_column("n")


def test_ranges_hold_rows_lose_them_and_write_each_into_its_own_directory(upstream: Upstream, tmp_path: Path) -> None:
    created = upstream.create_table(B, [ID], partitions={"p0": 10, "p1": 20})
    upstream.execute(Insert(B, {"id": 1}), Insert(B, {"id": 11}))
    upstream.execute(Update(B, (11,), {"id": 2}))
    with pytest.raises(ValueError, match="no partition"):
        upstream.execute(Insert(B, {"id": 20}))
    truncated = upstream.truncate_partition(B, "p0")
    added = upstream.add_partition(B, "p2", 30)
    dropped = upstream.drop_partition(B, "p1")
    assert upstream.expected_rows(B) == []
    upstream.execute(Insert(B, {"id": 11}), Insert(B, {"id": 3}))
    upstream.checkpoint()
    assert statements(tmp_path, truncated)[B] == (23, "ALTER TABLE `d`.`b` TRUNCATE PARTITION `p0`")
    assert statements(tmp_path, added)[B] == (19, "ALTER TABLE `d`.`b` ADD PARTITION (PARTITION `p2` VALUES LESS THAN (30))")
    assert statements(tmp_path, dropped)[B] == (20, "ALTER TABLE `d`.`b` DROP PARTITION `p1`")
    before, after = ({path.name for path in (tmp_path / "d/b" / str(v)).iterdir()} for v in (created, dropped))
    assert len(before) == len(after) == 2
    assert not before & after, "both were made anew: one truncated, the other dropped and added"


def test_an_exchange_of_a_partition_moves_rows_and_directories_both_ways(upstream: Upstream, tmp_path: Path) -> None:
    upstream.create_table(B, [ID], partitions={"p0": 10, "p1": 20})
    upstream.create_table(X, [ID])
    before = upstream.execute(Insert(B, {"id": 1}), Insert(B, {"id": 11}), Insert(X, {"id": 2}))
    version = upstream.exchange_partition(B, "p0", X)
    assert (upstream.expected_rows(B), upstream.expected_rows(X)) == ([{"id": 2}, {"id": 11}], [{"id": 1}])
    assert statements(tmp_path, version) == {
        B: (42, "ALTER TABLE `d`.`b` EXCHANGE PARTITION `p0` WITH TABLE `d`.`x`"),
        X: (0, ""),
    }
    assert before < version
    with pytest.raises(ValueError, match="do not belong"):
        upstream.exchange_partition(B, "p1", X)


def test_an_exchange_keeps_rows_without_key_apart(upstream: Upstream) -> None:
    upstream.create_table(B, [ID], partitions={"p0": 10, "p1": 20}, nonclustered=True)
    upstream.alter(B, DropPrimaryKey())
    upstream.create_table(X, [replace(ID, primary_key=False)])
    upstream.execute(*(Insert(B, {"id": n}) for n in (11, 12, 1)), Insert(X, {"id": 2}))
    upstream.exchange_partition(B, "p0", X)
    assert sorted(str(row["id"]) for row in upstream.expected_rows(B)) == ["11", "12", "2"]
    assert [row["id"] for row in upstream.expected_rows(X)] == [1]


def test_generated_columns_are_computed_and_virtual_ones_are_in_no_row(upstream: Upstream, tmp_path: Path) -> None:
    twice = Column("g", INT, generated=Generated.VIRTUAL, expression="`n`*2")
    version = upstream.create_table(B, [ID, Column("n", INT), twice], generating={"g": lambda row: int(str(row["n"])) * 2})
    upstream.execute(Insert(B, {"id": 1, "n": 4}))
    (path,) = upstream.writer.flush(B)  # type: ignore[attr-defined]
    assert "`g` INT GENERATED ALWAYS AS(`n`*2) VIRTUAL" in statements(tmp_path, version)[B][1]
    assert upstream.expected_rows(B) == [{"id": 1, "n": 4, "g": 8}]
    assert path.read_bytes().endswith(b",1,4\r\n")
    upstream.execute(Update(B, (1,), {"n": 5}))
    assert upstream.expected_rows(B) == [{"id": 1, "n": 5, "g": 10}]


def test_a_unique_key_is_checked_when_the_transaction_ends(upstream: Upstream) -> None:
    upstream.alter(A, AddIndex("u", ("n",), unique=True))
    upstream.execute(Insert(A, {"id": 2, "n": 6}))
    upstream.execute(Update(A, (1,), {"n": 6}), Update(A, (2,), {"n": 5}))
    with pytest.raises(ValueError, match="two rows"):
        upstream.execute(Update(A, (1,), {"n": 5}))
    assert [row["n"] for row in upstream.expected_rows(A)] == [6, 5]


def test_texts_are_compared_as_the_tables_collation_does(upstream: Upstream) -> None:
    upstream.create_table(B, [Column("k", TEXT, primary_key=True)], ignores_case=True)
    upstream.execute(Insert(B, {"k": "a"}))
    for same in ("A", "a "):
        with pytest.raises(ValueError, match="two rows"):
            upstream.execute(Insert(B, {"k": same}))
    upstream.execute(Update(B, ("a",), {"k": "A"}))
    assert upstream.keys(B) == [("A",)]
