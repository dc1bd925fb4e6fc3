"""``blackhole://``: counts the net changes and drops them. For measuring everything before a target, as in TiCDC."""

from headrace.sinks.blackhole.sink import open_sink

__all__ = ["open_sink"]
