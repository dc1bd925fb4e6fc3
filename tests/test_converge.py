"""Any order and any repetition of the write units gives the same table: the theorem, and that each of its conditions is needed.

The seven conditions are in docs/guarantees.md; what ``validate`` says of them is in ``sinks/test_mysql_conditions.py``.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from collation_weights import read
from converging import Action, Downstream, History, Key, Shape, Stopped, Values, deliver, write_units
from headrace.model.events import RowKind
from sampling import drawn
from servers import MariaDb

pytestmark = pytest.mark.server

COLLATIONS = (
    "utf8mb4_bin",
    "utf8mb4_general_ci",
    "utf8mb4_unicode_ci",
    "utf8mb4_nopad_bin",
    "utf8mb4_general_nopad_ci",
    "utf8mb4_unicode_nopad_ci",
    "utf8mb4_uca1400_ai_ci",
    "utf8mb4_unicode_520_ci",
)
OF_GBK = ("gbk_bin", "gbk_chinese_ci")
# Few at a time, so that they meet: case, padding, accents of one and two characters, ß, a control sign, emojis, prefixes.
TEXTS = (
    ("a", "A", "a ", "á"),
    ("a", "a\u0301", "A\x01", "a\t"),
    ("s", "ss", "ß", "S "),
    ("", " ", "😀", "😁"),
    ("ab", "AB", "abc", "Abd "),
    ("しめ", "〆", "\u0e40\u0e01", "\u0e01\u0e40"),
)
# To one half of the collations all of them are one, to the other some are letters and digits.
TEXTS_BEYOND = (("😀", "𝐀", "𝟏", "\ufffd"), ("𝐀", "a", "😀", "𝐁"), ("1", "𝟏", "\U00010107", "😀"))
TEXTS_OF_GBK = (("~", "y", "Y ", "?"), ("[", "\\", "a", "A"), ("é", "e", "Ａ", "a"))


@cache
def classes() -> list[list[str]]:
    """Characters of all planes that some collation holds for equal."""
    found: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for name, weights in read().items():
        if "gbk" not in name:
            for code, weight in weights.items():
                found[name, weight].append(chr(code))
    return [members for members in found.values() if len(members) > 1]


NAMES = ("a", "b", "c", "d")


@pytest.fixture
def downstream(mariadb: MariaDb) -> Iterator[Downstream]:
    target = Downstream(mariadb)
    yield target
    target.close()


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """One to three unique keys over four columns and a plain one; keys may overlap."""
    collations_here = draw(st.sampled_from((COLLATIONS, COLLATIONS, COLLATIONS, OF_GBK)))
    columns = tuple((name, draw(st.sampled_from((*collations_here, None)))) for name in NAMES)
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
    if any(collation in OF_GBK for _, collation in shape.columns):
        texts = draw(st.sampled_from(TEXTS_OF_GBK))
    else:
        of_a_class = st.sampled_from(classes()).flatmap(lambda members: st.lists(st.sampled_from(members), min_size=2, max_size=3))
        kinds = (st.sampled_from(TEXTS), st.sampled_from(TEXTS_BEYOND), of_a_class.map(lambda found: (*found, "x")))
        texts = draw(draw(st.sampled_from(kinds)))

    def value(name: str, collation: str | None) -> st.SearchStrategy[object]:
        known = st.sampled_from(texts) if collation else st.integers(0, 9 if name == "v" else 3)
        return known if name in shape.handle.columns else st.none() | known

    values = st.tuples(*(value(name, collation) for name, collation in shape.columns))
    action = st.tuples(st.sampled_from(("insert", "insert", "update", "delete")), st.integers(0, 9), values)
    return draw(st.lists(st.lists(action, min_size=1, max_size=4), min_size=4, max_size=12))


DRAWN = settings(
    max_examples=drawn(80),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=False,
    phases=[Phase.generate],
)


@DRAWN
@given(data=st.data(), chance=st.randoms(use_true_random=False))
def test_any_order_and_repetition_of_write_units_gives_the_same_table(
    downstream: Downstream, data: st.DataObject, chance: Random
) -> None:
    shape = data.draw(shapes())
    history = History(shape, downstream.connection, splits=data.draw(st.booleans()), old_rows=data.draw(st.booleans()))
    for actions in data.draw(transactions(shape)):
        history.commit(actions)
    downstream.create(shape)
    deliver(history, downstream, chance)


@DRAWN
@given(data=st.data(), chance=st.randoms(use_true_random=False))
def test_a_source_that_compares_bytes_is_followed_or_stopped_at_the_first_sight_of_what_differs(
    downstream: Downstream, data: st.DataObject, chance: Random
) -> None:
    target = data.draw(shapes())
    columns = tuple((name, "utf8mb4_nopad_bin" if collation else None) for name, collation in target.columns)
    history = History(replace(target, columns=columns), downstream.connection)
    for actions in data.draw(transactions(target)):
        history.commit(actions)
    downstream.create(target)
    united = history.united(target)
    stopped = None
    try:
        deliver(history, downstream, chance)
    except Stopped as refused:
        stopped = refused
    assert stopped is None or (united is not None and united <= stopped.hi), f"united at {united}, {stopped}"


@pytest.mark.parametrize(
    ("collation", "spellings"),
    [
        ("utf8mb4_general_ci", ("ß", "s")),
        ("utf8mb4_unicode_ci", ("ß", "ss")),
        ("utf8mb4_unicode_ci", ("٣", "3")),
        ("utf8mb4_unicode_ci", ("a\x01", "A")),
        ("utf8mb4_general_ci", ("😀", "😁")),
        ("utf8mb4_bin", ("a ", "a")),
        ("utf8mb4_general_ci", ("😀", "𝐀")),
        ("utf8mb4_uca1400_ai_ci", ("𝐀", "a")),
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


@pytest.mark.parametrize("watches", [True, False])
@pytest.mark.parametrize("collation", ["utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_bin"])
@pytest.mark.parametrize("seed", range(12))
def test_former_spellings_of_a_key_push_out_no_row_by_another_unique_key(
    downstream: Downstream, seed: int, collation: str, watches: bool
) -> None:
    """Updates change the spelling of the handle and come without their old rows, and other rows take over their unique values."""
    chance = Random(seed)
    shape = Shape((("a", collation), ("b", None), ("c", collation)), Key((("a", 0),)), (Key((("b", 0),)), Key((("c", 0),))))
    history = History(shape, downstream.connection, splits=False, old_rows=False)
    for _ in range(14):
        kinds = chance.choices(("insert", "update", "update", "delete"), (3, 6, 6, 1), k=chance.randint(1, 3))
        values = ((chance.choice("aAábBßs😀😁"), chance.randrange(4), chance.choice(("x", "X", "y", "z"))) for _ in kinds)
        history.commit([(kind, chance.randrange(9), row) for kind, row in zip(kinds, values, strict=True)])
    for _ in range(3):
        downstream.create(shape)
        try:
            deliver(history, downstream, chance, watches=watches)
        except Stopped:
            assert watches
            assert _comes_back(history)


def _comes_back(history: History) -> bool:
    """Whether a key that was deleted is there again by an update, not by an insert: in one cut that looks like two rows."""
    gone = set()
    for kind, row in itertools.chain.from_iterable(history.changes):
        if kind is RowKind.UPDATE_AFTER and row[0] in gone:
            return True
        (gone.add if kind is RowKind.DELETE else gone.discard)(row[0])
    return False


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
    downstream.create(target)
    with pytest.raises(AssertionError, match="missing"):
        deliver(history, downstream, Random(1), watches=False)
