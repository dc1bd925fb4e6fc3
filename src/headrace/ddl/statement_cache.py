"""A cache of parsed statements, because several parts of the engine and the sinks parse the same statement.

For a cut of many tables, all statements are parsed in turn, and then all of them again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")
# The words of a statement take some hundred times its length. So the cache is limited to about 100 MB in total, plus as much for
# one statement with the most possible words, whatever statements the source contains.
_CHARACTERS = 1 << 20
_OF_ONE = 256
"""What each statement counts for in addition to its length, in characters."""


def remembered(read: Callable[Concatenate[str, _P], _T]) -> Callable[Concatenate[str, _P], _T]:
    """Wraps the function so that the results of its last calls are cached. The total length of their texts (the first argument) is
    limited."""
    lock = threading.Lock()
    kept: OrderedDict[tuple[object, ...], tuple[int, _T]] = OrderedDict()
    room = _CHARACTERS

    @wraps(read)
    def ask(text: str, /, *arguments: _P.args, **named: _P.kwargs) -> _T:
        nonlocal room
        key = (text, arguments, *named.items())
        with lock:
            if key in kept:
                kept.move_to_end(key)
                return kept[key][1]
        found, size = read(text, *arguments, **named), len(text) + _OF_ONE
        with lock:
            if key not in kept:
                kept[key], room = (size, found), room - size
            while room < 0 and len(kept) > 1:
                room += kept.popitem(last=False)[1][0]
        return found

    return ask
