"""Inputs by the million from a plain random number generator: what is said of a few thousand is not what a year of inputs says.

``HEADRACE_FUZZ_EXAMPLES`` sets how many there are, from another seed each time; without it there are few, always the same.
"""

from __future__ import annotations

import os
import re
import time
import traceback
from collections.abc import Callable, Sequence
from random import Random, SystemRandom
from typing import TypeVar

T = TypeVar("T")

_ASKED_FOR = int(os.environ.get("HEADRACE_FUZZ_EXAMPLES", "0"))
_LONGEST_SECONDS = 10.0  # of the processor's time; most inputs take less than a millisecond
_SEEDS = 1 << 40

PIECES = (
    *("'", '"', "`", "``", "''", "\\", "\\'", "/*", "*/", "/*!", "/*!50000 ", "/*T! ", "/*T![x] ", "/*M!100100 ", "-- ", "--", "#"),
    *("(", ")", "((", "))", ",", ";", ".", "=", "@", "@@", ":=", "?", "$", "${", "}", "%", "%2F", "%zz", "&", "://", "..", "/"),
    *("[", "]", "{", "- ", ": ", "&a ", "*a", "!!", "~", "\x00", "\x01", "\x1a", "\x1b", "\r", "\n", "\r\n", "\t", "\x0b", "\x0c"),
    *("\x85", "\xa0", "\u2028", "\u3000", "\ufeff", "\u200b", "\u202e", "²", "٣", "é", "ſ", "ı", "İ", "€", "😀", "\ud800", "ｍ"),
    *("0", "-1", "1e5", "0x", "x'", "b'", "N'", "_gbk'", "9" * 30, "9" * 400 + ".5", "9" * 5000),
    *("SELECT", "TABLE", "PARTITION", "mysql.", "NULL", "\\N", "null", "true"),
)
"""What readers stumble over: the signs of all the languages that they read, odd characters, numbers without end."""
_TOKENS = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`(?:[^`]|``)*`|/\*.*?\*/|\w+|\s+|.", re.DOTALL)
_OPENINGS = ("/*!", "/*!50000 ", "/*T! ", "/*T![ttl] ", "/*", "/*M! ")
_DEEP = 1500  # more than Python's own readers go down
_OFTEN = (300, 3_000, 20_000)


def fuzz(ordinary: int, make: Callable[[Random], T], check: Callable[[T], object]) -> None:
    """Checks so many inputs, and fails at the end with the first input of each kind of error, its number and the seed.

    An input that takes longer than some seconds counts as one that hangs.
    """
    seed = SystemRandom().randrange(_SEEDS) if _ASKED_FOR else 0
    chance = Random()
    found: dict[str, str] = {}
    for number in range(_ASKED_FOR or ordinary):
        chance.seed(seed + number * _SEEDS)
        made = make(chance)
        began = time.process_time()
        try:
            check(made)
        except Exception as error:  # noqa: BLE001
            found.setdefault(_place(error), f"input {number}: {_cut(made)}\n  {type(error).__name__}: {str(error)[:500]}")
        took = time.process_time() - began
        if took > _LONGEST_SECONDS:
            found.setdefault("slow", f"input {number} took {took:.1f} s: {_cut(made)}")
    assert not found, "\n".join([f"seed {seed}", *(f"{place}\n  {said}" for place, said in found.items())])


def _place(error: BaseException) -> str:
    """Where it was raised, as far as that is in files of this project."""
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "site-packages" not in frame.filename]
    return f"{type(error).__name__} in {ours[-1].filename}:{ours[-1].lineno}" if ours else type(error).__name__


def _cut(made: object) -> str:
    shown = repr(made)
    return shown if len(shown) <= 1000 else f"{shown[:500]}… {shown[-200:]} ({len(shown)} characters)"


def tokens_of(text: str) -> tuple[str, ...]:
    """The text in pieces that mean something: words, blanks, strings, comments, single signs."""
    return tuple(_TOKENS.findall(text))


def mutated(chance: Random, tokens: Sequence[str], others: Sequence[Sequence[str]]) -> str:
    """A text after one to four changes of its tokens, and at times of its characters. ``others`` lend theirs."""
    found = list(tokens)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 4))):
        _change(chance, found, others)
    text = "".join(found)
    if chance.random() < 0.3:
        text = flipped(chance, text)
    return text


def _change(chance: Random, found: list[str], others: Sequence[Sequence[str]]) -> None:
    """One change in place."""
    first, second = sorted((chance.randrange(len(found) + 1), chance.randrange(len(found) + 1)))
    near = min(second, first + 4)
    match chance.randrange(11):
        case 0:
            found[first:near] = []
        case 10:
            found[first:near] = found[first:near] * _repeats(chance)
        case 1:
            found[second:second] = found[first:near]
        case 2 if second < len(found):
            found[first], found[second] = found[second], found[first]
        case 3 | 4:
            found.insert(first, chance.choice(PIECES))
        case 5:
            other = chance.choice(others)
            at = chance.randrange(len(other) + 1)
            found[first:near] = other[at : at + chance.randrange(1, 6)]
        case 6:
            deep = _DEEP if chance.random() < 0.01 else chance.randrange(1, 8)
            opening, closing = chance.choice(("()", "()", "()", "[]", "{}"))
            found[first:near] = [opening * deep, *found[first:near], closing * (deep - (chance.random() < 0.2))]
        case 7:
            found[first:near] = [
                chance.choice(("/*!", "/*!50000 ", "/*T! ", "/*T![ttl] ", "/*", "/*M! ")),
                *found[first:near],
                " */",
            ]
        case 8:
            found[first:near] = [token.swapcase() for token in found[first:near]]
        case _:
            del found[second:]


def _repeats(chance: Random) -> int:
    """How often something comes: at times so often that what takes time by the square of it is seen to hang."""
    return chance.choice(_OFTEN) if chance.random() < 0.02 else chance.randrange(2, 6)


def flipped(chance: Random, text: str) -> str:
    """A text with one character that differs in a bit, is lost, or is another one."""
    if not text:
        return chance.choice(PIECES)
    at = chance.randrange(len(text))
    match chance.randrange(3):
        case 0:
            other = chr(ord(text[at]) ^ 1 << chance.randrange(8))
        case 1:
            other = ""
        case _:
            other = chr(chance.choice((chance.randrange(128), chance.randrange(0x3000), chance.randrange(0x110000))))
    return text[:at] + other + text[at + 1 :]


def damaged(chance: Random, whole: bytes, pieces: Sequence[bytes]) -> bytes:
    """Bytes after one to three accidents: flips, cuts, insertions, pieces that come twice, swap places or are lost."""
    data = whole
    for _ in range(chance.randrange(1, 4)):
        first, second = sorted((chance.randrange(len(data) + 1), chance.randrange(len(data) + 1)))
        match chance.randrange(8):
            case 0 if first < len(data):
                data = data[:first] + bytes([data[first] ^ 1 << chance.randrange(8)]) + data[first + 1 :]
            case 1:
                data = data[:second]
            case 2:
                data = data[:first] + chance.choice(pieces) + data[first:]
            case 3:
                data = data[:second] + data[first:second] + data[second:]
            case 4:
                data = data[second:] + data[first:second] + data[:first]
            case 5:
                data = data[:first] + data[second:]
            case 7:
                data = data[:first] + data[first : first + chance.randrange(1, 30)] * _repeats(chance) + data[first:]
            case _:
                data = data[:first] + data[first + chance.randrange(1, 5) :]
    return data
