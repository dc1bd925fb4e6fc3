"""``print://``: writes every change as a JSON line to the standard output, in commit order. For inspection, and for pipes."""

from headrace.sinks.printing.sink import open_sink

__all__ = ["open_sink"]
