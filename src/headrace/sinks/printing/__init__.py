"""``print://``: every change as one JSON line on the standard output, in commit order. For looking, and for pipes."""

from headrace.sinks.printing.sink import open_sink

__all__ = ["open_sink"]
