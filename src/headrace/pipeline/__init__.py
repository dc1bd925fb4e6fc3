"""Definitions: URIs and options to a checked pipeline."""
