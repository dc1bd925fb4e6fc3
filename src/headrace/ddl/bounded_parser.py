"""Parses MySQL's SQL with sqlglot, within limits: some constructs double its time with each level of nesting.

sqlglot has more parsers inside its parser, which count no steps: of JSON paths, intervals, hints and types in quotes. None of them
runs here. sqlglot also logs parts of the text. What it logs here is dropped, because it would reach the terminal as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokens import TokenType

_STEPS_A_TOKEN, _STEPS_AT_LEAST = 100, 5_000
"""Real statements and those of TiDB's own tests take 2 to 20 steps per token."""
_LONGEST_NAME = 256
"""The longest alias of MySQL, in characters. Other names are shorter."""
_LONGEST_BESIDE_INTERVAL = 256
"""In characters. sqlglot searches the text of an interval in time proportional to the square of its length."""
_is_silent: ContextVar[bool] = ContextVar("headrace_sqlglot_is_silent", default=False)

# The logger is shared with the program that imports Headrace, so its own entries stay.
logging.getLogger("sqlglot").addFilter(lambda _: not _is_silent.get())


@contextmanager
def silent_sqlglot() -> Iterator[None]:
    """Drops what sqlglot logs inside."""
    token = _is_silent.set(True)
    try:
        yield
    finally:
        _is_silent.reset(token)


class _Dialect(MySQL):  # type: ignore[misc, unused-ignore]
    """Keeps JSON paths as they are written."""

    def to_json_path(self, path: Any) -> Any:
        return path


class _Parser(MySQL.Parser):  # type: ignore[misc, unused-ignore]
    """Counts its steps forward and back, and stops at the limit. Skips hints, and reads no type in quotes."""

    steps_left = 0

    def _advance(self, times: int = 1) -> None:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise ParseError("it takes too long to read")
        super()._advance(times)

    def _parse_hint(self) -> None:
        self._match(TokenType.HINT)

    def _parse_types(
        self, check_func: bool = False, schema: bool = False, allow_identifiers: bool = True, with_collation: bool = False
    ) -> Any:
        is_quoted = self._curr is not None and self._curr.token_type is TokenType.IDENTIFIER
        return super()._parse_types(
            check_func=check_func,
            schema=schema,
            allow_identifiers=allow_identifiers and not is_quoted,
            with_collation=with_collation,
        )


def parse(text: str) -> list[Any]:
    """The statements of a text as sqlglot trees. Raises SqlglotError for a text that cannot be parsed or takes too long.

    JSON paths are literals.
    """
    dialect = _Dialect()
    tokens = dialect.tokenize(text)
    _check_lengths(tokens)
    parser = _Parser(dialect=dialect)
    parser.steps_left = _STEPS_A_TOKEN * len(tokens) + _STEPS_AT_LEAST
    try:
        with silent_sqlglot():
            return list(parser.parse(tokens, text))
    except RecursionError:
        raise SqlglotError("it is nested too deeply") from None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:  # sqlglot raises these for some invalid texts
        raise SqlglotError(f"it cannot be read ({error})") from None


def _check_lengths(tokens: Sequence[Any]) -> None:
    has_interval = any(token.token_type is TokenType.INTERVAL for token in tokens)
    for token in tokens:
        if token.token_type is TokenType.IDENTIFIER and len(token.text) > _LONGEST_NAME:
            raise SqlglotError("a name in it is too long")
        if has_interval and token.token_type is TokenType.STRING and len(token.text) > _LONGEST_BESIDE_INTERVAL:
            raise SqlglotError("a text in it is too long")
