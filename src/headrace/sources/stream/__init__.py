"""What all sources of streams share: stage, pieces, history, position. A connector adds a :class:`StreamReader` of its system."""

from headrace.sources.stream.reader import BadRecordError, StreamReader
from headrace.sources.stream.source import StreamEventSource

__all__ = ["BadRecordError", "StreamEventSource", "StreamReader"]
