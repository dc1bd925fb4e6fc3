"""A schema change as a message tells it."""

from __future__ import annotations

from typing import NamedTuple


class TimedStatement(NamedTuple):
    """A schema change with its commit ts, in a message that does not describe the table."""

    commit_ts: int
    """TSO. Of a protocol that carries only the millisecond, the first one of it."""
    database: str
    table: str
    """Empty for a change of a database."""
    statement: str
    """As a server reads it."""
