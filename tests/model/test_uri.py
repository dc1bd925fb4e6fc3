"""URIs: environment variables, secrets, near matches."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

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


def test_a_password_comes_from_a_file_without_the_newline_at_its_end(tmp_path: Path) -> None:
    secret = tmp_path / "db-password"
    for content, expected in (
        ("p@ss:w/rd%?#\n", "p@ss:w/rd%?#"),
        ("a b\r\n", "a b"),
        ("two\nlines\n\n", "two\nlines\n"),
        ("x", "x"),
    ):
        secret.write_bytes(content.encode())
        uri = parse_uri(f"s3://repl:${{file:{secret}}}@db:3307/shop?secret-access-key=${{file:{secret}}}&region=eu")
        assert (uri.host, uri.port, uri.path, uri.params["region"]) == ("db", 3307, "/shop", "eu")
        assert uri.secrets() == [expected, expected]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        DefinitionError, match=re.escape(f"The file {tmp_path}/gone, named as ${{file:{tmp_path}/gone}}, cannot be read")
    ):
        parse_uri(f"mysql://u:${{file:{tmp_path}/gone}}@db/")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(DefinitionError, match="it is not UTF-8"):
        parse_uri(f"mysql://u:${{file:{tmp_path}/binary}}@db/")
    with pytest.raises(DefinitionError, match="cannot be read: No such file"):
        parse_uri("mysql://u:${file:/nowhere/\udcff}@db/")


@pytest.mark.parametrize("name", ["access-key", "secret-access-key", "session-token", "account-key", "sas-token", "external-id"])
def test_keys_of_stores_are_secrets(name: str) -> None:
    assert parse_uri(f"s3://bucket/prefix?region=eu&{name}=s%2Fcret").secrets() == ["s/cret"]


@pytest.mark.parametrize(
    "text",
    ["shop", "/data/cf", "mysql:db", "mysql://db:port/", "mysql://u:${file:/nowhere/\0}@db/"],
)
def test_what_is_no_uri_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(DefinitionError):
        parse_uri(text)


def test_a_near_match_is_suggested() -> None:
    with pytest.raises(DefinitionError, match="Did you mean 'protocol'"):
        reject_unknown(["protocoll"], {"protocol", "date-separator"}, "parameter")


@pytest.mark.parametrize("query", ["ssl-ca=/ca.pem&ssl-ca=", "ssl-ca=&SSL-CA=/ca.pem", "a=1&ssl-ca=x&b=2&ssl-ca=${OTHER}"])
def test_a_parameter_with_two_values_is_refused(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER", "y")
    with pytest.raises(DefinitionError, match="The parameter 'ssl-ca' is in the URI twice"):
        parse_uri(f"mysql://host/?{query}")


def test_a_parameter_that_is_repeated_with_one_value_is_that() -> None:
    assert parse_uri("mysql://host/?worker-count=4&Worker-Count=4").params == {"worker-count": "4"}


@pytest.mark.parametrize("text", ["mysql://u@db:3306/#?ssl-ca=/ca.pem", "duckdb:///data/shop#1.duckdb", "mysql://u:pa#ss@db/"])
def test_what_stands_behind_a_number_sign_is_not_dropped_silently(text: str) -> None:
    with pytest.raises(DefinitionError, match=r"holds a #.*Write it as %23") as refused:
        parse_uri(text)
    assert "pa#ss" not in str(refused.value)
    assert parse_uri("file:///cf%231").path == "/cf#1"


def test_several_servers_stay_together() -> None:
    uri = parse_uri("kafka://a:9092,b:9093,c:9094/topic?protocol=canal-json")
    assert (uri.host, uri.port, uri.path) == ("a:9092,b:9093,c", 9094, "/topic")
    assert uri.redacted() == "kafka://a:9092,b:9093,c:9094/topic"


@pytest.mark.parametrize("name", ["sasl-password", "kafka.sasl.password", "kafka.ssl.key.password", "kafka.ssl.key.pem"])
def test_passwords_of_a_kafka_client_are_secrets(name: str) -> None:
    assert parse_uri(f"kafka://a:9092/t?{name}=s%2Fcret&kafka.client.id=plain").secrets() == ["s/cret"]


SIGNATURE = "Kk77+p/Pq=="
TOKEN = f"sv=2026-01-01&sp=rl&sig={quote(SIGNATURE, safe='')}"


@pytest.mark.parametrize("token", [TOKEN, f"?{TOKEN}"])
def test_the_signature_of_a_token_is_a_secret_of_its_own(token: str) -> None:
    """A client sends the parameters of the token in its own order."""
    secrets = parse_uri(f"azure://container/p?sas-token={quote(token, safe='')}").secrets()
    assert secrets == [token, quote(SIGNATURE, safe=""), SIGNATURE]


def test_the_secrets_of_a_url_in_a_parameter_are_secrets_too() -> None:
    inner = f"azure://container/p?account-name=a&sas-token={quote(TOKEN, safe='')}&account-key=hush%2F"
    secrets = parse_uri(f"kafka://h:9092/t?claim-check-storage-uri={quote(inner, safe='')}").secrets()
    assert {inner, TOKEN, SIGNATURE, "hush%2F", "hush/"} <= set(secrets)
    assert not {"a", "rl", "2026-01-01"} & set(secrets)
