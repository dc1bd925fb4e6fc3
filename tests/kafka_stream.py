"""A changefeed that writes canal-JSON to a topic of a real broker, with what may happen to one: stalls, silence and repeats."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer

from headrace.model.table import TableId
from headrace.pipeline.registry import open_source, source_options
from headrace.sources.base import DataSource
from headrace.sources.stream.records import RecordKind
from headrace.testing.memory_source import MemoryRecord, MemoryStream
from headrace.testing.ticdc_canal import CanalEncoder
from headrace.testing.ticdc_options import ChangefeedOptions
from headrace.testing.ticdc_writer import RowChange, SchemaFile, split_key_updates
from kafka_server import KafkaBroker
from streamed_history import PARTITIONS, StreamedHistory

_OPTIONS = ChangefeedOptions("canal-json", enable_tidb_extension=True)
_FLUSH_SECONDS = 120.0


@dataclass
class KafkaStream(MemoryStream):
    """The same stream, whose records :meth:`send` writes to the topic. TiCDC writes statements to partition 0 only."""

    broker: KafkaBroker = field(kw_only=True)
    several: bool = False
    """Whether each partition is a topic of its own. Partitions may stall one by one, so none of them is named as the default topic,
    whose watermarks would count for the others."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.topic = self.broker.make_topic(1 if self.several else self.count)
        others = [self.broker.make_topic(name=f"{self.topic}_{place}") for place in range(1, self.count) if self.several]
        self._places = (
            [(topic, 0) for topic in (self.topic, *others)]
            if self.several
            else [(self.topic, place) for place in range(self.count)]
        )
        self._sent = [0] * self.count
        self._encoders: dict[TableId, CanalEncoder] = {}
        # A broker that is killed and started again gets what it has not confirmed once more, and keeps it once.
        self._producer = Producer({"bootstrap.servers": self.broker.server, "enable.idempotence": True, "log_level": 0})

    @property
    def uri(self) -> str:
        """Rows of tables without a key are told apart by the watermarks between them, as they are here."""
        if self.several:
            return self.broker.uri("", topics=f"{self.topic}*", accept_keyless="true")
        return self.broker.uri(self.topic, accept_keyless="true")

    def send(self) -> None:
        """Waits until the broker has all records of partitions that do not stall."""
        failures: list[object] = []
        for place, records in enumerate(self.partitions):
            topic, partition = self._places[place]
            for record in records[self._sent[place] :]:
                if not record.commit_ts:
                    continue  # the watermark before anything happened, which no TiCDC writes
                self._producer.produce(
                    topic,
                    value=_value(record),
                    partition=partition,
                    on_delivery=lambda error, _: failures.append(error) if error is not None else None,
                )
            self._sent[place] = len(records)
        assert self._producer.flush(_FLUSH_SECONDS) == 0, "the broker does not answer"
        assert not failures, failures

    def rows(self, table_id: TableId, commit_ts: int, changes: Iterable[RowChange], *, partition: int | None = None) -> None:
        """The changes of a transaction to one table, one message each."""
        schema, encoder = self._schemas[table_id], self._encoders[table_id]
        for change in split_key_updates(schema, changes) if schema.handle_key else changes:
            place = self.place_of(table_id, change)
            value = encoder.change(commit_ts, change.before, change.after).strip().encode()
            self._append(place, MemoryRecord(RecordKind.ROWS, table_id, commit_ts, value))

    def schema_changes(self, version: int, files: Sequence[SchemaFile], gone: Iterable[TableId] = ()) -> None:
        """One message for each table of the statement, but for one whose shape only a schema file would show."""
        for table_id in gone:
            self._schemas.pop(table_id, None)
        for file in files:
            if file.schema is not None:
                self._schemas[file.table_id] = file.schema
                self._encoders[file.table_id] = CanalEncoder(_OPTIONS, file.schema)
            if file.statement:
                told = {"id": 0, "database": file.table_id.database, "table": file.table_id.table, "pkNames": None, "isDdl": True}
                told |= {"type": "QUERY", "es": version >> 18, "ts": version >> 18, "sql": file.statement, "sqlType": None}
                told |= {"mysqlType": None, "data": None, "old": None, "_tidb": {"commitTs": version}}
                self._append(0, MemoryRecord(RecordKind.STATEMENT, file.table_id, version, _text(told)))


class KafkaHistory(StreamedHistory):
    """A small history whose changefeed writes to a topic, or to several."""

    def __init__(self, broker: KafkaBroker, root: Path, options: ChangefeedOptions, *, several: bool = False) -> None:
        self._broker, self._several = broker, several
        super().__init__(root, options)

    def new_stream(self) -> KafkaStream:
        self._stream = KafkaStream(PARTITIONS, broker=self._broker, several=self._several)
        return self._stream

    @property
    def uri(self) -> str:
        return self._stream.uri

    def opened(self) -> DataSource:
        self._stream.send()
        return open_source(self.uri, source_options(None))


def _value(record: MemoryRecord) -> bytes:
    if record.kind is not RecordKind.WATERMARK:
        return record.value
    told = {"id": 0, "database": "", "table": "", "pkNames": None, "isDdl": False, "type": "TIDB_WATERMARK"}
    told |= {"es": record.commit_ts >> 18, "ts": record.commit_ts >> 18, "sql": "", "sqlType": None, "mysqlType": None}
    return _text({**told, "data": None, "old": None, "_tidb": {"watermarkTs": record.commit_ts}})


def _text(told: dict[str, object]) -> bytes:
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()
