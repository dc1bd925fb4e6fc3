"""What messages of programs that read the binlog of a MySQL or MariaDB are about: Debezium's connectors and Maxwell."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from headrace.model.table import TableId

LATEST_MS = (1 << 32) * 1000 - 1
"""The latest time (ms since 1970) that a binlog can tell: it has seconds in 32 bits."""


class PlainKind(IntEnum):
    """The kinds of messages."""

    ROW = 0
    STATEMENT = 1
    UNREADABLE = 2
    IGNORED = 3
    """It changes no table or database: a tombstone, a heartbeat, the mark of a transaction or of a bootstrap, another statement."""


class PlainAbout(NamedTuple):
    """What a message is about."""

    kind: PlainKind
    database: str = ""
    table: str = ""
    """Empty for a change of a database, and where the name cannot be read."""
    clock: int = 0
    """The place in the binlog as a number that stands for a commit ts, see ``headrace.formats.binlog_clock``."""
    written_ms: int = 0
    """When the event was written (ms since 1970), by the server's clock and mostly in whole seconds; 0 if it is not told."""
    sent_ms: int = 0
    """When the program sent it (ms since 1970), by its own clock; 0 if it is not told."""
    is_of_snapshot: bool = False
    text: bytes = b""
    """The message; of an ``UNREADABLE`` one the reason: the end of a sentence."""


class PlainStatement(NamedTuple):
    """A schema change in a message."""

    clock: int
    database: str
    table_id: TableId
    """For a change of a database, the database."""
    statement: str
    current_is_known: bool
    """See ``StreamStatement.current_is_known``."""
    is_of_snapshot: bool
    ran_ms: int
    """When the server ran it (ms since 1970), mostly in whole seconds."""
