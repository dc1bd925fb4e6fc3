"""``file://``, ``s3://``, ``gcs://``, ``azure://``: change files in TiCDC's own layout, for whoever reads a storage sink."""

from headrace.sinks.storage.sink import open_sink

__all__ = ["open_sink"]
