"""What was read of statements, kept for those who ask again: several parts of the engine and the sinks ask about one statement."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Concatenate, ParamSpec, TypeVar, cast

_P = ParamSpec("_P")
_T = TypeVar("_T")
# The words of a statement take some hundred times its length: about 100 MB in all, and as much for a statement that has as many
# as can be, whoever wrote the statements.
_SIZES = ((2 << 10, 256), (64 << 10, 8))
_OF_LARGEST = 1


def remembered(read: Callable[Concatenate[str, _P], _T]) -> Callable[Concatenate[str, _P], _T]:
    """The function, with the results of its last calls kept: many of short texts (its first argument), few of long ones."""
    sizes = (*_SIZES, (sys.maxsize, _OF_LARGEST))
    caches = [(length, cast(Callable[Concatenate[str, _P], _T], lru_cache(maxsize=count)(read))) for length, count in sizes]

    @wraps(read)
    def ask(text: str, /, *arguments: _P.args, **named: _P.kwargs) -> _T:
        cache = next(cache for length, cache in caches if len(text) <= length)
        return cache(text, *arguments, **named)

    return ask
