"""Reads what a TiCDC changefeed writes to a Kafka topic."""

from headrace.sources.kafka.source import KafkaSource, open_source

__all__ = ["KafkaSource", "open_source"]
