"""DuckDB as a target: one file, one transaction per cut. ``docs/connectors/duckdb.md`` describes what a user needs."""

from headrace.sinks.duckdb.sink import open_sink

__all__ = ["open_sink"]
