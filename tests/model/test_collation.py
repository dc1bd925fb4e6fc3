"""The form of texts is as coarse as every collation of a source: held against the weights that servers give all characters."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random

import pyarrow as pa
import pytest

from collation_weights import Weights, contradictions, read, weighs_supplementary
from headrace.model.collation import fold_text
from headrace.model.key_forms import folded

TABLES = read()
# Beyond the basic plane all are one to these collations, so some of them tell enough.
_EVERY = 211


def _of(collation: str) -> Weights:
    weights = TABLES[collation]
    if weighs_supplementary(collation):
        return weights
    return {code: weight for code, weight in weights.items() if code <= 0xFFFF or code % _EVERY == 0}


def _fold(collation: str) -> partial[str]:
    return partial(fold_text, weighs_supplementary=weighs_supplementary(collation))


def test_the_table_has_every_collation_of_tidb_that_holds_different_texts_for_equal() -> None:
    assert {name for name in TABLES if name.startswith("tidb ")} == {
        "tidb utf8mb4_general_ci",
        "tidb utf8mb4_unicode_ci",
        "tidb utf8mb4_0900_ai_ci",
        "tidb gbk_chinese_ci",
    }


@pytest.mark.parametrize("collation", TABLES)
def test_what_a_collation_holds_for_equal_has_one_form(collation: str) -> None:
    assert [str(found) for found in contradictions(_of(collation), _fold(collation))] == []


def test_a_form_that_is_too_fine_is_found() -> None:
    """That the test before can fail: normalised before the rule for supplementary characters, 𝐀 would be an a."""

    def normalised_first(text: str) -> str:
        return fold_text(text, weighs_supplementary=True)

    weights = TABLES["tidb utf8mb4_general_ci"]
    some = {code: weights[code] for code in (0x1D400, 0x1F600)}
    assert [found.code for found in contradictions(some, normalised_first)] == [0x1F600]


def _equal_texts(weights: Weights, chance: Random) -> Iterator[tuple[str, str]]:
    """Texts of a few characters, and others that the collation holds for equal."""
    equals: dict[tuple[str, ...], list[str]] = {}
    for code, weight in weights.items():
        equals.setdefault(weight, []).append(chr(code))
    ignored = equals.pop((), [""])
    classes = [members for members in equals.values() if len(members) > 1]
    for _ in range(300):
        chosen = [chance.choice(classes) for _ in range(chance.randint(1, 5))]
        one, other = ("".join(chance.choice(m) + chance.choice(["", chance.choice(ignored)]) for m in chosen) for _ in range(2))
        yield one, other


@pytest.mark.parametrize("collation", TABLES)
def test_columns_of_equal_texts_have_one_form_whatever_stands_beside_them(collation: str) -> None:
    """The way over whole columns gives what the way over one text does, whether or not other texts are plain."""
    pairs = list(_equal_texts(_of(collation), Random(collation)))
    weighs = weighs_supplementary(collation)
    for batch in (pairs, [pair for pair in pairs if "".join(pair).isascii()], [*pairs, ("A  ", "a"), ("", "  "), ("Mass", "MAS")]):
        one, other = (folded(pa.array([pair[n] for pair in batch], pa.string()), weighs_supplementary=weighs) for n in (0, 1))
        assert one.to_pylist() == other.to_pylist()
        assert one.to_pylist() == [fold_text(text, weighs_supplementary=weighs) for text, _ in batch]


def test_plain_texts_have_the_same_form_alone_and_among_others() -> None:
    texts = ["A b", "x?y", "~[", "Ss sS  ", "a\x01", "", None, "é", "\\Y", "\t"]
    together = folded(pa.array(texts, pa.string())).to_pylist()
    assert together == [folded(pa.array([text], pa.string())).to_pylist()[0] for text in texts]
    assert together == [None if text is None else fold_text(text) for text in texts]
