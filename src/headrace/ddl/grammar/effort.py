"""Counts, word by word, how deep a server nests an expression and how many operations it needs for it.

The bounds are far below what servers stand, and above what people write; nothing here is an exact cost of a server. A server reads
an expression into a tree and walks it by recursion. Each parenthesis nests, and so does each operator of a chain: ``f + f + f`` is
``(f + f) + f``. Lists, alternatives of CASE, and chains of AND or of OR, do not nest. In MariaDB (10.11), a few hundred operators
of some kinds overflow the stack: the server crashes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from headrace.ddl.function_costs import COSTS
from headrace.ddl.grammar.vocabulary import BEFORE_PARENTHESIS, FUNCTIONS, RESERVED, VALUES
from headrace.ddl.lexer import Word

MOST_NESTED = 50
"""The greatest depth of an expression: parentheses and operators together."""
MOST_OPERATIONS = 1_000
"""The most operations of the expressions of a statement, and of all generated columns of a table."""
OF_SEARCH = 10
"""A search of one text in another counts as so many operations."""
OF_PATTERN = 50
"""A search by a regular expression counts as so many operations."""
_OF_REPEATED = 16
"""How deep IN, CASE with an operand, NULLIF and LOCATE count, so that three of them nest. Servers compute an operand again: the
first one for each type that it is compared as, and the place where LOCATE begins. In MariaDB, each level takes twice the time or
more."""
_COMPUTED_AGAIN = frozenset({"NULLIF", "LOCATE"})
_MEMBERS_OF_OPERATION = 10
"""So many members of a list, or arguments of a function, count as one operation."""
BY_PATTERN = frozenset({"REGEXP", "RLIKE", "REGEXP_INSTR", "REGEXP_LIKE", "REGEXP_REPLACE", "REGEXP_SUBSTR"})
"""Operators and functions that search by a regular expression: the right operand, or the second argument."""
_BY_PATH = frozenset(
    {"JSON_ARRAY_APPEND", "JSON_ARRAY_INSERT", "JSON_CONTAINS_PATH", "JSON_EXTRACT", "JSON_INSERT", "JSON_KEYS", "JSON_LENGTH"}
    | {"JSON_REMOVE", "JSON_REPLACE", "JSON_SET", "JSON_VALUE"}
)
"""Functions that look for a literal path: they read a document once, so they count as one operation."""
_FLAT = frozenset({"AND", "OR", "&&", "||"})
_PARTS_OF_CASE = frozenset({"WHEN", "THEN", "ELSE"})
_BEGINS = frozenset(
    {",", "SELECT", "FROM", "WHERE", "ON", "HAVING", "BY", "LIMIT", "JOIN", "STRAIGHT_JOIN", "UNION", "EXCEPT", "INTERSECT"}
)
"""Words that no expression contains: behind each of them another one begins."""
_NO_OPERATORS = VALUES | {".", "AS", "DISTINCT", "ALL", "ASC", "DESC", "SEPARATOR"}


@dataclass
class _Level:
    """What was read inside a parenthesis or a CASE, back to the last comma or word of the CASE."""

    own: int
    """How deep the parenthesis or the CASE itself counts."""
    is_case: bool = False
    operators: int = 0
    """Those since the last AND or OR, each as deep as it counts."""
    inner: int = 0
    """The greatest depth of a parenthesis or CASE since the last AND or OR."""
    former: int = 0
    """The greatest depth of what is before the last AND or OR."""
    between: int = 0
    """How many BETWEEN have no AND yet."""
    nests: bool = False
    """Whether it contains XOR, whose operands may contain AND or OR without a parenthesis."""
    most: int = 0
    """The greatest depth of an expression before the last comma."""

    @property
    def depth(self) -> int:
        return max(self.most, self._depth)

    @property
    def _depth(self) -> int:
        here = self.operators + self.inner
        return here + self.former if self.nests else max(here, self.former)

    def begin(self) -> None:
        self.most, self.operators, self.inner, self.former, self.between, self.nests = self.depth, 0, 0, 0, 0, False

    def join(self) -> None:
        """Reads an AND or OR."""
        if self.nests:
            self.operators += 1
        else:
            self.former, self.operators, self.inner = self._depth, 0, 0


class Effort:
    """Reads the words of one or several expressions in order."""

    def __init__(self) -> None:
        self._levels = [_Level(0)]
        self._follows_value = False
        self._former = Word("")
        self._operations = self._members = 0
        self.of_searches = 0
        """What searches count, of :attr:`operations`."""

    @property
    def operations(self) -> int:
        """How many operators, functions and parts of CASE were read. Searches count more than once, members of lists less."""
        return self._operations + self._members // _MEMBERS_OF_OPERATION

    @property
    def depth(self) -> int:
        """The greatest depth so far."""
        return max(level.depth + sum(outer.own for outer in self._levels[: at + 1]) for at, level in enumerate(self._levels))

    def read(self, word: Word, following: Word) -> str:
        """Reads the next word; ``following`` is the word after it.

        Returns why the expression around it cannot be run, as a clause; empty if it can.
        """
        if word.is_name or word.is_literal:
            self._follows_value, self._former = True, word
            return ""
        text = word.text.upper()
        followed, self._follows_value = self._follows_value, text in VALUES or text == ")"
        former, self._former = self._former, word
        level = self._levels[-1]
        if text == "(":
            self._levels.append(_Level(_OF_REPEATED if former.text.upper() in _COMPUTED_AGAIN and not former.is_literal else 1))
        elif text == ")":
            if level.is_case:
                return "a CASE in it has no END"
            self._close()
        elif text == "CASE":
            self._count(text)
            self._levels.append(_Level(1 if following.says("WHEN") else _OF_REPEATED, is_case=True))
        elif text == "END" and level.is_case:
            if not followed:
                return "a column named END is not in backquotes"
            self._close()
            self._follows_value = True
        elif text in _PARTS_OF_CASE:
            self._count(text)
            level.begin()
        elif text in _BEGINS:
            self._members += text == ","
            level.begin()
        elif text == "AND" and level.between:
            level.between -= 1
        elif text in _FLAT:
            self._count(text)
            level.join()
        else:
            self._operator(level, word, text, following)
        return too_deep() if self._levels[-1].depth > MOST_NESTED or len(self._levels) > 2 * MOST_NESTED else ""

    def _operator(self, level: _Level, word: Word, text: str, following: Word) -> None:
        """Reads an operator, the name of a function, or any other word."""
        is_called = following.says("(") and text in FUNCTIONS
        if is_called and text not in BEFORE_PARENTHESIS:
            self._count(text)
        elif text not in _NO_OPERATORS and (word.is_sign or text in RESERVED):
            self._count(text)
            level.operators += _OF_REPEATED if text == "IN" else 1
            level.between += text == "BETWEEN"
            level.nests |= text == "XOR"
        else:
            self._follows_value = text != "." and text not in _NO_OPERATORS - VALUES

    def _close(self) -> None:
        if len(self._levels) > 1:
            closed = self._levels.pop()
            level = self._levels[-1]
            level.inner = max(level.inner, closed.depth + closed.own)

    def _count(self, text: str) -> None:
        is_search = text == "LIKE" or (text in COSTS and COSTS[text].searches and text not in _BY_PATH)
        of_search = OF_PATTERN if text in BY_PATTERN else OF_SEARCH if is_search else 0
        self.of_searches += of_search
        self._operations += of_search or 1


def too_deep() -> str:
    """That an expression nests too deep, as a clause."""
    return (
        f"the operators and parentheses of an expression are nested more than {MOST_NESTED} deep (IN, CASE with an operand,"
        f" NULLIF and LOCATE count {_OF_REPEATED} times)"
    )


def too_many_operations() -> str:
    """That expressions have too many operations, as a clause."""
    return (
        f"its expressions have more than {MOST_OPERATIONS:,} operations, with the generated columns that they read (a search counts"
        f" {OF_SEARCH}, one by a regular expression {OF_PATTERN})"
    )


def effort_of(expression: Iterable[Word]) -> Effort:
    """The effort of an expression that was accepted by the grammar, or of as much of it as can be read."""
    found = (*expression, Word("", is_literal=True))
    effort = Effort()
    for word, following in pairwise(found):
        if effort.read(word, following):
            break
    return effort
