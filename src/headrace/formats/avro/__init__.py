"""Avro's binary encoding, read column by column with the schema that the writer used."""
