"""Secrets in texts of servers and libraries, however these spell them."""

from __future__ import annotations

from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.secret_texts import without, without_parts_of_urls


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<>"), min_size=1),
    st.sampled_from(["", "/", "+/=:", "-._~!$&'()*+,;=:@/"]),
)
def test_a_secret_is_found_however_much_of_it_is_quoted(secret: str, safe: str) -> None:
    for form in (secret, quote(secret, safe=safe), quote_plus(secret)):
        assert without(f"<{form}>", [secret]) == "<***>"


def test_the_longest_secret_is_replaced_first_and_an_empty_one_never() -> None:
    assert without("abc ab", ["ab", "", "abc"]) == "*** ***"
    assert without("%2f %2F /", ["/"]) == "*** *** ***"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "GetProperties failed for 'http://h:1/a/c?sig=x%2By&sp=rl'. Azure Error: []",
            "GetProperties failed for 'http://h:1/a/c?***'. Azure Error: []",
        ),
        ("list c/t: https://h/a?sig=x Azure Error", "list c/t: https://h/a?*** Azure Error"),
        ('at "s3://u:p@h/b" and <azure://c/p?x>', 'at "s3://***@h/b" and <azure://c/p?***>'),
        ("https://h/a@b is there? yes: 1@2", "https://h/a@b is there? yes: 1@2"),
    ],
)
def test_no_url_keeps_its_user_or_parameters(text: str, told: str) -> None:
    assert without_parts_of_urls(text) == told
