"""DuckDB as a target: one file, one transaction a cut. See ``docs/connectors/duckdb.md`` for what a user needs."""

from headrace.sinks.duckdb.sink import open_sink

__all__ = ["open_sink"]
