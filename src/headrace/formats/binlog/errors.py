"""What can be wrong with a binlog message."""

from __future__ import annotations

from headrace.formats.base import DecodeError


class BinlogError(DecodeError):
    """Base of what is wrong with one message. The caller knows its partition and offset."""

    message_number: int | None = None
    """Which message of a batch it is, from 0, if several are read together."""


class MalformedBinlogError(BinlogError):
    """The bytes are not a message, or the message contradicts itself."""


class TruncatedBinlogError(MalformedBinlogError):
    """The message ends too early."""


class MissingFieldError(MalformedBinlogError):
    """A field is missing without which the message has no meaning."""


class UnknownBinlogTypeError(BinlogError):
    """The message is neither a transaction nor a DDL job."""


class UnknownMutationTypeError(BinlogError):
    """A change of a row is not an insert, an update or a delete."""


class RowShapeError(MalformedBinlogError):
    """A row has more or fewer values than its table has columns."""


class UnknownValueError(BinlogError):
    """The message does not contain what a value means: the members of an ENUM or SET, a charset, or the zone of a TIMESTAMP."""
