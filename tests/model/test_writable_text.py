"""A text that quotes input can be written everywhere, whatever the input was."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.writable_text import as_utf8, writable

SOURCE = Path(__file__).parents[2] / "src" / "headrace"
_BARE = re.compile(r"\b\w*(?:reason|message|str\(error\))\)?\.encode\(\)", re.IGNORECASE)
_OF_INPUT = ("formats", "sources")


@given(st.text(st.characters(exclude_categories=()) | st.sampled_from("\ud800\udbff\udc80\udfff")))
def test_any_text_can_be_written_and_only_lone_surrogates_change(text: str) -> None:
    written = writable(text)
    assert as_utf8(text) == written.encode()
    kept = "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text)
    assert written == kept
    assert writable(written) == written
    assert writable(None) is None


def test_a_lone_surrogate_is_shown_as_json_writes_it() -> None:
    assert writable("a\ud800b") == r"a\ud800b"
    assert json.loads(writable(json.dumps("a\ud800b", ensure_ascii=False))) == "a\ud800b"


@pytest.mark.parametrize("package", _OF_INPUT)
def test_no_module_encodes_a_reason_in_another_way(package: str) -> None:
    """``str.encode`` raises for what a message may contain, and would end the run for all tables."""
    found = [
        f"{path.relative_to(SOURCE)}: {match[0]}"
        for path in sorted((SOURCE / package).rglob("*.py"))
        for match in _BARE.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []
