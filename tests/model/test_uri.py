"""URIs: environment variables, secrets, near matches."""

from __future__ import annotations

import pytest

from headrace.errors import DefinitionError
from headrace.model.uri import parse_uri, reject_unknown


def test_a_password_may_hold_any_character_and_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "p@ss:w/rd%?#")
    uri = parse_uri("mysql://repl:${DB_PASSWORD}@[::1]:3307/shop?ssl-ca=/ca.pem")
    assert (uri.username, uri.password, uri.host, uri.port, uri.path) == ("repl", "p@ss:w/rd%?#", "::1", 3307, "/shop")
    assert uri.redacted() == "mysql://[::1]:3307/shop"
    assert "p@ss" not in repr(uri)
    assert uri.secrets() == ["p@ss:w/rd%?#"]


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(DefinitionError, match="NO_SUCH_VARIABLE is not set"):
        parse_uri("mysql://u:${NO_SUCH_VARIABLE}@db/")


@pytest.mark.parametrize("text", ["shop", "/data/cf", "mysql:db", "mysql://db:port/"])
def test_what_is_no_uri_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(DefinitionError):
        parse_uri(text)


def test_a_near_match_is_suggested() -> None:
    with pytest.raises(DefinitionError, match="Did you mean 'protocol'"):
        reject_unknown(["protocoll"], {"protocol", "date-separator"}, "parameter")
