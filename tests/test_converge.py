"""Any order and any repetition of the write units gives the same table: the theorem, and that each of its conditions is needed.

The seven conditions are in docs/guarantees.md; what ``validate`` says of them is in ``sinks/test_mysql_conditions.py``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from converging import Action, Downstream, History, Key, Shape, Values, deliver, write_units
from headrace.model.collating import fold_text
from servers import MariaDb

pytestmark = pytest.mark.server

COLLATIONS = (
    "utf8mb4_bin",
    "utf8mb4_general_ci",
    "utf8mb4_unicode_ci",
    "utf8mb4_nopad_bin",
    "utf8mb4_general_nopad_ci",
    "utf8mb4_unicode_nopad_ci",
)
# Few at a time, so that they meet: case, padding, accents of one and two characters, ß, a control sign, emojis, prefixes.
TEXTS = (
    ("a", "A", "a ", "á"),
    ("a", "a\u0301", "A\x01", "a\t"),
    ("s", "ss", "ß", "S "),
    ("", " ", "😀", "😁"),
    ("ab", "AB", "abc", "Abd "),
)
NAMES = ("a", "b", "c", "d")


@pytest.fixture
def downstream(mariadb: MariaDb) -> Iterator[Downstream]:
    target = Downstream(mariadb)
    yield target
    target.close()


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """One to three unique keys over four columns and a plain one; keys may overlap."""
    columns = tuple((name, draw(st.sampled_from((*COLLATIONS, None)))) for name in NAMES)
    collations = dict(columns)

    def key(*, prefixes: bool) -> Key:
        names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True))
        lengths = (draw(st.sampled_from((0, 0, 1, 2))) if prefixes and collations[name] else 0 for name in names)
        return Key(tuple(zip(names, lengths, strict=True)))

    has_primary = draw(st.booleans())
    handle = key(prefixes=has_primary)
    unique = tuple(key(prefixes=True) for _ in range(draw(st.integers(0, 2))))
    return Shape((*columns, ("v", None)), handle, unique, has_primary)


@st.composite
def transactions(draw: st.DrawFn, shape: Shape) -> list[list[Action]]:
    texts = draw(st.sampled_from(TEXTS))

    def value(name: str, collation: str | None) -> st.SearchStrategy[object]:
        known = st.sampled_from(texts) if collation else st.integers(0, 9 if name == "v" else 3)
        return known if name in shape.handle.columns else st.none() | known

    values = st.tuples(*(value(name, collation) for name, collation in shape.columns))
    action = st.tuples(st.sampled_from(("insert", "insert", "update", "delete")), st.integers(0, 9), values)
    return draw(st.lists(st.lists(action, min_size=1, max_size=4), min_size=4, max_size=12))


@settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=False,
    phases=[Phase.generate],
)
@given(data=st.data(), chance=st.randoms(use_true_random=False))
def test_any_order_and_repetition_of_write_units_gives_the_same_table(
    downstream: Downstream, data: st.DataObject, chance: Random
) -> None:
    shape = data.draw(shapes())
    history = History(shape, downstream.connection, splits=data.draw(st.booleans()))
    for actions in data.draw(transactions(shape)):
        history.commit(actions)
    downstream.create(shape)
    deliver(history, downstream, chance)


@pytest.mark.parametrize(
    ("collation", "spellings"),
    [
        ("utf8mb4_general_ci", ("ß", "s")),
        ("utf8mb4_unicode_ci", ("ß", "ss")),
        ("utf8mb4_unicode_ci", ("٣", "3")),
        ("utf8mb4_unicode_ci", ("a\x01", "A")),
        ("utf8mb4_general_ci", ("😀", "😁")),
        ("utf8mb4_bin", ("a ", "a")),
    ],
)
def test_a_key_that_is_deleted_and_comes_back_in_another_spelling_stays(
    downstream: Downstream, collation: str, spellings: tuple[str, str]
) -> None:
    shape = Shape((("a", collation), ("v", None)), Key((("a", 0),)))
    first, second = spellings
    history = History(shape, downstream.connection)
    history.commit([("insert", 0, (first, 1))])
    history.commit([("delete", 0, ())])
    history.commit([("insert", 0, (second, 2))])
    assert history.states[-1] == {(second, 2)}
    for seed in range(6):
        downstream.create(shape)
        deliver(history, downstream, Random(seed))


def test_a_key_that_changes_its_spelling_and_is_deleted_is_gone(downstream: Downstream) -> None:
    shape = Shape((("a", "utf8mb4_general_ci"), ("v", None)), Key((("a", 0),)))
    history = History(shape, downstream.connection, splits=False)
    history.commit([("insert", 0, ("A", 1))])
    history.commit([("update", 0, ("a", 1))])
    history.commit([("delete", 0, ())])
    downstream.create(shape)
    downstream.write(write_units(history, 0, 3, Random(1)))
    assert downstream.rows() == []


@pytest.mark.parametrize("collation", ["utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_uca1400_nopad_ai_ci"])
def test_characters_that_a_collation_holds_for_equal_have_one_form(mariadb: MariaDb, collation: str) -> None:
    """All of the basic plane, but a subscript iota, which one collation ignores and another takes for the letter."""
    characters = [chr(code) for code in (*range(1, 0xD800), *range(0xE000, 0xFFFE))]
    forms: dict[bytes, dict[str, str]] = defaultdict(dict)
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE d")
        cursor.execute("CREATE TABLE d.t (c VARCHAR(1) COLLATE utf8mb4_bin)")
        for start in range(0, len(characters), 10_000):
            cursor.executemany("INSERT INTO d.t VALUES (%s)", [(c,) for c in characters[start : start + 10_000]])
        cursor.execute(f"SELECT c, WEIGHT_STRING(c COLLATE {collation}) FROM d.t WHERE HEX(c) NOT IN ('CD85')")
        for character, weight in cursor.fetchall():
            forms[weight].setdefault(fold_text(f"x{character}y"), character)
    different = [found for found in forms.values() if len(found) > 1]
    assert different == []


INT_KEY, TEXT_KEY = Key((("a", 0),)), Key((("b", 0),))
PLAIN: tuple[tuple[str, str | None], ...] = (("a", None), ("b", "utf8mb4_bin"))
BY_TEXT = Shape((("b", "utf8mb4_nopad_bin"), ("v", None)), TEXT_KEY)


@pytest.mark.parametrize(
    ("upstream", "target", "rows"),
    [
        pytest.param(Shape(PLAIN, INT_KEY), Shape(PLAIN, INT_KEY, (TEXT_KEY,)), [(1, "x"), (2, "x")], id="one more unique key"),
        pytest.param(
            Shape(PLAIN, INT_KEY, (TEXT_KEY,)),
            Shape(PLAIN, INT_KEY, (Key((("b", 1),)),)),
            [(1, "xa"), (2, "xb")],
            id="a prefix of a unique key",
        ),
        pytest.param(
            BY_TEXT, Shape((("b", "utf8mb4_general_nopad_ci"), ("v", None)), TEXT_KEY), [("x", 1), ("X", 2)], id="without case"
        ),
        pytest.param(BY_TEXT, Shape((("b", "utf8mb4_bin"), ("v", None)), TEXT_KEY), [("x", 1), ("x ", 2)], id="padded"),
    ],
)
def test_a_target_that_holds_more_for_equal_than_the_source_loses_rows(
    downstream: Downstream, upstream: Shape, target: Shape, rows: list[Values]
) -> None:
    """That the theorem's second condition is needed, and that these tests can fail."""
    history = History(upstream, downstream.connection)
    for row in rows:
        history.commit([("insert", 0, row)])
    assert history.states[-1] == set(rows)
    downstream.create(target)
    downstream.write(write_units(history, 0, len(rows), Random(1)))
    assert len(downstream.rows()) == 1
    with pytest.raises(AssertionError, match="missing"):
        deliver(history, downstream, Random(1))
