"""``blackhole://``: counts the net changes and drops them, to measure everything before the target, as in TiCDC."""

from headrace.sinks.blackhole.sink import open_sink

__all__ = ["open_sink"]
