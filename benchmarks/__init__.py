"""Measures Headrace end to end, beside the floor that the machine sets: ``make bench``, or ``python -m benchmarks.run --help``."""
