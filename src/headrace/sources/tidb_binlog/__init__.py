"""Reads the topic to which a TiDB Binlog Drainer writes (``db-type = "kafka"``)."""

from headrace.sources.tidb_binlog.source import BinlogSource, open_source

__all__ = ["BinlogSource", "open_source"]
