"""Estimates from a regular expression alone how long a server may search a text with it.

MariaDB searches by backtracking (PCRE). With ``(a|a)*$`` the number of tries doubles with each character of the text; 6 KB take
minutes (tried with 10.11). MariaDB's limit of 10 million steps starts anew at each character. MySQL (ICU) gives up after a while.
TiDB (RE2) takes time in proportion to the text.

For a text of :data:`LENGTH` characters, two figures are computed for each part of a pattern: ``steps``, and ``ways``, the number of
ways in which matching can continue after the part. After a repeated character there is one way if what follows cannot start with
that character. Otherwise matching can continue after each repetition.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

MOST_STEPS = 10_000_000
"""Of all patterns of a statement. Allows quadratic time, which searches for plain texts can take too, but not cubic time."""
MOST_PATTERNS = 20
"""The most patterns of a statement. Others are not even read."""
LENGTH = 1_000
"""The length of the text, in characters, for which steps are estimated."""
_MOST_DEPTH = 20
_MOST_TOKENS = 500
_MOST_ITEMS = 2_000
_TOKEN = re.compile(
    r"(?P<open>\((?:\?:)?(?![?*]))|(?P<close>\))|(?P<or>\|)|(?P<edge>[\^$]|\\b)"
    r"|(?P<repeat>(?:[*+?]|\{[0-9]{1,4}(?:,[0-9]{0,4})?\})[?+]?)"
    r"|(?P<set>\[\^?\]?(?:\[:\^?[a-z]+:\]|\\[^A-Za-z0-9]|\\[dDwWsSnrt]|[^\]\[\\])*\])"
    r"|(?P<any>\.)|(?P<escape>\\(?:[^A-Za-z0-9]|[dDwWsSnrt]))|(?P<plain>[^\\\[\](){}*+?|^$.])",
    re.DOTALL,
)
_ONE = frozenset({"set", "any", "escape", "plain"})
"""The kinds of tokens that stand for one character."""
_ASCII = "".join(map(chr, range(128)))
_EVERYTHING = frozenset(_ASCII) | {""}
_FOLDED_TO = frozenset("ks")
"""ASCII letters that servers treat as equal to a letter outside of ASCII: ``k`` to the Kelvin sign, ``s`` to the long s."""


class PatternNotReadError(Exception):
    """The pattern has something whose cost is not estimated here. The message is a clause."""


@dataclass(frozen=True)
class Token:
    """A token of a pattern. ``kind`` is the name of a group of :data:`_TOKEN`."""

    kind: str
    text: str


@dataclass(frozen=True)
class _Part:
    """A part of a pattern."""

    steps: int = 0
    """The most steps that matching it takes from one place in the text."""
    ways: int = 1
    """In how many ways matching can continue after it."""
    first: frozenset[str] = frozenset()
    """The ASCII characters, in lower case, that it may begin with. The empty text stands for all other characters."""
    is_empty: bool = True
    """Whether it may match nothing."""

    def before(self, rest: _Part) -> _Part:
        """This part followed by ``rest``."""
        first = self.first | rest.first if self.is_empty else self.first
        steps, ways = self.steps + self.ways * rest.steps, self.ways * rest.ways
        return _Part(_bounded(steps), _bounded(ways), first, self.is_empty and rest.is_empty)

    def beside(self, other: _Part) -> _Part:
        """This part or ``other``."""
        steps, ways = self.steps + other.steps, self.ways + other.ways
        return _Part(_bounded(steps), _bounded(ways), self.first | other.first, self.is_empty or other.is_empty)


def steps_of_pattern(pattern: str) -> int:
    """The most steps that a search in a text of :data:`LENGTH` characters takes, up to a factor of about the pattern's length.

    A figure above :data:`MOST_STEPS` means only that the search may take more than that. Raises PatternNotReadError for constructs
    that are not read here: groups repeated without a bound, back-references, lookarounds, options.
    """
    tokens = tokens_of(pattern)
    end = _without_last_repetitions(tokens)
    reading = _Reading(tokens[:end])
    part = reading.alternatives(_Part(), 0)
    if not reading.done:
        raise PatternNotReadError("has a parenthesis too many")
    return part.steps * (1 if _is_anchored(tokens) else LENGTH) + (len(tokens) - end) * LENGTH


def _bounded(number: int) -> int:
    return min(number, MOST_STEPS + 1)


def tokens_of(pattern: str) -> list[Token]:
    """The tokens of a pattern: its operators, and each piece that stands for a character. Raises PatternNotReadError."""
    found, at = list[Token](), 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise PatternNotReadError(
                f"has {pattern[at : at + 4]!r}, which is more than groups, characters and how often they are repeated"
            )
        found.append(Token(token.lastgroup or "", token[0]))
        at = token.end()
        if len(found) > _MOST_TOKENS:
            raise PatternNotReadError(f"has more than {_MOST_TOKENS:,} parts")
    return found


class _Reading:
    """Reads a pattern from its end to its beginning, since the cost of a part depends on what follows it.

    Methods raise PatternNotReadError.
    """

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._left = len(tokens)
        self._most_items = _MOST_ITEMS

    @property
    def done(self) -> bool:
        return self._left == 0

    def alternatives(self, rest: _Part, depth: int) -> _Part:
        """Reads back to the opening parenthesis, or to the beginning of the pattern. ``rest`` is what follows."""
        if depth > _MOST_DEPTH:
            raise PatternNotReadError(f"has groups that are nested more than {_MOST_DEPTH} deep")
        found, branch = list[_Part](), _Part()
        while self._left and self._tokens[self._left - 1].kind != "open":
            if self._tokens[self._left - 1].kind == "or":
                self._left -= 1
                found.append(branch)
                branch = _Part()
            else:
                branch = self._item(branch.before(rest), depth).before(branch)
        for other in found:
            branch = branch.beside(other)
        return branch

    def _item(self, rest: _Part, depth: int) -> _Part:
        """Reads the last item that is left, with its repetition."""
        self._most_items -= 1
        if self._most_items < 0:
            raise PatternNotReadError("repeats groups of many parts")
        token, least, most = self._taken(), 1, 1
        if token.kind == "repeat":
            least, most = _times(token)
            token = self._taken()
            if token.kind not in _ONE | {"close"}:
                raise PatternNotReadError("repeats what is no character")
        if token.kind == "edge":
            return _Part()
        if token.kind != "close":
            return _repeated(_characters(token), least, most, rest.first)
        if not 0 < most < LENGTH:
            raise PatternNotReadError("repeats a group without a bound")
        return self._group(rest, depth, least, most)

    def _group(self, rest: _Part, depth: int, least: int, most: int) -> _Part:
        """Reads ``most`` copies of a group, the last one first. Copies beyond ``least`` may be left out, with all after them."""
        found, end = _Part(), self._left
        for number in range(most):
            self._left = end
            found = self.alternatives(found.before(rest), depth + 1).before(found)
            if self._taken().kind != "open":
                raise PatternNotReadError("has a parenthesis too many")
            if number < most - least:
                found = found.beside(_Part())
        return found

    def _taken(self) -> Token:
        self._left -= 1
        return self._tokens[self._left] if self._left >= 0 else Token("", "")


def _without_last_repetitions(tokens: list[Token]) -> int:
    """The number of tokens before the repeated characters at the end that may be missing, as in ``a.*``. They match only once."""
    end = len(tokens)
    while end > 1 and tokens[end - 1].kind == "repeat" and _times(tokens[end - 1])[0] == 0 and tokens[end - 2].kind in _ONE:
        end -= 2
    return end


def _is_anchored(tokens: list[Token]) -> bool:
    """Whether a match can start only at the beginning of the text."""
    depth = 0
    for token in tokens:
        depth += (token.kind == "open") - (token.kind == "close")
        if token.kind == "or" and depth == 0:
            return False
    return bool(tokens) and tokens[0].text == "^"


def _times(token: Token) -> tuple[int, int]:
    """The least and the most repetitions. The most is :data:`LENGTH` if the token has no upper bound."""
    if token.text[0] != "{":
        return {"*": (0, LENGTH), "+": (1, LENGTH), "?": (0, 1)}[token.text[0]]
    least, is_range, most = token.text[1:].rstrip("?+").removesuffix("}").partition(",")
    return int(least), (int(most) if most else LENGTH) if is_range else int(least)


def _repeated(characters: frozenset[str], least: int, most: int, follows: frozenset[str]) -> _Part:
    ways = max(1, most - least + 1) if characters & follows else 1
    return _Part(_bounded(max(1, most)), _bounded(ways), characters, least == 0)


def _characters(token: Token) -> frozenset[str]:
    """The characters that a token may match, as in ``_Part.first``, without regard to case."""
    if token.kind == "any":
        return _EVERYTHING
    if token.kind == "plain":
        return _folded(token.text)
    if token.kind == "escape":
        return _escaped(token.text[1])
    inner = token.text[1:-1]
    if not inner.startswith("^"):
        return _listed(inner)
    # Letters are not excluded: in a search that is sensitive to case, ``[^a]`` matches ``A``, which is folded to ``a`` here.
    without = _certainly_listed(inner[1:])
    return frozenset(c for c in _EVERYTHING if c not in without or c.isalpha())


_PIECE = re.compile(r"\[:(?P<negated>\^?)(?P<named>[a-z]+):\]|(?P<begin>\\?.)-(?P<end>\\?.)|(?P<one>\\?.)", re.DOTALL)
_UNCERTAIN_SPACES = frozenset("\v\x1c\x1d\x1e\x1f")
"""Characters that are spaces only for some readers of ``\\s``."""
_CLASSES = {"d": "[0-9]", "w": r"\w", "s": r"\s"}


def _listed(inner: str) -> frozenset[str]:
    """The characters that a list may have, and perhaps others."""
    return frozenset[str]().union(*map(_of_piece, _PIECE.finditer(inner)))


def _certainly_listed(inner: str) -> frozenset[str]:
    """The ASCII characters that a list has for every server. A piece that may be everything has none for certain."""
    pieces = (found for piece in _PIECE.finditer(inner) if (found := _of_piece(piece)) != _EVERYTHING)
    return frozenset[str]().union(*pieces) - _UNCERTAIN_SPACES - {""}


def _of_piece(piece: re.Match[str]) -> frozenset[str]:
    if piece["named"] is not None:
        return _EVERYTHING if piece["named"] not in _NAMED or piece["negated"] else _NAMED[piece["named"]]
    if piece["one"] is not None:
        return _escaped(piece["one"][1]) if len(piece["one"]) == 2 else _folded(piece["one"])
    return _between(piece["begin"], piece["end"])


def _between(begin: str, end: str) -> frozenset[str]:
    if end == "[" or any(len(edge) == 2 and edge[1].isalpha() for edge in (begin, end)):
        return _EVERYTHING  # servers differ in what such a range means
    first, last = ord(begin[-1]), ord(end[-1])
    found = _folded("".join(character for character in _ASCII if first <= ord(character) <= last))
    return found | _beyond() if last > 127 else found


def _escaped(letter: str) -> frozenset[str]:
    if letter in "nrt":
        return frozenset({"n": "\n", "r": "\r", "t": "\t"}[letter])
    if letter.lower() not in _CLASSES:
        return _folded(letter)
    # _beyond(), because there are digits and spaces outside of ASCII too.
    inside = _beyond() | {c.lower() for c in _ASCII if re.match(_CLASSES[letter.lower()], c)}
    return inside if letter.islower() else _EVERYTHING


def _folded(characters: Iterable[str]) -> frozenset[str]:
    found: frozenset[str] = frozenset()
    for character in characters:
        found |= frozenset(character.lower()) if character.isascii() else _beyond()
    return found


def _beyond() -> frozenset[str]:
    return _FOLDED_TO | {""}


_NAMED = {
    "alpha": _folded(c for c in _ASCII if c.isalpha()) | _beyond(),
    "alnum": _folded(c for c in _ASCII if c.isalnum()) | _beyond(),
    "digit": _folded("0123456789") | _beyond(),
    "xdigit": _folded("0123456789abcdef"),
    "lower": _folded(c for c in _ASCII if c.isalpha()) | _beyond(),
    "upper": _folded(c for c in _ASCII if c.isalpha()) | _beyond(),
    "space": _folded(" \t\n\r\v\f") | _beyond(),
    "blank": _folded(" \t") | _beyond(),
    "punct": _folded(c for c in _ASCII if c.isprintable() and not c.isalnum() and c != " ") | _beyond(),
}
