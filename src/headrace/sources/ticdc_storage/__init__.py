"""Reads the output of TiCDC's storage sink: CSV or canal-JSON files on disks, S3, GCS, Azure Blob Storage or HDFS."""

from headrace.sources.ticdc_storage.source import TicdcStorageSource, open_source

__all__ = ["TicdcStorageSource", "open_source"]
