"""Each reading case is stated by a test, or it is said why not."""

from __future__ import annotations

import re
from pathlib import Path

from reading_cases import CASES, DIFFERENT, WITHOUT_TEST

TESTS = Path(__file__).parent


def stated() -> set[str]:
    """The cases that tests name."""
    texts = (path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py"))
    marks = (mark for text in texts for mark in re.findall(r"mark\.reading_case\(([^)]*)\)", text))
    return {number for mark in marks for number in re.findall(r'"(\w+)"', mark)}


def test_every_reading_case_of_part_c_has_a_test() -> None:
    found = stated()
    assert sorted(set(CASES) - found - WITHOUT_TEST.keys()) == []
    assert sorted(found - set(CASES)) == []


def test_reasons_are_given_where_they_are_needed_only() -> None:
    found = stated()
    assert sorted(found & WITHOUT_TEST.keys()) == []
    assert sorted(DIFFERENT.keys() - found) == []
    assert all(reason.endswith(".") for reason in (*WITHOUT_TEST.values(), *DIFFERENT.values()))
