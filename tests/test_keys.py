"""Keys of every kind: updates that move them, swaps, collations, types, and tables whose key changes or is declared.

Each history is applied as one cut and as two, to DuckDB and to MariaDB, in transactions that hold two rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from following import run_once
from headrace.engine.keys import DeclaredKeys
from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED, DefinitionError
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.tso import tso_from_ms
from headrace.model.types import ColumnType, TypeKind
from headrace.testing.ticdc_options import Protocol
from headrace.testing.ticdc_writer import RowChange, TicdcWriter, split_key_updates
from places import Place
from targets import Target

T = TableId("k", "t")
INT = ColumnType(TypeKind.INT)
TEXT = ColumnType(TypeKind.VARCHAR, length=20)
EXACT: dict[Protocol, dict[str, Any]] = {"csv": {"include_commit_ts": True}, "canal-json": {"enable_tidb_extension": True}}
OLD_VALUES = {"output_old_value": True}
Values = tuple[object, ...]

pytestmark = [pytest.mark.pipeline, pytest.mark.usefixtures("many_transactions")]


@dataclass(frozen=True)
class Change:
    """One row before and after; ``None`` where there is none."""

    before: Values | None = None
    after: Values | None = None


def ins(*row: object) -> Change:
    return Change(after=row)


def upd(before: Values, after: Values) -> Change:
    return Change(before, after)


def dele(*row: object) -> Change:
    return Change(before=row)


@dataclass
class Feed:
    """A changefeed of the table :data:`T`, written statement by statement; what :func:`following.run_once` runs."""

    folder: Path
    protocol: Protocol = "csv"
    options: dict[str, Any] = field(default_factory=lambda: dict(OLD_VALUES))
    split: bool = True

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        options = self.options if self.protocol == "csv" else {k: v for k, v in self.options.items() if k not in OLD_VALUES}
        self.writer = TicdcWriter(self.folder / "data", self.protocol, **EXACT[self.protocol], **options)
        self.toml = self.folder / "changefeed.toml"
        self.toml.write_text(self.writer.options.changefeed_toml(), encoding="utf-8")
        self._ms = itertools.count(1_767_225_600_000)
        self.schema = TableSchema(T, ())

    @property
    def uri(self) -> str:
        return self.writer.uri

    def ddl(self, statement: str, columns: Sequence[Column], key: Sequence[str] = ()) -> None:
        """A schema change with the shape after it; an empty statement tells the shape alone. ``key`` is what TiCDC splits by."""
        primary = tuple(column.name for column in columns if column.primary_key)
        self.schema = TableSchema(T, tuple(columns), primary or tuple(key))
        self.writer.schema_change(T, self._ts(), statement, self.schema, 3)

    def rows(self, *changes: Change) -> None:
        """One transaction."""
        made = [RowChange(self._row(c.before), self._row(c.after)) for c in changes]
        self.writer.rows(T, self._ts(), split_key_updates(self.schema, made) if self.split else made)

    def checkpoint(self) -> None:
        self.writer.checkpoint(self._ts())

    def _row(self, values: Values | None) -> dict[str, object] | None:
        names = [column.name for column in self.schema.columns]
        return None if values is None else dict(zip(names, values, strict=True))

    def _ts(self) -> int:
        return tso_from_ms(next(self._ms))


def run(feed: Feed, uri: str, **options: Any) -> int:
    """Catches up; the exit code."""
    return run_once(feed, uri, **options)  # type: ignore[arg-type] -- what it needs of a changefeed


def held(target: Target, schema: TableSchema) -> set[Values]:
    """The table's rows as texts."""
    rows = target.rows(T.database, T.table, {c.name: c.type.kind.lower() for c in schema.columns})
    assert len(set(rows)) == len(rows), f"rows are there twice: {rows}"
    return set(rows)


def texts(rows: Sequence[Values]) -> set[Values]:
    return {tuple(None if value is None else str(value) for value in row) for row in rows}


STEPS = pytest.mark.parametrize("steps", [False, True], ids=["one cut", "two cuts"])


@dataclass(frozen=True)
class Table:
    """A table as CREATE TABLE has it: the text between its parentheses (and behind), and the same as columns."""

    definition: str
    columns: tuple[Column, ...]
    options: str = ""
    key: tuple[str, ...] = ()

    def create(self, feed: Feed) -> None:
        feed.ddl(f"CREATE TABLE `k`.`t` ({self.definition}) {self.options}".rstrip(), self.columns, self.key)


def not_null(name: str, column_type: ColumnType, *, primary_key: bool = False) -> Column:
    return Column(name, column_type, nullable=False, primary_key=primary_key)


ID = not_null("id", INT, primary_key=True)
V = Column("v", TEXT)
SIMPLE = Table("id INT PRIMARY KEY, v VARCHAR(20)", (ID, V))


def check(
    place: Place, feed: Feed, table: Table, transactions: Sequence[Sequence[Change]], expected: Sequence[Values], *, steps: bool
) -> None:
    """Applies the history and compares the rows it must end with."""
    target, uri = place.fresh()
    table.create(feed)
    for number, transaction in enumerate(transactions):
        feed.rows(*transaction)
        if steps and number == len(transactions) // 2:
            feed.checkpoint()
            assert run(feed, uri) == EXIT_OK
    feed.checkpoint()
    assert run(feed, uri) == EXIT_OK
    assert held(target, feed.schema) == texts(expected)


# --- updates that move keys, by release ------------------------------------------------------------------------------

MOVES = [
    [ins(1, "a"), ins(2, "b"), ins(3, "c"), ins(4, "d")],
    [upd((1, "a"), (2, "a")), upd((2, "b"), (1, "b")), upd((3, "c"), (5, "c")), ins(3, "new")],
    [upd((5, "c"), (6, "c")), dele(4, "d")],
    [upd((6, "c"), (4, "c")), upd((2, "a"), (2, "aa"))],
]
MOVED = [(1, "b"), (2, "aa"), (3, "new"), (4, "c")]


def unsorted(transaction: Sequence[Change]) -> list[Change]:
    """``D1 I2 D2 I1``, as releases up to v7.3 write a transaction of several changes."""
    found: list[Change] = []
    for change in transaction:
        moves = change.before and change.after and change.before[0] != change.after[0]
        found.extend([Change(before=change.before), Change(after=change.after)] if moves else [change])
    return found


@STEPS
@pytest.mark.parametrize("protocol", list(EXACT))
@pytest.mark.parametrize("release", ["raw", "split without sorting", "split and sorted"])
def test_updates_that_move_a_key_end_right_however_a_release_writes_them(
    release: str, protocol: Protocol, steps: bool, place: Place, tmp_path: Path
) -> None:
    feed = Feed(tmp_path / "feed", protocol, split=release == "split and sorted")
    moves = MOVES if release != "split without sorting" else [unsorted(transaction) for transaction in MOVES]
    check(place, feed, SIMPLE, moves, MOVED, steps=steps)


@STEPS
@pytest.mark.parametrize("options", [{"only_output_updated_columns": True}, {"delete_only_output_handle_key_columns": True}])
def test_short_messages_of_canal_json_move_keys_too(options: dict[str, Any], steps: bool, place: Place, tmp_path: Path) -> None:
    split = "delete_only_output_handle_key_columns" in options
    check(place, Feed(tmp_path / "feed", "canal-json", options, split=split), SIMPLE, MOVES, MOVED, steps=steps)


@STEPS
def test_split_updates_need_no_old_values(steps: bool, place: Place, tmp_path: Path) -> None:
    check(place, Feed(tmp_path / "feed", options={}), SIMPLE, MOVES, MOVED, steps=steps)


def test_old_keys_that_no_file_holds_stay(place: Place, tmp_path: Path) -> None:
    """Releases up to v6.5.2 never split, and plain CSV then has the new row only: nothing tells that row 1 is gone."""
    feed = Feed(tmp_path / "feed", options={}, split=False)
    moves = [[ins(1, "a")], [upd((1, "a"), (2, "a"))]]
    check(place, feed, SIMPLE, moves, [(1, "a"), (2, "a")], steps=False)


# --- unique keys beside the handle -----------------------------------------------------------------------------------

U = Column("u", INT)
UNIQUE = Table("id INT PRIMARY KEY, u INT, UNIQUE KEY uk (u)", (ID, U))


@STEPS
@pytest.mark.parametrize(
    ("transactions", "expected"),
    [
        ([[upd((1, 1), (1, 2)), upd((2, 2), (2, 1))]], [(1, 2), (2, 1), (3, 3), (4, None), (5, None)]),
        (
            [[upd((1, 1), (1, 9))], [upd((2, 2), (2, 1))], [upd((1, 9), (1, 2))], [upd((3, 3), (3, None)), upd((4, None), (4, 3))]],
            [(1, 2), (2, 1), (3, None), (4, 3), (5, None)],
        ),
        (
            [[dele(1, 1), upd((2, 2), (2, 1)), upd((3, 3), (3, 2))], [ins(1, 3), upd((5, None), (5, 4))]],
            [(1, 3), (2, 1), (3, 2), (4, None), (5, 4)],
        ),
        ([[upd((1, 1), (10, 2)), upd((2, 2), (11, 1))]], [(10, 2), (11, 1), (3, 3), (4, None), (5, None)]),
    ],
    ids=["a swap in one transaction", "a swap over transactions", "a chain", "a swap that moves the handles too"],
)
@pytest.mark.reading_case("A59")
def test_unique_values_that_go_from_row_to_row_end_right(
    transactions: list[list[Change]], expected: list[Values], steps: bool, place: Place, tmp_path: Path
) -> None:
    first = [ins(1, 1), ins(2, 2), ins(3, 3), ins(4, None), ins(5, None)]
    check(place, Feed(tmp_path / "feed"), UNIQUE, [first, *transactions], expected, steps=steps)


@STEPS
@pytest.mark.reading_case("A50")
def test_a_unique_key_of_columns_that_are_not_null_is_the_handle(steps: bool, place: Place, tmp_path: Path) -> None:
    columns = (not_null("a", INT), not_null("b", TEXT), V)
    table = Table("a INT NOT NULL, b VARCHAR(20) NOT NULL, v VARCHAR(20), UNIQUE KEY uk (a, b)", columns, key=("a", "b"))
    history = [[ins(1, "x", "1"), ins(1, "y", "2"), ins(2, "x", "3")], [upd((1, "x", "1"), (1, "z", "1")), dele(2, "x", "3")]]
    check(place, Feed(tmp_path / "feed"), table, history, [(1, "y", "2"), (1, "z", "1")], steps=steps)


@STEPS
def test_rows_whose_unique_key_is_null_are_not_one_row(steps: bool, place: Place, tmp_path: Path) -> None:
    """The only key may be NULL, so the table is a bag, and REPLACE must have no part in it."""
    table = Table("u INT, v VARCHAR(20), UNIQUE KEY uk (u)", (U, V))
    history = [
        [ins(None, "a"), ins(None, "b"), ins(None, "c"), ins(1, "d"), ins(2, "e")],
        [upd((1, "d"), (2, "d")), upd((2, "e"), (1, "e")), upd((None, "a"), (3, "a")), dele(None, "b")],
    ]
    check(place, Feed(tmp_path / "feed"), table, history, [(None, "c"), (2, "d"), (1, "e"), (3, "a")], steps=steps)


# --- collations ------------------------------------------------------------------------------------------------------

N = Column("n", INT)
KEY = not_null("k", TEXT, primary_key=True)


def by_text(collation: str) -> Table:
    options = f"DEFAULT CHARSET={collation.partition('_')[0]} COLLATE={collation}"
    return Table("k VARCHAR(20) NOT NULL PRIMARY KEY, n INT", (KEY, N), options)


SPELLINGS = [
    *(("utf8mb4_general_ci", "A", "a", split, steps) for split in (True, False) for steps in (True, False)),
    ("utf8mb4_general_ci", "e", "é", True, False),
    ("utf8mb4_general_ci", "s", "ß", False, False),
    ("utf8mb4_unicode_ci", "ss", "ß", True, True),
    ("utf8mb4_bin", "a", "a ", True, False),
    ("utf8mb4_bin", "a", "a ", False, True),
    ("utf8mb4_unicode_ci", "か", "カ", False, False),
    ("utf8mb4_general_ci", "😀", "😁", True, False),
]


@pytest.mark.parametrize(("collation", "one", "other", "split", "steps"), SPELLINGS)
@pytest.mark.reading_case("A61")
def test_a_key_that_changes_its_spelling_stays_one_row(
    collation: str, one: str, other: str, split: bool, steps: bool, place: Place, tmp_path: Path
) -> None:
    """A change of the upstream's one key is a delete of the stored spelling, so DuckDB, which compares exactly, ends right."""
    history = [
        [ins(one, 1), ins("gone", 1), ins("back", 1)],
        [upd((one, 1), (other, 2)), upd(("gone", 1), ("GONE", 1)), upd(("back", 1), ("BACK", 2))],
        [dele("GONE", 1), dele("BACK", 2)],
        [upd((other, 2), (one, 3)), ins("Back", 3)],
        [upd((one, 3), (other, 4))],
    ]
    if collation.endswith("_bin"):
        history = [[c for c in transaction if "ack" not in str(c).lower()] for transaction in history]
        expected: list[Values] = [(other, 4)]
    else:
        expected = [(other, 4), ("Back", 3)]
    check(place, Feed(tmp_path / "feed", split=split), by_text(collation), history, expected, steps=steps)


@pytest.mark.parametrize(
    ("collation", "one", "other"),
    [
        ("utf8mb4_general_ci", "😀", "𝐀"),
        ("utf8mb4_general_ci", "\ufffd", "𝟏"),
        ("utf8mb4_unicode_ci", "𝟏", "😀"),
        ("gbk_chinese_ci", "~", "y"),
        ("utf8mb4_unicode_ci", "\u3006", "しめ"),
    ],
)
def test_a_key_that_is_deleted_comes_back_as_an_equal_text(
    collation: str, one: str, other: str, place: Place, tmp_path: Path
) -> None:
    """There and back in cuts of many tasks, so that whichever of them writes first, the row that is there in the end stays."""
    target, uri = place.fresh()
    table, feed = by_text(collation), Feed(tmp_path / "feed")
    table.create(feed)
    feed.rows(ins(one, 0))
    for number, (old, new) in enumerate([(one, other), (other, one)] * 2):
        feed.checkpoint()
        assert run(feed, uri) == EXIT_OK
        feed.rows(dele(old, number), ins(new, number + 1))
        feed.rows(*(ins(f"row {number} {n}", n) for n in range(6)))
        feed.checkpoint()
        assert run(feed, uri) == EXIT_OK
        assert {row for row in held(target, feed.schema) if not str(row[0]).startswith("row")} == texts([(new, number + 1)])


@STEPS
@pytest.mark.server
def test_a_target_with_the_collation_needs_no_old_spelling(steps: bool, mariadb_place: Place, tmp_path: Path) -> None:
    """Raw updates without old values: the new spelling replaces the row, and its delete leaves nothing."""
    history = [[ins("A", 1), ins("b ", 1)], [upd(("A", 1), ("a", 2)), upd(("b ", 1), ("B", 2))], [dele("a", 2)]]
    feed = Feed(tmp_path / "feed", options={}, split=False)
    check(mariadb_place, feed, by_text("utf8mb4_general_ci"), history, [("B", 2)], steps=steps)


@pytest.fixture
def mariadb_place(mariadb_server: Any, tmp_path: Path) -> Place:
    return Place(tmp_path, mariadb_server)


@STEPS
def test_keys_that_differ_in_case_or_padding_are_two_rows_where_the_source_compares_exactly(
    steps: bool, place: Place, tmp_path: Path
) -> None:
    """A binary collation tells case, a binary type padding too (NO PAD)."""
    binary = ColumnType(TypeKind.VARBINARY, length=20)
    table = Table("k VARBINARY(20) NOT NULL PRIMARY KEY, n INT", (replace(KEY, type=binary), N))
    history = [
        [ins(b"a", 1), ins(b"a ", 2), ins(b"A", 3), ins(b"a\x00", 4)],
        [dele(b"a", 1), upd((b"a ", 2), (b"a", 5)), upd((b"A", 3), (b"A ", 3))],
    ]
    target_rows = [(b"a".hex(), 5), (b"A ".hex(), 3), (b"a\x00".hex(), 4)]
    check(place, Feed(tmp_path / "feed"), table, history, target_rows, steps=steps)


@STEPS
def test_keys_that_differ_in_padding_are_two_rows_in_a_collation_without_padding(steps: bool, place: Place, tmp_path: Path) -> None:
    target, uri = place.fresh()
    if place.mariadb is not None:
        with place.mariadb.connect() as connection, connection.cursor() as cursor:
            collation = "utf8mb4_0900_bin" if place.mariadb.is_tidb else "utf8mb4_nopad_bin"
            cursor.execute("CREATE DATABASE k")
            cursor.execute(f"CREATE TABLE k.t (k VARCHAR(20) COLLATE {collation} NOT NULL PRIMARY KEY, n INT)")
    feed = Feed(tmp_path / "feed")
    feed.ddl("", (KEY, N))
    history = [[ins("a", 1), ins("a ", 2), ins("a  ", 3)], [dele("a", 1), upd(("a ", 2), ("a ", 4)), upd(("a  ", 3), ("a", 3))]]
    for transaction in history:
        feed.rows(*transaction)
        if steps:
            feed.checkpoint()
            assert run(feed, uri) == EXIT_OK
    feed.checkpoint()
    assert run(feed, uri) == EXIT_OK
    assert held(target, feed.schema) == {("a", "3"), ("a ", "4")}


@STEPS
@pytest.mark.parametrize("charset", ["gbk", "latin1", "utf8mb4"])
def test_a_key_of_several_columns_finds_texts_of_every_character_set(
    charset: str, steps: bool, place: Place, tmp_path: Path
) -> None:
    columns = (ID, not_null("k", TEXT, primary_key=True), N)
    table = Table("id INT NOT NULL, k VARCHAR(20) NOT NULL, n INT, PRIMARY KEY (id, k)", columns, f"CHARSET={charset}")
    history = [[ins(1, "é", 1), ins(2, "e", 2), ins(1, "è", 3), ins(3, "x", 4)], [dele(1, "é", 1), dele(3, "x", 4)]]
    check(place, Feed(tmp_path / "feed"), table, history, [(2, "e", 2), (1, "è", 3)], steps=steps)


@STEPS
def test_a_key_over_a_prefix_is_the_whole_column(steps: bool, place: Place, tmp_path: Path) -> None:
    """No two rows agree in the prefix, so the column as a whole tells rows apart as well."""
    table = Table("k VARCHAR(20) NOT NULL, n INT, PRIMARY KEY (k(3))", (KEY, N))
    history = [
        [ins("abcdef", 1), ins("xyz", 2), ins("uvw1", 3)],
        [upd(("abcdef", 1), ("abcxyz", 4)), dele("xyz", 2), upd(("uvw1", 3), ("uvw1", 5))],
        [ins("xyz123", 6), upd(("abcxyz", 4), ("ab", 7))],
        [ins("abc", 8)],
    ]
    expected = [("uvw1", 5), ("xyz123", 6), ("ab", 7), ("abc", 8)]
    check(place, Feed(tmp_path / "feed"), table, history, expected, steps=steps)


@STEPS
def test_a_composite_key_mixes_them(steps: bool, place: Place, tmp_path: Path) -> None:
    columns = (not_null("a", TEXT, primary_key=True), ID, not_null("b", TEXT, primary_key=True), N)
    definition = (
        "a VARCHAR(20) COLLATE utf8mb4_general_ci NOT NULL, id INT NOT NULL, b VARCHAR(20) COLLATE utf8mb4_bin NOT NULL, n INT, "
        "PRIMARY KEY (a, id, b(4))"
    )
    history = [
        [ins("x", 1, "p", 1), ins("X", 2, "p", 2), ins("x", 1, "P", 3), ins("é", 1, "q", 4)],
        [upd(("x", 1, "p", 1), ("X", 1, "p ", 5)), dele("X", 2, "p", 2), upd(("é", 1, "q", 4), ("E", 1, "q", 6))],
        [dele("X", 1, "p ", 5), ins("x", 2, "p", 7)],
        [ins("x", 1, "p", 8), dele("E", 1, "q", 6)],
    ]
    expected = [("x", 1, "P", 3), ("x", 2, "p", 7), ("x", 1, "p", 8)]
    check(place, Feed(tmp_path / "feed"), Table(definition, columns), history, expected, steps=steps)


# --- types -----------------------------------------------------------------------------------------------------------

TYPES: list[tuple[str, ColumnType, list[object]]] = [
    ("BINARY(3)", ColumnType(TypeKind.BINARY, length=3), [b"a\x00\x00", b"A\x00\x00", b"\xff\x00\x01"]),
    ("VARBINARY(4)", ColumnType(TypeKind.VARBINARY, length=4), [b"", b"\x00", b"a "]),
    ("BIT(64)", ColumnType(TypeKind.BIT, length=64), [0, 2**64 - 1, 2**63]),
    ("DECIMAL(20,2)", ColumnType(TypeKind.DECIMAL, length=20, scale=2), ["1.00", "-1.00", "123456789012345678.99"]),
    ("DATE", ColumnType(TypeKind.DATE), ["2026-01-01", "1000-01-01", "9999-12-31"]),
    (
        "DATETIME(3)",
        ColumnType(TypeKind.DATETIME, scale=3),
        ["2026-01-01 00:00:00.001", "2026-01-01 00:00:00.000", "1000-01-01 00:00:00.000"],
    ),
    ("ENUM('a','b,c','d''e')", ColumnType(TypeKind.ENUM, elements=("a", "b,c", "d'e")), ["a", "b,c", "d'e"]),
    ("DOUBLE", ColumnType(TypeKind.DOUBLE), [0.1, -1e300, 5e-324]),
    ("FLOAT", ColumnType(TypeKind.FLOAT), [0.5, 1.5, 16777216.0]),
    ("BIGINT UNSIGNED", ColumnType(TypeKind.BIGINT, unsigned=True), [0, 2**64 - 1, 2**63]),
    ("BIGINT", ColumnType(TypeKind.BIGINT), [-(2**63), 2**63 - 1, -1]),
    ("YEAR", ColumnType(TypeKind.YEAR), [1901, 2155, 2026]),
]


@pytest.mark.parametrize(("name", "column_type", "keys"), TYPES, ids=[name for name, _, _ in TYPES])
def test_a_key_of_any_type_is_found_again(
    name: str, column_type: ColumnType, keys: list[object], place: Place, tmp_path: Path
) -> None:
    target, uri = place.fresh()
    table = Table(f"k {name} NOT NULL PRIMARY KEY, n INT", (not_null("k", column_type, primary_key=True), N))
    first, second, third = keys
    feed = Feed(tmp_path / "feed")
    table.create(feed)
    feed.rows(ins(first, 1), ins(second, 2), ins(third, 3))
    feed.checkpoint()
    assert run(feed, uri) == EXIT_OK
    feed.rows(upd((first, 1), (first, 4)), dele(second, 2))
    feed.rows(upd((third, 3), (second, 3)))
    feed.checkpoint()
    assert run(feed, uri) == EXIT_OK
    shown = {row[1]: row[0] for row in target.rows("k", "t", {"k": f"{column_type.kind.lower()}({column_type.scale})", "n": "int"})}
    assert shown.keys() == {"4", "3"}
    feed.rows(dele(first, 4), dele(second, 3))
    feed.checkpoint()
    assert run(feed, uri) == EXIT_OK
    assert held(target, feed.schema) == set()


@STEPS
@pytest.mark.parametrize("options", [OLD_VALUES, {}], ids=["old values", "new rows only"])
def test_minus_zero_is_zero(options: dict[str, Any], steps: bool, place: Place, tmp_path: Path) -> None:
    """As a key: the row stays one row, with whichever sign the target keeps."""
    double = not_null("k", ColumnType(TypeKind.DOUBLE), primary_key=True)
    history = [
        (CREATE % "k DOUBLE NOT NULL PRIMARY KEY, n INT", (double, N)),
        [ins(-0.0, 1), ins(1.0, 1)],
        [upd((-0.0, 1), (0.0, 2))],
        [upd((0.0, 2), (-0.0, 3))],
    ]
    target = apply(place, Feed(tmp_path / "feed", options=options, split=False), history, steps=steps)
    rows = target.rows("k", "t", {"k": "double", "n": "int"})
    assert sorted((abs(float(str(k))), n) for k, n in rows) == [(0.0, "3"), (1.0, "1")]


# --- keys that change ------------------------------------------------------------------------------------------------


def apply(place: Place, feed: Feed, history: Sequence[Any], *, steps: bool) -> Target:
    """Applies transactions, and schema changes as ``(statement, columns)`` or with the key that TiCDC then splits by."""
    target, uri = place.fresh()
    for number, step in enumerate(history):
        if isinstance(step, tuple):
            feed.ddl(*step)
        else:
            feed.rows(*step)
        if steps and number == len(history) // 2:
            feed.checkpoint()
            assert run(feed, uri) == EXIT_OK
    feed.checkpoint()
    assert run(feed, uri) == EXIT_OK
    return target


CREATE = "CREATE TABLE `k`.`t` (%s)"
ALTER = "ALTER TABLE `k`.`t` %s"


@pytest.mark.parametrize(
    ("before", "after", "old", "new"),
    [
        ("INT", "BIGINT UNSIGNED", (1, 2, 3), (1, 2, 3, 2**63)),
        ("DECIMAL(10,1)", "DECIMAL(12,3)", ("1.0", "2.0", "3.0"), ("1.000", "2.000", "3.000", "4.001")),
        ("INT", "VARCHAR(20)", (1, 2, 3), ("1", "2", "3", "four")),
        ("DATE", "DATETIME", ("2026-01-01", "2026-01-02", "2026-01-03"), tuple(f"2026-01-0{n} 00:00:00" for n in range(1, 5))),
    ],
)
def test_a_key_that_changes_its_type_in_the_middle_of_a_cut(
    before: str, after: str, old: Values, new: Values, place: Place, tmp_path: Path
) -> None:
    then = [(type_of(text), f"k {text} NOT NULL") for text in (before, after)]
    shapes = [(not_null("k", kind, primary_key=True), N) for kind, _ in then]
    history = [
        (CREATE % f"{then[0][1]} PRIMARY KEY, n INT", shapes[0]),
        [ins(old[0], 1), ins(old[1], 2), ins(old[2], 3)],
        [upd((old[1], 2), (old[1], 4))],
        (ALTER % f"MODIFY COLUMN {then[1][1]}", shapes[1]),
        [upd((new[0], 1), (new[0], 5)), dele(new[1], 4), upd((new[2], 3), (new[3], 3))],
    ]
    target = apply(place, Feed(tmp_path / "feed"), history, steps=False)
    kind = "datetime" if after == "DATETIME" else "varchar" if after == "VARCHAR(20)" else "decimal"
    assert set(target.rows("k", "t", {"k": kind, "n": "int"})) == texts([(new[0], 5), (new[3], 3)])


def type_of(text: str) -> ColumnType:
    return {
        "INT": INT,
        "BIGINT UNSIGNED": ColumnType(TypeKind.BIGINT, unsigned=True),
        "DECIMAL(10,1)": ColumnType(TypeKind.DECIMAL, length=10, scale=1),
        "DECIMAL(12,3)": ColumnType(TypeKind.DECIMAL, length=12, scale=3),
        "VARCHAR(20)": TEXT,
        "DATE": ColumnType(TypeKind.DATE),
        "DATETIME": ColumnType(TypeKind.DATETIME),
    }[text]


PLAIN_ID = not_null("id", INT)


@STEPS
def test_a_bag_gets_a_primary_key_and_loses_it_again(steps: bool, place: Place, tmp_path: Path) -> None:
    history = [
        (CREATE % "id INT NOT NULL, v VARCHAR(20)", (PLAIN_ID, V)),
        [ins(1, "a"), ins(1, "a"), ins(2, "b"), ins(3, "c")],
        [dele(1, "a"), upd((3, "c"), (4, "c"))],
        (ALTER % "ADD PRIMARY KEY (id)", (ID, V)),
        [upd((1, "a"), (5, "a")), upd((2, "b"), (2, "bb"))],
        [ins(1, "again"), upd((2, "bb"), (2, "b"))],
        (ALTER % "DROP PRIMARY KEY", (PLAIN_ID, V)),
        [ins(1, "again"), ins(2, "b"), dele(4, "c")],
        [ins(9, "z"), dele(1, "again")],
    ]
    target = apply(place, Feed(tmp_path / "feed"), history, steps=steps)
    assert sorted(target.rows("k", "t", {"id": "int", "v": "varchar"})) == [
        ("1", "again"),
        ("2", "b"),
        ("2", "b"),
        ("5", "a"),
        ("9", "z"),
    ]


@STEPS
def test_a_primary_key_moves_to_another_column(steps: bool, place: Place, tmp_path: Path) -> None:
    history = [
        (CREATE % "id INT PRIMARY KEY, u INT NOT NULL", (ID, not_null("u", INT))),
        [ins(1, 10), ins(2, 20), ins(3, 30)],
        (ALTER % "DROP PRIMARY KEY, ADD PRIMARY KEY (u)", (PLAIN_ID, not_null("u", INT, primary_key=True))),
        [upd((1, 10), (2, 10)), upd((2, 20), (2, 21)), dele(3, 30), ins(2, 40)],
    ]
    target = apply(place, Feed(tmp_path / "feed"), history, steps=steps)
    assert set(target.rows("k", "t", {"id": "int", "u": "int"})) == texts([(2, 10), (2, 21), (2, 40)])


UNIQUE_HANDLE = (PLAIN_ID, V)


@STEPS
def test_a_table_that_loses_its_unique_key_is_a_bag_from_then_on(steps: bool, place: Place, tmp_path: Path) -> None:
    history = [
        (CREATE % "id INT NOT NULL, v VARCHAR(20), UNIQUE KEY uk (id)", UNIQUE_HANDLE, ("id",)),
        [ins(1, "a"), ins(2, "b")],
        [upd((1, "a"), (3, "a"))],
        (ALTER % "DROP INDEX `uk`", UNIQUE_HANDLE),
        [ins(2, "b"), ins(2, "b"), ins(3, "c")],
        [dele(2, "b")],
    ]
    target = apply(place, Feed(tmp_path / "feed"), history, steps=steps)
    assert sorted(target.rows("k", "t", {"id": "int", "v": "varchar"})) == [("2", "b"), ("2", "b"), ("3", "a"), ("3", "c")]


@STEPS
def test_another_unique_key_takes_the_place_of_one_that_is_dropped(steps: bool, place: Place, tmp_path: Path) -> None:
    columns = (PLAIN_ID, not_null("u", INT), V)
    history = [
        (CREATE % "id INT NOT NULL, u INT NOT NULL, v VARCHAR(20), UNIQUE KEY a (id), UNIQUE KEY b (u)", columns, ("id",)),
        [ins(1, 10, "x"), ins(2, 20, "y")],
        (ALTER % "DROP INDEX a", columns, ("u",)),
        [upd((1, 10, "x"), (2, 10, "x")), upd((2, 20, "y"), (2, 21, "y"))],
        (ALTER % "RENAME INDEX b TO c", columns, ("u",)),
        [upd((2, 10, "x"), (3, 11, "x"))],
        (ALTER % "DROP INDEX c", columns),
        [ins(3, 11, "z"), ins(3, 11, "z")],
    ]
    target = apply(place, Feed(tmp_path / "feed"), history, steps=steps)
    expected = [("2", "21", "y"), ("3", "11", "x"), ("3", "11", "z"), ("3", "11", "z")]
    assert sorted(target.rows("k", "t", {"id": "int", "u": "int", "v": "varchar"})) == expected


# --- declared keys ---------------------------------------------------------------------------------------------------

DECLARED = DeclaredKeys.parse({"k.t": ["id"]})


@STEPS
@pytest.mark.parametrize("protocol", list(EXACT))
def test_a_declared_key_makes_a_table_of_a_shape_alone_a_keyed_one(
    protocol: Protocol, steps: bool, place: Place, tmp_path: Path
) -> None:
    """Plain updates, which a bag could not take; the target gets a unique key."""
    feed = Feed(tmp_path / "feed", protocol, options={})
    target, uri = place.fresh()
    feed.ddl("", UNIQUE_HANDLE, ("id",))
    for number, transaction in enumerate(MOVES):
        feed.rows(*transaction)
        if steps and number == 1:
            feed.checkpoint()
            assert run(feed, uri, keys=DECLARED) == EXIT_OK
    feed.checkpoint()
    assert run(feed, uri, keys=DECLARED) == EXIT_OK
    assert held(target, feed.schema) == texts(MOVED)
    assert run(feed, uri, keys=DECLARED) == EXIT_OK
    if place.mariadb is not None:
        with place.mariadb.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SHOW INDEX FROM k.t WHERE Non_unique = 0")
            assert [row[4] for row in cursor.fetchall()] == ["id"]


def test_a_key_that_a_table_cannot_have_stops_that_table(place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    feed = Feed(tmp_path / "feed")
    target, uri = place.fresh()
    feed.ddl(CREATE % "id INT, v VARCHAR(20)", (Column("id", INT), V))
    feed.rows(ins(1, "a"))
    feed.checkpoint()
    assert run(feed, uri, keys=DECLARED) == EXIT_TABLE_STOPPED
    told = capsys.readouterr().err
    assert "table k.t, column id: the key declared for it names a nullable column" in told
    assert "or remove the declared key: equal rows are then counted" in told
    feed.rows(ins(1, "a"))
    feed.checkpoint()
    assert run(feed, uri) == EXIT_OK
    assert target.rows(T.database, T.table, {"id": "int", "v": "varchar"}) == [("1", "a")] * 2


def test_a_deletion_without_the_declared_key_stops_the_table(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """TiCDC took another unique key, and its deletions hold nothing else."""
    feed = Feed(tmp_path / "feed", "canal-json", options={"delete_only_output_handle_key_columns": True})
    target, uri = place.fresh()
    columns = (Column("id", INT, nullable=False), Column("v", TEXT, nullable=False))
    feed.ddl("", columns, ("v",))
    feed.rows(ins(1, "a"), ins(2, "b"))
    feed.checkpoint()
    assert run(feed, uri, keys=DECLARED) == EXIT_OK
    feed.rows(dele(1, "a"))
    feed.checkpoint()
    assert run(feed, uri, keys=DECLARED) == EXIT_TABLE_STOPPED
    assert "column id: a change has no value in this column of its key" in capsys.readouterr().err
    feed.rows(ins(3, "c"))
    feed.checkpoint()
    assert run(feed, uri, keys=DECLARED) == EXIT_TABLE_STOPPED
    assert held(target, feed.schema) == texts([(1, "a"), (2, "b")])


@pytest.mark.server
def test_a_key_without_unique_index_in_the_target_stops_the_table_until_it_has_one(
    mariadb_place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    feed = Feed(tmp_path / "feed")
    target, uri = mariadb_place.fresh()
    feed.ddl(CREATE % "id INT NOT NULL, v VARCHAR(20), KEY(id)", UNIQUE_HANDLE, ("id",))
    feed.rows(ins(1, "a"), ins(2, "b"))
    feed.rows(upd((1, "a"), (1, "b")))
    feed.checkpoint()
    assert run(feed, uri, keys=DECLARED) == EXIT_TABLE_STOPPED
    told = (
        "table k.t: the target has no unique index over its key (id), so every change would add a row. Run ALTER TABLE `k`.`t` ADD"
    )
    assert told in capsys.readouterr().err
    assert held(target, feed.schema) == set()
    assert mariadb_place.mariadb is not None
    with mariadb_place.mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("ALTER TABLE k.t ADD UNIQUE KEY (id, v)")
    assert run(feed, uri, keys=DECLARED) == EXIT_TABLE_STOPPED
    with mariadb_place.mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("ALTER TABLE k.t ADD UNIQUE KEY (id)")
    assert run(feed, uri, keys=DECLARED) == EXIT_OK
    assert held(target, feed.schema) == texts([(1, "b"), (2, "b")])


def test_a_bag_becomes_keyed_and_a_bag_again_knowingly(place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    feed = Feed(tmp_path / "feed")
    target, uri = place.fresh()
    feed.ddl(CREATE % "id INT NOT NULL, v VARCHAR(20)", UNIQUE_HANDLE)
    feed.rows(ins(1, "a"), ins(2, "b"))
    feed.checkpoint()
    assert run(feed, uri) == EXIT_OK
    if place.mariadb is not None:
        with place.mariadb.connect() as connection, connection.cursor() as cursor:
            cursor.execute("ALTER TABLE k.t ADD UNIQUE KEY handle (id)")
    feed.rows(upd((1, "a"), (1, "aa")), ins(3, "c"))
    feed.checkpoint()
    capsys.readouterr()
    assert run(feed, uri, keys=DECLARED) == EXIT_OK
    assert "The declared keys were none before and are k.t: id now; the new ones apply from here on." in capsys.readouterr().err
    assert held(target, feed.schema) == texts([(1, "aa"), (2, "b"), (3, "c")])
    if place.mariadb is not None:
        with place.mariadb.connect() as connection, connection.cursor() as cursor:
            cursor.execute("ALTER TABLE k.t DROP KEY handle")
    feed.rows(ins(3, "c"), dele(1, "aa"))
    feed.checkpoint()
    assert run(feed, uri) == EXIT_OK
    assert "The declared keys were k.t: id before and are none now" in capsys.readouterr().err
    assert sorted(target.rows("k", "t", {"id": "int", "v": "varchar"})) == [("2", "b"), ("3", "c"), ("3", "c")]


@pytest.mark.server
def test_a_key_is_not_taken_out_while_a_cut_is_unfinished(mariadb_place: Place, tmp_path: Path) -> None:
    """Rows of that cut may be in the target, and a bag would count them again."""
    feed = Feed(tmp_path / "feed")
    target, uri = mariadb_place.fresh()
    feed.ddl("", UNIQUE_HANDLE)
    feed.rows(ins(1, "a"))
    feed.checkpoint()
    assert run(feed, uri, keys=DECLARED) == EXIT_OK
    assert mariadb_place.mariadb is not None
    with mariadb_place.mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE headrace.pipelines SET attempted_ts = attempted_ts + 1")
    feed.rows(ins(2, "b"))
    feed.checkpoint()
    with pytest.raises(DefinitionError, match=r"The key of k\.t was taken out of the definition while a cut is unfinished"):
        run(feed, uri)
    assert run(feed, uri, keys=DECLARED) == EXIT_OK
    assert run(feed, uri) == EXIT_OK
    assert held(target, feed.schema) == texts([(1, "a"), (2, "b")])
