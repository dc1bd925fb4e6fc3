"""Decoders from bytes to record batches of changes, one module per wire format. No Spark, no network."""
