"""What of the tests ``make test`` takes: ``make test ALL=1``, and CI, take all.

Whole pipelines, servers, Spark and growth with size make a test cost a tenth of a second and more. Where such a test has variants,
a quarter of them are taken, always the same ones, and where it draws histories, it draws a quarter as many.
"""

from __future__ import annotations

import os
import zlib
from collections import defaultdict
from collections.abc import Iterable

import pytest

SHARE = 4
"""One of so many is taken."""
IS_SAMPLE = "HEADRACE_TEST_SAMPLE" in os.environ
_COSTLY = ("pipeline", "server", "spark", "long")
_WHOLE = "tests/support/"
"""Writes down what it observes, so that it needs all of its tests."""


def drawn(examples: int) -> int:
    """How many examples a test draws of so many."""
    return max(1, examples // SHARE) if IS_SAMPLE else examples


def left_out(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """The tests that a sample leaves out. Of each test at least one variant is taken."""
    variants: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        test, is_variant, _ = item.nodeid.partition("[")
        if is_variant and not test.startswith(_WHOLE) and any(item.get_closest_marker(name) for name in _COSTLY):
            variants[test].append(item)
    out: set[pytest.Item] = set()
    for alike in variants.values():
        alike.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        out.update(alike[-(-len(alike) // SHARE) :])
    return out
