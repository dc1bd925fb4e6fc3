"""A set that drops its oldest members: for messages to be shown only once, in processes that run for years."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

KEPT = 10_000
"""About some MiB of sentences. An older message may be shown again."""

_T = TypeVar("_T", bound=Hashable)


class Recent(Generic[_T]):
    """The members that were added last, at most :data:`KEPT`."""

    def __init__(self) -> None:
        self._members: dict[_T, None] = {}

    def add(self, member: _T) -> bool:
        """Adds a member. Returns whether it is new; a member that is already in the set becomes the newest."""
        is_new = member not in self._members
        self._members.pop(member, None)
        self._members[member] = None
        if len(self._members) > KEPT:
            del self._members[next(iter(self._members))]
        return is_new
