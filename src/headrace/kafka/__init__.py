"""Reads Kafka topics: settings of a cluster, offsets of partitions, bounded ranges of records. Knows no engine and no format."""
