"""A Drainer's topic as a :class:`headrace.sources.base.DataSource`."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.kafka.retention import retention_findings
from headrace.kafka.settings import KafkaCluster, cluster_of
from headrace.model.backlog import PartitionBacklog
from headrace.model.inspection import Checkup, Finding, Inspection
from headrace.model.precision import CommitTsPrecision
from headrace.model.split import HeldSplit
from headrace.model.table import Column, TableSchema
from headrace.model.uri import NO_OPTIONS, ConnectorOptions, parse_uri, reject_unknown
from headrace.sources.base import Progress
from headrace.sources.stream import StreamEventSource
from headrace.sources.stream.backlog import backlog_of
from headrace.sources.stream.inspection import Described, check_stream, inspect_stream
from headrace.sources.tidb_binlog.options import BinlogOptions, read_options
from headrace.sources.tidb_binlog.reader import BinlogReader

_DESCRIBED = Described("tidb-binlog", CommitTsPrecision.EXACT)


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
    def _reader(self) -> BinlogReader:
        return BinlogReader(self.identity, self.cluster, self.options)

    @property
    def event_source(self) -> StreamEventSource:
        """A new stream of changes, without a connection."""
        return StreamEventSource(self._reader)

    def inspect(self, *, count_rows: bool = False) -> Inspection:
        """See ``InspectableSource.inspect``."""
        return inspect_stream(self._reader, _DESCRIBED, count_rows=count_rows)

    def check(self, progress: Progress = lambda _done, _all: None) -> Checkup:
        """See ``InspectableSource.check``."""
        return check_stream(self._reader, _DESCRIBED, progress)

    def advise(self) -> list[Finding]:
        """See ``AdvisedSource.advise``."""
        with self.cluster.connect() as client:
            return list(retention_findings(client, [self.options.topic]))

    def backlog(self, position: str) -> list[PartitionBacklog]:
        """See ``LaggingSource.backlog``."""
        return backlog_of(self._reader, position)

    def carried(self, schema: TableSchema) -> tuple[Column, ...]:
        """See ``DataSource.carried``: rows carry all columns but generated ones."""
        return schema.row_columns

    def held(self, position: str) -> tuple[HeldSplit, ...]:
        """Always empty: a stream's position does not list the records that a table still needs."""
        return ()
