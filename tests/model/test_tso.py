"""TSOs and time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.tso import format_tso, parse_tso, tso_from_datetime, tso_to_datetime, tso_to_ms


def test_the_documented_example() -> None:
    tso = 450253245302439944
    assert tso_to_ms(tso) == 1717579823694
    assert format_tso(tso) == "2024-06-05 09:30:23.694 UTC"
    assert parse_tso("2024-06-05T09:30:23.694Z") == tso - 8 == parse_tso("2024-06-05 11:30:23.694+02:00")
    assert parse_tso(str(tso)) == tso


def test_a_number_that_tells_no_time_stays_a_number() -> None:
    assert [format_tso(tso) for tso in (0, 1 << 57, 1 << 62)] == ["0", str(1 << 57), "2527-06-23 06:20:44.416 UTC"]


@given(st.integers(0, 2**61))
def test_a_tso_goes_to_time_and_back_to_its_millisecond(tso: int) -> None:
    if tso_to_ms(tso) < 253402300800000:
        assert tso_from_datetime(tso_to_datetime(tso)) == tso >> 18 << 18


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "99999999999999999999", "2024-13-01"])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"TSO"):
        parse_tso(text)


@pytest.mark.parametrize("text", ["²", "٣", "9" * 5000, "1" + "0" * 41, str(2**63)])
def test_what_is_no_tso_is_told_in_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"is larger than any TSO|is neither a TSO nor an ISO time"):
        parse_tso(text)
