"""What all file formats share: how a decoder reports bad bytes.

A decoder is a function ``(data, schema, options) -> Iterator[pa.RecordBatch]``. Its batches have the layout of
``headrace.model.block``, with ``seq`` = the record's number in the file, from 0. They contain *all* rows: the source applies the
window. Records before a bad one are yielded first. With :class:`Rejects`, a decoder leaves out a bad record if it is certain where
the record ends, and continues after it.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.model.letters import RejectedRecord
from headrace.model.tso import MAX_TSO

MOST_RECORD_BYTES = 1 << 30
"""A longer record is damaged: TiDB's rows are far smaller, and Arrow's arrays hold at most 2 GiB."""


MEMBER_TIMES = 41
"""The limit for members of ENUM and SET that a row names by their places: their bytes, as a multiple of the message's bytes.

A place is a digit and a member may be long, so a file of a few KiB could become GiB of rows. In a message a column takes at least
25 bytes (its value, ``sqlType`` and ``mysqlType``). A member has at most 255 characters of four bytes, unless TiDB is configured
otherwise. So rows with such a member in each ENUM stay below the limit. An update gives two rows, and its old row may take no byte
of the message, because it may leave out a column that did not change.
"""
_LONGEST_TSO = 20


def told_tso(raw: bytes) -> int | None:
    """The commit ts in a field, ``None`` if it is not a possible one.

    The length is checked first, because Python needs long to convert thousands of digits, or refuses.
    """
    number = int(raw) if raw.isdigit() and len(raw) <= _LONGEST_TSO else -1
    return number if 0 <= number <= MAX_TSO else None


class DecodeError(Exception):
    """A record does not follow the format. ``line`` counts physical lines from 1; ``column`` names the table's column."""

    def __init__(
        self, message: str, *, line: int | None = None, column: str = "", value: str | None = None, hint: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column
        self.value = value
        self.hint = hint


class BytesOrTextError(DecodeError):
    """A record holds bytes for a column that is text by the table's schema changes, or the other way round.

    Only the types that a record names show that. A shape that follows from statements may lack the default charset of a database.
    """

    def __init__(self, column: str, *, holds_bytes: bool) -> None:
        told, known = ("bytes", "text") if holds_bytes else ("text", "bytes")
        super().__init__(
            f"In the message the column holds {told}, and by the table's schema changes it holds {known}.",
            column=column,
            hint="The default charset of its table or database may be older than the topic. Name the charset in the source, with "
            "ALTER TABLE … CONVERT TO CHARACTER SET or MODIFY COLUMN, or leave the table out with --tables.",
        )


class TruncatedRecordError(DecodeError):
    """The last record is cut off, without a terminator.

    ``commit_ts`` is set if it can be read. So is ``begun``: the record's kind, commit ts and handle-key columns as one row of a
    block.
    """

    def __init__(self, message: str, *, line: int | None = None, commit_ts: int | None = None) -> None:
        super().__init__(message, line=line, hint="Upload the complete file again under the same name.")
        self.commit_ts = commit_ts
        self.begun: pa.RecordBatch | None = None


class SchemaMismatchError(DecodeError):
    """The rows do not have the columns that the schema file lists, and it is unknown which are missing."""


class OverlongRecordError(DecodeError):
    """A record is longer than :data:`MOST_RECORD_BYTES`. It is never left out, because it may hold many good ones."""

    def __init__(self, length: int, what: str, line: int | None = None) -> None:
        """``what`` is the format's word for a record."""
        super().__init__(
            f"The {what} has {length} bytes, and no row of TiDB is that large: the mark at its end is missing or damaged.",
            line=line,
            hint="Upload the complete file again under the same name.",
        )


class MembersNotKnownError(SchemaMismatchError):
    """A number stands for a member of an ENUM or SET, and the schema file does not list the members."""

    def __init__(self, kind: str, column: str, value: str) -> None:
        super().__init__(
            f"The value is the position of a member of the {kind} column, and the members are not known.",
            column=column,
            value=value,
        )


class OverlongMembersError(SchemaMismatchError):
    """Rows name members of an ENUM or SET by their places, and would become much larger than the file."""

    def __init__(self, kind: str, column: str) -> None:
        super().__init__(
            f"Rows name members of the {kind} column, and these are so long that each row would be more than {MEMBER_TIMES} times "
            "as large as the message that holds it.",
            column=column,
            hint="Compare the column's ColumnElems in the schema file with the table in the source.",
        )


class Rejects:
    """The bad records that a decoder leaves out: at most ``most``. The next one is raised; with 0 that is the first one."""

    def __init__(self, most: int = 0) -> None:
        self.most = most
        self.records: list[RejectedRecord] = []

    def take(self, error: DecodeError, number: int, offset: int, raw: bytes, commit_ts: int | None) -> None:
        """Leaves a record out. ``error`` says what is wrong with it, and is raised if there are too many bad records."""
        if len(self.records) >= self.most:
            if self.most:
                error.hint = f"{error.hint} It is one bad record more than the {self.most} that may be left out.".lstrip()
            raise error
        self.records.append(RejectedRecord(number, offset, raw, error.message, error.line, error.column, error.value, commit_ts))

    @property
    def left(self) -> int:
        """How many more records may be left out."""
        return self.most - len(self.records)
