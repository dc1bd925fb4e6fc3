"""What every file format shares: how a decoder reports bad bytes.

A decoder is a function ``(data, schema, options) -> Iterator[pa.RecordBatch]``. Its batches have the layout of
``headrace.model.block`` with ``seq`` = the record's number in the file, from 0, and hold *all* rows: the window is the
source's business. Records decoded before a bad one are yielded first. Given :class:`Rejects`, a decoder leaves bad records out
where it knows for certain where they end, and goes on behind them.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.model.letters import RejectedRecord
from headrace.model.tso import MAX_TSO

MOST_RECORD_BYTES = 1 << 30
"""A record that is longer is a damaged one: TiDB's rows are far smaller, and Arrow's arrays hold 2 GiB at most."""


MEMBER_TIMES = 41
"""How many times as many bytes as its message have the members of a row may have that it names by their places.

A place is a digit, and a member may be long, so a file of a few KiB could become GiB of rows. A column takes 25 bytes of a
message at least (its value, ``sqlType`` and ``mysqlType``), and a member has up to 255 characters of four bytes, unless TiDB is
told otherwise: rows with such a member in each ENUM stay below. An update gives two rows, and its old one may take no byte of
the message, because a column that did not change may be left out there.
"""
_LONGEST_TSO = 20


def told_tso(raw: bytes) -> int | None:
    """The commit ts that a field says, ``None`` where it can be none. Python takes long over thousands of digits, or refuses."""
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


class TruncatedRecordError(DecodeError):
    """The last record ends in the middle, with no terminator. ``commit_ts`` is there when that much can be read.

    So is ``begun``: the record's kind, commit ts and columns of the handle key as one row of a block.
    """

    def __init__(self, message: str, *, line: int | None = None, commit_ts: int | None = None) -> None:
        super().__init__(message, line=line, hint="Upload the complete file again under the same name.")
        self.commit_ts = commit_ts
        self.begun: pa.RecordBatch | None = None


class SchemaMismatchError(DecodeError):
    """The rows do not have the columns that the schema file lists, and nothing says which are missing."""


class OverlongRecordError(DecodeError):
    """A record is longer than :data:`MOST_RECORD_BYTES`. It is never left out, because it may hold many good ones."""

    def __init__(self, length: int, what: str, line: int | None = None) -> None:
        """``what`` is what the format calls a record."""
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
    """Rows name members of an ENUM or SET by their places, and would be very much larger than the file is."""

    def __init__(self, kind: str, column: str) -> None:
        super().__init__(
            f"Rows name members of the {kind} column, and these are so long that each row would be more than {MEMBER_TIMES} times "
            "as large as the message that holds it.",
            column=column,
            hint="Compare the column's ColumnElems in the schema file with the table in the source.",
        )


class Rejects:
    """The bad records that a decoder leaves out: at most ``most``, the next one is raised. With 0 it is the first one."""

    def __init__(self, most: int = 0) -> None:
        self.most = most
        self.records: list[RejectedRecord] = []

    def take(self, error: DecodeError, number: int, offset: int, raw: bytes, commit_ts: int | None) -> None:
        """Leaves a record out, whose ``error`` names what is wrong with it; raises that when there are too many."""
        if len(self.records) >= self.most:
            if self.most:
                error.hint = f"{error.hint} It is one bad record more than the {self.most} that may be left out.".lstrip()
            raise error
        self.records.append(RejectedRecord(number, offset, raw, error.message, error.line, error.column, error.value, commit_ts))

    @property
    def left(self) -> int:
        """How many more may be left out."""
        return self.most - len(self.records)
