"""A Drainer's topic as a :class:`headrace.sources.base.DataSource`."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.kafka.settings import KafkaCluster, cluster_of
from headrace.model.split import HeldSplit
from headrace.model.table import Column, TableSchema
from headrace.model.uri import NO_OPTIONS, ConnectorOptions, parse_uri, reject_unknown
from headrace.sources.stream import StreamEventSource
from headrace.sources.tidb_binlog.options import BinlogOptions, read_options
from headrace.sources.tidb_binlog.reader import BinlogReader


def open_source(uri: str, options: ConnectorOptions = NO_OPTIONS) -> BinlogSource:
    """The source that a URI ``tidb-binlog://host:port[,host:port]/[topic]?cluster-id=…`` names.

    It has no options beside the URI. Does not connect. Raises DefinitionError.
    """
    reject_unknown(options, (), "option of a binlog source")
    parsed = parse_uri(uri)
    read = read_options(parsed)
    servers = parsed.redacted()[: len(parsed.redacted()) - len(parsed.path)]
    return BinlogSource(f"{servers}/{read.topic}", cluster_of(parsed), read)


@dataclass(frozen=True)
class BinlogSource:
    """A topic that one Drainer writes to."""

    identity: str
    cluster: KafkaCluster
    options: BinlogOptions

    @property
    def event_source(self) -> StreamEventSource:
        """A new stream of changes, without a connection."""
        return StreamEventSource(BinlogReader(self.identity, self.cluster, self.options))

    def carried(self, schema: TableSchema) -> tuple[Column, ...]:
        """See ``DataSource.carried``: rows carry all columns but generated ones."""
        return schema.row_columns

    def held(self, position: str) -> tuple[HeldSplit, ...]:
        """Always empty: a stream's position does not list the records that a table still needs."""
        return ()
