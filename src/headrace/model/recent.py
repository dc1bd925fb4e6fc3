"""A set that forgets its oldest members: for what is to be said once, in processes that live for years."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

KEPT = 10_000
"""Some MiB of sentences. What was said so long ago may be said again."""

_T = TypeVar("_T", bound=Hashable)


class Recent(Generic[_T]):
    """The members that were added last, at most :data:`KEPT`."""

    def __init__(self) -> None:
        self._members: dict[_T, None] = {}

    def add(self, member: _T) -> bool:
        """Whether it was not there. One that was counts as added now."""
        is_new = member not in self._members
        self._members.pop(member, None)
        self._members[member] = None
        if len(self._members) > KEPT:
            del self._members[next(iter(self._members))]
        return is_new
