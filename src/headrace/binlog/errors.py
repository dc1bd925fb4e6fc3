"""The errors of the Driver, beside those of ``headrace.errors`` that it raises for Kafka itself."""

from __future__ import annotations

from headrace.errors import EXIT_TABLE_STOPPED, HeadraceError, SourceLostError
from headrace.formats.base import DecodeError
from headrace.model.tso import tso_and_time


class CommitTsTooOldError(SourceLostError):
    """The topic may have had transactions after the wanted commit ts that it does not keep any more."""

    def __init__(self, where: str, commit_ts: int, oldest_offset: int, oldest_ts: int) -> None:
        super().__init__(
            f"The oldest record of {where}, at offset {oldest_offset}, has the commit ts {tso_and_time(oldest_ts)}, which is later "
            f"than {tso_and_time(commit_ts)}: transactions in between may be gone.",
            "Load the data anew as of a commit ts that the topic still has, or pass allow_gap if nothing is missing.",
        )
        self.oldest_offset, self.oldest_ts = oldest_offset, oldest_ts


class OffsetGapError(SourceLostError):
    """The records from the wanted offset on are not kept any more."""

    def __init__(self, where: str, offset: int, oldest_offset: int, oldest_ts: int | None) -> None:
        of_oldest = f", with the commit ts {tso_and_time(oldest_ts)}" if oldest_ts is not None else ""
        super().__init__(
            f"The oldest record of {where} has the offset {oldest_offset}{of_oldest}, and reading would have to begin at offset "
            f"{offset}: the records in between are gone.",
            "Load the data anew as of a commit ts that the topic still has, or pass allow_gap if nothing is missing.",
        )
        self.oldest_offset, self.oldest_ts = oldest_offset, oldest_ts


class BadRecordError(HeadraceError):
    """A record is not a message that can be read, or a value in it is not."""

    exit_code = EXIT_TABLE_STOPPED

    def __init__(self, topic: str, partition: int, offset: int, error: DecodeError) -> None:
        column = f" (column {error.column})" if error.column and error.column not in error.message else ""
        value = f" The value is {error.value!r}." if error.value else ""
        super().__init__(f"Topic {topic}, partition {partition}, offset {offset}{column}: {error.message}{value}", error.hint)
        self.topic, self.partition, self.offset, self.error = topic, partition, offset, error
