"""What every file format shares: how a decoder reports bad bytes.

A decoder is a function ``(data, schema, options) -> Iterator[pa.RecordBatch]``. Its batches have the layout of
``headrace.model.block`` with ``seq`` = the record's number in the file, from 0, and hold *all* rows: the window is the
source's business. Records decoded before a bad one are yielded first.
"""

from __future__ import annotations


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
    """The last record ends in the middle, with no terminator. ``commit_ts`` is there when that much can be read."""

    def __init__(self, message: str, *, line: int | None = None, commit_ts: int | None = None) -> None:
        super().__init__(message, line=line, hint="Upload the complete file again under the same name.")
        self.commit_ts = commit_ts


class SchemaMismatchError(DecodeError):
    """The rows do not have the columns that the schema file lists, and nothing says which are missing."""
