"""The view of a statement in which patterns find its keywords."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ddl.lexer import words
from headrace.ddl.mask import edited, masked

_PARTS = ("CHECK", "a", "é", "e\u0301", "$", "ลูกค้า", "\u00a0", "`CHECK`", "'CHECK'", " ", " ", ".", ",", "(", ")", "1", "ſ", "=")
_COMMENTS = ("/* CHECK */", "-- CHECK\n", "/*T! TTL = 1 */", "/*! CHECK */", "'it''s'", "x'41'", "N'CHECK'", "``")


@given(st.lists(st.sampled_from([*_PARTS, *_COMMENTS]), max_size=12).map("".join))
def test_a_pattern_finds_exactly_the_words_that_are_no_names(text: str) -> None:
    found = words(text)
    view = masked(text)
    assert len(view) == len(text)
    assert view.isascii()
    if found is None:
        return
    beside_dots = {at + step for at, word in enumerate(found) if word.says(".") for step in (-1, 1)}
    keywords = [word.start for at, word in enumerate(found) if word.says("CHECK") and at not in beside_dots]
    assert [match.start() for match in re.finditer(r"\bCHECK\b", view)] == keywords


@pytest.mark.parametrize(
    ("text", "view"),
    [
        ("a . `b` c", "....... c"),
        ("t.* 1.5", "..* 1.5"),
        ("x /* y */ 'z' # y", "x         ...    "),
        ("a /*T![ttl] TTL = 1 */ b", "a           TTL = 1    b"),
        ("a'b", "a'b"),
    ],
)
def test_names_texts_and_comments_are_masked(text: str, view: str) -> None:
    assert masked(text) == view


def test_edits_are_applied_at_the_positions_before_them() -> None:
    assert edited("abcdef", [(4, 6, "X"), (0, 1, ""), (2, 2, "-"), (2, 3, "C")]) == "b-CdX"
    with pytest.raises(ValueError, match="overlaps"):
        edited("abc", [(0, 2, ""), (1, 3, "")])
