"""Counts, word by word, how deep a server nests the expressions of a statement.

A server reads an expression into a tree and walks it by recursion. Each parenthesis nests, and so does each operator of a chain:
``f + f + f`` is ``(f + f) + f``. MariaDB (10.11, tried with its default ``thread_stack``) refuses 700 terms (error 1436), and 4,000
terms of a generated column overflow its stack: the server crashes. Lists, and chains of AND or of OR, do not nest.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.ddl.grammar.vocabulary import BEFORE_PARENTHESIS, FUNCTIONS, RESERVED
from headrace.ddl.lexer import Word

MOST_NESTED = 400
"""The greatest depth of an expression: parentheses and operators together."""
_FLAT = frozenset({"AND", "OR", "&&", "||"})
_NESTS_ACROSS = frozenset({"BETWEEN", "CASE", "XOR"})
"""Words whose operands may contain AND or OR without a parenthesis."""
_BEGINS = frozenset(
    {",", "SELECT", "FROM", "WHERE", "ON", "HAVING", "BY", "LIMIT", "JOIN", "STRAIGHT_JOIN", "UNION", "EXCEPT", "INTERSECT"}
)
"""Words that no expression contains: behind each of them another one begins."""
_NO_OPERATORS = frozenset(
    {".", "WHEN", "THEN", "ELSE", "NULL", "TRUE", "FALSE", "AS", "DISTINCT", "ALL", "ASC", "DESC", "SEPARATOR"}
)


@dataclass
class _Level:
    """The expression inside a parenthesis that was read so far, back to the last comma."""

    operators: int = 0
    """Those since the last AND or OR."""
    inner: int = 0
    """The greatest depth of a parenthesis since the last AND or OR."""
    former: int = 0
    """The greatest depth of what is before the last AND or OR."""
    nests: bool = False
    """Whether it contains one of ``_NESTS_ACROSS``."""
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
        self.most, self.operators, self.inner, self.former, self.nests = self.depth, 0, 0, 0, False

    def join(self) -> None:
        """Reads an AND or OR."""
        if self.nests:
            self.operators += 1
        else:
            self.former, self.operators, self.inner = self._depth, 0, 0


class Depth:
    """Reads the words of one statement in order."""

    def __init__(self) -> None:
        self._levels = [_Level()]

    def excess(self, word: Word, following: Word) -> str:
        """Reads the next word. Returns why the expression around it nests too deep, as a clause; empty if it does not.

        ``following`` is the word after it.
        """
        level = self._levels[-1]
        if word.is_name or word.is_literal:
            return ""
        text = word.text.upper()
        if text == "(":
            self._levels.append(_Level())
        elif text == ")":
            if len(self._levels) > 1:
                inner = self._levels.pop().depth + 1
                level = self._levels[-1]
                level.inner = max(level.inner, inner)
        elif text in _BEGINS:
            level.begin()
        elif text in _FLAT:
            level.join()
        elif _is_operator(word, text, following):
            level.operators += 1
            level.nests = level.nests or text in _NESTS_ACROSS
        too_deep = self._levels[-1].depth > MOST_NESTED
        return f"the operators and parentheses of an expression are nested more than {MOST_NESTED} deep" if too_deep else ""


def _is_operator(word: Word, text: str, following: Word) -> bool:
    if text in _NO_OPERATORS:
        return False
    if following.says("(") and text in FUNCTIONS and text not in BEFORE_PARENTHESIS:
        return False
    return word.is_sign or text in RESERVED
