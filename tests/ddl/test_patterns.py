"""How long a search by a regular expression may take, held against a matcher that goes back and tries again as PCRE does."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.ddl import patterns
from headrace.ddl.patterns import MOST_STEPS, PatternNotReadError, steps_of_pattern

ORDINARY = (
    "",
    "x",
    "foo|bar",
    "[^0-9]",
    "a.*b",
    r"\s+$",
    r"^\s+|\s+$",
    "([0-9]+)-([0-9]+)",
    "^[a-z]+$",
    "^a.*b.*c",
    "^[[:alpha:]][[:alnum:]_]*$",
    "^[0-9]{3}-[0-9]+$",
    r"^[0-9]+(\.[0-9]{1,2})?$",
    r"^\d{4}-\d{2}-\d{2}$",
    r"^\+?[0-9]{7,15}$",
    "^(a|b|c)$",
    "^(?:a|b)$",
    "^#([0-9a-fA-F]{3}){1,2}$",
    "^[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}$",
    "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
    "^[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+$",
    r"^[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}$",
    r"^[^@]+@[^@]+\.[^@]+$",
    "^https?://[^/]+/.*$",
    r"^[^@\s]+@[^@\s]+\.[^@\s]+$",
    ".*abc.*",
    "a.*b[0-9]*",
    r"^((25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})\.){3}(25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})$",
)
LONG = (
    "(a|a)*$",
    "(a+)+$",
    "^(a*)*b",
    r"^[^\D]+\D[^\D]+\D[^\D]+\D[^\D]+x",
    r"^[^\v]+\v[^\v]+\v[^\v]+\v[^\v]+x",
    "^[^é]+ü[^é]+ü[^é]+ü[^é]+x",
    "x*x*x*$",
    "(x*x*x*)y|x*",
    "(x+x+)+y",
    "^x*x*x*y",
    "a.*x+y",
    "^[^b]+B[^b]+B[^b]+Bc",  # where case counts, a set without one of two cases has the other one
    "^k+\u212ak+\u212ak+\u212ac",
    "a.*b.*c.*d",
    "^(.*.*.*)b",
    "(a?){30}a{30}",
    "((a{1,9}){1,9}){1,9}x",
    "^" + "(a|ab)" * 24 + "x",
    "(((a){999}){999}){999}",
    "(" * 500 + "a" + ")" * 500,
    r"(a+)\1",
    "(?=(.*)).",
    "(?<=a)b",
    "(?R)",
    "(?i)a",
    "(*LIMIT_MATCH=9)a",
    r"\Qa",
    r"\X*",
    "[[.a.]]",
    "[a-[:digit:]]{",
    "a**",
    "^*",
    "(a",
    "a)",
    "[a",
    "a" * 3_000,
)


@pytest.mark.parametrize("pattern", ORDINARY)
def test_an_ordinary_pattern_takes_time_by_the_square_at_most(pattern: str) -> None:
    assert steps_of_pattern(pattern) <= MOST_STEPS


@pytest.mark.parametrize("pattern", LONG, ids=lambda pattern: pattern[:20])
def test_a_pattern_that_may_take_longer_or_is_not_understood_is_told_soon(pattern: str) -> None:
    begun, steps = time.process_time(), MOST_STEPS + 1
    with suppress(PatternNotReadError):
        steps = steps_of_pattern(pattern)
    assert steps > MOST_STEPS
    assert time.process_time() - begun < 1


class Search:
    """A text that patterns are tried on, and how many characters were looked at."""

    def __init__(self, text: str, *, with_case: bool) -> None:
        self.text = text if with_case else text.lower()
        self.with_case = with_case
        self.steps = 0


_Then = Callable[[int], bool]
_Matcher = Callable[[Search, int, _Then], bool]
"""Matches at a place and goes on, or goes back."""
Piece = tuple[str, _Matcher]


class TooManyStepsError(Exception):
    pass


def one(written: str, characters: str) -> Piece:
    def match(search: Search, at: int, then: _Then) -> bool:
        search.steps += 1
        if search.steps > 100_000:
            raise TooManyStepsError
        wanted = characters if search.with_case else characters.lower()
        return at < len(search.text) and search.text[at] in wanted and then(at + 1)

    return written, match


def repeated(piece: Piece, how: tuple[str, int, int]) -> Piece:
    inner, (sign, least, most) = piece[1], how

    def match(search: Search, at: int, then: _Then, count: int = 0) -> bool:
        def again(after: int) -> bool:
            return after > at and match(search, after, then, count + 1)

        return (count < most and inner(search, at, again)) or (count >= least and then(at))

    return f"{piece[0]}{sign}", match


def in_order(pieces: list[Piece]) -> Piece:
    def match(search: Search, at: int, then: _Then, number: int = 0) -> bool:
        if number == len(pieces):
            return then(at)
        return pieces[number][1](search, at, lambda after: match(search, after, then, number + 1))

    return "".join(written for written, _ in pieces), match


def either(pieces: list[Piece]) -> Piece:
    def match(search: Search, at: int, then: _Then) -> bool:
        return any(piece(search, at, then) for _, piece in pieces)

    return f"({'|'.join(written for written, _ in pieces)})", match


def grouped(piece: Piece) -> Piece:
    return f"({piece[0]})", piece[1]


CHARACTERS = [
    one("a", "a"),
    one("b", "b"),
    one("A", "A"),
    one("[ab]", "ab"),
    one("[^b]", "aABc"),
    one(".", "abABc"),
    one("[[:alpha:]]", "abABc"),
]
CHARACTERS += [one(r"\w", "abABc"), one("[A-B]", "AB"), one("[^a-b]", "ABc"), one(r"\-", "-")]
HOW = [("*", 0, 99), ("+", 1, 99), ("?", 0, 1), ("{2}", 2, 2), ("{1,3}", 1, 3), ("{2,}", 2, 99)]
_CHARACTERS = st.sampled_from(CHARACTERS)
_ITEMS = st.recursive(
    _CHARACTERS | st.builds(repeated, _CHARACTERS, st.sampled_from(HOW)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(in_order).map(grouped),
        st.lists(inner, min_size=2, max_size=3).map(either),
        st.builds(repeated, st.lists(inner, max_size=3).map(in_order).map(grouped), st.sampled_from(HOW)),
    ),
    max_leaves=8,
)
LENGTH = 40
_TEXTS = st.sampled_from(["a", "b", "A", "B", "ab", "aA", "Ab", "aab", "a" * 20 + "b" * 20, "a" * 39 + "-"]).map(
    lambda text: (text * LENGTH)[:LENGTH]
)


@pytest.mark.long
@settings(deadline=None)
@given(st.lists(_ITEMS, min_size=1, max_size=5), st.booleans(), _TEXTS, st.booleans())
def test_no_search_takes_more_steps_than_are_told(items: list[Piece], anchored: bool, text: str, with_case: bool) -> None:
    written, match = in_order(items)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patterns, "LENGTH", LENGTH)
        try:
            told = steps_of_pattern(f"^{written}c$" if anchored else f"{written}c$")
        except patterns.PatternNotReadError:
            return
    search = Search(text, with_case=with_case)
    end = one("c", "c")[1]
    most = min(told, MOST_STEPS) * (len(patterns.tokens_of(written)) + 2)
    try:
        for start in range(1 if anchored else len(text) + 1):
            assert not match(search, start, lambda at: end(search, at, lambda after: after == len(text)))
    except TooManyStepsError:
        pass
    assert search.steps <= most, f"{written} takes {search.steps} steps, and {told} are told"
