"""Writes to MySQL, MariaDB and TiDB (rules 7, 15 and 16 of the design: convergent, fenced, atomic if a cut is small enough)."""

from headrace.sinks.mysql.sink import MySqlSink, open_sink

__all__ = ["MySqlSink", "open_sink"]
