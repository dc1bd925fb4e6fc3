"""None of the specification's cases is without a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.pipeline

_TESTS = Path(__file__).parents[1]
_NAMED = re.compile(r"def test_t(\d\d)_|[\"']T(\d\d)\b")
_CASES = frozenset(range(1, 78))


def test_every_case_of_the_specification_has_a_test() -> None:
    """By its number in the name of a test, or at the beginning of a parameter's id."""
    texts = (path.read_text(encoding="utf-8") for path in _TESTS.rglob("*.py") if path.name != Path(__file__).name)
    stated = {int(first or second) for text in texts for first, second in _NAMED.findall(text)}
    assert sorted(_CASES - stated) == []
