"""Transactions of the source in order: TableSink, ProgressTracker, ConflictDetector (docs/sink-component.md).

Knows neither Spark nor a database. A sink that replays brings the writers of transactions, and the unique keys of its tables.
"""
