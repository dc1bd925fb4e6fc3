"""Bytes to record batches of changes, one module a wire format. No Spark, no network."""
