"""Writes to MySQL, MariaDB and TiDB (rules 7, 15 and 16 of the design: converge, fenced, atomic when it fits)."""

from headrace.sinks.mysql.sink import MySqlSink, open_sink

__all__ = ["MySqlSink", "open_sink"]
