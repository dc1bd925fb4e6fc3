"""Expressions that MariaDB (10.11) stores without some of their parentheses, and so reads as other ones.

``(v LIKE 'a') NOT IN (0, 5)`` becomes ``v LIKE ('a' NOT IN (0, 5))``: the parentheses around LIKE and REGEXP are lost before
NOT IN, NOT BETWEEN and NOT LIKE. The NOT may also be elsewhere: MariaDB stores ``NOT ((v LIKE 'a') IN (0, 5))`` in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.ddl.grammar.vocabulary import BEFORE_PARENTHESIS, FUNCTIONS
from headrace.ddl.lexer import Word, rendered, words
from headrace.sinks.mysql.adaptation.draft import UnadaptableError

_MATCHES = ("LIKE", "REGEXP", "RLIKE")
_LOSES = ("IN", "BETWEEN", "LIKE")
_NEGATES = ("NOT", "!")
_SHOWN = 80


@dataclass
class _Group:
    """What was read in a parenthesis, without the parentheses in it."""

    start: int
    """The place of the word after the opening parenthesis."""
    is_call: bool = False
    cases: int = 0
    """How many CASE have no END yet. Their operators are in another operand."""
    matches: bool = False
    """Whether LIKE or REGEXP is an operator of it."""
    inner: bool = False
    """Whether a parenthesis in it would be lost."""
    others: bool = False
    """Whether it has words other than these operators and negations."""

    @property
    def may_be_lost(self) -> bool:
        return not self.is_call and (self.matches or (self.inner and not self.others))

    def read(self, word: Word) -> None:
        if word.says("CASE"):
            self.cases += 1
        elif word.says("END") and self.cases:
            self.cases -= 1
        if _says(word, _MATCHES) and not self.cases:
            self.matches = True
        elif not _says(word, _NEGATES):
            self.others = True


def refuse_lost_parentheses(statement: str) -> None:
    """Raises UnadaptableError for a statement with such an expression. Some of those that it refuses would lose nothing."""
    found = words(statement) or ()
    groups = [_Group(0)]
    for at, word in enumerate(found):
        if word.says("("):
            groups.append(_Group(at + 1, at > 0 and _calls(found[at - 1])))
        elif not word.says(")"):
            groups[-1].read(word)
        elif len(groups) > 1:
            group = groups.pop()
            groups[-1].inner |= group.may_be_lost
            if group.may_be_lost and (operator := _operator(found[at + 1 : at + 3])):
                _refuse(found[group.start : at], operator)


def _refuse(inside: Sequence[Word], operator: str) -> None:
    text = rendered(inside)
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    raise UnadaptableError(
        f"MariaDB loses the parentheses around {shown} before {operator} when it stores the expression, and would"
        " compute other values than TiDB.",
        "Edit the statement: write ((…) + 0) in place of (…).",
    )


def _operator(following: Sequence[Word]) -> str:
    """The operator behind a parenthesis, if the parenthesis may be lost before it; else empty."""
    behind = following[1:] if following and following[0].says("NOT") else following
    is_lossy = bool(behind) and _says(behind[0], _LOSES)
    return " ".join(word.text.upper() for word in following[: len(following) - len(behind) + 1]) if is_lossy else ""


def _calls(word: Word) -> bool:
    text = "" if word.is_name or word.is_literal else word.text.upper()
    return text in FUNCTIONS and text not in BEFORE_PARENTHESIS


def _says(word: Word, keywords: Sequence[str]) -> bool:
    return any(word.says(keyword) for keyword in keywords)
