"""The Driver: reads TiDB's secondary binlog from Kafka, as the Go program of TiDB's "Binlog Consumer Client User Guide" does."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from headrace.binlog.errors import BadRecordError, OffsetGapError
from headrace.binlog.position import Position, offset_after
from headrace.binlog.seek import SeekResult, seek
from headrace.binlog.topic import PARTITION, KafkaLog, first_commit_ts, records
from headrace.errors import DefinitionError, HeadraceError
from headrace.formats.binlog.cell_values import ValueOptions
from headrace.formats.binlog.errors import BinlogError, MalformedBinlogError
from headrace.formats.binlog.messages import Binlog, DdlStatement, read_binlog
from headrace.formats.binlog.row_events import RowEvent, RowReader
from headrace.kafka.client import KafkaClient, Message
from headrace.model.table import TableId, TableSchema
from headrace.model.tso import MAX_TSO

NEWEST, OLDEST = -1, -2
"""Values of ``offset``: the end of the topic, and its oldest record."""


@dataclass(frozen=True)
class Transaction:
    """One message: the rows of a transaction, in its order, or one DDL job. Iterating over it gives the rows."""

    offset: int
    commit_ts: int
    """TSO."""
    rows: tuple[RowEvent, ...]
    ddl: DdlStatement | None
    """The statement and the object it concerns; ``None`` for a transaction."""
    position: Position
    """Where to go on after this transaction."""
    binlog: Binlog
    """The message as it is on the wire, with hidden columns."""

    def __iter__(self) -> Iterator[RowEvent]:
        return iter(self.rows)


class BinlogWarning(UserWarning):
    """What a user of a Driver should know, and what does not stop it."""


def _warn(sentence: str) -> None:
    warnings.warn(sentence, BinlogWarning, stacklevel=4)


class Driver:
    """Reads the transactions of a topic in the order of their commit ts, each once.

    A Driver is an iterator and a context manager. It belongs to one thread, except for :meth:`close`. It joins no consumer group
    and commits no offsets: store a transaction's ``position`` with what you do with the transaction, and pass it as ``resume``.
    """

    def __init__(
        self,
        *,
        kafka_addr: Sequence[str],
        commit_ts: int = 0,
        offset: int = OLDEST,
        cluster_id: str | int = "",
        topic: str = "",
        resume: Position | None = None,
        follow: bool = True,
        allow_gap: bool = False,
        time_zone: str = "",
        charset: str = "utf-8",
        schema_of: Callable[[TableId], TableSchema | None] | None = None,
        on_bad_record: Callable[[BadRecordError, bytes], None] | None = None,
        on_notice: Callable[[str], None] = _warn,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Connects, and finds where to begin.

        * ``kafka_addr``: the brokers, each as ``host:port`` (the guide's KafkaAddr).
        * ``commit_ts``: begin after this commit ts (TSO, CommitTS); takes precedence over ``offset``.
        * ``offset``: begin at this offset (Offset), at :data:`OLDEST` or at :data:`NEWEST`.
        * ``cluster_id``: the cluster's id (ClusterID), from which the name of the topic is made.
        * ``topic``: the name of the topic (Topic); default ``<cluster_id>_obinlog``.
        * ``resume``: go on after this position; takes precedence over ``commit_ts`` and ``offset``.
        * ``follow``: wait for more at the end of the topic; otherwise iteration ends with the records that are there now.
        * ``allow_gap``: begin even if transactions before the oldest record may be gone.
        * ``time_zone``: the zone of the host that Drainer runs on; TIMESTAMP values are then in UTC.
        * ``charset``: the charset of strings, as one of Python's codecs.
        * ``schema_of``: gives the shape of a table, for the members of ENUM and SET and to mark generated columns.
        * ``on_bad_record``: called with each record that cannot be read, which is then left out; by default it is an error.
        * ``on_notice``: called with sentences about what is unusual; by default they are warnings.
        * ``settings``: more settings of librdkafka by its own names, for TLS and SASL for example.

        Raises DefinitionError, SourceUnreachableError, SourceNotReadyError (no such topic), CommitTsTooOldError, OffsetGapError.
        """
        name = topic_name(topic, cluster_id)
        if isinstance(kafka_addr, str) or not kafka_addr:
            raise DefinitionError("kafka_addr is not a list of brokers.", "Pass kafka_addr=['host:9092'].")
        try:
            values = ValueOptions(time_zone, charset)
        except ValueError as error:
            raise DefinitionError(f"{error}.") from None
        self._reader = RowReader(values, schema_of)
        self._on_bad_record, self._follow = on_bad_record, follow
        self._closing, self._is_connected = threading.Event(), True
        self._failure: HeadraceError | None = None
        self.repeats = 0
        """How many transactions were left out because they came again, or were not after ``commit_ts``."""
        self._client = KafkaClient.connect(kafka_addr, settings or {})
        try:
            self._log = KafkaLog(self._client, name, on_notice)
            self._max_ts = resume.commit_ts if resume else max(commit_ts, 0)
            self.start_offset = self._start(commit_ts, offset, resume, allow_gap=allow_gap, notify=on_notice)
            """The offset at which reading began."""
        except BaseException:
            self._disconnect()
            raise
        self._transactions = self._read()

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._log.topic

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None) -> None:
        self.close()

    def __iter__(self) -> Iterator[Transaction]:
        return self

    def __next__(self) -> Transaction:
        """The next transaction or DDL job. Raises BadRecordError, SourceUnreachableError, SourceLostError."""
        if self._failure is not None:
            raise self._failure  # a loop that is begun again must not look like one that came to the end
        try:
            return next(self._transactions)
        except HeadraceError as error:
            self._failure = error
            raise

    def close(self) -> None:
        """Ends the connection. Another thread may call it: iteration then ends soon, and the connection with it."""
        self._closing.set()
        try:
            self._transactions.close()
        except ValueError:
            return  # it is running in another thread, and ends the connection when it is done
        self._disconnect()

    def _disconnect(self) -> None:
        if self._is_connected:
            self._is_connected = False
            self._client.close()

    def _start(
        self, commit_ts: int, offset: int, resume: Position | None, *, allow_gap: bool, notify: Callable[[str], None]
    ) -> int:
        if resume is not None:
            if resume.topic != self.topic:
                raise DefinitionError(f"The position is one of topic {resume.topic}, and topic {self.topic} is to be read.")
            return offset_after(self._log, resume, allow_gap=allow_gap, notify=notify)
        if not 0 <= commit_ts <= MAX_TSO:
            raise DefinitionError(f"commit_ts {commit_ts} is not a commit ts.", "Pass a TSO, or 0 to begin at an offset.")
        if commit_ts:
            return seek(self._log, commit_ts, allow_gap=allow_gap).offset
        oldest, end = self._log.ends()
        if offset in (OLDEST, NEWEST):
            return oldest if offset == OLDEST else end
        if not 0 <= offset <= end:
            raise DefinitionError(f"The {self._log.where} has no offset {offset}: its end is {end}.")
        if offset < oldest:
            if not allow_gap:
                first = first_commit_ts(self._log, oldest, end)
                raise OffsetGapError(self._log.where, offset, oldest, first and first[1])
            return oldest
        return offset

    def _read(self) -> Generator[Transaction, None, None]:
        try:
            with closing(records(self._log, self.start_offset, self._closing, follow=self._follow)) as messages:
                for message in messages:
                    if self._closing.is_set():
                        return
                    transaction = self._transaction(message)
                    if transaction is not None:
                        yield transaction
        finally:
            if self._closing.is_set():
                self._disconnect()

    def _transaction(self, message: Message) -> Transaction | None:
        """A record as a transaction; ``None`` for one that came before, or cannot be read and is left out."""
        value = message.value or b""
        try:
            binlog = read_binlog(value)
            if binlog.commit_ts <= 0:
                raise MalformedBinlogError(f"The commit ts {binlog.commit_ts} is not positive.")
            if binlog.commit_ts <= self._max_ts:
                self.repeats += 1
                return None
            rows = tuple(self._reader.events(binlog))
        except BinlogError as error:
            bad = BadRecordError(self.topic, PARTITION, message.offset, error)
            if self._on_bad_record is None:
                raise bad from None
            self._on_bad_record(bad, value)
            return None
        self._max_ts = binlog.commit_ts
        position = Position(self.topic, message.offset + 1, binlog.commit_ts)
        return Transaction(message.offset, binlog.commit_ts, rows, binlog.ddl, position, binlog)


def topic_name(topic: str, cluster_id: str | int) -> str:
    """The topic of a Drainer: the given one, or the one that it makes of the cluster's id. Raises DefinitionError."""
    if topic:
        return topic
    if not str(cluster_id):
        raise DefinitionError("Neither a topic nor a cluster id is given.", "Pass topic, or cluster_id for <cluster_id>_obinlog.")
    if not str(cluster_id).isdecimal():
        raise DefinitionError(f"The cluster id {cluster_id!r} is not a number.", "TiDB's cluster id is an unsigned number.")
    return f"{cluster_id}_obinlog"


def find_offset(
    kafka_addr: Sequence[str], topic: str, commit_ts: int, *, allow_gap: bool = False, settings: Mapping[str, str] | None = None
) -> SeekResult:
    """Where a Driver would begin for a commit ts. Raises what :class:`Driver` raises."""
    with KafkaClient.connect(kafka_addr, settings or {}) as client:
        return seek(KafkaLog(client, topic, _warn), commit_ts, allow_gap=allow_gap)
