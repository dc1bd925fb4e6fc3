"""The common part of all sources of streams: stage, pieces, history, position. A connector adds its :class:`StreamReader`."""

from headrace.sources.stream.reader import BadRecordError, StreamReader
from headrace.sources.stream.source import StreamEventSource

__all__ = ["BadRecordError", "StreamEventSource", "StreamReader"]
