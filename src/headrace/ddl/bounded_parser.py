"""Parses MySQL's SQL with sqlglot, with a limit on steps: some constructs double its time with each level of nesting."""

from __future__ import annotations

from typing import Any

from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import ParseError, SqlglotError

_STEPS_A_TOKEN, _STEPS_AT_LEAST = 100, 5_000
"""Real statements and those of TiDB's own tests take 2 to 20 steps per token."""


class _Parser(MySQL.Parser):  # type: ignore[misc, unused-ignore]
    """Counts its steps forward and back, and stops at the limit."""

    steps_left = 0

    def _advance(self, times: int = 1) -> None:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise ParseError("it takes too long to read")
        super()._advance(times)


def parse(text: str) -> list[Any]:
    """The statements of a text as sqlglot trees. Raises SqlglotError for a text that cannot be parsed or takes too long."""
    dialect = MySQL()
    tokens = dialect.tokenize(text)
    parser = _Parser(dialect=dialect)
    parser.steps_left = _STEPS_A_TOKEN * len(tokens) + _STEPS_AT_LEAST
    try:
        return list(parser.parse(tokens, text))
    except RecursionError:
        raise SqlglotError("it is nested too deeply") from None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:  # sqlglot raises these for some invalid texts
        raise SqlglotError(f"it cannot be read ({error})") from None
