"""Measures Headrace end to end, beside the floor that the machine sets: ``make bench``, or ``python -m benchmarks.run --help``."""

import sys
from pathlib import Path

# The servers are those of the tests, whose modules find each other there.
sys.path.append(str(Path(__file__).parents[1] / "tests"))
