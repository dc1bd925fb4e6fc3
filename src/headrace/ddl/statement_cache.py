"""What was read of statements, kept for those who ask again: several parts of the engine and the sinks ask about one statement.

A cut of many tables asks about all of its statements in turn, and then about all of them again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")
# The words of a statement take some hundred times its length: about 100 MB in all, and as much for a statement that has as many
# as can be, whoever wrote the statements.
_CHARACTERS = 1 << 20
_OF_ONE = 256
"""What each statement counts for beside its length, in characters."""


def remembered(read: Callable[Concatenate[str, _P], _T]) -> Callable[Concatenate[str, _P], _T]:
    """The function, with the results of its last calls kept: as many as their texts (its first argument) leave room for."""
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
