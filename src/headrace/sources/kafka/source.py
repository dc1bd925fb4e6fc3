"""A changefeed's topics as a :class:`headrace.sources.base.DataSource`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.kafka.settings import KafkaCluster, cluster_of
from headrace.model.backlog import PartitionBacklog
from headrace.model.inspection import Checkup, Finding, Inspection, Severity
from headrace.model.split import HeldSplit
from headrace.model.table import Column, TableSchema
from headrace.model.uri import NO_OPTIONS, ConnectorOptions, parse_uri, reject_unknown, text_of
from headrace.sources.base import Progress
from headrace.sources.kafka.advice import findings
from headrace.sources.kafka.options import KafkaOptions, read_options
from headrace.sources.kafka.protocols import protocol_of
from headrace.sources.kafka.reader import KafkaReader, carried_columns
from headrace.sources.stream import StreamEventSource
from headrace.sources.stream.backlog import backlog_of
from headrace.sources.stream.inspection import Described, check_stream, inspect_stream

_OPTIONS = frozenset({"changefeed"})


def open_source(uri: str, options: ConnectorOptions = NO_OPTIONS) -> KafkaSource:
    """The source that a URI ``kafka://host:port[,host:port]/topic?protocol=…`` names.

    ``topics=a,b,shop_*`` names further topics. The option ``changefeed`` is the path of a changefeed file, for settings that are
    not in the URI. Does not connect. Raises DefinitionError.
    """
    reject_unknown(options, _OPTIONS, "option of a Kafka source")
    parsed = parse_uri(uri)
    read = read_options(parsed, text_of(options, "changefeed"))
    if read.protocol:
        protocol_of(read.protocol, read)  # an option that it needs may be missing
    servers = parsed.redacted().removesuffix(parsed.path)
    return KafkaSource(f"{servers}/{read.topics.text}", cluster_of(parsed), read)


@dataclass(frozen=True)
class KafkaSource:
    """The topics that one changefeed writes to."""

    identity: str
    cluster: KafkaCluster
    options: KafkaOptions

    @property
    def _reader(self) -> KafkaReader:
        return KafkaReader(self.identity, self.cluster, self.options)

    @property
    def event_source(self) -> StreamEventSource:
        """A new stream of changes, without a connection."""
        return StreamEventSource(self._reader)

    @property
    def caveats(self) -> Sequence[str]:
        """See ``WeakerSource.caveats``. Empty if only the messages show the protocol."""
        return protocol_of(self.options.protocol, self.options).caveats if self.options.protocol else ()

    def inspect(self, *, count_rows: bool = False) -> Inspection:
        """See ``InspectableSource.inspect``."""
        reader = self._reader
        return inspect_stream(reader, _described(reader), count_rows=count_rows)

    def check(self, progress: Progress = lambda _done, _all: None) -> Checkup:
        """See ``InspectableSource.check``."""
        reader = self._reader
        return check_stream(reader, _described(reader), progress)

    def advise(self) -> list[Finding]:
        """See ``AdvisedSource.advise``."""
        reader = self._reader
        ends = reader.ends()
        is_known = bool(self.options.protocol) or any(end.first < end.end for end in ends)
        found = findings(self.cluster, self.options, reader.protocol if is_known else None, ends)
        return [*found, *(Finding("partitions", notice.message, severity=Severity.WARNING) for notice in reader.unread)]

    def backlog(self, position: str) -> list[PartitionBacklog]:
        """See ``LaggingSource.backlog``."""
        return backlog_of(self._reader, position)

    def carried(self, schema: TableSchema) -> tuple[Column, ...]:
        """See ``DataSource.carried``: all columns but virtual generated ones, and those that column selectors leave out."""
        return carried_columns(self.options, schema)

    def held(self, position: str) -> tuple[HeldSplit, ...]:
        """Always empty: a stream's position does not list the records that a table still needs."""
        return ()


def _described(reader: KafkaReader) -> Described:
    protocol = reader.protocol
    return Described(protocol.name, protocol.commit_ts, has_watermarks=not protocol.caveats)
