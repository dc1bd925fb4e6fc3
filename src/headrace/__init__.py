"""Headrace applies the change data that TiDB emits somewhere else, effectively once, on Spark."""

__version__ = "0.1.0"
